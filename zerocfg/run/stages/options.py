"""The options of `accelerate launch`: name, how its text is converted, and its default, today and in older releases.

One namespace holds them all, whatever section of the config file a key stands in, so this is also the list of the
keys that have any effect in a section (accelerate/commands/launch.py, `launch_command_parser`).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from zerocfg.catalog.schema import load_schema
from zerocfg.run.config import words
from zerocfg.run.model import UNKNOWN

if TYPE_CHECKING:
    from zerocfg.run.stages.admitted import AdmittedKeys

Kind = Literal["str", "int", "float", "flag", "bool"]


class Option(NamedTuple):
    kind: Kind = "str"
    default: Any = None
    choices: tuple[str, ...] = ()


def _option(cli: dict[str, Any]) -> Option:
    """An option from the facts that the compiled schema holds about it (``cli`` under ``x-zerocfg``)."""
    default = cli.get("default")
    default = tuple(default) if isinstance(default, list) else default
    choices = tuple(cli.get("choices", ()))
    if cli["action"] != "store":
        return Option("flag", default, choices)
    if cli["type"] == "bool":
        # The parser runs a text default through its converter, which yields 1.
        return Option("str", 1 if default == "true" else default, choices)
    kinds: dict[str, Kind] = {"int": "int", "float": "float", "truth": "bool"}
    return Option(kinds.get(cli["type"], "str"), default, choices)


_CLI = {
    name: key.facts["cli"] for name, key in load_schema("accelerate-launcher").root.keys.items() if "cli" in key.facts
}
OPTIONS: dict[str, Option] = {name: _option(cli) for name, cli in _CLI.items()}
ALIASES = {flag.lstrip("-"): name for name, cli in _CLI.items() for flag in cli["flags"] if flag.lstrip("-") != name}
_BACKEND = load_schema("accelerate").find(("dynamo_config", "dynamo_backend"))
DYNAMO_BACKENDS = [name.lower() for branch in (_BACKEND.scalars if _BACKEND else []) for name in branch["enum"]]
"""What a config file may name; the option of the launcher takes fewer."""
PRECISIONS = OPTIONS["mixed_precision"].choices

DISTRIBUTED_TYPES = words(
    "NO MULTI_CPU MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_XPU MULTI_HPU MULTI_NEURON "
    "DEEPSPEED FSDP XLA MEGATRON_LM"
)
MULTI_DEVICE = words("MULTI_GPU MULTI_NPU MULTI_MLU MULTI_SDAA MULTI_MUSA MULTI_XPU MULTI_HPU MULTI_NEURON")

_FIELDS = words(
    "mixed_precision use_cpu debug num_processes machine_rank num_machines gpu_ids main_process_ip "
    "main_process_port rdzv_backend same_network main_training_function enable_cpu_affinity fp8_config "
    "deepspeed_config fsdp_config parallelism_config megatron_lm_config mpirun_config downcast_bf16 tpu_name "
    "tpu_zone tpu_use_cluster tpu_use_sudo command_file commands tpu_vm tpu_env dynamo_config"
)
TOP_LEVEL: dict[str, Any] = {
    **{name: load_schema("accelerate").default(name) for name in _FIELDS},
    "gpu_ids": None,
    "main_process_port": None,
}
"""Top-level keys of an accelerate config file in the order in which the launcher merges them, with what the class of
the file puts there; for the last two the launcher's own default comes later."""

SECTIONS = tuple(name for name in TOP_LEVEL if name.endswith("_config"))
PREFIXED = {
    "fsdp_config": ("fsdp", "fsdp_"),
    "fp8_config": ("fp8", "fp8_"),
    "dynamo_config": ("dynamo_", "dynamo_"),
}
"""Section -> (what a key may already start with, what is put before it otherwise)."""


@lru_cache(maxsize=16)
def options_at(releases: AdmittedKeys) -> dict[str, Option]:
    """The options in the releases that a run admits. A default that they do not agree about is UNKNOWN."""
    if not releases.declared:
        return OPTIONS
    found: dict[str, Option] = {}
    for name, option in OPTIONS.items():
        states = releases.states(f"option.{name}")
        known = [state for _, state in states if state is not None]
        if not states:
            found[name] = option
        elif known:
            found[name] = _older(option, known, releases.today(f"option.{name}"))
    return found


def _older(option: Option, states: list[dict[str, Any]], today: dict[str, Any] | None) -> Option:
    """An option of today in releases that have it otherwise."""
    default, choices = option.default, option.choices
    defaults = [state["default"] for state in states]
    if any(item != defaults[0] for item in defaults):
        default = UNKNOWN
    elif today is None or repr(defaults[0]) != repr(today["default"]):
        default = defaults[0]
    if choices:
        each = [state.get("choices") for state in states]
        choices = () if None in each else tuple(dict.fromkeys(word for words in each for word in words or ()))
    kinds = {_KINDS.get(state["type"], option.kind) for state in states}
    kind = option.kind if option.kind == "flag" else kinds.pop() if len(kinds) == 1 else "str"
    return Option(kind, default, choices)


_KINDS: dict[str, Kind] = {"int": "int", "float": "float", "str": "str"}
