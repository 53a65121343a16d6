"""First on the path of whatever a test starts that is not marked `libs`: notes when that imports a training library.

Nothing is changed by it: the import goes on. `libraries.py` reads the notes when the test is over.
"""

import os
import sys
from typing import Any


def _hear(event: str, values: tuple[Any, ...]) -> None:
    notes = os.environ.get("ZEROCFG_LIBRARIES_NOTED")
    if event == "import" and notes and values[0].partition(".")[0] in _LIBRARIES:
        started = " ".join(" ".join(sys.orig_argv).split())
        with open(notes, "a", encoding="utf-8") as file:  # noqa: PTH123  (pathlib would be imported into each process)
            file.write(f"{values[0].partition('.')[0]} in {started[:120]}\n")


_LIBRARIES = os.environ.get("ZEROCFG_LIBRARIES", "").split()
if _LIBRARIES:
    sys.addaudithook(_hear)
