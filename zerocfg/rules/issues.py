"""What the catalog finds in the files of a run, and where: shared by the rules of keys and of values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from zerocfg.catalog.check import Issue, check
from zerocfg.catalog.history import histories, name_in
from zerocfg.catalog.older import WALKED, differing, schema_at
from zerocfg.catalog.release_range import range_where
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.versions import LIBRARY_NAMES, Bounds, Release, bounds, release
from zerocfg.patterns import pattern
from zerocfg.record import field, record, replace
from zerocfg.rules.api import Finding, Location
from zerocfg.rules.effects import BUILT, brings, compute_environment
from zerocfg.rules.key import Key
from zerocfg.rules.release_scope import limited
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.templates import placeholder_in
from zerocfg.source.node import Mapping, Path, Scalar

_OF_VALUES = frozenset(("type", "range", "choice", "null", "section-type", "raw-type"))
"""The kinds of issues that are about the value; the others are about the key."""
_OF_TYPES = ("type", "raw-type")


@record(frozen=True, slots=True)
class KeyIssue(Key):
    """A key that the catalog has an issue with. ``library``: who reads its file, as people write the name."""

    file: SourceFile
    issue: Issue = field(kw_only=True)
    library: str = field(kw_only=True)

    def at(self, where: str = "entry", label: str = "") -> Location:
        """The place of what the issue is about, the key or its value; of a section, which would be underlined as a
        whole, the key alone."""
        entry = self.issue.entry
        if where == "entry":
            where = "value" if self.issue.kind in _OF_VALUES else "key"
        span = entry.key_span if where == "key" or isinstance(entry.value, Mapping) else entry.value.span
        return Location(self.file, self.path, where, span, label)

    def _completed(self, finding: Finding) -> Finding:
        """Where only some of the admitted releases have the issue, the finding says so."""
        releases = self.issue.releases
        if releases is not None:
            return limited(self.run, finding, releases.library, releases.words)
        finding.assumes |= _assumed(self)
        return finding

    @property
    def unfilled(self) -> bool:
        """Whether the value is a placeholder: ZC013 tells those."""
        return self.file.document is not None and placeholder_in(self.issue.entry.value, self.file.document) is not None


def documents(run: Run) -> Iterator[tuple[SourceFile, str]]:
    """The files of a run that a compiled schema describes, with its name."""
    if run.accelerate is not None:
        environment = compute_environment(run)
        if environment in (None, "LOCAL_MACHINE"):
            yield run.accelerate, "accelerate"
        elif environment == "AMAZON_SAGEMAKER":
            yield run.accelerate, "accelerate-sagemaker"
    if run.deepspeed is not None:
        yield run.deepspeed, "deepspeed"
    if run.spec is not None:
        yield run.spec, "spec"


def issues(run: Run, *kinds: str) -> Iterator[KeyIssue]:
    """The keys that the catalog has issues of these kinds with."""
    for file, name in documents(run):
        if file.document is None:
            continue
        library = LIBRARY_NAMES.get(name, "zerocfg" if name == "spec" else "accelerate")
        for issue in _admitted(run, file, name):
            if issue.kind not in kinds or (issue.kind.startswith("unknown") and name in run.forked):
                continue  # a fork may have keys of its own
            if name == "deepspeed" and issue.kind in _OF_TYPES and scientific_text(file, issue.entry.value):
                continue  # DeepSpeed reads no YAML; the program that does may convert it, as OmegaConf does
            if (
                name == "deepspeed"
                and issue.kind in _OF_VALUES
                and issue.path[0] in BUILT
                and brings(run, str(issue.path[0]))
            ):
                continue  # DeepSpeed builds nothing of the section
            key = KeyIssue(run, file, issue.path, issue.value, issue=issue, library=library)
            if file.document.editable or not key.unfilled:  # a value that the script makes is not known
                yield key


def _admitted(run: Run, file: SourceFile, name: str) -> Iterable[Issue]:
    """The issues that the releases have which the project admits; today's where it says nothing about them."""
    declared = run.declared(name) if name in run.versions else None
    limits = bounds(declared) if declared and name in WALKED else None
    if limits is None or limits[0] >= release(VERSIONS[name]):
        return _checked(file, name, None)
    return _together(file, _differing(file, name, limits), name)


@remembered
def _differing(file: SourceFile, name: str, limits: Bounds) -> tuple[Release, ...]:
    """As `differing`, for the keys of a file; asked once, however many rules look at it."""
    names = _names(file, name)
    return tuple(differing(name, lambda key: key.removesuffix(".*") in names, limits))


@remembered
def _together(file: SourceFile, releases: tuple[Release, ...], name: str) -> tuple[Issue, ...]:
    """The issues of each of these releases, newest first, each once: with the releases that have it, unless all do.

    A key that some of them refuse is not told again for those that pass over it.
    """
    where: dict[tuple[str, Path], list[bool]] = {}
    first: dict[tuple[str, Path], Issue] = {}
    for at in reversed(range(len(releases))):
        for issue in _checked(file, name, releases[at]):
            if issue.kind.startswith("unknown") and _known_today(name, issue):
                continue  # the key came later: ZC865
            where.setdefault((issue.kind, issue.path), [False] * len(releases))[at] = True
            first.setdefault((issue.kind, issue.path), issue)
    kept = (which for which in first if which[0] != "unknown-ignored" or ("unknown-crash", which[1]) not in first)
    return tuple(replace(first[which], releases=range_where(name, releases, where[which])) for which in kept)


def _known_today(name: str, issue: Issue) -> bool:
    key = load_schema(name).find(tuple(str(part) for part in issue.path))
    return key is not None and "removed" not in key.facts


@remembered
def _names(file: SourceFile, library: str) -> frozenset[str]:
    """What histories call the keys of a file."""
    found: set[str] = set()

    def walk(data: object, above: tuple[str, ...]) -> None:
        for key, value in data.items() if isinstance(data, dict) else ():
            found.add(name_in(library, (*above, str(key))))
            walk(value, (*above, str(key)))

    walk(file.data(), ())
    scheduler = file.data()
    chosen = scheduler.get("scheduler") if library == "deepspeed" and isinstance(scheduler, dict) else None
    kind = chosen.get("type") if isinstance(chosen, dict) else None
    return frozenset(found | {f"scheduler.{kind}.{name.rpartition('.')[2]}" for name in found if ".params." in name})


def _assumed(key: KeyIssue) -> frozenset[str]:
    """The library whose newest release an issue is about: nothing tells the project's, and others read the key
    differently."""
    name = next((name for file, name in documents(key.run) if file is key.file), "")
    if name not in WALKED or name in key.run.versions:
        return frozenset()
    path = tuple(str(part) for part in key.path)
    known = histories(name)
    strict = key.issue.kind.startswith("unknown") and known.strictness_changed(".".join(path[:-1]))
    return frozenset((name,)) if strict or known.changed(name_in(name, path)) else frozenset()


@remembered
def _checked(file: SourceFile, name: str, at: Release | None) -> tuple[Issue, ...]:
    """Checked once, however many rules and runs look at the file."""
    schema = load_schema(name) if at is None else schema_at(name, at)
    return tuple(check(file.document.root if file.document else None, schema))


PYTHON_WORDS = {"True": "true", "False": "false", "None": "null"}
_PYTHON_WORD = pattern(r"(True|False|None)\b")


def python_word(run: Run, file: SourceFile, node: object) -> str | None:
    """True, False or None as a bare word of a JSON that DeepSpeed alone reads, where it begins a text."""
    if run.consumer != "deepspeed" or file is not run.deepspeed or not isinstance(node, Scalar) or node.quoted:
        return None
    found = _PYTHON_WORD.match(node.value) if isinstance(node.value, str) else None
    return found[0] if found else None


_SCIENTIFIC = pattern(r"[-+]?(\d[\d_]*)(\.\d*)?[eE][-+]?\d+")


def scientific_text(file: SourceFile, node: object) -> str | None:
    """A number in scientific notation that a YAML file has without quotes, and that YAML 1.1 reads as a text."""
    document = file.document
    if document is None or document.format != "yaml" or not isinstance(node, Scalar) or node.quoted:
        return None
    return node.raw if isinstance(node.value, str) and _SCIENTIFIC.fullmatch(node.raw) else None
