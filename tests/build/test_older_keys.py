"""A build for an older DeepSpeed emits what that release reads, also where the newest one refuses it.

Which release reads a key is taken from the histories, which were made by running the releases; what has to be emitted
is what the author wrote.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.build.conftest import Workplace
from tests.conftest import ROOT

HISTORIES: dict[str, Any] = json.loads((ROOT / "schemas/releases/deepspeed.json").read_text())
BY_KIND = {"integer": 2, "boolean": True, "string": "inductor", "object": {"a": 1}, "section": {"enabled": False}}
SPEC = {"consumer": "deepspeed", "script": "train.py", "hardware": "2xA100-80GB", "deepspeed": "ds.json"}
TRAIN = 'import deepspeed\n\nengine = deepspeed.initialize(model=None, config="ds.json")\n'
BASE = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 1}}


def read_before(releases: list[str], key: str) -> tuple[str, Any] | None:
    """The last release that read a key which today's does not, and a value of its kind; None for other keys."""
    *before, (gone, last) = HISTORIES["keys"][key]
    if not before or before[-1][1] is None or (last is not None and "removed" not in last):
        return None
    state = before[-1][1]
    kinds = [kind for kind in state.get("kinds", ()) if kind in BY_KIND]
    value = BY_KIND[kinds[0]] if kinds else state.get("default", {} if "section" in state.get("kinds", ()) else 2)
    return releases[releases.index(gone) - 1], value


GONE = [
    (key, *held)
    for key in HISTORIES["keys"]
    if not key.endswith("*") and (held := read_before(HISTORIES["releases"], key)) is not None
]
REFUSED = [
    (key, history[-1][0]) for key, history in HISTORIES["keys"].items() if (history[-1][1] or {}).get("removed") is True
]


def files(release: str, config: dict[str, Any]) -> dict[str, Any]:
    run = {**SPEC, "versions": {"deepspeed": f"=={release}"}}
    return {"zerocfg.yaml": {"version": 1, "runs": {"a": run}}, "train.py": TRAIN, "ds.json": config}


def with_key(key: str, value: Any) -> dict[str, Any]:
    config: dict[str, Any] = json.loads(json.dumps(BASE))
    *parents, leaf = key.split(".")
    section = config
    for parent in parents:
        section = section.setdefault(parent, {})
    section[leaf] = value
    return config


def test_there_are_such_keys() -> None:
    names = {key for key, _, _ in GONE}
    assert {"amp", "nebula.enabled", "zero_optimization.mics_shard_size", "compile.backend", "elasticity"} <= names
    assert len(names) > 40 and len(REFUSED) == 14


@pytest.mark.parametrize(("key", "release", "value"), GONE, ids=[key for key, _, _ in GONE])
def test_what_the_release_reads_is_emitted(key: str, release: str, value: Any, workplace: Workplace) -> None:
    written = with_key(key, value)
    emitted: Any = workplace.built(files(release, written))[0]
    for part in key.split("."):
        emitted, written = emitted[part], written[part]
    assert emitted == written and type(emitted) is type(written)


@pytest.mark.parametrize(("key", "release"), REFUSED, ids=[key for key, _ in REFUSED])
def test_what_the_release_refuses_is_named(key: str, release: str, workplace: Workplace) -> None:
    result = workplace.build(workplace.write(files(release, with_key(key, {"enabled": False}))))
    assert result.exit_code in (1, 2) and "error of zerocfg" not in result.output
    assert f"ds.json:1:{json.dumps(with_key(key, {})).index(key.rpartition('.')[2])}" in result.output


@pytest.mark.parametrize(
    ("release", "emitted"),
    [("0.16.9", {"enabled": 1, "immediate_grad_update": "off"}), ("0.17.1", {"enabled": True})],
)
def test_sections_that_were_not_typed_keep_what_is_written(
    release: str, emitted: dict[str, Any], workplace: Workplace
) -> None:
    """`get` takes 1 and any text for true; since 0.17.1 a pydantic model converts them."""
    section = {"enabled": 1, "immediate_grad_update": "off"} if release == "0.16.9" else {"enabled": 1}
    config, _ = workplace.built(files(release, {**BASE, "bf16": section}))
    assert config["bf16"] == emitted and [type(one) for one in config["bf16"].values()] == [
        type(one) for one in emitted.values()
    ]


def test_releases_older_than_the_known_ones(workplace: Workplace) -> None:
    amp = {"enabled": False, "opt_level": "O1", "min_loss_scale": 32.0}
    assert workplace.built(files("0.8.2", {**BASE, "amp": amp}))[0]["amp"] == amp


LOOP = (
    "import torch\nfrom accelerate import Accelerator\n\naccelerator = Accelerator()\n"
    "model = accelerator.prepare(torch.nn.Linear(4, 4))\n"
    "for batch in []:\n    accelerator.backward(model(batch).sum())\n"
)


def inline(precision: str) -> dict[str, Any]:
    """A loop of its own, whose accelerate config states DeepSpeed's own key, which accelerate ignores."""
    section = {"zero_stage": 2, "gradient_accumulation_steps": 1, "train_micro_batch_size_per_gpu": 1}
    config = {"distributed_type": "DEEPSPEED", "mixed_precision": precision, "num_processes": 2, "num_machines": 1}
    run = {"consumer": "accelerate", "script": "train.py", "accelerate": "acc.yaml", "hardware": "2xA100-80GB"}
    return {
        "zerocfg.yaml": {"version": 1, "runs": {"a": run}},
        "train.py": LOOP,
        "acc.yaml": {**config, "compute_environment": "LOCAL_MACHINE", "deepspeed_config": section},
    }


@pytest.mark.parametrize(
    ("precision", "sections"),
    [
        ("bf16", {"bf16": {"enabled": True}}),
        ("fp16", {"fp16": {"enabled": True, "auto_cast": True}}),  # DeepSpeedPlugin.set_mixed_precision writes both
        ("no", {"bf16": {"enabled": False}}),
    ],
)
def test_the_precision_of_the_launcher_goes_into_the_file(
    precision: str, sections: dict[str, Any], workplace: Workplace
) -> None:
    config, _ = workplace.built(inline(precision))
    assert {name: config[name] for name in ("bf16", "fp16") if name in config} == sections
    assert config["train_micro_batch_size_per_gpu"] == 1


def test_fp8_has_no_place_in_the_file(workplace: Workplace) -> None:
    result = workplace.build(workplace.write(inline("fp8")))
    assert result.exit_code == 1
    assert "mixed_precision: fp8 cannot be emitted" in result.output and "error of zerocfg" not in result.output
