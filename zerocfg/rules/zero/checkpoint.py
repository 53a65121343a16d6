"""ZC460 to ZC465, ZC467: checkpoints: what is written, and whether it can be loaded again."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, at, rule
from zerocfg.rules.arguments import given
from zerocfg.rules.effects import TRAINERS, anchor, edited, effective, section, stage_of
from zerocfg.rules.precision.dtypes import about, precision_of, without
from zerocfg.rules.proof import crashes, logged, shows
from zerocfg.run.engine import truth
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import delete_entry, replace_value

_DS = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": %s}%s}\n'
_AUTO = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto", '
    '"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": %s}%s}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nbf16: true\ndeepspeed: ds.json\n"
_ADAMW = ', "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}'
_WITH_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"


@rule(
    "ZC460",
    "universal-checkpoint-expected",
    Severity.WARNING,
    bad=(
        Example({"ds.json": _DS % (1, ', "checkpoint": {"load_universal": true}')}, consumer="deepspeed").finds(
            "warning", 'ds.json: "load_universal": true'
        ),
        Example(
            {"recipe.yaml": _RECIPE, "ds.json": _AUTO % (2, ', "checkpoint": {"load_universal": true}')},
            consumer="transformers",
        ).finds("warning", 'ds.json: "load_universal": true'),
    ),
    good=Example({"ds.json": _DS % (1, "")}, consumer="deepspeed"),
    proof=crashes("load", "latest_universal does not exist"),
    fixable=True,
    references=("deepspeed/runtime/engine.py@0.19.8",),
)
def universal_checkpoint_expected(run: Run) -> Iterator[Finding]:
    """`load_universal` makes DeepSpeed refuse the checkpoints that it writes itself.

    A universal checkpoint is made by hand from an ordinary one, with `ds_to_universal.py`, to go on with another number
    of processes. Training writes ordinary ones only. Left in the config, the key stops every later resumption.

    What happens: training and saving work. Resuming stops with `ValueError: Invalid for universal checkpoint:
    checkpoint/latest_universal does not exist`, on every process.

    Fix: removes the key.

    When to ignore: this run starts from a converted checkpoint; take the key out again afterwards.
    """
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
    offloaded = effective(run, "zero_optimization.offload_optimizer.device")
    if isinstance(kind, str) and kind.lower() in ("adam", "adamw"):
        if section(run, "optimizer", "params").get("torch_adam") is True:
            return "torch's Adam"
        return "DeepSpeed's Adam on the processor" if offloaded == "cpu" else None
    if isinstance(kind, str):
        return kind if kind.lower() in ("adagrad", "muon", "sgd") else None
    if "optimizer" in section(run):
        return None
    return "the Trainer's AdamW" if run.consumer in TRAINERS and given(run, "optim") is None else ""


@rule(
    "ZC461",
    "elastic-checkpoint-not-loadable",
    Severity.ERROR,
    bad=(
        Example(
            {"recipe.yaml": _RECIPE, "ds.json": _AUTO % ('2, "elastic_checkpoint": true', "")},
            consumer="transformers",
        ).finds("error", 'ds.json: "elastic_checkpoint": true'),
        Example({"ds.json": _DS % ('2, "elastic_checkpoint": true', "")}, consumer="deepspeed").finds(
            "warning", 'ds.json: "elastic_checkpoint": true'
        ),
        Example(
            {
                "ds.json": _DS
                % ('2, "elastic_checkpoint": true, "offload_optimizer": {"device": "cpu", "pin_memory": true}', _ADAMW)
            },
            consumer="deepspeed",
        ).finds("error", 'ds.json: "elastic_checkpoint": true'),
    ),
    good=Example({"ds.json": _DS % ('2, "elastic_checkpoint": true', _ADAMW)}, consumer="deepspeed"),
    proof=crashes("load", "AssertionError", within="_restore_step_from_elastic_checkpoint"),
    fixable=True,
    references=("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8",),
)
def elastic_checkpoint_not_loadable(run: Run) -> Iterator[Finding]:
    """`elastic_checkpoint` with an optimizer whose states cannot be read back.

    Elastic checkpoints leave the padding between processes away, to be loaded by another number of them. Loading looks
    for one step count that all states share. Only FusedAdam keeps one, which DeepSpeed makes of the types Adam and
    AdamW in its own `optimizer` section on a card; torch's AdamW and DeepSpeedCPUAdam count per parameter.

    What happens: training and saving work. Resuming stops with an `AssertionError` without a text, in
    `_restore_step_from_elastic_checkpoint`: the optimizer states of the run are lost.

    Fix: removes the key. Checkpoints written before stay as they are.
    """
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


@rule(
    "ZC462",
    "elastic-checkpoint-at-stage-3",
    Severity.WARNING,
    bad=Example(
        {"ds.json": _DS % ('3, "stage3_gather_16bit_weights_on_model_save": true, "elastic_checkpoint": true', "")},
        consumer="deepspeed",
    ).finds("warning", 'ds.json: "elastic_checkpoint": true', 3),
    good=Example({"ds.json": _DS % ('3, "stage3_gather_16bit_weights_on_model_save": true', "")}, consumer="deepspeed"),
    proof=shows("parse", {"log": logged("ZeRO-3 elastic checkpointing is deprecated and no longer supported")}),
    fixable=True,
    references=("deepspeedai/DeepSpeed#8099",),
)
def elastic_checkpoint_at_stage_3(run: Run) -> Iterator[Finding]:
    """`elastic_checkpoint` at ZeRO 3, which ignores it.

    Who sets it counts on resuming with another number of processes. At stage 3 that needs a universal checkpoint.

    What happens: a warning in the log, `ZeRO-3 elastic checkpointing is deprecated and no longer supported. Use
    Universal Checkpointing instead.`; the checkpoint is an ordinary one, tied to the number of processes. DeepSpeed
    before 0.19.3 writes the same and says nothing.

    Fix: removes the key, which changes nothing.

    When to ignore: the file is shared with runs at stage 1 or 2.
    """
    path = ("zero_optimization", "elastic_checkpoint")
    if truth(section(run, "zero_optimization").get("elastic_checkpoint")) and stage_of(run) == 3:
        yield about(
            run,
            path,
            "ZeRO 3 ignores `elastic_checkpoint`: its checkpoints load only with the same number of processes",
            "convert a checkpoint with ds_to_universal.py when the number of processes changes",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key without effect"),
        )


@rule(
    "ZC463",
    "checkpoint-writer-without-launcher",
    Severity.ERROR,
    bad=(
        Example(
            {
                "accelerate.yaml": _WITH_FILE,
                "ds.json": '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, '
                '"zero_optimization": {"stage": 2}, "checkpoint": {"writer": {"type": "FAST"}}}\n',
            },
            consumer="accelerate",
        ).finds("error", 'ds.json: "writer": {"type": "FAST"}'),
        Example({"ds.json": _DS % (2, ', "checkpoint": {"writer": {"type": "PYTHON"}}')}, consumer="deepspeed").finds(
            "warning", 'ds.json: "writer": {"type": "PYTHON"}'
        ),
    ),
    good=Example({"ds.json": _DS % (2, ', "checkpoint": {"tag_validation": "Fail"}')}, consumer="deepspeed"),
    proof=crashes("init", "KeyError: 'CROSS_SIZE'"),
    fixable=True,
    references=("deepspeed/runtime/model_checkpointing/utils.py@0.19.8", "deepspeed/launcher/launch.py@0.19.8"),
)
def checkpoint_writer_without_launcher(run: Run) -> Iterator[Finding]:
    """A `checkpoint.writer` in a job that DeepSpeed's own launcher does not start.

    The writer spreads its work over machines, whose number it takes from `CROSS_SIZE`. Only the `deepspeed` command
    sets that variable; accelerate and torchrun do not.

    What happens: the engine is not built: `KeyError: 'CROSS_SIZE'`. An empty `writer` section is enough.

    Fix: removes the section; checkpoints are then written by torch. The other way out is to start the job with
    `deepspeed`, or to export `CROSS_SIZE` and `CROSS_RANK`.
    """
    path = ("checkpoint", "writer")
    launcher = run.launch.launcher if run.launch is not None else None
    if not isinstance(section(run, "checkpoint").get("writer"), dict) or launcher == "deepspeed":
        return
    if "CROSS_SIZE" in run.environment:
        return
    machines = effective(run, "num_machines")
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


@rule(
    "ZC464",
    "save-only-model-not-resumable",
    Severity.NOTE,
    bad=(
        Example(
            {"recipe.yaml": _RECIPE + "save_only_model: true\n", "ds.json": _AUTO % (2, "")}, consumer="transformers"
        ).finds("note", "recipe.yaml: save_only_model: true"),
        Example(
            {
                "recipe.yaml": _RECIPE + "save_only_model: true\n",
                "ds.json": _AUTO % ('3, "stage3_gather_16bit_weights_on_model_save": true', ""),
            },
            consumer="transformers",
        ).finds("note", "recipe.yaml: save_only_model: true"),
    ),
    good=Example(
        {"recipe.yaml": _RECIPE + "save_only_model: false\n", "ds.json": _AUTO % (2, "")}, consumer="transformers"
    ),
    proof=crashes("load", "Can't find a valid checkpoint at", ranks=2),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/integrations/deepspeed.py@5.23.0", "huggingface/transformers#27751"),
)
def save_only_model_not_resumable(run: Run) -> Iterator[Finding]:
    """`save_only_model` with DeepSpeed: no training can be resumed from these checkpoints.

    Without DeepSpeed the Trainer loads such a checkpoint and starts with fresh optimizer states. With DeepSpeed it
    loads through the engine, which finds nothing to load: a job that is interrupted starts from the beginning.

    What happens: `train(resume_from_checkpoint=...)` stops with `ValueError: Can't find a valid checkpoint at ...`. The
    weights themselves are complete and can be given as the model of a new run.

    Fix: writes false; each checkpoint then holds the optimizer states too, about 12 bytes a parameter.

    When to ignore: disk space matters more than resuming.
    """
    setting = given(run, "save_only_model")
    if setting is None or setting.value is not True or effective(run, "engine") != "deepspeed":
        return
    strategy = given(run, "save_strategy")
    if strategy is not None and strategy.value in ("no", False, UNKNOWN):
        return
    location, _ = anchor(run, [setting.origin])
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


@rule(
    "ZC465",
    "node-local-storage-overwritten",
    Severity.WARNING,
    bad=Example(
        {
            "recipe.yaml": _RECIPE + "save_on_each_node: true\n",
            "ds.json": _AUTO % (2, ', "checkpoint": {"use_node_local_storage": false}'),
        },
        consumer="transformers",
    ).finds("warning", 'ds.json: "use_node_local_storage": false', also=("recipe.yaml: save_on_each_node: true",)),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "save_on_each_node: false\n",
            "ds.json": _AUTO % (2, ', "checkpoint": {"use_node_local_storage": false}'),
        },
        consumer="transformers",
    ),
    proof=shows("parse", {"config.checkpoint.use_node_local_storage": (True, False)}),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/integrations/deepspeed.py@5.23.0",),
)
def node_local_storage_overwritten(run: Run) -> Iterator[Finding]:
    """`save_on_each_node` replaces `use_node_local_storage: false` of the DeepSpeed config.

    The DeepSpeed config says that all machines share the folder of checkpoints, the training arguments that each has
    its own. On a shared folder the machines then write the same files at the same time.

    What happens: the Trainer sets `checkpoint.use_node_local_storage` to true without a word. Where the argument is
    false, the DeepSpeed config's value stays.

    Fix: writes false for `save_on_each_node`, as the DeepSpeed config has it.

    When to ignore: each machine has its own folder; the DeepSpeed config is what is wrong then.
    """
    setting = given(run, "save_on_each_node")
    path = ("checkpoint", "use_node_local_storage")
    if setting is None or setting.value is not True or section(run, "checkpoint").get(path[1]) is not False:
        return
    if run.deepspeed is None or effective(run, "engine") != "deepspeed":
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


@rule(
    "ZC467",
    "adagrad-checkpoint-without-zero",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % (0, ', "optimizer": {"type": "Adagrad", "params": {"lr": 0.01}}')}, consumer="deepspeed"
    ).finds("error", 'ds.json: "type": "Adagrad"', 1),
    good=Example(
        {"ds.json": _DS % (1, ', "optimizer": {"type": "Adagrad", "params": {"lr": 0.01}}')}, consumer="deepspeed"
    ),
    proof=crashes("load", "KeyError", within="_common_checkpoint_state"),
    fixable=True,
    references=("deepspeed/runtime/fp16/unfused_optimizer.py@0.19.8",),
)
def adagrad_checkpoint_without_zero(run: Run) -> Iterator[Finding]:
    """Adagrad in bf16 or fp16 without ZeRO: the first checkpoint ends the training.

    torch's Adagrad makes its states for the parameters that it is given. Without ZeRO DeepSpeed then puts fp32 copies
    in their place, whose states are not there when they are collected for a checkpoint.

    What happens: training runs, and `save_checkpoint` stops with a `KeyError` and a number, before anything is on disk.

    Fix: writes stage 1, which also divides the states among the processes.
    """
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


RULES = (
    universal_checkpoint_expected,
    elastic_checkpoint_not_loadable,
    elastic_checkpoint_at_stage_3,
    checkpoint_writer_without_launcher,
    save_only_model_not_resumable,
    node_local_storage_overwritten,
    adagrad_checkpoint_without_zero,
)
