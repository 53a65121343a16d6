"""The steps at which a Trainer that resumes logs, evaluates and saves: those of the checkpoint's trainer_state.json.

`Trainer.train` replaces its state by the file's, and the callback that decides reads the state (seen with transformers
4.36.2, 4.43.4, 4.51.3, 4.57.6, 5.0.0 and 5.23.0; from 4.43 on a warning is logged).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import UNASKED_BYTES
from zerocfg.frontends.registry import front_end
from zerocfg.record import replace
from zerocfg.run.discover import display_name
from zerocfg.run.model import Origin, ResumedState, Run, Setting
from zerocfg.source import disk

if TYPE_CHECKING:
    from zerocfg.run.linking.follow import Paths

STATE_FILE = "trainer_state.json"
STRATEGIES = {"logging_steps": "logging_strategy", "eval_steps": "eval_strategy", "save_steps": "save_strategy"}
"""By the argument that gives the steps: the one that has to be "steps" for them to count."""
_ARGUMENT = "resume_from_checkpoint"


def steps_of(state: Mapping[str, object]) -> dict[str, int]:
    """The steps that a trainer_state.json holds, by the name of the argument."""
    return {
        name: value
        for name in STRATEGIES
        if isinstance(value := state.get(name), int) and not isinstance(value, bool) and value > 0
    }


def with_resumed(paths: Paths, run: Run) -> Run:
    """The run with the state of the checkpoint that it names and certainly resumes from, where that lies here."""
    named = _named(run)
    if named is None or not isinstance(named.value, str) or not named.value.strip("/. "):
        return run
    file = run.launch_file or run.framework_recipe or run.recipe
    if file is None:
        return run
    for base in paths.bases(file, run.launch) if run.launch is not None else paths.around(file):
        path = base / named.value / STATE_FILE
        if disk.is_file(path):
            steps = _read(path)
            return replace(run, resumed=ResumedState(display_name(path), steps, named.origin)) if steps else run
    return run


def _named(run: Run) -> Setting | None:
    """The checkpoint that the arguments name, if what trains hands it to `Trainer.train`."""
    if front_end(run.consumer) is not None:
        recipe = run.framework_recipe
        data = recipe.data() if recipe is not None else None
        words = [word.value or "" for word in run.launch.arguments] if run.launch is not None else []
        if not isinstance(data, dict) or _ARGUMENT not in data or any(_ARGUMENT in word for word in words):
            return None
        return Setting(data[_ARGUMENT], Origin("file", file=recipe, path=(_ARGUMENT,)))
    if run.script is None or not run.script.resumes or run.script.own_loop:
        return None
    given = run.arguments.get(_ARGUMENT)
    if given is not None or run.recipe is None:
        return given
    data = run.recipe.data()
    if not isinstance(data, dict) or _ARGUMENT not in data:
        return None
    return Setting(data[_ARGUMENT], Origin("file", file=run.recipe, path=(_ARGUMENT,)))


def _read(path: Path) -> dict[str, int]:
    try:
        state = json.loads(disk.whole(path, UNASKED_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return steps_of(state) if isinstance(state, dict) else {}
