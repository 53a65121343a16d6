"""The recipes of a repository: arguments of the Trainer or of one of TRL, wherever they are stated together."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zerocfg.catalog.history import histories
from zerocfg.rules.api import Location
from zerocfg.rules.argument_reader import methods, reader
from zerocfg.rules.arguments import arguments, own_option
from zerocfg.rules.place import file_span
from zerocfg.run.model import UNKNOWN, Call, Run
from zerocfg.run.script.arguments import is_arguments
from zerocfg.source.load import load_as
from zerocfg.source.text import Place, SourceText

OF_THE_MACHINE = frozenset(
    "bf16 fp16 tf32 bf16_full_eval fp16_full_eval deepspeed fsdp fsdp_config torch_compile torch_compile_backend "
    "torch_compile_mode use_ipex torchdynamo jit_mode_eval accelerator_config parallelism_config use_mps_device "
    "tpu_num_cores local_rank ddp_backend push_to_hub output_dir logging_dir run_name use_cpu no_cuda "
    "half_precision_backend fp16_backend fp16_opt_level use_liger_kernel use_liger hub_token push_to_hub_token".split()
)
"""Arguments whose values this machine refuses or fills, or that name files; their names are looked at all the same."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """Arguments that are stated together. ``kind``: file, line or call; ``place``: the file and which one there;
    ``at``: where a call begins, None of the others."""

    kind: str
    place: tuple[str, int]
    at: tuple[str, Place] | None
    library: str
    config: str
    names: tuple[str, ...]
    values: Mapping[str, Any]
    places: Mapping[str, tuple[str, Place]]

    def asked(self) -> dict[str, Any]:
        words = self.kind == "line"
        return {"config": self.config, "names": list(self.names), "values": dict(self.values), "words": words}


def recipes(runs: Iterable[Run]) -> Iterator[tuple[Recipe, Run]]:
    """Each once, however many runs read it, with one of these."""
    seen: set[tuple[str, object]] = set()
    counted: Counter[str] = Counter()
    for run in runs:
        for kind, path, mark, library, config, stated in _stated(run):
            own = {name: held for name, held in stated.items() if not own_option(run, name)}
            if (path, mark) in seen or len(_names(own, library, config)) < 2:
                continue
            seen.add((path, mark))
            counted[f"{kind} {path}"] += 1
            at = _where(mark) if isinstance(mark, Location) else None
            yield _recipe(kind, (path, counted[f"{kind} {path}"]), at, library, config, own), run


def rewritten(recipe: Recipe, run: Run, text: str) -> Recipe:
    """A recipe in a file of its own, of which another text says now what it holds. It may have too few arguments left
    to be taken for one where nothing tells who reads it."""
    path = Path(recipe.place[0])
    data = load_as(SourceText(path.name, text), "json" if path.suffix == ".json" else "yaml").data()
    assert isinstance(data, dict)
    own = {str(name): value for name, value in data.items() if not own_option(run, str(name))}
    stated = {name: _Held(value if _plain(value) else UNKNOWN, _NOWHERE) for name, value in own.items()}
    return _recipe(recipe.kind, recipe.place, None, recipe.library, recipe.config, stated)


def _recipe(
    kind: str,
    place: tuple[str, int],
    at: tuple[str, Place] | None,
    library: str,
    config: str,
    stated: Mapping[str, _Held],
) -> Recipe:
    names = _names(stated, library, config)
    known = {name: stated[name].value for name in names if stated[name].value is not UNKNOWN}
    told = {name: value for name, value in known.items() if name not in OF_THE_MACHINE}
    return Recipe(kind, place, at, library, config, names, told, {name: stated[name].place for name in names})


def _names(stated: Mapping[str, _Held], library: str, config: str) -> tuple[str, ...]:
    return tuple(name for name in stated if _ever(name, library, config))


@dataclass(frozen=True, slots=True)
class _Held:
    value: Any
    place: tuple[str, Place]


_NOWHERE = ("", Place(0, 0))


def _held(value: Any, at: Location) -> _Held:
    return _Held(value if _plain(value) else UNKNOWN, _where(at))


def _where(at: Location) -> tuple[str, Place]:
    here = file_span(at)
    return here.file.name, here.start


def _stated(run: Run) -> Iterator[tuple[str, str, object, str, str, dict[str, _Held]]]:
    library = reader(run)
    if library is not None:
        config = _config_of(run) if library == "trl" else "TrainingArguments"
        written = list(arguments(run))
        in_file = {held.name: _held(held.held, held.at()) for held in written if held.origin.path}
        if in_file and run.recipe is not None and run.recipe.path is not None:
            yield "file", str(run.recipe.path), "", library, config, in_file
        on_line = {held.name: _held(_word(held.held), held.at()) for held in written if held.on_line}
        if on_line and run.launch is not None and run.launch_file is not None and run.launch_file.path is not None:
            yield "line", str(run.launch_file.path), run.launch.span, library, config, on_line
    for call in run.script.calls if run.script is not None else ():
        if is_arguments(call.name) and not call.derived and call.file.path is not None:
            of, _, config = call.name.rpartition(".")
            if config in ("TrainingArguments", "Seq2SeqTrainingArguments") or of == "trl":
                yield "call", str(call.file.path), Location(call.file, span=call.span), of, config, _of_call(call)


def _of_call(call: Call) -> dict[str, _Held]:
    return {
        name: _held(setting.value, Location(call.file, span=setting.origin.span))
        for name, setting in call.arguments.items()
    }


def _plain(value: object) -> bool:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return False
    return True


def _word(value: object) -> object:
    """A word of a line; a switch by itself is on."""
    return True if value is None else value


def _ever(name: str, library: str, config: str) -> bool:
    own = (config, "ScriptArguments", "ModelConfig") if library == "trl" else ()
    return name in histories("transformers").raw or any(f"{one}.{name}" in histories("trl").raw for one in own)


def _config_of(run: Run) -> str:
    """The config that a recipe is for: told by its keys and its script, else by the names of its folders."""
    told = methods(run)
    if len(told) == 1:
        return next(iter(told))
    file = run.recipe or run.launch_file
    words = file.name.lower() if file is not None else ""
    found = [(words.rfind(method), method) for method in ("grpo", "kto", "dpo", "sft", "reward") if method in words]
    method = max(found)[1] if found else "sft"
    return "RewardConfig" if method == "reward" else f"{method.upper()}Config"
