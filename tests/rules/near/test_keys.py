"""Near misses of `zerocfg.rules.keys`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .files import of
from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path

YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
LINE = "accelerate launch --config_file accelerate.yaml %strain.py\n"


def top(code: str, why: str, keys: str, consumer: str = "deepspeed") -> Near:
    """Keys at the top of a DeepSpeed config."""
    text = f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 2}}, {keys}}}\n'
    return of(code, why, {"ds.json": text}, consumer)


def zero(code: str, why: str, keys: str) -> Near:
    """Keys of its ZeRO section."""
    text = f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": 2, {keys}}}}}\n'
    return of(code, why, {"ds.json": text}, "deepspeed")


def yaml(code: str, why: str, keys: str, options: str = "", base: str = YAML) -> Near:
    """Keys at the end of an accelerate config."""
    files = {"accelerate.yaml": base + keys}
    return of(code, why, {**files, "train.sh": LINE % options} if options else files, "accelerate")


def admitting(code: str, why: str, versions: str, keys: str) -> Near:
    """The same with the releases of DeepSpeed that the project admits."""
    row = top(code, why, keys)
    row.example.files["zerocfg.yaml"] = (
        "version: 1\nruns:\n  sft:\n    script: train.py\n    deepspeed: ds.json\n    consumer: deepspeed\n"
        f"    versions: {{deepspeed: '{versions}'}}\n"
    )
    return row


SCALED = '"bf16": {"enabled": true, "loss_scale": 0}'

NAMES = (
    top("ZC101", "a key of fp16 in bf16", SCALED).finds("error", 'ds.json: "loss_scale"'),
    zero("ZC101", "nothing near", '"zigzag": 7').finds("error", 'ds.json: "zigzag"'),
    zero("ZC101", "a key of the top level, which another rule tells", '"gradient_clipping": 1.0'),
    yaml("ZC101", "accelerate's top level", "num_procesess: 2\n").finds("error", "accelerate.yaml: num_procesess"),
    of(
        "ZC101",
        "the spec",
        {"zerocfg.yaml": "version: 1\nruns:\n  sft: {consumer: trl, script: sft.py, recipe: r.yaml}\nrunz: {}\n"},
    ).finds("error", "zerocfg.yaml: runz"),
    *(
        top("ZC102", f"{name} is a remark", f'"{name}": "for eight devices"')
        for name in ("_remark", "//", "#", "$schema", "comment", "comments")
    ),
    top("ZC102", "a remark's first letters only", '"remark": "for eight devices"').finds(
        "warning", 'ds.json: "remark"'
    ),
    top("ZC102", "a key of ZeRO, which another rule tells", '"overlap_comm": false'),
    top("ZC102", "a key of accelerate, which another rule tells", '"zero_stage": 2'),
    top("ZC102", "in a section that nobody checks", '"aio": {"block_sise": 1048576}').finds(
        "error", 'ds.json: "block_sise"'
    ),
    yaml("ZC103", "a key that accelerate has", "  zero3_init_flag: false\n"),
    yaml("ZC103", "misspelled", "  offload_optimizer_devise: cpu\n").finds(
        "error", "accelerate.yaml: offload_optimizer_devise"
    ),
    yaml("ZC103", "nothing near", "  zigzag: 7\n").finds("error", "accelerate.yaml: zigzag"),
    yaml("ZC103", "a section of DeepSpeed's for one word", "  offload_optimizer: {device: cpu}\n")
    .finds("error", "accelerate.yaml: offload_optimizer")
    .becomes("  offload_optimizer_device: cpu\n"),
    yaml("ZC103", "a precision", "  bf16: true\n")
    .finds("error", "accelerate.yaml: bf16")
    .says("write `mixed_precision: bf16` at the top level")
    .becomes("mixed_precision: bf16\n"),
    yaml("ZC103", "a precision's section", "  bf16: {enabled: true}\n")
    .finds("error", "accelerate.yaml: bf16")
    .becomes("mixed_precision: bf16\n"),
    yaml("ZC103", "an argument of the Trainer", "  learning_rate: 1.0e-5\n")
    .finds("error", "accelerate.yaml: learning_rate")
    .says("write `optimizer.params.lr` in a DeepSpeed JSON")
    .becomes(),
    top("ZC101", "misspelled in the section bf16", '"bf16": {"enabeld": true}')
    .finds("error", 'ds.json: "enabeld"')
    .becomes('"bf16": {"enabled": true}', safe=True),
    top("ZC101", "of loss scaling, in the section bf16", '"bf16": {"enabled": true, "loss_scale": 0}')
    .finds("error", 'ds.json: "loss_scale"')
    .says("bf16 needs no loss scaling")
    .becomes('"bf16": {"enabled": true}', safe=True),
    yaml("ZC101", "said already", "", base="nnodes: 2\nnum_machines: 2\n" + YAML)
    .finds("error", "accelerate.yaml: nnodes")
    .says("remove it: `num_machines` says so already")
    .becomes("num_machines: 2\n"),
    yaml("ZC101", "said otherwise", "", base="nnodes: 3\nnum_machines: 2\n" + YAML)
    .finds("error", "accelerate.yaml: nnodes", 2)
    .says("change `num_machines`, which is 2")
    .becomes(),
    yaml(
        "ZC101",
        "of one machine among several",
        "",
        base="num_gpus: 4\n" + YAML.replace("num_processes: 2", "num_machines: 2"),
    )
    .finds("error", "accelerate.yaml: num_gpus")
    .says("write `num_processes`")
    .becomes(),
    yaml("ZC103", "an argument of the Trainer that DeepSpeed has no word for", "  gradient_checkpointing: true\n")
    .finds("error", "accelerate.yaml: gradient_checkpointing")
    .says("give it to the training script, whose own loop has to use it")
    .becomes(""),
    yaml("ZC103", "a path in the place of a key", "", base=YAML.replace("\n  zero_stage: 2", " {a.json}"))
    .finds("error", "accelerate.yaml: a.json")
    .says("write `deepspeed_config_file: a.json`")
    .becomes("{deepspeed_config_file: a.json}"),
    yaml("ZC103", "no precision", "  bf16: false\n").finds("error", "accelerate.yaml: bf16").becomes(),
    yaml(
        "ZC103",
        "at stage 3 another rule tells it",
        "  stage3_gather_16bit_weights_on_model_save: true\n",
        base=YAML.replace("stage: 2", "stage: 3"),
    ),
    yaml("ZC103", "at stage 2 it is only lost", "  stage3_gather_16bit_weights_on_model_save: true\n").finds(
        "error", "accelerate.yaml: stage3_gather_16bit_weights_on_model_save"
    ),
    admitting("ZC110", "no admitted release refuses it", "<0.19.8", '"amp": {"enabled": false}'),
    admitting("ZC110", "one admitted release does", "<=0.19.8", '"amp": {"enabled": false}').finds(
        "warning", 'ds.json: "amp"', "0.19.8", "0.19.8"
    ),
    admitting("ZC110", "the only admitted one does", "0.19.8", '"amp": {"enabled": false}').finds(
        "error", 'ds.json: "amp"'
    ),
    zero("ZC111", "the other one", '"cpu_offload_param": false').finds("warning", 'ds.json: "cpu_offload_param"'),
    zero("ZC112", "one of them left open", '"stage3_prefetch_bucket_size": 10, "prefetch_bucket_size": "auto"'),
    zero("ZC112", "the plain name alone", '"prefetch_bucket_size": 10'),
    zero("ZC112", "with two values", '"prefetch_bucket_size": 10, "stage3_prefetch_bucket_size": 20').finds(
        "error", 'ds.json: "prefetch_bucket_size"', also=('ds.json: "stage3_prefetch_bucket_size"',)
    ),
)

PLACES = (
    top("ZC114", "a rate beside the type of the optimizer", '"optimizer": {"type": "AdamW", "lr": 0.001}').finds(
        "error", 'ds.json: "lr"'
    ),
    top(
        "ZC114", "steps beside the type of the schedule", '"scheduler": {"type": "WarmupLR", "warmup_num_steps": 5}'
    ).finds("error", 'ds.json: "warmup_num_steps"'),
    top("ZC114", "a rate at the top level, perhaps of your own", '"lr": 0.001'),
    top("ZC114", "bf16 has no scale", SCALED),
    top("ZC114", "a name that many sections have", '"dtype": "bf16"'),
    top("ZC114", "a key that two sections have", '"fp16": {"enabled": false}, "verbose": true'),
    top("ZC114", "a key of nobody", '"zigzag": 7'),
    top("ZC115", "a key of accelerate alone", '"num_machines": 2').finds("warning", 'ds.json: "num_machines"'),
    top("ZC115", "of an optimizer that the config has", '"learning_rate": 0.1, "optimizer": {"type": "AdamW"}')
    .finds("error", 'ds.json: "learning_rate"')
    .becomes('"params": {"lr": 0.1}'),
    top("ZC115", "of an optimizer that the script makes", '"learning_rate": 0.1')
    .finds("warning", 'ds.json: "learning_rate"')
    .says("give `optimizer` a type")
    .becomes(),
    top("ZC115", "a word for a section", '"mixed_precision": "bf16"')
    .finds("error", 'ds.json: "mixed_precision"')
    .becomes('"bf16": {"enabled": true}'),
    top("ZC115", "a word that needs none", '"mixed_precision": "no"').finds("warning", 'ds.json: "mixed_precision"'),
    top("ZC115", "a value that does not fit", '"per_device_train_batch_size": "four"')
    .finds("error", 'ds.json: "per_device_train_batch_size"', 1)
    .says("change `train_micro_batch_size_per_gpu`, which is 1")
    .becomes(),
    top("ZC115", "inside of a section", '"aio": {"num_processes": 2}'),
    yaml("ZC116", "the same value", "  num_processes: 2\n"),
    yaml("ZC116", "nothing in the section", "  num_processes: null\n"),
    yaml("ZC116", "nothing at the top", "  num_machines: 1\n"),
    yaml("ZC116", "the line says it", "  num_processes: 4\n", "--num_processes 8 "),
    yaml("ZC116", "not an option of the launcher's top level", "  zero3_init_flag: true\n"),
    yaml("ZC116", "another option", "  machine_rank: 1\nmachine_rank: 0\n").finds(
        "error", "accelerate.yaml: machine_rank: 1", 1, 0, also=("accelerate.yaml: machine_rank: 0",)
    ),
)

VALUES = (
    zero("ZC117", "off", '"reduce_scatter": false'),
    near("ZC117", "false", ('"stage": true', '"stage": false')).finds("error", "ds.json: false", 0),
    near("ZC117", "a number", ('"stage": true', '"stage": 1')),
    near("ZC117", "a text", ('"stage": true', '"stage": "true"')),
    zero("ZC117", "out of range, which another rule tells", '"reduce_bucket_size": false'),
    top("ZC117", "where nothing is converted", '"steps_per_print": true'),
    *(yaml("ZC118", f"{word} is on", "", base=f"debug: '{word}'\n" + YAML) for word in ("true", "on", "2")),
    yaml("ZC118", "no, in capitals", "tpu_use_cluster: 'NO'\n").finds("error", "accelerate.yaml: 'NO'"),
    yaml("ZC118", "a switch that is read as a word", "use_cpu: 'false'\n"),
    zero("ZC104", "a whole number in quotes", '"reduce_bucket_size": "500000000"'),
    zero("ZC104", "a whole number with an exponent", '"reduce_bucket_size": 5e8'),
    zero("ZC104", "a fraction", '"reduce_bucket_size": 1.5')
    .finds("error", "ds.json: 1.5", "1.5")
    .becomes('"reduce_bucket_size": 2}'),
    zero("ZC104", "a fraction for a switch", '"overlap_comm": 1.5').finds("error", "ds.json: 1.5", "1.5").becomes(),
    yaml("ZC104", "a word for a number", "num_machines: two\n").finds("error", "accelerate.yaml: two"),
    *(
        yaml("ZC104", "YAML 1.1 reads a text", f"{written}\n")
        .finds("error", f"accelerate.yaml: {number}", *figures)
        .says(f"YAML 1.1 reads {number} as a text; write {meant}")
        .becomes(f"{written.replace(number, meant)}", safe=True)
        for written, number, meant, figures in (
            ("  gradient_accumulation_steps: 1e1", "1e1", "10", ("1e1", "1e1", "1.1", "1e1", "10")),
            ("main_process_port: 1e4", "1e4", "10000", ("1e4", "1.1", "1e4", "10000")),
        )
    ),
    yaml("ZC104", "a key that this launch does not look at", "main_training_function: 3\n")
    .finds("warning", "accelerate.yaml: 3", 3)
    .says("accelerate does not look at it in this launch"),
    yaml("ZC104", "on the line, which another rule tells", "", "--num_machines two "),
    zero("ZC104", "a placeholder, which another rule tells", '"reduce_bucket_size": "${SIZE}"'),
    top("ZC109", "a placeholder, which another rule tells", '"steps_per_print": "${STEPS}"'),
    near("ZC108", "the path of a config")
    .finds("error", "accelerate.yaml: ds.json")
    .says("write `deepspeed_config: {deepspeed_config_file: ds.json}`"),
    zero("ZC105", "the least", '"reduce_bucket_size": 1'),
    zero("ZC105", "negative", '"reduce_bucket_size": -1').finds("error", "ds.json: -1", -1, 0),
    zero("ZC106", "small letters", '"offload_optimizer": {"device": "cpu"}'),
    yaml("ZC106", "nothing near", "", base=YAML.replace("DEEPSPEED", "ZIGZAG")).finds(
        "error", "accelerate.yaml: ZIGZAG"
    ),
    zero("ZC107", "where null is the default", '"offload_optimizer": null'),
    of("ZC108", "nothing", {"accelerate.yaml": YAML[:-17] + "deepspeed_config: null\n"}, "accelerate"),
    top("ZC109", "a text where a text is wanted", '"communication_data_type": "fp32"'),
    top("ZC109", "a number in quotes", '"steps_per_print": "10"').finds("warning", 'ds.json: "10"', 10),
    top("ZC109", "a number in quotes that stops the engine, which another rule tells", '"train_batch_size": "4"'),
    near("ZC113", "a config instead of a recipe", ("    recipe: recipe.yaml\n", "    deepspeed: ds.json\n")).finds(
        "error", "zerocfg.yaml: sft"
    ),
    near(
        "ZC119", "bases that extend each other", ("common: {", "common: {extends: common, "), ("comon", "common")
    ).finds("error", "zerocfg.yaml:3:21: common"),
)

DROPPED = "config.yaml: sequence_length"
RELEASES = ("0.5.0", "0.21.0")
AXOLOTL = (
    near("ZC120", "nothing near", ("sequence_length: 2048", "zigzag: 2048")),
    near("ZC120", "the name that was meant is written too", ("sequence_length", "sequence_len: 2048\nsequence_length")),
    near("ZC120", "a key that older releases had", ("sequence_length: 2048", "max_packed_sequence_len: 2048")),
    near("ZC120", "a key of one of its plugins", ("sequence_length: 2048", "liger_rope: true")),
    near(
        "ZC120",
        "a longer name that begins like a key",
        ("sequence_length: 2048", "sample_packing_seq_len_multiplier: 2"),
    ),
    near("ZC120", "plugins of axolotl", ("output_dir", "plugins: [axolotl.integrations.liger.LigerPlugin]\noutput_dir"))
    .finds("warning", DROPPED, *RELEASES)
    .becomes("sequence_len: 2048\n"),
    near("ZC120", "a plugin of somebody else", ("output_dir", "plugins: [mine.Plugin]\noutput_dir")),
    near("ZC120", "axolotl's own source", files={"src/axolotl/__init__.py": ""}),
    near("ZC120", "another package's source", files={"src/other/__init__.py": ""}).finds("warning", DROPPED, *RELEASES),
    near("ZC120", "more than a fifth is unknown", ("output_dir", "trainer_name: mine\noutput_dir")),
)

TABLE = (*NAMES, *PLACES, *VALUES, *AXOLOTL)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
