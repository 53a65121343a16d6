"""What follows from a file lives as long as the file."""

from __future__ import annotations

import gc
import weakref

from zerocfg.run.model import SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.source.text import SourceText


class Found:
    def __init__(self, file: SourceFile, times: int) -> None:
        self.file, self.size = file, len(file.source.text) * times


CALLS: list[tuple[str, int]] = []


@remembered
def found(file: SourceFile, times: int) -> Found:
    CALLS.append((file.name, times))
    return Found(file, times)


@remembered
def nothing(file: SourceFile) -> None:
    CALLS.append((file.name, 0))


def _file(name: str) -> SourceFile:
    return SourceFile(name, "other", SourceText(name, "four"))


def test_worked_out_once_for_each_file_and_arguments() -> None:
    CALLS.clear()
    first, second = _file("a"), _file("a")
    assert [found(first, 1).size, found(first, 2).size, found(first, 1).size] == [4, 8, 4]
    assert found(first, 1) is found(first, 1)
    assert found(second, 1) is not found(first, 1)
    assert CALLS == [("a", 1), ("a", 2), ("a", 1)]


def test_nothing_is_remembered_as_well_and_apart_from_other_functions() -> None:
    CALLS.clear()
    file = _file("b")
    found(file, 0)
    nothing(file)
    nothing(file)
    assert CALLS == [("b", 0), ("b", 0)]


def test_it_goes_with_the_file() -> None:
    file = _file("c")
    held = weakref.ref(found(file, 1))
    del file
    gc.collect()
    assert held() is None
