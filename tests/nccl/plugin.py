"""Tests on several ranks run twice: with gloo as it is, and with the double of NCCL.

A conftest imports `pytest_generate_tests` and `collectives`. The marker ``several_ranks`` stands at every test that
starts a job of two ranks or more; it fails where it is missing, and where no such job was started.
"""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator

import pytest

from . import variables
from .exempt import EXEMPT

MARK = "several_ranks"


def name_of(item: pytest.Item) -> str:
    """Module and name, without parameters."""
    return item.nodeid.partition("[")[0].removeprefix("tests/")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker(MARK) is not None:
        kinds = ["gloo"] if name_of(metafunc.definition) in EXEMPT else ["gloo", "nccl"]
        metafunc.parametrize("collectives", kinds, indirect=True)


@pytest.fixture(autouse=True)
def collectives(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The manners of the collectives in what a test starts: "gloo" or "nccl"."""
    kind: str = getattr(request, "param", "gloo")
    marked = request.node.get_closest_marker(MARK) is not None
    if request.node.get_closest_marker("libs") is None:
        assert not marked, f"only a test that is marked libs can be marked {MARK}"
        yield kind
        return
    with (
        tempfile.TemporaryDirectory(prefix="zerocfg-launches-", dir="/tmp") as folder,  # a socket's path is short
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notes,
    ):
        notes.bind(f"{folder}/notes")
        for variable, value in variables(kind == "nccl", f"{folder}/notes").items():
            monkeypatch.setenv(variable, value)
        yield kind
        notes.setblocking(False)
        try:
            started = notes.recv(200).decode()
        except BlockingIOError:
            started = ""
    if started and not marked:
        pytest.fail(f"starts several ranks, so mark it {MARK}: {started}", pytrace=False)
    others = set(request.node.callspec.params) if hasattr(request.node, "callspec") else set()
    if marked and not started and others <= {"collectives"}:  # of a test with other parameters, some may start none
        pytest.fail(f"is marked {MARK} and starts no job of several ranks", pytrace=False)
