"""Configs that no launch line names: recipes take the reader of those in their tree that lines do name, accelerate
configs an address that lines give, and any script of the project may be the one that reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from zerocfg.record import replace
from zerocfg.run.model import UNKNOWN, Elsewhere, Origin, ReaderEvidence, Run, Script, SourceFile, original
from zerocfg.run.remembered import remembered
from zerocfg.run.stages.batches import MICRO, TRAIN
from zerocfg.source import disk

FEWEST = 2
"""The least number of recipes in the tree that lines must name."""
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
_ENGINE = "deepspeed.initialize("
_LONGEST_CALL = 4000
"""Characters of a call in which its last parenthesis is looked for."""
_BROUGHT = {
    "optimizer": re.compile(r"\boptimizer[ \t]*=(?!=|[ \t]*None\b)"),
    "scheduler": re.compile(r"\blr_scheduler[ \t]*=(?!=|[ \t]*None\b)"),
}
"""Sections of which an engine builds nothing where its call has these arguments."""


def as_siblings(run: Run, known: Sequence[Run], root: Path) -> Run:
    """The run of a recipe by itself, with the reader that every recipe of its tree has whose line is ``known``.

    A repository's launcher often puts the recipe's path together of its own arguments, so that most lines that start
    it are never written down. The tree is the folder below the repository's root; one recipe in it that is read in
    another way, or by a script that nobody understands, and nothing is known.
    """
    top = _top(run.recipe, root)
    if top is None or run.consumer is not None or run.deepspeed is not None or _is_of_tests(run.recipe):
        return run
    lines = [item for item in known if item.launch is not None and item.recipe is not None]
    siblings = [line for line in lines if _top(line.recipe, root) == top]
    if len({id(original(item.recipe)) for item in siblings if item.recipe is not None}) < FEWEST:
        return run
    first = siblings[0]
    if any((item.consumer, item.recipe_reader) != (first.consumer, first.recipe_reader) for item in siblings):
        return run
    if first.consumer not in ("transformers", "trl") or any(item.script is None for item in siblings):
        return run
    evidence = ReaderEvidence("sibling", Origin("file", file=first.recipe))
    script = _script_of([item for item in siblings if _folder(item.recipe) == _folder(run.recipe)])
    return replace(
        run, consumer=first.consumer, recipe_reader=first.recipe_reader, reader_evidence=evidence, script=script
    )


def with_address_of_siblings(run: Run, known: Sequence[Run]) -> Run:
    """The run of an accelerate config by itself, with an address that is unknown where a line that starts a config of
    the same folder gives one: whoever starts this one gives its address in the same way."""
    if run.accelerate is None or run.accelerate.path is None:
        return run
    folder = disk.resolved(run.accelerate.path).parent
    for sibling in known:
        given = sibling.flags.get("main_process_ip")
        config = sibling.accelerate.path if sibling.accelerate is not None else None
        if given is not None and config is not None and disk.resolved(config).parent == folder:
            return replace(run, flags={**run.flags, "main_process_ip": replace(given, value=UNKNOWN)})
    return run


def with_what_is_elsewhere(runs: Sequence[Run], scripts: Sequence[SourceFile]) -> list[Run]:
    """The runs, those of configs by themselves with what may come from any script of the project: the options that the
    scripts of the ``runs`` declare, and what the texts of all ``scripts`` show. Of runs whose script reads the config
    the texts of that script alone."""
    runs = [_with_own_size(run) for run in runs]
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
        keeps_shards=any(look.keeps_shards for look in looks) and not trainer and not saving,
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


class _Look(NamedTuple):
    """What the text of a script shows that may read any config of its project."""

    sets_batch_size: bool
    lightning: bool
    keeps_shards: bool
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
        converts or _SAVES_SHARDS in text,
        saves,
        _PEFT.search(text) is not None,
        _fills_arguments(text),
        tuple(map(_brought, _calls(text, _ENGINE))),
    )


def _fills_arguments(text: str) -> bool:
    """Whether a script makes training arguments of a mapping, or reads YAML beside."""
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


def _script_of(lines: Sequence[Run]) -> Script | None:
    """The script of these lines, where they all start one: a tree has a folder of this name for each kind of training
    (`model/sft`, `model/grpo`)."""
    scripts = {id(line.script): line.script for line in lines}
    return next(iter(scripts.values())) if len(scripts) == 1 else None


def _is_of_tests(recipe: SourceFile | None) -> bool:
    """Whether a recipe lies among tests, which read it with code of their own."""
    return recipe is not None and not {"test", "tests"}.isdisjoint(Path(recipe.name).parts)


def _folder(recipe: SourceFile | None) -> str | None:
    return recipe.path.parent.name if recipe is not None and recipe.path is not None else None


def _top(recipe: SourceFile | None, root: Path) -> str | None:
    """The folder below the root that holds a recipe; None where it lies in the root itself, or outside."""
    if recipe is None or recipe.path is None:
        return None
    path, root = disk.resolved(recipe.path), disk.resolved(root)
    parts = path.relative_to(root).parts if path.is_relative_to(root) else ()
    return parts[0] if len(parts) > 1 else None
