"""What rules can look at, for `rule(CODE, NAME, SEVERITY, subject)`: the narrowest that is enough is the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from zerocfg.record import record
from zerocfg.rules.api import Given, Subject
from zerocfg.rules.issues import KeyIssue, issues
from zerocfg.rules.key import Key, deepspeed
from zerocfg.run.model import Call, Run

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


def one_key(find: Callable[[Run], Given | None]) -> Subject[Given]:
    """The one key of a config that ``find`` gives, where there is one. The rule asks for nothing but this key."""

    def of(run: Run) -> Iterable[Given]:
        key = find(run)
        return () if key is None else (key,)

    return Subject("key", of)


def deepspeed_key(*path: str) -> Subject[Key]:
    """One key of the DeepSpeed config, where it is written."""
    return one_key(lambda run: deepspeed(run, *path) or None)


def each_issue(*kinds: str) -> Subject[KeyIssue]:
    """Each key that the catalog has an issue of these kinds with; the rule asks for nothing but this key."""
    return Subject("key", lambda run: issues(run, *kinds))


def issues_of_document(*kinds: str) -> Subject[KeyIssue]:
    """The same for rules that say where else the key belongs, and so look at other keys too."""
    return Subject("document", lambda run: issues(run, *kinds))


def _deepspeed_document(run: Run) -> Iterator[Key]:
    if run.deepspeed is not None:
        yield deepspeed(run)


DEEPSPEED_CONFIG = Subject("document", _deepspeed_document)
"""All keys of the DeepSpeed config: ``config["optimizer"]["type"]``."""


def _calls(run: Run) -> Iterator[CallOfRun]:
    for call in run.script.calls if run.script is not None else ():
        yield CallOfRun(run, call)


def _launch_line(run: Run) -> Iterator[LineOfRun]:
    if run.launch is not None:
        yield LineOfRun(run, run.launch)


EACH_CALL = Subject("call", _calls)
"""Each call that the training script reaches from its first line on."""
LAUNCH_LINE = Subject("line", _launch_line)
EACH_KEY: Subject[Run] = Subject("key", lambda run: (run,))
"""Each key of every config by itself, for rules that find their keys in several ways; they are handed the run."""
COMMENTS: Subject[Run] = Subject("comments", lambda run: (run,))
"""The comments that suppress findings."""
