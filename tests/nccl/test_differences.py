"""The list of differences is whole, and true of the code."""

from __future__ import annotations

import pytest

from .differences import DIFFERENCES, PAGE, page
from .uses import ROOT, functions, uses, uses_in

FOUND = uses()
LISTED = {(place, name) for row in DIFFERENCES for place, names in row.touches.items() for name in names}


def test_every_use_has_a_row() -> None:
    assert sorted(FOUND - LISTED) == [], "say in tests/nccl/differences.py how a card differs here, and play it"


def test_every_row_is_of_the_code() -> None:
    assert sorted(LISTED - FOUND) == []


@pytest.mark.parametrize("row", DIFFERENCES, ids=lambda row: row.name)
def test_what_a_row_names_is_there(row: object) -> None:
    from .differences import Difference

    assert isinstance(row, Difference) and row.touches and row.tests
    for place in row.touches:
        file, _, function = place.partition(":")
        assert function in functions((ROOT / file).read_text(encoding="utf-8")), place
    for test in row.tests:
        file, _, name = test.partition("::")
        assert name.replace("::", ".") in functions((ROOT / file).read_text(encoding="utf-8")), test


def test_the_page_is_that_of_the_list() -> None:
    assert (ROOT / PAGE).read_text(encoding="utf-8") == page(), "run python -m tests.nccl.differences"


@pytest.mark.parametrize(
    ("code", "found"),
    [
        ("def f():\n    torch.cuda.Stream()", {("m.py:f", "cuda.Stream")}),
        ("def f():\n    if torch.xpu.is_available(): pass", {("m.py:f", "cuda.is_available")}),
        ("def f():\n    getattr(torch, kind).synchronize(1)", {("m.py:f", "cuda.synchronize")}),
        ("module = getattr(torch, 'xpu', None)\nmodule.device_count()", {("m.py", "cuda.device_count")}),
        ("class A:\n    def f(self):\n        def g(): self.ranks.dist.send(1)", {("m.py:A.f", "distributed.send")}),
        ("from torch.distributed import new_group", {("m.py", "distributed.new_group")}),
        ("from torch.distributed.fsdp import FSDP", {("m.py", "distributed.fsdp.FSDP")}),
        ("x = torch.empty(1, pin_memory=True)", {("m.py", "pin_memory")}),
        ("hasattr(torch.cuda, 'host_memory_stats')", set()),
        ("version = torch.version.cuda", set()),
        ("getattr(thing, kind).synchronize()", set()),
        ("self.device.wait()", set()),
    ],
)
def test_uses_are_found(code: str, found: set[tuple[str, str]]) -> None:
    assert uses_in(code, "m.py") == found


def test_a_place_is_the_outermost_function() -> None:
    assert functions("class A:\n    def f(self):\n        def g(): pass\n") == {"", "A", "A.f"}
