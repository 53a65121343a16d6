"""Work of one micro batch on one rank: floating point operations and bytes through the device's memory.

A multiply-add is two operations. Matrix products run at the rate of the tensor cores, everything else (norms,
activation functions, residuals, rotary embeddings, the loss) at the speed of the memory; that is why narrow models
reach a smaller share of the peak. Bytes are counted from what each operation reads and writes, for kernels as Hugging
Face models launch them one by one ("eager"), with one kernel for each norm, activation and rotation ("fused"), or as
torch compiles them, which moves as many bytes and launches half as many kernels as eager code ("compiled").

``tests/memory/test_time_real.py`` counts the operations of a real model. Left out: position tables, routers, biases,
dropout, what adapters add to the forward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from zerocfg.memory.options import Workload
    from zerocfg.models.model_facts import ModelFacts

Kernels = Literal["eager", "fused", "compiled"]
CAUSAL = 0.5  # of the score matrix: what kernels that know the mask compute
FLASH_BACKWARD = 2.5  # five products where the forward pass has two; the plain backward pass has four
# Kernels that a Llama layer of transformers 5.23 launches, and what comes before and after the layers; counted at the
# dispatcher, views left out. The recomputation of a layer leaves out its last kernels.
LAYER_KERNELS = {"forward": 42, "backward": 82, "recomputed": 34}
# The same compiled by inductor (torch 2.13, on a processor): 60 forward and backward, 76 with recomputation; divided
# among the passes as above.
COMPILED_KERNELS = {"forward": 20, "backward": 40, "recomputed": 16}
OTHER_KERNELS = 26


@dataclass(frozen=True, slots=True)
class Pass:
    """One pass: operations in products with weights and in attention, bytes that everything else moves, kernels."""

    products: float
    attention: float
    bytes: float
    kernels: int

    @property
    def flops(self) -> float:
        return self.products + self.attention


@dataclass(frozen=True, slots=True)
class Work:
    """One micro batch: forward pass, backward pass, recomputation of checkpointed blocks.

    ``model_flops`` is what a utilisation of the model (MFU) is counted with: 6 operations for each active parameter and
    12 x layers x width x sequence for attention, for each token, whatever is recomputed, skipped or frozen.
    """

    tokens: int
    forward: Pass
    backward: Pass
    recomputed: Pass
    model_flops: float
    notes: tuple[str, ...] = ()

    @property
    def flops(self) -> float:
        """Operations that the device executes."""
        return self.forward.flops + self.backward.flops + self.recomputed.flops


def active_parameters(facts: ModelFacts) -> int | None:
    """Parameters that one token meets: of the experts of a layer only those it is sent to. None: not known."""
    every, experts, chosen = facts.parameters, facts.num_experts or 0, facts.experts_per_token
    if every is None or experts < 2:
        return every
    if chosen is None or not facts.layout:
        return None
    # The experts of a layer are the largest module that any layer has.
    blocks = [part for part in facts.layout if part.block]
    largest = max((sum(module) for part in blocks for module in part.modules), default=0)
    resting = sum(part.times for part in blocks if any(sum(module) == largest for module in part.modules))
    return every - resting * largest * (experts - min(chosen, experts)) // experts


def work(facts: ModelFacts, workload: Workload, kernels: Kernels = "eager", *, width: int = 2) -> Work:
    """The work of one micro batch; ``width`` is the bytes of one activation.

    Raises ValueError when the parameters, the width or the number of layers are not known.
    """
    every, hidden, layers = facts.parameters, facts.hidden_size, facts.num_hidden_layers
    if every is None or hidden is None or layers is None:
        missing = "number of parameters" if every is None else "hidden size and number of layers"
        raise ValueError(facts.unknown_because or f"the {missing} is not known")
    notes = []
    active = active_parameters(facts)
    if active is None:
        active = every
        notes.append("experts are not distinguished: every parameter is taken to work for every token")
    active -= facts.vision_parameters or 0  # which works for patches, not for tokens
    trained = facts.trainable or 0
    tokens = workload.micro_batch * workload.sequence_length
    sequence = workload.sequence_length
    head = (facts.vocab_size or 0) * hidden
    # A lookup is no product: of the two tables of an untied model only the head multiplies. Nor does a vector.
    vectors = facts.elements_up_to(hidden) or 0
    products = max(0, active - vectors - (0 if facts.tied_embeddings else head))
    blocks = max(0, products - head)

    launched = COMPILED_KERNELS if kernels == "compiled" else LAYER_KERNELS
    flash = workload.attention != "eager"
    scores = 4 * sequence * hidden * layers * (CAUSAL if flash else 1.0)
    moved = layers * _block_bytes(facts, hidden, sequence, kernels, flash, width)
    # Logits: written, converted to fp32, their softmax read and written; a fused loss reads and writes them once.
    logits = (facts.vocab_size or 0) * (4.0 if workload.fused_loss else 16.0)

    forward = Pass(
        tokens * 2.0 * products,
        tokens * scores,
        tokens * (moved + logits),
        layers * launched["forward"] + OTHER_KERNELS,
    )
    tower = _tower(workload, kernels, width)
    # Gradients of activations go through every product, gradients of weights only where they are trained.
    weights = 2.0 * products * (trained / every if trained < every else 1.0)
    backward = Pass(
        tokens * (2.0 * products + weights),
        tokens * scores * (FLASH_BACKWARD if flash else 2.0),
        2 * forward.bytes,
        layers * launched["backward"] + OTHER_KERNELS,
    )
    recomputed = Pass(0.0, 0.0, 0.0, 0)
    if workload.gradient_checkpointing:
        # It stops at the last tensor that backward needs: the input of the layer's last product, which is not repeated
        # (torch/utils/checkpoint.py, early stop; what transformers 5 asks for). Reentrant checkpointing repeats it.
        last = layers * hidden * _inner(facts, hidden)
        kernels_again = layers * launched["recomputed"]
        recomputed = Pass(tokens * 2.0 * max(0, blocks - last), tokens * scores, tokens * moved, kernels_again)
    model_flops = tokens * (6.0 * active + 12.0 * layers * hidden * sequence)
    if tower is not None:
        share = trained / every
        forward = _sum(forward, tower)
        again = Pass(
            tower.products * (1 + share), tower.attention * (FLASH_BACKWARD if flash else 2.0), 2 * tower.bytes, 0
        )
        backward = _sum(backward, again)
        if workload.gradient_checkpointing:
            recomputed = _sum(recomputed, tower)
        model_flops += 3 * tower.flops
    return Work(tokens, forward, backward, recomputed, model_flops, tuple(notes))


def _sum(one: Pass, other: Pass) -> Pass:
    return Pass(
        one.products + other.products,
        one.attention + other.attention,
        one.bytes + other.bytes,
        one.kernels + other.kernels,
    )


def _tower(workload: Workload, kernels: Kernels, width: int) -> Pass | None:
    """What the images of a micro batch are in a vision tower, forward; None: there are none."""
    images = workload.images
    if images is None or not images.per_sample:
        return None
    vision, count = images.vision, workload.micro_batch * images.per_sample
    rows = count * (vision.patches(images.pixels) + vision.classes)
    moved = width * (14 * vision.width + 4 * vision.inner)
    if kernels == "eager":
        moved += vision.width * (2 * 36 + 5 * width)
    return Pass(
        2.0 * count * vision.products(images.pixels),
        2.0 * count * vision.scores(images.pixels),
        float(rows * vision.layers * moved),
        vision.layers * LAYER_KERNELS["forward"],
    )


def _block_bytes(facts: ModelFacts, hidden: int, sequence: int, kernels: Kernels, flash: bool, width: int) -> float:
    """Bytes that one decoder layer reads and writes for one token in its forward pass, matrix products left out."""
    inner = _inner(facts, hidden)
    passes = 4 + 6 + 4  # two norms and two residual sums over the width; attention reads q, k, v and writes one
    activation = 4  # between one kernel (2) and a gate of two kernels (5)
    total = float(width * (hidden * passes + inner * activation))
    if kernels == "eager":
        # A norm in fp32 takes six kernels, 36 bytes for each element in place of 4; a rotation nine passes.
        total += hidden * (2 * 36 - 4 * width + 9 * width)
    if not flash:
        # Scores are written, masked, normalised in fp32, rounded and read again, for each head.
        total += 16.0 * sequence * (facts.num_attention_heads or max(1, hidden // 128))
    return total


def _inner(facts: ModelFacts, hidden: int) -> int:
    """Inner width of the feed-forward part that one token meets."""
    inner = facts.intermediate_size or 4 * hidden
    return inner * (facts.experts_per_token or 1) if (facts.num_experts or 0) > 1 else inner
