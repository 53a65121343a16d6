"""ZC6xx: which modules FSDP shards as one."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.record import replace
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, rule
from zerocfg.rules.fixes import together
from zerocfg.rules.fsdp.plugin import counting_key, fsdp_key, fsdp_setting, fsdp_version, releases
from zerocfg.rules.key import Key, accelerate
from zerocfg.run.model import Run

_TRANSFORMER = "TRANSFORMER_BASED_WRAP"


def wrap_policy(run: Run) -> str | None:
    """The policy in capitals, "" where none is written, None where it cannot be told."""
    setting = run.effective.environment.get("FSDP_AUTO_WRAP_POLICY")
    if setting is None:
        return ""
    return setting.value.upper() if isinstance(setting.value, str) else None


def _min_size(run: Run) -> int | None:
    setting = run.effective.environment.get("FSDP_MIN_NUM_PARAMS")
    text = str(setting.value) if setting is not None else ""
    return int(text) if text.isdecimal() and len(text) < 20 else None


def _choose(run: Run, policy: Key | None = None, *, drop: Key | None = None, safe: bool = False) -> Fix | None:
    """A fix that chooses the policy of transformer layers, and drops a key that it does not read."""
    key, why = policy or accelerate(run, "fsdp_config", "fsdp_auto_wrap_policy"), f"write {_TRANSFORMER}"
    fixes = [key.set(_TRANSFORMER, why), *([drop.delete(why)] if drop else [])]
    fix = together(why, *fixes, safe=safe)
    return replace(fix, gives=()) if fix is not None else None


@rule("ZC605", "fsdp-layer-names-as-list", Severity.ERROR, counting_key("transformer_layer_cls_to_wrap"))
def fsdp_layer_names_as_list(key: Key) -> Iterator[Finding]:
    if isinstance(key.value, list) and key.file is key.run.accelerate:
        names = ",".join(str(part).strip() for part in key.value)
    elif isinstance(key.value, str) and ", " in key.value:
        names = ",".join(part.strip() for part in key.value.split(","))
    else:
        return
    plain = names.replace(",", "").replace("_", "").isalnum()
    model, why = key.run.model, "join the names by commas"
    help_text = f"{why}, without blanks; each has to be a class of the model"
    if model is not None and model.layer_class and not model.foreign_classes.isdisjoint(names.split(",")):
        # ZC618 says that the model has no such class
        names, help_text = model.layer_class, f"write {model.layer_class}"
        why = help_text
    elif model is not None and model.layer_class in names.split(","):
        help_text = f"write {names}"
    yield key.finding(
        f"`{key.name}` becomes the text {show(str(key.value))}, which no layer class is called; wrapping stops at it",
        help_text,
        fix=key.replace(names, why) if plain else None,
    )


@rule("ZC614", "fsdp-wraps-nothing", Severity.WARNING, WHOLE_RUN)
def fsdp_wraps_nothing(run: Run) -> Iterator[Finding]:
    if fsdp_version(run) is None or run.accelerate is None or wrap_policy(run) != "":
        return
    if any(fsdp_key(run, name) for name in ("transformer_layer_cls_to_wrap", "min_num_params", "auto_wrap_policy")):
        return
    yield accelerate(run, "fsdp_config").finding(
        "no fsdp_auto_wrap_policy: all layers are one unit, which is gathered whole in every pass",
        f"write `fsdp_auto_wrap_policy: {_TRANSFORMER}`",
        fix=_choose(run),
        where="key",
    )


@rule("ZC615", "fsdp-wrap-size-zero", Severity.ERROR, WHOLE_RUN)
def fsdp_wrap_size_zero(run: Run) -> Iterator[Finding]:
    policy, size = fsdp_setting(run, "auto_wrap_policy"), fsdp_setting(run, "min_num_params")
    if policy is None or str(policy[1].value).upper() != "SIZE_BASED_WRAP":
        return
    _, key = size or policy
    if key.file is run.accelerate:
        if _min_size(run) != 0 or size is None:
            return
    elif (size is not None and key.value != 0) or "FSDP_MIN_NUM_PARAMS" in run.effective.environment:
        return
    yield key.finding(
        (f"`{key.name}: 0`" if size else "the default, 0,")
        + " switches SIZE_BASED_WRAP off: the layers become one unit",
        f"write a number of parameters, or choose {_TRANSFORMER}",
        fix=_choose(run, policy[1], drop=size[1] if size else None),
    )


@rule("ZC616", "fsdp2-wrap-by-size", Severity.ERROR, WHOLE_RUN, versions="accelerate>=1.7")
def fsdp2_wrap_by_size(run: Run) -> Iterator[Finding]:
    policy, size = fsdp_setting(run, "auto_wrap_policy"), fsdp_setting(run, "min_num_params")
    if policy is None or policy[0] != "2" or str(policy[1].value).upper() != "SIZE_BASED_WRAP":
        return
    number = size[1].value if size is not None else _min_size(run)
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        return
    small = run.model is not None and run.model.parameters is not None and run.model.parameters <= number
    yield policy[1].finding(
        "under FSDP 2 SIZE_BASED_WRAP "
        + (
            f"wraps nothing: the model has less than {number} parameters"
            if small
            else "wants to make a unit of the list of all layers, and fully_shard refuses lists: the job stops"
        ),
        f"write {_TRANSFORMER}",
        [size[1]] if size else [],
        _choose(run, policy[1], drop=size[1] if size else None),
        where="value",
        versions=releases(run),
    )


@rule("ZC617", "fsdp-wrap-key-not-read", Severity.ERROR, WHOLE_RUN)
def fsdp_wrap_key_not_read(run: Run) -> Iterator[Finding]:
    policy = wrap_policy(run)
    if fsdp_version(run) is None or policy is None:
        return
    for name, reader in (("transformer_layer_cls_to_wrap", _TRANSFORMER), ("min_num_params", "SIZE_BASED_WRAP")):
        key = fsdp_key(run, name)
        if key is None or key.value is None or policy == reader or _named_with(run, name, policy):
            continue
        yield _not_read(key, policy, reader)


def _named_with(run: Run, name: str, policy: str) -> bool:
    """A size beside layer classes without a policy: reported with the classes."""
    return name == "min_num_params" and policy == "" and fsdp_key(run, "transformer_layer_cls_to_wrap") is not None


def _not_read(key: Key, policy: str, reader: str) -> Finding:
    if policy in ("", "NO_WRAP"):
        cause = "no fsdp_auto_wrap_policy is written" if not policy else "the policy is NO_WRAP"
        layers = policy == "" and reader == _TRANSFORMER
        return key.finding(
            f"`{key.name}` is not read: {cause}, and all layers are one unit",
            f"write `fsdp_auto_wrap_policy: {reader if fsdp_version(key.run) == '1' else _TRANSFORMER}`",
            fix=_choose(key.run, safe=True) if layers else None,
            severity=Severity.WARNING if policy else None,
        )
    return key.finding(
        f"`{key.name}` is not read: {policy} is chosen, and {reader} reads it",
        "remove the key",
        fix=key.delete("remove a key that has no effect"),
        severity=Severity.NOTE,
    )
