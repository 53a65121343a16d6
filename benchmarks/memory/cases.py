"""The runs on one card: models, cases and their order. Plain data; imports neither torch nor transformers.

The first cases tell the most: a run that is stopped early has them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

from zerocfg.memory.activations.tracing import Adapters
from zerocfg.memory.options import Options, TorchOptions, Workload


def _llama(hidden: int, inner: int, layers: int, heads: int, kv: int, vocabulary: int, tied: bool) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "vocab_size": vocabulary,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": tied,
    }


# Shapes of real models, weights random.
MODELS: dict[str, dict[str, Any]] = {
    "smollm-135m": _llama(576, 1536, 30, 9, 3, 49152, True),
    "tinyllama-1.1b": _llama(2048, 5632, 22, 32, 4, 32000, False),
    "llama-3.2-1b": _llama(2048, 8192, 16, 32, 8, 128256, True),
    "llama-3.2-3b": _llama(3072, 8192, 28, 24, 8, 128256, True),
    "llama-2-7b": _llama(4096, 11008, 32, 32, 32, 32000, False),
    "llama-3.1-8b": _llama(4096, 14336, 32, 32, 8, 128256, False),
    "qwen2.5-0.5b": _llama(896, 4864, 24, 14, 2, 151936, True) | {"model_type": "qwen2"},
    "qwen2.5-1.5b": _llama(1536, 8960, 28, 12, 2, 151936, True) | {"model_type": "qwen2"},
    "qwen3-4b": _llama(2560, 9728, 36, 32, 8, 151936, True) | {"model_type": "qwen3", "head_dim": 128},
    "gpt2-large": {
        "model_type": "gpt2",
        "n_embd": 1280,
        "n_layer": 36,
        "n_head": 20,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
}


@dataclass(frozen=True)
class Case:
    """One run: model, how it is trained, and its micro batch.

    ``allocator``: settings of PyTorch's caching allocator (the value of PYTORCH_CUDA_ALLOC_CONF). ``near``: tells
    something only on a card that it nearly fills.
    """

    name: str
    model: str
    options: Options | TorchOptions
    workload: Workload
    adapters: Adapters | None = None
    allocator: str = ""
    near: bool = False

    @property
    def config(self) -> dict[str, Any]:
        return MODELS[self.model]


def _zero(stage: int, **more: Any) -> Options:
    return Options(stage, 1, **{"optimizer": "adamw_fused", **more})


def _work(batch: int, sequence: int, checkpointing: bool = False, **more: Any) -> Workload:
    return Workload(batch, sequence, gradient_checkpointing=checkpointing, **more)


CPU = {"offload_optimizer": "cpu"}
BOTH = {"offload_optimizer": "cpu", "offload_param": "cpu"}
PURE = TorchOptions("single", 1, master=False, optimizer="adamw_fused")
MIXED = TorchOptions("single", 1, optimizer="adamw_fused")

CASES: tuple[Case, ...] = (
    Case("z2", "tinyllama-1.1b", _zero(2), _work(4, 2048)),
    Case("z3", "tinyllama-1.1b", _zero(3), _work(4, 2048)),
    Case("z2-ckpt-vocab", "llama-3.2-1b", _zero(2), _work(4, 2048, True)),
    Case("z3-ckpt-7b", "llama-2-7b", _zero(3), _work(1, 4096, True)),
    Case("z2-cpu-ckpt", "llama-3.2-1b", _zero(2, **CPU), _work(2, 2048, True)),
    Case("z3-cpu-ckpt", "qwen2.5-1.5b", _zero(3, **CPU), _work(2, 4096, True)),
    Case("z0-ckpt", "tinyllama-1.1b", _zero(0), _work(4, 2048, True)),
    Case("z3-no-init", "tinyllama-1.1b", _zero(3, zero_init=False), _work(4, 2048)),
    Case("torch-bf16", "llama-3.2-1b", PURE, _work(4, 2048)),
    Case("torch-autocast", "tinyllama-1.1b", MIXED, _work(4, 2048, autocast=True)),
    Case("z2-short", "tinyllama-1.1b", _zero(2), _work(16, 512)),
    Case("z3-long-ckpt", "llama-3.2-1b", _zero(3), _work(1, 8192, True)),
    Case("z2-long", "llama-3.2-1b", _zero(2), _work(1, 8192)),
    Case("z0-small", "smollm-135m", _zero(0), _work(16, 512)),
    Case("z3-vocab", "qwen2.5-0.5b", _zero(3), _work(16, 1024)),
    Case("z0-vocab-ckpt", "qwen2.5-0.5b", _zero(0), _work(8, 2048, True)),
    Case("z2-3b", "llama-3.2-3b", _zero(2), _work(2, 2048)),
    Case("z3-4b-ckpt", "qwen3-4b", _zero(3), _work(1, 2048, True)),
    Case("z3-both-ckpt", "llama-3.2-1b", _zero(3, **BOTH), _work(1, 8192, True)),
    Case("z2-accumulation", "tinyllama-1.1b", _zero(2, gradient_accumulation_steps=4), _work(4, 2048, True)),
    Case("z3-accumulation", "tinyllama-1.1b", _zero(3, gradient_accumulation_steps=4), _work(4, 2048, True)),
    Case("z2-gpt2", "gpt2-large", _zero(2), _work(8, 1024)),
    Case("z3-8b-ckpt", "llama-3.1-8b", _zero(3), _work(1, 2048, True)),
    Case("z2-overlap", "tinyllama-1.1b", _zero(2, overlap_comm=True), _work(8, 2048, True)),
    Case("z2-small-bucket", "tinyllama-1.1b", _zero(2, reduce_bucket_size=50_000_000), _work(8, 2048, True)),
    Case("z1-ckpt", "tinyllama-1.1b", _zero(1), _work(8, 2048, True)),
    Case("z1-fp32-gradients", "tinyllama-1.1b", _zero(1, accumulation="fp32"), _work(8, 2048, True)),
    Case("z2-fp32-gradients", "tinyllama-1.1b", _zero(2, accumulation="fp32"), _work(8, 2048, True)),
    Case("z3-sub-group", "qwen2.5-1.5b", _zero(3, sub_group_size=100_000_000), _work(1, 1024, True)),
    Case("z2-foreach", "tinyllama-1.1b", _zero(2, optimizer="adamw_foreach"), _work(2, 1024, True)),
    Case("z2-eager", "tinyllama-1.1b", _zero(2), _work(2, 2048, attention="eager")),
    Case("z2-fp16", "smollm-135m", _zero(2, precision="fp16"), _work(8, 2048)),
    Case("z2-fp32", "smollm-135m", _zero(2, precision="fp32"), _work(8, 1024)),
    Case("z3-cpu-3b", "llama-3.2-3b", _zero(3, **CPU), _work(1, 2048, True)),
    Case("z2-8b-too-large", "llama-3.1-8b", _zero(2), _work(1, 2048, True)),
    Case("z2-7b-tight", "llama-2-7b", _zero(2), _work(1, 2048, True)),
)


def _torch(kind: Literal["single", "ddp", "fsdp2"], **more: Any) -> TorchOptions:
    return TorchOptions(kind, 1, **{"optimizer": "adamw_fused", **more})


LORA = Adapters(16)
EXPANDABLE = "expandable_segments:True"

SECOND_ROUND: tuple[Case, ...] = (
    # torch's own engines
    Case("fsdp2", "tinyllama-1.1b", _torch("fsdp2"), _work(4, 2048)),
    Case("fsdp2-ckpt-vocab", "llama-3.2-1b", _torch("fsdp2"), _work(4, 2048, True)),
    Case("ddp", "tinyllama-1.1b", _torch("ddp"), _work(4, 2048, autocast=True)),
    Case("fsdp2-accumulation", "tinyllama-1.1b", _torch("fsdp2", gradient_accumulation_steps=4), _work(2, 2048, True)),
    Case("fsdp2-no-reshard", "tinyllama-1.1b", _torch("fsdp2", reshard_after_forward=False), _work(4, 2048, True)),
    Case("fsdp2-3b-ckpt", "llama-3.2-3b", _torch("fsdp2"), _work(2, 2048, True)),
    Case("fsdp2-tied", "qwen2.5-0.5b", _torch("fsdp2"), _work(8, 1024)),
    Case("ddp-view", "qwen2.5-0.5b", _torch("ddp", gradient_as_bucket_view=True), _work(4, 2048, True, autocast=True)),
    Case(
        "ddp-accumulation",
        "llama-3.2-1b",
        _torch("ddp", gradient_accumulation_steps=4),
        _work(2, 2048, True, autocast=True),
    ),
    Case("ddp-bf16", "llama-3.2-3b", _torch("ddp", master=False), _work(1, 2048, True)),
    Case("torch-eager", "llama-3.2-1b", PURE, _work(2, 1024, attention="eager")),
    Case("torch-3b-ckpt", "llama-3.2-3b", PURE, _work(4, 2048, True)),
    # adapters
    Case("lora-torch", "llama-3.2-3b", PURE, _work(2, 2048, True), LORA),
    Case("lora-z2", "tinyllama-1.1b", _zero(2), _work(4, 2048), LORA),
    Case("lora-z3", "llama-2-7b", _zero(3), _work(1, 2048, True), LORA),
    # accumulation
    Case("z1-accumulation", "tinyllama-1.1b", _zero(1, gradient_accumulation_steps=8), _work(2, 2048)),
    Case("z2-3b-accumulation", "llama-3.2-3b", _zero(2, gradient_accumulation_steps=4), _work(1, 2048, True)),
    Case("z3-small-accumulation", "qwen2.5-0.5b", _zero(3, gradient_accumulation_steps=2), _work(4, 2048)),
    Case("z0-accumulation", "smollm-135m", _zero(0, gradient_accumulation_steps=4), _work(8, 1024)),
    # buckets
    Case("z1-small-bucket", "llama-3.2-1b", _zero(1, reduce_bucket_size=5_000_000), _work(2, 2048, True)),
    Case("z2-tiny-bucket", "qwen2.5-1.5b", _zero(2, reduce_bucket_size=2_000_000), _work(2, 2048, True)),
    Case("z3-small-bucket", "tinyllama-1.1b", _zero(3, reduce_bucket_size=10_000_000), _work(4, 2048, True)),
    Case(
        "z3-little-kept",
        "qwen2.5-1.5b",
        _zero(3, max_live_parameters=100_000_000, max_reuse_distance=100_000_000, prefetch_bucket_size=10_000_000),
        _work(2, 2048, True),
    ),
    Case("z2-not-contiguous", "tinyllama-1.1b", _zero(2, contiguous_gradients=False), _work(4, 2048, True)),
    Case("z1-overlap", "llama-3.2-1b", _zero(1, overlap_comm=True), _work(4, 2048)),
    # other shapes, precisions and attention
    Case("z2-4b-ckpt", "qwen3-4b", _zero(2), _work(1, 2048, True)),
    Case("z3-gpt2", "gpt2-large", _zero(3), _work(8, 1024, True)),
    Case("z0-gpt2", "gpt2-large", _zero(0), _work(4, 1024)),
    Case("z1-fp16", "qwen2.5-0.5b", _zero(1, precision="fp16"), _work(4, 2048)),
    Case("z3-fp16", "tinyllama-1.1b", _zero(3, precision="fp16"), _work(4, 1024)),
    Case("z3-fp32", "smollm-135m", _zero(3, precision="fp32"), _work(8, 1024)),
    Case("z0-eager-ckpt", "tinyllama-1.1b", _zero(0), _work(2, 2048, True, attention="eager")),
    # offload
    Case("z1-cpu", "qwen2.5-0.5b", _zero(1, **CPU), _work(4, 2048, True)),
    Case("z2-cpu-accumulation", "tinyllama-1.1b", _zero(2, **CPU, gradient_accumulation_steps=2), _work(2, 2048)),
    # segments that can grow
    Case("z2-expandable", "tinyllama-1.1b", _zero(2), _work(4, 2048), allocator=EXPANDABLE),
    Case("z3-expandable", "qwen2.5-1.5b", _zero(3), _work(4, 2048, True), allocator=EXPANDABLE),
    Case("torch-expandable", "llama-3.2-1b", PURE, _work(2, 2048), allocator=EXPANDABLE),
    # around the memory of an H100 and of an H200, on both sides
    *(
        Case(f"z2-near-{length}", "llama-3.2-3b", _zero(2), _work(1, length), near=True)
        for length in (5120, 5632, 6144)
    ),
    *(
        Case(f"fsdp2-near-{length}", "llama-3.2-3b", _torch("fsdp2"), _work(1, length), near=True)
        for length in (6144, 6656, 7168)
    ),
    *(Case(f"torch-near-{length}", "llama-2-7b", PURE, _work(1, length), near=True) for length in (4096, 4608, 5120)),
    *(Case(f"z3-near-{length}", "qwen3-4b", _zero(3), _work(1, length), near=True) for length in (7168, 7680, 8192)),
    *(Case(f"torch-near-2x{length}", "llama-2-7b", PURE, _work(2, length), near=True) for length in (6144, 6656, 7168)),
)
"""Cases whose predictions were made after the first round had corrected the formulas: none is one of its cases."""

EVERY = CASES + SECOND_ROUND


def tiny(case: Case) -> Case:
    """The same case with a model and a batch that a processor trains in no time."""
    small = Workload(
        2, 16, case.workload.gradient_checkpointing, case.workload.attention, autocast=case.workload.autocast
    )
    return replace(case, workload=small)


TINY = _llama(64, 128, 2, 4, 2, 512, False)
