"""ZC4xx: checkpoints: what is written, and whether it can be loaded again."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
