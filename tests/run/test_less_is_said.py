"""Repositories that nobody had looked at, made small: what zerocfg does not know, or what another program reads, is
left alone, and what is sure beside it is still told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.linter.selection import Selection
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_versions
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

HF = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
PARSED = HF + "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\nTrainer(args=args)\n"
OWN_TRAIN = (
    HF + "class Mine(Trainer):\n    def train(self):\n        self.model.train()\n        %s\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\nMine(args=args).train()\n"
)
BF16 = (
    "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\n"
    "deepspeed_config:\n  zero_stage: 3\n  zero3_save_16bit_model: true\n"
)
LAUNCH = "accelerate launch --config_file acc.yaml train.py "
OPTIONS = "--output_dir out --per_device_train_batch_size 1 --save_strategy epoch "
RENAMED = (
    HF + "@dataclass\nclass TrainingArguments(TrainingArguments):\n    %s\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\nTrainer(args=args).train()\n"
)
CALLED = (
    HF + "@dataclass\nclass TrainingArguments(TrainingArguments):\n    %s\n"
    "Trainer(args=TrainingArguments(output_dir='out', per_device_train_batch_size=1, eval_steps=5)).train()\n"
)
EVALUATES = f"torchrun --nproc_per_node 8 train.py {OPTIONS} --eval_steps 5\n"
DICT = """import deepspeed


def config():
    zero = {"stage": 3}
    if ASKED:
        zero["offload_optimizer"] = {"device": "cpu"}
    return {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}


deepspeed.initialize(model=None, config=config())
"""
AUTO = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "gradient_clipping": "auto",
    "zero_optimization": {"stage": 2},
}
BOTH = {"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}}
OLD_NAME = json.dumps({**AUTO, "bfloat16": {"enabled": "auto"}})
FSDP = f"torchrun --nproc_per_node 8 train.py {OPTIONS} --fsdp full_shard --gradient_checkpointing True\n"
STEPS = """import argparse

from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2)
args = parser.parse_args()
accelerator = Accelerator(gradient_accumulation_steps=args.steps)
"""
COUNTED = BF16 + "  gradient_accumulation_steps: 4\n"
OWN_LOOP = (
    "data_dir: data\ntrain_micro_batch_size_per_gpu: 4\nlearning_rate: 3.0e-4\nbetas: [0.9, 0.95]\nweight_decay: 0.1\n"
    "max_steps: 200\nwarmup_steps: 50\nbf16: true\namp: false\ngradient_checkpointing: false\nsave_interval: 50\n"
    "eval_interval: 50\nprefetch: 2\nworkers: 8\nvocabulary: 1000\nsave_dir: out\n"
)
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\ntrain_micro_batch_size_per_gpu: 4\n"
PROGRAM = """{
  # a program that makes DeepSpeed's config of its own keys
  "pipe-parallel-size": 1, "num-layers": 24, "hidden-size": 2048, "num-attention-heads": 16, "seq-length": 2048,
  "pos-emb": "rotary", "train-iters": 1000, "eval-interval": 100, "keep-last-n-checkpoints": 4, "weight-decay": 0.1,
  "zero_optimization": {"stage": 1}, "train_micro_batch_size_per_gpu": 4, "fp16": {"fp16": true, "enabled": true}
}
"""
MISTYPED = """{
  "train_micro_batch_size_per_gpu": 4, "zero_optimization": {"stage": 1}, "fp16": {"enabled": true},
  "gradient_cliping": 1.0
}
"""
SPAWN = "import subprocess\nimport sys\n\nsubprocess.run(['mpirun', sys.executable, *sys.argv[3:]])\n"
SPAWNED = f"python spawn.py --world_size 8 train.py --deepspeed ds.json {OPTIONS}--bf16 False\n"
HALF = json.dumps({**AUTO, "bf16": {"enabled": True}})
GAUDI = PARSED.replace("from transformers import", "from optimum.habana import").replace("Trainer", "GaudiTrainer")
LORA = (
    "from trl import ModelConfig, SFTConfig, SFTTrainer, TrlParser\n"
    "args, model = TrlParser((SFTConfig, ModelConfig)).parse_args_and_config()\nmodel.lora_r = 8\n"
    "SFTTrainer(args=args)\n"
)
TRL_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\npacking: true\n"
BUCKET = {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 536870912}
BUCKETS = json.dumps({**AUTO, "bf16": {"enabled": "auto"}, "zero_optimization": BUCKET})
TOLD = "from accelerate import Accelerator\n\nAccelerator(mixed_precision=read())\n"
BESIDE = "from accelerate import Accelerator\n\nSIZE = 1\nif __name__ == '__main__':\n    Accelerator()\n"
WITH_PLUGIN = "accelerate launch --num_processes 8 --use_deepspeed --deepspeed_config_file ds.json train.py\n"

TRAINS = PARSED.rstrip() + ".train()\n"
ZERO3 = json.dumps({**AUTO, "zero_optimization": {"stage": 3}})
RUN = f"deepspeed --num_gpus 2 train.py --deepspeed ds.json {OPTIONS}"
KEEPS_NOTHING = RUN.replace("--save_strategy epoch", "--save_strategy no") + "\n"
OWN_SAVES = "from accelerate import Accelerator\n\na = Accelerator()\nmodel = a.prepare(1)\na.backward(model)\n%s\n"
SHARDED = {"acc.yaml": BF16.replace("  zero3_save_16bit_model: true\n", ""), "run.sh": LAUNCH.strip() + "\n"}
NO_ZERO = json.dumps({key: value for key, value in AUTO.items() if key != "zero_optimization"})
IN_FP16 = HF + "Trainer(args=TrainingArguments('out', fp16=True, deepspeed='ds.json')).train()\n"
IN_BF16 = json.dumps({**AUTO, "bf16": {"enabled": True}})
OWN_STEPS = "import argparse\n" + HF + "p = argparse.ArgumentParser()\n%sp.parse_args()\nTrainer().train()\n"
EVAL_STEPS = "p.add_argument('--eval_steps', type=int)\n"
OWN_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\neval_steps: 5\nlogging_steps: 5\n"

CASES: dict[str, tuple[dict[str, str], list[tuple[str, str, str]]]] = {
    "a Trainer that saves nothing": ({"ds.json": ZERO3, "train.py": TRAINS, "run.sh": KEEPS_NOTHING}, []),
    "a Trainer that saves in between": (
        {"ds.json": ZERO3, "train.py": TRAINS, "run.sh": RUN + "\n"},
        [("ZC401", "error", "ds.json")],
    ),
    "a script that saves at the end": (
        {"ds.json": ZERO3, "train.py": TRAINS + "trainer.save_model()\n", "run.sh": KEEPS_NOTHING},
        [("ZC401", "error", "ds.json")],
    ),
    "a loop that saves its state": ({**SHARDED, "train.py": OWN_SAVES % "a.save_state('out')"}, []),
    "a loop that saves its weights": (
        {**SHARDED, "train.py": OWN_SAVES % "a.save_model(model, 'out')"},
        [("ZC401", "warning", "acc.yaml")],
    ),
    "a loop that saves both": (
        {**SHARDED, "train.py": OWN_SAVES % "a.save_state('out')\nmodel.save_pretrained('out')"},
        [("ZC468", "error", "train.py")],
    ),
    # transformers 4.26.1 makes no DeepSpeedPlugin
    "a Trainer that asks accelerate nothing": (
        {"ds.json": NO_ZERO, "train.py": TRAINS, "run.sh": RUN + "\n", "requirements.txt": "transformers==4.26.1\n"},
        [],
    ),
    "a Trainer of which some releases ask accelerate": (
        {"ds.json": NO_ZERO, "train.py": TRAINS, "run.sh": RUN + "\n", "requirements.txt": "transformers>=4.26.1\n"},
        [("ZC411", "error", "ds.json")],
    ),
    "a Trainer that hands its config to accelerate": (
        {"ds.json": NO_ZERO, "train.py": TRAINS, "run.sh": RUN + "\n", "requirements.txt": "transformers==4.30.0\n"},
        [("ZC411", "error", "ds.json")],
    ),
    "two precisions, where accelerate compares first": (
        {"ds.json": IN_BF16, "train.py": IN_FP16, "run.sh": "torchrun --nproc_per_node 2 train.py\n"},
        [("ZC303", "error", "ds.json")],
    ),
    "two precisions, of a Trainer that asks accelerate nothing": (
        {"ds.json": IN_BF16, "train.py": IN_FP16, "run.sh": "torchrun --nproc_per_node 2 train.py\n"}
        | {"requirements.txt": "transformers==4.26.1\n"},
        [],
    ),
    "a recipe of a parser of one's own": (
        {"own.yaml": OWN_RECIPE, "train.py": OWN_STEPS % EVAL_STEPS, "run.sh": "torchrun train.py\n"},
        [],
    ),
    "a recipe that no parser is known for": (
        {"own.yaml": OWN_RECIPE, "train.py": OWN_STEPS % "", "run.sh": "torchrun train.py\n"},
        [("ZC809", "warning", "own.yaml")],
    ),
    # another program's hyperparameters share one name with DeepSpeed's
    "hyperparameters of another program": (
        {"small.json": '{"train_batch_size": 256, "vocab_size": 32000, "model_size": "base", "learning_rate": 1e-4}'},
        [],
    ),
    "a short config of DeepSpeed": (
        {"small.json": '{"train_batch_size": 256, "optimiser": {"type": "AdamW", "params": {"lr": 1e-4}}}'},
        [("ZC102", "error", "small.json")],
    ),
    # the line is started where its script is
    "two configs of one name": (
        {
            "ds.json": json.dumps(AUTO),
            "demo/ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}',
            "demo/train.py": "import deepspeed\n\ndeepspeed.initialize(model=None)\n",
            "demo/run.sh": "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n",
        },
        [],
    ),
    "a config of that name further up": (
        {
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}',
            "demo/train.py": PARSED,
            "demo/run.sh": f"deepspeed --num_gpus 2 train.py --deepspeed ds.json {OPTIONS}\n",
        },
        [("ZC703", "warning", "demo/run.sh"), ("ZC401", "warning", "ds.json")],
    ),
    # the script writes its recipe before it starts
    "a recipe that the script writes": (
        {"acc.yaml": BF16, "train.py": PARSED, "run.sh": f"cat <<EOT > r.yaml\nrun_name: $1\nEOT\n{LAUNCH}r.yaml\n"},
        [],
    ),
    # a section that the code makes is neither a text nor absent
    "a section that the code makes": ({"train.py": DICT, "run.sh": "deepspeed --num_gpus 2 train.py\n"}, []),
    "a section that something fills in": (
        {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": "${ZERO}"}\n'},
        [("ZC013", "warning", "ds.json")],
    ),
    # a recipe in a variable may hold every argument that the line does not
    "a recipe in a variable": ({"acc.yaml": BF16, "train.py": PARSED, "run.sh": f'{LAUNCH}"$1" {OPTIONS}\n'}, []),
    "a recipe in a variable, as an option": (
        {"acc.yaml": BF16, "train.py": PARSED, "run.sh": f'{LAUNCH}--config "$1" {OPTIONS}\n'},
        [],
    ),
    "a recipe in a variable, and what the line itself says": (
        {"acc.yaml": COUNTED, "train.py": PARSED, "run.sh": f'{LAUNCH}"$1" --gradient_accumulation_steps 8\n'},
        [("ZC201", "error", "acc.yaml")],
    ),
    "no recipe": (
        {"acc.yaml": BF16, "train.py": PARSED, "run.sh": f"{LAUNCH}{OPTIONS}\n"},
        [("ZC302", "error", "acc.yaml")],
    ),
    # only the library's loop compares arguments and config
    "a Trainer with a loop of its own": (
        {"acc.yaml": BF16, "train.py": OWN_TRAIN % "for batch in self.batches: pass", "run.sh": LAUNCH + OPTIONS},
        [],
    ),
    "a Trainer that prepares and goes on": (
        {"acc.yaml": BF16, "train.py": OWN_TRAIN % "return super().train()", "run.sh": LAUNCH + OPTIONS},
        [("ZC302", "error", "acc.yaml")],
    ),
    "a Trainer that starts the library's inner loop": (
        {"acc.yaml": BF16, "train.py": OWN_TRAIN % "return self._inner_training_loop()", "run.sh": LAUNCH + OPTIONS},
        [("ZC302", "error", "acc.yaml")],
    ),
    "a Trainer that starts somebody else's inner loop": (
        {"acc.yaml": BF16, "train.py": OWN_TRAIN % "return it._inner_training_loop()", "run.sh": LAUNCH + OPTIONS},
        [],
    ),
    # a default that nobody gives asks for nothing
    "steps that the line leaves at their default": ({"acc.yaml": COUNTED, "train.py": STEPS, "run.sh": LAUNCH}, []),
    "steps that the line gives": (
        {"acc.yaml": COUNTED, "train.py": STEPS, "run.sh": f"{LAUNCH}--steps 2\n"},
        [("ZC249", "error", "run.sh")],
    ),
    # who reads the config fills each "auto", and an old release takes any other text for true
    "two precisions that somebody fills in": (
        {"ds.json": json.dumps({**AUTO, **BOTH}), "requirements.txt": "deepspeed==0.12.6\n"},
        [],
    ),
    "two precisions that are texts": (
        {"ds.json": json.dumps({**AUTO, **BOTH}).replace('{"enabled": "auto"', '{"enabled": "yes"')}
        | {"requirements.txt": "deepspeed==0.12.6\n"},
        [("ZC301", "error", "ds.json")],
    ),
    # releases that stop at a key and others that drop it: one finding
    "a key that some releases refuse": (
        {"ds.json": HALF.replace('"enabled": true', '"enabled": true, "loss_scale": 0')}
        | {"requirements.txt": "deepspeed>=0.14\n"},
        [("ZC101", "warning", "ds.json")],
    ),
    "a key that the only release drops": (
        {"ds.json": HALF.replace('"enabled": true', '"enabled": true, "loss_scale": 0')}
        | {"requirements.txt": "deepspeed==0.14.5\n"},
        [("ZC102", "warning", "ds.json")],
    ),
    # a Trainer of before accelerate handed the text to DeepSpeed, which took it for true
    "an old name with an old Trainer": (
        {
            "ds.json": OLD_NAME,
            "train.py": PARSED,
            "run.sh": f"deepspeed --num_gpus 8 train.py --deepspeed ds.json {OPTIONS}\n",
            "requirements.txt": "transformers==4.28.1\ndeepspeed==0.9.2\n",
        },
        [],
    ),
    "an old name with the Trainer of today": (
        {
            "ds.json": OLD_NAME,
            "train.py": PARSED,
            "run.sh": f"deepspeed --num_gpus 8 train.py --deepspeed ds.json {OPTIONS}\n",
        },
        [("ZC406", "error", "ds.json")],
    ),
    "checkpointing under FSDP before fsdp_config had it": (
        {"train.py": PARSED, "run.sh": FSDP, "requirements.txt": "transformers==4.28.1\n"},
        [],
    ),
    "checkpointing under FSDP": (
        {"train.py": PARSED, "run.sh": FSDP, "requirements.txt": "transformers>=4.28.1\n"},
        [("ZC631", "warning", "run.sh")],
    ),
    # arguments that options alone show may belong to a loop that evaluates by itself
    "a script that is not here": ({"run.sh": f"torchrun --nproc_per_node 8 gone.py {OPTIONS} --eval_steps 5\n"}, []),
    "a Trainer that evaluates nothing": (
        {"train.py": PARSED, "run.sh": f"torchrun --nproc_per_node 8 train.py {OPTIONS} --eval_steps 5\n"},
        [("ZC809", "warning", "run.sh")],
    ),
    # a class that takes over the name of the library's class that it derives from
    "a default of a class named like its base": (
        {"train.py": RENAMED % 'eval_strategy: str = field(default="steps")', "run.sh": EVALUATES},
        [],
    ),
    "another default of a class named like its base": (
        {"train.py": RENAMED % "mine: int = field(default=1)", "run.sh": EVALUATES},
        [("ZC809", "warning", "run.sh")],
    ),
    "a default of a class that is called": (
        {"train.py": CALLED % 'eval_strategy: str = "steps"', "run.sh": "torchrun --nproc_per_node 8 train.py\n"},
        [],
    ),
    "another default of a class that is called": (
        {"train.py": CALLED % "mine: int = 1", "run.sh": "torchrun --nproc_per_node 8 train.py\n"},
        [("ZC809", "warning", "train.py")],
    ),
    # GPT-NeoX and its like keep DeepSpeed's sections among keys of their own
    "sections of DeepSpeed in a program's config": ({"small.yml": PROGRAM}, []),
    "a config of DeepSpeed in a file of that name": ({"small.yml": MISTYPED}, [("ZC102", "error", "small.yml")]),
    # a program that is given another script starts it in its own way
    "a launcher of one's own": ({"ds.json": json.dumps(AUTO), "spawn.py": SPAWN, "run.sh": SPAWNED}, []),
    "no launcher": (
        {"ds.json": json.dumps(AUTO), "run.sh": SPAWNED.replace("spawn.py --world_size 8 ", "")},
        [("ZC741", "error", "run.sh")],
    ),
    "a launcher of one's own, and the script": (
        {"ds.json": HALF, "spawn.py": SPAWN, "train.py": PARSED, "run.sh": SPAWNED},
        [("ZC302", "error", "ds.json")],
    ),
    "a Trainer of another library": ({"ds.json": HALF, "spawn.py": SPAWN, "train.py": GAUDI, "run.sh": SPAWNED}, []),
    # what only the code sets is no argument that somebody wrote
    "a number of LoRA that the code sets": (
        {"r.yaml": TRL_RECIPE, "train.py": LORA, "run.sh": "torchrun --nproc_per_node 2 train.py --config r.yaml\n"},
        [],
    ),
    "a number of LoRA in the recipe": (
        {
            "r.yaml": f"{TRL_RECIPE}lora_r: 8\n",
            "train.py": LORA.replace("model.lora_r = 8\n", ""),
            "run.sh": "torchrun --nproc_per_node 2 train.py --config r.yaml\n",
        },
        [("ZC851", "error", "r.yaml")],
    ),
    # the lines under `if __name__ == "__main__":` of a module that is imported do not run
    "an Accelerator that is asked for some precision": (
        {"ds.json": BUCKETS, "train.py": f"import beside\n{TOLD}print(beside.SIZE)\n", "beside.py": BESIDE}
        | {"run.sh": WITH_PLUGIN},
        [],
    ),
    "one of two Accelerators": (
        {"ds.json": BUCKETS, "train.py": f"{TOLD}Accelerator()\n", "run.sh": WITH_PLUGIN},
        [],
    ),
    "an Accelerator that is asked for none": (
        {"ds.json": BUCKETS, "train.py": "from accelerate import Accelerator\n\nAccelerator()\n"}
        | {"run.sh": WITH_PLUGIN},
        [("ZC902", "note", "ds.json")],
    ),
    # a config of a loop of its own shares a few names with the Trainer's arguments
    "a config of a loop of its own": ({"debug.yaml": OWN_LOOP}, []),
    "a recipe that Hydra composes": ({"debug.yaml": f"# @package _global_\n{RECIPE}"}, []),
    "a recipe that nobody names": ({"debug.yaml": RECIPE}, [("ZC841", "warning", "debug.yaml")]),
}


@pytest.mark.parametrize("case", CASES)
def test_said(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, expected = CASES[case]
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    runs, _ = find_runs([Path()], Files(), root=Path())
    found = lint_runs(with_versions(runs, {})).diagnostics
    said = [
        (one.code, one.severity.value, one.span.file.name)
        for one in found
        if one.severity.value != "note" or one.code == "ZC902"
    ]
    assert said == expected


NO_SIZE = '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}\n'
ENGINE = (
    "import deepspeed\n\n\ndef engine(model, read, cfg):\n    base = {'steps_per_print': 1}\n    %s\n"
    "    base.update(read)\n    return deepspeed.initialize(model=model, config=base)\n"
)
MICRO = '"train_micro_batch_size_per_gpu"'


@pytest.mark.parametrize("asked", [".", "ds.json"])
@pytest.mark.parametrize(
    ("code", "line", "expected"),
    [
        (f"base = {{{MICRO}: cfg.size}}", "", []),
        ("base['train_batch_size']=cfg.size", "", []),
        (f"base[{MICRO}] = 'automatic'", "", []),
        (f"base = {{{MICRO}: 'auto'}}", "", ["warning"]),
        (f"assert base[{MICRO}] == cfg.size", "", ["warning"]),
        (f"cfg.size = base[{MICRO}]", "", ["warning"]),
        ("base['gradient_clipping'] = cfg.size", "", ["warning"]),
        ("base['per_device_train_batch_size'] = cfg.size", "", ["warning"]),
        (f"base[{MICRO}] = cfg.size", "torchrun train.py --output_dir out --bf16 --deepspeed ds.json\n", ["error"]),
    ],
)
def test_a_batch_size_that_code_of_the_project_may_add(
    code: str, line: str, expected: list[str], asked: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody shows who reads the config; where a line does, it is the Trainer, which adds none."""
    files = {"ds.json": NO_SIZE, "own/engine.py": ENGINE % code, "train.py": PARSED, "train.sh": line}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = Job([Path(asked)], Settings(), Selection(select=("ZC205",)), root=tmp_path).lint().diagnostics
    assert [one.severity.value for one in found] == expected


OF_ANY_PROGRAM = """\
gradient_accumulation_steps: 4
learning_rate: 2.0e-4
warmup_ratio: 0.05
max_grad_norm: 1.0
save_steps: 200
logging_steps: 20
bf16: true
"""
"""Arguments of the Trainer by names that programs with a loop of their own use, too."""
OF_TRAINER = f"{OF_ANY_PROGRAM}per_device_train_batch_size: 1\n"


@pytest.mark.parametrize(
    ("recipe", "codes"),
    [
        (OF_ANY_PROGRAM, []),
        (f"{OF_ANY_PROGRAM}lr_scheduler_type: cosine\n", ["ZC801"]),
        (OF_TRAINER, ["ZC801"]),
        (f"{OF_TRAINER}dataset: x\nmodel: y\n", ["ZC801"]),
        (f"{OF_TRAINER}num_epochs: 3\n", []),
        (f"{OF_TRAINER}lr_scheduler: cosine\n", []),
        (f"{OF_TRAINER}batch_size: 3\n", []),
        (f"{OF_TRAINER}run_name: '${{now:%H-%M}}'\n", []),
    ],
)
def test_a_recipe_that_no_line_names(
    recipe: str, codes: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sft.yaml").write_text(recipe, encoding="utf-8")
    (tmp_path / "requirements.txt").write_text("transformers==5.23.0\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    found = lint_runs(with_versions(find_runs([Path()], Files())[0], {})).diagnostics
    assert [(one.code, one.span.path) for one in found if one.severity.value == "error"] == [
        (code, "warmup_ratio") for code in codes
    ]
