"""What `zerocfg build` emits for schedulers, submitted to real ones on this machine: it trains over two nodes, or its
preflight keeps it from starting."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.build.conftest import EXAMPLES
from tests.conftest import OPERATORS, ROOT
from tools.slurm_nodes import SlurmNodes, missing, slurm_nodes

pytestmark = [pytest.mark.libs, pytest.mark.xdist_group("slurm")]

SECONDS = 400
"""Of a job; most of it, once, for what DeepSpeed compiles."""
TRAINED = "trained by DeepSpeedEngine, ZeRO stage 3, 2 ranks"
"""The last line of the example's script, told by its first rank."""


@dataclass(frozen=True)
class Built:
    """The example of two nodes, built into ``out/nodes`` of its folder."""

    folder: Path

    def file(self, name: str) -> Path:
        return self.folder / "out/nodes" / name

    def expect(self, package: str, release: str) -> None:
        """Another release in the lock, as if the run were built for that."""
        lock = json.loads(self.file("zerocfg.lock").read_text())
        assert lock["versions"][package] != release
        lock["versions"][package] = release
        self.file("zerocfg.lock").write_text(json.dumps(lock))

    @property
    def began(self) -> bool:
        """Whether a training made its output folder."""
        return (self.folder / "runs").exists()


def build(folder: Path, targets: dict[str, Any], examples: Path = ROOT / "examples") -> Built:
    for name in ("two-nodes-cpu", "quickstart", "stages"):
        shutil.copytree(examples / name, folder / name, ignore=shutil.ignore_patterns("runs", "built", "__pycache__"))
    (folder / ".git").mkdir()  # one repository: a build reads nothing outside of it
    here = folder / "two-nodes-cpu"
    with (here / "zerocfg.yaml").open("a") as spec:
        spec.write(f"    targets: {json.dumps(targets)}\n")
    words = [sys.executable, "-m", "zerocfg", "build", ".", "-o", "out"]
    done = subprocess.run(words, cwd=here, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return Built(here)


def environment(**more: str) -> dict[str, str]:
    """Of whoever submits a job; a scheduler hands it on."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    common = {"PATH": path, "DS_ACCELERATOR": "cpu", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return {**os.environ, **common, "TORCH_EXTENSIONS_DIR": str(OPERATORS), **more}


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmNodes]:
    if reason := missing():
        pytest.skip(reason)
    with slurm_nodes() as nodes:
        yield nodes


def submit(cluster: SlurmNodes, built: Built, *options: str, **more: str) -> tuple[int, str]:
    """The exit code and the output of the emitted batch script."""
    known = environment(**more)
    merged = {**known, **cluster.environment, "PATH": f"{known['PATH']}:/usr/sbin"}
    words = ["sbatch", "--wait", "--output=job.log", *options, "out/nodes/job.sbatch"]
    done = subprocess.run(
        words, cwd=built.folder, env=merged, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    log = built.folder / "job.log"
    return done.returncode, log.read_text() if log.exists() else done.stderr


def test_a_fleet_that_passes_trains(cluster: SlurmNodes, tmp_path: Path) -> None:
    built = build(tmp_path, {"slurm": {"preflight": True}})
    code, said = submit(cluster, built)
    assert code == 0, said
    assert said.index("preflight: 2 nodes, 2 ranks") < said.index("passed: 2 nodes") < said.index(TRAINED)
    assert built.began


def test_another_release_than_the_builds_keeps_it_from_starting(cluster: SlurmNodes, tmp_path: Path) -> None:
    import deepspeed

    built = build(tmp_path, {"slurm": {"preflight": True}})
    built.expect("deepspeed", "0.18.0")
    code, said = submit(cluster, built)
    assert code == 1 and not built.began, said
    for node in ("n1", "n2"):
        told = rf"FAIL  {node} has deepspeed {re.escape(deepspeed.__version__)}, \S+/out/nodes was built for 0\.18\.0"
        assert re.search(told, said), said
    assert "sbatch --exclude=n1,n2\n" in said
    assert said.endswith("the preflight failed (exit code 1): the training was not started\n")


def test_one_node_that_is_not_like_the_other(cluster: SlurmNodes, tmp_path: Path) -> None:
    """Only the second node has another variable; without the preflight, it would train with it."""
    setup = 'if [ "$SLURM_NODEID" = 1 ]; then export NCCL_ALGO=Tree; fi'
    built = build(tmp_path, {"slurm": {"preflight": True, "setup": [setup]}})
    code, said = submit(cluster, built)
    assert code == 1 and not built.began, said
    # Of two nobody knows which one is right.
    told = "FAIL  the nodes differ in NCCL_ALGO, and no value is in the majority: not set on n1, Tree on n2;"
    assert told in said and "sbatch --exclude=n1,n2\n" in said, said


def test_a_node_that_cannot_be_set_up_is_named(cluster: SlurmNodes, tmp_path: Path) -> None:
    setup = 'if [ "$SLURM_NODEID" = 1 ]; then echo "no module cuda" >&2; exit 3; fi'
    built = build(tmp_path, {"slurm": {"preflight": True, "setup": [setup]}})
    code, said = submit(cluster, built)
    assert code == 3 and not built.began, said
    assert "no module cuda\n" in said and "sbatch --exclude=n2\n" in said, said


def test_nodes_without_zerocfg(cluster: SlurmNodes, tmp_path: Path) -> None:
    built = build(tmp_path, {"slurm": {"preflight": True, "setup": ["PATH=/usr/bin:/bin"]}})
    code, said = submit(cluster, built)
    assert code == 127 and not built.began, said
    assert "zerocfg is not on the PATH of a node: install it there, or let targets.slurm.setup lead to it\n" in said


@pytest.mark.parametrize("example", ["two-nodes-cpu", "quickstart", "two-nodes-slurm"])
def test_slurm_takes_the_script(cluster: SlurmNodes, tmp_path: Path, example: str) -> None:
    """`sbatch --test-only`: options are read and judged, nothing is started. This cluster has no cards to ask for."""
    shutil.copytree(ROOT / "examples", tmp_path / "all")
    (tmp_path / "all" / ".git").mkdir()
    folder, (run,) = tmp_path / "all" / example, EXAMPLES[example]
    spec = (folder / "zerocfg.yaml").read_text()
    if "targets:" not in spec:
        time = {"slurm": {"time": "00:10:00", "options": ["--exclusive"], "preflight": True}}
        (folder / "zerocfg.yaml").write_text(f"{spec}    targets: {json.dumps(time)}\n")
    words = [sys.executable, "-m", "zerocfg", "build", ".", "-o", "out"]
    subprocess.run(words, cwd=folder, capture_output=True, check=True, timeout=120)
    script = folder / "out" / run / "job.sbatch"
    wanted = re.findall(
        r"^#SBATCH (--(?:gpus-per-node|partition|account|qos|constraint)=\S+)\n", script.read_text(), re.M
    )
    for option in wanted:  # of the cluster that the example is for
        script.write_text(script.read_text().replace(f"#SBATCH {option}\n", ""))
    done = cluster.run("sbatch", "--test-only", str(script))
    assert done.returncode == 0 and re.search(r"Job \d+ to start at .* in partition here", done.stderr), done.stderr
    script.write_text(script.read_text().replace("#SBATCH --nodes=", "#SBATCH --nodess="))
    assert cluster.run("sbatch", "--test-only", str(script)).returncode != 0
