"""Observes an unmodified training script: patches the training libraries as they are imported.

A process that imports none of them pays for one dictionary look-up an import, and for nothing else: the other modules
of this package are loaded when the first of the libraries is, or when the process is a rank.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

JOB = "ZEROCFG_SMOKE_JOB"
"""The variable that names the job file; without it nothing is observed."""

REPORTS = "ZEROCFG_SMOKE_REPORTS"
"""The variable that names the folder of the reports, for processes that need not know more of the job."""

PATCHES: dict[str, tuple[str, str]] = {
    "transformers.training_args": ("patch_trainer", "patch_arguments"),
    "transformers.trainer": ("patch_trainer", "patch_trainer"),
    "accelerate.accelerator": ("patch_accelerate", "patch_accelerator"),
    "accelerate.state": ("patch_accelerate", "patch_state"),
    "accelerate.optimizer": ("patch_accelerate", "patch_optimizer"),
    "torch._tensor": ("patch_torch", "patch_tensor"),
    "torch.optim.optimizer": ("patch_torch", "patch_optimizer"),
    "torch.utils.cpp_extension": ("patch_torch", "patch_extensions"),
    "deepspeed": ("patch_deepspeed", "patch_deepspeed"),
    "deepspeed.runtime.engine": ("patch_deepspeed", "patch_engine"),
    "deepspeed.monitor.config": ("patch_deepspeed", "patch_monitors"),
    "transformers.modeling_utils": ("redirect", "patch"),
    "transformers.configuration_utils": ("redirect", "patch"),
    "transformers.tokenization_utils_base": ("redirect", "patch"),
    "transformers.processing_utils": ("redirect", "patch"),
    "transformers.generation.configuration_utils": ("redirect", "patch"),
    "peft.peft_model": ("redirect", "patch"),
    "torch.serialization": ("redirect", "patch"),
    "safetensors.torch": ("redirect", "patch"),
    "huggingface_hub.hf_api": ("redirect", "patch_hub"),
}
"""Module of a library: (module of this package, function in it), called with that module right after it has run."""


class Finder:
    """A first entry of ``sys.meta_path``; it finds the modules of `PATCHES` as the others do, and has them patched."""

    def __init__(self, patches: dict[str, Callable[[ModuleType], None]]) -> None:
        self.patches = patches
        self._searching: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in self.patches or name in self._searching:
            return None
        self._searching.add(name)
        try:
            for other in sys.meta_path:
                spec = other.find_spec(name, path, target) if other is not self else None
                if spec is not None:
                    _patch_after(spec, self.patches[name])
                    return spec
            return None
        finally:
            self._searching.discard(name)


def _patch_after(spec: ModuleSpec, patch: Callable[[ModuleType], None]) -> None:
    """Have ``patch`` called when the module of this spec has run; the loader stays what it is."""
    loader = spec.loader
    if loader is None:  # a namespace has nothing to run
        return
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        del vars(loader)["exec_module"]
        run(module)
        patch(module)

    vars(loader)["exec_module"] = exec_module


def _late(place: str, function: str) -> Callable[[ModuleType], None]:
    """A function of a module of this package, loaded when it is needed."""

    def patch(module: ModuleType) -> None:
        found = getattr(importlib.import_module(f".{place}", __package__), function)
        try:
            found(module)
        except (AttributeError, TypeError) as error:
            # Without observation the user's whole training would run, into the user's folders.
            raise RuntimeError(f"zerocfg cannot watch this release: {module.__name__}: {error}") from error

    return patch


def install() -> None:
    """Called once in every Python process of the command."""
    sys.meta_path.insert(0, Finder({name: _late(*place) for name, place in PATCHES.items()}))
    audit = importlib.import_module(".audit", __package__)
    audit.report_reads(os.environ[REPORTS])
    enlist()


def enlist() -> None:
    """A process that the launcher made a rank reports from its first line on."""
    if "RANK" in os.environ:
        session = importlib.import_module(".session", __package__)
        session.quietly(session.current().enlist)
