"""``lint --fix`` on disk and on standard input."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.cli.linting import apply_fixes
from zerocfg.linter.fixing import fix_all
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import find

Cli = Callable[..., Outcome]

YAML = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n"
WRONG = YAML + "  gradient_accumulation_steps: 4\n  zero3_init_flga: false\n"
FIXED = WRONG.replace("flga", "flag")


def test_a_read_only_file_is_refused(zerocfg: Cli, tmp_path: Path) -> None:
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(WRONG)
    (tmp_path / "b.yaml").chmod(0o444)
    outcome = zerocfg("lint", "--fix")
    assert outcome.code == 2
    assert "read-only" in outcome.err and "b.yaml" in outcome.err
    assert (tmp_path / "a.yaml").read_text() == WRONG
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.yaml", "b.yaml"]


def test_a_file_that_changed_since_is_not_overwritten(
    zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(WRONG)

    def meanwhile(*args: object, **words: object) -> object:
        found = fix_all(*args, **words)  # type: ignore[arg-type]
        path.write_text(WRONG + "# edited by somebody else\n")
        return found

    monkeypatch.setattr(apply_fixes, "fix_all", meanwhile)
    outcome = zerocfg("lint", "--fix")
    assert outcome.code == 2 and "changed while" in outcome.err
    assert path.read_text() == WRONG + "# edited by somebody else\n"


def test_a_link_is_written_through(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "real.yaml").write_text(WRONG)
    (tmp_path / "a.yaml").symlink_to("shared/real.yaml")
    assert zerocfg("lint", "--fix").code == 0
    assert (tmp_path / "a.yaml").is_symlink()
    assert (tmp_path / "shared" / "real.yaml").read_text() == FIXED


def test_standard_input_is_answered_on_standard_output(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("other")
    outcome = zerocfg("lint", "--fix", "-", "--stdin-filename", "a.yaml", stdin=WRONG)
    assert outcome.out == FIXED
    assert "All checks passed" in outcome.err
    assert (tmp_path / "a.yaml").read_text() == "other"
    assert zerocfg("lint", "--fix", "-", "--stdin-filename", "a.yaml", stdin=YAML).out == YAML


def test_how_many_more_with_unsafe_fixes(zerocfg: Cli, tmp_path: Path) -> None:
    config = {"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 4, "gradient_cliping": 1.0}
    (tmp_path / "ds.json").write_text(json.dumps(config))
    recipe = "output_dir: out\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 8\ndeepspeed: ds.json\n"
    (tmp_path / "recipe.yaml").write_text(recipe)
    first = zerocfg("lint", "--select", "ZC102,ZC201")
    assert "1 fixable with --fix (1 more with --unsafe-fixes)." in first.out
    shown = zerocfg("lint", "--select", "ZC102,ZC201", "--diff", "--unsafe-fixes")
    assert shown.code == 1 and shown.err == "Would apply 2 fixes in 1 file.\n"
    assert zerocfg("lint", "--select", "ZC102,ZC201", "--diff", "--exit-zero").code == 0
    safe = zerocfg("lint", "--select", "ZC102,ZC201", "--fix")
    assert safe.err == "Applied 1 fix in 1 file.\n"
    nothing = zerocfg("lint", "--select", "ZC102,ZC201", "--diff")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "")
    assert "1 fixable with --fix --unsafe-fixes." in safe.out
    unsafe = zerocfg("lint", "--select", "ZC102,ZC201", "--fix", "--unsafe-fixes")
    assert "All checks passed" in unsafe.out


def test_a_fix_of_two_files_is_written_to_both_or_to_neither(
    zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rule = find("ZC456")
    assert rule is not None
    before = page_of(rule).bad[0].files
    for name, text in before.items():
        (tmp_path / name).write_text(text)
    replace, calls = Path.replace, iter(range(99))

    def fail(self: Path, target: Path) -> Path:
        if next(calls) == 1:
            raise OSError(28, "No space left on device", str(target))
        return replace(self, target)

    words = ("lint", "--select", "ZC456", "--consumer", "transformers", "--fix", "--unsafe-fixes")
    with monkeypatch.context() as broken:
        broken.setattr(Path, "replace", fail)
        failed = zerocfg(*words)
    assert failed.code == 2 and "No space left" in failed.err
    assert {name: (tmp_path / name).read_text() for name in before} == before
    assert zerocfg(*words).code == 0
    changed = [name for name in before if (tmp_path / name).read_text() != before[name]]
    assert len(changed) == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(before)
