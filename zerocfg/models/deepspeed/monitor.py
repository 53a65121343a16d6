"""What a run reports: monitors, profiler, loggers, timers."""

from __future__ import annotations

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Loose, Strict

_SOURCE = "deepspeed/monitor/config.py"


class TensorBoard(Strict):
    """Log to TensorBoard; needs the package."""

    source = _SOURCE

    enabled: bool = key(False, "Write events.")
    output_path: str = key("", "Directory; empty: under the working directory.")
    job_name: str = key("DeepSpeedJobName", "Name of the run's sub-directory.")


class CsvMonitor(Strict):
    """Log to CSV files."""

    source = _SOURCE

    enabled: bool = key(False, "Write files.")
    output_path: str = key("", "Directory; empty: under the working directory.")
    job_name: str = key("DeepSpeedJobName", "Name of the run's sub-directory.")


class Wandb(Strict):
    """Log to Weights & Biases; needs the package."""

    source = _SOURCE

    enabled: bool = key(False, "Send metrics.")
    group: str | None = key(None, "Group of runs.")
    team: str | None = key(None, "Team; the word `entity` is refused.")
    project: str = key("deepspeed", "Project.")


class Comet(Strict):
    """Log to Comet; needs the package."""

    source = _SOURCE

    enabled: bool = key(False, "Send metrics.")
    samples_log_interval: int = key(100, "Samples between two reports.", unit="samples")
    project: str | None = key(None, "Project.")
    workspace: str | None = key(None, "Workspace.")
    api_key: str | None = key(None, "Key of the account; better in the environment (COMET_API_KEY).")
    experiment_name: str | None = key(None, "Name of the experiment.")
    experiment_key: str | None = key(None, "Key of the experiment.")
    online: bool | None = key(None, "Send to the server instead of a file.")
    mode: str | None = key(None, "get, create or get_or_create.")


class CommsLogger(Strict):
    """Log each collective."""

    source = "deepspeed/comm/config.py"

    enabled: bool = key(False, "Log collectives.")
    prof_all: bool = key(True, "Log every kind of collective.")
    prof_ops: list[object] = key([], "Names of the collectives to log when prof_all is false.")
    verbose: bool = key(False, "Print each call.")
    debug: bool = key(False, "Add the caller to the name of each call.")


class FlopsProfiler(Loose):
    """Measure floating-point operations of one step."""

    source = "deepspeed/profiling/config.py"

    enabled: bool = key(False, "Profile; turns wall_clock_breakdown on.", auto_raw="error")
    recompute_fwd_factor: float = key(0.0, "Share of the forward pass that is computed again.", unit="share")
    profile_step: int = key(1, "The step to profile.", unit="steps")
    module_depth: int = key(-1, "Depth of modules in the report; -1: the innermost.")
    top_modules: int = key(1, "Modules in the report.")
    detailed: bool = key(True, "Print the whole model.")
    output_file: str | None = key(None, "File of the report; null: stdout.")


class ThroughputTimer(Strict):
    """The timer behind samples per second."""

    source = "deepspeed/utils/config.py"

    enabled: bool = key(True, "Measure.")
    synchronized: bool = key(True, "Wait for the device at each measurement.")


class Timers(Loose):
    """Timers of the engine."""

    source = "deepspeed/utils/config.py"

    throughput: ThroughputTimer = key(ThroughputTimer, "The timer behind samples per second.", auto_raw="error")
