"""What the code and the other runs of a project tell about who reads a file, and what of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.run.reader import reader_evidence
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
        (SAVES.format("print(1)"), False),  # a loop that saves nothing loses nothing
        ("import deepspeed\nwith deepspeed.zero.Init():\n    print(1)\n", True),
        (SAVES.format("engine.save_checkpoint('out')"), False),
        (SAVES.format("engine.save_checkpoint('out'); engine.save_16bit_model('out')"), True),
        (SAVES.format("engine.save_checkpoint('out'); engine.module.save_pretrained('out')"), True),
        (SAVES.format("engine.save_checkpoint('out'); tokenizer.save_pretrained('out')"), False),
        (SAVES.format("engine.save_checkpoint('out')") + TRAINER, True),
        (SAVES.format("engine.save_checkpoint('out')") + "args = TrainingArguments(out='out')\n", False),  # whose?
        ("from deepspeed.utils import zero_to_fp32 as z\nz.get_fp32_state_dict_from_zero_checkpoint('out')\n", False),
        (
            "import deepspeed\nmodel = load_state_dict_from_zero_checkpoint(base, 'o')\nmodel.save_pretrained('out')\n",
            False,
        ),
        ("A = Accelerator()\nA.prepare(model).save_checkpoint('out')\n", False),
        ("A = Accelerator()\nmodel.save_checkpoint('out')\nA.save_model(model, 'out')\n", True),
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


PLAIN = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(output_dir=path())\n"
WRAPPED = f"from peft import get_peft_model\n{PLAIN}model = get_peft_model(model, config)\n"


@pytest.mark.parametrize(
    ("script", "release", "found"),
    [(PLAIN, "==5.14.1", ["warning"]), (WRAPPED, "==5.14.1", []), (WRAPPED, "==4.57.6", ["warning"])],
)
def test_scripts_that_train_adapters(script: str, release: str, found: list[str], lint: Lint) -> None:
    files = {"z3.json": SHARDED, "train.py": script, "requirements.txt": f"transformers{release}\n"}
    assert [severity for _, _, severity in lint(files, "ZC401")] == found


BUILT = (
    '{"train_batch_size": 8, "optimizer": {"type": "FusedAdam"},'
    ' "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}}'
)
BRINGS = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config=read(), {})\nengine.step()\n"


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("training_data=rows(1)", ["ZC105", "ZC212"]),
        ("optimizer=None, lr_scheduler=None", ["ZC105", "ZC212"]),
        ("optimizer=Adam(model.parameters())", ["ZC105"]),  # played on 0.19.8: the engine has the one that is given
        ("optimizer=AdamW(list(model.parameters())), lr_scheduler=plan(optimizer)", []),
    ],
)
def test_what_scripts_hand_to_the_engine_is_built_of_no_section(given: str, found: list[str], lint: Lint) -> None:
    files = {"ds.json": BUILT, "train.py": BRINGS.format(given)}
    assert [code for code in ("ZC105", "ZC212") if lint(files, code)] == found


def test_an_engine_that_is_handed_nothing_builds_of_the_section(lint: Lint) -> None:
    brings = BRINGS.format("optimizer=optimizer")
    assert lint({"ds.json": BUILT, "a.py": brings}, "ZC212") == []
    assert lint({"b.py": BRINGS.format("args=args")}, "ZC212") == [("ds.json", 1, "error")]


@pytest.mark.parametrize(("given", "found"), [("optimizer=optimizer", []), ("args=args", ["error"])])
def test_the_script_of_a_line_brings_its_optimizer(given: str, found: list[str], lint: Lint) -> None:
    script = BRINGS.format(given).replace("config=read()", "config='ds.json'")
    files = {"ds.json": BUILT, "train.py": script, "run.sh": "deepspeed train.py\n"}
    assert [severity for _, _, severity in lint(files, "ZC212")] == found


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


def test_a_file_of_a_group_that_hydra_composes(lint: Lint) -> None:
    """Whatever one of the files says, another may change."""
    text = '"train_batch_size": 8\n"optimizer": {"type": "FusedAdam"}\n"zero_optimization": {"stage": 1}\n'
    files = {"conf/deepspeed/a.yaml": text, "conf/train.yaml": "seed: 1\n"}
    assert lint(files, "ZC212") == [("conf/deepspeed/a.yaml", 2, "error")]
    files["conf/train.yaml"] = "defaults:\n  - deepspeed@engine.config: a\nseed: 1\n"
    assert lint(files, "ZC212") == []


@pytest.mark.parametrize(("more", "found"), [(5, 5), (7, 7), (8, 0)])
def test_keys_of_a_program_that_makes_an_accelerator(more: int, found: int, lint: Lint) -> None:
    own = "".join(f"own_{number}: 1\n" for number in range(more))
    text = f"distributed_type: MULTI_GPU\nmixed_precision: bf16\n{own}"
    assert len(lint({"accelerator.yaml": text}, "ZC101")) == found
    written = {"accelerator.yaml": f"compute_environment: LOCAL_MACHINE\n{text}"}
    assert len(lint(written, "ZC101")) == more, "`accelerate config` wrote it"


@pytest.mark.parametrize(("kind", "found"), [("MULTI_GPU", []), ("DEEPSPEED", [5]), ("FSDP", [3])])
def test_a_config_with_the_sections_of_several_engines(kind: str, found: list[int], lint: Lint) -> None:
    text = (
        f"distributed_type: {kind}\nnum_processes: 2\n"
        "deepspeed_config:\n  zero_stage: 2\nfsdp_config:\n  fsdp_version: 2\n"
    )
    assert [line for _, line, _ in lint({"a.yaml": text}, "ZC604")] == found
    started = {"run.sh": "accelerate launch --config_file a.yaml train.py\n"}
    assert [line for _, line, _ in lint(started, "ZC604")] == (found or [3, 5])


def test_a_section_of_the_only_other_engine(lint: Lint) -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
    assert lint({"a.yaml": text}, "ZC604") == [("a.yaml", 3, "error")]


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


@pytest.mark.parametrize(("before", "reported"), [("", True), ("cd $CHECKOUT/src\n", False), ("cd src\n", True)])
def test_a_framework_in_a_folder_that_nobody_knows_may_be_a_fork(before: str, reported: bool, lint: Lint) -> None:
    options = (
        "--stage sft --do_train --model_name_or_path m --output_dir o --dataset d --template t --finetuning_type lora"
    )
    assert bool(lint({"run.sh": f"{before}deepspeed train_bash.py {options} --ld_alphas 1.0\n"}, "ZC121")) is reported


@pytest.mark.parametrize(("name", "found"), [("README.md", True), ("ISSUES.md", False), ("docs/issues.md", False)])
def test_a_page_on_how_to_report_a_mistake(name: str, found: bool, lint: Lint) -> None:
    page = "```bash\npython -m torch.distributed.launch --nproc_per_node 2 train.py --output_dir out\n```\n"
    assert bool(lint({name: page, "train.py": TRAINER}, "ZC740")) is found


DEFAULTS = "output_dir: out\nper_device_train_batch_size: 1\nsave_steps: 5\nlearning_rate: 1.0e-5\n"


@pytest.mark.parametrize(("own", "found"), [(5, ["error"]), (6, [])])
def test_a_recipe_of_mostly_other_keys_leaves_the_defaults_open(own: int, found: list[str], lint: Lint) -> None:
    """A program that makes TrainingArguments of its own keys may set any of them."""
    keys = "".join(f"own_{number}: 1\n" for number in range(own))
    text = '{"bf16": {"enabled": true}, "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto"}'
    files = {"z.json": text, "c.yaml": f"{DEFAULTS}deepspeed: z.json\n{keys}"}
    assert [severity for _, _, severity in lint(files, "ZC302")] == found


def test_a_json_whose_values_are_left_out(lint: Lint) -> None:
    text = '{"output_dir": "o", "per_device_train_batch_size": 1, "save_steps": 5, "lr_scheduler_type": %s}'
    assert lint({"c.json": text % '"..."'}, "ZC811") == [("c.json", 1, "error")]
    assert lint({"c.json": (text % "...,").replace(", ", ",\n")}, "ZC811") == []


@pytest.mark.parametrize(("method", "found"), [("KTO", []), ("DPO", ["error"])])
def test_words_of_the_config_that_the_script_makes(method: str, found: list[str], lint: Lint) -> None:
    """KTOConfig has `kto` among its types of loss, DPOConfig has not; their other arguments are alike."""
    script = (
        f"from trl import {method}Config, {method}Trainer\n"
        f"args = {method}Config(output_dir='o', beta=0.1, loss_type='kto')\n"
        f"{method}Trainer(model=m, args=args).train()\n"
    )
    assert [severity for _, _, severity in lint({"train.py": script}, "ZC843")] == found


@pytest.mark.parametrize(("release", "found"), [("==1.9.1", False), ("==1.10.0", True), (">=1.7", True), ("", True)])
def test_torchrun_came_with_torch_1_10(release: str, found: bool, lint: Lint) -> None:
    line = "python -m torch.distributed.launch --nproc_per_node 2 train.py --output_dir out\n"
    files = {"run.sh": line, "train.py": TRAINER, "requirements.txt": f"torch{release}\n"}
    assert bool(lint(files, "ZC740")) is found


@pytest.mark.parametrize(
    ("release", "name"),
    [("==4.40.2", "evaluation_strategy"), (">=4.40", "eval_strategy"), ("==4.41.0", "eval_strategy")],
)
def test_how_the_evaluation_is_called_in_the_admitted_releases(
    release: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.yaml").write_text(f"{DEFAULTS}eval_steps: 5\nreport_to: none\n")
    (tmp_path / "requirements.txt").write_text(f"transformers{release}\n")
    monkeypatch.chdir(tmp_path)
    (found,) = Job([tmp_path], Settings(), Selection(select=("ZC809",))).lint().diagnostics
    assert found.help == f"remove eval_steps, or write `{name}: steps` and give the Trainer data to evaluate on"


@pytest.mark.parametrize("made", ["SFTConfig(**config['train'])", "yaml.safe_load(f)\nSFTConfig(output_dir='o')"])
def test_code_that_makes_arguments_of_a_recipe_may_add_to_it(made: str, lint: Lint) -> None:
    recipe = f"{DEFAULTS}eval_steps: 5\nreport_to: none\n"
    assert lint({"c.yaml": recipe}, "ZC809") == [("c.yaml", 5, "warning")]
    assert lint({"train.py": "from trl import SFTConfig\nSFTConfig(output_dir='o')\n"}, "ZC809") != []
    assert lint({"train.py": f"import yaml\nfrom trl import SFTConfig\n{made}\n"}, "ZC809") == []


@pytest.mark.parametrize(
    ("name", "found"),
    [("tra_environment.yaml", False), ("env.yml", False), ("conda-env.cuda.yml", False), ("envelope.yaml", True)],
)
def test_files_from_which_conda_makes_an_environment(name: str, found: bool, lint: Lint) -> None:
    text = "name: a\ndependencies:\n  - pip\n  - pip:\n    - transformers==4.45.2\n"
    script = "from transformers import Trainer, TrainingArguments\n"
    script += "args = TrainingArguments(output_dir='o', evaluation_strategy='no')\nTrainer(args=args).train()\n"
    assert bool(lint({name: text, "train.py": script}, "ZC801")) is found


@pytest.mark.parametrize(
    ("devices", "more", "found"),
    [("0,1,2", "use_vllm: true\n", []), ("0,1,2", "", ["warning"]), ("0,1,2,3", "use_vllm: true\n", ["warning"])],
)
def test_a_device_for_vllm(devices: str, more: str, found: list[str], lint: Lint) -> None:
    files = {
        "a.yaml": f"distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: {devices}\n",
        "c.yaml": f"{DEFAULTS}num_generations: 2\n{more}",
        "train.py": "from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser\n"
        "script, args, model = TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()\n"
        "GRPOTrainer(model=model.model_name_or_path, args=args).train()\n",
        "run.sh": "accelerate launch --config_file a.yaml train.py --config c.yaml\n",
    }
    assert [severity for _, _, severity in lint(files, "ZC731")] == found


@pytest.mark.parametrize(("devices", "severity"), [("0,1,2", "note"), ("0,1,2,3", "warning")])
def test_devices_of_a_config_that_nobody_starts(devices: str, severity: str, lint: Lint) -> None:
    text = f"distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: {devices}\n"
    assert lint({"a.yaml": text}, "ZC731") == [("a.yaml", 3, severity)]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("config['train_micro_batch_size_per_gpu'] = size", []),
        ('config.update({"train_batch_size": size})', []),
        ("config['train_micro_batch_size_per_gpu'] == size", ["error"]),
        ("print(config)", ["error"]),
    ],
)
def test_a_script_that_gives_its_config_the_batch_size(written: str, found: list[str], lint: Lint) -> None:
    script = (
        "import json\nimport deepspeed\nimport sys\n"
        f"path = 'z2.json'\nconfig = json.load(open(path))\n{written}\n"
        "engine, *_ = deepspeed.initialize(model=model, config='z2.json')\nengine.step()\n"
    )
    files = {"z2.json": '{"zero_optimization": {"stage": 2}}', "train.py": script, "run.sh": "deepspeed train.py\n"}
    assert [severity for _, _, severity in lint(files, "ZC205")] == found


@pytest.mark.parametrize(("release", "found"), [("==0.10.2", False), ("<0.11", False), (">=0.10.2", True), ("", True)])
def test_an_old_vllm_holds_trl_back(release: str, found: bool, lint: Lint) -> None:
    script = (
        "from trl import GRPOConfig, GRPOTrainer\n"
        "args = GRPOConfig(output_dir='o', max_prompt_length=5)\nGRPOTrainer(model='m', args=args).train()\n"
    )
    files = {"train.py": script, "requirements.txt": f"trl\nvllm{release}\n"}
    assert bool(lint(files, "ZC840")) is found


def test_recipes_of_code_that_makes_arguments_of_them_are_nobodys(lint: Lint) -> None:
    recipe = f"{DEFAULTS}do_train: true\nnum_train_epochs: 1\nwarmup_steps: 9\nmax_steps: 5\n"
    files = {"c.yaml": recipe, "train.py": "from trl import SFTConfig\nSFTConfig(output_dir='o')\n"}
    assert lint(files, "ZC820") == [("c.yaml", 7, "warning")]
    files["train.py"] = "from trl import SFTConfig\nSFTConfig(**config)\n"
    assert lint(files, "ZC820") == []


def test_a_recipe_with_keys_of_paddlenlp(lint: Lint) -> None:
    recipe = f"{DEFAULTS}do_train: true\nnum_train_epochs: 1\nwarmup_steps: 9\nmax_steps: 5\n"
    assert lint({"c.yaml": recipe}, "ZC820") == [("c.yaml", 7, "warning")]
    assert lint({"c.yaml": f"{recipe}tensor_parallel_degree: 2\n"}, "ZC820") == []


def test_the_line_shows_who_reads_the_recipe_that_it_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ds.json").write_text(SHARDED)
    (tmp_path / "sft.yaml").write_text(
        "stage: sft\ndo_train: true\nfinetuning_type: full\nmodel_name_or_path: m\ndeepspeed: ds.json\n"
    )
    (tmp_path / "run.sh").write_text("llamafactory-cli train sft.yaml\n")
    monkeypatch.chdir(tmp_path)
    job = Job([tmp_path], Settings(), Selection())
    job.lint()
    evidence = next(reader_evidence(run) for run in job.runs if run.launch is not None)
    assert evidence is not None and evidence.by == "option"
    assert evidence.place is not None and evidence.place.file is not None and evidence.place.file.name == "run.sh"


OLD_TRL = "from trl import {}\nfrom transformers import Trainer, TrainingArguments\n"


@pytest.mark.parametrize(
    ("release", "name", "argument", "found"),
    [
        ("==0.12.2", "RichProgressCallback", "warmup_ratio=0.1", []),  # played: no import with transformers 5
        ("==0.12.2", "RichProgressCallback", "evaluation_strategy='no'", ["note"]),  # gone since 4.51
        ("==0.12.2", "SFTConfig", "warmup_ratio=0.1", ["warning"]),  # played: imported with transformers 5
        ("==1.9.0", "RichProgressCallback", "warmup_ratio=0.1", ["warning"]),
        ("", "RichProgressCallback", "warmup_ratio=0.1", ["warning"]),
    ],
)
def test_what_a_pinned_trl_holds_back(release: str, name: str, argument: str, found: list[str], lint: Lint) -> None:
    script = (
        OLD_TRL.format(name) + f"args = TrainingArguments(output_dir='o', {argument})\nTrainer(args=args).train()\n"
    )
    files = {"train.py": script, "requirements.txt": f"trl{release}\ntransformers\n"}
    assert [severity for _, _, severity in lint(files, "ZC801")] == found
