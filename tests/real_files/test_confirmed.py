"""No false alarms: every error that zerocfg reports on real files is shown by the real library on these files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.real_files.confirm import Played, confirmed
from tests.real_files.pairs import LINE, Pair, pairs
from tests.rules.examples import lint_example
from zerocfg.linter.engine import Diagnostic
from zerocfg.rulebook.example import Example
from zerocfg.rules.api import Severity
from zerocfg.run.discover import Files

pytestmark = pytest.mark.libs

_PLAYED_IN_A_LOOP = "test_unscaled_loss.py trains with the real engine: that takes a loop, which no file here has"
_OWN_TESTS = "deepspeedai__DeepSpeed/tests"
REVIEWED: dict[tuple[str, str], str] = {
    ("ZC333", f"{_OWN_TESTS}/hybrid_engine/hybrid_engine_config.json"): _PLAYED_IN_A_LOOP,
    ("ZC333", f"{_OWN_TESTS}/model/Megatron_GPT2/ds_config_func_bs8_no_zero.json"): _PLAYED_IN_A_LOOP,
    ("ZC333", f"{_OWN_TESTS}/model/Megatron_GPT2/ds_config_func_bs8_zero0_gas3.json"): _PLAYED_IN_A_LOOP,
}
"""(code, file or launch) of findings that cannot be shown by a run here: why they are true all the same."""

CANONICAL = {"deepspeed": "ds.json", "accelerate": "accelerate.yaml", "recipe": "recipe.yaml"}
"""The names under which the harness looks for a file of each kind."""


def launches(corpus: Path) -> Iterator[Pair]:
    """Every config file by itself, then every launch."""
    for path in sorted(path for path in corpus.glob("*/**/*") if path.suffix in (".json", ".yaml", ".yml")):
        name = path.relative_to(corpus).as_posix()
        text = path.read_bytes().decode("utf-8", "surrogateescape")
        yield Pair(name, {path.name: text}, None)
    yield from pairs(corpus)


def played(pair: Pair, folder: Path) -> Played:
    """The files for the harness, also under the names that it knows."""
    files = Files()
    known: dict[str, str] = {}
    for name, text in pair.files.items():
        kind = files.open(folder / name).kind
        if kind in CANONICAL:
            known.setdefault(CANONICAL[kind], text)
    if list(known) == ["ds.json"] and len(pair.files) == 1 and '"auto"' in known["ds.json"]:
        # Only the Trainer fills "auto"; a script of its own is the least that it takes.
        return Played({**known, LINE: "torchrun train.py --deepspeed ds.json --output_dir out\n"}, "transformers")
    return Played({**known, **pair.playable()}, pair.consumer)


def test_every_error_is_true(
    corpus: Path, tmp_path_factory: pytest.TempPathFactory, count: Callable[[str, int], None]
) -> None:
    found: Counter[str] = Counter()
    shown, reviewed, number = 0, set(), 0
    wrong: list[str] = []
    for pair in launches(corpus):
        number += 1
        folder = tmp_path_factory.mktemp("launch")
        errors = told(pair, folder)
        play = played(pair, folder) if errors else None
        for diagnostic in errors:
            assert play is not None
            found[f"{diagnostic.code} {diagnostic.name}"] += 1
            reasons = confirmed(diagnostic, play).reasons
            key = (diagnostic.code, pair.name)
            if not reasons:
                shown += 1
            elif key in REVIEWED:
                reviewed.add(key)
            else:
                wrong.append(f"{pair.name}: {diagnostic.code} {diagnostic.message}\n    {'; '.join(reasons)[:600]}")
    count("real files and launches linted", number)
    count("errors reported on them", sum(found.values()))
    count("of these errors shown by the real library on the same files", shown)
    count("of these errors reviewed by hand, with the reason written down", len(reviewed))
    for rule, times in sorted(found.items()):
        count(f"of these errors from {rule}", times)
    assert not wrong, f"{len(wrong)} errors are not shown\n" + "\n".join(wrong)
    assert set(REVIEWED) == reviewed, "no longer found"


def told(pair: Pair, folder: Path) -> list[Diagnostic]:
    result = lint_example(Example(pair.files, pair.consumer), folder)
    return [diagnostic for diagnostic in result.diagnostics if diagnostic.severity is Severity.ERROR]
