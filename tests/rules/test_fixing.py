"""Fixes change what they say and nothing else, however the files are written."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from zerocfg.linter.engine import Result
from zerocfg.linter.fixing import fix_all
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.example import Example
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL, find
from zerocfg.source.load import load_as
from zerocfg.source.node import Document
from zerocfg.source.text import BOM, SourceText

from .examples import lint, write

KEPT = "kept by every fix"
FIXABLE = [(rule.code, at) for rule in ALL if page_of(rule).fixable for at in range(len(page_of(rule).bad))]


def parsed(name: str, text: str) -> Document | None:
    if not name.endswith((".json", ".yaml", ".yml")):
        return None
    return load_as(SourceText(name, text), "json" if name.endswith(".json") else "yaml")


# Other ways to write the same file


def with_comments(name: str, text: str) -> str:
    if not name.endswith((".yaml", ".yml")):
        return text
    written = []
    for number, line in enumerate(text.splitlines()):
        written.append(f"{line[: len(line) - len(line.lstrip())]}# {KEPT} {number}\n")
        written.append(line if "#" in line or not line.strip() else f"{line}  # {KEPT}")
        written.append("\n")
    return "".join(written)


def indented(name: str, text: str) -> str:
    if name.endswith(".json"):
        try:
            return json.dumps(json.loads(text), indent=4) + "\n"
        except ValueError:
            return text
    if name.endswith((".yaml", ".yml")):
        return re.sub(r"^ +", lambda blank: blank[0] * 2, text, flags=re.MULTILINE)
    return text


def quoted(name: str, text: str) -> str:
    if name.endswith((".yaml", ".yml")):
        return re.sub(r"^( *)([A-Za-z_]\w*):", r'\1"\2":', text, flags=re.MULTILINE)
    return text


def on_one_line(name: str, text: str) -> str:
    if name.endswith(".json"):
        try:
            return json.dumps(json.loads(text), separators=(",", ":"))
        except ValueError:
            return text
    return text


SAME = {"comments": with_comments, "indent": indented, "quotes": quoted, "one line": on_one_line}
BYTES: dict[str, Callable[[str], str]] = {
    "no final newline": lambda text: text.rstrip("\n"),
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "BOM": lambda text: BOM + text,
}


def mutated(name: str, text: str, ways: frozenset[str]) -> str:
    if "\udce9" in text or "\r" in text:
        return text
    for way, change in SAME.items():
        if way in ways:
            other = change(name, text)
            before, after = parsed(name, text), parsed(name, other)
            same = before is None or after is None or (after.root is not None and before.data() == after.data())
            # A writer of JSON knows no key that stands twice: what was wrong must still be there.
            if same and (before is None or after is None or len(before.problems) == len(after.problems)):
                text = other
    for way, rewrite in BYTES.items():
        if way in ways:
            text = rewrite(text)
    return text


@contextmanager
def written(files: Example) -> Iterator[Path]:
    with TemporaryDirectory() as name:
        folder = Path(name).resolve()
        write(files, folder)
        yield folder


def fixed(files: Example, folder: Path, unsafe: bool) -> tuple[dict[str, str], Result, int]:
    """The texts after all fixes, by name; those that did not change too."""

    def again(texts: Mapping[str, str]) -> Result:
        return lint(folder, files.consumer, texts=texts)

    texts, after, count = fix_all(again({}), again, unsafe=unsafe)
    names = {str(folder / name): name for name in files.files}
    return {**files.files, **{names[path]: text for path, text in texts.items()}}, after, count


def remarks(text: str) -> Iterator[tuple[str, str]]:
    """Each comment that was put in, and the line below it."""
    lines = text.splitlines()
    return ((line.strip(), below) for line, below in pairwise(lines) if re.fullmatch(rf" *# {KEPT} \d+", line))


def check_kept(name: str, before: str, after: str) -> None:
    """What no fix may touch."""
    assert before.startswith(BOM) == after.startswith(BOM)
    if "\r\n" in before and "\n" not in before.replace("\r\n", ""):
        assert "\n" not in after.replace("\r\n", ""), "a line end of another kind"
    if "\r" not in before:
        assert "\r" not in after
    assert before.endswith("\n") == after.endswith("\n") or not after.strip(), "the end of the last line"
    lost = [remark for remark, line in remarks(before) if line in after.splitlines() and remark not in after]
    assert lost == [], "a comment above a line that stays"
    was, now = parsed(name, before), parsed(name, after)
    if was is not None and now is not None and was.root is not None and not any(p.fatal for p in was.problems):
        assert now.root is not None and not any(problem.fatal for problem in now.problems), "no longer parses"


@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.sampled_from(FIXABLE), st.frozensets(st.sampled_from([*SAME, *BYTES])), st.booleans())
@example(("ZC506", 0), frozenset(("comments", "CRLF")), True)
@example(("ZC609", 2), frozenset(("comments",)), False)
def test_fixes_keep_the_rest(which: tuple[str, int], ways: frozenset[str], unsafe: bool) -> None:
    rule = find(which[0])
    assert rule is not None
    bad = page_of(rule).bad[which[1]]
    files = replace(bad, files={name: mutated(name, text, ways) for name, text in bad.files.items()})
    with written(files) as folder:
        texts, _, count = fixed(files, folder, unsafe)
    for name, before in files.files.items():
        if count == 0:
            assert texts[name] == before
        check_kept(name, before, texts[name])
    again = replace(files, files=texts)
    with written(again) as folder:
        twice, _, _ = fixed(again, folder, unsafe)
    assert twice == texts, "a second call changes something"


@pytest.mark.parametrize(("code", "at"), [pytest.param(*one, id=f"{one[0]}-{one[1] + 1}") for one in FIXABLE])
def test_a_fix_holds_in_every_writing(code: str, at: int, tmp_path: Path) -> None:
    """The finding goes away also with comments, quotes, other line ends and another indent."""
    rule = find(code)
    assert rule is not None
    ways = frozenset(("comments", "indent", "CRLF"))
    files = replace(
        page_of(rule).bad[at],
        files={name: mutated(name, text, ways) for name, text in page_of(rule).bad[at].files.items()},
    )
    write(files, tmp_path)
    before = lint(tmp_path, files.consumer)
    assert code in {d.code for d in before.diagnostics if d.fix is not None}, "not found when it is written like this"
    _, after, count = fixed(files, tmp_path, unsafe=True)
    assert count and code not in {d.code for d in after.diagnostics}


def test_groups_are_fixed_side_by_side(tmp_path: Path) -> None:
    """As many lints as the group with the most fixes needs, not as many as there are fixes."""
    text = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  gradient_clipping: 1e0\n"
    for number in range(20):
        (tmp_path / f"{number}.yaml").write_text(text)
    only = Selection(select=("ZC005",))
    calls: list[int] = []

    def again(texts: Mapping[str, str]) -> Result:
        calls.append(len(texts))
        return lint(tmp_path, None, only, texts)

    texts, after, count = fix_all(lint(tmp_path, None, only), again)
    assert (len(texts), count, after.diagnostics) == (20, 20, [])
    assert calls == [20]


def test_a_fix_that_brings_another_finding_is_dropped_alone(tmp_path: Path) -> None:
    """One group's bad fix does not stop that of another, and is no longer offered."""
    text = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  gradient_clipping: 1e0\n"
    text += "  overlap_comm: true\n"
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).write_text(text)
    only = Selection(select=("ZC005",))

    def again(texts: Mapping[str, str]) -> Result:
        result = lint(tmp_path, None, only, texts)
        spoilt = str(tmp_path / "a.yaml") in texts
        if spoilt:
            other = lint(tmp_path, None, Selection(select=("ZC103",))).diagnostics
            result.diagnostics += [d for d in other if d.span.file.name == "a.yaml"]
        return result

    texts, after, count = fix_all(lint(tmp_path, None, only), again)
    assert list(texts) == [str(tmp_path / "b.yaml")] and count == 1
    assert [(d.span.file.name, d.fix) for d in after.diagnostics] == [("a.yaml", None)]


TRAINED = {
    "run.sh": "deepspeed --num_gpus 2 train.py\n",
    "train.py": """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
args = TrainingArguments(
    output_dir="out",
    deepspeed="ds.json",
    per_device_train_batch_size=1,
    max_grad_norm=0.5,
    lr_scheduler_type="cosine",
)
Trainer(model=model, args=args, train_dataset=[]).train()
""",
    "ds.json": json.dumps(
        {
            "train_micro_batch_size_per_gpu": "auto",
            "gradient_accumulation_steps": "auto",
            "gradient_clipping": 1.0,
            "zero_optimization": {"stage": 2},
            "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}},
        },
        indent=2,
    ),
}
"""The clipping is found at the config (ZC202), the scheduler at the script (ZC211); both are mended in the config."""


def test_a_finding_at_a_script_takes_turns_with_those_at_its_config(tmp_path: Path) -> None:
    """Tried in one lint, one edit of the config would replace the other."""
    for name, text in TRAINED.items():
        (tmp_path / name).write_text(text)
    only = Selection(select=("ZC202", "ZC211"))
    found = lint(tmp_path, None, only)
    assert [(d.code, d.span.file.name) for d in found.diagnostics] == [("ZC202", "ds.json"), ("ZC211", "train.py")]
    texts, after, count = fix_all(found, lambda texts: lint(tmp_path, None, only, texts), unsafe=True)
    assert (list(texts), count, after.diagnostics) == ([str(tmp_path / "ds.json")], 2, [])
    mended = json.loads(texts[str(tmp_path / "ds.json")])
    assert mended["gradient_clipping"] == "auto" and "scheduler" not in mended


def test_a_fix_of_a_finding_at_a_script_may_bring_none_at_its_config(tmp_path: Path) -> None:
    for name, text in TRAINED.items():
        (tmp_path / name).write_text(text)
    only, other = Selection(select=("ZC211",)), Selection(select=("ZC202",))

    def again(texts: Mapping[str, str]) -> Result:
        result = lint(tmp_path, None, only, texts)
        if texts:
            result.diagnostics += lint(tmp_path, None, other).diagnostics
        return result

    texts, after, count = fix_all(lint(tmp_path, None, only), again, unsafe=True)
    assert (texts, count) == ({}, 0)
    assert [(d.code, d.fix) for d in after.diagnostics] == [("ZC211", None)]
