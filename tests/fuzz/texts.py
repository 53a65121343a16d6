"""Hostile texts: real files, damaged; pieces of the formats, put together at random; what known attacks look like."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from random import Random

from tests.conftest import ROOT, texts_of_corpus
from zerocfg.catalog.schema import load_schema
from zerocfg.rulebook.pages import page_of
from zerocfg.rules.registry import ALL

HOSTILE_WORDS = (
    "\x1b]0;PWN\x07", "::error::x", "\n::stop-commands::x", "``````", "\u202e", "\ud800", "\0", "\ufeff", "\x85",
    "\u2028", "é", "模型", "##vso[x]", "%0A", "../../etc/passwd", "$(touch PWNED)", "{{ x }}", "<script>", "~", "-",
)  # fmt: skip
VALUES = (
    "0", "1", "-1", "1e999", "-0", "1e-5", "5e8", "010", "0x10", "1:30", "true", "no", "NaN", "Infinity", "null", "~",
    '"auto"', "auto", '""', "[]", "{}", "[[]]", "9" * 30, "9" * 400, "0x" + "f" * 300, "9" * 5000, "0x" + "f" * 5000,
    "1_000", "!!int 3",
    "!!python/object/apply:os.system [x]", "&a [*a]", "*a", "<<: *a", "2021-01-01", "2021-13-45", "|\n  x", ">-\n  x",
)  # fmt: skip
PIECES = {
    "yaml": (
        "key: ", "- ", "  ", "\n", "? ", ": ", "&a ", "*a", "!!map ", "---\n", "...\n", "# x\n", "{", "}", "[", "]",
        ", ",
    ),
    "json": (
        "{", "}", "[", "]", ":", ",", '"', "//x\n", "/*", "*/", "'''", "#", "\\u0000", "\\ud800", "\n", '"a": 1',
    ),
    "shell": (
        "accelerate launch ", "deepspeed ", "torchrun ", "--config_file acc.yaml ", "train.py ", '"${A[@]}"', "A=(",
        ")", "$(", "`", "'", '"', "\\", "\n", "<<EOF\n", "EOF\n", "if x; then ", "fi\n", "for i in a; do ", "done\n",
        "case x in ", "esac\n", "eval ", "bash -c ", "${A:-", "${A%/*}", "$((1/0))", "export A=", "&& ", "|| ", "; ",
        "{ ", "} ", "( ", "#", "cd ..\n", "> out\n", "--deepspeed ds.json ", "srun ", "unset A\n", "A+=x\n",
    ),
    "make": (
        "train:\n\t", "X := $(shell ", "$(X)", "${X}", "define A\n", "endef\n", "ifeq (a,b)\n", "endif\n", "\\\n",
        "include x\n",
    ),
    "markdown": (
        "```bash\n", "```\n", "~~~\n", "# x\n", "    ", "> ", "<!--", "-->", "`ds.json`:\n", "```json\n",
    ),
    "python": (
        "import deepspeed\n", "from transformers import TrainingArguments\n", "def f(", "):\n", "    ", "(", ")", "[",
        "]", "{", "}", "lambda: ", "class A:\n", '"""', "f'{", "TrainingArguments(", "deepspeed='ds.json'",
        "deepspeed.initialize(config=", "x = ", "*", "**", "subprocess.run([", "'accelerate', 'launch'",
        "if __name__ == '__main__':\n", "\\\n", "async ",
    ),
    "toml": (
        "[tool.zerocfg]\n", "select = ", "[", "]", "=", '"', "'", "\n", "[[a]]\n", "consumer = ", '"""', "1979-05-27",
        "a.b.c",
    ),
    "requirements": (
        "deepspeed", "accelerate", "==", ">=", "<", ",", "~=", "!=", "[x]", "; python_version < '3'", "-r r.txt\n",
        "-e .\n", "\n", "#", " @ https://x/y.whl", "--hash=sha256:a", "\\\n", "0.17", "*", "git+https://x@v1",
    ),
}  # fmt: skip


@cache
def words() -> tuple[str, ...]:
    """Names of keys and options."""
    found = {name for schema in ("deepspeed", "accelerate", "spec") for name in load_schema(schema).root.keys}
    return tuple(sorted(found))


@cache
def seeds(form: str) -> tuple[str, ...]:
    """Real texts of a format: of the rules' examples, of the examples, of the corpus where there is one."""
    found = [text for name, text in _files() if form_of(name) == form]
    if form in ("yaml", "json"):
        found += [
            text
            for text in texts_of_corpus("accelerate", "deepspeed", "recipe")
            if (text.lstrip()[:1] == "{") == (form == "json")
        ]
    return tuple(dict.fromkeys(text for text in found if 0 < len(text) < 20_000)) or ("",)


@cache
def _files() -> tuple[tuple[str, str], ...]:
    examples = [page_of(rule) for rule in ALL]
    of_rules = [pair for page in examples for one in (*page.bad, *page.good) for pair in one.files.items()]
    own = [path for path in sorted((ROOT / "examples").rglob("*")) if path.is_file() and path.stat().st_size < 100_000]
    return (*of_rules, *((path.name, path.read_text("utf-8", "replace")) for path in own))


@cache
def repositories() -> tuple[dict[str, str], ...]:
    """Small runs that hang together: the examples of the rules."""
    return tuple(dict(one.files) for rule in ALL for one in (*page_of(rule).bad, *page_of(rule).good))


def form_of(name: str) -> str:
    """The format of a file by its name; empty for others."""
    path = Path(name)
    if path.name.lower().startswith("makefile"):
        return "make"
    if path.name.startswith("requirements"):
        return "requirements"
    suffixes = {
        ".yml": "yaml",
        ".hjson": "json",
        ".bash": "shell",
        ".slurm": "shell",
        ".sh": "shell",
        ".md": "markdown",
    }
    return suffixes.get(path.suffix, {".py": "python", ".ipynb": "notebook"}.get(path.suffix, path.suffix[1:]))


def text(form: str, random: Random) -> bytes:
    """A hostile text of a format."""
    if form == "notebook":
        return _notebook(random)
    way = random.random()
    if way < 0.55:
        found = damaged(random.choice(seeds(form)), form, random)
    elif way < 0.9:
        found = "".join(_piece(form, random) for _ in range(random.randrange(1, 60)))
    elif way < 0.97:
        piece = _piece(form, random)
        found = random.choice(("", random.choice(seeds(form)))) + piece * random.choice(
            (10, 1000, 20_000 // max(1, len(piece)))
        )
    else:
        return random.randbytes(random.randrange(200))
    data = found.encode("utf-8", "surrogatepass" if random.random() < 0.05 else "replace")
    if random.random() < 0.03:
        data = b"".join((data[: len(data) // 2], random.randbytes(3), data[len(data) // 2 :]))
    if random.random() < 0.02:
        data = found.encode(random.choice(("utf-16", "utf-32", "latin-1")), "replace")
    return data


def damaged(found: str, form: str, random: Random) -> str:
    """A real text with a few things wrong."""
    for _ in range(random.choice((1, 1, 2, 3, 8))):
        at = random.randrange(len(found) + 1)
        end = min(len(found), at + random.randrange(1, 12))
        way = random.randrange(8)
        if way == 0:
            found = found[:at] + found[end:]
        elif way == 1:
            found = found[:at] + _piece(form, random) + found[at:]
        elif way == 2:
            found = found[:at] + found[at:end] * random.choice((2, 3, 50)) + found[end:]
        elif way == 3:
            found = found[:at]
        elif way == 4:
            lines = found.splitlines(keepends=True)
            random.shuffle(lines)
            found = "".join(lines)
        elif way == 5:
            lines = found.splitlines(keepends=True)
            found = "".join(lines + lines[: random.randrange(len(lines) + 1)])
        elif way == 6:
            found = found[:at] + random.choice(VALUES) + found[end:]
        else:
            found = found[:at] + random.choice(HOSTILE_WORDS) + found[at:]
    return found


def _piece(form: str, random: Random) -> str:
    way = random.random()
    if way < 0.55:
        return random.choice(PIECES[form])
    if way < 0.75:
        name = random.choice(words())
        return {"json": f'"{name}": ', "yaml": f"{name}: ", "shell": f"--{name} "}.get(form, f"{name} ")
    return random.choice(VALUES) if way < 0.92 else random.choice(HOSTILE_WORDS)


def _notebook(random: Random) -> bytes:
    cells: list[object] = []
    for _ in range(random.randrange(6)):
        source = text(random.choice(("python", "shell")), random).decode("utf-8", "replace")
        cell: object = {
            "cell_type": random.choice(("code", "markdown", 3)),
            "source": random.choice((source, source.splitlines(True), 1)),
        }
        cells.append(cell if random.random() < 0.9 else random.choice((None, [], "x")))
    data = json.dumps({"cells": cells, "nbformat": 4, "metadata": {}})
    return (damaged(data, "json", random) if random.random() < 0.4 else data).encode("utf-8", "replace")
