"""Packages that a project needs, as pip reads them: a requirement of PEP 508, and files of requirements.

Nothing here raises: what cannot be read holds no requirement, and a version that a text alone does not tell (a branch
of a repository, a choice between two) is None. Other formats are read by `manifests`, `setup_script` and `installs`.
`packaging.requirements` is not used because of its import time (`catalog/versions.py`); only markers need it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.record import record
from zerocfg.source.text import Span


@record(frozen=True, slots=True)
class Requirement:
    """``name`` as package indexes compare it. ``versions``: clauses of PEP 440, "" for any, None where nobody can tell.

    ``marker``: the environments that it holds in, as PEP 508 writes them, empty for all. ``optional``: of an extra or a
    group, which an installation may leave out. ``own``: no requirement, but what the project itself is. ``extras``:
    those of the package that it asks for in brackets.
    """

    name: str
    versions: str | None
    span: Span
    marker: str = ""
    optional: bool = False
    own: bool = False
    extras: tuple[str, ...] = ()


_IN_NAMES = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"
# Compiled where a line has one: compiling these took half of the time that requirements of names alone cost.
_CLAUSES = r"(?:(?:===|==|~=|!=|>=|<=|>|<)\s*[\w.*+!-]+\s*(?:,\s*|$))*"
_INCLUDE = r"(?:-r|--requirement|-c|--constraint)(?:\s*=\s*|\s+|(?=[^\s=]))(\S+)"
_FROM_URL = r"(?:-e\s+|--editable[\s=]+)?((?:git|hg|svn|bzr)\+\S+|https?://\S+|file:\S+)"
_EGG = r"[#&]egg=([A-Za-z0-9._-]+)"
_TAGGED = r"\+\S+@v?(\d+(?:\.\d+)+)(?:#|\Z)|/tags/v?(\d+(?:\.\d+)+)\.(?:zip|tar\.gz)(?:#|\Z)"
_BRANCH = r"/([^/@]+?)(?:\.git)?@([A-Za-z][\w./-]*)(?:#|\Z)"
_FORKED = {"hf": "transformers", "transformers": "transformers", "trl": "trl"}
"""Words of a branch's name that tell what a repository with another name holds there: of projects that publish their
fork of a library as a branch of their own repository (``.../ALMA.git@alma-r-hf``)."""
_EXPORTED = r"[A-Za-z0-9][\w.-]*=\d"
_PACKED = r"/[A-Za-z0-9_.]+-(\d+(?:\.\d+)+)(?:\+[\w.]+)?(?:-[^/]*\.whl|\.tar\.gz)(?:#|\Z)"


def normalize_name(name: str) -> str:
    """A package name as indexes compare it: ``Deep_Speed`` is ``deep-speed``."""
    return re.sub(r"[-_.]+", "-", name).lower()


def parse_requirement(text: str, start: int, *, optional: bool = False) -> Requirement | None:
    """A requirement as PEP 508 writes it: ``name[extra]>=1; marker``, ``name @ url``."""
    stated = text.strip()
    name = stated[: len(stated) - len(stated.lstrip(_IN_NAMES))].rstrip("._-")
    if not name or name[0] in "._-":
        return None
    span = Span(start, start + len(text.rstrip()))
    rest, extras = stated[len(name) :].lstrip(), ""
    if rest.startswith("[") and "]" in rest:
        extras, _, rest = rest[1:].partition("]")
    rest, _, marker = rest.partition(";")
    rest = " ".join(rest.split())
    if rest.startswith("(") and rest.endswith(")"):
        rest = rest[1:-1].strip()
    if rest.startswith("@"):
        versions = requirement_from_url(rest[1:].strip())
    else:
        versions = rest.rstrip(", ") if are_clauses(rest) else None
    return Requirement(normalize_name(name), versions, span, marker.strip(), optional, extras=_extras(extras))


def are_clauses(text: str) -> bool:
    """Whether a text is clauses of PEP 440, or nothing: ``>=0.18,<0.20``."""
    return re.fullmatch(_CLAUSES, text) is not None


def _extras(listed: str) -> tuple[str, ...]:
    return tuple(normalize_name(extra.strip()) for extra in listed.split(",") if extra.strip())


def requirement_from_url(url: str) -> str | None:
    """The release that a URL names by a tag (``git+https://...@v0.17.1``) or in the name of a file."""
    found = re.search(_TAGGED, url) or re.search(_PACKED, url)
    return f"=={next(filter(None, found.groups()))}" if found else None


def conda_requirement(item: str, span: Span) -> Requirement | None:
    """``channel::name=1.2=build``: one ``=`` takes every release of 1.2."""
    match = re.fullmatch(r"(?:[\w.-]+::)?([\w.-]+)\s*(.*)", item.strip())
    if match is None:
        return None
    rest = match[2].strip()
    fuzzy = re.fullmatch(r"=?\s*(\d+(?:\.\d+)*)(\.\*|\*)?(?:[=\s]\S*)?", rest)
    if fuzzy:
        exact = "=" in rest.lstrip("=") and not fuzzy[2]  # with a build it is one release
        versions: str | None = f"=={fuzzy[1]}" + ("" if exact else ".*")
    else:
        versions = rest if are_clauses(rest) else None
    return Requirement(normalize_name(match[1]), versions, span)


def read_requirements(text: str) -> tuple[list[Requirement], list[str]]:
    """A pip requirements file, and the files that it includes. pip refuses a line with a single ``=``: such a file is
    one that `conda list --export` wrote, for `conda create --file`."""
    found: list[Requirement] = []
    includes: list[str] = []
    for start, line in _logical_lines(text):
        stripped = (re.sub(r"(^|\s)#.*", "", line, flags=re.DOTALL) if "#" in line else line).strip()
        start += len(line) - len(line.lstrip())
        include = re.match(_INCLUDE, stripped) if stripped.startswith("-") else None
        if include:
            includes.append(include[1])
        elif stripped:
            exported = re.match(_EXPORTED, stripped) if "=" in stripped else None
            span = Span(start, start + len(stripped))
            requirement = conda_requirement(stripped, span) if exported else argument(stripped, start)
            if requirement is not None:
                found.append(requirement)
    return found, includes


def argument(text: str, start: int) -> Requirement | None:
    """What pip installs for a line of a requirements file, or for a word of its command: a requirement or a URL."""
    url = re.match(_FROM_URL, text) if ":" in text else None
    if url:
        egg = re.search(_EGG, url[1])
        last = url[1].split("#")[0].rstrip("/").rpartition("/")[2]
        name = egg[1] if egg else _forked(url[1]) or re.split(r"\.git|@|-\d", last)[0]
        return Requirement(normalize_name(name), requirement_from_url(url[1]), Span(start, start + len(text)))
    if text.startswith("-"):
        return None
    if "-" in text:  # --hash=..., --config-settings=...
        text = re.split(r"\s--?[a-z]", text)[0].rstrip()
    return parse_requirement(text, start)


def _forked(url: str) -> str | None:
    """The library whose fork a branch holds by its name; None where the repository's own name says what it is."""
    branch = re.search(_BRANCH, url)
    if branch is None or branch[1].lower() in _FORKED.values():
        return None
    return next((_FORKED[word] for word in re.split(r"[\W_]", branch[2].lower()) if word in _FORKED), None)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their offset; one that ends in a backslash goes on, its break blanked out so that offsets stay."""
    joined, begin, at = "", 0, 0
    for line in text.splitlines(keepends=True):
        body = line.rstrip("\r\n")
        begin = begin if joined else at
        at += len(line)
        if body.endswith("\\"):
            joined += body[:-1] + " " * (len(line) - len(body) + 1)
            continue
        yield begin, joined + body
        joined = ""
    if joined:
        yield begin, joined
