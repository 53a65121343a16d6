"""What a project says around its runs: releases, siblings of a recipe, scripts, and which files a run has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.run.test_code_parts import DS, LINE
from tests.run.test_effective import file
from tests.run.test_reader import CALL, TRAIN
from tests.run.test_scripts import read
from zerocfg.frontends.registry import front_end
from zerocfg.run.discover import Files, walk
from zerocfg.run.linking.project_scripts import with_what_is_elsewhere
from zerocfg.run.linking.sibling_recipes import as_siblings
from zerocfg.run.linking.spec_runs import launch_place
from zerocfg.run.linking.standalone_scripts import standalone_run
from zerocfg.run.model import MisplacedFile, Origin, Run, Script, Setting, SourceFile, files_of
from zerocfg.run.releases import OutsideKnownReleases, outside_known_releases, training_libraries, versions_for
from zerocfg.run.requirements.ceilings import allowed
from zerocfg.run.requirements.declared import Declared, all_of, any_of, is_image
from zerocfg.run.requirements.python import required_python
from zerocfg.run.stages.admitted import AdmittedKeys, admitted_keys
from zerocfg.source import boundary
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText

# --- releases ---------------------------------------------------------------------------------------------------------


def test_edges_of_admitted_releases() -> None:
    today = AdmittedKeys("accelerate")
    assert today.any_from("99") and today.all_from("99")
    two = admitted_keys("accelerate", ">=1.4,<1.6")
    assert [two.any_from(edge) for edge in ("1.3.0", "1.5.0", "1.6.0")] == [True, True, False]
    assert [two.all_from(edge) for edge in ("1.4.0", "1.4.1")] == [True, False]
    old = admitted_keys("accelerate", "==0.1.0")
    assert old.low is None and not old.all_from("0.0.1") and not old.any_from("0.20.0")
    assert admitted_keys("accelerate", "==1.15.0") == admitted_keys("accelerate", ">=1.15") == today
    assert admitted_keys("accelerate", "newest") == today


def test_states_of_keys() -> None:
    """accelerate read `mixed_precision: no` as the word until 0.34 (utils/yaml of config_args.py)."""
    key = "mixed_precision"
    assert admitted_keys("accelerate", "==0.33.0").false_stays_since(key) is None
    assert admitted_keys("accelerate", "==0.34.0").false_stays_since(key) == ""
    assert admitted_keys("accelerate", "<1.0").false_stays_since(key) == "0.34.0"
    assert AdmittedKeys("accelerate").false_stays_since(key) == ""
    tensor = "cluster.parallelism_config"
    knows = [admitted_keys("accelerate", one) for one in ("==0.34.2", ">=1.0", "==1.12.0")]
    assert [one.knows(tensor) for one in knows] == [False, True, True]
    assert [one.always(tensor) for one in knows] == [False, False, True]
    assert [one.had("cluster.ipex_config") for one in (*knows, AdmittedKeys("accelerate"))] == [True, True, True, False]
    assert [one.changed_later(tensor) for one in knows] == [True, False, False]


@pytest.mark.parametrize(
    ("declared", "outside"),
    [
        ("==0.19.8", None),
        (">=0.19", None),
        ("<0.10", ("0.10.0", True)),
        ("<0.10.0", ("0.10.0", True)),
        ("<=0.10.0", None),
        ("==0.20", ("0.19.8", False)),
        (">0.19.8", None),
        (">=0.19.9", ("0.19.8", False)),
        ("main", None),
    ],
)
def test_releases_beyond_the_known_ones(declared: str, outside: tuple[str, bool] | None) -> None:
    run = Run(
        "a", consumer="deepspeed", deepspeed=file("deepspeed", DS), versions={"deepspeed": declared, "trl": "<0.1"}
    )
    expected = [OutsideKnownReleases("deepspeed", declared, *outside)] if outside else []
    assert outside_known_releases(run) == expected


@pytest.mark.parametrize(
    ("parts", "libraries"),
    [
        ({}, []),
        ({"consumer": "deepspeed"}, []),
        ({"consumer": "deepspeed", "deepspeed": True}, ["deepspeed"]),
        ({"consumer": "accelerate"}, ["accelerate"]),
        ({"accelerate": True}, ["accelerate"]),
        ({"consumer": "transformers"}, ["accelerate", "transformers"]),
        ({"consumer": "trl", "deepspeed": True}, ["accelerate", "transformers", "deepspeed", "trl"]),
        ({"consumer": "axolotl"}, ["accelerate", "transformers"]),
    ],
)
def test_libraries_that_matter(parts: dict[str, Any], libraries: list[str]) -> None:
    files = {"deepspeed": file("deepspeed", DS), "accelerate": file("accelerate", "distributed_type: NO\n")}
    given = {name: files[name] if value is True else value for name, value in parts.items()}
    assert training_libraries(Run("a", **given)) == libraries


def one(clauses: str | None, name: str = "a") -> Declared:
    return Declared(clauses, (Origin("file", name),) if clauses != "" else ())


def test_statements_together_and_by_choice() -> None:
    def said(found: Declared) -> tuple[str | None, list[str]]:
        return found.clauses, [place.note for place in found.places]

    assert said(all_of([one(">=1"), one("<2", "b"), one("")])) == (">=1,<2", ["a", "b"])
    assert said(all_of([one(">=1"), one(None, "b")])) == (None, ["b"])
    assert said(any_of([one(">=1"), one(None, "b")])) == (None, ["b"])
    assert said(all_of([one("")])) == ("", []) and said(any_of([one("==1"), one("==1")])) == ("==1", ["a"])
    assert said(any_of([one("==1"), one("")]))[0] == ""
    clash = all_of([one("==1"), one("==2", "b")])
    assert clash.clauses not in (None, "", "==1", "==2") and len(clash.places) == 2, "a choice between them"


EXTRA = '[project]\nname = "x"\n[project.optional-dependencies]\na = ["trl==2"]\n'
COPY = "from setuptools import setup\nsetup(name='trl', version='1.5')\n"
FOLDERS: dict[str, tuple[dict[str, str], str | None]] = {
    "a lock before all": ({"uv.lock": 'name = "trl"\nversion = "1.0"\n', "requirements.txt": "trl==2\n"}, "==1.0"),
    "the project before loose files": (
        {"pyproject.toml": '[project]\nname = "x"\ndependencies = ["trl==3"]\n', "requirements-dev.txt": "trl==2\n"},
        "==3",
    ),
    "an extra beside a loose file": (
        {"pyproject.toml": EXTRA, "requirements-dev.txt": "trl==2\n"},
        "==2",
    ),
    "requirements of a folder": ({"requirements/base.txt": "trl==2\n", "requirements/notes.md": "trl==3\n"}, "==2"),
    "an image": ({"docker/Dockerfile": "RUN pip install trl==2\n", "docker/start.sh": "pip install trl==3\n"}, "==2"),
    "two images, of which one is silent": (
        {"Dockerfile": "RUN pip install trl==2\n", "Dockerfile.dev": "RUN ls\n"},
        None,
    ),
    "a script that sets up": ({"setup_env.sh": "pip install trl==2\n"}, "==2"),
    "a script of another kind": ({"run.sh": "pip install trl==2\n"}, None),
    "a script without a suffix": ({"install_prereqs": "#!/bin/bash -l\npip install trl==2\n"}, "==2"),
    "one that env starts": ({"setup": "#!/usr/bin/env bash\r\npip install trl==2\n"}, "==2"),
    "one that Python runs": ({"setup": "#!/usr/bin/env python3\npip install trl==2\n"}, None),
    "one that fish runs": ({"setup": "#!/usr/bin/fish\npip install trl==2\n"}, None),
    "no script": ({"install": "pip install trl==2\n"}, None),
    "a script without a suffix of another kind": ({"train": "#!/bin/bash\npip install trl==2\n"}, None),
    "a file with another suffix": ({"x.setup_env": "#!/bin/bash\npip install trl==2\n"}, None),
    "a folder called so": ({"env/readme.txt": "pip install trl==2\n"}, None),
    "commands of a README": ({"README.md": "```bash\npip install trl==2\n```\n"}, "==2"),
    "a command in a sentence": ({"README_en.md": "", "README.md": "Do `pip install trl==2` first.\n"}, "==2"),
    "a command with a mark of notebooks": ({"README.md": "Do `!pip install trl==2` first.\n"}, "==2"),
    "a name in a sentence": ({"README.md": "We used `trl==2`, and `pip list` shows it.\n"}, None),
    "a list of a README": ({"README.md": "```commandline\ntorch==2.2.1  # CUDA 12\n\ntrl==2\n```\n"}, "==2"),
    "a list with something else": ({"README.md": "```\ntrl==2\npython train.py\n```\n"}, None),
    "an open list": ({"README.md": "```\ntrl>=2\n```\n"}, None),
    "two releases in a README": (
        {"README.md": "`pip install trl==2`\n```sh\npip install trl==3\n```\n"},
        ">=2.0.0,<=3.0.0",
    ),
    "an upgrade in a README": ({"README.md": "`pip install -U trl`\n"}, None),
    "an upgrade beside a release": ({"README.md": "`pip install -U trl`\n```\ntrl==2\n```\n"}, "==2"),
    "a branch in a README": ({"README.md": "`pip install git+https://github.com/x/trl` or `pip install trl==2`"}, None),
    "a README beside requirements": ({"README.md": "`pip install trl==2`", "requirements.txt": "trl==3\n"}, "==3"),
    "a README beside a bare name": ({"README.md": "`pip install trl==2`", "requirements.txt": "trl\n"}, "==2"),
    "a README beside a script": ({"README.md": "`pip install trl==2`", "install.sh": "pip install trl==3\n"}, "==3"),
    "a page about installing": ({"INSTALL.md": "```\npip install trl==2\n```\n"}, "==2"),
    "another page": ({"NOTES.md": "```\npip install trl==2\n```\n"}, None),
    "a name that only looks so": ({"my-requirements-dev.txt": "trl==2\n", "requirement_notes.rst": "trl==3\n"}, "==2"),
    "what it takes in": ({"requirements.txt": "-r more.in\n", "more.in": "trl==2\n-r requirements.txt\n"}, "==2"),
    "not on Linux": ({"requirements.txt": "trl==2; sys_platform == 'win32'\n"}, None),
    "a copy of the library": (
        {"setup.py": COPY, "requirements.txt": "trl==2\n"},
        "==1.5",
    ),
    "a branch": ({"requirements.txt": "git+https://github.com/x/trl@main\n"}, None),
    "nothing": ({}, None),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_what_a_folder_states(name: str, tmp_path: Path) -> None:
    files, clauses = FOLDERS[name]
    (tmp_path / ".git").mkdir()
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text, encoding="utf-8")
    found = versions_for(tmp_path).get("trl")
    assert (found.clauses if found is not None else None) == clauses


def test_a_readme_counts_after_every_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "README.md").write_text("`pip install trl==1 deepspeed==0.16.4`\n", encoding="utf-8")
    (tmp_path / "a" / "README.md").write_text("`pip install trl==2 accelerate==1.0`\n", encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("accelerate==1.2\n", encoding="utf-8")
    found = versions_for(tmp_path / "a" / "b")
    assert {name: one.clauses for name, one in found.items()} == {
        "trl": "==2",
        "deepspeed": "==0.16.4",
        "accelerate": "==1.2",
    }
    (place,) = found["trl"].places
    assert place.file is not None and place.span is not None
    assert place.file.source.text[place.span.start : place.span.end] == "trl==2"


def test_names_of_images() -> None:
    assert all(map(is_image, ("Dockerfile", "dockerfile.gpu", "Containerfile", "train.Dockerfile")))
    assert not any(map(is_image, ("mydockerfile", "Docker", "file.docker")))


@pytest.mark.parametrize(
    ("files", "python"),
    [
        ({".python-version": "3.9\n"}, "==3.9.*"),
        ({"README.md": "```bash\nconda create -n x python=3.9\n```\n"}, "==3.9.*"),
        ({"README.md": "```bash\npip list\n```\n"}, None),
        ({"NOTES.md": "```bash\nconda create -n x python=3.9\n```\n"}, None),
        ({"install.sh": "conda create -n x python=3.9\n"}, "==3.9.*"),
        ({"install": "#!/bin/bash\nconda create -n x python=3.9\n"}, "==3.9.*"),
        ({"install": "conda create -n x python=3.9\n"}, None),
        ({"setup.cfg": "[options]\npython_requires = >=3.8\n"}, ">=3.8"),
        ({"setup.cfg": "[options]\npython_requires = >=3.8\n", ".python-version": "3.9\n"}, "==3.9.*"),
        ({"setup.cfg": "[options]\npython_requires = <3.9\n", ".python-version": "3.10\n"}, "<3.9"),
        ({"setup.cfg": "[options]\npython_requires = >=3.10\n", ".python-version": "3.9\n"}, ">=3.10"),
        ({".python-version": "3.9\n", "runtime.txt": "python-3.11.2\n"}, "==3.11.*"),
        ({}, None),
    ],
)
def test_the_python_of_a_folder(files: dict[str, str], python: str | None, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    found = required_python(tmp_path, [tmp_path / "requirements.txt"], {})
    assert (found.clauses if found is not None else None) == python


def _allowed(name: str, declared: str | None, library: str) -> tuple[str, str] | None:
    framework = front_end(name)
    assert framework is not None and framework.facts is not None
    return allowed(framework.facts, declared, library)


def test_what_a_framework_allows() -> None:
    """Its own requirement files, release by release."""
    assert _allowed("llamafactory", "==0.9.3", "trl") == (">=0.8.6,<=0.9.6", "llamafactory 0.9.3")
    assert _allowed("axolotl", "==0.10.0", "trl") == ("==0.18.1", "axolotl 0.10.0")
    both = _allowed("axolotl", ">=0.9.2,<=0.10.0", "trl")
    assert both is not None and both[1] == "axolotl 0.9.2 to 0.10.0"
    below = _allowed("axolotl", ">=0.9.2,<0.10.0", "trl")
    assert below == ("==0.17.0", "axolotl 0.9.2")
    assert _allowed("axolotl", "==99", "trl") is None and _allowed("axolotl", "newest", "trl") is None
    newest = _allowed("axolotl", None, "trl")
    assert newest is not None and newest[0].startswith("<=") and newest[1].startswith("axolotl up to ")
    assert _allowed("swift", None, "deepspeed") is None


# --- siblings and scripts ---------------------------------------------------------------------------------------------


def recipe(folder: Path, name: str) -> SourceFile:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    text = SourceText(name, "learning_rate: 1\n")
    return SourceFile(name, "recipe", text, file("recipe", text.text).document, path)


def test_a_recipe_takes_the_reader_of_its_tree(tmp_path: Path) -> None:
    line = read_launch_lines(SourceText("run.sh", LINE)).lines[0]
    script = Script(TRAIN, "trl")

    def named(name: str, **parts: Any) -> Run:
        given = {"consumer": "trl", "recipe_reader": "trl", "launch": line, "script": script, **parts}
        return Run(name, recipe=recipe(tmp_path, name), **given)

    alone = Run("x", recipe=recipe(tmp_path, "recipes/x/c.yaml"))
    known = [named("recipes/x/a.yaml"), named("recipes/y/b.yaml")]
    found = as_siblings(alone, known, tmp_path)
    assert (found.consumer, found.recipe_reader, found.script) == ("trl", "trl", script)
    assert found.reader_evidence is not None and found.reader_evidence.by == "sibling"
    elsewhere = Run("x", recipe=recipe(tmp_path, "recipes/z/c.yaml"))
    assert as_siblings(elsewhere, known, tmp_path).script is None, "of a folder of another name"
    for run, others in (
        (alone, known[:1]),
        (alone, [known[0], known[0]]),
        (alone, [known[0], named("other/b.yaml")]),
        (alone, [*known, named("recipes/y/d.yaml", consumer="transformers")]),
        (alone, [*known, named("recipes/y/d.yaml", recipe_reader="hf")]),
        (alone, [*known, named("recipes/y/d.yaml", script=None)]),
        (alone, [named(one.name, launch=None) for one in known]),
        (alone, [named(one.name, consumer="accelerate") for one in known]),
        (Run("x", recipe=recipe(tmp_path, "c.yaml")), known),
        (Run("x", recipe=recipe(tmp_path, "recipes/tests/c.yaml")), known),
        (Run("x", consumer="accelerate", recipe=alone.recipe), known),
        (Run("x", deepspeed=file("deepspeed", DS), recipe=alone.recipe), known),
    ):
        assert as_siblings(run, others, tmp_path) is run


@pytest.mark.parametrize(
    ("code", "size"),
    [
        ('d = {"train_batch_size": 8}', True),
        ("d['train_micro_batch_size_per_gpu'] = n", True),
        ("d['train_micro_batch_size_per_gpu'] == n", False),
        ('d = {"train_batch_size": "auto"}', False),
        ('d = {"train_batch": 8}', False),
        # Lightning's _format_batch_size_and_grad_accum_config sets the micro batch where the config has none
        ("from pytorch_lightning.plugins import DeepSpeedPlugin\nDeepSpeedPlugin(config=path)", True),
        ("from lightning.pytorch.strategies import DeepSpeedStrategy\nDeepSpeedStrategy(config='ds.json')", True),
        ("import lightning as L\nL.Trainer(strategy='ddp')", False),
        ("from accelerate import DeepSpeedPlugin\nDeepSpeedPlugin(hf_ds_config=path)", False),
    ],
)
def test_what_may_come_from_elsewhere(code: str, size: bool) -> None:
    text = SourceFile("x.py", "script", SourceText("x.py", code))
    line = read_launch_lines(SourceText("run.sh", LINE)).lines[0]
    options = Run("s", script=Script(TRAIN, own=frozenset({"mine"})))
    alone, started = Run("a", deepspeed=file("deepspeed", DS)), Run("b", launch=line)
    found = with_what_is_elsewhere([alone, options, started], [text])
    every = [run.elsewhere for run in found]
    sizes = [item.sets_batch_size or item.lightning for item in every]
    assert (sizes, [set(item.options) for item in every]) == ([size, False, False], [{"mine"}, set(), set()])


def test_scripts_that_state_something(tmp_path: Path) -> None:
    states = read(tmp_path, train="from transformers import TrainingArguments\nTrainingArguments(output_dir='o')\n")
    run = standalone_run(states)
    assert run is not None and run.script is states and run.entry_point == states.file.path
    nothing = read(tmp_path, train="from transformers import TrainingArguments\nTrainingArguments()\n")
    assert standalone_run(nothing) is None
    declares = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--mine')\np.parse_args()\n"
    assert read(tmp_path, train=declares).own == {"mine"}


# --- files ------------------------------------------------------------------------------------------------------------


def test_the_files_of_a_run() -> None:
    line = read_launch_lines(SourceText("run.sh", LINE)).lines[0]
    shell = SourceFile("run.sh", "launch", SourceText("run.sh", LINE))
    config, acc = file("deepspeed", DS), file("accelerate", "distributed_type: NO\n")
    script = Script(TRAIN, files=(TRAIN,))
    alone = Run("a", deepspeed=config, script=script)
    assert alone.files == [config, TRAIN] and alone.main_file == config.name and Run("a").main_file == ""
    started = Run("a", deepspeed=config, script=script, launch=line, launch_file=shell)
    assert started.files == [config, shell] and files_of(started) == [config, shell, TRAIN]
    spec = Run(
        "a", spec=acc, script=script, misplaced=(MisplacedFile(config, "accelerate", CALL),), unreadable=(shell,)
    )
    assert spec.files == [acc, config] and files_of(spec) == [acc, config, TRAIN, shell]
    given = {"a": Setting(1, CALL, (Setting(2, CALL),))}
    assert Run("a", arguments=given).arguments["a"].known


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("run.sh:12", ("run.sh", 12)),
        ("run.sh", ("run.sh", None)),
        ("a:run.sh", ("a:run.sh", None)),
        (":3", (":3", None)),
        ("run.sh:", ("run.sh:", None)),
        ("run.sh:" + "9" * 40, ("run.sh", int("9" * 40))),
        ("run.sh:" + "9" * 41, ("run.sh:" + "9" * 41, None)),
        ("run.sh:" + "9" * 5000, ("run.sh:" + "9" * 5000, None)),
    ],
)
def test_the_place_of_a_line(text: str, place: tuple[str, int | None]) -> None:
    assert launch_place(text) == place


def test_files_that_are_walked(tmp_path: Path) -> None:
    names = ["a.json", "b.YAML", "c.yml", "d.hjson", "e.sh", "f.md", "g.py", "h.ipynb", "Makefile", "i.mk", "j.txt"]
    names += [".hidden/a.json", "node_modules/a.json", "env2/pyvenv.cfg", "env2/a.json", "sub/a.json", "venv/a.json"]
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("")
    plain = ["Makefile", "a.json", "c.yml", "d.hjson", "e.sh", "f.md", "i.mk", "sub/a.json"]
    assert [one.relative_to(tmp_path).as_posix() for one in walk(tmp_path)] == plain
    more = [one.relative_to(tmp_path).as_posix() for one in walk(tmp_path, scripts=True)]
    assert sorted(more) == sorted([*plain, "g.py", "h.ipynb"])
    assert [one.name for one in walk(tmp_path / "env2")] == ["a.json"], "one that is named is walked"


def test_a_file_outside_is_of_no_kind(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "ds_config.json").write_text("{")
    (tmp_path / "in" / "ds_config.json").write_text("{")
    with boundary.reading([], exactly=[tmp_path / "in"]):
        files = Files()
        assert files.open(tmp_path / "ds_config.json").kind == "other"
        assert files.open(tmp_path / "in" / "ds_config.json").kind == "deepspeed"
        assert files.open(tmp_path / "run.sh").kind == "other"
