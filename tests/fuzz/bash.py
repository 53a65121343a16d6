"""What bash makes of a script: the words that each program gets, by stubs in the place of the programs."""

from __future__ import annotations

import subprocess
import tempfile
from collections import Counter
from pathlib import Path

PROGRAMS = "accelerate deepspeed torchrun python python3 srun nohup env tee".split()
_STUB = "{name}() {{ printf '%s\\0' {name} \"$@\" $'\\1' >> \"$ZEROCFG_TRACE/$BASHPID\"; }}\n"
"""A file for each process: bash writes words with a line break in several pieces, and other processes in between."""
_END = "\1"
VALUES = {"NAME": "n  v", "GLOB": "no*ne"}
"""Of variables that scripts use and never assign."""

Call = tuple[str, ...]
"""A program and the words that it was given."""


def parses(script: str) -> bool:
    """Whether bash accepts the syntax of a script."""
    with tempfile.NamedTemporaryFile("w", suffix=".sh", encoding="utf-8", newline="") as file:
        file.write(script)
        file.flush()
        done = subprocess.run(["bash", "-n", file.name], capture_output=True)
    return done.returncode == 0 and not done.stderr


def calls(script: str) -> Counter[Call]:
    """The programs that a script starts, with their words; in no order, because some run at the same time."""
    with tempfile.TemporaryDirectory(prefix="zerocfg-bash-") as folder:
        home, trace = Path(folder), Path(folder) / "trace"
        (home / "work").mkdir()
        trace.mkdir()
        (home / "stubs").write_text("".join(_STUB.format(name=name) for name in PROGRAMS))
        (home / "script.sh").write_text(script, encoding="utf-8", newline="")
        variables = {"PATH": "/usr/bin:/bin", "BASH_ENV": str(home / "stubs"), "ZEROCFG_TRACE": str(trace)}
        subprocess.run(
            ["bash", str(home / "script.sh"), "first arg", "second"],
            cwd=home / "work",
            env={**variables, **VALUES},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=20,
        )
        traced = [each.read_text(encoding="utf-8", errors="surrogateescape") for each in trace.iterdir()]
    found: Counter[Call] = Counter()
    call: list[str] = []
    for word in "".join(traced).split("\0"):
        if word == _END:
            found[tuple(call)] += 1
            call = []
        else:
            call.append(word)
    return found
