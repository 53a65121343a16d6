"""Launch lines and single values as rules see them: a missing value, what a variable hides, what a word says."""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import Any

import pytest

from tests.rules.by_hand import started
from zerocfg.rules import line as read
from zerocfg.rules.api import Fix, Intent
from zerocfg.rules.issues import KeyIssue, documents, issues, python_word, scientific_text
from zerocfg.rules.line import line_fix, line_option
from zerocfg.rules.repairs import plain_number, repaired
from zerocfg.run.model import UNKNOWN, Run, Setting, SourceFile
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span


def file(text: str, kind: Any = "deepspeed", form: Any = "json") -> SourceFile:
    source = SourceText(f"{kind}.{form}", text)
    return SourceFile(source.name, kind, source, load_as(source, form))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("accelerate launch --num_processes --multi_gpu train.py", ["--num_processes"]),
        ("accelerate launch --num_processes=--multi_gpu train.py", []),
        ("accelerate launch --num_processes 2 --multi_gpu train.py", []),
        ("accelerate launch --multi_gpu --debug train.py", []),
        ("accelerate launch --num_processes $N train.py", []),
        ("accelerate launch --num_processes -1 --debug train.py", []),
        ("torchrun --nproc_per_node --standalone train.py", ["--nproc_per_node"]),
        ("torchrun --standalone --nnodes 1 train.py", []),
        ("deepspeed --num_gpus --no_ssh train.py", ["--num_gpus"]),
        ("deepspeed --num_gpus 2 --no_ssh train.py", []),
    ],
)
def test_options_of_a_launcher_without_their_value(text: str, names: list[str]) -> None:
    """Parsers of argparse stop where an option stands in the place of a value."""
    assert [option.name for option in read.options_without_value(started(text))] == names
    assert read.options_without_value(Run("a")) == []


@pytest.mark.parametrize(
    ("text", "all_seen"),
    [
        ("torchrun --nproc_per_node 2 train.py $ARGS", True),
        ("torchrun --nproc_per_node $N train.py", True),
        ("torchrun $ARGS --nproc_per_node 2 train.py", False),
        ("torchrun --nproc_per_node 2 $ARGS train.py", False),
        ("torchrun --standalone $ARGS train.py", False),
        ('torchrun "${ARGS[@]}" train.py', False),
        ("torchrun `args` train.py", False),
        ("torchrun --rdzv_endpoint $HOST:$PORT --nnodes=$N train.py", True),
    ],
)
def test_whether_a_variable_may_hide_an_option_of_the_launcher(text: str, all_seen: bool) -> None:
    assert read.all_options_seen(started(text)) is all_seen
    assert not read.all_options_seen(Run("a"))


@pytest.mark.parametrize(
    ("text", "all_seen"),
    [
        ("torchrun train.py --a 1", True),
        ("torchrun train.py --a $A", True),
        ("torchrun train.py --a 1 $REST", False),
        ('torchrun train.py --a 1 "$@"', False),
        ("torchrun $X train.py --a 1", True),
    ],
)
def test_whether_a_variable_may_hide_an_option_of_the_script(text: str, all_seen: bool) -> None:
    assert read.all_arguments_seen(started(text)) is all_seen
    assert not read.all_arguments_seen(Run("a"))


def test_words_before_the_script() -> None:
    def after(text: str) -> str | None:
        run = started(text)
        edits = read.before_script(run, "--x 1")
        assert run.launch_file is not None
        return None if edits is None else apply_edits(run.launch_file.source.text, edits).strip()

    assert after("torchrun --nnodes 1 train.py --a") == "torchrun --nnodes 1 --x 1 train.py --a"
    assert after("torchrun -m pkg.train --a") is None
    assert read.before_script(Run("a"), "--x 1") is None


def test_a_line_is_shown_at_its_script() -> None:
    assert shown(read.at_line(started("torchrun --nnodes 1 a/train.py --a"))) == "a/train.py"


def shown(place: Any) -> str:
    span = place.concrete()
    return str(place.file.source.text[span.start : span.end])


@pytest.mark.parametrize(
    ("text", "count"),
    [("12", 12), ("99999999", 99999999), ("100000000", None), ("-1", None), ("1.5", None), ("a", None), ("$N", None)],
)
def test_a_count_on_a_line(text: str, count: int | None) -> None:
    assert line_option(started(f"torchrun --nproc_per_node {text} train.py"), "nproc_per_node").count == count


def test_words_behind_an_option() -> None:
    run = started("torchrun --nnodes 1 --standalone train.py")
    for name, words in (("nnodes", "--nnodes 1"), ("standalone", "--standalone")):
        option = line_option(run, name)
        assert option.words == words and option.plain == name
        fix = line_fix(run, "w", option.followed_by("--x 2"))
        assert fix is not None and not fix.safe
        text = apply_edits(option.origin.file.source.text, [edit for _, edit in fix.edits])  # type: ignore[union-attr]
        assert f"{words} --x 2" in text and shlex.split(text)[-1] == "train.py"
    assert (
        line_option(run, "nproc_per_node").plain == "" and line_option(run, "nproc_per_node").followed_by("x") is None
    )


def test_a_fix_of_a_line_is_whole_or_none() -> None:
    run = started("torchrun --nnodes 1 train.py")
    one, two = Edit(Span(0, 1), "x"), Edit(Span(2, 3), "y")
    fix = line_fix(run, "w", [one], [two], safe=True, gives=(Intent("a", 1, "option"),))
    assert fix is not None and fix.safe and [edit for _, edit in fix.edits] == [one, two]
    assert fix.gives == (Intent("a", 1, "option"),) and fix.description == "w"
    assert line_fix(run, "w", [one], None) is None is line_fix(run, "w")
    assert line_fix(Run("a"), "w", [one]) is None


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("num_processes", "4", 4),
        ("num_processes", "four", None),
        ("num_processes", None, None),
        ("multi_gpu", None, True),
        ("gradient_clipping", "1.5", 1.5),
        ("mixed_precision", "bf16", "bf16"),
        ("no_such_option", "1", None),
        ("no_such_option", None, None),
    ],
)
def test_what_a_new_option_means(name: str, text: str | None, value: object) -> None:
    assert read.says(name, text) == (() if value is None else (Intent(name, value, "option"),))


def test_variables_of_a_command() -> None:
    from zerocfg.run.model import Origin

    run = started("torchrun --nnodes $NODES ${SCRIPT}.py $NODESX")
    assert [read.mentions(run, name) for name in ("NODES", "SCRIPT", "NODE", "nnodes")] == [True, True, False, False]
    assert not read.mentions(Run("a"), "NODES")
    held = {"A": Setting("1", Origin("environment")), "B": Setting(UNKNOWN, Origin("environment"))}
    exporting = started("torchrun train.py", environment=held)
    assert [read.exported(exporting, name) for name in "ABC"] == ["1", None, None]


@pytest.mark.parametrize(
    ("name", "page"), [("README.md", True), ("a.MDX", True), ("a.rst", True), ("a.sh", False), ("md", False)]
)
def test_pages_of_documentation(name: str, page: bool) -> None:
    assert read.is_page(SourceFile(name, "launch", SourceText(name, ""))) is page


def test_the_launcher_of_a_line() -> None:
    run = started("torchrun train.py")
    assert read.started_by(run, "deepspeed", "torchrun") and not read.started_by(run, "deepspeed")
    assert not read.started_by(Run("a"), "torchrun")


def issue(value: object, *types: str, auto: bool = False) -> Any:
    """A key with a value that the catalog refuses, of these types."""
    key = SimpleNamespace(scalars=[{"type": item} for item in types], facts={"auto": 1} if auto else {})
    return SimpleNamespace(
        issue=SimpleNamespace(value=value, key=key if types else None),
        replace=lambda text, why, safe: (text, why, safe),
    )


@pytest.mark.parametrize(
    ("key", "text", "safe"),
    [
        (issue(0, "string"), '"0"', True),
        (issue(2.0, "integer"), "2", True),
        (issue(2.5, "integer"), "2", False),
        (issue(2.6, "integer"), "3", False),
        (issue(1e15, "integer"), None, False),
        (issue(2.5, "boolean"), None, False),
        (issue([2], "integer"), None, False),
        (issue(" Auto ", "integer", auto=True), '"auto"', False),
        (issue("auto", "integer"), None, False),
        (issue("true", "boolean"), "true", True),
        (issue("False", "boolean"), "false", True),
        (issue("yes", "boolean"), "true", False),
        (issue("off", "boolean"), "false", False),
        (issue("yes", "integer"), None, False),
        (issue("12", "boolean"), None, False),
        (issue("12", "integer"), "12", True),
        (issue("-12", "integer", "boolean"), "-12", True),
        (issue("1,000", "integer"), "1000", False),
        (issue("1_000", "integer"), "1000", False),
        (issue("2e3", "integer"), "2000", True),
        (issue("2.4", "integer"), "2", False),
        (issue("1e400", "number"), None, False),
        (issue("2.5", "number"), "2.5", True),
        (issue("2.5", "number", "integer"), "2.5", True),
        (issue("1e-5", "number"), "1.0e-05", True),
        (issue("1e16", "number"), "1.0e+16", True),
        (issue("2 GB", "integer"), None, False),
        (issue("12"), None, False),
    ],
)
def test_what_a_refused_value_most_likely_says(key: Any, text: str | None, safe: bool) -> None:
    found: Any = repaired(key)
    assert found == (None if text is None else (text, f"write {text}", safe))


@pytest.mark.parametrize(
    ("number", "text"), [(1e-5, "1.0e-05"), (2.5, "2.5"), (1e16, "1e+16".replace("e", ".0e")), (1.5e-7, "1.5e-07")]
)
def test_a_number_that_yaml_and_json_read_alike(number: float, text: str) -> None:
    import json

    import yaml

    assert plain_number(number) == text and yaml.safe_load(text) == number == json.loads(text)


@pytest.mark.parametrize(
    ("text", "consumer", "word"),
    [
        ('{"a": None}', "deepspeed", "None"),
        ('{"a": "True"}', "deepspeed", None),
        ('{"a": Nones}', "deepspeed", None),
        ('{"a": None}', "transformers", None),
        ('{"a": {}}', "deepspeed", None),
        ('{"a": 1}', "deepspeed", None),
    ],
)
def test_words_of_python_in_a_json(text: str, consumer: Any, word: str | None) -> None:
    held = file(text, form="hjson")
    assert held.document is not None
    node = held.document.get(("a",))
    run = Run("a", consumer, deepspeed=held)
    assert python_word(run, held, node) == word
    assert python_word(Run("a", consumer, deepspeed=file("{}")), held, node) is None, "another file"


@pytest.mark.parametrize(
    ("text", "form", "found"),
    [
        ("a: 1e-5", "yaml", "1e-5"),
        ("a: 2E8", "yaml", "2E8"),
        ("a: '1e-5'", "yaml", None),
        ("a: 1.0e-5", "yaml", None),  # a number
        ("a: 1.5e8", "yaml", "1.5e8"),  # YAML 1.1 wants a sign
        ("a: 1e-5x", "yaml", None),
        ("a: []", "yaml", None),
        ('{"a": "1e-5"}', "json", None),
    ],
)
def test_numbers_that_yaml_takes_for_texts(text: str, form: Any, found: str | None) -> None:
    held = file(text, "recipe", form)
    assert held.document is not None and scientific_text(held, held.document.get(("a",))) == found


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("num_processes: 2", ["accelerate"]),
        ("compute_environment: LOCAL_MACHINE", ["accelerate"]),
        ("compute_environment: AMAZON_SAGEMAKER", ["accelerate-sagemaker"]),
        ("compute_environment: MY_CLOUD", []),
        ("- 1", ["accelerate"]),
    ],
)
def test_the_schemas_of_a_runs_files(text: str, names: list[str]) -> None:
    accelerate, spec = file(text, "accelerate", "yaml"), file("a: 1", "spec", "yaml")
    assert [name for _, name in documents(Run("a", accelerate=accelerate))] == names
    whole = Run("a", accelerate=accelerate, deepspeed=file("{}"), spec=spec, recipe=file("a: 1", "recipe", "yaml"))
    assert [name for _, name in documents(whole)] == [*names, "deepspeed", "spec"]


def told(text: str, *kinds: str, **versions: str) -> list[tuple[str, str]]:
    """Keys of a DeepSpeed config with an issue, and the releases that are said to have it."""
    found = issues(Run("a", deepspeed=file(text), versions=versions), *kinds)
    return [(item.name, item.issue.releases.words if item.issue.releases else "") for item in found]


def test_issues_of_the_admitted_releases() -> None:
    """DeepSpeed: `zero_optimization` refuses unknown keys, the top level passes over them; `zenflow` came in 0.17.3."""
    unknown = ("unknown-crash", "unknown-ignored", "unknown-newer")
    slip = '{"zero_optimization": {"stagee": 2}, "gradient_cliping": 1}'
    for versions in ({}, {"deepspeed": ">=0.19"}, {"deepspeed": "==0.18.2"}, {"deepspeed": "junk"}):
        assert {*told(slip, *unknown, **versions)} == {("stagee", ""), ("gradient_cliping", "")}
    assert told('{"zero_optimization": {"zenflow": {}}}', *unknown, deepspeed="==0.16.9") == [], "ZC865 tells it"
    assert told('{"zero_optimization": {"stage": 7}}', "type", "choice", "range") == [("stage", "")]
    assert told('{"zero_optimization": {"stage": 7}}', *unknown) == []


def test_a_finding_says_whose_newest_release_it_assumes() -> None:
    """Unknown keys of `fp16` are refused since some release, those of `zero_optimization` always were."""

    def assumed(section: str, **more: Any) -> frozenset[str]:
        config = file(f'{{"{section}": {{"xyzzy": 2}}}}')
        (one,) = issues(Run("a", deepspeed=config, **more), "unknown-crash", "unknown-ignored")
        assert isinstance(one, KeyIssue)
        return one.finding("m").assumes

    other = file("num_processes: 2", "accelerate", "yaml")
    assert assumed("fp16") == {"deepspeed"} == assumed("fp16", accelerate=other)
    assert assumed("zero_optimization") == frozenset() == assumed("fp16", versions={"deepspeed": ">=0.18"})


def test_a_placeholder_of_a_script_is_no_issue() -> None:
    """In a file it is one, which ZC013 tells with others; in a dict of a script nobody knows the value."""
    held = file('{"train_batch_size": "${N}", "steps_per_print": "three"}')
    found = {item.name: item.unfilled for item in issues(Run("a", deepspeed=held), "type", "raw-type")}
    assert found == {"train_batch_size": True, "steps_per_print": False}
    assert held.document is not None
    held.document.editable = False
    assert [item.name for item in issues(Run("a", deepspeed=held), "type", "raw-type")] == ["steps_per_print"]


def test_fixes_of_options_are_fixes() -> None:
    run = started("torchrun --nnodes 1 train.py")
    deleted = line_option(run, "nnodes").delete("w")
    assert isinstance(deleted, Fix) and deleted.safe
