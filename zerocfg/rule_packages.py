"""Which installed packages bring rules: distributions named ``zerocfg-...`` with entry points of the group `GROUP`.

Only the folders of ``sys.path`` are listed and the metadata of such distributions is read; `zerocfg.rules.outside`
imports what they name. A lint asks this each time, so nothing is imported here that it does not need anyway.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache

from zerocfg.record import record

GROUP = "zerocfg.rules"
_END = ".dist-info"


@record(frozen=True, slots=True)
class RulePackage:
    """A distribution. ``name`` is normalised ("zerocfg-acme"), ``folder`` the entry of ``sys.path`` that it is
    installed in. ``entry_points``: pairs of name and value ("acme.rules:RULES") of the group."""

    name: str
    version: str
    folder: str
    entry_points: tuple[tuple[str, str], ...]


def rule_packages() -> tuple[RulePackage, ...]:
    """Those that this Python finds; of two distributions with one name the first on ``sys.path``."""
    return _below(tuple(sys.path))


@lru_cache(maxsize=8)
def _below(folders: tuple[str, ...]) -> tuple[RulePackage, ...]:
    found: dict[str, RulePackage] = {}
    for folder in folders:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208
        except OSError:  # an archive, or not there
            continue
        for name in names:
            if name.endswith(_END) and name[:7].lower() == "zerocfg" and name[7:8] in ("-", "_", "."):
                package = _read(folder or os.curdir, name)
                if package is not None:
                    found.setdefault(package.name, package)
    return tuple(found[name] for name in sorted(found))


def _read(folder: str, metadata: str) -> RulePackage | None:
    """The distribution of a folder ``NAME-VERSION.dist-info``; None for zerocfg itself, and without such entry points.
    In these names a dash only precedes the version, but older tools left those of the name."""
    name, _, version = metadata.removesuffix(_END).rpartition("-")
    if not name or name.lower() == "zerocfg":
        return None
    try:
        with open(os.path.join(folder, metadata, "entry_points.txt"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            entry_points = tuple(_of_group(file.read()))
    except (OSError, UnicodeDecodeError):
        return None
    normal = "-".join(filter(None, name.lower().replace("_", "-").replace(".", "-").split("-")))
    return RulePackage(normal, version, folder, entry_points) if entry_points else None


def _of_group(text: str) -> list[tuple[str, str]]:
    """The entry points of `GROUP` in the text of an ``entry_points.txt``."""
    found, group = list[tuple[str, str]](), ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif group == GROUP and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.append((name.strip(), value.partition("[")[0].strip()))
    return found
