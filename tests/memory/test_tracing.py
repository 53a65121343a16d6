"""Traces: against the same run on real tensors, against full traces, against recorded numbers; and how they fail."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.llamas import LLAMA_2_7B, LLAMA_3_8B
from zerocfg.memory.activations.extrapolation import NotUniformError, continued
from zerocfg.memory.activations.tracer_process import TraceError
from zerocfg.memory.activations.tracing import Adapters, Traced, trace, trace_all
from zerocfg.memory.options import Workload
from zerocfg.memory.terms import MOMENTS

SMALL = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 160,
    "max_position_embeddings": 256,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
UNGROUPED = {key: value for key, value in SMALL.items() if key != "num_key_value_heads"}
GPT = {"n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 160, "n_positions": 256}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DEEPSEEK = {
    **UNGROUPED,
    "num_key_value_heads": 4,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "q_lora_rank": 32,
    "kv_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 16,
}
OPT = {key: value for key, value in UNGROUPED.items() if key != "intermediate_size"}
MODELS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("llama", "mistral", "qwen2", "qwen3", "olmo2", "granite", "starcoder2", "cohere", "phi3"), SMALL),
    "phi": SMALL,
    "stablelm": SMALL,
    "smollm3": SMALL,
    "glm4": {**SMALL, "head_dim": 16},
    "gemma": {**SMALL, "head_dim": 16},
    "gemma2": {**SMALL, "head_dim": 16, "sliding_window": 32},
    "gemma3_text": {**SMALL, "head_dim": 16, "sliding_window": 32, "num_hidden_layers": 6},
    "gpt_oss": {**SMALL, "head_dim": 16, "sliding_window": 32, "num_local_experts": 4},
    "gpt2": GPT,
    "gptj": {**GPT, "rotary_dim": 8},
    "gpt_neox": UNGROUPED,
    "opt": {**OPT, "ffn_dim": 96, "word_embed_proj_dim": 64},
    "bloom": {"hidden_size": 64, "n_layer": 2, "n_head": 4, "vocab_size": 160},
    "falcon": {**UNGROUPED, "multi_query": True},
    "mixtral": {**SMALL, "num_local_experts": 4, "num_experts_per_tok": 2},
    "qwen2_moe": {**SMALL, **EXPERTS, "shared_expert_intermediate_size": 32},
    "qwen3_moe": {**SMALL, **EXPERTS, "head_dim": 16},
    "deepseek_v3": DEEPSEEK,
    "bert": {**UNGROUPED, "architectures": ["BertForMaskedLM"]},
    "t5": {"d_model": 64, "d_kv": 16, "d_ff": 96, "num_layers": 2, "num_heads": 4, "vocab_size": 160},
}


def named(name: str, **more: Any) -> dict[str, Any]:
    return {"model_type": name, **MODELS[name], **more}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "zerocfg" / "traces"


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tracer in this process, where torch is imported already: what it does is the same, and 4 seconds less."""
    from zerocfg.tracer.__main__ import answer_text

    monkeypatch.setattr("zerocfg.memory.activations.tracer_process._ran", lambda text, *_: answer_text(text))


# -- fake tensors against real ones -----------------------------------------------------------------------------------


@pytest.mark.libs
@pytest.mark.parametrize("name", MODELS)
def test_every_stretch_is_that_of_real_tensors(name: str) -> None:
    from tests.memory.traced import run

    for checkpointing in (False, True):
        workload = Workload(2, 64, checkpointing)
        fake = run(named(name), workload, "bf16", alike=True).stretches
        assert fake == run(named(name), workload, "bf16", fake=False).stretches
        moments = list(dict.fromkeys(stretch[0] for stretch in fake))
        assert moments == [moment for moment in MOMENTS if moment in moments] and len(moments) == 4


@pytest.mark.libs
@pytest.mark.parametrize("workload", [Workload(1, 64, attention="eager"), Workload(3, 32, True, fused_loss=True)])
def test_so_it_is_for_eager_attention_and_a_fused_loss(workload: Workload) -> None:
    from tests.memory.traced import run

    for name in ("llama", "qwen2"):
        fake = run(named(name), workload, "bf16", alike=True).stretches
        assert fake == run(named(name), workload, "bf16", fake=False).stretches


@pytest.mark.libs
def test_the_count_of_storages_is_that_of_torch_s_own_tracker() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    from zerocfg.tracer.storages import Storages

    def work() -> None:
        model = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512))
        inputs = torch.empty(128, 512)
        own, torchs = Storages([*model.parameters(), inputs]), MemTracker()
        torchs.track_external(model, inputs)
        before = torchs.get_tracker_snapshot("current")[torch.device("cpu")]["Total"]
        with torchs, own:
            model(inputs).sum().backward()
        peak = torchs.get_tracker_snapshot("peak")[torch.device("cpu")]["Total"] - before
        # Blocks of 512 bytes: only the two scalars are rounded.
        assert peak <= own.restart() <= peak + 2 * 512

    with FakeTensorMode():
        work()


# -- fewer layers against all -----------------------------------------------------------------------------------------


@pytest.mark.libs
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("name", "layers", "workload"),
    [
        ("llama", 9, Workload(1, 64)),
        ("qwen2", 11, Workload(2, 64, gradient_checkpointing=True)),
        ("gpt2", 8, Workload(1, 64, attention="eager")),
        ("gemma2", 13, Workload(1, 64, gradient_checkpointing=True)),
        ("deepseek_v3", 12, Workload(1, 64)),
        ("qwen3_moe", 9, Workload(1, 64, gradient_checkpointing=True, fused_loss=True)),
    ],
)
def test_a_continued_trace_is_the_full_one_to_the_byte(name: str, layers: int, workload: Workload) -> None:
    config = named(name, **{"n_layer" if "n_layer" in MODELS[name] else "num_hidden_layers": layers})
    short, full = (trace(config, workload, "bf16", full=full, cache=False) for full in (False, True))
    assert f"of {layers} layers" in short.timeline.origin and "of" not in full.timeline.origin.split(":")[0]
    assert short.timeline.segments == full.timeline.segments
    assert short.timeline.logits == full.timeline.logits
    assert (short.parameters, short.tensors) == (full.parameters, full.tensors)


def answer(**changes: Any) -> dict[str, Any]:
    """Of a made-up model with two stretches a layer, traced at 2 and 3 of 5 layers."""

    def run(layers: int) -> list[list[Any]]:
        forward = [["forward", index, 100 + 10 * index, 0] for index in range(layers)]
        backward = [
            ["backward", index, size + 10 * index, 7] for index in reversed(range(layers)) for size in (200, 150)
        ]
        return [["forward", -1, 5, 0], *forward, ["loss", -1, 10 * layers, 0], *backward, ["backward", -1, 3, 1]]

    found = {"prefix": 0, "period": 1, "layers": 5, "depths": [2, 3], "runs": [run(2), run(3)]}
    return {**found, "whole": [tuple(stretch) for stretch in run(5)], **changes}


def test_two_runs_are_continued() -> None:
    found = answer()
    assert [tuple(stretch) for stretch in continued(found)] == found["whole"]


@pytest.mark.parametrize("at", range(9))
def test_runs_that_do_not_follow_from_one_another_are_noticed(at: int) -> None:
    found = answer()
    run = found["runs"][0]
    found["runs"][0] = [
        [*stretch[:2], stretch[2] + 1, stretch[3]] if at == n else stretch for n, stretch in enumerate(run)
    ]
    if run[at][1] < 0:  # What is no layer may grow as it likes, but must be there.
        found["runs"][0] = [stretch for n, stretch in enumerate(run) if n != at]
    with pytest.raises(NotUniformError):
        continued(found)


# -- recorded numbers -------------------------------------------------------------------------------------------------


def saved_by_a_layer(config: dict[str, Any], workload: Workload) -> float:
    """In copies of the hidden states."""
    traced = [trace({**config, "num_hidden_layers": n}, workload, "bf16") for n in (4, 5)]
    loss = [max(one.size for one in traced.timeline.segments if one.moment == "loss") for traced in traced]
    return (loss[1] - loss[0]) / (2 * workload.micro_batch * workload.sequence_length * config["hidden_size"])


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_what_a_layer_saves() -> None:
    # Eight for two RMSNorms, queries, keys, values and result, four for the feed-forward part, the softmax statistics.
    assert saved_by_a_layer(LLAMA_2_7B, Workload(1, 4096)) == pytest.approx(8 + 4 + 4 * 11008 / 4096 + 1 / 64, abs=0.01)
    assert saved_by_a_layer(LLAMA_3_8B, Workload(1, 4096)) == pytest.approx(8 + 2.5 + 14 + 1 / 64, abs=0.01)
    assert saved_by_a_layer(LLAMA_2_7B, Workload(2, 4096, gradient_checkpointing=True)) == 1


@pytest.mark.libs
def test_a_seven_billion_model() -> None:
    traced = trace(LLAMA_2_7B, Workload(1, 4096, gradient_checkpointing=True), "bf16")
    assert traced.parameters == traced.trainable == traced.timeline.elements == 6_738_415_616
    assert (traced.largest_module, traced.largest_block) == (32000 * 4096, 202_383_360)
    assert (traced.hidden, traced.layers, traced.vocabulary, traced.tied) == (4096, 32, 32000, False)
    assert sum(size * count for size, count in traced.tensors) == traced.parameters
    assert traced.timeline.logits == pytest.approx(12 * 4096 * 32000, rel=0.001)
    produced = [one.produced for one in traced.timeline.segments]
    assert produced == sorted(produced) and produced[-1] == traced.trainable
    moments = list(dict.fromkeys(one.moment for one in traced.timeline.segments))
    assert moments == ["forward", "loss", "head backward", "backward"]
    fused = trace(LLAMA_2_7B, Workload(1, 4096, gradient_checkpointing=True, fused_loss=True), "bf16")
    assert fused.timeline.peak < traced.timeline.peak and fused.timeline.logits == 0


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_a_loop_that_keeps_its_outputs_keeps_the_logits() -> None:
    workload = Workload(1, 4096, gradient_checkpointing=True)
    held = [trace(LLAMA_2_7B, workload, "bf16", keeps_outputs=keeps).timeline.peak for keeps in (False, True)]
    assert held[1] - held[0] == 2 * 4096 * 32000


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_tied_weights_are_one_parameter_whose_gradient_comes_last() -> None:
    tied = trace(named("llama", tie_word_embeddings=True), Workload(1, 32), "bf16")
    apart = trace(named("llama", tie_word_embeddings=False), Workload(1, 32), "bf16")
    assert tied.tied and not apart.tied
    assert apart.parameters - tied.parameters == SMALL["vocab_size"] * SMALL["hidden_size"]
    last = tied.timeline.segments[-1]
    assert last.produced == tied.trainable
    assert max(one.produced for one in tied.timeline.segments[:-1]) < tied.trainable - 160 * 64 + 1


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_adapters_train_alone() -> None:
    whole = trace(named("llama"), Workload(1, 64), "bf16")
    adapters = Adapters(rank=8, targets=("q_proj", "v_proj"))
    traced = trace(named("llama"), Workload(1, 64), "bf16", lora=adapters)
    assert traced.trainable == 2 * 8 * ((64 + 64) + (64 + 32))
    assert traced.parameters == whole.parameters + traced.trainable
    assert traced.timeline.elements == traced.trainable
    assert traced.timeline.peak < whole.timeline.peak
    everything = trace(named("llama"), Workload(1, 64), "bf16", lora=Adapters(rank=8))
    assert everything.trainable > traced.trainable
    with pytest.raises(TraceError, match="no linear module of the model is named nothing"):
        trace(named("llama"), Workload(1, 64), "bf16", lora=Adapters(rank=8, targets=("nothing",)))


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_flash_attention_makes_no_masks_for_windows() -> None:
    windows = named("gemma3_text")
    sdpa = trace(windows, Workload(1, 256), "bf16")
    flash = trace(windows, Workload(1, 256, attention="flash_attention_2"), "bf16")
    assert flash.timeline.peak < sdpa.timeline.peak - 5 * 2 * 256 * 256
    assert "flash_attention_2" in flash.timeline.origin
    with pytest.raises(TraceError, match="does not run with flash_attention_2"):
        trace(named("bloom"), Workload(1, 32, attention="flash_attention_2"), "bf16")


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_fp32_with_grouped_heads_has_no_fused_kernel() -> None:
    grouped, plain = (
        trace(named("llama", num_key_value_heads=groups), Workload(1, 256), "fp32").timeline.peak for groups in (2, 4)
    )
    assert grouped > plain + 2 * 4 * 4 * 256 * 256  # softmax of two layers, four heads


@pytest.mark.libs
def test_the_backward_of_softmax_multiplies_into_a_matrix_of_its_own() -> None:
    """SoftMax.cu: softmax_backward_cuda_out has `Tensor tmp = grad * output`; log_softmax_backward_cuda_out has none.
    Of 2 heads and 300 tokens in fp32: 720,000 bytes in blocks of 512."""
    import torch

    from zerocfg.tracer.cuda import workspace

    gradient, half = torch.empty(2, 300, 300), torch.empty(2, 300, 300, dtype=torch.bfloat16)
    aten = torch.ops.aten
    assert workspace(aten._softmax_backward_data.default, (gradient, gradient), None) == 1407 * 512
    assert workspace(aten._softmax_backward_data.default, (half, half), None) == 704 * 512
    assert workspace(aten._softmax_backward_data.default, (half, gradient), None) == 1407 * 512
    assert workspace(aten._log_softmax_backward_data.default, (gradient, gradient), None) == 0


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_grouped_heads_under_autocast_have_a_fused_kernel() -> None:
    lengths = (512, 1024, 1536)
    own = trace(named("llama"), Workload(1, 1024), "bf16").timeline.peak
    cast = trace_all(named("llama"), [Workload(1, length, autocast=True) for length in lengths], "bf16")
    peaks = [one.timeline.peak for one in cast if isinstance(one, Traced)]
    # A matrix of two layers, four heads would be 32 MiB at 1024, and 16 MiB more than linear from there to 1536.
    assert abs(peaks[0] - 2 * peaks[1] + peaks[2]) < 100_000
    assert own < peaks[1] < 1.7 * own


@pytest.mark.libs
def test_attention_gets_what_autocast_makes_of_its_inputs() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    from zerocfg.tracer import cuda

    with FakeTensorMode(), torch.autocast("cpu", torch.bfloat16), cuda.behaviour():
        for groups, width in ((4, 16), (4, 8), (2, 16)):
            query, key = torch.empty(1, 4, 32, 16), torch.empty(1, groups, 32, 16)
            value = torch.empty(1, groups, 32, width)
            result = torch.nn.functional.scaled_dot_product_attention(query, key, value, enable_gqa=groups < 4)
            assert result.dtype == torch.bfloat16


@pytest.mark.libs
def test_dropout_on_cuda_keeps_a_mask_of_bytes() -> None:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.utils._python_dispatch import TorchDispatchMode

    class Log(TorchDispatchMode):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.called: set[str] = set()

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            self.called.add(func.name())
            return func(*args, **(kwargs or {}))

    with FakeTensorMode():
        for device, operator, other in (
            ("cuda", "aten::native_dropout", "aten::bernoulli_.float"),
            ("cpu", "aten::bernoulli_.float", "aten::native_dropout"),
        ):
            inputs = torch.empty(4, 4, device=device)
            with Log() as log:
                torch.nn.functional.dropout(inputs, 0.1, training=True)
            assert operator in log.called and other not in log.called


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_autocast_keeps_16_bit_copies_of_fp32_weights() -> None:
    own = trace(named("llama"), Workload(1, 16), "bf16")
    cast = trace(named("llama"), Workload(1, 16, autocast=True), "bf16")
    linear = cast.parameters - 160 * 64
    assert cast.timeline.peak > own.timeline.peak + linear


# -- failures and the cache -------------------------------------------------------------------------------------------


@pytest.mark.libs
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"model_type": "no_such_model"}, "has no model type 'no_such_model'"),
        ({}, "has no model type None"),
        (named("llama", num_hidden_layers=10**6), "1000000 layers are more than"),
        (named("llama", hidden_size="wide"), "."),
        ({"model_type": "clip"}, "no language model"),
    ],
)
def test_nonsense_is_one_clear_line(config: dict[str, Any], message: str) -> None:
    with pytest.raises(TraceError, match=message) as caught:
        trace(config, Workload(1, 16), "bf16", timeout=60)
    assert "\n" not in str(caught.value)


def test_a_process_that_fails_is_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be started: No such file"):
        trace(named("llama"), Workload(1, 16), "bf16", python=str(tmp_path / "python"))
    for script, message in (
        ("sleep 5", "longer than 0.5 seconds"),
        ("exit 3", "exit code 3 and no answer"),
        ("kill -9 $$", "out of memory"),
        ("echo '{}'", "exit code 0 and no answer"),
        ("echo '[{}]'", "cannot read the tracer's answer"),
        ("echo '[]'", "cannot read the tracer's answer"),
        ('echo \'[{"error": "torch cannot be imported"}]\'', "^torch cannot be imported$"),
    ):
        python = tmp_path / "bin"
        python.write_text(f"#!/bin/sh\n{script}\n")
        python.chmod(0o755)
        with pytest.raises(TraceError, match=message):
            trace(named("llama"), Workload(1, 16), "bf16", python=str(python), timeout=0.5)
    with pytest.raises(TraceError, match="no JSON"):
        trace({"model_type": {1, 2}}, Workload(1, 16), "bf16")
    missing = trace_all(named("llama"), [Workload(1, 16), Workload(2, 16)], "bf16", python=str(tmp_path / "python"))
    assert [str(one).split(":")[0] for one in missing] == [f"{tmp_path / 'python'} cannot be started"] * 2


def test_a_python_without_torch_says_so(tmp_path: Path) -> None:
    python = tmp_path / "bare"
    # -S: no site-packages, so neither torch nor pydantic.
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    python.chmod(0o755)
    with pytest.raises(TraceError, match=r"^torch cannot be imported$"):
        trace(named("llama"), Workload(1, 16), "bf16", python=str(python))


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_answers_are_kept_and_bad_ones_ignored(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def ask(**more: Any) -> Traced:
        return trace(named("llama"), Workload(1, 16), "bf16", **more)

    first = ask()
    (kept,) = cache.iterdir()
    with monkeypatch.context() as patched:
        patched.setattr("zerocfg.memory.activations.tracer_process._ran", lambda *_, **__: pytest.fail("asked again"))
        assert ask() == first
    for content in ("", "[1]", json.dumps({"format": 0}), "\x00"):
        kept.write_text(content)
        assert ask() == first
    trace(named("llama"), Workload(1, 17), "bf16")
    assert len(list(cache.iterdir())) == 2
    ask(cache=False, full=True)
    assert len(list(cache.iterdir())) == 2


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[list[dict[str, Any]]]:
    """The requests of every process, which are answered here."""
    from zerocfg.tracer.__main__ import answer_text

    calls: list[list[dict[str, Any]]] = []

    def ran(text: str, *_: Any) -> str:
        calls.append(json.loads(text))
        return answer_text(text)

    monkeypatch.setattr("zerocfg.memory.activations.tracer_process._ran", ran)
    return calls


@pytest.mark.libs
def test_one_process_answers_all_that_is_not_kept(asked: list[list[dict[str, Any]]], cache: Path) -> None:
    kept, other, bad = Workload(1, 16), Workload(2, 16), Workload(1, 16, attention="flash_attention_2")
    config = named("bloom")
    first = trace(config, kept, "bf16")
    found = trace_all(config, [bad, kept, other, other], "bf16")
    assert [[one["batch"]["micro_batch"] for one in call] for call in asked] == [[1], [1, 2]]
    assert isinstance(found[0], TraceError) and "does not run with flash_attention_2" in str(found[0])
    assert found[1] == first and found[2] == found[3] == trace(config, other, "bf16", cache=False)
    assert len(list(cache.iterdir())) == 2
    assert trace_all(config, [], "bf16") == [] and len(asked) == 3


@pytest.mark.libs
def test_what_is_not_uniform_is_asked_again(asked: list[list[dict[str, Any]]], monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(found: dict[str, Any]) -> Any:
        if len(found["runs"]) > 1 and found["logits"] > 200_000:
            raise NotUniformError
        return continued(found)

    monkeypatch.setattr("zerocfg.memory.activations.tracing.continued", refused)
    config = named("llama", num_hidden_layers=6)
    small, large = trace_all(config, [Workload(1, 32), Workload(4, 64)], "bf16")
    assert [[(one["batch"]["micro_batch"], one["full"]) for one in call] for call in asked] == [
        [(1, False), (4, False)],
        [(4, True)],
    ]
    assert isinstance(small, Traced) and "of 6 layers" in small.timeline.origin
    assert isinstance(large, Traced) and large.timeline.origin.startswith("traced: ")


@pytest.mark.libs
@pytest.mark.usefixtures("here")
def test_a_cache_that_cannot_be_written_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked))
    assert trace(named("llama"), Workload(1, 16), "bf16").parameters
