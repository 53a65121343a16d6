"""Which rules are asked at all: importing those of the family `recipes` is a twentieth of a lint of two configs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from zerocfg.linter.ignores import directives
from zerocfg.rules import registry
from zerocfg.rules.api import Rule
from zerocfg.run.model import Consumer, Run, original


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


class Kind(NamedTuple):
    """What decides of a run which rules are about it. ``in_parts``: the other keys of its config are not known;
    ``deepspeed``, ``accelerate``: whether it has these configs."""

    consumer: Consumer | None
    in_parts: bool
    deepspeed: bool
    accelerate: bool


def kind_of(run: Run) -> Kind:
    return Kind(run.consumer, bool(run.parts), run.deepspeed is not None, run.accelerate is not None)


def concerns(rule: Rule, kind: Kind) -> bool:
    """Whether a rule is about runs of this kind."""
    return (
        rule.concerns(kind.consumer)
        and (not kind.in_parts or rule.alone)
        and (kind.deepspeed or rule.config != "deepspeed")
        and (kind.accelerate or rule.config != "accelerate")
    )
