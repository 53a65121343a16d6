"""Classes of a library that a script derives from by the library's name: gone, they stop it as an import does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.rules.examples import lint

if TYPE_CHECKING:
    from pathlib import Path

TRAIN = "\nfrom transformers import Trainer, TrainingArguments\nTrainer(args=TrainingArguments('out')).train()\n"


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("import trl\n\nclass Config(trl.ORPOConfig):\n    pass\n", ["trl.ORPOConfig"]),
        ("import trl\n\nclass Config(Base, trl.ORPOConfig):\n    pass\n", ["trl.ORPOConfig"]),
        ("import trl\n\nclass Config(trl.SFTConfig):\n    pass\n", []),
        ("import own as trl\n\nclass Config(trl.ORPOConfig):\n    pass\n", []),
        ("import trl\n\nclass Config(mine.trl.ORPOConfig):\n    pass\n", []),
        ("import trl\n\nclass Config(trl.experimental.ORPOConfig):\n    pass\n", []),
        ("import trl\n\nif old:\n    class Config(trl.ORPOConfig):\n        pass\n", []),
        ("import trl\n\ndef late():\n    return trl.ORPOConfig\n", []),
    ],
)
@pytest.mark.parametrize("inner", [False, True])
def test_derived_classes(tmp_path: Path, code: str, told: list[str], inner: bool) -> None:
    files = {"train.py": code + TRAIN}
    if inner:
        files = {"train.py": "import configs" + TRAIN, "configs.py": f"'''Configs.'''\n{code}"}
    for name, text in {**files, "run.sh": "torchrun --nproc_per_node 2 train.py\n"}.items():
        (tmp_path / name).write_text(text)
    found = [one for one in lint(tmp_path, None).diagnostics if one.code == "ZC876"]
    assert [one.message.split("`")[1] for one in found] == told
    assert [one.severity.value for one in found] == ["warning"] * len(told)
    assert [one.help for one in found] == ["require trl<0.29, or write what the newer releases have"] * len(told)
