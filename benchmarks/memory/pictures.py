"""Draws the pictures of docs/memory.md: python benchmarks/memory/pictures.py [FOLDER]

Needs matplotlib, torch and transformers. Everything in them is predicted; what was measured is drawn by `published.py`.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot as plt

from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.activations.tracing import trace
from zerocfg.memory.options import Options, Workload
from zerocfg.memory.predict import predict
from zerocfg.models.model_facts import from_config

GIB = 1 << 30
FOLDER = Path(__file__).parents[2] / "docs" / "pictures"
LLAMA: dict[str, Any] = {"model_type": "llama"}  # the defaults of its class are those of LLaMA-7B
COLOURS = {
    "parameters": "#4269d0",
    "optimizer": "#efb118",
    "gradients": "#ff725c",
    "buffers": "#6cc5b0",
    "temporaries": "#9c6b4e",
    "activations": "#a463f2",
    "logits": "#ff8ab7",
    "outside": "#9498a0",
}
JOBS = {
    "ZeRO-0": Options(0, 8),
    "ZeRO-1": Options(1, 8),
    "ZeRO-2": Options(2, 8),
    "ZeRO-3": Options(3, 8),
    "ZeRO-2,\noptimizer on\nthe host": Options(2, 8, offload_optimizer="cpu"),
    "ZeRO-3,\noptimizer on\nthe host": Options(3, 8, offload_optimizer="cpu"),
}


def stages(folder: Path) -> None:
    """The peak of a 7B model on eight cards, for each stage, by kind of memory."""
    workload = Workload(2, 4096, gradient_checkpointing=True)
    facts, timeline = from_config(LLAMA), trace(LLAMA, workload, "bf16").timeline
    card = parse_hardware("A100-80GB").accelerator
    figure, axes = plt.subplots(figsize=(8, 4.2))
    for place, options in enumerate(JOBS.values()):
        # GA 8, as such jobs have
        worst = predict(facts, replace(options, gradient_accumulation_steps=8), timeline, card).worst
        bottom = 0.0
        for kind, colour in COLOURS.items():
            size = sum(size for term, size in worst.parts if term.kind == kind) / GIB
            axes.bar(place, size, 0.62, bottom, color=colour, label=kind if place == 0 else None)
            bottom += size
        axes.text(place, bottom + 1.5, f"{bottom:.1f}\nin {worst.moment}", ha="center", fontsize=8)
    assert card.usable_gib is not None
    axes.axhline(card.usable_gib, color="black", linewidth=0.8, linestyle="--")
    axes.text(len(JOBS) - 0.55, card.usable_gib + 1.5, "A100-80GB", ha="right", fontsize=8)
    axes.set_xticks(range(len(JOBS)), list(JOBS), fontsize=8)
    axes.set_ylabel("allocated on each card at the peak, GiB")
    axes.set_ylim(0, 180)
    axes.legend(fontsize=8, frameon=False, loc="upper right", ncols=2)
    axes.set_title("LLaMA-7B, 8 cards, bf16, micro batch 2 x 4096, checkpointing, 8 accumulation steps", fontsize=9)
    _save(figure, axes, folder / "memory-stages.svg")


SPANS = {"forward": (0.0, 1.0), "loss": (1.0, 1.06), "head backward": (1.06, 1.12), "backward": (1.12, 3.12)}
"""Where a moment is drawn: backward takes about twice the time of forward, loss and head little."""


def step(folder: Path) -> None:
    """Activations as a micro batch goes forward and backward, with and without checkpointing."""
    figure, both = plt.subplots(1, 2, figsize=(8, 3.4), sharey=True)
    for axes, checkpointing in zip(both, (False, True), strict=True):
        timeline = trace(LLAMA, Workload(1, 4096, gradient_checkpointing=checkpointing), "bf16").timeline
        times: list[float] = []
        sizes: list[float] = []
        for moment, (start, end) in SPANS.items():
            here = [segment.size / GIB for segment in timeline.segments if segment.moment == moment]
            for i, size in enumerate(here):
                times += [start + (end - start) * i / len(here), start + (end - start) * (i + 1) / len(here)]
                sizes += [size, size]
        axes.fill_between(times, sizes, color=COLOURS["activations"], alpha=0.85, linewidth=0)
        head = max(size for time, size in zip(times, sizes, strict=True) if 1.0 <= time <= 1.12)
        axes.annotate(
            f"at the loss: {head:.1f}",
            (1.06, head),
            (1.45, min(head + 2.2, 26.0)),
            fontsize=8,
            arrowprops={"arrowstyle": "-", "linewidth": 0.6},
        )
        for word, place in (("forward", 0.5), ("backward", 2.1)):
            axes.text(place, 28.3, word, ha="center", fontsize=8)
        axes.axvline(1.06, color="grey", linewidth=0.5)
        axes.set_title("gradient checkpointing" if checkpointing else "all activations kept", fontsize=9)
        axes.set_xticks([])
        axes.set_xlabel("time", fontsize=8)
        axes.set_ylim(0, 29.5)
    both[0].set_ylabel("activations and temporaries, GiB", fontsize=9)
    figure.suptitle("LLaMA-7B, one sequence of 4096 tokens, bf16", fontsize=9)
    _save(figure, both, folder / "memory-step.svg")


def _save(figure: Any, axes: Any, path: Path) -> None:
    for one in axes if hasattr(axes, "__iter__") else [axes]:
        one.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


if __name__ == "__main__":
    matplotlib.rcParams["svg.hashsalt"] = "zerocfg"
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    stages(target)
    step(target)
