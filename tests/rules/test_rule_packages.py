"""Rules of other installed packages: which are taken, what they find, and what a broken one costs.

Each test writes a package as an installer does (a module and a folder ``NAME-VERSION.dist-info``) and starts a lint.
"""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from zerocfg.rules import registry
from zerocfg.source import boundary

MODULE = """
from pathlib import Path
from zerocfg.rules.api import Severity, rule
from zerocfg.rules.subjects import deepspeed_key

Path({marker!r}).touch()


@rule("{code}", "{name}", Severity.WARNING, deepspeed_key("gradient_clipping"))
def clipping_of_acme(key):
    '''Acme clips at 1.0.

    Its models diverge otherwise.
    '''
    {body}
"""
FINDS = """if key.number is not None and key.number > 1:
        yield key.finding(f"gradients are clipped at {key.value}", "write 1.0", where="value")"""
CONFIG = {"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 2.5}
PLACE = {"file": "ds.json", "path": "gradient_clipping", "start": {"line": 3, "column": 23}}


class Package:
    """A package ``zerocfg-acme`` with one rule. ``loaded`` tells whether its module was imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marker = folder.parent / f"imported-from-{folder.name}"
        folder.mkdir(exist_ok=True)

    def write(
        self,
        distribution: str = "zerocfg_acme",
        *,
        body: str = FINDS,
        code: str = "ACME001",
        name: str = "clipping-of-acme",
        target: str = "acme_rules",
        group: str = "zerocfg.rules",
    ) -> Package:
        self.module(body, code, name)
        metadata = self.folder / f"{distribution}-1.0.dist-info"
        metadata.mkdir(exist_ok=True)
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[other]\nx = y\n\n[{group}]\nacme = {target}\n")
        return self

    def module(self, body: str = FINDS, code: str = "ACME001", name: str = "clipping-of-acme") -> None:
        text = MODULE.format(marker=str(self.marker), code=code, name=name, body=body)
        (self.folder / "acme_rules.py").write_text(text)

    @property
    def loaded(self) -> bool:
        return self.marker.exists()


@pytest.fixture
def package(tmp_path: Path) -> Package:
    return Package(tmp_path / "site")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    folder.mkdir()
    (folder / ".git").mkdir()
    (folder / "ds.json").write_text(json.dumps(CONFIG, indent=1))
    return folder


def zerocfg(repository: Path, *words: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    """The command, started in the repository; ``python -m`` has Python search the repository itself first."""
    found = os.pathsep.join([*([str(path)] if path is not None else []), str(ROOT)])
    environment = {**os.environ, "PYTHONPATH": found, "XDG_CACHE_HOME": str(repository.parent / "cache")}
    command = [sys.executable, "-m", "zerocfg", *words]
    return subprocess.run(command, cwd=repository, env=environment, capture_output=True, text=True)


def findings(repository: Path, *words: str, path: Path | None = None) -> list[dict[str, Any]]:
    done = zerocfg(repository, "lint", *words, "--output-format", "json", path=path)
    assert not done.stderr, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)["diagnostics"]
    return found


def test_a_rule_of_a_package_finds_what_it_looks_for(package: Package, repository: Path) -> None:
    package.write()
    (found,) = findings(repository, "ds.json", path=package.folder)
    assert (found["code"], found["name"], found["severity"]) == ("ACME001", "clipping-of-acme", "warning")
    assert found["message"] == "gradients are clipped at 2.5" and found["help"] == "write 1.0"
    assert {name: found[name] for name in PLACE} == PLACE
    assert found["url"] == "", "zerocfg has no page of it"
    assert findings(repository, "ds.json") == [], "without the package nothing is found"
    (repository / "ds.json").write_text(json.dumps({**CONFIG, "gradient_clipping": 1.0}))
    assert findings(repository, "ds.json", path=package.folder) == []


def test_a_rule_of_a_package_is_selected_listed_and_explained(package: Package, repository: Path) -> None:
    package.write()
    (repository / "ds.json").write_text(json.dumps({**CONFIG, "zero_optimisation": {}}, indent=1))
    for words, codes in (
        (["--select", "ACME"], ["ACME001"]),
        (["--select", "clipping-of-acme"], ["ACME001"]),
        (["--ignore", "ACME001"], ["ZC102"]),
        (["--select", "ZC"], ["ZC102"]),
        ([], ["ACME001", "ZC102"]),
    ):
        assert [one["code"] for one in findings(repository, "ds.json", *words, path=package.folder)] == codes
    assert zerocfg(repository, "lint", "--select", "ACME", "ds.json").returncode == 2, "no such rule is installed"
    rules = json.loads(zerocfg(repository, "rules", "--output-format", "json", path=package.folder).stdout)["rules"]
    (row,) = (one for one in rules if one["package"] is not None)
    assert (row["code"], row["package"], row["summary"]) == ("ACME001", "zerocfg-acme", "Acme clips at 1.0.")
    assert "ACME001  warning  zerocfg-acme" in zerocfg(repository, "rules", path=package.folder).stdout
    explained = zerocfg(repository, "explain", "ACME001", path=package.folder).stdout
    assert explained.startswith("ACME001 clipping-of-acme (warning, of the package zerocfg-acme)\n\nAcme clips at 1.0.")


@pytest.mark.parametrize("distribution", ["acme_zerocfg", "zerocfgacme", "acme", "zerocfg"])
def test_other_distributions_bring_none(package: Package, repository: Path, distribution: str) -> None:
    package.write(distribution)
    assert findings(repository, "ds.json", path=package.folder) == [] and not package.loaded


@pytest.mark.parametrize("distribution", ["zerocfg_acme", "zerocfg-acme", "Zerocfg.Acme"])
def test_names_are_compared_as_installers_do(package: Package, repository: Path, distribution: str) -> None:
    package.write(distribution)
    assert [one["code"] for one in findings(repository, "ds.json", path=package.folder)] == ["ACME001"]


def test_entry_points_of_other_groups_bring_none(package: Package, repository: Path) -> None:
    package.write(group="zerocfg.rulesets")
    assert findings(repository, "ds.json", path=package.folder) == [] and not package.loaded


@pytest.mark.parametrize("inside", [".", "vendored"])
def test_the_linted_repository_brings_none(repository: Path, inside: str) -> None:
    """Neither at its top, where ``python -m`` searches, nor in a folder that the environment names."""
    planted = Package(repository / inside).write()
    assert findings(repository, "ds.json", path=planted.folder) == [] and not planted.loaded
    assert zerocfg(repository, "rules", path=planted.folder).returncode == 0 and not planted.loaded


def test_the_linted_repository_hides_no_installed_module(package: Package, repository: Path) -> None:
    package.write()
    planted = Package(repository)
    planted.module()
    (found,) = findings(repository, "ds.json", path=package.folder)
    assert not planted.loaded and not package.loaded
    assert (found["code"], found["severity"], found["file"]) == ("ZC015", "warning", "ds.json")
    assert found["message"] == (
        "the rules of zerocfg-acme are not loaded: `acme_rules`: acme_rules would be imported from what is linted"
    )


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (
            {"body": "raise ValueError('no number\\nat all')"},
            "ACME001 of the package zerocfg-acme failed: ValueError: no number at all",
        ),
        (
            {"body": "yield 'a text'"},
            "ACME001 of the package zerocfg-acme failed: AttributeError: 'str' object has no attribute 'versions'",
        ),
        (
            {"code": "ZC401"},
            "the rule ZC401 of zerocfg-acme is not taken: a code is two to eight capitals, not beginning with ZC, and "
            "three digits",
        ),
        (
            {"name": "weights-not-saved"},
            "the rule ACME001 of zerocfg-acme is not taken: `weights-not-saved` is a rule of zerocfg",
        ),
        (
            {"target": "acme_rules:RULES"},
            "the rules of zerocfg-acme are not loaded: `acme_rules:RULES`: AttributeError: module 'acme_rules' has no "
            "attribute 'RULES'",
        ),
        (
            {"target": "acme_rules:MODULE"},
            "the rules of zerocfg-acme are not loaded: `acme_rules:MODULE`: AttributeError: module 'acme_rules' has no "
            "attribute 'MODULE'",
        ),
        (
            {"target": "acme"},
            "the rules of zerocfg-acme are not loaded: `acme`: there is no module acme",
        ),
    ],
)
def test_a_broken_package_costs_one_finding(
    package: Package, repository: Path, how: dict[str, str], message: str
) -> None:
    """In two runs; what zerocfg's own rules find is all there."""
    package.write(**how)
    for name in ("ds.json", "ds_too.json"):
        (repository / name).write_text(json.dumps({**CONFIG, "zero_optimisation": {}}))
    found = findings(repository, ".", path=package.folder)
    assert [(one["code"], one["file"]) for one in found] == [
        ("ZC015", "ds.json"),
        ("ZC102", "ds.json"),
        ("ZC102", "ds_too.json"),
    ]
    assert found[0]["message"] == message and found[0]["severity"] == "warning"


def test_of_two_rules_with_one_code_the_first_is_taken(package: Package, repository: Path) -> None:
    package.write()
    metadata = package.folder / "zerocfg_zebra-2.dist-info"
    metadata.mkdir()
    (metadata / "entry_points.txt").write_text("[zerocfg.rules]\nzebra = zebra_rules:clipping\n")
    text = (package.folder / "acme_rules.py").read_text().replace("def clipping_of_acme", "def clipping")
    (package.folder / "zebra_rules.py").write_text(text.replace("clipping-of-acme", "clipping-of-zebra"))
    found = findings(repository, "ds.json", path=package.folder)
    assert [(one["code"], one["name"]) for one in found] == [
        ("ZC015", "checked-in-part"),
        ("ACME001", "clipping-of-acme"),
    ]
    assert found[0]["message"] == "the rule ACME001 of zerocfg-zebra is not taken: `ACME001` is a rule of zerocfg-acme"


def test_no_outcome_is_kept_where_others_have_rules(package: Package, repository: Path) -> None:
    """Nobody knows what such a rule rests on: its module may have been edited."""
    package.write()
    assert "clipped at 2.5" in zerocfg(repository, "lint", "ds.json", path=package.folder).stdout
    package.module(FINDS.replace("clipped", "cut short"))
    assert "cut short at 2.5" in zerocfg(repository, "lint", "ds.json", path=package.folder).stdout


def test_an_environment_in_the_repository_is_the_users_own(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where zerocfg runs in it; of any other folder of the repository nothing is imported."""
    packages = Package(repository / "packages").write()
    monkeypatch.syspath_prepend(packages.folder)
    with boundary.reading([repository]):
        assert [rule.code for rule in registry.every() if rule.package] == [] and not packages.loaded
        monkeypatch.setattr(site, "getsitepackages", lambda: [str(packages.folder)])
        try:
            assert [rule.code for rule in registry.every() if rule.package] == ["ACME001"]
        finally:
            sys.modules.pop("acme_rules", None)
    assert packages.loaded


def test_the_package_of_the_docs_works_as_it_stands(package: Package, repository: Path) -> None:
    blocks = (ROOT / "docs" / "rule-packages.md").read_text(encoding="utf-8").split("```")
    project, module = (block.partition("\n")[2] for block in blocks if block.startswith(("toml\n", "python\n")))
    assert 'name = "zerocfg-acme"' in project and '"zerocfg.rules"]\nacme = "acme_rules"' in project
    package.write()
    (package.folder / "acme_rules.py").write_text(module)
    (found,) = findings(repository, "ds.json", path=package.folder)
    assert (found["code"], found["message"], found["severity"]) == (
        "ACME001",
        "gradients are clipped at 2.5",
        "warning",
    )
    assert {name: found[name] for name in PLACE} == PLACE
