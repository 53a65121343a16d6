"""What a page's example starts from and no command of the page makes: ``python -m tests.docs.prepare gate``."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

from tests.conftest import ROOT


def gate(folder: Path) -> None:
    """The quickstart with its build, a policy and a certificate: `zerocfg gate` passes."""
    from tests.gate.conftest import POLICY, PYPROJECT, Repository

    left = shutil.ignore_patterns("built", "runs", "__pycache__")
    shutil.copytree(ROOT / "examples" / "quickstart", folder, ignore=left, dirs_exist_ok=True)
    (folder / "pyproject.toml").write_text(PYPROJECT)
    (folder / "policy.schema.json").write_text(json.dumps(POLICY, indent=2))
    repository = Repository(folder)
    repository.build()
    repository.prove()


def checkpoint(folder: Path) -> None:
    """``checkpoint``: what two ranks save under ZeRO 2."""
    from tests.resume.test_folders import zero

    zero(folder / "checkpoint")


def tutorial(folder: Path) -> None:
    """``docs/from-a-tutorial.md`` as far as its builds, which its first scenario makes."""
    from tests.docs.blocks import read
    from tests.docs.runner import play

    page = ROOT / "docs" / "from-a-tutorial.md"
    play(page, read(page).scenarios[0], folder)


if __name__ == "__main__":
    {"gate": gate, "checkpoint": checkpoint, "tutorial": tutorial}[sys.argv[1]](Path.cwd())
