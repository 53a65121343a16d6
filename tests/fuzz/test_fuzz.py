"""The campaign itself, in little: it plays, it notices, it makes small; and what once broke is replayed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from random import Random

import pytest

from tests.fuzz.__main__ import CAMPAIGNS, KEPT, by_name
from tests.fuzz.campaign import BrokenError, Campaign, keep, kept, put
from tests.fuzz.editor import MALFORMED, NIGHTLY, session
from tests.fuzz.play import PEAK_BYTES, Played, breaks, input_of, keep_broken, play

BROKEN = sorted(KEPT.glob("*.json"))


@pytest.mark.parametrize("path", BROKEN, ids=[path.stem for path in BROKEN])
def test_what_once_broke_does_no_more(path: Path) -> None:
    name, seed, files = kept(path)
    assert breaks(by_name(name), seed, files) == ""


@pytest.mark.parametrize("name", [one.name for one in CAMPAIGNS])
def test_a_campaign_plays(name: str) -> None:
    campaign = by_name(name)
    size = 20 if campaign.nightly > 50_000 else 1 if campaign.name == "hash-seeds" else 3
    *_, found = play(campaign, "test", size)
    assert found.count == size
    assert found.broken == []


def test_sizes_of_the_night() -> None:
    nightly = {one.name: one.nightly for one in CAMPAIGNS}
    assert sum(size for name, size in nightly.items() if name.startswith("read-")) >= 1_000_000
    assert (nightly["lint"], nightly["fixes"]) == (100_000, 20_000)
    assert NIGHTLY == 100_000
    assert nightly["shell-edits"] >= 5_000
    assert nightly["killed-builds"] + nightly["killed-fixes"] >= 2_000


def _strict(folder: Path, random: Random) -> None:
    data = (folder / "a").read_bytes()
    if b"!" in data:
        raise BrokenError("a mark")
    if b"?" in data:
        raise KeyError("who")
    if b"~" in data:
        os.kill(os.getpid(), signal.SIGKILL)
    if b"@" in data:
        bytearray(PEAK_BYTES + (64 << 20))


TEXTS = (b"fine", b"so " * 50 + b"!" + b" so" * 50, b"what?", b"gone~", b"at @ home", b"fine")
STRICT = Campaign("strict", 6, 6, lambda random: {"a": random.choice(TEXTS), "b": b"nothing"}, _strict)


def test_whatever_goes_wrong_is_noticed_and_the_rest_is_played() -> None:
    expected = {b"!": "a mark", b"?": "KeyError: 'who'", b"~": "the process ended by SIGKILL", b"@": "MiB for"}
    *_, found = play(STRICT, "s", 40)
    assert found.count == 40
    told = dict(found.broken)
    for number in range(40):
        text = input_of(STRICT, "s", number)["a"]
        wanted = next((words for sign, words in expected.items() if sign in text), None)
        assert (number in told) == (wanted is not None)
        assert wanted is None or wanted in told[number]


@pytest.mark.parametrize(("sign", "why"), [(b"!", "a mark"), (b"@", "MiB for 1 bytes")])
def test_what_breaks_is_made_small_and_replays(sign: bytes, why: str, tmp_path: Path) -> None:
    number = next(one for one in range(100) if sign in input_of(STRICT, "s", one)["a"])
    path = keep_broken(STRICT, "s", number, why, tmp_path)
    name, seed, files = kept(path)
    assert (name, seed, files) == ("strict", f"s/strict/{number}", {"a": sign})
    assert why in breaks(STRICT, seed, files)


@pytest.mark.parametrize("where", ["zerocfg.terminal.streams.harmless", "zerocfg.report.formats.harmless"])
def test_what_a_terminal_would_obey_is_noticed(where: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = b'{"train_batch_size": "x", "\\u001b]0;PWN\\u0007": 1}'
    line = b"deepspeed train.py --deepspeed_config ds.json\n"
    recipe = b'output_dir: out\nper_device_train_batch_size: 1\ndeepspeed: {"\\u001b]0;PWN\\u0007": 1}\n'
    put({"odd.json": config, "ds.json": config, "run.sh": line, "recipe.yaml": recipe}, tmp_path)
    monkeypatch.chdir(tmp_path)
    check = by_name("terminals").check
    check(tmp_path, Random(0))
    monkeypatch.setattr("zerocfg.terminal.streams.harmless", lambda text, **_: text)
    monkeypatch.setattr(where, lambda text, **_: text)
    with pytest.raises(BrokenError, match=r"prints U\+001B"):
        check(tmp_path, Random(0))


def test_bytes_of_all_kinds_are_kept(tmp_path: Path) -> None:
    files = {"a.json": b"\xff\x00", "b/c.sh": "é\n".encode(), "d": b""}
    keep(tmp_path / "x.json", "lint", "s", "why", files)
    assert kept(tmp_path / "x.json") == ("lint", "s", files)


def test_the_same_seed_makes_the_same_inputs() -> None:
    for campaign in CAMPAIGNS:
        assert input_of(campaign, "a", 3) == input_of(campaign, "a", 3)
    assert isinstance(Played().broken, list)


def test_a_session_of_an_editor(tmp_path: Path) -> None:
    *_, found = session(tmp_path, 40, Random(0))
    due = sum(number is not ... for _, number in MALFORMED)
    assert (found.edits, found.answers) == (40, 4 + due)
