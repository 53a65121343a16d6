"""Packages that decide which release of a library is installed, or install something else in its place.

Which release of these packages is installed is known, if at all, and not which releases of the library each of them
takes: so the library's release is open where nothing else states it.
"""

from __future__ import annotations

from collections.abc import Mapping

from zerocfg.source.requirements.pip import Requirement

HOLDS: Mapping[str, tuple[str, ...]] = {
    "rankify": ("transformers",),
    "unsloth": ("transformers", "trl"),
    "unsloth-zoo": ("transformers", "trl"),
}
"""Packages whose every release so far takes only some releases of a library, by their metadata: rankify 0.1.4
``transformers==4.45.2``, unsloth and unsloth_zoo 2026.10.9 ``transformers<=5.17.0`` and ``trl<=1.15.0``."""
HOLDS_WHERE_OLD: Mapping[str, tuple[str, ...]] = {"vllm": ("transformers", "trl")}
"""The same for packages of which an old release is installed: TRL imports of vLLM what only some of its releases have
(with vLLM 0.10.2, TRL 1.16.0 stops at `vllm.utils.network_utils`)."""
FORKS: Mapping[str, tuple[str, ...]] = {
    "accelerate-kt": ("accelerate",),
    "transformers-kt": ("transformers",),
    "ktransformers[sft]": ("accelerate", "transformers"),
    "transformers-openpi": ("transformers",),
    "transformers-qwenomni": ("transformers",),
    "transformers-usf": ("transformers",),
    "trl-fpo": ("trl",),
}
"""Distributions that install a fork as the package of a library, by what they hold: accelerate-kt 1.14.0.post4 the
package ``accelerate``; transformers-kt 5.6.0.post6, transformers-openpi 4.53.3, transformers-qwenomni 4.52.0.3 and
transformers-usf 4.56.0.post13 ``transformers``; trl-fpo 0.0.15 ``trl``. ktransformers 0.7.2 asks for the first two in
its extra ``sft``. Others with a library's name in theirs hold packages of their own, as deepspeed-vacc 0.16.3 does."""
DECIDERS = frozenset((*HOLDS, *HOLDS_WHERE_OLD, *FORKS))


def decider(item: Requirement) -> str | None:
    """The name in these tables of what a requirement asks for; None where it is none of them."""
    with_extra = next((f"{item.name}[{extra}]" for extra in item.extras if f"{item.name}[{extra}]" in DECIDERS), None)
    return with_extra or (item.name if item.name in DECIDERS else None)
