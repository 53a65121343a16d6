"""What DDP and FSDP 2 take of the host, in launches: ``python benchmarks/time/torch_engines.py``.

Needs torch and transformers. One rank over gloo trains a Llama of 24 tiny layers on a processor, where everything but
the host's own work vanishes: plain, under DDP, and with each layer and the root sharded by FSDP 2. What a phase takes
longer than the plain one, over the units or tensors, is given in launches of a kernel
(`zerocfg.hardware.measuring.launches`), and how much longer a kernel of transformers takes than one of the layers
there.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from zerocfg.hardware.measuring import launches
from zerocfg.hardware.measuring.library import Device

LAYERS, STEPS, WARM = 24, 80, 9
ENVIRONMENT = {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29655"}


def model(layers: int = LAYERS) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    shape = {"hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4, "vocab_size": 512}
    return LlamaForCausalLM(LlamaConfig(**shape, num_hidden_layers=layers, use_cache=False))


def under_ddp(plain: Any) -> Any:
    from torch.nn.parallel import DistributedDataParallel

    return DistributedDataParallel(plain)


def sharded(plain: Any) -> Any:
    from torch.distributed.fsdp import fully_shard

    for layer in plain.model.layers:
        fully_shard(layer)
    fully_shard(plain)
    return plain


def phases(wrap: Callable[[Any], Any]) -> list[float]:
    """Least seconds of forward, backward and optimizer step: what other programs take is not in them."""
    import torch

    wrapped = wrap(model())
    optimizer = torch.optim.AdamW(wrapped.parameters(), fused=True)
    ids = torch.randint(0, 512, (1, 8))
    taken = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        loss = wrapped(input_ids=ids, labels=ids).loss
        forward = time.perf_counter()
        loss.backward()
        backward = time.perf_counter()
        optimizer.step()
        optimizer.zero_grad()
        taken.append((forward - begun, backward - forward, time.perf_counter() - backward))
    return [min(phase) for phase in zip(*taken[WARM:], strict=True)]


def around() -> float:
    """Least seconds of a kernel in a layer of transformers, over that in a layer of ours."""
    import torch

    def of(layers: int) -> float:
        found = model(layers)
        ids = torch.randint(0, 512, (1, 8))
        return least(lambda: found(input_ids=ids))

    return (
        (of(LAYERS) - of(LAYERS // 3))
        / (LAYERS - LAYERS // 3)
        / (least(launches.layers(Device("cpu"))) / launches.LAYERS)
    )


def least(run: Callable[[], object]) -> float:
    taken = []
    for _ in range(STEPS):
        begun = time.perf_counter()
        run()
        taken.append(time.perf_counter() - begun)
    return min(taken)


def main() -> None:
    os.environ.update(ENVIRONMENT)
    import torch

    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo")
    one = launches.launch(Device("cpu")) * 1e-6
    tensors, units = len(list(model().parameters())), LAYERS + 1
    plain, ddp, fsdp = phases(lambda it: it), phases(under_ddp), phases(sharded)
    print(f"a kernel of transformers over one of ours: {around():.2f}")
    print(f"a launch: {one * 1e6:.1f} us")
    print(f"DDP, a gradient: {(ddp[1] - plain[1]) / tensors / one:.1f} launches")
    print(f"FSDP 2, a unit forward: {(fsdp[0] - plain[0]) / units / one:.1f} launches")
    print(f"FSDP 2, a unit backward: {(fsdp[1] - plain[1]) / units / one:.1f} launches")
    print(f"FSDP 2, a tensor in the step: {(fsdp[2] - plain[2]) / tensors / one:.1f} launches")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
