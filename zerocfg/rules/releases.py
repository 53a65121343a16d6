"""ZC8xx: keys and defaults that differ between the releases that a project admits."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
