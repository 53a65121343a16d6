"""Comments that silence findings: where they count, what they name, and what is said about those of no use."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zerocfg.linter.add_ignores import ignores_for
from zerocfg.linter.engine import Result
from zerocfg.linter.fixing import fix_all
from zerocfg.linter.ignores import command_lines
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.example import Example
from zerocfg.rules.codes import REMOVED, Removed
from zerocfg.source.text import SourceText

from .examples import lint, lint_example, write

YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
DEAD = "  overlap_comm: true\n"
LINE = "accelerate launch --num_processes two train.py\n"


def result(folder: Path, selection: Selection | None = None, **files: str) -> Result:
    named = {name.replace("_", "."): text for name, text in files.items()}
    return lint_example(Example(named), folder, selection)


def codes(found: Result) -> list[str]:
    return [diagnostic.code for diagnostic in found.diagnostics]


@pytest.mark.parametrize(
    "written",
    [
        "  overlap_comm: true  # zerocfg: ignore[ZC103] our fork reads it\n",
        "  overlap_comm: true  #zerocfg:ignore[zc103]\n",
        "  overlap_comm: true  # zerocfg: ignore[ZC103 ZC010]\n",
        "  overlap_comm: true  # zerocfg: ignore[key-accelerate-ignores]\n",
        "  overlap_comm: true  # fast # zerocfg: ignore[ZC103] # zerocfg: ignore[ZC010]\n",
        "  # zerocfg: ignore[ZC103]\n  overlap_comm: true\n",
        "# zerocfg: ignore[ZC103]\n  overlap_comm: true\n",
        "  # zerocfg: ignore[ZC103] reason\n  # a remark\n  overlap_comm: true\n",
        "  overlap_comm: true  # zerocfg: ignore\n",
        "  overlap_comm: true\n# zerocfg: ignore-file[ZC103] generated\n",
        "  overlap_comm: true\n# zerocfg: ignore-file\n",
    ],
)
def test_silences(tmp_path: Path, written: str) -> None:
    found = result(tmp_path, a_yaml=YAML + written)
    assert codes(found) == []
    assert found.suppressed_by == {"comments": 1}


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("  # zerocfg: ignore[ZC103]\n\n  overlap_comm: true\n", {"ZC103", "ZC010"}),
        ("  # zerocfg: ignore[ZC104]\n  overlap_comm: true\n", {"ZC103", "ZC010"}),
        ("  # zerocfg: ignore[]\n  overlap_comm: true\n", {"ZC103", "ZC010"}),
        ("  # zerocfg: ignore[ZC1]\n  overlap_comm: true\n", {"ZC103", "ZC011"}),
        ("  # zerocfg: ignore[ZC999]\n  overlap_comm: true\n", {"ZC103", "ZC011"}),
        ("  # zerocfg: ignore[ZC103\n  overlap_comm: true\n", {"ZC103", "ZC011"}),
        ("  # zerocfg: ignores[ZC103]\n  overlap_comm: true\n", {"ZC103", "ZC011"}),
        ("  # zerocfg: see the wiki\n  overlap_comm: true\n", {"ZC103"}),
        ("  overlap_comm: '# zerocfg: ignore'\n", {"ZC103"}),
        ("  overlap_comm: a#zerocfg:ignore\n", {"ZC103"}),
    ],
)
def test_does_not(tmp_path: Path, written: str, told: set[str]) -> None:
    assert set(codes(result(tmp_path, a_yaml=YAML + written))) == told


def test_of_a_removed_rule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(REMOVED, "ZC998", Removed("an-old-rule", "0.2", "no release does this any more"))
    found = result(tmp_path, a_yaml=YAML + "  # zerocfg: ignore[ZC998]\n")
    (diagnostic,) = found.diagnostics
    assert diagnostic.code == "ZC011"
    assert diagnostic.message == "ZC998 (an-old-rule) was removed in 0.2: no release does this any more"


def test_json_with_comments(tmp_path: Path) -> None:
    text = '{"train_batch_size": 8, "zero_optimization": {"stage": 2,\n  // zerocfg: ignore[ZC101]\n  "typo": 1}}\n'
    assert "ZC101" not in codes(result(tmp_path, ds_json=text))
    inside = text.replace("// zerocfg: ignore[ZC101]", '"note": "// zerocfg: ignore",')
    assert "ZC101" in codes(result(tmp_path, ds_json=inside))


@pytest.mark.parametrize(
    "text",
    [
        "# zerocfg: ignore[ZC711]\n" + LINE,
        LINE.rstrip() + "  # zerocfg: ignore[ZC711] cluster fills it in\n",
        "# zerocfg: ignore[ZC711]\naccelerate launch \\\n  --num_processes two \\\n  train.py\n",
        "accelerate launch \\\n  --num_processes two \\\n  train.py  # zerocfg: ignore[ZC711]\n",
    ],
)
def test_shell(tmp_path: Path, text: str) -> None:
    found = result(tmp_path, train_sh=text)
    assert codes(found) == [] and found.suppressed_by == {"comments": 1}


def test_markdown_counts_in_its_shell_blocks_only(tmp_path: Path) -> None:
    page = f"Write `# zerocfg: ignore[ZC711]`:\n\n```bash\n{LINE}```\n"
    assert codes(result(tmp_path, page_md=page)) == ["ZC711"]
    page = page.replace("```bash\n", "```bash\n# zerocfg: ignore[ZC711]\n")
    assert codes(result(tmp_path, page_md=page)) == []


def test_makefile(tmp_path: Path) -> None:
    write(Example({"Makefile": f"train:\n# zerocfg: ignore[ZC711]\n\t{LINE}"}), tmp_path)
    assert codes(lint(tmp_path, None)) == []


def test_judged_only_when_its_rule_ran(tmp_path: Path) -> None:
    text = YAML + "  # zerocfg: ignore[ZC005]\n  gradient_clipping: 1.0  # zerocfg: ignore\n"
    both = result(tmp_path, a_yaml=text)
    assert codes(both) == ["ZC010", "ZC010"]
    assert codes(lint(tmp_path, None, Selection(ignore=("ZC005",)))) == []
    assert codes(lint(tmp_path, None, Selection(select=("ZC0",)))) == ["ZC010"]
    assert codes(lint(tmp_path, None, Selection(select=("ZC4", "ZC010")))) == []


def test_silenced_by_its_own_name_only(tmp_path: Path) -> None:
    kept = YAML + "  # zerocfg: ignore[ZC005, ZC010] for older releases\n  gradient_clipping: 1.0\n"
    found = result(tmp_path, a_yaml=kept)
    assert codes(found) == [] and found.suppressed_by == {"comments": 1}
    blanket = YAML + "  # zerocfg: ignore[ZC005]\n  gradient_clipping: 1.0\n# zerocfg: ignore-file\n"
    assert codes(result(tmp_path, a_yaml=blanket)) == ["ZC010", "ZC010"]


def test_wording(tmp_path: Path) -> None:
    text = YAML + "  # zerocfg: ignore[ZC005,ZC103, ZC104] x\n  overlap_comm: true\n  # zerocfg: ignore[ZC005]\n"
    two, one = result(tmp_path, a_yaml=text).diagnostics
    assert two.message == "unused `ignore`: ZC005 and ZC104 find nothing on the line that it is for"
    assert one.message == "unused `ignore`: ZC005 finds nothing on the line that it is for"
    assert (two.help, one.help) == ("remove ZC005 and ZC104 from the list", "remove the comment")


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a: 1  # zerocfg: ignore[ZC005] why\nb: 2\n", "a: 1\nb: 2\n"),
        ("a: 1  # zerocfg: ignore[ZC005] why # note\nb: 2\n", "a: 1  # note\nb: 2\n"),
        ("a: 1  # note # zerocfg: ignore[ZC005] \nb: 2\n", "a: 1  # note\nb: 2\n"),
        ("a: 1\n  # zerocfg: ignore[ZC005]\nb: 2\n", "a: 1\nb: 2\n"),
        ("a: 1\nb: 2\n# zerocfg: ignore[ZC005]", "a: 1\nb: 2"),
        ("\ufeff# zerocfg: ignore[ZC005]\na: 1\n", "\ufeffa: 1\n"),
        ("a: 1\nb: 2  # zerocfg: ignore[ZC005, ZC104]\n", "a: 1\nb: 2\n"),
        ("a: 1\nb: 2  # zerocfg: ignore[ ZC005 ,  ZC999 ] x\n", "a: 1\nb: 2\n"),
    ],
)
def test_removal_leaves_the_rest(tmp_path: Path, before: str, after: str, end: str) -> None:
    top = "" if before.startswith("\ufeff") else YAML
    text, wanted = (top + part for part in (before, after))
    if not top:
        text, wanted = text + YAML, wanted + YAML
    text, wanted = text.replace("\n", end), wanted.replace("\n", end)
    write(Example({"a.yaml": text}), tmp_path)
    only = Selection(select=("ZC005", "ZC104", "ZC010", "ZC011"))
    texts, after_fix, _ = fix_all(
        lint(tmp_path, None, only), lambda changed: lint(tmp_path, None, only, changed), unsafe=True
    )
    assert codes(after_fix) == []
    assert list(texts.values()) == [wanted]


_PIECES = st.sampled_from(
    [
        "# zerocfg: ignore",
        "// zerocfg:",
        "ignore-file",
        "[",
        "]",
        ",",
        " ",
        "\n",
        "ZC103",
        "ZC005",
        "zc",
        "#",
        "'",
        '"',
        "x",
    ]
)


@settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(_PIECES, max_size=14).map("".join), st.sampled_from(["a.yaml", "ds.json", "train.sh", "page.md"]))
def test_no_comment_raises(comment: str, name: str) -> None:
    base = {
        "a.yaml": YAML + DEAD,
        "ds.json": '{"train_batch_size": 8, "zero_optimization": {"stage": 2, "typo": 1}}\n',
        "train.sh": LINE,
        "page.md": f"```bash\n{LINE}```\n",
    }[name]
    for text in (base + comment, comment + "\n" + base, base.replace("\n", f"  {comment}\n")):
        with TemporaryDirectory() as folder:
            found = lint_example(Example({name: text}), Path(folder).resolve())
            for diagnostic in found.diagnostics:
                assert diagnostic.fix is None or all(
                    edit.span.start <= edit.span.end for _, edit in diagnostic.fix.edits
                )
            ignores_for(found.diagnostics)


@pytest.mark.parametrize(
    ("text", "line", "lines"),
    [
        ("a\nb \\\nc\nd\n", 1, range(1, 2)),
        ("a\nb \\\nc\nd\n", 2, range(2, 4)),
        ("a\nb \\\nc\nd\n", 3, range(2, 4)),
        ("a \\\nb \\\nc", 2, range(1, 4)),
        ("a \\\nb \\", 1, range(1, 3)),  # the file ends within the command
        ("# a \\\nb\n", 2, range(2, 3)),  # a comment does not go on
    ],
)
def test_the_lines_of_a_command(text: str, line: int, lines: range) -> None:
    assert command_lines(SourceText("run.sh", text), line) == lines
