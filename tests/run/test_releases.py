"""Versions read from a project's own files."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.cli.main import cli
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import versions_for, with_versions
from zerocfg.source.requirements.manifests import read_environment, read_lock, read_pyproject, read_setup_cfg
from zerocfg.source.requirements.pip import read_requirements

if TYPE_CHECKING:
    from collections.abc import Mapping

RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nevaluation_strategy: 'no'\n"


def write(folder: Path, files: Mapping[str, str]) -> Path:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def stated(folder: Path, below: str = ".") -> dict[str, str]:
    return {name: one.clauses for name, one in versions_for((folder / below).resolve()).items() if one.clauses}


LINES = {
    "deepspeed==0.16.4": "==0.16.4",
    "DeepSpeed >= 0.15, < 0.19  # ZeRO": ">= 0.15, < 0.19",
    "deepspeed[autotuning]~=0.17.0": "~=0.17.0",
    "deepspeed>=0.15; sys_platform == 'linux'": ">=0.15",
    "deepspeed (>=0.15)": ">=0.15",
    "deepspeed==0.16.4 --hash=sha256:00 \\\n  --hash=sha256:11": "==0.16.4",
    "deepspeed==0.16.4 \\\n    --hash=sha256:00": "==0.16.4",
    "deepspeed>=0.15,\\\n  <0.18": ">=0.15, <0.18",
    "deepspeed": "",
    "deepspeed @ git+https://example.com/DeepSpeed.git@v0.17": "==0.17",
    "deepspeed @ git+https://example.com/DeepSpeed.git@main": None,
    "deepspeed @ git+https://example.com/DeepSpeed.git@1c39974a4c4036fd641bc1191cc32799f85715a4": None,
    "deepspeed @ git+https://example.com/DeepSpeed.git@v0.17-preview": None,
    "deepspeed@https://example.com/DeepSpeed/archive/refs/tags/v0.17.2.zip": "==0.17.2",
    "deepspeed @ https://example.com/deepspeed-0.16.4+cu121-py3-none-any.whl": "==0.16.4",
    "git+https://example.com/deepspeed.git@v0.17.1": "==0.17.1",
    "git+ssh://git@example.com/deepspeed.git": None,
    "-e git+https://example.com/x.git#egg=deepspeed": None,
    "deepspeed === 0.16.4": "=== 0.16.4",
    "deepspeed newest": None,
    "deepspeed==0.16.4+cu121": "==0.16.4+cu121",
}


@pytest.mark.parametrize(("line", "versions"), LINES.items())
def test_requirement_lines(line: str, versions: str | None) -> None:
    text = f"# training\nnumpy<2\n{line}\n--index-url https://example.com\n"
    found = {item.name: item for item in read_requirements(text)[0]}
    assert found["deepspeed"].versions == versions
    assert set(found) == {"numpy", "deepspeed"}
    assert text[found["deepspeed"].span.start :].startswith(line.split("\\")[0].split()[0])


@pytest.mark.parametrize(
    ("line", "include"),
    [("-r base.txt", "base.txt"), ("--requirement=base.txt", "base.txt"), ("-c pins.txt", "pins.txt")],
)
def test_includes(line: str, include: str) -> None:
    assert read_requirements(f"{line}\n")[1] == [include]


@pytest.mark.parametrize("line", ["-", "--", "==1", "[x]", "@ url", "; a", "\\", "-r", "-e", "#", "\0", "é==1"])
def test_odd_lines_hold_nothing(line: str) -> None:
    assert read_requirements(line) == ([], [])


PYPROJECT = """
[project]
dependencies = ["trl>=0.20", 'accelerate==1.4.0']
[project.optional-dependencies]
zero = ["deepspeed>=0.15"]
[dependency-groups]
dev = [{include-group = "x"}, "transformers<5"]
[tool.poetry.dependencies]
python = "^3.10"
torch = {version = "^2.4", extras = ["x"], optional = true}
[tool.uv.sources]
trl = {git = "https://example.com/trl"}
"""


def test_pyproject() -> None:
    found = {item.name: item for item in read_pyproject(PYPROJECT)[0]}
    assert {name: item.versions for name, item in found.items()} == {
        "trl": None,
        "accelerate": "==1.4.0",
        "deepspeed": ">=0.15",
        "transformers": "<5",
        "python": ">=3.10,<4",
        "torch": ">=2.4,<3",
    }
    assert [name for name, item in found.items() if item.optional] == ["deepspeed", "transformers", "torch"]
    for item in found.values():
        assert PYPROJECT[item.span.start :].startswith(item.name)


@pytest.mark.parametrize(
    ("written", "versions"),
    [
        ("^0.17.2", ">=0.17.2,<0.18"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1", ">=1,<2"),
        ("1.2.3", "==1.2.3"),
        ("1.2.*", "==1.2.*"),
        ("*", ""),
        (">=1,<2", ">=1,<2"),
        ("^1 || ^2", None),
    ],
)
def test_poetry_versions(written: str, versions: str | None) -> None:
    (item,) = read_pyproject(f'[tool.poetry.dependencies]\ntrl = "{written}"\n')[0]
    assert item.versions == versions


def test_setup_cfg() -> None:
    text = "[options]\ninstall_requires =\n    trl>=0.20\n    numpy\n[options.extras_require]\nzero = deepspeed<0.18\n"
    assert [(item.name, item.versions, item.optional) for item in read_setup_cfg(text)[0]] == [
        ("trl", ">=0.20", False),
        ("numpy", "", False),
        ("deepspeed", "<0.18", True),
    ]


@pytest.mark.parametrize(
    ("item", "versions"),
    [
        ("pytorch=2.4", "==2.4.*"),
        ("pytorch==2.4.1", "==2.4.1"),
        ("pytorch 2.4.*", "==2.4.*"),
        ("conda-forge::pytorch=2.4.1=py311_cuda", "==2.4.1"),
        ("pytorch>=2.4,<3", ">=2.4,<3"),
        ("pytorch", ""),
        ("pytorch 2.4|2.5", None),
    ],
)
def test_conda(item: str, versions: str | None) -> None:
    (found,), _ = read_environment(f"- {item}\n", {"dependencies": [item]})
    assert (found.name, found.versions) == ("pytorch", versions)


LOCKS = {
    "uv.lock": '[[package]]\nname = "deepspeed"\nversion = "0.16.4"\nsource = {}\n',
    "poetry.lock": '[[package]]\nname = "x"\nversion = "1"\n\n[[package]]\nname = "deepspeed"\nversion = "0.16.4"\n',
    "pylock.toml": '[[packages]]\nname = "deepspeed"\nversion = "0.16.4"\n',
    "Pipfile.lock": '{"default": {"deepspeed": {"hashes": ["sha256:1"], "version": "==0.16.4"}}}',
    "pdm.lock": '[[package]]\nname = "DeepSpeed"\nversion = "0.16.4+cu121"\n',
}


@pytest.mark.parametrize("name", LOCKS)
def test_locks_win(name: str, tmp_path: Path) -> None:
    write(tmp_path, {name: LOCKS[name], "requirements.txt": "deepspeed>=0.10\n"})
    assert stated(tmp_path) == {"deepspeed": "==0.16.4"}


def test_a_package_locked_twice_is_a_choice(tmp_path: Path) -> None:
    text = LOCKS["uv.lock"] + LOCKS["uv.lock"].replace("0.16.4", "0.17.0")
    assert [item.versions for item in read_lock(text, ["deepspeed"])] == ["==0.16.4", "==0.17.0"]
    write(tmp_path, {"uv.lock": text, "requirements.txt": "deepspeed>=0.10\n"})
    assert stated(tmp_path) == {"deepspeed": ">=0.16.4,<=0.17.0"}


FOLDERS: list[tuple[dict[str, str], dict[str, str]]] = [
    ({"requirements.txt": "-r sub/base.txt\ntrl==1.0\n", "sub/base.txt": "deepspeed==0.16\n"}, {"deepspeed": "==0.16"}),
    ({"requirements.txt": "-r requirements.txt\ndeepspeed==0.16\n"}, {"deepspeed": "==0.16"}),
    (
        {"requirements.txt": "deepspeed>=0.15\n", "pyproject.toml": '[project]\ndependencies = ["deepspeed<0.18"]\n'},
        {"deepspeed": "<0.18,>=0.15"},
    ),
    # alternatives are a choice, and count for nothing beside something firm
    (
        {"requirements-a.txt": "deepspeed==0.16\n", "requirements-b.txt": "deepspeed==0.17\n"},
        {"deepspeed": ">=0.16.0,<=0.17.0"},
    ),
    ({"requirements-a.txt": "deepspeed==0.16\n", "requirements/b.txt": "deepspeed==0.16\n"}, {"deepspeed": "==0.16"}),
    ({"requirements-a.txt": "deepspeed==0.16\n", "requirements-b.txt": "deepspeed\n"}, {}),
    ({"requirements.txt": "deepspeed\n", "requirements-b.txt": "deepspeed==0.16\n"}, {}),
    ({"requirements.txt": "deepspeed>=0.1\n", "requirements-b.txt": "deepspeed==0.16\n"}, {"deepspeed": ">=0.1"}),
    ({"requirements.txt": "deepspeed==0.1; a\ndeepspeed==0.2; b\n"}, {"deepspeed": ">=0.1.0,<=0.2.0"}),
    ({"requirements.txt": "deepspeed @ https://example.com/x.whl\n"}, {}),
    ({"environment.yml": "dependencies:\n- pytorch=2.4\n- pip:\n  - deepspeed==0.16\n"}, {"deepspeed": "==0.16"}),
    # what cannot be read
    ({"pyproject.toml": "[project\n", "requirements.txt": "deepspeed==0.16\n"}, {"deepspeed": "==0.16"}),
    ({"environment.yml": "dependencies: deepspeed\n", "setup.cfg": "deepspeed"}, {}),
    ({"pyproject.toml": "[project]\ndependencies = 'deepspeed'\n[tool]\npoetry = 1\n"}, {}),
    ({"Pipfile.lock": "{" * 10000 + '"deepspeed"'}, {}),
    ({"requirements.txt/x": "a folder"}, {}),
]


@pytest.mark.parametrize(("files", "versions"), FOLDERS)
def test_one_folder(files: dict[str, str], versions: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path, files)
    assert {name: text for name, text in stated(tmp_path).items() if name == "deepspeed"} == versions


def test_the_nearest_folder_wins_for_each_library(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "requirements.txt": "deepspeed==0.16\ntrl==1.0\ntransformers==4.57\n",
            "examples/requirements.txt": "deepspeed==0.17\ntrl\n",
            "examples/pyproject.toml": "[project]\ndependencies = ['transformers @ https://example.com/x.whl']\n",
            "examples/sft/x": "",
        },
    )
    assert stated(tmp_path, "examples/sft") == {"deepspeed": "==0.17", "trl": "==1.0"}


def test_the_search_ends_at_the_repository(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16\n")
    write(tmp_path / "repository", {"configs/x": ""})
    assert stated(tmp_path, "repository/configs") == {}


def test_outside_of_a_repository_only_the_own_folder(tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_text("deepspeed==0.16\n")
    (tmp_path / "configs").mkdir()
    assert stated(tmp_path, "configs") == {}
    assert stated(tmp_path) == {"deepspeed": "==0.16"}


@pytest.mark.parametrize(
    "data", [b"\0deepspeed==1", b"\xff\xfedeepspeed", b"deepspeed==0.16\xff", b"deepspeed==" * 10**6]
)
def test_bytes_that_are_no_text(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "requirements.txt").write_bytes(data)
    (tmp_path / "pyproject.toml").write_bytes(data)
    (tmp_path / "uv.lock").write_bytes(data)
    os.mkfifo(tmp_path / "poetry.lock")
    assert stated(tmp_path) == {}


@given(st.text(alphabet=st.sampled_from("deepspeed=<>~!^*.,;:[](){}@#\\\"' \n-r01|$%é\0")))
@settings(max_examples=300, deadline=None)
def test_no_text_raises(text: str) -> None:
    read_requirements(text)
    read_setup_cfg(text)
    read_pyproject(text)
    read_environment(text, {"dependencies": text.split(" ")})
    read_lock(text, ["deepspeed"])


def test_a_run_knows_its_versions_and_where_they_stand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"recipe.yaml": RECIPE, "requirements.txt": "trl==1.0\ntransformers>=5.23\ntorch>=2\n"})
    monkeypatch.chdir(tmp_path)
    runs, _ = find_runs([tmp_path], Files())
    runs = with_versions([replace(runs[0], versions={"trl": "0.20"})], {"torch": "2.6"})
    assert runs[0].versions == {"trl": "0.20", "torch": "2.6", "transformers": ">=5.23"}
    (place,) = runs[0].version_places["transformers"]
    assert place.file is not None and place.span is not None
    assert (place.file.name, place.file.source.place(place.span.start).line) == ("requirements.txt", 2)
    assert set(runs[0].version_places) == {"transformers"}


@pytest.mark.parametrize(("versions", "word"), [("transformers>=5.23", "error"), ("transformers>=4", "warning")])
def test_lint_uses_them(versions: str, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"recipe.yaml": RECIPE, "requirements.txt": f"{versions}\n"})
    monkeypatch.chdir(tmp_path)
    shown = CliRunner().invoke(cli, ["lint", "--select", "ZC801", "--output-format", "concise", "."])
    assert f"{word}" in shown.output and "ZC801" in shown.output
    assert "requirements.txt:1 admits" in shown.output
