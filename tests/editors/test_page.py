"""What docs/editors.md says is so: its commands, its table of patterns, its example."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.editors.servers import Editor
from tests.models.editor_schemas import FOLDER
from zerocfg.models.editor.listing import LISTED

TEXT = (Path(__file__).parents[2] / "docs" / "editors.md").read_text(encoding="utf-8")


def test_the_table_names_every_schema_and_pattern() -> None:
    rows = dict(re.findall(r"^\| `([\w-]+)` \|.*\| (.*) \|$", TEXT, re.M))
    assert set(rows) == {listed.name for listed in LISTED}
    for listed in LISTED:
        for pattern in listed.matches:
            name = pattern.replace("**/", "~/.cache/") if "/" in pattern else pattern.replace(".yml", ".yaml")
            assert f"`{name}`" in rows[listed.name], pattern
        assert bool(listed.matches) == ("`" in rows[listed.name])


@pytest.mark.parametrize("block", re.findall(r"```console\n(.*?)```", TEXT, re.S))
def test_its_commands_run(block: str, tmp_path: Path) -> None:
    for line in block.splitlines():
        words, _, target = line.removeprefix("$ ").partition(" > ")
        if words.startswith("mkdir"):
            (tmp_path / words.split()[-1]).mkdir()
            continue
        assert words.startswith("zerocfg schema ")
        done = subprocess.run([sys.executable, "-m", *words.split()], capture_output=True, cwd=tmp_path, check=True)
        assert done.stdout
        if target:
            name = Path(target).name
            (tmp_path / target).write_bytes(done.stdout)
            assert done.stdout == (FOLDER / name).read_bytes()


def test_its_example_is_read_with_the_copy_beside_it(yaml_editor: Editor) -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", TEXT, re.S)
    folder = yaml_editor.next_folder()
    (folder / ".schemas").mkdir(parents=True)
    (folder / ".schemas" / "accelerate.json").write_bytes((FOLDER / "accelerate.json").read_bytes())
    (told,) = yaml_editor.diagnostics("any.yaml", example.replace("MULTI_GPU", "MULTI_GPUS"))
    assert '"MULTI_GPU"' in told.message
