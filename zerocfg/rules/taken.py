"""Which training arguments the parsers take in the releases that a project admits."""

from __future__ import annotations

from zerocfg.catalog.admitted import Admitted, Life, admitted, life, releases_where
from zerocfg.catalog.fields import in_trl
from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.versions import Release, bounds, only_below, only_from, text
from zerocfg.record import record
from zerocfg.rules.api import Finding, Severity
from zerocfg.rules.argument_reader import methods, reader
from zerocfg.rules.arguments import Argument
from zerocfg.rules.effects import admitted as said_of
from zerocfg.rules.release_scope import limited
from zerocfg.run.model import Call, Run
from zerocfg.run.origins import ASSUMED
from zerocfg.run.reader import reader_evidence
from zerocfg.run.releases import with_newest_releases
from zerocfg.run.script.arguments import is_arguments
from zerocfg.run.stages.arguments import parsed

_BESIDE = frozenset({"ScriptArguments", "ModelConfig", "DatasetMixtureConfig"})
"""TRL's dataclasses that all its scripts parse beside the config of a trainer, and its own ScriptArguments."""

OF_TRL_PARSER = frozenset(("config", "env"))
"""Arguments that TrlParser takes for itself."""


@record(frozen=True, slots=True)
class Lack:
    """Admitted releases of a library do not take an argument. ``releases``: which, in words, "" where none does.
    ``edge``: the release that removed it, or the one that brings it; None: before all that are known."""

    library: str
    releases: str
    edge: str | None


def declares(run: Run, library: str) -> bool:
    """Whether it is understood which releases of a library the project admits."""
    declared = run.declared(library)
    return declared is not None and bounds(declared) is not None


def as_installed(run: Run, library: str) -> tuple[Run, Severity] | None:
    """The run with releases to judge an argument of a library by, and how grave it is that all of them refuse it.

    Where nothing declares one, a new install gets the newest, and what that one refuses is a warning: for lint, which
    leaves it open which release there is, as for a build, which plans for the newest. None where a commit, a path or a
    variable decides, or the script does not start with a new install.
    """
    if library in run.undetermined or library in run.outdated:
        return None
    if declares(run, library) and run.version_places.get(library) != ASSUMED:
        return run, Severity.ERROR
    if run.new_install_stop is not None:
        return None
    return with_newest_releases(run), Severity.WARNING


def in_call(argument: Argument) -> bool:
    """Whether an argument stands in the training script, in the call of a class."""
    return argument.origin.kind == "file" and not argument.origin.path


def dropped_silently(run: Run, argument: Argument) -> bool:
    """Whether the parser passes over a key of the recipe that it does not know: TrlParser of TRL 0.13 to 0.18."""
    declared = run.declared("trl")
    lets_go = only_from(declared, "0.13") and only_below(declared, "0.19")
    return lets_go and run.recipe_reader == "trl" and not argument.on_line and not in_call(argument)


def what_happens(run: Run, argument: Argument, lack: Lack) -> str:
    """What becomes of an argument that the admitted releases do not take."""
    if in_call(argument):
        call = _call(run, argument)
        return f"{call.name.rpartition('.')[2] if call is not None else 'the class'} refuses it"
    if dropped_silently(run, argument):
        return "TrlParser drops it without a word" + (f" ({said_of(run, 'trl')})" if lack.library != "trl" else "")
    return "its parsers stop at it"


def lets_through(run: Run, argument: Argument) -> bool:
    """Whether the script's parser goes on, or may, where an option of the launch line or a key of the recipe is unknown
    to it. The class that a call makes never does."""
    return not in_call(argument) and run.script is not None and run.script.lenient


def names_recipe(argument: Argument) -> bool:
    """Whether this is the option of TrlParser's own that names the recipe; it once was a field of TRL's
    ScriptArguments."""
    return argument.name == "config" and argument.on_line


def removed(run: Run, argument: Argument) -> Lack | None:
    """Releases that have an argument no longer."""
    if names_recipe(argument) or _is_replaced(run, argument):
        return None
    return _sure(run, argument, _lack(run, argument, behind=True))


def newer(run: Run, argument: Argument) -> Lack | None:
    """Releases that do not have an argument yet."""
    return _sure(run, argument, _lack(run, argument, behind=False))


def _is_replaced(run: Run, argument: Argument) -> bool:
    """Whether an argument is handed to a config of TRL in whose place a package puts one that takes more."""
    call = _call(run, argument) if in_call(argument) else None
    return call is not None and call.name.startswith("trl.") and run.script is not None and run.script.patched


def former(name: str) -> bool:
    """Whether a release of transformers or TRL that is not today's has, or had, an argument of this name."""
    return name in histories("transformers").raw or bool(in_trl(name))


def said_for(run: Run, finding: Finding, lack: Lack) -> Finding:
    """The finding of a lack, with the releases that the project admits."""
    return limited(run, finding, lack.library, lack.releases)


def named(run: Run) -> list[str] | None:
    """The arguments that the newest admitted releases have; None where the project does not say which those are."""
    base = admitted("transformers", run.declared("transformers"))
    own = admitted("trl", run.declared("trl")) if reader(run) == "trl" else None
    if base is None or not base.releases or (reader(run) == "trl" and (own is None or not own.releases)):
        return None
    known = histories("transformers")
    found = [name for name in known.raw if "." not in name and known.state(name, base.newest) is not None]
    if own is not None:
        fields = histories("trl")
        within = tuple(f"{item}." for item in _classes(run, None))
        found += [
            key.rpartition(".")[2]
            for key in fields.raw
            if key.startswith(within) and fields.state(key, own.newest) is not None
        ]
    return list(dict.fromkeys(found))


def _sure(run: Run, argument: Argument, lack: Lack | None) -> Lack | None:
    """None where only some admitted releases lack a word of a line, and only the words of that line tell who parses
    them: the project's range was written for its own scripts, and the one that the line names is not among them."""
    if lack is None or not lack.releases or not argument.on_line or run.script is not None or run.launch is None:
        return lack
    if run.launch.script is None or run.launch.script.value is None:
        return lack
    evidence = reader_evidence(run)
    return None if evidence is not None and evidence.by == "option" else lack


def _lack(run: Run, argument: Argument, behind: bool) -> Lack | None:
    base = life("transformers", (argument.name,))
    trl = reader(run) == "trl"
    of_base = admitted("transformers", run.declared("transformers"))
    if base is not None:
        lack = _of(base, "transformers", of_base, behind)
        return None if lack is not None and trl and _in_trl(run, argument) else lack
    key = load_schema("training-arguments").root.names.get(argument.name)
    if key is not None:  # gone for longer than releases were walked
        return Lack("transformers", "", None) if behind and of_base is not None and not of_base.below else None
    among = admitted("trl", run.declared("trl")) if trl and argument.name not in OF_TRL_PARSER else None
    own = life("trl", _keys(run, argument)) if among is not None else None
    if own is None or among is None:
        return None
    there = life("trl", _trainers(_classes(run, argument)))
    releases = tuple(release for release in among.releases if there is not None and there.at(release))
    return _of(own, "trl", Admitted(releases, among.below), behind) if releases else None


def _of(own: Life, library: str, among: Admitted | None, behind: bool) -> Lack | None:
    """What admitted releases lack: those behind the one that removed it, or those before the one that brought it."""
    if among is None:
        return None

    def lacks(release: Release) -> bool:
        return not own.at(release) and (own.gone(release) is not None) is behind

    words = releases_where(lacks, among, library)
    if words is None:
        return None
    first = next(release for release in among.releases if lacks(release))
    edge = own.gone(first) if behind else own.since(first)
    return Lack(library, words, text(edge)) if edge is not None else None


def _in_trl(run: Run, argument: Argument) -> bool:
    """Whether every admitted release of TRL has an argument by itself, whatever the transformers below it."""
    among = admitted("trl", run.declared("trl"))
    own = life("trl", _keys(run, argument)) if among is not None else None
    return own is not None and among is not None and all(own.at(release) for release in among.releases)


def _classes(run: Run, argument: Argument | None) -> frozenset[str]:
    """The dataclasses of TRL that an argument can be for: the class of the call where it stands in one, else those
    that the script parses, else those that the recipe can be for."""
    call = _call(run, argument) if argument is not None else None
    if call is not None:
        return frozenset((_of_history(call.name),)) if call.name.startswith("trl.") else frozenset()
    stated = frozenset(_of_history(name) for name in parsed(run) if name.startswith("trl."))
    configs = methods(run)
    return stated or configs | _BESIDE | {f"{config.removesuffix('Config')}ScriptArguments" for config in configs}


def _of_history(name: str) -> str:
    """What histories call a dataclass that a script imports under this name. They know nothing of experimental ones."""
    return name.removeprefix("trl.") if ".experimental." in name else name.rpartition(".")[2]


def _call(run: Run, argument: Argument) -> Call | None:
    """The call of the script that an argument stands in."""
    calls = run.script.calls if run.script is not None else ()
    return next((call for call in calls if is_arguments(call.name) and argument.origin.file is call.file), None)


def _keys(run: Run, argument: Argument) -> tuple[str, ...]:
    """What histories call an argument in these classes."""
    return tuple(f"{item}.{argument.name}" for item in sorted(_classes(run, argument)))


def _trainers(classes: frozenset[str]) -> tuple[str, ...]:
    """The configs of trainers among these classes; all of them where there is none."""
    return tuple(sorted({item for item in classes - _BESIDE if item.endswith("Config")} or classes))
