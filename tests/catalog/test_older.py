"""Compiled schemas as older releases have them. What is expected here was seen by running those releases."""

from __future__ import annotations

import json

import pytest

from zerocfg.catalog.check import check
from zerocfg.catalog.history import histories
from zerocfg.catalog.older import differing, schema_at
from zerocfg.catalog.schema import load_schema, schema_folder
from zerocfg.catalog.versions import bounds, release
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText


def found(at: str, config: dict[str, object]) -> list[tuple[str, str]]:
    text = json.dumps({"train_micro_batch_size_per_gpu": 1, **config})
    document = load_as(SourceText("ds.json", text), "json")
    issues = check(document.root, schema_at("deepspeed", release(at)))
    return [(issue.kind, ".".join(map(str, issue.path))) for issue in issues]


@pytest.mark.parametrize(
    ("config", "before", "then", "edge", "issue"),
    [
        ({"fp16": {"opt_level": "O2"}}, "unknown-ignored", "unknown-crash", ("0.17.0", "0.17.1"), "fp16.opt_level"),
        ({"fp16": {"min_loss_scale": 0.5}}, None, "type", ("0.17.0", "0.17.1"), "fp16.min_loss_scale"),
        ({"bf16": {"loss_scale": 0}}, "unknown-ignored", "unknown-crash", ("0.17.0", "0.17.1"), "bf16.loss_scale"),
        ({"amp": {"enabled": False}}, None, "removed", ("0.19.7", "0.19.8"), "amp"),
        ({"sparse_attention": {"mode": "fixed"}}, None, "removed", ("0.19.6", "0.19.7"), "sparse_attention"),
        (
            {"zero_optimization": {"reduce_bucket_size": 0}},
            None,
            "range",
            ("0.19.5", "0.19.6"),
            "zero_optimization.reduce_bucket_size",
        ),
        (
            {"zero_optimization": {"zenflow": {"topk_ratio": 1.0}}},
            None,
            "range",
            ("0.19.5", "0.19.6"),
            "zero_optimization.zenflow.topk_ratio",
        ),
        (
            {"zero_optimization": {"reduce_bucket_size": 1.5}},
            None,
            "type",
            ("0.14.5", "0.15.0"),
            "zero_optimization.reduce_bucket_size",
        ),
        (
            {"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0}}},
            None,
            "range",
            ("0.19.2", "0.19.3"),
            "scheduler.params.warmup_num_steps",
        ),
    ],
    ids=lambda value: json.dumps(value)[:60] if isinstance(value, dict) else "",
)
def test_where_releases_differ(
    config: dict[str, object], before: str | None, then: str, edge: tuple[str, str], issue: str
) -> None:
    assert found(edge[0], config) == ([(before, issue)] if before else [])
    assert found(edge[1], config) == [(then, issue)]


@pytest.mark.parametrize(
    ("key", "edge", "values"),
    [
        ("gradient_clipping", ("0.19.2", "0.19.3"), (0.0, 1.0)),
        ("zero_optimization.offload_optimizer.pin_memory", ("0.19.4", "0.19.5"), (False, True)),
        ("zero_optimization.offload_param.pin_memory", ("0.19.4", "0.19.5"), (False, True)),
        ("bf16.check_grad_overflow", ("0.19.2", "0.19.3"), (False, True)),
    ],
)
def test_defaults(key: str, edge: tuple[str, str], values: tuple[object, object]) -> None:
    assert tuple(schema_at("deepspeed", release(at)).default(key) for at in edge) == values


@pytest.mark.parametrize(
    ("key", "absent", "there"),
    [
        (("zero_optimization", "zenflow"), "0.17.4", "0.17.5"),
        (("bf16", "bf16_optimizer_states"), "0.18.2", "0.18.3"),
        (("comet",), "0.14.2", "0.14.3"),
    ],
)
def test_keys_that_came_later(key: tuple[str, ...], absent: str, there: str) -> None:
    assert schema_at("deepspeed", release(absent)).find(key) is None
    assert schema_at("deepspeed", release(there)).find(key) is not None
    assert histories("deepspeed").since(".".join(key)) == there


def test_today_is_the_compiled_schema_itself() -> None:
    today = load_schema("deepspeed")
    assert schema_at("deepspeed", release("0.19.8")) is today
    assert schema_at("deepspeed", release("1.0")) is today
    assert schema_at("deepspeed", release("0.19.7")) is not today
    assert today.find(("amp",)) is not None and "removed" in today.find(("amp",)).facts  # type: ignore[union-attr]


@pytest.mark.parametrize("name", ["deepspeed", "accelerate"])
def test_an_older_schema_leaves_todays_alone(name: str) -> None:
    oldest = schema_at(name, histories(name).releases[0])
    opened = [oldest.root]
    while opened:
        inner = (key.section(oldest) for key in opened.pop().keys.values())
        opened += [section for section in inner if section is not None]
    assert load_schema(name).raw == json.loads((schema_folder() / f"{name}.json").read_text(encoding="utf-8"))


def test_a_section_that_came_back_has_the_keys_of_its_time() -> None:
    """`amp` of 0.19.7: 0.19.8 stops at it, and knows nothing of what was in it."""
    then = schema_at("deepspeed", release("0.19.7"))
    assert then.find(("amp", "enabled")) is not None and then.find(("amp", "no_such_key")) is None
    assert load_schema("deepspeed").find(("amp", "enabled")) is None


def test_the_histories_end_with_the_compiled_schema() -> None:
    """Keys, defaults and bounds of the newest release are those of the models."""
    known, schema = histories("deepspeed"), load_schema("deepspeed")
    words = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
    compared = 0
    for name in known.raw:
        state = known.state(name, known.releases[-1])
        key = schema.find(tuple(name.split(".")))
        if name.startswith("optimizer."):  # its parameters are those of the optimizer that is built
            continue
        if key is None or name != ".".join([*name.split(".")[:-1], key.name]) or state is None:
            continue
        compared += 1
        assert ("removed" in state) == ("removed" in key.facts), name
        if "kinds" in state and "section" not in state["kinds"] and not isinstance(state.get("default"), dict):
            assert key.default == state.get("default") or "computed" in state, name
            mine = {word for branch in key.scalars for word in words.values() if word in branch}
            assert {words[word] for word in words if word in state} <= mine, name
    assert compared > 150


@pytest.mark.parametrize(
    ("declared", "keys", "expected"),
    [
        ("==0.14.5", {"fp16.*"}, ["0.14.5"]),
        (">=0.16,<0.17", {"fp16.*"}, ["0.16.0"]),
        (">=0.17", {"fp16.*"}, ["0.17.0", "0.17.1"]),
        (">=0.17.1", {"fp16.*"}, ["0.17.1"]),
        (">=0.17,<0.17.1", {"fp16.*"}, ["0.17.0"]),
        (">=0.17,<=0.17.1", {"fp16.*"}, ["0.17.0", "0.17.1"]),
        (">=0.17", set(), ["0.17.0"]),
        ("<0.9", {"fp16.*"}, []),
        ("==0.11.0", {"fp16.*"}, ["0.10.3"]),  # not walked: what the one before it does
        (">=0.19.7", {"amp"}, ["0.19.7", "0.19.8"]),
        (">=0.19.8", {"amp"}, ["0.19.8"]),
        ("==0.21", {"amp"}, ["0.19.8"]),
    ],
)
def test_the_releases_that_read_a_document_differently(declared: str, keys: set[str], expected: list[str]) -> None:
    limits = bounds(declared)
    assert limits is not None
    assert differing("deepspeed", keys.__contains__, limits) == [release(one) for one in expected]


@pytest.mark.parametrize(
    ("at", "name", "kinds"),
    [
        ("1.12.0", "ipex_config", []),
        ("1.13.0", "ipex_config", ["removed"]),
        ("1.6.0", "tp_config", []),
        ("1.7.0", "tp_config", ["unknown-crash"]),
        ("1.3.0", "tp_config", ["unknown-crash"]),
        ("1.9.0", "parallelism_config", ["unknown-crash"]),
        ("1.10.0", "parallelism_config", []),
    ],
)
def test_top_level_keys_of_accelerate(at: str, name: str, kinds: list[str]) -> None:
    document = load_as(SourceText("acc.yaml", f"distributed_type: 'NO'\n{name}: {{}}\n"), "yaml")
    issues = check(document.root, schema_at("accelerate", release(at)))
    assert [issue.kind for issue in issues if issue.path == (name,)] == kinds


@pytest.mark.parametrize(
    ("at", "config", "kinds"),
    [
        ("0.19.7", {"amp": "x"}, ["section-type"]),
        ("0.14.5", {"nebula": None}, ["section-type"]),
        ("0.14.5", {"nebula": {"enabled": True}}, []),
        ("0.14.5", {"curriculum_learning": []}, ["section-type"]),
        ("0.17.0", {"fp16": None}, ["section-type"]),
        ("0.17.0", {"bf16": None}, ["section-type"]),
        ("0.17.1", {"bf16": None}, []),
        ("0.14.5", {"zero_optimization": {"stage": "2"}}, ["choice"]),
        ("0.15.0", {"zero_optimization": {"stage": "2"}}, []),
        ("0.19.5", {"zero_optimization": {"mics_shard_size": "cpu"}}, ["type"]),
        ("0.19.5", {"zero_optimization": {"mics_shard_size": 8}}, []),
    ],
)
def test_what_stands_in_the_place_of_a_section(at: str, config: dict[str, object], kinds: list[str]) -> None:
    assert [kind for kind, _ in found(at, config)] == kinds


def test_a_section_of_older_releases_that_hands_its_keys_on_stays_open() -> None:
    amp = {"enabled": True, "opt_level": "O1"}  # `amp.initialize(**amp_params)` in the engine of 0.15.4
    assert found("0.15.4", {"amp": amp}) == []
    assert found("0.19.8", {"amp": amp}) == [("removed", "amp")]
    assert found("0.15.4", {"fp16": {"opt_level": "O1"}}) == [("unknown-ignored", "fp16.opt_level")]


@pytest.mark.parametrize(
    ("key", "there", "gone"),
    [
        (("fsdp_config", "fsdp_backward_prefetch_policy"), ("0.23.0", "0.33.0", "0.34.2"), "1.0.0"),
        (("mpirun_config", "mpirun_ccl"), ("0.28.0", "1.0.1", "1.12.0"), "1.13.0"),
    ],
)
def test_keys_of_a_section_that_were_options_of_the_launcher_once(
    key: tuple[str, str], there: tuple[str, ...], gone: str
) -> None:
    """accelerate 0.33.0 exports FSDP_BACKWARD_PREFETCH for the first one, 1.0.1 does not."""
    assert all(schema_at("accelerate", release(at)).find(key) is not None for at in there)
    assert schema_at("accelerate", release(gone)).find(key) is None
    assert load_schema("accelerate").find(key) is None
    other = ("deepspeed_config", key[1])
    assert schema_at("accelerate", release(there[-1])).find(other) is None
