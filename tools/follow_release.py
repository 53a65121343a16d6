"""``python -m tools.follow_release deepspeed 0.19.9``: move to another release of a library, and learn what it changes.

Writes the release where it stands, locks and installs it, and walks it: the models take names and defaults from there.
Then it runs what compares zerocfg with the library: completeness, parity, proofs. A stage that fails does not stop
those behind it, except that nothing is compared before the release is installed. At the end it says what failed and
where that is put right. Exit code 1 when anything failed.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from junitparser import JUnitXml
from junitparser.junitparser import Error, Failure

ROOT = Path(__file__).resolve().parent.parent
STATED = {"constraints.txt": "{package}=={release}", "zerocfg/run/config.py": '"{package}": "{release}"'}
"""Where a release is stated, and how. Whatever else names it tells what was seen of it."""


@dataclass(frozen=True)
class Stage:
    """``words``: a command; one of ``tests`` is told where its results go. ``edit``: where what it finds is put right.
    ``needed``: without it the stages behind would say nothing of the release."""

    name: str
    words: tuple[str, ...]
    edit: str
    needed: bool = False
    tests: bool = False


PYTEST = (sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadgroup")
STAGES = (
    Stage("lock", ("make", "lock"), "constraints.txt: a release that all others get along with", needed=True),
    Stage("install", ("make", "setup"), "constraints.txt: a release that installs here", needed=True),
    Stage(
        "facts",
        ("make", "facts"),
        "tools/facts: releases.yaml says what is installed with the release",
    ),
    Stage("schemas", ("make", "schemas"), "zerocfg/models: the key that the message names, which is new or gone"),
    Stage(
        "completeness",
        (*PYTEST, "tests/models"),
        "zerocfg/models: keys with type, unit, meaning, since and until; then make schemas",
        tests=True,
    ),
    Stage(
        "parity",
        (*PYTEST, "tests/catalog", "tests/parity", "tests/build/test_parity.py", "tests/build/test_autos.py"),
        "zerocfg/run and zerocfg/catalog: what the library now makes of the same files",
        tests=True,
    ),
    Stage(
        "proofs",
        (*PYTEST, "tests/proofs"),
        "zerocfg/rules: the rule whose code the test names, its page or its versions; then make test",
        tests=True,
    ),
)


@dataclass(frozen=True)
class Outcome:
    stage: Stage
    passed: bool
    failed: tuple[str, ...] = ()
    """Of tests: each with the first line of what it says."""


def restated(text: str, form: str, package: str, release: str) -> str:
    """A file's text with another release where ``form`` states one. ValueError unless it does so once."""
    pattern = (
        re.escape(form).replace(re.escape("{package}"), re.escape(package)).replace(re.escape("{release}"), r"[\w.]+")
    )
    text, count = re.subn(pattern, form.format(package=package, release=release), text)
    if count != 1:
        raise ValueError(f"{form.format(package=package, release='...')} stands there {count} times")
    return text


def listed(text: str, package: str, release: str) -> str:
    """The text of ``tools/facts/releases.yaml`` with a release behind the others of its library, if it has that library
    and not yet that release."""
    releases = re.search(rf"^{re.escape(package)}:\n(?:  .*\n)*?  releases: \[([^]]*?),?\s*\]", text, re.MULTILINE)
    if releases is None or release in re.split(r"[\s,]+", releases[1]):
        return text
    return f"{text[: releases.end(1)]}, {release}{text[releases.end(1) :]}"


def run(stage: Stage) -> Outcome:
    print(f"== {stage.name}: {' '.join(stage.words)}", flush=True)
    if not stage.tests:
        return Outcome(stage, subprocess.run(stage.words, cwd=ROOT).returncode == 0)
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.xml"
        code = subprocess.run([*stage.words, f"--junitxml={results}"], cwd=ROOT).returncode
        return Outcome(stage, code == 0, failures(results) if results.exists() else ())


def failures(results: Path) -> tuple[str, ...]:
    found = []
    for suite in JUnitXml.fromfile(str(results)):
        for case in suite:
            for result in case.result:
                if isinstance(result, (Failure, Error)):
                    said = (result.message or "").splitlines()
                    found.append(f"{case.classname}::{case.name}: {said[0] if said else ''}")
    return tuple(found)


def follow(stages: Sequence[Stage], play: Callable[[Stage], Outcome]) -> list[Outcome]:
    """All stages in order; those behind one that is needed and fails are left out."""
    outcomes: list[Outcome] = []
    for stage in stages:
        outcomes.append(play(stage))
        if stage.needed and not outcomes[-1].passed:
            break
    return outcomes


def report(outcomes: Sequence[Outcome], stages: Sequence[Stage]) -> str:
    lines = []
    for stage in stages:
        outcome = next((one for one in outcomes if one.stage is stage), None)
        if outcome is None:
            lines.append(f"{stage.name}: not run")
            continue
        lines.append(f"{stage.name}: {'passed' if outcome.passed else 'FAILED'}")
        if not outcome.passed:
            lines += [f"  {one}" for one in outcome.failed]
            lines.append(f"  edit {stage.edit}")
    return "\n".join(lines)


def others(old: str, package: str) -> list[str]:
    """Files that name the old release beside its library: what they say of it was seen with that one."""
    words = [
        "git",
        "grep",
        "-liE",
        f"{package}[^0-9]{{1,8}}{re.escape(old)}",
        "--",
        ":!*.lock",
        *(f":!{name}" for name in STATED),
    ]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True).stdout.split()


def main() -> int:
    parser = argparse.ArgumentParser(description="Move to another release of a training library")
    parser.add_argument("package", help="as deepspeed: one of constraints.txt")
    parser.add_argument("release", help="as 0.19.9")
    words = parser.parse_args()
    stated = re.search(rf"^{re.escape(words.package)}==(.+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    if stated is None:
        parser.error(f"constraints.txt names no {words.package}")
    for name, form in STATED.items():
        path = ROOT / name
        path.write_text(restated(path.read_text(), form, words.package, words.release))
    walks = ROOT / "tools" / "facts" / "releases.yaml"
    walks.write_text(listed(walks.read_text(), words.package, words.release))
    outcomes = follow(STAGES, run)
    print(report(outcomes, STAGES))
    if stated[1] != words.release:
        print(f"These say what was seen with {words.package} {stated[1]}; look again, then say so:")
        print("\n".join(f"  {name}" for name in others(stated[1], words.package)))
    return 0 if all(outcome.passed for outcome in outcomes) and len(outcomes) == len(STAGES) else 1


if __name__ == "__main__":
    sys.exit(main())
