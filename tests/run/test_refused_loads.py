"""The first model load that the newest admitted release refuses, and whether it comes before a Trainer's arguments."""

from __future__ import annotations

from pathlib import Path

import pytest

from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run
from zerocfg.run.releases import with_versions
from zerocfg.run.requirements.refused_loads import refused_loads, stopping_load

IMPORTS = "from transformers import HfArgumentParser, LlamaForCausalLM, Trainer, TrainingArguments\n"
LOAD = 'model = LlamaForCausalLM.from_pretrained("m", load_in_8bit=True)\n'
TOKEN = 'model = LlamaForCausalLM.from_pretrained("m", token=True)\n'
ARGS = 'args = TrainingArguments(output_dir="o")\n'
PARSED = "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
TRAIN = "Trainer(model=model, args=args, train_dataset=data).train()\n"


def run_of(folder: Path, code: str, requirements: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    (folder / ".git").mkdir()
    (folder / "train.py").write_text(IMPORTS + code, encoding="utf-8")
    (folder / "train.sh").write_text("torchrun train.py --output_dir o\n", encoding="utf-8")
    (folder / "requirements.txt").write_text(requirements, encoding="utf-8")
    monkeypatch.chdir(folder)
    runs, _ = find_runs([folder], Files(), root=folder, scripts=True)
    (run,) = with_versions(runs, {})
    return run


@pytest.mark.parametrize(
    ("code", "requirements", "line"),
    [
        (LOAD + ARGS + TRAIN, "", 2),
        (LOAD + ARGS + TRAIN, "transformers>=4.40\n", 2),
        (LOAD + ARGS + TRAIN, "transformers==5.0.0\n", 2),
        (LOAD + ARGS + TRAIN, "transformers<5\n", None),
        (LOAD + ARGS + TRAIN, "transformers==4.57.6\n", None),
        (LOAD + ARGS + TRAIN, "transformers==4.30.0\n", None),
        (LOAD + ARGS + TRAIN, "transformers @ git+https://github.com/huggingface/transformers\n", None),
        (TOKEN + ARGS + TRAIN, "", None),
        (TOKEN + LOAD + ARGS + TRAIN, "", 3),
        (LOAD + LOAD + ARGS + TRAIN, "", 2),
        (LOAD + PARSED + TRAIN, "", 2),
        # the arguments come first, or may
        (ARGS + LOAD + TRAIN, "", None),
        (PARSED + LOAD + TRAIN, "", None),
        (f"if x:\n    {ARGS}{LOAD}{ARGS}{TRAIN}", "", None),
        (f"def made():\n    return TrainingArguments()\n\n\nif x:\n    args = made()\n{LOAD}{TRAIN}", "", None),
        (f"def made():\n    return TrainingArguments()\n\n\n{LOAD}args = made()\n{TRAIN}", "", 6),
        (f"def made():\n    return TrainingArguments()\n\n\nargs = made()\n{LOAD}{TRAIN}", "", None),
        (f"{LOAD}if x:\n    {ARGS}{TRAIN}", "", 2),
        # it may not be loaded at all
        (f"if x:\n    {LOAD}{ARGS}{TRAIN}", "", None),
        # the script stops at its imports, with an older release it does not
        (LOAD + ARGS + TRAIN + "from transformers import AdamW\n", "", None),
        (LOAD + TRAIN, "", None),
    ],
)
def test_stopping_load(
    code: str, requirements: str, line: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(tmp_path, code, requirements, monkeypatch)
    stop = stopping_load(run)
    origin = stop.origin if stop is not None else None
    if origin is None:
        assert line is None
    else:
        assert origin.file is not None
        assert origin.span is not None
        assert origin.file.source.text[: origin.span.start].count("\n") + 1 == line


def test_which_keywords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = 'model = LlamaForCausalLM.from_pretrained("m", token=True, load_in_8bit=True, use_auth_token=None)\n'
    run = run_of(tmp_path, code + ARGS + TRAIN, "", monkeypatch)
    (item,) = refused_loads(run)
    assert list(item.since) == ["load_in_8bit", "use_auth_token"]
    assert item.keywords((5, 0, 0)) == ["load_in_8bit", "use_auth_token"]
    assert item.keywords((4, 57, 6)) == []
