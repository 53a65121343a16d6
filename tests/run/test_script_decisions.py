"""Decisions of a script by an option that only the launcher got."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

import zerocfg
from zerocfg.linter.selection import Selection
from zerocfg.run.model import UNKNOWN
from zerocfg.run.stages.arguments import arguments_of
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "import argparse\nfrom accelerate import Accelerator\nparser = argparse.ArgumentParser()\n"
OPTION = 'parser.add_argument("--mixed_precision", default=None)\n'
MADE = "args = parser.parse_args()\naccelerator = Accelerator(mixed_precision=args.mixed_precision)\n"
DECIDES = 'if args.mixed_precision == "fp16":\n    cast(model)\n'
SCRIPT = HEAD + OPTION + MADE + DECIDES + "model = accelerator.prepare(model)\n"
LINE = "accelerate launch --num_processes 1 --mixed_precision fp16 train.py"
CONFIG = "compute_environment: LOCAL_MACHINE\ndistributed_type: 'NO'\nmixed_precision: fp16\nnum_processes: 1\n"


def told(folder: Path, script: str = SCRIPT, line: str = LINE, **files: str) -> list[tuple[str, str, int]]:
    """Severity, file and line of what ZC332 finds."""
    for name, text in {"train__py": script, "run__sh": line + "\n", **files}.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    found = Job([folder], Settings(), Selection(select=("ZC332",)), root=folder).lint().diagnostics
    return [(one.severity.value, one.span.file.name.rpartition("/")[2], one.span.start.line) for one in found]


WARNED = [("warning", "run.sh", 1)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        ('== "fp16"', 'in ("fp16", "bf16")'),
        (DECIDES, 'if args.mixed_precision == "bf16":\n    f()\nel' + DECIDES),
        (DECIDES, 'dtype = half if args.mixed_precision == "fp16" else single\n'),
        (DECIDES, 'for batch in loader:\n    if args.mixed_precision == "fp16":\n        cast(batch)\n'),
        ("    cast(model)\n", "    cast(model)\naccelerator.init_trackers('run', config=vars(args))\n"),
        (", default=None", ""),
    ],
)
def test_a_decision_that_is_not_taken(tmp_path: Path, old: str, new: str) -> None:
    assert told(tmp_path, SCRIPT.replace(old, new)) == WARNED


def test_a_main_function_that_is_given_the_options(tmp_path: Path) -> None:
    script = (
        HEAD
        + OPTION
        + (
            "def main(args):\n    accelerator = Accelerator(mixed_precision=args.mixed_precision)\n"
            '    if args.mixed_precision == "fp16":\n        cast(model)\n    accelerator.prepare(model)\n'
            'if __name__ == "__main__":\n    main(parser.parse_args())\n'
        )
    )
    assert told(tmp_path, script) == WARNED


def test_the_precision_of_a_config(tmp_path: Path) -> None:
    line = "accelerate launch --config_file acc.yaml train.py"
    assert told(tmp_path, line=line, acc__yaml=CONFIG) == [("warning", "acc.yaml", 3)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"fp16"', '"bf16"'),
        ("args.mixed_precision ==", "accelerator.mixed_precision =="),
        (", default=None", ', default="no"'),  # which Accelerator takes before the launcher's
        (DECIDES, "args.mixed_precision = accelerator.mixed_precision\n" + DECIDES),
        (DECIDES, "vars(args).update(saved)\n" + DECIDES),
        ("args = parser.parse_args()\n", "args = argparse.Namespace(**saved)\n"),
        ("    cast(model)\n", '    raise ValueError("not supported")\n'),
        ("    cast(model)\n", '    print("in fp16")\n'),
        ('if args.mixed_precision == "fp16"', 'if args.cast and args.mixed_precision == "fp16"'),
        (DECIDES, 'if other:\n    if args.mixed_precision == "fp16":\n        cast(model)\n'),
        (DECIDES, "if other:\n    f()\nel" + DECIDES),
        (DECIDES, "def hook():\n    if args.mixed_precision == 'fp16':\n        cast(model)\n"),
        (OPTION, 'parser.add_argument("--dtype", default=None)\n'),
        (OPTION, OPTION + "more(parser)\nparser.add_arguments(Options, 'options')\n"),
    ],
)
def test_a_decision_of_which_nothing_is_known(tmp_path: Path, old: str, new: str) -> None:
    assert SCRIPT.replace(old, new) != SCRIPT
    assert told(tmp_path, SCRIPT.replace(old, new)) == []


@pytest.mark.parametrize(
    "line",
    [
        f"{LINE} --mixed_precision fp16",
        f'{LINE} "$@"',
        f"{LINE} $EXTRA",
        LINE.replace("--mixed_precision fp16 ", ""),
        LINE.replace("fp16", "$PRECISION"),
        LINE.replace("fp16", "no"),
        "python train.py",
    ],
)
def test_a_line_that_says_nothing_or_may_say_more(tmp_path: Path, line: str) -> None:
    assert told(tmp_path, line=line) == []


def test_a_variable_that_is_an_options_value(tmp_path: Path) -> None:
    script = SCRIPT.replace(OPTION, OPTION + 'parser.add_argument("--model")\n')
    assert told(tmp_path, script, f"{LINE} --model $MODEL") == WARNED


@pytest.mark.libs
@pytest.mark.parametrize(("behind", "option"), [((), "None"), (("--mixed_precision", "bf16"), "bf16")])
def test_as_accelerate_does(tmp_path: Path, behind: tuple[str, ...], option: str) -> None:
    pytest.importorskip("accelerate")
    script = tmp_path / "train.py"
    script.write_text(HEAD + OPTION + MADE + "print('SEEN', args.mixed_precision, accelerator.mixed_precision)\n")
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "1"]
    done = subprocess.run(
        [*command, "--mixed_precision", "bf16", str(script), *behind],
        capture_output=True,
        text=True,
        env={**os.environ, "HF_HOME": str(tmp_path)},
    )
    assert f"SEEN {option} bf16" in done.stdout, done.stderr[-3000:]


@pytest.mark.parametrize(
    ("option", "known"), [("type=int", None), ("type=int, default=4", 4), ("type=int, default=None", None)]
)
def test_an_option_without_a_default_gives_no_known_number(tmp_path: Path, option: str, known: int | None) -> None:
    """argparse gives None; what the script makes of it before it hands it on is not known."""
    (tmp_path / "train.py").write_text(
        "import argparse\nfrom transformers import Trainer, TrainingArguments\n"
        f"parser = argparse.ArgumentParser()\nparser.add_argument('--size', {option})\n"
        "args = parser.parse_args()\n"
        "Trainer(args=TrainingArguments('o', per_device_train_batch_size=args.size)).train()\n"
    )
    (tmp_path / "run.sh").write_text("torchrun --nproc_per_node 2 train.py\n")
    (run,) = zerocfg.runs(tmp_path)
    assert arguments_of(run).get("per_device_train_batch_size") == (UNKNOWN if known is None else known)
