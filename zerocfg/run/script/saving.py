"""Whether a script saves the model that it gave to `Accelerator.prepare`, or that a Trainer trained, as it is sharded.

`save_pretrained` asks the module for its parameters. Of a module that ZeRO-3 shards each process holds tensors without
elements, and only a `state_dict` of gathered ones changes what is written.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence

from zerocfg.patterns import pattern
from zerocfg.run.script.code import nodes
from zerocfg.run.script.modules import Module
from zerocfg.run.script.reachable import Reach, Reached

_GATHERS = frozenset(
    "get_state_dict save_model save_16bit_model GatheredParameters get_fp32_state_dict_from_zero_checkpoint "
    "load_state_dict_from_zero_checkpoint convert_zero_checkpoint_to_fp32_state_dict".split()
)
_KNOWS = pattern(r"(?i)zero_?3|zero_stage|zero_to_fp32|distributed_type|deepspeed|gather")
"""A script that speaks of these may do something else where a model is sharded."""
_TRAINERS = frozenset(("transformers.Trainer", "transformers.Seq2SeqTrainer"))
_ADAPTS = pattern(r"(?i)peft|lora")
"""Adapters are saved in another way."""
_CLOSED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)


def saves_sharded(found: Reach) -> tuple[Module, ast.Call] | None:
    """The first `save_pretrained` of a prepared or trained model that gets nothing gathered; None where that is not
    certain."""
    if found.methods & _GATHERS or not found.shallow or found.unread:
        return None
    texts = [module.file.source.text for module in found.modules]
    if any(map(_KNOWS.search, texts)):
        return None
    accelerators = [item for item in found.calls if item.name == "accelerate.Accelerator"]
    if len(accelerators) == 1:
        call = next(_saves(accelerators[0]), None)
        return (accelerators[0].module, call) if call is not None else None
    trainers = [item for item in found.calls if item.name in _TRAINERS]
    if accelerators or len(trainers) != 1 or any(map(_ADAPTS.search, texts)):
        return None
    call = next(_saves_trained(trainers[0]), None)
    return (trainers[0].module, call) if call is not None else None


def _saves_trained(made: Reached) -> Iterator[ast.Call]:
    """Those of the model of a Trainer, behind its `train()`; of the library's own class, not of one that derives."""
    if ast.unparse(made.call.func).rpartition(".")[2] != made.name.rpartition(".")[2]:
        return
    given = [*made.call.args[:1], *(keyword.value for keyword in made.call.keywords if keyword.arg == "model")]
    trainer, trained = "", False
    models = {item.id for item in given if isinstance(item, ast.Name)}
    for node in _in_order(made.owner.body if made.owner is not None else made.module.tree):
        if isinstance(node, ast.Assign):
            trainer = ast.unparse(node.targets[0]) if node.value is made.call else trainer
            models -= _names(node) if trainer else set()
        elif _calls(node, trainer, "train"):
            trained = True
        elif trained and (saved := _saved(node)) is not None and ast.unparse(saved) in {*models, f"{trainer}.model"}:
            yield node


def _saved(node: ast.Call) -> ast.expr | None:
    """What a `save_pretrained` to which no weights are given saves; None for any other call."""
    given = {keyword.arg for keyword in node.keywords}
    if not isinstance(node.func, ast.Attribute) or node.func.attr != "save_pretrained":
        return None
    return node.func.value if len(node.args) <= 2 and not given & {"state_dict", None} else None


def _saves(made: Reached) -> Iterator[ast.Call]:
    body: Sequence[ast.stmt] = made.owner.body if made.owner is not None else made.module.tree
    accelerator = ""
    prepared: set[str] = set()
    for node in _in_order(body):
        if isinstance(node, ast.Assign):
            value = node.value
            if value is made.call:
                accelerator = ast.unparse(node.targets[0])
            elif _calls(value, accelerator, "prepare") or _is_prepared(value, accelerator, prepared):
                prepared |= _names(node)
            else:
                prepared -= _names(node)
        elif (saved := _saved(node)) is not None and _is_prepared(saved, accelerator, prepared):
            yield node


def _in_order(body: Sequence[ast.stmt]) -> list[ast.Assign | ast.Call]:
    """Assignments and calls of some code, those within loops and conditions too, in the order of the text."""
    inner = {id(node) for item in nodes(*body) if isinstance(item, _CLOSED) for node in nodes(item)}
    kept = [item for item in nodes(*body) if isinstance(item, (ast.Assign, ast.Call)) and id(item) not in inner]
    return sorted(kept, key=lambda item: (item.end_lineno or 0, item.end_col_offset or 0))


def _names(node: ast.Assign) -> set[str]:
    targets = node.targets[0].elts if isinstance(node.targets[0], ast.Tuple) else node.targets
    return {target.id for target in targets if isinstance(target, ast.Name)}


def _is_prepared(value: ast.expr, accelerator: str, prepared: set[str]) -> bool:
    """`model`, `model.module`, `accelerator.unwrap_model(model)`."""
    if isinstance(value, ast.Attribute) and value.attr == "module":
        value = value.value
    if isinstance(value, ast.Call) and _calls(value, accelerator, "unwrap_model") and value.args:
        value = value.args[0]
    return isinstance(value, ast.Name) and value.id in prepared


def _calls(value: ast.expr, accelerator: str, method: str) -> bool:
    return isinstance(value, ast.Call) and bool(accelerator) and ast.unparse(value.func) == f"{accelerator}.{method}"
