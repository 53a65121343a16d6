"""The effective settings: those that differ from the libraries' defaults first, each with its origin."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.compare.lock_table import rows
from zerocfg.compare.values import importance, same
from zerocfg.emit.lock import without_secrets
from zerocfg.page.formatting import cut
from zerocfg.run.model import UNKNOWN
from zerocfg.run.origins import origin_label, place_of

if TYPE_CHECKING:
    from zerocfg.compare.lock_table import Row
    from zerocfg.page.report_input import ReportInput
    from zerocfg.run.model import Setting

WIDEST = 400
"""Characters of a value that are shown."""
_OF_THE_RUN = ("engine", "num_processes", "num_machines", "mixed_precision")
"""Settings that are no key of DeepSpeed."""
_NOT_JSON = {"inf": float("inf"), "-inf": float("-inf"), "nan": float("nan")}


@dataclass(frozen=True, slots=True)
class Shown:
    """``default`` is the library's own value where it is another one; ``inputs`` are what a value follows from."""

    name: str
    value: str
    origin: str
    place: str = ""
    default: str = ""
    inputs: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()


@dataclass(slots=True)
class Group:
    """Settings under one heading. ``closed``: they are looked at when somebody asks for them; ``standard``: all of them
    are as the libraries have them."""

    title: str
    about: str
    rows: list[Shown] = field(default_factory=list)
    closed: bool = False
    standard: bool = False


def settings(report_input: ReportInput) -> list[Group]:
    """Every value of the run, by group. Secrets are left out, as in a lock."""
    groups = {
        "differs": Group("Not the default", "What somebody or something set to another value than the library's own."),
        "written": Group(
            "Written, and the same as the default", "They could be left out; some are said on purpose.", standard=True
        ),
        "changed argument": Group("Arguments that differ from the recipe", "In the copy of the recipe that is built."),
        "accelerate": Group("accelerate.yaml", "What the launcher is given.", closed=True),
        "recipe": Group("Recipe", "Arguments of the trainer, as its author wrote them.", closed=True),
        "run": Group("Run", "What is started, and where.", closed=True),
        "default": Group(
            "Defaults that nobody sets", "What applies because no file says otherwise.", closed=True, standard=True
        ),
    }
    if report_input.lock is not None:
        for row in rows(report_input.lock):
            groups[_group(row)].rows.append(_of_lock(row))
    elif report_input.run is not None:
        for name, setting in report_input.run.effective.settings.items():
            groups[_kind(name, setting.value, setting.origin.kind)].rows.append(_of_run(name, setting))
    for group in groups.values():
        group.rows.sort(key=lambda item: importance(item.name))
    return [group for group in groups.values() if group.rows]


def text(value: object) -> str:
    """A value in full, as long as that is bearable."""
    if value is UNKNOWN:
        return "not known"
    if isinstance(value, (dict, list, tuple)):
        return cut(json.dumps(value, ensure_ascii=False, default=str), WIDEST)
    return cut(show(value), WIDEST)


def _group(row: Row) -> str:
    if row.group != "setting":
        return row.group
    value = _NOT_JSON.get(row.value, row.value) if isinstance(row.value, str) else row.value
    return _kind(row.name, value, row.kind)


def _kind(name: str, value: object, kind: str) -> str:
    if kind == "default":
        return "default"
    default = _default(name)
    return "written" if default is not None and same(default, value) else "differs"


def _default(name: str) -> object:
    """The library's default; None where it has none."""
    return None if name in _OF_THE_RUN else load_schema("deepspeed").default(name)


def _of_lock(row: Row) -> Shown:
    return Shown(
        row.name,
        text(row.value),
        cut(" ".join(row.reason.split()), WIDEST),
        str(row.place or ""),
        _other(row.name, row.value, row.kind) if row.group == "setting" else "",
        tuple(f"{name} = {text(value)}" for name, value in row.inputs.items()),
    )


def _of_run(name: str, setting: Setting) -> Shown:
    value = without_secrets({name: setting.shown})[name]
    replaced = tuple(
        f"{text(without_secrets({name: old.shown})[name])} ({origin_label(old.origin)})"
        for old in setting.overridden
        if old.value != "auto"
    )
    words = origin_label(setting.origin)
    return Shown(
        name,
        text(value),
        words,
        str(place_of(setting.origin) or ""),
        _other(name, value, setting.origin.kind),
        (),
        replaced,
    )


def _other(name: str, value: object, kind: str) -> str:
    default = _default(name)
    if kind == "default" or default is None or isinstance(default, (dict, list)) or same(default, value):
        return ""
    return text(default)
