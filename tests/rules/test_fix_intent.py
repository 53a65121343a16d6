"""A fix is kept only where the setting gets the value that it means, and none depends on a reader that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.rules.examples import lint, write
from zerocfg.linter.fixing import fix_all
from zerocfg.rulebook.example import Example
from zerocfg.rules.api import Intent
from zerocfg.rules.fixes import edited
from zerocfg.rules.intents import written_at
from zerocfg.run.discover import Files
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.text import SourceText

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from zerocfg.linter.engine import Diagnostic
    from zerocfg.source.edit import Edit

DS = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"}, '
    '"zero_optimization": {"stage": 2}%s}\n'
)
RECIPE = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nbf16: true\nmax_grad_norm: 0.3\n"
TRAINER = "version: 1\nruns:\n  sft:\n    consumer: transformers\n    script: a.py\n    recipe: recipe.yaml\n"
OWN_LOOP = (
    "  own:\n    consumer: accelerate\n    script: b.py\n    launcher: accelerate\n    engine: deepspeed\n"
    "    deepspeed: ds.json\n    accelerate: accelerate.yaml\n"
)
YAML = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"


def fixed(files: dict[str, str], folder: Path, consumer: str | None = None, *, unsafe: bool = False) -> dict[str, str]:
    write(Example(files), folder)
    before = lint(folder, consumer)
    texts, _, _ = fix_all(before, lambda found: lint(folder, consumer, texts=found), unsafe=unsafe)
    return {name: texts[path] for name in files if (path := str((folder / name).resolve())) in texts}


def test_an_auto_that_the_trainer_fills(tmp_path: Path) -> None:
    files = {"ds.json": DS % "", "recipe.yaml": RECIPE + "deepspeed: ds.json\n", "zerocfg.yaml": TRAINER}
    assert '"gradient_clipping": "auto"' in fixed(files, tmp_path)["ds.json"]


def test_not_where_another_run_would_read_something_else(tmp_path: Path) -> None:
    """Under accelerate the same "auto" stays 1.0, which is not what the recipe asks for."""
    files = {
        "ds.json": DS % "",
        "recipe.yaml": RECIPE + "deepspeed: ds.json\n",
        "accelerate.yaml": YAML,
        "zerocfg.yaml": TRAINER + OWN_LOOP,
    }
    assert {found.code for found in _found(files, tmp_path)} >= {"ZC209"}
    assert "ds.json" not in fixed(files, tmp_path)


def _found(files: dict[str, str], folder: Path) -> list[Diagnostic]:
    write(Example(files), folder)
    return list(lint(folder, None).diagnostics)


SAVING_LOOP = """from accelerate import Accelerator

accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for batch in loader:
    accelerator.backward(model(batch).loss)
    optimizer.step()
{}
"""


@pytest.mark.parametrize(
    ("saves", "code"),
    [
        ('model.save_pretrained("out")', "ZC468"),
        ('model.save_pretrained("out", state_dict=accelerator.get_state_dict(model))', "ZC401"),
        ('accelerator.save_model(model, "out")', "ZC401"),
    ],
)
def test_gathering_alone_does_not_help_save_pretrained(saves: str, code: str, tmp_path: Path) -> None:
    """Called of a module that ZeRO-3 shards it writes empty tensors, with the key of the config or without."""
    config = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"
    line = "accelerate launch --config_file a.yaml train.py\n"
    files = {"a.yaml": config, "run.sh": line, "train.py": SAVING_LOOP.format(saves)}
    (found,) = [one for one in _found(files, tmp_path) if one.code in ("ZC401", "ZC468")]
    assert found.code == code
    assert "write `zero3_save_16bit_model: true` in `deepspeed_config`" in found.help
    assert ("state_dict=accelerator.get_state_dict(model)" in found.help) is (code == "ZC468")


def test_no_auto_without_a_known_reader(tmp_path: Path) -> None:
    """The Trainer fills an "auto", accelerate some, DeepSpeed none."""
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}, "gradient_clipping": null}\n'
    assert fixed({"ds.json": text}, tmp_path, unsafe=True) == {}
    (tmp_path / "trainer").mkdir()
    assert '"auto"' in fixed({"ds.json": text}, tmp_path / "trainer", "transformers", unsafe=True)["ds.json"]
    (tmp_path / "engine").mkdir()
    assert (
        '"gradient_clipping": 0' in fixed({"ds.json": text}, tmp_path / "engine", "deepspeed", unsafe=True)["ds.json"]
    )


def test_no_edit_for_what_holds_for_some_readers_only(tmp_path: Path) -> None:
    """Whether weights are lost depends on who saves them."""
    text = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3}}\n'
    told = {one.code: one.severity.value for one in _found({"ds.json": text}, tmp_path)}
    assert told["ZC401"] == "warning"
    assert fixed({"ds.json": text}, tmp_path, unsafe=True) == {}
    (tmp_path / "trainer").mkdir()
    after = fixed({"ds.json": text}, tmp_path / "trainer", "transformers", unsafe=True)
    assert '"stage3_gather_16bit_weights_on_model_save": true' in after["ds.json"]


def test_no_edit_for_what_is_graver_to_some_readers(tmp_path: Path) -> None:
    """The Trainer loses the weights; a loop around `Accelerator` does so only if it saves that way."""
    yaml = YAML.replace("deepspeed_config_file: ds.json", "zero_stage: 3")
    assert [one.severity.value for one in _found({"a.yaml": yaml}, tmp_path) if one.code == "ZC401"] == ["warning"]
    assert fixed({"a.yaml": yaml}, tmp_path) == {}
    (tmp_path / "loop").mkdir()
    assert "zero3_save_16bit_model: true" in fixed({"a.yaml": yaml}, tmp_path / "loop", "accelerate")["a.yaml"]


@pytest.mark.parametrize(
    ("kind", "path", "text", "means"),
    [
        ("deepspeed", "zero_optimization.stage", "2", [("zero_optimization.stage", 2, "setting")]),
        ("deepspeed", "bf16", '{"enabled": true, "x": null}', [("bf16.enabled", True, "setting")]),
        ("accelerate", "num_processes", "4", [("num_processes", 4, "option")]),
        ("accelerate", "deepspeed_config.zero_stage", "2", [("zero_stage", 2, "option")]),
        ("accelerate", "a.b.c", "2", []),
        ("recipe", "seed", "7", [("seed", 7, "argument")]),
        ("recipe", "seed", '"auto"', []),
        ("recipe", "deepspeed.zero_optimization.stage", "2", [("zero_optimization.stage", 2, "setting")]),
        ("recipe", "deepspeed.gradient_clipping", "1", [("gradient_clipping", 1, "setting")]),
        ("recipe", "fsdp_config.version", "2", []),
        ("launch", "x", "2", []),
    ],
)
def test_what_a_written_value_means_to_set(kind: Any, path: str, text: str, means: list[tuple[str, Any, str]]) -> None:
    file = SourceFile("a.json", kind, SourceText("a.json", "{}"))
    found = written_at(file, tuple(path.split(".")), text)
    assert [(one.name, one.value, one.of) for one in found] == means


def test_a_word_of_the_line_means_its_argument(tmp_path: Path) -> None:
    recipe = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n"
    line = "torchrun --nproc_per_node 2 train.py --config recipe.yaml --lr_scheduler_type cosin\n"
    write(Example({"recipe.yaml": recipe, "train.sh": line}), tmp_path)
    (found,) = [one for one in lint(tmp_path, "transformers").diagnostics if one.code == "ZC811"]
    assert found.fix is not None and found.fix.gives == (Intent("lr_scheduler_type", "cosine", "argument"),)


def test_a_misspelt_key_is_put_right_whoever_reads_it(tmp_path: Path) -> None:
    text = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2, "overlap_com": true}}\n'
    assert '"overlap_comm": true' in fixed({"ds.json": text}, tmp_path)["ds.json"]


def test_a_number_is_left_to_a_parser_that_nobody_knows(tmp_path: Path) -> None:
    recipe = "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\nlearning_rate: 1e-5\n"
    assert fixed({"recipe.yaml": recipe}, tmp_path, unsafe=True) == {}
    (tmp_path / "parsed").mkdir()
    files = {"recipe.yaml": recipe, "train.sh": "torchrun --nproc_per_node 2 train.py recipe.yaml\n"}
    assert "learning_rate: 1.0e-5\n" in fixed(files, tmp_path / "parsed")["recipe.yaml"]


@pytest.mark.parametrize(
    ("edit", "path", "values", "gives"),
    [
        (replace_value, ("zero_optimization", "stage"), ("3",), (("zero_optimization.stage", 3),)),
        (insert_entry, (), ("gradient_clipping", "0.5"), (("gradient_clipping", 0.5),)),
        (insert_entry, (), ("gradient_clipping", '"auto"'), ()),
        (insert_entry, (), ("bf16", '{"enabled": true}'), (("bf16.enabled", True),)),
        (insert_entry, (), ("bf16", '{"enabled": "auto", "loss_scale": 1}'), (("bf16.loss_scale", 1),)),
        (delete_entry, ("zero_optimization",), (), ()),
        (rename_key, ("zero_optimization",), ("zero",), ()),
    ],
)
def test_what_a_fix_writes_into_a_deepspeed_config_is_what_it_means(
    edit: Callable[..., list[Edit]],
    path: tuple[str, ...],
    values: tuple[str, ...],
    gives: tuple[tuple[str, object], ...],
    tmp_path: Path,
) -> None:
    """The value has to arrive in every run that reads the file; an "auto" is filled in by others."""
    (tmp_path / "ds.json").write_text('{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}\n')
    fix = edited(edit, Files().open(tmp_path / "ds.json"), path, *values, why="because")
    assert fix is not None and fix.gives == tuple(Intent(name, value) for name, value in gives)


def test_not_where_another_run_would_be_refused(tmp_path: Path) -> None:
    """One run asks for fp16, another for bf16: whichever the config says, one of them stops. Both findings stand at the
    same key, where one is told."""
    ds = (
        '{"train_micro_batch_size_per_gpu": 1, "gradient_clipping": 1.0, "bf16": {"enabled": true}, '
        '"zero_optimization": {"stage": 2}}\n'
    )
    line = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out --per_device_train_batch_size 1 "
    line += "--gradient_accumulation_steps 1 --save_strategy no --max_steps 2 %s\n"
    files = {"ds.json": ds, "a.sh": line % "--fp16 True"}
    assert '"bf16": {"enabled": false}' in fixed(files, tmp_path, unsafe=True)["ds.json"]
    (tmp_path / "both").mkdir()
    assert "ds.json" not in fixed({**files, "b.sh": line % "--bf16 True"}, tmp_path / "both", unsafe=True)


ACCELERATE = (
    "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero3_init_flag: false\nfsdp_config: {}\n"
)


@pytest.mark.parametrize(
    ("name", "edit", "path", "values", "gives"),
    [
        ("accelerate.yaml", replace_value, ("num_processes",), ("4",), Intent("num_processes", 4, "option")),
        ("accelerate.yaml", insert_entry, (), ("mixed_precision", "no"), Intent("mixed_precision", False, "option")),
        ("accelerate.yaml", insert_entry, (), ("gpu_ids", "0,1"), Intent("gpu_ids", "0,1", "option")),
        (
            "accelerate.yaml",
            insert_entry,
            ("deepspeed_config",),
            ("zero_stage", "2"),
            Intent("zero_stage", 2, "option"),
        ),
        (
            "accelerate.yaml",
            insert_entry,
            ("fsdp_config",),
            ("offload_params", "true"),
            Intent("fsdp_offload_params", True, "option"),
        ),
        ("recipe.yaml", replace_value, ("max_steps",), ("4",), Intent("max_steps", 4, "argument")),
        ("recipe.yaml", insert_entry, (), ("eval_strategy", '"no"'), Intent("eval_strategy", "no", "argument")),
    ],
)
def test_what_a_fix_writes_for_the_launcher_and_the_trainer(
    name: str,
    edit: Callable[..., list[Edit]],
    path: tuple[str, ...],
    values: tuple[str, ...],
    gives: Intent,
    tmp_path: Path,
) -> None:
    (tmp_path / "accelerate.yaml").write_text(ACCELERATE)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    fix = edited(edit, Files().open(tmp_path / name), path, *values, why="because")
    assert fix is not None and fix.gives == (gives,)


LOOP = "from accelerate import Accelerator\n\naccelerator = Accelerator()\n"
LAUNCHED = "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 1\ngpu_ids: 0,1\n"


def test_a_number_that_counts_in_no_run_is_not_written(tmp_path: Path) -> None:
    """Every line gives `--num_processes` itself: another number in the file would change nothing."""
    alone = fixed({"accelerate.yaml": LAUNCHED}, tmp_path, unsafe=True)
    assert "num_processes: 2\n" in alone["accelerate.yaml"]
    (tmp_path / "beaten").mkdir()
    files = {
        "accelerate.yaml": LAUNCHED,
        "a.sh": "accelerate launch --config_file accelerate.yaml --num_processes $N train.py\n",
        "train.py": LOOP,
    }
    assert "accelerate.yaml" not in fixed(files, tmp_path / "beaten", unsafe=True)
    (tmp_path / "both").mkdir()
    files["b.sh"] = "accelerate launch --config_file accelerate.yaml train.py\n"
    assert "num_processes: 2\n" in fixed(files, tmp_path / "both", unsafe=True)["accelerate.yaml"]


def test_of_a_file_that_several_runs_read_every_reader_has_to_be_known(tmp_path: Path) -> None:
    """The Trainer loses the weights; nobody knows what the other script saves."""
    ds = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "zero_optimization": {"stage": 3}'
    ds += "%s}\n"
    line = "deepspeed --num_gpus 2 train.py --deepspeed ds.json --output_dir out --per_device_train_batch_size 1 "
    line += "--gradient_accumulation_steps 1 --max_steps 2\n"
    known = {"ds.json": ds % "", "a.sh": line}
    assert "gather_16bit_weights_on_model_save" in fixed(known, tmp_path, unsafe=True)["ds.json"]
    (tmp_path / "both").mkdir()
    other = "accelerate launch --num_processes 2 --use_deepspeed --deepspeed_config_file ds.json other.py\n"
    both = {**known, "b.sh": other}
    found = [one for one in _found(both, tmp_path / "both") if one.code == "ZC401"]
    assert [one.severity.value for one in found] == ["error"] and found[0].fix is None
    assert "ds.json" not in fixed(both, tmp_path / "both", unsafe=True)
    (tmp_path / "typo").mkdir()
    typo = {**both, "ds.json": ds % ', "steps_per_prnt": 10'}
    assert '"steps_per_print": 10' in fixed(typo, tmp_path / "typo")["ds.json"]


def test_not_where_it_changes_a_run_in_which_nothing_is_wrong(tmp_path: Path) -> None:
    """The Trainer's models never look at `activation_checkpointing`; a loop of one's own may."""
    section = ', "activation_checkpointing": {"partition_activations": true}'
    files = {
        "ds.json": DS % (section + ', "gradient_clipping": 0.3'),
        "recipe.yaml": RECIPE + "gradient_checkpointing: true\ndeepspeed: ds.json\n",
        "zerocfg.yaml": TRAINER,
    }
    assert "activation_checkpointing" not in fixed(files, tmp_path)["ds.json"]
    (tmp_path / "both").mkdir()
    own = "  own:\n    consumer: deepspeed\n    script: b.py\n    deepspeed: ds.json\n"
    both = {**files, "zerocfg.yaml": TRAINER + own}
    assert {one.code for one in _found(both, tmp_path / "both")} >= {"ZC456"}
    left = {**both, **fixed(both, tmp_path / "both", unsafe=True)}
    assert section in left["ds.json"]


def test_one_edit_mends_what_is_found_in_several_recipes(tmp_path: Path) -> None:
    """Each recipe asks for a schedule that the one DeepSpeed config keeps from it."""
    scheduler = ', "gradient_clipping": 0.3, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": "auto"}}'
    recipe = RECIPE + "lr_scheduler_type: cosine\ndeepspeed: ds.json\n"
    files = {
        "ds.json": DS % scheduler,
        "a.yaml": recipe,
        "b.yaml": recipe.replace("max_steps: 2", "max_steps: 4"),
        "zerocfg.yaml": TRAINER.replace("recipe.yaml", "a.yaml")
        + "  more:\n    consumer: transformers\n    script: a.py\n    recipe: b.yaml\n",
    }
    found = [one for one in _found(files, tmp_path) if one.code == "ZC211"]
    assert [one.span.file.name for one in found] == ["a.yaml", "b.yaml"]
    assert "scheduler" not in fixed(files, tmp_path, unsafe=True)["ds.json"]
