"""The fields of every config class of TRL: those of its own, and those whose default differs from TrainingArguments."""

from __future__ import annotations

import dataclasses
import importlib
import pkgutil
import sys

import transformers
import trl

from tools.facts import describe

base = describe.fields(transformers.TrainingArguments)
keys: dict[str, object] = {}
failed: list[str] = []
for package in ("trl.trainer", "trl.experimental", "trl"):
    try:
        found = importlib.import_module(package)
    except ImportError:
        continue
    for info in pkgutil.walk_packages(found.__path__, f"{package}.", failed.append):
        last = info.name.rpartition(".")[2]
        if (last.endswith("config") or last == "utils") and info.name not in sys.modules:
            try:
                importlib.import_module(info.name)
            except Exception as error:
                failed.append(f"{info.name}: {type(error).__name__}")


def of_trl(of: object, name: str) -> bool:
    """Whether it is a dataclass that TRL defines under this name."""
    return (
        isinstance(of, type)
        and dataclasses.is_dataclass(of)
        and of.__module__.split(".")[0] == "trl"
        and of.__name__ == name
    )


classes = {
    (of.__module__, name): of
    for loaded in list(sys.modules.values())
    if (getattr(loaded, "__name__", "") or "").split(".")[0] == "trl"
    for name, of in vars(loaded).items()
    if of_trl(of, name)
}
for (defined_in, name), of in sorted(classes.items()):
    if not name.endswith(("Config", "Arguments")):
        continue
    exported = getattr(trl, name, None)
    if ".experimental" not in defined_in and exported is not of and (exported or defined_in.startswith("trl.scripts")):
        continue  # of a script alone: only some releases import those, and a user's script does not parse them
    trainer = issubclass(of, transformers.TrainingArguments)
    where = ("experimental." if ".experimental" in defined_in else "") + name
    keys[where] = {"trainer": trainer}
    for field, facts in describe.fields(of).items():
        if not trainer or base.get(field) != facts:
            keys[f"{where}.{field}"] = facts
describe.tell({"version": trl.__version__, "with": transformers.__version__, "keys": keys, "failed": failed})
