"""The section of an accelerate config that is about DeepSpeed."""

from __future__ import annotations

from functools import cache

from zerocfg.catalog.schema import Section, load_schema

SECTION, POINTER, PRECISION = "deepspeed_config", "deepspeed_config_file", "mixed_precision"
PRECISIONS = ("fp16", "bf16")
"""Words of ``mixed_precision`` that are sections of DeepSpeed's config."""


@cache
def section() -> Section:
    """Its keys."""
    schema = load_schema("accelerate")
    found = schema.root.keys[SECTION].section(schema)
    assert found is not None
    return found
