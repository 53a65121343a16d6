"""What a repository points to outside of itself is neither opened nor changed, by any command.

One repository holds every way out: each kind of pointer by each route. CPython's audit events tell what a command
opens; what it prints and writes is searched for the secret that all files outside hold.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.lsp.editor import editor
from zerocfg.report.formats import FORMATS
from zerocfg.source import boundary, disk

SECRET = "b0undary5ecret"
OUTSIDE: Mapping[str, str] = {
    "ds.json": json.dumps({"train_micro_batch_size_per_gpu": 1, SECRET: 1, "zero_optimization": {"stage": 3}}),
    "acc.yaml": f"distributed_type: DEEPSPEED\nnum_processes: 8\n{SECRET}: 1\n",
    "recipe.yaml": f"output_dir: {SECRET}\nper_device_train_batch_size: 1\nlearning_rate: {SECRET}\nbf16: {SECRET}\n",
    "train.py": "from transformers import Trainer, TrainingArguments\n"
    f"Trainer(args=TrainingArguments('{SECRET}', lr_scheduler_type='{SECRET}', {SECRET}=1)).train()\n",
    "helper.py": f"ARGUMENTS = dict(lr_scheduler_type='{SECRET}', {SECRET}=1)\n",
    "run.sh": f"accelerate launch --{SECRET} 1 --config_file {SECRET}.yaml train.py --{SECRET}\n",
    "base.yaml": f"version: 1\nbases:\n  it:\n    {SECRET}: 1\n    consumer: {SECRET}\nruns: {{}}\n",
    "config.json": json.dumps({"model_type": SECRET, "hidden_size": 64, "architectures": [SECRET], SECRET: 1}),
    "hw.json": json.dumps({SECRET: 1, "name": SECRET}),
    "known.json": json.dumps({SECRET: 1}),
    "policy.json": json.dumps({"properties": {SECRET: False}, "required": [SECRET]}),
    "signers": f"{SECRET} ssh-ed25519 {SECRET}\n",
    "zerocfg.lock": json.dumps({"version": 1, "run": SECRET, SECRET: 1, "settings": {SECRET: {"value": SECRET}}}),
    "latest": f"{SECRET}\n",
    "requirements.txt": f"deepspeed=={SECRET}\n",
    "key.pem": f"-----BEGIN OPENSSH PRIVATE KEY-----\n{SECRET}\n-----END OPENSSH PRIVATE KEY-----\n",
}
ROUTES: Mapping[str, str] = {
    "relative": "../../outside/{}",
    "absolute": "{outside}/{}",
    "link": "link-{}",
    "folder": "folder/{}",
    "dotted": "./folder/.//{}",
    "home": "~/{}",
    "variable": "$HOME/{}",
    "proc": "/proc/self/cwd/../outside/{}",
}
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: {}\n"
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\ndeepspeed: {}\n"
SCRIPT = (
    "from transformers import Trainer, TrainingArguments\n"
    "Trainer(args=TrainingArguments('out', deepspeed='{}')).train()\n"
)
SPEC = (
    "version: 1\nruns:\n  it:\n    consumer: transformers\n"
    "    script: train.py\n    hardware: 8xA100-80GB\n    {}: {}\n"
)
POINTERS: Mapping[str, tuple[str, str, str]] = {
    "deepspeed_config_file": ("acc.yaml", ACCELERATE, "ds.json"),
    "a key as DeepSpeed file": ("acc.yaml", ACCELERATE, "key.pem"),
    "config_file": ("run.sh", "accelerate launch --config_file {} train.py\n", "acc.yaml"),
    "option": ("run.sh", "deepspeed train.py --deepspeed {}\n", "ds.json"),
    "recipe of a line": ("run.sh", "accelerate launch train.py --config {}\n", "recipe.yaml"),
    "deepspeed of a recipe": ("recipe.yaml", RECIPE, "ds.json"),
    "script": ("run.sh", "accelerate launch {} --lr 1\n", "train.py"),
    "argument in code": ("train.py", SCRIPT, "ds.json"),
    "model": ("zerocfg.yaml", SPEC.format("model", "{}"), "config.json"),
    "hardware": ("zerocfg.yaml", SPEC.partition("8xA100")[0] + "{}\n", "hw.json"),
    "accelerate of a spec": ("zerocfg.yaml", SPEC.format("accelerate", "{}"), "acc.yaml"),
    "deepspeed of a spec": ("zerocfg.yaml", SPEC.format("deepspeed", "{}"), "ds.json"),
    "recipe of a spec": ("zerocfg.yaml", SPEC.format("recipe", "{}"), "recipe.yaml"),
    "launch of a spec": ("zerocfg.yaml", SPEC.format("launch", "{}"), "run.sh"),
    "extends": ("zerocfg.yaml", "version: 1\nruns:\n  it:\n    extends: ['{}#it']\n", "base.yaml"),
    "baseline": ("zerocfg.toml", 'baseline = "{}"\n', "known.json"),
    "policies": ("zerocfg.toml", '[gate]\npolicies = ["{}"]\n', "policy.json"),
    "signers": ("zerocfg.toml", '[gate]\nsigners = "{}"\n', "signers"),
    "requirements": ("requirements.txt", "-r {}\n", "requirements.txt"),
}
"""What points: the file that does, its text, and the file that it points to."""
LINKS = {
    "lies in the tree": tuple(OUTSIDE),
    "emitted": ("zerocfg.lock",),
    "checkpoint": ("latest",),
}

AUDITED = """
import json, os, sys

outside, lines, seen, codes = *map(json.loads, sys.argv[1:]), [], []
outside = [os.path.realpath(one) + os.sep for one in outside]

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(tuple(outside)) or path.endswith("/environ"):
            seen.append([sys.argv, path])

sys.addaudithook(hook)
from zerocfg.cli.main import run
for folder, words in lines:
    os.chdir(folder)
    sys.argv = ["zerocfg", *words]
    codes.append(run())
sys.stdout.flush()
print("seen:" + json.dumps([codes, seen]), file=sys.stderr)
"""


@dataclass(frozen=True)
class Ran:
    """``opened``: command line and path of each file outside that was opened."""

    out: str
    err: str
    codes: list[int]
    opened: list[tuple[list[str], str]]


class Place:
    """A repository with every way out, and what lies outside of it."""

    def __init__(self, folder: Path) -> None:
        self.outside, self.home, self.repository = folder / "outside", folder / "home", folder / "repository"
        for place in (self.outside, self.home):
            place.mkdir()
            for name, text in OUTSIDE.items():
                (place / name).write_text(text)
        (self.repository / ".git").mkdir(parents=True)
        (self.outside / ".git").mkdir()  # another repository is outside, too
        self.ways: list[Path] = []
        for what, (file, text, target) in POINTERS.items():
            for route, form in ROUTES.items():
                way = self.repository / f"{what} {route}".replace(" ", "-")
                way.mkdir()
                (way / "folder").symlink_to(self.outside)
                (way / f"link-{target}").symlink_to(self.outside / target)
                (way / "train.py").write_text("from transformers import Trainer\nTrainer().train()\n")
                path = form.replace("{outside}", str(self.outside)).format(target)
                (way / file).write_text(text.replace("{}", path))
                self.ways.append(way)
        tree = self.repository / "tree"
        tree.mkdir()
        for name in OUTSIDE:
            (tree / name).symlink_to(self.outside / name)
        (tree / "global_step1").mkdir()
        (tree / "package").symlink_to(self.outside)
        (tree / "own.py").write_text(
            "from package.helper import ARGUMENTS\nfrom transformers import Trainer, TrainingArguments\n"
            "Trainer(args=TrainingArguments('out', **ARGUMENTS)).train()\n"
        )

    def state(self) -> dict[Path, tuple[bytes, int]]:
        """All that lies outside."""
        return {
            path: (path.read_bytes() if path.is_file() else b"", path.stat().st_mtime_ns)
            for place in (self.outside, self.home)
            for path in place.rglob("*")
        }

    def run(self, *lines: Sequence[str], where: Path | None = None, **variables: str) -> Ran:
        """Run command lines, one after the other, in one process that notes what it opens."""
        home = {"HOME": str(self.home), "XDG_CACHE_HOME": str(self.repository.parent / "cache"), "WAY_OUT": SECRET}
        asked = [(str(where or self.repository), [*words]) for words in lines]
        outside = [str(self.outside), str(self.home)]
        done = subprocess.run(
            [sys.executable, "-c", AUDITED, json.dumps(outside), json.dumps(asked)],
            env={**os.environ, **home, **variables},
            capture_output=True,
            text=True,
        )
        said, _, seen = done.stderr.rpartition("seen:")
        assert done.returncode == 0, done.stderr[-3000:]
        return Ran(done.stdout, said, *json.loads(seen))

    def written(self) -> Iterator[Path]:
        """The files of the repository that hold the secret."""
        for path in self.repository.rglob("*"):
            own = path.is_file() and not path.is_symlink() and path.resolve().is_relative_to(self.repository)
            if own and SECRET.encode() in path.read_bytes():
                yield path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def came_through(place: Place, *lines: Sequence[str], where: Path | None = None) -> list[object]:
    """What of the files outside was opened, printed, written or changed."""
    before = place.state()
    done = place.run(*lines, where=where)
    said = done.out + done.err
    assert set(done.codes) <= {0, 1, 2, 3}
    assert "Traceback" not in said and "internal error" not in said, said[-3000:]
    shown = [line for line in said.splitlines() if SECRET in line]
    after = place.state()
    changed = [path for path in {*before, *after} if before.get(path) != after.get(path)]
    return [*done.opened, *shown, *place.written(), *changed]


def test_there_are_enough_ways(place: Place) -> None:
    assert len(place.ways) + sum(map(len, LINKS.values())) >= 60


WALKS = (
    *(("lint", "--output-format", name) for name in FORMATS),
    ("lint", "--notes", "--verbose"),
    ("lint", "--show-runs"),
    ("lint", "--show-runs", "--output-format", "json"),
    ("lint", "--diff", "--unsafe-fixes"),
    ("lint", "--fix", "--unsafe-fixes"),
    ("lint", "--add-ignore"),
    ("lint", "--statistics", "--all-releases")[:2],
    ("lint", "--write-baseline", "written.json"),
    ("lint", "--repos", "."),
    ("explain", "--in", "."),
    ("migrate", "--to", "deepspeed==0.19.8,transformers==5.23.0"),
    ("migrate", "--to", "deepspeed==0.19.8,transformers==5.23.0", "--write", "--pins"),
    ("diff", "--releases", "deepspeed==0.16.9", "deepspeed==0.19.8", "."),
    ("init", "--print", "--force"),
    ("gate", "--only", "lint"),
)


def test_the_whole_repository(place: Place) -> None:
    assert came_through(place, *WALKS) == []


EACH: Mapping[str, Callable[[Path], tuple[str, ...]]] = {
    "a file by its name": lambda file: ("lint", "--output-format", "json", str(file)),
    "explain": lambda file: ("explain", "--run", str(file)),
    "report": lambda file: ("report", str(file), "-o", "page.html", "--no-trace"),
    "convert": lambda file: ("convert", str(file), "--to", "fsdp2"),
    "diff": lambda file: ("diff", str(file), str(file)),
    "plan": lambda file: ("plan", str(file), "--no-trace"),
    "build": lambda file: ("build", str(file), "-o", "built"),
    "gate": lambda file: ("gate", str(file.parent)),
    "settings": lambda file: ("lint", str(file.parent)),
    "resume": lambda file: ("check-resume", str(file.parent)),
}
OF = {
    "config": ("report", "convert", "diff", "explain"),
    "spec": ("plan", "build", "report", "gate"),
    "launch": ("explain", "report", "a file by its name"),
    "settings": ("settings", "gate"),
}
KINDS = {"acc.yaml": "config", "recipe.yaml": "config", "zerocfg.yaml": "spec", "zerocfg.toml": "settings"}


@pytest.mark.parametrize("what", POINTERS)
def test_one_file(what: str, place: Place) -> None:
    """By the routes that differ: a path, a link, a folder that is one."""
    name = POINTERS[what][0]
    lines = [EACH[command](Path(name)) for command in OF[KINDS.get(name, "launch")]]
    for route in ("relative", "link", "folder"):
        where = place.repository / f"{what} {route}".replace(" ", "-")
        assert came_through(place, *lines, where=where) == []


SMOKED = list(zip(POINTERS, itertools.cycle(("relative", "link", "folder")), strict=False))


@pytest.mark.libs
@pytest.mark.parametrize(("what", "route"), SMOKED)
def test_smoke(what: str, route: str, place: Place) -> None:
    """Nothing outside is read to plan a run; where a file that a run needs lies there, no process is started."""
    pytest.importorskip("torch")
    where = place.repository / f"{what} {route}".replace(" ", "-")
    line = ("smoke", "--device", "cpu", "--steps", "1", "--time-limit", "60", POINTERS[what][0])
    assert came_through(place, line, where=where) == []


def test_a_link_that_is_named(place: Place) -> None:
    """As a hook names every file that was changed: who made the link is not who starts the command."""
    links = [Path("tree", name) for name in OUTSIDE]
    commands = ("a file by its name", "explain", "convert", "diff", "plan", "resume")
    lines = [EACH[command](link) for link in links for command in commands]
    lines += [("lint", "--fix", "--unsafe-fixes", str(link)) for link in links]
    lines += [("lint", "tree/package"), ("lint", "tree/package/ds.json"), ("init", "tree/package", "--print")]
    lines += [("explain", "--run", "tree/package/run.sh:1"), ("gate", "tree/package"), ("report", "tree/package")]
    lines += [("migrate", "--to", "deepspeed==0.19.8", "tree/package"), ("explain", "--in", "tree/package")]
    lines += [("lint", "--baseline", str(link), "tree/own.py") for link in links]
    lines += [("plan", "gpt2", "--hardware", str(link), "--no-trace") for link in links]
    assert came_through(place, *lines) == []


def test_what_is_written_stays_inside(place: Place) -> None:
    lines = (
        ("lint", "--write-baseline", "tree/known.json"),
        ("lint", "--output-format", "json=tree/hw.json"),
        ("init", "--force", "-o", "tree/base.yaml"),
        ("probe", "-o", "tree/hw.json"),
        ("report", "tree/own.py", "-o", "tree/policy.json", "--force"),
        ("lint", "--output-format", "json=tree/package/new/found.json"),
        ("schema", "--write", "tree/package"),
        ("schema", "--write", "tree/package/new"),
        ("build", "tree/package", "-o", "tree/package"),
        ("check-resume", "tree"),
        ("check-resume", "tree/package"),
    )
    assert came_through(place, *lines) == []


WATCHED = """
import os, sys

outside = tuple(os.path.realpath(one) + os.sep for one in os.environ["OUTSIDE"].split(os.pathsep))

def hook(event, arguments):
    if event == "open" and isinstance(arguments[0], (str, bytes)):
        path = os.path.realpath(os.fsdecode(arguments[0]))
        if path.startswith(outside):
            os.write(seen, f"{path}\\n".encode())

seen = os.open(os.environ["SEEN"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
sys.addaudithook(hook)
"""


@pytest.mark.parametrize("opened", [False, True])
def test_the_language_server(opened: bool, place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the user opens what lies outside it is read, so that this would be noticed."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(WATCHED)
    seen = tmp_path / "seen"
    for name, value in {
        "HOME": place.home,
        "PYTHONPATH": tmp_path / "site",
        "OUTSIDE": f"{place.outside}{os.pathsep}{place.home}",
        "SEEN": seen,
        **({boundary.VARIABLE: place.outside} if opened else {}),
    }.items():
        monkeypatch.setenv(name, str(value))
    before = place.state()
    files = [
        f"{what} {route}".replace(" ", "-") + f"/{POINTERS[what][0]}"
        for what in POINTERS
        for route in ("relative", "link", "folder")
        if POINTERS[what][0].endswith((".yaml", ".sh", ".py"))
    ]

    async def session() -> str:
        async with editor(place.repository) as ed:
            for name in files:
                ed.open(name)
            await ed.until(lambda: len({path for path, _ in ed.published}) >= len(files))
            return "\n".join([*ed.log, *ed.windows, *(one.message for found in ed.shown.values() for one in found)])

    said = asyncio.run(session())
    assert bool(seen.read_text()) is opened
    assert opened or SECRET not in said
    assert place.state() == before


@pytest.mark.parametrize("how", ["option", "variable"])
def test_what_is_opened_is_read(how: str, place: Place) -> None:
    """The same files, once the user says so; then the secret is shown, so that the tests above can fail."""
    opened = str(place.outside)
    words, variables = ("lint", "--output-format", "json"), {boundary.VARIABLE: opened}
    done = place.run((*words, boundary.OPTION, opened)) if how == "option" else place.run(words, **variables)
    found = json.loads(done.out)["diagnostics"]
    assert {"ds.json", "acc.yaml"} <= {
        Path(one["file"]).name.removeprefix("link-") for one in found if SECRET in one["message"]
    }
    names = {Path(path).name for _, path in done.opened}
    assert {"ds.json", "acc.yaml", "recipe.yaml", "train.py", "helper.py", "requirements.txt", "base.yaml"} <= names


def test_it_is_said_and_nothing_else_is_found(place: Place) -> None:
    """No file is missing, none is broken: it lies outside. Of a spec, which only zerocfg reads, a base is needed."""
    report = json.loads(place.run(("lint", "--output-format", "json")).out)
    found = [one for one in report["diagnostics"] if "home/" not in one["file"] and "variable/" not in one["file"]]
    assert {one["code"] for one in found} == {"ZC119"}
    assert all("it lies outside of" in one["message"] for one in found)
    outside = {Path(one["file"]).name for one in report["unread"] if one["why"] == "not-read"}
    assert {"ds.json", "acc.yaml", "recipe.yaml", "train.py", "key.pem"} <= outside
    assert {one["file"][0] for one in report["unread"] if one["why"] == "missing"} == {"~", "$"}
    way = place.repository / "deepspeed_config_file-relative"
    report = json.loads(place.run(("lint", "--output-format", "json", "acc.yaml"), where=way).out)
    assert report["diagnostics"] == []
    (one,) = report["unread"]
    assert one["reason"].startswith(f"it lies outside of {place.repository}, where zerocfg reads and changes nothing")
    assert one["reason"].endswith(f"{boundary.OPTION} {place.outside / 'ds.json'} opens it")


def test_a_file_of_the_repository_above_the_folder_is_read(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "configs").mkdir()
    (tmp_path / "scripts").mkdir()
    (tmp_path / "configs" / "ds.json").write_text("{}")
    with boundary.reading([tmp_path / "scripts"]):
        assert disk.content(tmp_path / "scripts" / "../configs/ds.json", 10, 10) == (2, b"{}")
        with pytest.raises(disk.OutsideError):
            disk.content("/etc/hostname", 100, 100)


def test_without_a_repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder that is named; of a file the current folder where it lies below it, else its own."""
    for name in ("project/configs/ds.json", "project/scripts/run.sh", "other/ds.json", "project/x.json"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    project, other = tmp_path / "project", tmp_path / "other" / "ds.json"

    def read(*targets: Path) -> list[bool]:
        with boundary.reading(targets):
            return [
                boundary.lies_inside(str(path))
                for path in (project / "scripts" / "run.sh", project / "configs" / "ds.json", other)
            ]

    monkeypatch.chdir(tmp_path / "other")
    assert read(project / "scripts") == [True, False, False]
    assert read(project / "scripts" / "run.sh") == [True, False, False]
    assert read(project) == [True, True, False]
    monkeypatch.chdir(project)
    assert read(project / "scripts" / "run.sh") == [True, True, False]
    assert read() == [True, True, False]
    assert read(project, other) == [True, True, True]
    monkeypatch.setenv("HOME", str(project))
    assert read(project / "scripts" / "run.sh") == [True, False, False]


def test_what_git_keeps_is_not_read(tmp_path: Path) -> None:
    """CI services leave a token in `.git/config`; `.github` is no part of git."""
    for name in (".git/config", ".git/modules/x/config", ".github/ds.json", "sub/.git/config"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    with boundary.reading([tmp_path]):
        for name in (".git/config", ".git/modules/x/config", "sub/.git/config"):
            with pytest.raises(disk.OutsideError, match="it belongs to git"):
                disk.content(tmp_path / name, 10, 10)
        assert disk.content(tmp_path / ".github" / "ds.json", 10, 10) == (1, b"x")
    with boundary.reading([tmp_path], exactly=[tmp_path / ".git" / "config"]):
        assert disk.content(tmp_path / ".git" / "config", 10, 10) == (1, b"x")


@pytest.mark.parametrize("name", [".env", "docker.json", "netrc"])
def test_no_line_of_what_is_no_config_is_shown(name: str, tmp_path: Path) -> None:
    """Such files lie in the folder of a job, and another file says that they are a config."""
    texts = {
        ".env": f"A=1\nB={SECRET}\n",
        "docker.json": json.dumps({"auths": {"ghcr.io": {"it": SECRET}}}),
        "netrc": f"machine example.org login x password {SECRET}\n",
    }
    (tmp_path / ".git").mkdir()
    (tmp_path / name).write_text(texts[name])
    (tmp_path / "acc.yaml").write_text(ACCELERATE.format(name))
    printed = ""
    for output_format in FORMATS:
        done = subprocess.run(
            [sys.executable, "-m", "zerocfg", "lint", "--notes", "--output-format", output_format],
            cwd=tmp_path,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 1 and name in done.stdout
        printed += done.stdout + done.stderr
    page = tmp_path / "page.html"
    for words in (("report", "acc.yaml", "-o", str(page), "--no-trace"), ("explain", "--run", "acc.yaml")):
        done = subprocess.run([sys.executable, "-m", "zerocfg", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0
        printed += done.stdout
    assert SECRET not in printed + page.read_text()
