"""ZC460 to ZC465, ZC467: checkpoints: what is written, and whether it can be loaded again."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, at, rule
from zerocfg.rules.arguments import given
from zerocfg.rules.effects import TRAINERS, effective_value, stage_of, under_trainer, with_accelerate
from zerocfg.rules.key import Key, deepspeed, from_origin
from zerocfg.rules.precision.dtypes import precision_of
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, in_deepspeed, in_zero
from zerocfg.run.model import UNKNOWN, Run


@rule("ZC460", "universal-checkpoint-expected", Severity.WARNING, DEEPSPEED_CONFIG)
def universal_checkpoint_expected(config: Key) -> Iterator[Finding]:
    key = config["checkpoint"]["load_universal"]
    if key.value is True:
        yield key.finding(
            "only checkpoints converted by ds_to_universal.py can be loaded with `load_universal`, not those that this "
            "run writes; resuming stops",
            "leave the key out, except for the one run that starts from a converted checkpoint",
            fix=key.delete("load ordinary checkpoints", safe=False),
        )


def _optimizer_without_step(run: Run) -> str | None:
    """The optimizer whose state has no common step count, in words, when that is certain; "" when it is likely."""
    optimizer = deepspeed(run, "optimizer")
    kind = optimizer.get("type")
    if isinstance(kind, str) and kind.lower() in ("adam", "adamw"):
        if optimizer["params"].get("torch_adam") is True:
            return "torch's Adam"
        offloaded = effective_value(run, "zero_optimization.offload_optimizer.device")
        return "DeepSpeed's Adam on the processor" if offloaded == "cpu" else None
    if isinstance(kind, str):
        return kind if kind.lower() in ("adagrad", "muon", "sgd") else None
    if optimizer:
        return None
    return "the Trainer's AdamW" if under_trainer(run) and given(run, "optim") is None else ""


@rule("ZC461", "elastic-checkpoint-not-loadable", Severity.ERROR, in_zero("elastic_checkpoint"))
def elastic_checkpoint_not_loadable(key: Key) -> Iterator[Finding]:
    if key.run.elsewhere.lightning:
        return  # who knows which of its checkpoints is resumed from
    kind = _optimizer_without_step(key.run) if key.on and stage_of(key.run) in (1, 2) else None
    if kind is not None:
        yield key.finding(
            f"an elastic checkpoint cannot be loaded with {kind}; resuming stops"
            if kind
            else "an elastic checkpoint can be loaded only with FusedAdam; with torch's AdamW resuming stops",
            "leave the key out, or let the `optimizer` section make AdamW",
            severity=None if kind else Severity.WARNING,
            fix=key.delete("write ordinary checkpoints", safe=False),
        )


@rule("ZC462", "elastic-checkpoint-at-stage-3", Severity.WARNING, in_zero("elastic_checkpoint"))
def elastic_checkpoint_at_stage_3(key: Key) -> Iterator[Finding]:
    if key.on and stage_of(key.run) == 3:
        yield key.finding(
            "ZeRO 3 ignores `elastic_checkpoint`: its checkpoints load only with the same number of processes",
            "convert a checkpoint with ds_to_universal.py when the number of processes changes",
            fix=key.delete("remove the key without effect"),
        )


@rule("ZC463", "checkpoint-writer-without-launcher", Severity.ERROR, in_deepspeed("checkpoint", "writer"))
def checkpoint_writer_without_launcher(key: Key) -> Iterator[Finding]:
    run = key.run
    launcher = run.launch.launcher if run.launch is not None else None
    if not isinstance(key.value, dict) or launcher == "deepspeed" or "CROSS_SIZE" in run.environment:
        return
    machines = effective_value(run, "num_machines")
    certain = launcher in ("torchrun", "python") or (machines == 1 and run.accelerate is not None)
    if launcher == "accelerate" and machines != 1:
        return  # accelerate hands several machines to DeepSpeed's launcher
    yield key.finding(
        "a checkpoint writer needs the variable CROSS_SIZE, which only the `deepspeed` launcher sets"
        + ("; without it the engine is not built" if certain else "; started in another way, the engine is not built"),
        "start the job with `deepspeed`, or leave the section out",
        severity=None if certain else Severity.WARNING,
        fix=key.delete("write checkpoints without a special writer", safe=False),
    )


@rule("ZC464", "save-only-model-not-resumable", Severity.NOTE, WHOLE_RUN, consumers=TRAINERS)
def save_only_model_not_resumable(run: Run) -> Iterator[Finding]:
    setting = given(run, "save_only_model")
    if setting is None or setting.value is not True or effective_value(run, "engine") != "deepspeed":
        return
    strategy = given(run, "save_strategy")
    if strategy is not None and strategy.value in ("no", False, UNKNOWN):
        return
    key = from_origin(run, setting.origin)
    yield key.finding(
        "with DeepSpeed no training can be resumed from a checkpoint that holds the model only",
        "write false if the job may be interrupted",
        fix=key.replace("false", "save the optimizer states too", safe=False),
    )


@rule("ZC465", "node-local-storage-overwritten", Severity.WARNING, WHOLE_RUN, consumers=TRAINERS)
def node_local_storage_overwritten(run: Run) -> Iterator[Finding]:
    setting, key = given(run, "save_on_each_node"), deepspeed(run, "checkpoint", "use_node_local_storage")
    if setting is None or setting.value is not True or key.value is not False:
        return
    if effective_value(run, "engine") != "deepspeed":
        return
    other = at(setting.origin, "the Trainer takes this one")
    yield key.finding(
        "`use_node_local_storage` is false here, but `save_on_each_node` of the training arguments sets it to true",
        "say the same in both places",
        [other] if other is not None else [],
        from_origin(run, setting.origin).replace("false", "one shared folder", safe=False),
    )


@rule("ZC467", "adagrad-checkpoint-without-zero", Severity.ERROR, in_deepspeed("optimizer", "type"))
def adagrad_checkpoint_without_zero(key: Key) -> Iterator[Finding]:
    precision = precision_of(key.run)
    if not isinstance(key.value, str) or key.value.lower() != "adagrad" or stage_of(key.run) != 0:
        return
    if precision not in ("bf16", "fp16") or not (key.run.consumer == "deepspeed" or with_accelerate(key.run)):
        return
    yield key.finding(
        f"Adagrad in {precision} without ZeRO trains, but its states cannot be collected: saving a checkpoint stops "
        "with a KeyError",
        "use ZeRO stage 1, or another optimizer",
        fix=deepspeed(key.run, "zero_optimization", "stage").replace("1", "use ZeRO stage 1", safe=False),
    )
