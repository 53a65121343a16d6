"""ZC7xx: options of launch lines that are given no value and need one."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog import fields
from zerocfg.catalog.admitted import admitted
from zerocfg.catalog.history import histories
from zerocfg.catalog.schema import Key, load_schema
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.argument_reader import parsed_argument
from zerocfg.rules.line import from_option, line_fix, options_without_value
from zerocfg.rules.subjects import LAUNCH_LINE, LineOfRun
from zerocfg.run.model import Run
from zerocfg.source.edit import Edit
from zerocfg.source.launch.line import LaunchLine, Option, Word


@rule("ZC749", "option-without-value", Severity.ERROR, LAUNCH_LINE)
def option_without_value(started: LineOfRun) -> Iterator[Finding]:
    line = started.line
    for option in options_without_value(started.run):
        if (script := _taken_script(started.run, line, option)) is not None:
            yield from_option(started.run, option).finding(
                f"{option.name} takes a value, and takes {script} for it: no script is left to start",
                f"give {option.name} a value, or remove it",
            )
            continue
        follows = option.value.text if option.value is not None else _next_option(line.options, option)
        yield _missing(started.run, option, follows)
    for option in line.script_options:
        key = parsed_argument(started.run, option) if option.value is None else None
        if key is not None and _needs_value(started.run, option.plain, key):
            follows = next((word.text for word in line.arguments if word.span.start >= option.span.end), "")
            if not follows.strip("\"'").startswith("-") or " " not in follows:
                yield _missing(started.run, option, follows)


def _taken_script(run: Run, line: LaunchLine, option: Option) -> str | None:
    """The script of a line where it stands as the value of an option that is given none."""
    if option.value is not None or line.script is None or run.launch_file is None:
        return None
    between = run.launch_file.source.text[option.span.end : line.script.span.start]
    return line.script.text if not between.replace("\\", "").strip() else None


def _next_option(options: tuple[Option, ...], option: Option) -> str:
    return next((other.name for other in options if other.span.start >= option.span.end), "")


def _missing(run: Run, option: Option, follows: str) -> Finding:
    what = f"{follows.partition('=')[0]} follows" if follows else "nothing follows"
    return from_option(run, option).finding(
        f"{option.name} takes a value, and {what}: the parser stops, expecting an argument",
        f"give {option.name} a value, or remove it",
    )


def _needs_value(run: Run, name: str, key: Key) -> bool:
    """Whether an argument takes no less than one word in every release that the project admits. A switch of one of
    TRL's configs is a boolean of another, or of another release."""
    inherited = name in load_schema("training-arguments").root.names
    if key.facts["cli"].get("nargs") == "?" or (not inherited and key.facts["cli"]["type"] not in ("int", "float")):
        return False
    known = histories("transformers")
    among = admitted("transformers", run.declared("transformers"))
    releases = among.releases if among is not None else tuple(known.releases)
    flags = (fields.kind(name, at) == "bool" and fields.default(name, at) is not None for at in releases)
    return not any(flags)


@rule("ZC753", "argument-given-twice", Severity.WARNING, LAUNCH_LINE)
def argument_given_twice(started: LineOfRun) -> Iterator[Finding]:
    options = started.line.script_options
    latest = {word.plain: word for word in options}
    for word in options:
        if latest[word.plain] is word:
            continue
        option, last = from_option(started.run, word), from_option(started.run, latest[word.plain])
        if option.text is None or last.text is None or option.text == last.text:
            continue
        key = parsed_argument(started.run, word)
        if key is None or key.facts["cli"].get("nargs") == "+":  # a list is more than its first word
            continue
        yield option.finding(
            f"{option.name} {option.text} is replaced by {last.text} further on",
            "keep one of the two",
            [last.at(label="the one that counts")],
        )


@rule("ZC755", "comma-kept-in-a-list", Severity.ERROR, LAUNCH_LINE)
def comma_kept_in_a_list(started: LineOfRun) -> Iterator[Finding]:
    line = started.line
    for option in line.script_options:
        key = parsed_argument(started.run, option) if option.plain == "lora_target_modules" else None
        if key is None or key.facts["cli"].get("nargs") not in ("+", "*"):
            continue
        wrong = [word for word in _words(line, option) if word.value is not None and word.value.rstrip().endswith(",")]
        if wrong:
            yield from_option(started.run, option).finding(
                f"{option.name} is a list of words, and `{wrong[0].value}` keeps its comma: PEFT adapts no module for "
                "it, and stops where no word of the list fits one",
                "separate the names by blanks alone",
                fix=line_fix(started.run, "remove the commas", *(_without_comma(started.run, word) for word in wrong)),
            )


def _words(line: LaunchLine, option: Option) -> list[Word]:
    """The words that an option takes which takes several."""
    ends = min(
        (other.span.start for other in line.script_options if other.span.start > option.span.start), default=None
    )
    own = [] if option.value is None else [option.value]
    own += [
        word
        for word in line.arguments
        if word.span.start >= option.span.end and (ends is None or word.span.start < ends)
    ]
    return list({word.span: word for word in own}.values())


def _without_comma(run: Run, word: Word) -> list[Edit] | None:
    """The edit that takes the comma behind a word away; None where it does not stand there as it is."""
    assert run.launch_file is not None
    written = run.launch_file.source.text[word.span.start : word.span.end]
    plain = word.exact and len(written) > 1 and written.endswith(",")
    return [Edit(word.span, written[:-1])] if plain else None
