"""What the real libraries make of a file: whether they take it, and the values that come of it."""

from __future__ import annotations

import argparse
import ast
import contextlib
import dataclasses
import io
import os
import subprocess
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from benchmarks.wild.lint import Line
from tests.real_files import oracle

Kind = Literal["deepspeed", "accelerate", "recipe", "shell", "python"]
_FIELDS = "ACCELERATE_CONFIG_DS_FIELDS"
_OF_THE_MACHINE = frozenset({"OMP_NUM_THREADS"})
SHELL = (".sh", ".bash", ".slurm", ".sbatch")
_APART = frozenset(("training_script", "training_script_args", "user_script", "user_args", "nondefault"))
"""What the launchers call the script and its words, and accelerate the options that are given."""
PAGES = (".md", ".mdx", ".markdown", ".rst")
"""Read by people alone."""


@dataclass(frozen=True)
class Reading:
    """``error``: why it is refused. ``values`` by dotted name, as text."""

    error: str | None = None
    values: Mapping[str, str] = field(default_factory=dict)


def read(kind: Kind, path: Path) -> Reading:
    reader = {
        "deepspeed": _deepspeed,
        "accelerate": _accelerate,
        "recipe": _recipe,
        "shell": _shell,
        "python": _python,
    }[kind]
    with _quiet():
        return reader(path)


def _deepspeed(path: Path) -> Reading:
    config, error = oracle.deepspeed_config(path)
    return Reading(error, dict(_flat("", _public(config))) if config is not None else {})


def _public(config: object) -> dict[str, Any]:
    return {name: value for name, value in vars(config).items() if not name.startswith("_")}


def _accelerate(path: Path) -> Reading:
    """The variables that the launcher exports; one that lists the keys of the file counts as one for each key."""
    environment, error = oracle.accelerate_environment(path)
    values = {name: value for name, value in (environment or {}).items() if name not in _OF_THE_MACHINE}
    fields = values.pop(_FIELDS, "")
    return Reading(error, values | {f"{_FIELDS}.{name}": "given" for name in fields.split(",") if name})


def _recipe(path: Path) -> Reading:
    """The training arguments of a recipe as HfArgumentParser takes them; keys of the script's own are left out."""
    from transformers import HfArgumentParser, TrainingArguments

    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        known = {one.name for one in dataclasses.fields(TrainingArguments)}
        own = {name: value for name, value in data.items() if name in known} if isinstance(data, dict) else {}
        own |= {"use_cpu": True, "output_dir": "out", "deepspeed": None, "report_to": "none"}
        (arguments,) = HfArgumentParser(TrainingArguments).parse_dict(own)
    except Exception as error:
        return Reading(f"{type(error).__name__}: {error}")
    return Reading(None, {name: repr(getattr(arguments, name)) for name in known if name != "logging_dir"})


def read_line(line: Line, *, trainer: bool) -> Reading:
    """What the launcher's own parser makes of a line, and of the script's words that of the training arguments, where a
    Trainer reads them."""
    words = [word for name, value in line.options for word in (name, value) if word is not None]
    script = ["--unknown" if word is None else word for word in line.words]
    with _quiet():
        try:
            said = vars(_parsed(line.launcher, [*words, "train.py", *script]))
            values = {name: repr(value) for name, value in said.items() if name not in _APART}
            values |= _arguments(script) if trainer else {}
        except (Exception, SystemExit) as error:
            return Reading(f"{type(error).__name__}: {error}")
    return Reading(None, values)


def _parsed(launcher: str, words: list[str]) -> argparse.Namespace:
    if launcher == "accelerate":
        from accelerate.commands.launch import launch_command_parser

        parser: argparse.ArgumentParser = launch_command_parser()
        return parser.parse_args(words)
    if launcher == "torchrun":
        from torch.distributed.run import get_args_parser

        return get_args_parser().parse_args(words)
    if launcher == "deepspeed":
        from deepspeed.launcher.runner import parse_args

        found: argparse.Namespace = parse_args(args=words)
        return found
    return argparse.Namespace()


def _arguments(words: Sequence[str]) -> dict[str, str]:
    from transformers import HfArgumentParser, TrainingArguments

    known, _ = HfArgumentParser(TrainingArguments).parse_known_args(list(words))
    return {name: repr(value) for name, value in vars(known).items()}


def _shell(path: Path) -> Reading:
    done = subprocess.run(["bash", "-n", str(path)], capture_output=True, text=True)
    return Reading(done.stderr.strip() or "bash -n fails" if done.returncode else None)


def _python(path: Path) -> Reading:
    try:
        ast.parse(path.read_bytes())
    except (SyntaxError, ValueError) as error:
        return Reading(str(error))
    return Reading()


def _flat(name: str, value: Any) -> Iterator[tuple[str, str]]:
    """A parsed config by dotted names; objects that only hold others are gone through."""
    if hasattr(value, "model_dump"):
        value = value.model_dump()
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(f"{name}.{key}" if name else str(key), inner)
    elif isinstance(value, (str, int, float, bool, type(None), list, tuple, set)):
        yield name, repr(value)
    elif hasattr(value, "value"):
        yield name, repr(value.value)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without what the libraries print; the environment is left as it was."""
    before = dict(os.environ)
    try:
        with (
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
            warnings.catch_warnings(),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)
