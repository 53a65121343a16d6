"""Which rules are asked at all: importing those of the family `recipes` is a twentieth of a lint of two configs."""

from __future__ import annotations

from collections.abc import Sequence

from zerocfg.linter.ignores import directives
from zerocfg.rules import registry
from zerocfg.rules.api import Rule
from zerocfg.run.model import Run, original


def rules_for(runs: Sequence[Run]) -> Sequence[Rule]:
    """All rules, those of other packages too. Those of `recipes` only where a run may have training arguments or says
    which releases it admits, or a comment may name them."""
    named = any(directives(original(file)) for run in runs for file in run.files)
    own = registry.ALL if named or any(map(_may_have_arguments, runs)) else registry.WITHOUT_RECIPES
    return registry.with_outside(own)


def _may_have_arguments(run: Run) -> bool:
    """Without any of these nobody writes an argument, and nobody is known to read one."""
    sources = run.recipe or run.framework_recipe or run.launch or run.script or run.spec
    return bool(sources or run.consumer or run.arguments or run.flags or run.versions or run.environment)
