"""TRL's own config and trainer classes, where the script of the example's launch line names one (``dpo.py``)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

METHODS = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "kto": "KTOConfig",
    "grpo": "GRPOConfig",
    "rloo": "RLOOConfig",
    "reward": "RewardConfig",
    "distillation": "DistillationConfig",
}
_SCRIPT = re.compile(rf"\b({'|'.join(METHODS)})\.py\b")
ROWS = 16


def method(files: list[str]) -> str | None:
    """``dpo`` where ``train.sh`` starts ``dpo.py``."""
    if "train.sh" not in files:
        return None
    found = _SCRIPT.search(Path("train.sh").read_text(encoding="utf-8"))
    return found[1] if found else None


def config_class(files: list[str]) -> Any:
    import trl

    return getattr(trl, METHODS[method(files) or "sft"])


def trainer_class(files: list[str]) -> Any:
    """TRL's trainer for the methods whose data is plain text; None where transformers' Trainer has to do."""
    import trl

    return {"sft": trl.SFTTrainer, "dpo": trl.DPOTrainer}.get(method(files) or "")


def data(files: list[str]) -> Any:
    import datasets

    texts = [f"w{number} w{number + 1} w{number + 2}" for number in range(ROWS)]
    if method(files) == "sft":
        return datasets.Dataset.from_dict({"text": texts})
    return datasets.Dataset.from_dict({"prompt": texts, "chosen": [" w1"] * ROWS, "rejected": [" w2"] * ROWS})


def tokenizer() -> Any:
    """One token a word, within the vocabulary of every model that is played."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<eos>": 0, "<unk>": 1, **{f"w{number}": number + 2 for number in range(ROWS + 4)}}
    inner = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<eos>", pad_token="<eos>", unk_token="<unk>")
