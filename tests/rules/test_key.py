"""A key knows what is written, its place, and the edits that are possible there."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml

from zerocfg.catalog.release_range import ReleaseRange
from zerocfg.rules import key
from zerocfg.rules.api import Fix, Location, Severity
from zerocfg.rules.arguments import written
from zerocfg.rules.issues import KeyIssue, issues
from zerocfg.run.model import Origin, Run, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.edit import apply_edits
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

DEEPSPEED = """{
  "steps_per_print": 0,
  "fp16": {"enabled": true, "loss_scale": 1e400, "hysteresis": true},
  "zero_optimization": {"stage": 2, "reduce_scatter": "on"},
  "modules": ["a", "b"]
}
"""
RECIPE = "output_dir: out\nmax_steps: 100\nwarmup_steps: 20\n"
ACCELERATE = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 3\n"


def file(kind: Any, text: str) -> SourceFile:
    form: Any = "json" if kind == "deepspeed" else "yaml"
    source = SourceText(f"{kind}.{form}", text)
    return SourceFile(source.name, kind, source, load_as(source, form))


def run(**texts: str) -> Run:
    parts: dict[str, Any] = {kind: file(kind, text) for kind, text in texts.items()}
    return with_settings(Run("run", consumer="accelerate", **parts))


def shown(place: Location) -> str:
    span = place.concrete()
    return place.file.source.text[span.start : span.end]


def applied(fix: Fix | None) -> Any:
    """The file of a fix as its edits leave it, in the words of a reader that is none of ours."""
    assert fix is not None
    ((source, *_),) = {(one,) for one, _ in fix.edits}
    text = apply_edits(source.source.text, [edit for _, edit in fix.edits])
    return json.loads(text) if source.kind == "deepspeed" else yaml.safe_load(text)


def test_what_is_written() -> None:
    ds = key.deepspeed(run(deepspeed=DEEPSPEED))
    assert ds["steps_per_print"].is_number(0) and ds["steps_per_print"]
    assert not ds["wall_clock_breakdown"] and ds["wall_clock_breakdown"].value is None
    assert not ds["wall_clock_breakdown"].is_number(0), "absent is not 0"
    assert ds["zero_optimization"]["reduce_scatter"].on and not ds["zero_optimization"]["stage"].on
    assert "stage" in ds["zero_optimization"] and ds["zero_optimization"].get("stage") == 2
    assert ds["fp16"]["loss_scale"].number is None, "no machine holds it"
    assert ds["fp16"]["hysteresis"].number is None, "true is no number"
    assert ds["steps_per_print"].count == 0 and ds["zero_optimization"]["stage"].count == 2
    assert ds["fp16"]["hysteresis"].count is None and ds["fp16"]["loss_scale"].count is None and ds["no"].count is None
    assert (ds["fp16"]["loss_scale"].raw, ds["fp16"].raw, ds["no"].raw) == ("1e400", "", "")
    assert (ds["fp16"].file_name, key.recipe(ds.run).file_name) == ("deepspeed.json", "")
    assert ds["steps_per_print"]["inside"].value is None and ds["steps_per_print"].section == {}
    assert [(one.path, one.value) for one in ds["modules"]] == [(("modules", 0), "a"), (("modules", 1), "b")]
    assert [one.name for one in ds["zero_optimization"]] == ["stage", "reduce_scatter"]


@pytest.mark.parametrize("path", [("steps_per_print",), ("fp16", "enabled"), ("fp16", "no"), ("no", "enabled"), ()])
def test_a_path_at_once_is_the_path_step_by_step(path: tuple[str, ...]) -> None:
    at_once = step = key.deepspeed(run(deepspeed=DEEPSPEED), *path)
    step = key.deepspeed(at_once.run)
    for part in path:
        step = step[part]
    assert at_once == step


def test_places() -> None:
    ds = key.deepspeed(run(deepspeed=DEEPSPEED))
    stage = ds["zero_optimization"]["stage"]
    assert [shown(stage.at(where)) for where in ("key", "value", "entry")] == ['"stage"', "2", '"stage": 2']
    assert shown(ds["zero_optimization"]["no"].at()) == '"zero_optimization"', "an absent key is at its section"
    assert shown(next(iter(ds["modules"])).at()) == '"a"'
    assert stage.at(label="the stage").label == "the stage"


def test_a_finding_names_its_place_once() -> None:
    ds = key.deepspeed(run(deepspeed=DEEPSPEED))
    stage, steps = ds["zero_optimization"]["stage"], ds["steps_per_print"]
    found = stage.finding("m", "h", [steps], stage.delete("w"), where="value", severity=Severity.NOTE)
    assert (found.message, found.help, found.severity) == ("m", "h", Severity.NOTE)
    assert shown(found.location) == "2" and [shown(one) for one in found.related] == ['"steps_per_print": 0']
    assert stage.finding("m").severity is None


def test_fixes() -> None:
    ds = key.deepspeed(run(deepspeed=DEEPSPEED))
    zero = ds["zero_optimization"]
    assert applied(zero["stage"].delete("w"))["zero_optimization"] == {"reduce_scatter": "on"}
    assert applied(zero["stage"].replace("3", "w"))["zero_optimization"]["stage"] == 3
    assert applied(zero["stage"].set("3", "w"))["zero_optimization"]["stage"] == 3
    assert applied(zero["overlap_comm"].set("true", "w"))["zero_optimization"]["overlap_comm"] is True
    assert list(applied(zero["overlap_comm"].set("true", "w", after="stage"))["zero_optimization"])[1] == "overlap_comm"
    assert applied(ds["fp16"].rename("bf16", "w"))["bf16"]["enabled"] is True
    assert applied(key.accelerate(run(accelerate=ACCELERATE), "deepspeed_config", "zero_stage").set("2", "w")) == {
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"zero_stage": 2},
    }


def test_what_cannot_be_edited_is_no_fix() -> None:
    ds = key.deepspeed(run(deepspeed=DEEPSPEED))
    assert ds["absent"].delete("w") is None
    assert ds["absent"].replace("1", "w") is None
    assert ds["absent"]["inside"].set("1", "w") is None
    assert key.recipe(ds.run, "optim").set("adamw_torch", "w") is None, "there is no recipe"


def test_a_fix_is_as_safe_as_its_rule_says() -> None:
    key_ = key.deepspeed(run(deepspeed=DEEPSPEED), "steps_per_print")
    for fix in (key_.delete("w"), key_.set("1", "w"), key_.replace("1", "w"), key_.rename("x", "w")):
        assert fix is not None and fix.safe and fix.description == "w"
    for fix in (key_.delete("w", safe=False), key_.set("1", "w", safe=False), key_.rename("x", "w", safe=False)):
        assert fix is not None and not fix.safe


def test_an_effective_setting_is_where_it_comes_from() -> None:
    both = run(deepspeed=DEEPSPEED, accelerate="distributed_type: DEEPSPEED\nnum_processes: 4\n")
    stage, count = key.setting(both, "zero_optimization.stage"), key.setting(both, "num_processes")
    assert (stage.value, stage.file, shown(stage.at("value"))) == (2, both.deepspeed, "2")
    assert (count.value, count.file) == (4, both.accelerate)
    assert applied(stage.replace("3", "w"))["zero_optimization"]["stage"] == 3


def test_a_training_argument_is_written_where_somebody_asks_for_it() -> None:
    parts = {"recipe": file("recipe", RECIPE), "deepspeed": file("deepspeed", "{}")}
    trained = with_settings(Run("run", consumer="transformers", **parts))
    asked, default = key.trainer_argument(trained, "warmup_steps"), key.trainer_argument(trained, "max_grad_norm")
    assert (bool(asked), asked.value, shown(asked.at("value"))) == (True, 20, "20")
    assert (bool(default), default.value) == (False, 1.0), "the Trainer clips at 1.0 unless it is told otherwise"
    own = with_settings(Run("run", consumer="transformers", deepspeed=parts["deepspeed"]))
    assert not key.trainer_argument(own, "warmup_steps"), "the script decides"


def test_a_default_has_no_place_of_its_own() -> None:
    plain = run(deepspeed='{"fp16": {"enabled": true}}')
    window = key.setting(plain, "zero_optimization.reduce_bucket_size")
    assert window.at().file is plain.deepspeed and window.at().path == ()
    assert window.set("1", "w") is None and window.delete("w") is None
    nobody = key.setting(plain, "there.is.no.such.setting")
    assert not nobody and nobody.value is None and nobody.at().file is plain.deepspeed


def test_a_word_of_a_launch_line_is_no_key_to_edit() -> None:
    line = SourceFile("train.sh", "launch", SourceText("train.sh", "accelerate launch --zero_stage 3 t.py"), None)
    word = key.from_origin(run(deepspeed=DEEPSPEED), Origin("flag", "--zero_stage", line, span=Span(18, 32)), 3)
    assert shown(word.at()) == "--zero_stage 3" and word.value == 3
    assert word.delete("w") is None and word.set("2", "w") is None


WRONG = """{
  "steps_per_print": "three",
  "gradient_accumulation_steps": {"a": 1},
  "zero_optimization": {"stagee": 2, "stage": 7}
}
"""


def wrong(**versions: str) -> dict[str, KeyIssue]:
    """The keys of WRONG that the catalog has an issue with, by name."""
    kinds = ("type", "raw-type", "range", "choice", "unknown-crash", "unknown-ignored")
    held = replace(run(deepspeed=WRONG), versions=versions)
    return {key.name: key for key in issues(held, *kinds)}


def test_an_issue_is_at_what_it_is_about() -> None:
    keys = wrong()
    assert {name: shown(key.finding("m").location) for name, key in keys.items()} == {
        "steps_per_print": '"three"',
        "gradient_accumulation_steps": '"gradient_accumulation_steps"',  # not the whole section
        "stagee": '"stagee"',
        "stage": "7",
    }
    assert shown(keys["stage"].at("key")) == '"stage"' and keys["stage"].at(label="here").label == "here"
    assert {key.library for key in keys.values()} == {"DeepSpeed"}


def test_an_issue_of_some_admitted_releases_says_which() -> None:
    key = wrong(deepspeed=">=0.14")["stagee"]
    everywhere = key.finding("m", fix=key.delete("w"), severity=Severity.ERROR)
    assert (everywhere.message, everywhere.severity, everywhere.fix) == ("m", Severity.ERROR, key.delete("w"))
    some = replace(key, issue=replace(key.issue, releases=ReleaseRange("deepspeed", since=(0, 19, 3))))
    found = some.finding("m", fix=some.delete("w"), severity=Severity.ERROR)
    assert found.message == "m (from DeepSpeed 0.19.3 on; declared: >=0.14)"
    assert (found.severity, found.fix) == (Severity.WARNING, None)


def test_arguments_are_at_the_first_that_is_written() -> None:
    held = run(recipe="save_steps: 3\neval_steps: 2\nmax_steps: 5\n")
    found = written(held, "logging_steps", "eval_steps", "save_steps").finding("m", "h", versions="trl>=1.0")
    assert shown(found.location) == "eval_steps: 2" and [shown(one) for one in found.related] == ["save_steps: 3"]
    assert (found.message, found.help, found.fix, found.versions) == ("m", "h", None, "trl>=1.0")
    assert shown(written(held, "max_steps", where="value").location) == "5"
    nowhere = written(held, "logging_steps")
    assert (nowhere.location.file, nowhere.location.path, nowhere.related) == (held.recipe, (), [])
