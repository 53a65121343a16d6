"""ZC754: the word for the local rank that a launcher adds, and a script whose parser does not take it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.versions import only_below, only_from
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.key import from_origin
from zerocfg.rules.launch.script_options import for_another_script
from zerocfg.rules.launch.torchrun import starts_by_old_module
from zerocfg.rules.line import all_options_seen, at_line, line_option, started_by
from zerocfg.run.model import Run

_DASHED_SINCE = "2.0"
"""The release of torch from which its old launcher writes `--local-rank`."""


@rule("ZC754", "local-rank-refused", Severity.ERROR, WHOLE_RUN)
def local_rank_refused(run: Run) -> Iterator[Finding]:
    script = run.script
    if script is None or script.strict_parser is None or not all_options_seen(run):
        return
    if run.spec is not None and run.consumer != "deepspeed":
        return  # what is built of a spec gives --no_local_rank there
    if for_another_script(run):
        return
    added = _added(run)
    refused = [word for word in added if not script.strict_parser.takes(word)]
    if not refused:
        return
    certain = refused == added
    name = "DeepSpeed's runner" if started_by(run, "deepspeed") else "torch.distributed.launch"
    since = "" if certain else f" from torch {_DASHED_SINCE} on"
    yield Finding(
        at_line(run),
        f"{name} hands the script `{refused[-1]}=0`{since}, which its parser does not know: it stops there",
        f"declare `{refused[-1]}` in the parser, or "
        + ("give the runner --no_local_rank" if started_by(run, "deepspeed") else "start it with torchrun"),
        [from_origin(run, script.strict_parser.place).at()],
        severity=None if certain else Severity.WARNING,
    )


def _added(run: Run) -> list[str]:
    """The option that the launcher puts before the script's own; of several where the release of torch decides."""
    if started_by(run, "deepspeed"):
        others = line_option(run, "no_local_rank") or line_option(run, "launcher").text not in (None, "pdsh")
        return [] if others else ["--local_rank"]
    if not starts_by_old_module(run) or line_option(run, "use_env"):
        return []
    torch = run.versions.get("torch")
    if only_below(torch, _DASHED_SINCE):
        return ["--local_rank"]
    return ["--local-rank"] if only_from(torch, _DASHED_SINCE) else ["--local_rank", "--local-rank"]
