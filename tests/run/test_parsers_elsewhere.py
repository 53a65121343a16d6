"""What parsers and argument classes of a project make of the options of a launch line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.linking.project_scripts import with_what_is_elsewhere
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

Lint = Callable[[dict[str, str], str], list[tuple[str, str]]]
DS = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": 1, "gradient_clipping": 0.1}\n'
LINE = "deepspeed train.py --deepspeed ds.json --output_dir o --max_steps 9 --gradient_accumulation_steps 2\n"
TRAINER = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
{above}
(args,) = HfArgumentParser(TrainingArguments).{parse}
Trainer(model=None, args=args, train_dataset=[1]).train()
"""
PLAIN = "parse_args_into_dataclasses()"


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """What one rule finds in these files: severity and help."""

    def ask(files: dict[str, str], code: str) -> list[tuple[str, str]]:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        found = Job([tmp_path], Settings(), Selection(select=(code,))).lint().diagnostics
        return [(item.severity.value, item.help) for item in found]

    return ask


@pytest.mark.parametrize(
    ("parse", "above", "count"),
    [
        (PLAIN, "", 1),
        ("parse_args_into_dataclasses(args=None)", "", 1),
        ("parse_args_into_dataclasses(['--output_dir', 'o'])", "", 0),
        ("parse_args_into_dataclasses(args=words)", "words = ['--output_dir', 'o']", 0),
        ("parse_args_into_dataclasses(args=words)", "import sys\nwords = sys.argv[1:]", 1),
        ("parse_args_into_dataclasses(args=words)", "words = ['--output_dir', out()]", 1),
    ],
)
def test_words_that_stand_in_the_code(parse: str, above: str, count: int, lint: Lint) -> None:
    """Then the options of the line are read by nobody, so that none of them disagrees with the config."""
    files = {"ds.json": DS, "run.sh": LINE, "train.py": TRAINER.format(parse=parse, above=above)}
    assert len(lint(files, "ZC201")) == count


def test_defaults_where_the_script_is_not_here(lint: Lint) -> None:
    """A project that derives from TrainingArguments may have other defaults."""
    files = {"ds.json": DS, "run.sh": LINE.replace("train.py", "elsewhere.py"), "notes.py": "x = 1\n"}
    assert len(lint(files, "ZC202")) == 1
    own = "import transformers\n\n\nclass Mine(transformers.TrainingArguments):\n    max_grad_norm: float = 0.1\n"
    assert lint({**files, "mine.py": own}, "ZC202") == []


def test_a_parser_elsewhere_that_returns_what_it_does_not_know(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a script whose parser is not reached."""
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("from installed import train\ntrain()\n", encoding="utf-8")
    Path("train.sh").write_text("torchrun train.py --output_dir o --save_strategy no\n", encoding="utf-8")
    runs = find_runs([Path("train.sh")], Files())[0]
    for given, lenient in (("", False), ("return_remaining_strings=True", True)):
        Path("cli.py").write_text(f"parser.parse_args_into_dataclasses({given})\n", encoding="utf-8")
        (run,) = with_what_is_elsewhere(runs, [Files().open(Path("cli.py"))])
        assert run.script is not None and run.script.lenient is lenient


@pytest.mark.parametrize(
    ("checks", "count"),
    [
        ("beta: float = 0.1", 1),
        ("def __post_init__(self):\n        super().__post_init__()", 1),
        ("def __post_init__(self):\n        super(RLOOConfig, self).__post_init__()", 0),
        ("def __post_init__(self):\n        self.ready = True", 0),
    ],
)
def test_arguments_that_check_themselves(checks: str, count: int, lint: Lint) -> None:
    script = (
        f"from trl import RLOOConfig, RLOOTrainer\n\n\nclass Config(RLOOConfig):\n    {checks}\n\n\n"
        "args = Config(output_dir='o', num_generations=1)\n"
        "RLOOTrainer(model='m', args=args, reward_funcs=[len], train_dataset=data).train()\n"
    )
    assert len(lint({"train.py": script}, "ZC859")) == count


def test_a_config_that_the_script_opens(lint: Lint) -> None:
    """It may fill in what is "auto"."""
    script = (
        "import argparse, json, deepspeed\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--local_rank')\nparser.add_argument('--deepspeed_config')\nargs = parser.parse_args()\n"
        "{config}engine = deepspeed.initialize(model=model, config=config)[0]\nengine.backward(loss)\nengine.step()\n"
    )
    files = {
        "ds.json": '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": "auto"}}\n',
        "run.sh": "deepspeed train.py --deepspeed_config ds.json\n",
        "train.py": script.format(config="config = args.deepspeed_config\n"),
    }
    assert [severity for severity, _ in lint(files, "ZC304")] == ["error"]
    opened = "config = json.load(open(args.deepspeed_config))\nconfig['bf16']['enabled'] = True\n"
    assert lint({**files, "train.py": script.format(config=opened)}, "ZC304") == []


def test_the_help_for_keys_that_accelerate_ignores(lint: Lint) -> None:
    start = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"
    for line, advice in (
        ("steps_per_print: 10", "remove it: accelerate sets it by itself, in a DeepSpeed JSON too"),
        ("sub_group_size: auto", "remove it: the default of DeepSpeed counts"),
        ("sub_group_size: 1000", "put it in a DeepSpeed JSON, as `zerocfg convert --to deepspeed-json` does"),
    ):
        assert lint({"accelerate.yaml": f"{start}  {line}\n"}, "ZC103") == [("error", advice)]


@pytest.mark.parametrize(
    ("release", "optimizer", "both"),
    [("==4.32.1", True, True), ("==4.32.1", False, False), ("==4.33.0", True, False), (">=4.30", True, True)],
)
def test_the_help_for_a_scheduler_of_the_json(release: str, optimizer: bool, both: bool, lint: Lint) -> None:
    """transformers before 4.33 refuses an optimizer of DeepSpeed's beside a scheduler of its own."""
    sections = '"scheduler": {"type": "WarmupLR", "params": {}}' + (', "optimizer": {"type": "AdamW"}' * optimizer)
    files = {
        "ds.json": f'{{"train_micro_batch_size_per_gpu": "auto", {sections}}}\n',
        "run.sh": LINE.replace("--max_steps 9", "--lr_scheduler_type cosine"),
        "train.py": TRAINER.format(parse=PLAIN, above=""),
        "requirements.txt": f"transformers{release}\n",
    }
    ((severity, advice),) = lint(files, "ZC211")
    assert severity == "error"
    assert ("remove `scheduler` and `optimizer` from ds.json" in advice) is both


@pytest.mark.parametrize(
    ("script", "count"),
    [
        ("", 1),  # nothing tells how the project saves
        ("model.save_pretrained('out')\n", 1),
        ("import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config=config)\nengine.step()\n", 0),
        ("# deepspeed\nweights = get_fp32_state_dict_from_zero_checkpoint(path)\nmodel.save_pretrained('out')\n", 0),
    ],
)
def test_weights_that_a_project_saves_otherwise(script: str, count: int, lint: Lint) -> None:
    files = {"ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}}\n'}
    if script:
        files["save.py"] = f"import torch\n{script}"
    assert len(lint(files, "ZC401")) == count
