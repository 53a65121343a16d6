"""ZC8xx: keys and defaults that differ between the releases that a project admits."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.history import histories, name_in
from zerocfg.catalog.schema import Section, load_schema
from zerocfg.catalog.versions import admits, library_name, only_below, only_from, release
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.argument_reader import key_of, reader
from zerocfg.rules.arguments import arguments, own_option, renamed, set_argument
from zerocfg.rules.effects import admitted, admitting
from zerocfg.rules.key import Key, from_origin, recipe
from zerocfg.rules.subjects import DEEPSPEED_CONFIG, in_deepspeed
from zerocfg.rules.taken import dropped_silently, lets_through, newer
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.run.stages.admitted import AdmittedKeys, admitted_of
from zerocfg.run.stages.arguments import parsed
from zerocfg.source.node import dotted

_ALSO_OWN = frozenset(("activation_checkpointing", "parallelism_config", "project", "tp_size", "use_cache"))
"""Arguments that scripts had as options of their own before the Trainer had them, and still have: of 142 public
repositories two or more for each."""


@rule("ZC865", "key-newer-than-project", Severity.ERROR, WHOLE_RUN, needs={"versions"})
def key_newer_than_project(run: Run) -> Iterator[Finding]:
    for library, file in (("deepspeed", run.deepspeed), ("accelerate", run.accelerate)):
        declared = run.declared(library)
        if file is None or not declared or only_from(declared, VERSIONS[library]):
            continue
        whole = Key(run, file, (), file.data())
        releases = admitted_of(run, library)
        for key, since, around in _newer(releases, whole, load_schema(library).root):
            older = _of_older(releases, since, dotted(key.path[:-1]), around)
            yield from _too_new(run, key.at("key"), dotted(key.path), library, since, older)
    if reader(run) is None:
        return
    for argument in arguments(run):
        if (
            own_option(run, argument.name)
            or lets_through(run, argument)
            or (argument.name in _ALSO_OWN and not parsed(run))
        ):
            continue
        lack = newer(run, argument)
        if lack is not None and lack.edge is not None:
            older = "passes over it in silence" if dropped_silently(run, argument) else "refuses it"
            yield from _too_new(run, argument.at(), argument.name, lack.library, lack.edge, older)


def _newer(
    releases: AdmittedKeys, section: Key, keys: Section, above: tuple[str, ...] = ()
) -> Iterator[tuple[Key, str, str]]:
    """Keys that some admitted release has not: key, first release, what an unknown key does around it today.

    ``above``: what the schema calls the section.
    """
    library, declared = releases.library, releases.declared
    schema = load_schema(library)
    for key in section:
        known = keys.names.get(key.name)
        if known is None:
            continue
        name = (*above, known.name)
        since, inner = histories(library).since(name_in(library, name)), known.section(schema)
        if since and admits(declared, below=since) and not _had_before(releases, name_in(library, name), since):
            yield key, since, keys.unknown
        elif inner is not None:
            yield from _newer(releases, key, inner, name)


def _had_before(releases: AdmittedKeys, key: str, since: str) -> bool:
    """Whether one of the releases had a key that a later one took away and ``since`` brought back."""
    states = releases.states(key)
    return not states or any(state is not None and edge < release(since) for edge, state in states)


def _of_older(releases: AdmittedKeys, since: str, section: str, today: str) -> str:
    """What those of the releases that lack a key do with it. ``today``: what an unknown key does in its section now."""
    states = [state for edge, state in releases.states(f"{section}.*") if edge < release(since)]
    ways = {str(state["unknown"]) for state in states if state is not None} or {today}
    if "error" not in ways:
        return "passes over it in silence"
    return "refuses it" if ways == {"error"} else "passes over it in silence or refuses it"


def _too_new(run: Run, location: Location, name: str, library: str, since: str, older: str) -> Iterator[Finding]:
    declared = run.declared(library)
    if admits(declared, below=since):
        yield Finding(
            location,
            f"`{name}` exists since {library_name(library)} {since} ({admitted(run, library)}); an older release "
            + older,
            f"require {library}>={since}",
            admitting(run, library),
            severity=None if only_below(declared, since) else Severity.NOTE,
        )


@rule(
    "ZC803",
    "clipping-default-changed",
    Severity.NOTE,
    DEEPSPEED_CONFIG,
    needs={"versions"},
    versions="deepspeed>=0.19.3",
)
def clipping_default_changed(config: Key) -> Iterator[Finding]:
    if config.section and "gradient_clipping" not in config and _on_both_sides(config.run, "deepspeed", "0.19.3"):
        yield config.finding(
            "no `gradient_clipping`: DeepSpeed clips at 1.0 from 0.19.3 on and not at all before "
            f"({admitted(config.run, 'deepspeed')})",
            "write the value that you want",
            admitting(config.run, "deepspeed"),
            config["gradient_clipping"].set("1.0", _TODAY, safe=False),
        )


@rule(
    "ZC866",
    "overflow-check-default-changed",
    Severity.NOTE,
    in_deepspeed("bf16"),
    needs={"versions"},
    versions="deepspeed>=0.19.3",
)
def overflow_check_default_changed(bf16: Key) -> Iterator[Finding]:
    check = bf16["check_grad_overflow"]
    switch = bf16["enabled"]
    if switch.on and switch.value != "auto" and not check and _on_both_sides(bf16.run, "deepspeed", "0.19.3"):
        yield bf16.finding(
            "no `check_grad_overflow`: DeepSpeed checks bf16 gradients for infinities from 0.19.3 on and not before "
            f"({admitted(bf16.run, 'deepspeed')})",
            "write the value that you want",
            admitting(bf16.run, "deepspeed"),
            check.set("true", _TODAY, safe=False),
            where="key",
        )


@rule("ZC867", "trackers-default-changed", Severity.NOTE, WHOLE_RUN, needs={"versions"}, versions="transformers>=5")
def trackers_default_changed(run: Run) -> Iterator[Finding]:
    if reader(run) is None or run.recipe is None or "report_to" in recipe(run) or "report_to" in run.arguments:
        return
    if _on_both_sides(run, "transformers", "5"):
        yield recipe(run).finding(
            "no `report_to`: transformers reports to every installed tracker before release 5 and to none from 5 on "
            f"({admitted(run, 'transformers')})",
            "name the trackers that you want, or none",
            admitting(run, "transformers"),
            set_argument(run, "report_to", "none", _TODAY),
        )


@rule(
    "ZC874",
    "weights-dtype-default-changed",
    Severity.NOTE,
    WHOLE_RUN,
    consumers={"transformers", "trl"},
    needs={"versions"},
    versions="transformers>=5",
)
def weights_dtype_default_changed(run: Run) -> Iterator[Finding]:
    if run.script is None or not _on_both_sides(run, "transformers", "5"):
        return
    for default_dtype in run.script.default_dtypes:
        yield from_origin(run, default_dtype.origin).finding(
            f"`{default_dtype.name}` without a dtype: transformers gives weights in float32 before release 5 "
            f"and in the checkpoint's dtype from 5 on ({admitted(run, 'transformers')})",
            "name the dtype that is trained: `torch_dtype=torch.float32`, or `dtype` from 4.56 on",
            admitting(run, "transformers"),
        )


_TODAY = "write today's default"


def _on_both_sides(run: Run, library: str, edge: str) -> bool:
    """Whether the project admits releases before this one, and it or later ones."""
    return admits(run.declared(library), below=edge, at_least=edge)


@rule("ZC868", "argument-deprecated", Severity.NOTE, WHOLE_RUN, needs={"versions"})
def argument_deprecated(run: Run) -> Iterator[Finding]:
    present = {argument.name for argument in arguments(run)}
    inherited = load_schema("training-arguments").root.names
    for argument in arguments(run) if reader(run) is not None else ():
        name = argument.name
        key, library = key_of(run, name), "transformers" if name in inherited else "trl"
        if key is None or "deprecated" not in key.facts or not only_from(run.declared(library), VERSIONS[library]):
            continue
        new = key.facts.get("renamed_to")
        renames = isinstance(new, str) and new.isidentifier() and new not in present
        safe = not (argument.on_line and run.script is None)
        yield Finding(
            argument.at(),
            f"`{name}` {key.facts['deprecated']} ({admitted(run, library)})",
            f"write {new}" if renames else "",
            admitting(run, library),
            renamed(run, argument, str(new), f"write {new}", safe=safe) if renames else None,
        )
