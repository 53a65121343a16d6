"""How often the library reads each value of a DeepSpeedConfig, or of a ZeRO optimizer, after it was made.

A key that is never read again has no effect, which no value of the config itself can show. Reading in order to print
does not count; what the harness reads through the engine's own methods does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from progress import Progress


def count_optimizers(progress: Progress) -> None:
    """``uses.optimizer.*``: of DeepSpeed's wrapper around the optimizer, from its making on."""
    from deepspeed.runtime.zero.stage3 import DeepSpeedZeroOptimizer_Stage3
    from deepspeed.runtime.zero.stage_1_and_2 import DeepSpeedZeroOptimizer

    for kind in (DeepSpeedZeroOptimizer, DeepSpeedZeroOptimizer_Stage3):
        _count_of(kind, progress)


def _count_of(kind: Any, progress: Progress) -> None:
    read = kind.__getattribute__

    def get(self: Any, name: str) -> Any:
        if not hasattr(kind, name):
            key = f"uses.optimizer.{name}"
            progress.values[key] = progress.values.get(key, 0) + 1
        return read(self, name)

    kind.__getattribute__ = get


def count(progress: Progress, config: Any) -> None:
    """``uses.*``, from now on, of the attributes of ``config`` and of the sections below it."""
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    prefixes: dict[int, str] = {}  # by identity of the section; ``config`` keeps all of them alive
    printing = False

    def watch(owner: Any, prefix: str) -> None:
        prefixes[id(owner)] = prefix
        for name, value in vars(owner).items():
            progress.values[prefix + name] = 0
            if isinstance(value, DeepSpeedConfigModel):
                watch(value, f"{prefix}{name}.")

    def counted(kind: Any) -> None:
        read = kind.__getattribute__

        def get(self: Any, name: str) -> Any:
            prefix = prefixes.get(id(self))
            if prefix is not None and prefix + name in progress.values and not printing:
                progress.values[prefix + name] += 1
            return read(self, name)

        kind.__getattribute__ = get

    def printed(*args: Any) -> None:
        nonlocal printing
        printing = True
        show(*args)
        printing = False

    watch(config, "uses.")
    counted(type(config))
    counted(DeepSpeedConfigModel)
    show, config.print = config.print, printed
