"""``zerocfg lint`` as a user meets it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Outcome

Cli = Callable[..., Outcome]

# Two configs that a well-known tutorial gives for ZeRO-2 and ZeRO-3, comments left out.
SNIPPET_A = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  deepspeed_multinode_launcher: standard
  zero3_init_flag: false
  zero_stage: 2
  offload_optimizer_device: none
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0
  overlap_comm: true
  reduce_scatter: true
  allgather_bucket_size: 5e8
  reduce_bucket_size: 5e8
distributed_type: DEEPSPEED
"""
SNIPPET_B = """\
compute_environment: LOCAL_MACHINE
deepspeed_config:
  zero_stage: 3
  stage3_prefetch_bucket_size: 5e8
  stage3_param_persistence_threshold: 1e6
  stage3_gather_16bit_weights_on_model_save: true
  offload_optimizer_device: none
  offload_param_device: none
  overlap_comm: true
  stage3_max_live_parameters: 1e9
  stage3_max_reuse_distance: 1e9
distributed_type: DEEPSPEED
"""
GOOD = "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n  zero_stage: 2\n"


def _report(outcome: Outcome) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(outcome.out)["diagnostics"]
    return found


def _of(report: list[dict[str, Any]], code: str, key: str) -> list[dict[str, Any]]:
    return [d for d in report if d["code"] == code and d["path"].split(".")[-1] == key]


def test_the_tutorial_snippets(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "zero2.yaml").write_text(SNIPPET_A)
    (tmp_path / "zero3.yaml").write_text(SNIPPET_B)
    outcome = zerocfg("lint", "--output-format", "json", "--notes")
    assert outcome.code == 1
    report = _report(outcome)
    ignored = {
        "zero2.yaml": ["overlap_comm", "reduce_scatter", "allgather_bucket_size", "reduce_bucket_size"],
        "zero3.yaml": [
            "overlap_comm",
            "stage3_prefetch_bucket_size",
            "stage3_param_persistence_threshold",
            "stage3_max_live_parameters",
            "stage3_max_reuse_distance",
        ],
    }
    for file, keys in ignored.items():
        here = [d for d in report if d["file"] == file]
        for key in keys:
            found = _of(here, "ZC103", key)
            assert len(found) == 1 and "ignores" in found[0]["message"], (file, key)
        # No launch line is here, and one may give the number.
        assert any("num_processes" in d["message"] and d["severity"] == "note" for d in here), file
    gather = [d for d in report if d["path"].endswith("stage3_gather_16bit_weights_on_model_save")]
    assert any("does not read" in d["message"] or "no effect" in d["message"] for d in gather)
    assert any("zero3_save_16bit_model: true" in d["help"] for d in gather)
    assert not [d for d in report if d["code"] == "ZC005"], "what accelerate ignores is no number and no string"


def test_clean_file_exits_zero(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(GOOD)
    outcome = zerocfg("lint")
    assert (outcome.code, outcome.out) == (0, "All checks passed in 1 file.\n")


def test_silent_about_files_of_others(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "package.json").write_text('{"name": "x", "dependencies": {}}')
    (tmp_path / "docker-compose.yaml").write_text("services:\n  web: {image: nginx}\n")
    (tmp_path / "broken.yaml").write_text("a: [1, 2\n\tb: }")
    (tmp_path / "broken.json").write_text("{,,,")
    (tmp_path / "Makefile").write_text("all:\n\techo hello\n")
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "ds_config.json").write_text('{"zero_optimization": {"stage": 9}}')
    outcome = zerocfg("lint", ".")
    assert (outcome.code, outcome.out) == (0, "Nothing was checked.\n")
    first, *listed = outcome.err.splitlines()
    assert first == "zerocfg: warning: no configs found below '.'" and listed[0] == "zerocfg looks for:"
    assert "  specs         zerocfg.yaml" in listed and "node_modules" in listed[-2]


def test_select_and_ignore(zerocfg: Cli, tmp_path: Path) -> None:
    clipping = "deepspeed_config:\n  gradient_clipping: 1e0\n"
    (tmp_path / "a.yaml").write_text(SNIPPET_B.replace("deepspeed_config:\n", clipping))
    codes = {d["code"] for d in _report(zerocfg("lint", "--select", "ZC1", "--output-format", "json"))}
    assert codes == {"ZC103"}
    codes = {d["code"] for d in _report(zerocfg("lint", "--ignore", "ZC1,ZC005", "--output-format", "json"))}
    assert codes and not codes & {"ZC103", "ZC005"}
    by_name = _report(zerocfg("lint", "--select", "number-read-as-string", "--output-format", "json"))
    assert {d["code"] for d in by_name} == {"ZC005"}
    assert zerocfg("lint", "--select", "ZC9999").code == 2


def test_ignore_comments(zerocfg: Cli, tmp_path: Path) -> None:
    text = GOOD + "  overlap_comm: true  # zerocfg: ignore[ZC103] our fork reads it\n"
    text += "  # zerocfg: ignore[ZC103]\n  reduce_bucket_size: 5e8\n"
    (tmp_path / "a.yaml").write_text(text)
    outcome = zerocfg("lint")
    assert outcome.code == 0
    assert "2 suppressed" in outcome.out
    (tmp_path / "a.yaml").write_text(text.replace("ZC103]", "ZC104]"))
    assert zerocfg("lint").code == 1


def test_settings(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}')
    (tmp_path / "pyproject.toml").write_text('[tool.zerocfg]\nignore = ["ZC101"]\n')
    assert zerocfg("lint").code == 0
    table = "[tool.zerocfg.per-file-ignores]\n"
    (tmp_path / "pyproject.toml").write_text(table + '"*.json:zero_optimization.t*" = ["ZC1"]\n')
    assert zerocfg("lint").code == 0
    (tmp_path / "pyproject.toml").write_text(table + '"*.json:fp16.*" = ["ZC1"]\n')
    assert zerocfg("lint").code == 1
    (tmp_path / "pyproject.toml").write_text('[tool.zerocfg]\nexclude = ["ds.json"]\n')
    assert zerocfg("lint").code == 0
    for wrong in ('[tool.zerocfg]\nfail-on = "never"\n', "[tool.zerocfg]\nselct = []\n", "[tool.zerocfg\n"):
        (tmp_path / "pyproject.toml").write_text(wrong)
        outcome = zerocfg("lint")
        assert outcome.code == 2 and "pyproject.toml" in outcome.err


@pytest.mark.parametrize("broken", ["[tool\n", "[project]\nname = \n", "[project]\nname = '\xff'\n", "tool = 3\n"])
def test_a_pyproject_that_is_no_business_of_zerocfg(broken: str, zerocfg: Cli, tmp_path: Path) -> None:
    """One without settings is passed over, as where it is whole; those above it count."""
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}')
    (tmp_path / "pyproject.toml").write_bytes(broken.encode("latin-1"))
    assert zerocfg("lint").code == 1
    inner = tmp_path / "inner"
    inner.mkdir()
    for name in ("ds.json", "pyproject.toml"):
        (tmp_path / name).rename(inner / name)
    (tmp_path / "zerocfg.toml").write_text('ignore = ["ZC101"]\n')
    assert zerocfg("lint", "inner").code == 0


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (
            '[tool.zerocfg]\nignore = ["ZC101"\n',
            "pyproject.toml: Unclosed array (at end of document); it names zerocfg",
        ),
        (
            '[tool."zerocfg"]\n[project\n',
            "(at line 2, column 9); it names zerocfg, whose settings in it cannot be read",
        ),
    ],
)
def test_a_pyproject_with_settings_that_cannot_be_read(broken: str, why: str, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}')
    (tmp_path / "pyproject.toml").write_text(broken)
    outcome = zerocfg("lint")
    assert outcome.code == 2 and why in outcome.err and "--isolated" in outcome.err, outcome.err
    assert zerocfg("lint", "--isolated").code == 1


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (("--ignore", "ALL"), 0),
        (("--ignore", "ALL,ZC4"), 0),
        (("--select", "ALL", "--ignore", "ALL"), 1),
        (("--select", "ZC1", "--ignore", "ALL"), 1),
        (("--select", "ALL", "--ignore", "ZC101"), 0),
    ],
)
def test_every_rule_ignored(words: tuple[str, ...], found: int, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}')
    assert len(_report(zerocfg("lint", "--output-format", "json", *words))) == found


def test_consumer_where_no_file_tells_it(zerocfg: Cli, tmp_path: Path) -> None:
    config = {"train_batch_size": 8, "zero_optimization": {"stage": 3}}
    (tmp_path / "ds.json").write_text(json.dumps(config))

    def severity(*words: str) -> str:
        report = _report(zerocfg("lint", "--select", "ZC401", "--output-format", "json", *words))
        return str(report[0]["severity"])

    assert severity() == "warning"
    assert severity("--consumer", "transformers") == "error"
    assert severity("--consumer", "deepspeed") == "note"
    (tmp_path / "zerocfg.toml").write_text('consumer = "transformers"\n')
    assert severity() == "error"
    assert severity("--consumer", "deepspeed") == "note"
    (tmp_path / "zerocfg.toml").write_text('consumer = "nobody"\n')
    assert zerocfg("lint").code == 2


def test_fail_on_and_exit_zero(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(GOOD + "tpu_use_sudo: true\n")
    assert zerocfg("lint").code == 0
    assert zerocfg("lint", "--fail-on", "note").code == 1
    assert zerocfg("lint", "--fail-on", "note", "--exit-zero").code == 0


def test_stdin(zerocfg: Cli) -> None:
    outcome = zerocfg("lint", "-", "--stdin-filename", "a.yaml", stdin=GOOD + "  overlap_comm: true\n")
    assert outcome.code == 1 and "--> a.yaml:5:3" in outcome.out


def test_fix_and_diff(zerocfg: Cli, tmp_path: Path) -> None:
    path = tmp_path / "a.yaml"
    text = GOOD.replace("zero_stage: 2", "zero_stage: 3") + "  zero3_save_16bit_modle: true # save\n"
    path.write_bytes(text.replace("\n", "\r\n").encode())
    before = path.read_bytes()
    shown = zerocfg("lint", "--diff")
    assert "+  zero3_save_16bit_model: true # save" in shown.out.replace("\r", "") and path.read_bytes() == before
    fixed = zerocfg("lint", "--fix")
    assert fixed.code == 0, fixed.out
    assert path.read_bytes() == before.replace(b"modle", b"model")
    again = path.read_bytes()
    zerocfg("lint", "--fix")
    assert path.read_bytes() == again


@pytest.mark.parametrize(
    ("name", "content", "word"),
    [
        ("a.yaml", b"distributed_type: DEEPSPEED\n\xff\xfe", "UTF-8"),
        ("a.yaml", b"distributed_type: [1, 2\nnum_processes: }", "YAML"),
        ("a.yaml", b"distributed_type: &a [*a]\nnum_processes: 1\n", "alias"),
        ("a.yaml", b"distributed_type: " + b"[" * 100_000, "deep"),
        ("ds.json", b'{"zero_optimization": ' + b'{"a":' * 100_000, "deep"),
        ("ds.json", b'{"zero_optimization": {"stage": 2}, "train_batch_size": \x00}', "binary"),
        ("ds.json", b'{"zero_optimization": {"stage": 2}, "train_batch_size": ' + b"9" * 5000 + b"}", "ds.json"),
        ("ds.json", b'["zero_optimization"]', ""),
        ("ds.json", b"\xff\xfe{\x00}\x00", ""),
    ],
)
def test_bad_input_is_a_finding_or_silence(zerocfg: Cli, tmp_path: Path, name: str, content: bytes, word: str) -> None:
    (tmp_path / name).write_bytes(content)
    for target in (".", name):
        outcome = zerocfg("lint", target)
        known = outcome.code == 1
        assert outcome.code == (1 if known else 0 if target == "." else 2)
        assert word.lower() in outcome.out.lower()
        assert known or target == "." or f"'{name}' was not checked" in outcome.err
    assert (tmp_path / name).read_bytes() == content


def test_wrong_use(zerocfg: Cli, tmp_path: Path) -> None:
    assert zerocfg("lint", "nowhere.yaml").code == 2
    assert zerocfg("lint", "--output-format", "yaml").code == 2
    assert zerocfg("nonsense").code == 2
    (tmp_path / "a.yaml").symlink_to("a.yaml")
    assert zerocfg("lint", ".").code == 0


_WORDS = st.sampled_from(
    "distributed_type DEEPSPEED deepspeed_config zero_optimization stage 3 auto null true 5e8 {} [] bf16 enabled "
    "train_batch_size num_processes fsdp_config mixed_precision no gradient_accumulation_steps deepspeed".split()
)
_TREE = st.recursive(
    st.one_of(_WORDS, st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(_WORDS, inner, max_size=5)),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(yaml=_TREE, ds=_TREE, recipe=_TREE)
def test_no_shape_of_input_raises(zerocfg: Cli, tmp_path: Path, yaml: Any, ds: Any, recipe: Any) -> None:
    top = {"distributed_type": "DEEPSPEED", "deepspeed_config": {"deepspeed_config_file": "ds.json"}}
    (tmp_path / "a.yaml").write_text(json.dumps({**top, **yaml} if isinstance(yaml, dict) else yaml))
    (tmp_path / "ds.json").write_text(json.dumps({"zero_optimization": ds, **(ds if isinstance(ds, dict) else {})}))
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    (tmp_path / "run.sh").write_text("accelerate launch --config_file a.yaml train.py --config recipe.yaml\n")
    assert zerocfg("lint").code in (0, 1)


def test_a_batch_that_no_float_can_hold(zerocfg: Cli, tmp_path: Path) -> None:
    """DeepSpeed divides the world size by the sequence parallel size, so it multiplies with a float."""
    config = {"train_micro_batch_size_per_gpu": 10**400, "sequence_parallel_size": 2, "zero_optimization": {"stage": 2}}
    (tmp_path / "ds_config.json").write_text(json.dumps(config))
    (tmp_path / "train.sh").write_text("deepspeed --num_gpus 4 train.py --deepspeed_config ds_config.json\n")
    outcome = zerocfg("lint")
    assert outcome.code in (0, 1) and "internal error" not in outcome.err
