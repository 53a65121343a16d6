"""DeepSpeed's own verdict on configs, inside one release: reads [text, world size] a line, writes its error or null.

accepted = DeepSpeedConfig, told that so many ranks train, takes what hjson reads
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from typing import Any

from tests.parity.verdicts import World
from tools.facts import old_deepspeed

old_deepspeed.prepare()

import hjson  # noqa: E402
from deepspeed.runtime import config as module  # noqa: E402


def verdict(text: str, world: int) -> str | None:
    module.dist = World(world)
    nowhere = io.StringIO()
    try:
        data: Any = hjson.loads(text, object_pairs_hook=_once)
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            module.DeepSpeedConfig(data)
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A mapping; ValueError where a key stands there twice, as DeepSpeed's own hook has it."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("Duplicate keys in DeepSpeed config")
    return found


for line in sys.stdin:
    print("VERDICT " + json.dumps(verdict(*json.loads(line))), flush=True)
