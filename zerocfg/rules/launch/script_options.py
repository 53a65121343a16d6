"""ZC756: options of a launch line that the script's parser does not take."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import WHOLE_RUN, Finding, Location, Severity, rule
from zerocfg.rules.key import from_origin
from zerocfg.rules.line import all_options_seen
from zerocfg.run.model import Run, StrictParser
from zerocfg.source.launch.line import Option

_NAMED = 3
"""Options that a message names; of more it tells how many."""


@rule("ZC756", "option-not-declared", Severity.ERROR, WHOLE_RUN)
def option_not_declared(run: Run) -> Iterator[Finding]:
    parser = run.script.strict_parser if run.script is not None else None
    if parser is None or run.launch is None or run.launch_file is None or not all_options_seen(run):
        return
    refused = _refused(run)
    if not refused or for_another_script(run):
        return
    first, *others = refused
    yield Finding(
        Location(run.launch_file, span=first.span),
        f"the script's parser does not declare {_named(refused)}: it stops there",
        "declare them in the parser, or take them from the line" if others else _advice(first, parser),
        [*(Location(run.launch_file, span=option.span) for option in others), from_origin(run, parser.place).at()],
    )


def for_another_script(run: Run) -> bool:
    """Whether the script's parser refuses so many options of the line that it is for another one of this name."""
    refused = len(_refused(run))
    return refused > 1 and 2 * refused > len(_given(run))


def _refused(run: Run) -> list[Option]:
    parser = run.script.strict_parser if run.script is not None else None
    return [option for option in _given(run) if parser is not None and not parser.takes(option.name)]


def _given(run: Run) -> list[Option]:
    options = run.launch.script_options if run.launch is not None else ()
    return [option for option in options if option.name.startswith("--")]


def _named(refused: list[Option]) -> str:
    names = list(dict.fromkeys(f"`{option.name}`" for option in refused))
    if len(names) > _NAMED:
        names = [*names[: _NAMED - 1], f"{len(names) - _NAMED + 1} more"]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _advice(option: Option, parser: StrictParser) -> str:
    near = closest(option.name, sorted(name for name in parser.options if name.startswith("--")))
    return f"did you mean `{near}`?" if near else "declare it in the parser, or take it from the line"
