"""Calls of a script that state arguments, each by itself: however many there are, whoever starts them.

Only calls of a library's own class are looked at. One of a class of the repository may take what that class adds.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zerocfg.catalog.schema import Key, load_schema
from zerocfg.catalog.signatures import parameters, was_ever_accepted
from zerocfg.record import record
from zerocfg.rules.api import Finding, Location
from zerocfg.run.model import Call, Origin, Run
from zerocfg.run.script.arguments import OF_SEQ2SEQ, is_arguments

ACCELERATE: Mapping[str, frozenset[str]] = {
    "accelerate.DeepSpeedPlugin": frozenset(
        "hf_ds_config gradient_accumulation_steps gradient_clipping zero_stage is_train_batch_min "
        "offload_optimizer_device offload_param_device offload_optimizer_nvme_path offload_param_nvme_path "
        "zero3_init_flag zero3_save_16bit_model transformer_moe_cls_names enable_msamp msamp_opt_level".split()
    ),
    "accelerate.FullyShardedDataParallelPlugin": frozenset(
        "fsdp_version sharding_strategy reshard_after_forward backward_prefetch mixed_precision_policy "
        "auto_wrap_policy cpu_offload ignored_modules state_dict_type state_dict_config optim_state_dict_config "
        "limit_all_gathers use_orig_params param_init_fn sync_module_states forward_prefetch activation_checkpointing "
        "activation_checkpointing_offload cpu_ram_efficient_loading transformer_cls_names_to_wrap "
        "min_num_params".split()
    ),
    "accelerate.GradientAccumulationPlugin": frozenset(
        "num_steps adjust_scheduler sync_with_dataloader sync_each_batch".split()
    ),
}
"""The arguments of accelerate's plugins, of release 1.15.0."""
ACCELERATOR = "accelerate.Accelerator"
_SEQ2SEQ = "transformers.Seq2SeqTrainingArguments"
_OF_CLASS = ("transformers.TrainingArguments", _SEQ2SEQ)


@record(frozen=True, slots=True)
class Given:
    """One argument of one call. ``name``: of the class as the library exports it."""

    call: Call
    name: str
    value: Any
    origin: Origin

    @property
    def of(self) -> str:
        """The class, without its library."""
        return self.call.name.rpartition(".")[2]

    def finding(self, message: str, help_text: str = "") -> Finding:
        """At the words of the call; no fix touches a program."""
        assert self.origin.file is not None
        return Finding(Location(self.origin.file, span=self.origin.span), message, help_text)


def given_in_calls(run: Run) -> Iterator[Given]:
    """The arguments that calls of classes of a library give by name; the same call once, whatever run reaches it."""
    for call in run.script.calls if run.script is not None else ():
        if call.derived or not (call.name in ACCELERATE or call.name == ACCELERATOR or is_arguments(call.name)):
            continue
        for name, setting in call.arguments.items():
            if setting.origin.file is not None:
                yield Given(call, name, setting.value, setting.origin)


def taken_by(name: str) -> frozenset[str]:
    """The arguments that the class of this name takes; empty for one that is not known."""
    if name in ACCELERATE:
        return ACCELERATE[name]
    if name == ACCELERATOR:
        return parameters("accelerate", "Accelerator")
    own = load_schema("training-arguments").root.names
    known = frozenset(item for item, key in own.items() if "removed" not in key.facts)
    if name in _OF_CLASS:
        return known | OF_SEQ2SEQ if name == _SEQ2SEQ else known
    config = name.rpartition(".")[2]
    inside = {
        item
        for item, key in load_schema("trl").root.names.items()
        if config in key.facts.get("in", ()) and "removed" not in key.facts
    }
    return known | inside if inside else frozenset()


def ever_taken(name: str, argument: str) -> bool:
    """Whether some release of the library has, or had, an argument of this name."""
    if name == ACCELERATOR:
        return was_ever_accepted("accelerate", "Accelerator", argument)
    if name in ACCELERATE:
        return argument in ACCELERATE[name]
    if name == _SEQ2SEQ and argument in OF_SEQ2SEQ:
        return True
    return any(argument in load_schema(item).root.names for item in ("training-arguments", "trl"))


def key_of_call(given: Given) -> Key | None:
    """What the catalog knows of an argument of TrainingArguments or of a config of TRL."""
    if not is_arguments(given.call.name):
        return None
    names = ("training-arguments",) if given.call.name in _OF_CLASS else ("trl", "training-arguments")
    return next((key for name in names if (key := load_schema(name).root.names.get(given.name)) is not None), None)
