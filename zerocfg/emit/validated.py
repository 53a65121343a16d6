"""What is emitted goes through the typed models: an instance is made, which validates it, and written out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pydantic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zerocfg.models.base import Section


def typed(model: type[Section], data: Mapping[str, object]) -> dict[str, object]:
    """The values of a config as its model holds them: those that ``data`` states, converted as the library would.

    Raises RuntimeError for a config that the library refuses: a bug of zerocfg, because lint and build let it pass.
    """
    try:
        made = model.model_validate(data)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise RuntimeError(f"{model.__name__}: {key}: {first['msg']} (given {first['input']!r})") from None
    return made.model_dump(exclude_unset=True, serialize_as_any=True)
