"""Whether a script loads the model that it trains before it makes the arguments of its Trainer, or after.

Only straight code counts: both stand in one block, or in functions of the module that this block calls, outside of
conditions and loops.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping, Sequence

from zerocfg.patterns import pattern
from zerocfg.record import record
from zerocfg.run.script.arguments import is_arguments
from zerocfg.run.script.modules import Module, span_of
from zerocfg.run.script.reachable import Reach, Reached

_MODEL = pattern(r"transformers\.(?:AutoModelFor\w+|\w+(?:ForCausalLM|ForConditionalGeneration|LMHeadModel))")
_QUANTIZES = frozenset(("quantization_config", "load_in_4bit", "load_in_8bit"))
_ELSEWHERE = pattern(
    r"Hf(?:Trainer)?DeepSpeedConfig|zero\.Init|Accelerator\(|DeepSpeedPlugin\(|HfArgumentParser|TrlParser"
)
"""What else makes a DeepSpeed config known to `from_pretrained`, or arguments of a Trainer."""
_SIMPLE = (ast.Expr, ast.Assign, ast.AnnAssign, ast.Return)
Functions = Mapping[str, ast.FunctionDef]


@record(frozen=True, slots=True)
class Order:
    """The `from_pretrained` of the model that a Trainer gets. ``first``: it comes before the Trainer's arguments."""

    load: Reached
    first: bool


def load_order(found: Reach) -> Order | None:
    """None where the order is not certain, or anything else than one call makes arguments of a Trainer."""
    made = [call for call in found.calls if is_arguments(call.name)]
    if len(made) != 1 or any(_ELSEWHERE.search(module.file.source.text) for module in found.modules):
        return None
    module, arguments = made[0].module, made[0].call
    loads = [call for call in found.calls if call.module is module and _loads(module, call.call)]
    trainers = [call.call for call in found.calls if call.module is module and call.name.endswith("Trainer")]
    if len(loads) != 1 or len(trainers) != 1:
        return None
    for block, functions in _blocks(module):
        first = _order(block, functions, loads[0].call, arguments, trainers[0])
        if first is not None:
            return Order(loads[0], first)
    return None


def _loads(module: Module, call: ast.Call) -> bool:
    function = call.func
    if not isinstance(function, ast.Attribute) or function.attr != "from_pretrained":
        return False
    given = {keyword.arg for keyword in call.keywords}
    return _MODEL.fullmatch(module.dotted(function.value)) is not None and None not in given and not given & _QUANTIZES


_DTYPES = frozenset(("dtype", "torch_dtype", "config", "quantization_config", "load_in_4bit", "load_in_8bit", None))
"""What decides the dtype of a loaded model, or may; None: `**`."""
_CONVERTS = pattern(r"\s*\.\s*(?:half|float|double|bfloat16)\(|\s*\.\s*to\([^)]*(?:dtype|float\d*|half)\b")
"""Behind the call: another dtype after all."""


def leaves_dtype(item: Reached) -> bool:
    """Whether a call loads a model of transformers, and says nothing of the dtype of its weights."""
    function = item.call.func
    if not isinstance(function, ast.Attribute) or function.attr != "from_pretrained" or len(item.call.args) > 1:
        return False
    if {keyword.arg for keyword in item.call.keywords} & _DTYPES or not _MODEL.fullmatch(
        item.module.dotted(function.value)
    ):
        return False
    behind = item.module.file.source.text[span_of(item.module, item.call).end :]
    return _CONVERTS.match(behind) is None


def _blocks(module: Module) -> Iterator[tuple[Sequence[ast.stmt], Functions]]:
    """The blocks of straight code of a module, with the functions that each can call: `f`, or `self.f` in a class."""
    own = {item.name: item for item in module.definitions.values() if isinstance(item, ast.FunctionDef)}
    # statements inside of a condition of the module are indented
    yield [item for item in module.body if item.col_offset == 0], own
    for statement in module.body:
        if isinstance(statement, ast.If) and statement.col_offset == 0:
            yield statement.body, own
    for definition in module.definitions.values():
        if isinstance(definition, ast.FunctionDef):
            yield definition.body, own
        elif isinstance(definition, ast.ClassDef):
            methods = [item for item in definition.body if isinstance(item, ast.FunctionDef)]
            callable_here = {**own, **{f"self.{item.name}": item for item in methods}}
            for method in methods:
                yield method.body, callable_here


def _order(
    block: Sequence[ast.stmt], functions: Functions, load: ast.Call, arguments: ast.Call, trainer: ast.Call
) -> bool | None:
    """Whether the load comes first; None where the block does not hold all three, or the model may be another one."""
    at: dict[str, int] = {}
    model = ""
    for index, statement in enumerate(block):
        if not isinstance(statement, _SIMPLE):
            if model and model in _assigned(statement):
                return None
            continue
        target = _loaded(statement, functions, load)
        if target:
            model = target
            at["load"] = index
        elif model and "trainer" not in at and model in _assigned(statement):
            return None
        if _holds(statement, functions, arguments):
            at["arguments"] = index
        if any(node is trainer for node in ast.walk(statement)) and model and _model_of(trainer) == model:
            at["trainer"] = index
    if len(at) < 3 or at["load"] == at["arguments"] or at["trainer"] < max(at["load"], at["arguments"]):
        return None
    return at["load"] < at["arguments"]


def _model_of(trainer: ast.Call) -> str:
    given = next((keyword.value for keyword in trainer.keywords if keyword.arg == "model"), None)
    return ast.unparse(given if given is not None else trainer.args[0]) if given is not None or trainer.args else ""


def _called(statement: ast.stmt, functions: Functions) -> ast.FunctionDef | None:
    value = getattr(statement, "value", None)
    return functions.get(ast.unparse(value.func)) if isinstance(value, ast.Call) else None


def _loaded(statement: ast.stmt, functions: Functions, load: ast.Call) -> str:
    """What a statement assigns the loaded model to, by itself or in a function that it calls; empty if it does not."""
    if isinstance(statement, ast.Assign) and statement.value is load:
        return ast.unparse(statement.targets[0])
    called = _called(statement, functions)
    for inner in called.body if called is not None else ():
        if not isinstance(inner, (ast.Assign, ast.Return)) or inner.value is not load:
            continue
        if isinstance(inner, ast.Return):
            return ast.unparse(statement.targets[0]) if isinstance(statement, ast.Assign) else ""
        target = ast.unparse(inner.targets[0])
        return target if target.startswith("self.") else _returned(statement, called, target)
    return ""


def _returned(statement: ast.stmt, called: ast.FunctionDef | None, name: str) -> str:
    """The name under which a statement gets what a function returns as ``name``, alone or as one of several."""
    last = called.body[-1] if called is not None else None
    if not isinstance(last, ast.Return) or last.value is None or not isinstance(statement, ast.Assign):
        return ""
    target, value = statement.targets[0], last.value
    if isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple) and len(value.elts) == len(target.elts):
        pairs = zip(value.elts, target.elts, strict=True)
        return next((ast.unparse(to) for given, to in pairs if ast.unparse(given) == name), "")
    return ast.unparse(target) if ast.unparse(value) == name else ""


def _holds(statement: ast.stmt, functions: Functions, call: ast.Call) -> bool:
    called = _called(statement, functions)
    inside: Iterable[ast.stmt] = called.body if called is not None else ()
    simple = [statement, *(item for item in inside if isinstance(item, _SIMPLE))]
    return any(node is call for item in simple for node in ast.walk(item))


def _assigned(statement: ast.stmt) -> set[str]:
    """The names and attributes that a statement sets."""
    return {
        ast.unparse(node)
        for node in ast.walk(statement)
        if isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store)
    }
