"""Whether a script starts at all with what a new install of its project brings.

What the newest admitted release of a library refuses matters to whoever installs it today. A script that stops before,
as it imports what that release no longer has, runs with an older one wherever it runs, and nothing tells which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerocfg.catalog.lost_names import lost_since
from zerocfg.catalog.versions import admits, bounds, only_below
from zerocfg.run.model import ImportedName, NewInstallStop, Run
from zerocfg.run.requirements.declared import Declared

_TRAINERS = ("transformers", "trl")


def new_install_stop(run: Run, stated: Mapping[str, Declared], held_by_trl: bool) -> NewInstallStop | None:
    """The first reason why a new install of what is stated does not start the script of a run; None where there is none
    that is known. ``held_by_trl``: the release of TRL that is stated goes with no new transformers."""
    imported = run.script.imported if run.script is not None else ()
    return next(_lost(imported, stated), None) or _set_aside(run, stated) or _held(imported, held_by_trl)


def _lost(imported: tuple[ImportedName, ...], stated: Mapping[str, Declared]) -> Iterator[NewInstallStop]:
    for item in imported:
        since = lost_since(item.module, item.name)
        if since is None:
            continue
        declared = stated.get(item.package)
        clauses = declared.clauses if declared is not None else ""
        if clauses is None or (clauses and (bounds(clauses) is None or not admits(clauses, at_least=since))):
            continue  # an older one is asked for, or nobody knows which one
        yield NewInstallStop(item.library, item.origin, item.shown)


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
    return NewInstallStop("transformers", torch.places[0], "") if torch.places else None


def _held(imported: tuple[ImportedName, ...], held_by_trl: bool) -> NewInstallStop | None:
    first = next((item for item in imported if item.library == "trl"), None)
    return NewInstallStop("trl", first.origin, first.shown) if held_by_trl and first is not None else None
