"""Each wrong spec gets one clear error: where it is, what is wrong, and a way out. Nothing is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import Workplace, job, spec
from zerocfg.models.spec import JobSet, RunSpec
from zerocfg.resolve.plan import Problem
from zerocfg.resolve.spec import spec_file
from zerocfg.resolve.spec.spec_file import SpecFile, check_spec, read_spec
from zerocfg.resolve.spec.validation_errors import _known, _model_of, help_for, merge_errors, position_of
from zerocfg.run.expand import ExpandedRun, Written
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Where

SPEC = """\
version: 1
runs:
  a:
    consumer: transformers
    script: train.py
    recipe: recipe.yaml
    deepspeed: ds.json
    hardware: 8xA100-80GB
"""
ZERO = {"zero_optimization": {"stage": 2}}


def changed(old: str, new: str) -> str:
    assert old in SPEC
    return SPEC.replace(old, new)


def bomb() -> str:
    lines = [f"x{index}: &x{index} [{', '.join([f'*x{index - 1}'] * 10)}]\n" for index in range(1, 8)]
    return "version: 1\nx0: &x0 [a, a, a, a, a, a, a, a, a, a]\n" + "".join(lines)


def chain(length: int) -> str:
    return "bases:\n" + "".join(f"  b{at}: {{extends: b{at + 1}}}\n" for at in range(length)) + f"  b{length}: {{}}\n"


# What is wrong -> the text of zerocfg.yaml, the place of the error, words of it, a word of the way out.
FORM: dict[str, tuple[str | bytes, str, tuple[str, ...], str]] = {
    "empty file": ("", "1:1", ("holds no value",), "zerocfg init"),
    "only a comment": ("# later\n", "1:1", ("holds no value",), "zerocfg init"),
    "a list": ("- a\n", "1:1", ("holds a list", "a spec is a mapping"), "zerocfg init"),
    "one word": ("hello\n", "1:1", ("holds one value",), "zerocfg init"),
    "binary": ("\x00\x01", "1:1", ("binary",), "UTF-8"),
    "latin-1": (b"version: 1\nruns: {caf\xe9: 1}\n", "1:1", ("not UTF-8", "line 2"), "UTF-8"),
    "utf-16": ("version: 1".encode("utf-16"), "1:1", ("UTF-16",), "UTF-8"),
    "huge": ("# " + "x" * (10 * 1024 * 1024), "1:1", ("larger than 10 MiB",), "less"),
    "deep nesting": ("version: 1\nruns: " + "[" * 150 + "]" * 150, "2:106", ("100 levels",), "brackets"),
    "alias of itself": ("version: 1\nruns: &r {a: *r}\n", "2:7", ("contains it",), "extends"),
    "alias bomb": (bomb(), "6:5", ("more than 200000 values",), "fewer aliases"),
    "unknown alias": ("version: 1\nruns: *nobody\n", "2:7", ("nobody",), "Look"),
    "tabs": ("version: 1\nruns:\n\ta:\n", "3:1", ("a tab",), "spaces"),
    "open bracket": ("version: 1\nruns: {a: {\n", "3:1", ("not valid YAML",), "bracket"),
    "two documents": ("version: 1\n---\nruns: {}\n", "2:1", ("more than one YAML document",), "one `runs:`"),
    "version 2": (changed("version: 1", "version: 2"), "1:10", ("`version` is 2", "must be 1"), "format"),
    "version as text": (changed("version: 1", 'version: "1"'), "1:10", ("`version` is '1'",), "format"),
    "no version": (changed("version: 1\n", ""), "1:1", ("`version` is missing",), "Add `version:`"),
    "no runs": ("version: 1\n", "1:1", ("`runs` is missing",), "Add `runs:`"),
    "runs without entries": ("version: 1\nruns: {}\n", "2:7", ("at least one run",), "jobs"),
    "runs as a list": ("version: 1\nruns: [a]\n", "2:7", ("`runs` is a list", "must be a mapping"), "jobs"),
    "a run that is a path": ("version: 1\nruns: {a: train.py}\n", "2:11", ("'train.py'", "a mapping"), "jobs"),
    "unknown key at the top": (SPEC + "jobs: {}\n", "9:1", ("unknown key `jobs`",), "bases, runs, version"),
    "unknown key named as a type": (SPEC + "str: 3\n", "9:1", ("unknown key `str`",), "bases, runs, version"),
    "unknown key with brackets": (SPEC + '"[key]": 3\n', "9:1", ("unknown key `[key]`",), "bases, runs, version"),
    "unknown key of a run named as a type": (
        SPEC + "    int: 3\n",
        "9:5",
        ("unknown key `int` in `runs.a`",),
        "There are",
    ),
    "key twice": (SPEC + "    script: b.py\n", "9:5", ("'script'", "the first (line 5)"), "Remove one"),
    "run twice": (SPEC + "  a: {consumer: trl}\n", "9:3", ("'a'", "the first (line 3)"), "Remove one"),
    "blank in a name": (changed("  a:", "  a b:"), "3:3", ("'a b' cannot name a run",), "folder"),
    "path as a name": (changed("  a:", "  ../a:"), "3:3", ("'../a' cannot name a run",), "folder"),
    "long name": (changed("  a:", f"  {'a' * 101}:"), "3:3", ("cannot name a run", "at most 100"), "folder"),
    "misspelt key": (changed("script:", "scrpt:"), "5:5", ("unknown key `scrpt`", "mean `script`?"), "There are"),
    "unknown key": (SPEC + "    colour: red\n", "9:5", ("unknown key `colour` in `runs.a`",), "There are"),
    "no consumer": (changed("    consumer: transformers\n", ""), "3:3", ("`consumer` is missing",), "Add"),
    "no script": (changed("    script: train.py\n", ""), "3:3", ("`script` is missing in `runs.a`",), "Add"),
    "unknown consumer": (changed("transformers", "megatron"), "4:15", ("'megatron'", "'trl'"), "training loop"),
    "script as a list": (changed("train.py", "[x]"), "5:13", ("is a list", "must be text"), "script"),
    "script empty": (changed("train.py", '""'), "5:13", ("must not be empty",), "script"),
    "script null": (changed("train.py", ""), "3:3", ("`script` is missing in `runs.a`",), "Add `script:`"),
    "NUL in a path": (changed("train.py", r'"a\0b"'), "5:13", ("NUL",), "script"),
    "recipe written out": (changed("recipe.yaml", "{bf16: true}"), "6:13", ("a mapping", "must be text"), "YAML"),
    "arguments as text": (SPEC + "    arguments: --x 1\n", "9:16", ("'--x 1'", "must be a list"), "Words"),
    "argument as a list": (SPEC + "    arguments: [--x, [1]]\n", "9:22", ("arguments[1]", "a list"), "Words"),
    "model as a number": (SPEC + "    model: 7\n", "9:12", ("`runs.a.model` is 7", "config.json"), "Path"),
    "misspelt fact": (SPEC + "    model: {parametres: 7e9}\n", "9:13", ("mean `parameters`?",), "There are"),
    "fact as a word": (SPEC + "    model: {parameters: many}\n", "9:25", ("'many'", "whole number"), "Parameters"),
    "negative fact": (SPEC + "    model: {parameters: -7}\n", "9:25", ("is -7", "equal to 1"), "Parameters"),
    "hardware as a list": (changed("8xA100-80GB", "[8xA100]"), "8:15", ("is a list",), "8xA100-80GB"),
    "unknown engine": (SPEC + "    engine: horovod\n", "9:13", ("'horovod'", "'fsdp'"), "runs the training"),
    "two engines": (SPEC + "    engine: [deepspeed, fsdp]\n", "9:13", ("a list", "'deepspeed'"), "runs the training"),
    "unknown launcher": (SPEC + "    launcher: mpirun\n", "9:15", ("'mpirun'", "'torchrun'"), "launch.sh"),
    "negative samples": (SPEC + "    train_samples: -1\n", "9:20", ("is -1", "greater than 0"), "training set"),
    "samples true": (SPEC + "    train_samples: yes\n", "9:20", ("is true", "a number is needed"), "training set"),
    "half a sample": (SPEC + "    train_samples: 1.5\n", "9:20", ("is 1.5", "whole number"), "training set"),
    "length as a word": (SPEC + "    sequence_length: long\n", "9:22", ("'long'", "whole number"), "Tokens"),
    "length 0": (SPEC + "    sequence_length: 0\n", "9:22", ("is 0", "greater than 0"), "Tokens"),
    "switch as a word": (SPEC + "    fused_loss: often\n", "9:17", ("'often'", "true or false"), "loss"),
    "unknown attention": (SPEC + "    attention: flash\n", "9:16", ("'flash'", "'sdpa'"), "attention"),
    "negative price": (SPEC + "    price_per_hour: -1\n", "9:21", ("is -1", "equal to 0"), "Price"),
    "price NaN": (SPEC + "    price_per_hour: .nan\n", "9:21", ("is nan", "a number"), "Price"),
    "price without end": (SPEC + "    price_per_hour: .inf\n", "9:21", ("is inf", "a number"), "Price"),
    "price with a sign": (SPEC + "    price_per_hour: $2\n", "9:21", ("'$2'", "a number"), "Price"),
    "release unquoted": (SPEC + "    versions: {trl: 1.10}\n", "9:21", ("is 1.1", "quoted"), "releases"),
    "no release": (SPEC + "    versions: {trl: newest}\n", "9:21", ("'newest'", ">=0.18"), "releases"),
    "misspelt library": (SPEC + '    versions: {deepsped: "0.19"}\n', "9:26", ("deepspeed?",), "releases"),
    "unknown goal": (SPEC + "    goals: {prefer: speed}\n", "9:21", ("'speed'", "'throughput'"), "plans"),
    "unknown key of goals": (SPEC + "    goals: {batch: 8}\n", "9:13", ("unknown key `batch`",), "global_batch_size"),
    "empty batch": (SPEC + "    goals: {global_batch_size: 0}\n", "9:32", ("is 0", "greater than 0"), "Samples"),
    "goals as a word": (SPEC + "    goals: fast\n", "9:12", ("'fast'", "must be a mapping"), "aim"),
    "misspelt target": (SPEC + "    targets: {slrum: {}}\n", "9:15", ("mean `slurm`?",), "There are"),
    "jobset without image": (SPEC + "    targets: {jobset: {}}\n", "9:15", ("`image` is missing",), "Add `image:`"),
    "time as a number": (SPEC + "    targets: {slurm: {time: 24:00:00}}\n", "9:29", ("86400", "text"), "24:00:00"),
    "line end for Slurm": (SPEC + '    targets: {slurm: {qos: "a\\nb"}}\n', "9:28", ("one line",), "Quality"),
    "hosts as text": (SPEC + "    hosts: node0\n", "9:12", ("'node0'", "must be a list"), "nodes"),
    "bases as a list": (SPEC + "bases: [b]\n", "9:8", ("`bases` is a list",), "extends"),
    "a base that is a word": (SPEC + "bases: {b: x}\n", "9:12", ("`bases.b` is 'x'",), "extends"),
    "misspelt key of a base": (SPEC + "bases: {b: {recipee: x}}\n", "9:13", ("mean `recipe`?",), "There are"),
    "unknown base": (SPEC + "    extends: comon\nbases: {common: {}}\n", "9:14", ("no base `comon`",), "`common`?"),
    "run as a base": (SPEC + "    extends: a\n", "9:14", ("no base `a`",), "is a run"),
    "base as a number": (SPEC + "    extends: 7\n", "9:14", ("is 7, not the name",), "NAME"),
    "bases in a circle": (
        SPEC + "    extends: x\nbases: {x: {extends: y}, y: {extends: x}}\n",
        "10:39",
        ("circle: x -> y -> x",),
        "Take one",
    ),
    "base of no file": (SPEC + "    extends: gone.yaml#x\n", "9:14", ("no file 'gone.yaml'",), "counts from"),
    "base of a broken file": (SPEC + "    extends: garbage#x\n", "9:14", ("garbage:1:3", "not valid"), "Correct"),
    "bases without end": (SPEC + "    extends: b0\n" + chain(60), "60:18", ("more than 50 bases",), "several"),
    "bases that say too little": (
        "version: 1\nbases: {b: {consumer: trl}}\nruns:\n  a: {extends: b}\n",
        "4:3",
        ("`script` is missing in `runs.a` and in what it extends (b)",),
        "Add `script:`",
    ),
    "matrix without axes": (SPEC + "    matrix: {}\n", "9:13", ("mapping without entries",), "hardware: ["),
    "matrix as a list": (SPEC + "    matrix: [hardware]\n", "9:13", ("is a list",), "hardware: ["),
    "matrix without values": (SPEC + "    matrix: {model: []}\n", "9:21", ("`model`", "no values"), "LABEL: VALUE"),
    "axis that is no key": (SPEC + "    matrix: {hardwre: [cpu]}\n", "9:14", ("mean `hardware`?",), "There are"),
    "wrong value of an axis": (SPEC + "    matrix: {hardware: [cpu, 7]}\n", "9:30", ("is 7", "text"), "8xA100"),
    "axis of bases": (SPEC + "    matrix: {extends: [a]}\n", "9:14", ("cannot be an axis",), "Name the keys"),
    "equal labels": (SPEC + "    matrix: {hardware: [cpu, cpu]}\n", "9:5", ("named `a-cpu`",), "label"),
    "label of another run": (
        SPEC + "    matrix: {hardware: [cpu]}\n  a-cpu: {consumer: trl, script: train.py}\n",
        "9:5",
        ("named `a-cpu`", "of `a` and of `a-cpu`"),
        "label",
    ),
    "value without a label": (SPEC + "    matrix: {model: [{parameters: 7e9}]}\n", "9:22", ("mapping",), "LABEL"),
    "large matrix": (
        SPEC + f"    matrix: {{sequence_length: {list(range(1, 300))}}}\n",
        "9:5",
        ("more than 256 runs",),
        "several runs",
    ),
}


def one_error(output: str) -> tuple[str, str]:
    """The one line that tells the error, and the one below it that tells the way out."""
    assert "Traceback" not in output
    lines = output.splitlines()
    told = [line for line in lines if not line.startswith("  ")]
    assert len(told) == 1 and len(lines) == 2, output
    return told[0], lines[1]


@pytest.mark.parametrize("name", FORM)
def test_form(workplace: Workplace, name: str) -> None:
    """What is wrong with the spec itself: exit code 2, whatever else there is."""
    text, place, words, way_out = FORM[name]
    workplace.write({**job(deepspeed=ZERO), "garbage": "{["})
    path = workplace.folder / "zerocfg.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    for command in (["build", path, "-o", "out"], ["plan", path, "--no-trace"]):
        result = workplace.zerocfg(*command)
        assert result.exit_code == 2, result.output
        error, help_line = one_error(result.output)
        assert error.startswith(f"zerocfg.yaml:{place}: "), error
        for word in words:
            assert word in error, error
        assert way_out in help_line, help_line
    assert not (workplace.folder / "out").exists()


# What is wrong -> keys of the run, the key that the error is about, words of it, a word of the way out.
WRONG: dict[str, tuple[dict[str, Any], str, tuple[str, ...], str]] = {
    "no such script": ({"script": "gone.py"}, "script", ("no file 'gone.py'",), "script"),
    "script is a folder": ({"script": "."}, "script", ("no file '.'",), "script"),
    "no such recipe": ({"recipe": "gone.yaml"}, "recipe", ("no file 'gone.yaml'",), "path"),
    "no such DeepSpeed config": ({"deepspeed": "gone.json"}, "deepspeed", ("no file 'gone.json'",), "path"),
    "no such accelerate config": ({"accelerate": "gone.yaml"}, "accelerate", ("no file 'gone.yaml'",), "path"),
    "no such model": ({"model": "gone/config.json"}, "model", ("no file 'gone/config.json'",), "config.json"),
    "model not in the cache": ({"model": "org/gone"}, "model", ("models--org--gone",), "hf download org/gone"),
    "no such profile": ({"hardware": "gone.json"}, "hardware", ("gone.json", "cannot be read"), "probe"),
    "profile that is none": ({"hardware": "ds.json"}, "hardware", ("ds.json",), "probe"),
    "unknown accelerator": ({"hardware": "8xA1000"}, "hardware", ("'A1000'", "did you mean A100"), "8xA100-80GB"),
    "no accelerator": ({"hardware": "0xA100"}, "hardware", ("between 1 and",), "8xA100-80GB"),
    "too many": ({"hardware": "9999999xA100"}, "hardware", ("between 1 and",), "8xA100-80GB"),
    "no hardware at all": ({"hardware": None}, "hardware", ("how many processes",), "Add `hardware:`"),
    "fewer hosts than nodes": (
        {"hardware": "2x8xA100-80GB", "launcher": "deepspeed", "hosts": ["n0"]},
        "hosts",
        ("1 names for the 2 nodes",),
        "each node",
    ),
    "launcher that accelerate's loop cannot have": (
        {"consumer": "accelerate", "recipe": None, "launcher": "torchrun"},
        "launcher",
        ("accelerate launch exports", "torchrun"),
        "launcher: accelerate",
    ),
    "launcher that an own loop cannot have": (
        {"consumer": "deepspeed", "recipe": None, "launcher": "accelerate"},
        "launcher",
        ("--deepspeed_config",),
        "torchrun",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_a_run_names(workplace: Workplace, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files, hardware and launchers: exit code 1, at the key of the spec."""
    monkeypatch.setenv("HF_HUB_CACHE", str(workplace.folder / "hub"))
    run, key, words, way_out = WRONG[name]
    entry = spec(**run)["runs"]["a"]
    lines = ["version: 1", "runs:", "  a:"] + [f"    {key}: {json.dumps(value)}" for key, value in entry.items()]
    workplace.write({**job(deepspeed=ZERO), "zerocfg.yaml": "\n".join(lines) + "\n"})
    at = next((number for number, line in enumerate(lines, 1) if line.startswith(f"    {key}: ")), None)
    place = f"{at}:{7 + len(key)}" if at else "3:3"
    result = workplace.build(workplace.folder / "zerocfg.yaml")
    assert result.exit_code == 1, result.output
    error, help_line = one_error(result.output)
    assert error.startswith(f"zerocfg.yaml:{place}: run a: {key}: "), error
    for word in words:
        assert word in error, error
    assert way_out in help_line, help_line
    assert not (workplace.folder / "out").exists()


# What is wrong between files -> recipe, DeepSpeed config, keys of the run; where the error is, words of it.
BETWEEN: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any], str, tuple[str, ...]]] = {
    "stage for an unknown model": (
        {},
        {"zero_optimization": {}},
        {"model": "odd.json"},
        "zero_optimization.stage",
        ("no source sets the ZeRO stage", "'odd'"),
    ),
    "recipe that names the engine itself": ({"deepspeed": "ds.json"}, ZERO, {}, "deepspeed", ("recipe sets",)),
    "batch that devices cannot share": (
        {},
        ZERO,
        {"goals": {"global_batch_size": 100}},
        "goals",
        ("100 samples", "8 ranks"),
    ),
    "batch that the micro batch does not divide": (
        {},
        ZERO,
        {"goals": {"global_batch_size": 8}},
        "goals",
        ("8 samples", "micro batch 2"),
    ),
    "batch that the sources contradict": (
        {"gradient_accumulation_steps": 4},
        ZERO,
        {"goals": {"global_batch_size": 128}},
        "goals",
        ("128", "64"),
    ),
}


@pytest.mark.parametrize("name", BETWEEN)
def test_what_files_say_together(workplace: Workplace, name: str) -> None:
    recipe, config, run, key, words = BETWEEN[name]
    files = job(recipe, config, **run)
    files["odd.json"] = {"model_type": "odd", "architectures": ["OddForCausalLM"]}
    result = workplace.build(workplace.write(files))
    assert result.exit_code == 1, result.output
    error, _ = one_error(result.output)
    assert f": run a: {key}" in error, error
    assert error.split(":")[1].isdigit() and error.split(":")[2].isdigit(), error
    for word in words:
        assert word in error, error


def test_hardware_without_bf16(workplace: Workplace) -> None:
    """Lint knows this one: the place is that of the switch in the recipe."""
    result = workplace.build(workplace.write(job(deepspeed=ZERO, hardware="8xV100")))
    assert result.exit_code == 1
    assert "bf16 on 8xV100" in result.output and "--> recipe.yaml:1:" in result.output
    assert "help: use fp16" in result.output and "Found 1 error" in result.output


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ('{"zero_optimization": {', "1:24", "cannot be read: not valid JSON"),
        ("[]", "1:1", "holds no keys"),
        ("3", "1:1", "holds no keys"),
    ],
)
def test_a_config_without_keys(workplace: Workplace, text: str, place: str, words: str) -> None:
    """An open stage would be written into it: it is told, and nothing breaks."""
    files = job(deepspeed=ZERO, engine="deepspeed") | {"ds.json": text}
    result = workplace.zerocfg("plan", workplace.write(files))
    assert result.exit_code == 1, result.output
    error, help = one_error(result.output)
    assert error.startswith(f"ds.json:{place}: run a: deepspeed: ds.json {words}"), error
    assert help == "  Correct it first."


def test_there_are_enough() -> None:
    assert len(FORM) + len(WRONG) + len(BETWEEN) + 1 >= 100


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("", "WrittenSpec"),
        ("runs", None),
        ("runs.a", "WrittenRun"),
        ("bases.a", "Base"),
        ("runs.a.goals", "Goals"),
        ("bases.a.goals", "Goals"),
        ("runs.a.script", None),
        ("runs.a.nonsense", None),
        ("runs.a.matrix", "Matrix"),
        ("runs.a.matrix.goals", None),  # an axis: its values are the sections
        ("runs.a.matrix.goals.0", "Goals"),
        ("runs.a.matrix.script.0", None),
        ("runs.a.matrix.targets.0.slurm", "Slurm"),
    ],
)
def test_a_misspelt_key_is_compared_with_those_of_its_section(path: str, model: str | None) -> None:
    keys = tuple(int(part) if part.isdigit() else part for part in path.split(".") if part)
    found = _model_of(keys)
    assert (found.__name__ if found else None) == model


def checked(text: str) -> SpecFile:
    return check_spec(Path("zerocfg.yaml"), load_as(SourceText("zerocfg.yaml", text), "yaml"))


def described(section: type[RunSpec | JobSet], key: str) -> str:
    return section.model_fields[key].description or ""


BASED = """\
version: 1
bases: {b: {consumer: trl, script: train.py}}
runs:
  a: {extends: b, targets: {jobset: {}}}
"""


@pytest.mark.parametrize(
    ("text", "message", "help"),
    [
        (changed("version: 1\n", ""), "1:1: `version` is missing", "Add `version:`. Version of this format."),
        (
            changed("    script: train.py\n", ""),
            "3:3: `script` is missing in `runs.a`",
            f"Add `script:`. {described(RunSpec, 'script')}",
        ),
        (
            BASED,
            "4:29: `image` is missing in `runs.a.targets.jobset`",
            f"Add `image:`. {described(JobSet, 'image')}",
        ),
        (
            SPEC + "    arguments: [--x, [1]]\n",
            "9:22: `runs.a.arguments[1]` is a list: it must be text or a number",
            f"`arguments`: {described(RunSpec, 'arguments')}",
        ),
        (
            SPEC + "bases: {b: }\n",
            "9:12: `bases.b` is empty, not a mapping of keys of a run",
            "`bases`: What runs take with `extends`, by name.",
        ),
    ],
)
def test_each_word_of_an_error(text: str, message: str, help: str) -> None:
    assert [str(problem) for problem in checked(text).problems] == [f"zerocfg.yaml:{message}\n  {help}"]


def test_problems_of_the_file_itself_come_first(workplace: Workplace) -> None:
    own = "version: 1\nruns:\n  a:\n    extends: other.yaml#x\n    script: train.py\n    colour: red\n"
    path = workplace.write({"zerocfg.yaml": own, "other.yaml": "bases: {x: {consumer: megatron}}"})
    places = [problem.place for problem in read_spec(path, "zerocfg.yaml").problems]
    assert [place and place.file for place in places] == ["zerocfg.yaml", "other.yaml"]


def test_problems_of_another_file_are_in_the_order_of_its_lines(workplace: Workplace) -> None:
    """Not in the order in which keys are checked, which is the consumer first."""
    own = "version: 1\nruns:\n  a:\n    extends: other.yaml#x\n"
    other = "bases:\n  x:\n    hardware: 3\n    script: [train.py]\n    consumer: nobody\n"
    found = read_spec(workplace.write({"zerocfg.yaml": own, "other.yaml": other}), "zerocfg.yaml")
    places = [(one.place.file, one.place.line) for one in found.problems if one.place is not None]
    assert places == [("other.yaml", 3), ("other.yaml", 4), ("other.yaml", 5)]


def test_a_spec_that_python_cannot_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    def deep(*_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(spec_file, "_check", deep)
    assert checked(SPEC).problems == [Problem("", "the spec is nested too deeply", place=Where("zerocfg.yaml", 1, 1))]


def test_twenty_runs_are_named() -> None:
    found = checked(SPEC)
    origin = Written(found.document, ("runs", "a"))
    found.runs = {f"r{at:02}": ExpandedRun(f"r{at:02}", "r", {}, origin) for at in range(20)}
    names = ", ".join(found.runs)
    for more in ("", ", ..."):
        with pytest.raises(ValueError, match="the spec has no run") as told:
            found.selected("nobody")
        assert str(told.value) == f"the spec has no run 'nobody'; it has {names}{more}"
        found.runs["r20"] = ExpandedRun("r20", "r", {}, origin)


TEXT, WHOLE, OTHER = "Input should be a valid string", "Input should be a valid integer", "Value error, no"


@pytest.mark.parametrize(
    ("told", "merged"),
    [
        ([("a.str", TEXT), ("a.int", WHOLE)], {"a": f"{TEXT} or a valid integer"}),
        ([("a.str", f"{TEXT}, x"), ("a.int", f"{WHOLE}, y")], {"a": f"{TEXT} or a valid integer"}),
        ([("a.str", TEXT), ("a.bool", TEXT)], {"a": TEXT}),
        ([("a.float", OTHER), ("a.int", WHOLE)], {"a": OTHER}),
        ([("a.str", TEXT), ("a.int", OTHER)], {"a": TEXT}),
        ([("a", TEXT), ("b", WHOLE)], {"a": TEXT, "b": WHOLE}),
    ],
)
def test_a_value_that_may_be_of_several_kinds(told: list[tuple[str, str]], merged: dict[str, str]) -> None:
    errors: Any = [{"type": "t", "loc": tuple(loc.split(".")), "msg": message, "input": 1} for loc, message in told]
    assert {".".join(map(str, one["loc"])): one["msg"] for one in merge_errors(errors)} == merged


@pytest.mark.parametrize(
    ("path", "start"),
    [
        (("runs", "a", "matrix"), "`matrix`: Keys with several values each"),
        (("runs", "a", "matrix", "goals", "fast", "prefer"), "`prefer`: Among the plans"),
        (("runs", "a", "model", "layout", 0, "times"), "`times`: How often"),
        (("runs", "a", "arguments", 1), "`arguments`: Words after the script"),
    ],
)
def test_the_nearest_key_with_a_description(path: tuple[str | int, ...], start: str) -> None:
    assert help_for(path).startswith(start)


@pytest.mark.parametrize(
    ("path", "known", "key", "value"),
    [
        (("hosts",), ("hosts",), (2, 1), (3, 3)),
        (("hosts", 0), ("hosts", 0), (2, 1), (3, 5)),
        (("hosts", 1), ("hosts",), (2, 1), (3, 3)),
        (("hosts", "str"), ("hosts",), (2, 1), (3, 3)),
        (("hosts", 0, "str"), ("hosts", 0), (2, 1), (3, 5)),
        (("nobody",), (), (1, 1), (1, 1)),
    ],
)
def test_the_nearest_place_that_exists(
    path: tuple[str | int, ...], known: tuple[str | int, ...], key: tuple[int, int], value: tuple[int, int]
) -> None:
    """An item of a list has no key; the nearest is that of the list."""
    document = load_as(SourceText("x", "version: 1\nhosts:\n  - n0\n"), "yaml")
    assert _known(document.root, path) == known
    assert position_of(Written(document, path), at_key=True) == ("x", *key)
    assert position_of(Written(document, path), at_key=False) == ("x", *value)
