"""Decisions of a script that compare one of its options with literals: `if args.mixed_precision == "fp16":`."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from zerocfg.record import record

_MESSAGES = frozenset("print warn warning warning_once info error debug".split())
_BLOCKS = (ast.For, ast.While, ast.With, ast.Try)


@record(frozen=True, slots=True)
class Decision:
    """``holder``: the name of the object whose attribute ``option`` is compared with ``values``; ``test`` is the
    comparison."""

    holder: str
    option: str
    values: tuple[str, ...]
    test: ast.expr


def decisions(body: Sequence[ast.stmt], *, started: bool) -> Iterator[Decision]:
    """The decisions that straight code comes to, outside of other conditions, and that do more than print or stop.

    ``started``: what stands below `if __name__ == "__main__":` runs.
    """
    waiting = list(body)
    for statement in waiting:  # grows while it is gone through
        if isinstance(statement, ast.If):
            found = _decision(statement.test)
            if found is not None:
                waiting += [item for item in statement.orelse if isinstance(item, ast.If)]
                if not all(map(_only_tells, statement.body)):
                    yield found
            elif started and any(
                isinstance(node, ast.Name) and node.id == "__name__" for node in ast.walk(statement.test)
            ):
                waiting += statement.body
        elif isinstance(statement, _BLOCKS):
            waiting += statement.body
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.IfExp):
            found = _decision(statement.value.test)
            if found is not None:
                yield found


def _decision(test: ast.expr) -> Decision | None:
    if not isinstance(test, ast.Compare) or len(test.ops) != 1 or not isinstance(test.ops[0], (ast.Eq, ast.In)):
        return None
    left, right = test.left, test.comparators[0]
    if not isinstance(left, ast.Attribute) or not isinstance(left.value, ast.Name):
        return None
    words = right.elts if isinstance(right, (ast.List, ast.Tuple, ast.Set)) else [right]
    if isinstance(test.ops[0], ast.In) is (words == [right]):
        return None
    values = tuple(word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str))
    return Decision(left.value.id, left.attr, values, test) if len(values) == len(words) else None


def _only_tells(statement: ast.stmt) -> bool:
    if isinstance(statement, (ast.Raise, ast.Pass)):
        return True
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call):
        return False
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    return name in _MESSAGES
