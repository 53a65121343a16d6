"""ZC1xx: keys of an axolotl recipe, which its schema drops where it does not know them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.history import Histories, histories
from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.key import Key
from zerocfg.run.model import Run


@rule("ZC120", "key-axolotl-drops", Severity.WARNING)
def key_axolotl_drops(run: Run) -> Iterator[Finding]:
    file = run.framework_recipe
    data = file.data() if file is not None else None
    if run.consumer != "axolotl" or run.own_framework or not isinstance(data, dict) or _has_other_plugins(data):
        return
    known = histories("axolotl")
    unknown = [name for name in data if isinstance(name, str) and not _is_known(known, name)]
    if 5 * len(unknown) > len(data):
        return  # a recipe of another program, which has names in common with axolotl
    newest = [name for name in known.raw if known.today(name) is not None]
    for name in unknown:
        near = closest(name, newest)
        if near is None or near in data or name.startswith(f"{near}_"):
            continue  # nothing says what was meant
        key = Key(run, file, (name,), data[name])
        yield key.finding(
            f"axolotl has no key `{name}` in any release ({known.names[0]} to {known.names[-1]}): its schema silently "
            f"drops it, and `{near}` stays as it is by default",
            f"did you mean `{near}`?",
            fix=key.rename(near, f"rename the key to {near}", safe=False),
            where="key",
        )


def _is_known(known: Histories, name: str) -> bool:
    return name in known.raw or name in known.mentioned


def _has_other_plugins(data: dict[object, object]) -> bool:
    """Whether plugins outside of axolotl bring keys of their own."""
    plugins = data.get("plugins") or ()
    names = plugins if isinstance(plugins, (list, tuple)) else (plugins,)
    return not all(isinstance(name, str) and name.startswith("axolotl.") for name in names)
