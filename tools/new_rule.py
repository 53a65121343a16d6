"""``python -m tools.new_rule ZC249 steps-never-end --module batch/accumulation --severity error``: a rule to fill in.

Writes its page, and its function at the end of the module; lists it in tests/rules/codes.txt. Every place to fill says
FILL; the tests fail until none is left. ``python -m tools.new_rule ZC249 --undo`` takes all of it away again.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CODES = Path("tests", "rules", "codes.txt")
NEEDED = {
    "collections.abc": ("Iterator",),
    "zerocfg.rules.api": ("Finding", "Severity", "rule"),
    "zerocfg.rules.key": ("Key",),
    "zerocfg.rules.subjects": ("deepspeed_key",),
}
RULE = """@rule("{code}", "{name}", Severity.{upper}, deepspeed_key("FILL"))
def {function}(key: Key) -> Iterator[Finding]:
    if key.value is True:
        yield key.finding(
            "FILL: what is set, and the consequence", "FILL: what to do", fix=key.delete("FILL: what the edit does")
        )
"""
PAGE = """# {code} {name}

FILL: what is written, in a sentence.

FILL: why it is bad.

## What happens

FILL: in the words that the library prints.

## Example

Read by `deepspeed`.

```json ds.json
{{"train_micro_batch_size_per_gpu": 1, "FILL": true}}
```

```yaml finds
- {severity}: 'ds.json: "FILL": true'
  fix: safe  # FILL: safe, unsafe, or no such line where the rule offers no fix
```

## Use instead

Read by `deepspeed`.

```json ds.json
{{"train_micro_batch_size_per_gpu": 1}}
```

## Fix

FILL: what it changes and what it assumes; the heading goes where the rule offers none.

## When to ignore

FILL: when; the heading goes where the run stops.

## Proof

```yaml proof
phase: init
raises: 'FILL: the error, or shows: what is seen'
```
"""


def with_rule(text: str, code: str, name: str, severity: str) -> str:
    """The text of a module of rules with one more at its end."""
    imported = {
        name.name: node for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) for name in node.names
    }
    missing = [
        f"from {module} import {name}\n" for module, names in NEEDED.items() for name in names if name not in imported
    ]
    last_import = max(node.end_lineno or 0 for node in imported.values())
    lines = text.splitlines(keepends=True)
    function = RULE.format(
        code=code, name=name, severity=severity, upper=severity.upper(), function=name.replace("-", "_")
    )
    return "".join([*lines[:last_import], *missing, *lines[last_import:], "\n\n", function])


def unfilled(root: Path, code: str) -> list[str]:
    """What is left to fill in of a rule: `docs/rules/ZC499.md:3: FILL: what is written, in a sentence.`"""
    found = []
    page = _page(root, code)
    if page.is_file():
        found += _fills(root, page, page.read_text(encoding="utf-8").splitlines())
    for path in sorted((root / "zerocfg" / "rules").glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        for node in ast.parse(text).body if _FILL.search(text) else ():
            if isinstance(node, ast.FunctionDef) and any(_names_rule(item, code) for item in node.decorator_list):
                first = min(item.lineno for item in node.decorator_list)
                found += _fills(root, path, text.splitlines()[first - 1 : node.end_lineno], first)
    return found


_FILL = re.compile(r"\bFILL\b")


def _fills(root: Path, path: Path, lines: list[str], first: int = 1) -> list[str]:
    name = path.relative_to(root).as_posix()
    return [f"{name}:{number}: {line.strip()}" for number, line in enumerate(lines, first) if _FILL.search(line)]


def without_rule(text: str, code: str) -> str:
    """The text of a module without the function of a rule. Imports that only it needed stay."""
    lines = text.splitlines(keepends=True)
    for node in ast.parse(text).body:
        if isinstance(node, ast.FunctionDef) and any(_names_rule(decorator, code) for decorator in node.decorator_list):
            first = min(decorator.lineno for decorator in node.decorator_list) - 1
            above = "".join(lines[:first]).rstrip("\n")
            below = "".join(lines[node.end_lineno :]).lstrip("\n")
            return f"{above}\n\n\n{below}" if below else f"{above}\n"
    return text


def _names_rule(decorator: ast.expr, code: str) -> bool:
    """Whether a decorator is ``@rule("ZC249", ...)``."""
    return (
        isinstance(decorator, ast.Call)
        and isinstance(decorator.func, ast.Name)
        and decorator.func.id == "rule"
        and [argument.value for argument in decorator.args[:1] if isinstance(argument, ast.Constant)] == [code]
    )


def add(root: Path, code: str, name: str, module: str, severity: str) -> tuple[Path, Path]:
    """Write a rule to fill in; its page and its module. Raises ValueError for what cannot be one."""
    path = root / "zerocfg" / "rules" / f"{module}.py"
    if not path.is_file():
        raise ValueError(f"there is no module {path.relative_to(root)}")
    if not re.fullmatch(r"ZC\d{3}", code) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", name):
        raise ValueError("a code is written as ZC249, a name as steps-never-end")
    given = (root / CODES).read_text(encoding="utf-8").splitlines()
    if taken := [line for line in given if code in line.split() or name in line.split()]:
        raise ValueError(f"given already, and never given twice: {taken[0]}")
    path.write_text(with_rule(path.read_text(encoding="utf-8"), code, name, severity), encoding="utf-8")
    page = _page(root, code)
    page.write_text(PAGE.format(code=code, name=name, severity=severity), encoding="utf-8")
    (root / CODES).write_text("\n".join(sorted([*given, f"{code} {name}"])) + "\n", encoding="utf-8")
    _tidy(path, "I")
    return page, path


def undo(root: Path, code: str) -> list[Path]:
    """Take a rule away that was never committed; the files that changed. Raises ValueError for any other."""
    before = subprocess.run(
        ["git", "show", f"HEAD:./{CODES.as_posix()}"], cwd=root, capture_output=True, text=True, check=True
    ).stdout
    if code in before.split():
        raise ValueError(f"{code} is committed, and its code stays given: move it to REMOVED in zerocfg/rules/codes.py")
    given = (root / CODES).read_text(encoding="utf-8").splitlines()
    kept = [line for line in given if code not in line.split()]
    if kept == given:
        raise ValueError(f"there is no rule {code}")
    (root / CODES).write_text("\n".join(kept) + "\n", encoding="utf-8")
    changed = [root / CODES]
    if _page(root, code).exists():
        _page(root, code).unlink()
        changed.append(_page(root, code))
    for path in sorted((root / "zerocfg" / "rules").glob("*/*.py")):
        text = path.read_text(encoding="utf-8")
        if (after := without_rule(text, code)) != text:
            path.write_text(after, encoding="utf-8")
            _tidy(path, "F401,I")
            changed.append(path)
    return changed


def _page(root: Path, code: str) -> Path:
    return root / "docs" / "rules" / f"{code}.md"


def _tidy(path: Path, rules: str) -> None:
    """Imports as ruff wants them; ``rules``: what it may mend."""
    ruff = [sys.executable, "-m", "ruff"]
    subprocess.run([*ruff, "check", "-q", "--fix", "--select", rules, str(path)], check=True)
    subprocess.run([*ruff, "format", "-q", str(path)], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="A rule to fill in")
    parser.add_argument("code", help="as ZC249: free, and of the family of the module")
    parser.add_argument("name", nargs="?", help="as steps-never-end: what is wrong, not what to do")
    parser.add_argument("--module", help="as batch/accumulation: a file below zerocfg/rules")
    parser.add_argument("--severity", choices=("error", "warning", "note"), default="error")
    parser.add_argument("--undo", action="store_true", help="take the rule of this code away, until it is committed")
    words = parser.parse_args()
    if not words.undo and not (words.name and words.module):
        parser.error("a new rule needs its name and --module")
    try:
        if words.undo:
            print("\n".join(str(path.relative_to(ROOT)) for path in undo(ROOT, words.code)))
            return
        page, path = add(ROOT, words.code, words.name, words.module, words.severity)
    except ValueError as error:
        parser.error(str(error))
    line = next(
        n for n, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if f'"{words.code}"' in text
    )
    print(f"{page.relative_to(ROOT)}\n{path.relative_to(ROOT)}:{line}")
    print(f"Fill in what says FILL in both, then: make rule CODE={words.code}")
    print(f"To take it away again: make new-rule CODE={words.code} UNDO=1")


if __name__ == "__main__":
    main()
