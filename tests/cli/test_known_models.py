"""Names of well-known models, offline: `plan MODEL`, and `init --model` followed by `build`, take the same ones."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Outcome
from zerocfg.catalog.known_models import known_config, known_names, nearest_names
from zerocfg.models.model_facts import from_config

Zerocfg = Callable[..., Outcome]
TRAINER = "from transformers import Trainer\n\nif __name__ == '__main__':\n    Trainer().train()\n"
DOZEN = {
    "CohereForAI/aya-23-8B": "8xH100-80GB",
    "HuggingFaceTB/SmolLM3-3B": "8xA100-80GB",
    "Qwen/Qwen2.5-VL-7B-Instruct": "8xH100-80GB",
    "Qwen/Qwen3-32B": "4x8xH100-80GB",
    "Qwen/Qwen3-30B-A3B": "4x8xH100-80GB",
    "allenai/OLMo-2-1124-7B": "8xH100-80GB",
    "bigcode/starcoder2-7b": "8xH100-80GB",
    "deepseek-ai/DeepSeek-V2-Lite": "2x8xH100-80GB",
    "google/gemma-2-9b-it": "8xH100-80GB",
    "ibm-granite/granite-3.1-2b-instruct": "8xA100-80GB",
    "meta-llama/Llama-3.3-70B-Instruct": "8x8xH100-80GB",
    "openai/gpt-oss-20b": "4x8xH100-80GB",
}


@pytest.fixture(autouse=True)
def empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-hub"))


@pytest.mark.parametrize("name", DOZEN)
def test_a_name_is_planned_and_built_offline(zerocfg: Zerocfg, name: str) -> None:
    config = known_config(name)
    assert config is not None
    planned = zerocfg("plan", name, "--hardware", DOZEN[name], "--output-format", "json")
    assert planned.code in (0, 3), planned.out + planned.err  # 3: a plan, and parts that are not modelled
    assert json.loads(planned.out)["plans"]

    Path("train.py").write_text(TRAINER)
    Path("recipe.yaml").write_text("output_dir: out\nmax_steps: 100\nbf16: true\n")
    words = ("--consumer", "transformers", "--script", "train.py", "--recipe", "recipe.yaml", "--model", name)
    drafted = zerocfg("init", *words, "--hardware", DOZEN[name], "--sequence-length", "1024")
    assert drafted.code == 0 and "note:" not in drafted.err, drafted.err
    spec = yaml.safe_load(Path("zerocfg.yaml").read_text())
    (run,) = spec["runs"].values()
    assert run["model"] == name
    run["goals"] = {"global_batch_size": 64}  # the stage is left to zerocfg
    Path("zerocfg.yaml").write_text(yaml.safe_dump(spec))
    built = zerocfg("build", ".", "-o", "built")
    assert built.code == 0, built.out + built.err
    (lock,) = Path("built").rglob("*.lock*")
    facts = json.loads(lock.read_text())["model"]["facts"]
    assert facts["parameters"] == from_config(config).parameters


def test_every_family_of_the_table_is_among_those_that_are_counted() -> None:
    counted = {name: from_config(known_config(name) or {}) for name in known_names()}
    assert all(facts.parameters and facts.layout for facts in counted.values())


ZERO_3 = {
    "train_batch_size": "auto",
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "bf16": {"enabled": True},
    "zero_optimization": {
        "stage": 3,
        "stage3_gather_16bit_weights_on_model_save": True,
        "offload_optimizer": {"device": "cpu"},
        "offload_param": {"device": "cpu"},
    },
}
"""With which a rank of 512 has room for a part of every model, so that no build has to search."""


def write_job(folder: Path) -> tuple[str, ...]:
    """The files of a job of the Trainer, and the words of ``init`` that name them."""
    (folder / "train.py").write_text(TRAINER)
    recipe = (
        "output_dir: out\nmax_steps: 100\nbf16: true\nper_device_train_batch_size: 1\ngradient_checkpointing: true\n"
    )
    (folder / "recipe.yaml").write_text(recipe)
    (folder / "ds.json").write_text(json.dumps(ZERO_3))
    files = ("--script", "train.py", "--recipe", "recipe.yaml", "--deepspeed", "ds.json")
    return ("--consumer", "transformers", *files, "--hardware", "64x8xH200-141GB", "--sequence-length", "1024")


def assert_built(name: str, folder: Path) -> None:
    """A folder holds the build of a job of the named model, with all parameters of its published config."""
    (run,) = yaml.safe_load((folder / "zerocfg.yaml").read_text())["runs"].values()
    assert run["model"] == name
    (lock,) = (folder / "built").rglob("*.lock*")
    config = known_config(name)
    assert config is not None
    model = json.loads(lock.read_text())["model"]
    assert model["facts"]["parameters"] == from_config(config).parameters


@pytest.mark.parametrize("name", known_names())
def test_every_name_is_built_as_init_drafts_it(zerocfg: Zerocfg, name: str) -> None:
    drafted = zerocfg("init", "--model", name, *write_job(Path.cwd()))
    assert drafted.code == 0 and "note:" not in drafted.err, drafted.err
    built = zerocfg("build", ".", "-o", "built")
    assert built.code == 0, built.out + built.err
    assert_built(name, Path.cwd())


@pytest.mark.parametrize(
    "name", ["Qwen/Qwen3-VL-8B-Instruct", "zai-org/GLM-5.2", "meta-llama/Llama-4-Scout-17B-16E-Instruct"]
)
def test_a_name_is_built_by_the_installed_command(name: str, tmp_path: Path) -> None:
    words = write_job(tmp_path)
    for command in (("init", "--model", name, *words), ("build", ".", "-o", "built")):
        ran = subprocess.run(
            [sys.executable, "-m", "zerocfg", *command], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
    assert_built(name, tmp_path)


TYPOS = {
    "Qwen/Qwen3-VL-8B-Instrct": "Qwen/Qwen3-VL-8B-Instruct",
    "meta-llama/Lama-3.3-70B-Instruct": "meta-llama/Llama-3.3-70B-Instruct",
    "meta-llama/Llama-4-Scout-17B-16": "meta-llama/Llama-4-Scout-17B-16E-Instruct",
    "google/gemma3-12b-it": "google/gemma-3-12b-it",
    "deepseek-ai/DeepSeek-V32": "deepseek-ai/DeepSeek-V3.2",
    "mistralai/Mixtral-8x7-v0.1": "mistralai/Mixtral-8x7B-v0.1",
    "allenai/Olmo3-1025-7B": "allenai/Olmo-3-1025-7B",
    "openai/gptoss-120b": "openai/gpt-oss-120b",
    "microsoft/phi4": "microsoft/phi-4",
    "zai-org/GLM4.5-Air": "zai-org/GLM-4.5-Air",
}


@pytest.mark.parametrize("typo", TYPOS)
def test_a_typo_is_answered_with_the_name_that_was_meant(zerocfg: Zerocfg, typo: str) -> None:
    assert TYPOS[typo] in known_names() and nearest_names(typo)[0] == TYPOS[typo]
    planned = zerocfg("plan", typo, "--hardware", "8xA100-80GB")
    assert planned.code == 2 and f"The nearest known: {TYPOS[typo]}" in planned.err


NEAREST = "nearest known: meta-llama/Llama-3.1-8B, meta-llama/Meta-Llama-3-8B, meta-llama/Llama-3.1-70B."


def test_an_unknown_name_lists_the_nearest_wherever_it_is_written(zerocfg: Zerocfg) -> None:
    planned = zerocfg("plan", "meta-llama/Llama-3.1-8c", "--hardware", "8xA100-80GB")
    assert planned.code == 2 and NEAREST in planned.err
    Path("train.py").write_text(TRAINER)
    words = ("--consumer", "transformers", "--script", "train.py", "--hardware", "8xA100-80GB")
    drafted = zerocfg("init", *words, "--model", "meta-llama/Llama-3.1-8c")
    assert drafted.code == 0 and NEAREST in drafted.err
    built = zerocfg("build", ".", "-o", "built")
    assert built.code == 1 and NEAREST in " ".join((built.out + built.err).split())


def test_a_config_of_ones_own_wins_over_the_table(zerocfg: Zerocfg, tmp_path: Path) -> None:
    own = Path("Qwen") / "Qwen3-0.6B"
    own.mkdir(parents=True)
    (own / "config.json").write_text(json.dumps(known_config("Qwen/Qwen3-1.7B")))
    found = zerocfg("plan", "Qwen/Qwen3-0.6B", "--hardware", "8xA100-80GB")
    assert found.out.splitlines()[0].endswith("1,720,574,976 parameters (config.json)")
