"""A key of another program is renamed, with its value in the form that is read; it is never simply removed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.parity.foreign import FOREIGN, Foreign
from tests.rules.examples import lint
from zerocfg.linter.selection import Selection
from zerocfg.source.edit import apply_edits

CODES = ("ZC101", "ZC103", "ZC115", "ZC841")


def document(row: Foreign) -> dict[str, Any]:
    """The file with the key in it, and without the one that it becomes."""
    bases: dict[str, dict[str, Any]] = {
        "deepspeed": {
            "train_micro_batch_size_per_gpu": 1,
            "zero_optimization": {"overlap_comm": False},
            "optimizer": {"type": "AdamW", "params": {"betas": [0.9, 0.99]}},
            "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 0}},
        },
        "accelerate": {
            "distributed_type": "DEEPSPEED",
            "num_processes": 8,
            "deepspeed_config": {"offload_optimizer_nvme_path": "x"},
        },
        "training": {
            "output_dir": "out",
            "per_device_train_batch_size": 1,
            "max_steps": 2,
            "learning_rate": 5.0e-5,
            "save_strategy": "no",
        },
    }
    data = bases[row.here]
    if row.fsdp is not None:
        data |= {"fsdp": True, "fsdp_config": {"version": row.fsdp, "min_num_params": 10, "sync_module_states": True}}
    taken, name = data, row.becomes[0]
    for part in name[:-1]:
        taken = taken.get(part, {})
    taken.pop(name[-1], None)
    into = data
    for part in row.at[:-1]:
        into = into[part]
    into[row.at[-1]] = row.value
    return data


def fixed(row: Foreign, folder: Path) -> tuple[str, dict[str, Any]]:
    """What the linter advises, and the file after its fix."""
    name = {"deepspeed": "ds.json", "accelerate": "accelerate.yaml", "training": "recipe.yaml"}[row.here]
    data = document(row)
    (folder / name).write_text(json.dumps(data, indent=1) if row.here == "deepspeed" else yaml.safe_dump(data))
    consumer = {"deepspeed": "deepspeed", "accelerate": "accelerate", "training": "transformers"}[row.here]
    found = lint(folder, consumer, Selection(select=CODES)).diagnostics
    (one,) = [diagnostic for diagnostic in found if diagnostic.span.path == ".".join(row.at)]
    assert one.fix is not None and not one.fix.safe, "it begins to count"
    ((file, _), *_) = one.fix.edits
    text = apply_edits(file.source.text, [edit for _, edit in one.fix.edits])
    return str(one.help), json.loads(text) if row.here == "deepspeed" else yaml.safe_load(text)


@pytest.mark.parametrize("row", [pytest.param(row, id=row.id) for row in FOREIGN])
def test_it_gets_the_name_that_is_read_and_the_value_in_its_form(row: Foreign, tmp_path: Path) -> None:
    advice, after = fixed(row, tmp_path)
    path, value = row.becomes
    held: Any = after
    for part in path:
        held = held[part]
    assert held == value and type(held) is type(value)
    gone: Any = after
    for part in row.at[:-1]:
        gone = gone.get(part, {})
    assert path[: len(row.at)] == row.at or row.at[-1] not in gone
    assert path[-1] in advice


def test_a_section_of_deepspeed_in_an_accelerate_config(tmp_path: Path) -> None:
    """Which of its keys accelerate has there under another name, in the section above, or not at all."""
    section = "{stage: 3, zero3_init_flag: true, overlap_comm: true, offload_optimizer: {pin_memory: true}}"
    text = f"distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_optimization: {section}\n"
    (tmp_path / "accelerate.yaml").write_text(text)
    (found,) = lint(tmp_path, "accelerate", Selection(select=("ZC103",))).diagnostics
    assert found.help == (
        "write `zero_stage: 3` and write `zero3_init_flag` in `deepspeed_config` itself; accelerate has no key for "
        "`overlap_comm`, `pin_memory`, which a DeepSpeed JSON has"
    )
    (tmp_path / "accelerate.yaml").write_text(text.replace(section, "{stage: 3}"))
    (found,) = lint(tmp_path, "accelerate", Selection(select=("ZC103",))).diagnostics
    assert found.help == "write `zero_stage: 3`"


def test_a_key_that_is_near_one_that_is_written(tmp_path: Path) -> None:
    """Under its name the section would hold it twice."""
    section: dict[str, Any] = {"stage": 1, "allreduce_bucket_size": 5, "reduce_bucket_size": 5}
    (tmp_path / "ds.json").write_text(json.dumps({"train_batch_size": 1, "zero_optimization": section}, indent=1))
    (found,) = lint(tmp_path, "deepspeed", Selection(select=("ZC101",))).diagnostics
    assert found.help == "remove it: `reduce_bucket_size` is written too" and found.fix is not None
    del section["reduce_bucket_size"]
    (tmp_path / "ds.json").write_text(json.dumps({"train_batch_size": 1, "zero_optimization": section}, indent=1))
    (found,) = lint(tmp_path, "deepspeed", Selection(select=("ZC101",))).diagnostics
    assert found.help == "did you mean `reduce_bucket_size`?"
