"""A tag is published only when version and changelog say the same; workflows and forms are what GitHub reads."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT
from tools.release import objections

GITHUB = ROOT / ".github"
SCHEMAS = {
    "workflows": sorted((GITHUB / "workflows").glob("*.yml")),
    "issue-forms": sorted(set((GITHUB / "ISSUE_TEMPLATE").glob("*.yml")) - {GITHUB / "ISSUE_TEMPLATE" / "config.yml"}),
    "issue-config": [GITHUB / "ISSUE_TEMPLATE" / "config.yml"],
    "actions": [ROOT / "action.yml"],
}
DATED = "# Changelog\n\n## Unreleased\n\n- x\n\n## 0.2.0 (2026-12-01)\n\n- y\n\n## 0.1.0 (2026-11-22)\n"


def test_a_release_that_fits() -> None:
    assert objections("v0.2.0", "0.2.0", DATED) == []


@pytest.mark.parametrize(
    ("tag", "version", "changelog", "count"),
    [
        ("v0.2.1", "0.2.0", DATED, 1),
        ("0.2.0", "0.2.0", DATED, 1),
        ("v0.1.0", "0.1.0", DATED, 1),
        ("v0.2.0", "0.2.0", DATED.replace("(2026-12-01)", "(unreleased)"), 1),
        ("v0.3.0", "0.2.0", "# Changelog\n", 2),
    ],
)
def test_a_release_that_does_not(tag: str, version: str, changelog: str, count: int) -> None:
    assert len(objections(tag, version, changelog)) == count


def test_the_changelog_has_a_place_for_the_next_and_a_date_for_each_release() -> None:
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heads[0] == "Unreleased" and len(heads) > 1
    assert all(re.fullmatch(r"\d+\.\d+\.\d+ \(\d{4}-\d\d-\d\d\)", head) for head in heads[1:])


@pytest.mark.parametrize("schema", SCHEMAS)
def test_what_github_reads(schema: str) -> None:
    words = ["check-jsonschema", "--builtin-schema", f"vendor.github-{schema}", *map(str, SCHEMAS[schema])]
    done = subprocess.run(
        [sys.executable, "-m", words[0].replace("-", "_"), *words[1:]], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", SCHEMAS["workflows"], ids=lambda path: path.name)
def test_actions_are_pinned_and_rights_are_few(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    used = re.findall(r"uses: (\S+)", text)
    assert used and all(re.fullmatch(r"actions/[\w-]+@[0-9a-f]{40}", one) for one in used)
    workflow = yaml.safe_load(text)
    assert workflow["permissions"] == {"contents": "read"}
    assert "secrets." not in text
    rights = {name: job["permissions"] for name, job in workflow["jobs"].items() if "permissions" in job}
    assert rights == ({"publish": {"contents": "read", "id-token": "write"}} if path.name == "release.yml" else {})


def test_forms_ask_for_what_an_answer_needs() -> None:
    for path in SCHEMAS["issue-forms"]:
        fields = {field["id"]: field for field in yaml.safe_load(path.read_text(encoding="utf-8"))["body"]}
        required = {name for name, field in fields.items() if field.get("validations", {}).get("required")}
        version = fields.get("installation", fields.get("version"))
        assert version is not None and version["id"] in required
        assert version["attributes"]["label"] in ("zerocfg info", "zerocfg --version")
        assert {"config", "bad"} & required
