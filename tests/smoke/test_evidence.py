"""Statements of what was proven and what was not, from the facts of made-up runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.smoke.certify.evidence import Evidence, evidence
from zerocfg.smoke.certify.result import data
from zerocfg.smoke.judge.verdict import Verdict
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check
from zerocfg.smoke.model.reduction import Kind, Reduction
from zerocfg.smoke.model.size import GIB
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.prepare.reduce import reduce
from zerocfg.smoke.text import render

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import MakeRun

CPU = Device("cpu", "cpu")
H200 = Device("cuda", "NVIDIA H200", 1, 140 * GIB)
A100 = {"accelerator": "A100-SXM-80GB", "vendor": "nvidia", "memory_gib": 79.15, "name": "8xA100-80GB"}
SEEN = {"engine": "deepspeed", "stage": 3, "world_size": 2, "dtype": "bf16"}
DONE = [
    Check("optimizer steps, loss finite", "3", "3; loss 4 to 2", True),
    Check("loss falls", "falls", "4 to 2", True),
    Check("parameters of a rank", "1/2", "50 of 100", True),
    Check("optimizer states of a rank", "1/2", "50 of 100", True),
    Check("parameters alike on all ranks", "same checksums", "12 tensors on 2 ranks", True),
    Check("loss as under ZeRO-0", "within 1 %", "0 % apart at most", True),
    Check("gradients as under ZeRO-0", "within 2 %", "0 % apart", True),
    Check("saved parameters", "100", "100 in model.safetensors", True),
    Check("saved values", "as in the live model", "12 tensors the same", True),
    Check("loaded by from_pretrained", "yes", "yes", True),
    Check("resumes from a checkpoint", "loss 2", "loss 2", True),
    Check("a", "1", "1", True, "acting"),
    Check("b", "1", "-", None, "unseen"),
]


def verdict_of(folder: Path, tmp_path: Path, device: Device, ranks: int = 2, **more: Any) -> Verdict:
    run = read(folder)
    reduced = reduce(run, device, ranks, tmp_path)
    reports = [{"seen": SEEN, "losses": [4.0, 2.0]} for _ in range(ranks)]
    return Verdict(run, device, reduced, Outcome(reports, more.pop("failure", None)), more.pop("checks", DONE))


def told(found: Evidence) -> str:
    return "\n".join(found.not_proven)


def test_what_was_seen_is_proven(make_run: MakeRun, tmp_path: Path) -> None:
    found = evidence(verdict_of(make_run(3), tmp_path, CPU))
    assert found.proven == (
        "ZeRO-3 trains 3 optimizer steps in bf16 on 2 ranks of a processor, and the loss falls",
        "each of 2 ranks holds its shard of the parameters and optimizer states",
        "gradients are synchronised: all ranks hold the same parameters after the steps",
        "losses and gradients are those of ZeRO-0 (0 % apart at most)",
        "one more setting is as planned where the engine uses them",
        "saved weights are complete and equal those of the live model (100 in model.safetensors), and from_pretrained "
        "loads them",
        "a checkpoint resumes with the same next loss",
    )


@pytest.mark.parametrize("lost", [one.name for one in DONE if one.ok])
def test_nothing_else_is(lost: str, make_run: MakeRun, tmp_path: Path) -> None:
    """Every statement hangs on its check: with that one failed it is not made, or says less."""
    verdict = verdict_of(make_run(3), tmp_path, CPU)
    whole = evidence(verdict)
    checks = [Check(one.name, one.planned, one.seen, False, one.further) if one.name == lost else one for one in DONE]
    less = evidence(Verdict(verdict.run, verdict.device, verdict.reduced, verdict.outcome, checks))
    assert less.proven != whole.proven
    assert sum(map(len, less.proven)) < sum(map(len, whole.proven))


SET_UP = Check("engine", "deepspeed", "deepspeed", True)


@pytest.mark.parametrize(
    ("phase", "steps", "losses", "proven"),
    [
        ("step 1", 0, [], "ZeRO-3 is set up in bf16 on 2 ranks of a processor"),
        ("step 2", 1, [4.0], "ZeRO-3 trains 1 optimizer step in bf16 on 2 ranks of a processor"),
        ("save", 2, [4.0, 2.0], "ZeRO-3 trains 2 optimizer steps in bf16 on 2 ranks of a processor"),
        ("step 3", 2, [4.0, float("nan")], "ZeRO-3 is set up in bf16 on 2 ranks of a processor"),
    ],
)
def test_a_run_that_failed_proves_what_came_before(
    make_run: MakeRun, tmp_path: Path, phase: str, steps: int, losses: list[float], proven: str
) -> None:
    """Of the two ranks the one counts that came less far."""
    further = {"seen": SEEN, "losses": [4.0] * 9, "step_seconds": [0.1] * 9, "phase": "later", "done": True}
    killed = {"seen": SEEN, "losses": losses, "step_seconds": [0.1] * steps, "phase": phase}
    verdict = verdict_of(make_run(3), tmp_path, CPU, failure="rank 1 was killed", checks=[SET_UP])
    verdict.outcome.reports[:] = [further, killed]
    assert evidence(verdict) == Evidence((proven,), (f"what comes from '{phase}' on: the run ended there",))
    verdict.outcome.reports.reverse()
    verdict.outcome.rank = 0
    assert evidence(verdict).proven == (proven,)
    result = data(verdict)
    assert (result["verdict"], result["passed"], result["failure"]["stage"]) == ("failed", False, phase)  # type: ignore[index]


def test_a_run_without_an_engine_proves_nothing(make_run: MakeRun, tmp_path: Path) -> None:
    verdict = verdict_of(make_run(3), tmp_path, CPU, failure="no memory", checks=[])
    verdict.outcome.reports[:] = [{"phase": "model", "versions": {"torch": "2.13.0"}}, {}]
    assert evidence(verdict) == Evidence((), ("what comes from 'model' on: the run ended there",))
    verdict.outcome.reports.clear()
    assert evidence(verdict) == Evidence((), ())


def test_what_was_smaller_is_not_proven(make_run: MakeRun, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 8192, "num_hidden_layers": 80, "num_attention_heads": 64}
    config |= {"num_key_value_heads": 8, "vocab_size": 128256, "intermediate_size": 28672}
    folder = make_run(
        3, model={"config": config, "facts": {"parameters": 70_553_706_496}}, hardware=A100, consumer="trl",
        recipe={"max_length": 4096, "use_peft": True, "attn_implementation": "flash_attention_2"}, script="train.py",
    )  # fmt: skip
    verdict = verdict_of(folder, tmp_path, CPU)
    verdict.run.plan.update({"num_processes": 16, "num_machines": 2, "fp16.enabled": True})
    verdict.run.plan["zero_optimization.offload_optimizer.device"] = "nvme"
    verdict.reduced.plan["zero_optimization.offload_optimizer.device"] = "cpu"
    text = told(evidence(verdict))
    for said in (
        "communication between 16 ranks on 2 nodes: 2 on one machine communicated, over gloo",
        "memory, kernels and speed of A100-SXM-80GB: a processor ran",
        "that the model runs at full size: a small one of the same architecture did, with 2 of 80 layers",
        "that 70,553,706,496 parameters fit into the 79 GiB of A100-SXM-80GB: ",
        "GiB per rank are predicted (",
        "samples of 4096 tokens: 32 ran",
        "fp16 and its loss scale: bf16 ran",
        "offload_optimizer to NVMe: host memory was used instead",
        "LoRA adapters: all parameters were trained",
        "attention by flash_attention_2: the model's default ran",
        "TRL's trainer",
        "a setting that the engine does not expose: b",
        "train.py and its data: zerocfg trained random weights on one batch in the Trainer's own loop",
    ):
        assert said in text, (said, text)


@pytest.mark.parametrize("adapters", [{}, {"use_peft": True}, {"use_peft": True, "lora_r": 256}])
def test_adapters_are_predicted_as_adapters(make_run: MakeRun, tmp_path: Path, adapters: dict[str, object]) -> None:
    """7.6 thousand million parameters in bf16 are 14.2 GiB on every rank; Adam's fp32 states and the master weights of
    all of them are 85 GiB, a quarter on each of four ranks. Of adapters they are little, and more at a higher rank."""
    config = {"model_type": "qwen2", "hidden_size": 3584, "num_hidden_layers": 28, "num_attention_heads": 28}
    config |= {"num_key_value_heads": 4, "vocab_size": 152064, "intermediate_size": 18944}
    config["tie_word_embeddings"] = False
    recipe = {"max_length": 1024, "gradient_checkpointing": True, "bf16": True, "per_device_train_batch_size": 1}
    folder = make_run(
        2, model={"config": config, "facts": {"parameters": 7_615_616_512}}, hardware=A100, consumer="trl",
        recipe=recipe | adapters, script="train.py",
    )  # fmt: skip
    text = told(evidence(verdict_of(folder, tmp_path, CPU)))
    predicted = float(text.partition("A100-SXM-80GB: ")[2].partition(" GiB per rank")[0].rpartition(" ")[2])
    least, most = {0: (45, 75), 1: (15, 24), 2: (19, 33)}[len(adapters)]
    assert least < predicted < most, text


def test_as_planned_on_its_card(make_run: MakeRun, tmp_path: Path) -> None:
    """What ran as planned has nothing about ranks, memory, sizes or the device left to say."""
    folder = make_run(
        3,
        hardware={"accelerator": "H200-SXM-141GB", "vendor": "nvidia", "memory_gib": 139.8},
        recipe={"max_length": 64},
    )
    verdict = verdict_of(folder, tmp_path, Device("cuda", "NVIDIA H200", 4, 140 * GIB), ranks=4)
    assert told(evidence(verdict)).splitlines() == [
        "a setting that the engine does not expose: b",
        "your script and its data: zerocfg trained random weights on one batch in the Trainer's own loop",
    ]


def test_a_shared_card_says_nothing_of_times(make_run: MakeRun, tmp_path: Path) -> None:
    verdict = verdict_of(make_run(3, hardware=A100), tmp_path, Device("cuda", "NVIDIA H200", 1, 140 * GIB, 0, True))
    run = {"ranks": 2, "card": "NVIDIA H200", "collectives": "gloo"}
    verdict.reduced.changes.append(Reduction(Kind.SHARED_CARD, run=run))
    text = told(evidence(verdict))
    assert "times, and ranks with one card each: they shared one" in text
    assert "communication between 4 ranks: 2 on one machine communicated, over gloo" in text
    assert "memory and speed of A100-SXM-80GB: NVIDIA H200 ran" in text


def test_told_in_text_and_json(make_run: MakeRun, tmp_path: Path) -> None:
    verdict = verdict_of(make_run(3), tmp_path, CPU)
    text, content = render(verdict), data(verdict)
    shown = evidence(verdict)
    assert content["proven"] == list(shown.proven) and content["not_proven"] == list(shown.not_proven)
    assert "\nproven:\n  ZeRO-3 trains 3" in text and "\nnot proven:\n  communication between 4 ranks" in text
