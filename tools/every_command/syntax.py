"""Whether a text parses, by the suffix of its file."""

from __future__ import annotations

import ast
import json
import subprocess
import warnings
from collections.abc import Callable
from pathlib import PurePath

import yaml

from tools.every_command.tree import Change


def broken(change: Change) -> bool:
    """Whether a file is there that does not parse, and that is new or did parse before."""
    parse = PARSERS.get(PurePath(change.path).suffix)
    if parse is None or change.after is None:
        return False
    return not parse(change.after) and (change.before is None or parse(change.before))


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_yaml(text: bytes) -> bool:
    try:
        list(yaml.compose_all(text, Loader=yaml.CSafeLoader))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError):
        return False
    return True


def _is_python(text: bytes) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes in the strings of others
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _is_bash(text: bytes) -> bool:
    return subprocess.run(["bash", "-n"], input=text, capture_output=True, check=False).returncode == 0


PARSERS: dict[str, Callable[[bytes], bool]] = {
    ".json": _is_json,
    ".ipynb": _is_json,
    ".yaml": _is_yaml,
    ".yml": _is_yaml,
    ".py": _is_python,
    ".sh": _is_bash,
}
