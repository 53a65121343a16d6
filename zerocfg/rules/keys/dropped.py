"""ZC1xx: keys of a framework's recipe that its schema drops where it does not know them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.history import Histories
from zerocfg.catalog.suggest import closest
from zerocfg.frontends.registry import front_end
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.key import Key
from zerocfg.run.model import Run


@rule("ZC120", "key-axolotl-drops", Severity.WARNING, WHOLE_RUN)
def key_axolotl_drops(run: Run) -> Iterator[Finding]:
    file = run.framework_recipe
    data = file.data() if file is not None else None
    framework = front_end(run.consumer)
    facts = framework.facts if framework is not None else None
    if facts is None or facts.unknown != "dropped" or run.own_framework or not isinstance(data, dict):
        return
    if facts.extended is not None and facts.extended(data):
        return
    known = facts.keys()
    unknown = [name for name in data if isinstance(name, str) and not _is_known(known, name)]
    if 5 * len(unknown) > len(data):
        return  # a recipe of another program, which has names in common with it
    newest = [name for name in known.raw if known.today(name) is not None]
    for name in unknown:
        near = closest(name, newest)
        if near is None or near in data or name.startswith(f"{near}_"):
            continue  # nothing says what was meant
        key = Key(run, file, (name,), data[name])
        yield key.finding(
            f"{facts.title} has no key `{name}` in any release ({known.names[0]} to {known.names[-1]}): its schema "
            f"silently drops it, and `{near}` stays as it is by default",
            f"did you mean `{near}`?",
            fix=key.rename(near, f"rename the key to {near}", safe=False),
            where="key",
        )


def _is_known(known: Histories, name: str) -> bool:
    return name in known.raw or name in known.mentioned
