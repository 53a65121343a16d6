"""ZC2xx: the optimizer that the DeepSpeed config names, and what DeepSpeed makes of it."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
