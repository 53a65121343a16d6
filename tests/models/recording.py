"""A dict that writes down which of its keys somebody looked at, at every depth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, KeysView
from typing import Any

Path = tuple[str, ...]


class RecordingDict(dict[str, Any]):
    """Behaves like the dict that it is made from.

    ``seen`` holds, for the path of each mapping, the keys that were asked for by ``get``, ``[]``, ``in``,
    ``pop`` or ``setdefault``; the mappings in ``walked`` were iterated, so that every key that they had was
    read. Copies go on recording.
    """

    def __init__(
        self,
        data: dict[str, Any],
        path: Path = (),
        seen: defaultdict[Path, set[str]] | None = None,
        walked: set[Path] | None = None,
    ) -> None:
        self.path = path
        self.seen: defaultdict[Path, set[str]] = defaultdict(set) if seen is None else seen
        self.walked: set[Path] = set() if walked is None else walked
        super().__init__({key: self._wrap(key, value) for key, value in dict.items(data)})

    def _wrap(self, key: str, value: Any) -> Any:
        if isinstance(value, dict):
            return RecordingDict(value, (*self.path, key), self.seen, self.walked)
        return value

    def _note(self, key: object) -> None:
        if isinstance(key, str):
            self.seen[self.path].add(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().get(key, default)

    def pop(self, key: str, *default: Any) -> Any:
        self._note(key)
        return super().pop(key, *default)

    def setdefault(self, key: str, default: Any = None) -> Any:
        self._note(key)
        return super().setdefault(key, default)

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[str]:
        self.walked.add(self.path)
        return super().__iter__()

    def keys(self) -> KeysView[str]:  # type: ignore[override]
        return KeysView(self)

    def items(self) -> Any:
        self.walked.add(self.path)
        return super().items()

    def __copy__(self) -> RecordingDict:
        return RecordingDict(self, self.path, self.seen, self.walked)

    copy = __copy__

    def __deepcopy__(self, memo: dict[int, Any]) -> RecordingDict:
        return self.__copy__()
