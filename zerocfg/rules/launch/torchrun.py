"""ZC7xx: launch lines of torchrun, of its predecessor, and of plain python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.rules.api import Finding, Fix, Location, Severity, rule
from zerocfg.rules.line import (
    all_options_seen,
    at_line,
    at_option,
    flag,
    line_fix,
    number_of,
    option_named,
    plain,
    started_by,
    text_of,
    without,
    written,
)
from zerocfg.run.linking.entry_point import handed_script
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.text import Span

_LAUNCH = re.compile(r"python(?:3(?:\.\d+)?)?[ \t]+-m[ \t]+torch\.distributed\.launch(?=\s)")
_TRAINING = frozenset(("output_dir", "per_device_train_batch_size", "num_train_epochs", "max_steps", "do_train"))
_RANK_STARTERS = re.compile(r"\b(?:mpirun|mpiexec|srun|jsrun|orterun|horovodrun)\b")


def _machines(run: Run) -> int | None:
    """The number of machines of a torchrun line, when it is one number above 1 and nothing else is in the dark."""
    machines = number_of(run, "nnodes")
    if not started_by(run, "torchrun") or machines is None or machines < 2 or not all_options_seen(run):
        return None
    return None if any(name.startswith("PET_") for name in run.environment) else machines


@rule("ZC737", "torchrun-without-address", Severity.ERROR)
def torchrun_without_address(run: Run) -> Iterator[Finding]:
    machines, option = _machines(run), option_named(run, "nnodes")
    if machines is None or option is None or flag(run, "rdzv_endpoint", "standalone") is not None:
        return
    if text_of(run, "rdzv_backend") not in (None, "static", "c10d") or flag(run, "master_addr") is not None:
        return
    if flag(run, "rdzv_backend") is not None and text_of(run, "rdzv_backend") is None:
        return
    dynamic = text_of(run, "rdzv_backend") == "c10d"
    yield Finding(
        at_option(run, option),
        f"{machines} machines without an address: each looks for the first one at itself, and they never meet",
        "give --rdzv_endpoint HOST:PORT" if dynamic else "give --master_addr HOST and --master_port PORT",
    )


@rule("ZC738", "standalone-with-machines", Severity.ERROR)
def standalone_with_machines(run: Run) -> Iterator[Finding]:
    machines = _machines(run)
    option = option_named(run, "standalone")
    nodes = option_named(run, "nnodes")
    if machines is None or option is None or nodes is None:
        return
    yield Finding(
        at_option(run, option),
        f"--standalone meets at this computer alone, but --nnodes waits for {machines} machines",
        "remove --standalone and give --rdzv_endpoint, or write --nnodes 1",
        [at_option(run, nodes)],
    )


@rule("ZC739", "master-address-not-read", Severity.ERROR)
def master_address_not_read(run: Run) -> Iterator[Finding]:
    machines, option = _machines(run), option_named(run, "master_addr")
    backend = text_of(run, "rdzv_backend")
    if machines is None or option is None or backend in (None, "static"):
        return
    if flag(run, "rdzv_endpoint", "standalone") is not None:
        return
    text, port = written(run, option), option_named(run, "master_port")
    fix = None
    if text is not None and run.launch_file is not None and option.value is not None:
        address = f"{option.value.text}:{port.value.text if port is not None and port.value is not None else 29500}"
        edit = [Edit(option.span, f"--rdzv_endpoint {address}")]
        others = without(run, port) if port is not None else []
        fix = line_fix(run, "give the address as --rdzv_endpoint", edit, others)
    yield Finding(
        at_option(run, option),
        f"--rdzv_backend {backend} does not read --master_addr: {machines} machines look for each other at localhost",
        "give --rdzv_endpoint HOST:PORT instead",
        fix=fix,
    )


@rule("ZC740", "old-torch-launcher", Severity.WARNING)
def old_torch_launcher(run: Run) -> Iterator[Finding]:
    if not started_by(run, "torchrun") or run.launch is None or run.launch_file is None:
        return
    start, end = run.launch.span
    found = _LAUNCH.search(run.launch_file.source.text, start, end)
    if found is None:
        return
    old = option_named(run, "use_env")
    edit = [Edit(Span(*found.span()), "torchrun")]
    fix = line_fix(run, "start with torchrun", edit, without(run, old) if old is not None else [])
    location = Location(run.launch_file, span=Span(*found.span()))
    yield Finding(location, "torch.distributed.launch is deprecated; torchrun takes the same options", "", fix=fix)


@rule("ZC741", "deepspeed-without-launcher", Severity.ERROR)
def deepspeed_without_launcher(run: Run) -> Iterator[Finding]:
    if run.launch is None or run.launch_file is None or run.deepspeed is None or not started_by(run, "python"):
        return
    if run.deepspeed_route not in ("trainer", "engine") or "RANK" in run.environment or run.launch.script is None:
        return
    if handed_script(run.launch) is not None:
        return  # the program may be a launcher
    if run.deepspeed_route == "trainer" and run.recipe is None and not _TRAINING & set(run.arguments):
        return  # a script that infers, perhaps: it may take the option and not use it
    text = run.launch_file.source.text
    start = text.rfind("\n", 0, run.launch.span.start) + 1
    head = text[start : max(run.launch.script.span.start, start)]
    if _RANK_STARTERS.search(head) or any(plain(option.name) not in ("u", "m") for option in run.launch.options):
        return
    fix = None
    words = re.search(r"python(?:3(?:\.\d+)?)?(?:[ \t]+-u)?[ \t]+$", head)
    if words is not None and not run.launch.module:
        span = Span(start + words.start(), start + len(head))
        edit = Edit(span, "torchrun --nproc_per_node 1 ")
        fix = Fix("start it with torchrun", ((run.launch_file, edit),), safe=False)
    yield Finding(
        at_line(run),
        "DeepSpeed needs a launcher, also for one process; started with plain python it looks for MPI and stops",
        "start it with torchrun, deepspeed or accelerate launch",
        fix=fix,
    )
