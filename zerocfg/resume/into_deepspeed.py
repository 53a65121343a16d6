"""Whether a run under DeepSpeed can read a checkpoint: stage, ranks, precision, universal or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.resume.finding import ASSERTION, NO_CHECKPOINT, Finding
from zerocfg.resume.remediations import USE_UNIVERSAL, to_weights, universal, weights_alone
from zerocfg.resume.trainer_files import random_generators, trainer_files

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint, DeepSpeed
    from zerocfg.resume.target import Target


def into_deepspeed(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """Findings for a run under DeepSpeed."""
    deepspeed = checkpoint.deepspeed
    if deepspeed is None:
        return [_no_shards(checkpoint, target), *trainer_files(checkpoint, target)]
    found = trainer_files(checkpoint, target)
    if target.universal:
        if deepspeed.universal_tag is None:
            where = checkpoint.path / "latest_universal"
            found.append(
                Finding(
                    "stops",
                    "not-universal",
                    "the run sets checkpoint.load_universal, and this is an ordinary checkpoint",
                    f"ValueError: Invalid for universal checkpoint: {where} does not exist",
                    remediations=(universal(checkpoint, deepspeed), "or leave checkpoint.load_universal out"),
                )
            )
        elif target.stage is not None and target.stage not in deepspeed.universal_stages:
            readable = " and ".join(map(str, deepspeed.universal_stages)) or "none: its folder is absent or incomplete"
            found.append(
                Finding(
                    "stops",
                    "stage",
                    f"the universal checkpoint '{deepspeed.universal_tag}' can be read under ZeRO stage {readable}, "
                    f"and the run uses stage {target.stage}{target.provenance('stage')}",
                    ASSERTION,
                    remediations=("resume under the stage it was saved in", *weights_alone(checkpoint)),
                )
            )
        return found + random_generators(checkpoint, target)
    if deepspeed.universal:
        found.append(
            Finding(
                "stops",
                "universal",
                f"'{deepspeed.tag}' is a universal checkpoint, and the run does not set checkpoint.load_universal",
                remediations=('set "checkpoint": {"load_universal": true} in the run\'s DeepSpeed config',),
            )
        )
    elif deepspeed.tag in deepspeed.tags:
        found += [item for item in (_stage(checkpoint, deepspeed, target),) if item is not None]
        found += [item for item in (_ranks(checkpoint, deepspeed, target),) if item is not None]
        found += [item for item in (_precision(checkpoint, deepspeed, target),) if item is not None]
    return found + random_generators(checkpoint, target)


def _no_shards(checkpoint: Checkpoint, target: Target) -> Finding:
    """A run under DeepSpeed, and a checkpoint without DeepSpeed's folder."""
    why = "there is no folder global_step*: DeepSpeed did not save this, or save_only_model left its state out"
    if target.trainer is True or checkpoint.trainer:
        error = NO_CHECKPOINT.format(path=checkpoint.path)
    else:
        error = "Unable to find latest file at"
        why += "; DeepSpeed's load_checkpoint only warns, and training starts from scratch"
    return Finding("stops", "no-shards", why, error, remediations=weights_alone(checkpoint))


def _stage(checkpoint: Checkpoint, deepspeed: DeepSpeed, target: Target) -> Finding | None:
    """Stages 1 and 2 read each other's files; the others have other files, or other contents."""
    old = "1 or 2" if deepspeed.stage is None else str(deepspeed.stage)
    if target.stage is None:
        return Finding("note", "stage", f"the run must use ZeRO stage {old}; its stage is not known")
    groups = {0: 0, None: 1, 1: 1, 2: 1, 3: 3}
    was, now = groups.get(deepspeed.stage), groups.get(target.stage)
    if was == now:
        return None
    if 3 in (was, now):
        error = ASSERTION
    elif now == 0:
        error = "TypeError: 'NoneType' object is not subscriptable"
    else:
        error = "FileNotFoundError: [Errno 2] No such file or directory"
    return Finding(
        "stops",
        "stage",
        f"saved under ZeRO stage {old}, and the run uses stage {target.stage}{target.provenance('stage')}",
        error,
        remediations=(f"resume under stage {old}", *weights_alone(checkpoint)),
    )


def _ranks(checkpoint: Checkpoint, deepspeed: DeepSpeed, target: Target) -> Finding | None:
    old, processes = deepspeed.world_size, target.world_size
    if old is None:
        return None
    if processes is None:
        return Finding("note", "ranks", f"the run must start {old} data-parallel ranks; how many it starts is unknown")
    new = processes // deepspeed.model_parallel if processes % deepspeed.model_parallel == 0 else processes
    if new == old or deepspeed.stage == 0:
        return None
    return Finding(
        "stops",
        "ranks",
        f"saved by {old} data-parallel ranks, and the run has {new}{target.provenance('world_size')}: DeepSpeed does "
        "not re-partition the optimizer state",
        f"The checkpoint being loaded used a DP world size of {old} but the current world size is {new}.",
        remediations=(
            f"resume on {old * deepspeed.model_parallel} ranks",
            *_other_ranks(checkpoint, deepspeed, target),
        ),
    )


def _other_ranks(checkpoint: Checkpoint, deepspeed: DeepSpeed, target: Target) -> tuple[str, ...]:
    """How to resume on another number of ranks; the conversion where the run's stage can read its result."""
    same = (deepspeed.stage == 3) == (target.stage == 3) and target.stage != 0
    if not (deepspeed.optimizer_files and same):
        return weights_alone(checkpoint)
    return (
        universal(checkpoint, deepspeed),
        USE_UNIVERSAL,
        f"or, without the optimizer state: {to_weights(checkpoint)}",
    )


def _precision(checkpoint: Checkpoint, deepspeed: DeepSpeed, target: Target) -> Finding | None:
    """The names of the optimizer's files begin with bf16_ where the engine trains in bf16, and only there."""
    if deepspeed.half is not None and target.stage == 0 and target.precision is not None:
        if deepspeed.half == (target.precision != "fp32"):
            return None
        was = "bf16 or fp16" if deepspeed.half else "fp32"
        return Finding(
            "stops",
            "precision",
            f"saved in {was}, and the run trains in {target.precision}{target.provenance('precision')}: the "
            "optimizer's state has a different layout",
            "KeyError: 'param_groups'" if deepspeed.half else "KeyError: 'dynamic_loss_scale'",
            remediations=(f"resume in {was}", *weights_alone(checkpoint)),
        )
    if deepspeed.bf16 is None or not deepspeed.optimizer_files:
        return None
    if target.precision is None:
        wanted = "bf16" if deepspeed.bf16 else "fp16 or fp32"
        return Finding("note", "precision", f"the run must train in {wanted}; its precision is not known")
    if (target.precision == "bf16") == deepspeed.bf16:
        return None
    prefix = "bf16_" if target.precision == "bf16" else ""
    return Finding(
        "stops",
        "precision",
        f"saved in {'bf16' if deepspeed.bf16 else 'fp16 or fp32'}, and the run trains in {target.precision}"
        f"{target.provenance('precision')}: DeepSpeed looks for files with other names",
        "FileNotFoundError: [Errno 2] No such file or directory: "
        f"'{checkpoint.path}/{deepspeed.tag}/{prefix}zero_pp_rank_0_mp_rank_00_optim_states.pt'",
        remediations=(
            f"resume in {'bf16' if deepspeed.bf16 else 'the precision it was saved in'}",
            f"or, without the optimizer state: {to_weights(checkpoint)}",
        ),
    )
