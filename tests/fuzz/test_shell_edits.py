"""A few of the generated launch scripts, each edited by every command; `make fuzz FUZZ="shell-edits --nightly"` plays
5,000."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.bash import calls, parses
from tests.fuzz.campaign import BrokenError, put
from tests.fuzz.scripts import script
from tests.fuzz.shell_edits import CONVERT, FIX, IGNORE, MIGRATE, OTHERS, edited, project

SHARDS = range(10)
EACH = 20


@pytest.mark.parametrize("shard", SHARDS)
def test_what_bash_makes_of_other_words_stays(shard: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed: Counter[str] = Counter()
    for number in range(EACH):
        command = (MIGRATE, FIX, MIGRATE, FIX, IGNORE)[number % 5] if number else CONVERT
        folder = tmp_path / str(number)
        put(project(Random(f"quick/{shard}/{number}")), folder)
        monkeypatch.chdir(folder)
        changed[command[0]] += edited(folder, command)
    assert changed["migrate"] >= 2 and changed["lint"] >= 3
    assert not changed["convert"]  # it edits configs alone


def test_the_scripts_are_scripts() -> None:
    """bash accepts them, and they start what they are about."""
    made = [script(Random(f"bash/{number}")).replace("\r\n", "\n") for number in range(40)]
    assert all(map(parses, made))
    started = [any("train.py" in call for call in calls(one)) for one in made]
    assert sum(started) >= 36  # some of them stand in a branch that is not taken


@pytest.mark.parametrize(
    ("before", "after", "why"),
    [
        ('A=(a "$NAME")\npython "${A[@]}"\n', 'A=(a "$ --x allNAME")\npython "${A[@]}"\n', "became"),
        ("python a 'b c'\n", "python a 'b c\n", "does not accept"),
        ("echo a\npython b\n", "echo a; # python b\n", "became"),
    ],
)
def test_damage_is_noticed(before: str, after: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "run.sh").write_text(before)
    monkeypatch.setattr("tests.fuzz.shell_edits.zerocfg", lambda *_: (tmp_path / "run.sh").write_text(after))
    with pytest.raises(BrokenError, match=why):
        edited(tmp_path, MIGRATE)


MORE = " --average_tokens_across_devices False --optim adamw_torch --report_to all"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('CMD=(train.py --run_name "$NAME"{})\naccelerate launch "${{CMD[@]}}"\n', MORE),
        ('CMD=(train.py --run_name "$1"{})\naccelerate launch "${{CMD[@]}}"\n', MORE),
        ('CMD=(train.py --run_name "${{NAME}}"{})\naccelerate launch ${{CMD[@]}}\n', MORE),
        ('CMD=(train.py --run_name "pre-$NAME-post"{})\naccelerate launch "${{CMD[@]}}"\n', MORE),
        ("CMD=(train.py --run_name 'a b'{})\naccelerate launch \"${{CMD[@]}}\"\n", MORE),
        ('CMD="train.py --run_name $NAME{}"\naccelerate launch $CMD\n', MORE),
        ('CMD="train.py --run_name pre-${{NAME}}-post{}"\necho "$CMD"\naccelerate launch $CMD\n', MORE),
        ("CMD='train.py --run_name x{}'\naccelerate launch $CMD\n", MORE),
        ('CMD=(train.py)\nCMD+=(--run_name "$NAME"{})\naccelerate launch "${{CMD[@]}}"\n', MORE),
        ('for NAME in a b; do\n  CMD=(train.py --run_name "$NAME"{})\n  accelerate launch "${{CMD[@]}}"\ndone\n', MORE),
        ('CMD="accelerate launch train.py --run_name $NAME{}"\neval "$CMD"\n', MORE),
        ("bash -c 'accelerate launch train.py --run_name $NAME{}'\n", MORE),
        ('accelerate launch train.py --run_name "$NAME"{} > log\n', MORE),
        # where another program gets the same words, and where the option ends in a line that goes on, nothing is put in
        ('CMD=(--run_name "$NAME"{})\npython other.py "${{CMD[@]}}"\naccelerate launch train.py "${{CMD[@]}}"\n', ""),
        ('X="--run_name ${{OTHER:-a b}}{}"\naccelerate launch train.py $X\n', ""),
        ('X="--run_name $NAME{}"\naccelerate launch train.py "$X"\n', ""),
    ],
)
def test_words_are_put_behind_whole_words(
    before: str, after: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pins = {**OTHERS, "requirements.txt": "transformers==4.50.0\n", "run.sh": before.format("")}
    put({name: text.encode() for name, text in pins.items()}, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert edited(tmp_path, MIGRATE) == bool(after)
    assert (tmp_path / "run.sh").read_text() == before.format(after)


@pytest.mark.parametrize("comment", ["", "# zerocfg: ignore[ZC401]\n"])
def test_a_comment_is_put_into_no_text(comment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What looks like a comment there is words, and stays as well."""
    text = f"ARGS='\n--run_name x\n{comment}--num_processes 2\n'\naccelerate launch train.py $ARGS\n"
    put({**{name: one.encode() for name, one in OTHERS.items()}, "run.sh": text.encode()}, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert not edited(tmp_path, IGNORE) and not edited(tmp_path, FIX)
    assert (tmp_path / "run.sh").read_text() == text
