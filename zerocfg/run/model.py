"""The data types of a run: source file, setting, origin, failure, run.

A run is the set of source files used together for one training job, with its effective settings, which
`zerocfg.run.resolve_settings` computes: what the training process finally gets, each value with its provenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal, get_args

from zerocfg.record import field, record
from zerocfg.source.load import OUTSIDE
from zerocfg.source.node import Document, Path
from zerocfg.source.text import SourceText, Span
from zerocfg.unknown import UNKNOWN as UNKNOWN

if TYPE_CHECKING:
    from zerocfg.run.facts import (  # specs and builds know such, few configs do
        HardwareSummary,
        MemorySummary,
        ModelSummary,
    )
    from zerocfg.source.launch.line import (
        LaunchLine,  # its classes take time to make, and few configs have launch lines
    )

Library = Literal["deepspeed", "accelerate", "transformers", "trl"]
Consumer = str
"""Who reads the configs: a `Library`, or the name of a front end (`zerocfg.frontends`)."""
Kind = Literal[
    "accelerate", "deepspeed", "recipe", "neighbour", "model", "spec", "hardware", "launch", "script", "other"
]
Route = Literal["accelerate", "trainer", "engine"]
RecipeReader = Literal["trl", "hf"]
EvidenceSource = Literal["command", "path", "spec", "script", "option", "recipe", "sibling", "settings"]
Phase = Literal["read", "launch", "arguments", "parse", "init", "step", "save", "load"]


LIBRARIES: tuple[Library, ...] = get_args(Library)


@record(slots=True, eq=False)
class SourceFile:
    """One file of a run. ``name`` is how messages call it (relative to where zerocfg was started).

    ``reread_of``: the same text, read another way because of who points at it (a DeepSpeed config named ``.yaml``).
    ``remembered``: what functions worked out of it (`zerocfg.run.remembered`).
    """

    name: str
    kind: Kind
    source: SourceText
    document: Document | None = None
    path: FilePath | None = None
    reread_of: SourceFile | None = None
    remembered: dict[object, Any] = field(default_factory=dict, init=False, repr=False)

    def data(self) -> Any:
        return self.document.data() if self.document else None


def original(file: SourceFile) -> SourceFile:
    """The file as it was first read, whoever points at it."""
    return file.reread_of or file


def lies_outside(file: SourceFile) -> bool:
    """Whether a file is there and not read, as it lies outside of the boundary of trust."""
    return file.document is not None and any(problem.kind == OUTSIDE for problem in file.document.problems)


def may_be_quoted(file: SourceFile) -> bool:
    """Whether lines of a file may be shown. One that was no config at first sight is a config only because another
    file says so: who names the private files of a machine does not get to see them."""
    return original(file).kind != "other"


@record(frozen=True, slots=True)
class Origin:
    """Where a value comes from.

    ``kind``: "file" (a key of a source file), "flag" (a word of a launch line), "environment" (a variable),
    "default" (nobody set it; ``note`` names the library and release whose default it is),
    "computed" (``note`` says from what, in words).
    """

    kind: Literal["file", "flag", "environment", "default", "computed"]
    note: str = ""
    file: SourceFile | None = None
    path: Path = ()
    span: Span | None = None


@record(frozen=True, slots=True)
class Setting:
    """One effective value with its origin and the values that it replaced, newest first."""

    value: Any
    origin: Origin
    overridden: tuple[Setting, ...] = ()

    @property
    def known(self) -> bool:
        return self.value is not UNKNOWN

    @property
    def shown(self) -> Any:
        """The value for people, without what stands in a file of which no line is shown."""
        file = self.origin.file
        return self.value if file is None or may_be_quoted(file) else "(not shown)"


@record(frozen=True, slots=True)
class ReaderEvidence:
    """What shows which consumer reads a run.

    ``by``: "command" (`--consumer`), "path" (a pattern of the settings that fits a file of the run), "spec", "script"
    (the training script's code), "option" (of the launch line), "recipe", "sibling" (a recipe of the same tree, which a
    line names), or "settings" (`consumer` there, where no file tells). ``place``: where that is written, if that is a
    file of the run; ``pattern``: the one that fits.
    """

    by: EvidenceSource
    place: Origin | None = None
    pattern: str = ""


@record(frozen=True, slots=True)
class Difference:
    """One value in two places that a library compares. ``key``: of DeepSpeed's config, where ``written`` stands;
    ``argument``: as the library's error calls the other side, which has ``asked``."""

    key: str
    written: Setting
    argument: str
    asked: Setting


@record(frozen=True, slots=True)
class Failure:
    """A predicted refusal by a library. ``kind`` is a stable short name that rules look for.

    ``about``: the keys, words or sizes that the message speaks of, in its order, where the places alone do not tell.
    ``differences``: what was compared.
    """

    kind: str
    phase: Phase
    message: str
    places: tuple[Origin, ...] = ()
    about: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


@record(frozen=True, slots=True)
class Ignored:
    """A value that is written but has no effect, or that is used as something else.

    ``kind`` is a stable short name; ``used`` is what applies instead (None: nothing).
    """

    kind: str
    message: str
    place: Origin
    used: Setting | None = None


@record(frozen=True, slots=True)
class MisplacedFile:
    """A file given where a file of another kind is read; it is not checked further. ``named``: where it is named."""

    file: SourceFile
    wanted: Literal["accelerate", "deepspeed"]
    named: Origin


@record(frozen=True, slots=True)
class Effective:
    """The effective settings of a run.

    ``environment``  the variables the launcher exports (ACCELERATE_*, FSDP_*, ...)
    ``settings``     by dotted name: DeepSpeed keys as in its JSON (``zero_optimization.stage``), and for every run
                     ``engine`` ("deepspeed", "fsdp", "ddp", "single", "megatron"), ``num_processes``,
                     ``num_machines``, ``mixed_precision``, ``gradient_accumulation_steps``, ...
    ``failures``     in the order in which they would strike
    """

    environment: Mapping[str, Setting] = field(default_factory=dict)
    settings: Mapping[str, Setting] = field(default_factory=dict)
    failures: tuple[Failure, ...] = ()
    ignored: tuple[Ignored, ...] = ()

    def get(self, name: str) -> Setting | None:
        return self.settings.get(name)

    def value(self, name: str, default: Any = None) -> Any:
        setting = self.settings.get(name)
        return default if setting is None else setting.value


@record(frozen=True, slots=True)
class FromLine:
    """The value of an option of the script's own parser: the launch line's, else ``default``."""

    option: str
    default: object


@record(frozen=True, slots=True)
class Call:
    """One call of a library that a config has to do with.

    ``name`` is dotted as the library exports it ("transformers.TrainingArguments"), whatever the script calls it; a
    class of the repository that derives from one counts as that one. ``arguments`` are those given by name: a literal,
    a `FromLine`, or UNKNOWN. ``complete`` False: others may be given by position, `*` or `**`. ``config``: the
    DeepSpeed config among them that is written out as a dict. ``derived``: of a class of the repository, which may take
    arguments of its own, and whose defaults are among ``arguments``. ``guarded``: the class may be another than the
    library's, or the script asks which arguments the installed release takes. ``objects``: by argument, the class of a
    library whose new object it is.
    """

    name: str
    arguments: Mapping[str, Setting]
    file: SourceFile
    span: Span
    complete: bool = True
    config: SourceFile | None = None
    derived: bool = False
    guarded: bool = False
    objects: Mapping[str, str] = field(default_factory=dict)


@record(frozen=True, slots=True)
class Loading:
    """The `from_pretrained` by which a script loads the model of its Trainer. ``first``: it certainly comes before the
    arguments of the Trainer are made; False: certainly after. ``device_map``: what it is given as one."""

    origin: Origin
    first: bool
    device_map: Setting | None = None


@record(frozen=True, slots=True)
class ModelLoad:
    """A `from_pretrained` of a model of transformers that a script certainly comes to, and that some release refuses.

    ``name``: the class; ``refused``: the keywords that some release does not take; ``model``: what it loads;
    ``trusts``: whether code from the model's repository may be loaded; ``ahead``: the script certainly comes to it
    before it makes or parses any arguments of a Trainer.
    """

    name: str
    refused: Mapping[str, Setting]
    origin: Origin
    model: Setting
    trusts: Setting
    ahead: bool


@record(frozen=True, slots=True)
class Comparison:
    """A decision of a script by one of its own options, which is compared with ``values``. ``default``: the option's
    value where nobody gives one, or UNKNOWN."""

    option: str
    values: tuple[str, ...]
    default: object
    origin: Origin


@record(frozen=True, slots=True)
class DefaultDtype:
    """A `from_pretrained` of a model that leaves its dtype to transformers. ``name``: as the code calls it."""

    name: str
    origin: Origin


@record(frozen=True, slots=True)
class ResumedState:
    """What the state of the checkpoint that a run resumes from sets. ``file``: its trainer_state.json; ``steps``: by
    argument; ``named``: where the run names the checkpoint."""

    file: str
    steps: Mapping[str, int]
    named: Origin


@record(frozen=True, slots=True)
class StrictParser:
    """A parser of argparse, made at ``place``, that reads the script's words and stops at an option it does not know.
    ``options``: every option string that it takes, as written."""

    options: frozenset[str]
    place: Origin

    def takes(self, option: str) -> bool:
        """Whether it takes an option, by its name or as an abbreviation of another."""
        return any(known.startswith(option) for known in self.options)


@record(frozen=True, slots=True)
class LateDeepSpeed:
    """A DeepSpeed config that a script gives its training arguments once these are made. ``holder``: what the code
    calls them; ``kind``: the library's class ("transformers.TrainingArguments"); ``parsed``: a parser of the command
    line makes them. ``sure``: it has been run whenever the Trainer is made. ``filled``: the value is certainly not
    empty, even where it is not known; ``shown``: as it is written."""

    holder: str
    kind: str
    parsed: bool
    sure: bool
    filled: bool
    value: Setting
    shown: str
    origin: Origin


@record(frozen=True, slots=True)
class ImportedName:
    """A name that a script imports from a module of a library; empty where it is the module itself."""

    module: str
    name: str
    origin: Origin

    @property
    def library(self) -> str:
        return self.module.partition(".")[0]

    @property
    def shown(self) -> str:
        """As messages call it."""
        return f"{self.module}.{self.name}" if self.name else self.module

    @property
    def package(self) -> str:
        """What installs it."""
        return self.library.replace("_", "-")


@record(frozen=True, slots=True)
class BrokenImport:
    """An import of a module of the repository that does not have what is imported: ``name``; empty where the module
    itself is not there. ``module``: as it is written; ``file``: the module's, where it is there."""

    module: str
    name: str
    origin: Origin
    file: SourceFile | None = None


@record(frozen=True, slots=True)
class LostImport:
    """A name that a script imports and that releases of its library lack from ``since`` on, some of which the project
    admits. ``declared``: the clauses of that package, empty where none are stated; ``places``: where they are."""

    imported: ImportedName
    since: str
    declared: str
    places: tuple[Origin, ...]


@record(frozen=True, slots=True)
class ReleaseClash:
    """Releases of two packages that the project admits and with which the script stops in ``phase`` with what it
    ``said``: all of them (``certain``), or those that a new install brings.

    ``library``, ``other``: the packages, ``declared`` and ``beside`` what is stated about each, empty where nothing
    is, ``places`` and ``beside_places`` where. ``needs``: clauses of the other that go with the library, ``or_else``:
    clauses of the library that go with the other; empty where none are known.
    """

    library: str
    other: str
    certain: bool
    phase: str
    said: str
    needs: str
    or_else: str
    declared: str = ""
    beside: str = ""
    places: tuple[Origin, ...] = ()
    beside_places: tuple[Origin, ...] = ()


@record(frozen=True, slots=True)
class NewInstallStop:
    """Why a script does not come to its training with what a new install of its project brings: it imports
    ``imported``, which the newest admitted release of a library does not have, at ``origin``, or hands
    `from_pretrained` the keyword ``refused``, which that release does not take, or the install brings releases of two
    packages that do not go together (``clash``); all empty: the torch that is stated there is too old for that release,
    which works without it then."""

    library: str
    origin: Origin
    imported: str = ""
    refused: str = ""
    clash: str = ""


@record(frozen=True, slots=True)
class Script:
    """A script and the modules of its repository that it needs, as deep as `reading.DEPTH` (``files``, itself first).

    ``reader``: whose loop it runs, None where that cannot be told; ``shown_by`` is the call that tells. ``foreign``:
    the framework that reads the configs when it is none of zerocfg's consumers ("lightning"), else empty.
    ``calls``: those that the script reaches from its first line on.
    ``options``: the names, without dashes and with `_`, of every option that its parser takes; None where that cannot
    be told; ``own``: those that it declares by itself, as far as they are told. ``lenient``: what the parser does not
    know does not stop it, or may not.
    ``parsed``: the library dataclasses that HfArgumentParser or TrlParser fills from the command line
    ("transformers.TrainingArguments"). ``defaults``: what its own subclass of such a dataclass, or `set_defaults`, puts
    in the place of the library's. ``assigned``: attributes that the code sets on any object, so that nobody knows what
    an argument of that name is in the end. ``opened``: names in the paths of files that the code opens by itself.
    ``methods``: the names of all methods that it calls; ``whole``: no code of the repository that it reaches lies
    deeper than was looked, so that it calls no others. ``parts``: DeepSpeed configs among its dicts of which only some
    keys are known, or of which nobody knows where they go. ``own_loop``: its Trainer is a class of the repository that
    trains otherwise than the library's, which compares arguments and config when it starts.
    ``required``: the requirements without which it stops, each with its place. ``loading``: None where it is not
    certain how and when the model of the Trainer is loaded. ``comparisons``: decisions by its own options.
    ``resumes``: it gives `train` a checkpoint to go on from.
    ``saves_sharded``: where it calls `save_pretrained` of a model that an Accelerator prepared or a Trainer trained,
    with nothing gathered.
    ``default_dtypes``: the models that it loads without saying in which dtype.
    ``strict_parser``: None where it is not certain that a parser of argparse, all of whose options are known, stops at
    others.
    ``imported``: the names that it takes from libraries as soon as it is started.
    ``replaced``: methods of a library's Trainer that its own subclass replaces.
    ``prepared``: by section of a DeepSpeed config, where it makes what it hands to `Accelerator.prepare` in its place.
    ``own_checks``: a class of its own that derives from a library's arguments does not make that one's checks.
    ``fixed``: its parser gets words that are written out in the code, whatever the launch line says.
    ``beside``: the fields of its own dataclasses that HfArgumentParser parses beside others, each with its place.
    ``exported``: the keys in capitals that its code sets in some mapping, as it does with environment variables.
    ``broken``: what it imports, as soon as it is started, from modules of the repository that do not have it.
    ``late_deepspeed``: DeepSpeed configs that it assigns to training arguments when these are made already.
    ``loads``: the models that it certainly loads with keywords that some release refuses.
    ``patched``: it imports a package that puts classes of its own in the place of TRL's, as unsloth does.
    ``understood`` False: Python could not parse it.
    """

    file: SourceFile
    reader: Consumer | None = None
    shown_by: Origin | None = None
    foreign: str = ""
    calls: tuple[Call, ...] = ()
    options: frozenset[str] | None = None
    lenient: bool = False
    parsed: frozenset[str] = frozenset()
    defaults: Mapping[str, Setting] = field(default_factory=dict)
    assigned: frozenset[str] = frozenset()
    opened: frozenset[str] = frozenset()
    methods: frozenset[str] = frozenset()
    whole: bool = False
    files: tuple[SourceFile, ...] = ()
    parts: tuple[SourceFile, ...] = ()
    own_loop: bool = False
    required: tuple[tuple[str, Origin], ...] = ()
    understood: bool = True
    own: frozenset[str] = frozenset()
    loading: Loading | None = None
    comparisons: tuple[Comparison, ...] = ()
    resumes: bool = False
    saves_sharded: Origin | None = None
    default_dtypes: tuple[DefaultDtype, ...] = ()
    strict_parser: StrictParser | None = None
    imported: tuple[ImportedName, ...] = ()
    replaced: frozenset[str] = frozenset()
    prepared: Mapping[str, Origin] = field(default_factory=dict)
    own_checks: bool = False
    fixed: bool = False
    beside: Mapping[str, Origin] = field(default_factory=dict)
    exported: frozenset[str] = frozenset()
    broken: tuple[BrokenImport, ...] = ()
    patched: bool = False
    late_deepspeed: tuple[LateDeepSpeed, ...] = ()
    loads: tuple[ModelLoad, ...] = ()


@record(frozen=True, slots=True)
class Elsewhere:
    """What may bear on a config that no launch line and no script of a project is known to read; of a run whose script
    hands its config to an engine ``sets_batch_size`` alone, by that script.

    ``options``: of the project's scripts, which may read it; ``readers``: who reads the DeepSpeed configs of its other
    runs; ``trainers``: the configs of TRL for which it has a class of its own, by that name or as the config of a
    trainer by that name; ``sets_batch_size``: code gives a DeepSpeed config its batch size; ``lightning``: code gives
    one to a strategy of Lightning; ``keeps_shards``: what ZeRO-3 shards is saved as it is, converted afterwards, or not
    at all; ``adapters``: every script that saves weights knows PEFT;
    ``brought``: sections of a DeepSpeed config in whose place every `deepspeed.initialize` gets something;
    ``fills_arguments``: code makes training arguments of a mapping, which may be a recipe that it loads by itself.
    """

    options: frozenset[str] = frozenset()
    readers: frozenset[str] = frozenset()
    trainers: frozenset[str] = frozenset()
    sets_batch_size: bool = False
    lightning: bool = False
    keeps_shards: bool = False
    adapters: bool = False
    brought: frozenset[str] = frozenset()
    fills_arguments: bool = False


@record(frozen=True, slots=True, eq=False)
class Run:
    """The files of one training job and what is known about it. Immutable: each step makes a new run by `replace`.

    ``consumer``           who reads the configs; None where no file shows it
    ``reader_evidence``    what shows the consumer, where launch line and files do not (`reader.reader_evidence`)
    ``deepspeed_route``    how the DeepSpeed config reaches the engine: "accelerate" (deepspeed_config_file of the
                           accelerate config or --deepspeed_config_file), "trainer" (`deepspeed:` of a recipe or
                           --deepspeed of the script), "engine" (the script's --deepspeed_config, read by
                           deepspeed.initialize), or None (the file stands alone)
    ``parts``              only some keys of the DeepSpeed config are known (a dict that the script goes on changing),
                           so nothing follows from a key that is absent
    ``recipe_reader``      who parses the recipe: TrlParser ("trl", converts strings) or HfArgumentParser ("hf", does
                           not)
    ``framework_recipe``   the recipe of a framework around the Trainer, with keys of its own (`zerocfg.frontends`)
    ``own_framework``      whether the repository holds that framework's package, which may have keys of its own
    ``entry_point``        the file that the run starts
    ``script``             what the code of the training script says
    ``elsewhere``          of configs by themselves: what the project's scripts and other runs may mean for them
    ``flags``              options of the launcher
    ``arguments``          options of the training script by name without dashes, UNKNOWN where the value is not known;
                           literal arguments of its TrainingArguments are among them, with their place in the code
    ``arguments_whole``    whether training arguments that are not among these have their library's default; None where
                           no script was read
    ``processes``          how many a front end starts, where its recipe says so
    ``versions``           releases that the project admits, by library, as clauses of PEP 440
    ``version_places``     where those are stated, for versions read from the project's own files
    ``undetermined``       libraries installed from a commit, a path or a variable: which release that is, is open
    ``forked``             libraries in whose place the project, or a part of it, installs a fork with another name
    ``outdated``           by library whose release nothing states: a name that the script imports and that the newest
                           release lacks, so that the project has an older one
    ``lost_imports``       what the script imports as it starts and some admitted release of the library lacks
    ``release_clashes``    admitted releases of two packages with which it does not start, or cannot train
    ``new_install_stop``   why the script does not start with what a new install of the project brings
    ``folders``            those of the missing files where a folder lies in their place
    ``misplaced``          files given where a file of another kind is read
    ``unreadable``         files that the launch line names and that cannot be read
    ``undeclared``         the libraries that `declared` was asked for in vain
    ``resumed``            the state of the checkpoint that it resumes from, where that lies here
    ``troubles``           why ``extends`` and ``matrix`` of a spec make no runs: place, message, remediation
    """

    name: str
    consumer: Consumer | None = None
    reader_evidence: ReaderEvidence | None = None
    accelerate: SourceFile | None = None
    deepspeed: SourceFile | None = None
    deepspeed_route: Route | None = None
    parts: bool = False
    recipe: SourceFile | None = None
    recipe_reader: RecipeReader | None = None
    framework_recipe: SourceFile | None = None
    own_framework: bool = False
    spec: SourceFile | None = None
    launch: LaunchLine | None = None
    launch_file: SourceFile | None = None
    entry_point: FilePath | None = None
    script: Script | None = None
    elsewhere: Elsewhere = Elsewhere()
    flags: Mapping[str, Setting] = field(default_factory=dict)
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    arguments_whole: bool | None = None
    environment: Mapping[str, Setting] = field(default_factory=dict)
    processes: Setting | None = None
    model: ModelSummary | None = None
    hardware: HardwareSummary | None = None
    memory: MemorySummary | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    version_places: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict)
    undetermined: frozenset[str] = frozenset()
    forked: frozenset[str] = frozenset()
    outdated: Mapping[str, ImportedName] = field(default_factory=dict)
    lost_imports: tuple[LostImport, ...] = ()
    release_clashes: tuple[ReleaseClash, ...] = ()
    new_install_stop: NewInstallStop | None = None
    missing: tuple[Origin, ...] = ()
    folders: tuple[Origin, ...] = ()
    misplaced: tuple[MisplacedFile, ...] = ()
    unreadable: tuple[SourceFile, ...] = ()
    troubles: tuple[tuple[Origin, str, str], ...] = ()
    resumed: ResumedState | None = None
    effective: Effective = field(default_factory=Effective)
    undeclared: set[str] = field(default_factory=set, repr=False, compare=False)

    def declared(self, library: str) -> str | None:
        """The releases of a library that the project admits. Where nothing declares any the answer is None, the caller
        judges by the newest, and the library is noted in `undeclared`. Findings that rest on that are dropped where
        the project is `outdated`."""
        releases = self.versions.get(library)
        if releases is None:
            self.undeclared.add(library)
        return releases

    @property
    def files(self) -> list[SourceFile]:
        found = [self.accelerate, self.deepspeed, self.recipe, self.framework_recipe, self.launch_file, self.spec]
        if self.script is not None and self.launch is None and self.spec is None:
            found.append(self.script.file)
        return [*(file for file in found if file is not None), *(item.file for item in self.misplaced)]

    @property
    def main_file(self) -> str:
        """The name of its first file, empty where it has none."""
        files = self.files
        return files[0].name if files else ""


def files_of(run: Run) -> list[SourceFile]:
    """Every file that a run reads, its training script and what that imports included; each once."""
    scripts = run.script.files if run.script is not None else ()
    return list({id(file): file for file in (*run.files, *scripts, *run.unreadable)}.values())
