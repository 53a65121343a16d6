"""ZC870: keywords of trainers, of their configs and of `Accelerator()` that the admitted releases do not accept."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.admitted import admitted, releases_where
from zerocfg.catalog.history import histories, signatures, with_classes
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.signatures import accepts, is_known, may_ever_accept, parameters, was_ever_accepted
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.versions import Release, library_name, only_below, release, text
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.calls import ever_taken, taken_by
from zerocfg.rules.fields_twice import newest_refuses_fields
from zerocfg.rules.release_scope import limited
from zerocfg.rules.subjects import EACH_CALL, CallOfRun
from zerocfg.rules.taken import as_installed
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Call, Run, Setting
from zerocfg.run.script.arguments import is_arguments

_RENAMED = {"tokenizer": "processing_class"}
"""Parameters of trainers that have another name now."""
_HOLDERS = {"dataloader_config": "DataLoaderConfiguration", "project_config": "ProjectConfiguration"}
"""By parameter of `Accelerator()`: the dataclass that took over some of its parameters."""

_EXPERIMENTAL = "trl.experimental"
"""Its classes may have the names of others, and take other keywords."""


@rule("ZC870", "call-keyword-refused", Severity.ERROR, EACH_CALL)
def call_keyword_refused(given: CallOfRun) -> Iterator[Finding]:
    call = given.call
    library, _, of = call.name.partition(".")
    if call.derived or call.guarded:
        return
    if is_arguments(call.name):
        yield from _of_config(given.run, call)
    if not is_known(library, of):
        return
    for keyword, setting in call.arguments.items():
        if setting.origin.file is not None:
            yield from _judged(given.run, call, keyword, setting)


def _judged(run: Run, call: Call, keyword: str, setting: Setting) -> Iterator[Finding]:
    library, _, of = call.name.partition(".")
    newest = release(VERSIONS[library])
    if library == "accelerate" and not was_ever_accepted(library, of, keyword) and _near(call, keyword):
        return  # ZC841
    if accepts(library, of, keyword, newest) is False and not may_ever_accept(library, of, keyword):
        message = f"no release of {library_name(library)} accepts `{keyword}` in {of}(): the call is a TypeError"
        yield _finding(setting, message, _advice(call, keyword, newest))
        return
    installed = as_installed(run, library)
    among = admitted(library, installed[0].versions[library]) if installed is not None else None
    if installed is None or among is None or newest_refuses_fields(run):
        return
    run, severity = installed
    refusing = tuple(at for at in among.releases if accepts(library, of, keyword, at) is False)
    if not refusing:
        return
    words = releases_where(lambda at: at in refusing, among, library)
    assert words is not None
    message = f"{_history(library, of, keyword, refusing[-1])}: the call is a TypeError"
    finding = _finding(setting, message, _advice(call, keyword, refusing[-1]))
    finding.severity = severity
    if accepts(library, of, keyword, among.newest) or (among.below and not words):
        finding.severity = Severity.NOTE  # the newest accepts it, or what releases before the known ones took is open
    yield limited(run, finding, library, words)


def _of_config(run: Run, call: Call) -> Iterator[Finding]:
    """Keywords that no release of a config has had. What some release has is ZC801's, ZC840's and ZC865's, a slip
    ZC841's."""
    library, _, of = call.name.partition(".")
    inherited = load_schema("training-arguments").root.names.keys() | histories("transformers").raw.keys()
    own = histories(library).raw if library == "trl" else {of: []}
    if of not in own or _EXPERIMENTAL in call.file.source.text:
        return
    if not _are_known_releases(run, {library, "transformers"}):
        return
    newest_are_known = all(
        only_below(run.versions.get(package), f"{VERSIONS[package]}.1")
        for package in dict.fromkeys((library, "transformers"))
    )
    for keyword, setting in call.arguments.items():
        if setting.origin.file is None or keyword in inherited or f"{of}.{keyword}" in own:
            continue
        if keyword in taken_by(call.name):
            continue
        if not ever_taken(call.name, keyword) and closest(keyword, sorted(taken_by(call.name))):
            continue
        trainer = f"{of.removesuffix('Config')}Trainer"
        given = library == "trl" and accepts(library, trainer, keyword, release(VERSIONS[library]))
        anothers = any(key.endswith(f".{keyword}") for key in own) or ever_taken(call.name, keyword)
        if not (given or newest_are_known or anothers):
            continue  # a name of nothing that is known may be of a newer release
        message = f"no release of {library_name(library)} accepts `{keyword}` in {of}(): the call is a TypeError"
        yield _finding(setting, message, f"give it to {trainer}" if given else "leave it out")


def _are_known_releases(run: Run, libraries: set[str]) -> bool:
    """Whether every release that the project admits of some libraries is one whose arguments are known."""
    for library in libraries:
        installed = as_installed(run, library)
        among = admitted(library, installed[0].versions[library]) if installed is not None else None
        if among is None or among.below or not among.releases:
            return False
    return True


def _finding(setting: Setting, message: str, advice: str) -> Finding:
    assert setting.origin.file is not None
    return Finding(Location(setting.origin.file, span=setting.origin.span), message, advice)


def _history(library: str, of: str, keyword: str, at: Release) -> str:
    """Which release removed a keyword that one does not accept, or which brings it."""
    known, name = signatures(library), library_name(library)
    states = [(release(since), state) for since, state in known.raw.get(f"{of}.{keyword}", ())]
    gone = next(
        (since for since, state in reversed(states) if since <= at and state is None and since != states[0][0]), None
    )
    if gone is not None:
        return f"{name} {text(gone)} removed `{keyword}` from {of}()"
    came = next((since for since, state in states if since > at and state is not None), None)
    if came is not None:
        return f"{of}() accepts `{keyword}` from {name} {text(came)} on, not before"
    return f"{of}() of {name} {text(at)} does not accept `{keyword}`"


def _near(call: Call, keyword: str) -> str | None:
    """The parameter that a keyword is a slip of."""
    library, _, of = call.name.partition(".")
    return closest(keyword, sorted(parameters(library, of)))


def _advice(call: Call, keyword: str, at: Release) -> str:
    """Where the release that refuses a keyword takes its value."""
    library, _, of = call.name.partition(".")
    new = _RENAMED.get(keyword)
    if new is not None and accepts(library, of, new, at):
        return f"remove it: `{new}` is written too" if new in call.arguments else f"write {new}"
    near = _near(call, keyword)
    if near is not None and near not in call.arguments and accepts(library, of, near, at):
        return f"write {near}"
    if library == "accelerate":
        fields = with_classes("accelerate")
        for parameter, holder in _HOLDERS.items():
            if accepts(library, of, parameter, at) and fields.state(f"{holder}.{keyword}", at) is not None:
                return f"write {parameter}={holder}({keyword}=...)"
        return "leave it out"
    holder = f"{of.removesuffix('Trainer')}Config" if library == "trl" else "TrainingArguments"
    if library == "trl" and histories("trl").state(holder, at) is not None:
        return _in_config(holder, keyword, at)
    if histories("transformers").today(keyword) is not None:
        return f"give it to {holder}"
    return "leave it out"


def _in_config(holder: str, keyword: str, at: Release) -> str:
    fields = histories("trl")
    if fields.state(f"{holder}.{keyword}", at) is not None:
        return f"give it to {holder}"
    key = load_schema("trl").root.names.get(keyword)
    new = key.facts.get("renamed_to") if key is not None else None
    if new is not None and fields.state(f"{holder}.{new}", at) is not None:
        return f"give it to {holder}, which calls it `{new}`"
    inherits = (fields.state(holder, at) or {}).get("trainer")
    if inherits and histories("transformers").today(keyword) is not None:
        return f"give it to {holder}"
    return "leave it out"
