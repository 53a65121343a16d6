"""ZC4xx: other sections of the DeepSpeed config: data, checkpoints, activations, experts."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.arguments import passed
from zerocfg.rules.effects import TRAINERS, deepspeed_data, edited, present, recipe_data, section, together, without
from zerocfg.rules.issues import issues
from zerocfg.rules.proof import ABSENT, crashes, printed, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path, dotted

_DS = '{"train_micro_batch_size_per_gpu": 1, %s"zero_optimization": {"stage": 2}}\n'
_AUTO_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", %s'
    '"zero_optimization": {"stage": 2}}\n'
)
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n"
_LAUNCH = "deepspeed --num_gpus %s train.py --deepspeed_config ds.json\n"
_DEEPCOMPILE: Path = ("compile", "deepcompile")
_LOUD = '"log_level": "info", '


_DATA = "data_efficiency"
_NEEDED: tuple[tuple[tuple[str, ...], str], ...] = (
    (("data_sampling", "curriculum_learning"), "curriculum_metrics"),
    (("data_sampling", "dynamic_batching"), "max_tokens"),
    (("data_routing", "random_ltd"), "total_layer_num"),
)


@rule(
    "ZC445",
    "data-efficiency-incomplete",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": _DS % '"data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": true}}}, '},
            consumer="deepspeed",
        ).finds("error", 'ds.json: "enabled": true'),
        Example(
            {"ds.json": _DS % '"data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": true}}}, '},
            consumer="deepspeed",
            proof=crashes("parse", "curriculum_metrics must be specified"),
        ).finds("error", 'ds.json: "enabled": true'),
        Example(
            {"ds.json": _DS % '"data_efficiency": {"data_routing": {"random_ltd": {"enabled": true}}}, '},
            consumer="deepspeed",
            proof=crashes("init", "total_layer_num"),
        ).finds("error", 'ds.json: "enabled": true'),
    ),
    good=Example(
        {"ds.json": _DS % '"data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": false}}}, '},
        consumer="deepspeed",
    ),
    proof=crashes("parse", "Dynamic batching is enabled, so max_tokens must be specified"),
    fixable=True,
)
def data_efficiency_incomplete(run: Run) -> Iterator[Finding]:
    """A part of `data_efficiency` is on without the key that it needs.

    Each part needs one: `curriculum_metrics`, `max_tokens`, `total_layer_num`. `"enabled": false` further out does not
    protect: DeepSpeed looks at the innermost switch only.

    What happens: `AssertionError: Dynamic batching is enabled, so max_tokens must be specified` (or the same of
    curriculum learning) when the config is read; `KeyError: 'total_layer_num'` when the engine is built.

    Fix: the part is switched off; the other way out is the missing key.
    """
    for place, needed in _NEEDED:
        part = section(run, _DATA, *place)
        if run.deepspeed is None or part.get("enabled") is not True or needed in part:
            continue
        path = (_DATA, *place, "enabled")
        yield Finding(
            Location(run.deepspeed, path),
            f"`{place[-1]}` is on without `{needed}`; DeepSpeed stops, whatever the switches further out say",
            f"write `{needed}`, or false here",
            fix=edited(replace_value, run.deepspeed, path, "false", why=f"switch {place[-1]} off", safe=False),
            versions="deepspeed>=0.16.5" if place[-1] == "dynamic_batching" else "",
        )


@rule(
    "ZC446",
    "data-loader-of-deepspeed-not-used",
    Severity.ERROR,
    bad=(
        Example(
            {"ds.json": _AUTO_DS % '"dataloader_drop_last": true, ', "recipe.yaml": _RECIPE}, consumer="transformers"
        ).finds("warning", 'ds.json: "dataloader_drop_last"'),
        Example(
            {
                "ds.json": _AUTO_DS
                % (
                    '"data_efficiency": {"enabled": true, "data_sampling": {"enabled": true, '
                    '"curriculum_learning": {"enabled": true, "curriculum_metrics": {}}}}, '
                ),
                "recipe.yaml": _RECIPE,
            },
            consumer="transformers",
            proof=shows(
                "step",
                {
                    "config.data_efficiency.data_sampling.enabled": (True, ABSENT),
                    "engine.own_data_loader": (False, False),
                },
            ),
        ).finds("error", 'ds.json: "data_sampling"'),
    ),
    good=Example({"ds.json": _AUTO_DS % "", "recipe.yaml": _RECIPE}, consumer="transformers"),
    proof=shows("init", {"engine.dataloader_drop_last": (True, False), "uses.dataloader_drop_last": (0, 0)}),
    consumers={"accelerate", *TRAINERS},
    fixable=True,
)
def data_loader_of_deepspeed_not_used(run: Run) -> Iterator[Finding]:
    """Settings of DeepSpeed's data loader under the Trainer or accelerate, which bring their own.

    Curriculum learning, its sampler and `dataloader_drop_last` act on the loader that DeepSpeed makes out of
    `training_data`. Here the samples come in the usual order, and the last short batch is kept.

    What happens: nothing. DeepSpeed is given no data set and makes no loader.

    Fix: the keys are removed. The Trainer's own argument is `dataloader_drop_last`.

    When to ignore: the script hands the data to deepspeed.initialize itself.
    """
    data = deepspeed_data(run)
    paths: list[Path] = [("dataloader_drop_last",)] if data.get("dataloader_drop_last") is True else []
    if section(run, _DATA).get("enabled") is True and section(run, _DATA, "data_sampling").get("enabled") is True:
        paths.append((_DATA, "data_sampling"))
    if run.deepspeed is not None and paths:
        yield Finding(
            Location(run.deepspeed, paths[0], "key"),
            f"`{dotted(paths[0])}` has no effect: DeepSpeed makes no data loader under "
            f"{'accelerate' if run.consumer == 'accelerate' else 'the Trainer'}",
            "remove it; use the arguments of the Trainer or of your own loader",
            [Location(run.deepspeed, path, "key", label="no effect either") for path in paths[1:]],
            without(run.deepspeed, paths, "remove what has no effect"),
            Severity.WARNING if len(paths) == 1 and paths[0] == ("dataloader_drop_last",) else None,
        )


@rule(
    "ZC454",
    "datastates-switched-on",
    Severity.ERROR,
    bad=(
        Example({"ds.json": _DS % '"datastates_ckpt": {"enabled": false}, '}, consumer="deepspeed").finds(
            "error", 'ds.json: "datastates_ckpt": {"enabled": false}'
        ),
        Example({"ds.json": _DS % '"datastates_ckpt": null, '}, consumer="deepspeed").finds(
            "error", 'ds.json: "datastates_ckpt": null'
        ),
    ),
    good=Example({"ds.json": _DS % '"datastates_ckpt": false, '}, consumer="deepspeed"),
    proof=crashes("init", "Please install DataStates"),
    fixable=True,
)
def datastates_switched_on(run: Run) -> Iterator[Finding]:
    """`datastates_ckpt` is null, empty or `{"enabled": false}`, each of which switches it on.

    Any value but a plain false means yes. Without the library the job stops; with it, checkpoints are written in
    another format than the author believes.

    What happens: `RuntimeError: Please install DataStates from https://github.com/DataStates/datastates-llm.` when the
    engine is built.

    Fix: the key is removed.
    """
    path: Path = ("datastates_ckpt",)
    value = deepspeed_data(run).get("datastates_ckpt", False)
    off = value is None or value == {} or (isinstance(value, dict) and value.get("enabled") is False)
    if run.deepspeed is not None and off:
        yield Finding(
            Location(run.deepspeed, path),
            "`datastates_ckpt` is switched on by every value but a plain false, also by this one; the engine cannot be "
            "built without the DataStates library",
            "remove it, or write false",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
        )


@rule(
    "ZC455",
    "expert-balance-not-supported",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '"expert_parallel": {"load_balance_coeff": 0.01}, '}, consumer="deepspeed").finds(
        "error", 'ds.json: "load_balance_coeff": 0.01', "0.01"
    ),
    good=Example({"ds.json": _DS % '"expert_parallel": {"load_balance_coeff": null}, '}, consumer="deepspeed"),
    proof=crashes("parse", "load_balance_coeff=0.01 is not supported in this AutoEP build"),
    fixable=True,
    versions="deepspeed>=0.19.2",
)
def expert_balance_not_supported(run: Run) -> Iterator[Finding]:
    """`expert_parallel.load_balance_coeff` holds a number.

    The key is there for a way of balancing experts that this release does not have. It is refused also where expert
    parallelism is switched off.

    What happens: `ValueError: load_balance_coeff=0.01 is not supported in this AutoEP build` when the config is read.

    Fix: the key is removed.
    """
    path = ("expert_parallel", "load_balance_coeff")
    value = section(run, path[0]).get(path[1])
    if run.deepspeed is not None and isinstance(value, (int, float)) and not isinstance(value, bool):
        yield Finding(
            Location(run.deepspeed, path),
            f"`load_balance_coeff` {value} is not supported; DeepSpeed stops at every value but null",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key", safe=False),
        )


@rule(
    "ZC456",
    "activation-checkpointing-not-configured",
    Severity.WARNING,
    bad=Example(
        {
            "ds.json": _AUTO_DS % '"activation_checkpointing": {"partition_activations": true}, ',
            "recipe.yaml": _RECIPE,
        },
        consumer="transformers",
    ).finds("warning", 'ds.json: "activation_checkpointing"'),
    good=Example(
        {"ds.json": _AUTO_DS % "", "recipe.yaml": _RECIPE + "gradient_checkpointing: true\n"},
        consumer="transformers",
    ),
    proof=shows(
        "init",
        {
            "config.activation_checkpointing.partition_activations": (True, ABSENT),
            "engine.activation_checkpointing": (False, False),
            "uses.activation_checkpointing_config": (0, 0),
        },
    ),
    consumers=TRAINERS,
    fixable=True,
)
def activation_checkpointing_not_configured(run: Run) -> Iterator[Finding]:
    """An `activation_checkpointing` section under the Trainer, which never sets it up.

    The section belongs to `deepspeed.checkpointing`, which the model itself has to call; the models of transformers do
    not. Activations take as much memory as without it.

    What happens: nothing. `deepspeed.checkpointing.configure` is never called.

    Fix: the section is removed, and `gradient_checkpointing: true` is written in a recipe that does not mention it.

    When to ignore: your model calls `deepspeed.checkpointing` itself.
    """
    wanted = section(run, "activation_checkpointing")
    path: Path = ("activation_checkpointing",)
    if run.deepspeed is None or not (run.recipe or passed(run)) or not any(value is True for value in wanted.values()):
        return
    name = "gradient_checkpointing"
    other = name in recipe_data(run) or name in run.arguments
    fix = edited(delete_entry, run.deepspeed, path, why="remove the section")
    more = None if other else edited(insert_entry, run.recipe, (), name, "true", why="use the Trainer's")
    if fix is not None and more is not None:
        fix = together("use the Trainer's gradient checkpointing", fix, more, safe=False)
    yield Finding(
        Location(run.deepspeed, path, "key"),
        "`activation_checkpointing` has no effect under the Trainer: models of transformers never set it up",
        "remove it" if other else f"write `{name}: true` in the training arguments instead",
        fix=fix,
    )


_LOGGED = '"log_level": "info", "comms_logger": {"enabled": true, "verbose": true}, '
_GATHER = printed("comm op: all_gather_into_tensor")


@rule(
    "ZC457",
    "key-without-effect",
    Severity.WARNING,
    bad=(
        Example({"ds.json": _DS % ('"disable_allgather": true, ' + _LOGGED)}, consumer="deepspeed").finds(
            "warning", 'ds.json: "disable_allgather"'
        ),
        Example(
            {"ds.json": (_DS % _LOGGED).replace("}}", ', "allgather_partitions": false}}')},
            consumer="deepspeed",
            proof=shows(
                "step",
                {
                    "engine.zero_config.allgather_partitions": (False, True),
                    "uses.zero_config.allgather_partitions": (0, 0),
                    "log": (_GATHER, _GATHER),
                },
                ranks=2,
            ),
        ).finds("warning", 'ds.json: "allgather_partitions"'),
    ),
    good=Example({"ds.json": _DS % _LOGGED}, consumer="deepspeed"),
    proof=shows(
        "step",
        {"engine.disable_allgather": (True, False), "uses.disable_allgather": (0, 0), "log": (_GATHER, _GATHER)},
        ranks=2,
    ),
    fixable=True,
)
def key_without_effect(run: Run) -> Iterator[Finding]:
    """A key that DeepSpeed accepts and never looks at again.

    `disable_allgather`, `allgather_partitions`, `pipeline.stages`, `pipeline.partition`, `pipeline.seed_layers` and
    `zenflow.steps_per_epoch` are read, stored and used by nothing. What was meant has to be done in another way.

    What happens: nothing. With `disable_allgather: true` the parameters are gathered after each step as before.

    Fix: the key is removed.

    When to ignore: the file is also read by another program.
    """
    partitions: Path = ("zero_optimization", "allgather_partitions")
    if run.deepspeed is not None and section(run, "zero_optimization").get("allgather_partitions") is False:
        yield Finding(
            Location(run.deepspeed, partitions, "key"),
            "`allgather_partitions: false` has no effect in DeepSpeed: parameters are gathered all the same",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, partitions, why="remove the key"),
        )
    for file, library, issue in issues(run, "inert"):
        if library != "DeepSpeed" or issue.value in (None, False, "auto") or not present(file, issue.path):
            continue
        if str(issue.path[-1]).startswith("cpu_offload"):
            continue  # deprecated as well, and told as that
        yield Finding(
            Location(file, issue.path, "key"),
            f"`{dotted(issue.path)}` has no effect in DeepSpeed: {issue.reason}",
            "remove it",
            fix=edited(delete_entry, file, issue.path, why="remove the key"),
        )


@rule(
    "ZC438",
    "accumulation-not-managed-under-accelerate",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _AUTO_DS % '"managed_gradient_accumulation": false, ', "recipe.yaml": _RECIPE},
        consumer="transformers",
    ).finds("error", 'ds.json: "managed_gradient_accumulation": false'),
    good=Example(
        {"ds.json": _AUTO_DS % '"managed_gradient_accumulation": true, ', "recipe.yaml": _RECIPE},
        consumer="transformers",
    ),
    proof=crashes(
        "step", r"set_gradient_accumulation_boundary\(\) is not supported with managed_gradient_accumulation"
    ),
    consumers={"accelerate", *TRAINERS},
    fixable=True,
)
def accumulation_not_managed_under_accelerate(run: Run) -> Iterator[Finding]:
    """`"managed_gradient_accumulation": false` under accelerate or the Trainer.

    The key leaves the end of an accumulation to the caller. accelerate tells the engine of it in a way that is then
    forbidden, so the job stops at its first step, after everything was loaded.

    What happens: `AssertionError: set_gradient_accumulation_boundary() is not supported with
    managed_gradient_accumulation=False; the caller owns the boundary by calling step()`.

    Fix: the key is removed.
    """
    path: Path = ("managed_gradient_accumulation",)
    if run.deepspeed is not None and deepspeed_data(run).get("managed_gradient_accumulation") is False:
        yield Finding(
            Location(run.deepspeed, path),
            "`managed_gradient_accumulation: false` is for loops of your own; accelerate's first step stops at it",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key", safe=False),
        )


RULES = (
    data_efficiency_incomplete,
    data_loader_of_deepspeed_not_used,
    datastates_switched_on,
    expert_balance_not_supported,
    activation_checkpointing_not_configured,
    key_without_effect,
    accumulation_not_managed_under_accelerate,
)
