"""Defaults of training arguments that the new releases changed: the old value is written out where nothing else may say
another one, and listed where something may."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from zerocfg.catalog.versions import library_name
from zerocfg.migrate.argument_history import absent_argument
from zerocfg.migrate.arguments import lacking
from zerocfg.migrate.defaults import ChangedDefault, changed_arguments, changed_dtype, changed_in_call
from zerocfg.migrate.plan import Plan
from zerocfg.migrate.program import literal, program_of
from zerocfg.migrate.steps import Left, Put, Step, editable
from zerocfg.rules import line
from zerocfg.rules.api import Location, at
from zerocfg.rules.argument_reader import guessed, reader, trainer_configs
from zerocfg.rules.arguments import arguments
from zerocfg.run.model import Call, Run
from zerocfg.run.script.arguments import is_arguments
from zerocfg.run.stages.arguments import parsed
from zerocfg.source.edit import Edit
from zerocfg.source.launch.line import Option, Word
from zerocfg.source.text import Span


def steps(run: Run, plan: Plan) -> Iterator[Step | Left]:
    yield from _dtypes(run, plan)
    made = [call for call in run.script.calls if is_arguments(call.name)] if run.script is not None else []
    for call in made:
        if call.name.startswith("transformers.") or _config(call) in trainer_configs():
            yield from _of_call(call, plan)
    if reader(run) is None or (made and not any(map(is_arguments, parsed(run)))):
        return
    changes = list(changed_arguments(run, plan.source, plan.target))
    sure = (
        [change for change in changes if not change.of]
        if run.script is not None and run.arguments_whole is True
        else []
    )
    yield from _of_run(run, plan, sure)
    rest = [change for change in changes if change not in sure]
    yield from _listed(_place(run), rest, "where the script does not say otherwise, ")


def _dtypes(run: Run, plan: Plan) -> Iterator[Left]:
    """Models that are loaded in another dtype than before: which one is wanted, only the author knows."""
    dtype = changed_dtype(plan.source, plan.target)
    if dtype is None or run.script is None:
        return
    meant = {"auto": "the checkpoint's dtype", "float32": "float32"}
    for default_dtype in run.script.default_dtypes:
        place = at(default_dtype.origin)
        if place is not None:
            yield Left(
                place,
                f"without a dtype, `{default_dtype.name}` gives weights in {meant[dtype.now]} "
                f"from {library_name(dtype.library)} {dtype.since} on and gave {meant[dtype.then]} before; "
                "write the one that is trained",
                ("dtype",),
            )


def _config(call: Call) -> str:
    return call.name.rpartition(".")[2]


def _of_run(run: Run, plan: Plan, changes: Sequence[ChangedDefault]) -> Iterator[Step | Left]:
    """The script was read: no class and no parser of its own says another default than the library's."""
    writable = [change for change in changes if _writable(change)]
    if run.recipe is not None and editable(run.recipe):
        for item in writable:
            yield Step(Location(run.recipe), _why(item), (Put((item.name,), item.then),), names=(item.name,))
    elif last := _last_option(run, plan):
        writable = [item for item in writable if item.then is not None]
        words = " ".join(f"--{item.name} {item.then}" for item in writable)
        option = line.from_option(run, last)
        edits = tuple(option.followed_by(words) or ())
        if not edits:
            writable = []
        if writable:
            yield Step(option.at(), _whys(writable), edits=edits, names=_names(writable))
    else:
        writable = []
    for change in changes:
        if change not in writable:
            yield Left(_place(run), _why(change), (change.name,))


def _last_option(run: Run, plan: Plan) -> Option | None:
    """The last option of the line that stays, if words for the library's parser can stand behind it."""
    options = run.launch.script_options if run.launch is not None else ()
    if run.launch is None or run.recipe is not None or guessed(run) or not any(map(is_arguments, parsed(run))):
        return None
    starts = {item.span.start for item in options}
    gone = {
        argument.origin.span for argument in arguments(run) if argument.on_line and lacking(run, argument, plan.target)
    }
    for option in reversed([item for item in options if item.span not in gone]):
        behind = _behind(run.launch.arguments, option)
        possible = line.from_option(run, option).followed_by("") is not None
        if possible and (behind is None or behind.span.start in starts):
            return option
    return None


def _behind(words: Sequence[Word], option: Option) -> Word | None:
    """The word that follows an option with its value, as the script gets them."""
    own = [at for at, word in enumerate(words) if word.exact and _holds(option.span, word.span)]
    return words[own[-1] + 1] if own and own[-1] + 1 < len(words) else None


def _holds(outer: Span, inner: Span) -> bool:
    return outer.start <= inner.start and inner.end <= outer.end


def _of_call(call: Call, plan: Plan) -> Iterator[Step | Left]:
    changes = list(changed_in_call(call, plan.source, plan.target))
    at = Location(call.file, span=call.span)
    if call.derived or not call.complete:
        other = "its class" if call.derived else "what it is given by `**` or by its position"
        yield from _listed(at, changes, f"where {other} does not say otherwise, ")
        return
    writable = [change for change in changes if _writable(change)]
    edits = _added(call, writable, plan)
    if edits:
        yield Step(at, _whys(writable), edits=edits, names=_names(writable))
    yield from _listed(at, [change for change in changes if not edits or change not in writable], "")


def _added(call: Call, changes: Sequence[ChangedDefault], plan: Plan) -> tuple[Edit, ...]:
    """The arguments, behind the last one of the call that stays; none where its text could not be found."""
    program = program_of(call.file)
    node = program.call(call.span.start) if program is not None else None
    classes = frozenset((_config(call),)) if call.name.startswith("trl.") else frozenset[str]()
    stays = [word for word in node.keywords if not _goes(word.arg, classes, plan)] if node is not None else []
    if program is None or not stays or not changes:
        return ()
    return program.added(program.span(stays[-1]), [f"{change.name}={literal(change.then)}" for change in changes])


def _goes(name: str | None, classes: frozenset[str], plan: Plan) -> bool:
    return name is not None and absent_argument(name, plan.target, classes) is not None


def _writable(item: ChangedDefault) -> bool:
    """Whether the new release surely takes the old value: a word of TRL may be gone with its place as the default, as
    the packing by "ffd" is."""
    return item.library != "trl" or not isinstance(item.then, str)


def _listed(at: Location, changes: Sequence[ChangedDefault], where: str) -> Iterator[Left]:
    if changes:
        yield Left(at, where + _whys(changes), _names(changes))


def _whys(changes: Sequence[ChangedDefault]) -> str:
    return "; ".join(map(_why, changes))


def _why(item: ChangedDefault) -> str:
    edge = f"{library_name(item.library)} {item.since}"
    of = f" of {item.of}" if item.of else ""
    return f"the default of `{item.name}`{of} is {item.now!r} from {edge} on and was {item.then!r}"


def _names(changes: Sequence[ChangedDefault]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(change.name for change in changes))


def _place(run: Run) -> Location:
    """What states the arguments."""
    if run.recipe is not None:
        return Location(run.recipe)
    if run.launch is not None and run.launch_file is not None:
        return line.at_line(run)
    if run.script is not None:
        return Location(run.script.file)
    assert run.spec is not None, "a run has a recipe, a line, a script or a spec"
    return Location(run.spec, ("runs",))
