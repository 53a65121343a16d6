"""Names of well-known models, offline: `plan MODEL`, and `init --model` followed by `build`, take the same ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.cli.conftest import Outcome
from zerocfg.catalog.known_models import known_config, known_names
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
