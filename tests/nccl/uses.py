"""Where code touches what differs between gloo and NCCL, or a processor and a card, found in its syntax trees."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("zerocfg/smoke/worker", "zerocfg/preflight", "zerocfg/hardware/measuring")
DEVICES = ("cuda", "xpu")
GROUP = "distributed"
KEYWORDS = ("pin_memory", "non_blocking", "device_ids", "async_op")

Use = tuple[str, str]
"""``file:function`` (of a module: ``file``), and the name: "cuda.Event", "distributed.all_reduce", "pin_memory"."""


def uses(root: Path = ROOT) -> set[Use]:
    found: set[Use] = set()
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            found |= uses_in(path.read_text(encoding="utf-8"), path.relative_to(root).as_posix())
    return found


def uses_in(code: str, file: str) -> set[Use]:
    tree = ast.parse(code)
    places, devices = _places(tree, file), set(_modules_of_devices(tree))
    return {(places[node], name) for node in ast.walk(tree) for name in _names(node, devices)}


def functions(code: str) -> set[str]:
    """Qualified names of the functions and classes that stand in a module or a class."""
    return {place.partition(":")[2] for place in _places(ast.parse(code), "").values()}


def _places(tree: ast.Module, file: str) -> dict[ast.AST, str]:
    """The outermost function of every node, with its classes."""
    places: dict[ast.AST, str] = {}

    def walk(node: ast.AST, place: str, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            here, closed = place, inside
            if not inside and isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                here = f"{place}{'.' if ':' in place else ':'}{child.name}"
                closed = not isinstance(child, ast.ClassDef)
            places[child] = here
            walk(child, here, closed)

    places[tree] = file
    walk(tree, file, False)
    return places


def _modules_of_devices(tree: ast.Module) -> Iterator[str]:
    """Names of what ``getattr(torch, kind)`` gave."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _is_module_of_device(node.value):
            yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def _is_module_of_device(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "getattr"):
        return False
    owner, name = node.args[:2]
    wanted = not isinstance(name, ast.Constant) or name.value in DEVICES
    return isinstance(owner, ast.Name) and owner.id == "torch" and wanted


def _names(node: ast.AST, devices: set[str]) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
        owner = _owner(node.value, devices)
        if owner is not None and node.attr not in ("cuda", "distributed"):
            yield f"{owner}.{node.attr}"
    elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("torch.distributed", "torch.cuda")):
        yield from (f"{str(node.module).removeprefix('torch.')}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.keyword) and node.arg in KEYWORDS:
        yield node.arg


def _owner(node: ast.expr, devices: set[str]) -> str | None:
    """ "cuda" for ``torch.cuda`` and ``getattr(torch, kind)``, "distributed" for what is that in our code."""
    if isinstance(node, ast.Attribute):
        if node.attr in DEVICES and isinstance(node.value, ast.Name) and node.value.id == "torch":
            return "cuda"
        if node.attr in ("distributed", "dist"):
            return GROUP
        inner = _owner(node.value, devices)
        return f"{inner}.{node.attr}" if inner is not None and node.attr == "nccl" else None
    if isinstance(node, ast.Name) and node.id in ("dist", "distributed", "distributed_c10d"):
        return GROUP
    if isinstance(node, ast.Name) and node.id in devices:
        return "cuda"
    return "cuda" if _is_module_of_device(node) else None
