"""A key of a config as rules see it: what is written, where, and the findings and fixes that are about it."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from zerocfg.record import record
from zerocfg.rules.api import Finding, Fix, Location, Severity, at
from zerocfg.rules.effects import accelerate_data, deepspeed_data, recipe_data
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, put, without
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import delete_entry, rename_key, replace_value
from zerocfg.source.node import Path, Scalar


@record(frozen=True, slots=True)
class Key:
    """A key of a file, an effective setting, or a training argument.

    ``value`` as it is written (an effective one as it is read): None where nobody writes it. ``file`` is None where the
    run has no such file, and where a setting comes from somewhere else: a finding then stands at the file that is
    nearest to the engine, and nothing can be fixed. ``word``: the origin where it is no key of a file.
    """

    run: Run
    file: SourceFile | None
    path: Path
    value: Any
    written: bool = True
    word: Origin | None = None

    @property
    def origin(self) -> Origin:
        return self.word or Origin("file", file=self.file, path=self.path)

    # what is written

    @property
    def section(self) -> dict[str, Any]:
        """The mapping that is written here, empty where it is none."""
        return self.value if isinstance(self.value, dict) else {}

    def __getitem__(self, name: str) -> Key:
        section = self.section
        return Key(self.run, self.file, (*self.path, name), section.get(name), name in section)

    def __iter__(self) -> Iterator[Key]:
        """The keys of this section, or the items of a list."""
        items = enumerate(self.value) if isinstance(self.value, list) else self.section.items()
        return (Key(self.run, self.file, (*self.path, name), value) for name, value in items)

    def __contains__(self, name: str) -> bool:
        return name in self.section

    def __bool__(self) -> bool:
        return self.written

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a key of this section."""
        return self.section.get(name, default)

    @property
    def name(self) -> str:
        return str(self.path[-1])

    @property
    def file_name(self) -> str:
        """Its file as messages name it; empty where the run has none."""
        return self.file.name if self.file is not None else ""

    @property
    def raw(self) -> str:
        """A plain value as it stands in the file; empty where it stands in none."""
        document = self.file.document if self.file is not None else None
        node = document.get(self.path) if document is not None else None
        return node.raw if isinstance(node, Scalar) else ""

    @property
    def number(self) -> int | float | None:
        """The value when it is a plain number that a float can hold."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            return None
        return self.value if abs(self.value) < sys.float_info.max else None

    def is_number(self, number: float) -> bool:
        return self.number == number

    @property
    def count(self) -> int | None:
        """The value when it is a whole number, and no boolean."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None

    @property
    def on(self) -> bool:
        """Whether a strict boolean key is switched on."""
        return truth(self.value)

    # findings

    def at(self, where: str = "entry", label: str = "") -> Location:
        """Its place: the "key", the "value", or both."""
        return at(self.origin, label, where) or primary_location(self.run, ())[0]

    def finding(
        self,
        message: str,
        help_text: str = "",
        related: Iterable[Key | Location] = (),
        fix: Fix | None = None,
        *,
        where: str = "entry",
        severity: Severity | None = None,
        versions: str = "",
    ) -> Finding:
        places = [item.at() if isinstance(item, Key) else item for item in related]
        return self._completed(Finding(self.at(where), message, help_text, places, fix, severity, versions=versions))

    def _completed(self, finding: Finding) -> Finding:
        """A finding with what a kind of key adds to all of its own."""
        return finding

    # fixes: None where the file leaves no room for the edit, or the value stands in no file

    def delete(self, why: str, *, safe: bool = True) -> Fix | None:
        return edited(delete_entry, self._file, self.path, why=why, safe=safe)

    def replace(self, text: str, why: str, *, safe: bool = True) -> Fix | None:
        """Another value, ``text`` as it stands in the file, for a key that is there."""
        return edited(replace_value, self._file, self.path, text, why=why, safe=safe)

    def set(self, text: str, why: str, *, safe: bool = True, after: str | None = None) -> Fix | None:
        """As `replace`, and writes the key where it is absent, behind the key ``after`` or last; the section around it
        has to be there."""
        return put(self._file, self.path, text, why=why, safe=safe, after=after) if self.path else None

    def rename(self, new: str, why: str, *, safe: bool = True) -> Fix | None:
        return edited(rename_key, self._file, self.path, new, why=why, safe=safe)

    @property
    def _file(self) -> SourceFile | None:
        return self.file if self.word is None or self.word.kind == "file" else None


def deepspeed(run: Run, *path: str) -> Key:
    """A key of the DeepSpeed config; without a path the whole file."""
    return _in(run, run.deepspeed, deepspeed_data(run), path)


def accelerate(run: Run, *path: str) -> Key:
    """A key of the accelerate config; nothing is written in one that is not of a local machine."""
    return _in(run, run.accelerate, accelerate_data(run), path)


def recipe(run: Run, *path: str) -> Key:
    """A key of the recipe."""
    return _in(run, run.recipe, recipe_data(run), path)


def finding_at(
    run: Run,
    keys: Iterable[Key],
    message: str,
    help_text: str = "",
    fix: Fix | None = None,
    *,
    where: str = "entry",
    severity: Severity | None = None,
) -> Finding:
    """A finding about several keys: at the first that stands in a file, the others are related."""
    location, related = primary_location(run, [key.origin for key in keys], where)
    return Finding(location, message, help_text, related, fix, severity)


def delete_all(keys: Iterable[Key], why: str, *, safe: bool = True) -> Fix | None:
    """A fix that removes several keys of one file, as far as they are written."""
    written = [key for key in keys if key]
    return without(written[0].file, [key.path for key in written], why, safe=safe) if written else None


def _in(run: Run, file: SourceFile | None, data: dict[str, Any], path: tuple[str, ...]) -> Key:
    section: object = data
    for part in path[:-1]:
        section = section.get(part) if isinstance(section, dict) else None
    if not path:
        return Key(run, file, path, data)
    if not isinstance(section, dict) or path[-1] not in section:
        return Key(run, file, path, None, False)
    return Key(run, file, path, section[path[-1]])


def setting(run: Run, name: str) -> Key:
    """An effective setting by its dotted name, where it comes from."""
    found = run.effective.get(name)
    return Key(run, None, (), None, False, NOWHERE) if found is None else from_origin(run, found.origin, found.value)


def trainer_argument(run: Run, name: str) -> Key:
    """A training argument as the Trainer holds it, where it comes from; written where somebody asks for it, and not
    where it is the default, or the script's own."""
    stated = arguments_of(run).setting(name)
    asked = stated.origin.kind not in ("default", "computed")
    return Key(run, stated.origin.file, stated.origin.path, stated.value, asked, stated.origin)


def from_origin(run: Run, origin: Origin, value: Any = None) -> Key:
    """The key, or the word of a launch line, that an origin speaks of."""
    return Key(run, origin.file, origin.path, value, True, origin)


NOWHERE = Origin("computed", "nobody says it")
