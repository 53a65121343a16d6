"""FSDP 1."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.memory.fsdp.walk import COPY, FLAT, GATHERED, REDUCED, SHARDS, UNIT, WAITING, Walk

if TYPE_CHECKING:
    from zerocfg.memory.options import TorchOptions
    from zerocfg.models.model_facts import ModelFacts


class FirstWalk(Walk):
    """FSDP 1 (torch/distributed/fsdp/_runtime_utils.py). One rank to a group is NO_SHARD."""

    @property
    def reshards(self) -> bool:
        return self.options.reshard_after_forward or self.ranks == 1

    def gather(self, unit: int) -> None:
        if self.ranks == 1:
            self.hold(GATHERED, self.low * unit if self.mixed else 0)
            return
        self.hold(COPY, self.copied(unit))
        self.hold(GATHERED, self.low * unit)
        self.hold(COPY, -self.copied(unit))

    def release(self, unit: int) -> None:
        if self.reshards or not self.quiet:
            self.hold(GATHERED, -self.low * unit if self.ranks > 1 or self.mixed else 0)

    def finish(self, unit: int) -> None:
        """The gradients of a flat parameter's views are joined, only then freed; the parameter goes; they are reduced
        and cast."""
        flat, own = (self.low * unit, self.share(unit)) if self.gradients(unit) else (0, 0)
        self.hold(FLAT, flat)
        self.hold(UNIT, -flat)
        if self.again:
            self.hold(FLAT, -flat)  # added to what waited
        else:
            self.rename(FLAT, WAITING, flat)
        self.release(unit)
        if self.quiet:
            return
        if self.ranks == 1 and not self.mixed:
            self.rename(WAITING, SHARDS, flat)
            return
        reduced = self.low * own if self.ranks > 1 and self.mixed else 0
        self.hold(REDUCED, reduced)
        self.hold(SHARDS, self.kept * own)
        self.hold(REDUCED, -reduced)
        self.hold(WAITING, -flat)

    def forward(self) -> None:
        units = self.units
        if self.reshards or not self.again:
            self.gather(units.tail)
            ahead = self.options.forward_prefetch and self.ranks > 1
            coming = list(units.blocks)
            if ahead:
                self.gather(coming.pop(0))
            for block in units.blocks:
                if coming:
                    self.gather(coming.pop(0))
                if self.reshards:
                    self.release(block)
        self.at("loss")

    def backward(self) -> None:
        units, gathers = self.units, self.reshards
        early = gathers and self.options.backward_prefetch == "pre" and self.ranks > 1
        # Views that were made ahead of time are also older for autograd: it turns to them one block later.
        late = [0] if self.options.forward_prefetch and self.ranks > 1 else []
        coming = list(units.blocks[::-1])
        if early:
            self.gather(coming.pop(0))
        head = units.head if self.whole else 0
        self.hold(UNIT, self.low * head)
        self.at("backward")
        for block in reversed(units.blocks):
            if gathers and coming:
                self.gather(coming.pop(0))
            self.hold(UNIT, self.low * block)  # of frozen parameters too: zeros
            late.append(block)
            self.finish(late.pop(0))
        # With tied weights the gradient of the head waits for that of the embedding.
        rest = (units.tail - units.head or units.tail) if self.whole else 0
        self.hold(UNIT, self.low * rest)
        if rest == units.tail:
            self.hold(UNIT, -self.low * rest)
        for block in late:
            self.finish(block)
        self.finish(units.tail)


class AdaptersWalk(FirstWalk):
    """FSDP 1 of a model with PEFT's adapters, as the Trainer wraps it (transformers/distributed/fsdp.py:
    update_fsdp_plugin_peft): each matrix of an adapter is a unit, gathered within its layer; the layers are frozen and
    have no gradient."""

    def __init__(self, facts: ModelFacts, options: TorchOptions) -> None:
        self.adapters = tuple(facts.adapters)
        super().__init__(facts, options)

    def gradients(self, unit: int) -> int:
        return self.low * unit if unit in self.adapters else 0

    def gather(self, unit: int) -> None:
        if self.ranks > 1 or unit in self.adapters:  # what is frozen is computed with as it is kept
            super().gather(unit)

    def release(self, unit: int) -> None:
        if self.ranks > 1 or unit in self.adapters:
            super().release(unit)

    def forward(self) -> None:
        units = self.units
        if self.reshards or not self.again:
            self.gather(units.tail)
            coming = [unit for block in units.blocks for unit in (block, *self.adapters)]
            if self.options.forward_prefetch and self.ranks > 1:
                self.gather(coming.pop(0))
            for block in units.blocks:
                for unit in (block, *self.adapters):
                    if coming:
                        self.gather(coming.pop(0))
                    if self.reshards and unit != block:
                        self.release(unit)
                if self.reshards:
                    self.release(block)
        self.at("loss")

    def backward(self) -> None:
        units, gathers = self.units, self.reshards
        inner = self.adapters[::-1]
        coming = [unit for block in reversed(units.blocks) for unit in (block, *inner)] if gathers else []
        if coming and self.options.backward_prefetch == "pre" and self.ranks > 1:
            self.gather(coming.pop(0))
        self.at("backward")
        before = 0
        for block in reversed(units.blocks):
            if coming:
                self.gather(coming.pop(0))
            if before:  # it goes when its input has its gradient: the output of this one, which is gathered first
                self.finish(before)
            before = block
            for unit in inner:
                if coming:
                    self.gather(coming.pop(0))
                self.hold(UNIT, self.gradients(unit))
                self.finish(unit)
        self.finish(before)
        self.finish(units.tail)
