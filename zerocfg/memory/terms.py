"""The vocabulary of memory predictions: terms, the moments of a training step at which they are held, and their peak.

All sizes are bytes of one rank. A step goes through seven moments, always in this order; what a user reads are the
four phases that they belong to. A trainer that samples what it trains on has two more before them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

Place = Literal["device", "host", "nvme"]
Moment = Literal["init", "generation", "scoring", "forward", "loss", "head backward", "backward", "step", "save"]
Phase = Literal["init", "generation", "forward+backward", "step", "save"]
Kind = Literal[
    "parameters", "gradients", "optimizer", "buffers", "activations", "logits", "temporaries", "outside", "share"
]

MOMENTS: tuple[Moment, ...] = ("init", "forward", "loss", "head backward", "backward", "step", "save")
"""init: until the engine is built. forward: the blocks. loss: output head and loss. head backward: their backward, from
its first kernel to the last gradient of the head. backward: that of the blocks and the embedding. step: optimizer.
save: a checkpoint."""

SAMPLING: tuple[Moment, ...] = ("generation", "scoring")
"""generation: completions are sampled. scoring: the log-probabilities that their loss compares them with are computed,
without gradients. Only where something is held in them that belongs to them."""
PHASE_OF: dict[Moment, Phase] = {
    "init": "init",
    "generation": "generation",
    "scoring": "generation",
    "forward": "forward+backward",
    "loss": "forward+backward",
    "head backward": "forward+backward",
    "backward": "forward+backward",
    "step": "step",
    "save": "save",
}
ALWAYS: frozenset[Moment] = frozenset(MOMENTS)
TRAINING: frozenset[Moment] = frozenset(MOMENTS) - {"init"}
"""From the first optimizer step on: where Adam's moments are, for example."""
BACKWARD: frozenset[Moment] = frozenset({"head backward", "backward"})
LOSS: frozenset[Moment] = frozenset({"loss", "head backward"})
WORK: frozenset[Moment] = frozenset({"forward", "loss", "head backward", "backward"})


@dataclass(frozen=True, slots=True)
class Term:
    """``size`` bytes of one rank at ``place``, held during ``moments``.

    ``grows``: gradients that are kept as backward produces them; ``size`` is what they are when all exist.
    ``kind`` "share": as much of the card as it is given, whatever is in it.
    ``source`` is where the library allocates it ("stage3.py: _setup_for_real_optimizer"), ``holds_for`` the releases
    that this was checked with, as a clause of PEP 440. ``course``: what the engine of this term holds gradient by
    gradient, which replaces ``size`` in backward where the activations are known.
    """

    name: str
    size: int
    place: Place
    moments: frozenset[Moment]
    kind: Kind
    source: str = ""
    holds_for: str = ""
    grows: bool = False
    course: BackwardCourse | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class Handover:
    """One gradient of backward, and what the engine holds around it, in bytes.

    ``produced`` trainable elements had their gradients before it, which itself takes ``gradient`` bytes. ``before``:
    the most while backward computes it. ``during``: the most while the engine takes it over, the gradient included.
    """

    produced: int
    gradient: int
    before: tuple[int, ...]
    during: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class BackwardCourse:
    """What an engine holds on the device as backward goes on: ``before`` and ``during`` of each handover are bytes of
    ``terms``, in their order. The last handover is none: it is the end of backward, without a gradient.
    """

    terms: tuple[Term, ...]
    handovers: tuple[Handover, ...]

    @cached_property
    def _sizes(self) -> list[tuple[int, int]]:
        return [(sum(handover.before), sum(handover.during)) for handover in self.handovers]

    @cached_property
    def _produced(self) -> list[int]:
        return [handover.produced for handover in self.handovers]

    def worst(self, timeline: Timeline, moment: Moment) -> tuple[Segment, int, tuple[int, ...]]:
        """The worst point of ``moment``: its segment, the bytes of activations in it, and those of each term."""
        found = max(self._points(timeline, moment), key=lambda point: point[0])
        _, segment, activations, handover, taken = found
        return segment, activations, handover.during if taken else handover.before

    def _points(self, timeline: Timeline, moment: Moment) -> Iterator[tuple[int, Segment, int, Handover, bool]]:
        """(bytes, segment, activations of it, handover, whether the engine takes the gradient) of each point.

        While a gradient is computed its segment's activations are held beside what the engine held before. While the
        engine takes it, activations are no more than the segment had without the gradient, and than the next one has.
        """
        sizes, produced = self._sizes, self._produced  # kept: a plan asks for each micro batch that it tries
        scale = produced[-1] / timeline.elements if timeline.elements else 0.0
        segments = [one for one in timeline.segments if one.moment in BACKWARD]
        for number, segment in enumerate(segments):
            if segment.moment != moment:
                continue
            after = segments[number + 1] if number + 1 < len(segments) else None
            first = bisect_right(produced, round(segment.produced * scale)) - 1
            last = bisect_left(produced, round(after.produced * scale)) if after else len(produced)
            for place in range(first, max(first + 1, last)):
                handover, (before, during) = self.handovers[place], sizes[place]
                yield segment.size + before, segment, segment.size, handover, False
                left = segment.size - handover.gradient
                if after and place + 1 >= last:
                    left = min(left, after.size)
                left = max(0, left)
                yield left + during, segment, left, handover, True


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a micro batch: the most bytes of activations and temporaries in it.

    Parameters are not counted, and gradients only until they are handed to their parameter. ``produced`` is the number
    of trainable elements whose gradients had been handed over before.
    """

    moment: Moment
    size: int
    produced: int = 0


@dataclass(frozen=True, slots=True)
class Timeline:
    """What the activations of one micro batch take as it goes forward and backward.

    ``origin`` describes how it was found (traced, or by the closed formula), ``error`` is the share by which it may
    be wrong either way, ``logits`` what of the largest segment is logits and loss (bytes; None: not known),
    ``elements`` the trainable elements whose gradients exist in the end, ``assumed`` whether a setting behind it is.
    """

    segments: tuple[Segment, ...]
    elements: int
    origin: str
    error: float
    logits: int | None = None
    assumed: bool = False

    @property
    def peak(self) -> int:
        return max((segment.size for segment in self.segments), default=0)


@dataclass(frozen=True, slots=True)
class Held:
    """What one place holds at the worst point of one moment: (term, bytes) pairs, largest first."""

    place: Place
    moment: Moment
    parts: tuple[tuple[Term, int], ...]

    @property
    def size(self) -> int:
        return sum(size for _, size in self.parts)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The terms of one rank and the activations of its micro batch."""

    terms: tuple[Term, ...]
    timeline: Timeline | None = None
    notes: tuple[str, ...] = field(default=())

    def held(self, place: Place, moment: Moment) -> Held:
        """The worst point of ``moment``."""
        here = [term for term in self.terms if term.place == place and moment in term.moments and term.size > 0]
        segments = [one for one in self.timeline.segments if one.moment == moment] if self.timeline else []
        if place != "device" or not segments:
            # Without activations to set against them, all gradients that moment ends with.
            return _sorted(place, moment, ((term, term.size) for term in here))
        total = max(1, self.timeline.elements if self.timeline else 1)
        growing = sum(term.size for term in here if term.grows)
        worst = max(segments, key=lambda one: one.size + growing * one.produced // total)
        activations = worst.size
        course = next((term.course for term in self.terms if term.course), None) if moment in BACKWARD else None
        if course and self.timeline:
            worst, activations, sizes = course.worst(self.timeline, moment)
            here = [term for term in here if term.course is None]
        parts = [(term, term.size * worst.produced // total if term.grows else term.size) for term in here]
        if course:
            parts += zip(course.terms, sizes, strict=True)
        source = self.timeline.origin if self.timeline else ""
        logits = min(self.timeline.logits or 0, activations) if self.timeline and moment in LOSS else 0
        parts.append((Term("logits and loss", logits, "device", LOSS, "logits", source), logits))
        rest = activations - logits
        parts.append((Term("activations and temporaries", rest, "device", WORK, "activations", source), rest))
        return _sorted(place, moment, parts)

    def peak(self, place: Place, moments: Iterable[Moment] = (*MOMENTS, *SAMPLING)) -> Held:
        """The worst moment of a place."""
        return max((self.held(place, moment) for moment in moments), key=lambda held: held.size)

    def phases(self, place: Place) -> dict[Phase, Held]:
        """The worst moment of each phase."""
        found: dict[Phase, Held] = {}
        samples = any(moment in term.moments for term in self.terms for moment in SAMPLING)
        for moment in (MOMENTS[0], *(SAMPLING if samples else ()), *MOMENTS[1:]):
            held = self.held(place, moment)
            phase = PHASE_OF[moment]
            if phase not in found or held.size > found[phase].size:
                found[phase] = held
        return found


def _sorted(place: Place, moment: Moment, parts: Iterable[tuple[Term, int]]) -> Held:
    return Held(place, moment, tuple(sorted((part for part in parts if part[1] > 0), key=lambda part: -part[1])))
