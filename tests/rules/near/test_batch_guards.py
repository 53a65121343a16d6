"""Near misses of the rules of accumulation and clipping that depend on the reader, and what their fixes write."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

LINE = ("train.sh: --gradient_accumulation_steps 2",)
NULL = 'ds.json: "gradient_clipping": null'
TABLE = (
    near(
        "ZC208",
        "the file leaves it to the script",
        ('{"train', '{"gradient_accumulation_steps": "auto", "train'),
        bad=2,
    ),
    near("ZC208", "the file's word is no number", ('{"train', '{"gradient_accumulation_steps": "two", "train'), bad=2),
    near("ZC208", "the file's number", ('{"train', '{"gradient_accumulation_steps": 3, "train'), bad=2)
    .finds("warning", 'ds.json: "gradient_accumulation_steps": 3', 3, 2, also=LINE)
    .becomes('{"gradient_accumulation_steps": "auto", "train'),
    near("ZC208", "no number in the YAML", ("gradient_accumulation_steps: 4", "gradient_accumulation_steps: auto")),
    near("ZC241", "infinite, which another rule reports", ("steps: 2.0", "steps: .inf")),
    near("ZC241", "a fraction has no whole number", ("steps: 2.0", "steps: 2.5"))
    .finds("error", "recipe.yaml: 2.5", "2.5")
    .becomes(),
    near("ZC241", "the next whole number", ("steps: 2.0", "steps: 3.0"))
    .finds("error", "recipe.yaml: 3.0", "3.0")
    .becomes("steps: 3\n", safe=True),
    near("ZC237", "the Trainer fills it", consumer="trl")
    .finds("error", NULL)
    .says("set max_grad_norm")
    .becomes('"gradient_clipping": "auto"'),
    near("ZC237", "a loop of its own", consumer="deepspeed").finds("error", NULL, 0).becomes('"gradient_clipping": 0'),
    near("ZC237", "no known reader", consumer=None).finds("error", NULL, 0).becomes(),
)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
