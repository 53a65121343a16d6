"""What is read from the wheel of a release, without an installation, and kept as long as its reader stays the same."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tools.facts.environment import CACHE, Release

Facts = TypeVar("Facts")
"""What JSON can hold."""


def read_wheel(release: Release, reader: Path, what: str, read: Callable[[str, Path], Facts]) -> Facts:
    """What ``read`` makes of the library's name and its wheel, which is downloaded without what it needs.

    ``what``: the name of these facts in the cache; ``reader``: the program that reads them. RuntimeError with pip's
    words where there is no such wheel.
    """
    program = hashlib.sha256(reader.read_bytes()).hexdigest()[:12]
    cached = CACHE / f"{release.name}-{what}-{program}.json"
    if cached.is_file():
        known: Facts = json.loads(cached.read_text(encoding="utf-8"))
        return known
    with tempfile.TemporaryDirectory() as folder:
        words = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
        words += ["--disable-pip-version-check", "-d", folder, f"{release.library}=={release.version}"]
        done = subprocess.run(words, capture_output=True, text=True)
        wheel = next(Path(folder).glob("*.whl"), None)
        if wheel is None:
            raise RuntimeError(done.stderr.strip()[-800:])
        facts = read(release.library, wheel)
    CACHE.mkdir(parents=True, exist_ok=True)
    cached.write_text(json.dumps(facts), encoding="utf-8")
    return facts
