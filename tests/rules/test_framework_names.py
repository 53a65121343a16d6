"""ZC121: arguments that no release of LLaMA-Factory or ms-swift has; and the facts that it rests on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tools.facts.recipe_names import names
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import release
from zerocfg.cli.main import cli

FACTORY = {
    "sft.yaml": "model_name_or_path: org/name\nstage: sft\ndo_train: true\nfinetuning_type: lora\nlora_rank: 8\n"
    "dataset: alpaca\ntemplate: qwen\noutput_dir: out\n",
    "run.sh": "llamafactory-cli train sft.yaml\n",
}
SWIFT_LINE = "swift sft --model org/name --tuner_type lora --dataset a --lora_rank 8 --max_length 2048 --output_dir out"
SWIFT = {"run.sh": f"{SWIFT_LINE}\n"}
SWIFT_RECIPE = {
    "sft.yaml": "model: org/name\ntuner_type: lora\ndataset: alpaca\nlora_rank: 8\nmax_length: 2048\noutput_dir: out\n",
    "run.sh": "swift sft sft.yaml\n",
}


def _findings(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: dict[str, str], *more: dict[str, str]
) -> list[dict[str, Any]]:
    (folder / ".git").mkdir()
    monkeypatch.chdir(folder)
    for one in (files, *more):
        for name, text in one.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
    done = CliRunner().invoke(cli, ["lint", "--select", "ZC121", "--output-format", "json", "--no-cache"])
    found: list[dict[str, Any]] = json.loads(done.stdout)["diagnostics"]
    return found


def _edited(files: dict[str, str], name: str, old: str, new: str) -> dict[str, str]:
    assert old in files[name]
    return {**files, name: files[name].replace(old, new)}


MISTAKES = {
    "a key of LLaMA-Factory": (
        *(_edited(FACTORY, "sft.yaml", "lora_rank", "lora_ranks"), "sft.yaml", 5, "LLaMA-Factory", "lora_ranks"),
        *("Some keys are not used by the HfArgumentParser", "did you mean `lora_rank`?"),
    ),
    "a key that the Trainer has": (
        *(_edited(FACTORY, "sft.yaml", "output_dir", "output_dirs"), "sft.yaml", 8, "LLaMA-Factory", "output_dirs"),
        *("Some keys are not used by the HfArgumentParser", "did you mean `output_dir`?"),
    ),
    "an option of ms-swift": (
        *(_edited(SWIFT, "run.sh", "lora_rank", "lora_ranks"), "run.sh", 1, "ms-swift", "lora_ranks"),
        *("remaining_argv", "did you mean `lora_rank`?"),
    ),
    "a key of ms-swift": (
        *(_edited(SWIFT_RECIPE, "sft.yaml", "max_length", "max_lenght"), "sft.yaml", 5, "ms-swift", "max_lenght"),
        *("remaining_argv", "did you mean `max_length`?"),
    ),
}


@pytest.mark.parametrize("what", MISTAKES)
def test_an_argument_of_no_release(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, file, line, called, name, stops, help = MISTAKES[what]
    (found,) = _findings(tmp_path, monkeypatch, files)
    assert (found["code"], found["severity"], found["file"], found["start"]["line"]) == ("ZC121", "error", file, line)
    assert f"{called} has no argument `{name}` in any release (" in found["message"] and stops in found["message"]
    assert found["help"] == help


def test_a_name_without_a_near_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer release may have it, unless the project admits none."""
    files = _edited(FACTORY, "sft.yaml", "dataset:", "zigzag_weaving: 3\ndataset:")
    pinned = {"requirements.txt": "llamafactory==0.9.3\n"}
    (found,) = _findings(tmp_path, monkeypatch, files, pinned)
    assert "`zigzag_weaving`" in found["message"] and found["help"] == "leave it out" and found["fix"] is None


def test_the_name_that_was_meant_is_written_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (found,) = _findings(tmp_path, monkeypatch, _edited(FACTORY, "sft.yaml", "dataset:", "lora_ranks: 8\ndataset:"))
    assert found["help"] == "leave it out" and found["fix"] is None


GOOD: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "as it is": (FACTORY, {}),
    "ms-swift as it is": (SWIFT, {}),
    "an argument of older releases": (_edited(FACTORY, "sft.yaml", "dataset:", "max_source_length: 3\ndataset:"), {}),
    "an argument of older releases of ms-swift": (_edited(SWIFT, "run.sh", "--tuner_type lora", "--sft_type lora"), {}),
    "an argument of Seq2SeqTrainingArguments": (
        _edited(FACTORY, "sft.yaml", "dataset:", "predict_with_generate: true\ndataset:"),
        {},
    ),
    "an abbreviation of an option": (_edited(SWIFT, "run.sh", "--lora_rank", "--lora_ran"), {}),
    "a negated switch": (_edited(SWIFT, "run.sh", "--lora_rank 8", "--no_remove_unused_columns"), {}),
    "dashes": (_edited(SWIFT, "run.sh", "--lora_rank", "--lora-rank"), {}),
    "nothing near and no release stated": (_edited(FACTORY, "sft.yaml", "lora_rank", "zigzag_weaving"), {}),
    "nothing near and a newer release admitted": (
        _edited(FACTORY, "sft.yaml", "lora_rank", "zigzag_weaving"),
        {"requirements.txt": "llamafactory>=0.9.3\n"},
    ),
    "names that nobody checks": (
        _edited(FACTORY, "run.sh", "llama", "ALLOW_EXTRA_ARGS=1 llama")
        | {"sft.yaml": FACTORY["sft.yaml"] + "lora_ranks: 8\n"},
        {},
    ),
    "errors of names that are ignored": (
        _edited(SWIFT, "run.sh", "--lora_rank", "--ignore_args_error true --lora_ranks"),
        {},
    ),
    "a copy of the framework": (
        _edited(FACTORY, "sft.yaml", "lora_rank", "lora_ranks"),
        {"src/llamafactory/__init__.py": "", "src/llamafactory/hparams/__init__.py": ""},
    ),
    "more than a fifth is unknown": (
        _edited(FACTORY, "sft.yaml", "lora_rank: 8", "lora_ranks: 8\nlora_alphas: 8\ndataset_names: b"),
        {},
    ),
}


@pytest.mark.parametrize("what", GOOD)
def test_nothing_is_said(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert _findings(tmp_path, monkeypatch, *GOOD[what]) == []


@pytest.mark.parametrize(
    ("package", "name", "there", "absent"),
    [
        # looked up in the tags of the repositories
        ("llamafactory", "use_muon", "0.9.5", "0.9.2"),
        ("llamafactory", "use_galore", "0.7.0", "0.5.0"),
        ("llamafactory", "cutoff_len", "0.5.0", "0.1.0"),
        ("ms-swift", "tuner_type", "4.0.0", "3.12.6"),
        ("ms-swift", "train_type", "4.0.0", "4.5.2"),
        ("ms-swift", "sft_type", "2.6.1", "3.0.0"),
    ],
)
def test_facts_as_in_the_tags(package: str, name: str, there: str, absent: str) -> None:
    known = histories(package)
    assert known.state(name, release(there)) == {}
    assert known.state(name, release(absent)) is None


def test_names_of_a_release() -> None:
    arguments = "@dataclass\nclass ModelArguments(Base):\n    rank: int = field(default=8)\n    old = 3\n\nX = 'word'\n"
    files = {
        "src/llamafactory/hparams/model_args.py": arguments,
        "src/llamafactory/data/template.py": "@dataclass\nclass Template:\n    prefix: str\n\nY = 'unseen'\n",
        "setup.py": "class Z:\n    outside: int\n",
        "examples/a.yaml": "stage: sft\n  # c: d\n",
        "README.md": "train --flag-of-line 3\n",
        "src/llamafactory/hparams/broken.py": "class (",
    }
    known, mentioned = names("llamafactory", files)
    assert known == {"rank"}
    assert mentioned == {"rank", "word", "prefix", "stage", "flag_of_line"}
