"""FSDP 2."""

from __future__ import annotations

from zerocfg.memory.fsdp.walk import (
    ALL_REDUCED,
    COPY,
    GATHERED,
    INPUT,
    OUTPUT,
    REDUCED,
    SHARDS,
    UNIT,
    WAITING,
    Walk,
)


class SecondWalk(Walk):
    """FSDP 2 (torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py)."""

    def send(self, unit: int) -> None:
        """The all-gather, into a buffer of its own."""
        if self.ranks > 1:
            self.hold(COPY, self.copied(unit))
            self.hold(OUTPUT, self.low * unit)
            self.hold(COPY, -self.copied(unit))

    def receive(self, unit: int) -> None:
        self.hold(GATHERED, self.low * unit)
        if self.ranks == 1:  # no all-gather: parameter by parameter
            copy = min(self.copied(unit), self.low * self.largest)
            self.hold(COPY, copy)
            self.hold(COPY, -copy)

    def drop(self, unit: int) -> None:
        if self.ranks > 1:
            self.hold(OUTPUT, -self.low * unit)

    def finish(self, unit: int) -> None:
        """The parameter goes; the input of the reduce-scatter before this one is freed, and this one's is filled."""
        gradient = self.gradients(unit)
        self.hold(GATHERED, -self.low * unit)
        if not self.again:
            self.rename(UNIT, WAITING, gradient)
        if self.quiet:
            return
        own = -(-gradient // self.ranks)
        self.held[INPUT] = 0
        self.hold(INPUT, gradient)
        self.hold(WAITING, -gradient)
        if not self.mixed:
            self.hold(SHARDS, own)
            return
        self.hold(REDUCED, own)
        self.hold(SHARDS, own // self.low * self.kept)
        # Of a hybrid group every shard is all-reduced, and what was reduced is kept until backward is over.
        hybrid = self.ranks < self.options.world_size
        self.rename(REDUCED, ALL_REDUCED if hybrid else COPY, own)
        self.hold(COPY, 0 if hybrid else -own)

    def produce(self, unit: int) -> None:
        if not self.again:
            self.hold(UNIT, self.gradients(unit))

    def forward(self) -> None:
        units, before = self.units, 0
        order = [units.embedding, *units.blocks, units.tail] if units.embedding else [units.tail, *units.blocks]
        last = len(order) - 1 if units.embedding else 0  # the tail, which stays
        for place, unit in enumerate(order):
            # The output of an all-gather is kept until that of the next one has been copied out.
            self.send(unit)
            self.receive(unit)
            self.drop(before)
            before = unit
            if self.options.reshard_after_forward and place != last:
                self.hold(GATHERED, -self.low * unit)
        self.at("loss")
        self.drop(before)

    def backward(self) -> None:
        units, gathers = self.units, self.options.reshard_after_forward
        order = [*reversed(units.blocks), *filter(None, [units.embedding])]
        # Backward never comes to an embedding that is frozen; it is gathered for it all the same.
        passed = order if self.whole else order[: len(units.blocks)]
        if gathers:
            self.send(order[0])
        self.produce(units.tail)
        if units.embedding:
            self.finish(units.tail)
        self.at("backward")
        for place, unit in enumerate(passed):
            if gathers:
                self.receive(unit)
                self.drop(unit)
                for following in order[place + 1 : place + 2]:
                    self.send(following)
            self.produce(unit)
            self.finish(unit)
        if not units.embedding:
            # The tied weight's gradient as an embedding, beside that as a head.
            more = 0 if self.again else self.gradients(units.tail)
            self.hold(UNIT, more)
            self.hold(UNIT, -more)
            self.finish(units.tail)
        self.held[INPUT] = self.held[ALL_REDUCED] = self.held[OUTPUT] = 0
