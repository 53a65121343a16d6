"""Who fills a literal "auto": the models against the Trainer and accelerate, shown it at every key."""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("deepspeed")

from real_deepspeed import facts_of, section_of

from tests import warm
from zerocfg.models.deepspeed import DeepSpeedConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from zerocfg.models.base import Section

pytestmark = pytest.mark.libs


@cache
def filled_by(consumer: str) -> set[str]:
    script = Path(__file__).with_name("filled_autos.py")
    done = subprocess.run(
        [warm.python(), str(script), consumer],
        env={
            **os.environ,
            "DS_ACCELERATOR": "cpu",
            "ACCELERATE_USE_DEEPSPEED": "true",
            "PYTHONPATH": str(script.parents[2]),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith("FILLED ")]
    assert lines, done.stderr[-3000:]
    return set(json.loads(lines[-1][len("FILLED ") :]))


def autos(model: type[Section] = DeepSpeedConfig, path: str = "") -> Iterator[tuple[str, dict[str, str]]]:
    """Each scalar key, by path, with who fills it; a key of several variants comes once for each."""
    for name, field in model.model_fields.items():
        sections = [child] if (child := section_of(field.annotation)) is not None else []
        if name in model.variants:
            sections += model.variants[name].cases.values()
        for section in sections:
            yield from autos(section, f"{path}{name}.")
        if not sections:
            yield path + name, facts_of(field).get("auto", {})


def test_accelerate() -> None:
    pytest.importorskip("accelerate")
    filled = filled_by("accelerate")
    wrong = [path for path, sources in autos() if ("accelerate" in sources) != (path in filled)]
    assert wrong == []
    assert filled <= {path for path, _ in autos()}


@pytest.mark.parametrize("consumer", ["transformers", "trl"])
def test_trainer(consumer: str) -> None:
    pytest.importorskip("transformers")
    own, handed_on = filled_by("transformers"), filled_by("accelerate")
    assert own <= {path for path, _ in autos()}
    for path, sources in autos():
        assert (consumer in sources) == (path in own | handed_on), path
        if consumer in sources:
            assert sources[consumer].endswith("(filled by accelerate)") == (path not in own), path


def test_nobody_fills_for_deepspeed_alone() -> None:
    assert not any("deepspeed" in sources for _, sources in autos())
