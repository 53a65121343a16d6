"""Which files belong together: launch lines, recipes and accelerate configs point at each other by path.

A path in a config is relative to wherever the job is started, which no file states. It is looked for below the
``cd`` of the launch line, the folder zerocfg was started in, and the folders from the pointing file upwards; the first
that exists is taken, and one that is nowhere is noted in ``Run.missing``.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from zerocfg.catalog.values import yaml_number
from zerocfg.run.discover import Files, launch_lines, walk
from zerocfg.run.effective import read_by, settled
from zerocfg.run.expand import ExpandedRun, expand
from zerocfg.run.hub import find_config
from zerocfg.run.kinds import named_recipe
from zerocfg.run.model import (
    UNKNOWN,
    Consumer,
    Mistaken,
    ModelSummary,
    Origin,
    RecipeReader,
    Route,
    Run,
    Script,
    Setting,
    SourceFile,
    Told,
    consumer_of,
    files_of,
    original,
)
from zerocfg.run.neighbours import NEIGHBOURS, recognise, ships, started_by_line, taken
from zerocfg.run.script.arguments import call_of, filled, stated
from zerocfg.run.script.reading import read_script
from zerocfg.run.siblings import as_siblings
from zerocfg.run.started import started
from zerocfg.run.widths import widths
from zerocfg.source.launch import LaunchLine, Option, Word
from zerocfg.source.launchers import read_options
from zerocfg.source.load import load_as
from zerocfg.source.node import Document
from zerocfg.source.text import Span

MOST_FILES = 20_000
"""Candidates looked at when the partners of single files are searched for; larger trees are cut there."""

_NAMED_IN_CODE: tuple[tuple[str, str, Route], ...] = (
    ("transformers.TrainingArguments", "deepspeed", "trainer"),
    ("transformers.Seq2SeqTrainingArguments", "deepspeed", "trainer"),
    ("deepspeed.initialize", "config", "engine"),
    ("accelerate.DeepSpeedPlugin", "hf_ds_config", "accelerate"),
)
"""Calls that take a DeepSpeed config, their argument, and the way that it goes."""
_READERS: dict[str, RecipeReader] = {"trl": "trl", "transformers": "hf"}
_ROUTES: dict[str, Route] = {"deepspeed": "engine", "accelerate": "accelerate"}

# Options of the Hugging Face Trainer that no other training script is known to have, and some that loops of people's
# own have, too, but not beside per_device_train_batch_size: those of diffusers and of transformers' no_trainer examples
# share num_train_epochs, lr_scheduler_type, gradient_checkpointing and max_grad_norm.
_TRAINERS_ALONE = frozenset(
    "save_strategy eval_strategy evaluation_strategy logging_strategy save_total_limit remove_unused_columns do_train "
    "ddp_find_unused_parameters ddp_timeout load_best_model_at_end group_by_length save_only_model".split()
)
_BESIDE_BATCH_SIZE = frozenset("logging_steps save_steps eval_steps warmup_ratio bf16 fp16 tf32 optim".split())
# Recipe keys of TRL's script, model and trainer configs (beside TrainingArguments' own).
TRL_KEYS = frozenset(
    "dataset_name dataset_config dataset_mixture dataset_train_split attn_implementation torch_dtype dtype "
    "use_peft lora_r max_seq_length max_length packing num_generations max_completion_length max_prompt_length beta "
    "use_vllm reward_funcs chat_template".split()
)


def find_runs(
    paths: Sequence[Path],
    files: Files,
    *,
    root: Path | None = None,
    skip: Callable[[SourceFile], bool] | None = None,
) -> tuple[list[Run], set[int]]:
    """The runs that the given files and folders take part in, and the ids of the source files asked about.

    A folder asks about everything of ours below it. A single file pulls its partners in from the repository around it
    (``root``: the nearest folder upwards that holds ``.git``, else the current one); a script stands for the runs that
    start it. Files to ``skip`` are as if they were not there.
    """
    asked: dict[int, SourceFile] = {}
    single = False
    for path in paths:
        if path.is_dir():
            found: Iterable[SourceFile] = filter(None, map(files.peek, walk(path)))
        else:
            found = [files.open(path)]
            single = True
        asked.update((id(file), file) for file in found)
    pool = dict(asked)
    if single:
        for top in _tops(paths, root):
            for count, path in enumerate(walk(top)):
                if count >= MOST_FILES:
                    break
                partner = files.peek(path)
                if partner is not None:
                    pool.setdefault(id(partner), partner)
    known = [file for file in pool.values() if skip is None or not skip(file)]
    runs = _Linker(files, root or Path.cwd()).runs(known)
    scripts = {os.path.realpath(file.path) for file in asked.values() if file.kind == "script" and file.path}
    wanted = [
        run
        for run in runs
        if any(id(original(file)) in asked for file in files_of(run))
        or (scripts and run.started is not None and os.path.realpath(run.started) in scripts)
    ]
    return [settled(run) for run in wanted], set(asked)


def runs_from_spec(path: Path, files: Files | None = None) -> list[Run]:
    """The runs of one spec file, in its order. The paths in it are relative to its folder."""
    files = files or Files()
    return [settled(run) for run in _Linker(files, path.resolve().parent)._from_spec(files.open(path))]


def run_of_file(path: Path, files: Files) -> Run | None:
    """The run that one config file makes with what it points at; None where it is no config."""
    run = _Linker(files, Path.cwd())._alone(files.open(path))
    return settled(run) if run is not None else None


def _tops(paths: Sequence[Path], root: Path | None) -> list[Path]:
    tops = []
    for path in paths:
        if path.is_dir():
            continue
        folder = path.resolve().parent
        top = root or next((above for above in (folder, *folder.parents) if (above / ".git").exists()), None)
        if top is None:
            cwd = Path.cwd()
            top = cwd if folder.is_relative_to(cwd) and cwd != Path.home() else folder
        if top not in tops:
            tops.append(top)
    return tops


class _Linker:
    def __init__(self, files: Files, root: Path) -> None:
        self.files = files
        self.root = root
        self.rereads: dict[int, SourceFile] = {}

    def runs(self, pool: list[SourceFile]) -> list[Run]:
        runs: list[Run] = []
        for file in pool:
            if file.kind == "spec":
                runs += self._from_spec(file)
        specified = [run for run in runs if run.told is not None]
        for file in pool:
            if file.kind == "launch":
                lines = [run for line in launch_lines(file) if (run := self._from_line(file, line)) is not None]
                runs += [_as_specified(run, specified) for run in lines] if specified else lines
        used = {id(original(file)) for run in runs for file in run.files}
        for kind in ("accelerate", "recipe", "neighbour", "deepspeed", "other"):
            for file in pool:
                if id(file) in used or file.kind != kind:
                    continue
                run = self._alone(file)
                if run is None:
                    continue
                runs.append(self._with_code(as_siblings(run, runs, self.root)) if kind == "recipe" else run)
                used |= {id(original(one)) for one in run.files}
        return runs

    # -- one file by itself, with what it points at ------------------------------------------------------------

    def _alone(self, file: SourceFile) -> Run | None:
        if file.kind == "accelerate":
            return self._with_accelerate(Run(file.name), file, [])
        if file.kind == "recipe":
            run = self._with_recipe(Run(file.name), file, [])
            read = run.deepspeed is not None or isinstance(_get(file, "deepspeed"), dict)
            return replace(run, consumer="transformers") if read else run
        if file.kind == "neighbour":
            run = _of_neighbour(Run(file.name), None, file)
            return self._with_deepspeed(run, run.arguments.get("deepspeed"), self._around(file), "trainer")
        if file.kind != "deepspeed":
            return None
        written_as_json = file.source.text.lstrip().startswith("{")
        return Run(file.name, deepspeed=self._as_json(file) if written_as_json else file)

    # -- a launch line ------------------------------------------------------------------------------------------

    def _from_line(self, file: SourceFile, line: LaunchLine) -> Run | None:
        number = file.source.place(line.span.start).line
        environment = {
            name: Setting(UNKNOWN if value is None else value, Origin("environment", name, file, (), line.span))
            for name, value in line.environment.items()
        }
        run = Run(
            f"{file.name}:{number}",
            launch=line,
            launch_file=file,
            flags=_settings(file, line.options),
            arguments=_settings(file, line.script_options),
            environment=environment,
        )
        bases = self._bases(file, line)
        run = replace(run, started=started(line, bases))
        if line.launcher == "accelerate":
            run, accelerate = self._followed(run, run.flags.get("config_file"), bases)
            if accelerate is not None and accelerate.kind in ("deepspeed", "recipe", "neighbour"):
                run = _mistakes(run, accelerate, "accelerate", run.flags["config_file"].origin)
            elif accelerate is not None:
                run = self._with_accelerate(run, accelerate, bases)
            run = self._with_deepspeed(run, run.flags.get("deepspeed_config_file"), bases, "accelerate")
        run = self._with_script(run, line, bases)
        files = run.accelerate or run.deepspeed or run.recipe or run.neighbour or run.missing or run.mistaken
        return run if files or line.launcher == "accelerate" or run.consumer is not None else None

    def _with_script(self, run: Run, line: LaunchLine, bases: list[Path]) -> Run:
        arguments = run.arguments
        own = started_by_line(line, arguments)
        head = line.arguments[0] if line.arguments else None
        if head is not None and (head.value or "").endswith((".yaml", ".yml", ".json")):
            named = self._find(Setting(head.value, Origin("flag", file=run.launch_file, span=head.span)), bases)
            if named is not None and (own is not None or named.kind == "neighbour"):
                run = _of_neighbour(run, own, named)
                bases = bases + self._around(named)
        elif own is not None:
            run = taken(run, own)
        if run.consumer in NEIGHBOURS:
            return self._with_deepspeed(run, run.arguments.get("deepspeed"), bases, "trainer")
        config = self._find(arguments.get("config"), bases)
        recipe = self._as_recipe(config, whole=True) if config is not None else None
        if recipe is not None:
            run = replace(self._with_recipe(run, recipe, bases), recipe_reader="trl")
        elif config is not None and config.document is not None and config.document.root is None:
            run = replace(run, unread=(config,))
        elif line.arguments and (first := line.arguments[0].value) and first.endswith((".yaml", ".yml", ".json")):
            place = Origin("flag", file=run.launch_file, span=line.arguments[0].span)
            said, alone = Setting(first, place), len(line.arguments) == 1
            config = self._find(said, bases)
            if config is not None and (recipe := self._as_recipe(config)) is not None:
                # a script that takes options beside its file has a parser of its own, and nobody knows how it converts
                run = replace(self._with_recipe(run, recipe, bases), recipe_reader="hf" if alone else None)
            elif config is None and alone and not first.endswith(".json"):
                run = _lacks(run, said)
        run = replace(run, script=self._script(run.started))
        run = self._with_code(run)
        trainer = run.arguments.get("deepspeed")
        if trainer is not None and trainer.value is not True:
            run = self._with_deepspeed(run, trainer, bases, "trainer")
        if run.deepspeed is None:
            run = self._with_deepspeed(run, arguments.get("deepspeed_config"), bases, "engine")
        if run.deepspeed is None and run.script is not None:
            run = self._with_config_of(run, run.script, arguments, bases)
        return replace(run, consumer=_consumer(run))

    def _with_config_of(self, run: Run, script: Script, line: Mapping[str, Setting], bases: list[Path]) -> Run:
        """The run with the DeepSpeed config that its code names, or holds as a dict."""
        for name, argument, route in _NAMED_IN_CODE:
            call = call_of(script, name)
            if call is None:
                continue
            if call.config is not None:
                return replace(run, deepspeed=call.config, deepspeed_route=route)
            setting = filled(call.arguments[argument], line) if argument in call.arguments else None
            if setting is not None and isinstance(setting.value, str):
                around = self._around(script.file)
                return self._with_deepspeed(run, setting, [*bases, *around], route)
        return run

    def _script(self, path: Path | None) -> Script | None:
        """What the code says that a run starts, where that is a Python file."""
        if path is None or path.suffix != ".py":
            return None
        try:
            path, root = path.resolve(), self.root.resolve()
            return read_script(path, self.files.open, root if path.is_relative_to(root) else path.parent)
        except (OSError, ValueError):
            return None

    def _with_code(self, run: Run) -> Run:
        """The run with the training arguments that the code of its script states."""
        script = run.script
        if script is None or script.reader not in ("transformers", "trl"):
            return run
        found = stated(script, run.arguments)
        return replace(run, arguments=found.arguments, arguments_whole=found.whole)

    # -- a spec -------------------------------------------------------------------------------------------------

    def _from_spec(self, file: SourceFile) -> list[Run]:
        if file.document is None:
            return [Run(file.name, spec=file)]
        sources = {id(file.document): file}

        def open_file(path: Path) -> Document | None:
            other = self.files.open(path) if path.is_file() else None
            if other is None or other.document is None:
                return None
            sources[id(other.document)] = other
            return other.document

        folder = file.path.resolve().parent if file.path else self.root
        expanded = expand(file.document, folder, open_file)
        runs = [self._spec_run(file, entry, folder, sources) for entry in expanded.runs] or [Run(file.name, spec=file)]
        troubles = []
        for trouble in expanded.troubles:
            where = trouble.where
            origin = Origin("file", "key" if trouble.at_key else "", sources[id(where.document)], where.path)
            troubles.append((origin, trouble.message, trouble.help))
        return [replace(runs[0], troubles=tuple(troubles)), *runs[1:]]

    def _spec_run(self, file: SourceFile, entry: ExpandedRun, folder: Path, sources: Mapping[int, SourceFile]) -> Run:
        run = Run(entry.name, spec=file)
        bases = [folder]

        def setting(key: str) -> Setting | None:
            value = entry.data.get(key)
            if not isinstance(value, str):
                return None
            written = entry.where((key,))
            return Setting(value, Origin("file", file=sources[id(written.document)], path=written.path))

        run, accelerate = self._followed(run, setting("accelerate"), bases)
        run, recipe = self._followed(run, setting("recipe"), bases)
        run, deepspeed = self._followed(run, setting("deepspeed"), bases)
        if accelerate is not None:
            run = self._with_accelerate(run, accelerate, bases)
        if recipe is not None:
            run = self._with_recipe(run, recipe, bases)
        route = run.deepspeed_route
        if deepspeed is not None:
            run, route = replace(run, deepspeed=self._as_json(deepspeed)), route or "trainer"
        consumer = consumer_of(entry.data.get("consumer"))
        run, summary = self._model(run, entry.data.get("model"), setting("model"), folder)
        versions = entry.data.get("versions")
        return replace(
            run,
            consumer=consumer or run.consumer,
            told=_told_by_spec(entry, sources) if consumer else None,
            started=_script_of(entry, folder),
            recipe_reader=_READERS.get(str(consumer)),
            deepspeed_route=_ROUTES.get(str(consumer), route) if route == "trainer" else route,
            model=summary,
            arguments=_spec_arguments(entry, sources),
            versions={str(key): str(value) for key, value in versions.items()} if isinstance(versions, dict) else {},
        )

    def _model(self, run: Run, model: object, setting: Setting | None, folder: Path) -> tuple[Run, ModelSummary | None]:
        """What is known of the model, whose config.json may lie in the cache of the hub."""
        if isinstance(model, dict):
            return run, model_summary(run.name, {key: _stated(value) for key, value in model.items()}, stated=True)
        if setting is None or not setting.value or "\n" in setting.value:
            return run, None
        path = find_config(setting.value, folder)
        if path is None:
            return _lacks(run, setting), None
        return run, model_summary(setting.value, self.files.open(path).data())

    # -- following paths ----------------------------------------------------------------------------------------

    def _with_accelerate(self, run: Run, file: SourceFile, bases: list[Path]) -> Run:
        run = replace(run, accelerate=file)
        section = _get(file, "deepspeed_config")
        value = section.get("deepspeed_config_file") if isinstance(section, dict) else None
        if isinstance(value, (str, int, float)) and value != "none":
            place = Origin("file", file=file, path=("deepspeed_config", "deepspeed_config_file"))
            return self._with_deepspeed(run, Setting(str(value), place), bases + self._around(file), "accelerate")
        return run

    def _with_recipe(self, run: Run, file: SourceFile, bases: list[Path]) -> Run:
        run = replace(run, recipe=file)
        value = _get(file, "deepspeed")
        if isinstance(value, str) and value.endswith((".json", ".hjson", ".yaml", ".yml")):
            place = Origin("file", file=file, path=("deepspeed",))
            return self._with_deepspeed(run, Setting(value, place), bases + self._around(file), "trainer")
        return run

    def _with_deepspeed(self, run: Run, setting: Setting | None, bases: list[Path], route: Route) -> Run:
        run, file = self._followed(run, setting, bases)
        if file is None or setting is None:
            return run
        if file.kind in ("accelerate", "recipe", "neighbour"):
            return _mistakes(run, file, "deepspeed", setting.origin)
        return replace(run, deepspeed=self._as_json(file), deepspeed_route=route)

    def _bases(self, file: SourceFile, line: LaunchLine) -> list[Path]:
        around = self._around(file)
        if line.directory:
            around = [base / line.directory for base in around] + around
        return around

    def _around(self, file: SourceFile) -> list[Path]:
        bases = [self.root]
        if file.path is not None:
            folder = file.path.resolve().parent
            bases.append(folder)
            if folder.is_relative_to(self.root):
                bases += [above for above in folder.parents if above.is_relative_to(self.root)]
            else:
                bases += list(folder.parents)[:4]
        return bases

    def _followed(self, run: Run, setting: Setting | None, bases: list[Path]) -> tuple[Run, SourceFile | None]:
        """The file that a setting names; the run lacks one that is nowhere."""
        file = self._find(setting, bases)
        if file is not None or setting is None or not _is_path(setting.value) or ships(run.consumer, setting.value):
            return run, file
        from zerocfg.run.written import made_before  # few lines name a file that is not there

        return (run if made_before(run, setting.value) else _lacks(run, setting)), None

    def _find(self, setting: Setting | None, bases: list[Path]) -> SourceFile | None:
        if setting is None or not _is_path(setting.value):
            return None
        for base in bases:
            try:
                path = base / setting.value
                if path.is_file():
                    return self.files.open(path)
            except (OSError, ValueError):
                continue
        return None

    def _as_recipe(self, file: SourceFile, *, whole: bool = False) -> SourceFile | None:
        """The file as a recipe, where it is one or where being named in a recipe's place is enough to tell.

        ``whole``: other programs read a file from this place, too, so nothing else may stand in it.
        """
        known = file.kind == "other" and named_recipe(file.data(), TRL_KEYS, 1.0 if whole else 0.5)
        if not known:
            return file if file.kind == "recipe" else None
        again = self.rereads.get(id(file))
        if again is None:
            again = SourceFile(file.name, "recipe", file.source, file.document, file.path, file)
            self.rereads[id(file)] = again
        return again

    def _as_json(self, file: SourceFile) -> SourceFile:
        """A DeepSpeed config is read as JSON whatever its name says."""
        if file.document is None or file.document.format == "json":
            return file
        again = self.rereads.get(id(file))
        if again is None:
            again = SourceFile(file.name, "deepspeed", file.source, load_as(file.source, "json"), file.path, file)
            self.rereads[id(file)] = again
        return again


def _of_neighbour(run: Run, starts: Consumer | None, recipe: SourceFile) -> Run:
    """The run with a recipe of a framework, which its program tells (``starts``) or else the recipe's keys."""
    data = recipe.data()
    consumer = starts or (recognise(data) if isinstance(data, dict) else None)
    return run if consumer is None else taken(run, consumer, recipe)


def _is_path(value: object) -> bool:
    """Whether a value may name a file; a config written out in place of its path does not."""
    return isinstance(value, str) and bool(value) and "\n" not in value and not value.lstrip().startswith("{")


def _mistakes(run: Run, file: SourceFile, wanted: Literal["accelerate", "deepspeed"], named: Origin) -> Run:
    return replace(run, mistaken=(*run.mistaken, Mistaken(file, wanted, named)))


def _lacks(run: Run, setting: Setting) -> Run:
    return replace(run, missing=(*run.missing, replace(setting.origin, note=setting.value)))


def model_summary(name: str, config: Any, *, stated: bool = False) -> ModelSummary | None:
    """The sizes that autos need, from a Hugging Face ``config.json`` or, ``stated``, from facts written into a spec.

    Facts say less than a config: what is not stated is not known, and no default of a class is taken for it.
    """
    if not isinstance(config, dict):
        return None
    kind, text, parameters = config.get("model_type"), config.get("text_config"), config.get("parameters")
    found = widths({key: value for key, value in config.items() if not (stated and key == "model_type")})
    return ModelSummary(
        name,
        model_type=kind if isinstance(kind, str) else None,
        parameters=int(parameters) if isinstance(parameters, (int, float)) and abs(parameters) < 1e18 else None,
        hidden_size=found.own,
        text_hidden_size=found.text,
        max_hidden_sizes=found.widest,
        width_known=found.known,
        dtype=_dtype(config) or _dtype(text),
    )


def _dtype(config: Any) -> str | None:
    """The dtype that weights were saved in, under its name of today or the one before."""
    found = config.get("dtype") or config.get("torch_dtype") if isinstance(config, dict) else None
    return found if isinstance(found, str) else None


def _get(file: SourceFile, key: str) -> Any:
    data = file.data()
    return data.get(key) if isinstance(data, dict) else None


def _settings(file: SourceFile, options: Sequence[Option]) -> dict[str, Setting]:
    """Options by name, dashes stripped and ``-`` read as ``_``; a bare flag is True; the last of a name wins."""
    found: dict[str, Setting] = {}
    for option in options:
        name = option.name.lstrip("-").replace("-", "_")
        value: Any = True
        if option.value is not None:
            value = UNKNOWN if option.value.value is None else option.value.value
        found[name] = Setting(value, Origin("flag", option.name, file, (), option.span))
    return found


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
    return _settings(sources[id(written.document)], read_options(tuple(words)))


def _told_by_spec(entry: ExpandedRun, sources: Mapping[int, SourceFile]) -> Told:
    written = entry.where(("consumer",))
    return Told("spec", Origin("file", file=sources[id(written.document)], path=written.path))


def _script_of(entry: ExpandedRun, folder: Path) -> Path | None:
    script = entry.data.get("script")
    return folder / script if isinstance(script, str) and script and "\n" not in script else None


def _as_specified(run: Run, specified: Sequence[Run]) -> Run:
    """The run of a launch line, read by whom the specs name that start the same script with a config of its own."""
    said = [one for one in specified if _same_job(one, run)]
    if not said or any(one.consumer != said[0].consumer for one in said):
        return run
    return read_by(run, said[0].consumer, said[0].told)


def _same_job(spec: Run, run: Run) -> bool:
    own = {id(original(file)) for file in (run.accelerate, run.deepspeed, run.recipe) if file is not None}
    if not any(file and id(original(file)) in own for file in (spec.accelerate, spec.deepspeed, spec.recipe)):
        return False
    if spec.started is None or run.started is None:
        script = run.launch.script if run.launch is not None else None
        return spec.started is None or script is None or Path(script.value or "").name == spec.started.name
    return os.path.realpath(spec.started) == os.path.realpath(run.started)


def _consumer(run: Run) -> Consumer | None:
    """Who reads the config in the end, when the files tell; None when they do not."""
    if run.script is not None and (run.script.reader or run.script.foreign):
        return run.script.reader
    arguments = run.arguments
    if run.deepspeed_route == "engine":
        return "deepspeed"
    if run.recipe is not None and run.recipe_reader == "trl":
        keys = run.recipe.data()
        return "trl" if isinstance(keys, dict) and TRL_KEYS & set(keys) else "transformers"
    understood = run.script is not None and run.script.understood
    if run.deepspeed_route == "trainer" or (run.recipe is not None and (run.recipe_reader or not understood)):
        return "transformers"
    if run.script is not None and run.script.options is not None and not run.script.parsed:
        return None  # options are a guess for scripts whose parser nobody can read
    sized = "per_device_train_batch_size" in arguments
    if _TRAINERS_ALONE & set(arguments) or (sized and _BESIDE_BATCH_SIZE & set(arguments)):
        return "transformers"
    return None
