"""The harness itself: known good and known bad runs of the real libraries are told apart, hangs and crashes
are seen."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.rulebook.proof import Between, at_least, at_most, crashes, printed, shows, unprinted

from .claims import contradictions, same
from .harness import ABSENT, HarnessError, Observation, collect, observe

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.libs

RECIPE = "output_dir: out\nbf16: true\nper_device_train_batch_size: 1\ngradient_accumulation_steps: 2\n"


def accelerate_yaml(stage: int = 3, **more: Any) -> str:
    lines = ["compute_environment: LOCAL_MACHINE", "distributed_type: DEEPSPEED", "num_processes: 2"]
    lines += [
        "deepspeed_config:",
        f"  zero_stage: {stage}",
        *(f"  {key}: {value}" for key, value in more.items()),
    ]
    return "\n".join(lines) + "\n"


def ds_json(**zero: Any) -> str:
    return json.dumps(
        {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": "auto",
            "bf16": {"enabled": "auto"},
            "zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True, **zero},
        }
    )


def with_json(text: str) -> dict[str, str]:
    yaml = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    return {"accelerate.yaml": yaml, "ds.json": text, "recipe.yaml": RECIPE}


@pytest.mark.parametrize("consumer", ["transformers", "trl"])
@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_stage_of_the_engine(stage: int, consumer: str) -> None:
    files = {"accelerate.yaml": accelerate_yaml(stage), "recipe.yaml": RECIPE}
    seen = observe(files, consumer, "init", ranks=2)
    assert seen.error is None
    assert seen.value("engine.kind") == "deepspeed"
    assert seen.value("engine.stage") == stage
    assert seen.value("engine.world_size") == 2
    assert seen.value("engine.gradient_accumulation_steps") == 2
    assert seen.value("engine.dtype") == "bfloat16"
    assert seen.value("config.zero_optimization.stage") == stage


@pytest.mark.parametrize("consumer", ["transformers", "accelerate"])
def test_plain_data_parallel(consumer: str) -> None:
    files = {"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\n", "recipe.yaml": RECIPE}
    seen = observe(files, consumer, "save", ranks=2)
    assert (seen.error, seen.value("engine.kind"), seen.value("weights")) == (None, "ddp", "complete")
    assert seen.value("config.zero_optimization.stage") == ABSENT


def test_weights_complete() -> None:
    seen = observe(with_json(ds_json()), "transformers", "save", ranks=2)
    assert (seen.error, seen.value("weights")) == (None, "complete")
    assert seen.value("weights.elements") == seen.value("weights.expected") > 90_000


@pytest.mark.parametrize("consumer", ["transformers", "accelerate"])
def test_zero3_with_an_explicit_train_batch_size(consumer: str) -> None:
    """The model is made in the world of both ranks, as on cards: 1 x 2 x 2 is 4."""
    content = json.loads(ds_json()) | {"train_batch_size": 4, "gradient_accumulation_steps": 2}
    seen = observe(with_json(json.dumps(content)), consumer, "step", ranks=2)
    assert (seen.error, seen.value("engine.train_batch_size")) == (None, 4)


def test_quoted_stage_saves_empty_weights() -> None:
    seen = observe(with_json(ds_json(stage="3")), "transformers", "save", ranks=2)
    assert seen.error is None
    assert seen.value("engine.stage") == 3
    assert seen.value("weights") == "empty"
    assert seen.value("weights.elements") < seen.value("weights.expected")


def test_gather_auto_saves_no_weights() -> None:
    text = ds_json(stage3_gather_16bit_weights_on_model_save="auto")
    seen = observe(with_json(text), "transformers", "save", ranks=2)
    assert (seen.error, seen.value("weights")) == (None, "missing")


def test_accumulation_mismatch_raises_at_init() -> None:
    text = ds_json().replace('"gradient_accumulation_steps": "auto"', '"gradient_accumulation_steps": 4')
    seen = observe(with_json(text), "transformers", "step", ranks=2)
    assert seen.reached == "arguments"
    assert seen.error is not None
    assert (seen.error.phase, seen.error.type) == ("init", "ValueError")
    assert "ds gradient_accumulation_steps=4 vs hf gradient_accumulation_steps=2" in seen.error.text


@pytest.mark.parametrize(
    ("files", "consumer", "phase", "text"),
    [
        ({"accelerate.yaml": "a: [1\n"}, None, "read", "expected ',' or ']'"),
        (
            {"accelerate.yaml": "distributed_type: NONE\nnum_processes: 1\n"},
            None,
            "launch",
            "not a valid Distributed",
        ),
        ({"train.sh": "accelerate launch --bogus 3 train.py\n"}, "accelerate", "launch", "bogus|required"),
        ({"recipe.yaml": "output_dir: o\nbogus: 1\n"}, "transformers", "arguments", "not used"),
        ({"recipe.yaml": "output_dir: o\nwarmup_ratio: 0.1\n"}, "trl", "arguments", "warmup_ratio"),
        (
            {"ds.json": '{"train_batch_size": 1, "zero_optimization": {"bogus": 1}}'},
            None,
            "parse",
            "Extra inputs",
        ),
        ({"ds.json": '{"train_batch_size": 1, "train_batch_size": 2}'}, None, "read", "Duplicate"),
        ({"ds.json": '{"zero_optimization": {"stage": 2}}'}, None, "parse", "train_batch_size"),
        ({"ds.json": '{"train_batch_size": 1, "optimizer": {"type": "Nope"}}'}, None, "init", "Nope"),
    ],
)
def test_errors_are_laid_to_their_phase(files: dict[str, str], consumer: str | None, phase: str, text: str) -> None:
    seen = observe(files, consumer, "step")
    assert seen.error is not None
    assert seen.error.phase == phase, str(seen.error)
    assert not contradictions(crashes(phase, text), seen, good=False)  # type: ignore[arg-type]


def test_launch_line_of_train_sh() -> None:
    line = (
        "#!/bin/bash\nexport OMP_NUM_THREADS=2\n# accelerate launch nothing.py\n"
        "NCCL_DEBUG=WARN accelerate launch --use_deepspeed --zero_stage 1 \\\n  --num_processes 2 train.py "
        "--output_dir out --per_device_train_batch_size 3 --gradient_accumulation_steps 2\n"
    )
    seen = observe({"train.sh": line}, "transformers", "init", ranks=2)
    assert seen.error is None
    assert seen.value("env.ACCELERATE_DEEPSPEED_ZERO_STAGE") == "1"
    assert (seen.value("env.OMP_NUM_THREADS"), seen.value("env.NCCL_DEBUG")) == ("2", "WARN")
    assert (seen.value("engine.stage"), seen.value("engine.micro_batch")) == (1, 3)
    assert seen.value("args.gradient_accumulation_steps") == 2


def test_one_process_where_the_launcher_starts_one() -> None:
    """A DISTRIBUTED_TYPE of NO starts one process, whatever number was asked for."""
    files = {
        "accelerate.yaml": "distributed_type: 'NO'\nnum_processes: 2\n",
        "recipe.yaml": "output_dir: o\n",
    }
    seen = observe(files, "transformers", "init", ranks=2)
    assert (seen.started, seen.value("engine.kind"), seen.value("launch.kind")) == (1, "single", "process")


def test_own_loops_train_and_save() -> None:
    own = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 2,
        "zero_optimization": {"stage": 2},
    }
    seen = observe({"ds.json": json.dumps(own)}, None, "save", ranks=2)
    assert (seen.error, seen.value("engine.stage"), seen.value("weights")) == (None, 2, "complete")
    assert seen.value("engine.global_step") == 2
    yaml = accelerate_yaml(3, zero3_save_16bit_model="true", gradient_accumulation_steps=2)
    seen = observe({"accelerate.yaml": yaml}, "accelerate", "save", ranks=2)
    assert (seen.error, seen.value("engine.stage"), seen.value("weights")) == (None, 3, "complete")
    yaml = accelerate_yaml(3, gradient_accumulation_steps=2)
    seen = observe({"accelerate.yaml": yaml}, "accelerate", "save", ranks=2)
    assert seen.error is not None and seen.error.phase == "save"
    assert "stage3_gather_16bit_weights_on_model_save" in seen.error.text


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_a_new_engine_continues(stage: int) -> None:
    content = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": stage}}
    seen = observe({"ds.json": json.dumps(content)}, "deepspeed", "load", ranks=2)
    assert (seen.error, seen.reached) == (None, "load")
    assert (seen.value("load.matches"), seen.value("load.global_step")) == (True, 2)
    assert seen.value("checkpoint.optimizer") is (stage > 0)


@pytest.mark.parametrize("consumer", ["transformers", "trl", "accelerate"])
@pytest.mark.parametrize("stage", [None, 2, 3])
def test_a_new_trainer_continues(stage: int | None, consumer: str) -> None:
    plain = "distributed_type: MULTI_GPU\nnum_processes: 2\n"
    yaml = plain if stage is None else accelerate_yaml(stage, zero3_save_16bit_model="true")
    files = {"accelerate.yaml": yaml}
    if consumer != "accelerate":
        files["recipe.yaml"] = RECIPE
    seen = observe(files, consumer, "load", ranks=2)
    assert (seen.error, seen.value("load.matches")) == (None, True)
    expected = ABSENT if stage is None and consumer == "accelerate" else 2
    assert seen.value("load.global_step") == expected


def test_a_checkpoint_that_does_not_load() -> None:
    """An error is laid to the phase, and a loading that brings nothing back is seen as such."""
    content = {"train_micro_batch_size_per_gpu": 1, "checkpoint": {"load_universal": True}}
    seen = observe({"ds.json": json.dumps({**content, "zero_optimization": {"stage": 1}})}, "deepspeed", "load")
    assert seen.error is not None and seen.error.phase == "load", str(seen.error)
    assert "latest_universal" in seen.error.text
    files = {"accelerate.yaml": accelerate_yaml(2), "recipe.yaml": RECIPE + "save_only_model: true\n"}
    seen = observe(files, "transformers", "load", ranks=2)
    assert (seen.value("checkpoint.weights"), seen.value("checkpoint.optimizer")) == (True, False)


def test_a_hang_is_reported() -> None:
    """Rank 1 is stopped before its first step; rank 0 waits for it in vain, until the time is up."""
    disturb = {"rank": 1, "phase": "step", "signal": signal.SIGSTOP}
    seen = observe(with_json(ds_json()), "transformers", "save", ranks=2, limit=12, disturb=disturb)
    assert seen.error is not None
    assert (seen.error.type, seen.error.phase) == ("Timeout", "step")
    assert seen.seconds < 40
    assert observe({"ds.json": '{"train_batch_size": 1}'}).error is None, "the zygote did not survive"


def test_a_dead_rank_is_reported() -> None:
    """A rank that the system kills leaves no error of its own; the other one is not waited for in vain."""
    disturb = {"rank": 1, "phase": "step", "signal": signal.SIGKILL}
    seen = observe(with_json(ds_json()), "transformers", "save", ranks=2, disturb=disturb)
    assert seen.error is not None
    assert (seen.error.type, seen.error.rank) == ("Crash", 1)
    assert "signal 9" in seen.error.text
    assert seen.seconds < 30


def test_ranks_that_train_alone_are_refused(tmp_path: Path) -> None:
    """Two processes of which each believes to be the only one: not an observation of two ranks."""
    report = {"current": "step", "reached": "init", "error": None, "values": {"engine.kind": "single"}}
    report["values"]["engine.world_size"] = 1  # type: ignore[index]
    launch = {"current": "launch", "reached": "launch", "error": None, "values": {"started": 2}}
    for name, content in {"launch": launch, "rank0": report, "rank1": report}.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    with pytest.raises(HarnessError, match="trained alone"):
        collect(tmp_path, {"timed_out": False, "seconds": 1.0}, "init", 60)


FSDP = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: %s\n"


@pytest.mark.parametrize("version", [1, 2])
def test_fsdp_shards_on_processors(version: int) -> None:
    """Each of two ranks holds half of the elements, in units of decoder layers, and learns."""
    yaml = FSDP % version + "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
    for files in ({"accelerate.yaml": yaml}, {"accelerate.yaml": yaml, "recipe.yaml": RECIPE}):
        seen = observe(files, until="step", ranks=2)
        assert seen.error is None, str(seen.error)
        assert seen.value("engine.kind") == "fsdp"
        assert seen.value("plugin.fsdp_version") == version
        assert seen.value("engine.share") == 0.5
        assert seen.value("engine.units").count("LlamaDecoderLayer") == 2


def test_fsdp_of_the_training_arguments_shards() -> None:
    seen = observe({"recipe.yaml": RECIPE + "fsdp: true\n"}, until="save", ranks=2)
    assert seen.error is None, str(seen.error)
    assert (seen.value("engine.kind"), seen.value("engine.share")) == ("fsdp", 0.5)
    assert seen.value("weights") == "complete"


def test_saving_of_fsdp_1_is_refused() -> None:
    """torch crashes there on processors: that would be an observation of something else."""
    with pytest.raises(HarnessError, match="FSDP 1"):
        observe({"accelerate.yaml": FSDP % 1}, until="save", ranks=2)


def test_optimizer_and_scheduler_of_the_json() -> None:
    """The scheduler of the file wins over the recipe's; autos come from the consumer."""
    content = json.loads(ds_json())
    content["optimizer"] = {"type": "AdamW", "params": {"lr": "auto"}}
    content["scheduler"] = {"type": "WarmupLR", "params": {"warmup_max_lr": "auto"}}
    files = with_json(json.dumps(content))
    files["recipe.yaml"] += "learning_rate: 0.002\nlr_scheduler_type: cosine\n"
    seen = observe(files, "transformers", "step", ranks=2)
    assert (seen.error, seen.value("engine.scheduler")) == (None, "WarmupLR")
    assert seen.value("config.optimizer.params.lr") == 0.002
    del files["recipe.yaml"]
    content["gradient_accumulation_steps"] = 1
    files["ds.json"] = json.dumps(content)
    seen = observe(files, "accelerate", "save", ranks=2)
    assert (seen.error, seen.value("engine.scheduler")) == (None, "WarmupLR")


def test_environment_is_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    monkeypatch.setenv("ACCELERATE_DEEPSPEED_ZERO_STAGE", "1")
    seen = observe({"accelerate.yaml": accelerate_yaml(2)}, "accelerate", "launch")
    assert seen.value("env.ACCELERATE_USE_CPU") == ABSENT
    assert seen.value("env.ACCELERATE_DEEPSPEED_ZERO_STAGE") == "2"


def test_memory_is_measured_where_asked() -> None:
    """Bytes a parameter, known: 2 + 4 when built, 2 + 12 after the step; the bucket lives in between."""
    own = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}
    for bucket in (1_000_000, 20_000_000):
        zero = {"stage": 2, "reduce_bucket_size": bucket}
        files = {"ds.json": json.dumps({**own, "zero_optimization": zero})}
        seen = observe(files, None, "step", measure=["memory"])
        assert seen.error is None
        assert seen.value("memory.init.bytes_per_parameter") == 6.0
        assert seen.value("memory.step.bytes_per_parameter") == 14.0
        assert same(seen.value("memory.backward"), Between(2 * bucket, 2 * bucket + 10_000_000))
        assert seen.value("memory.pinned") == 0
    assert observe(files, None, "init").value("memory.init") == ABSENT


def test_pinned_memory_is_what_deepspeed_asks_for() -> None:
    for pin in (True, False):
        zero = {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": pin}}
        own = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": zero}
        seen = observe({"ds.json": json.dumps(own)}, None, "init", measure=["memory"])
        assert same(seen.value("memory.pinned"), at_least(1_000_000) if pin else 0)


def test_uses_of_a_key_are_counted() -> None:
    """What stage 3 asks for and stage 2 does not; printing the config is no use of it."""
    for stage in (2, 3):
        zero = {"stage": stage, "offload_optimizer": {"device": "cpu", "fast_init": True}}
        own = {"train_micro_batch_size_per_gpu": 1, "log_level": "info", "zero_optimization": zero}
        seen = observe({"ds.json": json.dumps(own)}, None, "step", measure=["uses"])
        assert seen.error is None
        assert seen.value("uses.aio_config") == (1 if stage == 3 else 0)
        assert seen.value("uses.zero_config.offload_optimizer.super_offload") == (1 if stage == 3 else 0)
        assert seen.value("uses.zero_config.offload_optimizer.fast_init") == (1 if stage == 3 else 0)
        assert same(seen.value("uses.optimizer.clip_grad"), at_least(1))
        assert seen.value("uses.no_such_key") == ABSENT


@pytest.mark.parametrize(("limit", "clipped"), [(0, False), (1e-3, True), (1e3, False)])
def test_clipping_is_seen(limit: float, clipped: bool) -> None:
    own = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": limit, "zero_optimization": {"stage": 2}}
    seen = observe({"ds.json": json.dumps(own)}, None, "step")
    assert same(seen.value("step.norm"), Between(1e-2, 1e2))
    assert seen.value("step.clipped") is clipped


def test_functions_on_the_way_of_an_error() -> None:
    """An error without a text is told from another by where it was raised."""
    own = {"train_micro_batch_size_per_gpu": 1, "steps_per_print": 0, "zero_optimization": {"stage": 2}}
    seen = observe({"ds.json": json.dumps(own)}, None, "step")
    assert not contradictions(crashes("step", "ZeroDivisionError", within="_take_model_step"), seen, good=False)
    assert contradictions(crashes("step", "ZeroDivisionError", within="load_checkpoint"), seen, good=False)


def test_comparison_of_values() -> None:
    assert same(1, 1.0) and same(0.1 + 0.2, 0.3)
    assert same(2, Between(1, 2)) and same(5, at_least(5.0)) and same(5, at_most(5))
    assert not same(3, Between(1, 2)) and not same(True, at_least(0)) and not same(ABSENT, at_most(9))
    assert not same(True, 1) and not same("3", 3) and not same(ABSENT, None)
    assert same("one\ntwo", printed("t.o")) and not same("one", printed("two"))
    assert same("one", unprinted("two")) and not same("one\ntwo\nthree", unprinted("two"))
    assert same("two\ntwo", printed("two", 2)) and not same("two", printed("two", 2))


def test_claims_can_fail() -> None:
    """A claim that the libraries do not bear out is told as such, on either side."""
    fine = Observation("save", None, {"engine.stage": 2}, "", 0.0)
    assert contradictions(crashes("parse", "x"), fine, good=False)
    assert not contradictions(crashes("parse", "x"), fine, good=True)
    claim = shows("init", {"engine.stage": (0, 2)})
    assert contradictions(claim, fine, good=False) and not contradictions(claim, fine, good=True)
    stopped = observe({"ds.json": "{}"}, None, "init")
    assert contradictions(claim, stopped, good=True)
    assert contradictions(crashes("init", "."), stopped, good=False), "raised in another phase"
