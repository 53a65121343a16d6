"""A Slurm cluster of some nodes on this machine, for the tests and `make slurm-demo`.

Each node is a `slurmd -N` on 127.0.0.1; the controller keeps no accounts and asks for no passwords. Everything lies
in one folder and ends with `stop`. The programs are Debian's `slurm-wlm` (22.05 and later).
"""

from __future__ import annotations

import contextlib
import getpass
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

PROGRAMS = ("slurmctld", "slurmd", "sbatch", "srun", "scontrol", "scancel")
UP = 60
"""Seconds that the nodes get to come up."""

_CONF = """\
ClusterName=here
SlurmctldHost=localhost(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=10
SchedulerParameters=sched_interval=2,batch_sched_delay=0
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/%n
SlurmctldPidFile={folder}/controller.pid
SlurmdPidFile={folder}/%n.pid
SlurmctldLogFile={folder}/controller.log
SlurmdLogFile={folder}/%n.log
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobCompType=jobcomp/none
{nodes}
PartitionName=here Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""


def missing() -> str:
    """Why there can be no cluster here; empty where there can."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
    absent = [name for name in PROGRAMS if shutil.which(name, path=path) is None]
    return f"Slurm is not installed: no {absent[0]} (apt-get install slurm-wlm)" if absent else ""


@dataclass
class SlurmNodes:
    """``count`` nodes n1, n2, ... in ``folder``. ``mounts``: shell lines that change what a node sees of the file
    system, by its number from 1; they need root."""

    folder: Path
    count: int = 2
    mounts: dict[int, str] = field(default_factory=dict)
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """What a client needs: the configuration, and where the ranks meet (the nodes' names are in no DNS)."""
        path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin"
        return {"SLURM_CONF": str(self.folder / "slurm.conf"), "MAIN_PROCESS_IP": "127.0.0.1", "PATH": path}

    def start(self) -> None:
        """Start controller and nodes. Raises RuntimeError where they do not come up."""
        port, *others = _free_ports(self.count + 1)
        lines = (
            f"NodeName=n{number} NodeHostName={socket.gethostname()} NodeAddr=127.0.0.1 Port={one} "
            f"CPUs={max(2, os.cpu_count() or 2)} State=UNKNOWN"
            for number, one in enumerate(others, 1)
        )
        conf = _CONF.format(port=port, user=getpass.getuser(), folder=self.folder, nodes="\n".join(lines))
        for name in ("state", *(f"n{number}" for number in range(1, self.count + 1))):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        (self.folder / "slurm.conf").write_text(conf)
        self.start_controller()
        for number in range(1, self.count + 1):
            self.start_node(number)
        until = time.monotonic() + UP
        while (states := self._states()) != ["idle"] * self.count:
            if time.monotonic() > until:
                self.stop()
                raise RuntimeError(f"the nodes are {' '.join(states) or 'not known'} after {UP} s; see {self.folder}")
            time.sleep(0.5)

    def start_controller(self) -> None:
        self._start("controller", "exec slurmctld -D")

    def start_node(self, number: int) -> None:
        mounts = self.mounts.get(number)
        line = f"exec slurmd -D -N n{number}"
        if mounts:
            line = f"exec unshare --mount bash -c {quote(f'set -e; {mounts}; {line}')}"
        self._start(f"n{number}", line)

    def end(self, name: str) -> None:
        """End the "controller" or a node, as a machine that is switched off."""
        process = self._processes.pop(name)
        process.send_signal(signal.SIGTERM if name == "controller" else signal.SIGKILL)
        process.wait(30)

    def stop(self) -> None:
        """End everything, the jobs first."""
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            self.run("scancel", "--quiet", "--user", getpass.getuser())
            until = time.monotonic() + 15
            while self.run("squeue", "--noheader").stdout.strip() and time.monotonic() < until:
                time.sleep(0.5)
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        """A program of Slurm, as a client calls it."""
        environment = {**os.environ, **self.environment}
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def _states(self) -> list[str]:
        return self.run("sinfo", "--noheader", "--Node", "--format=%t").stdout.split()

    def _start(self, name: str, line: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self._processes[name] = subprocess.Popen(
                ["bash", "-c", line],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )


@contextlib.contextmanager
def slurm_nodes(count: int = 2, mounts: dict[int, str] | None = None) -> Iterator[SlurmNodes]:
    """A cluster for a while."""
    # A short path: names of sockets are limited to 107 bytes.
    with tempfile.TemporaryDirectory(prefix="zerocfg-slurm-", ignore_cleanup_errors=True) as folder:
        nodes = SlurmNodes(Path(folder), count, mounts or {})
        try:
            nodes.start()
            yield nodes
        finally:
            nodes.stop()


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


def main(command: list[str]) -> int:
    """Run a command beside two nodes."""
    reason = missing()
    if reason:
        print(f"{reason}; nothing was run")
        return 2
    with slurm_nodes() as nodes:
        return subprocess.run(command, env={**os.environ, **nodes.environment}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
