"""Edits of launch scripts: what bash makes of every word that was not to change is what it made of it before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

from tests.fuzz.bash import Call, calls, parses
from tests.fuzz.campaign import BrokenError, Campaign, Input
from tests.fuzz.command import zerocfg
from tests.fuzz.scripts import script

TRAIN = """\
from transformers import HfArgumentParser, Trainer, TrainingArguments

(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()
Trainer(model=model, args=args).train()
"""
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
DEEPSPEED = '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}\n'
OTHERS = {
    "train.py": TRAIN,
    "requirements.txt": "transformers==4.46.0\n",
    "acc.yaml": ACCELERATE,
    "ds.json": DEEPSPEED,
}
MIGRATE = ("migrate", "--to", "transformers==5.23.0", "--write", ".")
FIX = ("lint", "--fix", "--unsafe-fixes", ".")
IGNORE = ("lint", "--add-ignore", "--notes", ".")
CONVERT = ("convert", "acc.yaml", "--to", "json", "--write")
COMMANDS = (MIGRATE, MIGRATE, FIX, FIX, IGNORE, CONVERT)

_EDITED = frozenset(
    # what scripts hold for edits to change, and what they may become; the rest of a command has to stay
    "--evaluation_strategy --eval_strategy no --logging_strategie --logging_strategy steps --overwrite_output_dir "
    "--no_cuda --use_cpu --tf32 True False --save_safetensors --per_gpu_train_batch_size --per_device_train_batch_size "
    "2 --group_by_length --train_sampling_strategy group_by_length --warmup_ratio --warmup_steps 0.1 --num_processes "
    "--deepspeed ds.json --num_cpu_threads_per_process 4 --num_proceses --mixed_precison --mixed_precision bf16 "
    "--master_addr --master_port 29500 --rdzv_endpoint :29500 -m torch.distributed.launch --use_env "
    "--average_tokens_across_devices --optim adamw_torch adamw_torch_fused --report_to all none --logging_dir "
    "--nproc_per_node 1 --multi_gpu --use_deepspeed --bf16 --do_train".split()
)
_STARTS = frozenset(("python", "python3", "torchrun"))


def project(random: Random) -> Input:
    return {name: text.encode() for name, text in {**OTHERS, "run.sh": script(random)}.items()}


def kept_words(found: Counter[Call]) -> Counter[Call]:
    """The calls without the words that edits are about, whichever of its names Python is started under."""
    left: Counter[Call] = Counter()
    for (program, *words), count in found.items():
        program, *words = ("python" if word in _STARTS else word for word in (program, *words))
        left[(program, *(word for word in words if word not in _EDITED))] += count
    return left


def check(folder: Path, random: Random) -> None:
    edited(folder, random.choice(COMMANDS))


def edited(folder: Path, words: tuple[str, ...], again: bool = True) -> bool:
    """Whether a command edits the script; raises where that changes what it was not to change."""
    path = folder / "run.sh"
    before = path.read_bytes().decode()
    zerocfg(*words)
    after = path.read_bytes().decode()
    if after == before:
        return False
    if ("\r\n" in before) != ("\r\n" in after) or after.count("\n") != after.count("\r\n") > 0:
        raise BrokenError("line ends are mixed")
    old, new = before.replace("\r\n", "\n"), after.replace("\r\n", "\n")
    if parses(old) and not parses(new):
        raise BrokenError(f"bash does not accept the script any more:\n{after}")
    one, other = calls(old), calls(new)
    if words[0] == "lint" and "--add-ignore" in words and one != other:
        raise BrokenError(f"a comment changes what is started: {one - other} became {other - one}\n{after}")
    if kept_words(one) != kept_words(other):
        gone, come = kept_words(one) - kept_words(other), kept_words(other) - kept_words(one)
        raise BrokenError(f"{dict(gone)} became {dict(come)}:\n{after}")
    unaffected = {call: count for call, count in one.items() if not _starts_training(call)}
    if unaffected != {call: count for call, count in other.items() if not _starts_training(call)}:
        raise BrokenError(f"a program that trains nothing gets other words:\n{after}")
    if again:
        edited(folder, words, again=False)
    return True


def _starts_training(call: Call) -> bool:
    """Whether zerocfg takes a command for a launch line: `python` with `--deepspeed` is one, whatever it runs."""
    return "train.py" in call or "--deepspeed" in call


SHELL_EDITS = Campaign("shell-edits", 400, 5_000, project, check, measured=False)
