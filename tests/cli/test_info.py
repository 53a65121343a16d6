"""``zerocfg info``: what people paste into an issue."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.cli.test_start import HEAVY
from zerocfg import __version__
from zerocfg.environment import Library, program

Cli = Callable[..., Outcome]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of compiled operators, below a home folder."""
    home = tmp_path / "home"
    folder = home / ".cache" / "torch_extensions"
    (folder / "py311_cu128" / "cpu_adam").mkdir(parents=True)
    (folder / "py311_cu128" / "cpu_adam" / "cpu_adam.so").write_text("")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    return folder


def test_as_text(zerocfg: Cli, cache: Path) -> None:
    seen = zerocfg("info")
    assert seen.code == 0 and seen.err == ""
    assert seen.out.startswith(f"zerocfg       {__version__} in ")
    python = ".".join(map(str, sys.version_info[:3]))
    assert f"\nPython        {python}, " in seen.out
    assert "releases known, 0.10.0 to " in seen.out
    assert "  folder        ~/.cache/torch_extensions\n  compiled      cpu_adam\n  locks         none\n" in seen.out
    assert "no zerocfg.toml or [tool.zerocfg] here or above" in seen.out


def test_the_home_folder_is_not_shown(zerocfg: Cli, cache: Path) -> None:
    (cache / "py311_cu128" / "cpu_adam" / "lock").touch()
    for words in (["info"], ["info", "--output-format", "json"]):
        assert str(cache.parent.parent) not in zerocfg(*words).out


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="only /proc tells who holds a file")
def test_locks(zerocfg: Cli, cache: Path) -> None:
    """One that nobody holds is stale; one that a process holds is not."""
    stale, held = (cache / "py311_cu128" / name / "lock" for name in ("cpu_adam", "fused_adam"))
    held.parent.mkdir()
    stale.touch()
    with held.open("w"):
        found = json.loads(zerocfg("info", "--output-format", "json").out)["operators"]
        text = zerocfg("info").out
    below = "~/.cache/torch_extensions/py311_cu128"
    assert found["compiled"] == ["cpu_adam"]
    assert found["locks"] == [
        {"path": f"{below}/cpu_adam/lock", "stale": True},
        {"path": f"{below}/fused_adam/lock", "stale": False},
    ]
    assert f"{below}/cpu_adam/lock: stale" in text and f"{below}/fused_adam/lock: held" in text


def test_settings_are_named(zerocfg: Cli, cache: Path, tmp_path: Path) -> None:
    (tmp_path / "zerocfg.toml").write_text("")
    assert f"settings      {tmp_path / 'zerocfg.toml'}\n" in zerocfg("info").out


@pytest.mark.parametrize(
    ("installed", "unknown"),
    [("0.19.8", None), ("0.19.8+cu128", None), ("0.15.3", None), ("0.20.0", "newer"), ("0.9.5", "older"), (None, None)],
)
def test_releases_beyond_the_known_ones(installed: str | None, unknown: str | None) -> None:
    assert Library("deepspeed", installed, "0.10.0", "0.19.8", 66).unknown == unknown


def test_a_compiler_that_variables_name(tmp_path: Path) -> None:
    def script(path: Path, text: str) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho '{text}'\n")
        path.chmod(0o755)
        return path

    found = script(tmp_path / "bin" / "c++", "c++ 12.2.0")
    named = script(tmp_path / "own" / "clang++", "clang version 17.0.6")
    toolkit = script(tmp_path / "cuda" / "bin" / "nvcc", "nvcc: a compiler\nCuda compilation tools, release 12.8")
    silent = script(tmp_path / "bin" / "hipcc", "")
    silent.write_text("#!/bin/sh\nexit 3\n")
    path = {"PATH": f"{found.parent}{os.pathsep}/bin"}
    assert program("c++", path).version == "c++ 12.2.0"
    assert program("c++", {**path, "CXX": str(named)}).version == "clang version 17.0.6"
    assert program("nvcc", path).path is None
    there = program("nvcc", {**path, "CUDA_HOME": str(tmp_path / "cuda")})
    assert (there.path, there.version) == (str(toolkit), "Cuda compilation tools, release 12.8")
    assert (program("hipcc", path).path, program("hipcc", path).version) == (str(silent), None)


def test_no_training_library_is_imported() -> None:
    heavy = sorted(set(HEAVY) - {"pydantic"})
    code = "import sys; sys.argv = ['zerocfg', 'info']\nfrom zerocfg.cli.main import run\nrun()\n"
    code += f"print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
