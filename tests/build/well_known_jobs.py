"""The table of docs/well-known-jobs.md, computed: ``python -m tests.build.well_known_jobs`` writes it anew.

Each job is a line that a reader can type, in a folder with the files that the page shows. Nothing is traced and nothing
is asked of a network, so that the table is the same everywhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.conftest import ROOT
from zerocfg.catalog.known_models import known_config
from zerocfg.cli.commands.plan import command
from zerocfg.hardware.profile import load_hardware, write_text
from zerocfg.memory.overhead import GIB, Band
from zerocfg.memory.verdict import Verdict, percent
from zerocfg.models.hardware import Link
from zerocfg.resolve.build import build_plans
from zerocfg.resolve.explain.alternatives import Alternative, alternatives
from zerocfg.resolve.explain.forecast import forecast
from zerocfg.resolve.model.gaps import touching
from zerocfg.resolve.model_plans import find_model, plans_of
from zerocfg.resolve.search.choice import describe_plan
from zerocfg.resolve.spec.spec_file import read_spec

PAGE = ROOT / "docs" / "well-known-jobs.md"
BLOCK = re.compile(r"(<!-- table: (\S+) -->\n).*?(<!-- end -->)", re.S)

JOBS = {
    "8B, 4k tokens": "zerocfg plan meta-llama/Llama-3.1-8B --hardware 8xH100-80GB --seq 4096",
    "70B on four nodes": "zerocfg plan meta-llama/Llama-3.1-70B --hardware 4x8xH100-80GB --seq 4096",
    "405B on 16 nodes": "zerocfg plan meta-llama/Llama-3.1-405B --hardware 16x8xH100-80GB --seq 4096",
    "Mixtral 8x7B": "zerocfg plan mistralai/Mixtral-8x7B-v0.1 --hardware 8xH100-80GB --seq 4096",
    "13B in fp16 on V100": "zerocfg plan meta-llama/Llama-2-13b-hf --hardware 8xV100-32GB",
    "LoRA, 8B on one card of 24 GB": "zerocfg plan meta-llama/Llama-3.1-8B --hardware 1xRTX4090 --lora",
    "GRPO, 1.5B": "zerocfg plan grpo --no-trace",
    "vision, 7B": "zerocfg plan vision --no-trace",
    "8B, 32k tokens": "zerocfg plan meta-llama/Llama-3.1-8B --hardware 8xH100-80GB --seq 32768 --batch 8",
    "FSDP 2 with LoRA, 70B": "zerocfg plan lora --no-trace",
    "70B on MI300X": "zerocfg plan meta-llama/Llama-3.1-70B --hardware 8xMI300X",
    "13B on two nodes": "zerocfg plan meta-llama/Llama-2-13b-hf --hardware nodes.json",
}
VISION = {
    "model_type": "qwen2_5_vl",
    "vocab_size": 152064,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
    "vision_config": {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "num_heads": 16},
}
GRPO = """\
version: 1
runs:
  grpo:
    consumer: trl
    script: train.py
    model: Qwen/Qwen2.5-1.5B
    recipe: recipe.yaml
    hardware: 8xH100-80GB
    sequence_length: 1536
    goals: {global_batch_size: 64}
"""
GRPO_SCRIPT = """\
from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser

script, arguments, model = TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()
GRPOTrainer(model.model_name_or_path, reward_funcs=len, args=arguments).train()
"""
GRPO_RECIPE = """\
output_dir: out
max_steps: 1000
bf16: true
dtype: bfloat16
num_generations: 16
max_completion_length: 1024
use_vllm: true
vllm_mode: colocate
"""
LORA = """\
version: 1
runs:
  lora:
    consumer: trl
    script: train.py
    model: meta-llama/Llama-3.1-70B
    recipe: recipe.yaml
    engine: fsdp
    hardware: 8xH100-80GB
    goals: {global_batch_size: 64}
"""
LORA_RECIPE = """\
output_dir: out
max_steps: 1000
bf16: true
dtype: bfloat16
use_peft: true
lora_r: 16
max_length: 4096
"""
SIGHTED = """\
version: 1
runs:
  vision:
    consumer: transformers
    script: train.py
    model: qwen2.5-vl-7b.json
    recipe: recipe.yaml
    hardware: 8xA100-80GB
    sequence_length: 2048
    images: {per_sample: 1, pixels: 1003520}
    goals: {global_batch_size: 64}
"""
SIGHTED_RECIPE = """\
output_dir: out
max_steps: 1000
bf16: true
"""
SHOWN = {
    "grpo/zerocfg.yaml": GRPO,
    "grpo/recipe.yaml": GRPO_RECIPE,
    "grpo/train.py": GRPO_SCRIPT,
    "lora/zerocfg.yaml": LORA,
    "lora/recipe.yaml": LORA_RECIPE,
    "vision/zerocfg.yaml": SIGHTED,
    "vision/recipe.yaml": SIGHTED_RECIPE,
    "vision/qwen2.5-vl-7b.json": json.dumps(VISION, indent=2) + "\n",
}
"""The files that the page shows; beside them lie the empty scripts, and ``nodes.json``."""
CACHED = ("Qwen/Qwen2.5-1.5B", "meta-llama/Llama-3.1-70B")
"""What the specs name by a name of the hub, and so is read from its cache."""
INFINIBAND = Link(kind="infiniband", gb_s=50.0)
"""Eight cards of 200 Gbit/s for eight devices: 25 GB/s of each device in each direction."""


@dataclass(frozen=True)
class Plan:
    """One plan of a job; ``device`` and ``host`` in bytes. None: not told of a plan that is not the best."""

    words: str
    verdict: Verdict
    device: Band | None
    host: int

    @property
    def chance(self) -> str:
        return "not known" if self.verdict.chance is None else percent(self.verdict.chance)


@dataclass(frozen=True)
class Job:
    """``capacity`` in bytes; ``lacking`` what is not in its figures of memory."""

    title: str
    hardware: str
    parameters: int
    ranks: int
    capacity: int
    best: Plan
    next: Plan | None
    why_not: str
    lacking: tuple[str, ...]


@cache
def jobs() -> tuple[Job, ...]:
    with TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder)
        with _inside(folder):
            return tuple(_job(title, words) for title, words in JOBS.items())


def _write(folder: Path) -> None:
    for name, text in SHOWN.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    for name in ("lora", "vision"):
        (folder / name / "train.py").write_text("")
    nodes = load_hardware("2x8xA100-80GB").model_copy(update={"link_between_nodes": INFINIBAND})
    (folder / "nodes.json").write_text(write_text(nodes))
    for name in CACHED:
        snapshot = folder / "hub" / f"models--{name.replace('/', '--')}" / "snapshots" / "c0ffee"
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text(json.dumps(known_config(name)))


@contextlib.contextmanager
def _inside(folder: Path) -> Iterator[None]:
    before, cached = Path.cwd(), os.environ.get("HF_HUB_CACHE")
    os.chdir(folder)
    os.environ["HF_HUB_CACHE"] = str(folder / "hub")
    try:
        yield
    finally:
        os.chdir(before)
        os.environ.pop("HF_HUB_CACHE")
        if cached is not None:
            os.environ["HF_HUB_CACHE"] = cached


def _job(title: str, line: str) -> Job:
    asked = command.make_context("plan", shlex.split(line)[2:]).params
    if asked["hardware"] is None:
        (built,) = build_plans(read_spec(asked["spec"] / "zerocfg.yaml"))
        assert built.plan is not None, built.problems
        rows = alternatives(built)
    else:
        model = find_model(str(asked["spec"]), Path.cwd())
        assert model is not None, line
        found = plans_of(model, asked["hardware"], lora=asked["lora"], tokens=asked["seq"], samples=asked["batch"])
        built, rows = found.built, found.rows
    known = forecast(built, tracing=False, changes=False)
    profile = built.inputs.profile
    assert profile is not None and known.capacity is not None and built.plan is not None
    gaps = tuple(f"`{name}`" for gap in touching(known.gaps, "memory") for name, _ in gap.keys)
    lacking = gaps if known.prediction.complete else ("activations", *gaps)
    if rows[0].own:
        others = [row for row in rows[1:] if _way(row) != _way(rows[0])]
        best, second, why = _plan(rows[0]), _plan(others[0]) if others else None, others[0].excluded if others else ""
    else:
        first, other = built.plan.considered[:2]
        best = Plan(describe_plan(first.settings), known.verdict, known.prediction.device, known.host.expected)
        second, why = Plan(describe_plan(other.settings), known.verdict, None, 0), other.excluded
    if built.plan.engine == "fsdp" and "FSDP 2" not in best.words:
        best, second = _of_fsdp(best), second and _of_fsdp(second)
    return Job(
        title,
        profile.name,
        known.facts.parameters or 0,
        profile.world_size,
        known.capacity,
        best,
        second,
        why,
        lacking,
    )


def _plan(row: Alternative) -> Plan:
    one = row.candidate
    return Plan(describe_plan(one.choice.settings()), one.certain, one.prediction.device, one.host)


def _of_fsdp(plan: Plan) -> Plan:
    """An engine that the spec names is no part of what is chosen."""
    return Plan(f"FSDP 2, {plan.words}", plan.verdict, plan.device, plan.host)


def _way(row: Alternative) -> dict[str, Any]:
    settings = row.candidate.choice.settings()
    return {name: value for name, value in settings.items() if not name.startswith(("train_", "gradient_accum"))}


def table() -> str:
    head = ("", "job", "hardware", "chosen", "GiB of a device", "it has", "of a node", "chance", "next", "its chance")
    lines = [head, ("---:", "---", "---", "---", "---:", "---:", "---:", "---:", "---", "---:")]
    for number, one in enumerate(jobs(), 1):
        after = (one.next.words, one.next.chance) if one.next else ("-", "-")
        host = f"{one.best.host / GIB:,.0f}" if one.best.host >= GIB else "-"
        chosen = (one.best.words, _needs(one), f"{one.capacity / GIB:.1f}", host, one.best.chance)
        lines.append((str(number), one.title, one.hardware, *chosen, *after))
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def _needs(one: Job) -> str:
    device = one.best.device
    assert device is not None
    band = f"{device.low / GIB:.0f} to {device.high / GIB:.0f}"
    if "activations" in one.lacking:
        band = f"at least {device.low / GIB:.0f}"
    return f"{band}, without {', '.join(one.lacking)}" if one.lacking else band


def lines() -> str:
    return (
        "<!-- not run: tests/build/test_well_known_jobs.py runs them -->\n```bash\n"
        + "".join(f"{line}\n" for line in JOBS.values())
        + "```\n"
    )


def files() -> str:
    kinds = {".yaml": "yaml", ".json": "json", ".py": "python"}
    return "\n".join(f"`{name}`:\n\n```{kinds[Path(name).suffix]}\n{text}```\n" for name, text in SHOWN.items())


def page(text: str) -> str:
    """The page with what is computed computed anew."""
    found = {"jobs": table(), "lines": lines(), "files": files()}
    return BLOCK.sub(lambda match: f"{match[1]}{found[match[2]]}{match[3]}", text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
