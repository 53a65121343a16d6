"""What the code and the other runs of a project tell about who reads a file, and what of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

Lint = Callable[[dict[str, str], str], list[tuple[str, int, str]]]
COMMA = '{"zero_optimization": {"stage": 3},\n "train_batch_size": 8,}\n'
"""Only DeepSpeed, whose reader is hjson, takes the last comma."""
ENGINE = (
    "import argparse\nimport deepspeed\nparser = argparse.ArgumentParser()\n"
    "parser = deepspeed.add_config_arguments(parser)\nargs = parser.parse_args()\n"
    "engine, *_ = deepspeed.initialize(args=args, model=model)\nengine.backward(loss)\nengine.step()\n"
)
TRAINER = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "Trainer(model=model, args=args).train()\n"
)


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """What one rule finds in these files: file, line and severity."""

    def ask(files: dict[str, str], code: str) -> list[tuple[str, int, str]]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        result = Job([tmp_path], Settings(), Selection(select=(code,))).lint()
        found = [item for item in result.diagnostics if item.code == code]
        return [(item.span.file.name, item.span.start.line, item.severity.value) for item in found]

    return ask


def test_a_config_beside_those_that_deepspeed_alone_reads(lint: Lint) -> None:
    files = {
        "a.json": '{"train_batch_size": 8}',
        "b.json": COMMA,
        "engine.py": ENGINE,
        "run.sh": "deepspeed engine.py --deepspeed --deepspeed_config a.json\n",
    }
    assert lint(files, "ZC004") == []
    files["trainer.py"] = TRAINER
    files["second.sh"] = "torchrun trainer.py --output_dir out --deepspeed a.json\n"
    assert lint(files, "ZC004") == [("b.json", 2, "warning")]


def test_a_config_that_nobody_is_known_to_read(lint: Lint) -> None:
    assert lint({"b.json": COMMA}, "ZC004") == [("b.json", 2, "warning")]


def test_a_config_that_the_trainer_reads(lint: Lint) -> None:
    files = {"b.json": COMMA, "t.py": TRAINER, "run.sh": "torchrun t.py --output_dir out --deepspeed b.json\n"}
    assert lint(files, "ZC004") == [("b.json", 2, "error")]


@pytest.mark.parametrize(("method", "severities"), [("get_batch_loss_metrics", []), ("log", ["error"])])
def test_a_trainer_with_a_loss_of_its_own_has_types_of_its_own(lint: Lint, method: str, severities: list[str]) -> None:
    files = {
        "requirements.txt": "trl==1.16.0\n",
        "mine.py": "from trl import DPOTrainer\nclass MineTrainer(DPOTrainer):\n"
        f"    def {method}(self):\n        pass\n",
        "train.py": "from trl import DPOConfig, TrlParser\nfrom mine import MineTrainer\n"
        "(args,) = TrlParser((DPOConfig,)).parse_args_and_config()\nMineTrainer(model=model, args=args).train()\n",
        "run.sh": "accelerate launch train.py --config dpo.yaml\n",
        "dpo.yaml": "output_dir: out\nper_device_train_batch_size: 2\nlearning_rate: 1.0e-6\nloss_type: mine\n",
    }
    assert [severity for _, _, severity in lint(files, "ZC843")] == severities


@pytest.mark.parametrize(("given", "lines"), [("zero2", []), ("zero2.json", [1]), ("ds/zero2", [1])])
def test_a_plain_word_for_a_script_that_nobody_read(lint: Lint, given: str, lines: list[int]) -> None:
    """ms-swift takes `zero2` for a config that it brings along."""
    line = f"torchrun $(python -c 'import swift')/cli/sft.py --output_dir out --deepspeed {given}\n"
    assert [line for _, line, _ in lint({"run.sh": line}, "ZC703")] == lines


@pytest.mark.parametrize(("given", "lines"), [("zero2", [1]), ("zero2.json", [1])])
def test_a_plain_word_for_a_script_of_the_trainer(lint: Lint, given: str, lines: list[int]) -> None:
    line = f"torchrun t.py --output_dir out --deepspeed {given}\n"
    assert [line for _, line, _ in lint({"t.py": TRAINER, "run.sh": line}, "ZC703")] == lines


def test_a_script_of_lightning_gets_the_batch_size_from_its_data(lint: Lint) -> None:
    code = (
        "from lightning.pytorch.strategies import DeepSpeedStrategy\nDeepSpeedStrategy(config=args.deepspeed_config)\n"
    )
    files = {"ds.json": '{"zero_optimization": {"stage": 2}}', "train.py": code}
    files["run.sh"] = "deepspeed train.py --deepspeed --deepspeed_config=ds.json\n"
    assert lint(files, "ZC205") == []
    files["train.py"] = ENGINE
    assert lint(files, "ZC205") == [("ds.json", 1, "error")]


@pytest.mark.parametrize(
    ("value", "help_text"),
    [("false", "remove it, or write offload_optimizer: {device: none}"), ("true", "device: cpu")],
)
def test_an_offload_that_is_switched_off_stays_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: str, help_text: str
) -> None:
    (tmp_path / "ds.json").write_text(f'{{"zero_optimization": {{"stage": 2, "cpu_offload": {value}}}}}')
    monkeypatch.chdir(tmp_path)
    (found,) = Job([tmp_path], Settings(), Selection(select=("ZC111",))).lint().diagnostics
    assert help_text in found.help


@pytest.mark.parametrize(("function", "severities"), [("json_to_dict", []), ("str", ["error"])])
def test_a_config_that_a_function_of_the_project_reads(lint: Lint, function: str, severities: list[str]) -> None:
    """What it hands on may be filled in before `deepspeed.initialize` gets it."""
    files = {
        "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1}',
        "train.py": "import argparse\nimport deepspeed\nfrom utils import json_to_dict\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--deepspeed_config')\nargs = parser.parse_args()\n"
        f"config = {function}(args.deepspeed_config)\nengine, *_ = deepspeed.initialize(model=model, config=config)\n",
        "utils.py": "import json\ndef json_to_dict(path):\n    return json.load(open(path))\n",
        "run.sh": "torchrun train.py --deepspeed_config=ds.json\n",
    }
    assert [severity for _, _, severity in lint(files, "ZC415")] == severities


SHARDED = '{"train_batch_size": 8, "zero_optimization": {"stage": 3}}'
SAVES = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config=read())\nengine.step()\n{}\n"
LIGHTNING = (
    "import deepspeed\nfrom lightning.pytorch.strategies import DeepSpeedStrategy\nDeepSpeedStrategy(config=path())\n"
)


@pytest.mark.parametrize(
    ("script", "warned"),
    [
        (SAVES.format("print(1)"), True),
        (SAVES.format("engine.save_checkpoint('out')"), False),
        (SAVES.format("engine.save_checkpoint('out'); engine.save_16bit_model('out')"), True),
        (SAVES.format("engine.save_checkpoint('out'); engine.module.save_pretrained('out')"), True),
        (SAVES.format("engine.save_checkpoint('out')") + "args = TrainingArguments(deepspeed=path())\n", True),
        ("from deepspeed.utils import zero_to_fp32 as z\nz.get_fp32_state_dict_from_zero_checkpoint('out')\n", False),
        ("import zero_to_fp32 as z\nz.get_fp32_state_dict_from_zero_checkpoint('o')\nA = Accelerator()\n", True),
        (LIGHTNING, False),
        (TRAINER, True),
    ],
)
def test_how_scripts_that_may_read_a_config_save(script: str, warned: bool, lint: Lint) -> None:
    """engine.save_checkpoint writes the slices of ZeRO-3 on every rank, with any config."""
    files = {"z3.json": SHARDED, "train.py": script}
    assert lint(files, "ZC401") == ([("z3.json", 1, "warning")] if warned else [])


@pytest.mark.parametrize(("script", "warned"), [(LIGHTNING, False), (TRAINER, True)])
def test_which_checkpoints_lightning_loads_is_not_known(script: str, warned: bool, lint: Lint) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "elastic_checkpoint": true}}'
    assert lint({"z2.json": text, "train.py": script}, "ZC461") == ([("z2.json", 1, "warning")] if warned else [])


GRPO = "output_dir: out\nlearning_rate: 1.0e-5\nper_device_train_batch_size: 1\nbf16: true\nuse_peft: {}\n"


@pytest.mark.parametrize(
    ("adapter", "release", "found"),
    [
        ("true", "==5.14.1", []),  # played: save_model writes the whole adapter
        ("true", "==4.57.6", ["error"]),
        ("true", ">=4.50", ["warning"]),
        ("false", "==5.14.1", ["error"]),
    ],
)
def test_an_adapter_is_saved_whole_since_transformers_5(
    adapter: str, release: str, found: list[str], lint: Lint
) -> None:
    files = {
        "z3.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n"
        "  zero_stage: 3\n",
        "grpo.yaml": GRPO.format(adapter),
        "train.py": "from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser\n"
        "script, args, model = TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()\n"
        "GRPOTrainer(model=model.model_name_or_path, args=args).train()\n",
        "run.sh": "accelerate launch --config_file z3.yaml train.py --config grpo.yaml\n",
        "requirements.txt": f"transformers{release}\n",
    }
    assert [severity for _, _, severity in lint(files, "ZC401")] == found


PPO = (
    "output_dir: out\nlearning_rate: 1.0e-5\nper_device_train_batch_size: 1\nnum_train_epochs: 1\nreport_to: none\n"
    "save_strategy: 'no'\nlogging_strategy: steps\n{}: 3\n"
)


@pytest.mark.parametrize(("argument", "reported"), [("num_ppo_epochs", False), ("vllm_max_model_len", True)])
def test_an_argument_that_may_be_of_an_experimental_config(argument: str, reported: bool, lint: Lint) -> None:
    """PPOConfig lies in trl.experimental.ppo since 0.29, with all that it had; the other was of GRPOConfig alone."""
    files = {"c.yaml": PPO.format(argument) + "num_generations: 2\n", "requirements.txt": "trl==1.9.0\n"}
    assert bool(lint(files, "ZC840")) is reported


def test_a_part_of_a_hydra_config_is_no_accelerate_config(lint: Lint) -> None:
    text = "{}distributed_type: DEEPSPEED\ncompute_environment: LOCAL_MACHINE\nepochs: 2\n"
    assert lint({"a.yaml": text.format("")}, "ZC101") == [("a.yaml", 3, "error")]
    assert lint({"a.yaml": text.format("_target_: src.Trainer\n")}, "ZC101") == []


BF16 = {
    "z2.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\nmixed_precision: bf16\ndeepspeed_config:\n"
    "  zero_stage: 2\n",
    "train.py": TRAINER,
}


@pytest.mark.parametrize(("more", "found"), [("", True), (" ...", False), (" …", False), (" ...x", True)])
def test_options_that_a_page_leaves_out(more: str, found: bool, lint: Lint) -> None:
    files = {
        **BF16,
        "README.md": f"```bash\naccelerate launch --config_file z2.yaml train.py --output_dir out{more}\n```\n",
    }
    assert bool(lint(files, "ZC302")) is found


@pytest.mark.parametrize(("script", "reported"), [("", True), ("from llamafactory.train import main\nmain()\n", False)])
def test_a_framework_that_lies_in_the_repository_may_be_a_fork(script: str, reported: bool, lint: Lint) -> None:
    options = (
        "--stage sft --do_train --model_name_or_path m --output_dir o --dataset d --template t --finetuning_type lora"
    )
    files = {"run.sh": f"deepspeed src/train_bash.py {options} --ld_alphas 1.0\n"}
    assert bool(lint({**files, **({"src/train_bash.py": script} if script else {})}, "ZC121")) is reported
    files["run.sh"] = files["run.sh"].replace("--ld_alphas 1.0", "--logging_steps1")  # which no fork has
    assert lint(files, "ZC121") == [("run.sh", 1, "error")]


@pytest.mark.parametrize(
    ("words", "found"), [('"$@"', True), ("$EXTRA", False), ("${EXTRA[@]}", False), ("--run_name $NAME", True)]
)
def test_variables_that_may_hold_options(words: str, found: bool, lint: Lint) -> None:
    files = {
        **BF16,
        "run.sh": f"accelerate launch --config_file z2.yaml train.py --output_dir out {words}\n",
    }
    assert bool(lint(files, "ZC302")) is found
