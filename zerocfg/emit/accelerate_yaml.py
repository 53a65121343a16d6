"""The accelerate YAML of a plan, each value with its reason as a comment."""

from __future__ import annotations

from io import StringIO
from typing import TYPE_CHECKING, Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap
from ruamel.yaml.scalarstring import SingleQuotedScalarString
from yaml.nodes import ScalarNode
from yaml.resolver import Resolver

from zerocfg.emit.values import one_line, typed
from zerocfg.models.accelerate import ClusterConfig

if TYPE_CHECKING:
    from zerocfg.resolve.plan import Plan

# accelerate reads YAML 1.1 with PyYAML, ruamel writes YAML 1.2: a text such as `no` is quoted for the former.
_READER: Any = Resolver()
_COLUMN = 40
_TEXT = "tag:yaml.org,2002:str"


def render(plan: Plan) -> str:
    """The file's text."""
    document, config = CommentedMap(), _config(plan)
    for name, decision in plan.accelerate.items():
        section, _, leaf = name.rpartition(".")
        if section and section not in document:
            document[section] = CommentedMap()
        target = document[section] if section else document
        target[leaf] = _scalar((config[section] if section else config)[leaf])
        if decision.reason:
            target.yaml_add_eol_comment(f"# {one_line(decision.reason)}", leaf, column=_COLUMN)
    yaml = YAML()
    yaml.width = 10_000
    text = StringIO()
    yaml.dump(document, text)
    return text.getvalue()


def _config(plan: Plan) -> dict[str, Any]:
    """The config as nested mappings, by way of its typed model."""
    config: dict[str, Any] = {}
    for name, decision in plan.accelerate.items():
        section, _, leaf = name.rpartition(".")
        (config.setdefault(section, {}) if section else config)[leaf] = decision.value
    return typed(ClusterConfig, config)


def _scalar(value: object) -> object:
    if isinstance(value, str) and _READER.resolve(ScalarNode, value, (True, False)) != _TEXT:
        return SingleQuotedScalarString(value)
    return value
