"""The faults of a module: what is changed in its syntax tree, one place at a time.

A fault replaces one node. Texts for people, annotations, docstrings, defaults of arguments and class bodies have none.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

SEVERITY = "severity"
"""The kind that is counted apart: every finding's consequence is stated by an example."""
KINDS = (
    SEVERITY,
    "comparison",  # < becomes <=, == becomes !=, in becomes not in
    "number",  # one more; twice as much where it is compared
    "guard",  # `if c: return`, and the `if` of a comprehension: never, always
    "condition",  # any other `if`: the other branch
    "and/or",
    "boolean",
    "return",  # nothing, or the opposite
    "arithmetic",
    "place",  # of a location: its path, or which part of the entry
    "call",  # whose value nobody takes: it is not made
    "argument",  # a named one: it is not passed
)

_BOUNDARIES: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_YES_OR_NO = (ast.Eq, ast.NotEq, ast.In, ast.NotIn, ast.Is, ast.IsNot)
"""Comparisons whose fault above is their negation already."""
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_PLACES = {"entry": "value", "key": "value", "value": "key"}
"""Of a location: what starts elsewhere. An entry starts where its key does."""
_EMPTY = {"str": "''", "list": "[]", "dict": "{}", "tuple": "()", "set": "set()", "int": "0", "float": "0.0"}
"""What a function that returns such a thing returns instead."""
_WORDS = ("message", "help", "label", "why")
"""Arguments that are texts for people."""
_HABITS = ("strict", "maxsplit", "indent", "encoding", "errors")
"""Arguments that guard against what does not happen, or that say how a text looks."""
_LOGGERS = ("logging", "logger", "log", "_LOG", "LOG", "warnings")
_SPEAKERS = ("Finding",)
"""Calls whose first argument is a place and whose others are words."""
_LEAVING = (ast.Return, ast.Continue, ast.Break, ast.Raise)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True)
class Fault:
    """One change. ``where``: the function, or the constant of the module, as a dotted name. ``lines``: of the function,
    what must run for the change to matter. ``constant``: its name. ``decorator``: of what a rule declares.
    ``nth``: 1 unless ``where`` holds the same change before it."""

    module: str
    where: str
    kind: str
    line: int
    before: str
    after: str
    lines: range
    old: ast.AST = field(repr=False, compare=False)
    new: ast.AST = field(repr=False, compare=False)
    constant: str | None = None
    decorator: bool = False
    nth: int = 1

    @property
    def change(self) -> str:
        """The change in words that survive an edit elsewhere: what the list of equivalent ones is keyed by."""
        return f"{self.before} -> {self.after}" + (f" #{self.nth}" if self.nth > 1 else "")

    @property
    def place(self) -> str:
        return f"{self.module}::{self.where}"


@dataclass(frozen=True)
class Module:
    """``name``: the path from the root. ``tree`` is changed by a fault only in a process that ends with it."""

    name: str
    tree: ast.Module

    @classmethod
    def read(cls, root: Path, path: Path) -> Module:
        return cls(path.relative_to(root).as_posix(), ast.parse(path.read_text(encoding="utf-8"), str(path)))


def faults_of(module: Module) -> list[Fault]:
    """All faults of a module, in the order of its text."""
    found: list[Fault] = []
    seen: Counter[tuple[str, str]] = Counter()
    for one in _of_module(module):
        seen[one.where, one.change] += 1
        found.append(replace(one, nth=seen[one.where, one.change]))
    return found


def _of_module(module: Module) -> Iterator[Fault]:
    for statement in module.tree.body:
        if isinstance(statement, (*_FUNCTIONS, ast.ClassDef)):
            yield from _of_definition(module.name, statement, "")
        elif isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            target = statement.targets[0] if isinstance(statement, ast.Assign) else statement.target
            if isinstance(target, ast.Name) and not target.id.startswith("__"):
                maker = _Maker(module.name, target.id, constant=target.id)
                maker.assigned(statement)
                yield from maker.found


def _of_definition(module: str, node: ast.stmt, outer: str) -> Iterator[Fault]:
    assert isinstance(node, (*_FUNCTIONS, ast.ClassDef))
    name = f"{outer}.{node.name}" if outer else node.name
    if isinstance(node, ast.ClassDef):
        for inner in node.body:
            if isinstance(inner, (*_FUNCTIONS, ast.ClassDef)):
                yield from _of_definition(module, inner, name)
        return
    maker = _Maker(module, name)
    maker.declared(node)
    maker.body(node)
    yield from maker.found


class _Maker:
    """Walks one function or constant and collects its faults."""

    def __init__(self, module: str, where: str, constant: str | None = None) -> None:
        self.module, self.where, self.constant = module, where, constant
        self.found: list[Fault] = []
        self.lines = range(0)
        self.returns: ast.expr | None = None
        """Of the function that the walk is in."""

    def add(
        self, kind: str, old: ast.AST, new: ast.AST | str, after: str | None = None, before: str | None = None
    ) -> None:
        if isinstance(new, str):
            new = ast.parse(new, mode="eval").body
        place = ast.fix_missing_locations(ast.copy_location(new, old))
        self.found.append(
            Fault(
                module=self.module,
                where=self.where,
                kind=kind,
                line=old.lineno,  # type: ignore[attr-defined]
                before=before or _text(old),
                after=after or _text(place),
                lines=self.lines,
                old=old,
                new=place,
                constant=self.constant,
            )
        )

    # Definitions

    def declared(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        """The severity that ``@rule(...)`` declares."""
        self.lines = range(node.body[0].lineno, (node.end_lineno or node.lineno) + 1)
        for decorator in node.decorator_list:
            if isinstance(decorator, ast.Call) and _called(decorator) == "rule":
                for argument in (*decorator.args, *(one.value for one in decorator.keywords)):
                    if _is_severity(argument):
                        self.severities(argument)
        self.found = [replace(one, decorator=True) for one in self.found]

    def body(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        returns, self.returns = self.returns, node.returns
        self.statements(node.body)
        self.returns = returns

    def assigned(self, node: ast.Assign | ast.AnnAssign) -> None:
        assert node.value is not None
        self.lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
        if isinstance(node, ast.AnnAssign) and _text(node.annotation).startswith("Path"):
            self.path(node.value)
        self.expression(node.value)

    # Statements

    def statements(self, nodes: Iterable[ast.stmt]) -> None:
        for node in nodes:
            self.statement(node)

    def statement(self, node: ast.stmt) -> None:
        inner: list[ast.stmt] = [
            *getattr(node, "body", []),
            *(one for handler in getattr(node, "handlers", []) for one in handler.body),
            *(one for case in getattr(node, "cases", []) for one in case.body),
            *getattr(node, "orelse", []),
            *getattr(node, "finalbody", []),
        ]
        last = min([one.lineno - 1 for one in inner], default=node.end_lineno or node.lineno)
        self.lines = range(node.lineno, max(last, node.lineno) + 1)
        if isinstance(node, _FUNCTIONS):
            self.body(node)
            return
        if isinstance(node, ast.ClassDef):
            return
        self.head(node)
        self.statements(inner)

    def head(self, node: ast.stmt) -> None:
        """What a statement says itself, without those inside it."""
        if isinstance(node, ast.If):
            self.choice(node)
        elif isinstance(node, ast.Return) and node.value is not None:
            self.returned(node.value)
        elif isinstance(node, (ast.Raise, ast.Assert)):
            return  # the one speaks to people, the other to the type checker
        elif isinstance(node, ast.AugAssign) and type(node.op) in _ARITHMETIC and not _is_text(node.value):
            self.operator(node)
        elif isinstance(node, ast.AnnAssign) and node.value is not None and _text(node.annotation).startswith("Path"):
            self.path(node.value)
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            return  # a docstring
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and not _is_logging(node.value):
            self.add("call", node.value, "None", "none")
        for name in ("value", "test", "iter", "exc", "subject"):
            part = getattr(node, name, None)
            if isinstance(part, ast.expr):
                self.expression(part)
        for item in getattr(node, "items", []):
            self.expression(item.context_expr)

    def choice(self, node: ast.If) -> None:
        if not node.orelse and isinstance(node.body[-1], _LEAVING):
            what = type(node.body[-1]).__name__.lower()
            for value, word in (("False", "never"), ("True", "always")):
                self.add("guard", node.test, value, word, f"{what} if {_text(node.test)}")
        elif not _is_yes_or_no(node.test):
            self.add("condition", node.test, ast.UnaryOp(ast.Not(), node.test), before=f"if {_text(node.test)}")

    def returned(self, value: ast.expr) -> None:
        kind = _text(self.returns) if self.returns is not None else ""
        if isinstance(value, ast.Constant) and (value.value is None or isinstance(value.value, bool)):
            return  # nothing to take away; a truth value has its own fault
        if kind == "bool":
            if not _is_yes_or_no(value) and not isinstance(value, (ast.BoolOp, ast.IfExp)):
                self.add("return", value, ast.UnaryOp(ast.Not(), value))
            return
        empty = "None" if "None" in kind else _EMPTY.get(kind.partition("[")[0], "None")
        if _text(value) != empty:
            self.add("return", value, empty, before=f"return {_text(value)}")

    def operator(self, node: ast.AugAssign) -> None:
        new = ast.AugAssign(node.target, _ARITHMETIC[type(node.op)](), node.value)
        self.add("arithmetic", node, new)

    # Expressions

    def expression(self, node: ast.AST, words: bool = False) -> None:  # noqa: C901
        """The faults of an expression and of those in it. ``words``: it is shown to people, of which only figures
        count."""
        if isinstance(node, ast.JoinedStr):
            for part in node.values:
                if isinstance(part, ast.FormattedValue):
                    self.expression(part.value, words=True)
            return
        if isinstance(node, ast.IfExp) and (words or _is_wording(node.body) or _is_wording(node.orelse)):
            for part in (node.body, node.orelse):
                self.expression(part, words=True)
            return
        self.own(node, words)
        if isinstance(node, ast.Call):
            self.arguments(node, words)
        elif isinstance(node, ast.Subscript):
            self.expression(node.value, words)
            if not words:
                self.expression(node.slice)
        elif isinstance(node, ast.comprehension):
            self.expression(node.iter, words)
            for test in node.ifs:
                self.add("guard", test, "True", "always", f"for ... if {_text(test)}")
                self.expression(test)
        elif isinstance(node, ast.Lambda):
            self.expression(node.body, words)
        elif isinstance(node, ast.Compare):
            for part in (node.left, *node.comparators):
                if not _is_severity(part):  # one that is asked for, none that is given
                    self.expression(part, words)
        else:
            for inner in ast.iter_child_nodes(node):
                self.expression(inner, words)

    def arguments(self, node: ast.Call, words: bool) -> None:
        name = _called(node)
        self.expression(node.func, words)
        for at, argument in enumerate(node.args):
            if name in ("Location", "at") and at > 0:
                self.location(argument)
            if name in ("round", "split", "rsplit", "partition") and at > 0:
                continue  # digits shown; how often to split what stands there once
            self.expression(argument, words or (name in _SPEAKERS and at in (1, 2)))
        for keyword in node.keywords:
            if name in ("Location", "at"):
                self.location(keyword.value)
            if keyword.arg not in _HABITS:
                self.expression(keyword.value, words or keyword.arg in _WORDS)
            if not words and keyword.arg is not None and keyword.arg not in (*_HABITS, *_WORDS):
                rest = [other for other in node.keywords if other is not keyword]
                without = ast.Call(node.func, node.args, rest)
                self.add("argument", node, without, "none", f"{name}(..., {_text(keyword)})")

    def location(self, argument: ast.expr) -> None:
        """What a location names: the part of an entry, or its path."""
        if isinstance(argument, ast.Constant) and argument.value in _PLACES:
            self.add("place", argument, repr(_PLACES[argument.value]))
        self.path(argument)

    def path(self, value: ast.expr) -> None:
        if isinstance(value, ast.Tuple) and value.elts:
            self.add("place", value, ast.Tuple(value.elts[:-1], ast.Load()))

    def own(self, node: ast.AST, words: bool) -> None:
        """The faults of an expression itself."""
        if isinstance(node, ast.Constant):
            self.value(node, words)
        elif isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
            if not _is_text(node.left) and not _is_text(node.right):
                self.add("arithmetic", node, ast.BinOp(node.left, _ARITHMETIC[type(node.op)](), node.right))
        elif words:
            return
        elif isinstance(node, ast.Compare):
            self.compared(node)
        elif isinstance(node, ast.BoolOp):
            other = ast.And() if isinstance(node.op, ast.Or) else ast.Or()
            self.add("and/or", node, ast.BoolOp(other, node.values))
        elif isinstance(node, ast.IfExp):
            if not _is_yes_or_no(node.test):
                self.add("condition", node, ast.IfExp(node.test, node.orelse, node.body))
        elif _is_severity(node):
            self.severities(node)

    def value(self, node: ast.Constant, words: bool) -> None:
        if isinstance(node.value, bool):
            if not words:
                self.add("boolean", node, repr(not node.value))
        elif isinstance(node.value, (int, float)) and node.value + 1 != node.value:
            self.add("number", node, repr(node.value + 1))

    def compared(self, node: ast.Compare) -> None:
        for at, operator in enumerate(node.ops):
            operators = [*node.ops]
            operators[at] = _BOUNDARIES[type(operator)]()
            self.add("comparison", node, ast.Compare(node.left, operators, node.comparators))
        for part in (node.left, *node.comparators):
            value = part.value if isinstance(part, ast.Constant) else None
            if isinstance(value, (int, float)) and value not in (0, 1):  # True and False are 1 and 0
                self.add("number", part, repr(value * 2))

    def severities(self, node: ast.AST) -> None:
        assert isinstance(node, ast.Attribute)
        for name in ("ERROR", "WARNING", "NOTE"):
            if name != node.attr:
                self.add(SEVERITY, node, f"Severity.{name}")


def _text(node: ast.AST) -> str:
    """A node as one line."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 120 else f"{text[:100]}...{text[-17:]}"


def _called(node: ast.Call) -> str:
    return (
        node.func.id
        if isinstance(node.func, ast.Name)
        else node.func.attr
        if isinstance(node.func, ast.Attribute)
        else ""
    )


def _is_logging(node: ast.Call) -> bool:
    called = node.func
    return isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id in _LOGGERS


def _is_severity(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Severity"


def _is_yes_or_no(node: ast.expr) -> bool:
    """Whether the negation of this is a fault of its own anyway."""
    return isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], _YES_OR_NO)


def _is_text(node: ast.expr) -> bool:
    """Whether this is plainly a text or a sequence: an operator on it does not calculate."""
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    text = isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes))
    return text or isinstance(node, (ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp))


def _is_wording(node: ast.expr) -> bool:
    """Whether this is a piece of a sentence; a single word may be a value."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return " " in node.value or len(node.value) <= 1
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.BinOp) and _is_text(node))
