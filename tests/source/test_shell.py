"""Launch lines are read as the shell and the launchers' own parsers read them."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.catalog.history import histories
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.launch.launchers import GRAMMARS, spelled
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.text import SourceText


def lines(text: str, name: str = "run.sh") -> list[LaunchLine]:
    return read_launch_lines(SourceText(name, text)).lines


def one(text: str, name: str = "run.sh") -> LaunchLine:
    (line,) = lines(text, name)
    return line


def options(line: LaunchLine) -> dict[str, str | None]:
    return {option.name: option.value and option.value.value for option in line.options}


def script_options(line: LaunchLine) -> dict[str, str | None]:
    return {option.name: option.value and option.value.value for option in line.script_options}


def test_a_launch_over_several_lines_keeps_its_places() -> None:
    text = (
        "#!/bin/bash\nGPUS=8; NODES=$((1 + 1))\nexport NCCL_DEBUG=INFO # c\ncd examples\n"
        'CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file "c/${STAGE:-zero3}.yaml" \\\n'
        "  --num_processes $((GPUS*NODES)) --mixed_precision=bf16 --multi_gpu \\\n"
        "  train.py --lr 1e-5 --flag --deepspeed ds.json > log 2>&1 &\n"
    )
    line = one(text)
    assert options(line) == {
        "--config_file": "c/zero3.yaml",
        "--num_processes": "16",
        "--mixed_precision": "bf16",
        "--multi_gpu": None,
    }
    assert line.script is not None
    assert line.script.value == "train.py"
    assert script_options(line) == {"--lr": "1e-5", "--flag": None, "--deepspeed": "ds.json"}
    assert line.environment == {"NCCL_DEBUG": "INFO", "CUDA_VISIBLE_DEVICES": "0,1"}
    assert line.directory == "examples"
    assert text[slice(*line.span)].startswith("CUDA_VISIBLE")
    for option in (*line.options, *line.script_options):
        assert text[slice(*option.span)].startswith(option.name)
        assert option.value is None or text[slice(*option.value.span)] == option.value.text
    assert line.options[0].value is not None
    assert line.options[0].value.text == '"c/${STAGE:-zero3}.yaml"'


@pytest.mark.parametrize(
    ("command", "launcher", "script", "module"),
    [
        ("accelerate-launch t.py", "accelerate", "t.py", False),
        ("python -m accelerate.commands.launch --use_fsdp t.py", "accelerate", "t.py", False),
        ("torchrun --nproc-per-node=8 -m pkg.train", "torchrun", "pkg.train", True),
        ("torchrun --rdzv_endp host:1 t.py", "torchrun", "t.py", False),
        ("python3.10 -u -m torch.distributed.launch --use_env t.py", "torchrun", "t.py", False),
        ("deepspeed --include localhost:0,1 --module pkg", "deepspeed", "pkg", True),
        ("srun -N 2 --exclusive nohup deepspeed t.py", "deepspeed", "t.py", False),
        ("python train.py --deepspeed ds.json", "python", "train.py", False),
        ("env A=1 sudo -E /opt/bin/deepspeed --num_gpus 2 t.py", "deepspeed", "t.py", False),
        ("srun bash -c 'deepspeed t.py'", "deepspeed", "t.py", False),
        ('CMD="deepspeed t.py"; srun bash -c "$CMD --x"', "deepspeed", "t.py", False),
        ('CMD="deepspeed t.py"; $CMD', "deepspeed", "t.py", False),
        ('eval "deepspeed t.py"', "deepspeed", "t.py", False),
        ("if true; then deepspeed t.py; fi", "deepspeed", "t.py", False),
        ("uv run deepspeed t.py", "deepspeed", "t.py", False),
        ("docker run -it image deepspeed t.py", "deepspeed", "t.py", False),
        ("python queue.py --gpus 8 -- accelerate launch t.py", "accelerate", "t.py", False),
        ("uv run python q.py --nodes 2 -- pip install x \\&\\& torchrun -m pkg", "torchrun", "pkg", True),
        ("python q.py -- bash -c 'deepspeed t.py'", "deepspeed", "t.py", False),
    ],
)
def test_launches_that_are_found(command: str, launcher: str, script: str, module: bool) -> None:
    line = one(command)
    assert line.script is not None
    assert (line.launcher, line.script.value, line.module) == (launcher, script, module)


@pytest.mark.parametrize(
    "command",
    [
        "pip install deepspeed",
        "conda install -c x deepspeed",
        "docker build -t deepspeed .",
        "which deepspeed",
        "command -v deepspeed",
        "deepspeed --version",
        "accelerate config",
        "echo deepspeed t.py",
        "# deepspeed t.py",
        "cat <<EOF\ndeepspeed t.py\nEOF",
        "python train.py --lr 1",
        "'deepspeed t.py'",
        "python queue.py -- python t.py --lr 1",
        "python queue.py --name accelerate launch t.py",
    ],
)
def test_what_is_no_launch(command: str) -> None:
    assert lines(command) == []


@pytest.mark.parametrize(
    ("command", "launcher"),
    [
        ("${HOME}/.local/bin/accelerate launch train.py", "accelerate"),
        ('"$VENV/bin/torchrun" train.py', "torchrun"),
    ],
)
def test_launches_behind_what_is_not_known(command: str, launcher: str) -> None:
    found = one(command)
    assert (found.launcher, found.script and found.script.value) == (launcher, "train.py")


@pytest.mark.parametrize(
    "command",
    ["$VENV/$TOOL launch train.py", "python submit.py -- echo accelerate launch train.py", "python submit.py torchrun"],
)
def test_words_that_only_look_like_a_launch(command: str) -> None:
    assert [line for line in lines(command) if line.launcher != "python"] == []


def test_a_program_for_a_queue_may_tell_the_machines_itself() -> None:
    line = one("python queue.py --nodes 2 -- accelerate launch --num_processes 8 --mixed_precision bf16 t.py --lr 1")
    assert options(line) == {
        "--mixed_precision": "bf16",
        **dict.fromkeys(("--num_processes", "--num_machines", "--machine_rank", "--main_process_ip"), None),
        "--main_process_port": None,
    }
    assert all(option.value is not None for option in line.options)
    assert script_options(line) == {"--lr": "1"}


def test_blocks_of_a_page_that_nobody_closed() -> None:
    text = "```bash\ntorchrun a.py\n\nText.\n\n```bash\ntorchrun b.py\n```\n\ntorchrun c.py\n"
    assert [line.script and line.script.value for line in lines(text, "page.md")] == ["a.py", "b.py"]


def test_a_session_that_is_called_by_another_language() -> None:
    text = "```python\n$ torchrun a.py\nstep 1\n```\n```python\ntorchrun b.py\n```\n"
    assert [line.script and line.script.value for line in lines(text, "page.md")] == ["a.py"]


def test_a_variable_that_differs_between_branches_is_unknown() -> None:
    text = "if x; then B=1; C=5; else B=2; C=5; fi\nfor i in 1 2; do deepspeed t.py --b $B --c $C --i $i; done"
    assert script_options(one(text)) == {"--b": None, "--c": "5", "--i": None}
    assert script_options(one("B=1\nif x; then B=2; fi\ndeepspeed t.py --b $B"))["--b"] is None
    assert script_options(one("B=1\n(B=2)\ndeepspeed t.py --b $B"))["--b"] == "1"


@pytest.mark.parametrize(
    "end", ["> >(tee out.log)", "> >(tee out.log) 2> >(tee err.log >&2)", "&> >(grep -v '(x)')", "\\", "\\\r\n"]
)
def test_what_stands_behind_the_options_hides_none(end: str) -> None:
    line = one(f"torchrun train.py --deepspeed ds.json --bf16 {end}")
    assert script_options(line) == {"--deepspeed": "ds.json", "--bf16": None}


def test_the_output_of_a_command_as_a_file_is_unknown() -> None:
    line = one("torchrun train.py --config <(sed s/a/b/ x.yaml) --bf16\n")
    assert script_options(line) == {"--config": None, "--bf16": None}
    assert line.script_options[0].value is not None


def test_makefile_recipes() -> None:
    text = "GPUS ?= 8\nexport OMP := 1\nall: x\n\t@deepspeed --num_gpus $(GPUS) t.py --a $$HOME --b $(NO)\n"
    line = one(text, "Makefile")
    assert options(line) == {"--num_gpus": "8"}
    assert script_options(line) == {"--a": None, "--b": None}
    assert line.environment == {"OMP": "1"}
    assert text[slice(*line.span)].startswith("deepspeed --num_gpus $(GPUS)")


def test_markdown_blocks() -> None:
    text = (
        "# use\n\n```bash\ndeepspeed a.py <args> --deepspeed\n```\n~~~python\ndeepspeed b.py\n~~~\n"
        "- x\n  ```console\n  $ accelerate launch \\\n      --cpu c.py\n  deepspeed out.py\n  ```\ndeepspeed d.py\n"
    )
    assert [line.script and line.script.value for line in lines(text, "README.md")] == ["a.py", "c.py"]
    assert script_options(lines(text, "README.md")[0]) == {"--deepspeed": None}


@pytest.mark.parametrize(
    ("written", "script"),
    [
        ("{number of gpus} -m a.b", "a.b"),
        ("${N} c.py", "c.py"),
        ("<number of gpus> c.py", "c.py"),
    ],
)
def test_a_placeholder_of_several_words_is_one(written: str, script: str) -> None:
    (line,) = lines(f"```\ntorchrun --nproc_per_node {written} --bf16\n```\n", "README.md")
    assert line.script is not None and line.script.value == script


WORDS = st.sampled_from(
    [
        "a",
        "$A",
        "${A}",
        '"$A"',
        "'$A x'",
        "${B[@]}",
        '"${B[@]}"',
        "${C:-d e}",
        '"${C:-d e}"',
        "\\$A",
        "a\\ b",
        '"x\\"y"',
        "$((N*2+1))",
        "$'q\\tr'",
        '""',
        "${A}b",
        "$N$N",
        "pre${B}",
        '"${E:=f}"',
        "$((7/2-N))",
        '"a b"c',
        "\\\n",
        "${#A}",
    ]
)


@settings(max_examples=60, deadline=None)
@given(st.lists(WORDS, min_size=1, max_size=6))
@pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="no bash here")
def test_words_expand_as_in_bash(words: list[str]) -> None:
    setup = 'A="one two"; B=(p "q r"); N=3\nB+=(s)\n'
    written = " ".join(words)
    line = one(f"{setup}deepspeed t.py {written}\n")
    ran = subprocess.run(
        ["/bin/bash", "-c", f"{setup}printf '%s\\0' t.py {written}"],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    expected = ran.stdout.split("\0")[1:-1]
    mine = [word.value for word in line.arguments]
    if any("#" in word for word in words):
        expected = [None if e.isdigit() and m is None else e for e, m in zip(expected, mine, strict=True)]
    assert mine == expected


PIECES = st.sampled_from(
    [
        *"\"'`$(){}[]<>|&;\\\n\t #=:-+*/!",
        "if ",
        "fi\n",
        "case ",
        "esac",
        "done",
        "<<E\n",
        "${A:-",
        "$((",
        "A=(",
        "eval ",
        "deepspeed ",
        "torchrun ",
        "accelerate launch ",
        "bash -c ",
        "```\n",
        "\n\t",
        "$(A)",
        "export A=1\n",
        "é\0",
    ]
)


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=40).map("".join), st.sampled_from(["a.sh", "Makefile", "a.md"]))
def test_no_text_raises_and_every_span_is_inside(text: str, name: str) -> None:
    for line in lines(text, name):
        assert 0 <= line.span.start < line.span.end <= len(text)
        for word in (*line.arguments, *(o.value for o in (*line.options, *line.script_options) if o.value)):
            assert 0 <= word.span.start <= word.span.end <= len(text)


def calls(text: str) -> int:
    """How many functions, of Python and of C, are called to read a text: its work, the same on every machine."""
    seen = 0

    def called(frame: FrameType, event: str, argument: object) -> None:
        nonlocal seen
        seen += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(called)
    try:
        lines(text)
    finally:
        sys.setprofile(before)
    return seen


@pytest.mark.parametrize(
    ("text", "length"),
    [
        (lambda n: 'deepspeed "$(' * n, 20_000),
        (lambda n: "A=($A $A)\n" * n + "deepspeed ${A[@]}", 200),
        (lambda n: 'A="$A$A x"\n' * n + "deepspeed $A", 200),
        (lambda n: "deepspeed ${A:-" * n, 20_000),
        (lambda n: "deepspeed $((" + "(" * n, 50_000),
        (lambda n: "if x; then A=1\ndeepspeed t.py\n" * n, 3_000),
    ],
    ids=["substitutions", "arrays that double", "texts that double", "defaults", "brackets", "branches"],
)
def test_hostile_texts_take_work_in_proportion(text: Callable[[int], str], length: int) -> None:
    lines(text(length))
    assert calls(text(length // 5)) <= 2.1 * calls(text(length // 10))


def table(parser: argparse.ArgumentParser) -> tuple[set[str], set[str]]:
    flags: set[str] = set()
    valued: set[str] = set()
    for action in parser._actions:
        assert not action.option_strings or action.nargs in (0, None)
        (flags if action.nargs == 0 else valued).update(spelled(name) for name in action.option_strings)
    return flags, valued


def test_flags_of_accelerate_are_those_of_all_walked_releases() -> None:
    """This package may not read the facts, so the names are written there a second time."""
    walked = {"-h", "--help"}
    for key, history in histories("accelerate").raw.items():
        for _, state in history:
            if key.startswith("option.") and state is not None and state.get("action") in ("StoreTrue", "StoreConst"):
                walked |= {key.replace("option.", "--"), *map(spelled, state.get("aliases", ()))}
    walked -= {"--tpu_use_cluster"}  # the name under which --tpu_cluster and its opposite are kept
    before = {"--fp16", "--mps", "--use_mps_device"}
    assert GRAMMARS["accelerate"].flags == walked | before


@pytest.mark.libs
def test_tables_agree_with_the_installed_launchers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("deepspeed")
    from accelerate.commands.launch import launch_command_parser
    from torch.distributed.run import get_args_parser

    flags, _ = table(launch_command_parser())
    grammar = GRAMMARS["accelerate"]
    older = {"--fp16", "--ipex", "--use_xpu", "--use_tp", "--mps", "--use_mps_device"}
    assert grammar.flags - older == flags
    flags, valued = table(get_args_parser())
    assert (GRAMMARS["torchrun"].flags - {"--use_env"}, GRAMMARS["torchrun"].valued) == (flags, valued)

    import deepspeed.launcher.runner as runner

    seen: list[argparse.ArgumentParser] = []
    real = argparse.ArgumentParser.parse_args

    def parse_args(self: argparse.ArgumentParser, *args: Any, **kwargs: Any) -> Any:
        seen.append(self)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", parse_args)
    runner.parse_args(["t.py"])
    assert (GRAMMARS["deepspeed"].flags, GRAMMARS["deepspeed"].valued) == table(seen[0])


def test_reading_imports_nothing_heavy() -> None:
    code = (
        "import sys, zerocfg.source.load, zerocfg.source.launch.shell, zerocfg.source.edit\n"
        "print([m for m in ('difflib', 'tempfile', 'pydantic', 'subprocess') if m in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, check=True, text=True)
    assert ran.stdout.strip() == "[]"


@pytest.mark.parametrize(("doublings", "known"), [(10, True), (30, False)])
def test_an_array_that_doubles_is_unknown_in_the_end(doublings: int, known: bool) -> None:
    """Thirty lines would make three thousand million words of three."""
    text = "A=(a b c)\n" + 'A=("${A[@]}" "${A[@]}")\n' * doublings + 'accelerate launch train.py "${A[@]}" end\n'
    (line,) = lines(text)
    assert line.script is not None and line.script.value == "train.py"
    last = [word.value for word in line.arguments[-3:]]
    assert last == (["b", "c", "end"] if known else [None, "end"])


def test_an_array_that_grows_line_by_line_is_unknown_in_the_end() -> None:
    (line,) = lines("A=(a)\n" + 'A+=("${A[@]}")\n' * 40 + 'accelerate launch train.py "${A[@]}"\n')
    assert [word.value for word in line.arguments] == [None]
