"""Configs in which one key has a wrong value: every key of the schemas, values of every type, every command.

The files are an example's, so that a command gets as far as it ever does: to the figures of a plan and the page of a
report.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, cast

import yaml

from tests.fuzz.artefacts import example
from tests.fuzz.campaign import Campaign, Input
from tests.fuzz.command import zerocfg
from tests.resume.test_folders import zero
from zerocfg.catalog.schema import Schema, Section, load_schema

VALUES: tuple[Any, ...] = (
    0, -1, 5, 0.5, 1e-10, 10**30, 1e300, float("nan"), float("inf"), True, None, "", "auto", "none", "fp9", "é" * 50,
    [], [1], {}, {"a": 1}, [[{"a": None}]], 10**400, -(10**400), "7" * 4301, "\uff11\uff12", "\u00b2", "1_000", "nan",
    "inf", "-1e999", "MANY_DIGITS",
)  # fmt: skip
MANY_DIGITS = {".json": b"7" * 4301, ".yaml": b"0x" + b"f" * 4000}
"""A number that no Python reads from decimal digits; YAML makes an integer of it that has no text."""
Names = tuple[str, ...]

FORMATS = {"ds_config.json": ("deepspeed",), "accelerate.yaml": ("accelerate",), "recipe.yaml": ("trl",)}
"""The schemas of the files of the examples."""
EXAMPLES = (
    "quickstart", "zero2-cpu-offload", "zero3-nvme", "pretrain-zero1", "deepspeed-loop", "accelerate-loop", "fsdp",
    "ddp", "moe", "lora", "sft-zero2", "goals",
)  # fmt: skip


@cache
def keys(schema: str) -> tuple[Names, ...]:
    """The path of every key of a schema, sections included; below ``params`` those of every type."""
    loaded = load_schema(schema)
    return tuple(dict.fromkeys(_keys(loaded.root, loaded, ())))


def _keys(section: Section, schema: Schema, above: Names) -> Iterator[Names]:
    for name, key in section.keys.items():
        path = (*above, name)
        yield path
        cases = key.facts.get("variants", {}).get("cases", {})
        inner = [schema.section(schema.deref({"$ref": reference})) for reference in cases.values()]
        for below in (key.section(schema), *inner):
            if below is not None and len(path) < 4:  # a section may hold itself
                yield from _keys(below, schema, path)


def with_value(data: Any, path: Names, value: object) -> Any:
    """The data with a value at a path; sections above it are made."""
    section = data if isinstance(data, dict) else {}
    above = section
    for name in path[:-1]:
        if not isinstance(above.get(name), dict):
            above[name] = {}
        above = above[name]
    above[path[-1]] = value
    return section


def _wrong(random: Random) -> Input:
    files = {name: data for name, data in example(random.choice(EXAMPLES)).items() if not name.startswith("built/")}
    name = random.choice([name for name in FORMATS if name in files])
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        path, value = random.choice(keys(random.choice(FORMATS[name]))), random.choice(VALUES)
        files[name] = written(name, with_value(read(name, files[name]), path, value))
    return files


def read(name: str, text: bytes) -> Any:
    text = text.replace(MANY_DIGITS[Path(name).suffix], b'"MANY_DIGITS"')
    return json.loads(text) if name.endswith(".json") else yaml.safe_load(text)


def written(name: str, data: Any) -> bytes:
    if name.endswith(".json"):
        text = json.dumps(data, indent=1)
    else:
        text = cast(str, yaml.safe_dump(data, sort_keys=False))
    return re.sub(b'"?MANY_DIGITS"?', MANY_DIGITS[Path(name).suffix], text.encode())


def _commands(folder: Path, random: Random) -> None:
    """What reads a config, each once; the page of a report costs as much as all the others, so it is drawn for some."""
    names = [name for name in FORMATS if (folder / name).is_file()]
    run = "zerocfg.yaml"
    zerocfg("plan", run, "--no-trace")
    zerocfg("build", run, "-o", "out")
    for name in names:
        zerocfg("explain", "--in", name)
        zerocfg("explain", "--run", name)
    zerocfg("diff", names[0], random.choice(names))
    if "accelerate.yaml" in names:
        targets = ("fsdp2", "zero2", "zero3", "deepspeed-json", "accelerate-yaml")
        zerocfg("convert", "accelerate.yaml", "--to", random.choice(targets))
    zero(folder / "checkpoint", random.choice((1, 2, 3)))
    zerocfg("check-resume", "checkpoint", run)
    zerocfg("check-resume", "checkpoint", names[0])
    zerocfg("gate", "--require", "none")
    zerocfg("migrate", "--to", "deepspeed==0.16.9", names[0])
    if random.random() < 0.25:
        zerocfg("report", random.choice((run, names[0])), "-o", "page.html", "--no-trace")


WRONG_VALUES = Campaign("wrong-values", 200, 10_000, _wrong, _commands, measured=False)
