"""Settings in words: where a value comes from, said so that it fits behind it as a comment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.resolve.plan import Decision
from zerocfg.run.config import AUTO
from zerocfg.run.trainer import PERSISTENCE, PREFETCH_BUCKET, REDUCE_BUCKET, hidden_size
from zerocfg.source.node import dotted

if TYPE_CHECKING:
    from zerocfg.run.model import Origin, Run, Setting


class Words:
    """Reasons for the settings of one run; file names are relative to ``folder``."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run = run
        self.folder = folder

    def decision(self, name: str, setting: Setting) -> Decision:
        return Decision(_plain(setting.value), self.reason(name, setting), setting.origin.kind)

    def reason(self, name: str, setting: Setting) -> str:
        text = self._bucket(name, setting) or self.origin(setting.origin)
        auto = next((old for old in setting.overridden if old.value == AUTO and old.origin.file), None)
        if auto is not None:
            return f"auto in {self.file(auto.origin)}; {text}"
        beaten = next((old for old in setting.overridden if old.origin.kind in ("file", "flag")), None)
        if beaten is not None and beaten.value != setting.value:
            text += f"; replaces {beaten.value!r} of {self.origin(beaten.origin)}"
        return text

    def origin(self, origin: Origin) -> str:
        if origin.kind == "file" and origin.file is not None:
            key = dotted(origin.path)
            return f"{self.file(origin)}: {key}" if key else self.file(origin)
        if origin.kind == "default":
            return f"nobody sets it; default of {origin.note}" if origin.note else "nobody sets it; the default"
        if origin.kind == "environment":
            return f"the variable {origin.note}" if origin.note else "an environment variable"
        return origin.note or "computed"

    def file(self, origin: Origin) -> str:
        file = origin.file
        if file is None:
            return ""
        if file.path is None:
            return file.name
        return Path(os.path.relpath(file.path.resolve(), self.folder)).as_posix()

    def _bucket(self, name: str, setting: Setting) -> str | None:
        """The three sizes that come from the model's width; they count elements, not bytes."""
        if setting.origin.kind != "computed" or name not in (REDUCE_BUCKET, PREFETCH_BUCKET, PERSISTENCE):
            return None
        trainer = self.run.consumer in ("transformers", "trl")
        size = hidden_size(self.run.model, text=trainer)
        formula = {
            REDUCE_BUCKET: f"hidden_size² = {size}²",
            PREFETCH_BUCKET: f"0.9 * hidden_size² = 0.9 * {size}²",
            PERSISTENCE: f"10 * hidden_size = 10 * {size}",
        }[name]
        who = "transformers" if trainer else "accelerate"
        return f"{formula} elements ({who} fills it so)"


def _plain(value: object) -> object:
    """Whole numbers that JSON wrote as ``5e8`` become integers: that is how DeepSpeed reads them."""
    if isinstance(value, float) and abs(value) < 2**53 and value == int(value) and abs(value) >= 1000:
        return int(value)
    return value
