"""docs/spec.md describes every key, and the specs that it shows are specs."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from tests.build.conftest import Workplace
from tests.conftest import ROOT
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.models.base import Section
from zerocfg.models.spec import Goals, JobSet, Slurm, Targets, WrittenRun
from zerocfg.resolve.spec.spec_file import read_spec

PAGE = (ROOT / "docs" / "spec.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```", PAGE, re.M | re.S)


def table(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n", 1)[1].partition("\n## ")[0]


def described(heading: str) -> set[str]:
    rows = [line.split("|")[1] for line in table(heading).splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`([^`]+)`", row)}


def keys(model: type[Section]) -> set[str]:
    return set(model.model_fields)


def test_every_key_is_described() -> None:
    assert described("Keys of a run") == keys(WrittenRun)
    assert described("Goals") - {"goals"} == keys(Goals)
    assert described("Targets") - {"targets"} == keys(Targets)
    text = table("Targets")
    assert all(f"`{name}`" in text for name in keys(Slurm) | keys(JobSet))


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_every_example_is_a_spec(tmp_path: Path, number: int) -> None:
    path = tmp_path / "zerocfg.yaml"
    path.write_text(BLOCKS[number])
    assert read_spec(path).problems == []


def test_what_bases_and_matrices_make(tmp_path: Path) -> None:
    path = tmp_path / "zerocfg.yaml"
    path.write_text(BLOCKS[1])
    found = read_spec(path).runs
    assert found["try"].data["goals"] == {"prefer": "memory", "global_batch_size": 256}
    assert "versions" not in found["try"].data and found["full"].data["hardware"] == "2x8xH100-80GB"
    path.write_text(BLOCKS[2])
    named = [name for name in re.findall(r"`(sft-[a-z0-9-]+)`", PAGE) if "run" not in name]
    assert list(dict.fromkeys(named)) == list(read_spec(path).runs)


def test_the_first_spec_is_the_one_shown(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerocfg.cli.commands.init.probe", lambda: parse_hardware("cpu"))
    monkeypatch.setenv("HF_HUB_CACHE", str(workplace.folder / "hub"))
    shutil.copytree(workplace.examples / "sft-zero2", "mine", ignore=shutil.ignore_patterns("runs"))
    Path("mine/zerocfg.yaml").unlink()
    done = workplace.zerocfg("init", "mine")
    assert done.stdout == "wrote mine/zerocfg.yaml (1 run)\n" and done.stdout in PAGE
    assert Path("mine/zerocfg.yaml").read_text() == BLOCKS[3]
    assert workplace.build(Path("mine")).exit_code == 0
