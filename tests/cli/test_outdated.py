"""Nothing is said by the newest release of a library where a script imports what that release does not have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome

Cli = Callable[..., Outcome]

TRAIN = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
{above}

def main():
    {within}
    (args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
    Trainer(model=None, args=args, train_dataset=[1]).train()


main()
"""
LINE = "torchrun --nproc_per_node 2 train.py --output_dir o --evaluation_strategy no\n"
"""transformers 5 has no such option: ZC801."""
LOST = "from transformers.trainer import ALL_LAYERNORM_LAYERS"
SAID = (
    " No file tells the release of transformers, and train.py:2:34 imports "
    "`transformers.trainer.ALL_LAYERNORM_LAYERS`, which 5.23.0 does not have: "
    "what depends on the release was not checked."
)


NOT_THE_IMPORT = ("--ignore", "ZC876")
"""Which is told by a rule of its own."""


def project(folder: Path, above: str = "", within: str = "pass", **files: str) -> None:
    (folder / "train.py").write_text(TRAIN.format(above=above, within=within))
    (folder / "train.sh").write_text(LINE)
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_txt", ".txt").replace("_py", ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)


def found(zerocfg: Cli) -> tuple[list[tuple[str, str]], dict[str, str]]:
    """Codes with their severities, and what is assumed."""
    data = json.loads(zerocfg("lint", *NOT_THE_IMPORT, "--output-format", "json").out)
    return [(item["code"], item["severity"]) for item in data["diagnostics"]], data["assumed"]


WARNED = ([("ZC801", "warning")], {"transformers": "5.23.0"})


def test_an_import_that_the_newest_release_refuses(zerocfg: Cli, tmp_path: Path) -> None:
    project(tmp_path)
    assert found(zerocfg) == WARNED
    project(tmp_path, LOST)
    assert found(zerocfg) == ([], {})
    assert zerocfg("lint", *NOT_THE_IMPORT).out == f"All checks passed in 1 file.{SAID}\n"
    data = json.loads(zerocfg("lint", "--output-format", "json").out)
    place = {"imports": "transformers.trainer.ALL_LAYERNORM_LAYERS", "place": "train.py:2:34"}
    assert data["outdated"] == {"transformers": place}
    shown = zerocfg("lint", "--show-runs").out
    assert "not 5.23.0: train.py:2:34 imports `transformers.trainer.ALL_LAYERNORM_LAYERS`, which that does not" in shown


@pytest.mark.parametrize(
    "above",
    [
        "from transformers.trainer import has_length, ALL_LAYERNORM_LAYERS as LAYERS",
        "import transformers.deepspeed",
        "from transformers.deepspeed import *",
        "from transformers.deepspeed import never_seen",
    ],
)
def test_ways_to_import_it(above: str, zerocfg: Cli, tmp_path: Path) -> None:
    project(tmp_path, above)
    assert found(zerocfg) == ([], {})


@pytest.mark.parametrize(
    ("above", "within"),
    [
        (f"try:\n    {LOST}\nexcept ImportError:\n    ALL_LAYERNORM_LAYERS = []", "pass"),
        (f"import transformers\nif transformers.__version__ < '5':\n    {LOST}", "pass"),
        (f"from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    {LOST}", "pass"),
        ("", LOST),
        ("from transformers.trainer import has_length", "pass"),
        ("from transformers.trainer import never_had_it", "pass"),
        ("from transformers.trainer import *", "pass"),
    ],
)
def test_imports_that_say_nothing(above: str, within: str, zerocfg: Cli, tmp_path: Path) -> None:
    """They may be meant for another release, or never run."""
    project(tmp_path, above, within)
    assert found(zerocfg) == WARNED


def test_an_import_of_another_library(zerocfg: Cli, tmp_path: Path) -> None:
    """It tells nothing of transformers, but no new install starts the script."""
    project(tmp_path, "from trl import setup_chat_format")
    assert found(zerocfg) == ([], {})
    assert zerocfg("lint", *NOT_THE_IMPORT).out == (
        "All checks passed in 1 file. A new install does not train, because train.py:2:17 imports "
        "`trl.setup_chat_format`, which the newest TRL does not have: what only some releases refuse is a note at "
        "most.\n"
    )
    data = json.loads(zerocfg("lint", "--output-format", "json").out)
    (stop,) = data["new_install"]
    assert (stop["library"], stop["imports"]) == ("trl", "trl.setup_chat_format")
    assert (stop["place"], stop["refused"], stop["clash"]) == ("train.py:2:17", "", "")


@pytest.mark.parametrize(("pin", "severities"), [("transformers==5.23.0", ["error"]), ("transformers>=4.40", [])])
def test_a_stated_release_counts(pin: str, severities: list[str], zerocfg: Cli, tmp_path: Path) -> None:
    project(tmp_path, LOST, requirements_txt=f"{pin}\n")
    assert found(zerocfg) == ([("ZC801", severity) for severity in severities], {})
    assert "No file tells" not in zerocfg("lint", *NOT_THE_IMPORT).out


def messages(zerocfg: Cli) -> list[str]:
    said = zerocfg("lint", *NOT_THE_IMPORT, "--notes", "--output-format", "json").out
    return [item["message"] for item in json.loads(said)["diagnostics"]]


def test_of_a_range_the_releases_count_that_have_the_name(zerocfg: Cli, tmp_path: Path) -> None:
    """transformers 4.53 lost it; 4.51 removed one of the arguments, and 5.15 the other."""
    both = LINE.replace(" --eval", " --warmup_ratio 0.1 --eval")
    for pin, above, count in ((">=4.40", LOST, 1), (">=4.40", "", 2), (">=4.53", LOST, 2)):
        project(tmp_path, above, requirements_txt=f"transformers{pin}\n")
        (tmp_path / "train.sh").write_text(both)
        assert len(messages(zerocfg)) == count
        if count == 1:
            assert messages(zerocfg)[0].endswith(
                "(from transformers 4.51.0 on; requirements.txt:1 and the import at train.py:2 admit >=4.40,<4.53; "
                "a new install stops before: train.py:2 imports `transformers.trainer.ALL_LAYERNORM_LAYERS`, which it "
                "does not bring)"
            )


@pytest.mark.parametrize(
    ("pin", "above", "found"),
    [
        ("trl==0.7.10", "from trl import DPOTrainer", 0),  # played: imports what transformers 4.39.3 lacks
        ("trl<0.8", "from trl import DPOTrainer", 0),
        ("trl==0.8.6", "from trl import DPOTrainer", 1),
        ("trl", "from trl import DPOTrainer", 1),
        ("trl==0.7.10", "", 1),
    ],
)
def test_what_an_old_trl_imports_bounds_transformers(
    pin: str, above: str, found: int, zerocfg: Cli, tmp_path: Path
) -> None:
    project(tmp_path, above, requirements_txt=f"transformers>=4.36\n{pin}\n")
    assert len(messages(zerocfg)) == found
    assert ("transformers >=4.36,<=4.38.2, says" in zerocfg("lint", "--show-runs").out) is (found == 0)


def test_the_settings_state_a_release(zerocfg: Cli, tmp_path: Path) -> None:
    project(tmp_path, LOST)
    (tmp_path / "pyproject.toml").write_text('[tool.zerocfg]\ntransformers = "5.23.0"\n')
    assert found(zerocfg) == ([("ZC801", "error")], {})


def test_a_module_of_the_repository_imports_it(zerocfg: Cli, tmp_path: Path) -> None:
    project(tmp_path, "from mine.losses import loss", "loss()", mine__losses_py=f"{LOST}\n\n\ndef loss():\n    pass\n")
    assert found(zerocfg) == ([], {})
    assert "mine/losses.py:1:34 imports" in zerocfg("lint", *NOT_THE_IMPORT).out


def test_a_module_that_only_a_function_imports(zerocfg: Cli, tmp_path: Path) -> None:
    text = f"{LOST}\n\n\ndef loss():\n    pass\n"
    project(tmp_path, "", "from mine.losses import loss; loss()", mine__losses_py=text)
    assert found(zerocfg) == WARNED


def test_what_no_release_takes_is_told(zerocfg: Cli, tmp_path: Path) -> None:
    project(tmp_path, LOST)
    (tmp_path / "ds.json").write_text(
        '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": "two"}}'
    )
    (tmp_path / "train.sh").write_text(LINE.replace(" --eval", " --deepspeed ds.json --eval"))
    assert [severity for _, severity in found(zerocfg)[0]] == ["error"]


@pytest.mark.parametrize(
    ("trl", "consequence"),
    [
        ("trl==1.16.0", "the parser stops at the other"),
        (
            "trl @ git+https://github.com/huggingface/trl.git@69ad852e5654a77f1695eb4c608906fe0c7e8624",
            "TrlParser stops at the other, or drops it without a word in TRL 0.13 to 0.18",
        ),
    ],
)
def test_what_a_trl_from_a_commit_makes_of_an_unknown_key(
    trl: str, consequence: str, zerocfg: Cli, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(
        "from trl import GRPOConfig, GRPOTrainer, ScriptArguments, TrlParser\n"
        "script, args = TrlParser((ScriptArguments, GRPOConfig)).parse_args_and_config()\n"
        "GRPOTrainer(model='m', args=args, train_dataset=script.dataset_name).train()\n"
    )
    (tmp_path / "c.yaml").write_text(
        "output_dir: out\nlearning_rate: 1.0e-5\nper_device_train_batch_size: 1\ndataset_configs: all\n"
    )
    (tmp_path / "run.sh").write_text("accelerate launch train.py --config c.yaml\n")
    (tmp_path / "requirements.txt").write_text(f"{trl}\n")
    data = json.loads(zerocfg("lint", "--output-format", "json").out)["diagnostics"]
    (message,) = [item["message"] for item in data if item["code"] == "ZC841"]
    assert message == f"there is no argument `dataset_configs`; `dataset_config` is one, and {consequence}"
