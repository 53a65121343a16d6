"""Small inputs that asked for huge work: each is held by a budget, and the user is told where it ran out.

Where a figure is counted (findings, runs, tensors), it is compared. The whole command runs under limits of the kernel:
each of these inputs took from ten seconds to minutes, or gigabytes, without its budget.
"""

from __future__ import annotations

import json
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from zerocfg import budgets
from zerocfg.models.model_facts import from_config, inline

CPU_SECONDS, MEMORY = 10, 1 << 30
DS = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
MULTI_GPU = "distributed_type: MULTI_GPU\nnum_processes: 8\n"
RECIPE = "output_dir: out\nlearning_rate: 1.0e-5\nper_device_train_batch_size: 1\n"
MODEL = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_attention_heads": 16,
    "intermediate_size": 4096,
    "vocab_size": 32000,
}
UNKNOWN = {f"k{at}": 1 for at in range(8000)}
LAUNCH = "accelerate launch --config_file acc.yaml train.py"


def run(folder: Path, files: Mapping[str, str], *command: str) -> subprocess.CompletedProcess[str]:
    """A command on these files, which ends within the limits; torch cannot be imported."""
    for name, text in files.items():
        (folder / name).write_text(text)
    program = "import sys; sys.modules['torch'] = None; from zerocfg.cli import main; main.run()"

    def limited() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    done = subprocess.run(
        [sys.executable, "-c", program, *command],
        cwd=folder,
        preexec_fn=limited,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode in (0, 1, 2, 3), done.stderr[-2000:]
    assert "Traceback" not in done.stderr
    assert "internal error" not in done.stderr
    return done


def lint(folder: Path, files: Mapping[str, str]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(run(folder, files, "lint", "--output-format", "json", ".").stdout)[
        "diagnostics"
    ]
    return found


def counted(found: list[dict[str, Any]]) -> dict[str, int]:
    codes = [one["code"] for one in found]
    return {code: codes.count(code) for code in sorted(set(codes))}


def in_part(found: list[dict[str, Any]]) -> list[tuple[str, int, int, str]]:
    """Where ZC015 says what."""
    return [
        (one["file"], one["start"]["line"], one["start"]["column"], one["message"])
        for one in found
        if one["code"] == "ZC015"
    ]


def spec(model: str, more: str = "") -> dict[str, str]:
    text = (
        "version: 1\nruns:\n  a:\n    consumer: transformers\n    script: train.py\n    recipe: recipe.yaml\n"
        f"    model: {model}\n    hardware: 8xA100-80GB\n{more}"
    )
    return {"zerocfg.yaml": text, "recipe.yaml": RECIPE, "train.py": ""}


def test_an_array_that_is_doubled_in_every_line(tmp_path: Path) -> None:
    doubled = "A=(a b c)\n" + 'A=("${A[@]}" "${A[@]}")\n' * 30
    found = lint(tmp_path, {"run.sh": f'{doubled}{LAUNCH} "${{A[@]}}"\n', "acc.yaml": MULTI_GPU})
    # Three elements cost 21 characters each, and line n + 1 copies 3 * 2^(n - 1) of them twice: 126 * (2^15 - 1) are
    # 4,128,642 after line 16, and the first copy in line 17 makes 6,193,026 of them.
    unknown = "variables expand to more than 5,000,000 characters; their values are unknown from here on"
    assert in_part(found) == [("run.sh", 17, 5, f"run.sh is checked in part: {unknown}")]


def test_nested_shells(tmp_path: Path) -> None:
    found = lint(tmp_path, {"run.sh": "eval " * 200 + f"{LAUNCH}\n{LAUNCH}\n", "acc.yaml": MULTI_GPU})
    message = "run.sh is checked in part: shells start shells more than 6 levels deep; not followed further"
    assert in_part(found) == [("run.sh", 1, 1 + 6 * len("eval "), message)]
    assert in_part(lint(tmp_path, {"run.sh": "eval " * 6 + f"{LAUNCH}\n"})) == []


def test_a_script_of_which_nothing_is_read_is_not_called_passed(tmp_path: Path) -> None:
    done = run(tmp_path, {"run.sh": "eval " * 200 + f"{LAUNCH}\n"}, "lint", ".")
    assert "1 file was not checked:\n  run.sh: shells start shells more than 6 levels deep" in done.stdout


def test_many_launch_lines(tmp_path: Path) -> None:
    found = lint(tmp_path, {"run.sh": f"{LAUNCH}\n" * 2000, "acc.yaml": MULTI_GPU})
    message = "run.sh is checked in part: more than 500 launch lines; not read from here on"
    assert in_part(found) == [("run.sh", 501, 1, message)]
    assert in_part(lint(tmp_path, {"run.sh": f"{LAUNCH}\n" * 500})) == []


def test_many_exports_before_many_launch_lines(tmp_path: Path) -> None:
    exports = "".join(f"export V{at}={at}\n" for at in range(800))
    found = lint(tmp_path, {"run.sh": exports + f"{LAUNCH}\n" * 800, "acc.yaml": MULTI_GPU})
    message = "launch lines that inherit more than 100,000 variables together; not read from here on"
    assert (800 + 125 + 1, f"run.sh is checked in part: {message}") in [(one[1], one[3]) for one in in_part(found)]


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("ZC003", {"ds.json": json.dumps(DS)[:-1] + ', "steps_per_print": 10' * 4000 + "}", "acc.yaml": ACCELERATE}),
        ("ZC003", {"acc.yaml": "".join(f"num_processes: {at}\n" for at in range(4000)) + MULTI_GPU}),
        ("ZC010", {"acc.yaml": MULTI_GPU + "# zerocfg: ignore[ZC101] because\n" * 4000}),
        ("ZC102", {"ds.json": json.dumps({**DS, **UNKNOWN}), "acc.yaml": ACCELERATE}),
        (
            "ZC101",
            {
                "acc.yaml": f"compute_environment: LOCAL_MACHINE\n{MULTI_GPU}"
                + "".join(f"{name}: 1\n" for name in UNKNOWN)
            },
        ),
        (
            "ZC711",
            {
                "run.sh": f"accelerate launch {' '.join(f'--unknown_{at} 1' for at in range(8000))} train.py\n",
            },
        ),
    ],
)
def test_thousands_of_findings(code: str, files: Mapping[str, str], tmp_path: Path) -> None:
    found = lint(tmp_path, files)
    assert counted(found)[code] == budgets.FINDINGS
    message = f"more than 1,000 findings of {code} in this run; the others are not told"
    assert [one[3] for one in in_part(found)] == [message]


def test_a_thousand_findings_are_told(tmp_path: Path) -> None:
    unknown = dict.fromkeys(map("k{}".format, range(budgets.FINDINGS)), 1)
    found = lint(tmp_path, {"ds.json": json.dumps({**DS, **unknown}), "accelerate.yaml": ACCELERATE})
    assert counted(found)["ZC102"] == budgets.FINDINGS
    assert in_part(found) == []


TOO_LARGE = "the memory of `a` is not predicted: its model has more than 10,000 tensors"


@pytest.mark.parametrize(
    ("model", "files"),
    [
        ("{parameters: 7e9, largest_parameter: 4096, hidden_size: 4096}", {}),
        ("config.json", {"config.json": json.dumps({**MODEL, "num_hidden_layers": 2000})}),
    ],
)
@pytest.mark.parametrize("goals", ["", "    goals: {trace: true}\n"])
def test_a_model_of_too_many_tensors(model: str, files: dict[str, str], goals: str, tmp_path: Path) -> None:
    """Lint starts no torch, whatever the spec asks for; a plan says why it predicts nothing."""
    found = lint(tmp_path, {**spec(model, goals), **files})
    assert in_part(found) == [("zerocfg.yaml", 7, 5, TOO_LARGE)]
    planned = run(tmp_path, {}, "plan", ".")
    assert "it has more than 10,000 tensors" in planned.stdout + planned.stderr


@pytest.mark.parametrize(
    "facts",
    [
        {"parameters": 10_001 * 4096, "largest_parameter": 4096},
        {"parameters": 10_001, "tensor_sizes": [[1, 10_001]]},
        {"parameters": 10_001, "layout": [{"modules": [[1]], "times": 10_001}]},
        {"parameters": 1, "layout": [{"modules": [[]], "times": 10_001}]},
        {"parameters": 10_001, "vocab_size": 1, "hidden_size": 1},
    ],
)
def test_tensors_that_are_too_many_to_play(facts: dict[str, Any]) -> None:
    found = inline(facts)
    assert found.too_large
    assert (found.parameters, found.layout, found.tensor_sizes) == (None, [], [])


def test_tensors_that_are_not_too_many() -> None:
    found = inline({"parameters": 10_000 * 4096, "largest_parameter": 4096})
    assert (found.parameters, found.too_large) == (40_960_000, False)


def test_layers_are_counted_before_they_are_many() -> None:
    # nine tensors a layer, and three of embedding, last norm and head
    most = from_config({**MODEL, "num_hidden_layers": 1110})
    assert (sum(count for _, count in most.tensor_sizes), most.too_large) == (9993, False)
    more = from_config({**MODEL, "num_hidden_layers": 1111})
    assert (more.parameters, more.config_hidden_size, more.too_large) == (None, 1024, True)


@pytest.mark.parametrize(("size", "said"), [(1, "nothing wrong"), (2**31, "a shape of more than 2^63 elements for w")])
def test_a_tensor_of_a_million_dimensions(size: int, said: str, tmp_path: Path) -> None:
    header = json.dumps({"w": {"dtype": "F32", "shape": [size] * 10**6, "data_offsets": [0, 4]}}).encode()
    (tmp_path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + b"\0" * 4)
    done = run(tmp_path, {}, "check-resume", ".")
    assert said in done.stdout + done.stderr


def test_every_budget_says_its_unit_and_reason_and_is_used() -> None:
    """A budget is a name with a sentence below it, and stands in no other module as a number."""
    root = Path(budgets.__file__).parent
    lines = Path(budgets.__file__).read_text(encoding="utf-8").splitlines()
    names = [line.partition(" = ")[0] for line in lines if line[:1].isupper() and " = " in line]
    assert len(names) > 30
    described = [lines[at].partition(" = ")[0] for at in range(len(lines) - 1) if lines[at + 1].startswith('"""')]
    assert names == [name for name in described if name in names]
    code = "\n".join(path.read_text(encoding="utf-8") for path in root.rglob("*.py") if path.name != "budgets.py")
    assert [name for name in names if name not in code] == []


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("pyproject.toml", ("lint",)),
        ("zerocfg.toml", ("gate", "--only", "lint")),
        ("known.json", ("lint", "--baseline", "known.json")),
        ("hw.json", ("plan", "gpt2", "--hardware", "hw.json")),
        ("report.json", ("lint", "--repos", ".", "--since", "report.json")),
        ("repositories", ("lint", "--repos", "repositories")),
        ("train.py", ("init", "--print")),
        ("requirements.txt", ("lint",)),
        ("zerocfg.lock", ("explain", "stage", "--run", ".")),
        ("schema.json", ("schema", "--check", ".")),
        ("page.html", ("report", "ds.json", "-o", "page.html")),
        ("latest", ("check-resume", ".")),
        ("trainer_state.json", ("check-resume", ".")),
    ],
)
@pytest.mark.parametrize("kind", ["large", "pipe"])
def test_what_is_no_small_file_is_not_read(kind: str, name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    """Two gigabytes do not fit, and a pipe that nobody writes into has no end."""
    if kind == "pipe":
        os.mkfifo(tmp_path / name)
    else:
        with (tmp_path / name).open("wb") as file:
            file.truncate(2 << 30)
    done = run(tmp_path, {"ds.json": json.dumps(DS)}, *words)
    assert len(done.stdout + done.stderr) < 200_000
