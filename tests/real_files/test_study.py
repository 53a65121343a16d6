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
from benchmarks.wild.trees import changed, copied
from zerocfg.source.write import write_atomic

COMMIT = "0" * 40
FINDING = Finding("a/b", COMMIT, "ds.json", 3, "fp16.enabled", "ZC104", "error", "")
JUDGEMENT = Judgement("a/b", COMMIT, "ZC104", ("ds.json fp16.enabled",), "false", "")


def test_repositories_are_named_once_at_a_whole_commit() -> None:
    found = data.repositories()
    assert len({one.name for one in found}) == len(found) >= 70
    assert all(len(one.commit) == 40 and set(one.commit) <= set("0123456789abcdef") for one in found)


@pytest.mark.parametrize("folder", data.HELD_OUT)
def test_what_is_held_out_was_judged_whole_before_anything_was_mended(folder: str) -> None:
    held = {one.name for one in data.repositories() if one.held_out == folder}
    assert len(held) >= 25
    first = judged(data.first_findings(folder), data.judgements())
    assert {row.finding.repository for row in first} <= held
    assert all(row.judgement is not None for row in first)


def test_all_data_speak_of_repositories_of_the_list() -> None:
    known = {one.name for one in data.repositories()}
    named = [*data.judgements(), *data.readers(), *data.planted()]
    assert {one.repository for one in named} <= known


def test_judgements_have_evidence_and_no_place_is_judged_twice() -> None:
    places = Counter(
        (one.repository, one.code, place, one.message) for one in data.judgements() for place in one.places
    )
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


def test_a_judgement_of_one_text_says_nothing_of_another() -> None:
    told = replace(FINDING, message="abc")
    judgements = [JUDGEMENT, replace(JUDGEMENT, message="abc", verdict="true")]
    rows = judged([told, replace(FINDING, message="def")], judgements)
    assert [row.judgement.verdict for row in rows if row.judgement is not None] == ["true", "false"]
    assert judged([FINDING], judgements[1:])[0].judgement is None


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


def test_a_copy_may_be_changed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "ds.json").write_text("{}")
    (tree / "other.json").write_text("{}")
    with copied(tree) as copy:
        write_atomic(copy / "sub" / "ds.json", b'{"a": 1}')
        write_atomic(copy / "other.json", b"{}")
        (copy / "new.json").write_text("{}")
        assert changed(tree, copy) == ["new.json", "sub/ds.json"]
    assert (tree / "sub" / "ds.json").read_text() == "{}" and not copy.exists()


BELOW_STAGE_3 = (
    '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2,\n "offload_param": {"device": "cpu"}}}\n'
)


@pytest.mark.libs
def test_what_a_fix_changes_is_read_by_the_library_and_was_spoken_of(tmp_path: Path) -> None:
    from benchmarks.wild.fixing import fixed

    repository = Repository("a/b", COMMIT, "")
    tree = repository.tree(tmp_path)
    tree.mkdir()
    (tree / "ds.json").write_text(BELOW_STAGE_3)
    found = fixed(repository, tree, unsafe=False)
    assert found.files == ("ds.json",) and found.gone == 1 and found.refused == () and found.unspoken == []
    assert {(one.by, one.key, one.codes) for one in found.values} >= {
        ("deepspeed", "zero_config.offload_param.device", ("ZC502",)),
        ("zerocfg", "zero_optimization.offload_param.device", ("ZC502",)),
    }


@pytest.mark.libs
@pytest.mark.parametrize(
    ("text", "refused", "unspoken"),
    [
        (BELOW_STAGE_3.replace('"stage": 2', '"stage": 7'), ["deepspeed"], set()),
        (
            BELOW_STAGE_3.replace('_gpu": 1', '_gpu": 2'),
            [],
            {("deepspeed", "train_micro_batch_size_per_gpu"), ("zerocfg", "train_micro_batch_size_per_gpu")},
        ),
    ],
)
def test_a_fix_that_does_something_else_is_seen(
    text: str, refused: list[str], unspoken: set[tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benchmarks.wild import fixing

    def fix(tree: Path, *, unsafe: bool) -> None:
        write_atomic(tree / "ds.json", text.encode())

    monkeypatch.setattr(fixing, "fix", fix)
    repository = Repository("a/b", COMMIT, "")
    repository.tree(tmp_path).mkdir()
    (repository.tree(tmp_path) / "ds.json").write_text(BELOW_STAGE_3)
    found = fixing.fixed(repository, repository.tree(tmp_path), unsafe=False)
    assert [one.by for one in found.refused] == refused
    assert {(one.by, one.key) for one in found.unspoken} >= unspoken and bool(found.unspoken) is bool(unspoken)


@pytest.mark.libs
def test_what_the_libraries_make_of_files(tmp_path: Path) -> None:
    from benchmarks.wild.libraries import Reading, read

    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 7}}')
    refused = read("deepspeed", tmp_path / "ds.json")
    assert refused.error is not None and "ValidationError" in refused.error and refused.values == {}
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": 2}}')
    taken = read("deepspeed", tmp_path / "ds.json")
    assert taken.error is None and taken.values["train_micro_batch_size_per_gpu"] == "3"
    assert taken.values["zero_config.stage"] == "2"
    (tmp_path / "acc.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config: {zero_stage: 2}\n"
    )
    launched = read("accelerate", tmp_path / "acc.yaml")
    assert launched.error is None and launched.values["ACCELERATE_DEEPSPEED_ZERO_STAGE"] == "2"
    assert "ACCELERATE_CONFIG_DS_FIELDS.zero_stage" in launched.values and "OMP_NUM_THREADS" not in launched.values
    (tmp_path / "recipe.yaml").write_text("per_device_train_batch_size: 3\nmodel_name_or_path: some/model\n")
    assert read("recipe", tmp_path / "recipe.yaml").values["per_device_train_batch_size"] == "3"
    (tmp_path / "recipe.yaml").write_text("eval_strategy: sometimes\n")
    assert "ValueError" in (read("recipe", tmp_path / "recipe.yaml").error or "")
    (tmp_path / "run.sh").write_text("if true; then\n")
    assert "unexpected end of file" in (read("shell", tmp_path / "run.sh").error or "")
    (tmp_path / "a.py").write_text("x = 1\n")
    assert read("python", tmp_path / "a.py") == Reading()


@pytest.mark.libs
@pytest.mark.parametrize(
    ("launcher", "option", "words", "key", "value"),
    [
        ("accelerate", ("--num_processes", "8"), ("--x", None), "num_processes", "8"),
        ("accelerate", ("--num_proces", "8"), (), "", None),
        ("torchrun", ("--nproc_per_node", "2"), ("--learning_rate", "1e-4"), "learning_rate", "0.0001"),
        ("torchrun", ("--nproc_per_node", "2"), ("--learning_rate", "fast"), "", None),
        ("deepspeed", ("--num_gpus", "2"), (), "num_gpus", "2"),
        ("deepspeed", ("--num_gpus", "two"), (), "", None),
    ],
)
def test_what_the_parsers_make_of_a_line(
    launcher: str, option: tuple[str, str], words: tuple[str | None, ...], key: str, value: str | None
) -> None:
    from benchmarks.wild.libraries import read_line
    from benchmarks.wild.lint import Line

    found = read_line(Line(launcher, (option,), words), trainer=launcher == "torchrun")
    assert (found.error is None) is bool(key) and found.values.get(key) == value


@pytest.mark.libs
def test_a_second_call_that_changes_something_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.wild import fixing

    def fix(tree: Path, *, unsafe: bool) -> None:
        path = tree / "ds.json"
        write_atomic(path, path.read_bytes() + b"\n")

    monkeypatch.setattr(fixing, "fix", fix)
    repository = Repository("a/b", COMMIT, "")
    repository.tree(tmp_path).mkdir()
    (repository.tree(tmp_path) / "ds.json").write_text(BELOW_STAGE_3)
    assert fixing.fixed(repository, repository.tree(tmp_path), unsafe=False).again == ("ds.json",)
