"""What one rank measures by itself: matrix products, copies in memory, copies to and from the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.hardware.measuring.library import GB, MIB, Device, seconds_of, torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TERA = 1e12
# Rows of the square matrices: large enough that the rate of the device no longer rises, small enough for a CPU.
SIZES = {"cpu": 1536, "cuda": 8192, "xpu": 8192}
BUDGET = 0.5  # seconds for each rate


def products(device: Device, notes: list[str]) -> dict[str, float]:
    """TFLOP/s of large square products by precision, accumulated in fp32 as training does; fp32 without TF32."""
    found = {}
    torch.backends.cuda.matmul.allow_tf32 = False
    for precision, make in _products(device):
        try:
            run, operations = make()
            found[precision] = round(operations / seconds_of(run, device, BUDGET) / TERA, 4)
        except Exception as error:
            if not (precision == "fp8" and isinstance(error, (AttributeError, NotImplementedError))):
                notes.append(f"products in {precision} were not measured: {_line(error)}")
    return found


def product(device: Device, dtype: object, size: int) -> tuple[Callable[[], object], float]:
    """A product of two square matrices of ``size`` rows, and the operations that it takes."""
    one, other = (torch.randn(size, size, dtype=dtype, device=device.torch) for _ in range(2))
    result = torch.empty(size, size, dtype=dtype, device=device.torch)
    return lambda: torch.mm(one, other, out=result), 2.0 * size**3


def rows(device: Device, most: int) -> int:
    """Rows of square matrices for which the device has the memory, ``most`` at most."""
    while most > 512 and 8 * most * most * 4 > device.free_bytes(1 << 62):
        most //= 2
    return most


def _products(device: Device) -> Iterator[tuple[str, Callable[[], tuple[Callable[[], object], float]]]]:
    size = rows(device, SIZES[device.kind])

    def plain(dtype: object) -> Callable[[], tuple[Callable[[], object], float]]:
        return lambda: product(device, dtype, size)

    def scaled() -> tuple[Callable[[], object], float]:
        # MI300 has a format of its own.
        old = torch.version.hip and torch.cuda.get_device_capability(device.index) == (9, 4)
        dtype = torch.float8_e4m3fnuz if old else torch.float8_e4m3fn
        one = torch.randn(size, size, device=device.torch).to(dtype)
        other = torch.randn(size, size, device=device.torch).to(dtype).t()
        scale = torch.ones((), device=device.torch)
        run = lambda: torch._scaled_mm(one, other, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)  # noqa: E731
        return run, 2.0 * size**3

    yield "fp32", plain(torch.float32)
    yield "bf16", plain(torch.bfloat16)
    if device.kind != "cpu":
        yield "fp16", plain(torch.float16)
    if device.kind == "cuda" and _has_fp8(device):
        yield "fp8", scaled


def _has_fp8(device: Device) -> bool:
    """Tensor cores from Ada on; matrix units of AMD from MI300 on (torch states 9.4 for gfx942)."""
    capability: tuple[int, int] = torch.cuda.get_device_capability(device.index)
    return capability >= ((9, 4) if torch.version.hip else (8, 9))


def memory(device: Device) -> float:
    """GB/s through a memory, bytes read and bytes written, by a large copy. Raises what torch raises."""
    size = 256 * MIB if device.kind == "cpu" else min(1024 * MIB, device.free_bytes(0) // 4)
    return round(2 * size / seconds_of(copy(device, size), device, BUDGET) / GB, 2)


def copy(device: Device, size: int) -> Callable[[], object]:
    """A copy of ``size`` bytes from one place in a memory to another."""
    source = torch.ones(size // 4, dtype=torch.float32, device=device.torch)
    target = torch.empty_like(source)
    target.copy_(source)
    return lambda: target.copy_(source)


def pinned(device: Device) -> float:
    """GB/s between page-locked memory of the host and the device, the slower of the two directions."""
    size = min(256 * MIB, device.free_bytes(0) // 4)
    forth, back = (seconds_of(pinned_copy, device, BUDGET) for pinned_copy in pinned_copies(device, size))
    return round(size / max(forth, back) / GB, 2)


def pinned_copies(device: Device, size: int) -> tuple[Callable[[], object], Callable[[], object]]:
    """Copies of ``size`` bytes from page-locked memory of the host to the device, and back."""
    host = torch.empty(size, dtype=torch.uint8, pin_memory=True)
    there = torch.empty(size, dtype=torch.uint8, device=device.torch)
    return lambda: there.copy_(host, non_blocking=True), lambda: host.copy_(there, non_blocking=True)


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
