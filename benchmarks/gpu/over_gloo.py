"""Run zerocfg with ranks that share a card over gloo, whichever other ways the card allows.

    python benchmarks/gpu/over_gloo.py smoke RUN --ranks 2 --share-gpu ...

`zerocfg smoke --share-gpu` takes the first way that works. Here gloo alone is tried beforehand, and the smoke-run takes
over what was found. Without a card (``--device cpu``) the ranks share the processor over gloo anyway.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))


def main(words: list[str]) -> int:
    from zerocfg.__main__ import main as run_zerocfg
    from zerocfg.smoke.launch import sharing
    from zerocfg.smoke.model.error import SmokeError

    if "--share-gpu" in words:
        ranks = int(words[words.index("--ranks") + 1])
        with tempfile.TemporaryDirectory(prefix="zerocfg-gpu-") as scratch:
            try:
                sharing.find(ranks, Path(scratch), modes=("gloo",))
            except SmokeError as error:
                print(error, file=sys.stderr)
                return 2
    sys.argv[1:] = words
    run_zerocfg()  # ends the program with its exit code, but for --version
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
