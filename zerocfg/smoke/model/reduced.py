"""A run as it is launched here: smaller than planned, and in what."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocfg.smoke.model.reduction import Kind, Reduction
    from zerocfg.smoke.model.size import Size

SEQUENCE = 32  # tokens of a sample on a processor


@dataclass
class Reduced:
    """``model``, ``accelerate``, ``deepspeed``, ``arguments``: what is run; ``plan``: what must be seen then.

    ``changes``: what became smaller, or other.
    ``sequence``: tokens of a sample. ``layers``: of the planned model and of the one that is run, where known.
    ``narrow``: the model's widths were cut as well, or another model stands in. ``size``: what the model that is run
    takes at most by prediction, on a card. ``nodes``: machines that the ranks are spread over.
    """

    ranks: int
    model: dict[str, object]
    accelerate: dict[str, object] | None
    deepspeed: dict[str, object] | None
    arguments: dict[str, object]
    plan: dict[str, object]
    sequence: int = SEQUENCE
    changes: list[Reduction] = field(default_factory=list)
    layers: tuple[int, int] | None = None
    narrow: bool = False
    size: Size | None = None
    nodes: int = 1

    def has(self, *kinds: Kind) -> bool:
        """Whether one of these was changed."""
        return any(one.kind in kinds for one in self.changes)

    @property
    def words(self) -> list[str]:
        """The changes for a reader."""
        return [str(one) for one in self.changes]
