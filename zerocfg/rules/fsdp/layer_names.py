"""ZC6xx: class names of layers that are not found in the model."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import under_deepspeed_launcher
from zerocfg.rules.fsdp.plugin import counting_key
from zerocfg.rules.key import Key
from zerocfg.rules.subjects import in_accelerate


def _names(value: object) -> list[str]:
    if isinstance(value, list):
        return [str(part) for part in value]
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else []


@rule("ZC618", "layer-of-another-model", Severity.ERROR, counting_key("transformer_layer_cls_to_wrap"), needs={"model"})
def layer_of_another_model(key: Key) -> Iterator[Finding]:
    model = key.run.model
    if model is None or model.layer_class is None:
        return
    names = _names(key.value)
    wrong = [name for name in names if name in model.foreign_classes]
    if not wrong:
        return
    own = model.layer_class
    yield key.finding(
        f"{model.name} ({model.model_type}) has no {wrong[0]}: wrapping stops at it",
        f"write {own}, or remove the key",
        fix=key.replace(own, f"write {own}") if len(names) == 1 else None,
        where="value",
    )


@rule(
    "ZC641",
    "expert-layers-misspelled",
    Severity.ERROR,
    in_accelerate("deepspeed_config", "deepspeed_moe_layer_cls_names"),
)
def expert_layers_misspelled(key: Key) -> Iterator[Finding]:
    value = key.value
    if not isinstance(value, list) and not (isinstance(value, str) and any(p != p.strip() for p in value.split(","))):
        return
    if not under_deepspeed_launcher(key.run):
        return
    names = ",".join(name.strip() for name in _names(value))
    plain = names.replace(",", "").replace("_", "").isalnum()
    yield key.finding(
        f"`{key.name}` becomes {show(str(value))}, split at commas: no class is called so, and the job stops",
        f"write {names}",
        fix=key.replace(names, "join the names by commas") if plain else None,
    )
