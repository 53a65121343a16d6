"""What is emitted beside the configs: recipe, launch scripts, batch script, manifest, commented config."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from syrupy.assertion import SnapshotAssertion

from tests.build.conftest import Workplace, job
from tests.build.plans import RECIPE, decision, emitted, lock, make, texts, written
from zerocfg.emit import accelerate_yaml, jobset, recipe
from zerocfg.emit.problems import problems
from zerocfg.emit.values import json_value, one_line, yaml_value
from zerocfg.models.hardware import Host
from zerocfg.models.spec import Targets
from zerocfg.resolve.plan import Plan
from zerocfg.source.load import load_bytes

SLURM = {"slurm": {"partition": "gpu", "time": "24:00:00", "setup": ["source venv/bin/activate"]}}
OTHERS = {
    "skypilot": {"setup": ["pip install deepspeed"], "resources": {"use_spot": True}},
    "ray": {"setup": ["source venv/bin/activate"], "runtime_env": {"env_vars": {"NCCL_DEBUG": "INFO"}}},
    "ssh": {"setup": ["module load cuda"], "options": ["-p", "2222"]},
}
KUBERNETES = {"jobset": {"image": "registry.example/train:1", "namespace": "ml"}}


# -- texts -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hardware", ["8xH100-80GB", "2x8xH100-80GB"], ids=["one", "two"])
@pytest.mark.parametrize("launcher", ["accelerate", "torchrun", "deepspeed"])
def test_launch_scripts(tmp_path: Path, launcher: str, hardware: str, snapshot: SnapshotAssertion) -> None:
    files = texts(make(tmp_path, hardware, launcher=launcher))
    assert files["launch.sh"] == snapshot(name="launch.sh")
    assert files.get("hostfile") == snapshot(name="hostfile")


@pytest.mark.parametrize("hardware", ["8xH100-80GB", "2x8xH100-80GB"], ids=["one", "two"])
def test_schedulers(tmp_path: Path, hardware: str, snapshot: SnapshotAssertion) -> None:
    files = texts(make(tmp_path, hardware, SLURM | KUBERNETES))
    assert files["job.sbatch"] == snapshot(name="job.sbatch")
    assert files["jobset.yaml"] == snapshot(name="jobset.yaml")


@pytest.mark.parametrize("hardware", ["8xH100-80GB", "2x8xH100-80GB"], ids=["one", "two"])
def test_other_ways_to_start(tmp_path: Path, hardware: str, snapshot: SnapshotAssertion) -> None:
    files = texts(make(tmp_path, hardware, OTHERS, hosts=["alpha", "beta"] if hardware.startswith("2") else []))
    for name in ("sky.yaml", "ray_job.sh", "ray_env.yaml", "ray_driver.py", "ssh.sh"):
        assert files[name] == snapshot(name=name)
    compile(files["ray_driver.py"], "ray_driver.py", "exec")


@pytest.mark.parametrize("hardware", ["8xH100-80GB", "2x8xH100-80GB", "2x1xcpu"])
def test_a_preflight_goes_before_the_training(tmp_path: Path, hardware: str) -> None:
    """With the node's setup, once on each node, and only where it is asked for."""
    without, text = (
        texts(make(tmp_path, hardware, {"slurm": {"setup": ["source venv/bin/activate"], "preflight": asked}}))[
            "job.sbatch"
        ]
        for asked in (False, True)
    )
    assert "preflight" not in without
    step = text[text.index("\nsrun ") : text.index(" || code=$?")].split(" bash \\\n")[1]
    words = ["zerocfg", "preflight", "--on", "node", "--expect", '"${script%/*}"']
    words += ["--device", "cpu"] if "cpu" in hardware else []
    words += ["--hosts", "\"${hosts//$'\\n'/,}\""] if hardware.startswith("2x") else []
    assert step.split() == words
    assert text.index("zerocfg preflight") < text.index('exit "$code"') < text.index('bash "$script"')


def test_hosts_are_the_hostfile_and_the_first_is_the_address(tmp_path: Path) -> None:
    files = texts(make(tmp_path, "2x4xA100", launcher="deepspeed", hosts=["alpha", "beta"]))
    assert files["hostfile"] == "alpha slots=4\nbeta slots=4\n"
    assert "MAIN_PROCESS_IP:=alpha" in files["launch.sh"]
    assert "MAIN_PROCESS_IP:=alpha" in texts(make(tmp_path, "2x4xA100", hosts=["alpha", "beta"]))["launch.sh"]


@pytest.mark.parametrize("hardware", ["4xcpu", "2x4xcpu"])
def test_no_devices_are_asked_for_without_devices(tmp_path: Path, hardware: str) -> None:
    files = texts(make(tmp_path, hardware, SLURM | KUBERNETES))
    assert "gpu" not in files["job.sbatch"].replace("--partition=gpu", "")
    assert "resources" not in files["jobset.yaml"]


def test_cpus_of_a_probed_node(tmp_path: Path) -> None:
    plan = make(tmp_path, targets=SLURM)
    assert plan.profile is not None and "#SBATCH --cpus-per-task" not in texts(plan)["job.sbatch"]
    plan.profile = plan.profile.model_copy(update={"host": Host(cpus=96)})
    assert "#SBATCH --cpus-per-task=96\n" in texts(plan)["job.sbatch"]
    assert plan.targets is not None and plan.targets.slurm is not None
    plan.targets.slurm.options = ["--cpus-per-task=12"]
    assert texts(plan)["job.sbatch"].count("#SBATCH --cpus-per-task=") == 1


def test_options_of_slurm_are_quoted_and_may_name_the_devices(tmp_path: Path) -> None:
    slurm = {"slurm": {"partition": "a b", "account": "x;y", "options": ["--gres=gpu:h100:8", "--exclusive"]}}
    lines = texts(make(tmp_path, targets=slurm))["job.sbatch"].splitlines()
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH ")]
    assert options == [
        "--job-name=a",
        "--nodes=1",
        "--ntasks-per-node=1",
        "--partition='a b'",
        "--account='x;y'",
        "--gres=gpu:h100:8",
        "--exclusive",
    ]


@pytest.mark.parametrize("launcher", ["accelerate", "torchrun", "deepspeed"])
@pytest.mark.parametrize("hardware", ["8xA100", "3x8xA100"])
@pytest.mark.parametrize("hosts", [False, True])
def test_scripts_are_sound(tmp_path: Path, launcher: str, hardware: str, hosts: bool) -> None:
    slurm = {"slurm": {"setup": ["module load cuda"], "options": ["--exclusive"], "preflight": True}}
    names = [f"n{index}" for index in range(3 if hardware.startswith("3") else 1)] if hosts else []
    folder = written(make(tmp_path, hardware, slurm | OTHERS, launcher=launcher, hosts=names, script="a 'b' $c.py"))
    for name in ("launch.sh", "job.sbatch", "ray_job.sh", "ssh.sh"):
        subprocess.run(["bash", "-n", str(folder / name)], check=True)
        # SC2016 takes the single quotes around an odd name for a mistake.
        command = [str(Path(sys.executable).with_name("shellcheck")), "--exclude=SC2016", str(folder / name)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout


def test_the_examples_of_the_page_are_targets(root: Path) -> None:
    text = (root / "docs" / "targets.md").read_text(encoding="utf-8")
    examples = [yaml.safe_load(one) for one in re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)]
    assert [list(one["targets"]) for one in examples] == [
        [name] for name in ("slurm", "jobset", "skypilot", "ray", "ssh")
    ]
    for one in examples:
        Targets.model_validate(one["targets"])


# -- files -------------------------------------------------------------------------------------------------------------


def test_every_file_is_in_the_lock_and_scripts_can_be_run(tmp_path: Path) -> None:
    plan = make(tmp_path, "2x8xH100", {**SLURM, **KUBERNETES, "hjson": True}, launcher="deepspeed")
    folder = written(plan)
    names = {path.name for path in folder.iterdir()}
    expected = "ds_config.json ds_config.hjson recipe.yaml launch.sh hostfile job.sbatch jobset.yaml".split()
    assert names == {*expected, "zerocfg.lock"}
    assert set(lock(folder)["files"]) == set(expected)
    assert lock(folder)["changes"]["deepspeed"]["value"] == "out/a/ds_config.json"
    assert {name for name in names if os.access(folder / name, os.X_OK)} == {"launch.sh", "job.sbatch"}


def test_what_is_no_longer_emitted_goes_away(tmp_path: Path) -> None:
    folder = written(make(tmp_path, targets=SLURM | KUBERNETES))
    (folder / "jobset.yaml").write_text("mine")
    (folder / "notes").write_text("mine")
    written(make(tmp_path))
    assert not (folder / "job.sbatch").exists()
    assert (folder / "jobset.yaml").read_text() == (folder / "notes").read_text() == "mine"


@pytest.mark.parametrize("name", ["../outside", "/outside", "sub/../../outside"])
def test_a_lock_cannot_name_files_elsewhere(tmp_path: Path, name: str) -> None:
    import hashlib

    folder = written(make(tmp_path))
    victim = folder.parent / "outside"
    victim.write_text("mine")
    text = lock(folder)
    text["files"][name if name != "/outside" else str(victim)] = hashlib.sha256(b"mine").hexdigest()
    (folder / "zerocfg.lock").write_text(json.dumps(text))
    written(make(tmp_path))
    assert victim.read_text() == "mine"


# -- the commented DeepSpeed config ------------------------------------------------------------------------------------


@pytest.mark.libs
def test_the_commented_config_is_the_config(tmp_path: Path) -> None:
    import hjson  # type: ignore[import-untyped]

    plan = make(tmp_path, targets={"hjson": True})
    plan.settings["gradient_clipping"] = decision(0.5, 'a "quoted" reason, { [ : over\ntwo lines\x07')
    plan.settings["notes_of_ours"] = decision("# no comment, // no comment")
    plan.deepspeed += ["notes_of_ours", "activation_checkpointing", "optimizer.params.betas"]
    plan.settings["activation_checkpointing"] = decision({})
    plan.settings["optimizer.params.betas"] = decision([0.9, 1e-8])
    files = texts(plan)
    strict = json.loads(files["ds_config.json"])
    assert json.loads(json.dumps(hjson.loads(files["ds_config.hjson"]))) == strict
    document = load_bytes("ds_config.hjson", files["ds_config.hjson"].encode())
    assert document.data() == strict and not [one for one in document.problems if one.kind != "hjson-only"]
    for name in plan.deepspeed:
        assert one_line(plan.settings[name].reason) in files["ds_config.hjson"], name


# -- the recipe --------------------------------------------------------------------------------------------------------

CHANGES = {
    "learning_rate": decision(1e-5),
    "per_device_train_batch_size": decision(4, "the largest that fits: 4 # not 5"),
    "gradient_checkpointing_kwargs": decision({"use_reentrant": False}),
    "save_strategy": decision("no"),
    "deepspeed": decision("out/a b/ds: config.json"),
}
SOURCES = {
    "plain": RECIPE,
    "no line end": RECIPE.rstrip("\n"),
    "windows": RECIPE.replace("\n", "\r\n"),
    "flow": "{output_dir: out, learning_rate: 2.0e-5}\n",
    "json in yaml": '{\n  "output_dir": "out",\n  "bf16": true\n}\n',
    "empty": "",
    "only a comment": "# nothing yet\n",
    "empty mapping": "{}\n",
    "several lines": "learning_rate:\n  5.0e-5\nsave_strategy:\n  - a\n  - b\noutput_dir: out\n",
    "quoted": "'learning_rate': 'x'\n\"save_strategy\": \"epoch\"\noutput_dir: out\n",
    "indented": "  output_dir: out\n  learning_rate: 1.0e-4\n",
    "document marks": "---\noutput_dir: out\n...\n",
    "block text at the end": "output_dir: out\nnote: |+\n  two\n  lines\n\n",
    "anchors": "base: &rate 2.0e-5\nlearning_rate: *rate\nother: *rate\n",
    "anchored": "learning_rate: &rate 2.0e-5\nother: *rate\n",
    "merged": "defaults: &d\n  learning_rate: 3.0e-5\n<<: *d\noutput_dir: out\n",
    "twice": "learning_rate: 1.0e-4\nlearning_rate: 2.0e-4\n",
    "nested": "model_init_kwargs:\n  learning_rate: 5\noutput_dir: ünï\n",
}


@pytest.mark.parametrize("source", SOURCES)
def test_a_recipe_is_changed_and_nothing_else(source: str) -> None:
    text = SOURCES[source]
    result = recipe.patched(text.encode(), "recipe.yaml", CHANGES).decode()
    wanted = {**(yaml.safe_load(text) or {}), **{name: one.value for name, one in CHANGES.items()}}
    assert yaml.safe_load(result) == wanted
    assert isinstance(yaml.safe_load(result)["learning_rate"], float)


def test_comments_order_and_reasons(snapshot: SnapshotAssertion) -> None:
    text = "# Ours.\nbf16: true   # needs A100\nlearning_rate: 2.0e-5\n\n# Data\npacking: yes\n"
    assert recipe.patched(text.encode(), "recipe.yaml", CHANGES).decode() == snapshot


def test_no_change_no_byte() -> None:
    for text in SOURCES.values():
        assert recipe.patched(text.encode(), "recipe.yaml", {}) == text.encode()


@pytest.mark.parametrize("text", ["{}", '{"learning_rate": 1}', '{\n  "save_strategy": "epoch",\n  "a": [1]\n}\n'])
def test_json_recipes_stay_json(text: str) -> None:
    result = recipe.patched(text.encode(), "recipe.json", CHANGES)
    wanted = {**json.loads(text), **{name: one.value for name, one in CHANGES.items()}}
    assert json.loads(result) == yaml.safe_load(result) == wanted
    with pytest.raises(ValueError):
        recipe.patched(text.encode(), "recipe.json", {"a": decision(float("inf"))})


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=5,
)
NAMES = st.sampled_from(["learning_rate", "bf16", "no", "a b", "x:y", "# z", "optim_args", "1e5", "ü"])


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(NAMES, VALUES, max_size=4), st.dictionaries(NAMES, VALUES, max_size=4), st.booleans())
def test_any_recipe_any_change(source: dict[str, Any], changed: dict[str, Any], flow: bool) -> None:
    text = yaml.safe_dump(source, default_flow_style=flow, allow_unicode=True, sort_keys=False)
    result = recipe.patched(text.encode(), "recipe.yaml", {name: decision(value) for name, value in changed.items()})
    wanted = {**yaml.safe_load(text), **changed}
    assert json.dumps(yaml.safe_load(result), sort_keys=True) == json.dumps(wanted, sort_keys=True)


@settings(max_examples=150, deadline=None)
@given(VALUES)
def test_values_are_read_back(value: Any) -> None:
    assert repr(yaml.safe_load("a: " + yaml_value(value))) == repr({"a": value})
    assert repr(json.loads(json_value(value))) == repr(value)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_numbers_of_json_are_numbers_of_yaml(value: float) -> None:
    assert repr(yaml.safe_load(json_value(value))) == repr(value)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["recipe.yaml"], ["out/a/recipe.yaml"]),
        (["--config", "./recipe.yaml", "--x", "1"], ["--config", "out/a/recipe.yaml", "--x", "1"]),
        (["--config=recipe.yaml", "--recipe"], ["--config=out/a/recipe.yaml", "--recipe"]),
        (["sub/../recipe.yaml"], ["out/a/recipe.yaml"]),
    ],
)
def test_the_script_gets_the_emitted_recipe(tmp_path: Path, arguments: list[str], expected: list[str]) -> None:
    (tmp_path / "sub").mkdir()
    plan = make(tmp_path, arguments=arguments)
    assert not problems(plan)
    assert texts(plan)["launch.sh"].splitlines()[-1].split() == ["train.py", *expected, '"$@"']


def test_an_unchanged_recipe_is_the_users(tmp_path: Path) -> None:
    files = texts(make(tmp_path, launcher="accelerate"))
    assert "recipe.yaml" not in files and 'train.py recipe.yaml "$@"' in files["launch.sh"]


# -- what cannot be emitted --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({"arguments": ["--lr", "1"]}, "arguments", ["deepspeed", "--lr 1", "recipe.yaml"]),
        ({"arguments": []}, "arguments", ["none"]),
        ({"inputs": {}}, "recipe", ["deepspeed"]),
        ({"hosts": ["a", "a b"], "hardware": "2x8xA100"}, "hosts", ["'a b'"]),
        ({"hosts": ["a", "a"], "hardware": "2x8xA100"}, "hosts", ["twice"]),
        ({"hosts": ["a", "$(id)"], "hardware": "2x8xA100"}, "hosts", ["$(id)"]),
        ({"hosts": ["a", "b", "c"], "hardware": "2x8xA100"}, "hosts", ["3", "2 node"]),
        ({"targets": {"slurm": {"options": ["exclusive"]}}}, "targets.slurm.options", ["'exclusive'"]),
        ({"targets": {"slurm": {"options": ["--nodes=4"]}}}, "targets.slurm.options", ["--nodes"]),
        ({"targets": {"slurm": {"options": ["-N4"]}}}, "targets.slurm.options", ["-N"]),
        ({"targets": {"jobset": {"image": "x"}}, "profile": None}, "targets.jobset.resource", ["resource"]),
        ({"targets": {"skypilot": {}}, "profile": None}, "targets.skypilot.accelerators", ["does not know"]),
        ({"targets": {"skypilot": {}}, "hardware": "8xMI250"}, "targets.skypilot.accelerators", ["does not know"]),
        (
            {"targets": {"skypilot": {"resources": {"accelerators": "H100:4"}}}},
            "targets.skypilot.resources",
            ["`accelerators`"],
        ),
        ({"targets": {"ray": {}}, "profile": None}, "targets.ray", ["nothing to ask Ray for"]),
        ({"targets": {"ray": {"folder": "work"}}}, "targets.ray.folder", ["absolute"]),
        ({"targets": {"ray": {"runtime_env": {"working_dir": "."}}}}, "targets.ray.runtime_env", ["`working_dir`"]),
        ({"targets": {"jobset": {"image": "x", "folder": "work"}}}, "targets.jobset.folder", ["absolute"]),
        ({"targets": {"jobset": {"image": "x", "namespace": "My_Space"}}}, "targets.jobset.namespace", ["My_Space"]),
    ],
)
def test_problems(tmp_path: Path, changes: dict[str, Any], key: str, words: list[str]) -> None:
    found = problems(make(tmp_path, **changes))
    assert [one.key for one in found] == [key]
    assert all(word in found[0].message + found[0].help for word in words) and found[0].help


@pytest.mark.parametrize(
    ("target", "key"), [({"ray": {}}, "targets.ray.folder"), ({"skypilot": {}}, "targets.skypilot")]
)
def test_what_lies_outside_of_the_folder_that_travels(tmp_path: Path, target: dict[str, Any], key: str) -> None:
    folder = tmp_path / "spec"
    folder.mkdir()
    (tmp_path / "train.py").touch()
    (tmp_path / "data.json").touch()
    words = ["recipe.yaml", "--data=../data.json", "--out", "../later"]
    found = problems(make(folder, targets=target, script="../train.py", arguments=words))
    assert [(one.key, one.message.split()[0]) for one in found] == [(key, "../train.py"), (key, "../data.json")]
    assert not problems(make(folder, targets=target, script="sub/../train.py", arguments=["recipe.yaml"]))
    assert not problems(make(folder, targets={"ray": {"folder": "/nodes/spec"}}, script="../train.py"))


@pytest.mark.parametrize("text", ["- a\n", "a: [\n", "a: 1\n---\nb: 2\n", "\x00"])
def test_a_recipe_that_cannot_be_changed(tmp_path: Path, text: str) -> None:
    (tmp_path / "recipe.yaml").write_text(text)
    found = problems(make(tmp_path))
    assert [one.key for one in found] == ["recipe"]


# -- accelerate --------------------------------------------------------------------------------------------------------

WORDS = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=12) | st.sampled_from(
    "no yes on off null ~ 1e3 0x1F 010 1_000 1:30 2020-01-01 .inf = << #a a: -".split()
)


@pytest.mark.libs
@settings(max_examples=60, deadline=None)
@given(words=st.lists(WORDS, min_size=3, max_size=3), numbers=st.lists(st.integers(0, 9999), min_size=3, max_size=3),
       flags=st.lists(st.booleans(), min_size=2, max_size=2), reason=st.text(max_size=30))  # fmt: skip
def test_accelerate_reads_back_what_is_written(
    words: list[str], numbers: list[int], flags: list[bool], reason: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    from accelerate.commands.config.config_args import load_config_from_file

    keys: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "mixed_precision": "no",
        "num_machines": numbers[0] + 1,
        "num_processes": numbers[1] + 1,
        "machine_rank": numbers[2],
        "debug": flags[0],
        "main_training_function": words[0] or "main",
        "gpu_ids": words[1] or "all",
        "deepspeed_config.deepspeed_config_file": words[2],
        "deepspeed_config.zero3_init_flag": flags[1],
    }
    folder = tmp_path_factory.getbasetemp()
    plan = Plan("a", "transformers", "deepspeed", folder, "t.py", [], "x", 1, 1)
    plan.accelerate = {name: decision(value, reason) for name, value in keys.items()}
    text = accelerate_yaml.render(plan)
    config: dict[str, Any] = {}
    for name, value in keys.items():
        section, _, leaf = name.rpartition(".")
        (config.setdefault(section, {}) if section else config)[leaf] = value
    path = folder / "accelerate.yaml"
    path.write_text(text, encoding="utf-8")
    assert repr(yaml.safe_load(text)) == repr(config)
    read = load_config_from_file(str(path)).to_dict()
    for name, value in config.items():
        assert read[name] == value and isinstance(read[name], type(value)), name


@pytest.mark.parametrize("hardware", ["8xA100-80GB", "2x8xA100-80GB"])
@pytest.mark.parametrize("launcher", [None, "torchrun", "deepspeed"])
def test_nothing_emitted_is_ignored(workplace: Workplace, launcher: str | None, hardware: str) -> None:
    """The rules that know which keys accelerate, the Trainer and DeepSpeed leave unread find none."""
    targets = {**SLURM, **KUBERNETES, "hjson": True}
    files = job(deepspeed={"zero_optimization": {"stage": 3}}, launcher=launcher, hardware=hardware, targets=targets)
    workplace.built(files)
    out = workplace.folder / "out" / "a"
    assert (out / "accelerate.yaml").exists() is (launcher is None)
    assert ("deepspeed:" in (out / "recipe.yaml").read_text()) if launcher else not (out / "recipe.yaml").exists()
    result = workplace.zerocfg("lint", out, "--fail-on", "note")
    assert result.exit_code == 0, result.output


# -- Kubernetes --------------------------------------------------------------------------------------------------------

DNS_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")


@given(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", fullmatch=True), st.integers(1, 2000))
def test_names_that_kubernetes_takes(name: str, nodes: int) -> None:
    """JobSet refuses a name when those of its pods (with five characters behind them) are no DNS labels."""
    plan = Plan(name, "transformers", "ddp", Path(), "t.py", [], "x", nodes, nodes)
    label = jobset.name_of(plan)
    pod = f"{label}-{jobset.JOB}-0-{nodes - 1}-abcde"
    assert DNS_1035.fullmatch(label) and DNS_1035.fullmatch(pod) and len(pod) <= 63
    assert label == name or re.search(r"-[0-9a-f]{6}\Z", label)


def test_two_runs_never_share_a_name() -> None:
    names = ["a.b", "a_b", "A-b", "a-b", "a-b-", "x" * 99, "x" * 100, "1", "run-1"]
    plans = [Plan(name, "transformers", "ddp", Path(), "t.py", [], "x", 2, 2) for name in names]
    assert len({jobset.name_of(plan) for plan in plans}) == len(names)


MANIFESTS: dict[str, tuple[str, dict[str, Any]]] = {
    "one": ("8xH100-80GB", {}),
    "two": ("2x8xH100-80GB", {"namespace": "1e5", "folder": "/a b/$(HOME)"}),
    "amd": ("2x8xMI300X", {}),
    "gaudi": ("8xGaudi3", {}),
    "cpu": ("4x2xcpu", {"shared_memory_gib": 1}),
    "resource": ("2x8xA100", {"resource": "example.com/card"}),
}


@pytest.mark.parametrize("case", MANIFESTS)
def test_the_manifest_is_one_of_the_published_api(tmp_path: Path, case: str) -> None:
    """Kubeflow publishes the JobSet API (v1alpha2) as models: types, and the names of all fields."""
    from kubeflow_trainer_api import models

    hardware, options = MANIFESTS[case]
    text = texts(make(tmp_path, hardware, {"jobset": {"image": "x/y:1", **options}}))["jobset.yaml"]
    data = yaml.safe_load(text)
    # Quantities may be numbers or texts in YAML; the models know texts only.
    container = data["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]["containers"][0]
    limits = container.get("resources", {}).get("limits", {})
    limits.update({name: str(count) for name, count in limits.items()})
    assert models.JobsetV1alpha2JobSet.from_dict(data).to_dict() == data


@pytest.mark.parametrize("case", MANIFESTS)
def test_the_manifest_fits_the_schema_of_the_cluster(tmp_path: Path, case: str) -> None:
    """The schema that a cluster has (`kubectl get crd jobsets.jobset.x-k8s.io -o yaml`), with no unknown field."""
    named = os.environ.get("ZEROCFG_JOBSET_CRD")
    if not named:
        pytest.skip("set ZEROCFG_JOBSET_CRD to the CRD of JobSet")
    import jsonschema

    versions = yaml.safe_load(Path(named).read_text())["spec"]["versions"]
    schema = next(one["schema"]["openAPIV3Schema"] for one in versions if one["name"] == "v1alpha2")
    hardware, options = MANIFESTS[case]
    data = yaml.safe_load(texts(make(tmp_path, hardware, {"jobset": {"image": "x/y:1", **options}}))["jobset.yaml"])
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.validate(data, closed(schema))


def closed(schema: Any) -> Any:
    """A structural schema that refuses fields it does not name; a cluster prunes them."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict) and schema.get("type") == "object":
        found.setdefault("additionalProperties", False)
    return found


def test_quantities_and_texts_of_the_manifest(tmp_path: Path) -> None:
    plan = make(tmp_path, "2x8xMI300X", {"jobset": {"image": "x", "namespace": "1e5", "shared_memory_gib": 16}})
    text = texts(plan)["jobset.yaml"]
    data = yaml.safe_load(text)
    assert 'namespace: "1e5"' in text  # a number for YAML 1.2 and Go
    pod = data["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"] == {"limits": {"amd.com/gpu": 8}}
    assert pod["volumes"][0]["emptyDir"] == {"medium": "Memory", "sizeLimit": "16Gi"}


# -- reading back ------------------------------------------------------------------------------------------------------


def test_a_wrong_recipe_would_be_noticed(workplace: Workplace) -> None:
    from zerocfg.emit.verify import differences, emitted_run
    from zerocfg.resolve.build import build_plans
    from zerocfg.resolve.spec.spec_file import read_spec

    path = workplace.write(job(deepspeed={"zero_optimization": {"stage": 2}}, launcher="torchrun"))
    (built,) = build_plans(read_spec(path, "zerocfg.yaml"))
    assert built.plan is not None
    built.plan.changes = {"max_steps": decision(7), "learning_rate": decision(1e-5)}
    one = emitted(built.plan)
    assert not differences(one, emitted_run(one, built.run))
    one.files["recipe.yaml"] = one.files["recipe.yaml"].replace(b'max_steps": 7', b'max_steps": 8')
    assert [found.key for found in differences(one, emitted_run(one, built.run))] == ["max_steps"]
