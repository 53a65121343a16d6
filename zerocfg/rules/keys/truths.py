"""ZC1xx: values that are taken and count as something else."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.check import refusal
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import OFF_WORDS, show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.key import Key, accelerate
from zerocfg.run.model import Run
from zerocfg.source.node import Scalar, dotted, walk


@rule("ZC117", "boolean-for-a-number", Severity.ERROR, WHOLE_RUN)
def boolean_for_a_number(run: Run) -> Iterator[Finding]:
    file = run.deepspeed
    root = file.document.root if file is not None and file.document is not None else None
    schema = load_schema("deepspeed")
    for path, node, entry in walk(root) if root is not None else ():
        if entry is None or not isinstance(node, Scalar) or not isinstance(node.value, bool) or node.quoted:
            continue
        known = schema.find(tuple(str(part) for part in path))
        if known is None or known.facts.get("reads", "lax") != "lax" or "removed" in known.facts:
            continue
        kinds = {str(branch.get("type")) for branch in known.scalars}
        if not kinds or not kinds <= {"integer", "number"} or refusal(known, node.value) is not None:
            continue
        key, number = Key(run, file, path, node.value), str(int(node.value))
        yield key.finding(
            f"`{dotted(path)}: {show(node.value)}` counts as {number}",
            "write the number",
            fix=key.replace(number, f"write {number}"),
            where="value",
        )


@rule("ZC118", "quoted-false-is-true", Severity.ERROR, WHOLE_RUN)
def quoted_false_is_true(run: Run) -> Iterator[Finding]:
    for name in ("debug", "tpu_use_cluster", "fp16"):
        key = accelerate(run, name)
        if isinstance(key.value, str) and key.value.strip().lower() in (*OFF_WORDS, "none", "null"):
            yield key.finding(
                f"`{name}: {show(key.value)}` is a text, which counts as true",
                "write false without quotes",
                fix=key.replace("false", "write false"),
                where="value",
            )
