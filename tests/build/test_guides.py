"""docs/choosing-a-stage.md says what the program says: its tables, the numbers of its text, its example."""

from __future__ import annotations

import json
import re
from statistics import median

import yaml

from tests.build.conftest import Workplace
from tests.build.guides import MODELS, PAGE, PICTURES, between_nodes, chance, job, page, peak, row, tokens
from tests.conftest import ROOT
from zerocfg.memory.overhead import GIB
from zerocfg.memory.time.measured_spread import MEASURED
from zerocfg.memory.time.rates import LAUNCH_US
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
    first, two = row("7B", BIG, "ZeRO-1, 1 x 16"), row("7B", BIG, "ZeRO-2, 1 x 16")
    assert (best("7B", BIG)[STAGE], best("7B", BIG)[MICRO]) == (1, 1)
    assert first.candidate.word == two.candidate.word == "fits"
    assert two.excluded == "about as fast, with more sharding"
    says(f"Stage 1 fits with one sample ({peak(first)} GiB, {chance(first)})")
    says(f"as fast as stage 2: {tokens(first)} and {tokens(two)} tokens/s")
    larger = [row("7B", BIG, f"ZeRO-{stage}, 2 x 8") for stage in (1, 2)]
    assert [tokens(one) for one in larger] == [tokens(first), tokens(two)], "two samples gain nothing"
    says(f"would need {peak(larger[0])} GiB for them ({chance(larger[0])})")
    says(f"stage 2 {peak(larger[1])} ({chance(larger[1])})")
    single, double = row("7B", BIG, "ZeRO-3, 1 x 16"), row("7B", BIG, "ZeRO-3, 2 x 8")
    assert single.excluded == "39% slower" and double.excluded == "about as fast, with more sharding"
    says(f"({tokens(single)} tokens/s, {single.excluded}); with two it reaches {tokens(double)}")
    sizes = [one.candidate.time.traffic.sent / GIB for one in (first, two, single, double) if one.candidate.time]
    says(f"stage 1 sends {sizes[0]:.0f} GiB a step, stage 2 {sizes[1]:.0f}, stage 3 {sizes[2]:.0f}")
    says(f"stage 3 with two {sizes[3]:.0f}")
    says(f"at least {least('7B', BIG, 'ZeRO-0'):.0f} GiB in DeepSpeed's stage 0")


def test_zero_3_waits_for_its_host_with_short_micro_batches_only() -> None:
    """The same work on the devices: ZeRO-3 differs by the host, hidden by longer micro batches."""
    single, double = row("7B", BIG, "ZeRO-3, 1 x 16").candidate.time, row("7B", BIG, "ZeRO-3, 2 x 8").candidate.time
    assert single is not None and double is not None
    assert single.seconds.expected > double.seconds.expected * 1.3
    says(f"({LAUNCH_US.expected:.0f} µs,", f"{LAUNCH_US.low:.0f} to {LAUNCH_US.high:.0f} µs are assumed")


def test_seven_billion_parameters_with_40_gb() -> None:
    assert best("7B", SMALL)[STAGE] == 3 and word("7B", SMALL, "ZeRO-2, 1 x 16") == "unlikely"
    kept, recomputed = row("7B", SMALL, "ZeRO-3, 1 x 16"), row("7B", SMALL, "ZeRO-2, 1 x 16, recomputed")
    first = row("7B", SMALL, "ZeRO-3, 2 x 8, recomputed")
    assert recomputed.candidate.word == first.candidate.word == "fits" and not first.excluded
    assert {word("7B", SMALL, f"ZeRO-3, {batch}") for batch in ("2 x 8", "4 x 4")} <= {"unlikely", "does not fit"}
    assert recomputed.excluded.startswith("about as fast, and less likely")
    says(f"({peak(row('7B', SMALL, 'ZeRO-2, 1 x 16'))} GiB of 39.4)", f"({peak(recomputed)} GiB, {chance(recomputed)})")
    says(f"Then it takes {tokens(recomputed)} tokens/s", f"two samples {tokens(first)}, about as much")
    says(f"more certainty ({peak(first)} GiB, {chance(first)})")
    says(f"room for one sample ({peak(kept)} GiB, {chance(kept)}), waits for its host and is {kept.excluded}")


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
    one, two = (row("7B", four, f"ZeRO-{stage}, 1 x 32") for stage in (1, 2))
    three = row("7B", four, "ZeRO-3, 2 x 16")
    assert [one.candidate.word, two.candidate.word, three.candidate.word] == ["fits", "fits", "fits"]
    assert not one.excluded and two.excluded == "about as fast, with more sharding"
    says(f"fits with {chance(one)} at stage 1 ({peak(one)} GiB) and with {chance(two)} at stage 2 ({peak(two)} GiB)")
    says(f"Stage 3 is {three.excluded} with two samples ({peak(three)} GiB, {chance(three)})")
    says(f"with one sample of 2048 tokens at a time ({chance(one)})")


def test_the_rule_by_size() -> None:
    assert [best(model, BIG)[STAGE] for model in ("3B", "7B", "13B")] == [1, 1, 3]
    assert best("7B", "4xA100-80GB")[STAGE] == 1 and best("7B", SMALL)[STAGE] == 3


def test_thirteen_billion_parameters() -> None:
    recomputed, kept = row("13B", BIG, "ZeRO-2, 1 x 16, recomputed"), row("13B", BIG, "ZeRO-2, 1 x 16")
    three = row("13B", BIG, "ZeRO-3, 1 x 16")
    assert recomputed.candidate.word == "fits" and not three.excluded and kept.candidate.word == "likely"
    says(f"fits** ({peak(recomputed)} GiB)", f"{tokens(three)} against {tokens(recomputed)} tokens/s")
    says(f"takes {tokens(kept)}, and is only likely to fit ({peak(kept)} GiB, {chance(kept)})")
    first = row("13B", SMALL, "ZeRO-3, 2 x 8, recomputed")
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
    offloaded = row("30B", BIG, "ZeRO-3, optimizer on cpu, 1 x 16")
    assert offloaded.candidate.word == "fits" and not offloaded.candidate.choice.checkpointing
    says(f"all activations kept ({peak(offloaded)} GiB, {chance(offloaded)}) and is {offloaded.excluded}")


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
        assert one is not None and abs(one.seconds.high / one.seconds.expected - 2.0) < 0.05


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


def test_the_stages_differ_by_less_than_counts_where_micro_batches_are_long() -> None:
    spent = [row("7B", BIG, f"ZeRO-{stage}, 2 x 8").candidate.seconds_per_token for stage in (1, 2, 3)]
    known = [one for one in spent if one is not None]
    assert len(known) == 3 and max(known) < min(known) * (1 + ALIKE) ** 2


def test_the_errors_of_times_are_those_of_published_runs() -> None:
    """Of the rows of benchmarks/time; Qwen's names end in the tokens of their micro batch."""
    others = json.loads((ROOT / "benchmarks/time/results/time.json").read_text(encoding="utf-8"))["others"]
    short = [abs(one["error"]) for one in others if re.match(r"Q\d+-(256|512|1024)$", one["row"])]
    assert len(short) == 12
    assert f"off by {100 * median(short):.0f}% in the median" in FLAT
    lines = (ROOT / "benchmarks/time/results/bands.md").read_text(encoding="utf-8").splitlines()
    (tuned,) = [line for line in lines if line.startswith("| tuned code (llm-foundry)")]
    (ordinary,) = [line for line in lines if line.startswith("| ordinary code, from 2048")]
    (_, _, rows, _, mean, _, _, held, _) = ordinary.split("|")
    says(f"{tuned.split('|')[4].strip()} mean error on published runs of tuned code")
    says(f"{float(mean.strip(' %')):.0f}% on ordinary code", f"held {held.split('(')[0].strip()} such rows")
    assert int(rows) == 24
    low, expected, high = MEASURED["ordinary"].low, MEASURED["ordinary"].expected, MEASURED["ordinary"].high
    says(f"from {low / expected:.1f} to {high / expected:.1f} times the expected time there")


def test_the_example_builds(workplace: Workplace) -> None:
    ((example,),) = [re.findall(r"```yaml\n(.*?)```", TEXT, re.S)]
    config = {"model_type": "llama", "vocab_size": 32000, **MODELS["7B"]}
    files = {"train.py": "", "config.json": config, "recipe.yaml": "output_dir: out\n", "zerocfg.yaml": example}
    result = workplace.build(workplace.write(files))
    assert result.exit_code == 0, result.output
    lock = json.loads((workplace.folder / "out/sft/zerocfg.lock").read_text())
    assert lock["settings"]["zero_optimization.stage"]["value"] == best("7B", BIG)[STAGE]
    assert yaml.safe_load((workplace.folder / "out/sft/recipe.yaml").read_text())["per_device_train_batch_size"] == 1
