"""ZC9xx: what the hardware holds: devices, accelerator memory, host memory."""

from __future__ import annotations

from zerocfg.rules.api import Rule

RULES: tuple[Rule, ...] = ()
