"""Run alone, with a release of transformers in front: which of the keywords on its standard input `from_pretrained` of
a model takes, as JSON on its standard output (`tools.facts.load_arguments`)."""

from __future__ import annotations

import inspect
import json
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stdout
from typing import Any

_VALUES = (False, None, "")
"""Whoever refuses a keyword does so whatever its value is."""
Load = Callable[..., object]


def takes(load: Load, name: str) -> bool:
    """Whether a load goes on with some value of a keyword, or ends in something else than that it does not know it."""
    for value in _VALUES:
        try:
            load(**{name: value})
        except TypeError as error:
            if f"unexpected keyword argument '{name}'" not in str(error):
                return True
        except Exception:  # this value is refused, or what it stands for is not installed
            return True
        else:
            return True
    return False


def lax_classes(library: Any) -> Iterator[tuple[str, list[str]]]:
    """The classes of models that take any keyword, or may; of an Auto class the types of the models that do."""
    from transformers.models.auto.auto_factory import _BaseAutoModelClass

    names = [name for name in dir(library) if name[:1].isupper() and not name.startswith(("TF", "Flax"))]
    classes: dict[str, Any] = {name: item for name in names if (item := _class(library, name)) is not None}
    models = {name: item for name, item in classes.items() if issubclass(item, library.PreTrainedModel)}
    lax = {name for name, item in models.items() if _is_lax(library, item)}
    for name in sorted(lax):
        if "pretrained" not in name.lower():
            yield name, []
    for name, item in classes.items():
        if issubclass(item, _BaseAutoModelClass) and item._model_mapping is not None:
            types = [of for of, each in item._model_mapping._model_mapping.items() if lax & set(_each(each))]
            if types:
                yield name, sorted(types)


def _class(library: Any, name: str) -> type | None:
    try:
        found = getattr(library, name, None)
    except Exception:  # what its module needs is not installed, or of another time
        return None
    return found if isinstance(found, type) else None


def _each(names: str | Iterable[str]) -> Iterable[str]:
    return (names,) if isinstance(names, str) else names


def _is_lax(library: Any, kind: type) -> bool:
    """Whether the constructor of a class takes `**kwargs`, or it loads in a way of its own."""
    parameters = inspect.signature(kind.__init__).parameters.values()  # type: ignore[misc]
    if any(item.kind is item.VAR_KEYWORD for item in parameters):
        return True
    above = kind.__mro__[: kind.__mro__.index(library.PreTrainedModel)]
    return any("from_pretrained" in vars(item) for item in above)


def main() -> None:
    warnings.simplefilter("ignore")
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.LlamaConfig(
        vocab_size=16, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=2
    )
    names = json.load(sys.stdin)
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        transformers.LlamaForCausalLM(config).save_pretrained(folder)
        ways = (transformers.AutoModelForCausalLM, transformers.LlamaForCausalLM)
        for way in ways:
            way.from_pretrained(folder)
        taken = [
            name
            for name in names
            if any(takes(lambda way=way, **given: way.from_pretrained(folder, **given), name) for way in ways)
        ]
        lax = dict(lax_classes(transformers))
    attributes = [name for name in names if hasattr(config, name)]
    print(json.dumps({"taken": taken, "attributes": attributes, "lax": lax}))


if __name__ == "__main__":
    main()
