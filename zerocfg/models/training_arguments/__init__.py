"""TrainingArguments of transformers 5.23.0."""

from __future__ import annotations

from typing import ClassVar, Literal

from zerocfg.models.training_arguments.checkpoints import Checkpoints, Evaluation, Logging
from zerocfg.models.training_arguments.distributed import Distributed
from zerocfg.models.training_arguments.optimization import Optimization
from zerocfg.models.training_arguments.precision import Precision
from zerocfg.models.training_arguments.removed import Removed

__all__ = ["TrainingArguments"]


class TrainingArguments(Checkpoints, Optimization, Precision, Distributed, Evaluation, Logging, Removed):
    """The Trainer's settings, as they stand in a recipe or on a command line."""

    unknown: ClassVar[Literal["error", "ignored", "passed"]] = "error"
    source: ClassVar[str] = "transformers/training_args.py"
    library: ClassVar[str] = "transformers"
    known_as: ClassVar[str | None] = ""
    shared: ClassVar[bool] = True
    reads = "argument"
    readers: ClassVar[dict[str, str]] = {"TrlParser": "converted", "HfArgumentParser.parse_yaml_file": "kept"}
