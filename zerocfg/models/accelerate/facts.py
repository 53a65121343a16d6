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

from zerocfg.models.walked import walked

Launcher = Literal["simple", "multi_gpu", "deepspeed"]
ALL: tuple[Launcher, ...] = ("simple", "multi_gpu", "deepspeed")

# The classes and functions of the parser, as they were walked, in the words above.
_ACTIONS = {"Store": "store", "StoreTrue": "store_true", "Append": "append"}
_TYPES = {"bool": "truth", "str_to_bool": "bool", "<lambda>": "bools"}


def option(name: str) -> dict[str, object]:
    """The launcher's option ``--name`` as it was walked. LookupError where the newest release has none."""
    known = walked("accelerate", f"option.{name}")
    action = _ACTIONS[known.get("action", "Store")]
    facts: dict[str, object] = {"flags": [f"--{name}", *known.get("aliases", ())], "action": action}
    if action != "store_true":
        facts["type"] = _TYPES.get(known["type"], known["type"])
    if known["default"] is not None:
        facts["default"] = known["default"]
    if "choices" in known:
        facts["choices"] = known["choices"]
    return facts


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
