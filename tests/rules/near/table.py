"""Near misses: what a rule says of one of its own examples after a single change.

Where nothing is expected, the change crosses a threshold or meets a guard, and the rule has to be silent. Where a
finding is expected, it lies just on the other side. What to expect follows from the rule's page and the libraries.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.rules.examples import lint, told, without_fix, write
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL
from zerocfg.source.edit import apply_edits

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from zerocfg.rulebook.example import Example, Level
    from zerocfg.rules.api import Fix

RULES = {rule.code: rule for rule in ALL}
_SAME: Any = object()


@dataclass(frozen=True)
class Near:
    """An example that a rule has to judge exactly, and why.

    ``facts``: of model, hardware and memory, in place of what the files tell. ``words``: what message or help have to
    say where no figure tells one case from another. ``repaired``: texts of the files after the fix; empty: there is
    none. ``safe``: whether it keeps what the author meant.
    """

    code: str
    why: str
    example: Example
    facts: Mapping[str, object] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    repaired: tuple[str, ...] | None = None
    safe: bool = False

    def finds(self, severity: Level, place: str, *figures: float | str, also: tuple[str, ...] = ()) -> Near:
        return replace(self, example=self.example.finds(severity, place, *figures, also=also))

    def says(self, *words: str) -> Near:
        return replace(self, words=words)

    def becomes(self, *texts: str, safe: bool = False) -> Near:
        return replace(self, repaired=texts, safe=safe)


def near(
    code: str,
    why: str,
    *swaps: tuple[str, str],
    bad: int = 1,
    good: int = 0,
    consumer: str | None = _SAME,
    files: Mapping[str, str | None] | None = None,
    **facts: object,
) -> Near:
    """A bad example of the rule (or its ``good`` one of this number, from 1) with these texts exchanged.

    ``files`` adds a file, replaces it, or takes it away (None).
    """
    base = page_of(RULES[code]).good[good - 1] if good else page_of(RULES[code]).bad[bad - 1]
    texts = dict(base.files)
    for old, new in swaps:
        (name,) = [name for name, text in texts.items() if text.count(old) == 1]
        texts[name] = texts[name].replace(old, new)
    texts |= {name: text for name, text in (files or {}).items() if text is not None}
    kept = {name: text for name, text in texts.items() if (files or {}).get(name, text) is not None}
    reader = base.consumer if consumer is _SAME else consumer
    return Near(code, why, replace(base, files=kept, consumer=reader, expected=()), facts)


def rows(table: Iterable[Near]) -> list[Any]:
    """The table as parameters of a test, each with its code and reason as id."""
    return [pytest.param(one, id=f"{one.code}: {one.why}") for one in table]


def judge(one: Near, folder: Path) -> None:
    """The rule says exactly what is expected, of files that can be read."""
    write(one.example, folder)
    found = lint(folder, one.example.consumer, Selection(select=(one.code, "ZC0")), facts=one.facts).diagnostics
    mine = [diagnostic for diagnostic in found if diagnostic.code == one.code]
    assert [without_fix(told(diagnostic, one.example.files)) for diagnostic in mine] == [
        *map(without_fix, one.example.expected)
    ]
    assert [(d.code, d.message) for d in found if d.code.startswith("ZC0") and d.severity.rank == 2] == []
    said = [text for diagnostic in mine for text in (diagnostic.message, diagnostic.help)]
    assert [word for word in one.words if not any(word in text for text in said)] == []
    if one.repaired is not None:
        fixes = [diagnostic.fix for diagnostic in mine if diagnostic.fix is not None]
        after = [text for fix in fixes for text in edited(fix)]
        assert [text for text in one.repaired if not any(text in whole for whole in after)] == [], after
        assert {fix.safe for fix in fixes} == ({one.safe} if one.repaired else set())


def edited(fix: Fix) -> Iterator[str]:
    """The files that a fix changes, after it."""
    for file in {id(file): file for file, _ in fix.edits}.values():
        yield apply_edits(file.source.text, [edit for other, edit in fix.edits if other is file])
