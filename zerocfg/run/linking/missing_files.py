"""Whether a missing file may exist when the job starts, created by the launch script or one beside it; and
whether the line is meant for another checkout."""

from __future__ import annotations

import re
from pathlib import Path

from zerocfg.budgets import WRITER_BYTES
from zerocfg.patterns import pattern
from zerocfg.run.model import Run
from zerocfg.source import disk
from zerocfg.source.paths import entries

MOST_SCRIPTS = 50
_MAKES = pattern(
    r">|<<|\baccelerate[ \t]+config\b|\bpython[\d.]*[ \t]+-c\b|"
    r"\b(?:tee|cp|mv|ln|wget|curl|rsync|open|dump|dumps|write|write_text|sed -i)\b"
)
"""What writes a file, or, as a program in the script itself that is handed its name, may write it."""

_LAUNCHES = pattern(r"\baccelerate[ \t]+launch\b|\b(?:accelerate-launch|deepspeed|torchrun)\b|\btorch\.distributed\b")
_READS = r"(?<![\w-])--(?:config_file|deepspeed(?:_config)?)[ \t=]+[\"']?(?:[^\s\"']*/)?"
"""Options by which a line that trains names the config that it reads, also where it writes other files."""
_OUTPUT = r"(?<![\w-])(?:-o|--(?:out|dest|target|save|write)[\w-]*)"
"""Options that name the output of a program."""


def created_before_launch(run: Run, name: str) -> bool:
    """``name``: the path as the launch line or a config gives it."""
    line, file = run.launch, run.launch_file
    if line is None or file is None:
        return False
    if line.directory is not None and line.directory.startswith("/") and not _around(file.path, line.directory):
        return True  # a folder of the machine that runs the job, which nobody can look into
    if file.kind == "script":
        return True  # other code may write it, fetch it, or change the folder
    base = name.replace("\\", "/").rpartition("/")[2]
    text = file.source.text
    if _makes(text[: line.span.start] + "\n" + text[line.span.end :], base):
        return True
    return file.path is not None and any(_makes(other, base) for other in _siblings(file.path))


def launches_other_checkout(run: Run, name: str) -> bool:
    """Whether the launch line is for a checkout of something else: neither the script that it starts is here, nor any
    config that it names, nor a folder with others of this one's kind."""
    word = run.launch.script if run.launch is not None and not run.launch.module else None
    script = word.value if word is not None else None
    if run.entry_point is not None or script is None or script.startswith("/") or not script.endswith((".py", ".sh")):
        return False
    if (
        run.accelerate is not None
        or run.recipe is not None
        or run.framework_recipe is not None
        or run.deepspeed is not None
    ):
        return False
    pointing = run.launch_file.path if run.launch_file is not None else None
    return pointing is None or not has_similar_files(pointing, name)


def has_similar_files(pointing: Path, name: str) -> bool:
    """Whether the folder of a path is here, within reach of the file that names it, with other files of its kind."""
    folder, _, base = name.replace("\\", "/").removeprefix("./").rpartition("/")
    suffix = base.rpartition(".")[2]
    if not folder or not suffix.isalnum() or "\0" in folder:
        return False
    ending = f".{suffix}"
    return any(
        entry.name.endswith(ending)
        for above in disk.resolved(pointing).parents[:3]
        for entry in entries(above / folder)
    )


def _makes(text: str, base: str) -> bool:
    """Whether a line that writes something, or an option for what a program writes, names the file, or a variable that
    holds its name or one that is put together from others."""
    end = re.escape(base[base.rfind(".") :] if "." in base else base)
    named = {base}
    for found in re.finditer(rf"^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=([^\n]*{end})", text, re.MULTILINE):
        if base in found[2] or "$" in found[2]:
            named |= {f"${found[1]}", f"${{{found[1]}}}"} | ({found[1]} if "open(" in text else set())
    named = {item for item in named if item in text}  # most texts name none of them, and are not looked at line by line
    if not named:
        return False
    given = "|".join(map(re.escape, sorted(named)))
    read = re.compile(rf"{_READS}(?:{given})(?![\w.])")
    for line in text.splitlines():
        if any(name in line for name in named) and _MAKES.search(line):
            left = read.sub("", line) if _LAUNCHES.search(line) else line
            if any(name in left for name in named):
                return True
    return re.search(rf"{_OUTPUT}[ \t=]+[\"']?(?:[^\s\"']*/)?(?:{given})(?![\w.])", text) is not None


def _around(path: Path | None, directory: str) -> bool:
    """Whether a folder exists in the tree of the file: a script may derive it from its own location."""
    folder = Path(directory)
    if path is None or not any(folder.is_relative_to(above) for above in disk.resolved(path).parents[:4] if above.name):
        return False
    return disk.is_dir(folder)


def _siblings(path: Path) -> list[str]:
    found: list[str] = []
    try:
        siblings = [entry for entry in entries(disk.resolved(path).parent) if entry.suffix in (".py", ".sh")]
        for item in siblings[:MOST_SCRIPTS]:
            if disk.real(item) != disk.real(path):
                size, data = disk.content(item, WRITER_BYTES, 0)
                if size <= WRITER_BYTES:
                    found.append(data.decode("utf-8", "replace"))
    except OSError:
        pass
    return found
