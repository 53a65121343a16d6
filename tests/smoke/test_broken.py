"""Broken config sets on the real libraries: each fails, and the rule that knows why is named with its place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from zerocfg.smoke import many
from zerocfg.smoke.smoke import Options

from .sets import BROKEN, Set

pytestmark = [pytest.mark.libs, pytest.mark.usefixtures("warm_python")]


def smoke(folder: Path, broken: Set) -> tuple[int, dict[str, Any]]:
    """Exit code and verdict."""
    options = Options(ranks=broken.ranks, device="cpu", steps=1, consumer=broken.consumer, parts=("train",))
    results = many.run_all([folder], options, lambda _: None)
    (verdict,) = many.as_data(results)["runs"]
    return many.exit_code(results), verdict


@pytest.mark.several_ranks
@pytest.mark.parametrize("name", BROKEN)
def test_fails_with_the_rule_that_knows_why(name: str, tmp_path: Path) -> None:
    broken = BROKEN[name]
    code, verdict = smoke(broken.write(tmp_path), broken)
    assert code == 1 and verdict["passed"] is False
    failed = {one["name"]: one for one in verdict["checks"] if one["ok"] is False}
    told = {one["code"]: one for one in verdict["diagnosis"]}
    assert list(told) == [broken.code], (failed, verdict["failure"])
    diagnosis = told[broken.code]
    if broken.check is None:
        assert failed.keys() <= {"training arguments"}, "what the parser refuses stops this loop, too"
        assert verdict["failure"]["rank"] == 0, "the rank's own error, not the launcher's"
        assert broken.says in verdict["failure"]["message"]
        assert diagnosis["why"] == "error"
    else:
        assert verdict["failure"] is None
        assert broken.check in failed and broken.says in failed[broken.check]["planned"]
        assert diagnosis["why"].startswith("check:")
    # The place is one of the user's own files.
    assert Path(diagnosis["file"]).name in broken.files
    assert diagnosis["line"] >= 1 and diagnosis["message"]
    assert not (tmp_path / "smoke.json").exists(), "configs written by hand get no certificate"
