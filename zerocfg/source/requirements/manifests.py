"""The files other than pip's in which a project states the packages that it needs, each read into requirements.

Nothing here raises, as in `requirements`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace

from zerocfg.budgets import DIGITS
from zerocfg.source.requirements.pip import (
    Requirement,
    are_clauses,
    conda_requirement,
    normalize_name,
    parse_requirement,
    read_requirements,
)
from zerocfg.source.text import Span

_LOCKED = re.compile(r"""^name = ["']([^"'\n]+)["']\r?\nversion = ["']([^"'\n]+)["']""", re.MULTILINE)
_PIPFILE = re.compile(r'"([A-Za-z0-9._-]+)"\s*:\s*\{[^{}]*?"version"\s*:\s*"==([^"]+)"')
_CONDA_LOCK = re.compile(r"""^- name: ["']?([^"'\s]+)["']?\r?\n {2}version: ["']?([^"'\s]+)["']?""", re.MULTILINE)
_FROM_FILE = re.compile(r"file:\s*(.*)", re.DOTALL)

Read = tuple[list[Requirement], list[str]]
"""What a file states, and the requirements files that it takes in, as it names them."""


def read_pyproject(text: str) -> Read:
    """``[project]``, ``[dependency-groups]`` and the tables of Poetry, PDM and uv; a source of its own (uv) makes a
    version unknown, and what uv overrides replaces all else."""
    table = _toml(text)
    project = _table(table, "project")
    found = [*_itself(text, project), *_python(text, "requires-python", project.get("requires-python"))]
    found += _listed(text, project.get("dependencies"), optional=False)
    groups = (project.get("optional-dependencies"), table.get("dependency-groups"))
    for group in (*groups, _table(table, "tool", "pdm", "dev-dependencies")):
        for items in group.values() if isinstance(group, dict) else ():
            found += _listed(text, items, optional=True)
    poetry = _table(table, "tool", "poetry")
    found += [*_itself(text, poetry), *_poetry(text, poetry.get("dependencies"), optional=False)]
    groups_of = _table(poetry, "group")
    for items in [poetry.get("dev-dependencies"), *(_table(groups_of, name).get("dependencies") for name in groups_of)]:
        found += _poetry(text, items, optional=True)
    uv = _table(table, "tool", "uv")
    found += _listed(text, uv.get("dev-dependencies"), optional=True)
    found += _listed(text, uv.get("constraint-dependencies"), optional=False)
    forced = list(_listed(text, uv.get("override-dependencies"), optional=False))
    replaced = {item.name for item in forced}
    found = [item for item in found if item.name not in replaced] + forced
    sources = {normalize_name(name) for name in _table(uv, "sources")}
    dynamic = _table(table, "tool", "setuptools", "dynamic", "dependencies").get("file")
    includes = [dynamic] if isinstance(dynamic, str) else dynamic if isinstance(dynamic, list) else []
    return (
        [replace(item, versions=None) if item.name in sources and not item.own else item for item in found],
        [include for include in includes if isinstance(include, str)],
    )


def _itself(text: str, table: dict[str, object]) -> Iterator[Requirement]:
    """What the project itself is: a copy of a library is used as that library."""
    name, version = table.get("name"), table.get("version")
    if isinstance(name, str):
        match = re.search(rf"""^name\s*=\s*["']({re.escape(name)})["']""", text, re.MULTILINE)
        yield itself(name, version, Span(*match.span(1)) if match else Span(0, 0))


def _python(text: str, key: str, clauses: object) -> Iterator[Requirement]:
    """The Python that a project requires, as a requirement of ``python``. ``key``: the line that states it."""
    if isinstance(clauses, str):
        match = re.search(rf"""^\s*{key}\s*=\s*(.*\S)""", text, re.MULTILINE)
        yield python(clauses, Span(*match.span(1)) if match else Span(0, 0))


def python(clauses: str, span: Span) -> Requirement:
    return Requirement("python", clauses.strip() if are_clauses(clauses.strip()) else None, span)


def itself(name: str, version: object, span: Span) -> Requirement:
    """The project as a requirement. ``version``: as it states it, of use where that is a number."""
    known = isinstance(version, str) and re.match(r"v?\d+\.\d", version) is not None
    return Requirement(normalize_name(name), f"=={version}" if known else None, span, own=True)


def read_pipfile(text: str) -> list[Requirement]:
    """The requirements of a Pipfile; its format is Poetry's."""
    table = _toml(text)
    packages = _poetry(text, table.get("packages"), optional=False)
    version = _table(table, "requires").get("python_version")
    python = _python(text, "python_version", f"=={version}.*" if isinstance(version, str) else None)
    return [*python, *packages, *_poetry(text, table.get("dev-packages"), optional=True)]


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
            requirement = parse_requirement(item, start, optional=optional)
            if requirement is not None:
                yield requirement


def _poetry(text: str, items: object, *, optional: bool) -> Iterator[Requirement]:
    for name, value in items.items() if isinstance(items, dict) else ():
        match = re.search(rf"""^\s*["']?({re.escape(name)})["']?\s*=""", text, re.MULTILINE)
        span = Span(match.start(1), match.end(1)) if match else Span(0, 0)
        left_out = optional or (isinstance(value, dict) and value.get("optional") is True)
        version = value.get("version") if isinstance(value, dict) else value
        versions = _from_poetry(version) if isinstance(version, str) else None
        yield Requirement(normalize_name(name), versions, span, optional=left_out)


def _from_poetry(text: str) -> str | None:
    """Poetry's ``^1.2`` and ``~1.2`` in clauses of PEP 440; a bare version is exact."""
    clauses = []
    for part in (part.strip() for part in text.split(",")):
        match = re.fullmatch(r"([\^~])\s*(\d+(?:\.\d+)*)", part)
        if match:
            numbers = [int(number[:DIGITS]) for number in match[2].split(".")]
            kept = 1 if match[1] == "~" and len(numbers) == 1 else 2
            if match[1] == "^":  # up to the first number that is not 0
                kept = next((at for at, number in enumerate(numbers, 1) if number), len(numbers))
            numbers = numbers[:kept]
            numbers[-1] += 1
            clauses.append(f">={match[2]},<{'.'.join(map(str, numbers))}")
        elif re.fullmatch(r"\d+(?:\.\d+)*(?:\.\*)?", part):
            clauses.append(f"=={part}")
        elif are_clauses(part):
            clauses.append(part)
        elif part != "*":
            return None
    return ",".join(clauses)


def read_setup_cfg(text: str) -> Read:
    """``install_requires`` and the extras of setuptools' setup.cfg."""
    import configparser

    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read_string(text)
    except (configparser.Error, ValueError):
        return [], []
    found: list[Requirement] = []
    includes: list[str] = []
    name = parser.get("metadata", "name", fallback="")
    if name:
        start = max(0, text.find(name))
        found.append(itself(name, parser.get("metadata", "version", fallback=None), Span(start, start + len(name))))
    needed = parser.get("options", "python_requires", fallback="")
    if needed:
        found.append(python(needed, Span(at := max(0, text.find(needed)), at + len(needed))))
    firm = parser.get("options", "install_requires", fallback="")
    extras = parser.items("options.extras_require") if parser.has_section("options.extras_require") else []
    for block, optional in [(firm, False), *((value, True) for _, value in extras)]:
        listed = _FROM_FILE.fullmatch(block.strip())
        if listed and not optional:
            includes += [word.strip() for word in listed[1].split(",") if word.strip()]
        for line in filter(None, (line.strip() for line in block.splitlines() if listed is None)):
            requirement = parse_requirement(line, max(0, text.find(line)), optional=optional)
            if requirement is not None:
                found.append(requirement)
    return found, includes


def read_environment(text: str, data: object) -> Read:
    """A conda environment file and the files that its pip section includes; ``data`` is its parsed content."""
    found: list[Requirement] = []
    includes: list[str] = []
    items = data.get("dependencies") if isinstance(data, dict) else None
    for item in items if isinstance(items, list) else ():
        if isinstance(item, str):
            start = max(0, text.find(item))
            requirement = conda_requirement(item, Span(start, start + len(item)))
            found += [requirement] if requirement is not None else []
        lines = item.get("pip") if isinstance(item, dict) else None
        for line in lines if isinstance(lines, list) else ():
            if isinstance(line, str):
                requirements, others = read_requirements(line)
                start = max(0, text.find(line))
                span = Span(start, start + len(line))
                found += [replace(requirement, span=span) for requirement in requirements]
                includes += others
    return found, includes


def read_lock(text: str, names: Iterable[str]) -> list[Requirement]:
    """What uv, Poetry, PDM, Pipenv, conda-lock and PEP 751 locked of these packages; one that is locked for several
    environments stands there once for each of its versions.

    The files are generated, and large: two lines are looked for, the rest is not parsed.
    """
    wanted = set(names)
    found: dict[tuple[str, str], Requirement] = {}
    form = _PIPFILE if text.lstrip().startswith("{") else _CONDA_LOCK if "\n- name: " in text else _LOCKED
    for match in form.finditer(text):
        name, versions = normalize_name(match[1]), f"=={match[2].partition('+')[0]}"
        if name in wanted:
            found.setdefault((name, versions), Requirement(name, versions, Span(*match.span(2))))
    return list(found.values())
