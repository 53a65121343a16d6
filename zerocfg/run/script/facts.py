"""What a training script says about its run. Types only; `reading.py` makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zerocfg.run.model import Consumer, Origin, Setting, SourceFile
from zerocfg.source.text import Span


@dataclass(frozen=True, slots=True)
class FromLine:
    """The value of an option of the script's own parser: what the launch line says, else ``default``."""

    option: str
    default: object


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a library that a config has to do with.

    ``name`` is dotted as the library exports it ("transformers.TrainingArguments"), whatever the script calls it; a
    class of the repository that derives from one counts as that one. ``arguments`` are those given by name: a literal,
    a `FromLine`, or UNKNOWN. ``complete`` False: others may be given by position, `*` or `**`. ``config``: the
    DeepSpeed config among them that is written out as a dict.
    """

    name: str
    arguments: Mapping[str, Setting]
    file: SourceFile
    span: Span
    complete: bool = True
    config: SourceFile | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the modules of its repository that it needs, as deep as `reading.DEPTH` (``files``, itself first).

    ``reader``: whose loop it runs, None where that cannot be told; ``shown_by`` is the call that tells. ``foreign``:
    the framework that reads the configs when it is none of zerocfg's consumers ("lightning"), else empty.
    ``calls``: those that the script reaches from its first line on.
    ``options``: the names, without dashes and with `_`, of every option that its parser takes; None where that cannot
    be told. ``parsed``: the library dataclasses that HfArgumentParser or TrlParser fills from the command line
    ("transformers.TrainingArguments"). ``defaults``: what its own subclass of such a dataclass, or `set_defaults`, puts
    in the place of the library's. ``assigned``: attributes that the code sets on any object, so that nobody knows what
    an argument of that name is in the end.
    """

    file: SourceFile
    reader: Consumer | None = None
    shown_by: Origin | None = None
    foreign: str = ""
    calls: tuple[Call, ...] = ()
    options: frozenset[str] | None = None
    parsed: frozenset[str] = frozenset()
    defaults: Mapping[str, Setting] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()
    files: tuple[SourceFile, ...] = ()
