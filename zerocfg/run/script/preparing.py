"""What a script certainly hands to `Accelerator.prepare` beside its model: an optimizer or a scheduler of its own.

Where the DeepSpeed config has the section, too, accelerate wants a DummyOptim or a DummyScheduler in its place.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from zerocfg.run.script.modules import Module
from zerocfg.run.script.reachable import Reach, Reached

_PLACEHOLDERS = ("DummyOptim", "DummyScheduler")
_SCHEDULES = "torch.optim.lr_scheduler."


def prepared_by_script(found: Reach) -> dict[str, tuple[Module, ast.Call]]:
    """By section of the DeepSpeed config ("optimizer", "scheduler"), the call that makes what is prepared in its place;
    nothing where the script knows of the placeholders."""
    accelerators = [item for item in found.calls if item.name == "accelerate.Accelerator"]
    texts = (module.file.source.text for module in found.modules)
    if len(accelerators) != 1 or any(name in text for text in texts for name in _PLACEHOLDERS):
        return {}
    made = accelerators[0]
    body = made.owner.body if made.owner is not None else made.module.tree
    every = [node for statement in body for node in ast.walk(statement)]
    makers: dict[str, list[ast.expr]] = {}
    for node in every:
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            makers.setdefault(ast.unparse(node.targets[0]), []).append(node.value)
    result: dict[str, tuple[Module, ast.Call]] = {}
    for name in _prepared(every, made):
        calls = [value for value in makers.get(name, ()) if not _prepares(value)]
        sections = {_section(made.module, call) for call in calls}
        if len(sections) == 1 and (section := sections.pop()) and isinstance(calls[0], ast.Call):
            result.setdefault(section, (made.module, calls[0]))
    return result


def _prepared(every: list[ast.AST], made: Reached) -> Iterator[str]:
    """What is handed to `prepare` of the accelerator, by the names of the code."""
    holders = {
        ast.unparse(node.targets[0])
        for node in every
        if isinstance(node, ast.Assign) and node.value is made.call and len(node.targets) == 1
    }
    for node in every:
        if _prepares(node) and ast.unparse(node.func.value) in holders:  # type: ignore[attr-defined]
            yield from map(ast.unparse, node.args)  # type: ignore[attr-defined]


def _prepares(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "prepare"


def _section(module: Module, made: ast.expr) -> str:
    """The section in whose place a new object comes; empty for anything that is not known."""
    if not isinstance(made, ast.Call):
        return ""
    names: list[str] = []
    function = made.func
    while isinstance(function, ast.Attribute):
        names.append(function.attr)
        function = function.value
    found = module.imports.get(function.id) if isinstance(function, ast.Name) else None
    if found is None or found.level:
        return ""
    whole = ".".join(filter(None, (found.module, found.name, *reversed(names))))
    last = whole.rpartition(".")[2]
    if whole.startswith(_SCHEDULES) or (
        whole.startswith("transformers.") and last.startswith("get_") and "sched" in last
    ):
        return "scheduler"
    return "optimizer" if whole.startswith("torch.optim.") and last[:1].isupper() else ""
