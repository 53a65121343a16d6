"""docs/choosing-a-stage.md says what the program says: its tables, the numbers of its text, its example."""

from __future__ import annotations

import json
import re
from statistics import median

import pytest
import yaml

from tests.build.conftest import Workplace
from tests.build.guides import MODELS, PAGE, PICTURES, between_nodes, chance, job, page, peak, row, tokens
from tests.conftest import ROOT
from zerocfg.memory.overhead import GIB
from zerocfg.memory.time.expected import SLOWED
from zerocfg.resolve.search.choice import LIVE, MICRO, REUSE, STAGE
from zerocfg.resolve.search.ranking import ALIKE

TEXT = PAGE.read_text(encoding="utf-8")
FLAT = re.sub(r"\s+", " ", TEXT)
BIG, SMALL = "8xA100-80GB", "8xA100-40GB"
OFFLOADED = "ZeRO-3, optimizer on cpu, recomputed"


def says(*phrases: str) -> None:
    for phrase in phrases:
        assert phrase in FLAT, phrase


def least(model: str, hardware: str, plan: str) -> float:
    return row(model, hardware, plan).candidate.prediction.device.low / GIB


def word(model: str, hardware: str, plan: str) -> str:
    return row(model, hardware, plan).candidate.word


def best(model: str, hardware: str) -> dict[str, object]:
    return job(model, hardware)[1][0].candidate.choice.settings()


def test_the_tables_are_what_the_program_computes() -> None:
    assert page(TEXT) == TEXT, "python -m tests.build.guides writes the tables anew"


def test_the_pictures_show_these_plans() -> None:
    for name, model in (("7b", "7B"), ("70b", "70B")):
        drawn = (PICTURES / f"plan-{name}.svg").read_text(encoding="utf-8")
        # text is drawn as shapes, whose comments hold the words
        assert f"<!-- {model} on {BIG} -->" in drawn
        assert "<!-- ZeRO-3, all on cpu" in drawn and "<!-- ▸ " in drawn


def test_seven_billion_parameters() -> None:
    one, two, three = (row("7B", BIG, f"ZeRO-{stage}, 2 x 8") for stage in (1, 2, 3))
    assert (best("7B", BIG)[STAGE], best("7B", BIG)[MICRO]) == (2, 2) and one.candidate.word == "likely"
    assert one.excluded.startswith("about as fast, and less likely")
    assert three.excluded.startswith("about as fast, with")
    single = row("7B", BIG, "ZeRO-1, 1 x 16")
    assert single.excluded == "13% slower" and single.candidate.word == "fits"
    says(f"stage 1 needs {peak(one)} GiB for them ({chance(one)}), stage 2 {peak(two)} ({chance(two)})")
    says(f"Stage 1 fits with one ({peak(single)} GiB)")
    says(f"equally fast, {tokens(one)}, {tokens(two)} and {tokens(three)} tokens/s")
    sizes = [one.candidate.time.traffic.sent / GIB for one in (single, two, three) if one.candidate.time]
    says(f"Stage 1 sends {sizes[0]:.0f} GiB a step, stage 2 {sizes[1]:.0f}, stage 3 {sizes[2]:.0f}")
    says(f"at least {least('7B', BIG, 'ZeRO-0'):.0f} GiB in DeepSpeed's stage 0")


def test_seven_billion_parameters_with_40_gb() -> None:
    assert best("7B", SMALL)[STAGE] == 3 and word("7B", SMALL, "ZeRO-2") == "unlikely"
    kept, recomputed = row("7B", SMALL, "ZeRO-3"), row("7B", SMALL, "ZeRO-2, recomputed")
    first = row("7B", SMALL, "ZeRO-3, recomputed")
    assert recomputed.candidate.choice.micro_batch == 2 and recomputed.candidate.word == "likely" and not kept.excluded
    says(f"({peak(row('7B', SMALL, 'ZeRO-2'))} GiB of 39.4)", f"({peak(recomputed)} GiB, {chance(recomputed)})")
    says(f"({tokens(recomputed)} against {tokens(kept)} tokens/s)", f"recomputation fits ({peak(first)} GiB)")
    says(f"is {first.excluded}. Stage 3", f"is chosen, which fits with {chance(kept)} only ({peak(kept)} GiB)")


def test_the_table_of_batches_contradicts_itself() -> None:
    assert word("7B", BIG, "ZeRO-2, 8 x 2") == "does not fit"
    says(f"no room for 8 samples (at least {least('7B', BIG, 'ZeRO-2, 8 x 2'):.0f} GiB)")
    large = [peak(row("7B", BIG, f"ZeRO-{stage}, 16 x 1, recomputed")) for stage in (2, 3)]
    says(f"its 16 samples take {large[0]} GiB and those of ZeRO-3 {large[1]} GiB")
    assert word("7B", BIG, "ZeRO-1, 4 x 4, recomputed") == "fits"
    says(f"ZeRO-1 takes 4 samples in {peak(row('7B', BIG, 'ZeRO-1, 4 x 4, recomputed'))} GiB")


def test_four_cards() -> None:
    four = "4xA100-40GB"
    assert {word("7B", four, plan) for plan in ("ZeRO-2", "ZeRO-2, recomputed")} == {"does not fit"}
    says(f"stage 2 takes {peak(row('7B', four, 'ZeRO-2'))} GiB")
    says(f"recomputed at least {least('7B', four, 'ZeRO-2, recomputed'):.1f} GiB")
    only = row("7B", four, "ZeRO-3, recomputed")
    says(f"only ZeRO-3 with recomputation is likely to fit ({peak(only)} GiB, {chance(only)})")
    fit = [one.candidate.choice for one in job("7B", four)[1] if one.candidate.word in ("fits", "likely")]
    assert {(one.stage, one.checkpointing) for one in fit if not one.offloads} == {(3, True)}


def test_four_cards_with_80_gb() -> None:
    four = "4xA100-80GB"
    one, two, three = (row("7B", four, f"ZeRO-{stage}, 2 x 16") for stage in (1, 2, 3))
    assert [one.candidate.word, two.candidate.word, three.candidate.word] == ["likely", "likely", "fits"]
    assert not three.excluded
    says(f"fit with {chance(one)} at stage 1 ({peak(one)} GiB), with {chance(two)} at stage 2 ({peak(two)} GiB)")
    says(f"with {chance(three)} at stage 3 ({peak(three)} GiB)")
    both = [row("7B", hardware, "ZeRO-1, 1 x " + steps) for hardware, steps in ((four, "32"), (BIG, "16"))]
    says(f"at a time ({chance(both[0])} and {chance(both[1])})")


def test_the_rule_by_size() -> None:
    assert [best(model, BIG)[STAGE] for model in ("3B", "7B", "13B")] == [1, 2, 3]
    assert best("7B", "4xA100-80GB")[STAGE] == best("7B", SMALL)[STAGE] == 3


def test_thirteen_billion_parameters() -> None:
    two, three = row("13B", BIG, "ZeRO-2, recomputed"), row("13B", BIG, "ZeRO-3")
    assert two.candidate.word == "fits" and best("13B", BIG)[STAGE] == 3
    says(f"fits** ({peak(two)} GiB)", f"{tokens(three)} against {tokens(two)} tokens/s")
    assert two.candidate.choice.micro_batch == 4 and three.candidate.choice.micro_batch == 1
    says(f"ZeRO-2 is {two.excluded}, although recomputation lets it take four samples and ZeRO-3 takes one")
    first = row("13B", SMALL, "ZeRO-3, recomputed")
    chosen, settings = best("13B", SMALL), first.candidate.choice.settings()
    assert chosen == {**settings, LIVE: 30_000_000, REUSE: 30_000_000}, "the same, with a lever that costs little"
    says(f"is the fastest ({peak(first)} GiB, {chance(first)})")
    says(f"needs at least {least('13B', SMALL, 'ZeRO-2, recomputed'):.1f} GiB")


def test_thirty_billion_parameters() -> None:
    parameters = job("30B", BIG)[0].inputs.facts.parameters
    assert parameters is not None
    says(f"2 bytes a parameter are {2 * parameters / GIB:.0f} GiB")
    says(f"ZeRO-2 takes at least {least('30B', BIG, 'ZeRO-2, recomputed'):.0f} GiB even with recomputation")
    one, two = (row("30B", BIG, f"ZeRO-3, {batch}, recomputed") for batch in ("1 x 16", "2 x 8"))
    chosen = job("30B", BIG)[1][0]
    assert chosen.candidate.choice.settings() == {
        **one.candidate.choice.settings(),
        LIVE: 30_000_000,
        REUSE: 30_000_000,
    }
    assert one.candidate.word == two.candidate.word == "likely"
    says(f"With fewer live parameters it is {chance(chosen)} ({peak(chosen)} GiB)")
    says(f"({peak(one)} GiB with one sample, {chance(one)}; with two {peak(two)}, {chance(two)})")
    offloaded = row("30B", BIG, OFFLOADED)
    assert offloaded.candidate.word == "fits" and offloaded.excluded == "85% slower"
    says(f"on the host it fits ({peak(offloaded)} GiB) and is {offloaded.excluded}")


def test_seventy_billion_parameters() -> None:
    plan = row("70B", BIG, OFFLOADED)
    host = plan.candidate.host / GIB
    says(
        f"only with recomputation** ({peak(plan)} GiB)",
        f"The host needs {host:,.0f} GiB**",
        f"asks for {host:,.0f} GiB",
    )
    assert all(one.candidate.choice.checkpointing for one in job("70B", BIG)[1] if one.candidate.word == "fits")
    many = job("70B", "4x8xA100-80GB")[1][0]
    slow = float(tokens(plan).replace(",", ""))
    each = float(tokens(many).replace(",", "")) / 32
    says(f"{tokens(plan)} tokens/s, {slow / 8:.0f} a card", f"reach {tokens(many)}, {each:.0f} a card")
    assert not many.candidate.choice.offloads and slow * 8 < each * 32
    says(f"needs at least {least('70B', BIG, 'ZeRO-3, recomputed'):.1f} GiB a card on one node")
    assert word("70B", "2x8xA100-80GB", "ZeRO-3, recomputed") == "unlikely"
    both = [peak(row("70B", "2x8xA100-80GB", f"ZeRO-3, {batch}, recomputed")) for batch in ("2 x 4", "1 x 8")]
    says(f"is unlikely to fit on two ({both[0]} GiB; with one sample {both[1]})")


def test_what_offload_costs() -> None:
    own = job("7B", BIG)[1][0].candidate.time
    times = [row("7B", BIG, f"ZeRO-{stage}, optimizer on cpu").candidate.time for stage in (3, 2)]
    assert own is not None and times[0] is not None and times[1] is not None
    three, two = (f"{one.seconds.expected:.1f} s" for one in times if one)
    high = max(one.seconds.high for one in times if one)
    says(f"{own.seconds.expected:.1f} s become {three} at stage 3 and {two} at stage 2, up to {high:.1f} s at the high")
    for one in times:
        assert one is not None and abs(one.seconds.high / one.seconds.expected - 1.8) < 0.1


def test_slow_networks() -> None:
    """At one micro batch with all activations kept ZeRO-1 is the fastest; among all plans ZeRO-3 with a larger one."""
    for network in ("8 x 25 Gbit/s", "1 x 100 Gbit/s"):
        rows = [one for one in between_nodes(network) if one.candidate.word in ("fits", "likely")]
        first = rows[0].candidate.choice
        assert first.stage == 3 and not rows[0].excluded and (first.micro_batch or 0) > 2
        for size in (1, 2):
            kept = [
                one.candidate
                for one in rows
                if not one.candidate.choice.checkpointing
                and not one.candidate.choice.offloads
                and one.candidate.choice.micro_batch == size
            ]
            fastest = min(kept, key=lambda one: one.seconds_per_token or 0.0)
            assert fastest.choice.stage == 1


def test_the_stages_differ_by_less_than_counts_at_the_same_micro_batch() -> None:
    spent = [row("7B", BIG, f"ZeRO-{stage}, 1 x 16").candidate.seconds_per_token for stage in (1, 2, 3)]
    known = [one for one in spent if one is not None]
    assert len(known) == 3 and max(known) < min(known) * (1 + ALIKE)
    larger = row("7B", BIG, "ZeRO-2, 2 x 8").candidate.seconds_per_token
    assert larger is not None and known[1] / larger == pytest.approx(SLOWED[2][1])
    says("counts 2048 tokens in a micro batch as 11% slower than 4096")


def test_the_factors_of_the_ranking_are_what_published_runs_took() -> None:
    """Measured / expected time of the rows of benchmarks/time; Qwen's names end in the tokens of their micro batch."""
    others = json.loads((ROOT / "benchmarks/time/results/time.json").read_text(encoding="utf-8"))["others"]
    took = {one["row"]: one["measured"] / one["expected"] for one in others}

    def of(length: int) -> list[float]:
        return sorted(took[name] for name in took if name.startswith("Q") and name.endswith(f"-{length}"))

    base = median(of(4096))
    for length, factor in SLOWED[1:]:
        assert median(of(length)) / base == pytest.approx(factor, abs=0.01), length
    assert median([*of(256), *of(512)]) / base == pytest.approx(SLOWED[0][1], rel=0.06)
    for length, factor in SLOWED[:3]:
        assert f"{factor:g} at {length}" in FLAT
    says(f"{len(of(2048))} rows, between {of(2048)[0]:.2f} and {of(2048)[-1]:.2f}")
    pairs = sorted(took[f"{case}-2048"] / took[f"{case}-4096"] for case in ("Q01", "Q02", "Q03", "Q06"))
    says(f"three stand {pairs[0]:.2f} to {pairs[2]:.2f} times", f"(1.8B in full) {pairs[3]:.2f} times")
    says(f"took less still ({of(8192)[0]:.2f} to {of(8192)[-1]:.2f})")
    recomputed = sorted(took[name] for name in ("G02", "G04", "G06", "G10", "G11"))
    says(f"took {recomputed[0]:.2f} to {recomputed[-1]:.2f} times as long as expected, in no order of size")


def test_the_example_builds(workplace: Workplace) -> None:
    ((example,),) = [re.findall(r"```yaml\n(.*?)```", TEXT, re.S)]
    config = {"model_type": "llama", "vocab_size": 32000, **MODELS["7B"]}
    files = {"train.py": "", "config.json": config, "recipe.yaml": "output_dir: out\n", "zerocfg.yaml": example}
    result = workplace.build(workplace.write(files))
    assert result.exit_code == 0, result.output
    lock = json.loads((workplace.folder / "out/sft/zerocfg.lock").read_text())
    assert lock["settings"]["zero_optimization.stage"]["value"] == best("7B", BIG)[STAGE]
    assert yaml.safe_load((workplace.folder / "out/sft/recipe.yaml").read_text())["per_device_train_batch_size"] == 2
