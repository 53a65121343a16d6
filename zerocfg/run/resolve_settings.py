"""The effective settings of a run: what the training process finally gets, each value with its origin.

:func:`resolve_settings` follows the path of the run's consumer: launcher -> DeepSpeedPlugin -> Trainer -> prepare() ->
engine, one module a stage. What a library will refuse on the way becomes a Failure; what nobody can know from the
files (a value set in the script, a shell variable) stays UNKNOWN and refuses nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.frontends.registry import front_end
from zerocfg.record import replace
from zerocfg.run.config import Config, NotAMappingError, default_of, describe, product
from zerocfg.run.consumers import consumer_of
from zerocfg.run.lowered import with_front_end
from zerocfg.run.model import (
    UNKNOWN,
    Effective,
    Failure,
    Ignored,
    Origin,
    Phase,
    ReaderEvidence,
    Run,
    Setting,
    may_be_quoted,
)
from zerocfg.run.script import accelerator
from zerocfg.run.stages import batches, engine
from zerocfg.run.stages.admitted import admitted_of
from zerocfg.run.stages.arguments import Arguments, arguments_of, recipe_environment
from zerocfg.run.stages.fsdp import PARALLEL, parallel_sizes, plugin_settings
from zerocfg.run.stages.parser import parser_of
from zerocfg.run.stages.plugin import Environment, Plugin, build, look_at_stage, set_mixed_precision
from zerocfg.run.stages.prepare import Prepared, prepare, text_batches
from zerocfg.run.stages.process_counts import launch_of
from zerocfg.run.stages.trainer import Matching, both_precisions, finalize, process, refused_arguments
from zerocfg.run.templates import opened_by_script, plain_or_unknown

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.run.model import Consumer, Route
    from zerocfg.run.stages.namespace import Launch
    from zerocfg.source.node import Path

MICRO, STEPS, TRAIN = batches.MICRO, batches.STEPS, batches.TRAIN


def resolve_settings(run: Run) -> Effective:
    """The settings, exported variables, predicted failures and ignored values of a run. Never raises for bad input."""
    return _Resolution(run).walk()


def divides_ranks(run: Run) -> bool:
    """Whether options tell the script to split its model over ranks by itself, as Megatron's do."""
    return any(name.endswith(("model_parallel_size", "pipe_parallel_size")) for name in run.arguments)


def with_settings(run: Run) -> Run:
    """The run with the settings that follow from the rest of it."""
    return replace(run, effective=resolve_settings(run))


def with_releases(run: Run, versions: Mapping[str, str], places: Mapping[str, tuple[Origin, ...]]) -> Run:
    """The run of a project that admits these releases, with the settings that they have."""
    now = replace(run, versions=versions, version_places=places)
    engines = all(admitted_of(now, library) == admitted_of(run, library) for library in ("deepspeed", "accelerate"))
    trainers = all(versions.get(library) == run.versions.get(library) for library in ("transformers", "trl"))
    return now if engines and (trainers or not (run.recipe or run.arguments)) else with_settings(now)


def with_consumer(run: Run, consumer: str | None, evidence: ReaderEvidence | None = None) -> Run:
    """The run when this consumer reads its configs; ``evidence``: what shows it."""
    reader = consumer_of(consumer)
    if reader is not None and front_end(reader) is not None:
        run = with_front_end(run, reader, run.recipe)
    return with_settings(
        replace(run, consumer=reader, reader_evidence=evidence, deepspeed_route=_route(run.deepspeed_route, reader))
    )


def _route(route: Route | None, reader: Consumer | None) -> Route | None:
    """How the DeepSpeed config reaches this reader, whatever was taken for its reader before."""
    if reader == "deepspeed":
        return "engine" if route in (None, "trainer") else route
    if reader == "accelerate":
        return "accelerate" if route is not None else None
    return "trainer" if reader is not None and route == "engine" else route


class _Resolution:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.settings: dict[str, Setting] = {}
        self.failures: list[Failure] = []
        self.ignored: list[Ignored] = []
        self.launch: Launch = launch_of(run)
        self.environment = _environment(run, self.launch)
        self.world = self.launch.num_processes
        self.parser = parser_of(run)

    def walk(self) -> Effective:
        launch = self.launch
        self.failures += launch.failures
        self.ignored += launch.ignored
        self.settings["num_processes"] = launch.num_processes
        self.settings["num_machines"] = launch.num_machines
        if launch.mixed_precision is not None:
            self.settings["mixed_precision"] = launch.mixed_precision
        consumer = self.run.consumer
        try:
            if consumer in ("transformers", "trl") or front_end(consumer) is not None:
                self._trainer()
            elif consumer == "accelerate":
                self._accelerate()
            elif consumer == "deepspeed":
                self._deepspeed()
            else:
                self._anyone()
        except NotAMappingError as error:
            self._section_type(error)
        return Effective(launch.environment, self.settings, tuple(self.failures), tuple(self.ignored))

    # -- by consumer -------------------------------------------------------------------------------------------

    def _trainer(self) -> None:
        arguments = arguments_of(self.run)
        self.failures += [f for f in arguments.failures if f.phase == "arguments"]
        self.failures += both_precisions(arguments)
        precision = self._trainer_precision(arguments)
        self.settings["mixed_precision"] = precision
        config = self._config("trainer")
        own = config is not None or bool(arguments.get("deepspeed")) or arguments.get("deepspeed") is UNKNOWN
        if config is None and (not own or (self._use_deepspeed() and arguments.get("deepspeed") is UNKNOWN)):
            self._trainer_from_environment(arguments, precision)
        else:
            self._trainer_own_config(arguments, precision, config)
        self.failures += [f for f in arguments.failures if f.phase != "arguments"]

    def _trainer_own_config(self, arguments: Arguments, precision: Setting, config: Config | None) -> None:
        """`deepspeed=` of TrainingArguments: the Trainer fills first, then the plugin."""
        known = arguments.get("deepspeed") is not UNKNOWN or config is not None
        self._engine("deepspeed" if known else UNKNOWN, "`deepspeed` of TrainingArguments")
        beaten = self.environment.get("ACCELERATE_DEEPSPEED_CONFIG_FILE")
        if beaten is not None and config is not None:
            message = "`deepspeed` of TrainingArguments wins over the file that the launcher names"
            self.ignored.append(Ignored("ds-file-beaten", message, beaten.origin))
        if config is None:
            self._plain_trainer_settings(arguments)
            return
        look_at_stage(config)
        matching = Matching(config)
        process(matching, arguments, self.world)
        plugin = build(self.environment, config, self.failures)
        set_mixed_precision(plugin, precision)
        self._train(arguments, plugin, matching)

    def _trainer_from_environment(self, arguments: Arguments, precision: Setting) -> None:
        """The launcher's variables: the plugin fills first, then the Trainer."""
        if not self._use_deepspeed():
            self._engine(*self._engine_of_launcher())
            self._plain_trainer_settings(arguments)
            return
        file_unseen = "ACCELERATE_DEEPSPEED_CONFIG_FILE" in self.environment
        config = self._config("accelerate")
        if config is None and file_unseen:
            self._engine("deepspeed", "the DeepSpeed launcher")
            return
        plugin = build(self.environment, config, self.failures)
        set_mixed_precision(plugin, precision)
        if self._use_cpu():
            self._engine(*self._without_deepspeed())
            self._plain_trainer_settings(arguments)
            return
        self._engine("deepspeed", "the DeepSpeed launcher")
        matching = Matching(plugin.config)
        process(matching, arguments, self.world)
        self._train(arguments, plugin, matching)

    def _train(self, arguments: Arguments, plugin: Plugin, matching: Matching) -> None:
        """`Trainer.train()` up to the engine."""
        if arguments.get("auto_find_batch_size"):
            matching = Matching(plugin.config)
            process(matching, arguments, self.world, batches=False)
        self.failures += refused_arguments(arguments, plugin.zero_stage, deepspeed=True)
        self.failures += text_batches(plugin.config)
        own = self.run.script is not None and self.run.script.own_loop
        failure = finalize(matching, arguments, self.run.model) if not own else None
        if failure is not None:
            self.failures.append(failure)
        counted = Setting(1, Origin("computed", "the Trainer accumulates itself"))
        if own:
            counted = _unknown(Origin("computed", "the script's Trainer has a loop of its own"))
        self._finish(Prepared(plugin.config, self.world, counted, self.run.model), trainer=not own)

    def _accelerate(self) -> None:
        precision = accelerator.precision(self.run, self.environment.get("ACCELERATE_MIXED_PRECISION"))
        if accelerator.makes_accelerator(self.run):
            self.settings["mixed_precision"] = precision
        launched = self.run.accelerate is not None or self.run.launch is not None
        if not self._use_deepspeed() and (launched or self.run.deepspeed is None):
            self._engine(*self._engine_of_launcher())
            return
        if self._use_cpu():
            self._engine(*self._without_deepspeed())
            return
        self._engine("deepspeed", "the DeepSpeed launcher")
        config = self._config("accelerate")
        if config is None and "ACCELERATE_DEEPSPEED_CONFIG_FILE" in self.environment:
            return
        if accelerator.own_plugin(self.run):
            return
        plugin = build(self.environment, config, self.failures)
        set_mixed_precision(plugin, precision)
        accumulation = self.environment.get("ACCELERATE_GRADIENT_ACCUMULATION_STEPS")
        accumulation = accumulation or accelerator.accumulation(self.run)
        if accumulation.known:
            try:
                accumulation = Setting(int(accumulation.value), accumulation.origin, accumulation.overridden)
            except ValueError:
                message = f"Accelerator() calls int({accumulation.value!r}) on gradient_accumulation_steps"
                self._fail("gas-not-int", "arguments", message, accumulation.origin)
                accumulation = _unknown(accumulation.origin)
        self._finish(Prepared(plugin.config, self.world, accumulation, self.run.model), trainer=False)

    def _deepspeed(self) -> None:
        self._engine("deepspeed", "deepspeed.initialize")
        config = self._config("engine")
        if config is not None:
            self._read_engine(config)

    def _anyone(self) -> None:
        """Only what holds for every consumer: the launcher, the plugin, and what DeepSpeed refuses in any case."""
        launcher = self.launch.launcher
        config = self._config(None)
        if self.run.deepspeed_route == "accelerate" and launcher != "none" and not self._use_deepspeed():
            config = None  # named in a section that this launcher does not read
        if self._use_deepspeed():
            self._engine("deepspeed", "the DeepSpeed launcher")
            if config is None and "ACCELERATE_DEEPSPEED_CONFIG_FILE" in self.environment:
                return
            plugin = build(self.environment, config, self.failures)
            config = plugin.config
        elif config is not None:
            self._engine("deepspeed", "a DeepSpeed config")
        elif launcher != "none":
            self._engine(*self._engine_of_launcher())
        if config is not None:
            self.settings.update(engine.settings(config, final=False))
            self.failures += engine.refusals(config, self.parser, final=False) + engine.summing(config, self.parser)

    # -- parts -------------------------------------------------------------------------------------------------

    def _finish(self, state: Prepared, *, trainer: bool) -> None:
        self.failures += prepare(state, trainer=trainer)
        ranks = self._data_parallel("sp")
        if ranks is not self.world:
            # accelerate writes the batch anew for the ranks that get samples of their own.
            batch = product(state.config.get(MICRO), state.config.get(STEPS), ranks.value)
            state.config.set(TRAIN, batch, Origin("computed", f"{MICRO} * {STEPS} * {ranks.origin.note}"))
        self._read_engine(state.config)

    def _data_parallel(self, *shared: str) -> Setting:
        """The ranks that batches are counted over: those of the ``shared`` dimensions of a parallelism_config get the
        same samples, and a script that splits the model over ranks by itself, as Megatron's options tell it to, gives
        the engine fewer."""
        if divides_ranks(self.run):
            return Setting(UNKNOWN, Origin("computed", "the script's own model parallelism"))
        sizes = {f"{item}_size": self.settings.get(f"{PARALLEL}{item}_size") for item in shared}
        divided = {name: size.value for name, size in sizes.items() if size is not None and size.value != 1}
        if not divided:
            return self.world
        groups = self.world.value
        for size in divided.values():
            known = isinstance(size, int) and isinstance(groups, int) and size > 0 and not groups % size
            groups = groups // size if known else UNKNOWN
        return Setting(groups, Origin("computed", f"processes / {' / '.join(divided)}"))

    def _read_engine(self, config: Config) -> None:
        settings, failures = engine.read(config, self._data_parallel("sp"), self.parser)
        self.settings.update(settings)
        if any(failure.kind in ("trainer-mismatch", "batch-type") for failure in self.failures):
            # The same disagreement once more, in values that the job never gets to.
            failures = [failure for failure in failures if not failure.kind.startswith("ds-batch-")]
        if not opened_by_script(self.run):
            self.failures += failures

    def _config(self, route: str | None) -> Config | None:
        """The DeepSpeed config that reaches the process over ``route``; None when there is none to read."""
        run = self.run
        inline = run.recipe.data().get("deepspeed") if run.recipe and isinstance(run.recipe.data(), dict) else None
        if run.deepspeed is None and isinstance(inline, dict) and route in ("trainer", None):
            return Config(inline, lambda path: Origin("file", file=run.recipe, path=("deepspeed", *path)))
        file = run.deepspeed
        if file is None or (run.deepspeed_route not in (route, None) and route is not None):
            return None
        if (
            run.deepspeed_route is None
            and route == "trainer"
            and "ACCELERATE_DEEPSPEED_CONFIG_FILE" in self.environment
        ):
            return None
        data = plain_or_unknown(file.document)
        if not isinstance(data, dict):
            if file.document is not None and file.document.root is not None:
                what = describe(data) if may_be_quoted(file) else "something else"
                message = f"the DeepSpeed config is {what}, not a mapping"
                self._fail("ds-not-a-mapping", "arguments", message, Origin("file", file=file))
            return None

        def origin(path: Path) -> Origin:
            return Origin("file", file=file, path=path)

        return Config(data, origin)

    def _trainer_precision(self, arguments: Arguments) -> Setting:
        """`args.mixed_precision`: fp16, else bf16, else the launcher's variable."""
        half, bfloat = arguments.setting("fp16"), arguments.setting("bf16")
        exported = self.environment.get("ACCELERATE_MIXED_PRECISION")
        history = (exported,) if exported is not None else ()
        if half.value is UNKNOWN:
            return Setting(UNKNOWN, half.origin, history)
        if half.value:
            return Setting("fp16", half.origin, history)
        if bfloat.value is UNKNOWN:
            return Setting(UNKNOWN, bfloat.origin, history)
        if bfloat.value:
            return Setting("bf16", bfloat.origin, history)
        return exported if exported is not None else Setting("no", default_of("transformers"))

    def _plain_trainer_settings(self, arguments: Arguments) -> None:
        """Batch sizes and clipping of a Trainer without DeepSpeed."""
        micro, steps = (
            arguments.setting("per_device_train_batch_size"),
            arguments.setting("gradient_accumulation_steps"),
        )
        ranks = self._data_parallel("tp", "cp", "sp")
        total = product(micro.value, steps.value, ranks.value)
        counted = "processes" if ranks is self.world else ranks.origin.note
        note = f"{counted} * per_device_train_batch_size * gradient_accumulation_steps"
        self.settings.update(
            {
                MICRO: micro,
                STEPS: steps,
                TRAIN: Setting(total, Origin("computed", note)),
                "gradient_clipping": arguments.setting("max_grad_norm"),
            }
        )

    def _use_deepspeed(self) -> bool:
        used = self.environment.get("ACCELERATE_USE_DEEPSPEED")
        return used is not None and str(used.value).lower() == "true"

    def _use_cpu(self) -> bool:
        """ACCELERATE_USE_CPU turns DeepSpeed off without a word, whatever the launcher."""
        used = self.environment.get("ACCELERATE_USE_CPU")
        return used is not None and str(used.value).lower() in ("y", "yes", "t", "true", "on", "1")

    def _without_deepspeed(self) -> tuple[str, str]:
        return ("single" if self.world.value == 1 else "ddp"), "ACCELERATE_USE_CPU turns DeepSpeed off"

    def _engine_of_launcher(self) -> tuple[Any, str]:
        name, processes = self.launch.launcher, self.world.value
        if name in ("fsdp", "megatron"):
            return name, f"the {name} launcher"
        if name == "none" or processes is UNKNOWN:
            return UNKNOWN, "nothing tells how many processes there are"
        if name == "tpu":
            return "xla", "the TPU launcher"
        return ("single" if processes == 1 else "ddp"), f"{processes} processes"

    def _engine(self, name: Any, why: str) -> None:
        self.settings["engine"] = Setting(name, Origin("computed", why))
        if name == "fsdp" or (name is UNKNOWN and self.launch.launcher == "fsdp"):
            self.settings.update(plugin_settings(self.environment))
        self.settings.update(parallel_sizes(self.environment))

    def _fail(self, kind: str, phase: Phase, message: str, *places: Origin) -> None:
        self.failures.append(Failure(kind, phase, message, places))

    def _section_type(self, error: NotAMappingError) -> None:
        if error.value is UNKNOWN:
            return
        phase: Phase = "parse" if self.run.consumer == "deepspeed" else "arguments"
        place: tuple[Origin, ...] = ()
        if self.run.deepspeed is not None:
            place = (Origin("file", file=self.run.deepspeed, path=tuple(error.name.split("."))),)
        elif self.run.recipe is not None:
            place = (Origin("file", file=self.run.recipe, path=("deepspeed", *error.name.split("."))),)
        self._fail("ds-section-type", phase, str(error), *place)


def _unknown(origin: Origin) -> Setting:
    return Setting(UNKNOWN, origin)


def _environment(run: Run, launch: Launch) -> Environment:
    """What the training process finds: the shell's variables, then the launcher's, then a TRL recipe's."""
    found = {**run.environment, **launch.environment, **recipe_environment(run)}
    return {
        name: Setting(
            UNKNOWN if setting.value in (None, UNKNOWN) else str(setting.value),
            setting.origin,
            setting.overridden,
        )
        for name, setting in found.items()
    }
