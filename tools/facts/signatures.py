"""``python -m tools.facts.signatures``: the parameters of Accelerator and of the trainers in every release of
``releases.yaml``, read from the release's source, to ``schemas/releases/*-signatures.json``.

Nothing is imported: a release is downloaded without what it needs, and its classes are parsed. So a signature costs
seconds, and releases count that no longer run on today's torch.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

from tools.facts.environment import HERE, releases
from tools.facts.fold import changes, fold, written
from tools.facts.wheels import read_wheel

FOLDER = HERE.parent.parent / "schemas" / "releases"
MODULES = {
    "accelerate": re.compile(r"accelerate/accelerator\.py"),
    "transformers": re.compile(r"transformers/trainer(_seq2seq)?\.py"),
    "trl": re.compile(r"trl/trainer/\w+\.py"),
}
"""The files of a wheel that define the classes."""
_CLASS = re.compile(r"Accelerator|(?:[A-Z]\w*)?Trainer")


def signatures(library: str, wheel: Path) -> dict[str, object]:
    """By class, and by class and parameter, what a release's constructors take by name.

    ``open``: the class takes any keyword (``**kwargs``), or its constructor is another library's.
    """
    with ZipFile(wheel) as held:
        texts = {name: held.read(name).decode() for name in held.namelist() if MODULES[library].fullmatch(name)}
        exported = set(re.findall(r"\w+", held.read(f"{library}/__init__.py").decode()))
    classes = {one.name: one for text in texts.values() for one in _classes(ast.parse(text))}
    keys: dict[str, object] = {}
    for name in classes:
        if not _CLASS.fullmatch(name) or name not in exported:
            continue
        constructor = _constructor(name, classes)
        if constructor is None or constructor.args.kwarg is not None:
            keys[name] = {"open": True}
            continue
        keys[name] = {}
        keys |= {f"{name}.{taken}": {} for taken in _taken(constructor)}
    return keys


def _classes(tree: ast.Module) -> Iterator[ast.ClassDef]:
    return (node for node in ast.walk(tree) if isinstance(node, ast.ClassDef))


def _constructor(name: str, classes: Mapping[str, ast.ClassDef]) -> ast.FunctionDef | None:
    """The ``__init__`` of a class or of its first base that has one; None where that is not in these files."""
    seen: set[str] = set()
    while name in classes and name not in seen:
        seen.add(name)
        own = next((one for one in classes[name].body if getattr(one, "name", "") == "__init__"), None)
        if isinstance(own, ast.FunctionDef):
            return own
        name = next((one.id for one in classes[name].bases if isinstance(one, ast.Name)), "")
    return None


def _taken(constructor: ast.FunctionDef) -> list[str]:
    """The parameters that can be given by name, and the former names that a decorator (`deprecate_kwarg`) still takes
    for them: any identifier among its literals counts as one."""
    arguments = constructor.args
    own = [one.arg for one in (*arguments.args[1:], *arguments.kwonlyargs)]
    literals = (node for one in constructor.decorator_list for node in ast.walk(one) if isinstance(node, ast.Constant))
    former = [one.value for one in literals if isinstance(one.value, str) and one.value.isidentifier()]
    return list(dict.fromkeys([*own, *former]))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", nargs="*", help=f"these alone, of {', '.join(MODULES)}; others are passed over")
    options = parser.parse_args()
    wanted = [one for one in releases() if one.library in MODULES and one.library in (options.library or MODULES)]
    found: dict[str, list[tuple[str, dict[str, object]]]] = defaultdict(list)
    failed = 0
    for at, release in enumerate(wanted, 1):
        print(f"[{at}/{len(wanted)}] {release.library} {release.version}", file=sys.stderr, flush=True)
        try:
            found[release.library].append(
                (release.version, read_wheel(release, Path(__file__), "signatures", signatures))
            )
        except (RuntimeError, OSError, SyntaxError) as error:
            failed += 1
            print(f"{release.library} {release.version}: {error}", file=sys.stderr)
    for library, censuses in found.items():
        histories = fold(censuses)
        path = FOLDER / f"{library}-signatures.json"
        path.write_text(written(library, [version for version, _ in censuses], histories), encoding="utf-8")
        print(f"{path.name}: {len(censuses)} releases, {len(histories)} keys")
        for line in changes(histories, censuses[-1][0]):
            print(f"  {censuses[-1][0]}: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
