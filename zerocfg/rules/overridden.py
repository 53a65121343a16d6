"""ZC207 to ZC211: values that somebody wrote, and of which the job silently gets others."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_section, anchor, deepspeed_data, edited, failures, words
from zerocfg.rules.proof import crashes, shows
from zerocfg.run.arguments import arguments_of
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry

_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 2}%s}\n'
)
_SCHEDULER = (
    ', "gradient_clipping": "auto", "optimizer": {"type": "%s", "params": {"lr": "auto"}}, '
    '"zero_allow_untested_optimizer": true'
)
_OWN_LOOP = "accelerate launch --config_file accelerate.yaml train.py --gradient_accumulation_steps 2\n"
_STEPS = "gradient_accumulation_steps"
_YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
    "  gradient_accumulation_steps: %s\n"
)


@rule(
    "ZC207",
    "accumulation-auto-without-trainer",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % "auto"}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _YAML % 2}, consumer="accelerate"),
    proof=crashes("arguments", "invalid literal for int.. with base 10: 'auto'"),
    consumers={"accelerate"},
)
def accumulation_auto_without_trainer(run: Run) -> Iterator[Finding]:
    """`gradient_accumulation_steps: auto` (or 2.0) in the accelerate config of a script with its own loop.

    What happens: `Accelerator()` calls int() on the exported text: `ValueError: invalid literal for int() with base
    10: 'auto'`. Only the Trainer understands "auto" here; a DeepSpeed JSON may hold it in both cases.
    """
    for failure in failures(run, "ZC207"):
        location, related = anchor(run, failure.places)
        yield Finding(
            location,
            f"{failure.message} and stops: only the Trainer fills an accumulation that is no whole number",
            "write a whole number",
            related,
        )


@rule(
    "ZC208",
    "accumulation-two-numbers",
    Severity.WARNING,
    bad=Example(
        {
            "accelerate.yaml": _YAML % 4,
            "train.sh": _OWN_LOOP,
            "recipe.yaml": "gradient_accumulation_steps: 2\n",
        },
        consumer="accelerate",
    ),
    good=Example(
        {
            "accelerate.yaml": _YAML % 2,
            "train.sh": _OWN_LOOP,
            "recipe.yaml": "gradient_accumulation_steps: 2\n",
        },
        consumer="accelerate",
    ),
    proof=shows("arguments", {"args.gradient_accumulation_steps": (4, 2)}),
)
def accumulation_two_numbers(run: Run) -> Iterator[Finding]:
    """The accelerate config and the script's option name different numbers for gradient accumulation.

    What happens: the exported variable beats `Accelerator(gradient_accumulation_steps=...)` without a word, so a
    script with its own loop accumulates what the config says while it counts its steps by its own option. Under the
    Trainer train() stops (ZC201).
    """
    if run.consumer in TRAINERS or run.accelerate is None:
        return
    written, given = accelerate_section(run).get(_STEPS), run.arguments.get(_STEPS)
    exported = run.effective.environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
    if given is None or exported is None or exported.origin.file is not run.accelerate:
        return
    if not str(given.value).isdigit() or not str(written).isdigit() or int(str(written)) == int(given.value):
        return
    location, related = anchor(run, [exported.origin, given.origin])
    yield Finding(
        location,
        f"`{_STEPS}` is {written} here but {given.value} on the launch line; with its own Accelerator() the script "
        "silently gets the first, and the Trainer stops at the difference",
        "keep one of the two",
        related,
    )


@rule(
    "ZC209",
    "clipping-not-passed-on",
    Severity.ERROR,
    bad=Example(
        {"recipe.yaml": _RECIPE + "max_grad_norm: 0.3\ndeepspeed: ds.json\n", "ds.json": _DS % ""},
        consumer="transformers",
    ),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "max_grad_norm: 0.3\ndeepspeed: ds.json\n",
            "ds.json": _DS % ', "gradient_clipping": "auto"',
        },
        consumer="transformers",
    ),
    proof=shows("parse", {"engine.gradient_clipping": (1.0, 0.3)}),
    consumers=TRAINERS,
    fixable=True,
)
def clipping_not_passed_on(run: Run) -> Iterator[Finding]:
    """`max_grad_norm` of the training arguments does not reach DeepSpeed.

    What happens: under DeepSpeed the engine clips, not the Trainer, and the Trainer fills `gradient_clipping` only
    where it stands as "auto". A DeepSpeed config without the key clips at DeepSpeed's default, 1.0 since 0.19.3,
    whatever `max_grad_norm` says.
    """
    if run.deepspeed is None or not deepspeed_data(run) or "gradient_clipping" in deepspeed_data(run):
        return
    if run.effective.value("engine") != "deepspeed":
        return
    asked = arguments_of(run).setting("max_grad_norm")
    if asked.origin.kind in ("default", "computed") or not isinstance(asked.value, (int, float)) or asked.value == 1.0:
        return
    location, related = anchor(run, [asked.origin])
    yield Finding(
        location,
        f"max_grad_norm {asked.value} does not reach DeepSpeed: {run.deepspeed.name} has no `gradient_clipping`, "
        "so the "
        "engine silently clips at its default, 1.0",
        f'add "gradient_clipping": "auto" to {run.deepspeed.name}',
        [*related, Location(run.deepspeed)],
        edited(insert_entry, run.deepspeed, (), "gradient_clipping", '"auto"', why="let the Trainer pass it on"),
    )


@rule(
    "ZC210",
    "clipping-cannot-be-switched-off-here",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
            "  gradient_accumulation_steps: 1\n  gradient_clipping: 0.0\n"
        },
        consumer="accelerate",
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
            "  gradient_accumulation_steps: 1\n  gradient_clipping: 0.5\n"
        },
        consumer="accelerate",
    ),
    proof=shows("parse", {"engine.gradient_clipping": (1.0, 0.5)}),
)
def clipping_cannot_be_switched_off(run: Run) -> Iterator[Finding]:
    """`gradient_clipping: 0` in the accelerate config.

    What happens: accelerate takes 0 for "not set" and leaves the key out; DeepSpeed 0.19.3 and later then clip at
    their default, 1.0. Under the Trainer `max_grad_norm: 0` with no `gradient_clipping` here switches clipping off;
    in a DeepSpeed JSON `"gradient_clipping": 0` does.
    """
    setting = run.effective.environment.get("ACCELERATE_GRADIENT_CLIPPING")
    if setting is None or run.deepspeed is not None or "ACCELERATE_DEEPSPEED_CONFIG_FILE" in run.effective.environment:
        return
    try:
        zero = float(setting.value) == 0
    except (TypeError, ValueError):
        return
    if zero and run.effective.value("engine") == "deepspeed":
        location, related = anchor(run, [setting.origin])
        yield Finding(
            location,
            f"`gradient_clipping: {setting.value}` counts as not set; DeepSpeed silently clips at its default, 1.0",
            'put "gradient_clipping": 0 into a DeepSpeed JSON named in `deepspeed_config_file`',
            related,
        )


@rule(
    "ZC211",
    "optimizer-of-json-wins",
    Severity.ERROR,
    bad=Example(
        {
            "recipe.yaml": _RECIPE + "optim: adafactor\ndeepspeed: ds.json\n",
            "ds.json": _DS % (_SCHEDULER % "SGD"),
        },
        consumer="transformers",
    ),
    good=Example(
        {
            "recipe.yaml": _RECIPE + "optim: adafactor\ndeepspeed: ds.json\n",
            "ds.json": _DS % ', "gradient_clipping": "auto"',
        },
        consumer="transformers",
    ),
    proof=shows("init", {"engine.optimizer": ("SGD", "Adafactor")}),
    consumers=TRAINERS,
)
def optimizer_of_json_wins(run: Run) -> Iterator[Finding]:
    """The DeepSpeed config brings an optimizer or scheduler, and the training arguments name another.

    What happens: the one of the DeepSpeed config is used and `optim` or `lr_scheduler_type` are ignored without a
    word. A `WarmupLR` beside `lr_scheduler_type: cosine` never decays.
    """
    data = deepspeed_data(run)
    if run.deepspeed is None or run.effective.value("engine") != "deepspeed":
        return
    arguments = arguments_of(run)
    for section, name in (("optimizer", "optim"), ("scheduler", "lr_scheduler_type")):
        block = data.get(section)
        kind = block.get("type") if isinstance(block, dict) else None
        asked = arguments.setting(name)
        if (
            not isinstance(kind, str)
            or asked.origin.kind in ("default", "computed")
            or not isinstance(asked.value, str)
        ):
            continue
        if _same(section, kind, asked.value):
            continue
        location, related = anchor(run, [asked.origin])
        yield Finding(
            location,
            f"`{name}: {asked.value}` {words(asked.origin)} is silently ignored: {run.deepspeed.name} brings the "
            f"{section} "
            f"{show(kind)}",
            f"remove `{section}` from {run.deepspeed.name}, or `{name}` here",
            [*related, Location(run.deepspeed, (section, "type"), label="this one is used")],
        )


_LIKE = {
    "linear": ("WarmupDecayLR",),
    "cosine": ("WarmupCosineLR", "CosineAnnealingLR"),
    "constant": ("WarmupLR",),
    "constant_with_warmup": ("WarmupLR",),
    "warmup_stable_decay": (),
}


def _same(section: str, kind: str, asked: str) -> bool:
    """Whether both names stand for one thing: AdamW in its many builds, a schedule of the same shape."""
    if section == "optimizer":
        return kind.lower().replace("w", "") in asked.lower().replace("w", "")
    return kind in _LIKE.get(asked, (kind,))


RULES = (
    accumulation_auto_without_trainer,
    accumulation_two_numbers,
    clipping_not_passed_on,
    clipping_cannot_be_switched_off,
    optimizer_of_json_wins,
)
