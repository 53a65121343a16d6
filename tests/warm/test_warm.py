"""What is started by the warm Python lives and ends as a process of any Python, and has the libraries at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.smoke.standin import until

pytestmark = pytest.mark.libs

TOLD = """
import json, os, sys
print(json.dumps({
    "words": sys.argv, "name": __name__, "folder": os.getcwd(), "executable": sys.executable, "path": sys.path[:2],
    "loaded": [name for name in ("accelerate", "deepspeed", "torch", "transformers", "trl") if name in sys.modules],
    "environment": dict(os.environ), "leads": os.getpid() == os.getsid(0), "read": sys.stdin.read(),
    "shown": open("/proc/self/environ").read().rstrip(chr(0)).split(chr(0)),
}))
"""
WAITS = "import os, signal\nprint(os.getpid(), flush=True)\nwhile True:\n    signal.pause()\n"


def started(folder: Path, code: str, **more: Any) -> subprocess.Popen[str]:
    (folder / "program.py").write_text(code)
    words = [warm.python(), "program.py"]
    return subprocess.Popen(words, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def is_there(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("words", [["program.py"], ["-m", "program"], ["-u", "-m", "program"]])
def test_a_program_is_given_what_it_was_started_with(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(TOLD)
    environment = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "PYTHONPATH": "/one:/two", "MARK": "of = this"}
    done = subprocess.run(
        [warm.python(), *words, "--a", "b c"], cwd=tmp_path, env=environment, input="x", capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    told = json.loads(done.stdout)
    module = "-m" in words
    assert told["words"] == [str(tmp_path / "program.py") if module else "program.py", "--a", "b c"]
    assert (told["name"], told["folder"], told["executable"]) == ("__main__", str(tmp_path), warm.python())
    assert told["path"] == [str(tmp_path), "/one"] and told["read"] == "x" and told["leads"]
    assert told["environment"] == environment
    assert told["shown"] == [f"{name}={value}" for name, value in environment.items()]
    assert told["loaded"] == ["accelerate", "deepspeed", "torch", "transformers", "trl"]


@pytest.mark.parametrize(
    ("code", "ends"),
    [
        ("pass", 0),
        ("raise SystemExit(7)", 7),
        ("import os; os._exit(3)", 3),
        ("1 / 0", 1),
        ("import atexit, os; atexit.register(os._exit, 4)", 4),
        ("import threading, os; threading.Thread(target=lambda: os._exit(6)).start()", 6),
        ("import os; os.abort()", -signal.SIGABRT),
        ("import os; os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_it_ends_as_its_program_does(code: str, ends: int, tmp_path: Path) -> None:
    process = started(tmp_path, code)
    _, said = process.communicate()
    assert process.returncode == ends
    assert said.endswith("ZeroDivisionError: division by zero\n") if ends == 1 else not said


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_program_hears_what_its_process_is_told(sign: signal.Signals, tmp_path: Path) -> None:
    code = f"import signal\nsignal.signal({int(sign)}, lambda *_: exit(5))\n{WAITS}"
    with started(tmp_path, code) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(sign)
        assert process.wait() == 5


def test_who_is_killed_takes_the_program_along(tmp_path: Path) -> None:
    """With the processes that it started, as a launcher's group is killed with its ranks."""
    code = f"import subprocess, sys\nsubprocess.Popen(['sleep', '600'], stdout=-3)\n{WAITS}"
    with started(tmp_path, code, start_new_session=True, env={"MARK": str(tmp_path)}) as process:
        assert process.stdout is not None
        program = int(process.stdout.readline())
        os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
    mark = f"MARK={tmp_path}".encode()

    def marked() -> list[str]:
        found = []
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                found += [entry.name] * (mark in (entry / "environ").read_bytes().split(b"\0"))
            except OSError:
                continue
        return found

    until(lambda: not is_there(program) and not marked())


def test_what_python_imports_itself_is_imported(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("import builtins\nbuiltins.told = 'by a site'\n")
    process = started(tmp_path, "print(told)", env={"PYTHONPATH": str(tmp_path / "site")})
    assert process.communicate() == ("by a site\n", "")


def test_ranks_that_a_launcher_starts_are_warm_too(tmp_path: Path) -> None:
    (tmp_path / "rank.py").write_text(
        "import os, sys\nprint('deepspeed' in sys.modules, os.environ['RANK'], sys.executable, flush=True)\n"
    )
    torchrun = Path(warm.python()).with_name("torchrun")
    done = subprocess.run(
        [torchrun, "--standalone", "--nproc_per_node", "2", "rank.py"], cwd=tmp_path, capture_output=True, text=True
    )
    assert sorted(done.stdout.splitlines()) == [f"True {rank} {warm.python()}" for rank in range(2)], done.stderr


@pytest.mark.parametrize("words", [["-c", "import sys; print(sys.executable)"], ["-I", "program.py"]])
def test_what_it_does_not_take_a_fresh_python_does(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text("import sys\nprint(sys.executable)\n")
    done = subprocess.run([warm.python(), *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == f"{sys.executable}\n"
