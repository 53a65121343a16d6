"""What images take beside text: the activations of a vision tower in closed form, around the timeline of the text.

Bytes for each patch (and each class token), where ``e`` is the size of an element (2 or 4), ``h`` the tower's width,
``f`` the inner width of its feed-forward part; derived from what autograd saves in transformers 5.23
(``models/qwen2_vl``, ``models/qwen2_5_vl``, ``models/clip``):

- a norm: RMSNorm ``(4 + 2e)h``, LayerNorm ``2eh``, as in a decoder layer;
- attention of CLIP: queries, keys, values and result ``4eh``, and one fp32 number a head. Of Qwen2-VL the three are
  one linear layer's result, which the values keep, and rotated queries and keys are copies: ``6eh``, with sdpa
  ``7eh``, which keeps the results of images or windows that are joined afterwards. Eager also keeps scores;
- feed-forward part: four times ``ef`` when gated, three times with QuickGELU;
- once: the pixels in fp32 as the loader gives them and cast, the rotation ``8h/heads``, and the projector.

The tower's layers go forward before those of the text and backward after them; with checkpointing each keeps its input.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from zerocfg.memory.options import BYTES, Precision, Workload
from zerocfg.memory.terms import LOSS, Segment, Timeline

if TYPE_CHECKING:
    from zerocfg.models.vision import Vision

ERROR = 0.08
"""Of the peak; against real tensors the tower's part is within 3 % (``tests/memory/test_images.py``)."""


def with_images(text: Timeline, trainable: int, workload: Workload, precision: Precision) -> Timeline:
    """The timeline of a micro batch with its images; ``text``: that of all its tokens, ``trainable`` all elements that
    get gradients.

    Raises ValueError where the size of images is not known, they are more tokens than a sample has, or with autocast.
    """
    images = workload.images
    if images is None or not images.per_sample:
        return replace(text, elements=trainable)
    if workload.autocast:
        raise ValueError("the closed formula does not cover autocast: what images take is not known")
    vision = images.vision
    tokens = images.tokens
    if tokens > workload.sequence_length:
        raise ValueError(
            f"the images of a sample are {tokens:,} tokens, more than its {workload.sequence_length:,} "
            "(`sequence_length` counts them, too)"
        )
    size, count = BYTES[precision], workload.micro_batch * images.per_sample
    patches = count * vision.patches(images.pixels)
    rows = patches + count * vision.classes
    saved = _saved(vision, workload, size, patches // count) * rows
    checkpointing = workload.gradient_checkpointing
    kept = size * vision.width * rows if checkpointing else saved
    ends = _ends(vision, size, patches, rows, tokens * workload.micro_batch)
    inside = saved if checkpointing else 0
    backward = size * (vision.width + (2 if vision.kind == "qwen2.5" else 1) * vision.inner) * rows
    held = ends + vision.used * kept
    segments = [Segment("forward", held + max(inside, backward))]
    segments += [Segment(one.moment, one.size + held, one.produced) for one in text.segments]
    before = max(one.produced for one in text.segments)
    share = max(0, trainable - before) // max(1, vision.layers)
    for done in range(vision.used):
        left = ends + (vision.used - done) * kept + inside + backward
        segments.append(Segment("backward", left, before + done * share))
    segments.append(Segment("backward", ends, trainable))
    worst = max(segments, key=lambda one: one.size)
    return Timeline(
        tuple(segments),
        trainable,
        f"{text.origin}; images in closed form",
        max(text.error, ERROR),
        text.logits if worst.moment in LOSS else 0,
    )


def _norm(vision: Vision, size: int) -> int:
    return (4 + 2 * size if vision.kind == "qwen2.5" else 2 * size) * vision.width


def _saved(vision: Vision, workload: Workload, size: int, patches: int) -> int:
    """Bytes that one layer saves for each row; ``patches``: of one image."""
    wide = size * vision.width
    joined = workload.attention == "sdpa"
    attention = 4 * wide if vision.kind == "clip" else (7 if joined else 6) * wide
    if workload.attention == "eager":
        together = patches + vision.classes
        if vision.window:
            shared = vision.whole * together + (vision.layers - vision.whole) * min(vision.window, together)
            together = -(-shared // vision.layers)
        attention += vision.heads * together * (4 + (size if size == 2 else 0))
    else:
        attention += 4 * vision.heads
    return 2 * _norm(vision, size) + attention + (4 if vision.kind == "qwen2.5" else 3) * size * vision.inner


def _ends(vision: Vision, size: int, patches: int, rows: int, tokens: int) -> int:
    """Bytes that the embedding of the patches, the rotation and the projector keep."""
    pixels = (4 + (size if size == 2 else 0)) * vision.values * patches
    if vision.kind == "clip":
        return pixels + size * (vision.width * (rows + patches) + 2 * vision.out * tokens)
    rotation = 8 * vision.width // vision.heads
    return pixels + (rotation + _norm(vision, size) + 2 * size * vision.width) * patches
