"""An editing session from the first file to the last, over standard input and output with a real client."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from lsprotocol import types as lsp

from tests.lsp import inside
from tests.lsp.editor import Editor, editor

Start = Callable[[Path, lsp.ClientCapabilities], AbstractAsyncContextManager[Editor]]

_CAPABILITIES = lsp.ClientCapabilities(
    workspace=lsp.WorkspaceClientCapabilities(
        workspace_edit=lsp.WorkspaceEditClientCapabilities(document_changes=True),
        did_change_watched_files=lsp.DidChangeWatchedFilesClientCapabilities(dynamic_registration=True),
    )
)


def _lint_fix(folder: Path, copy: Path, name: str) -> dict[str, str]:
    """The files that `zerocfg lint --fix NAME` leaves behind in a copy of the example."""
    shutil.copytree(folder.parent, copy)
    subprocess.run(
        [sys.executable, "-m", "zerocfg", "lint", "--fix", "--exit-zero", name],
        cwd=copy / folder.name,
        check=True,
        capture_output=True,
    )
    return {path.name: path.read_text(encoding="utf-8") for path in (copy / folder.name).iterdir() if path.is_file()}


async def _session(folder: Path, copy: Path, start: Start = editor) -> None:
    async with start(folder, _CAPABILITIES) as ed:
        ed.open("ds_config.json")
        await ed.until(lambda: "ZC201" in ed.codes("ds_config.json"))
        await _findings(ed)
        await _partner(ed)
        await _hover(ed)
        await _completion(ed)
        await _other_file(ed)
        await _syntax_error(ed)
        await _fixes(ed, copy)


async def _findings(ed: Editor) -> None:
    shown = {str(one.code): one for one in ed.shown[ed.path("ds_config.json")]}
    misspelt = shown["ZC102"]
    assert ed.text_at("ds_config.json", misspelt.range) == '"gradient_cliping"'
    assert misspelt.severity == lsp.DiagnosticSeverity.Error and misspelt.source == "zerocfg"
    assert misspelt.tags == [lsp.DiagnosticTag.Unnecessary] or misspelt.tags == (lsp.DiagnosticTag.Unnecessary,)
    assert "gradient_clipping" in misspelt.message
    page = misspelt.code_description.href
    assert "ignored-key" in Path(page.removeprefix("file://")).read_text(encoding="utf-8")
    # The other file of the disagreement is named, with its place.
    related = shown["ZC201"].related_information[0]
    assert related.location.uri == ed.path("recipe.yaml").as_uri()
    assert related.location.range.start == lsp.Position(3, 0)
    # What stands in a file that is not open but speaks of the open one is shown, too.
    assert ed.codes("accelerate.yaml") == ["ZC702"]


async def _partner(ed: Editor) -> None:
    """A correction in one file makes the finding in the other one go, unsaved."""
    ed.open("recipe.yaml")
    await ed.until(lambda: "ZC201" in ed.codes("recipe.yaml"))
    pointer = next(one for one in ed.shown[ed.path("recipe.yaml")] if one.code == "ZC201")
    assert pointer.severity == lsp.DiagnosticSeverity.Information
    assert pointer.related_information[0].location.uri == ed.path("ds_config.json").as_uri()
    ed.replace("recipe.yaml", "gradient_accumulation_steps: 8", "gradient_accumulation_steps: 4")
    await ed.until(lambda: "ZC201" not in ed.codes("ds_config.json") + ed.codes("recipe.yaml"))
    assert "gradient_accumulation_steps: 8" in ed.path("recipe.yaml").read_text(encoding="utf-8")
    ed.replace("recipe.yaml", "gradient_accumulation_steps: 4", "gradient_accumulation_steps: 8")
    await ed.until(lambda: "ZC201" in ed.codes("ds_config.json"))


async def _hover(ed: Editor) -> None:
    said = await ed.hover("ds_config.json", '"reduce_buck', "et_size")
    assert "elements" in said and "default `500000000`" in said and r"hidden_size\*\*2" in said
    said = await ed.hover("ds_config.json", '"train_micro_batch', "_size")
    assert "`train_micro_batch_size_per_gpu` = **4** from [recipe.yaml:3]" in said
    assert 'replaces "auto" from [ds_config.json:3]' in said
    # From the other side: what becomes of the recipe's key.
    assert "`train_micro_batch_size_per_gpu` = **4**" in await ed.hover("recipe.yaml", "per_device_tra", "in")


async def _completion(ed: Editor) -> None:
    ed.replace("ds_config.json", '"overlap_comm": "auto",', '"sub_group_size": \n    "round_')
    keys = await ed.complete("ds_config.json", '"round_')
    assert "round_robin_gradients" in keys and "stage" not in keys, "what is there already is not offered"
    item = keys["round_robin_gradients"]
    assert ed.text_at("ds_config.json", item.text_edit.range) == '"round_'
    assert item.text_edit.new_text == '"round_robin_gradients": '
    values = await ed.complete("ds_config.json", '"sub_group_size": ')
    assert list(values) == ["1000000000"]
    await ed.until(lambda: ed.codes("ds_config.json") == ["ZC002"])
    ed.type("ds_config.json", ed.path("ds_config.json").read_text(encoding="utf-8"))
    ed.replace("ds_config.json", '"stage": "3"', '"stage": ')
    assert list(await ed.complete("ds_config.json", '"stage": ')) == ["0", "1", "2", "3", "auto"]
    ed.type("ds_config.json", ed.path("ds_config.json").read_text(encoding="utf-8"))


async def _other_file(ed: Editor) -> None:
    ed.open("accelerate.yaml")
    found = await ed.definition("accelerate.yaml", "deepspeed_config_file: ds_con", "fig.json")
    assert [one.uri for one in found] == [ed.path("ds_config.json").as_uri()]
    # From a value that another file decides to where it is decided.
    found = await ed.definition("ds_config.json", '"train_micro_batch', "_size")
    assert [(one.uri, one.range.start.line) for one in found] == [(ed.path("recipe.yaml").as_uri(), 2)]
    ed.open("train.sh")
    params = lsp.DocumentLinkParams(ed.id("train.sh"))
    links = await ed.client.text_document_document_link_async(params)
    assert {ed.text_at("train.sh", one.range): Path(one.target).name for one in links} == {
        "zero2.yaml": "zero2.yaml",
        "zero3.yaml": "zero3.yaml",
        "../quickstart/train.py": "train.py",
    }


async def _syntax_error(ed: Editor) -> None:
    whole = ed.texts[ed.path("recipe.yaml")]
    ed.type("recipe.yaml", whole.replace("bf16: false", "bf16: [fal"))
    await ed.until(lambda: ed.codes("recipe.yaml") == ["ZC002"])
    assert "Peak learning rate" in await ed.hover("recipe.yaml", "learn", "ing_rate"), "keys are known all the same"
    ed.type("recipe.yaml", whole)
    await ed.until(lambda: "ZC002" not in ed.codes("recipe.yaml"))


async def _fixes(ed: Editor, copy: Path) -> None:
    await ed.settled()
    [fix, *_] = await ed.actions("ds_config.json", "ZC102")
    assert fix.title == "Rename the key to gradient_clipping (ZC102)" and fix.is_preferred
    after = ed.applied(fix.edit)
    path = ed.path("ds_config.json")
    assert after == {path: ed.texts[path].replace("gradient_cliping", "gradient_clipping")}
    [unsafe, *_] = await ed.actions("ds_config.json", "ZC201")
    assert "unsafe" in unsafe.title and not unsafe.is_preferred and unsafe.kind == "quickfix"
    assert "then ZC201 in accelerate.yaml" in unsafe.title, "the accelerate config says 4, too"
    # Everything that is safe at once: the same as the command line does.
    [everything] = await ed.actions("ds_config.json", only=["source.fixAll"])
    assert everything.kind == "source.fixAll.zerocfg"
    after = ed.applied(everything.edit)
    expected = _lint_fix(ed.folder, copy, "ds_config.json")
    assert after[path] == expected["ds_config.json"] != ed.texts[path]
    assert {one.name: text for one, text in after.items()}.items() <= expected.items()
    ed.type("ds_config.json", after[path])
    await ed.until(lambda: "ZC102" not in ed.codes("ds_config.json"))
    # A comment where there is place for one.
    await ed.settled()
    ignore = next(one for one in await ed.actions("accelerate.yaml", "ZC702") if one.title.startswith("Ignore"))
    text = ed.applied(ignore.edit)[ed.path("accelerate.yaml")]
    assert "  # zerocfg: ignore[ZC702] TODO\n  zero_stage: 3" in text
    ed.type("accelerate.yaml", text)
    await ed.until(lambda: "ZC702" not in ed.codes("accelerate.yaml"))


def test_an_editing_session(pitfalls: Path, tmp_path: Path) -> None:
    asyncio.run(_session(pitfalls, tmp_path / "copy"))


def test_the_same_session_with_the_server_in_this_process(pitfalls: Path, tmp_path: Path) -> None:
    asyncio.run(_session(pitfalls, tmp_path / "copy", inside.editor))
