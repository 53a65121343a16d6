"""One smoke-run with the seconds of its phases: ``python case.py NAME STARTED`` prints JSON.

It runs with the zerocfg that PYTHONPATH names, so that two trees can be compared. STARTED: `time.time()` when the
caller started this process; what passes until the launcher is started counts as "command".
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
WIDE = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 2048,
    "intermediate_size": 5504,
    "num_hidden_layers": 2,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "vocab_size": 32000,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": False,
    "dtype": "bfloat16",
}
WIDE_PARAMETERS = 2 * (4 * 2048**2 + 3 * 2048 * 5504 + 2 * 2048) + 2 * 32000 * 2048 + 2048
"""232 million: 4.6 GiB of weights, gradients and states of one rank."""
GROUPS = (
    ("resume", "resume"),
    ("reference", "reference"),
    ("launch", "imports and launch"),
    ("start", "imports and launch"),
    ("import", "imports and launch"),
    ("compile", "imports and launch"),
    ("arguments", "imports and launch"),
    ("model", "weights"),
    ("init", "engine"),
    ("step", "training"),
    ("checkpoint", "checkpoint"),
    ("save", "save"),
    ("read back", "read back"),
    ("done", "end"),
)
"""Prefix of a phase as a rank reports it, and the column that it counts in."""


def main() -> None:
    name, started = sys.argv[1], float(sys.argv[2])
    seconds: dict[str, float] = {}
    current, since = "command", started

    def enter(phase: str) -> None:
        nonlocal current, since
        now = time.time()
        seconds[current] = seconds.get(current, 0.0) + now - since
        current, since = next((group for prefix, group in GROUPS if phase.startswith(prefix)), "other"), now

    verdict = play(name, enter)
    enter("other")
    failed = [f"{one.name}: {one.seen}" for one in verdict.checks if one.ok is False]
    print(
        json.dumps(
            {
                "seconds": {group: round(value, 2) for group, value in seconds.items()},
                "total": round(time.time() - started, 2),
                "failure": verdict.outcome.failure,
                "failed": failed,
            }
        )
    )


def play(name: str, progress: Any) -> Any:
    from zerocfg.smoke.prepare.folder import read
    from zerocfg.smoke.smoke import Options, launch_once

    if name == "quickstart, shared import":
        from zerocfg.smoke.launch import warm

        with warm.shared_imports():
            return play("quickstart", progress)
    if name == "quickstart":
        return launch_once(read(EXAMPLES / "quickstart/built/quickstart"), Options(ranks=2, device="cpu"), progress)
    if name != "wide":
        raise SystemExit(f"no such case: {name}")
    from zerocfg.smoke.prepare import reduce

    reduce.CPU_PARAMETERS = 2 * WIDE_PARAMETERS  # the product cuts a model of this size on a processor
    run = read(EXAMPLES / "sft-zero2/built/sft")
    run = replace(run, lock=replace(run.lock, model_config=WIDE, model_facts={"parameters": WIDE_PARAMETERS}))
    return launch_once(run, Options(ranks=1, device="cpu", limit=600, steps=2), progress)


if __name__ == "__main__":
    main()
