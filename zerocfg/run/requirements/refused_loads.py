"""The model loads of a script that a release of transformers refuses: `from_pretrained` hands a keyword that neither it
nor the model's config knows on to the model's class, which stops with a TypeError."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from zerocfg.catalog.admitted import admitted
from zerocfg.catalog.load_arguments import classes_that_take_any, removed_load_arguments
from zerocfg.catalog.versions import Release, release
from zerocfg.patterns import pattern
from zerocfg.record import record
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import ModelLoad, NewInstallStop, Run
from zerocfg.run.script.arguments import resolve_option

_LIBRARY = "transformers"
_CAUSAL = "AutoModelForCausalLM"
"""Of the models that it loads one family takes any keyword, which few train; of other Auto classes more do."""
_WITHOUT_CODE = pattern(
    r"(?i)(?:meta-llama/|codellama/|mistralai/mi[sx]tral|google/gemma|qwen/qwen[23]|eleutherai/pythia)"
)
"""Repositories of models that hold no Python, so that `trust_remote_code=True` means nothing for them."""
_NO_TEXT = pattern(r"(?i)\bvl\b|-vl|vision|llava|omni|audio")
"""In the names of models that may be another class's, at which the Auto class stops before it looks at a keyword."""
_FAMILY = pattern(r"(?i)bert|llama|qwen|mistral|gemma|gpt|electra|phi|pythia|opt-|bloom|xlnet|deepseek|falcon|t5")
"""Families of models, in their names, none of which takes any keyword."""


@record(frozen=True, slots=True)
class RefusedLoad:
    """``since``: by keyword that the model's class certainly refuses, the first release that does."""

    load: ModelLoad
    since: Mapping[str, str]

    def keywords(self, at: Release) -> list[str]:
        """Those that a release refuses, the ones that were lost first before the others."""
        lost = {name: release(since) for name, since in self.since.items()}
        return sorted((name for name in lost if lost[name] <= at), key=lost.__getitem__)


def refused_loads(run: Run) -> Iterator[RefusedLoad]:
    """Those that some release refuses, whatever the project admits, in the order in which the script comes to them."""
    for load in run.script.loads if run.script is not None else ():
        if _is_known(load, run):
            yield RefusedLoad(load, {name: removed_load_arguments()[name] for name in load.refused})


def stopping_load(run: Run) -> NewInstallStop | None:
    """The first model load that the newest admitted release of transformers refuses, where the script certainly comes
    to it before it makes or parses arguments of a Trainer: with that release nobody ever sees those. None where there
    is none, or a commit, a path or a variable decides on the release."""
    if _LIBRARY in run.undetermined or _LIBRARY in run.outdated:
        return None
    among = admitted(_LIBRARY, run.versions.get(_LIBRARY, f"=={VERSIONS[_LIBRARY]}"))
    if among is None or not among.releases:
        return None
    first = next((item for item in refused_loads(run) if item.keywords(among.newest)), None)
    if first is None or not first.load.ahead:
        return None
    return NewInstallStop(_LIBRARY, first.load.origin, refused=first.keywords(among.newest)[0])


def _is_known(load: ModelLoad, run: Run) -> bool:
    """Whether the class that is loaded in the end takes no keywords but its own."""
    types = classes_that_take_any().get(load.name)
    if not load.name.startswith("Auto"):
        return types is None
    model = resolve_option(load.model, run.arguments).value
    named = model if isinstance(model, str) else ""
    if load.name == _CAUSAL and _NO_TEXT.search(named):
        return False
    trusts = resolve_option(load.trusts, run.arguments).value
    if trusts not in (False, None) and _WITHOUT_CODE.match(named) is None:
        return False
    plain = named.lower().replace("-", "").replace("_", "")
    if any(item.replace("_", "").replace("-", "") in plain for item in types or ()):
        return False
    return types is None or load.name == _CAUSAL or _FAMILY.search(named) is not None
