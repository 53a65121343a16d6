"""The runs of a spec."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from zerocfg.budgets import DIGITS
from zerocfg.catalog.values import yaml_number
from zerocfg.run.consumers import consumer_of
from zerocfg.run.discover import launch_lines
from zerocfg.run.expand import ExpandedRun, expand
from zerocfg.run.facts import ModelSummary
from zerocfg.run.linking.follow import Paths, with_missing
from zerocfg.run.linking.launch_line_runs import from_line, settings
from zerocfg.run.model import (
    Origin,
    ReaderEvidence,
    RecipeReader,
    Route,
    Run,
    Setting,
    SourceFile,
    original,
)
from zerocfg.run.model_source import open_model
from zerocfg.run.resolve_settings import with_consumer
from zerocfg.run.widths import model_summary
from zerocfg.source import disk
from zerocfg.source.launch.launchers import read_options
from zerocfg.source.launch.line import LaunchLine, Word
from zerocfg.source.node import Document
from zerocfg.source.text import Span

_READERS: dict[str, RecipeReader] = {"trl": "trl", "transformers": "hf"}
_ROUTES: dict[str, Route] = {"deepspeed": "engine", "accelerate": "accelerate"}


def from_spec(paths: Paths, file: SourceFile) -> list[Run]:
    if file.document is None:
        return [Run(file.name, spec=file)]
    sources = {id(file.document): file}

    def open_file(path: Path) -> Document | None:
        other = paths.files.open(path) if disk.is_file(path) else None
        if other is None or other.document is None:
            return None
        sources[id(other.document)] = other
        return other.document

    folder = disk.resolved(file.path).parent if file.path else paths.root
    expanded = expand(file.document, folder, open_file)
    runs = [_run(paths, file, entry, folder, sources) for entry in expanded.runs] or [Run(file.name, spec=file)]
    troubles = []
    for trouble in expanded.troubles:
        where = trouble.where
        origin = Origin("file", "key" if trouble.at_key else "", sources[id(where.document)], where.path)
        troubles.append((origin, trouble.message, trouble.help))
    return [replace(runs[0], troubles=tuple(troubles)), *runs[1:]]


def _run(paths: Paths, file: SourceFile, entry: ExpandedRun, folder: Path, sources: Mapping[int, SourceFile]) -> Run:
    bases = [folder]

    def setting(key: str) -> Setting | None:
        value = entry.data.get(key)
        if not isinstance(value, str):
            return None
        written = entry.where((key,))
        return Setting(value, Origin("file", file=sources[id(written.document)], path=written.path))

    run = _of_line(paths, Run(entry.name, spec=file), setting("launch"), bases)
    run, accelerate = paths.followed(run, setting("accelerate"), bases)
    run, recipe = paths.followed(run, setting("recipe"), bases)
    run, deepspeed = paths.followed(run, setting("deepspeed"), bases)
    if accelerate is not None:
        run = paths.with_accelerate(run, accelerate, bases)
    if recipe is not None:
        run = paths.with_recipe(run, recipe, bases)
    route = run.deepspeed_route
    if deepspeed is not None:
        run, route = replace(run, deepspeed=paths.as_json(deepspeed)), route or "trainer"
    consumer = consumer_of(entry.data.get("consumer"))
    run, summary = _model(paths, run, entry.data.get("model"), setting("model"), folder)
    versions = entry.data.get("versions")
    run = replace(
        run,
        consumer=consumer or run.consumer,
        reader_evidence=_evidence_in_spec(entry, sources) if consumer else None,
        entry_point=_script_of(entry, folder) or run.entry_point,
        recipe_reader=_READERS.get(str(consumer)) or run.recipe_reader,
        deepspeed_route=_ROUTES.get(str(consumer), route) if route == "trainer" else route,
        model=summary,
        arguments=run.arguments if entry.data.get("arguments") is None else _spec_arguments(entry, sources),
        versions={str(key): str(value) for key, value in versions.items()} if isinstance(versions, dict) else {},
    )
    if run.entry_point is None or run.entry_point.suffix != ".py" or not disk.is_file(run.entry_point):
        return run
    from zerocfg.run.linking.script_runs import open_script, with_script_arguments  # with them, all that reads Python
    from zerocfg.run.script.arguments import shows_arguments

    run = replace(run, script=open_script(paths, run.entry_point))
    shown = run.script is not None and shows_arguments(run.script)
    return with_script_arguments(run) if shown and run.recipe is None else run


def _of_line(paths: Paths, run: Run, said: Setting | None, bases: list[Path]) -> Run:
    """The run as the launch line starts it that `launch:` names by its file and line; the line's number may be left out
    where the file has one line. Without `launch` where there is no such line."""
    if said is None:
        return run
    name, number = launch_place(said.value)
    run, file = paths.followed(run, replace(said, value=name), bases)
    lines = [line for line in launch_lines(file) if _stands_at(file, line, number)] if file is not None else []
    if file is None or len(lines) != 1:
        return run
    found = from_line(paths, file, lines[0])
    if found is None:
        return replace(run, launch=lines[0], launch_file=file)
    words = settings(file, lines[0].script_options)  # the spec says that the script reads them
    return replace(found, name=run.name, spec=run.spec, arguments=words, arguments_whole=None)


def launch_place(text: str) -> tuple[str, int | None]:
    """File and line of `launch:`."""
    name, _, number = text.rpartition(":")
    return (name, int(number)) if name and number.isdecimal() and len(number) <= DIGITS else (text, None)


def _stands_at(file: SourceFile, line: LaunchLine, number: int | None) -> bool:
    first, last = file.source.place(line.span.start).line, file.source.place(line.span.end).line
    return number is None or first <= number <= last


def _model(
    paths: Paths, run: Run, model: object, setting: Setting | None, folder: Path
) -> tuple[Run, ModelSummary | None]:
    """What is known of the model: from a config.json, the cache of the hub or the table of well-known models."""
    if isinstance(model, dict):
        return run, model_summary(run.name, {key: _stated(value) for key, value in model.items()}, stated=True)
    if setting is None or not setting.value or "\n" in setting.value:
        return run, None
    file = open_model(setting.value, folder, paths.files)
    if file is None:
        return with_missing(run, setting), None
    return run, model_summary(setting.value, file.data())


def _stated(value: Any) -> Any:
    """A fact of a model as it is meant: YAML reads ``7e9`` as text and ``7.0e9`` as a fraction."""
    number = yaml_number(value)
    return int(number) if isinstance(number, float) and number.is_integer() else number


def _spec_arguments(entry: ExpandedRun, sources: Mapping[int, SourceFile]) -> dict[str, Setting]:
    """The script's options as `arguments:` of a spec states them."""
    given = entry.data.get("arguments")
    written = entry.where(("arguments",))
    words = []
    for index, value in enumerate(given if isinstance(given, list) else ()):
        node = written.document.get((*written.path, index))
        words.append(Word(str(value), str(value), node.span if node is not None else Span(0, 0)))
    return settings(sources[id(written.document)], read_options(tuple(words)))


def _evidence_in_spec(entry: ExpandedRun, sources: Mapping[int, SourceFile]) -> ReaderEvidence:
    written = entry.where(("consumer",))
    return ReaderEvidence("spec", Origin("file", file=sources[id(written.document)], path=written.path))


def _script_of(entry: ExpandedRun, folder: Path) -> Path | None:
    script = entry.data.get("script")
    return folder / script if isinstance(script, str) and script and "\n" not in script else None


def with_specified_consumer(run: Run, specified: Sequence[Run]) -> Run:
    """The run of a launch line, read by whom the specs name that start the same script with a config of its own."""
    said = [item for item in specified if _same_job(item, run)]
    if not said or any(item.consumer != said[0].consumer for item in said):
        return run
    return with_consumer(run, said[0].consumer, said[0].reader_evidence)


def _same_job(spec: Run, run: Run) -> bool:
    own = {id(original(file)) for file in (run.accelerate, run.deepspeed, run.recipe) if file is not None}
    if not any(file and id(original(file)) in own for file in (spec.accelerate, spec.deepspeed, spec.recipe)):
        return False
    if spec.entry_point is None or run.entry_point is None:
        script = run.launch.script if run.launch is not None else None
        return spec.entry_point is None or script is None or Path(script.value or "").name == spec.entry_point.name
    return disk.real(spec.entry_point) == disk.real(run.entry_point)
