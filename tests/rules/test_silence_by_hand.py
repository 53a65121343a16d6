"""Where rules are silent, and what they say one step beside it; each run in memory, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of
from tests.rules.by_hand import TRAIN, after, effective, found, shown, started, yaml_file
from zerocfg.rules import arguments as read
from zerocfg.rules.keys.names import _meant
from zerocfg.rules.recipes.slips import consequence
from zerocfg.rules.taken import Lack, _sure
from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import UNKNOWN, Call, Origin, ReaderEvidence, Script, Setting, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.text import SourceText, Span


@pytest.mark.parametrize("code", ["ZC316"])
@pytest.mark.parametrize(
    ("fp16", "severity"),
    [
        ({"initial_scale_power": 30}, "note"),
        ({"initial_scale_power": 30, "loss_scale": 0}, "note"),
        ({"initial_scale_power": 30, "loss_scale": 1}, None),
        ({"initial_scale_power": 24}, None),
        ({"initial_scale_power": 25}, "note"),
        ({"initial_scale_power": 64}, "error"),
        ({"initial_scale_power": 63}, "note"),
        ({"initial_scale_power": "30"}, None),
        ({}, None),
    ],
)
def test_a_loss_scale_that_starts_too_high(code: str, fp16: dict[str, Any], severity: str | None) -> None:
    config = {"fp16": {"enabled": True, **fp16}, "zero_optimization": {"stage": 2}}
    every = found(code, with_settings(run_of("deepspeed", deepspeed=config)))
    assert [item.severity.value if item.severity else "error" for item in every] == ([severity] if severity else [])
    for item in every:
        assert json.loads(after(item.fix))["fp16"]["initial_scale_power"] == 16


@pytest.mark.parametrize("code", ["ZC243"])
@pytest.mark.parametrize(
    ("share", "data", "world", "fix"),
    [(2, 1, 1, None), (2, 3, 8, 4), (2, 4, 8, ""), (2, 3, 9, None), (2, 0, 8, ""), (0, 2, 8, ""), (2, 3, 0, "")],
)
def test_parallel_sizes_that_miss_the_processes(code: str, share: int, data: int, world: int, fix: Any) -> None:
    """Empty: nothing is said."""
    config = {"sequence_parallel_size": share, "data_parallel_size": data}
    run = effective(run_of("deepspeed", deepspeed=config), num_processes=world)
    every = found(code, run)
    assert len(every) == (fix != "")
    for item in every:
        assert f"but {world} processes" in item.message
        assert (json.loads(after(item.fix))["data_parallel_size"] if item.fix else None) == fix
    assert not found(code, replace(run, consumer="accelerate"))


@pytest.mark.parametrize("code", ["ZC710"])
@pytest.mark.parametrize(
    ("ids", "processes", "machines", "told"),
    [
        ("0", 2, 1, "1 device in"),
        ("0,1", 2, 1, None),
        ("0,1", 3, 1, "2 devices in"),
        ("0,1", 4, 2, None),
        ("0", 4, 2, "for 2 processes on each machine"),
        ("all", 4, 1, None),
        ("", 4, 1, "0 devices in"),
        ("0", 1, 1, None),
        ("0", "x", 1, None),
        ("0", 4, "x", None),
    ],
)
def test_devices_for_the_processes(code: str, ids: str, processes: Any, machines: Any, told: str | None) -> None:
    data = {"distributed_type": "MULTI_GPU", "gpu_ids": ids, "num_processes": processes, "num_machines": machines}
    every = found(code, effective(run_of("accelerate", accelerate=data)))
    assert len(every) == (told is not None)
    for item in every:
        assert told is not None and told in item.message
        assert (item.fix is not None) is (ids != "")


@pytest.mark.parametrize("code", ["ZC453"])
@pytest.mark.parametrize(
    ("consumer", "line", "flags", "tells"),
    [
        (None, None, {}, False),
        (None, "torchrun train.py", {}, True),
        ("deepspeed", None, {}, True),
        ("deepspeed", None, {"autotuning": "run"}, False),
    ],
)
def test_autotuning_that_was_left_on(
    code: str, consumer: Any, line: str | None, flags: dict[str, Any], tells: bool
) -> None:
    given = {name: Setting(value, Origin("flag")) for name, value in flags.items()}
    run = run_of(consumer, deepspeed={"autotuning": {"enabled": True}}, flags=given)
    run = replace(run, launch=started(line).launch) if line else run
    assert bool(found(code, run)) is tells
    assert not found(code, replace(run, deepspeed=run_of(deepspeed={"autotuning": {"enabled": False}}).deepspeed))


@pytest.mark.parametrize("code", ["ZC451"])
@pytest.mark.parametrize(
    ("step", "steps", "mended"),
    [(1, 1, 0), (5, 5, 1), (5, 6, None), (None, 1, 0), (None, 2, None), (5, 0, None), (5, -1, None), (True, 1, None)],
)
def test_a_step_to_profile_that_never_comes(code: str, step: Any, steps: int, mended: int | None) -> None:
    profiler = {"enabled": True} | ({} if step is None else {"profile_step": step})
    every = found(code, run_of(deepspeed={"flops_profiler": profiler}, recipe={"max_steps": steps}))
    steps_after = [json.loads(after(item.fix))["flops_profiler"]["profile_step"] for item in every]
    assert steps_after == ([] if mended is None else [mended])
    off = run_of(deepspeed={"flops_profiler": {"enabled": False}}, recipe={"max_steps": 1})
    assert not found(code, off)


@pytest.mark.parametrize("code", ["ZC526"])
@pytest.mark.parametrize(
    ("devices", "written", "stage", "tells"),
    [
        ({}, {}, 2, True),
        ({"offload_optimizer": "cpu"}, {}, 2, True),
        ({"offload_optimizer": "none"}, {}, 2, True),
        ({"offload_optimizer": "nvme"}, {}, 2, False),
        ({"offload_param": UNKNOWN}, {}, 3, False),
        ({"offload_param": None}, {"offload_param": {"device": "nvme"}}, 2, False),
        ({}, {}, None, False),
    ],
)
def test_settings_of_a_drive_that_nothing_goes_to(
    code: str, devices: Any, written: Any, stage: Any, tells: bool
) -> None:
    settings = {f"zero_optimization.{part}.device": value for part, value in devices.items()}
    run = run_of("deepspeed", deepspeed={"aio": {"block_size": 1}, "zero_optimization": written})
    every = found(code, effective(run, **settings, **{"zero_optimization.stage": stage}))
    assert bool(every) is tells
    for item in every:
        assert shown(item) == '"aio"' and "aio" not in json.loads(after(item.fix))


def test_an_unknown_key_is_removed_with_care() -> None:
    from zerocfg.rules.issues import issues

    run = with_settings(run_of("deepspeed", deepspeed={"zero_optimization": {"xyzzy": 1, "stagee": 2}}))
    keys = {key.name: key for key in issues(run, "unknown-crash")}
    _, fix = _meant(keys["xyzzy"])
    assert fix is not None and not fix.safe and "xyzzy" not in after(fix)
    help_text, near = _meant(keys["stagee"])
    assert help_text == "did you mean `stage`?" and near is not None
    assert json.loads(after(near))["zero_optimization"] == {"xyzzy": 1, "stage": 2}
    (scaling,) = issues(with_settings(run_of("deepspeed", deepspeed={"bf16": {"loss_scale": 1}})), "unknown-crash")
    help_text, gone = _meant(scaling)
    assert help_text.startswith("bf16 needs no loss scaling") and gone is not None and gone.safe


def test_a_lack_of_a_line_of_which_the_words_alone_tell_the_reader() -> None:
    lack = Lack("trl", "from TRL 0.20.0 on", "0.20.0")
    argument = read.Argument("x", 1, Origin("flag", "--x"))
    run = started("torchrun train.py --deepspeed ds.json --x 1")
    told = {by: replace(run, reader_evidence=ReaderEvidence(by)) for by in ("option", "script", "recipe")}
    assert _sure(told["option"], argument, lack) is None
    assert _sure(told["script"], argument, lack) is lack is _sure(told["recipe"], argument, lack)
    assert _sure(told["option"], argument, replace(lack, releases="")) is not None, "no admitted release has it"
    assert _sure(told["option"], replace(argument, origin=Origin("file")), lack) is lack
    assert _sure(replace(told["option"], script=Script(TRAIN)), argument, lack) is lack


def test_what_comes_of_a_slip() -> None:
    given = {"seedd": Setting(1, Origin("file", file=TRAIN, span=Span(0, 9)))}
    other = SourceFile("other.py", "script", SourceText("other.py", "x = 1"))
    own = Call("trl.SFTConfig", given, TRAIN, Span(0, 9))
    further = (Call("trl.SFTConfig", given, other, Span(0, 5)), Call("torch.nn.Linear", given, TRAIN, Span(0, 9)))
    in_call = read.Argument("seedd", 1, Origin("file", file=TRAIN, span=Span(0, 9)))
    in_file = read.Argument("seedd", 1, Origin("file", file=yaml_file("recipe", "seedd: 1\n"), path=("seedd",)))
    on_line = read.Argument("seedd", 1, Origin("flag", "--seedd"))
    run = run_of("trl", script=Script(TRAIN, calls=(own, *further)))
    assert consequence(run, in_call) == "the class stops at the other"
    assert consequence(run, in_file) == "the parser stops at the other" == consequence(run, on_line)
    for calls in ((), further, (replace(own, derived=True),), (own, own), (replace(own, arguments={}),)):
        of = replace(run, script=Script(TRAIN, calls=calls))
        assert consequence(of, in_call) == "the parser stops at the other"
    lenient = replace(run, script=Script(TRAIN, lenient=True))
    assert consequence(lenient, on_line) == "the script's parser lets the other through"
    dropping = run_of("trl", recipe_reader="trl", versions={"trl": "==0.15.0"})
    assert consequence(dropping, in_file).startswith("TrlParser drops the other without a word (")


@pytest.mark.parametrize("code", ["ZC515"])
@pytest.mark.parametrize(
    ("ratio", "size", "parameters", "ranks", "tells"),
    [
        (0.5, 1000, 999, 1, True),  # one group
        (0.5, 1000, 1000, 1, False),  # two
        (0.4, 1000, 999, 1, True),
        (0, 1000, 999, 1, False),
        (0.875, 1000, 6999, 1, True),
        (0.875, 1000, 7000, 1, False),  # one group of eight stays
        (0.875, 1000, 55999, 8, True),
        (0.875, 1000, 56000, 8, False),
        (1, 1000, 999, 1, False),
        (-0.5, 1000, 999, 1, False),
        (0.999, 1, 5, 1, True),
        (0.5, 0, 999, 1, False),
    ],
)
def test_a_ratio_that_leaves_no_group(
    code: str, ratio: float, size: int, parameters: int, ranks: int, tells: bool
) -> None:
    config = {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": ratio}}}
    settings: dict[str, Any] = {
        "zero_optimization.sub_group_size": size,
        "zero_optimization.stage": 3,
        "zero_optimization.offload_optimizer.device": "cpu",
    }
    run = replace(run_of("deepspeed", deepspeed=config), model=ModelSummary("m", parameters=parameters))
    every = found(code, effective(run, num_processes=ranks, **settings))
    assert bool(every) is tells
    for item in every:
        mended = json.loads(after(item.fix))["zero_optimization"]["sub_group_size"]
        assert mended == max(1, parameters // ranks // 10)
    assert not found(code, effective(run, num_processes=ranks, **{**settings, "zero_optimization.stage": 2}))


@pytest.mark.parametrize("code", ["ZC741"])
@pytest.mark.parametrize(
    ("text", "consumer", "line", "tells"),
    [
        ("python train.py --deepspeed ds.json --output_dir o", "transformers", True, True),
        ("python train.py --deepspeed ds.json --output_dir o", "axolotl", True, False),
        ("torchrun train.py --deepspeed ds.json --output_dir o", "transformers", True, False),
        ("RANK=0 python train.py --deepspeed ds.json --output_dir o", "transformers", True, True),
    ],
)
def test_deepspeed_without_a_launcher(code: str, text: str, consumer: Any, line: bool, tells: bool) -> None:
    made = started(text, consumer=consumer, deepspeed_route="trainer")
    assert made.launch is not None
    given = {"output_dir": Setting("o", Origin("flag", "--output_dir"))}
    run = replace(made, arguments=given, deepspeed=run_of(deepspeed={}).deepspeed)
    every = found(code, run)
    assert bool(every) is tells
    known = {"RANK": Setting("0", Origin("environment"))}
    assert not found(code, replace(run, environment=known)) and not found(code, replace(run, deepspeed=None))
    for item in every:
        assert shown(item) == "train.py" and "torchrun --nproc_per_node 1 train.py" in after(item.fix)
