"""Scripts whose parser stops at the local rank that a launcher adds: each is started with that word, by Python."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.releases import with_versions

START = "import argparse\nparser = argparse.ArgumentParser(description='x')\n"
ENDS = "\ndef engine():\n    import deepspeed\n    deepspeed.initialize(config='ds.json')\n"
DS = '{"train_micro_batch_size_per_gpu": 1}'
SCRIPTS: dict[str, tuple[str, str]] = {
    # by the text after the parser: how the script takes --local_rank=0
    "no such option": ("parser.add_argument('--lr')\nargs = parser.parse_args()\n", "refused"),
    "a positional word": ("parser.add_argument('rest', nargs='...')\nargs = parser.parse_args()\n", "refused"),
    "in a function": ("def main():\n    args = parser.parse_args()\nmain()\n", "refused"),
    "a group": ("g = parser.add_argument_group()\ng.add_argument('--lr')\nparser.parse_args()\n", "refused"),
    "a shorter name": ("parser.add_argument('--local')\nparser.parse_args()\n", "refused"),
    "with a dash": ("parser.add_argument('--local-rank')\nparser.parse_args()\n", "refused"),
    "declared": ("parser.add_argument('--local_rank', type=int)\nparser.parse_args()\n", "taken"),
    "declared for a group": (
        "g = parser.add_argument_group()\ng.add_argument('--local_rank')\nparser.parse_args()\n",
        "taken",
    ),
    "an abbreviation": ("parser.add_argument('--local_ranks')\nparser.parse_args()\n", "taken"),
    "what is unknown is left": ("args, _ = parser.parse_known_args()\n", "taken"),
    "words of its own": ("import sys\nargs = parser.parse_args(sys.argv[2:])\n", "taken"),
    "no words": ("args = parser.parse_args([])\n", "taken"),
    "words that are taken out": ("import sys\ndel sys.argv[1]\nargs = parser.parse_args()\n", "taken"),
    "in a loop": (
        "for name in ('lr', 'local_rank'):\n    parser.add_argument('--' + name)\nparser.parse_args()\n",
        "taken",
    ),
    "another's options": ("import shown\nshown.add_options(parser)\nargs = parser.parse_args()\n", "taken"),
    "never asked": ("parser.add_argument('--lr')\n", "taken"),
}
SHOWN = "def add_options(p):\n    for name in ['local_rank']:\n        p.add_argument(f'--{name}')\n"


def codes(folder: Path, line: str, monkeypatch: pytest.MonkeyPatch, **files: str) -> list[tuple[str, str]]:
    for name, text in {"ds.json": DS, "run.sh": line, **files}.items():
        (folder / name.replace("__", ".")).write_text(text, encoding="utf-8")
    monkeypatch.chdir(folder)
    runs = with_versions(find_runs([Path("run.sh")], Files())[0], {})
    found = lint_runs(runs).diagnostics
    return [(one.severity.value, one.message) for one in found if one.code == "ZC754"]


@pytest.mark.parametrize("case", SCRIPTS)
def test_what_a_script_does_with_the_word(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text, kind = SCRIPTS[case]
    # the other module is installed, where zerocfg does not look
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "shown.py").write_text(SHOWN, encoding="utf-8")
    line = "deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n"
    found = codes(tmp_path, line, monkeypatch, train__py=START + text + ENDS)
    played = subprocess.run(
        [sys.executable, "train.py", "--local_rank=0"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(tmp_path / "site")},
    )
    assert played.returncode == (2 if kind == "refused" else 0), played.stderr
    assert ("unrecognized arguments: --local_rank=0" in played.stderr) is (kind == "refused")
    assert [severity for severity, _ in found] == (["error"] if kind == "refused" else [])


PLAIN = START + "parser.add_argument('--lr')\nparser.add_argument('--deepspeed_config')\nparser.parse_args()\n" + ENDS
OLD = PLAIN.replace("--lr", "--local_rank")


@pytest.mark.parametrize(
    ("line", "script", "pins", "expected"),
    [
        ("deepspeed train.py", PLAIN, "", ["error"]),
        ("deepspeed --no_local_rank train.py", PLAIN, "", []),
        ("deepspeed --hostfile h --launcher openmpi train.py", PLAIN, "", []),
        ("deepspeed --hostfile h --launcher pdsh train.py", PLAIN, "", ["error"]),
        ("deepspeed $OPTIONS train.py", PLAIN, "", []),
        ("torchrun --nproc_per_node 2 train.py", PLAIN, "", []),
        ("python -m torch.distributed.run --nproc_per_node 2 train.py", PLAIN, "", []),
        ("accelerate launch --num_processes 2 train.py", PLAIN, "", []),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py", PLAIN, "", ["error"]),
        ("python -m torch.distributed.launch --use_env --nproc_per_node 2 train.py", PLAIN, "", []),
        ("python -m torch.distributed.launch --use-env --nproc_per_node 2 train.py", PLAIN, "", []),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py", OLD, "", ["warning"]),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py", OLD, "torch>=2.1", ["error"]),
        ("python -m torch.distributed.launch --nproc_per_node 2 train.py", OLD, "torch==1.13.1", []),
        ("deepspeed train.py", OLD, "", []),
    ],
)
def test_lines(
    line: str, script: str, pins: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = codes(
        tmp_path, f"{line} --deepspeed_config ds.json\n", monkeypatch, train__py=script, requirements__txt=f"{pins}\n"
    )
    assert [severity for severity, _ in found] == expected


def test_what_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "python -m torch.distributed.launch --nproc_per_node 2 train.py --deepspeed_config ds.json\n"
    assert codes(tmp_path, line, monkeypatch, train__py=OLD) == [
        (
            "warning",
            "torch.distributed.launch hands the script `--local-rank=0` from torch 2.0 on, which its parser does not "
            "know: it stops there",
        )
    ]
