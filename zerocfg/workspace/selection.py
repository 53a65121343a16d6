"""Rule codes as users write them: validated, with an error for removed and misspelt ones."""

from __future__ import annotations

import re
from collections.abc import Iterable

from zerocfg.errors import UsageError
from zerocfg.linter.selection import Selection
from zerocfg.patterns import pattern
from zerocfg.rules.codes import REMOVED
from zerocfg.workspace.settings import Settings

_CODE = pattern(r"zc\d*", re.IGNORECASE)


def selection_of(settings: Settings, select: str, ignore: str, preview: bool) -> Selection:
    """Merges the settings with the command line: --select replaces, --ignore adds."""
    base = settings.selection
    where = f"{settings.source}: " if settings.source else ""
    per_file = tuple((pattern, checked(codes, where)) for pattern, codes in base.per_file)
    chosen, dropped = checked(_split(select)), checked(_split(ignore))
    return Selection(
        chosen or checked(base.select, where),
        (*checked(base.ignore, where), *dropped),
        per_file,
        settings.folder,
        preview or base.preview,
    )


def _split(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def checked(words: Iterable[str], where: str = "") -> tuple[str, ...]:
    """Codes in capitals, names as they are. Raises UsageError for a word that names no rule."""
    found = tuple(word.upper() if _CODE.fullmatch(word) else word for word in words)
    for word in found:
        complaint = _complaint(word)
        if complaint:
            raise UsageError(f"{where}{complaint}")
    return found


def _complaint(word: str) -> str:
    from zerocfg.rules.registry import every

    if word == "ALL" or any(rule.code.startswith(word) or rule.name == word for rule in every()):
        return ""
    gone = REMOVED.get(word)
    if gone is not None:
        return f"{word} ({gone.name}) was removed in {gone.since}: {gone.why}"
    from zerocfg.catalog.suggest import closest

    near = None if _CODE.fullmatch(word) else closest(word, [rule.name for rule in every()])
    hint = f"did you mean {near}?" if near else "see 'zerocfg rules'"
    return f"no rule is called '{word}' or begins with it; {hint}"


def deprecated(select: Iterable[str]) -> list[str]:
    """Warnings about deprecated rules that were selected by their own code or name."""
    from zerocfg.rules.registry import find

    rules = [rule for rule in map(find, select) if rule is not None and rule.status == "deprecated"]
    return [
        f"{rule.code} ({rule.name}) is deprecated" + (f"; use {rule.replaced_by}" if rule.replaced_by else "")
        for rule in rules
    ]
