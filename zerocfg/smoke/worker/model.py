"""The model and the data that the ranks train on."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from . import checksums, tiles
from .values import mapping, whole

if TYPE_CHECKING:
    from pathlib import Path

    import torch
    import transformers

    from .job import Job


SEED = 0


def make_model(job: Job, weights: dict[str, torch.Tensor] | None = None) -> transformers.PreTrainedModel:
    """The architecture with random weights; under ZeRO-3 it is made in shards, as `from_pretrained` would.

    ``weights``: full tensors by parameter name that take the place of the random ones.
    """
    model = _random(job)
    if weights is not None:
        model.load_state_dict(weights, strict=False)
    return model


def initial(job: Job) -> dict[str, torch.Tensor]:
    """The random weights that `make_model` gives, as full tensors in host memory. All ranks call this."""
    return {name: tensor.detach().cpu().clone() for name, tensor in checksums.full(make_model(job))}


def save_initial(job: Job, folder: Path) -> None:
    """Write the random weights into ``folder``, as `from_pretrained` loads them; by one rank, outside of any engine."""
    _random(job).save_pretrained(folder)


def repeat_chance() -> None:
    """Reset the random numbers, so that dropout drops the same elements in every forward pass."""
    import torch

    torch.manual_seed(SEED)


def _random(job: Job) -> transformers.PreTrainedModel:
    import transformers

    transformers.set_seed(SEED)
    content = {key: value for key, value in job.model.items() if key not in ("transformers_version", "auto_map")}
    config = transformers.AutoConfig.for_model(**content)
    config.use_cache = False
    classes = [transformers.AutoModelForCausalLM, transformers.AutoModelForSeq2SeqLM]
    architectures = content.get("architectures")
    named = architectures[0] if isinstance(architectures, list) and architectures else None
    with tiles.tiled_draws():
        for kind in classes:
            if type(config) in kind._model_mapping:
                return kind.from_config(config)
        if named and hasattr(transformers, named):
            return getattr(transformers, named)._from_config(config)
    raise ValueError(f"transformers has no language model for the type {content.get('model_type')!r}")


def tokens(job: Job, rank: int) -> dict[str, torch.Tensor]:
    """One sample that repeats, another one for each rank; labels are the tokens themselves. Shapes (sequence,)."""
    import torch

    row = (torch.arange(job.sequence) * 7 + 3 + rank) % vocabulary(job)
    return {"input_ids": row, "labels": row.clone()}


def vocabulary(job: Job) -> int:
    """Tokens that the model knows."""
    text = mapping(job.model.get("text_config")) or job.model
    return whole(text.get("vocab_size"), 64)


def join_deepspeed() -> None:
    """Register the process group with DeepSpeed, which accelerate does on a card only.

    Otherwise the model is made (zero.Init) in a world of one, where an explicit train_batch_size does not fit.
    """
    if os.environ.get("ACCELERATE_USE_DEEPSPEED") == "true":
        from deepspeed import comm

        if not comm.is_initialized():
            comm.init_distributed(auto_mpi_discovery=False)
