"""Training arguments as rules read them: what is written, converted as its reader converts it, and for whom."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

from zerocfg.catalog.schema import Key, load_schema
from zerocfg.rules.api import Fix, Location
from zerocfg.rules.effects import anchor, edited, effective, recipe_data
from zerocfg.run.arguments import FALSE_WORDS, TRUE_WORDS
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.neighbours import has_defaults
from zerocfg.source.edit import delete_entry, insert_entry, replace_value

_LARGEST = 10**15
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
"""A sound recipe that examples start from."""

_FOREIGN = frozenset(
    "base_model micro_batch_size sequence_len num_epochs tuner_type train_type split_dataset_ratio rlhf_type "
    "max_train_steps lr_warmup_steps checkpointing_steps actor_rollout_ref tensor_model_parallel_size".split()
)
"""Keys of programs (axolotl, ms-swift, diffusers, verl, Megatron) that give the names of TrainingArguments a meaning or
a default of their own."""

_METHODS = {
    "sft": "SFTConfig",
    "dpo": "DPOConfig",
    "kto": "KTOConfig",
    "grpo": "GRPOConfig",
    "rloo": "RLOOConfig",
    "reward": "RewardConfig",
    "distillation": "DistillationConfig",
}
_SCRIPT = re.compile(rf"(?:^|[/_-])({'|'.join(_METHODS)})(?:[_-]\w+)?(?:\.py)?\Z")


def reader(run: Run) -> Literal["transformers", "trl"] | None:
    """Whose arguments the run has: TrainingArguments, one of TRL's configs, or nobody's that is known."""
    keys = set(recipe_data(run))
    if keys & _FOREIGN:
        return None
    if run.consumer == "trl":
        return "trl"
    if run.consumer not in (None, "transformers") or not (keys or run.consumer):
        return None
    own = run.recipe_reader != "hf" and any(_trainers_with(str(name)) for name in keys)
    return "trl" if own else "transformers"


def key_of(run: Run, name: str) -> Key | None:
    """What the catalog knows of an argument."""
    return load_schema("trl" if reader(run) == "trl" else "training-arguments").root.names.get(name)


@lru_cache(maxsize=1024)
def _trainers_with(name: str) -> frozenset[str]:
    """TRL's trainer configs that have an argument of their own by this name."""
    key = load_schema("trl").root.names.get(name)
    return frozenset(key.facts.get("in", ()) if key is not None else ()) & frozenset(_METHODS.values())


def methods(run: Run) -> frozenset[str]:
    """The TRL configs that this recipe can be for, by its keys and the name of the script; empty when unknown."""
    if reader(run) != "trl":
        return frozenset()
    found = frozenset(_METHODS.values())
    for name in (*recipe_data(run), *run.arguments):
        found &= _trainers_with(str(name)) or found
    script = run.launch.script.value if run.launch is not None and run.launch.script is not None else None
    match = _SCRIPT.search(script) if script else None
    if match and _METHODS[match[1]] in found:
        return frozenset((_METHODS[match[1]],))
    return found


def given(run: Run, name: str) -> Setting | None:
    """What is written for an argument: the command line before the recipe; None where neither says anything."""
    data = recipe_data(run)
    flag = run.arguments.get(name)
    found = None
    if name in data:
        converted = _converted(run, name, data[name], command_line=False)
        found = Setting(converted, Origin("file", file=run.recipe, path=(name,)))
    if flag is not None:
        value = _converted(run, name, flag.value, command_line=True)
        found = Setting(value, flag.origin, (found,) if found else ())
    if found is None and not has_defaults(run.consumer):
        return Setting(UNKNOWN, Origin("computed", f"{run.consumer} decides it"))
    return found


def _converted(run: Run, name: str, value: object, *, command_line: bool) -> object:
    """Text as the parser converts it: always on a command line, from a recipe only by TrlParser."""
    if not isinstance(value, str):
        return value
    key = key_of(run, name)
    kind = (key.facts.get("cli") or {}).get("type") if key is not None else None
    if kind in ("int", "float", "bool") and not (command_line or reader(run) == "trl"):
        return UNKNOWN
    try:
        if kind in ("int", "float"):
            return int(value) if kind == "int" else float(value)
    except ValueError:
        return UNKNOWN
    if kind == "bool":
        word = value.lower()
        return True if word in TRUE_WORDS else False if word in FALSE_WORDS else UNKNOWN
    return value


def value(run: Run, name: str, default: object = None) -> Any:
    """The value of an argument; ``default`` where nobody writes it."""
    found = given(run, name)
    return default if found is None else found.value


def number(run: Run, name: str, default: float | None = None) -> int | float | None:
    """The value of an argument when it is a plain number, of a size that anybody means."""
    found = value(run, name, default)
    if isinstance(found, bool) or not isinstance(found, (int, float)):
        return None
    return found if abs(found) <= _LARGEST else None


def word(run: Run, name: str, default: str | None = None) -> str | None:
    """The value of an argument when it is a text."""
    found = value(run, name, default)
    return found if isinstance(found, str) else None


def written(run: Run, *names: str, where: str = "entry") -> tuple[Location, list[Location]]:
    """The places of these arguments, the first that stands in a file first."""
    origins = [setting.origin for name in names if (setting := given(run, name)) is not None]
    location, related = anchor(run, origins, where)
    if not origins and run.recipe is not None:
        return Location(run.recipe), []
    return location, related


def set_argument(
    run: Run, name: str, text: str, why: str, *, safe: bool = False, after: str | None = None
) -> Fix | None:
    """Write an argument into the recipe, or give it another value there; not where the command line sets it."""
    if name in run.arguments:
        return None
    if name in recipe_data(run):
        return edited(replace_value, run.recipe, (name,), text, why=why, safe=safe)
    return edited(insert_entry, run.recipe, (), name, text, why=why, safe=safe, after=after)


def drop_argument(run: Run, name: str, why: str, *, safe: bool = False) -> Fix | None:
    """Delete an argument from the recipe."""
    if name in run.arguments or name not in recipe_data(run):
        return None
    return edited(delete_entry, run.recipe, (name,), why=why, safe=safe)


def under_deepspeed(run: Run) -> bool:
    return bool(effective(run, "engine") == "deepspeed")


def processes(run: Run) -> int | None:
    found = effective(run, "num_processes")
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
