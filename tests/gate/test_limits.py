"""Thresholds of the gate from both sides, and its words, on values made by hand."""

from __future__ import annotations

import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.gate import builds, certificates
from zerocfg.gate.model import GateError, Reason
from zerocfg.gate.outputs import find
from zerocfg.gate.policy import LIBRARIES, Policy, read_policy
from zerocfg.models.hardware import Accelerator

NOW = datetime.datetime(2026, 5, 20, 12, tzinfo=datetime.timezone.utc)
DAY, SECOND = datetime.timedelta(days=1), datetime.timedelta(seconds=1)


class TestAge:
    def kinds(self, age: datetime.timedelta, most: float | None) -> list[tuple[str, str, str]]:
        found: Any = SimpleNamespace(date=NOW - age)
        return certificates._age(found, Policy(Path(), max_age_days=most), NOW)

    def test_a_day_in_the_future_is_a_clock_that_differs(self) -> None:
        assert self.kinds(-DAY, None) == []
        ((kind, message, help),) = self.kinds(-DAY - SECOND, None)
        assert (kind, help) == ("certificate-date", "")
        assert message == "its date, 2026-05-21, is in the future"

    def test_it_expires_after_its_days(self) -> None:
        assert self.kinds(90 * DAY, 90) == self.kinds(9000 * DAY, None) == []
        ((kind, message, _),) = self.kinds(90 * DAY + SECOND, 90)
        assert kind == "certificate-expired"
        assert message == "tested on 2026-02-19, 90 days ago; max-age-days allows 90"
        assert self.kinds(DAY / 2, 0.5) == [] and self.kinds(DAY / 2 + SECOND, 0.5)


class TestHardware:
    A100 = Accelerator(name="A100-SXM-80GB", vendor="nvidia", memory_gib=80, architecture="8.0")
    UNLISTED = Accelerator(name="B999", vendor="nvidia", memory_gib=80, architecture="8.0")

    @pytest.mark.parametrize(
        ("planned", "kind", "name", "levels"),
        [
            (A100, "cuda", "NVIDIA A100-SXM4-80GB", ("accelerator", "architecture", "vendor")),
            (A100, "cuda", "NVIDIA A100 80GB PCIe", ("architecture", "vendor")),
            (A100, "cuda", "NVIDIA H100 80GB HBM3", ("vendor",)),
            (A100, "cuda", "AMD Instinct MI300X", ()),
            (A100, "cuda", "NVIDIA B999", ("vendor",)),
            (A100, "cuda", "something", ()),
            (A100, "cpu", "cpu", ()),
            (UNLISTED, "cuda", "B999", ("accelerator", "architecture", "vendor")),
            (UNLISTED, "cuda", "NVIDIA A100-SXM4-80GB", ("architecture", "vendor")),
            (Accelerator(name="cpu", vendor="cpu"), "cpu", "cpu", ("accelerator", "architecture", "vendor")),
            (Accelerator(name="cpu", vendor="cpu"), "cuda", "NVIDIA A100-SXM4-80GB", ()),
        ],
    )
    def test_levels(self, planned: Accelerator, kind: str, name: str, levels: tuple[str, ...]) -> None:
        found: Any = SimpleNamespace(device_kind=kind, device_name=name)
        alike = [one for one in ("accelerator", "architecture", "vendor") if certificates.alike(planned, found, one)]
        assert tuple(alike) == levels


class TestReductions:
    def test_only_kinds_that_are_allowed(self) -> None:
        ones = [SimpleNamespace(kind=kind, words=f"{kind}: " + "w" * 200) for kind in ("model", "sequence")]
        result: Any = SimpleNamespace(reductions=ones)
        assert certificates._reduced(result, Policy(Path())) == []
        ((kind, message, help),) = certificates._reduced(result, Policy(Path(), allow_reduced=("sequence",)))
        assert kind == "certificate-reduced" and help.endswith("or add that kind")
        assert message == (f"the smoke-run was smaller than planned: model: {'w' * 153}; allow-reduced has no 'model'")
        assert len(certificates._reduced(result, Policy(Path(), allow_reduced=()))) == 2


class TestVoid:
    def result(self, **changed: Any) -> Any:
        base: dict[str, Any] = {
            "run": "a",
            "state": "failed",
            "unmeasured": (),
            "failed": (),
            "failure": None,
            "not_measured": {},
        }
        return SimpleNamespace(**base | changed)

    def test_of_another_run(self) -> None:
        kind, message = certificates._void(self.result(run="b" * 70), "a")
        assert kind == "certificate-of-another-run" and message == f"it covers run '{'b' * 60}', not 'a'"

    def test_not_measured(self) -> None:
        unmeasured = self.result(state="incomplete", unmeasured=("engine", "x"), not_measured={"engine": "y" * 200})
        kind, message = certificates._void(unmeasured, "a")
        assert kind == "certificate-unmeasured"
        assert message == f"the smoke-run of a did not measure engine, x (engine: {'y' * 152})"
        assert certificates._void(self.result(state="incomplete", unmeasured=("x",)), "a")[1].endswith("measure x")
        for failed in ({"state": "failed"}, {"failed": ("z",)}, {"failure": SimpleNamespace(message="m")}):
            changed = {"state": "incomplete", "unmeasured": ("x",)} | failed
            assert certificates._void(self.result(**changed), "a")[0] == "certificate-failed", failed

    def test_failed(self) -> None:
        def said(**changed: Any) -> str:
            return certificates._void(self.result(**changed), "a")[1]

        assert said() == "the smoke-run of a failed: no reason is given"
        assert said(failed=("p", "q", "r", "s")) == "the smoke-run of a failed: p, q, r"
        ended = SimpleNamespace(message="line\n  two " + "w" * 300)
        assert said(failure=ended, failed=("p",)) == f"the smoke-run of a failed: line two {'w' * 191}"


class TestSettings:
    def read(self, folder: Path, table: Any, text: str = "") -> Policy:
        source = folder / "pyproject.toml"
        source.write_text(text or "[tool.zerocfg.gate]\n")
        return read_policy(table, source)

    def test_defaults(self, tmp_path: Path) -> None:
        assert self.read(tmp_path, {}) == Policy(tmp_path)
        assert read_policy({"require": "none"}, None) == read_policy(None, tmp_path / "x") == Policy(Path())
        policy = Policy(tmp_path)
        assert (policy.require, policy.base, policy.hardware, policy.code) == (
            "all",
            "origin/main",
            "architecture",
            "same",
        )
        assert policy.versions == LIBRARIES == ("deepspeed", "accelerate", "transformers", "trl", "torch")
        assert (policy.allow_reduced, policy.max_age_days, policy.fail_on, policy.signers) == (None,) * 4

    @pytest.mark.parametrize(
        ("key", "good", "bad", "says"),
        [
            ("max-age-days", [0.01, 99_999], [0, -1, 100_000, True, "9", float("nan")], "a number of days above 0"),
            ("require", ["all", "changed", "none"], ["some"], "require must be all, changed or none, not 'some'"),
            ("fail-on", ["error", "warning", "note"], ["never"], "fail-on must be error, warning or note"),
            ("hardware", ["any", "vendor"], ["card"], "accelerator, architecture, vendor or any, not 'card'"),
            ("code", ["same", "any"], ["none"], "code must be same or any, not 'none'"),
            ("base", ["main", "a/b"], ["", "-x", 7], "base must name a branch or commit"),
            ("versions", [[], ["torch"]], [["numpy"]], "'numpy' is none of deepspeed, accelerate"),
            ("versions", [["trl"]], ["torch", [1]], "versions must be a list of texts"),
            ("allow-reduced", [[], ["model"]], ["model"], "allow-reduced must be a list of texts"),
            ("outputs", [{}], [[], "x"], "outputs must be a table of specs to folders"),
            ("signers", [], [7, "a\0b"], "signers must name a file"),
            ("policies", [[]], [["gone.json"]], "policies: there is no file 'gone.json'"),
        ],
    )
    def test_values(self, tmp_path: Path, key: str, good: list[Any], bad: list[Any], says: str) -> None:
        for value in good:
            policy = self.read(tmp_path, {key: value})
            expected = tuple(value) if isinstance(value, (list, dict)) else value
            assert getattr(policy, key.replace("-", "_")) == expected
        for value in bad:
            with pytest.raises(GateError) as caught:
                self.read(tmp_path, {key: value}, f"[tool.zerocfg.gate]\n\n{key} = 1\n")
            assert says in str(caught.value), value
            assert "pyproject.toml:3: " in str(caught.value), value

    def test_outputs_name_specs_and_folders(self, tmp_path: Path) -> None:
        (tmp_path / "a").mkdir()
        for name in ("zerocfg.yaml", "a/zerocfg.yaml"):
            (tmp_path / name).write_text("")
        policy = self.read(tmp_path, {"outputs": {"zerocfg.yaml": "built", "a": ["x", "y"]}})
        assert policy.outputs == (
            (tmp_path / "zerocfg.yaml", (tmp_path / "built",)),
            (tmp_path / "a" / "zerocfg.yaml", (tmp_path / "x", tmp_path / "y")),
        )
        for spec, folders, says in (
            ("gone.yaml", "built", "there is no spec 'gone.yaml'"),
            ("zerocfg.yaml", [], "must name a folder or a list of folders"),
            ("zerocfg.yaml", 7, "must name a folder or a list of folders"),
            ("zerocfg.yaml", ["a\0"], "must name a folder or a list of folders"),
        ):
            with pytest.raises(GateError, match=says):
                self.read(tmp_path, {"outputs": {spec: folders}})

    def test_the_line_is_one_of_the_table_s_own(self, tmp_path: Path) -> None:
        text = "[tool.other]\ncode = 1\n\n[ tool.zerocfg.gate ]\nhardware = 'any'\n'code' = 'x'\n"
        with pytest.raises(GateError, match=r"pyproject\.toml:6: code must be"):
            self.read(tmp_path, {"code": "x"}, text)
        inline = "[tool.zerocfg]\ngate = { require = 'all', code = 'x' }\n"
        with pytest.raises(GateError, match=r"pyproject\.toml:2: code must be"):
            self.read(tmp_path, {"code": "x"}, inline)
        with pytest.raises(GateError, match=r"pyproject\.toml: code must be"):
            self.read(tmp_path, {"code": "x"}, "x = 1\n")

    def test_a_setting_that_does_not_exist(self, tmp_path: Path) -> None:
        with pytest.raises(GateError, match=r"has no setting 'requires'; did you mean require\?"):
            self.read(tmp_path, {"requires": "all"})
        with pytest.raises(GateError, match="has no setting 'zzzzzz'; there are allow-reduced, base, code, fail-on"):
            self.read(tmp_path, {"zzzzzz": 1})
        with pytest.raises(GateError, match=r"\[tool.zerocfg.gate\] must be a table"):
            self.read(tmp_path, 7)


class TestWords:
    def test_three_of_many(self) -> None:
        assert builds._some(["a", "b\n  c", "d"], "; ") == "a; b c; d"
        assert builds._some(["a", "b", "c", "d"], "; ") == "a; b; c; and 1 more"
        assert builds._some(["a", "b", "c", "d", "e"], ", ") == "a, b, c, and 2 more"

    def test_a_sentence_as_the_end_of_another(self) -> None:
        assert builds._lower("Install it. Or not.") == "install it. Or not"
        assert builds._lower("") == ""


class TestOutputs:
    """Specs and locks below a folder; what hidden folders and environments hold is not looked at."""

    def test_specs_without_a_lock(self, tmp_path: Path) -> None:
        for name in (
            "zerocfg.yaml",
            "a/zerocfg.yaml",
            ".git/zerocfg.yaml",
            "node_modules/zerocfg.yaml",
            "build/zerocfg.yaml",
        ):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("version: 1\n")
        found, reasons = find(tmp_path, Policy(tmp_path), lambda path: path.parent.name == "a")
        assert found == {tmp_path / "zerocfg.yaml": [], tmp_path / "build/zerocfg.yaml": []} and reasons == []

    def test_named_ones_below_the_folder_alone(self, tmp_path: Path) -> None:
        inner = tmp_path / "inner"
        inner.mkdir()
        for folder in (tmp_path, inner):
            (folder / "zerocfg.yaml").write_text("version: 1\n")
        policy = Policy(
            tmp_path,
            outputs=(
                (tmp_path / "zerocfg.yaml", (tmp_path / "x",)),
                (inner / "zerocfg.yaml", (tmp_path / "y", tmp_path / "z")),
            ),
        )
        assert find(inner, policy, lambda _: False)[0] == {inner / "zerocfg.yaml": [tmp_path / "y", tmp_path / "z"]}
        assert set(find(tmp_path, policy, lambda _: False)[0]) == {tmp_path / "zerocfg.yaml", inner / "zerocfg.yaml"}

    def test_a_lock_that_cannot_be_read_is_a_reason(self, tmp_path: Path) -> None:
        lock = tmp_path / "built" / "sft" / "zerocfg.lock"
        lock.parent.mkdir(parents=True)
        lock.write_text("{")
        found, (reason,) = find(tmp_path, Policy(tmp_path), lambda _: False)
        assert found == {} and isinstance(reason, Reason)
        assert (reason.check, reason.kind, reason.help) == ("build", "lock-unreadable", "build the run again")
        assert find(tmp_path, Policy(tmp_path), lambda _: True) == ({}, [])
