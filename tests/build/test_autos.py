"""Every auto is resolved as the consumer would: random jobs, built ahead of time and played on the real libraries.

A job that the libraries run is resolved by the build, each value of the config that reaches the engine the same. A job
that they refuse is refused by the build as well, which names the same keys. `make parity` compares many more jobs.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.build.conftest import Workplace
from tests.build.test_parity import environment
from tests.build.triples import SEED, Triple, triples
from tests.parity.verdicts import BY_KEY, claims
from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.resolve.build import build_plans
from zerocfg.resolve.spec.spec_file import read_spec
from zerocfg.rules.api import Severity

pytestmark = pytest.mark.libs

SHARDS = 2
COUNT = int(os.environ.get("ZEROCFG_PARITY", "1000"))

IN_SCRIPT = (
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "train_batch_size",
    "optimizer.params.lr",
    "optimizer.params.weight_decay",
    "scheduler.params.warmup_min_lr",
    "scheduler.params.warmup_max_lr",
    "scheduler.params.warmup_num_steps",
    "scheduler.params.total_num_steps",
)
"""Autos that the code of an accelerate loop fills: the build can only name them."""
OF_TRAINER_CLASS = ("optimizer.params.lr", "scheduler.params.warmup_max_lr")
"""Autos from `learning_rate`, of which each trainer of TRL has a default of its own."""
STAGE = "zero_optimization.stage"
CHOSEN = (STAGE, "zero_optimization.stage3_gather_16bit_weights_on_model_save")
"""Autos for which the libraries have an answer of their own (2, false) and zerocfg a better one, and says so."""

FILLED = (
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping "
    "optimizer.params.lr optimizer.params.betas optimizer.params.eps optimizer.params.weight_decay "
    "scheduler.params.warmup_min_lr scheduler.params.warmup_max_lr scheduler.params.warmup_num_steps "
    "scheduler.params.total_num_steps fp16.enabled bf16.enabled zero_optimization.reduce_bucket_size "
    "zero_optimization.stage3_prefetch_bucket_size zero_optimization.stage3_param_persistence_threshold "
    "zero_optimization.stage3_gather_16bit_weights_on_model_save zero_optimization.offload_optimizer.device "
    "zero_optimization.offload_optimizer.nvme_path zero_optimization.offload_param.device"
).split()
"""Every auto that accelerate and the Trainer fill, without the stage."""
LAUNCH = "ZC7"
"""Errors about how the job is started, which the build decides."""


@dataclass
class Outcome:
    """What the build makes of a job. ``claimed``: errors of lint that say that a library refuses it."""

    settings: dict[str, Any] = field(default_factory=dict)
    chosen: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    @property
    def said(self) -> str:
        return "\n".join([*self.problems, *self.claimed, *self.other])


def built(workplace: Workplace, job: Triple) -> Outcome:
    spec = read_spec(workplace.write(job.files()))
    assert spec.spec is not None, spec.problems
    (one,) = build_plans(spec)
    found = Outcome(problems=[f"{problem.key}: {problem.message}" for problem in one.problems])
    if one.plan is not None:
        found.settings = {name: decision.value for name, decision in one.plan.settings.items()}
        found.chosen = {name for name, decision in one.plan.settings.items() if decision.kind == "chosen"}
    errors = [found for found in lint_runs([one.run]).diagnostics if found.severity is Severity.ERROR]
    sure, _ = claims(errors, "read", "launch", "arguments", "init", "parse")
    for error in errors:
        text = f"{error.code} {error.span.path}: {error.message}"
        if not replaced(error):
            (found.claimed if error in sure or error.code.startswith(LAUNCH) else found.other).append(text)
    return found


def replaced(error: Diagnostic) -> bool:
    """Whether the emitted files hold something else in this place: the processes of the hardware, a filled auto."""
    if error.span.path in ("num_processes", "num_machines"):
        return True
    document = error.span.file.document
    here = document.data() if document is not None else None
    for part in error.span.path.split("."):
        here = here.get(part) if isinstance(here, dict) else None
    return bool(here == "auto")


# --- comparing --------------------------------------------------------------------------------------------------------


def differences(job: Triple, real: dict[str, Any], ours: Outcome) -> list[str]:
    if real["error"] is not None:
        return refused_alike(real, ours)
    if real["phase"] != "done":
        return [f"the engine was not reached: {real['phase']}"]
    missing = left_to_code(job)
    if missing:
        return names_missing(missing, real, ours)
    return [
        *(f"the libraries run it, but: {line}" for line in (*ours.problems, *ours.claimed)),
        *(values_differ(job, real, ours) if not ours.problems else ()),
    ]


def leaves(data: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in data.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def left_to_code(job: Triple) -> list[str]:
    """The autos of a job that nothing but its code fills."""
    autos = [name for name, value in leaves(job.deepspeed or {}) if value == "auto"]
    if job.consumer == "accelerate":
        return [name for name in autos if name in IN_SCRIPT and name != "train_batch_size"]
    if job.consumer == "trl" and "learning_rate" not in job.recipe:
        return [name for name in autos if name in OF_TRAINER_CLASS]
    return []


def names_missing(missing: list[str], real: dict[str, Any], ours: Outcome) -> list[str]:
    """The build says which values it needs, and claims nothing else about the job."""
    wrong = [f"{name} is not named as missing" for name in missing if not any(name in one for one in ours.problems)]
    others = [one for one in ours.problems if not one.startswith(tuple(missing))]
    return wrong + [f"the libraries run it, but: {line}" for line in (*others, *ours.claimed)]


def values_differ(job: Triple, real: dict[str, Any], ours: Outcome) -> list[str]:
    """Every value that accelerate hands to the engine, and every one that the engine parsed."""
    wrong = []
    autos = {name for name, value in leaves(job.deepspeed or {}) if value == "auto"}
    wrong += [f"{name} is the consumer's to fill, not chosen" for name in autos & ours.chosen if name not in CHOSEN]
    for name, value in leaves(real["config"]):
        if name not in ours.chosen and not same(ours.settings.get(name, "nothing"), value):
            wrong.append(f"{name}: resolved {ours.settings.get(name, 'nothing')!r}, the engine gets {value!r}")
    for name, value in real["parsed"].items():
        spelled = name.replace("zero_optimization.", "zero_optimization.stage3_")
        known = name if name in ours.settings else spelled
        if known not in ours.settings or known in ours.chosen or isinstance(value, dict) or value is None:
            continue
        if not same(ours.settings[known], value):
            wrong.append(f"{name}: resolved {ours.settings[known]!r}, parsed {value!r}")
    return wrong


def same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float) and math.isinf(one):
        return math.isinf(other)
    return bool(one == other)


REFUSALS: dict[str, str] = {
    r"^- ds (\S+?)=": "the values of the config that are not the recipe's",
    r"`([\w.]+)` not found in kwargs": "an auto that nobody fills",
    r"auto` entries in the DeepSpeed config file: \['([\w.]+)'": "no hidden size",
    r"must be `?(?:less|greater)|^(\w+)\n  (?:Input|Extra|Value)": "a key of a typed section",
}
"""What a library says -> why. A group is a key that the build has to name."""


def refused_alike(real: dict[str, Any], ours: Outcome) -> list[str]:
    """The build refuses the job, too, and names the keys that the library names."""
    error = real["error"]
    by_key = [line for line in ours.other if line.startswith(BY_KEY)]
    if not ours.problems and not ours.claimed and not by_key:
        return [f"refused ({real['phase']}), and the build does not: {error[:400]}; lint: {ours.other}"]
    named = {key for pattern in REFUSALS for key in re.findall(pattern, error, re.MULTILINE) if key}
    return [
        f"the library names {key}, the build does not: {error[:300]}; {ours.said}"
        for key in named
        if key not in ours.said
    ]


# --- playing ----------------------------------------------------------------------------------------------------------


def play(cases: list[dict[str, Any]], folder: Path, root: Path) -> list[dict[str, Any]]:
    (folder / "cases.json").write_text(json.dumps(cases))
    command = [warm.python(), str(Path(__file__).with_name("play.py")), "cases.json", "results.json"]
    with (folder / "log").open("w") as log:
        done = subprocess.run(
            command, cwd=folder, env=environment(root, folder), stdout=log, stderr=log, check=False, timeout=3600
        )
    assert done.returncode == 0, (folder / "log").read_text()[-3000:]
    results: list[dict[str, Any]] = json.loads((folder / "results.json").read_text())
    return results


@pytest.mark.parametrize("shard", range(SHARDS))
def test_triples(shard: int, workplace: Workplace, root: Path, count: Callable[[str, int], None]) -> None:
    jobs = [job for job in triples(COUNT, SEED) if job.number % SHARDS == shard]
    wrong: list[str] = []
    ends: Counter[str] = Counter()
    filled: Counter[str] = Counter()
    outcomes = [built(workplace, job) for job in jobs]
    cases = [
        job.case(ours.settings[STAGE] if STAGE in ours.chosen else None)
        for job, ours in zip(jobs, outcomes, strict=True)
    ]
    for job, ours, real in zip(jobs, outcomes, play(cases, workplace.folder, root), strict=True):
        found = differences(job, real, ours)
        missing = left_to_code(job)
        ends["refused" if real["error"] else "need a value of the script" if missing else "built"] += 1
        if not real["error"] and not missing:
            filled.update(name for name, value in leaves(job.deepspeed or {}) if value == "auto")
        if found:
            wrong.append(f"{job}\n  " + "\n  ".join(found))
    count("random jobs built and played on the real libraries", len(jobs))
    count("autos compared in them", filled.total())
    for end, number in ends.items():
        count(f"of the jobs: {end}", number)
    assert set(filled) >= set(FILLED), set(FILLED) - set(filled)
    assert ends["built"] > len(jobs) // 2 and ends["refused"] > len(jobs) // 20
    assert not wrong, f"{len(wrong)} of {len(jobs)} differ\n" + "\n".join(wrong[:40])
