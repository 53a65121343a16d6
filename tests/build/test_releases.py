"""A build is for the releases that the run's project states."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from zerocfg.cli.commands.build import command as build

SPEC = (
    "version: 1\nruns:\n  sft:\n    consumer: transformers\n    script: train.py\n    recipe: recipe.yaml\n"
    "    deepspeed: ds.json\n    hardware: 2xA100-80GB\n    model: {parameters: 1000000, hidden_size: 64}\n"
)
FILES = {
    "zerocfg.yaml": SPEC,
    "train.py": "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n"
    "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "Trainer(args=arguments).train()\n",
    "recipe.yaml": "output_dir: out\nbf16: true\nmax_steps: 4\nper_device_train_batch_size: 1\nlearning_rate: 1.0e-5\n",
    "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"bf16": {"enabled": "auto"}, '
    '"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}\n',
}
PINNED = "zero_optimization.offload_optimizer.pin_memory"
"""False by default up to DeepSpeed 0.19.4."""
CLIPPING = "gradient_clipping"
"""0.0 by default up to DeepSpeed 0.19.2."""


def built(folder: Path, **files: str) -> tuple[int, str]:
    for name, text in {**FILES, **{name.replace("_DOT_", "."): text for name, text in files.items()}}.items():
        (folder / name).write_text(text)
    done = CliRunner().invoke(build, [str(folder), "-o", str(folder / "built")])
    return done.exit_code, done.output


def lock(folder: Path) -> dict[str, object]:
    content = (folder / "built" / "sft" / "zerocfg.lock").read_text()
    read: dict[str, object] = json.loads(content[content.index("{") :])
    return read


def values(folder: Path) -> tuple[object, object]:
    settings = lock(folder)["settings"]
    assert isinstance(settings, dict)
    return settings[PINNED]["value"], settings[CLIPPING]["value"]


REQUIRED = "requirements_DOT_txt"
SETTINGS = "pyproject_DOT_toml"


@pytest.mark.parametrize(
    ("files", "expected", "stated"),
    [
        ({}, (True, 1.0), "0.19.8"),
        ({REQUIRED: "deepspeed==0.16.9\n"}, (False, 0.0), "==0.16.9"),
        ({REQUIRED: "deepspeed==0.19.4\n"}, (False, 1.0), "==0.19.4"),
        # A range is built for its newest release
        ({REQUIRED: "deepspeed>=0.16,<0.19.4\n"}, (False, 1.0), ">=0.16,<0.19.4"),
        ({REQUIRED: "deepspeed>=0.16\n"}, (True, 1.0), ">=0.16"),
        # Settings win over the project's files, the spec over both
        (
            {REQUIRED: "deepspeed==0.16.9\n", SETTINGS: '[tool.zerocfg]\ndeepspeed = "==0.19.4"\n'},
            (False, 1.0),
            "==0.19.4",
        ),
        (
            {
                "zerocfg_DOT_yaml": SPEC + '    versions: {deepspeed: "0.19.8"}\n',
                SETTINGS: '[tool.zerocfg]\ndeepspeed = "==0.16.9"\n',
            },
            (True, 1.0),
            "0.19.8",
        ),
    ],
)
def test_defaults_are_those_of_the_releases(
    files: dict[str, str], expected: tuple[object, object], stated: str, tmp_path: Path
) -> None:
    code, output = built(tmp_path, **files)
    assert code == 0, output
    assert values(tmp_path) == expected
    versions = lock(tmp_path)["versions"]
    assert isinstance(versions, dict) and versions["deepspeed"] == stated


@pytest.mark.parametrize(
    ("pin", "note"),
    [
        ("deepspeed==0.9.5", "zerocfg knows no release of deepspeed that ==0.9.5 admits; it plans for 0.10.0"),
        ("transformers==4.30.0", "zerocfg knows no release of transformers that ==4.30.0 admits; it plans for 4.36.0"),
        ("transformers==99.1", "zerocfg knows no release of transformers that ==99.1 admits; it plans for 5.23.0"),
        ("trl==0.1", ""),  # no trainer of it runs
        ("deepspeed==0.16.9", ""),
    ],
)
def test_a_release_that_is_not_known_is_told(pin: str, note: str, tmp_path: Path) -> None:
    code, output = built(tmp_path, **{REQUIRED: f"{pin}\n"})
    assert code == 0, output
    assert lock(tmp_path)["notes"] == ([note] if note else [])
    assert (note in output) and ("zerocfg knows no" in output) is bool(note)


@pytest.mark.parametrize(
    ("pin", "code", "said"),
    [
        ("", 0, "lint has 1 warning about the sources"),
        ("transformers==5.23.0\n", 1, "requirements.txt:1 admits ==5.23.0)"),
        ("transformers==4.46.3\n", 0, ""),
    ],
)
def test_a_recipe_that_the_parser_refuses_is_not_built(pin: str, code: int, said: str, tmp_path: Path) -> None:
    """transformers 5.15.0 and later stop at `warmup_ratio`."""
    files = {"recipe_DOT_yaml": FILES["recipe.yaml"] + "warmup_ratio: 0.1\n", REQUIRED: pin}
    seen, output = built(tmp_path, **files)
    assert seen == code and said in output and (("ZC801" in output) is bool(code)), output
