"""What the page of a run says, before it is set as HTML."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from zerocfg.cli.commands.report_input import ReportRequest, collect_report_input
from zerocfg.page.formatting import band, brief, clean, unit_for
from zerocfg.page.memory import Memory
from zerocfg.page.page import Missing, Page, page
from zerocfg.page.smoke import Smoke, smoke
from zerocfg.page.time import Time

Cli = Callable[..., Outcome]


def gathered(name: Path | str, **asked: object) -> Page:
    return page(collect_report_input(str(name), ReportRequest(trace=False, **asked)))  # type: ignore[arg-type]


def example(name: str, folder: Path) -> Path:
    return Path(shutil.copytree(ROOT / "examples" / name, folder / name))


def test_settings_that_differ_come_first_and_tell_their_origin(quickstart: Path) -> None:
    found = gathered(quickstart)
    first = found.settings[0]
    assert first.title == "Not the default" and not first.closed
    stage = next(one for one in first.rows if one.name == "zero_optimization.stage")
    assert (stage.value, stage.default) == ("3", "0")
    assert stage.place.startswith("ds_config.json:")
    batch = next(one for one in first.rows if one.name == "train_batch_size")
    assert "num_processes = 2" in batch.inputs
    nobody = found.settings[-1]
    assert nobody.standard and nobody.closed and all("default of" in one.origin for one in nobody.rows)
    assert {"accelerate.yaml", "Recipe", "Run"} <= {group.title for group in found.settings}


def test_a_run_that_is_well_says_so(quickstart: Path) -> None:
    found = gathered(quickstart)
    tiles = {tile.label: tile for tile in found.tiles}
    assert (tiles["Lint"].value, tiles["Lint"].mood) == ("clean", "good")
    assert (tiles["Smoke-run"].value, tiles["Smoke-run"].mood) == ("passed", "good")
    assert (tiles["Build"].value, tiles["Build"].mood) == ("up to date", "good")
    assert isinstance(found.memory, Memory)
    held = found.memory
    assert [bar.label for bar in held.phases] == ["init", "forward+backward", "step", "save"]
    for at, bar in enumerate(held.phases):
        assert bar.total == sum(term.sizes[at] for term in held.terms)
    assert held.unit.name == "MiB" and sum(one.bar.own for one in held.others) == 1
    assert isinstance(found.time, Missing) and "rate of cpu is not known" in found.time.why


def test_the_measured_memory_is_that_of_the_certificate(quickstart: Path) -> None:
    found = smoke(quickstart / "built" / "quickstart")
    assert isinstance(found, Smoke) and found.profile is not None
    content = json.loads((quickstart / "built" / "quickstart" / "smoke.json").read_text())["measured"]
    before = content["memory_start"][1]["rss"]
    assert found.profile.peaks[1]["backward"] == content["memory"][1]["backward"]["rss"] - before
    assert len(found.profile.points) == len(content["timeline"]["points"])
    assert next(one.seconds for one in found.profile.points if one.phase == "forward") == 0
    assert not found.profile.predicted, "resident memory is not what is predicted"
    assert not found.stale and found.failed == 0


def test_on_a_card_the_prediction_stands_beside_what_was_measured(quickstart: Path) -> None:
    path = quickstart / "built" / "quickstart" / "smoke.json"
    content = json.loads(path.read_text())
    content["device"] = {"kind": "cuda", "name": "NVIDIA A100"}
    for rank in content["measured"]["memory"]:
        for phase in rank.values():
            phase["allocated"] = phase["rss"]
    content["measured"]["device_memory_bytes"] = 80 << 30
    path.write_text(json.dumps(content))
    found = smoke(path.parent)
    assert isinstance(found, Smoke) and found.profile is not None
    predicted = content["measured"]["predicted"]["phases"]
    assert found.profile.predicted["backward"] == predicted["forward+backward"]
    assert found.profile.peaks[0]["init"] == content["measured"]["memory"][0]["init"]["rss"]
    assert found.profile.limit == 80 << 30 and found.device == "NVIDIA A100"


def test_a_certificate_of_other_files_proves_less(quickstart: Path) -> None:
    config = quickstart / "built" / "quickstart" / "ds_config.json"
    config.write_text(config.read_text().replace("4096", "4097"))
    found = gathered(quickstart)
    assert isinstance(found.smoke, Smoke) and found.smoke.stale == ["ds_config.json"]
    assert {tile.label: tile.mood for tile in found.tiles}["Smoke-run"] == "warn"


def test_what_changed_since_the_build_and_why(quickstart: Path) -> None:
    recipe = quickstart / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("gradient_accumulation_steps: 2", "gradient_accumulation_steps: 4"))
    found = gathered(quickstart).changes
    assert not isinstance(found, Missing) and found is not None and not found.same
    changed = {one.name: (one.old, one.new, one.because) for one in found.changes}
    assert changed["gradient_accumulation_steps"][:2] == ("2", "4")
    assert "recipe.yaml" in changed["gradient_accumulation_steps"][2]
    assert "gradient_accumulation_steps changed 2 -> 4" in changed["train_batch_size"][2]
    assert "ds_config.json" in found.follow


def test_a_renamed_build_is_compared_by_its_values(quickstart: Path) -> None:
    (quickstart / "built" / "quickstart").rename(quickstart / "built" / "last-week")
    found = gathered(quickstart)
    assert found.build.endswith("built/last-week")
    assert found.changes is not None and not isinstance(found.changes, Missing) and found.changes.same


def test_sections_without_content_name_the_command(quickstart: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(quickstart)
    (quickstart / "built" / "quickstart" / "smoke.json").unlink()
    found = gathered("zerocfg.yaml")
    assert isinstance(found.smoke, Missing) and found.smoke.command == "zerocfg smoke built/quickstart"
    shutil.rmtree(quickstart / "built")
    found = gathered("zerocfg.yaml")
    assert isinstance(found.changes, Missing) and found.changes.command == "zerocfg build zerocfg.yaml -o OUT"


def test_several_builds_are_not_guessed_among(quickstart: Path) -> None:
    shutil.copytree(quickstart / "built", quickstart / "other")
    found = gathered(quickstart)
    assert isinstance(found.smoke, Missing) and "--build" in found.smoke.why
    chosen = gathered(quickstart, build=quickstart / "other")
    assert chosen.build.endswith("other/quickstart") and isinstance(chosen.smoke, Smoke)


def test_a_build_stands_for_the_run_of_its_spec_and_for_itself_when_that_is_gone(quickstart: Path) -> None:
    build = quickstart / "built" / "quickstart"
    found = gathered(build)
    assert isinstance(found.memory, Memory) and found.build.endswith("built/quickstart")
    (quickstart / "zerocfg.yaml").unlink()
    alone = gathered(build)
    assert isinstance(alone.memory, Missing) and isinstance(alone.smoke, Smoke)
    assert any("zerocfg.yaml" in one for one in alone.changed_sources)
    assert any(one.name == "zero_optimization.stage" for one in alone.settings[0].rows)


def test_a_broken_run_has_its_findings_with_frames_and_rules(tmp_path: Path) -> None:
    example("quickstart", tmp_path)
    found = gathered(example("pitfalls", tmp_path))
    assert found.problems and {tile.label: tile.mood for tile in found.tiles}["Lint"] == "bad"
    ranks = [("error", "warning", "note").index(one.severity) for one in found.findings]
    assert ranks == sorted(ranks)
    one = next(one for one in found.findings if one.code == "ZC102")
    frame = one.frames[0]
    assert frame.before + frame.marked + frame.after == '  "gradient_cliping": 1.0,'
    assert frame.marked.startswith('"gradient_cliping"') and one.fix and one.help
    assert {rule.code for rule in found.rules} == {one.code for one in found.findings}
    assert all(rule.summary and rule.sections for rule in found.rules)


def test_time_and_messages_of_a_planned_job(tmp_path: Path) -> None:
    found = gathered(example("two-nodes-slurm", tmp_path))
    assert isinstance(found.time, Time) and isinstance(found.memory, Memory)
    assert found.memory.capacity is not None and found.memory.unit.name == "GiB"
    assert any(one.between for one in found.time.sent)
    assert all(part.low <= part.expected <= part.high for part in found.time.parts)


def test_configs_written_by_hand_need_no_spec(tmp_path: Path) -> None:
    folder = example("quickstart", tmp_path)
    shutil.rmtree(folder / "built")
    (folder / "zerocfg.yaml").unlink()
    (folder / "train.sh").write_text("accelerate launch --config_file accelerate.yaml train.py recipe.yaml\n")
    found = gathered(folder / "train.sh")
    assert any(one.name == "zero_optimization.stage" for one in found.settings[0].rows)
    assert isinstance(found.memory, Missing) and found.memory.command == "zerocfg init"


def test_a_launch_line_is_named_by_its_number(tmp_path: Path) -> None:
    folder = example("quickstart", tmp_path)
    shutil.rmtree(folder / "built")
    (folder / "zerocfg.yaml").unlink()
    line = "accelerate launch --config_file accelerate.yaml train.py recipe.yaml"
    (folder / "train.sh").write_text(f"{line}\n{line} --max_steps 3\n")
    assert gathered(f"{folder / 'train.sh'}:2").name.endswith("train.sh:2")


def test_what_the_baseline_knows_is_not_told(tmp_path: Path, zerocfg: Cli) -> None:
    example("quickstart", tmp_path)
    folder = example("pitfalls", tmp_path)
    before = gathered(folder)
    (folder / "zerocfg.toml").write_text('baseline = "known.json"\n')
    zerocfg("lint", "pitfalls", "--write-baseline", "pitfalls/known.json")
    after = gathered(folder)
    assert before.findings and not after.findings and "by baseline" in after.hidden


def test_who_reads_a_config_can_be_said(tmp_path: Path) -> None:
    config = tmp_path / "ds_config.json"
    config.write_text('{"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}')
    assert gathered(config, consumer="deepspeed").about == "deepspeed"


def test_secrets_stay_where_they_are(tmp_path: Path) -> None:
    folder = example("quickstart", tmp_path)
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text() + "hub_token: hf_verysecret\n")
    assert "hf_verysecret" not in repr(gathered(folder))


@pytest.mark.parametrize(
    "content",
    [b"\xff\xfe", b"[]", b"{", b'{"version": 1}', b'{"version": 1, "run": 3}', b"[" * 100_000, b'{"version": 99}'],
)
def test_any_file_in_place_of_a_certificate_is_told(quickstart: Path, content: bytes) -> None:
    path = quickstart / "built" / "quickstart" / "smoke.json"
    path.write_bytes(content)
    assert isinstance(smoke(path.parent), str)


def test_a_certificate_with_odd_measurements_is_shown_as_far_as_it_goes(quickstart: Path) -> None:
    path = quickstart / "built" / "quickstart" / "smoke.json"
    content = json.loads(path.read_text())
    nan = float("nan")
    content["checks"] = [1, {"name": None, "ok": "yes"}]
    content["measured"] = {
        "memory": [{"step": 3}, None, {"step": {"rss": nan}}],
        "memory_start": {"rss": 1},
        "timeline": {"points": [[0], [1, 2, 3], [1e400, 5, "step"], ["a", 5, "step"], [1, -5, "step"]]},
        "losses": [nan, "x", None],
        "predicted": {"step_seconds": ["x"]},
        "step_seconds_median": 1e300,
    }
    path.write_text(json.dumps(content))
    found = smoke(path.parent)
    assert isinstance(found, Smoke) and found.profile is None


def test_words() -> None:
    assert band(1 << 30, 3 << 30) == "1.0 to 3.0 GiB" and band(1 << 20, 2 << 30) == "1.0 MiB to 2.0 GiB"
    assert (brief(0), brief(2e-5), brief(0.02), brief(2)) == ("0 ms", "20 µs", "20 ms", "2.0 s")
    assert unit_for(5 << 30)(1 << 30) == "1.00" and unit_for(1000)(0) == "–"
    assert clean("a\u202eb\x00c\udce9d\n") == "a�b�c�d\n"
