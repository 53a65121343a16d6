"""Commands that Python code starts: literal lists for `subprocess`, literal texts for a shell."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from zerocfg.source.launch.line import Word
from zerocfg.source.launch.shell_words import Chars
from zerocfg.source.python_spans import PythonSpans
from zerocfg.source.text import BOM, SourceText

_STARTS = frozenset({"run", "call", "check_call", "check_output", "Popen"})
_CALLS = re.compile(rf"subprocess\s*\.\s*(?:{'|'.join(sorted(_STARTS))})\s*\(|os\s*\.\s*system\s*\(")


def may_start(text: str) -> bool:
    """Whether code may start commands at all; a cheap look."""
    return ("subprocess" in text or "system" in text) and _CALLS.search(text) is not None


def commands_of(source: SourceText) -> Iterator[list[Word] | Chars]:
    """The words of each list, and each shell text. A word that code computes has no known value."""
    if not may_start(source.text):
        return
    try:
        tree = ast.parse(source.text.removeprefix(BOM))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    places = _Places(source.text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args and _starts(node):
            given = node.args[0]
            if isinstance(given, (ast.List, ast.Tuple)):
                yield [places.word(item) for item in given.elts]
            elif isinstance(given, ast.Constant) and isinstance(given.value, str) and _in_shell(node):
                text = places.chars(given)
                if text is not None:
                    yield text


def _starts(node: ast.Call) -> bool:
    function = node.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return False
    library, name = function.value.id, function.attr
    return (library == "subprocess" and name in _STARTS) or (library, name) == ("os", "system")


def _in_shell(node: ast.Call) -> bool:
    """Whether a shell reads the text: `os.system(...)`, `shell=True`."""
    if isinstance(node.func, ast.Attribute) and node.func.attr == "system":
        return True
    switches = (keyword.value for keyword in node.keywords if keyword.arg == "shell")
    return any(isinstance(switch, ast.Constant) and switch.value is True for switch in switches)


class _Places(PythonSpans):
    def word(self, node: ast.expr) -> Word:
        span = self.span(node)
        value = node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None
        return Word(self.text[span.start : span.end], value, span, exact=False)  # quoted as Python does

    def chars(self, node: ast.Constant) -> Chars | None:
        """The characters of a plain text; None of one with escapes, or of several side by side."""
        span = self.span(node)
        start = self.text.find(str(node.value), span.start, span.end)
        return None if start < 0 else Chars(str(node.value), range(start, start + len(str(node.value))))
