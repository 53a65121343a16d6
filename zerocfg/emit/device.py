"""What a scheduler has to be asked for: devices and CPUs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan


def vendor_of(plan: Plan) -> str | None:
    """nvidia, amd, intel, habana (Gaudi) or cpu; None where nothing but the sources tells of the hardware."""
    if plan.profile is None:
        return None
    device = plan.profile.accelerator
    return "habana" if device.name.startswith("Gaudi") else device.vendor


def cpus_of(plan: Plan) -> int | None:
    """CPUs of one node, where a probe counted them."""
    host = plan.profile.host if plan.profile is not None else None
    return host.cpus if host is not None else None
