"""The words of a run: source file, setting, origin, failure, run.

A run is the set of source files used together for one training job, with its effective settings, which
`zerocfg.run.resolve_settings` computes: what the training process finally gets, each value with its provenance.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Any, Literal, get_args

from zerocfg.source.node import Document, Path
from zerocfg.source.text import SourceText, Span

if TYPE_CHECKING:
    from zerocfg.run.facts import (  # specs and builds know such, few configs do
        HardwareSummary,
        MemorySummary,
        ModelSummary,
    )
    from zerocfg.source.launch.line import (
        LaunchLine,  # its classes take time to make, and few configs have launch lines
    )

Consumer = Literal["deepspeed", "accelerate", "transformers", "trl", "llamafactory", "axolotl", "swift"]
Kind = Literal[
    "accelerate", "deepspeed", "recipe", "neighbour", "model", "spec", "hardware", "launch", "script", "other"
]
Route = Literal["accelerate", "trainer", "engine"]
RecipeReader = Literal["trl", "hf"]
Teller = Literal["command", "path", "spec", "script", "option", "recipe", "sibling", "settings"]
Phase = Literal["read", "launch", "arguments", "parse", "init", "step", "save", "load"]


CONSUMERS: tuple[Consumer, ...] = get_args(Consumer)


def consumer_of(word: object) -> Consumer | None:
    """The consumer that a file or an option names; None for any other word."""
    return next((one for one in CONSUMERS if one == word), None)


class _Unknown:
    """The value of something that is set, but to what cannot be told from the files (a shell variable, say)."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False

    def __deepcopy__(self, memo: object) -> _Unknown:
        return self


UNKNOWN = _Unknown()


@dataclass(slots=True, eq=False)
class SourceFile:
    """One file of a run. ``name`` is how messages call it (relative to where zerocfg was started).

    ``reread_of``: the same text, read another way because of who points at it (a DeepSpeed config named ``.yaml``).
    """

    name: str
    kind: Kind
    source: SourceText
    document: Document | None = None
    path: FilePath | None = None
    reread_of: SourceFile | None = None

    def data(self) -> Any:
        return self.document.data() if self.document else None


def original(file: SourceFile) -> SourceFile:
    """The file as it was first read, whoever points at it."""
    return file.reread_of or file


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class Setting:
    """One effective value with its origin and the values that it replaced, newest first."""

    value: Any
    origin: Origin
    overridden: tuple[Setting, ...] = ()

    @property
    def known(self) -> bool:
        return self.value is not UNKNOWN


@dataclass(frozen=True, slots=True)
class Told:
    """Why a run's consumer is the one it is.

    ``by``: "command" (`--consumer`), "path" (a pattern of the settings that fits a file of the run), "spec", "script"
    (the training script's code), "option" (of the launch line), "recipe", "sibling" (a recipe of the same tree, which a
    line names), or "settings" (`consumer` there, where no file tells). ``place``: where that is written, if that is a
    file of the run; ``pattern``: the one that fits.
    """

    by: Teller
    place: Origin | None = None
    pattern: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """One value in two places that a library compares. ``key``: of DeepSpeed's config, where ``written`` stands;
    ``argument``: as the library's error calls the other side, which has ``asked``."""

    key: str
    written: Setting
    argument: str
    asked: Setting


@dataclass(frozen=True, slots=True)
class Failure:
    """Something a library will refuse, predicted. ``kind`` is a stable short name that rules look for.

    ``about``: the keys, words or sizes that the message speaks of, in its order, where the places alone do not tell.
    ``differences``: what was compared.
    """

    kind: str
    phase: Phase
    message: str
    places: tuple[Origin, ...] = ()
    about: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = ()


@dataclass(frozen=True, slots=True)
class Ignored:
    """A value that somebody wrote and nobody will use, or that is used as something else.

    ``kind`` is a stable short name; ``used`` is what applies instead (None: nothing).
    """

    kind: str
    message: str
    place: Origin
    used: Setting | None = None


@dataclass(frozen=True, slots=True)
class Mistaken:
    """A file that is given where another kind belongs; nothing else can be said of it. ``named``: by what."""

    file: SourceFile
    wanted: Literal["accelerate", "deepspeed"]
    named: Origin


@dataclass(frozen=True, slots=True)
class Effective:
    """What a run amounts to.

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


@dataclass(frozen=True, slots=True)
class FromLine:
    """The value of an option of the script's own parser: what the launch line says, else ``default``."""

    option: str
    default: object


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a library that a config has to do with.

    ``name`` is dotted as the library exports it ("transformers.TrainingArguments"), whatever the script calls it; a
    class of the repository that derives from one counts as that one. ``arguments`` are those given by name: a literal,
    a `FromLine`, or UNKNOWN. ``complete`` False: others may be given by position, `*` or `**`. ``config``: the
    DeepSpeed config among them that is written out as a dict. ``derived``: of a class of the repository, which may take
    arguments of its own.
    """

    name: str
    arguments: Mapping[str, Setting]
    file: SourceFile
    span: Span
    complete: bool = True
    config: SourceFile | None = None
    derived: bool = False


@dataclass(frozen=True, slots=True)
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
    ``required``: the requirements without which it stops, each with its place.
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


@dataclass(frozen=True, slots=True, eq=False)
class Run:
    """The files of one training job and what is known about it. A value: who knows or chooses more makes a new one.

    ``deepspeed_route`` tells how the DeepSpeed config reaches the engine: "accelerate" (deepspeed_config_file
    of the accelerate config or --deepspeed_config_file), "trainer" (`deepspeed:` of a recipe or --deepspeed of
    the script), "engine" (the script's --deepspeed_config, read by deepspeed.initialize), or None (the file
    stands alone). ``recipe_reader`` tells who parses the recipe: TrlParser ("trl", converts strings),
    HfArgumentParser ("hf", does not). ``neighbour`` is the recipe of a framework around the Trainer, which has keys of
    its own (`zerocfg.run.frameworks`). ``arguments`` are the training script's own options by name without
    dashes, UNKNOWN where the value is not known; ``flags`` the launcher's. ``script`` is what the training script's
    code says; literal arguments of its TrainingArguments stand among ``arguments``, with their place in the code.
    ``arguments_whole``: whether training arguments that are not among these have their library's default; None where
    no script was read.
    ``consumer`` None means nobody knows; ``told`` is who says it, where that does not follow from launch line and
    files (`zerocfg.run.telling` knows). ``started`` is the file that the run starts. ``versions`` are the releases that
    the project admits, by library, as clauses of PEP 440; ``version_places`` tells where those stand, or what sets
    them, that were read from the project's own files. ``mistaken``: files of another kind than who is given them reads.
    ``parts``: of the DeepSpeed config only some keys are known (a dict that the script goes on changing), so that
    nothing follows from what is not among them.
    ``unread`` are files that the launch line names and of which nothing can be told, because they cannot be read.
    ``troubles`` are what keeps runs of a spec from being made of ``extends`` and ``matrix``: place, message, way out.
    """

    name: str
    consumer: Consumer | None = None
    told: Told | None = None
    accelerate: SourceFile | None = None
    deepspeed: SourceFile | None = None
    deepspeed_route: Route | None = None
    parts: bool = False
    recipe: SourceFile | None = None
    recipe_reader: RecipeReader | None = None
    neighbour: SourceFile | None = None
    spec: SourceFile | None = None
    launch: LaunchLine | None = None
    launch_file: SourceFile | None = None
    started: FilePath | None = None
    script: Script | None = None
    flags: Mapping[str, Setting] = field(default_factory=dict)
    arguments: Mapping[str, Setting] = field(default_factory=dict)
    arguments_whole: bool | None = None
    environment: Mapping[str, Setting] = field(default_factory=dict)
    model: ModelSummary | None = None
    hardware: HardwareSummary | None = None
    memory: MemorySummary | None = None
    versions: Mapping[str, str] = field(default_factory=dict)
    version_places: Mapping[str, tuple[Origin, ...]] = field(default_factory=dict)
    missing: tuple[Origin, ...] = ()
    mistaken: tuple[Mistaken, ...] = ()
    unread: tuple[SourceFile, ...] = ()
    troubles: tuple[tuple[Origin, str, str], ...] = ()
    effective: Effective = field(default_factory=Effective)

    @property
    def files(self) -> list[SourceFile]:
        found = [self.accelerate, self.deepspeed, self.recipe, self.neighbour, self.launch_file, self.spec]
        if self.script is not None and self.launch is None and self.spec is None:
            found.append(self.script.file)
        return [*(file for file in found if file is not None), *(one.file for one in self.mistaken)]


def files_of(run: Run) -> list[SourceFile]:
    """Every file that a run reads, its training script and what that imports included; each once."""
    scripts = run.script.files if run.script is not None else ()
    return list({id(file): file for file in (*run.files, *scripts, *run.unread)}.values())
