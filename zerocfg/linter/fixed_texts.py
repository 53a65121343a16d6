"""The texts after fixes, where their edits fit: none overlaps, and of a launch script no other word changes."""

from __future__ import annotations

from collections.abc import Sequence

from zerocfg.frontends.registry import programs
from zerocfg.linter.engine import Diagnostic, real_name
from zerocfg.linter.ignores import OWN
from zerocfg.linter.independent import Offer, offers
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.launch.shell_check import intact, only_comments
from zerocfg.source.text import Span

Texts = dict[str, str]
"""New text of a file by its real path."""


def edited(diagnostic: Diagnostic, runs: Sequence[Run] = ()) -> Texts | None:
    """The texts after one diagnostic's fix, or None when its edits do not fit. ``runs``: of the lint that found it; on
    launch lines of others than those it is found in, no word may change."""
    fitting, texts = edited_together(offers([diagnostic]), runs)
    return texts if fitting else None


def edited_together(chosen: Sequence[Offer], runs: Sequence[Run]) -> tuple[list[Offer], Texts]:
    """Those offers that can be made together, and the texts after them."""
    fitting = list(chosen)
    while True:
        texts: Texts = {}
        unfit: list[Offer] = []
        for path, (file, edits, of) in _by_path(fitting).items():
            text = _text_after(file, edits, _lines(file, of, runs)) if file.path is not None else None
            unsure = [offer for offer in of if not _about_comments(offer, file)]
            if unsure:
                unfit += unsure
            elif text is not None:
                texts[path] = text
            elif len(of) == 1:
                unfit += of
            else:
                unfit += [offer for offer in of if not edited_together([offer], runs)[0]] or of[1:]
        if not unfit:
            return fitting, texts
        fitting = _without(fitting, unfit)


def _without(some: Sequence[Offer], others: Sequence[Offer]) -> list[Offer]:
    gone = {id(other) for other in others}
    return [offer for offer in some if id(offer) not in gone]


def _by_path(chosen: Sequence[Offer]) -> dict[str, tuple[SourceFile, list[Edit], list[Offer]]]:
    found: dict[str, tuple[SourceFile, list[Edit], list[Offer]]] = {}
    for offer in chosen:
        for file, edit in offer.edits:
            _, edits, of = found.setdefault(real_name(file), (file, [], []))
            edits.append(edit)
            if not of or of[-1] is not offer:
                of.append(offer)
    return found


def _about_comments(offer: Offer, file: SourceFile) -> bool:
    """Whether an offer for a comment in a launch script edits comments alone; any other offer passes."""
    if file.kind != "launch" or not any(finding.code in OWN for finding in offer.findings):
        return True
    edits = [edit for edited_file, edit in offer.edits if real_name(edited_file) == real_name(file)]
    return only_comments(file.source, edits, programs())


def _lines(file: SourceFile, of: Sequence[Offer], runs: Sequence[Run]) -> frozenset[Span] | None:
    """The launch lines of a file that fixes are for; None where that is not known."""
    if file.kind != "launch" or not runs:
        return None
    names = {name for offer in of for finding in offer.findings for name in finding.met_in}
    return frozenset(run.launch.span for run in runs if run.launch is not None and run.name in names)


def _text_after(file: SourceFile, edits: Sequence[Edit], lines: frozenset[Span] | None) -> str | None:
    """The text of a file after edits; None where they overlap, or would change other words of a shell text."""
    try:
        text = apply_edits(file.source.text, edits)
        return text if file.kind != "launch" or intact(file.source, edits, lines, programs=programs()) else None
    except ValueError:
        return None
