"""A fix changes no effective setting and no training argument of a run in which its finding was not met."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
import yaml

from tests.conftest import texts_of_corpus
from tests.fuzz.campaign import put
from tests.rules.examples import lint, write
from tests.rules.test_fixing import FIXABLE
from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.linter.fixing import fix_all
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import find
from zerocfg.run.model import Run
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

TRAIN = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_yaml_file("r.yaml")
Trainer(args=args).train()
"""
FSDP = """\
distributed_type: FSDP
num_machines: 1
num_processes: 4
mixed_precision: bf16
fsdp_config:
  fsdp_version: 2
  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP
  fsdp_state_dict_type: FULL_STATE_DICT
  fsdp_activation_checkpointing: true
"""
DDP = "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\nmixed_precision: bf16\n"
ZERO = """\
distributed_type: DEEPSPEED
num_processes: 4
mixed_precision: bf16
deepspeed_config:
  zero_stage: 3
  gradient_accumulation_steps: 2
"""
RECIPE = "output_dir: o\nbf16: true\nper_device_train_batch_size: 2\ngradient_checkpointing: true\n"
SHARED = {"train.py": TRAIN, "r.yaml": RECIPE, "fsdp.yaml": FSDP, "ddp.yaml": DDP}
A = "accelerate launch --config_file fsdp.yaml train.py r.yaml\n"
B = "accelerate launch --config_file ddp.yaml train.py r.yaml\n"

SYNTHETIC = 12
CORPUS = 10
_RECIPE_LINES = (
    "gradient_checkpointing: true",
    "evaluation_strategy: steps",
    "eval_steps: 10",
    "load_best_model_at_end: true",
    "save_strategy: epoch",
    "gradient_accumulation_steps: 4",
    "fp16: true",
    "logging_steps: 0",
    "lr_scheduler_type: reduce_lr_on_plateau",
    "group_by_length: true",
)
_CONFIGS = {"fsdp.yaml": FSDP, "ddp.yaml": DDP, "zero.yaml": ZERO}
_PINS = ("", "transformers==4.44.2\n", "transformers==5.23.0\n")


PARSED = """\
from transformers import Trainer, TrainingArguments
from trl import TrlParser
(args,) = TrlParser(TrainingArguments).parse_args_and_config()
Trainer(args=args).train()
"""
LOOP = """\
import deepspeed
engine, *_ = deepspeed.initialize(model=None, config="ds.json")
"""


def _offered(files: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """The findings for which a lint offers a fix that is safe."""
    job = _job(files, folder, monkeypatch)
    result = job.with_sound_fixes(job.lint())
    assert job.lint().runs and len(job.runs) == len(result.runs)
    return [(found.code, found.fix.safe) for found in result.diagnostics if found.code == "ZC630" and found.fix]


@pytest.mark.parametrize(
    ("files", "offered"),
    [
        ({**SHARED, "a.sh": A}, [("ZC630", True)]),
        ({**SHARED, "a.sh": A, "c.sh": A.replace("4", "8")}, [("ZC630", True)]),
        ({**SHARED, "a.sh": A, "b.sh": B}, []),
        ({**SHARED, "a.sh": A, "b.sh": B.replace(" r.yaml", " other.yaml"), "other.yaml": RECIPE}, [("ZC630", True)]),
    ],
)
def test_a_lint_offers_what_fix_applies(
    files: dict[str, str], offered: list[tuple[str, bool]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "other.yaml" in files:
        files = {**files, "train.py": TRAIN.replace('"r.yaml"', "sys.argv[1]").replace("from", "import sys\nfrom", 1)}
    assert _offered(files, tmp_path, monkeypatch) == offered
    job = _job(files, tmp_path, monkeypatch)
    texts, _, _ = fix_all(job.lint(), job.lint, wanted=lambda found: found.code == "ZC630")
    assert bool(texts) is bool(offered)


def _job(
    files: dict[str, str], folder: Path, monkeypatch: pytest.MonkeyPatch, selection: Selection | None = None
) -> Job:
    put({name: text.encode() for name, text in files.items()}, folder)
    monkeypatch.chdir(folder)
    return Job([folder], Settings(), selection or Selection())


def _fixed_alone(job: Job, result: Result, found: Diagnostic) -> Result | None:
    """The lint after one fix; None where it is not applied."""
    _, after, count = fix_all(result, job.lint, unsafe=True, wanted=lambda one: one is found)
    return after if count else None


def _values(run: Run) -> dict[str, object]:
    """Effective settings, and the recipe as PyYAML reads it, without what the launch line says anyway."""
    values: dict[str, object] = {name: setting.value for name, setting in run.effective.settings.items()}
    written = yaml.safe_load(run.recipe.source.text) if run.recipe is not None else {}
    return values | {f"argument {name}": held for name, held in written.items() if name not in run.arguments}


def _check_each_fix(job: Job) -> tuple[int, int]:
    """Apply every fix by itself and compare the runs that it is not for. Returns how many were applied and refused."""
    result = job.lint()
    applied = refused = 0
    for found in result.diagnostics:
        if found.fix is None:
            continue
        after = _fixed_alone(job, result, found)
        if after is None:
            refused += 1
            continue
        applied += 1
        assert [run.name for run in after.runs] == [run.name for run in result.runs], found
        for run, changed in zip(result.runs, after.runs, strict=True):
            if run.name not in {found.run, *found.met_in}:
                assert _values(changed) == _values(run), (found.code, run.name)
    return applied, refused


def test_a_recipe_that_another_run_reads_keeps_its_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under FSDP the Trainer stops at checkpointing twice; under DDP the same line of the recipe is what is meant."""
    for name, lines, count in (("fsdp", {"a.sh": A}, 1), ("both", {"a.sh": A, "b.sh": B}, 0)):
        job = _job({**SHARED, **lines}, tmp_path / name, monkeypatch)
        result = job.lint()
        (found,) = [one for one in result.diagnostics if one.code == "ZC630"]
        texts, _, applied = fix_all(result, job.lint, wanted=lambda one, only=found: one is only)  # type: ignore[misc]
        assert applied == count
        assert [text for path, text in texts.items() if path.endswith("r.yaml")] == (
            [RECIPE.replace("gradient_checkpointing: true", "gradient_checkpointing: false")] if count else []
        )


def test_a_recipe_whose_argument_the_other_line_states_is_edited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "accelerate launch --config_file {} train.py --config r.yaml{}\n"
    files = {**SHARED, "train.py": PARSED, "a.sh": line.format("fsdp.yaml", "")}
    files["b.sh"] = line.format("ddp.yaml", " --gradient_checkpointing True")
    job = _job(files, tmp_path, monkeypatch)
    result = job.lint()
    found = [one for one in result.diagnostics if one.code == "ZC630"]
    assert len(found) == 1
    assert _fixed_alone(job, result, found[0]) is not None


def test_no_fix_changes_a_run_that_it_is_not_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    applied = refused = 0
    for number in range(SYNTHETIC):
        random = Random(f"shared/{number}")
        recipe = "output_dir: o\nbf16: true\n" + "".join(f"{x}\n" for x in random.sample(_RECIPE_LINES, 5))
        files = {"train.py": TRAIN, "r.yaml": recipe, **_CONFIGS, "requirements.txt": random.choice(_PINS)}
        for name in ("a.sh", "b.sh"):
            config = random.choice(tuple(_CONFIGS))
            files[name] = f"accelerate launch --config_file {config} train.py r.yaml\n"
        counts = _check_each_fix(_job(files, tmp_path / str(number), monkeypatch))
        applied, refused = applied + counts[0], refused + counts[1]
    assert applied >= SYNTHETIC // 2
    assert refused >= 1


def test_no_fix_of_a_real_config_changes_a_run_that_it_is_not_for(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = Random("shared").sample(texts_of_corpus("deepspeed"), CORPUS)
    applied = 0
    for number, text in enumerate(texts):
        files = {"train.py": TRAIN.replace('parse_yaml_file("r.yaml")', "parse_args_into_dataclasses()")}
        files |= {"ds.json": text, "loop.py": LOOP, "b.sh": "deepspeed --num_gpus 2 loop.py\n"}
        files["a.sh"] = "deepspeed --num_gpus 2 train.py --output_dir o --bf16 True --deepspeed ds.json\n"
        applied += _check_each_fix(_job(files, tmp_path / str(number), monkeypatch))[0]
    assert applied >= 1


CLIPPED = """\
distributed_type: DEEPSPEED
num_machines: 1
num_processes: 2
deepspeed_config:
  zero_stage: 2
  gradient_clip: {}
"""
FILLED = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(args=args).train()
"""
ACCUMULATING = """\
from accelerate import Accelerator
accelerator = Accelerator(gradient_accumulation_steps=2)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
accelerator.backward(loss)
"""
PLAIN = ACCUMULATING.replace("gradient_accumulation_steps=2", "")
STEPS = CLIPPED.replace("gradient_clip: {}", "gradient_acumulation_steps: {}")
START = "accelerate launch --config_file a.yaml train.py --output_dir out --max_grad_norm {}\n"


@pytest.mark.parametrize("only", [(), ("ZC103",)], ids=["every rule", "one rule"])
@pytest.mark.parametrize(
    ("config", "script", "lines", "offered"),
    [
        # HfTrainerDeepSpeedConfig of 5.23.0: "ds gradient_clipping=1 vs hf max_grad_norm=0.1", ValueError in train()
        (CLIPPED.format(1), FILLED, [START.format(0.1)], False),
        (CLIPPED.format(1), FILLED, [START.format(1.0)], True),
        (CLIPPED.format(1), FILLED, [START.format(1.0), START.format(0.1)], False),
        (STEPS.format(2), ACCUMULATING, ["accelerate launch --config_file a.yaml train.py\n"], True),
        (STEPS.format(4), ACCUMULATING, ["accelerate launch --config_file a.yaml train.py\n"], False),
        (CLIPPED.format(1.0), PLAIN, ["accelerate launch --config_file a.yaml train.py\n"], True),
        # the launcher hands on the variable, where its config says nothing
        (
            CLIPPED.format(1.0),
            PLAIN,
            ["ACCELERATE_GRADIENT_CLIPPING=0.5 accelerate launch --config_file a.yaml train.py\n"],
            False,
        ),
    ],
)
def test_a_key_that_begins_to_count(
    config: str,
    script: str,
    lines: list[str],
    offered: bool,
    only: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its name is put right only where every run goes on as before, but for what the key says; whichever other rules
    are asked."""
    files = {"a.yaml": config, "train.py": script, **{f"run{n}.sh": line for n, line in enumerate(lines)}}
    job = _job(files, tmp_path, monkeypatch, Selection(select=only))
    result = job.lint()
    (found,) = [one for one in result.diagnostics if one.code == "ZC103"]
    assert found.fix is not None and found.fix.safe and found.fix.renames
    (left,) = [one for one in job.with_sound_fixes(result).diagnostics if one.code == "ZC103"]
    assert (left.fix is not None) is offered
    _, after, applied = fix_all(result, job.lint)
    assert applied == offered
    assert {one.code for one in after.diagnostics if one.severity.value == "error"} <= {"ZC103"}


@pytest.mark.parametrize("code", sorted({code for code, _ in FIXABLE}))
def test_a_safe_fix_of_an_example_takes_nothing_from_others(code: str, tmp_path: Path) -> None:
    """What a line, a variable or a file that is not edited says stays so in every run, and no error comes."""
    for at in (number for of, number in FIXABLE if of == code):
        rule, folder = find(code), tmp_path / str(at)
        assert rule is not None
        example = page_of(rule).bad[at]
        folder.mkdir()
        write(example, folder)
        result = lint(folder, example.consumer)

        def again(texts: Mapping[str, str], folder: Path = folder, consumer: str | None = example.consumer) -> Result:
            return lint(folder, consumer, texts=texts)

        errors = {one.code for one in result.diagnostics if one.severity.value == "error"}
        for found in result.diagnostics:
            if found.fix is None or not found.fix.safe:
                continue
            _, after, count = fix_all(result, again, wanted=lambda one, only=found: one is only)  # type: ignore[misc]
            edited = {file.name for file, _ in found.fix.edits}
            if count:
                assert {one.code for one in after.diagnostics if one.severity.value == "error"} <= errors
                for before, fixed in zip(result.runs, after.runs, strict=True):
                    assert _said_elsewhere(fixed, edited) >= _said_elsewhere(before, edited), (found.code, before.name)


def _said_elsewhere(run: Run, edited: set[str]) -> set[str]:
    """The settings, with their values, that come from a place which no fix of these files edits."""
    return {
        f"{name}={setting.value}"
        for name, setting in run.effective.settings.items()
        if setting.origin.kind not in ("default", "computed")
        and (setting.origin.file is None or setting.origin.file.name not in edited)
    }
