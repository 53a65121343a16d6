"""The DeepSpeed config that a framework makes of keys of its own: its values, and where they stand."""

from __future__ import annotations

from tests.rules.by_hand import yaml_file
from zerocfg.frontends.api import UNKNOWN, Value
from zerocfg.run.lowered_config import config_of_keys
from zerocfg.run.model import Origin, Setting, SourceFile
from zerocfg.run.templates import CODE
from zerocfg.source.text import SourceText, Span

TEXT = "job: chat\nstage: 3\nbuffers:\n  reduce: 5\n  gather: 6\noffload: true\n"
RECIPE = yaml_file("neighbour", TEXT)


def places(file: SourceFile, *paths: str) -> list[tuple[str, str]]:
    """What stands at the key and at the value of each path."""
    found = []
    for path in paths:
        entry = file.document.entry(tuple(path.split("."))) if file.document is not None else None
        assert entry is not None
        found.append((file.source.text[slice(*entry.key_span)], file.source.text[slice(*entry.value.span)]))
    return found


def test_values_stand_at_the_keys_of_the_recipe() -> None:
    keys = {
        "zero_optimization.stage": Value(3, "stage"),
        "zero_optimization.offload_optimizer.device": Value("cpu", "offload"),
        "zero_optimization.offload_optimizer.ratio": Value(UNKNOWN, "offload"),
        "bf16": Value({"enabled": True, "names": [1]}, "offload"),
    }
    file = config_of_keys(keys, RECIPE, {})
    assert file is not None and (file.name, file.kind, file.reread_of) == ("recipe.yaml", "deepspeed", RECIPE)
    assert file.document is not None and not file.document.editable
    assert file.data() == {
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": CODE}},
        "bf16": {"enabled": True, "names": [1]},
    }
    assert places(file, "zero_optimization.stage", "zero_optimization.offload_optimizer.device", "bf16.enabled") == [
        ("stage", "3"),
        ("offload", "true"),
        ("true", "true"),
    ]
    ((_, section),) = places(file, "zero_optimization")
    assert section == TEXT[TEXT.index("stage") : -1], "from the first of its keys to the last"


def test_a_mapping_of_the_recipe_keeps_its_own_places() -> None:
    file = config_of_keys({"flops_profiler": Value({"reduce": 5, "gather": 6}, "buffers")}, RECIPE, {})
    assert file is not None and places(file, "flops_profiler.gather") == [("gather", "6")]


def test_options_alone_stand_in_the_line() -> None:
    line = SourceFile("run.sh", "launch", SourceText("run.sh", "toy fit --stage 3\n"))
    options = {"stage": Setting("3", Origin("flag", "--stage", line, (), Span(8, 17)))}
    keys = {"zero_optimization.stage": Value(3, "stage", True)}
    file = config_of_keys(keys, None, options)
    assert file is not None and file.name == "run.sh" and file.data() == {"zero_optimization": {"stage": 3}}
    assert places(file, "zero_optimization.stage") == [("--stage 3", "--stage 3")]
    beside = config_of_keys(keys, RECIPE, options)
    assert beside is not None and beside.data() == {"zero_optimization": {"stage": CODE}}


def test_no_keys_make_no_config() -> None:
    assert config_of_keys({}, RECIPE, {}) is None
