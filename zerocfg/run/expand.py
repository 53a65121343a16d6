"""``extends`` and ``matrix`` of a spec: from what is written to plain runs, before anything else looks at them.

    version: 1
    bases:
      common: {consumer: trl, script: train.py, recipe: recipe.yaml}
    runs:
      sft:
        extends: common
        matrix: {model: [small/config.json, large/config.json], hardware: [8xA100-80GB, 8xH100-80GB]}

A run takes the keys of its bases, of later ones before earlier ones, and its own before all. ``goals``, ``versions``
and ``targets`` are merged key by key, everything else is replaced; null takes away what a base gave. Each way to
combine the values of the axes of ``matrix`` is a run of its own, named RUN-LABEL-LABEL.

Every key of a run remembers where it is written, also in another file, so that messages can show it. Paths in a base
of another file are relative to that file; they are rewritten to be relative to this one.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NoReturn

from zerocfg.budgets import BASES, MATRIX_RUNS, SPEC_RUNS
from zerocfg.catalog.suggest import closest
from zerocfg.record import field, record, replace
from zerocfg.run.hub import CONFIG
from zerocfg.source.load import OUTSIDE
from zerocfg.source.node import Document, Mapping, Node, dotted, plain
from zerocfg.source.node import Path as KeyPath

MERGED = ("goals", "versions", "targets")
PATHS = ("script", "recipe", "accelerate", "deepspeed", "model", "hardware")

Open = Callable[[Path], Document | None]
"""Reads another spec file; None when there is no such file."""


@record(frozen=True, slots=True)
class Written:
    """Where something is written: a key path in a document."""

    document: Document
    path: KeyPath


@record(frozen=True, slots=True)
class Trouble:
    """Something that keeps a run from being expanded. ``at_key``: shown at the key rather than at its value."""

    where: Written
    message: str
    help: str = ""
    at_key: bool = False


@record(slots=True)
class ExpandedRun:
    """A plain run. ``written`` is the name it has under ``runs``; ``bases`` are the names that it extends."""

    name: str
    written: str
    data: dict[str, Any]
    origin: Written
    places: dict[KeyPath, Written] = field(default_factory=dict)
    bases: tuple[str, ...] = ()

    def where(self, path: KeyPath) -> Written:
        """Where a key of this run is written; the run itself for a key that is not written."""
        for length in range(len(path), 0, -1):
            place = self.places.get(path[:length])
            if place is not None:
                return replace(place, path=(*place.path, *path[length:]))
        return self.origin


@record(slots=True)
class Expanded:
    runs: list[ExpandedRun] = field(default_factory=list)
    troubles: list[Trouble] = field(default_factory=list)


def expand(document: Document, folder: Path, open_file: Open) -> Expanded:
    """The plain runs of a spec in ``folder``, and what is wrong with its ``bases``, ``extends`` and ``matrix``.

    Entries of ``runs`` that are no mappings are left out.
    """
    found = Expanded()
    expander = _Expander(document, folder.resolve(), open_file, found.troubles)
    for name, node in _entries(document.get(("runs",))):
        if not isinstance(node, Mapping):
            continue
        for run in expander.runs(name, node):
            if len(found.runs) >= SPEC_RUNS:
                where = Written(document, ("runs", name))
                message = f"the spec stands for more than {SPEC_RUNS} runs"
                found.troubles.append(Trouble(where, message, "Split it into several specs.", at_key=True))
                return found
            found.runs.append(run)
    for name, node in _entries(document.get(("bases",))):
        if isinstance(node, Mapping):
            expander.base(document, name, ())
    _check_clashes(found)
    return found


def _entries(node: Node | None) -> Iterator[tuple[str, Node]]:
    """Names and values of a mapping; of equal names the last one."""
    if isinstance(node, Mapping):
        yield from {entry.key: entry.value for entry in node.entries}.items()


def _check_clashes(found: Expanded) -> None:
    seen: dict[str, ExpandedRun] = {}
    for run in found.runs:
        other = seen.setdefault(run.name, run)
        if other is not run:
            message = f"two runs are named `{run.name}`: of `{other.written}` and of `{run.written}`"
            if other.written == run.written:
                message = f"two runs of the matrix are named `{run.name}`: their values give the same label"
            where = run.origin if run.name != run.written else other.origin
            matrix = replace(where, path=(*where.path, "matrix"))
            where = matrix if where.document.get(matrix.path) is not None else where
            found.troubles.append(
                Trouble(where, message, "Give the values labels: `hardware: {label: value, ...}`.", at_key=True)
            )
            return


@record(frozen=True, slots=True)
class _Value:
    """A key's value; ``parts``: for a merged mapping, where each of its keys is written."""

    value: Any
    place: Written
    parts: dict[str, Written] | None = None


_Values = dict[str, _Value]


class _StoppedError(Exception):
    """The problem has been reported; whatever depends on it is left out."""


class _Expander:
    def __init__(self, document: Document, folder: Path, open_file: Open, troubles: list[Trouble]) -> None:
        self.document = document
        self.folders = {id(document): folder}
        self.folder = folder
        self.open_file = open_file
        self.troubles = troubles
        self.done: dict[tuple[int, str], _Values | None] = {}
        self.others: dict[Path, Document | None] = {}

    def runs(self, name: str, node: Mapping) -> list[ExpandedRun]:
        """The runs that one entry of ``runs`` stands for; none when something about it is wrong."""
        origin = Written(self.document, ("runs", name))
        try:
            values = self._with_bases(self.document, origin.path, node, ())
            matrix = values.pop("matrix", None)
            variants = [("", values)] if matrix is None else self._multiplied(name, values, matrix)
        except _StoppedError:
            return []
        bases = tuple(str(base) for base, _ in self._names(self.document, origin.path, node, reported=True))
        return [_run(name + label, name, variant, origin, bases) for label, variant in variants]

    # -- extends ------------------------------------------------------------------------------------------------

    def base(self, document: Document, name: str, stack: tuple[tuple[int, str], ...]) -> _Values | None:
        """The values of a base with those of its own bases; None after a reported problem."""
        key = (id(document), name)
        if key not in self.done:
            path = ("bases", name)
            node = document.get(path)
            try:
                if not isinstance(node, Mapping):
                    message = f"`{dotted(path)}` is no mapping of a run's keys"
                    self._stop(Written(document, path), message, "Write keys of a run below it, or take it out.")
                self.done[key] = self._with_bases(document, path, node, (*stack, key))
            except _StoppedError:
                self.done[key] = None
        return self.done[key]

    def _with_bases(
        self, document: Document, path: KeyPath, node: Mapping, stack: tuple[tuple[int, str], ...]
    ) -> _Values:
        values: _Values = {}
        for name, where in self._names(document, path, node):
            home, base = self._find(document, name, where)
            if (id(home), base) in stack:
                circle = [entry[1] for entry in stack[stack.index((id(home), base)) :]]
                self._stop(
                    where,
                    f"`extends` runs in a circle: {' -> '.join((*circle, base))}",
                    "Take one of these names out of its `extends`.",
                )
            if len(stack) >= BASES:
                message = f"`extends` leads through more than {BASES} bases"
                self._stop(where, message, "Let a base name several others: `extends: [ONE, OTHER]`.")
            taken = self.base(home, base, stack)
            if taken is None:
                raise _StoppedError
            for key, value in taken.items():
                _take(values, key, value if home is document else self._moved(key, value, home, document))
        for key, child in _entries(node):
            if key != "extends":
                _take(values, key, _Value(plain(child), Written(document, (*path, key))))
        return values

    def _names(
        self, document: Document, path: KeyPath, node: Mapping, *, reported: bool = False
    ) -> list[tuple[str, Written]]:
        """What ``extends`` of a mapping names, each with its place."""
        entry = node.entry("extends")
        if entry is None:
            return []
        where = Written(document, (*path, "extends"))
        value = plain(entry.value)
        if isinstance(value, str) and value:
            return [(value, where)]
        if isinstance(value, list) and value and all(isinstance(name, str) and name for name in value):
            if len(value) <= BASES:
                return [(name, replace(where, path=(*where.path, index))) for index, name in enumerate(value)]
            message = f"`{dotted(where.path)}` names {len(value)} bases, more than {BASES}"
        else:
            message = f"`{dotted(where.path)}` is {_shown(value)}, not the name of a base or a list of such names"
        if not reported:
            self._stop(where, message, "Write `extends: NAME` with a NAME under `bases:`.")
        return []

    def _find(self, document: Document, name: str, where: Written) -> tuple[Document, str]:
        """The document that holds a base, and its name there."""
        file, hash_sign, base = name.rpartition("#")
        home = self._other(document, file, where) if hash_sign else document
        known = dict(_entries(home.get(("bases",))))
        if base in known:
            return home, base
        place = f" in {home.name}" if home is not self.document else ""
        near = closest(base, known)
        if near:
            help = f"Did you mean `{file}{hash_sign}{near}`?"
        elif any(base == run for run, _ in _entries(home.get(("runs",)))):
            help = f"`{base}` is a run; move the keys to share to a base of its own under `bases:`."
        else:
            help = f"There are: {', '.join(list(known)[:20])}." if known else "Bases are written under `bases:`."
        self._stop(where, f"there is no base `{base}`{place}", help)

    def _other(self, document: Document, file: str, where: Written) -> Document:
        path = self._resolved(self.folders[id(document)], file, where)
        if path not in self.others:
            self.others[path] = self.document if self._is_own(path) else self.open_file(path)
        other = self.others[path]
        if other is None:
            self._stop(
                where, f"there is no file {file!r}", "The path counts from the folder of the file that names it."
            )
        fatal = next((problem for problem in other.problems if problem.fatal), None)
        if fatal is not None or not isinstance(other.root, Mapping):
            place = other.source.place(fatal.span.start if fatal else 0)
            reason = fatal.message if fatal else "a spec is a mapping"
            message = f"{file} cannot be used: {other.name}:{place.line}:{place.column}: {reason}"
            outside = fatal is not None and fatal.kind == OUTSIDE
            self._stop(where, message, f"{'Open' if outside else 'Correct'} that file, or take the base into this one.")
        self.folders[id(other)] = path.parent
        return other

    def _is_own(self, path: Path) -> bool:
        return path == self.folder / Path(self.document.name).name

    def _resolved(self, folder: Path, file: str, where: Written) -> Path:
        try:
            return (folder / file).resolve()
        except (OSError, ValueError, RuntimeError):
            self._stop(where, f"{file!r} is no path", "Write `extends: path/to/other.yaml#NAME`.")

    def _moved(self, key: str, value: _Value, home: Document, document: Document) -> _Value:
        """A value of a base in another file: its path counts from here now."""
        text = value.value
        if key not in PATHS or not isinstance(text, str) or not text:
            return value
        there, here = self.folders[id(home)], self.folders[id(document)]
        if there == here or not _is_path(key, text, there):
            return value
        try:
            moved = Path(os.path.relpath(there / text, here)).as_posix()
        except ValueError:  # another drive, or a NUL
            moved = str(there / text)
        return replace(value, value=text if Path(text).is_absolute() else moved)

    # -- matrix -------------------------------------------------------------------------------------------------

    def _multiplied(self, name: str, values: _Values, matrix: _Value) -> list[tuple[str, _Values]]:
        """Every combination of the axes' values, with what is added to the run's name."""
        axes = matrix.value
        example = "Write `matrix: {hardware: [8xA100-80GB, 8xH100-80GB]}`."
        if not isinstance(axes, dict) or not axes:
            self._stop(matrix.place, f"`{dotted(matrix.place.path)}` is {_shown(axes)}, not a mapping of axes", example)
        each: list[list[tuple[str, str, _Value]]] = []
        count = 1
        for axis, given in axes.items():
            where = replace(matrix.place, path=(*matrix.place.path, str(axis)))
            if axis in ("extends", "matrix"):
                self._stop(where, f"`{axis}` cannot be an axis of a matrix", "Name the keys that differ.", at_key=True)
            each.append(self._axis(str(axis), given, where))
            count *= len(each[-1])
            if count > MATRIX_RUNS:
                message = f"the matrix of `{name}` stands for more than {MATRIX_RUNS} runs"
                self._stop(matrix.place, message, "Leave values out, or split it into several runs.", at_key=True)
        found = []
        for chosen in itertools.product(*each):
            one = dict(values)
            for axis, _, value in chosen:
                _take(one, axis, value)
            found.append(("".join(f"-{label}" for _, label, _ in chosen), one))
        return found

    def _axis(self, axis: str, given: Any, where: Written) -> list[tuple[str, str, _Value]]:
        """The values of an axis as (axis, label, value)."""
        if not isinstance(given, (list, dict)) or not given:
            wrong = "has no values" if given in (None, [], {}) else f"is {_shown(given)}"
            message = f"the axis `{axis}` of the matrix {wrong}; it needs a list of values, or values by label"
            self._stop(where, message, f"Write `{axis}: [VALUE, ...]` or `{axis}: {{LABEL: VALUE, ...}}`.")
        found = []
        items: Iterable[tuple[str | int, Any]] = given.items() if isinstance(given, dict) else enumerate(given)
        for index, value in items:
            place = replace(where, path=(*where.path, index))
            label = _fitting(index) if isinstance(index, str) else _label(value)
            if not label:
                self._stop(
                    place,
                    f"nothing in {_shown(value)} can become part of a run's name",
                    f"Give it a label: `{axis}: {{LABEL: VALUE, ...}}`.",
                )
            found.append((axis, label, _Value(value, place)))
        if len({label for _, label, _ in found}) < len(found) and not isinstance(given, dict):
            found = [(axis, _long_label(value.value) or label, value) for axis, label, value in found]
        return found

    def _stop(self, where: Written, message: str, help: str = "", *, at_key: bool = False) -> NoReturn:
        trouble = Trouble(where, message, help, at_key)
        if trouble not in self.troubles:
            self.troubles.append(trouble)
        raise _StoppedError


def _take(values: _Values, key: str, new: _Value) -> None:
    """Put a value over what is there: merged key by key where the key is one of those, replaced otherwise."""
    old = values.get(key)
    if old is not None and new.value is None:
        del values[key]
        return
    if key not in MERGED or not isinstance(new.value, dict):
        values[key] = new
        return
    merged = dict(old.value) if old is not None and isinstance(old.value, dict) else {}
    parts = dict(old.parts or {}) if old is not None and merged else {}
    for name, value in new.value.items():
        if value is None and name in merged:
            del merged[name]
            parts.pop(name, None)
            continue
        merged[name] = value
        parts[name] = (new.parts or {}).get(name) or replace(new.place, path=(*new.place.path, name))
    values[key] = _Value(merged, new.place, parts)


def _run(name: str, written: str, values: _Values, origin: Written, bases: tuple[str, ...]) -> ExpandedRun:
    values = {key: value for key, value in values.items() if value.value is not None}
    places: dict[KeyPath, Written] = {}
    for key, value in values.items():
        places[(key,)] = value.place
        places.update({(key, part): place for part, place in (value.parts or {}).items()})
    return ExpandedRun(name, written, {key: value.value for key, value in values.items()}, origin, places, bases)


def _is_path(key: str, text: str, folder: Path) -> bool:
    """Whether a value is a path rather than the name of a model or of hardware."""
    if key not in ("model", "hardware"):
        return True
    try:
        return text.lower().endswith(".json") or text.startswith(".") or (key == "model" and (folder / text).exists())
    except (OSError, ValueError):
        return False


def _label(value: Any) -> str:
    """The part of a run's name that stands for a value; empty when nothing fits."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return _fitting(str(value))
    if not isinstance(value, str) or len(value) > 1000:
        return ""
    path = Path(value)
    if path.name == CONFIG and path.parent.name:
        return _fitting(path.parent.name)
    return _fitting(path.stem if path.suffix in (".json", ".yaml", ".yml", ".py", ".hjson") else path.name)


def _long_label(value: Any) -> str:
    """All of a path, for values that would share a label otherwise."""
    if not isinstance(value, str):
        return ""
    path = Path(value)
    return _fitting((path.parent if path.name == CONFIG else path.with_suffix("") if path.name else path).as_posix())


def _fitting(text: str) -> str:
    """A text made to fit into the name of a run."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text).strip("-")


def _shown(value: Any) -> str:
    if value is None:
        return "empty"
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}" + ("" if value else " without entries")
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else text[:57] + "..."
