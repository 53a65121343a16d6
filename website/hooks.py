"""What mkdocs does beside reading docs/: writes pages of keys, releases and commands, links rules and keys, and leads
links out."""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from zerocfg.rulebook.pages import page_of

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from website.commands import command_pages, listed  # noqa: E402
from website.keys import SCHEMAS, KeyPages, key_pages  # noqa: E402
from website.releases import release_pages  # noqa: E402
from website.rules_of_keys import rules_of_keys  # noqa: E402

_log = logging.getLogger("mkdocs.plugins.zerocfg")
_state: dict[str, Any] = {}
_FOR_TESTS = re.compile(r"^<!-- (?:start in|first|file|exit|libs|not run).*-->\n+", re.M)
"""Comments of `tests/docs/blocks.py`."""
_PICTURE = re.compile(r"\]\(\.\./([^)]+\.(?:svg|png))\)")
_OUTSIDE = re.compile(r"\]\(\.\./([^)]*)\)")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """The keys' pages are made once, and stand in the navigation where mkdocs.yml has ``Keys: []``."""
    from zerocfg.catalog.changes import known_libraries
    from zerocfg.catalog.versions import library_name
    from zerocfg.rulebook.rendering import FAMILIES
    from zerocfg.rules.registry import ALL

    codes = rules_of_keys()
    names = {rule.code: rule.name for rule in ALL}
    links = {
        place: [f"[{code} {names[code]}](../../rules/{code}.md)" for code in found] for place, found in codes.items()
    }
    made = key_pages(ROOT / "schemas", links)
    keys: dict[str, list[str]] = {}
    for (schema, path), found in codes.items():
        if (schema, path) in made.anchors:
            for code in found:
                keys.setdefault(code, []).append(f"[`{path}`](../keys/{made.anchors[schema, path]})")
    _state.update(made=made, keys=keys, families=FAMILIES, releases=release_pages(made.anchors))
    _state["commands"] = command_pages()
    for entry in config.nav or []:
        if "Keys" in entry:
            releases: list[Any] = ["releases/index.md"]
            releases += [{library_name(name): f"releases/{name}.md"} for name in known_libraries()]
            entry["Keys"] = [*_navigation(made), {"What each release changed": releases}]
        for inner in entry.get("Use", []):
            if "Commands" in inner:
                pages = [{name.removesuffix(".md"): f"commands/{name}"} for name in _state["commands"]]
                inner["Commands"] = [{"All commands": "commands.md"}, *pages]
    return config


def _navigation(made: KeyPages) -> list[Any]:
    entries: list[Any] = [{"All keys": "keys/index.md"}]
    for schema, title in SCHEMAS.items():
        inner = [page for page in made.pages if page.startswith(f"{schema}/")]
        if len(inner) == 1:
            entries.append({title: f"keys/{inner[0]}"})
        else:
            entries.append(
                {title: [f"keys/{schema}/index.md", *({made.titles[one]: f"keys/{one}"} for one in inner[1:])]}
            )
    return entries


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """The pages of keys, of releases and of commands, and pictures of the repository that pages show."""
    for folder, pages in (
        ("keys", _state["made"].pages),
        ("releases", _state["releases"]),
        ("commands", _state["commands"]),
    ):
        for name, text in pages.items():
            files.append(File.generated(config, f"{folder}/{name}", content=text))
    for page in list(files.documentation_pages()):
        for picture in _PICTURE.findall(page.content_string):
            source = f"pictures/{Path(picture).name}"
            if files.get_file_from_path(source) is None:
                files.append(File.generated(config, source, abs_src_path=str(ROOT / picture)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    source = page.file.src_uri
    markdown = _FOR_TESTS.sub("", markdown)
    rule = re.fullmatch(r"rules/(ZC(\d)\d\d)\.md", source)
    if rule:
        return _rule(_shown(rule[1]), rule[1], _state["families"][rule[2]])
    if source == "rules/index.md":
        return markdown.replace("<!-- rules by family -->", _by_family())
    if source == "commands.md":
        markdown += listed()
    if "/" in source:
        return markdown
    markdown = _PICTURE.sub(lambda found: f"](pictures/{Path(found[1]).name})", markdown)
    # Other files of the repository are no pages: the repository shows them.
    for target in _OUTSIDE.findall(markdown):
        if not (ROOT / target.partition("#")[0]).exists():
            _log.warning("%s links to %s, which is not in the repository", source, target)
    return _OUTSIDE.sub(rf"]({config.extra['repository']}/blob/main/\1)", markdown)


def _shown(code: str) -> str:
    """A rule's page with what follows from it: severity, safety of the fix, releases."""
    from zerocfg.rulebook.rendering import as_markdown
    from zerocfg.rules.registry import find
    from zerocfg.workspace.examples import as_shown

    rule = find(code)
    assert rule is not None, code
    return as_markdown(rule, as_shown(page_of(rule)))


def _by_family() -> str:
    from zerocfg.rulebook.rendering import index
    from zerocfg.rules.registry import ALL

    return index(ALL)


def _rule(markdown: str, code: str, family: str) -> str:
    """Where it belongs above the page, and the keys that it speaks of."""
    slug = re.sub(r"[^\w\s-]", "", family).strip().lower().replace(" ", "-")
    keys = list(dict.fromkeys(_state["keys"].get(code, [])))
    if keys:
        head, severity, rest = markdown.partition(f"\n{_severity(markdown)}\n")
        markdown = f"{head}{severity}\nKeys: {', '.join(keys[:12])}.\n{rest}"
    return f"[Rules](index.md) › [{family}](index.md#{slug})\n\n{markdown}"


def _severity(markdown: str) -> str:
    return next(line for line in markdown.splitlines() if line.startswith("Severity: "))
