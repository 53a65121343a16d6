"""ZC6xx: which modules FSDP shards as one."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.plugin import fsdp_key, fsdp_setting, fsdp_version
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

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


def _choose(
    run: Run, policy: Path = (), where: SourceFile | None = None, *, drop: Path = (), safe: bool = False
) -> Fix | None:
    """A fix that chooses the policy of transformer layers, and drops a key that it does not read."""
    file = where or run.accelerate
    if file is None or file.document is None:
        return None
    why = f"write {_TRANSFORMER}"
    try:
        if policy:
            edits = replace_value(file.document, policy, _TRANSFORMER)
        else:
            edits = insert_entry(file.document, ("fsdp_config",), "fsdp_auto_wrap_policy", _TRANSFORMER)
        if drop:
            edits = edits + delete_entry(file.document, drop)
    except ValueError:
        return None
    return Fix(why, tuple((file, edit) for edit in edits), safe)


@rule("ZC605", "fsdp-layer-names-as-list", Severity.ERROR)
def fsdp_layer_names_as_list(run: Run) -> Iterator[Finding]:
    found = fsdp_setting(run, "transformer_layer_cls_to_wrap")
    if found is None:
        return
    _, file, path, value = found
    if isinstance(value, list) and file is run.accelerate:
        names = ",".join(str(part).strip() for part in value)
    elif isinstance(value, str) and ", " in value:
        names = ",".join(part.strip() for part in value.split(","))
    else:
        return
    yield Finding(
        Location(file, path),
        f"`{path[-1]}` becomes the text {show(str(value))}, which no layer class is called; wrapping stops at it",
        f"write {names}",
        fix=edited(replace_value, file, path, names, why="join the names by commas")
        if names.replace(",", "").replace("_", "").isalnum()
        else None,
    )


@rule("ZC614", "fsdp-wraps-nothing", Severity.WARNING)
def fsdp_wraps_nothing(run: Run) -> Iterator[Finding]:
    if fsdp_version(run) is None or run.accelerate is None or wrap_policy(run) != "":
        return
    if any(fsdp_key(run, name) for name in ("transformer_layer_cls_to_wrap", "min_num_params", "auto_wrap_policy")):
        return
    yield Finding(
        Location(run.accelerate, ("fsdp_config",), "key"),
        "no fsdp_auto_wrap_policy: all layers are one unit, which is gathered whole in every pass",
        f"write `fsdp_auto_wrap_policy: {_TRANSFORMER}`",
        fix=_choose(run),
    )


@rule("ZC615", "fsdp-wrap-size-zero", Severity.ERROR)
def fsdp_wrap_size_zero(run: Run) -> Iterator[Finding]:
    policy, size = fsdp_setting(run, "auto_wrap_policy"), fsdp_setting(run, "min_num_params")
    if policy is None or str(policy[3]).upper() != "SIZE_BASED_WRAP":
        return
    _, file, path, _ = size or policy
    if file is run.accelerate:
        if _min_size(run) != 0 or size is None:
            return
    elif (size is not None and size[3] != 0) or "FSDP_MIN_NUM_PARAMS" in run.effective.environment:
        return
    yield Finding(
        Location(file, path),
        (f"`{path[-1]}: 0`" if size else "the default, 0,")
        + " switches SIZE_BASED_WRAP off: the layers become one unit",
        f"write a number of parameters, or choose {_TRANSFORMER}",
        fix=_choose(run, policy[2], policy[1], drop=size[2] if size else ()),
    )


@rule("ZC616", "fsdp2-wrap-by-size", Severity.ERROR, versions="accelerate>=1.15")
def fsdp2_wrap_by_size(run: Run) -> Iterator[Finding]:
    policy, size = fsdp_setting(run, "auto_wrap_policy"), fsdp_setting(run, "min_num_params")
    if policy is None or policy[0] != "2" or str(policy[3]).upper() != "SIZE_BASED_WRAP":
        return
    number = size[3] if size is not None else _min_size(run)
    if isinstance(number, bool) or not isinstance(number, int) or number <= 0:
        return
    small = run.model is not None and run.model.parameters is not None and run.model.parameters <= number
    yield Finding(
        Location(policy[1], policy[2], "value"),
        "under FSDP 2 SIZE_BASED_WRAP "
        + (
            f"wraps nothing: the model has less than {number} parameters"
            if small
            else "wants to make a unit of the list of all layers, and fully_shard refuses lists: the job stops"
        ),
        f"write {_TRANSFORMER}",
        [Location(size[1], size[2])] if size else [],
        fix=_choose(run, policy[2], policy[1], drop=size[2] if size else ()),
    )


@rule("ZC617", "fsdp-wrap-key-not-read", Severity.ERROR)
def fsdp_wrap_key_not_read(run: Run) -> Iterator[Finding]:
    policy = wrap_policy(run)
    if fsdp_version(run) is None or policy is None:
        return
    for name, reader in (("transformer_layer_cls_to_wrap", _TRANSFORMER), ("min_num_params", "SIZE_BASED_WRAP")):
        found = fsdp_key(run, name)
        if found is None or found[2] is None or policy == reader or _named_with(run, name, policy):
            continue
        yield _not_read(run, found, policy, reader)


def _named_with(run: Run, name: str, policy: str) -> bool:
    """A size beside layer classes without a policy: told with the classes."""
    return name == "min_num_params" and policy == "" and fsdp_key(run, "transformer_layer_cls_to_wrap") is not None


def _not_read(run: Run, found: tuple[SourceFile, Path, object], policy: str, reader: str) -> Finding:
    file, path, _ = found
    if policy in ("", "NO_WRAP"):
        name = "no fsdp_auto_wrap_policy is written" if not policy else "the policy is NO_WRAP"
        layers = policy == "" and reader == _TRANSFORMER
        return Finding(
            Location(file, path),
            f"`{path[-1]}` is not read: {name}, and all layers are one unit",
            f"write `fsdp_auto_wrap_policy: {reader if fsdp_version(run) == '1' else _TRANSFORMER}`",
            fix=_choose(run, safe=True) if layers else None,
            severity=Severity.WARNING if policy else None,
        )
    return Finding(
        Location(file, path),
        f"`{path[-1]}` is not read: {policy} is chosen, and {reader} reads it",
        "remove the key",
        fix=edited(delete_entry, file, path, why="remove a key that has no effect"),
        severity=Severity.NOTE,
    )
