"""What the launcher does with an argument: the option that sets it, the variable that carries it to the job.

``cli`` of a key, made by :func:`option`
    ``flags``    spellings on the command line; each underscore may also be written as a hyphen
    ``type``     how the text is converted: "str", "int", "float", "bool" (a truth word), "truth" (any text is
                 True), "bools" (truth words separated by commas)
    ``action``   "store", "store_true", "append"
    ``off``      a second option that stores False
    ``default``  the value before any YAML is read (absent: None); it shadows a top-level YAML key. Text is converted
                 by ``type`` like a word of the command line ("bool" gives 1 and 0)
    ``choices``  checked for the command line only, never for a YAML value

``env`` of a key, a list of entries made by :func:`variable`
    ``name``       the environment variable
    ``launchers``  which of the launchers export it: "simple", "multi_gpu" (torchrun for all but DeepSpeed),
                   "deepspeed"
    ``when``       "always" | "set" (the value is not None) | "true" (the value is true in Python's sense)
    ``text``       "str" | "lower" (str, then lower case) | "upper"; or ``value``, a fixed text
    ``item``       the position in a sequence that is exported instead of the entire value
    ``needs``      conditions on other arguments, argument -> {"const": ...} and such, as in JSON Schema
"""

from __future__ import annotations

from typing import Literal

Launcher = Literal["simple", "multi_gpu", "deepspeed"]
ALL: tuple[Launcher, ...] = ("simple", "multi_gpu", "deepspeed")


def option(
    name: str,
    type: Literal["str", "int", "float", "bool", "truth", "bools"] = "str",
    *,
    short: str | None = None,
    action: Literal["store", "store_true", "append"] = "store",
    off: str | None = None,
    default: object = None,
    choices: tuple[str, ...] = (),
) -> dict[str, object]:
    """The launcher's option ``--name``."""
    facts: dict[str, object] = {"flags": [f"--{name}", *([short] if short else [])], "action": action}
    if action != "store_true":
        facts["type"] = type
    if off:
        facts["off"] = f"--{off}"
    if default is not None:
        facts["default"] = default
    if choices:
        facts["choices"] = list(choices)
    return facts


def switch(name: str, *, default: bool | None = False, short: str | None = None) -> dict[str, object]:
    """The launcher's option ``--name`` that takes no value."""
    return option(name, short=short, action="store_true", default=default)


def variable(
    name: str,
    *launchers: Launcher,
    when: Literal["always", "set", "true"] = "set",
    text: Literal["str", "lower", "upper"] = "str",
    value: str | None = None,
    item: int | None = None,
    needs: dict[str, dict[str, object]] | None = None,
) -> dict[str, object]:
    """The environment variable ``name``, exported by ``launchers`` (all when none is named)."""
    facts: dict[str, object] = {"name": name, "launchers": list(launchers or ALL), "when": when}
    if value is None:
        facts["text"] = text
    else:
        facts["value"] = value
    if item is not None:
        facts["item"] = item
    if needs:
        facts["needs"] = needs
    return facts
