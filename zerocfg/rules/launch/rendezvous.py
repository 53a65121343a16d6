"""ZC7xx: how several machines find each other. Which hosts take part is in :mod:`zerocfg.rules.launch.hosts`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.launch.machines import by_torchrun, is_count, number_fix, option, place_of, under_runner
from zerocfg.rules.line import (
    LOCAL,
    all_options_seen,
    as_count,
    at_line,
    at_option,
    flag,
    number_of,
    option_named,
    started_by,
    text_of,
)
from zerocfg.run.model import Run


def _meet(run: Run) -> bool:
    """Whether the run is several machines that meet at an address: torchrun on each of them."""
    if run.accelerate is None and not started_by(run, "accelerate"):
        return False
    if not by_torchrun(run):
        return False
    return is_count(option(run, "num_machines"), 2) and not under_runner(run)


@rule("ZC725", "port-picked-on-each-machine", Severity.ERROR)
def port_picked_on_each_machine(run: Run) -> Iterator[Finding]:
    port = option(run, "main_process_port")
    if _meet(run) and as_count(port) == 0:
        location, related = place_of(run, "main_process_port")
        yield Finding(
            location,
            f"port 0 with {option(run, 'num_machines')} machines: each picks a port of its own, and they never meet",
            "name one port, free on the machine with rank 0: 29500 for instance",
            related,
            number_fix(run, "main_process_port", 29500),
        )


@rule("ZC726", "address-of-this-machine", Severity.ERROR)
def address_of_this_machine(run: Run) -> Iterator[Finding]:
    if started_by(run, "torchrun"):
        if number_of(run, "node_rank") == 0:
            return  # the first machine may call itself what it likes
        machines, named = number_of(run, "nnodes"), option_named(run, "rdzv_endpoint", "master_addr")
        address = text_of(run, "rdzv_endpoint", "master_addr") or ""
        host = address if address in LOCAL else address.rpartition(":")[0]
        if machines is None or machines < 2 or named is None or host not in LOCAL or not all_options_seen(run):
            return
        yield Finding(
            at_option(run, named),
            f"{machines} machines meet at {host}, which is another place on each of them",
            "give the address of the first machine",
        )
        return
    address = option(run, "main_process_ip")
    if not _meet(run) or not isinstance(address, str) or address.strip().lower() not in LOCAL:
        return
    if number_of(run, "machine_rank") == 0:
        return
    location, related = place_of(run, "main_process_ip")
    first = as_count(option(run, "machine_rank")) == 0
    yield Finding(
        location,
        f"{option(run, 'num_machines')} machines meet at {address}, which is another place on each of them",
        "write the address of the machine with rank 0 as the others reach it",
        related,
        severity=None if run.launch and not first else Severity.WARNING,
    )


@rule("ZC727", "every-machine-has-rank-0", Severity.WARNING)
def every_machine_has_rank_0(run: Run) -> Iterator[Finding]:
    if started_by(run, "torchrun"):
        machines, named = number_of(run, "nnodes"), option_named(run, "nnodes")
        static = flag(run, "rdzv_backend") is None or text_of(run, "rdzv_backend") == "static"
        address = text_of(run, "master_addr", "rdzv_endpoint")
        unset = option_named(run, "node_rank", "standalone") is None and "PET_NODE_RANK" not in run.environment
        elsewhere = address is not None and address.partition(":")[0] not in LOCAL
        if machines is not None and machines > 1 and named and static and unset and elsewhere and all_options_seen(run):
            yield Finding(
                at_option(run, named),
                f"{machines} machines but no --node_rank: started like this, each takes itself for the first",
                "give --node_rank on each machine, counting from 0, or use --rdzv_backend c10d",
            )
        return
    if run.launch is None or not _meet(run) or not all_options_seen(run):
        return
    if option(run, "machine_rank") is not None or text_of(run, "rdzv_backend") not in (None, "static"):
        return
    yield Finding(
        at_line(run),
        f"{option(run, 'num_machines')} machines but no machine_rank: started like this, each takes itself for the "
        "first",
        "give --machine_rank on each machine, counting from 0",
        [place_of(run, "num_machines")[0]],
    )
