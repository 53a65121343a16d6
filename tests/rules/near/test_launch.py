"""Near misses of `zerocfg.rules.launch`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from .files import of
from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

PAGE = "```bash\ntorchrun --nproc_per_node 2 train.py --deepspeed %s --output_dir out\n```\n"
ZERO2 = '{"train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}}\n'
ENGINE = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
POINTING = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: %s\n"
DEVICES = "distributed_type: MULTI_GPU\nnum_processes: %s\n"
PLAIN = "distributed_type: 'NO'\nnum_processes: %s\n"
ELSEWHERE = "torchrun --nproc_per_node 2 train/train.py --deepspeed scripts/zero2.json --output_dir out\n"
START = "accelerate launch --config_file accelerate.yaml %strain.py\n"
WRITES = "NEW=new.json\n%storchrun --nproc_per_node 2 train.py --deepspeed $NEW --output_dir out\n"
NEIGHBOUR = "accelerate launch --config_file {}b.yaml {}train.py\n"
DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n'
CLUSTER = "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\n"
MEETING = CLUSTER + "main_process_ip: 10.0.0.1\nmain_process_port: 29500\n"
HOSTS = "worker-0 slots=8\nworker-1 slots=8\n"
LOGGED = "accelerate launch --config_file conf/a.yaml train.py 2>&1 | tee log.txt\n"
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"


def accelerate(yaml: str, options: str = "", behind: str = "", before: str = "") -> dict[str, str]:
    """An accelerate config with a line that uses it."""
    line = before + START % options
    return {"accelerate.yaml": yaml, "train.sh": line.replace("train.py", f"train.py{behind}")}


def swift(line: str) -> dict[str, str]:
    """A line of ms-swift, with a DeepSpeed config that it may name."""
    return {"ds.json": DS, "train.sh": f"{line} --model org/name --dataset data --output_dir out\n"}


def engine(line: str, ds: str = DS) -> dict[str, str]:
    """A script that hands its config to DeepSpeed."""
    return {"ds.json": ds, "train.sh": f"{line} train.py --deepspeed_config ds.json\n"}


def trainer(line: str) -> dict[str, str]:
    """A script of the Trainer's kind; ``line`` starts it and gives what is special."""
    return {"ds.json": DS, "train.sh": f"{line} --deepspeed ds.json --output_dir out\n"}


LINE = (
    of(
        "ZC717", "python has no options that could stand there", trainer("python train.py --num_gpus 2"), "transformers"
    ),
    of(
        "ZC717",
        "another launcher's option",
        trainer("torchrun --nproc_per_node 2 train.py --zero_stage 2"),
        "transformers",
    ),
    of("ZC717", "no launcher's option", trainer("torchrun --nproc_per_node 2 train.py --seed 2"), "transformers"),
    of("ZC717", "one dash only", trainer("torchrun --nproc_per_node 2 train.py -nnodes 2"), "transformers"),
    of(
        "ZC717",
        "the launcher has it, so the script declares its own",
        trainer("torchrun --nproc_per_node 2 train.py --nproc_per_node 2"),
        "transformers",
    ),
    of("ZC717", "torchrun's", trainer("torchrun train.py --nproc-per-node 2"), "transformers").finds(
        "error", "train.sh: --nproc-per-node 2"
    ),
    of("ZC717", "the runner's", trainer("deepspeed train.py --num_gpus 2"), "transformers").finds(
        "error", "train.sh: --num_gpus 2"
    ),
    of("ZC718", "python takes both", engine("python -W ignore -W error")),
    of("ZC718", "no values", accelerate(ENGINE, "--debug --debug ")),
    of("ZC718", "the same value", accelerate(ENGINE, "--num_processes 4 --num_processes 4 ")),
    of("ZC718", "the earlier value is not known", accelerate(ENGINE, "--num_processes $N --num_processes 4 ")),
    of("ZC718", "the later value is not known", accelerate(ENGINE, "--num_processes 4 --num_processes $N ")),
    of("ZC718", "torchrun, two spellings", engine("torchrun --nproc_per_node 4 --nproc-per-node 2")).finds(
        "warning", "train.sh: --nproc_per_node 4", 4, 2, also=("train.sh: --nproc-per-node 2",)
    ),
    of("ZC718", "three times", accelerate(ENGINE, "--num_processes 4 --num_processes 8 --num_processes 2 "))
    .finds("warning", "train.sh: --num_processes 4", 4, 2, also=("train.sh: --num_processes 2",))
    .finds("warning", "train.sh: --num_processes 8", 8, 2, also=("train.sh: --num_processes 2",)),
    of("ZC719", "another launcher", engine("torchrun --nproc_per_node 2 --zero_stage 2")),
    of("ZC719", "a variable may hold the switch", {"train.sh": "accelerate launch $MORE --zero_stage 2 train.py\n"}),
    of(
        "ZC719",
        "the config is not there",
        {"train.sh": "accelerate launch --config_file gone.yaml --zero_stage 2 train.py\n"},
    ),
    of("ZC719", "no distributed_type", accelerate("num_processes: 2\n", "--zero_stage 2 ")),
    of("ZC719", "the config chooses DeepSpeed", accelerate(ENGINE, "--zero_stage 1 ")),
    of(
        "ZC719",
        "the config chooses FSDP",
        accelerate("distributed_type: FSDP\nnum_processes: 2\n", "--fsdp_offload_params true "),
    ),
    of("ZC719", "FSDP's options under DeepSpeed", accelerate(ENGINE, "--fsdp_offload_params true ")).finds(
        "warning", "train.sh: --fsdp_offload_params true"
    ),
    of("ZC719", "a switch replaces the config's engine", accelerate(ENGINE, "--use_fsdp --zero_stage 1 ")).finds(
        "warning", "train.sh: --zero_stage 1"
    ),
    of("ZC719", "several options, told once", accelerate(DEVICES % 2, "--zero_stage 2 --zero3_init_flag true ")).finds(
        "error", "train.sh: --zero_stage 2"
    ),
    of("ZC719", "two engines' options", accelerate(DEVICES % 2, "--zero_stage 2 --fsdp_version 2 "))
    .finds("error", "train.sh: --zero_stage 2")
    .finds("error", "train.sh: --fsdp_version 2"),
    of("ZC719", "on the CPU nobody expects an engine", accelerate(PLAIN % 1, "--cpu --zero_stage 2 ")),
    of("ZC719", "on a TPU", accelerate(PLAIN % 1, "--tpu --zero_stage 2 ")),
)


def beside_file(options: str, ds: str) -> dict[str, str]:
    line = f"accelerate launch --use_deepspeed --num_processes 1 {options} --deepspeed_config_file ds.json train.py\n"
    return {"ds.json": ds, "train.sh": line}


BESIDE = (
    of("ZC720", "the same stage", beside_file("--zero_stage 2", DS), "accelerate"),
    of("ZC720", "the key is not in the file", beside_file("--gradient_clipping 1.0", DS), "accelerate"),
    of("ZC720", "not known", beside_file("--zero_stage $STAGE", DS), "accelerate"),
    of(
        "ZC720",
        "the same number in other words",
        beside_file("--gradient_clipping 1", DS[:-2] + ', "gradient_clipping": 1.0}\n'),
        "accelerate",
    ),
    of(
        "ZC720",
        "another number",
        beside_file("--gradient_clipping 0.5", DS[:-2] + ', "gradient_clipping": 1.0}\n'),
        "accelerate",
    ).finds("error", "train.sh: --gradient_clipping 0.5", "0.5", "1.0", also=('ds.json: "gradient_clipping": 1.0',)),
    of(
        "ZC720",
        "the same truth",
        beside_file(
            "--zero3_save_16bit_model True", DS.replace("2}", '3, "stage3_gather_16bit_weights_on_model_save": true}')
        ),
        "accelerate",
    ),
    of(
        "ZC720",
        "the other truth",
        beside_file(
            "--zero3_save_16bit_model false", DS.replace("2}", '3, "stage3_gather_16bit_weights_on_model_save": true}')
        ),
        "accelerate",
    ).finds(
        "error",
        "train.sh: --zero3_save_16bit_model false",
        also=('ds.json: "stage3_gather_16bit_weights_on_model_save": true',),
    ),
    of(
        "ZC720",
        "devices",
        beside_file(
            "--offload_optimizer_device cpu --offload_param_device none",
            DS.replace("2}", '3, "offload_optimizer": {"device": "none"}, "offload_param": {"device": "none"}}'),
        ),
        "accelerate",
    ).finds("error", "train.sh: --offload_optimizer_device cpu", also=('ds.json: "device": "none"',)),
    of(
        "ZC720",
        "a section, which DeepSpeed refuses",
        beside_file("--gradient_clipping 1.0", DS[:-2] + ', "gradient_clipping": {"value": 0.5}}\n'),
        "accelerate",
    ),
    of("ZC720", "DeepSpeed reads the file itself", beside_file("--zero_stage 1", DS), "deepspeed"),
    of("ZC720", "the script names the file", trainer("torchrun --nproc_per_node 2 train.py"), "transformers"),
    of("ZC721", "no engine to lose", accelerate(PLAIN % 1, "--cpu ")),
    of(
        "ZC721", "several processes on the CPU", accelerate("distributed_type: MULTI_CPU\nnum_processes: 2\n", "--cpu ")
    ),
    of("ZC721", "no config", {"train.sh": "accelerate launch --cpu train.py\n"}),
    of("ZC721", "devices without an engine are lost too", accelerate(DEVICES % 2, "--cpu ")).finds(
        "error", "train.sh: --cpu", also=("accelerate.yaml: distributed_type: MULTI_GPU",)
    ),
    of("ZC722", "one process", {"accelerate.yaml": PLAIN % 1}),
    of("ZC722", "two processes", {"accelerate.yaml": PLAIN % 2}).finds(
        "error", "accelerate.yaml: num_processes: 2", 2, 2, also=("accelerate.yaml: distributed_type: 'NO'",)
    ),
    of("ZC722", "on the line", accelerate(PLAIN % 1, "--num_processes 3 ")).finds(
        "error", "train.sh: --num_processes 3", 3, 3, also=("accelerate.yaml: distributed_type: 'NO'",)
    ),
    of("ZC722", "a switch starts them", accelerate(PLAIN % 4, "--multi_gpu ")),
    of("ZC722", "a switch chooses an engine", accelerate(PLAIN % 4, "--use_deepspeed ")),
    of("ZC722", "on a TPU", accelerate(PLAIN % 4, "--tpu ")),
    of(
        "ZC722",
        "mpirun starts them",
        {"accelerate.yaml": "distributed_type: MULTI_CPU\nnum_processes: 4\nmpirun_config: {mpirun_hostfile: hosts}\n"},
    ),
    of(
        "ZC722",
        "mpirun by an option",
        accelerate("distributed_type: MULTI_CPU\nnum_processes: 4\n", "--mpirun_hostfile hosts "),
    ),
)

MACHINES = (
    of("ZC704", "as many processes as machines", {"accelerate.yaml": MEETING.replace("8", "2")}),
    of("ZC704", "one machine", {"accelerate.yaml": DEVICES % 7 + "num_machines: 1\n"}),
    of("ZC704", "machines not said", {"accelerate.yaml": DEVICES % 7}),
    of(
        "ZC704",
        "one plain process a machine",
        {"accelerate.yaml": MEETING.replace("MULTI_GPU", "'NO'").replace("8", "7")},
    ),
    of("ZC704", "no processes", {"accelerate.yaml": MEETING.replace("8", "0")}),
    of("ZC704", "fewer processes than machines", {"accelerate.yaml": MEETING.replace("8", "1")}).finds(
        "error", "accelerate.yaml: num_processes: 1", 1, 2, 0, 0
    ),
    of("ZC704", "on the line", accelerate(MEETING, "--num_processes 9 "))
    .finds("error", "train.sh: --num_processes 9", 9, 2, 4, 8)
    .becomes("--num_processes 10 "),
    of("ZC705", "one machine", accelerate(DEVICES % 8 + "num_machines: 1\n")),
    of("ZC705", "the line names it", accelerate(CLUSTER, "--main_process_ip 10.0.0.1 ")),
    of("ZC705", "no line to look at", {"accelerate.yaml": CLUSTER}).finds(
        "note", "accelerate.yaml: num_machines: 2", 2, 0
    ),
    *(
        of(
            "ZC705",
            why,
            {"accelerate.yaml": CLUSTER, f"{other}b.yaml": MEETING, "train.sh": NEIGHBOUR.format(other, options)},
        )
        for why, other, options in (("a line names it for its neighbour", "", "--main_process_ip $MASTER_ADDR "),)
    ),
    *(
        of(
            "ZC705",
            why,
            {"accelerate.yaml": CLUSTER, f"{other}b.yaml": MEETING, "train.sh": NEIGHBOUR.format(other, options)},
        ).finds("note", "accelerate.yaml: num_machines: 2", 2, 0)
        for why, other, options in (
            ("no line names it for its neighbour", "", ""),
            ("a line names it for one of another folder", "more/", "--main_process_ip $MASTER_ADDR "),
        )
    ),
    # accelerate 1.15.0: torchrun refuses ":29500", also with `same_network`
    of("ZC705", "an empty address", accelerate(CLUSTER + "main_process_ip: ''\n")).finds(
        "error", "accelerate.yaml: main_process_ip: ''", 2, 0
    ),
    of(
        "ZC705", "an empty address and no line to look at", {"accelerate.yaml": CLUSTER + "main_process_ip: ''\n"}
    ).finds("note", "accelerate.yaml: main_process_ip: ''", 2, 0),
    of("ZC705", "an empty one on one machine", accelerate(DEVICES % 8 + "main_process_ip: ''\n")),
    of(
        "ZC705", "an empty one, and the line's", accelerate(CLUSTER + "main_process_ip: ''\n", "--main_process_ip $IP ")
    ),
    of("ZC104", "an empty port of a later machine", accelerate(MEETING[:-6] + "''\nmachine_rank: 1\n")).finds(
        "error", "accelerate.yaml: ''"
    ),
    of("ZC104", "an empty port of some machine", accelerate(MEETING[:-6] + "''\n", "--machine_rank $RANK ")).finds(
        "error", "accelerate.yaml: ''"
    ),
    of("ZC104", "digits as a text for a later machine", accelerate(MEETING[:-6] + "'29500'\nmachine_rank: 1\n")),
    of("ZC705", "the runner asks its hosts", accelerate(ENGINE + "num_machines: 2\n")),
    of(
        "ZC705",
        "torchrun for DeepSpeed",
        accelerate(ENGINE + "  deepspeed_multinode_launcher: standard\nnum_machines: 2\n"),
    ).finds("error", "accelerate.yaml: num_machines: 2", 2, 0),
    of(
        "ZC705",
        "plain processes, which check it",
        accelerate(PLAIN % 2 + "num_machines: 2\n"),
    ).finds("error", "accelerate.yaml: num_machines: 2", 2, 0),
    of("ZC705", "machines on the line", accelerate(DEVICES % 8, "--num_machines 2 ")).finds(
        "error", "train.sh: --num_machines 2", 2, 0
    ),
    of("ZC705", "the same network helps nobody without an address", accelerate(CLUSTER, "--same_network ")).finds(
        "error", "accelerate.yaml: num_machines: 2", 2, 0
    ),
    of("ZC709", "one machine", accelerate(ENGINE + "num_machines: 1\n")),
    of("ZC709", "a hostfile", accelerate(ENGINE + "  deepspeed_hostfile: hostfile\nnum_machines: 2\n")),
    of("ZC709", "a hostfile on the line", accelerate(ENGINE + "num_machines: 2\n", "--deepspeed_hostfile hostfile ")),
    of("ZC709", "no DeepSpeed", accelerate(MEETING)),
    of("ZC709", "no line to look at", {"accelerate.yaml": ENGINE + "num_machines: 2\n"}).finds(
        "warning", "accelerate.yaml: num_machines: 2", 2
    ),
    of(
        "ZC709",
        "the launcher is named",
        accelerate(ENGINE + "  deepspeed_multinode_launcher: pdsh\nnum_machines: 2\n"),
    ).finds("error", "accelerate.yaml: num_machines: 2", 2),
    of(
        "ZC709",
        "its fix writes into an empty section",
        accelerate("distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {}\nnum_machines: 2\n"),
    )
    .finds("error", "accelerate.yaml: num_machines: 2", 2)
    .becomes("deepspeed_config: {deepspeed_multinode_launcher: standard}"),
    of("ZC710", "all devices", {"accelerate.yaml": DEVICES % 4 + "gpu_ids: all\n"}),
    of("ZC710", "one process", {"accelerate.yaml": PLAIN % 1 + "gpu_ids: '0'\n"}),
    of("ZC710", "one device too few", {"accelerate.yaml": DEVICES % 3 + "gpu_ids: 0,1\n"}).finds(
        "error", "accelerate.yaml: gpu_ids: 0,1", 2, "0,1", 3, 3, also=("accelerate.yaml: num_processes: 3",)
    ),
    of("ZC710", "one device and two processes", {"accelerate.yaml": ENGINE + "gpu_ids: '0'\n"}).finds(
        "error", "accelerate.yaml: gpu_ids: '0'", 1, 0, 2, 2, also=("accelerate.yaml: num_processes: 2",)
    ),
    of("ZC710", "a comma at the end names no device", {"accelerate.yaml": DEVICES % 2 + "gpu_ids: 0,1,\n"}),
    of("ZC710", "accelerate counts them itself", {"accelerate.yaml": DEVICES % 2 + "gpu_ids: '0'\n"}).finds(
        "error", "accelerate.yaml: gpu_ids: '0'", 0
    ),
    of("ZC710", "without a config", {"train.sh": "accelerate launch --num_processes 4 --gpu_ids 0,1 train.py\n"}),
    of("ZC715", "the last rank", {"accelerate.yaml": MEETING + "machine_rank: 1\n"}),
    of("ZC715", "rank 0 of one machine", {"accelerate.yaml": ENGINE + "machine_rank: 0\n"}),
    of("ZC715", "one machine", {"accelerate.yaml": ENGINE + "machine_rank: 1\n"}).finds(
        "note", "accelerate.yaml: machine_rank: 1", 1, 1, 0, 0, 0
    ),
    of("ZC715", "on the line", accelerate(MEETING, "--machine_rank 2 ")).finds(
        "error", "train.sh: --machine_rank 2", 2, 2, 0, 0, 1
    ),
    of("ZC715", "without a config", {"train.sh": "accelerate launch --num_machines 2 --machine_rank 2 train.py\n"}),
    of("ZC715", "torchrun, the last rank", engine("torchrun --nnodes 2 --node_rank 1 --master_addr 10.0.0.1")),
    of("ZC715", "torchrun on one machine", engine("torchrun --nnodes 1 --node_rank 1")),
    of("ZC715", "torchrun, machines not said", engine("torchrun --node_rank 2")),
    of("ZC716", "said as it should be", {"accelerate.yaml": "compute_environment: LOCAL_MACHINE\n" + ENGINE}),
    of("ZC716", "a word that was meant as a note", {"accelerate.yaml": "compute_environment: AWS\n" + ENGINE}).finds(
        "error", "accelerate.yaml: compute_environment: AWS", "1.15.0"
    ),
)

WITH_FILE = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
AUTO = DS.replace('_per_gpu": 1', '_per_gpu": "auto"')

CONFIG = (
    of("ZC701", "one plain process needs no number", {"accelerate.yaml": "distributed_type: 'NO'\n"}),
    of("ZC701", "the line gives it", accelerate("distributed_type: MULTI_GPU\n", "--num_processes 2 ")),
    of("ZC701", "-1, which is what accelerate writes for it", {"accelerate.yaml": DEVICES % -1}).finds(
        "note", "accelerate.yaml: num_processes: -1"
    ),
    near("ZC701", "as many as devices are named").finds("error", "accelerate.yaml").becomes("\nnum_processes: 2\n"),
    near("ZC701", "as many on each of two machines", ("gpu_ids: 0,1", "gpu_ids: 0,1\nnum_machines: 2"))
    .finds("error", "accelerate.yaml")
    .becomes("\nnum_processes: 4\n"),
    near("ZC701", "all devices of nobody knows how many", ("gpu_ids: 0,1", "gpu_ids: all"))
    .finds("error", "accelerate.yaml")
    .becomes(),
    near("ZC704", "the next multiple")
    .finds("error", "accelerate.yaml: num_processes: 7", 7, 2, 3, 6)
    .becomes("num_processes: 8\n"),
    near("ZC704", "as meant for each machine", ("num_processes: 7", "num_processes: 1"))
    .finds("error", "accelerate.yaml: num_processes: 1", 1, 2, 0, 0)
    .becomes("num_processes: 2\n"),
    near("ZC734", "its fix names the host")
    .finds("error", "train.sh: --include 0,1", "0,1", "0,1", "0,1")
    .becomes("deepspeed --include localhost:0,1 train.py"),
    near("ZC739", "its fix keeps address and port")
    .finds("error", "train.sh: --master_addr 10.0.0.1", 2)
    .becomes("--rdzv_backend c10d --rdzv_endpoint 10.0.0.1:29500 train.py"),
    near("ZC739", "its fix takes the default port", (" --master_port 29500", ""))
    .finds("error", "train.sh: --master_addr 10.0.0.1", 2)
    .becomes("--rdzv_backend c10d --rdzv_endpoint 10.0.0.1:29500 train.py"),
    near("ZC741", "its fix starts one process")
    .finds("error", "train.sh: train.py")
    .becomes("torchrun --nproc_per_node 1 train.py --deepspeed_config ds.json\n"),
    near("ZC714", "two engines' sections", ("deepspeed_config:", "fsdp_config: {fsdp_version: 2}\ndeepspeed_config:"))
    .finds("error", "accelerate.yaml")
    .becomes(),
    near("ZC714", "the section tells")
    .finds("error", "accelerate.yaml")
    .becomes("LOCAL_MACHINE\ndistributed_type: DEEPSPEED\n"),
    of(
        "ZC702",
        "several, on two levels",
        {
            "accelerate.yaml": WITH_FILE + "  zero_stage: 2\n  gradient_clipping: 1.0\nmixed_precision: 'no'\n",
            "ds.json": AUTO,
        },
        "accelerate",
    ).finds(
        "error",
        "accelerate.yaml: zero_stage: 2",
        also=("accelerate.yaml: gradient_clipping: 1.0", "accelerate.yaml: mixed_precision: 'no'", "ds.json"),
    ),
    of(
        "ZC702",
        "what may stand there",
        {"accelerate.yaml": WITH_FILE + "  zero3_init_flag: false\n", "ds.json": AUTO},
        "accelerate",
    ),
    of(
        "ZC703",
        "a page, in a folder that is there",
        {"README.md": PAGE % "configs/zero9.json", "configs/zero2.json": ZERO2},
    ).finds("warning", "README.md: --deepspeed configs/zero9.json"),
    of(
        "ZC703",
        "a page, in a folder that is not",
        {"README.md": PAGE % "config/zero9.json", "configs/zero2.json": ZERO2},
    ),
    of("ZC703", "a number", {"accelerate.yaml": POINTING % 1}, "accelerate").finds(
        "error", "accelerate.yaml: deepspeed_config_file: 1", 1
    ),
    of("ZC703", "the name of a file", {"accelerate.yaml": POINTING % "gone.json"}, "accelerate").finds(
        "note", "accelerate.yaml: deepspeed_config_file: gone.json"
    ),
    of("ZC703", "a page, beside it", {"README.md": PAGE % "zero9.json", "configs/zero2.json": ZERO2}),
    of(
        "ZC703",
        "a recipe by its position",
        {"train.sh": "torchrun --nproc_per_node 2 train.py recipe.yaml\n", "train.py": ""},
    ).finds("warning", "train.sh: recipe.yaml"),
    of(
        "ZC749",
        "the script is taken for the value",
        {"train.sh": "accelerate launch --num_processes 2 --deepspeed_multinode_launcher \\\n  train.py --lr=1\n"},
    )
    .finds("error", "train.sh: --deepspeed_multinode_launcher")
    .says("takes train.py for it: no script is left to start"),
    of(
        "ZC749",
        "a value before the script",
        {"train.sh": "accelerate launch --deepspeed_multinode_launcher standard train.py --lr=1\n"},
    ),
    *(
        of("ZC703", why, {"train.sh": WRITES % program, "train.py": "", "ds.json": ZERO2})
        for why, program in (
            ("a program in the script is handed it", "python - ds.json \"$NEW\" <<'PY'\nprint()\nPY\n"),
            ("a program of one line is handed it", 'python3 -c "import sys" $NEW\n'),
        )
    ),
    *(
        of("ZC703", why, {"train.sh": WRITES % program, "train.py": "", "ds.json": ZERO2}).finds(
            "warning", "train.sh: --deepspeed $NEW"
        )
        for why, program in (
            ("a program in the script is handed others", "python - ds.json <<'PY'\nprint()\nPY\n"),
            ("it is looked for", "ls $NEW\n"),
        )
    ),
    of("ZC703", "a log is written, in a folder that is not there", {"train.sh": LOGGED, "train.py": ""}).finds(
        "warning", "train.sh: --config_file conf/a.yaml"
    ),
    *(
        of(
            "ZC703",
            f"a line beside it reads {word}",
            {"b.sh": f"C=conf/a.yaml\n{line}", "train.sh": LOGGED, "train.py": ""},
        )
        .finds("warning", f"b.sh: --config_file {word}")
        .finds("warning", "train.sh: --config_file conf/a.yaml")
        for word, line in (("conf/a.yaml", LOGGED), ('"$C"', LOGGED.replace("conf/a.yaml", '"$C"')))
    ),
    *(
        of("ZC703", why, {"train.sh": text + LOGGED, "train.py": ""})
        for why, text in (
            ("accelerate asks for it", "accelerate config --config_file conf/a.yaml\n"),
            ("a line that trains writes it", LOGGED.replace("log.txt", "conf/a.yaml")),
            ("another program may write it", "python make.py --config_file conf/a.yaml > log.txt\n"),
        )
    ),
    of("ZC703", "of another checkout", {"train.sh": "torchrun --nproc_per_node 2 train.py recipe.yaml\n"}),
    of("ZC703", "of another checkout, with a folder", {"train.sh": ELSEWHERE, "scripts/other.sh": ""}),
    of("ZC703", "of a folder that is here", {"train.sh": ELSEWHERE, "scripts/zero3.json": ZERO2}).finds(
        "warning", "train.sh: --deepspeed scripts/zero2.json"
    ),
    of("ZC703", "results by their position", {"train.sh": "torchrun --nproc_per_node 2 train.py results.json\n"}),
    of("ZC703", "alone, perhaps used from another folder", {"accelerate.yaml": WITH_FILE}).finds(
        "note", "accelerate.yaml: deepspeed_config_file: ds.json"
    ),
    *(
        of("ZC703", why, {"accelerate.yaml": WITH_FILE.replace("ds.json", path), "train.sh": START % ""})
        for why, path in (
            ("absolute", "/etc/ds.json"),
            ("of another system", "C:/ds.json"),
            ("an example", "path/to/ds.json"),
            ("another example", "Your_ds.json"),
            ("left out", ".../ds.json"),
        )
    ),
    of(
        "ZC707",
        "the same file twice",
        {
            "accelerate.yaml": WITH_FILE,
            "ds.json": AUTO,
            "recipe.yaml": RECIPE + "deepspeed: ds.json\n",
            "train.sh": START.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        "transformers",
    ),
    of("ZC711", "a manual's placeholder", {"train.sh": "accelerate launch --num_processes {N} train.py\n"}),
    of("ZC711", "two engines", {"train.sh": "accelerate launch --use_deepspeed --use_fsdp train.py\n"}).finds(
        "error", "train.sh: --use_deepspeed"
    ),
    of(
        "ZC711",
        "one process for --multi_gpu",
        {"train.sh": "accelerate launch --multi_gpu --num_processes 1 train.py\n"},
    ).finds("error", "train.sh: --num_processes 1", 2),
    of(
        "ZC711",
        "two processes for --multi_gpu",
        {"train.sh": "accelerate launch --multi_gpu --num_processes 2 train.py\n"},
    ),
    of("ZC713", "the same value", accelerate(ENGINE, "--zero_stage 2 ")),
    of("ZC713", "not known", accelerate(ENGINE, "--zero_stage $STAGE ")),
    of(
        "ZC714",
        "a file for another machine",
        {"accelerate.yaml": "compute_environment: AMAZON_SAGEMAKER\nnum_processes: 2\n"},
    ),
)


TORCHRUN = "torchrun --nproc_per_node 2"
TWO = "torchrun --nproc_per_node 2 --nnodes 2"

ENVIRONMENT = (
    of("ZC743", "as many devices", engine("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 2")),
    of("ZC743", "one too few", engine("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node 3")).finds(
        "error", "train.sh: train.py", "0,1", 2, 3, also=("train.sh: --nproc_per_node 3",)
    ),
    of("ZC743", "one device", accelerate(ENGINE, before="CUDA_VISIBLE_DEVICES=0 "), "accelerate").finds(
        "error", "train.sh: train.py", 0, 1, 2, also=("accelerate.yaml: num_processes: 2",)
    ),
    of("ZC743", "devices by name", engine("CUDA_VISIBLE_DEVICES=GPU-1f,GPU-2e torchrun --nproc_per_node 4")),
    of("ZC743", "none", engine("CUDA_VISIBLE_DEVICES= torchrun --nproc_per_node 4")),
    of("ZC743", "not known", engine("CUDA_VISIBLE_DEVICES=$FREE torchrun --nproc_per_node 4")),
    of("ZC743", "processes not known", engine("CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc_per_node gpu")),
    of("ZC743", "the runner counts for itself", engine("CUDA_VISIBLE_DEVICES=0,1 deepspeed --num_gpus 4")),
    of(
        "ZC743",
        "gpu_ids replaces the variable",
        accelerate(ENGINE + "gpu_ids: '0'\n", before="CUDA_VISIBLE_DEVICES=0 "),
        "accelerate",
    ),
    of(
        "ZC743",
        "all the devices of it",
        accelerate(ENGINE + "gpu_ids: all\n", before="CUDA_VISIBLE_DEVICES=0 "),
        "accelerate",
    ).finds("error", "train.sh: train.py", 0, 1, 2, also=("accelerate.yaml: num_processes: 2",)),
    of("ZC743", "several machines", accelerate(MEETING, before="CUDA_VISIBLE_DEVICES=0,1,2,3 "), "accelerate"),
    of(
        "ZC743",
        "one machine by number",
        accelerate(ENGINE + "num_machines: 1\n", before="CUDA_VISIBLE_DEVICES=0 "),
        "accelerate",
    ).finds("error", "train.sh: train.py", 0, 1, 2, also=("accelerate.yaml: num_processes: 2",)),
    of("ZC744", "the default", accelerate(ENGINE, before="MASTER_PORT=29500 "), "accelerate"),
    of("ZC744", "no number", accelerate(ENGINE, before="MASTER_PORT=$PORT "), "accelerate"),
    of(
        "ZC744",
        "used on the line",
        accelerate(ENGINE, behind=" --port $MASTER_PORT", before="export MASTER_PORT=29501\n"),
        "accelerate",
    ),
    of(
        "ZC744",
        "the config has a port",
        accelerate(ENGINE + "main_process_port: 29502\n", before="MASTER_PORT=29501 "),
        "accelerate",
    ),
    of(
        "ZC744",
        "the line has a port",
        accelerate(ENGINE, "--main_process_port 29501 ", before="MASTER_PORT=29501 "),
        "accelerate",
    ),
    of(
        "ZC744", "a variable may hold the port", accelerate(ENGINE, "$MORE ", before="MASTER_PORT=29501 "), "accelerate"
    ),
    of("ZC744", "one process", accelerate(PLAIN % 1, before="MASTER_PORT=29501 "), "accelerate"),
    of("ZC744", "python", engine("MASTER_PORT=29501 python")),
    of("ZC744", "torchrun looks for a free port", engine(f"MASTER_PORT=29501 {TORCHRUN}")),
    of("ZC744", "torchrun, alone", engine(f"MASTER_PORT=29501 {TWO} --standalone")),
    of(
        "ZC744", "torchrun, c10d", engine(f"MASTER_PORT=29501 {TWO} --rdzv_backend c10d --rdzv_endpoint 10.0.0.1:29501")
    ),
    of(
        "ZC744",
        "torchrun, an endpoint",
        engine(f"MASTER_PORT=29501 {TWO} --node_rank 1 --rdzv_endpoint 10.0.0.1:29501"),
    ),
    of("ZC744", "torchrun, machines", engine(f"MASTER_PORT=29501 {TWO} --node_rank 1 --master_addr 10.0.0.1")).finds(
        "warning", "train.sh: train.py", 29501, 29500, 29501
    ),
    of("ZC745", "another launcher", engine(f"ACCELERATE_MIXED_PRECISION=bf16 {TORCHRUN}")),
    of(
        "ZC745",
        "the same word",
        accelerate(ENGINE, "--mixed_precision bf16 ", before="ACCELERATE_MIXED_PRECISION=BF16 "),
        "accelerate",
    ),
    of("ZC745", "the same truth", accelerate(ENGINE, before="ACCELERATE_USE_DEEPSPEED=1 "), "accelerate"),
    of("ZC745", "the other truth", accelerate(ENGINE, before="ACCELERATE_USE_DEEPSPEED=false "), "accelerate").finds(
        "error",
        "train.sh: ACCELERATE_USE_DEEPSPEED=false accelerate launch --config_file accelerate.yaml train.py",
    ),
    of("ZC745", "not known", accelerate(ENGINE, before="ACCELERATE_MIXED_PRECISION=$P "), "accelerate"),
    of(
        "ZC745",
        "replaced by what is not known",
        accelerate(ENGINE, "--mixed_precision $P ", before="ACCELERATE_MIXED_PRECISION=bf16 "),
        "accelerate",
    ),
    of(
        "ZC745",
        "the launcher writes no such variable",
        accelerate(ENGINE, before="ACCELERATE_LOG_LEVEL=info "),
        "accelerate",
    ),
    of("ZC745", "no variable of accelerate's own", accelerate(ENGINE, before="OMP_NUM_THREADS=4 "), "accelerate"),
    of(
        "ZC745",
        "by an option",
        accelerate(ENGINE, "--zero_stage 1 ", before="export ACCELERATE_DEEPSPEED_ZERO_STAGE=3\n"),
        "accelerate",
    ).finds(
        "error",
        "train.sh: accelerate launch --config_file accelerate.yaml --zero_stage 1 train.py",
        3,
        1,
        also=("train.sh: --zero_stage 1",),
    ),
    of("ZC745", "by a key", accelerate(ENGINE, before="ACCELERATE_DEEPSPEED_ZERO_STAGE=3 "), "accelerate").finds(
        "error",
        "train.sh: ACCELERATE_DEEPSPEED_ZERO_STAGE=3 accelerate launch --config_file accelerate.yaml train.py",
        3,
        2,
        also=("accelerate.yaml: zero_stage: 2",),
    ),
)


def exported(variables: str, line: str = TORCHRUN, recipe: str = RECIPE) -> dict[str, str]:
    names = "".join(f"export {variable}\n" for variable in variables.split())
    return {"recipe.yaml": recipe, "train.sh": f"{names}{line} train.py recipe.yaml\n"}


SWITCHES = (
    of(
        "ZC746",
        "nobody knows who reads it",
        {"train.sh": f"export ACCELERATE_DEEPSPEED_ZERO_STAGE=2\n{TORCHRUN} train.py\n"},
    ),
    of(
        "ZC746",
        "switched on by 1",
        exported("ACCELERATE_USE_DEEPSPEED=1 ACCELERATE_DEEPSPEED_ZERO_STAGE=2"),
        "transformers",
    ),
    of(
        "ZC746",
        "in capitals",
        exported("ACCELERATE_USE_DEEPSPEED=TRUE ACCELERATE_DEEPSPEED_ZERO_STAGE=2"),
        "transformers",
    ),
    of(
        "ZC746",
        "perhaps on",
        exported("ACCELERATE_USE_DEEPSPEED=$ON ACCELERATE_DEEPSPEED_ZERO_STAGE=2"),
        "transformers",
    ),
    of(
        "ZC746",
        "switched off",
        exported("ACCELERATE_USE_DEEPSPEED=false ACCELERATE_DEEPSPEED_ZERO_STAGE=2"),
        "transformers",
    ).finds("error", "train.sh: train.py"),
    of(
        "ZC746", "started by the runner", exported("ACCELERATE_DEEPSPEED_ZERO_STAGE=2", "deepspeed"), "transformers"
    ).finds("error", "train.sh: train.py"),
    of(
        "ZC746",
        "accelerate sets the switch",
        exported("ACCELERATE_DEEPSPEED_ZERO_STAGE=2", "accelerate launch --use_deepspeed"),
        "transformers",
    ),
    of("ZC746", "settings of neither", exported("ACCELERATE_MIXED_PRECISION=bf16"), "transformers"),
    of("ZC746", "FSDP", exported("FSDP_SHARDING_STRATEGY=FULL_SHARD"), "transformers").finds(
        "error", "train.sh: train.py"
    ),
    of(
        "ZC746", "both", exported("FSDP_SHARDING_STRATEGY=FULL_SHARD ACCELERATE_DEEPSPEED_ZERO_STAGE=2"), "transformers"
    ).finds("error", "train.sh: train.py"),
    of(
        "ZC746",
        "FSDP by the recipe",
        exported("FSDP_SHARDING_STRATEGY=FULL_SHARD", recipe=RECIPE + "fsdp: full_shard\n"),
        "transformers",
    ),
    of(
        "ZC746",
        "FSDP by an argument",
        {"train.sh": f"export FSDP_VERSION=1\n{TORCHRUN} train.py --output_dir out --fsdp full_shard\n"},
        "transformers",
    ),
    of(
        "ZC746",
        "a DeepSpeed config",
        {
            "ds.json": DS,
            "train.sh": "export ACCELERATE_DEEPSPEED_ZERO_STAGE=2\ntorchrun train.py --deepspeed ds.json\n",
        },
        "transformers",
    ),
    of(
        "ZC747",
        "switched off",
        accelerate(ENGINE, behind=" --output_dir out", before="ACCELERATE_USE_CPU=false "),
        "transformers",
    ),
    of(
        "ZC747",
        "perhaps",
        accelerate(ENGINE, behind=" --output_dir out", before="ACCELERATE_USE_CPU=$CPU "),
        "transformers",
    ),
    of(
        "ZC747",
        "in capitals",
        accelerate(ENGINE, behind=" --output_dir out", before="ACCELERATE_USE_CPU=YES "),
        "transformers",
    ).finds("error", "train.sh: train.py", also=("accelerate.yaml: distributed_type: DEEPSPEED",)),
    of(
        "ZC747",
        "no DeepSpeed",
        accelerate(DEVICES % 2, behind=" --output_dir out", before="ACCELERATE_USE_CPU=true "),
        "transformers",
    ),
    of(
        "ZC747",
        "no config",
        {"train.sh": "ACCELERATE_USE_CPU=true accelerate launch --use_deepspeed train.py --output_dir out\n"},
        "transformers",
    ),
)


def cluster(section: str, machines: int = 2, options: str = "") -> dict[str, str]:
    yaml = ENGINE.replace("2\n", "16\n", 1) + section + f"num_machines: {machines}\nmain_process_ip: 10.0.0.1\n"
    return {"hostfile": HOSTS, **accelerate(yaml, options)}


LAUNCHER = "  deepspeed_multinode_launcher: %s\n"
HOSTFILE = "  deepspeed_hostfile: hostfile\n"
FILTERS = HOSTFILE + "  deepspeed_exclusion_filter: worker-0:0\n  deepspeed_inclusion_filter: worker-1\n"


def runner(options: str, start: str = "deepspeed") -> dict[str, str]:
    files = engine(f"{start} {options}".rstrip())
    return {**files, "hostfile": HOSTS} if "hostfile" in options else files


HOSTS_AND_DEVICES = (
    *(of("ZC728", f"{word} is known", cluster(HOSTFILE + LAUNCHER % word)) for word in ("openmpi", "PDSH", "nossh")),
    of("ZC728", "accelerate's own", cluster(LAUNCHER % "standard")),
    of("ZC728", "accelerate minds capitals", cluster(HOSTFILE + LAUNCHER % "STANDARD")).finds(
        "error", "accelerate.yaml: deepspeed_multinode_launcher: STANDARD"
    ),
    of("ZC728", "never read on one machine", cluster(LAUNCHER % "torchrun", machines=1)),
    of("ZC728", "no DeepSpeed", accelerate(MEETING + "deepspeed_config:\n" + LAUNCHER % "torchrun")),
    of("ZC728", "on the line", cluster(HOSTFILE, options="--deepspeed_multinode_launcher slrum ")).finds(
        "error", "train.sh: --deepspeed_multinode_launcher slrum"
    ),
    of("ZC728", "the runner's, in capitals", runner("--hostfile hostfile --launcher SLURM")),
    of("ZC728", "the runner's, not known", runner("--hostfile hostfile --launcher $BY")),
    of("ZC728", "the runner's, without ssh", runner("--hostfile hostfile --no_ssh --node_rank 0 --launcher ssh")),
    of("ZC728", "the runner's, this machine alone", runner("--launcher ssh")),
    of("ZC728", "the runner's, a short option", runner("-H hostfile --launcher ssh")).finds(
        "error", "train.sh: --launcher ssh"
    ),
    of("ZC729", "one machine", cluster(FILTERS, machines=1)),
    of("ZC729", "torchrun reads neither", cluster(FILTERS + LAUNCHER % "standard")),
    of("ZC729", "no DeepSpeed", accelerate(MEETING + "deepspeed_config:\n" + FILTERS)),
    of("ZC729", "only the exclusion", cluster(HOSTFILE + "  deepspeed_exclusion_filter: worker-0:0\n")),
    of("ZC730", "two machines", cluster(HOSTFILE)),
    of("ZC730", "perhaps two", cluster(HOSTFILE, machines=1, options="--num_machines $N ")),
    of("ZC730", "no DeepSpeed", accelerate(DEVICES % 2 + "deepspeed_config:\n" + HOSTFILE)),
    of("ZC730", "empty", accelerate(ENGINE + "  deepspeed_hostfile: ''\n")),
    of("ZC730", "nothing", accelerate(ENGINE + "  deepspeed_hostfile:\n")),
    of("ZC730", "all three", cluster(FILTERS, machines=1))
    .finds("warning", "accelerate.yaml: deepspeed_hostfile: hostfile")
    .finds("warning", "accelerate.yaml: deepspeed_exclusion_filter: worker-0:0", 0)
    .finds("warning", "accelerate.yaml: deepspeed_inclusion_filter: worker-1"),
    of("ZC731", "all", {"accelerate.yaml": DEVICES % 2 + "gpu_ids: all\n"}),
    of("ZC731", "processes not known", accelerate(DEVICES % 2 + "gpu_ids: 0,1,2\n", "--num_processes $N ")),
    of("ZC731", "machines not known", accelerate(DEVICES % 2 + "gpu_ids: 0,1,2\n", "--num_machines $N ")),
    of("ZC731", "one process for the listed devices", {"accelerate.yaml": PLAIN % 1 + "gpu_ids: 0,1\n"}),
    of(
        "ZC731",
        "none on each machine, which another rule tells",
        {"accelerate.yaml": MEETING.replace("8", "1") + "gpu_ids: 0,1\n"},
    ),
    of(
        "ZC731", "the Trainer's arguments are not known", {"accelerate.yaml": DEVICES % 2 + "gpu_ids: 0,1,2\n"}, "trl"
    ).finds(
        "warning", "accelerate.yaml: gpu_ids: 0,1,2", 3, "0,1,2", 2, 2, also=("accelerate.yaml: num_processes: 2",)
    ),
    of(
        "ZC731",
        "the Trainer's arguments are not known, and no torchrun starts it",
        {"accelerate.yaml": DEVICES.replace("MULTI_GPU", "XLA") % 2 + "gpu_ids: 0,1,2\n"},
        "trl",
    ),
    of("ZC731", "one device more", {"accelerate.yaml": MEETING.replace("8", "4") + "gpu_ids: 0,1,2\n"}).finds(
        "note", "accelerate.yaml: gpu_ids: 0,1,2", 3, "0,1,2", 2, 2, also=("accelerate.yaml: num_processes: 4",)
    ),
    of(
        "ZC731", "one process under an engine", {"accelerate.yaml": ENGINE.replace("2", "1", 1) + "gpu_ids: 0,1\n"}
    ).finds("note", "accelerate.yaml: gpu_ids: 0,1", 2, "0,1", 1, 1, also=("accelerate.yaml: num_processes: 1",)),
    of("ZC731", "a comma at the end names no device", {"accelerate.yaml": DEVICES % 2 + "gpu_ids: 0,1,\n"}),
    of("ZC731", "on the line", accelerate(DEVICES % 2, "--gpu_ids 0,1,2 ")).finds(
        "warning", "train.sh: --gpu_ids 0,1,2", 3, "0,1,2", 2, 2, also=("accelerate.yaml: num_processes: 2",)
    ),
)

RENDEZVOUS = (
    of("ZC725", "one machine", {"accelerate.yaml": DEVICES % 2 + "main_process_port: 0\n"}),
    of("ZC725", "port 1", accelerate(MEETING.replace("29500", "1"))),
    of("ZC725", "the runner has a road of its own", cluster(HOSTFILE + "main_process_port: 0\n")),
    of(
        "ZC725",
        "plain processes do not meet",
        accelerate(PLAIN % 2 + "num_machines: 2\nmain_process_ip: 10.0.0.1\nmain_process_port: 0\n"),
    ),
    of("ZC725", "on the line", accelerate(MEETING, "--main_process_port 0 --machine_rank 1 "))
    .finds("error", "train.sh: --main_process_port 0", 0, 2, 0, 29500)
    .becomes("--main_process_port 29500 --machine_rank 1"),
    of("ZC726", "one machine", accelerate(DEVICES % 2 + "main_process_ip: 127.0.0.1\n")),
    of(
        "ZC726",
        "the runner",
        accelerate(ENGINE + HOSTFILE + "num_machines: 2\nmain_process_ip: localhost\n", "--machine_rank 1 "),
    ),
    of("ZC726", "the first machine's line", accelerate(MEETING.replace("10.0.0.1", "localhost"), "--machine_rank 0 ")),
    of(
        "ZC726", "the first machine's file", accelerate(MEETING.replace("10.0.0.1", "localhost") + "machine_rank: 0\n")
    ).finds("warning", "accelerate.yaml: main_process_ip: localhost", 2, 0),
    of("ZC726", "no line", {"accelerate.yaml": MEETING.replace("10.0.0.1", "localhost")}).finds(
        "warning", "accelerate.yaml: main_process_ip: localhost", 2, 0
    ),
    of("ZC726", "in capitals", accelerate(MEETING.replace("10.0.0.1", "LocalHost"), "--machine_rank 1 ")).finds(
        "error", "accelerate.yaml: main_process_ip: LocalHost", 2, 0
    ),
    of("ZC726", "torchrun, one machine", engine(f"{TORCHRUN} --nnodes 1 --node_rank 1 --master_addr localhost")),
    of("ZC726", "torchrun, the first machine", engine(f"{TWO} --node_rank 0 --master_addr localhost")),
    of("ZC726", "torchrun, another address", engine(f"{TWO} --node_rank 1 --rdzv_endpoint 10.0.0.1:29500")),
    of("ZC726", "torchrun, not known", engine(f"{TWO} --node_rank 1 --master_addr $HOST")),
    of("ZC726", "torchrun, more in a variable", engine(f"{TWO} --node_rank 1 $MORE --master_addr localhost")),
    of("ZC726", "torchrun, an endpoint", engine(f"{TWO} --node_rank 1 --rdzv_endpoint localhost:29500")).finds(
        "error", "train.sh: --rdzv_endpoint localhost:29500", 2
    ),
    of("ZC727", "the config says it", accelerate(MEETING + "machine_rank: 1\n")),
    of("ZC727", "one machine", accelerate(DEVICES % 2)),
    of("ZC727", "no line", {"accelerate.yaml": MEETING}),
    of("ZC727", "a variable may hold it", accelerate(MEETING, "$MORE ")),
    of("ZC727", "c10d counts the machines itself", accelerate(MEETING, "--rdzv_backend c10d ")),
    of("ZC727", "static, said", accelerate(MEETING, "--rdzv_backend static ")).finds(
        "warning", "train.sh: train.py", 2, 0, also=("accelerate.yaml: num_machines: 2",)
    ),
    of("ZC727", "torchrun, one machine", engine(f"{TORCHRUN} --nnodes 1 --master_addr 10.0.0.1")),
    of("ZC727", "torchrun, c10d", engine(f"{TWO} --rdzv_backend c10d --rdzv_endpoint 10.0.0.1:29500")),
    of("ZC727", "torchrun, static, said", engine(f"{TWO} --rdzv_backend static --master_addr 10.0.0.1")).finds(
        "warning", "train.sh: --nnodes 2", 2, 0
    ),
    of("ZC727", "torchrun, a backend that is not known", engine(f"{TWO} --rdzv_backend $B --master_addr 10.0.0.1")),
    of("ZC727", "torchrun, alone", engine(f"{TWO} --standalone --master_addr 10.0.0.1")),
    of("ZC727", "torchrun, by a variable", engine(f"PET_NODE_RANK=1 {TWO} --master_addr 10.0.0.1")),
    of("ZC727", "torchrun, an address of its own", engine(f"{TWO} --master_addr localhost")),
    of("ZC727", "torchrun, no address", engine(TWO)),
    of("ZC727", "torchrun, more in a variable", engine(f"{TWO} --master_addr 10.0.0.1 $MORE")),
)

RUNNER = (
    of("ZC732", "a prefix will do", runner("--nproc 2", "torchrun")),
    of(
        "ZC732",
        "a module",
        {"train.sh": "torchrun --nproc_per_node 2 --module train --deepspeed_config ds.json\n", "ds.json": DS},
    ),
    of("ZC732", "a name out of a variable", runner("--${WHAT}_per_node 2", "torchrun")),
    of("ZC732", "accelerate's line", accelerate(ENGINE, "--nproc_per_node 2 ")),
    of("ZC732", "a word that nobody knows", runner("--frobnicate 2")).finds("error", "train.sh: --frobnicate 2"),
    of("ZC733", "an exclusion alone", runner("--exclude localhost:0")),
    of("ZC733", "numbers alone", runner("--num_gpus 2 --num_nodes 1")),
    of("ZC733", "another launcher", accelerate(ENGINE, "--include a --exclude b ")),
    of("ZC733", "an exclusion and a number", runner("--exclude localhost:0 --num_gpus 2")).finds(
        "error", "train.sh: --exclude localhost:0", also=("train.sh: --num_gpus 2",)
    ),
    of("ZC733", "short, and two numbers", runner("-i localhost:0,1 --num_gpus 2 --num_nodes 1")).finds(
        "error", "train.sh: -i localhost:0,1", also=("train.sh: --num_gpus 2", "train.sh: --num_nodes 1")
    ),
    of("ZC734", "a host", runner("--include worker-0")),
    of("ZC734", "not known", runner("--include $DEVICES")),
    of("ZC734", "a hostfile may have such a host", runner("--hostfile hostfile --include 0,1")),
    of("ZC734", "an exclusion", runner("-e 1")).finds("error", "train.sh: -e 1", 1, 1, 1),
    of("ZC734", "of both spellings the last counts", runner("--include localhost:0 -i 1")).finds(
        "error", "train.sh: -i 1", 1, 1, 1
    ),
    of("ZC734", "the last of both names a host", runner("-i 1 --include localhost:1")),
    of("ZC735", "one machine", runner("--num_nodes 1")),
    of("ZC735", "not known", runner("--num_nodes $N")),
    of("ZC735", "a variable may name the hostfile", runner("--num_nodes 2 $MORE")),
    of("ZC735", "a short option", runner("--num_nodes 2 -H hostfile")),
    of("ZC735", "no_ssh does not change it", runner("--num_nodes 2 --no_ssh --node_rank 0")).finds(
        "warning", "train.sh: --num_nodes 2", 2
    ),
    of("ZC736", "rank 0", runner("--hostfile hostfile --no_ssh --node_rank 0")),
    of("ZC736", "a variable may hold the rank", runner("--hostfile hostfile --no_ssh $MORE")),
    of("ZC736", "with ssh", runner("--hostfile hostfile")),
    of("ZC742", "the same devices", runner("--num_gpus 2", "CUDA_VISIBLE_DEVICES=0,1 deepspeed")),
    of("ZC742", "the same list", runner("--include localhost:2,3", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")),
    of("ZC742", "no option", runner("", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")),
    of("ZC742", "0 chooses nothing", runner("--num_gpus 0", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")),
    of("ZC742", "a number that is not known", runner("--num_gpus $N", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")),
    of("ZC742", "hosts", runner("--hostfile hostfile --num_gpus 2", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")),
    of("ZC742", "devices by name", runner("--num_gpus 2", "CUDA_VISIBLE_DEVICES=GPU-1f,GPU-2e deepspeed")),
    of("ZC742", "not known", runner("--num_gpus 2", "CUDA_VISIBLE_DEVICES=$FREE deepspeed")),
    of("ZC742", "torchrun keeps it", runner("--nproc_per_node 2", "CUDA_VISIBLE_DEVICES=2,3 torchrun")),
    of("ZC742", "another list", runner("--include localhost:0,1", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")).finds(
        "error", "train.sh: --include localhost:0,1", "2,3", "2,3"
    ),
    of("ZC742", "an exclusion", runner("--exclude localhost:0", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")).finds(
        "error", "train.sh: --exclude localhost:0", "2,3", "2,3"
    ),
    of("ZC742", "fewer", runner("--num_gpus 1", "CUDA_VISIBLE_DEVICES=2,3 deepspeed")).finds(
        "error", "train.sh: --num_gpus 1", "2,3", 0, "2,3"
    ),
)

TORCH = (
    of("ZC737", "one machine", engine(f"{TORCHRUN} --nnodes 1")),
    of("ZC737", "a range", engine(f"{TORCHRUN} --nnodes 1:2")),
    of("ZC737", "an endpoint", engine(f"{TWO} --rdzv_backend c10d --rdzv_endpoint 10.0.0.1:29500")),
    of("ZC737", "alone, which another rule tells", engine(f"{TWO} --standalone")),
    of("ZC737", "a backend with an address of its own", engine(f"{TWO} --rdzv_backend etcd-v2")),
    of("ZC737", "a backend that is not known", engine(f"{TWO} --rdzv_backend $B")),
    of("ZC737", "an address that is not known", engine(f"{TWO} --master_addr $HOST")),
    of("ZC737", "a variable may hold it", engine(f"{TWO} $MORE")),
    of("ZC737", "by the environment", engine(f"PET_MASTER_ADDR=10.0.0.1 {TWO}")),
    of("ZC737", "accelerate's line", accelerate(MEETING, "--machine_rank 1 ")),
    of("ZC737", "static, said", engine(f"{TWO} --rdzv_backend static")).finds("error", "train.sh: --nnodes 2", 2),
    of("ZC738", "one machine", engine(f"{TORCHRUN} --standalone --nnodes 1")),
    of("ZC738", "a range", engine(f"{TORCHRUN} --standalone --nnodes 1:2")),
    of("ZC738", "machines not said", engine(f"{TORCHRUN} --standalone")),
    of("ZC739", "static, said", engine(f"{TWO} --node_rank 1 --rdzv_backend static --master_addr 10.0.0.1")),
    of(
        "ZC739",
        "an endpoint, too",
        engine(f"{TWO} --rdzv_backend c10d --master_addr 10.0.0.1 --rdzv_endpoint 10.0.0.1:29500"),
    ),
    of(
        "ZC739",
        "alone, which another rule tells",
        engine(f"{TWO} --standalone --rdzv_backend c10d --master_addr 10.0.0.1"),
    ),
    of("ZC739", "one machine", engine(f"{TORCHRUN} --nnodes 1 --rdzv_backend c10d --master_addr 10.0.0.1")),
    of("ZC739", "no port", engine(f"{TWO} --rdzv_backend c10d --master_addr 10.0.0.1")).finds(
        "error", "train.sh: --master_addr 10.0.0.1", 2
    ),
    of("ZC740", "its successor as a module", engine("python -m torch.distributed.run --nproc_per_node 2")),
    of("ZC740", "python3", engine("python3.11 -m torch.distributed.launch --nproc_per_node 2")).finds(
        "warning", "train.sh: python3.11 -m torch.distributed.launch"
    ),
    of("ZC741", "by mpirun", engine("mpirun -n 2 python")),
    of(
        "ZC741",
        "ranks by hand",
        engine("RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 python"),
    ),
    of("ZC741", "no DeepSpeed", {"recipe.yaml": RECIPE, "train.sh": "python train.py recipe.yaml\n"}, "transformers"),
    of(
        "ZC741",
        "inference, perhaps",
        {"ds.json": DS, "train.sh": "python generate.py --deepspeed ds.json\n"},
        "transformers",
    ),
    of("ZC741", "by srun", engine("srun --ntasks=2 python")),
    of("ZC741", "by srun, which has no say in the number", engine("srun --gres=gpu:1 python")),
    of("ZC741", "one task of srun", engine("srun --ntasks=1 --gres=gpu:1 python")).finds("error", "train.sh: train.py"),
    of("ZC741", "one task of srun, in short", engine("srun -n 1 python")).finds("error", "train.sh: train.py"),
    of("ZC741", "ten tasks of srun", engine("srun --ntasks=10 python")),
    of("ZC741", "one task of srun with MPI", engine("srun --ntasks=1 --mpi=pmix python")),
    of("ZC741", "a preset of ms-swift", swift("python swift/cli/sft.py --deepspeed zero2")).finds(
        "error", "train.sh: swift/cli/sft.py"
    ),
    of("ZC741", "a preset of ms-swift, as a module", swift("python -m swift.cli.pt --deepspeed zero3")).finds(
        "error", "train.sh: swift.cli.pt"
    ),
    of("ZC741", "a file for ms-swift", swift("python swift/cli/sft.py --deepspeed ds.json")).finds(
        "error", "train.sh: swift/cli/sft.py"
    ),
    of("ZC741", "ms-swift without DeepSpeed", swift("python swift/cli/sft.py")),
    of("ZC741", "ms-swift's own program, which starts torchrun", swift("swift sft --deepspeed zero2")),
    of("ZC741", "RLHF of ms-swift, which sets the variables", swift("python swift/cli/rlhf.py --deepspeed zero2")),
    of(
        "ZC741",
        "axolotl sets the variables",
        {
            "ds.json": DS,
            "config.yaml": "base_model: m\nmicro_batch_size: 1\nmax_steps: 2\ndatasets: []\ndeepspeed: ds.json\n",
            "train.sh": "python -m axolotl.cli.train config.yaml\n",
        },
    ),
    of("ZC741", "an option that keeps python open", engine("python -i")),
    of("ZC741", "unbuffered", engine("python3 -u")).finds("error", "train.sh: train.py"),
    of("ZC741", "a module", {"ds.json": DS, "train.sh": "python -m train --deepspeed_config ds.json\n"}).finds(
        "error", "train.sh: train"
    ),
)

UNUSED = (
    of("ZC706", "false", {"accelerate.yaml": ENGINE + "use_cpu: false\n"}),
    of("ZC706", "with --cpu", accelerate(ENGINE + "use_cpu: true\n", "--cpu ")),
    of("ZC706", "devices", {"accelerate.yaml": DEVICES % 2 + "use_cpu: true\n"}).finds(
        "error", "accelerate.yaml: use_cpu: true"
    ),
    of(
        "ZC706",
        "processes on the CPU",
        {"accelerate.yaml": "distributed_type: MULTI_CPU\nnum_processes: 2\nuse_cpu: true\n"},
    ),
    of(
        "ZC708",
        "the default",
        {"accelerate.yaml": ENGINE + "rdzv_backend: static\nsame_network: false\nenable_cpu_affinity: false\n"},
    ),
    of("ZC708", "the option is given", accelerate(ENGINE + "rdzv_backend: c10d\n", "--rdzv_backend c10d ")),
    of("ZC708", "as accelerate writes it", {"accelerate.yaml": ENGINE + "same_network: true\n"}),
    of("ZC708", "downcast, as accelerate writes it", {"accelerate.yaml": ENGINE + "downcast_bf16: 'no'\n"}),
    of("ZC708", "downcast, switched off", {"accelerate.yaml": ENGINE + "downcast_bf16: 'False'\n"}),
    of("ZC708", "another meeting", {"accelerate.yaml": ENGINE + "rdzv_backend: c10d\n"}).finds(
        "warning", "accelerate.yaml: rdzv_backend: c10d"
    ),
    *(
        of("ZC708", f"{line.partition(':')[0]} does no harm", {"accelerate.yaml": ENGINE + line + "\n"}).finds(
            "note", f"accelerate.yaml: {line}"
        )
        for line in ("tpu_use_sudo: true", "downcast_bf16: 'yes'")
    ),
    *(
        of(
            "ZC712",
            f"{word} compiles nothing",
            {"accelerate.yaml": ENGINE + f"dynamo_config: {{dynamo_backend: {word}}}\n"},
        )
        for word in ("'NO'", "false", "null")
    ),
    of("ZC712", "the backend's short name", {"accelerate.yaml": ENGINE + "dynamo_config: {backend: 'NO'}\n"}),
    of("ZC712", "no backend", {"accelerate.yaml": ENGINE + "dynamo_config: {dynamo_mode: default}\n"}),
    of(
        "ZC712",
        "fp8 settings, no fp8",
        {"accelerate.yaml": DEVICES % 2 + "mixed_precision: bf16\nfp8_config: {backend: TE}\n"},
    ).finds("warning", "accelerate.yaml: fp8_config"),
    of("ZC712", "fp8", {"accelerate.yaml": DEVICES % 2 + "mixed_precision: fp8\nfp8_config: {backend: TE}\n"}),
    of(
        "ZC724",
        "true",
        {"accelerate.yaml": ENGINE.replace("stage: 2", "stage: 3") + "  zero3_init_flag: true\n"},
        "transformers",
    ),
    replace(
        of(
            "ZC724",
            "the last accelerate that hides stage 3 from the Trainer",
            {"accelerate.yaml": ENGINE.replace("stage: 2", "stage: 3") + "  zero3_init_flag: false\n"},
            "transformers",
        ),
        facts={"versions": {"accelerate": "==0.34.2"}},
    ),
    replace(
        of(
            "ZC724",
            "the first that tells it",
            {"accelerate.yaml": ENGINE.replace("stage: 2", "stage: 3") + "  zero3_init_flag: false\n"},
            "transformers",
        ),
        facts={"versions": {"accelerate": "==1.0.0"}},
    ).finds("note", "accelerate.yaml: zero3_init_flag: false", "3"),
    of(
        "ZC724",
        "no Trainer",
        {"accelerate.yaml": ENGINE.replace("stage: 2", "stage: 3") + "  zero3_init_flag: false\n"},
        "accelerate",
    ),
    of(
        "ZC724",
        "no DeepSpeed",
        {"accelerate.yaml": DEVICES % 2 + "deepspeed_config: {zero_stage: 3, zero3_init_flag: false}\n"},
        "transformers",
    ),
    of("ZC723", "false", {"accelerate.yaml": ENGINE + "debug: false\n"}),
    of("ZC723", "no option of torchrun", engine("torchrun --nproc_per_node 2 --debug")),
    of("ZC723", "on the line and in the file, told once", accelerate(ENGINE + "debug: true\n", "--debug ")).finds(
        "note", "train.sh: --debug"
    ),
)


TABLE = (
    *LINE,
    *BESIDE,
    *MACHINES,
    *CONFIG,
    *ENVIRONMENT,
    *SWITCHES,
    *HOSTS_AND_DEVICES,
    *RENDEZVOUS,
    *RUNNER,
    *TORCH,
    *UNUSED,
)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
