"""The models of transformers that a script certainly loads with keywords that some release refuses."""

from __future__ import annotations

import ast

from zerocfg.catalog.load_arguments import removed_load_arguments
from zerocfg.patterns import pattern
from zerocfg.record import replace
from zerocfg.run.model import UNKNOWN, FromLine, ModelLoad, Origin, Setting
from zerocfg.run.script.arguments import is_arguments
from zerocfg.run.script.code import nodes
from zerocfg.run.script.guards import asks_releases, patches_trainers
from zerocfg.run.script.modules import span_of
from zerocfg.run.script.options import PARSERS, Parser, field_default
from zerocfg.run.script.reachable import Reach, Reached, Walk
from zerocfg.run.script.values import Values

_CLASS = pattern(r"transformers\.((?!TF|Flax|\w*(?:Tokenizer|PreTrained|Pretrained))\w*(?:Model|For[A-Z]\w*))")
_REGISTERS = pattern(r"\bAuto(?:Model\w*|Config)\.register\(")
"""A class of the script's own, which an Auto class may then load."""
_TRUSTS = "trust_remote_code"


def model_loads(found: Reach, walk: Walk, parser: Parser) -> tuple[ModelLoad, ...]:
    """In the order in which the script comes to them."""
    asked = {id(item.call): item for item in found.calls if _refused(item.call) and _class(item)}
    if not asked or patches_trainers(found.modules):
        return ()
    from zerocfg.run.script.steps import steps  # few scripts have such keywords

    every = steps(found.modules[0], walk)
    registers = any(_REGISTERS.search(module.file.source.text) for module in found.modules)
    first = _arguments_made(found, parser, {id(step.call): index for index, step in reversed(list(enumerate(every)))})
    loads = []
    for index, step in enumerate(every):
        item = asked.pop(id(step.call), None) if step.certain else None
        if item is None or asks_releases(item.module) or _may_be_anothers(item, walk):
            continue
        if not (registers and _class(item).startswith("Auto")):
            loads.append(_load(item, found, walk, parser, ahead=index < first))
    return tuple(loads)


def _class(item: Reached) -> str:
    """The class of transformers whose `from_pretrained` is called; empty where it is none, or that of no model."""
    function = item.call.func
    if not isinstance(function, ast.Attribute) or function.attr != "from_pretrained":
        return ""
    found = _CLASS.fullmatch(item.module.dotted(function.value))
    return found[1] if found is not None else ""


def _refused(call: ast.Call) -> bool:
    return any(keyword.arg in removed_load_arguments() for keyword in call.keywords)


def _may_be_anothers(item: Reached, walk: Walk) -> bool:
    """Whether the class may be another than the library's: a copy of it, or what else the code calls so."""
    if item.module.holding("transformers", walk.root):
        return True
    head = item.call.func
    while isinstance(head, ast.Attribute):
        head = head.value
    name = head.id if isinstance(head, ast.Name) else ""
    if any(name in scope for scope in walk.scopes(item.module, item.owner)):
        return True
    statements = (node for node in nodes(*item.module.tree) if isinstance(node, (ast.Import, ast.ImportFrom)))
    brought = {
        (getattr(statement, "module", ""), alias.name)
        for statement in statements
        for alias in statement.names
        if name == (alias.asname or alias.name.partition(".")[0])
    }
    return len({module or imported.partition(".")[0] for module, imported in brought}) > 1


def _arguments_made(found: Reach, parser: Parser, at: dict[int, int]) -> int:
    """The first step at which arguments of a Trainer may be made; -1 where that is not certain. ``at``: by the identity
    of a call, its step."""
    parses = any(map(is_arguments, parser.parsed))
    makers = [call for call in found.calls if is_arguments(call.name) or (parses and call.name in PARSERS)]
    return min((at.get(id(maker.call), -1) for maker in makers), default=-1)


def _load(item: Reached, found: Reach, walk: Walk, parser: Parser, *, ahead: bool) -> ModelLoad:
    values = Values(walk.scopes(item.module, item.owner), parser.defaults_of_options, parser.names(item.owner))

    def setting(node: ast.expr) -> Setting:
        return Setting(values.of(node), Origin("file", file=item.module.file, span=span_of(item.module, node)))

    place = Origin("file", item.name, file=item.module.file, span=span_of(item.module, item.call))
    keywords = {keyword.arg: keyword.value for keyword in item.call.keywords if keyword.arg is not None}
    given = {name: setting(node) for name, node in keywords.items() if name in (*removed_load_arguments(), _TRUSTS)}
    open_ = any(keyword.arg is None for keyword in item.call.keywords)
    named = item.call.args[0] if item.call.args else keywords.get("pretrained_model_name_or_path")
    model = setting(named) if named is not None else Setting(UNKNOWN, place)
    if named is not None and not model.known:
        model = replace(model, value=_of_field(named, found))
    return ModelLoad(
        _class(item),
        {name: value for name, value in given.items() if name != _TRUSTS},
        place,
        model,
        given.get(_TRUSTS, Setting(UNKNOWN if open_ else False, place)),
        ahead,
    )


def _of_field(node: ast.expr, found: Reach) -> object:
    """The option that an attribute stands for, where one class alone declares such a field, with a text as its default:
    `model_args.model_name_or_path`, whoever made `model_args`."""
    if not isinstance(node, ast.Attribute) or not isinstance(node.value, ast.Name) or node.attr in found.stored:
        return UNKNOWN
    declared = [
        field
        for module in found.modules
        if node.attr in module.file.source.text
        for item in nodes(*module.tree)
        if isinstance(item, ast.ClassDef)
        for field in item.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name) and field.target.id == node.attr
    ]
    value = declared[0].value if len(declared) == 1 else None
    default = field_default(value) if value is not None else None
    known = isinstance(default, ast.Constant) and isinstance(default.value, str)
    return FromLine(node.attr, default.value) if known and isinstance(default, ast.Constant) else UNKNOWN
