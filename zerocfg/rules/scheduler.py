"""ZC2xx: the learning-rate schedule of the DeepSpeed config."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
