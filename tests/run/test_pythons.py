"""The Python that a project sets up, and the releases that it leaves: of transformers 4.46.3 on Python 3.8, 4.57.6 on
3.9, by the wheels' Requires-Python."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib.metadata import metadata
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from zerocfg.catalog.history import histories
from zerocfg.catalog.install_limits import install_limits
from zerocfg.catalog.versions import release
from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Origin, Run
from zerocfg.run.releases import with_versions
from zerocfg.run.requirements.companions import limited_releases
from zerocfg.run.requirements.declared import Declared
from zerocfg.source.requirements.python import read_image, read_setup, read_version_file
from zerocfg.source.text import SourceText

SCRIPT = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\nTrainer(args=args).train()\n"
)
LINE = "torchrun --nproc_per_node 8 train.py --output_dir out --per_device_train_batch_size 1 --max_steps 2"
OPEN = {"requirements.txt": "transformers>=4.31\n"}
CREATES = "```bash\nconda create -n x python={} -y\nconda activate x\n```\n"


def runs_in(folder: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> list[Run]:
    (folder / ".git").mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    runs, _ = find_runs([folder], Files(), root=folder, scripts=True)
    return with_versions(runs, {})


PROJECTS: dict[str, tuple[dict[str, str], str]] = {
    "a page": ({"README.md": CREATES.format("3.9")}, ">=4.31,<=4.57.6"),
    "a newer one": ({"README.md": CREATES.format("3.12")}, ">=4.31"),
    "any of 3": ({"README.md": CREATES.format("3")}, ">=4.31"),
    "of two the newer": ({"README.md": CREATES.format("3.8") + CREATES.format("3.9")}, ">=4.31,<=4.57.6"),
    "one is not told": ({"README.md": CREATES.format("3.8") + CREATES.format("$VERSION")}, ">=4.31"),
    "prose": ({"README.md": "Tested with python=3.8, e.g. conda create -n x python=3.8\n"}, ">=4.31"),
    "at least": ({"README.md": CREATES.format("3.8").replace("=3.8", "'>=3.8'")}, ">=4.31"),
    "conda's file": ({"environment.yml": "dependencies:\n  - python=3.8\n"}, ">=4.31,<=4.46.3"),
    "at least, in conda's file": ({"environment.yml": "dependencies:\n  - python>=3.8\n"}, ">=4.31"),
    "an image": ({"Dockerfile": "FROM python:3.9-slim\nRUN pip list\n"}, ">=4.31,<=4.57.6"),
    "another image": ({"Dockerfile": "FROM nvcr.io/nvidia/pytorch:23.09-py3\nRUN pip list\n"}, ">=4.31"),
    "conda in an image": (
        {"Dockerfile": "FROM ubuntu:20.04\nRUN apt-get update && \\\n  conda create -n x python=3.9 -y\n"},
        ">=4.31,<=4.57.6",
    ),
    "pyenv's file": ({".python-version": "3.9.18\n"}, ">=4.31,<=4.57.6"),
    "Heroku's file": ({"runtime.txt": "python-3.9.18\n"}, ">=4.31,<=4.57.6"),
    "what the package requires": (
        {"pyproject.toml": '[project]\nname = "x"\nrequires-python = ">=3.8,<3.10"\n'},
        ">=4.31,<=4.57.6",
    ),
    "at least, by the package": ({"pyproject.toml": '[project]\nname = "x"\nrequires-python = ">=3.8"\n'}, ">=4.31"),
    "Poetry": ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "~3.9"\n'}, ">=4.31,<=4.57.6"),
    "Poetry, any of 3": ({"pyproject.toml": '[tool.poetry.dependencies]\npython = "^3.8"\n'}, ">=4.31"),
    "setup.py": (
        {"setup.py": "from setuptools import setup\nsetup(python_requires='<3.9', install_requires=['trl'])\n"},
        ">=4.31,<=4.46.3",
    ),
    "setup.cfg": ({"setup.cfg": "[options]\npython_requires = >=3.7,<3.9\n"}, ">=4.31,<=4.46.3"),
    "Pipfile": ({"Pipfile": '[requires]\npython_version = "3.9"\n'}, ">=4.31,<=4.57.6"),
    "the package wants a newer one than the page": (
        {"README.md": CREATES.format("3.8"), "setup.cfg": "[options]\npython_requires = >=3.10\n"},
        ">=4.31",
    ),
    "the line's own script": (
        {"README.md": CREATES.format("3.8"), "run.sh": f"conda create -n y python=3.9\n{LINE}\n"},
        ">=4.31,<=4.57.6",
    ),
    "pinned above": ({"README.md": CREATES.format("3.9"), "requirements.txt": "transformers==5.1.0\n"}, "==5.1.0"),
}


@pytest.mark.parametrize("name", PROJECTS)
def test_what_a_project_leaves_of_transformers(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, wanted = PROJECTS[name]
    (run,) = runs_in(tmp_path, {**OPEN, "train.py": SCRIPT, "run.sh": LINE + "\n", **files}, monkeypatch)
    assert run.versions["transformers"] == wanted


def test_the_nearest_folder_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**OPEN, "README.md": CREATES.format("3.11"), "a/README.md": CREATES.format("3.9"), "a/train.py": SCRIPT}
    (run,) = runs_in(tmp_path, {**files, "run.sh": LINE.replace("train.py", "a/train.py") + "\n"}, monkeypatch)
    assert run.versions["transformers"] == ">=4.31,<=4.57.6"
    assert [place.note for place in run.version_places["transformers"]] == ["transformers", "python"]


def test_what_stands_above_the_requirements_sets_up_other_things(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"README.md": CREATES.format("3.7"), "a/requirements.txt": OPEN["requirements.txt"], "a/b/train.py": SCRIPT}
    files["a/run.sh"] = LINE.replace("train.py", "b/train.py") + "\n"
    (run,) = runs_in(tmp_path, files, monkeypatch)
    assert run.versions["transformers"] == ">=4.31"


@pytest.mark.parametrize(
    ("pins", "asked"),
    [
        ("==5.23.0", []),  # one release: no Python narrows it
        (">=5.23.0,<=5.23", []),
        ("==5.23.*", ["transformers"]),
        (">=4.31", ["transformers"]),
        ("<=4.46.3", []),  # every Python that holds it back leaves it
    ],
)
def test_python_is_looked_for_where_it_may_narrow(pins: str, asked: list[str]) -> None:
    looked: list[str] = []

    def python(base: Declared) -> None:
        looked.extend(place.note for place in base.places)

    found = {"transformers": Declared(pins, (Origin("file", "transformers"),))}
    assert list(limited_releases(found, python)) == []
    assert looked == asked


def test_the_finding_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**OPEN, "README.md": "# X\n" + CREATES.format("3.9"), "train.py": SCRIPT}
    line = f"{LINE} --warmup_ratio 0.1 --evaluation_strategy no\n"
    runs = runs_in(tmp_path, {**files, "run.sh": line}, monkeypatch)
    (found,) = [one for one in lint_runs(runs).diagnostics if one.code == "ZC801"]  # 5.15.0 removed the other argument
    assert "`evaluation_strategy`" in found.message and found.severity.value == "warning"
    assert "(from transformers 4.51.0 on; requirements.txt:1 and Python (README.md:3) admit" in found.message


def test_a_check_of_the_script_is_told_by_its_place_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checked = 'from transformers.utils import check_min_version\ncheck_min_version("4.46.0")\n' + SCRIPT
    runs = runs_in(tmp_path, {"train.py": checked, "run.sh": f"{LINE} --warmup_ratio 0.1\n"}, monkeypatch)
    (found,) = [one for one in lint_runs(runs).diagnostics if one.code == "ZC801"]
    assert found.message.endswith("(from transformers 5.15.0 on; train.py:2 admits >=4.46.0)")


COMMANDS = {
    "uv venv --python 3.9": ["==3.9.*"],
    "uv venv -p 3.10.4 .venv": ["==3.10.*"],
    "uv venv": [],
    "uv python pin 3.9": ["==3.9.*"],
    "virtualenv -p python3.8 venv": ["==3.8.*"],
    "python3.9 -m venv env": ["==3.9.*"],
    "python3.9 -m pip install x": [],
    "python3 -m venv env": [],
    "pyenv local 3.9.18": ["==3.9.*"],
    "pyenv virtualenv 3.8 x": ["==3.8.*"],
    "mamba create -n x 'python>=3.8,<3.10' -c conda-forge": [">=3.8,<3.10"],
    "conda create -n x python==3.9.7": ["==3.9.7"],
    "conda create -n python3": [],
    "conda activate x python=3.9": [],
    "conda install -y conda-forge::python=3.9": ["==3.9.*"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(command: str) -> None:
    assert [item.versions for item in read_setup(SourceText("setup.sh", command + "\n"))] == COMMANDS[command]


def test_small_files() -> None:
    image = "FROM --platform=linux/amd64 docker.io/library/python:3.9-slim AS base\nFROM base\nFROM python:${V}\n"
    assert [item.versions for item in read_image(SourceText("Dockerfile", image))] == ["==3.9.*", None]
    named = SourceText(".python-version", "# of pyenv\n3.9.18\npypy3.9\ncpython@3.8\n")
    assert [item.versions for item in read_version_file(named)] == ["==3.9.*", None, "==3.8.*"]


@given(st.text(alphabet=st.sampled_from("FROMpython:=3.9$V{}\\\n#'\"&;|-r><()\t `*conda create uvenv\0é")))
@settings(max_examples=200, deadline=None)
def test_no_text_raises(text: str) -> None:
    read_image(SourceText("Dockerfile", f"FROM python:{text}\nRUN conda create {text}"))
    read_setup(SourceText("README.md", f"```\nconda create -n x python{text}\n```\nuv venv -p {text}"))
    read_version_file(SourceText(".python-version", text))


PAGE = "# X\n```\npip install transformers=={}\n```\n\n```\n{}\n```\n"


def test_a_page_installs_for_its_own_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**OPEN, "train.py": SCRIPT, "README.md": PAGE.format("4.39.3", LINE), "run.sh": LINE + "\n"}
    runs = {run.name.partition(":")[0]: run for run in runs_in(tmp_path, files, monkeypatch)}
    assert {run.launch_file.name: run.versions for run in runs.values() if run.launch_file is not None} == {
        "README.md": {"transformers": "==4.39.3"},
        "run.sh": {"transformers": ">=4.31"},
    }


@pytest.mark.parametrize(
    ("script", "pins", "wanted"),
    [
        ("train.py", "transformers>=4.31", "warning"),
        ("elsewhere.py", "transformers>=4.31", None),  # nobody knows which release its parser is for
        ("elsewhere.py", "transformers>=5.15", "error"),  # no admitted release has the argument
        ("$MORE -m train", "transformers>=4.31", "warning"),  # one of the project's, for all that is known
    ],
)
def test_a_range_says_nothing_of_a_script_that_is_not_there(
    script: str, pins: str, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = LINE.replace("train.py", script) + " --deepspeed ds.json --warmup_ratio 0.1\n"
    files = {"requirements.txt": pins + "\n", "train.py": SCRIPT, "run.sh": line, "ds.json": json.dumps({})}
    found = [one for one in lint_runs(runs_in(tmp_path, files, monkeypatch)).diagnostics if one.code == "ZC801"]
    assert [one.severity.value for one in found] == ([wanted] if wanted else [])


def test_the_facts_go_upwards() -> None:
    for library, packages in install_limits().items():
        known = set(histories(library.partition("[")[0]).names)
        for edges in packages.values():
            assert list(edges) == sorted(edges, key=release)
            assert list(edges.values()) == sorted(edges.values(), key=release)
            assert {newest for newest in edges.values() if release(newest) >= release(min(known, key=release))} <= known


@pytest.mark.libs
@pytest.mark.parametrize("library", ["transformers", "accelerate", "trl"])
def test_the_installed_release_needs_more_than_every_bound(library: str) -> None:
    """Its own metadata: today's release is left by none of the bounds that leave an older one."""
    held = metadata(library)
    needs = {one.name: one.specifier for one in map(Requirement, held.get_all("Requires-Dist") or ()) if not one.marker}
    needs["python"] = SpecifierSet(held["Requires-Python"])
    for package, edges in install_limits()[library].items():
        lowest = next((one.version for one in needs.get(package, ()) if one.operator == ">="), None)
        if lowest is not None:  # the others are needed by what it needs
            assert max(map(release, edges)) <= release(lowest)
    assert max(map(release, install_limits()[library]["python"])) == release(
        needs["python"].__iter__().__next__().version
    )
