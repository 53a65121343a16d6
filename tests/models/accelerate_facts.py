"""Reading the facts of the accelerate models in tests, and running the launcher's own merge of a file."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from zerocfg.models.accelerate import Launcher

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from zerocfg.models.base import Section

# Set by the file alone: attributes that the parser does not make.
FILE_ONLY = {"use_cpu", "tpu_name", "tpu_vm", "fsdp_ignored_modules", "fp8_use_mxfp8_block_scaling"}


def facts(model: type[Section], name: str) -> dict[str, Any]:
    extra = model.model_fields[name].json_schema_extra
    return extra["x-zerocfg"] if isinstance(extra, dict) else {}


def keys(model: type[Section], *without: str) -> set[str]:
    """Names of ``model`` whose facts hold none of ``without``."""
    return {name for name in model.model_fields if not any(word in facts(model, name) for word in without)}


def literals(annotation: Any) -> set[Any]:
    """Every Literal value anywhere in ``annotation``."""
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    return set().union(*(literals(part) for part in typing.get_args(annotation))) if annotation else set()


def values_of(model: type[Section], name: str) -> set[Any]:
    return literals(model.model_fields[name].annotation)


def sentinel(name: str) -> Any:
    """A value that no default equals and that the launcher can work with."""
    special = {
        "mixed_precision": "fp8",
        "dynamo_backend": "eager",
        "gpu_ids": "0,1",
        "fp8_override_linear_precision": [True, False, True],
        "num_processes": 6,
        "num_machines": 1,
        "main_process_port": 29655,
        "tpu_vm": ["a"],
    }
    if name in special:
        return special[name]
    annotation = str(Launcher.model_fields[name].annotation)
    if "bool" in annotation:
        return Launcher.model_fields[name].default is not True
    return 3 if "int" in annotation or "float" in annotation else f"Some-{name}"


def merged(tmp_path: Path, config: dict[str, Any], *command_line: str) -> argparse.Namespace:
    """The launcher's arguments after it read ``config``."""
    path = tmp_path / "accelerate.yaml"
    path.write_text(yaml.safe_dump(config))
    launch = pytest.importorskip("accelerate.commands.launch")
    parser = launch.launch_command_parser()
    arguments = parser.parse_args(["--config_file", str(path), *command_line, "train.py"])
    return launch._validate_launch_command(arguments)[0]


def variables(model: type[Section]) -> dict[str, str]:
    """Environment variable -> key."""
    return {entry["name"]: name for name in model.model_fields for entry in facts(model, name).get("env", [])}
