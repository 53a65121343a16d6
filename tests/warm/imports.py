"""The imports of zerocfg's own zygote, and DeepSpeed's compiled operators."""

import runpy
from pathlib import Path

OPERATORS = ("CPUAdamBuilder", "FusedAdamBuilder", "ShareMemCommBuilder")  # what DeepSpeed compiles on a processor

# By its path: zerocfg itself is not imported in the zygote.
runpy.run_path(str(Path(__file__).parents[2] / "zerocfg" / "smoke" / "launch" / "warm" / "imports.py"))

import deepspeed.runtime.zero.muon.muon_optimizer  # noqa: E402, F401
from deepspeed.accelerator import get_accelerator  # noqa: E402

for builder in OPERATORS:
    get_accelerator().create_op_builder(builder).load(verbose=False)
