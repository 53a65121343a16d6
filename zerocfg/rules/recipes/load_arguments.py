"""ZC878: keywords of a model's `from_pretrained` that the admitted releases of transformers refuse."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.admitted import admitted, releases_where
from zerocfg.catalog.versions import release
from zerocfg.record import replace
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, at, rule
from zerocfg.rules.fields_twice import newest_refuses_fields
from zerocfg.rules.release_scope import limited
from zerocfg.rules.taken import as_installed
from zerocfg.run.model import Run
from zerocfg.run.requirements.refused_loads import RefusedLoad, refused_loads

_LIBRARY = "transformers"
_INSTEAD = {
    "use_flash_attention_2": 'write attn_implementation="flash_attention_2"',
    "load_in_8bit": "write quantization_config=BitsAndBytesConfig(load_in_8bit=True)",
    "load_in_4bit": "write quantization_config=BitsAndBytesConfig(load_in_4bit=True)",
    "use_auth_token": "write token",
}
_SWITCHES = frozenset(_INSTEAD) - {"use_auth_token"}


@rule("ZC878", "load-argument-removed", Severity.ERROR, WHOLE_RUN)
def load_argument_removed(run: Run) -> Iterator[Finding]:
    if run.new_install_stop is not None and run.new_install_stop.refused:
        run = replace(run, new_install_stop=None)  # this is what it stops at
    installed = as_installed(run, _LIBRARY)
    among = admitted(_LIBRARY, installed[0].versions[_LIBRARY]) if installed is not None else None
    if installed is None or among is None or not among.releases or newest_refuses_fields(run):
        return
    judged, severity = installed
    refused = [(item, name) for item in refused_loads(run) for name in item.keywords(among.newest)]
    places = [place for item, name in refused if (place := at(item.load.refused[name].origin)) is not None]
    if not places:
        return
    first, name = refused[0]  # the script stops there
    words = releases_where(lambda since: since >= release(first.since[name]), among, _LIBRARY)
    others = len({other for _, other in refused}) - 1
    more = f" and {others} more keywords" if others > 1 else " and one more keyword" if others else ""
    finding = Finding(
        places[0],
        f"transformers {first.since[name]} no longer takes `{name}`{more} in from_pretrained(): {first.load.name} "
        "stops with a TypeError",
        "; ".join(dict.fromkeys(_advice(item, name) for item, name in refused)),
        places[1:],
        severity=severity,
    )
    yield limited(judged, finding, _LIBRARY, words or "")


def _advice(item: RefusedLoad, name: str) -> str:
    """What to write in the place of a keyword; one that switches nothing on goes."""
    off = name in _SWITCHES and item.load.refused[name].value in (False, None)
    instead = "" if off else _INSTEAD.get(name, "")
    return f"{instead} instead of {name}" if instead else f"leave {name} out"
