"""Whether the saved weights are whole, and those of the live model."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from .checksums import checksum, plain_name

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from .report_schema import Weights


def read(folder: Path, model: torch.nn.Module, sums: dict[str, int] | None = None) -> Weights:
    """Compare the files of weights with the model's parameters and load them as a user would.

    ``sums``: checksums of the live parameters by name (`sums.live`). A tensor is compared where it has the live one's
    dtype.
    """
    expected: dict[str, torch.Tensor] = {}
    known: set[int] = set()
    for name, parameter in model.named_parameters():
        if id(parameter) not in known:  # tied parameters are saved once
            known.add(id(parameter))
            expected[plain_name(name)] = parameter
    counts = {name: math.prod(getattr(parameter, "ds_shape", parameter.shape)) for name, parameter in expected.items()}
    result: Weights = {"file": "", "expected": sum(counts.values()), "dtypes": {}, "live_dtypes": {}}
    result.update({"short": [], "other": [], "compared": 0, "loadable": None})
    for name, parameter in expected.items():
        _count(result["live_dtypes"], parameter.dtype, counts[name])
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("pytorch_model*.bin"))
    result["file"] = ", ".join(file.name for file in files)
    saved: dict[str, int] = {}
    for name, tensor in _tensors(files):
        saved[name] = tensor.numel()
        if name not in expected:
            continue
        _count(result["dtypes"], tensor.dtype, tensor.numel())
        if saved[name] != counts[name]:
            result["short"].append(name)
        elif sums is not None and name in sums and tensor.dtype == expected[name].dtype:
            result["compared"] += 1
            if checksum(tensor) != sums[name]:
                result["other"].append(name)
    result["saved"] = sum(saved.get(name, 0) for name in expected)
    result["missing"] = [name for name in expected if name not in saved]
    loaded = _loaded(folder, model, result) if files else None
    if loaded is not None:
        _elsewhere(result, loaded, expected, counts, sums or {})
    return result


def _loaded(folder: Path, model: torch.nn.Module, result: Weights) -> torch.nn.Module | None:
    """The model as a user would load it; None, and why in the ``result``, where that does not give all parameters."""
    import transformers

    transformers.integrations.deepspeed.unset_hf_deepspeed_config()
    try:
        loaded, notes = type(model).from_pretrained(folder, output_loading_info=True)
    except Exception as error:
        result["loadable"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
        return None
    wrong = [str(name) for key in ("missing_keys", "mismatched_keys") for name in notes[key]]
    if wrong:
        result["loadable"] = f"from_pretrained finds no fitting weights for {', '.join(wrong[:3])}"
        return None
    found: torch.nn.Module = loaded
    return found


def _elsewhere(
    result: Weights,
    loaded: torch.nn.Module,
    expected: dict[str, torch.Tensor],
    counts: dict[str, int],
    sums: dict[str, int],
) -> None:
    """What is in the files under other names, as transformers saves fused experts: seen in the model loaded from them.

    ``loaded`` has found weights for all of its parameters.
    """
    found = dict(loaded.named_parameters())
    for name in list(result["missing"]):
        tensor = found.get(name)
        if tensor is None or tensor.numel() != counts[name]:
            continue
        result["missing"].remove(name)
        result["saved"] += counts[name]
        _count(result["dtypes"], tensor.dtype, counts[name])
        if name in sums and tensor.dtype == expected[name].dtype:
            result["compared"] += 1
            if checksum(tensor) != sums[name]:
                result["other"].append(name)


def _count(dtypes: dict[str, int], dtype: torch.dtype, elements: int) -> None:
    name = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}.get(str(dtype).removeprefix("torch."))
    name = name or str(dtype).removeprefix("torch.")
    dtypes[name] = dtypes.get(name, 0) + elements


def _tensors(files: list[Path]) -> Iterator[tuple[str, torch.Tensor]]:
    """(name, tensor) of all files; of safetensors one is in memory at a time."""
    import torch
    from safetensors import safe_open

    for file in files:
        if file.suffix == ".safetensors":
            with safe_open(file, framework="pt") as content:
                for name in list(content.keys()):
                    yield name, content.get_tensor(name)
        else:
            yield from torch.load(file, map_location="cpu", weights_only=True).items()
