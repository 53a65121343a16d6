"""The static value of an expression: literals, and names that are assigned once."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from zerocfg.run.model import UNKNOWN, FromLine
from zerocfg.run.script.code import children

_OPERATIONS: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
}
_LARGEST = 10**18
_DEEPEST = 40
_CHANGING = frozenset({"update", "pop", "setdefault", "append", "extend", "clear"})
_JOINING = frozenset({"join", "abspath", "realpath", "expanduser"})

_ASSIGNING = frozenset(
    {ast.Assign, ast.AnnAssign, ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr, ast.withitem, ast.Global}
    | {ast.Subscript, ast.Call}
)
_DECIDING = frozenset({ast.If, ast.For, ast.AsyncFor, ast.While, ast.Try, ast.With, ast.AsyncWith})
"""What stands within may not happen, or not once."""
_CLOSED = frozenset({ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda, ast.Name, ast.Constant})
"""What stands within assigns other names, or nothing."""

Names = Mapping[str, ast.expr | None]
"""By name: the one expression that is assigned to it; None where there are several, or none that can be followed."""


def assigned(body: Iterable[ast.stmt]) -> Names:  # noqa: C901
    """The names that the statements of one function, or of a module, assign."""
    found: dict[str, ast.expr | None] = {}
    late: set[str] = set()

    def note(target: ast.AST, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name):
            found[target.id] = value if target.id not in found else None
        elif isinstance(target, (ast.Tuple, ast.List)):
            for item in target.elts:
                note(item, None)
        elif isinstance(target, ast.Starred):
            note(target.value, None)

    def changed(node: ast.AST) -> None:
        """A dict or list whose contents are set later differs from its literal."""
        while isinstance(node, (ast.Subscript, ast.Attribute)):
            node = node.value
        if isinstance(node, ast.Name):
            late.add(node.id)

    def look(node: ast.AST, sure: bool) -> None:
        if isinstance(node, ast.Assign):
            for target in node.targets:
                note(target, node.value if sure else None)
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            note(node.target, node.value if sure else None)
        elif isinstance(node, (ast.AugAssign, ast.For, ast.AsyncFor, ast.NamedExpr)):
            note(node.target, None)
        elif isinstance(node, ast.withitem) and node.optional_vars is not None:
            note(node.optional_vars, None)
        elif isinstance(node, ast.Global):
            for name in node.names:
                found[name] = None
        elif isinstance(node, ast.Subscript) and not isinstance(node.ctx, ast.Load):
            changed(node)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _CHANGING:
            changed(node.func)

    surely: list[ast.AST] = []
    for statement in body:  # `if __name__ == "__main__":` is as sure as the module
        surely += children(statement) if isinstance(statement, ast.If) else [statement]
    perhaps: list[ast.AST] = []
    for waiting, sure in ((surely, True), (perhaps, False)):
        for node in waiting:  # grows while it is gone through
            kind = node.__class__
            if kind in _CLOSED:
                continue
            if kind in _ASSIGNING:
                look(node, sure)
            (perhaps if kind in _DECIDING else waiting).extend(children(node))
    return {name: None if name in late else value for name, value in found.items()}


class Values:
    """Expressions within one function. ``scopes``: the names of the function, then of its module. ``options``: the
    defaults of the script's own options, and ``parsed`` the names that hold what its parser gives."""

    def __init__(self, scopes: Iterable[Names], options: Mapping[str, object], parsed: frozenset[str]) -> None:
        self.scopes = list(scopes)
        self.options = options
        self.parsed = parsed

    def followed(self, node: ast.expr) -> ast.expr:
        """The expression that a name stands for; any other expression is itself."""
        for _ in range(_DEEPEST):
            scope = next((item for item in self.scopes if isinstance(node, ast.Name) and node.id in item), None)
            value = scope[node.id] if scope is not None and isinstance(node, ast.Name) else None
            if value is None:
                break
            node = value
        return node

    def of(self, node: ast.expr, depth: int = 0) -> Any:
        """The value; UNKNOWN where the text does not determine it. A dict or list may hold UNKNOWN."""
        if depth > _DEEPEST:
            return UNKNOWN
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, (str, int, float, bool, type(None))) else UNKNOWN
        if isinstance(node, (ast.List, ast.Tuple)):
            starred = any(isinstance(item, ast.Starred) for item in node.elts)
            return UNKNOWN if starred else [self.of(item, depth + 1) for item in node.elts]
        if isinstance(node, ast.Dict):
            return self._mapping(node, depth)
        if isinstance(node, ast.Name):
            return self._name(node.id, depth)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not)):
            value = self.of(node.operand, depth + 1)
            if isinstance(node.op, ast.Not):
                return (not value) if isinstance(value, bool) else UNKNOWN
            return -value if isinstance(value, (int, float)) and not isinstance(value, bool) else UNKNOWN
        if isinstance(node, ast.BinOp):
            return self._operation(node, depth)
        if isinstance(node, ast.Call):
            return self._call(node, depth)
        return UNKNOWN

    def _mapping(self, node: ast.Dict, depth: int) -> Any:
        found: dict[str, Any] = {}
        for key, value in zip(node.keys, node.values, strict=True):
            name = self.of(key, depth + 1) if key is not None else UNKNOWN
            if not isinstance(name, str):
                return UNKNOWN
            found[name] = self.of(value, depth + 1)
        return found

    def _name(self, name: str, depth: int) -> Any:
        for scope in self.scopes:
            if name in scope:
                value = scope[name]
                return UNKNOWN if value is None else self.of(value, depth + 1)
        return UNKNOWN

    def _attribute(self, node: ast.Attribute) -> Any:
        known = isinstance(node.value, ast.Name) and node.value.id in self.parsed and node.attr in self.options
        return FromLine(node.attr, self.options[node.attr]) if known else UNKNOWN

    def _operation(self, node: ast.BinOp, depth: int) -> Any:
        left, right = self.of(node.left, depth + 1), self.of(node.right, depth + 1)
        if isinstance(left, str) and isinstance(right, str) and isinstance(node.op, ast.Add):
            return left + right
        numbers = all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in (left, right))
        work = _OPERATIONS.get(type(node.op))
        if not numbers or work is None:
            return UNKNOWN
        try:
            value = work(left, right)
        except (ArithmeticError, ValueError):
            return UNKNOWN
        return value if abs(value) <= _LARGEST else UNKNOWN

    def _call(self, node: ast.Call, depth: int) -> Any:
        """`dict(a=1)`, and paths that are put together of literals."""
        if isinstance(node.func, ast.Name) and node.func.id == "dict" and not node.args:
            if any(keyword.arg is None for keyword in node.keywords):
                return UNKNOWN
            return {str(keyword.arg): self.of(keyword.value, depth + 1) for keyword in node.keywords}
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if (name in _JOINING or name in ("Path", "str")) and node.args and not node.keywords:
            parts = [self.of(argument, depth + 1) for argument in node.args]
            if all(isinstance(part, str) for part in parts):
                return "/".join(parts) if name == "join" else parts[0] if len(parts) == 1 else UNKNOWN
        return UNKNOWN
