"""A rule's page: Markdown that people read, tests execute and commands show. ``docs/rules/index.md`` tells its form.

Pages are read when somebody asks for them; linting asks for none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import yaml

from zerocfg.record import record
from zerocfg.rulebook.example import LEVELS, Example, Expected
from zerocfg.rulebook.proof import Between, Printed, Proof, at_least, at_most, printed, unprinted

if TYPE_CHECKING:
    from zerocfg.rules.api import Rule

Safety = Literal["none", "safe", "unsafe", "both"]
HEADINGS = (
    "What happens",
    "Example",
    "Use instead",
    "Fix",
    "When to ignore",
    "Proof",
    "References",
)
"""The headings of a page, in their order; before the first stand the summary and why it is bad."""
COMMON = "common.md"
"""The page of the files that many examples share, each below a heading of its own."""
_TITLE = re.compile(r"# (ZC\d{3}) ([a-z0-9-]+)")
_HEADING = re.compile(r"(#{2,3}) (.+)")
_FENCE = re.compile(r"(`{3,})(\w*) ?(.*)")
_READER = re.compile(r"Read by `(\w+)`\.")
_SEEN = re.compile(r"Seen with `([a-z]+[<>=\d.,]+)`\.")
_SHARED = re.compile(r"- `([^`]+)`: \[[^\]]+\]\(common\.md#([\w-]+)\)")
_ESCAPED = re.compile(r"\\([<*\\])")
_BYTE = re.compile(r"\\udc([89a-f][0-9a-f])")


class PageError(ValueError):
    """A page is not of the form that it should have; names file and line."""


@record(frozen=True, slots=True)
class Page:
    """``why``: why it is bad. ``happens``, ``instead``, ``fix``, ``ignore``: the texts below their headings, empty
    where there is none. Texts have paragraphs, with an empty line between them."""

    code: str
    name: str
    summary: str
    why: str
    happens: str
    instead: str
    fix: str
    ignore: str
    bad: tuple[Example, ...]
    good: tuple[Example, ...]
    proof: Proof
    references: tuple[str, ...]

    @property
    def fix_safety(self) -> Safety:
        """Of the fixes that the rule offers for its bad examples."""
        kinds = {item.fix for example in self.bad for item in example.expected} - {""}
        return "both" if len(kinds) == 2 else "safe" if "safe" in kinds else "unsafe" if kinds else "none"

    @property
    def fixable(self) -> bool:
        return self.fix_safety != "none"


@record(frozen=True, slots=True)
class _Block:
    """A piece of a page: a paragraph, a list item, or a fenced block with its ``title`` and text."""

    line: int
    text: str
    fenced: bool = False
    title: str = ""


@record(frozen=True, slots=True)
class _Part:
    """What stands below a heading, up to the next one of any level."""

    level: int
    title: str
    blocks: tuple[_Block, ...]


def page_folder() -> Path:
    """Where the pages lie: inside the installed package, or in ``docs`` of a checkout."""
    inside = Path(__file__).parent / "pages"
    return inside if inside.is_dir() else Path(__file__).parents[2] / "docs" / "rules"


def page_of(rule: Rule) -> Page:
    """The page of a rule, of one of another package the text at its function. Raises `PageError` where it is not as it
    should be, OSError where there is none."""
    return _of_package(rule) if rule.package else _page(rule.code)


def _of_package(rule: Rule) -> Page:
    from inspect import cleandoc

    summary, *why = cleandoc(rule.check.__doc__ or rule.name.replace("-", " ")).split("\n\n")
    proof = Proof("cited", source=f"the package {rule.package}")
    return Page(rule.code, rule.name, " ".join(summary.split()), "\n\n".join(why), "", "", "", "", (), (), proof, ())


@cache
def _page(code: str) -> Page:
    name = f"{code}.md"
    return read_page((page_folder() / name).read_text(encoding="utf-8"), name)


@cache
def _common() -> dict[str, str]:
    """The shared files by the id of their heading."""
    parts = _parts((page_folder() / COMMON).read_text(encoding="utf-8"), COMMON)
    return {
        re.sub(r"\W+", "-", part.title.lower()): _text_of(block)
        for part in parts
        for block in part.blocks
        if block.fenced and part.level > 1
    }


def read_page(text: str, name: str) -> Page:
    """A page from its text; ``name`` is what errors call it."""
    first, *parts = _parts(text, name)
    title = _TITLE.fullmatch(f"# {first.title}")
    if title is None or not first.blocks:
        raise PageError(f"{name}:1: a page begins with `# CODE name` and a sentence that says what the rule finds")
    sections = _sections(parts, name)
    summary, *why = (_plain(block.text) for block in first.blocks)
    proof = next((_proof(block, name) for part in sections.get("Proof", ()) for block in part.blocks), None)
    if proof is None:
        raise PageError(f"{name}: no proof; `status: cited` with a source is the least")
    return Page(
        code=title[1],
        name=title[2],
        summary=" ".join(summary.split()),
        why="\n\n".join(why),
        happens=_prose(sections, "What happens"),
        instead=_prose(sections, "Use instead"),
        fix=_prose(sections, "Fix"),
        ignore=_prose(sections, "When to ignore"),
        bad=tuple(_examples(sections.get("Example", ()), name)),
        good=tuple(_examples(sections.get("Use instead", ()), name)),
        proof=proof,
        references=tuple(
            _plain(block.text).removeprefix("- ") for part in sections.get("References", ()) for block in part.blocks
        ),
    )


# -- the form of the text ----------------------------------------------------------------------------------------


def _parts(text: str, name: str) -> list[_Part]:
    found: list[_Part] = []
    level, title, blocks = 1, "", list[_Block]()
    for block in _blocks(text, name):
        heading = None if block.fenced else _HEADING.fullmatch(block.text)
        if heading is None and not block.fenced and block.text.startswith("# "):
            title = block.text[2:]
        elif heading is None:
            blocks.append(block)
        else:
            found.append(_Part(level, title, tuple(blocks)))
            level, title, blocks = len(heading[1]), heading[2], []
    return [*found, _Part(level, title, tuple(blocks))]


def _blocks(text: str, name: str) -> Iterator[_Block]:
    lines = iter(enumerate(text.splitlines(), 1))
    paragraph: list[str] = []
    for number, line in lines:
        fence = _FENCE.fullmatch(line)
        if paragraph and (fence or not line or line.startswith(("- ", "#"))):
            yield _Block(number - len(paragraph), "\n".join(paragraph))
            paragraph = []
        if fence:
            yield _Block(number, _fenced(lines, fence[1], f"{name}:{number}"), True, fence[3])
        elif line.startswith("#"):
            yield _Block(number, line)
        elif line:
            paragraph.append(line)
    if paragraph:
        yield _Block(len(text.splitlines()), "\n".join(paragraph))


def _fenced(lines: Iterator[tuple[int, str]], fence: str, where: str) -> str:
    body: list[str] = []
    for _, line in lines:
        if line == fence:
            return "".join(f"{item}\n" for item in body)
        body.append(line)
    raise PageError(f"{where}: a fenced block that is not closed")


def _sections(parts: list[_Part], name: str) -> dict[str, list[_Part]]:
    """The parts by the heading of the second level that they belong to."""
    found: dict[str, list[_Part]] = {}
    for part in parts:
        if part.level == 2:
            if part.title not in HEADINGS or part.title in found:
                raise PageError(f"{name}: '## {part.title}' is none of {', '.join(HEADINGS)}, or stands there twice")
            found[part.title] = []
            here = found[part.title]
        here.append(part)
    if list(found) != [heading for heading in HEADINGS if heading in found]:
        raise PageError(f"{name}: the headings stand in the order {', '.join(HEADINGS)}")
    return found


def _prose(sections: Mapping[str, list[_Part]], title: str) -> str:
    (part, *_) = sections.get(title, [_Part(2, title, ())])
    return "\n\n".join(_plain(block.text) for block in part.blocks if _is_prose(block))


def _is_prose(block: _Block) -> bool:
    return not (block.fenced or any(form.fullmatch(block.text) for form in (_SHARED, _READER, _SEEN)))


def _plain(text: str) -> str:
    """Without what Markdown needs to show a character as it is."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else _ESCAPED.sub(r"\1", piece) for piece in pieces)


# -- examples and proofs -----------------------------------------------------------------------------------------


def _examples(parts: list[_Part] | tuple[()], name: str) -> Iterator[Example]:
    """One below the heading itself, or one below each numbered heading; a note stands only below the latter."""
    for part in parts:
        example = _example(part, name)
        if example.files:
            yield example


def _example(part: _Part, name: str) -> Example:
    files: dict[str, str] = {}
    notes: list[str] = []
    consumer, proof, expected, releases = None, None, tuple[Expected, ...](), ""
    for block in part.blocks:
        if block.fenced and block.title == "finds":
            expected = tuple(_expected(item) for item in yaml.load(block.text, yaml.BaseLoader))
        elif block.fenced and block.title == "proof":
            proof = _proof(block, name)
        elif block.fenced:
            files[block.title] = _text_of(block)
        elif shared := _SHARED.fullmatch(block.text):
            if shared[2] not in _common():
                raise PageError(f"{name}:{block.line}: {COMMON} has no '{shared[2]}'")
            files[shared[1]] = _common()[shared[2]]
        elif reader := _READER.fullmatch(block.text):
            consumer = reader[1]
        elif seen := _SEEN.fullmatch(block.text):
            releases = seen[1]
        else:
            notes.append(_plain(block.text))
    return Example(files, consumer, "\n\n".join(notes) if part.level == 3 else "", proof, expected, releases)


def _text_of(block: _Block) -> str:
    """The text of a file; ``\\udce9`` stands for a byte that is no UTF-8."""
    return _BYTE.sub(lambda byte: chr(0xDC00 + int(byte[1], 16)), block.text)


def _expected(item: Mapping[str, Any]) -> Expected:
    """``error: PLACE``, with the ``fix``, ``figures`` separated by spaces and a list of places ``also``."""
    (severity,) = (level for level in LEVELS if level in item)
    figures, also = tuple(item.get("figures", "").split()), tuple(item.get("also", ()))
    return Expected(severity, item[severity], figures, also, item.get("fix", ""))


def _proof(block: _Block, name: str) -> Proof:
    try:
        said = dict(yaml.safe_load(block.text))
        seen = {key: _pair(values) for key, values in said.pop("shows", {}).items()}
        return Proof(**{"status": "executed", **said}, shows=seen)
    except (yaml.YAMLError, TypeError, ValueError) as error:
        raise PageError(f"{name}:{block.line}: not a proof: {error}") from error


def _pair(values: Any) -> tuple[object, object]:
    """What is seen of the bad example and of the good one."""
    if isinstance(values, dict):
        return printed(values["logged"]), unprinted(values["logged"])
    bad, good = values
    return _claim(bad), _claim(good)


def _claim(value: Any) -> object:
    match value:
        case {"printed": str(pattern)}:
            return printed(pattern, value.get("times", 1))
        case {"unprinted": str(pattern)}:
            return unprinted(pattern, value.get("times", 1))
        case {"printed_exactly": str(pattern), "times": int(times)}:
            return Printed(pattern, Between(times, times))
        case {"at_least": low, "at_most": high}:
            return Between(low, high)
        case {"at_least": low}:
            return at_least(low)
        case {"at_most": high}:
            return at_most(high)
    return value
