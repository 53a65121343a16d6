"""ZC5xx: offloading to the host and to NVMe."""

from __future__ import annotations

from zerocfg.rules.offload import devices, keys, launch, nvme, nvme_settings, steps
