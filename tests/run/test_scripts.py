"""Training scripts are read, never imported: whose loop runs, what the code states, and what lint makes of both."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, FromLine, Run, Script
from zerocfg.run.script.code import nodes
from zerocfg.run.script.reading import read_script


def read(tmp_path: Path, **modules: str) -> Script:
    """What `train.py` says; modules by name, `__` for a slash."""
    for name, text in modules.items():
        path = tmp_path / f"{name.replace('__', '/')}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return read_script(tmp_path / "train.py", Files(), tmp_path)


HF = "from transformers import Trainer, TrainingArguments\n"
READERS = {
    "a Trainer": (HF + "Trainer(model=None).train()\n", "transformers"),
    "its own name": ("import transformers as t\nt.Seq2SeqTrainer(model=None)\n", "transformers"),
    "a subclass": (HF + "class Mine(Trainer):\n    pass\nMine(model=None).train()\n", "transformers"),
    "a TRL trainer": ("from trl import SFTTrainer\nSFTTrainer(model=None)\n", "trl"),
    "within main": (
        HF + "def main():\n    Trainer(model=None)\nif __name__ == '__main__':\n    main()\n",
        "transformers",
    ),
    "a loop with accelerate": ("from accelerate import Accelerator\nAccelerator()\n", "accelerate"),
    "a loop with deepspeed": ("import deepspeed\ndeepspeed.initialize(model=None)\n", "deepspeed"),
    "a Trainer and an Accelerator": (
        HF + "from accelerate import Accelerator\nAccelerator()\nTrainer(model=None)\n",
        "transformers",
    ),
    "a command of typer": (
        HF + "import typer\napp = typer.Typer()\n@app.command()\ndef run():\n    Trainer(model=None)\napp()\n",
        "transformers",
    ),
    "a method that is only marked": (HF + "def mark(x):\n    return x\n@mark\ndef run():\n    Trainer()\n", None),
    "two trainers, and the arguments of one": (
        HF + "from transformers import HfArgumentParser\nfrom trl import DPOTrainer\n"
        "HfArgumentParser(TrainingArguments)\nDPOTrainer(model=None)\nTrainer(model=None)\n",
        "transformers",
    ),
    "two trainers, each with its arguments": (
        HF + "from trl import DPOConfig, DPOTrainer\nTrainingArguments()\nDPOTrainer(args=DPOConfig())\nTrainer()\n",
        None,
    ),
    "two trainers": (HF + "from trl import SFTTrainer\nSFTTrainer(model=None)\nTrainer(model=None)\n", None),
    "two loops": (
        "import deepspeed\nfrom accelerate import Accelerator\nAccelerator()\ndeepspeed.initialize()\n",
        None,
    ),
    "the loop of trlx": ("import trlx\ntrlx.train('gpt2', reward_fn=lambda samples, **kwargs: [])\n", "accelerate"),
    "the loop of trlx, which may be NeMo's": (
        "from trlx import train\nfrom trlx.data.configs import TRLConfig\n"
        "train(config=TRLConfig(trainer='NeMoPPOTrainer'))\n",
        None,
    ),
    "a function that is called as that of trlx": ("from mine import trlx\ntrlx.train()\n", None),
    "only imported": (HF, None),
    "a function that nobody calls": (HF + "def old():\n    Trainer(model=None)\n", None),
    "a class of another name's": ("from mine import Trainer\nTrainer()\n", None),
    "no Python": ("def (:\n", None),
    "nothing": ("", None),
}


@pytest.mark.parametrize("case", READERS)
def test_reader(case: str, tmp_path: Path) -> None:
    text, expected = READERS[case]
    script = read(tmp_path, train=text)
    assert script.reader == expected
    assert script.foreign == ""
    if expected is not None:
        assert script.shown_by is not None
        assert script.shown_by.span is not None


@pytest.mark.parametrize(
    "text",
    [
        "import pytorch_lightning as pl\npl.Trainer()\n",
        "from lightning.pytorch import Trainer\nTrainer()\n",
        "from lightning.fabric import Fabric\nFabric()\n",
    ],
)
def test_lightning_is_none_of_ours(text: str, tmp_path: Path) -> None:
    script = read(tmp_path, train=text)
    assert script.reader is None
    assert script.foreign == "lightning"


def test_swiss_army_transformer_makes_the_config_by_itself(tmp_path: Path) -> None:
    """Its training_main puts options into the DeepSpeed config before it hands it on."""
    text = "from sat import get_args\nfrom sat.training.deepspeed_training import training_main\n"
    script = read(tmp_path, train=text + "training_main(get_args(), model_cls=None)\n")
    assert script.reader is None
    assert script.foreign == "SwissArmyTransformer"


def test_a_class_of_the_repository_is_followed_over_modules(tmp_path: Path) -> None:
    script = read(
        tmp_path,
        train="from src.start import main\nmain()\n",
        src__start="from .loops import Mine\ndef main():\n    Mine(model=None).train()\n",
        src__loops=HF + "class Base(Trainer):\n    pass\nclass Mine(Base):\n    pass\n",
    )
    assert script.reader == "transformers"
    assert [file.name.rpartition("/")[2] for file in script.files] == ["train.py", "start.py", "loops.py"]
    assert script.shown_by is not None
    assert script.shown_by.file is script.files[1]


def test_a_base_class_of_an_imported_module_is_followed(tmp_path: Path) -> None:
    base = "from accelerate import Accelerator\nclass Base:\n    def train(self):\n        Accelerator()\n"
    main = "if __name__ == '__main__':\n    Mine().train()\n"
    script = read(tmp_path, base=base, train=f"import base\nclass Mine(base.Base):\n    pass\n{main}")
    assert script.reader == "accelerate"


def test_the_lines_that_only_a_started_module_runs(tmp_path: Path) -> None:
    other = "from accelerate import Accelerator\nSIZE = 1\nif __name__ == '__main__':\n    Accelerator()\n"
    assert read(tmp_path, train=other).reader == "accelerate"
    assert read(tmp_path, other=other, train="from other import SIZE\nprint(SIZE)\n").reader is None


def test_what_the_script_does_not_reach_says_nothing(tmp_path: Path) -> None:
    """A repository's module of many loops."""
    loops = (
        "import deepspeed\nfrom accelerate import Accelerator\n"
        "def with_accelerate():\n    Accelerator()\ndef with_deepspeed():\n    deepspeed.initialize()\n"
    )
    script = read(tmp_path, train="import loops\nloops.with_accelerate()\n", loops=loops)
    assert script.reader == "accelerate"


EVERY_STATEMENT = """
match x:
    case None | True | -1 | "a" | a.b: pass
    case {"k": [1, *rest], **more} | Point(1, y=2) | [_, (3 as z)] if z: pass
async def f(a: int = 1, /, *b, c=2, **d) -> None:
    global g
    async with a as b, c: await d
    async for i in [j async for j in k if j]: yield (yield from l)
try: import m, n.o as p
except E as e: raise F from e
else: del q[1:2:3], r.s
finally: t: int = u if v else lambda w: {**w, 1: {2, *w}}
for y in f"{z!r:>{w}}": y += not -1 < y and (q := 2) or 3 @ y
"""


def test_every_node_of_a_program_is_met() -> None:
    dull = (ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.alias)
    tree = ast.parse(EVERY_STATEMENT)
    met = {id(node) for node in nodes(tree) if not isinstance(node, dull)}
    assert met == {id(node) for node in ast.walk(tree) if not isinstance(node, dull)}


def test_modules_that_import_each_other_end(tmp_path: Path) -> None:
    script = read(
        tmp_path,
        train="from a import b, Thing\nb()\nThing()\n",
        a="from b import a, b, Thing\n",
        b="from a import a, b, Thing\n",
    )
    assert script.reader is None


def test_arguments_are_literals_names_and_options(tmp_path: Path) -> None:
    text = HF + (
        "import argparse\n"
        "STEPS = 2 * 4\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--lr', type=float, default=1e-4)\n"
        "parser.add_argument('--fp16', action='store_true')\n"
        "args = parser.parse_args()\n"
        "name = 'a'\n"
        "if args.fp16:\n"
        "    name = 'b'\n"
        "made = TrainingArguments(output_dir=name, gradient_accumulation_steps=STEPS, learning_rate=args.lr,\n"
        "    fp16=args.fp16, bf16=not True, max_grad_norm=-1.5, logging_steps=[1, STEPS], report_to=print())\n"
        "Trainer(args=made)\n"
    )
    call = next(call for call in read(tmp_path, train=text).calls if call.name.endswith("TrainingArguments"))
    assert {name: setting.value for name, setting in call.arguments.items()} == {
        "output_dir": UNKNOWN,
        "gradient_accumulation_steps": 8,
        "learning_rate": FromLine("lr", 1e-4),
        "fp16": FromLine("fp16", False),
        "bf16": False,
        "max_grad_norm": -1.5,
        "logging_steps": [1, 8],
        "report_to": UNKNOWN,
    }
    assert call.complete


@pytest.mark.parametrize("more", ["*many", "**more", "'out'"])
def test_arguments_that_may_hide_others(more: str, tmp_path: Path) -> None:
    text = HF + f"TrainingArguments({more}, bf16=True)\n" if more != "**more" else HF + f"TrainingArguments({more})\n"
    assert not read(tmp_path, train=text).calls[0].complete


def test_options_of_the_script(tmp_path: Path) -> None:
    text = HF + (
        "from dataclasses import dataclass, field\n"
        "from transformers import HfArgumentParser\n"
        "@dataclass\n"
        "class Mine(TrainingArguments):\n"
        "    cache_dir: str = field(default=None)\n"
        "    optim: str = field(default='sgd')\n"
        "class Data:\n"
        "    data_path: str = 'x'\n"
        "parser = HfArgumentParser((Data, Mine))\n"
        "data, made = parser.parse_args_into_dataclasses()\n"
        "made.max_steps = 7\n"
        "Trainer(args=made)\n"
    )
    script = read(tmp_path, train=text)
    assert script.parsed == {"transformers.TrainingArguments"}
    assert script.options is not None
    assert {"cache_dir", "data_path", "learning_rate", "optim"} <= script.options
    assert "learning_rat" not in script.options
    assert script.defaults["optim"].value == "sgd"
    assert "max_steps" in script.assigned


def test_a_parser_that_is_not_read_leaves_its_options_open(tmp_path: Path) -> None:
    assert read(tmp_path, train="import fire\nfire.Fire(print)\n").options is None


def test_places_count_code_points(tmp_path: Path) -> None:
    """Python's own columns are bytes of UTF-8."""
    text = "\ufeff# größe\r\n" + HF + "größe = 'ä'; Trainer(model='ö', args=None)\n"
    script = read(tmp_path, train=text)
    shown = script.shown_by
    assert shown is not None
    assert shown.span is not None
    source = script.file.source
    assert source.text[shown.span.start : shown.span.end] == "Trainer(model='ö', args=None)"
    assert isinstance(ast.parse(text.removeprefix("\ufeff")), ast.Module)


# -- lint -----------------------------------------------------------------------------------------------------------

ZERO = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "gradient_clipping": 1.0}
SIZES = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4}


def found(folder: Path, monkeypatch: pytest.MonkeyPatch, **files: str) -> tuple[list[Run], list[Diagnostic]]:
    """Runs and findings of a repository; file names with `_DOT_`."""
    for name, text in files.items():
        (folder / name.replace("_DOT_", ".")).write_text(text)
    monkeypatch.chdir(folder)
    runs, _ = find_runs([Path()], Files())
    return runs, lint_runs(runs).diagnostics


def told(diagnostics: list[Diagnostic]) -> list[tuple[str, str, str]]:
    return [
        (one.code, one.span.file.name, one.span.file.source.line(one.span.start.line)[one.span.start.column - 1 :])
        for one in diagnostics
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("import argparse\nargparse.ArgumentParser().add_argument('--save_total_limit')\n", None),
        ("def (\n", "transformers"),
    ],
)
def test_options_count_only_where_no_script_can_be_read(
    text: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = "accelerate launch --num_processes 2 train.py --save_total_limit 2 --remove_unused_columns false\n"
    runs, _ = found(tmp_path, monkeypatch, train_DOT_py=text, run_DOT_sh=line)
    assert [run.consumer for run in runs] == [expected]


def test_options_that_a_loop_of_its_own_shares_with_the_trainer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The Accelerator decides who reads the config, not the names of the options."""
    runs, diagnostics = found(
        tmp_path,
        monkeypatch,
        ds_DOT_json=json.dumps({**ZERO, **SIZES, "gradient_accumulation_steps": 1}),
        train_DOT_py="import argparse\nfrom accelerate import Accelerator\naccelerator = Accelerator()\n",
        run_DOT_sh="accelerate launch --use_deepspeed --num_processes 8 --deepspeed_config_file ds.json train.py "
        "--output_dir out --num_train_epochs 2 --gradient_checkpointing --learning_rate 1e-5\n",
    )
    assert [run.consumer for run in runs] == ["accelerate"]
    assert diagnostics == []


@pytest.mark.parametrize("steps", [4, 8])
def test_literal_arguments_against_the_config(steps: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = f"deepspeed='ds.json', bf16=True, per_device_train_batch_size=1, gradient_accumulation_steps={steps}"
    _, diagnostics = found(
        tmp_path,
        monkeypatch,
        ds_DOT_json=json.dumps({**ZERO, **SIZES}),
        train_DOT_py=HF + f"Trainer(args=TrainingArguments(output_dir='out', {made})).train()\n",
        run_DOT_sh="deepspeed --num_gpus 8 train.py\n",
    )
    if steps == 4:
        assert diagnostics == []
        return
    assert [one.code for one in diagnostics] == ["ZC201"]
    assert diagnostics[0].span.file.name == "ds.json"
    assert [(one.file.name, one.start.line) for one in diagnostics[0].related] == [("train.py", 2)]
    assert (
        "is 4 (in ds.json) but the Trainer's `gradient_accumulation_steps` is 8 (in train.py)" in diagnostics[0].message
    )


YAML = (
    "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 1\nmachine_rank: 0\nmixed_precision: bf16\n"
    "deepspeed_config:\n  zero_stage: 2\n  gradient_clipping: 1.0\n  gradient_accumulation_steps: %s\n"
)


@pytest.mark.parametrize(
    ("written", "argument", "expected"),
    [
        ("auto", "", [("ZC207", "acc.yaml", "gradient_accumulation_steps: auto\n")]),
        ("4", "", []),
        ("4", "gradient_accumulation_steps=4", []),
        ("4", "gradient_accumulation_steps=8", [("ZC249", "train.py", "8)\n")]),
        ("4", "gradient_accumulation_steps=unknown()", []),
        ("4", "8, **more", []),
    ],
)
def test_accumulation_of_an_accelerator(
    written: str, argument: str, expected: list[tuple[str, str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, diagnostics = found(
        tmp_path,
        monkeypatch,
        acc_DOT_yaml=YAML % written,
        train_DOT_py=f"from accelerate import Accelerator\nACCELERATOR = Accelerator({argument})\n",
        run_DOT_sh="accelerate launch --config_file acc.yaml train.py\n",
    )
    assert [(code, file, text + "\n") for code, file, text in told(diagnostics)] == expected


@pytest.mark.parametrize("engine", ["MULTI_GPU", "DEEPSPEED", "FSDP"])
@pytest.mark.parametrize(
    ("argument", "value"),
    [
        ("mixed_precision='bf16'", "bf16"),
        ("mixed_precision=None", "fp16"),
        ("", "fp16"),
        ("mixed_precision=unknown()", UNKNOWN),
        ("**unknown()", UNKNOWN),
    ],
)
def test_precision_of_an_accelerator(
    argument: str, value: object, engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The argument wins over the launcher's variable, whatever the engine: accelerate/state.py."""
    runs, _ = found(
        tmp_path,
        monkeypatch,
        acc_DOT_yaml=f"distributed_type: {engine}\nnum_processes: 2\nmixed_precision: fp16\n",
        train_DOT_py=f"from accelerate import Accelerator\nACCELERATOR = Accelerator({argument})\n",
        run_DOT_sh="accelerate launch --config_file acc.yaml train.py\n",
    )
    assert [run.effective.value("mixed_precision") for run in runs] == [value]


WRITTEN = """import deepspeed

CONFIG = {
    "train_batch_size": 8,
    "train_micro_batch_size_per_gpu": 2,
    "gradient_accumulation_steps": %s,
    "zero_optimization": {"stage": 2, "overlap_com": True},
}
engine, *_ = deepspeed.initialize(model=None, config=CONFIG)
"""


def test_a_config_that_is_a_dict_of_the_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, diagnostics = found(
        tmp_path, monkeypatch, train_DOT_py=WRITTEN % 3, run_DOT_sh="deepspeed --num_gpus 8 train.py\n"
    )
    assert [(code, file, text.partition(":")[0]) for code, file, text in told(diagnostics)] == [
        ("ZC203", "train.py", '"train_batch_size"'),
        ("ZC101", "train.py", '"overlap_com"'),
    ]
    assert "8 != 2 * 3 * 8" in diagnostics[0].message
    assert all(one.fix is None for one in diagnostics)


@pytest.mark.parametrize("steps", ["steps()", "int(3)", "STEPS"])
def test_what_the_text_does_not_tell_is_not_judged(steps: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch sizes cannot be multiplied; the misspelt key is wrong all the same."""
    _, diagnostics = found(
        tmp_path, monkeypatch, train_DOT_py=WRITTEN % steps, run_DOT_sh="deepspeed --num_gpus 8 train.py\n"
    )
    assert [(code, text.partition(":")[0]) for code, _, text in told(diagnostics)] == [("ZC101", '"overlap_com"')]


def test_a_dict_that_a_function_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (WRITTEN % 3).replace("CONFIG = {", "def made(args):\n  return {").replace("=CONFIG)", "=made(None))")
    _, diagnostics = found(tmp_path, monkeypatch, train_DOT_py=text, run_DOT_sh="deepspeed --num_gpus 8 train.py\n")
    assert [code for code, _, _ in told(diagnostics)] == ["ZC203", "ZC101"]


SECTIONS = """import deepspeed
def main(args, section):
    config = {"train_batch_size": args.batch, "optimizer": section, "bf16": {"enabled": args.dtype == "bf16"},
              "fp16": {"enabled": args.dtype == "fp16"}, "zero_optimization": {"stage": args.stage}}
    deepspeed.initialize(config=config)
main(None, None)
"""


def test_sections_and_switches_that_the_script_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, diagnostics = found(
        tmp_path, monkeypatch, train_DOT_py=SECTIONS, run_DOT_sh="deepspeed --num_gpus 8 train.py\n"
    )
    assert [run.consumer for run in runs] == ["deepspeed"]
    assert diagnostics == []


def test_a_dict_that_is_changed_later_is_not_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (WRITTEN % 3).replace("engine,", "CONFIG['train_batch_size'] = 48\nengine,")
    _, diagnostics = found(tmp_path, monkeypatch, train_DOT_py=text, run_DOT_sh="deepspeed --num_gpus 8 train.py\n")
    assert diagnostics == []


def test_options_of_a_parser_reach_the_arguments(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TrainingArguments(gradient_accumulation_steps=args.steps)` with `--steps 8` on the line."""
    text = HF + (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--steps', type=int, default=4)\nparser.add_argument('--gradient_accumulation_steps')\n"
        "args = parser.parse_args()\n"
        "Trainer(args=TrainingArguments(output_dir='out', deepspeed='ds.json', bf16=True,\n"
        "    per_device_train_batch_size=1, gradient_accumulation_steps=args.steps)).train()\n"
    )
    config = json.dumps({**ZERO, **SIZES})
    line = "deepspeed --no_local_rank --num_gpus 8 train.py --gradient_accumulation_steps 2"
    _, none = found(tmp_path, monkeypatch, ds_DOT_json=config, train_DOT_py=text, run_DOT_sh=f"{line}\n")
    assert none == []
    _, some = found(tmp_path, monkeypatch, run_DOT_sh=f"{line} --steps 8\n")
    assert [one.code for one in some] == ["ZC201"]
    assert [(one.file.name, one.start.line) for one in some[0].related] == [("run.sh", 1)]


@pytest.mark.parametrize("deepest", [200, 3000])
def test_code_that_is_nested_deeply(deepest: int, tmp_path: Path) -> None:
    script = read(tmp_path, train=f"x = {'[' * deepest}{']' * deepest}\ny = {'-' * deepest}1\n" + HF + "Trainer()\n")
    assert script.reader in (None, "transformers")


@pytest.mark.parametrize(
    ("argument", "expected"),
    [("max_grad_norms=1.0", ["ZC841"]), ("weight_decay=0.1", []), ("mine=1", [])],
)
def test_arguments_that_a_class_does_not_take(
    argument: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = HF + f"Trainer(args=TrainingArguments(output_dir='out', {argument}))\n"
    line = "torchrun --nproc_per_node 2 train.py\n"
    _, diagnostics = found(tmp_path, monkeypatch, train_DOT_py=text, run_DOT_sh=line)
    assert [one.code for one in diagnostics] == expected
    own = text.replace("Trainer(args=TrainingArguments", "class Mine(TrainingArguments):\n    pass\nTrainer(args=Mine")
    _, none = found(tmp_path, monkeypatch, train_DOT_py=own, run_DOT_sh=line)
    assert none == []


def test_what_a_script_does_with_files_and_models(tmp_path: Path) -> None:
    script = read(
        tmp_path,
        train="import json\nfrom pathlib import Path\nimport other\n\ndef main(args, name):\n"
        "    config = json.load(open(args.deepspeed))\n    more = Path(name).read_text()\n"
        "    args.lr_scheduler_kwargs['min_lr'] = 0.1\n    args.fsdp_config.update(version=2)\n    other.model.eval()\n"
        "\nmain(None, 'x.json')\n",
        other="def unused(trainer):\n    trainer.train()\n\nmodel = None\n",
    )
    assert {"deepspeed", "name"} <= script.opened
    assert {"lr_scheduler_kwargs", "fsdp_config"} <= script.assigned
    assert script.methods >= {"load", "read_text", "eval"}
    assert "train" not in script.methods
    assert script.whole


def test_code_that_lies_deeper_may_call_anything(tmp_path: Path) -> None:
    deep = {"train": "import one\none.run()\n", "one": "from two import run\n", "two": "from three import run\n"}
    script = read(tmp_path, **deep, three="def run():\n    deepspeed = 1\n")
    assert not script.whole


@pytest.mark.parametrize(("argument", "reader"), [("ppo_epochs=4", None), ("num_ppo_epochs=4", "trl")])
def test_an_older_ppo_trainer_is_no_trainer(argument: str, reader: str | None, tmp_path: Path) -> None:
    code = f"from trl import PPOConfig, PPOTrainer\nPPOTrainer(PPOConfig({argument}))\n"
    assert read(tmp_path, train=code).reader == reader
