"""What setup.py, Dockerfiles, installing scripts, locks and markers say of releases; which of them counts for a run."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet

from zerocfg.catalog.versions import both, bounds, either, release
from zerocfg.frontends.registry import front_end, names
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run
from zerocfg.run.releases import versions_for, with_versions
from zerocfg.run.requirements.ceilings import allowed
from zerocfg.source.requirements.installs import read_dockerfile, read_installs
from zerocfg.source.requirements.manifests import read_lock, read_pipfile, read_pyproject, read_setup_cfg
from zerocfg.source.requirements.markers import ENVIRONMENTS, environments_where
from zerocfg.source.requirements.setup_script import read_setup_script
from zerocfg.source.text import SourceText

LISTED = """
from setuptools import setup
setup(name="x", version="1.2", install_requires=["trl==0.9.6", "numpy", "deepspeed>=0.14,<0.17"])
"""
OF_A_LIST = """
import setuptools, re
_deps = ["deepspeed==0.16.8", "transformers>=4.52.3,<5", "black==23.1"]
deps = {b: a for a, b in (re.findall(r"^(([^!=<>~ ]+)(?:[!=<>~ ].*)?$)", x)[0] for x in _deps)}
extras = {}
extras["trl"] = ["trl[vllm]==0.18.0"]
install_requires = [deps["transformers"]]
install_requires.append("accelerate==1.4.0; python_version >= '3.9'")
setuptools.setup(name="x", install_requires=install_requires, extras_require=extras)
"""
OF_A_FUNCTION = """
import os
from setuptools import setup
def read(name):
    with open(os.path.join(os.path.dirname(__file__), name)) as file:
        return [line for line in file if not line.startswith("git+")]
required, _ = read("requirements/base.txt"), 1
arguments = {"name": "x", "install_requires": required, "extras_require": {"zero": read("requirements-zero.txt")}}
setup(**arguments)
"""
OPENED = """
from setuptools import setup
with open("requirements.txt") as file:
    lines = file.read().splitlines()
setup(install_requires=[line for line in lines if line])
"""
SETUPS: dict[str, tuple[str, list[tuple[str, str | None]], list[tuple[str, str | None]], list[str]]] = {
    "a list": (LISTED, [("trl", "==0.9.6"), ("deepspeed", ">=0.14,<0.17")], [], []),
    "picked from a list": (
        OF_A_LIST,
        [("accelerate", "==1.4.0"), ("deepspeed", "==0.16.8"), ("transformers", ">=4.52.3,<5"), ("black", "==23.1")],
        [("trl", "==0.18.0")],
        [],
    ),
    "a function": (OF_A_FUNCTION, [], [], ["requirements/base.txt"]),
    "an open file": (OPENED, [], [], ["requirements.txt"]),
    "a commit": (
        'from setuptools import setup\nsetup(install_requires=["transformers @ git+https://example.com/t.git@1c39974"])',
        [("transformers", None)],
        [],
        [],
    ),
    "made at run time": (
        'import setuptools\nsetuptools.setup(install_requires=[f"trl=={V}", "trl==" + V])',
        [],
        [],
        [],
    ),
    "no requirement": (
        'from setuptools import setup\ndef f():\n    raise E("deepspeed >= 0.1 it is")\nsetup(install_requires=f())',
        [],
        [],
        [],
    ),
    "a list with its type": (
        'from setuptools import setup\nneeds: list[str] = ["deepspeed==0.16.9"]\nneeds += ["trl==0.9.6"]\n'
        "setup(install_requires=needs)",
        [("deepspeed", "==0.16.9"), ("trl", "==0.9.6")],
        [],
        [],
    ),
    "no setup": ('x = ["trl==1.0"]\n', [], [], []),
    "no Python": ('print "trl==1.0"\nsetup(install_requires=["trl==1.0"])\n', [], [], []),
}


@pytest.mark.parametrize("name", SETUPS)
def test_setup_py(name: str) -> None:
    text, firm, extra, files = SETUPS[name]
    found, includes = read_setup_script(text)
    assert sorted((one.name, one.versions) for one in found if not one.optional and not one.own) == sorted(
        firm, key=lambda pair: pair[0]
    )
    assert [(one.name, one.versions) for one in found if one.optional] == extra and includes == files
    for one in found:
        if one.own:
            continue
        written = text[one.span.start : one.span.end]
        assert written.lower().startswith(one.name) and text[one.span.start - 1] == text[one.span.end] in "\"'"


def test_a_copy_of_a_library_is_that_library() -> None:
    (own, *_), _ = read_setup_script('from setuptools import setup\nsetup(name="accelerate", version="1.15.0.dev0")\n')
    assert (own.name, own.versions, own.own) == ("accelerate", "==1.15.0.dev0", True)
    (own, *_), _ = read_pyproject('[project]\nname = "trl"\ndynamic = ["version"]\n')
    assert (own.name, own.versions, own.own) == ("trl", None, True)
    (own, *_), _ = read_setup_cfg("[metadata]\nname = deepspeed\nversion = 0.17.2\n")
    assert (own.name, own.versions, own.own) == ("deepspeed", "==0.17.2", True)


DOCKERFILES = {
    "RUN pip install deepspeed==0.14.5 'transformers>=4.40,<4.50'\n": {
        "deepspeed": "==0.14.5",
        "transformers": ">=4.40,<4.50",
    },
    "ARG V=0.16.4\nENV T 4.46.3\nENV A=1.2 B=3\nRUN pip3.11 install deepspeed==${V} transformers==$T accelerate==$A": {
        "deepspeed": "==0.16.4",
        "transformers": "==4.46.3",
        "accelerate": "==1.2",
    },
    "ARG V\nRUN pip3 install deepspeed==$V": {"deepspeed": None},
    "RUN --mount=type=cache,target=/x \\\n  # the trainer\n  uv pip install --system -U \\\n trl==0.9.6 deepspeed": {
        "trl": "==0.9.6",
        "deepspeed": None,
    },
    "RUN apt-get update && pip install -q --extra-index-url https://example.com trl==1.0 ; true": {"trl": "==1.0"},
    "RUN if [ x ]; then pip install trl==0.9; else pip install trl==0.10; fi": {"trl": "==0.9|==0.10"},
    "RUN bash -c 'pip install trl==0.9'": {"trl": "==0.9"},
    "RUN <<EOF\npip install trl==0.9\n# of the shell\npip install accelerate==1.2\nEOF\nRUN pip install torch==2.1": {
        "trl": "==0.9",
        "accelerate": "==1.2",
        "torch": "==2.1",
    },
    "RUN --mount=type=cache,target=/x bash -e <<-'E'\n\tpip install \\\n\t  trl==0.9\n\tE\nENV A=1": {"trl": "==0.9"},
    "RUN cat <<EOF > r.txt\npip install trl==0.9\nEOF\nRUN pip install torch==2.1": {"torch": "==2.1"},
    "COPY <<EOF r.txt\nRUN pip install trl==0.9\nEOF\nRUN pip install torch==2.1": {"torch": "==2.1"},
    "RUN python3 - <<EOF\nRUN pip install trl==0.9\nEOF\nRUN pip install torch==2.1": {"torch": "==2.1"},
    "RUN echo 'a <<EOF b'\nRUN pip install torch==2.1": {"torch": "==2.1"},
    "RUN conda install -y -c conda-forge deepspeed=0.16 accelerate": {"deepspeed": "==0.16.*", "accelerate": ""},
    "RUN /opt/bin/micromamba run -n train pip install deepspeed==0.14.5": {"deepspeed": "==0.14.5"},
    "RUN conda run --no-capture-output -p /env python -m pip install trl==0.9": {"trl": "==0.9"},
    "RUN poetry run pip install accelerate==1.2": {"accelerate": "==1.2"},
    "RUN conda run -n pip install trl==0.9": {},  # pip is the name of the environment
    "RUN pip install accelerate>=0.15.0": {"accelerate": ""},  # the shell writes into a file called =0.15.0
    "# RUN pip install trl==1\nCOPY pip install trl==1\nRUN pip uninstall trl==1 && echo pip install trl==1": {},
    'LABEL x="pip install trl==1"\nRUN pip download trl==1': {},
}


@pytest.mark.parametrize("text", DOCKERFILES)
def test_dockerfiles(text: str) -> None:
    found: dict[str, str | None] = {}
    for one in read_dockerfile(SourceText("Dockerfile", text))[0]:
        before = found.get(one.name)
        found[one.name] = f"{before}|{one.versions}" if before else one.versions
        if "$" not in text and "-c '" not in text:
            assert text[one.span.start : one.span.end].startswith(one.name)
    assert found == DOCKERFILES[text]


def test_included_files_of_commands() -> None:
    text = "pip install -r req/base.txt -c pins.txt\npip install --requirement=x.txt\n"
    assert read_installs(SourceText("install.sh", text))[1] == ["req/base.txt", "pins.txt"]


def test_conda_lock_and_pipfile() -> None:
    text = "version: 1\npackage:\n- name: deepspeed\n  version: 0.16.4\n  manager: pip\n- name: x\n  version: '1'\n"
    assert [(one.name, one.versions) for one in read_lock(text, ["deepspeed"])] == [("deepspeed", "==0.16.4")]
    found = read_pipfile('[packages]\ntrl = "==0.9.6"\n[dev-packages]\ndeepspeed = {version = ">=0.14"}\n')
    assert [(one.name, one.versions, one.optional) for one in found] == [
        ("trl", "==0.9.6", False),
        ("deepspeed", ">=0.14", True),
    ]


@pytest.mark.parametrize(
    "marker",
    [
        "sys_platform == 'linux'",
        "sys_platform == 'darwin' or platform_system == 'Windows'",
        "python_version < '3.10' and platform_machine == 'x86_64'",
        "python_full_version >= '3.12'",
        "extra == 'dev'",
    ],
)
def test_markers_hold_where_packaging_says(marker: str) -> None:
    linux = {"sys_platform": "linux", "platform_system": "Linux", "extra": ""}
    places = {
        (python, machine)
        for python, machine in ENVIRONMENTS
        if Marker(marker).evaluate(
            {**linux, "python_version": python, "python_full_version": f"{python}.0", "platform_machine": machine}
        )
    }
    assert environments_where(marker) == places


def test_a_marker_that_nobody_can_read_may_hold() -> None:
    assert environments_where("python_version <> 3") == environments_where("a") == ENVIRONMENTS


CLAUSES = st.tuples(
    st.sampled_from(["==", ">=", "<=", "<", ">"]), st.sampled_from("0.9 0.10 0.16.4 0.17 1.0 1.2.3".split())
)
KNOWN_TRANSFORMERS = [f"{major}.{minor}.{patch}" for major in (4, 5) for minor in range(58) for patch in range(5)]
KNOWN = [f"{a}.{b}.{c}" for a, b, c in itertools.product((0, 1), (*range(1, 4), 9, 10, 16, 17, 18), range(5))]


@given(st.lists(st.lists(CLAUSES.map("".join), min_size=1, max_size=2).map(",".join), min_size=1, max_size=3))
@settings(max_examples=300, deadline=None)
def test_together_and_choices_admit_what_packaging_says(declared: list[str]) -> None:
    admits = [{one for one in KNOWN if SpecifierSet(each).contains(one)} for each in declared]
    joined = both(declared)
    if joined is not None:
        assert {one for one in KNOWN if SpecifierSet(joined).contains(one)} == set.intersection(*admits)
    else:
        assert not set.intersection(*admits)
    if all(bounds(each) is not None for each in declared):
        hull = either(declared)
        assert hull is not None
        assert set.union(*admits) <= {one for one in KNOWN if SpecifierSet(hull).contains(one)}
        assert not hull or bounds(hull) is not None


def write(folder: Path, files: Mapping[str, str]) -> Path:
    (folder / ".git").mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


PIN = "deepspeed==0.16.4\n"
FOLDERS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "setup.py and what it opens": ({"setup.py": OPENED, "requirements.txt": PIN}, {"deepspeed": "==0.16.4"}),
    "a range and a pin": (
        {"setup.py": LISTED, "requirements.txt": PIN},
        {"deepspeed": "==0.16.4,>=0.14,<0.17", "trl": "==0.9.6"},
    ),
    "what cannot hold together is a choice": (
        {"environment.yml": "dependencies:\n- pip:\n  - deepspeed==0.17.2\n", "requirements.txt": PIN},
        {"deepspeed": ">=0.16.4,<=0.17.2"},
    ),
    "one of two Pythons": (
        {"requirements.txt": "trl<=0.9; python_version<'3.10'\ntrl>=0.8,<=0.12; python_version>='3.10'\n"},
        {"trl": "<=0.12.0"},
    ),
    "another system": ({"requirements.txt": "trl==0.9; sys_platform=='darwin'\ntrl==0.11\n"}, {"trl": "==0.11"}),
    "another system alone": ({"requirements.txt": "trl==0.9; sys_platform=='win32'\n"}, {}),
    "a Dockerfile beside": ({"docker/Dockerfile": "RUN pip install deepspeed==0.14.5\n"}, {"deepspeed": "==0.14.5"}),
    "a Dockerfile against a pin": (
        {"Dockerfile": "RUN pip install deepspeed==0.14.5\n", "requirements.txt": PIN},
        {"deepspeed": "==0.16.4"},
    ),
    "one of two Dockerfiles": (
        {"docker/Dockerfile": "RUN pip install trl\n", "docker/Dockerfile.b": "RUN pip install deepspeed==0.14.5\n"},
        {},
    ),
    "both Dockerfiles": (
        {"Dockerfile": "RUN pip install trl==0.9\n", "docker/Dockerfile.b": "RUN pip install trl==0.11\n"},
        {"trl": ">=0.9.0,<=0.11.0"},
    ),
    "an extra alone": (
        {"pyproject.toml": '[project.optional-dependencies]\na = ["trl==0.9"]\nb = ["trl==0.11"]\n'},
        {"trl": ">=0.9.0,<=0.11.0"},
    ),
    "an extra beside a pin": (
        {"pyproject.toml": '[project.optional-dependencies]\na = ["deepspeed==0.9"]\n', "requirements.txt": PIN},
        {"deepspeed": "==0.16.4"},
    ),
    "an extra or another file": (
        {
            "pyproject.toml": '[project.optional-dependencies]\na = ["deepspeed==0.16.9"]\n',
            "requirements-dev.txt": PIN,
        },
        {"deepspeed": ">=0.16.4,<=0.16.9"},
    ),
    "a script that installs": ({"setup_env.sh": "pip install deepspeed==0.14.5\n"}, {"deepspeed": "==0.14.5"}),
    "a script that trains": (
        {"train.sh": "pip install deepspeed==0.14.5\ndeepspeed train.py --deepspeed ds.json\n"},
        {},
    ),
    "a README": ({"README.md": "    pip install deepspeed==0.14.5\n"}, {}),
    "constraints": ({"requirements.txt": "deepspeed\n-c c.txt\n", "c.txt": PIN}, {"deepspeed": "==0.16.4"}),
    "constraints alone": ({"constraints.txt": PIN}, {}),
    "a copy of the library": (
        {"pyproject.toml": '[project]\nname = "trl"\nversion = "1.2.0.dev0"\n', "requirements.txt": "trl==0.1\n"},
        {"trl": "==1.2.0.dev0"},
    ),
    "a copy of unknown release": (
        {"pyproject.toml": '[project]\nname = "trl"\ndynamic = ["version"]\n', "requirements.txt": "trl==0.1\n"},
        {},
    ),
    "uv's override": (
        {"pyproject.toml": '[project]\ndependencies = ["trl<1"]\n[tool.uv]\noverride-dependencies = ["trl==1.1"]\n'},
        {"trl": "==1.1"},
    ),
    "setuptools' dynamic": (
        {"pyproject.toml": '[tool.setuptools.dynamic]\ndependencies = {file = ["r.txt"]}\n', "r.txt": PIN},
        {"deepspeed": "==0.16.4"},
    ),
    "setup.cfg's file": (
        {"setup.cfg": "[options]\ninstall_requires = file: r.txt\n", "r.txt": PIN},
        {"deepspeed": "==0.16.4"},
    ),
}


@pytest.mark.parametrize("name", FOLDERS)
def test_a_folder(name: str, tmp_path: Path) -> None:
    files, wanted = FOLDERS[name]
    write(tmp_path, files)
    assert {library: one.clauses for library, one in versions_for(tmp_path).items()} == wanted


TRAINER = """
from transformers import Trainer, TrainingArguments
from transformers.utils import check_min_version
from transformers.utils.versions import require_version
{checks}
def main():
    {inside}
    Trainer(args=TrainingArguments(output_dir="o", deepspeed="ds.json")).train()
main()
"""
DS = '{"train_micro_batch_size_per_gpu": 1}'
LINE = "deepspeed {script} --deepspeed ds.json\n"


def run_in(folder: Path, files: Mapping[str, str], monkeypatch: pytest.MonkeyPatch) -> Run:
    write(folder, files)
    monkeypatch.chdir(folder)
    runs, _ = find_runs([folder], Files(), root=folder, scripts=True)
    (run,) = [one for one in with_versions(runs, {}) if one.launch is not None or one.framework_recipe is not None]
    return run


def script(checks: str = "", inside: str = "pass") -> str:
    return TRAINER.format(checks=checks, inside=inside)


@pytest.mark.parametrize(
    ("checks", "inside", "pins", "wanted"),
    [
        ('check_min_version("4.40.0.dev0")', "pass", "", ">=4.40.0.dev0"),
        ('check_min_version("4.40.0")', "pass", "transformers<4.50\n", "<4.50,>=4.40.0"),
        ('check_min_version("4.40.0")', "pass", "transformers==4.30\n", ">=4.40.0"),  # 4.30 does not start
        ('require_version("transformers>=4.41,<=4.46.1", "why")', "pass", "", ">=4.41,<=4.46.1"),
        ("", 'check_min_version("4.40.0")', "", None),  # perhaps never called
        ("check_min_version(VERSION)", "pass", "", None),
    ],
)
def test_what_the_script_checks(
    checks: str, inside: str, pins: str, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train.py": script(checks, inside), "run.sh": LINE.format(script="train.py"), "ds.json": DS}
    run = run_in(tmp_path, {**files, "requirements.txt": pins}, monkeypatch)
    assert run.versions.get("transformers") == wanted


def test_the_check_of_another_library_is_none_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = script().replace("from transformers.utils import", "from diffusers.utils import")
    files = {"train.py": text.replace("def main", 'check_min_version("0.30.0")\ndef main'), "ds.json": DS}
    run = run_in(tmp_path, {**files, "run.sh": LINE.format(script="train.py")}, monkeypatch)
    assert "transformers" not in run.versions


def test_the_nearest_to_the_script_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "a/train.py": script(),
        "a/requirements.txt": "deepspeed==0.14.5\n",
        "b/requirements.txt": "deepspeed==0.17.0\ntrl==0.9\n",
        "b/run.sh": "deepspeed ../a/train.py --deepspeed ds.json\n",
        "b/ds.json": DS,
    }
    run = run_in(tmp_path, files, monkeypatch)
    assert run.script is not None and run.deepspeed is not None
    assert run.versions == {"deepspeed": "==0.14.5", "trl": "==0.9"}


def test_what_the_launch_script_installs_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "pip install deepspeed==0.12.6\npip install -U transformers\n" + LINE.format(script="train.py")
    files = {"train.py": script(), "run.sh": line, "ds.json": DS, "requirements.txt": PIN + "transformers==4.40\n"}
    run = run_in(tmp_path, files, monkeypatch)
    assert run.versions == {"deepspeed": "==0.12.6"}  # of transformers the newest of its day
    (place,) = run.version_places["deepspeed"]
    assert place.file is not None and place.file.name == "run.sh"


LLAMA = "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\ndeepspeed: ds.json\noutput_dir: o\n"


@pytest.mark.parametrize(
    ("pins", "library", "wanted"),
    [
        ("llamafactory==0.9.3\n", "deepspeed", ">=0.10.0,<=0.16.9"),
        ("llamafactory==0.9.3\ndeepspeed>=0.15\n", "deepspeed", ">=0.15,>=0.10.0,<=0.16.9"),
        ("llamafactory>=0.9.0,<0.9.2\n", "accelerate", ">=0.30.1,<=1.0.1"),
        ("llamafactory==0.9.3\ndeepspeed==0.18.0\n", "deepspeed", "==0.18.0"),  # installed against its word
        ("", "transformers", "<=5.6.0"),  # any release of it, of which none goes further
        ("transformers==4.45.0\n", "transformers", "==4.45.0"),
        ("llamafactory==0.9.5\n", "transformers", ">=4.55.0,<=5.6.0,!=4.52.0,!=4.57.0"),
        ("", "deepspeed", None),
        ("llamafactory @ git+https://example.com/llamafactory\n", "transformers", None),
        ("llamafactory==7\n", "transformers", None),
    ],
)
def test_a_framework_bounds_the_range(
    pins: str, library: str, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"sft.yaml": LLAMA, "run.sh": "llamafactory-cli train sft.yaml\n", "ds.json": DS, "requirements.txt": pins}
    run = run_in(tmp_path, files, monkeypatch)
    assert run.consumer == "llamafactory" and run.versions.get(library) == wanted


@pytest.mark.parametrize(
    ("files", "wanted"),
    [  # the newest releases that resolving leaves: 4.39.3, 4.55.4, 4.57.6
        ({"requirements.txt": "transformers>=4.37.2\ntokenizers==0.15.1\n"}, ">=4.37.2,<=4.39.3"),
        ({"requirements.txt": "transformers\ntokenizers<0.22\n"}, "<=4.55.4"),
        ({"requirements.txt": "transformers\n", "more/requirements.txt": "tokenizers<0.22\n"}, None),
        ({"requirements.txt": "transformers\ntokenizers>=0.1\n"}, None),
        ({"requirements.txt": "transformers[torch]\ntorch<=2.4.0\n"}, "<=5.14.1"),
        ({"requirements.txt": "transformers\ntorch<=2.4.0\n"}, None),  # needs no torch
        ({"requirements.txt": "transformers>=4.50\ntokenizers<0.22\n"}, ">=4.50,<=4.55.4"),
        ({"requirements.txt": "transformers>=4.53.3\nhuggingface_hub[cli]>=0.33.4,<1.0\n"}, ">=4.53.3,<=4.57.6"),
        ({"requirements.txt": "transformers>=4.53.3\nhuggingface-hub>=0.33.4\ntokenizers>=0.13\n"}, ">=4.53.3"),
        ({"requirements.txt": "transformers==5.1.0\nhuggingface-hub<1.0\n"}, "==5.1.0"),
        ({"requirements-eval.txt": "transformers>=4.53.3\nhuggingface-hub<1.0\n"}, ">=4.53.3"),
        ({"requirements.txt": "transformers[torch]>=4.28.1,<5\ntorch>=1.13.1,<2\n"}, ">=4.28.1,<=4.47.1"),
        ({"requirements.txt": "transformers>=4.28.1,<5\ntorch>=1.13.1,<2\n"}, ">=4.28.1,<5"),  # needs no torch
        ({"requirements.txt": "transformers[torch,sentencepiece]>=4.28\ntorch>=2.1\n"}, ">=4.28"),
        # the extra asks for accelerate>=0.26.0 from 4.45 on
        ({"requirements.txt": "transformers[torch]\naccelerate==0.25.0\n"}, "<=4.44.2"),
        ({"requirements.txt": "transformers\naccelerate==0.25.0\n"}, None),
        (
            {
                "requirements.txt": "transformers>=5\n",
                "setup.py": "from setuptools import setup\nsetup(install_requires=['huggingface-hub<1.0'])\n",
            },
            ">=5",
        ),
    ],
)
def test_what_transformers_needs_holds_it_back(
    files: dict[str, str], wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {**files, "train.py": script(), "run.sh": LINE.format(script="train.py")}
    assert run_in(tmp_path, files, monkeypatch).versions.get("transformers") == wanted


@pytest.mark.parametrize(
    ("pins", "wanted"),
    [  # Requires-Dist of TRL's wheels: accelerate>=0.34.0 since 0.12.0, >=1.4.0 since 0.19.0, >=1.10.1 since 1.16.0;
        # datasets>=2.21.0 since 0.12.0, >=3.0.0 since 0.16.0, >=4.7.0 since 1.0.0
        ("trl>=0.7.1\naccelerate==0.21.0\n", ">=0.7.1,<=0.11.4"),
        ("trl\naccelerate==0.33.0\n", "<=0.11.4"),
        ("trl\naccelerate==0.34.0\n", "<=0.18.2"),
        ("trl\naccelerate==1.3.0\n", "<=0.18.2"),
        ("trl\naccelerate==1.4.0\n", "<=1.15.0"),
        ("trl\naccelerate==1.10.0\n", "<=1.15.0"),
        ("trl\naccelerate==1.10.1\n", None),
        ("trl\naccelerate>=0.21.0\n", None),
        ("trl==0.12.0\naccelerate==0.21.0\n", "==0.12.0"),
        ("trl\ndatasets==2.19.0\n", "<=0.11.4"),
        ("trl\ndatasets<3\n", "<=0.15.2"),
        ("trl\ndatasets==4.6.1\n", "<=0.29.1"),
        ("trl\ndatasets==4.7.0\n", None),
        # transformers 4.40 to 4.44 take tokenizers 0.19, and TRL 0.12.2 has no lowest transformers
        ("trl\ntokenizers==0.19.1\n", "<=0.12.2"),
    ],
)
def test_what_trl_needs_holds_it_back(
    pins: str, wanted: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"train.py": script(), "run.sh": LINE.format(script="train.py"), "ds.json": DS, "requirements.txt": pins}
    assert run_in(tmp_path, files, monkeypatch).versions.get("trl") == wanted


def test_the_spec_and_the_settings_win(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"train.py": script('check_min_version("4.40.0")'), "run.sh": LINE.format(script="train.py"), "ds.json": DS}
    run = run_in(tmp_path, files, monkeypatch)
    (same,) = with_versions([replace(run, versions={}, version_places={})], {"transformers": "4.57"})
    assert same.versions == {"transformers": "4.57"} and not same.version_places


@pytest.mark.parametrize("name", names())
def test_limits_of_frameworks_are_ranges(name: str) -> None:
    framework = front_end(name)
    assert framework is not None and framework.facts is not None
    facts, package = framework.facts, framework.facts.package
    for number, limits in facts.requires.items():
        assert release(number) and all(bounds(clauses) is not None for clauses in limits.values())
    assert list(facts.requires) == sorted(facts.requires, key=release)
    newest = list(facts.requires)[-1]
    known = facts.requires[newest]["transformers"]
    assert allowed(facts, newest, "transformers") == (known, f"{package} {newest}")
    ceiling, said = allowed(facts, None, "transformers") or ("", "")
    top = {one for one in KNOWN_TRANSFORMERS if SpecifierSet(ceiling).contains(one)}
    wanted = {one for one in KNOWN_TRANSFORMERS if SpecifierSet(known).contains(one)}
    assert wanted <= top and max(top, key=release) == max(wanted, key=release) and said == f"{package} up to {newest}"


@given(st.text(alphabet=st.sampled_from("RUNENVARG pipinstalldeepspeed==0.1$V{}\\\n#'\"&;|-r><()=\t\0é")))
@settings(max_examples=300, deadline=None)
def test_no_text_raises(text: str) -> None:
    source = SourceText("Dockerfile", f"RUN pip install {text}")
    read_dockerfile(source)
    read_installs(source)
    read_setup_script(f"from setuptools import setup\nsetup(install_requires={text})")
    read_pipfile(text)
