"""Config dicts of a script as documents, so that every rule about a config file holds for them, too.

Only a dict of which every key and value is told by the text alone: of others nobody knows what DeepSpeed gets.
"""

from __future__ import annotations

import ast

from zerocfg.run.model import SourceFile
from zerocfg.run.script.modules import Module
from zerocfg.run.script.places import span_of
from zerocfg.run.script.values import Values
from zerocfg.source.node import Document, Entry, Mapping, Node, Scalar, Sequence

_DEEPEST = 40


def config_of(module: Module, expression: ast.expr, values: Values) -> SourceFile | None:
    """The DeepSpeed config that an expression is, when it is a dict of literals."""
    root = _node(module, expression, values, 0)
    if not isinstance(root, Mapping):
        return None
    file = module.file
    return SourceFile(
        file.name, "deepspeed", file.source, Document(file.source, "json", root, editable=False), file.path, file
    )


def _node(module: Module, expression: ast.expr, values: Values, depth: int) -> Node | None:
    expression = values.followed(expression)
    if depth > _DEEPEST:
        return None
    span = span_of(module, expression) if hasattr(expression, "lineno") else None
    if span is None:
        return None
    if isinstance(expression, ast.Dict):
        mapping = Mapping(span)
        for key, value in zip(expression.keys, expression.values, strict=True):
            name = key.value if isinstance(key, ast.Constant) else None
            inner = _node(module, value, values, depth + 1)
            if key is None or not isinstance(name, str) or inner is None:
                return None
            mapping.entries.append(Entry(name, span_of(module, key), inner))
        return mapping
    if isinstance(expression, (ast.List, ast.Tuple)):
        items = [_node(module, one, values, depth + 1) for one in expression.elts]
        known = [item for item in items if item is not None]
        return Sequence(span, known) if len(known) == len(items) else None
    value = values.of(expression)
    if not isinstance(value, (str, int, float, bool, type(None))):
        return None
    return Scalar(value, span, module.file.source.text[span.start : span.end], isinstance(value, str))
