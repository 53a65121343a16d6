"""What a campaign is: how an input is made of random numbers, and what must hold for it."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

Input = dict[str, bytes]
"""The files of one input by their path below its folder."""


class BrokenError(AssertionError):
    """What had to hold for an input does not."""


@dataclass(frozen=True)
class Campaign:
    """``make`` an input; ``check`` it in the folder where its files lie, with random numbers of its own.

    ``size`` and ``nightly`` are numbers of inputs. ``measured``: CPU and memory of the check are zerocfg's, so that
    they are held to the limits.
    """

    name: str
    size: int
    nightly: int
    make: Callable[[Random], Input]
    check: Callable[[Path, Random], None]
    measured: bool = True


def put(files: Input, folder: Path) -> None:
    """The files of an input on the disk."""
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


def total(files: Input) -> int:
    """Bytes of an input."""
    return sum(map(len, files.values()))


def keep(path: Path, campaign: str, seed: str, why: str, files: Input) -> None:
    """An input as a file that the tests replay; text where it is text."""
    kept = {
        "campaign": campaign,
        "seed": seed,
        "why": why,
        "files": {name: _text(data) for name, data in sorted(files.items())},
    }
    path.write_text(json.dumps(kept, indent=1, ensure_ascii=True) + "\n", encoding="ascii")


def kept(path: Path) -> tuple[str, str, Input]:
    """Campaign, seed and files of a kept input."""
    found = json.loads(path.read_text(encoding="ascii"))
    return found["campaign"], found["seed"], {name: _bytes(text) for name, text in found["files"].items()}


def _text(data: bytes) -> str | dict[str, str]:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data).decode("ascii")}


def _bytes(text: str | dict[str, str]) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else base64.b64decode(text["base64"])
