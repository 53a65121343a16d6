"""``zerocfg plan MODEL --hardware PROFILE``: what a model takes, without a spec."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome
from zerocfg.catalog.known_models import known_config, known_names
from zerocfg.cli.screens.model_plans import as_text
from zerocfg.models.llama_shape import HIDDEN_SIZES, llama_of
from zerocfg.models.model_facts import from_config
from zerocfg.resolve.model_plans import find_model, plans_of
from zerocfg.run.config import VERSIONS

Cli = Callable[..., Outcome]

PUBLISHED = {
    "meta-llama/Llama-2-7b-hf": 6_738_415_616,
    "meta-llama/Llama-2-13b-hf": 13_015_864_320,
    "meta-llama/Llama-3.1-8B": 8_030_261_248,
    "meta-llama/Llama-3.1-70B": 70_553_706_496,
    "meta-llama/Llama-3.1-405B": 405_853_388_800,
    "meta-llama/Llama-3.2-1B": 1_235_814_400,
    "meta-llama/Llama-3.2-3B": 3_212_749_824,
    "mistralai/Mistral-7B-v0.1": 7_241_732_096,
    "mistralai/Mixtral-8x7B-v0.1": 46_702_792_704,
    "Qwen/Qwen2.5-0.5B": 494_032_768,
    "Qwen/Qwen2.5-1.5B": 1_543_714_304,
    "Qwen/Qwen2.5-3B": 3_085_938_688,
    "Qwen/Qwen2.5-7B": 7_615_616_512,
    "Qwen/Qwen2.5-14B": 14_770_033_664,
    "Qwen/Qwen2.5-32B": 32_763_876_352,
    "Qwen/Qwen2.5-72B": 72_706_203_648,
}
"""Parameters that the safetensors of each model hold, as the hub shows them."""


def test_well_known_models_have_the_parameters_of_their_files() -> None:
    assert set(PUBLISHED) <= set(known_names())
    for name, count in PUBLISHED.items():
        config = known_config(name)
        assert config is not None and from_config(config).parameters == count, name


@pytest.mark.parametrize(
    "name", ["Llama-3.1-8B", "meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b", "Meta-Llama-3-8B"]
)
def test_a_name_is_known_without_owner_case_and_suffix(name: str) -> None:
    assert known_config(name) == known_config("meta-llama/Llama-3.1-8B")
    assert known_config("llama-3.1-9b") is None


@pytest.mark.parametrize("count", [1e8, 3.5e8, 1e9, 1.5e9, 3e9, 7e9, 8e9, 13e9, 30e9, 70e9, 175e9, 405e9])
def test_a_number_of_parameters_becomes_a_shape_of_about_as_many(count: float) -> None:
    config = llama_of(int(count))
    found = from_config(config).parameters
    assert found == pytest.approx(count, rel=0.05) and config["hidden_size"] in HIDDEN_SIZES
    assert config["hidden_size"] % config["num_attention_heads"] == 0


@pytest.mark.parametrize(("count", "said"), [(5, "too few"), (10_000_000, "too few"), (2 * 10**13, "more than any")])
def test_a_number_that_no_model_has(count: int, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        llama_of(count)


def test_every_engine_is_compared_below_every_assumption(zerocfg: Cli) -> None:
    found = zerocfg("plan", "meta-llama/Llama-3.1-8B", "--hardware", "8xA100-80GB")
    assert found.code == 0 and not found.err
    first, *lines = found.out.splitlines()
    assert first == "meta-llama/Llama-3.1-8B on 8xA100-80GB: 8,030,261,248 parameters (as published)"
    told: dict[str, str] = {}
    for line in lines[:11]:
        word = line.split()[0]
        told[word] = told.get(word, "") + line
    about = ["trained", "samples", "precision", "optimizer", "compute", "releases", "hardware", "host"]
    assert list(told) == [*about, "note", "change"]
    assert "2048 tokens each, 64 of them a step: micro batch x accumulation x ranks" in told["samples"]
    assert told["hardware"].endswith(" 8 x A100-SXM-80GB with 79.1 GiB, nvlink of 600 GB/s")
    assert "A100-80GB was taken as A100-SXM-80GB" in told["note"]
    assert "bf16; parameters loaded in bfloat16, kept in fp32" in told["precision"]
    assert "AdamW, fused" in told["optimizer"] and "sdpa attention; recomputation where" in told["compute"]
    assert all(f"{name} {release}" in told["releases"] for name, release in VERSIONS.items())
    assert "what" not in told and "launch a kernel is not measured: assumed" in told["note"]
    rows = [line[5:] for line in lines[16:]]
    assert rows[0].startswith("ZeRO-2, 1 x 8 ")
    for engine in ("DDP, ", "FSDP 2, ", "ZeRO-0, ", "ZeRO-1, ", "ZeRO-2, "):
        assert any(row.startswith(engine) for row in rows), engine


def test_the_options_change_what_is_assumed(zerocfg: Cli) -> None:
    words = ("--lora", "--seq", "4096", "--batch", "32", "--output-format", "json")
    data = json.loads(zerocfg("plan", "7B", "--hardware", "4xA100-40GB", *words).out)
    assert data["assumed"]["samples"].startswith("4096 tokens each, 32 of them a step:")
    assert data["assumed"]["trained"].startswith("LoRA of rank 16")
    assert all(
        plan["settings"]["train_micro_batch_size_per_gpu"] * plan["settings"]["gradient_accumulation_steps"] * 4 == 32
        for plan in data["plans"]
    )
    best, close, other = data["plans"][:3]
    assert best["settings"]["engine"] == "fsdp" and best["verdict"] == "likely" and best["own"]
    assert close["settings"]["zero_optimization.stage"] == 3 and close["verdict"] == "likely"
    assert other["settings"]["engine"] == "ddp" and other["verdict"] == "fits"
    assert other["step_seconds"] > 1.3 * best["step_seconds"] and best["chance"] > close["chance"] > 0.75


def test_a_config_of_ones_own(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text(json.dumps(known_config("Qwen2.5-1.5B")))
    folder = zerocfg("plan", "mine", "--hardware", "2xL40S")
    file = zerocfg("plan", "mine/config.json", "--hardware", "2xL40S")
    assert folder.code == file.code == 0
    assert folder.out.startswith("mine on 2xL40S: 1,543,714,304 parameters (config.json)")
    assert folder.out.splitlines()[1:] == file.out.splitlines()[1:]


def test_of_several_nodes_the_network_is_assumed_and_said(zerocfg: Cli) -> None:
    data = json.loads(zerocfg("plan", "1B", "--hardware", "2x2xH100", "--output-format", "json").out)
    assert data["assumed"]["hardware"] == "2 nodes of 2 x H100-SXM-80GB with 79.1 GiB, nvlink of 900 GB/s"
    assumed = data["assumed"]["network"]
    assert assumed.startswith("ethernet of 100 Gbit/s for each device, assumed (Google Cloud A3 High")
    assert assumed.endswith("; --network states another")
    words = ("plan", "1B", "--hardware", "2x2xH100", "--output-format", "json")
    stated, slow = (json.loads(zerocfg(*words, "--network", network).out) for network in ("4x200 infiniband", "1"))
    assert stated["assumed"]["network"] == "infiniband of 400 Gbit/s for each device"
    seconds = [found["plans"][0]["step_seconds"] for found in (stated, data, slow)]
    assert seconds == sorted(seconds) and seconds[2] > 10 * seconds[0]
    wrong = zerocfg(*words, "--network", "fast")
    assert wrong.code == 2 and "--network fast: write adapters of a node" in wrong.err


def test_what_is_not_modelled_is_named_and_nothing_fits(zerocfg: Cli, tmp_path: Path) -> None:
    text = known_config("Qwen2.5-1.5B")
    config = {"model_type": "llava_onevision", "text_config": text, "vision_config": {"num_hidden_layers": 26}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    words = ("plan", "config.json", "--hardware", "8xA100")
    found = zerocfg(*words)
    assert found.code == 3 and "\n  not modelled: `vision_config: {1 keys}`" in found.out
    data = json.loads(zerocfg(*words, "--output-format", "json").out)
    assert [list(gap["keys"]) for gap in data["not_modelled"]] == [["vision_config"]]
    assert {plan["verdict"] for plan in data["plans"]} <= {"unknown", "unlikely", "does not fit"}
    assert zerocfg(*words, "--fail-below", "1").code == 1


def test_the_exit_code_asks_for_a_chance(zerocfg: Cli) -> None:
    words = ("plan", "7B", "--hardware", "4xA100-40GB", "--lora", "--seq", "4096", "--batch", "32")
    (chance,) = [one["chance"] for one in json.loads(zerocfg(*words, "--output-format", "json").out)["plans"][:1]]
    below, above = int(chance * 100), int(chance * 100) + 1
    assert zerocfg(*words, "--fail-below", str(below)).code == 0
    assert zerocfg(*words, "--fail-below", str(above)).code == 1


def test_where_nothing_fits_it_is_said_below_the_assumptions(zerocfg: Cli) -> None:
    words = ("plan", "405B", "--hardware", "1xV100-16GB", "--batch", "4")
    found = zerocfg(*words)
    assert found.code == 1 and not found.err
    lines = found.out.splitlines()
    assert lines[0].startswith("405B on 1xV100-16GB: 40") and lines[3].split()[:2] == ["precision", "fp16;"]
    assert "  no plan fits: the one that needs least (" in found.out and "\n  What would fit: " in found.out
    assert "not taken:" in found.out
    data = json.loads(zerocfg(*words, "--output-format", "json").out)
    assert not data["plans"] and data["problems"][0]["message"].startswith("no plan fits")
    assert data["assumed"]["precision"].startswith("fp16;")


@pytest.mark.parametrize("width", [80, 100, 120])
def test_it_fits_the_terminal(width: int, tmp_path: Path) -> None:
    model = find_model("meta-llama/Llama-3.1-8B", tmp_path)
    assert model is not None
    text = as_text(plans_of(model, "8xA100-80GB", lora=False, tokens=None, samples=None), False, width)
    assert max(map(len, text.splitlines())) <= width


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["8B"], "a model needs hardware: zerocfg plan 8B --hardware 8xA100-80GB"),
        (
            ["nosuch/model", "--hardware", "8xA100"],
            "`hf download nosuch/model config.json` puts a model into the hub's",
        ),
        (["nosuch/model"], "there is no file and no known model 'nosuch/model'"),
        (["meta-llama/Llama-3.1-8c", "--hardware", "8xA100"], "The nearest known: meta-llama/Llama-3.1-8B, "),
        (["gone.json", "--hardware", "8xA100"], "there is no file 'gone.json'"),
        (["7B", "--hardware", "8xNope"], "unknown accelerator 'Nope'"),
        (["7B", "--hardware", "gone.json"], "cannot be read"),
        (["7B", "--hardware", "8xA100", "--run", "a"], "--run and --picture need a spec"),
        (["7B", "--hardware", "8xA100", "--batch", "63"], "63 samples cannot be shared among 8 ranks; take 56 or 64"),
        (["7B", "--hardware", "8xA100", "--batch", "3"], "take 8"),
        (["7B", "--hardware", "8xA100", "--seq", "0"], "Invalid value for '--seq'"),
        (["5", "--hardware", "8xA100"], "too few"),
        (["1e30", "--hardware", "8xA100"], "more than any"),
        (["list.json", "--hardware", "8xA100"], "holds no config of a model"),
        (["odd", "--hardware", "8xA100"], "nothing can be predicted"),
        (["spec.yaml", "--seq", "512"], "are for a model"),
    ],
)
def test_wrong_use(zerocfg: Cli, tmp_path: Path, words: list[str], text: str) -> None:
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "spec.yaml").write_text("version: 1\nruns: {}\n")
    (tmp_path / "odd").mkdir()
    (tmp_path / "odd" / "config.json").write_text('{"model_type": "nobody-knows"}')
    found = zerocfg("plan", *words)
    assert found.code == 2 and text in found.err and "Traceback" not in found.err


EYES = "Qwen/Qwen2.5-VL-7B-Instruct"
ON = ("--hardware", "8x8xH100-80GB", "--output-format", "json")


def activations(found: Outcome) -> int:
    """Bytes of the activations of the first plan."""
    assert found.code == 0, found.out + found.err
    first = json.loads(found.out)["plans"][0]
    assert first["settings"]["train_micro_batch_size_per_gpu"] == 1
    sizes = [term["size"] for term in first["terms"] if term["kind"] in ("activations", "logits")]
    assert sizes
    return sum(sizes)


def test_a_model_that_reads_images_is_planned_for_text_and_says_so(zerocfg: Cli) -> None:
    found = zerocfg("plan", EYES, *ON)
    assert json.loads(found.out)["assumed"]["images"].startswith("none: text alone; --images N --pixels P")
    assert activations(found) == activations(zerocfg("plan", EYES, *ON, "--images", "0"))
    text = zerocfg("plan", "Qwen/Qwen2.5-7B", *ON)
    assert "images" not in json.loads(text.out)["assumed"]


def test_images_are_tokens_of_the_sample_and_memory_of_the_tower(zerocfg: Cli) -> None:
    found = zerocfg("plan", EYES, *ON, "--images", "1", "--pixels", "1003520")
    # 1003520 pixels are 5120 patches of 14 x 14, of which four become one token.
    assert json.loads(found.out)["assumed"]["images"] == "1 of 1,003,520 pixels in a sample, 1,280 of its tokens"
    text = activations(zerocfg("plan", EYES, *ON))
    half = activations(zerocfg("plan", EYES, *ON, "--images", "1", "--pixels", "501760"))
    assert text < half < activations(found)


@pytest.mark.parametrize(
    ("model", "words", "said"),
    [
        ("Qwen/Qwen3-8B", ("--images", "1"), "Qwen/Qwen3-8B (model type qwen3) has no vision part that zerocfg knows"),
        (EYES, ("--images", "1"), "nothing says how large an image is; add its size"),
        (EYES, ("--pixels", "1003520"), "say with --images how many a sample has"),
        (EYES, ("--images", "3", "--pixels", "1003520"), "are 3,840 tokens, more than its 2,048"),
    ],
)
def test_images_that_a_model_cannot_have_are_refused(
    zerocfg: Cli, model: str, words: tuple[str, ...], said: str
) -> None:
    found = zerocfg("plan", model, "--hardware", "8xH100-80GB", *words)
    assert found.code == 2 and said in found.err and "Traceback" not in found.err


def test_images_of_a_spec_are_not_said_on_the_command_line(zerocfg: Cli) -> None:
    Path("zerocfg.yaml").write_text("version: 1\nruns: {}\n")
    found = zerocfg("plan", ".", "--images", "1")
    assert found.code == 2 and "--images and --pixels are for a model" in found.err


def test_the_samples_may_be_just_long_enough_for_their_images(zerocfg: Cli) -> None:
    words = (*ON, "--images", "3", "--pixels", "1003520", "--seq")
    assert zerocfg("plan", EYES, *words, "3840").code == 0
    assert zerocfg("plan", EYES, *words, "3839").code == 2


@pytest.mark.parametrize(
    ("name", "words"),
    [("Qwen/Qwen3-VL-8B-Instruct", ("--images", "2")), ("meta-llama/Llama-4-Scout-17B-16E-Instruct", ())],
)
def test_no_plan_is_best_where_activations_are_not_known(zerocfg: Cli, name: str, words: tuple[str, ...]) -> None:
    found = zerocfg("plan", name, "--hardware", "64x8xH100-80GB", *words)
    assert found.code == 3 and "not known to fit" in found.out and "best" not in found.out
    assert "not modelled" in found.out or "not covered" in found.out or "does not cover" in found.out


def test_a_tower_that_is_only_counted_is_planned_for_text(zerocfg: Cli) -> None:
    found = zerocfg("plan", "Qwen/Qwen3-VL-8B-Instruct", *ON)
    assert found.code == 0 and json.loads(found.out)["plans"][0]["complete"]
