"""What a certificate is bound to: forged, changed, unsigned and foreign ones do not count."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.gate.conftest import Repository
from zerocfg.emit import lock as lockfile
from zerocfg.smoke.certify.code import code_hashes
from zerocfg.smoke.certify.signature import NAMESPACE, SignatureError, sign, signer_of

PROOF = "built/quickstart/smoke.json"
Content = dict[str, Any]


def kinds(repository: Repository, *words: str) -> list[str]:
    _, reasons = repository.gate("--only", "certificate", *words)
    assert all(reason.startswith(f"{PROOF}: ") for reason in reasons), reasons
    return [reason.split(": ")[1] for reason in reasons]


def test_one_written_by_hand_with_the_right_hashes_proves_nothing(repository: Repository) -> None:
    """All that the gate once asked for: the run, that it passed, date, releases and hashes."""
    path = repository.built / "smoke.json"
    content = json.loads(path.read_text())
    kept = ("version", "run", "passed", "device", "reductions", "date", "versions", "files", "values", "code", "ranks")
    path.write_text(json.dumps({key: content[key] for key in kept}))
    code, (reason,) = repository.gate("--only", "certificate")
    assert code == 1
    assert reason == (
        f"{PROOF}: certificate-incomplete: it says that it passed, but does not hold the check 'optimizer steps, loss "
        "finite', does not hold the check 'world size', does not hold the check 'engine', does not hold the check "
        "'ZeRO stage', holds no losses; zerocfg smoke built/quickstart"
    )


def _row(name: str, **changed: object) -> Callable[[Content], None]:
    def change(content: Content) -> None:
        (row,) = [one for one in content["checks"] if one["name"] == name]
        row.update(changed)

    return change


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (_row("ZeRO stage", planned="2", seen="2"), "has '2' as 'ZeRO stage', which must be '3'"),
        (_row("ZeRO stage", seen="2"), "has '2' as 'ZeRO stage', which must be '3'"),
        (_row("ZeRO stage", ok=None), "does not hold the check 'ZeRO stage'"),
        (_row("engine", planned="ddp", seen="ddp"), "has 'ddp' as 'engine', which must be 'deepspeed'"),
        (_row("world size", planned="8", seen="8"), "has '8' as 'world size', which must be '2'"),
        (_row("optimizer steps, loss finite", ok=None), "does not hold the check 'optimizer steps, loss finite'"),
        (lambda content: content["measured"].update(losses=[]), "holds no losses"),
    ],
)
def test_checks_that_the_lock_contradicts(change: Callable[[Content], None], told: str, repository: Repository) -> None:
    repository.certificate(change)
    code, (reason,) = repository.gate("--only", "certificate")
    assert code == 1
    assert reason == (
        f"{PROOF}: certificate-incomplete: it says that it passed, but {told}; zerocfg smoke built/quickstart"
    )


ESSENTIALS = ("parameters change", "saved parameters", "loaded by from_pretrained")


@pytest.mark.parametrize("missing", [None, *ESSENTIALS])
def test_essentials_of_a_certificate_that_names_its_instruments(missing: str | None, repository: Repository) -> None:
    """Older ones name none, and need not hold these rows."""
    assert repository.gate("--only", "certificate")[0] == 0

    def newer(content: Content) -> None:
        content["instruments"] = ["checksums"]
        for name in ESSENTIALS:
            content["checks"].append(
                {"name": name, "planned": "1", "seen": "1", "ok": None if name == missing else True}
            )

    repository.certificate(newer)
    code, reasons = repository.gate("--only", "certificate")
    if missing is None:
        assert (code, reasons) == (0, [])
    else:
        (reason,) = reasons
        assert code == 1 and f"it says that it passed, but does not hold the check '{missing}'; " in reason


def test_weights_that_were_not_to_be_saved_are_not_asked_for(repository: Repository) -> None:
    def newer(content: Content) -> None:
        content["instruments"] = ["checksums"]
        content["checks"].append({"name": "parameters change", "planned": "yes", "seen": "1 of 1", "ok": True})
        content["reductions"].append("saving: asked for")

    repository.certificate(newer)
    _, reasons = repository.gate("--only", "certificate")
    assert not any("certificate-incomplete" in reason for reason in reasons), reasons


def test_an_incomplete_smoke_run_is_neither_passed_nor_failed(repository: Repository) -> None:
    def incomplete(content: Content) -> None:
        content.update(passed=False, verdict="incomplete", unmeasured=["saved parameters"])
        content["not_measured"] = {"saved weights": "MemoryError (rank 0)"}

    repository.certificate(incomplete)
    code, (reason,) = repository.gate("--only", "certificate")
    assert (code, reason) == (
        1,
        f"{PROOF}: certificate-unmeasured: the smoke-run of quickstart did not measure saved parameters "
        "(saved weights: MemoryError (rank 0)); zerocfg smoke built/quickstart",
    )


def test_a_changed_script_and_its_imports(repository: Repository) -> None:
    (repository.folder / "helper.py").write_text("from parts.inner import size\nSIZE = size + 3\n")
    (repository.folder / "parts").mkdir()
    (repository.folder / "parts" / "inner.py").write_text("def late():\n    from . import later\nsize = 1\n")
    (repository.folder / "parts" / "later.py").write_text("def (\n")
    repository.edit("train.py", "import", "import helper\nimport")
    repository.prove()
    content = json.loads((repository.built / "smoke.json").read_text())
    assert set(content["code"]) == {"train.py", "helper.py", "parts/inner.py", "parts/later.py"}
    assert kinds(repository) == []
    (repository.folder / "other.py").write_text("unused = 1\n")
    assert kinds(repository) == []
    repository.edit("helper.py", "3", "4")
    code, (reason,) = repository.gate("--only", "certificate")
    assert code == 1 and "certificate-stale: helper.py is not the code that was there (tested on " in reason
    repository.edit("helper.py", "4", "3")
    repository.edit("train.py", "import helper", "raise SystemExit")
    (reason,) = repository.gate("--only", "certificate")[1]
    assert (
        "certificate-stale: train.py is not the code that was there, helper.py was part of the code, parts/inner.py "
        "was part of the code, and 1 more (tested on "
    ) in reason
    repository.edit("pyproject.toml", "max-age-days = 90", 'max-age-days = 90\ncode = "any"')
    assert kinds(repository) == []


def test_one_that_names_no_code_is_stale(repository: Repository) -> None:
    repository.certificate(lambda content: content.pop("code"))
    (reason,) = repository.gate("--only", "certificate")[1]
    assert "certificate-stale: it does not say which train.py was there (tested on " in reason
    (repository.folder / "train.py").unlink()
    assert code_hashes(repository.built, lockfile.load(repository.built / lockfile.NAME)) == {}


ssh = pytest.mark.skipif(shutil.which("ssh-keygen") is None, reason="no ssh-keygen here")


def key(folder: Path, name: str, signers: Path) -> Path:
    """A new key, whose owner becomes one of the signers."""
    path = folder / name
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(path)], check=True)
    with signers.open("a") as stream:
        stream.write(f"{name}@example.org {path.with_suffix('.pub').read_text()}")
    return path


@ssh
def test_signatures(repository: Repository, tmp_path: Path) -> None:
    signers, strangers, path = tmp_path / "signers", tmp_path / "strangers", repository.built / "smoke.json"
    ours, theirs = key(tmp_path, "ours", signers), key(tmp_path, "theirs", strangers)
    listed = ("--signers", str(signers))
    assert kinds(repository, *listed) == ["certificate-unsigned"]
    sign(path, theirs)
    assert kinds(repository, *listed) == ["certificate-signature"]
    sign(path, ours)
    assert signer_of(path, signers) == "ours@example.org"
    assert kinds(repository, *listed) == []
    repository.certificate(lambda content: content["versions"].update(zerocfg="9"))
    assert kinds(repository, *listed) == ["certificate-signature"]
    # a new certificate leaves no signature of the one before
    repository.prove()
    assert kinds(repository, *listed) == ["certificate-unsigned"]


@ssh
def test_a_signature_without_end_is_not_handed_on(repository: Repository, tmp_path: Path) -> None:
    """ssh-keygen would read all of it, and go on when the gate is gone; RSA's longest takes 6,000 bytes."""
    signers, path = tmp_path / "signers", repository.built / "smoke.json"
    sign(path, key(tmp_path, "ours", signers))
    signature = path.with_name("smoke.json.sig")
    good = signature.read_bytes()
    with signature.open("r+b") as file:
        file.truncate(2 << 30)
    code, (said,) = repository.gate("--signers", str(signers))
    assert code == 1 and "its signature is not read: it is larger than 64 KiB" in said
    signature.write_bytes(good + b"\n" * ((64 << 10) - len(good)))
    assert repository.gate("--signers", str(signers)) == (0, [])


@ssh
def test_a_signature_for_something_else_does_not_count(tmp_path: Path) -> None:
    signers, path = tmp_path / "signers", tmp_path / "smoke.json"
    own = key(tmp_path, "own", signers)
    path.write_text("{}")
    subprocess.run(["ssh-keygen", "-q", "-Y", "sign", "-f", str(own), "-n", "git", str(path)], check=True)
    with pytest.raises(SignatureError, match="for another purpose"):
        signer_of(path, signers)
    assert NAMESPACE != "git"


@ssh
def test_the_policy_names_signers(repository: Repository, tmp_path: Path) -> None:
    key(tmp_path, "own", repository.folder / "signers")
    repository.edit("pyproject.toml", "max-age-days = 90", 'max-age-days = 90\nsigners = "signers"')
    (reason,) = repository.gate("--only", "certificate")[1]
    assert reason == (
        f"{PROOF}: certificate-unsigned: it is not signed (signers = signers); "
        "zerocfg smoke built/quickstart --sign KEY"
    )
    repository.edit("pyproject.toml", 'signers = "signers"', 'signers = "nobody"')
    code, (said,) = repository.gate()
    assert code == 2 and "pyproject.toml:8: signers: there is no file 'nobody'" in said


def test_without_ssh_keygen_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SignatureError, match=r"need `ssh-keygen` of OpenSSH 8\.2 or later, which is not here"):
        sign(tmp_path / "smoke.json", ROOT / "README.md")
