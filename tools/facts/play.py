"""``python -m tools.facts.play``: plays the bad examples of the rules on older release sets, and writes what they show
to ``schemas/releases/rules.json``.

What was played is kept, by content, in the cache: interrupted work goes on where it stopped. Outcomes of examples that
are not played now stay in the file as long as the examples are what they were. An example that does not show its claim
is held against a good one of its rule, so that what does not run there at all is told from what is accepted. Rules of
keys and values are left out: the histories say of every release what they find.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.ledger.entries import digest
from tests.proofs import harness
from tests.proofs.claims import Claim, measured
from tests.proofs.harness import PHASES, Failed, HarnessError, Observation
from tests.proofs.judging import what_is_played
from tools.facts.environment import CACHE, ROOT
from tools.facts.outcome import judged, lacks_an_operator
from tools.facts.played import FILE, together, written
from tools.facts.set_zygote import COMPILE, NOT_COMPILED, OPERATORS
from tools.facts.sets import SETS, ReleaseSet, alone, installed, versions
from zerocfg.catalog.rule_outcomes import Outcome, rule_outcomes
from zerocfg.rulebook.older_releases import key_of, keys_of
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule
from zerocfg.rules.registry import ALL

PLAYED = CACHE / "played"
LIMIT = 120.0
"""Seconds for an example; other work may go on beside it."""


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
        example = page_of(rule).bad[number]
        claim = _claim(rule, number, "bad")
        seen = self.play(claim)
        if isinstance(seen, str):
            return Outcome("unplayable", seen)
        if not claim.objections(seen):
            return judged(claim, seen, None)
        proof = example.proof or page_of(rule).proof
        near = [at for at, one in enumerate(page_of(rule).good) if (one.proof or page_of(rule).proof) == proof] or [0]
        good = self.play(_claim(rule, near[0], "good", like=claim))
        return Outcome("unplayable", good) if isinstance(good, str) else judged(claim, seen, good)

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


def playable(rule: Rule) -> bool:
    return page_of(rule).proof.status == "executed" and not rule.by_each_release


def effort(rule: Rule, number: int) -> tuple[int, int]:
    proof = page_of(rule).bad[number].proof or page_of(rule).proof
    return PHASES.index(proof.phase), proof.ranks


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="*", default=[one.deepspeed for one in SETS], help="by their DeepSpeed")
    parser.add_argument("--until", choices=PHASES, default="load", help="no examples that go further")
    parser.add_argument("--rules", default="", help="codes, by comma")
    parser.add_argument("--compile", action="store_true", help="DeepSpeed's operators, where they are not compiled")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), help="play so long on a set; 0: only what is kept"
    )
    parser.add_argument("--instead", action="append", default=[], help="library==release in place of a set's own")
    options = parser.parse_args()
    instead = [tuple(one.split("==")) for one in options.instead]
    codes = [code for code in options.rules.split(",") if code]
    found: dict[str, dict[str, dict[str, Outcome]]] = {}
    known = {}
    for wanted in SETS:
        if wanted.deepspeed not in options.sets:
            continue
        on = Set(wanted, instead, options.seconds, compiling=options.compile)
        known[wanted.deepspeed] = on.versions
        work = [
            (effort(rule, number), rule, number)
            for rule in ALL
            if playable(rule) and (not codes or rule.code in codes)
            for number in range(len(page_of(rule).bad))
            if PHASES.index(options.until) >= effort(rule, number)[0]
        ]
        left = 0
        for _, rule, number in sorted(work, key=lambda one: one[0]):
            try:
                outcome = on.outcome(rule, number)
            except NotPlayedError:
                left += 1
                continue
            if outcome.kind != "same":
                print(f"{wanted.deepspeed} {rule.code}-{number + 1} {outcome.kind}: {outcome.seen}", flush=True)
            if NOT_COMPILED in outcome.seen:  # nothing new: what is known of it stays
                left += 1
                continue
            found.setdefault(rule.code, {}).setdefault(key_of(rule, page_of(rule).bad[number]), {})[
                wanted.deepspeed
            ] = outcome
        on.close()
        print(f"{wanted.deepspeed}: {len(work) - left} of {len(work)} examples played", flush=True)
    if not instead:
        examples = {rule.code: keys_of(rule) for rule in ALL if playable(rule)}
        FILE.write_text(written(together(rule_outcomes(), known, found, examples)), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
