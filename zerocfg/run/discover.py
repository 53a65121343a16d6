"""Finds the files of a repository that zerocfg can check; all others are skipped without a message."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES, HEAD_BYTES, UNASKED_BYTES
from zerocfg.frontends.registry import markers, programs
from zerocfg.internal_errors import REPORT, Containment
from zerocfg.run.hydra import is_hydra_fragment, is_in_hydra_group
from zerocfg.run.kinds import MARKERS, guess_unread, sniff
from zerocfg.run.model import Kind, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.source import disk
from zerocfg.source.load import OUTSIDE, Format, decode, load_as, outside, read_bytes
from zerocfg.source.node import Document, Problem
from zerocfg.source.paths import is_image
from zerocfg.source.text import SourceText, Span

if TYPE_CHECKING:
    from zerocfg.source.launch.line import LaunchFile, LaunchLine

SCRIPT_SUFFIXES = (".py", ".ipynb")
CONFIG_SUFFIXES = (".json", ".hjson", ".yaml", ".yml")
SPEC_NAMES = ("zerocfg.yaml", "zerocfg.yml")
SHELL_SUFFIXES = (".sh", ".bash", ".slurm", ".sbatch", ".mk")
LAUNCH_SUFFIXES = (*SHELL_SUFFIXES, ".md")
MAKEFILES = ("Makefile", "makefile", "GNUmakefile")
ENVIRONMENT = "pyvenv.cfg"
"""What lies in an environment of Python packages."""
SKIPPED_FOLDERS = frozenset("node_modules site-packages __pycache__ wandb venv env dist build target".split())

_NOT_THERE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP)
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_NOWHERE = Span(0, 0)
_LAUNCHERS = (
    *(b"accelerate", b"deepspeed", b"torchrun", b"torch.distributed"),
    b"--per_device_train_batch_size",
)


_IN_SCRIPTS = (
    *(b"TrainingArguments(", b"Accelerator(", b"DeepSpeedPlugin(", b"FullyShardedDataParallelPlugin("),
    *(b"SFTConfig(", b"DPOConfig(", b"GRPOConfig(", b"KTOConfig(", b"RLOOConfig(", b"RewardConfig("),
    *(b"SFTTrainer(", b"DPOTrainer(", b"GRPOTrainer(", b"KTOTrainer(", b"RLOOTrainer(", b"RewardTrainer("),
    *(b"deepspeed.initialize(", b"DeepSpeedStrategy(", b"zero_optimi", b"_zero_checkpoint("),
    *(b"TrainingArguments):", b"return_remaining_strings=True"),
)
"""What a Python file holds that states a config of its own, converts a checkpoint of DeepSpeed, has a trainer with the
name of one of TRL's, or arguments and parsers of its own; parsing the others would take most of the time."""
_MAY_STATE = (
    *(b"Arguments(", b"Accelerator(", b"Plugin(", b"Strategy(", b"Config(", b"Trainer(", b"deepspeed", b"zero_optimi"),
    *(b"Arguments):", b"remaining_strings"),
)
"""One of these is in each of them; fewer words to look for in files that hold none."""
_STARTS = (b"subprocess.", b"os.system(")
_STARTED = (b'"accelerate"', b"'accelerate'", b'"deepspeed"', b"'deepspeed'", b"torchrun", b"accelerate launch")
"""What one holds that starts a training."""


def is_launch_file(path: Path) -> bool:
    return path.suffix in LAUNCH_SUFFIXES or path.name in MAKEFILES or is_container_file(path)


def is_container_file(path: Path) -> bool:
    """Whether a file is a Dockerfile, with anything after that word in its name, and no script or config about one."""
    return is_image(path.name) and path.suffix not in (*SCRIPT_SUFFIXES, *CONFIG_SUFFIXES)


def walk(
    folder: Path, *, scripts: bool = False, not_entered: Callable[[OSError], None] | None = None
) -> Iterator[Path]:
    """Candidate files below a folder, in a stable order; hidden folders and environments are left out. ``scripts``:
    Python files, too. ``not_entered`` is told of each folder that cannot be listed; all others are walked."""
    wanted = (*CONFIG_SUFFIXES, *LAUNCH_SUFFIXES, *(SCRIPT_SUFFIXES if scripts else ()))
    for inside, name in _below(os.fspath(folder), not_entered):
        # most files of a tree are none of ours: texts are compared before a path is made
        if name.endswith(wanted) or name in MAKEFILES or is_image(name):
            path = _path(inside, name)
            if path.suffix in wanted or path.name in MAKEFILES or is_container_file(path):
                yield path


@lru_cache(maxsize=4096)
def _path(folder: str, name: str) -> Path:
    """Made once: an editor walks the same folders after every edit, and a path knows its text and its parts."""
    return Path(folder, name)


def _below(top: str, not_entered: Callable[[OSError], None] | None) -> Iterator[tuple[str, str]]:
    """Folder and name of each file, those of a folder before those of the folders in it."""
    ahead = [top]
    while ahead:
        folder = ahead.pop()
        try:
            inner, names = disk.names(folder)
        except OSError as error:
            if not_entered is not None:
                not_entered(error)
            continue
        if ENVIRONMENT in names and folder is not top:
            continue
        for name in names:
            yield folder, name
        wanted = (name for name in reversed(inner) if not name.startswith(".") and name not in SKIPPED_FOLDERS)
        ahead += (os.path.join(folder, name) for name in wanted)  # noqa: PTH118


def is_environment(root: str, name: str) -> bool:
    """Whether a folder is an environment of Python packages; one that may not be entered is taken for none."""
    return disk.exists(f"{root}/{name}/{ENVIRONMENT}")


def display_name(path: Path) -> str:
    """The path as messages show it: relative to the current folder where it lies below it, with forward slashes."""
    try:
        return disk.resolved(path).relative_to(Path.cwd()).as_posix()
    except (ValueError, OSError):
        return path.as_posix()


class Files:
    """Every file is read once, whoever asks for it.

    ``overlay`` holds texts, by real path, that stand in for what is on disk (a fix that is being tried, what an editor
    has not saved yet).
    """

    def __init__(self, overlay: Mapping[str, str] | None = None) -> None:
        self._read: dict[str, SourceFile] = {}
        self._others: set[str] = set()
        self._passed_over: dict[str, SourceFile] = {}
        self._overlay = dict(overlay or {})
        self._stamps: dict[str, Stamp] = {}
        self._real: dict[str, str] = {}
        self._opened: dict[str, SourceFile] | None = None

    def with_texts(self, texts: Mapping[str, str]) -> Files:
        """The same files as they were read, except for some, by real path, that hold these texts now."""
        if not texts:
            return self
        files = Files({**self._overlay, **texts})
        files._read = {key: file for key, file in self._read.items() if key not in texts}
        files._others = self._others - set(texts)
        files._passed_over = {key: file for key, file in self._passed_over.items() if key not in texts}
        return files

    def refresh(self, texts: Mapping[str, str]) -> None:
        """Forget every file that is not what it was: changed on disk, or with another text in its place than before.

        ``texts``, by real path, take the place of those given so far. Files that stayed the same are not read again.
        """
        changed = {key for key in (*texts, *self._overlay) if texts.get(key) != self._overlay.get(key)}
        seen = [key for key in self._stamps if key not in texts]
        self._overlay = dict(texts)
        self._real.clear()
        for key in changed.union(key for key in seen if self._stamps[key] != stamp(key)):
            self._read.pop(key, None)
            self._others.discard(key)
            self._passed_over.pop(key, None)
            self._stamps.pop(key, None)

    @property
    def stamped(self) -> Collection[str]:
        """The files, by real path, whose changes on disk `refresh` notices."""
        return self._stamps.keys() - self._overlay.keys()

    @property
    def given(self) -> Collection[str]:
        """The files, by real path, that have a text in the place of what is on disk."""
        return self._overlay.keys()

    @contextmanager
    def opened(self) -> Iterator[dict[str, SourceFile]]:
        """The files that are opened within, by real path."""
        before, within = self._opened, dict[str, SourceFile]()
        self._opened = within
        try:
            yield within
        finally:
            self._opened = before
            if before is not None:
                before.update(within)

    def holds(self, opened: Mapping[str, SourceFile]) -> bool:
        """Whether these files are still what they were when they were opened; if so, they count as opened again."""
        if any(self._read.get(key) is not file for key, file in opened.items()):
            return False
        if self._opened is not None:
            self._opened.update(opened)
        return True

    def has_read(self, path: str) -> bool:
        """Whether a file, by its real path, was read and is on disk: then another text for it changes what it holds,
        and not whether it is there or is one of ours."""
        return path in self._read and disk.is_file(path)

    def open(self, path: Path, text: str | None = None) -> SourceFile:
        """Read one file; ``text`` replaces what is on disk (stdin). Never raises: problems are in the document."""
        return self._open(path, self.real(path), text)

    def _open(self, path: Path, key: str, text: str | None = None, data: bytes | None = None) -> SourceFile:
        """``data``: what the disk holds, where it was read just now."""
        found = self._read.get(key)
        if found is None:
            self._stamps[key] = stamp(key)
            found = self._read[key] = _read_or_why(path, self._overlay.get(key, text), data)
        if self._opened is not None:
            self._opened[key] = found
        return found

    def peek(self, path: Path) -> SourceFile | None:
        """The file when it was met while walking and looks like one of ours, else None. One that does not is none
        after a script has imported it, either: a second lint of the same files is to meet the same."""
        key = self.real(path)
        if key in self._others:
            return None
        if key in self._read or key in self._overlay:
            return self._open(path, key)
        # outputs make a notebook large, and say nothing of its code
        most = UNASKED_BYTES if path.suffix != ".ipynb" else FILE_BYTES
        try:
            size, data = disk.content(key, most, HEAD_BYTES if most == UNASKED_BYTES else FILE_BYTES)
        except (disk.NotAFileError, ValueError):  # ValueError: a NUL in the name
            return None
        except disk.OutsideError as error:  # a link; nothing of what it leads to says whether it is one of ours
            self._pass_over(path, key, outside(error))
            return None
        except OSError as error:
            if error.errno in _NOT_THERE:
                return None
            message = f"cannot be read: {(error.strerror or str(error)).lower()}"
            self._pass_over(path, key, Problem("unreadable", message, _NOWHERE, fatal=True))
            return None
        words = data.replace(b"\0", b"") if data.startswith(_UTF_16) else data
        if path.name not in SPEC_NAMES and not _looks_like_ours(path, words):
            self._others.add(key)
            self._stamps[key] = stamp(key)
            return None
        if size > UNASKED_BYTES and path.suffix not in SCRIPT_SUFFIXES:
            large = UNASKED_BYTES >> 20
            message = f"it is larger than {large} MiB, and neither a launch line nor the command names it"
            self._pass_over(path, key, Problem("too-large", message, _NOWHERE, fatal=True))
            return None
        return self._open(path, key, data=data if size <= most else None)

    def not_entered(self, error: OSError) -> None:
        """A folder that could not be listed while walking: what lies in it was not looked at."""
        path = Path(error.filename)
        if error.errno not in _NOT_THERE:
            message = f"this folder cannot be entered: {(error.strerror or str(error)).lower()}"
            self._pass_over(path, self.real(path), Problem("unreadable", message, _NOWHERE, fatal=True))

    def real(self, path: Path) -> str:
        """The real path of a file, looked up once; so are the folders above, for all that lies in them."""
        name = os.fspath(path)
        known = self._real.get(name)
        if known is None:
            known = self._real[name] = self._followed(name)
        return known

    def _followed(self, name: str) -> str:
        folder, slash, last = name.rpartition("/")  # as `disk` does: os.path.split and join take twice as long
        if last in ("", ".", ".."):
            return disk.real(name)
        folder = folder or slash
        above = self._real.get(folder)
        if above is None:
            above = self._real[folder] = disk.real(folder)
        whole = f"{above}{last}" if above.endswith("/") else f"{above}/{last}"
        return disk.real(whole) if disk.is_link(whole) else whole

    def _pass_over(self, path: Path, key: str, problem: Problem) -> None:
        self._others.add(key)
        self._stamps[key] = stamp(key)
        self._passed_over[key] = _without_text(display_name(path), path, "other", problem)

    def met(self) -> Iterator[SourceFile]:
        """What was read, and what was met while walking and looks like ours but was not read."""
        yield from self._read.values()
        yield from (file for key, file in self._passed_over.items() if key not in self._read)

    def all(self) -> Iterable[SourceFile]:
        return self._read.values()


def _looks_like_ours(path: Path, data: bytes) -> bool:
    """Whether a file holds a word that one of ours has; looking for bytes is much cheaper than parsing."""
    if path.suffix not in SCRIPT_SUFFIXES:
        return any(word in data for word in (_launchers() if is_launch_file(path) else (*MARKERS, *markers())))
    if any(word in data for word in _MAY_STATE) and any(word in data for word in _IN_SCRIPTS):
        return True
    if path.suffix == ".ipynb":
        return any(word in data for word in _launchers())
    return any(word in data for word in _STARTS) and any(word in data for word in _STARTED)


def _launchers() -> tuple[bytes, ...]:
    return (*_LAUNCHERS, *programs().marks)


Stamp = tuple[int, int] | None
"""Time of a file's last change (ns) and its size (bytes); None: it is not there."""


def stamp(path: str) -> Stamp:
    """By which a change of a file on disk is noticed."""
    try:
        about = os.stat(path)  # noqa: PTH116
    except OSError:
        return None
    return about.st_mtime_ns, about.st_size


def _read_or_why(path: Path, text: str | None, data: bytes | None) -> SourceFile:
    bugs = Containment()
    with bugs.of("read this file"):
        return _read(path, text, data)
    problem = Problem("internal", f"{next(iter(bugs.met))}. {REPORT}", _NOWHERE, fatal=True)
    return _without_text(display_name(path), path, "other", problem)


def _read(path: Path, text: str | None, there: bytes | None) -> SourceFile:
    name = display_name(path)
    readable = ""
    if text is None:
        data = there if there is not None else read_bytes(path)
        source = data if isinstance(data, Problem) else decode(name, data)
        readable = "" if isinstance(data, Problem) else data.replace(b"\0", b"").decode("utf-8", "replace")
    else:
        source = SourceText(name, text)
    if isinstance(source, Problem):
        config = source.kind != OUTSIDE and not is_launch_file(path) and path.suffix not in SCRIPT_SUFFIXES
        return _without_text(name, path, guess_unread(readable, name) if config else "other", source)
    if is_launch_file(path):
        return SourceFile(name, "launch", source, None, path)
    if path.suffix in SCRIPT_SUFFIXES:
        return SourceFile(name, "script", source, None, path)
    document = load_as(source, _format(path))
    if document.root is None:
        return SourceFile(name, guess_unread(source.text, name), source, document, path)
    kind = "other" if is_hydra_fragment(source.text) else sniff(document.data(), name)
    if kind in ("recipe", "deepspeed", "accelerate") and _format(path) == "yaml" and is_in_hydra_group(path):
        kind = "other"  # the config is composed of several files, and any of them may change what this one says
    return SourceFile(name, kind, source, document, path)


def _without_text(name: str, path: Path, kind: Kind, problem: Problem) -> SourceFile:
    empty = SourceText(name, "")
    return SourceFile(name, kind, empty, Document(empty, _format(path), None, [problem]), path)


def _format(path: Path) -> Format:
    return "json" if path.suffix in (".json", ".hjson") else "yaml"


@remembered
def launches(file: SourceFile) -> LaunchFile:
    """The launch lines of a launch file or a notebook, and what it writes; read once."""
    from zerocfg.source.launch.files import read_launch_lines

    return read_launch_lines(file.source, programs())


def launch_lines(file: SourceFile) -> Sequence[LaunchLine]:
    return launches(file).lines
