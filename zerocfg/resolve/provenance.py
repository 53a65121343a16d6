"""The provenance of settings: where each value comes from, worded to fit behind it as a comment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.resolve.plan import Decision
from zerocfg.run.config import AUTO
from zerocfg.run.model import UNKNOWN
from zerocfg.run.origins import origin_label, place_of
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.trainer import PERSISTENCE, PREFETCH_BUCKET, REDUCE_BUCKET, hidden_size
from zerocfg.source.node import dotted
from zerocfg.source.paths import relative

if TYPE_CHECKING:
    from zerocfg.run.model import Origin, Run, Setting
    from zerocfg.source.text import Where

BUCKETS = (REDUCE_BUCKET, PREFETCH_BUCKET, PERSISTENCE)
BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
STAGE, OVERLAP = "zero_optimization.stage", "zero_optimization.overlap_comm"
TOTAL_STEPS, WARMUP_STEPS = "scheduler.params.total_num_steps", "scheduler.params.warmup_num_steps"


class Provenance:
    """The provenance of one run's settings; file names are relative to ``folder``.

    ``train_samples`` is the size of the training set where the spec gives it.
    """

    def __init__(self, run: Run, folder: Path, train_samples: int | None = None) -> None:
        self.run = run
        self.folder = folder
        self.train_samples = train_samples

    def decision(self, name: str, setting: Setting) -> Decision:
        """A setting as the plan records it."""
        return Decision(
            _plain(setting.value),
            self.reason(name, setting),
            setting.origin.kind,
            self.place(setting.origin),
            self.inputs(name, setting),
        )

    def reason(self, name: str, setting: Setting) -> str:
        """Where the value comes from, and what it replaces."""
        text = self._bucket(name, setting) or self.describe_origin(setting.origin)
        auto = next((old for old in setting.overridden if old.value == AUTO and old.origin.file), None)
        if auto is not None:
            return f"auto in {self.file(auto.origin)}; {text}"
        beaten = next((old for old in setting.overridden if old.origin.kind in ("file", "flag")), None)
        if beaten is not None and beaten.value != setting.value:
            text += f"; replaces {beaten.value!r} of {self.describe_origin(beaten.origin)}"
        return text

    def describe_origin(self, origin: Origin) -> str:
        """An origin, as a comment behind the value."""
        if origin.kind == "file" and origin.file is not None:
            key = dotted(origin.path)
            return f"{self.file(origin)}: {key}" if key else self.file(origin)
        if origin.kind == "default":
            return f"nobody sets it; {origin_label(origin)}"
        return f"the variable {origin.note}" if origin.kind == "environment" and origin.note else origin_label(origin)

    def file(self, origin: Origin) -> str:
        """The name of the origin's file, relative to the spec's folder."""
        file = origin.file
        if file is None:
            return ""
        if file.path is None:
            return file.name
        return relative(file.path.resolve(), self.folder)

    def place(self, origin: Origin) -> Where | None:
        """The location of the value's key; None where no file sets it."""
        place = place_of(origin)
        return place._replace(file=self.file(origin)) if place is not None and place.line else None

    def inputs(self, name: str, setting: Setting) -> dict[str, Any]:
        """The named facts that a value follows from; empty for one that is as written."""
        if name in BUCKETS and setting.origin.kind == "computed":
            return _known({"hidden_size": self._hidden_size()})
        if name in ("num_processes", "num_machines") and self.run.hardware and setting.origin.kind == "computed":
            hardware = self.run.hardware
            counts = {"nodes": hardware.nodes}
            if name == "num_processes":
                counts["accelerators_per_node"] = hardware.accelerators_per_node
            return counts
        if name in BATCH and setting.origin.kind == "computed":
            others = [other for other in (*BATCH, "num_processes") if other != name]
            return _known({other: self.run.effective.value(other, UNKNOWN) for other in others})
        if name == OVERLAP and setting.origin.kind == "default":
            return _known({STAGE: self.run.effective.value(STAGE, UNKNOWN)})
        if name == TOTAL_STEPS and setting.origin.kind == "computed":
            return self._steps()
        if name == WARMUP_STEPS and setting.origin.kind == "file":
            return self._warmup()
        return {}

    def _hidden_size(self) -> Any:
        return hidden_size(self.run.model, text=self.run.consumer in ("transformers", "trl"))

    def _steps(self) -> dict[str, Any]:
        """What the number of steps follows from where the recipe counts epochs and the spec samples."""
        arguments = arguments_of(self.run)
        names = ("num_train_epochs", "per_device_train_batch_size", "gradient_accumulation_steps")
        given = {name: arguments.get(name) for name in names}
        ranks = self.run.effective.value("num_processes", UNKNOWN)
        return _known({"train_samples": self.train_samples, **given, "num_processes": ranks})

    def _warmup(self) -> dict[str, Any]:
        """A share of all steps depends on their number."""
        share = arguments_of(self.run).get("warmup_steps")
        if not isinstance(share, (int, float)) or not 0 < share < 1:
            return {}
        return _known({"warmup_steps": share, TOTAL_STEPS: self.run.effective.value(TOTAL_STEPS, UNKNOWN)})

    def _bucket(self, name: str, setting: Setting) -> str | None:
        """The three sizes that come from the model's width; they count elements, not bytes."""
        if setting.origin.kind != "computed" or name not in BUCKETS:
            return None
        size = self._hidden_size()
        formula = {
            REDUCE_BUCKET: "{}²",
            PREFETCH_BUCKET: "0.9 * {}²",
            PERSISTENCE: "10 * {}",
        }[name]
        with_value = f" = {formula.format(size)}" if size not in (None, UNKNOWN) else ""
        who = "transformers" if self.run.consumer in ("transformers", "trl") else "accelerate"
        return f"{formula.format('hidden_size')}{with_value} elements ({who} fills it so)"


def _known(inputs: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in inputs.items() if value is not None and value is not UNKNOWN}


def _plain(value: object) -> object:
    """Whole numbers that JSON wrote as ``5e8`` become integers: that is how DeepSpeed reads them."""
    if isinstance(value, float) and abs(value) < 2**53 and value == int(value) and abs(value) >= 1000:
        return int(value)
    return value
