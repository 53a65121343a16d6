"""The record holds every finding with its fix, and its comparison tells each difference."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from tests.record.__main__ import _generated, main

CONFIG = '{"train_micro_batch_size_per_gpu": 1, "max_grad_norm": %s}'


def run(*words: str | Path) -> tuple[int, str]:
    done = CliRunner().invoke(main, [str(word) for word in words])
    return done.exit_code, done.stdout


def recorded(folder: Path, value: str) -> Path:
    (folder / "configs").mkdir(exist_ok=True)
    (folder / "configs" / "ds.json").write_text(CONFIG % value)
    (folder / "configs" / "consumer").write_text("deepspeed")
    record = folder / f"{value}.json"
    code, said = run("lint", record, folder / "configs")
    assert (code, said) == (0, "1 findings in 1 folders\n")
    return record


def test_differences_of_code_place_words_and_fix(tmp_path: Path) -> None:
    before, after = recorded(tmp_path, "0.5"), recorded(tmp_path, '"0.5"')
    assert run("compare", before, before) == (0, "1 findings before, 1 after, 0 lines differ\n")
    ((found,),) = json.loads(before.read_text()).values()
    assert found[:3] == ["ZC115", "error", "ds.json:1:39"] and '"write gradient_clipping"' in found[5]
    code, said = run("compare", before, after)
    assert code == 1 and said.endswith("1 findings before, 1 after, 2 lines differ\n")
    assert said.startswith("+ ZC115: 1\n") and "\n- ZC115: 1\n" in said


def test_what_lint_cannot_do_is_part_of_the_record(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.zerocfg]\nselect = 5\n")
    run("lint", tmp_path / "out.json", tmp_path)
    ((found,),) = json.loads((tmp_path / "out.json").read_text()).values()
    assert found[:2] == ["stopped", "2"] and "select" in found[2]


def test_generated_configs_are_the_same_each_time() -> None:
    for name in ("ds.json", "accelerate.yaml", "recipe.yaml"):
        texts = _generated(name, 20)
        assert texts == _generated(name, 20) and len(set(texts)) > 5
