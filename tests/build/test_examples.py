"""Every example builds, lints clean before and after, and always gives the same bytes."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest
import yaml
from syrupy.assertion import SnapshotAssertion

from tests.build.conftest import EXAMPLES, Workplace

AUTO = '"auto"'


@pytest.fixture(params=EXAMPLES)
def example(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def emitted(workplace: Workplace, example: str) -> dict[str, str]:
    result = workplace.build(workplace.example(example))
    assert result.exit_code == 0, result.output
    folder = workplace.folder / "out" / EXAMPLES[example]
    return {path.name: path.read_text() for path in sorted(folder.iterdir())}


def test_emitted_files(workplace: Workplace, example: str, snapshot: SnapshotAssertion) -> None:
    files = emitted(workplace, example)
    assert set(files) - {"ds_config.json"} == {"accelerate.yaml", "launch.sh", "zerocfg.lock"}
    for name, text in files.items():
        # The lock is compared in parts below: its hashes change with every source file.
        if name != "zerocfg.lock":
            assert text == snapshot(name=name)
    lock = json.loads(files["zerocfg.lock"])
    assert lock["plan"] == snapshot(name="plan")
    reasons = {name: f"{one['value']!r} ({one['kind']}): {one['reason']}" for name, one in lock["settings"].items()}
    assert reasons == snapshot(name="reasons")


def test_nothing_is_left_open(workplace: Workplace, example: str) -> None:
    files = emitted(workplace, example)
    assert AUTO not in files["accelerate.yaml"] + files.get("ds_config.json", "")
    assert '"value": "auto"' not in files["zerocfg.lock"]
    lock = json.loads(files["zerocfg.lock"])
    assert all(one["reason"] for one in lock["settings"].values())


def test_names_no_place_and_no_time(workplace: Workplace, example: str) -> None:
    for name, text in emitted(workplace, example).items():
        assert str(workplace.folder) not in text, name


def test_same_bytes_again(workplace: Workplace, example: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    first = emitted(workplace, example)
    again = workplace.build(workplace.folder / example)
    assert again.exit_code == 0, again.output
    elsewhere = Workplace(tmp_path_factory.mktemp("elsewhere"), workplace.examples)
    os.chdir(elsewhere.folder)
    assert emitted(elsewhere, example) == first
    folder = workplace.folder / "out" / EXAMPLES[example]
    assert {path.name: path.read_text() for path in sorted(folder.iterdir())} == first


def test_lints_clean(workplace: Workplace, example: str) -> None:
    """The sources, and with the memory facts of the spec, even without a note."""
    result = workplace.zerocfg("lint", workplace.example(example), "--fail-on", "note")
    assert result.exit_code == 0, result.output
    assert result.output.startswith("All checks passed")


def test_files_in_the_lock_are_the_files(workplace: Workplace, example: str) -> None:
    import hashlib

    files = emitted(workplace, example)
    lock = json.loads(files["zerocfg.lock"])
    assert set(lock["files"]) == set(files) - {"zerocfg.lock"}
    for name, digest in lock["files"].items():
        assert hashlib.sha256(files[name].encode()).hexdigest() == digest
    for role in lock["inputs"].values():
        data = (workplace.folder / example / role["path"]).read_bytes()
        assert hashlib.sha256(data).hexdigest() == role["sha256"]


def test_launches_the_script_from_the_spec_folder(workplace: Workplace, example: str, tmp_path: Path) -> None:
    """With an `accelerate` that tells where it was started and with which words."""
    emitted(workplace, example)
    program = tmp_path / "bin" / "accelerate"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\npwd\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    script = tmp_path / "out" / EXAMPLES[example] / "launch.sh"
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [str(script), "--output_dir", "a b"], cwd="/", env=environment, capture_output=True, text=True, check=True
    )
    where, launch, option, config, *words = done.stdout.splitlines()
    assert Path(where) == tmp_path / example
    assert (launch, option) == ("launch", "--config_file")
    assert words[0] == "train.py" and "recipe.yaml" in words and words[-2:] == ["--output_dir", "a b"]
    data = yaml.safe_load((Path(where) / config).read_text())
    section = data.get("deepspeed_config")
    if section:
        assert (Path(where) / section["deepspeed_config_file"]).samefile(script.parent / "ds_config.json")


def test_pitfalls_do_not_build(workplace: Workplace) -> None:
    workplace.example("quickstart")
    result = workplace.build(workplace.example("pitfalls"))
    assert result.exit_code == 1
    for code in ("ZC101", "ZC201", "ZC402"):
        assert code in result.output
    assert not (workplace.folder / "out").exists()
