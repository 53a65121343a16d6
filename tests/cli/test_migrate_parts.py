"""The parts of a migration by themselves: histories that are written here, edits of Python, findings that come."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from zerocfg.catalog.history import Histories
from zerocfg.catalog.versions import Release, release
from zerocfg.compare.effective_diff import Difference
from zerocfg.compare.sides import Value
from zerocfg.linter.engine import Diagnostic
from zerocfg.migrate import argument_history, configs, dicts, impact, kept, migration, outcome
from zerocfg.migrate.argument_history import Absent, absent_argument, changed_default, has_argument, since
from zerocfg.migrate.migration import migrate
from zerocfg.migrate.plan import Plan
from zerocfg.migrate.program import Program, literal, program_of
from zerocfg.migrate.releases import (
    ReleasesError,
    at_releases,
    at_stated_releases,
    oldest,
    parse_releases,
    pinned_release,
    pinned_releases,
)
from zerocfg.migrate.steps import Drop, Left, Put, Step
from zerocfg.migrate.successors import Becomes, Gone, Unclear, successor
from zerocfg.rules.api import Location, Severity
from zerocfg.rules.place import file_span
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, Origin, Run, Script, SourceFile
from zerocfg.source.edit import Edit, apply_edits
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

TODAY = {"transformers": release("5.23.0"), "trl": release("1.16.0")}


def history(**keys: list[tuple[str, dict[str, Any] | None]]) -> Histories:
    """Of a library with the releases 1.0 to 9.0; `__` in a name is a dot, `_all` its star."""
    named = {name.replace("_all", "*").replace("__", "."): entries for name, entries in keys.items()}
    return Histories({"releases": [f"{number}.0" for number in range(1, 10)], "keys": named})


def config(text: str) -> SourceFile:
    source = SourceText("ds.json", text)
    return SourceFile("ds.json", "deepspeed", source, load_as(source, "json"), Path("ds.json"))


def runs_of(folder: Path, files: dict[str, str]) -> list[Run]:
    for name, text in files.items():
        (folder / name).write_text(text)
    return find_runs([folder], Files(), root=folder, scripts=True)[0]


# -- histories of arguments ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "at", "since", "renamed", "defaulted", "default"),
    [
        ("warmup_ratio", "5.15.0", "5.15.0", "warmup_steps", True, None),
        ("warmup_ratio", "5.23.0", "5.15.0", "warmup_steps", True, None),
        ("overwrite_output_dir", "5.0.0", "5.0.0", None, True, False),
        ("past_index", "5.0.0", "5.0.0", None, True, -1),
        ("evaluation_strategy", "4.51.0", "4.51.0", "eval_strategy", True, None),
        ("tp_size", "4.52.1", "4.52.1", None, True, 0),
        ("sharded_ddp", "4.36.0", None, "fsdp", False, None),  # gone before the oldest known release
    ],
)
def test_an_argument_that_a_release_lacks(
    name: str, at: str, since: str | None, renamed: str | None, defaulted: bool, default: object
) -> None:
    absent = absent_argument(name, {"transformers": release(at)}, frozenset())
    assert absent is not None and absent.library == "transformers"
    assert (absent.since, absent.renamed_to) == (since, renamed)
    assert (absent.defaulted, absent.default) == (defaulted, default)


@pytest.mark.parametrize(
    ("name", "at"),
    [
        ("warmup_ratio", "5.14.1"),
        ("learning_rate", "5.23.0"),
        ("tp_size", "4.49.0"),  # comes with 4.50
        ("tp_size", "4.50.0"),
        ("eval_strategy", "4.40.0"),
        ("nobodys_name", "5.23.0"),
    ],
)
def test_an_argument_that_a_release_has_or_that_is_not_told_of(name: str, at: str) -> None:
    assert absent_argument(name, {"transformers": release(at), "trl": release("1.16.0")}, frozenset()) is None


def test_without_the_library_nothing_is_known_of_its_arguments() -> None:
    assert absent_argument("warmup_ratio", {"trl": release("1.16.0")}, frozenset()) is None
    assert absent_argument("label_pad_token_id", {"transformers": release("5.23.0")}, frozenset()) is None


@pytest.mark.parametrize(
    ("name", "classes", "at", "expected"),
    [
        ("label_pad_token_id", {"KTOConfig"}, "1.16.0", ("0.28.0", True, -100)),
        ("label_pad_token_id", {"DPOConfig"}, "1.16.0", ("0.29.0", True, None)),
        ("label_pad_token_id", {"DPOConfig", "KTOConfig"}, "1.16.0", ("0.29.0", False, None)),
        ("label_pad_token_id", {"DPOConfig", "KTOConfig"}, "0.28.0", None),  # DPOConfig has it
        ("label_pad_token_id", {"KTOConfig"}, "0.28.0", ("0.28.0", True, -100)),
        ("label_pad_token_id", {"KTOConfig"}, "0.27.2", None),
        # that of the script's own arguments, whichever trainer it is
        ("torch_dtype", {"SFTConfig"}, "1.16.0", ("0.27.0", True, None)),
        ("torch_dtype", {"SFTConfig"}, "0.26.2", None),
        # 0.29 comes after 0.9
        ("eval_packing", {"GKDConfig", "SFTConfig"}, "0.10.0", None),
    ],
)
def test_an_argument_of_some_configs_of_trl(
    name: str, classes: set[str], at: str, expected: tuple[str, bool, object] | None
) -> None:
    absent = absent_argument(name, {"trl": release(at)}, frozenset(classes))
    assert (absent and (absent.since, absent.defaulted, absent.default)) == expected


def test_the_last_of_several_configs_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    known = Histories(
        {
            "releases": ["0.7.0", "0.9.2", "0.10.0", "0.29.0"],
            "keys": {
                "SFTConfig.ours": [["0.7.0", {"default": 1}], ["0.9.2", None]],
                "DPOConfig.ours": [["0.7.0", {"default": 1}], ["0.29.0", None]],
                "KTOConfig.ours": [["0.7.0", {}], ["0.9.2", None]],
                "ScriptArguments.ours": [["0.7.0", None], ["0.9.2", {"default": 2}], ["0.10.0", None]],
                "PPOConfig.ours": [["0.7.0", None], ["0.29.0", {"default": 2}]],
            },
        }
    )
    other = history()
    monkeypatch.setattr(argument_history, "histories", {"trl": known, "transformers": other}.__getitem__)

    def asked(at: str, *classes: str) -> tuple[str | None, bool, object] | None:
        absent = absent_argument("ours", {"trl": release(at)}, frozenset(classes))
        return absent and (absent.since, absent.defaulted, absent.default)

    assert asked("0.29.0", "SFTConfig", "DPOConfig") == ("0.29.0", True, 1)
    assert asked("0.10.0", "SFTConfig", "DPOConfig") is None  # one of them has it
    assert asked("0.9.2", "SFTConfig") == ("0.9.2", True, 1)
    assert asked("0.8.0", "SFTConfig") is None
    assert asked("0.9.2", "SFTConfig", "KTOConfig") == ("0.9.2", False, None)  # a default that nobody knows
    assert asked("0.9.2", "RewardConfig") is None and asked("0.7.0", "RewardConfig") is None
    assert asked("0.10.0", "RewardConfig") == ("0.10.0", True, 2), "the script's own arguments"
    assert asked("0.10.0", "PPOConfig") is None, "it comes later"
    assert asked("0.29.0", "PPOConfig") is None


@pytest.mark.parametrize(
    ("name", "at", "has"),
    [
        ("eval_strategy", {"transformers": "4.41.0"}, True),
        ("eval_strategy", {"transformers": "4.40.2"}, False),
        ("evaluation_strategy", {"transformers": "4.51.0"}, False),
        ("evaluation_strategy", {"transformers": "4.50.3"}, True),
        ("eval_strategy", {}, True),
        ("evaluation_strategy", {}, False),
        ("max_length", {"transformers": "5.23.0"}, True),  # of TRL's configs
        ("nobodys_name", {"transformers": "5.23.0"}, False),
    ],
)
def test_whether_the_releases_have_an_argument(name: str, at: dict[str, str], has: bool) -> None:
    assert has_argument(name, {library: release(version) for library, version in at.items()}) is has


def test_defaults_that_changed() -> None:
    known = history(
        a=[("1.0", {"default": 0}), ("3.0", {"default": 1}), ("5.0", None)],
        b=[("1.0", {"default": 0}), ("2.0", {"default": False})],
        c=[("1.0", {"default": 0}), ("2.0", {"default": 0.0})],
        d=[("1.0", {}), ("2.0", {"default": 1}), ("3.0", {"default": 2, "removed": "gone"})],
    )

    def between(key: str, old: str, new: str) -> object:
        return changed_default(known, key, release(old), release(new))

    assert between("a", "2.0", "3.0") == (0, 1) and between("a", "4.0", "1.0") == (1, 0)
    assert (
        between("a", "1.0", "2.0") is None and between("a", "3.0", "5.0") is None and between("a", "5.0", "1.0") is None
    )
    assert between("b", "1.0", "2.0") == (0, False), "a number is no switch"
    assert between("c", "1.0", "2.0") is None
    assert (
        between("d", "1.0", "2.0") is None and between("d", "2.0", "1.0") is None and between("d", "2.0", "3.0") is None
    )


def test_since_when_a_key_is_what_it_is() -> None:
    known = history(
        a=[("1.0", {"default": 0}), ("3.0", {"default": 1}), ("4.0", {"default": 1, "gt": 0}), ("7.0", None)],
        b=[("1.0", None), ("2.0", {"default": 1}), ("3.0", None)],
    )
    assert [since(known, "a", release(at)) for at in ("2.0", "3.0", "5.0", "9.0")] == ["1.0", "3.0", "4.0", "7.0"]
    assert [since(known, "a", release(at), "default") for at in ("2.0", "3.0", "5.0")] == ["1.0", "3.0", "3.0"]
    assert since(known, "a", release("5.0"), "gt") == "4.0"
    assert [since(known, "b", release(at)) for at in ("1.0", "2.5", "3.0")] == ["1.0", "2.0", "3.0"]


# -- what two releases say of the keys of a config ------------------------------------------------------------------

BOUNDED = history(
    low=[("1.0", {}), ("2.0", {"ge": 2})],
    above=[("1.0", {}), ("2.0", {"gt": 2})],
    high=[("1.0", {}), ("2.0", {"le": 2})],
    below=[("1.0", {}), ("2.0", {"lt": 2})],
    free=[("1.0", {"ge": 5}), ("2.0", {})],
    came=[("1.0", None), ("2.0", {})],
    went=[("1.0", {}), ("2.0", {"removed": "stops"})],
    went__inner=[("1.0", {}), ("2.0", None)],
    went__inner__deep=[("1.0", {}), ("2.0", None)],
    stays=[("1.0", {"ge": 0})],
    stays__inner=[("1.0", {}), ("2.0", None)],
)


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"low": 2}, []),
        ({"low": 1}, [("low", "refused")]),
        ({"above": 2}, [("above", "refused")]),
        ({"above": 3}, []),
        ({"high": 2}, []),
        ({"high": 3}, [("high", "refused")]),
        ({"below": 2}, [("below", "refused")]),
        ({"below": 1}, []),
        ({"free": 4}, [("free", "accepted")]),
        ({"free": 5}, []),
        ({"low": True}, []),
        ({"low": "1"}, []),
        ({"low": None}, []),
        ({"came": 1}, [("came", "new")]),
        ({"went": {"inner": {"deep": 1}}, "low": 1}, [("went", "gone"), ("low", "refused")]),
        ({"stays": {"inner": 1}}, [("stays.inner", "gone")]),
        ({"unheard": 1}, []),
    ],
)
def test_keys_that_stand_in_a_config(data: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    file = config(json.dumps(data))
    found = list(impact._written(BOUNDED, "deepspeed", file, data, release("1.0"), release("2.0")))
    assert [(one.name, one.kind) for one in found] == expected
    assert {one.since for one in found} <= {"2.0"}
    back = list(impact._written(BOUNDED, "deepspeed", file, data, release("2.0"), release("1.0")))
    other = {"refused": "accepted", "accepted": "refused", "gone": "new", "new": "gone"}
    assert [(one.name, other[one.kind]) for one in back] == expected
    assert list(impact._written(BOUNDED, "deepspeed", file, data, release("2.0"), release("3.0"))) == []


def test_where_a_key_of_a_config_is_shown() -> None:
    """A section by its name, a value with it."""
    data = {"went": {"inner": 1}, "low": 1}
    found = list(impact._written(BOUNDED, "deepspeed", config(json.dumps(data)), data, release("1.0"), release("2.0")))
    assert [(one.span.start.column, one.span.end.column) for one in found] == [(2, 8), (24, 32)]
    assert [(one.before, one.after) for one in found] == [({"inner": 1}, {"inner": 1}), (1, 1)]


def test_an_argument_that_came() -> None:
    at = {name: {"transformers": release(name)} for name in ("4.40.0", "4.41.0", "4.50.0", "5.23.0")}
    assert impact._came("eval_strategy", at["4.40.0"], at["5.23.0"]) == "4.41.0"
    assert impact._came("eval_strategy", at["4.40.0"], at["4.41.0"]) == "4.41.0"
    assert impact._came("eval_strategy", at["4.41.0"], at["4.50.0"]) == ""
    assert impact._came("eval_strategy", at["4.50.0"], at["4.40.0"]) == ""
    assert impact._came("learning_rate", at["4.40.0"], at["5.23.0"]) == ""
    assert impact._came("nobodys_name", at["4.40.0"], at["5.23.0"]) == ""
    trl: dict[str, Release] = {"trl": release("1.0.0")}
    assert impact._came("eval_strategy", trl, at["5.23.0"]) == "" == impact._came("eval_strategy", at["4.40.0"], trl)
    both = {name: held | trl for name, held in at.items()}
    assert impact._came("eval_strategy", both["4.40.0"], both["5.23.0"]) == "4.41.0"


def test_defaults_of_the_schedule_that_a_config_names() -> None:
    known = history(
        scheduler__One__rate=[("1.0", {"default": 1}), ("2.0", {"default": 2})],
        scheduler__Two__rate=[("1.0", {"default": 3}), ("2.0", {"default": 4})],
        optimizer__One__rate=[("1.0", {"default": 1}), ("2.0", {"default": 2})],
        words__rate=[("1.0", {"default": 1}), ("2.0", {"default": 2})],
        part__rate=[("1.0", {"default": 5}), ("2.0", {"default": 6})],
        rate=[("1.0", {"default": 7}), ("2.0", {"default": 8})],
    )

    def found(data: dict[str, Any]) -> list[tuple[str, object, object]]:
        changes = configs.changed_deepspeed(known, data, release("1.0"), release("2.0"))
        return [(".".join(path), then, now) for _, path, then, now in changes]

    assert found({"rate": 0}) == []
    assert found({}) == [("rate", 7, 8)]
    assert found({"rate": 0, "part": {}}) == [("part.rate", 5, 6)]
    assert found({"rate": 0, "part": {"enabled": False}}) == [] == found({"rate": 0, "part": {"rate": 5}})
    assert found({"rate": 0, "part": "auto"}) == [] == found({"rate": 0, "optimizer": {"One": {}}, "words": {}})
    assert found({"rate": 0, "scheduler": {"type": "Two", "params": {}}}) == [("scheduler.params.rate", 3, 4)]
    assert found({"rate": 0, "scheduler": {"type": "One", "params": {}}}) == [("scheduler.params.rate", 1, 2)]
    assert found({"rate": 0, "scheduler": {"type": "One"}}) == [] == found({"rate": 0, "scheduler": {"params": {}}})
    assert found({"rate": 0, "scheduler": {"type": "One", "params": {"rate": 1}}}) == []


@pytest.mark.parametrize(
    ("path", "value", "at", "expected"),
    [
        ("off", False, "5.0", "drop"),
        ("off", None, "9.0", "drop"),
        ("off", True, "5.0", "left"),
        ("off", 0, "5.0", "left"),
        ("off", {}, "5.0", "drop"),
        ("off", {"enabled": False, "x": 1}, "5.0", "drop"),
        ("off", {"enabled": True}, "5.0", "left"),
        ("off", False, "4.0", None),
        ("size", -1, "5.0", "drop"),  # a size that is not used
        ("size", 1, "5.0", "left"),
        ("number", -1, "5.0", "left"),  # no default of it, whatever it says
        ("number", 7, "5.0", "left"),
        ("section.inner", False, "5.0", None),  # the section goes as a whole
        ("stays.inner", False, "5.0", "drop"),
        ("came", False, "1.0", None),
        ("came", False, "2.0", "drop"),  # it is gone again
        ("stays.unheard", 1, "5.0", "drop"),  # passed over up to 4.0, refused from 5.0 on
        ("stays.unheard", 1, "4.0", None),
        ("loose.unheard", 1, "5.0", None),
        ("off.unheard", 1, "5.0", None),
        ("unheard", 1, "5.0", "drop"),
    ],
)
def test_a_key_that_a_release_has_no_more(path: str, value: object, at: str, expected: str | None) -> None:
    known = history(
        off=[("1.0", {"default": False}), ("5.0", None)],
        size=[("1.0", {"default": -1}), ("5.0", {"removed": "stops"})],
        number=[("1.0", {"default": 7}), ("5.0", None)],
        section=[("1.0", {}), ("5.0", None)],
        section__inner=[("1.0", {}), ("5.0", None)],
        stays=[("1.0", {})],
        stays__inner=[("1.0", {}), ("5.0", None)],
        stays___all=[("1.0", {"unknown": "ignored"}), ("5.0", {"unknown": "error"})],
        loose=[("1.0", {})],
        loose___all=[("1.0", {"unknown": "ignored"})],
        came=[("1.0", None), ("1.5", {}), ("2.0", None)],
        _all=[("1.0", {"unknown": "ignored"}), ("5.0", {"unknown": "error"})],
    )
    names = tuple(path.split("."))
    data: object = value
    for name in reversed(names):
        data = {name: data}
    plan = Plan({"deepspeed": at}, {"deepspeed": "1.0"})
    step = configs._removed(known, config(json.dumps(data)), names, value, plan, release("1.0"), release(at))
    assert {None: None, Step: "drop", Left: "left"}[type(step) if step else None] == expected
    if isinstance(step, Step):
        assert step.operations == (Drop(names),)
        assert (step.at.path, step.at.at) == (names, "key")


def test_what_states_the_arguments_of_a_run() -> None:
    """The recipe before the line, the line before the script, the script before the spec."""
    recipe, code, spec = (replace(config("{}"), name=name) for name in ("recipe.json", "train.py", "zerocfg.yaml"))
    run = Run("r", recipe=recipe, script=Script(code), spec=spec)
    assert kept._place(run) == Location(recipe)
    assert kept._place(replace(run, recipe=None)) == Location(code)
    assert kept._place(replace(run, recipe=None, launch_file=code)) == Location(code)
    assert kept._place(replace(run, recipe=None, script=None)) == Location(spec, ("runs",))


def test_steps_of_runs_that_share_a_file() -> None:
    """What all want is done once, for the lines of all; where they differ nothing is."""
    file = replace(config('{"a": 1, "b": 2}'), path=Path("ds.json"))
    one, two = frozenset((Span(0, 1),)), frozenset((Span(2, 3),))
    first = Step(Location(file, ("a",)), "why", (Put(("a",), 2),), lines=one)
    same, other = replace(first, lines=two), replace(first, operations=(Put(("a",), 3),))
    elsewhere = Step(Location(file, ("b",)), "why", (Put(("b",), 2),))
    agreed, left = migration._agreed([first, elsewhere, same])
    assert [(step.operations, step.lines) for step in agreed[file]] == [
        ((Put(("a",), 2),), one | two),
        ((Put(("b",), 2),), frozenset()),
    ]
    assert left == []
    agreed, left = migration._agreed([first, elsewhere, other])
    assert agreed == {file: [elsewhere]}
    assert [entry.why for entry in left] == ["why; the runs that read it need different values"]
    edit, longer = Edit(Span(0, 1), "x"), Edit(Span(0, 2), "x")
    words = [Step(Location(file), "why", edits=(each,)) for each in (edit, longer, Edit(Span(0, 1), "y"))]
    agreed, left = migration._agreed(words)
    assert agreed == {file: [words[1]]} and len(left) == 1


SUCCESSORS: list[tuple[str, object, dict[str, object], object]] = [
    ("warmup_ratio", 0.1, {}, Becomes(("warmup_steps",))),
    ("warmup_ratio", 0, {}, Becomes(("warmup_steps",))),
    ("warmup_ratio", 0.1, {"warmup_steps": 0}, Becomes(("warmup_steps",), 0.1)),
    ("warmup_ratio", 0.1, {"warmup_steps": 1}, "`warmup_steps` is 1 and wins over it"),
    ("warmup_ratio", 0.1, {"warmup_steps": UNKNOWN}, None),
    ("warmup_ratio", 1, {}, None),
    ("warmup_ratio", -0.1, {}, None),
    ("warmup_ratio", True, {}, None),
    ("warmup_ratio", "0.1", {}, None),
    ("adafactor", True, {}, Becomes(("optim",), "adafactor")),
    ("adafactor", True, {"optim": "adafactor"}, "`optim` says so already"),
    ("adafactor", True, {"optim": "sgd"}, None),
    ("adafactor", None, {"optim": "sgd"}, "it is switched off"),
    ("adafactor", UNKNOWN, {}, None),
    ("fp16_opt_level", "O1", {}, "without Apex it changes nothing"),
    ("fp16_opt_level", "O1", {"fp16_backend": "apex"}, None),
    ("fp16_opt_level", "O1", {"half_precision_backend": "apex"}, None),
    ("fp16_backend", "apex", {}, None),
    ("fp16_backend", UNKNOWN, {}, None),
    ("logging_dir", "logs", {"report_to": "wandb"}, "only TensorBoard uses it, and `report_to` does not ask for that"),
    ("logging_dir", "logs", {"report_to": ["wandb", "all"]}, None),
    ("logging_dir", "logs", {"report_to": UNKNOWN}, None),
    ("logging_dir", "logs", {}, None),
    ("logging_dir", None, {}, "nothing is asked for"),
    ("ray_scope", "last", {"report_to": "wandb"}, "it was the default, and says what every later release does"),
    ("ray_scope", "all", {}, None),
    ("past_index", -1, {}, "it was the default, and says what every later release does"),
    ("save_safetensors", False, {}, None),
    ("push_to_hub_model_id", "m", {}, Becomes(("hub_model_id",))),
    ("push_to_hub_model_id", "m", {"push_to_hub_organization": "o"}, None),
    ("per_gpu_eval_batch_size", 2, {"push_to_hub_organization": "o"}, Becomes(("per_device_eval_batch_size",))),
    ("per_gpu_eval_batch_size", 2, {"per_device_eval_batch_size": 2}, "`per_device_eval_batch_size` says so already"),
    ("per_gpu_eval_batch_size", 2, {"per_device_eval_batch_size": 3}, None),
    ("per_gpu_eval_batch_size", UNKNOWN, {"per_device_eval_batch_size": UNKNOWN}, None),
    ("per_gpu_eval_batch_size", UNKNOWN, {}, Becomes(("per_device_eval_batch_size",))),
    ("push_to_hub_organization", "o", {}, None),
    ("push_to_hub_organization", None, {}, "nothing is asked for"),
    ("tpu_num_cores", 8, {}, "the launcher decides it"),
]


@pytest.mark.parametrize(("name", "value", "others", "expected"), SUCCESSORS)
def test_what_becomes_of_an_argument(name: str, value: object, others: dict[str, object], expected: object) -> None:
    """A text: it can go, for this reason; None: a person has to look."""
    absent = absent_argument(name, {"transformers": release("5.23.0")}, frozenset())
    assert absent is not None
    found = successor(name, value, others, absent)
    if expected is None:
        assert isinstance(found, Unclear)
    else:
        assert found == (Gone(expected) if isinstance(expected, str) else expected)


def test_a_default_that_asked_for_something_stays() -> None:
    """TRL cut prompts at 512 tokens, and does not any more; so it does where nobody asks for a length."""
    absent = Absent("trl", "1.0.0", "", None, True, 512)
    assert isinstance(successor("max_prompt_length", 512, {}, absent), Unclear)
    assert isinstance(successor("past_index", 512, {}, absent), Unclear), "another default than the one that stays"
    for off in (False, "", None):
        assert isinstance(successor("some", off, {}, Absent("trl", "1.0.0", "", None, True, off)), Gone)
    assert isinstance(successor("some", None, {}, absent), Unclear), "None was not the default"
    assert isinstance(successor("some", None, {}, Absent("trl", "1.0.0", "", None)), Gone)


# -- releases --------------------------------------------------------------------------------------------------------


def test_a_list_of_releases() -> None:
    assert parse_releases(" DeepSpeed == 0.19.8 ,, transformers==5.23 ") == {
        "deepspeed": "0.19.8",
        "transformers": "5.23.0",
    }
    assert parse_releases("torch==2.99") == {"torch": "2.99"}, "no release of it changes what a config says"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("deepspeed==", "'deepspeed==' names no release; write LIBRARY==RELEASE"),
        ("==0.19.8", "'' is no library whose releases are known; known are "),
        ("vllm==0.9", "'vllm' is no library whose releases are known; known are "),
        ("deepspeed==v0.19.8", "deepspeed v0.19.8 is not known"),
        ("deepspeed==0.9.9", "did you mean 0.10.0? (known: "),
        ("deepspeed==0.99", "did you mean 0.19.8? (known: "),
        ("deepspeed==x", "deepspeed x is not known (known: "),
    ],
)
def test_what_is_no_list_of_releases(words: str, says: str) -> None:
    with pytest.raises(ReleasesError) as error:
        parse_releases(words)
    assert says in str(error.value)


def test_runs_at_other_releases() -> None:
    place = Origin("file", file=config("{}"))
    run = Run("r", versions={"deepspeed": "==0.16.9", "trl": ">=1"}, version_places={"deepspeed": (place,), "trl": ()})
    at = at_releases([run], {"deepspeed": "0.19.8", "torch": "2.9"})[0]
    assert at.versions == {"deepspeed": "==0.19.8", "trl": ">=1", "torch": "==2.9"}
    assert at.version_places == {"trl": ()}
    stated = at_stated_releases([run], {"trl": "1.16.0"}, {"deepspeed": "0.10.0", "accelerate": "0.23.0"})[0]
    assert stated.versions == {"deepspeed": "==0.16.9", "trl": "==1.16.0", "accelerate": "==0.23.0"}
    assert oldest(["deepspeed", "torch", "accelerate"]) == {"deepspeed": "0.10.0", "accelerate": "0.23.0"}


def test_the_one_release_that_a_project_pins() -> None:
    def run(**versions: str) -> Run:
        return Run("r", versions=versions)

    said = ["==0.16.9", ">=0.16.9,<=0.16.9", ">=0.16.9", "==0.16.*", ">=0.16.9,<0.16.9", "nonsense"]
    found = [pinned_release(run(deepspeed=declared), "deepspeed") for declared in said]
    assert found == ["0.16.9", "0.16.9", None, None, None, None]
    assert pinned_release(run(), "deepspeed") is None
    runs = [run(deepspeed="==0.16.9"), run(deepspeed="==0.9.5"), run(deepspeed=">=0.10"), run(trl="==1.0.0")]
    assert pinned_releases(runs, ["deepspeed", "accelerate"]) == {"deepspeed": "0.9.5, 0.16.9"}


# -- edits of Python ---------------------------------------------------------------------------------------------------


def script(text: str) -> Program:
    made = program_of(SourceFile("t.py", "script", SourceText("t.py", text), path=Path("t.py")))
    assert made is not None
    return made


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        'with "quotes"',
        "back\\slash",
        "line\nend",
        "größe",
        1,
        1e-05,
        True,
        None,
        [1, "a", []],
        {"a": {"b": [2]}},
    ],
)
def test_a_value_as_python_writes_it(value: object) -> None:
    assert ast.literal_eval(literal(value)) == value


def test_the_form_of_a_value() -> None:
    """As formatters have it."""
    assert literal({"a": [1, "b"]}) == '{"a": [1, "b"]}' and literal('say "a"') == "'say \"a\"'"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a=1)", "f(a=1, x=1, y=2)"),
        ("f(a=1,)", "f(a=1, x=1, y=2,)"),
        ("f(\n  a=1)", "f(\n  a=1,\n  x=1,\n  y=2)"),
        ("f(\n  a=1,\n)", "f(\n  a=1,\n  x=1,\n  y=2,\n)"),
        ("f(\n  a=1, # why\n)", "f(\n  a=1, # why\n  x=1,\n  y=2,\n)"),
        ("f(\n  a=1 # why\n)", "f(\n  a=1,\n  x=1,\n  y=2 # why\n)"),
        ("f(\r\n\ta=1,\r\n)", "f(\r\n\ta=1,\r\n\tx=1,\r\n\ty=2,\r\n)"),
        ("f(\n  b=0, a=1,\n)", "f(\n  b=0, a=1, x=1, y=2,\n)"),
        ("g(0)\nf(a=1)", "g(0)\nf(a=1, x=1, y=2)"),
    ],
)
def test_keywords_behind_the_last_one(before: str, after: str) -> None:
    """Python reads the same call with two more keywords."""
    program = script(before)
    call = program.call(before.index("f("))
    assert call is not None
    made = apply_edits(before, program.added(program.span(call.keywords[-1]), ["x=1", "y=2"]))
    assert made == after
    names = [word.arg for word in ast.parse(made).body[-1].value.keywords]  # type: ignore[attr-defined]
    assert names == [word.arg for word in call.keywords] + ["x", "y"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("f(a=1, b=2)", "f(b=2)"),
        ("f(b=2, a=1)", "f(b=2)"),
        ("f(a=1)", "f()"),
        ("f(a=1,)", "f()"),
        ("f(a=1 ,\tb=2)", "f(b=2)"),
        ("f(b=2, a=1,)", "f(b=2,)"),
        ("f(b=2, a=1,\n  c=3)", "f(b=2,\n  c=3)"),
        ("f(\n  b=2,\n  a=1,\n  c=3,\n)", "f(\n  b=2,\n  c=3,\n)"),
        ("f(\n  b=2,\n  a=1\n)", "f(\n  b=2,\n)"),
        ("f(\n  b=2,\n  a=1)", "f(\n  b=2)"),
        ("f(\n  a=1, # why\n  b=2)", "f(\n  # why\n  b=2)"),
        ("f(b=2 , a=1)", "f(b=2 )"),
    ],
)
def test_a_keyword_that_goes(before: str, after: str) -> None:
    """Python reads the same call without it."""
    program = script(before)
    word = program.keyword("a", before.index("1"))
    assert word is not None
    made = apply_edits(before, program.removed(*program.span(word)))
    names = [one.arg for one in ast.parse(made).body[0].value.keywords]  # type: ignore[attr-defined]
    assert "a" not in names and len(names) == before.count("=") - 1
    assert made == after


def test_a_program_is_python_that_can_be_parsed() -> None:
    def of(name: str | None, text: str) -> Program | None:
        return program_of(SourceFile("x", "script", SourceText("x", text), path=Path(name) if name else None))

    assert of("t.py", "f(\n") is None and of("t.sh", "f()\n") is None and of(None, "f()\n") is None
    assert of("t.py", "\ufefff()\n") is not None


@pytest.mark.parametrize("escaped", [True, False])
def test_edits_in_a_string_of_a_notebook(escaped: bool) -> None:
    """However the characters before and after are escaped."""
    code = "x = '\U0001f600ä\\t'\nf(\n    a='\U0001f600',\n    b='ü',\n)\n"
    cells = [{"cell_type": "code", "metadata": {}, "outputs": [], "source": code.splitlines(keepends=True)}]
    text = json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}, ensure_ascii=escaped)
    program = program_of(SourceFile("n.ipynb", "script", SourceText("n.ipynb", text), path=Path("n.ipynb")))
    assert program is not None

    def after(*edits: Any) -> str:
        return "".join(json.loads(apply_edits(text, edits))["cells"][0]["source"])

    call = next(node for node in ast.walk(program.tree) if isinstance(node, ast.Call))
    first, last = (program.span(word) for word in call.keywords)
    value = program.span(call.keywords[0].value)
    assert after(*program.replaced(value, literal("é\U0001f600"))) == code.replace("'\U0001f600',", '"é\U0001f600",')
    assert after(*program.removed(*first)) == code.replace("    a='\U0001f600',\n", "")
    assert after(*program.removed(*last)) == code.replace("    b='ü',\n", "")
    assert after(*program.added(last, ["c=1"])) == code.replace("'ü',\n", "'ü',\n    c=1,\n")
    assert after(*program.added(Span(first.start, first.end), ["c=1"])) == code.replace(
        "'\U0001f600',\n", "'\U0001f600',\n    c=1,\n"
    )


LOOP = "import deepspeed\nengine, *_ = deepspeed.initialize(model=m, config=config)\n"
ENTRY = 'config = {"a": 1, "b": {"c": 2}, "d": f(3), "e": (4)}\n'


@pytest.mark.parametrize(
    ("text", "operation", "after"),
    [
        (ENTRY, Put(("a",), "x"), ENTRY.replace("1", '"x"')),
        (ENTRY, Put(("b", "new"), [1]), ENTRY.replace('"c": 2', '"c": 2, "new": [1]')),
        (ENTRY, Put(("b", "new", "deep"), True), ENTRY.replace('"c": 2', '"c": 2, "new": {"deep": True}')),
        (ENTRY, Drop(("a",)), ENTRY.replace('"a": 1, ', "")),
        (ENTRY, Drop(("b", "c")), ENTRY.replace('"c": 2', "")),
        (ENTRY, Put(("d",), 4), "the program works its value out"),
        (ENTRY, Drop(("e",)), "its value stands in parentheses"),
        (ENTRY, Put(("new",), 4), "the value before it stands in parentheses"),
        ('config = {"a": {}}\n', Put(("a", "b"), 1), 'config = {"a": {"b": 1}}\n'),
        ('config = {"a": dict(c=1)}\n', Put(("a", "b"), 1), "the program does not write its section out"),
        ('config = {"a": 1, # why\n}\n', Put(("b",), 1), 'config = {"a": 1, "b": 1, # why\n}\n'),
    ],
)
def test_an_operation_on_a_dict_of_a_script(tmp_path: Path, text: str, operation: Put | Drop, after: str) -> None:
    (run,) = runs_of(tmp_path, {"train.py": text + LOOP})
    assert run.deepspeed is not None
    gone = set(dicts.dropped(run.deepspeed, [operation]))
    assert len(gone) == isinstance(operation, Drop)
    if "config" not in after:
        with pytest.raises(ValueError, match=after):
            dicts.dict_edits(run.deepspeed, [operation], gone)
        return
    assert apply_edits(text, dicts.dict_edits(run.deepspeed, [operation], gone)) == after


def test_an_entry_does_not_stand_behind_one_that_goes(tmp_path: Path) -> None:
    (run,) = runs_of(tmp_path, {"train.py": 'config = {"a": 1, "b": 2}\n' + LOOP})
    assert run.deepspeed is not None
    drop, put = Drop(("b",)), Put(("c",), 3)
    gone = set(dicts.dropped(run.deepspeed, [drop, put]))
    made = apply_edits('config = {"a": 1, "b": 2}\n', dicts.dict_edits(run.deepspeed, [drop, put], gone))
    assert ast.literal_eval(made.partition("=")[2].strip()) == {"a": 1, "c": 3}


def test_a_dict_in_no_program_has_no_place_for_edits() -> None:
    with pytest.raises(ValueError, match="it stands within another file"):
        dicts.dict_edits(config('{"a": 1}'), [Drop(("a",))], ())


# -- what comes of it --------------------------------------------------------------------------------------------------

SCRIPT = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
    "Trainer(model, args).train()\n"
)


AVERAGED = "average_tokens_across_devices"


def finding(code: str, severity: Severity, file: SourceFile, path: str) -> Diagnostic:
    return Diagnostic(code, "", severity, "", "", file_span(Location(file, (path,))))


def test_findings_that_come() -> None:
    """By rule, file, key and how many there are; where the key stands in its file does not matter."""
    one, moved = config('{"a": 1, "b": 2}'), config('{\n\n"b": 2, "a": 1}')
    other = replace(one, name="other.json")
    error, warning = Severity.ERROR, Severity.WARNING
    before = [finding("ZC1", warning, one, "a"), finding("ZC1", warning, one, "b"), finding("ZC1", warning, one, "b")]
    assert outcome.coming(before, [finding("ZC1", warning, moved, "b"), finding("ZC1", warning, moved, "a")]) == []
    for new in (
        finding("ZC1", error, one, "a"),
        finding("ZC2", warning, one, "a"),
        finding("ZC1", warning, other, "a"),
        finding("ZC2", Severity.NOTE, one, "a"),
    ):
        assert outcome.coming(before, [new]) == [new]
    more = [finding("ZC1", warning, one, "b"), finding("ZC1", warning, one, "b"), finding("ZC1", warning, one, "b")]
    assert outcome.coming(before, more) == more[2:]
    assert outcome.coming(before, [finding("ZC1", Severity.NOTE, one, "a")]) == []


def test_settings_that_changed(tmp_path: Path) -> None:
    """The clipping of a loop of one's own is 0.0 up to DeepSpeed 0.19.2 and 1.0 from 0.19.3 on."""
    text = '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": %s, "bf16": {"enabled": true}}'
    made = {}
    for value in ("0.0", "1.0", "2.0"):
        (tmp_path / value).mkdir()
        made[value] = runs_of(tmp_path / value, {"ds.json": text % value, "run.sh": "python train.py\n"})

    def between(old: str, new: str, without: tuple[str, ...] = ()) -> list[tuple[str, object, object]]:
        found = outcome.changed_settings(made[old], made[new], without)
        return [(one.name, one.a and one.a.value, one.b and one.b.value) for each in found for one in each.differences]

    assert between("0.0", "0.0") == []
    assert between("0.0", "1.0") == [("gradient_clipping", 0.0, 1.0)]
    assert between("1.0", "2.0", ("bf16", "gradient")) == [("gradient_clipping", 1.0, 2.0)]
    assert between("1.0", "2.0", ("gradient_clipping",)) == []


def test_settings_of_runs_of_which_some_are_gone(tmp_path: Path) -> None:
    """They are compared by name then."""
    ds = '{"train_micro_batch_size_per_gpu": %d}'
    for folder, files in {"old": {"a.json": 1, "b.json": 2}, "new": {"b.json": 3}}.items():
        (tmp_path / folder).mkdir()
        for name, number in files.items():
            (tmp_path / folder / name).write_text(ds % number)
    old = [replace(run, name=Path(run.name).name) for run in find_runs([tmp_path / "old"], Files())[0]]
    new = [replace(run, name=Path(run.name).name) for run in find_runs([tmp_path / "new"], Files())[0]]
    assert [run.name for run in old] == ["a.json", "b.json"]
    found = outcome.changed_settings(old, new)
    assert [one.run for one in found] == ["b.json"]
    names = {each.name: (each.a and each.a.value, each.b and each.b.value) for each in found[0].differences}
    assert names["train_micro_batch_size_per_gpu"] == (2, 3)


def test_what_is_not_known_is_no_difference() -> None:
    known, unknown = Value(1, "a file"), Value(UNKNOWN, "a line")
    pairs = [(known, known), (None, known), (known, None), (unknown, known), (known, unknown), (None, unknown)]
    found = [outcome._known(Difference("setting", "x", one, other)) for one, other in pairs]
    assert found == [True, True, True, False, False, False]


def test_whether_a_setting_is_one_of_some_keys_or_within_one() -> None:
    asked = ["a", "a.b", "a.b.c", "ab", "b", "b.c"]
    assert [name for name in asked if outcome._among(name, {"a.b", "b.c"})] == ["a.b", "a.b.c", "b.c"]
    assert [name for name in asked if outcome._among(name, {"a"})] == ["a", "a.b", "a.b.c"]


def test_the_word_at_a_place() -> None:
    """It is the same wherever edits have moved it."""
    source = SourceText("run.sh", "x --one 1 --two 2\n\n")
    file = SourceFile("run.sh", "launch", source)

    def at(start: int) -> tuple[str, str]:
        return outcome._where(file_span(Location(file, span=Span(start, start))))

    assert [at(0), at(2), at(10), at(18)] == [
        ("run.sh", "x"),
        ("run.sh", "--one"),
        ("run.sh", "--two"),
        ("run.sh", ""),
    ]
    assert outcome._where(file_span(Location(config('{"a": 1}'), ("a",)))) == ("ds.json", "a")


def test_a_change_names_the_arguments_whose_default_it_is_about(tmp_path: Path) -> None:
    start = "torchrun train.py --output_dir o --report_to none"
    runs_of(tmp_path, {"train.py": SCRIPT})
    for rest, names in {"": (AVERAGED, "optim"), " --optim sgd": (AVERAGED,)}.items():
        runs = runs_of(tmp_path, {"run.sh": f"{start}{rest}\n"})
        found = migrate(runs, {"transformers": "5.23.0"}, {"transformers": "4.53.0"})
        assert [one.names for one in found.done] == [names] and found.left == ()
    call = "from transformers import Trainer, TrainingArguments\n"
    call += "args = TrainingArguments(output_dir='o', report_to='none'%s)\n"
    (tmp_path / "run.sh").unlink()
    for rest, done in {"": True, ", **more": False}.items():
        runs = runs_of(tmp_path, {"train.py": call % rest + "Trainer(m, args).train()\n"})
        found = migrate(runs, {"transformers": "5.23.0"}, {"transformers": "4.53.0"})
        assert [one.names for one in (found.done if done else found.left)] == [(AVERAGED, "optim")]
    (tmp_path / "train.py").unlink()
    recipe = "output_dir: o\nmax_steps: 2\nper_device_train_batch_size: 1\nreport_to: none\noptim: sgd\n"
    runs = runs_of(tmp_path, {"recipe.yaml": recipe})
    found = migrate(runs, {"transformers": "5.23.0"}, {"transformers": "4.53.0"})
    assert [one.names for one in found.left] == [(AVERAGED,)] and found.done == ()
