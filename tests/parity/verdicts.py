"""What zerocfg says of one config that stands alone, and what the real library does with it."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from zerocfg.catalog.schema import Section, load_schema
from zerocfg.linter.engine import Diagnostic, lint_runs
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.api import Rule, Severity
from zerocfg.rules.registry import find
from zerocfg.run.model import Origin, Phase, Run, Setting, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Span

BY_KEY = ("ZC003", "ZC101", "ZC104", "ZC105", "ZC106", "ZC107", "ZC108", "ZC110", "ZC114")
"""Rules that speak of keys of every section. Where DeepSpeed has a typed section, that is when the config is parsed;
in an untyped one it is when the value is used, which may be later."""
ABOUT_THE_MACHINE = "GDS currently only supported"
MISSING_HERE = re.compile(
    "No module named|transformer_engine|torchao|MS-AMP|not installed|is not available|were not found", re.I
)


@dataclass
class Real:
    """``error``: how the library refused, None when it did not. ``values``: what it made of the config.

    ``here``: the refusal says something about this machine, not about the config.
    """

    error: str | None = None
    here: bool = False
    values: dict[str, Any] = field(default_factory=dict)
    looked_at: dict[tuple[str, ...], set[str]] = field(default_factory=dict)
    walked: set[tuple[str, ...]] = field(default_factory=set)


def phases(rule: Rule) -> set[Phase]:
    """In which phases the rule's examples stop, by its executed proofs; empty when they show something else."""
    proofs = [page_of(rule).proof, *(example.proof for example in page_of(rule).bad if example.proof is not None)]
    return {proof.phase for proof in proofs if proof.raises is not None and proof.status == "executed"}


def claims(diagnostics: list[Diagnostic], *early: Phase) -> tuple[list[Diagnostic], list[Diagnostic]]:
    """(those that claim that the config is refused in one of these phases, those that may mean it)."""
    sure, maybe = [], []
    for diagnostic in diagnostics:
        rule = find(diagnostic.code)
        assert rule is not None
        found = phases(rule)
        if diagnostic.severity is not Severity.ERROR:
            continue
        if diagnostic.code in BY_KEY:
            refused = in_typed_section(diagnostic.span.path) and "never looks at" not in diagnostic.message
            (sure if refused else maybe).append(diagnostic)
        elif found & set(early):
            (sure if found <= set(early) else maybe).append(diagnostic)
    return sure, maybe


def in_typed_section(name: str) -> bool:
    """Whether a key of a DeepSpeed config, known or not, stands in a section that is checked as it is parsed."""
    schema = load_schema("deepspeed")
    section: Section | None = schema.root
    for part in name.split("."):
        if section is None:
            return False
        key = section.key(part)
        if key is None:
            return section.unknown == "error"
        section = key.section(schema)
        typed = key.facts.get("reads") == "lax" if section is None else section.unknown != "passed"
    return typed


# --- DeepSpeed --------------------------------------------------------------------------------------------------------


def deepspeed_run(text: str, world: int) -> Run:
    """The run of an own loop that reads the config by deepspeed.initialize, on ``world`` ranks."""
    read = SourceText("ds.json", text)
    run = Run(
        "case",
        consumer="deepspeed",
        deepspeed_route="engine",
        deepspeed=SourceFile("ds.json", "deepspeed", read, load_as(read, "json")),
        launch=LaunchLine("deepspeed", (), None, (), (), {}, Span(0, 0)),
        flags={"num_gpus": Setting(str(world), Origin("flag", "--num_gpus"))},
    )
    return with_settings(run)


def lint(run: Run) -> list[Diagnostic]:
    return lint_runs([run]).diagnostics


class World:
    """Stands in for deepspeed.comm, of which DeepSpeedConfig asks nothing but rank and size."""

    def __init__(self, size: int) -> None:
        self.size = size

    def get_rank(self) -> int:
        return 0

    def get_world_size(self, group: object = None) -> int:
        return self.size


def real_deepspeed(text: str, world: int) -> Real:
    """As deepspeed.initialize: the file read as hjson, then DeepSpeedConfig."""
    from deepspeed.runtime import config as module
    from deepspeed.runtime.tensor_parallel.init_utils import load_ds_config

    from tests.models.recording import RecordingDict

    logging.disable(logging.CRITICAL)
    handle, name = tempfile.mkstemp(suffix=".json")
    before = module.dist
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        data = load_ds_config(name)
        recorded = RecordingDict(data) if isinstance(data, dict) else data
        module.dist = World(world)
        parsed = module.DeepSpeedConfig(recorded)
    except BaseException as error:
        return Real(f"{type(error).__name__}: {error}", here=ABOUT_THE_MACHINE in str(error))
    finally:
        module.dist = before
        Path(name).unlink()
        logging.disable(logging.NOTSET)
    return Real(None, False, deepspeed_values(parsed), dict(recorded.seen), set(recorded.walked))


SECTIONS = {
    "zero_optimization": "zero_config",
    "fp16": "float16_config",
    "bf16": "bfloat16_config",
    "comms_logger": "comms_config.comms_logger",
    "compile": "compile_config",
    "hybrid_engine": "hybrid_engine",
    "tensorboard": "monitor_config.tensorboard",
    "wandb": "monitor_config.wandb",
    "csv_monitor": "monitor_config.csv_monitor",
    "comet": "monitor_config.comet",
    "aio": "aio_config",
    "flops_profiler": "flops_profiler_config",
}
"""Section of the file -> attribute of DeepSpeedConfig that holds what was made of it."""
PLAIN = (
    "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps managed_gradient_accumulation "
    "steps_per_print dump_state disable_python_gc prescale_gradients gradient_predivide_factor gradient_allreduce_op "
    "gradient_clipping zero_allow_untested_optimizer zero_force_ds_cpu_optimizer memory_breakdown "
    "dataloader_drop_last log_level"
).split()


def deepspeed_values(parsed: Any) -> dict[str, Any]:
    """What DeepSpeed made of the config, by the names of its file."""
    found = {name: getattr(parsed, name) for name in PLAIN}
    for section, attribute in SECTIONS.items():
        value = parsed
        for part in attribute.split("."):
            value = getattr(value, part, {})
        flatten(section, value, found)
    return found


def flatten(prefix: str, value: Any, into: dict[str, Any]) -> None:
    if hasattr(type(value), "model_fields"):
        value = dict(vars(value))
    elif not isinstance(value, dict) and hasattr(value, "__dict__"):
        value = vars(value)
    if isinstance(value, dict):
        for name, item in value.items():
            flatten(f"{prefix}.{name}", item, into)
    else:
        into[prefix] = str(value) if isinstance(value, Path) else value


def values_differ(run: Run, real: Real) -> list[str]:
    wrong = []
    for name, value in real.values.items():
        known = run.effective.get(name) or run.effective.get(name.replace("optimization.", "optimization.stage3_"))
        if known is None or not known.known or value is None or (isinstance(value, float) and value != value):
            continue
        if known.value != value:
            wrong.append(f"{name}: effective value {known.value!r}, really {value!r}")
    return wrong


def dropped_differs(tree: Any, diagnostics: list[Diagnostic], real: Real) -> list[str]:
    """Keys that DeepSpeed never looks at, against those of which zerocfg says so.

    Keys that the models know are looked at later, by the engine (tests/models holds them complete). `pipeline` is
    copied as a whole.
    """
    schema = load_schema("deepspeed")
    told = {d.span.path for d in diagnostics}
    silent = {d.span.path for d in diagnostics if d.code == "ZC102"}
    wrong: list[str] = []

    def walk(node: dict[str, Any], path: tuple[str, ...]) -> None:
        for key, value in node.items():
            name = ".".join((*path, key))
            read = (path in real.walked and path != ("pipeline",)) or key in real.looked_at.get(path, ())
            if read and name in silent and value != "auto":
                wrong.append(f"{name}: said to be ignored, but DeepSpeed looks at it")
            known = schema.find((*path, str(key)))
            if not read and known is None and name not in told and not any(p and name.startswith(p) for p in told):
                wrong.append(f"{name}: nobody looks at it, and nothing is said")
            inner = known.section(schema) if known is not None else None
            if isinstance(value, dict) and inner is not None and inner.unknown != "passed":
                walk(value, (*path, str(key)))

    walk(tree, ())
    return wrong


# --- accelerate launch ------------------------------------------------------------------------------------------------


def accelerate_run(text: str) -> Run:
    """The run of `accelerate launch --config_file acc.yaml train.py`, of whose script nothing is known."""
    read = SourceText("acc.yaml", text)
    file = SourceFile("acc.yaml", "accelerate", read, load_as(read, "yaml"))
    return with_settings(
        Run("case", launch=LaunchLine("accelerate", (), None, (), (), {}, Span(0, 0)), accelerate=file)
    )


def real_accelerate(text: str) -> Real:
    """accelerate's own `launch_command` with recorders in the place of its launchers: the variables that it exports,
    and the number of processes as "world". No port is in use, whoever else works on this machine."""
    import accelerate.commands.launch as launch
    import accelerate.utils.launch as commands
    from torch.distributed.run import determine_local_world_size

    from tests.parity.worker import EXPORTED, launched

    libraries = {"launch": launch, "local_size": determine_local_world_size}
    replaced = ("deepspeed_launcher", "multi_gpu_launcher", "simple_launcher")
    in_use = commands.is_port_in_use
    commands.is_port_in_use = lambda port: in_use(port) and False  # asked all the same: it refuses what is no port
    before, argv, launchers = dict(os.environ), sys.argv, {name: getattr(launch, name) for name in replaced}
    for name in [name for name in os.environ if name.startswith(EXPORTED)]:
        del os.environ[name]
    with tempfile.TemporaryDirectory() as folder, Path(os.devnull).open("w") as nowhere:
        path = Path(folder, "acc.yaml")
        path.write_text(text, encoding="utf-8")
        try:
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                environment, world = launched(["--config_file", str(path)], libraries)
        except BaseException as error:
            return Real(f"{type(error).__name__}: {error}", here=bool(MISSING_HERE.search(str(error))))
        finally:
            sys.argv = argv
            commands.is_port_in_use = in_use
            for name, launcher in launchers.items():
                setattr(launch, name, launcher)
            os.environ.clear()
            os.environ.update(before)
    exported = {name: value for name, value in environment.items() if name.startswith(EXPORTED)}
    odd = [name for name, value in exported.items() if not isinstance(value, str)]
    if odd and "ACCELERATE_USE_CPU" in exported:  # the simple launcher hands them to the new process as they are
        return Real(f"TypeError: expected str, bytes or os.PathLike object, not {type(exported[odd[0]]).__name__}")
    # The other launchers export through patch_environment, which makes text of everything.
    return Real(None, values={**{name: str(value) for name, value in exported.items()}, "world": world})
