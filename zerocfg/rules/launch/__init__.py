"""ZC7xx: launch lines, machines, variables."""

from __future__ import annotations

from zerocfg.rules.launch import config, environment, hosts, line, machines, rendezvous, runner, shell, torchrun, unused
