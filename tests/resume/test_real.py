"""Verdicts against the real libraries: checkpoints saved by real ranks, resumed by other numbers of them.

Every case asks the real Trainer (transformers, accelerate, DeepSpeed, FSDP 2 on processors over gloo) to resume, and
zerocfg to say beforehand what will come of it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests import warm
from zerocfg.resume.read import read_checkpoint
from zerocfg.resume.target import Target
from zerocfg.resume.verdict import Verdict, judge
from zerocfg.resume.weights import read_weights

pytestmark = pytest.mark.libs
FULL, SHARDED = "FULL_STATE_DICT", "SHARDED_STATE_DICT"


def deepspeed(stage: int, **more: Any) -> dict[str, Any]:
    return {
        "zero_optimization": {"stage": stage},
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 1,
        "bf16": {"enabled": "auto"},
        **more,
    }


def fsdp(kind: str) -> dict[str, Any]:
    layers = {"auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "transformer_layer_cls_to_wrap": "LlamaDecoderLayer"}
    return {"version": 2, "state_dict_type": kind, **layers}


@dataclass
class Case:
    """``saved`` names a saved checkpoint, ``ranks`` and the rest are of the run that is to resume.

    ``outcome`` and ``kinds`` are what zerocfg has to say; ``damage`` is done to a copy first: {file: new text or None}.
    """

    saved: str
    ranks: int
    outcome: str
    kinds: set[str] = field(default_factory=set)
    stage: int | None = None
    bf16: bool = True
    fsdp: str | None = None
    universal: bool = False
    elastic: bool = False
    scheduler: bool = False
    damage: dict[str, str | int | None] = field(default_factory=dict)


SCHEDULER = {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}
SAVED: dict[str, dict[str, Any]] = {
    "zero0": {"ranks": 2, "deepspeed": deepspeed(0), "bf16": True},
    "zero0 fp32": {"ranks": 2, "deepspeed": deepspeed(0)},
    "zero2": {"ranks": 2, "deepspeed": deepspeed(2), "bf16": True},
    "zero3": {"ranks": 2, "deepspeed": deepspeed(3), "bf16": True},
    "zero2 scheduler": {"ranks": 2, "deepspeed": deepspeed(2, scheduler=SCHEDULER), "bf16": True},
    "zero2 weights": {"ranks": 2, "deepspeed": deepspeed(2), "bf16": True, "save_only_model": True},
    "zero3 weights": {"ranks": 2, "deepspeed": deepspeed(3), "bf16": True, "save_only_model": True},
    "ddp": {"ranks": 2, "bf16": True},
    "one weights": {"ranks": 1, "save_only_model": True},
    "fsdp full": {"ranks": 2, "fsdp": fsdp(FULL)},
    "fsdp sharded": {"ranks": 2, "fsdp": fsdp(SHARDED)},
}
YES, LOSS, NO = "resumes", "resumes with a loss", "does not resume"
SHARD = "global_step2/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"
MODEL = "global_step2/zero_pp_rank_1_mp_rank_00_model_states.pt"
CASES: dict[str, Case] = {
    "the same": Case("zero2", 2, YES, stage=2),
    "stage 2 as 1": Case("zero2", 2, YES, stage=1),
    "fewer ranks": Case("zero2", 1, NO, {"ranks", "random"}, stage=2),
    "more ranks": Case("zero3", 4, NO, {"ranks", "random"}, stage=3),
    "fewer ranks, elastic": Case("zero2", 1, NO, {"ranks", "random"}, stage=2, elastic=True),
    "stage 2 as 3": Case("zero2", 2, NO, {"stage"}, stage=3),
    "stage 3 as 2": Case("zero3", 2, NO, {"stage"}, stage=2),
    "stage 2 as 0": Case("zero2", 2, NO, {"stage"}, stage=0),
    "stage 0 as 2": Case("zero0", 2, NO, {"stage"}, stage=2),
    "stage 0, another precision": Case("zero0", 2, NO, {"precision"}, stage=0, bf16=False),
    "stage 0, another precision back": Case("zero0 fp32", 2, NO, {"precision"}, stage=0),
    "stage 0, fewer ranks": Case("zero0", 1, LOSS, {"random"}, stage=0),
    "another precision": Case("zero2", 2, NO, {"precision"}, stage=2, bf16=False),
    "a shard is missing": Case("zero2", 2, NO, {"missing"}, stage=2, damage={SHARD: None}),
    "a shard is cut off": Case("zero2", 2, NO, {"damaged"}, stage=2, damage={SHARD: 9000}),
    "a shard of the model is missing": Case("zero3", 2, NO, {"missing"}, stage=3, damage={MODEL: None}),
    "latest says another tag": Case("zero2", 2, NO, {"wrong-tag"}, stage=2, damage={"latest": "global_step9"}),
    "no latest": Case("zero2", 2, NO, {"no-latest"}, stage=2, damage={"latest": None}),
    "no scheduler.pt": Case("zero2", 2, NO, {"no-scheduler"}, stage=2, damage={"scheduler.pt": None}),
    "a scheduler of DeepSpeed": Case("zero2 scheduler", 2, YES, stage=2, scheduler=True),
    "only the model": Case("zero2 weights", 2, NO, {"no-shards"}, stage=2),
    "only the model, stage 3": Case("zero3 weights", 2, NO, {"no-scheduler", "random"}, stage=3),
    "not universal": Case("zero2", 2, NO, {"not-universal"}, stage=2, universal=True),
    "universal, fewer ranks": Case("zero2 universal", 1, LOSS, {"random"}, stage=2, universal=True),
    "universal, stage 3, fewer ranks": Case("zero3 universal", 1, LOSS, {"random"}, stage=3, universal=True),
    "universal, stage 2 as 3": Case("zero2 universal", 1, NO, {"stage", "random"}, stage=3, universal=True),
    "DDP, fewer ranks": Case("ddp", 1, LOSS, {"random"}),
    "DDP under DeepSpeed": Case("ddp", 2, NO, {"no-shards"}, stage=2),
    "DeepSpeed without DeepSpeed": Case("zero2", 1, LOSS, {"optimizer", "random"}),
    "stage 3 without DeepSpeed": Case("zero3", 1, NO, {"no-weights", "random"}),
    "one process, only the model": Case("one weights", 1, LOSS, {"optimizer", "random"}),
    "no trainer_state.json": Case("ddp", 2, NO, {"no-trainer-state"}, damage={"trainer_state.json": None}),
    "FSDP, fewer ranks": Case("fsdp sharded", 1, LOSS, {"random"}, fsdp=SHARDED),
    "FSDP full, fewer ranks": Case("fsdp full", 1, LOSS, {"random"}, fsdp=FULL),
    "FSDP shards as full": Case("fsdp sharded", 2, NO, {"state-dict"}, fsdp=FULL),
    "FSDP full as shards": Case("fsdp full", 2, NO, {"state-dict"}, fsdp=SHARDED),
    "FSDP without FSDP": Case("fsdp sharded", 2, NO, {"fsdp"}),
    "weights cut off": Case("ddp", 2, NO, {"damaged"}, damage={"model.safetensors": 5000}),
    "optimizer cut off": Case("ddp", 2, NO, {"damaged"}, damage={"optimizer.pt": 5000}),
    "a shard of FSDP is missing": Case(
        "fsdp sharded", 2, NO, {"missing"}, fsdp=SHARDED, damage={"pytorch_model_fsdp_0/__1_0.distcp": None}
    ),
    "DDP under FSDP": Case("ddp", 2, NO, {"not-fsdp"}, fsdp=FULL),
}


def ask(requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    done = subprocess.run(
        [warm.python(), str(Path(__file__).with_name("trainings.py"))],
        input="\n".join(map(json.dumps, requests)),
        capture_output=True,
        text=True,
        timeout=600,
        env=os.environ | {"PYTHONWARNINGS": "ignore"},
    )
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(requests), done.stderr[-3000:]
    return answers


def convert(folder: Path) -> None:
    """As the way out of a verdict says it; the real program, in a process of its own."""
    verdict = judge(read_checkpoint(folder), Target("", "deepspeed", 1, 3 if "zero3" in str(folder) else 2, "bf16"))
    follow(verdict, "ds_to_universal")


def follow(verdict: Verdict, program: str) -> None:
    """Run the way out that names a program."""
    way = next(way for one in verdict.findings for way in one.remediations if program in way)
    words = way.removeprefix("or, without the optimizer state: ").split()
    words[0] = str(Path(warm.python()).with_name(words[0]))
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]


def prepared(saved: Path, number: int, case: Case, root: Path) -> Path:
    if not case.damage:
        return saved
    copy = root / f"damaged{number}" / "checkpoint-2"
    shutil.copytree(saved, copy)
    for name, text in case.damage.items():
        if text is None:
            (copy / name).unlink()
        elif isinstance(text, int):
            os.truncate(copy / name, text)
        else:
            (copy / name).write_text(text)
    return copy


def request(case: Case, checkpoint: Path, root: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "ranks": case.ranks,
        "out": str(root / "resumed"),
        "steps": 3,
        "resume": str(checkpoint),
        "bf16": case.bf16 and case.fsdp is None,
        "arguments": {"save_strategy": "no"},
    }
    if case.stage is not None:
        more: dict[str, Any] = {"checkpoint": {"load_universal": True}} if case.universal else {}
        more |= {"zero_optimization": {"stage": case.stage, "elastic_checkpoint": True}} if case.elastic else {}
        more |= {"scheduler": SCHEDULER} if case.scheduler else {}
        found["deepspeed"] = deepspeed(case.stage, **more)
    if case.fsdp is not None:
        found["fsdp"] = fsdp(case.fsdp)
    return found


def target(case: Case) -> Target:
    engine = "deepspeed" if case.stage is not None else "fsdp" if case.fsdp else "ddp" if case.ranks > 1 else "single"
    return Target(
        "run",
        engine,
        case.ranks,
        case.stage,
        "bf16" if case.bf16 else "fp32",
        universal=case.universal,
        own_scheduler=case.scheduler,
        trainer=True,
        fsdp_version=2 if case.fsdp else None,
        state_dict_type=case.fsdp,
    )


@pytest.fixture(scope="module")
def resumed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Each case's checkpoint, and what the real Trainer made of it. Trained once, one interpreter for all."""
    root = tmp_path_factory.mktemp("checkpoints")
    saves = [one | {"out": str(root / name.replace(" ", "-")), "steps": 2} for name, one in SAVED.items()]
    assert [answer["error"] for answer in ask(saves)] == [None] * len(saves)
    folders = {name: root / name.replace(" ", "-") / "checkpoint-2" for name in SAVED}
    for stage in ("zero2", "zero3"):
        folders[f"{stage} universal"] = root / f"{stage}-universal" / "checkpoint-2"
        shutil.copytree(folders[stage], folders[f"{stage} universal"])
        convert(folders[f"{stage} universal"])
    checkpoints = {
        name: prepared(folders[case.saved], number, case, root) for number, (name, case) in enumerate(CASES.items())
    }
    answers = ask([request(case, checkpoints[name], root) for name, case in CASES.items()])
    return {name: (checkpoints[name], answer) for name, answer in zip(CASES, answers, strict=True)}


def words(verdict: Verdict) -> list[str]:
    return [one.error for one in verdict.findings if one.effect == "stops"]


@pytest.mark.parametrize("name", CASES)
def test_the_library_agrees(name: str, resumed: dict[str, tuple[Path, dict[str, Any]]]) -> None:
    case = CASES[name]
    checkpoint, real = resumed[name]
    verdict = judge(read_checkpoint(checkpoint), target(case))
    assert (verdict.outcome, {one.kind for one in verdict.findings}) == (case.outcome, case.kinds)
    if case.outcome == NO:
        assert real["error"], "the real library resumed"
        begins = [text.split("'")[0].split(" (")[0] for text in words(verdict)]
        said = real["error"].replace("AssertionError: ", "AssertionError")
        assert any(text and text in said for text in begins), (begins, said)
    else:
        assert real["error"] is None
        assert real["steps"] == 2
        anew = any(one.kind == "optimizer" for one in verdict.findings)
        assert (real["moments"] == 0) == anew
        assert (real["scheduled"] == 0) == anew


@pytest.mark.parametrize(
    ("name", "program"), [("stage 3 as 2", "zero_to_fp32"), ("FSDP without FSDP", "accelerate merge-weights")]
)
def test_the_way_out_gives_whole_weights(
    name: str, program: str, resumed: dict[str, tuple[Path, dict[str, Any]]]
) -> None:
    checkpoint, _ = resumed[name]
    follow(judge(read_checkpoint(checkpoint), target(CASES[name])), program)
    weights = read_weights(checkpoint / "weights")
    whole = read_weights(resumed["DDP, fewer ranks"][0])
    assert weights is not None
    assert whole is not None
    assert weights.whole
    assert (weights.tensors, weights.elements) == (whole.tensors, whole.elements)
