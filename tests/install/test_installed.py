"""The installed wheel at work where nothing else is: every command, the examples, and what is said without extras."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.cli.test_start import HEAVY
from tests.conftest import ROOT
from tests.install.conftest import Distributions, Environment, call, outside
from zerocfg import __version__
from zerocfg.cli.main import COMMANDS

BIN = Path(sys.executable).parent
BUILT = ["quickstart", "goals", "matrix", "fsdp", "two-nodes-slurm", "deepspeed-loop"]


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the examples, outside of this checkout."""
    folder = tmp_path_factory.mktemp("checkout")
    shutil.copytree(ROOT / "examples", folder / "examples", ignore=shutil.ignore_patterns("runs", "__pycache__"))
    return folder


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help(command: str, installed: Environment, tmp_path: Path) -> None:
    done = installed.zerocfg(command, "--help", cwd=tmp_path)
    assert done.stdout.startswith("Usage: ") and not done.stderr


def test_it_is_a_module_too(installed: Environment, tmp_path: Path) -> None:
    done = call(installed.bin / "python", "-m", "zerocfg", "--version", env=installed.env, cwd=tmp_path)
    assert done.stdout == f"zerocfg {__version__}\n"
    script = "import zerocfg; print(len(zerocfg.lint('.').diagnostics), zerocfg.__file__)"
    done = call(installed.bin / "python", "-c", script, env=installed.env, cwd=tmp_path)
    assert done.stdout.startswith("0 ") and str(installed.root.resolve()) in done.stdout


def test_lint(installed: Environment, checkout: Path) -> None:
    clean = installed.zerocfg("lint", "examples/quickstart", "examples/sft-zero2", cwd=checkout)
    assert clean.stdout.startswith("All checks passed")
    found = installed.zerocfg("lint", "examples/pitfalls", "--output-format", "json", cwd=checkout, code=1)
    assert {"ZC201", "ZC401", "ZC702"} <= {one["code"] for one in json.loads(found.stdout)["diagnostics"]}


@pytest.mark.parametrize("example", BUILT)
def test_build_gives_what_is_committed(example: str, installed: Environment, checkout: Path) -> None:
    """Schemas, hardware catalogue and widths are there: without one of them a value would differ."""
    folder = f"examples/{example}"
    installed.zerocfg("build", folder, "-o", f"{folder}/built", "--check", cwd=checkout)


def test_plan_and_init(installed: Environment, checkout: Path) -> None:
    assert "verdict    fits" in installed.zerocfg("plan", "examples/sft-zero2", cwd=checkout).stdout
    assert "version: 1" in installed.zerocfg("init", "examples/pitfalls", "--print", cwd=checkout).stdout
    assert "ZC103" in installed.zerocfg("rules", cwd=checkout).stdout
    assert installed.zerocfg("schema", "deepspeed", cwd=checkout).stdout.startswith("{")


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("smoke examples/quickstart/built/quickstart --device cpu", "smoke"),
        ("report examples/quickstart/built/quickstart -o report.html", "report"),
        ("lsp", "lsp"),
        ("plan examples/sft-zero2 --picture plan.svg", "pictures"),
    ],
    ids=lambda text: str(text).split()[0],
)
def test_a_missing_extra_is_told_in_a_line(command: str, extra: str, installed: Environment, checkout: Path) -> None:
    done = installed.zerocfg(*command.split(), cwd=checkout, code=2)
    assert f"pip install 'zerocfg[{extra}]'" in done.stderr.replace("\n", " "), done.stderr
    assert "Traceback" not in done.stderr and len(done.stderr.splitlines()) <= 4


def test_lint_loads_nothing_heavy(installed: Environment, tmp_path: Path) -> None:
    """How long it takes is measured by `benchmarks/lint/run.py`."""
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}')
    script = (
        "import sys; sys.argv = ['zerocfg', 'lint']; from zerocfg.cli.main import run; run()\n"
        f"print([name for name in sys.modules if name.split('.')[0] in {HEAVY!r}])"
    )
    done = call(installed.bin / "python", "-c", script, env=installed.env, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_sdist_installs(dist: Distributions, checkout: Path, tmp_path: Path) -> None:
    env, uv = outside(), BIN / "uv"
    call(uv, "venv", "-q", "--python", sys.executable, tmp_path / "venv", env=env, cwd=tmp_path)
    environment = Environment(tmp_path / "venv", frozenset())
    call(uv, "pip", "install", "-q", dist.sdist, env=environment.env, cwd=tmp_path)
    assert environment.zerocfg("--version", cwd=tmp_path).stdout == f"zerocfg {__version__}\n"
    environment.zerocfg("build", "examples/goals", "-o", "examples/goals/built", "--check", cwd=checkout)


def test_pipx_and_uvx_run_it(dist: Distributions, tmp_path: Path) -> None:
    homes = {"PIPX_HOME": str(tmp_path / "pipx"), "PIPX_BIN_DIR": str(tmp_path / "bin")}
    for words in (["uvx", "--from", dist.wheel], ["pipx", "run", "--spec", dist.wheel]):
        program, *rest = words
        done = call(BIN / str(program), *rest, "zerocfg", "--version", env=outside() | homes, cwd=tmp_path)
        assert done.stdout == f"zerocfg {__version__}\n"
