"""The top level of a DeepSpeed JSON. It is read with ``dict.get``: unknown keys are ignored in silence."""

from __future__ import annotations

from typing import Annotated, Literal

from zerocfg.models.base import key
from zerocfg.models.deepspeed import features, monitor
from zerocfg.models.deepspeed.data import DataEfficiency
from zerocfg.models.deepspeed.optimizer import Optimizer
from zerocfg.models.deepspeed.precision import Bf16, DataTypes, Fp16, TorchAutocast
from zerocfg.models.deepspeed.scheduler import Scheduler
from zerocfg.models.deepspeed.section import Auto, CommDtype, Loose, Positive, Removed, any_case, filled
from zerocfg.models.deepspeed.zero import ZeroOptimization

LogLevel = Annotated[
    Literal["debug", "info", "warning", "error", "critical"],
    any_case("debug", "info", "warning", "error", "critical"),
]


class DeepSpeedConfig(Loose):
    """Configuration of deepspeed.initialize."""

    source = "deepspeed/runtime/config.py"
    known_as = ""

    train_batch_size: Positive | Auto | None = key(
        "Samples of one optimizer step over all ranks: micro batch * accumulation * data-parallel ranks.",
        unit="samples",
        auto=filled(
            trainer="world size * per_device_train_batch_size * gradient_accumulation_steps",
            accelerate="micro batch * gradient accumulation steps * processes / sequence-parallel size",
        ),
        auto_raw="error",
    )
    train_micro_batch_size_per_gpu: Positive | Auto | None = key(
        "Samples of one forward pass on one rank.",
        unit="samples",
        auto=filled(trainer="per_device_train_batch_size", accelerate="smallest batch_size of the data loaders"),
        auto_raw="error",
    )
    gradient_accumulation_steps: Positive | Auto | None = key(
        "Forward passes of one optimizer step; absent and null: worked out from the batch sizes, else 1.",
        unit="micro batches",
        auto=filled(trainer="gradient_accumulation_steps", accelerate="gradient_accumulation_steps"),
        auto_raw="error",
    )
    managed_gradient_accumulation: bool = key(
        "The engine finds the accumulation boundary; false: the caller sets it.", since="0.19.4"
    )
    steps_per_print: int | None = key(
        "Steps between two progress lines; 0 divides by zero at the first step.", unit="steps"
    )
    gradient_clipping: float | Auto = key(
        "Largest global gradient norm; 0 is no clipping.",
        auto=filled(trainer="max_grad_norm", accelerate="1.0"),
        default_before={"0.19.3": 0.0},
    )
    communication_data_type: CommDtype | None = key(
        "dtype of gradient collectives; null: as fp16 / bf16 says.", ignore_case=True, auto_raw="error"
    )
    seq_parallel_communication_data_type: CommDtype | None = key(
        "The same with sequence parallelism.", ignore_case=True, auto_raw="error"
    )
    prescale_gradients: bool = key("Divide gradients before instead of after the reduction.")
    gradient_predivide_factor: float = key("Share of that division that is done before.")
    gradient_allreduce_op: Annotated[Literal["mean", "sum"], any_case("mean", "sum")] = key(
        "How gradients of ranks are combined; sum not with stage 3.", ignore_case=True, auto_raw="error"
    )
    zero_allow_untested_optimizer: bool = key("Accept any optimizer with ZeRO.")
    zero_force_ds_cpu_optimizer: bool = key("With optimizer offload insist on DeepSpeed's CPU optimizers.")
    wall_clock_breakdown: bool = key("Time forward, backward and step.", auto_raw="error")
    memory_breakdown: bool = key("Print memory use.")
    dump_state: bool = key("Print the engine's state at start-up.")
    disable_allgather: bool = key("No effect.", inert="parsed and never used")
    dataloader_drop_last: bool = key("Drop the last incomplete batch.")
    use_data_before_expert_parallelism: bool = key("Order of ranks: data before expert parallel.")
    disable_python_gc: bool = key("Turn Python's cyclic garbage collector off.")
    vocabulary_size: int | None = key("Only checked: warns when it is not a multiple of 8.", auto_raw="error")
    log_level: LogLevel | None = key("Level of DeepSpeed's logger.", ignore_case=True)
    # No part of the config object, which is what was walked: deepspeed.initialize and the old ZeRO format read them.
    sequence_parallel_size: Positive = key(
        "Ranks of a sequence-parallel group; needs data_parallel_size beside it.",
        default=None,
        unit="ranks",
        auto_raw="error",
    )
    data_parallel_size: Positive = key(
        "Data-parallel ranks; read only with sequence_parallel_size.",
        default=None,
        unit="ranks",
        source="deepspeed/__init__.py",
    )
    allgather_size: int = key(
        "allgather_bucket_size of the old format, where zero_optimization is a bool.",
        default=500_000_000,
        unit="elements",
        deprecated="write zero_optimization.allgather_bucket_size",
        renamed_to="zero_optimization.allgather_bucket_size",
        source="deepspeed/runtime/zero/config.py",
    )

    zero_optimization: ZeroOptimization | bool = key(
        "ZeRO. A bool is the old format: true is stage 1.", default=ZeroOptimization, auto_raw="error"
    )
    fp16: Fp16 = key("fp16 training.", default=Fp16, auto_raw="error")
    bf16: Bf16 | None = key("bf16 training.", default=Bf16, aliases=("bfloat16",), auto_raw="error")
    torch_autocast: TorchAutocast = key("torch.autocast.", default=TorchAutocast, since="0.17.2", auto_raw="error")
    data_types: DataTypes = key("dtypes of gradients, parameters, buffers.", default=DataTypes, auto_raw="error")
    optimizer: Optimizer = key("Optimizer.", default=Optimizer, auto_raw="error")
    scheduler: Scheduler = key("Learning-rate schedule.", default=Scheduler, auto_raw="error")
    activation_checkpointing: features.ActivationCheckpointing = key(
        "Activation checkpointing.", default=features.ActivationCheckpointing, auto_raw="error"
    )
    aio: features.Aio | None = key("Asynchronous file I/O.", auto_raw="error")
    checkpoint: features.Checkpoint = key("Checkpoints.", default=features.Checkpoint, auto_raw="error")
    comms_logger: monitor.CommsLogger = key("Log collectives.", default=monitor.CommsLogger, auto_raw="error")
    flops_profiler: monitor.FlopsProfiler = key("Profiler.", default=monitor.FlopsProfiler, auto_raw="error")
    tensorboard: monitor.TensorBoard = key("TensorBoard.", default=monitor.TensorBoard, auto_raw="default")
    wandb: monitor.Wandb = key("Weights & Biases.", default=monitor.Wandb, auto_raw="default")
    csv_monitor: monitor.CsvMonitor = key("CSV files.", default=monitor.CsvMonitor, auto_raw="default")
    comet: monitor.Comet = key("Comet.", default=monitor.Comet, auto_raw="default")
    timers: monitor.Timers = key("Timers.", default=monitor.Timers, auto_raw="default")
    data_efficiency: DataEfficiency = key("Data efficiency library.", default=DataEfficiency, auto_raw="error")
    compile: features.Compile = key("DeepCompile.", default=features.Compile, auto_raw="error")
    tensor_parallel: features.TensorParallel = key(
        "Automatic tensor parallelism.", default=features.TensorParallel, auto_raw="error"
    )
    pipeline: features.Pipeline = key("Pipeline engine.", default=features.Pipeline, auto_raw="error")
    expert_parallel: features.ExpertParallel | None = key("Automatic expert parallelism.", auto_raw="error")
    hybrid_engine: features.HybridEngine = key("Hybrid engine.", default=features.HybridEngine, auto_raw="error")
    weight_quantization: features.WeightQuantization = key("Weight quantisation for inference.", auto_raw="error")
    autotuning: features.Autotuning = key("Autotuner.", default=features.Autotuning, auto_raw="error")
    datastates_ckpt: dict[str, object] | Literal[False] = key(
        "DataStates checkpoints. Every value but false turns them on, {} and null too.",
        source="deepspeed/datastates/config.py",
    )

    nebula: Removed = key(removed="Nebula checkpointing was removed from DeepSpeed")
    compression_training: Removed = key(removed="the compression library was removed from DeepSpeed")
    amp: Removed = key(removed="Apex amp was removed from DeepSpeed; use fp16, bf16 or torch_autocast")
    quantize_training: Removed = key(removed="Mixture-of-Quantization was removed from DeepSpeed")
    sparse_gradients: Removed = key(
        removed="removed from DeepSpeed; gradients of nn.Embedding(sparse=True) need no key"
    )
    eigenvalue: Removed = key(removed="Mixture-of-Quantization was removed from DeepSpeed")
    sparse_attention: Removed = key(removed="sparse attention was removed from DeepSpeed")
    elasticity: Removed = key(removed="elastic training was removed from DeepSpeed; set the batch sizes")
    graph_harvesting: Removed = key(removed="graph harvesting was removed from DeepSpeed")
    curriculum_learning: Removed = key(
        removed="removed from DeepSpeed; use data_efficiency.data_sampling.curriculum_learning"
    )
    progressive_layer_drop: Removed = key(removed="progressive layer dropping was removed from DeepSpeed")
