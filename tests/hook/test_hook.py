"""The hook as its users have it: the real pre-commit, a real git repository, commits refused and accepted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

BAD = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3, "allreduce_bucket_size": 5e8}}\n'
GOOD = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "gradient_clipping": "auto",\n'
    ' "bf16": {"enabled": "auto"},\n'
    ' "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}\n'
)
YAML = (
    "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 8\n"
    "deepspeed_config:\n  deepspeed_config_file: configs/ds.json\n"
)


def _run(*command: str, cwd: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=540)


@pytest.fixture(scope="module")
def env(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    home = tmp_path_factory.mktemp("home")
    names = {"GIT_AUTHOR_NAME": "t", "GIT_AUTHOR_EMAIL": "t@example.org"}
    names |= {"GIT_COMMITTER_NAME": "t", "GIT_COMMITTER_EMAIL": "t@example.org", "GIT_CONFIG_GLOBAL": os.devnull}
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PRE_COMMIT"))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**outside, **names, "PRE_COMMIT_HOME": str(home), "PATH": path}


@pytest.fixture(scope="module")
def hooks(tmp_path_factory: pytest.TempPathFactory, env: dict[str, str]) -> tuple[Path, str]:
    """The project's files as a repository of their own, and the revision to name in the config."""
    repo = tmp_path_factory.mktemp("zerocfg")
    for name in ("zerocfg", "schemas", "docs/rules"):
        shutil.copytree(ROOT / name, repo / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE", ".pre-commit-hooks.yaml"):
        shutil.copy(ROOT / name, repo / name)
    for command in (["git", "init", "-q"], ["git", "add", "-A"], ["git", "commit", "-qm", "hooks"]):
        assert _run(*command, cwd=repo, env=env).returncode == 0
    return repo, _run("git", "rev-parse", "HEAD", cwd=repo, env=env).stdout.strip()


@pytest.fixture
def project(tmp_path: Path, hooks: tuple[Path, str], env: dict[str, str]) -> Path:
    """A training repository with the hook installed and one good commit."""
    repo, revision = hooks
    project = tmp_path / "training"
    (project / "configs").mkdir(parents=True)
    (project / ".pre-commit-config.yaml").write_text(
        f"repos:\n  - repo: {repo.as_uri()}\n    rev: {revision}\n    hooks:\n      - id: zerocfg-lint\n"
    )
    (project / "accelerate.yaml").write_text(YAML)
    (project / "configs" / "ds.json").write_text(GOOD)
    assert _run("git", "init", "-q", cwd=project, env=env).returncode == 0
    installed = _run("pre-commit", "install", cwd=project, env=env)
    assert installed.returncode == 0, installed.stderr
    return project


def _commit(project: Path, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    assert _run("git", "add", "-A", cwd=project, env=env).returncode == 0
    return _run("git", "commit", "-m", "configs", cwd=project, env=env)


def test_bad_config_refused_good_one_accepted(project: Path, env: dict[str, str]) -> None:
    (project / "configs" / "ds.json").write_text(BAD)
    refused = _commit(project, env)
    text = refused.stdout + refused.stderr
    assert refused.returncode != 0, text
    assert "ZC101" in text and "allreduce_bucket_size" in text
    (project / "configs" / "ds.json").write_text(GOOD)
    accepted = _commit(project, env)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr


def test_changed_json_pulls_in_the_yaml_that_points_to_it(project: Path, env: dict[str, str]) -> None:
    accepted = _commit(project, env)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    # Only the YAML is wrong, and it is committed with the hook off: the changed JSON alone must bring it up.
    (project / "accelerate.yaml").write_text(YAML + "  gradient_accumulation_steps: 4\n")
    assert _run("git", "add", "-A", cwd=project, env=env).returncode == 0
    assert _run("git", "commit", "-qnm", "conflict", cwd=project, env=env).returncode == 0
    (project / "configs" / "ds.json").write_text(GOOD.replace('"stage": 3,', '"stage": 3, "overlap_comm": true,'))
    refused = _commit(project, env)
    text = refused.stdout + refused.stderr
    assert refused.returncode != 0, text
    assert "accelerate.yaml" in text and "gradient_accumulation_steps" in text


def test_files_of_others_are_left_alone(project: Path, env: dict[str, str]) -> None:
    (project / "package.json").write_text('{"name": "x", "version": "1.0.0"}\n')
    (project / "docker-compose.yaml").write_text("services:\n  web:\n    image: nginx\n")
    (project / "broken.json").write_text("{nothing of ours\n")
    accepted = _commit(project, env)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr


def test_fixes_are_applied_and_can_be_committed(project: Path, hooks: tuple[Path, str], env: dict[str, str]) -> None:
    """zerocfg-fix changes the file and refuses the commit; added as it is now, it is accepted."""
    settings = project / ".pre-commit-config.yaml"
    settings.write_text(settings.read_text().replace("zerocfg-lint", "zerocfg-fix"))
    config = project / "configs" / "ds.json"
    config.write_text(GOOD.replace('"gradient_clipping"', '"gradient_cliping"'))
    refused = _commit(project, env)
    assert refused.returncode != 0 and "files were modified by this hook" in refused.stdout + refused.stderr
    assert config.read_text() == GOOD
    accepted = _commit(project, env)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr


def test_builds_have_to_be_fresh(project: Path, env: dict[str, str]) -> None:
    settings = project / ".pre-commit-config.yaml"
    settings.write_text(settings.read_text().replace("zerocfg-lint", "zerocfg-build-check"))
    shutil.copytree(ROOT / "examples" / "quickstart", project / "job")
    for name in ("accelerate.yaml", "configs/ds.json"):
        (project / name).unlink()
    accepted = _commit(project, env)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr
    recipe = project / "job" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("gradient_accumulation_steps: 2", "gradient_accumulation_steps: 4"))
    refused = _commit(project, env)
    text = refused.stdout + refused.stderr
    assert refused.returncode != 0, text
    assert "build-outdated" in text and "gradient_accumulation_steps" in text, text
    rebuilt = _run(sys.executable, "-m", "zerocfg", "build", "job", "-o", "job/built", cwd=project, env=env)
    assert rebuilt.returncode == 0, rebuilt.stderr
    accepted = _commit(project, env)
    assert accepted.returncode == 0, accepted.stdout + accepted.stderr


def test_try_repo(project: Path, hooks: tuple[Path, str], env: dict[str, str]) -> None:
    """What someone does before writing a config: `pre-commit try-repo` on the files of a repository."""
    (project / "bad").mkdir()
    (project / "bad" / "accelerate.yaml").write_text(YAML.replace("configs/", "bad/"))
    (project / "bad" / "ds.json").write_text(BAD)
    assert _run("git", "add", "-A", cwd=project, env=env).returncode == 0
    words = ("pre-commit", "try-repo", str(hooks[0]), "zerocfg-lint", "--all-files")
    done = _run(*words, cwd=project, env=env)
    assert done.returncode == 1 and "allreduce_bucket_size" in done.stdout, done.stdout + done.stderr
    assert "bad/ds.json:1:" in done.stdout and "Found 1 error" in done.stdout, "the good ones are left alone"
