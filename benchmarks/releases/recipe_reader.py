"""What one release of transformers or TRL makes of recipes: reads one a line, writes what it says.

In: ``config`` (TrainingArguments or a config of TRL), ``names`` (all that are written), ``values`` (those that are
told, without what a machine may refuse) and ``words`` (whether they are words of a launch line). Out: ``refused``
(names that no class of the parser has), ``error`` (of the values under the other names, null where they are taken),
``settings`` (what the arguments are then; null where the release has no config of that name) and ``warmup`` (its steps
of 1,000).
"""

from __future__ import annotations

import contextlib
import dataclasses
import io
import json
import os
import sys
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import transformers
import yaml

transformers.logging.set_verbosity_error()
_HERE = {"output_dir": "out", "use_cpu": True}
_ELSE = {"dataset_name": "x"}
_GENERATIONS = 8
"""TRL's default. With as many processes the batch can be divided by them: where it cannot, older releases stop once the
trainer is made, and newer ones at the config."""


def classes(config: str) -> tuple[Any, ...]:
    if config == "TrainingArguments":
        return (transformers.TrainingArguments,)
    import trl

    found = getattr(trl, config, None)
    return (found, trl.ScriptArguments, trl.ModelConfig) if found is not None else ()


def said(recipe: dict[str, Any]) -> dict[str, Any]:
    kinds = classes(recipe["config"])
    if not kinds:
        return {"refused": [], "error": None, "settings": None, "warmup": None}
    fields = {one.name for kind in kinds for one in dataclasses.fields(kind) if one.init}
    refused = sorted(set(recipe["names"]) - fields)
    values = {name: value for name, value in recipe["values"].items() if name in fields}
    values = {name: value for name, value in _ELSE.items() if name in fields} | values
    values |= {name: value for name, value in _HERE.items() if name in fields}
    if "num_generations" in fields and "generation_batch_size" not in values:
        kinds[0].world_size = int(values.get("num_generations", _GENERATIONS))
    told = io.StringIO()
    try:
        with contextlib.redirect_stdout(told), contextlib.redirect_stderr(told):
            made = _made(kinds, values, recipe["words"])
    except SystemExit:
        error = (told.getvalue().strip().splitlines() or ["stops"])[-1]
        return {"refused": refused, "error": error, "settings": {}, "warmup": None}
    except Exception as error:
        return {"refused": refused, "error": f"{type(error).__name__}: {error}", "settings": {}, "warmup": None}
    arguments = made[0]
    settings = {name: value for name, value in arguments.to_dict().items() if not name.startswith("_")}
    return {"refused": refused, "error": None, "settings": settings, "warmup": arguments.get_warmup_steps(1000)}


def _made(kinds: tuple[Any, ...], values: dict[str, Any], words: bool) -> Any:
    if words:
        line = [word for name, value in values.items() for word in _words(name, value)]
        return _parser(kinds).parse_args_into_dataclasses(line, look_for_args_file=False)
    if len(kinds) == 1:
        return _parser(kinds).parse_dict(values)
    import trl

    Path("recipe.yaml").write_text(yaml.safe_dump(values, sort_keys=False), encoding="utf-8")
    return trl.TrlParser(kinds).parse_args_and_config(["--config", "recipe.yaml"])


@cache
def _parser(kinds: tuple[Any, ...]) -> Any:
    return transformers.HfArgumentParser(kinds)


def _words(name: str, value: Any) -> list[str]:
    if isinstance(value, list):
        return [f"--{name}", *map(str, value)]
    return [f"--{name}", *([] if value is None else [str(value)])]


os.chdir(tempfile.mkdtemp())
print("WITH " + transformers.__version__, flush=True)
for line in sys.stdin:
    print("SAID " + json.dumps(said(json.loads(line)), default=str), flush=True)
