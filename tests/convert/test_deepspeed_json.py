"""``zerocfg convert --to deepspeed-json`` and back: bytes, findings, and what the real libraries make of both."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from zerocfg.compare.effective_diff import Difference
from zerocfg.compare.sides import Value
from zerocfg.convert.conversion import Row, unexplained
from zerocfg.run.stages.plugin import CONFLICTS

Cli = Callable[..., Outcome]

ZERO2 = """\
compute_environment: LOCAL_MACHINE
num_processes: 2
deepspeed_config:
  deepspeed_multinode_launcher: standard
  zero3_init_flag: false
  zero_stage: 2  # shards gradients

  # where the optimizer lives
  offload_optimizer_device: none  # on the card
  gradient_accumulation_steps: 4
  gradient_clipping: 1.0

  # nobody reads these here
  overlap_comm: true  #hidden behind the backward pass
  allgather_bucket_size: 4e8
  reduce_bucket_size: 5e8

distributed_type: DEEPSPEED   # not FSDP
"""
ZERO3 = """\
compute_environment: LOCAL_MACHINE
num_processes: 2
deepspeed_config:
  zero_stage: 3
  stage3_prefetch_bucket_size: 5e8
  stage3_param_persistence_threshold: 1e6
  stage3_gather_16bit_weights_on_model_save: true
  offload_optimizer_device: none
  offload_param_device: none
  overlap_comm: true
  stage3_max_live_parameters: 1e9
distributed_type: DEEPSPEED
"""


def table(zerocfg: Cli, *words: str) -> dict[str, tuple[str, str]]:
    """By key as it is written, what becomes of it and how it maps."""
    data = json.loads(zerocfg("convert", *words, "--output-format", "json").out)
    return {row["key"]: (row["becomes"], row["maps"]) for row in data["table"]}


def convert(zerocfg: Cli, folder: Path, text: str, *words: str) -> tuple[str, dict[str, Any]]:
    """The config and its JSON after ``--write``."""
    (folder / "a.yaml").write_bytes(text.encode())
    done = zerocfg("convert", "a.yaml", "--to", "deepspeed-json", "--write", *words)
    assert done.code == 0, done.err
    return (folder / "a.yaml").read_bytes().decode(), json.loads((folder / "a.json").read_text())


def test_bytes_and_comments_stay(zerocfg: Cli, tmp_path: Path) -> None:
    after, data = convert(zerocfg, tmp_path, ZERO2)
    assert after == (
        "compute_environment: LOCAL_MACHINE\n"
        "num_processes: 2\n"
        "deepspeed_config:\n"
        "  deepspeed_multinode_launcher: standard\n"
        "  zero3_init_flag: false\n"
        "  # zero_optimization.stage: shards gradients\n"
        "\n"
        "  # where the optimizer lives\n"
        "  # zero_optimization.offload_optimizer.device: on the card\n"
        "\n"
        "  # nobody reads these here\n"
        "  # zero_optimization.overlap_comm: hidden behind the backward pass\n"
        "  deepspeed_config_file: a.json\n"
        "\n"
        "distributed_type: DEEPSPEED   # not FSDP\n"
    )
    assert data == {
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 4,
        "gradient_clipping": 1.0,
        "zero_optimization": {
            "stage": 2,
            "offload_optimizer": {"device": "none"},
            "overlap_comm": True,
            "allgather_bucket_size": 400000000,
            "reduce_bucket_size": 500000000,
        },
    }
    assert "e8" not in (tmp_path / "a.json").read_text() and "00000.0" not in (tmp_path / "a.json").read_text()
    windows, _ = convert_again(zerocfg, tmp_path, ZERO2.replace("\n", "\r\n"))
    assert windows == after.replace("\n", "\r\n")


def convert_again(zerocfg: Cli, folder: Path, text: str) -> tuple[str, dict[str, Any]]:
    (folder / "a.json").unlink()
    return convert(zerocfg, folder, text)


@pytest.mark.parametrize("text", [ZERO2, ZERO3], ids=["zero2", "zero3"])
def test_the_pair_is_clean(text: str, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text)
    assert zerocfg("lint", "--consumer", "trl", "a.yaml").code == 1
    convert(zerocfg, tmp_path, text)
    done = zerocfg("lint", "--consumer", "trl", "--quiet", "a.yaml")
    assert (done.code, done.out) == (0, "")
    assert zerocfg("convert", "a.yaml", "--to", "deepspeed-json").out == "Nothing to convert.\n"


def test_what_counts_now_is_told(zerocfg: Cli, tmp_path: Path) -> None:
    """DeepSpeed's defaults: overlap_comm false at stage 2, buckets of 5e8."""
    (tmp_path / "a.yaml").write_text(ZERO2)
    found = table(zerocfg, "a.yaml", "--to", "deepspeed-json")
    assert found == {
        "deepspeed_config.zero_stage: 2": ("zero_optimization.stage: 2", "exactly"),
        "deepspeed_config.offload_optimizer_device: none": (
            "zero_optimization.offload_optimizer.device: none",
            "exactly",
        ),
        "deepspeed_config.gradient_accumulation_steps: 4": ("gradient_accumulation_steps: 4", "exactly"),
        "deepspeed_config.gradient_clipping: 1.0": ("gradient_clipping: 1.0", "exactly"),
        "deepspeed_config.overlap_comm: true": ("zero_optimization.overlap_comm: true", "counts now"),
        "deepspeed_config.allgather_bucket_size: 4e8": (
            "zero_optimization.allgather_bucket_size: 400000000",
            "counts now",
        ),
        "deepspeed_config.reduce_bucket_size: 5e8": ("zero_optimization.reduce_bucket_size: 500000000", "exactly"),
    }
    assert not (tmp_path / "a.json").exists() and (tmp_path / "a.yaml").read_text() == ZERO2
    shown = zerocfg("convert", "a.yaml", "--to", "deepspeed-json").out
    assert "nobody read it; false counted" in shown and shown.endswith("\n5 exactly, 2 counts now\n")


def test_a_new_file_leaves_the_old_one(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ZERO3)
    (tmp_path / "new").mkdir()
    words = ("convert", "a.yaml", "--to", "deepspeed-json", "-o", "new/b.yaml")
    assert zerocfg(*words).code == 0
    assert (tmp_path / "a.yaml").read_text() == ZERO3
    assert "deepspeed_config_file: new/b.json" in (tmp_path / "new" / "b.yaml").read_text()
    again = zerocfg(*words)
    assert again.code == 2 and again.err == "Error: 'new/b.yaml' is there already; name another file\n"
    (tmp_path / "new" / "b.yaml").unlink()
    assert "'new/b.json' is there already" in zerocfg(*words).err
    assert not (tmp_path / "new" / "b.yaml").exists()
    assert zerocfg(*words, "--json", "ds.json").code == 0 and (tmp_path / "ds.json").exists()


def test_precision_moves_along(zerocfg: Cli, tmp_path: Path) -> None:
    """accelerate raises where `mixed_precision` stands beside a file, whatever its value."""
    assert "mixed_precision" in CONFLICTS
    after, data = convert(zerocfg, tmp_path, f"mixed_precision: fp16  # V100\n{ZERO3}")
    assert after.startswith("# fp16.enabled: V100\ncompute_environment") and "mixed_precision" not in after
    assert data["fp16"] == {"enabled": True, "auto_cast": True} and "bf16" not in data
    (tmp_path / "a.json").unlink()
    after, data = convert(zerocfg, tmp_path, f"mixed_precision: 'no'\n{ZERO3}")
    assert after.startswith("compute_environment") and not {"fp16", "bf16"} & set(data)


@pytest.mark.parametrize("consumer", ["accelerate", "transformers", "trl"])
def test_what_the_script_decides_stays_its_own(zerocfg: Cli, tmp_path: Path, consumer: str) -> None:
    """Whose arguments are not here: a Trainer's precision overrides the file's, "auto" is filled in by either."""
    text = ZERO3.replace("  zero_stage", "  gradient_accumulation_steps: auto\n  gradient_clipping: auto\n  zero_stage")
    after, data = convert(zerocfg, tmp_path, f"mixed_precision: bf16\n{text}", "--consumer", consumer)
    assert "mixed_precision" not in after and data["bf16"] == {"enabled": True}
    assert data["gradient_accumulation_steps"] == "auto"
    # Without a Trainer DeepSpeed's engine clips at accelerate's own default.
    assert data["gradient_clipping"] == (1.0 if consumer == "accelerate" else "auto")
    (tmp_path / "a.yaml").write_text(f"mixed_precision: bf16\n{text}")
    rows = table(zerocfg, "a.yaml", "--to", "deepspeed-json", "--json", "b.json", "--consumer", consumer)
    match = "exactly" if consumer == "accelerate" else "nearly"
    assert rows["mixed_precision: bf16"] == ("bf16.enabled: true", match)
    if consumer == "accelerate":
        refused = zerocfg("convert", "a.yaml", "--to", "fsdp2", "--consumer", consumer)
        assert refused.code == 2 and "int('auto')" in refused.err
        return
    rows = table(zerocfg, "a.yaml", "--to", "fsdp2", "--consumer", consumer)
    assert {how for _, how in rows.values()} == {"exactly", "nearly"}


def test_beside_a_json_both_files_change(zerocfg: Cli, tmp_path: Path) -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
        "  gradient_clipping: 0.5\n  reduce_bucket_size: 2e8\n"
    )
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "ds.json").write_text('{\n  "zero_optimization": {"stage": 2}\n}\n')
    words = ("convert", "a.yaml", "--to", "deepspeed-json")
    blocked = zerocfg(*words, "-o", "b.yaml")
    assert blocked.code == 2 and "'ds.json', which FILE reads, would change" in blocked.err
    found = table(zerocfg, *words[1:], "--consumer", "accelerate")
    # accelerate's own default counted beside a JSON, as DeepSpeed's for the buckets
    assert found["deepspeed_config.gradient_clipping: 0.5"] == ("gradient_clipping: 0.5", "nearly")
    assert found["deepspeed_config.reduce_bucket_size: 2e8"][1] == "counts now"
    assert json.loads(zerocfg(*words, "--output-format", "json").out)["differs"] == []
    assert zerocfg(*words, "--write").code == 0
    assert (tmp_path / "a.yaml").read_text() == text[: text.index("  gradient_clipping")]
    assert (tmp_path / "ds.json").read_text() == (
        '{\n  "zero_optimization": {"stage": 2, "reduce_bucket_size": 200000000},\n  "gradient_clipping": 0.5\n}\n'
    )


def test_what_the_json_says_already_stays_as_it_is_written(zerocfg: Cli, tmp_path: Path) -> None:
    head = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    (tmp_path / "a.yaml").write_text(f"{head}  reduce_bucket_size: 200000000\n  overlap_comm: true\n")
    zero = '{\n  "zero_optimization": {"stage": 2, "reduce_bucket_size": 2e8'
    (tmp_path / "ds.json").write_text(f"{zero}}}\n}}\n")
    assert zerocfg("convert", "a.yaml", "--to", "deepspeed-json", "--write").code == 0
    assert (tmp_path / "a.yaml").read_text() == head
    assert (tmp_path / "ds.json").read_text() == f'{zero}, "overlap_comm": true}}\n}}\n'


def test_a_path_that_nobody_reads(zerocfg: Cli, tmp_path: Path) -> None:
    """accelerate's plugin drops `offload_optimizer_nvme_path`; in a JSON DeepSpeed reads it. `none` says nothing."""
    line = "offload_optimizer_nvme_path"
    section = f"deepspeed_config:\n  zero_stage: 3\n  {line}: none\n  offload_param_nvme_path: /drive\n"
    (tmp_path / "a.yaml").write_text(f"distributed_type: DEEPSPEED\nnum_processes: 2\n{section}")
    found = table(zerocfg, "a.yaml", "--to", "deepspeed-json")
    assert found[f"deepspeed_config.{line}: none"] == ("(left out)", "exactly")
    moved = found["deepspeed_config.offload_param_nvme_path: /drive"]
    assert moved == ("zero_optimization.offload_param.nvme_path: /drive", "counts now")


def test_a_difference_is_shown_with_both_values() -> None:
    values = [Value("2", "a.json:1"), None]
    (row,) = unexplained(
        {"a.b": Difference("setting", "a.b", *values), "c": Difference("setting", "c", *values)},
        [Row("c: 2", "", "nearly", settings=frozenset({"c"}))],
    )
    assert (row.old, row.new, row.match) == ('a.b: "2"', "a.b: (not set)", "nearly")


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("learning_rate: 1.0e-4", "it is an argument of the Trainer"),
        ("reduce_bucket: 5", "DeepSpeed has no key `reduce_bucket`"),
        ("stage3_max_live_parameters: lots", "DeepSpeed does not take this value"),
        ("stage: 3", "`zero_optimization.stage: 2` is said elsewhere; remove one of the two"),
    ],
)
def test_what_has_no_place_stays_and_blocks(line: str, why: str, zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ZERO2.replace("  overlap_comm", f"  {line}\n  overlap_comm"))
    words = ("convert", "a.yaml", "--to", "deepspeed-json", "--output-format", "json")
    done = zerocfg(*words, "--write")
    assert done.code == 1 and "Nothing was written" in done.err and not (tmp_path / "a.json").exists()
    (lost,) = [row for row in json.loads(done.out)["table"] if row["maps"] == "not at all"]
    assert (lost["because"], lost["place"]) == (why, "a.yaml:14:3")
    assert zerocfg(*words, "--write", "--allow-loss").code == 1
    assert f"  {line}\n" in (tmp_path / "a.yaml").read_text()


@pytest.mark.parametrize("name", ["zero2", "zero3"])
def test_the_seeds(name: str, zerocfg: Cli, tmp_path: Path) -> None:
    """The configs of the exercises that this project started from, where they are at hand."""
    seeds = ROOT.parent / "shared" / "seeds"
    text = next((one.read_text() for one in seeds.glob("*.txt") if f"{name}.yaml`:**" in one.read_text()), None)
    if text is None:
        pytest.skip("no corpus of real configs here, which the seeds are part of")
    found = re.search(rf"{name}\.yaml`:\*\*\n\n```yaml\n(.*?)```", text, re.S)
    assert found is not None
    convert(zerocfg, tmp_path, found[1])
    done = zerocfg("lint", "--consumer", "trl", "--quiet", "a.yaml")
    assert (done.code, done.out) == (0, "")


def test_back_into_one_file(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(ZERO3.replace("  stage3_prefetch_bucket_size: 5e8\n", ""))
    assert zerocfg("convert", "a.yaml", "--to", "deepspeed-json", "--write").code == 0
    blocked = zerocfg("convert", "a.yaml", "--to", "accelerate-yaml", "--write")
    assert blocked.code == 1 and "Nothing was written" in blocked.err
    lost = [key for key, (_, maps) in table(zerocfg, "a.yaml", "--to", "accelerate-yaml").items() if maps[:3] == "not"]
    assert lost == ["zero_optimization.stage3_param_persistence_threshold: 1000000"]
    path = tmp_path / "a.json"
    path.write_text(path.read_text().replace('    "stage3_param_persistence_threshold": 1000000,\n', ""))
    assert zerocfg("convert", "a.yaml", "--to", "accelerate-yaml", "--write").code == 0
    assert (tmp_path / "a.yaml").read_text() == (
        "compute_environment: LOCAL_MACHINE\nnum_processes: 2\ndeepspeed_config:\n"
        "  zero_stage: 3\n  zero3_save_16bit_model: true\n  offload_optimizer_device: none\n"
        "  offload_param_device: none\ndistributed_type: DEEPSPEED\n"
    )


def test_a_json_without_accumulation_means_one_step(zerocfg: Cli, tmp_path: Path) -> None:
    """accelerate adds 1 to a file without the key, and "auto" to a config of its own; DeepSpeed clips at 1.0."""
    (tmp_path / "a.yaml").write_text(
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    )
    (tmp_path / "ds.json").write_text('{"bf16": {"enabled": true}, "zero_optimization": {"stage": 1}}')
    assert zerocfg("convert", "a.yaml", "--to", "accelerate-yaml", "--write").code == 0
    assert (tmp_path / "a.yaml").read_text() == (
        "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 1\n"
        "  gradient_accumulation_steps: 1\n  gradient_clipping: 1.0\nmixed_precision: bf16\n"
    )


@pytest.mark.parametrize(
    ("text", "words", "says"),
    [
        (None, (), "there is no file 'a.yaml'"),
        ("a: [", (), "a.yaml:1:"),
        (
            "num_train_epochs: 1\noutput_dir: x\nlearning_rate: 1\n",
            (),
            "'a.yaml' is a recipe; name the accelerate config",
        ),
        ("distributed_type: FSDP\nfsdp_config: {}\n", (), "a.yaml:1:1: this form is for `distributed_type: DEEPSPEED`"),
        (ZERO2.replace("2\n", "2\n", 1), ("-o", "b.yaml", "--write"), "-o and --write cannot be combined"),
        ("distributed_type: DEEPSPEED\ndeepspeed_config:\n- a\n", (), "a.yaml:2:1: `deepspeed_config` is no mapping"),
        (
            "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: no.json\n",
            (),
            "a.yaml: there is no file 'no.json'",
        ),
        (
            ZERO2.replace("  zero_stage", "  deepspeed_config_file: none\n  zero_stage"),
            (),
            "a.yaml:6:3: accelerate takes `none`",
        ),
        (
            ZERO2.replace("  zero_stage", "  zero3_save_16bit_model: true\n  zero_stage"),
            ("--json", "a.yaml", "--write"),
            "there already",
        ),
        (ZERO2, ("-o", "no/where/b.yaml"), "No such file or directory"),
    ],
)
def test_wrong_use(text: str | None, words: tuple[str, ...], says: str, zerocfg: Cli, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "a.yaml").write_text(text)
    done = zerocfg("convert", "a.yaml", "--to", "deepspeed-json", *(words or ("--write",)))
    assert done.code == 2 and says in done.err, done.err
    assert {one.name for one in tmp_path.iterdir()} <= {"a.yaml"}


@pytest.mark.libs
def test_the_libraries_read_the_same(zerocfg: Cli, tmp_path: Path) -> None:
    """accelerate's launcher and plugin and DeepSpeed's parser, on what was there and on the pair: they differ in the
    settings that the table says count now, and only there."""
    sources = [
        ZERO2,
        ZERO3,
        ZERO3.replace("overlap_comm: true", "overlap_comm: false\n  zero3_save_16bit_model: true").replace(
            "  stage3_gather_16bit_weights_on_model_save: true\n", ""
        ),
        f"mixed_precision: bf16\n{ZERO2}",
        f"mixed_precision: 'no'\n{ZERO2.replace('  gradient_clipping: 1.0', '')}",
    ]
    cases, changes = [], []
    for text in sources:
        (tmp_path / "a.yaml").write_text(text)
        (tmp_path / "a.json").unlink(missing_ok=True)
        found = table(zerocfg, "a.yaml", "--to", "deepspeed-json", "--consumer", "accelerate")
        changes.append({new.partition(":")[0] for new, maps in found.values() if maps == "counts now"})
        after, data = convert(zerocfg, tmp_path, text, "--json", "a.json", "--consumer", "accelerate")
        common = {"flags": ["--config_file", "acc.yaml"], "arguments": {}, "consumer": "accelerate", "route": None}
        cases += [
            {"yaml": text, "json": None, **common},
            {"yaml": after.replace("a.json", "ds.json"), "json": json.dumps(data), **common},
        ]
    (tmp_path / "cases.json").write_text(json.dumps(cases))
    worker = ROOT / "tests" / "parity" / "worker.py"
    command = [warm.python(), str(worker), str(tmp_path / "cases.json"), str(tmp_path / "seen.json")]
    subprocess.run(command, check=True, cwd=tmp_path)
    seen = json.loads((tmp_path / "seen.json").read_text())
    for before, after, changed in zip(seen[::2], seen[1::2], changes, strict=True):
        assert before["phase"] == after["phase"] == "done", (before["error"], after["error"])
        one, other = ({name: _off(value) for name, value in seen["parsed"].items()} for seen in (before, after))
        assert {name for name in one if one[name] != other[name]} == {name.replace("stage3_", "") for name in changed}


def _off(value: Any) -> Any:
    """An offload to no device is none."""
    return None if isinstance(value, dict) and value.get("device") == "none" else value


def test_a_run_without_any_key_gets_a_json(zerocfg: Cli, tmp_path: Path) -> None:
    """What accelerate sets by itself: stage 2, everything else for others to fill in."""
    for section in ("", "deepspeed_config:\n", "deepspeed_config: {}\n"):
        (tmp_path / "a.json").unlink(missing_ok=True)
        after, data = convert(zerocfg, tmp_path, f"distributed_type: DEEPSPEED\nnum_processes: 2\n{section}")
        assert yaml.safe_load(after)["deepspeed_config"] == {"deepspeed_config_file": "a.json"}
        assert data["zero_optimization"] == {"stage": 2} and data["gradient_clipping"] == "auto"


def test_a_config_in_json_keeps_its_name(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"distributed_type": "DEEPSPEED", "deepspeed_config": {"overlap_comm": true}}\n')
    assert zerocfg("convert", "a.json", "--to", "deepspeed-json", "--write").code == 0
    assert json.loads((tmp_path / "a.json").read_text())["deepspeed_config"] == {
        "deepspeed_config_file": "a_deepspeed.json"
    }
    assert json.loads((tmp_path / "a_deepspeed.json").read_text())["zero_optimization"]["overlap_comm"] is True


def test_a_key_written_twice_goes_twice(zerocfg: Cli, tmp_path: Path) -> None:
    """PyYAML takes the last one."""
    after, data = convert(zerocfg, tmp_path, ZERO3.replace("  overlap_comm", "  overlap_comm: false\n  overlap_comm"))
    assert data["zero_optimization"]["overlap_comm"] is True and "overlap_comm" not in after


def test_what_comes_from_an_anchor_is_not_edited(zerocfg: Cli, tmp_path: Path) -> None:
    text = "distributed_type: DEEPSPEED\nfsdp_config: &a\n  overlap_comm: true\ndeepspeed_config:\n  zero_stage: 2\n"
    text += "  <<: *a\n"
    (tmp_path / "a.yaml").write_text(text)
    done = zerocfg("convert", "a.yaml", "--to", "deepspeed-json", "--write")
    assert done.code == 2 and "a.yaml:3:3: the key cannot be taken out: " in done.err
    assert (tmp_path / "a.yaml").read_text() == text
