"""What the real libraries made of some hundred configs, kept for the tests that run without them.

`python -m tests.parity.record` plays the configs and writes `recorded/*.jsonl`; the tests marked libs play them again
and fail where the record says something else. All configs are generated: none is of somebody's repository.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.parity import generated
from tests.parity.cases import Case
from tests.parity.verdicts import real_accelerate, real_deepspeed
from zerocfg.catalog.schema import load_schema

Row = dict[str, Any]
FOLDER = Path(__file__).with_name("recorded")
TRIPLES, LAUNCHES, ENGINES = "triples", "launches", "engines"
GENERATED = 150
_OF_A_LAUNCH = ("phase", "error", "world", "environment", "config", "parsed")

ACCELERATE_BASES: list[generated.Tree] = [
    {"distributed_type": "DEEPSPEED", "num_processes": 2, "deepspeed_config": {"zero_stage": 2}},
    {"distributed_type": "FSDP", "num_processes": 2, "fsdp_config": {}},
    {"distributed_type": "MULTI_GPU", "num_processes": 2},
    {"distributed_type": "NO"},
]
DEEPSPEED_BASE: generated.Tree = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}


def triples(chosen: Iterable[Case], played: Iterable[Mapping[str, Any]]) -> list[Row]:
    """What came of launches up to the engine's parser (see `worker`), without the tracebacks."""
    return [
        {"case": case, "real": {name: seen[name] for name in _OF_A_LAUNCH if name in seen}}
        for case, seen in zip(chosen, played, strict=True)
    ]


def launches() -> list[Row]:
    """What `accelerate launch` exports with a config file."""

    def play(tree: generated.Tree) -> Row | None:
        text = generated.yaml_text(tree)
        real = real_accelerate(text)
        error = real.error and re.sub(r"\S*/acc\.yaml", "acc.yaml", real.error)
        return None if real.here else {"text": text, "error": error, "values": real.values}

    schema = load_schema("accelerate")
    return _played(st.sampled_from(ACCELERATE_BASES).flatmap(lambda base: generated.typed(schema, base)), play)


def engines() -> list[Row]:
    """What DeepSpeed's parser makes of a config, on 1, 2 or 8 ranks."""

    def play(drawn: tuple[generated.Tree, int]) -> Row | None:
        text, world = generated.json_text(drawn[0]), drawn[1]
        real = real_deepspeed(text, world)
        return None if real.here else {"text": text, "world": world, "error": real.error, "values": real.values}

    return _played(st.tuples(generated.typed(load_schema("deepspeed"), DEEPSPEED_BASE), st.sampled_from([1, 2, 8])), play)


def _played(drawn: st.SearchStrategy[Any], play: Callable[[Any], Row | None]) -> list[Row]:
    rows: list[Row] = []

    @settings(
        max_examples=GENERATED,
        derandomize=True,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(drawn)
    def collect(one: Any) -> None:
        row = play(one)
        if row is not None and row not in rows:
            rows.append(row)

    collect()
    return rows


def write(name: str, rows: Iterable[Row]) -> None:
    """One line a row. Of the values that a parser gives hundreds of, a row has those that its first row has not."""
    rows = json.loads(json.dumps(list(rows), default=str))
    usual = next(filter(None, map(_values, rows)))
    lines = []
    for row in rows:
        values = _values(row)
        if values is not usual and values.keys() >= usual.keys():
            for key in [key for key in usual if json.dumps(values[key]) == json.dumps(usual[key])]:
                del values[key]
            row["as first"] = True
        lines.append(json.dumps(row, ensure_ascii=False) + "\n")
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def read(name: str) -> list[Row]:
    rows = [json.loads(line) for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    usual = next(filter(None, map(_values, rows)))
    for row in rows:
        if row.pop("as first", False):
            values = _values(row)
            values.update({**usual, **values})
    return rows


def _values(row: Row) -> dict[str, Any]:
    """What a parser made of a config."""
    found: dict[str, Any] = row["real"].get("parsed", {}) if "real" in row else row["values"]
    return found


def differences(name: str, rows: Iterable[Row]) -> list[str]:
    """Rows that are played otherwise than they are kept. Of errors the type counts: texts differ by Python."""
    played, kept = json.loads(json.dumps(list(rows), default=str)), read(name)
    for row in (*played, *kept):
        real = row.get("real", row)
        real["error"] = real["error"] and real["error"].partition(":")[0]
    wrong = [f"kept {old}\n  played {new}" for old, new in zip(kept, played) if json.dumps(old) != json.dumps(new)]
    return wrong if len(kept) == len(played) else [f"{len(kept)} rows are kept, {len(played)} were played", *wrong]


if __name__ == "__main__":
    from tests.parity.test_effective import play

    with tempfile.TemporaryDirectory() as folder:
        write(TRIPLES, triples(*play(Path(folder))))
    write(LAUNCHES, launches())
    write(ENGINES, engines())
