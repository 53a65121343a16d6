"""ZC7xx: launch lines, machines, variables."""

from __future__ import annotations

from zerocfg.rules.launch import (
    config,
    environment,
    hosts,
    line,
    local_rank,
    machines,
    rendezvous,
    runner,
    script_options,
    shell,
    torchrun,
    unused,
)
