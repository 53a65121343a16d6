"""Thresholds of the gate from both sides, and its words, on values made by hand."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.gate.conftest import Repository
from zerocfg.gate import builds, certificates, gate, policy_schemas
from zerocfg.gate.model import GateError, Reason
from zerocfg.gate.outputs import find
from zerocfg.gate.policy import LIBRARIES, Policy, read_policy
from zerocfg.models.hardware import Accelerator
from zerocfg.resolve.plan import Decision

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
            (A100, "cpu", "A100-SXM-80GB", ()),
            (Accelerator(name="cpu", vendor="cpu"), "cuda", "cpu", ()),
            (UNLISTED, "cuda", "B999", ("accelerator", "architecture", "vendor")),
            (UNLISTED, "cuda", "NVIDIA A100-SXM4-80GB", ("architecture", "vendor")),
            (Accelerator(name="cpu", vendor="cpu"), "cpu", "cpu", ("accelerator", "architecture", "vendor")),
            (Accelerator(name="cpu", vendor="cpu"), "cuda", "NVIDIA A100-SXM4-80GB", ()),
        ],
    )
    def test_levels(self, planned: Accelerator, kind: str, name: str, levels: tuple[str, ...]) -> None:
        found: Any = SimpleNamespace(device_kind=kind, device_name=name)
        alike = [item for item in ("accelerator", "architecture", "vendor") if certificates.alike(planned, found, item)]
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


class TestFiles:
    """One file of a build that differs, in words."""

    def reason(self, state: str, *details: str, sources: tuple[str, ...] = (), name: str = "launch.sh") -> Reason:
        found: Any = SimpleNamespace(name="sft", folder=Path("built/sft"), sources=list(sources))
        item: Any = SimpleNamespace(name=name, state=state, details=list(details))
        return builds._file(found, item, "zerocfg build x")

    @pytest.mark.parametrize(
        ("state", "sources", "kind", "message", "help"),
        [
            ("missing", (), "build-missing", "launch.sh is missing", "zerocfg build x"),
            ("missing", ("a",), "build-missing", "launch.sh is missing", "zerocfg build x"),
            (
                "edited",
                ("a",),
                "build-edited",
                "launch.sh was edited since it was built",
                "move the edit into the sources, or undo it with zerocfg build x --force",
            ),
            ("outdated", (), "build-outdated", "launch.sh is out of date", "zerocfg build x"),
            (
                "outdated",
                ("a", "b"),
                "build-outdated",
                "launch.sh is out of date: a, b changed since it was built",
                "zerocfg build x",
            ),
            ("stale", (), "build-outdated", "launch.sh is no longer emitted", "delete it"),
            ("unreadable", (), "build-edited", "launch.sh cannot be read", "zerocfg build x"),
        ],
    )
    def test_states(self, state: str, sources: tuple[str, ...], kind: str, message: str, help: str) -> None:
        found = self.reason(state, sources=sources)
        assert (found.check, found.kind, found.message, found.help) == ("build", kind, message, help)
        assert (found.file, found.run, found.line, found.column) == ("built/sft/launch.sh", "sft", 0, 0)

    def test_details_come_before_sources(self) -> None:
        found = self.reason("outdated", "one", "two", sources=("a",))
        assert found.message == "launch.sh is out of date: one; two"

    def test_the_place_of_a_value_by_the_kind_of_its_file(self, tmp_path: Path) -> None:
        (tmp_path / "a.json").write_text('{\n "x": {"y": 1}\n}\n')
        (tmp_path / "a.yaml").write_text("x:\n  y: 1\n")
        (tmp_path / "a.sh").write_text("x: 1\n")
        (tmp_path / "a.lock").write_text('{"recipe": {"y": 1},\n "settings": {\n  "x.y": 1}}\n')
        assert builds._place(tmp_path / "a.json", "x.y") == (2, 8)
        assert builds._place(tmp_path / "a.yaml", "x.y") == (2, 3)
        assert builds._place(tmp_path / "a.sh", "x") == (0, 0)
        assert builds._place(tmp_path / "a.lock", "x.y", in_lock=True) == (3, 3)
        assert builds._place(tmp_path / "a.lock", "y", in_lock=True) == (1, 13)
        assert builds._place(tmp_path / "a.lock", "z", in_lock=True) == (0, 0)
        assert builds._place(tmp_path / "a.lock", "x.y") == (0, 0)


class TestPolicies:
    def schema(self, tmp_path: Path, content: Any) -> policy_schemas.PolicySchema:
        path = tmp_path / "policy.json"
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return policy_schemas.read_schema(path)

    def said(self, tmp_path: Path, content: Any, instance: Any) -> list[tuple[str, str]]:
        errors = self.schema(tmp_path, content).validator.iter_errors(instance)
        return [item for error in errors for item in policy_schemas._said(error)]

    @pytest.mark.parametrize(
        ("rule", "value", "words"),
        [
            ({"const": True}, False, "is false; only true is allowed"),
            ({"enum": [2, "x"]}, 3, 'is 3; allowed are 2, "x"'),
            ({"maximum": 4}, 4.5, "is 4.5; at most 4 is allowed"),
            ({"minimum": 4}, 3, "is 3; at least 4 is required"),
            ({"type": "string"}, 3, "is 3; its type must be string"),
            ({"type": ["string", "null"]}, 3, "is 3; its type must be string or null"),
            ({"multipleOf": 2}, 3, "is 3; 3 is not a multiple of 2"),
        ],
    )
    def test_a_value(self, tmp_path: Path, rule: Any, value: Any, words: str) -> None:
        assert self.said(tmp_path, {"properties": {"a": rule}}, {"a": value}) == [("a", words)]
        assert self.said(tmp_path, {"properties": {"a": rule}}, {}) == []

    def test_names(self, tmp_path: Path) -> None:
        required = {"properties": {"s": {"required": ["x", "y"]}}, "required": ["z"]}
        assert set(self.said(tmp_path, required, {"s": {"x": 1}})) == {
            ("s.y", "is required and not set"),
            ("z", "is required and not set"),
        }
        unwanted = {"properties": {"a": False, "b": {"not": {}}, "c": {"not": {"const": 1}}}}
        assert self.said(tmp_path, unwanted, {"a": 1, "b": 2, "c": 1})[:2] == [
            ("a", "is set and must not be"),
            ("b", "is set and must not be"),
        ]
        assert self.said(tmp_path, {"patternProperties": {"^x": False}}, {"xy": 1}) == [
            ("xy", "is set and must not be")
        ]
        assert self.said(tmp_path, unwanted, {"a": None}) == []

    def test_of_all_settings_together(self, tmp_path: Path) -> None:
        ((name, words),) = self.said(tmp_path, {"maxProperties": 1}, {"a": 1, "b": 2})
        assert name == "" and words.endswith("has too many properties")
        ((_, long),) = self.said(tmp_path, {"maxProperties": 1}, {"a": "x" * 300, "b": 2})
        assert long == "the settings do not meet `maxProperties`"

    def test_false_is_spelled_out_where_it_is_of_a_name(self) -> None:
        schema = {
            "properties": {"a": False, "b": {"properties": {"c": False}}},
            "patternProperties": {"^d": False},
            "additionalProperties": False,
            "anyOf": [{"properties": {"e": False}}, False],
            "default": {"x": False},
        }
        assert policy_schemas._spelled_out(schema) == {
            "properties": {"a": {"type": "null"}, "b": {"properties": {"c": {"type": "null"}}}},
            "patternProperties": {"^d": {"type": "null"}},
            "additionalProperties": False,
            "anyOf": [{"properties": {"e": {"type": "null"}}}, False],
            "default": {"x": False},
        }

    def test_the_draft_is_the_one_that_is_named_or_2020_12(self, tmp_path: Path) -> None:
        """`prefixItems` is of 2020-12; draft 7 has a list of `items` instead."""
        prefix = {"properties": {"a": {"prefixItems": [{"const": 1}]}}}
        assert self.said(tmp_path, prefix, {"a": [2]}) == [("a.0", "is 2; only 1 is allowed")]
        seven = {**prefix, "$schema": "http://json-schema.org/draft-07/schema#"}
        assert self.said(tmp_path, seven, {"a": [2]}) == []
        with pytest.raises(GateError, match=r"policy.json:1:2: \$schema \"draft-99\" is not a known draft"):
            self.schema(tmp_path, '{"$schema": "draft-99"}')

    @pytest.mark.parametrize(
        ("content", "says"),
        [
            ("", "policy.json: the policy is not JSON: "),
            ("{,}", "policy.json:1:2: the policy is not JSON: "),
            ("[]", "policy.json:1:1: the policy must be a JSON Schema, for example"),
            (
                '{"properties": {\n "a": {"type": "nothing"}}}',
                "policy.json:2:8: the policy is not a JSON Schema: properties.a.type: ",
            ),
        ],
    )
    def test_what_is_no_schema(self, tmp_path: Path, content: str, says: str) -> None:
        with pytest.raises(GateError) as caught:
            self.schema(tmp_path, content)
        assert says in str(caught.value)

    def test_the_words_of_a_rule(self, tmp_path: Path) -> None:
        def words(rule: Any) -> str:
            (error,) = self.schema(tmp_path, {"properties": {"a": {"const": 1, **rule}}}).validator.iter_errors(
                {"a": 2}
            )
            return policy_schemas._words(error)

        assert words({"description": "Because\n of it.", "title": "T"}) == "Because of it"
        assert words({"title": "T"}) == "T" and words({}) == ""

    def test_settings_by_dotted_name_and_nested(self) -> None:
        values = {"a.b": 1, "a.c": {"d": 2}, "e": 3, "hub_token": "hf_abc", "f": 4, "f.g": 5}
        found = policy_schemas.instance({name: Decision(value) for name, value in values.items()})
        assert found.pop("hub_token") != "hf_abc"
        assert found == {"a.b": 1, "a.c": {"d": 2}, "e": 3, "f": 4, "f.g": 5, "a": {"b": 1, "c": {"d": 2}}}

    def test_where_the_time_ran_out(self) -> None:
        part = {"pattern": "x"}
        schema = {"anyOf": [{"a": 1}, {"properties": {"k": part}}]}
        assert policy_schemas._path_to(schema, [(part, "pattern")]) == ["anyOf", 1, "properties", "k", "pattern"]
        assert policy_schemas._path_to(schema, []) == policy_schemas._path_to(schema, [({"x": 1}, "pattern")]) == []


def test_git_is_shown_without_its_guard(tmp_path: Path) -> None:
    with pytest.raises(GateError, match=r"^git merge-base main HEAD: .*; fetch it$") as caught:
        gate._git(tmp_path, "merge-base", "--end-of-options", "main", "HEAD", help="; fetch it")
    assert "end-of-options" not in str(caught.value)


def test_a_run_is_changed_by_a_file_beside_its_lock(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not by its certificate, nor by a file in a folder below or above."""
    target: Any = SimpleNamespace(folder=tmp_path / "built" / "sft")
    target.folder.mkdir(parents=True)
    for changed, needed in (
        ("built/sft/ds_config.json", True),
        ("built/sft/smoke.json", False),
        ("built/sft/more/ds_config.json", False),
        ("built/ds_config.json", False),
        ("recipe.yaml", False),
    ):
        monkeypatch.setattr(gate, "_changed_since", lambda base, folder, name=changed: {folder / name})
        found = gate._needed([target], Policy(tmp_path, require="changed"), tmp_path)
        assert found == ([target] if needed else []), changed
    assert gate._needed([target], Policy(tmp_path, require="all"), tmp_path) == [target]
    assert gate._needed([target], Policy(tmp_path, require="none"), tmp_path) == []


def test_builds_of_specs_that_are_not_looked_at(repository: Repository) -> None:
    """A lock below the folder whose spec is excluded, or lies outside of it."""
    (repository.folder / "pyproject.toml").unlink()
    spec = repository.folder / "zerocfg.yaml"
    assert find(repository.folder, Policy(Path()), lambda _: False)[0] == {spec: [repository.folder / "built"]}
    assert find(repository.folder, Policy(Path()), lambda path: path == spec) == ({}, [])
    assert find(repository.folder / "built", Policy(Path()), lambda _: False) == ({}, [])


def test_a_run_that_cannot_be_built_is_no_target(repository: Repository) -> None:
    """Its value is refused, though a plan is there: nothing more is said of it."""
    repository.edit("accelerate.yaml", "num_machines", "num_machine")
    targets, reasons = builds.check_builds(repository.folder / "zerocfg.yaml", [repository.folder / "built"])
    assert targets == [] and [reason.kind for reason in reasons] == ["build-impossible"]


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
