"""What a run reports: monitors, profiler, loggers, timers."""

from __future__ import annotations

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Loose, Strict

_SOURCE = "deepspeed/monitor/config.py"


class TensorBoard(Strict):
    """Log to TensorBoard; needs the package."""

    source = _SOURCE
    known_as = "tensorboard"

    enabled: bool = key("Write events.")
    output_path: str = key("Directory; empty: under the working directory.")
    job_name: str = key("Name of the run's sub-directory.")


class CsvMonitor(Strict):
    """Log to CSV files."""

    source = _SOURCE
    known_as = "csv_monitor"

    enabled: bool = key("Write files.")
    output_path: str = key("Directory; empty: under the working directory.")
    job_name: str = key("Name of the run's sub-directory.")


class Wandb(Strict):
    """Log to Weights & Biases; needs the package."""

    source = _SOURCE
    known_as = "wandb"

    enabled: bool = key("Send metrics.")
    group: str | None = key("Group of runs.")
    team: str | None = key("Team; the word `entity` is refused.")
    project: str = key("Project.")


class Comet(Strict):
    """Log to Comet; needs the package."""

    source = _SOURCE
    known_as = "comet"

    enabled: bool = key("Send metrics.")
    samples_log_interval: int = key("Samples between two reports.", unit="samples")
    project: str | None = key("Project.")
    workspace: str | None = key("Workspace.")
    api_key: str | None = key("Key of the account; better in the environment (COMET_API_KEY).")
    experiment_name: str | None = key("Name of the experiment.")
    experiment_key: str | None = key("Key of the experiment.")
    online: bool | None = key("Send to the server instead of a file.")
    mode: str | None = key("get, create or get_or_create.")


class CommsLogger(Strict):
    """Log each collective."""

    source = "deepspeed/comm/config.py"
    known_as = "comms_logger"

    enabled: bool = key("Log collectives.")
    prof_all: bool = key("Log every kind of collective.")
    prof_ops: list[object] = key("Names of the collectives to log when prof_all is false.")
    verbose: bool = key("Print each call.")
    debug: bool = key("Add the caller to the name of each call.")


class FlopsProfiler(Loose):
    """Measure floating-point operations of one step."""

    source = "deepspeed/profiling/config.py"
    known_as = "flops_profiler"

    enabled: bool = key("Profile; turns wall_clock_breakdown on.", auto_raw="error")
    recompute_fwd_factor: float = key("Share of the forward pass that is computed again.", unit="share")
    profile_step: int = key("The step to profile.", unit="steps")
    module_depth: int = key("Depth of modules in the report; -1: the innermost.")
    top_modules: int = key("Modules in the report.")
    detailed: bool = key("Print the whole model.")
    output_file: str | None = key("File of the report; null: stdout.")


class ThroughputTimer(Strict):
    """The timer behind samples per second."""

    source = "deepspeed/utils/config.py"

    enabled: bool = key("Measure.", default=True)
    synchronized: bool = key("Wait for the device at each measurement.", default=True)


class Timers(Loose):
    """Timers of the engine."""

    source = "deepspeed/utils/config.py"

    throughput: ThroughputTimer = key("The timer behind samples per second.", default=ThroughputTimer, auto_raw="error")
