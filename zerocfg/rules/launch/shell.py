"""ZC7xx: launch lines of which the shell makes something else than they look like."""

from __future__ import annotations

import re
from collections.abc import Iterator

from zerocfg.frontends.registry import front_end
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.line import at_line, from_option, is_page, line_fix
from zerocfg.rules.subjects import WRITTEN_LINE, WrittenLine
from zerocfg.run.model import Run, SourceFile
from zerocfg.run.stages.arguments import parsed
from zerocfg.source.edit import Edit
from zerocfg.source.launch import shell_edits
from zerocfg.source.launch.launchers import like_script, read_options
from zerocfg.source.launch.line import Option, Word
from zerocfg.source.text import Span

_EXPLAINS = re.compile(r"\\[ \t]+#|^[ \t]*#[^\n]*(?:\.\.\.|…)", re.MULTILINE)
"""A comment behind a backslash, or one in the place of options that a page leaves out."""
_COMMENT = re.compile(r"^[ \t\"]*#", re.MULTILINE)


@rule("ZC748", "launch-line-cut-off", Severity.ERROR, WRITTEN_LINE)
def launch_line_cut_off(started: WrittenLine) -> Iterator[Finding]:
    line, file = started.line, started.file
    if not line.cut_off:
        return
    text, first = file.source.text, line.cut_off[0]
    if first.span.start < line.span.end or text[: line.span.end].endswith("^"):
        return  # out of a text of its own, or a line of the Windows command prompt
    between = text[line.span.end : first.span.start]
    written = text[line.span.start : line.cut_off[-1].span.end]
    if is_page(file) and ("\\\n" not in written.replace("\r\n", "\n") or _EXPLAINS.search(written)):
        return  # a list of options below a command, or a command with explanations in it
    options = read_options(line.cut_off)
    others = len(options) - 1
    names = options[0].name + (f" and {others} more option{'s' * (others > 1)}" if others > 0 else "")
    script = line.script.text if line.script is not None and like_script(line.script) else "the training script"
    if _COMMENT.search(between):
        why, remedy = "the comment ends the command", "move the comment out of the command"
    elif re.search(r"\\[ \t]", text[line.span.start : line.span.end].rpartition("\n")[2]):
        why, remedy = "a blank behind the backslash ends the command", "remove what stands behind the backslash"
    else:
        why, remedy = "no backslash continues the command to this line", "end the line above with a backslash"
    yield Finding(
        Location(file, span=options[0].span),
        f"{why}: {names} never reach{'es' * (others < 1)} {script}",
        remedy,
        [at_line(started.run)],
        severity=Severity.WARNING if is_page(file) else None,
    )


_ELSEWHERE = re.compile(
    r"^[ \t]*(?:source|\.|eval|read|export[ \t]+\$)[ \t]|^[ \t]*set[ \t]+(?:-a|-o[ \t]+allexport)", re.MULTILINE
)
"""What sets variables that the text does not name."""
_USED = re.compile(r"\$(?:(\w+)|\{(\w+)\})", re.ASCII)
_ASSIGNED = re.compile(r"^[ \t]*(?:export[ \t]+)?([A-Za-z_]\w{2,})=", re.MULTILINE | re.ASCII)
_GIVEN = re.compile(
    r"(?:SLURM|PBS|LSB|OMPI|PMI|NCCL|CUDA|MLP|VC|AWS|SM)_|(?:MASTER_ADDR|MASTER_PORT|(?:LOCAL_|NODE_)?RANK|"
    r"(?:LOCAL_)?WORLD_SIZE|HOSTNAME|HOME|USER|PWD|TMPDIR|PATH|PYTHONPATH)\Z"
)
"""Variables that schedulers, launchers and the shell set."""
_OTHER_SHELLS = (".ipynb", ".py", ".mk")


@rule("ZC750", "variable-never-set", Severity.WARNING, WRITTEN_LINE)
def variable_never_set(started: WrittenLine) -> Iterator[Finding]:
    line, file = started.line, started.file
    if is_page(file) or file.name.lower().endswith(_OTHER_SHELLS):
        return
    text = file.source.text
    options = [option for option in (*line.options, *line.script_options) if option.value is not None]
    unknown = [option for option in options if option.value is not None and option.value.value is None]
    if not unknown or "makefile" in file.name.lower() or _ELSEWHERE.search(text):
        return
    assigned = {found[1]: found for found in _ASSIGNED.finditer(text, 0, line.span.start)}
    for option in unknown:
        word = option.value.text if option.value is not None else ""
        for used in _USED.finditer(word):
            name = used[1] or used[2]
            if _GIVEN.match(name) or _is_named(name, text):
                continue
            meant = [other for other in assigned if _alike(name, other) and _count(other, text) == 1]
            if len(meant) == 1:
                yield _never_set(started.run, option, used[0], meant[0], assigned[meant[0]].span(1))


def _is_named(name: str, text: str) -> bool:
    """Whether a script names a variable other than as `$NAME` and `${NAME}`: it is set there, or has a default."""
    return re.search(rf"(?<![\w$])(?<!\$\{{){re.escape(name)}\b|\$\{{{re.escape(name)}[^}}\w]", text) is not None


def _count(name: str, text: str) -> int:
    return len(re.findall(rf"\b{re.escape(name)}\b", text))


def _never_set(run: Run, option: Option, used: str, meant: str, place: tuple[int, int]) -> Finding:
    key, file = from_option(run, option), run.launch_file
    assert file is not None
    name = used.strip("${}")
    return key.finding(
        f"{used} is set nowhere in {file.name}, where `{meant}` is and is not used: without a value from outside "
        f"{option.name} gets none",
        f"write {used.replace(name, meant)}",
        [Location(file, span=Span(*place))],
        line_fix(run, f"write {meant}", key.with_value(key.raw.replace(used, used.replace(name, meant)))),
    )


def _alike(name: str, other: str) -> bool:
    """Whether two names differ in underscores and case alone, or, where they are long, in one letter."""
    one, two = (text.replace("_", "").lower() for text in (name, other))
    if one == two:
        return name != other
    if min(len(one), len(two)) < 6:
        return False
    longer, shorter = (one, two) if len(one) >= len(two) else (two, one)
    at = next((at for at in range(len(shorter)) if longer[at] != shorter[at]), len(shorter))
    if len(longer) == len(shorter):
        return longer[at].isalpha() and shorter[at].isalpha() and longer[at + 1 :] == shorter[at + 1 :]
    return longer[at].isalpha() and longer[at + 1 :] == shorter[at:]


_VARIABLE = re.compile(
    r"((?:CUDA|NCCL|TORCH|PYTORCH|HF|WANDB|OMP|MKL|TOKENIZERS|TRANSFORMERS|ACCELERATE|DS|GLOO|UCX)_[A-Z0-9_]+|"
    r"NPROC_PER_NODE|NNODES|NODE_RANK|MASTER_ADDR|MASTER_PORT|(?:LOCAL_)?RANK|WORLD_SIZE|(?:VIDEO_)?MAX_PIXELS)="
)
"""Variables of libraries and launchers."""


@rule("ZC752", "variable-behind-command", Severity.ERROR, WRITTEN_LINE)
def variable_behind_command(started: WrittenLine) -> Iterator[Finding]:
    run, line, file = started.run, started.line, started.file
    if line.as_program is not None:
        yield _as_program(run, file, *line.as_program)
    own = front_end(line.launcher)
    if not (parsed(run) or (own is not None and not own.takes_words)):
        return
    values = {option.value.span for option in line.script_options if option.value is not None}
    for word in line.arguments:
        found = _VARIABLE.match(word.value or "")
        if found is None or not word.exact or word.span in values:
            continue
        edit = shell_edits.removed(file.source, Option(word.text, None, word.span))
        front = Edit(Span(line.span.start, line.span.start), f"{word.text} ")
        yield Finding(
            Location(file, span=word.span),
            f"{found[1]} comes after the command: it is passed to it as an argument, and the variable is not set",
            f"write {found[0]} before the command",
            fix=line_fix(run, "write it before the command", [edit] if edit is not None else None, [front]),
        )


def _as_program(run: Run, file: SourceFile, runner: Word, word: Word) -> Finding:
    """``srun NAME=value torchrun ...``: nothing of that name can be run."""
    name, start = word.text.partition("=")[0], word.span.start
    return Finding(
        Location(file, span=word.span),
        f"{name} comes after {runner.text}, which takes `{word.text}` for the program to run: nothing starts",
        f"write it before {runner.text}, or env before it",
        fix=line_fix(run, "let env set it", [Edit(Span(start, start), "env ")]),
    )
