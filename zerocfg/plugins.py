"""Which installed packages bring rules or front ends: distributions named ``zerocfg-...`` with entry points for them.

Only the folders of ``sys.path`` are listed and the metadata of such distributions is read; `zerocfg.installed` imports
what they name. A lint asks this each time, so nothing is imported here that it does not need anyway.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache

from zerocfg.record import record

RULES, FRONT_ENDS = "zerocfg.rules", "zerocfg.frontends"
"""The groups of entry points."""
_END = ".dist-info"


@record(frozen=True, slots=True)
class Plugin:
    """A distribution. ``name`` is normalised ("zerocfg-acme"), ``folder`` the entry of ``sys.path`` that it is
    installed in. ``entry_points``: pairs of name and value ("acme.rules:RULES") of one group."""

    name: str
    version: str
    folder: str
    entry_points: tuple[tuple[str, str], ...]


def plugins(group: str) -> tuple[Plugin, ...]:
    """Those that this Python finds; of two distributions with one name the first on ``sys.path``."""
    return _below(tuple(sys.path)).get(group, ())


@lru_cache(maxsize=8)
def _below(folders: tuple[str, ...]) -> dict[str, tuple[Plugin, ...]]:
    """By group; of two distributions with one name only one counts."""
    found: dict[str, list[tuple[str, Plugin]]] = {}
    for folder in folders:
        try:
            names = os.listdir(folder or os.curdir)  # noqa: PTH208
        except OSError:  # an archive, or not there
            continue
        for name in names:
            if name.endswith(_END) and name[:7].lower() == "zerocfg" and name[7:8] in ("-", "_", "."):
                groups = _read(folder or os.curdir, name)
                if groups:
                    found.setdefault(groups[0][1].name, groups)
    return {
        group: tuple(plugin for name in sorted(found) for given, plugin in found[name] if given == group)
        for group in (RULES, FRONT_ENDS)
    }


def _read(folder: str, metadata: str) -> list[tuple[str, Plugin]]:
    """The distribution of a folder ``NAME-VERSION.dist-info``, for each group that it has entry points of; nothing for
    zerocfg itself. In these names a dash only precedes the version, but older tools left those of the name."""
    name, _, version = metadata.removesuffix(_END).rpartition("-")
    if not name or name.lower() == "zerocfg":
        return []
    try:
        with open(os.path.join(folder, metadata, "entry_points.txt"), encoding="utf-8") as file:  # noqa: PTH118, PTH123
            text = file.read()
    except (OSError, UnicodeDecodeError):
        return []
    normal = "-".join(filter(None, name.lower().replace("_", "-").replace(".", "-").split("-")))
    groups = ((group, tuple(_of_group(group, text))) for group in (RULES, FRONT_ENDS))
    return [(group, Plugin(normal, version, folder, entry_points)) for group, entry_points in groups if entry_points]


def _of_group(wanted: str, text: str) -> list[tuple[str, str]]:
    """The entry points of a group in the text of an ``entry_points.txt``."""
    found, group = list[tuple[str, str]](), ""
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            group = line.strip("[] ")
        elif group == wanted and "=" in line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.append((name.strip(), value.partition("[")[0].strip()))
    return found
