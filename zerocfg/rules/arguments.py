"""Training arguments as rules read them: what is written, converted as its reader converts it, and edits of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from zerocfg.budgets import LARGEST_NUMBER
from zerocfg.catalog import fields
from zerocfg.catalog.admitted import admitted
from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import Key
from zerocfg.catalog.values import FALSE_WORDS, RefusedError
from zerocfg.frontends.registry import front_end, has_defaults
from zerocfg.record import record
from zerocfg.rules import line
from zerocfg.rules.api import Finding, Fix, Intent, Location, Severity, Subject, at
from zerocfg.rules.argument_reader import key_of, methods, reader, values_arrive
from zerocfg.rules.effects import effective_value, recipe_data, under_trainer
from zerocfg.rules.failures import primary_location
from zerocfg.rules.fixes import edited, put
from zerocfg.rules.key import recipe
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.stages.arguments import converted, mapping_of, parsed, recipe_untold
from zerocfg.source.edit import Edit, delete_entry, rename_key
from zerocfg.source.node import Path


@record(frozen=True, slots=True)
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


@record(frozen=True, slots=True)
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
    if not under_trainer(run) or front_end(run.consumer) is not None:
        return {}
    if run.script is None or run.script.reader is None or parsed(run):
        return run.arguments
    return {name: setting for name, setting in run.arguments.items() if setting.origin.kind != "flag"}


def own_option(run: Run, name: str) -> bool:
    """Whether the script declares an option of this name by itself; where it is not known, whether any of the project
    does."""
    return name in (run.script.own if run.script is not None else run.elsewhere.options)


def arguments(run: Run) -> Iterator[Argument]:
    """Every argument that is written, wherever it stands: the recipe first."""
    for name, content in recipe_data(run).items():
        yield Argument(str(name), content, Origin("file", file=run.recipe, path=(str(name),)))
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
    mapping = mapping_of(found.held) if found is not None else None
    return None if found is None or mapping is None else Entries(found, mapping)


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


def called(run: Run, name: str) -> str:
    """What an argument is called where it is written: by a front end's own key or option, for what that lowers."""
    setting = run.arguments.get(name) if front_end(run.consumer) is not None else None
    if setting is None:
        return name
    origin = setting.origin
    return str(origin.path[-1]) if origin.path else origin.note.lstrip("-") or name


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


def word_type(key: Key | None) -> str | None:
    """The type that today's release converts a word of the command line to; None for an unknown argument."""
    return (key.facts.get("cli") or {}).get("type") if key is not None else None


def type_of(run: Run, name: str) -> str | None:
    """The type that a word of the command line is converted to; None for an unknown argument, and where the admitted
    releases convert it to different ones."""
    key = key_of(run, name)
    if key is None:
        return None
    today = word_type(key)
    among = admitted("transformers", run.declared("transformers"))
    if among is None:
        return today
    now = fields.kind(name, histories("transformers").releases[-1])
    then = {kind for release in among.releases if (kind := fields.kind(name, release)) is not None}
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
    return found if abs(found) <= LARGEST_NUMBER else None


def word(run: Run, name: str, default: str | None = None) -> str | None:
    """The value of an argument when it is a text."""
    found = value(run, name, default)
    return found if isinstance(found, str) else None


@record(frozen=True, slots=True)
class ArgumentsOfRun:
    """The training arguments of a run, for rules that look at nothing else."""

    run: Run

    @property
    def reader(self) -> str | None:
        """Who parses them; None where that is not known."""
        return reader(self.run)

    @property
    def methods(self) -> frozenset[str]:
        """The configs of TRL that they can be for."""
        return methods(self.run)

    def value(self, name: str, default: object = None) -> Any:
        return value(self.run, name, default)

    def number(self, name: str, default: float | None = None) -> int | float | None:
        return number(self.run, name, default)

    def word(self, name: str, default: str | None = None) -> str | None:
        return word(self.run, name, default)

    def called(self, name: str) -> str:
        return called(self.run, name)

    def given(self, name: str) -> Setting | None:
        return given(self.run, name)

    def argument(self, name: str) -> Argument | None:
        return argument(self.run, name)

    def entries(self, name: str) -> Entries | None:
        return entries(self.run, name)

    def written(self, *names: str, where: str = "entry") -> Written:
        return written(self.run, *names, where=where)

    def set(self, name: str, text: str, why: str, *, safe: bool = False, after: str | None = None) -> Fix | None:
        return set_argument(self.run, name, text, why, safe=safe, after=after)

    def drop(self, name: str, why: str, *, safe: bool = False) -> Fix | None:
        return drop_argument(self.run, name, why, safe=safe)


def _where(holds: Callable[[Run], bool]) -> Subject[ArgumentsOfRun]:
    return Subject("arguments", lambda run: (ArgumentsOfRun(run),) if holds(run) else ())


TRAINING_ARGUMENTS = _where(lambda run: True)
"""For `rule(CODE, NAME, SEVERITY, TRAINING_ARGUMENTS)`."""
KNOWN_ARGUMENTS = _where(lambda run: reader(run) is not None)
"""Those of which it is known who parses them."""
ARRIVING_ARGUMENTS = _where(values_arrive)
"""Those whose values the Trainer gets as they are known, also through a front end."""


def arguments_of(config: str) -> Subject[ArgumentsOfRun]:
    """Those that can be for this config of TRL, and for no other."""
    return _where(lambda run: methods(run) == {config})


class Written(NamedTuple):
    """Where arguments are written: the first that stands in a file, and the others."""

    location: Location
    related: list[Location]

    def finding(
        self,
        message: str,
        help_text: str = "",
        fix: Fix | None = None,
        *,
        severity: Severity | None = None,
        versions: str = "",
    ) -> Finding:
        return Finding(self.location, message, help_text, self.related, fix, severity, versions=versions)


def written(run: Run, *names: str, where: str = "entry") -> Written:
    """The places of these arguments."""
    origins = [setting.origin for name in names if (setting := given(run, name)) is not None]
    if not origins and run.recipe is not None:
        return Written(Location(run.recipe), [])
    return Written(*primary_location(run, origins, where))


def set_argument(
    run: Run, name: str, text: str, why: str, *, safe: bool = False, after: str | None = None
) -> Fix | None:
    """Write an argument into the recipe, or give it another value where it stands and counts."""
    if name not in run.arguments:
        return put(run.recipe, (name,), text, why=why, safe=safe, after=after)
    stated = argument(run, name)
    return _reworded(run, stated, text, why, safe) if stated is not None else None


def drop_argument(run: Run, name: str, why: str, *, safe: bool = False) -> Fix | None:
    """Take an argument out of the place that counts."""
    stated = argument(run, name)
    return dropped(run, stated, why, safe=safe) if stated is not None else None


def dropped(run: Run, stated: Argument, why: str, *, safe: bool = False) -> Fix | None:
    """Take an argument out of the recipe or off the launch line."""
    if stated.on_line:
        return line.option_at(run, stated.origin).delete(why, safe=safe)
    return edited(delete_entry, run.recipe, (stated.name,), why=why, safe=safe) if _in_recipe(run, stated) else None


def renamed(run: Run, stated: Argument, new: str, why: str, *, safe: bool = True) -> Fix | None:
    """Give an argument another name in the recipe or on the launch line."""
    if stated.on_line:
        option = line.option_at(run, stated.origin)
        words = option.reworded(f"--{new}{(option.words or '').removeprefix(option.name)}")
        return line.line_fix(run, why, words, safe=safe, gives=_says(run, new, stated.held))
    return edited(rename_key, run.recipe, (stated.name,), new, why=why, safe=safe) if _in_recipe(run, stated) else None


def _in_recipe(run: Run, stated: Argument) -> bool:
    return stated.origin.file is run.recipe and bool(stated.origin.path)


def _reworded(run: Run, stated: Argument, text: str, why: str, safe: bool) -> Fix | None:
    """Another plain word as the value of an option."""
    text = text[1:-1] if text[:1] == text[-1:] == '"' else text
    if not stated.on_line or not all(item.isalnum() or item in "._-+/" for item in text):
        return None
    value = line.option_at(run, stated.origin).with_value(text)
    return line.line_fix(run, why, value, safe=safe, gives=_says(run, stated.name, text))


def _says(run: Run, name: str, text: object) -> tuple[Intent, ...]:
    """What a word of the launch line means to set, where it tells a value."""
    value = _converted(run, name, text, words=True) if text is not UNKNOWN else UNKNOWN
    return () if value is UNKNOWN or value is None else (Intent(name, value, "argument"),)


def under_deepspeed(run: Run) -> bool:
    return bool(effective_value(run, "engine") == "deepspeed")


def processes(run: Run) -> int | None:
    found = effective_value(run, "num_processes")
    return found if isinstance(found, int) and not isinstance(found, bool) and found > 0 else None
