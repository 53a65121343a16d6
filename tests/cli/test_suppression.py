"""Living with findings: comments, settings, a baseline, and what writes them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome
from zerocfg.linter import engine
from zerocfg.workspace.settings_edit import with_ignores

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

Cli = Callable[..., Outcome]

YAML = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n"
DEAD = "  overlap_comm: true\n  reduce_bucket_size: 5\n  gradient_clipping: 1e0\n"
DS = '{"train_batch_size": 8,\n "zero_optimization": {"stage": 2, "typo": 1}}\n'
LINE = "#!/bin/sh\naccelerate launch \\\n  --num_processes two \\\n  train.py\n"


def codes(outcome: Outcome) -> list[str]:
    return [diagnostic["code"] for diagnostic in json.loads(outcome.out)["diagnostics"]]


def report(zerocfg: Cli, *words: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(zerocfg("lint", "--output-format", "json", *words).out)
    return found


@pytest.fixture
def legacy(tmp_path: Path) -> Path:
    """A repository with findings in a file of each kind."""
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ds[1].json").write_text(DS)
    (tmp_path / "a.yaml").write_bytes((YAML + DEAD).replace("\n", "\r\n").encode())
    (tmp_path / "train.sh").write_text(LINE)
    (tmp_path / "README.md").write_text("```bash\naccelerate launch --num_processes three train.py\n```\n")
    return tmp_path


# Comments and settings


def test_the_number_suppressed_is_told(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML + DEAD + "  # zerocfg: ignore[ZC103]\n  reduce_scatter: true\n")
    (tmp_path / "zerocfg.toml").write_text('[per-file-ignores]\n"a.yaml" = ["ZC0", "key-accelerate-ignores"]\n')
    outcome = zerocfg("lint")
    assert outcome.out == "All checks passed in 1 file. 4 suppressed (1 by comments, 3 by settings).\n"
    assert report(zerocfg)["suppressed"] == {"comments": 1, "settings": 3, "baseline": 0}


def test_patterns_are_relative_to_the_settings(zerocfg: Cli, legacy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (legacy / "zerocfg.toml").write_text('[per-file-ignores]\n"configs/*.json" = ["ZC101"]\n')
    monkeypatch.chdir(legacy / "configs")
    assert "ZC101" not in codes(zerocfg("lint", "--output-format", "json"))
    (legacy / "zerocfg.toml").write_text('exclude = ["configs"]\n')
    assert report(zerocfg)["diagnostics"] == []


def test_unused_is_not_judged_in_a_part_of_a_repository(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "configs").mkdir()
    text = YAML + "  gradient_clipping: 1.0  # zerocfg: ignore[ZC005]\n"
    (tmp_path / "configs" / "a.yaml").write_text(text)
    assert codes(zerocfg("lint", "configs", "--output-format", "json")) == []
    assert codes(zerocfg("lint", ".", "--output-format", "json")) == ["ZC010"]
    assert codes(zerocfg("lint", "configs/a.yaml", "--output-format", "json")) == ["ZC010"]
    assert zerocfg("lint", "--fix").code == 0
    assert (tmp_path / "configs" / "a.yaml").read_text() == YAML + "  gradient_clipping: 1.0\n"


@pytest.mark.parametrize("words", [("--select", "ZC9999"), ("--ignore", "weights-not-save"), ("--select", "")])
def test_codes_that_do_not_exist(zerocfg: Cli, tmp_path: Path, words: tuple[str, str]) -> None:
    if not words[1]:
        (tmp_path / "zerocfg.toml").write_text('[per-file-ignores]\n"*" = ["ZC777"]\n')
    outcome = zerocfg("lint", *words)
    assert outcome.code == 2 and "no rule is called" in outcome.err
    assert ("did you mean weights-not-saved?" in outcome.err) is (words[0] == "--ignore")
    assert ("zerocfg.toml: no rule" in outcome.err) is (not words[1])


def test_codes_in_any_case(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML + DEAD)
    assert set(codes(zerocfg("lint", "--select", "zc103", "--output-format", "json"))) == {"ZC103"}


# --add-ignore


def test_add_ignore(zerocfg: Cli, legacy: Path) -> None:
    before = {path: path.read_bytes() for path in legacy.rglob("*") if path.is_file()}
    outcome = zerocfg("lint", "--add-ignore")
    assert outcome.code == 0, outcome.out
    assert "silenced in" in outcome.err and "All checks passed" in outcome.out
    assert (legacy / "a.yaml").read_bytes().decode() == (
        YAML + "  # zerocfg: ignore[ZC103] TODO\n  overlap_comm: true\n"
        "  # zerocfg: ignore[ZC103] TODO\n  reduce_bucket_size: 5\n"
        "  # zerocfg: ignore[ZC005] TODO\n  gradient_clipping: 1e0\n"
    ).replace("\n", "\r\n")
    assert (legacy / "train.sh").read_text() == LINE.replace("accel", "# zerocfg: ignore[ZC711] TODO\naccel")
    assert tomllib.loads((legacy / "zerocfg.toml").read_text()) == {
        "per-file-ignores": {
            "README.md": ["ZC711"],
            "configs/ds[[]1].json:zero_optimization.typo": ["ZC101"],
        }
    }
    after = {path: path.read_bytes() for path in legacy.rglob("*") if path.is_file()}
    assert after[legacy / "configs" / "ds[1].json"] == before[legacy / "configs" / "ds[1].json"]
    again = zerocfg("lint", "--add-ignore")
    assert again.code == 0 and again.err == ""
    assert {path: path.read_bytes() for path in after} == after


def test_add_ignore_stays_behind_a_byte_order_mark(zerocfg: Cli, tmp_path: Path) -> None:
    """The mark has to stay the first of the file."""
    text = "distributed_typo: DEEPSPEED\ncompute_environment: LOCAL_MACHINE\nnum_processes: 2\n"
    path = tmp_path / "accelerate.yaml"
    path.write_text("\ufeff" + text, encoding="utf-8")
    assert zerocfg("lint", "--add-ignore").code == 0
    after = path.read_text(encoding="utf-8")
    assert after.startswith("\ufeff# zerocfg: ignore[") and after.endswith(f" TODO\n{text}")


def test_other_codes_and_other_files_are_not_ignored(zerocfg: Cli, tmp_path: Path) -> None:
    text = YAML + DEAD
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text)

    def told(settings: str) -> list[tuple[str, str]]:
        (tmp_path / "zerocfg.toml").write_text(settings)
        found = json.loads(zerocfg("lint", "--output-format", "json").out)["diagnostics"]
        return sorted((one["code"], one["file"]) for one in found)

    every = told("")
    assert {file for _, file in every} == {"a.yaml", "b.yaml"} and len({code for code, _ in every}) > 1
    code = every[0][0]
    left = told(f'[per-file-ignores]\n"a.yaml" = ["{code}"]\n')
    assert left == [one for one in every if one != (code, "a.yaml")]
    assert told('[per-file-ignores]\n"c.yaml" = ["ZC"]\n') == every


def test_add_ignore_extends_a_comment(zerocfg: Cli, tmp_path: Path) -> None:
    text = "distributed_type: DEEPSPEED\nnum_processes: 8\n# zerocfg: ignore[ZC005] our fork\n"
    text += "deepspeed_config: {zero_stage: 2, overlap_comm: true, gradient_clipping: 1e0}\n"
    (tmp_path / "a.yaml").write_text(text)
    assert zerocfg("lint", "--add-ignore").code == 0
    assert (tmp_path / "a.yaml").read_text() == text.replace("[ZC005]", "[ZC005, ZC103]")


def test_add_ignore_keeps_the_settings_file(zerocfg: Cli, legacy: Path) -> None:
    settings = (
        '# ours\r\n[project]\r\nname = "x"  # y\r\n\r\n[tool.zerocfg]\r\nfail-on = "note"\r\n\r\n[tool.b]\r\nc = 1'
    )
    (legacy / "pyproject.toml").write_bytes(settings.encode())
    assert zerocfg("lint", "--add-ignore").code == 0
    written = (legacy / "pyproject.toml").read_bytes().decode()
    table = (
        '[tool.zerocfg.per-file-ignores]\r\n"README.md" = ["ZC711"]\r\n'
        '"configs/ds[[]1].json:zero_optimization.typo" = ["ZC101"]\r\n\r\n'
    )
    assert written == settings.replace("[tool.b]", table + "[tool.b]")
    assert not (legacy / "zerocfg.toml").exists()


def test_add_ignore_writes_all_or_nothing(zerocfg: Cli, legacy: Path) -> None:
    (legacy / "train.sh").chmod(0o444)
    before = {path: path.read_bytes() for path in legacy.rglob("*") if path.is_file()}
    outcome = zerocfg("lint", "--add-ignore")
    assert outcome.code == 2 and "read-only" in outcome.err and "train.sh" in outcome.err
    assert {path: path.read_bytes() for path in legacy.rglob("*") if path.is_file()} == before


ENTRY = {"configs/a.json:x.y": ["ZC401"]}


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", '[per-file-ignores]\n"configs/a.json:x.y" = ["ZC401"]\n'),
        ('fail-on = "note"\n', 'fail-on = "note"\n\n[per-file-ignores]\n"configs/a.json:x.y" = ["ZC401"]\n'),
        (
            '[per-file-ignores]  # known\n"b" = ["ZC1"]\n\n[other]\nx = 1\n',
            '[per-file-ignores]  # known\n"b" = ["ZC1"]\n"configs/a.json:x.y" = ["ZC401"]\n\n[other]\nx = 1\n',
        ),
        (
            '[per-file-ignores]\n"configs/a.json:x.y" = ["ZC1"] # z\n',
            '[per-file-ignores]\n"configs/a.json:x.y" = ["ZC1", "ZC401"] # z\n',
        ),
        (
            "[per-file-ignores]\n'configs/a.json:x.y' = [\n  \"ZC1\",  # old\n]\n",
            '[per-file-ignores]\n\'configs/a.json:x.y\' = [\n  "ZC1",  # old\n  "ZC401",\n]\n',
        ),
        (
            '[per-file-ignores]\n"configs/a.json:x.y" = [\n  "ZC1",\n]\n',
            '[per-file-ignores]\n"configs/a.json:x.y" = [\n  "ZC1",\n  "ZC401",\n]\n',
        ),
        ("per-file-ignores = {}\n", 'per-file-ignores = {"configs/a.json:x.y" = ["ZC401"]}\n'),
        (
            'per-file-ignores = {"b" = ["ZC1"]}\n',
            'per-file-ignores = {"b" = ["ZC1"],"configs/a.json:x.y" = ["ZC401"]}\n',
        ),
        (
            'per-file-ignores."b" = ["ZC1"]\n',
            'per-file-ignores."b" = ["ZC1"]\nper-file-ignores."configs/a.json:x.y" = ["ZC401"]\n',
        ),
        ("[per-file-ignores]", '[per-file-ignores]\n"configs/a.json:x.y" = ["ZC401"]\n'),
    ],
)
def test_entries_go_into_any_form_of_the_table(text: str, wanted: str) -> None:
    found = with_ignores(text, (), ENTRY)
    assert found == wanted
    assert with_ignores(found, (), ENTRY) == found


def test_entries_go_into_inline_settings(zerocfg: Cli, legacy: Path) -> None:
    (legacy / "pyproject.toml").write_text("[tool]\nzerocfg = {fail-on = 'note'}  # ours\n")
    assert zerocfg("lint", "--add-ignore").code == 0
    text = (legacy / "pyproject.toml").read_text()
    assert text.startswith("[tool]\nzerocfg = {fail-on = 'note',per-file-ignores = {") and text.endswith("}}  # ours\n")
    assert tomllib.loads(text)["tool"]["zerocfg"]["per-file-ignores"]["README.md"] == ["ZC711"]


@pytest.mark.parametrize(
    "text", ["per-file-ignores = 3\n", '[per-file-ignores]\n"configs/a.json:x.y" = "ZC1"\n', "a = "]
)
def test_a_table_without_room_is_said(text: str) -> None:
    with pytest.raises(ValueError, match="cannot be edited there"):
        with_ignores(text, (), ENTRY)


# The baseline


def test_baseline_knows_old_findings_and_tells_new_ones(zerocfg: Cli, legacy: Path) -> None:
    name = ".zerocfg-baseline.json"
    written = zerocfg("lint", "--write-baseline", name)
    assert written.code == 0 and "findings written" in written.out
    count = len(json.loads((legacy / name).read_text())["findings"])
    assert count >= 5
    clean = zerocfg("lint", "--baseline", name)
    assert clean.code == 0 and f"{count} suppressed ({count} by baseline)" in clean.out
    # Lines may move, and what is around may change.
    (legacy / "a.yaml").write_text("# 8 GPUs\n" + YAML + "  gradient_accumulation_steps: 2\n" + DEAD)
    assert zerocfg("lint", "--baseline", name).code == 0
    # Another value is another finding; the entry of the old one no longer occurs.
    (legacy / "a.yaml").write_text(YAML + DEAD.replace("1e0", "2e0").replace("size: 5", "size: 6"))
    changed = zerocfg("lint", "--baseline", name)
    assert changed.code == 1 and "2e0" in changed.out and "overlap_comm" not in changed.out
    assert "2 entries of the baseline no longer occur" in changed.out
    assert report(zerocfg, "--baseline", name)["stale_in_baseline"] == 2


def test_baseline_counts(zerocfg: Cli, tmp_path: Path) -> None:
    lines = "accelerate launch --num_processes two train.py\n"
    (tmp_path / "train.sh").write_text(lines)
    zerocfg("lint", "--write-baseline", "known.json")
    (tmp_path / "train.sh").write_text(lines * 2)
    assert codes(zerocfg("lint", "--baseline", "known.json", "--output-format", "json")) == ["ZC711"]


def test_baseline_of_the_settings(zerocfg: Cli, legacy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (legacy / "zerocfg.toml").write_text('baseline = "known.json"\n')
    missing = zerocfg("lint")
    assert missing.code == 2 and "--write-baseline" in missing.err
    zerocfg("lint", "--write-baseline", "known.json")
    assert zerocfg("lint").code == 0
    monkeypatch.chdir(legacy / "configs")
    assert zerocfg("lint").code == 0
    alone = zerocfg("lint", "ds[1].json")
    assert alone.code == 0 and "no longer" not in alone.out


def test_stale_entries_of_what_was_not_looked_at_are_not_told(zerocfg: Cli, legacy: Path) -> None:
    zerocfg("lint", "--write-baseline", "known.json")
    (legacy / "a.yaml").write_text(YAML)
    assert "no longer" not in zerocfg("lint", "--baseline", "known.json", "train.sh").out
    assert "no longer" not in zerocfg("lint", "--baseline", "known.json", "--select", "ZC7").out
    assert "3 entries of the baseline no longer occur" in zerocfg("lint", "--baseline", "known.json").out


def test_fixing_leaves_known_findings_alone(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML + "  reduce_bucket_size: 5e8\n")
    zerocfg("lint", "--write-baseline", "known.json")
    assert zerocfg("lint", "--baseline", "known.json", "--fix").code == 0
    assert "5e8" in (tmp_path / "a.yaml").read_text()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"version": 2, "findings": []}', '{"version": 1, "findings": [{}]}', "[" * 100_000,
             '{"version": 1, "findings": [{"code": "ZC103", "file": "a", "path": "", "value": "", "count": true}]}']
)  # fmt: skip
def test_a_broken_baseline(zerocfg: Cli, tmp_path: Path, text: str) -> None:
    (tmp_path / "known.json").write_text(text)
    outcome = zerocfg("lint", "--baseline", "known.json")
    assert outcome.code == 2 and "known.json" in outcome.err


def test_modes_exclude_each_other(zerocfg: Cli) -> None:
    assert "cannot be used together" in zerocfg("lint", "--fix", "--add-ignore").err
    assert "not standard input" in zerocfg("lint", "--add-ignore", "-", stdin="").err


def test_git_is_not_needed(zerocfg: Cli, legacy: Path) -> None:
    """A new settings file goes to the top of the repository."""
    subprocess.run(["git", "init", "-q"], cwd=legacy, check=True)
    assert zerocfg("lint", "configs", "--add-ignore").code == 0
    assert (legacy / "zerocfg.toml").exists()


def test_statistics(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(YAML + DEAD)
    outcome = zerocfg("lint", "--statistics")
    assert outcome.code == 1
    first, second, last = outcome.out.splitlines()
    assert first.split()[:2] == ["2", "ZC103"] and second.split() == [
        "1",
        "ZC005",
        "warning",
        "fix",
        second.split()[-1],
    ]
    assert last.startswith("Found ")
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zzz": 1, "gradient_clippng": 1}')
    mixed = zerocfg("lint", "ds.json", "--consumer", "deepspeed", "--statistics").out.splitlines()
    assert [line.split()[:3] for line in mixed[:-1]] == [["1", "ZC102", "error"], ["1", "ZC102", "warning"]]
    (tmp_path / "ds.json").unlink()
    table = json.loads(zerocfg("lint", "--statistics", "--output-format", "json").out)["statistics"]
    assert [(row["code"], row["count"]) for row in table] == [("ZC103", 2), ("ZC005", 1)]


def test_of_very_many_findings_some_are_told(zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "FINDINGS", 3)
    keys = ",\n".join(f'"wrong_key_{number}": 1' for number in range(5))
    path = tmp_path / "ds.json"

    def told(*words: str) -> list[tuple[str, int]]:
        found = json.loads(zerocfg("lint", "--no-cache", "--output-format", "json", *words).out)["diagnostics"]
        return [(one["code"], one["start"]["line"]) for one in found]

    path.write_text(f'{{"train_micro_batch_size_per_gpu": 1,\n{keys}}}\n')
    every = told()
    assert sorted(code for code, _ in every) == ["ZC015", "ZC102", "ZC102", "ZC102"]
    assert len({line for _, line in every}) == 4, "the message stands where a finding is not told"
    assert told("--ignore", "ZC015") == [one for one in every if one[0] != "ZC015"]
    path.write_text(path.read_text().replace(',\n"wrong_key_3": 1,\n"wrong_key_4": 1', ""))
    assert told() == [("ZC102", 2), ("ZC102", 3), ("ZC102", 4)], "as many as are told"
