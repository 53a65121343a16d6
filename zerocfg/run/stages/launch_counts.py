"""What accelerate's launchers calculate with before they start anything: processes, machines, ranks, ports.

Follows accelerate/utils/launch.py; where they cannot calculate, the launch fails.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zerocfg.record import replace
from zerocfg.run.config import any_unknown, describe
from zerocfg.run.model import UNKNOWN, Origin, Setting
from zerocfg.run.stages.namespace import ranks, whole

if TYPE_CHECKING:
    from zerocfg.run.stages.namespace import Namespace

Fail = Callable[..., None]
LOCAL_PORT_SINCE = "0.25.0"
"""The release that looks at the port on the first machine only."""


def started_processes(arguments: Namespace, launcher: str) -> Setting:
    """How many processes a launcher starts in all, which may be fewer than were asked for."""
    setting = arguments.setting("num_processes")
    if launcher == "simple":
        if arguments.get("mpirun_hostfile") is not None:
            return setting if whole(setting.value) else replace(setting, value=UNKNOWN)
        return Setting(1, Origin("computed", "accelerate's simple launcher starts one process"), (setting,))
    machines = arguments.get("num_machines")
    total = ranks(arguments)
    if total == setting.value:
        return setting
    note = f"num_processes // num_machines processes on each of {machines} machines"
    return Setting(total, Origin("computed", note), (setting, *setting.overridden))


def check_threads(arguments: Namespace, fail: Fail) -> bool:
    """With use_cpu the launcher divides the machine's cores among the processes; False when it cannot calculate."""
    if not arguments.get("use_cpu") or arguments.get("num_cpu_threads_per_process") is not None:
        return True
    for name in ("num_processes", "num_machines"):
        setting = arguments.setting(name)
        if setting.value is not UNKNOWN and not isinstance(setting.value, (int, float)):
            message = f"{name} is {describe(setting.value)}; with use_cpu the launcher divides by it"
            fail(f"{name.replace('_', '-')}-type", message, setting.origin)
            return False
    return True


def check_network(arguments: Namespace, fail: Fail) -> None:
    """Machines, this machine's rank and the port, as starting torchrun or DeepSpeed's runner takes them."""
    machines, rank = arguments.setting("num_machines"), arguments.setting("machine_rank")
    port = arguments.setting("main_process_port")
    if machines.value is not UNKNOWN and not isinstance(machines.value, (int, float)):
        fail("num-machines-type", f"num_machines is {describe(machines.value)}", machines.origin)
        return
    several = isinstance(machines.value, (int, float)) and machines.value > 1
    processes = arguments.setting("num_processes")
    if several and (processes.value is None or isinstance(processes.value, (str, list, dict))):
        message = f"num_processes is {describe(processes.value)}, which cannot be divided by num_machines"
        fail("num-processes-type", message, processes.origin)
    if several and rank.value is not UNKNOWN and _int(rank.value) is None:
        fail("machine-rank-type", f"machine_rank is {describe(rank.value)}", rank.origin)
    local = not several or _int(rank.value) == 0 or not arguments.releases.any_from(LOCAL_PORT_SINCE)
    if (local and port.value not in (None, UNKNOWN)) or (several and port.value == ""):
        if not isinstance(port.value, int):
            message = f"main_process_port is {describe(port.value)}, not a number"
            fail("main-process-port-type", message, port.origin)
        elif not 0 <= port.value < 1 << 16:
            message = f"main_process_port is {port.value}; ports end at 65535"
            fail("main-process-port-type", message, port.origin)


def check_local_size(arguments: Namespace, fail: Fail) -> None:
    """torchrun reads --nproc_per_node as a whole number."""
    setting, machines = arguments.setting("num_processes"), arguments.get("num_machines")
    share = setting.value
    if any_unknown(share, machines):
        return
    if isinstance(machines, (int, float)) and machines > 1:
        share = share // machines if isinstance(share, (int, float)) else 1
    if not _is_number(share):
        fail("num-processes-type", f"Unsupported nproc_per_node value: {share}", setting.origin)


def is_count(arguments: Namespace, fail: Fail, name: str, *, null: bool = False) -> bool:
    """Whether the launcher can compare the value with 1, or does not where there is none."""
    setting = arguments.setting(name)
    if setting.value is UNKNOWN or isinstance(setting.value, (int, float)):
        return True
    if setting.value is None and null:
        return True
    fail(f"{name.replace('_', '-')}-type", f"{name} is {describe(setting.value)}", setting.origin)
    return False


def _int(value: Any) -> int | None:
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_number(value: Any) -> bool:
    """Whether torchrun's --nproc_per_node takes the text of the value."""
    text = str(value)
    return text in ("auto", "cpu", "gpu", "xpu") or _int(text) is not None
