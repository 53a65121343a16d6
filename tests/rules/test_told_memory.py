"""What the rules are told of a run's memory: what no file says is taken as it costs least, and as libraries do it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.resolve.facts import with_facts
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs

from .examples import inside

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.run.facts import MemorySummary

LLAMA = """{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
 "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "dtype": "bfloat16"}
"""
DS = """{"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2%s}}
"""
RECIPE = "output_dir: out\nper_device_train_batch_size: 4\nbf16: true\nmax_steps: 2\n"


def told(
    folder: Path, *said: str, consumer: str = "deepspeed", zero: str = "", recipe: str = "", model: str = "config.json"
) -> MemorySummary:
    lines = ["version: 1", "runs:", "  sft:", f"    consumer: {consumer}", "    script: train.py"]
    lines += ["    deepspeed: ds.json", f"    model: {model}", "    hardware: 8xA100-80GB"]
    lines += ["    recipe: recipe.yaml"] * bool(recipe) + [f"    {line}" for line in said]
    files = {"zerocfg.yaml": "\n".join(lines) + "\n", "train.py": "pass\n", "config.json": LLAMA, "ds.json": DS % zero}
    for name, text in {**files, **({"recipe.yaml": recipe} if recipe else {})}.items():
        (folder / name).write_text(text)
    found = Files()
    with inside(folder):
        runs, _ = find_runs([folder], found, root=folder)
        (run,) = [one for one in with_facts(runs, found) if one.spec is not None]
    assert run.memory is not None
    return run.memory


def test_states_of_eight_billion_parameters(tmp_path: Path) -> None:
    """2 bytes a parameter and an eighth of 12, 8,030,261,248 times."""
    memory = told(tmp_path)
    assert memory.resting_gib == pytest.approx((2 + 12 / 8) * 8_030_261_248 / 2**30, rel=0.001)
    assert memory.peak_gib is None, "nothing says how long the sequences are"


def test_what_the_script_decides_widens_the_band(tmp_path: Path) -> None:
    open_end = told(tmp_path, "sequence_length: 4096").peak_gib
    dear = told(tmp_path, "sequence_length: 4096", "gradient_checkpointing: false", "fused_loss: false").peak_gib
    cheap = told(tmp_path, "sequence_length: 4096", "gradient_checkpointing: true", "fused_loss: true").peak_gib
    assert open_end is not None and dear is not None and cheap is not None
    assert open_end == (cheap[0], dear[1])
    assert cheap[1] < dear[0]


def test_a_recipe_decides_for_itself(tmp_path: Path) -> None:
    memory = told(tmp_path, "sequence_length: 4096", consumer="transformers", recipe=RECIPE)
    assert memory.peak_gib is not None
    assert memory.peak_gib[0] > 100, "no gradient checkpointing, and all logits"
    assert memory.logits_gib == pytest.approx(4 * 4096 * 128256 * 12 / 2**30)


def test_trl_holds_no_logits(tmp_path: Path) -> None:
    memory = told(tmp_path, "sequence_length: 4096", consumer="trl", recipe=RECIPE)
    assert memory.logits_gib == 0


def test_twice_the_micro_batch_takes_more(tmp_path: Path) -> None:
    memory = told(tmp_path, "sequence_length: 4096")
    assert memory.peak_gib is not None and memory.doubled_peak_gib is not None
    assert memory.doubled_peak_gib[1] > memory.peak_gib[1]
    assert memory.stage_peaks_gib[2] == memory.peak_gib


def test_parameters_alone_have_no_peak(tmp_path: Path) -> None:
    """Of tensors whose sizes are not known nobody can say what is held at a time."""
    memory = told(tmp_path, "sequence_length: 4096", model="{parameters: 7e9, hidden_size: 4096}")
    assert memory.resting_gib is not None
    assert memory.step_gib is None and memory.peak_gib is None and memory.stage_peaks_gib == {}


@pytest.mark.parametrize(("pinned", "rounded"), [("true", True), ("false", False)])
def test_pinned_blocks_are_rounded(tmp_path: Path, pinned: str, rounded: bool) -> None:
    offload = f', "offload_optimizer": {{"device": "cpu", "pin_memory": {pinned}}}'
    memory = told(tmp_path, zero=offload)
    assert memory.host_states_gib is not None
    assert (memory.pinned_rounding_gib > 1) is rounded
    assert memory.host_states_gib - memory.pinned_rounding_gib == pytest.approx(18 * 8_030_261_248 / 2**30, rel=0.06)


def test_an_unknown_device_is_not_guessed(tmp_path: Path) -> None:
    memory = told(tmp_path, zero=', "offload_optimizer": {"device": "tape"}')
    assert memory.resting_gib is None and memory.states_gib


def test_the_making_of_the_engine_does_not_count(tmp_path: Path) -> None:
    """Offloaded, stage 2 keeps 2 bytes a parameter. Twice that is on the device only where there is room for it:
    DeepSpeed puts the parameters together on the host otherwise."""
    zero = ', "reduce_bucket_size": 10000000, "offload_optimizer": {"device": "cpu"}'
    said = ("sequence_length: 128", "gradient_checkpointing: true", "fused_loss: true")
    memory = told(tmp_path, *said, zero=zero)
    assert memory.peak_gib is not None
    assert memory.peak_gib[0] < 1.5 * 2 * 8_030_261_248 / 2**30
