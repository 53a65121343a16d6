"""Secrets in what is shown: tokens, keys and passwords on command lines, in configs, in the lines around a finding."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zerocfg.patterns import pattern
from zerocfg.record import record

MASK = "***"
_SHAPES = (
    r"hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{30,}|github_pat_\w{30,}|glpat-[\w-]{20,}|sk-[\w-]{20,}"
    r"|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}"
)
"""Of Hugging Face, GitHub, GitLab, OpenAI, Amazon and Slack, as those who issue them publish their prefixes."""
_NAMES = (
    "token|api[-_]?key|secret|secret[-_]key|access[-_]key|private[-_]key|password|passwd|auth|authorization|credential"
)
_NAMED = rf"(?i:{_NAMES})[\"']?(?:[ \t]*[:=][ \t]*|[ \t]+)[\"']?"
_LONG = r"(?=[\w.+/-]*\d)(?=[\w.+/-]*[A-Za-z])[\w.+/-]{16,}"
"""What is made by chance: at least 16 characters, letters and digits among them. A word that a person chose for a token
of the model (``eos_token: <|im_end|>``) is none."""
_SECRET = pattern(rf"\b(?:{_SHAPES})|(?P<name>{_NAMED})(?P<value>{_LONG})")


_SHORTEST = 15
"""Characters of the shortest of them, which is one of Slack."""


def masked(text: str) -> str:
    """The text with each secret replaced by ``***``; names stay."""
    if all(len(word) < _SHORTEST for word in text.split()):
        return text  # compiling that takes half a millisecond
    return _SECRET.sub(lambda found: f"{found['name'] or ''}{MASK}", text)


@record(frozen=True, slots=True)
class SecretWord:
    """A secret among the words of a command. ``before``: what stands in front of it in its word (``--hub_token=``);
    ``variable``: a name for the variable that may hold it instead."""

    before: str
    variable: str


def secret_words(words: Sequence[str]) -> dict[int, SecretWord]:
    """The secrets among the words of a command, by their index."""
    found: dict[int, SecretWord] = {}
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not (equals and name.startswith("-")):
            name, equals, value = (words[index - 1] if index else ""), "", word
        named = name if name.startswith("-") and (equals or "=" not in name) else ""  # else it has a value of its own
        if masked(value) != value or masked(f"{named} {value}") != f"{named} {value}":
            variable = re.sub(r"\W+", "_", named.lstrip("-")).upper()
            fits = re.fullmatch(r"[A-Z]\w*", variable) is not None
            found[index] = SecretWord(f"{name}=" if equals else "", variable if fits else "SECRET")
    return found


def masked_words(words: Sequence[str]) -> list[str]:
    """The words with ``***`` in the place of each secret."""
    secrets = secret_words(words)
    return [f"{secrets[index].before}{MASK}" if index in secrets else word for index, word in enumerate(words)]
