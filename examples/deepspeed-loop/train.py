"""Teaches a tiny Llama to count, in a loop of its own around deepspeed.initialize.

Usage: torchrun train.py --deepspeed --deepspeed_config FILE [--steps N] [--output_dir FOLDER]
"""

import argparse
from pathlib import Path

import deepspeed
import torch
from transformers import AutoConfig, AutoModelForCausalLM

MODEL = Path(__file__).resolve().parent.parent / "quickstart" / "model"
LENGTH = 32


def batches(vocabulary: int, samples: int, rank: int):
    """Sequences start, start + 1, start + 2, ... modulo the vocabulary; other ones on each rank and step."""
    generator = torch.Generator().manual_seed(rank)
    while True:
        start = torch.randint(vocabulary, (samples, 1), generator=generator)
        yield (start + torch.arange(LENGTH)) % vocabulary


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)  # the deepspeed launcher passes it
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output_dir", default="runs/loop")
    options = deepspeed.add_config_arguments(parser).parse_args()

    config = AutoConfig.from_pretrained(MODEL)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    engine, *_ = deepspeed.initialize(args=options, model=model, model_parameters=model.parameters())
    data = batches(config.vocab_size, engine.train_micro_batch_size_per_gpu(), engine.global_rank)
    for step in range(options.steps):
        for _ in range(engine.gradient_accumulation_steps()):
            tokens = next(data).to(engine.device)
            loss = engine(input_ids=tokens, labels=tokens).loss
            engine.backward(loss)
            engine.step()
        if engine.global_rank == 0:
            print(f"step {step + 1}: loss {loss.item():.3f}")
    engine.save_16bit_model(options.output_dir, "pytorch_model.bin")
    if engine.global_rank == 0:
        stage = engine.zero_optimization_stage()
        print(f"trained by {type(engine).__name__}, ZeRO stage {stage}, {engine.dp_world_size} ranks")
    deepspeed.comm.destroy_process_group()


if __name__ == "__main__":
    main()
