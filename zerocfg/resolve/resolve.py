"""From the inputs of a run to its plan: every value with its reason, or the problems that prevent it."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.schema import load_schema
from zerocfg.hardware.profile import read_profile
from zerocfg.resolve.collect_inputs import with_memory
from zerocfg.resolve.engine.accelerate import accelerate_keys
from zerocfg.resolve.engine.ignored_keys import with_ignored_keys
from zerocfg.resolve.plan import Decision, Plan, Problem
from zerocfg.resolve.provenance import Provenance
from zerocfg.resolve.search import follow_ups
from zerocfg.resolve.search.choose import with_open_values
from zerocfg.resolve.training_steps import with_steps
from zerocfg.run.config import AUTO, VERSIONS
from zerocfg.run.model import UNKNOWN, Failure, Origin, Setting
from zerocfg.run.releases import training_libraries
from zerocfg.run.resolve_settings import divides_ranks, with_settings
from zerocfg.run.stages.admitted import guessed
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.engine import current_name
from zerocfg.run.stages.parser import parser_of

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.resolve.inputs import Inputs
    from zerocfg.run.model import Run

ZERO = "zero_optimization."
STAGE = ZERO + "stage"
GATHER = ZERO + "stage3_gather_16bit_weights_on_model_save"

# Written into every emitted DeepSpeed file, whatever sets them.
ALWAYS = (
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "gradient_clipping",
    STAGE,
    ZERO + "overlap_comm",
    ZERO + "contiguous_gradients",
    ZERO + "reduce_bucket_size",
)
BY_STAGE = {
    1: (ZERO + "allgather_bucket_size",),
    2: (ZERO + "allgather_bucket_size",),
    3: (
        ZERO + "sub_group_size",
        ZERO + "stage3_prefetch_bucket_size",
        ZERO + "stage3_param_persistence_threshold",
        ZERO + "stage3_max_live_parameters",
        ZERO + "stage3_max_reuse_distance",
        GATHER,
    ),
}


def resolve(inputs: Inputs) -> tuple[Inputs, Plan | None]:
    """The inputs with every open value resolved, and the plan; where there is none, ``problems`` say why."""
    if inputs.problems:
        return inputs, None
    inputs = with_open_values(inputs)
    if not inputs.problems:
        inputs = with_steps(inputs)
    inputs = replace(inputs, run=with_settings(inputs.run))
    if inputs.problems:
        return inputs, None  # lint judges the run nevertheless, and has to know its hardware
    inputs = with_memory(with_ignored_keys(inputs))
    resolver = _Resolver(inputs)
    plan = resolver.plan()
    run = replace(inputs.run, effective=replace(inputs.run.effective, settings=resolver.taken))
    inputs = replace(inputs, run=run, problems=tuple(resolver.problems))
    return inputs, None if resolver.problems else plan


def _of_newest(run: Run) -> dict[str, Setting]:
    """The effective settings; of a default about which the admitted releases differ, that of the newest: the plan is
    for it, and its files state the value."""
    parser = parser_of(run)
    return {
        name: parser.newest(name) if setting.value is UNKNOWN and len(parser.defaults(name)) > 1 else setting
        for name, setting in run.effective.settings.items()
    }


def _unknown_releases(run: Run) -> list[str]:
    """Notes on libraries of which zerocfg knows no release that the run admits."""
    found = []
    for library in training_libraries(run):
        nearest = guessed(run, library)
        if nearest is not None:
            declared = run.versions[library]
            found.append(f"zerocfg knows no release of {library} that {declared} admits; it plans for {nearest}")
    return found


class _Resolver:
    """``taken``: the effective settings, those included that are decided on the way."""

    def __init__(self, inputs: Inputs) -> None:
        self.inputs = inputs
        self.run = inputs.run
        self.effective = effective = replace(inputs.run.effective, settings=_of_newest(inputs.run))
        self.taken = dict(effective.settings)
        self.problems: list[Problem] = [_refused(failure) for failure in effective.failures]
        self.provenance = Provenance(inputs.run, inputs.folder, inputs.spec.train_samples)
        self.notes = [*inputs.notes, *_unknown_releases(inputs.run)]
        self.settings = {name: self.provenance.decision(name, setting) for name, setting in effective.settings.items()}
        self.choices = inputs.chosen
        self.dropped: list[str] = []
        self.settings.update({**inputs.chosen, **inputs.moved})
        self._explain_batch()

    def _explain_batch(self) -> None:
        names = ("num_processes", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
        ranks, micro, steps = (self._value(name) for name in names)
        batch = self.settings.get("train_batch_size")
        if batch is None or batch.kind != "computed" or None in (ranks, micro, steps):
            return
        if batch.value == ranks * micro * steps:  # else ranks share samples, as the reason tells
            reason = f"{ranks} ranks * {micro} samples * {steps} accumulation steps"
            given = dict(zip(names, (ranks, micro, steps), strict=True))
            self.settings["train_batch_size"] = Decision(batch.value, reason, "computed", inputs=given)

    def plan(self) -> Plan:
        """The plan; valid only if ``problems`` stay empty."""
        inputs, run = self.inputs, self.run
        assert run.consumer is not None
        processes, machines = self._count("num_processes"), self._count("num_machines")
        if self.problems:
            processes = machines = 1
        plan = Plan(
            name=run.name,
            consumer=run.consumer,
            engine=inputs.engine,
            folder=inputs.folder,
            script=inputs.spec.script,
            module=inputs.module,
            arguments=list(inputs.arguments),
            hardware=inputs.profile.name if inputs.profile else "the hardware that the accelerate config names",
            num_processes=processes,
            num_machines=machines,
            launcher=inputs.spec.launcher or ("torchrun" if run.consumer == "deepspeed" else "accelerate"),
            hosts=inputs.spec.hosts,
            targets=inputs.spec.targets,
            recipe=self._recipe(),
            changes=dict(inputs.changes),
            considered=list(inputs.considered),
            profile=inputs.profile,
            model_config=inputs.model_file.data() if inputs.model_file else None,
            model_facts=inputs.facts.model_dump(mode="json", exclude_defaults=True),
            inputs={role: file.path for role, file in self._files().items() if file.path is not None}
            | _profile_file(inputs),
            versions={**VERSIONS, **run.versions},
            notes=self.notes,
        )
        self._check_engine()
        self._check_precision()
        if inputs.engine == "deepspeed":
            written, empty = self._written()
            plan.deepspeed = self._deepspeed(written)
            plan.dropped = self.dropped
            plan.empty = [name for name in empty if not self._drop(f"{name}.")]
        if run.consumer != "deepspeed":
            plan.accelerate = accelerate_keys(inputs, self.settings, processes, machines)
        plan.settings = {name: setting for name, setting in self.settings.items() if setting.value is not UNKNOWN}
        return plan

    # -- DeepSpeed ---------------------------------------------------------------------------------

    def _deepspeed(self, written: list[str]) -> list[str]:
        """The keys of the emitted file: what the author wrote, and what must not be left to a default."""
        stage = self._value(STAGE)
        self._choose(follow_ups.gather_weights(self.effective, stage, self.run.consumer))
        self._choose(follow_ups.pinned_memory(self.effective, self.run, self.inputs.profile, self.notes))
        leaves = follow_ups.leaf_modules(self.effective, self.run, stage, self.inputs.facts)
        engine_choices = {name: choice for name, choice in self.choices.items() if name.startswith((ZERO, "aio."))}
        self._choose(
            {name: decision for name, decision in {**leaves, **engine_choices}.items() if name not in self.inputs.moved}
        )
        chosen_names = [name for name in self.choices if name.startswith((ZERO, "aio."))]
        names = dict.fromkeys((*ALWAYS, *BY_STAGE.get(stage, ()), *written, *chosen_names, *self.inputs.moved, *leaves))
        for section in ("bf16", "fp16"):
            if self._value(f"{section}.enabled"):
                names[f"{section}.enabled"] = None
        if self._value("fp16.enabled") and self._value("fp16.auto_cast"):
            names["fp16.auto_cast"] = None  # accelerate adds it where the file has no such section; the emitted one has
        if not self._value("bf16.enabled") and not self._value("fp16.enabled"):
            names["bf16.enabled"] = None
        for part in ("offload_optimizer", "offload_param"):
            device = f"{ZERO}{part}.device"
            if self._value(device) not in (None, "none"):
                names.update({device: None, f"{ZERO}{part}.pin_memory": None})
        chosen = []
        refused = {problem.key for problem in self.problems}
        for name in names:
            if self._drop(name):
                self.dropped.append(name)
                continue
            if name in refused:
                continue
            if name not in self.settings:
                self.problems.append(_open(name))
                continue
            value = self.settings[name].value
            if value is UNKNOWN or value == AUTO:
                self.problems.append(_open(name, self.settings[name].reason))
            elif isinstance(value, float) and not math.isfinite(value):
                self.problems.append(Problem(name, f"{value} cannot be written into a JSON file", "Write a number."))
            else:
                chosen.append(name)
        return chosen

    def _choose(self, choices: dict[str, Decision]) -> None:
        """Take choices into the settings, and into the run, so that lint judges the run as it will be."""
        self.settings.update(choices)
        for name, choice in choices.items():
            self.taken[name] = Setting(choice.value, Origin("computed", choice.reason))

    def _written(self) -> tuple[list[str], list[str]]:
        """Dotted names of the leaves of the author's DeepSpeed file and of its empty sections, as DeepSpeed calls them
        today."""
        data = self.run.deepspeed.data() if self.run.deepspeed else None
        names: list[str] = []
        empty: list[str] = []

        def visit(section: dict[str, Any], prefix: str) -> None:
            for key, value in section.items():
                if "." in key:
                    self.problems.append(Problem(prefix + key, "a key with a dot in it is none of DeepSpeed's"))
                if isinstance(value, dict) and value:
                    visit(value, f"{prefix}{key}.")
                else:
                    (empty if value == {} else names).append(current_name(prefix + key))

        if isinstance(data, dict):
            visit(data, "")
        return names, empty

    def _drop(self, name: str) -> bool:
        """Values without effect: null beside a device that is none, sections that are switched off.

        And the product of the batch sizes: DeepSpeed multiplies itself, and zero.Init, which on CPU ranks
        reads the config before DeepSpeed knows the other ranks, refuses a product that is not that of one.
        """
        if name == "train_batch_size":
            return not self._keeps_batch()
        if _is_unknown_today(name) and parser_of(self.run).releases.newest(name) is None:
            return True  # what the newest release stops at, those before it silently pass over, but for what they read
        if name == "steps_per_print" and self._value(name) == math.inf:
            return True  # accelerate puts infinity there, whatever the file says
        value = self._value(name)
        if name == "gradient_clipping" and value == 0 and self.effective.settings[name].origin.kind == "default":
            return True  # DeepSpeed's before 0.19.3; a Trainer refuses it where it is written, and clips nothing either
        if value is None and name in self.settings and self.settings[name].value is not UNKNOWN:
            return True
        for part in ("offload_optimizer", "offload_param"):
            prefix = f"{ZERO}{part}."
            if name.startswith(prefix) and self._value(prefix + "device") in (None, "none"):
                return True
        if name.startswith("fp16.") and not self._value("fp16.enabled"):
            return True
        return name.startswith("bf16.") and name != "bf16.enabled" and not self._value("bf16.enabled")

    def _keeps_batch(self) -> bool:
        """Whether the author's product is written: where the script divides its ranks by itself, nobody else knows."""
        written = self.effective.get("train_batch_size")
        own_ranks = self.run.consumer == "deepspeed" and divides_ranks(self.run)
        return own_ranks and written is not None and written.origin.kind == "file"

    # -- the rest ----------------------------------------------------------------------------------

    def _check_engine(self) -> None:
        engine = self._value("engine")
        if engine not in (None, self.inputs.engine) and (engine, self.inputs.engine) != ("single", "ddp"):
            self.problems.append(
                Problem(
                    "engine",
                    f"the run would use {engine} ({self._reason('engine')}), not {self.inputs.engine}",
                    "Set `engine:` in the spec, and take the other engine out of the sources.",
                )
            )

    def _check_precision(self) -> None:
        profile = self.inputs.profile
        device = profile.accelerator if profile else None
        wanted = self._value("bf16.enabled") or self._value("mixed_precision") == "bf16"
        if wanted and device is not None and device.bf16 is False:
            name = "bf16.enabled" if "bf16.enabled" in self.settings else "mixed_precision"
            self.problems.append(
                Problem(
                    name,
                    f"bf16 is asked for ({self._reason(name)}), but {device.name} cannot compute in bf16",
                    "Use fp16 (`fp16: true` and no bf16 in the recipe), or other hardware.",
                )
            )

    def _recipe(self) -> dict[str, Any]:
        """The trainer's arguments: as written and as the reader converts them, or as zerocfg changed them."""
        data = self.run.recipe.data() if self.run.recipe else None
        if not isinstance(data, dict):
            return {}
        recipe = {str(key): value for key, value in data.items()}
        if self.run.consumer in ("transformers", "trl"):
            read = arguments_of(self.inputs.run).values
            recipe.update({name: setting.value for name, setting in read.items() if name in recipe and setting.known})
        return recipe | {name: change.value for name, change in self.inputs.changes.items()}

    def _files(self) -> dict[str, Any]:
        run = self.run
        roles = {
            "spec": run.spec,
            "accelerate": run.accelerate,
            "deepspeed": run.deepspeed,
            "recipe": run.recipe,
            "launch": run.launch_file,
            "model": self.inputs.model_file,
        }
        return {role: file for role, file in roles.items() if file is not None}

    def _count(self, name: str) -> int:
        setting = self.effective.get(name)
        value = setting.value if setting else UNKNOWN
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
        self.problems.append(
            Problem(
                name,
                f"nothing says how many {name.removeprefix('num_')} there are",
                "Add `hardware:` to the run.",
            )
        )
        return 1

    def _value(self, name: str) -> Any:
        one = self.settings.get(name)
        return None if one is None or one.value is UNKNOWN else one.value

    def _reason(self, name: str) -> str:
        one = self.settings.get(name)
        return one.reason if one else "nobody sets it"


def _is_unknown_today(name: str) -> bool:
    """Whether DeepSpeed's newest release knows no such key in a section that takes no other."""
    schema = load_schema("deepspeed")
    *parents, leaf = name.split(".")
    holder = schema.find(tuple(parents)) if parents else None
    section = holder.section(schema) if holder is not None else None
    strict = section is not None and section.unknown == "error" and not section.open
    return strict and schema.find((*parents, leaf)) is None


def _profile_file(inputs: Inputs) -> dict[str, Path]:
    """The profile that the spec names; none where the command line named other hardware."""
    path = inputs.folder / (inputs.spec.hardware or "")
    try:
        used = path.suffix.lower() == ".json" and path.is_file() and read_profile(path) == inputs.profile
    except ValueError:
        return {}
    return {"hardware": path} if used else {}


def _refused(failure: Failure) -> Problem:
    """A failure that the libraries would raise on the emitted job as well."""
    place = next((origin for origin in failure.places if origin.file is not None), None)
    key = ".".join(str(part) for part in place.path) if place and place.path else failure.kind
    where = f" ({place.file.name})" if place and place.file else ""
    return Problem(key, f"{failure.message}{where}", failure=failure)


def _open(name: str, reason: str = "") -> Problem:
    """A value that nothing fills: which key, and the remediation."""
    message = "nothing decides its value" + (f" ({reason})" if reason else "")
    if name.startswith("scheduler.params.") and name.endswith("num_steps"):
        return Problem(name, message, "Add `train_samples:` to the run in the spec, or `max_steps:` to the recipe.")
    if name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
        return Problem(name, message, "Write a number for it into the DeepSpeed config, or name the recipe.")
    if name.endswith(("bucket_size", "persistence_threshold")):
        return Problem(name, message, "Add `model:` to the run in the spec, or write a number of elements.")
    return Problem(name, message, "Write its value into the DeepSpeed config or the recipe.")
