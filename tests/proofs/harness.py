"""Play a small example on the real libraries and tell what was seen.

    from .harness import observe
    seen = observe({"accelerate.yaml": "...", "recipe.yaml": "..."}, "transformers", until="save", ranks=2)
    seen.reached, seen.error, seen.value("engine.stage"), seen.log

By hand, for a folder of files:  python -m tests.proofs.harness FOLDER [--consumer C] [--until PHASE]
[--ranks N]

The libraries live in another process (zygote.py), started at the first call and kept for the life of this
one.
"""

from __future__ import annotations

import argparse
import atexit
import json
import shutil
import signal
import subprocess
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests import warm

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
PHASES = ("read", "launch", "arguments", "parse", "init", "step", "save", "load")
ABSENT = "<absent>"
LIMIT = 60.0


class HarnessError(Exception):
    """The harness itself could not do its work; says nothing about the example."""


@dataclass(frozen=True)
class Failed:
    """What stopped an example. ``phase`` is where it was raised, ``within`` the functions on its way; ``rank`` is None
    for the launcher."""

    phase: str
    type: str
    text: str
    rank: int | None = None
    traceback: tuple[str, ...] = ()
    within: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.type} in {self.phase}: {self.text}"


@dataclass(frozen=True)
class Observation:
    """``reached`` is the last phase that was completed (by every rank); ``values`` are those of rank 0."""

    reached: str | None
    error: Failed | None
    values: dict[str, Any]
    log: str
    seconds: float
    started: int = 1
    ranks: list[dict[str, Any]] = field(default_factory=list)

    def value(self, name: str) -> Any:
        """The observed value of a name of zerocfg/rulebook/proof.py; ABSENT when nothing of that name was
        seen."""
        return self.log if name == "log" else self.values.get(name, ABSENT)

    def passed(self, phase: str) -> bool:
        return self.reached is not None and PHASES.index(self.reached) >= PHASES.index(phase)


class Zygote:
    """The process that holds the libraries. ``scratch`` is a folder of its own, removed with it.

    It imports them while the caller goes on; the first question waits for that.
    """

    def __init__(self) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="zerocfg-proofs-"))
        self.errors = (self.scratch / "zygote.log").open("wb")
        self.process = subprocess.Popen(
            [warm.python(), str(HERE / "zygote.py"), str(self.scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
        )
        self.ready = False

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            tail = (self.scratch / "zygote.log").read_text(errors="replace")[-2000:]
            raise HarnessError(f"the zygote ended with code {self.process.wait()}:\n{tail}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self.process.stdin is not None
        if not self.ready:
            self.ready = bool(self._answer())
        self.process.stdin.write(json.dumps(request) + "\n")
        return self._answer()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
        self.errors.close()
        shutil.rmtree(self.scratch, ignore_errors=True)


_zygote: Zygote | None = None


def zygote() -> Zygote:
    global _zygote
    if _zygote is None:
        _zygote = Zygote()
        atexit.register(_zygote.close)
    return _zygote


def guess_consumer(files: dict[str, str]) -> str:
    """Who reads these files where the example does not say: what a reader of the example would assume."""
    if "recipe.yaml" in files:
        return "transformers"
    return "accelerate" if "accelerate.yaml" in files else "deepspeed"


def observe(
    files: dict[str, str],
    consumer: str | None = None,
    until: str = "parse",
    ranks: int = 1,
    *,
    limit: float = LIMIT,
    disturb: dict[str, Any] | None = None,
    measure: Sequence[str] = (),
) -> Observation:
    """Play ``files`` up to and including the phase ``until`` with ``ranks`` processes, within ``limit``
    seconds.

    ``disturb`` {"rank", "phase", "signal"}: that rank sends itself the signal at the start of the phase.
    ``measure``: what is seen only where it is asked for: "memory" (``memory.*``), "uses" (``uses.*``).
    """
    if until not in PHASES:
        raise ValueError(f"no phase {until!r}; there are {', '.join(PHASES)}")
    holder = zygote()
    with tempfile.TemporaryDirectory(dir=holder.scratch, prefix="run-") as folder:
        run, reports = Path(folder, "run"), Path(folder, "reports")
        run.mkdir()
        reports.mkdir()
        for name, text in files.items():
            path = run / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode("utf-8", "surrogateescape"))
        answer = holder.ask(
            {
                "folder": str(run),
                "reports": str(reports),
                "files": list(files),
                "consumer": consumer or guess_consumer(files),
                "until": until,
                "ranks": ranks,
                "limit": limit,
                "disturb": disturb,
                "measure": list(measure),
            }
        )
        return collect(reports, answer, until, limit)


def collect(reports: Path, answer: dict[str, Any], until: str, limit: float) -> Observation:
    """One observation out of the reports of the launcher and the ranks."""
    launch = _load(reports / "launch.json")
    if launch is None:
        raise HarnessError("the job process left no report: " + _log(reports)[-2000:])
    started = launch["values"].pop("started", 0)
    codes = _load(reports / "codes.json") or {}
    ranks = [_load(reports / f"rank{rank}.json") or {"current": "arguments"} for rank in range(started)]
    failed = first_failure(reports, launch, ranks, codes)
    if failed is not None and failed.type == "NotObservableError":
        raise HarnessError(failed.text)
    if failed is None and answer["timed_out"]:
        where = (ranks or [launch])[0]["current"]
        failed = Failed(where, "Timeout", f"nothing more happened within {limit:g} s")
    steps = [report.get("reached") or launch["reached"] for report in ranks] or [launch["reached"]]
    reached = min(steps, key=lambda phase: PHASES.index(phase) if phase else -1)
    values = launch["values"] | (ranks[0].get("values", {}) if ranks else {})
    world = values.get("engine.processes", values.get("engine.world_size", started))
    if failed is None and "engine.kind" in values and world != started:
        raise HarnessError(f"{started} ranks were started but the engine has a world of {world}: each trained alone")
    if failed is None and reached != until:
        raise HarnessError(
            f"stopped after {reached} without an error, on the way to {until}:\n" + _log(reports)[-2000:]
        )
    return Observation(reached, failed, values, _log(reports), answer["seconds"], started, ranks)


def first_failure(
    reports: Path, launch: dict[str, Any], ranks: list[dict[str, Any]], codes: dict[str, list[Any]]
) -> Failed | None:
    """What failed first: the other ranks then fail because they lost a partner."""
    found: list[tuple[float, Failed]] = []
    for rank, report in [(None, launch), *enumerate(ranks)]:
        error = report.get("error")
        if error:
            text = error["text"]
            if error["type"] == "SystemExit":  # argparse: the reason went to standard error
                log = reports / ("launch.log" if rank is None else f"rank{rank}.log")
                text = "\n".join(log.read_text(errors="replace").splitlines()[-3:]) or text
            way = (tuple(error["traceback"]), tuple(error["within"]))
            failed = Failed(error["phase"], error["type"], text, rank, *way)
            found.append((error["time"], failed))
        elif rank is not None and codes.get(str(rank), [0])[0] != 0:
            code, ended = codes[str(rank)]
            how = f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            # The end of a process is seen a little after its partners feel it; an abort is mostly such a
            # feeling.
            before = 0.0 if code == -signal.SIGABRT else 1.0
            found.append((ended - before, Failed(report["current"], "Crash", f"rank {rank} {how}", rank)))
    return min(found, key=lambda item: item[0])[1] if found else None


def _load(path: Path) -> Any:
    return json.loads(path.read_text()) if path.exists() else None


def _log(reports: Path) -> str:
    return "".join(path.read_text(errors="replace") for path in sorted(reports.glob("*.log")))


def main() -> None:
    parser = argparse.ArgumentParser(description="Play a folder of config files on the real libraries.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--consumer", choices=("deepspeed", "accelerate", "transformers", "trl"))
    parser.add_argument("--until", choices=PHASES, default="parse")
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument(
        "--measure", action="append", choices=("memory", "uses"), default=[], help="what takes time or disturbs"
    )
    parser.add_argument("--log", action="store_true", help="print what the libraries printed")
    options = parser.parse_args()
    paths = [path for path in sorted(options.folder.rglob("*")) if path.is_file()]
    files = {path.relative_to(options.folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    seen = observe(files, options.consumer, options.until, options.ranks, measure=options.measure)
    for name, value in sorted(seen.values.items()):
        if not isinstance(value, dict):
            print(f"{name} = {value!r}")
    if options.log:
        print(seen.log)
    print(f"reached: {seen.reached}   error: {seen.error or 'none'}   {seen.seconds:.1f} s")


if __name__ == "__main__":
    main()
