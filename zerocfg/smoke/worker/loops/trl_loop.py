"""A run of a trainer of TRL: GRPO and DPO, with a small tokenizer and rows of its own words.

The trainers load their model, and the reference model again, from a folder: so one is written before anything else.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from ..model import join_deepspeed, save_initial, vocabulary
from ..values import whole
from . import followed

if TYPE_CHECKING:
    import datasets
    import torch
    import transformers

    from ..job import Job
    from ..record import Record
    from ..trial import Trial
    from ..watch import Watch

WORDS = 1000
"""Words that the tokenizer knows, where the model has as many."""
PROMPT = 8
"""Words of a prompt."""
LONGEST = 2.0
"""Seconds between two looks for the model that rank 0 writes, at most."""


def train(job: Job, watch: Watch | Record, trial: Trial) -> torch.nn.Module:
    """Train and save; the bare model."""
    import trl

    watch.phase("model")
    folder = _model(job, watch.report.rank)
    watch.phase("arguments")
    trainer, config = getattr(trl, str(job.trainer)), getattr(trl, str(job.trainer).replace("Trainer", "Config"))
    # The reference model is loaded as the policy is: in the dtype of the weights.
    args = followed.arguments(config, job, trial, model_init_kwargs={"dtype": "auto"})
    join_deepspeed()
    watch.phase("model")
    samples = args.per_device_train_batch_size * args.gradient_accumulation_steps * max(1, args.world_size) * job.steps
    words = min(WORDS, vocabulary(job))
    parts: dict[str, object] = {"model": str(folder), "args": args, "processing_class": _tokenizer(words)}
    if job.trainer == "GRPOTrainer":
        samples *= -(-args.steps_per_generation // args.gradient_accumulation_steps)
        parts["train_dataset"] = _rows([{"prompt": _text(at, PROMPT, words)} for at in range(samples)])
        parts["reward_funcs"] = [mean_token] * len(args.reward_weights or [1.0])
    else:
        # Another row for each rank, which repeats: the loss falls, and only averaged gradients keep the ranks alike.
        rank, length = watch.report.rank, max(1, job.sequence - PROMPT)
        row = {"prompt": _text(rank, PROMPT, words), "chosen": _text(7 + rank, length, words)}
        parts["train_dataset"] = _rows([row | {"rejected": _text(501 + rank, length, words)}] * samples)
    sampled = job.trainer == "GRPOTrainer"
    return followed.train(trainer, job, watch, trial, own=tuple(job.own), chance=sampled, **parts)


def initial_weights(job: Job) -> None:
    """None: every training begins with the same file."""


def mean_token(completion_ids: list[list[int]], **_: object) -> list[float]:
    """A reward that nobody wants, but that differs from completion to completion: the mean of its tokens."""
    return [sum(row) / max(1, len(row)) for row in completion_ids]


def _model(job: Job, rank: int) -> Path:
    """The folder of the random weights, which rank 0 writes before there is a process group, or a model in shards."""
    folder = Path(job.saved).with_name("model")
    done = folder / "done"
    if rank == 0 and not done.exists():
        save_initial(job, folder)
        done.touch()
    pause = 0.02
    while not done.exists():
        time.sleep(pause)
        pause = min(LONGEST, 2 * pause)
    return folder


def _tokenizer(words: int) -> transformers.PreTrainedTokenizerBase:
    """One word for each number below ``words``."""
    import transformers
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    known = Tokenizer(WordLevel({f"w{number}": number for number in range(words)}, unk_token="w0"))
    known.pre_tokenizer = Whitespace()
    kind = transformers.PreTrainedTokenizerFast
    return kind(tokenizer_object=known, pad_token="w0", eos_token="w1", unk_token="w0")


def _text(start: int, length: int, words: int) -> str:
    return " ".join(f"w{2 + (7 * (start + at)) % whole(words - 2, 1)}" for at in range(length))


def _rows(rows: list[dict[str, str]]) -> datasets.Dataset:
    import datasets

    return datasets.Dataset.from_list(rows)
