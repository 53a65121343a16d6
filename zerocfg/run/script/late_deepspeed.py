"""DeepSpeed configs that a script gives its training arguments once these are made.

TrainingArguments build what the Trainer takes DeepSpeed from in `__post_init__`; a later `args.deepspeed = ...` changes
the attribute alone. Only objects that are certainly such arguments count, made without DeepSpeed by code that is seen.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence

from zerocfg.patterns import pattern
from zerocfg.record import record
from zerocfg.run.script.arguments import is_arguments
from zerocfg.run.script.code import nodes
from zerocfg.run.script.guards import patches_trainers
from zerocfg.run.script.lines import Scope, own_nodes, scopes
from zerocfg.run.script.modules import Module
from zerocfg.run.script.options import PARSERS, Parser, class_defaults
from zerocfg.run.script.reachable import Owner, Reach, Reached, Walk

_OTHERWISE = pattern(
    r"(?<!super\(\))\.__post_init__\(|hf_deepspeed_config|deepspeed_plugin|DeepSpeedPlugin|HfTrainerDeepSpeedConfig"
    r"|ACCELERATE_(?:USE_)?DEEPSPEED|deepspeed\.initialize|is_deepspeed_enabled|__setattr__|def deepspeed\b"
    r"|create_accelerator_and_postprocess|_build_accelerator_args|\breplace\(\s*\w*args\b|__class__\(|type\(\w*args\)\("
)
"""What may give the Trainer DeepSpeed all the same, or make the arguments anew."""
_TRAINERS = frozenset(("transformers.Trainer", "transformers.Seq2SeqTrainer"))
_OF_TRL = frozenset(("SFT", "DPO", "KTO", "GRPO", "Reward", "ORPO", "CPO"))
"""Trainers of TRL that keep a config of their own class as it is. Of other arguments SFTTrainer makes such a config."""
_PARSES = frozenset(("parse_args_into_dataclasses", "parse_args_and_config", "parse_json_file", "parse_yaml_file"))
_TEXTS = frozenset(("join", "abspath", "realpath", "expanduser", "str"))
"""Functions whose answer is a text that is not empty, as they are used for paths."""


@record(frozen=True, slots=True)
class Assigned:
    """One such assignment. ``holder``: what the code calls the arguments, of the library's class ``kind``; ``parsed``:
    a parser of the command line makes them. ``sure``: it has been run whenever the Trainer is made. ``place``: what is
    assigned to."""

    module: Module
    owner: Owner
    holder: str
    kind: str
    parsed: bool
    sure: bool
    place: ast.expr
    value: ast.expr

    @property
    def filled(self) -> bool:
        """Whether the value is certainly not empty, although it may not be known."""
        value = self.value
        if isinstance(value, ast.Call):
            name = value.func.attr if isinstance(value.func, ast.Attribute) else getattr(value.func, "id", "")
            return name in _TEXTS and bool(value.args)
        if isinstance(value, ast.JoinedStr):
            return any(isinstance(part, ast.Constant) for part in value.values)
        return isinstance(value, ast.Dict) and bool(value.keys)


@record(frozen=True, slots=True)
class _Made:
    """How a name gets training arguments."""

    kind: str
    parsed: bool


_Bound = Mapping[str, Sequence[tuple[int, _Made | None]]]
"""By name the lines that give it something, and how training arguments; None for anything else."""


def late_assignments(found: Reach, walk: Walk, parser: Parser) -> tuple[Assigned, ...]:
    """Those of a script whose every module is known, and in which nothing else gives a Trainer DeepSpeed."""
    if "deepspeed" not in found.stored or not found.shallow or found.unread or found.own_loop:
        return ()
    if any(_OTHERWISE.search(module.file.source.text) for module in found.modules) or patches_trainers(found.modules):
        return ()
    return tuple(item for scope in scopes(found, "deepspeed") for item in _of_scope(scope, found, walk, parser))


def _of_scope(scope: Scope, found: Reach, walk: Walk, parser: Parser) -> Iterator[Assigned]:
    late = [(at, *item) for at, (line, _) in enumerate(scope.lines) if (item := _late(line)) is not None]
    bound = _bound(scope, found, walk) if late else {}
    for at, holder, place, value in late:
        made = _made(bound, holder, at)
        if made is None or _may_have_had(scope, holder, at, value):
            continue
        sure = _sure(scope, holder, made, at, found)
        if sure is None and _goes_to_a_trainer(scope, holder, made, at, found, parser):
            sure = False
        if sure is not None:
            yield Assigned(scope.module, scope.owner, holder, made.kind, made.parsed, sure, place, value)


def _late(line: ast.stmt) -> tuple[str, ast.expr, ast.expr] | None:
    """`args.deepspeed = value`, or `setattr(args, "deepspeed", value)`: whose it is, its place, the value."""
    if isinstance(line, ast.Assign) and len(line.targets) == 1:
        target = line.targets[0]
        if isinstance(target, ast.Attribute) and target.attr == "deepspeed" and isinstance(target.value, ast.Name):
            return target.value.id, target, line.value
    call = line.value if isinstance(line, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id != "setattr":
        return None
    given = call.args
    if len(given) != 3 or not isinstance(given[0], ast.Name) or getattr(given[1], "value", "") != "deepspeed":
        return None
    return given[0].id, call, given[2]


# -- what makes the arguments -------------------------------------------------------------------------------------


def _made(bound: _Bound, holder: str, at: int) -> _Made | None:
    """How the arguments were made; None where the name is, or may be, given anything else."""
    every = bound.get(holder, ())
    made = {item for _, item in every}
    return made.pop() if len(made) == 1 and all(where < at for where, _ in every) else None


def _bound(scope: Scope, found: Reach, walk: Walk) -> _Bound:
    bound: dict[str, list[tuple[int, _Made | None]]] = {}
    for at, (line, _) in enumerate(scope.lines):
        known: set[int] = set()
        for index, name in _targets(line):
            known.add(id(name))
            made = _maker(scope, line.value, index, found, walk)  # type: ignore[attr-defined]
            bound.setdefault(name.id, []).append((at, made))
        for node in own_nodes(line):
            if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load) and id(node) not in known:
                bound.setdefault(node.id, []).append((at, None))
        for shared in line.names if isinstance(line, (ast.Global, ast.Nonlocal)) else ():
            bound.setdefault(shared, []).append((at, None))
    return bound


def _targets(line: ast.stmt) -> Iterator[tuple[int | None, ast.Name]]:
    """The names that an assignment gives something, each with its place in a tuple; no others behind a star."""
    if isinstance(line, ast.Assign) and len(line.targets) == 1:
        target = line.targets[0]
    elif isinstance(line, ast.AnnAssign) and line.value is not None:
        target = line.target
    else:
        return
    if isinstance(target, ast.Name):
        yield None, target
    for index, item in enumerate(target.elts if isinstance(target, (ast.Tuple, ast.List)) else ()):
        if not isinstance(item, ast.Name):
            return
        yield index, item


def _maker(scope: Scope, value: ast.expr, index: int | None, found: Reach, walk: Walk) -> _Made | None:
    if index is None and isinstance(value, ast.Subscript) and isinstance(value.slice, ast.Constant):
        index, value = value.slice.value, value.value  # type: ignore[assignment]
    if not isinstance(value, ast.Call):
        return None
    if not isinstance(index, int):
        kinds = {call.name for call in found.calls if call.call is value}
        kind = kinds.pop() if len(kinds) == 1 else ""
        return _Made(kind, parsed=False) if is_arguments(kind) and not _may_give(scope.module, value, walk) else None
    if not isinstance(value.func, ast.Attribute) or value.func.attr not in _PARSES:
        return None
    every = _dataclasses(scope, value.func.value, found)
    if index >= len(every):
        return None
    kind = scope.module.dotted(every[index]) or walk.library_base(scope.module, every[index])
    return _Made(kind, parsed=True) if is_arguments(kind) else None


def _may_give(module: Module, call: ast.Call, walk: Walk) -> bool:
    """Whether the call that makes the arguments may give them a DeepSpeed config itself."""
    if any(keyword.arg is None for keyword in call.keywords) or any(
        isinstance(item, ast.Starred) for item in call.args
    ):
        return True
    given = next((keyword.value for keyword in call.keywords if keyword.arg == "deepspeed"), None)
    if given is not None:
        return not (isinstance(given, ast.Constant) and given.value is None)
    if module.dotted(call.func):
        return False
    default = class_defaults(walk, module, call.func, "transformers.TrainingArguments").get("deepspeed")
    return default is not None and default.value is not None


def _dataclasses(scope: Scope, parser: ast.expr, found: Reach) -> Sequence[ast.expr]:
    """What a parser is made for, where it is asked at once, or bears its name in the same function or module."""
    made = [call for call in found.calls if call.name in PARSERS and call.module is scope.module]
    if isinstance(parser, ast.Name):
        made = [call for call in made if call.owner in (scope.owner, None) and _is_called(call, parser.id)]
    else:
        made = [call for call in made if call.call is parser]
    given = made[0].call.args[:1] if len(made) == 1 else []
    return given[0].elts if given and isinstance(given[0], (ast.Tuple, ast.List)) else given


def _is_called(made: Reached, name: str) -> bool:
    body = made.owner.body if made.owner is not None else made.module.tree
    given = (node for node in nodes(*body) if isinstance(node, ast.Assign) and node.value is made.call)
    return any([ast.unparse(target) for target in node.targets] == [name] for node in given)


def _may_have_had(scope: Scope, holder: str, at: int, value: ast.expr) -> bool:
    """Whether the code looks at what it replaces: the arguments may have been made with DeepSpeed then. It may ask
    whether there is none."""
    if any(_is_read(node, holder) for node in nodes(value)):
        return True
    for line, _ in scope.lines[:at]:
        if any(_is_read(node, holder) for node in own_nodes(line)):
            within = (id(line), "body") in scope.lines[at][1]
            if not within or not _asks_whether_absent(scope.tests.get(id(line)), holder):
                return True
    return False


def _is_read(node: ast.AST, holder: str) -> bool:
    """`holder.deepspeed`, or `getattr(holder, "deepspeed", None)`."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load) and node.attr == "deepspeed":
        return isinstance(node.value, ast.Name) and node.value.id == holder
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Name) or node.func.id != "getattr":
        return False
    return [getattr(item, "id", getattr(item, "value", "")) for item in node.args[:2]] == [holder, "deepspeed"]


def _asks_whether_absent(test: ast.expr | None, holder: str) -> bool:
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        asking = [item for item in test.values if any(_is_read(node, holder) for node in nodes(item))]
        return all(_asks_whether_absent(item, holder) for item in asking)
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_read(test.operand, holder)
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Is):
        return _is_read(test.left, holder) and getattr(test.comparators[0], "value", "") is None
    return False


# -- where they go ------------------------------------------------------------------------------------------------


def _sure(scope: Scope, holder: str, made: _Made, at: int, found: Reach) -> bool | None:
    """Whether each Trainer that the same function gives the arguments is made after the assignment was run, and only
    then; None where it gives them none, or one that makes others of them."""
    here = {
        id(call.call): call
        for call in _trainers(found)
        if call.owner is scope.owner and call.module is scope.module and _is(_given(call), holder)
    }
    getting = [
        (where, path, here[id(node)])
        for where, (line, path) in enumerate(scope.lines)
        for node in own_nodes(line)
        if id(node) in here
    ]
    if not getting or any(where <= at or not _keeps(call.name, made.kind) for where, _, call in getting):
        return None
    around = scope.lines[at][1]
    return all(path[: len(around)] == around for _, path, _ in getting)


def _goes_to_a_trainer(scope: Scope, holder: str, made: _Made, at: int, found: Reach, parser: Parser) -> bool:
    """Whether the function hands the arguments on, and they are the only ones that Trainers elsewhere can get."""
    trainers = _trainers(found)
    if any(_is(_given(call), holder) and call.owner is scope.owner for call in trainers):
        return False  # here, in a way that is not certain
    makers = {id(call.call) for call in found.calls if is_arguments(call.name)}
    if len(makers) + sum(map(is_arguments, parser.parsed)) != 1 or not trainers:
        return False
    kept = all(_keeps(call.name, made.kind) and _given(call) is not None for call in trainers)
    return kept and any(_is(item, holder) for line, _ in scope.lines[at + 1 :] for item in _handed(line))


def _trainers(found: Reach) -> list[Reached]:
    return [call for call in found.calls if call.name.endswith("Trainer")]


def _keeps(trainer: str, kind: str) -> bool:
    """Whether a trainer takes arguments of a class as they are."""
    name = trainer.removeprefix("trl.").removesuffix("Trainer")
    return trainer in _TRAINERS or (name in _OF_TRL and (trainer, kind) == (f"trl.{name}Trainer", f"trl.{name}Config"))


def _given(trainer: Reached) -> ast.expr | None:
    """What a Trainer gets as its arguments."""
    named = next((keyword.value for keyword in trainer.call.keywords if keyword.arg == "args"), None)
    by_position = trainer.call.args[1:2] if trainer.name in _TRAINERS else []
    return by_position[0] if named is None and by_position else named


def _handed(line: ast.stmt) -> Iterator[ast.expr]:
    """What a statement returns, keeps or calls something with."""
    if isinstance(line, (ast.Return, ast.Assign)) and line.value is not None:
        yield from line.value.elts if isinstance(line.value, ast.Tuple) else [line.value]
    for node in own_nodes(line):
        if isinstance(node, ast.Call):
            yield from node.args
            yield from (keyword.value for keyword in node.keywords)


def _is(node: ast.expr | None, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name
