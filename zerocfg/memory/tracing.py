"""Activations of a micro batch, from a run of the real model class on tensors without content.

``python -m zerocfg.tracer`` does the run in a process of its own: no GPU, no weights, no data. A model of equal layers
is run at two small depths and continued to its own depth; every step of that is checked, and where a check fails all
layers are run.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, cast

from zerocfg.memory.options import Precision, Workload
from zerocfg.memory.terms import Moment, Segment, Timeline

ERROR = 0.03
"""Against ``torch.cuda.max_memory_allocated``: a judgement, not a measurement, until there is a run on a card. It
stands for what a trace on CPU tensors does not see: workspaces inside kernels other than flash attention's, and blocks
of the allocator that are up to 1 MiB larger than asked for. Bytes of the tensors themselves are exact."""
ERROR_ROUTED = 0.1
"""With experts, a judgement as well: the trace routes tokens evenly, real routers do not."""
FORMAT = 1
_TRACER = Path(__file__).parents[1] / "tracer"
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

Stretch = Sequence[Any]
"""(moment, block or -1, bytes, trainable elements whose gradients end it), as ``zerocfg.tracer.record`` writes it."""


class TraceError(Exception):
    """Why there is no trace, in one line."""


@dataclass(frozen=True, slots=True)
class Adapters:
    """Low-rank adapters on a frozen model, as PEFT puts them on the linear layers whose last name is in ``targets``.

    ``all-linear`` among them stands for every linear layer but the output head. ``precision`` is that of their weights:
    PEFT makes them fp32 (``autocast_adapter_dtype``); DeepSpeed casts them to the dtype of the computation.
    """

    rank: int
    targets: tuple[str, ...] = ("all-linear",)
    dropout: float = 0.0
    precision: Precision = "bf16"


@dataclass(frozen=True, slots=True)
class Traced:
    """A timeline, and what the model turned out to be. Counts are elements; ``buffers`` is bytes."""

    timeline: Timeline
    parameters: int
    trainable: int
    tensors: tuple[tuple[int, int], ...]
    """(elements, how many in a row), in the order of ``model.parameters()``."""
    largest_module: int
    largest_block: int
    tied: bool
    buffers: int
    hidden: int | None
    layers: int | None
    vocabulary: int | None
    model_class: str
    versions: Mapping[str, str]


def trace(
    config: Mapping[str, Any],
    workload: Workload,
    precision: Precision,
    *,
    lora: Adapters | None = None,
    python: str = sys.executable,
    use_reentrant: bool = False,
    keeps_outputs: bool = False,
    full: bool = False,
    cache: bool = True,
    timeout: float = 300.0,
) -> Traced:
    """Runs ``config`` (the content of a config.json) with ``workload`` in ``python``, an interpreter with torch.

    ``use_reentrant`` is that of ``gradient_checkpointing_kwargs``. ``keeps_outputs``: a loop of one's own that keeps
    the outputs, and so the logits, until after backward (the Trainer does not). ``full`` runs all layers in any case;
    ``timeout`` is in seconds. Raises TraceError.
    """
    (found,) = trace_all(
        config,
        [workload],
        precision,
        lora=lora,
        python=python,
        use_reentrant=use_reentrant,
        keeps_outputs=keeps_outputs,
        full=full,
        cache=cache,
        timeout=timeout,
    )
    if isinstance(found, TraceError):
        raise found
    return found


def trace_all(
    config: Mapping[str, Any],
    workloads: Sequence[Workload],
    precision: Precision,
    *,
    lora: Adapters | None = None,
    python: str = sys.executable,
    use_reentrant: bool = False,
    keeps_outputs: bool = False,
    full: bool = False,
    cache: bool = True,
    timeout: float = 300.0,
) -> list[Traced | TraceError]:
    """``trace`` of several workloads, one result each, in one process: the import of torch takes seconds.

    ``timeout`` is for each of them. A process that fails is the error of all that it was asked for.
    """
    adapters = lora and {"targets": lora.targets, "rank": lora.rank, "dropout": lora.dropout, "dtype": lora.precision}
    requests = [
        {
            "config": dict(config),
            "dtype": "fp32" if workload.autocast else precision,
            "attention": workload.attention,
            "batch": {
                "micro_batch": workload.micro_batch,
                "sequence_length": workload.sequence_length,
                "gradient_checkpointing": workload.gradient_checkpointing,
                "use_reentrant": use_reentrant,
                "keeps_outputs": keeps_outputs,
                "fused_loss": workload.fused_loss,
                "autocast": precision if workload.autocast and precision != "fp32" else None,
            },
            "adapters": adapters,
            "full": full,
        }
        for workload in workloads
    ]
    answers = _ask(requests, python, timeout, cache)
    uneven = [n for n, found in enumerate(answers) if not isinstance(found, TraceError) and not _is_uniform(found)]
    again = _ask([{**requests[n], "full": True} for n in uneven], python, timeout, cache)
    for n, found in zip(uneven, again, strict=True):
        answers[n] = found
    return [
        found if isinstance(found, TraceError) else _traced(config, workload, found)
        for workload, found in zip(workloads, answers, strict=True)
    ]


def _traced(config: Mapping[str, Any], workload: Workload, found: Mapping[str, Any]) -> Traced:
    segments = _segments(continued(found))
    facts = found["facts"]
    experts = any("expert" in key for key in _keys(config))
    return Traced(
        timeline=Timeline(
            segments=segments,
            elements=facts["trainable"],
            origin=_origin(found, workload),
            error=ERROR_ROUTED if experts else ERROR,
            logits=_logits(segments, found["logits"]),
        ),
        parameters=facts["parameters"],
        trainable=facts["trainable"],
        tensors=tuple((size, count) for size, count in facts["tensors"]),
        largest_module=facts["largest_module"],
        largest_block=facts["largest_block"],
        tied=facts["tied"],
        buffers=facts["buffers"],
        hidden=facts["hidden"],
        layers=facts["layers"],
        vocabulary=facts["vocabulary"],
        model_class=facts["class"],
        versions=found["versions"],
    )


def _origin(found: Mapping[str, Any], workload: Workload) -> str:
    versions, depths = found["versions"], found["depths"]
    how = f"traced at {depths[0]} and {depths[1]} of {found['layers']} layers" if len(depths) > 1 else "traced"
    attention = found["attention"]
    if attention != workload.attention:
        attention = f"{attention} (the class has no {workload.attention})"
    if attention == "flash_attention_2":
        attention = "flash_attention_2 by way of PyTorch's own, which saves the same tensors"
    return (
        f"{how}: {found['facts']['class']} of transformers {versions['transformers']}, torch {versions['torch']}, "
        f"attention {attention}"
    )


def _logits(segments: tuple[Segment, ...], size: int) -> int | None:
    worst = max(segments, key=lambda one: one.size, default=None)
    return size if worst and worst.moment in ("loss", "head backward") else 0


def _segments(run: Iterable[Stretch]) -> tuple[Segment, ...]:
    produced, segments = 0, []
    for moment, _, size, elements in run:
        segments.append(Segment(cast(Moment, moment), size, produced))
        produced += elements
    return tuple(segments)


# -- from two depths to the real one ----------------------------------------------------------------------------------


class NotUniformError(Exception):
    """The two runs do not follow from one another."""


@dataclass(frozen=True, slots=True)
class _Piece:
    """Neighbouring stretches of one block (-1: of none)."""

    moment: str
    block: int
    stretches: list[Stretch]


def continued(found: Mapping[str, Any]) -> list[Stretch]:
    """All stretches of the model at its real depth, from an answer of the tracer.

    An answer with two runs is continued. Its blocks, from the bottom: those of the lower run but its topmost period and
    what is no full period, which must be the same in both; one period that is repeated; and the topmost ones. From one
    depth to the next every stretch of a block must grow by the same number of bytes. Raises NotUniformError.
    """
    runs = found["runs"]
    if len(runs) == 1:
        return list(runs[0])
    prefix, period = found["prefix"], found["period"]
    steps = (found["layers"] - found["depths"][1]) // period
    small, large = _pieces(runs[0]), _pieces(runs[1])
    in_small = {(piece.moment, piece.block): piece for piece in small if piece.block >= 0}
    loose = [piece for piece in small if piece.block < 0]
    growth: set[int] = set()
    middle: dict[str, list[_Piece]] = {}
    result: list[_Piece | str] = []  # a moment stands for the blocks that are repeated in it
    for piece in large:
        if piece.block < 0:
            result.append(_grown(piece, loose.pop(0) if loose else None, steps, -1, set()))
        elif piece.block < prefix + period:
            if in_small.pop((piece.moment, piece.block), None) != piece:
                raise NotUniformError
            result.append(piece)
        elif piece.block < prefix + 2 * period:
            if piece.moment not in middle:
                result.append(piece.moment)
            middle.setdefault(piece.moment, []).append(piece)
        else:
            before = in_small.pop((piece.moment, piece.block - period), None)
            result.append(_grown(piece, before, steps, piece.block + steps * period, growth))
    if in_small or loose or len(growth) != 1:
        raise NotUniformError
    (more,) = growth
    whole: list[Stretch] = []
    for entry in result:
        if isinstance(entry, _Piece):
            whole += entry.stretches
            continue
        ascending = entry == "forward"
        for step in range(steps + 1) if ascending else range(steps, -1, -1):
            for piece in middle[entry]:
                block = piece.block + step * period
                whole += [(entry, block, size + step * more, elements) for _, _, size, elements in piece.stretches]
    return whole


def _is_uniform(found: Mapping[str, Any]) -> bool:
    try:
        continued(found)
    except NotUniformError:
        return False
    return True


def _pieces(run: Iterable[Stretch]) -> list[_Piece]:
    pieces: list[_Piece] = []
    seen = set()
    for stretch in run:
        moment, block = stretch[0], stretch[1]
        if not pieces or (pieces[-1].moment, pieces[-1].block) != (moment, block):
            if block >= 0 and (moment, block) in seen:
                raise NotUniformError
            seen.add((moment, block))
            pieces.append(_Piece(moment, block, []))
        pieces[-1].stretches.append(stretch)
    return pieces


def _grown(piece: _Piece, before: _Piece | None, steps: int, block: int, growth: set[int]) -> _Piece:
    """``piece`` after ``steps`` more periods; ``growth`` collects by how much its stretches grow in one."""
    if before is None or before.moment != piece.moment or len(before.stretches) != len(piece.stretches):
        raise NotUniformError
    grown: list[Stretch] = []
    for (moment, _, size, elements), (_, _, earlier, same) in zip(piece.stretches, before.stretches, strict=True):
        more = size - earlier
        if elements != same:
            raise NotUniformError
        growth.add(more)
        grown.append((moment, block, size + steps * more, elements))
    return _Piece(piece.moment, block, grown)


# -- the process and its cache ----------------------------------------------------------------------------------------


def _ask(
    requests: Sequence[Mapping[str, Any]], python: str, timeout: float, cache: bool
) -> list[dict[str, Any] | TraceError]:
    """One answer to each request; one process answers what the cache does not."""
    try:
        texts = [json.dumps(request, sort_keys=True) for request in requests]
    except (TypeError, ValueError) as error:
        return [TraceError(f"the model's config is no JSON: {error}") for _ in requests]
    places = {text: _place(text, python) if cache else None for text in texts}
    found: dict[str, dict[str, Any] | TraceError] = {}
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


def _run(texts: Sequence[str], python: str, timeout: float) -> list[dict[str, Any] | TraceError]:
    if not texts:
        return []
    try:
        answers = json.loads(_ran(f"[{','.join(texts)}]", python, timeout * len(texts)))
    except TraceError as error:
        return [error for _ in texts]
    if len(answers) != len(texts):
        answers = [None for _ in texts]
    return [_checked(answer) for answer in answers]


def _checked(answer: object) -> dict[str, Any] | TraceError:
    if isinstance(answer, dict) and "error" in answer:
        return TraceError(str(answer["error"]))
    if not _is_answer(answer):
        return TraceError("the tracer's answer is not one that this zerocfg understands")
    return cast(dict[str, Any], answer)


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


def _is_answer(answer: object) -> bool:
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


def _kept(place: Path) -> dict[str, Any] | None:
    try:
        answer = json.loads(place.read_bytes())
    except (OSError, ValueError):
        return None
    return answer if _is_answer(answer) else None


def _keep(place: Path, answer: Mapping[str, Any]) -> None:
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


def _keys(config: Any) -> Iterator[str]:
    if isinstance(config, Mapping):
        for key, value in config.items():
            yield str(key)
            yield from _keys(value)
