"""The run of a front end: of its recipe and its line only what reaches the Trainer is left, as training arguments."""

from __future__ import annotations

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import RefusedError, yaml_number
from zerocfg.frontends.api import FrontEnd, Value
from zerocfg.frontends.registry import front_end, lowered
from zerocfg.record import replace
from zerocfg.run.lowered_config import config_of_keys
from zerocfg.run.model import Consumer, Origin, Run, Setting, SourceFile
from zerocfg.run.stages.arguments import converted
from zerocfg.source.node import Document, Mapping, Scalar


def with_front_end(run: Run, consumer: Consumer, recipe: SourceFile | None = None) -> Run:
    """The run with a front end as its reader. One that is not installed leaves nothing but its name."""
    data = recipe.data() if recipe is not None else None
    written = {key: value for key, value in data.items() if isinstance(key, str)} if isinstance(data, dict) else {}
    options = _options(run)
    reader = front_end(consumer)
    run = replace(run, consumer=consumer, framework_recipe=recipe, recipe=None, recipe_reader=None)
    if reader is None:
        return replace(run, arguments={})

    def setting(value: Value, kind: object = None) -> Setting:
        if value.option:
            return replace(options[value.key], value=value.value)
        arrives = _number(reader, recipe, value, kind)
        return Setting(arrives, Origin("file", file=recipe, path=(value.key,)))

    found = lowered(reader, written, {name: option.value for name, option in options.items()})
    keys = load_schema("training-arguments").root.keys
    arguments = {
        name: setting(value, (keys[name].facts.get("cli") or {}).get("type")) for name, value in found.arguments.items()
    }
    processes = setting(found.processes) if found.processes is not None else None
    run = replace(run, arguments=arguments, processes=processes)
    if found.section is not None:
        section = _section(recipe, found.section) if recipe is not None else None
    else:
        section = config_of_keys(found.deepspeed, recipe, options)
    return run if section is None else replace(run, deepspeed=section, deepspeed_route="trainer")


def _number(reader: FrontEnd, recipe: SourceFile | None, value: Value, kind: object) -> object:
    """The value, and the number that a text spells where the front end makes one of it."""
    text = value.value
    if kind not in ("int", "float") or not isinstance(text, str) or reader.texts_are_numbers is None:
        return text
    if reader.texts_are_numbers == "always":
        try:
            return converted(kind, text)
        except RefusedError:
            return text
    node = recipe.document.get((value.key,)) if recipe is not None and recipe.document is not None else None
    return yaml_number(text) if isinstance(node, Scalar) and not node.quoted else text


def _options(run: Run) -> dict[str, Setting]:
    """The arguments of a line: options, and words `key=value`, which some merge into their recipes."""
    found = dict(run.arguments)
    for word in run.launch.arguments if run.launch is not None else ():
        name, equals, text = (word.value or "").partition("=")
        if equals and name.isidentifier():
            quoted = len(text) > 1 and text[0] == text[-1] and text[0] in "\"'"
            text = text[1:-1] if quoted else text  # such words are read as YAML
            found[name] = Setting(text, Origin("flag", name, run.launch_file, (), word.span))
    return found


def _section(recipe: SourceFile, key: str) -> SourceFile | None:
    """The DeepSpeed config that stands in a recipe, as a file of its own."""
    document = recipe.document
    node = document.get((key,)) if document is not None else None
    if document is None or not isinstance(node, Mapping):
        return None
    inside = Document(document.source, document.format, node, editable=False)
    return SourceFile(recipe.name, "deepspeed", recipe.source, inside, recipe.path, recipe)
