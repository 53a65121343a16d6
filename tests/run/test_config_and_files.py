"""The nested dict of a DeepSpeed config with the history of its values, and files that are read once each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from zerocfg.run import discover
from zerocfg.run.config import Config, NotAMappingError, any_unknown, describe, origin_of, product
from zerocfg.run.discover import Files, stamp, walk
from zerocfg.run.model import UNKNOWN, Origin, Setting

FLAG = Origin("flag", "--x")


def config(**data: Any) -> Config:
    return Config(data, lambda path: Origin("file", path=path))


def history(item: Config, name: str) -> list[tuple[object, object]]:
    """A value and those that it replaced, newest first, each with its key path or kind."""
    setting = item.setting(name)
    assert setting is not None
    return [(each.value, each.origin.path or each.origin.kind) for each in (setting, *setting.overridden)]


# --- a config ---------------------------------------------------------------------------------------------------------


def test_a_value_remembers_what_it_replaced() -> None:
    item = config(a={"b": 1}, c="auto", n=None)
    assert history(item, "a.b") == [(1, ("a", "b"))] and item.setting("a.x") is item.setting("x") is None
    item.set("a.b", 2, FLAG)
    item.set("a.b", 3, Origin("computed", "twice"))
    assert history(item, "a.b") == [(3, "computed"), (2, "flag"), (1, ("a", "b"))]
    item.set("new.deep", 5, FLAG)
    assert history(item, "new.deep") == [(5, "flag")] and item.data["new"] == {"deep": 5}
    assert item.fill("c", Setting(7, FLAG, (Setting(6, FLAG),))) is True
    assert history(item, "c") == [(7, "flag"), ("auto", ("c",)), (6, "flag")]
    assert item.fill("c", Setting(8, FLAG)) is item.fill("x", Setting(8, FLAG)) is False
    assert item.fill("a.b", Setting(8, FLAG)) is False and item.get("a.b") == 3
    found = {name: (setting.value, setting.origin.kind) for name, setting in item.settings().items()}
    assert found == {
        "a.b": (3, "computed"),
        "c": (7, "flag"),
        "n": (None, "file"),
        "new.deep": (5, "flag"),
    }
    assert list(item.leaves()) == [("a.b", 3), ("c", 7), ("n", None), ("new.deep", 5)]


def test_the_data_of_a_file_stay_as_they_are() -> None:
    data: dict[str, Any] = {"a": {"b": [1, {"c": 2}]}}
    item = Config(data, lambda path: Origin("file", path=path))
    item.set("a.d", 3, FLAG)
    item.data["a"]["b"][1]["c"] = 4
    assert data == {"a": {"b": [1, {"c": 2}]}}


def test_what_is_in_the_way_of_a_key() -> None:
    """As `dict.get` after `dict.get`, which a text or a list does not have."""
    item = config(t="text", n=None, l=[1], u=UNKNOWN, d={"u": UNKNOWN})
    for name, at in (("t.x", "t"), ("l.x.y", "l")):
        with pytest.raises(NotAMappingError) as wrong:
            item.get(name)
        assert wrong.value.name == at and not item.has(name) and item.setting(name) is None
    with pytest.raises(NotAMappingError):
        item.set("t.x", 1, FLAG)
    assert item.get("n.x", "default") == "default" and not item.has("n.x") and item.has("n") and not item.has("m")
    assert item.get("n", "default") is None and item.get("m") is None
    assert item.get("u.x.y") is item.get("d.u.x") is UNKNOWN and item.get("u.x", 3) is UNKNOWN
    assert item.hidden("u.x") == ("u",) and item.hidden("d.u.x.y") == ("d", "u") and item.hidden("d.u") is None
    hidden = item.setting("d.u.x")
    assert hidden is not None and (hidden.value, hidden.origin.path) == (UNKNOWN, ("d", "u"))
    item.set("d.u.x", 1, FLAG)
    assert history(item, "d.u.x") == [(1, "flag"), (UNKNOWN, ("d", "u"))] and item.data["d"]["u"] is UNKNOWN
    item.require_mapping("d")
    item.require_mapping("u")
    for name in ("t", "n", "m"):
        with pytest.raises(NotAMappingError, match=f"`{name}` is {describe(item.get(name))}, not a mapping"):
            item.require_mapping(name)
    assert [item.is_auto(name) for name in ("t", "u.x", "n")] == [False, False, False] and config(a="auto").is_auto("a")


def test_small_things_about_values() -> None:
    values: list[Any] = [None, "x", [], {}, 3, True]
    assert list(map(describe, values)) == ["null", "the text 'x'", "a list", "a mapping", "3", "True"]
    assert product(2, 3, 4) == 24 and product() == 1 and product(2, 0.5) == 1.0
    assert product(2, UNKNOWN) is product(True, 2) is product("2") is product(None) is UNKNOWN
    assert product(10**400, 2) == 2 * 10**400 and product(10**400, 0.5) is UNKNOWN
    assert any_unknown(1, UNKNOWN) and not any_unknown(1, None) and not any_unknown()
    assert origin_of(config(a=1), "a").path == ("a",) and origin_of(config(), "a").note == "deepspeed 0.19.8"


# --- files ------------------------------------------------------------------------------------------------------------

DS = '{"train_batch_size": 1, "zero_optimization": {"stage": 2}}'


def test_a_file_is_read_once_and_again_where_it_changed(tmp_path: Path) -> None:
    paths = {name: tmp_path / name for name in ("a.json", "b.json", "c.txt", "d.json", "e.json")}
    for path in paths.values():
        path.write_text(DS)
    paths["d.json"].write_text('{"other": 1}')
    files = Files()
    real = {name: str(path.resolve()) for name, path in paths.items()}
    first = {name: files.open(path) for name, path in paths.items() if name != "d.json"}
    assert all(files.open(paths[name]) is file for name, file in first.items())
    assert files.peek(paths["d.json"]) is None and files.peek(tmp_path / "gone.json") is None
    assert set(files.stamped) == {*real.values()}
    paths["a.json"].write_text(DS + " ")
    paths["d.json"].write_text(DS)
    os.utime(paths["b.json"], ns=(1, 1))
    paths["c.txt"].unlink()
    assert files.open(paths["a.json"]) is first["a.json"] and files.peek(paths["d.json"]) is None, "until it is told"
    files.refresh({real["e.json"]: '{"train_batch_size": 2}'})
    again = {name: files.open(path) for name, path in paths.items()}
    changed = [name for name, file in again.items() if first.get(name) is not file]
    assert changed == ["a.json", "b.json", "c.txt", "d.json", "e.json"]
    assert again["e.json"].data() == {"train_batch_size": 2} and again["d.json"].kind == "deepspeed"
    assert set(files.given) == {real["e.json"]} and real["e.json"] not in files.stamped
    files.refresh({real["e.json"]: '{"train_batch_size": 2}'})
    assert all(files.open(paths[name]) is file for name, file in again.items())
    files.refresh({})
    assert files.open(paths["e.json"]).data()["train_batch_size"] == 1 and not files.given


def test_the_same_files_with_other_texts(tmp_path: Path) -> None:
    item, two, none = (tmp_path / name for name in ("a.json", "b.json", "c.json"))
    for path in (item, two):
        path.write_text(DS)
    none.write_text("{}")
    files = Files()
    before = files.open(item), files.open(two)
    assert files.peek(none) is None and files.with_texts({}) is files
    other = files.with_texts({str(item.resolve()): '{"train_batch_size": 3}', str(none.resolve()): DS})
    assert other.open(two) is before[1] and other.open(item) is not before[0] and files.open(item) is before[0]
    assert other.open(item).data() == {"train_batch_size": 3}
    peeked = other.peek(none)
    assert peeked is not None and peeked.kind == "deepspeed"
    third = other.with_texts({str(two.resolve()): "{}"})
    assert third.open(item).data() == {"train_batch_size": 3} and third.open(two).data() == {}


def test_which_files_were_opened(tmp_path: Path) -> None:
    item, two = tmp_path / "a.json", tmp_path / "b.json"
    item.write_text(DS)
    two.write_text(DS)
    files = Files()
    files.open(two)
    with files.opened() as outer:
        with files.opened() as inner:
            files.open(item)
        files.open(two)
    files.open(item)
    assert list(inner) == [str(item.resolve())] and list(outer) == [str(item.resolve()), str(two.resolve())]
    assert files.holds(outer) and files.holds({})
    with files.opened() as again:
        assert files.holds(inner)
    assert again == inner, "it counts as opened again"
    item.write_text("{}")
    files.refresh({})
    kept = {str(two.resolve()): outer[str(two.resolve())]}
    with files.opened() as again:
        assert not files.holds(inner) and not files.holds(outer) and files.holds(kept)
    assert again == kept
    assert files.open(item) is not inner[str(item.resolve())]
    assert not files.holds(inner), "what is there now is another one"


def test_files_that_nobody_names_are_looked_at_up_to_a_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(discover, "UNASKED_BYTES", 1 << 20)
    monkeypatch.setattr(discover, "HEAD_BYTES", 100)
    small, large, later = tmp_path / "a.json", tmp_path / "b.json", tmp_path / "c.json"
    small.write_text(DS.ljust(1 << 20))
    large.write_text(DS.ljust((1 << 20) + 1))
    later.write_text(("{" + " " * 100).ljust((1 << 20) + 1) + DS)
    files = Files()
    found = files.peek(small)
    assert found is not None and found.kind == "deepspeed" and files.peek(large) is files.peek(later) is None
    passed = {Path(item.name).name: item for item in files.met()}
    assert set(passed) == {"a.json", "b.json"}, "the marks of a large one are looked for in its head"
    assert passed["b.json"].document is not None
    (problem,) = passed["b.json"].document.problems
    said = "it is larger than 1 MiB, and neither a launch line nor the command names it"
    assert (problem.kind, problem.message, problem.fatal) == ("too-large", said, True)
    opened = files.open(large)
    assert opened.kind == "deepspeed" and len(list(files.met())) == 2, "who names it gets it"
    assert stamp(str(tmp_path / "gone")) is None and stamp(str(small)) == (small.stat().st_mtime_ns, 1 << 20)


def test_files_that_may_not_be_read(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    files = Files()
    assert files.peek(tmp_path / "in") is files.peek(Path("a\0b")) is None and list(files.met()) == []
    loop = tmp_path / "loop.json"
    loop.symlink_to(loop)
    assert files.peek(loop) is None
    for number, told in ((13, 1), (2, 0), (20, 0)):
        files = Files()
        error = OSError(number, os.strerror(number))
        error.filename = str(tmp_path / "in")
        files.not_entered(error)
        messages = [item.document.problems[0].message for item in files.met() if item.document is not None]
        assert messages == ["this folder cannot be entered: permission denied"] * told


def test_folders_in_the_order_of_a_walk(tmp_path: Path) -> None:
    for name in ("b/x.json", "b/a/y.yaml", "a/z.json", "top.sh", "Makefile", "a/.hid/h.json", "env2/pyvenv.cfg"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    for name in ("env2/in.json", "build/k.json", "a/n.txt", "a/s.py", "a/nb.ipynb", ".json", "a/my.Makefile"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    found = [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path)]
    assert sorted(found[:2]) == ["Makefile", "top.sh"] and found[2:] == ["a/z.json", "b/x.json", "b/a/y.yaml"]
    more = [path.relative_to(tmp_path).as_posix() for path in walk(tmp_path, scripts=True)]
    assert sorted(set(more) - set(found)) == ["a/nb.ipynb", "a/s.py"]
    inside = [path.name for path in walk(tmp_path / "env2")]
    assert inside == ["in.json"], "an environment that is asked for itself"
