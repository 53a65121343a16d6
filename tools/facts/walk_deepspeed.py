"""The keys of DeepSpeed's JSON: typed sections by their pydantic models, the others by what the parse looks at."""

from __future__ import annotations

import contextlib
import inspect
import io
from collections.abc import Iterator, KeysView
from typing import Any

import torch

from tools.facts import describe, old_deepspeed

old_deepspeed.prepare()

import deepspeed  # noqa: E402
import pydantic  # noqa: E402
from deepspeed.runtime import config as real  # noqa: E402
from deepspeed.runtime import lr_schedules  # noqa: E402
from deepspeed.runtime.config_utils import DeepSpeedConfigModel  # noqa: E402

Model: Any = next(base for base in DeepSpeedConfigModel.__mro__ if base.__name__ == "BaseModel")
"""pydantic's own class; before 0.15 that of pydantic 1."""
Path = tuple[str, ...]
Facts = dict[str, object]
MINIMAL = {"train_micro_batch_size_per_gpu": 1}
PROBE = "zerocfg_probe"
BOUNDS = ("ge", "gt", "le", "lt")
HINTS: dict[str, Any] = {
    "fp16": {"enabled": True, "initial_scale_power": 16},
    "optimizer": {"type": "AdamW", "params": {}},
    "scheduler": {"type": "WarmupLR", "params": {}},
    "autotuning": {"model_info": {}},
    "timers": {"throughput": {}},
    "checkpoint": {"writer": {}, "parallel_write": {}},
    "torch_autocast": {"dtype": "fp16", "lower_precision_safe_modules": []},
    "expert_parallel": {"enabled": False},
    "data_efficiency": {
        "data_sampling": {
            "curriculum_learning": {"enabled": True, "curriculum_metrics": {}},
            "dynamic_batching": {"enabled": True, "max_tokens": 8},
        },
        "data_routing": {"random_ltd": {"enabled": True}},
    },
    "curriculum_learning": {"enabled": True},
    "progressive_layer_drop": {"enabled": True},
    "eigenvalue": {"enabled": True},
    "sparse_attention": {"mode": "fixed"},
    "quantize_training": {"enabled": True, "quantize_weight_in_forward": True},
    "compression_training": {},
    "elasticity": {},
    "nebula": {"enabled": True},
}
"""What opens a section that is only looked at when something in it is on."""
OTHERS = {"null": None, "false": False, "true": True, "number": 1, "text": "x", "list": [1]}
"""Something else than a mapping in the place of a section, by the word that a census has for it."""


class Recording(dict[str, Any]):
    """A dict that notes which keys somebody asks for at every depth, and the defaults that `get` is given."""

    def __init__(self, data: dict[str, Any], path: Path, asked: dict[Path, dict[str, list[object]]]) -> None:
        self.path, self.asked = path, asked
        super().__init__(
            {
                name: Recording(item, (*path, name), asked) if isinstance(item, dict) else item
                for name, item in dict.items(data)
            }
        )

    def _note(self, name: object, *default: object) -> None:
        if isinstance(name, str):
            self.asked.setdefault(self.path, {}).setdefault(name, []).extend(default)

    def __getitem__(self, name: str) -> Any:
        self._note(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self._note(name, default)
        return super().get(name, default)

    def pop(self, name: str, *default: Any) -> Any:
        self._note(name, *default)
        return super().pop(name, *default)

    def __contains__(self, name: object) -> bool:
        self._note(name)
        return super().__contains__(name)

    def __iter__(self) -> Iterator[str]:
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)

    def copy(self) -> Recording:
        return Recording(self, self.path, self.asked)

    __copy__ = copy

    def __deepcopy__(self, memo: object) -> Recording:
        return self.copy()


def parse(data: dict[str, Any], asked: dict[Path, dict[str, list[object]]] | None = None) -> str | None:
    """How DeepSpeedConfig refuses a config; None when it takes it."""
    asked = {} if asked is None else asked
    try:
        nowhere = io.StringIO()
        with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
            real.DeepSpeedConfig(Recording({**MINIMAL, **data}, (), asked))
    except (Exception, SystemExit) as error:
        return f"{type(error).__name__}: {error}"
    return None


# --- typed sections ---------------------------------------------------------------------------------------------------


def model_of(name: str) -> type[Any] | None:
    """The pydantic model that a key of the root is given to."""
    seen: list[type[Any]] = []
    plain = Model.__init__

    def note(self: Any, /, **data: Any) -> None:
        if PROBE in data:
            seen.append(type(self))
        data.pop(PROBE, None)
        plain(self, **data)

    Model.__init__ = note
    try:
        parse({name: {PROBE: 1}})
        if not seen:
            parse({name: {PROBE: 1, "enabled": True}})
    finally:
        Model.__init__ = plain
    return seen[0] if seen else None


def typed(model: type[Any], path: Path, keys: dict[str, object]) -> None:
    """The fields of a model, and of the models below it."""
    keys[".".join((*path, "*"))] = {"unknown": "error" if _forbids(model) else "ignored", "model": _pydantic(model)}
    for name, annotation, facts in _fields(model):
        inner = list(_models(annotation))
        shown = describe.kinds(annotation)
        facts["kinds"] = ["section" if kind in [of.__name__ for of in inner] else kind for kind in shown]
        keys[".".join((*path, name))] = facts
        for of in inner:
            typed(of, (*path, name), keys)


def _pydantic(model: type[Any]) -> int:
    return 2 if hasattr(model, "model_fields") and not hasattr(model, "__validators__") else 1


def _forbids(model: type[Any]) -> bool:
    if _pydantic(model) == 2:
        return bool(model.model_config.get("extra") == "forbid")
    return bool(getattr(model.__config__.extra, "value", model.__config__.extra) == "forbid")


def _fields(model: type[Any]) -> Iterator[tuple[str, object, dict[str, object]]]:
    if _pydantic(model) == 2:
        for name, field in model.model_fields.items():
            default = field.get_default(call_default_factory=True)
            facts: Facts = {"required": True} if field.is_required() else {"default": describe.value(default)}
            for item in field.metadata:
                facts |= {word: describe.value(getattr(item, word)) for word in BOUNDS if hasattr(item, word)}
            yield from _named(name, field.alias, field.annotation, facts, field.json_schema_extra)
        return
    hints = describe._hints(model)
    for name, field in model.__fields__.items():
        facts = {"default": describe.value(field.get_default())} if not field.required else {"required": True}
        info = field.field_info
        facts |= {word: describe.value(held) for word in BOUNDS if (held := getattr(info, word, None)) is not None}
        annotation = hints.get(name, field.outer_type_)
        if field.allow_none and type(None) not in getattr(annotation, "__args__", ()):
            annotation = annotation | None if isinstance(annotation, type) else annotation
        yield from _named(name, field.alias if field.alias != name else None, annotation, facts, info.extra)


def _named(
    name: str, alias: str | None, annotation: object, facts: dict[str, object], extra: object
) -> Iterator[tuple[str, object, dict[str, object]]]:
    told = extra if isinstance(extra, dict) else {}
    if told.get("deprecated"):
        facts["deprecated"] = str(told.get("new_param") or True)
    yield name, annotation, facts
    if alias:
        yield alias, annotation, {**facts, "as": name}


def _models(annotation: object) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and issubclass(annotation, Model):
        yield annotation
    for part in getattr(annotation, "__args__", ()):
        yield from _models(part)


# --- untyped sections -------------------------------------------------------------------------------------------------


def untyped() -> dict[Path, dict[str, list[object]]]:
    """By path of a mapping: the keys that the parse asks it for, and the defaults that it names."""
    asked: dict[Path, dict[str, list[object]]] = {}
    parse({}, asked)
    for name in sorted(asked[()]):
        for body in ({}, {"enabled": True}, HINTS.get(name)):
            if body is not None:
                tried: dict[Path, dict[str, list[object]]] = {}
                parse({name: body}, tried)
                for path, held in tried.items():
                    for key, defaults in held.items():
                        asked.setdefault(path, {}).setdefault(key, []).extend(defaults)
    return asked


def others(path: Path) -> Facts:
    """``takes``: what the parse takes in the place of a section besides a mapping; nothing where it takes anything."""
    if len(path) > 1:  # around it a section would have to be open
        return {}
    taken = [word for word, other in OTHERS.items() if parse({path[0]: other}) is None]
    return {"takes": taken} if len(taken) < len(OTHERS) else {}


def parameters(of: Any) -> dict[str, Facts]:
    """The parameters of a constructor, without the first two (self, and what is optimized or scheduled)."""
    found: dict[str, Facts] = {}
    for name, parameter in list(inspect.signature(of.__init__).parameters.items())[2:]:
        if parameter.kind not in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL):
            required = parameter.default is parameter.empty
            found[name] = {"required": True} if required else {"default": describe.value(parameter.default)}
    return found


def of_optimizers() -> dict[str, object]:
    found: dict[str, object] = {"words.optimizer.type": {"words": describe.value(list(real.DEEPSPEED_OPTIMIZERS))}}
    classes: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        from deepspeed.ops.adam import DeepSpeedCPUAdam, FusedAdam

        classes |= {"FusedAdam": FusedAdam, "DeepSpeedCPUAdam": DeepSpeedCPUAdam}
    with contextlib.suppress(Exception):
        from deepspeed.ops.adagrad import DeepSpeedCPUAdagrad

        classes["DeepSpeedCPUAdagrad"] = DeepSpeedCPUAdagrad
    with contextlib.suppress(Exception):
        from deepspeed.ops.lamb import FusedLamb

        classes["FusedLamb"] = FusedLamb
    with contextlib.suppress(Exception):
        from deepspeed.ops.lion import DeepSpeedCPULion, FusedLion

        classes |= {"FusedLion": FusedLion, "DeepSpeedCPULion": DeepSpeedCPULion}
    for name, of in classes.items():
        found |= {f"optimizer.{name}.{key}": facts for key, facts in parameters(of).items()}
    return found


def of_schedulers() -> dict[str, object]:
    names = list(lr_schedules.VALID_LR_SCHEDULES)
    found: dict[str, object] = {"words.scheduler.type": {"words": names}}
    for name in names:
        of = getattr(lr_schedules, name, None)
        for key, facts in parameters(of).items() if of is not None else ():
            found[f"scheduler.{name}.{key}"] = {**facts, **bound(of, key)}
    return found


def bound(of: Any, name: str) -> dict[str, object]:
    """The lower bound of a scheduler's parameter, as its constructor shows it: tried with 1, 0 and -1."""
    taken = [number for number in (1, 0, -1) if _schedules(of, {name: number})]
    bounds: dict[tuple[int, ...], Facts] = {(1,): {"gt": 0}, (1, 0): {"ge": 0}}
    return bounds.get(tuple(taken), {})


def _schedules(of: Any, given: dict[str, object]) -> bool:
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1, momentum=0.9)
    needed = {"total_num_steps": 10, "cycle_min_lr": 0.01, "cycle_max_lr": 0.1}
    takes = set(inspect.signature(of.__init__).parameters)
    try:
        of(optimizer, **{**{name: held for name, held in needed.items() if name in takes}, **given})
    except Exception:
        return False
    return True


def census() -> dict[str, object]:
    keys: dict[str, object] = {}
    asked = untyped()
    models = {name: model for name in sorted(asked[()]) if (model := model_of(name)) is not None}
    for path, held in asked.items():
        if path and path[0] in models:
            continue
        for name, defaults in held.items():
            if name == PROBE:
                continue
            known = [default for default in defaults if default is not None]
            section = (*path, name) in asked
            facts: dict[str, object] = {"kinds": ["section"], **others((*path, name))} if section else {}
            if known and "kinds" not in facts:
                facts["default"] = describe.value(known[0])
            keys[".".join((*path, name))] = facts
        keys[".".join((*path, "*"))] = {
            "unknown": "error" if parse(_at(path, {PROBE: 1})) not in (None, parse(_at(path, {}))) else "ignored"
        }
    for name, model in models.items():
        keys[name] = {"kinds": ["section"], **others((name,))}
        typed(model, (name,), keys)
    removed = {name: {"removed": True} for name in getattr(real, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", ())}
    removed |= {
        f"zero_optimization.{name}": {"removed": True} for name in getattr(real, "_REMOVED_ZERO_CONFIG_KEYS", ())
    }
    return {**keys, **removed, **of_optimizers(), **of_schedulers()}


def _at(path: Path, body: dict[str, Any]) -> dict[str, Any]:
    """A config with a mapping at a path; what stands beside the path is what opens it."""
    if not path:
        return body
    top: dict[str, Any] = {path[0]: _copy(HINTS.get(path[0]) or {})}
    here = top[path[0]]
    for part in path[1:]:
        here = here.setdefault(part, {})
    here.update(body)
    return top


def _copy(of: Any) -> Any:
    return {name: _copy(item) for name, item in of.items()} if isinstance(of, dict) else of


describe.tell({"version": deepspeed.__version__, "pydantic": pydantic.VERSION, "keys": census()})
