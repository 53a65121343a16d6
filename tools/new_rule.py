"""``python -m tools.new_rule ZC249 steps-never-end --module batch/accumulation --severity error``: a rule to fill in.

Writes its page, and its function at the end of the module; lists it in tests/rules/codes.txt. Every place to fill says
FILL; the tests fail until none is left.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
from pathlib import Path

from zerocfg.rulebook.pages import page_folder

ROOT = Path(__file__).resolve().parent.parent
CODES = ROOT / "tests" / "rules" / "codes.txt"
NEEDED = {
    "collections.abc": ("Iterator",),
    "zerocfg.rules.api": ("Finding", "Severity", "rule"),
    "zerocfg.rules.key": ("deepspeed",),
    "zerocfg.run.model": ("Run",),
}
RULE = """@rule("{code}", "{name}", Severity.{upper})
def {function}(run: Run) -> Iterator[Finding]:
    key = deepspeed(run, "FILL")
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


def main() -> None:
    parser = argparse.ArgumentParser(description="A rule to fill in")
    parser.add_argument("code", help="as ZC249: free, and of the family of the module")
    parser.add_argument("name", help="as steps-never-end: what is wrong, not what to do")
    parser.add_argument("--module", required=True, help="as batch/accumulation: a file below zerocfg/rules")
    parser.add_argument("--severity", choices=("error", "warning", "note"), default="error")
    words = parser.parse_args()
    path = ROOT / "zerocfg" / "rules" / f"{words.module}.py"
    if not path.is_file():
        parser.error(f"there is no module {path.relative_to(ROOT)}")
    if not re.fullmatch(r"ZC\d{3}", words.code) or not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", words.name):
        parser.error("a code is written as ZC249, a name as steps-never-end")
    given = CODES.read_text(encoding="utf-8").splitlines()
    if taken := [line for line in given if words.code in line.split() or words.name in line.split()]:
        parser.error(f"given already, and never given twice: {taken[0]}")
    path.write_text(
        with_rule(path.read_text(encoding="utf-8"), words.code, words.name, words.severity), encoding="utf-8"
    )
    page = page_folder() / f"{words.code}.md"
    page.write_text(PAGE.format(code=words.code, name=words.name, severity=words.severity), encoding="utf-8")
    CODES.write_text("\n".join(sorted([*given, f"{words.code} {words.name}"])) + "\n", encoding="utf-8")
    subprocess.run(["ruff", "check", "-q", "--fix", "--select", "I", str(path)], check=True)
    subprocess.run(["ruff", "format", "-q", str(path)], check=True)
    line = next(
        n for n, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1) if f'"{words.code}"' in text
    )
    print(f"{page.relative_to(ROOT)}\n{path.relative_to(ROOT)}:{line}")
    print(f"Fill in what says FILL in both, then: make rule CODE={words.code}")


if __name__ == "__main__":
    main()
