"""The script that starts a plan on each of its nodes over ssh, without pdsh or mpirun."""

from __future__ import annotations

from shlex import quote
from typing import TYPE_CHECKING

from zerocfg.emit.values import one_line

if TYPE_CHECKING:
    from zerocfg.models.spec import Ssh
    from zerocfg.resolve.plan import Plan

NAME = "ssh.sh"

_SCRIPT = r"""#!/usr/bin/env bash
# Starts the run %(name)s on %(hardware)s: launch.sh on each node, over ssh. Written by zerocfg.
# HOSTFILE names a file with a node a line (what follows the name is passed over)%(instead)s.
# Words given to it are handed on to the training script. A node that fails, or Ctrl-C, ends all.
set -euo pipefail
cd -P -- "$(dirname -- "${BASH_SOURCE[0]}")"/%(spec)s

hosts=(%(hosts)s)
if [ -n "${HOSTFILE:-}" ]; then
  hosts=()
  while read -r host _ || [ -n "$host" ]; do
    case $host in ''|'#'*) ;; *) hosts+=("$host") ;; esac
  done < "$HOSTFILE"
fi
if [ "${#hosts[@]}" -ne %(nodes)d ]; then
  echo "this run has %(nodes)d node(s), and ${HOSTFILE:-the spec} names ${#hosts[@]}:" \
    "set HOSTFILE to a file with a node a line" >&2
  exit 2
fi

# What a node does. It ends its part when the connection does, which holds standard input open.
on_node() {
  (
    set -e
    cd -- "$1"
    shift
%(setup)s    exec bash "$@"
  ) < /dev/null 3<&- &
  job=$!
  { read -r _ || true; kill "$job"; } <&3 > /dev/null 2>&1 &
  watch=$!
  code=0
  wait "$job" || code=$?
  kill "$watch" 2> /dev/null || true
  if [ "$code" -ne 0 ]; then
    echo "$HOSTNAME: launch.sh ended with exit code $code" >&2
  fi
  exit "$code"
}

# A word as every shell of a node reads it.
apostrophe="'" escaped="'\\''"
quoted() {
  printf "'%%s' " "${1//$apostrophe/$escaped}"
}

folder=%(folder)s
%(first)sscript="$(declare -f on_node)"$'\n''on_node "$@" 3<&0'
running=()
stop() {
  trap - INT TERM EXIT
  kill "${running[@]}" 2> /dev/null || true
  wait
}
trap 'stop; exit 130' INT
trap 'stop; exit 143' TERM
trap stop EXIT

exec 4<> <(:)  # a pipe that nobody closes: standard input of every connection
rank=0
for host in "${hosts[@]}"; do
  remote="%(variables)sbash -c $(quoted "$script")bash "
  for word in "$folder" %(launch)s "$@"; do
    remote+=$(quoted "$word")
  done
  ssh -o BatchMode=yes -o ServerAliveInterval=30 %(options)s"$host" "$remote" <&4 4>&- &
  running+=($!)
  rank=$((rank + 1))
done

while [ "${#running[@]}" -gt 0 ]; do
  sleep 1
  for at in "${!running[@]}"; do
    if ! kill -0 "${running[$at]}" 2> /dev/null; then
      code=0
      wait "${running[$at]}" || code=$?
      unset "running[$at]"
      if [ "$code" -ne 0 ]; then
        echo "${hosts[$at]} ended with exit code $code; the others are ended, too" >&2
        exit "$code"
      fi
    fi
  done
done
"""
_FIRST = "first=${MAIN_PROCESS_IP:-${hosts[0]#*@}}\n"
_SEVERAL = (
    'env MACHINE_RANK=$rank MAIN_PROCESS_IP=$(quoted "$first")MAIN_PROCESS_PORT=$(quoted "${MAIN_PROCESS_PORT:-}")'
)


def render(plan: Plan, ssh: Ssh, folder: str, here: str) -> str:
    """The text of ``ssh.sh``. ``folder``: the spec's folder as seen from it; ``here``: the other way round."""
    return _SCRIPT % {
        "name": plan.name,
        "hardware": one_line(plan.hardware),
        "instead": "; without it, `hosts:` of the spec count" if plan.hosts else "",
        "spec": quote(folder),
        "hosts": " ".join(map(quote, plan.hosts)),
        "nodes": plan.num_machines,
        "setup": "".join(f"    {line}\n" for line in ssh.setup),
        "folder": quote(ssh.folder) if ssh.folder else "$PWD",
        "first": _FIRST if plan.num_machines > 1 else "",
        "variables": _SEVERAL if plan.num_machines > 1 else "",
        "launch": quote(f"{here}/launch.sh"),
        "options": "".join(f"{quote(word)} " for word in ssh.options),
    }
