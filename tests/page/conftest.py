"""A run with everything that a page can show: the quickstart as committed, with the certificate of a real smoke-run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import zerocfg  # noqa: F401
from tests.conftest import ROOT
from zerocfg.emit.lock import load, sha256
from zerocfg.smoke.certify.certificate_file import values_hash

CERTIFICATE = Path(__file__).parent / "quickstart-smoke.json"


def put_certificate(build: Path) -> Path:
    """The recorded certificate, of the files that are in this folder."""
    content = json.loads(CERTIFICATE.read_text())
    content["files"] = {path.name: sha256(path.read_bytes()) for path in sorted(build.iterdir()) if path.is_file()}
    content["values"] = values_hash(load(build / "zerocfg.lock"))
    path = build / "smoke.json"
    path.write_text(json.dumps(content))
    return path


@pytest.fixture
def quickstart(tmp_path: Path) -> Path:
    """A copy of the example, built and smoke-run."""
    folder = tmp_path / "quickstart"
    shutil.copytree(ROOT / "examples" / "quickstart", folder)
    put_certificate(folder / "built" / "quickstart")
    return folder
