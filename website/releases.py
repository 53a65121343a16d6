"""What the releases of the libraries changed for configs: pages of Markdown, written from the histories."""

from __future__ import annotations

from collections.abc import Mapping

from website.keys import escaped
from zerocfg.catalog.changes import Change, changes, known_libraries
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import library_name

_SCHEMAS = {
    "deepspeed": ("deepspeed", ""),
    "accelerate": ("accelerate", "cluster."),
    "transformers": ("training-arguments", ""),
}
"""Whose page has the keys of a library, and how the names of these begin in its history."""


def release_pages(anchors: Mapping[tuple[str, str], str]) -> dict[str, str]:
    """Path below ``releases/`` -> page. ``anchors``: (schema, key path) -> link below ``keys/``."""
    pages = {f"{library}.md": _page(library, anchors) for library in known_libraries()}
    return {"index.md": _index(), **pages}


def _index() -> str:
    lines = [
        "# What each release changed",
        "",
        "For the keys of configs: which came and went, which got another default, type or range, and which sections "
        "became strict. Every release was installed and its keys were walked; none of it comes from release notes.",
        "",
        "| library | releases | from | to |",
        "|---|---|---|---|",
    ]
    for library in known_libraries():
        names = histories(library).names
        lines.append(f"| [{library_name(library)}]({library}.md) | {len(names)} | {names[0]} | {names[-1]} |")
    return "\n".join(lines) + "\n"


def _page(library: str, anchors: Mapping[tuple[str, str], str]) -> str:
    names = histories(library).names
    lines = [
        f"# {library_name(library)}: what each release changed",
        "",
        f"{len(names)} releases, {names[0]} to {names[-1]}; what {names[0]} changed is not known. "
        "`zerocfg explain KEY` tells the history of one key.",
        "",
    ]
    same: list[str] = []
    for release, found in changes(library).items():
        if found:
            lines += [f"## {release} {{ #v{release} }}", ""]
            lines += [f"- {_linked(library, change, anchors)}: {escaped('; '.join(change.words))}" for change in found]
            lines.append("")
        else:
            same.append(release)
    if same:
        lines += ["## No change", "", f"{', '.join(same)}.", ""]
    return "\n".join(lines)


def _linked(library: str, change: Change, anchors: Mapping[tuple[str, str], str]) -> str:
    schema, start = _SCHEMAS.get(library, ("", ""))
    key = change.key.removesuffix(".*")
    target = anchors.get((schema, key.removeprefix(start))) if key.startswith(start) else None
    return f"[{change.name}](../keys/{target})" if target else change.name
