"""A key of another program under the name that is read here: what the rules say, and the fix."""

from __future__ import annotations

import re

from zerocfg.catalog.check import Issue
from zerocfg.catalog.counterparts import Counterpart, Format, Translation, translated
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.rules.api import Fix
from zerocfg.rules.fixes import edited
from zerocfg.rules.moving import as_json, moved, text_at
from zerocfg.run.model import SourceFile
from zerocfg.source.edit import delete_entry, replace_value
from zerocfg.source.node import Mapping, dotted, plain

_WORD = re.compile(r"[A-Za-z_][\w./-]*")
_FILE = "deepspeed_config_file"


def said_in(issue: Issue, format: Format) -> Translation:
    """What the key of an issue says in the words of a format."""
    return translated(str(issue.path[-1]), issue.value, format)


def own_name(issue: Issue, format: Format) -> Counterpart | None:
    """The one key of a format for what another program's key says; None where there is none, or several."""
    said = said_in(issue, format)
    return said.places[0] if len(said.places) == 1 and not said.lost else None


def instead(file: SourceFile, issue: Issue, own: Counterpart) -> tuple[str, Fix | None]:
    """What to do about a key whose own name is known: the advice, and a fix where there is no doubt."""
    assert file.document is not None
    there = file.document.get(own.path)
    if there is None:
        return _advice(file, issue, own), _renamed(file, issue, own)
    says = plain(there)
    if says == own.value and not own.per_machine:
        fix = edited(delete_entry, file, issue.path, why="remove the key", safe=False)
        return f"remove it: `{dotted(own.path)}` says so already", fix
    return f"remove it, or change `{dotted(own.path)}`, which is {show(says)}", None


def _advice(file: SourceFile, issue: Issue, own: Counterpart) -> str:
    """What to write, for somebody who looks at the key; with the value where its form is another one."""
    name = str(own.path[-1])
    if own.fits and own.value != issue.value:
        name += f": {written(file, own.value)}"
    if own.path[:-1] == issue.path[:-1]:
        return f"write `{name}`"
    return f"write `{name}` in `{dotted(own.path[:-1])}`" if own.path[:-1] else f"write `{name}` at the top level"


def _renamed(file: SourceFile, issue: Issue, own: Counterpart) -> Fix | None:
    """The value under the name that is read, in the form that is taken there."""
    machines = file.document.get(("num_machines",)) if file.document is not None else None
    if not own.fits or (own.per_machine and machines is not None and plain(machines) != 1):
        return None
    as_it_is = type(own.value) is type(issue.value) and own.value == issue.value
    text = text_at(file, issue.path) if as_it_is else written(file, own.value)
    return moved(file, issue.path, file, own.path, text, f"write {dotted(own.path)}") if text is not None else None


def nowhere(file: SourceFile, issue: Issue) -> tuple[str, Fix | None]:
    """What to do about a key that neither accelerate nor DeepSpeed has. What an author meant to say elsewhere is not
    thrown away without asking."""
    name = str(issue.path[-1])
    whole = file.document.get(issue.path[:-1]) if file.document is not None else None
    if issue.path[0] == "deepspeed_config" and name.endswith(".json") and issue.value is None:
        alone = isinstance(whole, Mapping) and len(whole.entries) == 1
        fix = edited(replace_value, file, issue.path[:-1], f"{{{_FILE}: {name}}}", why=f"write {_FILE}", safe=False)
        return f"write `{_FILE}: {name}`", fix if alone else None
    argument = name in load_schema("training-arguments").root.keys
    fix = edited(delete_entry, file, issue.path, why="remove the key", safe=not argument)
    return "it is an argument of the Trainer: say it in the training arguments" if argument else "remove it", fix


def written(file: SourceFile, value: object) -> str | None:
    """A value as the file's language has it; a word of YAML needs no quotes."""
    if file.document is None or file.document.format != "yaml" or not isinstance(value, str):
        return as_json(value)
    import yaml  # a tenth of the time that JSON files alone take

    return value if _WORD.fullmatch(value) and yaml.safe_load(value) == value else as_json(value)
