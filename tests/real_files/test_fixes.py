"""Fixes on real files of public repositories: what a library took before, it takes after each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from benchmarks.wild.libraries import Kind, read
from tests.rules.examples import lint
from zerocfg.linter.engine import Diagnostic, Result
from zerocfg.linter.fixing import fix_all

READ: dict[str, Kind] = {"deepspeed": "deepspeed", "accelerate": "accelerate", "recipe": "recipe", "launch": "shell"}


def _fixed_alone(folder: Path, before: Result, fixed: Diagnostic) -> Mapping[str, str]:
    """The texts after one fix, by real path; none where it does not hold."""

    def again(texts: Mapping[str, str]) -> Result:
        return lint(folder, None, texts=texts)

    assert fixed.fix is not None
    texts, _, _ = fix_all(before, again, unsafe=not fixed.fix.safe, wanted=lambda one: one is fixed)
    return texts


def _refused(fixed: Diagnostic, texts: Mapping[str, str], place: Path) -> Iterator[str]:
    """What a library says to a file that it took before."""
    assert fixed.fix is not None
    kinds = {str(file.path.resolve()): file.kind for file, _ in fixed.fix.edits if file.path is not None}
    for name, text in texts.items():
        kind = READ.get(kinds[name])
        if kind is None or read(kind, Path(name)).error is not None:
            continue
        copy = place / Path(name).name
        copy.write_bytes(text.encode("utf-8"))
        error = read(kind, copy).error
        if error is not None:
            yield f"{name}: {fixed.code} {fixed.fix.description}: {error}"


@pytest.mark.libs
def test_each_fix_alone_keeps_what_was_accepted(
    corpus: Path, tmp_path: Path, count: Callable[[str, int], None]
) -> None:
    tried = {True: 0, False: 0}
    refused = []
    for repository in sorted(path for path in corpus.iterdir() if path.is_dir()):
        before = lint(repository, None)
        for one in before.diagnostics:
            if one.fix is not None and (texts := _fixed_alone(repository, before, one)):
                tried[one.fix.safe] += 1
                refused += list(_refused(one, texts, tmp_path))
    count("safe fixes of real files, each applied alone and read by the real library", tried[True])
    count("unsafe fixes of real files, each applied alone and read by the real library", tried[False])
    assert refused == []
    assert tried[True] >= 40 and tried[False] >= 80
