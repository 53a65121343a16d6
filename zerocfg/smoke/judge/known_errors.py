"""Which rule explains an error of a library, by the rules' own proofs, which record the real errors.

Beside them a few causes that no config file shows: memory, ports, disks, compilers.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL
from zerocfg.smoke.worker import memory_errors

if TYPE_CHECKING:
    from zerocfg.rules.api import Rule

# Words of Python itself, which say what broke but not why.
PYTHON = (
    "not supported between instances of", "got an unexpected keyword argument", "unexpected keyword argument",
    "object has no attribute", "has no attribute", "missing 1 required positional argument", "IndexError",
    "object cannot be interpreted as an integer", "invalid literal for int", "with base 10", "list index out of range",
    "not enough values to unpack", "too many values to unpack", "must be a mapping, not NoneType", "argument after",
    "expected str, bytes or os.PathLike object, not NoneType", "unsupported operand type", "ZeroDivisionError",
    "AssertionError", "AttributeError", "TypeError", "KeyError", "SystemExit", "NoneType", "OverflowError",
    "int too big to convert", "cannot convert float infinity to integer", "unrecognized arguments", "divisible by",
    "non-int of type", "can't decode byte", "invalid truth value", "Expecting property name",
)  # fmt: skip
_TYPES = re.compile(r"'\(?(?:bool|bytes|dict|float|int|list|NoneType|str|tuple|\|)+\)?'(?: and )?")
"""Also of Python: the types that it names, as a proof's pattern has them."""
LEAST = 12
"""Letters that a pattern must have beside Python's words to name its rule without a finding in the files."""
_NUMBER = r"[-+]?\\d+(?:\\.\\d+)?(?:e[-+]?\\d+)?"


@dataclass(frozen=True)
class Pattern:
    """``weight``: letters that are the library's own."""

    rule: Rule
    phase: str
    expression: re.Pattern[str]
    weight: int


@functools.lru_cache(maxsize=1)
def patterns() -> tuple[Pattern, ...]:
    """Of every proof that plays a crash, the rule's own and its examples'."""
    found = []
    for rule in ALL:
        proofs = [page_of(rule).proof, *(example.proof for example in page_of(rule).bad if example.proof is not None)]
        for proof in proofs:
            for words in _alternatives(proof.raises) if proof.raises is not None else ():
                found.append(Pattern(rule, proof.phase, re.compile(_general(words)), _weight(words)))
    return tuple(found)


def _general(raises: str) -> str:
    """The expression for any number where the proof's example has one of its own."""
    return re.sub(r"(?<![\\\w.{])\d+(?:\.\d+)?(?![\w}])", _NUMBER, raises)


def _weight(raises: str) -> int:
    """Letters that are no words of Python."""
    return sum(map(str.isalpha, _without(raises)))


def _alternatives(raises: str) -> list[str]:
    return raises.split("|") if "(" not in raises else [raises]


def _without(text: str) -> str:
    text = re.sub(r"\\[AZdDsSwWbB]", "", text).replace("\\", "").replace(".s.", "s")
    text = _TYPES.sub("", text)
    for words in PYTHON:
        text = text.replace(words, "")
    return text


def explains(rule: Rule, error: str) -> bool:
    """Whether an error is what a proof of this rule shows."""
    return any(pattern.rule is rule and pattern.expression.search(error) for pattern in patterns())


def rule_of(error: str) -> Rule | None:
    """The rule whose proof shows this error, when its words are the library's own; of several the most exact.

    Of rules with the same words the first by code is taken, which is the general one.
    """
    fitting = [pattern for pattern in patterns() if pattern.weight >= LEAST and pattern.expression.search(error)]
    if not fitting:
        return None
    return min(fitting, key=lambda item: (-item.weight, item.rule.code)).rule


@dataclass(frozen=True)
class Circumstance:
    """A cause outside of the configs: its name, the errors that show it, what it means and what to do.

    ``kind``: that of an outcome (`zerocfg.smoke.launch.process.Outcome`) which always has this cause, if any.
    """

    name: str
    expression: re.Pattern[str]
    message: str
    fix: str
    kind: str | None = None


def _cause(name: str, errors: str, message: str, fix: str, kind: str | None = None) -> Circumstance:
    return Circumstance(name, re.compile(errors), message, fix, kind)


CIRCUMSTANCES = (
    # First: a lack of pinned memory is worded like one of the card; `failure_cause` has told them apart.
    _cause(
        "host-out-of-memory",
        rf"out of host memory|{memory_errors.HOST}|out-of-memory killer",
        "the run needs more host memory than this machine gives it",
        "fewer ranks on this machine, a smaller model (fewer layers are enough for a smoke-run), no offload, or "
        "`pin_memory: false` where pinned memory ran out",
    ),
    _cause(
        "card-out-of-memory",
        rf"{memory_errors.CARD}|OutOfMemoryError",
        "the run does not fit into the memory of a card",
        "a smaller micro batch with more accumulation, gradient checkpointing, a higher ZeRO stage or offload; "
        "`zerocfg plan` compares them, `zerocfg explain` tells what takes the memory",
    ),
    _cause(
        "port-in-use",
        r"EADDRINUSE|[Aa]ddress already in use",
        "another program uses the rendezvous port of the ranks",
        "end that program, or launch with another --main_process_port (accelerate) or --master_port (torchrun)",
        kind="port",
    ),
    _cause(
        "ranks-do-not-meet",
        r"Watchdog caught collective operation timeout|ncclSystemError|ncclRemoteError|NCCL.{0,80}timed? ?out|"
        r"Timed out (?:waiting|initializing process group)",
        "the ranks timed out waiting for each other",
        "look for the rank that failed or never came; NCCL_DEBUG=INFO tells which connection is missing",
    ),
    _cause(
        "no-space",
        r"No space left on device|Disk quota exceeded",
        "a disk is full",
        "free some space, or name another folder with TMPDIR (scratch files) or --keep (weights)",
        kind="space",
    ),
    _cause(
        "operator-cache",
        r"(?s)(?:Permission denied|Read-only file system).*(?:file_baton\.py|cpp_extension\.py|torch_extensions)",
        "torch cannot write to its folder of compiled operators; it needs that even for one that is compiled",
        "name a folder that can be written with TORCH_EXTENSIONS_DIR; compiled operators can be copied there",
    ),
    _cause(
        "no-compiler",
        r"Ninja is required to load C\+\+ extensions|ninja: build stopped|Error building extension|"
        r"CUDA_HOME (?:does not exist|environment variable is not set)|MissingCUDAException|CUDAMismatchException|"
        r"No module named '(?:setuptools|ninja)'|"
        r"Unable to JIT load the (?:\w+ op due to ninja|(?!async_io)\w+ op due to it not being compatible)",
        "DeepSpeed compiles an operator for this config (offload, NVMe, a fused optimizer), and that failed",
        "install ninja, setuptools, a C++ compiler and, for a card, the CUDA toolkit of torch's release; `ds_report` "
        "lists them",
    ),
    _cause(
        "no-libaio",
        r"(?:async_io|AsyncIO|libaio)",
        "offload to NVMe needs libaio, which is not installed",
        "install libaio-dev (Debian) or libaio-devel (Red Hat), or offload to the CPU",
    ),
    _cause(
        "card-too-old-or-new",
        r"no kernel image is available for execution",
        "this torch was not built for this card",
        "install the torch build for the card's CUDA capability",
    ),
)


def circumstance_of(error: str, kind: str | None = None) -> Circumstance | None:
    """The cause of an error, or of an outcome of this kind."""
    known = (
        circumstance
        for circumstance in CIRCUMSTANCES
        if (kind is not None and circumstance.kind == kind) or circumstance.expression.search(error)
    )
    return next(known, None)
