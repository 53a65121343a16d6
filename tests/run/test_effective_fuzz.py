"""Whatever stands in the files, the settings are computed without an exception."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.run.test_effective import file
from zerocfg.run.facts import ModelSummary
from zerocfg.run.model import UNKNOWN, Effective, Origin, Run, Setting
from zerocfg.run.resolve_settings import resolve_settings
from zerocfg.run.stages.arguments import DECISIVE
from zerocfg.run.stages.engine import ABSENT, REMOVED
from zerocfg.run.stages.options import DISTRIBUTED_TYPES, OPTIONS, TOP_LEVEL

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.floats(allow_nan=True),
    st.sampled_from(["auto", "true", "no", "3", "5e8", "cpu", "none", "", "bf16", "fp8", "x,y"]),
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abc"), inner, max_size=2)
)
names = {name.split(".")[0] for name in ABSENT} | set(REMOVED) | {"optimizer", "scheduler", "checkpoint", "a.b"}
batches = {
    "train_batch_size",
    "train_micro_batch_size_per_gpu",
    "gradient_accumulation_steps",
    "sequence_parallel_size",
}
inner_names = {name.split(".")[1] for name in ABSENT if "." in name} | {"params", "device", "offload_param"}
sections = st.one_of(values, st.dictionaries(st.sampled_from(sorted(inner_names)), values, max_size=5))
deepspeed = st.one_of(values, st.dictionaries(st.sampled_from(sorted(names | batches)), sections, max_size=8))
section_keys = st.dictionaries(st.sampled_from(sorted(OPTIONS)), values, max_size=6)
accelerate = st.one_of(
    values,
    st.fixed_dictionaries(
        {"distributed_type": st.sampled_from(DISTRIBUTED_TYPES)},
        optional={name: section_keys | values if name.endswith("_config") else values for name in TOP_LEVEL},
    ),
)
recipes = st.dictionaries(st.sampled_from([*DECISIVE, "env"]), values | deepspeed, max_size=6)
words = st.one_of(st.just(UNKNOWN), st.just(True), st.sampled_from(["2", "auto", "x", "true", "bf16", "0.1"]))


def with_data(kind: Any, data: Any) -> Any:
    source = file(kind, "{}")

    class Fixed(type(source)):  # type: ignore[misc]
        def data(self) -> Any:
            return data

    return Fixed(source.name, kind, source.source, source.document)


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    consumer=st.sampled_from([None, "deepspeed", "accelerate", "transformers", "trl"]),
    route=st.sampled_from([None, "accelerate", "trainer", "engine"]),
    config=st.none() | accelerate,
    ds=st.none() | deepspeed,
    recipe=st.none() | recipes,
    flags=st.dictionaries(st.sampled_from(sorted(OPTIONS)), words, max_size=4),
    arguments=st.dictionaries(st.sampled_from(sorted(DECISIVE)), words, max_size=4),
    model=st.sampled_from([None, ModelSummary("a"), ModelSummary("b", hidden_size=8)]),
)
def test_never_raises(
    consumer: Any, route: Any, config: Any, ds: Any, recipe: Any, flags: Any, arguments: Any, model: Any
) -> None:
    run = Run(
        "junk",
        consumer=consumer,
        deepspeed_route=route,
        model=model,
        accelerate=None if config is None else with_data("accelerate", config),
        deepspeed=None if ds is None else with_data("deepspeed", ds),
        recipe=None if recipe is None else with_data("recipe", recipe),
        flags={name: Setting(value, Origin("flag", name)) for name, value in flags.items()},
        arguments={name: Setting(value, Origin("flag", name)) for name, value in arguments.items()},
    )
    effective = resolve_settings(run)
    assert isinstance(effective, Effective)
    assert all(isinstance(setting, Setting) for setting in effective.settings.values())
    assert all(failure.kind and failure.message for failure in effective.failures)
