"""The launch script of a plan."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan

PORT = 29500  # accelerate's and torchrun's default
_MULTI_NODE = """
# Every node runs this script with its own rank; rank 0 is the one whose address the others get.
: "${MACHINE_RANK:?set MACHINE_RANK to the number of this node, 0 to %(last)d}"
: "${MAIN_PROCESS_IP:?set MAIN_PROCESS_IP to the address of the node with MACHINE_RANK=0}"
case "$MACHINE_RANK" in
  ''|*[!0-9]*) echo "MACHINE_RANK must be a number from 0 to %(last)d, not '$MACHINE_RANK'" >&2; exit 2 ;;
esac
if [ "$MACHINE_RANK" -gt %(last)d ]; then
  echo "MACHINE_RANK is $MACHINE_RANK, but this run has %(nodes)d nodes: 0 to %(last)d" >&2; exit 2
fi
"""


def render(plan: Plan, folder: str, here: str) -> str:
    """The text of ``launch.sh``.

    ``folder``: the spec's folder as seen from the script's own; ``here``: the other way round.
    """
    lines = [
        "#!/usr/bin/env bash",
        f"# Starts the run {plan.name} on {_comment(plan.hardware)}. Written by zerocfg.",
        "# Words given to it are handed on to the training script.",
        "set -euo pipefail",
        f'cd -P -- "$(dirname -- "${{BASH_SOURCE[0]}}")"/{quote(folder)}',
    ]
    text = "\n".join(lines) + "\n"
    if plan.num_machines > 1:
        text += _MULTI_NODE % {"last": plan.num_machines - 1, "nodes": plan.num_machines}
    return text + "\nexec " + " \\\n  ".join(_command(plan, here)) + "\n"


def _command(plan: Plan, here: str) -> list[str]:
    script = [" ".join([quote(plan.script), *(quote(word) for word in plan.arguments)])]
    if plan.consumer == "deepspeed":
        return _torchrun(plan, script, here)
    command = [f"accelerate launch --config_file {quote(here + '/accelerate.yaml')}"]
    if plan.num_machines > 1:
        port = plan.accelerate["main_process_port"].value if "main_process_port" in plan.accelerate else PORT
        command.append('--machine_rank "$MACHINE_RANK" --main_process_ip "$MAIN_PROCESS_IP"')
        command.append(f'--main_process_port "${{MAIN_PROCESS_PORT:-{port}}}"')
    return [*command, script[0] + ' "$@"']


def _torchrun(plan: Plan, script: list[str], here: str) -> list[str]:
    """A training loop of its own is started by torchrun; it reads ``--deepspeed_config`` itself."""
    per_node = plan.num_processes // plan.num_machines
    command = [f"torchrun --nnodes {plan.num_machines} --nproc_per_node {per_node}"]
    if plan.num_machines > 1:
        command.append('--node_rank "$MACHINE_RANK" --master_addr "$MAIN_PROCESS_IP"')
        command.append(f'--master_port "${{MAIN_PROCESS_PORT:-{PORT}}}"')
    else:
        command[0] = f"torchrun --standalone --nproc_per_node {per_node}"
    config = ""
    if plan.engine == "deepspeed":
        config = f" --deepspeed --deepspeed_config {quote(here + '/ds_config.json')}"
    return [*command, f'{script[0]}{config} "$@"']


def _comment(text: str) -> str:
    """A text that stays on the line of its comment."""
    return " ".join(text.split())
