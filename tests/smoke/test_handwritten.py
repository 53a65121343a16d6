"""Configs written by hand: which run they are, what they ask for, how they are started; good ones are trained."""

from __future__ import annotations

import json
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from zerocfg.cli.commands.smoke import command
from zerocfg.smoke.judge import known_errors
from zerocfg.smoke.judge.diagnosis import diagnose
from zerocfg.smoke.judge.requested_settings import check, fits
from zerocfg.smoke.launch.job_folder import prepare, variables
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.model.reduction import Reduced
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import RunFolder, read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.smoke import Options, smoke

from .sets import ACCELERATE, BROKEN, GOOD, RECIPE, TORCHRUN, Set, engine, plain, trainer, zero

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU = Device("cpu", "cpu")


def made(folder: Path, files: dict[str, str], consumer: str | None = None) -> RunFolder:
    return read(Set(files).write(folder), consumer)


def asked(run: RunFolder) -> dict[str, list[str]]:
    assert run.handwritten is not None
    return {name: [str(one) for one in found] for name, found in run.handwritten.requested.items()}


# -- which run --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"notes.txt": "nothing"}, "holds no config that zerocfg knows"),
        ({"accelerate.yaml": "distributed_type: MULTI_GPU\n", "train.sh": ACCELERATE}, "--consumer"),
        ({"train.sh": TORCHRUN + TORCHRUN.replace("4", "8"), "recipe.yaml": RECIPE, "ds.json": zero(2)}, "--run"),
        ({"train.sh": "accelerate launch --config_file gone.yaml train.py\n"}, "'gone.yaml' is nowhere to be found"),
        (trainer(zero(2), "output_dir: [out\n" + RECIPE), "recipe.yaml cannot be read: not valid YAML"),
        ({"zerocfg.yaml": "version: 1\nruns:\n  one:\n    consumer: trl\n"}, "is a spec"),
    ],
)
def test_what_cannot_be_tried_is_told(files: dict[str, str], said: str, tmp_path: Path) -> None:
    Set(files).write(tmp_path)
    with pytest.raises(SmokeError, match=re.escape(said)):
        read(tmp_path)
    done = CliRunner().invoke(command, [str(tmp_path)])
    assert done.exit_code == 2 and said in done.output and "Traceback" not in done.output


def test_one_of_several_runs_by_its_name(tmp_path: Path) -> None:
    files = trainer(zero(2)) | {"train.sh": TORCHRUN + TORCHRUN.replace("4", "8")}
    Set(files).write(tmp_path)
    run = read(tmp_path, name="train.sh:2")
    assert run.plan["num_processes"] == 8 and run.consumer == "transformers"
    with pytest.raises(SmokeError, match=r"holds no run .train\.sh:7"):
        read(tmp_path, name="train.sh:7")


@pytest.mark.parametrize("name", ["train.sh", "recipe.yaml", "ds.json"])
def test_a_single_file_brings_its_partners(name: str, tmp_path: Path) -> None:
    Set(trainer(zero(2))).write(tmp_path)
    run = read(tmp_path / name)
    assert run.deepspeed is not None and run.lock.recipe["max_steps"] == 4 and run.path == tmp_path


# -- what is asked ----------------------------------------------------------------------------------------------


def test_every_place_that_asks(tmp_path: Path) -> None:
    found = asked(made(tmp_path, trainer(zero(2, gradient_clipping=1.0))))
    assert found["gradient_clipping"] == [
        f"max_grad_norm: 0.5 ({tmp_path}/recipe.yaml:5)",
        f"gradient_clipping: 1.0 ({tmp_path}/ds.json:4)",
    ]
    assert "micro_batch" in found and found["micro_batch"] == [
        f"per_device_train_batch_size: 1 ({tmp_path}/recipe.yaml:2)"
    ], "auto asks for nothing"


@pytest.mark.parametrize(
    ("name", "key", "value"),
    [
        ("stage-in-misspelt-section", "stage", 2),
        ("stage-in-section-of-accelerate", "stage", 3),
        ("precision-in-old-section", "dtype", "bf16"),
        ("stage-in-quotes", "stage", 3),
        ("engine-options-without-engine", "stage", 2),
    ],
)
def test_what_nobody_reads_is_asked_all_the_same(name: str, key: str, value: Any, tmp_path: Path) -> None:
    run = read(BROKEN[name].write(tmp_path), BROKEN[name].consumer)
    assert run.handwritten is not None
    assert [one.value for one in run.handwritten.requested[key]] == [value]


def test_a_misspelt_key_asks_for_what_it_was_meant_to_be(tmp_path: Path) -> None:
    found = asked(made(tmp_path, engine(plain(gradient_clippin=0.3))))
    assert found["gradient_clipping"] == [f"gradient_clippin: 0.3 ({tmp_path}/ds.json:6)"]


def seen(**values: Any) -> list[dict[str, Any]]:
    return [{"seen": values}]


def test_both_places_are_named_when_they_differ(tmp_path: Path) -> None:
    run = made(tmp_path, trainer(zero(2, gradient_clipping=1.0)))
    assert run.handwritten is not None
    reduced = Reduced(1, {}, None, None, {}, {})
    checks = {one.name: one for one in check(run.handwritten.requested, reduced, seen(gradient_clipping=1.0, stage=2))}
    one = checks["gradient clipping"]
    assert one.ok is False and one.seen == "1"
    assert "max_grad_norm: 0.5" in one.planned and "gradient_clipping: 1.0" in one.planned
    assert checks["ZeRO stage"].ok is True and checks["ZeRO stage"].planned == "2"


@pytest.mark.parametrize(
    ("key", "wanted", "runs", "same"),
    [
        ("optimizer", "adamw_torch", "DeepSpeedCPUAdam", True),
        ("optimizer", "AdamW", "Adafactor", False),
        ("scheduler", "cosine", "WarmupLR", False),
        ("scheduler", "linear", "WarmupDecayLR", True),
        ("scheduler", "cosine", "cosine", True),
        ("dtype", "bf16", "fp32", False),
        ("gradient_clipping", 1, 1.0, True),
        ("engine", "ddp", "single", True),
        ("offload_optimizer", "cpu", "none", False),
    ],
)
def test_same_in_meaning(key: str, wanted: Any, runs: Any, same: bool) -> None:
    assert fits(key, wanted, runs, Reduced(1, {}, None, None, {}, {})) is same


# -- how it is started ------------------------------------------------------------------------------------------


def started(run: RunFolder, folder: Path, ranks: int = 1) -> list[str]:
    return prepare(run, reduce(run, CPU, ranks, folder), CPU, 1, folder)


def test_values_reach_the_libraries_as_written(tmp_path: Path) -> None:
    run = made(tmp_path / "set", trainer(zero("2")))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started(run, scratch)
    config = json.loads((scratch / "ds_config.json").read_text())
    assert config["zero_optimization"]["stage"] == "2"
    assert config["gradient_clipping"] == "auto"


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2, "train_batch_size": 1}', '{"train_batch_size": 1, // four\n}', "{"])
def test_what_a_strict_reader_refuses_is_handed_on_byte_for_byte(text: str, tmp_path: Path) -> None:
    run = made(tmp_path / "set", engine(text))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    started(run, scratch)
    assert (scratch / "ds_config.json").read_text() == text
    assert json.loads((scratch / "job.json").read_text())["deepspeed_config"] == str(scratch / "ds_config.json")


def test_options_and_variables_of_the_launch_line_are_kept(tmp_path: Path) -> None:
    line = (
        "export ACCELERATE_MIXED_PRECISION=bf16 CUDA_VISIBLE_DEVICES=3\n"
        "accelerate launch --use_deepspeed --num_processes 8 --main_process_port 4 --zero_stage=3 --gradient_clipping "
        "$CLIP --offload_optimizer_device cpu train.py --lr 1\n"
    )
    run = made(tmp_path / "set", {"train.sh": line}, "accelerate")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    words = started(run, scratch)
    launcher = words[words.index("accelerate.commands.launch") + 1 : words.index("zerocfg_worker")]
    assert "--config_file" not in launcher and "4" not in launcher and "--lr" not in launcher
    text = " ".join(launcher)
    assert "--zero_stage 3" in text and "--offload_optimizer_device cpu" in text and "--num_processes 1 " in text
    assert run.handwritten is not None
    assert any(
        "--gradient_clipping $CLIP: its value is not in the files" in str(note) for note in run.handwritten.notes
    )
    found = variables(scratch, run.handwritten)
    assert found["ACCELERATE_MIXED_PRECISION"] == "bf16" and "CUDA_VISIBLE_DEVICES" not in found


sizes = st.integers(1, 6)


@given(total=st.integers(1, 64), micro=sizes, steps=sizes, planned=sizes, ranks=sizes)
def test_a_batch_triple_fits_on_fewer_ranks_if_and_only_if_it_did(
    total: int, micro: int, steps: int, planned: int, ranks: int
) -> None:
    config = plain(train_batch_size=total, train_micro_batch_size_per_gpu=micro, gradient_accumulation_steps=steps)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = made(
            folder,
            engine(config) | {"train.sh": f"deepspeed --num_gpus {planned} t.py --deepspeed_config ds.json\n"},
        )
        reduced = reduce(run, CPU, ranks, folder)
    assert reduced.deepspeed is not None
    after = reduced.deepspeed["train_batch_size"]
    assert (after == micro * steps * ranks) == (total == micro * steps * planned)


# -- why it failed ----------------------------------------------------------------------------------------------


def failing(error: str, phase: str = "init") -> Outcome:
    return Outcome([{"rank": 0, "phase": phase}], failure=error, rank=0)


def test_an_error_names_the_finding_that_predicted_it(tmp_path: Path) -> None:
    run = read(BROKEN["clipping-mismatch"].write(tmp_path))
    error = "ValueError: Please correct the following: ds gradient_clipping=1.0 vs hf max_grad_norm=0.5"
    (found,) = diagnose(run, [], failing(error))
    assert (found.code, found.why, found.line) == ("ZC202", "error", 4)
    assert found.file is not None and found.file.endswith("ds.json") and found.fix


def test_nothing_is_invented(tmp_path: Path) -> None:
    run = read(GOOD["deepspeed-loop"].write(tmp_path))
    assert diagnose(run, [], Outcome([{"rank": 0}])) == []
    for error in (
        "KeyError: 'x'",
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied",
        "rank 0 ended with exit code 3",
    ):
        assert diagnose(run, [], failing(error, "step 1")) == []


@pytest.mark.parametrize(
    ("error", "name"),
    [
        ("OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "card-out-of-memory"),
        ("RuntimeError: [enforce fail] DefaultCPUAllocator: can't allocate memory", "host-out-of-memory"),
        ("DistNetworkError: The server socket has failed to bind to port 29500. EADDRINUSE", "port-in-use"),
        ("DistBackendError: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)", "ranks-do-not-meet"),
        ("OSError: [Errno 28] No space left on device", "no-space"),
        ("RuntimeError: Ninja is required to load C++ extensions (pip install ninja to get it)", "no-compiler"),
        ("RuntimeError: Unable to JIT load the async_io op due to it not being compatible", "no-libaio"),
    ],
)
def test_causes_outside_of_the_configs(error: str, name: str, tmp_path: Path) -> None:
    (found,) = diagnose(read(GOOD["deepspeed-loop"].write(tmp_path)), [], failing(error, "step 1"))
    assert (found.code, found.name, found.file) == ("", name, None) and found.fix


@pytest.mark.parametrize(("kind", "name"), [("port", "port-in-use"), ("space", "no-space"), ("launcher", None)])
def test_an_outcome_of_a_kind_names_its_cause_whatever_the_text(kind: str, name: str | None, tmp_path: Path) -> None:
    outcome = Outcome([{"rank": 0}], failure="the launcher ended with exit code 1", kind=kind)
    found = diagnose(read(GOOD["deepspeed-loop"].write(tmp_path)), [], outcome)
    assert [one.name for one in found] == ([name] if name else [])


def test_words_of_python_name_no_rule_alone() -> None:
    for error in (
        "TypeError: '<=' not supported between instances of 'float' and 'str'",
        "AttributeError: 'NoneType' object has no attribute 'get'",
        "AssertionError",
        "KeyError: 'weight'",
        "IndexError: list index out of range",
        "TypeError: f() got an unexpected keyword argument 'x'",
    ):
        assert known_errors.rule_of(error) is None, error


def test_a_rule_is_found_by_its_own_words_with_other_numbers() -> None:
    error = "AssertionError: Check batch related parameters. 48 != 2 * 4 * 8"
    rule = known_errors.rule_of(error)
    assert rule is not None and rule.code == "ZC203"
    rule = known_errors.rule_of("ValueError: - ds gradient_accumulation_steps=16 vs hf gradient_accumulation_steps=1")
    assert rule is not None and rule.code == "ZC201"


def test_what_zerocfg_built_is_diagnosed_as_well(make_run: MakeRun) -> None:
    folder = make_run(3)
    path = folder / "ds_config.json"
    path.write_text(path.read_text().replace('model_save": true', 'model_save": false'))
    failed = Check("saved parameters", "1", "no file of weights", False)
    (found,) = diagnose(read(folder), [failed], Outcome([{"rank": 0}]))
    assert (found.code, found.why) == ("ZC401", "check:saved parameters")
    assert found.file is not None and found.file.endswith("tiny/ds_config.json")


# -- on the real libraries --------------------------------------------------------------------------------------


FRESH = ("trainer", "ddp")
"""Launched by fresh Pythons, as a user's launches are: torchrun, and accelerate without DeepSpeed."""


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.parametrize("name", GOOD)
def test_good_sets_pass_without_a_diagnosis(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    good = GOOD[name]
    if name not in FRESH:
        request.getfixturevalue("warm_python")
    folder = good.write(tmp_path)
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    options = Options(ranks=good.ranks, device="cpu", steps=2, consumer=good.consumer, parts=("train",))
    verdict = smoke(folder, options)
    assert verdict.passed and verdict.diagnosis == [], [one for one in verdict.checks if one.ok is False]
    assert {one.name: one.ok for one in verdict.checks}["engine"] is not False
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == before
    assert verdict.certificate is None
