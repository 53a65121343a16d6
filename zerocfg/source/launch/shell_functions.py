"""The functions of a shell text: where their bodies stand, and what is local to a call."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from zerocfg.budgets import CALL_DEPTH, REPEATED_CHARACTERS
from zerocfg.source.launch.shell_expand import Value
from zerocfg.source.launch.shell_scope import Scope
from zerocfg.source.launch.shell_words import Chars, Token, tokens

FUNCTION = "function"
"""Kind of a token that stands for a whole function in braces: its text is the name, its range the body."""
_BEFORE_COMMANDS = frozenset(("{", "}", "then", "do", "done", "else", "elif", "if", "fi", "while", "until", "!"))


def with_functions(text: str) -> Iterator[Token]:
    """The tokens of a text, each definition `name() { ... }` or `function name { ... }` as one."""
    if "{" not in text:
        yield from tokens(text)
        return
    found = list(tokens(text))
    at = 0
    while at < len(found):
        defined = _definition(found, at)
        end = _closing(found, defined[1] + 1) if defined is not None else None
        if defined is None or end is None:
            yield found[at]
            at += 1
            continue
        name, opening = defined
        yield Token(FUNCTION, found[opening].end, found[end].start, name)
        at = end + 1


def _definition(found: Sequence[Token], at: int) -> tuple[str, int] | None:
    """The name of the function that a token begins to define, and the index of its brace."""
    by_word = _is(found, at, "function")
    name_at = at + 1 if by_word else at
    if name_at >= len(found) or found[name_at].kind != "word":
        return None
    after = name_at + 1
    if _is(found, after, "(") and _is(found, after + 1, ")"):
        after += 2
    elif not by_word:
        return None
    while _is(found, after, "\n"):
        after += 1
    return (found[name_at].text, after) if _is(found, after, "{") else None


def _is(found: Sequence[Token], at: int, text: str) -> bool:
    return at < len(found) and found[at].text == text and found[at].kind in ("word", "operator")


def _closing(found: Sequence[Token], at: int) -> int | None:
    """The index of the brace that ends a group of commands; None where none does."""
    depth, begins = 1, True
    for index in range(at, len(found)):
        token = found[index]
        if token.kind == "operator":
            begins = True
        elif token.kind == "word":
            if begins and token.text in ("{", "}"):
                depth += 1 if token.text == "{" else -1
                if depth == 0:
                    return index
            elif _definition(found, index) is not None:
                continue
            begins = begins and token.text in _BEFORE_COMMANDS
    return None


class Functions:
    """The functions that are defined so far, by name; a later definition replaces an earlier one."""

    def __init__(self) -> None:
        self._bodies: dict[str, Chars] = {}
        self._waiting: dict[int, tuple[str, Chars]] = {}
        self._called: set[int] = set()
        self._running: list[str] = []
        self._locals: list[dict[str, tuple[bool, Value]]] = []
        self._left = REPEATED_CHARACTERS

    def define(self, name: str, body: Chars) -> None:
        self._bodies[name] = body
        if _place(body) not in self._called:
            self._waiting[_place(body)] = name, body

    def calls(self, name: str | None) -> bool:
        """Whether a command's name is a function to be followed: not one that runs already, nor one deep below many."""
        if name not in self._bodies or name in self._running or len(self._running) >= CALL_DEPTH:
            return False
        body = self._bodies[name]
        if _place(body) in self._called:
            self._left -= len(body.text)
        return self._left >= 0

    def body(self, name: str) -> Chars:
        return self._bodies[name]

    def uncalled(self) -> tuple[str, Chars] | None:
        """One that nothing has called yet, with its body."""
        return next(iter(self._waiting.values()), None)

    @contextmanager
    def running(self, name: str, body: Chars, scope: Scope) -> Iterator[bool]:
        """Around the reading of a body; whether it was read before. What it declares as its own is gone afterwards."""
        again = _place(body) in self._called
        self._called.add(_place(body))
        self._waiting.pop(_place(body), None)
        self._running.append(name)
        self._locals.append({})
        yield again
        self._running.pop()
        for variable, (was_set, before) in self._locals.pop().items():
            if was_set:
                scope.assign(variable, before)
            else:
                scope.unset(variable)

    def make_local(self, variable: str, scope: Scope) -> None:
        """A declaration: within a function the variable is the function's own."""
        if self._locals:
            known = scope.variables
            self._locals[-1].setdefault(variable, (variable in known, known.get(variable)))


def _place(body: Chars) -> int:
    """Where the text of a body begins, which is its own wherever it is read."""
    return body.at[0] if body.text else -1
