"""What was typed over is gone: a session of days must not fill the memory."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path

from lsprotocol import types as lsp

from zerocfg.lsp.checking import Project
from zerocfg.lsp.documents import Document
from zerocfg.lsp.server import make_server
from zerocfg.run.model import SourceFile

OTHERS = {
    "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 8\ndeepspeed_config:\n"
    "  deepspeed_config_file: ds.json\n",
    "run.sh": "pip install deepspeed==0.16.9\naccelerate launch --config_file accelerate.yaml train.py\n",
    "train.py": "from accelerate import Accelerator\nAccelerator().prepare(None)\n",
}


def test_of_many_versions_of_a_file_the_last_is_kept(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    for name, text in OTHERS.items():
        (tmp_path / name).write_text(text)
    project = Project(str(tmp_path))
    for name, text in (("ds.json", '{"bf16": {"enabeld": %d}}\n'), ("run.sh", OTHERS["run.sh"] + "# %d\n")):
        path = tmp_path / name
        path.write_text(text % 0)
        for version in range(20):
            document = Document(path.as_uri(), text % version, version, str(path))
            snapshot = project.check([document])
        assert snapshot.looks
        gc.collect()
        alive = {one.source.text for one in gc.get_objects() if isinstance(one, SourceFile) and one.path == path}
        assert text % 19 in alive
        assert len(alive) <= 3, "the latest look, and the last runs that rules asked about"


async def _notified() -> None:
    protocol = make_server().protocol
    for _ in range(3):
        protocol._handle_notification(lsp.WORKSPACE_DID_CHANGE_CONFIGURATION, lsp.DidChangeConfigurationParams({}))
    assert len(protocol._request_futures) > 0, "pygls keeps what is under way"
    for _ in range(20):
        await asyncio.sleep(0)
    assert protocol._request_futures == {}


def test_what_was_done_for_a_notification_is_forgotten() -> None:
    asyncio.run(_notified())
