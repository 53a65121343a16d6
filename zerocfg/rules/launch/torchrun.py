"""ZC7xx: launch lines of torchrun, of its predecessor, and of plain python."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.frontends.registry import front_end, ships_config
from zerocfg.patterns import pattern
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.line import all_options_seen, at_line, line_fix, line_option, started_by
from zerocfg.run.linking.entry_point import handed_script
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.source.edit import Edit
from zerocfg.source.launch.programs import as_module
from zerocfg.source.text import Span

_LAUNCH = pattern(r"python(?:3(?:\.\d+)?)?[ \t]+-m[ \t]+torch\.distributed\.launch(?=\s)")
_TRAINING = frozenset(("output_dir", "per_device_train_batch_size", "num_train_epochs", "max_steps", "do_train"))
_ONE_TASK = pattern(r"(?:\s--ntasks[= ]|\s-n ?)1(?=\s)")
_RANK_STARTERS = pattern(r"\b(?:mpirun|mpiexec|srun|jsrun|orterun|horovodrun)\b")


def _machines(run: Run) -> int:
    """The machines of a torchrun line when their number is above 1 and nothing else is in the dark, else 0."""
    machines = line_option(run, "nnodes").count or 0
    if not started_by(run, "torchrun") or machines < 2 or not all_options_seen(run):
        return 0
    return 0 if any(name.startswith("PET_") for name in run.environment) else machines


@rule("ZC737", "torchrun-without-address", Severity.ERROR, WHOLE_RUN)
def torchrun_without_address(run: Run) -> Iterator[Finding]:
    machines, backend = _machines(run), line_option(run, "rdzv_backend")
    if not machines or line_option(run, "rdzv_endpoint", "standalone", "master_addr"):
        return
    if not backend or backend.text in ("static", "c10d"):
        yield line_option(run, "nnodes").finding(
            f"{machines} machines without an address: each looks for the first one at itself, and they never meet",
            "give --rdzv_endpoint HOST:PORT"
            if backend.text == "c10d"
            else "give --master_addr HOST and --master_port PORT",
        )


@rule("ZC738", "standalone-with-machines", Severity.ERROR, WHOLE_RUN)
def standalone_with_machines(run: Run) -> Iterator[Finding]:
    machines, option = _machines(run), line_option(run, "standalone")
    if machines and option:
        yield option.finding(
            f"--standalone meets at this computer alone, but --nnodes waits for {machines} machines",
            "remove --standalone and give --rdzv_endpoint, or write --nnodes 1",
            [line_option(run, "nnodes")],
        )
    elif option and started_by(run, "torchrun") and line_option(run, "nnodes").value is UNKNOWN:
        rank = line_option(run, "node_rank")
        if rank and rank.text not in ("0", "") and rank.value is not True:
            nodes = line_option(run, "nnodes")
            yield option.finding(
                f"--standalone meets at this computer alone and reads no other address: with {nodes.raw} above 1 no "
                "machine finds another",
                "remove --standalone and give --rdzv_endpoint, or remove --nnodes and --node_rank",
                [nodes, rank],
                severity=Severity.WARNING,
            )


@rule("ZC739", "master-address-not-read", Severity.ERROR, WHOLE_RUN)
def master_address_not_read(run: Run) -> Iterator[Finding]:
    machines, backend = _machines(run), line_option(run, "rdzv_backend").text
    if not machines or backend in (None, "static") or line_option(run, "rdzv_endpoint", "standalone"):
        return
    address, port = line_option(run, "master_addr"), line_option(run, "master_port")
    if address:
        given = address.reworded(f"--rdzv_endpoint {address.raw}:{port.raw or 29500}") if address.raw else None
        fix = line_fix(run, "give the address as --rdzv_endpoint", given, port.removed() if port else [])
        yield address.finding(
            f"--rdzv_backend {backend} does not read --master_addr: {machines} machines look for each other at "
            "localhost",
            "give --rdzv_endpoint HOST:PORT instead",
            fix=fix,
        )


@rule("ZC740", "old-torch-launcher", Severity.WARNING, WHOLE_RUN)
def old_torch_launcher(run: Run) -> Iterator[Finding]:
    found = _old_module(run)
    if found is None or run.launch_file is None:
        return
    old = line_option(run, "use_env")
    edit = [Edit(Span(*found.span()), "torchrun")]
    fix = line_fix(run, "start with torchrun", edit, old.removed() if old else [])
    location = Location(run.launch_file, span=Span(*found.span()))
    message = "torch.distributed.launch is deprecated; torchrun takes the same options"
    advice = "start with torchrun; the script gets its rank in LOCAL_RANK then, and no longer as --local-rank"
    yield Finding(location, message, advice, fix=fix, versions="torch>=1.10")  # the first release with torchrun


def starts_by_old_module(run: Run) -> bool:
    """Whether the line starts `python -m torch.distributed.launch`."""
    return _old_module(run) is not None


def _old_module(run: Run) -> re.Match[str] | None:
    if not started_by(run, "torchrun") or run.launch is None or run.launch_file is None:
        return None
    start, end = run.launch.span
    return _LAUNCH.search(run.launch_file.source.text, start, end)


_OF_RANKS = frozenset(("RANK", "WORLD_SIZE", "MASTER_ADDR"))


@rule("ZC741", "deepspeed-without-launcher", Severity.ERROR, WHOLE_RUN)
def deepspeed_without_launcher(run: Run) -> Iterator[Finding]:
    if run.launch is None or run.launch_file is None or not started_by(run, "python") or not _reads_deepspeed(run):
        return
    if "RANK" in run.environment or run.launch.script is None:
        return
    if run.script is not None and _OF_RANKS & run.script.exported:
        return  # the script says itself which process it is
    if handed_script(run.launch) is not None:
        return  # the program may be a launcher
    text = run.launch_file.source.text
    start = text.rfind("\n", 0, run.launch.span.start) + 1
    head = text[start : max(run.launch.script.span.start, start)]
    if _starts_ranks(head) or any(option.plain not in ("u", "m") for option in run.launch.options):
        return
    fix = None
    words = re.search(r"python(?:3(?:\.\d+)?)?(?:[ \t]+-u)?[ \t]+$", head)
    if words is not None and not run.launch.module:
        span = Span(start + words.start(), start + len(head))
        fix = line_fix(run, "start it with torchrun", [Edit(span, "torchrun --nproc_per_node 1 ")])
    yield Finding(
        at_line(run),
        "DeepSpeed needs a launcher, also for one process; started with plain python it looks for MPI and stops",
        "start it with torchrun, deepspeed or accelerate launch",
        fix=fix,
    )


def _reads_deepspeed(run: Run) -> bool:
    """Whether the script certainly trains with a DeepSpeed config."""
    framework = front_end(run.consumer)
    if framework is not None and framework.ranks_needed is not None:
        named = run.arguments.get("deepspeed")
        given = run.deepspeed is not None or (named is not None and ships_config(framework.name, named.value))
        return given and _started(run).endswith(framework.ranks_needed)
    if run.deepspeed is None or run.deepspeed_route not in ("trainer", "engine"):
        return False
    # a script that infers, perhaps, may take the option and not use it
    return run.deepspeed_route == "engine" or run.recipe is not None or bool(_TRAINING & set(run.arguments))


def _started(run: Run) -> str:
    """The call of the script that trains, else the module that the line starts, or its script as one."""
    shown = run.script.shown_by if run.script is not None else None
    if shown is not None:
        return shown.note
    script = run.launch.script.value if run.launch is not None and run.launch.script is not None else None
    return as_module(script or "")


def _starts_ranks(head: str) -> bool:
    """Whether a program before `python` starts the processes of a job. srun starts a single task without a rank, unless
    it is to set up MPI for it."""
    one_task = _ONE_TASK.search(head) is not None and "--mpi" not in head
    return any(word != "srun" or not one_task for word in _RANK_STARTERS.findall(head))
