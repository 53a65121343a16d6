"""Emitted launch scripts, started for real: launchers, batch script and pods, on the CPUs of this machine.

Slurm, ssh and Kubernetes are played by a few lines of shell that do what those do with the emitted files: they start
the same command once for each node, on this machine.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import warm
from tests.build.plans import decision, make, written

# What a rank was started with; one file a rank, because lines of several ranks get mixed.
REPORT = """\
import json, os, sys
from pathlib import Path

names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
said = {name: os.environ[name] for name in names} | {"words": sys.argv[1:], "cwd": os.getcwd()}
Path(os.environ["REPORTS"], said["RANK"] + ".json").write_text(json.dumps(said))
"""
# Stands for a launcher: which words and variables it got, in the file that the number of the node names.
STAND_IN = """\
#!/usr/bin/env bash
{ for word in "$@"; do printf '%s\\n' "$word"; done
  env | grep -E '^(MACHINE_RANK|MAIN_PROCESS_|SRUN_|GREETING)' | sort; pwd; } > "$REPORTS/${MACHINE_RANK:-0}.txt"
"""
SRUN = """\
#!/usr/bin/env bash
# Starts the command on each node, as srun does.
nodes=1
while [[ $1 == --* ]]; do
  case $1 in --nodes=*) nodes=${1#*=} ;; esac
  shift
done
pids=()
for ((node = 0; node < nodes; node++)); do
  SLURM_NODEID=$node SLURM_PROCID=$node "$@" &
  pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit $status
"""
SCONTROL = """\
#!/usr/bin/env bash
[[ "$1 $2 $3" == 'show hostnames n[1-2]' ]] || { echo "scontrol: $*" >&2; exit 1; }
printf '%s\\n' localhost other
"""
SSH = """\
#!/usr/bin/env bash
while [[ $1 == -* ]]; do shift 2; done
shift
if [[ "$*" == 'hostname -I' ]]; then echo 127.0.0.1; else "$@"; fi
"""
PDSH = """\
#!/usr/bin/env bash
# pdsh -S -f 1024 -w a,b COMMAND, where %n is the number of the node
while [[ $1 == -* ]]; do
  case $1 in
    -w) IFS=, read -ra hosts <<< "$2"; shift 2 ;;
    -f) shift 2 ;;
    *) shift ;;
  esac
done
[[ ${hosts[*]} == 'alpha beta' ]] || { echo "hosts: ${hosts[*]}" >&2; exit 1; }
pids=()
for node in "${!hosts[@]}"; do
  bash -c "${*//%n/$node}" & pids+=($!)
done
status=0
for pid in "${pids[@]}"; do wait "$pid" || status=$?; done
exit $status
"""


class Stage:
    """A folder with a spec's files, programs that stand in for others, and the reports of ranks or launchers."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reports = folder / "reports"
        self.bin = folder / "bin"
        for path in (self.reports, self.bin):
            path.mkdir()
        (folder / "train.py").write_text(REPORT)
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "MA", "ACCEL"))},
            "PATH": f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "REPORTS": str(self.reports),
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
        }

    def with_libraries(self) -> None:
        """Launchers and ranks start from a Python that has imported the libraries before (see tests/warm)."""
        self.environment["PATH"] = f"{self.bin}:{Path(warm.python()).parent}:{self.environment['PATH']}"

    def program(self, name: str, text: str) -> None:
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)

    def run(
        self, command: list[str | Path], cwd: str | Path = "/", **environment: str
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(word) for word in command],
            cwd=cwd,
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )

    def ranks(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = [json.loads(path.read_text()) for path in self.reports.glob("*.json")]
        return sorted(found, key=lambda one: int(one["RANK"]))

    def nodes(self) -> list[list[str]]:
        return [path.read_text().splitlines() for path in sorted(self.reports.glob("*.txt"))]


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    return Stage(tmp_path)


def free_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return str(probe.getsockname()[1])


def check_ranks(stage: Stage, words: list[str]) -> list[dict[str, Any]]:
    """Two ranks of one world, started in the folder of the spec with the same words."""
    ranks = stage.ranks()
    assert [(one["RANK"], one["WORLD_SIZE"]) for one in ranks] == [("0", "2"), ("1", "2")]
    assert all(one["words"] == words and one["cwd"] == str(stage.folder) for one in ranks)
    assert len({(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks}) == 1
    return ranks


# -- the real launchers ------------------------------------------------------------------------------------------------


@pytest.mark.libs
@pytest.mark.parametrize("launcher", ["accelerate", "torchrun", "deepspeed"])
def test_one_node(stage: Stage, launcher: str) -> None:
    engine = "ddp" if launcher == "accelerate" else "deepspeed"
    if launcher != "deepspeed":  # whose programs nothing else starts as a user does; of the others test_trained does
        stage.with_libraries()
    plan = make(stage.folder, "2xcpu", launcher=launcher, engine=engine)
    folder = written(plan)
    done = stage.run([folder / "launch.sh", "--note", "a b"], MAIN_PROCESS_PORT=free_port())
    assert done.returncode == 0, done.stdout + done.stderr
    recipe = "recipe.yaml" if engine == "ddp" else "out/a/recipe.yaml"
    assert [one["LOCAL_RANK"] for one in check_ranks(stage, [recipe, "--note", "a b"])] == ["0", "1"]


@pytest.mark.libs
@pytest.mark.parametrize("launcher", ["torchrun", "deepspeed"])
def test_two_nodes_of_slurm(stage: Stage, launcher: str) -> None:
    stage.with_libraries()
    stage.program("srun", SRUN)
    stage.program("scontrol", SCONTROL)
    plan = make(stage.folder, "2x1xcpu", {"slurm": {}}, launcher=launcher)
    script = written(plan) / "job.sbatch"
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_SUBMIT_DIR": str(stage.folder)}
    port = free_port()
    done = stage.run([script, "--note"], stage.folder, **job, MAIN_PROCESS_PORT=port)
    assert done.returncode == 0, done.stdout + done.stderr
    ranks = check_ranks(stage, ["out/a/recipe.yaml", "--note"])
    assert {(one["LOCAL_RANK"], one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks} == {("0", "localhost", port)}


@pytest.mark.libs
def test_two_nodes_that_deepspeed_reaches_itself(stage: Stage) -> None:
    """A loop of its own: the runner puts --local_rank in front, as scripts that are written for it expect."""
    stage.with_libraries()
    stage.program("ssh", SSH)
    stage.program("pdsh", PDSH)
    own = {"consumer": "deepspeed", "arguments": ["--x"], "hosts": ["alpha", "beta"]}
    plan = make(stage.folder, "2x1xcpu", None, launcher="deepspeed", **own)
    # The runner hands few variables on to the nodes; where reports go is said in the script instead.
    text = REPORT.replace('os.environ["REPORTS"]', repr(str(stage.reports)))
    (stage.folder / "train.py").write_text(text)
    port = free_port()
    done = stage.run([written(plan) / "launch.sh", "--note"], MAIN_PROCESS_PORT=port)
    assert done.returncode == 0, done.stdout + done.stderr
    config = ["--deepspeed", "--deepspeed_config", "out/a/ds_config.json"]
    ranks = check_ranks(stage, ["--local_rank=0", "--x", *config, "--note"])
    assert {(one["MASTER_ADDR"], one["MASTER_PORT"]) for one in ranks} == {("127.0.0.1", port)}


READERS = """\
import dataclasses, json, sys
from transformers import HfArgumentParser, TrainingArguments
from trl import SFTConfig, TrlParser

own, = HfArgumentParser((TrainingArguments,)).parse_yaml_file(sys.argv[2])
trl, = TrlParser((SFTConfig,)).parse_args_and_config(sys.argv[1:])
names = json.loads(open("names.json").read())
for arguments in (own, trl):
    values = {name: getattr(arguments, name) for name in names}
    values["parsed"] = arguments.hf_deepspeed_config.config["zero_optimization"]["stage"]
    print("READ", json.dumps(values, default=str))
"""


@pytest.mark.libs
def test_the_real_readers_of_recipes(stage: Stage) -> None:
    """HfArgumentParser and TrlParser read what was planned, with its types, and find the DeepSpeed config."""
    stage.with_libraries()
    changes = {
        "learning_rate": 1e-5,
        "weight_decay": 0.0,
        "per_device_train_batch_size": 4,
        "gradient_checkpointing": True,
        "bf16": False,
        "gradient_checkpointing_kwargs": {"use_reentrant": False},
        "optim": "adamw_torch",
        "max_steps": 12,
    }
    plan = make(
        stage.folder,
        "1xcpu",
        consumer="trl",
        arguments=["--config", "recipe.yaml"],
        changes={name: decision(value, "it: fits # so") for name, value in changes.items()},
    )
    plan.settings["bf16.enabled"] = decision(False)
    (stage.folder / "train.py").write_text(READERS)
    (stage.folder / "names.json").write_text(json.dumps([*changes, "deepspeed", "output_dir"]))
    (stage.folder / "recipe.yaml").write_text("output_dir: out  # ours\nlearning_rate: 3e-4\nuse_cpu: true\n")
    done = stage.run([written(plan) / "launch.sh"])
    assert done.returncode == 0, done.stdout + done.stderr
    read = [json.loads(line.removeprefix("READ ")) for line in done.stdout.splitlines() if line.startswith("READ")]
    wanted = {**changes, "deepspeed": "out/a/ds_config.json", "output_dir": "out", "parsed": 2}
    assert len(read) == 2
    for values in read:
        assert repr({name: values[name] for name in wanted if name != "optim"}) == repr(
            {name: value for name, value in wanted.items() if name != "optim"}
        )
        assert "adamw_torch" in values["optim"].lower()


# -- without the libraries ---------------------------------------------------------------------------------------------


def test_what_slurm_starts(stage: Stage) -> None:
    """Setup lines and variables reach every node, whatever the job was submitted with."""
    stage.program("srun", SRUN)
    stage.program("scontrol", SCONTROL)
    stage.program("torchrun", STAND_IN)
    setup = ["export GREETING='it is $PWD'", "cd /"]
    script = written(make(stage.folder, "2x4xA100", {"slurm": {"setup": setup}})) / "job.sbatch"
    job = {"SLURM_JOB_ID": "123456789", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_CPUS_PER_TASK": "12"}
    done = stage.run([script, "a b"], stage.folder, **job)
    assert done.returncode == 0, done.stderr
    for rank, said in enumerate(stage.nodes()):
        assert said == [
            *f"--nnodes 2 --nproc_per_node 4 --node_rank {rank} --master_addr localhost --master_port 26789".split(),
            "train.py",
            "out/a/recipe.yaml",
            "a b",
            "GREETING=it is $PWD",
            f"MACHINE_RANK={rank}",
            "MAIN_PROCESS_IP=localhost",
            "MAIN_PROCESS_PORT=26789",
            "SRUN_CPUS_PER_TASK=12",
            str(stage.folder),
        ]
    assert len(stage.nodes()) == 2


def test_one_node_of_slurm(stage: Stage) -> None:
    stage.program("srun", SRUN)
    stage.program("torchrun", STAND_IN)
    script = written(make(stage.folder, "4xA100", {"slurm": {}})) / "job.sbatch"
    assert stage.run([script], stage.folder, SLURM_JOB_ID="7").returncode == 0
    ((*words, port, where),) = stage.nodes()
    assert words == ["--standalone", "--nproc_per_node", "4", "train.py", "out/a/recipe.yaml"]
    assert (port, where) == ("MAIN_PROCESS_PORT=20007", str(stage.folder))


def test_slurm_says_where_to_submit(stage: Stage) -> None:
    script = written(make(stage.folder, "4xA100", {"slurm": {}})) / "job.sbatch"
    done = stage.run([script], script.parent, SLURM_JOB_ID="7")
    assert done.returncode == 2
    assert "from the folder of the spec, as sbatch out/a/job.sbatch" in done.stderr


@pytest.mark.parametrize("setup", ["false", "cd /nowhere", "no-such-command"])
def test_a_setup_that_fails_starts_nothing(stage: Stage, setup: str) -> None:
    stage.program("srun", SRUN)
    stage.program("torchrun", STAND_IN)
    script = written(make(stage.folder, "4xA100", {"slurm": {"setup": [setup]}})) / "job.sbatch"
    assert stage.run([script], stage.folder, SLURM_JOB_ID="7").returncode != 0
    assert not stage.nodes()


@pytest.mark.parametrize("launcher", ["accelerate", "torchrun", "deepspeed"])
def test_what_the_pods_start(stage: Stage, launcher: str) -> None:
    """Each pod of the manifest, with the index that Kubernetes gives it."""
    stage.program(launcher, STAND_IN)
    plan = make(stage.folder, "2x4xA100", {"jobset": {"image": "x", "folder": str(stage.folder)}}, launcher=launcher)
    job = yaml.safe_load((written(plan) / "jobset.yaml").read_text())["spec"]["replicatedJobs"][0]["template"]["spec"]
    container = job["template"]["spec"]["containers"][0]
    assert job["completionMode"] == "Indexed" and job["parallelism"] == job["completions"] == 2

    def pod(index: int) -> subprocess.CompletedProcess[str]:
        environment = {}
        for one in container["env"]:
            if "value" not in one:
                path = one["valueFrom"]["fieldRef"]["fieldPath"]
                assert path == "metadata.annotations['batch.kubernetes.io/job-completion-index']"
            environment[one["name"]] = one.get("value", str(index))
        command = [word.replace("$$", "$") for word in container["command"]]
        return stage.run(command, container["workingDir"], **environment)

    with ThreadPoolExecutor() as pool:
        for done in pool.map(pod, range(2)):
            assert done.returncode == 0, done.stderr
    for rank, said in enumerate(stage.nodes()):
        words = " ".join(said)
        option = {"accelerate": "--machine_rank"}.get(launcher, "--node_rank")
        address = {"accelerate": "--main_process_ip"}.get(launcher, "--master_addr")
        port = {"accelerate": "--main_process_port"}.get(launcher, "--master_port")
        assert f"{option} {rank} {address} a-node-0-0.a " in words and f"{port} 29500" in words
    assert len(stage.nodes()) == 2


@pytest.mark.parametrize(
    ("launcher", "environment", "words"),
    [
        ("torchrun", {}, ["MACHINE_RANK", "0 to 1"]),
        ("torchrun", {"MACHINE_RANK": "0"}, ["MAIN_PROCESS_IP"]),
        ("torchrun", {"MACHINE_RANK": "x", "MAIN_PROCESS_IP": "h"}, ["'x'"]),
        ("accelerate", {"MACHINE_RANK": "2", "MAIN_PROCESS_IP": "h"}, ["2 nodes"]),
        ("deepspeed", {}, ["HOSTFILE", "slots=4"]),
        ("deepspeed", {"HOSTFILE": "missing"}, ["'missing'"]),
        ("deepspeed", {"MACHINE_RANK": "0"}, ["MAIN_PROCESS_IP"]),
        ("deepspeed", {"MACHINE_RANK": "2", "MAIN_PROCESS_IP": "h"}, ["2 nodes"]),
    ],
)
def test_what_is_missing_is_said(stage: Stage, launcher: str, environment: dict[str, str], words: list[str]) -> None:
    stage.program(launcher, STAND_IN)
    done = stage.run([written(make(stage.folder, "2x4xA100", launcher=launcher)) / "launch.sh"], **environment)
    assert done.returncode != 0 and not stage.nodes()
    assert all(word in done.stderr for word in words), done.stderr


def test_a_hostfile_of_ones_own(stage: Stage) -> None:
    stage.program("deepspeed", STAND_IN)
    (stage.folder / "hosts").write_text("x slots=4\ny slots=4\n")
    folder = written(make(stage.folder, "2x4xA100", launcher="deepspeed", hosts=["a", "b"]))
    for named, expected in (({}, "out/a/hostfile"), ({"HOSTFILE": "hosts"}, "hosts")):
        assert stage.run([folder / "launch.sh"], **named).returncode == 0
        ((*words, _),) = stage.nodes()
        assert words[:6] == ["--num_nodes", "2", "--num_gpus", "4", "--hostfile", expected]
