"""Teaches a tiny Llama to count modulo the size of its vocabulary, from scratch, and saves the weights.

Usage: train.py RECIPE.yaml. Runs on GPUs, or on CPU processes where there are none.
"""

import sys
from pathlib import Path

import torch
import yaml
from transformers import AutoConfig, AutoModelForCausalLM, Trainer, TrainingArguments

HERE = Path(__file__).resolve().parent
LENGTH = 32


class Counting(torch.utils.data.Dataset):
    """Sequences start, start + step, start + 2 * step, ... modulo the vocabulary."""

    def __init__(self, vocabulary: int, samples: int = 1024) -> None:
        self.vocabulary = vocabulary
        self.samples = samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        start, step = index % self.vocabulary, 1 + index % 5
        tokens = (start + step * torch.arange(LENGTH)) % self.vocabulary
        return {"input_ids": tokens, "labels": tokens.clone()}


def main() -> None:
    recipe = yaml.safe_load(Path(sys.argv[1]).read_text())
    # Without use_cpu the Trainer leaves the processes of a machine without accelerators unconnected.
    recipe.setdefault("use_cpu", not torch.cuda.is_available())
    arguments = TrainingArguments(**recipe)
    # After TrainingArguments, so that ZeRO-3 shards the model while it is made.
    config = AutoConfig.from_pretrained(HERE / "model")
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    trainer = Trainer(model=model, args=arguments, train_dataset=Counting(config.vocab_size))
    trainer.train()
    trainer.save_model()
    if trainer.is_world_process_zero():
        print("trained by", engine_of(trainer))
    trainer.accelerator.wait_for_everyone()  # who leaves ends those who still save
    trainer.accelerator.end_training()


def engine_of(trainer: Trainer) -> str:
    """What really trained: asked of the live engine, not of a config."""
    engine = trainer.model_wrapped
    stage = f", ZeRO stage {engine.zero_optimization_stage()}" if trainer.is_deepspeed_enabled else ""
    return f"{type(engine).__name__}{stage}, {trainer.args.world_size} ranks"


if __name__ == "__main__":
    main()
