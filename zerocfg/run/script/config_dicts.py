"""Config dicts of a script as documents, so that every rule about a config file holds for them, too.

A value that the text alone does not tell stands as one that something has to fill in. Of a dict of which a key is not
told, or that is changed after it was made, only parts are known: what is said of one key by itself holds for them.
"""

from __future__ import annotations

import ast

from zerocfg.catalog.schema import load_schema
from zerocfg.run.kinds import sniff
from zerocfg.run.model import SourceFile
from zerocfg.run.script.modules import Module, span_of
from zerocfg.run.script.reachable import Walk
from zerocfg.run.script.values import Values
from zerocfg.run.templates import CODE
from zerocfg.source.node import Document, Entry, Mapping, Node, Scalar, Sequence

_DEEPEST = 40


def config_of(walk: Walk, module: Module, expression: ast.expr, values: Values) -> SourceFile | None:
    """The DeepSpeed config that an expression is, when it is a dict, also one that a function of the module returns."""
    expression = values.followed(expression)
    called = expression.func if isinstance(expression, ast.Call) else None
    function = module.definitions.get(called.id) if isinstance(called, ast.Name) else None
    if isinstance(function, ast.FunctionDef):
        given = [node.value for node in ast.walk(function) if isinstance(node, ast.Return)]
        if len(given) != 1 or given[0] is None:
            return None
        values = Values(walk.scopes(module, function), values.options, values.parsed)
        expression = given[0]
    root = _node(module, expression, values, 0)
    return _document(module, root) if isinstance(root, Mapping) and not _hides_section(root) else None


def _hides_section(root: Mapping) -> bool:
    """Whether a whole section comes from elsewhere, so that its content is unknown."""
    schema = load_schema("deepspeed")
    hidden = (entry.key for entry in root.entries if isinstance(entry.value, Scalar) and entry.value.value == CODE)
    keys = (schema.root.keys.get(name) for name in hidden)
    return any(key is not None and key.section(schema) is not None for key in keys)


def parts_of(module: Module, expression: ast.Dict, values: Values, changed: frozenset[str]) -> SourceFile | None:
    """What is known of a dict when it looks like a DeepSpeed config, without the keys that the script changes."""
    root = _node(module, expression, values, 0, changed)
    if not isinstance(root, Mapping):
        return None
    found = _document(module, root)
    return found if sniff(found.data()) == "deepspeed" else None


def _document(module: Module, root: Mapping) -> SourceFile:
    file = module.file
    return SourceFile(
        file.name, "deepspeed", file.source, Document(file.source, "json", root, editable=False), file.path, file
    )


def _node(
    module: Module, expression: ast.expr, values: Values, depth: int, without: frozenset[str] | None = None
) -> Node | None:
    """``without``: keys to leave out, with all that the text does not tell; None where nothing may be left out."""
    expression = values.followed(expression)
    if depth > _DEEPEST:
        return None
    span = span_of(module, expression) if hasattr(expression, "lineno") else None
    if span is None:
        return None
    if isinstance(expression, ast.Dict):
        mapping = Mapping(span)
        for key, value in zip(expression.keys, expression.values, strict=True):
            word = key.value if isinstance(key, ast.Constant) else None
            inner = _node(module, value, values, depth + 1, without)
            if key is None or not isinstance(word, str) or inner is None or (without and word in without):
                if without is None:
                    return None
                continue
            mapping.entries.append(Entry(word, span_of(module, key), inner))
        return mapping
    if isinstance(expression, (ast.List, ast.Tuple)):
        items = [_node(module, entry, values, depth + 1, without) for entry in expression.elts]
        known = [item for item in items if item is not None]
        return Sequence(span, known) if len(known) == len(items) else None
    result = values.of(expression)
    scalar = result if isinstance(result, (str, int, float, bool, type(None))) else CODE
    if scalar == CODE and without is not None:
        return None
    return Scalar(scalar, span, module.file.source.text[span.start : span.end], isinstance(scalar, str))
