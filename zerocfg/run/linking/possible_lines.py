"""Recipes that launch lines may name: by a path of which only the running shell knows all, as that of a loop."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from zerocfg.record import replace
from zerocfg.run.model import RecipeReader, Run
from zerocfg.source import disk
from zerocfg.source.launch.line import Word

_BEGINS_ABOVE = re.compile(r"(?:\.{1,2}/)+")
_ENDING = re.compile(r"\.ya?ml\Z|\.json\Z")


def with_script_of_lines(run: Run, known: Sequence[Run]) -> Run:
    """The run of a recipe by itself, with the script that every line starts which may name it; the run as it is where
    no line may, or where lines start several scripts."""
    if run.recipe is None or run.recipe.path is None or run.consumer not in (None, "transformers"):
        return run
    path = disk.resolved(run.recipe.path).as_posix()
    lines = [(line, reader) for line in known for word, reader in _words(line) if _may_be(word, path)]
    scripts = {id(line.script): line for line, _ in lines}
    if len(scripts) != 1:
        return run
    (line,) = scripts.values()
    if line.script is None or line.consumer not in ("transformers", "trl"):
        return run
    readers = {reader for _, reader in lines}
    reader = readers.pop() if len(readers) == 1 else None
    return replace(run, consumer=line.consumer, recipe_reader=reader, script=line.script)


def _words(run: Run) -> Iterator[tuple[Word, RecipeReader | None]]:
    """The words of a line that may name its recipe, with the parser that reads it then."""
    line = run.launch
    if line is None or run.recipe is not None or run.script is None:
        return
    for option in line.script_options:
        if option.plain == "config" and option.value is not None:
            yield option.value, "trl"
    if line.arguments:
        yield line.arguments[0], "hf" if len(line.arguments) == 1 else None


def _may_be(word: Word, path: str) -> bool:
    """Whether a word of which parts are known may be a path; no if these tell nothing but what kind of file it is."""
    if not word.parts or not "".join((*word.parts[:-1], _ENDING.sub("", word.parts[-1]))).strip("/."):
        return False
    first, *others = word.parts
    first = _BEGINS_ABOVE.sub("", first.replace("\1", "").lstrip("/"), count=1)
    given = ".*".join(map(re.escape, (first, *others)))
    return re.search(rf"{'/' if first else ''}{given}\Z", path) is not None
