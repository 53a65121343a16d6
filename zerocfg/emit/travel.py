"""What does not travel with the spec's folder, where that is all that a scheduler copies to its nodes."""

from __future__ import annotations

from posixpath import normpath
from typing import TYPE_CHECKING

from zerocfg.resolve.plan import Problem

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan


def stays_behind(plan: Plan, key: str, help: str) -> list[Problem]:
    """A problem for the script and for each word after it that is a file outside of the spec's folder."""
    words = [plan.script, *(word.rpartition("=")[2] for word in plan.arguments)]
    outside = [
        word for word in dict.fromkeys(words) if normpath(word).startswith("../") and (plan.folder / word).exists()
    ]
    return [Problem(key, f"{word} is not in the spec's folder, and nothing else travels", help) for word in outside]
