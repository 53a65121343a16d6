"""Activations of a decoder-only language model in closed form: for where torch and transformers are not installed.

Bytes for each token, where ``e`` is the size of an element (2 or 4), ``h`` the hidden width, ``f`` the inner width of
the feed-forward part, ``q`` and ``k`` the widths of all queries and of all keys. Derived operator by operator from what
autograd saves in the blocks of transformers 5 (``models/llama/modeling_llama.py`` and its relatives), not fitted:

- RMSNorm: the fp32 copy of its input ``4h``, the normalised values ``eh``, its result ``eh`` (the input of what
  follows);
- LayerNorm: its input ``eh`` and its result ``eh``;
- attention: rotated queries and keys and the values ``e(q + 2k)``, the result ``eq``, one fp32 number a head. Eager
  also keeps scores, for each head and position: ``4`` of softmax and, in 16 bit, ``2`` of their copy; and keys and
  values repeated for every query head, and its backward takes three fp32 scores. So does sdpa in fp32 with grouped
  heads, for which CUDA has no fused kernel;
- feed-forward part: four times ``ef`` when gated (gate, its activation, up, their product), else two; five with xIELU,
  whose backward takes four more, as that of a squared ReLU takes three;
- with checkpointing a layer keeps its input ``eh``, and what it saves is there for one layer at a time;
- logits and loss: ``e + 8`` bytes a logit in forward, 12 when backward starts (fp32 log-softmax, its gradient, the
  gradient of the logits), then the head's own gradient beside the logits'. A tied head's gradient waits for the
  embedding's and is added to it: three at once.

A fused loss keeps the gradients of the hidden states and of the head instead, and about ``eh`` for one chunk's logits.

Where a completion is trained on, prompts of several lengths are padded, so that attention has a mask: keys and values
are then repeated for every query head, and each layer keeps the mask as numbers, ``e`` for each pair of tokens. Its
log-probabilities come from :mod:`.completions`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from zerocfg.memory.activations.completions import head_backward, head_forward
from zerocfg.memory.activations.vision import with_images
from zerocfg.memory.options import BYTES, Precision, Workload
from zerocfg.memory.terms import Moment, Segment, Timeline
from zerocfg.models.model_facts import ModelFacts, text_config

ERROR = 0.08
"""Of the peak, for the dense families in ``_FAMILIES``. Against traces of 26 models in 5 workloads each: median below
0.1 %, worst 7.1 % (glm4, checkpointing with a fused loss); ``tests/memory/test_formula.py`` holds it."""
ERROR_UNKNOWN = 0.3
"""Experts (worst measured: 12 %), frozen parameters, and families that are taken for a LLaMA without being known."""


@dataclass(frozen=True, slots=True)
class _Family:
    """How a family's block differs from LLaMA's; counts are norms of the hidden width in one block."""

    layer_norm: bool = False
    gemma_norm: bool = False  # multiplies in fp32
    norms: int = 2  # whose results feed a linear layer
    after: int = 0  # whose results are added to the residual stream
    query_norm: bool = False
    packed: bool = False  # queries, keys and values are one linear layer's result
    gated: bool = True
    inner: int = 2  # of a feed-forward part without gate: copies of ef that its activation and what follows save
    in_backward: int = 1  # of a feed-forward part without gate: copies of ef that its backward takes
    soft_cap: bool = False  # tanh of the scores and of the logits


_FAMILIES = {
    "llama": _Family(),
    "mistral": _Family(),
    "mixtral": _Family(),
    "qwen2": _Family(),
    "qwen2_vl_text": _Family(),
    "qwen2_moe": _Family(),
    "granite": _Family(),
    "smollm3": _Family(),
    "qwen3": _Family(query_norm=True),
    "qwen3_moe": _Family(query_norm=True),
    "phi3": _Family(packed=True),
    "gemma": _Family(gemma_norm=True),
    "gemma2": _Family(gemma_norm=True, after=2, soft_cap=True),
    "gemma3_text": _Family(gemma_norm=True, after=2, query_norm=True),
    "gemma3": _Family(gemma_norm=True, after=2, query_norm=True),
    "glm4": _Family(after=2),
    "olmo2": _Family(gemma_norm=True, norms=0, after=2, query_norm=True),
    "olmo3": _Family(gemma_norm=True, norms=0, after=2, query_norm=True),
    "olmoe": _Family(query_norm=True),
    "internlm3": _Family(),
    "ministral3": _Family(),
    "cwm": _Family(),
    "exaone4": _Family(norms=0, after=2, query_norm=True),
    "ernie4_5": _Family(),
    "ernie4_5_moe": _Family(),
    "minimax_m2": _Family(query_norm=True),
    "solar_open": _Family(),
    "glm": _Family(),
    "arcee": _Family(gated=False, in_backward=3),
    "apertus": _Family(query_norm=True, gated=False, inner=5, in_backward=4),
    "jais2": _Family(layer_norm=True, gated=False, in_backward=3),
    "cohere2": _Family(norms=1, layer_norm=True),
    "qwen3_vl_text": _Family(query_norm=True),
    "qwen3_vl_moe_text": _Family(query_norm=True),
    "starcoder2": _Family(layer_norm=True, gated=False),
    "gpt_neox": _Family(layer_norm=True, gated=False, packed=True),
    "opt": _Family(layer_norm=True, gated=False, inner=1),
    "stablelm": _Family(layer_norm=True),
}

_INDEXED = "an indexer chooses the tokens that attention looks at"
_NOT_COVERED = {
    "llama4_text": "the experts of Llama 4 each compute all tokens",
    "deepseek_v32": _INDEXED,
    "glm_moe_dsa": _INDEXED,
}
"""Why a family is not taken for a LLaMA: its activations would be far more than that."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Bytes of one block: what it saves, and the most that backward and a forward without saving take besides."""

    saved: int
    backward: int
    forward: int


def by_formula(
    facts: ModelFacts,
    workload: Workload,
    precision: Precision,
    config: Mapping[str, object] | None = None,
    head_ranks: int = 1,
) -> Timeline:
    """The timeline of one micro batch. ``config`` (the content of config.json) tells head and expert widths, and what
    images are to the model; ``head_ranks`` share the output head and gather all logits.

    Raises ValueError when a width is not known, or the size of images, or with autocast, which the formula does not
    cover.
    """
    apart = facts.vision_parameters
    if apart is None:
        return _of_text(facts, workload, precision, config, head_ranks)
    inner = text_config(config or {})
    trainable = _known(facts, "trainable")
    counts = {"parameters": _known(facts, "parameters") - apart, "trainable_parameters": max(0, trainable - apart)}
    of_text = facts.model_copy(update={**counts, "model_type": inner.get("model_type")})
    return with_images(_of_text(of_text, workload, precision, inner), trainable, workload, precision)


def _of_text(
    facts: ModelFacts,
    workload: Workload,
    precision: Precision,
    config: Mapping[str, object] | None,
    head_ranks: int = 1,
) -> Timeline:
    layers, hidden = _known(facts, "num_hidden_layers"), _known(facts, "hidden_size")
    vocabulary, trainable = _known(facts, "vocab_size"), _known(facts, "trainable")
    if workload.autocast:
        raise ValueError("the closed formula does not cover autocast: trace the model instead")
    size, family = BYTES[precision], _family_of(facts)
    tokens = workload.micro_batch * workload.sequence_length
    row = size * hidden * tokens  # one copy of the hidden states
    block = _block(facts, family, workload, size, config or {})
    norm, _ = _norms(family, size, hidden)
    checkpointing = workload.gradient_checkpointing
    kept = row if checkpointing else block.saved
    start = (16 + (workload.sequence_length if _masks(workload) else 0)) * tokens
    blocks = start + layers * kept
    frozen = trainable < (facts.parameters or 0)
    rows = -(-vocabulary // head_ranks)  # of the head
    head = 0 if frozen else size * rows * hidden
    forward_loss = (size + 8 if size == 2 else 8) * tokens * vocabulary
    backward_loss = max(12 * tokens * vocabulary, size * tokens * vocabulary + row + head)
    if family.soft_cap:
        forward_loss, backward_loss = (part + size * tokens * vocabulary for part in (forward_loss, backward_loss))
    if workload.fused_loss:
        forward_loss = backward_loss = 2 * row + head
    if workload.completion:
        scored = workload.micro_batch * workload.completion
        forward_loss = head_forward(scored, hidden, size)
        # The result of the last norm is left when the log-probabilities are there.
        backward_loss = head_backward(scored, hidden, vocabulary, size, trained=not frozen) - row
    ready = blocks + norm * tokens
    segments = [
        Segment("forward", blocks + max(block.forward if checkpointing else 0, (8 + 2 * size) * hidden * tokens)),
        Segment("loss", ready + forward_loss),
        Segment("head backward", ready + backward_loss),
    ]
    tied = bool(facts.tied_embeddings) and not frozen
    of_head = 0 if tied or frozen else rows * hidden
    share = max(0, trainable - (0 if frozen else rows * hidden) - of_head) // layers
    # What the recomputed layer holds besides its kept input; without checkpointing it is among what is kept.
    inside = block.saved if checkpointing else 0
    for done in range(layers):
        size_now = start + (layers - done) * kept + inside + block.backward + (head if tied else 0)
        segments.append(Segment("backward", size_now, min(trainable, of_head + done * share)))
    segments.append(
        Segment("backward", start + row + (3 if tied else 1) * head, min(trainable, of_head + layers * share))
    )
    worst = max(segments, key=lambda one: one.size)
    known = is_known(facts) and not frozen and not (workload.completion and workload.attention == "eager")
    return Timeline(
        segments=tuple(segments),
        elements=trainable,
        origin=f"closed formula for blocks like those of {facts.model_type if known else 'llama'}",
        error=ERROR if known else ERROR_UNKNOWN,
        logits=backward_loss if worst.moment in _HEAD else 0,
        assumed=workload.assumed,
    )


_HEAD: tuple[Moment, ...] = ("loss", "head backward")


def is_known(facts: ModelFacts) -> bool:
    """Whether the formulas were held against traces of this dense family."""
    return facts.model_type in _FAMILIES and not facts.num_experts


def _family_of(facts: ModelFacts) -> _Family:
    """The blocks of a model; LLaMA's where its type is not known. Raises ValueError where they are not covered."""
    model_type = facts.model_type or ""
    if model_type in _NOT_COVERED:
        raise ValueError(f"{_NOT_COVERED[model_type]}, which the closed formula does not cover")
    return _FAMILIES.get(model_type, _Family())


def gated(facts: ModelFacts) -> bool:
    """Whether its feed-forward part has a gate beside what it multiplies."""
    return _FAMILIES.get(facts.model_type or "", _Family()).gated


def forward_alone(facts: ModelFacts, workload: Workload, precision: Precision, config: Mapping[str, object]) -> int:
    """Bytes that the blocks take at most where no backward follows: nothing is saved. Raises ValueError when a width is
    not known."""
    hidden, size = _known(facts, "hidden_size"), BYTES[precision]
    tokens = workload.micro_batch * workload.sequence_length
    block = _block(facts, _family_of(facts), workload, size, config)
    per_pair = 1 if _masks(workload) else 0
    if workload.attention == "eager":
        per_pair += size * (1 + _known(facts, "num_attention_heads"))  # its weights outlive attention
    return (16 + per_pair * workload.sequence_length + 2 * size * hidden) * tokens + block.forward


def head_width(facts: ModelFacts, config: Mapping[str, object]) -> int:
    """Elements of one head. Raises ValueError when it is not known."""
    return _whole(config, "head_dim", _known(facts, "hidden_size") // _known(facts, "num_attention_heads"))


def _norms(family: _Family, size: int, width: int) -> tuple[int, int]:
    """Bytes a token of a norm whose result is saved by what follows, and of one whose result is not."""
    if family.layer_norm:
        return 2 * size * width, size * width
    if family.gemma_norm:
        return (8 + size) * width, 8 * width
    return (4 + 2 * size) * width, (4 + size) * width


def _block(facts: ModelFacts, family: _Family, workload: Workload, size: int, config: Mapping[str, object]) -> _Block:
    tokens, length = workload.micro_batch * workload.sequence_length, workload.sequence_length
    hidden, heads = _known(facts, "hidden_size"), _known(facts, "num_attention_heads")
    groups = facts.num_key_value_heads or heads
    queries, keys = (count * _whole(config, "head_dim", hidden // heads) for count in (heads, groups))
    norm, after = _norms(family, size, hidden)
    saved = family.norms * norm + family.after * after
    if not family.norms:
        saved += 2 * size * hidden  # the residual stream itself feeds the linear layers
    if family.packed:
        saved += size * (queries + keys)
    if family.query_norm:
        saved += _norms(family, size, queries + keys)[1]
    # Attention: what it saves, and what it takes at most beyond that in backward and in forward.
    # transformers runs a class with soft caps eagerly where sdpa is asked for.
    eager = workload.attention == "eager" or (family.soft_cap and workload.attention == "sdpa")
    masks = _masks(workload) and not eager
    materialised = eager or (size == 4 and groups != heads and not masks)
    scores = heads * length if materialised else 0
    per_score = (4 + (size if size == 2 else 0)) + (size if family.soft_cap else 0)
    saved += 4 * size * queries if materialised or masks else size * 2 * (queries + keys)
    saved += scores * per_score if materialised else 4 * heads + (size * length if masks else 0)
    # Feed-forward part.
    routed = 1
    inner = facts.intermediate_size or 4 * hidden
    if facts.num_experts:
        routed, inner = _known(facts, "experts_per_token"), _whole(config, "moe_intermediate_size", inner)
    wide = size * inner * routed
    copies = 4 if family.gated else family.inner
    saved += copies * wide + (2 * size * hidden * routed if facts.num_experts else 0)
    weight = size * hidden * inner * max(1, facts.num_experts or 0)
    feed = max(wide * tokens + weight, (2 if family.gated else family.in_backward) * wide * tokens)
    attend = (12 * scores - copies * wide) * tokens
    forward = max(
        (3 if family.gated else 2) * wide + 2 * size * hidden, 10 * scores + 3 * size * queries + size * hidden
    )
    return _Block(saved=saved * tokens, backward=size * hidden * tokens + max(feed, attend), forward=forward * tokens)


def _masks(workload: Workload) -> bool:
    """Whether attention gets a mask of all pairs of tokens; flash attention takes padding away instead."""
    return workload.completion is not None and workload.attention != "flash_attention_2"


def _whole(config: Mapping[str, object], name: str, otherwise: int) -> int:
    value = config.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else otherwise


def _known(facts: ModelFacts, name: str) -> int:
    value = getattr(facts, name)
    if value is None:
        raise ValueError(f"the model's {name} is not known: its activations cannot be computed")
    return int(value)
