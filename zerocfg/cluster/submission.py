"""What was submitted and not gathered yet: a folder below the current one each, by which another process goes on."""

from __future__ import annotations

import contextlib
import datetime
import json
import secrets
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import FILE_BYTES
from zerocfg.cluster.job import ClusterError
from zerocfg.source import disk

if TYPE_CHECKING:
    from collections.abc import Iterator

FOLDER = Path(".zerocfg") / "jobs"
NAME = "submission.json"
VERSION = 1


@dataclass(frozen=True)
class Submission:
    """``identity`` as the ``engine`` knows the job; ``tasks``: what each is about, as the command that submitted it
    needs it to go on; ``folder`` holds this record and the engine's files."""

    engine: str
    identity: str
    tasks: tuple[dict[str, str], ...]
    options: dict[str, object]
    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    def write(self) -> None:
        data = {"version": VERSION, **asdict(self)}
        del data["folder"]
        (self.folder / NAME).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")

    def remove(self) -> None:
        """All was gathered: nobody needs the folder any more."""
        discard(self.folder)


def new_folder() -> Path:
    """An empty folder for a submission; git does not see it. Raises ClusterError."""
    now = datetime.datetime.now().strftime("%Y%m%d-%H%M%S")
    folder = Path.cwd() / FOLDER / f"{now}-{secrets.token_hex(2)}"
    try:
        folder.mkdir(parents=True)
        ignored = folder.parent.parent / ".gitignore"
        if not ignored.exists():
            ignored.write_text("*\n")
    except OSError as error:
        raise ClusterError(f"cannot create {folder}: {error.strerror or error}") from None
    return folder


def discard(folder: Path) -> None:
    """Remove the folder of a submission."""
    shutil.rmtree(folder, ignore_errors=True)


def find(name: str) -> Submission:
    """The submission of this name, or the newest one where it is empty. Raises ClusterError."""
    folders = [submission.folder for submission in _waiting()]
    if not folders:
        raise ClusterError(f"no job that was submitted from {Path.cwd()} waits to be gathered")
    found = [folder for folder in folders if folder.name == name] if name else folders[-1:]
    if not found:
        known = ", ".join(folder.name for folder in folders[-5:])
        raise ClusterError(f"there is no job '{name}' here; those that wait to be gathered: {known}")
    return read(found[0])


def _waiting() -> Iterator[Submission]:
    """Those that were not gathered, the oldest first; what cannot be read is passed over."""
    for path in sorted((Path.cwd() / FOLDER).glob(f"*/{NAME}")):
        with contextlib.suppress(ClusterError):
            found = read(path.parent)
            if not found.options.get("gathered"):
                yield found


def read(folder: Path) -> Submission:
    """The submission in a folder. Raises ClusterError for anything else."""
    path = folder / NAME
    try:
        data = json.loads(disk.whole(path, FILE_BYTES).decode("utf-8"))
        if data["version"] != VERSION:
            raise ClusterError(f"{path} has version {data['version']!r}; this zerocfg reads version {VERSION}")
        return Submission(
            str(data["engine"]),
            str(data["identity"]),
            tuple({str(key): str(value) for key, value in task.items()} for task in data["tasks"]),
            dict(data["options"]),
            folder,
        )
    except OSError as error:
        raise ClusterError(f"{path} cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError):
        raise ClusterError(f"{path} is not the record of a submitted job") from None
