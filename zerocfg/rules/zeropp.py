"""ZC4xx: ZeRO++: hierarchical partitions and quantised communication."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
