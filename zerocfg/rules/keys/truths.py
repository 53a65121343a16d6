"""ZC1xx: values that are taken and count as something else."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.check import refusal
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_data
from zerocfg.rules.fixes import edited
from zerocfg.run.model import Run
from zerocfg.source.edit import replace_value
from zerocfg.source.node import Scalar, dotted, walk


@rule("ZC117", "boolean-for-a-number", Severity.ERROR)
def boolean_for_a_number(run: Run) -> Iterator[Finding]:
    file = run.deepspeed
    root = file.document.root if file is not None and file.document is not None else None
    if file is None or root is None:
        return
    schema = load_schema("deepspeed")
    for path, node, entry in walk(root):
        if entry is None or not isinstance(node, Scalar) or not isinstance(node.value, bool) or node.quoted:
            continue
        key = schema.find(tuple(str(part) for part in path))
        if key is None or key.facts.get("reads", "lax") != "lax" or "removed" in key.facts:
            continue
        kinds = {str(branch.get("type")) for branch in key.scalars}
        if not kinds or not kinds <= {"integer", "number"} or refusal(key, node.value) is not None:
            continue
        number = str(int(node.value))
        yield Finding(
            Location(file, path, "value"),
            f"`{dotted(path)}: {show(node.value)}` counts as {number}",
            "write the number",
            fix=edited(replace_value, file, path, number, why=f"write {number}"),
        )


@rule("ZC118", "quoted-false-is-true", Severity.ERROR)
def quoted_false_is_true(run: Run) -> Iterator[Finding]:
    data = accelerate_data(run)
    for name in ("debug", "tpu_use_cluster", "fp16"):
        value = data.get(name)
        if run.accelerate is None or not isinstance(value, str):
            continue
        if value.strip().lower() not in ("false", "no", "off", "0", "n", "f", "none", "null"):
            continue
        yield Finding(
            Location(run.accelerate, (name,), "value"),
            f"`{name}: {show(value)}` is a text, which counts as true",
            "write false without quotes",
            fix=edited(replace_value, run.accelerate, (name,), "false", why="write false"),
        )
