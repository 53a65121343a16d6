"""A smoke-run over several machines: what each is told, and a real one in two network namespaces."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.build import nodes as namespaces
from zerocfg.cli.main import cli
from zerocfg.smoke.launch import failure_cause, process
from zerocfg.smoke.model.error import SmokeError
from zerocfg.smoke.prepare.nodes import Nodes, here

EXAMPLES = Path(__file__).parents[2] / "examples"
PLACE = {"MACHINE_RANK": "1", "MAIN_PROCESS_IP": "10.0.0.1"}
SECOND = Nodes(3, 1, "10.0.0.1", 29501, each=2)


@pytest.mark.parametrize(
    ("variables", "rank", "port"),
    [
        (PLACE, 1, 29500),
        (PLACE | {"MAIN_PROCESS_PORT": "20123"}, 1, 20123),
        ({"SLURM_NODEID": "2", "MAIN_PROCESS_IP": "10.0.0.1"}, 2, 29500),
        ({"NODE_RANK": "0", "MASTER_ADDR": "10.0.0.1", "MASTER_PORT": "1234"}, 0, 1234),
        ({"SLURM_NODEID": "2", **PLACE}, 1, 29500),
        (PLACE | {"MACHINE_RANK": "", "SLURM_NODEID": "002"}, 2, 29500),
        (PLACE | {"MACHINE_RANK": "0" * 5000 + "1", "MAIN_PROCESS_PORT": "0000000000001"}, 1, 1),
        (PLACE | {"MACHINE_RANK": "000", "MAIN_PROCESS_PORT": "65535"}, 0, 65535),
    ],
)
def test_a_machine_finds_its_place(variables: dict[str, str], rank: int, port: int) -> None:
    assert here(3, variables) == Nodes(3, rank, "10.0.0.1", port)


@pytest.mark.parametrize(
    ("variables", "told"),
    [
        ({}, "set MACHINE_RANK to the number of this node, 0 to 2"),
        ({"MACHINE_RANK": "0"}, "set MAIN_PROCESS_IP"),
        (PLACE | {"MACHINE_RANK": "3"}, "MACHINE_RANK is '3'"),
        (PLACE | {"MACHINE_RANK": "one"}, "MACHINE_RANK is 'one'"),
        (PLACE | {"MACHINE_RANK": "٣"}, "MACHINE_RANK is"),
        (PLACE | {"MACHINE_RANK": "0000000003"}, "MACHINE_RANK is '0000000003'; a number from 0 to 2 is needed"),
        (PLACE | {"MACHINE_RANK": "1" * 5000}, "MACHINE_RANK is '111"),
        (PLACE | {"MACHINE_RANK": "-1"}, "MACHINE_RANK is '-1'"),
        (PLACE | {"MAIN_PROCESS_PORT": "70000"}, "MAIN_PROCESS_PORT is '70000'"),
        (PLACE | {"MAIN_PROCESS_PORT": "65536"}, "MAIN_PROCESS_PORT is '65536'; a number from 1 to 65535 is needed"),
        (PLACE | {"MAIN_PROCESS_PORT": "0"}, "MAIN_PROCESS_PORT is '0'; a number from 1 to 65535 is needed"),
    ],
)
def test_what_is_missing_is_named(variables: dict[str, str], told: str) -> None:
    with pytest.raises(SmokeError, match=re.escape(told)):
        here(3, variables)


def test_ranks_are_counted_through() -> None:
    assert SECOND.ranks == 6 and list(SECOND.own) == [2, 3]


def test_the_launchers_are_told() -> None:
    torchrun = " ".join(process.launcher(False, 6, 1, SECOND))
    assert "--nproc_per_node 2 --master_port 29501 --nnodes 3 --node_rank 1 --master_addr 10.0.0.1" in torchrun
    accelerate = " ".join(process.launcher(True, 6, 1, SECOND))
    assert "--main_process_port 29501 --machine_rank 1 --main_process_ip 10.0.0.1" in accelerate


def seen(reports: list[dict[str, object]], limit: float | None = None) -> failure_cause.Seen:
    return failure_cause.Seen(reports, 1, "", limit, Path(), own=SECOND.own)


def test_only_ranks_of_this_machine_are_waited_for() -> None:
    found = failure_cause.find(
        seen([{}, {}, {"rank": 2, "phase": "step 1"}, {"rank": 3, "phase": "step 2"}, {}, {}], 25)
    )
    assert found is not None and found.text == "not finished within 25 s: rank 2 in 'step 1', rank 3 in 'step 2'"
    assert "other nodes report their own ranks" in found.detail[-1]


def test_nodes_that_never_came() -> None:
    found = failure_cause.find(seen([{}] * 6, 25))
    assert found is not None and "the same command has to run on each" in found.detail[-1]


@pytest.mark.parametrize(
    "more", [("--command", "python train.py"), ("--share-gpu",), ("--compare", "0,3"), ("--find-max-batch",)]
)
def test_options_that_are_for_one_machine(more: tuple[str, ...]) -> None:
    words = ["smoke", str(EXAMPLES / "two-nodes-cpu/built/nodes"), "--nodes", "2", *more]
    outcome = CliRunner().invoke(cli, words)
    assert outcome.exit_code == 2 and "--nodes takes builds" in outcome.stderr


@pytest.mark.several_ranks
@pytest.mark.libs
def test_two_machines(tmp_path: Path) -> None:
    """They reach each other over a network and share no folder; both judge all ranks, the first one certifies."""
    if reason := namespaces.refused():
        pytest.skip(reason)
    with namespaces.two_nodes() as both:
        port = str(process.free_port())
        machines = []
        for node in both:
            folder = tmp_path / str(node.rank)
            shutil.copytree(EXAMPLES / "two-nodes-cpu", folder)
            place = {"MACHINE_RANK": str(node.rank), "MAIN_PROCESS_IP": both[0].address, "MAIN_PROCESS_PORT": port}
            words = ["smoke", str(folder / "built/nodes"), "--nodes", "2", "--steps", "2", "--device", "cpu"]
            machines.append(node.start([sys.executable, "-m", "zerocfg", *words], {**os.environ, **place}, tmp_path))
        codes = namespaces.wait(machines, 400)
    told = [(tmp_path / f"node-{rank}.log").read_text() for rank in (0, 1)]
    assert codes == [0, 0], "\n".join(told)
    for text in told:
        assert (
            "21 tensors on 2 ranks" in text and "50,336 of 100,672" in text and "losses and gradients are those" in text
        )
        assert "on 2 ranks of a processor on 2 nodes" in text and "that 2 ranks" not in text
    certificate = json.loads((tmp_path / "0/built/nodes/smoke.json").read_text())
    assert certificate["passed"] is True and certificate["ranks"] == 2
    assert not (tmp_path / "1/built/nodes/smoke.json").exists()
