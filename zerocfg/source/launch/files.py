"""Launch lines of shell scripts, batch scripts, Makefiles, Markdown pages, notebooks and Python files."""

from __future__ import annotations

import re
from dataclasses import replace

from zerocfg.source.launch.allowance import Allowance
from zerocfg.source.launch.heredocs import Heredocs
from zerocfg.source.launch.line import LaunchFile, Written
from zerocfg.source.launch.shell import read_shell, read_words
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.text import BOM, SourceText

_MENTIONS = re.compile(
    r"accelerate|deepspeed|torchrun|torch\.distributed|llamafactory-cli|(?:lmf|axolotl) train|swift (?:sft|pt|rlhf)"
)


def read_launch_lines(source: SourceText) -> LaunchFile:
    """The launch lines of a file, whose kind follows from its name. Never raises."""
    found = LaunchFile(source)
    if not _MENTIONS.search(source.text):
        return found
    allowance = Allowance()
    name = source.name.replace("\\", "/").rpartition("/")[2].lower()
    if name.endswith((".md", ".markdown", ".mdx", ".rst")):
        from zerocfg.source.launch.markdown import named_blocks, shell_blocks

        heredocs = Heredocs(choices=True)
        for block in shell_blocks(source.text):
            found.lines += read_shell(source, block, heredocs=heredocs, allowance=allowance)
        shown = tuple(named_blocks(source.text)) if found.lines else ()
        if shown:
            found.lines = [replace(line, written=(*line.written, *shown)) for line in found.lines]
    elif name in ("makefile", "gnumakefile") or name.endswith((".mk", ".mak")) or name.startswith("makefile."):
        from zerocfg.source.launch.makefile import recipes

        for recipe, exported in recipes(source.text):
            found.lines += read_shell(source, recipe, exported, allowance=allowance)
    elif name.endswith(".ipynb"):
        from zerocfg.source.launch.notebook import environment_of, started_of

        environment, heredocs = environment_of(source), Heredocs()
        for started in started_of(source):
            if isinstance(started, Written):
                heredocs.put(started)
            else:
                found.lines += read_shell(source, started, environment, heredocs=heredocs, allowance=allowance)
        found.written = heredocs.known()
    elif name.endswith(".py"):
        from zerocfg.source.launch.subprocesses import commands_of

        for words in commands_of(source):
            if isinstance(words, Chars):
                found.lines += read_shell(source, words, allowance=allowance)
            else:
                found.lines += read_words(source, words, allowance)
    else:
        start = 1 if source.text.startswith(BOM) else 0
        text = source.text[start:]
        found.lines += read_shell(
            source, Chars(text, range(start, start + len(text))), script=True, allowance=allowance
        )
    found.exhausted = tuple(allowance.exhausted.values())
    return found
