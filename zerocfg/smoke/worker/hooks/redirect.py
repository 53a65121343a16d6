"""Redirects saving into the scratch folder and blocks uploads to the hub, so that the user's files stay as they are."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

from .session import current, quietly

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    import huggingface_hub

    Call = Callable[..., object]
    Words = tuple[object, ...]
    Named = dict[str, object]

SAVERS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "transformers.modeling_utils": (("PreTrainedModel.save_pretrained", "save_directory", 1),),
    "transformers.configuration_utils": (("PreTrainedConfig.save_pretrained", "save_directory", 1),),
    "transformers.tokenization_utils_base": (("PreTrainedTokenizerBase.save_pretrained", "save_directory", 1),),
    "transformers.processing_utils": (("ProcessorMixin.save_pretrained", "save_directory", 1),),
    "transformers.generation.configuration_utils": (("GenerationConfig.save_pretrained", "save_directory", 1),),
    "peft.peft_model": (("PeftModel.save_pretrained", "save_directory", 1),),
    "torch.serialization": (("save", "f", 1),),
    "safetensors.torch": (("save_file", "filename", 1), ("save_model", "filename", 1)),
    "accelerate.accelerator": (
        ("Accelerator.save_state", "output_dir", 1),
        ("Accelerator.save_model", "save_directory", 2),
        ("Accelerator.save", "f", 2),
    ),
    "deepspeed.runtime.engine": (
        ("DeepSpeedEngine.save_checkpoint", "save_dir", 1),
        ("DeepSpeedEngine.save_16bit_model", "save_dir", 1),
        ("DeepSpeedEngine.save_fp16_model", "save_dir", 1),
    ),
}
"""Module: functions that write to a path, the name of its parameter and its position (``self`` counts)."""

LOADERS: dict[str, tuple[tuple[str, str, int], ...]] = {
    "torch.serialization": (("load", "f", 0),),
    "accelerate.accelerator": (("Accelerator.load_state", "input_dir", 1),),
    "deepspeed.runtime.engine": (("DeepSpeedEngine.load_checkpoint", "load_dir", 1),),
}
"""The same for reading, redirected when the script itself wrote there."""


def patch(module: ModuleType) -> None:
    """Redirect the functions of a module that write to, or read from, a path."""
    for qualified, name, position in SAVERS.get(module.__name__, ()):
        _replace(module, qualified, functools.partial(_redirected, name=name, position=position, read=False))
    for qualified, name, position in LOADERS.get(module.__name__, ()):
        _replace(module, qualified, functools.partial(_redirected, name=name, position=position, read=True))


def patch_hub(module: ModuleType) -> None:
    """Nothing is created or changed on the hub."""
    for name in ("create_commit", "upload_file", "upload_folder", "upload_large_folder", "create_branch", "create_tag"):
        if hasattr(module.HfApi, name):
            _replace(module, f"HfApi.{name}", lambda original: functools.wraps(original)(lambda *_, **__: None))

    def create_repo(original: Call) -> Call:
        @functools.wraps(original)
        def named(self: huggingface_hub.HfApi, repo_id: str, **_: object) -> object:
            return module.RepoUrl(f"{self.endpoint}/{repo_id if '/' in repo_id else f'nobody/{repo_id}'}")

        return named

    _replace(module, "HfApi.create_repo", create_repo)


def _replace(module: ModuleType, qualified: str, wrap: Callable[[Call], Call]) -> None:
    """Replace a function or method by ``wrap(original)``; absent ones are skipped."""
    *classes, name = qualified.split(".")
    owner: object = module
    for item in classes:
        owner = getattr(owner, item, None)
    original = getattr(owner, name, None)
    if original is not None:
        setattr(owner, name, wrap(original))


def _redirected(original: Call, name: str, position: int, read: bool) -> Call:
    @functools.wraps(original)
    def call(*args: object, **named: object) -> object:
        session = current()
        if not session.active:
            return original(*args, **named)
        given = named[name] if name in named else args[position] if len(args) > position else None
        if isinstance(given, (str, os.PathLike)):
            there = session.places.of(given)
            if read and not Path(there).exists():
                return original(*args, **named)
            if not read:
                quietly(session.redirected, given)
                named.pop("push_to_hub", None)
                if original.__qualname__ == "PreTrainedModel.save_pretrained" and session.over and not session.saving:
                    return _save(original, args, named, name, position, there)
            args, named = _with(args, named, name, position, there)
        return original(*args, **named)

    return call


def _with(args: Words, named: Named, name: str, position: int, value: object) -> tuple[Words, Named]:
    """The arguments with one value replaced."""
    if name in named:
        return args, {**named, name: value}
    return (*args[:position], value, *args[position + 1 :]), named


def _save(original: Call, args: Words, named: Named, name: str, position: int, folder: str) -> object:
    """The script saves a trained model itself, without the Trainer."""
    session = current()
    session.saving = True
    try:
        args, named = _with(args, named, name, position, folder)
        result = original(*args, **named)
        quietly(session.saved, folder, args[0])
        return result
    finally:
        session.saving = False
