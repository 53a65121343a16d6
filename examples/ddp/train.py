"""Causal language modelling on instruction data. Usage: train.py RECIPE.yaml"""

import sys
from pathlib import Path

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
)

MODEL = "meta-llama/Llama-3.2-1B"
LENGTH = 1024


def main() -> None:
    (arguments,) = HfArgumentParser(TrainingArguments).parse_yaml_file(Path(sys.argv[1]).resolve())
    tokenizer = AutoTokenizer.from_pretrained(MODEL)
    tokenizer.pad_token = tokenizer.eos_token
    data = load_dataset("tatsu-lab/alpaca", split="train")
    data = data.map(
        lambda row: tokenizer(row["text"], truncation=True, max_length=LENGTH), remove_columns=data.column_names
    )
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(MODEL),
        args=arguments,
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
    )
    trainer.train()
    trainer.save_model()
    trainer.accelerator.wait_for_everyone()  # who leaves ends those who still save
    trainer.accelerator.end_training()


if __name__ == "__main__":
    main()
