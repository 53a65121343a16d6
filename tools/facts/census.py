"""The census of one release: what its walking program prints inside it, kept so that interrupted work goes on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.facts.environment import CACHE, HERE, ROOT, Release, install

Census = dict[str, Any]
_MARK = "CENSUS "


def census(release: Release, *, again: bool = False) -> Census:
    """What a release reads, from the cache where its walking program has not changed since.

    RuntimeError when the release cannot be installed, or its walk fails.
    """
    kept = CACHE / f"{release.name}-{_walk_key(release.library)}.json"
    if kept.exists() and not again:
        held: Census = json.loads(kept.read_text(encoding="utf-8"))
        return held
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=f"{release.name}-", dir=CACHE))
    try:
        install(release, folder)
        found = walk(release.library, folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if found["version"].partition("+")[0] != release.version:
        raise RuntimeError(f"{release.name}: the walk saw {found['version']}")
    whole = kept.with_suffix(".new")
    whole.write_text(json.dumps(found, sort_keys=True), encoding="utf-8")
    whole.replace(kept)
    return found


def walk(library: str, folder: Path | None = None) -> Census:
    """Runs the walking program of a library: on what lies in a folder, or on what is installed."""
    environment = {name: held for name, held in os.environ.items() if name != "PYTHONPATH"}
    if folder is not None:
        environment["PYTHONPATH"] = str(folder)
    words = [sys.executable, "-m", f"tools.facts.walk_{library}"]
    done = subprocess.run(words, capture_output=True, text=True, env=environment, timeout=600, cwd=ROOT)
    line = next((line for line in done.stdout.splitlines() if line.startswith(_MARK)), None)
    if line is None:
        raise RuntimeError((done.stderr or done.stdout).strip()[-800:])
    found: Census = json.loads(line.removeprefix(_MARK))
    return found


def _walk_key(library: str) -> str:
    content = (HERE / f"walk_{library}.py").read_bytes() + (HERE / "describe.py").read_bytes()
    return hashlib.sha256(content).hexdigest()[:12]
