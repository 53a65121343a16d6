"""Engine features: activation checkpointing, I/O, checkpoints, compilation, parallelism."""

from __future__ import annotations

from typing import Annotated, Literal

from annotated_types import MinLen

from zerocfg.models.base import key
from zerocfg.models.deepspeed.section import Auto, Loose, Positive, Strict, any_case


class ActivationCheckpointing(Loose):
    """Options of deepspeed.checkpointing; they act only on models that call its `configure` (not HF ones)."""

    source = "deepspeed/runtime/activation_checkpointing/config.py"

    partition_activations: bool = key(False, "Share the kept activations among model-parallel ranks.")
    number_checkpoints: int | None = key(None, "Number of checkpoints; needed for contiguous memory.")
    contiguous_memory_optimization: bool = key(False, "Keep activations in one buffer; needs partition_activations.")
    cpu_checkpointing: bool = key(False, "Move kept activations to the CPU; needs partition_activations.")
    synchronize_checkpoint_boundary: bool = key(False, "Wait for the device at each checkpoint.")
    profile: bool = key(False, "Time each checkpoint.")


class Aio(Loose):
    """Asynchronous file I/O for NVMe offload. Optional: the defaults hold without the section."""

    null = "absent"
    source = "deepspeed/runtime/swap_tensor/aio_config.py"

    block_size: int = key(1_048_576, "Size of one request.", unit="bytes")
    queue_depth: int = key(8, "Requests in flight.", unit="requests")
    intra_op_parallelism: int = key(1, "Threads for one read or write; `thread_count` is not read.", unit="threads")
    single_submit: bool = key(False, "Submit requests one by one.")
    overlap_events: bool = key(True, "Submit while earlier requests complete.")
    use_gds: bool = key(False, "GPUDirect Storage; CUDA only.")


class ParallelWrite(Loose):
    """Who writes the model part of a checkpoint."""

    source = "deepspeed/runtime/config.py"

    pipeline_stage: bool = key(
        False, "Spread the layers over the data-parallel ranks of a pipeline stage.", auto_raw="error"
    )


class CheckpointWriter(Loose):
    """Fast checkpoint writer; needs the DeepSpeed launcher."""

    null = "absent"
    source = "deepspeed/runtime/model_checkpointing/config.py"

    type: Annotated[Literal["mock", "python", "fast"], any_case("mock", "python", "fast")] = key(
        "fast", "Kind of writer.", ignore_case=True, auto_raw="error"
    )
    io_buffer_size: int = key(64 * 1024**2, "Size of the buffer.", unit="bytes")
    io_buffer_double: bool = key(True, "Use two buffers.")
    show_statistics: bool = key(False, "Print write statistics.")
    data_parallel: (
        Annotated[Literal["replica", "socket", "machine"], any_case("replica", "socket", "machine")] | None
    ) = key(None, "Which ranks write in parallel.", ignore_case=True, auto_raw="error")
    decoupled: bool = key(False, "Write in a process beside training.")
    io_multiplier: int = key(1, "Writers per rank.")


class Checkpoint(Loose):
    """How checkpoints are written and read."""

    source = "deepspeed/runtime/model_checkpointing/config.py"

    tag_validation: Annotated[Literal["Ignore", "Warn", "Fail"], any_case("Ignore", "Warn", "Fail")] = key(
        "Warn", "What happens when ranks save under different tags.", ignore_case=True, auto_raw="error"
    )
    load_universal: bool = key(False, "Load a universal checkpoint; an ordinary one then fails to load.")
    use_node_local_storage: bool = key(
        False, "Each node writes to its own disk. The Trainer sets it from save_on_each_node."
    )
    parallel_write: ParallelWrite = key(ParallelWrite, "Who writes the model part.", auto_raw="error")
    checkpoint_serialization: bool = key(True, "Serialise the way torch.save does.")
    writer: CheckpointWriter | None = key(None, "Fast checkpoint writer.", auto_raw="error")


class Compile(Strict):
    """DeepCompile."""

    source = "deepspeed/compile/config.py"

    deepcompile: bool = key(False, "Compile forward and backward with ZeRO's collectives.")
    autoep_non_moe: bool = key(False, "Compile the parents of AutoEP layers, not the layers.")
    free_activation: bool = key(False, "Free activations early.")
    free_activation_threshold: int = key(10 * 1024**2, "Smallest activation to free early.", unit="bytes")
    offload_activation: bool = key(False, "Keep activations in host memory between forward and backward.")
    offload_activation_pin_memory: bool = key(True, "Pin the host copies of activations.")
    offload_opt_states: bool = key(False, "Keep optimizer states in host memory between steps.")
    double_buffer: bool = key(True, "Use two buffers.")
    symmetric_memory: bool = key(False, "Use symmetric memory.")
    debug_log: bool = key(False, "Dump graphs.")
    offload_parameters: bool = key(False, "Offload parameters; turned on when both offload sections have device cpu.")
    sync_before_reduce: bool = key(False, "Wait before each reduce.")
    sync_after_reduce: bool = key(False, "Wait after each reduce.")
    sync_before_allgather: bool = key(False, "Wait before each all-gather.")
    sync_after_allgather: bool = key(False, "Wait after each all-gather.")
    keep_int_input_tensors: bool = key(True, "Keep the values of integer inputs.")
    keep_all_input_tensors: bool = key(False, "Keep the values of every input.")
    passes: list[Literal["z1", "z3", "autosp", "autotp"]] | None = key(None, "Graph passes to run.")


class TpGroup(Strict):
    """Size of the tensor-parallel group (older spelling; autotp_size is what the engine reads first)."""

    source = "deepspeed/runtime/tensor_parallel/config.py"

    tp_size: int = key(1, "Ranks of a tensor-parallel group.", unit="ranks")
    tp_grain_size: int = key(1, "Granularity of uneven shards; not active in training.")
    mpu: object = key(None, "A model-parallel unit: an object, set by programs only.")
    tp_group: object = key(None, "A process group: an object, set by programs only.")


class TensorParallel(Strict):
    """Automatic tensor parallelism (AutoTP) for training."""

    source = "deepspeed/runtime/tensor_parallel/config.py"

    dtype: object = key(
        None,
        "A torch.dtype object, set by programs only: no value that JSON can hold is accepted.",
        facts={"never": "is not the torch.dtype object that is taken here; no file can hold one"},
    )
    autotp_size: int = key(0, "Ranks of a tensor-parallel group; 0 is off.", unit="ranks")
    tp_overlap_comm: bool = key(False, "Overlap all-reduce with computation.")
    vocab_parallel_lm_head: bool | None = key(None, "Shard the output layer; null: as the model's plan says.")
    vocab_parallel_ce_backend: Literal["torch", "liger"] = key("torch", "Cross entropy over a sharded vocabulary.")
    tp: TpGroup = key(TpGroup, "The tensor-parallel group.", aliases=("tensor_parallel",))
    injection_policy_tuple: list[object] | None = key(None, "Names of the layers whose output is reduced.")
    partition_config: dict[str, object] | None = key(None, "Rules that say how each layer is split.")
    preset_model: str | None = key(
        None, "Built-in split rules of a model family.", examples=["llama", "qwen2", "mixtral"]
    )
    keep_module_on_host: bool = key(False, "Load weights to the host first.")
    kernel_inject: bool = key(False, "Inject inference kernels.", aliases=("replace_with_kernel_inject",))


class Pipeline(Loose):
    """Pipeline engine."""

    source = "deepspeed/runtime/config.py"

    stages: int | Auto = key("auto", "Number of stages; not used by the engine.", inert="set but read by nobody")
    partition: str = key("best", "How layers are split; not used by the engine.", inert="set but read by nobody")
    seed_layers: bool = key(False, "Seed each layer; not used by the engine.", inert="set but read by nobody")
    activation_checkpoint_interval: int = key(
        0, "Layers between two activation checkpoints; 0 is none.", auto_raw="error"
    )
    pipe_partitioned: bool = key(
        True, "Shard activations sent between stages over tensor-parallel ranks.", auto_raw="error"
    )
    grad_partitioned: bool = key(
        True, "Shard gradients sent between stages over tensor-parallel ranks.", auto_raw="error"
    )
    use_reentrant: bool | None = key(
        None,
        "Re-entrant activation checkpointing; absent and null: true.",
        source="deepspeed/runtime/pipe/engine.py",
    )


class HybridEngine(Strict):
    """One engine for training and generation (RLHF)."""

    source = "deepspeed/runtime/config.py"

    enabled: bool = key(False, "Use the hybrid engine.")
    max_out_tokens: Positive = key(512, "Longest generated sequence.", unit="tokens")
    inference_tp_size: int = key(1, "Tensor-parallel ranks for generation.", unit="ranks")
    release_inference_cache: bool = key(False, "Free the KV cache after generation.")
    pin_parameters: bool = key(True, "Keep gathered parameters during generation.")
    tp_gather_partition_size: int = key(8, "Layers gathered together.")
    enable_cuda_graph: bool = key(False, "Generate with CUDA graphs.")


class WeightQuantization(Strict):
    """Weight quantisation for inference with ZeRO."""

    source = "deepspeed/inference/config.py"

    enabled: bool = key(True, "Quantise.")
    num_bits: int = key(8, "Bits of one weight.", unit="bits")
    q_type: Literal["symmetric", "asymmetric"] = key("symmetric", "Kind of quantisation.")
    q_groups: int = key(1, "Groups with a scale of their own.")
    quantized_initialization: dict[str, object] = key({}, "Quantise weights while the model is built.")
    post_init_quant: dict[str, object] = key({}, "Quantise weights after the model is built.")


class ModelInfo(Loose):
    """What the autotuner is told about the model."""

    null = "absent"
    source = "deepspeed/autotuning/config.py"

    profile: bool = key(False, "Measure the model first.")
    num_params: int | None = key(None, "Parameters of the model.", unit="elements")
    hidden_size: int | None = key(None, "Hidden size.")
    num_layers: int | None = key(None, "Number of layers.")


class Autotuning(Loose):
    """The autotuner (`deepspeed --autotuning`)."""

    source = "deepspeed/autotuning/config.py"

    enabled: bool = key(False, "Tune.")
    fast: bool = key(True, "Tune only ZeRO stage and micro batch.")
    results_dir: Annotated[str, MinLen(1)] = key("autotuning_results", "Directory of results.")
    exps_dir: Annotated[str, MinLen(1)] = key("autotuning_exps", "Directory of experiments.")
    overwrite: bool = key(True, "Replace earlier results.")
    start_profile_step: int = key(3, "First measured step.", unit="steps")
    end_profile_step: int = key(5, "Last measured step.", unit="steps")
    metric: str = key("throughput", "latency, throughput or flops.")
    metric_path: str | None = key(None, "File of the metric.")
    tuner_type: str = key("gridsearch", "gridsearch, random or model_based.")
    tuner_early_stopping: int = key(5, "Experiments without progress before the end.", unit="experiments")
    tuner_num_trials: int = key(50, "Most experiments.", unit="experiments")
    arg_mappings: dict[str, str] | None = key(None, "Config keys and the script's arguments for them.")
    model_info: ModelInfo | None = key(None, "What is known about the model.", auto_raw="error")
    model_info_path: str | None = key(None, "File with model_info.")
    mp_size: int = key(1, "Model-parallel ranks.", unit="ranks")
    max_train_batch_size: int | None = key(None, "Largest batch.", unit="samples")
    min_train_batch_size: int = key(1, "Smallest batch.", unit="samples")
    max_train_micro_batch_size_per_gpu: int = key(1024, "Largest micro batch.", unit="samples")
    min_train_micro_batch_size_per_gpu: int = key(1, "Smallest micro batch.", unit="samples")
    num_tuning_micro_batch_sizes: int = key(3, "Micro batches to try.")


class ExpertParallel(Loose):
    """Automatic expert parallelism (AutoEP). `auto` is DeepSpeed's own word here: taken from the model.

    Ranges are checked only with enabled, so the types do not state them.
    """

    null = "falsy"
    source = "deepspeed/module_inject/auto_ep_config.py"

    enabled: bool = key(False, "Shard experts over ranks.")
    autoep_size: int = key(1, "Ranks of an expert-parallel group.", unit="ranks")
    expert_tensor_parallel_size: int = key(1, "Tensor-parallel ranks within an expert.", unit="ranks")
    validate_folding_routing: bool = key(False, "Check routing across folded groups.", auto_raw="error")
    async_split_plan: bool = key(False, "Exchange split sizes asynchronously.", auto_raw="error")
    preset_model: str | None = key(None, "Built-in description of a model family.")
    moe_layer_pattern: str | None = key(None, "Pattern of the names of the MoE layers.")
    expert_pattern: str | None = key(None, "Attribute that holds the experts.")
    router_pattern: str | None = key(None, "Attribute that holds the router.")
    use_grouped_mm: bool = key(True, "Compute experts with a grouped matrix product.")
    disable_triton_grouped_mm: bool = key(False, "Do not use Triton for it.")
    route_norm: bool | None = key(None, "Normalise the routing weights.")
    route_scale: float = key(1.0, "Factor of the routing weights.")
    score_apply: Literal["auto", "pre", "post"] = key("auto", "Apply scores before or after the experts.")
    combine_impl: Literal["auto", "weighted_sum", "fused_weighted_sum", "legacy_bmm"] = key(
        "auto", "How expert outputs are combined."
    )
    row_weighting_impl: Literal["auto", "eager", "fused"] = key("auto", "How rows are weighted; fused needs deepep.")
    gate_up_impl: Literal["separate", "fused"] = key("separate", "Gate and up projections apart or in one.")
    comm_backend: Literal["comm", "deepep"] = key("comm", "Communication of tokens.")
    comm_num_sm: int = key(12, "SMs for communication (deepep); above 0.", auto_raw="error")
    comm_qp_margin: int = key(4, "Spare queue pairs (deepep); not below 0.", auto_raw="error")
    comm_max_tokens_per_rank: int = key(
        0, "Most tokens that a rank routes; above 0 for deepep.", unit="tokens", auto_raw="error"
    )
    num_expert_groups: int | None = key(None, "Groups of experts.")
    num_limited_groups: int | None = key(None, "Groups that a token may use.")
    score_func: Literal["auto", "softmax", "sigmoid"] = key("auto", "Score of the router.")
    top_k: int | Auto = key("auto", "Experts per token.")
    load_balance_coeff: None = key(None, "Must be null: the feature is not supported yet.", auto_raw="error")
    routed_scaling_factor: float | Auto = key("auto", "Factor of the routed output.")
    expert_w1: str | None = key(None, "Name of the gate weight.")
    expert_w2: str | None = key(None, "Name of the down weight.")
    expert_w3: str | None = key(None, "Name of the up weight; null: fused with the gate. Absent: as the preset says.")
    num_experts_attr: str | None = key(None, "Config attribute with the number of experts.")
    top_k_attr: str | None = key(None, "Config attribute with the experts per token.")
    has_shared_experts: bool | None = key(None, "Whether the layer has shared experts.")
    shared_experts_pattern: str | None = key(None, "Attribute that holds the shared experts.")
    shared_experts_gate_pattern: str | None = key(None, "Attribute that holds their gate.")
    expert_activation: str | None = key(None, "Activation of the experts; null: as the preset says.")
