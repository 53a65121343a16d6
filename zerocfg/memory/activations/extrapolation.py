"""A model of equal layers, traced at two small depths and continued to its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zerocfg.memory.activations.tracer_result import Stretch, Trace


class NotUniformError(Exception):
    """The two runs do not follow from one another."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring stretches of one block (-1: of none)."""

    moment: str
    block: int
    stretches: list[Stretch]


def continued(found: Trace) -> list[Stretch]:
    """All stretches of the model at its real depth, from an answer of the tracer.

    An answer with two runs is continued. Its blocks, from the bottom: those of the lower run but its topmost period and
    what is no full period, which must be the same in both; one period that is repeated; and the topmost ones. From one
    depth to the next every stretch of a block must grow by the same number of bytes. Raises NotUniformError.
    """
    runs = found["runs"]
    if len(runs) == 1:
        return list(runs[0])
    prefix, period = found["prefix"], found["period"]
    steps = (found["layers"] - found["depths"][1]) // period
    small, large = _pieces(runs[0]), _pieces(runs[1])
    in_small = {(piece.moment, piece.block): piece for piece in small if piece.block >= 0}
    loose = [piece for piece in small if piece.block < 0]
    growth: set[int] = set()
    middle: dict[str, list[_Piece]] = {}
    result: list[_Piece | str] = []  # a moment stands for the blocks that are repeated in it
    for piece in large:
        if piece.block < 0:
            result.append(_grown(piece, loose.pop(0) if loose else None, steps, -1, set()))
        elif piece.block < prefix + period:
            if in_small.pop((piece.moment, piece.block), None) != piece:
                raise NotUniformError
            result.append(piece)
        elif piece.block < prefix + 2 * period:
            if piece.moment not in middle:
                result.append(piece.moment)
            middle.setdefault(piece.moment, []).append(piece)
        else:
            before = in_small.pop((piece.moment, piece.block - period), None)
            result.append(_grown(piece, before, steps, piece.block + steps * period, growth))
    if in_small or loose or len(growth) != 1:
        raise NotUniformError
    (more,) = growth
    whole: list[Stretch] = []
    for entry in result:
        if isinstance(entry, _Piece):
            whole += entry.stretches
            continue
        ascending = entry == "forward"
        for step in range(steps + 1) if ascending else range(steps, -1, -1):
            for piece in middle[entry]:
                block = piece.block + step * period
                whole += [(entry, block, size + step * more, elements) for _, _, size, elements in piece.stretches]
    return whole


def _pieces(run: Iterable[Stretch]) -> list[_Piece]:
    pieces: list[_Piece] = []
    seen = set()
    for stretch in run:
        moment, block = stretch[0], stretch[1]
        if not pieces or (pieces[-1].moment, pieces[-1].block) != (moment, block):
            if block >= 0 and (moment, block) in seen:
                raise NotUniformError
            seen.add((moment, block))
            pieces.append(_Piece(moment, block, []))
        pieces[-1].stretches.append(stretch)
    return pieces


def _grown(piece: _Piece, before: _Piece | None, steps: int, block: int, growth: set[int]) -> _Piece:
    """``piece`` after ``steps`` more periods; ``growth`` collects by how much its stretches grow in one."""
    if before is None or before.moment != piece.moment or len(before.stretches) != len(piece.stretches):
        raise NotUniformError
    grown: list[Stretch] = []
    for (moment, _, size, elements), (_, _, earlier, same) in zip(piece.stretches, before.stretches, strict=True):
        more = size - earlier
        if elements != same:
            raise NotUniformError
        growth.add(more)
        grown.append((moment, block, size + steps * more, elements))
    return _Piece(piece.moment, block, grown)
