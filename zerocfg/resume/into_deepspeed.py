"""Whether a run under DeepSpeed can read a checkpoint: stage, ranks, precision, universal or not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.resume.finding import ASSERTION, NO_CHECKPOINT, Finding
from zerocfg.resume.trainer_files import random_generators, trainer_files
from zerocfg.resume.ways import USE_UNIVERSAL, to_weights, universal, weights_alone

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint, DeepSpeed
    from zerocfg.resume.target import Target


def into_deepspeed(checkpoint: Checkpoint, target: Target) -> list[Finding]:
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
                    ways=(universal(checkpoint, deepspeed), "or leave checkpoint.load_universal out"),
                )
            )
        elif target.stage is not None and target.stage not in deepspeed.universal_stages:
            readable = " and ".join(map(str, deepspeed.universal_stages)) or "none: its folder is absent or incomplete"
            found.append(
                Finding(
                    "stops",
                    "stage",
                    f"the universal checkpoint '{deepspeed.universal_tag}' can be read under ZeRO stage {readable}, "
                    f"and the run uses stage {target.stage}{target.told('stage')}",
                    ASSERTION,
                    ways=("resume under the stage it was saved in", *weights_alone(checkpoint)),
                )
            )
        return found + random_generators(checkpoint, target)
    if deepspeed.universal:
        found.append(
            Finding(
                "stops",
                "universal",
                f"'{deepspeed.tag}' is a universal checkpoint, and the run does not set checkpoint.load_universal",
                ways=('set "checkpoint": {"load_universal": true} in the run\'s DeepSpeed config',),
            )
        )
    elif deepspeed.tag in deepspeed.tags:
        found += [one for one in (_stage(checkpoint, deepspeed, target),) if one is not None]
        found += [one for one in (_ranks(checkpoint, deepspeed, target),) if one is not None]
        found += [one for one in (_precision(checkpoint, deepspeed, target),) if one is not None]
    return found + random_generators(checkpoint, target)


def _no_shards(checkpoint: Checkpoint, target: Target) -> Finding:
    """A run under DeepSpeed, and a checkpoint without DeepSpeed's folder."""
    why = "there is no folder global_step*: DeepSpeed did not save this, or save_only_model left its state out"
    if target.trainer is True or checkpoint.trainer:
        words = NO_CHECKPOINT.format(path=checkpoint.path)
    else:
        words = "Unable to find latest file at"
        why += "; DeepSpeed's load_checkpoint only warns, and the training starts anew"
    return Finding("stops", "no-shards", why, words, ways=weights_alone(checkpoint))


def _stage(checkpoint: Checkpoint, deepspeed: DeepSpeed, target: Target) -> Finding | None:
    """1 and 2 read each other; everything else has other files, or other contents."""
    old = "1 or 2" if deepspeed.stage is None else str(deepspeed.stage)
    if target.stage is None:
        return Finding("note", "stage", f"the run must use ZeRO stage {old}; its stage is not known")
    groups = {0: 0, None: 1, 1: 1, 2: 1, 3: 3}
    was, now = groups.get(deepspeed.stage), groups.get(target.stage)
    if was == now:
        return None
    if 3 in (was, now):
        words = ASSERTION
    elif now == 0:
        words = "TypeError: 'NoneType' object is not subscriptable"
    else:
        words = "FileNotFoundError: [Errno 2] No such file or directory"
    return Finding(
        "stops",
        "stage",
        f"saved under ZeRO stage {old}, and the run uses stage {target.stage}{target.told('stage')}",
        words,
        ways=(f"resume under stage {old}", *weights_alone(checkpoint)),
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
        f"saved by {old} data-parallel ranks, and the run has {new}{target.told('world_size')}: DeepSpeed does not "
        "cut the optimizer state anew",
        f"The checkpoint being loaded used a DP world size of {old} but the current world size is {new}.",
        ways=(f"resume on {old * deepspeed.model_parallel} ranks", *_other_ranks(checkpoint, deepspeed, target)),
    )


def _other_ranks(checkpoint: Checkpoint, deepspeed: DeepSpeed, target: Target) -> tuple[str, ...]:
    """The ways to another number of ranks; the conversion where its result can be read under the run's stage."""
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
            f"saved in {was}, and the run trains in {target.precision}{target.told('precision')}: the optimizer's "
            "state has another form",
            "KeyError: 'param_groups'" if deepspeed.half else "KeyError: 'dynamic_loss_scale'",
            ways=(f"resume in {was}", *weights_alone(checkpoint)),
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
        f"{target.told('precision')}: DeepSpeed looks for files of another name",
        "FileNotFoundError: [Errno 2] No such file or directory: "
        f"'{checkpoint.path}/{deepspeed.tag}/{prefix}zero_pp_rank_0_mp_rank_00_optim_states.pt'",
        ways=(
            f"resume in {'bf16' if deepspeed.bf16 else 'the precision it was saved in'}",
            f"or, without the optimizer state: {to_weights(checkpoint)}",
        ),
    )
