"""The text of a first ``zerocfg.yaml``, and its summary for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zerocfg.resolve.init.draft import Draft

ORDER = (
    "consumer",
    "script",
    "launch",
    "arguments",
    "model",
    "recipe",
    "accelerate",
    "deepspeed",
    "engine",
    "launcher",
    "hardware",
    "sequence_length",
    "train_samples",
    "goals",
)
_HEAD = """\
# Written by `zerocfg init`. The comments say where each value comes from; check what is guessed.
# Then: zerocfg lint, zerocfg plan zerocfg.yaml, zerocfg build zerocfg.yaml -o out
"""


def spec_text(drafts: Iterable[Draft]) -> str:
    """The text of a zerocfg.yaml; unknown values are written as comments."""
    text = f"{_HEAD}version: 1\nruns:\n"
    for draft in drafts:
        text += f"  {_scalar(draft.name)}:\n"
        rows = []
        for key in ORDER:
            guess = draft.guesses.get(key)
            if guess is None:
                continue
            line = f"# {key}: {guess.example}" if guess.value is None else f"{key}: {_scalar(guess.value)}"
            rows.append((line, "" if guess.how == "given" else f"# {guess.how}: {_one_line(guess.note)}"))
        width = min(44, max(len(line) for line, _ in rows))
        text += "".join(f"    {line:<{width}}  {comment}".rstrip() + "\n" for line, comment in rows)
        text += "".join(f"    # {_one_line(remark)}\n" for remark in draft.remarks)
    return text


def summary(drafts: Iterable[Draft]) -> list[str]:
    """What was guessed and what is open, a line each, for the terminal."""
    lines = []
    for draft in drafts:
        lines.append(f"{draft.name}: {draft.value('consumer')}, {draft.value('script')}")
        for key in ORDER:
            guess = draft.guesses.get(key)
            if guess is not None and guess.how in ("guessed", "open"):
                shown = "" if guess.value is None else f" {_scalar(guess.value)}"
                lines.append(f"  {guess.how} {key}:{shown} ({_one_line(guess.note)})")
        lines += [f"  note: {_one_line(remark)}" for remark in draft.remarks]
    return lines


def _scalar(value: Any) -> str:
    """A value as YAML on one line."""
    text = yaml.safe_dump(value, default_flow_style=True, width=10**9, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()


def _one_line(text: str) -> str:
    return " ".join(text.split())
