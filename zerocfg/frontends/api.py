"""What a front end is: the interface of `zerocfg.frontends`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

from zerocfg.catalog.history import Histories
from zerocfg.record import field, record
from zerocfg.source.launch.programs import TrainingProgram
from zerocfg.unknown import UNKNOWN as UNKNOWN

Written = Mapping[str, object]
"""Keys of a recipe with their plain values, or options of a launch line by their names without dashes and with `_`."""


class Value(NamedTuple):
    """What an argument gets, `UNKNOWN` where it cannot be determined, and the key or option that gives it."""

    value: object
    key: str
    option: bool = False


@record(frozen=True, slots=True)
class Lowered:
    """What reaches the Trainer. ``arguments``: by field of TrainingArguments, ``deepspeed`` and ``fsdp`` among them.
    ``section``: the key of a recipe that holds the DeepSpeed config itself. ``deepspeed``: the whole DeepSpeed config
    that the framework makes of keys of its own, by path with dots (`zero_optimization.stage`); one of these two.
    ``processes``: how many are started."""

    arguments: Mapping[str, Value] = field(default_factory=dict)
    section: str | None = None
    deepspeed: Mapping[str, Value] = field(default_factory=dict)
    processes: Value | None = None


@record(frozen=True, slots=True, eq=False)
class Claims:
    """What is the framework's own.

    ``programs``: commands that train, by program ("axolotl": {"train"}); none where the program has no commands, and
    trains by each recipe that its line names. ``words``: a file with such a line holds one of them. ``modules``: Python
    modules that train, also started as scripts. ``calls``: functions that train, as Python names them. ``recipe``,
    ``options``: whether keys of a file, or options of any line, are its own. ``markers``: a recipe holds one of these
    words, or one that configs of the libraries hold, too. ``keys``: a recipe with one of these is none of the Trainer's
    own. ``presets``, ``shipped``: DeepSpeed configs that come with it, by name or by the start of their path.
    """

    programs: Mapping[str, frozenset[str]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    modules: tuple[str, ...] = ()
    calls: frozenset[str] = frozenset()
    recipe: Callable[[Written], bool] | None = None
    options: Callable[[Written], bool] | None = None
    markers: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    presets: frozenset[str] = frozenset()
    shipped: tuple[str, ...] = ()


@record(frozen=True, slots=True, eq=False)
class Facts:
    """Its keys, by release.

    ``title``: its name in messages; ``package``: what is installed. ``keys``: the histories of its keys;
    ``libraries``: those whose classes bring keys of their own. ``unknown``: a key that it does not know is "dropped"
    without a word, or it "stops", as ``stops`` tells. ``lenient``: keys and variables with which it does not stop;
    ``extended``: whether something in a recipe brings keys of others. ``abbreviates``: the start of a key will do.
    ``requires``: by its own release, the clauses on each library; oldest first.
    """

    title: str
    package: str
    keys: Callable[[], Histories]
    libraries: tuple[str, ...] = ()
    unknown: Literal["dropped", "stops"] = "dropped"
    stops: str = ""
    lenient: frozenset[str] = frozenset()
    extended: Callable[[Written], bool] | None = None
    abbreviates: bool = False
    requires: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@record(frozen=True, slots=True, eq=False)
class FrontEnd:
    """A framework around the libraries.

    ``name``: what reports and `--consumer` call it. ``claims``: which files, lines and calls are its own.
    ``lower(recipe, options)``: what of them reaches the Trainer; None where it is recognised, but not read.
    ``defaults``: an argument that is not lowered has the library's default. ``facts``: which keys it has. ``unread``:
    what starts it in a way that cannot be lowered. ``ranks_needed``: modules and calls that need a launcher for
    DeepSpeed; None where it is like any script around the Trainer. ``takes_words``: words of its line that are no
    options may mean something. ``texts_are_numbers``: a text of a recipe that spells a number arrives as one: "always"
    (pydantic, argparse), or where it has no quotes, "unquoted" (a reader of YAML 1.2, to which `2e-5` is a number);
    None where that is not known. ``package``: the distribution that brings it, empty for zerocfg's own.
    """

    name: str
    claims: Claims = field(default_factory=Claims)
    lower: Callable[[Written, Written], Lowered] | None = None
    defaults: bool = False
    facts: Facts | None = None
    unread: TrainingProgram | None = None
    ranks_needed: tuple[str, ...] | None = ()
    takes_words: bool = True
    texts_are_numbers: Literal["always", "unquoted"] | None = None
    package: str = ""
