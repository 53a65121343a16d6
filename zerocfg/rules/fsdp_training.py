"""ZC6xx: FSDP together with the training arguments and the model."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
