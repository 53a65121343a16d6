"""A rule's page as people are shown it, with what its examples and other releases tell; as text or as Markdown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from textwrap import wrap

from zerocfg.record import record
from zerocfg.rulebook import older_releases
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import Page, Safety, page_of
from zerocfg.rules.api import Rule
from zerocfg.run.config import TORCH, VERSIONS

RELEASES = {
    name: (VERSIONS | TORCH)[name.lower()] for name in ("DeepSpeed", "accelerate", "transformers", "TRL", "torch")
}
"""What the proofs were executed on."""
_TODAY = {name.lower(): release for name, release in RELEASES.items()}

FAMILIES = {
    "0": "Reading and ignoring",
    "1": "Keys and types",
    "2": "Batch, accumulation and optimizer",
    "3": "Precision",
    "4": "ZeRO and saving",
    "5": "Offload",
    "6": "FSDP and parallelism",
    "7": "Launch and machines",
    "8": "Versions and migration",
    "9": "Memory and performance",
}

_PHASES = {
    "read": "when the file is read",
    "launch": "when the launcher starts",
    "arguments": "when the training arguments or the Accelerator are built",
    "parse": "when DeepSpeed parses its config",
    "init": "when the engine is built",
    "step": "in the first optimizer steps",
    "save": "when the weights are saved",
    "load": "when training continues from a checkpoint",
}
_LANGUAGES = {".json": "json", ".hjson": "json", ".yaml": "yaml", ".yml": "yaml", ".sh": "bash", ".md": "markdown"}
_THREAD = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


@record(frozen=True)
class Section:
    title: str
    text: str = ""
    examples: tuple[Example, ...] = ()
    table: tuple[tuple[str, ...], ...] = ()


def sections(rule: Rule, page: Page) -> tuple[Section, ...]:
    """A rule's page. What its author left out is said as far as it is known."""
    return (
        Section("What it does", page.summary),
        Section("Why it is bad", page.why or _consequence(rule)),
        Section("What happens", _paragraphs(page.happens, _holds(rule), _proof(rule))),
        Section("Releases", older_releases.said(rule), (), older_releases.table(rule, _TODAY)),
        Section("Example", "", page.bad),
        Section("Use instead", page.instead, page.good),
        Section("Fix safety", _paragraphs(_safety(page.fix_safety), page.fix)),
        Section("When to ignore", page.ignore or _never(rule)),
        Section("References", "\n".join(f"- {reference}" for reference in _references(rule)) or "None."),
    )


def _paragraphs(*texts: str) -> str:
    return "\n\n".join(text for text in texts if text)


def _consequence(rule: Rule) -> str:
    if page_of(rule).proof.raises is not None:
        return f"The run stops {_PHASES[page_of(rule).proof.phase]}."
    return "Not written down yet."


def _never(rule: Rule) -> str:
    return "Never: the run stops." if page_of(rule).proof.raises is not None else "Not written down yet."


def _safety(safety: Safety) -> str:
    return {
        "none": "No fix is offered.",
        "safe": "Safe: `zerocfg lint --fix` applies it.",
        "unsafe": "Unsafe, because it makes a choice for you: only `zerocfg lint --fix --unsafe-fixes` applies it.",
        "both": "Safe where only one correction is possible, which `zerocfg lint --fix` applies; elsewhere it makes a "
        "choice for you and needs `--unsafe-fixes` as well.",
    }[safety]


def _holds(rule: Rule) -> str:
    limits = []
    if rule.consumers:
        limits.append(f"for configs that {_and(rule.consumers, 'or')} reads")
    if rule.versions:
        limits.append(f"with {rule.versions}")
    if rule.needs:
        limits.append(f"where the {_and(rule.needs)} {'is' if len(rule.needs) == 1 else 'are'} known")
    return f"This is reported {', '.join(limits)}." if limits else ""


def _proof(rule: Rule) -> str:
    proof = page_of(rule).proof
    if proof.status == "executed":
        libraries = _and([f"{name} {release}" for name, release in RELEASES.items()], ordered=True)
        proofs = [example.proof or proof for example in page_of(rule).bad]
        seen = dict.fromkeys(_PHASES[item.phase] for item in proofs)
        ranks = max(item.ranks for item in proofs)
        where = _and(seen, "or", ordered=True) + (f", with {ranks} processes" if ranks > 1 else "")
        extents = dict.fromkeys(item.extent for item in proofs if item.extent)
        shown = "".join(f" What they show: {extent}" for extent in extents)
        return f"Proof: seen {where}; zerocfg's tests run the examples on {libraries}.{shown}"
    return {
        "cited": f"Proof: read in {proof.source}, not executed.",
        "needs_gpu": "Proof: waits for a machine with an accelerator.",
        "self": "Proof: this is about zerocfg itself; its own tests show it.",
    }[proof.status]


def _references(rule: Rule) -> Iterable[str]:
    yield from page_of(rule).references
    if page_of(rule).proof.source and page_of(rule).proof.status == "executed":
        yield page_of(rule).proof.source


def _and(words: Iterable[str], last: str = "and", *, ordered: bool = False) -> str:
    found = list(words) if ordered else sorted(words)
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} {last} {found[-1]}"


def printable(text: str) -> str:
    """The text of an example; a byte that is not UTF-8 as ``\\udce9``."""
    return text.encode("utf-8", "backslashreplace").decode()


def _status(rule: Rule) -> str:
    if rule.status == "deprecated":
        return f"deprecated{f', replaced by {rule.replaced_by}' if rule.replaced_by else ''}"
    return "in preview" if rule.status == "preview" else f"since {rule.since}"


def _remarks(example: Example) -> list[str]:
    command = f"Linted with `--consumer {example.consumer}`." if example.consumer and not example.told else ""
    seen = f"Seen with `{example.releases}`." if example.releases else ""
    return [remark for remark in (example.note, command, seen) if remark]


def as_text(rule: Rule, page: Page) -> str:
    """The page for a terminal."""
    lines = [f"{rule.code} {rule.name} ({rule.severity.value}, {_status(rule)})", ""]
    for section in sections(rule, page):
        lines.append(section.title)
        lines += [f"  {line}".rstrip() for line in _wrapped(section.text)]
        lines += [f"    {line}" for line in _columns(section.table)]
        for number, example in enumerate(section.examples, 1):
            lines += _text_example(example, number if len(section.examples) > 1 else 0)
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"


def _wrapped(text: str) -> Iterable[str]:
    for line in text.splitlines():
        yield from wrap(line, 116, break_long_words=False, break_on_hyphens=False) or [""]


def _columns(table: Sequence[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _text_example(example: Example, number: int) -> list[str]:
    remarks = [*([f"({number})"] if number else []), *_remarks(example)]
    lines = [f"  {' '.join(remarks)}"] if remarks else []
    for name, text in example.files.items():
        lines.append(f"    # {name}")
        lines += [f"    {line}".rstrip() for line in printable(text).splitlines()]
    return lines


def as_markdown(rule: Rule, page: Page) -> str:
    """The page for the site and for editors."""
    lines = [f"# {rule.code} {rule.name}", "", f"Severity: {rule.severity.value}, {_status(rule)}.", ""]
    for section in sections(rule, page):
        lines += [f"## {section.title}", ""]
        if section.text:
            text = _linked(section.text) if section.title == "References" else _escaped(section.text)
            lines += [text, ""]
        if section.table:
            heading, *rows = (f"| {' | '.join(map(_escaped, row))} |" for row in section.table)
            lines += [heading, "|---" * len(section.table[0]) + "|", *rows, ""]
        for number, example in enumerate(section.examples, 1):
            if len(section.examples) > 1:
                lines += [f"### {number}", ""]
            lines += _markdown_example(example)
    return "\n".join(lines).rstrip("\n") + "\n"


def _markdown_example(example: Example) -> list[str]:
    lines = []
    for remark in _remarks(example):
        lines += [_escaped(remark), ""]
    for name, text in example.files.items():
        fence = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
        language = next((word for suffix, word in _LANGUAGES.items() if name.endswith(suffix)), "")
        shown = printable(text)
        lines += [f"`{name}`:", "", f"{fence}{language}", *shown.rstrip("\n").splitlines(), fence, ""]
    return lines


def _escaped(text: str) -> str:
    """Outside of code, what Markdown would take for HTML or emphasis."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(piece if piece.startswith("`") else re.sub(r"([<*\\])", r"\\\1", piece) for piece in pieces)


def _linked(text: str) -> str:
    """Threads and our own pages as links, files as code."""
    lines = []
    for line in text.splitlines():
        item = line.removeprefix("- ")
        thread = _THREAD.fullmatch(item)
        if thread:
            item = f"[{item}](https://github.com/{thread[1]}/issues/{thread[2]})"
        elif item.startswith("docs/"):
            item = f"[{item}](../{item.removeprefix('docs/')})"
        elif "@" in item and " " not in item:
            item = f"`{item}`"
        else:
            item = _escaped(item)
        lines.append(f"- {item}" if line.startswith("- ") else item)
    return "\n".join(lines)


def index(rules: Sequence[Rule]) -> str:
    """All rules by family, as Markdown."""
    run = sum(page_of(rule).proof.status == "executed" for rule in rules)
    fixable = sum(page_of(rule).fixable for rule in rules)
    lines = [
        f"{len(rules)} rules. The tests execute the examples of {run} on the real libraries; {fixable} offer a fix.",
        "",
    ]
    for digit, title in FAMILIES.items():
        family = [rule for rule in rules if rule.code[2] == digit]
        if not family:
            continue
        lines += [
            f"## {title}",
            "",
            "| code | name | severity | fix | proof | what it finds |",
            "|---|---|---|---|---|---|",
        ]
        for rule in family:
            fix = page_of(rule).fix_safety.replace("none", "").replace("both", "safe or unsafe")
            cells = (
                f"[{rule.code}]({rule.code}.md)",
                rule.name,
                rule.severity.value,
                fix,
                page_of(rule).proof.status.replace("_", " "),
            )
            summary = _escaped(page_of(rule).summary).replace("|", "\\|")
            lines.append(f"| {' | '.join(cells)} | {summary} |")
        lines.append("")
    return "\n".join(lines).rstrip("\n") + "\n"
