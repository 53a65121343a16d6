"""Numbers that Python's `int` and `float` refuse or read otherwise than the library, the launcher or bash."""

from __future__ import annotations

import math
import subprocess
from collections.abc import Callable
from pathlib import Path

import pydantic
import pytest

from tests.cli.conftest import Outcome
from zerocfg.catalog.values import RefusedError, as_float, as_int
from zerocfg.run.linking.spec_runs import launch_place
from zerocfg.run.model import UNKNOWN
from zerocfg.run.stages.trainer import bucket_settings
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.text import SourceText, Where

Cli = Callable[..., Outcome]

MANY = "7" * 4301
"""One digit more than Python converts."""
TEXTS = (
    "12", " 12 ", "+12", "-0", "12.0", "1_000", "1__0", "_1", "0012", "\uff11\uff12", "\u0663", "\u00b2", "0x10",
    "nan", "inf", "1e5", "1e999", "", "1\u00a0",
)  # fmt: skip


class Read(pydantic.BaseModel):
    whole: int = 0
    real: float = 0.0


def by_pydantic(key: str, text: str) -> object:
    try:
        return getattr(Read.model_validate({key: text}), key)
    except pydantic.ValidationError:
        return None


@pytest.mark.parametrize("text", TEXTS)
def test_texts_are_read_as_pydantic_reads_them(text: str) -> None:
    for key, read in (("whole", as_int), ("real", as_float)):
        try:
            found: object = read(text)
        except RefusedError:
            found = None
        expected = by_pydantic(key, text)
        assert found == expected or (isinstance(found, float) and math.isnan(found) and math.isnan(expected)), key  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("run.sh:12", ("run.sh", 12)),
        ("run.sh", ("run.sh", None)),
        ("run.sh:\u00b2", ("run.sh:\u00b2", None)),
        (f"run.sh:{MANY}", (f"run.sh:{MANY}", None)),
    ],
)
def test_the_line_of_a_launch_script(text: str, place: tuple[str, int | None]) -> None:
    assert launch_place(text) == place


def test_places_of_a_lock() -> None:
    assert Where.parse("ds.json:12:5") == Where("ds.json", 12, 5)
    for text in ("ds.json:\u00b2:5", f"ds.json:{MANY}:5", "ds.json"):
        assert Where.parse(text) == Where(text)


def test_a_width_that_fits_no_float_is_not_known() -> None:
    assert {one.value for one in bucket_settings(10**400).values()} == {UNKNOWN}
    assert {one.value for one in bucket_settings(4096).values()} == {16_777_216, 15_099_494, 40_960}


def linted(zerocfg: Cli, folder: Path, **files: str) -> Outcome:
    for name, text in files.items():
        (folder / name.replace("_", ".")).write_text(text)
    outcome = zerocfg("lint", "--show-runs", "--output-format", "json", ".")
    assert "internal error" not in outcome.err + outcome.out and outcome.code in (0, 1), outcome.err
    return outcome


SCRIPT = (
    "from accelerate import Accelerator\n\naccelerator = Accelerator(gradient_accumulation_steps=%s)\n"
    "model = accelerator.prepare(make())\naccelerator.backward(model(1))\n"
)


@pytest.mark.parametrize("steps", ["1e999", "float('nan')", "-1e999", "4"])
def test_steps_that_are_no_number(steps: str, tmp_path: Path, zerocfg: Cli) -> None:
    linted(zerocfg, tmp_path, train_py=SCRIPT % steps, run_sh="accelerate launch --use_deepspeed train.py\n")


@pytest.mark.parametrize("count", [".inf", ".nan", "0x" + "f" * 4000, MANY, "1_000", "'\uff12'", "2"])
def test_counts_of_an_accelerate_config(count: str, tmp_path: Path, zerocfg: Cli) -> None:
    names = ("num_processes", "num_machines", "gradient_accumulation_steps", "main_process_port")
    for name in names:
        config = f"compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\n{name}: {count}\n"
        linted(zerocfg, tmp_path, accelerate_yaml=config, train_py=SCRIPT % 1)


@pytest.mark.parametrize("value", ["8", "-8", " 8 ", "0", "123456789012345678"])
def test_arithmetic_of_a_launch_script(value: str) -> None:
    text = f'N="{value}"; echo $((N + 1))'
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    assert sum_of(value) == done.stdout.strip()


@pytest.mark.parametrize("value", ["010", "\uff18", "1_0", MANY, "0x10"])
def test_arithmetic_that_bash_reads_otherwise_is_not_known(value: str) -> None:
    assert sum_of(value) is None


def sum_of(value: str) -> str | None:
    """What the reader of launch lines makes of ``$((N + 1))``."""
    text = f'N="{value}"\ndeepspeed train.py $((N + 1))\n'
    (line,) = read_launch_lines(SourceText("run.sh", text)).lines
    (word,) = line.arguments
    return word.value


@pytest.mark.parametrize("value", ["1" + "0" * 400, ".inf", ".nan", "25"])
def test_sizes_of_a_plan(value: str, tmp_path: Path, zerocfg: Cli) -> None:
    """A ratio and a bucket that no float holds: the build is refused or made, and no error of zerocfg's own."""
    ratio = {".inf": "Infinity", ".nan": "NaN"}.get(value, value)
    offload = f'{{"device": "cpu", "ratio": {ratio}}}'
    config = (
        f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 3, "offload_optimizer": {offload}}}}}'
    )
    (tmp_path / "ds.json").write_text(config)
    (tmp_path / "recipe.yaml").write_text(f"output_dir: out\nddp_bucket_cap_mb: {value}\n")
    (tmp_path / "train.py").write_text("")
    (tmp_path / "zerocfg.yaml").write_text(SPEC)
    for words in (("lint", "."), ("plan", "zerocfg.yaml", "--no-trace"), ("build", "zerocfg.yaml", "-o", "out")):
        outcome = zerocfg(*words)
        assert outcome.code in (0, 1, 2, 3) and "rror of zerocfg" not in outcome.out + outcome.err


SPEC = (
    "version: 1\nruns:\n  a:\n    consumer: transformers\n    script: train.py\n    recipe: recipe.yaml\n"
    "    deepspeed: ds.json\n    hardware: 2xA100-80GB\n    model: {parameters: 1000000, hidden_size: 64}\n"
)
