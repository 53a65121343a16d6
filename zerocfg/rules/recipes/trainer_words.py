"""ZC8xx: the words of training arguments: schedules, optimizers, strategies, trackers."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.admitted import admitted, releases_where
from zerocfg.catalog.fields import choices, ever
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.catalog.versions import OLDEST, Release
from zerocfg.record import record
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.argument_reader import values_arrive
from zerocfg.rules.arguments import called, given, set_argument, value, word, written
from zerocfg.rules.calls import given_in_calls
from zerocfg.rules.release_scope import limited
from zerocfg.rules.taken import as_installed, declares
from zerocfg.run.model import Run
from zerocfg.run.script.arguments import is_arguments

_WORDS = (
    "lr_scheduler_type",
    "optim",
    "eval_strategy",
    "evaluation_strategy",
    "save_strategy",
    "logging_strategy",
    "hub_strategy",
)


@rule("ZC811", "argument-word-unknown", Severity.ERROR, WHOLE_RUN)
def argument_word_unknown(run: Run) -> Iterator[Finding]:
    yield from _words_in_calls(run)
    if not values_arrive(run):
        return
    for name in _WORDS:
        said = word(run, name)
        if said is None:
            yield from _no_text(run, name)
        elif (missed := _missed(run, name, said)) is not None:
            yield _limited(run, _unknown_word(run, name, said, missed.known), missed)
    trackers = value(run, "report_to")
    for tracker in trackers if isinstance(trackers, list) else [trackers]:
        if isinstance(tracker, str) and tracker not in _TRACKERS:
            yield _unknown_word(run, "report_to", tracker, _TRACKERS)


def _no_text(run: Run, name: str) -> Iterator[Finding]:
    """A switch or a number in the place of the word, which no release takes. What another parser than HfArgumentParser
    and TrlParser makes of one, nobody knows; of a word that YAML reads as a switch ZC006 tells."""
    stated, setting = value(run, name), given(run, name)
    if run.recipe_reader is None or not isinstance(stated, (bool, int, float)):
        return
    missed = _missed(run, name, show(stated))
    if missed is None or missed.releases or setting is None or setting.origin.kind != "file":
        return
    place = written(run, name, where="value")
    if not isinstance(stated, bool) or _raw(place.location) not in missed.known:
        words = ", ".join(repr(known) if known == "no" else known for known in missed.known[:12])
        yield place.finding(
            f"`{name}` is {show(stated)}, which is no word; the training stops at it", f"write one of {words}"
        )


def _raw(location: Location) -> str:
    span = location.concrete()
    return location.file.source.text[span.start : span.end].lower()


@record(frozen=True, slots=True)
class _Missed:
    """A word that some admitted releases do not have: ``releases`` says which, "" where none has it. ``known``: the
    words of the newest of them. ``newest_has_it``: the newest admitted release does."""

    releases: str
    known: list[str]
    newest_has_it: bool = False


def _missed(run: Run, name: str, said: str) -> _Missed | None:
    """None where every admitted release has the word. Where the project names none, today's words count, as the next
    installation brings them."""
    declared = run.declared("transformers") if declares(run, "transformers") else f">={OLDEST['transformers']}"
    if not declares(run, "transformers"):
        key = load_schema("training-arguments").root.names[_RENAMED.get(name, name)]
        known = [str(item) for item in key.raw.get("enum", ())]
        if not known or said in known:
            return None
        if name != "optim" or said not in ever(name):
            return _Missed("", known)
    among = admitted("transformers", declared)
    if among is None:
        return None

    def lacks(release: Release) -> bool:
        words = choices(name, release)
        return bool(words) and said not in words

    releases = releases_where(lacks, among, "transformers")
    if releases is None or (among.below and said in ever(name)):
        return None
    newest = next(release for release in reversed(among.releases) if lacks(release))
    return _Missed(releases, choices(name, newest), newest_has_it=said in choices(name, among.newest))


def _limited(run: Run, finding: Finding, missed: _Missed) -> Finding:
    """The finding; a note where only older releases than the newest that is admitted stop at the word."""
    if missed.newest_has_it:
        finding.severity = Severity.NOTE
    if not missed.releases:
        return finding
    installed = as_installed(run, "transformers")
    if installed is None:
        finding.severity = Severity.NOTE
    return limited(run if installed is None else installed[0], finding, "transformers", missed.releases)


_RENAMED = {"evaluation_strategy": "eval_strategy"}
"""Former names of arguments, whose words stayed the same."""


def _words_in_calls(run: Run) -> Iterator[Finding]:
    """The same in calls of the script, of the arguments that an enumeration of transformers reads."""
    for stated in given_in_calls(run):
        if stated.name not in _WORDS or not is_arguments(stated.call.name) or not isinstance(stated.value, str):
            continue
        missed = _missed(run, stated.name, stated.value)
        if missed is not None:
            message = f"`{stated.name}` knows no `{stated.value}`; {stated.of} stops at it"
            finding = stated.finding(message, _advice(_near(stated.value, missed.known), missed.known))
            yield _limited(run, finding, missed)


_TRACKERS = (
    "none all azure_ml comet_ml mlflow neptune tensorboard trackio wandb codecarbon clearml dagshub flyte dvclive "
    "swanlab kubeflow".split()
)


def _unknown_word(run: Run, name: str, wrong: str, known: list[str]) -> Finding:
    near, single = _near(wrong, known), not isinstance(value(run, name), list)
    return written(run, name, where="value").finding(
        f"`{called(run, name)}` knows no `{wrong}`; the training stops at it",
        _advice(near, known),
        set_argument(run, name, near, f"write {near}", safe=True) if near and single else None,
    )


_FOLLOWED_BY = {"adamw_hf": "adamw_torch"}
"""Words that newer releases no longer have, and what does the same."""


def _near(wrong: str, known: list[str]) -> str | None:
    next_one = _FOLLOWED_BY.get(wrong)
    return next_one if next_one in known else closest(wrong, known)


def _advice(near: str | None, known: list[str]) -> str:
    return f"write {near}" if near else "write one of " + ", ".join(known[:12])
