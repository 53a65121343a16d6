"""The runs of a repository, inferred from its launch lines, configs and scripts, for ``zerocfg init``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from zerocfg.budgets import DRAFTED_RUNS
from zerocfg.frontends.registry import front_end
from zerocfg.hardware.catalogue import CPU, LARGEST_COUNT
from zerocfg.resolve.engine.engine_selection import reaches_the_job
from zerocfg.resolve.init.draft import Draft, How, run_name, with_unique_names, without_duplicates
from zerocfg.resolve.init.hardware_words import asked_hardware
from zerocfg.resolve.init.repository import SEEN, calls_of, model_configs, nearest, scripts
from zerocfg.resolve.line_arguments import lacking_configs, line_arguments
from zerocfg.run.discover import Files
from zerocfg.run.hub import CONFIG, find_config, is_hub_name
from zerocfg.run.kinds import sniff
from zerocfg.run.link import find_runs
from zerocfg.run.linking.entry_point import script_names
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.model_source import open_model
from zerocfg.run.reader import TRL_KEYS
from zerocfg.source.disk import is_file
from zerocfg.source.paths import relative
from zerocfg.source.secrets import secret_words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.source.launch.line import Word

FILES = ("script", "recipe", "accelerate", "deepspeed")


def draft_runs(
    folder: Path, given: Mapping[str, Any], probe: Callable[[], HardwareProfile], files: Files | None = None
) -> list[Draft]:
    """The runs of a repository; ``given`` are keys of a run that the user states. Empty when there is nothing to go by.

    Naming a script or a config asks for one run with it. ``files``: what was read of the repository before.
    """
    stated = {key: value for key, value in given.items() if value is not None}
    return _Guesser(folder.resolve(), stated, probe, files or Files()).runs()


class _Guesser:
    def __init__(
        self, folder: Path, given: Mapping[str, Any], probe: Callable[[], HardwareProfile], files: Files
    ) -> None:
        self.folder = folder
        self.given = given
        self.probe = probe
        self.here: HardwareProfile | None = None
        self.found: list[Run] = []
        self.files = files
        self.scripts = dict(scripts(folder))
        self.models = [path for path in model_configs(folder) if self._is_model(path)]

    def runs(self) -> list[Draft]:
        """One draft for each launch line; without any, for what recipes, scripts and configs there are."""
        found, _ = find_runs([self.folder], self.files, root=self.folder, skip=_is_own)
        self.found = found
        if any(key in self.given for key in FILES):
            drafts = [self._alone(found, None)]
        else:
            lines = [run for run in found if run.launch is not None]
            real = [run for run in lines if run.launch_file and not run.launch_file.name.endswith(".md")]
            drafts = self._from_lines(real) or self._from_lines(lines) or self._from_files(found)
        return with_unique_names(without_duplicates(drafts)[:DRAFTED_RUNS])

    # -- from a launch line ------------------------------------------------------------------------------------

    def _from_lines(self, runs: Iterable[Run]) -> list[Draft]:
        return [draft for run in runs if (draft := self._from_line(run)) is not None]

    def _from_line(self, run: Run) -> Draft | None:
        line, file = run.launch, run.launch_file
        assert line is not None and file is not None
        if line.script is None or line.script.value is None or front_end(run.consumer) is not None:
            return None  # a framework with recipes of its own is started by its own program
        where = f"{_short_name(file, self.folder)}:{file.source.place(line.span.start).line}"
        names = script_names(line)
        named = names[0] if names else line.script.value
        script = next(filter(None, (self._near(name, file, line.directory) for name in names)), None)
        if script is None and (line.launcher == "python" or not named.endswith(".py")):
            return None
        draft = Draft(run_name(Path(file.name).stem, script or Path(named), self.folder))
        self._take_given(draft)
        if script is not None:
            draft.add("script", self._relative(script), "found", where)
        else:
            draft.add("script", named, "open", f"{where} names it, but it is not there: correct the path")
        draft.add("launch", where, "found", "its launcher options and arguments count")
        draft.started = repr([(option.name, option.value and option.value.text) for option in line.options])
        draft.started += repr([word.text for word in line.arguments])
        self._take_sources(draft, run, where)
        self._take_lacking_configs(draft, run, where)
        self._take_consumer(draft, run, script, where)
        self._take_arguments(draft, run, where)
        if line.launcher in ("torchrun", "deepspeed") and draft.value("consumer") != "accelerate":
            own = draft.value("consumer") == "deepspeed"
            # A Trainer gets a DeepSpeed config from its recipe or from accelerate launch.
            if line.launcher != "torchrun" if own else draft.value("recipe"):
                draft.add("launcher", line.launcher, "found", where)
        self._finish(draft, run)
        return draft

    def _take_sources(self, draft: Draft, run: Run, where: str) -> None:
        if run.accelerate is not None and not _by_its_script(run, run.accelerate):
            draft.add("accelerate", self._name(run.accelerate), "found", where)
        if run.recipe is not None and not _by_its_script(run, run.recipe):
            draft.add("recipe", self._name(run.recipe), "found", where)
        accelerate = run.accelerate.data() if run.accelerate else None
        accelerate = accelerate if isinstance(accelerate, dict) else {}
        section = accelerate.get("deepspeed_config")
        inside = section.get("deepspeed_config_file") if isinstance(section, dict) else None
        named = Path(str(inside)).name if inside is not None else None
        own = run.deepspeed is not None and not _by_its_script(run, run.deepspeed)
        used = run.effective.value("engine") not in ("ddp", "single", "fsdp")
        if run.deepspeed is not None and own and not used:
            draft.remarks.append(f"{where} names {run.deepspeed.name} and starts without DeepSpeed")
        elif run.deepspeed is not None and own and named != Path(run.deepspeed.name).name:
            draft.add("deepspeed", self._name(run.deepspeed), "found", where)
        for engine in ("deepspeed", "fsdp"):
            if f"use_{engine}" in run.flags and run.accelerate is None:
                draft.add("engine", engine, "found", f"{where} says --use_{engine}")
        if run.launch is None or run.launch.launcher != "accelerate":
            return
        lost = sorted(f"--{name}" for name in run.flags if not reaches_the_job(name))
        if lost:
            draft.remarks.append(f"{where} passes {', '.join(lost)} to its launcher, which launch.sh does not")

    def _take_lacking_configs(self, draft: Draft, run: Run, where: str) -> None:
        """A config that the line names and nobody can tell: the nearest one of its kind, to be checked."""
        for key, option in lacking_configs(run):
            text = f"{where} says {option.name} {option.value.text if option.value is not None else ''}"
            named = [item.accelerate if key == "accelerate" else item.deepspeed for item in self.found]
            paths = sorted({file.path.resolve() for file in named if file is not None and file.path is not None})
            assert run.launch_file is not None
            called = _config_name(option.value)
            of_that_name = [path for path in paths if path.name == called]
            paths = of_that_name or paths
            near = nearest(run.launch_file.path.resolve().parent, paths) if run.launch_file.path is not None else paths
            if len(of_that_name) == 1:
                draft.add(key, self._relative(near[0]), "guessed", f"{text}: the only {called} here; is it that one?")
            elif near:
                draft.add(key, self._relative(near[0]), "guessed", f"{text}: the nearest one; which is it?")
            else:
                draft.add(key, None, "open", f"{text}: which file is it?", "config.json")

    def _take_arguments(self, draft: Draft, run: Run, where: str) -> None:
        """The script's arguments where the line does not tell them; else the line stands for them."""
        recipe = draft.value("recipe")
        words = line_arguments(run, draft.value("consumer"), recipe if isinstance(recipe, str) else None)
        secrets = secret_words([word.text for word in words])
        for index, secret in secrets.items():
            option = secret.before.rstrip("=") or (words[index - 1].text if index else "")
            draft.remarks.append(f"{where} passes a secret ({option}): launch.sh takes it from ${secret.variable}")
        if all(word.known for word in words):
            return
        unknown = [word.text for word in words if not word.known]
        kept = [word.text for index, word in enumerate(words) if index not in secrets and index + 1 not in secrets]
        draft.add("arguments", kept, "open", f"{where}; fill in {', '.join(unknown)}")

    def _near(self, text: str, file: SourceFile, directory: str | None) -> Path | None:
        """A file that a launch line names: below its `cd`, the root, or the folders from the line's file upwards."""
        bases = [self.folder]
        if file.path is not None:
            around = [file.path.resolve().parent, *file.path.resolve().parent.parents]
            bases += [base for base in around if base.is_relative_to(self.folder)]
        if directory:
            bases = [base / directory for base in bases] + bases
        for base in bases:
            try:
                if is_file(base / text):
                    return base / text
            except (OSError, ValueError):
                return None
        return None

    # -- from configs and scripts ------------------------------------------------------------------------------

    def _from_files(self, found: Sequence[Run]) -> list[Draft]:
        """One run for each recipe; without any for each training script; else for what configs there are."""
        recipes = [run.recipe for run in found if run.launch is None and run.recipe is not None]
        if recipes:
            return [self._alone(found, recipe) for recipe in recipes]
        if self.scripts:
            return [self._alone(found, None, script) for script in list(self.scripts)[:DRAFTED_RUNS]]
        return [self._alone(found, None)] if any(run.accelerate or run.deepspeed for run in found) else []

    def _alone(self, found: Sequence[Run], recipe: SourceFile | None, script: Path | None = None) -> Draft:
        around = recipe.path.resolve().parent if recipe and recipe.path else script.parent if script else self.folder
        stem = Path(recipe.name).stem if recipe else script.stem if script else ""
        draft = Draft(run_name(stem, (around / stem) if stem else None, self.folder))
        self._take_given(draft)
        if recipe is not None:
            draft.add("recipe", self._name(recipe), "found", "TrainingArguments")
        elif "recipe" not in self.given and "script" not in self.given and script is None:
            self._nearest(draft, "recipe", [run.recipe for run in found if run.recipe], around)
        self._nearest(draft, "accelerate", [run.accelerate for run in found if run.accelerate], around)
        run = next(
            (run for run in found if run.accelerate and self._name(run.accelerate) == draft.value("accelerate")), None
        )
        linked = run is not None and run.deepspeed is not None
        if not linked and not self._says_stage(run):
            self._nearest(draft, "deepspeed", [run.deepspeed for run in found if run.deepspeed], around)
        if script is None and "script" not in draft.guesses:
            script = self._script_for(draft, around)
        if script is not None:
            note = "the only training script here" if len(self.scripts) == 1 else "the nearest training script"
            draft.add("script", self._relative(script), "found" if len(self.scripts) == 1 else "guessed", note)
        elif "script" in self.given:
            script = self.folder / str(self.given["script"])
        else:
            draft.add("script", "train.py", "open", "fill in: the Python script that trains")
        own = next((item for item in found if recipe is not None and item.recipe is recipe), run)
        self._take_consumer(draft, own or Run("none"), script, "")
        self._finish(draft, run)
        return draft

    def _says_stage(self, run: Run | None) -> bool:
        data = run.accelerate.data() if run is not None and run.accelerate is not None else None
        return isinstance(data, dict) and data.get("distributed_type") not in (None, "NO", "MULTI_GPU", False)

    def _nearest(self, draft: Draft, key: str, files: Iterable[SourceFile], around: Path) -> None:
        """The nearest file of a kind; where several are equally near, the first, with the others in its note."""
        paths = sorted({file.path.resolve() for file in files if file.path is not None})
        near = nearest(around, paths)
        if near:
            others = ", ".join(self._relative(path) for path in near[1:4])
            note = f"one of several; others: {others}" if others else f"the only one{' near' if len(paths) > 1 else ''}"
            draft.add(key, self._relative(near[0]), "guessed" if others else "found", note)

    def _script_for(self, draft: Draft, around: Path) -> Path | None:
        near = nearest(around, list(self.scripts))
        words = draft.name.lower().replace("_", "-").split("-")
        named = [path for path in near if any(word in path.stem.lower() for word in words if len(word) > 2)]
        return next(iter(named or near), None)

    # -- what all runs need ------------------------------------------------------------------------------------

    def _take_given(self, draft: Draft) -> None:
        for key, value in self.given.items():
            if key != "name":
                draft.add(key, value, "given", "given")
            if key in FILES and not is_file(self.folder / str(value)):
                draft.remarks.append(f"there is no file {value} in the folder of this spec yet, which `{key}` names")
        if "name" in self.given:
            draft.name = str(self.given["name"])

    def _take_consumer(self, draft: Draft, run: Run, script: Path | None, where: str) -> None:
        calls = self.scripts.get(script.resolve()) if script is not None else None
        if calls is None and script is not None:
            calls = calls_of(script)
        recipe = self._data(draft.value("recipe"))
        trl = isinstance(recipe, dict) and bool(TRL_KEYS & set(recipe))
        if calls is not None and script is not None:
            draft.add("consumer", calls, "found", f"{script.name} {SEEN[calls]}")
        elif run.consumer is not None and front_end(run.consumer) is None:
            draft.add("consumer", run.consumer, "found", where or "its files")
        elif recipe is not None:
            draft.add("consumer", "trl" if trl else "transformers", "guessed", "by the keys of the recipe")
        else:
            launched = run.launch is not None and run.launch.launcher == "accelerate"
            guess = "accelerate" if launched or draft.value("accelerate") else "transformers"
            draft.add("consumer", guess, "guessed", "nothing tells who reads the config: deepspeed, accelerate, ...?")

    def _finish(self, draft: Draft, run: Run | None) -> None:
        self._take_model(draft, run)
        self._take_hardware(draft, run)
        recipe = self._data(draft.value("recipe"))
        if isinstance(recipe, dict):
            for key in ("deepspeed", "fsdp"):
                if recipe.get(key):
                    draft.remarks.append(
                        f"{draft.value('recipe')} sets `{key}` itself: take it out, the emitted config brings it"
                    )
        trl = draft.value("consumer") == "trl"
        if not trl or not isinstance(recipe, dict) or "max_length" not in recipe:
            draft.add(
                "sequence_length", None, "open", "tokens of a sample; memory and time are predicted for it", "2048"
            )
        if self._counts_epochs(draft, recipe):
            draft.add("train_samples", None, "open", "the schedule needs the number of steps", "50000")

    def _counts_epochs(self, draft: Draft, recipe: Any) -> bool:
        """Whether a schedule of DeepSpeed's own needs to know how many steps the epochs are."""
        if isinstance(recipe, dict) and isinstance(recipe.get("max_steps"), int) and recipe["max_steps"] > 0:
            return False
        config = self._data(draft.value("deepspeed"))
        scheduler = config.get("scheduler") if isinstance(config, dict) else None
        params = scheduler.get("params") if isinstance(scheduler, dict) else None
        return isinstance(params, dict) and params.get("total_num_steps") == "auto"

    def _take_model(self, draft: Draft, run: Run | None) -> None:
        recipe = self._data(draft.value("recipe"))
        named = recipe.get("model_name_or_path") if isinstance(recipe, dict) else None
        if run is not None and "model_name_or_path" in run.arguments:
            named = run.arguments["model_name_or_path"].value  # the line beats the recipe
        named = named if isinstance(named, str) else None
        if named is not None and find_config(named, self.folder) is not None:
            path = self.folder / named
            text = f"{named.rstrip('/')}/{CONFIG}" if path.is_dir() else named
            draft.add("model", text, "found", "model_name_or_path" + ("" if path.exists() else ", in the hub's cache"))
            return
        script = draft.value("script")
        around = (self.folder / str(script)).parent if script else self.folder
        near = nearest(around, self.models)
        if near:
            note = "the config.json here" if len(near) == 1 else "one of several config.json"
            if named is not None:
                note += f"; {named} is not in the hub's cache"
            how: How = "found" if len(self.models) == 1 and named is None else "guessed"
            draft.add("model", self._relative(near[0]), how, note)
        elif named is not None and open_model(named, self.folder, self.files) is not None:
            draft.add("model", named, "found", "model_name_or_path, a well-known model")
        elif named is not None and is_hub_name(named):
            note = f"not in the hub's cache yet: hf download {named} {CONFIG}"
            draft.add("model", None, "open", note, named)
        else:
            draft.add("model", None, "open", "path of the model's config.json, or its name on the hub", "org/name")

    def _take_hardware(self, draft: Draft, run: Run | None) -> None:
        if "hardware" in draft.guesses:
            return
        processes = _requested_count(run, "num_processes")
        machines = _requested_count(run, "num_machines") or 1
        each = max(1, processes // machines) if processes else 8
        example = f"{machines}x{each}xA100-80GB" if machines > 1 else f"{each}xA100-80GB"
        asked = asked_hardware(run) if run is not None else None
        if asked is not None:
            draft.add("hardware", asked.name, asked.how, asked.note, asked.example)
            return
        device = self._here().accelerator
        if device is not None and device is not CPU and device.vendor != "cpu":
            draft.add(
                "hardware", "this", "guessed", f"this machine: {self._here().name}; name the one that trains", example
            )
        elif draft.value("accelerate") is not None and processes is not None:
            note = f"which accelerators? {draft.value('accelerate')} starts {processes} processes"
            draft.add("hardware", None, "open", note, example)
        else:
            note = f"this machine, which has no accelerator; name the one that trains, e.g. {example}"
            draft.add(
                "hardware", f"{machines}x{each}xcpu" if machines > 1 else f"{processes or 1}xcpu", "guessed", note
            )

    def _here(self) -> HardwareProfile:
        if self.here is None:
            self.here = self.probe()
        return self.here

    # -- files -------------------------------------------------------------------------------------------------

    def _data(self, name: Any) -> Any:
        if not isinstance(name, str):
            return None
        path = self.folder / name
        return self.files.open(path).data() if is_file(path) else None

    def _is_model(self, path: Path) -> bool:
        return sniff(self.files.open(path).data(), path.name) == "model"

    def _name(self, file: SourceFile) -> str:
        return self._relative(file.path) if file.path is not None else file.name

    def _relative(self, path: Path) -> str:
        return relative(path.resolve(), self.folder)


def _requested_count(run: Run | None, name: str) -> int | None:
    """A count as the launch line requests it (accelerate may start fewer here), else its effective value."""
    if run is None:
        return None
    flag = run.flags.get(name)
    if flag is not None and re.fullmatch(r"[0-9]{1,9}", str(flag.value)) and int(flag.value) <= LARGEST_COUNT:
        return max(1, int(flag.value))
    value = run.effective.value(name)
    return value if isinstance(value, int) and 1 <= value <= LARGEST_COUNT else None


def _config_name(word: Word | None) -> str:
    """The name of the file that a word names, also in a folder that only the shell knows (``"$DIR/ds.json"``)."""
    text = "" if word is None else (word.value or word.text).strip("'\"")
    name = text.rpartition("/")[2]
    return name if re.fullmatch(r"[\w.+@=-]+", name) else ""


def _by_its_script(run: Run, file: SourceFile) -> bool:
    """Whether the launch script writes a config out by itself, so that there is no file to name."""
    return run.launch_file is not None and file.path is not None and file.path == run.launch_file.path


def _short_name(file: SourceFile, folder: Path) -> str:
    path = file.path.resolve() if file.path else None
    return path.relative_to(folder).as_posix() if path is not None and path.is_relative_to(folder) else file.name


def _is_own(file: SourceFile) -> bool:
    """Whether a file is a spec, or lies in a folder that `zerocfg build` wrote."""
    emitted = file.path is not None and (file.path.resolve().parent / "zerocfg.lock").exists()
    return emitted or file.kind == "spec"
