"""The tracer in a process of its own, and the answers that are kept of it."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TypeGuard

from zerocfg.memory.activations.tracer_result import Trace

FORMAT = 1
_TRACER = Path(__file__).parents[2] / "tracer"
# Loads the package from its folder: the Python that has torch may be one without zerocfg.
_START = (
    "import importlib.util as u, runpy, sys\n"
    "sys.path[:] = [p for p in sys.path if p]\n"
    "s = u.spec_from_file_location('zerocfg_tracer', sys.argv[1] + '/__init__.py', "
    "submodule_search_locations=[sys.argv[1]])\n"
    "m = sys.modules['zerocfg_tracer'] = u.module_from_spec(s)\n"
    "s.loader.exec_module(m)\n"
    "runpy.run_module('zerocfg_tracer.__main__', run_name='__main__')\n"
)


class TraceError(Exception):
    """Why there is no trace, in one line."""


def ask(requests: Sequence[Mapping[str, object]], python: str, timeout: float, cache: bool) -> list[Trace | TraceError]:
    """One answer to each request; one process answers what the cache does not."""
    try:
        texts = [json.dumps(request, sort_keys=True) for request in requests]
    except (TypeError, ValueError) as error:
        return [TraceError(f"the model's config is no JSON: {error}") for _ in requests]
    places = {text: _place(text, python) if cache else None for text in texts}
    found: dict[str, Trace | TraceError] = {}
    for text, place in places.items():
        if place is not None and (kept := _kept(place)) is not None:
            found[text] = kept
    missing = [text for text in places if text not in found]
    for text, answer in zip(missing, _run(missing, python, timeout), strict=True):
        found[text] = answer
        place = places[text]
        if place is not None and not isinstance(answer, TraceError):
            _keep(place, answer)
    return [found[text] for text in texts]


def _run(texts: Sequence[str], python: str, timeout: float) -> list[Trace | TraceError]:
    if not texts:
        return []
    try:
        answers = json.loads(_ran(f"[{','.join(texts)}]", python, timeout * len(texts)))
    except TraceError as error:
        return [error for _ in texts]
    if len(answers) != len(texts):
        answers = [None for _ in texts]
    return [_checked(answer) for answer in answers]


def _checked(answer: object) -> Trace | TraceError:
    if isinstance(answer, dict) and "error" in answer:
        return TraceError(str(answer["error"]))
    if not _is_answer(answer):
        return TraceError("this zerocfg cannot read the tracer's answer")
    return answer


def _ran(text: str, python: str, timeout: float) -> str:
    """What the tracer writes: the JSON of a list."""
    command = [python, "-c", _START, str(_TRACER)]
    try:
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise TraceError(f"the trace took longer than {timeout:g} seconds") from None
    except OSError as error:
        raise TraceError(f"{python} cannot be started: {error.strerror or error}") from None
    try:
        answered = isinstance(json.loads(done.stdout), list)
    except ValueError:
        answered = False
    if not answered:
        killed = " (killed: out of memory?)" if done.returncode in (-9, 137) else ""
        raise TraceError(f"the tracer ended with exit code {done.returncode}{killed} and no answer")
    return done.stdout


def _is_answer(answer: object) -> TypeGuard[Trace]:
    wanted = {"facts", "layers", "prefix", "period", "depths", "runs", "logits", "versions", "format", "attention"}
    return isinstance(answer, dict) and wanted <= answer.keys() and answer["format"] == FORMAT


def _place(text: str, python: str) -> Path | None:
    """Where the answer to ``text`` is kept: under the hash of all that decides it."""
    digest = hashlib.sha256(text.encode())
    for module in sorted(_TRACER.glob("*.py")):
        digest.update(module.read_bytes())
    for part in _libraries(python):
        digest.update(part.encode())
    home = os.environ.get("XDG_CACHE_HOME")
    try:
        root = Path(home) if home else Path.home() / ".cache"
    except RuntimeError:
        return None
    return root / "zerocfg" / "traces" / f"{digest.hexdigest()}.json"


def _libraries(python: str) -> Iterator[str]:
    """The interpreter, and the installed torch and transformers, without starting it."""
    yield f"{FORMAT} {python}"
    if python == sys.executable:
        for name in ("torch", "transformers"):
            with contextlib.suppress(PackageNotFoundError):
                yield f"{name} {version(name)}"
        return
    try:
        lib = Path(python).parent.parent / "lib"
        yield from sorted(
            path.name for name in ("torch", "transformers") for path in lib.glob(f"*/site-packages/{name}-*.dist-info")
        )
    except OSError:
        return


def _kept(place: Path) -> Trace | None:
    try:
        answer = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return None
    return answer if _is_answer(answer) else None


def _keep(place: Path, answer: Trace) -> None:
    """Writes atomically; a cache that cannot be written is done without."""
    with contextlib.suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=place.parent, suffix=".tmp")
        try:
            with os.fdopen(handle, "w") as file:
                json.dump(answer, file)
            Path(name).replace(place)
        except OSError:
            Path(name).unlink(missing_ok=True)
