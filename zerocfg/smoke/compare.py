"""The same run under several ZeRO stages, and without: memory, throughput, the largest micro batch, the loss."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from zerocfg.models.model_facts import from_config
from zerocfg.report.table import Column, folded, table
from zerocfg.smoke.judge.measured import peak_in, size
from zerocfg.smoke.max_batch import Found, find, no_memory
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.folder import RunFolder
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.worker.values import mapping

if TYPE_CHECKING:
    from collections.abc import Callable

    from zerocfg.smoke.judge.verdict import Verdict
    from zerocfg.smoke.max_batch import Try
    from zerocfg.smoke.model.reduction import Reduced
    from zerocfg.smoke.smoke import Options

    Launch = Callable[[RunFolder, Options], Verdict]

DDP = "ddp"
WAYS = ("0", "1", "2", "3", DDP)
ZERO = "zero_optimization."
SAME = 0.02
"""Relative difference allowed between the losses of two setups, whose 16-bit sums differ in order and rounding."""


def parse(text: str) -> list[str]:
    """The ways in ``0,1,2,3,ddp``, in this order, each once. Raises SmokeError."""
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    wrong = [word for word in words if word not in WAYS]
    if wrong or not words:
        named = f"'{wrong[0]}' is no way to train" if wrong else "no stage is named"
        raise SmokeError(f"--compare: {named}; it takes {', '.join(WAYS)}, with commas between them")
    return list(dict.fromkeys(words))


def label(way: str) -> str:
    """The name of a setup on the screen."""
    return "DDP" if way == DDP else f"ZeRO-{way}"


@dataclass
class Row:
    """One way. ``dropped``: what the config set has and this way does not, in words. ``batches``: where searched.

    ``verdict`` None: it was not tried, and ``problem`` says why.
    """

    way: str
    dropped: list[str] = field(default_factory=list)
    verdict: Verdict | None = None
    batches: Found | None = None
    problem: str = ""

    @property
    def ended(self) -> bool:
        """Whether it trained to the end; failed checks of the configs do not matter here."""
        return self.verdict is not None and self.verdict.outcome.failure is None

    def data(self) -> dict[str, object]:
        """As JSON."""
        found: dict[str, object] = {
            "way": self.way,
            "dropped": self.dropped,
            "ended": self.ended,
            "problem": self.problem,
        }
        if self.verdict is not None:
            seen, expected = self.verdict.figures, self.verdict.expected
            found |= {
                **seen.measured().figures(),
                "peak_memory_bytes": seen.peaks(seen.counter),
                "training_memory_bytes": seen.grown() if not seen.on_card else seen.peaks("allocated"),
                "loss": seen.loss,
                "predicted": {"unknown": expected} if isinstance(expected, str) else expected.data(),
                "failed_checks": [one.name for one in self.verdict.checks if one.ok is False],
            }
        found["max_batch"] = self.batches.data() if self.batches is not None else None
        return found


@dataclass
class Comparison:
    """All ways of one run, on the same model and samples."""

    run: RunFolder
    rows: list[Row] = field(default_factory=list)

    @property
    def first(self) -> Verdict | None:
        return next((row.verdict for row in self.rows if row.verdict is not None), None)

    @property
    def interrupted(self) -> bool:
        return any(row.verdict is not None and row.verdict.outcome.interrupted for row in self.rows)

    @property
    def losses_agree(self) -> bool | None:
        """Of the setups with the same start, see `unlike`. None: fewer than two are known."""
        alike = [row.verdict for row in self.rows if row.ended and row.verdict is not None and not unlike(row)]
        known = [one.figures.loss for one in alike if one.figures.loss is not None]
        if len(known) < 2:
            return None
        return max(known) - min(known) <= SAME * max(abs(one) for one in known)

    @property
    def good(self) -> bool:
        """Every way trained to its end, with the same loss."""
        return all(row.ended for row in self.rows) and self.losses_agree is not False

    def data(self) -> dict[str, object]:
        """As JSON."""
        first = self.first
        return {
            "version": 1,
            "run": self.run.name,
            "device": None if first is None else {"kind": first.device.kind, "name": first.device.name},
            "ranks": None if first is None else first.reduced.ranks,
            "reductions": [] if first is None else first.reduced.descriptions,
            "losses_agree": self.losses_agree,
            "rows": [row.data() for row in self.rows],
        }


def unlike(row: Row) -> str:
    """Why the losses of this setup legitimately differ from the others; empty where they should agree."""
    if row.way == "3":
        return "ZeRO-3 makes the model in shards, and so its random weights in another order"
    reports = row.verdict.outcome.reports if row.verdict is not None else []
    if row.way == "0" and reports and (reports[0].get("seen") or {}).get("dtype") != "fp32":
        return "ZeRO-0 in 16 bit begins with an optimizer step of empty gradients, which moves Adam's bias correction"
    return ""


def compare(
    run: RunFolder,
    ways: list[str],
    options: Options,
    launch: Launch,
    pin: Callable[[RunFolder, Options], Reduced],
    *,
    search: dict[str, int | None] | None = None,
    on_try: Callable[[str, Try | None], None] | None = None,
) -> Comparison:
    """Launch every way. ``pin`` reduces a run without launching it; ``search``: the bounds of `max_batch.find`, None
    for no search. Raises SmokeError when the run cannot be tried at all.
    """
    if run.handwritten is not None:
        raise SmokeError("stages are compared only in runs that `zerocfg build` wrote")
    if str((run.accelerate or {}).get("distributed_type")) == "FSDP":
        raise SmokeError("--compare changes ZeRO stages; this run is one of FSDP")
    found = Comparison(run)
    changed = {way: as_way(run, way) for way in ways}
    pinned = smallest([pin(one, options) for one, _ in changed.values()])
    for way, (one, dropped) in changed.items():
        row = Row(way, dropped)
        found.rows.append(row)
        if on_try is not None:
            on_try(way, None)
        one = replace(one, pinned=pinned)
        if search is not None:
            row.batches = find(one, options, launch, **search, on_try=None if on_try is None else _for_way(on_try, way))
        row.verdict = _already(row) or launch(one, options)
        row.problem = no_memory(row.verdict.outcome) or row.verdict.outcome.failure or ""
        if found.interrupted:
            break
    return found


def _already(row: Row) -> Verdict | None:
    """The launch with the planned micro batch, where the search made it."""
    if row.batches is None or row.batches.first is None:
        return None
    planned = row.batches.run.plan.get("train_micro_batch_size_per_gpu")
    return row.batches.first if row.batches.tries[0].batch == planned else None


def _for_way(on_try: Callable[[str, Try | None], None], way: str) -> Callable[[Try], None]:
    return lambda one: on_try(way, one)


def pin_with(run: RunFolder, options: Options) -> Reduced:
    """What a launch of ``run`` would train here. Raises SmokeError as a launch does."""
    from zerocfg.smoke.smoke import device_for, ranks_for

    device = device_for(options)
    with TemporaryDirectory(prefix="zerocfg-smoke-") as scratch:
        return reduce(run, device, ranks_for(run, device, options.ranks), Path(scratch), options.limit)


def smallest(reduced: list[Reduced]) -> Reduced:
    """The reduction with the fewest parameters, and of these the shortest samples: what all of the ways can hold."""
    return min(reduced, key=lambda one: (from_config(one.model).parameters or 0, one.sequence))


def as_way(run: RunFolder, way: str) -> tuple[RunFolder, list[str]]:
    """The run under another stage, or without DeepSpeed, and the settings that were dropped. The files stay."""
    lock = copy.deepcopy(run.lock)
    accelerate, deepspeed = copy.deepcopy(run.accelerate), copy.deepcopy(run.deepspeed)
    changed = replace(run, lock=lock, accelerate=accelerate, deepspeed=deepspeed, changed={})
    if way == DDP:
        return changed, _without_deepspeed(changed)
    words = _stage(changed, int(way))
    _agree(changed)
    return changed, words


def _stage(run: RunFolder, stage: int) -> list[str]:
    plan, words = run.plan, []
    if run.deepspeed is None:
        run.deepspeed = _config_of(plan, run)
        plan["engine"] = "deepspeed"
        words.append("DeepSpeed instead of DDP, with its own defaults")
    zero = _section(run.deepspeed, "zero_optimization")
    zero["stage"] = stage
    plan[f"{ZERO}stage"] = stage
    offloads = [("offload_param", 3), ("offload_optimizer", 1)]
    for name, least in offloads:
        section = mapping(zero.get(name))
        device = section.get("device")
        if device in (None, "none"):
            continue
        if stage < least:
            del zero[name]
            plan[f"{ZERO}{name}.device"] = "none"
            words.append(f"{name} ({device}) is dropped: it needs stage {least} at least")
        elif device == "nvme" and stage < 3:
            section["device"] = "cpu"
            section.pop("nvme_path", None)
            plan[f"{ZERO}{name}.device"] = "cpu"
            words.append(f"{name}: nvme to cpu, because drives need stage 3")
    if stage == 3:
        # Else there is nothing to look at in the end; what is measured before that does not change.
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    accelerate = run.accelerate
    if accelerate is not None:
        accelerate["distributed_type"] = "DEEPSPEED"
        section = _section(accelerate, "deepspeed_config")
        section["zero3_init_flag"] = stage == 3
        section.pop("zero_stage", None)
        section["deepspeed_config_file"] = "ds_config.json"
        accelerate.pop("mixed_precision", None)  # the config's own; both together are refused
    return words


def _section(config: dict[str, object], name: str) -> dict[str, object]:
    """A section of a config, created where there is none."""
    found = config.get(name)
    if not isinstance(found, dict):
        found = config[name] = {}
    return found


def _config_of(plan: dict[str, object], run: RunFolder) -> dict[str, object]:
    """A DeepSpeed config with the settings of a plan without DeepSpeed."""
    config: dict[str, object] = {"zero_optimization": {}}
    for key in ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"):
        if plan.get(key) is not None:
            config[key] = plan[key]
    for name in ("bf16", "fp16"):
        recipe = run.lock.recipe
        if plan.get(f"{name}.enabled") or recipe.get(name) or (run.accelerate or {}).get("mixed_precision") == name:
            config[name] = {"enabled": True}
            plan[f"{name}.enabled"] = True
    return config


def _without_deepspeed(run: RunFolder) -> list[str]:
    if run.deepspeed is None:
        return []
    if run.consumer == "deepspeed" or run.accelerate is None:
        raise SmokeError("--compare ddp: a loop of DeepSpeed's own engine has no run without DeepSpeed")
    plan, words = run.plan, []
    config, run.deepspeed = run.deepspeed, None
    for section in ("optimizer", "scheduler"):
        if section in config:
            words.append(f"{section} of the DeepSpeed config is dropped: the trainer makes its own")
    zero = mapping(config.get("zero_optimization"))
    for name in ("offload_optimizer", "offload_param"):
        device = mapping(zero.get(name)).get("device")
        if device not in (None, "none"):
            words.append(f"{name} ({device}) is dropped: DDP keeps everything on the device")
    half = next((name for name in ("bf16", "fp16") if mapping(config.get(name)).get("enabled") is True), "no")
    words.append("parameters stay in fp32 and are computed with in 16 bit" if half != "no" else "DeepSpeed is dropped")
    run.accelerate.pop("deepspeed_config", None)
    run.accelerate.update(distributed_type="MULTI_GPU", mixed_precision=half)
    plan = {key: value for key, value in plan.items() if not key.startswith(("zero", "optimizer", "sched"))}
    plan["engine"] = DDP
    settings = {name: one for name, one in run.lock.settings.items() if name in plan}
    run.lock = replace(run.lock, plan=plan, settings=settings)
    _agree(run)
    return words


def _agree(run: RunFolder) -> None:
    """Write the plan's values into the settings of the lockfile."""
    settings = {
        name: replace(one, value=run.plan[name]) if name in run.plan else one for name, one in run.lock.settings.items()
    }
    run.lock = replace(run.lock, settings=settings)


def render(found: Comparison, width: int | None = None) -> str:
    """One table, a row a way; what was reduced before it, what was dropped and what failed behind it.

    ``width``: columns of a terminal.
    """
    first = found.first
    lines = [title(found)]
    if first is not None:
        lines += [f"  reduced  {words}" for words in first.reduced.descriptions]
    card = first is not None and first.device.kind == "cuda"
    what = "peak allocated" if card else "peak RSS"
    heads = [what, "predicted" if card else "for training", "tokens/s", "ms/step", "loss"]
    searched = any(row.batches is not None for row in found.rows)
    heads += ["largest batch"] if searched else []
    rows = [_cells(row, card) + ([_batch(row)] if searched else []) for row in found.rows]
    columns = [Column(least=12), *(Column(head, right=True) for head in heads)]
    lines += ["", *table(columns, rows, width, ""), ""]
    for row in found.rows:
        lines += [f"{label(row.way)}: {words}" for words in row.dropped]
        lines += [f"{label(row.way)} failed: {row.problem}"] if row.problem else []
    lines += _about_losses(found)
    if not card:
        lines.append("A processor counts no tensors: RSS is all of the process, the second column what it grew by.")
    return folded("\n".join(lines) + "\n", width)


def title(found: Comparison) -> str:
    """The run and its device."""
    first = found.first
    if first is None:
        return found.run.name
    ranks, where = first.reduced.ranks, first.device.name if first.device.kind == "cuda" else "CPU"
    seen = (first.outcome.reports[0] if first.outcome.reports else {}).get("seen") or {}
    model = first.reduced.model.get("model_type", "model")
    parameters = from_config(first.reduced.model).parameters
    sized = f"{model} of {_count(parameters)} parameters" if parameters else str(model)
    batch = f", micro batch {seen['micro_batch']}" if seen.get("micro_batch") else ""
    tokens = f" x {first.reduced.sequence} tokens" if batch else ""
    return f"{found.run.name}: {sized}{batch}{tokens}, {ranks} rank{'s' if ranks != 1 else ''} on {where}"


def _count(parameters: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if parameters >= unit:
            return f"{parameters / unit:.3g}{name}"
    return str(parameters)


def _cells(row: Row, card: bool) -> list[str]:
    if row.verdict is None:
        return [label(row.way), *["-"] * 5]
    seen, expected = row.verdict.figures, row.verdict.expected
    beside = max((one for one in seen.grown() if one is not None), default=None)
    second = size(beside)
    if card:
        known = None if isinstance(expected, str) else expected
        low = "" if known is None or known.prediction.complete else "at least "
        second = "-" if known is None else low + size(known.allocated.expected)
    rate, seconds = seen.tokens_per_second, seen.seconds
    return [
        label(row.way),
        size(peak_in(seen)),
        second,
        f"{rate:,.0f}" if rate else "-",
        f"{seconds * 1000:,.0f}" if seconds else "-",
        f"{seen.loss:.4f}" if seen.loss is not None else "-",
    ]


def _batch(row: Row) -> str:
    found = row.batches
    if found is None or found.largest is None:
        return "-"
    return f"{found.largest}" if found.certain and found.largest < found.upper else f"{found.largest} or more"


def _about_losses(found: Comparison) -> list[str]:
    agree = found.losses_agree
    words = [f"Another loss is expected: {unlike(row)}." for row in found.rows if row.ended and unlike(row)]
    names = " and ".join(label(row.way) for row in found.rows if row.ended and not unlike(row))
    if agree:
        words.append(f"The losses of {names} after the last step agree within {SAME:.0%}.")
    elif agree is False:
        words.append(f"The losses of {names} do NOT agree within {SAME:.0%}: one of these trains something else.")
    return words
