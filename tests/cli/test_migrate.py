"""``zerocfg migrate``: what is edited, what is left, and that everything else stays."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.conftest import Outcome

Cli = Callable[..., Outcome]
TODAY = "deepspeed==0.19.8,accelerate==1.15.0,transformers==5.23.0,trl==1.16.0"
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nlearning_rate: 1.0e-5\n"
LOOP = "import deepspeed\nengine, *_ = deepspeed.initialize(model=model, config='ds.json')\n"
LINE = "deepspeed --num_gpus 2 train.py --deepspeed --deepspeed_config ds.json\n"


def migrated(zerocfg: Cli, folder: Path, files: dict[str, str], *words: str) -> dict[str, str]:
    """The files after ``migrate --write``; a second call finds nothing to write."""
    for name, text in files.items():
        (folder / name).write_bytes(text.encode())
    assert zerocfg("migrate", "--to", TODAY, "--write", *words).code in (0, 1)
    after = {name: (folder / name).read_bytes().decode() for name in files}
    zerocfg("migrate", "--to", TODAY, "--write", *words)
    assert {name: (folder / name).read_bytes().decode() for name in files} == after
    return after


def left(zerocfg: Cli, *words: str) -> list[tuple[str, str]]:
    """Place and reason of what needs a person."""
    found = json.loads(zerocfg("migrate", "--to", TODAY, "--output-format", "json", *words).out)
    return [(f"{one['file']}:{one['line']}", one["why"]) for one in found["left"]]


# -- recipes -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("evaluation_strategy: 'no'  # never\n", "eval_strategy: 'no'  # never\n"),
        ("warmup_ratio: 3.0e-2\n", "warmup_steps: 3.0e-2\n"),
        ("warmup_ratio: 0.1\nwarmup_steps: 0\n", "warmup_steps: 0.1\n"),
        ("warmup_ratio: 0.1\nwarmup_steps: 20\n", "warmup_steps: 20\n"),
        ("group_by_length: true\n", "train_sampling_strategy: group_by_length\n"),
        ("group_by_length: false\n", ""),
        ("adafactor: true\n", "optim: adafactor\n"),
        ("include_inputs_for_metrics: true\n", 'include_for_metrics: ["inputs"]\n'),
        ("no_cuda: true\n", "use_cpu: true\n"),
        ("overwrite_output_dir: true\n", ""),
        ("half_precision_backend: auto\n", ""),
        ("split_batches: true\n", 'accelerator_config: {"split_batches": true}\n'),
        ("per_gpu_train_batch_size: 4\n", None),  # per_device_train_batch_size says 1
        ("per_gpu_eval_batch_size: 4\n", "per_device_eval_batch_size: 4\n"),
        ("warmup_ratio: 1.0\n", None),  # would be one step
        ("logging_dir: logs\n", None),
        ("logging_dir: logs\nreport_to: wandb\n", "report_to: wandb\n"),
        ("logging_dir: logs\nreport_to: [tensorboard]\n", None),
        ("half_precision_backend: apex\n", None),
        ("push_to_hub_organization: us\n", None),
        ("push_to_hub_organization: null\n", ""),
        ("push_to_hub_model_id: mine\n", "hub_model_id: mine\n"),
        ("push_to_hub_model_id: mine\npush_to_hub_organization: us\n", None),
        ("push_to_hub_model_id: mine\nhub_model_id: mine\n", "hub_model_id: mine\n"),
        ("push_to_hub_model_id: mine\nhub_model_id: other\n", None),
        ("group_by_length: true\ntrain_sampling_strategy: random\n", None),
        (
            "group_by_length: true\ntrain_sampling_strategy: group_by_length\n",
            "train_sampling_strategy: group_by_length\n",
        ),
        ("warmup_ratio: 0.1\nwarmup_steps: 1\n", "warmup_steps: 1\n"),  # one step wins over the ratio
        ("warmup_ratio: 1.0e-6\nwarmup_steps: 0\n", "warmup_steps: 1.0e-06\n"),  # YAML 1.1 takes 1e-06 for a text
        ("warmup_ratio: 0\nwarmup_steps: 0\n", "warmup_steps: 0.0\n"),
        ("warmup_ratio: true\n", None),
        ("split_batches: true\naccelerator_config: {split_batches: false}\n", None),
        (
            "split_batches: true\naccelerator_config: {even_batches: false}\n",
            "accelerator_config: {even_batches: false, split_batches: true}\n",
        ),
        ("split_batches: true\naccelerator_config: accelerator.json\n", None),
        ("half_precision_backend: auto\nfp16_backend: apex\n", None),
        ("fp16_opt_level: O1\n", ""),
        ("fp16_opt_level: O1\nhalf_precision_backend: apex\n", None),
        ("include_inputs_for_metrics: true\ninclude_for_metrics: [loss]\n", None),
        ("use_legacy_prediction_loop: false\n", ""),
        ("use_legacy_prediction_loop: true\n", None),
        ("mp_parameters: ''\n", ""),
        ("ray_scope: last\n", ""),
        ("ray_scope: all\n", None),
        ("past_index: 0\n", None),
        ("torchdynamo: inductor\n", "torch_compile_backend: inductor\n"),
        ("sharded_ddp: simple\n", None),
        ("logging_dir: logs\nreport_to: all\n", None),
        ("logging_dir: logs\nreport_to: [wandb, all]\n", None),
        ("logging_dir: logs\nreport_to: [wandb, mlflow]\n", "report_to: [wandb, mlflow]\n"),
        ("eval_strategy: epoch\n", "eval_strategy: epoch\n"),
        ("my_own_name: 1\n", "my_own_name: 1\n"),
    ],
)
def test_an_argument_of_a_recipe(zerocfg: Cli, tmp_path: Path, old: str, new: str | None) -> None:
    after = migrated(zerocfg, tmp_path, {"recipe.yaml": RECIPE + old})["recipe.yaml"]
    assert after == RECIPE + (old if new is None else new)
    assert bool(left(zerocfg)) is (new is None)


@pytest.mark.parametrize(
    ("value", "kept"),
    [("save_safetensors: true\n", False), ("save_safetensors: false\n", True), ("past_index: -1\n", False)],
)
def test_a_removed_argument_goes_where_it_says_its_default(
    zerocfg: Cli, tmp_path: Path, value: str, kept: bool
) -> None:
    after = migrated(zerocfg, tmp_path, {"recipe.yaml": RECIPE + value})["recipe.yaml"]
    assert after == RECIPE + value * kept
    assert [place for place, _ in left(zerocfg)] == ["recipe.yaml:5"] * kept


def test_a_release_in_between_keeps_what_it_still_has(zerocfg: Cli, tmp_path: Path) -> None:
    text = RECIPE + "evaluation_strategy: steps\nwarmup_ratio: 0.1\ngroup_by_length: true\n"
    (tmp_path / "recipe.yaml").write_text(text)
    zerocfg("migrate", "--to", "transformers==4.45.2", "--write")
    assert (tmp_path / "recipe.yaml").read_text() == text
    zerocfg("migrate", "--to", "transformers==5.1.0", "--write")
    assert (tmp_path / "recipe.yaml").read_text() == text.replace("evaluation_strategy", "eval_strategy")


def test_line_ends_and_the_json_of_a_recipe_stay(zerocfg: Cli, tmp_path: Path) -> None:
    yaml = (RECIPE + "warmup_ratio: 0.1\novewrite: 1\noverwrite_output_dir: true\n").replace("\n", "\r\n")
    data = '{"output_dir": "out",  "max_steps": 2,\n "per_device_train_batch_size": 1, "warmup_ratio": 0.1,\n '
    data += '"use_mps_device": true}'
    after = migrated(zerocfg, tmp_path, {"recipe.yaml": yaml, "other.json": data})
    assert after["recipe.yaml"] == yaml.replace("warmup_ratio", "warmup_steps").replace(
        "overwrite_output_dir: true\r\n", ""
    )
    wanted = data.replace("warmup_ratio", "warmup_steps").replace(',\n "use_mps_device": true', "")
    assert after["other.json"].replace("\n }", "}") == wanted


def test_recipes_of_other_programs_are_left_alone(zerocfg: Cli, tmp_path: Path) -> None:
    recipe = "model_name_or_path: m\nstage: sft\nfinetuning_type: full\ndataset: d\ntemplate: qwen\n"
    recipe += "output_dir: o\nwarmup_ratio: 0.1\n"
    files = {"recipe.yaml": recipe, "run.sh": "llamafactory-cli train recipe.yaml\n"}
    assert migrated(zerocfg, tmp_path, files) == files


# -- launch lines and code ---------------------------------------------------------------------------------------

SCRIPT = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    "(args,) = HfArgumentParser((TrainingArguments,)).parse_args_into_dataclasses()\n"
    "Trainer(model, args).train()\n"
)


def test_options_of_a_launch_line(zerocfg: Cli, tmp_path: Path) -> None:
    line = (
        "torchrun --nproc_per_node 2 train.py \\\n    --output_dir $OUT --warmup_ratio=0.03 \\\n"
        '    --evaluation_strategy "no" --overwrite_output_dir \\\n    --group_by_length True \\\n    --bf16 True\n'
    )
    after = migrated(zerocfg, tmp_path, {"run.sh": line, "train.py": SCRIPT})
    assert after["run.sh"] == (
        "torchrun --nproc_per_node 2 train.py \\\n    --output_dir $OUT --warmup_steps=0.03 \\\n"
        '    --eval_strategy "no" \\\n    --train_sampling_strategy group_by_length \\\n    --bf16 True\n'
    )
    assert after["train.py"] == SCRIPT


def test_a_variable_keeps_its_place_and_what_depends_on_it_is_left(zerocfg: Cli, tmp_path: Path) -> None:
    line = "torchrun train.py --output_dir o --evaluation_strategy $WHEN --warmup_ratio $RATIO\n"
    after = migrated(zerocfg, tmp_path, {"run.sh": line, "train.py": SCRIPT})
    assert after["run.sh"] == line.replace("evaluation_strategy", "eval_strategy")
    assert [place for place, _ in left(zerocfg)] == ["run.sh:1"]


@pytest.mark.parametrize(
    ("options", "after", "why"),
    [
        ("--adafactor=True", "--optim=adafactor", None),
        ("--adafactor --tf32 True", "--optim adafactor --tf32 True", None),
        ("--include_inputs_for_metrics", "--include_for_metrics inputs", None),
        ("--past_index -1 --tf32 True", "--tf32 True", None),
        ("--group_by_length $GROUP", None, "write train_sampling_strategy: group_by_length"),
        ("--past_index 3", None, "nothing reads it any more"),
        ("--split_batches True", None, "write `accelerator_config.split_batches`"),
        ("--warmup_ratio=0.1 --warmup_steps 0", None, "write `warmup_steps: 0.1`"),
        ("--warmup_ratio 0.1 --warmup_steps $N", None, "`warmup_steps`, whose value the files do not tell"),
        ("--half_precision_backend apex", None, "Apex is gone"),
        ("--per_gpu_eval_batch_size 2 --per_device_eval_batch_size 2", "--per_device_eval_batch_size 2", None),
        (
            "--per_gpu_eval_batch_size 2 --per_device_eval_batch_size 4",
            None,
            "`per_device_eval_batch_size` says 4 beside it",
        ),
    ],
)
def test_an_option(zerocfg: Cli, tmp_path: Path, options: str, after: str | None, why: str | None) -> None:
    line = "torchrun train.py --output_dir o --bf16 True %s\n"
    files = {"run.sh": line % options, "train.py": SCRIPT}
    assert migrated(zerocfg, tmp_path, files) == {**files, "run.sh": line % (after or options)}
    told = left(zerocfg)
    assert [place for place, _ in told] == ["run.sh:1"] * (after is None)
    assert all(why is not None and why in one for _, one in told)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        (
            "run.sh",
            f"cat > recipe.yaml <<EOF\n{RECIPE}warmup_ratio: 0.1\noverwrite_output_dir: true\ngroup_by_length: true\n"
            "EOF\naccelerate launch train.py --config recipe.yaml\n",
            [
                ("run.sh:6", "write `warmup_steps`, where the recipe is made"),
                ("run.sh:7", "leave it out (the Trainer writes to an existing folder in every release), where the"),
                ("run.sh:8", "write `train_sampling_strategy: group_by_length`, where the recipe is made"),
            ],
        ),
        (
            "run.sh",
            "torchrun train.py --output_dir o --bf16 True --num_train_epochs 1 --learning_rate 1e-5 \\\n"
            "  --per_device_train_batch_size 1 --warmup_ratio 0.1 --overwrite_output_dir\n",
            [
                ("run.sh:2", "leave it out (the Trainer writes to an existing folder in every release), if the script"),
                ("run.sh:2", "write `warmup_steps`, if the script gives its options to the Trainer"),
            ],
        ),
        (
            "zerocfg.yaml",
            "version: 1\nruns:\n  sft:\n    script: train.py\n    consumer: transformers\n"
            "    arguments: [--output_dir, o, --warmup_ratio, '0.1']\n",
            [("zerocfg.yaml:6", "write `warmup_steps`; the option is put together elsewhere")],
        ),
    ],
)
def test_what_is_made_elsewhere_comes_with_the_advice(
    zerocfg: Cli, tmp_path: Path, name: str, text: str, says: list[tuple[str, str]]
) -> None:
    assert migrated(zerocfg, tmp_path, {name: text}) == {name: text}
    found = sorted(left(zerocfg))
    assert [place for place, _ in found] == [place for place, _ in says]
    assert [said in why for (_, why), (_, said) in zip(found, says, strict=True)] == [True] * len(says), found


def test_runs_that_need_different_values_of_one_recipe(zerocfg: Cli, tmp_path: Path) -> None:
    """One of them gives the steps on its line, which win over the ratio."""
    files = {
        "recipe.yaml": RECIPE + "warmup_ratio: 0.1\n",
        "a.sh": "accelerate launch train.py --config recipe.yaml\n",
        "b.sh": "accelerate launch train.py --config recipe.yaml --warmup_steps 5\n",
        "train.py": "from trl import SFTConfig, SFTTrainer, TrlParser\n"
        "(args,) = TrlParser((SFTConfig,)).parse_args_and_config()\nSFTTrainer(m, args=args).train()\n",
    }
    assert migrated(zerocfg, tmp_path, files) == files
    assert [(place, why.rpartition("; ")[2]) for place, why in left(zerocfg)] == [
        ("recipe.yaml:5", "the runs that read it need different values")
    ]
    (tmp_path / "b.sh").unlink()
    del files["b.sh"]
    assert migrated(zerocfg, tmp_path, files)["recipe.yaml"] == RECIPE + "warmup_steps: 0.1\n"
    assert left(zerocfg) == []


def test_options_that_several_lines_share(zerocfg: Cli, tmp_path: Path) -> None:
    text = 'SHARED="--output_dir o --warmup_ratio 0.1"\n'
    text += "torchrun train.py $SHARED --bf16 True\ntorchrun train.py $SHARED --fp16 True\n"
    after = migrated(zerocfg, tmp_path, {"run.sh": text, "train.py": SCRIPT})["run.sh"]
    assert after == text.replace("warmup_ratio", "warmup_steps")
    assert left(zerocfg) == []


def test_an_option_that_is_put_together_elsewhere_is_left(zerocfg: Cli, tmp_path: Path) -> None:
    line = 'RATIO="--warmup_ratio 0.1"\ntorchrun train.py --output_dir o $RATIO --bf16 True\n'
    after = migrated(zerocfg, tmp_path, {"run.sh": line, "train.py": SCRIPT})
    assert after["run.sh"] in (line, line.replace("warmup_ratio", "warmup_steps"))
    assert bool(left(zerocfg)) is (after["run.sh"] == line)


def test_without_a_script_nothing_is_known_of_the_options(zerocfg: Cli, tmp_path: Path) -> None:
    line = "torchrun train.py --output_dir o --num_train_epochs 1 --learning_rate 1e-5 --warmup_ratio 0.1\n"
    assert migrated(zerocfg, tmp_path, {"run.sh": line})["run.sh"] == line


def test_an_option_of_the_scripts_own_stays(zerocfg: Cli, tmp_path: Path) -> None:
    script = (
        "import argparse\nfrom accelerate import Accelerator\np = argparse.ArgumentParser()\n"
        "p.add_argument('--warmup_ratio', type=float)\nargs = p.parse_args()\nAccelerator().prepare(model)\n"
    )
    line = "accelerate launch train.py --warmup_ratio 0.1\n"
    assert migrated(zerocfg, tmp_path, {"run.sh": line, "train.py": script})["run.sh"] == line


def test_keywords_of_calls(zerocfg: Cli, tmp_path: Path) -> None:
    script = (
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments(\n"
        '    "out", warmup_ratio=0.1,  # größer\n'
        "    evaluation_strategy='steps', group_by_length=True,\n"
        "    overwrite_output_dir=True,\n"
        "    adafactor=False, no_cuda=False,\n"
        "    save_strategy='no', use_mps_device=False)\n"
        "Trainer(model, args).train()\n"
    )
    assert migrated(zerocfg, tmp_path, {"train.py": script})["train.py"] == (
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments(\n"
        '    "out", warmup_steps=0.1,  # größer\n'
        "    eval_strategy='steps', train_sampling_strategy=\"group_by_length\",\n"
        "    use_cpu=False,\n"
        "    save_strategy='no')\n"
        "Trainer(model, args).train()\n"
    )


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        ("'o', warmup_ratio=0.1, warmup_steps=0", None),
        ("'o', split_batches=True", None),  # `accelerator_config` would have to hold it
        ("'o', group_by_length=True, train_sampling_strategy='random'", None),
        ("'o', warmup_ratio=ratio", None),
        ("'o', group_by_length=grouped", None),
        ("'o', include_inputs_for_metrics=True", "'o', include_for_metrics=[\"inputs\"]"),
        ("'o', push_to_hub_model_id='m', hub_model_id='m'", "'o', hub_model_id='m'"),
        ("'o', past_index=-1, bf16=True", "'o', bf16=True"),
    ],
)
def test_a_keyword(zerocfg: Cli, tmp_path: Path, arguments: str, after: str | None) -> None:
    script = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(%s)\nTrainer(m, args)\n"
    files = {"train.py": script % arguments}
    assert migrated(zerocfg, tmp_path, files)["train.py"] == script % (after or arguments)
    assert [place for place, _ in left(zerocfg)] == ["train.py:2"] * (after is None)


def test_keywords_of_another_call_do_not_count(zerocfg: Cli, tmp_path: Path) -> None:
    """The second call's steps win over no ratio of the first."""
    script = "from transformers import Trainer, TrainingArguments\n"
    script += "one = TrainingArguments('o', warmup_ratio=0.1)\ntwo = TrainingArguments('o', warmup_steps=5)\n"
    script += "Trainer(m, one).train()\nTrainer(m, two).train()\n"
    after = migrated(zerocfg, tmp_path, {"train.py": script})["train.py"]
    assert after == script.replace("warmup_ratio", "warmup_steps")
    assert left(zerocfg) == []


def test_arguments_that_trainers_of_trl_handed_to_their_configs(zerocfg: Cli, tmp_path: Path) -> None:
    script = "from trl import SFTConfig, SFTTrainer\nargs = SFTConfig('o', max_seq_length=5)\n"
    script += "SFTTrainer(m, args=args, dataset_text_field='t', processing_class=p, tokenizer=t)\n"
    after = migrated(zerocfg, tmp_path, {"train.py": script})["train.py"]
    assert after == script.replace("max_seq_length", "max_length")
    told = left(zerocfg)
    assert [place for place, _ in told] == ["train.py:3"] * 2
    assert told[0][1] == "TRL 1.16.0 has no `dataset_text_field` of SFTTrainer: it belongs to SFTConfig"
    assert "removed `tokenizer` from SFTTrainer()" in told[1][1], "it has its successor already"


@pytest.mark.parametrize(("old", "new"), [("label_pad_token_id: -100\n", ""), ("label_pad_token_id: -99\n", None)])
def test_a_default_of_trl_that_every_later_release_has(zerocfg: Cli, tmp_path: Path, old: str, new: str | None) -> None:
    recipe = f"{RECIPE}desirable_weight: 1.0\n"
    after = migrated(zerocfg, tmp_path, {"recipe.yaml": recipe + old})["recipe.yaml"]
    assert after == recipe + (old if new is None else new)
    assert [place for place, _ in left(zerocfg)] == ["recipe.yaml:6"] * (new is None)


@pytest.mark.parametrize(
    ("stated", "holder"),
    [("", "gradient_checkpointing_kwargs"), ("activation_checkpointing: full\n", "activation_checkpointing_kwargs")],
)
def test_an_argument_of_a_script_of_trl_goes_into_a_section(
    zerocfg: Cli, tmp_path: Path, stated: str, holder: str
) -> None:
    """TRL 0.27 has no `gradient_checkpointing_use_reentrant` of ScriptArguments; the Trainer takes the keyword."""
    script = "from trl import ScriptArguments, SFTConfig, SFTTrainer, TrlParser\n"
    script += "own, args = TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()\n"
    script += "SFTTrainer(m, args=args).train()\n"
    files = {
        "run.sh": "accelerate launch train.py --config recipe.yaml\n",
        "train.py": script,
        "recipe.yaml": f"{RECIPE}{stated}gradient_checkpointing_use_reentrant: true\n",
    }
    after = migrated(zerocfg, tmp_path, files)["recipe.yaml"]
    assert after == f'{RECIPE}{stated}{holder}: {{"use_reentrant": true}}\n'


def test_what_trainers_are_given(zerocfg: Cli, tmp_path: Path) -> None:
    script = (
        "from transformers import Trainer, TrainingArguments\nfrom trl import SFTConfig, SFTTrainer\n"
        "class Mine(Trainer):\n    pass\n"
        "args = TrainingArguments(output_dir='out')\n"
        "Trainer(model, args, tokenizer=tokenizer, data_collator=collate).train()\n"
        "Mine(model, args, tokenizer=tokenizer)\n"
        "SFTTrainer(model, args=SFTConfig('out'), max_length=512, peft_config=lora, tokenizer=tok)\n"
    )
    after = migrated(zerocfg, tmp_path, {"train.py": script})["train.py"]
    assert after == script.replace(
        "(model, args, tokenizer=tokenizer, d", "(model, args, processing_class=tokenizer, d"
    ).replace("tokenizer=tok)", "processing_class=tok)")
    assert [place for place, _ in left(zerocfg)] == ["train.py:8"]


def test_a_default_that_changed_is_written_out_where_the_script_tells_of_no_other(zerocfg: Cli, tmp_path: Path) -> None:
    line = "torchrun train.py --output_dir o --report_to none --average_tokens_across_devices False\n"
    files = {"run.sh": line, "train.py": SCRIPT}
    assert migrated(zerocfg, tmp_path, files, "--from", "transformers==4.53.0")["run.sh"] == (
        line.replace("devices False", "devices False --optim adamw_torch")
    )
    own = SCRIPT.replace("(TrainingArguments,)", "(Ours,)").replace(
        "(args,)",
        "from dataclasses import dataclass\n@dataclass\n"
        'class Ours(TrainingArguments):\n    optim: str = "lion_32bit"\n(args,)',
    )
    assert (
        migrated(zerocfg, tmp_path, {"run.sh": line, "train.py": own}, "--from", "transformers==4.53.0")["run.sh"]
        == line
    )


def test_a_default_goes_into_the_call_that_states_the_arguments(zerocfg: Cli, tmp_path: Path) -> None:
    """The script's own parser would stop at the option."""
    script = (
        "import argparse\nfrom transformers import Trainer, TrainingArguments\n"
        "p = argparse.ArgumentParser()\np.add_argument('--lr', type=float)\nopt = p.parse_args()\n"
        "args = TrainingArguments(output_dir='o', learning_rate=opt.lr, report_to='none')\n"
        "Trainer(model, args).train()\n"
    )
    files = {"run.sh": "torchrun train.py --lr 1e-5\n", "train.py": script}
    old = ("--from", "transformers==4.53.0")
    after = migrated(zerocfg, tmp_path, files, *old)
    added = "report_to='none', average_tokens_across_devices=False, optim=\"adamw_torch\")"
    assert after == {**files, "train.py": script.replace("report_to='none')", added)}
    assert left(zerocfg, *old) == []


@pytest.mark.parametrize(
    ("arguments", "after"),
    [
        ("    output_dir='o',  # here\n", "    output_dir='o',  # here\n    optim=\"adamw_torch\",\n"),
        ("    output_dir='o'\n", "    output_dir='o',\n    optim=\"adamw_torch\"\n"),
        ("    *more\n", None),  # what stands by its position is not told
        ("    output_dir='o', **more\n", None),
        (
            "    output_dir='o',\n    overwrite_output_dir=True,\n",
            "    output_dir='o',\n    optim=\"adamw_torch\",\n",
        ),
        ("    output_dir='o', optim='lion_32bit'\n", "    output_dir='o', optim='lion_32bit'\n"),
    ],
)
def test_a_default_behind_the_last_argument_of_a_call(
    zerocfg: Cli, tmp_path: Path, arguments: str, after: str | None
) -> None:
    script = (
        "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments(\n"
        "    average_tokens_across_devices=False, report_to='none',\n%s)\nTrainer(m, args)\n"
    )
    old = ("--from", "transformers==4.53.0")
    text = migrated(zerocfg, tmp_path, {"train.py": script % arguments}, *old)["train.py"]
    if after is None:
        assert "optim" not in text
        assert [place for place, why in left(zerocfg, *old) if "`optim`" in why] == ["train.py:2"]
    else:
        assert text == script % after
        assert left(zerocfg, *old) == []


def test_defaults_of_configs_of_trl(zerocfg: Cli, tmp_path: Path) -> None:
    """A word that was the default of TRL may be refused by now; a class that is no trainer's has no such arguments."""
    script = "from trl import ModelConfig, SFTConfig, SFTTrainer\nargs = SFTConfig(output_dir='o', bf16=True)\n"
    script += "model = ModelConfig(model_name_or_path='m')\nSFTTrainer(m, args=args).train()\n"
    old = ("--from", "transformers==4.53.0,trl==0.19.1")
    text = migrated(zerocfg, tmp_path, {"train.py": script}, *old)["train.py"]
    assert "ModelConfig(model_name_or_path='m')" in text and 'optim="adamw_torch"' in text
    assert "packing_strategy" not in text
    told = [(place, why) for place, why in left(zerocfg, *old) if "`packing_strategy`" in why]
    assert [place for place, _ in told] == ["train.py:2"] and "is 'bfd'" in told[0][1] and "was 'ffd'" in told[0][1]


def test_the_option_that_names_the_recipe_stays(zerocfg: Cli, tmp_path: Path) -> None:
    """`--config` is TrlParser's own; in TRL 0.12 it was a field of ScriptArguments."""
    script = "from trl import ScriptArguments, SFTConfig, SFTTrainer, TrlParser\n"
    script += "own, args = TrlParser((ScriptArguments, SFTConfig)).parse_args_and_config()\n"
    script += "SFTTrainer(m, args=args).train()\n"
    line = "accelerate launch train.py --config recipe.yaml\n"
    files = {"run.sh": line, "train.py": script, "recipe.yaml": f"{RECIPE}overwrite_output_dir: true\n"}
    old = ("--from", "transformers==4.52.3,trl==0.18.0")
    after = migrated(zerocfg, tmp_path, files, *old)
    assert after["run.sh"] == line and "overwrite_output_dir" not in after["recipe.yaml"]
    assert not [why for _, why in left(zerocfg, *old) if "`config`" in why]


def test_defaults_of_a_recipe_whose_script_is_not_known_are_listed(zerocfg: Cli, tmp_path: Path) -> None:
    """Together, and of a recipe that several trainers of TRL may read those of each."""
    (tmp_path / "recipe.yaml").write_text(RECIPE + "beta: 0.1\nmax_length: 1024\n")
    found = left(zerocfg, "--from", "transformers==4.53.0,trl==0.19.1")
    assert [place for place, _ in found] == ["recipe.yaml:1"]
    assert found[0][1].startswith("where the script does not say otherwise, the default of `")
    assert "`optim` is 'adamw_torch_fused' from transformers 4.54.0 on and was 'adamw_torch'" in found[0][1]
    assert "`truncation_mode` of DPOConfig is 'keep_start'" in found[0][1]


def test_a_default_does_not_stand_behind_an_option_that_goes(zerocfg: Cli, tmp_path: Path) -> None:
    line = "torchrun train.py --output_dir o --average_tokens_across_devices False --report_to a b%s\n"
    files = {"run.sh": line % " --overwrite_output_dir True", "train.py": SCRIPT}
    after = migrated(zerocfg, tmp_path, files, "--from", "transformers==4.53.0")["run.sh"]
    assert after == (line % "").replace("devices False", "devices False --optim adamw_torch")


def test_a_default_does_not_part_an_option_from_what_follows_it(zerocfg: Cli, tmp_path: Path) -> None:
    """Nobody knows here what `more` belongs to."""
    line = "torchrun train.py --output_dir o --average_tokens_across_devices=False more"
    files = {"run.sh": f"{line}\n", "train.py": SCRIPT}
    after = migrated(zerocfg, tmp_path, files, "--from", "transformers==4.53.0")["run.sh"]
    assert after == files["run.sh"].replace("dir o", "dir o --optim adamw_torch --report_to all")


def test_a_keyword_with_a_blank_before_its_comma(zerocfg: Cli, tmp_path: Path) -> None:
    code = "from transformers import Trainer, TrainingArguments\nargs = TrainingArguments('o', %sbf16=True)\n"
    code += "Trainer(model, args).train()\n"
    for dropped in ("overwrite_output_dir=True , ", "overwrite_output_dir=True  ,  ", "overwrite_output_dir=True,"):
        assert migrated(zerocfg, tmp_path, {"train.py": code % dropped})["train.py"] == code % ""


def test_the_reason_why_an_argument_goes(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE + "push_to_hub_organization: null\noverwrite_output_dir: false\n")
    shown = zerocfg("migrate", "--to", TODAY, "--output-format", "json").out
    assert "nothing is asked for" in shown


def test_a_default_stands_where_the_shell_reads_it(zerocfg: Cli, tmp_path: Path) -> None:
    """Not behind a backslash, nor within a quote that a notebook escapes."""
    start = "torchrun train.py --output_dir o --report_to none --average_tokens_across_devices False"
    notebook = {
        "cells": [{"cell_type": "code", "source": [f'!{start} --run_name "n"'], "metadata": {}}],
        "metadata": {},
    }
    files = {
        "run.sh": start + " \\\n  --run_name n\\\n",
        "run.ipynb": json.dumps({**notebook, "nbformat": 4, "nbformat_minor": 5}),
        "train.py": SCRIPT,
    }
    after = migrated(zerocfg, tmp_path, files, "--from", "transformers==4.53.0")
    assert after["run.sh"] == files["run.sh"].replace("devices False", "devices False --optim adamw_torch")
    assert json.loads(after["run.ipynb"])["cells"][0]["source"] == [f'!{start} --run_name "n" --optim adamw_torch']


def test_a_folder_without_anything_to_migrate(zerocfg: Cli, tmp_path: Path) -> None:
    outcome = zerocfg("migrate", "--to", TODAY)
    assert (outcome.code, outcome.out) == (0, "Nothing to migrate.\n")
    assert "no configs found below '.'" in outcome.err and "zerocfg looks for:" in outcome.err


def test_what_is_left_is_told_once(zerocfg: Cli, tmp_path: Path) -> None:
    """Not once more by the rule that finds it at the new releases."""
    script = (
        "from transformers import Trainer, TrainingArguments\n"
        "args = TrainingArguments(\n    output_dir='out',\n    overwrite_output_dir=True,\n"
        "    logging_dir='logs',\n)\n"
        "Trainer(model, args).train()\n"
    )
    (tmp_path / "train.py").write_text(script)
    found = left(zerocfg)
    assert [place for place, _ in found] == ["train.py:5"]
    assert "TENSORBOARD_LOGGING_DIR" in found[0][1]


def test_what_is_left_is_told_once_beside_an_edit(zerocfg: Cli, tmp_path: Path) -> None:
    """The rule finds it a few columns further left then."""
    (tmp_path / "train.py").write_text(
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "(args,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "Trainer(model, args).train()\n"
    )
    (tmp_path / "run.sh").write_text(
        "torchrun train.py --output_dir out --evaluation_strategy steps --logging_dir logs\n"
        "torchrun train.py --output_dir out --logging_dir other\n"
    )
    found = left(zerocfg)
    assert [place for place, _ in found] == ["run.sh:1", "run.sh:2"]
    assert all("TENSORBOARD_LOGGING_DIR" in why for _, why in found)


# -- DeepSpeed and accelerate ------------------------------------------------------------------------------------

DS = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}%s}\n'


def test_defaults_of_deepspeed_are_written_out_for_its_own_loop(zerocfg: Cli, tmp_path: Path) -> None:
    files = {"ds.json": DS % "", "train.py": LOOP, "run.sh": LINE, "requirements.txt": "deepspeed==0.17.6\n"}
    after = migrated(zerocfg, tmp_path, files)
    assert json.loads(after["ds.json"]) == {
        **json.loads(DS % ""),
        "gradient_clipping": 0.0,
        "bf16": {"enabled": True, "check_grad_overflow": False},
    }
    assert {name: text for name, text in after.items() if name != "ds.json"} == {
        name: text for name, text in files.items() if name != "ds.json"
    }


def test_the_trainer_would_refuse_a_clipping_of_its_own(zerocfg: Cli, tmp_path: Path) -> None:
    script = SCRIPT
    line = "deepspeed train.py --output_dir o --deepspeed ds.json\n"
    files = {"ds.json": DS % "", "train.py": script, "run.sh": line}
    after = migrated(zerocfg, tmp_path, files, "--from", "deepspeed==0.19.2")
    assert "gradient_clipping" not in after["ds.json"]
    assert ("ds.json:1", True) in [
        (place, "gradient_clipping" in why) for place, why in left(zerocfg, "--from", "deepspeed==0.19.2")
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (', "elasticity": {"enabled": false}', ""),
        (', "elasticity": {"enabled": true, "max_train_batch_size": 8}', None),
        (', "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 0, "warmup_max_lr": 1}}', ": 0, ->: 2, "),
        # only the number of steps was raised, and only of DeepSpeed's own schedules
        (', "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1, "warmup_min_lr": 0}}', "->"),
        (', "scheduler": {"type": "Mine", "params": {"warmup_num_steps": 0}}', "->"),
        (', "fp16": {"enabled": false, "opt_level": "O1"}', ', "opt_level": "O1"->'),
    ],
)
def test_keys_that_deepspeed_refuses_today(zerocfg: Cli, tmp_path: Path, old: str, new: str | None) -> None:
    text = DS % f', "gradient_clipping": 1.0{old}'
    text = text.replace(
        '"enabled": true}', '"enabled": true, "check_grad_overflow": true, "immediate_grad_update": true}'
    )
    after = migrated(zerocfg, tmp_path, {"ds.json": text}, "--from", "deepspeed==0.16.9")["ds.json"]
    if new is None:
        assert after == text and left(zerocfg, "--from", "deepspeed==0.16.9")
    else:
        before, _, instead = new.partition("->")
        assert after == (text.replace(before, instead) if new else text.replace(old, ""))


OFFLOAD = '"stage": 3, "offload_optimizer": {%s}'
QUIET = DS.replace('"enabled": true', '"enabled": true, "check_grad_overflow": true, "immediate_grad_update": true')


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"stage": 3, "mics_shard_size": -1', '"stage": 3'),
        ('"stage": 3, "mics_shard_size": 2', None),
        ('"stage": 3, "mics_hierarchical_params_gather": false', '"stage": 3'),
        ('"stage": 3, "mics_hierarchical_params_gather": true', None),
        (OFFLOAD % '"device": "cpu"', OFFLOAD % '"device": "cpu", "pin_memory": false'),
        (OFFLOAD % '"device": "none"', OFFLOAD % '"device": "none"'),
        (OFFLOAD % "", OFFLOAD % ""),
        (OFFLOAD % '"device": "cpu", "pin_memory": true', OFFLOAD % '"device": "cpu", "pin_memory": true'),
        ('"stage": 2}, "elasticity": null, "aio": {', '"stage": 2}, "aio": {'),
        ('"stage": 2}, "elasticity": {}, "aio": {', '"stage": 2}, "aio": {'),
        ('"stage": 2}, "sparse_gradients": false, "aio": {', '"stage": 2}, "aio": {'),
        ('"stage": 2}, "sparse_gradients": true, "aio": {', None),
        ('"stage": 2}, "nebula": {"enabled": false, "persistent_time_interval": 5}, "aio": {', '"stage": 2}, "aio": {'),
        ('"stage": 2}, "aio": {"thread_count": 1', None),
        (
            '"stage": 2}, "scheduler": {"type": "WarmupLR", "params": {}',
            '"stage": 2}, "scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 0.001}',
        ),
        ('"stage": 2}, "scheduler": {"type": "OneCycle", "params": {}',) * 2,
    ],
)
def test_a_key_of_deepspeed(zerocfg: Cli, tmp_path: Path, old: str, new: str | None) -> None:
    """From DeepSpeed 0.16.9 to 0.19.8."""
    files = {"train.py": LOOP, "run.sh": LINE}
    text = QUIET % ', "gradient_clipping": 1.0'
    before, after = (text.replace('"stage": 2', one) for one in (old, old if new is None else new))
    since = ("--from", "deepspeed==0.16.9")
    assert migrated(zerocfg, tmp_path, {**files, "ds.json": before}, *since) == {**files, "ds.json": after}
    assert [place for place, _ in left(zerocfg, *since)] == ["ds.json:1"] * (new is None)


REFUSED = "a Trainer, if one reads it, refuses a value that differs from its argument, so that nothing is written"
PINNED = "zero_optimization.offload_optimizer.pin_memory"


def test_what_is_said_of_a_default_of_deepspeed(zerocfg: Cli, tmp_path: Path) -> None:
    text = DS.replace('"stage": 2', OFFLOAD % '"device": "cpu"').replace(", ", ",\n  ")
    text = (text % "").replace('"train_micro_batch_size_per_gpu": 1', '"train_micro_batch_size_per_gpu": "auto"')
    (tmp_path / "ds.json").write_text(text)
    shown = json.loads(zerocfg("migrate", "--to", TODAY, "--from", "deepspeed==0.17.6", "--output-format", "json").out)
    told = [(one["line"], one["column"], one["why"]) for one in (*shown["changes"], *shown["left"])]
    assert sorted(told) == [
        (
            1,
            1,
            "the default of `gradient_clipping` is 1.0 from DeepSpeed 0.19.3 on and was 0.0; a Trainer, if one reads "
            "it, refuses a value that differs from its argument, so that nothing is written",
        ),
        (2, 3, "the default of `bf16.check_grad_overflow` is true from DeepSpeed 0.19.3 on and was false"),
        (
            4,
            3,
            "the default of `zero_optimization.offload_optimizer.pin_memory` is true from DeepSpeed 0.19.5 on and "
            "was false",
        ),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("ipex_config: null\n", ""),
        ("ipex_config:\n  ipex: false\n  use_xpu: 'no'\n", ""),
        ("ipex_config:\n  ipex: false\n  use_xpu: true\n", None),
        ("tp_config:\n  tp_size: 2\n", None),
        ("parallelism_config: {}\n", "parallelism_config: {}\n"),  # has come, and stays
        ("fsdp_config:\n  fsdp_backward_prefetch_policy: null\n  a: 1\n", "fsdp_config:\n  a: 1\n"),
        ("fsdp_config:\n  fsdp_backward_prefetch_policy: BACKWARD_PRE\n", None),
    ],
)
def test_an_option_of_accelerate(zerocfg: Cli, tmp_path: Path, old: str, new: str | None) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"
    after = migrated(zerocfg, tmp_path, {"accelerate.yaml": text + old})["accelerate.yaml"]
    assert after == text + (old if new is None else new)
    lines = [place for place, why in left(zerocfg) if "gone since" in why]
    assert lines == [f"accelerate.yaml:{5 if 'policy' in old else 4}"] * (new is None)
    cloud = text.replace("LOCAL_MACHINE", "AMAZON_SAGEMAKER") + old
    assert migrated(zerocfg, tmp_path, {"accelerate.yaml": cloud})["accelerate.yaml"] == cloud


def test_an_option_of_accelerate_that_is_still_to_come(zerocfg: Cli, tmp_path: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\n"
    (tmp_path / "accelerate.yaml").write_text(text + "parallelism_config: {}\n")
    shown = zerocfg("migrate", "--to", "accelerate==1.0.1")
    assert (shown.code, shown.out) == (0, "Nothing to migrate.\n")
    (tmp_path / "accelerate.yaml").write_text(text + "parallelism_config: {}\ntp_config: {}\n")
    assert zerocfg("migrate", "--to", "accelerate==1.0.1").out == "Nothing to migrate.\n"


def test_what_the_new_release_refuses_is_told_whatever_the_old_one_is(zerocfg: Cli, tmp_path: Path) -> None:
    """DeepSpeed 0.17.1 was the first to refuse unknown keys of `bf16`; every release refuses stage 7."""
    ds = DS.replace('"enabled": true', '"enabled": true, "loss_scale": 0') % ""
    (tmp_path / "ds.json").write_text(ds.replace('"stage": 2', '"stage": 7'))
    found = json.loads(zerocfg("migrate", "--to", "deepspeed==0.19.8", "--output-format", "json").out)["left"]
    assert [(one["code"], one["path"]) for one in found] == [("ZC101", "bf16.loss_scale")]
    again = zerocfg("migrate", "--to", "deepspeed==0.16.9", "--output-format", "json")
    assert (again.code, json.loads(again.out)["left"]) == (0, [])


def test_without_the_old_release_no_default_is_written(zerocfg: Cli, tmp_path: Path) -> None:
    files = {"ds.json": DS % "", "train.py": LOOP, "run.sh": LINE}
    assert migrated(zerocfg, tmp_path, files) == files
    assert (
        migrated(zerocfg, tmp_path, {**files, "requirements.txt": "deepspeed>=0.14\n"})["ds.json"] == files["ds.json"]
    )


def test_sections_that_accelerate_dropped(zerocfg: Cli, tmp_path: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\nipex_config: {}\n"
    after = migrated(zerocfg, tmp_path, {"accelerate.yaml": text})
    assert after["accelerate.yaml"] == text.replace("ipex_config: {}\n", "")
    busy = text.replace("{}", "{ipex: true}")
    assert migrated(zerocfg, tmp_path, {"accelerate.yaml": busy})["accelerate.yaml"] == busy
    assert [place for place, _ in left(zerocfg)] == ["accelerate.yaml:4"]


# -- pins, and how the command is used ---------------------------------------------------------------------------


def test_pins_are_set_when_asked(zerocfg: Cli, tmp_path: Path) -> None:
    pins = "deepspeed==0.16.9  # old\ntorch>=2.1\ntransformers[torch] == 4.51.3 ; python_version > '3.8'\n"
    files = {"recipe.yaml": RECIPE, "requirements.txt": pins}
    assert migrated(zerocfg, tmp_path, files) == files
    after = migrated(zerocfg, tmp_path, files, "--pins")["requirements.txt"]
    assert after == pins.replace("==0.16.9", "==0.19.8").replace("== 4.51.3", "==5.23.0")


def test_what_holds_a_library_back_is_told_beside_its_pin(zerocfg: Cli, tmp_path: Path) -> None:
    files = {"recipe.yaml": RECIPE, "requirements.txt": "transformers>=4.40\ntokenizers==0.19.1\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    shown = zerocfg("migrate", "--to", TODAY, "--pins").out
    assert "-transformers>=4.40\n+transformers==5.23.0\n tokenizers==0.19.1\n" in shown
    assert "tokenizers holds transformers back here; see that 5.23.0 can be installed" in shown


def test_pins_that_no_edit_can_set(zerocfg: Cli, tmp_path: Path) -> None:
    """A lock is made by its tool; of two requirements on a line the library's own is set."""
    project = '[project]\nname = "p"\nversion = "1"\ndependencies = ["torch>=2.1", "deepspeed >= 0.16.9"]\n'
    lock = 'version = 1\n[[package]]\nname = "transformers"\nversion = "4.51.3"\n'
    files = {"recipe.yaml": RECIPE, "pyproject.toml": project, "uv.lock": lock}
    after = migrated(zerocfg, tmp_path, files, "--pins")
    assert after == {**files, "pyproject.toml": project.replace(">= 0.16.9", "==0.19.8")}
    assert [(place, why) for place, why in left(zerocfg, "--pins") if "uv.lock" in place] == [
        ("uv.lock:4", "the project states transformers here; 5.23.0 is what the files are for now")
    ]


def test_only_write_writes(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE + "evaluation_strategy: epoch\n")
    shown = zerocfg("migrate", "--to", TODAY)
    assert shown.code == 1 and "-evaluation_strategy: epoch\n+eval_strategy: epoch\n" in shown.out
    assert (tmp_path / "recipe.yaml").read_text().endswith("evaluation_strategy: epoch\n")
    assert zerocfg("migrate", "--to", TODAY, "--write").code == 0
    again = zerocfg("migrate", "--to", TODAY)
    assert (again.code, again.out, again.err) == (0, "Nothing to migrate.\n", "")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--to", "deepspeed"), "names no release"),
        (("--to", "deepsped==0.19.8"), "did you mean deepspeed?"),
        (("--to", "deepspeed==0.19.99"), "did you mean 0.19.8?"),
        (("--to", "deepspeed==nine"), "is not known"),
        (("--to", "deepspeed==0.19.8.post1"), "did you mean 0.19.8?"),
        (("--to", "deepspeed==v0.19.7"), "did you mean 0.19.6 or 0.19.8?"),
        (("--to", "deepspeed==0.19.8,deepspeed==0.19.7"), "twice"),
        (("--to", ","), "names no release"),
        (("--to", TODAY, "nowhere"), "no file or folder"),
        ((), "--to"),
    ],
)
def test_wrong_use(zerocfg: Cli, words: tuple[str, ...], said: str) -> None:
    outcome = zerocfg("migrate", *words)
    assert outcome.code == 2 and said in outcome.err, outcome.err


def test_what_cannot_be_read_is_said(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text(RECIPE + "a: [\n")
    (tmp_path / "notes.txt").write_text("hello\n")
    assert zerocfg("migrate", "--to", TODAY, "notes.txt").code == 2
    outcome = zerocfg("migrate", "--to", TODAY)
    assert outcome.code == 1 and "'recipe.yaml' was not read: not valid YAML" in outcome.err


def test_names_of_trl_in_the_recipe_of_another_script_are_its_own(zerocfg: Cli, tmp_path: Path) -> None:
    text = RECIPE + "max_seq_length: 512\ntorch_dtype: bfloat16\n"
    assert migrated(zerocfg, tmp_path, {"recipe.yaml": text})["recipe.yaml"] == text
    own = text + "assistant_only_loss: true\n"  # only TRL has it
    after = migrated(zerocfg, tmp_path, {"recipe.yaml": own})["recipe.yaml"]
    assert after == own.replace("max_seq_length", "max_length").replace("torch_dtype", "dtype")


def test_switches_of_fsdp_are_written_out_for_fsdp_alone(zerocfg: Cli, tmp_path: Path) -> None:
    text = "compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n"
    text += "  fsdp_sharding_strategy: FULL_SHARD\n"
    files = {"accelerate.yaml": text, "other.yaml": text.replace("FSDP", "MULTI_GPU", 1)}
    after = migrated(zerocfg, tmp_path, files, "--from", "accelerate==0.24.1")
    assert after == {"accelerate.yaml": text + "  fsdp_use_orig_params: false\n", "other.yaml": files["other.yaml"]}


@pytest.mark.parametrize(("pinned", "goes"), [("0.17.0", False), ("0.18.0", True), ("0.19.0", False)])
def test_what_the_old_parser_passed_over_goes(zerocfg: Cli, tmp_path: Path, pinned: str, goes: bool) -> None:
    """TRL 0.17 reads `vllm_device`, 0.18 has it no more and its parser drops it without a word, that of 0.19 stops."""
    script = "from trl import GRPOConfig, GRPOTrainer, ModelConfig, ScriptArguments, TrlParser\n\n"
    script += "script, args, model = TrlParser((ScriptArguments, GRPOConfig, ModelConfig)).parse_args_and_config()\n"
    script += "GRPOTrainer(model.model_name_or_path, args=args).train()\n"
    files = {
        "grpo.yaml": RECIPE + "vllm_device: auto\nnum_generations: 2\n",
        "train.py": script,
        "train.sh": "accelerate launch --num_processes 2 --multi_gpu train.py --config grpo.yaml\n",
        "requirements.txt": f"trl=={pinned}\n",
    }
    after = migrated(zerocfg, tmp_path, files, "--from", f"trl=={pinned}")["grpo.yaml"]
    assert ("vllm_device" not in after) is goes and "num_generations: 2\n" in after
    told = [why for _, why in left(zerocfg, "--from", f"trl=={pinned}") if "`vllm_device`" in why]
    assert bool(told) is not goes


BROKEN = '{"zero_optimization": {"stage": 2}\n'


@pytest.mark.parametrize(("words", "code"), [((), 1), (("ds.json",), 2)])
def test_a_config_that_cannot_be_parsed_is_named(
    zerocfg: Cli, tmp_path: Path, words: tuple[str, ...], code: int
) -> None:
    (tmp_path / "ds.json").write_text(BROKEN)
    outcome = zerocfg("migrate", "--to", TODAY, *words)
    assert outcome.code == code and outcome.out == "Nothing to migrate in the files that were read.\n"
    assert outcome.err.splitlines() == [
        "zerocfg: 'ds.json' was not read: not valid JSON: expected ',' or '}'",
    ], outcome.err


def test_a_config_of_a_line_that_cannot_be_parsed_leaves_the_others(zerocfg: Cli, tmp_path: Path) -> None:
    files = {"ds.json": BROKEN, "job.sh": LINE, "train.py": LOOP, "recipe.yaml": RECIPE + "evaluation_strategy: 'no'\n"}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    (tmp_path / "hf.sh").write_text("torchrun --nproc_per_node 1 hf.py recipe.yaml\n")
    hf = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
    hf += "(args,) = HfArgumentParser(TrainingArguments).parse_yaml_file('recipe.yaml')\nTrainer(args=args).train()\n"
    (tmp_path / "hf.py").write_text(hf)
    outcome = zerocfg("migrate", "--to", TODAY, "--write")
    assert outcome.code == 2 and "'ds.json' was not read" in outcome.err
    assert "eval_strategy: 'no'" in (tmp_path / "recipe.yaml").read_text()
    assert (tmp_path / "ds.json").read_text() == BROKEN


def test_a_template_is_no_config_that_cannot_be_parsed(zerocfg: Cli, tmp_path: Path) -> None:
    (tmp_path / "ds.json").write_text('{"zero_optimization": {"stage": {{ stage }}}}\n')
    outcome = zerocfg("migrate", "--to", TODAY)
    assert (outcome.code, outcome.out, outcome.err) == (0, "Nothing to migrate.\n", "")
