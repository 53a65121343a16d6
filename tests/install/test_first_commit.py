"""docs/first-commit.md, typed into an empty environment as a new user does it.

Real pip, real git, real pre-commit. The commands are run as they stand; what is not published yet is put where they
look for it: pip finds the wheel that was built here, and git takes a repository with this checkout's files, tagged as
the page says, for that of the address.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.docs.blocks import File, read
from tests.docs.runner import Session, differs
from tests.install.conftest import Distributions, Environment, call, copy_project, outside, with_wheel

ADDRESS = "https://github.com/zerocfg/zerocfg"
NOT_RUN = "<!-- not run: tests/install"
"""tests/docs leaves these blocks to this test."""


def _page() -> str:
    text = (ROOT / "docs" / "first-commit.md").read_text(encoding="utf-8")
    assert NOT_RUN in text
    return "\n".join(line for line in text.splitlines() if not line.startswith(NOT_RUN)) + "\n"


def _published(folder: Path, revision: str) -> Path:
    """A repository with the files of this one, tagged."""
    copy_project(folder)
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "files"], ["tag", revision]):
        call("git", *words, env=outside(), cwd=folder)
    return folder


def _git_settings(**settings: str) -> dict[str, str]:
    """As an environment: pre-commit hands on these, and no file of settings."""
    pairs = {"init.defaultBranch": "main", "user.name": "You", "user.email": "you@example.org", **settings}
    found = {"GIT_CONFIG_COUNT": str(len(pairs)), "GIT_CONFIG_NOSYSTEM": "1"}
    for number, (key, value) in enumerate(pairs.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": key, f"GIT_CONFIG_VALUE_{number}": value}
    return found


def test_from_nothing_to_a_green_commit(dist: Distributions, installed: Environment, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(_page(), encoding="utf-8")
    (scenario,) = read(page).scenarios
    (revision,) = re.findall(r"^    rev: (\S+)$", page.read_text(), re.M)
    published = _published(tmp_path / "published", revision)
    env = with_wheel(installed.env, dist) | {"PYTHONPATH": "", "PRE_COMMIT_HOME": str(tmp_path / "pre-commit")}
    env |= _git_settings(**{f"url.{published.as_uri()}.insteadOf": ADDRESS, "protocol.file.allow": "always"})
    session = Session(tmp_path / "sft", **env)
    call("git", "init", "-q", env=session.env, cwd=session.folder)
    commits = []
    for part in scenario.parts:
        if isinstance(part, File):
            (session.folder / part.name).write_text(part.text, encoding="utf-8")
            continue
        done = session.run(part.command)
        assert done.code == part.code, f"{part.command}: exit code {done.code}\n{done.text}"
        difference = differs(part.shown, done.text) if part.shown else ""
        assert not difference, f"`{part.command}` prints something else:\n{difference}"
        if part.command.startswith("git commit"):
            commits.append(done.code)
    assert commits == [1, 0], "first red, then green"
    assert "Traceback" not in page.read_text()


@pytest.mark.parametrize("target", ["demo", "test"])
def test_the_targets_of_make_exist(target: str) -> None:
    assert f"make {target}" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M)
