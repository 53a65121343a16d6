"""How each published row is read: model, options, micro batch, unit and group, with the reason.

Written before the first comparison. The figures themselves are read from ``memory_points.csv`` when it is there. Rules:

- What a row prints is taken literally. What it does not print is the default of the tool that it names.
- DeepSpeed's buckets have DeepSpeed's defaults unless the tool's own JSON file is known.
- A counter that is not named is compared with what the driver shows, since nvidia-smi is what people read.
- Models without a class in transformers are read as the nearest class with the same widths.
"""

from __future__ import annotations

import csv
import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from benchmarks.memory.cases import MODELS
from zerocfg.memory.activations.tracing import Adapters
from zerocfg.memory.options import Options, TorchOptions, Workload

ROOT = Path(__file__).resolve().parents[2]
GIB, GB = 1 << 30, 10**9

Group = Literal["clean", "open", "quarantined", "verdict"]
Counter = Literal["allocated", "reserved", "device"]


def _like(base: str, **changes: Any) -> dict[str, Any]:
    return {**MODELS[base], **changes}


def _llama(hidden: int, inner: int, layers: int, heads: int, vocabulary: int, kind: str = "llama") -> dict[str, Any]:
    return _like(
        "llama-2-7b",
        model_type=kind,
        hidden_size=hidden,
        intermediate_size=inner,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        vocab_size=vocabulary,
    )


def _phi(hidden: int, layers: int) -> dict[str, Any]:
    return {
        "model_type": "phi",
        "hidden_size": hidden,
        "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 51200,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
        # LitGPT calls torch's gelu, which saves its input; the published config's "gelu_new" is written in nine
        # operations in transformers, each with tensors of its own ("Changes" 6 in README.md).
        "hidden_act": "gelu_pytorch_tanh",
    }


SHAPES: dict[str, dict[str, Any]] = {
    "llama-7b": MODELS["llama-2-7b"],
    "llama-2-13b": _llama(5120, 13824, 40, 40, 32000),
    "llama-3-8b": MODELS["llama-3.1-8b"],
    "tinyllama-1.1b": MODELS["tinyllama-1.1b"],
    "phi-1.5": _phi(2048, 24),
    "phi-2": _phi(2560, 32),
    "phi-3-mini": _llama(3072, 8192, 32, 32, 32064, "phi3"),
    "gemma-2b": _like(
        "llama-2-7b",
        model_type="gemma",
        hidden_size=2048,
        intermediate_size=16384,
        num_hidden_layers=18,
        num_attention_heads=8,
        num_key_value_heads=1,
        head_dim=256,
        vocab_size=256000,
        tie_word_embeddings=False,  # LitGPT's finetuning ties nothing: "tie_embeddings" is refused (finetune/full.py)
    ),
    "stablelm-alpha-3b": {
        "model_type": "gpt_neox",
        "hidden_size": 4096,
        "intermediate_size": 16384,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "vocab_size": 50688,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    },
    "gemma-2-2b": _like(
        "llama-2-7b",
        model_type="gemma2",
        hidden_size=2304,
        intermediate_size=9216,
        num_hidden_layers=26,
        num_attention_heads=8,
        num_key_value_heads=4,
        head_dim=256,
        vocab_size=256000,
        tie_word_embeddings=False,  # as gemma-2b's
    ),
    "llama-3.2-1b": {**MODELS["llama-3.2-1b"], "tie_word_embeddings": False},  # the same
    "llama-3.2-3b": {**MODELS["llama-3.2-3b"], "tie_word_embeddings": False},
    "mistral-7b": {**_llama(4096, 14336, 32, 32, 32000, "mistral"), "num_key_value_heads": 8},
    "falcon-7b": {
        "model_type": "falcon",
        "hidden_size": 4544,
        "num_hidden_layers": 32,
        "num_attention_heads": 71,
        "multi_query": True,
        "parallel_attn": True,
        "new_decoder_architecture": False,
        "bias": False,
        "vocab_size": 65024,
        "tie_word_embeddings": False,
    },
    # Qwen of 2023 has remote code; Qwen2 is the same block (biases on q, k, v) with as many key as query heads.
    "qwen-1.8b": _llama(2048, 5504, 24, 16, 151936, "qwen2"),
    "qwen-7b": _llama(4096, 11008, 32, 32, 151936, "qwen2"),
    "qwen-14b": _llama(5120, 13696, 40, 40, 151936, "qwen2"),
    "qwen-72b": _llama(8192, 24576, 80, 64, 151936, "qwen2"),
    "internlm-7b": _llama(4096, 11008, 32, 32, 103168),
    "internlm-20b": _llama(5120, 13824, 60, 40, 103168),
    "gpt2-xl": {**MODELS["gpt2-large"], "n_embd": 1600, "n_layer": 48, "n_head": 25},
    "deberta-v2-xlarge": {
        "model_type": "deberta-v2",
        "architectures": ["DebertaV2ForSequenceClassification"],
        "hidden_size": 1536,
        "intermediate_size": 6144,
        "num_hidden_layers": 24,
        "num_attention_heads": 24,
        "vocab_size": 128100,
        "max_position_embeddings": 512,
        "relative_attention": True,
        "position_buckets": 256,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "pos_att_type": ["p2c", "c2p"],
        "type_vocab_size": 0,
        "position_biased_input": False,
        "max_relative_positions": -1,
        "conv_kernel_size": 3,
        "conv_act": "gelu",
    },
}


@dataclass(frozen=True)
class Reading:
    """One row as we read it.

    ``parts``: the printed figure is the sum over so many ranks. ``release``: transformers 4.40 upcasts logits to fp32
    and copies the shifted ones. ``adapters``: LoRA. ``card``: name in zerocfg's catalogue. ``keeps_logits``: the
    training script holds the model's output, with fp32 logits, until the next one; ``own_attention``: LitGPT's
    block, which repeats keys and values for all query heads ("Changes" in README.md). ``keeps_weights``: autograd
    holds the gathered weights from forward to backward (``unprinted.py``; false in every reading of this file).
    ``adapters_apart``: FSDP wraps each matrix of an adapter by itself, as PEFT's policy does.
    """

    row: str
    model: str
    options: Options | TorchOptions
    workload: Workload
    group: Group
    why: str
    unit: int = GIB
    counter: Counter = "allocated"
    card: str = "A100-SXM-80GB"
    release: str = "5"
    parts: int = 1
    adapters: Adapters | None = None
    keeps_logits: bool = False
    own_attention: bool = False
    keeps_weights: bool = False
    adapters_apart: bool = False


def _gist() -> Iterator[Reading]:
    """LLaMA-7B on eight A800: DeepSpeed 0.14.2, transformers of early 2024."""
    why = (
        "counter and settings printed; GiB because torch's own tools divide by 2^30; JSON not printed, so default "
        "buckets; bf16 and Adam as usual; accumulation = global batch / (ranks x micro batch)"
    )
    rows: list[tuple[str, int, int, bool, str, str, Group, str, int]] = [
        (
            "G01",
            2,
            1,
            False,
            "none",
            "none",
            "open",
            "resting figure below 2N + 12N/W: read before the first step?",
            64,
        ),
        ("G02", 2, 1, True, "none", "none", "open", "as G01", 64),
        ("G03", 2, 1, True, "cpu", "none", "clean", why, 64),
        ("G04", 2, 4, True, "none", "none", "clean", why, 64),
        (
            "G05",
            3,
            2,
            False,
            "none",
            "none",
            "open",
            "autograd may keep weights: zero.Init or not is not printed",
            64,
        ),
        ("G06", 3, 2, True, "none", "none", "clean", why, 64),
        ("G07", 3, 2, True, "cpu", "none", "clean", why, 64),
        ("G08", 3, 4, True, "cpu", "cpu", "quarantined", "micro batch printed as 4, memory fits 2", 64),
        ("G09", 3, 4, True, "cpu", "cpu", "quarantined", "as G08; ZeRO++ on", 64),
        ("G10", 3, 8, True, "none", "none", "clean", why, 64),
        ("G11", 3, 8, True, "none", "none", "quarantined", "micro batch of G10 and 25 GiB more, unexplained", 128),
    ]
    for row, stage, batch, checkpointing, optimizer, param, group, reason, world_batch in rows:
        options = Options(
            stage,
            8,
            optimizer="adamw_fused",
            gradient_accumulation_steps=world_batch // (8 * batch),
            offload_optimizer=optimizer,  # type: ignore[arg-type]
            offload_param=param,  # type: ignore[arg-type]
        )
        workload = Workload(batch, 4096, checkpointing)
        yield Reading(
            row, "llama-7b", options, workload, group, reason, card="A800-SXM-80GB", release="4.40", keeps_logits=True
        )


LITGPT_LORA = Adapters(8, ("q_proj", "v_proj"), 0.05)


def _litgpt() -> Iterator[Reading]:
    """LitGPT: bf16-true, torch's AdamW, its own model code (read as the class of transformers); bytes / 1e9 = GB."""

    def pure(kind: Literal["single", "fsdp1"], ranks: int, accumulation: int = 8) -> TorchOptions:
        return TorchOptions(kind, ranks, master=False, gradient_accumulation_steps=accumulation)

    why = "max_memory_allocated / 1e9; sequences up to 512, of which a batch of 4 out of 2000 surely has one"
    one, world = pure("single", 1), "FSDP with activation checkpointing of each block"
    yield Reading("L01", "tinyllama-1.1b", one, Workload(4, 512), "clean", why, GB, card="A10G")
    yield Reading("L02", "tinyllama-1.1b", one, Workload(4, 512), "open", "its config uses one device", GB, card="A10G")
    yield Reading(
        "L03", "phi-2", pure("fsdp1", 2, 1), Workload(4, 512, True), "open", f"two devices; {world}", GB, card="A10G"
    )
    yield Reading(
        "L04", "phi-3-mini", one, Workload(4, 512), "quarantined", "8 bytes/parameter exceed the card", GB, card="A10G"
    )
    yield Reading("L05", "gemma-2b", pure("fsdp1", 4, 4), Workload(1, 512, True), "open", world, GB, card="A10G")
    yield Reading(
        "L06", "stablelm-alpha-3b", pure("fsdp1", 2, 4), Workload(1, 512, True), "open", world, GB, card="A10G"
    )
    for row, model in (("L07", "llama-7b"), ("L08", "llama-3-8b")):
        yield Reading(row, model, pure("fsdp1", 4, 4), Workload(4, 512, True), "verdict", world, GB, card="A10G")

    why = (
        "the longest sample of Alpaca comes first; adapters on q and v by default; checkpointing as the tool's default"
    )
    tables: list[tuple[str, str, int, int, int]] = [
        ("L09", "phi-1.5", 1, 1, 1044),
        ("L10", "phi-1.5", 1, 2, 1044),
        ("L11", "phi-1.5", 1, 4, 1044),
        ("L12", "llama-7b", 1, 1, 1304),
        ("L13", "llama-7b", 1, 2, 1304),
        ("L14", "llama-7b", 1, 4, 1304),
        ("L15", "llama-2-13b", 1, 1, 1304),
        ("L16", "llama-2-13b", 1, 2, 1304),
        ("L17", "llama-7b", 2, 1, 1304),
        ("L18", "llama-7b", 2, 4, 1304),
        ("L19", "llama-2-13b", 2, 1, 1304),
        ("L20", "llama-2-13b", 4, 1, 1304),
    ]
    for row, model, ranks, batch, sequence in tables:
        options = pure("fsdp1" if ranks > 1 else "single", ranks)
        group: Group = "verdict" if row in ("L14", "L16", "L19") else "open"
        workload = Workload(batch, sequence, ranks > 1)
        yield Reading(row, model, options, workload, group, why, GB, card="A100-SXM-40GB", adapters=LITGPT_LORA)


LLAMA_LINEARS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj", "lm_head")


def _litgpt_hub() -> Iterator[Reading]:
    """LitGPT's `config_hub/finetune`, a table of runs with the YAML file of each: adapters on one A10G.

    Adapters sit on the linear layers of the nearest class, as PEFT puts them there: LitGPT has one for q, k and v
    together, so that fused layers of a class have one too and separate ones have each their own.
    """
    why = "its YAML file; sequences up to 512, of which 2000 samples surely have some; max_memory_allocated / 1e9"
    attention = ("q_proj", "v_proj")
    tables: list[tuple[str, str, int, int, int, float, tuple[str, ...]]] = [
        ("N01", "falcon-7b", 1, 8, 32, 0.05, ("query_key_value",)),
        ("N02", "gemma-2b", 2, 3, 8, 0.1, LLAMA_LINEARS),
        ("N03", "gemma-2-2b", 2, 3, 8, 0.1, LLAMA_LINEARS),
        ("N04", "llama-7b", 2, 4, 32, 0.05, attention),
        ("N05", "llama-3-8b", 1, 8, 32, 0.05, attention),
        ("N06", "llama-3.2-1b", 1, 8, 32, 0.05, attention),
        ("N07", "llama-3.2-3b", 1, 8, 32, 0.05, attention),
        ("N08", "mistral-7b", 2, 4, 32, 0.05, attention),
        ("N09", "phi-2", 4, 2, 8, 0.05, ("q_proj", "k_proj", "v_proj", "dense", "fc1", "fc2", "lm_head")),
        ("N10", "phi-3-mini", 4, 2, 8, 0.05, ("qkv_proj", "o_proj", "gate_up_proj", "down_proj", "lm_head")),
        ("N11", "stablelm-alpha-3b", 1, 8, 32, 0.05, ("query_key_value",)),
        ("N12", "tinyllama-1.1b", 8, 1, 32, 0.05, LLAMA_LINEARS),
    ]
    for row, model, batch, accumulation, rank, dropout, targets in tables:
        options = TorchOptions("single", 1, master=False, gradient_accumulation_steps=accumulation)
        # Soft caps leave torch's fused attention out (`model.py: scaled_dot_product_attention`).
        work = Workload(batch, 512, attention="eager" if model == "gemma-2-2b" else "sdpa")
        adapters = Adapters(rank, targets, dropout)
        yield Reading(row, model, options, work, "open", why, GB, card="A10G", adapters=adapters)
    impossible = "8 bytes for each of its parameters are more than what was printed"
    for row, model, accumulation in (
        ("N13", "llama-3.2-1b", 16),
        ("N14", "llama-3.2-3b", 16),
        ("N15", "phi-3-mini", 2),
    ):
        options = TorchOptions("single", 1, master=False, gradient_accumulation_steps=accumulation)
        yield Reading(row, model, options, Workload(4, 512), "quarantined", impossible, GB, card="A10G")


# PEFT makes adapters fp32, DeepSpeed casts them to the dtype of the computation.
QWEN_LORA = Adapters(64, ("all-linear",), 0.05, "fp32")
QWEN_LORA_ZERO = Adapters(64, ("all-linear",), 0.05)


def _qwen() -> Iterator[Reading]:
    """Qwen's own table: A100-80G, FlashAttention 2, scripts with gradient checkpointing."""
    why = "scripts checkpoint by default; LoRA of rank 64 on all projections; GB; counter not named"
    flash: dict[str, Any] = {"gradient_checkpointing": True, "attention": "flash_attention_2"}
    lora = TorchOptions("single", 1, master=False, gradient_accumulation_steps=8)
    for row, model, lengths in (
        ("Q01", "qwen-1.8b", (256, 512, 1024, 2048, 4096, 8192)),
        ("Q03", "qwen-7b", (256, 1024, 2048, 4096, 8192)),
        ("Q05", "qwen-14b", (256, 2048, 8192)),
    ):
        for length in lengths:
            work = Workload(1, length, **flash)
            yield Reading(f"{row}-{length}", model, lora, work, "open", why, GB, "device", adapters=QWEN_LORA)

    def third(model: str, ranks: int) -> Options:
        width = SHAPES[model]["hidden_size"]
        return Options(
            3,
            ranks,
            optimizer="adamw_fused",
            gradient_accumulation_steps=8,
            overlap_comm=True,
            reduce_bucket_size=width * width,
            prefetch_bucket_size=width * width * 9 // 10,
            param_persistence_threshold=10 * width,
            gather_on_save=True,
        )

    full = "finetune_ds.sh names its ZeRO-3 JSON file, whose buckets are auto; total over the ranks"
    tables: list[tuple[str, str, int, tuple[int, ...]]] = [
        ("Q02", "qwen-1.8b", 1, (256, 2048, 4096, 8192)),
        ("Q04", "qwen-7b", 2, (256, 512, 1024)),
    ]
    for row, model, ranks, several in tables:
        for length in several:
            work = Workload(1, length, **flash)
            yield Reading(f"{row}-{length}", model, third(model, ranks), work, "open", full, GB, "device", parts=ranks)
    for length in (256, 1024, 2048, 4096, 8192):
        work = Workload(1, length, **flash)
        yield Reading(
            f"Q06-{length}",
            "qwen-72b",
            third("qwen-72b", 4),
            work,
            "open",
            full,
            GB,
            "device",
            parts=4,
            adapters=QWEN_LORA_ZERO,
        )


def _internlm() -> Iterator[Reading]:
    why = "FSDP, one sample of 2048 tokens with checkpointing (7B_sft); GB; counter not named; shapes as published"
    for row, model, ranks in (
        ("E01", "internlm-7b", 3),
        ("E02", "internlm-7b", 4),
        ("E03", "internlm-7b", 5),
        ("E04", "internlm-7b", 6),
        ("E05", "internlm-20b", 8),
        ("E06", "internlm-20b", 16),
    ):
        options, work = TorchOptions("fsdp1", ranks), Workload(1, 2048, True)
        yield Reading(row, model, options, work, "open", why, GB, "device", card="A800-SXM-80GB")


FSDP_LORA = Adapters(64, ("k_proj", "q_proj", "v_proj", "up_proj", "down_proj", "gate_proj"), 0.1)


def _fsdp_qlora() -> Iterator[Reading]:
    why = "LoRA of rank 64 in bf16 under FSDP, checkpointing; GiB as printed"
    shard, whole = TorchOptions("fsdp1", 2, master=False), TorchOptions("ddp", 2, master=False)
    rows: list[tuple[str, TorchOptions, int, int, Counter]] = [
        ("A03", shard, 1, 512, "reserved"),
        ("A04", shard, 1, 2048, "reserved"),
        ("A05", shard, 4, 2048, "reserved"),
        ("A06", shard, 6, 2048, "reserved"),
        ("A07", whole, 4, 2048, "reserved"),
        ("A11", shard, 1, 512, "allocated"),
        ("A12", shard, 1, 2048, "allocated"),
    ]
    for row, options, batch, length, counter in rows:
        work = Workload(batch, length, True)
        reading = Reading(row, "llama-7b", options, work, "open", why, GIB, counter, "RTX3090", adapters=FSDP_LORA)
        # train.py of fsdp_qlora has the policy of PEFT's own `fsdp_auto_wrap_policy`.
        yield replace(reading, adapters_apart=options is shard)


def _limits() -> Iterator[Reading]:
    """Rows that say what ran or did not, with everything that decides it."""
    classify = "128 tokens; the largest batch that ran"
    ddp = TorchOptions("ddp", 2, precision="fp16")
    work = Workload(8, 128, attention="eager", autocast=True)
    yield Reading("F07", "deberta-v2-xlarge", ddp, work, "verdict", classify, card="RTX3090")
    fp16 = Options(2, 2, precision="fp16", optimizer="adamw_fused")
    work = Workload(40, 128, attention="eager")
    yield Reading("F08", "deberta-v2-xlarge", fp16, work, "verdict", classify, card="RTX3090")
    both = Options(3, 1, precision="fp16", optimizer="adamw_fused", offload_optimizer="cpu", offload_param="cpu")
    work = Workload(16, 128, attention="eager")
    yield Reading("F09", "gpt2-xl", both, work, "verdict", "128 tokens; the largest batch that ran", card="RTX3090")


LEFT_OUT: dict[str, str] = {
    "A01": "4-bit weights (QLoRA) are not predicted",
    "A02": "4-bit weights (QLoRA) are not predicted",
    "A08": "4-bit weights (QLoRA) are not predicted",
    "A09": "4-bit weights (QLoRA) are not predicted",
    "A10": "4-bit weights (QLoRA) are not predicted",
    "B01": "stated from 18 bytes for each parameter, not a run",
    "B02": "block-coordinate Adam is not predicted",
    **{f"F{i:02}": "the length of the samples is not printed" for i in (1, 2, 3, 4, 5, 6)},
    **{f"F{i}": "block size printed as 12, which cannot be meant" for i in range(10, 18)},
    "F18": "block size not printed",
    **{f"P{i:02}": "the length of the samples is not printed" for i in range(1, 11)},
    **{f"D{i:02}": "memory of the card not printed (V100 has 16 or 32 GB)" for i in (1, 2, 3)},
}
"""Rows without a reading. The C rows (throughput, no memory) are left out as a whole."""

READINGS: tuple[Reading, ...] = (
    *_gist(),
    *(
        replace(reading, own_attention=reading.workload.attention != "eager")
        for reading in (*_litgpt(), *_litgpt_hub())
    ),
    *_qwen(),
    *_internlm(),
    *_fsdp_qlora(),
    *_limits(),
)


@dataclass(frozen=True)
class Point:
    """A row: what was measured (bytes of one rank; None: only whether it ran) and where it was published."""

    measured: int | None
    ran: bool
    source: str


def points_file() -> Path | None:
    """memory_points.csv: $ZEROCFG_MEMORY_POINTS, or in shared/data beside the checkout; None when absent."""
    named = os.environ.get("ZEROCFG_MEMORY_POINTS")
    path = Path(named) if named else ROOT.parent / "shared" / "data" / "memory_points.csv"
    return path if path.is_file() else None


LITGPT_TABLE = Path(__file__).resolve().parent / "data" / "litgpt-finetune.csv"
"""The rows of `_litgpt_hub` as LitGPT prints them."""


def points(path: Path) -> dict[str, Point]:
    """Row id -> what it says, for the rows of ``path`` and of `LITGPT_TABLE` that have a reading."""
    return {**_points(path), **_points(LITGPT_TABLE)}


def _points(path: Path) -> dict[str, Point]:
    """Row id -> what it says, for the rows that have a reading."""
    by_row = {reading.row: reading for reading in READINGS}
    found = {}
    with path.open(newline="") as lines:
        for line in csv.DictReader(lines):
            reading = by_row.get(line["id"])
            if reading is None:
                continue
            figure = line["measured_gb"].strip()
            # Of an out-of-memory row the printed figure is what was held when it stopped, not a peak.
            ran = "OOM" not in line["measured_kind"]
            measured = int(float(figure) * reading.unit / reading.parts) if figure and ran else None
            found[reading.row] = Point(measured, ran, line["source"])
    return found
