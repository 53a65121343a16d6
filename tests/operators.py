"""``python -m tests.operators``: compile what DeepSpeed needs on a processor, once and for all tests of this checkout.

Else the first tests that need an operator compile it while the others wait, and those of the proofs once more.
"""

from __future__ import annotations

import os
import shutil

from tests.conftest import OPERATORS, take_own_ninja
from tests.proofs.zygote import OPERATORS as BUILDERS
from tests.proofs.zygote import operators


def main() -> None:
    os.environ.update(DS_ACCELERATOR="cpu", TORCH_EXTENSIONS_DIR=str(OPERATORS))
    take_own_ninja()
    from deepspeed.accelerator import get_accelerator

    for builder in BUILDERS:
        get_accelerator().create_op_builder(builder).load(verbose=False)
    shutil.copytree(OPERATORS, operators(), dirs_exist_ok=True)


if __name__ == "__main__":
    main()
