"""ZC2xx: the optimizer that the DeepSpeed config names, and what DeepSpeed makes of it.

What it cannot be combined with is in :mod:`optimizer_fit`, its numbers in :mod:`hyperparameters`.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import WITH_ACCELERATE, deepspeed_data, effective_value, section, stage_of
from zerocfg.rules.fixes import edited, present
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value
from zerocfg.source.node import Path

NATIVE = ("adam", "adamw", "adagrad", "lamb", "lion", "muon", "muadam", "muadamw", "musgd")
"""Optimizers that DeepSpeed builds itself, in any case."""

_TORCH = (
    "ASGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "LBFGS",
    "NAdam",
    "RAdam",
    "RMSprop",
    "Rprop",
    "SGD",
    "SparseAdam",
)
"""Classes of torch.optim; these only by their exact name."""

_ONE_BIT = ("onebitadam", "zerooneadam", "onebitlamb")
TYPE: Path = ("optimizer", "type")
_ALLOW = "zero_allow_untested_optimizer"


def optimizer_type(run: Run) -> str | None:
    """The type that the DeepSpeed config names, as written; None when DeepSpeed is not the engine."""
    kind = section(run, "optimizer").get("type")
    if run.deepspeed is None or not isinstance(kind, str) or kind == "auto":
        return None
    return kind if effective_value(run, "engine") in (None, UNKNOWN, "deepspeed") else None


def _torch_class(kind: str) -> str | None:
    """The class of torch.optim that a name means, whatever its case; None for one that DeepSpeed builds itself."""
    if kind.lower() in NATIVE:
        return None
    return next((name for name in _TORCH if name.lower() == kind.lower()), None)


@rule("ZC212", "optimizer-unknown", Severity.ERROR)
def optimizer_unknown(run: Run) -> Iterator[Finding]:
    kind = optimizer_type(run)
    if kind is None or run.deepspeed is None or kind.lower() in NATIVE or kind in _TORCH:
        return
    meant = _torch_class(kind)
    if meant is not None:
        help_text = f"names of torch.optim are case-sensitive: write {show(meant)}"
    elif kind.lower() in _ONE_BIT:
        help_text = "1-bit optimizers were removed from DeepSpeed; AdamW or Lamb is what is left"
    else:
        help_text = "write AdamW, another of DeepSpeed's own, or the exact name of a class of torch.optim"
    yield Finding(
        Location(run.deepspeed, TYPE, "value"),
        f"DeepSpeed knows no optimizer {show(kind)}; it stops when the engine is built, after the model was loaded",
        help_text,
        fix=_known_name(run, kind, meant),
        versions="deepspeed>=0.19.7" if kind.lower() in _ONE_BIT else "",
    )


def _known_name(run: Run, kind: str, meant: str | None) -> Fix | None:
    if meant is not None:
        return edited(replace_value, run.deepspeed, TYPE, f'"{meant}"', why=f"write {meant}")
    if kind.lower() in ("onebitadam", "zerooneadam"):
        return edited(replace_value, run.deepspeed, TYPE, '"AdamW"', why="use AdamW instead", safe=False)
    return None


@rule("ZC213", "optimizer-untested-with-zero", Severity.ERROR)
def optimizer_untested_with_zero(run: Run) -> Iterator[Finding]:
    kind, stage, file = optimizer_type(run), stage_of(run), run.deepspeed
    if kind is None or file is None or not stage or deepspeed_data(run).get(_ALLOW):
        return
    if kind.lower() != "lamb" and (_torch_class(kind) is None or kind.lower() in NATIVE):
        return
    why = f'add "{_ALLOW}": true'
    if present(file, (_ALLOW,)):
        fix = edited(replace_value, file, (_ALLOW,), "true", why=why, safe=False)
    else:
        fix = edited(insert_entry, file, (), _ALLOW, "true", why=why, safe=False, after="optimizer")
    yield Finding(
        Location(file, TYPE, "value"),
        f"ZeRO stage {stage} takes {show(kind)} only with `{_ALLOW}`, which is not set; "
        "DeepSpeed stops when the engine is built",
        f'add `"{_ALLOW}": true` if you know that it works with sharded states, or use AdamW',
        fix=fix,
    )


@rule("ZC214", "optimizer-without-type", Severity.ERROR)
def optimizer_without_type(run: Run) -> Iterator[Finding]:
    written = deepspeed_data(run).get("optimizer")
    if not isinstance(written, dict) or written.get("type") is not None or run.deepspeed is None:
        return
    if effective_value(run, "engine") not in (None, UNKNOWN, "deepspeed"):
        return
    handed_over = run.consumer in WITH_ACCELERATE
    if not handed_over and not written:
        return
    path: Path = ("optimizer",)
    if written:
        fix = edited(insert_entry, run.deepspeed, path, "type", '"AdamW"', why='add "type": "AdamW"', safe=False)
    else:
        fix = edited(delete_entry, run.deepspeed, path, why="remove the empty section")
    yield Finding(
        Location(run.deepspeed, path, "key"),
        "`optimizer` has no `type`: "
        + (
            "the Trainer and accelerate leave the optimizer to DeepSpeed, which makes none and stops"
            if handed_over
            else "DeepSpeed makes none, and stops unless the program passes its own"
        ),
        "name one, or remove the section",
        fix=fix if "type" not in written else None,
        severity=None if handed_over else Severity.WARNING,
    )


def adam_params(run: Run) -> dict[str, object] | None:
    """The parameters of an Adam or AdamW of the DeepSpeed config."""
    kind = optimizer_type(run)
    return section(run, "optimizer", "params") if kind is not None and kind.lower() in ("adam", "adamw") else None


@rule("ZC215", "adam-w-mode-ignored", Severity.ERROR)
def adam_w_mode_ignored(run: Run) -> Iterator[Finding]:
    params, kind = adam_params(run), optimizer_type(run)
    if params is None or kind is None or kind.lower() != "adamw" or run.deepspeed is None:
        return
    mode = params.get("adam_w_mode")
    if mode is not False and (mode != 0 or not isinstance(mode, int)):
        return
    yield Finding(
        Location(run.deepspeed, ("optimizer", "params", "adam_w_mode")),
        f"`adam_w_mode: {show(mode)}` is silently ignored: the type {show(kind)} always decouples weight decay",
        'write the type "Adam" for L2 regularisation, or remove `adam_w_mode`',
        [Location(run.deepspeed, TYPE, "value", label="this decides")],
        edited(replace_value, run.deepspeed, TYPE, '"Adam"', why="the type that obeys adam_w_mode", safe=False),
    )


@rule("ZC216", "adam-is-adamw", Severity.WARNING)
def adam_is_adamw(run: Run) -> Iterator[Finding]:
    params, kind = adam_params(run), optimizer_type(run)
    if params is None or kind is None or kind.lower() != "adam" or "adam_w_mode" in params or run.deepspeed is None:
        return
    decay = effective_value(run, "optimizer.params.weight_decay")
    if isinstance(decay, bool) or not isinstance(decay, (int, float)) or decay == 0:
        return
    yield Finding(
        Location(run.deepspeed, TYPE, "value"),
        f"the type {show(kind)} with a weight decay of {show(decay)} runs as AdamW: DeepSpeed decouples weight decay "
        "unless `adam_w_mode` is false",
        'write "AdamW", or add `"adam_w_mode": false` for L2 regularisation',
        fix=edited(replace_value, run.deepspeed, TYPE, '"AdamW"', why="the name of what runs"),
    )
