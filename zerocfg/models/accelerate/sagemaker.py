"""An accelerate file for Amazon SageMaker; `accelerate launch` 1.15.0 fails on every one of them."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.accelerate.dynamo import DynamoConfig
from zerocfg.models.base import Section, key


class SageMakerConfig(Section):
    """Chosen by any `compute_environment` but LOCAL_MACHINE."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "error"
    source: ClassVar[str] = "accelerate/commands/config/config_args.py"
    library: ClassVar[str] = "accelerate"
    known_as: ClassVar[str | None] = "sagemaker"

    compute_environment: Literal["AMAZON_SAGEMAKER"] = key("Where the job runs.")
    distributed_type: Literal["NO", "DATA_PARALLEL", "MODEL_PARALLEL", False] = key(
        "SageMaker's own kinds of parallelism."
    )
    # What the launcher makes of a file without the key: the class that was walked requires these three.
    mixed_precision: Literal["no", "fp16", "bf16", "fp8"] | None = key(
        "Precision of forward and backward.", default=None, reads="raw", ignore_case=True
    )
    use_cpu: bool | None = key("Train on the CPU.", default=False, reads="bool")
    debug: bool | None = key("Check the shapes of every collective operation.", default=False, reads="truth")
    ec2_instance_type: str = key("Instance type.")
    iam_role_name: str = key("Role that the job takes.")
    image_uri: str | None = key("Container image.")
    profile: str | None = key("AWS profile.")
    region: str = key("AWS region.")
    num_machines: int = key("Instances.", unit="machines", ge=1, reads="raw")
    gpu_ids: str = key("Devices.", reads="raw")
    base_job_name: str = key("First part of the job's name.")
    pytorch_version: str = key("PyTorch in the container.")
    transformers_version: str = key("transformers in the container.")
    py_version: str = key("Python in the container.")
    sagemaker_inputs_file: str | None = key("Tab separated file of input channels.")
    sagemaker_metrics_file: str | None = key("Tab separated file of metrics.")
    additional_args: dict[str, object] | None = key("Further arguments of the estimator.")
    dynamo_config: DynamoConfig | None = key("torch.compile.", default=DynamoConfig)
    enable_cpu_affinity: bool | None = key("Bind processes to NUMA nodes.")
