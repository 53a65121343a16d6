"""ZC879: releases that do not go together, by what the project states and what its script uses."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.run.model import ReleaseClash, Run
from zerocfg.run.requirements.clashes import release_clashes
from zerocfg.run.requirements.declared import Declared
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

TRAIN = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments
{above}
(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=model, args=args, train_dataset=data).train()
"""
LOOP = """\
import deepspeed
{above}
engine, *_ = deepspeed.initialize(model=model, config="ds.json")
"""
OLD = "transformers==4.37.2\n"
Lint = Callable[..., list[tuple[str, str, int]]]


@pytest.fixture
def lint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lint:
    """Severity, file and line of what is found, and its message."""

    def ask(requirements: str, above: str = "", script: str = TRAIN, **files: str) -> list[tuple[str, str, int]]:
        texts = {"train.py": script.format(above=above), "requirements.txt": requirements}
        texts |= {"train.sh": "torchrun train.py --output_dir o\n"} if script == TRAIN else {"ds.json": '{"bf16": {}}'}
        for name, text in {**texts, **{name.replace("_", "."): text for name, text in files.items()}}.items():
            (tmp_path / name).write_text(text, encoding="utf-8")
        monkeypatch.chdir(tmp_path)
        found = Job([tmp_path], Settings(), Selection(select=("ZC879",))).lint().diagnostics
        return [(one.severity.value, one.message, one.span.start.line) for one in found]

    return ask


@pytest.mark.parametrize(
    ("requirements", "severity"),
    [
        (OLD, "warning"),  # nothing states accelerate, which the Trainer needs
        (OLD + "accelerate\n", "warning"),
        (OLD + "accelerate==1.2.0\n", "error"),
        (OLD + "accelerate==0.34.2\n", None),
        (OLD + "accelerate==0.34.2\npeft\n", "warning"),
        (OLD + "accelerate==0.34.2\npeft>=0.7\n", "warning"),
        (OLD + "accelerate==0.34.2\npeft==0.10.0\n", None),
        (OLD + "accelerate==0.19.0\npeft\n", None),  # newer ones ask for accelerate>=0.21
        (OLD + "accelerate==0.34.2\npeft @ git+https://github.com/huggingface/peft\n", None),
        ("peft==0.17.1\n", "warning"),
        ("peft==0.17.1\ntransformers>=4.45\n", "warning"),
        ("peft==0.17.1\ntransformers>=5\n", "error"),
        ("peft==0.17.1\ntransformers<5\n", None),
        ("peft==0.17.1\ntransformers>=4.45\nhuggingface-hub==0.34.0\n", None),  # transformers 5 asks for more
        ("datasets==2.12.0\n", "warning"),
        ("datasets==2.12.0\npyarrow<21\n", None),
        ("datasets==2.12.0\npyarrow==21.0.0\n", "error"),
        ("datasets==2.15.0\n", "warning"),
        ("datasets==2.15.0\nhuggingface-hub<1.0\n", None),
        ("datasets==2.15.0\ntransformers<5\n", None),  # which asks for huggingface-hub<1.0
        ("datasets>=2.12\n", None),
    ],
)
def test_what_is_stated(requirements: str, severity: str | None, lint: Lint) -> None:
    assert [found[0] for found in lint(requirements)] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("files", "severity"),
    [
        ({}, "warning"),
        ({"python-version": "3.8\n"}, None),  # the newest pyarrow for it still has what is missed
        ({"python-version": "3.11\n"}, "warning"),
    ],
)
def test_the_python_that_is_set_up(files: dict[str, str], severity: str | None, lint: Lint) -> None:
    found = lint("datasets==2.12.0\n", **{f"_{name}": text for name, text in files.items()})
    assert [one[0] for one in found] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("requirements", "severity"),
    [
        ("deepspeed==0.12.6\ntorch\n", "warning"),
        ("deepspeed==0.12.6\ntorch>=2.0\n", "warning"),
        ("deepspeed==0.12.6\ntorch==2.4.0\n", "error"),
        ("deepspeed==0.12.6\ntorch==2.3.1\n", None),
        ("deepspeed==0.12.6\n", None),  # torch may come with an image
        ("deepspeed==0.12.6\ntorch\ntorchvision==0.16.2\n", None),
        ("deepspeed==0.14.4\ntorch\n", None),
        ("deepspeed==0.10.0\ntorch\n", None),
        ("deepspeed\ntorch\n", None),
    ],
)
def test_deepspeed_and_torch(requirements: str, severity: str | None, lint: Lint) -> None:
    assert [found[0] for found in lint(requirements, script=LOOP)] == ([severity] if severity else [])


@pytest.mark.parametrize(
    ("above", "severity"),
    [
        ("", None),
        ("import peft", "warning"),
        ("from peft import LoraConfig", "warning"),
        ("try:\n    import peft\nexcept ImportError:\n    pass", None),
        ("def adapt():\n    import peft", None),
    ],
)
def test_a_script_without_a_trainer(above: str, severity: str | None, lint: Lint) -> None:
    found = lint(OLD + "peft\n", above, LOOP)
    assert [one[0] for one in found] == ([severity] if severity else [])


def test_the_words(lint: Lint) -> None:
    assert lint("accelerate >= 1.0\n\n" + OLD) == [
        (
            "error",
            "transformers==4.37.2 and accelerate>=1.0 do not go together: `Trainer()` stops with `TypeError: "
            "Accelerator.__init__() got an unexpected keyword argument 'dispatch_batches'` (requirements.txt:3 admits "
            "transformers==4.37.2, requirements.txt:1 admits accelerate>=1.0)",
            3,
        )
    ]
    assert lint("transformers\npeft==0.17.1\n") == [
        (
            "warning",
            "a new install of peft==0.17.1 brings a release of transformers that does not go with it: `import peft` "
            "stops with `ImportError: cannot import name 'HybridCache' from 'transformers'` (requirements.txt:2 admits "
            "peft==0.17.1, requirements.txt:1 names transformers without a release)",
            2,
        )
    ]


def test_a_script_that_no_new_install_starts(lint: Lint) -> None:
    lost = "from datasets import load_metric"
    assert [one[0] for one in lint(OLD, lost)] == ["note"]
    assert [one[0] for one in lint(OLD + "accelerate==1.0.0\n", lost)] == ["error"]


def test_the_commands_of_a_page_say_nothing(lint: Lint) -> None:
    page = "```\npip install transformers==4.37.2\npip install trl\n```\n"
    assert lint("transformers\naccelerate\n", README_md=page) == []


def certain(run: Run, stated: dict[str, str | None]) -> ReleaseClash | None:
    known = {name: Declared(clauses) for name, clauses in stated.items()}
    return next((found for found in release_clashes(run, known, {}, lambda base: None) if found.certain), None)


@pytest.mark.parametrize(
    ("stated", "found"),
    [
        ({"deepspeed": "==0.12.6", "torch": "==2.4.0"}, ("deepspeed", "torch")),
        ({"deepspeed": "==0.12.6", "torch": ">=2.4"}, ("deepspeed", "torch")),
        ({"deepspeed": "==0.12.6", "torch": ">=2.0"}, None),
        ({"deepspeed": "==0.12.6", "torch": ""}, None),
        ({"deepspeed": "==0.12.6", "torch": None}, None),
        ({"deepspeed": "==0.12.6"}, None),
    ],
)
def test_a_run_that_cannot_train(
    stated: dict[str, str | None], found: tuple[str, str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(LOOP.format(above=""), encoding="utf-8")
    (tmp_path / "ds.json").write_text("{}", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    (run,) = (run for run in Job([tmp_path], Settings(), Selection()).lint().runs if run.script is not None)
    clash = certain(run, stated)
    assert (clash and (clash.library, clash.other)) == found
    without = replace(run, deepspeed=None)  # nothing shows that it trains with DeepSpeed
    assert certain(without, stated) is None
