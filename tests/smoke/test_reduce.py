"""What a smoke-run changes to fit the device: layers first on a card, everything on a processor."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.llamas import LLAMA_3_8B
from zerocfg.models.families import FAMILIES
from zerocfg.smoke.model.reduction import Cut, Kind, Reduction
from zerocfg.smoke.model.size import GIB, Room
from zerocfg.smoke.prepare import reduce as reducing
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.fit import fit_of, room_here, sequence_of
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.prepare.shrink import fewer_layers, layers_of, least_layers, shrink

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU = Device("cpu", "cpu")
CARD = Device("cuda", "card", 1, 80 * 2**30)
H100 = Device("cuda", "NVIDIA H100 80GB HBM3", 1, 81559 * 2**20)
LLAMA_8B = {**LLAMA_3_8B, "max_position_embeddings": 8192, "tie_word_embeddings": False}
PARAMETERS_8B = 8_030_261_248


def big(make_run: MakeRun, stage: int | None = 3, **lock: Any) -> Path:
    return make_run(stage, model={"config": LLAMA_8B, "facts": {"parameters": PARAMETERS_8B}}, **lock)


def room(monkeypatch: pytest.MonkeyPatch, **less: float) -> Room:
    """A machine with plenty of everything but what is named (GiB; seconds)."""
    found = Room(
        device=int(less.get("device", 1000) * GIB),
        host=int(less.get("host", 1000) * GIB),
        disk=int(less.get("disk", 1000) * GIB),
        seconds=less.get("seconds", 1e6),
    )
    monkeypatch.setattr(reducing, "room_here", lambda *_: found)
    return found


def test_what_fits_is_not_reduced(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3))
    reduced = reduce(run, CARD, 4, tmp_path)
    assert reduced.model == run.lock.model_config
    assert reduced.deepspeed == run.deepspeed
    assert reduced.descriptions == ["sequence length: not stated; 64 tokens"]


def test_reductions_are_told(make_run: MakeRun, tmp_path: Path) -> None:
    big = {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}
    big |= {"num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 28672, "head_dim": 128}
    folder = make_run(3, model={"config": big, "facts": {"parameters": 70_553_706_496}})
    config = json.loads((folder / "ds_config.json").read_text())
    config["zero_optimization"] |= {"reduce_bucket_size": 5e8, "zero_hpz_partition_size": 4}
    config["zero_optimization"]["offload_optimizer"] = {"device": "nvme", "nvme_path": "/nothing/here"}
    config["fp16"] = {"enabled": True}
    del config["bf16"]
    (folder / "ds_config.json").write_text(json.dumps(config))
    run = read(folder)
    run.plan.update({"bf16.enabled": False, "fp16.enabled": True})
    reduced = reduce(run, CPU, 2, tmp_path)
    text = "\n".join(reduced.descriptions)
    for part in ("num_hidden_layers 80 to 2", "num_key_value_heads 8 to 2", "world size: 4 to 2", "fp16 to bf16"):
        assert part in text
    for part in ("reduce_bucket_size: 500000000 to", "zero_hpz_partition_size: 4 to 2", "offload_optimizer"):
        assert part in text
    assert reduced.deepspeed is not None and run.deepspeed is not None
    assert reduced.deepspeed["zero_optimization"]["stage"] == 3
    assert run.deepspeed["fp16"] == {"enabled": True}, "the run itself is left as it is"
    assert reduced.plan["bf16.enabled"] is True and reduced.deepspeed["bf16"] == {"enabled": True}


def test_small_models_keep_their_shape() -> None:
    config: dict[str, Any] = {
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 1,
        "num_hidden_layers": 40,
    }
    config |= {"num_local_experts": 64, "vocab_size": 50000, "layer_types": ["a", "b"] * 20, "eos_token_id": [49999]}
    small, changes = shrink({"text_config": config})
    text = small["text_config"]
    assert text["hidden_size"] % text["num_attention_heads"] == 0
    assert text["num_key_value_heads"] == 1
    assert len(text["layer_types"]) == text["num_hidden_layers"]
    assert text["eos_token_id"][0] < text["vocab_size"]
    assert any(str(one).startswith("text_config.hidden_size 4096") for one in changes)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (Reduction(Kind.WORLD_SIZE, None, 2), "world size: not in the files; 2"),
        (Reduction(Kind.WORLD_SIZE, 8, 2), "world size: 8 to 2"),
        (Reduction(Kind.SEQUENCE, 4096, 32), "sequence length: 4096 to 32 tokens"),
        (Reduction(Kind.REDUCE_BUCKET, 5e8, 10), "reduce_bucket_size: 500000000 to 10 elements, allocated in full"),
        (Reduction(Kind.LAYERS, 32, 3, why="time"), "layers: 32 to 3, all widths as planned; 4 would take time"),
        (Reduction(Kind.MODEL, None, why="is big"), "model: an unknown number of parameters is big; nothing to cut"),
        (Reduction(Kind.MODEL, 1000, cuts=(Cut("a", 4, 2),), why="is big"), "model: 1,000 parameters is big; a 4 to 2"),
        (Reduction(Kind.MODEL, None, "a Llama", why="unknown"), "model: unknown; a Llama runs instead"),
        (Reduction(Kind.PRECISION, "fp16", "bf16", why="because"), "precision: fp16 to bf16, because"),
        (
            Reduction(Kind.PARAM_DRIVE, "/nvme", "/tmp"),
            "offload_param.nvme_path: /nvme does not exist; a temporary folder instead",
        ),
        (Reduction(Kind.SAVING, why="not reached"), "saving: not reached"),
        (Reduction(Kind.LAUNCH, keys=("--x", "$Y")), "--x $Y: its value is not in the files; left out"),
        (
            Reduction(Kind.NODES, run={"count": 2, "rank": 1, "address": "a", "port": 1, "each": 4}),
            "nodes: 2 with 4 ranks each; this is node 1, rendezvous at a:1",
        ),
        (
            Reduction(Kind.SHARED_CARD, run={"ranks": 2, "card": "H200", "collectives": "nccl"}),
            "shared card: 2 ranks on one H200, collectives by nccl; times are not meaningful",
        ),
    ],
)
def test_a_reduction_in_words_and_as_data(one: Reduction, words: str) -> None:
    assert str(one) == words
    told = json.loads(json.dumps(one.data()))
    assert Kind(told["kind"]) is one.kind and (told["planned"], told["run"]) == (one.planned, one.run)
    assert told.get("cuts", []) == [{"key": cut.key, "planned": cut.planned, "run": cut.run} for cut in one.cuts]


def test_a_card_keeps_every_width(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many layers as the prediction says: those fit, one more does not."""
    here = room(monkeypatch, device=80)
    run = read(big(make_run, recipe={"max_length": 2048, "bf16": True}))
    reduced = reduce(run, H100, 1, tmp_path)
    assert reduced.layers is not None and reduced.size is not None and not reduced.narrow
    planned, layers = reduced.layers
    assert planned == 32 and 8 <= layers < 32
    assert reduced.model == LLAMA_8B | {"num_hidden_layers": layers}
    assert reduced.deepspeed is not None and run.deepspeed is not None
    assert reduced.deepspeed["zero_optimization"] == run.deepspeed["zero_optimization"], "thresholds fit the widths"
    assert reduced.sequence == 2048
    assert reduced.size.device <= here.device
    fit = fit_of(run, reduced.plan, 1, H100, 2048)
    more = fit.size(fewer_layers(LLAMA_8B, layers + 1))
    assert more is not None and more.device > here.device
    (words,) = (words for words in reduced.descriptions if words.startswith("layers: "))
    assert words.startswith(f"layers: 32 to {layers}, all widths as planned; {layers + 1} would take up to 8")
    assert words.endswith("of 80.0 GiB of a card")
    assert reduced.copy is not None and reduced.copy["hidden_size"] == 64 and reduced.size.work.copied
    assert reduce(run, H100, 1, tmp_path, parts=("train",)).copy is None, "there is nothing to compare"


@pytest.mark.parametrize(
    ("less", "said"),
    [
        ({"host": 20}, "of 20.0 GiB of the host's memory"),
        ({"disk": 10}, "of 10.0 GiB of disk space"),
        ({"seconds": 300}, "of 45 s (15% of --time-limit)"),
    ],
)
def test_what_there_is_too_little_of(
    less: dict[str, float], said: str, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room(monkeypatch, **less)
    reduced = reduce(read(big(make_run, 2)), H100, 1, tmp_path)
    assert [words for words in reduced.descriptions if words.startswith("layers: ") and words.endswith(said)]
    assert not reduced.narrow


def test_widths_are_cut_only_when_one_layer_is_too_much(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room(monkeypatch, device=10)
    reduced = reduce(read(big(make_run)), H100, 1, tmp_path)
    assert reduced.narrow and reduced.model["hidden_size"] == 64 and reduced.layers == (32, 2)
    (words,) = (words for words in reduced.descriptions if words.startswith("model: "))
    assert "do not fit even with 1 layers (up to " in words and "of 10.0 GiB of a card" in words


def test_a_late_layer_is_better_than_other_widths(
    make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One layer of this model, 1.27 billion parameters at 22.9 ns, the start, and four trainings of a copy are counted
    as 67 s: 0.9 of 74.5."""
    run = read(big(make_run))
    for seconds, narrow in ((75, False), (74, True)):
        room(monkeypatch, seconds=seconds)
        assert reduce(run, H100, 1, tmp_path).narrow is narrow


def test_more_ranks_hold_more_layers(make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ZeRO-3 divides what a rank holds, so the same card per rank takes more of the model."""
    room(monkeypatch, device=60)
    run = read(big(make_run))
    found = [reduce(run, H100, ranks, tmp_path).layers for ranks in (1, 2)]
    assert found[0] is not None
    assert found[1] is None or found[1][1] > found[0][1]


def test_ranks_that_share_a_card_share_its_memory(tmp_path: Path) -> None:
    card = Device("cuda", "card", 1, 80 * GIB, free=70 * GIB, shared=True)
    assert room_here(card, 1, 300, tmp_path).device == 70 * GIB
    assert room_here(card, 2, 300, tmp_path).device == 35 * GIB
    assert room_here(Device("cuda", "card", 2, 80 * GIB), 2, 300, tmp_path).device == 80 * GIB


@pytest.mark.parametrize(
    ("lock", "length"),
    [
        ({"recipe": {"max_length": 4096}}, 4096),
        ({"recipe": {"max_prompt_length": 512, "max_completion_length": 256}, "consumer": "trl"}, 768),
        ({"recipe": {}, "consumer": "trl"}, 1024),
        ({"settings": {"engine": {"value": "deepspeed", "inputs": {"sequence_length": 300}}}}, 300),
        ({"recipe": {"max_length": True}}, None),
        ({}, None),
    ],
)
def test_where_the_sequence_length_is_said(lock: dict[str, Any], length: int | None, make_run: MakeRun) -> None:
    assert sequence_of(read(make_run(3, **lock)))[0] == length


def test_the_spec_says_it_while_it_is_the_one_that_was_built(make_run: MakeRun, tmp_path: Path) -> None:
    text = "version: 1\nruns:\n  tiny:\n    consumer: transformers\n    script: t.py\n    sequence_length: 48\n"
    (tmp_path / "zerocfg.yaml").write_text(text)
    entry = {"path": "zerocfg.yaml", "sha256": hashlib.sha256(text.encode()).hexdigest()}
    run = read(make_run(3, spec_folder="../..", inputs={"spec": entry}))
    assert sequence_of(run) == (48, "sequence_length of the spec")
    reduced = reduce(run, CPU, 1, tmp_path)
    assert reduced.sequence == 32 and "sequence length: 48 to 32 tokens" in reduced.descriptions
    assert not [words for words in reduce(run, CARD, 1, tmp_path).descriptions if words.startswith("sequence length")]
    (tmp_path / "zerocfg.yaml").write_text(text.replace("48", "49"))
    assert sequence_of(run)[0] is None


def test_recomputing_activations_as_trl_does(make_run: MakeRun, tmp_path: Path) -> None:
    run = read(make_run(3, consumer="trl"))
    assert reduce(run, CPU, 1, tmp_path).arguments["gradient_checkpointing"] is True
    run.lock.recipe["gradient_checkpointing"] = False
    assert reduce(run, CPU, 1, tmp_path).arguments["gradient_checkpointing"] is False


PATTERNS: dict[str, dict[str, Any]] = {
    "list": {"num_hidden_layers": 12, "layer_types": (["sliding"] * 5 + ["full"]) * 2},
    "period": {"num_hidden_layers": 24, "attn_layer_period": 8, "attn_layer_offset": 4},
    "dense first": {"num_hidden_layers": 61, "first_k_dense_replace": 3, "n_routed_experts": 256},
    "indexes": {"num_hidden_layers": 20, "mlp_only_layers": [7, 9]},
    "nested": {"text_config": {"num_hidden_layers": 12, "layer_types": (["sliding"] * 5 + ["full"]) * 2}},
    "apart": {"num_hidden_layers": 30, "per_layer_config": {"5": {"head_dim": 512}, "11": {"head_dim": 512}}},
}


def kinds(config: dict[str, Any]) -> set[str]:
    """What kinds of layers there are, by the rules of each pattern."""
    part = config.get("text_config", config)
    count = part["num_hidden_layers"]
    found = set(part.get("layer_types", []))
    if "attn_layer_period" in part:
        period, offset = part["attn_layer_period"], part["attn_layer_offset"]
        found |= {"attention" if index % period == offset else "mamba" for index in range(count)}
    if "first_k_dense_replace" in part:
        found |= {"dense" if index < part["first_k_dense_replace"] else "sparse" for index in range(count)}
    if "mlp_only_layers" in part:
        found |= {"dense" if index in part["mlp_only_layers"] else "sparse" for index in range(count)}
    if "per_layer_config" in part:
        found |= {"wide" if str(index) in part["per_layer_config"] else "narrow" for index in range(count)}
    return found


@pytest.mark.parametrize("name", PATTERNS)
def test_one_layer_of_each_kind_stays(name: str) -> None:
    config = PATTERNS[name]
    least = fewer_layers(config, 1)
    assert layers_of(least) == least_layers(config)
    for small in (least, shrink(config)[0], fewer_layers(config, 10)):
        part = small.get("text_config", small)
        assert kinds(small) == kinds(config), small
        assert part["num_hidden_layers"] <= 10
        assert len(part.get("layer_types", [])) in (0, part["num_hidden_layers"])
    assert config == PATTERNS[name], "the config itself is left as it is"


def test_a_figure_for_each_layer_makes_no_kinds() -> None:
    config = {"num_hidden_layers": 32, "intermediate_size": [1000 + index for index in range(32)]}
    assert least_layers(config) == 1
    assert fewer_layers(config, 3)["intermediate_size"] == [1000, 1001, 1002]
    small, _ = shrink(config)
    assert small["num_hidden_layers"] == 2 and small["intermediate_size"] == [256, 256]


# Types beyond those that zerocfg counts itself: hybrids, encoder-decoders, latent attention, multimodal.
TYPES = sorted(
    {
        *FAMILIES, "afmoe", "bart", "doge", "falcon_h1", "falcon_mamba", "flex_olmo", "gemma3", "gemma3n_text",
        "granitemoeshared", "jamba", "jetmoe", "lfm2", "mamba", "mamba2", "minimax", "mpt", "nemotron_h", "persimmon",
        "qwen3_5_text", "qwen3_next", "recurrent_gemma", "stablelm", "xglm",
    } - {"ministral", "qwen2_vl_text", "qwen3_vl_text", "qwen3_vl_moe_text"}
)  # fmt: skip
# What a class leaves to the file: with its own defaults alone the model cannot be run.
STATED: dict[str, dict[str, Any]] = {"deepseek_v2": {"num_experts_per_tok": 6}}


@pytest.mark.libs
def test_small_models_of_many_types_can_be_trained() -> None:
    """Fewer layers make a model of the same widths on the meta device; the small one goes forward and backward."""
    import torch
    import transformers

    transformers.logging.set_verbosity_error()
    causal = transformers.AutoModelForCausalLM
    wrong, tried = [], 0
    for name in TYPES:
        try:
            config = transformers.AutoConfig.for_model(name).to_dict() | STATED.get(name, {})
        except ValueError:
            continue  # not in this release
        tried += 1
        try:
            less = transformers.AutoConfig.for_model(**fewer_layers(config, 1))
            with torch.device("meta"):
                causal.from_config(less)
            small = transformers.AutoConfig.for_model(**json.loads(json.dumps(shrink(config)[0])))
            small.use_cache = False
            model = causal.from_config(small)
            tokens = torch.arange(32).reshape(1, 32)
            loss = model(input_ids=tokens, labels=tokens).loss
            loss.backward()
            count = model.num_parameters()
            if not loss.isfinite() or count > 20_000_000:
                wrong.append(f"{name}: loss {loss:.3g}, {count:,} parameters")
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {' '.join(str(error).split())[:200]}")
    assert tried >= 60
    assert wrong == []
