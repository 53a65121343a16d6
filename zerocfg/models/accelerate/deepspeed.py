"""`deepspeed_config` of an accelerate file: DeepSpeed settings that the launcher understands."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.accelerate.facts import option, variable
from zerocfg.models.base import Section, key

MULTINODE_LAUNCHERS = ("pdsh", "standard", "openmpi", "mvapich", "mpich", "nossh", "slurm")


def _exported(name: str, text: Literal["str", "lower"] = "str") -> list[dict[str, object]]:
    return [variable(f"ACCELERATE_{name}", "deepspeed", text=text)]


_NO_PATH = (
    "the launcher exports no variable for it: a device of nvme set here ends up with the relative path "
    "`none`; write the path in a DeepSpeed JSON and name that in deepspeed_config_file"
)


class DeepSpeedConfig(Section):
    """Read by the launcher without any check; the job gets environment variables and converts their text.

    Every key that is written is also listed in ACCELERATE_CONFIG_DS_FIELDS. The job refuses eight of them, and
    mixed_precision, when it also has a DeepSpeed JSON.
    """

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "ignored"
    null: ClassVar[Literal["absent", "error"]] = "absent"
    source: ClassVar[str] = "accelerate/utils/launch.py"
    library: ClassVar[str] = "accelerate"
    also: ClassVar[str] = "accelerate-launcher"

    deepspeed_config_file: str | None = key(
        "DeepSpeed JSON: a path relative to the working directory of the launch, or the JSON itself (plain or base64).",
        default=None,
        reads="str",
        cli=option("deepspeed_config_file"),
        env=_exported("DEEPSPEED_CONFIG_FILE"),
    )
    zero_stage: int | None = key(
        "ZeRO stage: 1 shards the optimizer state, 2 also gradients, 3 also parameters.",
        default=2,
        ge=0,
        le=3,
        reads="int",
        auto_raw="error",
        setting="zero_optimization.stage",
        cli=option("zero_stage"),
        env=_exported("DEEPSPEED_ZERO_STAGE"),
        facts={"conflicts": "deepspeed_config_file"},
    )
    offload_optimizer_device: Literal["none", "cpu", "nvme"] | None = key(
        "Where optimizer state lives and the optimizer step runs.",
        default="none",
        reads="str",
        ignore_case=True,
        auto_raw="error",
        setting="zero_optimization.offload_optimizer.device",
        cli=option("offload_optimizer_device"),
        env=_exported("DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE", "lower"),
        facts={"conflicts": "deepspeed_config_file"},
    )
    offload_param_device: Literal["none", "cpu", "nvme"] | None = key(
        "Where sharded parameters live; without effect below stage 3.",
        default="none",
        reads="str",
        ignore_case=True,
        auto_raw="error",
        setting="zero_optimization.offload_param.device",
        cli=option("offload_param_device"),
        env=_exported("DEEPSPEED_OFFLOAD_PARAM_DEVICE", "lower"),
        facts={"conflicts": "deepspeed_config_file"},
    )
    offload_optimizer_nvme_path: str | None = key(
        "Meant as the folder for optimizer state.",
        default=None,
        inert=_NO_PATH,
        setting="zero_optimization.offload_optimizer.nvme_path",
        cli=option("offload_optimizer_nvme_path"),
        facts={"conflicts": "deepspeed_config_file", "variable": "ACCELERATE_DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH"},
    )
    offload_param_nvme_path: str | None = key(
        "Meant as the folder for parameters.",
        default=None,
        inert=_NO_PATH,
        setting="zero_optimization.offload_param.nvme_path",
        cli=option("offload_param_nvme_path"),
        facts={"conflicts": "deepspeed_config_file", "variable": "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH"},
    )
    gradient_accumulation_steps: int | Literal["auto"] | None = key(
        "Micro batches per optimizer step. Beats the argument of Accelerator(); the Trainer refuses a value "
        "that differs from its own.",
        default="auto",
        ge=1,
        unit="micro batches",
        reads="int",
        auto={"transformers": "gradient_accumulation_steps", "trl": "gradient_accumulation_steps"},
        auto_raw="error",
        setting="gradient_accumulation_steps",
        cli=option("gradient_accumulation_steps"),
        env=_exported("GRADIENT_ACCUMULATION_STEPS"),
        facts={"conflicts": "deepspeed_config_file"},
    )
    gradient_clipping: float | Literal["auto"] | None = key(
        "Largest gradient norm; below 0: no clipping. 0 counts as not set, and DeepSpeed clips at 1.0 then.",
        default="auto",
        unit="norm",
        reads="float",
        auto={"accelerate": "1.0", "transformers": "max_grad_norm", "trl": "max_grad_norm"},
        setting="gradient_clipping",
        cli=option("gradient_clipping"),
        env=_exported("GRADIENT_CLIPPING", "lower"),
        facts={"conflicts": "deepspeed_config_file"},
    )
    zero3_init_flag: bool | None = key(
        "Default: stage is 3. Governs only accelerate's own GatheredParameters; models loaded with "
        "from_pretrained are partitioned at stage 3 whatever it says.",
        default=None,
        reads="bool",
        cli=option("zero3_init_flag"),
        env=_exported("DEEPSPEED_ZERO3_INIT", "lower"),
    )
    zero3_save_16bit_model: bool | None = key(
        "Gather the sharded weights when saving. Without it a stage 3 job saves no model file.",
        default=False,
        reads="true",
        setting="zero_optimization.stage3_gather_16bit_weights_on_model_save",
        cli=option("zero3_save_16bit_model"),
        env=_exported("DEEPSPEED_ZERO3_SAVE_16BIT_MODEL", "lower"),
        facts={"conflicts": "deepspeed_config_file"},
    )
    deepspeed_hostfile: str | None = key(
        "Hosts and their slots, for the launchers other than `standard` on several machines.",
        default=None,
        reads="str",
        elsewhere={"hostfile": "same"},
        cli=option("deepspeed_hostfile"),
    )
    deepspeed_exclusion_filter: str | None = key(
        "Hosts and devices to leave out, as in `worker-1@worker-2:0,2`; wins over the inclusion filter.",
        default=None,
        reads="str",
        elsewhere={"exclude": "same"},
        cli=option("deepspeed_exclusion_filter"),
    )
    deepspeed_inclusion_filter: str | None = key(
        "Hosts and devices to use, as in `worker-1@worker-2:0,2`.",
        default=None,
        reads="str",
        elsewhere={"include": "same"},
        cli=option("deepspeed_inclusion_filter"),
    )
    deepspeed_multinode_launcher: str | None = key(
        "How processes start on several machines: `standard` is torchrun on each machine, all others run the "
        "`deepspeed` command on one. accelerate does not check the name; it is unused on one machine.",
        default="pdsh",
        reads="str",
        elsewhere={"launcher": "same"},
        cli=option("deepspeed_multinode_launcher"),
        facts={"known_values": list(MULTINODE_LAUNCHERS)},
    )
    deepspeed_moe_layer_cls_names: str | None = key(
        "Mixture-of-experts layer classes that ZeRO-3 must not look into, separated by commas without spaces.",
        default=None,
        reads="str",
        setting="zero_optimization.leaf_module.classes",
        cli=option("deepspeed_moe_layer_cls_names"),
        env=_exported("DEEPSPEED_MOE_LAYER_CLS_NAMES"),
    )
