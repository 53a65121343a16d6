"""A key of a config as rules see it: its value, its place, and the findings and fixes about it."""

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

    ``value``: as the file has it, or the effective value of a setting; None if it is not set. ``file``: None if the run
    has no such file or the setting comes from elsewhere; a finding is then reported at the file closest to the engine,
    and there is no fix. ``word``: the origin of a setting that is no key of a file.
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

    # the value in the file

    @property
    def section(self) -> dict[str, Any]:
        """The value if it is a mapping, else an empty one."""
        return self.value if isinstance(self.value, dict) else {}

    def __getitem__(self, name: str) -> Key:
        section = self.section
        return Key(self.run, self.file, (*self.path, name), section.get(name), name in section)

    def __iter__(self) -> Iterator[Key]:
        """The keys of a mapping, or the items of a list."""
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
        """The name of its file in messages; empty if the run has no such file."""
        return self.file.name if self.file is not None else ""

    @property
    def raw(self) -> str:
        """The text of a scalar in the file; empty if the value comes from no file."""
        document = self.file.document if self.file is not None else None
        node = document.get(self.path) if document is not None else None
        return node.raw if isinstance(node, Scalar) else ""

    @property
    def number(self) -> int | float | None:
        """The value if it is a finite number and no boolean, else None."""
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)):
            return None
        return self.value if abs(self.value) < sys.float_info.max else None

    def is_number(self, number: float) -> bool:
        return self.number == number

    @property
    def count(self) -> int | None:
        """The value if it is an integer and no boolean, else None."""
        return self.value if isinstance(self.value, int) and not isinstance(self.value, bool) else None

    @property
    def on(self) -> bool:
        """Whether the value counts as true where only booleans are accepted."""
        return truth(self.value)

    # findings

    def at(self, where: str = "entry", label: str = "") -> Location:
        """Its location: ``where`` selects the "key", the "value", or both (the "entry")."""
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
        """The finding; a subclass adds to it what all findings about its keys need."""
        return finding

    # fixes: None if the edit is impossible in this file, or the value comes from no file

    def delete(self, why: str, *, safe: bool = True) -> Fix | None:
        return edited(delete_entry, self._file, self.path, why=why, safe=safe)

    def replace(self, text: str, why: str, *, safe: bool = True) -> Fix | None:
        """Replace the value of a key that the file sets; ``text`` is written as it is."""
        return edited(replace_value, self._file, self.path, text, why=why, safe=safe)

    def set(self, text: str, why: str, *, safe: bool = True, after: str | None = None) -> Fix | None:
        """As `replace`; an absent key is added behind the key ``after``, or last. The section around it must exist."""
        return put(self._file, self.path, text, why=why, safe=safe, after=after) if self.path else None

    def rename(self, new: str, why: str, *, safe: bool = True) -> Fix | None:
        return edited(rename_key, self._file, self.path, new, why=why, safe=safe)

    @property
    def _file(self) -> SourceFile | None:
        return self.file if self.word is None or self.word.kind == "file" else None


def deepspeed(run: Run, *path: str) -> Key:
    """A key of the DeepSpeed config; without a path the whole config."""
    return _in(run, run.deepspeed, deepspeed_data(run), path)


def accelerate(run: Run, *path: str) -> Key:
    """A key of the accelerate config; absent in a config of a service (SageMaker), which no local launch reads."""
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
    """A finding about several keys: located at the first that a file sets, the others as related locations."""
    location, related = primary_location(run, [key.origin for key in keys], where)
    return Finding(location, message, help_text, related, fix, severity)


def delete_all(keys: Iterable[Key], why: str, *, safe: bool = True) -> Fix | None:
    """A fix that removes several keys of one file, as far as the file sets them."""
    written = [key for key in keys if key]
    return without(written[0].file, [key.path for key in written], why, safe=safe) if written else None


def written_deepspeed(run: Run, *path: str) -> Key | None:
    """A key of the DeepSpeed config; None where it is not written, as most keys of most runs."""
    return _written(run, run.deepspeed, deepspeed_data(run), path)


def written_accelerate(run: Run, *path: str) -> Key | None:
    """The same of the accelerate config."""
    return _written(run, run.accelerate, accelerate_data(run), path)


def _in(run: Run, file: SourceFile | None, data: dict[str, Any], path: tuple[str, ...]) -> Key:
    return _written(run, file, data, path) or Key(run, file, path, None, False)


def _written(run: Run, file: SourceFile | None, data: dict[str, Any], path: tuple[str, ...]) -> Key | None:
    value: object = data
    for part in path:
        if not isinstance(value, dict) or part not in value:
            return None
        value = value[part]
    return Key(run, file, path, value)


def setting(run: Run, name: str) -> Key:
    """An effective setting by its dotted name, at its origin."""
    effective = run.effective.get(name)
    if effective is None:
        return Key(run, None, (), None, False, NOWHERE)
    return from_origin(run, effective.origin, effective.value)


def trainer_argument(run: Run, name: str) -> Key:
    """A training argument with the value that the Trainer gets, at its origin. It counts as written unless it is the
    default or computed by the script."""
    argument = arguments_of(run).setting(name)
    written = argument.origin.kind not in ("default", "computed")
    return Key(run, argument.origin.file, argument.origin.path, argument.value, written, argument.origin)


def from_origin(run: Run, origin: Origin, value: Any = None) -> Key:
    """The key of a file, or the word of a launch line, at an origin."""
    return Key(run, origin.file, origin.path, value, True, origin)


NOWHERE = Origin("computed", "nobody says it")
