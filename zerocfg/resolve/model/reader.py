"""Values of a run by name: the engine's settings, and the trainer's arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeGuard

from zerocfg.budgets import LARGEST_NUMBER
from zerocfg.catalog.values import TRUE_WORDS
from zerocfg.run.model import UNKNOWN

if TYPE_CHECKING:
    from zerocfg.models.spec import RunSpec


class Reader:
    """``setting``: an effective setting, None where there is none. What is assumed is collected in ``assumed``."""

    def __init__(
        self, value: Callable[[str], Any], recipe: Mapping[str, Any], spec: RunSpec, versions: Mapping[str, str]
    ) -> None:
        self.setting, self.recipe, self.spec, self.versions = value, recipe, spec, versions
        self.assumed: list[str] = []

    def argument(self, name: str) -> Any:
        """The argument as the recipe or the command line gives it; None where neither does."""
        value = self.recipe.get(name)
        return None if value is UNKNOWN else value

    def flag(self, name: str, otherwise: bool) -> bool:
        """A switch of the trainer's arguments; ``otherwise`` where it is not given."""
        value = self.argument(name)
        if isinstance(value, str):
            return value.lower() in TRUE_WORDS
        return value if isinstance(value, bool) else otherwise

    def count(self, name: str, otherwise: int) -> int:
        """A positive whole number among the settings; ``otherwise`` where there is none."""
        value = self.setting(name)
        return value if is_size(value) else otherwise


def is_size(value: Any) -> TypeGuard[int]:
    """Whether it can be a number of elements, samples or tokens; what is larger no machine could hold."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < LARGEST_NUMBER
