"""Published steps of 8 to 1024 devices against the predicted ones; nothing is fitted to them.

    python benchmarks/time/many_ranks.py [--no-write]

The rows are in rows/many_ranks.csv, each with the address and the words that state it, the models in rows/models.json.
Hardware comes from the catalogue; the network is the row's, else what ``zerocfg plan`` assumes for such hardware.
Writes results/many_ranks.json, .md and .svg. README.md ("Many ranks") says how the rows were chosen.
"""

from __future__ import annotations

import csv
import datetime
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1])]

from many_ranks_report import as_markdown, draw  # noqa: E402
from validate import hashes, summary  # noqa: E402

from zerocfg.hardware.between_nodes import describe_network, with_network  # noqa: E402
from zerocfg.hardware.catalogue import parse_hardware  # noqa: E402
from zerocfg.memory.options import Options, TorchOptions, Workload  # noqa: E402
from zerocfg.memory.time.device_rates import TERA  # noqa: E402
from zerocfg.memory.time.flops import Kernels  # noqa: E402
from zerocfg.memory.time.rates import Band  # noqa: E402
from zerocfg.memory.time.step_time import StepTime, step_time  # noqa: E402
from zerocfg.memory.time.wire import WireOptions  # noqa: E402
from zerocfg.models.hardware import HardwareProfile  # noqa: E402
from zerocfg.models.model_facts import ModelFacts, from_config  # noqa: E402

ROWS = HERE / "rows" / "many_ranks.csv"
MODELS = HERE / "rows" / "models.json"
RESULTS = HERE / "results"
TARGETS = {"median": 0.10, "mean": 0.15}
SIZES = ((8, 8), (16, 64), (96, 128), (256, 1024))
"""Groups of rows by their number of devices: smallest and largest."""
COMPUTATION = {"forward", "backward", "recomputation", "optimizer"}
"""Parts of a step in which the device computes as tuned code does; the others are added to it."""
WIDE = "the band of the time is wide"
"""Beginning of a step's note that names what was never compared with a published step."""


@dataclass(frozen=True)
class Row:
    """One published measurement; ``measured`` is the seconds of an optimizer step."""

    name: str
    source: str
    model: str
    facts: ModelFacts
    options: Options | TorchOptions
    workload: Workload
    profile: HardwareProfile
    wire: WireOptions
    kernels: Kernels
    recomputed: float
    measured: float
    known: str

    @property
    def devices(self) -> int:
        return self.options.world_size


@dataclass(frozen=True)
class Prediction:
    """Seconds of an optimizer step, the parts that make them up, and the operations that a device executes in them.

    ``peak``: operations per second as printed by the vendor.
    """

    seconds: Band
    parts: dict[str, float]
    operations: float
    peak: float
    notes: tuple[str, ...]


def read(rows: Path = ROWS, models: Path = MODELS) -> list[Row]:
    """The committed rows. Raises ValueError for a row that cannot be understood."""
    configs = json.loads(models.read_text())
    with rows.open(newline="") as file:
        return [row_of(line, configs) for line in csv.DictReader(file)]


def row_of(line: dict[str, str], configs: dict[str, Any]) -> Row:
    kernels: Kernels = "compiled" if line["compiled"] == "yes" else line["kernels"]  # type: ignore[assignment]
    workload = Workload(
        int(line["micro_batch"]),
        int(line["sequence"]),
        attention=line["attention"],  # type: ignore[arg-type]
        fused_loss=line["fused_loss"] == "true",
    )
    return Row(
        line["id"],
        line["source"],
        line["model"],
        from_config(configs[line["model"]]["config"]),
        options_of(line),
        workload,
        profile_of(line),
        WireOptions(communication=line["reduce_precision"] or None),  # type: ignore[arg-type]
        kernels,
        float(line["recomputed"]),
        seconds_of(line),
        line["known"],
    )


def options_of(line: dict[str, str]) -> Options | TorchOptions:
    sharding, devices, accumulation = line["sharding"], int(line["devices"]), int(line["accumulation"])
    precision: Any = line["precision"]
    if sharding.startswith("zero"):
        overlap = True if line["overlap_comm"] == "true" else None
        stage = int(sharding.removeprefix("zero"))
        return Options(stage, devices, precision, gradient_accumulation_steps=accumulation, overlap_comm=overlap)
    kind: Any = "fsdp1" if sharding == "hsdp" else sharding
    return TorchOptions(
        kind,
        devices,
        precision,
        gradient_accumulation_steps=accumulation,
        reshard_after_forward=line["reshard_after_forward"] != "false",
        shard_ranks=devices // int(line["nodes"]) if sharding == "hsdp" else None,
    )


def profile_of(line: dict[str, str]) -> HardwareProfile:
    """Hardware of the catalogue, with the network and the memory bandwidth that the row states."""
    nodes, devices = int(line["nodes"]), int(line["devices"])
    profile = parse_hardware(f"{nodes}x{devices // nodes}x{line['accelerator']}")
    if line["memory_gb_s"]:
        device = profile.accelerator.model_copy(update={"memory_gb_s": float(line["memory_gb_s"])})
        profile = profile.model_copy(update={"accelerator": device})
    return with_network(profile, line["network"] or None)


def seconds_of(line: dict[str, str]) -> float:
    """Convert the published figure to seconds of an optimizer step. Raises ValueError for an unknown unit."""
    samples = int(line["micro_batch"]) * int(line["accumulation"])  # of one device
    amounts: dict[str, Callable[[float], float]] = {
        "s/step": lambda value: value,
        "samples/s": lambda value: samples * int(line["devices"]) / value,
        "tokens/s/device": lambda value: samples * int(line["sequence"]) / value,
    }
    if line["unit"] not in amounts:
        raise ValueError(f"{line['id']}: {line['unit']} is no unit that is known here")
    return amounts[line["unit"]](float(line["measured"]))


def predict(row: Row) -> Prediction:
    """Predict a step. Selective checkpointing is interpolated between none and full by the repeated share, because
    zerocfg cannot express it."""
    if row.recomputed in (0, 1):
        return _prediction(_step(row, checkpointing=row.recomputed == 1))
    without, full = (_prediction(_step(row, checkpointing=every)) for every in (False, True))

    def between(first: float, last: float) -> float:
        return first + row.recomputed * (last - first)

    ends = zip(_ends(without.seconds), _ends(full.seconds), strict=True)
    names = dict.fromkeys((*without.parts, *full.parts))
    parts = {name: between(without.parts.get(name, 0.0), full.parts.get(name, 0.0)) for name in names}
    operations = between(without.operations, full.operations)
    band = Band(*(between(*pair) for pair in ends))
    return Prediction(band, parts, operations, full.peak, full.notes)


def _ends(band: Band) -> tuple[float, float, float]:
    return band.low, band.expected, band.high


def _step(row: Row, *, checkpointing: bool) -> StepTime:
    workload = replace(row.workload, gradient_checkpointing=checkpointing)
    return step_time(row.facts, row.options, workload, row.profile, wire=row.wire, kernels=row.kernels)


def _prediction(step: StepTime) -> Prediction:
    executed = (step.work.forward.flops + step.work.backward.flops + step.work.recomputed.flops) * step.micro_steps
    parts = {part.name: part.seconds.expected for part in step.parts}
    return Prediction(step.seconds, parts, executed, step.peak_tflops * TERA, step.notes)


def judge(row: Row) -> dict[str, Any]:
    """A row with what was predicted for it; ``error`` is predicted / measured - 1."""
    prediction = predict(row)
    low, expected, high = _ends(prediction.seconds)
    link = row.profile.link_between_nodes
    return {
        "row": row.name,
        "source": row.source,
        "model": row.model,
        "hardware": row.profile.name,
        "accelerator": row.profile.accelerator.name,
        "devices": row.devices,
        "network": describe_network(row.profile),
        "network assumed": link is not None and link.assumed is not None,
        "recomputed": row.recomputed,
        "measured": row.measured,
        "expected": expected,
        "low": low,
        "high": high,
        "error": expected / row.measured - 1,
        "inside": low <= row.measured <= high,
        "executed share of the peak": prediction.operations / row.measured / prediction.peak,
        "the same, predicted": prediction.operations / expected / prediction.peak,
        "beyond computation": {
            name: seconds / expected
            for name, seconds in prediction.parts.items()
            if name not in COMPUTATION and seconds >= 0.005 * expected
        },
        "known": row.known,
        "not compared": [note.partition(": ")[2] for note in prediction.notes if note.startswith(WIDE)],
    }


def report(rows: Iterable[Row]) -> dict[str, Any]:
    judged = [judge(row) for row in rows]
    everything = sums(judged)
    sources = by("source", judged)
    sizes = {}
    for least, most in SIZES:
        group = [entry for entry in judged if least <= entry["devices"] <= most]
        if group:
            sizes[f"{least} to {most}" if least < most else str(least)] = sums(group)
    return {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "formulas": hashes(),
        "targets": {key: {"at most": most, "reached": everything[key] <= most} for key, most in TARGETS.items()},
        "all": everything,
        "by source": sources,
        "sources alike": {key: sum(group[key] for group in sources.values()) / len(sources) for key in TARGETS},
        "by accelerator": by("accelerator", judged),
        "by devices": sizes,
        "rows": judged,
    }


def by(key: str, judged: Sequence[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    values = dict.fromkeys(entry[key] for entry in judged)
    return {value: sums([entry for entry in judged if entry[key] == value]) for value in values}


def sums(judged: Sequence[dict[str, Any]]) -> dict[str, Any]:
    return {**summary([entry["error"] for entry in judged]), "inside": sum(entry["inside"] for entry in judged)}


def main() -> None:
    if sys.argv[1:] not in ([], ["--no-write"]):
        raise SystemExit(__doc__)
    result = report(read())
    text = as_markdown(result)
    if not sys.argv[1:]:
        (RESULTS / "many_ranks.json").write_text(json.dumps(result, indent=1) + "\n")
        (RESULTS / "many_ranks.md").write_text(text)
        draw(result, RESULTS / "many_ranks.svg")
    print(text)


if __name__ == "__main__":
    main()
