"""What DeepSpeed's strict sections make of unusual values, as a table; the tests run it on the real library.

Each row is (path of the section, key, value, taken). Not in the table: the literal "auto", which is dropped.
"""

from __future__ import annotations

from typing import Any

ZERO = "zero_optimization"
OPT = "zero_optimization.offload_optimizer"

INTEGERS: tuple[tuple[Any, bool], ...] = (
    (1, True),
    ("500000000", True),
    ("500_000_000", True),
    (" 5 ", True),
    ("5.0", True),
    (5e8, True),
    (True, True),
    ("5e8", False),
    ("1.5", False),
    ("", False),
    ("five", False),
    ("0x10", False),
    (15099494.4, False),
    (float("nan"), False),
    (float("inf"), False),
    (1e30, False),
    (None, False),
    ([1], False),
    ({}, False),
)
BOOLS: tuple[tuple[Any, bool], ...] = (
    *((word, True) for word in ("true", "True", "TRUE", "yes", "on", "y", "t", "1")),
    *((word, True) for word in ("false", "False", "no", "off", "n", "f", "0")),
    (True, True),
    (0, True),
    (1, True),
    (1.0, True),
    (2, False),
    (0.5, False),
    ("2", False),
    ("enabled", False),
    ("none", False),
    (" true", False),
    ("", False),
    (None, False),
    ([], False),
)
FLOATS: tuple[tuple[Any, bool], ...] = (
    (1, True),
    (0.5, True),
    ("0.5", True),
    ("5e-1", True),
    (True, True),
    (1.5, False),
    (-0.1, False),
    ("half", False),
    (float("nan"), False),
    (None, False),
)

LAX: tuple[tuple[str, str, Any, bool], ...] = (
    *((ZERO, "sub_group_size", value, taken) for value, taken in INTEGERS),
    *((ZERO, "reduce_bucket_size", value, taken) for value, taken in ((0, False), (-1, False), ("0", False))),
    *(
        (ZERO, "allgather_bucket_size", value, taken)
        for value, taken in ((0, True), (-1, False), (-0.0, True))
    ),
    *((ZERO, "reduce_scatter", value, taken) for value, taken in BOOLS),
    *((ZERO, "overlap_comm", value, taken) for value, taken in ((None, True), ("off", True), (3, False))),
    *((ZERO, "stage", value, True) for value in (0, 3, "2", 2.0, True)),
    *((ZERO, "stage", value, False) for value in (4, -1, 2.5, None, "three", "AUTO", [2])),
    *((OPT, "device", value, True) for value in ("none", "cpu", "nvme")),
    *((OPT, "device", value, False) for value in ("CPU", "gpu", "disk", None, 0, False)),
    *((OPT, "cpuadam_cores_perc", value, taken) for value, taken in FLOATS),
    *((OPT, "nvme_path", value, taken) for value, taken in (("/data", True), (None, True), (5, False))),
    *((OPT, "pin_memory", value, taken) for value, taken in ((None, False), ("yes", True))),
    ("zero_optimization.offload_param", "max_in_cpu", 0, True),
    ("zero_optimization.offload_param", "buffer_count", -1, False),
    ("zero_optimization.zenflow", "topk_ratio", 0, False),
    ("zero_optimization.zenflow", "topk_ratio", 1, False),
    ("zero_optimization.zenflow", "update_interval", 0, False),
    ("zero_optimization.zenflow", "update_interval", 4, True),
    ("zero_optimization.zenflow", "update_interval", "4", False),
    ("zero_optimization.zenflow", "select_strategy", "always", False),
    ("zero_optimization.leaf_module", "names", "expert", True),
    ("zero_optimization.leaf_module", "names", ["expert"], True),
    ("zero_optimization.leaf_module", "names", 5, False),
    ("bf16", "enabled", "yes", True),
    ("bf16", "enabled", "maybe", False),
    ("bf16", "enabled", "AUTO", False),
    ("fp16", "loss_scale", 0, True),
    ("fp16", "loss_scale", "128", True),
    ("fp16", "loss_scale", -1, False),
    ("fp16", "loss_scale", True, False),
    ("fp16", "loss_scale", float("inf"), False),
    ("fp16", "loss_scale_window", True, False),
    ("fp16", "loss_scale_window", "1000", True),
    ("fp16", "loss_scale_window", "1000.0", False),
    ("fp16", "min_loss_scale", False, False),
    ("fp16", "initial_scale_power", -1, True),
    ("fp16", "initial_scale_power", 64, True),
    ("hybrid_engine", "max_out_tokens", 0, False),
    ("comms_logger", "prof_ops", ["all_reduce"], True),
    ("comms_logger", "prof_ops", "all_reduce", False),
    ("tensorboard", "job_name", 5, False),
    ("wandb", "group", None, True),
    ("wandb", "project", None, False),
    ("compile", "passes", ["z3"], True),
    ("compile", "passes", ["z2"], False),
    ("compile", "passes", "z3", False),
    ("tensor_parallel", "dtype", "bf16", False),
    ("weight_quantization", "q_type", "symmetric", True),
    ("weight_quantization", "q_type", "sym", False),
    ("timers.throughput", "enabled", "on", True),
)
