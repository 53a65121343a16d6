"""Teaches a tiny Llama to count, in a loop of its own around accelerate.

Usage: accelerate launch --config_file FILE train.py [--steps N] [--output_dir FOLDER]
"""

import argparse
from pathlib import Path

import torch
from accelerate import Accelerator, PartialState
from transformers import AutoConfig, AutoModelForCausalLM

MODEL = Path(__file__).resolve().parent.parent / "quickstart" / "model"
LENGTH, MICRO_BATCH, ACCUMULATION = 32, 4, 2  # as in ds_config.json


def sequences(vocabulary: int, samples: int) -> list[torch.Tensor]:
    """start, start + 1, start + 2, ... modulo the vocabulary."""
    return [(start + torch.arange(LENGTH)) % vocabulary for start in range(samples)]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--output_dir", default="runs/loop")
    options = parser.parse_args()

    if not torch.cuda.is_available():
        # On processors accelerate connects the ranks only when told so. (ACCELERATE_USE_CPU would do it as well, and
        # silently train without DeepSpeed.)
        PartialState(cpu=True)
    accelerator = Accelerator(gradient_accumulation_steps=ACCUMULATION)
    config = AutoConfig.from_pretrained(MODEL)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    samples = options.steps * ACCUMULATION * MICRO_BATCH * accelerator.num_processes
    loader = torch.utils.data.DataLoader(sequences(config.vocab_size, samples), batch_size=MICRO_BATCH, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, tokens in enumerate(loader):
        with accelerator.accumulate(model):
            loss = model(input_ids=tokens, labels=tokens).loss
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            accelerator.print(f"step {(step + 1) // ACCUMULATION}: loss {loss.item():.3f}")
    state = accelerator.get_state_dict(model)
    bare = accelerator.unwrap_model(model)
    bare.save_pretrained(options.output_dir, is_main_process=accelerator.is_main_process, state_dict=state)
    stage = f", ZeRO stage {model.zero_optimization_stage()}" if accelerator.state.deepspeed_plugin else ""
    accelerator.print(f"trained by {type(model).__name__}{stage}, {accelerator.num_processes} ranks")
    accelerator.wait_for_everyone()  # who leaves ends those who still save
    accelerator.end_training()


if __name__ == "__main__":
    main()
