"""The files in schemas/ are what the models compile to; `zerocfg schema` prints, writes and checks them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from zerocfg.cli.commands.schema import command
from zerocfg.models.editor.listing import CATALOG, EDITOR_SCHEMAS, catalog_text, editor_text
from zerocfg.models.schema import ENTRIES, SCHEMAS, compile_schema, schema_text

FOLDER = Path(__file__).parents[2] / "schemas"


def test_there_is_a_file_for_each_schema_and_no_other() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == set(SCHEMAS)
    assert len(ENTRIES) == len(SCHEMAS)


@pytest.mark.parametrize("name", SCHEMAS)
def test_the_file_is_fresh(name: str) -> None:
    found = (FOLDER / f"{name}.json").read_bytes().decode("utf-8")
    assert found == schema_text(name), f"stale; run: zerocfg schema --write {FOLDER.name}"


@pytest.mark.parametrize("name", EDITOR_SCHEMAS)
def test_the_file_for_editors_is_fresh(name: str) -> None:
    found = (FOLDER / "editor" / f"{name}.json").read_bytes().decode("utf-8")
    assert found == editor_text(name), f"stale; run: zerocfg schema --write {FOLDER.name}"


def test_the_catalogue_is_fresh() -> None:
    assert (FOLDER / "editor" / f"{CATALOG}.json").read_bytes().decode("utf-8") == catalog_text()
    assert {path.stem for path in (FOLDER / "editor").iterdir()} == {*EDITOR_SCHEMAS, CATALOG}


def test_the_text_does_not_depend_on_the_process() -> None:
    code = "from zerocfg.models.schema import schema_text; print(schema_text('deepspeed'), end='')"
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(FOLDER.parent), "PYTHONIOENCODING": "utf-8"},
            check=True,
        )
        assert done.stdout.decode() == schema_text("deepspeed")


def test_two_sections_of_one_name_are_refused() -> None:
    from zerocfg.models.base import Section, key

    def made(unit: str) -> type[Section]:
        return type("Same", (Section,), {"__annotations__": {"a": int}, "a": key(default=1, unit=unit)})

    one, two = made("ranks"), made("steps")
    root = type(
        "Root", (Section,), {"__annotations__": {"x": one, "y": two}, "x": key(default=one), "y": key(default=two)}
    )
    with pytest.raises(TypeError, match="Same"):
        compile_schema(root)


def test_an_auto_that_is_filled_needs_the_literal() -> None:
    from zerocfg.models.base import Section, key

    attributes = {"__annotations__": {"a": int}, "a": key(default=1, auto={"transformers": "learning_rate"})}
    with pytest.raises(TypeError, match="literal"):
        compile_schema(type("Root", (Section,), attributes))


def test_command_lists_and_prints() -> None:
    listed = CliRunner().invoke(command, [])
    assert listed.exit_code == 0
    assert [line.split()[0] for line in listed.output.splitlines()] == list(EDITOR_SCHEMAS)
    printed = CliRunner().invoke(command, ["deepspeed"])
    assert printed.exit_code == 0 and printed.output == editor_text("deepspeed")


def test_command_tells_how_to_bind_a_file() -> None:
    path = CliRunner().invoke(command, ["accelerate", "--path"]).output.strip()
    assert Path(path) == FOLDER / "editor" / "accelerate.json"
    yaml = CliRunner().invoke(command, ["accelerate", "--line"]).output
    assert yaml == f"# yaml-language-server: $schema={Path(path).as_uri()}\n"
    line = CliRunner().invoke(command, ["deepspeed", "--line"]).output
    bound = json.loads("{" + line + '"train_batch_size": 8}')
    assert bound["$schema"] == (FOLDER / "editor" / "deepspeed.json").as_uri()


def test_command_writes_and_checks(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "schemas"
    assert CliRunner().invoke(command, ["--check", str(folder)]).exit_code == 1
    assert CliRunner().invoke(command, ["--write", str(folder)]).exit_code == 0
    assert {path.stem for path in folder.glob("*.json")} == set(SCHEMAS)
    assert {path.stem for path in (folder / "editor").iterdir()} == {*EDITOR_SCHEMAS, "catalog"}
    assert CliRunner().invoke(command, ["--check", str(folder)]).exit_code == 0
    stale = json.loads((folder / "deepspeed.json").read_text(encoding="utf-8"))
    stale["title"] = "something else"
    (folder / "deepspeed.json").write_text(json.dumps(stale), encoding="utf-8")
    checked = CliRunner().invoke(command, ["--check", str(folder)])
    assert checked.exit_code == 1 and "deepspeed.json" in checked.output
    (folder / "deepspeed.json").write_bytes(b"\xff\xfe")
    assert CliRunner().invoke(command, ["--check", str(folder)]).exit_code == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["no-such-schema"],
        ["deepspeed", "--check", "x"],
        ["--write", "x", "--check", "x"],
        ["deepspeed", "--settings"],
        ["--line"],
        ["--path", "--settings"],
    ],
)
def test_wrong_use(arguments: list[str]) -> None:
    done = CliRunner().invoke(command, arguments)
    assert done.exit_code == 2 and "Traceback" not in done.output


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("", encoding="utf-8")
    done = CliRunner().invoke(command, ["--write", str(tmp_path / "file" / "below")])
    assert done.exit_code == 2 and "cannot write" in done.output
