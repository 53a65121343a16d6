"""``python -m tools.facts.torch_floor``: the oldest torch that each release of transformers works with, to
``schemas/releases/torch-floor.json``: by the first release of it, where that changed.

transformers asks for no torch when it is installed. One that is too old it sets aside, with a line in the log, so that
every class that needs torch raises ImportError when it is used. Read from that line of its source, of the last patch of
each minor release; those that have no such line take any torch.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from zipfile import ZipFile

from tools.facts.environment import HERE, Release
from tools.facts.lost_names import older
from tools.facts.wheels import read_wheel

WRITTEN = HERE.parent.parent / "schemas" / "releases" / "torch-floor.json"
_SAID = re.compile(r"Disabling PyTorch because PyTorch >= (\d+\.\d+) is required")


def floor(library: str, wheel: Path) -> str:
    """The release of torch below which a release of transformers works without torch; empty where it takes any."""
    with ZipFile(wheel) as held:
        said = _SAID.search(held.read(f"{library}/utils/import_utils.py").decode())
    return said[1] if said is not None else ""


def main() -> int:
    changes: dict[str, str] = {}
    for version in (*older("transformers"), importlib.metadata.version("transformers")):
        found = read_wheel(Release("transformers", version), Path(__file__), "torch", floor)
        if found != next(reversed(changes.values()), ""):
            changes[".".join(version.split(".")[:2])] = found
        print(f"transformers {version}: {found or 'any torch'}", file=sys.stderr, flush=True)
    WRITTEN.write_text(json.dumps(changes, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
