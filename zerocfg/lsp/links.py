"""From a name in one file to the file that it names."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from zerocfg.linter.engine import real_name
from zerocfg.run.expand import PATHS
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.launch.line import Option, Word
from zerocfg.source.node import Mapping, Scalar
from zerocfg.source.text import Span

_ACCELERATE = ("config_file",)
_DEEPSPEED = ("deepspeed_config_file", "deepspeed", "deepspeed_config")
_RECIPE = ("config",)


@dataclass(frozen=True)
class Link:
    """A stretch of a file's text, and the real path of the file that it names."""

    span: Span
    target: str


def links(runs: Iterable[Run], path: str) -> list[Link]:
    """The links of one file, by its real path, as its runs follow them; in the order of the text."""
    found = {link for run in runs for link in _of_run(run, path)}
    return sorted(found, key=lambda link: link.span)


def _of_run(run: Run, path: str) -> Iterator[Link]:
    if run.launch_file is not None and real_name(run.launch_file) == path:
        yield from _of_line(run)
    if run.accelerate is not None and real_name(run.accelerate) == path:
        yield from _to(run.deepspeed, run.accelerate, ("deepspeed_config", "deepspeed_config_file"))
    if run.recipe is not None and real_name(run.recipe) == path:
        yield from _to(run.deepspeed, run.recipe, ("deepspeed",))
    if run.spec is not None and real_name(run.spec) == path:
        yield from of_spec(run.spec)


def _to(target: SourceFile | None, file: SourceFile, keys: tuple[str, ...]) -> Iterator[Link]:
    node = file.document.get(keys) if file.document is not None else None
    if not isinstance(node, Scalar) or not isinstance(node.value, str) or target is None or target.path is None:
        return
    # The run may have its config from elsewhere: what is written here must be that file's name.
    if Path(node.value).name == target.path.name:
        yield Link(node.span, real_name(target))


def _of_line(run: Run) -> Iterator[Link]:
    line = run.launch
    if line is None:
        return
    for names, target in ((_ACCELERATE, run.accelerate), (_DEEPSPEED, run.deepspeed), (_RECIPE, run.recipe)):
        for option in (*line.options, *line.script_options):
            yield from _word(_value(option, names), target)
    if line.arguments:
        yield from _word(line.arguments[0], run.recipe)
    if line.script is not None and line.script.value and run.launch_file is not None and run.launch_file.path:
        folder = run.launch_file.path.resolve().parent
        for base in (folder / line.directory if line.directory else folder, folder, Path.cwd()):
            if _is_file(base / line.script.value):
                yield Link(line.script.span, str((base / line.script.value).resolve()))
                break


def _value(option: Option, names: tuple[str, ...]) -> Word | None:
    return option.value if option.plain in names else None


def _word(word: Word | None, target: SourceFile | None) -> Iterator[Link]:
    if word is None or not word.value or target is None or target.path is None:
        return
    if Path(word.value).name == target.path.name:
        yield Link(word.span, real_name(target))


def of_spec(file: SourceFile) -> Iterator[Link]:
    """The files that a spec names: its paths are relative to its own folder."""
    root = file.document.root if file.document is not None else None
    if not isinstance(root, Mapping) or file.path is None:
        return
    folder = file.path.resolve().parent
    for group in root.entries:
        if group.key not in ("runs", "bases") or not isinstance(group.value, Mapping):
            continue
        for run in group.value.entries:
            for entry in run.value.entries if isinstance(run.value, Mapping) else ():
                node = entry.value
                if entry.key in PATHS and isinstance(node, Scalar) and isinstance(node.value, str):
                    path = folder / node.value
                    if _is_file(path):
                        yield Link(node.span, str(path.resolve()))


def _is_file(path: Path) -> bool:
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False
