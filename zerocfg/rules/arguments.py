"""Training arguments as rules read them: what is written, converted as its reader converts it, and for whom."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

from zerocfg.catalog import fields
from zerocfg.catalog.admitted import admitted
from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import Key, load_schema
from zerocfg.catalog.values import FALSE_WORDS, RefusedError
from zerocfg.rules import line
from zerocfg.rules.api import Fix, Intent, Location, at
from zerocfg.rules.effects import TRAINERS, effective_value, recipe_data
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, put
from zerocfg.rules.key import recipe
from zerocfg.run.frameworks import FRAMEWORKS, has_defaults
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.stages.arguments import converted, mapping_of, parsed, recipe_untold
from zerocfg.source.edit import Edit, delete_entry, rename_key
from zerocfg.source.node import Path

_LARGEST = 10**15

_FOREIGN = frozenset(
    "base_model micro_batch_size sequence_len num_epochs tuner_type train_type split_dataset_ratio rlhf_type "
    "max_train_steps lr_warmup_steps checkpointing_steps actor_rollout_ref tensor_model_parallel_size".split()
)
"""Keys of programs (axolotl, ms-swift, diffusers, verl, Megatron) that give the names of TrainingArguments a meaning or
a default of their own."""

_CONFIGS = frozenset("SFTConfig DPOConfig KTOConfig GRPOConfig RLOOConfig RewardConfig DistillationConfig".split())
_METHODS = {name.removesuffix("Config").lower(): name for name in _CONFIGS}
_SCRIPT = rf"(?:^|[/_-])({'|'.join(_METHODS)})(?:[_-]\w+)?(?:\.py)?\Z"


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument where it is written; the same name may stand in several places. ``held``: as it stands there, on a
    launch line a text, UNKNOWN where the files do not tell."""

    name: str
    held: Any
    origin: Origin

    @property
    def on_line(self) -> bool:
        return self.origin.kind == "flag"

    def at(self, where: str = "key") -> Location:
        """Its place: the key of a file, the whole option of a launch line."""
        location = at(self.origin, "", where)
        assert location is not None
        return location


@dataclass(frozen=True, slots=True)
class Entries:
    """An argument that holds a mapping, in a recipe or as JSON in a word of the launch line."""

    argument: Argument
    held: Mapping[str, Any]

    def at(self, *path: str, where: str = "entry") -> Location:
        """The place of an entry; where a file does not tell entries apart, that of the argument."""
        origin = self.argument.origin
        if origin.span is not None or not origin.path:
            return self.argument.at(where)
        assert origin.file is not None
        return Location(origin.file, (*origin.path, *path), where)

    def edited(
        self, run: Run, edit: Callable[..., list[Edit]], path: Path, *values: str, why: str, safe: bool = False
    ) -> Fix | None:
        """A fix by an edit of `zerocfg.source.edit`, where the entries stand in the recipe."""
        if not _in_recipe(run, self.argument):
            return None
        return edited(edit, run.recipe, (self.argument.name, *path), *values, why=why, safe=safe)


def passed(run: Run) -> Mapping[str, Setting]:
    """The training arguments that are written outside the recipe: on the launch line, in a spec, in the script.

    None without a Trainer, none where a framework around it judges what is written, and none of the line where the
    script is known and has a parser of its own.
    """
    if run.consumer not in TRAINERS or run.consumer in FRAMEWORKS:
        return {}
    if run.script is None or run.script.reader is None or parsed(run):
        return run.arguments
    return {name: setting for name, setting in run.arguments.items() if setting.origin.kind != "flag"}


def guessed(run: Run) -> bool:
    """Whether nothing but the options of a launch line tells that a Trainer reads the arguments."""
    seen = run.script is not None and run.script.reader is not None
    return run.launch is not None and run.recipe is None and run.reader_evidence is None and not seen


def own_option(run: Run, name: str) -> bool:
    """Whether the script declares an option of this name by itself."""
    return run.script is not None and name in run.script.own


def arguments(run: Run) -> Iterator[Argument]:
    """Every argument that is written, wherever it stands: the recipe first."""
    for name, held in recipe_data(run).items():
        yield Argument(str(name), held, Origin("file", file=run.recipe, path=(str(name),)))
    for name, setting in passed(run).items():
        if setting.origin.file is not None:
            yield Argument(name, setting.value, setting.origin)


def argument(run: Run, name: str) -> Argument | None:
    """An argument in the place that counts, the command line before the recipe."""
    setting = passed(run).get(name)
    if setting is not None:
        return Argument(name, setting.value, setting.origin) if setting.origin.file is not None else None
    key = recipe(run, name)
    return Argument(name, key.value, key.origin) if key else None


def entries(run: Run, name: str) -> Entries | None:
    """The mapping that an argument holds; None where it is absent, something else, or not known."""
    found = argument(run, name)
    held = mapping_of(found.held) if found is not None else None
    return None if found is None or held is None else Entries(found, held)


@lru_cache(maxsize=16)
def reader(run: Run) -> Literal["transformers", "trl"] | None:
    """Whose arguments the run has: TrainingArguments, one of TRL's configs, or nobody's that is known."""
    keys = set(recipe_data(run))
    if keys & _FOREIGN or (run.script is None and not _FOREIGN.isdisjoint(run.arguments)):
        return None
    if run.consumer == "trl":
        return "trl"
    if run.consumer not in (None, "transformers") or not (keys or run.consumer):
        return None
    if run.consumer is None and not _mostly_arguments(frozenset(map(str, keys))):
        return None
    own = run.recipe_reader != "hf" and any(_trainers_with(str(name)) for name in keys)
    return "trl" if own else "transformers"


@lru_cache(maxsize=64)
def _mostly_arguments(keys: frozenset[str]) -> bool:
    """Whether a file that nobody is known to read is a recipe: at least half of its keys are arguments of the Trainer
    or of TRL. A program with a loop of its own has a few of their names, too."""
    names = load_schema("training-arguments").root.names.keys() | load_schema("trl").root.names.keys()
    return 2 * len(keys & names) >= len(keys)


def key_of(run: Run, name: str) -> Key | None:
    """What the catalog knows of an argument."""
    return load_schema("trl" if reader(run) == "trl" else "training-arguments").root.names.get(name)


@lru_cache(maxsize=1024)
def _trainers_with(name: str) -> frozenset[str]:
    """TRL's trainer configs that have an argument of their own by this name."""
    key = load_schema("trl").root.names.get(name)
    return frozenset(key.facts.get("in", ()) if key is not None else ()) & _CONFIGS


def trainer_configs() -> frozenset[str]:
    """The TRL configs that belong to a trainer; others are for the script or the model, whichever trainer it is."""
    return _CONFIGS


def methods(run: Run) -> frozenset[str]:
    """The TRL configs that this recipe can be for, by its keys and the name of the script; empty when unknown."""
    if reader(run) != "trl":
        return frozenset()
    found = _CONFIGS
    stated = {f"trl.{name}" for name in found} & parsed(run)
    if stated:
        return frozenset(name.removeprefix("trl.") for name in stated)
    for name in (*recipe_data(run), *run.arguments):
        found &= _trainers_with(str(name)) or found
    script = run.launch.script.value if run.launch is not None and run.launch.script is not None else None
    match = re.search(_SCRIPT, script) if script else None
    if match and _METHODS[match[1]] in found:
        return frozenset((_METHODS[match[1]],))
    return found


def given(run: Run, name: str) -> Setting | None:
    """What is written for an argument: the command line before the recipe; None where neither says anything, UNKNOWN
    where somebody else may."""
    key, flag = recipe(run, name), run.arguments.get(name)
    found = None
    if key:
        found = Setting(_converted(run, name, key.value, reader(run) == "trl"), key.origin)
    if flag is not None:
        words = flag.origin.kind == "flag"
        found = Setting(_converted(run, name, flag.value, words), flag.origin, (found,) if found else ())
    if found is None and not has_defaults(run.consumer):
        return Setting(UNKNOWN, Origin("computed", f"{run.consumer} decides it"))
    if found is None and recipe_untold(run):
        return Setting(UNKNOWN, Origin("computed", "the recipe may say it"))
    return found


def _converted(run: Run, name: str, value: object, words: bool) -> object:
    """A value as its reader makes it: ``words`` are converted, from a file only TrlParser takes them for such."""
    if not isinstance(value, str):
        return value
    kind = type_of(run, name)
    if kind in ("int", "float", "bool") and not words:
        return UNKNOWN
    try:
        return converted(kind, value)
    except RefusedError:
        return UNKNOWN


def type_of(run: Run, name: str) -> str | None:
    """The type that a word of the command line is converted to; None for an unknown argument, and where the admitted
    releases convert it to different ones."""
    key = key_of(run, name)
    if key is None:
        return None
    today = (key.facts.get("cli") or {}).get("type")
    among = admitted("transformers", run.versions.get("transformers"))
    if among is None:
        return today
    now = fields.kind(name, histories("transformers").releases[-1])
    then = {kind for one in among.releases if (kind := fields.kind(name, one)) is not None}
    return today if not then or then == {now} else then.pop() if len(then) == 1 else None


def value(run: Run, name: str, default: object = None) -> Any:
    """The value of an argument; ``default`` where nobody writes it."""
    found = given(run, name)
    return default if found is None else found.value


def may_be_on(run: Run, name: str) -> bool:
    """Whether an argument of any script is or may be switched on; False where nobody writes it."""
    found = value(run, name)
    if isinstance(found, str):
        return found.lower() not in (*FALSE_WORDS, "none", "")
    return found is UNKNOWN or bool(found)


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
    location, related = primary_location(run, origins, where)
    if not origins and run.recipe is not None:
        return Location(run.recipe), []
    return location, related


def set_argument(
    run: Run, name: str, text: str, why: str, *, safe: bool = False, after: str | None = None
) -> Fix | None:
    """Write an argument into the recipe, or give it another value where it stands and counts."""
    if name not in run.arguments:
        return put(run.recipe, (name,), text, why=why, safe=safe, after=after)
    held = argument(run, name)
    return _reworded(run, held, text, why, safe) if held is not None else None


def drop_argument(run: Run, name: str, why: str, *, safe: bool = False) -> Fix | None:
    """Take an argument out of the place that counts."""
    held = argument(run, name)
    return dropped(run, held, why, safe=safe) if held is not None else None


def dropped(run: Run, held: Argument, why: str, *, safe: bool = False) -> Fix | None:
    """Take an argument out of the recipe or off the launch line."""
    if held.on_line:
        return line.option_at(run, held.origin).delete(why, safe=safe)
    return edited(delete_entry, run.recipe, (held.name,), why=why, safe=safe) if _in_recipe(run, held) else None


def renamed(run: Run, held: Argument, new: str, why: str, *, safe: bool = True) -> Fix | None:
    """Give an argument another name in the recipe or on the launch line."""
    if held.on_line:
        option = line.option_at(run, held.origin)
        words = option.reworded(f"--{new}{(option.words or '').removeprefix(option.name)}")
        return line.line_fix(run, why, words, safe=safe, gives=_says(run, new, held.held))
    return edited(rename_key, run.recipe, (held.name,), new, why=why, safe=safe) if _in_recipe(run, held) else None


def _in_recipe(run: Run, held: Argument) -> bool:
    return held.origin.file is run.recipe and bool(held.origin.path)


def _reworded(run: Run, held: Argument, text: str, why: str, safe: bool) -> Fix | None:
    """Another plain word as the value of an option."""
    text = text[1:-1] if text[:1] == text[-1:] == '"' else text
    if not held.on_line or not all(one.isalnum() or one in "._-+/" for one in text):
        return None
    value = line.option_at(run, held.origin).with_value(text)
    return line.line_fix(run, why, value, safe=safe, gives=_says(run, held.name, text))


def _says(run: Run, name: str, held: object) -> tuple[Intent, ...]:
    """What a word of the launch line means to set, where it tells a value."""
    value = _converted(run, name, held, words=True) if held is not UNKNOWN else UNKNOWN
    return () if value is UNKNOWN or value is None else (Intent(name, value, "argument"),)


def under_deepspeed(run: Run) -> bool:
    return bool(effective_value(run, "engine") == "deepspeed")


def processes(run: Run) -> int | None:
    found = effective_value(run, "num_processes")
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
