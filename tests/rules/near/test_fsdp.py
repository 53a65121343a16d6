"""Near misses of `zerocfg.rules.fsdp`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.run.facts import ModelSummary

from .files import of
from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

BARE = "distributed_type: FSDP\nnum_processes: %s\nfsdp_config:\n  fsdp_version: %s\n"
LAYERS = "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
FULL = "  fsdp_state_dict_type: FULL_STATE_DICT\n"
DEEPSPEED = "distributed_type: DEEPSPEED\nnum_processes: %s\ndeepspeed_config:\n  zero_stage: 2\n"
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
START = "accelerate launch --config_file accelerate.yaml %strain.py --config recipe.yaml\n"


def fsdp(code: str, why: str, version: int, keys: str, *, options: str = "", processes: int = 2) -> Near:
    """An own loop under FSDP that wraps decoder layers."""
    files = {"accelerate.yaml": BARE % (processes, version) + LAYERS + keys}
    if options:
        files["train.sh"] = f"accelerate launch --config_file accelerate.yaml {options} train.py\n"
    return of(code, why, files, "accelerate")


def unwrapped(code: str, why: str, version: int, keys: str, options: str = "") -> Near:
    """The same without a wrap policy."""
    row = fsdp(code, why, version, keys, options=options)
    row.example.files["accelerate.yaml"] = BARE % (2, version) + keys
    return row


def grid(code: str, why: str, base: str, **sizes: int | str) -> Near:
    """A `parallelism_config` with these sizes."""
    section = "".join(f"  parallelism_config_{name}_size: {size}\n" for name, size in sizes.items())
    return of(code, why, {"accelerate.yaml": f"{base}parallelism_config:\n{section}"}, "accelerate")


def trainer(code: str, why: str, keys: str, options: str = "") -> Near:
    """A recipe of the Trainer with these keys, started by torchrun."""
    line = f"torchrun --nproc_per_node 2 train.py --config recipe.yaml{options}\n"
    return of(code, why, {"recipe.yaml": RECIPE + keys, "train.sh": line}, "transformers")


def launched(code: str, why: str, yaml: str, keys: str, options: str = "") -> Near:
    """A recipe of the Trainer beside an accelerate config."""
    files = {"accelerate.yaml": yaml, "recipe.yaml": RECIPE + keys, "train.sh": START % options}
    return of(code, why, files, "transformers")


def size(name: str, value: int = 2) -> str:
    return f"accelerate.yaml: parallelism_config_{name}_size: {value}"


FSDP2, FSDP1 = BARE % (2, 2) + LAYERS, BARE % (2, 1) + LAYERS
FOUR = BARE % (4, 2) + LAYERS
DEVICES = "distributed_type: MULTI_GPU\nnum_processes: 2\n"

GRIDS = (
    grid("ZC632", "tensor parallel alone", FSDP2, tp=2),
    grid("ZC632", "all sizes 1", FSDP2, dp_shard=1),
    grid("ZC632", "context and sequence, which another rule tells", FSDP2, cp=2, sp=2),
    grid("ZC632", "context parallel replicas, which another rule tells", FSDP2, cp=2, dp_replicate=2),
    grid("ZC632", "tensor parallel replicas, which another rule tells", FSDP2, tp=2, dp_replicate=2),
    grid("ZC632", "sequence parallel, which DeepSpeed counts", FSDP2, sp=4),
    grid("ZC632", "a size that is none", FSDP2, dp_shard=0),
    grid("ZC632", "replicas alone", FOUR, dp_replicate=2).finds(
        "error", size("dp_replicate"), 2, 2, 4, also=("accelerate.yaml: num_processes: 4",)
    ),
    grid("ZC632", "context parallel shards", FSDP2, dp_shard=2, cp=2).finds(
        "error", size("dp_shard"), 4, 2, 2, 2, also=(size("cp"), "accelerate.yaml: num_processes: 2")
    ),
    grid("ZC632", "tensor parallel, replicated shards", FSDP2, dp_replicate=2, dp_shard=2, tp=2).finds(
        "error",
        size("dp_replicate"),
        8,
        2,
        2,
        2,
        2,
        also=(size("dp_shard"), size("tp"), "accelerate.yaml: num_processes: 2"),
    ),
    near(
        "ZC632",
        "processes not known",
        files={"train.sh": "accelerate launch --config_file accelerate.yaml --num_processes $N t.py\n"},
    ),
    grid("ZC633", "context parallel alone", FSDP2, cp=2, sp=1),
    grid("ZC633", "sequence parallel alone", FSDP2, cp=1, sp=2),
    grid("ZC633", "under DeepSpeed", DEEPSPEED % 4, cp=2, sp=2).finds("error", size("cp"), 2, 2, 2, also=(size("sp"),)),
    grid("ZC634", "replicas alone", FSDP2, dp_replicate=2, tp=1, cp=1),
    grid("ZC634", "tensor parallel alone", FSDP2, dp_replicate=1, tp=2),
    grid("ZC634", "sharded replicas", BARE % (8, 2) + LAYERS, dp_replicate=2, dp_shard=2, tp=2),
    grid("ZC634", "context parallel", FOUR, dp_replicate=2, cp=2).finds(
        "error", size("dp_replicate"), 2, also=(size("cp"),)
    ),
    grid("ZC634", "context and sequence, which another rule tells", FOUR, dp_replicate=2, cp=2, sp=2),
    grid("ZC634", "tensor parallel, and sequence parallel", BARE % (8, 2) + LAYERS, dp_replicate=2, tp=2, sp=2).finds(
        "error", size("dp_replicate"), 2, also=(size("tp"),)
    ),
    grid("ZC635", "tensor parallel alone", FSDP2, tp=2).finds("error", size("tp"), 2, 1),
    grid("ZC635", "context parallel is sharded across", FSDP2, cp=2),
    grid("ZC635", "sequence parallel, which another rule tells", FOUR, dp_replicate=2, sp=2),
    grid("ZC635", "all sizes 1", FSDP2, dp_replicate=1),
    grid("ZC635", "FSDP 1, which another rule tells", FSDP1, dp_replicate=2),
    grid("ZC635", "DeepSpeed", DEEPSPEED % 2, dp_replicate=2),
    grid("ZC635", "other processes, which another rule tells", FOUR, dp_replicate=2),
    grid("ZC635", "tensor parallel replicas, which another rule tells", FOUR, dp_replicate=2, tp=2),
    grid("ZC636", "all sizes 1", FSDP1, dp_shard=1),
    grid("ZC636", "no FSDP", DEEPSPEED % 2, dp_shard=2),
    grid("ZC636", "a combination that nobody takes", FSDP1, cp=2, sp=2),
    grid("ZC636", "by default", FSDP1.replace("  fsdp_version: 1\n", ""), dp_shard=2).finds(
        "error", size("dp_shard"), 2, 1, 2
    ),
    grid("ZC636", "the short name", FSDP1.replace("fsdp_version", "version"), cp=2).finds(
        "error", size("cp"), 2, 1, 2, also=("accelerate.yaml: version: 1",)
    ),
)

SEQUENCES = (
    near("ZC637", "flex attention", ("eager", "flex_attention")).finds(
        "error", "accelerate.yaml: parallelism_config_sp_attn_implementation: flex_attention"
    ),
    near("ZC637", "no sequence parallelism, which another rule tells", ("sp_size: 2", "sp_size: 1")),
    grid("ZC638", "DeepSpeed does it", DEEPSPEED % 2, sp=2),
    grid("ZC638", "one part", FSDP2, sp=1),
    grid("ZC638", "context parallel, too, which another rule tells", FSDP2, sp=2, cp=2),
    grid("ZC638", "beside shards", FSDP2, sp=2, dp_shard=2).finds("error", size("sp"), 2, 2),
    grid("ZC638", "plain data parallelism", DEVICES, sp=2).finds("error", size("sp"), 2, 2),
    grid("ZC639", "all processes", DEEPSPEED % 2, sp=2),
    grid("ZC639", "no sequence parallelism", DEEPSPEED % 4, sp=1),
    grid("ZC639", "FSDP", FOUR, sp=2),
    grid("ZC639", "replicas count, too", DEEPSPEED % 4, sp=2, dp_replicate=2),
    grid("ZC639", "no whole groups", DEEPSPEED % 3, sp=2),
    grid("ZC639", "context parallel, too, which another rule tells", DEEPSPEED % 4, sp=2, cp=2),
    grid("ZC639", "replicas for half of the groups", DEEPSPEED % 8, sp=2, dp_replicate=2).finds(
        "error", size("sp"), 8, 2, 4, 2, 4, also=(size("dp_replicate"),)
    ),
    grid("ZC639", "too many shards", DEEPSPEED % 4, sp=2, dp_shard=4).finds(
        "error", size("sp"), 4, 2, 2, 4, 2, also=(size("dp_shard", 4),)
    ),
    grid("ZC639", "one shard, said", DEEPSPEED % 4, sp=2, dp_shard=1)
    .finds("error", size("sp"), 4, 2, 2, 1, 2, also=(size("dp_shard", 1),))
    .becomes("dp_shard_size: 2\n", safe=True),
    near("ZC640", "with its size", ("parallelism_config_dp_shard_size", "parallelism_config_cp_size")),
    *(
        near(
            "ZC640",
            f"{option}: {value}",
            ("parallelism_config_cp_comm_strategy: alltoall", f"parallelism_config_{option}: {value}"),
        ).finds("warning", f"accelerate.yaml: parallelism_config_{option}: {value}", 1)
        for option, value in {
            "sp_seq_length": 64,
            "sp_seq_length_is_variable": "true",
            "sp_attn_implementation": "sdpa",
        }.items()
    ),
    grid("ZC649", "FSDP", FSDP2, cp=2),
    grid("ZC649", "one part", DEEPSPEED % 2, cp=1),
    grid("ZC649", "sequence parallel, too, which another rule tells", DEEPSPEED % 4, cp=2, sp=2),
    grid("ZC649", "replicas, which another rule tells", DEEPSPEED % 4, cp=2, dp_replicate=2),
)

MEGATRON = "distributed_type: MEGATRON_LM\nnum_processes: 8\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"
CONTEXT = "--megatron_lm_context_parallel_size 2"
MOE = DEEPSPEED.replace("stage: 2", "stage: 3") % 2 + "  deepspeed_moe_layer_cls_names: %s\n"
WRAP = "  fsdp_transformer_layer_cls_to_wrap: %s\n"

ENGINES = (
    near(
        "ZC647", "on the line", files={"train.sh": f"accelerate launch --config_file accelerate.yaml {CONTEXT} t.py\n"}
    ),
    near("ZC647", "another engine", ("MEGATRON_LM", "MULTI_GPU")),
    near("ZC618", "a class that is nobody's", ("LlamaDecoderLayer", "MyLayer")),
    near("ZC618", "one of two", ("LlamaDecoderLayer", "Qwen2DecoderLayer,LlamaDecoderLayer")).finds(
        "error", "accelerate.yaml: Qwen2DecoderLayer,LlamaDecoderLayer"
    ),
    near("ZC618", "no model", ("    model: model/config.json\n", "")),
    of("ZC641", "one class", {"accelerate.yaml": MOE % "LlamaMLP"}, "accelerate"),
    of(
        "ZC641",
        "no DeepSpeed",
        {"accelerate.yaml": (MOE % "[LlamaMLP]").replace("DEEPSPEED", "MULTI_GPU")},
        "accelerate",
    ),
    of("ZC641", "a space before the comma", {"accelerate.yaml": MOE % "LlamaMLP ,LlamaAttention"}, "accelerate").finds(
        "error", "accelerate.yaml: deepspeed_moe_layer_cls_names: LlamaMLP ,LlamaAttention"
    ),
    of("ZC604", "an empty section", {"accelerate.yaml": DEVICES + "fsdp_config: {}\n"}, "accelerate"),
    of(
        "ZC604",
        "beside the right one",
        {"accelerate.yaml": DEEPSPEED % 2 + "fsdp_config:\n  fsdp_version: 2\n"},
        "accelerate",
    ).finds("error", "accelerate.yaml: fsdp_config", also=("accelerate.yaml: distributed_type: DEEPSPEED",)),
    of(
        "ZC604",
        "of two engines, neither of which the type names",
        {"accelerate.yaml": DEVICES + "fsdp_config:\n  fsdp_version: 2\ndeepspeed_config:\n  zero_stage: 2\n"},
        "accelerate",
    )
    .finds("error", "accelerate.yaml: fsdp_config", also=("accelerate.yaml: distributed_type: MULTI_GPU",))
    .finds("error", "accelerate.yaml: deepspeed_config", also=("accelerate.yaml: distributed_type: MULTI_GPU",))
    .becomes(),
    *(
        of(
            "ZC604",
            f"the launch line says {option}",
            {
                "accelerate.yaml": DEEPSPEED % 2,
                "train.sh": f"accelerate launch --config_file accelerate.yaml {option} train.py\n",
            },
            "accelerate",
        )
        .finds("error", "accelerate.yaml: deepspeed_config", also=(f"train.sh: {option}",))
        .says(f"{option} on the launch line wins over distributed_type: 'DEEPSPEED'", "out of the launch line")
        .becomes()
        for option in ("--use_fsdp", "--multi_gpu")
    ),
    of(
        "ZC604",
        "the launch line says what the file says",
        {
            "accelerate.yaml": DEEPSPEED % 2,
            "train.sh": "accelerate launch --config_file accelerate.yaml --use_deepspeed train.py\n",
        },
        "accelerate",
    ),
    of(
        "ZC604",
        "one process",
        {"accelerate.yaml": "distributed_type: 'NO'\nmegatron_lm_config:\n  megatron_lm_tp_degree: 2\n"},
        "accelerate",
    ).finds("error", "accelerate.yaml: megatron_lm_config", also=("accelerate.yaml: distributed_type: 'NO'",)),
)

PLUGIN = (
    fsdp("ZC601", "FSDP 2 with the word that fits", 2, "  fsdp_sync_module_states: true\n"),
    fsdp(
        "ZC601",
        "FSDP 2, loaded by all",
        2,
        "  fsdp_sync_module_states: false\n  fsdp_cpu_ram_efficient_loading: false\n",
    ),
    *(
        fsdp("ZC602", f"{value}, which applies anyway", 1, f"  fsdp_reshard_after_forward: {value}\n")
        for value in ("FULL_SHARD", "true", "1")
    ),
    fsdp("ZC602", "the number of the default", 2, "  fsdp_sharding_strategy: 1\n"),
    fsdp("ZC602", "both keys", 2, "  fsdp_sharding_strategy: SHARD_GRAD_OP\n  fsdp_reshard_after_forward: false\n"),
    fsdp("ZC602", "false under FSDP 1", 1, "  fsdp_reshard_after_forward: false\n").finds(
        "error", "accelerate.yaml: fsdp_reshard_after_forward: false", 1
    ),
    fsdp("ZC602", "replicas under FSDP 2", 2, "  fsdp_sharding_strategy: HYBRID_SHARD\n").finds(
        "error", "accelerate.yaml: fsdp_sharding_strategy: HYBRID_SHARD", 2
    ),
    launched(
        "ZC602", "the recipe makes the plugin anew", FSDP2 + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "fsdp: true\n"
    ),
    launched("ZC602", "the recipe says no", FSDP2 + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n", "fsdp: false\n").finds(
        "error", "accelerate.yaml: fsdp_sharding_strategy: SHARD_GRAD_OP", 2
    ),
    of(
        "ZC602",
        "an own loop reads no recipe",
        {
            "accelerate.yaml": FSDP2 + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n",
            "recipe.yaml": RECIPE + "fsdp: true\n",
        },
        "accelerate",
    )
    .finds("error", "accelerate.yaml: fsdp_sharding_strategy: SHARD_GRAD_OP", 2)
    .becomes("fsdp_reshard_after_forward: false", safe=True),
    fsdp("ZC603", "FSDP 1 wants names", 1, "  fsdp_reshard_after_forward: FULL_SHARD\n"),
    *(fsdp("ZC603", f"{word} is a truth", 2, f"  fsdp_reshard_after_forward: {word}\n") for word in ("'No'", "1")),
    *(
        fsdp("ZC603", f"{word} is none", 2, f"  fsdp_reshard_after_forward: {word}\n").finds(
            "error", f"accelerate.yaml: {word}", 2
        )
        for word in ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD")
    ),
    fsdp("ZC606", "FSDP 1 has it", 1, "  fsdp_state_dict_type: LOCAL_STATE_DICT\n"),
    fsdp("ZC606", "shards", 2, "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"),
    fsdp("ZC606", "small letters", 2, "  fsdp_state_dict_type: local_state_dict\n").finds(
        "error", "accelerate.yaml: local_state_dict", 2
    ),
    fsdp("ZC645", "no sharding, which another rule tells", 1, "  fsdp_sharding_strategy: 3\n"),
    fsdp("ZC645", "no such number", 1, "  fsdp_sharding_strategy: 6\n"),
    fsdp("ZC645", "no number", 1, "  fsdp_sharding_strategy: true\n"),
    fsdp("ZC645", "FSDP 2 does not read it", 2, "  fsdp_sharding_strategy: 2\n"),
    fsdp("ZC645", "replicas, in quotes", 1, "  fsdp_sharding_strategy: '4'\n").finds("note", "accelerate.yaml: '4'", 4),
    fsdp("ZC644", "FSDP 2, which another rule tells", 2, "  fsdp_sharding_strategy: true\n"),
    fsdp("ZC644", "false", 1, "  fsdp_sharding_strategy: false\n").finds("error", "accelerate.yaml: false", 1),
    trainer("ZC644", "FSDP 2 of the Trainer", "fsdp: true\nfsdp_config:\n  reshard_after_forward: true\n"),
    trainer("ZC644", "no FSDP", "fsdp: false\nfsdp_config:\n  version: 1\n  reshard_after_forward: true\n"),
)

LIST = "  fsdp_ignored_modules: %s\n"
EAGER = "  fsdp_cpu_ram_efficient_loading: false\n"

KEYS = (
    unwrapped("ZC608", "1 is written", 1, FULL),
    near(
        "ZC608",
        "on the line",
        files={"train.sh": "accelerate launch --config_file accelerate.yaml --fsdp_version 1 t.py\n"},
    ),
    near("ZC608", "another engine", ("distributed_type: FSDP", "distributed_type: MULTI_GPU")),
    near("ZC608", "a key of FSDP 1", ("  fsdp_state", "  fsdp_use_orig_params: true\n  fsdp_state")).finds(
        "note", "accelerate.yaml: fsdp_config", 1, 2, 1
    ),
    fsdp("ZC609", "FSDP 1", 1, "  fsdp_forward_prefetch: true\n"),
    fsdp("ZC609", "nothing", 2, "  fsdp_forward_prefetch: null\n"),
    fsdp("ZC609", "no key of accelerate's", 2, "  fsdp_limit_all_gathers: true\n"),
    fsdp("ZC609", "what FSDP 2 does anyway", 2, "  fsdp_use_orig_params: true\n").finds(
        "note", "accelerate.yaml: fsdp_use_orig_params: true", 1, 2
    ),
    fsdp("ZC609", "what FSDP 2 cannot", 2, "  fsdp_use_orig_params: false\n").finds(
        "warning", "accelerate.yaml: fsdp_use_orig_params: false", 1, 2
    ),
    fsdp("ZC609", "no prefetching", 2, "  fsdp_backward_prefetch: NO_PREFETCH\n").finds(
        "note", "accelerate.yaml: fsdp_backward_prefetch: NO_PREFETCH", 1, 2
    ),
    trainer("ZC609", "of the Trainer's", "fsdp: true\nfsdp_config:\n  limit_all_gathers: true\n").finds(
        "note", "recipe.yaml: limit_all_gathers: true", 1, 2
    ),
    fsdp("ZC610", "FSDP 2 does not read it", 2, "  fsdp_sharding_strategy: NO_SHARD\n"),
    fsdp("ZC610", "by number", 1, "  fsdp_sharding_strategy: 3\n").finds("warning", "accelerate.yaml: 3"),
    fsdp("ZC610", "replicas of shards", 1, "  fsdp_sharding_strategy: 4\n"),
    fsdp("ZC611", "not offloaded", 2, "  fsdp_activation_checkpointing_offload: false\n"),
    fsdp(
        "ZC611",
        "not checkpointed, said",
        2,
        "  fsdp_activation_checkpointing: false\n  fsdp_activation_checkpointing_offload: true\n",
    ).finds("error", "accelerate.yaml: fsdp_activation_checkpointing_offload: true"),
    launched(
        "ZC611",
        "the recipe makes the plugin anew",
        FSDP2 + "  fsdp_activation_checkpointing_offload: true\n",
        "fsdp: true\n",
    ),
    fsdp("ZC612", "no names", 2, EAGER + LIST % "[]"),
    fsdp("ZC612", "FSDP 1", 1, LIST % "[lm_head, embed]").finds(
        "error", "accelerate.yaml: fsdp_ignored_modules: [lm_head, embed]"
    ),
    launched("ZC612", "the recipe makes the plugin anew", FSDP2 + LIST % "[lm_head]", "fsdp: true\n"),
    fsdp("ZC613", "FSDP 1 keeps them", 1, LIST % "lm_head"),
    fsdp("ZC613", "a list, which another rule tells", 2, LIST % "[lm_head]"),
    fsdp("ZC613", "no name", 2, LIST % "''"),
    fsdp("ZC613", "efficient loading, said", 2, EAGER.replace("false", "true") + LIST % "lm_head").finds(
        "error",
        "accelerate.yaml: fsdp_ignored_modules: lm_head",
        also=("accelerate.yaml: fsdp_cpu_ram_efficient_loading: true",),
    ),
)

SIZE = "  fsdp_auto_wrap_policy: SIZE_BASED_WRAP\n"
MIN = "  fsdp_min_num_params: %s\n"

WRAPPING = (
    fsdp("ZC605", "two names without a space", 2, WRAP % "LlamaDecoderLayer,LlamaMLP"),
    trainer("ZC605", "a list in the recipe", "fsdp: true\nfsdp_config:\n  transformer_layer_cls_to_wrap: [A, B]\n"),
    launched("ZC605", "not read", FSDP2 + WRAP % "[LlamaDecoderLayer]", "fsdp: true\n"),
    unwrapped("ZC614", "no policy, said", 1, "  fsdp_auto_wrap_policy: NO_WRAP\n"),
    unwrapped("ZC614", "layers without a policy, which another rule tells", 1, WRAP % "LlamaDecoderLayer"),
    unwrapped("ZC614", "a size without a policy, which another rule tells", 1, MIN % 2000),
    unwrapped("ZC614", "on the line", 1, FULL, "--fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP"),
    unwrapped("ZC614", "FSDP 2", 2, FULL).finds("warning", "accelerate.yaml: fsdp_config"),
    launched("ZC614", "the recipe makes the plugin anew", BARE % (2, 2) + FULL, "fsdp: true\n"),
    unwrapped("ZC615", "one parameter", 1, SIZE + MIN % 1),
    unwrapped("ZC615", "the launcher's default", 1, SIZE),
    unwrapped("ZC615", "on the line", 1, SIZE + MIN % 0, "--fsdp_min_num_params 2000"),
    fsdp("ZC615", "another policy", 1, MIN % 0),
    trainer(
        "ZC615",
        "one parameter, in the recipe",
        "fsdp: true\nfsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n  min_num_params: 1\n",
    ),
    trainer(
        "ZC615",
        "zero, in the recipe",
        "fsdp: true\nfsdp_config:\n  auto_wrap_policy: SIZE_BASED_WRAP\n  min_num_params: 0\n",
    ).finds("error", "recipe.yaml: min_num_params: 0", 0),
    unwrapped("ZC616", "FSDP 1 can", 1, SIZE + MIN % 100000),
    unwrapped("ZC616", "zero, which another rule tells", 2, SIZE + MIN % 0),
    unwrapped("ZC616", "one parameter", 2, SIZE + MIN % 1).finds(
        "error", "accelerate.yaml: SIZE_BASED_WRAP", 2, also=("accelerate.yaml: fsdp_min_num_params: 1",)
    ),
    unwrapped("ZC616", "the launcher's default", 2, SIZE).finds("error", "accelerate.yaml: SIZE_BASED_WRAP", 2),
    unwrapped("ZC616", "no policy", 2, MIN % 100000),
    near("ZC616", "a model as small as the size", model=ModelSummary("tiny", parameters=100_000)).finds(
        "error", "accelerate.yaml: SIZE_BASED_WRAP", 2, 100000, also=("accelerate.yaml: fsdp_min_num_params: 100000",)
    ),
    near("ZC616", "a model one larger", model=ModelSummary("tiny", parameters=100_001)).finds(
        "error", "accelerate.yaml: SIZE_BASED_WRAP", 2, also=("accelerate.yaml: fsdp_min_num_params: 100000",)
    ),
    unwrapped("ZC617", "read by the policy", 1, SIZE + MIN % 2000),
    unwrapped("ZC617", "nothing", 1, WRAP % "null"),
    unwrapped("ZC617", "NO_WRAP", 1, "  fsdp_auto_wrap_policy: NO_WRAP\n" + WRAP % "LlamaDecoderLayer").finds(
        "warning", "accelerate.yaml: fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer"
    ),
    unwrapped("ZC617", "layers beside sizes", 1, SIZE + WRAP % "LlamaDecoderLayer").finds(
        "note", "accelerate.yaml: fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer"
    ),
    unwrapped("ZC617", "a size alone", 1, MIN % 2000).finds("error", "accelerate.yaml: fsdp_min_num_params: 2000"),
    unwrapped("ZC617", "both, told once", 1, WRAP % "LlamaDecoderLayer" + MIN % 2000).finds(
        "error", "accelerate.yaml: fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer"
    ),
    launched("ZC617", "the recipe makes the plugin anew", BARE % (2, 1) + WRAP % "LlamaDecoderLayer", "fsdp: true\n"),
)

SECTION = "fsdp: true\nfsdp_config:\n  "

ARGUMENTS = (
    trainer("ZC620", "FSDP off", "fsdp: false\ndeepspeed: {train_micro_batch_size_per_gpu: auto}\n"),
    trainer("ZC620", "no DeepSpeed", "fsdp: true\ndeepspeed: null\n"),
    launched("ZC620", "DeepSpeed by the launcher", DEEPSPEED % 2, "fsdp: true\n").finds(
        "error", "recipe.yaml: fsdp: true"
    ),
    trainer("ZC621", "switched off", "fsdp: false\nfsdp_config:\n  state_dict_type: FULL_STATE_DICT\n"),
    trainer("ZC621", "on the line", "fsdp_config:\n  state_dict_type: FULL_STATE_DICT\n", " --fsdp true"),
    trainer("ZC621", "nothing in it", "fsdp_config: {}\n"),
    trainer("ZC621", "what transformers 4 wrote", "fsdp_config: {min_num_params: 0, xla: false}\n"),
    trainer("ZC621", "nothing said", "fsdp: null\nfsdp_config:\n  version: 2\n").finds(
        "error", "recipe.yaml: fsdp_config"
    ),
    launched("ZC621", "FSDP by the launcher", FSDP2, "fsdp_config:\n  version: 2\n").finds(
        "warning", "recipe.yaml: fsdp_config"
    ),
    launched("ZC621", "DeepSpeed by the launcher", DEEPSPEED % 2, "fsdp_config:\n  version: 2\n").finds(
        "warning", "recipe.yaml: fsdp_config"
    ),
    trainer("ZC622", "a key with the prefix", SECTION + "fsdp_version: 2\n"),
    trainer("ZC622", "a key of FSDP 1", SECTION + "use_orig_params: true\n"),
    trainer("ZC622", "nobody reads it", "fsdp: false\nfsdp_config:\n  offload_params: true\n"),
    trainer("ZC622", "nothing near", SECTION + "zigzag: 7\n").finds("error", "recipe.yaml: zigzag: 7", 7),
    trainer("ZC622", "misspelled", SECTION + "cpu_ofload: true\n").finds("error", "recipe.yaml: cpu_ofload: true"),
    near("ZC622", "a strategy without a word", ("SHARD_GRAD_OP", "HYBRID_SHARD"), bad=2)
    .finds("error", "recipe.yaml: sharding_strategy: HYBRID_SHARD")
    .becomes(),
    near("ZC622", "a strategy of FSDP 1", ("  sharding", "  version: 1\n  sharding"), bad=2)
    .finds("error", "recipe.yaml: sharding_strategy: SHARD_GRAD_OP")
    .becomes(),
    near(
        "ZC622",
        "the name that is read stands there",
        ("offload_params: true", "offload_params: true\n  cpu_offload: true"),
    )
    .finds("error", "recipe.yaml: offload_params: true")
    .becomes(),
    trainer("ZC623", "known words in capitals, which another rule tells", "fsdp: FULL_SHARD AUTO_WRAP\n"),
    trainer("ZC623", "no words", "fsdp: ' '\n"),
    trainer("ZC623", "one unknown word of two", "fsdp: full_shard auto\n").finds(
        "error", "recipe.yaml: full_shard auto"
    ),
    trainer("ZC624", "FSDP 1 is chosen", "fsdp: hybrid_shard\nfsdp_config:\n  version: 1\n"),
    trainer("ZC624", "small letters", "fsdp: shard_grad_op\n"),
    trainer("ZC624", "beside a word that nobody knows", "fsdp: hybrid_shard auto\n"),
    trainer("ZC624", "beside offloading", "fsdp: no_shard offload\n")
    .finds("error", "recipe.yaml: no_shard offload", 1, 2, 1)
    .becomes(),
    trainer("ZC624", "alone", "fsdp: no_shard\n")
    .finds("error", "recipe.yaml: no_shard", 1, 2, 1)
    .becomes("fsdp: true\n"),
    trainer("ZC625", "FSDP 1 is chosen", "fsdp: full_shard\nfsdp_config:\n  version: 1\n"),
    trainer("ZC625", "capitals, which another rule tells", "fsdp: FULL_SHARD\n"),
    trainer("ZC625", "two strategies", "fsdp: full_shard shard_grad_op\n").finds(
        "note", "recipe.yaml: full_shard shard_grad_op"
    ),
    trainer("ZC625", "beside a section", "fsdp: shard_grad_op\nfsdp_config:\n  version: 2\n")
    .finds("note", "recipe.yaml: shard_grad_op")
    .becomes("fsdp: true\nfsdp_config:\n  version: 2\n  reshard_after_forward: false\n", safe=True),
    trainer("ZC625", "two words beside a section", "fsdp: shard_grad_op offload\nfsdp_config:\n  version: 2\n")
    .finds("note", "recipe.yaml: shard_grad_op offload")
    .becomes(),
    near("ZC625", "all of it", bad=2)
    .finds("note", "recipe.yaml: shard_grad_op auto_wrap offload")
    .becomes("fsdp: true\nfsdp_config: {reshard_after_forward: false, cpu_offload: true}\n", safe=True),
    trainer("ZC626", "no policy", SECTION + "auto_wrap_policy: NO_WRAP\n"),
    trainer("ZC626", "nobody reads it", "fsdp: false\nfsdp_config:\n  auto_wrap_policy: no_wrap\n"),
    trainer("ZC626", "nothing near", SECTION + "auto_wrap_policy: zigzag\n").finds("error", "recipe.yaml: zigzag"),
)

SHARDED = "  fsdp_state_dict_type: SHARDED_STATE_DICT\n"
ONLY = "save_only_model: true\n"
BEST = "load_best_model_at_end: true\neval_strategy: steps\nsave_strategy: steps\n"
TWICE = "fsdp: true\nfsdp_config:\n  activation_checkpointing: true\n"

TRAINING = (
    launched("ZC607", "FSDP 1 saves all", FSDP1, ""),
    launched("ZC607", "FSDP 1, sharded", FSDP1 + SHARDED, "").finds("warning", "accelerate.yaml: SHARDED_STATE_DICT"),
    of(
        "ZC607",
        "a page, whose script is not here",
        {"README.md": "```bash\n" + START % "" + "```\n", "accelerate.yaml": FSDP2 + SHARDED, "recipe.yaml": RECIPE},
        "transformers",
    ),
    launched("ZC607", "on the line", FSDP2, "", "--fsdp_state_dict_type FULL_STATE_DICT "),
    launched("ZC607", "the model only, which another rule tells", FSDP2 + SHARDED, ONLY),
    launched("ZC607", "no FSDP", DEVICES, ""),
    trainer("ZC607", "the Trainer's default", "fsdp: true\n"),
    launched("ZC607", "the recipe makes the plugin anew", FSDP2 + SHARDED, "fsdp: true\n"),
    fsdp("ZC607", "an own loop", 2, SHARDED),
    trainer("ZC627", "states, too", SECTION + "state_dict_type: SHARDED_STATE_DICT\nsave_only_model: false\n"),
    launched("ZC627", "FSDP 1 saves all", FSDP1, ONLY),
    launched("ZC627", "on the line", FSDP2, ONLY, "--fsdp_state_dict_type FULL_STATE_DICT "),
    trainer(
        "ZC627", "a word on the line", SECTION + "state_dict_type: SHARDED_STATE_DICT\n", " --save_only_model"
    ).finds("error", "recipe.yaml: state_dict_type: SHARDED_STATE_DICT", also=("train.sh: --save_only_model",)),
    trainer("ZC628", "the last model", "fsdp: true\n" + ONLY),
    trainer("ZC628", "states, too", "fsdp: true\n" + BEST),
    trainer("ZC628", "no FSDP", ONLY + BEST),
    launched("ZC628", "FSDP by the launcher", FSDP1, ONLY + BEST).finds(
        "error", "recipe.yaml: save_only_model: true", also=("recipe.yaml: load_best_model_at_end: true",)
    ),
    launched("ZC629", "the same", FSDP2 + FULL, "fsdp: true\n"),
    launched(
        "ZC629",
        "the same in small letters",
        FSDP2.replace("TRANSFORMER_BASED_WRAP", "transformer_based_wrap"),
        "fsdp: true\n",
    ),
    launched("ZC629", "nothing", FSDP2 + "  fsdp_state_dict_type: null\n", "fsdp: true\n"),
    launched("ZC629", "the recipe says the same", FSDP1, SECTION + "version: 1\n"),
    launched("ZC629", "no FSDP by the launcher", DEVICES + "fsdp_config:\n  fsdp_version: 1\n", "fsdp: true\n"),
    launched("ZC629", "shards", FSDP2 + SHARDED, "fsdp: true\n").finds(
        "error", "accelerate.yaml: fsdp_state_dict_type: SHARDED_STATE_DICT", also=("recipe.yaml: fsdp: true",)
    ),
    launched("ZC629", "shards, said in both", FSDP2 + SHARDED, SECTION + "state_dict_type: FULL_STATE_DICT\n").finds(
        "error",
        "accelerate.yaml: fsdp_state_dict_type: SHARDED_STATE_DICT",
        also=("recipe.yaml: state_dict_type: FULL_STATE_DICT",),
    ),
    launched(
        "ZC629",
        "a name for a truth, which another rule tells",
        FSDP2 + "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n",
        "fsdp: true\n",
    ),
    launched("ZC629", "not sharded again", FSDP2 + "  fsdp_reshard_after_forward: false\n", "fsdp: true\n").finds(
        "error", "accelerate.yaml: fsdp_reshard_after_forward: false", also=("recipe.yaml: fsdp: true",)
    ),
    trainer("ZC630", "the argument is off", TWICE + "gradient_checkpointing: false\n"),
    trainer(
        "ZC630",
        "FSDP's is off",
        "fsdp: true\nfsdp_config:\n  activation_checkpointing: false\ngradient_checkpointing: true\n",
    ),
    trainer(
        "ZC630",
        "no FSDP",
        "fsdp: false\nfsdp_config:\n  activation_checkpointing: true\ngradient_checkpointing: true\n",
    ),
    trainer(
        "ZC630",
        "in another word",
        SECTION + "activation_checkpointing: 'yes'\ngradient_checkpointing: true\n",
    ).finds(
        "error", "recipe.yaml: gradient_checkpointing: true", also=("recipe.yaml: activation_checkpointing: 'yes'",)
    ),
    launched(
        "ZC630",
        "the launcher fills what the recipe leaves open",
        FSDP2 + "  fsdp_activation_checkpointing: true\n",
        "fsdp: true\ngradient_checkpointing: true\n",
    ).finds(
        "error",
        "recipe.yaml: gradient_checkpointing: true",
        also=("accelerate.yaml: fsdp_activation_checkpointing: true",),
    ),
    launched(
        "ZC630",
        "no FSDP by the launcher",
        DEVICES + "fsdp_config:\n  fsdp_activation_checkpointing: true\n",
        "gradient_checkpointing: true\n",
    ),
    trainer("ZC631", "no FSDP", "gradient_checkpointing: true\n"),
    trainer("ZC631", "not checkpointed", "fsdp: true\ngradient_checkpointing: false\n"),
    trainer(
        "ZC631",
        "FSDP's is off on purpose",
        "fsdp: true\nfsdp_config:\n  activation_checkpointing: false\ngradient_checkpointing: true\n",
    )
    .finds("warning", "recipe.yaml: gradient_checkpointing: true")
    .becomes(),
    trainer("ZC631", "by both, which another rule tells", TWICE + "gradient_checkpointing: true\n"),
    launched("ZC631", "FSDP by the launcher, which does not look", FSDP2 + FULL, "gradient_checkpointing: true\n"),
    of("ZC631", "TRL's default", {"recipe.yaml": RECIPE + "max_length: 64\nfsdp: true\n"}, "trl"),
    trainer("ZC642", "FSDP 1 runs", SECTION + "version: 1\noptim: adafactor\n"),
    trainer("ZC642", "no FSDP", "optim: adafactor\n"),
    trainer("ZC642", "another on the line", "fsdp: true\noptim: adafactor\n", " --optim adamw_torch"),
    launched("ZC642", "FSDP 1 by the launcher", FSDP1, "optim: adafactor\n"),
    trainer("ZC643", "true as text is true", SECTION + "cpu_offload: 'true'\n"),
    trainer("ZC643", "no FSDP", "fsdp: false\nfsdp_config:\n  cpu_offload: 'false'\n"),
    trainer("ZC643", "no, in capitals", SECTION + "cpu_offload: 'No'\n").finds("error", "recipe.yaml: 'No'"),
    trainer("ZC646", "by default", "fsdp: true\n"),
    trainer("ZC646", "no FSDP", "fsdp: false\nfsdp_config:\n  version: 1\n"),
    trainer("ZC646", "with a key of FSDP 1", SECTION + "version: 1\n  use_orig_params: true\n").finds(
        "note", "recipe.yaml: version: 1", 1, 2
    ),
)

_OLDER, _EITHER = {"transformers": "5.9.0"}, {"transformers": ">=5"}
_SHARDS_ALONE = {"accelerate": "==1.6.0"}
_BY_SIZE = "accelerate.yaml: SIZE_BASED_WRAP"
_TOLD = "fsdp: true\ngradient_checkpointing: true\n"
_CONFIG_ON_LINE = ("--config recipe.yaml", "--config recipe.yaml --fsdp_config fsdp.json")
RELEASES = (
    near("ZC603", "arguments of before 5.10 choose FSDP 1", bad=2, versions=_OLDER),
    near("ZC608", "accelerate before FSDP 2", versions={"accelerate": "1.5.2"}),
    near("ZC609", "accelerate before FSDP 2", versions={"accelerate": "1.5.2"}),
    near("ZC611", "accelerate before the key", versions={"accelerate": "1.14.0"}),
    near("ZC622", "transformers before 5.10", versions=_OLDER),
    near("ZC623", "transformers before 5.10", versions=_OLDER)
    .finds("error", "recipe.yaml: 'true'")
    .becomes("fsdp: true\n", safe=True),
    near("ZC623", "before 5.10 true wraps nothing", bad=2, versions=_OLDER)
    .finds("error", "recipe.yaml: full_shard,auto_wrap")
    .becomes("fsdp: full_shard auto_wrap\n", safe=True),
    near("ZC623", "where some releases wrap nothing", bad=2, versions=_EITHER)
    .finds("error", "recipe.yaml: full_shard,auto_wrap")
    .becomes("fsdp: full_shard auto_wrap\n", safe=True),
    near("ZC623", "5.10", bad=2, versions={"transformers": "5.10.1"})
    .finds("error", "recipe.yaml: full_shard,auto_wrap")
    .becomes("fsdp: true\n", safe=True),
    near("ZC623", "options before 5.10", good=2, versions=_OLDER),
    near("ZC626", "transformers 5.10", versions={"transformers": "5.10.1"}).finds(
        "error", "recipe.yaml: transformer_based_wrap"
    ),
    near("ZC626", "transformers 5 at large", versions=_EITHER).finds(
        "warning", "recipe.yaml: transformer_based_wrap", "5.10.0", "5"
    ),
    near("ZC626", "transformers before 5.10", versions=_OLDER),
    near("ZC627", "arguments of before 5.10", versions=_OLDER),
    # accelerate 1.6, the first with FSDP 2, stops at every state dict of it that is not sharded
    near("ZC606", "accelerate that saves shards alone", consumer="transformers", versions=_SHARDS_ALONE)
    .finds("error", "accelerate.yaml: LOCAL_STATE_DICT", 2)
    .becomes("fsdp_state_dict_type: SHARDED_STATE_DICT\n"),
    near("ZC606", "accelerate that saves all", consumer="transformers", versions={"accelerate": ">=1.7"})
    .finds("error", "accelerate.yaml: LOCAL_STATE_DICT", 2)
    .says("or FULL_STATE_DICT")
    .becomes("fsdp_state_dict_type: FULL_STATE_DICT\n"),
    near("ZC607", "accelerate that saves shards alone", versions=_SHARDS_ALONE)
    .finds("warning", "accelerate.yaml: SHARDED_STATE_DICT")
    .becomes(),
    near("ZC607", "shards alone, by default", bad=2, versions=_SHARDS_ALONE)
    .finds("warning", "accelerate.yaml: fsdp_config", 2)
    .becomes(),
    near("ZC607", "accelerate that saves all", versions={"accelerate": ">=1.7"})
    .finds("warning", "accelerate.yaml: SHARDED_STATE_DICT")
    .becomes("fsdp_state_dict_type: FULL_STATE_DICT\n"),
    near("ZC607", "FSDP 1 saves all", ("_version: 2", "_version: 1"), versions=_SHARDS_ALONE)
    .finds("warning", "accelerate.yaml: SHARDED_STATE_DICT")
    .becomes("fsdp_state_dict_type: FULL_STATE_DICT\n"),
    near("ZC627", "accelerate that saves shards alone", bad=2, versions=_SHARDS_ALONE)
    .finds("error", "accelerate.yaml: fsdp_config", 2, also=("recipe.yaml: save_only_model: true",))
    .says("remove `save_only_model`")
    .becomes(),
    # TRL before 0.22 leaves checkpointing off unless it is told
    near("ZC630", "TRL that does not checkpoint by itself", bad=3, versions={"trl": "0.21.0"}),
    near("ZC630", "TRL that does", bad=3, versions={"trl": "0.22.1"}).finds(
        "error", "recipe.yaml: activation_checkpointing: true"
    ),
    near("ZC630", "TRL that may", bad=3, versions={"trl": ">=0.19"}).finds(
        "warning", "recipe.yaml: activation_checkpointing: true", "0.22.0", "0.19"
    ),
    near("ZC630", "TRL that is told to", ("fsdp: true\n", _TOLD), bad=3, versions={"trl": "0.21.0"}).finds(
        "error", "recipe.yaml: gradient_checkpointing: true", also=("recipe.yaml: activation_checkpointing: true",)
    ),
    *(
        near("ZC630", f"transformers {pinned}", versions={"transformers": pinned}).finds(
            "error", "recipe.yaml: gradient_checkpointing: true", also=("recipe.yaml: activation_checkpointing: true",)
        )
        for pinned in ("4.46.3", "5.9.0", ">=5")
    ),
    near("ZC630", "switched off before 5.10", ("fsdp: true", "fsdp: false"), versions=_OLDER),
    near("ZC630", "on the line before 5.10", _CONFIG_ON_LINE, versions=_OLDER),
    near("ZC642", "arguments of before 5.10 choose FSDP 1", bad=2, versions=_OLDER),
    near("ZC642", "the launcher's FSDP 2", versions={"transformers": "4.57.6"}).finds(
        "error", "recipe.yaml: optim: adafactor", 2
    ),
    *(near("ZC642", f"accelerate {one}", versions={"accelerate": one}) for one in ("1.5.2", "1.7.0")),
    near("ZC642", "accelerate 1.8", versions={"accelerate": "1.8.0"}).finds(
        "error", "recipe.yaml: optim: adafactor", 2
    ),
    near("ZC642", "accelerate that may be", versions={"accelerate": ">=1.7"}).finds(
        "warning", "recipe.yaml: optim: adafactor", 2, "1.8.0", "1.7"
    ),
    near("ZC613", "accelerate 1.7", versions={"accelerate": "1.7.0"}),
    near("ZC613", "accelerate 1.8", versions={"accelerate": "1.8.0"}).finds(
        "error", "accelerate.yaml: fsdp_ignored_modules: lm_head"
    ),
    near("ZC616", "accelerate 1.6", versions=_SHARDS_ALONE),
    near("ZC616", "accelerate 1.7", versions={"accelerate": "1.7.0"}).finds(
        "error", _BY_SIZE, 2, also=("accelerate.yaml: fsdp_min_num_params: 100000",)
    ),
    near("ZC616", "arguments of before 5.10 choose FSDP 1", bad=2, versions=_OLDER),
    near("ZC616", "arguments of 5.10", bad=2, versions={"transformers": "5.10.1"}).finds(
        "error", "recipe.yaml: SIZE_BASED_WRAP", 2, also=("recipe.yaml: min_num_params: 100000",)
    ),
    near("ZC635", "accelerate 1.9", versions={"accelerate": "1.9.0"}),
    near("ZC635", "accelerate 1.10", versions={"accelerate": "1.10.0"}).finds("error", size("dp_replicate"), 2, 1),
    near("ZC638", "accelerate 1.14", versions={"accelerate": "1.14.0"}),
    near("ZC629", "transformers before 5.10", versions=_OLDER),
    near("ZC643", "transformers before 5.10", versions=_OLDER),
    near("ZC644", "arguments of before 5.10", bad=2, versions=_OLDER),
)

TABLE = (*GRIDS, *SEQUENCES, *ENGINES, *PLUGIN, *KEYS, *WRAPPING, *ARGUMENTS, *TRAINING, *RELEASES)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
