"""The tables and pictures of docs/choosing-a-stage.md, computed: ``python -m tests.build.guides`` writes them anew.

Every job is a full fine-tuning by the Trainer in bf16 with 2048 tokens a sample and 128 samples a step, on hardware of
the catalogue; ``goals:`` leaves everything else open. Activations follow from the formula: no torch is needed.
"""

from __future__ import annotations

import json
import re
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.conftest import ROOT
from zerocfg.cli.screens.plan import Shown
from zerocfg.cli.screens.plan_picture import draw
from zerocfg.hardware.profile import load_hardware
from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import percent
from zerocfg.models.hardware import Link
from zerocfg.resolve.build import BuildResult, build_plans
from zerocfg.resolve.explain.alternatives import Alternative, alternatives
from zerocfg.resolve.explain.forecast import forecast
from zerocfg.resolve.explain.plan_summary import by_column, distinct_plans, duration
from zerocfg.resolve.search.choice import describe_plan
from zerocfg.resolve.spec.spec_file import read_spec

PAGE = ROOT / "docs" / "choosing-a-stage.md"
PICTURES = ROOT / "docs" / "pictures"
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.S)
BATCH, LENGTH = 128, 2048

MODELS: dict[str, dict[str, int]] = {
    "3B": {"hidden_size": 3200, "intermediate_size": 8640, "num_hidden_layers": 26, "num_attention_heads": 32},
    "7B": {"hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32},
    "13B": {"hidden_size": 5120, "intermediate_size": 13824, "num_hidden_layers": 40, "num_attention_heads": 40},
    "30B": {"hidden_size": 6656, "intermediate_size": 17920, "num_hidden_layers": 60, "num_attention_heads": 52},
    "70B": {
        "hidden_size": 8192,
        "intermediate_size": 28672,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
    },
}
"""Llama's shapes by the name that guides give them; 32,000 tokens of vocabulary."""

CHOSEN = (
    ("3B", "8xA100-80GB"),
    ("7B", "8xA100-80GB"),
    ("7B", "8xA100-40GB"),
    ("7B", "4xA100-80GB"),
    ("7B", "4xA100-40GB"),
    ("13B", "8xA100-80GB"),
    ("13B", "8xA100-40GB"),
    ("30B", "8xA100-80GB"),
    ("70B", "8xA100-80GB"),
    ("70B", "2x8xA100-80GB"),
    ("70B", "4x8xA100-80GB"),
)
NETWORKS = {"8 x 200 Gbit/s": 50.0, "8 x 25 Gbit/s": 6.25, "1 x 100 Gbit/s": 3.125}
"""Cards of a node with 8 devices: GB/s of one device, both directions together."""
IN_FULL = {"7b": ("7B", "8xA100-80GB"), "13b": ("13B", "8xA100-80GB"), "70b": ("70B", "8xA100-80GB")}


def write_job(folder: Path, model: str, hardware: str, **more: Any) -> Path:
    """The spec and its files; ``more`` replaces keys of the run."""
    run: dict[str, Any] = {
        "consumer": "transformers",
        "script": "train.py",
        "model": "config.json",
        "recipe": "recipe.yaml",
        "engine": "deepspeed",
        "hardware": hardware,
        "sequence_length": LENGTH,
        "goals": {"prefer": "throughput", "global_batch_size": BATCH},
        **more,
    }
    config = {"model_type": "llama", "vocab_size": 32000, **MODELS[model]}
    (folder / "train.py").write_text("")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "recipe.yaml").write_text("output_dir: out\nmax_steps: 100\n")
    spec = folder / "zerocfg.yaml"
    spec.write_text(json.dumps({"version": 1, "runs": {model: run}}))
    return spec


@cache
def job(model: str, hardware: str) -> tuple[BuildResult, list[Alternative]]:
    """A job as it is built, and every way to run it."""
    with TemporaryDirectory() as name:
        (built,) = build_plans(read_spec(write_job(Path(name), model, hardware)))
    assert built.plan is not None, built.problems
    return built, alternatives(built)


@cache
def between_nodes(network: str) -> list[Alternative]:
    """Ways to train 7B on two nodes that are linked so."""
    link = Link(kind="infiniband", gb_s=NETWORKS[network])
    profile = load_hardware("2x8xA100-80GB").model_copy(update={"link_between_nodes": link})
    with TemporaryDirectory() as name:
        (Path(name) / "nodes.json").write_text(profile.model_dump_json())
        (built,) = build_plans(read_spec(write_job(Path(name), "7B", "nodes.json")))
    assert built.plan is not None, built.problems
    return alternatives(built)


def row(model: str, hardware: str, plan: str) -> Alternative:
    """The plan with these words, or that begins with them and a batch."""
    found = [
        one
        for one in job(model, hardware)[1]
        if describe_plan(one.candidate.choice.settings()) == plan or _way(one) == plan
    ]
    return found[0]


def _way(one: Alternative) -> str:
    """A plan without its batch: ``ZeRO-3, optimizer on cpu, recomputed``."""
    return re.sub(r", \d+ x \d+", "", describe_plan(one.candidate.choice.settings()))


def peak(one: Alternative) -> str:
    band = one.candidate.prediction.device
    return f"{band.low / GIB:.0f} to {band.high / GIB:.0f}"


def chance(one: Alternative) -> str:
    assert one.candidate.certain.chance is not None
    return percent(one.candidate.certain.chance)


def tokens(one: Alternative) -> str:
    """Expected tokens a second: what plans are ranked by."""
    assert one.candidate.time is not None
    return f"{one.candidate.time.tokens_per_second:,.0f}"


def sent(one: Alternative) -> str:
    assert one.candidate.time is not None
    return f"{one.candidate.time.traffic.sent / GIB:,.0f}"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" if number == 0 else "---:" for number in range(len(head)))]
    return "".join(f"| {' | '.join(line)} |\n" for line in [*lines, *rows])


def chosen_table() -> str:
    """What is chosen for each model and hardware."""
    rows = []
    for model, hardware in CHOSEN:
        best = job(model, hardware)[1][0]
        plan = describe_plan(best.candidate.choice.settings()) if not best.excluded else "nothing fits"
        rows.append((f"{model} on {hardware}", plan, peak(best), chance(best), sent(best), tokens(best)))
    head = ("job", "chosen (micro batch x steps)", "GiB of a device", "chance", "GiB sent a step", "tokens/s")
    return table(head, rows)


def full_table(model: str, hardware: str) -> str:
    """The best micro batch of each way to run one job."""
    rows = []
    for one in distinct_plans(job(model, hardware)[1]):
        parts = by_column(one.candidate)
        states = sum(parts[name] for name in ("param", "grad", "optim", "buffer")) / GIB
        time = one.candidate.time
        assert time is not None
        shares = (f"{states:.1f}", f"{parts['activ'] / GIB:.1f}", peak(one), chance(one))
        verdict = "unlikely" if one.candidate.word == "unlikely" else one.excluded.split(", the card")[0] or "best"
        step = duration(time.seconds.expected)
        rows.append((describe_plan(one.candidate.choice.settings()), *shares, sent(one), step, tokens(one), verdict))
    head = ("plan", "states, buffers", "activations", "device", "chance", "sent", "step", "tokens/s", "")
    return table(head, rows)


def networks_table() -> str:
    """The stages without offload, over slower and slower networks."""
    rows = []
    for network in NETWORKS:
        kept = [one for one in distinct_plans(between_nodes(network)) if not one.candidate.choice.offloads]
        stages = [next(one for one in kept if _way(one) == f"ZeRO-{stage}") for stage in (1, 2, 3)]
        best = describe_plan(between_nodes(network)[0].candidate.choice.settings())
        rows.append((network, *(f"{tokens(one)}" for one in stages), best))
    return table(("network of a node", "ZeRO-1", "ZeRO-2", "ZeRO-3", "chosen"), rows)


def tables() -> dict[str, str]:
    return {
        "chosen": chosen_table(),
        "networks": networks_table(),
        **{name: full_table(*which) for name, which in IN_FULL.items()},
    }


def page(text: str) -> str:
    """The page with its tables computed anew."""
    found = tables()
    return BLOCK.sub(lambda match: f"{match[1]}{found[match[2]]}{match[3]}", text)


def pictures(folder: Path) -> list[Path]:
    written = []
    for name in ("7b", "70b"):
        built, rows = job(*IN_FULL[name])
        path = folder / f"plan-{name}.svg"
        draw([Shown(built, forecast(built, tracing=False), rows)], path)
        written.append(path)
    return written


def main() -> None:
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    pictures(PICTURES)


if __name__ == "__main__":
    main()
