"""Why a run failed, what its engine was to have, and what a command proves: findings and reports made by hand."""

from __future__ import annotations

import re
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from zerocfg.rules.api import Severity
from zerocfg.rules.registry import find as find_rule
from zerocfg.run.model import UNKNOWN
from zerocfg.smoke.judge import (
    command,
    diagnosis,
    instruments,
    known_errors,
    lint_findings,
    settings,
    training,
    weights,
)
from zerocfg.smoke.judge.expected_settings import WRAPPED, ZERO, expected, optimizer_class
from zerocfg.smoke.judge.figures import Figures
from zerocfg.smoke.judge.verdict import Verdict, run_checks
from zerocfg.smoke.launch.process import Outcome
from zerocfg.smoke.model.certificate import Check, Command, Diagnosis
from zerocfg.smoke.model.reduction import Kind, Reduced, Reduction
from zerocfg.smoke.prepare.device import Device
from zerocfg.smoke.prepare.folder import read
from zerocfg.smoke.worker.report_schema import NARROW

from . import test_settings as by_settings
from . import test_training as by_training

if TYPE_CHECKING:
    from .conftest import MakeRun

CPU = Device("cpu", "cpu")


def reduced(**facts: Any) -> Reduced:
    empty: dict[str, Any] = {"model": {}, "accelerate": None, "deepspeed": None, "arguments": {}, "plan": {}}
    return Reduced(**({"ranks": 2} | empty | {"sequence": 8} | facts))


def place(*keys: str, name: str = "ds.json", line: int = 1, column: int = 2) -> Any:
    point = SimpleNamespace(line=line, column=column)
    return SimpleNamespace(file=SimpleNamespace(name=name, kind="recipe"), keys=keys, start=point, end=point, path="p")


def finding(code: str, *keys: str, **more: Any) -> Any:
    """``code``: "crash ..." of a rule that predicts a crash, "silent ..." of another; "none" is no rule's."""
    given = {"help": "", "fix": None, "related": (), "severity": Severity.ERROR, "message": f"{code} is wrong"}
    return SimpleNamespace(code=code, name=f"name of {code}", **given | {"span": place(*keys)} | more)


class TestOfAnError:
    """What an error is put down to. A stand-in rule explains the errors that hold its code."""

    @pytest.fixture(autouse=True)
    def rules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def rule_of(code: str) -> Any:
            return None if code == "none" else SimpleNamespace(code=code, name=f"name of {code}")

        def crashes(rule: Any, phases: tuple[str, ...] | None = None) -> bool:
            kind, _, phase = rule.code.partition(" ")
            return kind == "crash" and (phases is None or phase in phases)

        page = SimpleNamespace(summary="a summary", instead="Write\n  this.\n\nNot that.")
        monkeypatch.setattr(diagnosis, "find_rule", rule_of)
        monkeypatch.setattr(diagnosis, "_crashes", crashes)
        monkeypatch.setattr(diagnosis, "page_of", lambda rule: page)
        monkeypatch.setattr(known_errors, "explains", lambda rule, error: rule.code in error)
        general = SimpleNamespace(code="ZC999", name="general")
        monkeypatch.setattr(known_errors, "rule_of", lambda error: general if "general" in error else None)
        cause = known_errors.Circumstance("full", known_errors.CIRCUMSTANCES[0].expression, "a disk is full", "clean")
        monkeypatch.setattr(
            known_errors, "circumstance_of", lambda error, kind: cause if "full" in error or kind == "space" else None
        )

    def told(self, error: str, *findings: Any, phase: str = "init", **more: Any) -> list[str]:
        outcome = Outcome([{"phase": phase}], error, 0, **more)
        return [item.code or item.name for item in diagnosis._of_error(outcome, list(findings))]

    def test_findings_that_show_the_error_and_of_these_the_ones_at_its_key(self) -> None:
        both = finding("crash init", "stage"), finding("crash init", "other")
        assert self.told("crash init: stage", *both) == ["crash init"]
        (item,) = diagnosis._of_error(Outcome([], "crash init: stage"), list(both))
        assert (item.message, item.why, item.line) == ("crash init is wrong", "error", 1)
        assert self.told("crash init: unnamed", *both) == ["crash init"] * 2
        assert self.told("crash init: stage", finding("none", "stage"), both[1]) == ["crash init"]
        related = finding("crash step", "other", related=(place("stage"),))
        assert self.told("crash step crash init: stage", both[1], related) == ["crash step"]

    def test_else_the_ones_at_its_key_that_predict_a_crash(self) -> None:
        found = finding("crash step", "stage"), finding("silent", "stage"), finding("none", "stage")
        assert self.told("stage is odd", *found) == ["crash step"]
        assert self.told("general: stage is odd", *found) == ["crash step"], "the place says more than the words"

    @pytest.mark.parametrize(
        ("phase", "codes"),
        [
            ("init", ["crash init", "crash parse"]),
            ("model", ["crash init", "crash parse"]),
            ("arguments", ["crash parse", "crash arguments"]),
            ("save", ["crash save"]),
            ("step 2", ["crash step"]),
            ("load", ["crash load"]),
            ("done", []),
        ],
    )
    def test_else_those_that_predict_one_then(self, phase: str, codes: list[str]) -> None:
        found = [finding(f"crash {name}", "x") for name in ("init", "parse", "arguments", "save", "step", "load")]
        assert self.told("it is odd", finding("silent", "x"), *found, finding("none", "x"), phase=phase) == codes
        assert self.told("general", *found, phase=phase) == ["ZC999"], "the error has another cause"
        assert self.told("full", *found, phase=phase) == ["full"]
        assert self.told("it is odd", *found, phase=phase, kind="space") == ["full"]

    def test_else_a_rule_or_a_circumstance_or_nothing(self) -> None:
        outcome = Outcome([], "general", detail=["full"])
        assert diagnosis._of_error(outcome, []) == [
            Diagnosis("ZC999", "general", None, None, None, "a summary", "Write this.", "error")
        ]
        outcome = Outcome([], "it is odd", detail=["general", "full"])
        assert diagnosis._of_error(outcome, []) == [
            Diagnosis("", "full", None, None, None, "a disk is full", "clean", "error")
        ], "of a rule only the first line counts"
        assert self.told("it is odd") == []


class TestOfChecks:
    def test_what_failed_is_explained_once(self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch) -> None:
        run = read(make_run(3))
        found = [finding("ZC101", "a"), finding("ZC102", "a"), finding("ZC101", "a")]
        monkeypatch.setattr(diagnosis, "linked_run", lambda folder: None)
        monkeypatch.setattr(diagnosis, "lint_findings", lambda linked: found)
        monkeypatch.setattr(diagnosis, "_of_check", lambda item, requested, linked, findings: findings)
        monkeypatch.setattr(diagnosis, "_of_error", lambda outcome, findings: [diagnosis._diagnosis(found[1], "error")])
        failed, good = Check("b", "1", "2", False), Check("a", "1", "1", True)
        said = diagnosis.diagnose(run, [good, failed], Outcome([]))
        assert [(item.code, item.why) for item in said] == [("ZC101", "check:b"), ("ZC102", "check:b")]
        said = diagnosis.diagnose(run, [failed, Check("c", "1", "2", False)], Outcome([], "x"))
        assert [(item.code, item.why) for item in said] == [("ZC102", "error"), ("ZC101", "check:b")]
        assert diagnosis.diagnose(run, [good, Check("n", "-", "1", None)], Outcome([])) == []
        assert [item.code for item in diagnosis.diagnose(run, [], Outcome([], "x"))] == ["ZC102"]

    @pytest.mark.parametrize(
        "other",
        [
            finding("ZC2", "a"),
            finding("ZC1", "a", span=place("a", name="x")),
            finding("ZC1", "a", span=place("a", line=2)),
            finding("ZC1", "a", span=place("a", column=3)),
        ],
    )
    def test_another_rule_or_place_is_another(
        self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, other: Any
    ) -> None:
        found = [finding("ZC1", "a"), other]
        monkeypatch.setattr(diagnosis, "linked_run", lambda folder: None)
        monkeypatch.setattr(diagnosis, "lint_findings", lambda linked: found)
        monkeypatch.setattr(diagnosis, "_of_check", lambda *_: found)
        assert len(diagnosis.diagnose(read(make_run(3)), [Check("b", "1", "2", False)], Outcome([]))) == 2

    def test_places_of_a_setting_that_goes_by_its_key(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Where it is set, and where one that it goes over is."""
        monkeypatch.setattr("zerocfg.rules.api.at", lambda origin: origin)
        monkeypatch.setattr(diagnosis, "file_span", lambda location: place(*location))
        over = SimpleNamespace(origin=("old",))
        values = {"num_processes": SimpleNamespace(origin=("n",), overridden=(over, SimpleNamespace(origin=None)))}
        run: Any = SimpleNamespace(effective=values)
        assert [item.keys for item in diagnosis._origins(run, "world size")] == [("n",), ("old",)]
        assert [item.keys for item in diagnosis._origins(run, "num_processes")] == [("n",), ("old",)]
        assert diagnosis._origins(run, "other") == [] and diagnosis._origins(None, "world size") == []
        exact, around, elsewhere = finding("a", "old"), finding("b", "n", "x"), finding("c", "z")
        row = Check("world size", "1", "2", False)
        assert diagnosis._of_check(row, {}, run, [around, exact, elsewhere]) == [exact]
        assert diagnosis._of_check(row, {}, run, [around, elsewhere]) == [around]
        assert diagnosis._of_check(row, {}, run, [elsewhere]) == []

    def test_arguments_and_weights(self, monkeypatch: pytest.MonkeyPatch) -> None:
        refused, other = finding("ZC840", "a"), finding("ZC101", "a")
        assert diagnosis._of_check(Check("training arguments", "", "", False), {}, None, [other, refused]) == [refused]
        saves = find_rule("ZC401")
        assert saves is not None and diagnosis._shows(finding("ZC401"), "save")
        assert not diagnosis._shows(finding("ZC401"), "load") and not diagnosis._shows(finding("none"), "save")
        saving = finding("ZC401", "gather")
        for name in ("saved parameters", "loaded by from_pretrained"):
            assert diagnosis._of_check(Check(name, "", "", False), {}, None, [other, saving]) == [saving]
        assert diagnosis._of_check(Check("saved parameters", "", "", False), {}, None, [other]) == []

    def test_a_finding_as_an_explanation(self) -> None:
        told = finding("ZC101", "a", help="do this", fix=SimpleNamespace(description="do that"))
        assert diagnosis._diagnosis(told, "w") == Diagnosis(
            "ZC101", "name of ZC101", "ds.json", 1, 2, "ZC101 is wrong", "do this", "w"
        )
        told.help = ""
        assert diagnosis._diagnosis(told, "w").fix == "do that"
        told.fix = None
        assert diagnosis._diagnosis(told, "w").fix == ""


class TestLint:
    def test_errors_first_at_the_releases_that_ran(self, monkeypatch: pytest.MonkeyPatch) -> None:
        warning, note, error = Severity.WARNING, Severity.NOTE, Severity.ERROR
        levels = {"a": warning, "b": note, "c": error, "d": warning}
        found = [finding(code, severity=level) for code, level in levels.items()]
        asked: list[Any] = []

        def lint_runs(runs: list[Any]) -> Any:
            asked.extend(runs)
            return SimpleNamespace(diagnostics=found)

        def changed(run: Any, versions: dict[str, str]) -> Any:
            return (run.name, versions)

        monkeypatch.setattr(lint_findings, "lint_runs", lint_runs)
        monkeypatch.setattr(lint_findings, "replace", changed)
        monkeypatch.setattr("zerocfg.smoke.judge.lint_findings.metadata.version", self.version)
        run: Any = SimpleNamespace(name="sft", versions={"torch": "<2", "zstd": ">1", "trl": "==1.0"})
        assert [item.code for item in lint_findings.lint_findings(run)] == ["c", "a", "d"]
        assert asked == [("sft", {"torch": "==2.13.0", "zstd": ">1", "trl": "==1.0", "accelerate": "==1.15.0"})]
        assert lint_findings.lint_findings(None) == []

    def version(self, name: str) -> str:
        if name in ("torch", "accelerate"):
            return {"torch": "2.13.0+cpu", "accelerate": "1.15.0"}[name]
        raise PackageNotFoundError(name)

    @pytest.mark.parametrize(
        ("changed", "refused"),
        [
            ({}, True),
            ({"code": "ZC801"}, True),
            ({"code": "ZC802"}, True),
            ({"code": "ZC841"}, True),
            ({"code": "ZC842"}, False),
            ({"severity": Severity.WARNING}, False),
            ({"span": SimpleNamespace(file=SimpleNamespace(kind="deepspeed"), path="p")}, False),
        ],
    )
    def test_what_a_parser_refuses(self, changed: dict[str, Any], refused: bool) -> None:
        item = finding("ZC840", "a")
        vars(item).update(changed)
        assert lint_findings.refuses(item) is refused
        rows = lint_findings.check_arguments([item, item])
        told = Check("training arguments", "accepted by the parser", "refused: p", False)
        assert rows == ([told] if refused else [])


class TestKnownErrors:
    def test_any_number_where_the_example_has_its_own(self) -> None:
        general = known_errors._general(r"Check 48 != 2 \* 0.5 of \d{3} v4, x")
        for text in ("Check 48 != 2 * 0.5 of 123 v4, x", "Check -7 != +1.5e-3 * 9 of 123 v4, x"):
            assert re.fullmatch(general, text), text
        for text in (
            "Check 48 != 2 * 0.5 of 12 v4, x",
            "Check 48 != 2 * 0.5 of 123 v5, x",
            "Check x != 2 * 1 of 123 v4, x",
        ):
            assert not re.fullmatch(general, text), text

    @pytest.mark.parametrize(
        ("words", "weight"),
        [
            ("Check 48", 5),
            ("KeyError: 'abc'", 3),
            (r"\bstage\d+\b", 5),
            ("'<=' not supported between instances of 'float' and 'str'", 0),
            ("ab.s.c", 4),
            ("", 0),
        ],
    )
    def test_letters_that_are_the_librarys_own(self, words: str, weight: int) -> None:
        assert known_errors._weight(words) == weight

    def test_alternatives(self) -> None:
        assert known_errors._alternatives("a|b") == ["a", "b"] and known_errors._alternatives("(a|b)") == ["(a|b)"]

    def test_the_most_exact_of_several_rules(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def pattern(code: str, words: str, weight: int) -> Any:
            return SimpleNamespace(rule=SimpleNamespace(code=code), expression=re.compile(words), weight=weight)

        every = (pattern("ZC3", "stage", 12), pattern("ZC2", "stage", 12), pattern("ZC1", "st", 11),
                 pattern("ZC4", "wrong stage", 13), pattern("ZC0", "other", 99))  # fmt: skip
        monkeypatch.setattr(known_errors, "patterns", lambda: every)

        def named(error: str) -> str | None:
            rule = known_errors.rule_of(error)
            return None if rule is None else rule.code

        assert named("a stage") == "ZC2" and named("a wrong stage") == "ZC4" and named("a st") is None
        assert known_errors.explains(every[0].rule, "a stage") and not known_errors.explains(every[4].rule, "a stage")
        assert known_errors.explains(every[2].rule, "a st"), "a finding in the files is enough beside few words"

    @pytest.mark.parametrize(
        ("error", "name"),
        [
            ("the out-of-memory killer ended it", "host-out-of-memory"),
            ("out of host memory", "host-out-of-memory"),
            ("torch.OutOfMemoryError", "card-out-of-memory"),
            ("[Errno 98] Address already in use", "port-in-use"),
            ("address already in use", "port-in-use"),
            ("NCCL call timed out", "ranks-do-not-meet"),
            ("ncclSystemError: x", "ranks-do-not-meet"),
            ("ncclRemoteError: x", "ranks-do-not-meet"),
            ("Timed out initializing process group", "ranks-do-not-meet"),
            ("Timed out waiting for clients", "ranks-do-not-meet"),
            ("[Errno 122] Disk quota exceeded", "no-space"),
            ("Permission denied\n  at torch_extensions", "operator-cache"),
            ("Read-only file system ... file_baton.py", "operator-cache"),
            ("Permission denied: '/data'", None),
            ("CUDA_HOME does not exist", "no-compiler"),
            ("No module named 'ninja'", "no-compiler"),
            ("Unable to JIT load the cpu_adam op due to it not being compatible", "no-compiler"),
            ("Unable to JIT load the async_io op due to it not being compatible", "no-libaio"),
            ("no kernel image is available for execution on the device", "card-too-old-or-new"),
            ("ValueError: x", None),
        ],
    )
    def test_circumstances(self, error: str, name: str | None) -> None:
        found = known_errors.circumstance_of(error)
        assert (None if found is None else found.name) == name

    def test_an_outcome_of_a_kind(self) -> None:
        named = {kind: known_errors.circumstance_of("x", kind) for kind in ("port", "space", "memory")}
        assert {kind: item and item.name for kind, item in named.items()} == {
            "port": "port-in-use", "space": "no-space", "memory": None,
        }  # fmt: skip
        full = known_errors.circumstance_of("CUDA out of memory. Tried to allocate", "port")
        assert full is not None and full.name == "card-out-of-memory", "the first of them"


def held(**changes: Any) -> dict[str, Any]:
    return {"parameters": 1000, "trainable": 1000, "tensors": 2, "groups": 1, "experts": False, "shard": 628} | changes


def rows(run: Any, less: Reduced, *reports: Any) -> dict[str, Check]:
    return {item.name: item for item in settings.check(run, less, list(reports))}


class TestSettings:
    NAME = "parameters of a rank"

    def fsdp(self, shard: int, **plan: Any) -> dict[str, Check]:
        run, less = by_settings.make()
        less.nodes = plan.pop("nodes", 1)
        less.plan.update({"engine": "fsdp"} | plan)
        return rows(run, less, *[by_settings.report(engine="fsdp", held=held(shard=shard))] * 2)

    def test_shards_of_fsdp(self) -> None:
        """Half of 1,000 elements, and 64 for each of two tensors."""
        assert self.fsdp(628)[self.NAME] == Check(self.NAME, "1/2", "628 of 1,000", True)
        assert self.fsdp(629)[self.NAME] == Check(self.NAME, "1/2", "629 of 1,000", False)
        assert self.NAME in self.fsdp(628, **{"fsdp_config.fsdp_sharding_strategy": "FULL_SHARD"})
        for other in (
            {"fsdp_config.fsdp_sharding_strategy": "NO_SHARD"},
            {"parallelism_config.tp_size": 2},
            {"nodes": 2},
        ):
            assert self.NAME not in self.fsdp(628, **other), other

    def test_what_not_every_rank_tells(self) -> None:
        run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
        both = by_settings.report(held=held()), by_settings.report()
        assert self.NAME not in rows(run, less, *both) and self.NAME in rows(run, less, both[0], both[0])
        mixed = by_settings.report(engine="fsdp", held=held())
        assert self.NAME in rows(run, less, both[0], mixed), "of a stage, where not all are FSDP's"
        without, less = by_settings.make({}, {})
        assert self.NAME not in rows(without, less, both[0], both[0])

    def test_elements_of_a_rank_without_shards(self) -> None:
        run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
        whole = held()
        del whole["shard"]
        found = rows(run, less, *[by_settings.report(held=whole)] * 2)[self.NAME]
        assert (found.seen, found.ok) == ("1,000 of 1,000", False)

    @pytest.mark.parametrize(("seen", "ok"), [("B, A", True), ("A,B,Embedding", True), ("A", False), ("AB", False)])
    def test_classes_that_are_wrapped(self, seen: str, ok: bool) -> None:
        """accelerate wraps what is left over, too."""
        run, less = by_settings.make({WRAPPED: "A, B"})
        found = rows(run, less, *[by_settings.report({WRAPPED: seen})] * 2)[WRAPPED]
        assert found == Check(WRAPPED, "A,B", seen, ok, "acting")

    def test_the_trainer_that_trains(self) -> None:
        run, less = by_settings.make()
        assert "trainer" not in rows(run, less, by_settings.report())
        less.trainer = "DPOTrainer"
        found = rows(run, less, by_settings.report(trainer="Trainer"))["trainer"]
        assert found == Check("trainer", "DPOTrainer", "Trainer", False)

    def test_what_a_broken_instrument_did_not_read(self) -> None:
        run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
        lost = by_settings.report(stage=None) | {"instruments": {"read-back of the stage": "KeyError: x"}}
        fine = by_settings.report() | {"instruments": {"read-back of the stage": "", "loss": "OSError"}}
        found = rows(run, less, fine, lost)["ZeRO stage"]
        assert found == instruments.unmeasured("ZeRO stage", "KeyError: x (rank 1)", "3")
        other = by_settings.report(stage=None) | {"instruments": {"loss": "OSError: read-back"}}
        assert rows(run, less, fine, other)["ZeRO stage"].ok is False
        mixed = by_settings.report(stage=None), fine | {"instruments": {"read-back of the stage": "KeyError: x"}}
        assert rows(run, less, *mixed)["ZeRO stage"].ok is False, "the rank that lacks it broke nothing"


class TestExpected:
    def test_a_section_that_is_off_has_no_settings(self) -> None:
        lock = {"fp16.enabled": False, "fp16.loss_scale": 0, "bf16.enabled": True, "bf16.x": 1, "fp16_opt": 3}
        found = expected(*by_settings.make(lock, {}))
        assert {name for name in found if "16" in name} == {"fp16.enabled", "bf16.enabled", "bf16.x", "fp16_opt"}

    def test_what_the_launcher_has_and_what_makes_the_class(self) -> None:
        lock = {"optimizer.params.torch_adam": True, "optimizer.params.adam_w_mode": True, "optimizer.params.lr": 1,
                "mixed_precision": "bf16", "num_machines": 1}  # fmt: skip
        found = expected(*by_settings.make(lock, {}))
        assert found["optimizer.params.lr"] == 1
        assert not {"optimizer.params.torch_adam", "optimizer.params.adam_w_mode"} & set(found)
        assert not {"engine", "num_processes", "num_machines", "mixed_precision"} & set(found)

    def test_classes_that_are_wrapped_in_one_order(self) -> None:
        assert expected(*by_settings.make({WRAPPED: "B, A"}))[WRAPPED] == "A,B"
        assert WRAPPED not in expected(*by_settings.make({WRAPPED: None})), "accelerate asks the model"

    @pytest.mark.parametrize(
        ("trainer", "arguments", "found"),
        [
            (
                "GRPOTrainer",
                {"scale_rewards": True, "beta": 0.0},
                {"scale_rewards": "group", "reference model": "none"},
            ),
            (
                "GRPOTrainer",
                {"scale_rewards": False, "beta": 0.1},
                {"scale_rewards": "none", "reference model": "loaded"},
            ),
            ("GRPOTrainer", {"scale_rewards": "batch"}, {"scale_rewards": "batch", "reference model": "none"}),
            ("GRPOTrainer", {"loss_type": "bnpo"}, {"loss_type": "bnpo", "reference model": "none"}),
            ("DPOTrainer", {"loss_type": "ipo"}, {"loss_type": ["ipo"], "reference model": "loaded"}),
            ("DPOTrainer", {"loss_type": ["ipo"], "beta": None}, {"loss_type": ["ipo"], "reference model": "loaded"}),
        ],
    )
    def test_arguments_of_trls_trainers(self, trainer: str, arguments: dict[str, Any], found: dict[str, Any]) -> None:
        """As TRL 1.16 keeps them: GRPOConfig makes words of truth values, DPOConfig a list of a loss."""
        run, less = by_settings.make(arguments=arguments)
        less.trainer, less.own = trainer, tuple(arguments)
        names = ("scale_rewards", "loss_type", "beta", "reference model")
        planned = {name: value for name, value in expected(run, less).items() if name in names}
        assert planned == found | {name: arguments[name] for name in ("beta",) if arguments.get(name) is not None}
        less.trainer = None
        assert "reference model" not in expected(run, less)

    @pytest.mark.parametrize(("engine", "there"), [("ddp", True), ("fsdp", False)])
    def test_arguments_of_ddp(self, engine: str, there: bool) -> None:
        arguments = {"ddp_bucket_cap_mb": 3, "ddp_static_graph": None, "gradient_checkpointing": False}
        run, less = by_settings.make(arguments=arguments)
        less.plan["engine"] = engine
        found = expected(run, less)
        assert ("ddp_bucket_cap_mb" in found) is there and "ddp_static_graph" not in found
        assert found["gradient_checkpointing"] is False
        loop, less = by_settings.make(arguments=arguments, consumer="accelerate")
        assert "gradient_checkpointing" not in expected(loop, less)

    @pytest.mark.parametrize(
        ("rate", "given", "found"),
        [
            (1e-4, {"min_lr": 1e-5}, {"min_lr_rate": 0.1}),
            (1e-4, {"min_lr": 1e-5, "num_cycles": 2}, {"num_cycles": 2, "min_lr_rate": 0.1}),
            (None, {"min_lr": 1e-5, "num_cycles": 2}, {"num_cycles": 2}),
            (0, {"min_lr": 1e-5}, {}),
            (1e-4, {"min_lr": "1e-5"}, {}),
            (1e-4, '{"num_cycles": 3}', {"num_cycles": 3}),
            (1e-4, None, {}),
        ],
    )
    def test_parameters_of_a_schedule(self, rate: Any, given: Any, found: dict[str, Any]) -> None:
        arguments = {"learning_rate": rate, "lr_scheduler_kwargs": given, "lr_scheduler_type": "cosine_with_min_lr"}
        planned = expected(*by_settings.make(arguments=arguments))
        begin = "lr_scheduler_kwargs."
        own = {name.removeprefix(begin): value for name, value in planned.items() if name.startswith(begin)}
        assert own == pytest.approx(found) and planned["lr_scheduler_type"] == "cosine_with_min_lr"

    @pytest.mark.parametrize(
        ("device", "force", "optim", "kind"),
        [
            ("nvme", None, None, "DeepSpeedCPUAdam"),
            ("cpu", True, "adamw_torch_fused", "DeepSpeedCPUAdam"),
            ("cpu", False, None, "AdamW"),
            ("cpu", None, "sgd", "SGD"),
            ("cpu", None, "adagrad", "Adagrad"),
            ("none", None, "rmsprop", "RMSprop"),
            ("none", True, None, "AdamW"),
        ],
    )
    def test_the_optimizer_that_the_trainer_makes(
        self, device: str, force: bool | None, optim: str | None, kind: str
    ) -> None:
        lock = {f"{ZERO}offload_optimizer.device": device} | (
            {} if force is None else {"zero_force_ds_cpu_optimizer": force}
        )
        run, less = by_settings.make(lock, {}, arguments={} if optim is None else {"optim": optim})
        assert optimizer_class(expected(run, less), run, less) == kind
        nvme = {"optimizer": {"type": "AdamW"}}
        run, less = by_settings.make({f"{ZERO}offload_optimizer.device": device}, nvme)
        assert optimizer_class(expected(run, less), run, less) == (
            "FusedAdam" if device == "none" else "DeepSpeedCPUAdam"
        )


class TestVerdict:
    def test_a_command_is_not_predicted_and_has_no_tokens(
        self, make_run: MakeRun, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        run, asked = read(make_run(3)), []

        def expect(*words: Any) -> str:
            asked.append(words)
            return "as it is"

        monkeypatch.setattr("zerocfg.smoke.judge.prediction.expect", expect)
        monkeypatch.setattr("zerocfg.smoke.judge.verdict.figures", lambda *words: Figures(2, tokens=7, loss=words[-1]))
        less = reduced()
        own = Verdict(run, CPU, less, Outcome([]))
        assert own.expected == "as it is" and asked == [(less, CPU, "transformers")]
        loss: Any = own.figures.loss
        assert (own.figures.tokens, loss) == (7, "as it is")
        other = Verdict(run, CPU, less, Outcome([]), command=Command("go"))
        assert other.expected == "the training of a command is not predicted" and len(asked) == 1
        assert other.figures.tokens is None and other.figures.ranks == 2

    def test_ranks_that_had_an_engine(self) -> None:
        run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
        whole: Any = by_training.report(seen=by_settings.report()["seen"], trained=True)
        early: Any = {name: item for name, item in whole.items() if name != "rates"}
        assert run_checks(run, less, Outcome([whole, early]), 3), "a world size is enough"
        del early["seen"]
        assert run_checks(run, less, Outcome([early]), 3) == [] and run_checks(run, less, Outcome([]), 3) == []
        names = [item.name for item in run_checks(run, less, Outcome([whole]), 3)]
        assert "saved parameters" in names
        less.changes.append(Reduction(Kind.SAVING))
        assert "saved parameters" not in [item.name for item in run_checks(run, less, Outcome([whole]), 3)]
        broken: Any = whole | {"instruments": {"memory": "OSError"}}
        assert run_checks(run, less, Outcome([broken]), 3)[-1] == instruments.unmeasured("memory", "OSError")

    def test_weights_that_should_be_there(self) -> None:
        def found(*trained: bool, saves: bool = True) -> list[Check]:
            reports: list[Any] = [{"trained": item, "instruments": {"saved weights": "OSError"}} for item in trained]
            return weights.check(reports, saves)

        assert found(True, True) == [instruments.unmeasured("saved parameters", "OSError (rank 0)")]
        assert found(True, False) == [] == found(True, saves=False)

    def test_instruments_that_worked_everywhere(self) -> None:
        reports: list[Any] = [{"instruments": {"a": "", "b": ""}}, {"instruments": {"b": "x", "c": ""}}, {}]
        assert instruments.working(reports) == ["a", "c"]
        assert instruments.why(reports, "c", "b") == "x (rank 1)" and instruments.why(reports, "a") == (
            "no rank reports it"
        )
        assert instruments.check(reports) == [Check("b", "-", "not measured: x (rank 1)", None, measured=False)]


class TestSampling:
    """GRPO samples what it trains on: what is apart proves nothing, and what agrees still counts."""

    def found(self, **changes: Any) -> dict[str, Check]:
        item: Any = by_training.report(seen={"dtype": "bf16", "trainer": "GRPOTrainer"}, **changes)
        return {row.name: row for row in training.check([item], 3)}

    def test_its_loss_need_not_fall(self) -> None:
        words = "4 to 3.7; its samples are other ones in each step"
        assert self.found()["loss falls"] == Check("loss falls", "-", words, None)

    def test_what_is_apart(self) -> None:
        other = by_training.part("reference", losses=[8.0] * 6)
        words = "not comparable: 54 % apart at most: 4 3.8 3.7, ZeRO-0 8; each sampled its own completions"
        assert self.found(parts=other)["loss as under ZeRO-0"] == Check("loss as under ZeRO-0", "-", words, None)
        assert "gradients as under ZeRO-0" not in self.found(parts=other)
        other = by_training.part("resume", losses=[3.8, 3.8, 3.7, 9.0], **{"from": 2})
        words = "from step 2; other completions are sampled then: loss 3.8 3.7 9, without the break 3.8 3.7"
        name = "resumes from a checkpoint"
        assert self.found(parts=other)[name] == Check(name, "-", words, None)

    def test_what_agrees(self) -> None:
        found = self.found()
        for name in ("loss as under ZeRO-0", "gradients as under ZeRO-0", "resumes from a checkpoint"):
            assert found[name].ok is True

    def test_in_a_narrow_copy(self) -> None:
        """Then it is the copy's own training that is compared with."""
        parts = by_training.part("reference", losses=[2.0] * 6, momentum=0.5)
        parts[NARROW] = {"losses": [2.0] * 6, "momentum": 0.5, "rates": [1e-3, 6e-4, 3e-4], "parameters": 12345}
        parts["resume"] |= {"losses": [2.0] * 4, "momentum": 0.5}
        item: Any = by_training.report(parts=parts)
        found = {row.name: row for row in training.check([item], 3)}
        end = ", in a narrow copy of 12,345 parameters"
        assert found["loss as under ZeRO-0"].seen == f"0 % apart at most{end}"
        assert found["resumes from a checkpoint"] == Check(
            "resumes from a checkpoint", "loss 2", f"from step 1: loss 2, same parameters{end}", True
        )


class TestCommand:
    def test_a_run_of_a_command(self, make_run: MakeRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        run, asked = read(make_run(3)), []
        told = {"loop": "Trainer", "stopped": True, "world_size": 2}
        reports: list[Any] = [{"step_seconds": [1.0], "command": told}] * 2
        outcome = Outcome(reports, seconds=3.0)

        def launch(*words: Any) -> Any:
            asked.append(words)
            return SimpleNamespace(outcome=outcome, unwatched=None, configs=[Path("ds.json")])

        monkeypatch.setattr(command, "launch", launch)
        (tmp_path / "reports").mkdir()
        (tmp_path / "log.txt").write_text("last words\n")
        said: Any = print
        found = command.run_command("go", run, CPU, 5, 3, 70.0, tmp_path, said)
        assert asked == [("go", run, CPU, 5, 70.0, tmp_path, said)]
        assert found.command == Command("go", "Trainer", [
            "training: the Trainer, stopped by zerocfg after 1 optimizer step",
            "use_cpu: true was added to its TrainingArguments; else each rank would train alone",
        ])  # fmt: skip
        assert found.checks == [Check("ds.json of the run", "read", "not read by the command", False)]
        assert [(item.kind, item.why) for item in found.reduced.changes] == [
            (Kind.WORLD_SIZE, ""), (Kind.SAVING, "the script saved no model after its training"),
        ]  # fmt: skip
        assert found.outcome is outcome and found.reduced.ranks == 3
        outcome.failure = "exit code 3"
        failed = command.run_command("go", run, CPU, 5, None, 70.0, tmp_path)
        assert failed.checks == [] and failed.command.notes == [] and failed.reduced.changes == []
        assert failed.outcome.detail == ["last words"]

    def test_checks_of_a_training_that_ends_by_itself(self) -> None:
        """Of a plan all of its steps are asked for, unless the script's own training was shorter."""
        run, less = by_settings.make({f"{ZERO}stage": 3}, {"zero_optimization": {"stage": 3}})
        risen = [4.0, 4.0, 4.2, 4.2]

        def found(*steps: int, stopped: bool = False) -> dict[str, Check]:
            reports: list[Any] = [
                by_training.report(
                    seen=by_settings.report()["seen"], losses=risen, parts={}, step_seconds=[0.1] * count,
                    command={"stopped": stopped},
                )
                for count in steps
            ]  # fmt: skip
            return {item.name: item for item in command._checks(run, less, Outcome(reports), 3)}

        name = "optimizer steps, loss finite"
        assert (found(2, 2)[name].planned, found(2, 2)[name].ok) == ("2", True)
        assert (found(4, 4)[name].planned, found(3, 2)[name].planned) == ("3", "2")
        assert found(2, 2, stopped=True)[name].ok is False and found(0, 0)[name].planned == "3"
        falls = found(2, 2)["loss falls"]
        assert (falls.seen, falls.ok) == ("4 to 4.2: it does not fall", None), "the script's batches differ"
        assert found(2, 2)["ZeRO stage"] == Check("ZeRO stage", "3", "3", True)
        assert command._checks(run, less, Outcome([{"seen": {}}]), 3) == []
        assert command._checks(run, less, Outcome([]), 3) == []

    @pytest.mark.parametrize(
        ("values", "found"),
        [
            ({}, UNKNOWN),
            ({"mixed_precision": "no"}, "fp32"),
            ({"mixed_precision": "fp16"}, "fp16"),
            ({"bf16.enabled": True, "mixed_precision": "no"}, "bf16"),
            ({"bf16.enabled": True, "fp16.enabled": True}, "bf16"),
            ({"fp16.enabled": True}, "fp16"),
            ({"fp16.enabled": "auto"}, UNKNOWN),
        ],
    )
    def test_the_precision_of_a_line(self, values: dict[str, Any], found: object) -> None:
        effective = SimpleNamespace(value=lambda name, otherwise=None: values.get(name, otherwise))
        line: Any = SimpleNamespace(effective=effective)
        assert command._value("precision", line) is found
        assert command._value("precision", None) is UNKNOWN

    def test_rows_by_the_values_of_a_line(self) -> None:
        values = {"num_processes": 2, f"{ZERO}stage": 3, "engine": "deepspeed", "other": 1}
        line: Any = SimpleNamespace(
            effective=SimpleNamespace(value=lambda name, otherwise=None: values.get(name, otherwise))
        )

        def row(name: str, seen: str) -> Check:
            return command._of_line(Check(name, "x", seen, False), line)

        assert row("world size", "2") == Check("world size", "2", "2", True)
        assert row("ZeRO stage", "2") == Check("ZeRO stage", "3", "2", None)
        assert row("ZeRO stage", "-") == Check("ZeRO stage", "3", "-", None)
        assert row("other", "1") == Check("other", "1", "1", True)
        assert row("unknown", "1") == Check("unknown", "-", "1", None)
        assert row("unknown", "-") == Check("unknown", "-", "-", None)

    def test_of_long_lists_eight_are_shown(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "reports").mkdir()
        names = [f"f{at}" for at in range(10)]
        for name in names:
            (tmp_path / name).write_text("")
        here = [str(tmp_path / name) for name in names]
        told = {"loop": "torch", "redirected": here, "wrote": here, "removed": [f"{item}x" for item in here]}
        first: Any = {"step_seconds": [1.0, 1.0], "command": {"loop": "torch"}}
        second: Any = {"command": told}
        notes = command._notes([first, second], 3, tmp_path / "written", CPU)
        assert notes == [
            "training: a loop of torch alone, ended by itself after 2 optimizer steps",
            *(f"redirected: f{at}, to a temporary folder" for at in range(8)),
            *(f"written by the script itself: f{at}" for at in range(8)),
            *(f"removed by the script itself: f{at}x" for at in range(8)),
        ]
