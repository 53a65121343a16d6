"""ZC005 to ZC007: unquoted words of a YAML file that YAML 1.1 takes for something else than they look like."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.failures import failures
from zerocfg.rules.issues import issues, scientific_text
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.source.edit import Edit
from zerocfg.source.node import Path, Scalar, dotted, walk

_WORDS = frozenset(("no", "off", "yes", "on"))


def _words_of(*files: SourceFile | None) -> Iterator[tuple[SourceFile, Path, Scalar]]:
    """The values of YAML files that YAML 1.1 may take for something else than they look like."""
    for file in files:
        if file is not None:
            for path, node in _doubtful(file):
                yield file, path, node


@remembered
def _doubtful(file: SourceFile) -> tuple[tuple[Path, Scalar], ...]:
    document = file.document
    if document is None or document.format != "yaml" or document.root is None:
        return ()
    return tuple(
        (path, node)
        for path, node, _ in walk(document.root)
        if isinstance(node, Scalar)
        and not node.quoted
        and (_is_boolean_word(node) or _is_in_another_base(node) or scientific_text(file, node) is not None)
    )


def _is_boolean_word(node: Scalar) -> bool:
    return isinstance(node.value, bool) and node.raw.lower() in _WORDS


def _is_in_another_base(node: Scalar) -> bool:
    if isinstance(node.value, bool) or not isinstance(node.value, (int, float)):
        return False
    digits = node.raw.lstrip("+-")
    return digits[:1].isdigit() and (_is_octal(node) or ":" in digits)


def _is_octal(node: Scalar) -> bool:
    digits = node.raw.lstrip("+-")
    return digits[:1] == "0" and digits[1:2].isdigit() and isinstance(node.value, int) and node.value != 0


_DEEPEST_READ = 2
"""`deepspeed_config.gradient_clipping`: accelerate has no sections within its sections, and reads nothing there."""


@rule("ZC005", "number-read-as-string", Severity.WARNING, WHOLE_RUN)
def number_read_as_string(run: Run) -> Iterator[Finding]:
    recipe = None if run.recipe_reader == "trl" else run.recipe
    for file, path, node in _words_of(run.accelerate, recipe):
        if scientific_text(file, node) is None:
            continue
        if file is run.accelerate and (len(path) > _DEEPEST_READ or path in _judged(run, file)):
            continue
        severity, certain = None, True
        if file is run.recipe:
            certain = run.recipe_reader == "hf" and _numeric(path)
            severity = Severity.ERROR if certain else Severity.NOTE
        number = _with_dot(node.raw)
        yield Finding(
            Location(file, path, "value"),
            f"`{dotted(path)}: {node.raw}` is read as the string '{node.raw}', not as a number "
            "(YAML 1.1 wants a dot and a signed exponent)",
            f"write {number}",
            fix=Fix(f"write {number}", ((file, Edit(node.span, number)),)) if certain else None,
            severity=severity,
        )


def _judged(run: Run, file: SourceFile) -> set[Path]:
    """Where another rule says what comes of the key or its value, and what to write: one mistake, one finding."""
    of_key = ("unknown-crash", "unknown-ignored", "removed")
    found = {key.path for key in issues(run, *of_key, "type", "raw-type", "choice", "range") if key.file is file}
    every = [*failures(run, "ZC104"), *failures(run, "ZC106")]
    return found | {place.path for failure in every for place in failure.places if place.file is file}


def _with_dot(raw: str) -> str:
    mantissa, _, exponent = raw.lower().partition("e")
    mantissa = mantissa if "." in mantissa else f"{mantissa}.0"
    mantissa = f"{mantissa}0" if mantissa.endswith(".") else mantissa
    return f"{mantissa}e{exponent if exponent[0] in '+-' else '+' + exponent}"


def _numeric(path: Path) -> bool:
    key = load_schema("training-arguments").root.names.get(str(path[0])) if len(path) == 1 else None
    return key is not None and any(branch.get("type") in ("number", "integer") for branch in key.scalars)


@rule("ZC006", "word-read-as-boolean", Severity.ERROR, WHOLE_RUN)
def word_read_as_boolean(run: Run) -> Iterator[Finding]:
    for file, path, node in _words_of(run.accelerate, run.recipe):
        if not _is_boolean_word(node):
            continue
        if any(isinstance(part, int) for part in path):
            continue
        key = load_schema("accelerate" if file is run.accelerate else "training-arguments").find(tuple(map(str, path)))
        if key is None or any(_takes_bool(branch) for branch in key.scalars):
            continue
        word = _meant(node.raw, key.scalars)
        stays = _false_stays_since(run, path) if file is run.accelerate and node.value is False else ""
        if word is not None and stays is not None:
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


def _takes_bool(branch: Mapping[str, Any]) -> bool:
    if "enum" in branch:
        return True in branch["enum"] or False in branch["enum"]
    kinds = branch.get("type", "boolean")
    return kinds == "boolean" or (isinstance(kinds, list) and "boolean" in kinds)


def _meant(raw: str, branches: Iterable[Mapping[str, Any]]) -> str | None:
    """The spelling that the key takes for a word such as NO; None when it takes no such word."""
    choices = (choice for branch in branches for choice in branch.get("enum", ()) if isinstance(choice, str))
    return next((choice for choice in choices if choice.lower() == raw.lower()), None)


@rule("ZC007", "number-in-another-base", Severity.WARNING, WHOLE_RUN)
def number_in_another_base(run: Run) -> Iterator[Finding]:
    for file, path, node in _words_of(run.accelerate, run.recipe):
        if not _is_in_another_base(node):
            continue
        why, text, octal = "quote it", f'"{node.raw}"', _is_octal(node)
        if octal:
            digits = node.raw.lstrip("+-")
            why, text = "drop the zeros", node.raw[: -len(digits)] + digits.lstrip("0")
        yield Finding(
            Location(file, path, "value"),
            f"`{dotted(path)}: {node.raw}` is read as {node.value} ({'octal' if octal else 'base sixty'})",
            "write the number without the leading zero, or quote it if it is a word",
            fix=Fix(why, ((file, Edit(node.span, text)),), safe=False),
        )
