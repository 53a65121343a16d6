"""ZC7xx: how several machines find each other. Which hosts take part is in :mod:`zerocfg.rules.launch.hosts`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.launch.options import by_torchrun, launcher_option, machines_of, number_fix, under_runner
from zerocfg.rules.line import all_options_seen, at_line, line_option, started_by
from zerocfg.run.model import Run

_LOCAL = frozenset(("localhost", "127.0.0.1", "0.0.0.0", "::1", "[::1]"))


def _meeting(run: Run) -> int:
    """How many machines meet at an address, torchrun on each of them; 0 where none do."""
    if run.accelerate is None and not started_by(run, "accelerate"):
        return 0
    machines = machines_of(run)
    return machines if machines > 1 and by_torchrun(run) and not under_runner(run) else 0


@rule("ZC725", "port-picked-on-each-machine", Severity.ERROR, WHOLE_RUN)
def port_picked_on_each_machine(run: Run) -> Iterator[Finding]:
    port, machines = launcher_option(run, "main_process_port"), _meeting(run)
    if machines and port.count == 0:
        yield port.finding(
            f"port 0 with {machines} machines: each picks a port of its own, and they never meet",
            "name one port, free on the machine with rank 0: 29500 for instance",
            fix=number_fix(run, "main_process_port", 29500),
        )


@rule("ZC726", "address-of-this-machine", Severity.ERROR, WHOLE_RUN)
def address_of_this_machine(run: Run) -> Iterator[Finding]:
    if started_by(run, "torchrun"):
        yield from _local_endpoint(run)
        return
    machines, rank = _meeting(run), launcher_option(run, "machine_rank")
    address = launcher_option(run, "main_process_ip")
    if not machines or not isinstance(address.value, str) or address.value.strip().lower() not in _LOCAL:
        return
    if "machine_rank" in run.flags and rank.count == 0:
        return
    yield address.finding(
        f"{machines} machines meet at {address.value}, which is another place on each of them",
        "write the address of the machine with rank 0 as the others reach it",
        severity=None if run.launch and rank.count != 0 else Severity.WARNING,
    )


def _local_endpoint(run: Run) -> Iterator[Finding]:
    """The same of a line of torchrun; there the first machine may call itself what it likes."""
    machines, option = line_option(run, "nnodes").count or 0, line_option(run, "rdzv_endpoint", "master_addr")
    address = option.text or ""
    host = address if address in _LOCAL else address.rpartition(":")[0]
    if machines < 2 or host not in _LOCAL or line_option(run, "node_rank").count == 0 or not all_options_seen(run):
        return
    yield option.finding(
        f"{machines} machines meet at {host}, which is another place on each of them",
        "give the address of the first machine",
    )


@rule("ZC727", "every-machine-has-rank-0", Severity.WARNING, WHOLE_RUN)
def every_machine_has_rank_0(run: Run) -> Iterator[Finding]:
    if started_by(run, "torchrun"):
        yield from _node_rank_missing(run)
        return
    machines = _meeting(run)
    if run.launch is None or not machines or not all_options_seen(run):
        return
    backend = line_option(run, "rdzv_backend")
    if launcher_option(run, "machine_rank").value is not None or backend.text not in (None, "static"):
        return
    yield Finding(
        at_line(run),
        f"{machines} machines but no machine_rank: started like this, each takes itself for the first",
        "give --machine_rank on each machine, counting from 0",
        [launcher_option(run, "num_machines").at()],
    )


def _node_rank_missing(run: Run) -> Iterator[Finding]:
    nodes, backend = line_option(run, "nnodes"), line_option(run, "rdzv_backend")
    address = line_option(run, "master_addr", "rdzv_endpoint").text
    if (nodes.count or 0) < 2 or (backend and backend.text != "static") or not all_options_seen(run):
        return
    if line_option(run, "node_rank", "standalone") or "PET_NODE_RANK" in run.environment:
        return
    if address is not None and address.partition(":")[0] not in _LOCAL:
        yield nodes.finding(
            f"{nodes.text} machines but no --node_rank: started like this, each takes itself for the first",
            "give --node_rank on each machine, counting from 0, or use --rdzv_backend c10d",
        )
