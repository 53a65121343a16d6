"""ZC5xx: optimizer states and parameters on NVMe."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import (
    accelerate_section,
    anchor,
    edited,
    ignored,
    section,
    stage_of,
    under_deepspeed_launcher,
)
from zerocfg.rules.offload import PARTS, device, place
from zerocfg.rules.proof import cited, crashes, shows
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry

_DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": %s}}\n'
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: %s\n"


@rule(
    "ZC504",
    "nvme-below-stage-3",
    Severity.ERROR,
    bad=Example(
        {"ds.json": _DS % '2, "offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}'},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
    proof=cited("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8"),
)
def nvme_below_stage_3(run: Run) -> Iterator[Finding]:
    """The optimizer is offloaded to NVMe at stage 1 or 2.

    What happens: stages 1 and 2 know only host memory; the states silently go there (16 bytes and more a parameter
    over all processes), and nothing is ever written to `nvme_path`.
    """
    stage = stage_of(run)
    if stage in (1, 2) and device(run, "offload_optimizer") == "nvme":
        location, related = place(run, "offload_optimizer")
        yield Finding(
            location,
            f"stage {stage} does not offload to NVMe: the optimizer states silently go to host memory",
            'use stage 3, or write "cpu"',
            related,
        )


@rule(
    "ZC505",
    "nvme-without-path",
    Severity.ERROR,
    bad=Example({"ds.json": _DS % '3, "offload_optimizer": {"device": "nvme"}'}, consumer="deepspeed"),
    good=Example({"ds.json": _DS % '3, "offload_optimizer": {"device": "none"}'}, consumer="deepspeed"),
    proof=crashes("init", "expected str, bytes or os.PathLike object, not NoneType"),
)
def nvme_without_path(run: Run) -> Iterator[Finding]:
    """Offloading to NVMe without saying where.

    What happens: `TypeError: expected str, bytes or os.PathLike object, not NoneType` for the optimizer, a bare
    AssertionError for the parameters.
    """
    for part in PARTS:
        written = section(run, "zero_optimization", part)
        if run.deepspeed is None or written.get("device") != "nvme" or stage_of(run) != 3:
            continue
        if written.get("nvme_path") is None:
            yield Finding(
                Location(run.deepspeed, ("zero_optimization", part)),
                f"`{part}` to NVMe without `nvme_path`; the engine stops when it is built",
                'write "nvme_path": a folder on a local NVMe drive',
            )


@rule(
    "ZC506",
    "nvme-path-in-accelerate-config",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _YAML % 3 + "  zero3_save_16bit_model: true\n  offload_optimizer_device: nvme\n"
            "  offload_optimizer_nvme_path: /local_nvme\n"
        },
        consumer="accelerate",
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 1\n"
            "deepspeed_config:\n  deepspeed_config_file: ds.json\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3, '
            '"stage3_gather_16bit_weights_on_model_save": true, '
            '"offload_optimizer": {"device": "nvme", "nvme_path": "/local_nvme"}}}\n',
        },
        consumer="accelerate",
    ),
    proof=shows("parse", {"config.zero_optimization.offload_optimizer.nvme_path": ("none", "/local_nvme")}),
)
def nvme_path_in_accelerate_config(run: Run) -> Iterator[Finding]:
    """An NVMe path in the accelerate config.

    What happens: the launcher exports no variable for it, so DeepSpeed gets the path "none": a folder of that name
    in the current directory, on whatever drive that is. NVMe offload needs a DeepSpeed JSON. Offloading to the CPU
    needs no path.
    """
    if not under_deepspeed_launcher(run):
        return
    told = set()
    for item in ignored(run, "ZC506"):
        path = item.place.path
        value = accelerate_section(run).get(str(path[-1]))
        if value in (None, "none", ""):
            continue
        part = "offload_optimizer" if "optimizer" in str(path[-1]) else "offload_param"
        told.add(part)
        nvme = accelerate_section(run).get(f"{part}_device") == "nvme"
        location, related = anchor(run, [item.place])
        yield Finding(
            location,
            f'accelerate never passes `{path[-1]}` on; DeepSpeed gets the path "none" instead of {show(value)}'
            if nvme
            else f"`{path[-1]}` is never used: {part}_device is not nvme, and offloading to the CPU needs no path",
            "put the offload section into a DeepSpeed JSON and name it in `deepspeed_config_file`"
            if nvme
            else "remove it",
            related,
            severity=None if nvme else Severity.NOTE,
        )
    for part in PARTS:
        if run.accelerate is None or run.deepspeed is not None or part in told:
            continue
        if accelerate_section(run).get(f"{part}_device") == "nvme" and stage_of(run) == 3:
            yield Finding(
                Location(run.accelerate, ("deepspeed_config", f"{part}_device")),
                f'`{part}_device: nvme` here always gets the path "none", a folder in the current directory',
                "put the offload section into a DeepSpeed JSON and name it in `deepspeed_config_file`",
            )


@rule(
    "ZC507",
    "nvme-path-unused",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu", "nvme_path": "/local_nvme"}'},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": _DS % '2, "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
    proof=cited("deepspeed/runtime/zero/stage_1_and_2.py@0.19.8, deepspeed/runtime/zero/stage3.py@0.19.8"),
    fixable=True,
)
def nvme_path_unused(run: Run) -> Iterator[Finding]:
    """An `nvme_path` beside a device that is not NVMe.

    Offloading to the CPU uses host memory only; it needs no NVMe drive and never looks at the path.
    """
    for part in PARTS:
        written = section(run, "zero_optimization", part)
        path = ("zero_optimization", part, "nvme_path")
        if run.deepspeed is None or written.get("nvme_path") in (None, "none", "", "auto"):
            continue
        if written.get("device") in ("cpu", "none"):
            yield Finding(
                Location(run.deepspeed, path),
                f"`nvme_path` is not used: `{part}` goes to {written['device']}, which needs no NVMe drive",
                'remove it, or write "device": "nvme"',
                fix=edited(delete_entry, run.deepspeed, path, why="remove the path"),
            )


@rule(
    "ZC508",
    "fast-init-without-nvme",
    Severity.NOTE,
    bad=Example(
        {"ds.json": _DS % '3, "offload_optimizer": {"device": "cpu", "fast_init": true}'},
        consumer="deepspeed",
    ),
    good=Example({"ds.json": _DS % '3, "offload_optimizer": {"device": "cpu"}'}, consumer="deepspeed"),
    proof=cited("deepspeed/runtime/zero/stage3.py@0.19.8"),
    fixable=True,
)
def fast_init_without_nvme(run: Run) -> Iterator[Finding]:
    """`fast_init` where not both optimizer states and parameters are on NVMe.

    What happens: nothing; DeepSpeed asks for it only on that road.
    """
    path = ("zero_optimization", "offload_optimizer", "fast_init")
    written = section(run, *path[:2])
    if run.deepspeed is None or written.get("fast_init") is not True:
        return
    if any(device(run, part) != "nvme" for part in PARTS):
        yield Finding(
            Location(run.deepspeed, path),
            "`fast_init` has no effect unless optimizer states and parameters are both on NVMe",
            "remove it",
            fix=edited(delete_entry, run.deepspeed, path, why="remove the key"),
        )


RULES = (
    nvme_below_stage_3,
    nvme_without_path,
    nvme_path_in_accelerate_config,
    nvme_path_unused,
    fast_init_without_nvme,
)
