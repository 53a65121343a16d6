"""ZC7xx: launch lines of DeepSpeed's runner and of torchrun."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
