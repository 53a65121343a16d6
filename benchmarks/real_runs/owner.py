"""What the owner of a repository would answer to the questions of a first spec, the same for every repository."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zerocfg.catalog.fields import kind
from zerocfg.catalog.versions import release
from zerocfg.resolve.init.draft import Guess
from zerocfg.run.config import VERSIONS

if TYPE_CHECKING:
    from zerocfg.resolve.init.draft import Draft

CARD = "A100-80GB"
MODEL = {
    "parameters": 1_100_048_384,
    "hidden_size": 2048,
    "num_hidden_layers": 22,
    "num_attention_heads": 32,
    "vocab_size": 32_000,
}
"""Where no file tells the model: the sizes of TinyLlama, which trains on one card without any sharding."""
OPEN = {"sequence_length": 2048, "train_samples": 50_000}
OLDER = {"transformers": "4.44.2", "trl": "0.9.6", "accelerate": "0.33.0", "deepspeed": "0.14.4"}
"""Releases of August 2024, for a repository that states none and that the newest ones refuse."""
ANSWERS = (
    f"which accelerators: as many {CARD} as the line asks for, eight where it asks for none, one for a line of plain "
    f"python; which model: {MODEL['parameters'] / 1e9:.1f}e9 parameters; "
    f"{', '.join(f'{name}: {value}' for name, value in OPEN.items())}; a variable that only the running shell knows: 1 "
    "where the argument is a number, else its name; which releases, where the repository states none and the newest "
    f"ones refuse the run: {', '.join(f'{name} {value}' for name, value in OLDER.items())}"
)

_ASKED = re.compile(r"\b(\d+x)?\d+x(?=A100-80GB)")
_VARIABLE = re.compile(r"\$\{?(\w+)[^}\s/\"']*\}?|\$\(.*?\)|`[^`]*`")


def answered(draft: Draft, *, plain: bool) -> None:
    """Fills in what a draft leaves open or guesses of the machine. ``plain``: its line starts one process."""
    guesses = draft.guesses
    hardware = guesses["hardware"]
    if hardware.how != "found":
        asked = _ASKED.search(hardware.example or hardware.note)
        count = "1x" if plain else asked[0] if asked else "8x"
        guesses["hardware"] = _answer("hardware", f"{count}{CARD}")
    if draft.value("model") is None:
        guesses["model"] = _answer("model", MODEL)
    for name, value in OPEN.items():
        if name in guesses and draft.value(name) is None:
            guesses[name] = _answer(name, value)
    if "arguments" in guesses:
        guesses["arguments"] = _answer("arguments", _words(list(guesses["arguments"].value)))


def _words(words: list[str]) -> list[str]:
    found: list[str] = []
    for index, word in enumerate(words):
        name, equals, value = word.partition("=")
        if not _VARIABLE.search(word):
            found.append(word)
        elif name.startswith("-") and equals:
            found.append(f"{name}={_value(name, value)}")
        elif index and words[index - 1].startswith("-") and "=" not in words[index - 1]:
            found.append(_value(words[index - 1], word))
        # Else nobody knows which words the variable holds: the owner has none to add.
    return found


def _value(option: str, text: str) -> str:
    number = kind(option.lstrip("-").replace("-", "_"), release(VERSIONS["transformers"])) in ("int", "float")
    return "1" if number else _VARIABLE.sub(lambda one: one[1] or "output", text).strip("\"'")


def _answer(name: str, value: Any) -> Guess:
    return Guess(name, value, "given", "the owner's answer")
