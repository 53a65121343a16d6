"""TrainingArguments of a run: defaults, recipe, command line, each converted as its reader converts it.

TrainingArguments 5.23.0; readers: HfArgumentParser (command line: argparse types; files: values as they are) and
TrlParser (file values become argparse defaults, so texts are converted and other values are not).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from zerocfg.catalog import fields
from zerocfg.catalog.admitted import Admitted, admitted
from zerocfg.catalog.history import histories
from zerocfg.catalog.lost_names import lost_since
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import RefusedError, argument
from zerocfg.catalog.versions import OLDEST, only_from, text
from zerocfg.frontends.registry import front_end, has_defaults
from zerocfg.record import field, record, replace
from zerocfg.run.config import VERSIONS, default_of, describe, words
from zerocfg.run.model import UNKNOWN, Failure, Origin, Run, Setting, SourceFile

DECISIVE = words(
    "per_device_train_batch_size gradient_accumulation_steps max_grad_norm learning_rate weight_decay adam_beta1 "
    "adam_beta2 adam_epsilon warmup_steps max_steps num_train_epochs bf16 fp16 bf16_full_eval fp16_full_eval "
    "save_on_each_node auto_find_batch_size save_only_model load_best_model_at_end use_cpu optim lr_scheduler_type "
    "save_strategy eval_strategy deepspeed fsdp"
)
"""Fields that decide effective settings."""

_KINDS = {"int": "integer", "float": "number", "bool": "boolean"}
_TODAY = default_of("transformers")
_TOO_OLD = Origin("default", f"transformers {OLDEST['transformers']}, the oldest known")
_TOO_OLD_TRL = Origin("default", f"trl {OLDEST['trl']}, the oldest known")
TRAINER_WORDS = frozenset(DECISIVE) - {"deepspeed", "fp16", "bf16"} | {
    "output_dir",
    "per_device_eval_batch_size",
    "logging_steps",
    "save_steps",
}
"""Options that show that the script reads its training arguments from the command line. Scripts that set them in their
code have options of their own, and some called like these three."""


@record(slots=True)
class Arguments:
    """``values`` by field name. ``complete`` False: the script may set anything in its code, so nothing is known.
    ``apex`` gives what the Trainer fills `amp.enabled` and `amp.opt_level` with, None where it leaves them alone; few
    configs have these keys, and which releases fill them is read for those alone."""

    values: dict[str, Setting]
    complete: bool
    failures: list[Failure] = field(default_factory=list)
    apex: Callable[[], tuple[Setting, Setting] | None] = lambda: None

    def get(self, name: str) -> Any:
        return self.values[name].value

    def setting(self, name: str) -> Setting:
        return self.values[name]


def arguments_of(run: Run) -> Arguments:
    """The training arguments of a run whose consumer is a Trainer.

    Without a recipe and without a Trainer option on the command line the script sets them in its code: then every
    value is UNKNOWN.
    """
    written = {name.lstrip("-").replace("-", "_"): setting for name, setting in run.arguments.items()}
    recipe = run.recipe.data() if run.recipe else None
    recipe = recipe if isinstance(recipe, dict) else {}
    complete = bool(recipe) or any(name in TRAINER_WORDS for name in written)
    if run.arguments_whole is not None:
        complete = run.arguments_whole
    if recipe_untold(run) or options_untold(run) or _of_another_parser(run, recipe):
        complete = False
    complete = complete and has_defaults(run.consumer)
    found = Arguments({}, complete)
    slips = _slips(run, written, recipe)
    # Where nothing is said, no release's types and defaults count: their history stays unread.
    declared = run.declared("transformers") if complete or written or recipe else None
    if declared is None and (lost := run.outdated.get("transformers")) is not None:
        declared = f"<{lost_since(lost.module, lost.name)}"
    for name, (kind, below) in _fields(declared).items():
        setting = _default(run, name, below) if complete else Setting(UNKNOWN, Origin("computed", "set in the script"))
        if name in slips:
            setting = Setting(UNKNOWN, Origin("computed", f"`{slips[name]}` may be meant for it"))
        if name in recipe:
            setting = _from_recipe(found, run, name, kind, recipe[name], setting)
        if name in written:
            setting = _from_command_line(found, name, kind, written[name], setting)
        found.values[name] = setting
    if complete and found.get("fp16") is True and "bf16" not in {*recipe, *written} and not _class_known(run):
        found.values["bf16"] = Setting(False, Origin("default", "fp16 is on"))
    _share_of_steps(run, found, written, recipe)
    found.apex = lambda: _apex(run, complete, {*written, *recipe})
    if run.consumer == "trl" and complete and found.get("bf16") is None:
        half = found.get("fp16")
        value = UNKNOWN if half is UNKNOWN else not half
        found.values["bf16"] = Setting(value, Origin("default", "TRL turns bf16 on unless fp16 is"))
    return found


def _of_another_parser(run: Run, recipe: Mapping[str, Any]) -> bool:
    """Whether a recipe of no known parser has mostly keys that are no arguments: a program of its own fills the
    training arguments from them, by other names as well."""
    if not recipe or run.script is not None or run.recipe_reader is not None or front_end(run.consumer) is not None:
        return False
    known = load_schema("training-arguments").root.names
    return 2 * sum(name in known for name in recipe) < len(recipe)


def recipe_untold(run: Run) -> bool:
    """Whether the launch line names a recipe, as its first word or behind `--config`, that nobody can look into: it
    stands in a variable, or is no file here, and may hold any argument."""
    line, named = run.launch, run.arguments.get("config")
    if run.recipe is not None or run.framework_recipe is not None or line is None:
        return False
    words = [line.arguments[0].value] if line.arguments else []
    words += [None if named.value is UNKNOWN else str(named.value)] if named is not None else []
    return any(word is None or word.endswith((".yaml", ".yml", ".json")) for word in words)


def options_untold(run: Run) -> bool:
    """Whether a word behind the script may hold any options: one that a page leaves out, or a variable outside quotes,
    but for the arguments of the launch script itself (`$@`), which most calls leave empty."""
    line = run.launch
    if line is None or all(word.value is not None for word in line.arguments):
        return False
    values = {option.value.span for option in line.script_options if option.value is not None}
    return any(
        word.value is None and word.span not in values and not word.text.startswith(('"', "'", "$@", "$*"))
        for word in line.arguments
    )


def parsed(run: Run) -> frozenset[str]:
    """The dataclasses of a library that the script's parser fills from the command line; empty where unknown."""
    known = run.script.parsed if run.script is not None else frozenset()
    return frozenset(name for name in known if name.startswith(("transformers.", "trl.")))


def _slips(run: Run, written: Mapping[str, Setting], recipe: Mapping[str, Any]) -> dict[str, str]:
    """Fields that an unknown name is probably meant for, by a slip or as an abbreviation, which argparse takes."""
    own = run.script.options if run.script is not None else None
    known = load_schema("training-arguments").root.names
    found: dict[str, str] = {}
    for name in (*written, *map(str, recipe)):
        if len(name) < 5 or name in known or (own is not None and name in own):
            continue
        for field_name in DECISIVE:
            if _nearly(name.replace("-", "_"), field_name) or (name in written and field_name.startswith(name)):
                found[field_name] = name
    return found


def _nearly(name: str, wanted: str) -> bool:
    """Whether two long names differ in one place alone, by two letters at most."""
    if len(wanted) < 9 or abs(len(name) - len(wanted)) > 2:
        return False
    shorter = min(len(name), len(wanted))
    start = next((at for at in range(shorter) if name[at] != wanted[at]), shorter)
    end = next((at for at in range(shorter - start) if name[-1 - at] != wanted[-1 - at]), shorter - start)
    return max(len(name), len(wanted)) - start - end <= 2


@cache
def _fields(declared: str | None) -> dict[str, tuple[str, Setting]]:
    """Of each decisive field: the type that argparse converts to, and its default, in the releases of transformers
    that a declaration admits; today's where it says nothing that is known. UNKNOWN where they differ."""
    keys = load_schema("training-arguments").root.keys
    now = {name: (keys[name].facts["cli"]["type"], Setting(keys[name].default, _TODAY)) for name in DECISIVE}
    among = None if only_from(declared, VERSIONS["transformers"]) else admitted("transformers", declared)
    if among is None:
        return now
    origin = Origin("default", f"transformers {text(among.newest)}") if among.releases else _TOO_OLD
    if not among.releases:  # what never changed since was not another before: read in 4.26.1, 4.30.2 and 4.35.2
        among = replace(among, releases=tuple(histories("transformers").releases))
    return {name: _field(name, now[name], among, origin) for name in DECISIVE}


def _field(name: str, now: tuple[str, Setting], among: Admitted, origin: Origin) -> tuple[str, Setting]:
    """The type and the default of a field in the admitted releases that have it; ``origin``: of such a default."""
    there = [release for release in among.releases if fields.exists(name, release)]
    if not there:
        return now
    kinds = {fields.kind(name, item) for item in there}
    kind = "float" if kinds == {"int", "float"} else str(fields.kind(name, there[-1]))
    values = {fields.default(name, item) or None for item in there}  # an empty text is nothing, too
    if len(values) > 1:
        return kind, Setting(UNKNOWN, Origin("default", "the admitted releases of transformers differ"))
    return kind, Setting(fields.default(name, there[-1]), origin)


def _apex(run: Run, complete: bool, given: set[str]) -> tuple[Setting, Setting] | None:
    """What releases of transformers before 5 give a DeepSpeed config's `amp`; UNKNOWN where only some of the admitted
    ones do, or something is said about it."""
    among = admitted("transformers", run.declared("transformers"))
    fills = [fields.fills("amp.enabled", release) for release in among.releases] if among is not None else []
    known = among is None or bool(among.releases)
    if known and not any(fills):
        return None
    possible = not known or not complete
    possible = possible or not given.isdisjoint(("half_precision_backend", "fp16_backend", "fp16_opt_level"))
    if possible or not all(fills):
        unknown = Setting(UNKNOWN, Origin("computed", "half_precision_backend and fp16_opt_level"))
        return unknown, unknown
    return Setting(False, Origin("computed", "fp16 without Apex")), Setting("O1", Origin("default", "transformers"))


def _share_of_steps(run: Run, found: Arguments, written: Mapping[str, Setting], recipe: Mapping[str, Any]) -> None:
    """`warmup_ratio`, where the admitted releases have it: a share of all steps, where `warmup_steps` is 0."""
    name = "warmup_ratio"
    if name not in {*written, *recipe} or found.get("warmup_steps") != 0:
        return
    among = admitted("transformers", run.declared("transformers"))
    if among is None:
        return
    nothing = Setting(0.0, Origin("default", f"transformers {text(among.newest)}") if among.releases else _TOO_OLD)
    setting = _from_recipe(found, run, name, "float", recipe[name], nothing) if name in recipe else nothing
    if name in written:
        setting = _from_command_line(found, name, "float", written[name], setting)
    everywhere = bool(among.releases) and all(fields.exists(name, release) for release in among.releases)
    known = everywhere and isinstance(setting.value, (int, float)) and 0 <= setting.value < 1  # 1 would be one step
    found.values["warmup_steps"] = setting if known else replace(setting, value=UNKNOWN)


def _class_known(run: Run) -> bool:
    """Whether more than options of a launch line says which class holds the arguments. They show a Trainer and not
    whose, and the configs of TRL's trainers have defaults of their own."""
    if run.reader_evidence is not None or run.recipe is not None or front_end(run.consumer) is not None:
        return True
    return run.script is not None and run.script.reader is not None


def _default(run: Run, name: str, below: Setting) -> Setting:
    if name in ("bf16", "learning_rate") and run.consumer != "trl" and not _class_known(run):
        return Setting(UNKNOWN, Origin("default", "transformers and TRL differ"))
    if run.consumer == "trl":
        if name == "bf16":
            return _trl_bf16(run.declared("trl"))
        if name == "learning_rate":
            return Setting(UNKNOWN, Origin("default", "each TRL trainer has its own"))
    return below


@cache
def _trl_bf16(declared: str | None) -> Setting:
    """None where TRL's configs turn bf16 on unless fp16 is; False where they have the default of transformers."""
    among = admitted("trl", declared)
    if among is None:
        return Setting(None, default_of("trl"))
    if not among.releases:
        return Setting(UNKNOWN, _TOO_OLD_TRL)
    turned_on = {bool(fields.of_trl("bf16", release)) for release in among.releases}
    if len(turned_on) > 1:
        return Setting(UNKNOWN, Origin("default", "the admitted releases of TRL differ"))
    return Setting(None if True in turned_on else False, Origin("default", f"trl {text(among.newest)}"))


def _from_recipe(found: Arguments, run: Run, name: str, kind: str, value: Any, below: Setting) -> Setting:
    origin = Origin("file", file=run.recipe, path=(name,))
    reader = run.recipe_reader or ("trl" if run.consumer == "trl" else None)
    if reader == "trl" and isinstance(value, str):
        value = _converted(found, name, kind, value, origin)
    elif reader is None and kind in ("int", "float") and isinstance(value, str):
        value = UNKNOWN  # one reader converts it, the other does not
    elif kind in ("int", "float") and not isinstance(value, (int, float)) and value is not None:
        message = f"{name} is {describe(value)}, not a number; no reader converts it"
        found.failures.append(Failure("argument-type", "init", message, (origin,)))
        value = UNKNOWN
    elif value is None and kind in ("int", "float"):
        value = UNKNOWN
    return Setting(value, origin, _history(below))


def _from_command_line(found: Arguments, name: str, kind: str, given: Setting, below: Setting) -> Setting:
    value = given.value
    if given.origin.kind == "file":  # a literal of the script, which nothing converts
        value = UNKNOWN if kind in _KINDS and isinstance(value, str) else value
    elif value is None and kind == "bool":
        value = True
    elif isinstance(value, str):
        value = _converted(found, name, kind, value, given.origin)
    if value is None and kind in ("int", "float"):  # also an option of argparse that has no default
        value = UNKNOWN
    return Setting(value, given.origin, _history(below))


def _history(below: Setting) -> tuple[Setting, ...]:
    return () if below.origin.kind in ("default", "computed") else (below, *below.overridden)


def converted(kind: str | None, text: str) -> Any:
    """A text as argparse converts it for a field of this type; RefusedError where it stops."""
    wanted = _KINDS.get(kind or "")
    return text if wanted is None else argument(wanted, text)


def is_template(text: str) -> bool:
    """Whether a text is a placeholder for a value to be filled in: `<your batch size>`, `{lr}`."""
    return text.lstrip()[:1] in ("<", "{", "[", "%", "$")


def _converted(found: Arguments, name: str, kind: str, text: str, origin: Origin) -> Any:
    if is_template(text):
        return UNKNOWN
    try:
        return converted(kind, text)
    except RefusedError:
        wanted = "yes or no" if kind == "bool" else kind
        message = f"{name}: {text!r} is no {wanted}"
        found.failures.append(Failure("argument-type", "arguments", message, (origin,)))
        return UNKNOWN


def mapping_of(value: object) -> dict[str, Any] | None:
    """The mapping that an argument holds, from its JSON too, as TrainingArguments read it; None for all else."""
    if isinstance(value, str) and value.startswith("{"):
        import json

        try:
            value = json.loads(value)
        except ValueError:
            return None
    return {str(key): inner for key, inner in value.items()} if isinstance(value, dict) else None


def recipe_environment(run: Run) -> dict[str, Setting]:
    """The `env:` mapping of a TRL recipe, which TrlParser puts into the environment."""
    file: SourceFile | None = run.recipe
    data = file.data() if file else None
    env = data.get("env") if isinstance(data, dict) else None
    if run.consumer != "trl" or not isinstance(env, dict):
        return {}
    return {
        str(key): Setting(str(value), Origin("file", file=file, path=("env", str(key)))) for key, value in env.items()
    }
