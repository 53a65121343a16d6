"""`dynamo_config` of an accelerate file: torch.compile."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.accelerate.facts import option, variable
from zerocfg.models.base import Section, key

Backend = Literal[
    "NO",
    "EAGER",
    "AOT_EAGER",
    "INDUCTOR",
    "AOT_TS_NVFUSER",
    "NVPRIMS_NVFUSER",
    "CUDAGRAPHS",
    "OFI",
    "FX2TRT",
    "ONNXRT",
    "TENSORRT",
    "AOT_TORCHXLA_TRACE_ONCE",
    "TORCHXLA_TRACE_ONCE",
    "TVM",
    "HPU_BACKEND",
    "NEURON",
]


def _exported(name: str, text: Literal["str", "upper"] = "str") -> list[dict[str, object]]:
    return [variable(f"ACCELERATE_DYNAMO_{name}", "simple", "multi_gpu", when="always", text=text)]


class DynamoConfig(Section):
    """Not exported by the DeepSpeed launcher: under distributed_type DEEPSPEED it has no effect."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/utils/launch.py"
    library: ClassVar[str] = "accelerate"
    prefix: ClassVar[str] = "dynamo_"
    prefix_optional: ClassVar[bool] = True
    also: ClassVar[str] = "accelerate-launcher"

    dynamo_backend: Backend | None = key(
        'Compiler back end. Write "NO" in quotes: the bare word is False, which breaks the launch.',
        default="NO",
        reads="raw",
        ignore_case=True,
        cli=option("dynamo_backend"),
        env=_exported("BACKEND", "upper"),
    )
    dynamo_mode: Literal["default", "reduce-overhead", "max-autotune"] = key(
        "torch.compile's mode.",
        default="default",
        reads="raw",
        cli=option("dynamo_mode"),
        env=_exported("MODE"),
    )
    dynamo_use_fullgraph: bool = key(
        "Fail instead of breaking the graph.",
        default=False,
        reads="bool",
        cli=option("dynamo_use_fullgraph"),
        env=_exported("USE_FULLGRAPH"),
    )
    dynamo_use_dynamic: bool = key(
        "Compile for dynamic shapes.",
        default=False,
        reads="bool",
        cli=option("dynamo_use_dynamic"),
        env=_exported("USE_DYNAMIC"),
    )
    dynamo_use_regional_compilation: bool = key(
        "Compile repeated blocks one by one.",
        default=False,
        reads="bool",
        cli=option("dynamo_use_regional_compilation"),
        env=_exported("USE_REGIONAL_COMPILATION"),
    )
