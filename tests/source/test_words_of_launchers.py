"""Where a launcher's own options end and its script begins, as the parsers of accelerate, torch and DeepSpeed read it;
and the words of quoted texts, as bash splits them."""

from __future__ import annotations

import subprocess

import pytest

from zerocfg.frontends.registry import programs
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.launch.shell_places import words_in_text
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.text import SourceText

# command -> launcher, options with their values, script or module, words of the script
LINES: dict[str, tuple[str, dict[str, str | None], str | None, str]] = {
    "accelerate launch train.py --a 1": ("accelerate", {}, "train.py", "--a 1"),
    "accelerate launch --cpu train.py": ("accelerate", {"--cpu": None}, "train.py", ""),
    "accelerate launch --cpu train arg": ("accelerate", {"--cpu": None}, "train", "arg"),
    "accelerate-launch --num_processes 2 train.py": ("accelerate", {"--num_processes": "2"}, "train.py", ""),
    "accelerate.exe launch t.py": ("accelerate", {}, "t.py", ""),
    "/opt/bin/accelerate launch t.py": ("accelerate", {}, "t.py", ""),
    "accelerate launch -m mine --lr 1": ("accelerate", {"-m": None}, "mine", "--lr 1"),
    "accelerate launch $ARGS train.py": ("accelerate", {}, "train.py", ""),
    "accelerate launch $ARGS --x 1 train.py": ("accelerate", {"--x": "1"}, "train.py", ""),
    "accelerate launch --new_flag train.py": ("accelerate", {"--new_flag": None}, "train.py", ""),
    "accelerate launch --new_option 3 train.py": ("accelerate", {"--new_option": "3"}, "train.py", ""),
    "accelerate launch --new_option -3 train.py": ("accelerate", {"--new_option": "-3"}, "train.py", ""),
    "accelerate launch --new_option 3": ("accelerate", {"--new_option": "3"}, None, ""),
    "accelerate launch --new_option=3 train.py": ("accelerate", {"--new_option": "3"}, "train.py", ""),
    "accelerate launch $SCRIPT --lr 1": ("accelerate", {}, "$SCRIPT", "--lr 1"),
    "accelerate launch ${D}/train.py --lr 1": ("accelerate", {}, "${D}/train.py", "--lr 1"),
    "deepspeed.pt t.py": ("deepspeed", {}, "t.py", ""),
    "deepspeed --module mine.train --x 1": ("deepspeed", {"--module": None}, "mine.train", "--x 1"),
    "deepspeed -i a:0 t.py": ("deepspeed", {"-i": "a:0"}, "t.py", ""),
    "deepspeed --num_gp 2 t.py": ("deepspeed", {"--num_gp": "2"}, "t.py", ""),
    "deepspeed --num_gpus=2 t.py a=b": ("deepspeed", {"--num_gpus": "2"}, "t.py", "a=b"),
    "deepspeed --no_ssh t.py": ("deepspeed", {"--no_ssh": None}, "t.py", ""),
    "deepspeed --no_local t.py": ("deepspeed", {"--no_local": None}, "t.py", ""),
    "torchrun -m mine.train": ("torchrun", {"-m": None}, "mine.train", ""),
    "torchrun --mod mine.train": ("torchrun", {"--mod": None}, "mine.train", ""),
    "torchrun --nproc-per-node 2 t.py": ("torchrun", {"--nproc-per-node": "2"}, "t.py", ""),
    "torchrun --nproc_per 2 t.py": ("torchrun", {"--nproc_per": "2"}, "t.py", ""),
    "torchrun --stand t.py": ("torchrun", {"--stand": None}, "t.py", ""),
    "torchrun -r 3 t.py": ("torchrun", {"-r": "3"}, "t.py", ""),
    "torchrun -- t.py --x": ("torchrun", {}, "t.py", "--x"),
    "torchrun --nnodes 2": ("torchrun", {"--nnodes": "2"}, None, ""),
    "torchrun --m 2 t.py": ("torchrun", {"--m": "2"}, "t.py", ""),
    "torchrun $X y": ("torchrun", {}, "$X", "y"),
    "python -X dev -m torch.distributed.run t.py": ("torchrun", {}, "t.py", ""),
    "python -W ignore -m deepspeed t.py": ("deepspeed", {}, "t.py", ""),
    "python3.11 -u -m accelerate.commands.launch --cpu t.py": ("accelerate", {"--cpu": None}, "t.py", ""),
    "python -m torch.distributed.launch --use_env t.py": ("torchrun", {"--use_env": None}, "t.py", ""),
    "python -m deepspeed.launcher.runner t.py": ("deepspeed", {}, "t.py", ""),
    "python -m accelerate launch t.py": ("accelerate", {}, "t.py", ""),
    "llamafactory-cli train r.yaml": ("llamafactory", {}, None, "r.yaml"),
    "lmf train r.yaml": ("llamafactory", {}, None, "r.yaml"),
    "axolotl train c.yml": ("axolotl", {}, None, "c.yml"),
    "swift rlhf --x 1": ("swift", {}, None, "--x 1"),
}


@pytest.mark.parametrize("command", LINES)
def test_options_and_script(command: str) -> None:
    (line,) = read_launch_lines(SourceText("run.sh", f"{command}\n"), programs()).lines
    options = {option.name: option.value and option.value.value for option in line.options}
    words = " ".join(word.text for word in line.arguments)
    script = line.script.text if line.script is not None else None
    assert (line.launcher, options, script, words) == LINES[command]
    assert line.module is ("mod" in command or " -m mine" in command)
    for option in line.options:
        written = option.name if option.value is None else f"{option.name}[ =]{option.value.text}"
        assert len(written.replace("[ =]", "=")) == option.span.end - option.span.start
        assert command[option.span.start :].startswith(option.name)


@pytest.mark.parametrize(
    "command",
    [
        "accelerate config",
        "llamafactory-cli export r.yaml",
        "axolotl preprocess c.yml",
        "swift infer --x 1",
        "swift",
        "python -c pass -m torch.distributed.run t.py",
        "python - -m torch.distributed.run t.py",
        "python $X -m torch.distributed.run t.py",
        "python -m $M t.py",
        "python -m accelerate config",
        "python -m mine.train --a",
        "mypython -m torch.distributed.run t.py",
        "python3.x -m torch.distributed.run t.py",
        "my-torchrun t.py",
    ],
)
def test_what_starts_no_training(command: str) -> None:
    assert read_launch_lines(SourceText("run.sh", f"{command}\n"), programs()).lines == []


TEXTS = (
    '"--lr $LR --name ${NAME:-plain} x"',
    '"$(echo a) b `echo c` d"',
    '"$((1 + 2)) $(echo $(echo z))x y"',
    '"$1 $# $@x"',
    '"a\\$b c  \\"d\\" $LR$LR"',
    '"  a\n b\t"',
    '"${NAME:-"q"} r"',
    "'a $LR  b'",
    '"$"',
    '"a $ b"',
    "\"a $'b c' d\"",
)


@pytest.mark.parametrize("text", TEXTS)
def test_words_of_a_text_with_expansions(text: str) -> None:
    """What is in the places of the words gives, in quotes, the words that bash splits the text into."""
    found = [text[start:end] for start, end in words_in_text(Chars(text, range(len(text))))]
    quote = text[0]
    each = " ".join(f"{quote}{word}{quote}" for word in found)
    script = f"LR=1e-5; NAME=; set -- one\na={text}; printf '[%s]' $a; echo; printf '[%s]' {each}; echo"
    ran = subprocess.run(["bash", "-c", f"set -f; {script}"], capture_output=True, text=True, check=True)
    split, again = ran.stdout.splitlines()
    assert split == again and found != []


@pytest.mark.parametrize(
    "words",
    [
        ["`echo a`", "x"],
        ["$$(echo a)", "'d  e'"],
        ["x", "`echo a`"],
        ["$(NAME)", "y"],
    ],
)
def test_words_of_a_recipe_have_their_places(words: list[str]) -> None:
    """A dollar of the shell is written twice there, so that no character stands where the shell has it."""
    text = f"all:\n\tX=$$HOME torchrun t.py {' '.join(words)}\n"
    (line,) = read_launch_lines(SourceText("Makefile", text)).lines
    found = [(word.exact, text[slice(*word.span)]) for word in line.arguments]
    assert found == [(True, word) for word in words]


def test_the_output_of_a_command_as_a_word() -> None:
    text = "torchrun t.py <() y\n"
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    assert [word.text for word in line.arguments] == ["<()", "y"]
    text = "torchrun t.py <(echo a b) x\n"
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    assert [(word.exact, word.text, word.value) for word in line.arguments] == [
        (True, "<(echo a b)", None),
        (True, "x", "x"),
    ]


@pytest.mark.parametrize(
    ("sum_", "value"),
    [
        ("9" * 18, "9" * 18),
        ("-" + "9" * 18, "-" + "9" * 18),
        ("1" + "0" * 18, None),
        ("9" * 18 + "+1", None),
        ("9" * 18 + "*0", "0"),
        ("007", None),
        ("0", "0"),
    ],
)
def test_the_largest_number_of_a_sum(sum_: str, value: str | None) -> None:
    (line,) = read_launch_lines(SourceText("run.sh", f"torchrun t.py $(({sum_}))\n")).lines
    assert line.arguments[0].value == value


@pytest.mark.parametrize(("length", "value"), [(500, "125"), (501, None)])
def test_the_longest_sum(length: int, value: str | None) -> None:
    expression = "1+" * 124 + "1"
    text = f"torchrun t.py $(({expression.rjust(length)}))\n"
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    assert line.arguments[0].value == value


def test_words_of_an_assigned_text_have_their_places() -> None:
    """Each that the text holds as a whole can be edited there; one that is put together cannot."""
    text = "A='--lr 1e-5 --x'\nB=\"--y $N z\"\nC=one\nN=3\ntorchrun t.py $A $B $C a$C\n"
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    found = [(word.exact, text[slice(*word.span)]) for word in line.arguments]
    assert found[:4] == [(True, "--lr"), (True, "1e-5"), (True, "--x"), (True, "--y")]
    assert (True, "z") in found and found[-2:] == [(True, "$C"), (True, "a$C")]
    starts = [word.span.start for word in line.arguments[:4]]
    assert starts == [text.index(item) for item in ("--lr", "1e-5", "--x", "--y")]


@pytest.mark.parametrize(("levels", "value"), [(1, "x"), (11, "x"), (12, None)])
def test_defaults_inside_of_each_other(levels: int, value: str | None) -> None:
    text = f"torchrun t.py {'${A:-' * levels}x{'}' * levels}\n"
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    assert line.arguments[0].value == value


def test_outputs_of_commands_that_print_a_path() -> None:
    text = 'A=a/b/c.sh\ntorchrun t.py `dirname $A` x`basename $A .sh`y $(dirname $(dirname $A)) "`dirname $A`"\n'
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    assert [word.value for word in line.arguments] == ["a/b", "xcy", "a", "a/b"]


@pytest.mark.parametrize(("levels", "found"), [(1, 1), (6, 1), (7, 0)])
def test_commands_that_programs_hand_on(levels: int, found: int) -> None:
    text = f"{'python x.py -- ' * levels}torchrun t.py\n"
    assert len(read_launch_lines(SourceText("run.sh", text)).lines) == found


def test_the_longest_word() -> None:
    """Twenty thousand characters, whatever they are put together of."""
    for length, known in ((20_000, True), (20_001, False)):
        half = "x" * 10_000
        for word in ("y" * length, f"${{A}}{'y' * (length - 10_000)}", f"'{half}'\"$A\"{'y' * (length - 20_000)}"):
            (line,) = read_launch_lines(SourceText("run.sh", f"A={half}\ntorchrun t.py {word}\n")).lines
            value = line.arguments[0].value
            assert (value is not None) is known and (value is None or len(value) == length)


def test_a_launcher_behind_an_option_needs_a_script() -> None:
    """`docker build -t deepspeed .` names an image."""
    for command, found in (
        ("srun --exclusive torchrun train.py", 1),
        ("srun --exclusive torchrun $SCRIPT", 1),
        ("srun --exclusive torchrun train", 0),
        ("srun --exclusive torchrun -m train", 1),
        ("docker run -t deepspeed .", 0),
        ("torchrun train --flag", 1),
        ("docker build -t deepspeed train.py", 0),
    ):
        assert len(read_launch_lines(SourceText("run.sh", f"{command}\n"), programs()).lines) == found, command


def test_patterns_of_a_case_are_no_commands() -> None:
    text = (
        "A=1\nB=1\ncase $X in\n  torchrun|A=2) B=2 ;;\n  (accelerate launch) torchrun b.py ;;\n"
        "  x) torchrun c.py $A $B\nesac\ncase in in in) torchrun d.py;; esac\ntorchrun e.py $A $B\n"
    )
    lines = read_launch_lines(SourceText("run.sh", text)).lines
    found = [(line.script and line.script.value, [word.value for word in line.arguments]) for line in lines]
    assert found == [("b.py", []), ("c.py", ["1", "1"]), ("d.py", []), ("e.py", ["1", None])]


def test_variables_that_a_loop_sets() -> None:
    """Within it and behind it only the running shell knows them; others stay as they are."""
    text = "A=1\nB=1\nC=1\nfor A in 2 3; do torchrun a.py $A $B; done\ntorchrun b.py $A $B\n"
    text += "select C in x; do torchrun c.py $C $B; done\nfor ((B=0; B<2; B++)); do torchrun d.py $B; done\n"
    lines = read_launch_lines(SourceText("run.sh", text)).lines
    assert [[word.value for word in line.arguments] for line in lines] == [
        [None, "1"],
        [None, "1"],
        [None, "1"],
        [None],
    ]


def test_variables_of_make_that_never_end() -> None:
    for written in ("$(A", "${A", "$(A$(B)", "$"):
        lines = read_launch_lines(SourceText("Makefile", f"all:\n\ttorchrun t.py --x {written}")).lines
        assert [line.script and line.script.value for line in lines] in ([], ["t.py"])


def test_a_command_that_is_nothing() -> None:
    text = "A=\n$A\n$A $A; torchrun t.py\n"
    lines = read_launch_lines(SourceText("run.sh", text)).lines
    assert [line.script and line.script.value for line in lines] == ["t.py"]


def test_commands_of_a_program_in_python() -> None:
    """Lists are words as they are, and texts where a shell reads them; edits are made in neither."""
    text = (
        "import subprocess, os\nsubprocess.run(['torchrun', 'a.py', '--x', value, 'b\\n'])\n"
        "subprocess.run('torchrun b.py $Y', shell=True)\nsubprocess.run('torchrun c.py')\nos.system('torchrun d.py')\n"
        "subprocess.check_call('torchrun e.py', shell=False)\nother.run(['torchrun', 'f.py'])\n"
    )
    lines = read_launch_lines(SourceText("go.py", text)).lines
    assert [line.script and line.script.value for line in lines] == ["a.py", "b.py", "d.py"]
    first = [(word.text, word.value, word.exact) for word in lines[0].arguments]
    assert first == [("'--x'", "--x", False), ("value", None, False), ("'b\\n'", "b\n", False)]
    assert [(word.text, word.value) for word in lines[1].arguments] == [("$Y", None)]
    assert all(text[slice(*word.span)] == word.text for line in lines for word in line.arguments)
