"""What a config can be converted to, and the config that is read for it."""

from __future__ import annotations

from pathlib import Path

from zerocfg.convert.conversion import Conversion, ConversionError, refused
from zerocfg.convert.deepspeed_section import SECTION
from zerocfg.convert.into_json import into_json
from zerocfg.convert.into_yaml import into_yaml
from zerocfg.migrate.steps import editable
from zerocfg.run.discover import Files, display_name
from zerocfg.run.link import run_of_file
from zerocfg.run.model import Consumer, ReaderEvidence, Run
from zerocfg.run.resolve_settings import with_consumer

TARGETS = ("deepspeed-json", "accelerate-yaml")


def convert(
    config: Path, target: str, files: Files, output: Path, json_file: Path | None, consumer: Consumer | None
) -> Conversion:
    """The conversion of one accelerate config. ``output``: where its text goes; ``json_file``: a new DeepSpeed JSON.
    Nothing is written. Raises ConversionError."""
    run = _opened(config, files)
    if consumer is not None:
        run = with_consumer(run, consumer, ReaderEvidence("command"))
    _of_deepspeed(run)
    if target == "accelerate-yaml":
        return into_yaml(run, files)
    return into_json(run, files, json_file or output.with_suffix(".json"))


def _of_deepspeed(run: Run) -> None:
    file = run.accelerate
    assert file is not None
    data = file.data()
    if data.get("distributed_type") != "DEEPSPEED":
        raise refused(file, ("distributed_type",), "this form is for `distributed_type: DEEPSPEED`")
    if not isinstance(data.get(SECTION) or {}, dict):
        raise refused(file, (SECTION,), f"`{SECTION}` is no mapping")


def _opened(config: Path, files: Files) -> Run:
    """The run of an accelerate config that can be edited."""
    name = display_name(config)
    if not config.is_file():
        raise ConversionError(f"there is no file '{config}'")
    file = files.open(config)
    problem = next((one for one in file.document.problems if one.fatal), None) if file.document else None
    if problem is not None:
        at = file.source.place(problem.span.start)
        raise ConversionError(f"{name}:{at.line}:{at.column}: it cannot be read: {problem.message}")
    run = run_of_file(config, files) if file.kind == "accelerate" else None
    if run is None:
        what = {"deepspeed": "a DeepSpeed JSON", "recipe": "a recipe", "spec": "a spec"}.get(file.kind, "no config")
        raise ConversionError(f"'{name}' is {what}; name the accelerate config of the run")
    if not editable(file) or not isinstance(file.data(), dict):
        raise ConversionError(f"'{name}' cannot be edited")
    missing = next(iter(run.missing), None)
    if missing is not None:
        raise ConversionError(f"{name}: there is no file {missing.note!r}")
    return run
