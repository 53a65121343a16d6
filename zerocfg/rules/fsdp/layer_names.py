"""ZC6xx: class names of layers that are not found in the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section, under_deepspeed_launcher
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.plugin import fsdp_setting
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import replace_value
from zerocfg.source.node import Path

_KEY = "transformer_layer_cls_to_wrap"


def _names(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(part) for part in value]
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else []


@rule("ZC618", "layer-of-another-model", Severity.ERROR, needs={"model"})
def layer_of_another_model(run: Run) -> Iterator[Finding]:
    found = fsdp_setting(run, _KEY)
    if found is None or run.model is None or run.model.layer_class is None:
        return
    _, file, path, value = found
    wrong = [name for name in _names(value) if name in run.model.foreign_classes]
    if not wrong:
        return
    own = run.model.layer_class
    yield Finding(
        Location(file, path, "value"),
        f"{run.model.name} ({run.model.model_type}) has no {wrong[0]}: wrapping stops at it",
        f"write {own}, or remove the key",
        fix=edited(replace_value, file, path, own, why=f"write {own}") if len(_names(value)) == 1 else None,
    )


@rule("ZC641", "expert-layers-misspelled", Severity.ERROR)
def expert_layers_misspelled(run: Run) -> Iterator[Finding]:
    value = accelerate_section(run).get("deepspeed_moe_layer_cls_names")
    if run.accelerate is None or not under_deepspeed_launcher(run):
        return
    if not isinstance(value, list) and not (isinstance(value, str) and any(p != p.strip() for p in value.split(","))):
        return
    yield _misspelled(run.accelerate, ("deepspeed_config", "deepspeed_moe_layer_cls_names"), value)


def _misspelled(file: SourceFile, path: Path, value: object) -> Finding:
    names = ",".join(name.strip() for name in _names(value))
    plain = names.replace(",", "").replace("_", "").isalnum()
    return Finding(
        Location(file, path),
        f"`{path[-1]}` becomes {show(str(value))}, split at commas: no class is called so, and the job stops",
        f"write {names}",
        fix=edited(replace_value, file, path, names, why="join the names by commas") if plain else None,
    )
