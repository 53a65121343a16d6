"""What the real libraries made of some hundred configs, kept for the tests that run without them.

`python -m tests.parity.record` plays the configs and writes `recorded/*.jsonl`; the tests marked libs play them again
and fail where the record says something else. All configs are generated: none is of somebody's repository.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections import Counter
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
GENERATED = 400
_OF_A_LAUNCH = ("phase", "error", "world", "environment", "config", "parsed")

ACCELERATE_BASES: list[generated.Tree] = [
    {"distributed_type": "DEEPSPEED", "num_processes": 2, "deepspeed_config": {"zero_stage": 2}},
    {"distributed_type": "FSDP", "num_processes": 2, "fsdp_config": {}},
    {"distributed_type": "MULTI_GPU", "num_processes": 2},
    {"distributed_type": "NO"},
]
DEEPSPEED_BASE: generated.Tree = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 2}}
_MISTAKEN_LAUNCHES: list[generated.Tree] = [
    {
        "distributed_type": kind,
        "num_processes": 4,
        "num_machines": machines,
        "machine_rank": 0,
        "main_process_ip": "10.0.0.1",
        "main_process_port": 29513,
        "mixed_precision": precision,
        "use_cpu": False,
        "debug": True,
        "gpu_ids": "0,1",
        **sections,
    }
    for kind, machines, precision, sections in (
        ("DEEPSPEED", 1, "bf16", {"deepspeed_config": {"zero_stage": 3, "offload_optimizer_device": "cpu"}}),
        ("FSDP", 2, "fp8", {"fsdp_config": {"fsdp_version": 2}, "fp8_config": {"backend": "TE", "margin": 1}}),
        (
            "FSDP",
            1,
            "bf16",
            {"fsdp_config": {"fsdp_version": 2}, "parallelism_config": {"parallelism_config_cp_size": 2}},
        ),
        ("MEGATRON_LM", 1, "fp16", {"megatron_lm_config": {"megatron_lm_tp_degree": 2}}),
        ("NO", 2, "no", {"dynamo_config": {"dynamo_backend": "INDUCTOR", "dynamo_mode": "default"}}),
        ("MULTI_GPU", 2, "fp16", {"dynamo_config": {"dynamo_backend": "INDUCTOR"}}),
    )
]
_MISTAKEN_ENGINES: list[generated.Tree] = [
    {
        **batches,
        "gradient_clipping": 1.0,
        precision: {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.001}},
        "zero_optimization": {
            "stage": stage,
            "overlap_comm": True,
            "reduce_bucket_size": 1000,
            "stage3_param_persistence_threshold": 10,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
        },
    }
    for stage, precision, batches in (
        (2, "bf16", {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 2}),
        (3, "fp16", {"train_batch_size": 16, "gradient_accumulation_steps": 2}),
        (1, "bf16", {"train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 2}),
        (0, "fp16", {"train_batch_size": 16, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2}),
    )
]
"""What mistakes are made in."""


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
    typed = st.sampled_from(ACCELERATE_BASES).flatmap(lambda base: generated.typed(schema, base))
    return _played(typed | generated.mistaken(_MISTAKEN_LAUNCHES), play)


def engines() -> list[Row]:
    """What DeepSpeed's parser makes of a config, on 1, 2 or 8 ranks."""

    def play(drawn: tuple[generated.Tree, int]) -> Row | None:
        text, world = generated.json_text(drawn[0]), drawn[1]
        real = real_deepspeed(text, world)
        return None if real.here else {"text": text, "world": world, "error": real.error, "values": real.values}

    typed = generated.typed(load_schema("deepspeed"), DEEPSPEED_BASE)
    return _played(st.tuples(typed | generated.mistaken(_MISTAKEN_ENGINES), st.sampled_from([1, 2, 8])), play)


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
    """The usual values, then one line a row without them: a parser gives hundreds."""
    rows = json.loads(json.dumps(list(rows), default=str))
    full = [values for values in map(_values, rows) if values]
    shared = set.intersection(*map(set, full))
    texts = {key: Counter(json.dumps(values[key]) for values in full) for key in sorted(shared)}
    usual = {key: json.loads(found.most_common(1)[0][0]) for key, found in texts.items()}
    for row in filter(_values, rows):
        values = _values(row)
        for key in [key for key in usual if json.dumps(values[key]) == json.dumps(usual[key])]:
            del values[key]
        row["and usual"] = True
    FOLDER.mkdir(exist_ok=True)
    lines = (json.dumps(line, ensure_ascii=False) + "\n" for line in (usual, *rows))
    (FOLDER / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")


def read(name: str) -> list[Row]:
    usual, *rows = map(json.loads, (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines())
    for row in rows:
        if row.pop("and usual", False):
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
    texts = [[json.dumps(row, sort_keys=True) for row in rows] for rows in (kept, played)]
    wrong = [f"kept {old}\n  played {new}" for old, new in zip(*texts, strict=False) if old != new]
    return wrong if len(kept) == len(played) else [f"{len(kept)} rows are kept, {len(played)} were played", *wrong]


if __name__ == "__main__":
    from tests.parity.test_effective import play

    with tempfile.TemporaryDirectory() as folder:
        write(TRIPLES, triples(*play(Path(folder))))
    write(LAUNCHES, launches())
    write(ENGINES, engines())
