"""What users get: the sdist and the wheel, and an environment that holds nothing but the wheel and what it asks for.

These tests build and install as users do, so they need a package registry; without one they are skipped.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from filelock import FileLock

from tests.conftest import ROOT

_UNREACHABLE = (
    "Failed to establish a new connection",
    "Temporary failure in name resolution",
    "Could not connect",
    "error sending request",
    "ConnectTimeout",
    "Max retries exceeded",
)
SHIPPED = (
    "zerocfg",
    "schemas",
    "docs/rules",
    "pyproject.toml",
    "README.md",
    "LICENSE",
    "CHANGELOG.md",
    ".pre-commit-hooks.yaml",
)
"""What a build needs of the repository, and its hooks."""


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook too
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One worker has them all: they share an environment."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("install"))


def outside() -> dict[str, str]:
    """The environment of a user who knows nothing of this checkout and its virtual environment."""
    left = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "FORCE_COLOR", "NO_COLOR", "CI", "GITHUB_ACTIONS")
    env = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PRE_COMMIT"))}
    for name in left:
        env.pop(name, None)
    own = {str(Path(sys.executable).parent), str(Path(sys.executable).resolve().parent)}
    env["PATH"] = os.pathsep.join(part for part in env["PATH"].split(os.pathsep) if part not in own)
    return env


def call(*words: str | Path, env: dict[str, str], cwd: Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
    """Run to the end; skips the test where a registry is needed and not there."""
    done = subprocess.run(
        [str(word) for word in words], env=env, cwd=cwd, capture_output=True, text=True, timeout=540, encoding="utf-8"
    )
    if code is not None and done.returncode != code:
        if any(sign in done.stdout + done.stderr for sign in _UNREACHABLE):
            pytest.skip(f"no package registry: {(done.stderr or done.stdout).strip().splitlines()[-1]}")
        pytest.fail(f"{words}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done


@dataclass(frozen=True)
class Distributions:
    wheel: Path
    sdist: Path


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of this test run, and the right to fill it: workers of pytest-xdist share what it holds."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "install"
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture(scope="session")
def dist(together: Path) -> Distributions:
    """Both distributions; the wheel is built from the sdist, so that the sdist is complete."""
    source, out = together / "source", together / "dist"
    with FileLock(together / "dist.lock"):
        if not list(out.glob("*.whl")):
            shutil.rmtree(source, ignore_errors=True)
            source.mkdir()
            copy_project(source)
            words = ("build", "--installer", "uv", "--outdir", out, source)
            call(sys.executable, "-m", *words, env=outside(), cwd=together)
    (wheel,), (sdist,) = out.glob("*.whl"), out.glob("*.tar.gz")
    return Distributions(wheel, sdist)


def copy_project(folder: Path) -> None:
    """What a build needs, and nothing that only this checkout has."""
    for name in SHIPPED:
        path = ROOT / name
        if path.is_dir():
            shutil.copytree(path, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(path, folder / name)


@dataclass(frozen=True)
class Environment:
    """A virtual environment. ``bin``: its programs; ``env``: that of a shell in which it is active."""

    root: Path
    packages: frozenset[str]
    """What `pip install zerocfg` brought into it; by normalized name."""

    @property
    def bin(self) -> Path:
        return self.root / ("Scripts" if os.name == "nt" else "bin")

    @property
    def env(self) -> dict[str, str]:
        env = outside()
        return {**env, "VIRTUAL_ENV": str(self.root), "PATH": f"{self.bin}{os.pathsep}{env['PATH']}"}

    def zerocfg(self, *words: str | Path, cwd: Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        return call(self.bin / "zerocfg", *words, env=self.env, cwd=cwd, code=code)


@pytest.fixture(scope="session")
def installed(dist: Distributions, together: Path) -> Environment:
    """An empty environment after `pip install zerocfg`."""
    root, told = together / "venv", together / "packages.txt"
    with FileLock(together / "venv.lock"):
        if not told.is_file():
            # As `python -m venv` makes it, in a tenth of the time.
            call(
                sys.executable,
                "-m",
                "virtualenv",
                "-q",
                "--clear",
                "--no-setuptools",
                root,
                env=outside(),
                cwd=together,
            )
            empty = Environment(root, frozenset())
            before = _packages(empty)
            call(empty.bin / "pip", "install", "zerocfg", env=with_wheel(empty.env, dist), cwd=root)
            told.write_text("\n".join(_packages(empty) - before))
    return Environment(root, frozenset(told.read_text().split()))


def with_wheel(env: dict[str, str], dist: Distributions) -> dict[str, str]:
    """With the wheel where pip looks, as if it were published."""
    links = f"{dist.wheel.parent} {env.get('PIP_FIND_LINKS', '')}".strip()
    return {**env, "PIP_FIND_LINKS": links, "PIP_DISABLE_PIP_VERSION_CHECK": "1"}


def _packages(environment: Environment) -> set[str]:
    listed = call(environment.bin / "pip", "list", "--format=freeze", env=environment.env, cwd=environment.root).stdout
    return {line.partition("==")[0].lower().replace("_", "-").replace(".", "-") for line in listed.splitlines()}
