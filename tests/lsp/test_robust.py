"""What a language server must live through: broken texts, odd files, fast typing, clients that vanish."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types as lsp

from tests.lsp.editor import Editor, editor

_BROKEN = [
    "",
    "{",
    '{"zero_optimization": {"stage": ',
    '{"zero_optimization": [[[[',
    "\x00\x01\x02 train_batch_size",
    "distributed_type: [\n  deepspeed_config: {",
    "deepspeed_config: *nothing\n",
    "\t\tbf16: yes\n",
    '{"bf16": "\\ud800", "train_batch_size": 1}',
    "bf16: " + "[" * 3000,
    '{"bf16": ' * 2000,
    "\ufeff{}",
]


def _git(folder: Path) -> Path:
    (folder / ".git").mkdir()
    return folder


async def _everything(ed: Editor, name: str) -> None:
    """Every question there is, at the end of the text."""
    text = ed.texts[ed.path(name)]
    at = lsp.Position(text.count("\n"), len(text) - text.rfind("\n") - 1)
    await ed.client.text_document_hover_async(lsp.HoverParams(ed.id(name), at))
    await ed.client.text_document_completion_async(lsp.CompletionParams(ed.id(name), at))
    await ed.client.text_document_definition_async(lsp.DefinitionParams(ed.id(name), at))
    await ed.client.text_document_document_link_async(lsp.DocumentLinkParams(ed.id(name)))
    await ed.actions(name)


async def _session(folder: Path, elsewhere: Path) -> None:
    async with editor(folder) as ed:
        assert ed.encoding == "utf-16"
        await _columns(ed)
        await _broken_texts(ed)
        await _odd_files(ed, elsewhere)
        await _fast_typing(ed)
        await _settings(ed)


async def _broken_texts(ed: Editor) -> None:
    for name in ("ds_config.json", "accelerate.yaml"):
        ed.open(name, "")
        for text in _BROKEN:
            ed.type(name, text)
            await _everything(ed, name)
    ed.type("ds_config.json", '{"train_batch_size": 8, "bf16": {"enabeld": true}}\n')
    ed.type("accelerate.yaml", "")
    await ed.until(lambda: ed.codes("ds_config.json") == ["ZC101"])


async def _odd_files(ed: Editor, elsewhere: Path) -> None:
    # A file that is no UTF-8, of which an editor shows a guess.
    ed.path("recipe.yaml").write_bytes("output_dir: größe\nper_device_train_batch_size: 1\n".encode("latin-1"))
    spec = (
        "version: 1\nruns:\n  a:\n    consumer: transformers\n    recipe: recipe.yaml\n    deepspeed: ds_config.json\n"
    )
    ed.save("ds_config.json")
    ed.open("zerocfg.yaml", spec)
    ed.open("recipe.yaml", "output_dir: gr\ufffde\nper_device_train_batch_size: 1\n")
    await ed.until(lambda: ed.codes("recipe.yaml") == ["ZC001"])
    assert "not UTF-8" in ed.shown[ed.path("recipe.yaml")][0].message
    # It is gone, and the editor is told.
    ed.close("recipe.yaml")
    ed.path("recipe.yaml").unlink()
    event = lsp.FileEvent(ed.path("recipe.yaml").as_uri(), lsp.FileChangeType.Deleted)
    ed.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([event]))
    await ed.until(lambda: any("recipe.yaml" in one.message for one in ed.shown.get(ed.path("zerocfg.yaml"), ())))
    assert ed.codes("recipe.yaml") == []
    ed.close("zerocfg.yaml")
    # A file outside of the workspace, one without a name, one that is no file at all.
    other = elsewhere / "ds config.json"
    other.write_text('{"train_batch_size": 8, "bf16": {"enabeld": true}}\n')
    ed.open(str(other))
    await ed.until(lambda: ed.codes(str(other)) == ["ZC101"])
    ed.client.text_document_did_open(
        lsp.DidOpenTextDocumentParams(
            lsp.TextDocumentItem("untitled:Untitled-1", "json", 1, '{"zero_optimization": {"')
        )
    )
    nameless = lsp.TextDocumentIdentifier("untitled:Untitled-1")
    answer = await ed.client.text_document_completion_async(lsp.CompletionParams(nameless, lsp.Position(0, 24)))
    assert "stage" in {item.label for item in answer.items}
    # Data that somebody opened: looked at by nobody.
    ed.open("data.json", '{"train_batch_size": [' + "1, " * 600_000 + "1]}")
    await ed.until(lambda: any("data.json is longer than" in line for line in ed.log))
    await _everything(ed, "data.json")
    assert ed.codes("data.json") == []
    ed.close("data.json")


async def _fast_typing(ed: Editor) -> None:
    await ed.settled()
    ed.published.clear()
    for _ in range(20):  # one that is answered sooner than its end is asked for is not cancelled
        for number in range(60):
            ed.type("ds_config.json", '{"train_batch_size": 8, "bf16": {"enabel' + "d" * number + '": true}}\n')
        if await _cancelled(ed):
            break
        await ed.settled()
        ed.published.clear()
    else:
        pytest.fail("twenty requests, and none was cancelled")
    ed.type("ds_config.json", '{"train_batch_size": 8, "bf16": {"enabled": true}}\n')
    await ed.settled()
    path = ed.path("ds_config.json")
    versions = [version for one, version in ed.published if one == path]
    assert ed.codes("ds_config.json") == [] and versions[-1] == ed.versions[path]
    assert len(versions) <= 15, "not every letter is looked at"


async def _cancelled(ed: Editor) -> bool:
    """Whether a request that the editor takes back at once ends as cancelled, rather than with its answer."""
    hover = ed.client.protocol.send_request(
        lsp.TEXT_DOCUMENT_HOVER, lsp.HoverParams(ed.id("ds_config.json"), lsp.Position(0, 3))
    )
    asked = next(id for id, future in ed.client.protocol._request_futures.items() if future is hover)
    ed.client.cancel_request(lsp.CancelParams(asked))
    try:
        await asyncio.wrap_future(hover)
    except Exception as error:
        assert "cancel" in str(error).lower()
        return True
    return False


async def _settings(ed: Editor) -> None:
    """Settings are those of `zerocfg lint`; ones that make no sense are told once."""
    ed.type("ds_config.json", '{"train_batch_size": 8, "bf16": {"enabeld": true}}\n')
    await ed.until(lambda: ed.codes("ds_config.json") == ["ZC101"])
    ed.path("zerocfg.toml").write_text('ignore = ["ZC101"]\n')
    ed.save("ds_config.json")
    await ed.until(lambda: ed.codes("ds_config.json") == [])
    ed.path("zerocfg.toml").write_text("ignore = [\n")
    ed.save("ds_config.json")
    await ed.until(lambda: any("zerocfg.toml" in line for line in ed.log))
    ed.path("zerocfg.toml").unlink()
    ed.save("ds_config.json")
    await ed.until(lambda: ed.codes("ds_config.json") == ["ZC101"])


def test_it_lives_through_everything(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = _git(tmp_path_factory.mktemp("work"))
    asyncio.run(_session(folder, tmp_path_factory.mktemp("elsewhere")))


async def _columns(ed: Editor) -> None:
    """Ranges, positions and edits behind characters that take more than one unit."""
    name = "umlaut.json"
    ed.open(name, '{"größe 🚀🚀": 1, "train_batch_size": 8, "bf16": {"enabeld": true}}\r\n')
    await ed.until(lambda: "ZC101" in ed.codes(name))
    found = {str(one.code): one for one in ed.shown[ed.path(name)]}
    assert ed.text_at(name, found["ZC101"].range) == '"enabeld"'
    assert ed.text_at(name, found["ZC102"].range) == '"größe 🚀🚀"'
    assert "(samples)" in await ed.hover(name, '"train_batch', "_size")
    [everything] = await ed.actions(name, only=["source.fixAll.zerocfg"])
    [fixed] = ed.applied(everything.edit).values()
    assert '"größe 🚀🚀": 1' in fixed and '{"enabled": true}}\r\n' in fixed
    ed.close(name)


async def _encoded(folder: Path, encoding: str) -> None:
    general = lsp.GeneralClientCapabilities(position_encodings=[lsp.PositionEncodingKind(encoding)])
    async with editor(folder, lsp.ClientCapabilities(general=general)) as ed:
        assert ed.encoding == encoding
        await _columns(ed)


def test_columns_are_counted_as_agreed(tmp_path: Path) -> None:
    asyncio.run(_encoded(_git(tmp_path), "utf-8"))


def _message(**words: Any) -> bytes:
    body = json.dumps({"jsonrpc": "2.0", **words}).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


_HELLO = _message(id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": {}})
_BYE = _message(method="exit")


@pytest.mark.parametrize(
    ("said", "listening"),
    [
        pytest.param(
            _HELLO + b"hello\r\n\r\nContent-Length: 5\r\n\r\n{{{{{" + _BYE, True, id="no farewell, and rubbish"
        ),
        pytest.param(_HELLO, False, id="nobody reads the answers"),
    ],
)
def test_a_client_that_vanishes_leaves_no_server_behind(said: bytes, listening: bool) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "zerocfg", "lsp"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={key: value for key, value in os.environ.items() if key != "ZEROCFG_TRACEBACK"},
    ) as process:
        assert process.stdin is not None and process.stdout is not None and process.stderr is not None
        if not listening:
            process.stdout.close()
        process.stdin.write(said)
        process.stdin.flush()
        try:
            assert process.wait(60) == 1
        finally:
            process.kill()
        assert process.stderr.read() == b""
