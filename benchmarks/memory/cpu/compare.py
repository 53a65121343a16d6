"""Predicted against allocated bytes of ZeRO 0 to 3 on CPU ranks, moment by moment and rank by rank.

    python -m benchmarks.memory.cpu.compare

runs every case and writes results.json and results.md. Exit code 1: bytes that nothing explains.
"""

from __future__ import annotations

import datetime
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.memory.cpu.cases import CASES, Case
from zerocfg.memory.options import Options
from zerocfg.memory.tensors import Model, Module, Tensor
from zerocfg.memory.zero.allocation_ledger import Ledger
from zerocfg.memory.zero.replay import replay

Sites = dict[str, list[list[int]]]
MOMENTS = ("init", "forward", "backward", "step")
PARTS = {
    "init": ("init",),
    "forward": ("forward", "loss"),
    "backward": ("head backward", "backward", "backward: reduction"),
    "step": ("step",),
}


def request_of(case: Case) -> dict[str, Any]:
    """What measure.py is asked."""
    options = case.options
    return {
        "model": case.model,
        "frozen": case.frozen,
        "world_size": options.world_size,
        "zero_init": options.stage == 3 and options.zero_init,
        "optimizer": options.optimizer,
        "config": config_of(options),
    }


def config_of(options: Options) -> dict[str, Any]:
    """The DeepSpeed config that these options describe."""
    zero: dict[str, Any] = {
        "stage": options.stage,
        "reduce_bucket_size": options.reduce_bucket_size,
        "allgather_bucket_size": options.allgather_bucket_size,
        "contiguous_gradients": options.contiguous_gradients,
        "overlap_comm": options.overlaps,
    }
    if options.stage == 3:
        zero |= {
            "sub_group_size": options.sub_group_size,
            "stage3_prefetch_bucket_size": options.prefetch_bucket_size,
            "stage3_param_persistence_threshold": options.param_persistence_threshold,
            "stage3_max_live_parameters": options.max_live_parameters,
            "stage3_max_reuse_distance": options.max_reuse_distance,
            "zero_hpz_partition_size": options.secondary_partition_size,
        }
    for section in ("offload_optimizer", "offload_param"):
        if getattr(options, section) != "none":
            zero[section] = {"device": getattr(options, section), "pin_memory": True}
    config: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "steps_per_print": 10**6,
    }
    if options.precision != "fp32":
        config[options.precision] = {"enabled": True}
    if options.precision == "fp16":
        config["fp16"]["loss_scale"] = 1.0
    if options.accumulation:
        config["data_types"] = {"grad_accum_dtype": options.accumulation}
    if options.optimizer == "fused_adam":
        config["optimizer"] = {"type": "AdamW", "params": {"lr": 1e-3}}
    return config


def measure(cases: list[Case], timeout: float = 580.0) -> list[dict[str, Any]]:
    """What measure.py answers for each case."""
    program = Path(__file__).with_name("measure.py")
    text = json.dumps([request_of(case) for case in cases])
    done = subprocess.run([sys.executable, str(program)], input=text, capture_output=True, text=True, timeout=timeout)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) != len(cases):
        raise RuntimeError(done.stderr[-3000:])
    return answers


def model_of(shape: dict[str, Any]) -> Model:
    """The model as the run described it."""
    tensors = tuple(Tensor(size, trained) for size, trained in shape["tensors"])
    modules = tuple(Module(tuple(module), head) for module, head in shape["modules"])
    return Model(tensors, modules, *(tuple(shape[name]) for name in ("gradients", "forward", "backward")))


@dataclass(frozen=True, slots=True)
class Row:
    """One moment of one rank: bytes at its worst point and at its end."""

    moment: str
    predicted_peak: int
    allocated_peak: int
    predicted_end: int
    allocated_end: int
    small: int  # bytes of the peak at sites that are scalars
    small_end: int

    @property
    def unexplained(self) -> int:
        """Bytes that are neither predicted nor scalars. (Scalars may decide which of two points is the worst.)"""
        peak = _outside(self.predicted_peak, self.allocated_peak - self.small, self.allocated_peak)
        return peak + abs(self.allocated_end - self.small_end - self.predicted_end)


def _outside(value: int, low: int, high: int) -> int:
    return max(0, low - value, value - high)


LIMIT = 16  # bytes: step counters, loss scales, norms, flags
# A norm for each tensor, and all of them stacked: 8 bytes for each tensor of the model, twice.
NORMS = ("clip_grad_norm_", "get_global_norm_of_tensors", "get_flattened_grad_norm", "get_weight_norm", "get_grad_norm")
PREDICTED = ("_get_flat_partition_unpadded", "align_dense_tensors")  # tiny, but predicted: padding


def small_of(point: Sites) -> int:
    """Bytes of scalars and of norms, the only ones that are not predicted."""
    found = 0
    for site, sizes in point.items():
        function = site.split(":")[1] if ":" in site else site
        if site != "model" and function not in PREDICTED:
            found += sum(size * n for size, n in sizes if size <= LIMIT or function in NORMS)
    return found


def total_of(point: Sites) -> int:
    return sum(size * n for site, sizes in point.items() if site != "model" for size, n in sizes)


def compare(case: Case, answer: dict[str, Any]) -> list[list[Row]]:
    """The rows of each rank."""
    found = []
    for rank, seen in enumerate(answer["ranks"]):
        ledger = replay(model_of(seen["shape"]), case.options, rank, cpu=True)
        found.append([row_of(ledger, seen["moments"], moment) for moment in MOMENTS])
    return found


def row_of(ledger: Ledger, seen: dict[str, Any], moment: str) -> Row:
    micro = [name for name in seen if name.split()[0] == moment]
    peak = max((seen[name]["peak"] for name in micro), key=total_of)
    end = seen[micro[-1]]["end"]
    predicted = max(ledger.peak(part) for part in PARTS[moment])
    last = sum(ledger.ends["device", PARTS[moment][-1]].values())
    return Row(moment, predicted, total_of(peak), last, total_of(end), small_of(peak), small_of(end))


ATTEMPTS = 3


def explained(cases: Sequence[Case], timeout: float = 600.0) -> Iterator[tuple[Case, list[list[Row]], int]]:
    """Each case with the rows of its ranks, and how often it ran.

    gloo's threads may hold the tensors of a finished call until they are scheduled again, which only ever adds bytes,
    and not to the same ones each time: a case with bytes that nothing explains runs again, at most three times. Raises
    RuntimeError when a rank fails.
    """
    left, found = list(cases), {}
    for attempt in range(1, ATTEMPTS + 1):
        for case, answer in zip(left, measure(left, timeout=timeout), strict=True):
            if "error" in answer:
                raise RuntimeError(f"{case.name}: {answer['error']}")
            found[case.name] = (case, compare(case, answer), attempt)
        left = [case for case, ranks, _ in found.values() if any(row.unexplained for rows in ranks for row in rows)]
        if not left:
            break
    yield from (found[case.name] for case in cases)


def main() -> int:
    """Run all cases and write both tables."""
    import deepspeed
    import torch

    rows: list[dict[str, Any]] = []
    for case, ranks, attempts in explained(CASES, timeout=3600):
        for rank, found in enumerate(ranks):
            about = {"case": case.name, "stage": case.options.stage, "ranks": case.options.world_size, "rank": rank}
            rows += [about | {"attempts": attempts} | vars_of(row) for row in found]
        worst = max(row["unexplained"] for row in rows if row["case"] == case.name)
        print(f"{case.name}, {case.options.world_size} ranks: {worst} bytes unexplained", flush=True)
    versions = {"deepspeed": deepspeed.__version__, "torch": torch.__version__}
    record = {"date": datetime.date.today().isoformat(), "versions": versions, "rows": rows}
    here = Path(__file__).parent
    (here / "results.json").write_text(json.dumps(record, indent=0) + "\n")
    (here / "results.md").write_text(table(record))
    return int(any(row["unexplained"] for row in rows))


def vars_of(row: Row) -> dict[str, Any]:
    return {**{name: getattr(row, name) for name in Row.__slots__}, "unexplained": row.unexplained}


def table(record: dict[str, Any]) -> str:
    """The worst point of all moments but init, and the end of the last step: one line for each case."""
    rows = record["rows"]
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    lines = [
        "# Predicted and allocated bytes on CPU ranks",
        "",
        f"{record['date']}, {versions}. {len({row['case'] for row in rows})} configurations, {len(rows)} comparisons "
        "of a worst point and of what is held at the end of a moment (init, forward, backward, step; every rank). "
        f"Bytes that nothing explains: {sum(row['unexplained'] for row in rows)}.",
        "",
        "The columns show the rank with the highest worst point of a step. *Scalars* are norms, loss scales, step "
        "counters and flags, which are not predicted. Cases that ran more than once, because gloo had let go of "
        f"something late: {sum(one > 1 for one in {row['case']: row['attempts'] for row in rows}.values())}.",
        "",
        "| ZeRO | ranks | predicted peak | allocated peak | scalars | predicted rest | allocated rest | scalars "
        "| unexplained, all moments and ranks |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for case in dict.fromkeys(row["case"] for row in rows):
        own = [row for row in rows if row["case"] == case]
        top = max((row for row in own if row["moment"] != "init"), key=lambda row: row["allocated_peak"])
        rest = next(row for row in own if row["moment"] == "step" and row["rank"] == top["rank"])
        cells = [top["predicted_peak"], top["allocated_peak"], top["small"]]
        cells += [rest["predicted_end"], rest["allocated_end"], rest["small_end"]]
        cells.append(sum(row["unexplained"] for row in own))
        lines.append(f"| {case} | {own[0]['ranks']} | " + " | ".join(map(str, cells)) + " |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main())
