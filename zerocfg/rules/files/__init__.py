"""ZC0xx: what the text of a file does to its reader."""

from __future__ import annotations

from zerocfg.rules.files import ignores, misread, reading, yaml_words
