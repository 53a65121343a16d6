"""`zerocfg lint --repos --on slurm` and `--on ray` on two real nodes of this machine: what one process finds."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import ray_nodes
from tests.conftest import ROOT
from tests.fleet.conftest import owner, run
from tests.fleet.test_repos import reports
from tools.slurm_nodes import SlurmNodes, missing, slurm_nodes

ENVIRONMENT = {
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}{os.pathsep}/usr/sbin",
    "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
}


@pytest.fixture(scope="module")
def slurm() -> Iterator[SlurmNodes]:
    if reason := missing():
        pytest.skip(reason)
    with slurm_nodes() as nodes:
        yield nodes


@pytest.fixture(scope="module")
def ray() -> Iterator[dict[str, str]]:
    if reason := ray_nodes.missing():
        pytest.skip(reason)
    with ray_nodes.ray_nodes(cpus=1) as environment:
        yield environment


def found(repositories: Path, *words: str, **environment: str) -> dict[str, Any]:
    done = run(repositories, "--repos", ".", *words, "--output-format", "json", **{**ENVIRONMENT, **environment})
    assert done.returncode == 2 and done.stdout, done.stderr  # one of them cannot be linted
    assert not (repositories / ".zerocfg" / "jobs").exists() or not list((repositories / ".zerocfg" / "jobs").iterdir())
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def expected(repositories: Path) -> dict[str, Any]:
    return {**{name: owner(repositories / name) for name in ("clean", "misspelt", "silenced")}, "unread": None}


@pytest.mark.libs
@pytest.mark.xdist_group("slurm")
@pytest.mark.parametrize("words", [("--workers", "2"), ("--workers", "1", "--jobs", "2"), ("--workers", "9")])
def test_an_array_of_slurm_finds_the_same(slurm: SlurmNodes, repositories: Path, words: tuple[str, ...]) -> None:
    document = found(repositories, "--on", "slurm", *words, **{**slurm.environment, "PATH": ENVIRONMENT["PATH"]})
    assert reports(document) == expected(repositories)
    assert "has no setting 'nonsense'" in document["repositories"][3]["problem"]


@pytest.mark.libs
@pytest.mark.xdist_group("slurm")
def test_slurm_that_takes_no_such_job(slurm: SlurmNodes, repositories: Path) -> None:
    words = ["--repos", ".", "--on", "slurm", "--on-option=--partition=nowhere"]
    done = run(repositories, *words, **{**ENVIRONMENT, **slurm.environment, "PATH": ENVIRONMENT["PATH"]})
    assert done.returncode == 2 and "Slurm takes no such job: " in done.stderr and "partition" in done.stderr


@pytest.mark.libs
@pytest.mark.xdist_group("slurm")
def test_a_worker_without_zerocfg_is_told_by_repository(slurm: SlurmNodes, repositories: Path, tmp_path: Path) -> None:
    """Each of its repositories is one that was not linted."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\nif os.environ.get('SLURM_JOB_ID'): sys.modules['zerocfg.cluster.on_node'] = None\n"
    )
    path = f"{tmp_path}{os.pathsep}{ENVIRONMENT['PYTHONPATH']}"
    environment = {**slurm.environment, "PATH": ENVIRONMENT["PATH"], "PYTHONPATH": path}
    document = found(repositories, "--on", "slurm", "--workers", "2", **environment)
    problems = [one["problem"] for one in document["repositories"]]
    assert len(problems) == 4
    for problem in problems:
        assert problem.startswith("the worker on n") and "cannot import zerocfg here" in problem


@pytest.mark.libs
@pytest.mark.xdist_group("ray")
def test_workers_of_ray_find_the_same(ray: dict[str, str], repositories: Path) -> None:
    document = found(repositories, "--on", "ray", "--workers", "2", **ray)
    assert reports(document) == expected(repositories)
    assert "has no setting 'nonsense'" in document["repositories"][3]["problem"]


def test_no_cluster(repositories: Path) -> None:
    """What cannot be reached is said before anything is linted."""
    for engine, told in (("slurm", "sbatch is not on the PATH"), ("ray", "no Ray cluster answers")):
        if engine == "ray" and ray_nodes.missing():
            continue
        environment = {"PATH": str(Path(sys.executable).parent), "RAY_API_SERVER_ADDRESS": "http://127.0.0.1:9"}
        done = run(repositories, "--repos", ".", "--on", engine, **{**ENVIRONMENT, **environment})
        assert done.returncode == 2 and told in done.stderr, done.stderr
