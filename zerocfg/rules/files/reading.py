"""ZC0xx: files that cannot be read, or that say something else than they seem to."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import WITH_ACCELERATE
from zerocfg.rules.repairs import strict_json
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.templates import has_placeholders, stops_at_placeholder
from zerocfg.source.edit import Edit, delete_duplicate
from zerocfg.source.node import Mapping, Path, Problem, Scalar, dotted, plain, walk

_UNREADABLE = frozenset(("unreadable", "encoding", "too-large", "too-deep", "alias-cycle"))
_TOLD_ELSEWHERE = frozenset(("duplicate-key", "hjson-only", "readers-differ", "non-string-key", "empty"))
_SCIENTIFIC = re.compile(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+")
_WORDS = frozenset(("no", "off", "yes", "on"))


def _configs(run: Run) -> list[SourceFile]:
    found = (run.accelerate, run.deepspeed, run.recipe, run.framework_recipe, run.spec)
    return [file for file in found if file is not None]


def _problems(run: Run, kinds: frozenset[str] | set[str]) -> Iterator[tuple[SourceFile, Problem]]:
    for file in _configs(run):
        if file.document is not None:
            for problem in file.document.problems:
                if problem.kind in kinds:
                    yield file, problem


def _where(file: SourceFile, problem: Problem) -> Location:
    return Location(file, problem.path, span=problem.span)


@rule("ZC001", "unreadable-file", Severity.ERROR)
def unreadable_file(run: Run) -> Iterator[Finding]:
    for file, problem in _problems(run, _UNREADABLE):
        yield Finding(_where(file, problem), f"{file.name} cannot be read: {problem.message}")


@rule("ZC002", "syntax-error", Severity.ERROR)
def syntax_error(run: Run) -> Iterator[Finding]:
    for file in _configs(run):
        if file.document is None:
            continue
        for problem in file.document.problems:
            if problem.fatal and problem.kind not in _UNREADABLE and problem.kind not in _TOLD_ELSEWHERE:
                if run.launch is None and run.spec is None and stops_at_placeholder(file.document, problem.span.start):
                    continue  # a template; what it is shows when it is filled in
                kind = "JSON" if file.document.format == "json" else "YAML"
                yield Finding(
                    _where(file, problem), f"{file.name} is not valid {kind}: {problem.why or problem.message}"
                )


@rule("ZC003", "duplicate-key", Severity.ERROR)
def duplicate_key(run: Run) -> Iterator[Finding]:
    for file, problem in _problems(run, {"duplicate-key"}):
        if file is run.framework_recipe:
            continue  # some of the frameworks refuse it, some take the last
        related = (
            [Location(file, problem.path, span=problem.related, label="first written here")] if problem.related else []
        )
        severity = None
        if file.document is not None and file.document.format == "json":
            what = "DeepSpeed refuses the file, accelerate and transformers silently take this one"
        elif _alike(file, problem.path):
            what, severity = "both say the same", Severity.NOTE
        else:
            what = "this one silently replaces the first"
        yield Finding(
            _where(file, problem),
            f"'{dotted(problem.path)}' is written twice; {what}",
            "remove one of the two",
            related,
            _without_earlier(run, file, problem),
            severity,
        )


def _alike(file: SourceFile, path: Path) -> bool:
    """Whether a key that is written twice has the same value each time."""
    holder = file.document.get(path[:-1]) if file.document is not None else None
    if not isinstance(holder, Mapping):
        return False
    values = [plain(entry.value) for entry in holder.entries if entry.key == path[-1]]
    return len(values) > 1 and all(value == values[0] for value in values)


def _without_earlier(run: Run, file: SourceFile, problem: Problem) -> Fix | None:
    """The one that counts is left. Both may be the same, then nothing is chosen either."""
    document, earlier = file.document, problem.related
    if document is None or earlier is None or document.root is None:
        return None
    try:
        edits = delete_duplicate(document, problem.path, earlier)
    except ValueError:
        return None
    judged = document.format == "yaml" or run.consumer in WITH_ACCELERATE
    return Fix("remove the earlier one", tuple((file, edit) for edit in edits), safe=judged)


@rule("ZC004", "json-not-strict", Severity.ERROR)
def json_not_strict(run: Run) -> Iterator[Finding]:
    if run.consumer == "deepspeed":
        return
    severity = None if run.consumer else Severity.WARNING
    for file in _configs(run):
        if file.document is None or file.document.format != "json":
            continue
        found = [problem for problem in file.document.problems if problem.kind == "hjson-only"]
        if found and not has_placeholders(file.document):
            more = f" ({len(found)} such places)" if len(found) > 1 else ""
            yield Finding(
                _where(file, found[0]),
                f"{file.name} is not strict JSON{more}: {found[0].message}",
                "write strict JSON, unless DeepSpeed alone reads this file",
                fix=strict_json(file, found),
                severity=severity,
            )


_DEEPEST_READ = 2
"""`deepspeed_config.gradient_clipping`: accelerate has no sections within its sections, and reads nothing there."""


@rule("ZC005", "number-read-as-string", Severity.WARNING)
def number_read_as_string(run: Run) -> Iterator[Finding]:
    for file in (run.accelerate, run.recipe):
        if file is None or file.document is None or file.document.format != "yaml" or file.document.root is None:
            continue
        if file is run.recipe and run.recipe_reader == "trl":
            continue
        for path, node, _ in walk(file.document.root):
            if not isinstance(node, Scalar) or node.quoted or not isinstance(node.value, str):
                continue
            if not _SCIENTIFIC.fullmatch(node.raw) or (file is run.accelerate and len(path) > _DEEPEST_READ):
                continue
            severity = None
            help_text = f"write {_with_dot(node.raw)}"
            certain = True
            if file is run.recipe:
                certain = run.recipe_reader == "hf" and _numeric(path)
                severity = Severity.ERROR if certain else Severity.NOTE
            yield Finding(
                Location(file, path, "value"),
                f"`{dotted(path)}: {node.raw}` is read as the string '{node.raw}', not as a number "
                "(YAML 1.1 wants a dot and a signed exponent)",
                help_text,
                fix=Fix(help_text, ((file, Edit(node.span, _with_dot(node.raw))),)) if certain else None,
                severity=severity,
            )


def _with_dot(raw: str) -> str:
    mantissa, _, exponent = raw.lower().partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    mantissa = f"{mantissa}0" if mantissa.endswith(".") else mantissa
    return f"{mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _numeric(path: Path) -> bool:
    from zerocfg.catalog.schema import load_schema

    key = load_schema("training-arguments").root.names.get(str(path[0])) if len(path) == 1 else None
    return key is not None and any(branch.get("type") in ("number", "integer") for branch in key.scalars)


@rule("ZC006", "word-read-as-boolean", Severity.ERROR)
def word_read_as_boolean(run: Run) -> Iterator[Finding]:
    from zerocfg.catalog.schema import load_schema

    for file, name in ((run.accelerate, "accelerate"), (run.recipe, "training-arguments")):
        if file is None or file.document is None or file.document.format != "yaml" or file.document.root is None:
            continue
        schema = load_schema(name)
        for path, node, _ in walk(file.document.root):
            if not isinstance(node, Scalar) or node.quoted or not isinstance(node.value, bool):
                continue
            if node.raw.lower() not in _WORDS or any(isinstance(part, int) for part in path):
                continue
            key = schema.find(tuple(str(part) for part in path))
            if key is None or any(_takes_bool(branch) for branch in key.scalars):
                continue
            word = _meant(node.raw, key.scalars)
            stays = _false_stays_since(run, path) if file is run.accelerate and node.value is False else ""
            if word is None or stays is None:
                continue
            yield Finding(
                Location(file, path, "value"),
                f"`{dotted(path)}: {node.raw}` is read as {str(node.value).lower()}, "
                f"not as the word '{node.raw}' (YAML 1.1)",
                f"quote it: '{word}'",
                fix=Fix("quote the word", ((file, Edit(node.span, f"'{word}'")),)),
                versions=f"accelerate>={stays}" if stays else "",
            )


def _false_stays_since(run: Run, path: Path) -> str | None:
    from zerocfg.run.stages.admitted import admitted_of  # few files have such a word

    return admitted_of(run, "accelerate").false_stays_since(str(path[0])) if len(path) == 1 else ""


def _takes_bool(branch: dict[str, object]) -> bool:
    kinds = branch.get("type")
    choices = branch.get("enum")
    if isinstance(choices, list):
        return True in choices or False in choices
    return kinds == "boolean" or kinds is None or (isinstance(kinds, list) and "boolean" in kinds)


def _meant(raw: str, branches: list[dict[str, object]]) -> str | None:
    """The spelling that the key takes for a word such as NO; None when it takes no such word."""
    for branch in branches:
        choices = branch.get("enum")
        if not isinstance(choices, list):
            continue
        for choice in choices:
            if isinstance(choice, str) and choice.lower() == raw.lower():
                return choice
    return None


@rule("ZC007", "number-in-another-base", Severity.WARNING)
def number_in_another_base(run: Run) -> Iterator[Finding]:
    for file in (run.accelerate, run.recipe):
        if file is None or file.document is None or file.document.format != "yaml" or file.document.root is None:
            continue
        for path, node, _ in walk(file.document.root):
            if not isinstance(node, Scalar) or node.quoted or not isinstance(node.value, (int, float)):
                continue
            digits = node.raw.lstrip("+-")
            if isinstance(node.value, bool) or not digits[:1].isdigit():
                continue
            octal = len(digits) > 1 and digits[0] == "0" and digits[1].isdigit() and isinstance(node.value, int)
            if (octal and node.value != 0) or ":" in digits:
                yield Finding(
                    Location(file, path, "value"),
                    f"`{dotted(path)}: {node.raw}` is read as {node.value}"
                    + (" (octal)" if octal else " (base sixty)"),
                    "write the number without the leading zero, or quote it if it is a word",
                    fix=_decimal(file, node, octal),
                )


@rule("ZC008", "not-a-mapping", Severity.ERROR)
def not_a_mapping(run: Run) -> Iterator[Finding]:
    for file in (run.accelerate, run.deepspeed, run.recipe):
        if file is None or file.document is None or any(problem.fatal for problem in file.document.problems):
            continue
        data = file.document.data()
        if not isinstance(data, dict):
            what = "is empty" if data is None else "has no keys at its top level"
            # An empty file looks like no kind of config: whoever names it is shown as well.
            named = [Location(run.launch_file, span=run.launch.span)] if run.launch_file and run.launch else []
            yield Finding(Location(file), f"{file.name} {what}; a mapping of keys to values is expected", related=named)


def _decimal(file: SourceFile, node: Scalar, octal: bool) -> Fix:
    if octal:
        sign = node.raw[0] if node.raw[0] in "+-" else ""
        return Fix("drop the zeros", ((file, Edit(node.span, sign + node.raw.lstrip("+-").lstrip("0"))),), safe=False)
    return Fix("quote it", ((file, Edit(node.span, f'"{node.raw}"')),), safe=False)
