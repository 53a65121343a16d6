"""What stands in the code of one function or module: the names it reads, its calls, what it changes."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from zerocfg.record import field, record
from zerocfg.run.script.comparisons import Decision

_OF_DEEPSPEED = frozenset("zero_optimization zero_optimisation train_batch_size train_micro_batch_size_per_gpu".split())
"""One of these keys is in every DeepSpeed config that a script writes out."""
_READING = ("json", "yaml", "load_config", "read_config")
"""Words in the names of functions that read settings."""
_CHANGING = frozenset({"pop", "setdefault", "__setitem__"})
_CHANGES = frozenset(("update", "setdefault", "append", "extend"))
"""Methods that change the object that an attribute holds."""
_OF_PARSERS = frozenset({"add_argument", "add_arguments", "set_defaults"})
_GIVES = frozenset({"parse_args", "parse_known_args", "parse_args_into_dataclasses", "parse_args_and_config"})


@record(slots=True)
class Code:
    """What stands in the code of one function, or in a module's own lines.

    ``names`` and ``members`` (`package.thing`) are what it reads, in the order of the text, so that what is found does
    not depend on how this process hashes words; ``methods``: those that it calls of any object; ``parsing``: calls of
    those by which parsers of the command line are told their options, or asked; ``given``: where a name is given what
    such a parser answers; ``opened``: names that stand in the path of a file that it opens; ``stored``: the attributes
    that it sets on some object, or changes by `x.attribute[key] = ...`; ``dicts``: those that hold a key of DeepSpeed;
    ``changed``: keys that it sets or takes out of some mapping; ``aliases``: other names that it gives to things, with
    all that each may be; ``decisions``: those that compare an attribute with literals;
    ``resumes``: whether it calls some `train` with a checkpoint to go on from.
    """

    names: dict[str, None] = field(default_factory=dict)
    members: dict[tuple[str, str], None] = field(default_factory=dict)
    calls: list[ast.Call] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)
    parsing: list[ast.Call] = field(default_factory=list)
    aliases: dict[str, list[ast.expr]] = field(default_factory=dict)
    given: list[ast.Assign] = field(default_factory=list)
    opened: set[str] = field(default_factory=set)
    dicts: list[ast.Dict] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    decisions: Sequence[Decision] = ()
    resumes: bool = False


_NO_NODES = frozenset(
    "ctx op ops id attr arg name asname names module level kind type_comment is_async simple conversion rest "
    "kwd_attrs str".split()
)
"""Fields that hold plain values or nodes without meaning of their own: operators, expression contexts."""
_LEAVES = frozenset({ast.Name, ast.Constant, ast.MatchSingleton})
_OF_VALUE = frozenset({ast.Attribute, ast.keyword, ast.Expr, ast.Starred})
"""The most frequent nodes with nothing but one other in them."""


class _Inner(dict[type[ast.AST], Callable[[ast.AST], Iterable[Any]]]):
    """By class of node: its other fields, read by one call."""

    def __missing__(self, kind: type[ast.AST]) -> Callable[[ast.AST], Iterable[Any]]:
        names = [] if kind in _LEAVES else [name for name in kind._fields if name not in _NO_NODES]
        one = attrgetter(*names) if names else None
        self[kind] = (lambda node: ()) if one is None else one if len(names) > 1 else (lambda node: (one(node),))
        return self[kind]


_inner = _Inner()


def children(node: ast.AST) -> list[Any]:
    """The nodes directly within a node, in the order of the text, without those that only say whether a name is read or
    set, or which operator is meant. `ast.iter_child_nodes` takes four times as long."""
    found: list[Any] = []
    for value in _inner[node.__class__](node):
        if value.__class__ is list:
            found += [item for item in value if item is not None] if None in value else value
        elif value is not None:
            found.append(value)
    return found


def nodes(*roots: ast.AST) -> Iterator[ast.AST]:
    """All nodes of some trees, outer ones first."""
    found: list[Any] = list(roots)
    for node in found:  # grows while it is gone through
        yield node
        if node.__class__ not in _LEAVES:
            found += children(node)


def code_of(body: Sequence[ast.stmt]) -> Code:
    """The code of some statements, those of functions within them included."""
    found = Code()
    names = found.names
    for statement in body:
        waiting: list[Any] = [statement]
        for node in waiting:  # as `nodes` does, without a generator: most of the time of a large repository goes here
            kind = node.__class__
            if kind is ast.Name:
                names[node.id] = None
            elif kind is not ast.Constant:
                look = _LOOKS.get(kind)
                if look is not None:
                    look(node, found)
                if kind in _OF_VALUE:
                    waiting.append(node.value)
                    continue
                for value in _inner[kind](node):
                    if value.__class__ is list:
                        waiting += [item for item in value if item is not None] if None in value else value
                    elif value is not None:
                        waiting.append(value)
    return found


def _look_at_attribute(node: ast.Attribute, found: Code) -> None:
    if isinstance(node.ctx, ast.Store):
        found.stored.add(node.attr)
    if isinstance(node.value, ast.Name):
        found.members[node.value.id, node.attr] = None


def _look_at_call(node: ast.Call, found: Code) -> None:
    function = node.func
    found.calls.append(node)
    if isinstance(function, ast.Attribute):
        method = function.attr
        found.methods.add(method)
        if method in _OF_PARSERS or method.startswith("parse_"):
            found.parsing.append(node)
        if method in _CHANGING:
            found.changed.update(
                str(argument.value) for argument in node.args[:1] if isinstance(argument, ast.Constant)
            )
        if method in _CHANGES and isinstance(function.value, ast.Attribute):
            found.stored.add(function.value.attr)
        if method == "train" and any(keyword.arg == "resume_from_checkpoint" for keyword in node.keywords):
            found.resumes = True
        if method in ("open", "read_text"):
            found.opened |= _words(function.value)
        _look_at_reader(method, node, found)
    elif isinstance(function, ast.Name):
        if function.id == "open" and node.args:
            found.opened |= _words(node.args[0])
        _look_at_reader(function.id, node, found)
        if function.id == "setattr" and len(node.args) > 1:
            name = node.args[1]
            if isinstance(name, ast.Constant) and isinstance(name.value, str):
                found.stored.add(name.value)


def _look_at_reader(name: str, node: ast.Call, found: Code) -> None:
    """A function that by its name reads settings may hand on what is then changed: `load_json(args.config)`."""
    if node.args and any(word in name.lower() for word in _READING):
        found.opened |= _words(node.args[0])


def _words(path: ast.expr) -> set[str]:
    """The names in the path of a file: `args.config`, `Path(config)`."""
    inner = list(ast.walk(path))
    return {item.id for item in inner if isinstance(item, ast.Name)} | {
        item.attr for item in inner if isinstance(item, ast.Attribute)
    }


def _look_at_assign(node: ast.Assign, found: Code) -> None:
    if _parses(node.value):
        found.given.append(node)
    target = node.targets[0]
    if isinstance(target, ast.Name):
        things = _things(node.value)
        if things:
            found.aliases.setdefault(target.id, []).extend(things)


def _parses(value: ast.expr) -> bool:
    """Whether an expression is what a parser gives, by what is called: `parser.parse_args()`, `get_args()`."""
    if not isinstance(value, ast.Call):
        return False
    name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
    return name in _GIVES or name.endswith(("parse_args", "get_args", "parse_arguments"))


def _things(value: ast.expr) -> list[ast.expr]:
    """The things that an expression may be, without being called: `A`, `a.B`, `A if x else B`, `{"a": A}[x]`."""
    if isinstance(value, ast.IfExp):
        return [*_things(value.body), *_things(value.orelse)]
    if isinstance(value, ast.Subscript) and isinstance(value.value, ast.Dict):
        return [entry for item in value.value.values for entry in _things(item)]
    return [value] if isinstance(value, (ast.Name, ast.Attribute)) else []


def _look_at_subscript(node: ast.Subscript, found: Code) -> None:
    if isinstance(node.ctx, ast.Store) and isinstance(node.value, ast.Attribute):
        found.stored.add(node.value.attr)
    if not isinstance(node.ctx, ast.Load) and isinstance(node.slice, ast.Constant):
        found.changed.add(str(node.slice.value))


def _look_at_dict(node: ast.Dict, found: Code) -> None:
    if any(isinstance(key, ast.Constant) and key.value in _OF_DEEPSPEED for key in node.keys):
        found.dicts.append(node)


_LOOKS: dict[type[ast.AST], Callable[[Any, Code], None]] = {
    ast.Attribute: _look_at_attribute,
    ast.Call: _look_at_call,
    ast.Assign: _look_at_assign,
    ast.Subscript: _look_at_subscript,
    ast.Dict: _look_at_dict,
}
