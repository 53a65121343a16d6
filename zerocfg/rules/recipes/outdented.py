"""ZC854: entries of a recipe that lost their indentation."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

from zerocfg.catalog.schema import load_schema
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.arguments import Argument, arguments, own_option
from zerocfg.rules.recipes.slips import certainly_unknown, consequence
from zerocfg.rules.taken import dropped_silently
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.node import Entry, Mapping, Scalar
from zerocfg.source.text import Span


@rule("ZC854", "entries-outdented", Severity.ERROR, WHOLE_RUN)
def entries_outdented(run: Run) -> Iterator[Finding]:
    document = run.recipe.document if run.recipe is not None else None
    root = document.root if document is not None else None
    if run.recipe is None or not isinstance(root, Mapping):
        return
    entries = root.own()
    empty = [at for at, entry in enumerate(entries) if _is_empty_mapping(entry)]
    if not empty:
        return
    unknown = {
        argument.name: argument
        for argument in arguments(run)
        if argument.origin.file is run.recipe and _is_unknown(run, argument)
    }
    for at in empty:
        lost = list(takewhile(lambda entry: entry.key in unknown, entries[at + 1 :]))
        if not lost:
            continue
        holder, first = entries[at].key, lost[0].key
        yield Finding(
            unknown[first].at(),
            f"`{holder}` is empty, and `{first}` is at the top level instead of below it: "
            f"{consequence(run, unknown[first])}",
            f"indent it below `{holder}`",
            [Location(run.recipe, (holder,), "key")],
            _indented(run, lost, holder),
            severity=Severity.WARNING if dropped_silently(run, unknown[first]) else None,
        )


def _is_empty_mapping(entry: Entry) -> bool:
    """Whether an argument that holds a mapping is written without a value."""
    if not entry.key.endswith(("_kwargs", "_config")) or not isinstance(entry.value, Scalar):
        return False
    known = entry.key in load_schema("training-arguments").root.names or entry.key in load_schema("trl").root.names
    return known and entry.value.value is None and not entry.value.raw


def _is_unknown(run: Run, argument: Argument) -> bool:
    """Whether the parser knows no argument of this name: not today, and not by the script's own declaration."""
    known = (
        argument.name in load_schema("training-arguments").root.names or argument.name in load_schema("trl").root.names
    )
    return not known and not own_option(run, argument.name) and certainly_unknown(run, argument)


def _indented(run: Run, lost: list[Entry], holder: str) -> Fix | None:
    """The entries two columns further in, where each is one line."""
    assert run.recipe is not None
    text = run.recipe.source.text
    edits = []
    for entry in lost:
        start = entry.key_span.start
        if not isinstance(entry.value, Scalar) or text[start - 1] != "\n" or "\n" in text[start : entry.value.span.end]:
            return None
        edits.append((run.recipe, Edit(Span(start, start), "  ")))
    return Fix(f"indent below {holder}", tuple(edits), safe=False)
