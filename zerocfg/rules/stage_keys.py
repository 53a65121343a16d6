"""ZC4xx: keys of ZeRO that the stage at hand never looks at."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
