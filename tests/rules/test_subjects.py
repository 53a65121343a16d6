"""What a rule looks at decides what it is handed, and whether it is asked about a config of which keys are unknown."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zerocfg import rules
from zerocfg.linter.engine import lint_runs
from zerocfg.rules import registry
from zerocfg.rules.api import Finding, Location, Rule, Severity, rule
from zerocfg.rules.arguments import TRAINING_ARGUMENTS, ArgumentsOfRun
from zerocfg.rules.issues import KeyIssue
from zerocfg.rules.key import Key
from zerocfg.rules.subjects import (
    DEEPSPEED_CONFIG,
    EACH_CALL,
    LAUNCH_LINE,
    WRITTEN_LINE,
    ZERO_SECTION,
    CallOfRun,
    LineOfRun,
    deepspeed_key,
    each_failure,
    each_issue,
    effective_setting,
    in_accelerate,
    in_deepspeed,
    in_zero,
    line_of,
)
from zerocfg.run.model import Call, Origin, Run, Script, Setting, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span


def made(name: str, text: str) -> SourceFile:
    source = SourceText(name, text)
    return SourceFile(name, "deepspeed", source, load_as(source, "json"))


TEXT = '{"train_batch_size": 8, "steps_per_print": 0, "gradient_cliping": 1}'


def run_of(text: str = TEXT, **more: Any) -> Run:
    run = Run("a", consumer="deepspeed", deepspeed_route="engine", deepspeed=made("ds.json", text), **more)
    return with_settings(run)


@rule("ACME001", "one-key", Severity.ERROR, deepspeed_key("steps_per_print"))
def one_key(key: Key) -> Iterator[Finding]:
    yield key.finding(f"is {key.value}")


@rule("ACME002", "whole-config", Severity.ERROR, DEEPSPEED_CONFIG)
def whole_config(config: Key) -> Iterator[Finding]:
    yield config["steps_per_print"].finding(
        f"is {config['steps_per_print'].value} of {config['train_batch_size'].value}"
    )


@rule("ACME003", "an-issue", Severity.ERROR, each_issue("unknown-ignored", "unknown-crash"))
def an_issue(key: KeyIssue) -> Iterator[Finding]:
    yield key.finding(f"{key.name} is {key.issue.kind}")


@rule("ACME004", "whole-run", Severity.ERROR)
def whole_run(run: Run) -> Iterator[Finding]:
    assert run.deepspeed is not None
    yield Finding(Location(run.deepspeed, ("steps_per_print",)), "the run")


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Any:
    """What these rules alone find: code, key and message."""

    def ask(run: Run, *rules: Rule) -> list[tuple[str, str, str]]:
        monkeypatch.setattr(registry, "ALL", rules)
        monkeypatch.setattr(registry, "WITHOUT_RECIPES", rules)
        return [(one.code, one.span.path, one.message) for one in lint_runs([run]).diagnostics]

    return ask


def test_every_rule_says_what_it_looks_at() -> None:
    """The fourth argument of ``@rule(CODE, NAME, SEVERITY, ...)``: `WHOLE_RUN` where nothing less is enough."""
    silent = []
    for path in sorted(Path(rules.__file__).parent.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "rule":
                silent += [ast.unparse(node.args[0])] * (len(node.args) < 4)
    assert silent == []


def test_each_rule_is_handed_what_it_looks_at(told: Any) -> None:
    assert told(run_of(), one_key, whole_config, an_issue, whole_run) == [
        ("ACME001", "steps_per_print", "is 0"),
        ("ACME002", "steps_per_print", "is 0 of 8"),
        ("ACME004", "steps_per_print", "the run"),
        ("ACME003", "gradient_cliping", "gradient_cliping is unknown-ignored"),
    ]


def test_of_a_config_in_parts_rules_about_one_key_speak(told: Any) -> None:
    """A dict that the script goes on changing: nothing follows from what is not there."""
    assert told(run_of(parts=True), one_key, whole_config, an_issue, whole_run) == [
        ("ACME001", "steps_per_print", "is 0"),
        ("ACME003", "gradient_cliping", "gradient_cliping is unknown-ignored"),
    ]


def test_a_rule_about_a_key_is_not_asked_where_it_is_not_written(told: Any) -> None:
    assert told(run_of('{"train_batch_size": 8}'), one_key) == []
    assert told(replace(run_of(), deepspeed=None), one_key, whole_config) == []


def test_calls_lines_and_arguments_are_handed_with_their_run() -> None:
    handed: list[object] = []

    @rule("ACME005", "a-call", Severity.NOTE, EACH_CALL)
    def a_call(made: CallOfRun) -> Iterator[Finding]:
        handed.append(made.call.name)
        return iter(())

    @rule("ACME006", "a-line", Severity.NOTE, LAUNCH_LINE)
    def a_line(started: LineOfRun) -> Iterator[Finding]:
        handed.append(started.line)
        return iter(())

    @rule("ACME007", "arguments", Severity.NOTE, TRAINING_ARGUMENTS)
    def arguments(given: ArgumentsOfRun) -> Iterator[Finding]:
        handed.append(given.value("max_steps", 7))
        return iter(())

    file = made("train.py", "")
    calls = tuple(Call(name, {}, file, Span(0, 0)) for name in ("trl.SFTTrainer", "trl.SFTConfig"))
    line: Any = object()
    bare, run = Run("a"), Run("b", script=Script(file, calls=calls), launch=line)
    for one in (bare, run):
        assert [*a_call.check(one), *a_line.check(one)] == []
    assert handed == ["trl.SFTTrainer", "trl.SFTConfig", line]
    written = Run("c", consumer="transformers", arguments={"max_steps": Setting(3, Origin("flag", file=file))})
    assert [*arguments.check(bare), *arguments.check(written)] == [] and handed[3:] == [7, 3]


@rule("ACME008", "a-key-among-others", Severity.ERROR, in_deepspeed("steps_per_print"))
def key_among_others(key: Key) -> Iterator[Finding]:
    yield key.finding(f"is {key.value} beside {key.run.effective.value('train_batch_size')}")


@rule("ACME009", "a-setting", Severity.ERROR, effective_setting("gradient_clipping"))
def clipping(key: Key) -> Iterator[Finding]:
    yield key.finding(f"clips at {key.value}", where="value")


def test_a_key_among_others_needs_the_whole_config(told: Any) -> None:
    assert told(run_of(), key_among_others) == [("ACME008", "steps_per_print", "is 0 beside 8")]
    assert told(run_of(parts=True), key_among_others) == []
    assert told(run_of('{"train_batch_size": 8}'), key_among_others) == []
    assert told(run_of('{"steps_per_print": null}'), key_among_others) == [
        ("ACME008", "steps_per_print", "is None beside None")
    ]


def test_a_setting_is_handed_where_anything_says_it(told: Any) -> None:
    assert told(run_of('{"gradient_clipping": 0.5}'), clipping) == [("ACME009", "gradient_clipping", "clips at 0.5")]
    assert list(clipping.check(Run("nothing"))) == []


def test_keys_of_other_files_and_sections() -> None:
    zero = made("zero.json", '{"zero_optimization": {"stage": 3}}')
    run = Run("a", deepspeed=zero, accelerate=made("accelerate.yaml", '{"deepspeed_config": {"zero_stage": 2}}'))
    paths = {
        subject: [(key.file_name, key.path, key.value) for key in subject.of(run)]
        for subject in (in_zero("stage"), in_zero("overlap_comm"), in_accelerate("deepspeed_config", "zero_stage"))
    }
    assert list(paths.values()) == [
        [("zero.json", ("zero_optimization", "stage"), 3)],
        [],
        [("accelerate.yaml", ("deepspeed_config", "zero_stage"), 2)],
    ]
    assert [key.path for key in ZERO_SECTION.of(run)] == [("zero_optimization",)]
    assert [*ZERO_SECTION.of(Run("b"))] == []


def test_a_failure_is_handed_to_the_rule_that_reports_it() -> None:
    both = '{"train_batch_size": 8, "fp16": {"enabled": true}, "bf16": {"enabled": true}}'
    (predicted,) = each_failure("ZC301").of(run_of(both))
    assert [key.path for key in predicted.keys] == [("fp16", "enabled"), ("bf16", "enabled")]
    finding = predicted.finding("choose", message="both")
    assert (finding.location.path, finding.message, finding.help) == (("fp16", "enabled"), "both", "choose")
    assert [*each_failure("ZC303").of(run_of(both))] == []


def test_a_line_is_handed_by_its_launcher() -> None:
    source = SourceText("train.sh", "torchrun --nnodes 2 train.py\n")
    (line,) = read_launch_lines(source).lines
    file = SourceFile("train.sh", "launch", source)
    run = Run("a", launch=line, launch_file=file)
    (started,) = line_of("torchrun", "deepspeed").of(run)
    assert (started.line, started.option("nnodes").count) == (line, 2)
    assert [*line_of("accelerate").of(run)] == [] == [*line_of("torchrun").of(Run("b"))]
    assert [written.file for written in WRITTEN_LINE.of(run)] == [file]
    assert [*WRITTEN_LINE.of(replace(run, launch_file=None))] == []


def test_what_is_declared_can_be_read_from_a_rule() -> None:
    assert [(one.scope, one.alone) for one in (one_key, whole_config, an_issue, whole_run)] == [
        ("key", True),
        ("document", False),
        ("key", True),
        ("run", False),
    ]
    assert one_key.check.__name__ == "one_key" and one_key.check.__module__ == __name__
    assert {one.code for one in registry.ALL if one.histories == "arguments"} == {"ZC801", "ZC840", "ZC841", "ZC875"}
