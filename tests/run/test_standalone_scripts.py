"""Scripts of which no launch line tells: what their calls and their config dicts show by themselves."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run
from zerocfg.run.releases import with_versions


def runs_of(folder: Path, **files: str) -> list[Run]:
    """The runs below a folder with these files; `__` for a slash, `_dot_` for a dot."""
    (folder / ".git").mkdir(exist_ok=True)
    for name, text in files.items():
        path = folder / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return find_runs([folder], Files(), root=folder, scripts=True)[0]


def found(folder: Path, **files: str) -> list[Diagnostic]:
    runs = with_versions(runs_of(folder, **files), {})
    return [one for one in lint_runs(runs).diagnostics if one.severity.value != "note"]


def shown(one: Diagnostic) -> str:
    """Code, severity and the words that are underlined."""
    source = one.span.file.source
    start = source.offset(one.span.start.line - 1, one.span.start.column - 1)
    end = source.offset(one.span.end.line - 1, one.span.end.column - 1)
    return f"{one.code} {one.severity.value} {source.text[start:end]}"


HF = "from transformers import Trainer, TrainingArguments\n"
TRAIN = "Trainer(model=None, args=args).train()\n"
ACCELERATE = "from accelerate import Accelerator, DeepSpeedPlugin\n"
DEEPSPEED = "import deepspeed\n"
GO = "deepspeed.initialize(model=m, config=c)\n"

WRONG = {
    "a text for a number": (
        HF + "args = TrainingArguments('out', logging_steps='20 steps')\n" + TRAIN,
        ["ZC802 error '20 steps'"],
    ),
    "a number in quotes": (
        HF + "args = TrainingArguments('out', save_total_limit='3')\n" + TRAIN,
        ["ZC802 error '3'"],
    ),
    "a slip": (HF + "args = TrainingArguments('out', weight_decays=0.1)\n" + TRAIN, ["ZC841 warning 0.1"]),
    "a word that no strategy has": (
        HF + "args = TrainingArguments('out', eval_strategy='noo')\n" + TRAIN,
        ["ZC811 error 'noo'"],
    ),
    "the same under its former name": (
        HF + "args = TrainingArguments('out', evaluation_strategy='noo')\n" + TRAIN,
        ["ZC801 warning 'noo'", "ZC811 error 'noo'"],
    ),
    "arguments of an older release": (
        ACCELERATE + "Accelerator(dispatch_batches=True, even_batches=False)\n",
        ["ZC870 warning True", "ZC870 warning False"],
    ),
    "the second of two": (
        HF + "a = TrainingArguments('a', seed=1)\nb = TrainingArguments('b', warmup_step=5)\n",
        ["ZC841 warning 5"],
    ),
    "arguments without a trainer": (HF + "args = TrainingArguments('out', warmup_step=5)\n", ["ZC841 warning 5"]),
    "beside keywords that nobody knows": (
        HF + "args = TrainingArguments('out', warmup_step=5, **more)\n" + TRAIN,
        ["ZC841 warning 5"],
    ),
    "a config of TRL": (
        "from trl import GRPOConfig\nGRPOConfig('out', num_generation=4, steps_per_generation=4)\n",
        ["ZC841 warning 4"],
    ),
    "a precision that Accelerator does not have": (
        ACCELERATE + "Accelerator(mixed_precision='bfloat16')\n",
        ["ZC106 error 'bfloat16'"],
    ),
    "a slip for Accelerator": (ACCELERATE + "Accelerator(mixed_precison='bf16')\n", ["ZC841 warning 'bf16'"]),
    "a slip for a plugin": (ACCELERATE + "DeepSpeedPlugin(zero_stages=2)\n", ["ZC841 warning 2"]),
    "a dict with a key that the code makes": (
        DEEPSPEED + "c = {dtype: {'enabled': True}, 'zero_optimization': {'stage': 4}}\n" + GO,
        ["ZC106 error 4"],
    ),
    "a dict that is added to": (
        DEEPSPEED + "c = {'zero_optimization': {'stage': 2, 'overlap_com': True}}\nif x:\n    c['bf16'] = {}\n" + GO,
        ["ZC101 error 'overlap_com'"],
    ),
    "a dict that is handed on": (
        DEEPSPEED + "def run(m, c):\n    " + GO + "run(None, {'zero_optimisation': {'stage': 2}})\n",
        ["ZC102 error 'zero_optimisation'"],
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_is_told(case: str, tmp_path: Path) -> None:
    text, expected = WRONG[case]
    diagnostics = found(tmp_path, train_dot_py=text)
    assert [shown(one) for one in diagnostics] == expected
    assert all(one.fix is None for one in diagnostics)


RIGHT = {
    "a class of the same name": "from mine import TrainingArguments\nTrainingArguments('out', weight_decays=0.1)\n",
    "a class of the module": "class Accelerator:\n    pass\nAccelerator(mixed_precison='bf16')\n",
    "a subclass with a field of its own": (
        HF + "class Mine(TrainingArguments):\n    weight_decays: float = 0\nMine('out', weight_decays=0.1)\n"
    ),
    "a function that nobody calls": HF + "def old():\n    TrainingArguments('out', weight_decays=0.1)\n",
    "a test case": (
        HF + "class T(TestCase):\n    def test(self):\n        TrainingArguments('out', weight_decays=0.1)\n"
        "if __name__ == '__main__':\n    main()\n"
    ),
    "an argument that is near nothing": HF + "TrainingArguments('out', brand_new_switch=True)\n",
    "values that the code makes": (
        HF + "args = TrainingArguments('out', logging_steps=f(), eval_strategy=a.b)\n"
        "Accelerator(mixed_precision=x)\n" + TRAIN
    ),
    "numbers": HF + "args = TrainingArguments('out', logging_steps=20, save_steps=0.5, max_steps=-1)\n" + TRAIN,
    "no precision": ACCELERATE + "Accelerator(mixed_precision=None)\nAccelerator(mixed_precision='fp8')\n",
    "a dict that nothing reads": "SPACE = {'zero_optimization': {'stage': [0, 1], 'overlap_com': [True]}}\n",
    "a key that is taken out again": (
        DEEPSPEED + "c = {'zero_optimization': {'stage': 1}, 'mine': 1}\nc.pop('mine')\n" + GO
    ),
    "a value that is set later": (
        DEEPSPEED + "c = {'zero_optimization': {'stage': 'later'}}\nc['zero_optimization']['stage'] = 2\n" + GO
    ),
    "a section that the code makes": (DEEPSPEED + "c = {'train_batch_size': 8, 'zero_optimization': zero()}\n" + GO),
    "what is missing in a part": DEEPSPEED + "c = {**base, 'zero_optimization': {'stage': 3}}\n" + GO,
    "a config for nobody's training": (
        HF + "TrainingArguments('out', deepspeed={'train_batch_size': 'auto', 'zero_optimization': {'stage': 3}})\n"
    ),
}


@pytest.mark.parametrize("case", RIGHT)
def test_what_is_not_told(case: str, tmp_path: Path) -> None:
    assert [shown(one) for one in found(tmp_path, train_dot_py=RIGHT[case])] == []


def test_a_script_that_a_line_starts_makes_no_run_of_its_own(tmp_path: Path) -> None:
    script = HF + "args = TrainingArguments('out', warmup_step=5)\n" + TRAIN
    runs = runs_of(tmp_path, train_dot_py=script, go_dot_sh="torchrun --nproc_per_node 2 train.py\n")
    assert [run.launch is not None for run in runs] == [True]


def test_the_releases_of_the_project_count(tmp_path: Path) -> None:
    script = HF + "args = TrainingArguments('out', optim='adamw_hf')\n" + TRAIN
    told = found(tmp_path, train_dot_py=script, requirements_dot_txt="transformers==5.23.0\n")
    assert [shown(one) for one in told] == ["ZC811 error 'adamw_hf'"]


def test_only_files_that_hold_a_telling_word_are_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(300):
        (tmp_path / f"module_{number}.py").write_text("import torch\nfrom transformers import AutoModel\n")
    parsed: list[str] = []
    parse = ast.parse

    def counted(text: str) -> ast.Module:
        parsed.append(text)
        return parse(text)

    monkeypatch.setattr(ast, "parse", counted)
    assert len(runs_of(tmp_path, train_dot_py=HF + "TrainingArguments('out', seed=1)\n")) == 1
    assert len(parsed) == 1


YAML = "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: {}\n"
LINE = "accelerate launch --config_file acc.yaml own.py\n"


@pytest.mark.parametrize(
    ("written", "asked", "told"), [("bf16", "'fp16'", True), ("bf16", "'bf16'", False), ("bf16", "x", False)]
)
def test_the_argument_of_accelerator_beats_the_file(written: str, asked: str, told: bool, tmp_path: Path) -> None:
    script = ACCELERATE + f"Accelerator(mixed_precision={asked})\n"
    diagnostics = found(tmp_path, acc_dot_yaml=YAML.format(written), own_dot_py=script, go_dot_sh=LINE)
    assert [shown(one) for one in diagnostics] == (["ZC308 warning mixed_precision: bf16"] if told else [])
    assert all("the argument of Accelerator wins" in one.message for one in diagnostics)


def test_a_folder_without_scripts_loads_nothing_that_reads_them(tmp_path: Path) -> None:
    (tmp_path / "acc.yaml").write_text(YAML.format("bf16"))
    look = (
        "import sys\nfrom pathlib import Path\nfrom zerocfg.run.discover import Files\n"
        "from zerocfg.run.link import find_runs\nfound = find_runs([Path('.')], Files(), scripts=True)[0]\n"
        "print(len(found), 'zerocfg.run.linking.standalone_scripts' in sys.modules, "
        "'zerocfg.run.script.reading' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", look], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "False", "False"]


def of(folder: Path, **files: str) -> list[str]:
    return [f"{one.span.file.name} {one.code} {one.severity.value}" for one in found(folder, **files)]


NAMES_DS = HF + "args = TrainingArguments('out', per_device_train_batch_size=8, deepspeed='ds.json')\n" + TRAIN
ZERO = '"zero_optimization": {"stage": 2}, "gradient_accumulation_steps": 1'
ONE_EACH = '{"train_micro_batch_size_per_gpu": 1, ' + ZERO + "}"
AS_ASKED = '{"train_micro_batch_size_per_gpu": "auto", ' + ZERO + "}"


def test_a_script_reads_the_config_of_its_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two files of one name the one beside the script was written for it; the other is not judged with it."""
    monkeypatch.chdir(tmp_path)
    assert of(tmp_path, a__train_dot_py=NAMES_DS, a__ds_dot_json=AS_ASKED, ds_dot_json=ONE_EACH) == []


def test_the_config_of_its_own_folder_is_judged_with_a_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    own = of(tmp_path, a__train_dot_py=NAMES_DS, a__ds_dot_json=ONE_EACH, ds_dot_json=AS_ASKED)
    assert own == ["a/ds.json ZC202 error"]


def test_a_script_whose_folder_has_none_reads_the_config_further_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert of(tmp_path, a__train_dot_py=NAMES_DS, ds_dot_json=ONE_EACH) == ["ds.json ZC202 error"]


WITH_COMMENT = '{\n  // of the paper\n  "train_micro_batch_size_per_gpu": 8, ' + ZERO + "}"
CALLS_DEEPSPEED = DEEPSPEED + "deepspeed.initialize(model=m, config='ds.json')\n"


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("", ["ds.json ZC004 warning"]),  # any of the three may read it
        (CALLS_DEEPSPEED, []),  # hjson
        (NAMES_DS, ["ds.json ZC004 error"]),  # json.load
    ],
    ids=["no reader", "deepspeed", "Trainer"],
)
def test_a_config_that_a_script_names_has_its_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert of(tmp_path, train_dot_py=script, ds_dot_json=WITH_COMMENT) == expected


TRL = "from trl import GRPOConfig, GRPOTrainer, SFTConfig, SFTTrainer\n"
SHARDS = (
    '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 3}, "gradient_accumulation_steps": 1}'
)


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        (["GRPOTrainer(args=GRPOConfig('out', deepspeed='ds.json')).train()"], ["ds.json ZC401 error"]),
        (["GRPOTrainer(args=GRPOConfig('out')).train()"], ["ds.json ZC401 warning"]),
        (
            [
                "SFTTrainer(args=SFTConfig('out', deepspeed='ds.json')).train()",
                "GRPOTrainer(args=GRPOConfig('out', deepspeed='ds.json')).train()",
            ],
            ["ds.json ZC401 warning"],
        ),
    ],
    ids=["named", "not named", "named for two trainers"],
)
def test_a_config_that_a_config_of_trl_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: list[str], expected: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert of(tmp_path, train_dot_py=TRL + "\n".join(calls) + "\n", ds_dot_json=SHARDS) == expected
