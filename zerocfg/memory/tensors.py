"""The parameter tensors of a model in the order in which its modules hold them. Sizes are elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.models.model_facts import ModelFacts


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
    """All parameters, the modules in the order of a forward pass, and the order in which gradients come.

    ``known`` is False when only sums are known: then the tensors stand for the model, no tensor being larger than the
    largest.
    """

    tensors: tuple[Tensor, ...]
    modules: tuple[Module, ...]
    gradients: tuple[int, ...]
    known: bool = True

    @property
    def trained(self) -> tuple[int, ...]:
        """Sizes of the tensors that get gradients."""
        return tuple(tensor.size for tensor in self.tensors if tensor.trained)

    @property
    def frozen(self) -> tuple[int, ...]:
        return tuple(tensor.size for tensor in self.tensors if not tensor.trained)


def model_of(facts: ModelFacts) -> Model:
    """The tensors of a model. Raises ValueError when the number of its parameters is not known.

    Trainable parameters that are not told tensor by tensor (``trainable_parameters``) are taken evenly out of all.
    """
    if facts.parameters is None or facts.trainable is None:
        raise ValueError(facts.unknown_because or "the number of parameters is not known")
    modules = list(_modules(facts))
    total, trained = facts.parameters, facts.trainable
    share_known = any(frozen for _, _, frozen in modules) or trained == total
    tensors: list[Tensor] = []
    found: list[Module] = []
    for sizes, head, frozen in modules:
        own: list[int] = []
        for size in sizes:
            parts = [Tensor(size, not frozen)] if share_known else _split(size, size * trained // max(1, total))
            own += range(len(tensors), len(tensors) + len(parts))
            tensors += parts
        found.append(Module(tuple(own), head))
    if facts.tied_embeddings and found and any(module.head for module in found):
        # The head works with the matrix of the embedding.
        found.append(Module((0,), head=True))
    gradients = tuple(index for index in reversed(range(len(tensors))) if tensors[index].trained)
    return Model(tuple(tensors), tuple(found), gradients, bool(facts.layout))


def _split(size: int, trained: int) -> list[Tensor]:
    return [part for part in (Tensor(size - trained, False), Tensor(trained, True)) if part.size]


def _modules(facts: ModelFacts) -> Iterator[tuple[list[int], bool, bool]]:
    """(sizes, is it part of the head, is it frozen) of each module."""
    if facts.layout:
        last = max((index for index, part in enumerate(facts.layout) if part.block), default=len(facts.layout))
        for index, part in enumerate(facts.layout):
            for _ in range(part.times):
                for module in part.modules:
                    yield module, index > last, part.frozen
        return
    if sum(size * count for size, count in facts.tensor_sizes) == facts.parameters:
        for size, count in facts.tensor_sizes:
            for _ in range(count):
                yield [size], False, False
        return
    rest, largest = facts.parameters or 0, facts.largest_parameter or facts.parameters or 1
    while rest > 0:
        yield [min(largest, rest)], False, False
        rest -= largest
