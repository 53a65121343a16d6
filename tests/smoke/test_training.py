"""Is training right: the checks on reports written by hand, and engines that are broken on purpose."""

from __future__ import annotations

import copy
import json
import tempfile
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.nccl import path_with
from zerocfg.emit.lock import Lock
from zerocfg.smoke.judge import training, weights
from zerocfg.smoke.launch import job_folder
from zerocfg.smoke.smoke import Options, smoke
from zerocfg.smoke.worker import parts, reference, resume_point

from .conftest import MODEL

if TYPE_CHECKING:
    from .conftest import MakeRun

STEPS = 3
SUMS = {"embed.weight": 11, "norm.weight": 7}


def report(**changes: Any) -> dict[str, Any]:
    """One rank's report of a run under bf16 where everything went well: 3 steps of 2 micro steps."""
    good = {
        "seen": {"dtype": "bf16", "stage": 3, "engine": "deepspeed"},
        "losses": [4.0, 4.0, 3.8, 3.8, 3.7, 3.7],
        "step_seconds": [0.1, 0.1, 0.1],
        "rates": [1e-3, 6e-4, 3e-4],
        "sums": dict(SUMS),
        "changed": 2,
        "momentum": 0.25,
        "skipped_steps": 0,
        "parts": {
            "resume": {
                "state": "done",
                "from": 1,
                "losses": [3.8, 3.8, 3.7, 3.7],
                "rates": [6e-4, 3e-4],
                "momentum": 0.25,
                "differing": 0,
                "of": 2,
            },
            "reference": {"state": "done", "losses": [4.0, 4.0, 3.8, 3.8, 3.7, 3.7], "momentum": 0.25},
        },
    }
    return copy.deepcopy(good | changes)


def part(name: str, **changes: Any) -> dict[str, Any]:
    """The parts of a report, one of them changed."""
    good: dict[str, Any] = report()["parts"]
    return good | {name: good[name] | changes}


def verdicts(*reports: dict[str, Any]) -> dict[str, tuple[str, bool | None]]:
    return {one.name: (one.seen, one.ok) for one in training.check(list(reports), STEPS)}


def failed(*reports: dict[str, Any]) -> list[str]:
    return [name for name, (_, ok) in verdicts(*reports).items() if ok is False]


def test_all_is_well() -> None:
    seen = verdicts(report(), report())
    assert all(ok for _, ok in seen.values())
    assert seen["parameters alike on all ranks"] == ("2 tensors on 2 ranks", True)
    assert seen["resumes from a checkpoint"] == ("from step 1: loss 3.7, same parameters", True)


def test_without_the_other_parts_nothing_is_said_of_them() -> None:
    seen = verdicts(report(parts={}), report(parts={}))
    assert not {"loss as under ZeRO-0", "gradients as under ZeRO-0", "resumes from a checkpoint"} & set(seen)


class TestLossFalls:
    def test_rises(self) -> None:
        risen = report(losses=[4.0, 4.0, 4.2, 4.2, 4.3, 4.3], parts={})
        assert failed(risen, risen) == ["loss falls"]
        assert verdicts(risen)["loss falls"] == ("4 to 4.3: it does not fall", False)

    def test_nan(self) -> None:
        assert failed(report(losses=[4.0, 4.0, 3.9, 3.9, float("nan"), 3.8])) == ["optimizer steps, loss finite"]

    def test_a_rank_that_rises_is_outweighed_by_the_mean(self) -> None:
        assert failed(report(), report(losses=[4.0, 4.0, 4.0, 4.0, 4.01, 4.01], parts={})) == []

    def test_warmup_that_begins_at_zero(self) -> None:
        still = {"losses": [4.0] * 6, "rates": [0.0, 0.0, 0.0], "changed": 0, "parts": {}}
        seen = verdicts(report(**still))
        assert seen["loss falls"] == ("4 to 4; the learning rate was 0 in step 1 to 2 (warmup)", None)
        assert seen["parameters change"][1] is None

    def test_a_rate_below_what_the_dtype_resolves(self) -> None:
        seen = verdicts(report(losses=[4.0] * 5 + [4.01], rates=[1e-9] * 3, parts={}))
        assert seen["loss falls"][1] is None and "bf16" in seen["loss falls"][0]
        fine = report(losses=[4.0] * 5 + [4.01], seen={"dtype": "fp32"}, parts={})
        assert failed(fine) == ["loss falls"]

    def test_steps_that_fp16_skipped(self) -> None:
        seen = verdicts(report(losses=[4.0] * 6, skipped_steps=3, changed=0, parts={}, seen={"dtype": "fp16"}))
        assert (seen["loss falls"][1], seen["parameters change"][1]) == (None, None)

    def test_one_step_says_nothing(self) -> None:
        (falls,) = (
            one
            for one in training.check([report(losses=[4.0, 4.0], step_seconds=[0.1], parts={})], 1)
            if one.name == "loss falls"
        )
        assert falls.ok is None


def test_parameters_that_do_not_change_fail() -> None:
    assert failed(report(changed=0), report()) == ["parameters change"]


def test_a_tiny_rate_may_change_no_parameter_of_16_bit() -> None:
    """A warmup's first steps; the same rate in fp32, or a higher one, has to show."""
    tiny = report(changed=0, rates=[0.0, 1e-6, 2e-6])
    assert verdicts(tiny, tiny)["parameters change"] == (
        "no tensor; learning rate 2e-06 changes too little for bf16",
        None,
    )
    assert "parameters change" in failed(report(changed=0, rates=[0.0, 1e-3, 2e-3]))


def test_ranks_that_drift_apart_fail_and_the_tensor_is_named() -> None:
    other = report(sums=SUMS | {"norm.weight": 8})
    assert failed(report(), other) == ["parameters alike on all ranks"]
    assert "norm.weight" in verdicts(report(), other)["parameters alike on all ranks"][0]


class TestReference:
    def test_another_loss_on_one_rank(self) -> None:
        other = report(parts=part("reference", losses=[4.0, 4.0, 3.8, 3.8, 3.6, 3.6]))
        assert failed(report(), other) == ["loss as under ZeRO-0"]

    def test_fp16_is_compared_as_long_as_no_step_can_be_skipped(self) -> None:
        half = {"seen": {"dtype": "fp16"}}
        later = report(parts=part("reference", losses=[4.0, 4.0, 4.0, 4.0, 3.8, 3.8], momentum=0.1), **half)
        assert failed(later, later) == []
        first = report(parts=part("reference", losses=[4.3, 4.3, 3.8, 3.8, 3.7, 3.7]), **half)
        assert failed(first, first) == ["loss as under ZeRO-0"]

    def test_gradients_that_are_not_clipped(self) -> None:
        """Adam's steps hardly depend on the size of gradients: the loss says nothing, the optimizer's states do."""
        other = report(parts=part("reference", momentum=0.1))
        assert failed(other, other) == ["gradients as under ZeRO-0"]
        assert "norm 0.25, ZeRO-0 0.1" in verdicts(other)["gradients as under ZeRO-0"][0]

    @pytest.mark.parametrize(
        "state", [{"state": "failed", "why": "OSError: x"}, {"state": "skipped", "why": "not compared: too large"}]
    )
    def test_what_cannot_be_compared_is_noted(self, state: dict[str, Any]) -> None:
        seen, ok = verdicts(report(parts={"reference": state}))["loss as under ZeRO-0"]
        assert ok is None and state["why"] in seen and seen.startswith("not compared")

    def test_states_that_cannot_be_read_are_left_out(self) -> None:
        assert "gradients as under ZeRO-0" not in verdicts(report(momentum=None))


class TestResume:
    @pytest.mark.parametrize(
        ("change", "word"),
        [
            ({"losses": [4.0, 4.0, 3.9, 3.9]}, "loss 4 3.9, without the break 3.8 3.7"),
            ({"rates": [1e-3, 1e-3]}, "learning rate 0.001, without the break 0.0006 0.0003"),
            ({"momentum": 0.1}, "states"),
            ({"losses": []}, "no step"),
        ],
    )
    def test_what_did_not_come_back_is_told(self, change: dict[str, Any], word: str) -> None:
        broken = report(parts=part("resume", **change))
        assert failed(report(), broken) == ["resumes from a checkpoint"]
        assert word in verdicts(report(), broken)["resumes from a checkpoint"][0]

    def test_an_error_fails_and_no_memory_is_noted(self) -> None:
        error = {"state": "failed", "why": "FileNotFoundError: latest", "memory": False}
        assert verdicts(report(parts={"resume": error}))["resumes from a checkpoint"] == (error["why"], False)
        full = {"state": "failed", "why": "OutOfMemoryError: CUDA out of memory", "memory": True}
        assert verdicts(report(parts={"resume": full}))["resumes from a checkpoint"][1] is None

    def test_rounding_is_told_and_passes(self) -> None:
        seen, ok = verdicts(report(parts=part("resume", differing=1)))["resumes from a checkpoint"]
        assert ok and "1 of 2 parameters" in seen


class TestWeights:
    GOOD: dict[str, Any] = {  # noqa: RUF012 - a constant
        "file": "model.safetensors", "expected": 10, "saved": 10, "missing": [], "short": [], "loadable": None,
        "dtypes": {"bf16": 10}, "live_dtypes": {"bf16": 10}, "compared": 2, "other": [],
    }  # fmt: skip

    def failed(self, engine: str = "deepspeed", **changes: Any) -> list[str]:
        found = weights.check([{"seen": {"engine": engine}, "weights": self.GOOD | changes}])
        return [one.name for one in found if one.ok is False]

    def test_all_is_well(self) -> None:
        assert self.failed() == []

    def test_another_dtype(self) -> None:
        assert self.failed(dtypes={"fp32": 10}, compared=0) == ["saved dtype"]
        assert self.failed("fsdp", dtypes={"fp32": 10}, compared=0) == []

    def test_other_values(self) -> None:
        assert self.failed(other=["norm.weight"]) == ["saved values"]


class TestParts:
    """What the ranks do after the planned training, as far as it needs no libraries."""

    def write(self, folder: Path, rank: int, state: str) -> None:
        content = {"pid": 1, "parts": {"resume": {"state": state, "why": "OSError: full"}}}
        (folder / f"rank{rank}.json").write_text(json.dumps(content))

    def own(self, folder: Path, state: str) -> Any:
        self.write(folder, 0, state)
        content = json.loads((folder / "rank0.json").read_text())
        return types.SimpleNamespace(path=folder / "rank0.json", content=content)

    @pytest.mark.parametrize("state", ["done", "failed", "skipped"])
    def test_ranks_that_all_came_to_an_end_go_on(self, tmp_path: Path, state: str) -> None:
        self.write(tmp_path, 1, "failed")
        assert parts._all_ended("resume", self.own(tmp_path, state))

    def test_a_rank_whose_partners_wait_for_it_stops_waiting_for_them(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(parts, "PATIENCE", 0.05)
        self.write(tmp_path, 1, "running")
        assert not parts._all_ended("resume", self.own(tmp_path, "failed"))

    def test_ranks_of_other_machines_are_not_waited_for(self, tmp_path: Path) -> None:
        """Their reports come when their training is over, and say nothing of what they do after that."""
        (tmp_path / "rank1.json").write_text(json.dumps({"done": True}))
        assert parts._all_ended("resume", self.own(tmp_path, "done"))

    def test_zero0_has_nothing_that_needs_another_stage(self) -> None:
        planned = {
            "train_micro_batch_size_per_gpu": 4,
            "gradient_clipping": 0.5,
            "bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True},
            "data_types": {"grad_accum_dtype": "fp32"},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1}},
            "scheduler": {"type": "WarmupLR"},
            "zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}},
        }
        before = copy.deepcopy(planned)
        assert reference.config(planned) == {
            "train_micro_batch_size_per_gpu": 4,
            "gradient_clipping": 0.5,
            "bf16": {"enabled": True},
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "weight_decay": 0.1, "torch_adam": True}},
            "scheduler": {"type": "WarmupLR"},
            "zero_optimization": {"stage": 0},
        }
        assert planned == before

    def test_a_run_that_saves_the_model_alone_cannot_resume(self) -> None:
        run: Any = types.SimpleNamespace(lock=Lock("a", recipe={"save_only_model": True}))
        why = job_folder._no_resume(run)
        assert why is not None and "save_only_model" in why
        job: Any = types.SimpleNamespace(no_resume=why, steps=3)
        assert resume_point.obstacle(job, None) == why
        run.lock.recipe["save_only_model"] = False
        assert job_folder._no_resume(run) is None

    def test_one_step_leaves_none_to_do_again(self) -> None:
        job: Any = types.SimpleNamespace(no_resume=None, steps=1)
        assert "2 steps" in (resume_point.obstacle(job, None) or "")

    def test_when_the_checkpoint_is_written(self) -> None:
        assert [resume_point.last_before(steps) for steps in (1, 2, 3, 10)] == [0, 1, 1, 8]


@pytest.mark.libs
def test_a_checksum_sees_one_bit_and_an_exchange() -> None:
    import torch

    from zerocfg.smoke.worker.checksums import CHUNK, checksum

    generator = torch.Generator().manual_seed(0)
    for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8):
        tensor = (torch.randn(CHUNK + 3, generator=generator) * 100).to(dtype)
        seen = checksum(tensor)
        assert seen == checksum(tensor.clone()) and 0 <= seen < 2**64
        for place in (0, CHUNK - 1, CHUNK + 2):
            other = tensor.clone()
            other[place] += 1
            assert checksum(other) != seen
        other = tensor.clone()
        other[[0, 1]] = tensor[[1, 0]]
        assert checksum(other) != seen or bool(tensor[0] == tensor[1])
    assert checksum(torch.zeros(3)) != checksum(torch.tensor([0.0, -0.0, 0.0])), "bits, not values"


@pytest.mark.libs
@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_saved_weights_against_a_live_model(kind: str, tmp_path: Path) -> None:
    """Whole, with the live values; also those of experts, which transformers saves under other names than they live."""
    import torch
    import transformers

    from zerocfg.smoke.worker import checksums
    from zerocfg.smoke.worker.weights import read

    experts = {"num_local_experts": 2, "num_experts_per_tok": 1} if kind == "mixtral" else {}
    config = transformers.AutoConfig.for_model(**(MODEL | {"model_type": kind, "num_hidden_layers": 1} | experts))
    model = transformers.AutoModelForCausalLM.from_config(config).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    live = checksums.live(lambda: None, model)
    seen = read(tmp_path, model, live)
    assert seen["saved"] == seen["expected"] == checksums.elements(model)
    assert (seen["missing"], seen["short"], seen["other"], seen["loadable"]) == ([], [], [], None)
    assert seen["dtypes"] == seen["live_dtypes"] == {"bf16": seen["expected"]}
    assert seen["compared"] == len(live)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(("experts.down_proj", "lm_head.weight")):
                parameter.view(-1)[3] += 1
    changed = {name for name, value in checksums.live(lambda: None, model).items() if value != live[name]}
    assert changed and set(read(tmp_path, model, checksums.live(lambda: None, model))["other"]) == changed


# (the module that it is done to, as soon as that is imported; what is done to it)
CLIP_AND_LOAD = (
    "deepspeed.runtime.engine",
    """
module.DeepSpeedZeroOptimizer.unscale_and_clip_grads = lambda *_: None
load = module.DeepSpeedEngine.load_checkpoint
def forget(self, *args, **named):
    return load(self, *args, **named | {"load_optimizer_states": False})
module.DeepSpeedEngine.load_checkpoint = forget
""",
)
NO_SYNC = (
    "transformers.trainer",
    """
from torch.nn.parallel import DistributedDataParallel
run = DistributedDataParallel.forward
def alone(self, *args, **named):
    self.require_backward_grad_sync = False
    return run(self, *args, **named)
DistributedDataParallel.forward = alone
def no_load(self, path):
    if path:
        raise OSError("no such checkpoint, for a test")
module.Trainer._load_optimizer_and_scheduler = no_load
""",
)
SITE = """
import importlib.util, sys
class After:
    def find_spec(self, name, path=None, target=None):
        if name != {name!r}:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module
        def exec_module(module):
            run(module)
            exec({code!r}, {{"module": module}})
        spec.loader.exec_module = exec_module
        return spec
if {name!r} in sys.modules:
    exec({code!r}, {{"module": sys.modules[{name!r}]}})
else:
    sys.meta_path.insert(0, After())
"""


@pytest.fixture
def broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Break a library at the start of every process, by way of a module that Python imports itself."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))

    def by(what: tuple[str, str]) -> None:
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(SITE.format(name=what[0], code=what[1]))
        monkeypatch.setenv("PYTHONPATH", path_with(tmp_path / "site"))

    return by


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_clipping_and_states_that_are_left_out(make_run: MakeRun, broken: Any) -> None:
    """A ZeRO-2 that does not clip, and a checkpoint that is read without the optimizer: each told by its own check."""
    broken(CLIP_AND_LOAD)
    verdict = smoke(make_run(2), Options(ranks=2, device="cpu"))
    assert verdict.outcome.failure is None, verdict.outcome
    wrong = {one.name: one.seen for one in verdict.checks if one.ok is False}
    # The fixture's learning rate is high enough that the loss tells as well.
    assert {"gradients as under ZeRO-0", "resumes from a checkpoint"} == set(wrong) - {"loss as under ZeRO-0"}, wrong


@pytest.mark.several_ranks
@pytest.mark.libs
@pytest.mark.usefixtures("warm_python")
def test_ranks_that_train_alone(make_run: MakeRun, broken: Any) -> None:
    """Gradients that are not averaged; an error in a part leaves the results of the training as they are."""
    broken(NO_SYNC)
    verdict = smoke(make_run(None), Options(ranks=2, device="cpu"))
    assert verdict.outcome.failure is None, verdict.outcome
    wrong = {one.name: one.seen for one in verdict.checks if one.ok is False}
    assert set(wrong) == {"parameters alike on all ranks", "resumes from a checkpoint"}, wrong
    assert "no such checkpoint, for a test" in wrong["resumes from a checkpoint"]
