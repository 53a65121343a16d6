"""Which changed files start the hook, and what it then says: everything that a run reads, and nothing else.

The files that have to start it are those that a lint of the whole example asks the disk for.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner
from pre_commit.clientlib import load_manifest
from pre_commit.commands.run import Classifier

from tests.conftest import ROOT
from zerocfg.cli.main import cli
from zerocfg.source import disk
from zerocfg.workspace.job import Job
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import SettingsOptions

HOOKS = load_manifest(str(ROOT / ".pre-commit-hooks.yaml"))
OLD, NEW = "4.57.0", "5.0.0"
"""Releases of transformers: 5.0.0 removed `overwrite_output_dir`."""

TRAIN = """import helper
from transformers import AutoModelForCausalLM, HfArgumentParser, Trainer, TrainingArguments

(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
model = AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B")
trainer = Trainer(model, arguments, train_dataset=helper.data())
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
"""
LINE = (
    "accelerate launch --config_file accelerate.yaml train.py --output_dir out --overwrite_output_dir true --bf16 true"
)
EXAMPLE = {
    "train.py": TRAIN,
    "helper.py": "def data():\n    return []\n",
    "train.sh": f"{LINE}\n",
    "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nmixed_precision: bf16\n",
}
RELEASES = {
    "requirements.txt": "transformers=={}\n",
    "requirements/train.txt": "transformers=={}\n",
    "requirements-gpu.txt": "transformers=={}\n",
    "pyproject.toml": '[project]\nname = "job"\ndependencies = ["transformers=={}"]\n',
    "setup.py": 'from setuptools import setup\n\nsetup(name="job", install_requires=["transformers=={}"])\n',
    "setup.cfg": "[metadata]\nname = job\n\n[options]\ninstall_requires =\n    transformers=={}\n",
    "environment.yml": "dependencies:\n  - pip:\n    - transformers=={}\n",
    "Pipfile": '[packages]\ntransformers = "=={}"\n',
    "uv.lock": 'version = 1\n\n[[package]]\nname = "transformers"\nversion = "{}"\n',
    "poetry.lock": '[[package]]\nname = "transformers"\nversion = "{}"\n',
    "pdm.lock": '[[package]]\nname = "transformers"\nversion = "{}"\n',
    "pylock.toml": 'lock-version = "1.0"\n\n[[packages]]\nname = "transformers"\nversion = "{}"\n',
    "conda-lock.yml": "package:\n- name: transformers\n  version: {}\n",
    "Pipfile.lock": '{{"default": {{"transformers": {{"hashes": [], "version": "=={}"}}}}}}\n',
    "Dockerfile": "FROM python:3.12\nRUN pip install transformers=={}\n",
    "docker/train.dockerfile": "FROM python:3.12\nRUN pip install transformers=={}\n",
    "install.sh": "pip install transformers=={}\n",
    "zerocfg.toml": 'transformers = "{}"\n',
}
"""Files that state a release by themselves, each with the release left out."""


def _write(folder: Path, files: dict[str, str]) -> None:
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def _opened(folder: Path) -> list[str]:
    """The files below a folder whose content a lint of it asks for."""
    settings = SettingsOptions().settings(folder)
    with disk.looking() as notes:
        Job([folder], settings, selection_of(settings, "", "", False)).lint()
    paths = {path for question, answers in notes.items() if question.startswith("content") for path in answers}
    return sorted({Path(path).relative_to(folder).as_posix() for path in paths if Path(path).is_relative_to(folder)})


def _started(hook: dict[str, object], names: list[str]) -> list[str]:
    """The names that pre-commit would start a hook for."""
    return sorted(Classifier(names).filenames_for_hook(type("Hook", (), hook)))  # type: ignore[arg-type]


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_everything_that_lint_opens_starts_the_hook(
    hook: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    included = {"requirements.txt": "-r base.txt\n-r base.in\n", "base.txt": "trl\n", "base.in": "torch\n"}
    state = {"checkpoint/trainer_state.json": '{"eval_steps": 7}\n'}
    pinned = {name: text.format(OLD) for name, text in RELEASES.items()}
    more = {"train.sh": f"{LINE} --resume_from_checkpoint checkpoint\n", "Makefile": f"train:\n\t{LINE}\n"}
    _write(tmp_path, {**EXAMPLE, **pinned, **included, **state, **more, "README.md": f"```sh\n{LINE}\n```\n"})
    monkeypatch.chdir(tmp_path)
    opened = [*_opened(tmp_path), "zerocfg.toml"]  # the settings, which are read before the lint
    assert set(opened) >= {*EXAMPLE, *included, *pinned, *state, *more, "README.md"}
    assert _started(hook, opened) == opened


@pytest.mark.parametrize("hook", HOOKS, ids=lambda hook: hook["id"])
def test_other_files_start_no_hook(hook: dict[str, object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    others = {"main.rs": "fn main() {}\n", "page.html": "<p>\n", "data.csv": "a,b\n", "LICENSE": "MIT\n"}
    others |= {"other.toml": "a = 1\n", "app.ts": "let a = 1\n", "notes.cfg": "[a]\n", "docker/run.conf": "a\n"}
    _write(tmp_path, others)
    monkeypatch.chdir(tmp_path)
    assert _started(hook, sorted(others)) == []


def _hook(*names: str) -> tuple[int, str]:
    done = CliRunner().invoke(cli, ["lint", "--skip-unknown", "--output-format", "concise", "--no-cache", *names])
    return done.exit_code, done.output


@pytest.mark.parametrize("name", RELEASES)
def test_a_changed_release_alone_is_judged(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, {**EXAMPLE, name: RELEASES[name].format(OLD)})
    monkeypatch.chdir(tmp_path)
    code, text = _hook(name)
    assert (code, "ZC801" in text) == (0, False), text
    (tmp_path / name).write_text(RELEASES[name].format(NEW))
    code, text = _hook(name)
    assert (code, text.count("train.sh:1:")) == (1, 1) and "error[ZC801]" in text, text
    assert "`overwrite_output_dir`" in text


def test_a_release_in_an_included_file_alone_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _write(tmp_path, {**EXAMPLE, "requirements.txt": "-r deps/base.in\n", "deps/base.in": f"transformers=={NEW}\n"})
    monkeypatch.chdir(tmp_path)
    code, text = _hook("deps/base.in")
    assert code == 1 and "error[ZC801]" in text, text


def test_releases_of_another_project_judge_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**EXAMPLE, "requirements.txt": f"transformers=={NEW}\n"}
    others = {
        "web/requirements.txt": "flask\n",
        "web/pyproject.toml": '[project]\nname = "web"\n',
        "web/Dockerfile": "",
    }
    _write(tmp_path, {**files, **others, "notes.txt": "key: [unclosed\n"})
    monkeypatch.chdir(tmp_path)
    code, text = _hook(*others, "notes.txt")
    assert code == 0 and "ZC801" not in text and "not checked" not in text, text


def test_a_file_that_no_run_has_releases_from_is_named_where_it_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _write(tmp_path, {**EXAMPLE, "web/pyproject.toml": '[project]\nname = "web"\n'})
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(cli, ["lint", "--no-cache", "web/pyproject.toml"])
    assert done.exit_code == 2
    assert "'web/pyproject.toml' was not checked: no run that was found has its releases from it" in done.output


def test_a_changed_module_of_a_script_that_no_line_starts_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "from settings import model\nfrom transformers import Trainer, TrainingArguments\n\n"
        'arguments = TrainingArguments("out", overwrite_output_dir=True)\nTrainer(model(), arguments).train()\n'
    )
    module = (
        "from transformers import AutoModelForCausalLM\n\n\ndef model():\n"
        '    return AutoModelForCausalLM.from_pretrained("Qwen/Qwen3-4B")\n'
    )
    files = {"train.py": script, "settings.py": module, "requirements.txt": f"transformers=={NEW}\n"}
    _write(tmp_path, files)
    monkeypatch.chdir(tmp_path)
    for name in files:
        code, text = _hook(name)
        assert code == 1 and "train.py:4:" in text and "overwrite_output_dir" in text, (name, text)


def test_a_changed_state_of_a_checkpoint_is_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = LINE.replace("--overwrite_output_dir true", "--eval_strategy steps")
    line += " --eval_steps 100 --resume_from_checkpoint checkpoint"
    state = "checkpoint/trainer_state.json"
    _write(tmp_path, {**EXAMPLE, "train.sh": f"{line}\n", state: '{"eval_steps": 100, "log_history": []}\n'})
    monkeypatch.chdir(tmp_path)
    assert _hook(state)[0] == 0
    (tmp_path / state).write_text('{"eval_steps": 7, "log_history": []}\n')
    code, text = _hook(state)
    assert code == 1 and "train.sh:1:" in text and "warning[ZC827]" in text, text


def test_the_model_of_a_spec_stands_for_its_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "job")
    (tmp_path / ".git").mkdir()
    config = tmp_path / "job" / "ds_config.json"
    config.write_text(config.read_text().replace('"stage"', '"stagee"'))
    monkeypatch.chdir(tmp_path)
    code, text = _hook("job/model/config.json")
    assert code == 1 and "job/ds_config.json" in text and "stagee" in text, text
