"""What the tracer is asked, what is made of its answer, and which answers are kept: with a program in its place.

What a real tracer says: test_tracing.py.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.memory.test_tracing import answer
from zerocfg.memory.activations.extrapolation import NotUniformError, continued
from zerocfg.memory.activations.tracer_process import TraceError
from zerocfg.memory.activations.tracing import ERROR, ERROR_ROUTED, Adapters, Traced, trace, trace_all
from zerocfg.memory.options import Workload
from zerocfg.memory.terms import Segment

CONFIG = {"model_type": "made up", "hidden_size": 8}
FACTS = {
    "class": "MadeUpForCausalLM",
    "parameters": 40,
    "trainable": 36,
    "tensors": [[30, 1], [5, 2]],
    "largest_module": 31,
    "largest_block": 10,
    "tied": True,
    "buffers": 16,
    "hidden": 8,
    "layers": 5,
    "vocabulary": 12,
}


def said(**changes: Any) -> dict[str, Any]:
    """An answer for five layers of which two and three were run."""
    found = answer()
    found.pop("whole")
    versions = {"transformers": "5.23.0", "torch": "2.13.0"}
    more = {"format": 1, "facts": FACTS, "logits": 45, "attention": "sdpa", "versions": versions}
    return {**found, **more, **changes}


class Stub:
    """A program that keeps what it is asked and answers with what it was given, call by call."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.python = folder, folder / "env" / "bin" / "python"
        self.python.parent.mkdir(parents=True)
        self.python.write_text(
            f"#!/bin/sh\ncd {folder}\nn=$(ls | grep -c asked)\ncat > asked$n.json\ncat answer$n.json\n"
        )
        self.python.chmod(0o755)

    def answers(self, *calls: Any) -> None:
        for number, call in enumerate(calls, len(self.asked)):
            (self.folder / f"answer{number}.json").write_text(json.dumps(call))

    @property
    def asked(self) -> list[Any]:
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("asked*.json"))]


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stub:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "stub").mkdir()
    return Stub(tmp_path / "stub")


def ask(stub: Stub, workload: Workload | None = None, **more: Any) -> Traced:
    return trace(more.pop("config", CONFIG), workload or Workload(1, 16), "bf16", python=str(stub.python), **more)


def test_the_request(stub: Stub) -> None:
    stub.answers([said(depths=[5], runs=[answer()["whole"]])])
    workload = Workload(3, 20, True, "eager", True, completion=8)
    lora = Adapters(4, ("q_proj",), 0.5, "fp32")
    ask(stub, workload, lora=lora, use_reentrant=True, keeps_outputs=True, full=True)
    batch = {
        "micro_batch": 3,
        "sequence_length": 20,
        "gradient_checkpointing": True,
        "use_reentrant": True,
        "keeps_outputs": True,
        "fused_loss": True,
        "autocast": None,
        "completion": 8,
    }
    adapters = {"targets": ["q_proj"], "rank": 4, "dropout": 0.5, "dtype": "fp32"}
    request = {"config": CONFIG, "dtype": "bf16", "attention": "eager", "batch": batch, "adapters": adapters}
    assert stub.asked == [[{**request, "full": True}]]


def test_under_autocast_parameters_are_fp32(stub: Stub) -> None:
    stub.answers([said()], [said()], [said()])
    for precision, dtype, autocast in (("fp16", "fp32", "fp16"), ("fp32", "fp32", None)):
        trace(CONFIG, Workload(1, 16, autocast=True), precision, python=str(stub.python))  # type: ignore[arg-type]
        request = stub.asked[-1][0]
        assert (request["dtype"], request["batch"]["autocast"]) == (dtype, autocast)
        assert request["adapters"] is None and request["full"] is False
        assert not request["batch"]["use_reentrant"] and not request["batch"]["keeps_outputs"]


def test_the_answer(stub: Stub) -> None:
    stub.answers([said()])
    found = ask(stub, Workload(1, 16, assumed=True))
    whole, produced, segments = answer()["whole"], 0, []
    for moment, _, size, elements in whole:
        segments.append(Segment(moment, size, produced))
        produced += elements
    assert found.timeline.segments == tuple(segments) and produced == 5 * 2 * 7 + 1
    assert (found.timeline.elements, found.timeline.error, found.timeline.assumed) == (36, ERROR, True)
    assert found.timeline.logits == 0, "the peak is in backward"
    counts = (found.parameters, found.trainable, found.tensors, found.largest_module, found.largest_block)
    assert counts == (40, 36, ((30, 1), (5, 2)), 31, 10)
    assert (found.tied, found.buffers, found.hidden, found.layers, found.vocabulary) == (True, 16, 8, 5, 12)
    assert found.model_class == "MadeUpForCausalLM" and found.versions["torch"] == "2.13.0"
    assert found.timeline.origin == (
        "traced at 2 and 3 of 5 layers: MadeUpForCausalLM of transformers 5.23.0, torch 2.13.0, attention sdpa"
    )


@pytest.mark.parametrize(
    ("moment", "size", "logits"), [("loss", 400, 45), ("head backward", 400, 45), ("backward", 400, 0)]
)
def test_logits_are_those_of_a_peak_in_the_loss(stub: Stub, moment: str, size: int, logits: int) -> None:
    run = [["forward", -1, 5, 0], [moment, -1, size, 0], ["backward", -1, 3, 1]]
    stub.answers([said(depths=[5], runs=[run])])
    found = ask(stub)
    assert found.timeline.logits == logits and found.timeline.peak == 400
    assert found.timeline.origin.startswith("traced: MadeUp"), "all layers were run"


def test_attention_that_a_class_does_not_have_is_said(stub: Stub) -> None:
    stub.answers([said(attention="eager")], [said(attention="flash_attention_2")])
    assert ask(stub).timeline.origin.endswith("attention eager (the class has no sdpa)")
    flash = ask(stub, Workload(1, 16, attention="flash_attention_2")).timeline.origin
    assert flash.endswith("attention flash_attention_2 by way of PyTorch's own, which saves the same tensors")


@pytest.mark.parametrize(
    ("config", "error"),
    [
        (CONFIG, ERROR),
        ({**CONFIG, "num_local_experts": 4}, ERROR_ROUTED),
        ({**CONFIG, "text_config": {"n_routed_experts": 4}}, ERROR_ROUTED),
    ],
)
def test_experts_are_routed_otherwise_than_evenly(stub: Stub, config: dict[str, Any], error: float) -> None:
    stub.answers([said()])
    assert ask(stub, config=config).timeline.error == error


class TestKept:
    def test_an_answer_is_asked_for_once(self, stub: Stub, tmp_path: Path) -> None:
        stub.answers([said()], [said()])
        first = ask(stub)
        assert ask(stub) == first and len(stub.asked) == 1
        (kept,) = (tmp_path / "cache/zerocfg/traces").iterdir()
        assert kept.suffix == ".json" and json.loads(kept.read_text()) == said()
        ask(stub, cache=False)
        assert len(stub.asked) == 2 and list(kept.parent.iterdir()) == [kept]

    @pytest.mark.parametrize("content", ["", "[1]", '{"format": 0}', "\x00", json.dumps(said(format=2))])
    def test_what_cannot_be_read_is_asked_for_again(self, stub: Stub, tmp_path: Path, content: str) -> None:
        stub.answers([said()], [said()])
        first = ask(stub)
        (kept,) = (tmp_path / "cache/zerocfg/traces").iterdir()
        kept.write_text(content)
        assert ask(stub) == first and len(stub.asked) == 2

    def test_another_workload_or_other_libraries_are_another_question(self, stub: Stub, tmp_path: Path) -> None:
        stub.answers(*[[said()]] * 5)
        ask(stub)
        ask(stub, Workload(1, 17))
        assert len(stub.asked) == 2
        site = tmp_path / "stub/env/lib/python3.12/site-packages"
        for number, package in enumerate(("torch-2.9.dist-info", "transformers-5.1.dist-info", "numpy-2.dist-info")):
            (site / package).mkdir(parents=True)
            ask(stub)
            assert len(stub.asked) == min(3 + number, 4), package

    def test_only_what_is_not_kept_is_asked_and_in_one_process(self, stub: Stub) -> None:
        stub.answers([said()], [said(logits=1), {"error": "torch cannot be imported"}])
        first = ask(stub)
        works = [Workload(2, 16), Workload(1, 16), Workload(2, 16), Workload(3, 16)]
        found = trace_all(CONFIG, works, "bf16", python=str(stub.python))
        assert [item["batch"]["micro_batch"] for item in stub.asked[1]] == [2, 3] and len(stub.asked) == 2
        assert found[1] == first and found[0] == found[2]
        assert isinstance(found[3], TraceError) and str(found[3]) == "torch cannot be imported"
        assert trace_all(CONFIG, [], "bf16", python=str(stub.python)) == [] and len(stub.asked) == 2

    def test_an_error_is_not_kept(self, stub: Stub) -> None:
        stub.answers([{"error": "no room"}], [said()])
        with pytest.raises(TraceError, match=r"^no room$"):
            ask(stub)
        assert ask(stub).parameters == 40

    def test_too_few_answers_are_none(self, stub: Stub) -> None:
        stub.answers([said()])
        found = trace_all(CONFIG, [Workload(1, 16), Workload(2, 16)], "bf16", python=str(stub.python))
        assert [str(item) for item in found] == ["this zerocfg cannot read the tracer's answer"] * 2

    def test_a_cache_that_cannot_be_written_is_done_without(
        self, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        stub.answers([said()], [said()])
        assert ask(stub) == ask(stub) and len(stub.asked) == 2

    def test_without_a_stated_folder_it_is_that_of_the_user(
        self, stub: Stub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.delenv("XDG_CACHE_HOME")
        monkeypatch.setenv("HOME", str(tmp_path / "home"))
        stub.answers([said()])
        ask(stub)
        assert len(list((tmp_path / "home/.cache/zerocfg/traces").iterdir())) == 1


class TestUneven:
    def uneven(self) -> dict[str, Any]:
        found = said()
        found["runs"][1][1][2] += 1
        return found

    def test_layers_that_are_not_alike_are_all_run(self, stub: Stub) -> None:
        whole = said(depths=[5], runs=[answer()["whole"]])
        stub.answers([said(), self.uneven()], [whole])
        found = trace_all(CONFIG, [Workload(1, 16), Workload(2, 16)], "bf16", python=str(stub.python))
        (again,) = stub.asked[1]
        assert again["full"] is True and again["batch"]["micro_batch"] == 2
        first, second = found
        assert isinstance(first, Traced) and isinstance(second, Traced)
        assert first.timeline.segments == second.timeline.segments
        assert "at 2 and 3" in first.timeline.origin and "at 2 and 3" not in second.timeline.origin

    def test_runs_of_periods(self) -> None:
        """One layer that stays as it is, then pairs: run at 1 + 2 x 2 and 1 + 3 x 2 layers of 1 + 5 x 2."""

        def run(pairs: int) -> list[tuple[str, int, int, int]]:
            layers = 1 + 2 * pairs
            sizes = {0: 50} | {index: 100 + (index - 1) // 2 * 10 + index % 2 for index in range(1, layers)}
            forward = [("forward", index, sizes[index], 0) for index in range(layers)]
            backward = [("backward", index, 2 * 100 + sizes[index], 7 + index % 2) for index in reversed(range(layers))]
            return [*forward, ("loss", -1, 10 * pairs, 0), *backward, ("backward", -1, 3, 1)]

        found: Any = {"prefix": 1, "period": 2, "layers": 11, "depths": [5, 7], "runs": [run(2), run(3)]}
        assert continued(found) == run(5)
        alone: Any = {**found, "runs": [run(2)]}
        assert continued(alone) == run(2)
        for moment in ("forward", "backward"):
            broken = [item for item in run(3) if item[:2] != (moment, 6)]
            with pytest.raises(NotUniformError):
                continued({**found, "runs": [run(2), broken]})
        twice = [*run(2), ("forward", 0, 50, 0)]
        with pytest.raises(NotUniformError):
            continued({**found, "runs": [twice, run(3)]})
        other = [(moment, block, size, elements + (block == 4)) for moment, block, size, elements in run(2)]
        with pytest.raises(NotUniformError):
            continued({**found, "runs": [other, run(3)]})
