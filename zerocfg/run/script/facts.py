"""What a training script says about its run. Types only; `reading.py` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zerocfg.run.model import Consumer, Origin, Setting, SourceFile
from zerocfg.source.text import Span


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a library that a config has to do with.

    ``name`` is dotted as the library exports it ("transformers.TrainingArguments"), whatever the script calls it; a
    class of the repository that derives from one counts as that one. ``arguments`` are those given by name, or by a
    position that is known, UNKNOWN where the value is no literal; ``complete`` False: `*` or `**` may hide others.
    """

    name: str
    arguments: Mapping[str, Setting]
    file: SourceFile
    span: Span
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the modules of its repository that it imports, two deep (``files``, itself first).

    ``reader``: whose loop it runs, None where that cannot be told; ``shown_by`` is the call that tells. ``foreign``:
    the framework that reads the configs when it is none of zerocfg's consumers ("lightning"), else empty.
    ``options``: the names, without dashes and with `_`, of every option that its parser takes; None where that cannot
    be told. ``parsed``: the names of library dataclasses that HfArgumentParser or TrlParser fills from the command line
    ("transformers.TrainingArguments").
    """

    file: SourceFile
    reader: Consumer | None = None
    shown_by: Origin | None = None
    foreign: str = ""
    calls: tuple[Call, ...] = ()
    options: frozenset[str] | None = None
    parsed: frozenset[str] = frozenset()
    files: tuple[SourceFile, ...] = field(default=())
