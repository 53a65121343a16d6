"""Programs that start a training by themselves, as front ends name them (`zerocfg.frontends`)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zerocfg.record import field, record, replace
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
    """``own``: by program, what its launch lines are called and the commands that train, none where it has no commands;
    all words behind these are the training's. ``modules``: by Python module that trains, also started as a script, what
    its runs are called. ``words``: a file that holds a launch line of theirs holds one of them. ``unread``: those that
    are recognised, and no more."""

    own: Mapping[str, tuple[str, frozenset[str]]] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    unread: tuple[TrainingProgram, ...] = ()

    @property
    def mentions(self) -> tuple[str, ...]:
        """A file that starts one of them holds one of these words."""
        paths = (f"{name.replace('.', '/')}.py" for name in self.modules)
        alone = (name for name, (_, commands) in self.own.items() if not commands)
        unread = (word for item in self.unread for word in item.words)
        return (*self.words, *alone, *self.modules, *paths, *unread)

    @property
    def marks(self) -> tuple[bytes, ...]:
        """The same words, of those that are read, as a file's bytes hold them."""
        return tuple(word.encode() for word in replace(self, unread=()).mentions)

    def training_of(self, script: str | None, module: bool) -> str | None:
        """What the runs of a module, or of the path of a script, are called; None where it trains nothing of theirs."""
        if not script or not self.modules:
            return None
        name = script if module else as_module(script)
        return next((self.modules[item] for item in self.modules if name == item or name.endswith("." + item)), None)


NONE = Programs()


def as_module(script: str) -> str:
    """A path of a script as the module that it may be."""
    return script.removesuffix(".py").replace("\\", "/").replace("/", ".")


def spelled(name: str) -> str:
    """``--num-processes`` and ``--num_processes`` are one option."""
    return name if not name.startswith("--") else "--" + name[2:].replace("-", "_")
