"""ZC9xx: memory and what the hardware holds."""

from __future__ import annotations

from zerocfg.rules.memory import buffers, capacity, limits, workload
