"""A key of another program under the name that is read here: what the rules say, and the fix."""

from __future__ import annotations

from zerocfg.catalog.counterparts import Counterpart, Format, Translation, translated
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.values import show
from zerocfg.patterns import pattern
from zerocfg.rules.api import Fix
from zerocfg.rules.issues import KeyIssue
from zerocfg.rules.key import Key
from zerocfg.rules.moving import as_json, moved, text_at
from zerocfg.run.model import SourceFile
from zerocfg.source.node import Mapping, Path, dotted, plain

_WORD = pattern(r"[A-Za-z_][\w./-]*")
_FILE = "deepspeed_config_file"
_OWN_LOOPS = ("accelerate", "deepspeed")
"""Readers of scripts that train without a Trainer."""


def said_in(key: Key, format: Format) -> Translation:
    """What a key says in the words of a format."""
    return translated(key.name, key.value, format)


def own_name(key: Key, format: Format) -> Counterpart | None:
    """The one key of a format for what another program's key says; None where there is none, or several."""
    said = said_in(key, format)
    return said.places[0] if len(said.places) == 1 and not said.lost else None


def instead(key: KeyIssue, own: Counterpart) -> tuple[str, Fix | None]:
    """What to do about a key whose own name is known: the advice, and a fix where there is no doubt."""
    assert key.file.document is not None
    there = key.file.document.get(own.path)
    if there is None:
        return _advice(key, own), _renamed(key, own)
    says = plain(there)
    if says == own.value and not own.per_machine:
        return f"remove it: `{dotted(own.path)}` says so already", key.delete("remove the key", safe=False)
    return f"remove it, or change `{dotted(own.path)}`, which is {show(says)}", None


def _advice(key: KeyIssue, own: Counterpart) -> str:
    """What to write, for somebody who looks at the key; with the value where its form is another one."""
    name = str(own.path[-1])
    if own.fits and own.value != key.value:
        name += f": {written(key.file, own.value)}"
    same_section = own.path[:-1] == key.path[:-1]
    return f"write `{name}`" if same_section else f"write `{name}` {in_section(own.path[:-1])}"


def in_section(section: Path) -> str:
    """Where a key stands, in words."""
    return f"in `{dotted(section)}`" if section else "at the top level"


def _renamed(key: KeyIssue, own: Counterpart) -> Fix | None:
    """The value under the name that is read, in the form that is taken there."""
    machines = key.file.document.get(("num_machines",)) if key.file.document is not None else None
    if not own.fits or (own.per_machine and machines is not None and plain(machines) != 1):
        return None
    as_it_is = type(own.value) is type(key.value) and own.value == key.value
    text = text_at(key.file, key.path) if as_it_is else written(key.file, own.value)
    return (
        moved(key.file, key.path, key.file, own.path, text, f"write {dotted(own.path)}") if text is not None else None
    )


def nowhere(key: KeyIssue) -> tuple[str, Fix | None]:
    """What to do about a key that neither accelerate nor DeepSpeed has. What an author meant to say elsewhere is not
    thrown away without asking."""
    whole = key.file.document.get(key.path[:-1]) if key.file.document is not None else None
    if key.path[0] == "deepspeed_config" and key.name.endswith(".json") and key.value is None:
        alone = isinstance(whole, Mapping) and len(whole.entries) == 1
        section = Key(key.run, key.file, key.path[:-1], None)
        fix = section.replace(f"{{{_FILE}: {key.name}}}", f"write {_FILE}", safe=False)
        return f"write `{_FILE}: {key.name}`", fix if alone else None
    above = key.name.removeprefix("fsdp_").removeprefix("deepspeed_")
    if above != key.name and above in load_schema("accelerate").root.names:
        return f"write `{above}` at the top level, where accelerate reads it", None
    argument = key.name in load_schema("training-arguments").root.keys
    help_text = "it is an argument of the Trainer: say it in the training arguments" if argument else "remove it"
    if argument and key.run.consumer in _OWN_LOOPS:
        help_text = "give it to the training script, whose own loop has to use it"
    return help_text, key.delete("remove the key", safe=not argument)


def written(file: SourceFile, value: object) -> str | None:
    """A value as the file's language has it; a word of YAML needs no quotes."""
    if file.document is None or file.document.format != "yaml" or not isinstance(value, str):
        return as_json(value)
    import yaml  # a tenth of the time that JSON files alone take

    return value if _WORD.fullmatch(value) and yaml.safe_load(value) == value else as_json(value)
