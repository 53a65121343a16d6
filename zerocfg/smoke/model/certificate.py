"""The certificate of a smoke-run: its types, and their JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import datetime
    from collections.abc import Iterable

NAME = "smoke.json"
VERSION = 1
ENGINE, WORLD_SIZE, STAGE, STEPS = "engine", "world size", "ZeRO stage", "optimizer steps, loss finite"
CHANGE, SAVED, LOADED = "parameters change", "saved parameters", "loaded by from_pretrained"
"""Names of the essential checks: a smoke-run that did not measure one of them has not passed. The stage under
DeepSpeed; the last two where the weights are saved."""

VerdictState = Literal["passed", "failed", "incomplete"]
"""``incomplete``: nothing failed, but an essential check was not measured."""
WORDS: dict[VerdictState, str] = {"passed": "passed", "failed": "FAILED", "incomplete": "INCOMPLETE"}
"""A verdict on the screen."""


def exit_code_of(states: Iterable[VerdictState | Literal["problem"]]) -> int:
    """The exit code of some smoke-runs: 0 all passed, 1 one failed, 2 one could not be tried ("problem"), 3 one is
    incomplete and none failed."""
    seen = set(states)
    codes: dict[VerdictState | Literal["problem"], int] = {"problem": 2, "failed": 1, "incomplete": 3}
    return next((code for state, code in codes.items() if state in seen), 0)


@dataclass(frozen=True, slots=True)
class RecordedReduction:
    """A reduction as recorded: the value of a `zerocfg.smoke.model.reduction.Kind`, and its text.

    ``data``: the reduction as data; empty in a certificate from before it was recorded.
    """

    kind: str
    words: str
    data: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Check:
    """A planned value beside the observed one. ``ok`` None for what is only noted.

    ``measured``: False where an instrument broke; ``seen`` says why then.

    ``further``: "" for what has a row of its own in the table. Of the others only those that differ are shown, the rest
    is counted: "acting" was read where it acts, "parsed" from the config that the engine holds, "unseen" not at all.
    """

    name: str
    planned: str
    seen: str
    ok: bool | None
    further: str = ""
    measured: bool = True

    def data(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the run failed: the ``rank`` where it began, None where unknown, its last output, and the ``stage`` that it
    was in ("init", "step 1", "save")."""

    message: str
    rank: int | None = None
    detail: tuple[str, ...] = ()
    stage: str = ""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One explanation. ``why``: "check:NAME" or "error".

    ``code`` is empty where no rule of the configs knows the cause; ``file``, ``line`` and ``column`` are None where the
    rule speaks of an error and not of a place.
    """

    code: str
    name: str
    file: str | None
    line: int | None
    column: int | None
    message: str
    fix: str
    why: str

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: " if self.file is not None else ""

    def __str__(self) -> str:
        head = f"{self.code} {self.name}".strip()
        fix = f"; fix: {self.fix}" if self.fix else ""
        return f"{head}: {self.place}{self.message}{fix}"


@dataclass(slots=True)
class Command:
    """The user's own command: ``line`` as given to the shell; ``loop`` None when no training was reached.

    ``notes``: what the run proved and what not, in sentences.
    """

    line: str
    loop: str | None = None
    notes: list[str] = field(default_factory=list)


Sizes = dict[str, float | None]
"""Bytes by the name of a counter; and "seconds"."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What the ranks measured; lists are by rank, sizes in bytes. None: not counted here.

    ``seconds`` of the whole run; ``step_seconds``, ``losses`` of rank 0. ``memory`` by phase, ``start`` before the
    model was made. ``points``: (seconds, bytes, phase) of rank 0, of the counter ``of``. ``median`` and ``first``:
    seconds of an optimizer step. ``collectives``: of the last step by kind, "calls", "payload" and "sent" in bytes,
    "seconds". ``predicted``: as `zerocfg.smoke.judge.prediction.Expected.data` gives it, or "unknown" and why.
    """

    seconds: float | None = None
    step_seconds: tuple[float, ...] = ()
    losses: tuple[float, ...] = ()
    peaks: tuple[int | None, ...] = ()
    memory: tuple[dict[str, Sizes], ...] = ()
    start: tuple[Sizes, ...] = ()
    device_memory: int | None = None
    of: str = ""
    points: tuple[tuple[float, int, str], ...] = ()
    median: float | None = None
    first: float | None = None
    collectives: tuple[dict[str, dict[str, float | None]], ...] = ()
    tokens: int | None = None
    tokens_per_second: float | None = None
    tflops: float | None = None
    predicted: dict[str, object] = field(default_factory=dict)

    def figures(self) -> dict[str, object]:
        """Memory, times and rates as JSON."""
        return {
            "memory": list(self.memory),
            "memory_start": list(self.start),
            "device_memory_bytes": self.device_memory,
            "timeline": {"rank": 0, "of": self.of, "points": list(self.points)},
            "step_seconds_median": self.median,
            "step_seconds_first": self.first,
            "communication": list(self.collectives),
            "tokens_per_step": self.tokens,
            "tokens_per_second": self.tokens_per_second,
            "tflops": self.tflops,
        }

    def data(self) -> dict[str, object]:
        """As JSON."""
        return {
            "seconds": self.seconds,
            "step_seconds": list(self.step_seconds),
            "losses": list(self.losses),
            "peak_memory_bytes": list(self.peaks),
            **self.figures(),
            "predicted": self.predicted,
        }


@dataclass(frozen=True)
class SmokeResult:
    """The result of a smoke-run, as its certificate states it.

    ``device_kind`` is "cpu" or "cuda", ``device_name`` as the driver calls it. ``reductions``: what was smaller than
    planned. ``failure`` None when the run ended. ``unmeasured``: essential checks without a result, by name.
    ``instruments``: those that measured on every rank; ``not_measured``: the others, each with the reason.
    """

    run: str
    state: VerdictState
    device_kind: str
    device_name: str
    ranks: int
    reductions: tuple[RecordedReduction, ...]
    checks: tuple[Check, ...]
    proven: tuple[str, ...]
    not_proven: tuple[str, ...]
    failure: Failure | None
    diagnosis: tuple[Diagnosis, ...]
    command: Command | None
    measured: Measured
    unmeasured: tuple[str, ...] = ()
    instruments: tuple[str, ...] = ()
    not_measured: dict[str, str] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.state == "passed"

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that failed, by name."""
        return tuple(check.name for check in self.checks if check.ok is False)

    def data(self) -> dict[str, object]:
        """As JSON."""
        return {
            "version": VERSION,
            "run": self.run,
            "passed": self.passed,
            "verdict": self.state,
            "unmeasured": list(self.unmeasured),
            "device": {"kind": self.device_kind, "name": self.device_name},
            "ranks": self.ranks,
            "reductions": [reduction.words for reduction in self.reductions],
            "reduced": [{"kind": reduction.kind, **reduction.data} for reduction in self.reductions],
            "checks": [check.data() for check in self.checks],
            "proven": list(self.proven),
            "not_proven": list(self.not_proven),
            "failure": None if self.failure is None else asdict(self.failure),
            "diagnosis": [asdict(item) for item in self.diagnosis],
            **({} if self.command is None else {"command": asdict(self.command)}),
            "instruments": list(self.instruments),
            "not_measured": self.not_measured,
            "measured": self.measured.data(),
        }


@dataclass(frozen=True)
class Certificate:
    """What a smoke-run proved by its ``result``, of which files.

    ``date`` is in UTC; ``steps``: optimizer steps. ``versions`` are the releases that ran, ``files`` the SHA-256 of the
    files that were tested, by name; ``values`` that of what the lock said (`values_hash`), None where it was not
    recorded. ``code``: the SHA-256 of the script and of what it imports of the repository, by path from the spec's
    folder; None where it was not recorded.
    """

    result: SmokeResult
    date: datetime.datetime
    steps: int | None
    versions: dict[str, str]
    files: dict[str, str]
    values: str | None = None
    code: dict[str, str] | None = None

    def data(self) -> dict[str, object]:
        """As JSON."""
        return self.result.data() | {
            "date": self.date.isoformat(),
            "steps": self.steps,
            "versions": self.versions,
            "files": self.files,
            "values": self.values,
            **({} if self.code is None else {"code": self.code}),
        }
