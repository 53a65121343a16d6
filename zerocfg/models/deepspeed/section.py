"""The two ways in which DeepSpeed reads a section, and the value types that several sections share.

strict
    A pydantic model with ``extra="forbid"``: unknown keys are errors, values are converted laxly
    (``"500000000"`` and ``5e8`` are integers, ``"yes"`` is true), and a literal ``"auto"`` is dropped before
    validation, so the default is used without a word (deepspeed/runtime/config_utils.py).
loose
    Plain ``dict.get``: unknown keys are ignored, values are taken as they are, ``"auto"`` travels on as a
    string.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt
from pydantic import BeforeValidator

from zerocfg.models.base import AutoRaw, Null, Section, Unknown
from zerocfg.models.reading import Reads

Auto = Literal["auto"]
Count = Annotated[int, Ge(0)]
Positive = Annotated[int, Gt(0)]


class Strict(Section):
    """A section that DeepSpeed reads with a pydantic model."""

    unknown: ClassVar[Unknown] = "error"
    null: ClassVar[Null] = "error"
    library: ClassVar[str] = "deepspeed"
    reads: ClassVar[Reads | None] = "lax"
    auto_raw: ClassVar[AutoRaw | None] = "default"


class Loose(Section):
    """A section that DeepSpeed reads with ``dict.get``."""

    unknown: ClassVar[Unknown] = "ignored"
    null: ClassVar[Null] = "error"
    library: ClassVar[str] = "deepspeed"
    reads: ClassVar[Reads | None] = "raw"
    auto_raw: ClassVar[AutoRaw | None] = "kept"


Removed = object
"""Of a key that is refused by its presence alone: `key(removed=...)` says so."""


def any_case(*values: str) -> BeforeValidator:
    """Read one of ``values`` in any mixture of upper and lower case."""
    spelled = {value.casefold(): value for value in values}
    return BeforeValidator(lambda value: spelled.get(value.casefold(), value) if isinstance(value, str) else value)


CommDtype = Annotated[Literal["fp16", "bf16", "fp32"], any_case("fp16", "bf16", "fp32")]
"""dtype of a collective."""

Dtype = Literal[
    "fp16", "float16", "half", "torch.float16",
    "bf16", "bfloat16", "torch.bfloat16",
    "fp32", "float32", "float", "torch.float32",
    "int8", "torch.int8",
]  # fmt: skip
"""The spellings of ``DtypeEnum`` (deepspeed/runtime/config.py); the case matters."""


def filled(*, trainer: str | None = None, accelerate: str | None = None) -> dict[str, str]:
    """Who fills a literal ``"auto"``, and with what.

    The Trainer runs on accelerate, which fills what the Trainer left open; TRL's trainers are Trainers.
    """
    by_trainer = trainer or f"{accelerate} (filled by accelerate)"
    sources = {"transformers": by_trainer, "trl": by_trainer}
    if accelerate:
        sources["accelerate"] = accelerate
    return sources
