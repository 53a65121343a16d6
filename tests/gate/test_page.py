"""docs/gate.md says what the gate does: every kind of reason, every setting, its example of a policy."""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.conftest import ROOT
from zerocfg.gate.policy import KNOWN

from .conftest import Repository

PAGE = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")


def table(heading: str) -> set[str]:
    """The first column of the table below a heading."""
    part = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return set(re.findall(r"^\| `([^`]+)` \|", part, re.MULTILINE))


def test_every_kind_is_listed() -> None:
    code = "".join(path.read_text(encoding="utf-8") for path in sorted((ROOT / "zerocfg" / "gate").glob("*.py")))
    families = "spec|build|not|lock|certificate|policy"
    kinds = set(re.findall(rf'"((?:{families})-[a-z-]+)"', code))
    assert kinds == table("Reasons")


def test_every_setting_is_listed() -> None:
    assert table("Policy") == set(KNOWN)


def test_the_example_policy(repository: Repository) -> None:
    """The example passes where it should, and fails with the reason that the page shows."""
    (schema,) = re.findall(r"```json\n(.*?)```", PAGE, re.DOTALL)
    (settings,) = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
    Path("pyproject.toml").write_text(settings)
    Path("policy.schema.json").write_text(json.dumps(json.loads(schema), indent=2))
    assert repository.gate() == (0, [])
    repository.edit("recipe.yaml", "max_grad_norm: 1.0", "max_grad_norm: 2.0")
    repository.build()
    repository.prove()
    (shown,) = re.findall(r"```\n(recipe\.yaml:.*?)\n```", PAGE, re.DOTALL)
    code, reasons = repository.gate()
    assert code == 1 and [re.sub(r"json:\d+:\d+", "", one) for one in reasons] == [re.sub(r"json:\d+:\d+", "", shown)]
