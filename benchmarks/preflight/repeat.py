"""How often a clean fleet is accused of a slow rank, and how often a throttled one is found.

    python -m benchmarks.preflight.repeat --ranks 4 --per-node 2 --times 100 results.jsonl
    python -m benchmarks.preflight.repeat --ranks 4 --per-node 2 --times 100 --throttle 1 --stopped 0.6 results.jsonl
    python -m benchmarks.preflight.judge results.jsonl

The ranks start once and measure as many times as a preflight would; each time is judged by itself. A throttled rank is
stopped by SIGSTOP for a share of every period, from outside.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from zerocfg.preflight import slow
from zerocfg.preflight.messages import PREFIX, Message, line, read

AGAIN = "again"


def rank() -> None:
    """One rank: prints its lines, and a mark after each time."""
    from zerocfg.hardware import launcher
    from zerocfg.hardware.measuring.collectives import Ranks
    from zerocfg.hardware.measuring.library import device_of
    from zerocfg.preflight.measuring import Sweeps
    from zerocfg.preflight.meeting import Meeting

    place = launcher.find(os.environ)
    assert place
    meeting = Meeting(place, os.environ, 120)
    present = meeting.present()
    device = device_of(place.local_rank)
    sweeps = Sweeps(device, place.rank, lambda message: print(line(message), flush=True))
    sweeps.join(Ranks(device, 120, meeting.store, place.rank, place.world), present, place.node, place.local_rank)
    for _ in range(int(os.environ["TIMES"])):
        start = time.monotonic()
        sweeps.run()
        print(f"{AGAIN} {time.monotonic() - start:.2f}", flush=True)
    os._exit(0)


def throttle(process: subprocess.Popen[str], stopped: float, period: float, end: threading.Event) -> None:
    """Stop a process for a share of each period."""
    while not end.is_set() and process.poll() is None:
        process.send_signal(signal.SIGSTOP)
        time.sleep(stopped * period)
        process.send_signal(signal.SIGCONT)
        time.sleep((1 - stopped) * period)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", type=Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--per-node", type=int, default=2)
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--throttle", type=int)
    parser.add_argument("--stopped", type=float, default=0.6)
    parser.add_argument("--period", type=float, default=0.05)
    told = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        "WORLD_SIZE": str(told.ranks),
        "TIMES": str(told.times),
    }
    started = []
    for number in range(told.ranks):
        node, local = divmod(number, told.per_node)
        own = {"RANK": str(number), "LOCAL_RANK": str(local), "GROUP_RANK": str(node)}
        command = [sys.executable, "-m", "benchmarks.preflight.repeat", "rank"]
        started.append(subprocess.Popen(command, env={**common, **own}, stdout=subprocess.PIPE, text=True))
    times: list[list[Message]] = [[] for _ in range(told.times)]
    seconds: list[float] = [0.0] * told.times
    ended = [0] * told.times
    writing = threading.Lock()
    end = threading.Event()
    ready = threading.Event()

    def follow(process: subprocess.Popen[str]) -> None:
        at = 0
        assert process.stdout
        for text in process.stdout:
            if text.startswith(PREFIX):
                ready.set()
                found = read(text)
                if found is not None:
                    times[at].append(found)
            elif text.startswith(AGAIN):
                with writing:
                    seconds[at] = max(seconds[at], float(text.split()[1]))
                    ended[at] += 1
                    if ended[at] == told.ranks:
                        with told.results.open("a") as out:
                            lines = [line(one) for one in times[at]]
                            out.write(json.dumps({"seconds": seconds[at], "lines": lines}) + "\n")
                at += 1

    threads = [threading.Thread(target=follow, args=(process,)) for process in started]
    for thread in threads:
        thread.start()
    if told.throttle is not None:
        ready.wait()
        share = (started[told.throttle], told.stopped, told.period, end)
        threading.Thread(target=throttle, args=share).start()
    for thread in threads:
        thread.join()
    end.set()
    accused = [slow.accused(messages) for messages in times]
    print(f"{sum(map(bool, accused))} of {told.times} accused, {sum(seconds) / told.times:.1f} s each")
    for at, found in enumerate(accused):
        for suspect, excess in found.items():
            print(at, suspect, excess)


if __name__ == "__main__":
    rank() if sys.argv[1:] == ["rank"] else main()
