"""ZC8xx: TRL's recipes: how a line names one, and words that TRL does not take. See also :mod:`trl_options`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.versions import only_from
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Location, Severity, rule
from zerocfg.rules.argument_reader import methods
from zerocfg.rules.arguments import set_argument, value, written
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit


@rule("ZC842", "config-with-equals-sign", Severity.ERROR, WHOLE_RUN)
def config_with_equals_sign(run: Run) -> Iterator[Finding]:
    option, file = run.arguments.get("config"), run.launch_file
    if option is None or file is None or option.origin.span is None or option.origin.file is not file:
        return
    if run.recipe_reader != "trl" or not 1 <= len(methods(run)) <= 4:
        return
    span = option.origin.span
    text = file.source.text[span.start : span.end]
    if text.startswith("--config="):
        replaced = Edit(span, "--config " + text.removeprefix("--config="))
        yield Finding(
            Location(file, span=span),
            "TrlParser does not know `--config` with an equals sign: the recipe is not read, and the parser stops",
            "write a space instead of the equals sign",
            fix=Fix("write a space", ((file, replaced),)),
        )


DPO_LOSSES = (
    "sigmoid hinge ipo exo_pair nca_pair robust bco_pair sppo_hard aot aot_unpaired apo_zero apo_down discopop sft "
    "sigmoid_norm".split()
)
_TRL_WORDS: dict[str, dict[str, tuple[str, ...]]] = {
    "SFTConfig": {"loss_type": ("nll", "dft", "chunked_nll"), "packing_strategy": ("bfd", "bfd_split", "wrapped")},
    "DPOConfig": {"loss_type": tuple(DPO_LOSSES)},
}
_LOSSES = frozenset(("compute_loss", "_compute_loss", "get_batch_loss_metrics", "dpo_loss"))
"""Methods of TRL's trainers that look at the type of the loss, or call what does."""
_FORMER = {"ffd": "bfd"}
"""Words of older releases, and what they are called today."""


@rule("ZC843", "trl-word-unknown", Severity.ERROR, WHOLE_RUN)
def trl_word_unknown(run: Run) -> Iterator[Finding]:
    certain = only_from(run.declared("trl"), VERSIONS["trl"])
    configs = methods(run)
    table = _TRL_WORDS.get(next(iter(configs)), {}) if len(configs) == 1 else {}
    replaced = run.script.replaced if run.script is not None else frozenset[str]()
    for name, known in table.items():
        if name == "loss_type" and not replaced.isdisjoint(_LOSSES):
            continue  # a loss of its own may have more types
        stated = value(run, name)
        items = stated if isinstance(stated, list) else [stated]
        for at, item in enumerate(items):
            if not isinstance(item, str) or item in known:
                continue
            near = _FORMER.get(item) or closest(item, known)
            meant = [*map(str, items[:at]), str(near), *map(str, items[at + 1 :])]
            text = f"[{', '.join(meant)}]" if isinstance(stated, list) else str(near)
            yield written(run, name, where="value").finding(
                f"`{name}` knows no `{item}`; the training stops at it",
                f"write {near}" if near else "write one of " + ", ".join(known),
                set_argument(run, name, text, f"write {near}") if near else None,
                severity=Severity.NOTE if item in _FORMER and not certain else None,
                versions="trl>=0.23" if name == "loss_type" and configs == {"SFTConfig"} else "",
            )
