"""What `accelerate launch` takes: keys of its YAML, options of its parser, fields of plugins, words of its enums."""

from __future__ import annotations

import argparse
import dataclasses
import enum
import re
import tempfile
from pathlib import Path

import accelerate
import yaml
from accelerate.commands.config import config_args
from accelerate.commands.launch import launch_command_parser
from accelerate.utils import dataclasses as plugins

from tools.facts import describe

_FAMILIES = "ACCELERATE|FSDP|MEGATRON_LM|PARALLELISM_CONFIG|FP8|NCCL|XLA|CCL|OMP|MKL"


def cluster() -> dict[str, describe.Facts]:
    """The keys of a YAML file; ``false``: what its reading makes of false in a key, where that is something else."""
    found = describe.fields(config_args.ClusterConfig)
    base = {"compute_environment": "LOCAL_MACHINE", "distributed_type": "NO", "num_processes": 1, "use_cpu": False}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "default_config.yaml")
        for name, facts in found.items():
            path.write_text(yaml.safe_dump({**base, name: False}), encoding="utf-8")
            try:
                held = getattr(config_args.ClusterConfig.from_yaml_file(yaml_file=path), name)
            except Exception:  # this release takes no false there: what it says is for the comparison of refusals
                continue
            if held is not False:
                facts["false"] = describe.value(held)
    return found


def options() -> dict[str, object]:
    """By name in the namespace: the options of the launcher."""
    found: dict[str, object] = {}
    for action in launch_command_parser()._actions:
        if action.dest in ("help", "training_script", "training_script_args"):
            continue
        held = found.get(f"option.{action.dest}")
        flags = [*(held["flags"] if isinstance(held, dict) else []), *action.option_strings]
        kind = getattr(action.type, "__name__", None) if action.type is not None else "str"
        facts: dict[str, object] = {
            "flags": flags,
            "action": type(action).__name__.removeprefix("_").removesuffix("Action"),
            "type": kind,
            "default": describe.value(action.default) if action.default is not argparse.SUPPRESS else None,
        }
        if action.choices is not None:
            facts["choices"] = describe.value(list(action.choices))
        found[f"option.{action.dest}"] = facts
    return found


def enums() -> dict[str, object]:
    found: dict[str, object] = {}
    for module in (plugins, config_args):
        for name, held in vars(module).items():
            if isinstance(held, type) and issubclass(held, enum.Enum) and held.__module__.startswith("accelerate"):
                found[f"words.{name}"] = {"words": describe.choices(held)}
    return found


def constants() -> dict[str, object]:
    """Lists of words that checks compare with."""
    from accelerate.utils import constants as module

    return {
        f"words.{name}": {"words": describe.value(held)}
        for name, held in vars(module).items()
        if name.isupper() and isinstance(held, (list, tuple)) and all(isinstance(item, str) for item in held)
    }


def of_classes() -> dict[str, object]:
    found: dict[str, object] = {}
    for name, held in vars(plugins).items():
        own = isinstance(held, type) and dataclasses.is_dataclass(held) and held.__module__.startswith("accelerate")
        if own and name.endswith(("Plugin", "Configuration", "Kwargs", "Config")):
            found |= {f"{name}.{field}": facts for field, facts in describe.fields(held).items()}
    return found


def variables() -> dict[str, object]:
    """The environment variables that the launcher's module writes and that the dataclasses read, by their source."""
    folder = Path(accelerate.__file__).parent
    word = re.compile(rf"""["']((?:{_FAMILIES})_[A-Z0-9_]+)["']""")
    found: dict[str, object] = {}
    for part, file in (("written", "utils/launch.py"), ("read", "utils/dataclasses.py")):
        for name in word.findall((folder / file).read_text(encoding="utf-8")):
            held = found.setdefault(f"variable.{name}", {})
            assert isinstance(held, dict)
            held[part] = True
    return found


keys: dict[str, object] = {
    **{f"cluster.{name}": facts for name, facts in cluster().items()},
    **{f"sagemaker.{name}": facts for name, facts in describe.fields(config_args.SageMakerConfig).items()},
    **options(),
    **enums(),
    **constants(),
    **of_classes(),
    **variables(),
}
describe.tell({"version": accelerate.__version__, "keys": keys})
