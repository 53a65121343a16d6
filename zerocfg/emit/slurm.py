"""The batch script for Slurm, which runs launch.sh once on each node."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from zerocfg.emit.values import one_line
from zerocfg.resolve.plan import Problem

if TYPE_CHECKING:
    from zerocfg.models.spec import Slurm
    from zerocfg.resolve.plan import Plan

NAME = "job.sbatch"
FROM_PLAN = ("--nodes", "-N", "--ntasks", "-n", "--ntasks-per-node", "--job-name", "-J", "--wrap")
"""Options of sbatch that zerocfg derives from the plan, and `--wrap`, which would replace the script."""
CPUS = ("--cpus-per-task", "-c", "--cpus-per-gpu")
DEVICES = ("--gres", "--gpus", "-G", "--gpus-per-node", "--gpus-per-task", "--gpus-per-socket")

_BODY = """
set -euo pipefail

script=${SLURM_SUBMIT_DIR:-$PWD}/%(launch)s
if [ ! -f "$script" ]; then
  echo "there is no $script: submit this job from the folder of the spec, as sbatch "%(job)s >&2; exit 2
fi

%(network)s
on_node() {
  set -e
%(setup)s%(rank)s  exec "$@"
}

# Since Slurm 22.05 a step does not get the job's --cpus-per-task by itself.
if [ -n "${SLURM_CPUS_PER_TASK:-}" ]; then
  export SRUN_CPUS_PER_TASK=$SLURM_CPUS_PER_TASK
fi
%(preflight)s# A node that fails ends all others. --export=ALL: also where the job was submitted with --export=NONE.
%(srun)s --kill-on-bad-exit=1 --export=ALL \\
  bash -c "$(declare -f on_node)"$'\\n''on_node "$@"' bash bash "$script" "$@"
"""
_SRUN = "srun --nodes=%(nodes)d --ntasks=%(nodes)d --ntasks-per-node=1"
# --kill-on-bad-exit=0: every node finishes its checks, so that the verdict names the bad one.
_PREFLIGHT = """# Is a node slow, broken or unlike what this run was built for? Then the training does not start.
code=0
%(srun)s --kill-on-bad-exit=0 --export=ALL \\
  bash -c "$(declare -f on_node)"$'\\n''on_node "$@"' bash \\
  zerocfg preflight %(words)s || code=$?
if [ "$code" -eq 127 ]; then
  echo "zerocfg is not on the PATH of a node: install it there, or let targets.slurm.setup lead to it" >&2
fi
if [ "$code" -ne 0 ]; then
  echo "the preflight failed (exit code $code): the training was not started" >&2
  exit "$code"
fi

"""
_PORT = """# A port of this job's own, below those that Linux hands out.
export MAIN_PROCESS_PORT=${MAIN_PROCESS_PORT:-$((20000 + SLURM_JOB_ID % 10000))}
"""
_ADDRESS = """# The first node of the list is the one with SLURM_NODEID=0.
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MAIN_PROCESS_IP=${MAIN_PROCESS_IP:-${hosts%%$'\\n'*}}
"""


def render(plan: Plan, slurm: Slurm, here: str) -> str:
    """The text of ``job.sbatch``. ``here``: its folder, relative to the folder of the spec."""
    multi_node = plan.num_machines > 1
    lines = [
        "#!/usr/bin/env bash",
        *(f"#SBATCH {option}" for option in _options(plan, slurm)),
        f"# Starts the run {plan.name} on {one_line(plan.hardware)}. Written by zerocfg.",
        "# Submit it from the folder of the spec; words behind its name are handed on to the training script.",
    ]
    srun = _SRUN % {"nodes": plan.num_machines}
    preflight = _PREFLIGHT % {"srun": srun, "words": _preflight(plan)} if slurm.preflight else ""
    body = _BODY % {
        "launch": quote(f"{here}/launch.sh"),
        "job": quote(f"{here}/{NAME}"),
        "network": _PORT + (_ADDRESS if multi_node else ""),
        "setup": "".join(f"  {line}\n" for line in slurm.setup),
        "rank": '  export MACHINE_RANK="$SLURM_NODEID"\n' if multi_node else "",
        "srun": srun,
        "preflight": preflight,
    }
    return "\n".join(lines) + "\n" + body


def _preflight(plan: Plan) -> str:
    words = '--on node --expect "${script%/*}"'
    if plan.vendor == "cpu":
        words += " --device cpu"
    if plan.num_machines > 1:
        words += """ --hosts "${hosts//$'\\n'/,}\""""
    return words


def _options(plan: Plan, slurm: Slurm) -> list[str]:
    options = [f"--job-name={plan.name}", f"--nodes={plan.num_machines}", "--ntasks-per-node=1"]
    if plan.vendor != "cpu" and not any(_name(option) in DEVICES for option in slurm.options):
        options.append(f"--gpus-per-node={plan.num_processes // plan.num_machines}")
    cpus = plan.cpus_per_node
    if cpus is not None and not any(_name(option) in CPUS for option in slurm.options):
        options.append(f"--cpus-per-task={cpus}")
    for name in ("partition", "account", "time", "qos"):
        value = getattr(slurm, name)
        if value is not None:
            options.append(f"--{name}={quote(value)}")
    return options + [one_line(option) for option in slurm.options]


def problems(slurm: Slurm) -> list[Problem]:
    """Options in the spec that Slurm refuses, or that contradict the plan."""
    problems = []
    for option in slurm.options:
        name = _name(option)
        if not option.lstrip().startswith("-"):
            message = f"{option!r} does not start with '-', so it is no option of sbatch"
            problems.append(Problem("targets.slurm.options", message, "Write it as in `sbatch --help`: `--exclusive`."))
        elif name in FROM_PLAN:
            message = f"{name} follows from the plan and cannot be an option of one's own"
            help = "Say `hardware: NODESxDEVICESxNAME` for the number of nodes; take the option out."
            problems.append(Problem("targets.slurm.options", message, help))
    return problems


def _name(option: str) -> str:
    """The name of an option: ``--gres`` of ``--gres=gpu:8``, ``-N`` of ``-N4``."""
    word = option.split(maxsplit=1)[0].partition("=")[0] if option.split() else ""
    return word if word.startswith("--") else word[:2]
