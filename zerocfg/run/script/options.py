"""The options that a script's own parser takes: argparse, and the dataclasses of HfArgumentParser and TrlParser."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from zerocfg.catalog.schema import load_schema
from zerocfg.record import field, record
from zerocfg.run.model import UNKNOWN, Origin, Setting
from zerocfg.run.script.arguments import OF_SEQ2SEQ
from zerocfg.run.script.modules import Module, span_of
from zerocfg.run.script.reachable import Owner, Reach, Reached, Walk
from zerocfg.run.script.values import Values

PARSERS = frozenset({"transformers.HfArgumentParser", "trl.TrlParser"})
_OTHERS = frozenset({"fire", "click", "tyro", "jsonargparse", "hydra", "omegaconf"})
"""Parsers of the command line whose options are not read."""
_DEEPSPEED_OPTIONS = ("deepspeed", "deepspeed_config", "deepscale", "deepscale_config")
_LENIENT = frozenset({"parse_known_args", "parse_known_intermixed_args"})
"""Methods of a parser that do not stop at what it does not know."""
_LETTING = frozenset({"return_remaining_strings", "allow_extra_keys"})
_STOPPING = frozenset({"fail_with_unknown_args"})
"""Arguments of the others by which they do not, or do."""
_LIKELY = frozenset({"args", "opt", "opts", "options", "cli_args", "flags"})
"""What a function calls the options that are handed to it."""
_DEEPEST_BASE = 8
_SWITCHES = {"store_true": False, "store_false": True}


@record(slots=True)
class Parser:
    """``options``: None where somebody else may take more. ``own``: those that the script declares by itself.
    ``lenient``: what nobody takes is let through, or may be. ``fixed``: it parses words that stand in the code.
    ``beside``: the fields of the script's own dataclasses that HfArgumentParser parses beside others.
    ``defaults_of_options``: of the options that are read."""

    options: frozenset[str] | None = None
    own: set[str] = field(default_factory=set)
    lenient: bool = False
    fixed: bool = False
    beside: dict[str, Origin] = field(default_factory=dict)
    parsed: frozenset[str] = frozenset()
    defaults: dict[str, Setting] = field(default_factory=dict)
    defaults_of_options: dict[str, object] = field(default_factory=dict)
    holders: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """By the identity of a function (0: a module's own lines): the names that hold what the parser gives."""

    def names(self, owner: Owner) -> frozenset[str]:
        """The names that hold the parser's answer in a function."""
        own = self.holders.get(id(owner) if owner is not None else 0, frozenset())
        if owner is None:
            return own
        given = {item.arg for item in (*owner.args.posonlyargs, *owner.args.args, *owner.args.kwonlyargs)}
        return own | self.holders.get(0, frozenset()) - given | (given & _LIKELY)


def parser_of(found: Reach, walk: Walk) -> Parser:
    """The options of all parsers that the script reaches."""
    parser = Parser()
    options: set[str] = set()
    parsed: set[str] = set()
    some, whole = False, True
    for call in found.calls:
        library = call.name.partition(".")[0]
        if call.name in PARSERS:
            some = True
            whole = _dataclasses(call, walk, parser, options, parsed) and whole
        elif call.name == "argparse.ArgumentParser":
            some, whole = True, whole and found.shallow  # who is deeper may add options to it
        elif call.name == "deepspeed.add_config_arguments":
            options.update(_DEEPSPEED_OPTIONS)
        elif library in _OTHERS:
            some, whole = True, False
    for module, node in found.parsing:
        whole = _method(node, module, walk, parser) and whole
        parser.lenient = parser.lenient or _lets_through(node)
    asked = [(node, module) for module, node in found.parsing if _asks(node)]
    parser.fixed = bool(asked) and all(_gets_words_of_code(node, module) for node, module in asked)
    parser.parsed = frozenset(parsed)
    parser.options = frozenset(options | parser.own) if some and whole else None
    parser.holders = _holders(found)
    return parser


def _method(node: ast.Call, module: Module, walk: Walk, parser: Parser) -> bool:
    """`add_argument` and `set_defaults` of any object; False where their names are not literal."""
    assert isinstance(node.func, ast.Attribute)
    method = node.func.attr
    if method == "add_argument":
        names = [
            argument.value
            for argument in node.args
            if isinstance(argument, ast.Constant) and isinstance(argument.value, str)
        ]
        if len(names) != len(node.args):
            return False
        keywords = {item.arg: item.value for item in node.keywords}
        action = keywords.get("action")
        switch = action.value if isinstance(action, ast.Constant) else None
        destination = keywords.get("dest")
        values = Values(walk.scopes(module, None), {}, frozenset())
        default = values.of(keywords["default"]) if "default" in keywords else _SWITCHES.get(str(switch))
        for name in names:
            plain = name.lstrip("-").replace("-", "_")
            parser.own.add(plain)
            if destination is None:
                parser.defaults_of_options[plain] = default
        if isinstance(destination, ast.Constant):
            parser.defaults_of_options[str(destination.value)] = UNKNOWN
    elif method == "set_defaults":
        for keyword in node.keywords:
            if keyword.arg is None:
                return False
            parser.defaults[keyword.arg] = _setting(module, walk, keyword.value)
    elif method == "add_arguments":
        return False
    return True


def _lets_through(node: ast.Call) -> bool:
    """Whether a parser is, or may be, told to accept unknown options."""
    assert isinstance(node.func, ast.Attribute)
    if node.func.attr in _LENIENT:
        return True
    if not _asks(node):
        return False
    return any(
        (keyword.arg in _LETTING and not _is(keyword.value, False))
        or (keyword.arg in _STOPPING and not _is(keyword.value, True))
        or keyword.arg is None
        for keyword in node.keywords
    )


def _asks(node: ast.Call) -> bool:
    return isinstance(node.func, ast.Attribute) and node.func.attr.startswith("parse_")


def _gets_words_of_code(node: ast.Call, module: Module) -> bool:
    """Whether a parser is asked for words that are written out in the code, in place of the command line's."""
    given = node.args[0] if node.args else next((key.value for key in node.keywords if key.arg == "args"), None)
    if isinstance(given, ast.Name):
        named = (item for part in module.tree for item in ast.walk(part) if isinstance(item, ast.Assign))
        made = [item.value for item in named if any(_is_named(target, given.id) for target in item.targets)]
        given = made[0] if len(made) == 1 else None
    return isinstance(given, ast.List) and all(isinstance(word, ast.Constant) for word in given.elts)


def _is_named(target: ast.expr, name: str) -> bool:
    return isinstance(target, ast.Name) and target.id == name


def _is(node: ast.expr, value: bool) -> bool:
    return isinstance(node, ast.Constant) and node.value is value


def _setting(module: Module, walk: Walk, value: ast.expr) -> Setting:
    known = Values(walk.scopes(module, None), {}, frozenset()).of(value)
    return Setting(known, Origin("file", file=module.file, span=span_of(module, value)))


def _dataclasses(item: Reached, walk: Walk, parser: Parser, options: set[str], parsed: set[str]) -> bool:
    """The dataclasses that a parser is made for; False where the text does not show them."""
    given = item.call.args[0] if item.call.args else None
    given = given or next((key.value for key in item.call.keywords if key.arg == "dataclass_types"), None)
    if isinstance(given, ast.Name):
        scopes = walk.scopes(item.module, item.owner)
        given = next((scope[given.id] for scope in scopes if given.id in scope), None) or given
    kinds = given.elts if isinstance(given, (ast.Tuple, ast.List)) else [given] if given is not None else []
    known = bool(kinds)
    for kind in kinds:
        known = _dataclass(item.module, kind, walk, parser, options, parsed, 0) and known
        if len(kinds) > 1:
            parser.beside |= _own_fields(item.module, kind, walk)
    return known


def _own_fields(module: Module, kind: ast.expr, walk: Walk) -> dict[str, Origin]:
    """The fields of a dataclass of the repository that derives from nothing, each with its place."""
    found = walk.declared(module, kind)
    if found is None or found[1].bases:
        return {}
    inner, definition = found
    return {
        item.target.id: Origin("file", file=inner.file, span=span_of(inner, item.target))
        for item in definition.body
        if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name) and not _hidden(item)
    }


def _hidden(item: ast.AnnAssign) -> bool:
    """Whether a field makes no option: `field(init=False)`, a ClassVar."""
    keywords = item.value.keywords if isinstance(item.value, ast.Call) else []
    return any(key.arg == "init" for key in keywords) or "ClassVar" in ast.unparse(item.annotation)


def _dataclass(
    module: Module,
    kind: ast.expr,
    walk: Walk,
    parser: Parser,
    options: set[str],
    parsed: set[str],
    depth: int,
    base_of: ast.ClassDef | None = None,
) -> bool:
    library = module.dotted(kind, base_of)
    if library:
        parsed.add(library)
        names = _fields(library)
        options |= names
        return bool(names)
    found = walk.declared(module, kind)
    if found is None or depth > _DEEPEST_BASE:
        return False
    inner, definition = found
    known = True
    for base in definition.bases:
        if not (isinstance(base, ast.Name) and base.id in ("object", "ABC")):
            known = _dataclass(inner, base, walk, parser, options, parsed, depth + 1, definition) and known
    for statement in definition.body:
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            name = statement.target.id
            parser.own.add(name)
            setting = _setting(inner, walk, field_default(statement.value)) if statement.value is not None else None
            parser.defaults_of_options[name] = setting.value if setting is not None else UNKNOWN
            if setting is not None and parsed:
                parser.defaults[name] = setting
    return known


def class_defaults(walk: Walk, module: Module, kind: ast.expr, library: str, depth: int = 0) -> dict[str, Setting]:
    """The arguments of a library's dataclass for which a class that derives from it states a default.

    ``library``: the name of the library's class. Defaults of bases that the repository has between both are included.
    """
    declared = walk.class_of(module, kind)
    if declared is None or depth > _DEEPEST_BASE:
        return {}
    inner, definition = declared
    defaults: dict[str, Setting] = {}
    for base in reversed(definition.bases):
        if not inner.dotted(base, definition):
            defaults |= class_defaults(walk, inner, base, library, depth + 1)
    fields = _fields(library)
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign) or statement.value is None:
            continue
        if isinstance(statement.target, ast.Name) and statement.target.id in fields:
            defaults[statement.target.id] = _setting(inner, walk, field_default(statement.value))
    return defaults


def field_default(value: ast.expr) -> ast.expr:
    """What a field starts with: `x: int = 1`, `x: int = field(default=1)`; the call where a function makes it."""
    if isinstance(value, ast.Call) and getattr(value.func, "id", getattr(value.func, "attr", "")) == "field":
        return next((key.value for key in value.keywords if key.arg == "default"), value)
    return value


def _fields(name: str) -> frozenset[str]:
    """The options that a library's dataclass makes; empty for one that is not known."""
    library, _, last = name.partition(".")
    if library == "transformers" and last in ("TrainingArguments", "Seq2SeqTrainingArguments"):
        own = frozenset(load_schema("training-arguments").root.names)
        return own | OF_SEQ2SEQ if last == "Seq2SeqTrainingArguments" else own
    if library == "trl":
        return frozenset(load_schema("trl").root.names)
    return frozenset()


def _holders(found: Reach) -> dict[int, frozenset[str]]:
    """The names that a parser's answer is given to, by function."""
    names: dict[int, set[str]] = {}
    for owner, node in found.given:
        for target in node.targets:
            names.setdefault(id(owner) if owner is not None else 0, set()).update(_names(target))
    return {owner: frozenset(options) for owner, options in names.items()}


def _names(target: ast.expr) -> Iterator[str]:
    if isinstance(target, ast.Name):
        yield target.id
    elif isinstance(target, (ast.Tuple, ast.List)):
        for item in target.elts:
            yield from _names(item)
