"""What a lock holds, that it is always the same text, and what cannot be read as one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of_hypothesis
from hypothesis import strategies as st

from tests.build.conftest import EXAMPLES, Workplace, job
from zerocfg.compare.lock_diff import changes, sources
from zerocfg.compare.lock_table import table
from zerocfg.emit import lock as lockfile
from zerocfg.emit import make_lock
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.models.hardware import Host, Mount
from zerocfg.resolve.plan import Considered, Decision, Plan
from zerocfg.source.text import Where

BUCKET = "zero_optimization.reduce_bucket_size"
ZERO_2 = {"zero_optimization": {"stage": 2, "reduce_bucket_size": "auto"}}


def plan(**given: Any) -> Plan:
    return Plan("a", "transformers", "deepspeed", Path(), "train.py", [], "8xA100-80GB", 8, 1, **given)


def rendered(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(make_lock.lock_of(plan(**given), {}, {}, ".").text())
    return found


# -- content -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("example", ["quickstart", "sft-zero2", "grpo-zero3", "zero2-cpu-offload", "zero3-nvme", "ddp"])
def test_places_are_where_the_values_are(workplace: Workplace, example: str) -> None:
    folder = workplace.example(example)
    assert workplace.build(folder).exit_code == 0
    (run,) = EXAMPLES[example]
    lock = lockfile.load(workplace.folder / "out" / run / "zerocfg.lock")
    assert lock.spec_folder is not None
    assert (workplace.folder / "out" / run / lock.spec_folder).resolve() == folder.resolve()
    checked = 0
    for name, entry in lock.settings.items():
        if entry.kind == "file":
            file, line, column = entry.place
            text = (folder / file).read_text().splitlines()[line - 1][column - 1 :]
            key = entry.reason.rpartition("; ")[2].rpartition(": ")[2].rpartition(".")[2]
            assert text.lstrip('"').startswith(key), (name, entry, text)
            checked += 1
    assert checked >= 3


def test_computed_values_name_their_inputs(workplace: Workplace) -> None:
    recipe = {"gradient_accumulation_steps": 4, "max_steps": -1, "num_train_epochs": 2, "warmup_steps": 0.1}
    scheduler = {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto", "warmup_num_steps": "auto"}}
    scheduler["params"] |= {"warmup_min_lr": "auto", "warmup_max_lr": "auto"}
    _, lock = workplace.built(job(recipe, ZERO_2 | {"scheduler": scheduler}, train_samples=6400))
    inputs = {name: entry["inputs"] for name, entry in lock["settings"].items() if "inputs" in entry}
    assert inputs[BUCKET] == {"hidden_size": 4096}
    assert inputs["train_batch_size"] == {
        "num_processes": 8,
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 4,
    }
    assert inputs["num_processes"] == {"nodes": 1, "accelerators_per_node": 8}
    assert inputs["zero_optimization.overlap_comm"] == {"zero_optimization.stage": 2}
    assert inputs["scheduler.params.total_num_steps"] == {
        "train_samples": 6400,
        "num_train_epochs": 2,
        "num_processes": 8,
        "per_device_train_batch_size": 2,
        "gradient_accumulation_steps": 4,
    }
    steps = lock["settings"]["scheduler.params.total_num_steps"]["value"]
    assert inputs["scheduler.params.warmup_num_steps"] == {
        "warmup_steps": 0.1,
        "scheduler.params.total_num_steps": steps,
    }


def test_hardware_holds_what_values_depend_on(workplace: Workplace) -> None:
    _, lock = workplace.built(job(deepspeed=ZERO_2, hardware="2x8xH100-80GB"))
    hardware = lock["hardware"]
    assert (hardware["nodes"], hardware["accelerators_per_node"], hardware["world_size"]) == (2, 8, 16)
    assert hardware["bf16"] is True and 70 < hardware["memory_gib"] < 80


def test_hardware_leaves_out_what_is_another_figure_tomorrow() -> None:
    profile = parse_hardware("8xA100-80GB")
    for free in (100.0, 50.0):
        drive = Mount(path="/nvme", free_gib=free)
        profile.host = Host(ram_gib=1000, ram_available_gib=free, memlock="unlimited", nvme=[drive])
        profile.date = str(free)
        facts = make_lock.hardware_facts("box", profile)
        assert (facts["host_memory_gib"], facts["memlock_bytes"], facts["nvme"]) == (1000, "unlimited", ["/nvme"])
        assert str(free) not in json.dumps(facts)


def test_a_probed_profile_is_an_input(workplace: Workplace) -> None:
    profile = {
        "name": "box",
        "accelerators_per_node": 8,
        "accelerator": {"name": "X", "vendor": "nvidia", "bf16": True},
    }
    files = job(deepspeed=ZERO_2, hardware="hw.json") | {"hw.json": profile}
    _, lock = workplace.built(files)
    assert lock["inputs"]["hardware"]["path"] == "hw.json"
    _, lock = workplace.built(files, "a", "--hardware", "8xA100-80GB")
    assert "hardware" not in lock["inputs"]


@pytest.mark.parametrize("linked", [True, False])
def test_a_model_of_the_hub_is_named_and_not_placed(
    workplace: Workplace, monkeypatch: pytest.MonkeyPatch, linked: bool
) -> None:
    """The cache lies elsewhere on every machine, and holds links or files."""
    folder = workplace.folder / "cache" / "models--org--small"
    snapshot = folder / "snapshots" / "abc123"
    snapshot.mkdir(parents=True)
    config = json.dumps({"model_type": "llama", "hidden_size": 64})
    if linked:
        (folder / "blobs").mkdir()
        (folder / "blobs" / "0123").write_text(config)
        (snapshot / "config.json").symlink_to("../../blobs/0123")
    else:
        (snapshot / "config.json").write_text(config)
    monkeypatch.setenv("HF_HUB_CACHE", str(workplace.folder / "cache"))
    _, lock = workplace.built(job(deepspeed=ZERO_2, model="org/small"))
    assert lock["inputs"]["model"]["path"] == "hub:org/small"
    assert lock["inputs"]["model"]["sha256"] == lockfile.sha256(config.encode())
    assert "cache" not in (workplace.folder / "out" / "a" / "zerocfg.lock").read_text()
    assert "changed since" not in workplace.zerocfg("explain", BUCKET).output


def test_plans_compared_are_the_one_taken_and_eight_more() -> None:
    name = "zero_optimization.stage"
    taken = Considered({name: 2}, "fits", 40.123456, 1.23456e-5)
    others = [Considered({name: 3}, "fits", 30.0, 2e-5, f"{number}% slower") for number in range(20)]
    found = rendered(considered=[taken, *others])["considered"]
    assert found["compared"] == 21
    assert found["taken"] == {
        "settings": {name: 2},
        "verdict": "fits",
        "device_gib": 40.12,
        "seconds_per_token": 1.23e-5,
    }
    assert [one["excluded"] for one in found["runners_up"]] == [f"{number}% slower" for number in range(8)]
    assert rendered()["considered"] == {}


def test_a_lock_of_before_the_verdicts_were_chances_is_read_as_it_is() -> None:
    """Then "tight" stood for what is likely or unlikely now."""
    taken = Considered({"zero_optimization.stage": 2}, "tight", 84.2, 1e-5)
    before = make_lock.lock_of(plan(considered=[taken]), {}, {}, ".")
    found = lockfile.parse(before.text().encode(), Path("zerocfg.lock"))
    assert found.text() == before.text() and '"verdict": "tight"' in found.text()
    likely = make_lock.lock_of(plan(considered=[Considered(taken.settings, "likely", 84.2, 1e-5)]), {}, {}, ".")
    assert changes(found, likely) == [], "no setting differs"


def test_secrets_are_left_out() -> None:
    text = make_lock.lock_of(
        plan(
            recipe={"hub_token": "hf_abc", "env": {"WANDB_API_KEY": "abc"}, "seed": 1},
            changes={"hub_token": Decision("hf_abc", "chosen", "chosen")},
            settings={"comet.api_key": Decision("abc", "ds.json: comet.api_key", "file")},
        ),
        {},
        {},
        ".",
    ).text()
    assert "abc" not in text and text.count("(not recorded)") == 4


def test_no_infinity() -> None:
    one = rendered(settings={"steps_per_print": Decision(float("inf"), "", "computed")})
    assert one["settings"]["steps_per_print"]["value"] == "inf"


# -- always the same text ----------------------------------------------------------------------------------------

NAMES = st.text("abc._", min_size=1, max_size=4)
WORDS = st.text('aé "\\\n\0:#', max_size=4)
SCALARS = st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False) | WORDS
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(NAMES, SCALARS, max_size=2)
DECISIONS = st.builds(
    Decision,
    value=VALUES,
    reason=WORDS,
    kind=st.sampled_from(["file", "default", "computed", "chosen", "hardware"]),
    place=st.sampled_from([None, Where("ds.json", 3, 5)]),
    inputs=st.dictionaries(NAMES, SCALARS, max_size=2),
)
TABLES = st.dictionaries(NAMES, DECISIONS, max_size=4)
FEW = settings_of_hypothesis(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@FEW
@given(TABLES, TABLES, st.dictionaries(NAMES, VALUES, max_size=4))
def test_render_is_sorted_and_does_not_depend_on_order(
    settings: dict[str, Decision], accelerate: dict[str, Decision], recipe: dict[str, Any]
) -> None:
    def text(order: int) -> str:
        def turned(found: dict[str, Any]) -> dict[str, Any]:
            return dict(list(found.items())[::order])

        one = plan(settings=turned(settings), accelerate=turned(accelerate), recipe=turned(recipe))
        return make_lock.lock_of(one, {}, {}, ".").text()

    assert text(1) == text(-1)
    lock = json.loads(text(1))
    for group in ("settings", "accelerate", "recipe"):
        assert list(lock[group]) == sorted(lock[group])
    assert not text(1).endswith("\n\n") and "\t" not in text(1).replace("\\t", "")


@FEW
@given(TABLES, TABLES, st.dictionaries(NAMES, VALUES, max_size=4))
def test_a_lock_does_not_differ_from_itself(
    settings: dict[str, Decision], accelerate: dict[str, Decision], recipe: dict[str, Any]
) -> None:
    one = plan(settings=settings, accelerate=accelerate, recipe=recipe)
    first = make_lock.lock_of(one, {}, {}, ".").text()
    lock, again = (lockfile.parse(text.encode(), Path("zerocfg.lock")) for text in (first, first))
    assert lock.text() == first, "what is read is what was written"
    assert changes(lock, again) == [] and sources(lock, again) == []


JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=4))


@FEW
@given(JSON)
def test_the_text_is_the_value(value: Any) -> None:
    assert json.loads(lockfile._text(lockfile._strict(value))) == lockfile._strict(value)


@FEW
@given(st.data())
def test_whatever_stands_in_a_lock_can_be_compared(data: st.DataObject) -> None:
    """Somebody edited it, or merged it badly."""
    good = rendered(settings={BUCKET: Decision(5, "hidden_size²", "computed", "", {"hidden_size": 2})})
    keys = st.lists(st.sampled_from(sorted(good)), min_size=1, max_size=4)
    bad = good | {key: data.draw(JSON) for key in data.draw(keys)}
    bad |= {"version": data.draw(st.sampled_from([1, 2]))}
    for old, new in ((lockfile.of(bad), lockfile.of(good)), (lockfile.of(good), lockfile.of(bad))):
        assert all(str(change) for change in changes(old, new))
        assert all(isinstance(one, str) for one in sources(old, new))
    assert table(lockfile.of(bad))


# -- what is no lock ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no zerocfg.lock"),
        (b"{", "is no zerocfg.lock"),
        (b"[]", "has no `version`"),
        (b'{"version": true, "files": {}}', "has no `version`"),
        (b'{"version": 3, "zerocfg": "9.0", "files": {}}', "has version 3 (zerocfg 9.0); this zerocfg"),
        (b'{"version": 2}', "`files` is missing"),
        (b'{"version": 2, "files": []}', "`files` is no mapping"),
        (b'{"version": 2, "files": {}, "settings": 3}', "`settings` is no mapping"),
        (b"\xff\xfe\x00", "is no zerocfg.lock"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"version": 2, "files": {}}' + b" " * (11 << 20), "larger than 10 MiB"),
        (b"<<<<<<< HEAD\n{}\n=======\n{}\n>>>>>>> b\n", "is no zerocfg.lock"),
    ],
)
def test_what_is_no_lock(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "zerocfg.lock"
    path.write_bytes(content)
    with pytest.raises(lockfile.LockError) as raised:
        lockfile.load(path)
    assert message in str(raised.value) and str(path) in str(raised.value)
    assert lockfile.read(tmp_path) is None


def test_a_lock_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(lockfile.LockError, match="no such file"):
        lockfile.load(tmp_path / "zerocfg.lock")
    (tmp_path / "zerocfg.lock").mkdir()
    with pytest.raises(lockfile.LockError, match="folder"):
        lockfile.load(tmp_path / "zerocfg.lock")
    (tmp_path / "zerocfg.lock").rmdir()
    os.mkfifo(tmp_path / "zerocfg.lock")
    with pytest.raises(lockfile.LockError, match="not a regular file"):
        lockfile.load(tmp_path / "zerocfg.lock")


def test_a_lock_of_the_first_version_is_replaced_without_force(workplace: Workplace) -> None:
    _, lock = workplace.built(job(deepspeed=ZERO_2))
    path = workplace.folder / "out" / "a" / "zerocfg.lock"
    path.write_text(json.dumps(as_version_1(lock)))
    workplace.built(job({"per_device_train_batch_size": 4}, ZERO_2))
    assert json.loads(path.read_text())["version"] == 2


def as_version_1(lock: dict[str, Any]) -> dict[str, Any]:
    """As zerocfg wrote it before it recorded places, inputs and hardware."""
    kept = "zerocfg run consumer script arguments model recipe plan notes versions inputs files".split()
    settings = {
        name: {key: entry[key] for key in ("value", "reason", "kind")} for name, entry in lock["settings"].items()
    }
    old = {"version": 1, "hardware": lock["hardware"]["name"], "settings": settings}
    return old | {key: lock[key] for key in kept}
