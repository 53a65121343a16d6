"""ZC460 to ZC465, ZC467: checkpoints: what is written, and whether it can be loaded again."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Location, Severity, at, rule
from zerocfg.rules.arguments import given
from zerocfg.rules.effects import TRAINERS, effective_value, section, stage_of
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited
from zerocfg.rules.precision.dtypes import about, precision_of, without
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import delete_entry, replace_value


@rule("ZC460", "universal-checkpoint-expected", Severity.WARNING)
def universal_checkpoint_expected(run: Run) -> Iterator[Finding]:
    path = ("checkpoint", "load_universal")
    if section(run, "checkpoint").get("load_universal") is not True:
        return
    yield about(
        run,
        path,
        "only checkpoints converted by ds_to_universal.py can be loaded with `load_universal`, not those that this run "
        "writes; resuming stops",
        "leave the key out, except for the one run that starts from a converted checkpoint",
        fix=without(run, path, "load ordinary checkpoints"),
    )


def _optimizer_without_step(run: Run) -> str | None:
    """The optimizer whose state has no common step count, in words, when that is certain; "" when it is likely."""
    written = section(run, "optimizer")
    kind = written.get("type")
    offloaded = effective_value(run, "zero_optimization.offload_optimizer.device")
    if isinstance(kind, str) and kind.lower() in ("adam", "adamw"):
        if section(run, "optimizer", "params").get("torch_adam") is True:
            return "torch's Adam"
        return "DeepSpeed's Adam on the processor" if offloaded == "cpu" else None
    if isinstance(kind, str):
        return kind if kind.lower() in ("adagrad", "muon", "sgd") else None
    if "optimizer" in section(run):
        return None
    return "the Trainer's AdamW" if run.consumer in TRAINERS and given(run, "optim") is None else ""


@rule("ZC461", "elastic-checkpoint-not-loadable", Severity.ERROR)
def elastic_checkpoint_not_loadable(run: Run) -> Iterator[Finding]:
    path = ("zero_optimization", "elastic_checkpoint")
    kind = _optimizer_without_step(run)
    if not truth(section(run, "zero_optimization").get("elastic_checkpoint")) or stage_of(run) not in (1, 2):
        return
    if kind is None:
        return
    yield about(
        run,
        path,
        f"an elastic checkpoint cannot be loaded with {kind}; resuming stops"
        if kind
        else "an elastic checkpoint can be loaded only with FusedAdam; with torch's AdamW resuming stops",
        "leave the key out, or let the `optimizer` section make AdamW",
        severity=None if kind else Severity.WARNING,
        fix=without(run, path, "write ordinary checkpoints"),
    )


@rule("ZC462", "elastic-checkpoint-at-stage-3", Severity.WARNING)
def elastic_checkpoint_at_stage_3(run: Run) -> Iterator[Finding]:
    path = ("zero_optimization", "elastic_checkpoint")
    if truth(section(run, "zero_optimization").get("elastic_checkpoint")) and stage_of(run) == 3:
        yield about(
            run,
            path,
            "ZeRO 3 ignores `elastic_checkpoint`: its checkpoints load only with the same number of processes",
            "convert a checkpoint with ds_to_universal.py when the number of processes changes",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key without effect"),
        )


@rule("ZC463", "checkpoint-writer-without-launcher", Severity.ERROR)
def checkpoint_writer_without_launcher(run: Run) -> Iterator[Finding]:
    path = ("checkpoint", "writer")
    launcher = run.launch.launcher if run.launch is not None else None
    if not isinstance(section(run, "checkpoint").get("writer"), dict) or launcher == "deepspeed":
        return
    if "CROSS_SIZE" in run.environment:
        return
    machines = effective_value(run, "num_machines")
    certain = launcher in ("torchrun", "python") or (machines == 1 and run.accelerate is not None)
    if launcher == "accelerate" and machines != 1:
        return  # accelerate hands several machines to DeepSpeed's launcher
    yield about(
        run,
        path,
        "a checkpoint writer needs the variable CROSS_SIZE, which only the `deepspeed` launcher sets"
        + ("; without it the engine is not built" if certain else "; started in another way, the engine is not built"),
        "start the job with `deepspeed`, or leave the section out",
        severity=None if certain else Severity.WARNING,
        fix=without(run, path, "write checkpoints without a special writer"),
    )


@rule("ZC464", "save-only-model-not-resumable", Severity.NOTE, consumers=TRAINERS)
def save_only_model_not_resumable(run: Run) -> Iterator[Finding]:
    setting = given(run, "save_only_model")
    if setting is None or setting.value is not True or effective_value(run, "engine") != "deepspeed":
        return
    strategy = given(run, "save_strategy")
    if strategy is not None and strategy.value in ("no", False, UNKNOWN):
        return
    location, _ = primary_location(run, [setting.origin])
    fix = edited(
        replace_value,
        setting.origin.file,
        setting.origin.path,
        "false",
        why="save the optimizer states too",
        safe=False,
    )
    yield Finding(
        location,
        "with DeepSpeed no training can be resumed from a checkpoint that holds the model only",
        "write false if the job may be interrupted",
        fix=fix if setting.origin.kind == "file" else None,
    )


@rule("ZC465", "node-local-storage-overwritten", Severity.WARNING, consumers=TRAINERS)
def node_local_storage_overwritten(run: Run) -> Iterator[Finding]:
    setting = given(run, "save_on_each_node")
    path = ("checkpoint", "use_node_local_storage")
    if setting is None or setting.value is not True or section(run, "checkpoint").get(path[1]) is not False:
        return
    if run.deepspeed is None or effective_value(run, "engine") != "deepspeed":
        return
    fix = edited(replace_value, setting.origin.file, setting.origin.path, "false", why="one shared folder", safe=False)
    other = at(setting.origin, "the Trainer takes this one")
    yield Finding(
        Location(run.deepspeed, path),
        "`use_node_local_storage` is false here, but `save_on_each_node` of the training arguments sets it to true",
        "say the same in both places",
        [other] if other is not None else [],
        fix if setting.origin.kind == "file" else None,
    )


@rule("ZC467", "adagrad-checkpoint-without-zero", Severity.ERROR)
def adagrad_checkpoint_without_zero(run: Run) -> Iterator[Finding]:
    kind = section(run, "optimizer").get("type")
    if not isinstance(kind, str) or kind.lower() != "adagrad" or stage_of(run) != 0:
        return
    if precision_of(run) not in ("bf16", "fp16") or run.consumer not in ("deepspeed", "accelerate", *TRAINERS):
        return
    stage = ("zero_optimization", "stage")
    yield about(
        run,
        ("optimizer", "type"),
        f"Adagrad in {precision_of(run)} without ZeRO trains, but its states cannot be collected: saving a checkpoint "
        "stops with a KeyError",
        "use ZeRO stage 1, or another optimizer",
        fix=edited(replace_value, run.deepspeed, stage, "1", why="use ZeRO stage 1", safe=False),
    )
