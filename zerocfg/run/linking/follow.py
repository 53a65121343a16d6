"""Following the paths by which launch lines, specs and configs point at each other.

A path in a config is relative to wherever the job is started, which no file states. It is looked for below the
``cd`` of the launch line, the folder zerocfg was started in, and the folders from the pointing file upwards; the first
that exists is taken, and one that is nowhere is noted in ``Run.missing``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from zerocfg.frontends.registry import recognise, ships_config
from zerocfg.record import replace
from zerocfg.run.discover import Files, display_name
from zerocfg.run.kinds import named_recipe
from zerocfg.run.lowered import with_front_end
from zerocfg.run.model import Consumer, MisplacedFile, Origin, Route, Run, Setting, SourceFile
from zerocfg.run.reader import TRL_KEYS
from zerocfg.run.templates import CODE
from zerocfg.source import disk
from zerocfg.source.load import load_as

if TYPE_CHECKING:
    from zerocfg.source.launch.line import LaunchLine

Find = Callable[[str], SourceFile | None]
"""Gives what a path stands for."""


def _nothing(path: str) -> SourceFile | None:
    return None


class Paths:
    """What paths lead to, below ``root`` and around the files that name them. Every run it gives is a new one."""

    def __init__(self, files: Files, root: Path) -> None:
        self.files = files
        self.root = root
        self.rereads: dict[int, SourceFile] = {}
        self.bases_of: dict[str, list[Path]] = {}
        """By the folder of a file."""
        self.written: Find = _nothing
        self.shown: Find = _nothing

    def after(self, written: Find, shown: Find | None = None) -> Paths:
        """The same where a script has written some files by itself, whatever lies on the disk, or a page shows some,
        which count where none lies there."""
        paths = Paths(self.files, self.root)
        paths.rereads, paths.bases_of = self.rereads, self.bases_of
        paths.written, paths.shown = written, shown or _nothing
        return paths

    def with_accelerate(self, run: Run, file: SourceFile, bases: list[Path]) -> Run:
        run = run if run.accelerate is file else replace(run, accelerate=file)
        section = get(file, "deepspeed_config")
        value = section.get("deepspeed_config_file") if isinstance(section, dict) else None
        if isinstance(value, (str, int, float)) and value != "none":
            place = Origin("file", file=file, path=("deepspeed_config", "deepspeed_config_file"))
            return self.with_deepspeed(run, Setting(str(value), place), bases + self.around(file), "accelerate")
        return run

    def with_recipe(self, run: Run, file: SourceFile, bases: list[Path]) -> Run:
        run = replace(run, recipe=file)
        value = get(file, "deepspeed")
        if isinstance(value, str) and value.endswith((".json", ".hjson", ".yaml", ".yml")):
            place = Origin("file", file=file, path=("deepspeed",))
            return self.with_deepspeed(run, Setting(value, place), bases + self.around(file), "trainer")
        return run

    def with_deepspeed(self, run: Run, setting: Setting | None, bases: list[Path], route: Route) -> Run:
        run, file = self.followed(run, setting, bases)
        if file is None or setting is None:
            return run
        if file.kind in ("accelerate", "recipe", "neighbour"):
            return with_misplaced(run, file, "deepspeed", setting.origin)
        return replace(run, deepspeed=self.as_json(file), deepspeed_route=route)

    def bases(self, file: SourceFile, line: LaunchLine) -> list[Path]:
        around = self.around(file)
        if not line.directory:
            return around
        if line.directory.startswith("/"):
            from zerocfg.run.linking.entry_point import same_folder_here

            here = same_folder_here(line, around)
            return [Path(line.directory), *([here] if here is not None else []), *around]
        return [base / line.directory for base in around] + around

    def around(self, file: SourceFile) -> list[Path]:
        if file.path is None:
            return [self.root]
        folder = os.path.dirname(self.files.real(file.path))  # noqa: PTH120
        if folder not in self.bases_of:  # of many files in one folder only the first makes paths
            self.bases_of[folder] = self._around(Path(folder))
        return list(self.bases_of[folder])

    def _around(self, folder: Path) -> list[Path]:
        if folder.is_relative_to(self.root):
            return [self.root, folder, *(above for above in folder.parents if above.is_relative_to(self.root))]
        return [self.root, folder, *list(folder.parents)[:4]]

    def followed(self, run: Run, setting: Setting | None, bases: list[Path]) -> tuple[Run, SourceFile | None]:
        """The file that a setting names; the run lacks one that is nowhere."""
        file = self.find(setting, bases)
        if (
            file is not None
            or setting is None
            or not _is_path(setting.value)
            or ships_config(run.consumer, setting.value)
        ):
            return run, file
        if any(_is_folder(base, setting.value) for base in bases):
            run = with_missing(run, setting)
            return replace(run, folders=(*run.folders, run.missing[-1])), None
        return self.lacking(run, setting), None

    def lacking(self, run: Run, setting: Setting) -> Run:
        """The run without a file that is nowhere; noted unless it may be there when the job starts."""
        from zerocfg.run.linking.missing_files import created_before_launch  # few lines name a file that is not there

        if created_before_launch(run, setting.value):
            return run
        value: str = setting.value
        return with_missing(
            run, replace(setting, value=display_name(Path(value))) if value.startswith("/") else setting
        )

    def find(self, setting: Setting | None, bases: list[Path]) -> SourceFile | None:
        if setting is None or not _is_path(setting.value):
            return None
        made = self.written(setting.value)
        if made is not None:
            return made
        for base in bases:
            try:
                path = os.path.join(base, setting.value)  # noqa: PTH118 - most lead nowhere
                if disk.is_file(path):
                    return self.files.open(Path(path))
            except (OSError, ValueError):
                continue
        return self.shown(setting.value)

    def as_recipe(self, file: SourceFile, *, whole: bool = False) -> SourceFile | None:
        """The file as a recipe, where it is one or where being named in a recipe's place is enough to tell.

        ``whole``: other programs read a file from this place, too, so nothing else may stand in it.
        """
        known = file.kind == "other" and named_recipe(file.data(), TRL_KEYS, 1.0 if whole else 0.5)
        if not known:
            return file if file.kind == "recipe" else None
        again = self.rereads.get(id(file))
        if again is None:
            again = SourceFile(file.name, "recipe", file.source, file.document, file.path, file)
            self.rereads[id(file)] = again
        return again

    def as_json(self, file: SourceFile) -> SourceFile:
        """A DeepSpeed config is read as JSON whatever its file extension."""
        if file.document is None or file.document.format == "json" or not file.document.editable:
            return file
        if not file.source.text and file.document.root is None:
            return file  # it could not be read, or must not be
        again = self.rereads.get(id(file))
        if again is None:
            again = SourceFile(file.name, "deepspeed", file.source, load_as(file.source, "json"), file.path, file)
            self.rereads[id(file)] = again
        return again


def with_framework_recipe(run: Run, starts: Consumer | None, recipe: SourceFile) -> Run:
    """The run with a recipe of a framework, recognised by its program (``starts``) or else by the recipe's keys."""
    data = recipe.data()
    consumer = starts or (recognise(data) if isinstance(data, dict) else None)
    if consumer is None:
        return run
    return replace(with_front_end(run, consumer, recipe), own_framework=_holds_package(recipe, consumer))


def _holds_package(recipe: SourceFile, framework: Consumer) -> bool:
    """Whether a folder above a recipe holds the source of its framework: a checkout, or a fork with keys of its own."""
    above = disk.resolved(recipe.path).parents[:6] if recipe.path is not None else ()
    return any(disk.is_dir(folder / "src" / framework) for folder in above)


def _is_folder(base: Path, value: str) -> bool:
    try:
        return disk.is_dir(base / value)
    except (OSError, ValueError):
        return False


def _is_path(value: object) -> bool:
    """Whether a value may name a file; an inline config does not, nor does an unknown value."""
    return (
        isinstance(value, str)
        and bool(value)
        and "\n" not in value
        and CODE not in value
        and not value.lstrip().startswith("{")
    )


def with_misplaced(run: Run, file: SourceFile, wanted: Literal["accelerate", "deepspeed"], named: Origin) -> Run:
    return replace(run, misplaced=(*run.misplaced, MisplacedFile(file, wanted, named)))


def with_missing(run: Run, setting: Setting) -> Run:
    return replace(run, missing=(*run.missing, replace(setting.origin, note=setting.value)))


def get(file: SourceFile, key: str) -> Any:
    data = file.data()
    return data.get(key) if isinstance(data, dict) else None
