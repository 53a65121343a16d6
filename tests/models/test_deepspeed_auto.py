"""What the installed DeepSpeed does with null and with an unfilled "auto", against what the models say."""

from __future__ import annotations

import typing
from typing import Any

import pytest

pytest.importorskip("deepspeed")

from real_deepspeed import facts_of, loose_sections, parses, section_of

from zerocfg.models.deepspeed import DeepSpeedConfig, zero

pytestmark = pytest.mark.libs


def section_properties() -> list[Any]:
    return [
        pytest.param(name, field, id=name)
        for name, field in DeepSpeedConfig.model_fields.items()
        if section_of(field.annotation) is not None
    ]


@pytest.mark.parametrize(("name", "field"), section_properties())
def test_null_sections(name: str, field: Any) -> None:
    section = section_of(field.annotation)
    assert section is not None
    assert parses({name: None}) == (section.null in ("absent", "falsy"))
    assert parses({name: 0}) == (section.null == "falsy")
    assert (type(None) in typing.get_args(field.annotation)) == (section.null in ("absent", "falsy"))


@pytest.mark.parametrize("name", ["offload_param", "offload_optimizer", "zenflow", "leaf_module"])
def test_null_sections_of_zero(name: str) -> None:
    section = section_of(zero.ZeroOptimization.model_fields[name].annotation)
    assert section is not None and section.null == "absent"
    assert parses({"zero_optimization": {name: None}})


@pytest.mark.parametrize(("name", "field"), section_properties())
def test_auto_in_place_of_a_section(name: str, field: Any) -> None:
    assert parses({name: "auto"}) == (facts_of(field)["auto_raw"] == "default")


# Loose keys whose "auto" passes the parse and is refused later, and where.
AUTO_REFUSED_LATER = {
    ("pipeline", "activation_checkpoint_interval"): "runtime/pipe/engine.py",
    ("pipeline", "pipe_partitioned"): "runtime/pipe/engine.py",
    ("pipeline", "grad_partitioned"): "runtime/pipe/engine.py",
    ("expert_parallel", "validate_folding_routing"): "module_inject/auto_ep_config.py",
    ("expert_parallel", "async_split_plan"): "module_inject/auto_ep_config.py",
    ("expert_parallel", "comm_num_sm"): "module_inject/auto_ep_config.py",
    ("expert_parallel", "comm_qp_margin"): "module_inject/auto_ep_config.py",
    ("expert_parallel", "comm_max_tokens_per_rank"): "module_inject/auto_ep_config.py",
    ("sequence_parallel_size",): "runtime/config.py, with more than one rank",
}

# "auto" is kept as a truthy string here; what true needs beside it, so that nothing else fails.
COMPANIONS: dict[tuple[str, ...], dict[str, Any]] = {
    ("data_efficiency", "data_sampling", "curriculum_learning", "enabled"): {"curriculum_metrics": {}},
    ("data_efficiency", "data_sampling", "dynamic_batching", "enabled"): {"max_tokens": 8},
}
ON_CUDA_ONLY = {("aio", "use_gds")}  # true, and so "auto", is refused on any other device


@pytest.mark.parametrize(
    ("path", "field"),
    [
        pytest.param((*path, name), field, id=".".join((*path, name)))
        for path, model in loose_sections()
        if path[-1:] != ("params",)
        for name, field in model.model_fields.items()
        if section_of(field.annotation) is None and "removed" not in facts_of(field)
    ],
)
def test_auto_in_a_loose_section(path: tuple[str, ...], field: Any) -> None:
    config: dict[str, Any] = {}
    place = config
    for part in path[:-1]:
        place = place.setdefault(part, {})
    place[path[-1]] = "auto"
    place.update(COMPANIONS.get(path, {}))
    if path[-1] == "allgather_size":
        config["zero_optimization"] = True
    stated = facts_of(field).get("auto_raw", "kept")
    if path in ON_CUDA_ONLY:
        assert stated == "kept"
    elif path in AUTO_REFUSED_LATER:
        assert parses(config) and stated == "error"
    else:
        assert parses(config) == (stated != "error")


@pytest.mark.parametrize("name", [path[1] for path in AUTO_REFUSED_LATER if path[0] == "expert_parallel"])
def test_auto_refused_by_expert_parallelism(name: str) -> None:
    from deepspeed.module_inject.auto_ep_config import parse_autoep_config, validate_autoep_config

    sizes = {"world_size": 1, "pp_size": 1, "tp_size": 1, "sp_size": 1}
    validate_autoep_config(parse_autoep_config({"enabled": True}), **sizes)
    with pytest.raises(ValueError, match=name):
        validate_autoep_config(parse_autoep_config({"enabled": True, name: "auto"}), **sizes)
