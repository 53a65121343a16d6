"""The pieces of the server's answers by themselves: what exactly is shown, offered, edited and linked."""

from __future__ import annotations

import asyncio
import io
import os
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp
from lsprotocol.types import CompletionItemKind, DiagnosticSeverity, Position, Range
from lsprotocol.types import Diagnostic as Shown
from pygls.exceptions import JsonRpcException
from pygls.workspace import Workspace

from tests.lsp import inside
from zerocfg.catalog.schema import Key, load_schema
from zerocfg.lsp import actions, answers
from zerocfg.lsp import session as sessions
from zerocfg.lsp.actions import Writer
from zerocfg.lsp.checking import Project, Snapshot
from zerocfg.lsp.completion import complete, values, yaml_text
from zerocfg.lsp.cursor import in_json, in_yaml
from zerocfg.lsp.diagnostics import Rendered, diagnostics, shown
from zerocfg.lsp.documents import Document, Documents, file_uri, texts
from zerocfg.lsp.hover import describe, effective, kinds, origins
from zerocfg.lsp.links import links
from zerocfg.lsp.positions import Lines
from zerocfg.lsp.schedule import Schedule
from zerocfg.lsp.server import Channel, make_server
from zerocfg.lsp.session import Session

DEEPSPEED = load_schema("deepspeed")


def key(name: str = "some_key", **raw: Any) -> Key:
    facts = {name.removeprefix("x_"): raw.pop(name) for name in list(raw) if name.startswith("x_")}
    return Key(name, raw | {"x-zerocfg": facts}, DEEPSPEED)


def project(folder: Path, files: dict[str, str], *opened: str) -> tuple[Documents, Snapshot]:
    """These files, of which some are open."""
    documents = Documents()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    for name in opened:
        documents.put(file_uri(folder / name), files[name], 7)
    return documents, Project(str(folder)).check(list(documents.open.values()))


# -- where the cursor is ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marked", "at", "key", "typed", "follows"),
    [
        ('{"a": 1, "b|c" : 2}', "key", "", '"bc"', ":"),
        ('{"a": 1, "b|c"}', "key", "", '"bc"', "}"),
        ('{"a": |1, "b": 2}', "value", "a", "", "1"),  # before a word it is not touched
        ('{"a": 1|, "b": 2}', "value", "a", "1", ","),
        ('{"a": [1], "b": |}', "value", "b", "", "}"),
        ('{"a": {"x": 1}, "b": |}', "value", "b", "", "}"),
        ('{"a": 1\n# "b": 2,\n, "c": |}', "value", "c", "", "}"),
        ('{"a": 1 /* "b": { */, "c": |}', "value", "c", "", "}"),
        ('{"a": 1}|', None, "", "", ""),
        ('{"a": "x" |', "key", "", "", ""),
        ('[{"a": 1}, {"b": |', "value", "b", "", ""),
        ('{"a" |', "key", "", "", ""),
        ('{"a": \n|\n"b": 1}', "value", "a", "", '"'),
        ('{"a\\"|b": 1}', "key", "", '"a\\"b"', ":"),
    ],
)
def test_the_cursor_in_a_json(marked: str, at: str | None, key: str, typed: str, follows: str) -> None:
    text = marked.replace("|", "")
    found = in_json(text, marked.index("|"))
    assert (found.at if found else None) == at
    if found is not None:
        assert (found.key, text[found.typed.start : found.typed.end], found.follows) == (key, typed, follows)


@pytest.mark.parametrize(
    ("marked", "path", "at", "key", "typed", "present", "follows"),
    [
        ("a: 1\nb|c: 2\n", (), "key", "", "bc", {"a"}, ":"),
        ("a: 1\n|bc: 2\n", (), "key", "", "bc", {"a"}, ":"),
        ("'a': |\n\"b\": 2\n", (), "value", "a", "", {"b"}, ""),
        ("a:\n  b: 1\n\n  # c: 1\n  |\n", ("a",), "key", "", "", {"b"}, ""),
        ("a:\n  b:\n    c: 1\n  |\n", ("a",), "key", "", "", {"b"}, ""),
        ("a:\n  b:\n    c: 1\n    |\n", ("a", "b"), "key", "", "", {"c"}, ""),
        ("a:\n  b:\n    c: 1\n      |\n", ("a", "b"), "key", "", "", {"c"}, ""),  # deeper than anything opens
        ("a:\n  b:\n    |\n", ("a", "b"), "key", "", "", set(), ""),
        ("a: 1\nb:\n- x\nc: |\n", (), "value", "c", "", {"a", "b"}, ""),
        ("a: x|y  # z\nb: 1\n", (), "value", "a", "xy", {"b"}, ""),
        ("  |\n  a: 1\n", (), "key", "", "", {"a"}, ""),
        ("a: x  |\n", (), "value", "a", "x  ", set(), ""),
        ("a:\n  b: 1\nc:\n  d|: 2\n", ("c",), "key", "", "d", set(), ":"),
    ],
)
def test_the_cursor_in_a_yaml(
    marked: str, path: tuple[str, ...], at: str, key: str, typed: str, present: set[str], follows: str
) -> None:
    text = marked.replace("|", "")
    found = in_yaml(text, marked.index("|"))
    assert found is not None
    assert (found.path, found.at, found.key, found.follows) == (path, at, key, follows)
    assert (text[found.typed.start : found.typed.end], set(found.present)) == (typed, present)


@pytest.mark.parametrize(
    "marked", ["a: 1\n\t|", "a: {b: 1|", "a: [|", "- |", "a b, c|", "a: 1\n  b: 2|", "- a:\n    b: |"]
)
def test_where_no_cursor_is(marked: str) -> None:
    assert in_yaml(marked.replace("|", ""), marked.index("|")) is None


# -- what is offered -------------------------------------------------------------------------------------------------


def offered(kind: str, form: Any, marked: str, label: str, data: Any = None) -> Any:
    lines = Lines(marked.replace("|", ""), "utf-16")
    items = complete(kind, form, lines, marked.index("|"), data, ())
    return next((item for item in items if item.label == label), None)


def test_a_key_that_is_offered() -> None:
    plain = offered("deepspeed", "json", '{"|"}', "gradient_clipping")
    assert plain.text_edit.new_text == '"gradient_clipping": ' and plain.filter_text == '"gradient_clipping"'
    assert plain.text_edit.range == Range(Position(0, 1), Position(0, 3))
    assert plain.kind is CompletionItemKind.Property and plain.sort_text == "0gradient_clipping" and plain.tags is None
    again = offered("deepspeed", "json", '{"|": 1}', "gradient_clipping")
    assert again.text_edit.new_text == '"gradient_clipping"', "the colon is there"
    section = offered("deepspeed", "json", '{"|"}', "activation_checkpointing")
    assert section.kind is CompletionItemKind.Module and section.text_edit.new_text == '"activation_checkpointing": '
    assert offered("accelerate", "yaml", "|\n", "fsdp_config").text_edit.new_text == "fsdp_config:"
    assert offered("accelerate", "yaml", "|\n", "num_processes").text_edit.new_text == "num_processes: "
    assert offered("accelerate", "yaml", "num|: 1\n", "num_processes").text_edit.new_text == "num_processes"
    # the launcher takes its other options from there, too, once they are begun
    begun = "deepspeed_config:\n  fp8_b|\n"
    assert offered("accelerate", "yaml", begun, "fp8_backend").text_edit.new_text == "fp8_backend: "
    assert offered("accelerate", "yaml", begun.replace("fp8_b", ""), "fp8_backend") is None
    # a section that may be a word, too
    assert offered("recipe", "yaml", "|\n", "fsdp_config").text_edit.new_text == "fsdp_config: "
    old = offered("deepspeed", "json", '{"zero_optimization": {"|"}}', "cpu_offload")
    assert old.sort_text == "1cpu_offload" and old.tags == [1]
    assert "**zero_optimization.cpu_offload**" in old.documentation.value


def test_a_value_that_is_offered() -> None:
    default = offered("deepspeed", "json", '{"zero_optimization": {"stage": |}}', "0")
    assert (default.detail, default.preselect, default.sort_text) == ("default", True, "00")
    other = offered("deepspeed", "json", '{"zero_optimization": {"stage": |}}', "2")
    assert (other.detail, other.preselect, other.sort_text) == (None, None, "12")
    assert (other.kind, other.text_edit.new_text) == (CompletionItemKind.Value, "2")
    word = offered("accelerate", "yaml", "mixed_precision: |\n", "no")
    assert word.kind is CompletionItemKind.EnumMember and word.text_edit.new_text == '"no"', "YAML reads no as false"
    auto = offered("deepspeed", "json", '{"train_batch_size": |}', "auto")
    assert auto.sort_text == '2"auto"' and auto.detail.startswith("filled by ")
    section = offered("deepspeed", "json", '{"activation_checkpointing": |}', "{}")
    assert (section.text_edit.new_text, section.detail) == ("{}", "a section")
    assert section.kind is CompletionItemKind.Module
    assert offered("deepspeed", "yaml", "activation_checkpointing: |\n", "{}") is None, "in YAML its keys stand below"
    assert offered("deepspeed", "json", '{"no_such_key": |}', "{}") is None


def test_values_of_a_key() -> None:
    """The default first, each once; a switch is no number."""
    both = key(anyOf=[{"enum": ["a", "b"]}, {"type": "boolean"}, {"const": "c"}, {"const": "auto"}], default="b")
    assert list(values(both, ())) == [("b", "default"), ("a", ""), (True, ""), (False, ""), ("c", "")]
    number = key(type="integer", default=1, examples=[1, 2, [3]], x_known_values=[2, True])
    assert list(values(number, ())) == [(1, "default"), (2, ""), (True, "")]
    filled = key(type="integer", x_auto={"transformers": "the batch", "trl": "another"})
    assert list(values(filled, ("trl", None))) == [("auto", "filled by trl: another")]
    assert list(values(filled, (None,))) == [("auto", "filled by transformers: the batch")]
    assert list(values(filled, ("deepspeed",))) == []
    assert list(values(key(type="boolean", default=False), ())) == [(False, "default"), (True, "")]


# -- what is told of a key ---------------------------------------------------------------------------------------------


def test_the_kinds_of_a_key() -> None:
    words = [f"w{number}" for number in range(13)]
    assert kinds(key(enum=words[:12])) == " | ".join(f"`{word}`" for word in words[:12])
    assert kinds(key(enum=words)) == " | ".join(f"`{word}`" for word in words[:12]) + " | …"
    assert kinds(key(anyOf=[{"const": 3}, {"type": "null"}, {"properties": {}}])) == "`3` or null or a section"
    assert kinds(key(type="integer", minimum=1, exclusiveMaximum=5)) == "whole number at least 1 below 5"
    assert kinds(key(type="number", exclusiveMinimum=0, maximum=2)) == "number above 0 at most 2"
    assert kinds(key(type="array", minimum=1)) == "list"
    assert kinds(key(anyOf=[{"type": "string"}, {"type": "string"}, {"type": "boolean"}])) == "text or true or false"


def test_what_is_told_of_a_key() -> None:
    told = describe(
        "part.other_name",
        key(
            type="integer",
            default=3,
            description="How many. Unit: steps.",
            x_unit="steps",
            x_deprecated="write more",
            x_renamed_to="more",
            x_since="0.17.1",
            x_default_before={"0.19.3": 2},
            x_auto={"trl": "a * b", "transformers": "a * b"},
        ),
    )
    assert told.split("\n\n") == [
        "**part.other_name** (steps)",
        "Another name of `some_key`.",
        "How many.",
        "Deprecated: write more.",
        "Write `more`.",
        "whole number; default `3`; `2` before 0.19.3; since 0.17.1",
        r'`"auto"` becomes a \* b (under trl, transformers)',
    ]
    plain = describe(
        "some_key", key(type="string", default=None, description="A word, inert now.", x_inert="inert now")
    )
    assert plain.split("\n\n") == ["**some_key**", "A word, inert now.", "text"]
    assert describe("a.some_key", key(type="string", x_removed="gone")).split("\n\n")[1:] == ["Removed: gone.", "text"]


TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\nTrainer(model, args).train()\n"
)
BATCH = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'


def test_what_becomes_of_a_key_in_its_runs(tmp_path: Path) -> None:
    line = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir o --per_device_train_batch_size 4\n"
    files = {"ds.json": BATCH, "train.py": TRAINER} | {f"run{number}.sh": line for number in range(7)}
    documents, snapshot = project(tmp_path, files, *[name for name in files if name != "train.py"])
    path = os.path.realpath(tmp_path / "ds.json")
    runs = snapshot.runs_of[path]

    def told(*keys: str) -> list[str]:
        return effective(runs, path, keys, None, documents.uri_of)

    (same,) = told("zero_optimization", "stage")
    head, _, body = same.partition("\n\n")
    assert head.startswith("In ") and head.endswith(" and 2 more:") and head.count(".sh") == 5
    assert body.startswith("- `zero_optimization.stage` = **2** from [") and "ds.json:1](file://" in body
    assert len(body.splitlines()) == 1, "it replaces nothing"
    each = told("train_micro_batch_size_per_gpu")
    assert len(each) == 7
    for number, text in enumerate(sorted(each)):
        head, _, body = text.partition("\n\n")
        assert head.endswith(f"run{number}.sh:1:") and f"run{number}.sh:1](file://" in body
        first, second = body.splitlines()
        assert first.startswith("- `train_micro_batch_size_per_gpu` = **4** from [") and "run" in first
        assert second.startswith('  - replaces "auto" from [') and "#L1)" in second
    assert told("no_such_key") == []
    found = [one for one in origins(runs, path, ("train_micro_batch_size_per_gpu",), None) if one.file is not None]
    assert sorted(Path(one.file.name).name for one in found) == [f"run{number}.sh" for number in range(7)]
    assert {one.kind for one in found} == {"flag"}
    assert list(origins(runs, path, ("zero_optimization", "stage"), None)) == []


# -- findings in the editor --------------------------------------------------------------------------------------------


def test_a_finding_as_it_is_shown(tmp_path: Path) -> None:
    """At the place of its key, counted from 0 in units of UTF-16; where it speaks of another open file also there."""
    ds = '\ufeff{"ä🚀": 1, "gradient_cliping": 1, "train_micro_batch_size_per_gpu": 1}'
    documents, snapshot = project(tmp_path, {"ds.json": ds}, "ds.json")
    path = os.path.realpath(tmp_path / "ds.json")
    (one,) = [found for found in snapshot.diagnostics if "gradient_cliping" in found.message]
    made = shown(one, documents.uri_of, "utf-16")
    assert (made.range.start.line, made.range.start.character) == (0, len('{"ä🚀": 1, ') + 1)
    assert shown(one, documents.uri_of, "utf-32").range.start.character == len('{"ä🚀": 1, ')
    assert made.message == f"{one.message}\n{one.help}" and made.source == "zerocfg" and made.code == one.code
    assert (
        made.severity is {"error": DiagnosticSeverity.Error, "warning": DiagnosticSeverity.Warning}[one.severity.value]
    )
    rendered: Rendered = {}
    first = diagnostics(snapshot, {path}, documents.uri_of, "utf-16", rendered)
    again = diagnostics(snapshot, {path}, documents.uri_of, "utf-16", rendered)
    assert list(first) == [path] and len(first[path]) == len(snapshot.diagnostics) == len(rendered)
    assert all(old is new for old, new in zip(first[path], again[path], strict=True)), "nothing is made anew"
    other = diagnostics(snapshot, {path}, documents.uri_of, "utf-32", rendered)
    assert not any(old is new for old, new in zip(first[path], other[path], strict=True))


def test_a_finding_about_two_files_is_shown_in_both(tmp_path: Path) -> None:
    accelerate = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: fp16\n"
        "deepspeed_config:\n  deepspeed_config_file: ds.json\n  zero3_init_flag: false\n"
    )
    ds = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    files = {"accelerate.yaml": accelerate, "ds.json": ds}
    documents, snapshot = project(tmp_path, files, *files)
    both = [one for one in snapshot.diagnostics if one.related]
    assert both, "accelerate refuses two precisions"
    paths = {os.path.realpath(tmp_path / name) for name in files}
    found = diagnostics(snapshot, paths, documents.uri_of, "utf-16")
    alone = diagnostics(snapshot, set(), documents.uri_of, "utf-16")
    for one in both:
        own, other = os.path.realpath(str(one.span.file.path)), os.path.realpath(str(one.related[0].file.path))
        if own == other:
            continue
        (pointer,) = [each for each in found[other] if each.code == one.code and each.related_information]
        where = f"{one.span.file.name}:{one.span.start.line}: "
        assert pointer.message == where + one.message and pointer.severity is DiagnosticSeverity.Information
        assert pointer.related_information is not None
        assert pointer.related_information[0].location.uri == documents.uri_of(own)
        assert not [each for each in alone.get(other, []) if each.code == one.code]
        return
    raise AssertionError("no finding speaks of two files")


def test_fixes_and_ignore_comments(tmp_path: Path) -> None:
    ds = '{\n  "gradient_cliping": 1.0,\n  "train_micro_batch_size_per_gpu": 1\n}\n'
    documents, snapshot = project(tmp_path, {"ds.json": ds}, "ds.json")
    path = os.path.realpath(tmp_path / "ds.json")
    here = Range(Position(1, 4), Position(1, 4))
    found = actions.at(snapshot, path, here, "utf-16")
    assert [one.code for one in found] == ["ZC102"] and actions.at(snapshot, "/elsewhere", here, "utf-16") == []
    assert actions.at(snapshot, path, Range(Position(2, 4), Position(2, 4)), "utf-16") == []
    write = Writer(snapshot, documents.uri_of, "utf-16", versioned=True)
    context = [
        shown(found[0], documents.uri_of, "utf-16"),
        Shown(Range(Position(0, 0), Position(0, 1)), "x", code="ZC102"),
    ]
    fix, *ignore = actions.quick_fixes(snapshot, found, context, write)
    assert "gradient_clipping" in fix.title and fix.title.endswith("(ZC102)") and fix.title[0].isupper()
    assert fix.is_preferred is True and fix.diagnostics == context[:1]
    (edited,) = fix.edit.document_changes  # type: ignore[union-attr, misc]
    assert edited.text_document.version == 7  # type: ignore[union-attr]
    assert edited.text_document.uri == file_uri(tmp_path / "ds.json")  # type: ignore[union-attr]
    (change,) = edited.edits  # type: ignore[union-attr]
    line = change.range.start.line
    assert line == 1 and "gradient_clipping" in change.new_text  # type: ignore[union-attr]
    plain = Writer(snapshot, documents.uri_of, "utf-16", versioned=False)
    whole = actions.fix_all_of(snapshot, path, plain)
    assert whole is not None and whole.document_changes is None and list(whole.changes or ()) == [file_uri(path)]
    assert actions.fix_all_of(snapshot, "/elsewhere", plain) is None
    assert ignore == [], "strict JSON has no place for a comment"
    line_of = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 7\n"
    documents, other = project(tmp_path / "other", {"acc.yaml": line_of}, "acc.yaml")
    path = os.path.realpath(tmp_path / "other" / "acc.yaml")
    (error,) = actions.at(other, path, Range(Position(3, 14), Position(3, 14)), "utf-16")
    seen = [shown(error, documents.uri_of, "utf-16")]
    unsafe, comment = actions.quick_fixes(
        other, [error], seen, Writer(other, documents.uri_of, "utf-16", versioned=False)
    )
    assert unsafe.title == f"Take the default ({error.code}; unsafe: decides for you)" and unsafe.is_preferred is None
    assert comment.title == f"Ignore {error.code} here ({error.name})" and comment.diagnostics == seen
    ((uri, (added,)),) = (comment.edit.changes or {}).items()  # type: ignore[union-attr]
    assert uri == file_uri(path) and f"zerocfg: ignore[{error.code}]" in added.new_text


# -- what a name leads to ----------------------------------------------------------------------------------------------


def test_links_of_a_launch_line_and_an_accelerate_config(tmp_path: Path) -> None:
    accelerate = (
        "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\n"
        "deepspeed_config:\n  deepspeed_config_file: conf/ds.json\n"
    )
    line = "accelerate launch --config_file acc.yaml train.py --config recipe.yaml --report_to none\n"
    recipe = "output_dir: o\nper_device_train_batch_size: 1\nmax_steps: 2\nlearning_rate: 1.0e-5\n"
    script = (
        "from trl import SFTConfig, SFTTrainer, TrlParser\n(a,) = TrlParser((SFTConfig,)).parse_args_and_config()\n"
    )
    script += "SFTTrainer(m, args=a).train()\n"
    files = {"run.sh": line, "acc.yaml": accelerate, "conf/ds.json": BATCH, "recipe.yaml": recipe, "train.py": script}
    _, snapshot = project(tmp_path, files, "run.sh", "acc.yaml")

    def linked(name: str) -> list[tuple[str, str]]:
        text = files[name]
        found = links(snapshot.runs, os.path.realpath(tmp_path / name))
        return [
            (text[one.span.start : one.span.end], os.path.relpath(one.target, os.path.realpath(tmp_path)))
            for one in found
        ]

    assert linked("run.sh") == [("acc.yaml", "acc.yaml"), ("train.py", "train.py"), ("recipe.yaml", "recipe.yaml")]
    assert linked("acc.yaml") == [("conf/ds.json", "conf/ds.json")]
    assert linked("recipe.yaml") == linked("train.py") == []


def test_answers_about_a_place(tmp_path: Path) -> None:
    """Over the key and over its plain value, not beside them; of the launch line over an option and its value."""
    line = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir o --per_device_train_batch_size 4\n"
    files = {"run.sh": line, "ds.json": BATCH, "train.py": TRAINER}
    told: list[str] = []

    async def ask() -> None:
        session = Session(lambda *published: None, told.append)
        for name, text in files.items():
            (tmp_path / name).write_text(text)
            if name != "train.py":
                session.put(file_uri(tmp_path / name), text, 1)

        async def hover(name: str, at: str, past: int = 0) -> tuple[str, str] | None:
            where = Position(0, files[name].index(at) + past)
            found = await answers.hover_text(session, file_uri(tmp_path / name), where)
            if found is None or found.range is None:
                return None
            start, end = found.range.start.character, found.range.end.character
            return files[name][start:end], found.contents.value  # type: ignore[union-attr]

        over = await hover("ds.json", "train_micro")
        assert over is not None and over[0] == '"train_micro_batch_size_per_gpu"'
        assert over[1].startswith("**train_micro_batch_size_per_gpu**") and "= **4** from" in over[1]
        value = await hover("ds.json", "auto")
        assert value is not None and value[0] == '"train_micro_batch_size_per_gpu": "auto"'
        inner = await hover("ds.json", "2}}")
        assert inner is not None and inner[0] == '"stage": 2' and inner[1].startswith("**zero_optimization.stage**")
        assert await hover("ds.json", ", ", 2) is not None and await hover("ds.json", "}}", 1) is None
        option = await hover("run.sh", "--per_device")
        assert option is not None and option[0] == "--per_device_train_batch_size 4"
        assert "**per_device_train_batch_size**" in option[1]
        assert await hover("run.sh", " 4\n", 1) == option
        assert await hover("run.sh", "train.py") is None

        async def led(name: str, at: str) -> list[tuple[str, str]]:
            where = Position(0, files[name].index(at))
            found = await answers.definitions(session, file_uri(tmp_path / name), where)
            return [
                (Path(one.uri).name, files[Path(one.uri).name][one.range.start.character : one.range.end.character])
                for one in found
            ]

        assert await led("run.sh", "ds.json") == [("ds.json", "")]
        ((name, text),) = await led("ds.json", "train_micro")
        assert name == "run.sh" and text.startswith("--per_device_train_batch_size")
        assert await led("ds.json", "stage") == []
        assert await answers.definitions(session, "file:///nowhere.json", Position(0, 0)) == []
        targets = await answers.link_targets(session, file_uri(tmp_path / "run.sh"))
        assert [Path(str(one.target)).name for one in targets] == ["train.py", "ds.json"]

        async def completed(name: str, at: str, trigger: str | None) -> int:
            where = Position(0, files[name].index(at))
            found = await answers.completions(session, file_uri(tmp_path / name), where, trigger)
            return len(found.items)

        assert await completed("ds.json", '"auto"', ":") > 0, "behind a colon and a blank"
        assert await completed("ds.json", '"zero_opt', " ") == 0, "a blank elsewhere asks for nothing"
        assert await completed("ds.json", '"zero_opt', None) > 0
        assert await completed("run.sh", "--per", None) == 0
        session.stop()

    asyncio.run(ask())
    assert told == []


# -- documents and pauses ----------------------------------------------------------------------------------------------


def test_documents(tmp_path: Path) -> None:
    real, link = tmp_path / "ds.json", tmp_path / "link.json"
    real.write_text("{}")
    link.symlink_to(real)
    documents = Documents()
    for path in (real, link):
        documents.put(file_uri(path), "{}", 1)
    assert documents.uri_of(os.path.realpath(real)) == file_uri(real), "as it was opened first"
    assert documents.uri_of("/other.json") == "file:///other.json"
    documents.close(file_uri(real))
    assert documents.uri_of(os.path.realpath(real)) == file_uri(link)
    changed = documents.change(file_uri(link), '{"a": 1}', 2)
    assert (changed.text, changed.version, changed.path) == ('{"a": 1}', 2, os.path.realpath(real))
    assert documents.change(file_uri(tmp_path / "new.json"), "{}", 3).version == 3
    assert texts(documents.open.values()) == {
        os.path.realpath(real): '{"a": 1}',
        os.path.realpath(tmp_path / "new.json"): "{}",
    }


@pytest.mark.parametrize(
    ("name", "text", "linted"),
    [
        ("zerocfg.yaml", "version: 1\n", True),
        ("run.sh", "echo\n", True),
        ("ds.json", '{"train_batch_size": 1}', True),
        ("ds.json", " \n", True),
        ("package.json", '{"name": "x"}', False),
        (None, '{"train_batch_size": 1}', False),
    ],
)
def test_documents_from_which_a_lint_starts(name: str | None, text: str, linted: bool) -> None:
    assert Document("untitled:1", text, 1, f"/nowhere/{name}" if name else None).linted is linted


def test_a_file_that_is_no_utf8_is_read_from_disk(tmp_path: Path) -> None:
    path = tmp_path / "notes.json"
    path.write_bytes(b'{"a": "\xff"}')
    document = Documents().put(file_uri(path), '{"a": "?"}', 1)
    assert document.undecodable and document.linted and texts([document]) == {}


def test_looks_follow_changes() -> None:
    """One at a time; changes during a look lead to one more; who waits waits for the last."""
    looks: list[str] = []

    async def play() -> None:
        gate = asyncio.Event()

        async def look() -> None:
            looks.append("begun")
            await gate.wait()
            looks.append("ended")

        schedule = Schedule(look, pause=0)
        await schedule.settled()
        assert looks == [], "nothing changed"
        schedule.changed()
        schedule.changed()
        waiting = asyncio.ensure_future(schedule.settled())
        while not looks:
            await asyncio.sleep(0)
        for _ in range(3):
            schedule.changed()
        await asyncio.sleep(0.01)
        assert looks == ["begun"] and not waiting.done()
        gate.set()
        await waiting
        assert looks == ["begun", "ended"] * 2
        await schedule.settled()
        gate.clear()
        schedule.changed()
        while len(looks) == 4:
            await asyncio.sleep(0)
        schedule.changed()
        await asyncio.sleep(0.01)
        gate.set()
        while len(looks) < 8:  # nobody waits, and it is looked at all the same
            await asyncio.sleep(0)
        looks.clear()
        looks.extend(["begun", "ended"] * 2)
        slow = Schedule(look, pause=1000)
        slow.changed()
        slow.stop()
        await asyncio.sleep(0)
        assert len(looks) == 4
        slow.changed()
        await slow.settled()
        assert len(looks) == 6, "who waits does not wait for the pause"

    asyncio.run(play())


def test_a_text_that_does_not_parse_is_what_it_was(tmp_path: Path) -> None:
    """Its kind and what it held last: whoever types breaks it at each letter."""
    session = Session(lambda *published: None, lambda trouble: None)
    uri = file_uri(tmp_path / "some.json")

    def read(text: str) -> tuple[str, str, object]:
        document = session.documents.put(uri, text, 1)
        reading = session.reading(document, None)
        assert reading is not None and (reading.tree is None) == text.endswith(": ")
        return reading.kind, reading.form, reading.data

    assert read('{"zero_optimization": {"stage": 2}}') == ("deepspeed", "json", {"zero_optimization": {"stage": 2}})
    assert read('{"zero_optimization": ') == ("deepspeed", "json", {"zero_optimization": {"stage": 2}})
    assert read('{"a": 1}') == ("deepspeed", "json", {"a": 1}), "it holds too little to be something else"
    other = session.documents.put(file_uri(tmp_path / "run.sh"), "deepspeed train.py", 1)
    assert session.reading(other, None) is None
    spec = session.documents.put(file_uri(tmp_path / "zerocfg.yaml"), "version: [", 1)
    reading = session.reading(spec, None)
    assert reading is not None and (reading.kind, reading.form, reading.data) == ("spec", "yaml", None)
    session.stop()


# -- the messages ------------------------------------------------------------------------------------------------------


def test_a_conversation(tmp_path: Path) -> None:
    """Two folders are open; the edit of a chosen action comes when it is chosen, with the version that it is for."""
    texts = {
        "a/ds.json": '{\n  "gradient_cliping": 1.0,\n  "train_micro_batch_size_per_gpu": 1\n}\n',
        "a/run.sh": "deepspeed --num_gpus 2 missing.py --deepspeed_config ds.json\n",
        "b/acc.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 7\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    support = lsp.ClientCapabilities(
        workspace=lsp.WorkspaceClientCapabilities(
            workspace_edit=lsp.WorkspaceEditClientCapabilities(document_changes=True)
        ),
        text_document=lsp.TextDocumentClientCapabilities(
            code_action=lsp.CodeActionClientCapabilities(resolve_support=lsp.ClientCodeActionResolveOptions(["edit"]))
        ),
    )

    async def talk() -> None:
        async with inside.editor(tmp_path, support) as editor:
            client = editor.client
            editor.open("a/ds.json")
            await editor.until(lambda: editor.codes("a/ds.json") != [])
            assert editor.codes("a/ds.json") == ["ZC102"]
            where = lsp.Range(Position(1, 4), Position(1, 4))

            async def asked(only: list[str] | None) -> list[lsp.CodeAction]:
                context = lsp.CodeActionContext([], only=only)  # type: ignore[arg-type]
                params = lsp.CodeActionParams(editor.id("a/ds.json"), where, context)
                return list(await client.text_document_code_action_async(params) or [])  # type: ignore[arg-type]

            (fix_all,) = await asked([actions.FIX_ALL])
            assert fix_all.kind == actions.FIX_ALL and fix_all.edit is None
            resolved = await client.code_action_resolve_async(fix_all)
            (change,) = resolved.edit.document_changes  # type: ignore[union-attr, misc]
            assert change.text_document.version == 1  # type: ignore[union-attr]
            assert {one.kind for one in await asked(["quickfix"])} == {"quickfix"}
            assert {str(one.kind) for one in await asked(None)} == {"quickfix", actions.FIX_ALL}
            assert await asked(["refactor"]) == []
            editor.replace("a/ds.json", "gradient_cliping", "gradient_clipping")
            await editor.until(lambda: editor.codes("a/ds.json") == [])
            assert not [one for one in await asked(None) if one.kind == actions.FIX_ALL]
            editor.save("a/ds.json")
            assert (tmp_path / "a/ds.json").read_text() == texts["a/ds.json"].replace("cliping", "clipping")
            editor.open("a/run.sh")
            run, config = editor.id("a/run.sh"), editor.id("a/ds.json")
            word = Position(0, texts["a/run.sh"].index("ds.json"))
            (named,) = await client.text_document_definition_async(lsp.DefinitionParams(run, word))  # type: ignore[misc]
            assert named.uri == config.uri  # type: ignore[union-attr]
            (link,) = await client.text_document_document_link_async(lsp.DocumentLinkParams(run)) or ()
            assert link.target == config.uri and link.range.start == word

            async def offered(trigger: str | None) -> list[str]:
                kind = lsp.CompletionTriggerKind.TriggerCharacter if trigger else lsp.CompletionTriggerKind.Invoked
                context = lsp.CompletionContext(kind, trigger)
                params = lsp.CompletionParams(config, Position(1, 4), context)
                found = await client.text_document_completion_async(params)
                return [one.label for one in found.items]  # type: ignore[union-attr]

            assert "zero_optimization" in await offered(None) and await offered(" ") == []
            editor.type("a/ds.json", texts["a/ds.json"])
            await editor.until(lambda: editor.codes("a/ds.json") == ["ZC102"])
            (tmp_path / "a/zerocfg.toml").write_text('ignore = ["ZC102"]\n')
            event_of = lsp.FileEvent((tmp_path / "a/zerocfg.toml").as_uri(), lsp.FileChangeType.Created)
            client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([event_of]))
            await editor.until(lambda: editor.codes("a/ds.json") == [])
            editor.open("b/acc.yaml")
            await editor.until(lambda: editor.codes("b/acc.yaml") != [])
            everywhere = lsp.Range(Position(0, 0), Position(4, 0))
            context = lsp.CodeActionContext([])
            params = lsp.CodeActionParams(editor.id("b/acc.yaml"), everywhere, context)
            kinds = {one.kind for one in await client.text_document_code_action_async(params) or ()}
            assert kinds == {"quickfix"}, "a stage that nobody has can be ignored, and no fix is safe"
            gone = lsp.WorkspaceFolder((tmp_path / "a").as_uri(), "a")
            come = lsp.WorkspaceFolder((tmp_path / "b").as_uri(), "b")
            event = lsp.WorkspaceFoldersChangeEvent(
                added=[come, lsp.WorkspaceFolder("untitled:x", "x")], removed=[gone]
            )
            client.workspace_did_change_workspace_folders(lsp.DidChangeWorkspaceFoldersParams(event))
            hover = await client.text_document_hover_async(lsp.HoverParams(editor.id("a/ds.json"), Position(2, 5)))
            assert hover is not None and "train_micro_batch_size_per_gpu" in hover.contents.value  # type: ignore[union-attr]

    asyncio.run(talk())


def test_the_folders_that_are_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is no folder is none; names of files count from the first."""
    for name in ("a", "b", "c"):
        (tmp_path / name).mkdir()
    (tmp_path / "file").write_text("")
    monkeypatch.chdir(tmp_path)
    server = make_server()
    handlers = server.protocol.fm.features
    server.protocol._workspace = Workspace(None)
    first = [lsp.WorkspaceFolder((tmp_path / name).as_uri(), name) for name in ("b", "file", "a")]
    handlers[lsp.INITIALIZE](lsp.InitializeParams(lsp.ClientCapabilities(), workspace_folders=first))
    real = os.path.realpath(tmp_path)
    assert server.session.documents.folders == [f"{real}/b", f"{real}/a"] and os.getcwd() == f"{real}/b"  # noqa: PTH109
    server.session.stop()


def test_what_is_on_disk_counts_again_after_a_save(tmp_path: Path) -> None:
    """Until then the editor's guess of bytes that are no UTF-8 is not used, whatever is typed."""
    session = Session(lambda *published: None, lambda trouble: None)
    path = tmp_path / "ds.json"
    path.write_bytes(b'{"a": "\xff"}')
    uri = file_uri(path)

    async def play() -> None:
        session.put(uri, '{"a": "?"}', 1)
        path.write_text('{"a": "b"}')
        session.change(uri, '{"a": "b"}', 2)
        assert session.documents.open[uri].undecodable and session.documents.open[uri].version == 2
        session.saved(uri)
        assert not session.documents.open[uri].undecodable
        session.saved(file_uri(tmp_path / "never-opened.json"))
        assert list(session.documents.open) == [uri]
        session.stop()

    asyncio.run(play())


def test_a_text_that_is_too_long_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    session = Session(lambda *published: None, told.append)
    text = '{"zero_optimization": {}}'
    monkeypatch.setattr(sessions, "UNASKED_BYTES", len(text))

    async def play() -> None:
        session.put(file_uri(tmp_path / "ds.json"), text, 1)
        assert told == [] and session.reading(session.documents.open[file_uri(tmp_path / "ds.json")], None) is not None
        session.put(file_uri(tmp_path / "long.json"), text + " ", 1)
        assert len(told) == 1 and f"longer than {len(text)} characters" in told[0]
        assert session.reading(session.documents.open[file_uri(tmp_path / "long.json")], None) is None
        session.stop()

    asyncio.run(play())


def test_the_open_files_of_a_folder(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    documents = Documents(folders=[str(tmp_path / "a"), str(tmp_path / "b")])
    for uri in (file_uri(tmp_path / "a" / "ds.json"), file_uri(tmp_path / "b" / "ds.json"), "untitled:1"):
        documents.put(uri, "{}", 1)
    found = documents.in_folder(str(tmp_path / "a"))
    assert [one.uri for one in found] == [file_uri(tmp_path / "a" / "ds.json")]
    assert documents.in_folder(str(tmp_path)) == []


def test_what_is_published(tmp_path: Path) -> None:
    """Once for each version, and only what changed; of a document that was closed nothing stays."""
    published: list[tuple[str, int | None, list[str]]] = []

    def publish(uri: str, version: int | None, found: list[Shown]) -> None:
        published.append((Path(uri).name, version, [str(one.code) for one in found]))

    wrong, right = '{"train_batch_size": 1, "gradient_cliping": 1}', '{"train_batch_size": 1}'
    (tmp_path / "ds.json").write_text(wrong)
    uri = file_uri(tmp_path / "ds.json")

    async def play() -> None:
        session = Session(publish, lambda trouble: None)
        session.put(uri, wrong, 1)
        await session.snapshot(uri)
        assert published == [("ds.json", 1, ["ZC102"])]
        session.touch_all()
        await session.snapshot(uri)
        assert len(published) == 1, "nothing changed"
        session.change(uri, right, 2)
        await session.snapshot(uri)
        assert published[1:] == [("ds.json", 2, [])]
        session.change(uri, wrong, 3)
        await session.snapshot(uri)
        session.close(uri)
        await session.schedule.settled()
        assert published[2:] == [("ds.json", 3, ["ZC102"]), ("ds.json", None, [])]
        assert await session.snapshot(uri) is None
        session.stop()

    asyncio.run(play())


@pytest.mark.parametrize(
    ("message", "answer"),
    [
        ({"jsonrpc": "2.0", "id": 1}, (1, -32600)),
        ({"jsonrpc": "2.0", "id": "a"}, ("a", -32600)),
        ({"jsonrpc": "2.0", "id": True}, (None, -32600)),
        ({"jsonrpc": "2.0", "id": [1]}, (None, -32600)),
        ({"jsonrpc": "2.0"}, None),
        ({"id": 3, "method": "shutdown"}, (3, -32600)),
        ({"id": 3, "result": None}, None),  # an answer is not answered
        ({"method": "exit"}, None),
        ({"jsonrpc": "1.0", "id": 4, "method": "shutdown"}, (4, -32600)),
        ({"jsonrpc": "2.0", "id": 5, "method": "textDocument/hover", "params": {"x": 1}}, (5, -32602)),
    ],
)
def test_messages_that_make_no_sense(
    message: dict[str, Any], answer: tuple[Any, int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each is told in the log; what asks for something gets an error, by its own id where that is one."""
    server = make_server()
    sent: list[Any] = []
    monkeypatch.setattr(server.protocol, "_send_data", sent.append)
    server.protocol.handle_message(server.protocol.structure_message(message))
    answers = [(one["id"], one["error"]["code"]) for one in sent if isinstance(one, dict)]
    assert answers == ([] if answer is None else [answer])
    assert len([one for one in sent if getattr(one, "method", "") == "window/logMessage"]) == 1
    server.session.stop()


def test_what_is_no_json_is_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    server = make_server()
    sent: list[Any] = []
    monkeypatch.setattr(server.protocol, "_send_data", sent.append)
    server.report_server_error(ValueError("no JSON"), JsonRpcException)
    assert [(one["id"], one["error"]["code"]) for one in sent if isinstance(one, dict)] == [(None, -32700)]
    server.report_server_error(ValueError("a bug"), object)
    server.report_server_error(KeyError("a bug"), JsonRpcException)
    assert len([one for one in sent if isinstance(one, dict)]) == 1 and len(sent) == 4
    server.session.stop()


def test_when_nobody_listens_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr("zerocfg.lsp.server.os._exit", ended.append)

    class Closed(io.BytesIO):
        def flush(self) -> None:
            raise BrokenPipeError

    channel = Channel(Closed())
    assert channel.write(b"ab") == 2 and ended == []
    channel.flush()
    assert ended == [1]
    stream = io.BytesIO()
    stream.close()
    Channel(stream).write(b"ab")
    assert ended == [1, 1]


def test_troubles_are_told_once(tmp_path: Path) -> None:
    """Settings that make no sense, again only when they were mended meanwhile."""
    told: list[str] = []
    (tmp_path / "ds.json").write_text("{}")
    settings = tmp_path / "zerocfg.toml"
    uri = file_uri(tmp_path / "ds.json")

    async def play() -> None:
        session = Session(lambda *published: None, told.append)
        for text, count in (
            ("no_such_setting = 1\n", 1),
            ("no_such_setting = 1\n", 1),
            ("", 1),
            ("no_such_setting = 1\n", 2),
        ):
            settings.write_text(text)
            session.put(uri, '{"train_batch_size": 1}', 1)
            await session.snapshot(uri)
            assert len(told) == count and all("no_such_setting" in one for one in told)
        session.stop()

    asyncio.run(play())


def test_details_of_what_is_offered() -> None:
    assert yaml_text(5) == "5" and yaml_text(None) == "null" and yaml_text(True) == "true" and yaml_text("") == '""'
    sized = offered("deepspeed", "json", '{"zero_optimization": {"|"}}', "reduce_bucket_size")
    assert sized.detail == "elements"
    assert offered("deepspeed", "json", '{"|"}', "wall_clock_breakdown").detail == "true or false"


def test_the_longest_text_that_is_linted(monkeypatch: pytest.MonkeyPatch) -> None:
    text = '{"train_batch_size": 1}'
    monkeypatch.setattr("zerocfg.lsp.documents.UNASKED_BYTES", len(text))
    fits, long = (Document("file:///x.json", one, 1, "/x.json") for one in (text, text + " "))
    assert fits.linted and not long.linted
    assert texts([fits]) == {"/x.json": text} and texts([long]) == {}
