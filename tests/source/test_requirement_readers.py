"""Requirements of files and commands, against what packaging and pip make of the same words."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Theirs
from packaging.utils import canonicalize_name

from zerocfg.source.launch.markdown import named_blocks, shell_blocks
from zerocfg.source.requirements.cog import read_cog
from zerocfg.source.requirements.installs import read_dockerfile, read_installs
from zerocfg.source.requirements.manifests import read_environment, read_lock, read_pyproject, read_setup_cfg
from zerocfg.source.requirements.pip import Requirement, argument, parse_requirement, read_requirements
from zerocfg.source.requirements.python import read_image, read_setup, read_version_file
from zerocfg.source.requirements.setup_script import read_setup_script
from zerocfg.source.secrets import SecretWord, masked, secret_words
from zerocfg.source.text import SourceText


def told(found: list[Requirement]) -> list[tuple[str, str | None]]:
    return [(one.name, one.versions) for one in found]


@pytest.mark.parametrize(
    "text",
    [
        "trl",
        "Deep_Speed.x",
        "trl==1.0",
        "trl == 1.0",
        "trl>=1,<2",
        "trl >= 1 , != 1.5",
        "trl (>=1)",
        "trl[quant, peft]>=1",
        "trl[Deep_Speed]",
        'trl>=1; python_version < "3.9"',
        "trl~=1.2",
        "trl===1.0",
        "trl==1.*",
        "trl;sys_platform=='linux'",
        "trl @ git+https://github.com/x/trl@v1.2.0",
        "trl >> 1",
        "trl=1",
        "trl 1",
        "[x]",
        "_trl",
        "==1",
    ],
)
def test_requirements_as_packaging_reads_them(text: str) -> None:
    found = parse_requirement(text, 5)
    try:
        theirs = Theirs(text)
    except InvalidRequirement:
        assert found is None or found.versions is None
        return
    assert found is not None and found.name == canonicalize_name(theirs.name)
    assert set(found.extras) == {canonicalize_name(one) for one in theirs.extras}
    assert bool(found.marker) is (theirs.marker is not None)
    assert tuple(found.span) == (5, 5 + len(text))
    if theirs.url is not None:
        assert found.versions == "==1.2.0"
    else:
        clauses = {one.strip().replace(" ", "") for one in (found.versions or "").split(",") if one.strip()}
        assert clauses == {str(one) for one in theirs.specifier}


@pytest.mark.parametrize(
    ("word", "name", "versions"),
    [
        ("git+https://github.com/x/trl.git@v1.2.0", "trl", "==1.2.0"),
        ("git+https://github.com/x/trl@main", "trl", None),
        ("git+https://github.com/x/paper.git@paper-hf", "transformers", None),
        ("git+https://github.com/x/paper@our_trl", "trl", None),
        ("git+https://github.com/x/trl.git@hf-hub", "trl", None),
        ("git+https://github.com/x/paper.git@main", "paper", None),
        ("git+https://github.com/x/paper.git@half", "paper", None),
        ("git+https://github.com/x/paper.git@paper-hf#egg=paper", "paper", None),
        ("git+https://github.com/x/trl.git@1.2.0#egg=TRL_x", "trl-x", "==1.2.0"),
        ("-e git+ssh://git@github.com/x/trl.git", "trl", None),
        ("https://github.com/x/trl/archive/refs/tags/v1.2.zip", "v1.2.zip", "==1.2"),
        ("https://x.org/deepspeed-0.17.1-py3-none-any.whl", "deepspeed", "==0.17.1"),
        ("https://x.org/deepspeed-0.17.1+cu12.tar.gz", "deepspeed", "==0.17.1"),
        ("trl==1.0 --hash=sha256:00", "trl", "==1.0"),
        ("flash-attn>=2", "flash-attn", ">=2"),
    ],
)
def test_what_pip_is_given(word: str, name: str, versions: str | None) -> None:
    found = argument(word, 3)
    assert found is not None and (found.name, found.versions) == (name.replace(".", "-"), versions)
    assert found.span.start == 3


def test_a_file_of_requirements() -> None:
    text = (
        "# trl==9\n  trl==1.0  # ours\naccelerate \\\n  >=1\n-r more.txt\n--constraint=c.txt\n-cbare.txt\n\n"
        "-i https://x.org\ndeepspeed#x\npeft>=1 \\"
    )
    found, includes = read_requirements(text)
    assert told(found) == [("trl", "==1.0"), ("accelerate", ">=1"), ("deepspeed", None), ("peft", ">=1")]
    assert includes == ["more.txt", "c.txt", "bare.txt"]
    assert [text[slice(*one.span)].split("\n")[0] for one in found[:2]] == ["trl==1.0", "accelerate \\"]


@pytest.mark.parametrize(
    ("command", "found", "includes"),
    [
        ("pip install trl==1.0 'accelerate>=1'", [("trl", "==1.0"), ("accelerate", ">=1")], []),
        ("pip3.11 install trl", [("trl", "")], []),
        ("pip install -U trl deepspeed==0.18", [("trl", None), ("deepspeed", "==0.18")], []),
        ("pip install --pre trl", [("trl", None)], []),
        ("pip -q install --quiet trl", [("trl", "")], []),
        ("pip install -i https://x trl --target t peft", [("trl", ""), ("peft", "")], []),
        ("pip install -r a.txt -c b.txt trl", [("trl", "")], ["a.txt", "b.txt"]),
        ("python -m pip install trl", [("trl", "")], []),
        ("python3 -m pipx install trl", [], []),
        ("sudo A=1 uv pip install trl", [("trl", "")], []),
        ("pip uninstall trl", [], []),
        ("pip download trl", [], []),
        ("conda install -c x trl=1.0 peft", [("trl", "==1.0.*"), ("peft", "")], []),
        ("conda create trl", [], []),
        ("micromamba run -n x --quiet pip install trl", [("trl", "")], []),
        ("poetry run pip install trl", [("trl", "")], []),
        ("echo pip install trl", [], []),
        ("pip install trl==$V", [("trl", None)], []),
        ("V=1.0; pip install trl==$V", [("trl", "==1.0")], []),
    ],
)
def test_what_commands_install(command: str, found: list[tuple[str, str | None]], includes: list[str]) -> None:
    assert (told(read_installs(SourceText("x.sh", command))[0]), read_installs(SourceText("x.sh", command))[1]) == (
        found,
        includes,
    )


def test_what_an_image_installs() -> None:
    text = (
        "FROM python:3.11-slim AS a\nARG V=1.0\nENV W 2.0\nENV X=3.0 Y=4\nCOPY pip install no\n# RUN pip install no\n"
        "RUN --mount=type=cache,target=/x pip install trl==$V \\\n# a remark\n  peft==$W\n"
        "run pip install 'deepspeed==3.0'\n"
        "CMD pip install no\n"
    )
    source = SourceText("Dockerfile", text)
    found, _ = read_dockerfile(source)
    assert told(found) == [("trl", "==1.0"), ("peft", "==2.0"), ("deepspeed", "==3.0")]
    assert [text[slice(*one.span)] for one in found] == ["trl==$V", "peft==$W", "deepspeed==3.0"]
    assert told(read_image(source)) == [("python", "==3.11.*")]


@pytest.mark.parametrize(
    ("command", "versions"),
    [
        ("conda create -n x python=3.9", ["==3.9.*"]),
        ("conda install 'python>=3.9'", [">=3.9"]),
        ("conda create -n x pythonic=3.9", []),
        ("conda env export python=3.9", []),
        ("python3.9 -m venv x", ["==3.9.*"]),
        ("python3 -m venv x", []),
        ("python3.9 -m pip x", []),
        ("uv venv --python 3.9", ["==3.9.*"]),
        ("uv venv --python=3.9.1", ["==3.9.*"]),
        ("uv venv -p", []),
        ("uv pip --python 3.9", []),
        ("virtualenv -p python3.9 x", ["==3.9.*"]),
        ("virtualenv -p /usr/bin/python x", [None]),
        ("pyenv local 3.9.1", ["==3.9.*"]),
        ("pyenv install 3.9.1", []),
        ("pyenv local", []),
        ("uv python pin 3.9", ["==3.9.*"]),
        ("uv python install 3.9", []),
    ],
)
def test_the_python_that_a_command_sets_up(command: str, versions: list[str | None]) -> None:
    assert [one.versions for one in read_setup(SourceText("x.sh", command))] == versions


def test_files_that_name_a_python() -> None:
    read: Callable[[str], list[str | None]] = lambda text: [  # noqa: E731
        one.versions for one in read_version_file(SourceText(".python-version", text))
    ]
    assert read("3.9.18\n") == read("python-3.9.18") == read("cpython@3.9") == ["==3.9.*"]
    assert read("# 3.8\n3.9\n 3.10 # x\n") == ["==3.9.*", "==3.10.*"]
    assert read("pypy3.9\n3\n") == [None, None]


def test_a_setup_script() -> None:
    text = (
        "from setuptools import setup\nneeds = ['trl>=1.0']\nneeds += ['peft==2']\nneeds.append('deepspeed<1')\n"
        "other = ['x>1']\nargs = {'name': 'mine', 'version': '3.0'}\n"
        "more = {'a': ['accelerate>=4', 'bare']}\n"
        "setup(install_requires=needs, extras_require=more, python_requires='>=3.9', **args)\n"
    )
    found, includes = read_setup_script(text)
    rows = {one.name: (one.versions, one.optional, one.own) for one in found}
    assert rows == {
        "mine": ("==3.0", False, True),
        "python": (">=3.9", False, False),
        "trl": (">=1.0", False, False),
        "peft": ("==2", False, False),
        "deepspeed": ("<1", False, False),
        "accelerate": (">=4", True, False),
    }
    assert includes == []
    assert text[slice(*next(one.span for one in found if one.name == "trl"))] == "trl>=1.0"
    opened = "with open('requirements.txt') as f:\n    r = f.read()\nsetup(install_requires=r)\n"
    assert read_setup_script(opened)[1] == ["requirements.txt"]
    assert read_setup_script("setup2(install_requires=['trl>=1'])\n") == ([], [])


def blocks(text: str) -> list[str]:
    return [one.text.replace("\0", "?") for one in shell_blocks(text)]


@pytest.mark.parametrize(
    ("page", "found"),
    [
        ("```bash\na\n```\nb\n```sh\nc\n```\n", ["a\n", "c\n"]),
        ("```python\na\n```\n", []),
        ("```\n$ a\nout\n$ b \\\n  c\nout\n```\n", ["a\nb \\\n  c\n"]),
        ("~~~bash\na\n```\n~~~\n", ["a\n```\n"]),
        ("```bash\na <your name> b\n```\n", ["a ??????????? b\n"]),
        ("```bash\na\n\n```bash\nb\n```\n", ["a\n\n", "b\n"]),
        ("> ```bash\n> a\n> ```\n", ["> a\n"]),
        ("text\n", []),
    ],
)
def test_blocks_of_a_page(page: str, found: list[str]) -> None:
    assert blocks(page) == found


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("`ds.json`:\n```json\n{}\n```\n", ["ds.json"]),
        ("```json title=ds.json\n{}\n```\n", ["ds.json"]),
        ("```yaml\n# ./conf/a.yaml\na: 1\n```\n", ["conf/a.yaml"]),
        ("`ds.json`:\n```json\n{...}\n```\n", []),
        ("`ds.json`:\n```bash\n{}\n```\n", []),
        ("> `ds.json`:\n> ```json\n> {}\n> ```\n", []),
        ("`a.json` and `b.json`:\n```json\n{}\n```\n", ["a.json", "b.json"]),
        ("`a.json`, `b.json`, `c.json`:\n```json\n{}\n```\n", []),
        ("```json\n{}\n```\n", []),
    ],
)
def test_files_that_a_page_shows(page: str, names: list[str]) -> None:
    assert [one.name for one in named_blocks(page)] == names


TOKEN = "hf_" + "a" * 20


def test_secrets_and_words_that_are_none() -> None:
    assert masked(f"x {TOKEN} y") == "x *** y" and masked(TOKEN[:-1]) == TOKEN[:-1]
    assert masked("password: abcdefgh12345678") == "password: ***"
    assert masked("password: abcdefgh1234567") == "password: abcdefgh1234567", "fifteen characters"
    assert masked("password: abcdefghijklmnop") == "password: abcdefghijklmnop", "no digit"
    assert masked("name: abcdefgh12345678") == "name: abcdefgh12345678"
    found = secret_words(["t.py", "--hub_token", TOKEN, f"--api-key={TOKEN}", TOKEN, "--x=1"])
    assert found == {
        2: SecretWord("", "HUB_TOKEN"),
        3: SecretWord("--api-key=", "API_KEY"),
        4: SecretWord("", "SECRET"),
    }


@pytest.mark.parametrize(
    ("poetry", "clauses"),
    [
        ("^1.2.3", ">=1.2.3,<2"),
        ("^0.2.3", ">=0.2.3,<0.3"),
        ("^0.0.3", ">=0.0.3,<0.0.4"),
        ("^0.0", ">=0.0,<0.1"),
        ("^1", ">=1,<2"),
        ("~1.2.3", ">=1.2.3,<1.3"),
        ("~1.2", ">=1.2,<1.3"),
        ("~1", ">=1,<2"),
        ("1.2", "==1.2"),
        ("1.*", "==1.*"),
        (">=1,<2", ">=1,<2"),
        ("*", ""),
        ("^1.2, !=1.5", ">=1.2,<2,!=1.5"),
        ("^1 || ^2", None),
    ],
)
def test_versions_of_poetry(poetry: str, clauses: str | None) -> None:
    """The table of Poetry's own documentation on dependency specification."""
    text = f'[tool.poetry.dependencies]\ntrl = "{poetry}"\n'
    assert told(read_pyproject(text)[0]) == [("trl", clauses)]


def test_the_tables_of_a_project() -> None:
    text = (
        '[project]\nname = "mine"\nversion = "2.0"\nrequires-python = ">=3.9"\ndependencies = ["trl>=1", "peft"]\n'
        '[project.optional-dependencies]\na = ["deepspeed==1"]\n[dependency-groups]\nb = ["x>2"]\n'
        '[tool.pdm.dev-dependencies]\nc = ["y<3"]\n[tool.uv]\ndev-dependencies = ["z"]\n'
        'constraint-dependencies = ["w<1"]\noverride-dependencies = ["peft==4"]\n[tool.uv.sources]\nx = {path = "."}\n'
        '[tool.setuptools.dynamic]\ndependencies = {file = ["r.txt"]}\n'
    )
    found, includes = read_pyproject(text)
    assert {one.name: (one.versions, one.optional, one.own) for one in found} == {
        "mine": ("==2.0", False, True),
        "python": (">=3.9", False, False),
        "trl": (">=1", False, False),
        "deepspeed": ("==1", True, False),
        "x": (None, True, False),
        "y": ("<3", True, False),
        "z": ("", True, False),
        "w": ("<1", False, False),
        "peft": ("==4", False, False),
    }
    assert includes == ["r.txt"]
    places = {one.name: text[slice(*one.span)] for one in found}
    assert (places["mine"], places["python"], places["trl"], places["w"]) == ("mine", '">=3.9"', "trl>=1", "w<1")


def test_places_in_other_manifests() -> None:
    text = (
        "name: x\ndependencies:\n  - c::trl=1.2\n  - python>=3.9\n  - peft=2.0=py_0\n"
        "  - pip:\n    - deepspeed<1\n    - -r r.txt\n"
    )
    data = yaml.safe_load(text)
    found, includes = read_environment(text, data)
    rows = [(one.name, one.versions, text[slice(*one.span)]) for one in found]
    assert rows == [
        ("trl", "==1.2.*", "c::trl=1.2"),
        ("python", ">=3.9", "python>=3.9"),
        ("peft", "==2.0", "peft=2.0=py_0"),
        ("deepspeed", "<1", "deepspeed<1"),
    ]
    assert includes == ["r.txt"]
    text = (
        "[metadata]\nname = mine\nversion = 1.0\n[options]\npython_requires = >=3.8\ninstall_requires =\n    trl>=1\n"
        "    peft\n[options.extras_require]\na =\n    deepspeed==2\n"
    )
    found, includes = read_setup_cfg(text)
    rows2 = [(one.name, one.versions, one.optional, text[slice(*one.span)]) for one in found]
    assert rows2 == [
        ("mine", "==1.0", False, "mine"),
        ("python", ">=3.8", False, ">=3.8"),
        ("trl", ">=1", False, "trl>=1"),
        ("peft", "", False, "peft"),
        ("deepspeed", "==2", True, "deepspeed==2"),
    ]
    assert includes == []
    listed = "[options]\ninstall_requires = file: a.txt, b.txt\n"
    assert read_setup_cfg(listed) == ([], ["a.txt", "b.txt"])


@pytest.mark.parametrize(
    "text",
    [
        'name = "trl"\nversion = "1.0"\n\n[[package]]\nname = "peft"\nversion = "2.0"\n',
        '{"default": {"trl": {"hashes": [], "version": "==1.0"}, "x": {"version": "==3"}}}',
        "package:\n- name: trl\n  version: 1.0\n- name: x\n  version: 3\n",
    ],
)
def test_locked_releases(text: str) -> None:
    (found,) = read_lock(text, ["trl"])
    assert (found.name, found.versions, text[slice(*found.span)]) == ("trl", "==1.0", "1.0")


def test_what_of_a_project_is_optional() -> None:
    """Groups and extras are alternatives; what every installation takes is not."""
    text = (
        '[project]\ndependencies = ["trl==1.0"]\n[project.optional-dependencies]\na = ["accelerate==1.1"]\n'
        '[dependency-groups]\nb = ["deepspeed==0.16.4"]\n[tool.pdm.dev-dependencies]\nc = ["peft==0.1"]\n'
        '[tool.poetry.dependencies]\ntransformers = "4.50.0"\n[tool.poetry.dev-dependencies]\nnumpy = "2.0"\n'
        '[tool.poetry.group.d.dependencies]\nscipy = "1.0"\n'
        '[tool.uv]\ndev-dependencies = ["vllm==0.9"]\nconstraint-dependencies = ["datasets<4"]\n'
    )
    found, _ = read_pyproject(text)
    assert {one.name for one in found if one.optional} == {"accelerate", "deepspeed", "peft", "numpy", "scipy", "vllm"}
    assert {one.name for one in found if not one.optional} == {"trl", "transformers", "datasets"}


def test_files_that_a_project_takes_in() -> None:
    text = "[tool.setuptools.dynamic]\ndependencies = {file = %s}\n"
    for written, files in (
        ('["r.txt", 3, "s.txt"]', ["r.txt", "s.txt"]),
        ('"r.txt"', ["r.txt"]),
        ("3", []),
        ("{}", []),
    ):
        assert read_pyproject(text % written)[1] == files


def test_requirements_that_conda_exported() -> None:
    """pip refuses a single `=`; conda reads it as it reads what `conda list --export` wrote."""
    text = (
        "# platform: linux-64\ntransformers=4.37.2=pypi_0  # c\ntrl=0.9\naccelerate==0.27.2\ndeepspeed= 0.9\n"
        "peft~=0.4\ntorch=2.1.2=py3.10_cuda12.1\n"
    )
    found, _ = read_requirements(text)
    assert [(item.name, item.versions, text[slice(*item.span)]) for item in found] == [
        ("transformers", "==4.37.2", "transformers=4.37.2=pypi_0"),
        ("trl", "==0.9.*", "trl=0.9"),
        ("accelerate", "==0.27.2", "accelerate==0.27.2"),
        ("deepspeed", None, "deepspeed= 0.9"),
        ("peft", "~=0.4", "peft~=0.4"),
        ("torch", "==2.1.2", "torch=2.1.2=py3.10_cuda12.1"),
    ]


def test_cog_lists_packages_and_runs_commands() -> None:
    text = (
        "train: train.py:train\nbuild:\n  gpu: true\n  python_requirements: needs.txt\n"
        "  python_packages:\n    - torch==2.0.0\n    - accelerate>=0.18\n  run:\n    - pip install git+https://github.com/huggingface/transformers.git@786092a\n"
        "    - command: pip install trl==0.4.7\n    - echo deepspeed==1\n"
    )
    found, included = read_cog(text, yaml.safe_load(text))
    assert told(found) == [("torch", "==2.0.0"), ("accelerate", ">=0.18"), ("transformers", None), ("trl", "==0.4.7")]
    assert included == ["needs.txt"]
    assert [text[slice(*one.span)] for one in found[:2]] == ["torch==2.0.0", "accelerate>=0.18"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "- torch",
        "{train: x, build: 3}",
        "{train: x, build: {python_packages: torch, run: [3, {command: 4}]}}",
        "{predict: x, build: {python_packages: [torch==2.0.0]}}",
    ],
)
def test_cog_without_packages(text: str) -> None:
    assert read_cog(text, yaml.safe_load(text)) == ([], [])
