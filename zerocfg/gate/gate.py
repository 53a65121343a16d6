"""The checks of the gate together. Linting is left to the caller, which has the settings for it."""

from __future__ import annotations

import datetime
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.gate import outputs
from zerocfg.gate.builds import check_builds
from zerocfg.gate.certificates import check_certificate
from zerocfg.gate.model import CHECKS, GateError, Outcome, Target
from zerocfg.run.discover import display_name
from zerocfg.smoke.model import certificate

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

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
    schemas = []
    if policy.policies and "policy" in checks:
        from zerocfg.gate.policy_schemas import read_schema

        schemas = [read_schema(path) for path in policy.policies]
    targets: list[Target] = []
    for spec, outs in found.items():
        some, wrong = check_builds(spec, outs, versions)
        targets += some
        outcome.reasons += wrong
    outcome.looked_at["build"] = len(targets)
    needed = _needed(targets, policy, folder) if "certificate" in checks else []
    for target in needed:
        outcome.reasons += check_certificate(target, policy, now)
    outcome.looked_at["certificate"] = len(needed)
    if schemas:
        from zerocfg.gate.policy_names import check_names
        from zerocfg.gate.policy_schemas import violations
        from zerocfg.gate.run_values import values_of

        judged = [(target, values_of(target)) for target in targets]
        names = {name for _, values in judged for name in values}
        for schema in schemas:
            check_names(schema.schema, schema.document, names)
            for target, values in judged:
                outcome.reasons += violations(target, values, schema)
    outcome.looked_at["policy"] = len(schemas)
    # Several policies or output folders may say the same of one place.
    outcome.reasons = [reason for reason in dict.fromkeys(outcome.reasons) if reason.check in checks]
    return outcome


def _needed(targets: list[Target], policy: Policy, folder: Path) -> list[Target]:
    """The runs that need a certificate."""
    if policy.require == "none" or not targets:
        return []
    if policy.require == "all":
        return targets
    changed = _changed_since(policy.base, folder.resolve())
    return [
        target
        for target in targets
        if any(path.parent == target.folder.resolve() and path.name != certificate.NAME for path in changed)
    ]


def _changed_since(base: str, folder: Path) -> set[Path]:
    """The real paths of files that differ from the merge base with ``base``, new files among them.

    Raises GateError where there is no git, no repository or no such base.
    """
    top = Path(_git(folder, "rev-parse", "--show-toplevel").strip())
    help = "; fetch it (actions/checkout: fetch-depth: 0), or name another with --base"
    start = _git(folder, "merge-base", "--end-of-options", base, "HEAD", help=help).strip()
    names = _git(top, "diff", "--name-only", "--no-renames", "--no-ext-diff", "-z", start, "--").split("\0")
    names += _git(top, "ls-files", "--others", "--exclude-standard", "-z").split("\0")
    return {(top / name).resolve() for name in names if name}


def _git(folder: Path, *words: str, help: str = "") -> str:
    shown = " ".join(word for word in words[:4] if word != "--end-of-options")
    try:
        done = subprocess.run(["git", "-C", str(folder), *words], capture_output=True, timeout=60)
    except FileNotFoundError:
        raise GateError('require = "changed" asks git what changed, and there is no git here') from None
    except (OSError, subprocess.SubprocessError) as error:
        raise GateError(f"git {shown}: {type(error).__name__}") from None
    if done.returncode != 0:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["no common commit"]
        raise GateError(f"git {shown}: {lines[-1].removeprefix('fatal: ')}{help}")
    return done.stdout.decode(errors="surrogateescape")
