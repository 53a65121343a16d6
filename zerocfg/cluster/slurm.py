"""Jobs under Slurm (written for 22.05 and later): an array of tasks, by sbatch, scontrol, srun and scancel.

The script carries the job's files, so no folder has to be shared. Where the nodes see the client's folder, output goes
there; else it stays on the first node of a task, which waits until the client has fetched it through a step of its own.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
import sys
from shlex import join, quote
from typing import TYPE_CHECKING

from zerocfg.cluster.job import REST, REST_AFTER_FAILURE, AwayError, ClusterError, Job, State, TaskState
from zerocfg.cluster.on_node import packed

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

TOKEN = "token"
LINGER = 900
"""Seconds that a task without a shared folder waits to be collected."""
START = 300
"""Seconds of a task's time limit for starting it, and to collect what it says."""
_NO_TASK = str(2**32 - 2)
_PATIENCE = 30
"""Seconds for one call of a program of Slurm."""

_STATES = {
    "PENDING": State.QUEUED,
    "REQUEUED": State.QUEUED,
    "REQUEUE_HOLD": State.QUEUED,
    "CONFIGURING": State.STARTING,
    "RUNNING": State.RUNNING,
    "COMPLETING": State.RUNNING,
    "SUSPENDED": State.RUNNING,
    "STOPPED": State.RUNNING,
    "COMPLETED": State.ENDED,
    "CANCELLED": State.CANCELLED,
}
"""Others are ways to fail."""

_FAILED = {
    "TIMEOUT": "the time limit of the job is over",
    "NODE_FAIL": "a node failed",
    "BOOT_FAIL": "a node did not boot",
    "OUT_OF_MEMORY": "the host's memory that the job asked for did not suffice",
    "PREEMPTED": "another job took its nodes",
    "DEADLINE": "its deadline is over",
}

_SCRIPT = r"""
set -u
task=$SLURM_ARRAY_TASK_ID
out=%(folder)s
if [ "$(cat "$out/token" 2>/dev/null)" = %(token)s ]; then
  shared=1
else
  shared='' out=${TMPDIR:-/tmp}/zerocfg-$SLURM_JOB_ID
  mkdir -p "$out" || exit 73
fi
hosts=$(scontrol show hostnames "$SLURM_JOB_NODELIST")
export MAIN_PROCESS_IP=${MAIN_PROCESS_IP:-${hosts%%%%$'\n'*}}
export MAIN_PROCESS_PORT=$((20000 + SLURM_JOB_ID %% 10000))
printf '*: {"event": "hosts", "names": "%%s"}\x1e\n' "${hosts//$'\n'/ }" > "$out/$task.events"

on_node() {
  trap : TERM  # the program ends by itself and cleans up
  %(setup)s
  python=%(python)s
  [ -x "$python" ] || python=python
  if ! "$python" -c 'import zerocfg.cluster.on_node' >&2; then
    text="${python//[\"\\]/} cannot import zerocfg here: install it, or say in targets.slurm.setup how to get there"
    printf '{"event": "problem", "text": "%%s"}\x1e\n' "$text"
    return 1
  fi
  "$python" -m zerocfg.cluster.on_node "$@"
  set -- $?
  printf '{"event": "ended", "code": %%d}\x1e\n' "$1"
  return "$1"
}
case $task in
%(tasks)s
esac
srun --label --input=all --wait=%(last)d --export=ALL --nodes=%(nodes)d --ntasks=%(nodes)d --ntasks-per-node=1%(cpus)s \
  bash -c "$(declare -f on_node)"$'\n''on_node "$@"' bash "${program[@]}" \
  >> "$out/$task.events" 2> "$out/$task.log" <<'END_OF_FILES' &
%(files)sEND_OF_FILES
launch=$!
# Once a node has ended, the others are asked to end, so that they clean up; srun would kill them.
for ((second = 0; second < %(rest)d; )); do
  sleep 1
  kill -0 "$launch" 2>/dev/null || break
  case $(grep -aoE '"event": "ended", "code": [0-9]+' "$out/$task.events") in
    '') ;;
    *' '[1-9]*) second=$((second + %(rest)d / %(rest_after_failure)d)) ;;
    *) second=$((second + 1)) ;;
  esac
done
kill -0 "$launch" 2>/dev/null && scancel --quiet --signal=TERM "${SLURM_ARRAY_JOB_ID}_$task"
wait "$launch"
code=$?
printf '*: {"event": "step", "code": %%d, "log": "%%s"}\x1e\n' "$code" "$(tail -c 6000 "$out/$task.log" | base64 -w0)" \
  >> "$out/$task.events"
if [ -z "$shared" ]; then
  for ((second = 0; second < %(linger)d; second++)); do
    [ -e "$out/collected" ] && break
    sleep 1
  done
  rm -rf "$out"
fi
"""


class Slurm:
    """`zerocfg.cluster.job.Engine` over the programs of Slurm that are on the PATH."""

    poll = 2.0
    """Seconds between two looks that a controller takes without noticing."""

    def __init__(self) -> None:
        missing = [name for name in ("sbatch", "scontrol", "srun", "scancel") if shutil.which(name) is None]
        if missing:
            raise ClusterError(f"--on slurm: {missing[0]} is not on the PATH; run this on a login node of the cluster")
        self._reported: dict[str, list[TaskState]] = {}
        self._jobs: dict[tuple[str, int], tuple[str, str]] = {}

    def submit(self, job: Job, folder: Path) -> str:
        token = secrets.token_hex(16)
        (folder / TOKEN).write_text(token)
        # What a setup line brings onto the PATH goes before the Python that runs here.
        script = render(job, folder, token, "python" if job.setup else sys.executable)
        path = folder / "job.sbatch"
        path.write_text(script)
        # The options that a user's environment sets for sbatch would go before those of the script.
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SBATCH_")}
        done = _run(["sbatch", "--parsable", str(path)], env=clean)
        if done.returncode:
            said = _words(done.stderr).removeprefix("sbatch: error: ")
            raise ClusterError(f"Slurm takes no such job: {said}{_about_cards(said, job.cards)}")
        return done.stdout.strip().partition(";")[0]

    def states(self, identity: str, tasks: int) -> list[TaskState]:
        done = _run(["scontrol", "show", "job", "--oneliner", identity])
        if done.returncode:
            if "Invalid job id" not in done.stderr:
                raise AwayError(_words(done.stderr))
            before = self._reported.get(identity, [])
            return [task_state if task_state.state.over else TaskState(State.GONE) for task_state in before] or [
                TaskState(State.GONE) for _ in range(tasks)
            ]
        jobs = [_facts(line) for line in done.stdout.splitlines()]
        # Of tasks that were cancelled before they began, Slurm keeps one job without their numbers.
        rest = next((_state(facts) for facts in jobs if facts.get("ArrayTaskId") == _NO_TASK), TaskState(State.GONE))
        found = [rest] * tasks
        for facts in jobs:
            for task in _numbers(facts.get("ArrayTaskId", ""), tasks):
                found[task] = _state(facts)
                self._jobs[identity, task] = (facts.get("JobId", identity), facts.get("BatchHost", ""))
        self._reported[identity] = found
        return found

    def output(self, identity: str, task: int, folder: Path, offset: int) -> bytes:
        here = folder / f"{task}.events"
        if here.is_file():
            with here.open("rb") as file:
                file.seek(offset)
                return file.read()
        if identity not in self._reported or self._reported[identity][task].state is not State.RUNNING:
            return b""
        there = self._step(identity, task, f'tail -c +{offset + 1} "$out/{task}.events" 2>/dev/null || true')
        return there.stdout if there is not None else b""

    def collected(self, identity: str, task: int, folder: Path) -> None:
        if not (folder / f"{task}.events").is_file():
            self._step(identity, task, 'touch "$out/collected"')

    def cancel(self, identity: str) -> None:
        done = _run(["scancel", "--quiet", identity])
        if done.returncode and "Invalid job id" not in done.stderr:
            raise AwayError(_words(done.stderr))

    def _step(self, identity: str, task: int, line: str) -> subprocess.CompletedProcess[bytes] | None:
        """Run a line on the first node of a running task; None where that did not work, which may pass."""
        number, host = self._jobs.get((identity, task), ("", ""))
        if not number or not host:
            return None
        command = ["srun", f"--jobid={number}", "--overlap", "--nodes=1", "--ntasks=1", f"--nodelist={host}", "--quiet"]
        script = f"out=${{TMPDIR:-/tmp}}/zerocfg-{number}; {line}"
        try:
            done = subprocess.run(
                [*command, "bash", "-c", script], capture_output=True, timeout=_PATIENCE, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.SubprocessError):
            return None
        return done if done.returncode == 0 else None


def render(job: Job, folder: Path, token: str, python: str) -> str:
    """The script that sbatch gets."""
    options = [
        f"--job-name={job.name}",
        f"--nodes={job.nodes}",
        "--ntasks-per-node=1",
        f"--array=0-{len(job.tasks) - 1}",
        f"--time={-(-(job.seconds + START) // 60)}",
        "--output=/dev/null",
        "--no-requeue",
        *([f"--gpus-per-node={job.cards}"] if job.cards else []),
        *([f"--cpus-per-task={job.cpus}"] if job.cpus > 1 else []),
        *job.options,  # the last one of a name counts
    ]
    tasks = (f"  {number}) program=({join(task.program)}) ;;" for number, task in enumerate(job.tasks))
    body = _SCRIPT % {
        "folder": quote(str(folder.resolve())),
        "token": quote(token),
        "python": quote(python),
        "setup": "\n  ".join(job.setup) or ":",
        "tasks": "\n".join(tasks),
        "nodes": job.nodes,
        # A step does not get the job's by itself (since 22.05).
        "cpus": f" --cpus-per-task={job.cpus}" if job.cpus > 1 else "",
        "rest": REST,
        "rest_after_failure": REST_AFTER_FAILURE,
        "last": REST * 3,
        "linger": LINGER,
        "files": packed(job.files).decode("ascii"),
    }
    return "\n".join(["#!/usr/bin/env bash", *(f"#SBATCH {option}" for option in options)]) + "\n" + body


def _run(command: Sequence[str], env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    try:
        return subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_PATIENCE,
            stdin=subprocess.DEVNULL,
            env=env,
        )
    except subprocess.TimeoutExpired:
        raise AwayError(f"{command[0]} does not end within {_PATIENCE} s") from None
    except OSError as error:
        raise ClusterError(f"{command[0]} cannot be started: {error.strerror or error}") from None


def _words(text: str) -> str:
    return " ".join(text.split())[:300]


def _about_cards(said: str, cards: int) -> str:
    """What a user can do where Slurm manages no cards: its own words do not say who asked for some."""
    if not cards or "generic resource" not in said.lower():
        return ""
    return f"; it asks for --gpus-per-node={cards}, which --on-option overrides, and none with --device cpu"


def _facts(line: str) -> dict[str, str]:
    return dict(re.findall(r"(?:^| )([A-Za-z:/]+)=(\S*)", line))


def _numbers(text: str, tasks: int) -> list[int]:
    """The tasks of an array that "3", "0-2,5" or "1-7%2" names."""
    found: list[int] = []
    for part in text.partition("%")[0].split(","):
        first, _, last = part.partition("-")
        if first.isdigit() and (not last or last.isdigit()):
            found += range(int(first), min(int(last or first), tasks - 1) + 1)
    return [number for number in found if number < tasks]


def _state(facts: dict[str, str]) -> TaskState:
    word = facts.get("JobState", "")
    hosts = facts.get("NodeList", "").replace("(null)", "")
    state = _STATES.get(word, State.FAILED)
    reason = facts.get("Reason", "").replace("None", "")
    if state is State.FAILED:
        code = facts.get("ExitCode", "")
        reason = _FAILED.get(word) or f"{word.lower()}" + (f", exit code {code}" if code not in ("", "0:0") else "")
    elif state in (State.ENDED, State.RUNNING, State.CANCELLED):
        reason = ""
    return TaskState(state, reason, hosts)
