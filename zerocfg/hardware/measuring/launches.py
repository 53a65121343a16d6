"""What Python and torch take for one kernel in a layer of a model, beside which the device's own time vanishes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from zerocfg.hardware.measuring.library import Device, torch

if TYPE_CHECKING:
    from collections.abc import Callable

WIDTH, HEADS, TOKENS, LAYERS = 64, 4, 8, 8
KERNELS = 34  # of one layer below, views left out; as many as a Llama layer of transformers 5.23 launches in fp32
# How many times as long a kernel takes in a layer of transformers 5.23, whose modules hand on more arguments: measured
# with torch 2.13 on a processor (1.4 to 1.7; benchmarks/time/torch_engines.py).
AROUND = 1.5
PASSES, WARM = 60, 5


def launch(device: Device) -> float:
    """Microseconds, of the quickest pass: what other programs take is not in it. On a processor the kernels themselves
    are in it, which are as short as they can be."""
    run = layers(device)
    taken = []
    for number in range(WARM + PASSES):
        device.wait()
        begun = time.perf_counter()
        run()
        if number >= WARM:
            # Without waiting: what counts is when the host is free again.
            taken.append(time.perf_counter() - begun)
    return round(AROUND * min(taken) / (LAYERS * KERNELS) * 1e6, 2)


def layers(device: Device) -> Callable[[], object]:
    """A forward pass through :data:`LAYERS` decoder layers on tiny tensors."""
    nn, functional = torch.nn, torch.nn.functional

    class Norm(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(WIDTH))

        def forward(self, x: Any) -> Any:
            x = x.to(torch.float32)
            x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
            return self.weight * x

    class Layer(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.projections = nn.ModuleList(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
            self.gate, self.up = (nn.Linear(WIDTH, 2 * WIDTH, bias=False) for _ in range(2))
            self.down, self.activation = nn.Linear(2 * WIDTH, WIDTH, bias=False), nn.SiLU()
            self.before_attention, self.before_mlp = Norm(), Norm()

        def forward(self, x: Any, cosine: Any, sine: Any) -> Any:
            query, key, value, out = self.projections
            normed = self.before_attention(x)
            shape = (1, TOKENS, HEADS, WIDTH // HEADS)
            q, k, v = (item(normed).view(shape).transpose(1, 2) for item in (query, key, value))
            q, k = rotated(q, cosine, sine), rotated(k, cosine, sine)
            attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + out(attended.transpose(1, 2).reshape(1, TOKENS, WIDTH))
            normed = self.before_mlp(x)
            return x + self.down(self.activation(self.gate(normed)) * self.up(normed))

    def rotated(x: Any, cosine: Any, sine: Any) -> Any:
        one, other = x.chunk(2, -1)
        return x * cosine + torch.cat((-other, one), -1) * sine

    model = nn.ModuleList(Layer() for _ in range(LAYERS)).to(device.torch)
    x = torch.randn(1, TOKENS, WIDTH, device=device.torch)
    angles = [torch.randn(TOKENS, WIDTH // HEADS, device=device.torch) for _ in range(2)]

    def run() -> object:
        hidden = x
        for layer in model:
            hidden = layer(hidden, *angles)
        return hidden

    return run
