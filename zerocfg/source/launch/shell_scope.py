"""What a shell text has set at each point: variables, what is exported, the folder. Only what is certain is kept.

What branches set differently is unknown behind them, and a subshell leaves nothing behind.
"""

from __future__ import annotations

import posixpath

from zerocfg.source.launch.shell_expand import Value
from zerocfg.source.launch.shell_folders import own_path, path_for_program, relative_to_start
from zerocfg.source.launch.shell_words import START, UNKNOWN, Chars


class _Block:
    """A compound command: what its variables were before it and are after each finished branch.

    Only the variables that the block assigns are kept, so a long script with many blocks stays cheap.
    """

    def __init__(self, word: str, directory: tuple[str | None, bool]) -> None:
        self.word = word
        self.directory = directory
        self.before: dict[str, Value | _Unset] = {}
        self.branches: list[dict[str, Value | _Unset]] = []
        self.complete = word == "{"


class _Unset:
    """Stands for the value of an unassigned variable."""


_UNSET = _Unset()


class Scope:
    """``variables`` are changed by `assign`, `set` and `unset` alone. ``directory``: where commands run, relative to
    where the text was started, None for there; it counts only where it is known."""

    def __init__(self, inherited: dict[str, str | None]) -> None:
        self.inherited = inherited
        self.variables: dict[str, Value] = {name: Chars(START, (0,)) for name in ("PWD", "SLURM_SUBMIT_DIR")}
        self.exported: set[str] = set()
        self.export_all = False
        self.directory: str | None = None
        self.directory_known = True
        self._blocks: list[_Block] = []

    @property
    def depth(self) -> int:
        """How many compound commands are open."""
        return len(self._blocks)

    @property
    def innermost(self) -> str:
        """The word that opened the innermost compound command; "" outside of one."""
        return self._blocks[-1].word if self._blocks else ""

    def leave(self, depth: int) -> None:
        """Forget compound commands that a text left open."""
        del self._blocks[depth:]

    def open(self, word: str) -> None:
        """A compound command begins, with this word."""
        self._blocks.append(_Block(word, (self.directory, self.directory_known)))

    def branch(self, last: bool = False) -> None:
        """A branch ends and another one begins; ``last``: one of them is taken for sure."""
        if self._blocks:
            block = self._blocks[-1]
            block.branches.append(self._current(block))
            self._restore(block)
            block.complete = block.complete or last

    def _current(self, block: _Block) -> dict[str, Value | _Unset]:
        return {name: self.variables.get(name, _UNSET) for name in block.before}

    def _restore(self, block: _Block) -> None:
        for name, value in block.before.items():
            if isinstance(value, _Unset):
                self.variables.pop(name, None)
            else:
                self.variables[name] = value

    def close(self, words: tuple[str, ...]) -> None:
        """The innermost compound command ends, if one of these words began it."""
        if not self._blocks or self._blocks[-1].word not in words:
            return
        block = self._blocks.pop()
        ways = [*block.branches, self._current(block)]
        self._restore(block)
        if block.word == "(":  # a subshell leaves nothing behind
            self.directory, self.directory_known = block.directory
            return
        if block.word != "{" and (self.directory, self.directory_known) != block.directory:
            self.directory, self.directory_known = None, False
        if not block.complete:
            ways.append(block.before)
        for name, before in block.before.items():
            values = [way.get(name, before) for way in ways]
            first = values[0]
            if isinstance(first, _Unset) or not all(_same(value, first) for value in values):
                self._put(name, None)
            else:
                self._put(name, first)

    def _put(self, name: str, value: Value | _Unset) -> None:
        """Set a variable or take it away, remembering for the block around what it was."""
        if self._blocks:
            self._blocks[-1].before.setdefault(name, self.variables.get(name, _UNSET))
        if isinstance(value, _Unset):
            self.variables.pop(name, None)
        else:
            self.variables[name] = value

    def assign(self, name: str, value: Value) -> None:
        self._put(name, value)

    def set(self, name: str, value: Value) -> None:
        """As an assignment of the text does: exported where the text exports all that it assigns."""
        self.assign(name, value)
        if self.export_all:
            self.exported.add(name)

    def unset(self, name: str) -> None:
        self._put(name, _UNSET)
        self.exported.discard(name)

    def lies_at(self, name: str, text: str) -> None:
        """The text is a script of its own with this name."""
        path = own_path(name, text)
        if path is not None:
            own = Chars(path, [0] * len(path))
            self.variables |= {"0": own, "BASH_SOURCE": [own]}

    def folder(self) -> str | None:
        """The path of the folder where commands run; None where it is unknown."""
        if not self.directory_known:
            return None
        directory = self.directory or ""
        return directory if directory.startswith("/") else f"{START}/{directory}".rstrip("/")

    def as_argument(self, word: str) -> str | None:
        """A word as a program sees that is started here; None where only the running shell knows."""
        return path_for_program(word, self.directory, self.directory_known)

    def change_directory(self, target: str | None) -> None:
        self._change_directory(target)
        now = self.folder()
        self.assign("PWD", None if now is None else Chars(now, [0] * len(now)))

    def _change_directory(self, target: str | None) -> None:
        if target is None or target.startswith(("-", "~")):
            self.directory, self.directory_known = None, False
        elif START in target:
            self.directory = relative_to_start(target)
            self.directory_known = self.directory is not None
        elif target.startswith("/"):
            self.directory, self.directory_known = posixpath.normpath(target), True
        elif self.directory_known:
            self.directory = posixpath.normpath(posixpath.join(self.directory or "", target))

    def exports(self) -> int:
        """How many variables a program started here inherits, at most."""
        return len(self.inherited) + len(self.exported)

    def environment(self) -> dict[str, str | None]:
        """The environment that a program started here inherits; None for an unknown value."""
        mine = {name: text_of(self.variables[name]) for name in self.exported if name in self.variables}
        return {**self.inherited, **dict(sorted(mine.items()))}


def text_of(value: Value) -> str | None:
    return value.text if isinstance(value, Chars) and not {UNKNOWN, START} & set(value.text) else None


def _same(item: Value | _Unset, other: Value | _Unset) -> bool:
    if isinstance(item, Chars) and isinstance(other, Chars):
        return item.text == other.text
    if isinstance(item, list) and isinstance(other, list):
        return [part.text for part in item] == [part.text for part in other]
    return item is None and other is None
