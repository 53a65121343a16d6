"""The configs that a tutorial shows: whole ones, parts of one, what a shell script writes, and dicts and calls in code.

    for snippet in snippets(Path("tutorial.md").read_text()):
        snippet.files      # file name to text, completed to what a job can read

A part says only what its author talks about; ``Snippet.completed`` tells what was put around it.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from zerocfg.catalog.schema import load_schema

_FENCE = re.compile(r"^[ ]*```(\w+)[^\n]*\n(.*?)^[ ]*```", re.M | re.S)
_HEREDOC = re.compile(r"^cat > (\S+\.ya?ml) << *'?(\w+)'?\n(.*?)^\2$", re.M | re.S)
_OPTION = re.compile(r"^\s*--(\w+) (\S+)(?: \\)?$", re.M)
_AUTO = dict.fromkeys(
    ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "gradient_clipping"), "auto"
)
_HEAD = "compute_environment: LOCAL_MACHINE\n"


@dataclass(frozen=True)
class Snippet:
    """``line``: of the document, from 1. ``arguments``: training arguments that stand beside the config."""

    line: int
    consumer: str
    files: Mapping[str, str]
    completed: tuple[str, ...] = ()
    arguments: Mapping[str, Any] = field(default_factory=dict)


def snippets(text: str) -> Iterator[Snippet]:
    """The configs of a Markdown text, in their order."""
    for found in _FENCE.finditer(text):
        line, body = text.count("\n", 0, found.start(2)) + 1, found[2]
        made = {"yaml": _yaml, "json": _json, "bash": _shell, "python": _python}.get(found[1])
        yield from made(line, body) if made is not None else ()


def _yaml(line: int, text: str, arguments: Mapping[str, Any] | None = None) -> Iterator[Snippet]:
    words = arguments or _arguments(text)
    text = _OPTION.sub("", text)
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError:
        return
    section = load_schema("accelerate").root.keys["deepspeed_config"].section(load_schema("accelerate"))
    assert section is not None
    if not isinstance(data, dict):
        return
    completed: list[str] = []
    if "deepspeed_config" not in data:
        if not any(key in section.keys for key in data):
            return
        body = "".join(f"  {one}\n" if one.strip() else "\n" for one in text.splitlines())
        text, data = f"deepspeed_config:\n{body}", {"deepspeed_config": data}
        completed.append("deepspeed_config around it")
    inside = data["deepspeed_config"]
    if "zero_stage" not in inside:
        stage = 3 if any(str(key).startswith("stage3_") for key in inside) else 2
        text = text.replace("deepspeed_config:\n", f"deepspeed_config:\n  zero_stage: {stage}\n", 1)
        completed.append(f"stage {stage}")
    for name, value in (("distributed_type", "DEEPSPEED"), ("num_processes", 2)):
        if name not in data:
            text = f"{text.rstrip()}\n{name}: {value}\n"
            completed.append(name)
    if "compute_environment" not in data:
        text = _HEAD + text
    yield Snippet(line, "transformers", {"accelerate.yaml": text}, tuple(completed), words)


def _shell(line: int, text: str) -> Iterator[Snippet]:
    for found in _HEREDOC.finditer(text):
        yield from _yaml(line + text.count("\n", 0, found.start(3)), found[3], _arguments(text))


def _arguments(text: str) -> dict[str, Any]:
    """Training arguments among the options of a text."""
    known = load_schema("training-arguments").root.keys
    return {
        name: yaml.safe_load(value) for name, value in _OPTION.findall(text) if name in known and name != "output_dir"
    }


def _json(line: int, text: str) -> Iterator[Snippet]:
    try:
        data = json.loads(text)
    except ValueError:
        return
    completed: list[str] = []
    roots = load_schema("deepspeed").root.keys
    if not any(key in roots for key in data):
        data = {"zero_optimization": data}
        completed.append("zero_optimization around it")
    zero = data.setdefault("zero_optimization", {})
    if "stage" not in zero:
        zero["stage"] = 3 if any(key.startswith("stage3_") for key in zero) else 2
        completed.append(f"stage {zero['stage']}")
    completed += ["batch sizes: auto"]
    if not {"bf16", "fp16"} & data.keys():
        data["bf16"] = {"enabled": "auto"}
    half = "fp16" if "fp16" in data else "bf16"
    words = {"fp16": half == "fp16", "bf16": half == "bf16"}
    whole = json.dumps({**_AUTO, **data}, indent=2) + "\n"
    yield Snippet(line, "transformers", {"ds_config.json": whole}, tuple(completed), words)


def _python(line: int, text: str) -> Iterator[Snippet]:
    try:
        body = ast.parse(text).body
    except SyntaxError:
        return
    names = {
        target.id: one.value
        for one in body
        if isinstance(one, ast.Assign)
        for target in one.targets
        if isinstance(target, ast.Name)
    }
    for one in body:
        if not isinstance(one, ast.Assign):
            continue
        at = line + one.lineno - 1
        if isinstance(one.value, ast.Dict):
            yield from _dict(at, one.value)
        elif isinstance(one.value, ast.Call) and isinstance(one.value.func, ast.Name) and one.value.func.id == "FSDP":
            yield _fsdp(at, one.value, names)


def _dict(line: int, node: ast.Dict) -> Iterator[Snippet]:
    data = ast.literal_eval(node)
    if "zero_optimization" not in data:
        return
    completed = ["optimizer"]
    if not any(key.startswith("train_") for key in data):
        data["train_micro_batch_size_per_gpu"] = 4
        completed.append("micro batch")
    data.setdefault("optimizer", {"type": "AdamW", "params": {"lr": 1e-3}})
    yield Snippet(line, "deepspeed", {"ds_config.json": json.dumps(data, indent=2) + "\n"}, tuple(completed))


def _fsdp(line: int, call: ast.Call, names: Mapping[str, ast.expr]) -> Snippet:
    """A call of torch's FSDP as the accelerate config with the same arguments."""
    given = {one.arg: ast.unparse(names.get(ast.unparse(one.value), one.value)) for one in call.keywords if one.arg}
    lines = [f"{_HEAD}distributed_type: FSDP", "num_processes: 2", "fsdp_config:", "  fsdp_version: 1"]
    if "sharding_strategy" in given:
        lines.append(f"  fsdp_sharding_strategy: {given['sharding_strategy'].rpartition('.')[2]}")
    if "auto_wrap_policy" in given:
        lines.append("  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP")
    if "offload_params=True" in given.get("cpu_offload", ""):
        lines.append("  fsdp_offload_params: true")
    if "backward_prefetch" in given:
        lines.append(f"  fsdp_backward_prefetch: {given['backward_prefetch'].rpartition('.')[2]}")
    half = "float16" in given.get("mixed_precision", "").replace("bfloat16", "")
    words = {"fp16": half, "bf16": not half}
    what = "as the config of accelerate"
    return Snippet(line, "transformers", {"accelerate.yaml": "\n".join(lines) + "\n"}, (what,), words)
