"""ZC5xx: how data goes to and from NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.effects import deepspeed_data, effective_value, section, stage_of
from zerocfg.rules.fixes import edited, present
from zerocfg.rules.offload.devices import PARTS, device, number_of
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, insert_entry, replace_value


@rule("ZC526", "aio-without-nvme", Severity.NOTE)
def aio_without_nvme(run: Run) -> Iterator[Finding]:
    data = deepspeed_data(run)
    written = data.get("aio")
    if run.deepspeed is None or not isinstance(written, dict) or not written:
        return
    if "writer" in section(run, "checkpoint") or any(device(run, part) not in (None, "none", "cpu") for part in PARTS):
        return
    if stage_of(run) is None or any(section(run, "zero_optimization", part).get("device") == "nvme" for part in PARTS):
        return
    yield Finding(
        Location(run.deepspeed, ("aio",), "key"),
        "`aio` has no effect: nothing is offloaded to NVMe",
        "remove it",
        fix=edited(delete_entry, run.deepspeed, ("aio",), why="remove what has no effect"),
    )


@rule("ZC527", "nvme-buffer-smaller-than-a-parameter", Severity.ERROR, needs={"model"})
def nvme_buffer_smaller_than_a_parameter(run: Run) -> Iterator[Finding]:
    path = ("zero_optimization", "offload_param", "buffer_size")
    written = section(run, *path[:2])
    largest = run.model.largest_parameter if run.model else None
    ranks = number_of(effective_value(run, "num_processes"))
    size = number_of(written.get("buffer_size", 100_000_000))
    if run.deepspeed is None or written.get("device") != "nvme" or stage_of(run) != 3 or not largest or not ranks:
        return
    part = int(-(-largest // max(ranks, 1)))
    if size is None or part <= size:
        return
    enough = str(-(-part // 1_000_000) * 1_000_000)
    yield Finding(
        Location(run.deepspeed, path),
        f"`buffer_size` {size:,.0f} elements{'' if 'buffer_size' in written else ' (the default)'} is less than a "
        f"rank's {part:,} elements of the largest parameter",
        f"write {enough}",
        fix=_buffer_size(run, enough),
    )


def _buffer_size(run: Run, size: str) -> Fix | None:
    path, why = ("zero_optimization", "offload_param", "buffer_size"), "room for the largest part"
    if present(run.deepspeed, path):
        return edited(replace_value, run.deepspeed, path, size, why=why, safe=False)
    return edited(insert_entry, run.deepspeed, path[:2], path[2], size, why=why, safe=False)
