"""What a command may do in a repository that nobody trusts: read. Judged by the audit events of CPython."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

AUDITED = """
import json, os, sys

seen = []
# Imports of the standard library and of zerocfg compile and execute code: only what runs after them counts.
FORBIDDEN = (
    "subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.fork", "os.forkpty", "os.spawn", "pty.spawn",
    "socket.connect", "socket.getaddrinfo", "socket.bind", "pickle.find_class", "urllib.Request",
    "os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown",
    "shutil.rmtree", "shutil.copyfile", "shutil.move",
)
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
HERE = os.getcwd() + os.sep

def hook(event, arguments):
    if event in FORBIDDEN:
        seen.append([event, repr(arguments)[:200]])
    elif event == "open" and isinstance(arguments[2], int) and arguments[2] & WRITING:
        seen.append([event, repr(arguments)[:200]])
    elif event in ("import", "compile", "exec", "ctypes.dlopen"):
        # nothing of the repository: neither a module of its name nor code of one of its files
        text = repr(arguments)
        if HERE in text or "malicious" in text:
            seen.append([event, text[:200]])

from zerocfg.cli import main
sys.addaudithook(hook)
code = main.run()
sys.stdout.flush()
print(json.dumps(seen), file=sys.stderr)
sys.exit(code)
"""
MALICIOUS = "import pathlib\npathlib.Path('PWNED').write_text('x')\nraise SystemExit(3)\n"
FILES = {
    "train.py": MALICIOUS
    + "from transformers import TrainingArguments\nTrainingArguments('out', deepspeed='ds.json')\n",
    "malicious.py": MALICIOUS,
    "sitecustomize.py": MALICIOUS,
    "conftest.py": MALICIOUS,
    "setup.py": MALICIOUS + "from setuptools import setup\nsetup(install_requires=['deepspeed==0.14.5'])\n",
    "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n',
    "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\ndeepspeed: ds.json\n",
    "tagged.yaml": "distributed_type: !!python/object/apply:os.system ['touch PWNED']\n"
    "compute_environment: LOCAL_MACHINE\n",
    "launch.sh": "touch PWNED\nX=$(touch PWNED) `touch PWNED`\n"
    "accelerate launch train.py $(touch PWNED) --deepspeed ds.json\n",
    "Makefile": "X := $(shell touch PWNED)\ntrain:\n\tdeepspeed train.py --deepspeed ds.json\n",
}


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """An example, and files whose execution would leave a file behind."""
    folder = tmp_path / "repository"
    shutil.copytree(ROOT / "examples" / "quickstart", folder, ignore=shutil.ignore_patterns("__pycache__"))
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


COMMANDS = (
    "lint",
    "lint --all-releases",
    "lint --output-format sarif",
    "lint --fix --unsafe-fixes --diff",
    "explain --run launch.sh",
    "explain --run ds.json",
    "diff --releases deepspeed==0.16.9 deepspeed==0.19.8 .",
    "migrate --to deepspeed==0.19.8,transformers==5.23.0 .",
    "init --print --force",
    "gate --only lint",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_it_only_reads(command: str, repository: Path) -> None:
    """No process, no connection, no file opened for writing, no module or code of the repository."""
    before = {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()}
    done = subprocess.run(
        [sys.executable, "-B", "-P", "-c", AUDITED, *command.split()]
        if sys.version_info >= (3, 11)
        else [sys.executable, "-B", "-c", "import sys; sys.path[:] = sys.path[1:]\n" + AUDITED, *command.split()],
        cwd=repository,
        capture_output=True,
        text=True,
    )
    assert done.returncode in (0, 1), done.stderr
    seen = json.loads(done.stderr.splitlines()[-1])
    assert seen == []
    assert {path: path.read_bytes() for path in repository.rglob("*") if path.is_file()} == before


def test_the_watch_would_notice(repository: Path) -> None:
    """A command that writes by its purpose is seen."""
    done = subprocess.run(
        [sys.executable, "-B", "-c", AUDITED, "init", "--force"], cwd=repository, capture_output=True, text=True
    )
    events = {event for event, _ in json.loads(done.stderr.splitlines()[-1])}
    assert {"open", "os.rename"} <= events
