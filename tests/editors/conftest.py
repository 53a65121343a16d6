"""Editors with the settings that ``zerocfg schema --settings`` prints."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.editors.servers import Editor
from zerocfg.cli.commands.schema import command

WRONG = {
    "json": ("ds_config.json", '{"zero_optimization": 7}\n'),
    "yaml": ("accelerate_config.yaml", "machine_rank: many\n"),
}
"""By language: a file in which the schemas find something."""


@pytest.fixture(scope="session")
def settings() -> dict[str, Any]:
    printed = CliRunner().invoke(command, ["--settings"])
    assert printed.exit_code == 0
    found: dict[str, Any] = json.loads(printed.output)
    return found


def _editor(language: str, settings: dict[str, Any], folder: Path) -> Iterator[Editor]:
    editor = Editor(language, settings, folder)
    # A server answers before it has its settings; that it has them is seen by what it underlines.
    name, wrong = WRONG[language]
    assert any(editor.diagnostics(name, wrong) for _ in range(50)), "the server never saw its settings"
    yield editor
    editor.close()


@pytest.fixture(scope="session")
def json_editor(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    yield from _editor("json", settings, tmp_path_factory.mktemp("json"))


@pytest.fixture(scope="session")
def yaml_editor(settings: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Editor]:
    yield from _editor("yaml", settings, tmp_path_factory.mktemp("yaml"))
