"""Engine features: activation checkpointing, I/O, checkpoints, compilation, parallelism."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import MinLen

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Auto, Loose, Positive, Strict, any_case


class ActivationCheckpointing(Loose):
    """Options of deepspeed.checkpointing; they act only on models that call its `configure` (not HF ones)."""

    source = "deepspeed/runtime/activation_checkpointing/config.py"
    known_as = "activation_checkpointing"

    partition_activations: bool = key("Share the kept activations among model-parallel ranks.")
    number_checkpoints: int | None = key("Number of checkpoints; needed for contiguous memory.")
    contiguous_memory_optimization: bool = key("Keep activations in one buffer; needs partition_activations.")
    cpu_checkpointing: bool = key("Move kept activations to the CPU; needs partition_activations.")
    synchronize_checkpoint_boundary: bool = key("Wait for the device at each checkpoint.")
    profile: bool = key("Time each checkpoint.")


class Aio(Loose):
    """Asynchronous file I/O for NVMe offload. Optional: the defaults hold without the section."""

    null = "absent"
    source = "deepspeed/runtime/swap_tensor/aio_config.py"
    known_as = "aio"

    block_size: int = key("Size of one request.", unit="bytes")
    queue_depth: int = key("Requests in flight.", unit="requests")
    intra_op_parallelism: int = key("Threads for one read or write; `thread_count` is not read.", unit="threads")
    single_submit: bool = key("Submit requests one by one.")
    overlap_events: bool = key("Submit while earlier requests complete.")
    use_gds: bool = key("GPUDirect Storage; CUDA only.")


class ParallelWrite(Loose):
    """Who writes the model part of a checkpoint."""

    source = "deepspeed/runtime/config.py"
    known_as = "checkpoint.parallel_write"

    pipeline_stage: bool = key("Spread the layers over the data-parallel ranks of a pipeline stage.", auto_raw="error")


class CheckpointWriter(Loose):
    """Fast checkpoint writer; needs the DeepSpeed launcher."""

    null = "absent"
    source = "deepspeed/runtime/model_checkpointing/config.py"
    known_as = "checkpoint.writer"

    # DeepSpeed compares in upper case; here a word is in the case in which its documents have it.
    type: Annotated[Literal["mock", "python", "fast"], any_case("mock", "python", "fast")] = key(
        "Kind of writer.", default="fast", ignore_case=True, auto_raw="error"
    )
    io_buffer_size: int = key("Size of the buffer.", unit="bytes")
    io_buffer_double: bool = key("Use two buffers.")
    show_statistics: bool = key("Print write statistics.")
    data_parallel: (
        Annotated[Literal["replica", "socket", "machine"], any_case("replica", "socket", "machine")] | None
    ) = key("Which ranks write in parallel.", ignore_case=True, auto_raw="error")
    decoupled: bool = key("Write in a process beside training.")
    io_multiplier: int = key("Writers per rank.")


class Checkpoint(Loose):
    """How checkpoints are written and read."""

    source = "deepspeed/runtime/model_checkpointing/config.py"
    known_as = "checkpoint"

    # As CheckpointWriter.type.
    tag_validation: Annotated[Literal["Ignore", "Warn", "Fail"], any_case("Ignore", "Warn", "Fail")] = key(
        "What happens when ranks save under different tags.", default="Warn", ignore_case=True, auto_raw="error"
    )
    load_universal: bool = key("Load a universal checkpoint; an ordinary one then fails to load.")
    use_node_local_storage: bool = key("Each node writes to its own disk. The Trainer sets it from save_on_each_node.")
    parallel_write: ParallelWrite = key("Who writes the model part.", default=ParallelWrite, auto_raw="error")
    checkpoint_serialization: bool = key("Serialise the way torch.save does.")
    writer: CheckpointWriter | None = key("Fast checkpoint writer.", auto_raw="error")


class Compile(Strict):
    """DeepCompile."""

    source = "deepspeed/compile/config.py"
    known_as = "compile"

    deepcompile: bool = key("Compile forward and backward with ZeRO's collectives.")
    autoep_non_moe: bool = key("Compile the parents of AutoEP layers, not the layers.")
    free_activation: bool = key("Free activations early.")
    free_activation_threshold: int = key("Smallest activation to free early.", unit="bytes")
    offload_activation: bool = key("Keep activations in host memory between forward and backward.")
    offload_activation_pin_memory: bool = key("Pin the host copies of activations.")
    offload_opt_states: bool = key("Keep optimizer states in host memory between steps.")
    double_buffer: bool = key("Use two buffers.")
    symmetric_memory: bool = key("Use symmetric memory.")
    debug_log: bool = key("Dump graphs.")
    offload_parameters: bool = key("Offload parameters; turned on when both offload sections have device cpu.")
    sync_before_reduce: bool = key("Wait before each reduce.")
    sync_after_reduce: bool = key("Wait after each reduce.")
    sync_before_allgather: bool = key("Wait before each all-gather.")
    sync_after_allgather: bool = key("Wait after each all-gather.")
    keep_int_input_tensors: bool = key("Keep the values of integer inputs.")
    keep_all_input_tensors: bool = key("Keep the values of every input.")
    passes: list[Literal["z1", "z3", "autosp", "autotp"]] | None = key("Graph passes to run.")


class TpGroup(Strict):
    """Size of the tensor-parallel group (older spelling; autotp_size is what the engine reads first)."""

    source = "deepspeed/runtime/tensor_parallel/config.py"
    known_as = "tensor_parallel.tp"

    tp_size: int = key("Ranks of a tensor-parallel group.", unit="ranks")
    tp_grain_size: int = key("Granularity of uneven shards; not active in training.")
    mpu: object = key("A model-parallel unit: an object, set by programs only.")
    tp_group: object = key("A process group: an object, set by programs only.")


class TensorParallel(Strict):
    """Automatic tensor parallelism (AutoTP) for training."""

    source = "deepspeed/runtime/tensor_parallel/config.py"
    known_as = "tensor_parallel"

    dtype: object = key(
        "A torch.dtype object, set by programs only: no value that JSON can hold is accepted.",
        default=None,
        facts={"never": "is not the torch.dtype object that is taken here; no file can hold one"},
    )
    autotp_size: int = key("Ranks of a tensor-parallel group; 0 is off.", unit="ranks")
    tp_overlap_comm: bool = key("Overlap all-reduce with computation.")
    vocab_parallel_lm_head: bool | None = key("Shard the output layer; null: as the model's plan says.")
    vocab_parallel_ce_backend: Literal["torch", "liger"] = key("Cross entropy over a sharded vocabulary.")
    tp: TpGroup = key("The tensor-parallel group.", default=TpGroup, aliases=("tensor_parallel",))
    injection_policy_tuple: list[object] | None = key("Names of the layers whose output is reduced.")
    partition_config: dict[str, object] | None = key("Rules that say how each layer is split.")
    preset_model: str | None = key("Built-in split rules of a model family.", examples=["llama", "qwen2", "mixtral"])
    keep_module_on_host: bool = key("Load weights to the host first.")
    kernel_inject: bool = key("Inject inference kernels.", aliases=("replace_with_kernel_inject",))


class Pipeline(Loose):
    """Pipeline engine."""

    source = "deepspeed/runtime/config.py"

    # The walk stops at the section: it is a dict with these defaults.
    stages: int | Auto = key(
        "Number of stages; not used by the engine.", default="auto", inert="set but read by nobody"
    )
    partition: str = key(
        "How layers are split; not used by the engine.", default="best", inert="set but read by nobody"
    )
    seed_layers: bool = key("Seed each layer; not used by the engine.", default=False, inert="set but read by nobody")
    activation_checkpoint_interval: int = key(
        "Layers between two activation checkpoints; 0 is none.", default=0, auto_raw="error"
    )
    pipe_partitioned: bool = key(
        "Shard activations sent between stages over tensor-parallel ranks.", default=True, auto_raw="error"
    )
    grad_partitioned: bool = key(
        "Shard gradients sent between stages over tensor-parallel ranks.", default=True, auto_raw="error"
    )
    use_reentrant: bool | None = key(
        "Re-entrant activation checkpointing; absent and null: true.",
        default=None,
        source="deepspeed/runtime/pipe/engine.py",
    )


class HybridEngine(Strict):
    """One engine for training and generation (RLHF)."""

    source = "deepspeed/runtime/config.py"
    known_as = "hybrid_engine"

    enabled: bool = key("Use the hybrid engine.")
    max_out_tokens: Positive = key("Longest generated sequence.", unit="tokens")
    inference_tp_size: int = key("Tensor-parallel ranks for generation.", unit="ranks")
    release_inference_cache: bool = key("Free the KV cache after generation.")
    pin_parameters: bool = key("Keep gathered parameters during generation.")
    tp_gather_partition_size: int = key("Layers gathered together.")
    enable_cuda_graph: bool = key("Generate with CUDA graphs.")


class WeightQuantization(Strict):
    """Weight quantisation for inference with ZeRO."""

    source = "deepspeed/inference/config.py"
    known_as = "weight_quantization"

    enabled: bool = key("Quantise.")
    num_bits: int = key("Bits of one weight.", unit="bits")
    q_type: Literal["symmetric", "asymmetric"] = key("Kind of quantisation.")
    q_groups: int = key("Groups with a scale of their own.")
    quantized_initialization: dict[str, object] = key("Quantise weights while the model is built.")
    post_init_quant: dict[str, object] = key("Quantise weights after the model is built.")


class ModelInfo(Loose):
    """What the autotuner is told about the model."""

    null = "absent"
    source = "deepspeed/autotuning/config.py"
    known_as = "autotuning.model_info"

    profile: bool = key("Measure the model first.")
    num_params: int | None = key("Parameters of the model.", unit="elements")
    hidden_size: int | None = key("Hidden size.")
    num_layers: int | None = key("Number of layers.")


class Autotuning(Loose):
    """The autotuner (`deepspeed --autotuning`)."""

    source = "deepspeed/autotuning/config.py"
    known_as = "autotuning"

    enabled: bool = key("Tune.")
    fast: bool = key("Tune only ZeRO stage and micro batch.")
    results_dir: Annotated[str, MinLen(1)] = key("Directory of results.")
    exps_dir: Annotated[str, MinLen(1)] = key("Directory of experiments.")
    overwrite: bool = key("Replace earlier results.")
    start_profile_step: int = key("First measured step.", unit="steps")
    end_profile_step: int = key("Last measured step.", unit="steps")
    metric: str = key("latency, throughput or flops.")
    metric_path: str | None = key("File of the metric.")
    tuner_type: str = key("gridsearch, random or model_based.")
    tuner_early_stopping: int = key("Experiments without progress before the end.", unit="experiments")
    tuner_num_trials: int = key("Most experiments.", unit="experiments")
    arg_mappings: dict[str, str] | None = key("Config keys and the script's arguments for them.")
    model_info: ModelInfo | None = key("What is known about the model.", auto_raw="error")
    model_info_path: str | None = key("File with model_info.")
    mp_size: int = key("Model-parallel ranks.", unit="ranks")
    max_train_batch_size: int | None = key("Largest batch.", unit="samples")
    min_train_batch_size: int = key("Smallest batch.", unit="samples")
    max_train_micro_batch_size_per_gpu: int = key("Largest micro batch.", unit="samples")
    min_train_micro_batch_size_per_gpu: int = key("Smallest micro batch.", unit="samples")
    num_tuning_micro_batch_sizes: int = key("Micro batches to try.")


class ExpertParallel(Loose):
    """Automatic expert parallelism (AutoEP). `auto` is DeepSpeed's own word here: taken from the model.

    Ranges are checked only with enabled, so the types do not state them.
    """

    null = "falsy"
    source = "deepspeed/module_inject/auto_ep_config.py"
    known_as = "expert_parallel"

    enabled: bool = key("Shard experts over ranks.")
    autoep_size: int = key("Ranks of an expert-parallel group.", unit="ranks")
    expert_tensor_parallel_size: int = key("Tensor-parallel ranks within an expert.", unit="ranks")
    validate_folding_routing: bool = key("Check routing across folded groups.", auto_raw="error")
    async_split_plan: bool = key("Exchange split sizes asynchronously.", auto_raw="error")
    preset_model: str | None = key("Built-in description of a model family.")
    moe_layer_pattern: str | None = key("Pattern of the names of the MoE layers.")
    expert_pattern: str | None = key("Attribute that holds the experts.")
    router_pattern: str | None = key("Attribute that holds the router.")
    use_grouped_mm: bool = key("Compute experts with a grouped matrix product.")
    disable_triton_grouped_mm: bool = key("Do not use Triton for it.")
    route_norm: bool | None = key("Normalise the routing weights.")
    route_scale: float = key("Factor of the routing weights.")
    score_apply: Literal["auto", "pre", "post"] = key("Apply scores before or after the experts.")
    combine_impl: Literal["auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"] = key(
        "How expert outputs are combined."
    )
    row_weighting_impl: Literal["auto", "eager", "fused"] = key("How rows are weighted; fused needs deepep.")
    gate_up_impl: Literal["separate", "fused"] = key("Gate and up projections apart or in one.")
    comm_backend: Literal["comm", "deepep"] = key("Communication of tokens.")
    comm_num_sm: int = key("SMs for communication (deepep); above 0.", auto_raw="error")
    comm_qp_margin: int = key("Spare queue pairs (deepep); not below 0.", auto_raw="error")
    comm_max_tokens_per_rank: int = key(
        "Most tokens that a rank routes; above 0 for deepep.", unit="tokens", auto_raw="error"
    )
    num_expert_groups: int | None = key("Groups of experts.")
    num_limited_groups: int | None = key("Groups that a token may use.")
    score_func: Literal["auto", "softmax", "sigmoid"] = key("Score of the router.")
    top_k: int | Auto = key("Experts per token.")
    load_balance_coeff: None = key("Must be null: the feature is not supported yet.", auto_raw="error")
    routed_scaling_factor: float | Auto = key("Factor of the routed output.")
    expert_w1: str | None = key("Name of the gate weight.")
    expert_w2: str | None = key("Name of the down weight.")
    expert_w3: str | None = key("Name of the up weight; null: fused with the gate. Absent: as the preset says.")
    num_experts_attr: str | None = key("Config attribute with the number of experts.")
    top_k_attr: str | None = key("Config attribute with the experts per token.")
    has_shared_experts: bool | None = key("Whether the layer has shared experts.")
    shared_experts_pattern: str | None = key("Attribute that holds the shared experts.")
    shared_experts_gate_pattern: str | None = key("Attribute that holds their gate.")
    expert_activation: str | None = key("Activation of the experts; null: as the preset says.")
