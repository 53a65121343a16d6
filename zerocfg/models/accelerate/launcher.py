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
from zerocfg.models.accelerate.facts import option, variable
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
    known_as: ClassVar[str | None] = "option"
    prefix: ClassVar[str] = ""
    prefix_optional: ClassVar[bool] = False
    also: ClassVar[str] = ""

    # The parser's default is walked; one that is written here is what the launcher puts in the place of None later.
    config_file: str | None = key("The accelerate file.", cli=option("config_file"))
    quiet: bool | None = key("Exit without a traceback when the job fails.", cli=option("quiet"))
    module: bool | None = key("The script is a module name.", cli=option("module"))
    no_python: bool | None = key("The script is run without python.", cli=option("no_python"))
    debug: bool | None = key(
        "Check the shapes of every collective operation.",
        reads="truth",
        cli=option("debug"),
        env=[variable("ACCELERATE_DEBUG_MODE", when="true", value="true")],
    )

    multi_gpu: bool = key("Data parallelism.", cli=option("multi_gpu"))
    tpu: bool = key("Run under torch_xla.", cli=option("tpu"))
    use_cpu: bool = key(
        "Set by the file alone; read by the plain launcher alone.",
        default=False,
        reads="bool",
        env=[variable("ACCELERATE_USE_CPU", "simple", when="always")],
    )
    cpu: bool = key(
        "Run on the CPU: the plain launcher, whatever the file says.",
        reads="truth",
        cli=option("cpu"),
        env=[variable("ACCELERATE_USE_CPU", "simple", when="true", value="True")],
    )

    mixed_precision: Literal["no", "fp16", "bf16", "fp8"] | None = key(
        "Precision of forward and backward.",
        default="no",
        reads="str",
        ignore_case=True,
        cli=option("mixed_precision"),
        env=[variable("ACCELERATE_MIXED_PRECISION", when="always", text="lower")],
    )
    num_processes: int | None = key(
        "Processes on all machines together.", unit="processes", reads="raw", cli=option("num_processes")
    )
    num_machines: int | None = key("Machines.", unit="machines", reads="raw", cli=option("num_machines"))
    num_cpu_threads_per_process: int | None = key(
        "Threads of each process; default: OMP_NUM_THREADS or 1.",
        unit="threads",
        cli=option("num_cpu_threads_per_process"),
        env=[variable("OMP_NUM_THREADS", "simple", "multi_gpu", when="always")],
    )
    enable_cpu_affinity: bool = key(
        "Bind each process to the NUMA node of its device.",
        reads="truth",
        cli=option("enable_cpu_affinity"),
        env=[variable("ACCELERATE_CPU_AFFINITY", when="true", value="1")],
    )

    use_deepspeed: bool = key(
        "Train with DeepSpeed.",
        cli=option("use_deepspeed"),
        env=[variable("ACCELERATE_USE_DEEPSPEED", "deepspeed", when="true", value="true")],
    )
    use_fsdp: bool = key(
        "Train with FSDP.",
        cli=option("use_fsdp"),
        env=[variable("ACCELERATE_USE_FSDP", "multi_gpu", when="true", value="true")],
    )
    use_parallelism_config: bool = key(
        "Build a device mesh.",
        cli=option("use_parallelism_config"),
        env=[variable("ACCELERATE_USE_PARALLELISM_CONFIG", "multi_gpu", "deepspeed", when="true", value="true")],
    )
    use_megatron_lm: bool = key(
        "Train with Megatron-LM.",
        cli=option("use_megatron_lm"),
        env=[variable("ACCELERATE_USE_MEGATRON_LM", "multi_gpu", when="true", value="true")],
    )

    gpu_ids: str | None = key(
        "Devices as text, `0,1` or `all`. The variable is another one on other accelerators than CUDA.",
        reads="raw",
        cli=option("gpu_ids"),
        env=[variable("CUDA_VISIBLE_DEVICES", needs={"gpu_ids": {"not": {"const": "all"}}})],
    )
    same_network: bool = key(
        "Name the main process by address and port instead of a rendezvous.", cli=option("same_network")
    )
    machine_rank: int | None = key("Number of this machine.", reads="int", cli=option("machine_rank"))
    main_process_ip: str | None = key("Address of machine 0.", reads="str", cli=option("main_process_ip"))
    main_process_port: int | None = key(
        "Port on machine 0; 0 picks a free one.", default=29500, reads="raw", cli=option("main_process_port")
    )
    tee: str = key("Streams that go to the console and to files.", cli=option("tee"))
    log_dir: str | None = key("Folder of the log files.", cli=option("log_dir"))
    role: str = key("Name of the workers.", cli=option("role"))
    rdzv_backend: str = key("Rendezvous.", cli=option("rdzv_backend"))
    rdzv_conf: str = key("Settings of the rendezvous.", cli=option("rdzv_conf"))
    max_restarts: int = key("Restarts of the workers.", unit="restarts", cli=option("max_restarts"))
    monitor_interval: float = key("Time between looks at the workers.", unit="seconds", cli=option("monitor_interval"))

    # Two options set it, of which the walk keeps one.
    tpu_use_cluster: bool = key(
        "Launch on a TPU pod.",
        default=False,
        cli={"flags": ["--tpu_cluster"], "action": "store_true", "default": False, "off": "--no_tpu_cluster"},
    )
    tpu_use_sudo: bool = key("Use sudo on the pod.", cli=option("tpu_use_sudo"))
    tpu_name: str | None = key("Name of the pod.", default=None)
    tpu_vm: list[str] | None = key("Machines of the pod.", default=None)
    vm: list[str] | None = key("Machines of the pod.", cli=option("vm"))
    env: list[str] | None = key("Environment of the pod.", cli=option("env"))
    main_training_function: str | None = key(
        "Function that each TPU process runs.", cli=option("main_training_function")
    )
    downcast_bf16: bool = key("On TPU, also cast double to bf16.", cli=option("downcast_bf16"))

    aws_access_key_id: str | None = key("SageMaker only.", cli=option("aws_access_key_id"))
    aws_secret_access_key: str | None = key("SageMaker only.", cli=option("aws_secret_access_key"))
    training_script: str | None = key("The script; positional.", default=None)
    training_script_args: object = key("All that follows the script.", default=None)
