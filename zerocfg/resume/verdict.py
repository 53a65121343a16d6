"""Can the run resume from the checkpoint? What stops it in the library's own words, what gets lost, and the way out.

What is said here was observed on real checkpoints with transformers 5.23.0, accelerate 1.15.0 and DeepSpeed 0.19.8
(`tests/resume/test_real.py`), except where a comment names the source that was only read.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from zerocfg.resume.checkpoint import Checkpoint, DeepSpeed, Fsdp
    from zerocfg.resume.target import Target
    from zerocfg.resume.weights import Weights

Effect = Literal["stops", "loses", "note"]
Outcome = Literal["resumes", "resumes with a loss", "does not resume", "described"]
FULL, SHARDED = "FULL_STATE_DICT", "SHARDED_STATE_DICT"
MOST_NAMED = 4
ASSERTION = "AssertionError (state_dict_factory.py: assert len(self.ckpt_list) > 0)"
CUT_OFF = "OSError: [Errno 22] Invalid argument"
DISTRIBUTED = "CheckpointException: CheckpointException ranks:dict_keys(["
NO_CHECKPOINT = "ValueError: Can't find a valid checkpoint at {path}"


@dataclass(frozen=True, slots=True)
class Finding:
    """``words`` are the library's own, or how they begin; ``ways`` are commands or settings that lead out of it.

    ``lost`` names in short what a finding that "loses" costs.
    """

    effect: Effect
    kind: str
    message: str
    words: str = ""
    lost: str = ""
    ways: tuple[str, ...] = ()


@dataclass(slots=True)
class Verdict:
    """``judged`` False: no run was given, or nobody knows what it reads; then only the checkpoint was looked at."""

    findings: list[Finding] = field(default_factory=list)
    judged: bool = True

    @property
    def outcome(self) -> Outcome:
        if any(one.effect == "stops" for one in self.findings):
            return "does not resume"
        if any(one.effect == "loses" for one in self.findings):
            return "resumes with a loss"
        return "resumes" if self.judged else "described"

    @property
    def lost(self) -> list[str]:
        return [one.lost for one in self.findings if one.effect == "loses"]


def judge(checkpoint: Checkpoint, target: Target | None) -> Verdict:
    """Every finding, what stops the run first. Without a target only what is wrong with the checkpoint itself."""
    found = _own_faults(checkpoint, target)
    if target is not None:
        found += _fit(checkpoint, target)
    order = {"stops": 0, "loses": 1, "note": 2}
    seen: dict[tuple[str, str], Finding] = {}
    for one in sorted(found, key=lambda one: order[one.effect]):
        seen.setdefault((one.kind, one.message), one)
    open_question = any(one.kind in ("engine", "loop") for one in found)
    return Verdict(list(seen.values()), judged=target is not None and not open_question)


def quoted(path: object) -> str:
    return shlex.quote(str(path))


def listed(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMED])
    return shown + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


# -- the ways out --------------------------------------------------------------------------------------------------


def universal(checkpoint: Checkpoint, deepspeed: DeepSpeed) -> str:
    """Convert for any number of ranks; stages 1 and 2 cannot read what stage 3 saved, and the other way round."""
    folder = checkpoint.path / deepspeed.tag
    return (
        "python -m deepspeed.checkpoint.ds_to_universal --inject_missing_state "
        f"--input_folder {quoted(folder)} --output_folder {quoted(f'{folder}_universal')}"
    )


USE_UNIVERSAL = 'then set "checkpoint": {"load_universal": true} in the run\'s DeepSpeed config'


def to_weights(checkpoint: Checkpoint) -> str:
    """Whole weights in fp32 from DeepSpeed's shards; the optimizer state stays behind."""
    tag = checkpoint.deepspeed.tag if checkpoint.deepspeed else ""
    chosen = f" --tag {quoted(tag)}" if checkpoint.deepspeed and checkpoint.deepspeed.latest != tag else ""
    script = checkpoint.path / "zero_to_fp32.py"
    start = f"python {quoted(script)}" if checkpoint.converter else "python -m deepspeed.utils.zero_to_fp32"
    weights = quoted(checkpoint.path / "weights")
    return f"{start} {quoted(checkpoint.path)} {weights} --safe_serialization{chosen}"


def merge(checkpoint: Checkpoint) -> str:
    """Whole weights from FSDP's shards."""
    folder, weights = checkpoint.path / "pytorch_model_fsdp_0", checkpoint.path / "weights"
    return f"accelerate merge-weights {quoted(folder)} {quoted(weights)}"


def start_from(folder: object) -> str:
    return f"then start a new run from the weights in {quoted(folder)} (config.json and tokenizer beside them)"


# -- the checkpoint alone ------------------------------------------------------------------------------------------


def _own_faults(checkpoint: Checkpoint, target: Target | None) -> list[Finding]:
    """What is missing or damaged of all that the run would read; without a run of everything."""
    found: list[Finding] = []
    engine = None if target is None else target.engine
    for name, reason in checkpoint.damaged.items():
        words = CUT_OFF if name.endswith(".pt") else ""
        found.append(Finding("stops", "damaged", f"{name} {reason}", words, ways=("take an earlier checkpoint",)))
    deepspeed = checkpoint.deepspeed
    if deepspeed is not None and engine in ("deepspeed", None):
        converted = target is not None and target.universal and deepspeed.universal_tag is not None
        found += [] if converted else _deepspeed_faults(checkpoint, deepspeed)
    if checkpoint.fsdp is not None and engine in ("fsdp", None):
        found += _fsdp_faults(checkpoint.fsdp)
    if checkpoint.weights is not None and engine not in ("deepspeed", "fsdp"):
        found += _weights_faults(checkpoint.weights)
    return found


def _weights_faults(weights: Weights) -> list[Finding]:
    found: list[Finding] = []
    if weights.missing:
        found.append(Finding("stops", "missing", f"the index of the weights names {listed(weights.missing)}, absent"))
    if weights.empty:
        found.append(
            Finding(
                "stops",
                "empty-weights",
                f"{len(weights.empty)} tensors are empty ({listed(weights.empty)}): saved under ZeRO-3 without "
                "gathering them",
            )
        )
    for name, reason in weights.damaged.items():
        words = "SafetensorError: Error while deserializing header"
        found.append(Finding("stops", "damaged", f"{name} {reason}", words, ways=("take an earlier checkpoint",)))
    return found


def _deepspeed_faults(checkpoint: Checkpoint, deepspeed: DeepSpeed) -> list[Finding]:
    found: list[Finding] = []
    others = [tag for tag in deepspeed.tags if tag != deepspeed.tag]
    if deepspeed.latest is None and not deepspeed.universal:
        found.append(
            Finding(
                "stops",
                "no-latest",
                f"there is no file 'latest' that says which tag to load (here: {listed(deepspeed.tags)}); a training "
                "loop of its own is only warned, and starts anew",
                f"ValueError: [deepspeed] failed to resume from checkpoint {checkpoint.path}",
                ways=(f"printf %s {quoted(deepspeed.tags[-1])} > {quoted(checkpoint.path / 'latest')}",)
                if deepspeed.tags
                else (),
            )
        )
    if deepspeed.tag not in deepspeed.tags:
        ways = tuple(f"printf %s {quoted(tag)} > {quoted(checkpoint.path / 'latest')}" for tag in others[-1:])
        found.append(
            Finding(
                "stops",
                "wrong-tag",
                f"'latest' says {deepspeed.tag[:80]!r}, and there is no such folder (here: {listed(others) or 'none'})",
                ASSERTION if others else NO_CHECKPOINT.format(path=checkpoint.path),
                ways=ways or ("take an earlier checkpoint",),
            )
        )
        return found
    if deepspeed.missing:
        ranks = f" of {deepspeed.world_size} ranks" if deepspeed.world_size else ""
        found.append(
            Finding(
                "stops",
                "missing",
                f"{len(deepspeed.missing)} files{ranks} are missing: {listed(deepspeed.missing)}; every node writes "
                "those of its own ranks, so look at the disks of the other nodes",
                "FileNotFoundError: [Errno 2] No such file or directory"
                if all(name.endswith("optim_states.pt") for name in deepspeed.missing)
                else ASSERTION,
                ways=("copy them here, or take an earlier checkpoint",),
            )
        )
    for name, reason in deepspeed.damaged.items():
        found.append(
            Finding(
                "stops",
                "damaged",
                f"{name} {reason}",
                CUT_OFF,
                ways=("take an earlier checkpoint",),
            )
        )
    return found


def _fsdp_faults(fsdp: Fsdp) -> list[Finding]:
    found = []
    if fsdp.missing:
        message = f"{len(fsdp.missing)} files are missing: {listed(fsdp.missing)}"
        ways = ("copy them here from the nodes that wrote them",)
        found.append(Finding("stops", "missing", message, DISTRIBUTED, ways=ways))
    for name, reason in fsdp.damaged.items():
        found.append(Finding("stops", "damaged", f"{name} {reason}", ways=("take an earlier checkpoint",)))
    return found


# -- the checkpoint and the run ------------------------------------------------------------------------------------


def _fit(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    if target.engine == "deepspeed":
        return _into_deepspeed(checkpoint, target)
    if target.engine == "fsdp":
        return _into_fsdp(checkpoint, target)
    if target.engine not in ("ddp", "single"):
        known = (
            "is not known" if target.engine is None else f"is {target.engine}, whose checkpoints zerocfg does not know"
        )
        return [Finding("note", "engine", f"the engine of the run {known}: whether the checkpoint fits is not judged")]
    return _into_plain(checkpoint, target)


def _into_deepspeed(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    deepspeed = checkpoint.deepspeed
    if deepspeed is None:
        return [_no_shards(checkpoint, target), *_trainer_files(checkpoint, target)]
    found = _trainer_files(checkpoint, target)
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
                    f"and the run uses stage {target.stage}{_from(target, 'stage')}",
                    ASSERTION,
                    ways=("resume under the stage it was saved in", *_weights_ways(checkpoint)),
                )
            )
        return found + _generators(checkpoint, target)
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
    return found + _generators(checkpoint, target)


def _no_shards(checkpoint: Checkpoint, target: Target) -> Finding:
    """A run under DeepSpeed, and a checkpoint without DeepSpeed's folder."""
    why = "there is no folder global_step*: DeepSpeed did not save this, or save_only_model left its state out"
    if target.trainer is True or checkpoint.trainer:
        words = NO_CHECKPOINT.format(path=checkpoint.path)
    else:
        words = "Unable to find latest file at"
        why += "; DeepSpeed's load_checkpoint only warns, and the training starts anew"
    return Finding("stops", "no-shards", why, words, ways=_weights_ways(checkpoint))


def _weights_ways(checkpoint: Checkpoint) -> tuple[str, ...]:
    """How to go on with the weights alone."""
    if checkpoint.weights is not None and checkpoint.weights.whole:
        return (f"start a new run from the weights in {quoted(checkpoint.path)}",)
    if checkpoint.fsdp is not None and checkpoint.fsdp.model == SHARDED:
        return (merge(checkpoint), start_from(checkpoint.path / "weights"))
    deepspeed = checkpoint.deepspeed
    if deepspeed is not None and deepspeed.optimizer_files:
        return (to_weights(checkpoint), start_from(checkpoint.path / "weights"))
    return ("take another checkpoint: there are no whole weights in this one",)


def _other_ranks(checkpoint: Checkpoint, deepspeed: DeepSpeed, target: Target) -> tuple[str, ...]:
    """The ways to another number of ranks; the conversion where its result can be read under the run's stage."""
    same = (deepspeed.stage == 3) == (target.stage == 3) and target.stage != 0
    if not (deepspeed.optimizer_files and same):
        return _weights_ways(checkpoint)
    return (
        universal(checkpoint, deepspeed),
        USE_UNIVERSAL,
        f"or, without the optimizer state: {to_weights(checkpoint)}",
    )


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
        f"saved under ZeRO stage {old}, and the run uses stage {target.stage}{_from(target, 'stage')}",
        words,
        ways=(f"resume under stage {old}", *_weights_ways(checkpoint)),
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
        f"saved by {old} data-parallel ranks, and the run has {new}{_from(target, 'world_size')}: DeepSpeed does not "
        "cut the optimizer state anew",
        f"The checkpoint being loaded used a DP world size of {old} but the current world size is {new}.",
        ways=(f"resume on {old * deepspeed.model_parallel} ranks", *_other_ranks(checkpoint, deepspeed, target)),
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
            f"saved in {was}, and the run trains in {target.precision}{_from(target, 'precision')}: the optimizer's "
            "state has another form",
            "KeyError: 'param_groups'" if deepspeed.half else "KeyError: 'dynamic_loss_scale'",
            ways=(f"resume in {was}", *_weights_ways(checkpoint)),
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
        f"{_from(target, 'precision')}: DeepSpeed looks for files of another name",
        "FileNotFoundError: [Errno 2] No such file or directory: "
        f"'{checkpoint.path}/{deepspeed.tag}/{prefix}zero_pp_rank_0_mp_rank_00_optim_states.pt'",
        ways=(
            f"resume in {'bf16' if deepspeed.bf16 else 'the precision it was saved in'}",
            f"or, without the optimizer state: {to_weights(checkpoint)}",
        ),
    )


def _from(target: Target, name: str) -> str:
    origin = target.origins.get(name)
    return f" ({origin})" if origin else ""


def _trainer_files(checkpoint: Checkpoint, target: Target) -> list[Finding]:
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
                ways=_weights_ways(checkpoint),
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
                ways=_weights_ways(checkpoint),
            )
        )
    return found


def _generators(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """The Trainer's random generators: a file a rank, of another name where there is one rank alone."""
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
            f"the run has {ranks} rank{'s' * (ranks > 1)} and {how}: dropout and shuffling continue with other numbers",
            "Didn't find an RNG file",
            lost="random generators",
        )
    ]


def _into_plain(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    """DDP or one process: the Trainer reads whole weights, optimizer.pt and scheduler.pt."""
    engine = "a run without DeepSpeed and FSDP"
    if target.trainer is not True:
        return [Finding("note", "loop", "what a training loop of its own reads is not known to zerocfg")]
    found = _trainer_files(checkpoint, target)
    fsdp, weights = checkpoint.fsdp, checkpoint.weights
    if fsdp is not None and fsdp.model is not None:
        found.append(
            Finding(
                "stops",
                "fsdp",
                f"FSDP saved this, and {engine} does not read it",
                f"ValueError: Checkpoint found at {checkpoint.path} is only supported when using PyTorch FSDP",
                ways=_weights_ways(checkpoint),
            )
        )
    elif weights is None:
        found.append(
            Finding(
                "stops",
                "no-weights",
                f"there is no model.safetensors, and {engine} reads nothing else",
                NO_CHECKPOINT.format(path=checkpoint.path),
                ways=_weights_ways(checkpoint),
            )
        )
    elif not (checkpoint.optimizer and checkpoint.scheduler):
        absent = [
            name
            for name, there in (("optimizer.pt", checkpoint.optimizer), ("scheduler.pt", checkpoint.scheduler))
            if not there
        ]
        where = "; DeepSpeed's shards hold it, which this run does not read" if checkpoint.deepspeed else ""
        found.append(
            Finding(
                "loses",
                "optimizer",
                f"{' and '.join(absent)} absent{where}: the Trainer says nothing, counts on from step "
                f"{checkpoint.step}, and starts both optimizer and learning rate anew",
                lost="optimizer state and learning-rate schedule",
                ways=("save without save_only_model",) if not checkpoint.deepspeed else ("resume under DeepSpeed",),
            )
        )
    return found + _generators(checkpoint, target)


def _into_fsdp(checkpoint: Checkpoint, target: Target) -> list[Finding]:
    found = _trainer_files(checkpoint, target)
    fsdp, wanted = checkpoint.fsdp, target.state_dict_type
    if fsdp is None:
        found.append(
            Finding(
                "stops",
                "not-fsdp",
                "FSDP did not save this: there is neither pytorch_model_fsdp_0 nor pytorch_model_fsdp.bin",
                DISTRIBUTED if wanted == SHARDED else "FileNotFoundError: [Errno 2] No such file or directory",
                ways=_weights_ways(checkpoint),
            )
        )
        return found
    for what, saved in (("model", fsdp.model), ("optimizer", fsdp.optimizer)):
        if wanted is None or saved == wanted:
            continue
        name = "pytorch_model_fsdp" if what == "model" else "optimizer"
        if saved is None and what == "optimizer":
            if fsdp.model == wanted:
                found.append(
                    Finding(
                        "loses", "optimizer", "no optimizer state was saved", lost="optimizer state and learning rates"
                    )
                )
            continue
        missing = f"{name}.bin" if wanted == FULL else f"{name}_0"
        words = (
            f"FileNotFoundError: [Errno 2] No such file or directory: '{checkpoint.path}/{missing}'"
            if wanted == FULL
            else DISTRIBUTED
        )
        found.append(
            Finding(
                "stops",
                "state-dict",
                f"the {what} was saved as {saved or 'nothing'}, and the run reads {wanted}"
                f"{_from(target, 'state_dict_type')}",
                words,
                ways=(f"set fsdp_state_dict_type: {saved or fsdp.model}", *_weights_ways(checkpoint)),
            )
        )
    return found + _generators(checkpoint, target)
