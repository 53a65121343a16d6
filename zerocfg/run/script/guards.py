"""Whether a script is prepared for a call that the installed release refuses."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from zerocfg.patterns import pattern
from zerocfg.run.model import SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.script.modules import Module

_PATCHING = frozenset(("unsloth", "unsloth_zoo"))
"""Packages that replace the trainers of other libraries when they are imported; theirs accept the former keywords."""
_ASKING = pattern(
    r"(?:accelerate|transformers|trl|tr|hf)\.__version__|signature\(|getfullargspec|__init__\.__code__"
    r"|version\(\s*['\"](?:accelerate|transformers|trl)|is_\w+_(?:version|greater)|except[^:\n]*TypeError"
)
"""Code that asks which release is installed or what a constructor accepts, or answers a TypeError."""


def patches_trainers(modules: Iterable[Module]) -> bool:
    return any(item.module.partition(".")[0] in _PATCHING for module in modules for item in module.imports.values())


def is_guarded(module: Module, call: ast.Call) -> bool:
    """Whether the module asks for releases or signatures, or calls the class again where a first call failed."""
    return asks_releases(module) or _tries_again(module.file, ast.unparse(call.func))


def asks_releases(module: Module) -> bool:
    """Whether the module asks for releases or signatures, or answers a TypeError."""
    return _asks(module.file)


@remembered
def _asks(file: SourceFile) -> bool:
    return _ASKING.search(file.source.text) is not None


@remembered
def _tries_again(file: SourceFile, callee: str) -> bool:
    text = file.source.text
    return "except" in text and text.count(f"{callee}(") > 1
