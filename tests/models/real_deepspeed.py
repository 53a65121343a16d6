"""The installed DeepSpeed, as the tests of its models look at it."""

from __future__ import annotations

import typing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import deepspeed
from deepspeed.comm.config import CommsLoggerConfig
from deepspeed.compile.config import CompileConfig
from deepspeed.inference.config import WeightQuantConfig
from deepspeed.monitor.config import CometConfig, CSVConfig, TensorBoardConfig, WandbConfig
from deepspeed.runtime.config import DeepSpeedConfig as RealConfig
from deepspeed.runtime.config import HybridEngineConfig
from deepspeed.runtime.precision_config import DeepSpeedBF16Config, DeepSpeedFP16Config
from deepspeed.runtime.tensor_parallel.config import TPConfig, TPTrainingConfig
from deepspeed.runtime.zenflow.zenflow_config import ZenFlowConfig
from deepspeed.runtime.zero import config as real_zero
from deepspeed.runtime.zero.leaf_module_config import DeepSpeedZeroLeafModuleConfig
from deepspeed.runtime.zero.offload_config import (
    DeepSpeedZeroOffloadOptimizerConfig,
    DeepSpeedZeroOffloadParamConfig,
)
from deepspeed.utils.config import DeepSpeedThroughputTimerConfig

from zerocfg.models.base import Section
from zerocfg.models.deepspeed import DeepSpeedConfig, features, monitor, precision, zero
from zerocfg.models.schema import compile_schema

if TYPE_CHECKING:
    from pydantic import BaseModel

MINIMAL = {"train_micro_batch_size_per_gpu": 1}
SCHEMA = compile_schema(DeepSpeedConfig)
DEEPSPEED = Path(deepspeed.__file__).parent

STRICT: dict[type[Section], type[BaseModel]] = {
    zero.ZeroOptimization: real_zero.DeepSpeedZeroConfig,
    zero.OffloadParam: DeepSpeedZeroOffloadParamConfig,
    zero.OffloadOptimizer: DeepSpeedZeroOffloadOptimizerConfig,
    zero.ZenFlow: ZenFlowConfig,
    zero.LeafModule: DeepSpeedZeroLeafModuleConfig,
    precision.Fp16: DeepSpeedFP16Config,
    precision.Bf16: DeepSpeedBF16Config,
    monitor.TensorBoard: TensorBoardConfig,
    monitor.CsvMonitor: CSVConfig,
    monitor.Wandb: WandbConfig,
    monitor.Comet: CometConfig,
    monitor.CommsLogger: CommsLoggerConfig,
    monitor.ThroughputTimer: DeepSpeedThroughputTimerConfig,
    features.Compile: CompileConfig,
    features.TensorParallel: TPTrainingConfig,
    features.TpGroup: TPConfig,
    features.HybridEngine: HybridEngineConfig,
    features.WeightQuantization: WeightQuantConfig,
}

# A config that makes the parse look into every loose section.
FULL: dict[str, Any] = {
    **MINIMAL,
    "optimizer": {"type": "AdamW", "params": {}},
    "scheduler": {"type": "WarmupLR", "params": {}},
    "activation_checkpointing": {},
    "aio": {},
    "flops_profiler": {},
    "data_types": {},
    "autotuning": {"model_info": {}},
    "torch_autocast": {"dtype": "fp16", "lower_precision_safe_modules": []},
    "expert_parallel": {"enabled": False},
    "timers": {"throughput": {}},
    "checkpoint": {"writer": {}, "parallel_write": {}},
    "data_efficiency": {
        "data_sampling": {
            "curriculum_learning": {"enabled": True, "curriculum_metrics": {}},
            "dynamic_batching": {"enabled": True, "max_tokens": 8},
        },
        "data_routing": {"random_ltd": {"enabled": True}},
    },
}


def names_of(model: type[Section]) -> set[str]:
    """Every spelling of every key of a section."""
    found: set[str] = set()
    for name, field in model.model_fields.items():
        found |= {name, *facts_of(field).get("aliases", ())}
    return found


def facts_of(field: Any) -> dict[str, Any]:
    return (field.json_schema_extra or {}).get("x-zerocfg", {})


def removed_of(model: type[Section]) -> set[str]:
    return {name for name, field in model.model_fields.items() if "removed" in facts_of(field)}


def section_of(annotation: Any) -> type[Section] | None:
    for part in (annotation, *typing.get_args(annotation)):
        if isinstance(part, type) and issubclass(part, Section):
            return part
    return None


def loose_sections(
    model: type[Section] = DeepSpeedConfig, path: tuple[str, ...] = ()
) -> typing.Iterator[tuple[tuple[str, ...], type[Section]]]:
    """Each section that is read with dict.get, with its path."""
    if model.reads == "raw":
        yield path, model
    for name, field in model.model_fields.items():
        if (child := section_of(field.annotation)) is not None:
            yield from loose_sections(child, (*path, name))


def parses(config: dict[str, Any]) -> bool:
    try:
        RealConfig({**MINIMAL, **config})
    except Exception:
        return False
    return True
