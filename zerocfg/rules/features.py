"""ZC4xx: the other sections of the DeepSpeed config: compile, tensor parallelism, monitors, profilers."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
