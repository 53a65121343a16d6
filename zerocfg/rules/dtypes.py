"""ZC3xx: dtypes of accumulation, communication, master weights and optimizer states."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
