"""Whether a script certainly stops at an option that it does not declare: one parser of argparse reads its words."""

from __future__ import annotations

import ast

from zerocfg.patterns import pattern
from zerocfg.run.script.code import nodes
from zerocfg.run.script.modules import Module
from zerocfg.run.script.reachable import Reach, Reached

_MAKES = "argparse.ArgumentParser"
_OTHER_PARSERS = ("transformers.HfArgumentParser", "trl.TrlParser")
_ADDS = "deepspeed.add_config_arguments"
_DEEPSPEED_OPTIONS = ("--deepspeed", "--deepspeed_config", "--deepscale", "--deepscale_config")
_PLAIN = frozenset(("prog", "usage", "description", "epilog", "formatter_class", "add_help", "conflict_handler"))
"""Arguments of the parser that change nothing about what it takes."""
_OWN_WORDS = pattern(r"\bargv\b")


def strict_options(found: Reach) -> tuple[frozenset[str], Reached] | None:
    """The option strings that the parser takes, and where it is made; None where something else may take others."""
    makers = [reached for reached in found.calls if reached.name == _MAKES]
    if len({id(reached.call) for reached in makers}) != 1 or not found.shallow or found.unread:
        return None
    maker = makers[0]
    if any(keyword.arg not in _PLAIN for keyword in maker.call.keywords):
        return None
    if any(reached.name in _OTHER_PARSERS for reached in found.calls):
        return None
    if any(_OWN_WORDS.search(module.file.source.text) for module in found.modules):
        return None
    methods = [node for _, node in found.parsing]
    if not any(_asks(node) for node in methods) or _is_handed_on(found):
        return None
    options = {option for node in methods for option in _option_strings(node)}
    if any(reached.name == _ADDS for reached in found.calls):
        options.update(_DEEPSPEED_OPTIONS)
    return frozenset(options), maker


def _asks(node: ast.Call) -> bool:
    """Whether a call parses the words that the process was started with."""
    return isinstance(node.func, ast.Attribute) and node.func.attr == "parse_args" and not (node.args or node.keywords)


def _option_strings(node: ast.Call) -> list[str]:
    texts = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
    options = [text for text in texts if text.startswith("-")]
    if any("BooleanOptionalAction" in ast.unparse(keyword.value) for keyword in node.keywords):
        options += [f"--no-{text[2:]}" for text in options if text.startswith("--")]
    return options


def _is_handed_on(found: Reach) -> bool:
    """Whether a function that is none of the repository's gets the parser, and may add options to it."""
    functions = {name for module in found.modules for name in module.definitions}
    holders = {"parser"}
    for module in found.modules:
        if "ArgumentParser" in module.file.source.text:
            made = (node for node in nodes(*module.tree) if isinstance(node, ast.Assign) and _makes(module, node.value))
            holders |= {_last(target) for node in made for target in node.targets}
    for module in found.modules:
        if any(holder in module.file.source.text for holder in holders):
            calls = (node for node in nodes(*module.tree) if isinstance(node, ast.Call) and _gets(node, holders))
            if any(_last(call.func) not in functions and module.dotted(call.func) != _ADDS for call in calls):
                return True
    return False


def _gets(call: ast.Call, holders: set[str]) -> bool:
    return any(_last(given) in holders for given in (*call.args, *(keyword.value for keyword in call.keywords)))


def _makes(module: Module, value: ast.expr) -> bool:
    return isinstance(value, ast.Call) and module.dotted(value.func) == _MAKES


def _last(node: ast.expr) -> str:
    """The name of a variable, a function or an attribute; "" of anything else."""
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
