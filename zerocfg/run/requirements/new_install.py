"""Whether a script starts at all with what a new install of its project brings.

What the newest admitted release of a library refuses matters to whoever installs it today. A script that stops before,
as it imports what that release no longer has, runs with an older one wherever it runs, and nothing tells which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerocfg.catalog.lost_names import lost_since
from zerocfg.catalog.versions import admits, both, bounds, only_below
from zerocfg.run.model import ImportedName, LostImport, NewInstallStop, Run
from zerocfg.run.requirements.declared import Declared

_TRAINERS = ("transformers", "trl")
_NEEDS = {
    "huggingface-hub": (("transformers", "5.0", "<1.0"),),
    "peft": (("torch", "1.13", "<0.10"),),
}
"""By package: what an older release of another one that is installed beside it lets it be, by their own metadata
(transformers 4.57.6 asks for huggingface-hub<1.0, peft 0.10.0 for torch>=1.13)."""


def lost_imports(run: Run, stated: Mapping[str, Declared]) -> tuple[LostImport, ...]:
    """What the script imports as soon as it is started and some admitted release lacks."""
    return tuple(_lost(run.script.imported if run.script is not None else (), stated))


def _lost(imported: tuple[ImportedName, ...], stated: Mapping[str, Declared]) -> Iterator[LostImport]:
    for item in imported:
        since = lost_since(item.module, item.name)
        declared = stated.get(item.package, Declared(""))
        if since is None or declared.clauses is None:
            continue  # it is there, or nobody knows which release is installed
        clauses = within(item.package, declared.clauses, stated)
        if clauses is not None and (not clauses or (bounds(clauses) is not None and admits(clauses, at_least=since))):
            yield LostImport(item, since, clauses, declared.places)


def within(package: str, clauses: str, stated: Mapping[str, Declared]) -> str | None:
    """The clauses of a package within what others leave of it; None where nothing is left."""
    found: str | None = clauses
    for other, below, leaves in _NEEDS.get(package, ()):
        beside = stated.get(other)
        if found is not None and beside is not None and beside.clauses and only_below(beside.clauses, below):
            found = both([found, leaves])
    return found


def new_install_stop(
    run: Run, stated: Mapping[str, Declared], lost: tuple[LostImport, ...], held_by_trl: bool
) -> NewInstallStop | None:
    """The first reason why a new install of what is stated does not start the script of a run; None where there is none
    that is known. ``held_by_trl``: the release of TRL that is stated goes with no new transformers."""
    if lost:
        return NewInstallStop(lost[0].imported.library, lost[0].imported.origin, lost[0].imported.shown)
    imported = run.script.imported if run.script is not None else ()
    return _set_aside(run, stated) or _held(imported, held_by_trl)


def _set_aside(run: Run, stated: Mapping[str, Declared]) -> NewInstallStop | None:
    """The torch that is stated is too old for the newest transformers, which then does without it."""
    torch, transformers = stated.get("torch"), stated.get("transformers")
    if torch is None or not torch.clauses or run.consumer not in _TRAINERS:
        return None
    from zerocfg.catalog.install_limits import torch_floor

    asked = transformers.clauses if transformers is not None else ""
    if asked is None:
        return None
    floors = [floor for since, floor in torch_floor().items() if not asked or not only_below(asked, since)]
    if not floors or not only_below(torch.clauses, floors[-1]):
        return None
    return NewInstallStop("transformers", torch.places[0]) if torch.places else None


def _held(imported: tuple[ImportedName, ...], held_by_trl: bool) -> NewInstallStop | None:
    first = next((item for item in imported if item.library == "trl"), None)
    return NewInstallStop("trl", first.origin, first.shown) if held_by_trl and first is not None else None
