"""``python -m tools.facts.trl_names``: from which TRL on its public names can be imported with transformers 5, to
``schemas/releases/trl-names.json``.

Played: the last patch of each minor release of TRL before 1.0, alone in front of a release set with transformers
4.57.6, and of today's releases. A name counts that the first of the two lets through and the second does not, so that a
package which is not installed here says nothing. Which release 5 is the first to stop it is not looked for: 5.0.0 is
taken for it. Those of TRL ask `_is_package_available` of transformers, whose answer became a pair, true as a condition:
what needs vLLM or llm-blender is imported as if they were there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

from tools.facts.environment import HERE
from tools.facts.lost_names import older
from tools.facts.sets import SETS, alone, installed
from zerocfg.catalog.versions import release

WRITTEN = HERE.parent.parent / "schemas" / "releases" / "trl-names.json"
BEFORE = "0.18.9"
"""The set with transformers 4.57.6."""
OLDEST, NEWEST = "0.9", "1.0"
"""Below the first no trainer goes with a newer transformers at all (`needed_names`); the second goes with release 5."""
_PROGRAM = """
import json, trl
names = sorted({*getattr(trl, "__all__", ()), *dir(trl)})
taken = []
for name in names:
    if name[:1].isupper():
        try:
            getattr(trl, name)
        except Exception:
            continue
        taken.append(name)
print(json.dumps(taken))
"""


def taken(version: str, *, today: bool) -> frozenset[str]:
    """The public names of a release of TRL that can be imported, with today's releases or in the set; none where TRL
    itself cannot."""
    folders = [alone("trl", version), *(installed(item) for item in SETS if item.deepspeed == BEFORE and not today)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, folders))}
    done = subprocess.run([sys.executable, "-c", _PROGRAM], env=environment, capture_output=True, text=True)
    return frozenset(json.loads(done.stdout.splitlines()[-1])) if done.returncode == 0 else frozenset()


def edges(played: list[tuple[str, frozenset[str], frozenset[str]]]) -> dict[str, str]:
    """By name: the minor release of TRL above the last one that lets it through before transformers 5 alone.
    ``played``: releases, oldest first, with the names that both sides let through."""
    found: dict[str, str] = {}
    for (_, before, since), (above, *_) in pairwise([*played, (played[-1][0], frozenset(), frozenset())]):
        for name in before - since:
            found[name] = ".".join(above.split(".")[:2])
    return dict(sorted(found.items()))


def _play() -> Iterator[tuple[str, frozenset[str], frozenset[str]]]:
    versions = [version for version in older("trl") if release(OLDEST) <= release(version) < release(NEWEST)]
    with ThreadPoolExecutor(2) as pool:
        for version in versions:
            alone("trl", version)  # installed once, before two ask for it
            before, since = pool.map(lambda today, version=version: taken(version, today=today), (False, True))
            print(version, len(before), len(since), *sorted(before - since), file=sys.stderr, flush=True)
            yield version, before, since


def main() -> None:
    WRITTEN.write_text(json.dumps({"transformers": {"5.0.0": edges(list(_play()))}}) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
