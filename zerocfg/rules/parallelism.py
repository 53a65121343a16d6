"""ZC6xx: tensor, context and sequence parallelism, and Megatron."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
