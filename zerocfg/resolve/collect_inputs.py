"""Collects what a run is resolved from: its files, its engine, its hardware.

The emitted job is always started by one launcher with one DeepSpeed file, whatever the sources look like. The run is
therefore resolved as it will be started, so that the settings are those of the emitted job. Engine and launcher:
:mod:`zerocfg.resolve.engine.engine_selection`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.models.model_facts import ModelFacts, from_config
from zerocfg.models.towers import tower_of
from zerocfg.models.vision import vision_of
from zerocfg.resolve.engine.engine_selection import (
    EVERY_DEVICE,
    engine_of,
    launch_of_ranks,
    launched_source,
    select_engine,
)
from zerocfg.resolve.engine.open_engines import is_open
from zerocfg.resolve.inputs import Inputs
from zerocfg.resolve.line_arguments import lacking_configs, line_arguments, without_config
from zerocfg.resolve.model.memory_summary import memory_summary
from zerocfg.resolve.plan import Problem
from zerocfg.run.facts import HardwareSummary
from zerocfg.run.linking.entry_point import script_names
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting, SourceFile
from zerocfg.run.script.arguments import call_of
from zerocfg.source.disk import is_file
from zerocfg.source.node import Mapping
from zerocfg.source.paths import relative
from zerocfg.source.secrets import secret_words
from zerocfg.source.text import Where

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.spec import RunSpec
    from zerocfg.resolve.plan import Engine


def collect_inputs(
    run: Run, spec: RunSpec, folder: Path, profile: HardwareProfile | None, model_file: SourceFile | None
) -> Inputs:
    """The inputs of one run; what is missing or contradictory goes to ``problems``."""
    facts = _facts(spec, model_file)
    config = model_file.data() if model_file else None
    if run.model is not None and facts.vision_parameters and isinstance(config, dict):
        run = replace(run, model=replace(run.model, vision=vision_of(config) or tower_of(config)))
    found = Inputs(run, spec, folder, engine_of(run, spec), profile, facts, model_file)
    found = _with_module(found)
    found = _with_secrets_told(_with_arguments(found))
    problems = (
        *found.problems,
        *_missing(run),
        *_unread(run),
        *_own_config(run),
        *_without_script(found),
        *_lacking_configs(found),
        *_config_of_its_own(found),
        *_engines_of_recipe(run),
    )
    if problems:
        return replace(found, problems=problems)
    return _started(replace(found, before_engine=found) if is_open(found) else found)


def with_engine(found: Inputs, engine: Engine) -> Inputs:
    """The inputs of a run whose engine is open, with this one; what keeps it from starting so goes to ``problems``."""
    assert found.before_engine is not None
    return _started(replace(found.before_engine, engine=engine, before_engine=found.before_engine))


def _started(found: Inputs) -> Inputs:
    return _with_hardware(select_engine(found))


def _with_arguments(found: Inputs) -> Inputs:
    """The words for the script: the spec's, else those of its launch line, else what names the recipe."""
    run, spec = found.run, found.spec
    if spec.arguments is not None:
        return replace(found, arguments=tuple(str(word) for word in spec.arguments))
    if spec.launch is None:
        usual = {"trl": ("--config", spec.recipe), "transformers": (spec.recipe,)}.get(spec.consumer, ())
        return found if spec.recipe is None else replace(found, arguments=tuple(word for word in usual if word))
    line, file = run.launch, run.launch_file
    if line is None or file is None:
        if run.missing:
            return found
        why = f"{spec.launch} is no launch line that starts a training"
        help_ = "Name the file and the line of the command, as `scripts/train.sh:14`."
        return replace(found, problems=(*found.problems, Problem("launch", why, help_)))
    if run.recipe is not None and run.recipe.path is not None and run.recipe.path == file.path:
        why = f"{file.name} writes its recipe by itself, which launch.sh will not do"
        return replace(
            found, problems=(*found.problems, Problem("recipe", why, "Save the recipe as a file, and name it."))
        )
    recipe = relative(run.recipe.path, found.folder) if run.recipe is not None and run.recipe.path else None
    words = line_arguments(run, spec.consumer, recipe)
    unknown = [word.text for word in words if not word.known]
    if unknown:
        why = f"{', '.join(unknown)} of {spec.launch} is known to the running shell alone"
        help_ = "Write the words after the script as `arguments:` into the spec."
        return replace(found, problems=(*found.problems, Problem("launch", why, help_)))
    notes = list(found.notes)
    if line.directory:
        notes.append(f"{spec.launch} starts in {line.directory}; launch.sh starts in the folder of the spec")
    if run.environment:
        names = ", ".join(sorted(run.environment))
        notes.append(f"variables that {file.name} sets for the job are not set by launch.sh: {names}")
    run = replace(run, arguments=without_config(run))
    return replace(found, run=run, arguments=tuple(word.text for word in words), notes=tuple(notes))


def _with_module(found: Inputs) -> Inputs:
    """A line that starts a module starts it under its name, which relative imports need; where it changes the folder
    before, launch.sh can only start the file."""
    line = found.run.launch
    if line is None or not line.module or line.script is None or not line.script.value:
        return found
    if found.spec.script in script_names(line):
        return replace(found, module=line.script.value)
    note = f"{found.spec.launch} starts the module {line.script.value} in another folder; launch.sh starts its file"
    return replace(found, notes=(*found.notes, note))


def _with_secrets_told(found: Inputs) -> Inputs:
    names = sorted({secret_word.variable for secret_word in secret_words(found.arguments).values()})
    notes = [f"launch.sh takes a secret from the variable {name}: set it where the job is started" for name in names]
    return replace(found, notes=(*found.notes, *notes))


def _missing(run: Run) -> Iterator[Problem]:
    for origin in run.missing:
        yield Problem(origin.note, f"there is no file {origin.note!r} (from {_place(origin)})")


def _unread(run: Run) -> Iterator[Problem]:
    """Files without keys: their intent is unknown, so nothing can be chosen."""
    files = {"deepspeed": run.deepspeed, "accelerate": run.accelerate, "recipe": run.recipe}
    for key, file in files.items():
        if file is None or file.document is None or isinstance(file.document.root, Mapping):
            continue
        found = file.document.problems
        start = found[0].span.start if found else 0
        message = f"{file.name} cannot be read: {found[0].message}" if found else f"{file.name} holds no keys"
        yield Problem(key, message, "Correct it first.", Where(file.name, *file.document.source.place(start)))


def _own_config(run: Run) -> Iterator[Problem]:
    """A script that makes its DeepSpeed config by itself never opens the emitted one."""
    file = run.deepspeed
    if file is not None and file.path is not None and file.path.suffix == ".py":
        message = f"{file.name} makes its DeepSpeed config by itself, so the emitted one would never be used"
        help_ = "Let the script read a file: what `--deepspeed_config` names, or `deepspeed` of its TrainingArguments."
        yield Problem("deepspeed", message, help_)


def _place(origin: Origin) -> str:
    return origin.file.name if origin.file else "the launch line"


def _facts(spec: RunSpec, file: SourceFile | None) -> ModelFacts:
    if isinstance(spec.model, ModelFacts):
        return spec.model
    if spec.model is None:
        return ModelFacts(unknown_because="the spec names no model")
    config = file.data() if file else None
    return from_config(config if isinstance(config, dict) else {})


def _without_script(found: Inputs) -> Iterator[Problem]:
    if not is_file(found.folder / found.spec.script):
        yield Problem("script", f"there is no file {found.spec.script!r} beside the spec", "Name the script to launch.")


def _lacking_configs(found: Inputs) -> Iterator[Problem]:
    """Configs that the launch line names and that nobody can tell: without them it would be another job."""
    if found.spec.engine is not None:
        return  # the author decides it
    for key, option in lacking_configs(found.run):
        text = option.value.text if option.value is not None else ""
        why = f"{found.spec.launch} names a config that is not known here: {option.name} {text}"
        yield Problem(
            key, why, f"Name the file in the spec (`{key}:`), or the engine that runs without it (`engine:`)."
        )


def _config_of_its_own(found: Inputs) -> Iterator[Problem]:
    """A loop of its own whose DeepSpeed config nobody can tell: one that zerocfg emits as ``--deepspeed_config`` would
    be in vain, or beside the script's."""
    run, spec, line = found.run, found.spec, found.run.launch
    if spec.launch is None or line is None or run.consumer != "deepspeed" or run.deepspeed is not None:
        return
    if run.missing or lacking_configs(run):
        return  # told as such
    call = call_of(run.script, "deepspeed.initialize")
    if call is not None and {"config", "config_params"} & set(call.arguments):
        why = f"{spec.script} gives deepspeed.initialize a config of its own, so the emitted one would never be used"
    elif any(word.value is None for word in line.arguments):
        why = f"{spec.launch} names no DeepSpeed config that is known here; a variable of the shell may hold it"
    else:
        return
    help_ = f"Let {spec.script} read the file that `--deepspeed_config` names, and name it as `deepspeed:`."
    yield Problem("deepspeed", why, help_)


def _engines_of_recipe(run: Run) -> Iterator[Problem]:
    recipe = run.recipe.data() if run.recipe else None
    if not isinstance(recipe, dict):
        return
    for key, instead in (
        ("deepspeed", "`deepspeed:`"),
        ("fsdp", "`engine: fsdp`, and put `fsdp_config` into an accelerate config"),
    ):
        if recipe.get(key):
            yield Problem(
                key,
                f"the recipe sets `{key}` itself, so the emitted config would never be used",
                f"Take `{key}` out of the recipe; in the spec say {instead}.",
            )


def _with_hardware(found: Inputs) -> Inputs:
    """The number of processes follows from the profile, which overrides the sources."""
    run, profile = found.run, found.profile
    if profile is None:
        if run.accelerate is None:
            message = "nothing says how many processes there are"
            problem = Problem("hardware", message, "Add `hardware:` to the run, or give --hardware.")
            return replace(found, problems=(*found.problems, problem))
        return found
    device = profile.accelerator
    hardware = HardwareSummary(
        name=profile.name,
        nodes=profile.nodes,
        accelerators_per_node=max(1, profile.accelerators_per_node),
        memory_gib=device.planning_gib if device else None,
        bf16=device.bf16 if device else None,
        vendor=device.vendor if device else None,
        host_gib=profile.host.planning_gib if profile.host else None,
        memlock=profile.host.memlock if profile.host and isinstance(profile.host.memlock, int) else None,
        nvme_free_gib={mount.path: mount.free_gib for mount in profile.host.nvme} if profile.host else {},
    )
    each = max(1, profile.accelerators_per_node)
    nodes = "1 node" if profile.nodes == 1 else f"{profile.nodes} nodes"
    origin = Origin(
        "computed",
        f"{profile.name}: {nodes} of {each} rank{'s' if each > 1 else ''}",
    )
    counts = {"num_processes": profile.world_size, "num_machines": profile.nodes}
    notes = list(found.notes)
    source = run.accelerate.data() if run.accelerate else None
    for name, value in counts.items():
        said = source.get(name) if isinstance(source, dict) else None
        if said is not None and said != value:
            notes.append(f"{name}: the accelerate config says {said}, {profile.name} has {value}: {value} is used")
    flags = {name: flag for name, flag in run.flags.items() if name != "multi_gpu" or profile.world_size > 1}
    named = launched_source(run).get("gpu_ids")
    if isinstance(named, str) and named != EVERY_DEVICE and len(named.split(",")) != each:
        notes.append(f"gpu_ids: the sources say {named}, {profile.name} has {each} for a node: all of them are used")
        flags["gpu_ids"] = Setting(EVERY_DEVICE, origin)
    if run.consumer == "deepspeed":
        launcher = found.spec.launcher
        _, started = launch_of_ranks("deepspeed" if launcher == "deepspeed" else "torchrun", profile.nodes, each)
        flags.update({name: replace(flag, origin=origin) for name, flag in started.items()})
    else:
        flags.update({name: Setting(str(value), origin) for name, value in counts.items()})
        if profile.nodes > 1:
            flags.update(node_flags())
        if profile.nodes > 1 and found.engine == "deepspeed":
            each_node = Origin("computed", "every node runs launch.sh itself")
            flags["deepspeed_multinode_launcher"] = Setting("standard", each_node)
        if found.engine == "ddp" and profile.world_size > 1 and run.accelerate is None:
            flags["multi_gpu"] = Setting(True, Origin("computed", "the engine of this run is ddp"))
    return replace(found, run=replace(run, hardware=hardware, flags=flags), notes=tuple(notes))


def node_flags() -> dict[str, Setting]:
    """What launch.sh passes on each node; only the machine rank is certainly a number."""
    passed = Origin("computed", "launch.sh passes it on each node")
    return {
        "machine_rank": Setting("0", passed),
        "main_process_ip": Setting(UNKNOWN, passed),
        "main_process_port": Setting(UNKNOWN, passed),
    }


def with_memory(found: Inputs) -> Inputs:
    """A computed run with what the memory rules need: the model's sizes, and what is predicted of its memory."""
    run, facts, profile = found.run, found.facts, found.profile
    model = run.model
    if model is not None:
        model = replace(
            model,
            vocab_size=facts.vocab_size,
            parameters=facts.parameters,
            largest_parameter=facts.largest_parameter,
            largest_block=facts.largest_block,
            all_trained=facts.trainable == facts.parameters,
        )
    run = replace(run, model=model)
    config = found.model_file.data() if found.model_file else None
    memory = memory_summary(run, facts, found.spec, config if isinstance(config, dict) else None, profile)
    return replace(found, run=replace(run, memory=memory))


def on_part(found: Inputs, nodes: int, per_node: int, why: str) -> Inputs:
    """The run on a part of the hardware instead of all of it."""
    assert found.profile is not None
    name = f"{nodes} x {per_node} devices of {found.profile.name}"
    part = {"name": name, "nodes": nodes, "accelerators_per_node": per_node}
    note = f"{nodes * per_node} of {found.profile.world_size} devices are used: {why}"
    of_the_whole = {"multi_gpu", "deepspeed_multinode_launcher", *node_flags()}
    flags = {name: flag for name, flag in found.run.flags.items() if name not in of_the_whole}
    profile = found.profile.model_copy(update=part)
    found = replace(found, run=replace(found.run, flags=flags), profile=profile, notes=(*found.notes, note))
    return _with_hardware(found)
