"""``python -m zerocfg_worker job.json``: train, and write a report."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path

from . import compiling, fsdp_on_cpu, parts, releases, sharing
from .job import Job
from .report import Report
from .trial import Trial
from .watch import Watch

LOOPS = {
    "transformers": "trainer_loop",
    "trl": "trainer_loop",
    "accelerate": "accelerate_loop",
    "deepspeed": "deepspeed_loop",
}
"""By consumer, where no trainer of TRL is named."""


def main() -> None:
    job = Job.read(Path(sys.argv[1]))
    report = Report(Path(job.reports))
    with report.recording():
        report.content["versions"] = report.fence.measure("versions", releases.installed_versions, otherwise={})
        report.phase("import")
        if job.share is not None:
            sharing.join(job.share, job.device)
        report.fence.measure("compile watcher", compiling.follow_extensions, Path(job.reports))
        if job.device == "cpu":
            fsdp_on_cpu.allow()
        name = LOOPS[job.consumer] if job.trainer is None else "trl_loop"
        loop = importlib.import_module(f".loops.{name}", __package__)
        watch = Watch(job, report)
        watch.finish(loop.train(job, watch, Trial.planned(job)))
        if job.nodes > 1:
            report.exchange()
        parts.run(job, report, loop, watch)
        if job.nodes > 1 and set(job.parts) - {"train"}:
            report.exchange()


if __name__ == "__main__":
    main()
    # All is reported. A thread of gloo that still runs at the end of the interpreter aborts it now and then
    # ("terminate called without an active exception").
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
