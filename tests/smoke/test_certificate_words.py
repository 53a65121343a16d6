"""A certificate to the letter: what is written, what is read back, what is refused and why; and its signature."""

from __future__ import annotations

import datetime
import hashlib
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from zerocfg.emit import lock as lockfile
from zerocfg.smoke.certify import certificate_file
from zerocfg.smoke.certify.certificate_file import CertificateError
from zerocfg.smoke.certify.signature import SignatureError, sign, signer_of
from zerocfg.smoke.model.certificate import (
    Certificate,
    Check,
    Command,
    Diagnosis,
    Failure,
    Measured,
    RecordedReduction,
    SmokeResult,
)
from zerocfg.version import __version__

RESULT = SmokeResult(
    run="sft",
    state="failed",
    device_kind="cuda",
    device_name="NVIDIA H200",
    ranks=2,
    reductions=(RecordedReduction("layers", "layers: 32 to 2", {"kind": "layers", "planned": 32, "run": 2}),),
    checks=(Check("engine", "ddp", "ddp", True), Check("loss", "-", "not measured: x", None, "unseen", measured=False)),
    proven=("DDP trains",),
    not_proven=("NCCL", "speed"),
    failure=Failure("it broke", 1, ("a", "b"), "step 2"),
    diagnosis=(Diagnosis("ZC203", "batch", "ds.json", 3, 5, "wrong", "mend it", "error"),),
    command=Command("bash go.sh", "Trainer", ["saved"]),
    measured=Measured(seconds=12.5, losses=(4.0,), peaks=(7, None), of="rss", predicted={"unknown": "no"}),
    unmeasured=("engine",),
    instruments=("checksums",),
    not_measured={"loss": "OSError (rank 1)"},
)
DATE = datetime.datetime(2026, 11, 27, 9, 30, tzinfo=datetime.timezone.utc)
WHOLE = Certificate(RESULT, DATE, 3, {"torch": "2.13.0"}, {"ds.json": "0f"}, "ab", {"train.py": "cd"})
DATA: dict[str, Any] = {
    "version": 1,
    "run": "sft",
    "passed": False,
    "verdict": "failed",
    "unmeasured": ["engine"],
    "device": {"kind": "cuda", "name": "NVIDIA H200"},
    "ranks": 2,
    "reductions": ["layers: 32 to 2"],
    "reduced": [{"kind": "layers", "planned": 32, "run": 2}],
    "checks": [
        {"name": "engine", "planned": "ddp", "seen": "ddp", "ok": True, "further": "", "measured": True},
        {
            "name": "loss",
            "planned": "-",
            "seen": "not measured: x",
            "ok": None,
            "further": "unseen",
            "measured": False,
        },
    ],
    "proven": ["DDP trains"],
    "not_proven": ["NCCL", "speed"],
    "failure": {"message": "it broke", "rank": 1, "detail": ("a", "b"), "stage": "step 2"},
    "diagnosis": [
        {
            "code": "ZC203",
            "name": "batch",
            "file": "ds.json",
            "line": 3,
            "column": 5,
            "message": "wrong",
            "fix": "mend it",
            "why": "error",
        }
    ],
    "command": {"line": "bash go.sh", "loop": "Trainer", "notes": ["saved"]},
    "instruments": ["checksums"],
    "not_measured": {"loss": "OSError (rank 1)"},
    "measured": {
        "seconds": 12.5,
        "step_seconds": [],
        "losses": [4.0],
        "peak_memory_bytes": [7, None],
        "memory": [],
        "memory_start": [],
        "device_memory_bytes": None,
        "timeline": {"rank": 0, "of": "rss", "points": []},
        "step_seconds_median": None,
        "step_seconds_first": None,
        "communication": [],
        "tokens_per_step": None,
        "tokens_per_second": None,
        "tflops": None,
        "predicted": {"unknown": "no"},
    },
    "date": "2026-11-27T09:30:00+00:00",
    "steps": 3,
    "versions": {"torch": "2.13.0"},
    "files": {"ds.json": "0f"},
    "values": "ab",
    "code": {"train.py": "cd"},
}


def parsed(**changed: Any) -> Certificate:
    content = json.loads(json.dumps(DATA)) | changed
    return certificate_file.parse(json.dumps({key: item for key, item in content.items() if item is not ...}).encode())


class TestData:
    def test_every_key_as_it_is_documented(self) -> None:
        assert WHOLE.data() == DATA

    def test_what_there_is_not_has_no_key(self) -> None:
        bare = replace(WHOLE, result=replace(RESULT, command=None, failure=None, state="passed"), code=None).data()
        assert set(DATA) - set(bare) == {"command", "code"} and bare["failure"] is None
        assert (bare["passed"], bare["verdict"]) == (True, "passed")

    def test_it_is_read_as_it_was_written(self) -> None:
        assert parsed() == WHOLE

    def test_checks_that_failed(self) -> None:
        checks = (Check("a", "1", "2", False), Check("b", "1", "1", True), Check("c", "-", "1", None))
        assert replace(RESULT, checks=checks).failed == ("a",)
        assert RESULT.failed == () and not RESULT.passed and replace(RESULT, state="passed").passed

    def test_an_explanation_in_one_line(self) -> None:
        (item,) = RESULT.diagnosis
        assert str(item) == "ZC203 batch: ds.json:3:5: wrong; fix: mend it"
        assert str(replace(item, code="", file=None, fix="")) == "batch: wrong"


class TestRead:
    def test_what_need_not_be_there(self) -> None:
        """Written by an older zerocfg, or by hand."""
        kept = ("version", "run", "passed", "device", "reductions", "date", "versions", "files")
        found = parsed(**dict.fromkeys(DATA.keys() - set(kept), ...), device={"kind": "cpu", "name": None})
        empty = SmokeResult(
            "sft", "failed", "cpu", "", 0, (RecordedReduction("layers", "layers: 32 to 2"),), (), (), (), None, (),
            None, Measured(),
        )  # fmt: skip
        assert found == Certificate(empty, DATE, None, {"torch": "2.13.0"}, {"ds.json": "0f"})

    def test_rows_are_read_as_far_as_they_fit(self) -> None:
        checks = [{"name": "a", "ok": 1}, {"measured": None, "planned": 3, "ok": False}, "none"]
        assert parsed(checks=checks).result.checks == (Check("a", "", "", None), Check("", "3", "", False))
        assert parsed(failure={"message": "", "rank": 1}).result.failure is None
        assert parsed(failure={"message": "x", "rank": "1", "stage": 2}).result.failure == Failure("x")
        assert parsed(command={"line": 3}).result.command is None
        (item,) = parsed(diagnosis=[{"name": "x", "line": True, "file": 3, "fix": None}]).result.diagnosis
        assert item == Diagnosis("", "x", None, None, None, "", "", "")

    @pytest.mark.parametrize(
        ("changed", "said"),
        [
            ({"version": ...}, "is no certificate: `version` is missing or no number"),
            ({"version": True}, "is no certificate: `version` is missing or no number"),
            ({"version": "1"}, "is no certificate: `version` is missing or no number"),
            ({"version": 2}, f"has version 2; this zerocfg {__version__} reads version 1"),
            ({"version": 0}, f"has version 0; this zerocfg {__version__} reads version 1"),
            ({"run": ...}, "is no certificate: `run` is missing"),
            ({"run": 3}, "is no certificate: `run` is not a text"),
            ({"device": ...}, "is no certificate: `device` is missing"),
            ({"device": "cpu"}, "is no certificate: `device` is not a mapping"),
            ({"device": {}}, "is no certificate: `device.kind` is missing"),
            ({"device": {"kind": None}}, "is no certificate: `device.kind` is not a text"),
            ({"passed": ...}, "is no certificate: `passed` is missing"),
            ({"passed": 1}, "is no certificate: `passed` is not true or false"),
            ({"reductions": ...}, "is no certificate: `reductions` is missing"),
            ({"reductions": {}}, "is no certificate: `reductions` is not a list"),
            ({"checks": {}}, "is no certificate: `checks` is not a list"),
            ({"date": ...}, "is no certificate: `date` is missing"),
            ({"versions": ...}, "is no certificate: `versions` is missing"),
            ({"files": []}, "is no certificate: `files` is not a mapping"),
            ({"code": None}, "is no certificate: `code` is not a mapping"),
            ({"date": "today"}, "is no certificate: `date` is 'today', not a date as 2026-05-01"),
            ({"date": "9" * 50}, f"is no certificate: `date` is '{'9' * 40}', not a date as 2026-05-01"),
        ],
    )
    def test_what_is_missing_or_of_another_kind_is_named(self, changed: dict[str, Any], said: str) -> None:
        with pytest.raises(CertificateError) as refused:
            parsed(**changed)
        assert (str(refused.value), refused.value.line, refused.value.column) == (said, 0, 0)

    @pytest.mark.parametrize(
        ("data", "said", "place"),
        [
            (b'{"a": 1,\n  b}', "is no JSON: Expecting property name enclosed in double quotes", (2, 3)),
            (b"\xff{}", "is no JSON text in UTF-8 of a sane depth", (0, 0)),
            (b"[" * 200_000, "is no JSON text in UTF-8 of a sane depth", (0, 0)),
            (b"[]", "is no certificate: it holds no mapping", (0, 0)),
        ],
    )
    def test_what_is_no_json(self, data: bytes, said: str, place: tuple[int, int]) -> None:
        with pytest.raises(CertificateError) as refused:
            certificate_file.parse(data)
        assert (str(refused.value), (refused.value.line, refused.value.column)) == (said, place)

    @pytest.mark.parametrize("said", ["2026-11-27T09:30:00Z", "2026-11-27T09:30:00", "2026-11-27T10:30:00+01:00"])
    def test_dates(self, said: str) -> None:
        """Of UTC where nothing else is said."""
        found = parsed(date=said).date
        assert found == DATE and found.tzinfo is not None

    def test_files(self, tmp_path: Path) -> None:
        with pytest.raises(FileNotFoundError):
            certificate_file.read(tmp_path / "smoke.json")
        (tmp_path / "smoke.json").mkdir()
        with pytest.raises(CertificateError):
            certificate_file.read(tmp_path / "smoke.json")
        (tmp_path / "other.json").write_text(json.dumps(DATA))
        assert certificate_file.read(tmp_path / "other.json") == WHOLE


def lock(**changed: Any) -> lockfile.Lock:
    content: dict[str, Any] = {
        "run": "sft",
        "plan": {"engine": "ddp"},
        "settings": {"a": {"value": 1, "reason": "x"}, "b": 2},
        "accelerate": {"c": {"value": "é", "reason": "y"}},
        "changes": {"d": {"value": [1], "reason": "z"}},
        "recipe": {"e": {"value": 3, "reason": "kept"}},
    }
    return lockfile.of(content | changed)


class TestWrite:
    def test_values_without_their_reasons(self) -> None:
        """Of these sections only the values count, sorted, in UTF-8."""
        said = (
            '{"accelerate": {"c": "é"}, "changes": {"d": [1]}, "plan": {"engine": "ddp"}, '
            '"recipe": {"e": {"reason": "kept", "value": 3}}, "run": "sft", "settings": {"a": 1, "b": 2}}'
        )
        own = hashlib.sha256(said.encode()).hexdigest()
        assert certificate_file.values_hash(lock()) == own
        ignored = ("zerocfg", "spec_folder", "inputs", "files", "notes", "considered", "versions")
        for name in ignored:
            assert certificate_file.values_hash(lock(**{name: ["other"]})) == own, name
        other = {"a": {"value": 1, "reason": "changed"}, "b": 2}
        assert certificate_file.values_hash(lock(settings=other)) == own
        assert certificate_file.values_hash(lock(settings={"a": {"value": 2}, "b": 2})) != own
        assert certificate_file.values_hash(lock(recipe={"e": {"value": 3, "reason": "other"}})) != own
        assert certificate_file.values_hash(lock(settings="none")) != own

    def test_the_file_and_what_it_replaces(self, tmp_path: Path) -> None:
        old = tmp_path / "smoke.json.sig"
        old.write_text("of the one before")
        before = datetime.datetime.now(datetime.timezone.utc).replace(microsecond=0)
        path = certificate_file.write(
            tmp_path, RESULT, steps=5, versions={"torch": "2"}, files={"b": "1", "a": "0"}, lock=lock(), code={"t": "2"}
        )
        assert path == tmp_path / "smoke.json" and not old.exists()
        text = path.read_text()
        content = json.loads(text)
        assert text == json.dumps(content, indent=2) + "\n"
        found = certificate_file.read(path)
        assert found.result == RESULT and found.steps == 5 and found.code == {"t": "2"}
        assert found.versions == {"zerocfg": __version__, "torch": "2"} and next(iter(found.versions)) == "zerocfg"
        assert list(found.files.items()) == [("a", "0"), ("b", "1")]
        assert found.values == certificate_file.values_hash(lock())
        assert found.date.microsecond == 0 and 0 <= (found.date - before).total_seconds() < 60
        assert "code" not in json.loads(
            certificate_file.write(tmp_path, RESULT, steps=5, versions={}, files={}, lock=lock()).read_text()
        )


class Keygen:
    """OpenSSH's `ssh-keygen -Y`, as ssh-keygen(1) describes it: what it was asked, and its answers in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: tuple[int, bytes, bytes] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[list[str], bytes | None, float | None]] = []
        monkeypatch.setattr("zerocfg.smoke.certify.signature.subprocess.run", self.run)

    def run(self, words: list[str], **named: Any) -> Any:
        assert named["capture_output"] is True and named["check"] is False
        self.asked.append((words, named["input"], named["timeout"]))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return SimpleNamespace(returncode=answer[0], stdout=answer[1], stderr=answer[2])


@pytest.fixture
def signed(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate with a signature beside it, and a list of signers."""
    path, signers = tmp_path / "smoke.json", tmp_path / "signers"
    path.write_bytes(b"{}")
    (tmp_path / "smoke.json.sig").write_text("a signature")
    signers.write_text("me@example.org ssh-ed25519 AAAA")
    return path, signers


class TestSignature:
    def test_signing_replaces_the_signature_of_before(
        self, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Whoever types a passphrase is waited for."""
        path, _ = signed
        keygen = Keygen(monkeypatch, (0, b"", b""))
        place = sign(path, Path("id"))
        assert place == path.with_name("smoke.json.sig") and not place.exists(), "ssh-keygen asks before it overwrites"
        words = ["ssh-keygen", "-Y", "sign", "-f", "id", "-n", "zerocfg-smoke", str(path)]
        assert keygen.asked == [(words, None, None)]

    @pytest.mark.parametrize(
        ("errors", "said"),
        [
            (b"Load key\nid: no such file\n\n", "id signs nothing: id: no such file"),
            (b"", "id signs nothing: ssh-keygen ended with 7"),
        ],
    )
    def test_a_key_that_signs_nothing(
        self, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, errors: bytes, said: str
    ) -> None:
        Keygen(monkeypatch, (7, b"", errors))
        with pytest.raises(SignatureError) as refused:
            sign(signed[0], Path("id"))
        assert str(refused.value) == said and not refused.value.missing

    def test_who_signed_it(self, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
        """The first name that the list has for the key; the content is what is here."""
        path, signers = signed
        keygen = Keygen(monkeypatch, (0, b"me@example.org,also\nother\n", b""), (0, b"Good", b""))
        assert signer_of(path, signers) == "me@example.org"
        begin = ["ssh-keygen", "-Y"]
        files = ["-s", f"{path}.sig"]
        assert keygen.asked == [
            ([*begin, "find-principals", *files, "-f", str(signers)], None, 60),
            ([*begin, "verify", "-f", str(signers), "-I", "me@example.org", "-n", "zerocfg-smoke", *files], b"{}", 60),
        ]

    @pytest.mark.parametrize(
        ("answers", "said"),
        [
            ([(255, b"me", b"")], "nobody in signers signed it"),
            ([(0, b"", b"")], "nobody in signers signed it"),
            ([(0, b"me\n", b""), (255, b"", b"")], "its signature is of another content, or for another purpose"),
            ([OSError("x")], "ssh-keygen -Y find-principals: OSError"),
            ([(0, b"me\n", b""), subprocess.TimeoutExpired("x", 1)], "ssh-keygen -Y verify: TimeoutExpired"),
            ([FileNotFoundError()], "signatures need `ssh-keygen` of OpenSSH 8.2 or later, which is not here"),
        ],
    )
    def test_what_does_not_count(
        self, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, answers: list[Any], said: str
    ) -> None:
        Keygen(monkeypatch, *answers)
        with pytest.raises(SignatureError) as refused:
            signer_of(*signed)
        assert str(refused.value) == said and not refused.value.missing

    def test_none_at_all(self, signed: tuple[Path, Path]) -> None:
        path, signers = signed
        path.with_name("smoke.json.sig").unlink()
        with pytest.raises(SignatureError) as refused:
            signer_of(path, signers)
        assert str(refused.value) == "it is not signed" and refused.value.missing

    @pytest.mark.parametrize(
        ("name", "size", "said"),
        [
            ("smoke.json.sig", (64 << 10) + 1, "its signature is not read: it is larger than 64 KiB"),
            ("smoke.json", None, "its signature is not read: No such file or directory"),
            ("signers", None, "its signature is not read: No such file or directory"),
        ],
    )
    def test_files_that_are_not_handed_on(
        self, signed: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch, name: str, size: int | None, said: str
    ) -> None:
        keygen = Keygen(monkeypatch)
        place = signed[0].with_name(name)
        if size is None:
            place.unlink()
        else:
            os.truncate(place, size)
        with pytest.raises(SignatureError) as refused:
            signer_of(*signed)
        assert str(refused.value) == said and keygen.asked == []
