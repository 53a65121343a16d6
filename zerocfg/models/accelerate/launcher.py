"""Everything that `accelerate launch` can be told: one flat namespace.

The launcher sets each key of each sub-mapping of the file as an attribute beside its command line arguments,
whatever the sub-mapping is called. So a launcher argument takes effect in any of them and wins over the top
level; only an option given on the command line wins over it. Of two sub-mappings the later one in the order
of ClusterConfig wins.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.accelerate.deepspeed import DeepSpeedConfig
from zerocfg.models.accelerate.dynamo import DynamoConfig
from zerocfg.models.accelerate.facts import option, switch, variable
from zerocfg.models.accelerate.fp8 import Fp8Config
from zerocfg.models.accelerate.fsdp import FsdpConfig
from zerocfg.models.accelerate.megatron import MegatronLmConfig
from zerocfg.models.accelerate.mpirun import MpirunConfig
from zerocfg.models.accelerate.parallelism import ParallelismConfig
from zerocfg.models.accelerate.torchrun import Torchrun
from zerocfg.models.base import key


class Launcher(
    DeepSpeedConfig,
    FsdpConfig,
    ParallelismConfig,
    MegatronLmConfig,
    Fp8Config,
    DynamoConfig,
    MpirunConfig,
    Torchrun,
):
    """All attributes that something in the launcher reads. `cli` is absent where no option exists."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    source: ClassVar[str] = "accelerate/commands/launch.py"
    library: ClassVar[str] = "accelerate"
    prefix: ClassVar[str] = ""
    prefix_optional: ClassVar[bool] = False
    also: ClassVar[str] = ""

    config_file: str | None = key(None, "The accelerate file.", cli=option("config_file"))
    quiet: bool | None = key(
        None, "Exit without a traceback when the job fails.", cli=switch("quiet", default=None, short="-q")
    )
    module: bool | None = key(None, "The script is a module name.", cli=switch("module", default=None, short="-m"))
    no_python: bool | None = key(None, "The script is run without python.", cli=switch("no_python", default=None))
    debug: bool | None = key(
        None,
        "Check the shapes of every collective operation.",
        reads="truth",
        cli=switch("debug", default=None),
        env=[variable("ACCELERATE_DEBUG_MODE", when="true", value="true")],
    )

    multi_gpu: bool = key(False, "Data parallelism.", cli=switch("multi_gpu"))
    tpu: bool = key(False, "Run under torch_xla.", cli=switch("tpu"))
    use_cpu: bool = key(
        False,
        "Set by the file alone; read by the plain launcher alone.",
        reads="bool",
        env=[variable("ACCELERATE_USE_CPU", "simple", when="always")],
    )
    cpu: bool = key(
        False,
        "Run on the CPU: the plain launcher, whatever the file says.",
        reads="truth",
        cli=switch("cpu"),
        env=[variable("ACCELERATE_USE_CPU", "simple", when="true", value="True")],
    )

    mixed_precision: Literal["no", "fp16", "bf16", "fp8"] | None = key(
        "no",
        "Precision of forward and backward.",
        reads="str",
        ignore_case=True,
        cli=option("mixed_precision", choices=("no", "fp16", "bf16", "fp8")),
        env=[variable("ACCELERATE_MIXED_PRECISION", when="always", text="lower")],
    )
    num_processes: int | None = key(
        None,
        "Processes on all machines together.",
        unit="processes",
        reads="raw",
        cli=option("num_processes", "int"),
    )
    num_machines: int | None = key(None, "Machines.", unit="machines", reads="raw", cli=option("num_machines", "int"))
    num_cpu_threads_per_process: int | None = key(
        None,
        "Threads of each process; default: OMP_NUM_THREADS or 1.",
        unit="threads",
        cli=option("num_cpu_threads_per_process", "int"),
        env=[variable("OMP_NUM_THREADS", "simple", "multi_gpu", when="always")],
    )
    enable_cpu_affinity: bool = key(
        False,
        "Bind each process to the NUMA node of its device.",
        reads="truth",
        cli=switch("enable_cpu_affinity"),
        env=[variable("ACCELERATE_CPU_AFFINITY", when="true", value="1")],
    )

    use_deepspeed: bool = key(
        False,
        "Train with DeepSpeed.",
        cli=switch("use_deepspeed"),
        env=[variable("ACCELERATE_USE_DEEPSPEED", "deepspeed", when="true", value="true")],
    )
    use_fsdp: bool = key(
        False,
        "Train with FSDP.",
        cli=switch("use_fsdp"),
        env=[variable("ACCELERATE_USE_FSDP", "multi_gpu", when="true", value="true")],
    )
    use_parallelism_config: bool = key(
        False,
        "Build a device mesh.",
        cli=switch("use_parallelism_config"),
        env=[variable("ACCELERATE_USE_PARALLELISM_CONFIG", "multi_gpu", "deepspeed", when="true", value="true")],
    )
    use_megatron_lm: bool = key(
        False,
        "Train with Megatron-LM.",
        cli=switch("use_megatron_lm"),
        env=[variable("ACCELERATE_USE_MEGATRON_LM", "multi_gpu", when="true", value="true")],
    )

    gpu_ids: str | None = key(
        None,
        "Devices as text, `0,1` or `all`. The variable is another one on other accelerators than CUDA.",
        reads="raw",
        cli=option("gpu_ids"),
        env=[variable("CUDA_VISIBLE_DEVICES", needs={"gpu_ids": {"not": {"const": "all"}}})],
    )
    same_network: bool = key(
        False,
        "Name the main process by address and port instead of a rendezvous.",
        cli=switch("same_network"),
    )
    machine_rank: int | None = key(None, "Number of this machine.", reads="int", cli=option("machine_rank", "int"))
    main_process_ip: str | None = key(None, "Address of machine 0.", reads="str", cli=option("main_process_ip"))
    main_process_port: int | None = key(
        29500, "Port on machine 0; 0 picks a free one.", reads="raw", cli=option("main_process_port", "int")
    )
    tee: str = key("0", "Streams that go to the console and to files.", cli=option("tee", short="-t", default="0"))
    log_dir: str | None = key(None, "Folder of the log files.", cli=option("log_dir"))
    role: str = key("default", "Name of the workers.", cli=option("role", default="default"))
    rdzv_backend: str = key("static", "Rendezvous.", cli=option("rdzv_backend", default="static"))
    rdzv_conf: str = key("", "Settings of the rendezvous.", cli=option("rdzv_conf", default=""))
    max_restarts: int = key(
        0, "Restarts of the workers.", unit="restarts", cli=option("max_restarts", "int", default=0)
    )
    monitor_interval: float = key(
        0.1,
        "Time between looks at the workers.",
        unit="seconds",
        cli=option("monitor_interval", "float", default=0.1),
    )

    tpu_use_cluster: bool = key(
        False,
        "Launch on a TPU pod.",
        cli={**switch("tpu_cluster"), "off": "--no_tpu_cluster"},
    )
    tpu_use_sudo: bool = key(False, "Use sudo on the pod.", cli=switch("tpu_use_sudo"))
    tpu_name: str | None = key(None, "Name of the pod.")
    tpu_vm: list[str] | None = key(None, "Machines of the pod.")
    vm: list[str] | None = key(None, "Machines of the pod.", cli=option("vm", action="append"))
    env: list[str] | None = key(None, "Environment of the pod.", cli=option("env", action="append"))
    main_training_function: str | None = key(
        None, "Function that each TPU process runs.", cli=option("main_training_function")
    )
    downcast_bf16: bool = key(False, "On TPU, also cast double to bf16.", cli=switch("downcast_bf16"))

    aws_access_key_id: str | None = key(None, "SageMaker only.", cli=option("aws_access_key_id"))
    aws_secret_access_key: str | None = key(None, "SageMaker only.", cli=option("aws_secret_access_key"))
    training_script: str | None = key(None, "The script; positional.")
    training_script_args: object = key(None, "All that follows the script.")
