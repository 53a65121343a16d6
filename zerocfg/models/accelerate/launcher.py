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

    config_file: str | None = key("The accelerate file.", default=None, cli=option("config_file"))
    quiet: bool | None = key(
        "Exit without a traceback when the job fails.", default=None, cli=switch("quiet", default=None, short="-q")
    )
    module: bool | None = key(
        "The script is a module name.", default=None, cli=switch("module", default=None, short="-m")
    )
    no_python: bool | None = key(
        "The script is run without python.", default=None, cli=switch("no_python", default=None)
    )
    debug: bool | None = key(
        "Check the shapes of every collective operation.",
        default=None,
        reads="truth",
        cli=switch("debug", default=None),
        env=[variable("ACCELERATE_DEBUG_MODE", when="true", value="true")],
    )

    multi_gpu: bool = key("Data parallelism.", default=False, cli=switch("multi_gpu"))
    tpu: bool = key("Run under torch_xla.", default=False, cli=switch("tpu"))
    use_cpu: bool = key(
        "Set by the file alone; read by the plain launcher alone.",
        default=False,
        reads="bool",
        env=[variable("ACCELERATE_USE_CPU", "simple", when="always")],
    )
    cpu: bool = key(
        "Run on the CPU: the plain launcher, whatever the file says.",
        default=False,
        reads="truth",
        cli=switch("cpu"),
        env=[variable("ACCELERATE_USE_CPU", "simple", when="true", value="True")],
    )

    mixed_precision: Literal["no", "fp16", "bf16", "fp8"] | None = key(
        "Precision of forward and backward.",
        default="no",
        reads="str",
        ignore_case=True,
        cli=option("mixed_precision", choices=("no", "fp16", "bf16", "fp8")),
        env=[variable("ACCELERATE_MIXED_PRECISION", when="always", text="lower")],
    )
    num_processes: int | None = key(
        "Processes on all machines together.",
        default=None,
        unit="processes",
        reads="raw",
        cli=option("num_processes", "int"),
    )
    num_machines: int | None = key(
        "Machines.", default=None, unit="machines", reads="raw", cli=option("num_machines", "int")
    )
    num_cpu_threads_per_process: int | None = key(
        "Threads of each process; default: OMP_NUM_THREADS or 1.",
        default=None,
        unit="threads",
        cli=option("num_cpu_threads_per_process", "int"),
        env=[variable("OMP_NUM_THREADS", "simple", "multi_gpu", when="always")],
    )
    enable_cpu_affinity: bool = key(
        "Bind each process to the NUMA node of its device.",
        default=False,
        reads="truth",
        cli=switch("enable_cpu_affinity"),
        env=[variable("ACCELERATE_CPU_AFFINITY", when="true", value="1")],
    )

    use_deepspeed: bool = key(
        "Train with DeepSpeed.",
        default=False,
        cli=switch("use_deepspeed"),
        env=[variable("ACCELERATE_USE_DEEPSPEED", "deepspeed", when="true", value="true")],
    )
    use_fsdp: bool = key(
        "Train with FSDP.",
        default=False,
        cli=switch("use_fsdp"),
        env=[variable("ACCELERATE_USE_FSDP", "multi_gpu", when="true", value="true")],
    )
    use_parallelism_config: bool = key(
        "Build a device mesh.",
        default=False,
        cli=switch("use_parallelism_config"),
        env=[variable("ACCELERATE_USE_PARALLELISM_CONFIG", "multi_gpu", "deepspeed", when="true", value="true")],
    )
    use_megatron_lm: bool = key(
        "Train with Megatron-LM.",
        default=False,
        cli=switch("use_megatron_lm"),
        env=[variable("ACCELERATE_USE_MEGATRON_LM", "multi_gpu", when="true", value="true")],
    )

    gpu_ids: str | None = key(
        "Devices as text, `0,1` or `all`. The variable is another one on other accelerators than CUDA.",
        default=None,
        reads="raw",
        cli=option("gpu_ids"),
        env=[variable("CUDA_VISIBLE_DEVICES", needs={"gpu_ids": {"not": {"const": "all"}}})],
    )
    same_network: bool = key(
        "Name the main process by address and port instead of a rendezvous.", default=False, cli=switch("same_network")
    )
    machine_rank: int | None = key(
        "Number of this machine.", default=None, reads="int", cli=option("machine_rank", "int")
    )
    main_process_ip: str | None = key("Address of machine 0.", default=None, reads="str", cli=option("main_process_ip"))
    main_process_port: int | None = key(
        "Port on machine 0; 0 picks a free one.", default=29500, reads="raw", cli=option("main_process_port", "int")
    )
    tee: str = key(
        "Streams that go to the console and to files.", default="0", cli=option("tee", short="-t", default="0")
    )
    log_dir: str | None = key("Folder of the log files.", default=None, cli=option("log_dir"))
    role: str = key("Name of the workers.", default="default", cli=option("role", default="default"))
    rdzv_backend: str = key("Rendezvous.", default="static", cli=option("rdzv_backend", default="static"))
    rdzv_conf: str = key("Settings of the rendezvous.", default="", cli=option("rdzv_conf", default=""))
    max_restarts: int = key(
        "Restarts of the workers.", default=0, unit="restarts", cli=option("max_restarts", "int", default=0)
    )
    monitor_interval: float = key(
        "Time between looks at the workers.",
        default=0.1,
        unit="seconds",
        cli=option("monitor_interval", "float", default=0.1),
    )

    tpu_use_cluster: bool = key(
        "Launch on a TPU pod.", default=False, cli={**switch("tpu_cluster"), "off": "--no_tpu_cluster"}
    )
    tpu_use_sudo: bool = key("Use sudo on the pod.", default=False, cli=switch("tpu_use_sudo"))
    tpu_name: str | None = key("Name of the pod.", default=None)
    tpu_vm: list[str] | None = key("Machines of the pod.", default=None)
    vm: list[str] | None = key("Machines of the pod.", default=None, cli=option("vm", action="append"))
    env: list[str] | None = key("Environment of the pod.", default=None, cli=option("env", action="append"))
    main_training_function: str | None = key(
        "Function that each TPU process runs.", default=None, cli=option("main_training_function")
    )
    downcast_bf16: bool = key("On TPU, also cast double to bf16.", default=False, cli=switch("downcast_bf16"))

    aws_access_key_id: str | None = key("SageMaker only.", default=None, cli=option("aws_access_key_id"))
    aws_secret_access_key: str | None = key("SageMaker only.", default=None, cli=option("aws_secret_access_key"))
    training_script: str | None = key("The script; positional.", default=None)
    training_script_args: object = key("All that follows the script.", default=None)
