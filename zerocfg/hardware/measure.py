"""Starts the program that measures (:mod:`zerocfg.hardware.measuring`), and puts its results into a profile."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.hardware import launcher
from zerocfg.models.hardware import HardwareProfile, Host, Link

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from zerocfg.hardware.launcher import Place
    from zerocfg.hardware.measuring.messages import Answer, Report, Request

LIMIT = 300.0  # seconds for everything that the ranks do
PATIENCE = 120.0  # seconds that a rank waits for the others
GRACE = 10.0  # seconds that the other ranks get to say what they saw, once one has died
VENDORS = {"cuda": ("nvidia", "amd"), "xpu": ("intel",), "cpu": ("cpu",)}


class MeasureError(Exception):
    """Why there is no answer, in one line."""


def has_torch() -> bool:
    """Whether this Python has torch; it is not imported."""
    try:
        return importlib.util.find_spec("torch") is not None
    except (ImportError, ValueError):
        return False


def of_this_machine(profile: HardwareProfile, progress: Callable[[str], None]) -> HardwareProfile:
    """The profile of a single node with measured rates; a rank for each device is started. Never raises."""
    if not has_torch():
        return noted(profile, ["nothing was measured but the drives: torch is not installed in this Python"])
    count = 1 if profile.accelerator.vendor == "cpu" else _visible(profile.accelerators_per_node)
    notes = []
    reports: list[Report] = []
    for ranks in dict.fromkeys((count, 1)):
        try:
            reports = ask({**_request(profile), "measure": True}, _own_ranks(ranks, profile), progress)["ranks"]
            break
        except MeasureError as error:
            notes.append(f"measuring with {ranks} rank{'s' * (ranks > 1)} failed: {error}")
    if len(reports) == 1:
        notes.append("collectives were not measured: that takes two ranks (torchrun or srun starts them)")
    return noted(with_measured(profile, reports), notes)


def of_all_nodes(
    place: Place, profile: HardwareProfile | None, measure: bool, progress: Callable[[str], None]
) -> list[Report]:
    """The reports of all ranks of a launcher, in their order; ``profile`` is that of this node from its first rank.

    Raises MeasureError.
    """
    if not has_torch():
        raise MeasureError("torch is not installed in this Python, and the ranks gather through torch.distributed")
    request: Request = {**_request(profile), "node": place.node, "measure": measure}
    return ask(request, [place.environment], progress)["ranks"]


def ask(
    request: Request,
    environments: Sequence[Mapping[str, str | None]],
    progress: Callable[[str], None],
    limit: float = LIMIT,
) -> Answer:
    """The first rank's answer of the measuring program, started once for each environment. Raises MeasureError.

    An environment is what to set (None: what to remove) beside this process's own. No process is left afterwards.
    """
    with heeding_sigterm(), tempfile.TemporaryDirectory(prefix="zerocfg-") as folder:
        started: list[tuple[subprocess.Popen[bytes], Path]] = []
        try:
            for number, changes in enumerate(environments):
                place = Path(folder, str(number))
                place.mkdir()
                (place / "request.json").write_text(json.dumps(request))
                own = {**os.environ, **{name: value for name, value in changes.items() if value is not None}}
                for name in (name for name, value in changes.items() if value is None):
                    own.pop(name, None)
                command = [sys.executable, "-m", "zerocfg.hardware.measuring"]
                with (place / "log.txt").open("wb") as log:
                    process = subprocess.Popen(
                        [*command, str(place / "request.json"), str(place / "answer.json")],
                        env=own,
                        stdin=subprocess.DEVNULL,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    )
                started.append((process, place))
            _wait(started, time.monotonic() + limit, progress)
        except OSError as error:
            raise MeasureError(error.strerror or str(error)) from None
        finally:
            for process, _ in started:
                if process.poll() is None:
                    process.kill()
                process.wait()
        return _answer(started, limit)


@contextmanager
def heeding_sigterm() -> Iterator[None]:
    """torchrun and Slurm end their ranks with SIGTERM, which would leave the processes that a rank started behind."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _wait(
    started: Sequence[tuple[subprocess.Popen[bytes], Path]], deadline: float, progress: Callable[[str], None]
) -> None:
    reported = ""
    while any(process.poll() is None for process, _ in started) and time.monotonic() < deadline:
        with suppress(OSError):
            phase = (started[0][1] / "phase").read_text()
            if phase and phase != reported:
                reported = phase
                progress(phase)
        if any(process.poll() not in (None, 0) for process, _ in started):
            deadline = min(deadline, time.monotonic() + GRACE)
        with suppress(subprocess.TimeoutExpired):
            started[0][0].wait(0.1)
        if started[0][0].poll() is not None:
            time.sleep(0.05)


def _answer(started: Sequence[tuple[subprocess.Popen[bytes], Path]], limit: float) -> Answer:
    errors = []
    for process, place in started:
        try:
            found: Answer = json.loads((place / "answer.json").read_text())
        except (OSError, ValueError):
            errors.append(_death(process.returncode, place, limit))
            continue
        if "error" not in found and not errors:
            return found
        errors.append(str(found.get("error", "no answer")))
    raise MeasureError(errors[0])


def _death(code: int, place: Path, limit: float) -> str:
    """Why a process left no answer."""
    lines = [line.strip() for line in (place / "log.txt").read_text(errors="replace").splitlines() if line.strip()]
    if code == -9:
        try:
            phase = (place / "phase").read_text()
        except OSError:
            phase = "starting"
        return f"it was killed while {phase} (after {limit:.0f} s at the latest)"
    return f"it ended with code {code}" + (f": {lines[-1][:200]}" if lines else "")


def _request(profile: HardwareProfile | None) -> Request:
    cpus = profile.host.cpus if profile is not None and profile.host is not None else None
    return {
        "task": "ranks",
        "profile": None if profile is None else profile.model_dump(mode="json", exclude_none=True),
        "node": socket.gethostname(),
        "patience": PATIENCE,
        "cpus": cpus or 1,
    }


def _own_ranks(count: int, profile: HardwareProfile) -> list[dict[str, str | None]]:
    """The environments of ranks on this machine alone, whatever launcher this process runs under."""
    foreign = [name for name in os.environ if name in launcher.VARIABLES or name.startswith("TORCHELASTIC_")]
    nothing: dict[str, str | None] = dict.fromkeys(foreign)
    if count == 1:
        return [nothing]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    cpus = (profile.host.cpus if profile.host else None) or 1
    common = nothing | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(count)}
    common.setdefault("OMP_NUM_THREADS", os.environ.get("OMP_NUM_THREADS", str(max(1, cpus // count))))
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(count)]


def _visible(devices: int) -> int:
    """Devices that torch will see of ``devices``; the libraries that count them look past these variables."""
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        if os.environ.get(name):
            devices = min(devices, os.environ[name].count(",") + 1)
    return max(1, devices)


def with_measured(profile: HardwareProfile, reports: Sequence[Report]) -> HardwareProfile:
    """The profile with what the ranks measured: of every rate the least, of every latency the most."""
    reports = [report for report in reports if "device" in report]
    notes = [note for report in reports for note in report["notes"]]
    if not reports:
        return profile
    vendor, device, host = profile.accelerator.vendor, profile.accelerator, profile.host or Host()
    of_device = [report for report in reports if vendor in VENDORS.get(report["device"], ())]
    if not of_device:
        kinds = ", ".join(sorted({report["device"] for report in reports}))
        notes.append(f"the devices were not measured: torch {reports[0]['torch']} does not see them, only {kinds}")
    products = [report.get("matrix_products", {}) for report in of_device]
    measured = {name: min(known) for name in ("bf16", "fp16", "fp32", "fp8") if (known := _all(name, products))}
    in_host = least(report.get("memory_of_the_host") for report in reports)
    in_device = least(report.get("memory_of_the_device") for report in of_device)
    if vendor == "cpu" and in_host is not None:
        in_device = round(in_host / profile.accelerators_per_node, 2)
        threads = sorted({report["threads"] for report in reports})
        notes.append(
            f"rates of the cpu are those of one rank with {' or '.join(map(str, threads))} "
            f"thread{'s' * (threads != [1])} (OMP_NUM_THREADS); its memory bandwidth is its share of the node's"
        )
    pinned = least(report.get("copies_from_and_to_the_host") for report in of_device)
    launch = max((report["launch_of_a_kernel"] for report in reports if "launch_of_a_kernel" in report), default=None)
    if launch is not None and not of_device:
        notes.append("the launch of a kernel was measured on the processor: on a device it may take longer")
    updates: dict[str, object] = {
        "accelerator": device.model_copy(
            update={
                "measured_tflops": measured or device.measured_tflops,
                "measured_memory_gb_s": in_device or device.measured_memory_gb_s,
            }
        ),
        "host": host.model_copy(
            update={
                "memory_gb_s": in_host or host.memory_gb_s,
                "pinned_gb_s": pinned or host.pinned_gb_s,
                "launch_us": launch or host.launch_us,
            }
        ),
        "origin": f"{profile.origin}, measured with torch {reports[0]['torch']}",
    }
    # What torch measured over the CPU says nothing about the links of cards.
    links = [report.get("links", {}) for report in of_device]
    for name, field, otherwise in (
        ("within", "link_within_node", "host" if vendor == "cpu" else "unknown"),
        ("between", "link_between_nodes", "unknown"),
    ):
        rates = [found[name] for found in links if name in found]
        if not rates:
            continue
        ranks = min(rate["ranks"] for rate in rates)
        if name == "within" and ranks < profile.accelerators_per_node:
            notes.append(f"all-reduce in a node was measured with {ranks} of {profile.accelerators_per_node} devices")
        link = getattr(profile, field) or Link(kind=otherwise)
        updates[field] = link.model_copy(
            update={
                "busbw_gb_s": least(rate["busbw_gb_s"] for rate in rates),
                "latency_us": max(rate["latency_us"] for rate in rates),
            }
        )
    return noted(profile.model_copy(update=updates), notes)


def noted(profile: HardwareProfile, notes: Iterable[str]) -> HardwareProfile:
    """The profile with further notes, each once."""
    return profile.model_copy(update={"notes": list(dict.fromkeys([*profile.notes, *notes]))})


def least(values: Iterable[float | None]) -> float | None:
    """The smallest of the values that are known."""
    return min((value for value in values if value is not None), default=None)


def _all(name: str, products: Sequence[Mapping[str, float]]) -> list[float]:
    """The rates of a precision, if every rank has one."""
    return [found[name] for found in products] if products and all(name in found for found in products) else []
