"""A repository as a user has it: the quickstart example with its build, a certificate and a policy."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.conftest import ROOT
from zerocfg.cli.main import cli
from zerocfg.emit import lock as lockfile
from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.model import certificate

PYPROJECT = """\
[project]
name = "training"
version = "1"

[tool.zerocfg.gate]
outputs = { "zerocfg.yaml" = "built" }
max-age-days = 90
policies = ["policy.schema.json"]
"""
POLICY = {
    "properties": {
        "zero_optimization": {"properties": {"stage": {"enum": [2, 3], "description": "Below 2 nothing fits"}}},
        "gradient_clipping": {"maximum": 1},
        "bf16.enabled": {"const": True},
    },
    "required": ["gradient_clipping"],
}
VERDICT: dict[str, Any] = {
    "version": certificate.VERSION,
    "run": "quickstart",
    "passed": True,
    "device": {"kind": "cpu", "name": "cpu"},
    "ranks": 2,
    "reductions": ["sequence length: 32 tokens of one batch that repeats"],
    "checks": [
        {"name": "engine", "planned": "deepspeed", "seen": "deepspeed", "ok": True},
        {"name": "ZeRO stage", "planned": "3", "seen": "3", "ok": True},
        {"name": "world size", "planned": "2", "seen": "2", "ok": True},
        {"name": "optimizer steps, loss finite", "planned": "3", "seen": "3; loss 4.9 to 4.7", "ok": True},
    ],
    "failure": None,
    "measured": {"losses": [4.9, 4.8, 4.7]},
}
"""What `zerocfg.smoke.smoke.data` gives for a smoke-run that passed."""
VERSIONS = {
    "python": "3.11.7",
    "torch": "2.13.0+cpu",
    "accelerate": "1.15.0",
    "transformers": "5.23.0",
    "deepspeed": "0.19.8",
}


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), standalone_mode=False)


class Repository:
    """The copy that a test may change. ``built`` is the folder of the run's build."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.built = folder / "built" / "quickstart"

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.folder / name
        text = path.read_text()
        assert old in text, f"{old!r} is not in {name}"
        path.write_text(text.replace(old, new, 1))

    def certificate(self, change: Callable[[dict[str, Any]], object]) -> None:
        path = self.built / certificate.NAME
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content, indent=2))

    def prove(self, **verdict: Any) -> None:
        """A certificate for what is there now, by the function that a smoke-run calls."""
        names = [path.name for path in self.built.iterdir() if path.name != certificate.NAME]
        hashes = {name: lockfile.sha256((self.built / name).read_bytes()) for name in names}
        written = certificate_file.write(
            self.built,
            certificate_file.smoke_result(VERDICT | verdict),
            steps=3,
            versions=VERSIONS,
            files=hashes,
            lock=lockfile.load(self.built / lockfile.NAME),
            code=code_hashes(self.built, lockfile.load(self.built / lockfile.NAME)),
        )
        assert written is not None

    def build(self) -> None:
        done = run("build", "zerocfg.yaml", "-o", "built", "--force")
        assert not done.return_value and done.exception is None, done.output

    def gate(self, *words: str) -> tuple[int, list[str]]:
        """The exit code and the reasons, or what is said about wrong use."""
        done = run("gate", *words)
        if done.exception is not None:
            assert hasattr(done.exception, "format_message"), done.exception
            return 2, [done.exception.format_message()]
        assert "Traceback" not in done.output
        reasons = done.output.partition("\n\ngate: failed")[0].splitlines()
        return int(done.return_value or 0), [] if "gate: passed" in done.output else reasons


@pytest.fixture(scope="session")
def _pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gate") / "repository"
    shutil.copytree(
        ROOT / "examples" / "quickstart", folder, ignore=shutil.ignore_patterns("built", "runs", "__pycache__")
    )
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "policy.schema.json").write_text(json.dumps(POLICY, indent=2))
    repository = Repository(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        repository.build()
    repository.prove()
    return folder


@pytest.fixture
def repository(_pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Repository:
    """A repository that passes; the current folder is its root."""
    folder = tmp_path / "repository"
    shutil.copytree(_pristine, folder)
    monkeypatch.chdir(folder)
    return Repository(folder)
