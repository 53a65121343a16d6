"""What a script does when it is started, in the order in which it does it, and which of that is certain.

Certain is straight code: no branch, loop or `try` that goes on after an error, and the functions that such code calls.
That it is left before (`if args.merge: return`) is not looked at: a run that trains comes to the code that trains.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from contextlib import suppress

from zerocfg.record import field, record
from zerocfg.run.script.code import children, nodes
from zerocfg.run.script.modules import Definition, Module, is_main
from zerocfg.run.script.reachable import Owner, Walk

_Function = (ast.FunctionDef, ast.AsyncFunctionDef)
_Class = tuple[Module, ast.ClassDef]
_CALLING = frozenset(
    ("fire.Fire", "tyro.cli", "jsonargparse.CLI", "jsonargparse.auto_cli", "accelerate.notebook_launcher")
)
"""Functions of libraries that call the one that they are given first."""
_ENDS = frozenset(("sys.exit", "exit", "quit", "os._exit"))
_OTHER_ERRORS = (
    "Import",
    "ModuleNotFound",
    "Keyboard",
    "OSError",
    "IOError",
    "File",
    "Runtime",
    "Value",
    "Key",
    "Index",
)
"""Beginnings of the names of errors that are no TypeError."""
_LATER = ("retry", "remote", "contextmanager")
"""Words in decorators of functions that do not simply run when they are called."""
_DEEPEST = 20


@record(frozen=True, slots=True, eq=False)
class Step:
    """A call that a script makes. ``certain`` False: it may not make it, or may go on where it fails."""

    call: ast.Call
    module: Module
    owner: Owner
    certain: bool


class _EndError(Exception):
    """The script certainly ends here."""


@record(slots=True)
class _Frame:
    """The code of a function, or a module's own lines. ``own``: names that are no definitions of the module there;
    ``functions``: those defined in it; ``objects``: by name, the class of the repository whose new object it holds."""

    module: Module
    owner: Owner
    own: set[str] = field(default_factory=set)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    objects: dict[str, _Class] = field(default_factory=dict)


def steps(module: Module, walk: Walk) -> list[Step]:
    """The calls that a script makes when this module of it is started."""
    return _Steps(walk).of(module)


class _Steps:
    def __init__(self, walk: Walk) -> None:
        self.walk = walk
        self.found: list[Step] = []
        self.done: set[int] = set()
        self.depth = 0

    def of(self, module: Module) -> list[Step]:
        with suppress(_EndError):
            self._block(module.tree, _Frame(module, None))
        return self.found

    def _block(self, body: Sequence[ast.stmt], frame: _Frame) -> bool:
        """False where the function certainly ends within it."""
        return all(self._statement(statement, frame) for statement in body)

    def _statement(self, node: ast.stmt, frame: _Frame) -> bool:
        if isinstance(node, ast.FunctionDef):
            if frame.owner is not None:
                frame.functions[node.name] = node
        elif isinstance(node, (ast.AsyncFunctionDef, ast.ClassDef)):
            return True
        elif isinstance(node, ast.If):
            return self._if(node, frame)
        elif isinstance(node, (ast.For, ast.AsyncFor, ast.While, ast.Match)):
            self._loop(node, frame)
        elif isinstance(node, ast.Try):
            return self._try(node, frame)
        elif isinstance(node, (ast.With, ast.AsyncWith)):
            return self._with(node, frame)
        else:
            self._simple(node, frame)
            if isinstance(node, ast.Raise):
                raise _EndError
        return not isinstance(node, ast.Return)

    def _simple(self, node: ast.stmt, frame: _Frame) -> None:
        for child in children(node):
            self._expression(child, frame)
        if isinstance(node, ast.Assign):
            made = self._class(node.value.func, frame) if isinstance(node.value, ast.Call) else None
            for target in node.targets:
                for name in (item.id for item in ast.walk(target) if isinstance(item, ast.Name)):
                    frame.objects.pop(name, None)
                if made is not None and isinstance(target, ast.Name):
                    frame.objects[target.id] = made

    def _if(self, node: ast.If, frame: _Frame) -> bool:
        if is_main(node) and frame.owner is None:
            return self._block(node.body, frame)
        self._expression(node.test, frame)
        self._perhaps([*node.body, *node.orelse], frame)
        return True

    def _loop(self, node: ast.For | ast.AsyncFor | ast.While | ast.Match, frame: _Frame) -> None:
        if isinstance(node, ast.Match):
            self._expression(node.subject, frame)
            self._perhaps([item for case in node.cases for item in case.body], frame)
            return
        if not isinstance(node, ast.While):
            self._expression(node.iter, frame)
        self._perhaps([*node.body, *node.orelse], frame)

    def _try(self, node: ast.Try, frame: _Frame) -> bool:
        on = True
        if all(map(_lets_through, node.handlers)):
            on = self._block([*node.body, *node.orelse], frame)
        else:
            self._perhaps([*node.body, *node.orelse], frame)
        self._perhaps([item for handler in node.handlers for item in handler.body], frame)
        return self._block(node.finalbody, frame) and on

    def _with(self, node: ast.With | ast.AsyncWith, frame: _Frame) -> bool:
        for item in node.items:
            self._expression(item.context_expr, frame)
        if any("suppress" in ast.unparse(item.context_expr) for item in node.items):
            self._perhaps(node.body, frame)
            return True
        return self._block(node.body, frame)

    def _perhaps(self, body: Iterable[ast.AST], frame: _Frame) -> None:
        """Code that may not run; what it assigns is open."""
        for node in nodes(*body):
            if isinstance(node, ast.Call):
                self.found.append(Step(node, frame.module, frame.owner, certain=False))
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                frame.objects.pop(node.id, None)

    def _expression(self, node: ast.AST, frame: _Frame) -> None:
        """What an expression calls, in the order of its evaluation."""
        if isinstance(node, ast.Lambda):
            return
        if isinstance(node, ast.IfExp):
            self._expression(node.test, frame)
            self._perhaps((node.body, node.orelse), frame)
        elif isinstance(node, ast.BoolOp):
            self._expression(node.values[0], frame)
            self._perhaps(node.values[1:], frame)
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            self._perhaps((node,), frame)
        else:
            for child in children(node):
                self._expression(child, frame)
            if isinstance(node, ast.Call):
                self._call(node, frame)

    def _call(self, call: ast.Call, frame: _Frame) -> None:
        self.found.append(Step(call, frame.module, frame.owner, certain=True))
        if ast.unparse(call.func) in _ENDS:
            raise _EndError
        called = call.func
        if frame.module.dotted(called) in _CALLING and call.args:
            called = call.args[0]
        inner = self._function(called, frame)
        if inner is not None and id(inner.owner) not in self.done and self.depth < _DEEPEST:
            assert inner.owner is not None
            self.done.add(id(inner.owner))
            self.depth += 1
            self._block(inner.owner.body, inner)
            self.depth -= 1

    # -- what is called --------------------------------------------------------------------------------------------

    def _function(self, called: ast.expr, frame: _Frame) -> _Frame | None:
        """The function of the repository that is called; None where that is not certain."""
        if isinstance(called, ast.Name) and called.id in frame.functions:
            return self._entered(frame.module, frame.functions[called.id])
        if isinstance(called, ast.Attribute):
            holder = self._object(called.value, frame)
            if holder is not None:
                return self._method(holder, called.attr)
        found = self._defined(called, frame)
        if found is None:
            return None
        module, definition = found
        if isinstance(definition, ast.ClassDef):
            return self._method((module, definition), "__init__")
        return self._entered(module, definition)

    def _defined(self, named: ast.expr, frame: _Frame) -> tuple[Module, Definition] | None:
        head = named
        while isinstance(head, ast.Attribute):
            head = head.value
        if not isinstance(head, ast.Name) or head.id in frame.own:
            return None
        outer = self.walk.scopes(frame.module, None)[0]
        return self.walk.defined(frame.module, named) if head.id not in outer else None

    def _class(self, named: ast.expr, frame: _Frame) -> _Class | None:
        found = self._defined(named, frame)
        return (found[0], found[1]) if found is not None and isinstance(found[1], ast.ClassDef) else None

    def _object(self, node: ast.expr, frame: _Frame) -> _Class | None:
        """The class of the repository whose object an expression is."""
        if isinstance(node, ast.Name):
            return frame.objects.get(node.id)
        return self._class(node.func, frame) if isinstance(node, ast.Call) else None

    def _method(self, of: _Class, name: str) -> _Frame | None:
        """A method of an object, of its class or of the nearest of the repository that this derives from."""
        current: _Class | None = of
        for _ in range(_DEEPEST):
            if current is None:
                return None
            module, definition = current
            for item in definition.body:
                if isinstance(item, ast.FunctionDef) and item.name == name:
                    return self._entered(module, item, of)
            bases = [self.walk.class_of(module, base) for base in definition.bases]
            current = bases[0] if len(bases) == 1 else None
        return None

    def _entered(self, module: Module, function: Definition, of: _Class | None = None) -> _Frame | None:
        """The frame of a function that is called; None where it does not simply run."""
        if not isinstance(function, ast.FunctionDef) or _is_generator(function):
            return None
        decorators = [ast.unparse(item) for item in function.decorator_list]
        if any(word in decorator for decorator in decorators for word in _LATER):
            return None
        frame = _Frame(module, function, set(self.walk.scopes(module, function)[0]))
        first = [*function.args.posonlyargs, *function.args.args][:1]
        if of is not None and first and not {"staticmethod", "classmethod"} & set(decorators):
            frame.objects[first[0].arg] = of
        return frame


def _lets_through(handler: ast.ExceptHandler) -> bool:
    """Whether a TypeError ends the code all the same."""
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    names = [ast.unparse(kind).rpartition(".")[2] if kind is not None else "" for kind in kinds]
    if all(name.startswith(_OTHER_ERRORS) for name in names):
        return True
    last = handler.body[-1]
    ends = isinstance(last, ast.Expr) and isinstance(last.value, ast.Call) and ast.unparse(last.value.func) in _ENDS
    return (isinstance(last, ast.Raise) or ends) and not any(
        isinstance(node, ast.Return) for node in nodes(*handler.body)
    )


def _is_generator(function: ast.FunctionDef) -> bool:
    waiting: list[ast.AST] = list(function.body)
    for node in waiting:  # grows while it is gone through
        if isinstance(node, (ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (*_Function, ast.ClassDef, ast.Lambda)):
            waiting += children(node)
    return False
