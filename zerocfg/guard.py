"""The configs of the training process that this code runs in: what `zerocfg.check_or_raise` looks at."""

from __future__ import annotations

import os
import shlex
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.catalog.values import whole_number
from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_versions
from zerocfg.run.stages.exports import variables
from zerocfg.workspace.selection import selection_of
from zerocfg.workspace.settings import find_settings

if TYPE_CHECKING:
    from zerocfg.linter.engine import Result

EXPORTED = ("ACCELERATE_", "FSDP_", "PARALLELISM_CONFIG_", "MEGATRON_LM_")
"""Prefixes of the variables by which accelerate's launcher hands its config on."""
NAME = "this-process.sh"
PATIENCE = 10.0
"""Seconds."""


def check() -> Result:
    """Lint what the command of this process names. Raises UsageError for settings that make no sense."""
    settings = find_settings(Path())
    # As a launch line it goes the linter's usual road: the variables say what a launcher's config said.
    stand_in = Path(NAME)
    files = Files({os.path.realpath(stand_in): command()})
    runs, asked = find_runs([stand_in], files)
    own = [run for run in runs if run.launch_file is not None and id(run.launch_file) in asked]
    return lint_runs(with_versions(own, settings.versions), selection_of(settings, "", "", preview=False))


def command() -> str:
    """The command that would start this process as it was started, in one line of shell."""
    ranks, local = _number("WORLD_SIZE"), _number("LOCAL_WORLD_SIZE")
    nodes = max(1, ranks // local)
    script = " ".join(map(shlex.quote, sys.argv))
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        options = [f"--use_deepspeed --num_processes {ranks} --num_machines {nodes}"]
        options += [f"--{name} {shlex.quote(value)}" for name, value in _deepspeed_options().items()]
        return f"accelerate launch {' '.join(options)} {script}\n"
    variables = {name: value for name, value in sorted(os.environ.items()) if name.startswith(EXPORTED)}
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*words, f"torchrun --nproc_per_node {local} --nnodes {nodes}", script]) + "\n"


def _deepspeed_options() -> dict[str, str]:
    """The launcher's options that would export what this process has; beside a config file it takes no others."""
    table = {"mixed_precision": "ACCELERATE_MIXED_PRECISION"}
    table |= {option: item["name"] for option, item in variables("deepspeed_config")}
    found = {name: os.environ[variable] for name, variable in table.items() if variable in os.environ}
    file = found.get("deepspeed_config_file")
    return {"deepspeed_config_file": file} if file else found


def _number(variable: str) -> int:
    return whole_number(os.environ.get(variable)) or 1


def is_first() -> bool:
    """Whether this is the process of the job that speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def let_the_first_speak() -> None:
    """Wait a little: a launcher ends all ranks when one of them fails, and the first has to be heard before."""
    time.sleep(PATIENCE)
