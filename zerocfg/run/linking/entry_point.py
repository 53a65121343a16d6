"""The entry point of a launch line: the file of the repository that it starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path, PurePosixPath

from zerocfg.source import disk
from zerocfg.source.launch.line import LaunchLine


def find_entry_point(line: LaunchLine, bases: Iterable[Path]) -> tuple[Path, Path] | None:
    """The script or module of a launch line, and the first of the folders that holds it; None where none does.

    A path of the machine that runs the line (`/home/me/project/train.py`) means the file here that ends in the most of
    its names."""
    names = script_names(line)
    if not names or not names[0].startswith(("/", "~")):
        return _first(names, bases)
    folders, parts = list(bases), PurePosixPath(names[0]).parts[1:]
    shorter = ("/".join(parts[at:]) for at in range(len(parts)))
    return next(filter(None, (_first([name], folders) for name in (names[0], *shorter))), None)


def same_folder_here(line: LaunchLine, bases: Sequence[Path]) -> Path | None:
    """The folder of the repository that a line means by one of the machine that runs it (`cd /home/me/project/sub`):
    the one that ends in the most of its names and holds the script. None where none does, or that folder is here."""
    if not line.directory or disk.is_dir(Path(line.directory)):
        return None
    names = PurePosixPath(line.directory).parts[1:]
    below = (base.joinpath(*names[at:]) for at in range(len(names)) for base in bases)
    return next((folder for folder in below if _first(script_names(line), [folder]) is not None), None)


def starts_elsewhere(line: LaunchLine) -> bool:
    """Whether a line of which no script is found changes into a folder and starts a file of it: it is not here."""
    names = script_names(line)
    return bool(line.directory) and bool(names) and not names[0].startswith(("/", "~"))


def script_names(line: LaunchLine) -> list[str]:
    """The paths that the script or module of a launch line may have, from the folder that it is started in; none where
    the line does not tell it."""
    name = line.script.value if line.script is not None else None
    if not name or "\n" in name:
        return []
    stem = name.replace(".", "/")
    return [f"{stem}.py", f"{stem}/__main__.py"] if line.module else [name]


def handed_script(line: LaunchLine) -> str | None:
    """The script that plain `python` gives to a program, which may start it: `python spawn.py --world_size 8 train.py`;
    it may as well be a config in Python."""
    words = (word.value for word in line.arguments) if line.launcher == "python" else ()
    return next((word for word in words if word is not None and word.endswith(".py")), None)


def find_handed_script(line: LaunchLine, bases: Iterable[Path]) -> Path | None:
    """The path of that script, where it exists."""
    name = handed_script(line)
    found = _first([name], bases) if name is not None and "\n" not in name else None
    return found[0] if found is not None else None


def _first(names: Iterable[str], bases: Iterable[Path]) -> tuple[Path, Path] | None:
    for base in bases:
        for name in names:
            try:
                path = base / name
                if disk.is_file(path):
                    return path, base
            except (OSError, ValueError):
                continue
    return None
