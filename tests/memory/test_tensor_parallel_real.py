"""Ranks that share each layer, against what real ones hold and send: accelerate's tp_size and DeepSpeed's AutoTP, over
gloo."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.memory.options import Options, TorchOptions, Workload
from zerocfg.memory.predict import terms_of
from zerocfg.memory.tensor_parallel import (
    SPLIT_BY_TRANSFORMERS,
    config_of_rank,
    facts_of_rank,
    head_ranks,
)
from zerocfg.memory.time.wire import traffic
from zerocfg.models.model_facts import ModelFacts, from_config

PROGRAM = Path(__file__).with_name("tensor_parallel_ranks.py")
MICRO, LENGTH = 2, 16
LLAMA = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "head_dim": 8,
    "intermediate_size": 176,
    "num_hidden_layers": 2,
    "vocab_size": 512,
    "max_position_embeddings": 64,
    "tie_word_embeddings": False,
}
TIED = {**LLAMA, "tie_word_embeddings": True}
CASES: dict[str, dict[str, Any]] = {
    "transformers": {"by": "transformers", "config": LLAMA},
    "transformers, tied, bf16": {"by": "transformers", "config": TIED, "dtype": "bfloat16"},
    "transformers, qwen2 on 4 ranks": {
        "by": "transformers",
        "config": {**LLAMA, "model_type": "qwen2"},
        "ranks": 4,
        "split": 4,
    },
    "transformers, qwen3, uneven": {
        "by": "transformers",
        "config": {**LLAMA, "model_type": "qwen3", "vocab_size": 511, "intermediate_size": 177},
    },
    "transformers, recomputed": {"by": "transformers", "config": LLAMA, "recomputes": True},
    "AutoTP, ZeRO-0": {"by": "deepspeed", "config": LLAMA, "stage": 0},
    "AutoTP, ZeRO-1, tied, bf16": {"by": "deepspeed", "config": TIED, "stage": 1, "dtype": "bfloat16"},
    "AutoTP, ZeRO-2, qwen2 on 2 x 2 ranks, bf16": {
        "by": "deepspeed",
        "config": {**LLAMA, "model_type": "qwen2"},
        "ranks": 4,
        "stage": 2,
        "dtype": "bfloat16",
    },
    "AutoTP, ZeRO-2, qwen2, tied, on 2 x 2 ranks, bf16": {
        "by": "deepspeed",
        "config": {**TIED, "model_type": "qwen2"},
        "ranks": 4,
        "stage": 2,
        "dtype": "bfloat16",
        "recomputes": True,
    },
    "AutoTP, ZeRO-3 on 2 x 2 ranks, bf16": {
        "by": "deepspeed",
        "config": LLAMA,
        "ranks": 4,
        "stage": 3,
        "dtype": "bfloat16",
    },
    "AutoTP, one key-value head for two ranks": {
        "by": "deepspeed",
        "config": {**LLAMA, "num_key_value_heads": 1, "vocab_size": 511, "intermediate_size": 177},
        "stage": 1,
        "dtype": "bfloat16",
    },
    "AutoTP, starcoder2": {
        "by": "deepspeed",
        "config": {**TIED, "model_type": "starcoder2", "bos_token_id": 1, "eos_token_id": 1},
        "stage": 1,
        "dtype": "bfloat16",
    },
}
BASE: dict[str, Any] = {"ranks": 2, "split": 2, "dtype": "float32"}


def measure(requests: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    text = "\n".join(json.dumps(BASE | one) for one in requests)
    done = subprocess.run([warm.python(), str(PROGRAM)], input=text, capture_output=True, text=True, timeout=580)
    lines = done.stdout.splitlines()
    assert len(lines) == len(requests), done.stderr[-3000:]
    return [json.loads(line) for line in lines]


@pytest.fixture(scope="module")
def measured() -> dict[str, list[dict[str, Any]]]:
    pytest.importorskip("deepspeed")
    pytest.importorskip("transformers")
    return dict(zip(CASES, measure(list(CASES.values())), strict=True))


def options_of(case: dict[str, Any]) -> Options | TorchOptions:
    precision: Any = "bf16" if case["dtype"] == "bfloat16" else "fp32"
    if case["by"] == "deepspeed":
        own: dict[str, Any] = {"reduce_bucket_size": 20_000, "optimizer": "adamw_foreach"}
        return Options(case["stage"], case["ranks"], precision, tensor_parallel=case["split"], **own)
    return TorchOptions("single", case["ranks"], precision, master=precision == "fp32", tensor_parallel=case["split"])


def of_rank(case: dict[str, Any]) -> tuple[ModelFacts, Options | TorchOptions]:
    options = options_of(case)
    return facts_of_rank(from_config(case["config"]), case["config"], options), options


def held(facts: ModelFacts, options: Options | TorchOptions, *names: str) -> int:
    return sum(term.size for term in terms_of(facts, options) if term.name in names and "step" in term.moments)


@pytest.mark.libs
@pytest.mark.parametrize("name", CASES)
def test_a_rank_holds_its_part(name: str, measured: dict[str, list[dict[str, Any]]]) -> None:
    """The fullest rank, to the byte. Of ZeRO the partitions are padded to a multiple of twice the ranks."""
    case, ranks = BASE | CASES[name], measured[name]
    assert not [one["error"] for one in ranks if "error" in one]
    facts, options = of_rank(case)
    assert {one["split"] for one in ranks} == {options.tensor_parallel}
    assert {one["data_parallel"] for one in ranks} == {options.data_parallel}
    fullest = {key: max(one[key] for one in ranks) for key in ("parameters", "gradients", "states")}
    assert held(facts, options, "optimizer moments") == fullest["states"]
    if isinstance(options, Options):
        assert {one["stage"] for one in ranks} == {options.stage}
        if options.stage < 3:
            width = 2 if options.precision == "bf16" else 4
            assert width * (facts.parameters or 0) == fullest["parameters"]
            padding = 16 * options.data_parallel
            assert 0 <= held(facts, options, "parameters", "frozen parameters") - fullest["parameters"] <= padding
        if options.precision == "bf16" and options.stage < 3:
            assert held(facts, options, "master weights") == max(one["master"] for one in ranks)
        return
    assert held(facts, options, "parameters") == fullest["parameters"]
    assert held(facts, options, "gradients", "rest of the embedding's gradient") == fullest["gradients"]


@pytest.mark.libs
def test_the_ranks_of_a_group_read_the_same_samples(measured: dict[str, list[dict[str, Any]]]) -> None:
    """64 samples, two at a time: 32 steps, whatever the number of ranks."""
    for name in ("transformers", "transformers, qwen2 on 4 ranks"):
        assert [(one["samples"], one["steps"]) for one in measured[name]] == [([0, 1], 32)] * len(measured[name])


@pytest.mark.libs
@pytest.mark.parametrize("name", [name for name in CASES if "ZeRO-3" not in name])
def test_a_rank_saves_what_the_smaller_model_saves(name: str, measured: dict[str, list[dict[str, Any]]]) -> None:
    """An ordinary model with the rank's config saves as much for backward, to the byte. Where the vocabulary is
    divided, DeepSpeed's own loss saves up to 64 bytes a token less."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    case, ranks = BASE | CASES[name], measured[name]
    facts, options = of_rank(case)
    config = config_of_rank(case["config"], options)
    assert config is not None
    dtype = getattr(torch, case["dtype"])
    kind = config.pop("model_type")
    model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(kind, **config)).to(dtype)
    model.train()
    if case.get("recomputes"):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    sizes: dict[int, int] = {}
    beside = {one.untyped_storage().data_ptr() for one in model.parameters()}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in beside:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    tokens = torch.full((MICRO, LENGTH), 3)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        loss = model(input_ids=tokens, labels=tokens).loss
    assert loss.requires_grad
    alone, found = sum(sizes.values()), max(one["saved"] for one in ranks)
    if head_ranks(facts, options) == 1:
        assert 0 <= alone - found <= 64 * MICRO * LENGTH
    else:
        assert alone == found


PLANS = sorted(SPLIT_BY_TRANSFORMERS)


@pytest.mark.libs
@pytest.mark.parametrize("tied", [False, True])
def test_every_type_is_split_by_its_plan_as_predicted(tied: bool) -> None:
    """transformers' own splitting, of models without content in a group that sends nothing."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    import torch.distributed as dist
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from transformers.distributed import DistributedConfig
    from transformers.distributed.tensor_parallel import apply_tensor_parallelism

    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        mesh = torch.distributed.init_device_mesh("cpu", (2,), mesh_dim_names=("tp",))
        for kind in PLANS:
            config = {**LLAMA, "model_type": kind, "bos_token_id": 1, "eos_token_id": 1, "pad_token_id": 0}
            named = transformers.AutoConfig.for_model(kind, **{k: v for k, v in config.items() if k != "model_type"})
            config["tie_word_embeddings"] = tied
            with torch.device("meta"):
                model = transformers.AutoModelForCausalLM.from_config(named)
            plan, _, _ = model._resolve_parallel_plans(DistributedConfig(tp_size=2))
            apply_tensor_parallelism(model, mesh, plan)
            model.config.tie_word_embeddings = tied
            model.tie_weights(recompute_mapping=True)
            parts = [one.to_local() if hasattr(one, "to_local") else one for one in model.parameters()]
            options = TorchOptions("single", 2, tensor_parallel=2)
            facts = facts_of_rank(from_config(config), config, options)
            expected = Counter(part.numel() for part in parts)
            assert Counter(dict(facts.tensor_sizes)) == expected, kind
            assert facts.parameters == sum(part.numel() for part in parts), kind
    finally:
        dist.destroy_process_group()


@pytest.mark.libs
@pytest.mark.parametrize("name", [name for name in CASES if "ZeRO-3" not in name])
def test_what_the_layers_send_is_counted(name: str, measured: dict[str, list[dict[str, Any]]]) -> None:
    case = BASE | CASES[name]
    facts, options = of_rank(case)
    load = Workload(MICRO, LENGTH, gradient_checkpointing=case.get("recomputes", False))
    profile = parse_hardware(f"{case['ranks']}xA100")
    hidden, logits = MICRO * LENGTH * 64, MICRO * LENGTH * case["config"]["vocab_size"]
    width = 2 if case["dtype"] == "bfloat16" else 4
    counted = Counter((kind, phase) for kind, phase, size, each in measured[name][0]["sent"] if size == hidden)
    assert {each for _, _, size, each in measured[name][0]["sent"] if size == hidden} == {width}
    sent = traffic(facts, options, load, profile).collectives
    assert {("all_reduce", one.phase): one.times for one in sent if one.name == "residual stream"} == counted
    assert {one.elements for one in sent if one.name == "residual stream"} == {hidden}
    gathered = [size for kind, _, size, _ in measured[name][0]["sent"] if kind == "all_gather_into_tensor"]
    assert [one.elements for one in sent if one.name == "logits"] == ([logits] if gathered else [])
    part = -(-case["config"]["vocab_size"] // options.tensor_parallel)
    assert gathered in ([], [MICRO * LENGTH * part])


@pytest.mark.libs
def test_heads_that_do_not_divide_stop_the_first_forward() -> None:
    config = {**LLAMA, "num_key_value_heads": 1}
    (ranks,) = measure([{"by": "transformers", "config": config}])
    assert {one["error"].split(" is invalid")[0] for one in ranks} == {"RuntimeError: shape '[2, 16, -1, 8]'"}
    with pytest.raises(ValueError, match="tp_size 2 does not divide the 8 attention heads and 1 key-value heads"):
        facts_of_rank(from_config(config), config, TorchOptions("single", 2, tensor_parallel=2))
