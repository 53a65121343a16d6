"""``zerocfg diff``: meaning, not text."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT

Cli = Callable[..., Any]
BUCKET, STAGE = "zero_optimization.reduce_bucket_size", "zero_optimization.stage"
EXAMPLES = ("quickstart", "sft-zero2", "grpo-zero3", "zero2-cpu-offload", "zero3-nvme", "ddp")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, Any], str]:
    """Writes a file, a text as it is and anything else as JSON; returns its name."""

    def make(name: str, content: Any) -> str:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return name

    return make


def example(tmp_path: Path, name: str) -> str:
    shutil.copytree(ROOT / "examples" / name, tmp_path / name, ignore=shutil.ignore_patterns("runs", "__pycache__"))
    return name


def differences(zerocfg: Cli, a: str, b: str, code: int = 1) -> dict[str, tuple[Any, Any]]:
    """Name -> (value of A, value of B); "(none)" where a side does not have it, "(unknown)" where nobody knows."""
    outcome = zerocfg("diff", a, b, "--output-format", "json")
    assert outcome.code == code, outcome.out + outcome.err
    found = json.loads(outcome.out)
    assert found["version"] == 1 and found["same"] is (code == 0) and bool(found["differences"]) is (code == 1)

    def value(side: Any) -> Any:
        return "(none)" if side is None else side.get("value", "(unknown)")

    return {one["key"]: (value(one["a"]), value(one["b"])) for one in found["differences"]}


# -- DeepSpeed JSON ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({BUCKET: 5e8}, {BUCKET: 500000000}),
        ({BUCKET: "500000000"}, {BUCKET: 5e8}),
        ({"zero_optimization.contiguous_gradients": "yes"}, {"zero_optimization.contiguous_gradients": True}),
        ({"zero_optimization.contiguous_gradients": True}, {}),
        ({}, {"gradient_clipping": 1}),
        ({"zero_optimization.stage": 2}, {"zero_optimization.stage": 2, "zero_optimization.overlap_comm": False}),
        ({"zero_optimization.stage": "auto"}, {"zero_optimization.stage": "auto"}),
        ({"bfloat16.enabled": True}, {"bf16.enabled": True}),
        ({"optimizer.params.betas": [0.9, 1]}, {"optimizer.params.betas": [0.9, 1.0]}),
    ],
)
def test_the_same_for_deepspeed(zerocfg: Cli, write: Any, one: dict[str, Any], other: dict[str, Any]) -> None:
    base = {"train_micro_batch_size_per_gpu": 1}
    assert differences(zerocfg, write("a.json", nested(base | one)), write("b.json", nested(base | other)), 0) == {}
    assert "the same meaning" in zerocfg("diff", "a.json", "b.json").out


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ({STAGE: 1}, {STAGE: 2}, {STAGE: (1, 2)}),
        ({STAGE: 2}, {STAGE: 3}, {STAGE: (2, 3), "zero_optimization.overlap_comm": (False, True)}),
        ({BUCKET: 5e8}, {BUCKET: "auto"}, {BUCKET: (500000000, "auto")}),
        ({BUCKET: 1000}, {}, {BUCKET: (1000, 500000000)}),
        ({}, {"optimizer.params.lr": 1e-5}, {"optimizer.params.lr": ("(none)", 1e-5)}),
        ({"optimizer.params.lr": "1e-5"}, {"optimizer.params.lr": 1e-5}, {"optimizer.params.lr": ("1e-5", 1e-5)}),
        ({"wall_clock_breakdown": True}, {"wall_clock_breakdown": 1}, {"wall_clock_breakdown": (True, 1)}),
    ],
)
def test_another_for_deepspeed(
    zerocfg: Cli, write: Any, one: dict[str, Any], other: dict[str, Any], found: dict[str, Any]
) -> None:
    base = {"train_micro_batch_size_per_gpu": 1}
    a, b = write("a.json", nested(base | one)), write("b.json", nested(base | other))
    assert differences(zerocfg, a, b) == found
    assert differences(zerocfg, b, a) == {name: pair[::-1] for name, pair in found.items()}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    for name, value in flat.items():
        *parents, leaf = name.split(".")
        section = config
        for parent in parents:
            section = section.setdefault(parent, {})
        section[leaf] = value
    return config


def test_as_text(zerocfg: Cli, write: Any) -> None:
    write("a.json", '{\n  "zero_optimization": {\n    "stage": 2,\n    "reduce_bucket_size": 5e8\n  }\n}\n')
    write("b.json", '{\n  "zero_optimization": {\n    "stage": 2,\n    "reduce_bucket_size": "auto"\n  }\n}\n')
    outcome = zerocfg("diff", "a.json", "b.json")
    assert (outcome.code, outcome.out) == (
        1,
        "- a.json  (DeepSpeed config)\n"
        "+ b.json  (DeepSpeed config)\n"
        "\n"
        "zero_optimization.reduce_bucket_size\n"
        "  - 500000000  a.json:4:5\n"
        '  + "auto"     b.json:4:5; its reader fills it\n'
        "\n",
    )


def test_the_important_first(zerocfg: Cli, write: Any) -> None:
    a = nested({"bf16.enabled": False, STAGE: 1, BUCKET: 1, "train_batch_size": 1, "steps_per_print": 1})
    b = nested({"bf16.enabled": True, STAGE: 2, BUCKET: 2, "train_batch_size": 2, "steps_per_print": 2})
    found = differences(zerocfg, write("a.json", a), write("b.json", b))
    assert list(found) == ["train_batch_size", "bf16.enabled", STAGE, BUCKET, "steps_per_print"]


# -- accelerate YAML, recipes, launch lines ----------------------------------------------------------------------


def test_accelerate_configs(zerocfg: Cli, write: Any) -> None:
    one = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\nnum_processes: 4\nmixed_precision: bf16\n"
    a, b = write("a.yaml", one), write("b.yaml", one.replace("zero_stage: 2", "zero_stage: 3").replace("bf16", "fp16"))
    found = differences(zerocfg, a, b)
    assert found["mixed_precision"] == ("bf16", "fp16") and found[STAGE] == (2, 3)
    assert not any(name.startswith("ACCELERATE_") for name in found)
    c = write("c.yaml", f"# the same\n{one}use_cpu: false\n")
    assert differences(zerocfg, a, c, 0) == {}


def test_a_named_deepspeed_file_is_followed(zerocfg: Cli, write: Any) -> None:
    text = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: {}\nnum_processes: 4\n"
    for name, stage in (("one.json", 2), ("two.json", 3), ("three.json", 2)):
        write(name, {"zero_optimization": {"stage": stage}, "train_micro_batch_size_per_gpu": 1})
    for name in ("one", "two", "three"):
        write(f"{name}.yaml", text.format(f"{name}.json"))
    assert differences(zerocfg, "one.yaml", "two.yaml")[STAGE] == (2, 3)
    assert differences(zerocfg, "one.yaml", "three.yaml", 0) == {}


def test_fsdp_configs(zerocfg: Cli, write: Any) -> None:
    one = "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n  fsdp_offload_params: {}\nnum_processes: 2\n"
    found = differences(zerocfg, write("a.yaml", one.format("false")), write("b.yaml", one.format("true")))
    assert list(found) == ["fsdp_config.fsdp_offload_params"]


def test_an_fsdp_config_has_no_defaults_of_deepspeed(zerocfg: Cli, write: Any) -> None:
    deepspeed = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {zero_stage: 3}\n"
    fsdp = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config: {fsdp_version: 2}\n"
    found = differences(zerocfg, write("a.yaml", deepspeed), write("b.yaml", fsdp))
    assert found["zero_optimization.stage"] == (3, "(none)")
    assert {value for name, (_, value) in found.items() if not name.startswith("fsdp_")} >= {"fsdp", "(none)"}
    assert "default of deepspeed" not in zerocfg("diff", "a.yaml", "b.yaml").out


def test_recipes(zerocfg: Cli, write: Any) -> None:
    a = write("a.yaml", "per_device_train_batch_size: 8\nlearning_rate: 1.0e-5\nweight_decay: 0.0\nhub_token: abc\n")
    b = write("b.yaml", "per_device_train_batch_size: 8\nlearning_rate: 0.00001\nmax_grad_norm: 2\nhub_token: abd\n")
    outcome = zerocfg("diff", a, b)
    found = differences(zerocfg, a, b)
    assert found == {"max_grad_norm": (1.0, 2)}  # no weight decay is the default
    assert "abc" not in outcome.out and "default of transformers" in outcome.out


def test_launch_lines(zerocfg: Cli, write: Any) -> None:
    lines = ["accelerate launch --multi_gpu --num_processes 4 t.py"] * 2
    lines += ["accelerate launch --num_processes 1 t.py", "accelerate launch t.py", ""]
    write("train.sh", "\n".join(lines))
    assert differences(zerocfg, "train.sh:1", "train.sh:2", 0) == {}
    found = differences(zerocfg, "train.sh:1", "train.sh:3")
    assert (found["num_processes"], found["engine"]) == ((4, 1), ("ddp", "single"))
    found = differences(zerocfg, "train.sh:1", "train.sh:4")  # as many as the machine has
    assert (found["num_processes"], found["engine"]) == ((4, "(unknown)"), ("ddp", "(unknown)"))
    outcome = zerocfg("diff", "train.sh", "train.sh:2")
    assert outcome.code == 2 and "train.sh:1, train.sh:2" in outcome.err
    assert "in line 7" in zerocfg("diff", "train.sh:7", "train.sh:2").err


# -- builds and specs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_build_means_what_its_spec_means(zerocfg: Cli, tmp_path: Path, name: str) -> None:
    """Every auto of the source is what the build filled in; what zerocfg chose is what the source left open."""
    example(tmp_path, name)
    assert zerocfg("build", name, "-o", "out").code == 0
    run = next((tmp_path / "out").iterdir()).name
    found = json.loads(zerocfg("diff", f"out/{run}", f"{name}:{run}", "--output-format", "json").out)["differences"]
    lock = json.loads((tmp_path / "out" / run / "zerocfg.lock").read_text())
    assert {one["key"] for one in found if one["of"] == "setting"} <= {
        name for name, entry in lock["settings"].items() if entry["kind"] in ("chosen", "default")
    }
    assert zerocfg("diff", f"out/{run}", "out").code == 0  # the only build below out


def test_builds(zerocfg: Cli, tmp_path: Path) -> None:
    example(tmp_path, "quickstart")
    assert zerocfg("build", "quickstart", "-o", "one").code == 0
    config = tmp_path / "quickstart" / "model" / "config.json"
    config.write_text(config.read_text().replace('"hidden_size": 64', '"hidden_size": 128'))
    recipe = tmp_path / "quickstart" / "recipe.yaml"
    recipe.write_text(recipe.read_text().replace("warmup_steps: 2", "weight_decay: 0.1"))
    assert zerocfg("build", "quickstart", "-o", "two", "--hardware", "4xCPU").code == 0
    assert differences(zerocfg, "one/quickstart", "two/quickstart/zerocfg.lock") == {
        "num_processes": (2, 4),
        "train_batch_size": (16, 32),
        BUCKET: (4096, 16384),
        "zero_optimization.stage3_prefetch_bucket_size": (3686, 14745),
        "zero_optimization.stage3_param_persistence_threshold": (640, 1280),
        "warmup_steps": (2, 0),
        "weight_decay": (0.0, 0.1),
        "hardware": ("2xCPU", "4xCPU"),
    }
    text = zerocfg("diff", "one/quickstart", "two/quickstart").out
    assert "  - 4096   auto in ds_config.json; hidden_size² = 64² elements (transformers fills it so)\n" in text


def test_a_build_and_a_config(zerocfg: Cli, tmp_path: Path) -> None:
    example(tmp_path, "quickstart")
    assert zerocfg("build", "quickstart", "-o", "out").code == 0
    found = differences(zerocfg, "out/quickstart", "quickstart/ds_config.json")
    assert found[BUCKET] == (4096, "auto") and STAGE not in found
    found = differences(zerocfg, "out/quickstart/ds_config.json", "out/quickstart")
    assert found["num_processes"] == ("(none)", 2) and BUCKET not in found


# -- wrong use ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere", "there is no file or folder 'nowhere'"),
        ("a\0b", ""),
        ("x" * 5000, "cannot be read"),
        ("empty", "'empty' holds neither a zerocfg.lock nor a zerocfg.yaml"),
        ("notes.yaml", "is no accelerate config, DeepSpeed config, recipe, spec, launch script or build"),
        ("broken.json", "cannot be read"),
        ("large.json", "larger than 10 MiB"),
        ("binary.json", "cannot be read"),
        ("spec/zerocfg.yaml", "has several runs; name one: spec/zerocfg.yaml:a, spec/zerocfg.yaml:b"),
        ("spec:c", "has no run 'c'; it has a, b"),
        ("a.json:x", "has no runs"),
        ("pipe", "not a regular file"),
    ],
)
def test_what_cannot_be_compared(zerocfg: Cli, write: Any, tmp_path: Path, name: str, message: str) -> None:
    write("a.json", {"zero_optimization": {"stage": 2}})
    write("notes.yaml", "hello: world\n")
    write("broken.json", '{"zero_optimization": ')
    (tmp_path / "empty").mkdir()
    if name == "pipe":
        os.mkfifo(tmp_path / "pipe")
    (tmp_path / "binary.json").write_bytes(b"\0\1\2")
    if name == "large.json":
        write("large.json", " " * (11 << 20))
    run = {"consumer": "transformers", "script": "t.py", "recipe": "r.yaml"}
    write("spec/zerocfg.yaml", {"version": 1, "runs": {"a": run, "b": run}})
    for words in ((name, "a.json"), ("a.json", name)):
        outcome = zerocfg("diff", *words)
        assert outcome.code == 2, outcome.out
        assert message in outcome.err, outcome.err
    assert zerocfg("diff", "a.json").code == 2


def test_what_will_fail_is_said(zerocfg: Cli, write: Any) -> None:
    a = write("a.json", {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}})
    b = write("b.json", {"zero_optimization": {"stage": 2}, "bf16": {"enabled": True}, "fp16": {"enabled": True}})
    outcome = zerocfg("diff", a, b)
    assert outcome.code == 1 and "+ will fail, parse: bfloat16 and fp16 modes" in outcome.out
    a = write("a.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: c.json\n")
    b = write("b.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: nowhere.json\n")
    write("c.json", {"zero_optimization": {"stage": 2}})
    outcome = zerocfg("diff", a, b)
    assert outcome.code == 1 and "+ will fail, b.yaml:3:3: there is no file 'nowhere.json'" in outcome.out


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_launch_line_that_names_its_processes_alone(ranks: int, zerocfg: Cli, write: Any) -> None:
    """Several processes without another option are data parallel, for `diff` as for `explain`."""
    made = 'Trainer(model=None, args=TrainingArguments(output_dir="o")).train()'
    write("train.py", f"from transformers import Trainer, TrainingArguments\n{made}\n")
    write(
        "train.sh",
        f"accelerate launch --num_processes {ranks} train.py\naccelerate launch --num_processes 1 train.py\n",
    )
    found = differences(zerocfg, "train.sh:1", "train.sh:2")
    assert (found["num_processes"], found["engine"]) == ((ranks, 1), ("ddp", "single"))
    told = zerocfg("explain", "--run", "train.sh:1").out.splitlines()
    rows = {words[0]: words[1] for words in map(str.split, told) if len(words) > 1}
    assert (rows["num_processes"], rows["engine"]) == (str(ranks), '"ddp"')
