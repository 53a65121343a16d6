"""`mpirun_config` of an accelerate file: several CPU processes under MPI."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.accelerate.facts import option
from zerocfg.models.base import Section, key


class MpirunConfig(Section):
    """Read by the plain launcher alone (distributed_type NO and MULTI_CPU)."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/utils/launch.py"
    library: ClassVar[str] = "accelerate"
    also: ClassVar[str] = "accelerate-launcher"

    mpirun_hostfile: str | None = key(
        "Hosts for mpirun; its presence starts the job with mpirun.",
        default=None,
        reads="raw",
        cli=option("mpirun_hostfile"),
    )
