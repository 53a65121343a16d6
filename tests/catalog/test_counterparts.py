"""What launchers call each other's options."""

from __future__ import annotations

from zerocfg.catalog.counterparts import called


def test_every_name_of_a_setting_finds_the_others() -> None:
    names = {"num_machines": False, "nnodes": False, "num_nodes": False}
    assert called("num_machines") == called("nnodes") == called("num_nodes") == names


def test_some_count_the_ranks_of_one_machine() -> None:
    found = called("num_gpus")
    assert found["nproc_per_node"] and found["num_gpus"] and not found["num_processes"]


def test_a_name_that_no_launcher_has() -> None:
    assert called("learning_rate") == {}
