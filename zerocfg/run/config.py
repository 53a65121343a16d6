"""A DeepSpeed config on its way from the file to the engine: plain values, each with its origin and history.

The libraries pass one nested dict along and overwrite parts of it; :class:`Config` does the same and remembers where
every value came from. Names are dotted (``zero_optimization.stage``), as in the libraries' own messages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zerocfg.run.model import UNKNOWN, Origin, Setting, SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from zerocfg.source.node import Path

VERSIONS = {"accelerate": "1.15.0", "transformers": "5.23.0", "deepspeed": "0.19.8", "trl": "1.16.0"}
"""The releases whose behaviour the modules of this package predict."""

TORCH = {"torch": "2.13.0"}
"""What those ran on, in every proof. Together they are the releases of constraints.txt."""

AUTO = "auto"


class NotAMappingError(Exception):
    """A library would look up a key in something that has none. ``name`` is the dotted name of that something."""

    def __init__(self, name: str, value: Any) -> None:
        super().__init__(f"`{name}` is {describe(value)}, not a mapping")
        self.name = name
        self.value = value


def words(text: str) -> tuple[str, ...]:
    """The words of a text: how long lists of names are written here."""
    return tuple(text.split())


def describe(value: Any) -> str:
    """A value as a message shows it: ``the text 'x'``, ``a list``, ``null``, ``3``."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return f"the text {value!r}"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "a mapping"
    return repr(value)


def library(name: str) -> str:
    """``accelerate 1.15.0``: the release that a default or a behaviour belongs to."""
    return f"{name} {VERSIONS[name]}"


def default_of(name: str) -> Origin:
    return Origin("default", library(name))


def in_file(file: SourceFile | None, path: Path) -> Origin:
    return Origin("file", file=file, path=path)


def _copied(value: Any) -> Any:
    """Data of a file with mappings and lists of its own. `copy.deepcopy` takes five times as long, and importing it
    loads three modules."""
    if isinstance(value, dict):
        return {name: _copied(below) for name, below in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


class Config:
    """The nested dict with origins. ``origin`` gives the origin of a value that is unchanged since it was read."""

    def __init__(self, data: dict[str, Any], origin: Callable[[Path], Origin]) -> None:
        self.data: dict[str, Any] = _copied(data)
        self._origin = origin
        self._changed: dict[str, Setting] = {}

    def node(self, name: str) -> tuple[dict[str, Any] | None, str]:
        """The dict that would hold ``name``, and the last part of the name; None when a parent is absent, null or
        unknown.

        Raises NotAMappingError where the libraries' ``dict.get`` chain would raise AttributeError.
        """
        *parents, last = name.split(".")
        here: Any = self.data
        walked: list[str] = []
        for part in parents:
            here = here.get(part)
            walked.append(part)
            if here is None or here is UNKNOWN:
                return None, last
            if not isinstance(here, dict):
                raise NotAMappingError(".".join(walked), here)
        return here, last

    def hidden(self, name: str) -> Path | None:
        """The enclosing section of ``name`` whose content is unknown; None where all of them are known."""
        here: Any = self.data
        path = tuple(name.split("."))
        for count, part in enumerate(path[:-1], start=1):
            here = here.get(part) if isinstance(here, dict) else None
            if here is UNKNOWN:
                return path[:count]
        return None

    def get(self, name: str, default: Any = None) -> Any:
        if self.hidden(name) is not None:
            return UNKNOWN
        node, last = self.node(name)
        return default if node is None else node.get(last, default)

    def has(self, name: str) -> bool:
        try:
            node, last = self.node(name)
        except NotAMappingError:
            return False
        return node is not None and last in node

    def is_auto(self, name: str) -> bool:
        value = self.get(name)
        return isinstance(value, str) and value == AUTO

    def setting(self, name: str) -> Setting | None:
        """The value and its origin; None when the key is absent."""
        if name in self._changed:
            return self._changed[name]
        hidden = self.hidden(name)
        if hidden is not None:
            return Setting(UNKNOWN, self._origin(hidden))
        if not self.has(name):
            return None
        return Setting(self.get(name), self._origin(tuple(name.split("."))))

    def set(self, name: str, value: Any, origin: Origin) -> None:
        """Write a value; mappings on the way are made. What it replaces becomes part of its history.

        Within a section that nobody knows the value only counts as set: what else is there stays unknown.
        """
        old = self.setting(name)
        here = self.data
        *parents, last = name.split(".")
        for part in parents:
            child = here.setdefault(part, {})
            if child is UNKNOWN:
                self._changed[name] = Setting(value, origin, (old,) if old else ())
                return
            if not isinstance(child, dict):
                raise NotAMappingError(part, child)
            here = child
        here[last] = value
        self._changed[name] = Setting(value, origin, (old, *old.overridden) if old else ())

    def remember(self, name: str, replaced: tuple[Setting, ...]) -> None:
        """Add older values to the history of a value that was set."""
        now = self._changed[name]
        self._changed[name] = Setting(now.value, now.origin, (*now.overridden, *replaced))

    def require_mapping(self, name: str) -> None:
        value = self.get(name)
        if not isinstance(value, dict) and value is not UNKNOWN:
            raise NotAMappingError(name, value)

    def fill(self, name: str, setting: Setting) -> bool:
        """Replace a literal "auto"; False when the key holds something else or is absent."""
        if not self.is_auto(name):
            return False
        self.set(name, setting.value, setting.origin)
        if setting.overridden:
            self.remember(name, setting.overridden)
        return True

    def leaves(self) -> Iterator[tuple[str, Any]]:
        """Every value that is no mapping, by dotted name, in file order."""
        yield from _leaves(self.data, "")

    def settings(self) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        for name, value in self.leaves():
            known = self._changed.get(name)
            found[name] = known if known else Setting(value, self._origin(tuple(name.split("."))))
        return found


def origin_of(config: Config, name: str) -> Origin:
    """Where the value of a key comes from; DeepSpeed's default where it is absent."""
    setting = config.setting(name)
    return setting.origin if setting else default_of("deepspeed")


def _leaves(data: dict[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    for key, value in data.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def any_unknown(*values: Any) -> bool:
    return any(value is UNKNOWN for value in values)


def product(*values: Any) -> Any:
    """The product, or UNKNOWN when a factor is unknown or no number."""
    total: Any = 1
    for value in values:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return UNKNOWN
        try:
            total *= value
        except OverflowError:  # an integer beyond every float
            return UNKNOWN
    return total
