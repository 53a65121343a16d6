"""What the real libraries make of a file: whether they take it, and the values that come of it."""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import io
import os
import subprocess
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import yaml

from tests.real_files import oracle

Kind = Literal["deepspeed", "accelerate", "recipe", "shell", "python"]
_FIELDS = "ACCELERATE_CONFIG_DS_FIELDS"
_OF_THE_MACHINE = frozenset({"OMP_NUM_THREADS"})
SHELL = (".sh", ".bash", ".slurm", ".sbatch")
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
