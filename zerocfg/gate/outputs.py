"""Which specs a folder holds, and where their builds are."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.emit import lock as lockfile
from zerocfg.gate.model import Reason
from zerocfg.run.discover import SPEC_NAMES, display_name, is_environment
from zerocfg.source import disk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zerocfg.gate.policy import Policy

# Unlike for lint, "build", "dist" and "target" count: a build may have been written there.
_SKIPPED = frozenset("node_modules site-packages __pycache__ wandb venv env".split())


def find(folder: Path, policy: Policy, excluded: Callable[[Path], bool]) -> tuple[dict[Path, list[Path]], list[Reason]]:
    """The output folders by spec, as real paths, and problems with the lockfiles found there.

    Where the policy does not name a spec, the lockfiles below ``folder`` say what they were built from.
    """
    real = folder.resolve()
    named = {spec.resolve(): [out.resolve() for out in outs] for spec, outs in policy.outputs}
    found: dict[Path, list[Path]] = {
        spec: list(outs) for spec, outs in named.items() if spec.is_relative_to(real) and not excluded(spec)
    }
    reasons: list[Reason] = []
    locks: list[Path] = []
    for path in _walk(real):
        if path.name == lockfile.NAME:
            locks.append(path)
        elif not excluded(path):
            found.setdefault(path, [])
    for path in locks:
        if excluded(path):
            continue
        out = path.parent.parent
        if any(out in outs for outs in named.values()):
            continue
        spec = _spec_of(path, reasons)
        if spec is None:
            continue
        if not spec.is_relative_to(real) or excluded(spec):
            continue
        if not spec.is_file():
            message = f"it was built from {display_name(spec)}, which does not exist"
            help = "delete the folder, or correct `spec_folder` by building again"
            reasons.append(Reason("build", "lock-without-spec", display_name(path), message, help))
        elif spec not in named and out not in found.setdefault(spec, []):
            found[spec].append(out)
    return found, reasons


def _walk(folder: Path) -> Iterator[Path]:
    """Specs and locks below a folder, in a stable order."""
    for root, names in disk.tree(folder, _is_entered):
        for name in (*SPEC_NAMES, lockfile.NAME):
            if name in names:
                yield Path(root) / name


def _is_entered(folder: str, name: str) -> bool:
    return not name.startswith(".") and name not in _SKIPPED and not is_environment(folder, name)


def _spec_of(path: Path, reasons: list[Reason]) -> Path | None:
    try:
        lock = lockfile.load(path)
    except lockfile.LockError as error:
        reasons.append(unreadable(path, error))
        return None
    start, name = lock.spec_folder, lock.source("spec")
    if start is None or not name:
        message = "it does not say which spec it was built from"
        reasons.append(Reason("build", "lock-without-spec", display_name(path), message, "build the run again"))
        return None
    try:
        return (path.parent / start / name).resolve()
    except (OSError, ValueError):  # a NUL in the name
        message = "`spec_folder` is not a path"
        reasons.append(Reason("build", "lock-without-spec", display_name(path), message, "build the run again"))
        return None


def unreadable(path: Path, error: lockfile.LockError) -> Reason:
    """A lockfile that cannot be read."""
    return Reason("build", "lock-unreadable", display_name(path), error.problem, "build the run again")
