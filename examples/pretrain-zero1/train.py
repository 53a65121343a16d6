"""Causal language modelling from scratch on packed text. Usage: train.py RECIPE.yaml"""

import sys
from itertools import chain
from pathlib import Path

from datasets import load_dataset
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    default_data_collator,
)

HERE = Path(__file__).resolve().parent
TOKENIZER = "EleutherAI/pythia-1.4b"
LENGTH = 2048


def main() -> None:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_yaml_file(Path(sys.argv[1]).resolve())
    tokenizer = AutoTokenizer.from_pretrained(TOKENIZER)

    def packed(rows):
        """All texts in one row, cut into pieces of the same length."""
        tokens = list(chain.from_iterable(tokenizer(rows["text"])["input_ids"]))
        pieces = [tokens[start : start + LENGTH] for start in range(0, len(tokens) - LENGTH + 1, LENGTH)]
        return {"input_ids": pieces, "labels": [list(piece) for piece in pieces]}

    data = load_dataset("HuggingFaceFW/fineweb-edu", "sample-10BT", split="train")
    data = data.map(packed, batched=True, remove_columns=data.column_names)
    trainer = Trainer(
        model=AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(HERE / "model")),
        args=arguments,
        train_dataset=data,
        data_collator=default_data_collator,
    )
    trainer.train()
    trainer.save_model()
    trainer.accelerator.wait_for_everyone()  # who leaves ends those who still save
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
