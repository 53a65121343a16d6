"""Which rule explains the failure of a smoke-run: each failed check, and the error that ended it.

The linter's findings on the files of the run come first: they name the place. An error that no finding explains is held
against the rules' proofs, and then against what no config shows. Where nothing fits, nothing is said.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zerocfg.linter.engine import Diagnostic
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.place import file_span
from zerocfg.rules.registry import find as find_rule
from zerocfg.smoke.judge import known_errors
from zerocfg.smoke.judge.lint_findings import ARGUMENTS, lint_findings, refuses
from zerocfg.smoke.judge.requested_settings import NAMES
from zerocfg.smoke.model.certificate import Diagnosis
from zerocfg.smoke.prepare.linked_run import linked_run
from zerocfg.smoke.prepare.requested_settings import GATHER, STAGE, claims

if TYPE_CHECKING:
    from zerocfg.rules.api import Rule
    from zerocfg.rules.place import FileSpan
    from zerocfg.run.model import Run
    from zerocfg.smoke.launch.process import Outcome
    from zerocfg.smoke.model.certificate import Check
    from zerocfg.smoke.prepare.folder import RunFolder
    from zerocfg.smoke.prepare.requested_settings import Claim

KEYS = {name: key for key, name in NAMES.items()}
SAVED = ("saved parameters", "loaded by from_pretrained")
# What a rank was doing, as the proofs call it. Everything up to the engine may also fail earlier or later than there.
PHASES = {"arguments": ("arguments", "parse"), "model": ("init", "parse"), "init": ("init", "parse"), "save": ("save",)}


def diagnose(folder: RunFolder, checks: list[Check], outcome: Outcome) -> list[Diagnosis]:
    """Explanations of what failed; each rule and place once."""
    failed = [check for check in checks if check.ok is False]
    if not failed and outcome.failure is None:
        return []
    run = linked_run(folder)
    findings = lint_findings(run)
    found: list[Diagnosis] = []
    if outcome.failure is not None:
        found += _of_error(outcome, findings)
    requested = claims(run) if run is not None else {}
    for item in failed:
        found += [_diagnosis(finding, f"check:{item.name}") for finding in _of_check(item, requested, run, findings)]
    unique: dict[tuple[str, str | None, int | None, int | None], Diagnosis] = {}
    for diagnosis in found:
        key = (diagnosis.code or diagnosis.name, diagnosis.file, diagnosis.line, diagnosis.column)
        unique.setdefault(key, diagnosis)
    return list(unique.values())


# -- errors -----------------------------------------------------------------------------------------------------


def _error(outcome: Outcome) -> str:
    """The error of the failing rank: its type, its text, and where it happened."""
    detail = "\n".join(outcome.detail)
    return f"{outcome.failure}\n{detail}"


def _phase(outcome: Outcome) -> str:
    rank = outcome.rank
    if rank is None or rank >= len(outcome.reports):
        return "launch"
    return str(outcome.reports[rank].get("phase", "launch"))


def _of_error(outcome: Outcome, findings: list[Diagnostic]) -> list[Diagnosis]:
    error, phase = _error(outcome), _phase(outcome)
    cause = known_errors.circumstance_of(error, outcome.kind)
    first = error.partition("\n")[0]
    rules = {finding.code: rule for finding in findings if (rule := find_rule(finding.code)) is not None}
    shown = [
        finding for finding in findings if finding.code in rules and known_errors.explains(rules[finding.code], first)
    ]
    named = [item for item in shown if _names(item, first)] or shown
    if not named:
        # The error speaks of the very key that a finding stands at, and the rule predicts a crash there.
        named = [
            finding
            for finding in findings
            if finding.code in rules and _names(finding, first) and _crashes(rules[finding.code])
        ]
    if not named:
        phases = PHASES.get(phase, ("step",) if phase.startswith("step") else (phase,))
        named = [finding for finding in findings if finding.code in rules and _crashes(rules[finding.code], phases)]
        if known_errors.rule_of(first) is not None or cause is not None:
            named = []  # the error has another cause
    if named:
        return [_diagnosis(item, "error") for item in named]
    rule = known_errors.rule_of(first)
    if rule is not None:
        return [Diagnosis(rule.code, rule.name, None, None, None, page_of(rule).summary, _instead(rule), "error")]
    if cause is not None:
        return [Diagnosis("", cause.name, None, None, None, cause.message, cause.fix, "error")]
    return []


def _names(finding: Diagnostic, error: str) -> bool:
    """Whether an error names the key that the finding stands at, or one that is related to it."""
    return any(_in(place, error) for place in (finding.span, *finding.related))


def _in(place: FileSpan, error: str) -> bool:
    if not place.keys:
        return False
    key = str(place.keys[-1])
    return len(key) > 3 and re.search(rf"(?<!\w){re.escape(key)}(?!\w)", error) is not None


def _crashes(rule: Rule, phases: tuple[str, ...] | None = None) -> bool:
    proofs = [page_of(rule).proof, *(example.proof for example in page_of(rule).bad if example.proof is not None)]
    return any(proof.raises is not None and (phases is None or proof.phase in phases) for proof in proofs)


def _instead(rule: Rule) -> str:
    """The advice on the page of a rule, in one line."""
    return " ".join(page_of(rule).instead.partition("\n\n")[0].split())


# -- checks -----------------------------------------------------------------------------------------------------


def _of_check(
    check: Check, requested: dict[str, list[Claim]], run: Run | None, findings: list[Diagnostic]
) -> list[Diagnostic]:
    """The findings at the places that ask for what failed; those at the very key before those around it."""
    if check.name == ARGUMENTS:
        return [finding for finding in findings if refuses(finding)]
    if check.name in SAVED:
        # Whether weights are saved is decided at the stage and the key that gathers.
        saving = [finding for finding in findings if _shows(finding, "save")]
        if saving:
            return saving
        places = _places(requested.get(STAGE, []) + requested.get(GATHER, []))
    elif check.name in KEYS:
        places = _places(requested.get(KEYS[check.name], []))
    else:
        places = _origins(run, check.name)
    exact = [finding for finding in findings if any(_same(place, finding) for place in places)]
    return exact or [finding for finding in findings if any(_around(place, finding) for place in places)]


def _shows(finding: Diagnostic, phase: str) -> bool:
    rule = find_rule(finding.code)
    return rule is not None and page_of(rule).proof.phase == phase


def _places(requested: list[Claim]) -> list[FileSpan]:
    return [file_span(claim.location) for claim in requested]


def _origins(run: Run | None, name: str) -> list[FileSpan]:
    """Where a setting that goes by its key in the files comes from."""
    from zerocfg.rules.api import at

    setting = run.effective.get("num_processes" if name == "world size" else name) if run is not None else None
    if setting is None:
        return []
    locations = [at(item.origin) for item in (setting, *setting.overridden)]
    return [file_span(location) for location in locations if location is not None]


def _spots(finding: Diagnostic) -> list[FileSpan]:
    return [finding.span, *finding.related]


def _same(place: FileSpan, finding: Diagnostic) -> bool:
    return any(
        other.file.name == place.file.name
        and (other.keys == place.keys if place.keys or other.keys else _overlap(place, other))
        for other in _spots(finding)
    )


def _around(place: FileSpan, finding: Diagnostic) -> bool:
    """Whether a finding is at a section that holds the key, or at a key inside of it."""
    return any(
        other.file.name == place.file.name
        and bool(other.keys)
        and bool(place.keys)
        and (place.keys[: len(other.keys)] == other.keys or other.keys[: len(place.keys)] == place.keys)
        for other in _spots(finding)
    )


def _overlap(item: FileSpan, other: FileSpan) -> bool:
    return item.start <= other.end and other.start <= item.end


def _diagnosis(finding: Diagnostic, why: str) -> Diagnosis:
    where = finding.span
    fix = finding.help or (finding.fix.description if finding.fix is not None else "")
    return Diagnosis(
        finding.code,
        finding.name,
        where.file.name,
        where.start.line,
        where.start.column,
        finding.message,
        fix,
        why,
    )
