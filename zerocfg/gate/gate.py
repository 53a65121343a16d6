"""The checks together. Linting is the caller's: it has the settings for that."""

from __future__ import annotations

import datetime
from typing import TYPE_CHECKING

from zerocfg.gate import outputs
from zerocfg.gate.builds import fresh
from zerocfg.gate.certificates import proven
from zerocfg.gate.model import CHECKS, GateError, Outcome, Target
from zerocfg.run.discover import display_name
from zerocfg.smoke.model import certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from pathlib import Path

    from zerocfg.gate.policy import Policy


def gate(
    folder: Path,
    policy: Policy,
    versions: Mapping[str, str],
    excluded: Callable[[Path], bool],
    now: datetime.datetime | None = None,
    checks: Collection[str] = CHECKS,
) -> Outcome:
    """Builds, certificates and policies of every spec below ``folder``, or of these only the ``checks`` named.

    ``versions`` are the releases that the settings state. Raises GateError where there is nothing to judge, or
    something that the judgement needs is not as it must be.
    """
    now = now or datetime.datetime.now(datetime.timezone.utc)
    found, reasons = outputs.find(folder, policy, excluded)
    outcome = Outcome(reasons)
    if not found and not reasons:
        raise GateError(
            f"there is no zerocfg.yaml below {display_name(folder)}, so there is no run to check; "
            "`zerocfg init` writes one, and `zerocfg lint` alone needs none"
        )
    rules = []
    if policy.policies and "policy" in checks:
        from zerocfg.gate.organisation import read_rules

        rules = [read_rules(path) for path in policy.policies]
    targets: list[Target] = []
    for spec, outs in found.items():
        some, wrong = fresh(spec, outs, versions)
        targets += some
        outcome.reasons += wrong
    outcome.looked_at["build"] = len(targets)
    needed = _needed(targets, policy, folder) if "certificate" in checks else []
    for target in needed:
        outcome.reasons += proven(target, policy, now)
    outcome.looked_at["certificate"] = len(needed)
    for one in rules:
        from zerocfg.gate.organisation import meets

        for target in targets:
            outcome.reasons += meets(target, one)
    outcome.looked_at["policy"] = len(rules)
    # Several policies or output folders may say the same of one place.
    outcome.reasons = [one for one in dict.fromkeys(outcome.reasons) if one.check in checks]
    return outcome


def _needed(targets: list[Target], policy: Policy, folder: Path) -> list[Target]:
    """The runs that need a certificate."""
    if policy.require == "none" or not targets:
        return []
    if policy.require == "all":
        return targets
    from zerocfg.gate.changed import changed_since

    changed = changed_since(policy.base, folder.resolve())
    return [
        target
        for target in targets
        if any(path.parent == target.folder.resolve() and path.name != certificate.NAME for path in changed)
    ]
