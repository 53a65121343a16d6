"""What the Trainer itself reads, whatever the engine: its state, the schedule, the random generators."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.resume.finding import Finding
from zerocfg.resume.remediations import weights_alone

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint
    from zerocfg.resume.target import Target


def trainer_files(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """What the Trainer itself reads beside weights and optimizer, whatever the engine."""
    if target.trainer is not True:
        return []
    found = []
    if not checkpoint.trainer:
        found.append(
            Finding(
                "stops",
                "no-trainer-state",
                "there is no trainer_state.json: the Trainer did not save this",
                f"FileNotFoundError: [Errno 2] No such file or directory: '{checkpoint.path}/trainer_state.json'",
                remediations=weights_alone(checkpoint),
            )
        )
    shards = checkpoint.deepspeed is not None and target.engine == "deepspeed"
    if shards and not checkpoint.scheduler and not target.own_scheduler:
        found.append(
            Finding(
                "stops",
                "no-scheduler",
                "there is no scheduler.pt, which the Trainer reads where the DeepSpeed config has no scheduler "
                "(save_only_model leaves it out, and under ZeRO-3 without gathered weights saves DeepSpeed's shards)",
                f"FileNotFoundError: [Errno 2] No such file or directory: '{checkpoint.path}/scheduler.pt'",
                remediations=weights_alone(checkpoint),
            )
        )
    return found


def random_generators(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """The Trainer's random generators: one file per rank, under another name for a single rank."""
    saved, ranks = checkpoint.random_ranks, target.world_size
    if not checkpoint.trainer or target.trainer is not True or ranks is None:
        return []
    if saved is not None and (saved == 1) == (ranks == 1) and ranks <= saved:
        return []
    how = "none was saved" if saved is None else f"those of {saved} rank{'s' * (saved > 1)} were saved"
    return [
        Finding(
            "loses",
            "random",
            f"the run has {ranks} rank{'s' * (ranks > 1)} and {how}: dropout and shuffling continue with "
            "other random numbers",
            "Didn't find an RNG file",
            lost="random generators",
        )
    ]


def steps_of_state(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """The steps at which the run logs, evaluates and saves: those of trainer_state.json count."""
    differ = {
        name: (asked, checkpoint.steps[name])
        for name, asked in target.steps.items()
        if name in checkpoint.steps and checkpoint.steps[name] != asked
    }
    if not differ or target.trainer is not True:
        return []
    used = ", ".join(f"{name} {kept} instead of {asked}" for name, (asked, kept) in differ.items())
    return [
        Finding(
            "note",
            "steps",
            f"the steps of trainer_state.json count, not those of the run: {used}",
            remediations=tuple(
                f"write {asked} for {name} in {checkpoint.path}/trainer_state.json"
                for name, (asked, _) in differ.items()
            ),
        )
    ]
