"""Every example: its committed build is what its sources give, lints clean, and is launched from the right place."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.build.conftest import EXAMPLES, Workplace
from tests.conftest import ROOT

AUTO = re.compile(r"""["']auto["']|:\s*auto\s*$""", re.MULTILINE)
RUNS = [f"{example}/{run}" for example, runs in EXAMPLES.items() for run in runs]
LAUNCHERS = ("accelerate", "torchrun", "deepspeed")


def built(run: str) -> dict[str, str]:
    """The committed files of a run (EXAMPLE/RUN) by name."""
    example, name = run.split("/")
    folder = ROOT / "examples" / example / "built" / name
    return {path.name: path.read_text() for path in sorted(folder.iterdir()) if path.name != "smoke.json"}


def test_every_example_is_listed() -> None:
    folders = {path.parent.name for path in (ROOT / "examples").glob("*/zerocfg.yaml")}
    assert folders == {*EXAMPLES, "pitfalls"}
    table = (ROOT / "examples" / "README.md").read_text()
    for folder in folders:
        assert f"[{folder}]({folder}/zerocfg.yaml)" in table, folder
        assert (ROOT / "examples" / folder / "zerocfg.yaml").read_text().startswith("# "), folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_the_committed_build_is_up_to_date(workplace: Workplace, example: str) -> None:
    """In a copy as well: the bytes depend on nothing but the sources. When this fails: `make examples`."""
    folder = workplace.example(example)
    result = workplace.zerocfg("build", folder, "-o", folder / "built", "--check")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (folder / "built").iterdir()) == sorted(EXAMPLES[example])


def test_a_change_is_seen(workplace: Workplace) -> None:
    folder = workplace.example("sft-zero2")
    recipe = folder / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("gradient_accumulation_steps: 8", "gradient_accumulation_steps: 4"))
    result = workplace.zerocfg("build", folder, "-o", folder / "built", "--check")
    assert result.exit_code == 1
    assert "gradient_accumulation_steps" in result.output


@pytest.mark.parametrize("run", RUNS)
def test_nothing_is_left_open(run: str) -> None:
    for name, text in built(run).items():
        if name != "zerocfg.lock":
            assert not AUTO.search(text), name
    settings = json.loads(built(run)["zerocfg.lock"])["settings"]
    assert all(one["reason"] and one["value"] != "auto" for one in settings.values())


@pytest.mark.parametrize("run", RUNS)
def test_names_no_place(run: str) -> None:
    for name, text in built(run).items():
        assert str(ROOT) not in text and "/home/" not in text and "/tmp/" not in text, name


@pytest.mark.parametrize("example", EXAMPLES)
def test_lints_clean(workplace: Workplace, example: str) -> None:
    """The sources even without a note. What is built may be told of the machine's threads, which no source knows."""
    folder = workplace.example(example)
    result = workplace.zerocfg("lint", folder / "built", "--fail-on", "warning")
    assert result.exit_code == 0, result.output
    shutil.rmtree(folder / "built")
    result = workplace.zerocfg("lint", folder, "--fail-on", "note")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("All checks passed")


NOT_KNOWN = ("quickstart", "stages", "deepspeed-loop", "accelerate-loop", "two-nodes-cpu", "ddp", "grpo-zero3")
"""Processors whose memory nobody states, autocast without a trace, and completions of unknown length."""


@pytest.mark.parametrize("example", EXAMPLES)
def test_has_a_plan(workplace: Workplace, example: str) -> None:
    """It fits its hardware, by the closed formula of activations, or the exit code says that this is not known."""
    result = workplace.zerocfg("plan", workplace.example(example), "--no-trace")
    assert result.exit_code == (3 if example in NOT_KNOWN else 0), result.output
    assert ("  verdict    not known" in result.output) == (example in NOT_KNOWN)
    assert "does not fit, " not in result.output


@pytest.mark.parametrize("run", RUNS)
def test_files_in_the_lock_are_the_files(run: str) -> None:
    files = built(run)
    lock = json.loads(files["zerocfg.lock"])
    assert set(lock["files"]) == set(files) - {"zerocfg.lock"}
    for name, digest in lock["files"].items():
        assert hashlib.sha256(files[name].encode()).hexdigest() == digest
    for role in lock["inputs"].values():
        data = (ROOT / "examples" / run.split("/")[0] / role["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == role["sha256"]


@pytest.mark.parametrize("run", RUNS)
def test_launches_the_script_from_the_spec_folder(run: str, tmp_path: Path) -> None:
    """With launchers that tell where they were started and with which words."""
    for name in LAUNCHERS:
        program = tmp_path / name
        program.write_text('#!/bin/sh\nbasename "$0"\npwd\nfor word in "$@"; do echo "$word"; done\n')
        program.chmod(0o755)
    example, name = run.split("/")
    here = ROOT / "examples" / example
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "MACHINE_RANK": "0"}
    environment["MAIN_PROCESS_IP"] = "10.0.0.1"
    done = subprocess.run(
        [str(here / "built" / name / "launch.sh"), "--output_dir", "a b"],
        cwd="/",
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    launcher, where, *words = done.stdout.splitlines()
    lock = json.loads(built(run)["zerocfg.lock"])
    assert (launcher, Path(where)) == (lock["launcher"], here)
    assert words[-2:] == ["--output_dir", "a b"]
    script = words.index(lock["script"])
    for word in words[script + 1 : -2]:
        if word.endswith((".yaml", ".json")):
            assert (here / word).is_file(), word
    if launcher == "accelerate":
        config = here / words[words.index("--config_file") + 1]
        assert config == here / "built" / name / "accelerate.yaml"
        section = yaml.safe_load(config.read_text()).get("deepspeed_config")
        if section:
            assert (here / section["deepspeed_config_file"]).samefile(config.parent / "ds_config.json")


def test_pitfalls_do_not_build(workplace: Workplace) -> None:
    result = workplace.build(workplace.example("pitfalls"))
    assert result.exit_code == 1
    for code in ("ZC101", "ZC201", "ZC402"):
        assert code in result.output
    assert not (workplace.folder / "out").exists()
