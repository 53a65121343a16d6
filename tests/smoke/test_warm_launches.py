"""Launches that share one import of the libraries, and the ways in which that can go wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from tests.smoke.standin import until
from zerocfg.smoke.launch import leftovers, process, warm
from zerocfg.smoke.launch.warm import zygote_process

HERE = {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
RANK = """
import json, os, sys
from pathlib import Path
rank = os.environ.get("RANK", "0")
content = {"rank": int(rank), "pid": os.getpid(), "phase": "done", "done": True, "fake": "fakelib" in sys.modules}
content["executable"] = sys.executable
(Path("reports") / f"rank{rank}.json").write_text(json.dumps(content))
"""


@pytest.fixture
def imports(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The imports of the zygote: of one small module, so that a test takes no seconds."""
    (tmp_path / "libraries").mkdir()
    (tmp_path / "libraries" / "fakelib.py").write_text("import os\nlevel = os.environ.get('FAKE_LEVEL')\n")
    path = tmp_path / "imports.py"
    path.write_text(f"import sys\nsys.path.append({str(tmp_path / 'libraries')!r})\nimport fakelib\n")
    monkeypatch.setattr(zygote_process.start, "__defaults__", (path, False))
    return path


def launch(folder: Path, code: str = RANK, said: list[str] | None = None, **variables: str) -> process.Outcome:
    folder.mkdir()
    (folder / "rank.py").write_text(code)
    progress = None if said is None else said.append
    return process.run([sys.executable, "rank.py"], folder, 1, "cpu", 30, progress, variables)


def forked(outcome: process.Outcome) -> bool:
    assert outcome.failure is None, (outcome.failure, outcome.detail)
    (report,) = outcome.reports
    return bool(report["fake"])  # type: ignore[typeddict-item]


def zygotes(below: Path) -> list[str]:
    """Processes whose command line names a file below this folder."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = entry.read_bytes().decode(errors="replace")
        except OSError:
            continue
        if "zygote.py" in text and str(below) in text:
            found.append(entry.parent.name)
    return found


def test_launches_are_forked_from_one_import(imports: Path, tmp_path: Path) -> None:
    with warm.shared_imports():
        outcomes = [launch(tmp_path / name) for name in ("one", "two")]
        (running,) = warm._active
        assert running.zygote is not None and running.zygote.poll() is None
    assert [forked(outcome) for outcome in outcomes] == [True, True]
    assert running.zygote.poll() is not None and not running.folder.exists()
    assert not forked(launch(tmp_path / "alone")), "outside of it a launch is one of a fresh Python"


def test_nothing_is_started_where_nothing_is_launched(imports: Path) -> None:
    with warm.shared_imports():
        (running,) = warm._active
    assert running.zygote is None and running.folder == Path()


@pytest.mark.parametrize(
    ("name", "value", "shared"),
    [
        ("FAKE_LEVEL", "2", False),  # read by Python code on import
        ("OMP_NUM_THREADS", "3", False),  # read by a shared library
        ("CUDA_VISIBLE_DEVICES", "1", False),
        ("UNREAD_LEVEL", "2", True),
        ("NCCL_DEBUG", "INFO", True),  # read when a group is made
        ("PYTHONPATH", "/nowhere", True),
        ("PYTHONSAFEPATH", "1", False),
    ],
)
def test_other_variables_that_the_libraries_read(
    name: str, value: str, shared: bool, imports: Path, tmp_path: Path
) -> None:
    """The first launch decides; one with another value of a variable that was read on import is started afresh."""
    if name == "PYTHONPATH":
        value = os.pathsep.join([value, os.environ.get("PYTHONPATH", "")])
    with warm.shared_imports():
        assert forked(launch(tmp_path / "one"))
        assert forked(launch(tmp_path / "two", **{name: value})) is shared
        assert forked(launch(tmp_path / "three"))


def test_a_path_that_holds_another_copy_of_a_library(imports: Path, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "fakelib.py").write_text("")
    with warm.shared_imports():
        assert forked(launch(tmp_path / "one"))
        path = os.pathsep.join([str(tmp_path / "other"), os.environ.get("PYTHONPATH", "")])
        assert not forked(launch(tmp_path / "two", PYTHONPATH=path))


@pytest.mark.parametrize(
    ("name", "shared"), [("fakelib.yaml", True), ("fakelib.py", False), ("fakelib.so", False), ("fakelibrary.py", True)]
)
def test_files_that_are_named_like_a_library(name: str, shared: bool, imports: Path, tmp_path: Path) -> None:
    """accelerate adds the folder of a run, where its accelerate.yaml lies, to the PYTHONPATH of the ranks."""
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / name).write_text("")
    path = os.pathsep.join([str(tmp_path / "other"), os.environ.get("PYTHONPATH", "")])
    with warm.shared_imports():
        assert forked(launch(tmp_path / "one", PYTHONPATH=path)) is shared


def test_libraries_that_cannot_be_imported(imports: Path, tmp_path: Path) -> None:
    imports.write_text("raise ImportError('no such library')\n")
    said: list[str] = []
    with warm.shared_imports():
        outcomes = [launch(tmp_path / name, said=said) for name in ("one", "two")]
    assert [forked(outcome) for outcome in outcomes] == [False, False]
    assert "fresh processes for each launch: the libraries cannot be imported: ImportError: no such library" in said


def test_imports_that_end_the_process(imports: Path, tmp_path: Path) -> None:
    imports.write_text("import os\nos._exit(3)\n")
    said: list[str] = []
    with warm.shared_imports():
        outcomes = [launch(tmp_path / name, said=said) for name in ("one", "two")]
    assert [forked(outcome) for outcome in outcomes] == [False, False]
    assert [words for words in said if words.endswith("ended with code 3")]


def test_imports_that_hang(imports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    imports.write_text("import time\ntime.sleep(600)\n")
    here = tmp_path / "copy"
    here.mkdir()
    for file in zygote_process.HERE.glob("*.py"):
        (here / file.name).write_text(file.read_text().replace("PATIENCE = 90.0", "PATIENCE = 0.5"))
    monkeypatch.setattr(zygote_process, "HERE", here)
    start = time.monotonic()
    with warm.shared_imports():
        outcomes = [launch(tmp_path / name) for name in ("one", "two")]
    assert [forked(outcome) for outcome in outcomes] == [False, False]
    assert time.monotonic() - start < 20 and not zygotes(tmp_path)


INITIALISED = {
    "is_initialized": ("True", "False", "importing the libraries has initialised CUDA"),
    "bad fork": ("False", "True", "importing the libraries has started CUDA's runtime"),
    "neither": ("False", "False", ""),
}


@pytest.mark.parametrize("name", INITIALISED)
def test_a_driver_of_cuda_that_is_initialised_already(name: str, imports: Path, tmp_path: Path) -> None:
    """With a module in torch's place, which is imported as torch is."""
    initialised, bad, reason = INITIALISED[name]
    imports.write_text(
        imports.read_text() + "import types\ntorch = sys.modules['torch'] = types.ModuleType('torch')\n"
        f"torch.cuda = types.SimpleNamespace(is_initialized=lambda: {initialised}, _is_in_bad_fork=lambda: {bad})\n"
    )
    said: list[str] = []
    with warm.shared_imports():
        outcomes = [launch(tmp_path / place, said=said) for place in ("one", "two")]
    assert [forked(outcome) for outcome in outcomes] == [not reason] * 2
    assert [words.partition("launch: ")[2] for words in said if words.startswith("fresh")] == [reason] * bool(reason)


def test_a_zygote_that_dies_between_launches(imports: Path, tmp_path: Path) -> None:
    said: list[str] = []
    with warm.shared_imports():
        assert forked(launch(tmp_path / "one"))
        zygote = warm._active[0].zygote
        assert zygote is not None
        zygote.kill()
        zygote.wait()
        assert not forked(launch(tmp_path / "two", said=said))
    assert [words for words in said if words.endswith("ended with code -9")]


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGSTOP])
def test_a_zygote_that_dies_or_hangs_during_a_launch(sign: signal.Signals, imports: Path, tmp_path: Path) -> None:
    """The launch is made again by a fresh Python, and gives its result."""
    code = f"import os, sys, time\nif 'fakelib' in sys.modules:\n    os.kill(os.getppid(), {int(sign)})\n{RANK}"
    with warm.shared_imports():
        assert not forked(launch(tmp_path / "one", code))
        assert not forked(launch(tmp_path / "two", code))
    assert not zygotes(tmp_path)


def test_a_launch_that_fails_by_itself_is_not_made_again(imports: Path, tmp_path: Path) -> None:
    code = "import pathlib\nwith pathlib.Path('starts').open('a') as file:\n    file.write('x')\nraise SystemExit(3)\n"
    with warm.shared_imports():
        assert launch(tmp_path / "one", code).failure is not None
    assert (tmp_path / "one" / "starts").read_text() == "x"


def test_an_environment_without_room(imports: Path, tmp_path: Path) -> None:
    with warm.shared_imports():
        assert forked(launch(tmp_path / "one"))
        assert forked(launch(tmp_path / "two", LARGE="x" * 90_000))
        assert not forked(launch(tmp_path / "three", LARGE="x" * 120_000))


def test_a_temporary_folder_whose_path_is_too_long(
    imports: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * 100)
    long.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(long))
    with warm.shared_imports():
        assert not forked(launch(tmp_path / "one"))
        assert warm._active[0].zygote is None


PARENT = """
import sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from zerocfg.smoke.launch import process, warm
from zerocfg.smoke.launch.warm import zygote_process
zygote_process.start.__defaults__ = (Path({imports!r}), False)
folder = Path({folder!r})
folder.mkdir()
(folder / "rank.py").write_text("import time\\nopen('started', 'w').close()\\ntime.sleep(600)\\n")
with warm.shared_imports():
    process.run([sys.executable, "rank.py"], folder, 1, "cpu", 600)
"""


def test_nothing_is_left_of_a_zerocfg_that_was_killed(imports: Path, tmp_path: Path) -> None:
    """The zygote, its Python and what it has forked end; the folder goes."""
    root, folder = Path(__file__).resolve().parents[2], tmp_path / "run"
    short = Path(tempfile.mkdtemp(prefix="zc-", dir="/tmp"))  # a socket's path has 107 characters at most
    code = PARENT.format(root=str(root), imports=str(imports), folder=str(folder))
    parent = subprocess.Popen([sys.executable, "-c", code], env={**os.environ, "TMPDIR": str(short)})
    until(lambda: (folder / "started").exists())
    assert zygotes(short) and leftovers.marked(str(folder))
    parent.kill()
    parent.wait()
    until(lambda: not zygotes(short) and not leftovers.marked(str(folder)) and not list(short.iterdir()))
    short.rmdir()


@pytest.mark.libs
def test_the_libraries_are_imported_without_a_driver_of_cuda(tmp_path: Path) -> None:
    """With the real ones: launches are forked, and torch sees no card initialised."""
    code = RANK.replace('"fakelib" in', '"deepspeed" in').replace("import json", "import torch, json")
    code += "assert not torch.cuda.is_initialized() and not torch.cuda._is_in_bad_fork()\n"
    with warm.shared_imports():
        assert forked(launch(tmp_path / "one", code))
        start = time.monotonic()
        assert forked(launch(tmp_path / "two", code))
    assert time.monotonic() - start < 10


IN_FORK = """
import json, sys
from pathlib import Path
forked = "fakelib" in sys.modules
content = {"rank": 0, "pid": 1, "phase": "done", "done": not forked, "fake": forked}
if forked:
    content["error"] = {"type": "RuntimeError", "text": "TEXT", "time": 1.0, "traceback": ["RuntimeError: TEXT"]}
(Path("reports") / "rank0.json").write_text(json.dumps(content))
sys.exit(int(forked))
"""


@pytest.mark.parametrize(
    ("text", "again"),
    [
        (
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing",
            True,
        ),
        ("CUDA error: initialization error", True),
        ("CUDA error: invalid device ordinal", False),
    ],
)
def test_cuda_that_does_not_work_in_forks(text: str, again: bool, imports: Path, tmp_path: Path) -> None:
    """Then the launch is made again by a fresh process, and so are those that follow; other errors are the run's."""
    said: list[str] = []
    with warm.shared_imports():
        outcome = launch(tmp_path / "one", IN_FORK.replace("TEXT", text), said)
        assert (outcome.failure is None) is again
        assert forked(launch(tmp_path / "two", said=said)) is not again
    assert ("fresh processes for each launch: CUDA could not be used in a forked process" in said) is again
