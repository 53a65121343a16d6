"""ZC1xx: keys, types and values of one key."""

from __future__ import annotations

from zerocfg.rules.keys import dropped, framework_names, names, places, truths, values
