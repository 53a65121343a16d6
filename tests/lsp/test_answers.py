"""What is answered about one place: pure functions of a text and the catalog."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from zerocfg.catalog.schema import load_schema
from zerocfg.lsp import pages
from zerocfg.lsp.actions import line_edits, wanted
from zerocfg.lsp.checking import Project, Snapshot
from zerocfg.lsp.completion import complete, values, yaml_text
from zerocfg.lsp.diagnostics import diagnostics
from zerocfg.lsp.documents import Documents, file_uri
from zerocfg.lsp.hover import describe, hover
from zerocfg.lsp.keys import place_in
from zerocfg.lsp.links import links
from zerocfg.lsp.positions import Lines
from zerocfg.run.discover import Files


def _offered(
    kind: str, form: Any, marked: str, data: Any = None, consumers: set[str | None] | None = None
) -> list[str]:
    lines = Lines(marked.replace("|", ""), "utf-16")
    return [item.label for item in complete(kind, form, lines, marked.index("|"), data, consumers or set())]


def test_another_name_of_a_key_is_offered_to_who_types_it() -> None:
    """DeepSpeed reads `prefetch_bucket_size` as `stage3_prefetch_bucket_size`."""
    offered = _offered("deepspeed", "json", '{"zero_optimization": {"prefetch_|"}}')
    assert "prefetch_bucket_size" in offered and "param_persistence_threshold" not in offered
    offered = _offered("deepspeed", "json", '{"zero_optimization": {"stage3_prefetch|"}}')
    assert "stage3_prefetch_bucket_size" in offered and "prefetch_bucket_size" not in offered
    assert "prefetch_bucket_size" not in _offered("deepspeed", "json", '{"zero_optimization": {"|"}}')


def test_keys_that_are_there_removed_or_old_come_never_or_last() -> None:
    offered = _offered("deepspeed", "json", '{"bfloat16": {}, "|"}')
    assert "bf16" not in offered, "it is there under its other name"
    assert "fp16" in offered and "zero_optimization" in offered
    zero = _offered("deepspeed", "json", '{"zero_optimization": {"|"}}')
    section = load_schema("deepspeed").find(("zero_optimization",))
    assert section is not None
    keys = section.section(load_schema("deepspeed")).keys  # type: ignore[union-attr]
    assert not [name for name in zero if "removed" in keys[name].facts]
    old = [name for name in zero if "deprecated" in keys[name].facts]
    new = [name for name in zero if not {"deprecated", "inert"} & set(keys[name].facts)]
    assert old and zero[: len(new)] == new


def test_another_name_is_offered_once_it_is_begun() -> None:
    assert "prefetch_bucket_size" not in _offered("deepspeed", "json", '{"zero_optimization": {"|"}}')
    assert "prefetch_bucket_size" in _offered("deepspeed", "json", '{"zero_optimization": {"prefetch|"}}')


def test_values_are_those_that_are_allowed() -> None:
    assert _offered("deepspeed", "json", '{"zero_optimization": {"offload_optimizer": {"device": |}}}')[:1] == ["none"]
    assert set(_offered("accelerate", "yaml", "mixed_precision: |\n")) >= {"no", "fp16", "bf16", "fp8"}
    assert "cosine" in _offered("recipe", "yaml", "lr_scheduler_type: |\n")


def test_auto_is_offered_where_somebody_fills_it() -> None:
    text = '{"train_micro_batch_size_per_gpu": |}'
    assert "auto" in _offered("deepspeed", "json", text)
    assert "auto" in _offered("deepspeed", "json", text, None, {"transformers"})
    assert "auto" not in _offered("deepspeed", "json", text, None, {"deepspeed"})
    assert "auto" not in _offered("deepspeed", "json", '{"zero_optimization": {"overlap_comm": |}}')


def test_the_parameters_of_an_optimizer_follow_its_type() -> None:
    data = {"optimizer": {"type": "Lion", "params": {}}}
    text = '{"optimizer": {"type": "Lion", "params": {"|"}}}'
    assert "betas" in _offered("deepspeed", "json", text, data)
    assert "adam_w_mode" not in _offered("deepspeed", "json", text, data)
    assert "adam_w_mode" in _offered("deepspeed", "json", text, {"optimizer": {"type": "Adam"}})


def test_a_spec_and_a_recipe_of_trl() -> None:
    data = {"runs": {"mine": {"model": {}}}}
    assert {"recipe", "deepspeed", "goals"} <= set(_offered("spec", "yaml", "runs:\n  mine:\n    |\n", data))
    assert {"hidden_size"} <= set(_offered("spec", "yaml", "runs:\n  mine:\n    model:\n      |\n", data))
    assert "max_prompt_length" not in _offered("recipe", "yaml", "|\n")
    both = _offered("recipe", "yaml", "use_peft: true\n|\n", {"use_peft": True})
    assert {"lora_r", "learning_rate", "bf16"} <= set(both)


@pytest.mark.parametrize("schema", ["deepspeed", "accelerate", "training-arguments", "trl", "spec"])
def test_every_key_can_be_described_and_completed(schema: str) -> None:
    loaded = load_schema(schema)
    for name, key in loaded.root.names.items():
        text = describe(name, key)
        assert name in text and key.description.partition(" Unit: ")[0] in text
        if key.facts.get("unit"):
            assert key.facts["unit"] in text
        for value, _ in values(key, set()):
            assert yaml.safe_load(f"k: {yaml_text(value)}")["k"] == value
            assert json.loads(json.dumps(value)) == value


def test_a_word_that_yaml_would_read_as_something_else_is_quoted() -> None:
    assert yaml_text("no") == '"no"' and yaml_text("bf16") == "bf16" and yaml_text("1e5") in ("1e5", '"1e5"')
    assert yaml_text(1e-5) == "1.0e-05"


def test_hover_names_the_section_of_a_key() -> None:
    place = place_in("deepspeed", {}, ("zero_optimization",))
    text = hover(place, ("zero_optimization", "reduce_bucket_size"), [], None, None, file_uri)
    assert text.startswith("**zero_optimization.reduce_bucket_size** (elements)")
    assert hover(place, ("zero_optimization", "no_such_key"), [], None, None, file_uri) == ""


@settings(deadline=None)
@given(st.text(st.sampled_from("ab\n\r\u2028🚀"), max_size=30), st.text(st.sampled_from("ab\n\r\u2028🚀"), max_size=30))
def test_line_edits_lead_from_one_text_to_the_other(before: str, after: str) -> None:
    lines = Lines(before, "utf-16")
    text = before
    for edit in reversed(line_edits(before, after, "utf-16")):
        start, end = lines.offset(edit.range.start), lines.offset(edit.range.end)
        text = text[:start] + edit.new_text + text[end:]
    assert text == after


def test_kinds_of_actions() -> None:
    assert wanted(None, "quickfix") and wanted(["source"], "source.fixAll.zerocfg") and wanted([""], "quickfix")
    assert wanted(["source.fixAll"], "source.fixAll.zerocfg") and not wanted(["source.fix"], "source.fixAll.zerocfg")
    assert not wanted(["source.fixAll"], "quickfix")


def test_pages_are_written_where_no_documentation_lies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "_CHECKOUT", tmp_path / "none")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    pages.page.cache_clear()
    try:
        uri = pages.page("ZC102")
        assert uri is not None
        text = Path(uri.removeprefix("file://")).read_text(encoding="utf-8")
        assert "ignored-key" in text and str(tmp_path) in uri
        assert pages.page("ZC999") is None
        (tmp_path / "file").write_text("")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
        assert pages.page("ZC103") is None, "nothing can be written there"
    finally:
        pages.page.cache_clear()


def _open(folder: Path, *names: str) -> tuple[Documents, Snapshot]:
    documents = Documents()
    for name in names:
        documents.put(file_uri(folder / name), (folder / name).read_text(encoding="utf-8"), 1)
    return documents, Project(str(folder)).check(list(documents.open.values()))


def test_tags_tell_what_is_old_and_what_nobody_reads(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n  overlap_comm: true\n"
    )
    old = {"train_batch_size": 8, "zero_optimization": {"stage": 1, "cpu_offload": True, "stage3_max_live": 1}}
    (tmp_path / "ds.json").write_text(json.dumps(old))
    documents, snapshot = _open(tmp_path, "accelerate.yaml", "ds.json")
    shown = diagnostics(snapshot, set(), documents.uri_of, "utf-16")
    tags = {str(one.code): list(one.tags or ()) for found in shown.values() for one in found}
    assert tags["ZC103"] == [1] and [2] in tags.values() and tags["ZC101"] == []


def test_links_of_a_spec_and_a_recipe(tmp_path: Path) -> None:
    spec = "version: 1\nruns:\n  a:\n    script: train.py\n    recipe: recipe.yaml\n    model: gone\n"
    (tmp_path / "zerocfg.yaml").write_text(spec)
    (tmp_path / "recipe.yaml").write_text(
        "output_dir: out\nper_device_train_batch_size: 1\nnum_train_epochs: 1\ndeepspeed: ds.json\n"
    )
    (tmp_path / "ds.json").write_text('{"train_batch_size": "auto", "zero_optimization": {"stage": 2}}')
    (tmp_path / "train.py").write_text("")
    _, snapshot = _open(tmp_path, "zerocfg.yaml", "recipe.yaml")
    found = links(snapshot.runs, os.path.realpath(tmp_path / "zerocfg.yaml"))
    assert [Path(one.target).name for one in found] == ["train.py", "recipe.yaml"]
    assert [spec[one.span.start : one.span.end] for one in found] == ["train.py", "recipe.yaml"]
    found = links(snapshot.runs, os.path.realpath(tmp_path / "recipe.yaml"))
    assert [Path(one.target).name for one in found] == ["ds.json"]


def test_roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    inner = tmp_path / "repository" / "configs"
    inner.mkdir(parents=True)
    documents = Documents(folders=[str(tmp_path)])
    assert documents.root(str(inner / "a.yaml")) == str(tmp_path), "the folder of the workspace"
    (tmp_path / "repository" / ".git").mkdir()
    documents.forget_roots()  # as after each save
    assert documents.root(str(inner / "a.yaml")) == str(tmp_path / "repository")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    (tmp_path / "alone").mkdir()
    assert documents.root(str(tmp_path / "alone" / "a.yaml")) == str(tmp_path / "alone"), "no whole home is walked"


def test_files_are_read_again_when_they_change(tmp_path: Path) -> None:
    path = tmp_path / "ds.json"
    real = os.path.realpath(path)
    path.write_text('{"train_batch_size": 1}')
    files = Files()
    first = files.open(path)
    files.refresh({})
    assert files.open(path) is first, "nothing changed"
    path.write_text('{"train_batch_size": 22}')
    files.refresh({})
    assert files.open(path).data() == {"train_batch_size": 22}
    files.refresh({real: '{"train_batch_size": 3}'})
    typed = files.open(path)
    assert typed.data() == {"train_batch_size": 3}
    path.write_text('{"train_batch_size": 44444}')
    files.refresh({real: '{"train_batch_size": 3}'})
    assert files.open(path) is typed, "what is typed wins over the disk"
    files.refresh({})
    assert files.open(path).data() == {"train_batch_size": 44444}
    path.unlink()
    files.refresh({})
    document = files.open(path).document
    assert document is not None and document.problems[0].kind == "unreadable"


def test_a_file_that_became_a_config_is_met(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("{}")
    files = Files()
    assert files.peek(path) is None
    files.refresh({os.path.realpath(path): '{"train_batch_size": 1}'})
    met = files.peek(path)
    assert met is not None and met.data() == {"train_batch_size": 1}
    files.refresh({})
    assert files.peek(path) is None
    path.write_text('{"train_batch_size": 1}')
    files.refresh({})
    assert files.peek(path) is not None


def test_what_a_file_is_to_its_run_counts_more_than_what_it_looks_like(tmp_path: Path) -> None:
    (tmp_path / "accelerate.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: odd.yaml\n"
    )
    (tmp_path / "odd.yaml").write_text('{"steps_per_print": 1}')
    _, snapshot = _open(tmp_path, "accelerate.yaml", "odd.yaml")
    kind, file = snapshot.roles[os.path.realpath(tmp_path / "odd.yaml")]
    assert kind == "deepspeed" and file.document is not None and file.document.format == "json"
    assert len(snapshot.diagnostics) == len({(d.code, d.span.file.name, d.span.path) for d in snapshot.diagnostics})


def test_files_with_settings_of_their_own_are_linted_apart_and_told_once(tmp_path: Path) -> None:
    inner = tmp_path / "inner"
    inner.mkdir()
    (inner / "zerocfg.toml").write_text('ignore = ["ZC102"]\n')
    (inner / "ds.json").write_text('{"train_batch_size": 8, "gradient_cliping": 1, "bf16": {"enabeld": true}}')
    (tmp_path / "accelerate.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: inner/ds.json\n"
    )
    documents = Documents()
    for name in ("accelerate.yaml", "inner/ds.json"):
        documents.put(file_uri(tmp_path / name), (tmp_path / name).read_text(), 1)
    snapshot = Project(str(tmp_path)).check(list(documents.open.values()))
    assert len(snapshot.looks) == 2
    assert [one.code for one in snapshot.diagnostics].count("ZC101") == 1


def test_hardware_counts_before_the_spec_is_saved(pitfalls: Path) -> None:
    quickstart = pitfalls.parent / "quickstart"
    saved = (quickstart / "zerocfg.yaml").read_text(encoding="utf-8")
    typed = re.sub(r"hardware: \S+", "hardware: 4x8xH100-80GB", saved)
    assert typed != saved
    documents = Documents()
    documents.put(file_uri(quickstart / "zerocfg.yaml"), typed, 1)
    [run] = Project(str(pitfalls.parent)).check(list(documents.open.values())).runs
    assert run.hardware is not None and (run.hardware.nodes, run.hardware.accelerators) == (4, 32)
