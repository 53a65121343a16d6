"""The seconds and files of a launch, by what it does, against sums made by hand."""

from __future__ import annotations

import pytest

from zerocfg.smoke.model.size import GIB, Room, Size, Work

BILLION = 10**9
PLENTY = Room(1000 * GIB, 1000 * GIB, 1000 * GIB, 1e6)


@pytest.mark.parametrize(
    ("work", "in_memory", "parts"),
    [
        (Work.of(("train",), saves=False), False, {"weights and engine": 6.0, "training": 4.5}),
        (
            Work.of(("train",)),
            False,
            {"weights and engine": 6.0, "training": 4.5, "saving": 6.4, "reading back": 6.0},
        ),
        (
            Work.of(("train", "resume", "reference")),
            False,
            {
                "weights and engine": 6.0,
                "training": 4.5,
                "saving": 6.4,
                "reading back": 6.0,
                "checkpoint and resume": 63.3,  # two engines, three steps, 18 bytes at 1.6 and 1.0
                "comparison with ZeRO-0": 13.5,
            },
        ),
        (
            Work.of(("train", "resume")),
            True,
            {
                "weights and engine": 6.0,
                "training": 4.5,
                "saving": 4.0,
                "reading back": 6.0,
                "checkpoint and resume": 52.5,
            },
        ),
        (
            Work(copied=True),
            False,
            {
                "weights and engine": 6.0,
                "training": 4.5,
                "saving": 6.4,
                "reading back": 6.0,
                "trainings of a narrow copy": 8.0,
            },
        ),
        (
            Work(saves=False, resumes=False, copied=True),
            False,
            {"weights and engine": 6.0, "training": 4.5, "trainings of a narrow copy": 4.0},
        ),
        (
            Work(saves=False, resumes=False, compares=False, copied=True),
            False,
            {"weights and engine": 6.0, "training": 4.5},
        ),
        (
            Work(5, saves=False, resumes=False, compares=False, on_host=True),
            False,
            {"weights and engine": 6.0, "training": 40.0},
        ),
    ],
)
def test_seconds_of_a_billion_parameters(work: Work, in_memory: bool, parts: dict[str, float]) -> None:
    assert work.seconds(BILLION, in_memory) == pytest.approx(parts)


@pytest.mark.parametrize(
    ("work", "size"),
    [
        (Work.of(("train",), saves=False), 0),
        (Work.of(("train",)), 4),
        (Work(), 22),
        (Work(resumes=False), 4),
        (Work(copied=True), 4),
    ],
)
def test_bytes_of_files(work: Work, size: int) -> None:
    """Fp32 weights take 4; a checkpoint 2 + 4 + 8, and the whole weights once more."""
    assert work.file_bytes == size


@pytest.mark.parametrize(
    ("work", "parameters", "needed"),
    [
        (Work(), 130_200_000, False),  # 76.8 ns each
        (Work(), 130_300_000, True),
        (Work(copied=True), 130_300_000, True),
        (Work(resumes=False), 740_000_000, False),  # 13.5 ns each
        (Work(resumes=False), 741_000_000, True),
        (Work(resumes=False, compares=False), 10**12, False),
    ],
)
def test_large_models_are_compared_by_a_copy(work: Work, parameters: int, needed: bool) -> None:
    assert work.needs_copy(parameters) is needed


def test_what_is_only_trained_takes_a_tenth_of_the_seconds() -> None:
    """A billion parameters: 30 + 10.5 s, or 30 + 99.7 s."""
    trained = Size(BILLION, 0, 0, Work.of(("train",), saves=False))
    for seconds, fits in ((41, True), (40, False)):
        room = Room(0, None, 0, seconds)
        assert (trained.against(room, 1.0) is None) is fits
    whole = Size(BILLION, 0, 0)
    for seconds, fits in ((130, True), (129, False)):
        assert (whole.against(Room(0, None, 100 * GIB, seconds), 1.0) is None) is fits


def test_the_words_name_what_takes_longest() -> None:
    room = Room(0, None, 100 * GIB, 200)
    assert Size(BILLION, 0, 0).against(room) == (
        "about 130 s, 63 s for checkpoint and resume and 14 s for comparison with ZeRO-0, "
        "of 120 s (60% of --time-limit)"
    )


@pytest.mark.parametrize(
    ("less", "fits"),
    [
        ({}, True),
        ({"memory_files": 22 * BILLION - 1}, False),
        ({"host": 8 * BILLION + 22 * BILLION}, True),
        ({"host": 8 * BILLION + 22 * BILLION - 1}, False),
        ({"host": None}, False),
    ],
)
def test_files_go_into_memory_only_beside_what_the_ranks_take(less: dict[str, int | None], fits: bool) -> None:
    room = {"device": 0, "host": 1000 * GIB, "disk": 0, "seconds": 1e6, "memory_files": 22 * BILLION} | less
    size = Size(BILLION, 0, 8 * BILLION)
    assert size.fits_memory_files(Room(**room)) is fits  # type: ignore[arg-type]


def test_a_full_disk_matters_only_without_memory() -> None:
    size = Size(BILLION, 0, 0)
    full = Room(0, 1000 * GIB, 0, 1e6)
    assert size.against(full) == "20.5 of 0.0 GiB of disk space"
    assert size.against(Room(0, 1000 * GIB, 0, 1e6, memory_files=22 * BILLION)) is None
    assert Size(BILLION, 0, 0, Work.of(("train",), saves=False)).against(full) is None
