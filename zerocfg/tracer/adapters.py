"""Low-rank adapters with the memory of PEFT's (``peft/tuners/lora/layer.py``: ``Linear.forward``)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import transformers
from torch import nn


class Adapted(nn.Module):  # type: ignore[misc]
    """A frozen projection and its pair of low-rank matrices."""

    def __init__(self, base: nn.Module, wide: int, out: int, rank: int, dropout: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.base = base
        self.down = nn.Linear(wide, rank, bias=False, dtype=dtype)
        self.up = nn.Linear(rank, out, bias=False, dtype=dtype)
        self.dropout = nn.Dropout(dropout) if dropout else nn.Identity()

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.base(hidden)
        dtype = result.dtype
        hidden = hidden.to(self.down.weight.dtype)
        result = result + self.up(self.down(self.dropout(hidden))) * 2.0
        return result.to(dtype)


def adapt(
    model: transformers.PreTrainedModel, targets: Sequence[str], rank: int, dropout: float, dtype: torch.dtype
) -> None:
    """Freezes ``model`` and puts adapters on the modules whose last name is in ``targets``.

    ``all-linear`` means every linear layer but the output head, as in PEFT. Raises ValueError when none is found.
    """
    model.requires_grad_(False)
    head = model.get_output_embeddings()
    found = []
    for name, module in model.named_modules():
        widths = _widths(module)
        named = name.rpartition(".")[2] in targets or ("all-linear" in targets and module is not head)
        if widths and named:
            found.append((name, module, widths))
    if not found:
        raise ValueError(f"no linear module of the model is named {', '.join(targets)}")
    for name, module, (wide, out) in found:
        parent, _, last = name.rpartition(".")
        setattr(model.get_submodule(parent), last, Adapted(module, wide, out, rank, dropout, dtype))


def _widths(module: nn.Module) -> tuple[int, int] | None:
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D":  # GPT-2's: transposed weight
        wide, out = module.weight.shape
        return wide, out
    return None
