"""Programs that are recognised, so that they are taken for no other, but not read."""

from __future__ import annotations

from zerocfg.frontends.api import Claims, FrontEnd
from zerocfg.source.launch.programs import TrainingProgram


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


FRONT_ENDS = (
    FrontEnd("openrlhf", unread=TrainingProgram("OpenRLHF", ("openrlhf.cli.",), words=("openrlhf.cli",))),
    FrontEnd(
        "verl",
        Claims(keys=frozenset({"actor_rollout_ref"})),
        unread=TrainingProgram("verl", ("verl.trainer.",), words=("verl.trainer",)),
    ),
    FrontEnd(
        "torchtitan",
        unread=TrainingProgram(
            "torchtitan",
            ("torchtitan.",),
            ("/torchtitan/train.py",),
            _names("--job.config_file --job.config_manager"),
            words=("torchtitan",),
        ),
    ),
    FrontEnd(
        "megatron",
        Claims(keys=frozenset({"tensor_model_parallel_size"})),
        unread=TrainingProgram(
            "Megatron-LM",
            scripts=tuple(f"/pretrain_{name}.py" for name in ("gpt", "bert", "t5", "mamba", "vlm", "ict", "retro")),
            words=("pretrain_",),
        ),
    ),
    FrontEnd(
        "slime",
        unread=TrainingProgram(
            "slime",
            options=_names("--num_rollout --rollout_num_gpus --rollout_num_gpus_per_engine"),
            words=("rollout-num-gpus", "num-rollout"),
        ),
    ),
    FrontEnd("diffusers", Claims(keys=_names("max_train_steps lr_warmup_steps checkpointing_steps"))),
)
