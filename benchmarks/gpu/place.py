"""Where checks run: the checkout, the card, the environment of what is started, and the folder for results."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).resolve().parent / "results"
OFFLINE = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "PIP_NO_INDEX": "1",
    "UV_OFFLINE": "1",
}
Card = dict[str, str]


@dataclass(frozen=True)
class Place:
    """``out``: the folder for results. ``cards``: of this machine. ``tiny``: tiny models on a processor instead.

    ``earlier``: folders with sweeps of the same card whose measured cases need no repetition.
    """

    out: Path
    cards: tuple[Card, ...] = ()
    tiny: bool = False
    earlier: tuple[Path, ...] = ()

    @property
    def card(self) -> str:
        """The name of the first card, the only one that is used."""
        return self.cards[0]["name"] if self.cards else ""

    @property
    def device(self) -> str:
        return "cpu" if self.tiny else "cuda"


def find_cards() -> list[Card]:
    """Name, memory and driver of each card, by nvidia-smi; empty when there is none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return []
    fields = ("name", "memory.total", "driver_version")
    query = [program, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    rows = (line.rsplit(",", 2) for line in done.stdout.splitlines() if line.count(",") >= 2)
    return [dict(zip(fields, (cell.strip() for cell in row), strict=True)) for row in rows]


def name_of_folder(card: str, date: str) -> str:
    """The name of a folder for results, as "h200-2026-11-26"."""
    words = re.findall(r"[a-z0-9]+", card.lower().replace("nvidia", ""))
    return "-".join([*words, date])


def hash_source() -> str:
    """A hash of zerocfg's source, which says what was tried where there is no git."""
    digest = hashlib.sha256()
    for path in sorted((ROOT / "zerocfg").rglob("*.py")):
        digest.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def environment() -> dict[str, str]:
    """The current environment, with this interpreter's programs (ninja, accelerate) and this zerocfg found first, and
    without the network for what would look there."""
    paths = [str(Path(sys.executable).parent), os.environ.get("PATH", "")]
    modules = [str(ROOT), os.environ.get("PYTHONPATH", "")]  # where zerocfg is not installed
    return {
        **os.environ,
        **OFFLINE,
        "PATH": os.pathsep.join(path for path in paths if path),
        "PYTHONPATH": os.pathsep.join(path for path in modules if path),
    }
