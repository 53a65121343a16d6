"""What a config can be converted to, and the config that is read for it."""

from __future__ import annotations

from pathlib import Path

from zerocfg.convert.conversion import Conversion, ConversionError, refused
from zerocfg.convert.ddp import ddp_to_fsdp2, ddp_to_zero
from zerocfg.convert.deepspeed_section import POINTER, SECTION
from zerocfg.convert.fsdp1 import SECTION as FSDP
from zerocfg.convert.fsdp1 import VERSION, from_fsdp1
from zerocfg.convert.into_json import into_json
from zerocfg.convert.into_yaml import into_yaml
from zerocfg.convert.zero_to_fsdp2 import from_zero
from zerocfg.migrate.steps import editable
from zerocfg.rules.effects import admitted
from zerocfg.run.discover import Files, display_name
from zerocfg.run.link import run_of_file
from zerocfg.run.model import Run
from zerocfg.run.stages.admitted import admitted_of

TARGETS = ("deepspeed-json", "accelerate-yaml", "fsdp2", "zero2", "zero3")
_FSDP2_SINCE = "1.6.0"
"""The release of accelerate that brought FSDP 2."""
_OPEN = ("num-processes-missing",)
"""Refusals that a launch line may still do away with."""


def convert(run: Run, files: Files, target: str, output: Path, json_file: Path | None = None) -> Conversion:
    """The conversion of the run of one accelerate config. ``output``: where its text goes; ``json_file``: a new
    DeepSpeed JSON. Nothing is written. Raises ConversionError."""
    if json_file is not None and (target != "deepspeed-json" or run.deepspeed is not None):
        raise ConversionError(f"{run.name}: no new DeepSpeed JSON comes of it that '{json_file}' could name")
    if target in ("deepspeed-json", "accelerate-yaml"):
        _of_deepspeed(run)
        return (
            into_yaml(run, files) if target == "accelerate-yaml" else into_json(run, files, json_file or _near(output))
        )
    return _into_engine(run, files, target)


def _near(output: Path) -> Path:
    """A JSON beside the config, with its name."""
    return (
        output.with_name(f"{output.stem}_deepspeed.json") if output.suffix == ".json" else output.with_suffix(".json")
    )


def _into_engine(run: Run, files: Files, target: str) -> Conversion:
    """The same job under another engine."""
    file, engine = run.accelerate, run.effective.value("engine")
    assert file is not None
    refusal = next((failure for failure in run.effective.failures if failure.kind not in _OPEN), None)
    if refusal is not None:
        raise ConversionError(f"{file.name}: the job does not start as it is: {refusal.message}")
    if target == "fsdp2" and not admitted_of(run, "accelerate").any_from(_FSDP2_SINCE):
        raise ConversionError(f"{file.name}: {admitted(run, 'accelerate')}; FSDP 2 comes with {_FSDP2_SINCE}")
    if target == "fsdp2" and engine == "fsdp":
        version = run.effective.value(f"{FSDP}.{VERSION}")
        return Conversion(run, file.source.text, ()) if version == 2 else from_fsdp1(run, files)
    if target == "fsdp2" and engine == "deepspeed":
        return from_zero(run, files)
    if engine == "ddp":
        return ddp_to_fsdp2(run, files) if target == "fsdp2" else ddp_to_zero(run, files, int(target[-1]))
    ways = "DeepSpeed, FSDP 1 and DDP become FSDP 2" if target == "fsdp2" else "DDP becomes ZeRO"
    kind = file.data().get("distributed_type")
    raise refused(file, ("distributed_type",), f"`distributed_type: {kind}` is not converted so; {ways}")


def _of_deepspeed(run: Run) -> None:
    file = run.accelerate
    assert file is not None
    data = file.data()
    if data.get("distributed_type") != "DEEPSPEED":
        raise refused(file, ("distributed_type",), "this form is for `distributed_type: DEEPSPEED`")
    if not isinstance(data.get(SECTION) or {}, dict):
        raise refused(file, (SECTION,), f"`{SECTION}` is no mapping")


def opened(config: Path, files: Files) -> Run:
    """The run of an accelerate config that can be edited. Raises ConversionError."""
    name = display_name(config)
    if not config.is_file():
        raise ConversionError(f"there is no file '{config}'")
    file = files.open(config)
    problem = next((item for item in file.document.problems if item.fatal), None) if file.document else None
    if problem is not None:
        at = file.source.place(problem.span.start)
        raise ConversionError(f"{name}:{at.line}:{at.column}: it cannot be read: {problem.message}")
    run = run_of_file(config, files) if file.kind == "accelerate" else None
    if run is None:
        what = {"deepspeed": "a DeepSpeed JSON", "recipe": "a recipe", "spec": "a spec"}.get(file.kind, "no config")
        raise ConversionError(f"'{name}' is {what}; name the accelerate config of the run")
    if not editable(file) or not isinstance(file.data(), dict):
        raise ConversionError(f"'{name}' cannot be edited")
    section = file.data().get(SECTION)
    if isinstance(section, dict) and section.get(POINTER) == "none":
        raise refused(file, (SECTION, POINTER), "accelerate takes `none` for no file: remove the key first")
    missing = next(iter(run.missing), None)
    if missing is not None:
        raise ConversionError(f"{name}: there is no file {missing.note!r}")
    return run
