"""Near misses of rules about the words of launch lines and what the shell makes of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from zerocfg.rulebook.pages import page_of

from .files import of
from .table import RULES, Near, judge, rows

if TYPE_CHECKING:
    from pathlib import Path

SCRIPT = page_of(RULES["ZC749"]).bad[0].files["train.py"]
DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
ALONE = "distributed_type: MULTI_GPU\nnum_machines: 1\nnum_processes: 4\n"
JOB = "#SBATCH --nodes=%s\nsrun %s accelerate launch --config_file accelerate.yaml train.py\n"


def trainer(text: str, name: str = "train.sh", script: str = SCRIPT) -> dict[str, str]:
    """A script of the Trainer, and a file with the line that starts it."""
    return {"train.py": script, name: text}


def engine(text: str) -> dict[str, str]:
    """A script that hands its config to DeepSpeed."""
    return {"ds.json": DS, "train.sh": f"{text} --deepspeed_config ds.json\n"}


def job(nodes: str, options: str = "", yaml: str = ALONE) -> dict[str, str]:
    return {"accelerate.yaml": yaml, "train.sh": JOB % (nodes, options)}


LINE = "torchrun --nproc_per_node 2 train.py --output_dir out"
CUT = (
    of("ZC748", "every line is continued", trainer(f"{LINE} \\\n  --bf16 True \\\n  --tf32 True\n")),
    of("ZC748", "a blank behind the backslash", trainer(f"{LINE} \\ \n  --bf16 True\n"))
    .finds("error", "train.sh: --bf16 True", also=("train.sh: train.py",))
    .says("a blank behind the backslash ends the command"),
    of("ZC748", "the Windows command prompt", trainer(f"{LINE} ^\n  --bf16 True\n")),
    of("ZC748", "another command in between", trainer(f"{LINE}\necho done\n  --bf16 True\n")),
    of("ZC748", "a pipe", trainer(f"{LINE} | tee log\n  --bf16 True\n")),
    of("ZC748", "a comment behind the last line", trainer(f"{LINE}\n# --bf16 True\n")),
    of("ZC748", "a page", trainer(f"```bash\n{LINE} \\\n  --seed 1\n  --bf16 True\n```\n", "README.md")).finds(
        "warning", "README.md: --bf16 True", also=("README.md: train.py",)
    ),
    of("ZC748", "a page that lists options", trainer(f"```bash\n{LINE}\n  --bf16 True\n```\n", "README.md")),
    of(
        "ZC748",
        "a page that leaves out options",
        trainer(f"```\n{LINE} \\\n  # ...\n  --bf16 True\n```\n", "README.md"),
    ),
    of(
        "ZC748",
        "a page with explanations",
        trainer(f"```bash\n{LINE} \\ # starts it\n  --bf16 True \\\n  --seed 1\n```\n", "README.md"),
    ),
)
VALUES = (
    of("ZC749", "a boolean with a default stands alone", trainer(f"{LINE} --bf16 --save_steps 10\n")),
    of("ZC749", "one that has None for a default does not", trainer(f"{LINE} --tf32 --save_steps 10\n"))
    .finds("error", "train.sh: --tf32")
    .says("--save_steps follows"),
    of("ZC749", "the last word of the line", trainer(f"{LINE} --save_steps\n"))
    .finds("error", "train.sh: --save_steps")
    .says("nothing follows"),
    of("ZC749", "a variable that nobody set", trainer(f"{LINE} --resume_from_checkpoint $FROM --bf16\n")),
    of("ZC749", "a variable that is empty", trainer(f'FROM=""\n{LINE} --resume_from_checkpoint $FROM --bf16\n')).finds(
        "error", "train.sh: --resume_from_checkpoint"
    ),
    of("ZC749", "joined with what looks like an option", trainer(f"{LINE} --run_name=--bf16 --tf32 true\n")),
    of("ZC749", "an empty word", trainer(f'{LINE} --resume_from_checkpoint "" --bf16\n')),
    of("ZC749", "a negative number", trainer(f"{LINE} --max_steps -1 --bf16\n")),
    of("ZC749", "words that begin with a dash", trainer(f'{LINE} --run_name "- a run" --bf16\n')),
    of(
        "ZC749",
        "a script that nobody can read",
        {"train.sh": f"{LINE} --resume_from_checkpoint --deepspeed ds.json\n", "ds.json": DS},
        "transformers",
    ),
    *(
        of(
            "ZC749",
            f"a number or a choice of accelerate: {words}",
            {"train.sh": f"accelerate launch {words} train.py\n"},
        )
        .finds("error", f"train.sh: {words.split()[0]}")
        .says(f"{words.split()[1]} follows: the parser stops")
        for words in ("--zero_stage --num_processes 8", "--mixed_precision --num_machines 1", "--num_processes --cpu")
    ),
    of(
        "ZC749",
        "a choice that has its value",
        {"train.sh": "accelerate launch --mixed_precision=bf16 --cpu train.py\n"},
    ),
    of(
        "ZC711",
        "an option without a value, which stops before",
        {"train.sh": "accelerate launch --zero_stage --cpu t.py\n"},
    ),
    of("ZC719", "the same", {"train.sh": "accelerate launch --zero_stage --num_processes 8 train.py\n"}),
    of("ZC749", "a switch of the launcher", engine("torchrun --standalone --nproc_per_node 2 train.py")),
    of(
        "ZC749",
        "a switch of a config of TRL",
        {
            "train.sh": "torchrun --nproc_per_node 2 sft.py --output_dir out --packing --max_length 64\n",
            "sft.py": page_of(RULES["ZC854"]).bad[0].files["sft.py"],
        },
    ),
)
UNSET = (
    of("ZC750", "nothing of that name", engine("export GPUS=2\ntorchrun --nproc_per_node $NGPU train.py")),
    of(
        "ZC750",
        "the other one is used",
        engine("export N_GPU=2\necho $N_GPU\ntorchrun --nproc_per_node $NGPU train.py"),
    ),
    of(
        "ZC750",
        "it is set in a branch",
        engine("export N_GPU=2\nif true; then NGPU=1; fi\ntorchrun --nproc_per_node $NGPU train.py"),
    ),
    of("ZC750", "it has a default", engine("export N_GPU=2\ntorchrun --nproc_per_node ${NGPU:-1} train.py")),
    of(
        "ZC750",
        "another file is read",
        engine("source env.sh\nexport N_GPU=2\ntorchrun --nproc_per_node $NGPU train.py"),
    ),
    of(
        "ZC750",
        "a comment asks for it",
        engine("# set NGPU yourself\nexport N_GPU=2\ntorchrun --nproc_per_node $NGPU train.py"),
    ),
    of(
        "ZC750",
        "a scheduler sets it",
        engine("export MASTERPORT=2\ntorchrun --master_port $MASTER_PORT --nproc_per_node 2 train.py"),
    ),
    of("ZC750", "one letter of a long name", engine("PROCESSES=2\ntorchrun --nproc_per_node $PROCESES train.py"))
    .finds("warning", "train.sh: --nproc_per_node $PROCESES", also=("train.sh: PROCESSES",))
    .becomes("--nproc_per_node $PROCESSES"),
    of("ZC750", "numbered names", engine("MACHINE1=2\ntorchrun --nproc_per_node $MACHINE2 train.py")),
    of("ZC750", "braces", engine("N_GPU=2\ntorchrun --nproc_per_node ${NGPU} train.py"))
    .finds("warning", "train.sh: --nproc_per_node ${NGPU}", also=("train.sh: N_GPU",))
    .becomes("--nproc_per_node ${N_GPU}"),
)
NODES = (
    of("ZC751", "one node", job("1")),
    of("ZC751", "a range of nodes", job("1-2")),
    of("ZC751", "a step of one node", job("2", "-N 1 -n 1")),
    of("ZC751", "one task in all", {**job("2"), "train.sh": "#SBATCH --ntasks=1\n" + job("2")["train.sh"]}),
    of(
        "ZC751",
        "without srun: on the first node alone",
        {**job("2"), "train.sh": job("2")["train.sh"].replace("srun", "exec")},
    ),
    of("ZC751", "two machines", job("2", yaml=ALONE.replace("machines: 1", "machines: 2"))),
    of(
        "ZC751",
        "the line says so",
        {**job("2"), "train.sh": job("2")["train.sh"].replace("train.py", "--num_machines $SLURM_NNODES train.py")},
    ),
    of("ZC751", "nodes of torchrun", engine("#SBATCH -N 2\nsrun torchrun --nnodes 2 --nproc_per_node 2 train.py")),
    of("ZC751", "a comment", engine("##SBATCH -N 2\nsrun torchrun --nproc_per_node 2 train.py")),
    of("ZC751", "four nodes", job("4")).finds(
        "error", "accelerate.yaml: num_machines: 1", 4, 4, also=("train.sh: #SBATCH --nodes=4",)
    ),
)
BEHIND = (
    of("ZC752", "before the command", trainer(f"NCCL_DEBUG=INFO {LINE}\n")),
    of("ZC752", "the value of an option", trainer(f"{LINE} --run_name NCCL_DEBUG=INFO\n")),
    of("ZC752", "a word of the project's own", trainer(f"{LINE} MODEL=INFO\n")),
    of("ZC752", "a script that nobody can read", engine("torchrun --nproc_per_node 2 train.py NCCL_DEBUG=INFO")),
    of("ZC752", "set by env", trainer(f"srun env NAME=1 {LINE}\n")),
    of("ZC752", "a value that srun exports", trainer(f"srun --export NAME=1 {LINE}\n")),
    of("ZC752", "a program for srun", trainer(f"srun NAME=1 OTHER=2 {LINE}\n"))
    .finds("error", "train.sh: NAME=1", 1)
    .becomes(f"srun env NAME=1 OTHER=2 {LINE}\n"),
    of("ZC752", "two of them", trainer(f"{LINE} NCCL_DEBUG=INFO OMP_NUM_THREADS=4\n"))
    .finds("error", "train.sh: NCCL_DEBUG=INFO")
    .finds("error", "train.sh: OMP_NUM_THREADS=4"),
)
TWICE = (
    of("ZC753", "a training argument with the same value", trainer(f"{LINE} --seed 1 --seed 1\n")),
    of("ZC753", "three values", trainer(f"{LINE} --seed 1 --seed 2 --seed 3\n"))
    .finds("warning", "train.sh: --seed 1", 1, 3, also=("train.sh: --seed 3",))
    .finds("warning", "train.sh: --seed 2", 2, 3, also=("train.sh: --seed 3",)),
    of("ZC753", "an option of nobody's that is known", trainer(f"{LINE} --extra 1 --extra 2\n")),
    of("ZC753", "a list of values", trainer(f"{LINE} --label_names a b --label_names c\n")),
    of("ZC753", "a variable", trainer(f"{LINE} --seed $SEED --seed 2\n")),
    of("ZC753", "a parser of its own", engine("torchrun --nproc_per_node 2 train.py --seed 1 --seed 2")),
)
STANDALONE = (
    of(
        "ZC738",
        "a number that nobody knows, and a rank",
        trainer(LINE.replace("--nproc", "--standalone --nnodes=$NODES --node_rank=$NODE --nproc") + "\n"),
    ).finds("warning", "train.sh: --standalone", 1, also=("train.sh: --nnodes=$NODES", "train.sh: --node_rank=$NODE")),
    of("ZC738", "no rank", trainer(LINE.replace("--nproc", "--standalone --nnodes=$NODES --nproc") + "\n")),
    of(
        "ZC738",
        "the first rank alone",
        trainer(LINE.replace("--nproc", "--standalone --nnodes=$NODES --node_rank 0 --nproc") + "\n"),
    ),
    of(
        "ZC738",
        "a default of one machine",
        trainer(LINE.replace("--nproc", "--standalone --nnodes=${NODES:-1} --node_rank=$NODE --nproc") + "\n"),
    ),
)
RECIPE = page_of(RULES["ZC854"]).bad[0].files


def recipe(old: str, new: str, **files: str) -> dict[str, str]:
    return {**RECIPE, "recipe.yaml": RECIPE["recipe.yaml"].replace(old, new), **files}


OUTDENTED = (
    of("ZC854", "indented", recipe("use_reentrant", "  use_reentrant"), "trl"),
    of("ZC854", "an empty mapping by its own word", recipe("kwargs:", "kwargs: {}"), "trl"),
    of("ZC854", "null by its own word", recipe("kwargs:", "kwargs: null"), "trl"),
    of("ZC854", "an argument follows", recipe("use_reentrant: false", "bf16: true"), "trl"),
    of(
        "ZC854",
        "a script that nobody can read",
        {name: text for name, text in RECIPE.items() if not name.endswith(".py")},
        "trl",
    ),
    of(
        "ZC854",
        "two entries",
        recipe("use_reentrant: false\n", "use_reentrant: false\npreserve: true\nbf16: true\n"),
        "trl",
    )
    .finds("error", "recipe.yaml: use_reentrant", also=("recipe.yaml: gradient_checkpointing_kwargs",))
    .becomes("kwargs:\n  use_reentrant: false\n  preserve: true\nbf16: true\n"),
)


@pytest.mark.parametrize("one", rows([*CUT, *VALUES, *UNSET, *NODES, *BEHIND, *TWICE, *STANDALONE, *OUTDENTED]))
def test_near(one: Near, tmp_path: Path) -> None:
    judge(one, tmp_path)
