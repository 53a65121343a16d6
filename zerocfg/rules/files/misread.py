"""ZC0xx: texts of a config that its reader takes for something else, and nobody replaces."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.issues import PYTHON_WORDS, issues, python_word
from zerocfg.rules.key import from_origin
from zerocfg.run.model import Run
from zerocfg.run.templates import has_placeholders, is_template, placeholder, placeholder_in
from zerocfg.source.edit import Edit
from zerocfg.source.node import Path, Scalar, dotted, walk
from zerocfg.source.text import Span


@rule("ZC009", "python-word-in-json", Severity.ERROR, WHOLE_RUN)
def python_word_in_json(run: Run) -> Iterator[Finding]:
    file = run.deepspeed
    if file is None or file.document is None or file.document.root is None:
        return
    for path, node, _ in walk(file.document.root):
        word = python_word(run, file, node)
        if word is None or not isinstance(node, Scalar):
            continue
        right = PYTHON_WORDS[word]
        span = Span(node.span.start, node.span.start + len(word))
        alone = node.value == word  # and has not swallowed what follows
        harmless = alone and not any(key.path == path for key in issues(run, "type", "raw-type"))
        yield Finding(
            Location(file, path, "value", span=span),
            f"`{word}` is no word of JSON: `{dotted(path)}` is the text {show(node.value)}",
            f"write {right}",
            fix=Fix(f"write {right}", ((file, Edit(span, right)),)),
            severity=Severity.NOTE if harmless else None,
        )


@rule("ZC012", "number-that-json-lacks", Severity.ERROR, WHOLE_RUN)
def number_that_json_lacks(run: Run) -> Iterator[Finding]:
    file = run.deepspeed
    if file is None or file.document is None:
        return
    severity = None if run.consumer == "deepspeed" else Severity.NOTE if run.consumer else Severity.WARNING
    for problem in file.document.problems:
        if problem.kind == "readers-differ":
            yield Finding(
                Location(file, problem.path, span=problem.span),
                f"`{dotted(problem.path)}`: {problem.message}",
                "write a number that JSON has",
                severity=severity,
            )


@rule("ZC013", "placeholder-not-filled", Severity.ERROR, WHOLE_RUN)
def placeholder_not_filled(run: Run) -> Iterator[Finding]:
    for file in (run.accelerate, run.deepspeed):
        document = file.document if file is not None else None
        if file is None or document is None or document.root is None or not document.editable:
            continue
        if run.launch is None and (is_template(file) or has_placeholders(document)):
            continue
        for path, node, entry in walk(document.root):
            if entry is None or not isinstance(node, Scalar) or not isinstance(node.value, str):
                continue
            # Where nobody starts a job with the file, a bare word in capitals is left to whoever fills it in.
            name = placeholder_in(node, document) if run.launch else placeholder(node.value)
            name = name or _home_folder(path, node.value)
            if name is not None and not str(path[-1]).startswith(("_", "//")):
                yield Finding(
                    Location(file, path, "value"),
                    f"`{dotted(path)}`: nothing replaces `{name}` in this file",
                    "write the value, or give it as an option of the launch line, where the shell fills it in",
                    severity=None if run.launch else Severity.WARNING,
                )


def _home_folder(path: Path, value: str) -> str | None:
    key = str(path[-1])
    return "~/" if value.startswith("~/") and key.endswith(("_path", "_file", "_hostfile", "_folder")) else None


_KINDS = {
    "accelerate": "a config of accelerate",
    "deepspeed": "a DeepSpeed config",
    "recipe": "a recipe of training arguments",
    "neighbour": "a recipe of a training framework",
}
_TAKES = {
    "accelerate": "give it to `accelerate launch --config_file`",
    "deepspeed": "give it to `--deepspeed_config_file`, or to the training script",
}


@rule("ZC014", "file-of-another-kind", Severity.ERROR, WHOLE_RUN)
def file_of_another_kind(run: Run) -> Iterator[Finding]:
    for misplaced in run.misplaced:
        file, named = misplaced.file, misplaced.named
        by = f"`{named.note}`" if named.kind == "flag" else "this key"
        yield from_origin(run, named).finding(
            f"{file.name} is {_KINDS[file.kind]}; {by} wants {_KINDS[misplaced.wanted]}",
            _TAKES.get(file.kind, "give it to the training script"),
            [Location(file)],
        )
