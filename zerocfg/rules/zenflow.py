"""ZC4xx: ZenFlow."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
