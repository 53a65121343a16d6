"""ZC8xx: training arguments that the Trainer refuses or reads in another way than they look."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
