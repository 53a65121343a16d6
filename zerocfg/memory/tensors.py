"""The parameter tensors of a model in the order in which its modules hold them. Sizes are elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.models.model_facts import Part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.models.model_facts import ModelFacts


TENSORS = 64
"""Equal tensors that a model is taken for of which only the number of parameters is known. The largest tensor of real
ones is a third of a small model (its embedding) and a five-hundredth of a large one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One parameter. ``trained``: it gets a gradient."""

    size: int
    trained: bool = True


@dataclass(frozen=True, slots=True)
class Module:
    """The tensors that one module owns directly, as indices into the model's; ``head``: it comes after the blocks."""

    tensors: tuple[int, ...]
    head: bool = False


@dataclass(frozen=True)
class Model:
    """All parameters, the modules, and the order in which gradients come.

    ``forward`` and ``backward`` are the orders in which modules are entered, as indices. Modules that only contain
    others are among them: ZeRO-3 looks ahead at each.
    """

    tensors: tuple[Tensor, ...]
    modules: tuple[Module, ...]
    gradients: tuple[int, ...]
    forward: tuple[int, ...]
    backward: tuple[int, ...]

    @property
    def trained(self) -> tuple[int, ...]:
        """Sizes of the tensors that get gradients."""
        return tuple(tensor.size for tensor in self.tensors if tensor.trained)

    @property
    def frozen(self) -> tuple[int, ...]:
        return tuple(tensor.size for tensor in self.tensors if not tensor.trained)


def model_of(facts: ModelFacts) -> Model:
    """The tensors of a model. Raises ValueError when the number of its parameters is not known.

    Trainable parameters that are not listed tensor by tensor (``trainable_parameters``) are taken evenly out of all.
    """
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    walk = _Walk(facts)
    for part, head in _parts(facts):
        for _ in range(part.times):
            walk.enter([[], []] if part.block else [], part.modules, head, part.frozen)
    if facts.tied_embeddings and walk.modules[-1].head:
        # the head works with the matrix of the embedding, which the vision part comes before
        table = (facts.vocab_size or 0) * (facts.hidden_size or 0)
        first = next((index for index, tensor in enumerate(walk.tensors) if tensor.size == table), 0)
        walk.enter([], [[]], True, False, again=(first,))
    # The model and its base model contain everything.
    count = len(walk.modules)
    outer = (count, count + 1)
    modules = (*walk.modules, Module(()), Module((), walk.modules[-1].head))
    gradients = tuple(index for index in reversed(range(len(walk.tensors))) if walk.tensors[index].trained)
    forward, backward = (*outer, *walk.forward), (*outer[::-1], *reversed(walk.leaving))
    return Model(tuple(walk.tensors), modules, gradients, forward, backward)


class _Walk:
    """Collects modules in the order in which they are entered and left."""

    def __init__(self, facts: ModelFacts) -> None:
        self.total, self.trained = facts.parameters or 1, facts.trainable or 0
        self.frozen_known = any(part.frozen for part in facts.layout) or self.trained == facts.parameters
        self.tensors: list[Tensor] = []
        self.modules: list[Module] = []
        self.forward: list[int] = []
        self.leaving: list[int] = []

    def enter(
        self, outer: list[list[int]], inner: list[list[int]], head: bool, frozen: bool, again: tuple[int, ...] = ()
    ) -> None:
        """Modules that contain others, and the others, which are the ones with tensors."""
        first = len(self.modules)
        for sizes in (*outer, *inner):
            own = list(again)
            for size in sizes:
                share = size * self.trained // self.total
                parts = [Tensor(size, not frozen)] if self.frozen_known else _split(size, share)
                own += range(len(self.tensors), len(self.tensors) + len(parts))
                self.tensors += parts
            self.modules.append(Module(tuple(own), head))
        last = len(self.modules)
        self.forward += range(first, last)
        self.leaving += [*range(first + len(outer), last), *range(first + len(outer) - 1, first - 1, -1)]


def _split(size: int, trained: int) -> list[Tensor]:
    return [part for part in (Tensor(size - trained, False), Tensor(trained, True)) if part.size]


def _parts(facts: ModelFacts) -> Iterator[tuple[Part, bool]]:
    """Parts of the model, and whether they belong to its head; made up as well as the facts allow."""
    if facts.layout:
        last = max((index for index, part in enumerate(facts.layout) if part.block), default=len(facts.layout))
        yield from ((part, index > last) for index, part in enumerate(facts.layout))
    elif sum(size * count for size, count in facts.tensor_sizes) == facts.parameters:
        yield from ((Part(modules=[[size]], times=count), False) for size, count in facts.tensor_sizes)
    else:
        rest = facts.parameters or 1
        embedding = (facts.vocab_size or 0) * (facts.hidden_size or 0)
        largest = min(facts.largest_parameter or embedding or -(-rest // TENSORS), rest)
        yield Part(modules=[[largest]], times=rest // largest), False
        if rest % largest:
            yield Part(modules=[[rest % largest]]), False
