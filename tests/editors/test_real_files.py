"""Good files stay clean in an editor: the examples, what builds emit, and real files of public repositories."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.editors.servers import Editor
from tests.models.editor_schemas import FOLDER
from zerocfg.linter.engine import lint_runs
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs

SERVICE = Path(__file__).with_name("service.mjs")


def underlined(schema: str, documents: dict[str, str]) -> dict[str, list[tuple[int, str]]]:
    """Lines and messages of the JSON service that VS Code has today, by name of the document."""
    given = {"schema": (FOLDER / f"{schema}.json").read_text(encoding="utf-8"), "documents": documents}
    done = subprocess.run(
        ["node", str(SERVICE)], input=json.dumps(given), capture_output=True, encoding="utf-8", timeout=120, check=True
    )
    return {name: [(line, message) for line, message in told] for name, told in json.loads(done.stdout).items()}


def linted(path: Path, folder: Path) -> set[int]:
    """The lines of a file, alone in a folder, that the linter says something about."""
    folder.mkdir()
    copy = folder / path.name
    copy.write_bytes(path.read_bytes())
    runs, asked = find_runs([copy], Files(), root=folder)
    return {found.span.start.line for found in lint_runs(runs, asked=asked).diagnostics}


def corpus_files(corpus: Path, kind: str) -> dict[str, Path]:
    with (corpus / "INDEX.tsv").open(encoding="utf-8", newline="") as index:
        rows = [row for row in csv.DictReader(index, delimiter="\t") if row["kind"].startswith(kind)]
    return {f"{row['repo']}/{row['path']}": corpus / row["repo"].replace("/", "__") / row["path"] for row in rows}


def test_examples_and_what_they_build_are_clean(yaml_editor: Editor, root: Path) -> None:
    folders = [folder for folder in (root / "examples").iterdir() if folder.is_dir() and folder.name != "pitfalls"]
    documents = {str(path): path.read_text(encoding="utf-8") for f in folders for path in f.glob("**/ds_config*.json")}
    assert len(documents) > 20
    assert {name: told for name, told in underlined("deepspeed", documents).items() if told} == {}
    names = ("accelerate.yaml", "zerocfg.yaml")
    paths = [path for folder in folders for name in names for path in folder.glob(f"**/{name}")]
    assert len(paths) > 30
    told = yaml_editor.all_diagnostics({str(path): (path.name, path.read_text(encoding="utf-8")) for path in paths})
    assert {path: [each.message for each in problems] for path, problems in told.items() if problems} == {}


def test_deepspeed_configs_of_others(corpus: Path, tmp_path: Path, count: Callable[[str, int], None]) -> None:
    """Whatever an editor underlines, the linter reports in the same line."""
    files = {name: path for name, path in corpus_files(corpus, "deepspeed").items() if path.suffix == ".json"}
    texts = {name: path.read_text(encoding="utf-8", errors="replace") for name, path in files.items()}
    told = underlined("deepspeed", texts)
    assert len(told) > 100
    for number, (name, problems) in enumerate(told.items()):
        if problems:
            lines = linted(files[name], tmp_path / str(number))
            assert {line for line, _ in problems} <= lines, (name, problems)
    assert sum(not problems for problems in told.values()) > 90
    count("real files in an editor", len(told))


@pytest.mark.parametrize(
    ("kind", "schema", "least"), [("accelerate", "accelerate", 50), ("trainer-recipe", "trl", 100)]
)
def test_yaml_files_of_others(
    yaml_editor: Editor,
    corpus: Path,
    tmp_path: Path,
    kind: str,
    schema: str,
    least: int,
    count: Callable[[str, int], None],
) -> None:
    files = {name: path for name, path in corpus_files(corpus, kind).items() if path.suffix != ".json"}
    line = f"# yaml-language-server: $schema={(FOLDER / f'{schema}.json').as_uri()}\n"
    texts = {name: path.read_text(encoding="utf-8", errors="replace") for name, path in files.items()}
    told = yaml_editor.all_diagnostics({name: ("any.yaml", line + text) for name, text in texts.items()})
    for number, (name, problems) in enumerate(told.items()):
        if problems:
            lines = linted(files[name], tmp_path / str(number))
            here = {problem.range.start.line: problem.message for problem in problems}  # one line is in front
            assert set(here) <= lines, (name, here)
    clean = sum(not problems for problems in told.values())
    assert clean > least
    count("real files in an editor", len(files))
