"""What an executed proof would still hold of if the claim were false: its weaknesses, by kind.

Pure functions over the proofs and the texts of the examples; no library is asked. Where a claim is as weak as one of
these kinds and nothing stronger can be seen, its proof says in ``extent`` exactly what was shown, for the rule's page.
"""

from __future__ import annotations

import builtins
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import yaml

from tests.proofs.claims import same
from zerocfg.rulebook.proof import Between, Printed
from zerocfg.rules.api import Severity

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.rulebook.example import Example
    from zerocfg.rulebook.pages import Page
    from zerocfg.rulebook.proof import Proof

Kind = Literal["indistinct", "empty pattern", "bare error", "echo", "rate", "needless extent"]
"""indistinct: no value that one of the examples must have is forbidden to the other. empty pattern: one that every log
has. bare error: no word of the library's own, so that any error of the type would do. echo: what is seen is what
was written, or the default where nothing was. rate: bytes a parameter, measured with a tiny model, for a job that is
said to end. needless extent: a strong proof that excuses itself."""

Leaves = dict[tuple[str, ...], Any]
"""Values of an example's files by place, all scalars as they are spelled."""

SMALL = re.compile(r"-?\d(\.0)?|True|False|true|false|no|None|<absent>|(b?float|fp|bf)(16|32)")
"""Values that are written in every file and ask for nothing in particular."""

DESCRIPTIONS = ("zerocfg.yaml", "node.json", "config.json", "model/config.json")
"""Files that say what a run has, and not what it is to do."""

LIVE = {
    "model.checkpointing",
    "threads",
    *(
        f"engine.{name}"
        for name in (
            "kind stage wrapper world_size processes scheduler batch rows global_step loss learning_rate waits "
            "gathered sent units share autocast"
        ).split()
    ),
}
"""What the engine is or did, whatever the files say of it; all other names may hold a setting that nobody acts upon."""

IDLE = {"step.clipped", "engine.own_data_loader", "engine.activation_checkpointing", "memory.pinned"}
"""What shows that a setting does nothing, beside ``uses``: the claim is that it is not seen."""

DTYPES = ({"fp16", "float16", "half"}, {"bf16", "bfloat16"}, {"fp32", "float32", "float", "no"})


@dataclass(frozen=True)
class Weakness:
    code: str
    kind: Kind
    text: str


def weaknesses(page: Page, severity: Severity) -> Iterator[Weakness]:
    """Of the rule's own proof and those of its examples."""
    excused: dict[str, bool] = {}  # extent: whether a weakness needs it
    for proof, bad, good in cases(page):
        for weakness in _weak(page, severity, proof, bad, good):
            if proof.extent and weakness.kind in ("echo", "rate"):
                excused[proof.extent] = True
            else:
                yield weakness
        if proof.extent:
            excused.setdefault(proof.extent, False)
    yield from (Weakness(page.code, "needless extent", extent) for extent, needed in excused.items() if not needed)


def cases(page: Page) -> Iterator[tuple[Proof, Example, Example]]:
    """Each executed proof with a bad example and a good one that it speaks of, its own where there is one."""
    for bad in page.bad:
        proof = bad.proof or page.proof
        if proof.status == "executed":
            own = [good for good in page.good if (good.proof or page.proof) == proof]
            yield proof, bad, (own or page.good)[0]


def _weak(page: Page, severity: Severity, proof: Proof, bad: Example, good: Example) -> Iterator[Weakness]:
    for name, values in proof.shows.items():
        for value in values:
            if isinstance(value, Printed) and re.search(value.pattern, ""):
                yield Weakness(page.code, "empty pattern", f"{value.pattern!r} is found in every log")
            elif name == "log" and not isinstance(value, Printed):
                yield Weakness(page.code, "empty pattern", f"{value!r} says nothing about the whole log")
    if not distinguishes(proof):
        yield Weakness(page.code, "indistinct", f"both examples may show {proof.shows}")
    elif proof.raises is not None:
        known = " ".join(bad.files.values())
        for words in alternatives(proof.raises):
            if not proof.within and not own_words(words, known):
                yield Weakness(page.code, "bare error", f"{words!r} has no word of the library's message")
    else:
        telling = {name for name, values in proof.shows.items() if _tells(name, values, bad, good)}
        if not telling:
            yield Weakness(page.code, "echo", f"{proof.shows} is what the files say")
        elif severity is Severity.ERROR and all(name.endswith(".bytes_per_parameter") for name in telling):
            yield Weakness(page.code, "rate", f"{proof.shows} does not end a job")


# --- telling good from bad ------------------------------------------------------------------------------------


def distinguishes(proof: Proof) -> bool:
    """Whether nothing that was seen can be what is claimed of the bad example and of the good one."""
    return proof.raises is not None or any(exclusive(bad, good) for bad, good in proof.shows.values())


def exclusive(one: Any, other: Any) -> bool:
    """Whether no value meets both expectations."""
    if isinstance(one, Printed) and isinstance(other, Printed):
        return one.pattern == other.pattern and exclusive(one.times, other.times)
    if isinstance(one, Between) and isinstance(other, Between):
        return one.high < other.low or other.high < one.low
    if isinstance(other, (Between, Printed)):
        return not same(one, other)
    return not same(other, one)


# --- errors ---------------------------------------------------------------------------------------------------


def alternatives(expression: str) -> list[str]:
    """The parts of a regular expression between the bars that stand in no group."""
    found, depth = [""], 0
    for token in re.findall(r"\\.|.", expression, re.DOTALL):
        depth += (token == "(") - (token == ")")
        if token == "|" and depth == 0:
            found.append("")
        else:
            found[-1] += token
    return found


def own_words(expression: str, known: str) -> list[str]:
    """Words of a regular expression that are neither Python's names of types nor in the text ``known``."""
    words = re.findall(r"[A-Za-z_]\w+", re.sub(r"\\[AZbBdDsSwW]", " ", expression))
    return [word for word in words if not _type(word) and not re.search(rf"(?<!\w){word}(?!\w)", known)]


def _type(word: str) -> bool:
    return word in ("NoneType", "object") or isinstance(getattr(builtins, word, None), type) or word.endswith("Error")


# --- echoes ---------------------------------------------------------------------------------------------------


def _tells(name: str, values: tuple[Any, Any], bad: Example, good: Example) -> bool:
    """Whether these values show more than what the files of the two examples say."""
    if (name.startswith("uses.") or name in IDLE) and values[0] == 0:
        return True
    return exclusive(*values) and (name in LIVE or not echoes(name, values, leaves(bad), leaves(good)))


def echoes(name: str, values: tuple[Any, Any], bad: Leaves, good: Leaves) -> bool:
    """Whether a place of the files differs as the values do; where nothing is written, the default stands.

    It is no echo when the bad example asks for the good value in vain. A variable that the launch line sets is always
    one.
    """
    if any(leaf[1:] == (name.removeprefix("env."),) for leaf in (*bad, *good) if name.startswith("env.")):
        return True
    asking = [place for place, text in bad.items() if spells(place, text, values[1])]
    for place in bad.keys() | good.keys():
        before, after = bad.get(place), good.get(place)
        if (
            before != after
            and all(
                text is None or spells(place, text, value) for text, value in zip((before, after), values, strict=True)
            )
            and not any(_asks(other, name, place, values[1]) for other in asking)
        ):
            return True
    return False


def _asks(other: tuple[str, ...], name: str, place: tuple[str, ...], value: Any) -> bool:
    """Whether ``value``, written at ``other``, was meant for ``name``: by its key, or because few things have it."""
    key = other[-1].lower().lstrip("-")
    return other[-1] == place[-1] or key in name.lower() or SMALL.fullmatch(str(value)) is None


def spells(place: tuple[str, ...], written: Any, value: Any) -> bool:
    """Whether ``written`` at ``place`` says ``value``: ``fp16: true`` and ``"dtype": "fp16"`` both say float16."""
    if isinstance(value, (dict, list, tuple)):
        return bool(written == _spelled(value))
    if not isinstance(written, str) or isinstance(value, Between):
        return False
    said = {written, *(place[-2:] if written.lower() == "true" else ())}
    if isinstance(value, bool) or value is None:
        return written.lower() == str(value).lower()
    if isinstance(value, (int, float)):
        return _number(written) == value
    said |= {word for names in DTYPES if said & names for word in names}
    return str(value).lower() in {word.lower() for word in said}


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _spelled(value: Any) -> Any:
    """A value as the leaves have it."""
    if isinstance(value, dict):
        return {key: _spelled(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_spelled(item) for item in value]
    return str(value).lower() if isinstance(value, bool) else str(value)


def leaves(example: Example) -> Leaves:
    """What the files of an example set: keys with their sections, options and variables of the launch line."""
    found: Leaves = {}
    for name, text in example.files.items():
        if name in DESCRIPTIONS:
            continue
        if name.endswith(".sh"):
            found.update(((name, option), value) for option, value in _options(text))
        elif name.endswith((".yaml", ".json")):
            try:
                content = yaml.load(text, yaml.BaseLoader)  # which leaves all scalars as they are spelled
            except yaml.YAMLError:  # broken on purpose: its proof is an error
                continue
            found.update(_below((name,), content))
    return found


def _below(place: tuple[str, ...], content: Any) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield place, content
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _below((*place, str(key)), value)


def _options(text: str) -> Iterator[tuple[str, str]]:
    """``NAME=value``, ``--option=value`` and ``--option value``; "true" for an option without a value."""
    words = shlex.split(text.replace("\\\n", " "), comments=True)
    for word, following in zip(words, [*words[1:], "-"], strict=True):
        option, equals, value = word.partition("=")
        if equals:
            yield option, value
        elif word.startswith("-"):
            yield word, "true" if following.startswith("-") else following
