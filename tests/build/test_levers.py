"""Values that stay at their defaults unless another one gains: each where it decides, and just where it does not.

The oracle is a build of the same job whose sources name the value: its chance, its time and its bytes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import Files, Workplace
from tests.build.test_search import AUTO, SEVEN, found, value, wanted
from tests.llamas import LLAMA_3_8B
from zerocfg.hardware.profile import load_hardware
from zerocfg.memory.overhead import GIB
from zerocfg.memory.verdict import FEW_LIVE, percent
from zerocfg.models.hardware import HardwareProfile, Host
from zerocfg.resolve.build import BuildResult
from zerocfg.resolve.explain.alternatives import alternatives
from zerocfg.resolve.explain.forecast import Forecast, forecast
from zerocfg.resolve.search import engine_search
from zerocfg.resolve.search.buffer_sizes import LEAST
from zerocfg.resolve.search.candidates import Candidates
from zerocfg.resolve.search.choice import ALLGATHERED, LIGER, LIVE, MICRO, PERSISTENCE, REDUCED, REUSE, STAGE, STEPS
from zerocfg.resolve.search.ranking import ALIKE

SMALL = {**LLAMA_3_8B, "hidden_size": 1024, "intermediate_size": 4096, "num_hidden_layers": 8, "vocab_size": 32000}
PINNED = {"per_device_train_batch_size": 1, "gradient_accumulation_steps": 16, "gradient_checkpointing": True}
FEW = {"stage3_max_live_parameters": FEW_LIVE, "stage3_max_reuse_distance": FEW_LIVE}
USUAL = {"stage3_max_live_parameters": 1_000_000_000, "stage3_max_reuse_distance": 1_000_000_000}
HAS_LIGER = {"liger-kernel": ">=0.8.5"}


def card(folder: Path, room: float, base: str = "8xA100-40GB", link_gb_s: float | None = None) -> str:
    """A profile of cards with so many GiB, in a host that holds what may be put there; the path of its file."""
    profile = load_hardware(base)
    changes: dict[str, Any] = {
        "accelerator": profile.accelerator.model_copy(update={"usable_gib": room}),
        "host": Host(ram_gib=4096),
    }
    if link_gb_s is not None:
        assert profile.link_within_node is not None
        changes["link_within_node"] = profile.link_within_node.model_copy(update={"gb_s": link_gb_s})
    path = folder / "profile.json"
    path.write_text(HardwareProfile.model_validate(profile.model_copy(update=changes).model_dump()).model_dump_json())
    return path.name


def pinned(hardware: str, model: Any = LLAMA_3_8B, stage: int = 3, recipe: Any = None, **more: Any) -> Files:
    """A job of which nothing is open but levers; ``zero``: keys that its DeepSpeed file names beside."""
    zero = {"stage": stage, "offload_optimizer": {"device": "none"}, **more.pop("zero", {})}
    if stage == 3:
        zero |= {"offload_param": {"device": "none"}}
    given = {"sequence_length": 2048, **more}
    return wanted(
        model,
        {"prefer": "throughput"},
        {**PINNED, "bf16": True, **(recipe or {})},
        {**AUTO, "zero_optimization": zero},
        hardware=hardware,
        **given,
    )


def foretold(built: BuildResult) -> Forecast:
    return forecast(built, tracing=False, changes=False)


def pays(changed: Forecast, usual: Forecast) -> bool:
    """Throughput times chance, more than three percent of it; what fits stays as it is, unless it gets faster."""
    assert changed.time and usual.time and changed.verdict.chance is not None and usual.verdict.chance is not None
    gain = usual.time.seconds.expected / changed.time.seconds.expected * changed.verdict.chance / usual.verdict.chance
    return usual.word != "fits" and gain > 1 + ALIKE


def told(built: BuildResult, name: str) -> str:
    assert built.plan is not None
    return built.plan.settings[name].reason


# -- what ZeRO-3 keeps gathered ----------------------------------------------------------------------------------------


def test_fewer_live_parameters_where_they_raise_the_chance_enough_and_only_there(workplace: Workplace) -> None:
    outcomes = set()
    for room in (29.5, 30.0, 31.0, 32.0, 33.0, 34.0, 36.0, 38.0):
        hardware = card(workplace.folder, room)
        usual = foretold(found(workplace, pinned(hardware, sequence_length=4096, zero=USUAL)))
        few = foretold(found(workplace, pinned(hardware, sequence_length=4096, zero=FEW)))
        built = found(workplace, pinned(hardware, sequence_length=4096))
        outcomes.add(pays(few, usual))
        if not pays(few, usual):
            assert (value(built, LIVE), value(built, REUSE)) == (1_000_000_000, 1_000_000_000), room
            assert foretold(built).prediction.device == usual.prediction.device
            continue
        assert (value(built, LIVE), value(built, REUSE)) == (FEW_LIVE, FEW_LIVE), room
        assert foretold(built).prediction.device == few.prediction.device
        chances = [percent(one.verdict.chance or 0.0) for one in (usual, few)]
        highs = [one.prediction.device.high / GIB for one in (few, usual)]
        assert told(built, LIVE) == told(built, REUSE)
        assert told(built, LIVE).startswith(
            f"zerocfg's choice: {FEW_LIVE} elements instead of DeepSpeed's 1000000000: "
            f"up to {highs[0]:.1f} GiB instead of {highs[1]:.1f}, chance to fit {chances[0]} -> {chances[1]}"
        )
    assert outcomes == {True, False}


def test_what_no_plan_holds_but_with_fewer_live_parameters_is_planned_with_them(workplace: Workplace) -> None:
    """Expected above the card by less than the 2 bytes of a billion elements that are let go."""
    hardware = card(workplace.folder, 100.0)
    size = (
        foretold(found(workplace, pinned(hardware, sequence_length=4096, zero=USUAL))).prediction.device.expected / GIB
    )
    hardware = card(workplace.folder, size - 0.5)
    refused = workplace.build(workplace.write(pinned(hardware, sequence_length=4096, zero=USUAL)))
    assert refused.exit_code == 1 and "no plan fits" in refused.output
    built = found(workplace, pinned(hardware, sequence_length=4096))
    assert value(built, LIVE) == FEW_LIVE
    assert built.plan is not None and built.plan.considered[0].verdict == "likely"


def test_a_value_that_a_source_names_stays(workplace: Workplace) -> None:
    hardware = card(workplace.folder, 29.5)
    assert value(found(workplace, pinned(hardware, sequence_length=4096)), LIVE) == FEW_LIVE
    for name in USUAL:
        built = found(workplace, pinned(hardware, sequence_length=4096, zero={name: 1_000_000_000}))
        assert value(built, LIVE) == value(built, REUSE) == 1_000_000_000, name


def test_without_goals_no_lever_moves(workplace: Workplace) -> None:
    files = pinned(card(workplace.folder, 27.0))
    files["zerocfg.yaml"]["runs"]["a"].pop("goals")
    built = found(workplace, files)
    assert value(built, LIVE) == 1_000_000_000 and built.plan is not None and built.plan.considered == []


# -- what is sent less -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("link", "raised"), [(16.0, True), (600.0, False)])
def test_over_a_slow_link_more_stays_whole_where_that_fits(workplace: Workplace, link: float, raised: bool) -> None:
    hardware = card(workplace.folder, 79.0, "8xA100-80GB", link)
    built = found(workplace, pinned(hardware, SEVEN))
    usual = foretold(found(workplace, pinned(hardware, SEVEN, zero=USUAL | {PERSISTENCE.split(".")[1]: 100_000})))
    live, whole = value(built, LIVE), value(built, PERSISTENCE)
    assert ((live, whole) != (1_000_000_000, 100_000)) is raised
    if not raised:
        return
    own = foretold(built)
    assert own.time and usual.time and own.word == usual.word == "fits"
    assert own.time.seconds.expected * (1 + ALIKE) < usual.time.seconds.expected
    # Sixteen micro steps gather once what stays for backward, and nothing of what is whole but once a step; 7 of 8
    # parts come from the others. LLaMA-7B: 32 blocks of 4 matrices of 4096 x 4096 and 3 of 4096 x 11008, 65 norms.
    parameters, small = 6_738_415_616, 65 * 4096
    if whole >= 4096 * 4096:
        small += 32 * 4 * 4096 * 4096
    if whole >= 4096 * 11008:
        small += 32 * 3 * 4096 * 11008
    large = parameters - small
    assert whole < 32000 * 4096
    again = large - min(large, live)
    sent = (2 * 16 * (large + again) + 2 * small + 2 * 16 * parameters) * 7 / 8
    assert own.time.traffic.sent == pytest.approx(sent, rel=1e-6)
    names = [name for name, usually in ((LIVE, 1_000_000_000), (PERSISTENCE, 100_000)) if value(built, name) != usually]
    for name in names:
        assert "more tokens a second" in told(built, name) and "elements instead of DeepSpeed's 1" in told(built, name)


def test_nothing_is_raised_that_would_no_longer_fit(workplace: Workplace) -> None:
    """The same slow link, and no GiB to spare for what stays whole."""
    size = foretold(found(workplace, pinned(card(workplace.folder, 79.0, "8xA100-80GB"), SEVEN, zero=USUAL)))
    tight = size.prediction.device.high / GIB + 0.05
    built = found(workplace, pinned(card(workplace.folder, tight, "8xA100-80GB", 16.0), SEVEN))
    assert (value(built, LIVE), value(built, PERSISTENCE)) == (1_000_000_000, 100_000)
    assert foretold(built).word == "fits"


# -- buckets -----------------------------------------------------------------------------------------------------------


def test_smaller_buckets_where_they_raise_the_chance_enough_and_only_there(workplace: Workplace) -> None:
    """Those of an H100's links, of which DeepSpeed allocates two and a copy, on a card that is small beside them."""
    base, length = "8xH100-80GB", 512
    roomy = found(workplace, pinned(card(workplace.folder, 79.0, base), SMALL, stage=2, sequence_length=length))
    sized, outcomes = value(roomy, REDUCED), set()
    assert sized > 2 * LEAST
    for tenths in range(32, 56, 4):
        hardware = card(workplace.folder, tenths / 10, base)
        names = ("reduce_bucket_size", "allgather_bucket_size")
        usual, least = (
            tried(workplace, pinned(hardware, SMALL, stage=2, zero=dict.fromkeys(names, size), sequence_length=length))
            for size in (sized, LEAST)
        )
        if usual is None or least is None:
            continue
        built = found(workplace, pinned(hardware, SMALL, stage=2, sequence_length=length))
        outcome = pays(foretold(least), foretold(usual))
        outcomes.add(outcome)
        assert value(built, REDUCED) == value(built, ALLGATHERED) == (LEAST if outcome else sized), tenths
        if outcome:
            assert f"{LEAST} elements instead of {sized}: up to " in told(built, REDUCED)
        else:
            assert "latency" in told(built, REDUCED)
    assert outcomes == {True, False}


def tried(workplace: Workplace, files: Files) -> BuildResult | None:
    """The run where a plan may fit."""
    return found(workplace, files) if workplace.build(workplace.write(files), "--force").exit_code == 0 else None


# -- the loss without all logits ---------------------------------------------------------------------------------------

LOGITS = {"sequence_length": 8192, "hardware": "8xA100-40GB"}
"""8192 tokens over 128256 words: 12 bytes each are 11.7 GiB beside the states of ZeRO-2."""


def logits(stage: int = 2, recipe: Any = None, model: Any = LLAMA_3_8B, **run: Any) -> Files:
    given = {**LOGITS, **run}
    return pinned(given.pop("hardware"), model, stage, recipe, **given)


def liger_of(built: BuildResult) -> Any:
    assert built.plan is not None
    return built.plan.recipe.get(LIGER)


def test_the_loss_in_pieces_where_the_author_has_the_package(workplace: Workplace) -> None:
    files = logits(stage=3, model=QWEN, versions=HAS_LIGER)
    named = logits(stage=3, model=QWEN, recipe={LIGER: True}, versions=HAS_LIGER)
    whole = logits(stage=3, model=QWEN, recipe={LIGER: False}, versions=HAS_LIGER, zero=USUAL)
    usual = foretold(found(workplace, whole))
    changed = foretold(found(workplace, named))
    assert pays(changed, usual)
    built = found(workplace, files)
    assert liger_of(built) is True and foretold(built).prediction.device == changed.prediction.device
    assert built.plan is not None
    reason = built.plan.changes[LIGER].reason
    assert reason.startswith("zerocfg's choice: the loss in pieces instead of all logits at once: up to ")
    assert f"chance to fit {percent(usual.verdict.chance or 0)} -> {percent(changed.verdict.chance or 0)}" in reason
    (note,) = [one for one in built.plan.notes if "liger-kernel" in one]
    assert note == "use_liger_kernel needs the package liger-kernel where the job runs (the spec states it)"
    assert built.plan.versions["liger-kernel"] == ">=0.8.5"
    workplace.built(files, "a", "--force")
    assert "use_liger_kernel: true" in (workplace.folder / "out/a/recipe.yaml").read_text()


QWEN = {**LLAMA_3_8B, "model_type": "qwen2", "vocab_size": 152064, "hidden_size": 3584, "intermediate_size": 18944,
        "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4}  # fmt: skip
TIGHT = {"stage": 3, "model": QWEN, "versions": HAS_LIGER}
"""The job of the test above."""


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"versions": {}}, id="nobody says that the package is there"),
        pytest.param({"versions": {"liger-kernel": "==0.7.0"}}, id="seen under ZeRO-3 with later ones alone"),
        pytest.param({"versions": {**HAS_LIGER, "deepspeed": "==0.16.4"}}, id="and with a later DeepSpeed"),
        pytest.param({"fused_loss": False}, id="the spec says that the loss is whole"),
        pytest.param({"recipe": {LIGER: False}}, id="the recipe says so"),
        pytest.param({"recipe": {"label_smoothing_factor": 0.1}}, id="another loss"),
        pytest.param({"model": {**QWEN, "model_type": "starcoder2"}}, id="a model that Liger does not know"),
        pytest.param({"model": {**QWEN, "model_type": "granite"}}, id="one of which it fuses other layers only"),
        pytest.param({"hardware": "8xGaudi2"}, id="a device without Triton"),
    ],
)
def test_nobody_gets_it_who_did_not_allow_it(workplace: Workplace, change: dict[str, Any]) -> None:
    files = logits(**{**TIGHT, "hardware": "8xA100-40GB", **change})
    built = tried(workplace, files)
    assert built is None or not liger_of(built)
    assert "liger" not in json.dumps([str(one) for one in (built.plan.changes if built and built.plan else {})])


@pytest.mark.parametrize(
    ("requirement", "who"),
    [
        ("liger-kernel", "the project requires it"),
        ("liger-kernel>=0.5", "requirements.txt requires it"),
        ("liger_kernel==0.8.5", "requirements.txt requires it"),
    ],
)
def test_a_requirement_of_the_project_allows_it(workplace: Workplace, requirement: str, who: str) -> None:
    files = logits(**{**TIGHT, "versions": {}})
    files["requirements.txt"] = f"torch\n{requirement}\n"
    built = found(workplace, files)
    assert liger_of(built) is True and built.plan is not None
    assert any(one.endswith(f"where the job runs ({who})") for one in built.plan.notes)


def test_what_is_not_allowed_is_offered_where_nothing_else_fits(workplace: Workplace) -> None:
    """The whole logits of 32768 tokens are 58 GiB; without them the job fits a card of 40."""
    job = {**TIGHT, "versions": {}, "sequence_length": 32768, "hardware": "8xA100-80GB"}
    refused = workplace.build(workplace.write(logits(**job)))
    assert refused.exit_code == 1 and "no plan fits" in refused.output
    assert (
        "What would fit: `use_liger_kernel: true`, which needs the package liger-kernel, with ZeRO-3" in refused.output
    )
    other = logits(**{**job, "model": {**QWEN, "model_type": "starcoder2"}})
    again = workplace.build(workplace.write(other), "--force")
    assert again.exit_code == 1 and "liger" not in again.output


# -- what a source fixes too large -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("zero", "said"),
    [
        (dict.fromkeys(USUAL, 10**10), f"`stage3_max_live_parameters` and `stage3_max_reuse_distance` of {FEW_LIVE}"),
        (
            {"stage3_param_persistence_threshold": 10**10, **FEW},
            "`stage3_param_persistence_threshold` of 100000",
        ),
        (
            {"reduce_bucket_size": 3 * 10**10, **FEW},
            f"buckets of {LEAST} elements",
        ),
    ],
)
def test_the_nearest_change_is_the_value_that_takes_too_much(workplace: Workplace, zero: Any, said: str) -> None:
    base = foretold(found(workplace, pinned(card(workplace.folder, 200.0), zero={**FEW})))
    hardware = card(workplace.folder, base.prediction.device.high / GIB + 0.2)
    refused = workplace.build(workplace.write(pinned(hardware, zero=zero)), "--force")
    assert refused.exit_code == 1
    assert f"What would fit: {said}, with ZeRO-3" in refused.output, refused.output


# -- what it costs, and what is shown ----------------------------------------------------------------------------------


def test_a_job_that_fits_comfortably_costs_nothing_more(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    predicted = Candidates.of

    def of(self: Candidates, choice: Any) -> Any:
        counted.append(choice)
        return predicted(self, choice)

    monkeypatch.setattr(Candidates, "of", of)
    files = wanted(SMALL, versions=HAS_LIGER)
    with_them, tries = found(workplace, files), len(counted)
    monkeypatch.setattr(engine_search, "worth_trying", lambda *_: [])
    counted.clear()
    without = found(workplace, files)
    assert tries == len(counted) and len(set(counted)) == tries
    assert with_them.plan is not None and without.plan is not None
    assert with_them.plan.settings == without.plan.settings and with_them.plan.considered == without.plan.considered


def test_a_tight_job_tries_a_few_plans_more(workplace: Workplace, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Any] = []
    predicted = Candidates.of

    def of(self: Candidates, choice: Any) -> Any:
        counted.append(choice)
        return predicted(self, choice)

    monkeypatch.setattr(Candidates, "of", of)
    found(workplace, wanted(LLAMA_3_8B, hardware="4xRTX4090", versions=HAS_LIGER))
    levers = [one for one in counted if one.levers]
    assert 0 < len(levers) <= 12 * 12
    plain = {one.plain for one in levers}
    assert len(plain) <= 12 and plain <= {one for one in counted if not one.levers}


def test_the_plan_is_marked_among_its_alternatives_and_the_lock_keeps_its_runner_up(workplace: Workplace) -> None:
    files = wanted(LLAMA_3_8B, {"global_batch_size": 128}, hardware="8xV100-32GB", sequence_length=4096)
    built = found(workplace, files)
    assert value(built, LIVE) == FEW_LIVE and "; next: ZeRO-" in told(built, STAGE)
    (own,) = [one for one in alternatives(built) if one.own]
    assert own.candidate.choice.live == FEW_LIVE and own.excluded == ""
    _, lock = workplace.built(files, "a", "--force")
    taken, runners = lock["considered"]["taken"], lock["considered"]["runners_up"]
    assert taken["settings"][LIVE] == taken["settings"][REUSE] == FEW_LIVE
    plain = {name: one for name, one in taken["settings"].items() if name not in (LIVE, REUSE)}
    assert any(one["settings"] == plain and "less likely to fit" in one["excluded"] for one in runners)
    explained = workplace.zerocfg("explain", LIVE, "--run", workplace.folder / "out" / "a")
    assert "instead of DeepSpeed's 1000000000" in explained.output and "chance to fit" in explained.output
    shown = workplace.zerocfg("plan", workplace.folder / "zerocfg.yaml", "--no-trace")
    assert "live parameters up to 3e7" in " ".join(shown.output.split())


def test_a_plan_with_a_lever_is_built_from_its_own_files(workplace: Workplace) -> None:
    """What was emitted names the values, so that a build from it chooses none and predicts the same."""
    hardware = card(workplace.folder, 29.5)
    config, lock = workplace.built(pinned(hardware, sequence_length=4096))
    zero = config["zero_optimization"]
    assert zero["stage3_max_live_parameters"] == zero["stage3_max_reuse_distance"] == FEW_LIVE
    assert lock["settings"][MICRO]["value"] * lock["settings"][STEPS]["value"] == 16
