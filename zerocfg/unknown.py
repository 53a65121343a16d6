"""The value of what the files do not determine."""

from __future__ import annotations


class _Unknown:
    """The value of a setting that the files do not determine (a shell variable, for example)."""

    def __repr__(self) -> str:
        return "UNKNOWN"

    def __bool__(self) -> bool:
        return False

    def __deepcopy__(self, memo: object) -> _Unknown:
        return self


UNKNOWN = _Unknown()
