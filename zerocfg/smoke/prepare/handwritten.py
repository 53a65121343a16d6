"""Configs that zerocfg did not build, assembled for a smoke-run as the linter links them.

The files go to the libraries as they are: a value that is written as a text stays one. What has to be smaller is
changed in copies, as for a build.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from zerocfg.budgets import FILE_BYTES
from zerocfg.catalog.schema import load_schema
from zerocfg.emit.lock import Lock
from zerocfg.frontends.registry import front_end
from zerocfg.models.model_facts import from_config
from zerocfg.resolve.plan import Decision
from zerocfg.run.discover import Files
from zerocfg.run.hub import find_config
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.resolve_settings import with_consumer
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.smoke.model.reduction import Kind, Reduction
from zerocfg.smoke.prepare.requested_settings import DTYPE, Claim, claims
from zerocfg.source import disk

if TYPE_CHECKING:
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.prepare.device import Device
    from zerocfg.source.launch.line import LaunchLine

# Options of `accelerate launch` that speak of machines, processes, ports and files; a smoke-run has its own.
MACHINE_OPTIONS = frozenset(
    "config_file num_processes num_machines machine_rank main_process_ip main_process_port gpu_ids same_network "
    "rdzv_backend rdzv_conf role log_dir tee monitor_interval max_restarts debug quiet deepspeed_config_file "
    "deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter deepspeed_multinode_launcher "
    "module no_python num_cpu_threads_per_process numa_affinity enable_cpu_affinity m".split()
)
# Variables of a launch line that decide what is trained; others (devices, hosts, caches) belong to its machine.
TRAINING_VARIABLES = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_")
# What a plan is made of, by the names of the lock.
PLANNED = frozenset(
    "engine num_processes num_machines zero_optimization.stage zero_optimization.offload_optimizer.device "
    "zero_optimization.offload_param.device train_micro_batch_size_per_gpu gradient_accumulation_steps "
    "gradient_clipping bf16.enabled fp16.enabled".split()
)
CONSUMERS = ("transformers", "trl", "accelerate", "deepspeed")


@dataclass
class Handwritten:
    """``run``: the files as the linter sees them together. ``requested``: every place that states a setting, by
    its name.

    ``texts``: the files "accelerate" and "deepspeed", byte for byte. ``options``: the launch line's own for
    `accelerate launch`. ``variables``: those that it sets. ``by_accelerate``: accelerate's launcher starts it.
    ``notes``: what was left out or taken for granted.
    """

    run: Run
    requested: dict[str, list[Claim]]
    texts: dict[str, bytes] = field(default_factory=dict)
    options: list[str] = field(default_factory=list)
    variables: dict[str, str] = field(default_factory=dict)
    by_accelerate: bool = False
    notes: list[Reduction] = field(default_factory=list)

    def fit(self, reduced: Reduced, device: Device) -> None:
        """Finish the reduction; what a build's plan would have resolved is left to the libraries."""
        reduced.changes += self.notes
        arguments, config = reduced.arguments, reduced.deepspeed or {}
        if self.run.consumer in ("transformers", "trl"):
            # What TrainingArguments no longer have stops the user's script, too.
            names = load_schema("training-arguments").root
            written = _recipe(self.run)
            removed = {name for name in written if (key := names.key(name)) is not None and "removed" in key.facts}
            arguments.update({name: written[name] for name in written if name in removed})
        if self.run.consumer in ("accelerate", "deepspeed"):
            # A loop of its own takes its micro batch from its options; else from the config that it passes on.
            micro = config.get("train_micro_batch_size_per_gpu")
            if isinstance(micro, int) and micro > 0:
                arguments.setdefault("per_device_train_batch_size", micro)
        scheduler = config.get("scheduler")
        total = (scheduler.get("params") or {}).get("total_num_steps") if isinstance(scheduler, dict) else None
        if isinstance(total, int) and "max_steps" not in arguments:
            arguments["max_steps"] = total
        if device.kind == "cpu" and {claim.value for claim in self.requested.get(DTYPE, ())} == {"fp16"}:
            self._without_fp16(reduced)

    def _without_fp16(self, reduced: Reduced) -> None:
        """What `reduce` does for DeepSpeed, for a run without it; and the options of the launch line."""
        if reduced.deepspeed is None:
            why = "because a processor has no fp16 training"
            reduced.changes.append(Reduction(Kind.PRECISION, "fp16", "bf16", why=why))
            if reduced.arguments.get("fp16"):
                reduced.arguments.update(fp16=False, bf16=True)
            if reduced.accelerate is not None and reduced.accelerate.get("mixed_precision") == "fp16":
                reduced.accelerate["mixed_precision"] = "bf16"
        self.options = ["bf16" if word == "fp16" else word for word in self.options]


class NotFoundError(Exception):
    """There is nothing to run, or too much; says what to do."""


def find(path: Path, consumer: str | None = None, name: str | None = None) -> Run:
    """The one run that ``path`` holds: a launch script, a config, a recipe, or a folder of such files.

    ``consumer`` reads a config of which no file tells it; ``name`` chooses among several runs. Raises NotFoundError.
    """
    files = Files()
    root = path.resolve() if path.is_dir() else path.resolve().parent
    found, _ = find_runs([path], files, root=root)
    if any(run.spec is not None for run in found):
        raise NotFoundError(f"'{path}' is a spec: `zerocfg build` makes run folders of it, which can be tried")
    # accelerate's launcher needs no file: its options are a config of their own.
    runs = [run for run in found if run.files or run.missing]
    runs = [run for run in runs if run.accelerate or run.deepspeed or run.recipe or run.missing or run.flags]
    # A config that no launch line uses is a run of its own only where there are no launch lines.
    launched = [run for run in runs if run.launch is not None]
    others = [run for run in runs if run.launch is None]
    chosen = launched or others
    if name is not None:
        chosen = [run for run in runs if run.name == name or run.name.endswith(f"/{name}")]
        if not chosen:
            raise NotFoundError(f"'{path}' holds no run '{name}'; there {_are(runs)}")
    if not chosen:
        what = "no config" if path.is_dir() else "is no config"
        raise NotFoundError(
            f"'{path}' {'holds ' if path.is_dir() else ''}{what} that zerocfg knows: an accelerate YAML, a DeepSpeed "
            "JSON, a recipe, a script that launches one of them"
        )
    if len(chosen) > 1:
        raise NotFoundError(f"'{path}' holds several runs; name one: {_are(chosen)}")
    run = chosen[0]
    if run.missing:
        place = run.missing[0]
        where = f"{place.file.name}: " if place.file is not None else ""
        raise NotFoundError(f"{where}'{place.note}' is nowhere to be found")
    recipe = run.recipe.document if run.recipe is not None else None
    if run.recipe is not None and recipe is not None and recipe.root is None:
        # The script's own reader would stop at it; there is nothing to start then.
        said = recipe.problems[0].message if recipe.problems else "no mapping"
        raise NotFoundError(f"{run.recipe.name} cannot be read: {said}")
    if front_end(run.consumer) is not None:
        raise NotFoundError(f"{run.name} is started by {run.consumer}, which trains in a way of its own: try that")
    if run.consumer is None and consumer is None:
        raise NotFoundError(
            f"nothing tells what reads the configs of {run.name}: a Trainer, a loop of accelerate, or DeepSpeed's "
            f"engine; say it with --consumer {'|'.join(CONSUMERS)}"
        )
    return run if run.consumer is not None else with_consumer(run, consumer)


def _are(runs: list[Run]) -> str:
    return ", ".join(f"--run {run.name}" for run in runs[:8]) or "is none"


def handwritten(run: Run) -> Handwritten:
    """What the launcher has to be told of a run."""
    line = run.launch
    own = Handwritten(run, claims(run))
    own.by_accelerate = line.launcher == "accelerate" if line is not None else run.accelerate is not None
    for role, file in (("accelerate", run.accelerate), ("deepspeed", run.deepspeed)):
        if file is not None and file.path is not None:
            own.texts[role] = disk.whole(file.path, FILE_BYTES)
    if line is not None:
        if line.launcher == "accelerate":
            _options(own, line)
        for name, value in line.environment.items():
            if name.startswith(TRAINING_VARIABLES) and value is not None:
                own.variables[name] = value
            elif name.startswith(TRAINING_VARIABLES):
                own.notes.append(Reduction(Kind.LAUNCH, keys=(name,)))
    return own


def _options(own: Handwritten, line: LaunchLine) -> None:
    for option in line.options:
        name = option.plain
        if name in MACHINE_OPTIONS:
            continue
        if option.value is None:
            own.options.append(option.name)
        elif option.value.value is None:
            own.notes.append(Reduction(Kind.LAUNCH, keys=(option.name, option.value.text)))
        else:
            own.options += [option.name, option.value.value]


def lock_of(own: Handwritten) -> Lock:
    """What a build's lock would say of the run, as far as the files tell it."""
    run = own.run
    values = {
        name: setting
        for name, setting in run.effective.settings.items()
        if setting.known and isinstance(setting.value, (bool, int, float, str))
    }
    plan: dict[str, object] = {name: setting.value for name, setting in values.items() if name in PLANNED}
    halves = {claim.value for claim in own.requested.get(DTYPE, ())}
    # Where files disagree the libraries have to judge.
    plan["fp16.enabled"] = halves == {"fp16"}
    plan["num_processes"] = _processes(plan, run)
    config = _model(own)
    return Lock(
        run.name,
        consumer=run.consumer,
        launcher=run.launch.launcher if run.launch is not None else None,
        model_config=config,
        model_facts={"parameters": from_config(config).parameters} if config is not None else {},
        recipe=_recipe(run),
        plan=plan,
        # Only explicit values: a default is not a request.
        settings={
            name: Decision(value.value) for name, value in values.items() if value.origin.kind in ("file", "flag")
        },
    )


def _processes(plan: dict[str, object], run: Run) -> int | None:
    """As launched; else what the batch sizes imply."""
    stated = plan.get("num_processes")
    if isinstance(stated, int) and stated > 0:
        return stated
    data = run.deepspeed.data() if run.deepspeed is not None else None
    if isinstance(data, dict):
        total, micro = data.get("train_batch_size"), data.get("train_micro_batch_size_per_gpu")
        steps = data.get("gradient_accumulation_steps", 1)
        if all(isinstance(item, int) and item > 0 for item in (total, micro, steps)) and total % (micro * steps) == 0:
            return int(total // (micro * steps))
    return None


def _recipe(run: Run) -> dict[str, object]:
    """The training arguments as the script's reader hands them to TrainingArguments."""
    found: dict[str, object] = {}
    content = run.recipe.data() if run.recipe is not None else None
    if isinstance(content, dict):
        found.update(content)
    for name, setting in run.arguments.items():
        if setting.known and setting.value is not UNKNOWN:
            found[name] = setting.value
    if run.consumer in ("transformers", "trl"):
        arguments = arguments_of(run)
        for name in found:
            read = arguments.values.get(name)
            if read is not None and read.known:
                found[name] = read.value
    found.pop("deepspeed", None)
    return found


def _model(own: Handwritten) -> dict[str, object] | None:
    """The model's config.json, where the files lead to it."""
    run = own.run
    for name in ("model_name_or_path", "model_name", "model", "model_id"):
        setting = run.arguments.get(name)
        value = setting.value if setting is not None else None
        recipe = run.recipe.data() if run.recipe is not None else None
        if value is None and isinstance(recipe, dict):
            value = recipe.get(name)
        if not isinstance(value, str):
            continue
        for folder in _around(run):
            path = find_config(value, folder)
            config = _read_json(path) if path is not None else None
            if config is not None:
                return config
    return None


def _around(run: Run) -> list[Path]:
    folders = [file.path.resolve().parent for file in run.files if file.path is not None]
    return list(dict.fromkeys([*folders, Path.cwd()]))


def _read_json(path: Path) -> dict[str, object] | None:
    try:
        content = json.loads(disk.whole(path, FILE_BYTES).decode("utf-8"))
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def accelerate_of(own: Handwritten) -> dict[str, object] | None:
    """The accelerate config as accelerate's own reader sees it; None when there is none or it cannot be read."""
    run, text = own.run, own.texts.get("accelerate")
    if text is None and run.launch is None and run.consumer == "accelerate" and run.deepspeed is not None:
        own.by_accelerate = True
        own.notes.append(Reduction(Kind.LAUNCH, run=f"accelerate launch with {run.deepspeed.name}"))
        section = {"deepspeed_config_file": run.deepspeed.name}
        return {"distributed_type": "DEEPSPEED", "deepspeed_config": section, "mixed_precision": "no"}
    if text is None:
        return None
    try:
        content = yaml.safe_load(text)
    except (yaml.YAMLError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def deepspeed_of(own: Handwritten) -> dict[str, object] | None:
    """The DeepSpeed config; None when there is none, or when the libraries have to be shown the file itself."""
    inline = (
        own.run.recipe.data().get("deepspeed") if own.run.recipe and isinstance(own.run.recipe.data(), dict) else None
    )
    text = own.texts.get("deepspeed")
    if text is None:
        return inline if isinstance(inline, dict) else None
    try:
        content = json.loads(text, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return None
    return content if isinstance(content, dict) else None


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    content = dict(pairs)
    if len(content) != len(pairs):
        raise ValueError("a key stands twice")
    return content


def hashes(run: Run) -> dict[str, str]:
    """sha256 of every file of the run, by its name."""
    return {
        file.name: hashlib.sha256(disk.whole(file.path, FILE_BYTES)).hexdigest()
        for file in run.files
        if file.path is not None
    }
