"""Programs that start a training by themselves, as front ends name them (`zerocfg.frontends`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zerocfg.record import field, record
from zerocfg.source.launch.line import Option


@record(frozen=True)
class TrainingProgram:
    """A training program whose options are not read. ``modules``: the beginnings of its modules' names; ``scripts``:
    the ends of its scripts' paths; ``options``: those that only it has, behind a script named like many others;
    ``words``: a file that starts it holds one of them."""

    name: str
    modules: tuple[str, ...] = ()
    scripts: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()
    words: tuple[str, ...] = ()

    def is_started(self, script: str, module: bool, options: Iterable[Option]) -> bool:
        """Whether a command starts it."""
        if module:
            return script.startswith(self.modules)
        path = "/" + script.replace("\\", "/")
        return path.endswith(self.scripts) or any(spelled(option.name) in self.options for option in options)


@record(frozen=True, eq=False)
class Programs:
    """``own``: by program, what its launch lines are called and the commands that train; all words behind these are the
    training's. ``words``: a file that holds a launch line of theirs holds one of them. ``unread``: those that are
    recognised, and no more."""

    own: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    unread: tuple[TrainingProgram, ...] = ()

    @property
    def marks(self) -> tuple[bytes, ...]:
        """The words as a file's bytes hold them."""
        return tuple(word.encode() for word in self.words)


NONE = Programs()


def spelled(name: str) -> str:
    """``--num-processes`` and ``--num_processes`` are one option."""
    return name if not name.startswith("--") else "--" + name[2:].replace("-", "_")
