"""The two sides of ``zerocfg diff``: a build, or the effective values of a config or run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zerocfg.catalog.schema import load_schema
from zerocfg.compare.lock_table import rows
from zerocfg.emit.lock import NAME, Lock, LockError, load, without_secrets
from zerocfg.frontends.registry import has_defaults
from zerocfg.run.config import AUTO, Config
from zerocfg.run.discover import SPEC_NAMES, Files, display_name, is_launch_file
from zerocfg.run.link import find_runs, run_of_file, runs_from_spec
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.origins import origin_label, place_of
from zerocfg.run.stages import engine
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.run.stages.parser import Parser, parser_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.source.node import Path as KeyPath

Group = str
SETTINGS, ARGUMENTS, ACCELERATE = "setting", "argument", "accelerate"
VARIABLES, JOB = "exported variable", "run"
GROUPS = (SETTINGS, ACCELERATE, VARIABLES, ARGUMENTS, JOB)

_LAUNCHER = load_schema("accelerate-launcher").root.keys
_OF_THE_LAUNCHER = ("engine", "num_processes", "num_machines", "mixed_precision")
_REDUNDANT_VARIABLES = (
    "ACCELERATE_CONFIG_DS_FIELDS",
    "ACCELERATE_DEEPSPEED_",
    "ACCELERATE_GRADIENT_",
    *(name for item in ("mixed_precision", "use_deepspeed") for name in _LAUNCHER[item].variables),
)
"""Variables, or prefixes of their names, that only repeat the settings."""
_NOT_JSON = ("inf", "-inf", "nan")
"""Numbers that a lock holds as words."""
_PATHS = frozenset(("config", "config_file", "deepspeed", "deepspeed_config", "deepspeed_config_file"))
"""Arguments that name files whose content is compared."""


class SideError(ValueError):
    """The named thing cannot be compared; the message says what to name instead."""


@dataclass(frozen=True, slots=True)
class Value:
    """One value and its origin, described. ``said`` False: it is a default, or unknown."""

    value: object
    origin: str
    said: bool = True


@dataclass(slots=True)
class Side:
    """One of the two. ``groups`` holds the values by group and name; a group that is absent cannot be compared."""

    name: str
    what: str
    groups: dict[Group, dict[str, Value]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)


def open_side(text: str, files: Files) -> Side:
    """A build (its folder or its lock), a config file, ``zerocfg.yaml:RUN``, or a launch line (``train.sh:3``).

    Raises SideError, or `zerocfg.emit.lock.LockError`.
    """
    try:
        path = Path(text)
        if path.is_dir():
            return _folder(path, files)
        if path.name == NAME and path.exists():
            return _lock(path)
        if path.exists():
            return _file(path, files)
        head, colon, tail = text.rpartition(":")
        if colon and Path(head).is_file():
            return _part(Path(head), tail, files)
        if colon and Path(head).is_dir() and (spec := _spec(Path(head))) is not None:
            return _part(spec, tail, files)
    except OSError as error:
        raise SideError(f"'{text}' cannot be read: {error.strerror or error}") from None
    except (SideError, LockError):
        raise
    except ValueError as error:  # a NUL in the name
        raise SideError(f"'{text}' cannot be read: {error}") from None
    raise SideError(f"there is no file or folder '{text}'")


def _folder(path: Path, files: Files) -> Side:
    if (path / NAME).exists():
        return _lock(path / NAME)
    inside = sorted(lock.parent for lock in path.glob(f"*/{NAME}"))
    if len(inside) == 1:
        return _lock(inside[0] / NAME)
    if inside:
        names = ", ".join(display_name(item) for item in inside[:8])
        raise SideError(f"'{display_name(path)}' holds several builds; name one: {names}")
    spec = _spec(path)
    if spec is None:
        raise SideError(f"'{display_name(path)}' holds neither a {NAME} nor a {SPEC_NAMES[0]}")
    return _file(spec, files)


def _spec(folder: Path) -> Path | None:
    return next((folder / name for name in SPEC_NAMES if (folder / name).is_file()), None)


def _lock(path: Path) -> Side:
    lock = load(path)
    where = display_name(path.parent)
    side = Side(where, f"build of {lock.run or where} for {lock.hardware_name}")
    groups: dict[Group, dict[str, Value]] = {SETTINGS: {}, ACCELERATE: {}, ARGUMENTS: _defaults(lock), JOB: {}}
    places = {"setting": SETTINGS, "accelerate": ACCELERATE, "run": JOB}
    for row in reversed(rows(lock)):  # so that a changed argument replaces that of the recipe
        origin = f"{row.place}: {row.reason}" if row.place and row.inputs else str(row.place or row.reason)
        value = float(row.value) if row.group == "setting" and row.value in _NOT_JSON else row.value
        group = groups[places.get(row.group, ARGUMENTS)]
        group[row.name] = Value(value, " ".join(origin.split()), row.kind != "default")
    if lock.version == 1:
        del groups[ACCELERATE]
    for name in _PATHS:
        groups[ARGUMENTS].pop(name, None)
    side.groups = groups
    return side


TRAINERS: tuple[Literal["transformers", "trl"], ...] = ("transformers", "trl")


def _defaults(lock: Lock) -> dict[str, Value]:
    """The trainer's defaults, which a lock does not record."""
    consumer = next((trainer for trainer in TRAINERS if trainer == lock.consumer), None)
    if consumer is None:
        return {}
    nobody = Origin("default", "the lock")
    arguments = arguments_of(Run("", consumer=consumer, arguments={"output_dir": Setting("", nobody)}))
    return {name: _value(name, setting) for name, setting in arguments.values.items()}


def _file(path: Path, files: Files) -> Side:
    name = display_name(path)
    file = files.open(path)
    problem = next((item for item in file.document.problems if item.fatal), None) if file.document else None
    if problem is not None:
        raise SideError(f"'{name}' cannot be read: {problem.message}")
    if file.kind == "spec":
        runs = _spec_runs(path, files)
        if len(runs) != 1:
            raise SideError(f"'{name}' has several runs; name one: {_names(name, runs)}")
        return side_of(f"{name}:{runs[0].name}", runs[0])
    if is_launch_file(path):
        runs = _launch_runs(path, files)
        if len(runs) != 1:
            lines = ", ".join(run.name for run in runs[:8]) or "none that starts a training"
            raise SideError(f"name a launch line of '{name}': {lines}")
        return side_of(runs[0].name, runs[0])
    run = run_of_file(path, files)
    if run is None:
        raise SideError(f"'{name}' is no accelerate config, DeepSpeed config, recipe, spec, launch script or build")
    return side_of(name, run)


def _part(path: Path, part: str, files: Files) -> Side:
    """A run of a spec by its name, or a launch line by its number."""
    name = display_name(path)
    if is_launch_file(path):
        runs = _launch_runs(path, files)
        found = [run for run in runs if run.name == f"{files.open(path).name}:{part}"]
        if not found:
            raise SideError(f"'{name}' starts no training in line {part}; it does in {_names('', runs)}")
        return side_of(f"{name}:{part}", found[0])
    if files.open(path).kind != "spec":
        raise SideError(f"'{name}' has no runs: it is neither a spec nor a launch script")
    runs = _spec_runs(path, files)
    chosen = next((run for run in runs if run.name == part), None)
    if chosen is None:
        raise SideError(f"'{name}' has no run '{part}'; it has {_names('', runs)}")
    return side_of(f"{name}:{part}", chosen)


def _names(prefix: str, runs: list[Run]) -> str:
    shown = ", ".join(f"{prefix}:{run.name}" if prefix else run.name for run in runs[:8]) or "none"
    return shown + (", ..." if len(runs) > 8 else "")


def _spec_runs(path: Path, files: Files) -> list[Run]:
    """The runs as the build will start them, on their hardware."""
    from zerocfg.resolve.facts import with_facts

    return with_facts(runs_from_spec(path, files), files)


def _launch_runs(path: Path, files: Files) -> list[Run]:
    name = files.open(path).name
    return [run for run in find_runs([path], files)[0] if run.launch_file is not None and run.launch_file.name == name]


# -- the values of a run -----------------------------------------------------------------------------------------


def side_of(name: str, run: Run) -> Side:
    """A run as its readers understand it."""
    effective = run.effective
    kind = next((kind for kind in ("spec", "launch", "accelerate", "recipe", "deepspeed") if _has(run, kind)), "other")
    what = {
        "spec": "run of a spec",
        "launch": "launch line",
        "accelerate": "accelerate config",
        "recipe": "recipe",
        "deepspeed": "DeepSpeed config",
    }.get(kind, "config")
    if run.consumer is not None:
        what += f", read by {run.consumer}"
    side = Side(name, what)
    settings = effective.settings if run.consumer else _as_deepspeed_reads(effective.settings, parser_of(run))
    launched = kind in ("spec", "launch", "accelerate")
    side.groups[SETTINGS] = {
        key: _value(key, setting)
        for key, setting in settings.items()
        if launched or setting.known or key not in _OF_THE_LAUNCHER
    }
    if launched:
        side.groups[VARIABLES] = {
            key: _value(key, setting)
            for key, setting in effective.environment.items()
            if not key.startswith(_REDUNDANT_VARIABLES)
        }
    if run.recipe is not None or run.consumer in TRAINERS or (run.framework_recipe and has_defaults(run.consumer)):
        side.groups[ARGUMENTS] = _arguments(run)
    side.failures = [f"{_where(replace(item, note=''))}: there is no file {item.note!r}" for item in run.missing]
    side.failures += [f"{failure.phase}: {failure.message}" for failure in effective.failures]
    return side


def _has(run: Run, kind: str) -> bool:
    return (run.launch if kind == "launch" else getattr(run, kind)) is not None


def _value(name: str, setting: Setting) -> Value:
    value = setting.value if setting.value is UNKNOWN else without_secrets({name: setting.value})[name]
    return Value(value, _where(setting.origin), setting.known and setting.origin.kind != "default")


def _as_deepspeed_reads(settings: Mapping[str, Setting], parser: Parser) -> Mapping[str, Setting]:
    """The settings of a config that nobody is known to read, converted as DeepSpeed will in the end.

    Absent keys get DeepSpeed's defaults; an ``auto`` stays one, because it depends on the reader what fills it. What is
    meant for another engine stays as it is.
    """
    chosen = settings.get("engine")
    if chosen is not None and chosen.known and chosen.value != "deepspeed":
        return settings
    ours = {name: setting for name, setting in settings.items() if name in _OF_THE_LAUNCHER}
    data: dict[str, object] = {}
    for name, setting in settings.items():
        if name in ours:
            continue
        *parents, leaf = name.split(".")
        section = data
        for parent in parents:
            inner = section.setdefault(parent, {})
            section = inner if isinstance(inner, dict) else {}
        section[leaf] = setting.value
    if not data:
        return settings

    def origin(path: KeyPath) -> Origin:
        found = settings.get(".".join(map(str, path)))
        return found.origin if found else Origin("computed")

    read = engine.settings(Config(data, origin), final=True, parser=parser)
    autos = {name: setting for name, setting in settings.items() if setting.value == AUTO}
    return {**read, **autos, **ours}


def _arguments(run: Run) -> dict[str, Value]:
    """The trainer's arguments: known fields as their reader converts them, the others as written."""
    found: dict[str, Value] = {}
    data = run.recipe.data() if run.recipe else None
    for name, value in without_secrets(data).items() if isinstance(data, dict) else ():
        found[str(name)] = Value(value, _where(Origin("file", file=run.recipe, path=(str(name),))))
    for name, setting in run.arguments.items():
        found[name] = _value(name, setting)
    arguments = arguments_of(run)
    for name, setting in arguments.values.items() if arguments.complete else ():
        if setting.known or name not in found:
            found[name] = _value(name, setting)
    return {name: value for name, value in found.items() if name not in _PATHS}


def _where(origin: Origin) -> str:
    """``ds_config.json:3:5``, or in words where no file says it."""
    return str(place_of(origin) or origin_label(origin))
