"""Which fixes are safe: those that keep what the author meant, or what runs today. All others choose for him.

Read from the paragraph `Fix:` of each page, which names what is a choice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.examples import lint_example
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL

from .table import Near, near

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.rulebook.example import Example

_SAFE = {
    "s": (
        "ZC005 ZC006 ZC101 ZC102 ZC104 ZC109 ZC111 ZC112 ZC117 ZC118 ZC206 ZC207 ZC209 ZC210 ZC216 ZC220 "
        "ZC227 ZC233 ZC246 ZC248 ZC319 ZC320 ZC325 ZC402 ZC404 ZC410 ZC416 ZC417 ZC418 ZC420 ZC421 ZC422 "
        "ZC428 ZC440 ZC452 ZC462 ZC466 ZC507 ZC508 ZC511 ZC516 ZC517 ZC519 ZC520 ZC523 ZC524 ZC526 ZC612 "
        "ZC618 ZC626 ZC639 ZC640 ZC643 ZC645 ZC706 ZC708 ZC712 ZC718 ZC742 ZC753 ZC813 ZC814 ZC826 ZC842 ZC852 "
        "ZC861 ZC868"
    ),
    "ss": ("ZC340 ZC518"),
    "s s": (
        "ZC009 ZC205 ZC219 ZC224 ZC230 ZC238 ZC240 ZC401 ZC426 ZC446 ZC454 ZC457 ZC502 ZC602 ZC603 ZC617 "
        "ZC622 ZC623 ZC625 ZC641 ZC644 ZC811 ZC817 ZC825"
    ),
    "s u": ("ZC212 ZC228 ZC232 ZC624"),
    "u s": ("ZC214 ZC321 ZC601 ZC823"),
    "s s s": ("ZC241 ZC605 ZC609 ZC630 ZC802 ZC841"),
    "u u s": ("ZC217"),
    "s s s s": ("ZC011"),
}
"""Rules by what the fixes of their bad examples are: s (safe), u (unsafe), - (none), an example after the other."""

SAFE = {code: marks for marks, codes in _SAFE.items() for code in codes.split()}


def marks(code: str, example: Example, folder: Path) -> str:
    found = lint_example(example, folder, Selection(select=(code,))).diagnostics
    return "".join("-" if one.fix is None else "s" if one.fix.safe else "u" for one in found)


@pytest.mark.parametrize("code", [rule.code for rule in ALL if page_of(rule).fixable])
def test_only_what_changes_no_meaning_is_safe(code: str, tmp_path: Path) -> None:
    (rule,) = [rule for rule in ALL if rule.code == code]
    found = " ".join(marks(code, example, tmp_path / str(at)) for at, example in enumerate(page_of(rule).bad))
    if code in SAFE:
        assert found == SAFE[code]
    else:
        assert set(found) <= set("u- ")


CHOSEN: tuple[tuple[Near, str], ...] = (
    (near("ZC112", "two values", ('"prefetch_bucket_size": 10', '"prefetch_bucket_size": 20')), "u"),
    (near("ZC603", "replicas", ("FULL_SHARD", "HYBRID_SHARD")), "u"),
    (near("ZC603", "nothing sharded", ("FULL_SHARD", "NO_SHARD")), "u"),
    (near("ZC603", "gradients", ("FULL_SHARD", "SHARD_GRAD_OP")), "s"),
    (near("ZC624", "shards of gradients", ("FULL_SHARD", "SHARD_GRAD_OP")), "u"),
    (near("ZC813", "a key of the launcher", ("split_batch", "num_processes")), "u"),
    (near("ZC823", "the same number twice", ("num_steps: 4", "num_steps: 2")), "s"),
    (near("ZC742", "fewer devices than the variable names", ("--num_gpus 2", "--num_gpus 1")), "-"),
    (near("ZC719", "another switch", ("accelerate launch ", "accelerate launch --multi_gpu ")), "-"),
    (near("ZC733", "an exclusion", ("--include localhost:0,1", "--exclude localhost:0")), "-"),
    (near("ZC734", "a host out of a variable", ("--include 0,1", "--include=0,1")), "u"),
    (near("ZC602", "replicas", ("SHARD_GRAD_OP", "HYBRID_SHARD"), bad=2), "-"),
    (near("ZC632", "two sizes", ("dp_shard_size: 4", "dp_shard_size: 4\n  parallelism_config_tp_size: 2")), "-"),
    (near("ZC635", "tensor parallel", ("dp_replicate_size: 2", "tp_size: 2")), "-"),
    (near("ZC638", "beside shards", ("sp_size: 2", "sp_size: 2\n  parallelism_config_dp_shard_size: 2")), "-"),
    (near("ZC646", "a key of FSDP 1", ("version: 1", "version: 1\n  use_orig_params: true")), "-"),
    (near("ZC608", "a key of FSDP 1", ("  fsdp_state", "  fsdp_use_orig_params: true\n  fsdp_state")), "-"),
    (near("ZC618", "one of two", ("LlamaDecoderLayer", "Qwen2DecoderLayer,LlamaDecoderLayer")), "-"),
    (near("ZC234", "another power", ("polynomial", "polynomial\nlr_scheduler_kwargs: {power: 2}")), "-"),
    (near("ZC801", "a ratio that would be one step", ("warmup_ratio: 0.1", "warmup_ratio: 1.0"), bad=2), "-"),
    (
        near(
            "ZC801", "the new name stands there", ("evaluation_strategy", "eval_strategy: epoch\nevaluation_strategy")
        ),
        "-",
    ),
    (near("ZC329", "said, and lost", ("bf16_full_eval: true", "bf16: false\nbf16_full_eval: true")), "-"),
    (near("ZC330", "asked for twice", ('"stage": 2}', '"stage": 2}, "fp16": {"enabled": true}')), "-"),
    (near("ZC342", "settings of MS-AMP", ("amax_history_len: 16", "opt_level: O1")), "-"),
    (near("ZC325", "a class of your own", ('"Linear"', '"MyLayer"')), "-"),
    (
        near("ZC613", "efficient loading, said", ("  fsdp_ign", "  fsdp_cpu_ram_efficient_loading: true\n  fsdp_ign")),
        "u",
    ),
)


@pytest.mark.parametrize(
    ("row", "expected"), [pytest.param(row, expected, id=f"{row.code}: {row.why}") for row, expected in CHOSEN]
)
def test_a_choice_is_no_safe_fix(row: Near, expected: str, tmp_path: Path) -> None:
    assert marks(row.code, row.example, tmp_path) == expected
