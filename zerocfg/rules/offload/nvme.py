"""ZC5xx: optimizer states and parameters on NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, rule
from zerocfg.rules.effects import stage_of, under_deepspeed_launcher
from zerocfg.rules.failures import ignored
from zerocfg.rules.fixes import together
from zerocfg.rules.key import Key, accelerate, from_origin
from zerocfg.rules.offload.devices import PARTS, device, device_of, offload
from zerocfg.rules.subjects import ZERO_SECTION, in_zero
from zerocfg.run.model import Run

_INSTEAD = "offload to host memory instead"
_IN_JSON = "put the offload section into a DeepSpeed JSON and name it in `deepspeed_config_file`"


@rule("ZC504", "nvme-below-stage-3", Severity.ERROR, device_of("offload_optimizer"))
def nvme_below_stage_3(key: Key) -> Iterator[Finding]:
    stage = stage_of(key.run)
    if stage in (1, 2) and key.value == "nvme":
        yield key.finding(
            f"stage {stage} does not offload to NVMe: the optimizer states silently go to host memory",
            'use stage 3, or write "cpu"',
            fix=_to_host(key.run, "offload_optimizer", "offload to host memory, as it does today"),
        )


def _to_host(run: Run, part: str, why: str) -> Fix | None:
    """A fix that offloads a part to host memory, and takes away a path that nobody would look at."""
    section, text = offload(run, part), '"cpu"'
    key, path = section["device"], section["nvme_path"]
    if not key:
        section, text = accelerate(run, "deepspeed_config"), "cpu"
        key, path = section[f"{part}_device"], section[f"{part}_nvme_path"]
    fix = key.replace(text, why, safe=False)
    return together(why, fix, path.delete(why), safe=False) if fix is not None and path else fix


@rule("ZC505", "nvme-without-path", Severity.ERROR, ZERO_SECTION)
def nvme_without_path(zero: Key) -> Iterator[Finding]:
    for part in PARTS:
        section = zero[part]
        if section.get("device") == "nvme" and section.get("nvme_path") is None and stage_of(zero.run) == 3:
            yield section.finding(
                f"`{part}` to NVMe without `nvme_path`; the engine stops when it is built",
                'write "nvme_path": a folder on a local NVMe drive',
                fix=_to_host(zero.run, part, _INSTEAD),
            )


@rule("ZC506", "nvme-path-in-accelerate-config", Severity.ERROR, WHOLE_RUN)
def nvme_path_in_accelerate_config(run: Run) -> Iterator[Finding]:
    if not under_deepspeed_launcher(run):
        return
    section, judged = accelerate(run, "deepspeed_config"), set()
    for item in ignored(run, "ZC506"):
        key = from_origin(run, item.place, section.get(str(item.place.path[-1])))
        if key.value in (None, "none", ""):
            continue
        part = "offload_optimizer" if "optimizer" in key.name else "offload_param"
        judged.add(part)
        if section.get(f"{part}_device") == "nvme":
            yield key.finding(
                f'accelerate never passes `{key.name}` on; DeepSpeed gets the path "none" instead of {show(key.value)}',
                _IN_JSON,
                fix=_to_host(run, part, _INSTEAD),
            )
        else:
            yield key.finding(
                f"`{key.name}` is never used: {part}_device is not nvme, and offloading to the CPU needs no path",
                "remove it",
                fix=key.delete("remove what nobody reads"),
                severity=Severity.NOTE,
            )
    for part in PARTS:
        key = section[f"{part}_device"]
        if run.deepspeed is None and part not in judged and key.value == "nvme" and stage_of(run) == 3:
            yield key.finding(
                f'`{key.name}: nvme` here always gets the path "none", a folder in the current directory',
                _IN_JSON,
                fix=_to_host(run, part, _INSTEAD),
            )


@rule("ZC507", "nvme-path-unused", Severity.NOTE, ZERO_SECTION)
def nvme_path_unused(zero: Key) -> Iterator[Finding]:
    for part in PARTS:
        section = zero[part]
        key, where = section["nvme_path"], section.get("device")
        if key.value not in (None, "none", "", "auto") and where in ("cpu", "none"):
            yield key.finding(
                f"`nvme_path` is not used: `{part}` goes to {where}, which needs no NVMe drive",
                'remove it, or write "device": "nvme"',
                fix=key.delete("remove the path"),
            )


@rule("ZC508", "fast-init-without-nvme", Severity.NOTE, in_zero("offload_optimizer", "fast_init"))
def fast_init_without_nvme(key: Key) -> Iterator[Finding]:
    if key.value is True and any(device(key.run, part) != "nvme" for part in PARTS):
        yield key.finding(
            "`fast_init` has no effect unless optimizer states and parameters are both on NVMe",
            "remove it",
            fix=key.delete("remove the key"),
        )
