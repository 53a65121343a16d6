"""What rules ask of a run besides its keys: origins in words, stages, room, the releases that are admitted, fixes."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of
from zerocfg.rules.api import Finding, Fix, Intent, Location, Severity
from zerocfg.rules.arguments import Argument
from zerocfg.rules.calls import ever_taken, given_in_calls, key_of_call, taken_by
from zerocfg.rules.effects import (
    accelerate_data,
    accelerate_section,
    admitted,
    admitting,
    changed_before,
    describe_origin,
    fits_at,
    gathers,
    section,
    stage_of,
    training_memory,
    tuned,
    under_deepspeed_launcher,
)
from zerocfg.rules.failures import failures, ignored, primary_location, reported
from zerocfg.rules.fixes import edited, giving, put, rewritten, together, without
from zerocfg.rules.intents import written_at
from zerocfg.rules.moving import as_json, moved, placed, text_at
from zerocfg.rules.release_scope import among, library_of, limited, uses_plugin
from zerocfg.rules.renaming import in_section, written
from zerocfg.rules.taken import (
    Lack,
    as_installed,
    declares,
    dropped_silently,
    former,
    in_call,
    lets_through,
    names_recipe,
    newer,
    removed,
    what_happens,
)
from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary
from zerocfg.run.model import UNKNOWN, Call, Effective, Failure, Ignored, Origin, Run, Script, Setting, SourceFile
from zerocfg.run.origins import ASSUMED
from zerocfg.run.requirements.companions import PYTHON
from zerocfg.source.edit import apply_edits, delete_entry, insert_entry
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span


def file(text: str, kind: Any = "deepspeed", form: Any = "json", name: str = "") -> SourceFile:
    source = SourceText(name or f"a.{form}", text)
    return SourceFile(source.name, kind, source, load_as(source, form))


DS = file('{"a": 1}', name="ds.json")


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin("file", file=DS, path=("a",)), "in ds.json"),
        (Origin("file"), "written"),
        (Origin("flag", "--zero_stage", DS), "by `--zero_stage` in ds.json"),
        (Origin("flag", "--zero_stage"), "by `--zero_stage`"),
        (Origin("flag", file=DS), "on the launch line in ds.json"),
        (Origin("flag"), "on the launch line"),
        (Origin("environment", "WORLD_SIZE"), "by `WORLD_SIZE`"),
        (Origin("default", "accelerate 1.15.0"), "the default of accelerate 1.15.0"),
        (Origin("default", "one rank"), "by default: one rank"),
        (Origin("default"), "by default: "),
        (Origin("computed", "2 ranks * 4"), "2 ranks * 4"),
    ],
)
def test_an_origin_in_words(origin: Origin, said: str) -> None:
    assert describe_origin(origin) == said


def effective(run: Run | None = None, **settings: Any) -> Run:
    held = {name.replace("__", "."): Setting(value, Origin("file")) for name, value in settings.items()}
    return replace(run or run_of(), effective=Effective(settings=held))


@pytest.mark.parametrize(
    ("value", "stage"),
    [(0, 0), (3, 3), (2.0, 2), ("2", 2), ("auto", None), (4, None), (-1, None), (UNKNOWN, None), (None, None)],
)
def test_the_stage_as_the_engine_reads_it(value: object, stage: int | None) -> None:
    assert stage_of(effective(zero_optimization__stage=value)) == stage


@pytest.mark.parametrize(
    ("memory", "fits"),
    [
        ({"states_gib": {2: 40.0}}, True),
        ({"states_gib": {2: 40.1}}, False),
        ({"states_gib": {1: 10.0}}, False),  # nobody knows
        ({"states_gib": {2: 40.0}, "vllm_gib": 1.0}, False),
        ({"states_gib": {2: 35.0}, "vllm_gib": 10.0}, True),
        ({"states_gib": {2: 10.0}, "stage_peaks_gib": {2: (5.0, 80.0)}}, True),
        ({"states_gib": {2: 10.0}, "stage_peaks_gib": {2: (5.0, 80.1)}}, False),
        ({"states_gib": {2: 10.0}, "stage_peaks_gib": {1: (5.0, 90.0)}}, True),
    ],
)
def test_a_stage_that_leaves_plenty_of_memory(memory: dict[str, Any], fits: bool) -> None:
    card = HardwareSummary("8xA", 1, 8, 80.0)
    known = replace(run_of(), hardware=card, memory=MemorySummary(**memory))
    assert fits_at(known, 2) is fits
    assert not fits_at(replace(known, hardware=None), 2) and not fits_at(replace(known, memory=None), 2)
    assert not fits_at(replace(known, hardware=replace(card, memory_gib=None)), 2)


@pytest.mark.parametrize(
    ("vllm", "said"),
    [(0.0, "80 GiB an accelerator on 8xA"), (24.0, "the 56 GiB that vLLM leaves of an accelerator on 8xA")],
)
def test_memory_for_training_in_words(vllm: float, said: str) -> None:
    card = HardwareSummary("8xA", 1, 8, 80.0)
    assert training_memory(replace(run_of(), hardware=card, memory=MemorySummary(vllm_gib=vllm))) == said


@pytest.mark.parametrize(
    ("parameters", "reach", "times"),
    [
        (1_000_000_000, None, 1),
        (1_000_000_001, None, 2),
        (100, 100, 1),
        (101, 100, 2),
        (100, "auto", 1),
        (None, 100, 2),
        (0, 100, 2),
    ],
)
def test_how_often_a_parameter_is_gathered(parameters: int | None, reach: Any, times: int) -> None:
    run = replace(run_of(), model=ModelSummary("m", parameters=parameters))
    assert gathers(effective(run, zero_optimization__stage3_max_reuse_distance=reach)) == times
    assert gathers(effective(zero_optimization__stage3_max_reuse_distance=reach)) == 2, "no model is known"


@pytest.mark.parametrize(
    ("consumer", "enabled", "flags", "is_tuned"),
    [
        (None, True, {}, True),
        ("deepspeed", True, {}, False),
        ("deepspeed", True, {"autotuning": "run"}, True),
        ("deepspeed", False, {"autotuning": "run"}, False),
        (None, "true", {}, False),
        (None, False, {}, False),
    ],
)
def test_what_the_autotuner_starts_from(consumer: Any, enabled: object, flags: dict[str, Any], is_tuned: bool) -> None:
    given = {name: Setting(value, Origin("flag")) for name, value in flags.items()}
    assert tuned(run_of(consumer, deepspeed={"autotuning": {"enabled": enabled}}, flags=given)) is is_tuned
    assert not tuned(run_of(consumer, deepspeed={}, flags=given))


def test_sections_as_they_are_written() -> None:
    run = run_of(deepspeed={"a": {"b": {"c": 1}}, "d": 2}, accelerate={"deepspeed_config": {"zero_stage": 2}, "x": 1})
    assert section(run, "a", "b") == {"c": 1} and section(run, "a") == {"b": {"c": 1}}
    assert section(run, "d") == {} == section(run, "d", "e") == section(run, "a", "x") == section(run_of(), "a")
    assert accelerate_section(run) == {"zero_stage": 2} and accelerate_section(run, "x") == {}
    assert accelerate_data(run_of(accelerate={"compute_environment": "AMAZON_SAGEMAKER", "x": 1})) == {}
    assert accelerate_data(run_of(accelerate={"compute_environment": "LOCAL_MACHINE"})) != {}
    assert accelerate_data(run_of(accelerate=[1])) == {} == accelerate_data(run_of())


def script(**more: Any) -> Script:
    return Script(SourceFile("train.py", "script", SourceText("train.py", "x" * 9)), **more)


def test_a_config_that_something_completes() -> None:
    template = file("{}", name="ds_template.json")
    assert changed_before(Run("a", deepspeed=template))
    assert not changed_before(Run("a", "deepspeed", deepspeed=template)), "somebody is known to read it"
    assert not changed_before(Run("a", deepspeed=DS)) and not changed_before(Run("a"))
    named = {"deepspeed": Setting("d", Origin("flag"))}
    opened: Any = {"script": script(opened=frozenset({"deepspeed"})), "arguments": named}
    assert changed_before(Run("a", "deepspeed", deepspeed=DS, **opened)) and not changed_before(Run("a", **opened))


def test_whether_the_launcher_chooses_deepspeed() -> None:
    chosen = Effective(environment={"ACCELERATE_USE_DEEPSPEED": Setting("true", Origin("file"))})
    assert under_deepspeed_launcher(replace(run_of(), effective=chosen)) and not under_deepspeed_launcher(run_of())


def stated(*lines: int, note: str = "trl") -> Run:
    text = "trl>=0.9\n" * 9
    held = SourceFile("requirements.txt", "other", SourceText("requirements.txt", text))
    places = tuple(Origin("file", note, held, (), Span(9 * (line - 1), 9 * line - 1)) for line in lines)
    return replace(run_of(), versions={"trl": ">=0.9"}, version_places={"trl": places} if places else {})


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ((), "declared: >=0.9"),
        ((1,), "requirements.txt:1 admits >=0.9"),
        ((1, 3), "requirements.txt:1 and requirements.txt:3 admit >=0.9"),
        ((1, 3, 4), "requirements.txt:1 and requirements.txt:3 and 1 more admit >=0.9"),
        ((1, 3, 4, 5), "requirements.txt:1 and requirements.txt:3 and 2 more admit >=0.9"),
    ],
)
def test_admitted_releases_in_words(lines: tuple[int, ...], said: str) -> None:
    run = stated(*lines)
    assert admitted(run, "trl") == said
    assert [item.concrete().start for item in admitting(run, "trl")] == [9 * (line - 1) for line in lines]
    assert {item.label for item in admitting(run, "trl")} <= {"the versions that the project admits"}


def test_admitted_releases_that_no_file_states_for_themselves() -> None:
    assert admitted(stated(2, note=PYTHON), "trl") == "Python (requirements.txt:2) admits >=0.9"
    assert admitted(stated(2, note="elsewhere"), "trl") == "requirements.txt:2 admits >=0.9"
    spoken = replace(stated(), version_places={"trl": (Origin("computed", "the settings"),)})
    assert admitted(spoken, "trl").startswith("the settings ") and admitting(spoken, "trl") == []
    assumed = replace(stated(), versions={"trl": "1.16.0"}, version_places={"trl": ASSUMED})
    assert admitted(assumed, "trl").endswith("1.16.0 is the newest known")


@pytest.mark.parametrize(
    ("versions", "library"), [("deepspeed>=0.18.3", "deepspeed"), ("trl<1", "trl"), ("", ""), (">=1", "")]
)
def test_the_library_of_a_clause(versions: str, library: str) -> None:
    assert library_of(versions) == library


@pytest.mark.parametrize(
    ("versions", "declared", "words"),
    [
        ("deepspeed>=0.18.3", ">=0.19", ""),
        ("deepspeed>=0.18.3", "==0.18.2", None),
        ("deepspeed>=0.18.3", "<0.18.3", None),
        ("deepspeed>=0.18.3", "<=0.18.3", "from DeepSpeed 0.18.3 on"),
        ("deepspeed>=0.18.3", ">=0.17", "from DeepSpeed 0.18.3 on"),
        ("deepspeed<0.18.3", ">=0.17", "before DeepSpeed 0.18.3"),
        ("deepspeed<0.18.3", ">=0.18.3", None),
        ("deepspeed<0.18.3", "<0.18.3", ""),
        ("deepspeed<0.18.3", "==0.18.2", ""),
        ("deepspeed>=0.18.3", "", ""),
    ],
)
def test_the_admitted_releases_of_which_a_rule_speaks(versions: str, declared: str, words: str | None) -> None:
    assert among(versions, replace(run_of(), versions={"deepspeed": declared})) == words
    assert among(versions, run_of()) == "" == among("", run_of())


def test_an_argument_that_was_removed_tells_a_release() -> None:
    """transformers 5 has no `no_cuda`, so that it stops before anything that only 5 does."""
    gone = {"no_cuda": Setting(True, Origin("flag"))}
    assert among("transformers>=5.0", run_of(arguments=gone)) is None
    assert among("transformers>=4.40", run_of(arguments=gone)) == ""
    assert among("transformers>=5.0", run_of(arguments={"seed": Setting(1, Origin("flag"))})) == ""
    assert among("transformers>=5.0", run_of("accelerate", arguments=gone)) == ""
    assert among("deepspeed>=0.19", run_of(arguments=gone)) == ""


@pytest.mark.parametrize(
    ("consumer", "declared", "uses"),
    [
        ("accelerate", "<4.30", True),
        ("transformers", "<4.30", False),
        ("trl", "<4.30", False),
        ("transformers", ">=4.29", True),
        ("transformers", None, True),
    ],
)
def test_whether_accelerate_sees_the_deepspeed_config(consumer: Any, declared: str | None, uses: bool) -> None:
    assert uses_plugin(run_of(consumer, versions={"transformers": declared} if declared else {})) is uses


@pytest.mark.parametrize(
    ("releases", "severity", "after"),
    [
        ("", Severity.ERROR, Severity.ERROR),
        ("", None, None),
        ("before TRL 1", Severity.ERROR, Severity.WARNING),
        ("before TRL 1", None, Severity.WARNING),
        ("before TRL 1", Severity.NOTE, Severity.NOTE),
    ],
)
def test_a_finding_of_some_releases(releases: str, severity: Severity | None, after: Severity | None) -> None:
    here = Location(DS, ("a",))
    finding = Finding(here, "m", related=[here], fix=Fix("w", ()), severity=severity)
    found = limited(stated(2), finding, "trl", releases)
    inside = f"{releases}; requirements.txt:2" if releases else "requirements.txt:2"
    assert found.message == f"m ({inside} admits >=0.9)" and found.severity is after
    assert (found.fix is None) is bool(releases)
    assert [item.file.name for item in found.related] == ["ds.json", "requirements.txt"]


def test_where_a_finding_of_several_places_stands() -> None:
    run = run_of(deepspeed={"a": 1}, accelerate={"b": 2}, recipe={"seed": 1})
    a, b = (Origin("file", file=item, path=(name,)) for item, name in ((run.deepspeed, "a"), (run.accelerate, "b")))
    first, others = primary_location(run, [Origin("computed"), b, a, a], "value")
    assert (first.file, first.path, first.at, first.label) == (run.accelerate, ("b",), "value", "")
    assert [(other.file, other.at, other.label) for other in others] == [(run.deepspeed, "value", "the other value")]
    assert primary_location(run, [a, a])[1] == [], "the first place is no other value"
    for left, name in ((run, "ds.json"), (replace(run, deepspeed=None), "accelerate.yaml")):
        assert primary_location(left, [])[0].file.name == name
    coded = Run("a", script=script())
    assert primary_location(coded, [])[0].file.name == "train.py"
    with pytest.raises(ValueError, match="without files"):
        primary_location(Run("a"), [])


def test_what_was_predicted_is_told_by_its_rule() -> None:
    refusals = (Failure("gas-not-int", "init", "no number"), Failure("num-processes-missing", "launch", "how many"))
    dropped = (Ignored("fp8-ignored", "x", Origin("file")), Ignored("flag-wins", "y", Origin("file")))
    run = replace(run_of(deepspeed={"a": 1}), effective=Effective(failures=refusals, ignored=dropped))
    assert [failure.message for failure in failures(run, "ZC207")] == ["no number"]
    assert [failure.message for failure in failures(run, "ZC207", "ZC701")] == ["no number", "how many"]
    assert [item.message for item in ignored(run, "ZC712")] == ["x"] and not [*ignored(run, "ZC207")]
    told = reported(run, refusals[0], "h")
    assert (told.message, told.help, told.location.file) == ("no number", "h", run.deepspeed)
    assert reported(run, refusals[0], message="in other words").message == "in other words"


def changed(fix: Fix | None) -> str:
    assert fix is not None
    ((held, *_),) = {(item,) for item, _ in fix.edits}
    return apply_edits(held.source.text, [edit for _, edit in fix.edits])


def test_fixes_of_entries() -> None:
    held = file('{"a": 1, "b": {"c": 2}, "d": 3}')
    assert changed(rewritten(held, ("b", "c"), "e", "5", why="w")) == '{"a": 1, "b": {"e": 5}, "d": 3}'
    assert changed(without(held, [("a",), ("d",)], "w")) == '{"b": {"c": 2}}'
    assert changed(without(held, [("b", "c")], "w")) == '{"a": 1, "b": {}, "d": 3}'
    assert without(held, [("a",), ("x",)], "w") is None
    for number in (0, 1):
        assert changed(put(held, ("ad"[number],), "7", why="w")).count("7") == 1
    assert json.loads(changed(put(held, ("b", "n"), "7", why="w")))["b"] == {"c": 2, "n": 7}
    assert list(json.loads(changed(put(held, ("n",), "7", why="w", after="a")))) == ["a", "n", "b", "d"]
    assert put(held, ("x", "n"), "7", why="w") is None
    for name in ("a", "n"):
        fixes = put(held, (name,), "7", why="w"), put(held, (name,), "7", why="w", safe=True)
        assert [fix.safe for fix in fixes if fix is not None] == [False, True]


def test_what_a_fix_has_to_give() -> None:
    held = file('{"a": 1, "b": 2}')
    one, two = put(held, ("a",), "3", why="w"), put(held, ("b",), "4", why="w")
    both = together("both", one, two, safe=False)
    assert both is not None and json.loads(changed(both)) == {"a": 3, "b": 4}
    assert (both.description, both.safe, both.gives) == ("both", False, (Intent("a", 3), Intent("b", 4)))
    assert together("w") is None is together("w", one, None)
    more = giving(one, "c", 5)
    assert more is not None and more.gives == (Intent("a", 3), Intent("c", 5))
    assert giving(one, "c", UNKNOWN) is one and giving(None, "c", 5) is None
    cut = edited(delete_entry, held, ("a",), why="w", safe=False)
    assert cut is not None and cut.gives == () and not cut.safe
    named = rewritten(held, ("a",), "c", "3", why="w")
    assert named is not None and named.gives == (Intent("c", 3),) and named.safe
    assert edited(insert_entry, held, ("x",), "a", "1", why="w") is None, "there is no such section"


@pytest.mark.parametrize(
    ("kind", "form", "path", "text", "meant"),
    [
        ("deepspeed", "json", ("fp16",), '{"enabled": true, "x": [1], "y": null}', [("fp16.enabled", True, "setting")]),
        ("deepspeed", "json", ("train_batch_size",), '"auto"', []),
        ("deepspeed", "json", ("a",), "no json", []),
        ("accelerate", "yaml", ("num_processes",), "4", [("num_processes", 4, "option")]),
        ("accelerate", "yaml", ("deepspeed_config", "zero_stage"), "2", [("zero_stage", 2, "option")]),
        ("accelerate", "yaml", ("a", "b", "c"), "2", []),
        ("recipe", "yaml", ("seed",), "4", [("seed", 4, "argument")]),
        ("recipe", "yaml", ("deepspeed",), "ds.json", [("deepspeed", "ds.json", "argument")]),
        ("recipe", "yaml", ("deepspeed", "a", "b"), "2", [("a.b", 2, "setting")]),
        ("recipe", "yaml", ("fsdp_config", "a"), "2", []),
        ("recipe", "yaml", ("a",), "{", []),
        ("spec", "yaml", ("a",), "1", []),
    ],
)
def test_what_a_written_value_means(kind: Any, form: Any, path: Any, text: str, meant: list[Any]) -> None:
    found = written_at(file("{}", kind, form), path, text)
    assert [(item.name, item.value, item.of) for item in found] == meant


def test_a_value_is_taken_to_where_it_is_read() -> None:
    held = file('{"a": {"b": 1, "c": 2}, "d": 3}')

    def to(path: tuple[str, ...], target: tuple[str, ...], text: str) -> Any:
        fix = moved(held, path, held, target, text, "w")
        assert fix is None or not fix.safe
        return None if fix is None else json.loads(changed(fix))

    assert to(("a", "b"), ("a", "n"), "1") == {"a": {"n": 1, "c": 2}, "d": 3}
    assert to(("a", "b"), ("a", "n"), "9") == {"a": {"n": 9, "c": 2}, "d": 3}
    assert to(("a", "b"), ("a", "n", "m"), "1") == {"a": {"n": {"m": 1}, "c": 2}, "d": 3}
    assert to(("a", "b"), ("n",), "1") == {"a": {"c": 2}, "d": 3, "n": 1}
    assert to(("d",), ("a", "n"), "3") == {"a": {"b": 1, "c": 2, "n": 3}}
    assert to(("d",), ("x", "y", "z"), "3") == {"a": {"b": 1, "c": 2}, "x": {"y": {"z": 3}}}
    assert to(("d",), ("a", "b"), "3") is None, "it is taken"
    assert to(("a", "b"), ("d", "n"), "1") is None, "no section"
    other = file("{}", name="b.json")
    fix = moved(held, ("d",), other, ("n",), "3", "w")
    assert fix is not None and [edit.name for edit, _ in fix.edits] == ["a.json", "b.json"]
    assert fix.gives == (Intent("n", 3),) and fix.description == "w"
    assert moved(held, ("x",), other, ("n",), "3", "w") is None
    unread = SourceFile("c.json", "deepspeed", SourceText("c.json", "{}"))
    assert moved(held, ("d",), unread, ("n",), "3", "w") is None is moved(unread, ("d",), held, ("n",), "3", "w")


def test_values_as_they_are_written() -> None:
    held = file("a: x\nb: [1, 2]\n", "accelerate", "yaml")
    assert (text_at(held, ("b",)), text_at(held, ("c",))) == ("[1, 2]", None)
    assert (as_json("x"), as_json([1]), as_json(float("nan")), as_json({1, 2})) == ('"x"', "[1]", None, None)
    assert [written(held, item) for item in ("cpu", "true", "1", "a b", 3, True)] == [
        *("cpu", '"true"', '"1"', '"a b"', "3", "true")
    ]
    assert written(DS, "cpu") == '"cpu"'
    assert in_section(()) == "at the top level" and in_section(("a", "b")) == "in `a.b`"
    assert held.document is not None
    assert apply_edits(held.source.text, placed(held.document, ("c",), "3")) == "a: x\nb: [1, 2]\nc: 3\n"
    for path in (("a",), ("a", "n")):
        with pytest.raises(ValueError, match=r"there already|no mapping"):
            placed(held.document, path, "3")


def held(name: str, kind: str = "file", **more: Any) -> Argument:
    origin: Any = Origin(kind, path=(name,) if kind == "file" and not more else (), **more)  # type: ignore[arg-type]
    return Argument(name, 1, origin)


def call(name: str = "trl.SFTConfig", **more: Any) -> Call:
    given = {"seed": Setting(1, Origin("file", file=script().file, span=Span(0, 4)))}
    return Call(name, given, more.pop("file", script().file), Span(0, 9), **more)


@pytest.mark.parametrize(("declared", "is_known"), [(">=0.9", True), ("==1.0", True), ("@ git", False), (None, False)])
def test_whether_the_admitted_releases_are_understood(declared: str | None, is_known: bool) -> None:
    assert declares(run_of(versions={"trl": declared} if declared else {}), "trl") is is_known


def test_what_a_lack_is_judged_by() -> None:
    pinned = run_of(versions={"trl": "==1.0"})
    assert as_installed(pinned, "trl") == (pinned, Severity.ERROR)
    for open_ in (run_of(), replace(pinned, version_places={"trl": ASSUMED})):
        found = as_installed(open_, "trl")
        assert found is not None and found[1] is Severity.WARNING and "trl" in found[0].versions
    assert as_installed(replace(pinned, undetermined=frozenset({"trl"})), "trl") is None


@pytest.mark.parametrize(
    ("declared", "drops"),
    [
        ("==0.13.0", True),
        ("==0.18.2", True),
        ("==0.12.2", False),
        ("==0.19.0", False),
        (">=0.13", False),
        (None, False),
    ],
)
def test_releases_whose_parser_drops_a_key(declared: str | None, drops: bool) -> None:
    run = run_of("trl", recipe={"x": 1}, recipe_reader="trl", versions={"trl": declared} if declared else {})
    assert dropped_silently(run, held("x")) is drops
    assert not dropped_silently(replace(run, recipe_reader="hf"), held("x"))
    assert not dropped_silently(run, held("x", "flag"))
    said = what_happens(run, held("x"), Lack("trl", "", None))
    assert said == ("TrlParser drops it without a word" if drops else "its parsers stop at it")
    also = what_happens(run, held("x"), Lack("transformers", "", None))
    assert ("declared: " in also) is drops


def test_what_becomes_of_an_argument_of_a_call() -> None:
    code = script(calls=(call(),), lenient=True)
    in_code = held("x", file=code.file)
    assert in_call(in_code) and not in_call(held("x")) and not in_call(held("x", "flag"))
    run = run_of("trl", script=replace(code, calls=(call(file=code.file),)))
    assert what_happens(run, in_code, Lack("trl", "", None)) == "SFTConfig refuses it"
    assert what_happens(run_of(), in_code, Lack("trl", "", None)) == "the class refuses it"
    assert lets_through(run, held("x")) and not lets_through(run, in_code) and not lets_through(run_of(), held("x"))
    assert not lets_through(run_of(script=script()), held("x"))


def test_the_option_that_names_a_recipe() -> None:
    assert names_recipe(held("config", "flag"))
    assert not names_recipe(held("config")) and not names_recipe(held("configs", "flag"))
    assert former("no_cuda") and former("max_seq_length") and not former("no_such_argument")


@pytest.mark.parametrize(
    ("consumer", "name", "versions", "behind", "before"),
    [
        # TrainingArguments: `no_cuda` until 4.x; `eval_strategy` from 4.41 on
        ("transformers", "no_cuda", {"transformers": "==5.23.0"}, True, False),
        ("transformers", "no_cuda", {"transformers": "==4.40.0"}, False, False),
        ("transformers", "eval_strategy", {"transformers": "==4.40.0"}, False, True),
        ("transformers", "eval_strategy", {"transformers": "==4.41.0"}, False, False),
        ("transformers", "seed", {"transformers": "==5.23.0"}, False, False),
        ("transformers", "no_such_argument", {"transformers": "==5.23.0"}, False, False),
        ("transformers", "no_cuda", {}, False, False),
        # SFTConfig: `max_seq_length` from 0.9.2 until 0.19
        ("trl", "max_seq_length", {"trl": "==1.16.0"}, True, False),
        ("trl", "max_seq_length", {"trl": "==0.19.1"}, False, False),
        ("transformers", "max_seq_length", {"trl": "==1.16.0"}, False, False),
        ("trl", "config", {"trl": "==1.16.0"}, False, False),
    ],
)
def test_arguments_that_admitted_releases_lack(
    consumer: Any, name: str, versions: dict[str, str], behind: bool, before: bool
) -> None:
    run = run_of(consumer, recipe={name: 1}, versions=versions)
    assert (removed(run, held(name)) is not None, newer(run, held(name)) is not None) == (behind, before)
    assert removed(run, held("config", "flag")) is None


def test_calls_of_a_library_by_its_own_class() -> None:
    names = ["trl.SFTConfig", "transformers.TrainingArguments", "accelerate.Accelerator", "accelerate.DeepSpeedPlugin"]
    calls = [*(call(name) for name in names), call("torch.nn.Linear"), call(derived=True)]
    nowhere = Call("trl.SFTConfig", {"seed": Setting(1, Origin("computed"))}, script().file, Span(0, 9))
    run = run_of(script=script(calls=(*calls, nowhere)))
    found = list(given_in_calls(run))
    assert [item.call.name for item in found] == names and not [*given_in_calls(run_of())]
    assert [item.of for item in found] == ["SFTConfig", "TrainingArguments", "Accelerator", "DeepSpeedPlugin"]
    assert [key is not None for key in map(key_of_call, found)] == [True, True, False, False]
    told = found[0].finding("m", "h")
    assert (told.message, told.help, told.location.span) == ("m", "h", Span(0, 4))


@pytest.mark.parametrize(
    ("name", "takes", "refuses"),
    [
        ("transformers.TrainingArguments", "seed", "packing"),
        ("transformers.TrainingArguments", "output_dir", "no_cuda"),
        ("transformers.TrainingArguments", "output_dir", "predict_with_generate"),
        ("transformers.Seq2SeqTrainingArguments", "predict_with_generate", "packing"),
        ("transformers.Seq2SeqTrainingArguments", "seed", "no_cuda"),
        ("trl.SFTConfig", "packing", "max_seq_length"),
        ("trl.SFTConfig", "seed", "num_generations"),
        ("trl.GRPOConfig", "num_generations", "packing"),
        ("accelerate.Accelerator", "mixed_precision", "zero_stage"),
        ("accelerate.DeepSpeedPlugin", "zero_stage", "mixed_precision"),
    ],
)
def test_what_a_class_takes(name: str, takes: str, refuses: str) -> None:
    """As their signatures in accelerate 1.15.0, transformers 5.23.0, trl 1.16.0 say."""
    assert takes in taken_by(name) and refuses not in taken_by(name)
    assert ever_taken(name, takes) and not ever_taken(name, "no_such_argument")
    assert taken_by("trl.NoConfig") == frozenset()


def test_what_a_class_once_took() -> None:
    assert ever_taken("trl.SFTConfig", "max_seq_length") and ever_taken("transformers.TrainingArguments", "no_cuda")
    assert not ever_taken("transformers.TrainingArguments", "predict_with_generate")
    assert not ever_taken("accelerate.DeepSpeedPlugin", "seed") and not ever_taken("accelerate.Accelerator", "seed")
