"""``python -m tools.pythons [3.12 ...] [-- pytest words]``: the tests without training libraries on each Python here.

Needs nothing but the standard library and the locked uv. Exit code 1 when a test fails or no Python is at hand.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.10", "3.11", "3.12", "3.13")
UV = str(Path(sys.executable).with_name("uv"))
TESTS = ("-m", "not libs", "-n", "2", "--dist", "loadgroup")


def everywhere() -> dict[str, str]:
    """An environment in which the commands of pyenv start each Python that pyenv has, not only the chosen one."""
    if shutil.which("pyenv") is None:
        return dict(os.environ)
    listed = subprocess.run(["pyenv", "versions", "--bare"], capture_output=True, text=True, check=True).stdout
    return {**os.environ, "PYENV_VERSION": ":".join(listed.split())}


def at_hand(version: str) -> bool:
    words = [UV, "python", "find", "--no-python-downloads", "--no-project", version]
    return subprocess.run(words, env=everywhere(), capture_output=True).returncode == 0


def prepared(version: str) -> Path:
    """The interpreter of an environment that holds what requirements-test.lock names, and zerocfg."""
    folder = ROOT / ".cache" / "pythons" / version
    python = folder / "bin" / "python"
    if not python.exists():
        words = ["venv", "-q", "--no-python-downloads", "--no-project", "--python", version, str(folder)]
        subprocess.run([UV, *words], env=everywhere(), check=True)
    install = [UV, "pip", "install", "-q", "--python", str(python), "--no-deps"]
    subprocess.run([*install, "--require-hashes", "-r", "requirements-test.lock"], cwd=ROOT, check=True)
    subprocess.run([*install, "--no-build-isolation", "-e", "."], cwd=ROOT, check=True)
    return python


def tested(version: str, words: list[str]) -> bool:
    python = prepared(version)
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    command = [str(python), "-m", "pytest", *TESTS, *words]
    return subprocess.run(command, cwd=ROOT, env={**os.environ, "PATH": path}).returncode == 0


def main(words: list[str]) -> int:
    split = words.index("--") if "--" in words else len(words)
    outcome = {}
    for version in words[:split] or SUPPORTED:
        print(f"== Python {version}", flush=True)
        outcome[version] = tested(version, words[split + 1 :]) if at_hand(version) else None
    for version, passed in outcome.items():
        told = {True: "passed", False: "FAILED", None: "not at hand"}[passed]
        print(f"Python {version}: {told}")
    return 0 if True in outcome.values() and False not in outcome.values() else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
