"""``python -m benchmarks.releases.live``: three changes of DeepSpeed, seen on live engines of both sides.

Each config is trained on two releases that follow each other, with accelerate and transformers of their time. Writes
``results.md`` beside this file; exit code 1 where a release shows something else than its history says.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proofs.claims import Claim
from tools.facts.play import Set
from tools.facts.sets import SETS
from zerocfg.rulebook.proof import Proof, shows

RESULTS = Path(__file__).with_name("results.md")
_PLAIN = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
_OFFLOADED = {
    "train_micro_batch_size_per_gpu": 1,
    "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}},
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_force_ds_cpu_optimizer": False,
}
_UNKNOWN = {**_PLAIN, "bf16": {"enabled": True, "loss_scale": 0}}
REFUSED = "refused"


@dataclass(frozen=True)
class Change:
    """``beside``: the release set whose other libraries are used. ``seen``: the name of what is looked at, as in
    ``zerocfg.rulebook.proof``; "" where it is whether the engine is built. ``before`` and ``after``: release and
    value."""

    what: str
    config: dict[str, Any]
    beside: str
    seen: str
    before: tuple[str, object]
    after: tuple[str, object]


CHANGES = (
    Change(
        "`gradient_clipping`, which nobody writes", _PLAIN, "0.19.5", "engine.gradient_clipping",
        ("0.19.2", 0.0), ("0.19.3", 1.0),
    ),
    Change(
        "`offload_optimizer.pin_memory`, which nobody writes", _OFFLOADED, "0.19.5",
        "engine.zero_config.offload_optimizer.pin_memory", ("0.19.4", False), ("0.19.5", True),
    ),
    Change("a key of `bf16` that there is not", _UNKNOWN, "0.17.6", "", ("0.17.0", "trains"), ("0.17.1", REFUSED)),
)  # fmt: skip


def seen(change: Change, release: str) -> tuple[object, str]:
    """What a release shows, and beside it what is worth knowing."""
    base = next(one for one in SETS if one.deepspeed == change.beside)
    instead = [] if release == base.deepspeed else [("deepspeed", release)]
    on = Set(base, instead, float("inf"), compiling=False)
    pinned = {"memory.pinned": (0, 0)} if "pin_memory" in change.seen else {}
    proof: Proof = shows("step", {change.seen or "engine.kind": ("", ""), **pinned})
    claim = Claim(change.what, "bad", proof, {"ds.json": json.dumps(change.config)}, "deepspeed")
    found = on.play(claim)
    on.close()
    if isinstance(found, str):
        return None, found
    if found.error is not None:
        first = next((line for line in found.error.text.splitlines() if "not permitted" in line), found.error.text)
        return REFUSED, f"{found.error.type} in {found.error.phase}: {first.strip().splitlines()[0][:80]}"
    if not change.seen:
        return "trains", f"{found.value('engine.dtype')}, to the {found.reached}"
    more = {name: found.value(name) for name in ("step.norm", "step.clipped", "memory.pinned")}
    return found.value(change.seen), ", ".join(f"{name} {value}" for name, value in more.items() if value != "<absent>")


def main() -> int:
    lines = [
        "# Three changes of DeepSpeed on live engines",
        "",
        "Written by `python -m benchmarks.releases.live`: one process on a processor, two optimizer steps.",
        "",
        "| config | release | the engine says | beside it | as its history says |",
        "|---|---|---|---|---|",
    ]
    wrong = 0
    for change in CHANGES:
        for release, expected in (change.before, change.after):
            value, more = seen(change, release)
            wrong += value != expected
            right = "yes" if value == expected else f"no, {expected}"
            lines.append(f"| {change.what} | DeepSpeed {release} | {value} | {more} | {right} |")
            print(lines[-1], flush=True)
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
