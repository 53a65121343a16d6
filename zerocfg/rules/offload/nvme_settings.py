"""ZC5xx: how data goes to and from NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.effects import effective_value, stage_of
from zerocfg.rules.key import Key, deepspeed
from zerocfg.rules.offload.devices import PARTS, device, number_of, offload
from zerocfg.rules.subjects import in_deepspeed, in_zero


@rule("ZC526", "aio-without-nvme", Severity.NOTE, in_deepspeed("aio"))
def aio_without_nvme(key: Key) -> Iterator[Finding]:
    if not key.section or stage_of(key.run) is None or "writer" in deepspeed(key.run, "checkpoint"):
        return
    if any(device(key.run, part) not in (None, "none", "cpu") for part in PARTS):
        return
    if any(offload(key.run, part, "device").value == "nvme" for part in PARTS):
        return
    yield key.finding(
        "`aio` has no effect: nothing is offloaded to NVMe",
        "remove it",
        fix=key.delete("remove what has no effect"),
        where="key",
    )


@rule("ZC527", "nvme-buffer-smaller-than-a-parameter", Severity.ERROR, in_zero("offload_param"), needs={"model"})
def nvme_buffer_smaller_than_a_parameter(section: Key) -> Iterator[Finding]:
    key, run = section["buffer_size"], section.run
    largest = run.model.largest_parameter if run.model else None
    ranks = number_of(effective_value(run, "num_processes"))
    size = number_of(section.get("buffer_size", 100_000_000))
    if section.get("device") != "nvme" or stage_of(run) != 3 or not largest or not ranks:
        return
    part = int(-(-largest // max(ranks, 1)))
    if size is None or part <= size:
        return
    enough = str(-(-part // 1_000_000) * 1_000_000)
    yield key.finding(
        f"`buffer_size` {size:,.0f} elements{'' if key else ' (the default)'} is less than a rank's {part:,} elements "
        "of the largest parameter",
        f"write {enough}",
        fix=key.set(enough, "room for the largest part", safe=False),
    )
