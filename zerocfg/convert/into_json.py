"""An accelerate config that describes DeepSpeed by itself, as one that points to a DeepSpeed JSON.

Of DeepSpeed's settings accelerate's own config knows seven; all others that stand in it are read by nobody. In a
JSON they count.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from zerocfg.catalog.counterparts import translated
from zerocfg.catalog.schema import load_schema
from zerocfg.compare.effective_diff import Difference
from zerocfg.compare.values import flat, shown
from zerocfg.convert.conversion import (
    Conversion,
    Match,
    Row,
    converted_run,
    counted,
    differences,
    place,
    refused,
    said,
    unexplained,
    word,
)
from zerocfg.convert.deepspeed_section import POINTER, PRECISION, PRECISIONS, SECTION, section
from zerocfg.convert.outcome import refusals
from zerocfg.convert.yaml_edits import document_of, without_key
from zerocfg.migrate.steps import Put, changed, editable
from zerocfg.rules.issues import issues
from zerocfg.rules.moving import placed
from zerocfg.rules.renaming import written
from zerocfg.run.discover import Files, display_name
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.run.resolve_settings import with_consumer
from zerocfg.source.edit import apply_edits, insert_entry
from zerocfg.source.node import Path

_FILLED = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping")
"""What accelerate writes as "auto" into the config that it makes without a JSON."""
_PARAMETERS = (("optimizer", "params"), ("scheduler", "params"))
"""Sections that a training argument by itself does not fill: DeepSpeed would make an optimizer of its own."""
_STAGE_OF_ACCELERATE = 2
"""The stage of such a config where nobody names one."""


@dataclass(frozen=True, slots=True)
class _Move:
    """A key of the accelerate config, and what it says as settings of DeepSpeed. ``read``: accelerate reads it."""

    path: Path
    value: object
    settings: Mapping[str, object]
    read: bool


def into_json(run: Run, files: Files, target: FilePath) -> Conversion:
    """The run with its settings of DeepSpeed in a JSON: the one that it has, else a new one at ``target``.

    Raises ConversionError.
    """
    file, json_file = run.accelerate, run.deepspeed
    assert file is not None
    taken: dict[str, object] = {}
    if json_file is not None:
        if json_file.path is None or not editable(json_file):
            raise refused(file, (SECTION, POINTER), f"{json_file.name} cannot be edited")
        target, taken = json_file.path, flat(json_file.data())
    moves, left = _possible(run, _moves(run), taken)
    pointer = _pointer(run, target)
    text = _without_moved(file, file.source.text if json_file is not None else _pointing(file, pointer), moves)
    new = [(move, {name: setting for name, setting in move.settings.items() if name not in taken}) for move in moves]
    texts = {target: _new_json(new) if json_file is None else _extended(file, json_file, new)}
    after = converted_run(run, files, text, pointer, texts)
    found = differences(run, after)
    rows = [*(_row(run, move, taken, found) for move in moves), *left]
    if not rows and json_file is None:
        rows = [Row("(what accelerate sets by itself)", said((SECTION, POINTER), pointer), "exactly")]
    rows += refusals(run, after)
    return Conversion(run, text, tuple(rows), texts, unexplained(found, rows))


_New = Sequence[tuple[_Move, Mapping[str, object]]]
"""The moves, each with the settings that a JSON does not have yet."""


def _new_json(new: _New) -> str:
    data: dict[str, Any] = {**dict.fromkeys(_FILLED, "auto"), "zero_optimization": {"stage": _STAGE_OF_ACCELERATE}}
    for _, settings in new:
        for name, value in settings.items():
            *above, leaf = name.split(".")
            section: dict[str, Any] = data
            for part in above:
                section = section.setdefault(part, {})
            section[leaf] = value
    return json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def _extended(file: SourceFile, json_file: SourceFile, new: _New) -> str:
    text = json_file.source.text
    for move, settings in new:
        try:
            text = changed(json_file, text, [Put(tuple(name.split(".")), value) for name, value in settings.items()])
        except ValueError as error:
            raise refused(file, move.path, f"it has no place in {json_file.name}: {error}") from None
    return text


def _without_moved(file: SourceFile, text: str, moves: Sequence[_Move]) -> str:
    for move in moves:
        try:
            text = without_key(file, text, move.path, next(iter(move.settings), str(move.path[-1])))
        except ValueError as error:
            raise refused(file, move.path, f"the key cannot be taken out: {error}") from None
    return text


def _pointing(file: SourceFile, pointer: str) -> str:
    """The config's text with the path of a JSON."""
    document = document_of(file, file.source.text)
    value = written(file, pointer) or json.dumps(pointer)
    path = (SECTION, POINTER)
    try:
        if SECTION in file.data() and file.data()[SECTION] is None:
            edits = insert_entry(document, path[:1], POINTER, value)
        else:
            edits = placed(document, path, value)
        return apply_edits(file.source.text, edits)
    except ValueError as error:
        raise refused(file, (SECTION,), f"`{POINTER}` cannot be added here: {error}") from None


def _pointer(run: Run, target: FilePath) -> str:
    """How the config names the JSON: as it does, else relative to where zerocfg, like the job, is started."""
    file = run.accelerate
    assert file is not None
    if run.deepspeed is not None:
        return str(file.data()[SECTION][POINTER])
    return display_name(target)


def _moves(run: Run) -> Iterator[_Move | Row]:
    """Every key of the config that belongs into a JSON; rows of those that have no place there."""
    file = run.accelerate
    assert file is not None
    ignored = {key.path for key in issues(run, "unknown-ignored") if key.file is file}
    known = section()
    for name, value in (file.data().get(SECTION) or {}).items():
        path = (SECTION, str(name))
        key = known.key(str(name))
        if name == POINTER:
            continue
        if key is not None and "conflicts" in key.facts:
            setting = str(key.facts["setting"])
            if "inert" in key.facts and value not in (None, "none"):
                yield _translated(file, path, value)
            elif "inert" not in key.facts and value is not None:
                effective = counted(run, setting, value) if run.deepspeed is None else value
                if effective is UNKNOWN:
                    yield Row(said(path, value), "", "not at all", "its value is not known", place(file, path))
                else:
                    yield _Move(path, value, {setting: effective}, read=True)
            else:
                yield _Move(path, value, {}, read=True)
        elif path in ignored:
            yield _translated(file, path, value)
    if PRECISION in file.data() and file.data()[PRECISION] is not None:
        yield _precision(run, file)


def _translated(file: SourceFile, path: Path, value: object) -> _Move | Row:
    found = translated(str(path[-1]), value, "deepspeed")
    if any(counterpart.path[:-1] in _PARAMETERS and path[-1] not in counterpart.path for counterpart in found.places):
        return Row(said(path, value), "", "not at all", "it is an argument of the Trainer", place(file, path))
    if not found.places or found.lost or not all(counterpart.fits for counterpart in found.places):
        what = ", ".join(f"`{name}`" for name in found.lost) or f"`{path[-1]}`"
        why = f"DeepSpeed has no key {what}" if found.lost or not found.places else "DeepSpeed does not take this value"
        return Row(said(path, value), "", "not at all", why, place(file, path))
    return _Move(
        path,
        value,
        {".".join(counterpart.path): _plain(counterpart.path, counterpart.value) for counterpart in found.places},
        read=False,
    )


def _plain(path: Path, value: object) -> object:
    """A whole number without a fraction where the key counts something: 5e8 is 500000000."""
    key = load_schema("deepspeed").find(tuple(map(str, path)))
    counts = key is not None and any(branch.get("type") == "integer" for branch in key.scalars)
    return int(value) if counts and isinstance(value, float) and value.is_integer() else value


def _precision(run: Run, file: SourceFile) -> _Move | Row:
    """The precision, which accelerate forbids beside a JSON: what its plugin makes of it stands there then."""
    path, value = (PRECISION,), file.data()[PRECISION]
    precision = run.effective.value(PRECISION)
    if precision is UNKNOWN:  # a Trainer whose arguments are not here; they have to say the same, which the row tells
        precision = with_consumer(run, "accelerate").effective.value(PRECISION)
    if precision not in ("no", *PRECISIONS):
        why = "a DeepSpeed JSON has no key for it" if precision == "fp8" else "its value is not known"
        return Row(said(path, value), "", "not at all", why, place(file, path))
    settings: dict[str, object] = {} if precision == "no" else {f"{precision}.enabled": True}
    if precision == "fp16":
        settings["fp16.auto_cast"] = True
    return _Move(path, value, settings, read=True)


def _possible(run: Run, moves: Iterator[_Move | Row], taken: Mapping[str, object]) -> tuple[list[_Move], list[Row]]:
    """The moves that can be made. Of two keys for one setting that counts which accelerate reads; what a JSON says
    already stays."""
    file = run.accelerate
    assert file is not None
    every = list(moves)
    left = [item for item in every if isinstance(item, Row)]
    found: list[_Move] = []
    said_so_far = dict(taken)
    for move in sorted((item for item in every if isinstance(item, _Move)), key=lambda item: not item.read):
        clash = [(name, said_so_far[name]) for name in move.settings if name in said_so_far]
        other = next(((name, value) for name, value in clash if value != move.settings[name]), None)
        if other is not None:
            why = f"`{other[0]}: {shown(other[1])}` is said elsewhere; remove one of the two"
            left.append(Row(said(move.path, move.value), "", "not at all", why, place(file, move.path)))
            continue
        said_so_far |= move.settings
        found.append(move)
    order = {id(item): at for at, item in enumerate(every)}
    return sorted(found, key=lambda item: order[id(item)]), left


def _row(run: Run, move: _Move, taken: Mapping[str, object], found: Mapping[str, Difference]) -> Row:
    """What becomes of a moved key, by the effective settings before and after."""
    file = run.accelerate
    assert file is not None
    names = frozenset(move.settings) | ({PRECISION} if move.path == (PRECISION,) else set())
    new = ", ".join(f"{name}: {word(value)}" for name, value in move.settings.items())
    changes = [difference for name, difference in found.items() if name in names]
    match, why = _judged(run, move, changes)
    if move.settings and move.settings.keys() <= taken.keys():
        why = "; ".join(filter(None, ("the JSON says so already", why)))
    return Row(said(move.path, move.value), new or "(left out)", match, why, place(file, move.path), names)


def _judged(run: Run, move: _Move, changes: Sequence[Difference]) -> tuple[Match, str]:
    before = ", ".join(shown(change.a.value) if change.a is not None else "nothing" for change in changes)
    if not move.read:
        default = f"{before} counted" if changes else "the default is the same"
        return "counts now" if changes else "exactly", f"nobody read it; {default}"
    if move.path != (PRECISION,):
        return ("nearly", f"{before} counted") if changes else ("exactly", "")
    if move.settings and run.consumer != "accelerate":
        precision = next(iter(move.settings)).partition(".")[0]
        return "nearly", f"a Trainer stops unless its arguments have `{precision}: true`, too"
    return "exactly", ""
