"""The picture of the packages: fresh, and true to a graph that was drawn by hand."""

from __future__ import annotations

import re

import pytest

from tests.conftest import ROOT

pytest.importorskip("grimp")

from tools.package_picture import FILE, drawing, floors, imports, reduced

EDGES = {
    "cli": {"lsp", "workspace", "source"},
    "lsp": {"workspace", "source"},
    "workspace": {"source"},
    "source": set(),
    "tracer": set(),
}


def test_the_picture_is_fresh() -> None:
    assert FILE.read_text(encoding="utf-8") == drawing(imports()), "python -m tools.package_picture"


def test_every_package_is_in_it() -> None:
    packages = {path.parent.name for path in (ROOT / "zerocfg").glob("*/__init__.py")}
    assert set(re.findall(r"<text [^>]*>(\w+)<", FILE.read_text(encoding="utf-8"))) == {
        *packages,
        *("api", "guard", "pytest_plugin"),
    }


def test_arrows_that_follow_from_others_are_left_out() -> None:
    assert reduced(EDGES) == {
        "cli": {"lsp"},
        "lsp": {"workspace"},
        "workspace": {"source"},
        "source": set(),
        "tracer": set(),
    }


def test_a_package_lies_above_all_that_it_imports() -> None:
    assert floors(EDGES) == {"cli": 3, "lsp": 2, "workspace": 1, "source": 0, "tracer": 0}
    assert floors({**EDGES, "source": {"tracer"}}) == {"cli": 4, "lsp": 3, "workspace": 2, "source": 1, "tracer": 0}


def test_imports_of_a_known_module_are_seen() -> None:
    """`zerocfg/lsp/checking.py` imports the job of the workspace, and nothing of the editor is known to `source`."""
    edges = imports()
    assert "workspace" in edges["lsp"] and "cli" not in edges["lsp"]
    assert edges["source"] == edges["tracer"] == set()
