"""ZC3xx: 16 bits, 8 bits, and the dtypes of everything."""

from __future__ import annotations

from zerocfg.rules.precision import arguments, autocast, dtypes, formats, fp8, masters, scaling
