"""Train a small model with real DeepSpeed on CPU ranks and report which of its lines allocated what.

Reads cases from standard input, one JSON list ``[{"model": "odd", "world_size": 2, "config": {...}}, ...]``, and
prints one JSON line for each: ``{"ranks": [{"shape": ..., "moments": {moment: {"end": sites, "peak": sites}}}, ...]}``
or ``{"error": ...}``. Sites are ``{site: [[bytes, how many], ...]}`` as in :mod:`tracker`; ``parameter`` is the model's
own parameters, ``gradient`` what autograd handed to a parameter. The shape tells the tensors, the modules in the order
of the forward pass, and the order in which gradients came.
"""

from __future__ import annotations

import gc
import json
import os
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

STEPS = 3  # optimizer steps; the last one is reported
VOCAB, WIDTH = 97, 24


def build(name: str) -> Any:
    """``odd``: sizes that nothing divides, with and without biases. ``llama``: a tiny Hugging Face model."""
    import torch
    from torch import nn

    if name.startswith("llama"):
        import transformers

        return transformers.LlamaForCausalLM(llama_config())

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.up = nn.Linear(WIDTH, 61)
            self.down = nn.Linear(61, WIDTH)

        def forward(self, x: Any) -> Any:
            return x + self.down(torch.tanh(self.up(self.norm(x))))

    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(VOCAB, WIDTH)
            self.blocks = nn.ModuleList(Block() for _ in range(3))
            self.norm = nn.LayerNorm(WIDTH)
            self.head = nn.Linear(WIDTH, VOCAB, bias=False)

        def forward(self, input_ids: Any) -> Any:
            x = self.embed(input_ids)
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))

    return Odd()


def llama_config() -> Any:
    import transformers

    return transformers.LlamaConfig(
        hidden_size=40,
        intermediate_size=104,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        vocab_size=211,
        max_position_embeddings=16,
        tie_word_embeddings=False,
        attn_implementation="eager",
    )


def train(case: dict[str, Any]) -> dict[str, Any]:
    import deepspeed
    import torch
    from tracker import Tracker, listed

    config, moments = case["config"], {}
    dtype = torch.bfloat16 if config.get("bf16") else torch.float16 if config.get("fp16") else torch.float32
    accelerator = deepspeed.accelerator.get_accelerator()
    if dtype is torch.float16:
        accelerator.is_fp16_supported = lambda: True  # DeepSpeed refuses it here, torch can do it
    torch.manual_seed(0)
    tracker = Tracker()

    def report(moment: str) -> None:
        gc.collect()
        moments[moment] = {"end": listed(tracker.count), "peak": listed(tracker.peak)}
        tracker.restart()

    pin = accelerator.pin_memory

    def pinned(tensor: Any, *args: Any, **kwargs: Any) -> Any:
        result = pin(tensor, *args, **kwargs)
        if not tracker.site(result).endswith(" pinned"):
            tracker.label(result, tracker.site(result) + " pinned")
        return result

    accelerator.pin_memory = pinned
    with tracker:
        if case.get("zero_init"):
            with deepspeed.zero.Init(config_dict_or_path=config):
                model = build(case["model"])
        else:
            model = build(case["model"]).to(dtype)
        parameters = dict(model.named_parameters())
        number = {parameter: index for index, parameter in enumerate(parameters.values())}
        arrived: list[int] = []

        def arrive(parameter: Any) -> None:
            arrived.append(number[parameter])
            tracker.label(parameter.grad, "gradient")

        for name, parameter in parameters.items():
            if case.get("frozen") and case["frozen"] in name:
                parameter.requires_grad_(False)
            tracker.label(parameter, "parameter")
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(arrive)
        entered: list[int] = []
        left: list[int] = []
        modules = []
        for index, module in enumerate(model.modules()):
            modules.append([[number[parameter] for parameter in module.parameters(recurse=False)], False])
            module.register_forward_pre_hook(lambda module, inputs, index=index: entered.append(index))
            module.register_forward_hook(lambda module, inputs, output, index=index: left.append(index))
        sizes = [[getattr(one, "ds_numel", one.numel()), one.requires_grad] for one in number]
        trained = [parameter for parameter in number if parameter.requires_grad]
        optimizer = None
        if "optimizer" not in config:
            chosen = {"adamw_foreach": {"foreach": True}, "adamw": {"foreach": True}}
            optimizer = torch.optim.AdamW(trained, lr=1e-3, **chosen.get(case["optimizer"], {"foreach": False}))
        engine, *_ = deepspeed.initialize(
            model=model, optimizer=optimizer, model_parameters=None if optimizer else trained, config=config
        )
        del optimizer, trained
        report("init")
        tokens = torch.arange(3).view(1, 3)
        for _ in range(STEPS):
            for micro in range(config.get("gradient_accumulation_steps", 1)):
                for order in (arrived, entered, left):
                    order.clear()
                output = engine(tokens)
                logits = output if isinstance(output, torch.Tensor) else output.logits
                loss = logits.float().pow(2).mean()
                del output, logits
                report(f"forward {micro}")
                engine.backward(loss)
                del loss
                report(f"backward {micro}")
                engine.step()
                report(f"step {micro}")
    shape = {"tensors": sizes, "modules": modules, "gradients": arrived, "forward": entered, "backward": left[::-1]}
    return {"moments": moments, "shape": shape}


def rank_main(rank: int, case: dict[str, Any], port: int, pipe: int) -> None:
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(case["world_size"])}
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_SIZE": str(case["world_size"])}
    try:
        result: dict[str, Any] = train(case)
    except Exception:
        result = {"error": traceback.format_exc(limit=-8)}
    with os.fdopen(pipe, "w") as answer:
        answer.write(json.dumps(result))
    os._exit(0)


def run_case(case: dict[str, Any]) -> dict[str, Any]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    pipes, children = [], []
    for rank in range(case["world_size"]):
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            rank_main(rank, case, port, writable)
        os.close(writable)
        pipes.append(readable)
        children.append(child)
    texts = []
    for readable in pipes:
        with os.fdopen(readable) as answer:
            texts.append(answer.read())
    for child in children:
        os.waitpid(child, 0)
    for left in Path("/dev/shm").glob(f"deepspeed_allreduce_buffer_*_{port}_*"):
        left.unlink(missing_ok=True)  # 66 MB a rank; DeepSpeed removes them only in a process that ends by itself
    ranks = [json.loads(text) if text else {"error": "a rank died"} for text in texts]
    errors = [rank["error"] for rank in ranks if "error" in rank]
    return {"error": errors[0]} if errors else {"ranks": ranks}


def main() -> None:
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # DeepSpeed's own messages
    os.environ |= {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    cases = json.load(sys.stdin)
    sys.path.insert(0, str(Path(__file__).parents[3]))
    from tests.proofs.zygote import load_operators, operators

    os.environ["TORCH_EXTENSIONS_DIR"] = operators()
    import deepspeed  # noqa: F401  (once, before the forks)
    import torch
    import torch._dynamo  # (zero.Init gets in the way of importing it later)
    import transformers  # noqa: F401

    load_operators()
    torch.set_num_threads(1)
    for case in cases:
        output.write(json.dumps(run_case(case)) + "\n")
        output.flush()


if __name__ == "__main__":
    main()
