"""Near misses of `zerocfg.rules.precision`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from .files import of
from .table import Near, judge, near, rows

if TYPE_CHECKING:
    from pathlib import Path


def ds(code: str, why: str, more: str, stage: int | str = 2) -> Near:
    """A config for DeepSpeed itself; ``more`` are further sections."""
    zero = f'{{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {{"stage": {stage}}}'
    return of(code, why, {"ds.json": f"{zero}, {more}}}\n" if more else f"{zero}}}\n"}, "deepspeed")


def fp16(code: str, why: str, keys: str, stage: int = 2) -> Near:
    return ds(code, why, f'"fp16": {{"enabled": true, {keys}}}', stage)


BF16 = '"bf16": {"enabled": true}'
FP16 = '"fp16": {"enabled": true}'


def power(number: int) -> str:
    return f'ds.json: "initial_scale_power": {number}'


MULTI = "distributed_type: MULTI_GPU\nmixed_precision: fp16\nnum_processes: 2\n"
OWN_LOOP = "from accelerate import Accelerator\naccelerator = Accelerator(%s)\nmodel = accelerator.prepare(model)\n"
WINNERS = (
    of(
        "ZC308",
        "the launcher's option beats its file",
        {
            "acc.yaml": MULTI,
            "train.py": OWN_LOOP % "",
            "run.sh": "accelerate launch --config_file acc.yaml --mixed_precision bf16 train.py\n",
        },
    )
    .finds("warning", "acc.yaml: mixed_precision: fp16", also=("run.sh: --mixed_precision bf16",))
    .says("the launcher's option wins over its file"),
    of(
        "ZC308",
        "the argument of Accelerator beats the file",
        {
            "acc.yaml": MULTI,
            "train.py": OWN_LOOP % 'mixed_precision="bf16"',
            "run.sh": "accelerate launch --config_file acc.yaml train.py\n",
        },
    )
    .finds("warning", "acc.yaml: mixed_precision: fp16", also=('train.py: "bf16"',))
    .says("the argument of Accelerator wins"),
)
SCALING = (
    fp16("ZC315", "the least that is fixed", '"loss_scale": 1').finds("warning", 'ds.json: "loss_scale": 1', 1, 0),
    fp16("ZC315", "negative", '"loss_scale": -1'),
    fp16("ZC315", "a truth", '"loss_scale": true'),
    ds("ZC315", "fp16 is off", '"fp16": {"enabled": false, "loss_scale": 1024}'),
    fp16("ZC316", "the last power that fits fp16", '"initial_scale_power": 24'),
    fp16("ZC316", "one more", '"initial_scale_power": 25').finds("note", power(25), 2, 25, 9, 16),
    fp16("ZC316", "the last that a number holds", '"initial_scale_power": 63').finds("note", power(63), 2, 63, 47, 16),
    fp16("ZC316", "the first that none holds", '"initial_scale_power": 64').finds("error", power(64), 2, 64, 16),
    fp16("ZC316", "stage 1 stops", '"initial_scale_power": 64', 1).finds("error", power(64), 2, 64, 16),
    fp16("ZC316", "stage 3 stops", '"initial_scale_power": 64', 3).finds("error", power(64), 2, 64, 16),
    fp16("ZC316", "without ZeRO no scale is found", '"initial_scale_power": 64', 0).finds(
        "error", power(64), 2, 64, 65504, 16
    ),
    fp16("ZC316", "the last without ZeRO that a float holds", '"initial_scale_power": 1023', 0).finds(
        "error", power(1023), 2, 1023, 65504, 16
    ),
    fp16("ZC316", "the first without ZeRO that none holds", '"initial_scale_power": 1024', 0)
    .finds("error", power(1024), 2, 1024, 16)
    .says("stops in its first step"),
    fp16("ZC316", "a fixed scale does not start", '"initial_scale_power": 65536, "loss_scale": 1024'),
    ds("ZC316", "fp16 is off", '"fp16": {"enabled": false, "initial_scale_power": 65536}'),
    fp16("ZC317", "just above 0", '"min_loss_scale": 0.5, "loss_scale_window": 1'),
    fp16("ZC317", "a fixed scale has no bounds", '"min_loss_scale": 0, "loss_scale": 1024'),
    fp16("ZC317", "both, one negative", '"min_loss_scale": 0, "loss_scale_window": -1')
    .finds("error", 'ds.json: "min_loss_scale": 0', 0, 0)
    .finds("error", 'ds.json: "loss_scale_window": -1', -1, 0),
    fp16("ZC318", "one below the start", '"initial_scale_power": 20, "min_loss_scale": 1048575'),
    fp16("ZC318", "the default start", '"min_loss_scale": 65536').finds(
        "warning", 'ds.json: "min_loss_scale": 65536', 65536, 65536
    ),
    fp16("ZC318", "one below the default start", '"min_loss_scale": 65535'),
    fp16("ZC318", "a start at 1", '"initial_scale_power": 0, "min_loss_scale": 1').finds(
        "warning", 'ds.json: "min_loss_scale": 1', 1, 1
    ),
    fp16("ZC318", "a start below 1, which nobody means", '"initial_scale_power": -1, "min_loss_scale": 1'),
    fp16(
        "ZC318",
        "a start that no number holds, which another rule tells",
        '"initial_scale_power": 64, "min_loss_scale": 1e30',
    ),
    fp16("ZC318", "a fixed scale does not fall", '"min_loss_scale": 65536, "loss_scale": 1024'),
    ds("ZC319", "DeepSpeed's default", '"fp16": {"enabled": false, "loss_scale": 0, "auto_cast": false}'),
    ds("ZC319", "fp16 perhaps", '"fp16": {"enabled": "auto", "loss_scale": 1024}'),
    fp16("ZC319", "fp16 is on", '"loss_scale": 1024'),
    ds("ZC319", "in fp32", '"fp16": {"enabled": false, "auto_cast": true}').finds("note", 'ds.json: "auto_cast": true'),
    fp16("ZC331", "half of one", '"hysteresis": 0.5').finds("error", 'ds.json: "hysteresis": 0.5', "0.5", 1),
    fp16("ZC331", "negative", '"hysteresis": -1').finds("error", 'ds.json: "hysteresis": -1', -1, 1),
    fp16("ZC331", "a fixed scale does not fall", '"hysteresis": 0, "loss_scale": 1024'),
)


def accumulated(dtype: str) -> str:
    return f'"data_types": {{"grad_accum_dtype": "{dtype}"}}'


def placed(dtype: str) -> str:
    return f'ds.json: "grad_accum_dtype": "{dtype}"'


DTYPES = (
    ds("ZC309", "the model's own", f"{BF16}, {accumulated('bfloat16')}", 0),
    ds("ZC309", "stage 1", f"{BF16}, {accumulated('fp32')}", 1),
    ds("ZC309", "an fp32 model's own", accumulated("float32"), 0),
    ds("ZC309", "an fp32 model", accumulated("half"), 0).finds("error", placed("half"), 1, 2),
    ds("ZC309", "no dtype", f"{BF16}, {accumulated('bf17')}", 0),
    ds("ZC310", "stage 2", f"{BF16}, {accumulated('int8')}", 2),
    ds("ZC310", "buffers in fp32", '"data_types": {"buffer_dtype": "fp32"}'),
    ds("ZC310", "autocast is off", '"torch_autocast": {"enabled": false, "dtype": "int8"}'),
    ds("ZC310", "autocast to bf16", '"torch_autocast": {"enabled": true, "dtype": "bf16"}'),
    ds("ZC311", "stage 2", accumulated("bf16"), 2),
    ds("ZC311", "stage 0, which another rule tells", accumulated("bf16"), 0),
    ds("ZC311", "wider", f"{BF16}, {accumulated('fp32')}", 1),
    ds("ZC311", "the model's own", f"{BF16}, {accumulated('bf16')}", 1),
    *(
        ds("ZC311", f"{dtype} of a model in {mode}", f'"{mode}": {{"enabled": true}}, {accumulated(dtype)}', 3).finds(
            "warning", placed(dtype)
        )
        for dtype, mode in (("fp16", "bf16"), ("bf16", "fp16"))
    ),
    ds("ZC311", "fp16 of a model in fp32", accumulated("fp16"), 3).finds("warning", placed("fp16")),
    ds("ZC313", "another name of the same", f'{BF16}, "data_types": {{"param_dtype": "torch.bfloat16"}}'),
    ds("ZC313", "no dtype", f'{BF16}, "data_types": {{"param_dtype": "bf17"}}'),
    ds("ZC313", "fp32 under bf16", f'{BF16}, "data_types": {{"param_dtype": "fp32"}}').finds(
        "error", 'ds.json: "param_dtype": "fp32"'
    ),
    ds("ZC314", "an fp16 model scales its loss", f'{FP16}, "communication_data_type": "fp16"'),
    ds("ZC314", "fp32", '"communication_data_type": "fp32"'),
    ds("ZC314", "an fp32 model, in capitals", '"communication_data_type": "FP16"').finds(
        "warning", 'ds.json: "communication_data_type": "FP16"', 0
    ),
)


TO_FP16, TO_BF16 = ', "dtype": "fp16"', ', "dtype": "bf16"'


def cast(keys: str) -> str:
    return f'"torch_autocast": {{"enabled": true{keys}}}'


AUTOCAST = (
    ds("ZC322", "autocast is off", BF16 + ', "torch_autocast": {"enabled": false, "dtype": "bf16"}'),
    ds("ZC322", "under ZeRO no scaler is asked", BF16 + ", " + cast(TO_FP16), 1).finds(
        "warning", 'ds.json: "torch_autocast": {"enabled": true, "dtype": "fp16"}'
    ),
    ds("ZC322", "without ZeRO, to bf16", BF16 + ", " + cast(TO_BF16), 0).finds(
        "warning", 'ds.json: "torch_autocast": {"enabled": true, "dtype": "bf16"}'
    ),
    ds("ZC322", "without ZeRO, an fp16 model", FP16 + ", " + cast(TO_FP16), 0).finds(
        "warning", 'ds.json: "torch_autocast": {"enabled": true, "dtype": "fp16"}'
    ),
    ds("ZC323", "without ZeRO there is a scaler", cast(', "dtype": "fp16"'), 0),
    ds("ZC323", "stage 1", cast(TO_FP16), 1).finds("warning", 'ds.json: "dtype": "fp16"', 1, 0),
    ds("ZC323", "stage 3, another name", cast(', "dtype": "half"'), 3).finds(
        "warning", 'ds.json: "dtype": "half"', 3, 0
    ),
    ds("ZC323", "a model in bf16, which another rule tells", BF16 + ", " + cast(TO_FP16)),
    ds("ZC323", "a model in fp16, which another rule tells", FP16 + ", " + cast(TO_FP16)),
    ds("ZC323", "autocast is off", '"torch_autocast": {"enabled": false, "dtype": "fp16"}'),
    ds("ZC324", "autocast is off", '"torch_autocast": {"enabled": false}'),
    near("ZC325", "a class of your own", ('"Linear"', '"MyLayer"')).finds("error", 'ds.json: "MyLayer"'),
    near("ZC325", "one of two", ('"Linear"', '"torch.nn.Conv1d", "LayerNorm"')).finds("error", 'ds.json: "LayerNorm"'),
    near("ZC325", "autocast is off", ('"enabled": true', '"enabled": false')),
)

FP8 = "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: fp8\nfp8_config:\n"
DYNAMO = "distributed_type: MULTI_GPU\nnum_processes: 2\ndynamo_config:\n"
LINE = "accelerate launch --config_file accelerate.yaml %s train.py\n"


def config(code: str, why: str, yaml: str, options: str = "") -> Near:
    files = {"accelerate.yaml": yaml}
    return of(code, why, {**files, "train.sh": LINE % options} if options else files, "accelerate")


NOT_FP8 = (("mixed_precision: fp8", "mixed_precision: bf16"),)

ACCELERATE = (
    near("ZC340", "no fp8", *NOT_FP8),
    config(
        "ZC340",
        "beside the name that is read",
        FP8 + "  backend: TE\n  amax_history_length: 16\n  amax_history_len: 8\n",
    ).finds("error", "accelerate.yaml: amax_history_length: 16", 16),
    config("ZC340", "with a prefix", FP8 + "  backend: MSAMP\n  fp8_optimization_level: O1\n").finds(
        "error", "accelerate.yaml: fp8_optimization_level: O1"
    ),
    near("ZC341", "another backend", ("backend: AO", "backend: TE")),
    near(
        "ZC341",
        "with the prefix, and loading said",
        ("  backend: AO", "  fp8_backend: AO"),
        ("fsdp_version: 2", "fsdp_version: 2\n  fsdp_cpu_ram_efficient_loading: true"),
    ).finds(
        "error", "accelerate.yaml: fp8_backend: AO", also=("accelerate.yaml: fsdp_cpu_ram_efficient_loading: true",)
    ),
    near("ZC341", "no FSDP", ("distributed_type: FSDP", "distributed_type: MULTI_GPU")),
    near("ZC342", "no fp8", *NOT_FP8),
    config("ZC342", "with a prefix", FP8 + "  fp8_backend: TE\n"),
    config("ZC342", "on the line", FP8 + "  amax_history_len: 16\n", "--fp8_backend TE"),
    config("ZC342", "settings of MS-AMP alone", FP8 + "  opt_level: O1\n").finds("note", "accelerate.yaml: fp8_config"),
    config("ZC658", "torch's default", DYNAMO + "  dynamo_mode: default\n  dynamo_use_dynamic: false\n"),
    config("ZC658", "on the line", DYNAMO + "  dynamo_mode: max-autotune\n", "--dynamo_backend inductor"),
    config("ZC658", "switched off on purpose", DYNAMO + "  dynamo_backend: 'NO'\n  dynamo_mode: max-autotune\n"),
    config("ZC658", "the short name", DYNAMO + "  backend: INDUCTOR\n  mode: max-autotune\n"),
    near("ZC658", "DeepSpeed does not compile, which another rule tells", ("MULTI_GPU", "DEEPSPEED")),
)

ON = '"enabled": true'
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nfp16_full_eval: true\nmax_steps: 2\n"
LAUNCHED = "distributed_type: DEEPSPEED\nnum_processes: 1\ndeepspeed_config:\n  zero_stage: 2\n"
LINE = "accelerate launch --config_file accelerate.yaml %strain.py --config recipe.yaml\n"

FORMATS = (
    near("ZC301", "one of them perhaps", (f'"fp16": {{{ON}}}', '"fp16": {"enabled": false}')),
    near("ZC302", "DeepSpeed takes the Trainer's word", (ON, '"enabled": "auto"')),
    near(
        "ZC302",
        "the Trainer asks, DeepSpeed does not",
        (ON, '"enabled": false'),
        ("max_steps", "bf16: true\nmax_steps"),
    ).finds("error", 'ds.json: "enabled": false', also=("recipe.yaml: bf16: true",)),
    near("ZC302", "its fix trains as DeepSpeed is told")
    .finds("error", 'ds.json: "enabled": true', "5.23.0")
    .says("write `bf16: true` in the training arguments")
    .becomes("bf16: true\n"),
    near("ZC302", "said to be off", ("max_steps", "bf16: false\nmax_steps"))
    .finds("error", 'ds.json: "enabled": true', also=("recipe.yaml: bf16: false",))
    .becomes("bf16: true\n"),
    near("ZC302", "neither asks", (ON, '"enabled": false')),
    *(
        near(
            "ZC302",
            f'the launcher is told, {why}: "auto" is none of its words',
            files={"ds.json": None, "recipe.yaml": RECIPE, "accelerate.yaml": LAUNCHED + said, "train.sh": LINE % flag},
        )
        .finds("error", place, also=("recipe.yaml: fp16_full_eval: true",))
        .becomes()
        .says("ask for fp16 in both places: the launcher's `mixed_precision: fp16`")
        for why, said, flag, place in (
            ("in its file", "mixed_precision: bf16\n", "", "accelerate.yaml: mixed_precision: bf16"),
            ("by an option", "", "--mixed_precision bf16 ", "train.sh: --mixed_precision bf16"),
        )
    ),
    near("ZC303", "switched off there", (ON, '"enabled": false')),
    near("ZC303", "accelerate is not told", (" --mixed_precision bf16", "")),
    near("ZC304", "switched off", ('"auto"', "false")),
    near("ZC304", "the other one is on", ('"bf16": {"enabled": "auto"}', f'"bf16": {{"enabled": "auto"}}, {FP16}')),
    near(
        "ZC304",
        "both perhaps",
        ('"bf16": {"enabled": "auto"}', '"bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}'),
    ).finds("error", 'ds.json: "enabled": "auto"', also=('ds.json:1:112: "enabled": "auto"',)),
    near("ZC304", "accelerate fills it", consumer="accelerate"),
    near("ZC304", "before 0.17.1 any text switches it on", versions={"deepspeed": "0.17.0"}),
    near("ZC305", "on there, too", ('"enabled": false', ON)),
    near("ZC305", "nobody asks", (" --mixed_precision bf16", " --mixed_precision no")),
    near("ZC305", "the other one is off", ('"bf16"', '"fp16"')),
    of(
        "ZC305",
        "only the launcher is told",
        {
            "accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\nmixed_precision: bf16\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\ndeepspeed: ds.json\n",
            "ds.json": '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
            '"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}\n',
            "train.sh": LINE.replace("train.py", "train.py --config recipe.yaml") % "",
        },
        "transformers",
    ).finds("error", "accelerate.yaml: mixed_precision: bf16", also=('ds.json: "enabled": "auto"',)),
    near("ZC307", "another backend", ("MSAMP", "TE")),
    near("ZC307", "accelerate that does not look", versions={"accelerate": "0.34.2"}),
    near("ZC307", "no ZeRO", ("zero_stage: 3", "zero_stage: 0")),
    near("ZC308", "the launcher asks for none", ("mixed_precision: fp16", "mixed_precision: 'no'")),
    near("ZC308", "the Trainer asks for none", ("bf16: true", "bf16: false")),
)

MASTERS = '"bf16_master_weights_and_grads": true'
STATES = '"bf16_optimizer_states": true'
HOST = '2, "offload_optimizer": {"device": "cpu"}'
NVME = '3, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"}'
UPDATE = '"bf16": {"enabled": true, "immediate_grad_update": true}'


def masters(code: str, why: str, keys: str, stage: int | str = 2, more: str = "") -> Near:
    return ds(code, why, f'"bf16": {{"enabled": true, {keys}}}{more}', stage)


MASTER_WEIGHTS = (
    masters("ZC306", "stage 1", f"{MASTERS}, {STATES}", 1),
    masters("ZC306", "stage 0", MASTERS, 0).finds("error", f"ds.json: {MASTERS}", 1, 2, 3),
    masters("ZC306", "states without master weights", STATES).finds("error", f"ds.json: {STATES}"),
    masters("ZC326", "states, too", f"{MASTERS}, {STATES}"),
    masters("ZC326", "on a drive", MASTERS, NVME),
    masters("ZC326", "stage 0, which another rule tells", MASTERS, 0),
    masters("ZC326", "switched off", MASTERS.replace("true", "false")),
    *(
        masters(
            "ZC326",
            f"{kind} on the host",
            MASTERS,
            HOST,
            f', "optimizer": {{"type": "{kind}", "params": {{"lr": 1e-4}}}}',
        )
        for kind in ("Adam", "adamw")
    ),
    masters(
        "ZC326", "Lion on the host", MASTERS, HOST, ', "optimizer": {"type": "Lion", "params": {"lr": 1e-4}}'
    ).finds("error", f"ds.json: {MASTERS}"),
    ds("ZC326", "fp16", '"fp16": {"enabled": true, "fp16_master_weights_and_grads": true}').finds(
        "error", 'ds.json: "fp16_master_weights_and_grads": true'
    ),
    near("ZC327", "not offloaded", ('"device": "cpu"', '"device": "none"')),
    near("ZC327", "no master weights, which another rule tells", (MASTERS + ", ", "")),
    near("ZC327", "fp32 states", (STATES, STATES.replace("true", "false"))),
    near("ZC327", "no ZeRO", ('"stage": 2', '"stage": 0')),
    masters("ZC328", "of its own mode", MASTERS, HOST),
    near("ZC328", "not offloaded, without states", ('"device": "cpu"', '"device": "none"')),
    near(
        "ZC328",
        "not offloaded, with states",
        ('"device": "cpu"', '"device": "none"'),
        (MASTERS, f"{MASTERS}, {STATES}"),
    ).finds("error", f"ds.json: {MASTERS}"),
    *(
        near(code, f"stage {stage}", ('"stage": 2', f'"stage": {stage}')).finds("error", f"ds.json: {key}")
        for code, key in (("ZC326", MASTERS), ("ZC327", STATES), ("ZC328", MASTERS))
        for stage in (1, 3)
    ),
    near("ZC328", "no ZeRO", ('"stage": 2', '"stage": 0')),
    near("ZC328", "an fp16 model", ('"bf16"', f'{FP16}, "bf16"')).finds("error", f"ds.json: {MASTERS}"),
    ds("ZC320", "stage 1 with fp32 accumulation", f"{UPDATE}, {accumulated('fp32')}", 1),
    ds("ZC320", "stage 1 without", UPDATE, 1).finds("note", 'ds.json: "immediate_grad_update": true', 1),
    ds("ZC320", "stage 1 of an fp32 model", UPDATE.replace("true", "false", 1), 1),
    ds("ZC320", "stage 0", UPDATE, 0),
    ds("ZC320", "stage 3", UPDATE, 3).finds("note", 'ds.json: "immediate_grad_update": true', 3),
    ds("ZC320", "a pipeline", UPDATE + ', "pipeline": {"stages": 2}'),
    ds("ZC320", "switched off", UPDATE.replace('update": true', 'update": false')),
    near("ZC321", "off in both", ('"bfloat16": {"enabled": true}', '"bfloat16": {"enabled": false}')),
    near("ZC321", "the same in both", ('"bf16": {"enabled": false}', BF16)).finds(
        "note", 'ds.json: "bfloat16": {"enabled": true}'
    ),
    ds("ZC321", "a section that says nothing", '"bf16": {}, "bfloat16": {"enabled": true}')
    .finds("error", 'ds.json: "bfloat16": {"enabled": true}')
    .becomes(),
    ds("ZC321", "alone, read by DeepSpeed itself", '"bfloat16": {"enabled": true}'),
    near(
        "ZC321", "accelerate is told", ("num_processes: 1\n", "num_processes: 1\nmixed_precision: bf16\n"), bad=2
    ).finds("note", 'ds.json: "bfloat16": {"enabled": true}'),
)

ARGUMENTS = (
    near("ZC329", "not in evaluation", ("bf16_full_eval: true", "bf16_full_eval: false")),
    near("ZC329", "said, and lost", ("bf16_full_eval: true", "bf16: false\nbf16_full_eval: true")).finds(
        "warning", "recipe.yaml: bf16_full_eval: true", also=('ds.json: "enabled": "auto"',)
    ),
    near("ZC329", "the config decides", ('"auto"}', "true}")),
    near("ZC329", "fp16", ("bf16_full", "fp16_full"), ('"bf16"', '"fp16"')).finds(
        "warning", "recipe.yaml: fp16_full_eval: true", also=('ds.json: "enabled": "auto"',)
    ),
    near("ZC330", "a model in fp32", ("bfloat16", "float32")),
    near("ZC330", "the short name", ("bfloat16", "bf16")).finds("warning", "recipe.yaml: fp16: true"),
    near("ZC330", "fp32 training", ("fp16: true\n", "")),
    near("ZC330", "asked for in DeepSpeed's config as well", ('"stage": 2}', f'"stage": 2}}, {FP16}')).finds(
        "warning", "recipe.yaml: fp16: true"
    ),
    near("ZC330", "no model", ("    model: model/config.json\n", "")),
)

TABLE = (*WINNERS, *SCALING, *DTYPES, *AUTOCAST, *ACCELERATE, *FORMATS, *MASTER_WEIGHTS, *ARGUMENTS)


@pytest.mark.parametrize("row", rows(TABLE))
def test_near(row: Near, tmp_path: Path) -> None:
    judge(row, tmp_path)
