"""What rules can look at, for `rule(CODE, NAME, SEVERITY, subject)`: the narrowest that is enough is the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from zerocfg.record import record
from zerocfg.rules.api import Config, Finding, Fix, Given, Scope, Subject
from zerocfg.rules.failures import failures, ignored, reported
from zerocfg.rules.issues import KeyIssue, issues
from zerocfg.rules.key import Key, deepspeed, from_origin, setting, written_accelerate, written_deepspeed
from zerocfg.rules.line import LineOption, line_option
from zerocfg.run.model import Call, Failure, Ignored, Run, SourceFile

if TYPE_CHECKING:
    from zerocfg.source.launch.line import LaunchLine


@record(frozen=True, slots=True)
class CallOfRun:
    """A call of a library in the training script."""

    run: Run
    call: Call


@record(frozen=True, slots=True)
class LineOfRun:
    """The line that starts the job."""

    run: Run
    line: LaunchLine

    def option(self, *names: str) -> LineOption:
        """The last option of the launcher under one of these names, which is the one that counts."""
        return line_option(self.run, *names)


@record(frozen=True, slots=True)
class WrittenLine(LineOfRun):
    """The line that starts the job, and its file."""

    file: SourceFile


@record(frozen=True, slots=True)
class IgnoredOfRun:
    """A value of a run that is written and has no effect."""

    run: Run
    item: Ignored

    @property
    def key(self) -> Key:
        """Where it is written."""
        return from_origin(self.run, self.item.place)


@record(frozen=True, slots=True)
class FailureOfRun:
    """A failure that is predicted for a run."""

    run: Run
    failure: Failure

    @property
    def keys(self) -> list[Key]:
        """What causes it, as keys."""
        return [from_origin(self.run, place) for place in self.failure.places]

    def finding(
        self, help_text: str = "", fix: Fix | None = None, *, where: str = "entry", message: str = ""
    ) -> Finding:
        """At its first place, in its own words where no ``message`` says it better."""
        return reported(self.run, self.failure, help_text, fix, where=where, message=message)


def given_by(find: Callable[[Run], Given | None], scope: Scope = "document", *, config: Config = "") -> Subject[Given]:
    """What ``find`` gives, where it gives anything, for rules that ask its run for more. ``config``: it gives nothing
    for a run without this config."""

    def of(run: Run) -> Iterable[Given]:
        item = find(run)
        return () if item is None else (item,)

    return Subject(scope, of, config)


def one_key(find: Callable[[Run], Given | None], *, config: Config = "") -> Subject[Given]:
    """The one key of a config that ``find`` gives, where there is one. The rule asks for nothing but this key."""
    return given_by(find, "key", config=config)


def deepspeed_key(*path: str) -> Subject[Key]:
    """One key of the DeepSpeed config, where it is written."""
    return one_key(lambda run: written_deepspeed(run, *path), config="deepspeed")


def in_deepspeed(*path: str) -> Subject[Key]:
    """The same for rules that ask for more than this key: other keys, or what the process gets."""
    return given_by(lambda run: written_deepspeed(run, *path), config="deepspeed")


def in_zero(*path: str) -> Subject[Key]:
    """One key of its `zero_optimization`."""
    return in_deepspeed("zero_optimization", *path)


def in_accelerate(*path: str) -> Subject[Key]:
    """One key of the accelerate config, where it is written."""
    return given_by(lambda run: written_accelerate(run, *path), config="accelerate")


def effective_setting(name: str) -> Subject[Key]:
    """An effective setting by its dotted name, where it comes from; not asked where nothing says anything."""
    return given_by(lambda run: setting(run, name) or None, "run")


def each_failure(code: str) -> Subject[FailureOfRun]:
    """Each predicted failure that the rule of this code reports (`zerocfg.rules.failures`)."""
    return Subject("run", lambda run: (FailureOfRun(run, failure) for failure in failures(run, code)))


def each_ignored(code: str) -> Subject[IgnoredOfRun]:
    """Each value without effect that the rule of this code reports."""
    return Subject("run", lambda run: (IgnoredOfRun(run, item) for item in ignored(run, code)))


def each_issue(*kinds: str) -> Subject[KeyIssue]:
    """Each key that the catalog has an issue of these kinds with; the rule asks for nothing but this key."""
    return Subject("key", lambda run: issues(run, *kinds))


def issues_of_document(*kinds: str) -> Subject[KeyIssue]:
    """The same for rules that say where else the key belongs, and so look at other keys too."""
    return Subject("document", lambda run: issues(run, *kinds))


def _deepspeed_document(run: Run) -> Iterator[Key]:
    if run.deepspeed is not None:
        yield deepspeed(run)


DEEPSPEED_CONFIG = Subject("document", _deepspeed_document, "deepspeed")
"""All keys of the DeepSpeed config: ``config["optimizer"]["type"]``."""
ZERO_SECTION = in_zero()


def _calls(run: Run) -> Iterator[CallOfRun]:
    for call in run.script.calls if run.script is not None else ():
        yield CallOfRun(run, call)


def _launch_line(run: Run) -> Iterator[LineOfRun]:
    if run.launch is not None:
        yield LineOfRun(run, run.launch)


def line_of(*launchers: str) -> Subject[LineOfRun]:
    """The line that starts the job, where it is one of these launchers'."""
    return Subject("line", lambda run: (item for item in _launch_line(run) if item.line.launcher in launchers))


def _written_line(run: Run) -> Iterator[WrittenLine]:
    if run.launch is not None and run.launch_file is not None:
        yield WrittenLine(run, run.launch, run.launch_file)


EACH_CALL = Subject("call", _calls)
"""Each call that the training script reaches from its first line on."""
LAUNCH_LINE = Subject("line", _launch_line)
WRITTEN_LINE = Subject("line", _written_line)
EACH_KEY: Subject[Run] = Subject("key", lambda run: (run,))
"""Each key of every config by itself, for rules that find their keys in several ways; they are handed the run."""
COMMENTS: Subject[Run] = Subject("comments", lambda run: (run,))
"""The comments that suppress findings."""
