"""The lockfile: its types, reading and writing. It records the inputs of a build and the provenance of every value."""

from __future__ import annotations

import hashlib
import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES
from zerocfg.emit.lenient_json import items, mapping, number, text, texts
from zerocfg.resolve.plan import Decision, kind_of
from zerocfg.source.load import read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.text import Where
from zerocfg.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME = "zerocfg.lock"
_SECRET = re.compile(r"(^|[._])(token|secret|password|passwd|api_?key|access_key|credentials?)$", re.IGNORECASE)
HUB = "hub:"
"""What the path of a file in the hub's cache starts with."""

VERSION = 2
READABLE = (1, 2)
"""Versions that can be read. 1 names its hardware only, and knows neither places nor inputs of values."""

_WIDTH = 100
"""Columns up to which a list, or an item of one, stays on one line."""


class LockError(ValueError):
    """A lock that cannot be read: the file, the ``problem``, and whether building the run ``again`` mends it."""

    def __init__(self, path: Path, problem: str, *, again: bool = True) -> None:
        super().__init__(f"{path}: {problem}{'; build the run again' if again else ''}")
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Source:
    """A file that the build was made from: its path as seen from the spec's folder (or `HUB` and a model)."""

    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Weighed:
    """A plan that was compared with others, as `zerocfg.resolve.plan.Considered`."""

    settings: dict[str, object]
    verdict: str = ""
    device_gib: float | None = None
    seconds_per_token: float | None = None
    excluded: str = ""

    def data(self) -> dict[str, object]:
        found: dict[str, object] = {"settings": self.settings, "verdict": self.verdict}
        if self.device_gib is not None:
            found["device_gib"] = self.device_gib
        if self.seconds_per_token is not None:
            found["seconds_per_token"] = self.seconds_per_token
        if self.excluded:
            found["excluded"] = self.excluded
        return found


@dataclass(frozen=True, slots=True)
class Choice:
    """How many plans were ``compared``, the one that was taken, and those that came next. 0: there was no choice."""

    compared: int = 0
    taken: Weighed | None = None
    runners_up: tuple[Weighed, ...] = ()

    def data(self) -> dict[str, object]:
        if not self.compared:
            return {}
        return {
            "compared": self.compared,
            "taken": None if self.taken is None else self.taken.data(),
            "runners_up": [item.data() for item in self.runners_up],
        }


@dataclass(frozen=True, slots=True)
class Lock:
    """What a build was made from, and every value with its reason.

    ``spec_folder``: the folder of the spec as seen from the lock's own, None where it is not said. ``hardware``: facts
    by name, in version 1 the "name" alone. ``model_config``: the model's config.json, ``model_facts`` what follows from
    it. ``plan``: the values that the ranks are launched with. ``settings``, ``accelerate``, ``changes``: values of the
    engine, of the accelerate YAML and of arguments that differ from the recipe. ``inputs`` by role; ``files``: SHA-256
    of the emitted ones by name. ``content``: all that stands in the file, for comparisons and hashes of the whole;
    empty of a lock that was not read.
    """

    run: str
    version: int = VERSION
    zerocfg: str = __version__
    spec_folder: str | None = None
    consumer: str | None = None
    script: str | None = None
    arguments: tuple[str, ...] = ()
    launcher: str | None = None
    hosts: tuple[str, ...] = ()
    hardware: dict[str, object] = field(default_factory=dict)
    model_config: dict[str, object] | None = None
    model_facts: dict[str, object] = field(default_factory=dict)
    recipe: dict[str, object] = field(default_factory=dict)
    plan: dict[str, object] = field(default_factory=dict)
    settings: dict[str, Decision] = field(default_factory=dict)
    accelerate: dict[str, Decision] = field(default_factory=dict)
    changes: dict[str, Decision] = field(default_factory=dict)
    considered: Choice = Choice()
    notes: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, Source] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    content: Mapping[str, object] = field(default_factory=dict, compare=False, repr=False)

    @property
    def hardware_name(self) -> str:
        return str(self.hardware.get("name", ""))

    @property
    def parameters(self) -> int | None:
        """Of the model; None where they are not known."""
        count = self.model_facts.get("parameters")
        return count if isinstance(count, int) else None

    def source(self, role: str) -> str:
        """The path of a source file, relative to the spec's folder; empty where there is none."""
        return self.inputs[role].path if role in self.inputs else ""

    def text(self) -> str:
        """``zerocfg.lock``: JSON in the present version."""
        content = {
            "version": VERSION,
            "zerocfg": self.zerocfg,
            "run": self.run,
            "spec_folder": self.spec_folder,
            "consumer": self.consumer,
            "script": self.script,
            "arguments": self.arguments,
            "launcher": self.launcher,
            "hosts": self.hosts,
            "hardware": self.hardware,
            "model": {"config": self.model_config, "facts": self.model_facts},
            "recipe": self.recipe,
            "plan": self.plan,
            "settings": _rows(self.settings),
            "accelerate": _rows(self.accelerate),
            "changes": _rows(self.changes),
            "considered": self.considered.data(),
            "notes": self.notes,
            "versions": self.versions,
            "inputs": {role: {"path": item.path, "sha256": item.sha256} for role, item in self.inputs.items()},
            "files": self.files,
        }
        return _text(_strict(content)) + "\n"


def _rows(decisions: Mapping[str, Decision]) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {}
    for name, decision in decisions.items():
        found[name] = {"value": decision.value, "reason": decision.reason, "kind": decision.kind}
        if decision.place is not None:
            found[name]["place"] = str(decision.place)
        if decision.inputs:
            found[name]["inputs"] = decision.inputs
    return found


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(folder: Path) -> Lock | None:
    """The lock in a folder, or None when there is none that this zerocfg can read."""
    try:
        return load(folder / NAME)
    except LockError:
        return None


def load(path: Path) -> Lock:
    """The lock in a file. Raises LockError for anything else, a lock of a newer zerocfg included."""
    data = read_bytes(path)
    if isinstance(data, Problem):
        raise LockError(path, data.message, again=False)
    return parse(data, path)


def parse(data: bytes, path: Path) -> Lock:
    """The lock in the bytes of a file, which is named in the LockError of what is none."""
    if len(data) > FILE_BYTES:
        raise LockError(path, f"is larger than {FILE_BYTES // 2**20} MiB; no lock is", again=False)
    try:
        content = json.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:
        why = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise LockError(path, f"is no {NAME}: {why}") from None
    found = mapping(content)
    version = found.get("version")
    if not isinstance(version, int) or isinstance(version, bool):
        raise LockError(path, f"is no {NAME}: it has no `version`")
    if version not in READABLE:
        writer = found.get("zerocfg")
        by = f" (zerocfg {writer})" if isinstance(writer, str) else ""
        known = f"this zerocfg {__version__} reads {READABLE[-1]} at most"
        raise LockError(path, f"has version {version}{by}; {known}", again=False)
    for key in ("files", "settings"):
        if not isinstance(found.get(key, {}), dict):
            raise LockError(path, f"`{key}` is no mapping")
    if "files" not in found:
        raise LockError(path, "`files` is missing")
    return of(found, path.parent.name)


def of(content: Mapping[str, object], name: str = "") -> Lock:
    """The lock in a mapping. It may have been edited: what is not of its type is as if it were not there.

    ``name`` of the run, where it says none.
    """
    model, hardware, version = mapping(content.get("model")), content.get("hardware"), content.get("version")
    config = model.get("config")
    return Lock(
        run=text(content.get("run")) or name,
        version=version if isinstance(version, int) else VERSION,
        zerocfg=text(content.get("zerocfg")) or "",
        spec_folder=text(content.get("spec_folder")),
        consumer=text(content.get("consumer")),
        script=text(content.get("script")),
        arguments=texts(content.get("arguments")),
        launcher=text(content.get("launcher")),
        hosts=texts(content.get("hosts")),
        hardware={"name": hardware} if isinstance(hardware, str) else mapping(hardware),
        model_config=config if isinstance(config, dict) else None,
        model_facts=mapping(model.get("facts")),
        recipe=mapping(content.get("recipe")),
        plan=mapping(content.get("plan")),
        settings=_values(content.get("settings")),
        accelerate=_values(content.get("accelerate")),
        changes=_values(content.get("changes")),
        considered=_choice(mapping(content.get("considered"))),
        notes=texts(content.get("notes")),
        versions={key: str(item) for key, item in mapping(content.get("versions")).items()},
        inputs={role: one for role, entry in mapping(content.get("inputs")).items() if (one := _source(entry))},
        files={key: str(item) for key, item in mapping(content.get("files")).items()},
        content=content,
    )


def _values(section: object) -> dict[str, Decision]:
    return {
        name: Decision(
            entry.get("value"),
            str(entry.get("reason", "")),
            kind_of(entry.get("kind")),
            Where.parse(str(entry["place"])) if entry.get("place") else None,
            mapping(entry.get("inputs")),
        )
        for name, entry in mapping(section).items()
        if isinstance(entry, dict)
    }


def _choice(section: dict[str, object]) -> Choice:
    compared = section.get("compared")
    return Choice(
        compared if isinstance(compared, int) else 0,
        _weighed(section.get("taken")),
        tuple(one for entry in items(section.get("runners_up")) if (one := _weighed(entry))),
    )


def _weighed(entry: object) -> Weighed | None:
    row = mapping(entry)
    settings = row.get("settings")
    if not isinstance(settings, dict):
        return None
    verdict, excluded = text(row.get("verdict")) or "", text(row.get("excluded")) or ""
    return Weighed(settings, verdict, number(row.get("device_gib")), number(row.get("seconds_per_token")), excluded)


def _source(entry: object) -> Source | None:
    row = mapping(entry)
    path = row.get("path")
    return Source(path, text(row.get("sha256")) or "") if isinstance(path, str) else None


def without_secrets(found: Mapping[str, object]) -> dict[str, object]:
    """A recipe may hold a hub token or, for TRL, variables with API keys; a lock is made to be shared."""
    return {
        name: "(not recorded)" if _SECRET.search(str(name)) and item else _without(item) for name, item in found.items()
    }


def _without(value: object) -> object:
    if isinstance(value, dict):
        return without_secrets(value)
    return [_without(item) for item in value] if isinstance(value, list) else value


def _strict(value: object) -> object:
    """Strict JSON knows no infinity; DeepSpeed's ``steps_per_print`` may be one."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _strict(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_strict(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)


def _text(value: object, indent: str = "") -> str:
    """Indented JSON in which a mapping has a line for every key, and a list that is short enough stays on one."""
    inner = indent + "  "
    if isinstance(value, dict) and value:
        rows = [f"{inner}{_plain(name)}: {_text(item, inner)}" for name, item in value.items()]
        return "{\n" + ",\n".join(rows) + f"\n{indent}}}"
    if isinstance(value, list) and value:
        line = _plain(value)
        if len(indent) + len(line) <= _WIDTH:
            return line
        rows = [
            line if len(inner + line) <= _WIDTH else _text(item, inner) for item in value for line in [_plain(item)]
        ]
        return "[\n" + ",\n".join(inner + row for row in rows) + f"\n{indent}]"
    return _plain(value)


def _plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
