"""Whether the saved weights are whole."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any


def read(folder: Path, model: Any) -> dict[str, Any]:
    """Compare the files of weights with the model's parameters and load them as a user would.

    {"file", "expected", "saved": elements, "missing", "short": names, "loadable": null or the reason why not}
    """
    import transformers
    from safetensors import safe_open

    expected: dict[str, int] = {}
    known: set[int] = set()
    for name, parameter in model.named_parameters():
        if id(parameter) not in known:  # tied parameters are saved once
            known.add(id(parameter))
            expected[name] = math.prod(getattr(parameter, "ds_shape", parameter.shape))
    saved: dict[str, int] = {}
    files = sorted(folder.glob("*.safetensors"))
    for file in files:
        with safe_open(file, framework="pt") as content:
            names = list(content.keys())
            saved.update((name, math.prod(content.get_slice(name).get_shape())) for name in names)
    if not files:
        import torch

        files = sorted(folder.glob("pytorch_model*.bin"))
        for file in files:
            state = torch.load(file, map_location="cpu", weights_only=True)
            saved.update((name, tensor.numel()) for name, tensor in state.items())
    result: dict[str, Any] = {
        "file": ", ".join(file.name for file in files),
        "expected": sum(expected.values()),
        "saved": sum(saved.get(name, 0) for name in expected),
        "missing": [name for name in expected if name not in saved],
        "short": [name for name, count in expected.items() if name in saved and saved[name] != count],
        "loadable": None,
    }
    if files:
        try:
            transformers.integrations.deepspeed.unset_hf_deepspeed_config()
            _, notes = type(model).from_pretrained(folder, output_loading_info=True)
            wrong = [str(name) for key in ("missing_keys", "mismatched_keys") for name in notes[key]]
            if wrong:
                result["loadable"] = f"from_pretrained finds no fitting weights for {', '.join(wrong[:3])}"
        except Exception as error:
            result["loadable"] = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
    return result
