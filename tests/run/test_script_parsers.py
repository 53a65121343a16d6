"""What a script's own parser makes of a recipe and of a launch line: names that it does not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.rules.api import Severity
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run
from zerocfg.run.releases import with_versions

SCRIPT = """\
from configs import MyConfig
from trl import DPOTrainer, ModelConfig, TrlParser
parser = TrlParser((MyConfig, ModelConfig))
args, model = parser.parse_args_and_config({how})
DPOTrainer(args=args)
"""
CONFIGS = "from deep import *\nfrom deeper.own import MyConfig\n"
OWN = """\
from dataclasses import dataclass
import trl
@dataclass
class MyConfig(trl.DPOConfig):
    rewards: int = 1
    wandb_entity: str = ""
"""
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\nbeta: 0.1\n"
LINE = "accelerate launch --num_processes 2 train.py --config recipes/dpo/a.yaml\n"


def linted(folder: Path, files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> tuple[list[Run], list[Diagnostic]]:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    runs = with_versions(find_runs([Path()], Files())[0], {})
    return runs, [one for one in lint_runs(runs).diagnostics if one.severity is not Severity.NOTE]


def repository(recipe: str, how: str = "") -> dict[str, str]:
    return {
        "train.py": SCRIPT.format(how=how),
        "configs.py": CONFIGS,
        "deeper/own.py": OWN,
        "recipes/dpo/a.yaml": RECIPE + recipe,
        "run.sh": LINE,
    }


SLIPS = {
    "a short name": ("betta: 0.2\n", "", ["`beta` is one, and the parser stops"]),
    "two letters": ("max_lenght: 512\n", "", ["`max_length` is one, and the parser stops"]),
    "a plural": ("seeds: 7\n", "", ["`seed` is one, and the parser stops"]),
    "a field of the script's own": ("wandb_entitty: me\n", "", ["`wandb_entity` is one, and the parser stops"]),
    "one that an older release has": ("warmup_ration: 0.1\n", "", ["`warmup_ratio` is one, and the parser stops"]),
    "a field of the script's own, near a known one": ("rewards: 2\n", "", []),
    "near nothing": ("mine: 2\n", "", []),
    "a lenient parser": ("seeds: 7\n", "fail_with_unknown_args=False", []),
    "one that hands the rest on": ("seeds: 7\n", "return_remaining_strings=True", []),
    "what the parser takes for itself": ("env: {A: b}\n", "", []),
    "a word that is no yes or no": ("gradient_checkpointing: ture\n", "", ["'ture' is no yes or no"]),
    "a word that is one": ("gradient_checkpointing: 'yes'\n", "", []),
}


@pytest.mark.parametrize("case", SLIPS)
def test_names_in_a_recipe(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe, how, expected = SLIPS[case]
    runs, diagnostics = linted(tmp_path, repository(recipe, how), monkeypatch)
    assert [run.consumer for run in runs] == ["trl"]
    assert [one.message for one in diagnostics if not any(word in one.message for word in expected)] == []
    assert len(diagnostics) == len(expected)


@pytest.mark.parametrize(
    ("release", "said"),
    [
        ("trl==0.18.0", "TrlParser drops the other without a word (requirements.txt:1 admits ==0.18.0)"),
        ("trl>=0.13,<0.19", "TrlParser drops the other without a word"),
        ("trl==0.19.1", "the parser stops at the other"),
        ("trl==0.12.2", "the parser stops at the other"),
        ("trl", "the parser stops at the other"),
    ],
)
def test_releases_of_trl(release: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {**repository("seeds: 7\n"), "requirements.txt": f"{release}\n"}
    _, diagnostics = linted(tmp_path, files, monkeypatch)
    slips = [one.message for one in diagnostics if one.code == "ZC841"]
    assert len(slips) == 1
    assert said in slips[0]


REMOVED = "max_prompt_length: 512\nwarmup_ratio: 0.1\n"
"""Keys that TRL 1.16.0 and transformers 5.23.0 have no longer."""


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("", [("ZC801", 6, Severity.ERROR), ("ZC840", 5, Severity.ERROR)]),
        ("return_remaining_strings=False", [("ZC801", 6, Severity.ERROR), ("ZC840", 5, Severity.ERROR)]),
        ("return_remaining_strings=True", []),
        ("fail_with_unknown_args=False", []),
    ],
)
def test_removed_keys_and_what_the_parser_does_with_them(
    how: str, expected: list[tuple[str, int, Severity]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """TrlParser of TRL 1.16.0, called by hand: with the two last it hands the keys back, or passes over them."""
    pins = {"requirements.txt": "trl==1.16.0\ntransformers==5.23.0\n"}
    _, diagnostics = linted(tmp_path, {**repository(REMOVED, how), **pins}, monkeypatch)
    assert sorted((one.code, one.span.start.line, one.severity) for one in diagnostics) == expected


@pytest.mark.parametrize(("how", "expected"), [("", ["ZC865"]), ("return_remaining_strings=True", [])])
def test_newer_keys_and_what_the_parser_does_with_them(
    how: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`trackio_space_id` came with transformers 4.57.1."""
    pins = {"requirements.txt": "trl==0.22.2\ntransformers==4.55.4\n"}
    recipe = "trackio_space_id: mine\n"
    _, diagnostics = linted(tmp_path, {**repository(recipe, how), **pins}, monkeypatch)
    assert [one.code for one in diagnostics] == expected


@pytest.mark.parametrize(
    ("how", "consequence"),
    [
        ("", "the parser stops at the other"),
        ("return_remaining_strings=True", "the script's parser lets the other through"),
    ],
)
def test_what_becomes_of_a_slip(how: str, consequence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, diagnostics = linted(tmp_path, repository("gradient_checkpointng: true\n", how), monkeypatch)
    assert [one.message for one in diagnostics] == [
        f"there is no argument `gradient_checkpointng`; `gradient_checkpointing` is one, and {consequence}"
    ]


def test_a_class_of_trl_that_nobody_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its fields are not known, so what looks like a slip may be one of them."""
    files = {name: text.replace("trl.DPOConfig", "trl.PPOConfig") for name, text in repository("seeds: 7\n").items()}
    (only,) = linted(tmp_path, files, monkeypatch)[1]
    assert only.code == "ZC876"  # the newest TRL has no such class


def test_a_recipe_beside_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line names it; lines name two others of its tree, and the script of those in folders called like its own."""
    files = repository("") | {
        "recipes/x/dpo/b.yaml": RECIPE,
        "recipes/x/dpo/c.yaml": RECIPE + "max_steps: ten\nseeds: 7\n",
        "more/dpo/d.yaml": RECIPE + "seeds: 7\n",
        "run.sh": LINE + LINE.replace("dpo/a", "x/dpo/b"),
    }
    runs, diagnostics = linted(tmp_path, files, monkeypatch)
    alone = {run.name: run for run in runs if run.launch is None}
    assert {name: run.consumer for name, run in alone.items()} == {
        "recipes/x/dpo/c.yaml": "trl",
        "more/dpo/d.yaml": None,
    }
    told = alone["recipes/x/dpo/c.yaml"].reader_evidence
    assert told is not None and told.place is not None and told.place.file is not None
    assert (told.by, told.place.file.name) == ("sibling", "recipes/dpo/a.yaml")
    assert [(one.code, one.span.file.name) for one in diagnostics] == [
        ("ZC802", "recipes/x/dpo/c.yaml"),
        ("ZC841", "recipes/x/dpo/c.yaml"),
    ]


def test_recipes_of_a_tree_that_are_read_in_two_ways(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = repository("") | {
        "recipes/b.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n",
        "recipes/c.yaml": RECIPE + "seeds: 7\n",
        "other.py": "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "args, = HfArgumentParser(TrainingArguments).parse_yaml_file('x')\nTrainer(args=args)\n",
        "run.sh": LINE + "torchrun --nproc_per_node 2 other.py recipes/b.yaml\n",
    }
    runs, diagnostics = linted(tmp_path, files, monkeypatch)
    assert [run.consumer for run in runs if run.launch is None] == [None]
    assert diagnostics == []


HF = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
import far
args, = HfArgumentParser(TrainingArguments).{call}
Trainer(args=args)
"""


@pytest.mark.parametrize(
    ("words", "call", "expected"),
    [
        ("--save_stepss 100", "parse_args_into_dataclasses()", ["write save_steps"]),
        ("--warmup_ration 0.1", "parse_args_into_dataclasses()", ["write warmup_ratio"]),
        ("--learning_rat 1e-5", "parse_args_into_dataclasses()", []),
        ("--save_stepss 100", "parse_args_into_dataclasses(return_remaining_strings=True)", []),
        ("--save_stepss 100", "parse_known_args()", []),
    ],
)
def test_names_on_a_line(
    words: str, call: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What lies deeper than was looked has no say in the fields of a dataclass."""
    files = {
        "train.py": HF.format(call=call),
        "far.py": "import far2\nfar2.Trainer\n",
        "far2.py": "import far3\nfar3.Trainer\n",
        "far3.py": "import far4\nfar4.Trainer\n",
        "far4.py": "",
        "run.sh": f"torchrun --nproc_per_node 2 train.py --output_dir out {words}\n",
    }
    _, diagnostics = linted(tmp_path, files, monkeypatch)
    assert [one.help for one in diagnostics if one.code == "ZC841"] == expected


@pytest.mark.parametrize(
    ("script", "said"),
    [
        # alignment's src/alignment/configs.py: a YAML file as the first word, options after it override its keys
        ("from alignment import H4ArgumentParser\nparser = H4ArgumentParser((DPOConfig,))\nargs = parser.parse()\n",
         {"per_device_train_batch_size": "4", "beta": "0.5", "prompt": "alpaca"}),
        ("from trl import DPOConfig\nargs = DPOConfig(output_dir='out', per_device_train_batch_size=2)\n",
         {"per_device_train_batch_size": 2, "output_dir": "out", "prompt": "alpaca"}),
    ],
)  # fmt: skip
def test_options_beside_a_recipe_that_an_unknown_parser_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, said: dict[str, object]
) -> None:
    """The recipe lacks `max_steps`: whose option that is nobody knows."""
    words = "--per_device_train_batch_size=4 --beta=0.5 --prompt=alpaca --max_steps=7"
    files = {
        "train.py": f"from trl import DPOTrainer\n{script}DPOTrainer(args=args)\n",
        "recipe.yaml": RECIPE,
        "run.sh": f"accelerate launch --num_processes 2 train.py recipe.yaml {words}\n",
    }
    (run, *_), _ = linted(tmp_path, files, monkeypatch)
    assert run.recipe is not None
    assert {name: one.value for name, one in run.arguments.items()} == said
