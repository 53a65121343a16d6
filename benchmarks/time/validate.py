"""Step times against published throughput: calibration on one half, errors on the other. The protocol is in README.md.

python benchmarks/time/validate.py calibrate POINTS.csv    prints the shares that zerocfg/memory/time/rates.py holds
python benchmarks/time/validate.py report POINTS.csv       writes results/time.json, time.md and time.svg
"""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import re
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))

from zerocfg.hardware.catalogue import parse_hardware  # noqa: E402
from zerocfg.memory.options import Options, TorchOptions, Workload  # noqa: E402
from zerocfg.memory.time import rates  # noqa: E402
from zerocfg.memory.time.flops import Kernels  # noqa: E402
from zerocfg.memory.time.rates import Band, exactly  # noqa: E402
from zerocfg.memory.time.step_time import StepTime, step_time  # noqa: E402
from zerocfg.models.hardware import HardwareProfile  # noqa: E402
from zerocfg.models.model_facts import ModelFacts, from_config  # noqa: E402

FROZEN = ("flops.py", "device_rates.py", "step_time.py", "wire.py")
TIME = HERE.parents[1] / "zerocfg" / "memory" / "time"
DEVICES = {"a100_40gb": "A100-SXM-40GB", "a100_80gb": "A100-SXM-80GB", "h100_80gb": "H100-SXM-80GB"}
# Of Hugging Face (Qwen/Qwen-7B and its siblings); their feed-forward part is gated, with half of intermediate_size.
QWEN = {
    "Qwen-1.8B": (2048, 24, 16, 5504, 151936),
    "Qwen-7B": (4096, 32, 32, 11008, 151936),
    "Qwen-14B": (5120, 40, 40, 13696, 152064),
    "Qwen-72B": (8192, 80, 64, 24576, 152064),
}
LONG = 2048  # tokens of a micro batch from which a device, not Python, is taken to set the pace
LORA_SHARE = 0.02  # trainable part of the Qwen rows with LoRA; rank 64 on all projections
GPT2_LARGE = {"model_type": "gpt2", "n_embd": 1280, "n_layer": 36, "n_head": 20}


@dataclass(frozen=True)
class Row:
    """One published figure and what is needed to predict it; ``measured`` is the seconds of one optimizer step."""

    name: str
    group: str
    facts: ModelFacts
    options: Options | TorchOptions
    workload: Workload
    profile: HardwareProfile
    kernels: Kernels
    measured: float
    odd: bool
    model: str

    def predict(self) -> StepTime:
        return step_time(self.facts, self.options, self.workload, self.profile, kernels=self.kernels)


def foundry(line: dict[str, str]) -> Row:
    """A row of llm-foundry's tables: tokens per second and device. Accumulation is not printed: taken as 1."""
    kind = line["notes"].split(";")[0]
    gpus, batch, length = int(line["gpus"]), int(line["micro_batch"]), int(line["seq"])
    hidden = int(line["hidden"])
    facts = ModelFacts(
        parameters=round(float(line["params_b"]) * 1e9),
        hidden_size=hidden,
        num_hidden_layers=int(line["layers"]),
        vocab_size=int(line["vocab"]),
        intermediate_size=4 * hidden,
        tied_embeddings=True,
    )
    options = TorchOptions("fsdp1", gpus, reshard_after_forward="FULL_SHARD" in line["stage"])
    workload = Workload(batch, length, line["grad_ckpt"] == "True", "flash_attention_2")
    found = re.match(r"([\d.]+) tok/s/GPU", line["throughput"])
    if found is None:
        raise ValueError(f"{line['id']}: {line['throughput']!r} is no rate")
    shape = f"{gpus // 8}x8x{DEVICES[kind]}" if gpus > 8 else f"{gpus}x{DEVICES[kind]}"
    group = "fp8" if "fp8" in line["dtype"] else kind
    seconds = batch * length / float(found[1])
    odd = int(line["id"][1:]) % 2 == 1
    return Row(line["id"], group, facts, options, workload, parse_hardware(shape), "fused", seconds, odd, line["model"])


def llama(line: dict[str, str]) -> Row:
    """A row of the 8 x A800 gist; its unit is taken as samples per second of the job."""
    facts = from_config({"model_type": "llama"})
    batch = int(line["micro_batch"])
    total = 128 if "global batch 128" in line["notes"] else 64
    options = Options(
        int(line["stage"]),
        8,
        gradient_accumulation_steps=total // (8 * batch),
        offload_optimizer=line["offload_opt"],  # type: ignore[arg-type]
        offload_param=line["offload_param"],  # type: ignore[arg-type]
    )
    workload = Workload(batch, int(line["seq"]), line["grad_ckpt"] == "1", "flash_attention_2")
    seconds = total / float(line["throughput"].split()[0])
    group = "A800, no offload" if line["offload_opt"] == "none" else "A800, offload"
    return Row(
        line["id"], group, facts, options, workload, parse_hardware("8xA800"), "eager", seconds, False, line["model"]
    )


def qwen(line: dict[str, str]) -> Row:
    """A row of Qwen's README: seconds of an optimizer step of 8 micro batches, A100-80GB, batch 1."""
    hidden, layers, heads, inner, vocab = QWEN[line["model"]]
    facts = from_config(
        {
            "model_type": "llama",
            "hidden_size": hidden,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "intermediate_size": inner,
            "vocab_size": vocab,
            "tie_word_embeddings": False,
        }
    )
    adapters = "LoRA" in line["notes"].split(";")[0]
    if adapters:
        facts = facts.model_copy(update={"trainable_parameters": round((facts.parameters or 0) * LORA_SHARE)})
    gpus = int(line["gpus"])
    options = Options(3 if "3" in line["stage"] else 0, gpus, gradient_accumulation_steps=8)
    workload = Workload(1, int(line["seq"]), True, "flash_attention_2")
    seconds = float(line["throughput"].split()[0])
    # The long ones calibrate ORDINARY and so are no test of the expected time.
    group = "Qwen, from 2048 tokens (calibration)" if int(line["seq"]) >= LONG else "Qwen, up to 1024 tokens"
    profile = parse_hardware(f"{gpus}xA100-80GB")
    return Row(line["id"], group, facts, options, workload, profile, "eager", seconds, False, line["model"])


def gpt2(line: dict[str, str]) -> Row:
    """A row of DeepSpeed's autotuning tutorial: 16 V100, samples per second, accumulation 1."""
    batch = int(line["micro_batch"])
    options = Options(int(line["stage"]), 16, "fp16")
    workload = Workload(batch, int(line["seq"]), False, "eager")
    seconds = 16 * batch / float(line["throughput"].split()[0])
    profile = parse_hardware("16xV100-32GB")
    facts = from_config(GPT2_LARGE)
    return Row(
        line["id"], "V100, autotuning", facts, options, workload, profile, "eager", seconds, False, line["model"]
    )


READERS: dict[str, Callable[[dict[str, str]], Row]] = {"C": foundry, "G": llama, "Q": qwen, "D": gpt2}


def read(path: Path) -> list[Row]:
    with path.open(newline="") as file:
        lines = [line for line in csv.DictReader(file) if line["id"][0] in READERS and line["throughput"]]
    return [READERS[line["id"][0]](line) for line in lines]


def share_that_fits(row: Row, shares: dict[str, Band]) -> float:
    """The value of ``shares`` at which the prediction equals the measurement; bounds: 0.02 and 3."""
    architecture = row.profile.accelerator.architecture or ""
    kept, low, high = shares[architecture], 0.02, 3.0
    try:
        for _ in range(50):
            middle = (low * high) ** 0.5
            shares[architecture] = exactly(middle)
            low, high = (middle, high) if row.predict().seconds.expected > row.measured else (low, middle)
    finally:
        shares[architecture] = kept
    return low


def attention_part(row: Row) -> float:
    """Share of attention in the operations that the device executes."""
    done = row.predict().work
    passes = (done.forward, done.backward, done.recomputed)
    return sum(one.attention for one in passes) / sum(one.flops for one in passes)


def is_bf16(row: Row) -> bool:
    return row.group in DEVICES


def band(values: Iterable[float]) -> Band:
    """Tenth, fiftieth and ninetieth percentile."""
    cuts = statistics.quantiles(values, n=10, method="inclusive")
    return Band(cuts[0], cuts[4], cuts[8])


def calibrate_rates(rows: list[Row]) -> None:
    """Sets the shares in :mod:`zerocfg.memory.time.rates`: of products on rows with little attention (below 10% of the
    operations), of attention on rows with much (above 25%), in turn until they no longer move."""
    little = [row for row in rows if attention_part(row) < 0.10]
    much = [row for row in rows if attention_part(row) > 0.25]
    for _ in range(8):
        for shares, chosen in ((rates.MATMUL, little), (rates.ATTENTION, much)):
            found: dict[str, list[float]] = defaultdict(list)
            for row in chosen:
                found[row.profile.accelerator.architecture or ""].append(share_that_fits(row, shares))
            shares.update({architecture: band(values) for architecture, values in found.items()})


def constant_mfu(rows: Iterable[Row]) -> dict[str, float]:
    """The baseline: the median utilisation of each group."""
    found: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        found[row.group].append(utilisation(row))
    return {group: statistics.median(values) for group, values in found.items()}


def utilisation(row: Row) -> float:
    step = row.predict()
    return step.work.model_flops * step.micro_steps / row.measured / (step.peak_tflops * 1e12)


def by_constant(row: Row, mfu: dict[str, float]) -> float:
    """Seconds by the baseline."""
    step = row.predict()
    return step.work.model_flops * step.micro_steps / (mfu[row.group] * step.peak_tflops * 1e12)


def summary(errors: list[float]) -> dict[str, float]:
    sizes = [abs(error) for error in errors]
    return {
        "rows": len(errors),
        "mean": statistics.mean(sizes),
        "median": statistics.median(sizes),
        "worst": max(sizes),
        "signed mean": statistics.mean(errors),
    }


def judged(rows: list[Row], mfu: dict[str, float] | None = None) -> list[dict[str, Any]]:
    """Signed errors of the expected time; with ``mfu`` also those of the baseline."""
    found = []
    for row in rows:
        step = row.predict()
        seconds = step.seconds
        one: dict[str, Any] = {
            "row": row.name,
            "group": row.group,
            "model": row.model,
            "measured": row.measured,
            "expected": seconds.expected,
            "low": seconds.low,
            "high": seconds.high,
            "error": seconds.expected / row.measured - 1,
            "inside": seconds.low <= row.measured <= seconds.high,
        }
        if mfu is not None:
            one["baseline error"] = by_constant(row, mfu) / row.measured - 1
        found.append(one)
    return found


def leave_models_out(rows: list[Row]) -> list[dict[str, Any]]:
    """Every bf16 row of the tables, predicted with constants from the rows of the other models."""
    kept, found = (dict(rates.MATMUL), dict(rates.ATTENTION)), []
    for model in sorted({row.model for row in rows}):
        others = [row for row in rows if row.model != model]
        calibrate_rates(others)
        found += judged([row for row in rows if row.model == model], constant_mfu(others))
    rates.MATMUL.update(kept[0])
    rates.ATTENTION.update(kept[1])
    return found


def calibrate(rows: list[Row]) -> None:
    calibrate_rates([row for row in rows if is_bf16(row) and row.odd])
    for name, shares in (("MATMUL", rates.MATMUL), ("ATTENTION", rates.ATTENTION)):
        for architecture, value in sorted(shares.items()):
            print(f"{name} {architecture}: Band({value.low:.3f}, {value.expected:.3f}, {value.high:.3f})")


def hashes() -> dict[str, str]:
    """Of the formulas' files."""
    return {name: hashlib.sha256((TIME / name).read_bytes()).hexdigest()[:16] for name in FROZEN}


def lines_of(title: str, found: list[dict[str, Any]]) -> list[str]:
    lines = [
        f"## {title}",
        "",
        "| rows | | n | median | mean | worst | signed mean | inside the band |",
        "|---|---|---:|---:|---:|---:|---:|---:|",
    ]
    groups = sorted({one["group"] for one in found})
    for group in [*groups, *(["all"] if len(groups) > 1 else [])]:
        here = [one for one in found if group in (one["group"], "all")]
        for name, label in (("error", "zerocfg"), ("baseline error", "one constant MFU")):
            if name not in here[0]:
                continue
            sums = summary([one[name] for one in here])
            inside = f"{sum(one['inside'] for one in here)}/{len(here)}" if name == "error" else ""
            figures = " | ".join(f"{sums[key]:.1%}" for key in ("median", "mean", "worst"))
            lines.append(f"| {group} | {label} | {len(here)} | {figures} | {sums['signed mean']:+.1%} | {inside} |")
    return [*lines, ""]


def each(found: list[dict[str, Any]]) -> list[str]:
    lines = ["| row | model | measured | predicted | band | error |", "|---|---|---:|---:|---:|---:|"]
    for one in found:
        lines.append(
            f"| {one['row']} | {one['model']}, {one['group']} | {one['measured']:.2f} s | {one['expected']:.2f} s "
            f"| {one['low']:.2f} to {one['high']:.2f} s | {one['error']:+.0%} |"
        )
    return [*lines, ""]


def report(rows: list[Row]) -> None:
    tables = [row for row in rows if is_bf16(row)]
    mfu = constant_mfu(row for row in tables if row.odd)
    held_out = judged([row for row in tables if not row.odd], mfu)
    others = judged([row for row in rows if row.group not in (*DEVICES, "fp8")])
    without = leave_models_out(tables)
    date = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    text = [
        "# Step times: predicted and published",
        "",
        f"{date}. Written by `validate.py`; protocol and limits: `README.md`. Error: predicted / measured - 1.",
        f"Formulas: {', '.join(f'{name} {digest}' for name, digest in hashes().items())}.",
        "",
        *lines_of("Held-out half of llm-foundry's bf16 rows (even numbers)", held_out),
        *lines_of("The same tables, constants from the other models only", without),
        *lines_of("Other sources", others),
        *each(others),
    ]
    results = HERE / "results"
    results.mkdir(exist_ok=True)
    (results / "time.md").write_text("\n".join(text))
    data = {"date": date, "formulas": hashes(), "held out": held_out, "models left out": without, "others": others}
    (results / "time.json").write_text(json.dumps(data, indent=1) + "\n")
    draw(held_out, others, results / "time.svg")
    print("\n".join(text))


def draw(held_out: list[dict[str, Any]], others: list[dict[str, Any]], path: Path) -> None:
    """Predicted against measured time, both logarithmic; the band as a line."""
    import matplotlib as mpl

    mpl.use("svg")
    import matplotlib.pyplot as plt

    mpl.rcParams["svg.hashsalt"] = "zerocfg"
    figure, axes = plt.subplots(1, 2, figsize=(11, 5))
    panels = (("llm-foundry, held-out half", held_out), ("other sources", others))
    for axis, (title, found) in zip(axes, panels, strict=True):
        for group in sorted({one["group"] for one in found}):
            here = [one for one in found if one["group"] == group]
            measured = [one["measured"] for one in here]
            expected = [one["expected"] for one in here]
            errors = [
                [max(0.0, one["expected"] - one["low"]) for one in here],
                [max(0.0, one["high"] - one["expected"]) for one in here],
            ]
            axis.errorbar(measured, expected, yerr=errors, fmt="o", markersize=3, linewidth=0.6, label=group)
        ends = [min(one["measured"] for one in found), max(one["measured"] for one in found)]
        axis.plot(ends, ends, color="black", linewidth=0.8)
        axis.set(xscale="log", yscale="log", xlabel="measured, s/step", ylabel="predicted, s/step", title=title)
        axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})


def main() -> None:
    if len(sys.argv) != 3 or sys.argv[1] not in ("calibrate", "report"):
        raise SystemExit(__doc__)
    {"calibrate": calibrate, "report": report}[sys.argv[1]](read(Path(sys.argv[2])))


if __name__ == "__main__":
    main()
