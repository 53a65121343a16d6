"""``python -m tools.facts.play``: plays the bad examples of the rules on older release sets, and writes what they show
to ``schemas/releases/rules.json``.

What was played is kept, by content, in the cache: interrupted work goes on where it stopped. Outcomes of examples that
are not played now stay in the file as long as the examples are what they were. An example that does not show its claim
is held against a good one of its rule, so that what does not run there at all is told from what is accepted. One that
is not refused where its claim says it is played on, to the end of a training step: an older release may refuse it
later. Rules of keys and values are left out: the histories say of every release what they find.

With ``--good`` the good examples of the rules with a release bound are played as well: what a bad example shows says
nothing where the good one stops, too.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from tests.ledger.entries import digest
from tests.proofs import harness
from tests.proofs.claims import Claim, measured
from tests.proofs.harness import PHASES, Failed, HarnessError, Observation
from tests.proofs.judging import what_is_played
from tools.facts.environment import CACHE, ROOT
from tools.facts.outcome import RUNS, SAME, judged, judged_good, lacks_an_operator
from tools.facts.played import FILE, good_beside, together, written
from tools.facts.release_bound import bounds
from tools.facts.set_zygote import COMPILE, NOT_COMPILED, OPERATORS
from tools.facts.sets import SETS, ReleaseSet, alone, installed, versions
from zerocfg.catalog.rule_outcomes import SIDES, Outcome, Side, read_outcomes, rule_outcomes
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.older_releases import good_keys_of, key_of, keys_of
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule
from zerocfg.rules.registry import ALL
from zerocfg.run.model import Phase

PLAYED = CACHE / "played"
LIMIT = 120.0
"""Seconds for an example; other work may go on beside it."""
DECIDING: Phase = "step"
"""The phase up to which an example is played that is not refused where its claim says."""


OTHER_TRAINER = re.compile(r"\b(?:kto|grpo|rloo|reward|distillation)\.py\b")
"""Scripts of TRL in whose place the harness trains with transformers' Trainer: it never comes to what theirs refuse."""


class Inside(harness.Zygote):
    """The zygote of an older release set."""

    def __init__(self, name: str, folders: Sequence[Path], *, compiling: bool) -> None:
        self.scratch = Path(tempfile.mkdtemp(prefix="zerocfg-proofs-"))
        self.errors = (self.scratch / "zygote.log").open("wb")
        extensions = CACHE / "operators" / name
        kept = {name: held for name, held in os.environ.items() if name != COMPILE}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tools.facts.set_zygote", str(self.scratch)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            bufsize=1,
            cwd=ROOT,
            env={
                **kept,
                **({COMPILE: "1"} if compiling else {}),
                OPERATORS: str(CACHE / "operators" / "compiled"),
                "PYTHONPATH": os.pathsep.join(map(str, (*folders, ROOT))),
                "TORCH_EXTENSIONS_DIR": str(extensions),
            },
        )
        self.ready = False


class NotPlayedError(Exception):
    """An example is not kept, and nothing is to be played."""


class Set:
    """Plays on one set, and remembers. ``instead``: other releases in place of its own; ``seconds``: how long it may
    play."""

    def __init__(self, wanted: ReleaseSet, instead: Sequence[tuple[str, str]], seconds: float, *, compiling: bool):
        self.folders = (*(alone(*one) for one in instead), installed(wanted))
        self.versions = {**versions(self.folders[-1]), **dict(instead)}
        self.name = "-".join((wanted.deepspeed, *(part for one in instead for part in one)))
        self.limit = seconds
        self.compiling = compiling
        self.seconds = 0.0
        self.started = False

    def play(self, claim: Claim) -> Observation | str:
        """What is seen, or why nothing can be."""
        key = digest([what_is_played(claim), self.versions])
        file = PLAYED / self.name / f"{key}.json"
        if file.exists():
            known = json.loads(file.read_text(encoding="utf-8"))
            if isinstance(known, str):
                return known
            error = known.pop("error")
            return Observation(**known, error=error and _failed(error))
        if self.seconds >= self.limit:
            raise NotPlayedError
        proof = claim.proof
        if not self.started:
            harness._zygote = Inside(self.name, self.folders, compiling=self.compiling)
            self.started = True
        start = time.monotonic()
        found: Observation | str
        try:
            measure = measured(proof)
            found = harness.observe(claim.files, claim.consumer, proof.phase, proof.ranks, limit=LIMIT, measure=measure)
        except HarnessError as error:
            if harness.zygote().process.poll() is not None:
                raise
            found = str(error).splitlines()[0][:200]
        self.seconds += time.monotonic() - start
        if lacks_an_operator(found):
            return found
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(found if isinstance(found, str) else asdict(found)), encoding="utf-8")
        return found

    def outcome(self, rule: Rule, number: int) -> Outcome:
        """What a bad example shows."""
        claim = _claim(rule, number, "bad")
        seen = self.play(claim)
        if isinstance(seen, str):
            return Outcome("unplayable", seen)
        if not claim.objections(seen):
            return judged(claim, seen, None)
        good = _good_beside(rule, number, claim)
        found = self.play(good)
        if isinstance(found, str):
            return Outcome("unplayable", found)
        outcome = judged(claim, seen, found)
        return self.later(claim, good) if outcome == RUNS else outcome

    def later(self, claim: Claim, good: Claim) -> Outcome:
        """What an example does that its release did not refuse in the phase of its claim."""
        if PHASES.index(claim.proof.phase) >= PHASES.index(DECIDING) or OTHER_TRAINER.search(_line(claim)):
            return RUNS
        seen = self.play(_until_decided(claim))
        if isinstance(seen, str) or lacks_an_operator(seen):
            return RUNS
        if seen.error is None:
            return Outcome("runs", DECIDING)
        reached = Outcome("runs", seen.reached or claim.proof.phase)
        found = self.play(_until_decided(good))
        if isinstance(found, str) or not found.passed(DECIDING):
            return reached
        outcome = judged(_until_decided(claim), seen, found)
        return Outcome("same", f"in {seen.error.phase}") if outcome.kind == "same" else outcome

    def good_outcome(self, rule: Rule, number: int) -> Outcome:
        """What a good example does: "same" where it passes, with the values that its page says."""
        claim = _claim(rule, number, "good")
        seen = self.play(claim)
        return Outcome("unplayable", seen) if isinstance(seen, str) else judged_good(claim, seen)

    def close(self) -> None:
        if self.started:
            assert harness._zygote is not None
            harness._zygote.close()
            harness._zygote = None


def _failed(kept: dict[str, object]) -> Failed:
    return Failed(**{**kept, "within": tuple(kept["within"]), "traceback": tuple(kept["traceback"])})  # type: ignore[arg-type]


def _claim(rule: Rule, number: int, side: str, like: Claim | None = None) -> Claim:
    example = (page_of(rule).good if side == "good" else page_of(rule).bad)[number]
    proof = like.proof if like is not None else example.proof or page_of(rule).proof
    name = f"{rule.code}-{number + 1} {side}"
    return Claim(name, "good" if side == "good" else "bad", proof, example.files, example.consumer)


def _good_beside(rule: Rule, number: int, claim: Claim) -> Claim:
    return _claim(rule, good_beside(rule, number), "good", like=claim)


def _line(claim: Claim) -> str:
    return claim.files.get("train.sh", "")


def _until_decided(claim: Claim) -> Claim:
    return replace(claim, proof=replace(claim.proof, phase=DECIDING))


def playable(rule: Rule) -> bool:
    return page_of(rule).proof.status == "executed" and not rule.by_each_release


@dataclass(frozen=True)
class Work:
    """One example to play. ``number``: among those of its side, from 0."""

    rule: Rule
    side: Side
    number: int

    @property
    def example(self) -> Example:
        page = page_of(self.rule)
        return (page.good if self.side == "good" else page.bad)[self.number]

    @property
    def effort(self) -> tuple[int, int]:
        proof = self.example.proof or page_of(self.rule).proof
        return PHASES.index(proof.phase), proof.ranks

    @property
    def name(self) -> str:
        return f"{self.rule.code}-{self.number + 1} {self.side}"

    def outcome(self, on: Set, known: Outcome | None) -> Outcome:
        """``known``: what needs no playing again."""
        if self.side == "good":
            return on.good_outcome(self.rule, self.number)
        if known == RUNS:
            claim = _claim(self.rule, self.number, "bad")
            return on.later(claim, _good_beside(self.rule, self.number, claim))
        return on.outcome(self.rule, self.number)

    def known(self, name: str) -> Outcome | None:
        """What the data set has of it on a set."""
        (outcome,) = rule_outcomes().outcomes(self.rule.code, [key_of(self.rule, self.example)], name, self.side)
        return outcome

    def decided(self, known: Outcome | None) -> bool:
        """Whether it was played as far as its outcome can change."""
        return known is not None and (known != RUNS or self.effort[0] >= PHASES.index(DECIDING))


def wanted(codes: Sequence[str], until: str, *, good: bool) -> list[Work]:
    """The examples of these rules that go no further than a phase, those with the least effort first."""
    work = [
        Work(rule, side, number)
        for rule in ALL
        if playable(rule) and (not codes or rule.code in codes)
        for side in (SIDES if good else SIDES[:1])
        for number in range(len(page_of(rule).good if side == "good" else page_of(rule).bad))
    ]
    return sorted((one for one in work if one.effort[0] <= PHASES.index(until)), key=lambda one: (one.side, one.effort))


def played_on(on: Set, name: str, work: Sequence[Work], options: argparse.Namespace) -> Iterator[tuple[Work, Outcome]]:
    """What was played of it, with its outcomes."""
    left = 0
    for one in work:
        known = one.known(name) if options.missing else None
        if one.decided(known):
            continue
        try:
            outcome = one.outcome(on, known)
        except NotPlayedError:
            left += 1
            continue
        if outcome != SAME:
            print(f"{name} {one.name} {outcome.kind}: {outcome.seen}", flush=True)
        if NOT_COMPILED in outcome.seen and not options.compile:  # nothing new: what is known of it stays
            left += 1
            continue
        yield one, outcome
    on.close()
    print(f"{name}: {len(work) - left} of {len(work)} examples played", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=[one.deepspeed for one in SETS], help="by their DeepSpeed")
    parser.add_argument("--until", choices=PHASES, default="load", help="no examples that go further")
    parser.add_argument("--rules", default="", help="codes, by comma")
    parser.add_argument("--bound", action="store_true", help="only rules with a release bound")
    parser.add_argument("--good", action="store_true", help="the good examples as well")
    parser.add_argument("--missing", action="store_true", help="only examples of which the data set has no outcome")
    parser.add_argument("--compile", action="store_true", help="DeepSpeed's operators, where they are not compiled")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="play so long on a set; 0: only what is kept"
    )
    parser.add_argument("--instead", action="append", default=[], help="library==release in place of a set's own")
    options = parser.parse_args()
    instead = [tuple(one.split("==")) for one in options.instead]
    codes = [code for code in options.rules.split(",") if code]
    if options.bound:
        codes = [code for code in (bound.rule.code for bound in bounds()) if not codes or code in codes]
    work = wanted(codes, options.until, good=options.good)
    found: dict[Side, dict[str, dict[str, dict[str, Outcome]]]] = {side: {} for side in SIDES}
    known = {}
    for release_set in SETS:
        name = release_set.deepspeed
        if name not in options.sets:
            continue
        on = Set(release_set, instead, options.seconds, compiling=options.compile)
        known[name] = on.versions
        for one, outcome in played_on(on, name, work, options):
            key = key_of(one.rule, one.example)
            found[one.side].setdefault(one.rule.code, {}).setdefault(key, {})[name] = outcome
        if not instead:
            examples = {rule.code: (keys_of(rule), good_keys_of(rule)) for rule in ALL if playable(rule)}
            FILE.write_text(written(together(read_outcomes(FILE), known, found, examples)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
