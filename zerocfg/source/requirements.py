"""Files in which a project states the packages that it needs: each format read into the same requirements.

Nothing here raises: what cannot be read holds no requirement, and a version that a text alone does not tell (a URL, a
choice between two) is None.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zerocfg.source.text import Span


class Requirement(NamedTuple):
    """``name`` as package indexes compare it. ``versions``: clauses of PEP 440, "" for any, None where nobody can tell.

    ``optional``: of an extra or a group, which an installation may leave out; ``conditional``: behind a marker.
    """

    name: str
    versions: str | None
    span: Span
    optional: bool = False
    conditional: bool = False


_NAMED = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)\s*(?:\[[^\]]*\])?\s*(.*)", re.DOTALL)
_CLAUSES = re.compile(r"(?:(?:===|==|~=|!=|>=|<=|>|<)\s*[\w.*+!-]+\s*(?:,\s*|$))*")
_INCLUDE = re.compile(r"(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?=[^\s=]))(\S+)")
_FROM_URL = re.compile(r"(?:-e\s+|--editable[\s=]+)?((?:git|hg|svn|bzr)\+\S+|https?://\S+|file:\S+)")
_EGG = re.compile(r"[#&]egg=([A-Za-z0-9._-]+)")
_LOCKED = re.compile(r"""^name = ["']([^"'\n]+)["']\r?\nversion = ["']([^"'\n]+)["']""", re.MULTILINE)
_PIPFILE = re.compile(r'"([A-Za-z0-9._-]+)"\s*:\s*\{[^{}]*?"version"\s*:\s*"==([^"]+)"')


def normal(name: str) -> str:
    """A package name as indexes compare it: ``Deep_Speed`` is ``deep-speed``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def one(text: str, start: int, *, optional: bool = False) -> Requirement | None:
    """A requirement as PEP 508 writes it: ``name[extra]>=1; marker``, ``name @ url``."""
    match = _NAMED.fullmatch(text.strip())
    if match is None:
        return None
    span = Span(start, start + len(text.rstrip()))
    rest, _, marker = match[2].partition(";")
    rest = re.sub(r"\s+", " ", rest).strip()
    if rest.startswith("(") and rest.endswith(")"):
        rest = rest[1:-1].strip()
    known = _CLAUSES.fullmatch(rest) is not None
    return Requirement(normal(match[1]), rest.rstrip(", ") if known else None, span, optional, bool(marker))


def read_requirements(text: str) -> tuple[list[Requirement], list[str]]:
    """A pip requirements file, and the files that it includes."""
    found: list[Requirement] = []
    includes: list[str] = []
    for start, line in _logical_lines(text):
        stripped = re.sub(r"(^|\s)#.*", "", line, flags=re.DOTALL).strip()
        start += len(line) - len(line.lstrip())
        include = _INCLUDE.match(stripped)
        url = _FROM_URL.match(stripped)
        if include:
            includes.append(include[1])
        elif url:
            egg = _EGG.search(url[1])
            last = url[1].split("#")[0].rstrip("/").rpartition("/")[2]
            name = egg[1] if egg else re.split(r"\.git|@|-\d", last)[0]
            found.append(Requirement(normal(name), None, Span(start, start + len(stripped))))
        elif stripped and not stripped.startswith("-"):
            plain = re.split(r"\s--?[a-z]", stripped)[0].rstrip()  # --hash=..., --config-settings=...
            requirement = one(plain, start)
            if requirement is not None:
                found.append(requirement)
    return found, includes


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their offset; one that ends in a backslash goes on, its break blanked out so that offsets stay."""
    held, begin, at = "", 0, 0
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        begin = begin if held else at
        at += len(line)
        if body.endswith("\\"):
            held += body[:-1] + " " * (len(line) - len(body) + 1)
            continue
        yield begin, held + body
        held = ""
    if held:
        yield begin, held


def read_pyproject(text: str) -> list[Requirement]:
    """``[project]``, ``[dependency-groups]`` and Poetry's tables; a source of its own (uv) makes a version unknown."""
    table = _toml(text)
    project = _table(table, "project")
    found = list(_listed(text, project.get("dependencies"), optional=False))
    for group in (project.get("optional-dependencies"), table.get("dependency-groups")):
        for items in group.values() if isinstance(group, dict) else ():
            found += _listed(text, items, optional=True)
    poetry = _table(table, "tool", "poetry")
    found += _poetry(text, poetry.get("dependencies"), optional=False)
    groups = _table(poetry, "group")
    for items in [poetry.get("dev-dependencies"), *(_table(groups, name).get("dependencies") for name in groups)]:
        found += _poetry(text, items, optional=True)
    sources = {normal(name) for name in _table(table, "tool", "uv", "sources")}
    return [item._replace(versions=None) if item.name in sources else item for item in found]


def _toml(text: str) -> dict[str, object]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    try:
        content: dict[str, object] = tomllib.loads(text)
    except (ValueError, RecursionError):  # TOMLDecodeError is a ValueError
        return {}
    return content


def _table(table: object, *names: str) -> dict[str, object]:
    for name in names:
        table = table.get(name) if isinstance(table, dict) else None
    return table if isinstance(table, dict) else {}


def _listed(text: str, items: object, *, optional: bool) -> Iterator[Requirement]:
    for item in items if isinstance(items, list) else ():
        if isinstance(item, str):
            start = max(text.find(f'"{item}"'), text.find(f"'{item}'")) + 1
            requirement = one(item, start, optional=optional)
            if requirement is not None:
                yield requirement


def _poetry(text: str, items: object, *, optional: bool) -> Iterator[Requirement]:
    for name, value in items.items() if isinstance(items, dict) else ():
        match = re.search(rf"""^\s*["']?({re.escape(name)})["']?\s*=""", text, re.MULTILINE)
        span = Span(match.start(1), match.end(1)) if match else Span(0, 0)
        left_out = optional or (isinstance(value, dict) and value.get("optional") is True)
        version = value.get("version") if isinstance(value, dict) else value
        yield Requirement(normal(name), _from_poetry(version) if isinstance(version, str) else None, span, left_out)


def _from_poetry(text: str) -> str | None:
    """Poetry's ``^1.2`` and ``~1.2`` in clauses of PEP 440; a bare version is exact."""
    clauses = []
    for part in (part.strip() for part in text.split(",")):
        match = re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)", part)
        if match:
            numbers = [int(number) for number in match[2].split(".")]
            kept = 1 if match[1] == "~" and len(numbers) == 1 else 2
            if match[1] == "^":  # up to the first number that is not 0
                kept = next((at for at, number in enumerate(numbers, 1) if number), len(numbers))
            numbers = numbers[:kept]
            numbers[-1] += 1
            clauses.append(f">={match[2]},<{'.'.join(map(str, numbers))}")
        elif re.fullmatch(r"\d+(?:\.\d+)*(?:\.\*)?", part):
            clauses.append(f"=={part}")
        elif _CLAUSES.fullmatch(part):
            clauses.append(part)
        elif part != "*":
            return None
    return ",".join(clauses)


def read_setup_cfg(text: str) -> list[Requirement]:
    """``install_requires`` and the extras of setuptools' setup.cfg."""
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError):
        return []
    found: list[Requirement] = []
    firm = parser.get("options", "install_requires", fallback="")
    extras = parser.items("options.extras_require") if parser.has_section("options.extras_require") else []
    for block, optional in [(firm, False), *((value, True) for _, value in extras)]:
        for line in filter(None, (line.strip() for line in block.splitlines())):
            requirement = one(line, max(0, text.find(line)), optional=optional)
            if requirement is not None:
                found.append(requirement)
    return found


def read_environment(text: str, data: object) -> tuple[list[Requirement], list[str]]:
    """A conda environment file and the files that its pip section includes; ``data`` is its parsed content."""
    found: list[Requirement] = []
    includes: list[str] = []
    items = data.get("dependencies") if isinstance(data, dict) else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, str):
            found += _conda(item, max(0, text.find(item)))
        lines = item.get("pip") if isinstance(item, dict) else None
        for line in lines if isinstance(lines, list) else ():
            if isinstance(line, str):
                requirements, others = read_requirements(line)
                start = max(0, text.find(line))
                span = Span(start, start + len(line))
                found += [requirement._replace(span=span) for requirement in requirements]
                includes += others
    return found, includes


def _conda(item: str, start: int) -> Iterator[Requirement]:
    """``channel::name=1.2=build``: one ``=`` takes every release of 1.2."""
    match = re.fullmatch(r"(?:[\w.-]+::)?([\w.-]+)\s*(.*)", item.strip())
    if match is None:
        return
    rest = match[2].strip()
    fuzzy = re.fullmatch(r"=?\s*(\d+(?:\.\d+)*)(\.\*|\*)?(?:[=\s]\S*)?", rest)
    if fuzzy:
        exact = "=" in rest.lstrip("=") and not fuzzy[2]  # with a build it is one release
        versions: str | None = f"=={fuzzy[1]}" + ("" if exact else ".*")
    else:
        versions = rest if _CLAUSES.fullmatch(rest) else None
    yield Requirement(normal(match[1]), versions, Span(start, start + len(item)))


def read_lock(text: str, names: Iterable[str]) -> list[Requirement]:
    """What uv, Poetry, PDM, Pipenv and PEP 751 locked of these packages; a package locked twice is unknown.

    The files are generated, and large: two lines are looked for, the rest is not parsed.
    """
    wanted = set(names)
    found: dict[str, Requirement] = {}
    for match in (_PIPFILE if text.lstrip().startswith("{") else _LOCKED).finditer(text):
        name = normal(match[1])
        if name not in wanted:
            continue
        before = found.get(name)
        versions = f"=={match[2].partition('+')[0]}"
        if before is not None and before.versions != versions:
            found[name] = before._replace(versions=None)
        else:
            found[name] = Requirement(name, versions, Span(*match.span(2)))
    return list(found.values())
