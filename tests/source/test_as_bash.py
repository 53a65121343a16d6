"""Whole scripts: each launch as bash makes it, with its words, the variables that it hands on and the folder that it
starts in. Where zerocfg says a value it is bash's; how much it leaves open stands beside each script."""

from __future__ import annotations

import os
import posixpath
import re
import subprocess
from pathlib import Path

import pytest

from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText

AGAIN = -1
"""Stands for none open where bash goes through a function several times: it counts as it is started first."""
SCRIPTS: dict[str, tuple[str, int]] = {
    # arithmetic
    "sums": ("torchrun t.py $((1+2*3)) $(((1+2)*3)) $((9-2-3)) $((2*3%4)) $((7%4*2)) $((12/2/3)) $((2+3-4))", 0),
    "rounding": ("torchrun t.py $((7/2)) $((-7/2)) $((7/-2)) $((-7%3)) $((7%-3)) $((-7/-2)) $((0/5)) $((0%5))", 0),
    "signs": ("torchrun t.py $((+3)) $((- -3)) $((-(2+1))) $((2*-3)) $((  4  ))", 0),
    "names in sums": ("N=3; M=4; torchrun t.py $((N*M)) $(( $N + M )) $((N-M))", 0),
    "octal": ("torchrun t.py $((010)) $((0))", 1),
    "not sums": ("N=3; torchrun t.py $((N**2)) $((N>2)) $((N==3?1:2))", 3),
    "set by let": ("N=3; let N=N+1; M=1; ((M=5)); torchrun t.py $N $M", 2),
    "compared, not set": ("N=3; ((N==3)); ((N<=4)); torchrun t.py $N", 0),
    "counted up": ("N=3; M=3; ((N++)); ((--M)) ; torchrun t.py $N $M", 2),
    # variables
    "appended": ("A=x; A+=y; B+=z; torchrun t.py $A $B", 1),
    "arrays": ('A=(1 "2 3"); A+=(4); torchrun t.py "${A[@]}" ${A[1]} "${A[1]}" ${#A[@]}', 3),
    "array by star": ('A=(1 2); torchrun t.py "${A[*]}" ${A[*]} $A', 0),
    "one item set": ("A=(1 2); A[0]=3; torchrun t.py ${A[0]}", 1),
    "unset": ('A=1; unset A; torchrun t.py x "$A" ${A:-y}', 1),
    "read": ("A=1; read A <<< 2; torchrun t.py $A", 1),
    "several reads": ("A=1; B=2; read -r A B <<< '3 4'; torchrun t.py $A $B", 2),
    "mapfile": ("A=(1); mapfile -t A < /dev/null; torchrun t.py x ${A[@]}", 1),
    "declared": ("declare A=1; readonly B=2; typeset C=3; torchrun t.py $A $B $C", 0),
    "handed on": ("A=1; export A; export B=2; C=3; torchrun t.py; A=4; torchrun t.py", 0),
    "handed on by declare": ("declare -x A=1; declare -r B=2; torchrun t.py", 0),
    "all handed on": ("A=1; set -a; B=2; torchrun t.py", 0),
    "all handed on by name": ("set -o allexport; A=1; torchrun t.py", 0),
    "nothing handed on": ("set -e; set -x; A=1; torchrun t.py", 0),
    "for one command": ("A=1 B=2 torchrun t.py; torchrun t.py", 0),
    "for one command, over": ("export A=1; A=2 torchrun t.py; torchrun t.py", 0),
    "by env": ("env A=1 B=2 torchrun t.py", 0),
    "no assignment": ("torchrun t.py A=1 =2 a-b=3", 0),
    # forms of expansion
    "defaults": ("A=; B=b; torchrun t.py ${A:-1} ${B:-1} ${B-1} ${C:-2} ${C-3} x${A-1}", 0),
    "defaults in quotes": ('torchrun t.py "${A:-"x y"}" "${A:-\'x\'}" "${A:-x"y z"w}" ${A:-"x y"}', 0),
    "alternatives": ("B=b; torchrun t.py ${B:+1} ${B+2}", 2),
    "cut from the end": ("A=a.b.c; torchrun t.py ${A%.*} ${A%%.*} ${A%.c} ${A%x}", 4),
    "cut from the start": ("A=a/b/c; torchrun t.py ${A#*/} ${A##*/} ${A#a/} ${A#x}", 3),
    "length": ("A=abc; torchrun t.py ${#A}", 1),
    "replaced": ("A=a-b-c; torchrun t.py ${A/-/_} ${A//-/_}", 2),
    "parts": ("A=abcdef; torchrun t.py ${A:2} ${A:1:3} ${A:0:1}", 3),
    "letters": ("A=aB; torchrun t.py ${A^^} ${A,,} ${A^}", 3),
    "quotes": ("A='x  y'; torchrun t.py \"$A\" $A '$A' \"\\$A\" \\$A a\"b\"'c'", 0),
    "dollar quotes": ("torchrun t.py $'a\\tb' $'it\\'s'", 0),
    "tilde and stars": ("torchrun t.py '*' \"~\" \\*", 0),
    "a joined line": ("torchrun \\\n  t.py --a \\\n  1 # --b 2\n", 0),
    "output of a command": ("A=$(echo 3); torchrun t.py $A `echo 4` $(echo 5)", 3),
    "comments": ("# torchrun a.py\ntorchrun t.py a#b '#c' #d\n", 0),
    # folders
    "cd": ("cd a; torchrun t.py; cd b; torchrun t.py; cd ..; torchrun t.py; cd ../c; torchrun t.py", 0),
    "cd with options": ("cd -- a; torchrun t.py; cd -P b; torchrun t.py; cd -L ..; torchrun t.py", 0),
    "cd in a subshell": ("(cd a; torchrun t.py); torchrun t.py; { cd c; }; torchrun t.py", 0),
    "pushd": ("pushd a > /dev/null; torchrun t.py", 0),
    "cd and": ("cd a && torchrun t.py", 0),
    "cd to a variable": ("D=a/b; cd $D; torchrun t.py", 0),
    "pushd and popd": ("pushd a > /dev/null; popd > /dev/null; torchrun t.py", 0),
    "folders of paths": (
        "torchrun t.py $(dirname a/b/c) $(dirname a) $(dirname a/b/) $(dirname /a) $(dirname -- x/y)",
        0,
    ),
    "last parts of paths": (
        "torchrun t.py $(basename a/b.sh) $(basename a/b.sh .sh) $(basename b/) $(basename sh sh)",
        0,
    ),
    "whole paths": ("torchrun t.py $(realpath -m /a/../b) $(readlink -m /a/./b) $(realpath -m /a//b/)", 0),
    "of several, and of options": ("torchrun t.py $(realpath -m /a /b) $(dirname a/b c/d) $(basename -a x/y)", 3),
    "cut by a folder": ("A=a/b/c.sh; torchrun t.py ${A%/*} ${A##*/}", 0),
    "products": ("torchrun t.py $((-7*2)) $((-8/-2)) $((-1/2)) $((1/-2)) $((-9%4)) $((9%4*-1)) $((0*-3)) $((-0/3))", 0),
    # compound commands
    "subshell": ("A=1; (A=2; torchrun t.py $A); torchrun t.py $A", 0),
    "group": ("A=1; { A=2; torchrun t.py $A; }; torchrun t.py $A", 0),
    "branch": ("A=1; if true; then A=2; fi; torchrun t.py $A", 1),
    "branches that agree": ("if true; then A=2; else A=2; fi; torchrun t.py $A", 0),
    "branches that differ": ("if true; then A=2; elif false; then A=3; else A=4; fi; torchrun t.py $A", 1),
    "within a branch": ("A=1; if true; then A=2; torchrun t.py $A; fi", 0),
    "case": ("A=1; case x in y) A=2;; x) A=3; torchrun t.py $A;; esac; torchrun t.py $A", 1),
    "dollar quotes in quotes": ("torchrun t.py \"$'a b'\" \"x$'\" \"$'\\''\"", 0),
    "a here-document in an output": ("A=$(cat << E\nit's ) (here\nE\n)\ntorchrun t.py 1", 0),
    "two here-documents in an output": ("A=$(cat << E; cat << F\n) '\nE\n( \"\nF\n)\ntorchrun t.py 1", 0),
    "shifted in an output": ("A=$(echo $((1 << 2)) ')')\ntorchrun t.py 1", 0),
    "declared by name": ("A=1; B=2; C=3; declare A; declare -x B; export C; torchrun t.py", 0),
    "what looks like a here-document": ('A="x << y\n"; torchrun t.py 1\ny\n', 0),
    "translated texts": ('A=1; torchrun t.py $"a b" x$"$A" "$" $ a$ "a$" "$ b" $""', 0),
    "a pattern that looks like a command": ("A=1; case x in A=2) true;; esac; torchrun t.py $A", 0),
    "arrays of branches": ("if true; then A=(1 2); else A=(1 3); fi; torchrun t.py ${A[0]}", 1),
    "arrays of branches that agree": ("if true; then A=(1 2); else A=(1 2); fi; torchrun t.py ${A[1]} ${A[0]}", 1),
    "an array or a text": ("if true; then A=(1 2); else A=1; fi; torchrun t.py ${A[0]}", 1),
    "a text or an array": ("if false; then A=1; else A=(1 2); fi; torchrun t.py ${A[0]}", 1),
    "case over lines": ("case x in\n  (x|y)\n    torchrun t.py 1\n    ;;\nesac\ntorchrun t.py 2\n", 0),
    "loop": ("for A in 1; do torchrun t.py $A; done; torchrun t.py $A", 1),
    "loop over an array of one": ('B=(x/y); for A in "${B[@]}"; do torchrun t.py $A/z; done', 0),
    "loop over what matches": ("for A in c/*; do torchrun t.py $A; done", 1),
    "loop over braces": ("for A in {1..1}; do torchrun t.py $A; done", 1),
    "loop that counts": ("for ((A=1; A<2; A++)); do torchrun t.py $A; done", 1),
    "set in a loop": ("A=1; for B in 1 2; do A=2; done; torchrun t.py $A", 1),
    "while": ("A=1; while true; do A=2; break; done; torchrun t.py $A x", 1),
    "until": ("until false; do torchrun t.py; break; done", 0),
    "negated": ("! torchrun t.py 1; torchrun t.py 2", 0),
    "pipes": ("torchrun t.py 1 | cat; torchrun t.py 2 2>&1 | tee /dev/null; torchrun t.py 3 &\nwait", 0),
    "function": ("f() { torchrun t.py 1; }\nf", 0),
    "function in a folder": ("f() { torchrun t.py; }\ncd a; f", 0),
    "function that leaves its folder": ("f() { torchrun t.py $1; cd a/b; }\nf; torchrun t.py 2", 1),
    "function that changes the folder": ("f() { cd a; }\ntorchrun t.py 1; f; torchrun t.py 2", 0),
    "function that nothing calls": ("f() { cd a; A=2; }\nA=1; torchrun t.py $A", 0),
    "function in a subshell": ("f() { cd a; torchrun t.py 1; }\n(f); torchrun t.py 2; f", AGAIN),
    "function in parentheses": ("f() ( cd a; torchrun t.py 1 )\nf; torchrun t.py 2", 0),
    "function that sets": ("f() { A=2; }\nA=1; torchrun t.py $A; f; torchrun t.py $A", 0),
    "function with variables of its own": (
        "f() { local A=2; declare B=3; C=4; torchrun t.py $A $B; }\nA=1; f; torchrun t.py $A ${B:-x} $C",
        0,
    ),
    "function set up later": ("f() { torchrun t.py $A; }\nA=1; f", 0),
    "function that calls another": (
        "main() {\n  cd a\n  run\n}\nfunction run() {\n  torchrun t.py 1\n}\nmain\ntorchrun t.py 2",
        0,
    ),
    "function that calls itself": ("f() { torchrun t.py ${A:-1}; if [ -z $A ]; then A=2; f; fi; }\nf", AGAIN),
    "function with braces in it": ("f() { A={}; { torchrun t.py ${A}; }; if true; then { A=}; }; fi; }\nf", 0),
    "function with a here-document": ("f() { cat > /dev/null << E\n}\nE\ncd a; }\nf; torchrun t.py", 0),
    "function with its word": ("function f {\n  torchrun t.py 1\n}\nf\ntorchrun t.py 2", 0),
    "redirects": ("torchrun t.py 1 > /dev/null 2>&1 3 < /dev/null", 0),
    "here-document": ("cat > /dev/null << EOF\ntorchrun x.py\nEOF\ntorchrun t.py 1", 0),
    # programs that start it
    "eval": ("A='torchrun t.py 1'; eval $A; eval \"torchrun t.py '2 3'\"", 0),
    "a shell in a shell": (
        "A=1; bash -c 'torchrun t.py 2'; bash -ec \"torchrun t.py $A\"; sh -c 'torchrun t.py x y'",
        0,
    ),
    "a shell with a script": ("bash ./other.sh torchrun a.py; torchrun t.py", 0),
    "exec and its like": ("nohup torchrun t.py 1 2> /dev/null; command torchrun t.py 2; time torchrun t.py 3", 0),
    "a wrapper with options": ("nice -n 0 torchrun t.py 1; timeout 60 torchrun t.py 2; env -u Z torchrun t.py 3", 0),
    "behind a path": ("./bin/torchrun t.py 1", 0),
    "launch line in a variable": ("A='torchrun t.py'; $A 1", 0),
    "printed, not started": (
        "echo torchrun a.py > /dev/null; printf '%s' 'torchrun a.py' > /dev/null; torchrun t.py",
        0,
    ),
}
STUB = """#!/bin/bash
{ printf '%s\\0' "$PWD" "A=$A" "B=$B" "C=$C" "$@"; printf '\\n'; } >> "$TOLD"
"""


def launches(text: str, start: Path) -> list[list[str]]:
    """What bash starts: of each launch the folder, three variables, and the words."""
    for folder in ("bin", "a/b", "c"):
        (start / folder).mkdir(parents=True, exist_ok=True)
    stub = start / "bin" / "torchrun"
    stub.write_text(STUB, encoding="utf-8")
    stub.chmod(0o755)
    (start / "other.sh").write_text("true\n", encoding="utf-8")
    environment = {"PATH": f"{start}/bin:{os.environ['PATH']}", "TOLD": f"{start}/told"}
    (start / "told").write_text("")
    subprocess.run(["/bin/bash", "-c", text], cwd=start, env=environment, timeout=30, stderr=subprocess.DEVNULL)
    return [line.split("\0")[:-1] for line in (start / "told").read_text(encoding="utf-8").split("\n")[:-1]]


@pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="no bash here")
@pytest.mark.parametrize("name", SCRIPTS)
def test_launches_are_those_of_bash(name: str, tmp_path: Path) -> None:
    text, open_ = SCRIPTS[name]
    start = tmp_path.resolve()
    really = launches(text, start)
    lines = read_launch_lines(SourceText("run.sh", text)).lines
    if open_ == AGAIN:
        really, open_ = really[: len(lines)], 0
    assert len(lines) == len(really)
    unknown = 0
    for line, (folder, a, b, c, *words) in zip(lines, sorted(really) if "&\n" in text else really, strict=True):
        assert line.launcher == "torchrun" and line.script is not None
        told = [line.script.value, *(word.value for word in line.arguments)]
        unknown += told.count(None)
        if None not in told:
            assert told == words
        else:  # an open word may stand for any number
            assert [word for word in told if word is not None and word not in words] == []
        assert folder == posixpath.normpath(posixpath.join(start, line.directory or ""))
        handed_on = dict(one.split("=", 1) for one in (a, b, c))
        assert {key: line.environment.get(key, "") for key in handed_on} == handed_on
    assert unknown == open_


@pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="no bash here")
def test_a_loop_over_several_words_gives_what_they_share(tmp_path: Path) -> None:
    """Each word that bash hands on is one that the known parts of the line's word leave room for, and no wider."""
    for words in (
        "c/a-1.yaml c/a-22.yaml",
        "x.yaml",
        "b/1/z b/2/z",
        "aa a",
        "c/*.sh c/x.sh",
        "c/?.sh",
        "c/[a]x.sh",
        "p q",
    ):
        text = f"for A in {words}; do torchrun t.py {{$A}}; done"
        (line,) = read_launch_lines(SourceText("run.sh", text)).lines
        word = line.arguments[0]
        parts = word.parts or (word.value,)
        for told in launches(text, tmp_path.resolve()):
            assert re.fullmatch(".*".join(re.escape(part or "") for part in parts), told[5]), (words, parts)
    (line,) = read_launch_lines(
        SourceText("run.sh", "for A in c/a-1.yaml c/a-22.yaml; do torchrun t.py $A; done")
    ).lines
    assert line.arguments[0].parts == ("c/a-", ".yaml")


@pytest.mark.skipif(not os.access("/bin/bash", os.X_OK), reason="no bash here")
@pytest.mark.parametrize(
    "name",
    [name for name in SCRIPTS if name not in ("pipes", "array by star", "quotes") and SCRIPTS[name][1] != AGAIN],
)
def test_an_exact_word_can_be_replaced(name: str, tmp_path: Path) -> None:
    """With another word in its place bash starts the same with that word, wherever the script uses it. (Left
    out: launches side by side, and texts that are parts of other words, too.)"""
    text, _ = SCRIPTS[name]
    before = launches(text, tmp_path)
    words = [
        [(word.span if word.exact else None, word.value) for word in (line.script, *line.arguments) if word is not None]
        for line in read_launch_lines(SourceText("run.sh", text)).lines
    ]
    known = all(value is not None for some in words for _, value in some)
    spans = sorted({span for some in words for span, _ in some if span is not None})
    for start, end in spans[:3] if known else ():
        after = launches(f"{text[:start]}zz{text[end:]}", tmp_path)
        expected = [
            [*told[:4], *("zz" if span == (start, end) else value for span, value in some)]
            for told, some in zip(before, words, strict=True)
        ]
        assert after == expected, text[start:end]
