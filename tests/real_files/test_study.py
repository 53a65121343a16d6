"""The study on whole public repositories: its data fit together, and its figures are counted as they are explained."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.wild import data
from benchmarks.wild.data import Finding, Judgement, Planted, Reader, Repository
from benchmarks.wild.figures import Reading, judged, precision, recall, vanished
from benchmarks.wild.planting import EditError, outcomes

COMMIT = "0" * 40
FINDING = Finding("a/b", COMMIT, "ds.json", 3, "fp16.enabled", "ZC104", "error", "")
JUDGEMENT = Judgement("a/b", COMMIT, "ZC104", ("ds.json fp16.enabled",), "false", "")


def test_repositories_are_named_once_at_a_whole_commit() -> None:
    found = data.repositories()
    assert len({one.name for one in found}) == len(found) >= 70
    assert all(len(one.commit) == 40 and set(one.commit) <= set("0123456789abcdef") for one in found)


def test_what_is_held_out_was_judged_whole_before_anything_was_mended() -> None:
    held = {one.name for one in data.repositories() if one.held_out}
    assert len(held) >= 25
    first = judged(data.first_findings(), data.judgements())
    assert {row.finding.repository for row in first} <= held
    assert all(row.judgement is not None for row in first)


def test_all_data_speak_of_repositories_of_the_list() -> None:
    known = {one.name for one in data.repositories()}
    named = [*data.judgements(), *data.readers(), *data.planted()]
    assert {one.repository for one in named} <= known


def test_judgements_have_evidence_and_no_place_is_judged_twice() -> None:
    places = Counter((one.repository, one.code, place) for one in data.judgements() for place in one.places)
    assert [place for place, number in places.items() if number > 1] == []
    assert all(one.evidence for one in data.judgements())


def test_readers_are_at_least_eighty_lines() -> None:
    lines = [(one.repository, line) for one in data.readers() for line in one.lines]
    assert len(set(lines)) == len(lines) >= 80
    assert {one.reader for one in data.readers()} == {"transformers", "trl", "accelerate", "deepspeed", "other"}


def test_thirty_mistakes_of_each_format_and_thirty_harmless_edits() -> None:
    planted = data.planted()
    assert Counter(one.format for one in planted if one.codes) == dict.fromkeys(data.FORMATS, 30)
    assert sum(not one.codes for one in planted) >= 30
    assert all(one.old != one.new and one.old and one.consequence for one in planted)


def test_precision_counts_misleading_as_wrong_and_a_file_once() -> None:
    twin = replace(FINDING, key="bf16.enabled")
    other = replace(FINDING, file="other.json")
    rest = replace(FINDING, code="ZC101")
    judgements = [
        JUDGEMENT,
        replace(JUDGEMENT, places=("ds.json bf16.enabled",), verdict="misleading"),
        replace(JUDGEMENT, places=("other.json *",), verdict="true"),
    ]
    one = precision(judged([FINDING, twin, other, rest], judgements))
    assert (one.true, one.wrong, one.unjudged) == (1, 2, 1)
    assert (one.files_true, one.files_wrong) == (1, 1)
    assert one.share == pytest.approx(1 / 3)


def test_an_exact_judgement_goes_before_a_pattern_and_notes_are_left_out() -> None:
    wide = replace(JUDGEMENT, code="ZC*", places=("*",), verdict="misleading")
    note = replace(FINDING, severity="note")
    rows = judged([FINDING, note, replace(FINDING, code="ZC101")], [wide, replace(JUDGEMENT, verdict="true")])
    assert [row.judgement.verdict for row in rows if row.judgement is not None] == ["true", "misleading"]


def test_a_judgement_of_another_commit_says_nothing() -> None:
    assert (
        judged([replace(FINDING, commit="1" * 40)], [JUDGEMENT, replace(JUDGEMENT, places=("*",))])[0].judgement is None
    )


def test_vanished_are_places_of_repositories_that_were_linted() -> None:
    elsewhere = replace(JUDGEMENT, repository="c/d")
    pattern = replace(JUDGEMENT, places=("*",))
    assert vanished([FINDING], [JUDGEMENT, elsewhere, pattern], {"a/b"}) == []
    assert vanished([], [JUDGEMENT, elsewhere, pattern], {"a/b"}) == [(JUDGEMENT, "ds.json fp16.enabled")]


@pytest.mark.parametrize(
    ("reader", "said", "outcome"),
    [
        ("transformers", "transformers", "right"),
        ("trl", "transformers", "family"),
        ("accelerate", "transformers", "wrong"),
        ("accelerate", "", "unknown"),
        ("accelerate", None, "unseen"),
        ("other", None, "right"),
        ("other", "", "right"),
        ("other", "lightning", "right"),
        ("other", "deepspeed", "wrong"),
        ("transformers", "lightning", "unknown"),
    ],
)
def test_a_reader_is_right_wrong_or_open(reader: str, said: str | None, outcome: str) -> None:
    assert Reading(Reader("a/b", "train.py", reader, "", ("run.sh:1",)), "run.sh:1", said).outcome == outcome


def test_a_planted_mistake_is_told_and_the_tree_stays_as_it_was(tmp_path: Path) -> None:
    repository = Repository("a/b", COMMIT, "")
    tree = repository.tree(tmp_path)
    tree.mkdir()
    config = tree / "ds.json"
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "overlap_comm": true}}'
    config.write_text(text)
    mistake = Planted("a/b", "ds.json", "json", '"overlap_comm"', '"overlap_com"', "refused", ("ZC101",))
    harmless = Planted("a/b", "ds.json", "json", '"stage": 2', '"stage": 1', "another stage")
    told = list(outcomes([mistake, harmless], [repository], tmp_path))
    assert [(one.told, one.other) for one in told] == [(("ZC101",), ()), ((), ())]
    assert [row for row in recall(told) if row[0] == "json"] == [("json", 1, 1, 1, 0)]
    assert config.read_text() == text
    with pytest.raises(EditError, match="has no 'nowhere'"):
        list(outcomes([replace(mistake, old="nowhere")], [repository], tmp_path))
