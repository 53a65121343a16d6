"""Whether a class that derives from a Trainer trains by a loop of its own."""

from __future__ import annotations

import ast

LOOPS = ("train", "_inner_training_loop")
"""Methods of transformers' Trainer that a class replaces to train otherwise."""


def own_loop(definition: ast.ClassDef) -> bool:
    """Whether one of these methods is replaced and the library's is never called from it."""
    return any(
        isinstance(item, ast.FunctionDef) and item.name in LOOPS and not _goes_on(item, definition)
        for item in definition.body
    )


def _goes_on(method: ast.FunctionDef, definition: ast.ClassDef) -> bool:
    """Whether a method ends in the library's loop: `super().train()`, `Trainer.train(self)`, or a copy of it, which
    starts the engine by `deepspeed_init`."""
    bases = {ast.dump(base) for base in definition.bases}
    for node in ast.walk(method):
        if isinstance(node, ast.Name) and node.id == "deepspeed_init":
            return True
        if not isinstance(node, ast.Attribute) or node.attr not in LOOPS:
            continue
        owner = node.value
        inner = node.attr == LOOPS[1] and isinstance(owner, ast.Name) and owner.id == "self"
        parent = isinstance(owner, ast.Call) and isinstance(owner.func, ast.Name) and owner.func.id == "super"
        if (inner and method.name == LOOPS[0]) or parent or ast.dump(owner) in bases:
            return True
    return False
