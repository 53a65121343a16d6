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

    nnodes: str = key("1:1", "Machines, or smallest and largest number of them.", facts={"computed": _COMPUTED})
    nproc_per_node: str = key("1", "Processes on each machine.", unit="processes", facts={"computed": _COMPUTED})
    node_rank: int = key(0, "Number of this machine.", facts={"computed": _COMPUTED})
    master_addr: str = key("127.0.0.1", "Address of machine 0.", facts={"computed": _COMPUTED})
    master_port: int | None = key(None, "Port on machine 0.", facts={"computed": _COMPUTED})
    rdzv_endpoint: str = key("", "Address and port of the rendezvous.", facts={"computed": _COMPUTED})
    rdzv_id: str = key("none", "Name of the job at the rendezvous.")
    standalone: bool = key(False, "Rendezvous on this machine only, at a free port.")
    start_method: Literal["spawn", "fork", "forkserver"] = key("spawn", "How worker processes are started.")
    event_log_handler: str = key("null", "Where torchrun's events go.")
    run_path: bool = key(False, "Run the script with runpy.")
    redirects: str = key("0", "Streams that go to files.")
    local_ranks_filter: str = key("", "Local ranks that are shown on the console.")
    duplicate_stdout_filters: list[str] = key([], "Lines of standard output that are shown a second time.")
    duplicate_stderr_filters: list[str] = key([], "Lines of standard error that are shown a second time.")
    local_addr: str | None = key(None, "Address of this machine.")
    logs_specs: str | None = key(None, "Name of a plugin for logs.")
    numa_binding: str | None = key(None, "How processes are bound to NUMA nodes.")
    signals_to_handle: str = key("SIGTERM,SIGINT,SIGHUP,SIGQUIT", "Signals that end the workers.")
    shutdown_timeout: int | None = key(None, "Patience with workers that should end.", unit="seconds")
    virtual_local_rank: bool = key(False, "Show local rank 0 to each worker.")
