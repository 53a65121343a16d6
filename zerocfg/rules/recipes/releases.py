"""ZC8xx: keys and defaults that differ between the releases that a project admits."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.history import histories, name_in
from zerocfg.catalog.schema import Section, load_schema
from zerocfg.catalog.versions import admits, library_name, only_below, only_from, release
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.arguments import arguments, key_of, own_option, reader, renamed, set_argument
from zerocfg.rules.effects import admitted, admitting, recipe_data, section
from zerocfg.rules.fixes import edited
from zerocfg.rules.taken import dropped_silently, lets_through, newer
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.run.stages.admitted import AdmittedKeys, admitted_of
from zerocfg.run.stages.arguments import parsed
from zerocfg.run.stages.engine import truth
from zerocfg.source.edit import insert_entry
from zerocfg.source.node import Path, dotted

_ALSO_OWN = frozenset(("activation_checkpointing", "parallelism_config", "project", "tp_size", "use_cache"))
"""Arguments that scripts had as options of their own before the Trainer had them, and still have: of 142 public
repositories two or more for each."""


@rule("ZC865", "key-newer-than-project", Severity.ERROR, needs={"versions"})
def key_newer_than_project(run: Run) -> Iterator[Finding]:
    for library, file in (("deepspeed", run.deepspeed), ("accelerate", run.accelerate)):
        declared = run.versions.get(library)
        if file is None or not declared or only_from(declared, VERSIONS[library]):
            continue
        for path, since, around in _newer(declared, library, file.data(), load_schema(library).root, ()):
            older = _of_older(admitted_of(run, library), since, dotted(path[:-1]), around)
            yield from _too_new(run, Location(file, path, "key"), dotted(path), library, since, older)
    if reader(run) is None:
        return
    for held in arguments(run):
        if own_option(run, held.name) or lets_through(run, held) or (held.name in _ALSO_OWN and not parsed(run)):
            continue
        lack = newer(run, held)
        if lack is not None and lack.edge is not None:
            older = "passes over it in silence" if dropped_silently(run, held) else "refuses it"
            yield from _too_new(run, held.at(), held.name, lack.library, lack.edge, older)


def _newer(
    declared: str, library: str, data: object, keys: Section, above: tuple[str, ...], own: tuple[str, ...] = ()
) -> Iterator[tuple[Path, str, str]]:
    """Keys that some admitted release has not: path, first release, what an unknown key does around it today."""
    schema = load_schema(library)
    for name, held in data.items() if isinstance(data, dict) else ():
        key = keys.names.get(str(name))
        if key is None:
            continue
        path, known = (*above, str(name)), (*own, key.name)
        since = histories(library).since(name_in(library, known))
        if since and admits(declared, below=since):
            yield path, since, keys.unknown
            continue
        inner = key.section(schema)
        if inner is not None:
            yield from _newer(declared, library, held, inner, path, known)


def _of_older(releases: AdmittedKeys, since: str, section: str, today: str) -> str:
    """What those of the releases that lack a key do with it. ``today``: what an unknown key does in its section now."""
    states = [state for edge, state in releases.states(f"{section}.*") if edge < release(since)]
    ways = {str(state["unknown"]) for state in states if state is not None} or {today}
    if "error" not in ways:
        return "passes over it in silence"
    return "refuses it" if ways == {"error"} else "passes over it in silence or refuses it"


def _too_new(run: Run, location: Location, name: str, library: str, since: str, older: str) -> Iterator[Finding]:
    declared = run.versions.get(library)
    if not admits(declared, below=since):
        return
    none = only_below(declared, since)
    yield Finding(
        location,
        f"`{name}` exists since {library_name(library)} {since} ({admitted(run, library)}); an older release " + older,
        f"require {library}>={since}",
        admitting(run, library),
        severity=None if none else Severity.NOTE,
    )


@rule("ZC866", "overflow-check-default-changed", Severity.NOTE, needs={"versions"}, versions="deepspeed>=0.19.3")
def overflow_check_default_changed(run: Run) -> Iterator[Finding]:
    bf16 = section(run, "bf16")
    if run.deepspeed is None or not truth(bf16.get("enabled")) or bf16.get("enabled") == "auto":
        return
    if "check_grad_overflow" in bf16 or not admits(run.versions.get("deepspeed"), below="0.19.3", at_least="0.19.3"):
        return
    yield Finding(
        Location(run.deepspeed, ("bf16",), "key"),
        "no `check_grad_overflow`: DeepSpeed checks bf16 gradients for infinities from 0.19.3 on and not before "
        f"({admitted(run, 'deepspeed')})",
        "write the value that you want",
        admitting(run, "deepspeed"),
        edited(
            insert_entry,
            run.deepspeed,
            ("bf16",),
            "check_grad_overflow",
            "true",
            why="write today's default",
            safe=False,
        ),
    )


@rule("ZC867", "trackers-default-changed", Severity.NOTE, needs={"versions"}, versions="transformers>=5")
def trackers_default_changed(run: Run) -> Iterator[Finding]:
    if reader(run) is None or run.recipe is None or "report_to" in recipe_data(run) or "report_to" in run.arguments:
        return
    if not admits(run.versions.get("transformers"), below="5", at_least="5"):
        return
    yield Finding(
        Location(run.recipe),
        "no `report_to`: transformers reports to every installed tracker before release 5 and to none from 5 on "
        f"({admitted(run, 'transformers')})",
        "name the trackers that you want, or none",
        admitting(run, "transformers"),
        set_argument(run, "report_to", "none", "write today's default"),
    )


@rule("ZC868", "argument-deprecated", Severity.NOTE, needs={"versions"})
def argument_deprecated(run: Run) -> Iterator[Finding]:
    found = list(arguments(run))
    if not found or reader(run) is None:
        return
    present = {held.name for held in found}
    inherited = load_schema("training-arguments").root.names
    for held in found:
        name = held.name
        key = key_of(run, name)
        if key is None or "deprecated" not in key.facts:
            continue
        library = "transformers" if name in inherited else "trl"
        if not only_from(run.versions.get(library), VERSIONS[library]):
            continue
        new = key.facts.get("renamed_to")
        renames = isinstance(new, str) and new.isidentifier() and new not in present
        safe = not (held.on_line and run.script is None)
        yield Finding(
            held.at(),
            f"`{name}` {key.facts['deprecated']} ({admitted(run, library)})",
            f"write {new}" if renames else "",
            admitting(run, library),
            renamed(run, held, str(new), f"write {new}", safe=safe) if renames else None,
        )
