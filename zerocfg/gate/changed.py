"""Which files changed since a branch left its base, as git tells."""

from __future__ import annotations

import subprocess
from pathlib import Path

from zerocfg.gate.model import GateError


def changed_since(base: str, folder: Path) -> set[Path]:
    """The real paths of files that differ from the merge base with ``base``, new files among them.

    Raises GateError where there is no git, no repository or no such base.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    help = "; fetch it (actions/checkout: fetch-depth: 0), or name another with --base"
    start = _git(folder, "merge-base", "--end-of-options", base, "HEAD", help=help).strip()
    names = _git(top, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", start, "--").split("\0")
    names += _git(top, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return {(top / name).resolve() for name in names if name}


def _git(folder: Path, *words: str, help: str = "") -> str:
    shown = " ".join(word for word in words[:4] if word != "--end-of-options")
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, timeout=60)
    except FileNotFoundError:
        raise GateError('require = "changed" asks git what changed, and there is no git here') from None
    except (OSError, subprocess.SubprocessError) as error:
        raise GateError(f"git {shown}: {type(error).__name__}") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no common commit"]
        raise GateError(f"git {shown}: {lines[-1].removeprefix('fatal: ')}{help}")
    return done.stdout.decode(errors="surrogateescape")
