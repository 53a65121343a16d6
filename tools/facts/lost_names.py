"""``python -m tools.facts.lost_names``: the names that could be imported from older releases of the training libraries
and of packages that scripts import beside them, and cannot be from the newest, to ``schemas/releases/lost-names.json``,
each with the release that lost it.

What a module of an older release has is read from its source, of the last patch of every minor release; that the newest
lacks it is seen by importing the module and asking it. A module that cannot be imported because another package is
absent, and a name that its source binds somewhere all the same, are unknown and are left out. A module that takes all
names of another has those of the other, too.
"""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import warnings
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from zipfile import ZipFile

from packaging.version import Version

from tools.facts.environment import HERE, Release, releases
from tools.facts.sets import alone
from tools.facts.wheels import read_wheel

FILE = HERE.parent.parent / "schemas" / "releases" / "lost-names.json"
OLDER = {
    "transformers": ("4.20.1", "4.25.1", "4.28.1", "4.31.0", "4.33.3", "4.35.2"),
    "trl": ("0.4.7",),
    "accelerate": ("0.16.0", "0.20.3"),
}
"""Releases before those of ``releases.yaml`` that projects still run on."""
OTHERS = {
    "datasets": "1.11",
    "diffusers": "0.10",
    "evaluate": "0.1",
    "huggingface_hub": "0.8",
    "peft": "0.1",
}
"""Packages that training scripts import beside them, and the first minor release that is read. Their newest releases
are installed without what they need, each in a folder of its own, where this environment lacks them."""
_LEFT_OUT = re.compile(
    r"\b(tests?|(?<!trl\.)commands|testing_utils|test_utils|examples|cli)\b|_(tf|flax)\b|_(tf|flax)_|convert_|dummy_"
)
"""Modules that no training script imports from."""
_MODELS = frozenset(
    "auto bert bloom clip gemma gemma2 gpt2 gpt_neo gpt_neox gptj llama mistral mixtral opt qwen2 qwen2_5_vl qwen2_vl "
    "qwen3 siglip t5 whisper".split()
)
"""Models whose code projects take parts of; of the others only those count that are gone as a whole."""
_OF_PAGES = re.compile(r"logger|logging|_\w+_FOR_DOC|_EXPECTED\w+|PRETRAINED_\w+|\w+_ARCHIVE_\w+|add_\w+docstrings\w*")
"""Names that serve the documentation of models, and logging."""
_OF_OTHERS = frozenset((*sys.stdlib_module_names, "numpy", "torch", "packaging", "typing_extensions", "yaml", "PIL"))
"""Packages whose names are not a library's own where a module imports them."""
_FOR_OTHERS = re.compile(r"(TF|Flax)[A-Z]|__\w+__$")
"""Names of other frameworks than torch, and those that Python gives every module."""


def bound(source: str) -> set[str]:
    """The names that a module's own lines bind, those within `if`, `try`, `with` and loops included."""
    return {name for statement in _statements(ast.parse(source).body) for name in _names(statement)}


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    for statement in body:
        yield statement
        if not isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            inner = (node for field in ("body", "orelse", "finalbody") for node in getattr(statement, field, ()))
            yield from _statements(
                [*inner, *(node for item in getattr(statement, "handlers", ()) for node in item.body)]
            )


def _names(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield statement.name
    elif isinstance(statement, ast.Import):
        yield from (item.asname or item.name.partition(".")[0] for item in statement.names)
    elif isinstance(statement, ast.ImportFrom):
        yield from (item.asname or item.name for item in statement.names)
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        yield from (node.id for target in targets for node in ast.walk(target) if isinstance(node, ast.Name))


def own_names(source: str) -> set[str]:
    """As `bound`, without the names that the module itself imports from other packages; "*.utils" where it takes all
    names of a module of its own."""
    tree = ast.parse(source)
    return {
        f"*{'.' * statement.level}{statement.module or ''}"
        if isinstance(statement, ast.ImportFrom) and name == "*"
        else name
        for statement in _statements(tree.body)
        if not isinstance(statement, ast.Import)
        and not (isinstance(statement, ast.ImportFrom) and _of_others(statement))
        for name in _names(statement)
        if not _FOR_OTHERS.match(name)
    }


def _of_others(statement: ast.ImportFrom) -> bool:
    return not statement.level and (statement.module or "").partition(".")[0] in _OF_OTHERS


def names_of(library: str, wheel: Path) -> dict[str, list[str]]:
    """The names of each module of a release, read from its source."""
    found = {}
    with ZipFile(wheel) as held:
        for path in held.namelist():
            module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
            if path.startswith(f"{library}/") and path.endswith(".py") and not _LEFT_OUT.search(module):
                package = module if path.endswith("/__init__.py") else module.rpartition(".")[0]
                names = _known(held.read(path).decode())
                found[module] = [_taken_from(package, name) if name.startswith("*") else name for name in names]
    return found


def _taken_from(package: str, star: str) -> str:
    """The whole name of the module whose names a star import takes, with the star before it."""
    inner = star[1:].lstrip(".")
    level = len(star) - 1 - len(inner)
    above = package.split(".")[: len(package.split(".")) - level + 1] if level else []
    return "*" + ".".join(filter(None, [*above, inner]))


@cache
def _known(source: str) -> list[str]:
    return sorted(own_names(source))


def older(library: str) -> list[str]:
    """The releases that are read, oldest first: the last patch of each minor one but the newest."""
    known = [release.version for release in releases() if release.library == library] or _published(library)
    last = {Version(version).release[:2]: version for version in known}
    return [*OLDER.get(library, ()), *list(last.values())[:-1]]


@cache
def _published(library: str) -> list[str]:
    """The releases of one of the other packages, oldest first."""
    words = [sys.executable, "-m", "pip", "index", "versions", "--disable-pip-version-check", library]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    listed = re.search(r"Available versions: (.*)", said)
    assert listed is not None, said
    found = sorted(map(Version, listed[1].split(", ")))
    return [str(version) for version in found if version >= Version(OTHERS[library])]


def bring(library: str) -> None:
    """Lets this process import the newest release of one of the other packages."""
    if importlib.util.find_spec(library) is None:
        sys.path.append(str(alone(library, _published(library)[-1])))
        importlib.invalidate_caches()


@cache
def module_state(module: str) -> str:
    """What becomes of the import of a module of an installed library: "there", "gone", or "unknown"."""
    try:
        importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        return "gone" if missing and (module == missing or module.startswith(f"{missing}.")) else "unknown"
    except BaseException:  # a module may raise anything when it is imported
        return "unknown"
    return "there"


def lacks(module: str, name: str) -> bool:
    """Whether `from module import name` certainly fails in the installed library."""
    if module_state(module) != "there":
        return module_state(module) == "gone"
    loaded = sys.modules[module]
    try:
        getattr(loaded, name)
    except AttributeError:
        pass
    except BaseException:  # the name is there, and what it needs is not
        return False
    else:
        return False
    try:
        if importlib.util.find_spec(f"{module}.{name}") is not None:
            return False
    except (ImportError, ValueError, AttributeError):
        pass  # the module is no package
    source = _in_source(module)
    known = "*" not in source or type(loaded).__name__ == "_LazyModule"  # whose stars are there for type checkers
    return known and name not in source


@cache
def _in_source(module: str) -> frozenset[str]:
    """The names that the source of an imported module binds somewhere, with those of the modules whose names it takes
    all; "*" among them where these are not known."""
    path = getattr(sys.modules[module], "__file__", None)
    if not path:
        return frozenset("*")
    source = Path(path).read_text(encoding="utf-8")
    package = module if Path(path).name == "__init__.py" else module.rpartition(".")[0]
    found = bound(source) - {"*"}
    for statement in _statements(ast.parse(source).body):
        if isinstance(statement, ast.ImportFrom) and any(item.name == "*" for item in statement.names):
            star = _taken_from(package, f"*{'.' * statement.level}{statement.module or ''}")[1:]
            found |= _in_source(star) if module_state(star) == "there" else {"*"}
    return frozenset(found)


def lost(ever: Mapping[str, Iterable[str]]) -> tuple[list[str], dict[str, list[str]]]:
    """The outermost modules that the installed library lacks, and by module the names that it lacks."""
    gone = sorted(module for module in ever if module_state(module) == "gone")
    outer = [module for module in gone if not any(module.startswith(f"{other}.") for other in gone)]
    there = [module for module in sorted(ever) if _counts(module) and module_state(module) == "there"]
    found = {module: [name for name in sorted(ever[module]) if lacks(module, name)] for module in there}
    return outer, {module: names for module, names in found.items() if names}


def since(had: Mapping[str, Mapping[str, Collection[str]]], newest: str, module: str, name: str = "") -> str:
    """The first minor release that surely lacks a module, or a name of one; the newest release itself where only that
    is known to. ``had``: by release, oldest first, the names of each module."""
    after = newest
    for version in reversed(list(had)):
        names = had[version].get(module)
        if names is not None and (not name or name in names or f"{module}.{name}" in had[version]):
            return after
        after = ".".join(version.split(".")[:2])
    raise ValueError(f"no release has {module}.{name}")


def with_stars(modules: Mapping[str, Iterable[str]]) -> dict[str, set[str]]:
    """The names of each module of a release, with those of the modules from which it takes all names."""
    known: dict[str, set[str]] = {}

    def names_in(module: str, above: tuple[str, ...]) -> set[str]:
        if module not in known:
            found = {name for name in modules[module] if not name.startswith("*")}
            for star in modules[module]:
                if star.startswith("*") and star[1:] in modules and star[1:] not in above:
                    found |= names_in(star[1:], (*above, module))
            known[module] = found
        return known[module]

    return {module: names_in(module, ()) for module in modules}


def _by_release(losses: Iterable[tuple[str, str]]) -> dict[str, str]:
    """From pairs of a release and a name: by release the names that it lost, in one text."""
    found: dict[str, list[str]] = defaultdict(list)
    for version, name in losses:
        found[version].append(name)
    return {version: " ".join(names) for version, names in found.items()}


def _counts(module: str) -> bool:
    """Whether the names of a module are kept."""
    if module.startswith("diffusers."):
        return module.count(".") < 3
    return not module.startswith("transformers.models.") or module.split(".")[2] in _MODELS


def main() -> int:
    warnings.simplefilter("ignore")
    written: dict[str, object] = {}
    for library in (*OLDER, *OTHERS):
        if library in OTHERS:
            bring(library)
        ever: dict[str, set[str]] = defaultdict(set)
        had: dict[str, dict[str, set[str]]] = {}
        for version in older(library):
            print(f"{library} {version}", file=sys.stderr, flush=True)
            try:
                read = read_wheel(Release(library, version), Path(__file__), "names", names_of)
            except RuntimeError as error:
                if library not in OTHERS:
                    raise
                print(f"left out, there is no wheel: {str(error)[-100:]}", file=sys.stderr)
                continue
            had[version] = with_stars(read)
            for module, names in read.items():
                ever[module] |= {name for name in names if not name.startswith("*") and not _OF_PAGES.fullmatch(name)}
                package, _, leaf = module.rpartition(".")
                ever[package].add(leaf)
        ever.pop("", None)
        gone, names_lost = lost(ever)
        newest = importlib.metadata.version(library)
        written[library] = {
            "newest": newest,
            "read": list(had),
            "modules": {module: since(had, newest, module) for module in gone},
            "names": {
                module: _by_release((since(had, newest, module, name), name) for name in names)
                for module, names in names_lost.items()
            },
        }
        print(f"{library}: {len(gone)} modules, {sum(map(len, names_lost.values()))} names in {len(names_lost)} others")
    FILE.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
