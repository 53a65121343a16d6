"""Running the rules over runs: findings become diagnostics, suppressed, sorted, reported once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from typing import TYPE_CHECKING

from zerocfg.budgets import FINDINGS
from zerocfg.frontends import registry as front_ends
from zerocfg.internal_errors import Containment, InternalError, contain, in_a_line
from zerocfg.linter.applicability import UNUSED_BY, behind_start, holds, within
from zerocfg.linter.concerned import Kind, concerns, kind_of, rules_for
from zerocfg.linter.ignores import Ignores, not_understood
from zerocfg.linter.kept import Findings, Kept
from zerocfg.linter.reader_agreement import Edits, Readers, edits_of
from zerocfg.linter.selection import Selection
from zerocfg.record import field, record, replace
from zerocfg.rules import registry
from zerocfg.rules.api import OWN, Finding, Fix, Location, Rule, Severity
from zerocfg.rules.files.ignores import unknown_code_in_ignore, unused_ignore
from zerocfg.rules.files.reading import checked_in_part
from zerocfg.rules.place import FileSpan, file_span
from zerocfg.rules.registry import find
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import ImportedName, NewInstallStop, Run, SourceFile, original
from zerocfg.run.releases import OutsideKnownReleases, outside_known_releases, training_libraries
from zerocfg.run.unchecked import UncheckedFile, understood
from zerocfg.source import disk
from zerocfg.source.foreign import one_line
from zerocfg.source.text import Place

if TYPE_CHECKING:
    from zerocfg.linter.release_range import ReleaseRange

DOCS = "docs/rules/"
"""Where the pages of the rules are in zerocfg's repository."""


@record(frozen=True, slots=True)
class Diagnostic:
    """One reported finding."""

    code: str
    name: str
    severity: Severity
    message: str
    help: str
    span: FileSpan
    related: tuple[FileSpan, ...] = ()
    fix: Fix | None = None
    run: str = ""
    also_in: tuple[str, ...] = ()
    """Names of the other runs in which the same is found at the same place."""
    assumes: frozenset[str] = frozenset()
    """The libraries whose newest release it is about, because nothing tells which one the project has."""
    releases: ReleaseRange | None = None
    """The releases in which it holds, where somebody asked for them."""
    met_in: frozenset[str] = frozenset()
    """Names of all runs in which the rule finds something at this place, or anything that the same edits mend."""

    @property
    def full_message(self) -> str:
        """The message, and in how many other runs it holds as well."""
        more = len(self.also_in)
        return f"{self.message} (and in {more} more run{'s' * (more != 1)})" if more else self.message

    @property
    def url(self) -> str:
        return f"{DOCS}{self.code}.md" if self.code.startswith(OWN) else ""


@record(frozen=True, slots=True)
class Suppressed:
    """A suppressed finding. ``by``: "comments", "settings" or "baseline"; ``reason``: what a comment says."""

    diagnostic: Diagnostic
    by: str
    reason: str = ""


@record
class Result:
    """``suppressed``: what was found and is not reported. ``stale``: entries of the baseline that no longer occur.

    ``together``: the files of each run by real path; what one says may depend on the others. ``runs``: these
    runs; ``failures``: what it will be refused for, by kind and key. ``selection``: of the rules.
    ``unread``: files that could not be checked.
    ``notes``: how many notes are left out of the diagnostics, because nobody asked for them. ``internal_errors``: what
    could not be checked because of a bug of zerocfg.
    """

    diagnostics: list[Diagnostic] = field(default_factory=list)
    suppressed: list[Suppressed] = field(default_factory=list)
    files: int = 0
    stale: int = 0
    together: list[frozenset[str]] = field(default_factory=list)
    runs: Sequence[Run] = ()
    failures: list[frozenset[tuple[str, str]]] = field(default_factory=list)
    selection: Selection = Selection()
    unread: tuple[UncheckedFile, ...] = ()
    notes: int = 0
    internal_errors: tuple[InternalError, ...] = ()

    @property
    def ran(self) -> frozenset[str]:
        """The codes of the rules that ran, and of those that had nothing to look at."""
        return frozenset(rule.code for rule in self.selection.among(registry.with_outside(registry.ALL)))

    @property
    def assumed(self) -> dict[str, str]:
        """The releases that the diagnostics are about where nothing tells which one the project has, by library."""
        named = set().union(*(diagnostic.assumes for diagnostic in self.diagnostics))
        return {library: VERSIONS[library] for library in sorted(named & VERSIONS.keys())}

    @property
    def outside(self) -> list[OutsideKnownReleases]:
        """Where a project admits no release that is known."""
        return list(dict.fromkeys(item for run in self.runs for item in outside_known_releases(run)))

    @property
    def outdated(self) -> dict[str, ImportedName]:
        """Where scripts import what the newest release lacks and nothing tells which one the project has: one such name
        for each library."""
        found: dict[str, ImportedName] = {}
        for run in self.runs:
            for library in training_libraries(run) if run.outdated else ():
                if library in run.outdated:
                    found.setdefault(library, run.outdated[library])
        return found

    @property
    def new_install_stops(self) -> list[NewInstallStop]:
        """Why runs do not start with what a new install brings, where `outdated` does not say so: one reason for each
        library."""
        found = {
            run.new_install_stop.library: run.new_install_stop
            for run in reversed(self.runs)
            if run.new_install_stop is not None and run.new_install_stop.library not in self.outdated
        }
        return [found[library] for library in sorted(found)]

    @property
    def suppressed_by(self) -> dict[str, int]:
        """How many findings are suppressed, by what suppresses them."""
        return dict(Counter(item.by for item in self.suppressed))


def lint_runs(
    runs: Sequence[Run],
    selection: Selection | None = None,
    asked: set[int] | None = None,
    *,
    complete: bool | Set[int] = False,
    excluded: Set[int] = frozenset(),
    contained: Containment | None = None,
    notes: bool = True,
    fixes: bool = True,
    kept: Kept | None = None,
) -> Result:
    """Diagnostics of all runs, each reported once, in the order of files and lines.

    ``asked`` limits them to findings that touch one of these source files (by id); None means all. Nothing is reported
    about ``excluded`` files alone. ``complete``: the runs are all that their files take part in, so that a comment
    which silenced nothing is known to be of no use; a set of ids says it of these files. Where ``contained`` takes what
    fails inside zerocfg, a rule that fails on a run costs that rule on that run; without it such an error is raised.
    ``notes`` False: those that `without_notes` takes out are there to be counted, and have no fix. ``fixes``: whether
    anybody applies them; for whom each is right is not asked otherwise, and none is offered. ``kept``: findings of an
    earlier lint, for runs that are the same.
    """
    return _Lint(selection or Selection(), asked, excluded, contained, notes, fixes, kept).run(runs, complete)


def findings_of_each(runs: Iterable[Run], selection: Selection) -> Iterator[list[tuple[Rule, Finding]]]:
    """What the rules find in each run by itself, without fixes, also where comments silence it: for many runs that
    differ in little, as those of one run with each known release."""
    lint = _Lint(selection, set(), frozenset(), None, True, False, None)
    rules: dict[int, Sequence[Rule]] = {}
    for run in runs:
        lint.known = rules_for([run])
        if id(lint.known) not in rules:
            rules[id(lint.known)] = selection.among(lint.known)
        kind = kind_of(run)
        lint.check_all([rule for rule in rules[id(lint.known)] if concerns(rule, kind)], run)
        yield lint.found


def without_notes(result: Result, selection: Selection) -> Result:
    """The result for those who did not ask for notes: those of rules that were selected by their own code or name are
    left, the others are counted."""
    shown = [diagnostic for diagnostic in result.diagnostics if wanted_note(diagnostic, selection)]
    return replace(result, diagnostics=shown, notes=len(result.diagnostics) - len(shown))


def wanted_note(diagnostic: Diagnostic, selection: Selection) -> bool:
    """Whether a finding is reported where notes are not: no note, or its rule was selected by its own code or name."""
    chosen = (diagnostic.code, diagnostic.name)
    return diagnostic.severity is not Severity.NOTE or any(word in chosen for word in selection.select)


class _Lint:
    def __init__(
        self,
        selection: Selection,
        asked: set[int] | None,
        excluded: Set[int],
        contained: Containment | None,
        notes: bool,
        fixes: bool,
        kept: Kept | None,
    ) -> None:
        self.contained = contained
        self.fixes = fixes
        self.selection = selection
        self.asked = asked
        self.excluded = excluded
        self.notes = notes
        self.ignores = Ignores()
        self.seen: dict[tuple[str, str, Place, str], Diagnostic] = {}
        self.others: dict[tuple[str, str, Place, str], dict[str, None]] = {}
        self.met: dict[tuple[str, str, Place, str], set[str]] = {}
        self.mended: dict[tuple[str, Edits], set[str]] = {}
        self.edits: dict[int, tuple[Fix, Edits]] = {}
        """By id of a fix, which is kept with them."""
        self.known: Sequence[Rule] = ()
        self.kept = kept
        self.broken: set[str] = set()
        """The rules of other packages that failed."""
        self.found: Findings = []
        """Of the run that is being checked."""
        self.result = Result(selection=selection)

    def run(self, runs: Sequence[Run], complete: bool | Set[int]) -> Result:
        self.known = rules_for(runs)
        rules = self.selection.among(self.known)
        concerned: dict[Kind, list[Rule]] = {}
        for stated in runs:
            kind = kind_of(stated)
            if kind not in concerned:
                concerned[kind] = [rule for rule in rules if concerns(rule, kind)]
            known = self.kept.findings(stated, concerned[kind]) if self.kept is not None else None
            if known is None:
                self.check_all(concerned[kind], stated)
            else:
                for rule, finding in known:
                    self.take(rule, finding, stated)
        self.not_loaded(runs)
        result = self.result
        names = {id(file): file for run in runs for file in run.files}
        real = {key: real_name(file) for key, file in names.items()}  # many runs read the same few files
        result.together = [frozenset(real[id(file)] for file in run.files) for run in runs]
        result.runs = runs
        result.failures = [_failures(run) for run in runs]
        if complete and unused_ignore in rules:
            self.find_unused(runs, rules, None if complete is True else complete)
        spoken_of = {id(item.span.file) for item in result.diagnostics}
        read = (file for run in runs for file in run.files if understood(file) or id(file) in spoken_of)
        result.files = len({file.name for file in read})
        readers = Readers(runs, self.kept.readers if self.kept is not None else None)
        if self.kept is not None:
            self.kept.readers = readers
        result.diagnostics = [self.agreed(self.everywhere(diagnostic), readers) for diagnostic in result.diagnostics]
        result.diagnostics.sort(key=lambda d: (d.span.file.name, d.span.start, d.code))
        return result

    def check_all(self, rules: Sequence[Rule], stated: Run) -> None:
        """Ask the rules about a run. What they find is kept, unless one failed: that is told in every lint."""
        run, whole = replace(stated, undeclared=set()), True
        self.found = []
        for rule in rules:
            run.undeclared.clear()  # what a rule asks for in vain is said of its own findings
            try:
                self.check(rule, run)
            except Exception as error:
                whole = False
                if rule.package and not isinstance(error, MemoryError):
                    self.failed(rule, error, run)
                    continue
                if self.contained is None:
                    raise
                self.contained.take(error, f"check {rule.code} in the run `{run.name}`", run.main_file)
        if self.kept is not None and whole:
            self.kept.keep(stated, rules, self.found)

    def check(self, rule: Rule, run: Run) -> None:
        releases = holds(rule, run) if rule.versions else ""
        if releases is None:
            return
        found = not_understood(run, self.known) if rule is unknown_code_in_ignore else rule.check(run)
        for number, finding in enumerate(found):
            if number == FINDINGS:
                return self.more(rule, finding, run)
            applied = within(run, rule, finding, releases)
            if applied is not None:
                applied = behind_start(run, rule, applied)
                if not self.fixes:
                    applied = replace(applied, fix=None)
                applied.assumes |= run.undeclared - UNUSED_BY.get(run.consumer or "", frozenset())
                if not applied.assumes.isdisjoint(run.outdated):
                    continue  # it is about a release that the project does not have
                self.found.append((rule, applied))
                self.take(rule, applied, run)

    def more(self, rule: Rule, finding: Finding, run: Run) -> None:
        """Tell that a rule has more findings in a run than are told, of which this is the first."""
        if self.selection.wants(checked_in_part):
            message = f"more than {FINDINGS:,} findings of {rule.code} in this run; the others are not told"
            limit = Finding(finding.location, message, "correct those that are listed first")
            self.found.append((checked_in_part, limit))
            self.take(checked_in_part, limit, run)

    def failed(self, rule: Rule, error: Exception, run: Run) -> None:
        """Say once that a rule of another package failed; it is asked about the other runs all the same."""
        if rule.code not in self.broken and run.files:
            self.broken.add(rule.code)
            message = f"{rule.code} of the package {rule.package} failed: {in_a_line(error)}"
            self.say_in_part(message, "report it to those who made the package; all other rules were asked", run)

    def not_loaded(self, runs: Sequence[Run]) -> None:
        """Say which rules and front ends of other packages could not be taken, and which front ends failed."""
        with_files = [run for run in runs if run.files]
        for problem in (*registry.problems(), *front_ends.problems()) if with_files else ():
            self.say_in_part(problem, "update or uninstall the package", with_files[0])

    def say_in_part(self, message: str, help_text: str, run: Run) -> None:
        """Report that some rule was not asked, at the first file of a run."""
        if self.selection.wants(checked_in_part):
            self.take(checked_in_part, Finding(Location(run.files[0]), message, help_text), run)

    def find_unused(self, runs: Sequence[Run], rules: Sequence[Rule], among: Set[int] | None) -> None:
        """The comments that silenced nothing, now that every rule has spoken; ``among`` some files or in all."""
        ran = {word for rule in rules for word in (rule.code, rule.name)}
        everything = self.selection.everything
        by_file = {id(file): (file, run) for run in runs for file in map(original, run.files)}
        for file, run in by_file.values():
            if among is not None and id(file) not in among:
                continue
            for number, finding in enumerate(self.ignores.unused([file], ran, everything)):
                if number == FINDINGS:
                    self.more(unused_ignore, finding, run)
                    break
                self.take(unused_ignore, finding, run)

    def agreed(self, diagnostic: Diagnostic, readers: Readers) -> Diagnostic:
        """The diagnostic, without a fix that is not right for everybody who may read the files."""
        rule = find(diagnostic.code)
        if diagnostic.fix is None or rule is None:
            return diagnostic
        if not self.notes and not wanted_note(diagnostic, self.selection):
            return replace(diagnostic, fix=None)  # to ask every reader about a fix takes half of the time of a lint
        with contain(self.contained, f"tell for whom the fix of {rule.code} is right", diagnostic.span.file.name):
            if readers.agree(rule, diagnostic.severity, diagnostic.fix):
                return diagnostic
        return replace(diagnostic, fix=None)

    def everywhere(self, diagnostic: Diagnostic) -> Diagnostic:
        """The diagnostic with the other runs in which it was found."""
        key = _key(diagnostic)
        met = self.met[key]
        if diagnostic.fix is not None:
            met = met | self.mended[diagnostic.code, self.edits_of(diagnostic.fix)]
        return replace(diagnostic, also_in=tuple(self.others.get(key, ())), met_in=frozenset(met))

    def edits_of(self, fix: Fix) -> Edits:
        known = self.edits.get(id(fix))
        if known is None:
            known = self.edits[id(fix)] = fix, edits_of(fix)
        return known[1]

    def take(self, rule: Rule, finding: Finding, run: Run) -> None:
        """Report a finding, unless it was reported before, is about files nobody asked for, or is suppressed."""
        if self.asked is not None and not _touches(finding, self.asked):
            return
        if self.excluded and all(id(original(where.file)) in self.excluded for where in _places(finding)):
            return
        diagnostic = diagnose(rule, finding, run)
        where = diagnostic.span
        key = _key(diagnostic)
        self.met.setdefault(key, set()).add(run.name)
        if diagnostic.fix is not None:
            self.mended.setdefault((rule.code, self.edits_of(diagnostic.fix)), set()).add(run.name)
        first = self.seen.setdefault(key, diagnostic)
        if first.severity is Severity.NOTE and diagnostic.severity is not Severity.NOTE:
            first = self.in_its_place(key, diagnostic)
        if first is not diagnostic:
            if run.name != first.run and diagnostic.message == first.message:
                self.others.setdefault(key, {})[run.name] = None
            return
        comment = self.ignores.cover(where.file, where.start.line, diagnostic.code, diagnostic.name)
        if comment is not None:
            self.result.suppressed.append(Suppressed(diagnostic, "comments", comment.reason))
        elif self.selection.ignores(diagnostic.code, diagnostic.name, where.file, where.path):
            self.result.suppressed.append(Suppressed(diagnostic, "settings"))
        else:
            self.result.diagnostics.append(diagnostic)

    def in_its_place(self, key: tuple[str, str, Place, str], graver: Diagnostic) -> Diagnostic:
        """Report a finding in the place of the note that an earlier run made of it; that run is no longer named."""
        self.seen[key] = graver
        self.others.pop(key, None)
        self.result.diagnostics = [one for one in self.result.diagnostics if _key(one) != key]
        return graver


def _failures(run: Run) -> frozenset[tuple[str, str]]:
    """What a run will be refused for: the kind, and each key that is compared."""
    kinds = {(failure.kind, "") for failure in run.effective.failures}
    return frozenset(
        kinds | {(failure.kind, other.key) for failure in run.effective.failures for other in failure.differences}
    )


def _key(diagnostic: Diagnostic) -> tuple[str, str, Place, str]:
    """Findings that agree in it are one."""
    where = diagnostic.span
    return diagnostic.code, where.file.name, where.start, where.path


def real_name(file: SourceFile) -> str:
    """The real path of a file; what standard input is called."""
    return disk.real(file.path) if file.path is not None else file.name


def diagnose(rule: Rule, finding: Finding, run: Run) -> Diagnostic:
    """Make a finding concrete."""
    return Diagnostic(
        code=rule.code,
        name=rule.name,
        severity=finding.severity or rule.severity,
        message=one_line(finding.message),
        help=one_line(_help(rule, finding)),
        span=file_span(finding.location),
        related=tuple(file_span(location) for location in finding.related),
        fix=_offered(finding.fix),
        run=run.name,
        assumes=finding.assumes,
    )


def _offered(fix: Fix | None) -> Fix | None:
    """Edits are in the language of config files; what stands in a script is its author's to change."""
    if fix is None or any(
        file.kind == "script" or (file.document is not None and not file.document.editable) for file, _ in fix.edits
    ):
        return None
    return fix


def _help(rule: Rule, finding: Finding) -> str:
    if rule.status != "deprecated":
        return finding.help
    note = f"this rule is deprecated{f', {rule.replaced_by} replaces it' if rule.replaced_by else ''}"
    return f"{finding.help} ({note})" if finding.help else note


def _touches(finding: Finding, asked: set[int]) -> bool:
    return any(id(original(location.file)) in asked for location in _places(finding))


def _places(finding: Finding) -> list[Location]:
    return [finding.location, *finding.related]
