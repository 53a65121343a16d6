"""`make gpu` from a bare copy: five folders, third-party libraries, no zerocfg installed, no git, no network."""

from __future__ import annotations

import json
import os
import shutil
import site
import subprocess
import sys
import venv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("zerocfg", "schemas", "examples", "benchmarks", "docs/rules")
OWN = ("zerocfg", "_editable_impl_zerocfg", "__editable__")
# Run by every Python of the environment: writes down what it opens of this checkout, and connections to elsewhere.
WATCH = """
import os, sys
def watch(event, arguments):
    if event in ("open", "os.listdir", "os.scandir") and arguments and isinstance(arguments[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(os.environ["CHECKOUT"] + "/") and "/.venv/" not in path:
            keep(path)
    elif event == "socket.getaddrinfo" and arguments[0] not in (None, "", "localhost", "127.0.0.1", "::1", "0.0.0.0"):
        if arguments[0] != os.uname().nodename:
            keep("looks up " + str(arguments[0]))
def keep(text):
    log = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, (text + "\\n").encode())
    os.close(log)
sys.addaudithook(watch)
"""


@dataclass(frozen=True)
class Bare:
    """``copy``: the five folders, ``python``: of an environment without packages, ``env``: variables that add the
    libraries, ``seen``: the file of what was read of the checkout."""

    copy: Path
    python: Path
    env: dict[str, str]
    seen: Path

    def run(self, *words: str, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), *words]
        return subprocess.run(command, cwd=cwd or self.copy, env=self.env, capture_output=True, text=True, timeout=900)


@pytest.fixture
def bare(tmp_path: Path) -> Bare:
    copy = tmp_path / "copy"
    for folder in FOLDERS:
        ignored = shutil.ignore_patterns("__pycache__", "runs")
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    libraries = tmp_path / "site"
    libraries.mkdir()
    for folder in site.getsitepackages():
        for entry in Path(folder).iterdir():
            if not entry.name.startswith(OWN) and entry.suffix != ".pth" and not (libraries / entry.name).exists():
                (libraries / entry.name).symlink_to(entry)
    (libraries / "sitecustomize.py").write_text(WATCH)
    venv.create(tmp_path / "python", with_pip=False, symlinks=True)
    programs = tmp_path / "python" / "bin"
    env = {
        "PATH": os.pathsep.join([str(programs), "/usr/bin", "/bin"]),
        "PYTHONPATH": str(libraries),
        "HOME": str(tmp_path),
        "OMP_NUM_THREADS": "1",
        "CHECKOUT": str(ROOT),
        "SEEN": str(tmp_path / "seen.txt"),
    }
    return Bare(copy, programs / "python", env, tmp_path / "seen.txt")


@pytest.mark.libs
def test_checks_run_from_a_bare_copy(bare: Bare, tmp_path: Path) -> None:
    """Contract, two tiny runs side by side, the host's cost, and a budget that leaves nothing for the rest."""
    pytest.importorskip("deepspeed")
    assert bare.run("-c", "import zerocfg", cwd=tmp_path).returncode == 1, "zerocfg is not installed"
    where = bare.run("-c", f"import zerocfg; print(zerocfg.__file__); open('{ROOT}/LICENSE')")
    assert where.stdout.strip() == str(bare.copy / "zerocfg" / "__init__.py")
    assert bare.seen.read_text().splitlines() == [str(ROOT / "LICENSE")], "the watch sees who reads the checkout"
    bare.seen.unlink()

    out = tmp_path / "out"
    names = ["contract", "tiny-zero2", "tiny-ddp", "host-cost"]
    done = bare.run("benchmarks/gpu/run.py", *names, "--tiny", "--budget-s", "800", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    results: dict[str, dict[str, Any]] = {name: json.loads((out / f"{name}.json").read_text()) for name in names}
    assert {result["state"] for result in results.values()} == {"passed"}, results
    assert all(results[name]["certificate"]["passed"] for name in names[:3])
    assert results["host-cost"]["ran"] == 6 and results["host-cost"]["launches"]["microseconds"]["launch"] > 0
    assert not bare.seen.exists(), bare.seen.read_text()

    again = bare.run("benchmarks/gpu/run.py", *names, "probe", "--tiny", "--budget-s", "20", "--out", str(out))
    assert again.returncode == 3
    assert [line.split(" on ")[0] for line in again.stdout.splitlines()[:4]] == [f"{name}: passed" for name in names]
    assert again.stdout.splitlines()[4:] == ["probe: not started: less than 20 s are left"]


def test_the_readme_names_these_folders() -> None:
    text = (ROOT / "benchmarks" / "gpu" / "README.md").read_text(encoding="utf-8")
    assert f"tar cf gpu.tar {' '.join(FOLDERS)} wheels" in text


def test_python_of_this_test_has_zerocfg() -> None:
    """Else the test above would show nothing: the environment of the tests finds zerocfg, the bare one does not."""
    done = subprocess.run([sys.executable, "-c", "import zerocfg"], cwd="/", capture_output=True)
    assert done.returncode == 0
