"""ZC401, ZC402 and ZC466: model weights that are not in the checkpoint after all, and a key that is not needed."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, at, rule
from zerocfg.rules.effects import TRAINERS, accelerate_section, changed_before, effective_value, section, stage_of
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.node import Path, Scalar

GATHER = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
_NAMES = (
    "stage3_gather_16bit_weights_on_model_save",
    "gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save",
)


_TRAINING = frozenset("train fit step backward train_batch training_step learn push_to_hub".split())
"""Methods that train or keep a model, of a Trainer, an engine or an optimizer; beside those called save."""


def quoted_stage(run: Run) -> str | None:
    """The ZeRO stage of a DeepSpeed JSON when it is a text of digits."""
    stage = section(run, "zero_optimization").get("stage")
    return stage if isinstance(stage, str) and stage.strip().isdigit() else None


def misplaced_gather(run: Run) -> tuple[str, ...] | None:
    """The path of DeepSpeed's own key inside the accelerate config, where nobody reads it."""
    written = accelerate_section(run)
    name = next((name for name in _NAMES if written.get(name) is True), None)
    return ("deepspeed_config", name) if name and "zero3_save_16bit_model" not in written else None


@rule("ZC401", "weights-not-saved", Severity.ERROR)
def weights_not_saved(run: Run) -> Iterator[Finding]:
    stage, gather = effective_value(run, "zero_optimization.stage"), effective_value(run, GATHER)
    if quoted_stage(run) or stage is UNKNOWN or stage != 3 or gather is UNKNOWN or truth(gather):
        return
    if any(truth(section(run, "zero_optimization").get(name)) for name in _NAMES):
        return  # DeepSpeed knows all three, whoever hands it the config
    if changed_before(run) or _never_saves(run):
        return
    lost = misplaced_gather(run)
    place = run.effective.get("zero_optimization.stage")
    assert place is not None
    location, fix = _where(run, lost)
    related = [here for here in [at(place.origin, "stage 3 is chosen here")] if here is not None]
    if location is None:
        location, related = primary_location(run, [place.origin])
    yield Finding(
        location,
        f"{_cause(run, location, lost)}: {_consequence(run)}",
        _remedy(run),
        related,
        fix,
        None
        if lost or run.consumer in TRAINERS
        else Severity.NOTE
        if run.consumer == "deepspeed"
        else Severity.WARNING,
    )


def _never_saves(run: Run) -> bool:
    """Whether the run trains nothing that is known: its script does not, or lets another framework do it, or the config
    of which nobody knows who reads it says by its name that it is there for inference."""
    script = run.script
    if script is not None and script.foreign:
        return True
    if script is not None and script.whole and script.methods:
        return not any(name in _TRAINING or name.startswith("save") for name in script.methods)
    file = run.deepspeed or run.accelerate
    return run.consumer is None and file is not None and "infer" in file.name.lower()


def _where(run: Run, lost: Path | None) -> tuple[Location | None, Fix | None]:
    """The key that should say true, or the section that lacks it, and the fix."""
    why = "gather the weights on save"
    if lost and run.accelerate is not None:
        return Location(run.accelerate, lost), edited(
            rename_key,
            run.accelerate,
            lost,
            "zero3_save_16bit_model",
            why="write accelerate's name of the key",
        )
    zero = section(run, "zero_optimization")
    if run.deepspeed is not None:
        name = next((name for name in _NAMES if name in zero), None)
        if name:
            path: Path = ("zero_optimization", name)
            return Location(run.deepspeed, path), edited(replace_value, run.deepspeed, path, "true", why=why)
        return None, _insert(run.deepspeed, ("zero_optimization",), _NAMES[0], why)
    if run.accelerate is not None and accelerate_section(run):
        if "zero3_save_16bit_model" in accelerate_section(run):
            path = ("deepspeed_config", "zero3_save_16bit_model")
            return Location(run.accelerate, path), edited(replace_value, run.accelerate, path, "true", why=why)
        return None, _insert(run.accelerate, ("deepspeed_config",), "zero3_save_16bit_model", why)
    return None, None


def _insert(file: SourceFile, parent: Path, key: str, why: str) -> Fix | None:
    return edited(insert_entry, file, parent, key, "true", why=why)


def _cause(run: Run, location: Location, lost: Path | None) -> str:
    if lost:
        return f"ZeRO stage 3, and accelerate does not read `{lost[-1]}`"
    node = location.file.document.get(location.path) if location.file.document else None
    name = str(location.path[-1]) if location.path else ""
    if not isinstance(node, Scalar) or not ("gather" in name or name == "zero3_save_16bit_model"):
        return "ZeRO stage 3 without gathering the weights on save"
    if node.value is False:
        return f"ZeRO stage 3 with `{name}: false`"
    if node.value == "auto":
        return f'ZeRO stage 3, and `{name}: "auto"` becomes false'
    return f"ZeRO stage 3, and `{name}: {show(node.value)}` does not count as true"


def _consequence(run: Run) -> str:
    if run.consumer in TRAINERS:
        return "the Trainer writes sharded states but no model weights, not even at the end"
    if run.consumer == "accelerate":
        return "accelerator.get_state_dict() and save_model() raise instead of saving the model"
    if run.consumer == "deepspeed":
        return "engine.save_16bit_model() writes nothing"
    return (
        "a Trainer writes no model weights, accelerator.save_model() raises, engine.save_16bit_model() writes nothing"
    )


def _remedy(run: Run) -> str:
    if run.deepspeed is None and run.accelerate is not None:
        return "write `zero3_save_16bit_model: true` in `deepspeed_config`"
    return f'write "{_NAMES[0]}": true in zero_optimization'


@rule("ZC402", "quoted-stage", Severity.ERROR)
def stage_in_quotes(run: Run) -> Iterator[Finding]:
    stage = quoted_stage(run)
    if stage is None or run.deepspeed is None or run.consumer == "deepspeed":
        return
    weights = stage.strip() == "3"
    cost = "saved weights are empty" if weights else "comparisons with the number fail"
    who = "" if run.consumer else "under transformers or accelerate, which compare it with a number, "
    path: Path = ("zero_optimization", "stage")
    yield Finding(
        Location(run.deepspeed, path, "value"),
        f"the stage is the text {show(stage)}, not the number {stage.strip()}: {who}{cost}",
        "write the number without quotes",
        fix=edited(replace_value, run.deepspeed, path, stage.strip(), why="write the number"),
        severity=None if weights else Severity.WARNING,
    )


@rule("ZC466", "gather-key-without-stage-3", Severity.NOTE)
def gather_key_without_stage_3(run: Run) -> Iterator[Finding]:
    path = ("deepspeed_config", "zero3_save_16bit_model")
    written = accelerate_section(run).get(path[1])
    stage = stage_of(run)
    if run.accelerate is None or written is not True or stage not in (0, 1, 2) or run.deepspeed is not None:
        return
    if effective_value(run, "engine") == "deepspeed":
        yield Finding(
            Location(run.accelerate, path),
            f"`zero3_save_16bit_model` has no effect at stage {stage}, where every process holds all weights",
            "leave it out",
            fix=edited(delete_entry, run.accelerate, path, why="remove the key without effect"),
        )
