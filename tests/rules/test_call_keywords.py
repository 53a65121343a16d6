"""Keywords of trainers and of Accelerator() that releases refuse: with which releases, how sure, and where not."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

import pytest

from zerocfg.linter.selection import Selection
from zerocfg.run.script.arguments import OF_SEQ2SEQ
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

SFT = """from trl import SFTConfig, SFTTrainer
args = SFTConfig(output_dir="out")
SFTTrainer(model="m", args=args, train_dataset=data, {})
"""


def told(folder: Path, script: str, requirements: str = "") -> list[tuple[str, str, str]]:
    """Severity, the underlined text and the advice of each finding."""
    (folder / "train.py").write_text(script, encoding="utf-8")
    (folder / "requirements.txt").write_text(requirements, encoding="utf-8")
    found = Job([folder], Settings(), Selection(select=("ZC870",)), root=folder).lint().diagnostics
    lines = script.splitlines()
    return [
        (
            one.severity.value,
            lines[one.span.start.line - 1][one.span.start.column - 1 : one.span.end.column - 1],
            one.help,
        )
        for one in found
    ]


@pytest.mark.parametrize(
    ("keyword", "requirements", "expected"),
    [
        ("max_seq_length=2048", "trl==1.16.0", ("error", "2048", "give it to SFTConfig, which calls it `max_length`")),
        ("packing=True", "trl==0.15.2", ("error", "True", "give it to SFTConfig")),
        ("packing=True", "trl==0.12.2", None),
        ("packing=True", "trl>=0.12", ("warning", "True", "give it to SFTConfig")),
        ("packing=True", "", ("warning", "True", "give it to SFTConfig")),
        ("tokenizer=tok", "trl==0.15.2", None),  # its decorator still renames it
        ("tokenizer=tok", "trl==0.16.0", ("error", "tok", "write processing_class")),
        ("processing_class=tok", "trl==0.11.4", ("error", "tok", "leave it out")),
        ("processing_class=tok", "trl==0.12.0", None),
        ("processing_class=tok", "trl>=0.11", ("note", "tok", "leave it out")),
        ("processing_class=tok", "", None),
        ("learning_rate=1e-5", "trl==1.16.0", ("error", "1e-5", "give it to SFTConfig")),
        ("learning_rate=1e-5", "", ("warning", "1e-5", "give it to SFTConfig")),
        ("learning_rate=1e-5", "trl<=1.16", ("note", "1e-5", "give it to SFTConfig")),  # what 0.6 took is not known
        ("evaluation_dataset=d", "trl==1.16.0", ("error", "d", "write eval_dataset")),
        ("packing=True", "trl==0.5.0", None),  # older than any release that is known
    ],
)
def test_by_release(tmp_path: Path, keyword: str, requirements: str, expected: tuple[str, str, str] | None) -> None:
    assert told(tmp_path, SFT.format(keyword), requirements) == ([expected] if expected else [])


@pytest.mark.parametrize(
    ("keyword", "requirements", "message"),
    [
        ("learning_rate=1e-5", "trl==1.16.0", "SFTTrainer() of TRL 1.16.0 does not accept `learning_rate`"),
        ("packing=True", "trl==0.15.2", "TRL 0.13.0 removed `packing` from SFTTrainer()"),
        (
            "processing_class=tok",
            "trl==0.11.4",
            "SFTTrainer() accepts `processing_class` from TRL 0.12.0 on, not before",
        ),
    ],
)
def test_since_when(tmp_path: Path, keyword: str, requirements: str, message: str) -> None:
    (tmp_path / "train.py").write_text(SFT.format(keyword), encoding="utf-8")
    (tmp_path / "requirements.txt").write_text(requirements, encoding="utf-8")
    (found,) = Job([tmp_path], Settings(), Selection(select=("ZC870",)), root=tmp_path).lint().diagnostics
    assert found.message.startswith(f"{message}: the call is a TypeError")


@pytest.mark.parametrize(
    ("keyword", "requirements", "expected"),
    [
        (
            "dispatch_batches=True",
            "accelerate==1.15.0",
            ("error", "True", "write dataloader_config=DataLoaderConfiguration(dispatch_batches=...)"),
        ),
        ("dispatch_batches=True", "accelerate==0.34.2", None),
        ("split_batches=True", "accelerate==1.15.0", None),
        ("parallelism_config=p", "accelerate==1.9.0", ("error", "p", "leave it out")),
        ("parallelism_config=p", "accelerate==1.10.0", None),
    ],
)
def test_accelerator(tmp_path: Path, keyword: str, requirements: str, expected: tuple[str, str, str] | None) -> None:
    script = f"from accelerate import Accelerator\nacc = Accelerator({keyword})\nacc.prepare(m)\n"
    assert told(tmp_path, script, requirements) == ([expected] if expected else [])


@pytest.mark.parametrize("requirements", ["", "trl==0.20.0", "trl>=0.5"])
def test_what_no_release_of_a_younger_class_accepts(tmp_path: Path, requirements: str) -> None:
    script = (
        "from trl import GRPOConfig, GRPOTrainer\n"
        "GRPOTrainer(model='m', args=GRPOConfig(output_dir='o'), reward_funcs=[len], tokenizer=tok)\n"
    )
    assert told(tmp_path, script, requirements) == [("error", "tok", "write processing_class")]


def test_slips_of_accelerator_are_told_by_one_rule(tmp_path: Path) -> None:
    script = "from accelerate import Accelerator\nacc = Accelerator(mixed_precison='bf16')\nacc.prepare(m)\n"
    assert told(tmp_path, script, "accelerate==1.15.0") == []


@pytest.mark.parametrize(
    ("requirements", "expected"),
    [
        ("transformers==4.57.1", []),
        ("transformers==5.0.0", [("error", "tok", "write processing_class")]),
        ("transformers>=4.50", [("warning", "tok", "write processing_class")]),
    ],
)
def test_the_trainer(tmp_path: Path, requirements: str, expected: list[tuple[str, str, str]]) -> None:
    script = (
        "from transformers import Trainer, TrainingArguments\n"
        'Trainer(model=m, args=TrainingArguments(output_dir="out"), tokenizer=tok)\n'
    )
    assert told(tmp_path, script, requirements) == expected


CALL = 'SFTTrainer(model="m", args=SFTConfig(output_dir="out"), packing=True)'


@pytest.mark.parametrize(
    "script",
    [
        f"import unsloth\nfrom trl import SFTConfig, SFTTrainer\n{CALL}\n",
        f"import trl\nfrom trl import SFTConfig, SFTTrainer\nif trl.__version__ < '0.13':\n    {CALL}\n",
        f"import inspect\nfrom trl import SFTConfig, SFTTrainer\nnames = inspect.signature(SFTTrainer)\n{CALL}\n",
        "from trl import SFTConfig, SFTTrainer\n"
        f"try:\n    {CALL}\nexcept TypeError:\n    t = SFTTrainer(model='m', args=SFTConfig(packing=True))\n",
        "from trl import SFTConfig, SFTTrainer as Base\nclass SFTTrainer(Base):\n"
        f"    def __init__(self, packing=False, **rest):\n        super().__init__(**rest)\n{CALL}\n",
        f"from mine import SFTTrainer\nfrom trl import SFTConfig\n{CALL}\n",
        "from trl import SFTConfig, SFTTrainer\nSFTTrainer(args=SFTConfig(output_dir='o'), **{'packing': 1})\n",
        "from trl import SFTConfig, SFTTrainer\n"
        f"try:\n    {CALL}\nexcept Exception:\n    t = SFTTrainer(model='m', args=SFTConfig(packing=True))\n",
        # 0.26 to 1.7 export a KTOTrainer that takes any keyword
        "from trl import KTOConfig, KTOTrainer\nKTOTrainer(model='m', args=KTOConfig(output_dir='o'), beta=1)\n",
    ],
)
def test_where_the_class_is_not_sure_or_is_asked(tmp_path: Path, script: str) -> None:
    assert told(tmp_path, script, "trl==1.7.0") == []


def test_a_failure_that_only_ends_the_job_differently(tmp_path: Path) -> None:
    script = f"from trl import SFTConfig, SFTTrainer\ntry:\n    {CALL}\nexcept Exception as error:\n    print(error)\n"
    assert told(tmp_path, script, "trl==1.7.0") == [("error", "True", "give it to SFTConfig")]


def test_a_package_of_the_repository_of_the_same_name(tmp_path: Path) -> None:
    (tmp_path / "trl").mkdir()
    assert told(tmp_path, SFT.format("packing=True"), "trl==1.16.0") == []


MADE = """from {library} import {of}
{before}
args = {of}(output_dir="out", {keyword})
"""


@pytest.mark.parametrize(
    ("of", "keyword", "requirements", "expected"),
    [  # each is a TypeError of TRL 1.16.0 and transformers 5.23.0, called by hand, or none
        ("trl.GRPOConfig", "max_new_tokens=3", "", ("error", "3", "leave it out")),
        ("trl.GRPOConfig", "max_new_tokens=3", "trl==0.17.0", ("error", "3", "leave it out")),
        ("trl.DPOConfig", "peft_config=None", "", ("error", "None", "give it to DPOTrainer")),
        ("trl.GRPOConfig", "reward_funcs=[f]", "", ("error", "[f]", "give it to GRPOTrainer")),
        ("transformers.TrainingArguments", "zzz=1", "transformers==5.23.0", ("error", "1", "leave it out")),
        (
            "transformers.TrainingArguments",
            "sortish_sampler=True",
            "transformers==5.23.0",
            ("error", "True", "leave it out"),
        ),
        ("transformers.Seq2SeqTrainingArguments", "zzz=1", "transformers==5.23.0", ("error", "1", "leave it out")),
        ("transformers.Seq2SeqTrainingArguments", "predict_with_generate=True", "transformers==5.23.0", None),
        ("transformers.Seq2SeqTrainingArguments", "generation_config=c", "transformers==4.38.2", None),
        ("transformers.Seq2SeqTrainingArguments", "learning_rate=1e-5", "transformers==5.23.0", None),
        ("trl.GRPOConfig", "zzz=1", "trl==1.16.0\ntransformers==5.23.0", ("error", "1", "leave it out")),
        # a release that is newer than all that are known may have it
        ("transformers.TrainingArguments", "zzz=1", "", None),
        ("transformers.TrainingArguments", "zzz=1", "transformers>=5", None),
        ("trl.GRPOConfig", "zzz=1", "trl==1.16.0", None),
        ("trl.GRPOConfig", "max_completion_length=3", "", None),
        ("trl.GRPOConfig", "learning_rate=1e-5", "", None),
        ("trl.GRPOConfig", "max_prompt_length=3", "", None),  # ZC840: 0.28 removed it
        ("trl.GRPOConfig", "warmup_ratio=0.1", "", None),  # ZC801
        ("trl.GRPOConfig", "max_completion_lenght=3", "", None),  # ZC841: a slip
        ("trl.OnlineDPOConfig", "max_new_tokens=3", "", None),
        ("trl.GRPOConfig", "max_new_tokens=3", "trl @ git+https://github.com/x/trl@1234567", None),
        ("transformers.TrainingArguments", "zzz=1", "transformers==3.0.2", None),  # older than any that is known
        ("transformers.TrainingArguments", "zzz=1", "transformers>=4", None),
        ("trl.experimental.gspo_token.GRPOConfig", "max_new_tokens=3", "", None),
    ],
)
def test_keywords_of_configs(
    tmp_path: Path, of: str, keyword: str, requirements: str, expected: tuple[str, str, str] | None
) -> None:
    library, _, name = of.rpartition(".")
    script = MADE.format(library=library, of=name, keyword=keyword, before="")
    assert told(tmp_path, script, requirements) == ([expected] if expected else [])


@pytest.mark.parametrize(
    "before",
    [
        "import unsloth",
        "from trl import __version__ as v\nif trl.__version__ > '1': pass",
        "class GRPOConfig(GRPOConfig):\n    max_new_tokens: int = 3",
    ],
)
def test_configs_that_take_more(tmp_path: Path, before: str) -> None:
    script = MADE.format(library="trl", of="GRPOConfig", keyword="max_new_tokens=3", before=before)
    assert told(tmp_path, script) == []


@pytest.mark.libs
def test_what_seq2seq_adds() -> None:
    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    of_both = {each.name for each in fields(TrainingArguments)}
    assert {each.name for each in fields(Seq2SeqTrainingArguments)} - of_both == OF_SEQ2SEQ
