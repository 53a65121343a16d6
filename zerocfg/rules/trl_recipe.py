"""ZC8xx: TRL's recipes."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
