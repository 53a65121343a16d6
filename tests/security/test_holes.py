"""What once came through, each by the smallest input that showed it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.security.test_budgets import RECIPE, lint, run, spec


@pytest.mark.parametrize(
    ("text", "code"), [("[]", "ZC008"), ('{"train_batch_size": 1, "zero_optimization": {"sta', "ZC002")]
)
def test_a_broken_config_beside_an_open_stage_is_one_finding(text: str, code: str, tmp_path: Path) -> None:
    """The spec leaves the stage to the build, whose rules would look at what the DeepSpeed JSON says."""
    files = {**spec("{parameters: 7e9, hidden_size: 4096}"), "recipe.yaml": f"{RECIPE}deepspeed: ds.json\n"}
    found = lint(tmp_path, {**files, "ds.json": text})
    assert [(one["code"], one["file"]) for one in found] == [(code, "ds.json")]


def test_the_tag_of_a_checkpoint_steers_nothing(tmp_path: Path) -> None:
    (tmp_path / "latest").write_text("\x1b]0;PWN\x07step\n::stop-commands::x\n##vso[y]")
    done = run(tmp_path, {}, "check-resume", ".")
    printed = done.stdout + done.stderr
    assert "stop-commands" in printed and "PWN" in printed
    assert not set(printed) & set("\x1b\x07") and "##vso[" not in printed
    assert not [line for line in printed.splitlines() if line.lstrip().startswith("::")]
