"""Phases "read" and "launch": each file by its own reader, then accelerate's real launcher up to the
spawning.

`accelerate.commands.launch.launch_command` runs whole, in this process; only the two calls that would start
other processes (torchrun's ``run`` and ``subprocess.Popen``) are replaced by ones that note what they were
given. torchrun and the `deepspeed` runner are played in the same way, see :mod:`runners`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import runners

if TYPE_CHECKING:
    from progress import Progress

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
LAUNCHERS = ("accelerate", "accelerate-launch", "torchrun", "deepspeed", "python", "python3")


def read_files(progress: Progress, files: list[str], consumer: str) -> None:
    """Each file by the reader that its consumer uses. Seen as ``read.<key path>``; the first file that has
    it wins."""
    progress.begin("read")
    for name in files:
        data = read(Path(name), consumer)
        if isinstance(data, dict):
            for key, value in data.items():
                if f"read.{key}" not in progress.values:
                    progress.see(f"read.{key}", value)
    progress.end("read")


def read(path: Path, consumer: str) -> Any:
    text = path.read_text(encoding="utf-8")
    if path.suffix in (".yaml", ".yml"):
        import yaml

        return yaml.safe_load(text)
    if path.suffix == ".json":
        if consumer == "deepspeed" and path.name != "config.json":
            import hjson
            from deepspeed.runtime.config_utils import dict_raise_error_on_duplicate_keys

            return hjson.loads(text, object_pairs_hook=dict_raise_error_on_duplicate_keys)
        return json.loads(text)
    return None


def launch_line(files: list[str]) -> tuple[dict[str, str], list[str]]:
    """Environment and words of the command that starts the training.

    The first line of ``train.sh`` that calls a launcher (with what it exports before), or what fits the
    files.
    """
    if "train.sh" not in files:
        script = ["train.py", *(["--config", "recipe.yaml"] if "recipe.yaml" in files else [])]
        if "accelerate.yaml" in files:
            return {}, ["accelerate", "launch", "--config_file", "accelerate.yaml", *script]
        return {}, ["torchrun", *script]
    environment: dict[str, str] = {}
    for line in Path("train.sh").read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words[:1] == ["export"]:
            environment.update(word.split("=", 1) for word in words[1:] if ASSIGNMENT.match(word))
            continue
        here: dict[str, str] = {}
        while words and ASSIGNMENT.match(words[0]):
            here.update([words.pop(0).split("=", 1)])
        if words[:1] in (["exec"], ["env"]):
            words.pop(0)
        if words and Path(words[0]).name in LAUNCHERS:
            return {**environment, **here}, words
    raise ValueError("train.sh has no line that launches a training script")


def launch(progress: Progress, files: list[str]) -> dict[str, Any]:
    """Play the launch line. Returns {"environment", "script": words after the script, "kind": "ranks" or
    "process"}.

    "process" is a launcher that starts one process without a rendezvous, whatever number was asked for.
    The words of the line are seen as ``launch.line``.
    """
    progress.begin("launch")
    environment, words = launch_line(files)
    progress.see("launch.line", " ".join(words))
    threads = os.environ.pop("OMP_NUM_THREADS", "1")  # of the harness: what the launcher makes of it is to be seen
    os.environ.update(environment)
    program, arguments = runners.program(words)
    result: dict[str, Any] = {"kind": "process" if program == "python" else "ranks"}
    if program in ("accelerate", "accelerate-launch"):
        result.update(accelerate_launch(progress, [program, *arguments]))
    elif program in ("torchrun", "torch.distributed.launch"):
        result.update(runners.torchrun(progress, program, arguments))
    elif program == "deepspeed":
        result.update(runners.deepspeed(progress, arguments))
    else:
        at = next((i for i, word in enumerate(words) if word.endswith(".py")), len(words))
        result["script"] = words[at + 1 :]
        result["environment"] = dict(os.environ)
    progress.see("env", result["environment"])
    if "OMP_NUM_THREADS" in result["environment"]:  # else one for each processor of this machine
        progress.see("threads", openmp_threads(result["environment"]))
    result["environment"].setdefault("OMP_NUM_THREADS", threads)
    progress.end("launch")
    return result


def openmp_threads(environment: dict[str, str]) -> int:
    """Threads that torch's OpenMP, which DeepSpeedCPUAdam uses too, takes in a new process with this environment."""
    import torch

    library = Path(torch.__file__).parent / "lib" / "libgomp.so.1"
    ask = f"import ctypes; print(ctypes.CDLL({str(library)!r}).omp_get_max_threads())"
    words = [sys.executable, "-I", "-S", "-c", ask]
    return int(subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout)


def accelerate_launch(progress: Progress, words: list[str]) -> dict[str, Any]:
    """Run accelerate's launcher; seen as ``launch.<torchrun option>``, ``launch.kind``, ``launch.command`` and
    ``launch.free_port`` (True: it picked a port by itself).

    It is told that a library for fp8 is installed, which is a matter of the machine and not of the config.
    """
    from accelerate.commands import accelerate_cli
    from accelerate.commands import launch as launcher
    from accelerate.utils.other import get_free_port
    from torch.distributed import run as torchrun

    started: list[dict[str, Any]] = []

    def ranks(args: Any) -> None:
        torchrun.config_from_args(args)  # torchrun's own checks of its options
        progress.see("launch", vars(args))
        progress.see("launch.kind", "ranks")
        started.append({"kind": "ranks", "environment": dict(os.environ)})

    class Process:
        returncode = 0

        def __init__(self, command: list[str], env: dict[str, str] | None = None, **_: Any) -> None:
            progress.see("launch.kind", "process" if command[0] != "deepspeed" else "command")
            progress.see("launch.command", command)
            kind = "ranks" if command[0] == "deepspeed" else "process"
            started.append({"kind": kind, "environment": dict(env or os.environ)})
            if command[0] == "deepspeed":
                runners.deepspeed(progress, command[1:])

        def wait(self) -> int:
            return 0

    def free_port() -> int:
        progress.see("launch.free_port", True)
        return get_free_port()

    given: list[Any] = []
    real = launcher.launch_command

    def command(args: Any) -> None:
        given.append(args)
        real(args)

    with (
        mock.patch.object(torchrun, "run", ranks),
        mock.patch("accelerate.utils.launch.get_free_port", free_port),
        mock.patch.object(launcher.subprocess, "Popen", Process),
        mock.patch.object(launcher, "launch_command", command),
        mock.patch("accelerate.utils.launch.is_fp8_available", lambda: True),
        mock.patch.object(sys, "argv", words),
    ):
        accelerate_cli.main() if len(words) > 1 and words[0] == "accelerate" else launcher.main()
    return {**started[-1], "script": given[0].training_script_args}
