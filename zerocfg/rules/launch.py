"""ZC7xx: what `accelerate launch` makes of its config file and its command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Fix, Location, Severity, at, rule
from zerocfg.rules.effects import (
    TOLD_BY,
    accelerate_data,
    accelerate_section,
    anchor,
    edited,
    effective,
    failures,
    ignored,
    told,
    words,
)
from zerocfg.rules.proof import cited, crashes, shows
from zerocfg.run.model import Origin, Run
from zerocfg.source.edit import delete_entry
from zerocfg.source.node import Path

_SECTION = "deepspeed_config:\n  zero_stage: 2\n"
_YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\n" + _SECTION
_WITH_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
_DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": %s}}\n'
)
_LINE = "accelerate launch --config_file accelerate.yaml %strain.py\n"
_RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"


@rule(
    "ZC701",
    "number-of-processes-missing",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "distributed_type: DEEPSPEED\n" + _SECTION, "train.sh": _LINE % ""}),
    good=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % ""}),
    proof=crashes("launch", "You need to manually pass in `--num_processes`"),
)
def number_of_processes_missing(run: Run) -> Iterator[Finding]:
    """The accelerate config does not say how many processes to start.

    What happens: `ValueError: You need to manually pass in --num_processes using this config yaml.` The number counts the
    processes of all machines together. Files that leave it to the command line on purpose get a note.
    """
    for failure in failures(run, "ZC701"):
        if run.accelerate is None:
            continue
        yield Finding(
            anchor(run, failure.places)[0],
            "no `num_processes`: the launcher stops" + ("" if run.launch else " unless it is given as --num_processes"),
            "write `num_processes: N`, the number of accelerators of all machines together",
            severity=None if run.launch else Severity.NOTE,
        )


@rule(
    "ZC702",
    "fields-beside-config-file",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _WITH_FILE + "mixed_precision: bf16\n", "ds.json": _DS % 2}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _WITH_FILE, "ds.json": _DS % 2}, consumer="accelerate"),
    proof=crashes("arguments", "the following accelerate config variables will be ignored: .*mixed_precision"),
    fixable=True,
)
def fields_beside_config_file(run: Run) -> Iterator[Finding]:
    """The accelerate config names a DeepSpeed file and also sets what belongs into that file.

    Nine keys may not stand beside a DeepSpeed config, whatever their value: gradient_accumulation_steps,
    gradient_clipping, zero_stage, both offload devices, both NVMe paths, zero3_save_16bit_model and mixed_precision (even
    `'no'`). The same holds when the training arguments name the DeepSpeed file.

    What happens: every process stops with `ValueError: When using deepspeed_config_file, the following accelerate config
    variables will be ignored: [...]`. It says "ignored", but it is fatal.
    """
    for failure in failures(run, "ZC702"):
        names = failure.message.partition("ignored: ")[2].partition(" (accelerate")[0].split(", ")
        paths: list[Path] = [
            ("deepspeed_config", name) if name in accelerate_section(run) else (name,) for name in names
        ]
        if run.accelerate is None:
            yield told(run, failure)
            continue
        file = run.accelerate
        fixes = [edited(delete_entry, file, path, why="") for path in paths]
        edits = tuple(edit for fix in fixes if fix is not None for edit in fix.edits)
        complete = edits and all(fix is not None for fix in fixes)
        by = run.deepspeed.name if run.deepspeed else "a DeepSpeed config"
        listed = ", ".join(f"`{name}`" for name in names)
        yield Finding(
            Location(file, paths[0]),
            f"{listed} may not stand beside {by}: every process stops, whatever the values",
            "say it in the DeepSpeed config only",
            [Location(file, path) for path in paths[1:]],
            Fix("remove what the DeepSpeed config decides", edits, safe=False) if complete else None,
        )


@rule(
    "ZC703",
    "file-not-found",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _WITH_FILE}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _WITH_FILE, "ds.json": _DS % 2}, consumer="accelerate"),
    proof=crashes("arguments", "Expected a string path to an existing deepspeed config"),
)
def file_not_found(run: Run) -> Iterator[Finding]:
    """A config file that is pointed at is nowhere to be found.

    Looked for from the folder that zerocfg runs in, the `cd` of the launch line, and the folders around the pointing file.
    Paths that are absolute, made of variables or plainly examples are not judged.

    What happens: the launcher does not look; every process stops with `Expected a string path to an existing deepspeed
    config, or a dictionary, or a base64 encoded string`.
    """
    for origin in run.missing:
        path = origin.note
        if not _looks_local(path) or (origin.file is not None and origin.file.name.endswith(".md")):
            continue
        location = at(origin)
        if location is not None:
            yield Finding(
                location,
                f"{path} was not found; every process that looks for it stops",
                "correct the path; it counts from the folder in which the job is started",
            )


_EXAMPLES = ("path/to", "your", "<", "$", "{", "...", "xxx")


def _looks_local(path: str) -> bool:
    return (
        bool(path) and path[0] not in "/~\\" and ":" not in path and not any(word in path.lower() for word in _EXAMPLES)
    )


@rule(
    "ZC704",
    "processes-not-divisible",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 7\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    proof=shows("launch", {"launch.nproc_per_node": ("3", "4")}),
)
def processes_not_divisible(run: Run) -> Iterator[Finding]:
    """num_processes is no multiple of num_machines.

    What happens: every machine starts num_processes // num_machines processes and the rest is dropped without a word: 7 on
    2 machines starts 6. num_processes counts all machines together: 1 on 2 machines starts none.
    """
    processes, machines = option(run, "num_processes"), option(run, "num_machines")
    if not _count(processes, 1) or not _count(machines, 2) or processes % machines == 0:
        return
    location, related = _top(run, "num_processes")
    yield Finding(
        location,
        f"num_processes {processes} on {machines} machines: each starts {processes // machines}, "
        f"{processes // machines * machines} in all",
        "num_processes counts the processes of all machines: write a multiple of num_machines",
        related,
    )


def option(run: Run, name: str) -> Any:
    """What the launcher takes for an option: its flag, a key of a section, the top level. None when nothing says."""
    for given in (run.flags.get(name), run.flags.get(name.replace("_", "-"))):
        if given is not None:
            value = given.value
            return int(value) if isinstance(value, str) and value.isdigit() else value
    if run.launch is not None and run.launch.launcher != "accelerate":
        return None
    value = accelerate_section(run).get(name)
    return accelerate_data(run).get(name) if value is None else value


def _count(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _top(run: Run, name: str) -> tuple[Location, list[Location]]:
    if name in run.flags:
        return anchor(run, [run.flags[name].origin])
    return anchor(run, [Origin("file", file=run.accelerate, path=(name,))])


def _deepspeed_runner(run: Run) -> bool:
    """Several machines under the `deepspeed` program (pdsh by default) instead of torchrun on each."""
    starter = option(run, "deepspeed_multinode_launcher")
    return effective(run, "engine") == "deepspeed" and starter != "standard"


@rule(
    "ZC705",
    "address-missing",
    Severity.ERROR,
    bad=Example(
        {"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n", "train.sh": _LINE % ""}
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
            "train.sh": _LINE % "",
        }
    ),
    proof=shows("launch", {"launch.rdzv_endpoint": ("None:29500", "10.0.0.1:29500")}),
)
def address_missing(run: Run) -> Iterator[Finding]:
    """Several machines without the address of the first.

    What happens: the machines meet at the endpoint `None:29500`, that is, they do not: the job hangs or fails to resolve the
    name.
    """
    failed = list(failures(run, "ZC705"))
    machines = option(run, "num_machines")
    if not failed and (not _count(machines, 2) or option(run, "main_process_ip") is not None or not run.accelerate):
        return
    if not failed and (_deepspeed_runner(run) or option(run, "same_network") is True and "same_network" in run.flags):
        return
    location, related = _top(run, "num_machines")
    yield Finding(
        location,
        f"{machines} machines but no `main_process_ip`"
        + (": they never meet" if run.launch else ", unless the command line gives it: they never meet"),
        "write the address of the machine with rank 0, and a port",
        related,
        severity=None if run.launch else Severity.WARNING,
    )


@rule(
    "ZC706",
    "cpu-not-used",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML + "use_cpu: true\n"}),
    good=Example({"accelerate.yaml": _YAML + "use_cpu: false\n"}),
    proof=shows("launch", {"env.ACCELERATE_USE_CPU": ("<absent>", "<absent>"), "read.use_cpu": (True, False)}),
)
def cpu_not_used(run: Run) -> Iterator[Finding]:
    """`use_cpu: true` with a distributed type that does not look at it.

    What happens: only the launcher of a single process passes it on; with DEEPSPEED, FSDP or MULTI_GPU it is dropped.
    """
    for item in ignored(run, "ZC706"):
        location, related = anchor(run, [item.place])
        yield Finding(location, item.message, "remove it, or export ACCELERATE_USE_CPU=true", related)


@rule(
    "ZC707",
    "two-deepspeed-files",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _WITH_FILE,
            "ds.json": _DS % 1,
            "other.json": _DS % 2,
            "recipe.yaml": _RECIPE + "deepspeed: other.json\n",
            "train.sh": _LINE.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        consumer="transformers",
    ),
    good=Example(
        {
            "accelerate.yaml": _WITH_FILE,
            "ds.json": _DS % 1,
            "recipe.yaml": _RECIPE,
            "train.sh": _LINE.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        consumer="transformers",
    ),
    proof=shows("parse", {"engine.stage": (2, 1)}),
)
def two_deepspeed_files(run: Run) -> Iterator[Finding]:
    """The accelerate config names one DeepSpeed file and the training arguments another.

    What happens: the training arguments win without a word.
    """
    for item in ignored(run, "ZC707"):
        named = run.effective.environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
        if (
            run.deepspeed is None
            or named is None
            or str(named.value).rpartition("/")[2] == run.deepspeed.name.rpartition("/")[2]
        ):
            continue
        location, related = anchor(run, [item.place])
        yield Finding(
            location,
            f"{named.value} is silently not used: `deepspeed` of the training arguments names {run.deepspeed.name}",
            "name the file in one place",
            related,
        )


@rule(
    "ZC708",
    "key-never-taken-from-file",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _YAML + "enable_cpu_affinity: true\n"}),
    good=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % "--enable_cpu_affinity "}),
    proof=shows("launch", {"env.ACCELERATE_CPU_AFFINITY": ("<absent>", "1")}),
)
def key_never_taken_from_file(run: Run) -> Iterator[Finding]:
    """A key of the accelerate config that the launcher never takes from a file.

    What happens: rdzv_backend, same_network, enable_cpu_affinity, downcast_bf16 and tpu_use_sudo are options with a default,
    and the file is asked only for options without one. On the command line they work. `same_network: true`, which
    `accelerate config` writes into every file, does no harm.
    """
    for item in ignored(run, "ZC708"):
        name = str(item.place.path[-1])
        value = accelerate_data(run).get(name)
        if name == "downcast_bf16" and str(value).lower() in ("no", "false"):
            continue
        location, related = anchor(run, [item.place])
        harmless = name in ("same_network", "tpu_use_sudo", "downcast_bf16")
        yield Finding(
            location,
            f"the launcher never takes `{name}` from a config file: {show(value)} has no effect",
            "" if harmless else f"give --{name} on the command line",
            related,
            severity=Severity.NOTE if harmless else None,
        )


@rule(
    "ZC709",
    "hostfile-missing",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML + "num_machines: 2\nmain_process_ip: 10.0.0.1\n", "train.sh": _LINE % ""}),
    good=Example(
        {
            "accelerate.yaml": _YAML + "  deepspeed_multinode_launcher: standard\nnum_machines: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
            "train.sh": _LINE % "",
        }
    ),
    proof=shows("launch", {"launch.kind": ("command", "ranks")}),
)
def hostfile_missing(run: Run) -> Iterator[Finding]:
    """Several machines with DeepSpeed's own runner and no hostfile.

    What happens: without `deepspeed_multinode_launcher: standard` accelerate starts `deepspeed --hostfile None`, which logs in
    to the other machines (pdsh) by a list that does not exist and falls back to this machine alone.
    """
    machines = option(run, "num_machines")
    if not _count(machines, 2) or run.accelerate is None or not _deepspeed_runner(run):
        return
    if effective(run, "engine") != "deepspeed" or option(run, "deepspeed_hostfile") is not None:
        return
    if run.launch is not None and run.launch.launcher != "accelerate":
        return
    location, related = _top(run, "num_machines")
    yield Finding(
        location,
        f"{machines} machines under the {option(run, 'deepspeed_multinode_launcher') or 'pdsh'} launcher without a "
        "`deepspeed_hostfile`: accelerate runs `deepspeed --hostfile None`",
        "write `deepspeed_multinode_launcher: standard` and start on every machine, or name a hostfile",
        related,
        severity=None if run.launch else Severity.WARNING,
    )


@rule(
    "ZC710",
    "fewer-devices-than-processes",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 4\ngpu_ids: 0,1\n"}),
    good=Example({"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\ngpu_ids: 0,1\n"}),
    proof=shows("launch", {"env.CUDA_VISIBLE_DEVICES": ("0,1", "0,1"), "launch.nproc_per_node": ("4", "2")}),
)
def fewer_devices_than_processes(run: Run) -> Iterator[Finding]:
    """`gpu_ids` names fewer devices than there are processes.

    What happens: the launcher does not compare them; processes share a device, and NCCL stops with a duplicate GPU error or
    the memory runs out. MULTI_GPU with one id stops at once: `ValueError: Less than two GPU ids were configured`.
    """
    for failure in failures(run, "ZC710"):
        yield told(run, failure)
        return
    ids, processes = option(run, "gpu_ids"), option(run, "num_processes")
    if (
        not isinstance(ids, str)
        or ids == "all"
        or not _count(processes, 2)
        or option(run, "num_machines") not in (None, 1)
    ):
        return
    listed = [part for part in ids.split(",") if part.strip()]
    if len(listed) < processes and run.accelerate is not None:
        location, related = _top(run, "gpu_ids")
        yield Finding(
            location,
            f"{len(listed)} devices in gpu_ids {show(ids)} for {processes} processes, which then share devices",
            f"name {processes} devices, or lower num_processes",
            [*related, _top(run, "num_processes")[0]],
        )


@rule(
    "ZC711",
    "launch-option-refused",
    Severity.ERROR,
    bad=Example({"train.sh": "accelerate launch --zero_stage two --use_deepspeed train.py\n"}),
    good=Example({"train.sh": "accelerate launch --zero_stage 2 --use_deepspeed train.py\n"}),
    proof=crashes("launch", "invalid int value: 'two'"),
)
def launch_option_refused(run: Run) -> Iterator[Finding]:
    """An option of a launch line that its launcher does not take.

    What happens: argparse prints its usage and leaves, or the launcher stops at options that exclude each other.
    """
    for failure in run.effective.failures:
        code = TOLD_BY.get(failure.kind)
        place = failure.places[0] if failure.places else None
        on_line = place is not None and place.kind in ("flag", "environment")
        if code == "ZC711" or (on_line and code in _CATALOG):
            location, related = anchor(run, failure.places)
            yield Finding(location, failure.message, related=related)


_CATALOG = ("ZC006", "ZC008", "ZC101", "ZC104", "ZC106", "ZC108", "ZC109", "ZC110")


@rule(
    "ZC712",
    "section-without-effect",
    Severity.WARNING,
    bad=Example({"accelerate.yaml": _YAML + "dynamo_config:\n  dynamo_backend: INDUCTOR\n"}),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_config:\n  dynamo_backend: INDUCTOR\n"
        }
    ),
    proof=shows("launch", {"env.ACCELERATE_DYNAMO_BACKEND": ("<absent>", "INDUCTOR")}),
)
def section_without_effect(run: Run) -> Iterator[Finding]:
    """`dynamo_config` with DeepSpeed, or `fp8_config` without `mixed_precision: fp8`.

    What happens: the DeepSpeed launcher exports no compile settings, and fp8 settings are exported with fp8 only. The model is
    not compiled, nothing runs in fp8, and nothing is said.
    """
    for item in ignored(run, "ZC712"):
        if item.kind == "dynamo-ignored":
            section = accelerate_section(run, "dynamo_config")
            backend = section.get("dynamo_backend", section.get("backend"))
            if str(backend).lower() in ("no", "false", "none"):
                continue
        location, related = anchor(run, [item.place], "key")
        yield Finding(location, item.message, "", related)


@rule(
    "ZC713",
    "flag-beats-file",
    Severity.NOTE,
    bad=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % "--zero_stage 1 "}),
    good=Example({"accelerate.yaml": _YAML, "train.sh": _LINE % ""}),
    proof=shows("launch", {"env.ACCELERATE_DEEPSPEED_ZERO_STAGE": ("1", "2")}),
)
def flag_beats_file(run: Run) -> Iterator[Finding]:
    """An option of the launch line replaces a different value of the config file.

    That is what it is for; the note helps who reads the file alone.
    """
    for item in ignored(run, "ZC713"):
        written: Any = accelerate_data(run)
        for part in item.place.path:
            written = written.get(part) if isinstance(written, dict) else None
        used = item.used
        if used is None or not used.known or str(used.value).lower() == str(written).lower():
            continue
        location, related = anchor(run, [item.place, used.origin])
        yield Finding(
            location,
            f"`{item.place.path[-1]}: {show(written)}` is replaced by {show(used.value)} {words(used.origin)}",
            "",
            related,
        )


@rule(
    "ZC714",
    "distributed-type-missing",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": "compute_environment: LOCAL_MACHINE\nnum_processes: 2\n" + _SECTION}),
    good=Example({"accelerate.yaml": _YAML}),
    proof=crashes("launch", "A `distributed_type` must be specified in the config file"),
)
def distributed_type_missing(run: Run) -> Iterator[Finding]:
    """The accelerate config has no `distributed_type`.

    What happens: `ValueError: A distributed_type must be specified in the config file.`
    """
    for failure in failures(run, "ZC714"):
        yield told(run, failure, "write `distributed_type: DEEPSPEED` (or FSDP, MULTI_GPU, NO)")


@rule(
    "ZC715",
    "machine-rank-out-of-range",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 2\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 1\n"
            "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
        }
    ),
    proof=shows("launch", {"launch.node_rank": ("2", "1")}),
)
def machine_rank_out_of_range(run: Run) -> Iterator[Finding]:
    """`machine_rank` is not below `num_machines`; ranks count from 0.

    What happens: nothing checks it; the machines wait for each other until the timeout.
    """
    rank, machines = option(run, "machine_rank"), option(run, "num_machines")
    machines = 1 if machines is None else machines
    if run.accelerate is None or not _count(rank, 1) or not _count(machines, 1) or rank < machines:
        return
    location, related = _top(run, "machine_rank")
    yield Finding(
        location,
        f"machine_rank {rank} with {machines} machine{'s' if machines > 1 else ''}: ranks count from 0; "
        + ("the machines never meet" if machines > 1 else "it has no effect"),
        f"write a rank from 0 to {machines - 1}",
        related,
        severity=None if machines > 1 else Severity.NOTE,
    )


RULES = (
    number_of_processes_missing,
    fields_beside_config_file,
    file_not_found,
    processes_not_divisible,
    address_missing,
    cpu_not_used,
    two_deepspeed_files,
    key_never_taken_from_file,
    hostfile_missing,
    fewer_devices_than_processes,
    launch_option_refused,
    section_without_effect,
    flag_beats_file,
    distributed_type_missing,
    machine_rank_out_of_range,
)
