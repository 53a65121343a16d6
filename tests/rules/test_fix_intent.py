"""A fix is kept only where the setting gets the value that it means, and none depends on a reader that nobody knows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.rules.examples import lint, write
from zerocfg.rules.api import Example
from zerocfg.rules.fixing import fix_all

if TYPE_CHECKING:
    from pathlib import Path

    from zerocfg.rules.engine import Diagnostic

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
