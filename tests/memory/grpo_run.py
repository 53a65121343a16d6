"""Runs GRPOTrainer of TRL on a small model and counts every storage: ``python -m tests.memory.grpo_run`` reads a case.

On a card a kernel works inside a tile of logits; here its stand-in on the processor, which takes memory of its own,
does nothing. Everything else is the trainer's own code.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from zerocfg.smoke.worker.loops.trl_loop import mean_token
from zerocfg.tracer.storages import Storages

PEAKS: dict[str, int] = {}


def run(case: dict[str, Any]) -> dict[str, Any]:
    """Peaks of one step in bytes, beside parameters and gradients: while completions are generated, while they are
    scored without gradients, forward, backward; the elements of the model, and the bytes of a reference."""
    import datasets
    import transformers
    import trl
    from trl.kernels import chunked_logprob
    from trl.trainer import utils

    def fold(*tensors: Any, **_: Any) -> None:
        tensors[4].fill_(1)  # the sum of exponentials, of which a logarithm is taken

    utils._use_triton = lambda device: True
    chunked_logprob._forward_tile, chunked_logprob._addmm_fp32 = fold, lambda *_: None
    chunked_logprob._backward_tile = lambda *_, **__: None
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as name:
        config = transformers.LlamaConfig(**case["model"])
        model = transformers.LlamaForCausalLM(config).to(torch.bfloat16)
        folder = Path(name, "model")
        model.save_pretrained(folder)
        args = trl.GRPOConfig(
            output_dir=str(Path(name, "out")),
            use_cpu=True,
            bf16=True,
            report_to=[],
            max_steps=1,
            logging_steps=1000,
            save_strategy="no",
            shuffle_dataset=False,
            model_init_kwargs={"dtype": "bfloat16", "attn_implementation": case["attention"]},
            **case["arguments"],
        )
        words = case["model"]["vocab_size"]
        # One prompt is longer than the others, so that they are padded.
        lengths = [case["prompt"] - (at > 0) for at in range(64)]
        prompts = [{"prompt": " ".join(f"w{2 + at}" for at in range(length))} for length in lengths]
        trainer = trl.GRPOTrainer(
            str(folder), mean_token, args, datasets.Dataset.from_list(prompts), processing_class=_tokenizer(words)
        )
        # No completion ends early: the longest ones decide.
        if hasattr(trainer, "generation_config"):
            trainer.generation_config.eos_token_id = None
            trainer.eos_token_ids = [words]
        kept = [*trainer.model.parameters(), *trainer.model.buffers()]
        of_reference = list(trainer.ref_model.parameters()) if trainer.ref_model is not None else []
        storages = Storages([*kept, *of_reference])
        _watch(trainer, storages)
        with storages:
            trainer.train()
    return {
        "peaks": PEAKS,
        "parameters": sum(one.numel() for one in trainer.model.parameters()),
        "reference": sum(one.numel() * one.element_size() for one in of_reference),
    }


def _tokenizer(words: int) -> Any:
    """One word for each number below ``words``."""
    import transformers
    from tokenizers import Tokenizer, models, pre_tokenizers

    names = ["<pad>", "<end>", *(f"w{number}" for number in range(2, words))]
    known = Tokenizer(models.WordLevel({name: at for at, name in enumerate(names)}, unk_token="<pad>"))
    known.pre_tokenizer = pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=known, pad_token="<pad>", eos_token="<end>")


def _watch(trainer: Any, storages: Storages) -> None:
    def timed(owner: Any, name: str, moment: str, wanted: Callable[[], bool] = lambda: True) -> None:
        work: Callable[..., Any] = getattr(owner, name)

        def wrapped(*args: Any, **more: Any) -> Any:
            if not wanted():
                return work(*args, **more)
            before = storages.live
            storages.restart()
            result = work(*args, **more)
            PEAKS[moment] = max(PEAKS.get(moment, 0), storages.restart() - before)
            return result

        setattr(owner, name, wrapped)

    timed(trainer, "_generate_single_turn", "generation")
    timed(trainer, "_get_per_token_logps_and_entropies", "scoring", lambda: not torch.is_grad_enabled())
    loss: Callable[..., Any] = trainer.compute_loss
    before = 0

    def compute(*args: Any, **more: Any) -> Any:
        nonlocal before
        before = storages.live
        storages.restart()
        result = loss(*args, **more)
        PEAKS["forward"] = max(PEAKS.get("forward", 0), storages.restart() - before)
        return result

    back: Callable[..., Any] = trainer.accelerator.backward

    def backward(*args: Any, **more: Any) -> None:
        storages.restart()
        back(*args, **more)
        PEAKS["backward"] = max(PEAKS.get("backward", 0), storages.restart() - before)

    trainer.compute_loss, trainer.accelerator.backward = compute, backward

    def handed(parameter: torch.Tensor) -> None:
        if parameter.grad is not None:
            storages.forget(parameter.grad)

    for parameter in trainer.model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(handed)


if __name__ == "__main__":
    os.environ |= {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}
    out, sys.stdout = sys.stdout, sys.stderr
    out.write(json.dumps(run(json.load(sys.stdin))))
