"""Configs that a launch script writes out by itself: what bash writes is what the run reads, at its place."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.templates import plain_or_unknown
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.node import walk
from zerocfg.source.text import SourceText

BODY = '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}'
LINE = "deepspeed train.py --deepspeed_config ds.json"


def run_of(folder: Path, script: str) -> Run:
    (folder / "run.sh").write_text(script, encoding="utf-8")
    (run,) = find_runs([folder / "run.sh"], Files(), root=folder)[0]
    return run


KNOWN = {
    "as it stands": f"cat > ds.json << EOF\n{BODY}\nEOF\n{LINE}\n",
    "the other way round": f"cat <<EOF > ./ds.json\n{BODY}\nEOF\n{LINE}\n",
    "by tee": f"tee ds.json <<EOF > /dev/null\n{BODY}\nEOF\n{LINE}\n",
    "values": 'N=8\ncat > ds.json << EOF\n{"train_batch_size": $N, "optimizer": {"type": "Adam${V:-W}"}}\nEOF\n' + LINE,
    "sums": 'N=8\ncat > ds.json << EOF\n{"train_batch_size": $((N * 2))}\nEOF\n' + LINE,
    "quoted end": 'cat > ds.json << "EOF"\n{"optimizer": {"type": "$N"}, "train_batch_size": 8}\nEOF\n' + LINE,
    "a dollar that is meant": 'cat > ds.json << EOF\n{"optimizer": {"type": "\\$N"}, "train_batch_size": 8}\nEOF\n'
    + LINE,
    "quotes within quotes": 'cat > ds.json << EOF\n{"optimizer": {"type": "\\"A\\""}, "n": "it\'s"}\nEOF\n' + LINE,
    "tabs": f"if true; then\n\tcat > ds.json <<-EOF\n\t{BODY}\n\tEOF\nfi\n{LINE}\n",
    "a name in a variable": f'D=ds.json\ncat > "$D" << EOF\n{BODY}\nEOF\ndeepspeed t.py --deepspeed_config=${{D}}\n',
    "written again": f"cat > ds.json << EOF\n{{}}\nEOF\ncat > ds.json << EOF\n{BODY}\nEOF\n{LINE}\n",
    "another folder": f"mkdir a\ncd a\ncat > ds.json << EOF\n{BODY}\nEOF\ncd ..\n{LINE.replace(' ds', ' a/ds')}",
    "read by others": f"cat > ds.json << EOF\n{BODY}\nEOF\ncat ds.json\necho ds.json\n{LINE}\n",
    "a folder that only the shell knows": (
        f"D=$(mktemp -d -p .)\ncat > $D/ds.json << EOF\n{BODY}\nEOF\ncp $D/ds.json ds.json\n"
        "deepspeed train.py --deepspeed_config $D/ds.json\n"
    ),
    "two at once": f"cat > other.json << A\n{{}}\nA\ncat > ds.json << B; echo << C\n{BODY}\nB\nno\nC\n{LINE}\n",
}


@pytest.mark.parametrize("case", KNOWN)
def test_bash_writes_what_is_read(case: str, tmp_path: Path) -> None:
    script = KNOWN[case]
    run = run_of(tmp_path, script)
    assert run.deepspeed is not None
    subprocess.run(["bash", "-c", "deepspeed() { :; }\n" + script], cwd=tmp_path, check=True, capture_output=True)
    written = [json.loads(path.read_text()) for path in tmp_path.rglob("ds.json")]
    assert written
    assert all(run.deepspeed.data() == one for one in written)


OPEN = {
    "added to": f"cat >> ds.json << EOF\n{BODY}\nEOF\n{LINE}\n",
    "changed": f"cat > ds.json << EOF\n{BODY}\nEOF\nsed -i s/8/16/ ds.json\n{LINE}\n",
    "changed by a program": f"cat > ds.json << EOF\n{BODY}\nEOF\npython tune.py ds.json\n{LINE}\n",
    "written over": f"cat > ds.json << EOF\n{BODY}\nEOF\nmake_config > ds.json\n{LINE}\n",
    "written after": f"{LINE}\ncat > ds.json << EOF\n{BODY}\nEOF\n",
    "piped": f"cat << EOF | envsubst > ds.json\n{BODY}\nEOF\n{LINE}\n",
    "of another process": f"ssh node 'cat > ds.json' << EOF\n{BODY}\nEOF\n{LINE}\n",
    "no JSON": f"cat > ds.json << EOF\n{{$ALL}}\nEOF\n{LINE}\n",
    "another folder, which nobody knows": f"cd $1\ncat > ds.json << EOF\n{BODY}\nEOF\n{LINE}\n",
}


@pytest.mark.parametrize("case", OPEN)
def test_what_nobody_can_tell_is_left_open(case: str, tmp_path: Path) -> None:
    runs = find_runs([_written(tmp_path, OPEN[case])], Files(), root=tmp_path)[0]
    assert [run.deepspeed for run in runs if run.deepspeed is not None] == []
    assert [run.missing for run in runs if run.missing and case != "written after"] == []


def test_each_branch_says_what_its_keys_say(tmp_path: Path) -> None:
    """Nothing is said of the config as a whole, which is one or the other."""
    script = (
        'DS="$(dirname "$0")/ds_$1.json"\n'
        'if [ $1 = a ]; then\ncat > "$DS" << EOF\n{"train_batch_size": $N, "overlap_com": true}\nEOF\n'
        'elif [ $1 = b ]; then\ncat > "$DS" << EOF\n'
        '{"train_batch_size": 3, "zero_optimization": {"stage": 1, "offload_param": {"device": "cpu"}},\n'
        '"gradient_cliping": 1}\nEOF\nfi\n'
        'CMD="deepspeed --num_gpus=2 train.py --deepspeed_config=$DS"\neval $CMD\n'
    )
    runs = find_runs([_written(tmp_path, script)], Files(), root=tmp_path)[0]
    assert [run.missing for run in runs if run.missing] == []
    found = [(one.code, one.span.path, one.span.start.line) for one in lint_runs(runs).diagnostics]
    assert found == [("ZC102", "overlap_com", 4), ("ZC102", "gradient_cliping", 9)]


def _written(folder: Path, script: str) -> Path:
    path = folder / "run.sh"
    path.write_text(script, encoding="utf-8")
    return path


def test_what_only_the_shell_knows_is_unknown(tmp_path: Path) -> None:
    body = '{"train_batch_size": $N, "gradient_clipping": "${C}x", "bf16": {"enabled": true}}'
    run = run_of(tmp_path, f"cat > ds.json << EOF\n{body}\nEOF\n{LINE}\n")
    assert run.deepspeed is not None
    assert plain_or_unknown(run.deepspeed.document) == {
        "train_batch_size": UNKNOWN,
        "gradient_clipping": UNKNOWN,
        "bf16": {"enabled": True},
    }


def test_an_accelerate_config_that_names_another(tmp_path: Path) -> None:
    script = (
        f"DS=$TMP/ds.json\ncat << EOF > $DS\n{BODY}\nEOF\n"
        "cat << EOF > acc.yaml\ndistributed_type: DEEPSPEED\nnum_processes: 8\n"
        "deepspeed_config:\n  deepspeed_config_file: $DS\nEOF\n"
        "accelerate launch --config_file acc.yaml train.py\n"
    )
    run = run_of(tmp_path, script)
    assert run.accelerate is not None
    assert run.accelerate.data()["num_processes"] == 8
    assert run.deepspeed is not None
    assert run.effective.value("zero_optimization.stage") == 2
    assert run.effective.value("num_processes") == 8


def test_an_accelerate_config_with_a_hole_says_nothing(tmp_path: Path) -> None:
    script = (
        "cat << EOF > acc.yaml\ndistributed_type: DEEPSPEED\nnum_processes: $N\nEOF\n"
        "accelerate launch --config_file acc.yaml --num_processes 4 train.py\n"
    )
    run = run_of(tmp_path, script)
    assert run.accelerate is None
    assert run.effective.value("engine") is None
    assert run.effective.value("num_processes") == 4
    assert run.missing == ()


@pytest.mark.parametrize(("option", "refused"), [("", True), ("--tensor-model-parallel-size 4", False)])
def test_ranks_that_share_a_model_are_not_counted(option: str, refused: bool, tmp_path: Path) -> None:
    body = '{"train_batch_size": 4, "train_micro_batch_size_per_gpu": 4}'
    line = f"deepspeed --num_gpus 8 train.py --deepspeed_config ds.json {option}"
    run = run_of(tmp_path, f"cat > ds.json << EOF\n{body}\nEOF\n{line}\n")
    assert [one.kind for one in run.effective.failures] == ["ds-batch-zero"] * refused


def test_findings_stand_in_the_script(tmp_path: Path) -> None:
    line = '  "zero_optimization": {"stage": $S, "overlap_com": true}'
    script = f"S=2\ncat > ds.json << EOF\n{{\n{line}\n}}\nEOF\n{LINE}\n"
    runs = find_runs([_written(tmp_path, script)], Files(), root=tmp_path)[0]
    (found,) = [one for one in lint_runs(runs).diagnostics if one.code == "ZC101"]
    assert found.span.start == (4, line.index('"overlap_com"') + 1)
    assert found.fix is None


def places(folder: Path, script: str) -> dict[tuple[str | int, ...], str]:
    """What stands in the script at each key and value of the config that it writes."""
    config = run_of(folder, script).deepspeed
    assert config is not None and config.document is not None and config.document.root is not None
    text = config.source.text
    found = {path: text[slice(*node.span)] for path, node, _ in walk(config.document.root)}
    keys = {(*path, "key"): text[slice(*entry.key_span)] for path, _, entry in walk(config.document.root) if entry}
    return {**found, **keys}


def test_every_value_stands_where_the_script_writes_it(tmp_path: Path) -> None:
    body = '{"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.95]}}}'
    found = places(tmp_path, f"cat > ds.json << EOF\n{body}\nEOF\n{LINE}\n")
    assert found[()] == body and found[("train_batch_size",)] == "8"
    assert found[("optimizer",)] == '{"type": "Adam", "params": {"betas": [0.9, 0.95]}}'
    assert found[("optimizer", "params", "betas")] == "[0.9, 0.95]"
    assert found[("optimizer", "params", "betas", 1)] == "0.95"
    assert found[("optimizer", "type", "key")] == '"type"'
    tabs = places(tmp_path, 'cat > ds.json <<-EOF\n\t{"a": 1,\n\t\t"train_batch_size": [2,\n\t3]}\n\tEOF\n' + LINE)
    assert tabs[("train_batch_size",)] == "[2,\n\t3]" and tabs[("a",)] == "1"


def test_a_value_of_a_variable_stands_where_that_is_set(tmp_path: Path) -> None:
    """One that is put together has the place of its first part, and what only the shell knows that of its name."""
    body = '{"train_batch_size": $N, "optimizer": {"type": "Adam${V:-W}"}, "steps_per_print": $M, "bf16": {"x": "$U"}}'
    found = places(tmp_path, f"N=16\ncat > ds.json << EOF\n{body}\nEOF\n{LINE}\n")
    assert found[("train_batch_size",)] == "16"
    assert found[("optimizer", "type")] == '"Adam${V:-W}"'
    assert found[("steps_per_print",)][:1] == "$" and found[("bf16", "x")] == '"$U"'
    assert found[("steps_per_print", "key")] == '"steps_per_print"'


@pytest.mark.parametrize(
    ("before", "names"),
    [
        ("if x; then\n{a}fi\n{b}", ["B"]),
        ("{a}if x; then\n{b}fi\n", ["A", "B"]),
        ("{a}if x; then\n{b}else\n{a}fi\n", ["A", "A", "B"]),
        ("{a}{b}", ["B"]),
        ("{a}cat >> ds.json << EOF\nx\nEOF\n", []),
        ("{a}sed -i s/a/b/ ds.json\n", []),
        ("{a}echo x > ds.json\n", []),
        ("{a}cp ds.json other.json\n", ["A"]),
        ("{a}python x.py < ds.json\n", ["A"]),
        ("{a}python x.py > ds.json\n", []),
        ("{a}cp other.json ds.json\n", []),
        ("{a}chmod 600 ds.json\n", ["A"]),
        ("{a}cd elsewhere\n{b}cd ..\n", ["A"]),
        ("{a}tee -a ds.json << EOF\nx\nEOF\n", []),
        ("{a}cat x > ds.json 2>&1\n", []),
        ("{a}python make.py ds.json\n", []),
        ("cat > ds.json << A; cat > other.json << B\n{{A}}\nA\n{{B}}\nB\n", ["{A}"]),
        ("cat << EOF\n{{}}\nEOF\n", []),
    ],
)
def test_what_a_script_has_written_by_then(before: str, names: list[str]) -> None:
    one, two = (f"cat > ds.json << EOF\n{name}\nEOF\n" for name in "AB")
    text = before.format(a=one, b=two) + LINE
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    written = [one.text.text.strip() for one in line.written if one.name == "ds.json" and one.text is not None]
    assert sorted(written) == names


def test_what_is_wrong_with_a_config_stands_in_the_script(tmp_path: Path) -> None:
    body = '{"train_batch_size": 8, // why\n  "steps_per_print": 1, "steps_per_print": 2, "zero_optimization": {}}'
    config = run_of(tmp_path, f"ls\ncat > ds.json << EOF\n{body}\nEOF\n{LINE}\n").deepspeed
    assert config is not None and config.document is not None
    text = config.source.text
    found = {one.kind: text[slice(*one.span)] for one in config.document.problems}
    assert found == {"hjson-only": "// why", "duplicate-key": '"steps_per_print"'}
    duplicate = next(one for one in config.document.problems if one.kind == "duplicate-key")
    assert duplicate.span.start == text.rindex('"steps_per_print"')


def test_a_value_that_is_missing_stands_behind_its_key(tmp_path: Path) -> None:
    body = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n"
    line = "accelerate launch --config_file acc.yaml train.py\n"
    config = run_of(tmp_path, f"cat > acc.yaml << END\n{body}END\n{line}").accelerate
    assert config is not None and config.document is not None
    node = config.document.get(("deepspeed_config",))
    end = config.source.text.rindex("deepspeed_config:") + len("deepspeed_config:")
    assert node is not None and (node.span.start, node.span.end) == (end, end)


def test_folders_that_only_the_shell_knows_are_told_apart() -> None:
    """Two that a command makes have the same text, and are two places."""
    text = f"D=$(mktemp -d)\nE=$(mktemp -d)\ncat > $D/ds.json << EOF\n{BODY}\nEOF\n"
    for name, value in (("D", "$D/ds.json"), ("E", None)):
        line = f"deepspeed train.py --deepspeed_config ${name}/ds.json x\n"
        (found,) = read_launch_lines(SourceText("run.sh", text + line)).lines
        (option,) = found.script_options
        assert option.value is not None and option.value.value == value
