"""A fix that is offered though nobody knows the reader is right for each of those that there may be."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.examples import inside, lint, write
from zerocfg.linter.engine import lint_runs
from zerocfg.linter.fixed_texts import edited
from zerocfg.linter.reader_agreement import possible
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zerocfg.run.model import Run

EXAMPLES = [
    (rule.code, at)
    for rule in ALL
    if page_of(rule).fixable
    for at, one in enumerate(page_of(rule).bad)
    if one.consumer is None
]
BAD = {rule.code: page_of(rule).bad for rule in ALL}
DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
POINTS = "deepspeed_config: {deepspeed_config_file: ds.json}\n"
YAML = "distributed_type: %s\nnum_processes: 2\n"


@pytest.mark.parametrize(("code", "at"), [pytest.param(*one, id=f"{one[0]}-{one[1] + 1}") for one in EXAMPLES])
def test_every_reader_is_better_off(code: str, at: int, tmp_path: Path, count: Callable[[str, int], None]) -> None:
    write(BAD[code][at], tmp_path)
    readers = {reader for run in _runs(tmp_path) if run.consumer is None for reader in possible(run)}
    for one in lint(tmp_path, None).diagnostics:
        texts = edited(one) if one.code == code and one.fix is not None else None
        for reader in sorted(readers) if texts else ():
            before, after = lint(tmp_path, reader), lint(tmp_path, reader, texts=texts)
            assert (code, one.message) not in {(other.code, other.message) for other in after.diagnostics}
            assert all(new <= old for old, new in zip(before.failures, after.failures, strict=True))
            count("fixes without a known reader, each judged for a possible one", 1)


def _runs(folder: Path) -> list[Run]:
    with inside(folder):
        return find_runs([folder], Files(), root=folder)[0]


@pytest.mark.parametrize(
    ("files", "readers"),
    [
        ({"ds.json": DS}, ("deepspeed", "accelerate", "transformers", "trl")),
        ({"accelerate.yaml": YAML % "MULTI_GPU"}, ("deepspeed", "accelerate", "transformers", "trl")),
        ({"accelerate.yaml": YAML % "DEEPSPEED"}, ("accelerate", "transformers", "trl")),
        (
            {
                "ds.json": DS,
                "accelerate.yaml": YAML % "DEEPSPEED" + "deepspeed_config: {deepspeed_config_file: ds.json}",
            },
            ("accelerate", "transformers", "trl"),
        ),
    ],
)
def test_who_may_read_a_config(files: dict[str, str], readers: tuple[str, ...], tmp_path: Path) -> None:
    write(Example(files), tmp_path)
    assert {possible(run) for run in _runs(tmp_path)} == {readers}


@pytest.mark.parametrize(
    ("notes", "selection", "fixable"),
    [
        (True, Selection(), {"ZC404", "ZC702"}),
        (False, Selection(), {"ZC702"}),
        (False, Selection(select=("ZC404", "ZC702")), {"ZC404", "ZC702"}),
        (False, Selection(select=("init-flag-without-stage-3", "ZC7")), {"ZC404", "ZC702"}),
    ],
)
def test_notes_that_are_not_shown_have_no_fix(
    notes: bool, selection: Selection, fixable: set[str], tmp_path: Path
) -> None:
    accelerate = YAML % "DEEPSPEED" + "mixed_precision: bf16\n"
    accelerate += "deepspeed_config: {deepspeed_config_file: ds.json, zero3_init_flag: true}\n"
    write(Example({"ds.json": DS, "accelerate.yaml": accelerate}), tmp_path)
    runs = _runs(tmp_path)
    found = lint_runs(runs, selection, notes=notes).diagnostics
    assert [one.code for one in found] == [one.code for one in lint_runs(runs, selection).diagnostics]
    assert {one.code for one in found if one.fix is not None} == fixable
