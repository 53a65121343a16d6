"""Whether a file that is not there may be made before the job starts: by the launch script, or by one beside it."""

from __future__ import annotations

import re
from pathlib import Path

from zerocfg.run.model import Run

MOST_SCRIPTS = 50
LARGEST = 200_000
_MAKES = re.compile(r">|\b(?:tee|cp|mv|ln|wget|curl|rsync|open|dump|dumps|write|write_text|sed -i)\b")


def made_before(run: Run, name: str) -> bool:
    """``name``: the path as the launch line or a config gives it."""
    line, file = run.launch, run.launch_file
    if line is None or file is None:
        return False
    if line.directory is not None and line.directory.startswith("/"):
        return True  # a folder of the machine that runs the job, which nobody can look into
    if file.kind == "script":
        return True  # other code may write it, fetch it, or change the folder
    base = name.replace("\\", "/").rpartition("/")[2]
    text = file.source.text
    if _makes(text[: line.span.start] + "\n" + text[line.span.end :], base):
        return True
    return file.path is not None and any(_makes(other, base) for other in _beside(file.path))


def _makes(text: str, base: str) -> bool:
    """Whether a line that writes something names the file, or a variable that holds its name or one that is put
    together from others."""
    end = re.escape(base[base.rfind(".") :] if "." in base else base)
    named = {base}
    for found in re.finditer(rf"^[ \t]*(?:export[ \t]+)?(\w+)[ \t]*=([^\n]*{end})", text, re.MULTILINE):
        if base in found[2] or "$" in found[2]:
            named |= {f"${found[1]}", f"${{{found[1]}}}"} | ({found[1]} if "open(" in text else set())
    return any(_MAKES.search(line) and any(one in line for one in named) for line in text.splitlines())


def _beside(path: Path) -> list[str]:
    found: list[str] = []
    try:
        beside = sorted(one for one in path.resolve().parent.iterdir() if one.suffix in (".py", ".sh"))
        for one in beside[:MOST_SCRIPTS]:
            if one.resolve() != path.resolve() and one.stat().st_size <= LARGEST:
                found.append(one.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        pass
    return found
