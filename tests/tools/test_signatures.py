"""What the walk of signatures reads from a release's source."""

from __future__ import annotations

from typing import TYPE_CHECKING
from zipfile import ZipFile

from tools.facts.signatures import signatures

if TYPE_CHECKING:
    from pathlib import Path

SOURCE = """
class _Base(Trainer):
    def __init__(self, model, args=None):
        pass

class ATrainer(_Base):
    @deprecate_kwarg("tokenizer", "0.16.0", "processing_class", raise_if_both_names=True)
    def __init__(self, model, *, processing_class=None):
        pass

class BTrainer(_Base):
    pass

class CTrainer(_Base):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)

class DTrainer(Trainer):
    pass

class HiddenTrainer(_Base):
    pass
"""


def test_of_a_wheel(tmp_path: Path) -> None:
    wheel = tmp_path / "trl-1.0-py3-none-any.whl"
    with ZipFile(wheel, "w") as held:
        held.writestr("trl/__init__.py", "from .trainer import ATrainer, BTrainer, CTrainer, DTrainer\n")
        held.writestr("trl/trainer/a_trainer.py", SOURCE)
        held.writestr("trl/experimental/a_trainer.py", "class ETrainer:\n    def __init__(self):\n        pass\n")
    assert signatures("trl", wheel) == {
        "ATrainer": {},
        "ATrainer.model": {},
        "ATrainer.processing_class": {},
        "ATrainer.tokenizer": {},
        "BTrainer": {},
        "BTrainer.model": {},
        "BTrainer.args": {},
        "CTrainer": {"open": True},
        "DTrainer": {"open": True},
    }
