"""What the text of a project's scripts tells about configs that no launch line and no script is known to read.

A look at the text alone: most of these scripts are reached by no line that is known. It only ever silences.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zerocfg.record import replace
from zerocfg.run.model import Elsewhere, Run, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.stages.batches import MICRO, TRAIN

_SIZE = re.compile(rf"""["'](?:{TRAIN}|{MICRO})["']\s*(?::|\]\s*=(?!=))\s*(?!["']auto\b)[^\s]""")
"""A batch size that code gives a dict. A look at the text: such code is reached by no line that is known."""


_OWN_TRAINER = re.compile(
    r"^class[ \t]+\w*?(SFT|DPO|KTO|GRPO|RLOO|Reward|Distillation)(?:Config|Trainer)\b", re.MULTILINE
)
"""A class of the project that is called as one of TRL is: a copy of it, or one that derives from it."""
_LIGHTNING = re.compile(r"^[ \t]*(?:from|import)[ \t]+(?:pytorch_lightning|lightning|lightning_fabric)\b", re.MULTILINE)
_STRATEGIES = ("DeepSpeedPlugin(", "DeepSpeedStrategy(")
"""Its strategy takes the micro batch of the data loader where the config has none."""
_SAVES_SHARDS = ".save_checkpoint("
"""How an engine saves its shards as they are."""
_CONVERTS = ("zero_to_fp32", "_zero_checkpoint(")
"""How a script makes weights of them afterwards."""
_TRAINERS = re.compile(
    r"^[ \t]*from[ \t]+(?:transformers|trl)\b[\w.]*[ \t]+import[ \t]+(?:\([^)]*|[^\n]*)"
    r"(?:Trainer|TrainingArguments|HfArgumentParser|TrlParser)\b",
    re.MULTILINE,
)
"""The loops that save the weights gathered, or nothing."""
_SAVES_WEIGHTS = ("save_16bit_model(", "save_fp16_model(", "get_state_dict(", ".save_model(", "import trl")
_SAVES_PRETRAINED = re.compile(r"(?<!tokenizer)(?<!processor)(?<!onfig)\.save_pretrained\(")
"""Of a model, as far as its name tells, unless the script converts: then it saves what it made of the shards."""
_PEFT = re.compile(r"\b(?:get_peft_model|LoraConfig|get_peft_config|peft_config|PeftModel)\b")
_LOADS_YAML = ("yaml.safe_load(", "yaml.load(", "OmegaConf.load(")
_MAKES_ARGUMENTS = re.compile(r"\b(?:(?:Seq2Seq)?TrainingArguments|(?:SFT|DPO|KTO|GRPO|RLOO|Reward)Config)\((\s*\*\*)?")
_LETS_THROUGH = "return_remaining_strings=True"
"""How HfArgumentParser is told to accept unknown options."""
_OWN_ARGUMENTS = re.compile(r"^class[ \t]+\w+\([^)]*\b(?:Seq2Seq)?TrainingArguments\b", re.MULTILINE)
"""A class of training arguments that may have other defaults than the library's."""
_ENGINE = "deepspeed.initialize("
_LONGEST_CALL = 4000
"""Characters of a call in which its last parenthesis is looked for."""
_BROUGHT = {
    "optimizer": re.compile(r"\boptimizer[ \t]*=(?!=|[ \t]*None\b)"),
    "scheduler": re.compile(r"\blr_scheduler[ \t]*=(?!=|[ \t]*None\b)"),
}
"""Sections of which an engine builds nothing where its call has these arguments."""


def with_what_is_elsewhere(runs: Sequence[Run], scripts: Sequence[SourceFile]) -> list[Run]:
    """The runs, those of configs by themselves with what may come from any script of the project: the options that the
    scripts of the ``runs`` declare, and what the texts of all ``scripts`` show. Of runs whose script reads the config
    the texts of that script alone."""
    runs = [_with_parser_elsewhere(_with_own_size(run), scripts) for run in _without_own_recipes(runs, scripts)]
    if not any(map(_by_itself, runs)):
        return list(runs)
    recipes = any(run.recipe is not None and _by_itself(run) for run in runs)
    looks = list(map(_look, scripts))
    saving = [look for look in looks if look.saves_weights]
    brought = [call for look in looks for call in look.engines]
    trainer = any(run.consumer in ("transformers", "trl") for run in runs)
    elsewhere = Elsewhere(
        options=frozenset[str]().union(*(run.script.own for run in runs if run.script is not None)),
        readers=frozenset(run.consumer for run in runs if run.deepspeed is not None and run.consumer is not None),
        trainers=frozenset(name for file in scripts for name in _own_trainers(file)) if recipes else frozenset(),
        sets_batch_size=any(look.sets_batch_size for look in looks),
        lightning=any(look.lightning for look in looks),
        keeps_shards=any(look.converts for look in looks) or (bool(looks) and not trainer and not saving),
        adapters=bool(saving) and all(look.adapters for look in saving),
        fills_arguments=any(look.fills_arguments for look in looks),
        brought=frozenset.intersection(*brought) if brought else frozenset(),
    )
    return [replace(run, elsewhere=elsewhere) if _by_itself(run) else run for run in runs]


def _with_own_size(run: Run) -> Run:
    if run.consumer != "deepspeed" or run.deepspeed is None or run.script is None:
        return run
    if not any(_look(file).sets_batch_size for file in run.script.files):
        return run
    return replace(run, elsewhere=replace(run.elsewhere, sets_batch_size=True))


def _with_parser_elsewhere(run: Run, scripts: Sequence[SourceFile]) -> Run:
    """The run of a launch line whose parser was not reached, with what the project's parsers may do to its options."""
    script = run.script
    reached = script is not None and (bool(script.parsed) or script.options is not None)
    if reached or run.launch is None or not run.arguments:
        return run
    if script is None:
        return replace(run, arguments_whole=False) if any(map(_has_own_arguments, scripts)) else run
    lenient = any(_LETS_THROUGH in file.source.text for file in scripts)
    return replace(run, script=replace(script, lenient=True)) if lenient else run


def _without_own_recipes(runs: Sequence[Run], scripts: Sequence[SourceFile]) -> Sequence[Run]:
    """The runs without recipes by themselves that look like a framework's and are the project's own: a script names
    one of the folder and loads YAML, and none speaks of that framework's program."""
    recipes = [run for run in runs if run.framework_recipe is not None and run.consumer and _by_itself(run)]
    if not recipes:
        return runs
    loading = [file.source.text for file in scripts if any(word in file.source.text for word in _LOADS_YAML)]
    own = set()
    for run in recipes:
        folder, name = _place(run)
        program = (run.consumer or "").removeprefix("ms-")
        if any(name in text for text in loading) and not any(program in file.source.text for file in scripts):
            own.add((folder, run.consumer))
    loaded = {id(run) for run in recipes if (_place(run)[0], run.consumer) in own}
    return [run for run in runs if id(run) not in loaded]


def _place(run: Run) -> tuple[str, str]:
    """The folder and the name of a framework's recipe."""
    folder, _, name = run.framework_recipe.name.rpartition("/") if run.framework_recipe is not None else ("", "", "")
    return folder, name


@remembered
def _has_own_arguments(file: SourceFile) -> bool:
    return _OWN_ARGUMENTS.search(file.source.text) is not None


class _Look(NamedTuple):
    """What the text of a script shows that may read any config of its project."""

    sets_batch_size: bool
    lightning: bool
    keeps_shards: bool
    converts: bool
    saves_weights: bool
    adapters: bool
    fills_arguments: bool
    engines: tuple[frozenset[str], ...]
    """For each engine that it makes, the sections of the config in whose place it brings something."""


@remembered
def _own_trainers(file: SourceFile) -> frozenset[str]:
    return frozenset(f"{name}Config" for name in _OWN_TRAINER.findall(file.source.text))


@remembered
def _look(file: SourceFile) -> _Look:
    text = file.source.text
    converts = any(word in text for word in _CONVERTS)
    saves = (
        any(word in text for word in _SAVES_WEIGHTS)
        or _TRAINERS.search(text) is not None
        or (not converts and _SAVES_PRETRAINED.search(text) is not None)
    )
    return _Look(
        "_batch_size" in text and _SIZE.search(text) is not None,
        any(word in text for word in _STRATEGIES) and _LIGHTNING.search(text) is not None,
        _SAVES_SHARDS in text,
        converts,
        saves,
        _PEFT.search(text) is not None,
        _fills_arguments(text),
        tuple(map(_brought, _calls(text, _ENGINE))),
    )


def _fills_arguments(text: str) -> bool:
    """Whether a script makes training arguments of a mapping, or makes them and reads YAML as well."""
    made = _MAKES_ARGUMENTS.findall(text)
    return any(made) or (bool(made) and any(word in text for word in _LOADS_YAML))


def _calls(text: str, opening: str) -> Iterator[str]:
    """The arguments of each call that begins so, as they are written."""
    start = text.find(opening)
    while start >= 0:
        start += len(opening)
        depth, end = 1, start
        while depth and end < min(len(text), start + _LONGEST_CALL):
            depth += {"(": 1, ")": -1}.get(text[end], 0)
            end += 1
        yield text[start:end]
        start = text.find(opening, end)


def _brought(arguments: str) -> frozenset[str]:
    return frozenset(section for section, given in _BROUGHT.items() if given.search(arguments))


def _by_itself(run: Run) -> bool:
    """Whether neither a line nor a spec starts something with the configs, and no script is known to read them."""
    return run.launch is None and run.spec is None and run.script is None
