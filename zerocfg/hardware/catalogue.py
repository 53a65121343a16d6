"""Accelerators by name. Rates are dense (vendors often print the sparse ones, twice as high); figures that
the vendor does not state are left out.

``usable`` is the total that the driver reports for the device ("total capacity" in torch's messages).
"""

from __future__ import annotations

import difflib
import re

from zerocfg.models.hardware import Accelerator, HardwareProfile, Link

LARGEST_COUNT = 100_000

# name | GiB | usable | architecture | bf16 | fp16 | fp32 | fp8 TFLOP/s | GB/s | link kind and GB/s | source
# A dash: not stated, or the hardware has no such unit.
_NVIDIA = """
P100-SXM2-16GB        |  16 | 15.9  |    6.0 |    - |  21.2 |  10.6 |    - |  732 | nvlink 160          | p100
P100-PCIe-16GB        |  16 | 15.9  |    6.0 |    - |  18.7 |   9.3 |    - |  732 | pcie 32             | p100
V100-SXM2-16GB        |  16 | 15.77 |    7.0 |    - |   125 |  15.7 |    - |  900 | nvlink 300          | v100
V100-SXM2-32GB        |  32 | 31.74 |    7.0 |    - |   125 |  15.7 |    - |  900 | nvlink 300          | v100
V100-PCIe-16GB        |  16 | 15.77 |    7.0 |    - |   112 |    14 |    - |  900 | pcie 32             | v100
V100-PCIe-32GB        |  32 | 31.74 |    7.0 |    - |   112 |    14 |    - |  900 | pcie 32             | v100
T4                    |  16 | 14.56 |    7.5 |    - |    65 |   8.1 |    - |  320 | pcie 32             | t4
RTX2080Ti             |  11 | 10.75 |    7.5 |    - |  53.8 |  13.4 |    - |  616 | pcie 32             | turing
RTX3090               |  24 | 23.68 |    8.6 |   71 |    71 |  35.6 |    - |  936 | pcie 64             | ga102
RTX4090               |  24 | 23.64 |    8.9 |  165 |   165 |  82.6 |  330 | 1008 | pcie 64             | ada
RTX4080               |  16 | -     |    8.9 | 97.5 |  97.5 |  48.7 |  195 |  717 | pcie 64             | ada
RTX5090               |  32 | 31.36 |   12.0 |  209 |   209 | 104.8 |  419 | 1792 | pcie 128            | rtx-blackwell
A10                   |  24 | 22.06 |    8.6 |  125 |   125 |  31.2 |    - |  600 | pcie 64             | a10
A10G                  |  24 | 22.06 |    8.6 |   70 |    70 |    35 |    - |  600 | pcie 64             | a10g
A30                   |  24 | -     |    8.0 |  165 |   165 |  10.3 |    - |  933 | pcie 64             | a30
A40                   |  48 | 44.35 |    8.6 |  150 |   150 |  37.4 |    - |  696 | pcie 64             | a40
RTXA6000              |  48 | 47.4  |    8.6 |  155 |   155 |  38.7 |    - |  768 | pcie 64             | rtxa6000
A100-SXM-40GB         |  40 | 39.39 |    8.0 |  312 |   312 |  19.5 |    - | 1555 | nvlink 600          | a100
A100-PCIe-40GB        |  40 | 39.39 |    8.0 |  312 |   312 |  19.5 |    - | 1555 | pcie 64             | a100
A100-SXM-80GB         |  80 | 79.15 |    8.0 |  312 |   312 |  19.5 |    - | 2039 | nvlink 600          | a100
A100-PCIe-80GB        |  80 | 79.15 |    8.0 |  312 |   312 |  19.5 |    - | 1935 | pcie 64             | a100
A800-SXM-80GB         |  80 | 79.15 |    8.0 |  312 |   312 |  19.5 |    - | 2039 | nvlink 400          | a800
L4                    |  24 | 22.03 |    8.9 |  121 |   121 |  30.3 |  242 |  300 | pcie 64             | l4
L40                   |  48 | -     |    8.9 |  181 |   181 |  90.5 |  362 |  864 | pcie 64             | l40
L40S                  |  48 | 44.39 |    8.9 |  362 |   362 |  91.6 |  733 |  864 | pcie 64             | l40s
RTX6000Ada            |  48 | 47.4  |    8.9 |  364 |   364 |  91.1 |  728 |  960 | pcie 64             | rtx6000ada
RTXPRO6000            |  96 | -     |   12.0 |  504 |   504 |   126 | 1008 | 1792 | pcie 128            | rtx-pro
H100-PCIe-80GB        |  80 | 79.1  |    9.0 |  756 |   756 |    51 | 1513 | 2000 | pcie 128            | h100
H100-SXM-80GB         |  80 | 79.1  |    9.0 |  989 |   989 |    67 | 1979 | 3350 | nvlink 900          | h100
H100-NVL-94GB         |  94 | -     |    9.0 |  835 |   835 |    60 | 1671 | 3900 | nvlink 600          | h100
H800-SXM-80GB         |  80 | 79.1  |    9.0 |  989 |   989 |    67 | 1979 | 3350 | nvlink 400          | h800
H20                   |  96 | -     |    9.0 |  148 |   148 |    44 |  296 | 4000 | nvlink 900          | h20
H200-SXM-141GB        | 141 | 139.8 |    9.0 |  989 |   989 |    67 | 1979 | 4800 | nvlink 900          | h200
H200-NVL-141GB        | 141 | 139.8 |    9.0 |  835 |   835 |    60 | 1671 | 4800 | nvlink 900          | h200
GH200-96GB            |  96 | 94.5  |    9.0 |  989 |   989 |    67 | 1979 | 4000 | -                   | gh200
GH200-144GB           | 144 | -     |    9.0 |  989 |   989 |    67 | 1979 | 4900 | -                   | gh200
B200                  | 180 | 178.3 |   10.0 | 2250 |  2250 |    75 | 4500 | 7700 | nvlink 1800         | b200
GB200                 | 186 | -     |   10.0 | 2500 |  2500 |    80 | 5000 | 8000 | nvlink 1800         | gb200
B300                  | 288 | -     |   10.3 | 2250 |  2250 |    75 | 4500 | 8000 | nvlink 1800         | b300
"""
_AMD = """
MI100                 |  32 | -     | gfx908 | 92.3 | 184.6 |  23.1 |    - | 1229 | -                   | mi100
MI210                 |  64 | 63.98 | gfx90a |  181 |   181 |  22.6 |    - | 1638 | -                   | mi200
MI250                 |  64 | 63.98 | gfx90a |  181 |   181 |  22.6 |    - | 1638 | -                   | mi200
MI250X                |  64 | 63.98 | gfx90a |  191 |   191 |  23.9 |    - | 1638 | -                   | mi200
MI300X                | 192 | 191.4 | gfx942 | 1307 |  1307 | 163.4 | 2614 | 5300 | infinity-fabric 896 | mi300x
MI325X                | 256 | -     | gfx942 | 1307 |  1307 | 163.4 | 2614 | 6000 | infinity-fabric 896 | mi325x
MI350X                | 288 | -     | gfx950 | 2307 |  2307 | 144.2 | 4614 | 8000 | infinity-fabric 1075 | mi350
MI355X                | 288 | -     | gfx950 | 2516 |  2516 | 157.3 | 5033 | 8000 | infinity-fabric 1075 | mi350
"""
_INTEL = """
Gaudi2                |  96 | -     | gaudi2 |  432 |     - |     - |  865 | 2450 | ethernet 600        | gaudi3
Gaudi3                | 128 | -     | gaudi3 | 1835 |     - |     - | 1835 | 3700 | ethernet 1200       | gaudi3
Max1550               | 128 | -     | xe-hpc |  839 |   839 |    52 |    - | 3277 | -                   | max1550
"""

# Where the figures stand. Systems of several devices are divided by their number, rates with sparsity by two.
_SOURCES = {
    "p100": "NVIDIA, Tesla P100 data sheet",
    "v100": "NVIDIA, V100 Tensor Core GPU data sheet, https://www.nvidia.com/en-us/data-center/v100/",
    "t4": "NVIDIA, T4 Tensor Core GPU data sheet",
    "turing": "NVIDIA, Turing GPU architecture whitepaper",
    "ga102": "NVIDIA, Ampere GA102 GPU architecture whitepaper",
    "ada": "NVIDIA, Ada GPU architecture whitepaper",
    "rtx-blackwell": "NVIDIA, RTX Blackwell GPU architecture whitepaper",
    "rtx6000ada": "NVIDIA, RTX 6000 Ada Generation data sheet",
    "rtx-pro": "NVIDIA, RTX PRO 6000 Blackwell data sheet; bf16: 188 multiprocessors x 1024 operations at 2617 MHz",
    "a10": "NVIDIA, A10 Tensor Core GPU data sheet",
    "a10g": "NVIDIA and AWS, A10G data sheet (2022)",
    "a30": "NVIDIA, A30 Tensor Core GPU data sheet",
    "a40": "NVIDIA, A40 data sheet",
    "rtxa6000": "NVIDIA, RTX A6000 data sheet; tensor rates: Ampere GA102 GPU architecture whitepaper",
    "a100": "NVIDIA, A100 Tensor Core GPU data sheet, https://www.nvidia.com/en-us/data-center/a100/",
    "a800": "NVIDIA, A100 Tensor Core GPU data sheet, with the A800's NVLink (400 GB/s)",
    "l4": "NVIDIA, L4 Tensor Core GPU data sheet, https://www.nvidia.com/en-us/data-center/l4/",
    "l40": "NVIDIA, L40 data sheet",
    "l40s": "NVIDIA, L40S data sheet, https://www.nvidia.com/en-us/data-center/l40s/",
    "h100": "NVIDIA, H100 Tensor Core GPU data sheet, https://www.nvidia.com/en-us/data-center/h100/",
    "h800": "NVIDIA, H100 Tensor Core GPU data sheet, with the H800's NVLink (400 GB/s)",
    "h20": "reports of 2023 and 2024; NVIDIA published no data sheet of the H20",
    "h200": "NVIDIA, H200 Tensor Core GPU data sheet, https://www.nvidia.com/en-us/data-center/h200/",
    "gh200": "NVIDIA, GH200 Grace Hopper Superchip data sheet",
    "b200": "NVIDIA, HGX B200 in the Blackwell data sheet, https://www.nvidia.com/en-us/data-center/hgx/",
    "gb200": "NVIDIA, GB200 NVL72 data sheet, https://www.nvidia.com/en-us/data-center/gb200-nvl72/",
    "b300": "NVIDIA, HGX B300 and DGX B300 data sheets, https://www.nvidia.com/en-us/data-center/hgx/",
    "mi100": "AMD, Instinct MI100 data sheet",
    "mi200": "AMD, Instinct MI210, MI250 and MI250X data sheets",
    "mi300x": "AMD, Instinct MI300X data sheet, https://www.amd.com/en/products/accelerators/instinct/mi300/mi300x.html",
    "mi325x": "AMD, Instinct MI325X data sheet",
    "mi350": "AMD, Instinct MI350X and MI355X data sheets",
    "gaudi3": "Intel, Gaudi 3 AI accelerator white paper (with Gaudi 2 beside it)",
    "max1550": "Intel, Data Center GPU Max 1550 product brief; bf16: 128 Xe cores x 4096 operations at 1600 MHz",
}

# Links to the host by architecture, GB/s of both directions: 16 lanes of PCIe 3, 4 or 5.
_HOST_LINKS = {
    **dict.fromkeys(("6.0", "7.0", "7.5"), 32.0),
    **dict.fromkeys(("8.0", "8.6", "8.9", "gfx908", "gfx90a", "gaudi2"), 64.0),
    **dict.fromkeys(("9.0", "10.0", "10.3", "12.0", "gfx942", "gfx950", "gaudi3", "xe-hpc"), 128.0),
}
# Joined to a CPU by NVLink-C2C (data sheets of Grace Hopper and Grace Blackwell; a GB200 holds two devices).
C2C = {"GH200-96GB": 900.0, "GH200-144GB": 900.0, "GB200": 450.0}

# Short names that people write, and the variant that they most often mean.
_ALIASES = {
    "P100": "P100-SXM2-16GB",
    "V100": "V100-SXM2-32GB",
    "V100-16GB": "V100-SXM2-16GB",
    "V100-32GB": "V100-SXM2-32GB",
    "V100-PCIe": "V100-PCIe-32GB",
    "2080Ti": "RTX2080Ti",
    "3090": "RTX3090",
    "4080": "RTX4080",
    "4090": "RTX4090",
    "5090": "RTX5090",
    "A6000": "RTXA6000",
    "6000Ada": "RTX6000Ada",
    "A100": "A100-SXM-80GB",
    "A100-SXM": "A100-SXM-80GB",
    "A100-PCIe": "A100-PCIe-80GB",
    "A100-40GB": "A100-SXM-40GB",
    "A100-80GB": "A100-SXM-80GB",
    "A800": "A800-SXM-80GB",
    "A800-80GB": "A800-SXM-80GB",
    "H100": "H100-SXM-80GB",
    "H100-80GB": "H100-SXM-80GB",
    "H100-80GB-HBM3": "H100-SXM-80GB",
    "H100-SXM": "H100-SXM-80GB",
    "H100-PCIe": "H100-PCIe-80GB",
    "H100-NVL": "H100-NVL-94GB",
    "H800": "H800-SXM-80GB",
    "H200": "H200-SXM-141GB",
    "H200-SXM": "H200-SXM-141GB",
    "H200-141GB": "H200-SXM-141GB",
    "H200-NVL": "H200-NVL-141GB",
    "A100-80GB-PCIe": "A100-PCIe-80GB",  # as the driver names it
    "GH200": "GH200-96GB",
    "GH200-480GB": "GH200-96GB",  # the driver counts the CPU's memory
    "B300-SXM6-AC": "B300",
    "RTX-PRO-6000": "RTXPRO6000",
    "RTX-PRO-6000-Blackwell": "RTXPRO6000",
    "RTX-PRO-6000-Blackwell-Workstation-Edition": "RTXPRO6000",
    "RTX-PRO-6000-Blackwell-Server-Edition": "RTXPRO6000",
    "T4-16GB": "T4",
    "L4-24GB": "L4",
    "L40S-48GB": "L40S",
    "A10-24GB": "A10",
    "A10G-24GB": "A10G",
    "MI300X-192GB": "MI300X",
    "PonteVecchio": "Max1550",
    "GPUMax1550": "Max1550",
}
_COUNTED = re.compile(r"(?:(\d+)\s*[x×*]\s*)?(?:(\d+)\s*[x×*]\s*)?(\S.*)", re.IGNORECASE | re.DOTALL)
_BRANDS = re.compile(
    r"\b(nvidia|geforce|tesla|quadro|amd|instinct|radeon|intel|habana|graphics|generation)\b", re.IGNORECASE
)


def _read(table: str, vendor: str) -> dict[str, tuple[Accelerator, Link | None]]:
    entries = {}
    for line in table.strip().splitlines():
        name, *figures, link, source = (cell.strip() for cell in line.split("|"))
        memory, usable, architecture, bf16, fp16, fp32, fp8, bandwidth = figures

        def number(cell: str) -> float | None:
            return None if cell == "-" else float(cell)

        device = Accelerator.model_validate(
            {
                "name": name,
                "vendor": vendor,
                "memory_gib": number(memory),
                "usable_gib": number(usable),
                "architecture": architecture,
                "bf16": bf16 != "-",
                "fp8": fp8 != "-",
                "bf16_tflops": number(bf16),
                "fp16_tflops": number(fp16),
                "fp32_tflops": number(fp32),
                "fp8_tflops": number(fp8),
                "memory_gb_s": number(bandwidth),
                "host_gb_s": C2C.get(name, _HOST_LINKS.get(architecture)),
                "origin": _SOURCES[source],
            }
        )
        kind, _, rate = link.partition(" ")
        entries[name] = (device, Link(kind=kind, gb_s=float(rate)) if rate else None)
    return entries


CPU = Accelerator(name="cpu", vendor="cpu", origin="no accelerator: ranks compute on the host")
CATALOGUE: dict[str, tuple[Accelerator, Link | None]] = {
    **_read(_NVIDIA, "nvidia"),
    **_read(_AMD, "amd"),
    **_read(_INTEL, "intel"),
    "cpu": (CPU, None),
}


def _plain(name: str) -> str:
    """A name without brand, separators, case and the number behind SXM, so that spellings compare."""
    name = re.sub(r"sxm\d", "sxm", _BRANDS.sub("", name), flags=re.IGNORECASE)
    name = re.sub(r"(\d)\s*gi?b\b", r"\1gb", name, flags=re.IGNORECASE)
    return re.sub(r"[\s_/-]+", "", name).lower()


_BY_PLAIN = {_plain(name): name for name in CATALOGUE} | {_plain(alias): name for alias, name in _ALIASES.items()}


def find_accelerator(name: str) -> tuple[Accelerator, Link | None] | None:
    """The catalogue's entry for a name in any usual spelling ("NVIDIA A100-SXM4-80GB"), else None."""
    canonical = _BY_PLAIN.get(_plain(name))
    return CATALOGUE[canonical] if canonical else None


def parse_hardware(text: str) -> HardwareProfile:
    """``8xA100-80GB``, ``2x8xH100`` (nodes x devices), ``RTX4090``, ``cpu`` or ``2xcpu`` as a profile.

    Nothing is known about the host of such a profile. Raises ValueError with one line for anything else.
    """
    match = _COUNTED.fullmatch(text.strip())
    if match is None:
        raise ValueError("no hardware named; write for example 8xA100-80GB, 2x8xH100 or cpu")
    first, second, name = match.groups()
    found = find_accelerator(name)
    if found is None:
        close = difflib.get_close_matches(_plain(name), _BY_PLAIN, n=3, cutoff=0.5)
        meant = list(dict.fromkeys(_BY_PLAIN[plain] for plain in close))
        hint = f"; did you mean {' or '.join(meant)}?" if meant else ""
        raise ValueError(f"unknown accelerator {name!r}{hint}")
    nodes, devices = (int(first), int(second)) if second else (1, int(first or 1))
    if not (1 <= nodes <= LARGEST_COUNT and 1 <= devices <= LARGEST_COUNT):
        raise ValueError(f"{text.strip()}: counts must lie between 1 and {LARGEST_COUNT}")
    device, link = found
    notes = []
    if _plain(name) != _plain(device.name):
        notes.append(f"{name} was taken as {device.name}")
    if device.name in ("MI250", "MI250X"):
        notes.append(f"a device is one die: an {device.name} module counts as two")
    return HardwareProfile(
        name=text.strip(),
        nodes=nodes,
        accelerators_per_node=devices,
        accelerator=device,
        link_within_node=link if devices > 1 else None,
        origin="catalogue",
        notes=notes,
    )
