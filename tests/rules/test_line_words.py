"""What the shell makes of launch lines, shown by bash itself, against the rules that speak of it."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

from tests.rules.examples import lint, place
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL

if TYPE_CHECKING:
    from pathlib import Path

STUB = 'accelerate() { printf "[%s]" "$@"; }\nswift() { printf "%s" "${NPROC_PER_NODE-unset}"; }\n'


def output(script: str) -> str:
    """What bash prints where the launchers are functions that show their words."""
    shell = ["env", "-i", "bash", "--norc", "-c", STUB + script]
    return subprocess.run(shell, capture_output=True, text=True, check=True).stdout


def test_bash_has_no_value_for_it() -> None:
    page = page_of(next(rule for rule in ALL if rule.code == "ZC750"))
    assert output(page.bad[0].files["train.sh"]).endswith("[--num_processes][train.py]")
    assert output(page.good[0].files["train.sh"]).endswith("[--num_processes][2][train.py]")


def test_a_variable_of_swift_behind_the_command(tmp_path: Path) -> None:
    behind = "swift sft --model m --train_type lora --output_dir o --deepspeed zero2 \\\n    NPROC_PER_NODE=2\n"
    before = "NPROC_PER_NODE=2 swift sft --model m --train_type lora --output_dir o --deepspeed zero2\n"
    assert (output(behind), output(before)) == ("unset", "2")
    found = {}
    for name, script in (("behind", behind), ("before", before)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "run.sh").write_text(script, encoding="utf-8")
        (folder / "requirements.txt").write_text("ms-swift==3.2.1\n", encoding="utf-8")
        found[name] = [
            (d.severity.value, place(d.span, {"run.sh": script}))
            for d in lint(folder, None, Selection(select=("ZC752",))).diagnostics
        ]
    assert found == {"behind": [("error", "run.sh: NPROC_PER_NODE=2")], "before": []}
