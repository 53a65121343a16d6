"""What a script reaches from its first line on: the calls of libraries in it and in the modules that it imports.

A function is reached when its name stands in code that is reached, a class with all its methods; so a repository's
other trainers, which the script never names, say nothing about it.
"""

from __future__ import annotations

import ast
import re
from collections import deque
from pathlib import Path

from zerocfg.budgets import MODULES
from zerocfg.record import field, record
from zerocfg.run.model import SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.script.code import Code
from zerocfg.run.script.comparisons import Decision
from zerocfg.run.script.loops import own_loop
from zerocfg.run.script.modules import Definition, Imported, Module, Open, located, parse
from zerocfg.run.script.values import Names, assigned

DEPTH = 2
"""How many imports deep the repository is followed."""
_TELLING = re.compile(
    r"Trainer|Accelerator|deepspeed|add_argument|Fabric|LightningCLI|TrainingArguments|trlx|training_main"
)
"""Text that a module without further imports must contain to be relevant."""
_LONGEST = 10
"""Modules that hand a name on to each other."""

Owner = ast.FunctionDef | ast.AsyncFunctionDef | None


@record(frozen=True, slots=True, eq=False)
class Reached:
    """One call that is reached. ``name``: of the library's thing, or of the one that a class of the repository derives
    from. ``owner``: the function it stands in."""

    name: str
    call: ast.Call
    module: Module
    owner: Owner = None


@record(slots=True)
class Reach:
    """``calls``: of libraries; ``methods``: what is called of any object; ``parsing``: calls by which a parser is told
    its options, or asked; ``given``: where names are given what one answers; ``dicts``: those that hold a key of
    DeepSpeed; ``changed``: keys that are set or removed in some mapping; ``stored``: the attributes that are set on
    some object; ``opened``: names that stand in the path of a file that it opens. ``shallow`` False: some code is
    deeper than was looked. ``unread``: some module was left out, or is no Python.
    ``own_loop``: a class of the repository derives from a Trainer and trains by a loop of its own.
    ``replaced``: methods of a library's Trainer that such a class replaces.
    ``decisions``: those that compare an attribute with literals. ``resumes``: some `train` is called with a checkpoint
    to go on from."""

    calls: list[Reached] = field(default_factory=list)
    methods: set[str] = field(default_factory=set)
    parsing: list[tuple[Module, ast.Call]] = field(default_factory=list)
    given: list[tuple[Owner, ast.Assign]] = field(default_factory=list)
    dicts: list[tuple[Module, Owner, ast.Dict]] = field(default_factory=list)
    changed: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    modules: list[Module] = field(default_factory=list)
    shallow: bool = True
    own_loop: bool = False
    replaced: set[str] = field(default_factory=set)
    unread: bool = False
    decisions: list[tuple[Module, Owner, Decision]] = field(default_factory=list)
    resumes: bool = False

    @property
    def prepares(self) -> bool:
        """Whether `prepare` is called on some object, as on an Accelerator."""
        return "prepare" in self.methods


@remembered
def _telling(file: SourceFile) -> bool:
    """Whether a module may be relevant by itself; decided once for all scripts that import it."""
    return _TELLING.search(file.source.text) is not None


def _registered(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether a decorator hands a function on to an object that may call it: `@app.command()`."""
    return any(isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) for item in function.decorator_list)


class Walk:
    """``open_file`` reads a file once; ``root``: the folder that is the repository's."""

    def __init__(self, open_file: Open, root: Path) -> None:
        self.open = open_file
        self.root = root
        self.found = Reach()
        self.waiting: deque[tuple[Module, Definition | None]] = deque()
        self.done: set[int] = set()
        self.named: set[tuple[int, str]] = set()
        self.loaded: dict[Path, Module | None] = {}
        self.depths: dict[int, int] = {}
        self.known_scopes: dict[tuple[int, int], tuple[Names, ...]] = {}
        self.bases: dict[tuple[int, str], str] = {}
        self.of_imports: dict[tuple[int, str], tuple[Module, str] | None] = {}

    def from_start(self, module: Module) -> Reach:
        """All that a module reaches when it is started."""
        self.loaded[module.path] = module
        self._enter(module, 0)
        for definition in module.definitions.values():
            if not isinstance(definition, ast.ClassDef) and _registered(definition):
                self._define(module, definition)
        while self.waiting:
            self._visit(*self.waiting.popleft())
        return self.found

    def _enter(self, module: Module, depth: int) -> None:
        """The statements that run when a module is started or imported."""
        if id(module) not in self.depths:
            self.depths[id(module)] = depth
            self.found.modules.append(module)
            self.waiting.append((module, None))

    def _visit(self, module: Module, definition: Definition | None) -> None:
        code = module.code(definition, started=self.depths.get(id(module), 0) == 0)
        owner = None if isinstance(definition, ast.ClassDef) else definition
        found = self.found
        for name in code.names:
            self._named(module, name)
        for name, attribute in code.members:
            self._member(module, name, attribute)
        for call in code.calls:
            for name in self._called(module, code, call.func):
                found.calls.append(Reached(name, call, module, owner))
        found.methods |= code.methods
        found.parsing += [(module, node) for node in code.parsing]
        found.opened |= code.opened
        found.given += [(owner, node) for node in code.given]
        found.dicts += [(module, owner, node) for node in code.dicts]
        found.changed |= code.changed
        found.stored |= code.stored
        found.resumes = found.resumes or code.resumes
        found.decisions += [(module, owner, decision) for decision in code.decisions]

    def _called(self, module: Module, code: Code, function: ast.expr) -> list[str]:
        """What a call may call of a library; several where a name is one of several classes."""
        things = code.aliases.get(function.id, []) if isinstance(function, ast.Name) else []
        names = [module.dotted(item) or self.library_base(module, item) for item in (function, *things)]
        return list(dict.fromkeys(filter(None, names))) if things else [name for name in names if name]

    def scopes(self, module: Module, owner: Owner) -> tuple[Names, ...]:
        """The names of a function and of its module."""
        key = (id(module), id(owner))
        if key not in self.known_scopes:
            self.known_scopes[key] = self._scopes(module, owner)
        return self.known_scopes[key]

    def _scopes(self, module: Module, owner: Owner) -> tuple[Names, ...]:
        if owner is None:
            return (assigned(module.body),)
        (outer,) = self.scopes(module, None)
        arguments = owner.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [item for item in (arguments.vararg, arguments.kwarg) if item is not None]
        return ({**dict.fromkeys((item.arg for item in every), None), **assigned(owner.body)}, outer)

    def _named(self, module: Module, name: str) -> None:
        if (id(module), name) in self.named:
            return
        self.named.add((id(module), name))
        definition = module.definitions.get(name)
        if definition is not None:
            self._define(module, definition)
            return
        found = self._of_import(module, name)
        if found is not None:
            inner, wanted = found
            if wanted:
                self._named(inner, wanted)

    def _member(self, module: Module, name: str, attribute: str) -> None:
        """`package.function`, where `package` is a module of the repository."""
        found = self._of_import(module, name)
        if found is not None and not found[1]:
            self._named(found[0], attribute)

    def _define(self, module: Module, definition: Definition) -> None:
        if id(definition) in self.done:
            return
        self.done.add(id(definition))
        if not isinstance(definition, ast.ClassDef):
            self.waiting.append((module, definition))
            return
        for base in definition.bases:
            if isinstance(base, ast.Name):
                self._named(module, base.id)
            elif isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
                self._member(module, base.value.id, base.attr)
        own = own_loop(definition)
        named = any("Trainer" in ast.unparse(base) for base in definition.bases)
        if (own or named) and self.library_base(module, ast.Name(definition.name)).endswith("Trainer"):
            self.found.own_loop = self.found.own_loop or own
            self.found.replaced |= {item.name for item in definition.body if isinstance(item, ast.FunctionDef)}
        self.waiting.append((module, definition))
        for statement in definition.body:
            if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.waiting.append((module, statement))

    def _of_import(self, module: Module, name: str) -> tuple[Module, str] | None:
        """The repository's module behind an imported name, and the name in it (empty: the module itself)."""
        imported = module.imports.get(name)
        if imported is None and (not module.stars or name in module.definitions):
            return None
        key = (id(module), name)
        if key not in self.of_imports:
            self.of_imports[key] = None  # while it is followed: modules may import each other
            self.of_imports[key] = self._followed(module, imported) if imported else self._of_stars(module, name)
        return self.of_imports[key]

    def _of_stars(self, module: Module, name: str) -> tuple[Module, str] | None:
        """The module that a name comes from by `from module import *`."""
        for star in module.stars:
            found = self._followed(module, star)
            if found is not None and (name in found[0].definitions or name in found[0].imports):
                return found[0], name
        return None

    def _followed(self, module: Module, imported: Imported) -> tuple[Module, str] | None:
        depth = self.depths.get(id(module), 0)
        place = located(module, imported, self.root)
        if place is None:
            return None
        if depth >= DEPTH or len(self.loaded) > MODULES:
            self.found.shallow = False
            return None
        path, wanted = place
        if path not in self.loaded:
            file = self.open(path)
            last = depth + 1 >= DEPTH and not _telling(file)
            self.loaded[path] = None if last else parse(file, path)
        inner = self.loaded[path]
        if inner is None:
            self.found.unread = True
            return None
        self._enter(inner, depth + 1)
        return inner, wanted

    # -- classes of the repository that derive from a library's -------------------------------------------------

    def library_base(self, module: Module, expression: ast.expr) -> str:
        """The library's class that a class of the repository derives from; empty where there is none."""
        if isinstance(expression, ast.Name):
            name = expression.id
        elif isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            name = f"{expression.value.id}.{expression.attr}"
        else:
            return ""
        key = (id(module), name)
        if key not in self.bases:
            self.bases[key] = ""  # a class that derives from itself has no base
            self.bases[key] = self._library_base(module, expression)
        return self.bases[key]

    def _library_base(self, module: Module, expression: ast.expr) -> str:
        found = self.class_of(module, expression)
        if found is None:
            return ""
        inner, definition = found
        names = (inner.dotted(base, definition) or self.library_base(inner, base) for base in definition.bases)
        return next(filter(None, names), "")

    def declared(self, module: Module, expression: ast.expr) -> tuple[Module, ast.ClassDef] | None:
        """The class of the repository that an expression names, however deep it is declared; nothing else of the
        modules on the way counts as reached."""
        found = self.class_of(module, expression)
        if found is not None or not isinstance(expression, ast.Name):
            return found
        wanted = expression.id
        for _ in range(_LONGEST):
            definition = module.definitions.get(wanted)
            imported = module.imports.get(wanted)
            if definition is not None or imported is None:
                return (module, definition) if isinstance(definition, ast.ClassDef) else None
            place = located(module, imported, self.root)
            if place is None or not place[1]:
                return None
            path, wanted = place
            inner = self.loaded.get(path) or parse(self.open(path), path)
            if inner is None:
                return None
            self.loaded[path] = module = inner
            if module not in self.found.modules:
                self.found.modules.append(module)
        return None

    def class_of(self, module: Module, expression: ast.expr) -> tuple[Module, ast.ClassDef] | None:
        """The class of the repository that an expression names."""
        found = self.defined(module, expression)
        return (found[0], found[1]) if found is not None and isinstance(found[1], ast.ClassDef) else None

    def defined(self, module: Module, expression: ast.expr) -> tuple[Module, Definition] | None:
        """The class or function of the repository that an expression names."""
        wanted = ""
        if isinstance(expression, ast.Name):
            wanted = expression.id
        elif isinstance(expression, ast.Attribute) and isinstance(expression.value, ast.Name):
            found = self._of_import(module, expression.value.id)
            if found is None or found[1]:
                return None
            module, wanted = found[0], expression.attr
        for _ in range(_LONGEST):
            definition = module.definitions.get(wanted)
            if definition is not None or not wanted:
                return (module, definition) if definition is not None else None
            found = self._of_import(module, wanted)
            if found is None:
                return None
            module, wanted = found
        return None
