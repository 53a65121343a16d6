"""DeepSpeed's ZeRO to FSDP 2: every key that a file says of DeepSpeed, and what FSDP has for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from zerocfg.catalog.schema import load_schema
from zerocfg.compare.values import flat, same, shown
from zerocfg.convert.conversion import Conversion, Match, Row, counted, place, refused, said, word
from zerocfg.convert.deepspeed_section import POINTER, PRECISION, PRECISIONS, SECTION, section
from zerocfg.convert.fsdp1 import FULL, POLICY, RESHARD, SHARDED, STATE_DICT, VERSION
from zerocfg.convert.fsdp1 import SECTION as FSDP
from zerocfg.convert.outcome import conversion, dynamo
from zerocfg.convert.precision import ZERO_TO_FSDP2, precision
from zerocfg.convert.yaml_edits import with_section, without_key
from zerocfg.migrate.steps import Put, Rename, changed
from zerocfg.rules.effects import under_trainer
from zerocfg.rules.issues import issues
from zerocfg.run.config import AUTO
from zerocfg.run.discover import Files
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.source.node import Path

_ZERO = "zero_optimization"
_STAGE, _GATHER = f"{_ZERO}.stage", f"{_ZERO}.stage3_gather_16bit_weights_on_model_save"
_DEVICES = (f"{_ZERO}.offload_optimizer.device", f"{_ZERO}.offload_param.device")
_ACCUMULATION, _CLIPPING = "gradient_accumulation_steps", "gradient_clipping"

_STAGES: dict[object, tuple[Match, str]] = {
    3: ("exactly", ""),
    2: ("nearly", "parameters are sharded, too, and gathered from the forward pass to the backward pass"),
    1: ("nearly", "parameters and gradients are sharded, too"),
    0: ("nearly", "what was whole on each card is sharded"),
}
_SPEED = frozenset(
    "overlap_comm allgather_partitions allgather_bucket_size reduce_scatter reduce_bucket_size contiguous_gradients "
    "round_robin_gradients sub_group_size stage3_prefetch_bucket_size stage3_param_persistence_threshold "
    "stage3_model_persistence_threshold stage3_max_live_parameters stage3_max_reuse_distance "
    "stage3_module_granularity_threshold use_multi_rank_bucket_allreduce ignore_unused_parameters "
    "pin_memory buffer_count buffer_size max_in_cpu fast_init ratio pipeline_read pipeline_write".split()
)
"""Keys of ZeRO that decide when and in which pieces something is sent or moved, and nothing that is computed."""
_LOGS = ("steps_per_print", "wall_clock_breakdown", "memory_breakdown", "dump_state", "flops_profiler", "comms_logger",
         "tensorboard", "wandb", "csv_monitor", "comet")  # fmt: skip
_OWN = ("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer", "activation_checkpointing", "aio")
"""Settings that only code of DeepSpeed asks for."""
_BATCHES = ("train_batch_size", "train_micro_batch_size_per_gpu")

Fate = tuple[str, Match, str]
"""What a setting becomes, how it maps, and why."""
_OUT = "(left out)"


def from_zero(run: Run, files: Files) -> Conversion:
    """The run under FSDP 2. Raises ConversionError."""
    file = run.accelerate
    assert file is not None
    values = _values(run)
    rows = list(_rows(run, values))
    text = file.source.text
    try:
        text = changed(file, text, [Put(("distributed_type",), "FSDP")])
        if (word_of := _json_precision(run)) is not None:
            text = changed(file, text, [Put((PRECISION,), word_of)])
        text = _sections(run, text, values)
    except ValueError as error:
        raise refused(file, (SECTION,), f"it cannot be edited here: {error}") from None
    layers = f"{FSDP}.{POLICY}: {values[POLICY]}"
    rows.append(Row("(DeepSpeed hooks every module)", layers, "nearly", "FSDP gathers whole layers"))
    rows += precision(run, ZERO_TO_FSDP2)
    rows += dynamo(run, "counts now", "the DeepSpeed launcher does not export it")
    return conversion(run, files, text, rows)


def _values(run: Run) -> dict[str, object]:
    """The new section."""
    stage, file = run.effective.value(_STAGE), run.accelerate
    assert file is not None
    if stage not in _STAGES:
        raise refused(
            file, (SECTION,), f"its ZeRO stage is {'not known' if stage in (None, UNKNOWN) else shown(stage)}"
        )
    devices = [run.effective.value(name) for name in _DEVICES]
    if UNKNOWN in devices:
        raise refused(file, (SECTION,), "whether it offloads is not known")
    found: dict[str, object] = {VERSION: 2, RESHARD: stage == 3, POLICY: "TRANSFORMER_BASED_WRAP"}
    if any(device in ("cpu", "nvme") for device in devices):
        found["fsdp_offload_params"] = True
    found[STATE_DICT] = FULL if stage != 3 or run.effective.value(_GATHER) is True else SHARDED
    return found


def _sections(run: Run, text: str, values: Mapping[str, object]) -> str:
    """FSDP's section in the place of DeepSpeed's, whose comments stay."""
    file = run.accelerate
    assert file is not None
    options = file.data().get(SECTION)
    if FSDP in file.data():
        raise ValueError(f"there is a `{FSDP}` already, which counts as soon as `distributed_type` is FSDP")
    if not options:
        if SECTION in file.data():
            text = without_key(file, text, (SECTION,), SECTION)
        return with_section(file, text, FSDP, values)
    text = changed(
        file, text, [Rename((SECTION,), FSDP), *(Put((FSDP, name), value) for name, value in values.items())]
    )
    for name in options:
        text = without_key(file, text, (FSDP, str(name)), str(name))
    return text


def _rows(run: Run, values: Mapping[str, object]) -> Iterator[Row]:
    """What becomes of each key, those of the config first, then those of its JSON."""
    file = run.accelerate
    assert file is not None
    ignored = {key.path for key in issues(run, "unknown-ignored") if key.file is file}
    kind = file.data()["distributed_type"]
    yield _row(file, ("distributed_type",), kind, (said(("distributed_type",), "FSDP"), "exactly", ""), "engine")
    for name, value in (file.data().get(SECTION) or {}).items():
        path = (SECTION, str(name))
        key = section().key(str(name))
        setting = str(key.facts["setting"]) if key is not None and "conflicts" in key.facts else None
        if path in ignored or (key is not None and "inert" in key.facts):
            yield _row(file, path, value, (_OUT, "exactly", "nobody read it"))
        elif setting is not None:
            yield _row(file, path, value, _fate(run, setting, counted(run, setting, value), values), setting)
        else:
            yield _row(file, path, value, _launcher(run, str(name), value))
    json_file = run.deepspeed
    if json_file is None:
        yield from _unsaid(run, set())
        return
    leaves = flat(json_file.data())
    for name, value in leaves.items():
        yield _row(json_file, tuple(name.split(".")), value, _fate(run, name, value, values), name)
    yield from _unsaid(run, set(leaves))


def _row(file: SourceFile, path: Path, value: object, fate: Fate, setting: str = "") -> Row:
    new, match, why = fate
    names = frozenset(filter(None, (setting, PRECISION if setting.removesuffix(".enabled") in PRECISIONS else "")))
    return Row(said(path, value), new, match, why, place(file, path), names)


def _unsaid(run: Run, leaves: set[str]) -> Iterator[Row]:
    """What DeepSpeed does where nothing is said."""
    file = run.accelerate
    assert file is not None
    written = leaves | {str(name) for name in file.data().get(SECTION) or {}}
    if _CLIPPING not in written and not under_trainer(run):
        why = "FSDP clips only where the script calls clip_grad_norm_; a Trainer does, by max_grad_norm"
        yield Row(f"({_CLIPPING}: 1.0)", _OUT, "nearly", why)


def _launcher(run: Run, name: str, value: object) -> Fate:
    """A key of accelerate's own."""
    if name == POINTER:
        return _OUT, "exactly", "the JSON stays where it is; its keys follow"
    if name == "zero3_init_flag":
        why = "rank 0 loads the weights and sends each rank its part (fsdp_cpu_ram_efficient_loading)"
        return ("fsdp_cpu_ram_efficient_loading (default)", "nearly", why) if value else (_OUT, "exactly", "")
    if name.startswith("deepspeed_") and "moe" not in name:
        alone = run.effective.value("num_machines") == 1 or (name.endswith("launcher") and value == "standard")
        why = "of several machines only" if run.effective.value("num_machines") == 1 else "torchrun starts both"
        if alone:
            return _OUT, "exactly", why
        return "", "not at all", "FSDP is started by torchrun, on each machine"
    return "", "not at all", "FSDP has nothing for it"


def _fate(run: Run, name: str, value: Any, values: Mapping[str, object]) -> Fate:
    """What becomes of a setting of DeepSpeed."""
    if value is None or value is UNKNOWN:
        return (_OUT, "exactly", "") if value is None else ("", "not at all", "its value is not known")
    top, _, leaf = name.rpartition(".")
    if name == _STAGE:
        match, why = _STAGES[run.effective.value(_STAGE)]
        return said((FSDP, RESHARD), values[RESHARD]), match, why
    if name in _DEVICES:
        return _offload(run, value)
    if name == _GATHER:
        why = "" if run.effective.value(_STAGE) == 3 else "below stage 3 the weights are whole anyway"
        return said((FSDP, STATE_DICT), values[STATE_DICT]), "nearly", why or "the Trainer saves fp32, not 16 bit"
    if name in (_ACCUMULATION, _CLIPPING):
        return _of_the_script(run, name, value)
    if name in _BATCHES:
        return _OUT, "exactly", "the data loader's batch counts"
    if top in PRECISIONS:
        return _precision(run, top, leaf, value)
    if top.startswith(_ZERO) and leaf in _SPEED:
        return _OUT, "nearly", "FSDP sends layer by layer; only speed and memory differ"
    if name.partition(".")[0] in _LOGS:
        return _OUT, "nearly", "only DeepSpeed's log"
    if name.partition(".")[0] in _OWN:
        return _OUT, "exactly", "only DeepSpeed asks for it"
    if name.partition(".")[0] in ("optimizer", "scheduler"):
        return "", "not at all", "the script has to make its own (the Trainer: optim, lr_scheduler_type)"
    key = load_schema("deepspeed").find(tuple(name.split(".")))
    if key is not None and same(key.default, value):
        return _OUT, "exactly", "DeepSpeed's default"
    return "", "not at all", "FSDP has nothing for it"


def _offload(run: Run, value: object) -> Fate:
    if value in ("none", AUTO):
        return _OUT, "exactly", ""
    new = said((FSDP, "fsdp_offload_params"), True)
    if value == "nvme":
        return new, "not at all", "FSDP offloads to the host's memory only"
    both = all(run.effective.value(name) == "cpu" for name in _DEVICES) and run.effective.value(_STAGE) == 3
    what = "the optimizer is torch's own, in place of DeepSpeedCPUAdam"
    return new, "nearly", what if both else f"moves parameters, gradients and optimizer together; {what}"


def _of_the_script(run: Run, name: str, value: object) -> Fate:
    argument = "max_grad_norm" if name == _CLIPPING else name
    if under_trainer(run):
        return f"{argument} (of the Trainer)", "exactly", "the two had to agree"
    call = "accelerator.clip_grad_norm_()" if name == _CLIPPING else "Accelerator(gradient_accumulation_steps=...)"
    if value == AUTO:
        if name == _CLIPPING:
            return _OUT, "nearly", f"DeepSpeed clips at 1.0 by itself, FSDP where the script does: {call}"
        return _OUT, "exactly", "it is the script's"
    if value == (0 if name == _CLIPPING else 1):
        return _OUT, "exactly", "nothing to do"
    return "", "not at all", f"the script has to say it: {call}, or `{argument}` of the Trainer"


def _precision(run: Run, kind: str, leaf: str, value: object) -> Fate:
    on = run.effective.value(f"{kind}.enabled")
    if leaf == "enabled" and value is True:
        return f"{PRECISION}: {kind}", "nearly", ZERO_TO_FSDP2
    if leaf == "enabled" or on is False:
        return _OUT, "exactly", "" if value is False else "the script's own precision counts"
    if leaf in ("auto_cast", "immediate_grad_update", "check_grad_overflow"):
        return _OUT, "nearly", "FSDP casts inputs of the model by itself"
    if kind == "fp16" and not (leaf == "loss_scale" and value not in (0, 0.0)):
        return _OUT, "nearly", "torch's GradScaler scales the loss, by its own schedule"
    return "", "not at all", "FSDP has nothing for it"


def _json_precision(run: Run) -> str | None:
    """The precision that only the JSON states."""
    file, json_file = run.accelerate, run.deepspeed
    assert file is not None
    leaves = flat(json_file.data()) if json_file is not None else {}
    on = [name for name in PRECISIONS if leaves.get(f"{name}.enabled") is True]
    return word(on[0]) if on and file.data().get(PRECISION) is None else None
