"""`fp8_config` of an accelerate file: 8 bit training, in effect with mixed_precision fp8 alone."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from zerocfg.models.accelerate.facts import option, variable
from zerocfg.models.base import Section, key

_NEEDS: dict[str, dict[str, object]] = {"mixed_precision": {"const": "fp8"}}
_NOT_READ = "exported, but the job reads {}"


def _exported(name: str, item: int | None = None) -> dict[str, object]:
    return variable(f"ACCELERATE_FP8_{name}", item=item, needs=_NEEDS)


def _renamed(name: str, instead: str) -> Any:
    return key(
        "Written by `accelerate config`.",
        default=None,
        inert=_NOT_READ.format(f"ACCELERATE_FP8_{instead.upper()}"),
        renamed_to=f"fp8_{instead}",
        env=[_exported(name.upper())],
    )


class Fp8Config(Section):
    """Any other key is exported as ACCELERATE_FP8_<KEY>; a key that starts with `fp8` is taken as it is.

    Some keys are read by the recipe of one back end alone.
    """

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/utils/dataclasses.py"
    library: ClassVar[str] = "accelerate"
    prefix: ClassVar[str] = "fp8_"
    prefix_optional: ClassVar[bool] = True
    also: ClassVar[str] = "accelerate-launcher"

    fp8_backend: Literal["AO", "TE", "MSAMP"] | None = key(
        "torchao, Transformer Engine or MS-AMP; upper case in YAML, lower case on the command line.",
        default=None,
        reads="str",
        cli=option("fp8_backend"),
        env=[_exported("BACKEND")],
    )
    fp8_use_autocast_during_eval: bool = key(
        "Run evaluation in 8 bit as well.",
        default=False,
        reads="bool",
        cli=option("fp8_use_autocast_during_eval"),
        env=[_exported("USE_AUTOCAST_DURING_EVAL")],
        facts={"backends": ["TE"]},
    )
    fp8_margin: int = key(
        "Margin of the scaling factor, as a power of two.",
        default=0,
        reads="int",
        cli=option("fp8_margin"),
        env=[_exported("MARGIN")],
        facts={"backends": ["TE"]},
    )
    fp8_interval: int = key(
        "Steps between computations of the scaling factor.",
        default=1,
        unit="steps",
        ge=1,
        reads="int",
        cli=option("fp8_interval"),
        env=[_exported("INTERVAL")],
        facts={"backends": ["TE"]},
    )
    fp8_format: Literal["HYBRID", "E4M3", "E5M2"] = key(
        "Number format; HYBRID is E4M3 forward and E5M2 backward.",
        default="HYBRID",
        reads="str",
        ignore_case=True,
        cli=option("fp8_format"),
        env=[_exported("FORMAT")],
        facts={"backends": ["TE"]},
    )
    fp8_amax_history_len: int = key(
        "Length of the history of largest magnitudes.",
        default=1024,
        unit="steps",
        ge=1,
        reads="int",
        cli=option("fp8_amax_history_len"),
        env=[_exported("AMAX_HISTORY_LEN")],
        facts={"backends": ["TE"]},
    )
    fp8_amax_compute_algo: Literal["max", "most_recent"] = key(
        "How the history becomes one magnitude.",
        default="most_recent",
        reads="str",
        ignore_case=True,
        cli=option("fp8_amax_compute_algo"),
        env=[_exported("AMAX_COMPUTE_ALGO")],
        facts={"backends": ["TE"]},
    )
    fp8_override_linear_precision: list[bool] = key(
        "Higher precision for the forward, data gradient and weight gradient products: a YAML list of "
        "three. A tuple in parentheses is text, of which the first three characters would be exported.",
        default=[False, False, False],
        min_length=3,
        max_length=3,
        reads="raw",
        cli=option("fp8_override_linear_precision"),
        env=[_exported(f"OVERRIDE_{name}", item) for item, name in enumerate(("FPROP", "DGRAD", "WGRAD"))],
        facts={"backends": ["TE"]},
    )
    fp8_opt_level: Literal["O1", "O2"] = key(
        "How much MS-AMP keeps in 8 bit.",
        default="O2",
        reads="str",
        cli=option("fp8_opt_level"),
        env=[_exported("OPT_LEVEL")],
        facts={"backends": ["MSAMP"]},
    )
    fp8_enable_fsdp_float8_all_gather: bool = key(
        "Gather FSDP 2 parameters in 8 bit.",
        default=True,
        reads="bool",
        cli=option("fp8_enable_fsdp_float8_all_gather"),
        env=[_exported("ENABLE_FSDP_FLOAT8_ALL_GATHER")],
        facts={"backends": ["AO"]},
    )
    fp8_pad_inner_dim: bool = key(
        "Pad inner dimensions to a multiple of 16.",
        default=True,
        reads="bool",
        cli=option("fp8_pad_inner_dim"),
        env=[_exported("PAD_INNER_DIM")],
        facts={"backends": ["AO"]},
    )
    fp8_use_mxfp8_block_scaling: bool | None = key(
        "Scale blocks instead of tensors. Has no command line option.",
        default=False,
        reads="bool",
        env=[_exported("USE_MXFP8_BLOCK_SCALING")],
        facts={"backends": ["TE"]},
    )
    fp8_amax_history_length: object = _renamed("amax_history_length", "amax_history_len")
    fp8_amax_compute_algorithm: object = _renamed("amax_compute_algorithm", "amax_compute_algo")
    fp8_optimization_level: object = _renamed("optimization_level", "opt_level")
