"""What mixed precision is under each engine: nowhere the same."""

from __future__ import annotations

from zerocfg.convert.conversion import Row, place, said
from zerocfg.convert.deepspeed_section import PRECISION
from zerocfg.run.model import Run

FSDP1_TO_2 = "FSDP 2 casts the outputs of a layer, too, and leaves buffers as they are"
ZERO_TO_FSDP2 = "FSDP casts fp32 parameters layer by layer; DeepSpeed trains a copy beside fp32 master weights"
DDP_TO_FSDP2 = "FSDP casts parameters and gradients of a layer; DDP runs single operations in it"
DDP_TO_ZERO = "DeepSpeed casts the model, beside fp32 master weights; DDP runs single operations in it"


def precision(run: Run, why: str) -> list[Row]:
    """A row for the precision where it is mixed; the key stays."""
    file = run.accelerate
    assert file is not None
    if run.effective.value(PRECISION) in (None, "no"):
        return []
    value = file.data().get(PRECISION)
    if value is None:
        return []
    text = said((PRECISION,), value)
    return [Row(text, text, "nearly", why, place(file, (PRECISION,)), frozenset({PRECISION}))]
