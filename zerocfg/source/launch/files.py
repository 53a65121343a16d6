"""Launch lines of shell scripts, batch scripts, Makefiles, Markdown pages, notebooks, Dockerfiles and Python files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

from zerocfg.source.launch.allowance import Allowance
from zerocfg.source.launch.heredocs import Heredocs
from zerocfg.source.launch.line import LaunchFile, Written
from zerocfg.source.launch.programs import NONE, Programs
from zerocfg.source.launch.shell import read_shell, read_words
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.paths import is_image
from zerocfg.source.text import BOM, SourceText

_MENTIONS = ("accelerate", "deepspeed", "torchrun", "torch.distributed", "--per_device_train_batch_size")
_PAGES = (".md", ".markdown", ".mdx", ".rst")
_ON_ISSUES = ("issues.md", "issue_template.md")
"""Pages on how to report a mistake: their commands are examples of what a report holds."""


def read_launch_lines(source: SourceText, programs: Programs = NONE) -> LaunchFile:
    """The launch lines of a file, whose kind follows from its name. Never raises. ``programs``: those that start a
    training in addition to the launchers."""
    found = LaunchFile(source)
    name = _base_name(source)
    if name in _ON_ISSUES or not _mentions(programs).search(source.text):
        return found
    allowance = Allowance()
    if name.endswith(_PAGES):
        from zerocfg.source.launch.markdown import named_blocks, shell_blocks

        heredocs = Heredocs(choices=True)
        for block in shell_blocks(source.text):
            found.lines += read_shell(
                source, block, heredocs=heredocs, allowance=allowance, others=found.others, programs=programs
            )
        shown = tuple(named_blocks(source.text)) if found.lines else ()
        if shown:
            found.lines = [replace(line, written=(*line.written, *shown)) for line in found.lines]
    elif _is_makefile(name):
        from zerocfg.source.launch.makefile import recipes

        for recipe, exported in recipes(source.text):
            found.lines += read_shell(
                source, recipe, exported, allowance=allowance, others=found.others, programs=programs
            )
    elif name.endswith(".ipynb"):
        from zerocfg.source.launch.notebook import environment_of, started_of

        environment, heredocs = environment_of(source), Heredocs()
        for started in started_of(source):
            if isinstance(started, Written):
                heredocs.put(started)
            else:
                found.lines += read_shell(
                    source,
                    started,
                    environment,
                    heredocs=heredocs,
                    allowance=allowance,
                    others=found.others,
                    programs=programs,
                )
        found.written = heredocs.known()
    elif name.endswith(".py"):
        from zerocfg.source.launch.subprocesses import commands_of

        for words in commands_of(source):
            if isinstance(words, Chars):
                found.lines += read_shell(source, words, allowance=allowance, programs=programs)
            else:
                found.lines += read_words(source, words, allowance, programs)
    elif is_image(name):
        from zerocfg.source.launch.dockerfile import stages

        for stage in stages(source.text):
            found.lines += read_shell(source, stage, allowance=allowance, others=found.others, programs=programs)
    else:
        found.lines += read_shell(
            source, _whole(source), script=True, allowance=allowance, others=found.others, programs=programs
        )
    found.exhausted = tuple(allowance.exhausted.values())
    return found


@cache
def _mentions(programs: Programs) -> re.Pattern[str]:
    """What a file with a launch line holds."""
    return re.compile("|".join(map(re.escape, (*_MENTIONS, *programs.mentions))))


def shell_texts(source: SourceText) -> Iterator[Chars]:
    """The texts of a file that a shell reads."""
    name = _base_name(source)
    if name.endswith(_PAGES):
        from zerocfg.source.launch.markdown import shell_blocks

        yield from shell_blocks(source.text)
    elif _is_makefile(name):
        from zerocfg.source.launch.makefile import recipes

        yield from (recipe for recipe, _ in recipes(source.text))
    elif name.endswith(".ipynb"):
        from zerocfg.source.launch.notebook import shell_of

        yield from shell_of(source)
    elif name.endswith(".py"):
        from zerocfg.source.launch.subprocesses import commands_of

        yield from (words for words in commands_of(source) if isinstance(words, Chars))
    elif is_image(name):
        from zerocfg.source.launch.dockerfile import stages

        yield from stages(source.text)
    else:
        yield _whole(source)


def _base_name(source: SourceText) -> str:
    return source.name.replace("\\", "/").rpartition("/")[2].lower()


def _is_makefile(name: str) -> bool:
    return name in ("makefile", "gnumakefile") or name.endswith((".mk", ".mak")) or name.startswith("makefile.")


def _whole(source: SourceText) -> Chars:
    start = 1 if source.text.startswith(BOM) else 0
    text = source.text[start:]
    return Chars(text, range(start, start + len(text)))
