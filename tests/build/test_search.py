"""``goals:``: batches that give the global one, the ranking of plans, and what ends up in the emitted files."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.build.conftest import Files, Workplace, job
from zerocfg.hardware.profile import load_hardware
from zerocfg.memory.overhead import GIB
from zerocfg.models.hardware import HardwareProfile, Host, Mount
from zerocfg.resolve.build import BuildResult, build_plans
from zerocfg.resolve.explain.alternatives import Alternative, alternatives
from zerocfg.resolve.search.candidates import Candidate
from zerocfg.resolve.search.choice import MICRO, OPTIMIZER_DEVICE, PARAM_DEVICE, STAGE, STEPS, Prefer
from zerocfg.resolve.search.ranking import ALIKE, considered, ranked
from zerocfg.resolve.search.search_space import (
    LARGEST_MICRO,
    ContradictionError,
    SearchSpace,
    batches,
    choices,
    layouts,
)
from zerocfg.resolve.spec.spec_file import read_spec

SEVEN = {"model_type": "llama", "vocab_size": 32000}  # the defaults of LlamaConfig are those of LLaMA-7B
SEVENTY = {
    **SEVEN,
    "hidden_size": 8192,
    "intermediate_size": 28672,
    "num_hidden_layers": 80,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
}
SMALL = {**SEVEN, "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8}
NOTHING: dict[str, Any] = {"output_dir": "out", "max_steps": 10}
AUTO = {
    "bf16": {"enabled": "auto"},
    MICRO: "auto",
    STEPS: "auto",
    "gradient_clipping": "auto",
}


def fixed(wanted: int | None, micro: int | None = None, steps: int | None = None) -> SearchSpace:
    return SearchSpace(((1, 1),), (None,), None, (None,), micro, steps, micro is None, steps is None, wanted)


def wanted(
    model: Any = SEVEN,
    goals: dict[str, Any] | None = None,
    recipe: dict[str, Any] | None = None,
    deepspeed: Any = AUTO,
    **run: Any,
) -> Files:
    """The files of a job that leaves everything open but what is given."""
    entry = {"model": "config.json", "sequence_length": 2048, "goals": goals or {"global_batch_size": 64}, **run}
    files = job(**entry)
    files["config.json"] = model
    files["recipe.yaml"] = {**NOTHING, **(recipe or {})}
    files["ds.json"] = deepspeed
    return files


def with_host(folder: Path, name: str, ram_gib: float, nvme_gib: float = 0.0) -> str:
    """A profile of the catalogue with a host that is known; the path of its file."""
    mounts = [Mount(path="/nvme", free_gib=nvme_gib, read_gb_s=6.0, write_gb_s=3.0)] if nvme_gib else []
    profile = load_hardware(name).model_copy(update={"host": Host(ram_gib=ram_gib, nvme=mounts)})
    path = folder / "profile.json"
    path.write_text(HardwareProfile.model_validate(profile.model_dump()).model_dump_json())
    return path.name


def found(workplace: Workplace, files: Files) -> BuildResult:
    """The run of a spec that must resolve."""
    spec = read_spec(workplace.write(files))
    (built,) = build_plans(spec)
    assert built.plan is not None, built.problems
    return built


def value(built: BuildResult, name: str) -> Any:
    assert built.plan is not None
    one = built.plan.settings.get(name)
    return one.value if one else None


# -- batches -----------------------------------------------------------------------------------------------------------


@given(st.integers(1, 2_000_000), st.integers(1, 1000))
def test_every_batch_gives_the_global_one(samples: int, ranks: int) -> None:
    try:
        pairs = batches(fixed(samples), ranks)
    except ContradictionError as error:
        assert samples % ranks
        assert str(samples) in str(error) and str(ranks) in str(error)
        return
    assert pairs and all(micro * steps * ranks == samples for micro, steps in pairs)  # type: ignore[operator]
    sizes = [micro for micro, _ in pairs]
    assert sizes == sorted(set(sizes)) and sizes[0] == 1  # type: ignore[type-var]
    assert max(size for size in sizes if size is not None) <= LARGEST_MICRO


@given(st.integers(1, 100_000), st.integers(1, 64), st.integers(1, 50), st.booleans())
def test_what_a_source_fixes_stays(samples: int, ranks: int, number: int, of_steps: bool) -> None:
    what = fixed(samples, steps=number) if of_steps else fixed(samples, micro=number)
    fits = samples % (ranks * number) == 0
    try:
        pairs = batches(what, ranks)
    except ContradictionError as error:
        assert not fits
        assert error.help
        return
    other = samples // ranks // number
    assert fits and pairs == ([(other, None)] if of_steps else [(None, other)])


@pytest.mark.parametrize(("micro", "steps", "right"), [(2, 4, True), (2, 3, False), (1, 1, False)])
def test_both_numbers_given(micro: int, steps: int, right: bool) -> None:
    what = fixed(64, micro, steps)
    if right:
        assert batches(what, 8) == [(None, None)]
        return
    with pytest.raises(ContradictionError, match=f"8 ranks x micro batch {micro} x {steps} accumulation steps"):
        batches(what, 8)


def test_suggested_batches_can_be_shared() -> None:
    with pytest.raises(ContradictionError) as caught:
        batches(fixed(65), 16)
    assert "64 or 80" in caught.value.help
    with pytest.raises(ContradictionError) as caught:
        batches(fixed(3), 16)
    assert "Ask for 16," in caught.value.help


def test_without_a_global_batch_sizes_are_powers_of_two() -> None:
    assert batches(fixed(None), 8) == [(1 << power, None) for power in range(7)]


def test_a_part_of_the_devices_is_enough_for_a_small_batch() -> None:
    profile = load_hardware("2x8xA100-80GB")
    parts = layouts(profile, "cost")
    assert parts == ((2, 8), (1, 8), (1, 4), (1, 2), (1, 1))
    assert layouts(profile, "throughput") == ((2, 8),) == layouts(profile, "memory")
    what = SearchSpace(parts, (1,), (("none", "none"),), (None,), None, None, True, True, 4)
    assert {one.processes for one in choices(what)} == {4, 2, 1}
    with pytest.raises(ContradictionError, match="4 samples cannot be shared among 16 ranks"):
        list(choices(SearchSpace(parts[:2], (1,), None, (None,), None, None, True, True, 4)))


# -- ranking -----------------------------------------------------------------------------------------------------------


def rows_of(
    workplace: Workplace, prefer: Prefer, model: Any = SEVEN, hardware: str = "8xA100-80GB"
) -> list[Alternative]:
    files = wanted(model, {"prefer": prefer, "global_batch_size": 64}, hardware=hardware)
    return alternatives(found(workplace, files))


@pytest.fixture
def many(workplace: Workplace) -> list[Candidate]:
    """Plans of a 7B model on 8 A100-40GB: some fit, some are likely to or not, some do not fit."""
    plans = [row.candidate for row in rows_of(workplace, "throughput", hardware="8xA100-40GB")]
    assert {one.word for one in plans} == {"fits", "likely", "unlikely", "does not fit"}
    return plans


def test_a_larger_micro_batch_wins_up_to_where_rows_show_a_gain(many: list[Candidate]) -> None:
    """Two samples of 2048 tokens before one; of larger ones, which count as equally fast, the smallest."""

    def recomputed(one: Candidate) -> bool:
        choice = one.choice
        return choice.stage == 3 and bool(choice.checkpointing) and not choice.offloads

    alone = [one for one in many if recomputed(one)]
    assert {1, 2, 4} <= {one.choice.micro_batch for one in alone if one.word == "fits"}
    order = ranked(random.Random(1).sample(alone, len(alone)), "throughput")
    assert order[0][0].choice.micro_batch == 2
    why = {one.choice.micro_batch: text for one, text in order}
    assert why[1] == "26% slower" and why[4].startswith("about as fast, with a larger micro batch")


def test_order_does_not_depend_on_the_order_of_evaluation(many: list[Candidate]) -> None:
    for prefer in ("throughput", "memory", "cost"):
        first = ranked(many, prefer)
        for seed in range(3):
            mixed = random.Random(seed).sample(many, len(many))
            assert ranked(mixed, prefer) == first


def test_nothing_that_fits_is_faster_by_more_than_counts(many: list[Candidate]) -> None:
    best, *others = ranked(many, "throughput")
    assert best[0].word in ("fits", "likely") and best[1] == ""
    spent = best[0].seconds_per_token
    assert spent is not None
    for one, why in others:
        assert why
        if one.word == "fits" and best[0].word == "fits":
            assert one.seconds_per_token is not None and one.seconds_per_token * (1 + ALIKE) >= spent
            assert ("slower" in why) == (one.seconds_per_token > spent * (1 + ALIKE)), why


def test_nothing_that_fits_is_smaller_by_more_than_counts(many: list[Candidate]) -> None:
    best, *others = ranked(many, "memory")
    size = best[0].prediction.device.expected
    assert best[0].word == "fits"
    assert all(one.prediction.device.expected * (1 + ALIKE) >= size for one, _ in others if one.word == "fits")


def test_what_may_fit_stands_before_what_may_not_before_what_does_not_fit(many: list[Candidate]) -> None:
    ways: dict[Any, str] = {}
    for one, _ in ranked(many, "throughput"):
        choice = one.choice
        ways.setdefault((choice.stage, choice.offload_optimizer, choice.offload_param, choice.checkpointing), one.word)
    order = {"fits": 0, "likely": 0, "unlikely": 1, "does not fit": 2}
    assert list(ways.values()) == sorted(ways.values(), key=order.__getitem__)


def test_where_nothing_fits_every_plan_says_what_it_lacks(many: list[Candidate]) -> None:
    lost = [one for one in many if one.word == "does not fit"]
    rows = ranked(lost, "throughput")
    assert all("needs at least" in why and "the card has 39.4" in why for _, why in rows)
    assert rows[0][0].prediction.device.low == min(one.prediction.device.low for one in lost)


def test_no_plan_fits_above_the_card(many: list[Candidate]) -> None:
    """What the driver of an A100-40GB reports are 39.4 GiB; each word with the end of the band that it is about."""
    for one in many:
        band, room = one.prediction.device, 39.4 * 2**30
        within = {"fits": band.high, "likely": band.expected, "unlikely": band.low, "does not fit": 0}
        beyond = {"fits": room + 1, "likely": band.high, "unlikely": band.expected, "does not fit": band.low}
        assert within[one.word] <= room * 1.001 and beyond[one.word] >= room * 0.999, one.choice
        assert one.judged.chance is not None
        least, most = {"fits": (0.95, 1), "likely": (0.5, 0.95), "unlikely": (0.05, 0.5), "does not fit": (0, 0.05)}[
            one.word
        ]
        assert least - 0.001 <= one.judged.chance <= most + 0.001, one.choice


def test_what_was_compared_is_kept(many: list[Candidate]) -> None:
    rows = [considered(*row) for row in ranked(many, "throughput")]
    assert [row.excluded == "" for row in rows] == [True] + [False] * (len(rows) - 1)
    assert all(row.settings[MICRO] * row.settings[STEPS] * 8 == 64 for row in rows)


def test_a_build_is_the_same_twice(workplace: Workplace) -> None:
    files = wanted()
    workplace.built(files)
    before = {path.name: path.read_bytes() for path in (workplace.folder / "out" / "a").iterdir()}
    workplace.built(files, "a", "--force")
    assert before == {path.name: path.read_bytes() for path in (workplace.folder / "out" / "a").iterdir()}


# -- goals -------------------------------------------------------------------------------------------------------------


def test_the_goals_order_time_memory_and_price(workplace: Workplace) -> None:
    times, sizes, prices = [], [], []
    for prefer in ("throughput", "memory", "cost"):
        built = found(workplace, wanted(goals={"prefer": prefer, "global_batch_size": 64}))
        assert built.plan is not None
        best = built.plan.considered[0]
        assert best.seconds_per_token is not None and best.device_gib is not None
        times.append(best.seconds_per_token)
        sizes.append(best.device_gib)
        prices.append(best.seconds_per_token * best.settings["num_processes"])
    assert times[0] == min(times) and sizes[1] == min(sizes) and prices[2] <= min(prices) * (1 + ALIKE)


def test_the_cheapest_plan_may_use_a_part_of_the_hardware(workplace: Workplace) -> None:
    built = found(workplace, wanted(SMALL, {"prefer": "cost", "global_batch_size": 64}, hardware="2x8xA100-80GB"))
    assert built.plan is not None
    used = value(built, "num_processes")
    assert used < 16 and built.plan.num_processes == used
    assert used * value(built, MICRO) * value(built, STEPS) == 64
    assert any(f"{used} of 16 devices are used" in note for note in built.plan.notes)


def test_one_device_of_several_is_started_alone(workplace: Workplace) -> None:
    files = wanted(SMALL, {"prefer": "cost", "global_batch_size": 1}, deepspeed=None, engine="ddp", sequence_length=512)
    del files["ds.json"]
    files["zerocfg.yaml"]["runs"]["a"].pop("deepspeed")
    _, lock = workplace.built(files)
    assert lock["settings"]["num_processes"]["value"] == 1
    launched = yaml.safe_load((workplace.folder / "out/a/accelerate.yaml").read_text())
    assert launched["num_processes"] == 1 and launched["distributed_type"] == "NO"


# -- hardware ----------------------------------------------------------------------------------------------------------


def test_a_small_host_excludes_offload(workplace: Workplace) -> None:
    words = {}
    for ram in (512, 4096):
        files = wanted(SEVENTY, {"global_batch_size": 128}, hardware=with_host(workplace.folder, "8xA100-80GB", ram))
        if ram == 512:
            result = workplace.build(workplace.write(files))
            assert result.exit_code == 1 and "no plan fits" in result.output
            assert "What would fit: 32 cards (4x8xA100-SXM-80GB), with ZeRO-3, 4 x 1, recomputed: " in result.output
            words[ram] = result.output
        else:
            built = found(workplace, files)
            assert value(built, OPTIMIZER_DEVICE) == "cpu" and value(built, STAGE) == 3
    assert "out of memory" not in words[512]


def test_what_the_host_lacks_is_said(workplace: Workplace) -> None:
    files = wanted(hardware=with_host(workplace.folder, "8xA100-40GB", 64))
    rows = alternatives(found(workplace, files))
    offloaded = [row for row in rows if row.candidate.choice.offload_optimizer == "cpu"]
    assert offloaded and all(row.candidate.word == "does not fit" for row in offloaded)
    assert any("of the node's memory, of which there are 64" in row.excluded for row in offloaded)


def test_drives_are_used_only_where_the_profile_knows_one(workplace: Workplace) -> None:
    places = {}
    for room in (0, 8000):
        files = wanted(hardware=with_host(workplace.folder, "8xA100-40GB", 2048, room))
        places[room] = {row.candidate.choice.offload_optimizer for row in alternatives(found(workplace, files))}
    assert places == {0: {"none", "cpu"}, 8000: {"none", "cpu", "nvme"}}


def test_offload_to_drives_is_written_with_its_path_and_its_requests(workplace: Workplace) -> None:
    # the host holds the buffers of the drives but not the optimizer; 70e9 parameters on one node
    name = with_host(workplace.folder, "8xA100-80GB", 700, 8000)
    config, _ = workplace.built(wanted(SEVENTY, {"global_batch_size": 128}, hardware=name))
    zero = config["zero_optimization"]
    assert zero["offload_optimizer"]["device"] == "nvme"
    assert zero["offload_optimizer"]["nvme_path"] == "/nvme"
    assert config["aio"]["queue_depth"] == 32


def test_a_device_without_bf16_computes_in_fp16(workplace: Workplace) -> None:
    config, _ = workplace.built(wanted(SMALL, hardware="8xV100-32GB", deepspeed={**AUTO, "fp16": {"enabled": "auto"}}))
    assert config["fp16"]["enabled"] is True and not config.get("bf16", {}).get("enabled")
    assert "fp16: true" in (workplace.folder / "out/a/recipe.yaml").read_text()


def test_ranks_without_a_device(workplace: Workplace) -> None:
    config, _ = workplace.built(wanted(SMALL, {"global_batch_size": 8}, hardware="4xcpu"))
    assert config[MICRO] * config[STEPS] * 4 == 8
    assert "offload_optimizer" not in config["zero_optimization"]


# -- who reads the config ----------------------------------------------------------------------------------------------


def test_a_loop_of_its_own_without_a_deepspeed_file(workplace: Workplace) -> None:
    files = wanted(consumer="deepspeed", recipe=None)
    entry = files["zerocfg.yaml"]["runs"]["a"]
    entry.pop("recipe"), entry.pop("deepspeed")
    config, _ = workplace.built(files)
    assert config[MICRO] * config[STEPS] * 8 == 64
    assert config["zero_optimization"]["stage"] in (1, 2, 3) and config["bf16"]["enabled"] is True


def test_accelerate_alone_keeps_its_batch(workplace: Workplace) -> None:
    files = wanted(goals={"prefer": "memory"}, consumer="accelerate", deepspeed={**AUTO, MICRO: 2, STEPS: 4})
    files["zerocfg.yaml"]["runs"]["a"].pop("recipe")
    config, _ = workplace.built(files)
    assert (config[MICRO], config[STEPS]) == (2, 4)
    assert config["zero_optimization"]["stage"] == 3


def test_a_trainer_that_holds_more_than_one_batch_keeps_its_batch(workplace: Workplace) -> None:
    recipe = {"num_generations": 8, "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2}
    built = found(workplace, wanted(goals={"prefer": "throughput"}, consumer="trl", recipe=recipe))
    assert (value(built, MICRO), value(built, STEPS)) == (8, 2)
    assert value(built, STAGE) in (1, 2, 3)


def test_adapters_are_predicted_as_adapters(workplace: Workplace) -> None:
    whole = found(workplace, wanted(consumer="trl"))
    lora = found(workplace, wanted(consumer="trl", recipe={"use_peft": True}))
    assert whole.plan is not None and lora.plan is not None
    one, other = (built.plan.considered[0].device_gib for built in (whole, lora) if built.plan)
    assert one is not None and other is not None and other < one


def test_experts(workplace: Workplace) -> None:
    model = {"model_type": "mixtral", "num_hidden_layers": 4}
    built = found(workplace, wanted(model, goals={"prefer": "memory", "global_batch_size": 64}))
    assert value(built, STAGE) == 3


@pytest.mark.parametrize("model", [{"model_type": "of-tomorrow", "hidden_size": 64}, {}])
def test_a_model_that_is_not_known_is_told(workplace: Workplace, model: Any) -> None:
    result = workplace.build(workplace.write(wanted(model)))
    assert result.exit_code == 1
    assert "zerocfg cannot choose" in result.output and "Name the values" in result.output


# -- what was said stays -----------------------------------------------------------------------------------------------

SAID: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = [
    ({"per_device_train_batch_size": 4}, {}, {MICRO: 4, STEPS: 2}),
    ({"gradient_accumulation_steps": 4}, {}, {MICRO: 2, STEPS: 4}),
    ({}, {"zero_optimization": {"stage": 2}}, {STAGE: 2}),
    ({}, {"zero_optimization": {"stage": 3, "reduce_bucket_size": 1234567}}, {STAGE: 3}),
    (
        {},
        {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}},
        {STAGE: 2, OPTIMIZER_DEVICE: "cpu"},
    ),
    (
        {},
        {"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none"}}},
        {STAGE: 3, OPTIMIZER_DEVICE: "none"},
    ),
]


@pytest.mark.parametrize("prefer", ["throughput", "memory", "cost"])
@pytest.mark.parametrize(("recipe", "deepspeed", "expected"), SAID)
def test_a_value_of_a_source_is_never_overridden(
    workplace: Workplace, prefer: str, recipe: dict[str, Any], deepspeed: dict[str, Any], expected: dict[str, Any]
) -> None:
    zero = deepspeed.get("zero_optimization")
    deepspeed = {
        **AUTO,
        **({"zero_optimization": {**zero, "stage3_gather_16bit_weights_on_model_save": True}} if zero else {}),
    }
    files = wanted(SMALL, {"prefer": prefer, "global_batch_size": 64}, recipe, deepspeed)
    built = found(workplace, files)
    if prefer == "cost":
        total = value(built, "num_processes") * value(built, MICRO) * value(built, STEPS)
        assert total == 64
        expected = {
            name: one for name, one in expected.items() if name in (STAGE, OPTIMIZER_DEVICE) or name in _named(recipe)
        }
    assert {name: value(built, name) for name in expected} == expected
    bucket = (zero or {}).get("reduce_bucket_size")
    if bucket:
        assert value(built, "zero_optimization.reduce_bucket_size") == bucket


def _named(recipe: dict[str, Any]) -> set[str]:
    return {
        name
        for name, argument in ((MICRO, "per_device_train_batch_size"), (STEPS, "gradient_accumulation_steps"))
        if argument in recipe
    }


def test_recomputation_that_a_recipe_refuses_stays_off(workplace: Workplace) -> None:
    refused = {"gradient_checkpointing": False}
    built = found(workplace, wanted(goals={"prefer": "memory", "global_batch_size": 64}, recipe=refused))
    assert built.plan is not None
    assert "gradient_checkpointing" not in built.plan.changes
    assert not any("gradient_checkpointing" in one.settings for one in built.plan.considered)


def test_contradictions_name_both_numbers(workplace: Workplace) -> None:
    both = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3}
    result = workplace.build(workplace.write(wanted(SMALL, {"global_batch_size": 64}, both)))
    assert result.exit_code == 1
    assert "64 samples are wanted, but 8 ranks x micro batch 2 x 3 accumulation steps are 48" in result.output


# -- what is chosen is what is emitted ---------------------------------------------------------------------------------


@pytest.mark.parametrize("prefer", ["throughput", "memory"])
@pytest.mark.parametrize("consumer", ["transformers", "trl"])
def test_the_files_hold_what_was_chosen_and_lint_clean(workplace: Workplace, prefer: str, consumer: str) -> None:
    files = wanted(goals={"prefer": prefer, "global_batch_size": 64}, consumer=consumer)
    config, lock = workplace.built(files)
    settings = {name: one["value"] for name, one in lock["settings"].items()}
    recipe = yaml.safe_load((workplace.folder / "out/a/recipe.yaml").read_text())
    assert recipe["per_device_train_batch_size"] == settings[MICRO] == config[MICRO]
    assert recipe["gradient_accumulation_steps"] == settings[STEPS] == config[STEPS]
    assert settings["num_processes"] * config[MICRO] * config[STEPS] == 64
    assert config["zero_optimization"]["stage"] == settings[STAGE]
    assert recipe["bf16"] is True and isinstance(recipe["gradient_checkpointing"], bool)
    for name in (OPTIMIZER_DEVICE, PARAM_DEVICE):
        part = name.split(".")[1]
        device = config["zero_optimization"].get(part, {}).get("device", "none")
        assert device == settings.get(name, "none")
    lint = workplace.zerocfg("lint", workplace.folder / "out")
    assert lint.exit_code == 0, lint.output


def test_plan_predicts_what_build_chose(workplace: Workplace) -> None:
    built = found(workplace, wanted(SEVENTY, {"global_batch_size": 128}))
    rows = alternatives(built)
    (own,) = [row for row in rows if row.own]
    assert own is rows[0] and own.candidate.choice.checkpointing is True
    shown = workplace.zerocfg("plan", workplace.folder / "zerocfg.yaml", "--no-trace", "--output-format", "json")
    (run,) = json.loads(shown.output)["runs"]
    assert shown.exit_code == 0 and run["verdict"] == "fits"
    assert abs(run["device"]["high"] - own.candidate.prediction.device.high) < GIB // 4


# -- extremes ----------------------------------------------------------------------------------------------------------

EXTREMES: list[tuple[Any, str, int | None]] = [
    (SMALL, "1xA100-40GB", 1_000_000),
    (SMALL, "1000xH100-80GB", 1_000_000),
    (SMALL, "125x8xH100-80GB", 4000),
    (SMALL, "7xA100-40GB", 7 * 997),
    (SEVEN, "3xV100-16GB", 17),
    ({**SMALL, "hidden_size": 7, "num_attention_heads": 7, "vocab_size": 3, "intermediate_size": 1}, "3xRTX4090", 3),
    ({"model_type": "gpt2"}, "8xMI300X", None),
]


@pytest.mark.parametrize("prefer", ["throughput", "memory", "cost"])
@pytest.mark.parametrize(("model", "hardware", "samples"), EXTREMES)
def test_extremes_end_in_a_plan_or_one_line(
    workplace: Workplace, prefer: str, model: Any, hardware: str, samples: int | None
) -> None:
    goals = {"prefer": prefer, **({"global_batch_size": samples} if samples else {})}
    result = workplace.build(workplace.write(wanted(model, goals, hardware=hardware, sequence_length=512)))
    assert result.exit_code in (0, 1), result.output
    if result.exit_code:
        assert "cannot be shared" in result.output or "no plan fits" in result.output, result.output


@settings(max_examples=12, deadline=None)
@given(
    ranks=st.sampled_from([1, 2, 3, 7, 8]),
    micro=st.integers(1, 40),
    steps=st.integers(1, 40),
    prefer=st.sampled_from(["throughput", "memory", "cost"]),
)
def test_any_batch_that_can_be_shared_is_met(
    tmp_path_factory: pytest.TempPathFactory, ranks: int, micro: int, steps: int, prefer: str
) -> None:
    workplace = Workplace(tmp_path_factory.mktemp("job"), Path())
    samples = ranks * micro * steps
    goals = {"prefer": prefer, "global_batch_size": samples}
    built = found(workplace, wanted(SMALL, goals, hardware=f"{ranks}xA100-80GB", sequence_length=256))
    assert value(built, "num_processes") * value(built, MICRO) * value(built, STEPS) == samples


def test_progress_names_each_run_before_work_on_it(workplace: Workplace) -> None:
    files = wanted(SMALL)
    runs = files["zerocfg.yaml"]["runs"]
    runs["b"] = {**runs["a"], "goals": {"trace": True, "global_batch_size": 7}}
    runs["c"] = {name: value for name, value in runs["a"].items() if name != "goals"}
    told: list[str] = []
    build_plans(read_spec(workplace.write(files)), progress=told.append)
    assert told == ["a: comparing plans", "b: comparing plans and tracing the best", "c: resolving"]


@pytest.mark.libs
def test_traced_activations_decide_when_asked(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("transformers")
    monkeypatch.setenv("XDG_CACHE_HOME", str(workplace.folder / "cache"))
    goals = {"global_batch_size": 16, "trace": True}
    files = wanted(
        SMALL, goals, {"gradient_checkpointing": False, "gradient_accumulation_steps": 1}, sequence_length=128
    )
    built = found(workplace, files)
    assert value(built, MICRO) == 2 and not any("not traced" in note for note in built.inputs.notes)
    assert list((workplace.folder / "cache" / "zerocfg" / "traces").iterdir())
