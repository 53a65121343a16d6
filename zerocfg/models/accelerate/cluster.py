"""An accelerate file for an own machine or cluster (`compute_environment: LOCAL_MACHINE`)."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.accelerate.deepspeed import DeepSpeedConfig
from zerocfg.models.accelerate.dynamo import DynamoConfig
from zerocfg.models.accelerate.fp8 import Fp8Config
from zerocfg.models.accelerate.fsdp import FsdpConfig
from zerocfg.models.accelerate.megatron import MegatronLmConfig
from zerocfg.models.accelerate.mpirun import MpirunConfig
from zerocfg.models.accelerate.parallelism import ParallelismConfig
from zerocfg.models.base import Section, key

# Unquoted, YAML's NO is False: accelerate keeps it and launches a single process.
DistributedType = Literal[
    "NO",
    "MULTI_CPU",
    "MULTI_GPU",
    "MULTI_NPU",
    "MULTI_MLU",
    "MULTI_SDAA",
    "MULTI_MUSA",
    "MULTI_XPU",
    "MULTI_HPU",
    "MULTI_NEURON",
    "DEEPSPEED",
    "FSDP",
    "XLA",
    "MEGATRON_LM",
    False,
]

_SHADOWED = (
    "the launcher's option has a default, which always wins over this key; give it on the command line or "
    "inside a sub-mapping"
)


class ClusterConfig(Section):
    """Each key that is also a launcher argument fills it only when the command line left it None."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "error"
    source: ClassVar[str] = "accelerate/commands/config/config_args.py"
    library: ClassVar[str] = "accelerate"
    known_as: ClassVar[str | None] = "cluster"

    # A default that is written here is what the launcher makes of a file without the key: the class that was walked
    # requires the key, or says None.
    compute_environment: Literal["LOCAL_MACHINE"] = key(
        "Any other value makes it a SageMaker file, whose keys differ.", default="LOCAL_MACHINE"
    )
    distributed_type: DistributedType = key("What launches and drives the job; the only required key.")
    mixed_precision: Literal["no", "fp16", "bf16", "fp8"] | None = key(
        "Precision of forward and backward. Write 'no' in quotes: the bare word is False, which breaks the launch.",
        default=None,
        reads="raw",
        ignore_case=True,
        setting={"bf16": "bf16.enabled", "fp16": "fp16.enabled"},
    )
    use_cpu: bool | None = key(
        "Train on the CPU; read only with distributed_type NO or MULTI_CPU.", default=False, reads="bool"
    )
    debug: bool | None = key("Check the shapes of every collective operation (slow).", default=False, reads="truth")
    num_processes: int | None = key(
        "Processes on all machines together. Needed here or on the command line, but for distributed_type NO.",
        unit="processes",
        ge=-1,
        reads="int",
        elsewhere={"nproc_per_node": "machine", "num_gpus": "machine", "num_accelerators": "machine"},
    )
    machine_rank: int | None = key(
        "Number of this machine, counted from 0.", ge=0, reads="int", elsewhere={"node_rank": "same"}
    )
    num_machines: int | None = key(
        "Machines.", unit="machines", ge=1, reads="raw", elsewhere={"nnodes": "same", "num_nodes": "same"}
    )
    gpu_ids: str | None = key("Devices as text: `all` or numbers separated by commas.", default="all", reads="raw")
    main_process_ip: str | None = key(
        "Address of machine 0; needed with several machines.", reads="str", elsewhere={"master_addr": "same"}
    )
    main_process_port: int | None = key(
        "Port on machine 0; 0 picks a free one, on each machine its own.",
        default=29500,
        ge=0,
        le=65535,
        reads="raw",
        elsewhere={"master_port": "same"},
    )
    rdzv_backend: object = key("Rendezvous of torchrun.", inert=_SHADOWED)
    same_network: object = key("All machines are in one network.", reads="bool", inert=_SHADOWED)
    enable_cpu_affinity: object = key("Bind processes to NUMA nodes.", reads="bool", inert=_SHADOWED)
    main_training_function: str | None = key("Function that each process runs; read with distributed_type XLA alone.")
    fp8_config: Fp8Config | None = key("8 bit training.", default=Fp8Config)
    deepspeed_config: DeepSpeedConfig | None = key(
        "DeepSpeed; exported only with distributed_type DEEPSPEED.", default=DeepSpeedConfig
    )
    fsdp_config: FsdpConfig | None = key("FSDP; exported only with distributed_type FSDP.", default=FsdpConfig)
    parallelism_config: ParallelismConfig | None = key("Device mesh.", default=ParallelismConfig)
    megatron_lm_config: MegatronLmConfig | None = key(
        "Megatron-LM; exported only with distributed_type MEGATRON_LM.", default=MegatronLmConfig
    )
    mpirun_config: MpirunConfig | None = key("MPI for several CPU processes.", default=MpirunConfig)
    dynamo_config: DynamoConfig | None = key("torch.compile.", default=DynamoConfig)
    downcast_bf16: object = key(
        "On TPU, also cast double to bf16. Files often hold the text no.", reads="bool", inert=_SHADOWED
    )
    tpu_name: str | None = key("Name of a TPU pod.")
    tpu_zone: str | None = key("Zone of a TPU pod; read by `accelerate tpu-config` alone.")
    tpu_use_cluster: bool | None = key("Launch on a TPU pod; read with distributed_type XLA alone.", reads="truth")
    tpu_use_sudo: object = key("Use sudo on the pod.", reads="bool", inert=_SHADOWED)
    command_file: str | None = key("Commands for a pod, one a line; read by `accelerate tpu-config` alone.")
    commands: list[str] | None = key("Commands for a pod; read by `accelerate tpu-config` alone.")
    tpu_vm: list[str] | None = key("Machines of a pod.")
    tpu_env: list[str] | None = key("Environment of a pod.")

    fp16: bool | None = key(
        "Read only when mixed_precision is absent.",
        default=None,
        reads="truth",
        deprecated="converted to mixed_precision: fp16; write that instead",
        renamed_to="mixed_precision",
    )
    dynamo_backend: str | None = key(
        "Replaces all of dynamo_config.",
        default=None,
        deprecated="converted to dynamo_config.dynamo_backend; write that instead",
        renamed_to="dynamo_config.dynamo_backend",
    )
    use_xpu: object = key(removed="unknown to accelerate 1.15, which finds Intel devices by itself")
    ipex_config: object = key(removed="unknown to accelerate 1.15; the IPEX integration is gone")
    rdzv_endpoint: object = key(removed="never was a key; the endpoint is main_process_ip and main_process_port")
