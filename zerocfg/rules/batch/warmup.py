"""ZC2xx: what a schedule of the DeepSpeed config makes of the learning rate: its peak, its warm-up, its decay."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.batch.hyperparameters import number
from zerocfg.rules.batch.scheduler import PARAMS, own, parameters, scheduler_type, trained
from zerocfg.rules.effects import TRAINERS, anchor, edited, effective, section, words
from zerocfg.rules.proof import logged, shows
from zerocfg.run.arguments import arguments_of
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry, replace_value
from zerocfg.source.node import Path

_WARMUPS = ("WarmupLR", "WarmupDecayLR", "WarmupCosineLR")
_RATE: Path = ("optimizer", "params", "lr")


@rule(
    "ZC229",
    "warmup-longer-than-schedule",
    Severity.WARNING,
    bad=own('{"type": "WarmupCosineLR", "params": {"total_num_steps": 500}}').finds(
        "warning", 'ds.json:1:135: "params"', 1000, 500, also=('ds.json: "total_num_steps": 500',)
    ),
    good=own('{"type": "WarmupCosineLR", "params": {"total_num_steps": 500, "warmup_num_steps": 50}}'),
    proof=shows("init", {"log": logged("total_num_steps 500 is less than warmup_num_steps 1000")}),
    references=("deepspeed/runtime/lr_schedules.py@0.19.8",),
)
def warmup_longer_than_schedule(run: Run) -> Iterator[Finding]:
    """The warm-up is longer than the whole schedule.

    Training ends before the learning rate reached its peak, and nothing ever decays. The warm-up of 1000 steps that
    nobody wrote is DeepSpeed's default, so short runs fall into this by saying nothing.

    What happens: `total_num_steps 500 is less than warmup_num_steps 1000`, one warning line at start-up, and the run
    goes on.

    When to ignore: a run that is meant to stop within its warm-up, to find the largest learning rate that trains.
    """
    kind, params = scheduler_type(run), parameters(run)
    if kind not in ("WarmupDecayLR", "WarmupCosineLR") or params is None or run.deepspeed is None:
        return
    total = effective(run, "scheduler.params.total_num_steps")
    steps = effective(run, "scheduler.params.warmup_num_steps") if "warmup_num_steps" in params else 1000
    if not number(total) or not number(steps) or total >= steps or total <= 0:
        return
    written = "warmup_num_steps" in params
    yield Finding(
        Location(run.deepspeed, (*PARAMS, "warmup_num_steps") if written else PARAMS, "entry" if written else "key"),
        f"the warm-up takes {show(steps)} steps{'' if written else ', by default,'} but the schedule ends after "
        f"{show(total)}: the learning rate never reaches its peak",
        "write a `warmup_num_steps` below total_num_steps",
        [Location(run.deepspeed, (*PARAMS, "total_num_steps"), label="the end")],
    )


@rule(
    "ZC230",
    "peak-ignores-learning-rate",
    Severity.ERROR,
    bad=(
        own('{"type": "WarmupDecayLR", "params": {"total_num_steps": 5000}}').finds(
            "error", 'ds.json:1:134: "params"', "0.001", "1e-05"
        ),
        trained(
            '{"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}}',
            "learning_rate: 0.00001\n",
        ).finds("error", 'ds.json:1:209: "params"', "0.001", "1e-05"),
    ),
    good=(
        own('{"type": "WarmupDecayLR", "params": {"total_num_steps": 5000, "warmup_max_lr": null}}'),
        own('{"type": "WarmupDecayLR", "params": {"total_num_steps": 5000, "warmup_max_lr": 1e-5}}'),
    ),
    proof=shows("init", {"schedule.max_lrs": ([0.001], [0.00001])}),
    fixable=True,
    references=("deepspeed/runtime/lr_schedules.py@0.19.8", "deepspeedai/DeepSpeed#7303"),
)
def peak_ignores_learning_rate(run: Run) -> Iterator[Finding]:
    """WarmupDecayLR without `warmup_max_lr` climbs to 1e-3, whatever the optimizer's learning rate is.

    A fine-tuning run at 1e-5 then trains at a hundred times its learning rate, after a warm-up in which all looks well.

    What happens: the schedule's own default, 0.001, is written into the optimizer at every step. (WarmupLR takes the
    optimizer's learning rate instead since 0.19, which makes the two easy to confuse.)

    Fix: adds `"warmup_max_lr"`: "auto" where the Trainer or accelerate fill it, else null, which means the optimizer's.

    When to ignore: never; write 0.001 if it is meant.
    """
    params = parameters(run)
    if scheduler_type(run) != "WarmupDecayLR" or params is None or "warmup_max_lr" in params or run.deepspeed is None:
        return
    rate = section(run, "optimizer", "params").get("lr")
    if run.consumer in TRAINERS:
        rate = arguments_of(run).setting("learning_rate").value
    if number(rate) and rate == 1e-3:
        return
    filler = run.consumer in (*TRAINERS, "accelerate")
    text = '"auto"' if filler else "null"
    known = f" although the optimizer's learning rate is {show(rate)}" if number(rate) else ""
    yield Finding(
        Location(run.deepspeed, PARAMS, "key"),
        f"WarmupDecayLR has no `warmup_max_lr` and silently climbs to its own default, 0.001{known}",
        f'add `"warmup_max_lr": {text}`: the learning rate of the optimizer',
        fix=edited(insert_entry, run.deepspeed, PARAMS, "warmup_max_lr", text, why="climb to the optimizer's rate"),
        severity=None if number(rate) else Severity.WARNING,
    )


@rule(
    "ZC231",
    "peak-beats-learning-rate",
    Severity.WARNING,
    bad=own('{"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}').finds(
        "warning", 'ds.json: "warmup_max_lr": 1e-3', "0.001", "1e-05", also=('ds.json: "lr": 1e-5',)
    ),
    good=own('{"type": "WarmupLR", "params": {"warmup_max_lr": 1e-5}}'),
    proof=shows("init", {"schedule.max_lrs": ([0.001], [0.00001])}),
    fixable=True,
    references=("deepspeed/runtime/lr_schedules.py@0.19.8",),
)
def peak_beats_learning_rate(run: Run) -> Iterator[Finding]:
    """`warmup_max_lr` of the schedule differs from `lr` of the optimizer.

    Two numbers for one thing stand in the same file, and the one that people look for first, the optimizer's, is the
    one that is never used. Changing it in a sweep changes nothing.

    What happens: the schedule writes its own learning rate into the optimizer at every step, from the first.

    Fix: gives the schedule the optimizer's number (unsafe: the training changes, and the other number may be meant).

    When to ignore: the optimizer's number is known to be a left-over; make them equal all the same.
    """
    params, rate = parameters(run), section(run, "optimizer", "params").get("lr")
    if scheduler_type(run) not in ("WarmupLR", "WarmupDecayLR") or params is None or run.deepspeed is None:
        return
    peak = params.get("warmup_max_lr")
    if run.consumer in TRAINERS or not number(rate) or not number(peak) or rate == peak:
        return
    document = run.deepspeed.document
    node = document.get(_RATE) if document is not None else None
    text = document.source.text[node.span.start : node.span.end] if document is not None and node is not None else None
    path: Path = (*PARAMS, "warmup_max_lr")
    yield Finding(
        Location(run.deepspeed, path),
        f"the schedule climbs to {show(peak)}, the optimizer's `lr` is {show(rate)} and never used",
        "write one number in both places",
        [Location(run.deepspeed, _RATE, label="without effect")],
        edited(replace_value, run.deepspeed, path, text, why="climb to the optimizer's rate", safe=False)
        if text
        else None,
    )


@rule(
    "ZC232",
    "warmup-type-unknown",
    Severity.ERROR,
    bad=(
        own('{"type": "WarmupLR", "params": {"warmup_type": "Linear"}}').finds("error", 'ds.json: "Linear"'),
        own('{"type": "WarmupLR", "params": {"warmup_type": "cosine"}}').finds("error", 'ds.json: "cosine"'),
    ),
    good=own('{"type": "WarmupLR", "params": {"warmup_type": "linear"}}'),
    proof=shows("init", {"schedule.warmup_type": ("log", "linear")}),
    fixable=True,
    references=("deepspeed/runtime/lr_schedules.py@0.19.8",),
)
def warmup_type_unknown(run: Run) -> Iterator[Finding]:
    """`warmup_type` is neither "log" nor "linear".

    The logarithmic warm-up that is used instead is at half of its peak after a tenth of a linear one's steps: much
    larger first updates than were asked for.

    What happens: `Using unknown warmup_type: Linear. The increasing function is set to default (log)`, one line among
    hundreds, and the run goes on.

    Fix: writes "linear" (unsafe for a word that does not mean it).

    When to ignore: never; write "log" if the default is meant.
    """
    params = parameters(run)
    if scheduler_type(run) not in _WARMUPS or params is None or run.deepspeed is None:
        return
    kind = params.get("warmup_type", "log")
    if kind in ("log", "linear", "auto") or not isinstance(kind, str):
        return
    path: Path = (*PARAMS, "warmup_type")
    meant = "log" if kind.lower().startswith("log") else "linear"
    same = kind.strip().lower() == meant
    yield Finding(
        Location(run.deepspeed, path, "value"),
        f"`warmup_type: {show(kind)}` is unknown: DeepSpeed logs that and warms up logarithmically",
        'write "linear" or "log", in lower case',
        fix=edited(replace_value, run.deepspeed, path, f'"{meant}"', why=f'write "{meant}"', safe=same),
    )


@rule(
    "ZC233",
    "warmup-not-passed-on",
    Severity.ERROR,
    bad=trained('{"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}', "warmup_steps: 100\n").finds(
        "error", "recipe.yaml: warmup_steps: 100", 100, 1000, also=('ds.json: "params": {"warmup_max_lr": "auto"}',)
    ),
    good=trained(
        '{"type": "WarmupLR", "params": {"warmup_max_lr": "auto", "warmup_num_steps": "auto"}}', "warmup_steps: 100\n"
    ),
    proof=shows("init", {"schedule.warmup_num_steps": (1000, 100)}),
    consumers=TRAINERS,
    fixable=True,
    references=("transformers/integrations/deepspeed.py@5.23.0", "deepspeed/runtime/lr_schedules.py@0.19.8"),
)
def warmup_not_passed_on(run: Run) -> Iterator[Finding]:
    """`warmup_steps` of the training arguments does not reach the schedule of the DeepSpeed config.

    The Trainer fills only keys that are there. A short fine-tuning run then spends all of its steps in a warm-up of
    1000 that nobody asked for, far below its learning rate.

    What happens: DeepSpeed's schedule takes its own default, 1000 steps, without a message.

    Fix: adds `"warmup_num_steps": "auto"`, which the Trainer fills.

    When to ignore: never; remove `warmup_steps` if 1000 is meant.
    """
    params, kind = parameters(run), scheduler_type(run)
    if kind not in _WARMUPS or params is None or "warmup_num_steps" in params or run.deepspeed is None:
        return
    asked = arguments_of(run).setting("warmup_steps")
    if asked.origin.kind in ("default", "computed") or not number(asked.value) or asked.value == 1000:
        return
    location, related = anchor(run, [asked.origin])
    yield Finding(
        location,
        f"`warmup_steps: {show(asked.value)}` ({words(asked.origin)}) does not reach {kind} of {run.deepspeed.name}, "
        "which has no `warmup_num_steps` and silently warms up for 1000 steps",
        'add `"warmup_num_steps": "auto"` to `scheduler.params`',
        [*related, Location(run.deepspeed, PARAMS, label="no such key here")],
        edited(insert_entry, run.deepspeed, PARAMS, "warmup_num_steps", '"auto"', why="let the Trainer fill it in"),
    )


@rule(
    "ZC236",
    "decay-without-interval",
    Severity.ERROR,
    bad=own('{"type": "OneCycle", "params": {"cycle_min_lr": 1e-6, "cycle_max_lr": 1e-5, "decay_lr_rate": 0.1}}').finds(
        "error", 'ds.json: "decay_lr_rate": 0.1', "0.1", 0
    ),
    good=own(
        '{"type": "OneCycle", "params": {"cycle_min_lr": 1e-6, "cycle_max_lr": 1e-5, "decay_lr_rate": 0.1, '
        '"decay_step_size": 1000}}'
    ),
    proof=shows("init", {"schedule.skip_lr_decay": (True, False)}),
    references=("deepspeed/runtime/lr_schedules.py@0.19.8",),
)
def decay_without_interval(run: Run) -> Iterator[Finding]:
    """OneCycle with a `decay_lr_rate` and no `decay_step_size`.

    The decay after the cycle is written down and does not happen: the learning rate stays at `cycle_min_lr` to the end.

    What happens: `decay_step_size` is 0 by default, which switches every decay off, without a message.

    When to ignore: never; remove `decay_lr_rate` if no decay is meant.
    """
    params = parameters(run)
    if scheduler_type(run) != "OneCycle" or params is None or run.deepspeed is None:
        return
    rate, interval = params.get("decay_lr_rate"), params.get("decay_step_size", 0)
    if not number(rate) or rate == 0 or not number(interval) or interval != 0:
        return
    yield Finding(
        Location(run.deepspeed, (*PARAMS, "decay_lr_rate")),
        f"`decay_lr_rate: {show(rate)}` has no effect: `decay_step_size` is 0, which switches the decay off",
        "add `decay_step_size`, the number of steps between two decays",
    )


RULES = (
    warmup_longer_than_schedule,
    peak_ignores_learning_rate,
    peak_beats_learning_rate,
    warmup_type_unknown,
    warmup_not_passed_on,
    decay_without_interval,
)
