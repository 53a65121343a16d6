"""Accelerator() with a number of accumulation steps beside a plugin that has one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

HEAD = """from accelerate import Accelerator
from accelerate.utils import GradientAccumulationPlugin
from mine import make
plugin = GradientAccumulationPlugin(num_steps=2)
"""
REFUSED = [
    "gradient_accumulation_steps=4, gradient_accumulation_plugin=plugin",
    "gradient_accumulation_steps=2, gradient_accumulation_plugin=GradientAccumulationPlugin(num_steps=2)",
]
ACCEPTED = [
    "gradient_accumulation_steps=1, gradient_accumulation_plugin=plugin",
    "gradient_accumulation_plugin=plugin",
    "gradient_accumulation_steps=4, gradient_accumulation_plugin=None",
]
UNKNOWN = [
    "gradient_accumulation_steps=4, gradient_accumulation_plugin=make()",
    "gradient_accumulation_steps=make(), gradient_accumulation_plugin=plugin",
]


@pytest.mark.parametrize("arguments", [*REFUSED, *ACCEPTED, *UNKNOWN])
def test_two_numbers(tmp_path: Path, arguments: str) -> None:
    (tmp_path / "train.py").write_text(f"{HEAD}acc = Accelerator({arguments})\nacc.prepare(m)\n", encoding="utf-8")
    found = Job([tmp_path], Settings(), Selection(select=("ZC251",)), root=tmp_path).lint().diagnostics
    places = [(one.severity.value, one.span.start.line, one.span.start.column) for one in found]
    assert places == ([("error", 5, 19 + len("gradient_accumulation_steps="))] if arguments in REFUSED else [])


@pytest.mark.libs
@pytest.mark.parametrize("arguments", [*REFUSED, *ACCEPTED])
def test_as_accelerate_does(arguments: str) -> None:
    pytest.importorskip("accelerate")
    code = f"{HEAD.replace('from mine import make', '')}Accelerator({arguments}, cpu=True)"
    if arguments in ACCEPTED:
        exec(code, {})
        return
    with pytest.raises(ValueError, match="You can only pass one of `gradient_accumulation_steps`"):
        exec(code, {})
