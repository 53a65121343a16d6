"""Arguments of torchrun that the launcher passes on although it has no option for them.

The launcher copies every attribute that it holds and torchrun knows. A key of any sub-mapping becomes such an
attribute, so `deepspeed_config: {rdzv_id: 7}` reaches torchrun.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.base import Section, key

_COMPUTED = "the launcher computes it from num_processes, num_machines, machine_rank and the main process address"


class Torchrun(Section):
    """Only what the launcher's own parser lacks."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    source: ClassVar[str] = "torch/distributed/run.py"
    library: ClassVar[str] = "torch"

    nnodes: str = key("Machines, or smallest and largest number of them.", default="1:1", facts={"computed": _COMPUTED})
    nproc_per_node: str = key(
        "Processes on each machine.", default="1", unit="processes", facts={"computed": _COMPUTED}
    )
    node_rank: int = key("Number of this machine.", default=0, facts={"computed": _COMPUTED})
    master_addr: str = key("Address of machine 0.", default="127.0.0.1", facts={"computed": _COMPUTED})
    master_port: int | None = key("Port on machine 0.", default=None, facts={"computed": _COMPUTED})
    rdzv_endpoint: str = key("Address and port of the rendezvous.", default="", facts={"computed": _COMPUTED})
    rdzv_id: str = key("Name of the job at the rendezvous.", default="none")
    standalone: bool = key("Rendezvous on this machine only, at a free port.", default=False)
    start_method: Literal["spawn", "fork", "forkserver"] = key("How worker processes are started.", default="spawn")
    event_log_handler: str = key("Where torchrun's events go.", default="null")
    run_path: bool = key("Run the script with runpy.", default=False)
    redirects: str = key("Streams that go to files.", default="0")
    local_ranks_filter: str = key("Local ranks that are shown on the console.", default="")
    duplicate_stdout_filters: list[str] = key("Lines of standard output that are shown a second time.", default=[])
    duplicate_stderr_filters: list[str] = key("Lines of standard error that are shown a second time.", default=[])
    local_addr: str | None = key("Address of this machine.", default=None)
    logs_specs: str | None = key("Name of a plugin for logs.", default=None)
    numa_binding: str | None = key("How processes are bound to NUMA nodes.", default=None)
    signals_to_handle: str = key("Signals that end the workers.", default="SIGTERM,SIGINT,SIGHUP,SIGQUIT")
    shutdown_timeout: int | None = key("Patience with workers that should end.", default=None, unit="seconds")
    virtual_local_rank: bool = key("Show local rank 0 to each worker.", default=False)
