"""Phase "launch" of torchrun and of the `deepspeed` runner: the real programs up to where they start processes.

What is pretended, and nothing else: the machine has eight accelerators, the tools of every multi-node launcher are
installed, and ssh to another machine answers.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

if TYPE_CHECKING:
    from progress import Progress

ACCELERATORS = 8
MODULES = {
    "torch.distributed.run": "torchrun",
    "torch.distributed.launch": "torch.distributed.launch",
    "deepspeed.launcher.runner": "deepspeed",
    "deepspeed": "deepspeed",
}


def program(words: list[str]) -> tuple[str, list[str]]:
    """The program that a command line starts, and the words behind it; ``python -m torch.distributed.run`` is
    torchrun."""
    name = Path(words[0]).name
    if not name.startswith("python"):
        return name, words[1:]
    if words[1:2] == ["-m"] and len(words) > 2 and words[2] in MODULES:
        return MODULES[words[2]], words[3:]
    return "python", words[1:]


def torchrun(progress: Progress, name: str, words: list[str]) -> dict[str, Any]:
    """Seen as ``launch.<option>``, and ``launch.rdzv_endpoint``, ``launch.nnodes`` as the processes get them."""
    from torch.distributed import launch as launch_module
    from torch.distributed import run as run_module

    module = launch_module if name == "torch.distributed.launch" else run_module
    result: dict[str, Any] = {}
    real = run_module.config_from_args

    def config_from_args(args: Any) -> Any:
        progress.see("launch", vars(args))
        found = real(args)
        progress.see("launch.rdzv_endpoint", found[0].rdzv_endpoint)
        progress.see("launch.nproc_per_node", found[0].nproc_per_node)
        result["script"] = list(args.training_script_args)
        return found

    class Elastic:
        def __init__(self, config: Any, entrypoint: Any) -> None:
            result.update(kind="ranks", environment=dict(os.environ))

        def __call__(self, *words: str) -> None:
            progress.see("launch.words", list(words))

    with (
        mock.patch.object(run_module, "config_from_args", config_from_args),
        mock.patch.object(run_module, "elastic_launch", Elastic),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("always")
        module.main(words)
    progress.see("launch.kind", "ranks")
    return result


def deepspeed(progress: Progress, words: list[str]) -> dict[str, Any]:
    """Seen as ``launch.program`` (the command that the runner starts), ``launch.world`` (slots by host) and
    ``launch.master_port``."""
    from deepspeed.accelerator import get_accelerator
    from deepspeed.launcher import runner

    result: dict[str, Any] = {}

    def popen(command: list[str], env: dict[str, str] | None = None, **_: Any) -> Any:
        result.update(kind="ranks", environment=dict(env or os.environ))
        progress.see("launch.program", [str(word) for word in command])
        for word in map(str, command):
            name, _, value = word.partition("=")
            if name == "--world_info":
                progress.values["launch.world"] = json.loads(base64.urlsafe_b64decode(value))
            elif name == "--master_port":
                progress.see("launch.master_port", value)
        return mock.Mock(returncode=0)

    tools = mock.Mock(wraps=runner.subprocess, Popen=popen, check_call=lambda *_, **__: 0)
    tools.check_output = lambda *_, **__: b"10.0.0.1\n"
    tools.CalledProcessError = runner.subprocess.CalledProcessError
    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(runner, "subprocess", tools))
        counted = mock.patch.object(type(get_accelerator()), "device_count", lambda self: ACCELERATORS)
        patches.enter_context(counted)
        patches.enter_context(mock.patch.object(sys, "argv", ["deepspeed", *words]))
        for kind in runner.LAUNCHER_CLASSES.values():
            patches.enter_context(mock.patch.object(kind, "backend_exists", lambda self: True))
        runner.main(words)
        parsed = runner.parse_args(words)
    result["script"] = list(parsed.user_args)
    return result
