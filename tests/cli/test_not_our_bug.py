"""What the surroundings do to a command: closed streams, full disks, no memory, interrupts, odd names, two at once.

Each is answered in words with a documented exit code: no traceback, no "internal error".
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from zerocfg.cli.exit_code import exit_code
from zerocfg.emit import exclusive
from zerocfg.internal_errors import Containment
from zerocfg.source import disk

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="limits and closed descriptors of Linux")

Call = Callable[..., Outcome]
COMMAND = [sys.executable, "-m", "zerocfg"]
MISSPELT = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabeld": true}}\n'
ODD = os.fsdecode(b"ds\xff.json")
"""A name that is no UTF-8."""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    shutil.copytree(ROOT / "examples" / "quickstart", tmp_path / "a", ignore=shutil.ignore_patterns("built"))
    (tmp_path / "a" / "bad.json").write_text(MISSPELT)
    return tmp_path / "a"


def run(folder: Path, *words: str, before: Callable[[], None] | None = None) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "ZEROCFG_TRACEBACK"}
    environment |= {"PYTHONPATH": str(ROOT), "XDG_CACHE_HOME": str(folder / ".cache")}
    return subprocess.run(
        [*COMMAND, *words], cwd=folder, env=environment, capture_output=True, text=True, preexec_fn=before, timeout=120
    )


def in_words(done: subprocess.CompletedProcess[str]) -> bool:
    told = done.stdout + done.stderr
    return "Traceback" not in told and "internal error" not in told


# -- streams ------------------------------------------------------------------------------------------------------


def close(*numbers: int) -> None:
    for number in numbers:
        os.close(number)


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (("--version",), 0), (("--help",), 0), (("rules",), 0), (("lint", "bad.json"), 1),
        (("lint", "--no-cache", "--output-format", "json", "bad.json"), 1), (("plan", ".", "--no-trace"), 3),
        (("explain", "ZC103"), 0), (("lint", "missing"), 2),
    ],
)  # fmt: skip
def test_closed_streams_leave_the_exit_code(project: Path, words: tuple[str, ...], code: int) -> None:
    for closed in ((1,), (1, 2), (0, 1, 2)):
        done = run(project, *words, before=partial(close, *closed))
        assert (done.returncode, in_words(done)) == (code, True), (closed, done.stderr)


def test_a_file_that_is_written_does_not_become_standard_output(project: Path) -> None:
    """Without something in its place the first file that is opened gets the number 1."""
    done = run(project, "build", ".", "-o", "out", before=partial(close, 1))
    assert done.returncode == 0, done.stderr
    emitted = json.loads((project / "out" / "quickstart" / "ds_config.json").read_text())
    assert emitted["zero_optimization"]["stage"] == 3


@pytest.mark.parametrize("words", ["--version", "--help", "rules", "lint --no-cache bad.json", "schema deepspeed"])
def test_a_full_standard_output(project: Path, words: str) -> None:
    with Path("/dev/full").open("w") as full:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*COMMAND, *words.split()], cwd=project, env=environment, stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (2, "zerocfg: error: No space left on device\n")


# -- disks --------------------------------------------------------------------------------------------------------


def no_disk() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("init --force", "zerocfg.yaml"),
        ("build . -o out", "out/quickstart"),
        ("convert accelerate.yaml --to fsdp2 -o n.yaml --allow-loss", "n.yaml"),
        ("convert accelerate.yaml --to fsdp2 --write --allow-loss", "accelerate.yaml"),
        ("lint --fix --unsafe-fixes bad.json", "bad.json"),
        ("lint --add-ignore bad.json", "zerocfg.toml"),
        ("lint --write-baseline b.json .", "b.json"),
        ("lint --output-format json=o.json .", "o.json"),
        ("schema --write schemas", "schemas"),
        ("probe -o hw.json", "hw.json"),
    ],
)
def test_a_full_disk_names_the_file_and_changes_none(project: Path, words: str, named: str) -> None:
    before = {path: path.read_bytes() for path in project.rglob("*") if path.is_file()}
    done = run(project, *words.split(), before=no_disk)
    assert (done.returncode, in_words(done)) == (2, True), done.stderr
    assert named in done.stderr.splitlines()[-1]
    assert "None" not in done.stderr
    assert {path: path.read_bytes() for path in project.rglob("*") if path.is_file()} == before


# -- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        OSError(12, "Cannot allocate memory", "/x"),
        ImportError("/x.so: failed to map segment from shared object", name="numpy"),
        SystemError("error return without exception set"),
    ],
)
def test_a_lack_of_memory_is_no_bug(error: Exception, capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise error

    assert exit_code(fail) == 2
    assert capfd.readouterr().err.startswith("zerocfg: error: there is not enough memory")


def test_a_library_that_cannot_be_loaded_is_named(capfd: pytest.CaptureFixture[str]) -> None:
    def fail() -> None:
        raise ImportError("libGL.so.1: cannot open shared object file", name="matplotlib._path")

    assert exit_code(fail) == 2
    assert capfd.readouterr().err.startswith("zerocfg: error: the library matplotlib._path cannot be loaded: libGL")


def test_an_import_of_zerocfg_itself_that_fails_is_a_bug(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise ImportError("cannot import name 'x' from 'zerocfg.run'", name="zerocfg.run")

    monkeypatch.delenv("ZEROCFG_TRACEBACK", raising=False)
    assert exit_code(fail) == 2
    assert "internal error: ImportError" in capfd.readouterr().err


def test_a_lack_of_memory_is_not_contained_in_one_rule() -> None:
    contained = Containment()
    with pytest.raises(MemoryError), contained.of("check a rule"):
        raise MemoryError
    with contained.of("check a rule"):
        raise KeyError("a bug")
    assert len(contained.met) == 1


@pytest.mark.parametrize("mebibytes", [24, 32, 40])
def test_little_memory(project: Path, mebibytes: int) -> None:
    """As `ulimit -v` sets it: enough for Python, not for what lints."""
    limit = (mebibytes << 20, mebibytes << 20)
    done = run(project, "lint", "--no-cache", ".", before=lambda: resource.setrlimit(resource.RLIMIT_AS, limit))
    assert (done.returncode in (1, 2), in_words(done)) == (True, True), done.stderr
    assert done.returncode == 1 or "not enough memory" in done.stderr


# -- depth --------------------------------------------------------------------------------------------------------


@pytest.fixture
def deep(tmp_path: Path) -> Iterator[Path]:
    """1,900 folders in each other: beyond the recursion of a walk, and within the 4,096 bytes of a path."""
    folder, before = tmp_path / "deep", Path.cwd()
    folder.mkdir()
    os.chdir(folder)
    for _ in range(1_900):
        Path("d").mkdir()
        os.chdir("d")
    Path("bad.json").write_text(MISSPELT)
    os.chdir(before)
    yield folder
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_folders_of_any_depth_are_walked(deep: Path, zerocfg: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(deep)
    done = zerocfg("lint", "--output-format", "json", ".")  # with the cache, which asks for the folders above
    assert [one["code"] for one in json.loads(done.out)["diagnostics"]] == ["ZC101"]
    assert zerocfg("init", "--print").code == 0
    assert zerocfg("gate", "--require", "none").code == 2  # no spec below
    assert len(list(disk.tree(deep, lambda *_: True))) == 1_901


def test_the_tree_leaves_out_what_is_not_entered(tmp_path: Path) -> None:
    for name in ("b/x/1", "b/2", "a/3", ".h/4"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    (tmp_path / "link").symlink_to(tmp_path / "b")
    met = [
        (Path(folder).relative_to(tmp_path).as_posix(), names)
        for folder, names in disk.tree(tmp_path, lambda folder, name: not name.startswith(".") and name != "x")
    ]
    assert met == [(".", ["link"]), ("a", ["3"]), ("b", ["2"])]


# -- names --------------------------------------------------------------------------------------------------------


def test_a_name_that_is_no_utf8_is_silenced_by_a_pattern(zerocfg: Call, tmp_path: Path) -> None:
    (tmp_path / ODD).write_text(MISSPELT)
    (tmp_path / "dsx2.json").write_text(MISSPELT)
    done = zerocfg("lint", "--add-ignore", ODD)
    assert (done.code, "1 finding silenced" in done.err) == (0, True)
    assert (tmp_path / "zerocfg.toml").read_text().splitlines()[1] == '"ds?.json:bf16.enabeld" = ["ZC101"]'
    assert zerocfg("lint", ODD).code == 0
    assert zerocfg("lint", "dsx2.json").code == 1  # the pattern stands for one byte


def test_a_name_that_is_no_utf8_in_a_baseline(zerocfg: Call, tmp_path: Path) -> None:
    (tmp_path / ODD).write_text(MISSPELT)
    assert zerocfg("lint", "--write-baseline", "b.json", ".").code == 0
    assert r"ds\udcff.json" in (tmp_path / "b.json").read_text("ascii")
    assert zerocfg("lint", "--baseline", "b.json", ".").code == 0


def test_a_spec_cannot_name_it_and_init_says_so(project: Path) -> None:
    (project / "accelerate.yaml").rename(project / os.fsdecode(b"acc\xff.yaml"))
    (project / "zerocfg.yaml").unlink()
    done = run(project, "init")
    assert (done.returncode, in_words(done)) == (2, True), done.stderr
    assert done.stderr.splitlines()[-1].startswith("zerocfg: error: the name of a file is not UTF-8")
    assert r"acc\udcff.yaml" in done.stderr


# -- two at once --------------------------------------------------------------------------------------------------


def test_two_builds_of_one_folder_both_succeed(project: Path) -> None:
    words = [*COMMAND, "build", ".", "-o", "out"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    running = [
        subprocess.Popen(words, cwd=project, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(3)
    ]
    ended = [(one.communicate()[1], one.returncode) for one in running]
    assert ended == [("", 0)] * 3
    names = sorted(path.name for path in (project / "out" / "quickstart").iterdir())
    assert names == ["accelerate.yaml", "ds_config.json", "launch.sh", "zerocfg.lock"]


def test_a_build_waits_for_another_and_says_so_when_that_does_not_end(
    project: Path, zerocfg: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(project)
    monkeypatch.setattr(exclusive, "PATIENCE", 0.1)
    folder = project / "out" / "quickstart"
    with exclusive.exclusive([folder]):
        done = zerocfg("build", ".", "-o", "out")
        assert done.code == 2
        assert "out/quickstart: another build of this folder is running; nothing was written" in done.err
        assert list(folder.iterdir()) == []
    assert not (project / "out").exists(), "what was made for the lock alone is gone"
    assert zerocfg("build", ".", "-o", "out").code == 0


# -- interrupts ---------------------------------------------------------------------------------------------------

INTERRUPTED = """
import os, signal, sys
from zerocfg.__main__ import main

class Interrupts:
    def find_spec(self, name, path=None, target=None):
        if name == WHERE:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, HANDLER)
sys.meta_path.insert(0, Interrupts())
sys.argv[1:] = WORDS
main()
"""


@pytest.mark.parametrize(
    ("where", "words", "told"),
    [
        ("gc", ["--version"], None),
        ("zerocfg.cli.start_lint", ["lint", "."], ""),
        ("zerocfg.cli.exit_code", ["lint", "."], ""),
        ("zerocfg.cli.main", ["plan", "."], ""),
        ("click", ["rules"], ""),
        ("zerocfg.linter.engine", ["lint", "--no-cache", "."], "\ninterrupted\n"),
        ("zerocfg.cli.commands.plan", ["plan", "."], "\ninterrupted\n"),
        ("zerocfg.page.render", ["report", ".", "-o", "p.html"], "\ninterrupted\n"),
    ],
)
def test_an_interrupt_at_any_import(project: Path, where: str, words: list[str], told: str | None) -> None:
    program = INTERRUPTED.replace("WHERE", repr(where)).replace("WORDS", repr(words))
    for handler in ("signal.default_int_handler", "signal.SIG_IGN"):
        done = subprocess.run(
            [sys.executable, "-c", program.replace("HANDLER", handler)],
            cwd=project,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
        )
        if told is None or handler == "signal.SIG_IGN":  # nothing to interrupt, or nobody who wants to
            assert done.returncode in (0, 1, 2, 3) and in_words(done), done.stderr
        else:
            assert (done.returncode, done.stdout, done.stderr) == (130, "", told)
