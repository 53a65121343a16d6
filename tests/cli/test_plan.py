"""``zerocfg plan``: what a user sees of a prediction."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from tests.conftest import ROOT

Cli = Callable[..., Outcome]
EXAMPLES = ROOT / "examples"

SPEC = (
    "version: 1\nruns:\n  sft:\n    consumer: deepspeed\n    script: train.py\n    deepspeed: ds.json\n"
    "    model: {model}\n    hardware: {hardware}\n{more}"
)
DS = '{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": %d}}'
INLINE = (
    "{parameters: 6738415616, hidden_size: 4096, num_hidden_layers: 32, num_attention_heads: 32, "
    "num_key_value_heads: 32, intermediate_size: 11008, vocab_size: 32000, largest_parameter: 131072000}"
)


def job(folder: Path, stage: int = 2, hardware: str = "8xA100-80GB", model: str = INLINE, more: str = "") -> None:
    (folder / "train.py").write_text("")
    (folder / "ds.json").write_text(DS % stage)
    (folder / "zerocfg.yaml").write_text(SPEC.format(model=model, hardware=hardware, more=more))


def test_terms_figures_and_a_verdict(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, more="    sequence_length: 4096\n    gradient_checkpointing: true\n    price_per_hour: 2\n")
    found = zerocfg("plan", ".", "--no-trace")
    assert found.code == 0, found.err
    for text in (
        "sft: deepspeed on 8xA100-80GB, ZeRO-2, bf16",
        "micro batch 4 x 4096 tokens, gradient checkpointing, sdpa attention",
        "forward+backward",
        "master weights",
        "torch.cuda.max_memory_allocated",
        "nvidia-smi",
        "tokens/s",
        "for 1e9 tokens",
    ):
        assert text in found.out, found.out
    (shown,) = re.findall(r"^  device +(.*): what nvidia-smi", found.out, re.M)
    assert re.search(rf"^  verdict    fits: >?9\d%, needs {shown}, the card has 79.1$", found.out, re.M)


def test_what_does_not_fit_gets_the_cheapest_way_out(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, stage=0, hardware="8xA100-40GB", more="    sequence_length: 4096\n")
    found = zerocfg("plan", ".", "--no-trace")
    assert found.code == 1
    (least,) = re.findall(r"^  device +([\d.]+) to [\d.]+ GiB: what nvidia-smi", found.out, re.M)
    assert f"  verdict    does not fit: needs at least {least} GiB, the card has 39.4\n" in found.out
    assert "the cheapest way to make it fit:" in found.out
    assert re.search(r"GiB  fits: 9\d% +ZeRO stage 3", found.out)


def test_json_holds_every_term_with_its_source(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, stage=3, more="    sequence_length: 2048\n")
    data = json.loads(zerocfg("plan", ".", "--no-trace", "--output-format", "json").out)
    assert data["unit"] == "bytes"
    run = data["runs"][0]
    assert run["verdict"] == "likely" and 0.5 <= run["chance"] < 0.95 and run["complete"]
    assert all(plan["chance"] is not None for plan in run["plans"])
    assert run["allocated"]["low"] <= run["allocated"]["expected"] <= run["allocated"]["high"]
    phases = run["phases"]
    assert list(phases) == ["init", "forward+backward", "step", "save"]
    assert run["allocated"]["expected"] == max(phase["size"] for phase in phases.values())
    for phase in phases.values():
        assert phase["size"] == sum(term["size"] for term in phase["terms"])
        assert all(term["source"] for term in phase["terms"])
    assert run["time"]["seconds"]["low"] <= run["time"]["seconds"]["high"]


def test_an_unknown_length_leaves_activations_out_and_says_so(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path)
    found = zerocfg("plan", ".", "--no-trace")
    assert found.code == 3
    assert "sequence_length" in found.out and "at least" in found.out and "not known without activations" in found.out


def test_an_unknown_model_is_told_in_words(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, model="{hidden_size: 64}", more="    sequence_length: 128\n")
    found = zerocfg("plan", ".", "--no-trace")
    assert "nothing can be predicted: the number of parameters is not known" in found.out
    assert "Traceback" not in found.out + found.err


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["nowhere"], "there is no file"),
        ([".", "--run", "other"], "no run 'other'"),
        ([".", "--hardware", "8xNope"], "unknown accelerator"),
    ],
)
def test_wrong_use(zerocfg: Cli, tmp_path: Path, words: list[str], text: str) -> None:
    job(tmp_path)
    found = zerocfg("plan", *words)
    assert found.code == 2 and text in found.err


def test_a_python_without_torch_falls_back_to_the_formula(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama", "num_hidden_layers": 4}')
    job(tmp_path, model="config.json", more="    sequence_length: 512\n")
    found = zerocfg("plan", ".", "--python", "/nowhere/python")
    assert found.code == 0
    assert "activations are not traced: /nowhere/python cannot be started" in found.out
    assert "verdict    fits" in found.out


@pytest.mark.libs
def test_a_traced_run(zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "config.json").write_text('{"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 40}')
    job(tmp_path, model="config.json", more="    sequence_length: 512\n")
    data = json.loads(zerocfg("plan", ".", "--output-format", "json").out)
    sources = {term["source"] for term in data["runs"][0]["phases"]["forward+backward"]["terms"]}
    assert any(source.startswith("traced at ") for source in sources)
    assert list((tmp_path / "cache" / "zerocfg" / "traces").iterdir())


LENGTH, SHORTER = "    sequence_length: 4096\n", "    sequence_length: 3392\n"
RECOMPUTED = "    gradient_checkpointing: true\n"


def judged(zerocfg: Cli, folder: Path, *options: str) -> tuple[int, dict[str, Any]]:
    found = zerocfg("plan", str(folder), "--no-trace", "--output-format", "json", *options)
    run: dict[str, Any] = json.loads(found.out)["runs"][0]
    return found.code, run


@pytest.mark.parametrize(
    ("stage", "hardware", "more", "word", "code"),
    [
        (3, "8xA100-80GB", LENGTH + RECOMPUTED, "fits", 0),
        (2, "8xA100-40GB", LENGTH + RECOMPUTED, "likely", 0),
        (3, "8xA100-80GB", SHORTER, "unlikely", 1),
        (3, "8xA100-80GB", LENGTH, "does not fit", 1),
        (0, "8xA100-80GB", LENGTH, "does not fit", 1),
    ],
)
def test_what_is_more_likely_not_to_fit_ends_with_1(
    stage: int, hardware: str, more: str, word: str, code: int, zerocfg: Cli, tmp_path: Path
) -> None:
    """7B, a micro batch of 4 samples."""
    job(tmp_path, stage=stage, hardware=hardware, more=more)
    found, run = judged(zerocfg, tmp_path)
    assert (found, run["verdict"]) == (code, word)
    # The chance is that of Student's t with two degrees of freedom, on the band that is printed.
    band = run["device"]
    scale = math.log(band["high"] / band["expected"]) / 2.919986
    x = math.log(run["capacity"] / band["expected"]) / scale
    assert run["chance"] == pytest.approx(0.5 + x / (2 * math.sqrt(2 + x * x)), abs=1e-5)


def test_a_chance_that_is_asked_for(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, hardware="8xA100-40GB", more=LENGTH + RECOMPUTED)
    _, run = judged(zerocfg, tmp_path)
    percent = int(100 * run["chance"])
    assert 50 < percent < 95
    assert judged(zerocfg, tmp_path, "--fail-below", str(percent))[0] == 0
    assert judged(zerocfg, tmp_path, "--fail-below", str(percent + 1))[0] == 1


def test_less_may_be_asked_for_and_what_is_not_known_is_not_enough(zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path, stage=3, more=SHORTER)
    code, run = judged(zerocfg, tmp_path, "--fail-below", "5")
    assert (code, run["verdict"]) == (0, "unlikely") and run["chance"] > 0.05
    (tmp_path / "unknown").mkdir()
    job(tmp_path / "unknown")
    code, run = judged(zerocfg, tmp_path / "unknown")
    assert (code, run["verdict"], run["chance"]) == (3, "unknown", None)
    assert judged(zerocfg, tmp_path / "unknown", "--fail-below", "1")[0] == 1


@pytest.mark.parametrize("percent", ["0", "100", "half"])
def test_a_chance_that_nothing_can_have(percent: str, zerocfg: Cli, tmp_path: Path) -> None:
    job(tmp_path)
    assert zerocfg("plan", str(tmp_path), "--fail-below", percent).code == 2
