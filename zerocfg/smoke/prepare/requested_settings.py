"""The settings that the files of a handwritten run request, with every place that states one.

Places that a library never looks at count as well: whoever wrote them wanted them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from zerocfg.catalog.check import check
from zerocfg.catalog.counterparts import paths, settings
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import yaml_number
from zerocfg.rules.api import Location
from zerocfg.rules.place import file_span
from zerocfg.run.model import UNKNOWN, Run, Setting, SourceFile
from zerocfg.source.node import dotted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.source.node import Path

ENGINE, STAGE, DTYPE = "engine", "stage", "dtype"
REPORTED = {
    "zero_optimization.stage": STAGE,
    "zero_optimization.offload_optimizer.device": "offload_optimizer",
    "zero_optimization.offload_param.device": "offload_param",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
    "bf16.enabled": DTYPE,
    "fp16.enabled": DTYPE,
    "optimizer.type": "optimizer",
    "scheduler.type": "scheduler",
}
"""Settings by the name under which the ranks report what they run with."""
GATHER = "weights"
_GATHER_SETTING = "zero_optimization.stage3_gather_16bit_weights_on_model_save"


@cache
def deepspeed_keys() -> dict[Path, str]:
    """Keys of a DeepSpeed config, wherever they stand, by what the ranks report."""
    found: dict[Path, str] = {tuple(setting.split(".")): name for setting, name in REPORTED.items()}
    misplaced: dict[Path, str] = {
        path[1:]: name for path, name in found.items() if path[0] == "zero_optimization" and len(path) > 2
    }
    return found | misplaced | {("bfloat16", "enabled"): DTYPE}


@cache
def accelerate_keys() -> dict[str, str]:
    """Keys of accelerate's own, in `deepspeed_config` and as options of the launch line."""
    said = {name: REPORTED[setting] for name, setting in settings("accelerate").items() if setting in REPORTED}
    return said | {"mixed_precision": DTYPE}


@cache
def arguments() -> dict[str, str]:
    """Training arguments, in a recipe and as options of the script."""
    said = {name: REPORTED[setting] for name, setting in settings("training-arguments").items() if setting in REPORTED}
    return said | {"optim": "optimizer", "lr_scheduler_type": "scheduler"}


@cache
def gather_keys() -> tuple[str, str]:
    """What decides whether stage 3 saves whole weights; not compared as a value."""
    return _GATHER_SETTING.rpartition(".")[2], paths("accelerate")[_GATHER_SETTING][-1]


@dataclass(frozen=True)
class Claim:
    """One place that asks for ``value``; ``text`` is what stands there: ``gradient_clipping: 0.5``."""

    value: object
    text: str
    location: Location

    @property
    def place(self) -> str:
        where = file_span(self.location)
        return f"{where.file.name}:{where.start.line}"

    def __str__(self) -> str:
        return f"{self.text} ({self.place})"


def claims(run: Run) -> dict[str, list[Claim]]:
    """Every place that asks, by the name of the setting, in the order recipe, script, launch line, configs."""
    found: dict[str, list[Claim]] = {}
    for name, claim in _claims(run):
        if _is_value(claim.value):
            found.setdefault(name, []).append(claim)
    if ENGINE not in found and run.accelerate is not None:
        kind = _mapping(run.accelerate).get("distributed_type")
        if kind in ("MULTI_GPU", "MULTI_CPU"):
            found[ENGINE] = [_in(run.accelerate, ("distributed_type",), "ddp", kind)]
    return found


def _claims(run: Run) -> Iterator[tuple[str, Claim]]:
    trainer = run.consumer in ("transformers", "trl")
    if run.recipe is not None and trainer:
        yield from _recipe(run.recipe)
    for word, setting in run.arguments.items():
        name = arguments().get(word)
        if name is not None and (trainer or word in ("per_device_train_batch_size", "gradient_accumulation_steps")):
            yield from _switch(name, word, setting.value, _option(setting, word, setting.value))
        if word in ("deepspeed", "deepspeed_config") and setting.origin.file is not None and run.deepspeed is not None:
            yield ENGINE, _option(setting, word, "deepspeed")
    if run.launch is not None and run.launch.launcher == "accelerate":
        for word, setting in run.flags.items():
            if word in accelerate_keys():
                yield accelerate_keys()[word], _option(setting, word, _number(setting.value))
            elif word in ("use_deepspeed", "deepspeed_config_file"):
                yield ENGINE, _option(setting, word, "deepspeed")
    if run.accelerate is not None:
        yield from _accelerate(run.accelerate)
    if run.deepspeed is not None:
        yield from _deepspeed(run.deepspeed, (), _mapping(run.deepspeed), renamed(run.deepspeed))


def _recipe(file: SourceFile) -> Iterator[tuple[str, Claim]]:
    content = _mapping(file)
    for word, name in arguments().items():
        if word in content:
            yield from _switch(name, word, content[word], _in(file, (word,), content[word]))
    section = content.get("deepspeed")
    if section:
        yield ENGINE, _in(file, ("deepspeed",), "deepspeed", section if isinstance(section, str) else "{...}")
    if isinstance(section, dict):
        yield from _deepspeed(file, ("deepspeed",), section, {})


def _accelerate(file: SourceFile) -> Iterator[tuple[str, Claim]]:
    content = _mapping(file)
    kind = content.get("distributed_type")
    if kind in ("DEEPSPEED", "FSDP"):
        yield ENGINE, _in(file, ("distributed_type",), str(kind).lower(), kind)
    if "mixed_precision" in content:
        yield DTYPE, _in(file, ("mixed_precision",), content["mixed_precision"])
    section = content.get("deepspeed_config")
    if not isinstance(section, dict) or not section:
        return
    if kind != "DEEPSPEED":
        yield ENGINE, _in(file, ("deepspeed_config",), "deepspeed", "{...}")
    for word, name in accelerate_keys().items():
        if word in section:
            yield name, _in(file, ("deepspeed_config", word), _number(section[word]), section[word])
    for word in gather_keys():
        if word in section:
            yield GATHER, _in(file, ("deepspeed_config", word), section[word])
    # Keys as DeepSpeed calls them, which accelerate does not read here.
    own = {*accelerate_keys(), *gather_keys()}
    foreign = {key: value for key, value in section.items() if key not in own}
    yield from _deepspeed(file, ("deepspeed_config",), foreign, {})


def _deepspeed(
    file: SourceFile, base: Path, content: dict[str, object], names: dict[Path, str]
) -> Iterator[tuple[str, Claim]]:
    """``names``: what misspelt keys most likely were meant to be, by their path."""
    for likely, path, value in _leaves(content, (), (), names):
        meant = path if path in deepspeed_keys() else likely  # its own name counts before what it resembles
        name = deepspeed_keys().get(meant)
        if name is not None:
            yield from _switch(name, str(meant[0]), value, _in(file, (*base, *path), _number(value), value))
        elif meant[-1] in gather_keys():
            yield GATHER, _in(file, (*base, *path), value)


def _leaves(value: object, meant: Path, path: Path, names: dict[Path, str]) -> Iterator[tuple[Path, Path, object]]:
    if not isinstance(value, dict):
        yield meant, path, value
        return
    for key, inner in value.items():
        here = (*path, str(key))
        yield from _leaves(inner, (*meant, names.get(here, str(key))), here, names)


def renamed(file: SourceFile) -> dict[Path, str]:
    """Keys of a DeepSpeed config that no library reads, each with the key that was most likely meant."""
    root = file.document.root if file.document is not None else None
    return {
        issue.path: issue.suggestion
        for issue in check(root, load_schema("deepspeed"))
        if issue.kind == "unknown-ignored" and issue.suggestion is not None
    }


def _switch(name: str, word: str, value: object, claim: Claim) -> Iterator[tuple[str, Claim]]:
    """A switch asks for its precision when it is on; an optimizer of a kind that runs on a card only is no claim."""
    if name == DTYPE:
        if value in (True, "true", "True"):
            dtype = "fp16" if "fp16" in word else "bf16"
            yield name, Claim(dtype, claim.text, claim.location)
    else:
        yield name, claim


def _option(setting: Setting, word: str, value: object) -> Claim:
    origin = setting.origin
    assert origin.file is not None, "an option is part of a launch line"
    shown = f"--{word}" if setting.value is True else f"--{word} {setting.value}"
    return Claim(
        value if value is True else _number(value), shown, Location(origin.file, origin.path, span=origin.span)
    )


def _in(file: SourceFile, path: Path, value: object, written: object = None) -> Claim:
    text = f"{dotted(path)}: {value if written is None else written}"
    return Claim(value, text, Location(file, path, "key"))


def _number(value: object) -> object:
    """A number in quotes as the number that is meant."""
    number = yaml_number(value) if isinstance(value, str) else value
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _is_value(value: object) -> bool:
    """``auto`` and what cannot be told from the files ask for nothing; nor does accelerate's ``no``, its default."""
    return value is not None and value is not UNKNOWN and value not in ("auto", "no") and not isinstance(value, dict)


def _mapping(file: SourceFile) -> dict[str, object]:
    content = file.data()
    return content if isinstance(content, dict) else {}
