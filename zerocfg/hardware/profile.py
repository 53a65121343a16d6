"""Hardware profiles on disk, and the one way to turn what a user wrote into a profile."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from zerocfg.budgets import FILE_BYTES
from zerocfg.hardware.between_nodes import with_network
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.models.hardware import HardwareProfile
from zerocfg.source import disk


def load_hardware(text: str, network: str | None = None) -> HardwareProfile:
    """A profile from a path to a JSON file or from a name such as ``8xA100-80GB``, with a network between its nodes
    (:mod:`zerocfg.hardware.between_nodes`).

    Raises ValueError with one line: no such file, not JSON, a wrong key, an unknown accelerator.
    """
    if text.lower().endswith(".json"):
        return with_network(read_profile(Path(text)), network)
    return with_network(parse_hardware(text), network)


def read_profile(path: Path) -> HardwareProfile:
    """The profile that ``zerocfg probe -o`` wrote. Raises ValueError with one line."""
    try:
        content = disk.whole(path, FILE_BYTES)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise ValueError(f"{path}: cannot be read: {reason}") from None
    try:
        return HardwareProfile.model_validate_json(content)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise ValueError(f"{path}: {place + ': ' if place else ''}{first['msg']}") from None


def write_text(profile: HardwareProfile) -> str:
    """The profile as JSON text, keys in the order of the model, unknown values left out."""
    return profile.model_dump_json(indent=2, exclude_none=True) + "\n"
