"""The ranks' program: ``python -m zerocfg.preflight.rank``, started once for each rank by whatever starts jobs.

It prints lines (:mod:`zerocfg.preflight.messages`) as it finds things out, the facts of its node before it waits for
any other. With ``--relay`` rank 0 prints the lines of all.
"""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from typing import TYPE_CHECKING

from zerocfg.hardware import launcher
from zerocfg.hardware.devices import describe_error
from zerocfg.hardware.launcher import Place
from zerocfg.preflight import facts
from zerocfg.preflight.messages import Done, Missing, Problem, line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from zerocfg.preflight.measuring import Sweeps
    from zerocfg.preflight.meeting import Meeting
    from zerocfg.preflight.messages import Message

WAIT = 45.0  # seconds that rank 0 waits for the others
LIMIT = 15.0  # seconds of a collective, or an exchange, that does not end
GRACE = 5.0  # seconds that rank 0 waits for the last lines of the others, beyond the limit of a collective


class Program:
    """One rank, from its first line to its last."""

    def __init__(self, place: Place, wait: float, limit: float, device: str, relay: bool, name: str | None) -> None:
        self.name = name
        self.place, self.wait, self.limit, self.device, self.relay = place, wait, limit, device, relay
        self.started = time.monotonic()
        self.importing = 0.0
        self.meeting: Meeting | None = None
        self.sweeps: Sweeps | None = None
        self.early: list[str] = []

    def run(self) -> None:
        """Never raises."""
        self.tell(facts.gather(self.place, self.name))
        try:
            from zerocfg.preflight.measuring import AloneError, PartnerError, WrongResultError
            from zerocfg.preflight.meeting import PortTakenError
        except ImportError as error:
            self.problem("torch", f"torch cannot be imported: {describe_error(error)}")
            return
        self.importing = time.monotonic() - self.started
        try:
            self.measure()
        except PortTakenError as error:
            self.problem("port", str(error))
        except AloneError as error:
            self.problem("local", describe_error(error))
        except PartnerError as error:
            kind = "result" if isinstance(error.__cause__, WrongResultError) else "exchange"
            self.problem(kind, describe_error(error), error.partner)
        except WrongResultError as error:
            self.problem("result", describe_error(error))
        except Exception as error:
            met = self.sweeps is not None and self.sweeps.ranks is not None
            self.problem("collective" if met else "meeting", describe_error(error))
        else:
            self.tell(Done(rank=self.place.rank, seconds=time.monotonic() - self.started, importing=self.importing))
        if self.relay and self.meeting is not None:
            self.pass_on(self.meeting)

    def measure(self) -> None:
        """Raises what torch raises."""
        from zerocfg.hardware.measuring.collectives import Ranks
        from zerocfg.hardware.measuring.library import Device, device_of
        from zerocfg.preflight.measuring import Sweeps
        from zerocfg.preflight.meeting import Meeting

        present = [self.place.rank]
        if self.place.world > 1:
            meeting = Meeting(self.place, os.environ, self.wait)
            if self.relay:
                for text in self.early:
                    meeting.post(text)
            self.meeting = meeting
            present = meeting.present()
            if self.place.rank not in present:
                raise TimeoutError(f"rank 0 went on without this rank after {self.wait:.0f} s")
            missing = sorted(set(range(self.place.world)) - set(present))
            if missing and self.place.rank == 0:
                self.tell(Missing(rank=0, ranks=missing, seconds=self.wait))
        device = Device("cpu") if self.device == "cpu" else device_of(self.place.local_rank)
        self.sweeps = Sweeps(device, self.place.rank, self.tell)
        if len(present) > 1 and self.meeting is not None:
            ranks = Ranks(device, self.limit, self.meeting.store, present.index(self.place.rank), len(present))
            self.sweeps.join(ranks, present, self.place.node, self.place.local_rank)
        self.sweeps.run()

    def problem(self, what: str, message: str, partner: int | None = None) -> None:
        stage, step = (self.sweeps.stage, self.sweeps.step) if self.sweeps else ("meeting", 0)
        fields = {"what": what, "message": message[:300], "partner": partner, "stage": stage, "step": step}
        self.tell(Problem.model_validate({"rank": self.place.rank, **fields}))

    def tell(self, message: Message) -> None:
        """In one write, so that the lines of ranks that share a pipe stay apart."""
        text = line(message)
        os.write(sys.stdout.fileno(), f"{text}\n".encode())
        if self.meeting is None:
            self.early.append(text)
        elif self.relay:
            try:
                self.meeting.post(text)
            except Exception:  # rank 0 is gone, and with it whoever would read this
                self.relay = False

    def pass_on(self, meeting: Meeting) -> None:
        """Rank 0 prints the lines of the others; it waits for those that have not come to their end."""
        if self.place.rank:
            meeting.leave()
            return
        others = range(1, self.place.world)
        deadline = time.monotonic() + self.limit + GRACE
        came = [rank for rank in others if meeting.posted(rank)]
        while time.monotonic() < deadline and not all(meeting.left(rank) for rank in came):
            time.sleep(0.1)
        for rank in others:
            for text in meeting.posted(rank):
                os.write(sys.stdout.fileno(), f"{text}\n".encode())


def main(arguments: Sequence[str] | None = None) -> int:
    """0 unless the launcher's variables make no sense: a rank's problem is a line, and the judge's to judge."""
    parser = argparse.ArgumentParser(prog="python -m zerocfg.preflight.rank", description=__doc__)
    parser.add_argument("--wait", type=float, default=WAIT, help="seconds that rank 0 waits for the others")
    parser.add_argument("--limit", type=float, default=LIMIT, help="seconds of a collective that does not end")
    parser.add_argument("--device", choices=("auto", "cpu"), default="auto", help="what to measure")
    parser.add_argument("--relay", action="store_true", help="rank 0 prints the lines of all ranks")
    parser.add_argument("--name", help="of the node, where its scheduler calls it otherwise than it does itself")
    options = parser.parse_args(arguments)
    try:
        place = launcher.find(os.environ) or Place(0, 0, 1, socket.gethostname())
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    Program(place, options.wait, options.limit, options.device, options.relay, options.name).run()
    sys.stdout.flush()
    # A group with a rank that died is not left in good order by anybody.
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
