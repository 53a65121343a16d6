"""The launch script of a plan: one text for each launcher, with the same variables for the nodes."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from zerocfg.emit.values import one_line
from zerocfg.source.secrets import secret_words

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan

PORT = 29500  # accelerate's, torchrun's and deepspeed's default
HOSTFILE = "hostfile"

_RANK = """
# Every node runs this script with its own rank; rank 0 is the one whose address the others get.
: "${MACHINE_RANK:?set MACHINE_RANK to the number of this node, 0 to %(last)d}"
%(address)s
%(checks)s"""
_NUMBER = """case "$MACHINE_RANK" in
  ''|*[!0-9]*) echo "MACHINE_RANK must be a number from 0 to %(last)d, not '$MACHINE_RANK'" >&2; exit 2 ;;
esac
if [ "$MACHINE_RANK" -gt %(last)d ]; then
  echo "MACHINE_RANK is $MACHINE_RANK, but this run has %(nodes)d nodes: 0 to %(last)d" >&2; exit 2
fi
"""
_ADDRESS = ': "${MAIN_PROCESS_IP:?set MAIN_PROCESS_IP to the address of the node with MACHINE_RANK=0}"'
_HOSTS = """
# With MACHINE_RANK, every node runs this script (Slurm, Kubernetes); without it, deepspeed starts all of them by ssh.
if [ -n "${MACHINE_RANK:-}" ]; then
%(address)s
%(checks)s
  # Of the hostfile only the number of nodes counts then.
  nodes=(--hostfile %(file)s --no_ssh --node_rank "$MACHINE_RANK" --master_addr "$MAIN_PROCESS_IP")
else
  %(hostfile)s
  if [ ! -f "$HOSTFILE" ]; then
    echo "there is no hostfile '$HOSTFILE' (as seen from $PWD)" >&2; exit 2
  fi
  nodes=(--hostfile "$HOSTFILE" ${MAIN_PROCESS_IP:+--master_addr "$MAIN_PROCESS_IP"})
fi
"""


def render(plan: Plan, folder: str, here: str, arguments: list[str]) -> str:
    """The text of ``launch.sh``.

    ``folder``: the spec's folder as seen from the script's own; ``here``: the other way round; ``arguments``: the words
    behind the training script.
    """
    lines = [
        "#!/usr/bin/env bash",
        f"# Starts the run {plan.name} on {one_line(plan.hardware)}. Written by zerocfg.",
        "# Words given to it are handed on to the training script.",
        "set -euo pipefail",
        f'cd -P -- "$(dirname -- "${{BASH_SOURCE[0]}}")"/{quote(folder)}',
    ]
    text = "\n".join(lines) + "\n"
    if plan.num_machines > 1:
        text += _nodes(plan, here)
    started = f"--module {quote(plan.module)}" if plan.module else quote(plan.script)
    script = " ".join([started, *_words(arguments)])
    command = {"accelerate": _accelerate, "torchrun": _torchrun, "deepspeed": _deepspeed}[plan.launcher]
    words = [*command(plan, here), f'{script}{_engine_words(plan, here)} "$@"']
    return text + "\nexec " + " \\\n  ".join(words) + "\n"


def _words(arguments: list[str]) -> list[str]:
    """The words as bash reads them. A secret comes from a variable: this file is made to be shared."""
    secrets = secret_words(arguments)
    found = [quote(word) for word in arguments]
    for index, secret in secrets.items():
        needed = "set it where the job is started; zerocfg writes no secret into a file"
        found[index] = f'{quote(secret.before) if secret.before else ""}"${{{secret.variable}:?{needed}}}"'
    return found


def render_hostfile(plan: Plan) -> str:
    """The hostfile of the ``deepspeed`` runner: a node a line, with the number of its ranks."""
    each = plan.num_processes // plan.num_machines
    if plan.hosts:
        return "".join(f"{host} slots={each}\n" for host in plan.hosts)
    lines = [
        "# The spec names no `hosts:`, so these names stand for nothing: launch.sh uses this file only where every",
        "# node starts itself (MACHINE_RANK is set), and then only the number of lines counts.",
        *(f"node-{index} slots={each}" for index in range(plan.num_machines)),
    ]
    return "\n".join(lines) + "\n"


def _nodes(plan: Plan, here: str) -> str:
    """The part that finds out which node this is."""
    last = plan.num_machines - 1
    address = _ADDRESS
    if plan.hosts:
        address = f': "${{MAIN_PROCESS_IP:={plan.hosts[0]}}}"  # the first of `hosts:` in the spec'
    checks = _NUMBER % {"last": last, "nodes": plan.num_machines}
    if plan.launcher != "deepspeed":
        return _RANK % {"last": last, "address": address, "checks": checks}
    file = f"{here}/{HOSTFILE}"
    hostfile = f"HOSTFILE=${{HOSTFILE:-{quote(file)}}}"
    if not plan.hosts:
        needed = f"set HOSTFILE to a file with a line 'NAME slots={plan.num_processes // plan.num_machines}'"
        hostfile = f': "${{HOSTFILE:?{needed} for each of the {plan.num_machines} nodes}}"'
    return _HOSTS % {
        "address": _indented(address),
        "checks": _indented(checks.rstrip("\n")),
        "file": quote(file),
        "hostfile": hostfile,
    }


def _accelerate(plan: Plan, here: str) -> list[str]:
    command = [f"accelerate launch --config_file {quote(here + '/accelerate.yaml')}"]
    if plan.num_machines > 1:
        port = plan.accelerate["main_process_port"].value if "main_process_port" in plan.accelerate else PORT
        command.append('--machine_rank "$MACHINE_RANK" --main_process_ip "$MAIN_PROCESS_IP"')
        command.append(f'--main_process_port "${{MAIN_PROCESS_PORT:-{port}}}"')
    return command


def _torchrun(plan: Plan, here: str) -> list[str]:
    per_node = plan.num_processes // plan.num_machines
    if plan.num_machines == 1:
        return [f"torchrun --standalone --nproc_per_node {per_node}"]
    return [
        f"torchrun --nnodes {plan.num_machines} --nproc_per_node {per_node}",
        '--node_rank "$MACHINE_RANK" --master_addr "$MAIN_PROCESS_IP"',
        f'--master_port "${{MAIN_PROCESS_PORT:-{PORT}}}"',
    ]


def _deepspeed(plan: Plan, here: str) -> list[str]:
    per_node = plan.num_processes // plan.num_machines
    command = [f"deepspeed --num_nodes {plan.num_machines} --num_gpus {per_node}"]
    if plan.num_machines > 1:
        command.append('"${nodes[@]}"')
    port = f'--master_port "${{MAIN_PROCESS_PORT:-{PORT}}}"'
    if plan.consumer != "deepspeed":
        # Else the script gets --local_rank=N in front of its arguments. HfArgumentParser takes a recipe only when it
        # is the one argument; the Trainer reads LOCAL_RANK of the environment.
        port += " --no_local_rank"
    return [*command, port]


def _engine_words(plan: Plan, here: str) -> str:
    """A training loop of its own reads ``--deepspeed_config`` itself; the others get theirs from launcher or recipe."""
    if plan.consumer != "deepspeed" or plan.engine != "deepspeed":
        return ""
    return f" --deepspeed --deepspeed_config {quote(here + '/ds_config.json')}"


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.splitlines())
