"""The trainer's recipe with the arguments that the plan changes, and the arguments that name it.

The user's text is kept: comments, order, quoting. Only the values of changed keys are replaced, and keys that it does
not have stand at its end.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from zerocfg.emit.values import json_value, one_line, typed, yaml_value
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.resolve.plan import Decision
from zerocfg.source.edit import apply_edits, insert_entry, replace_value
from zerocfg.source.load import Format, decode, load_as
from zerocfg.source.node import Document, Mapping, Problem
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Mapping as Changes

    from zerocfg.resolve.plan import Plan

HEADING = "# Set by zerocfg:"
REWRITTEN = "# Written anew by zerocfg: single keys of the source (anchors, several documents) cannot be replaced."


def changes_of(plan: Plan, config: str) -> dict[str, Decision]:
    """What has to differ from the recipe on disk; ``config`` is the path of the emitted DeepSpeed file.

    torchrun and the ``deepspeed`` runner tell a Trainer nothing of a DeepSpeed config, so its recipe has to.
    """
    changes = dict(plan.changes)
    if plan.consumer in ("transformers", "trl") and plan.engine == "deepspeed" and plan.launcher != "accelerate":
        reason = f"{plan.launcher} hands no config over; relative to where launch.sh changes to"
        changes["deepspeed"] = Decision(config, reason, "chosen")
    values = typed(TrainingArguments, {name: change.value for name, change in changes.items()})
    return {name: replace(change, value=values[name]) for name, change in changes.items()}


def name_of(source: Path) -> str:
    """The emitted recipe's name: scripts tell JSON from YAML by the suffix, so that stays."""
    return "recipe" + source.suffix


def arguments_of(plan: Plan, emitted: str) -> list[str]:
    """The script's arguments with the emitted recipe in the place of the user's (``recipe``, ``--config=recipe``)."""
    source = plan.inputs["recipe"].resolve()
    return [_replaced(word, plan.folder, source, emitted) for word in plan.arguments]


def is_named(plan: Plan) -> bool:
    """Whether an argument of the script names the recipe, so that another one can be handed over instead."""
    return arguments_of(plan, "\0") != plan.arguments


def _replaced(word: str, folder: Path, source: Path, emitted: str) -> str:
    option, sign, value = word.partition("=")
    if sign and option.startswith("-"):
        return f"{option}={emitted}" if _is_path(value, folder, source) else word
    return emitted if _is_path(word, folder, source) else word


def _is_path(word: str, folder: Path, source: Path) -> bool:
    try:
        return bool(word) and Path(os.path.realpath(folder / word)) == source
    except (OSError, ValueError):
        return False


def patched(data: bytes, name: str, changes: Changes[str, Decision]) -> bytes:
    """The recipe's bytes with the changes. Raises ValueError when it is no mapping, or a value is not finite."""
    source = decode(name, data)
    if isinstance(source, Problem):
        raise ValueError(source.message)
    format: Format = "json" if name.endswith(".json") else "yaml"
    document = load_as(source, format)
    before = document.data()
    if before is None:
        before = {}
    if not isinstance(before, dict) or any(problem.fatal and problem.kind != "empty" for problem in document.problems):
        raise ValueError("the recipe is not a mapping")
    wanted = {**before, **{key: decision.value for key, decision in changes.items()}}
    if not changes:
        return data
    try:
        text = _edited(document, changes)
    except ValueError:  # written with anchors, or as a complex key
        return _written(wanted, changes, format).encode()
    if _read(text, format) == wanted:
        return text.encode()
    return _written(wanted, changes, format).encode()


def _edited(document: Document, changes: Changes[str, Decision]) -> str:
    """The text after single edits; the caller checks that it says what it should."""
    own = {key for key in changes if document.entry((key,)) is not None}
    for key in changes:
        if key in own:
            document = _with_value(document, key, changes[key])
    added = {key: changes[key] for key in changes if key not in own}
    if not added:
        return document.source.text
    if document.format == "yaml" and _is_block(document):
        return _appended(document.source.text, added.items())
    for key, decision in added.items():
        value = json_value(decision.value)
        document = _reread(document, apply_edits(document.source.text, insert_entry(document, (), key, value)))
    return document.source.text


def _with_value(document: Document, key: str, decision: Decision) -> Document:
    block = document.format == "yaml" and _is_block(document)
    text = apply_edits(
        document.source.text,
        replace_value(document, (key,), yaml_value(decision.value) if block else json_value(decision.value)),
    )
    document = _reread(document, text)
    if block and decision.reason:
        # Behind the value, where nothing else stands on its line.
        node = document.get((key,))
        end = text.find("\n", node.span.end) if node else -1
        end = len(text) if end < 0 else end - text.endswith("\r", 0, end)
        if node and not text[node.span.end : end].strip():
            return _reread(document, f"{text[: node.span.end]}  # {one_line(decision.reason)}{text[end:]}")
    return document


def _is_block(document: Document) -> bool:
    root = document.root
    if root is None:
        return True
    return isinstance(root, Mapping) and document.source.text[root.span.start : root.span.start + 1] != "{"


def _appended(text: str, added: Iterable[tuple[str, Decision]]) -> str:
    end = "\r\n" if "\r\n" in text else "\n"
    lines = [text + (end if text and not text.endswith("\n") else ""), HEADING + end]
    for key, decision in added:
        reason = f"  # {one_line(decision.reason)}" if decision.reason else ""
        lines.append(f"{yaml_value(key)}: {yaml_value(decision.value)}{reason}{end}")
    return "".join(lines)


def _written(wanted: dict[str, object], changes: Changes[str, Decision], format: Format) -> str:
    """The whole recipe anew, where single edits cannot be made."""
    if format == "json":
        inside = ",\n".join(f"  {json_value(key)}: {json_value(value)}" for key, value in wanted.items())
        return "{\n" + inside + "\n}\n"
    kept = {key: value for key, value in wanted.items() if key not in changes}
    text = yaml.safe_dump(kept, allow_unicode=True, sort_keys=False, width=float("inf")) if kept else ""
    return _appended(f"{REWRITTEN}\n{text}", changes.items())


def _read(text: str, format: Format) -> object:
    return load_as(SourceText("", text), format).data()


def _reread(document: Document, text: str) -> Document:
    return load_as(SourceText(document.source.name, text), document.format)
