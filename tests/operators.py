"""``python -m tests.operators``: compile what DeepSpeed needs on a processor, once and for all tests of this checkout.

Else the first tests that need an operator compile it while the others wait, and those of the proofs once more.
"""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

from tests.conftest import OPERATORS, take_own_ninja
from tests.proofs.zygote import OPERATORS as BUILDERS
from tests.proofs.zygote import operators


def missing() -> str | None:
    """What the compilation lacks here, and what brings it; None when nothing."""
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler) is None:
        return f"there is no C++ compiler `{compiler}`: apt install g++, or name one in CXX"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python.h is not there: apt install python3-dev"
    return None


def main() -> None:
    if lacks := missing():
        sys.exit(f"DeepSpeed compiles its operators for a processor, and {lacks}")
    os.environ.update(DS_ACCELERATOR="cpu", TORCH_EXTENSIONS_DIR=str(OPERATORS))
    take_own_ninja()
    from deepspeed.accelerator import get_accelerator

    for builder in BUILDERS:
        get_accelerator().create_op_builder(builder).load(verbose=False)
    shutil.copytree(OPERATORS, operators(), dirs_exist_ok=True)


if __name__ == "__main__":
    main()
