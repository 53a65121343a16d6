"""ZC2xx: the optimizer that the DeepSpeed config names, and what DeepSpeed makes of it.

What it cannot be combined with is in :mod:`optimizer_fit`, its numbers in :mod:`hyperparameters`.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Severity, Subject, rule
from zerocfg.rules.batch.sections import section_without_type, type_of
from zerocfg.rules.effects import stage_of, with_accelerate
from zerocfg.rules.key import Key, deepspeed, setting
from zerocfg.rules.subjects import given_by, one_key
from zerocfg.run.model import Run

NATIVE = ("adam", "adamw", "adagrad", "lamb", "lion", "muon", "muadam", "muadamw", "musgd")
"""Optimizers that DeepSpeed builds itself, in any case."""

_TORCH = "ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax LBFGS NAdam RAdam RMSprop Rprop SGD SparseAdam".split()
"""Classes of torch.optim; these only by their exact name."""

_ONE_BIT = ("onebitadam", "zerooneadam", "onebitlamb")
_ALLOW = "zero_allow_untested_optimizer"


def optimizer_type(run: Run, *types: str) -> Key | None:
    """The optimizer that the DeepSpeed config names, where ``types``, in lower case, have it or are none; None when
    DeepSpeed is not the engine."""
    kind = type_of(run, "optimizer")
    return kind if kind is not None and (not types or kind.value.lower() in types) else None


def optimizer_of(*types: str) -> Subject[Key]:
    """The same, for rules that ask its run for more."""
    return given_by(lambda run: optimizer_type(run, *types))


def optimizer_params(run: Run) -> Key:
    return deepspeed(run, "optimizer", "params")


def _torch_class(name: str) -> str | None:
    """The class of torch.optim that a name means, whatever its case; None for one that DeepSpeed builds itself."""
    if name.lower() in NATIVE:
        return None
    return next((known for known in _TORCH if known.lower() == name.lower()), None)


@rule("ZC212", "optimizer-unknown", Severity.ERROR, one_key(optimizer_type))
def optimizer_unknown(kind: Key) -> Iterator[Finding]:
    if kind.value.lower() in NATIVE or kind.value in _TORCH:
        return
    name, meant, fix = kind.value.lower(), _torch_class(kind.value), None
    if meant is not None:
        help_text = f"names of torch.optim are case-sensitive: write {show(meant)}"
        fix = kind.replace(f'"{meant}"', f"write {meant}")
    elif name in _ONE_BIT:
        help_text = "1-bit optimizers were removed from DeepSpeed; AdamW or Lamb is what is left"
        if name != "onebitlamb":
            fix = kind.replace('"AdamW"', "use AdamW instead", safe=False)
    else:
        help_text = "write AdamW, another of DeepSpeed's own, or the exact name of a class of torch.optim"
    yield kind.finding(
        f"DeepSpeed knows no optimizer {show(kind.value)}; it stops when the engine is built, after the model was "
        "loaded",
        help_text,
        fix=fix,
        where="value",
        versions="deepspeed>=0.19.7" if name in _ONE_BIT else "",
    )


@rule("ZC213", "optimizer-untested-with-zero", Severity.ERROR, optimizer_of())
def optimizer_untested_with_zero(kind: Key) -> Iterator[Finding]:
    stage, allowed = stage_of(kind.run), deepspeed(kind.run, _ALLOW)
    if not stage or allowed.value:
        return
    if kind.value.lower() != "lamb" and _torch_class(kind.value) is None:
        return
    yield kind.finding(
        f"ZeRO stage {stage} takes {show(kind.value)} only with `{_ALLOW}`, which is not set; "
        "DeepSpeed stops when the engine is built",
        f'add `"{_ALLOW}": true` if you know that it works with sharded states, or use AdamW',
        fix=allowed.set("true", f'add "{_ALLOW}": true', safe=False, after="optimizer"),
        where="value",
    )


@rule("ZC214", "optimizer-without-type", Severity.ERROR, section_without_type("optimizer"))
def optimizer_without_type(section: Key) -> Iterator[Finding]:
    if not section.section:
        fix = section.delete("remove the empty section")
    elif "type" in section:
        fix = None
    else:
        fix = section["type"].set('"AdamW"', 'add "type": "AdamW"', safe=False)
    handed_over = with_accelerate(section.run)
    yield section.finding(
        "`optimizer` has no `type`: "
        + (
            "the Trainer and accelerate leave the optimizer to DeepSpeed, which makes none and stops"
            if handed_over
            else "DeepSpeed makes none, and stops unless the program passes its own"
        ),
        "name one, or remove the section",
        fix=fix,
        where="key",
        severity=None if handed_over else Severity.WARNING,
    )


@rule("ZC215", "adam-w-mode-ignored", Severity.ERROR, optimizer_of("adamw"))
def adam_w_mode_ignored(kind: Key) -> Iterator[Finding]:
    mode = optimizer_params(kind.run)["adam_w_mode"]
    if mode.value is False or mode.count == 0:
        yield mode.finding(
            f"`adam_w_mode: {show(mode.value)}` is silently ignored: the type {show(kind.value)} always decouples "
            "weight decay",
            'write the type "Adam" for L2 regularisation, or remove `adam_w_mode`',
            [kind.at("value", "this decides")],
            kind.replace('"Adam"', "the type that obeys adam_w_mode", safe=False),
        )


@rule("ZC216", "adam-is-adamw", Severity.WARNING, optimizer_of("adam"))
def adam_is_adamw(kind: Key) -> Iterator[Finding]:
    decay = setting(kind.run, "optimizer.params.weight_decay")
    if "adam_w_mode" not in optimizer_params(kind.run) and decay.number:
        yield kind.finding(
            f"the type {show(kind.value)} with a weight decay of {show(decay.value)} runs as AdamW: DeepSpeed "
            "decouples weight decay unless `adam_w_mode` is false",
            'write "AdamW", or add `"adam_w_mode": false` for L2 regularisation',
            fix=kind.replace('"AdamW"', "the name of what runs"),
            where="value",
        )
