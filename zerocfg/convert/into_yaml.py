"""An accelerate config that points to a DeepSpeed JSON, as one that says the same by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerocfg.compare.effective_diff import Difference
from zerocfg.compare.values import flat, shown
from zerocfg.convert.conversion import (
    Conversion,
    Row,
    converted_run,
    differences,
    place,
    refused,
    said,
    unexplained,
    word,
)
from zerocfg.convert.deepspeed_section import POINTER, PRECISION, PRECISIONS, SECTION, section
from zerocfg.convert.outcome import refusals
from zerocfg.convert.yaml_edits import without_key
from zerocfg.migrate.steps import Put, changed
from zerocfg.run.config import AUTO
from zerocfg.run.discover import Files
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.node import Path


def into_yaml(run: Run, files: Files) -> Conversion:
    """The run without its DeepSpeed JSON, which stays where it is. Raises ConversionError."""
    file, json_file = run.accelerate, run.deepspeed
    assert file is not None
    if json_file is None:
        raise refused(file, (SECTION,), f"it names no `{POINTER}`: there is no JSON to take in")
    leaves = flat(json_file.data())
    puts = dict(_said(leaves))
    after = converted_run(run, files, _written(run, puts))
    # What accelerate fills in differs with and without a JSON: 1 accumulation step beside one, else "auto".
    puts |= {name: put for name, put in _kept(run, after) if name not in puts}
    text = _written(run, puts)
    after = converted_run(run, files, text)
    found = differences(run, after)
    rows = [_row(run, name, value, puts, found) for name, value in leaves.items()]
    rows += [
        Row(f"{name}: {shown(value)}", said(path, value), "exactly", "beside a JSON it is the default")
        for name, (path, value) in puts.items()
        if name not in leaves
    ]
    return Conversion(run, text, (*rows, *refusals(run, after)), {}, unexplained(found, rows))


def _keys() -> dict[str, Path]:
    """By setting of DeepSpeed: the key of accelerate's config that says it."""
    return {
        str(key.facts["setting"]): (SECTION, name)
        for name, key in section().keys.items()
        if "conflicts" in key.facts and "inert" not in key.facts
    }


def _said(leaves: Mapping[str, object]) -> Iterator[tuple[str, tuple[Path, object]]]:
    """What the JSON says in the words of accelerate's config. It fills in "auto" by itself."""
    for name, value in leaves.items():
        path = _keys().get(name)
        if path is not None and value is not None and value != AUTO:
            yield name, (path, value)
        elif name.removesuffix(".enabled") in PRECISIONS and value is True:
            yield name, ((PRECISION,), name.removesuffix(".enabled"))


def _kept(before: Run, after: Run) -> Iterator[tuple[str, tuple[Path, object]]]:
    """What counts by itself only while there is a JSON."""
    found = differences(before, after)
    for name, path in _keys().items():
        default = found[name].a if name in found else None
        value = default.value if default is not None else before.effective.value(name)
        if value not in (None, AUTO, UNKNOWN) and after.effective.value(name) != value:
            yield name, (path, value)


def _written(run: Run, puts: Mapping[str, tuple[Path, object]]) -> str:
    file = run.accelerate
    assert file is not None
    try:
        text = changed(file, file.source.text, [Put(path, value) for path, value in puts.values()])
        return without_key(file, text, (SECTION, POINTER), POINTER)
    except ValueError as error:
        raise refused(file, (SECTION,), f"the settings cannot be written here: {error}") from None


def _row(
    run: Run,
    name: str,
    value: object,
    puts: Mapping[str, tuple[Path, object]],
    found: Mapping[str, Difference],
) -> Row:
    file = run.deepspeed
    assert file is not None
    old, where, names = f"{name}: {word(value)}", place(file, tuple(name.split("."))), frozenset((name,))
    if name.removesuffix(".enabled") in PRECISIONS and value in (True, AUTO):
        names |= {PRECISION}  # which accelerate takes from the section, or makes a section of
    elif name in found:
        after = found[name].b
        now = shown(after.value) if after is not None else "nothing"
        return Row(old, "", "not at all", f"accelerate has no key for it; {now} would count", where, names)
    if name in puts:
        path, new = puts[name]
        return Row(old, said(path, new), "exactly", "", where, names)
    why = "accelerate fills it in" if value == AUTO else "it changes nothing"
    return Row(old, "(left out)", "exactly", why, where, names)
