"""The sdist and the wheel are complete, and bring nothing that was not asked for."""

from __future__ import annotations

import re
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

from tests.conftest import ROOT
from tests.install.conftest import SHIPPED, Distributions, Environment

CORE = {"click", "pydantic", "pyyaml", "ruamel-yaml", "jsonschema", "packaging", "tomlkit"}
FOR_EXTRAS = {"torch", "numpy", "deepspeed", "accelerate", "transformers", "safetensors", "ninja", "trl"}
FOR_EXTRAS |= {"matplotlib", "jinja2", "pygls", "lsprotocol", "mkdocs", "nvidia-ml-py", "amdsmi", "rich", "pytest"}


def _files(folder: str) -> set[str]:
    """Of a package folder, as they are here."""
    found = (path for path in (ROOT / folder).rglob("*") if path.is_file() and "__pycache__" not in path.parts)
    return {path.relative_to(ROOT).as_posix() for path in found}


def test_the_wheel_holds_every_file(dist: Distributions) -> None:
    names = set(zipfile.ZipFile(dist.wheel).namelist())
    schemas = {f"zerocfg/{name}" for name in _files("schemas")}
    pages = {f"zerocfg/rulebook/pages/{name.rpartition('/')[2]}" for name in _files("docs/rules")}
    missing = (_files("zerocfg") | schemas | pages) - names
    assert not missing
    assert {"zerocfg/py.typed", "zerocfg/run/widths.json", "zerocfg/page/templates/page.html"} <= names
    assert "zerocfg/schemas/deepspeed.json" in names
    info = f"{dist.wheel.name.split('-py3')[0]}.dist-info"
    assert {f"{info}/licenses/LICENSE", f"{info}/entry_points.txt"} <= names
    others = {name for name in names if not name.startswith(("zerocfg/", f"{info}/"))}
    assert not others, "top-level packages of others"


def test_the_sdist_holds_what_a_build_needs(dist: Distributions) -> None:
    with tarfile.open(dist.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert not (_files("zerocfg") | _files("schemas") | _files("docs/rules")) - names
    assert {name for name in SHIPPED if (ROOT / name).is_file() and not name.startswith(".")} <= names


def test_what_the_metadata_says(dist: Distributions) -> None:
    with zipfile.ZipFile(dist.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode("utf-8"))
    assert metadata["License-Expression"] == "Apache-2.0" and "A compiler and linter" in str(metadata.get_payload())
    always = [line for line in metadata.get_all("Requires-Dist") or [] if "extra ==" not in line]
    assert {_name(line) for line in always} == CORE | {"tomli"}
    extras = set(metadata.get_all("Provides-Extra") or []) - {"dev", "test"}
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    table = readme[readme.index("| extra |") : readme.index("A command whose extra is missing")]
    rows = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    assert extras == {extra for row in rows for extra in re.findall(r"`([^`]+)`", row)}


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement)[0].lower().replace("_", "-").replace(".", "-")


def test_an_empty_environment_gets_the_core_alone(installed: Environment) -> None:
    assert {"zerocfg", *CORE} <= installed.packages
    assert not installed.packages & FOR_EXTRAS
    assert len(installed.packages) < 20, installed.packages


def test_the_package_is_typed_for_its_users(installed: Environment) -> None:
    (folder,) = installed.root.glob("**/site-packages/zerocfg")
    assert (folder / "py.typed").is_file() and not Path(folder, "tests").exists()
