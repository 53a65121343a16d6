"""``python -m tools.facts.axolotl CLONE [WHEEL ...]``: the top-level keys of an axolotl recipe in every release, to
``schemas/releases/axolotl.json``.

``CLONE`` is a git clone of axolotl-ai-cloud/axolotl with its tags, ``WHEEL`` a release without a tag there. Nothing is
imported: the fields of `AxolotlInputConfig` and of its bases are read from the source. ``mentioned`` are the other
names that may have a meaning as a key at the top: fields of plugins, words in the modules of the schemas (validators
rename and refuse keys by them), and what the code reads from `cfg`. Releases before 0.5.0 have no schema, and only
mention keys.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from zipfile import ZipFile

from tools.facts.fold import fold, written

OUT = Path(__file__).resolve().parent.parent.parent / "schemas" / "releases" / "axolotl.json"
TOP = "AxolotlInputConfig"
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def tagged(clone: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """Each tagged release with the text of its modules."""
    for tag in _git(clone, "tag", "--list", "v*").split():
        names = [name for name in _git(clone, "ls-tree", "-r", "--name-only", tag).split("\n") if _is_module(name)]
        yield tag.removeprefix("v"), {name: _git(clone, "show", f"{tag}:{name}") for name in names}


def packed(wheel: Path) -> tuple[str, dict[str, str]]:
    with ZipFile(wheel) as held:
        return wheel.name.split("-")[1], {
            name: held.read(name).decode() for name in held.namelist() if _is_module(name)
        }


def _is_module(name: str) -> bool:
    return name.endswith(".py") and name.removeprefix("src/").startswith("axolotl/")


def _git(clone: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", str(clone), *words], capture_output=True, text=True, check=True).stdout


def keys(modules: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """The fields of the recipe, and the names that the package mentions as keys."""
    classes: dict[str, ast.ClassDef] = {}
    mentioned: set[str] = set()
    for name, text in modules.items():
        tree = ast.parse(text)
        nodes = list(ast.walk(tree))
        if "/schemas/" in name or "/config/models/" in name or name.endswith("/args.py"):
            classes |= {node.name: node for node in nodes if isinstance(node, ast.ClassDef)}
            mentioned |= {
                node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
        if "/integrations/" in name:
            mentioned |= {field for node in nodes if isinstance(node, ast.ClassDef) for field in _fields(node)}
        mentioned |= {name for node in nodes for name in _read_of_config(node)}
    return {name for name in _inherited(TOP, classes) if _NAME.fullmatch(name)}, set(filter(_NAME.fullmatch, mentioned))


def _read_of_config(node: ast.AST) -> Iterator[str]:
    """The key that an expression reads of `cfg`: ``cfg.key``, ``cfg["key"]``, ``cfg.get("key")``, ``"key" in cfg``."""
    words: list[ast.expr] = []
    if isinstance(node, ast.Attribute) and _is_config(node.value):
        yield node.attr
    elif isinstance(node, ast.Subscript) and _is_config(node.value):
        words = [node.slice]
    elif isinstance(node, ast.Call):
        of = node.func.value if isinstance(node.func, ast.Attribute) else None
        words = node.args if (of is not None and _is_config(of)) or any(map(_is_config, node.args)) else []
    elif isinstance(node, ast.Compare) and any(map(_is_config, node.comparators)):
        words = [node.left]
    yield from (word.value for word in words if isinstance(word, ast.Constant) and isinstance(word.value, str))


def _is_config(node: ast.expr) -> bool:
    return getattr(node, "attr", getattr(node, "id", "")) in ("cfg", "_cfg")


def _inherited(name: str, classes: Mapping[str, ast.ClassDef]) -> Iterator[str]:
    if name in classes:
        yield from _fields(classes[name])
        for base in classes[name].bases:
            yield from _inherited(base.id if isinstance(base, ast.Name) else "", classes)


def _fields(node: ast.ClassDef) -> Iterator[str]:
    return (one.target.id for one in node.body if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("clone", type=Path)
    parser.add_argument("wheel", type=Path, nargs="*")
    options = parser.parse_args()
    releases = dict([*tagged(options.clone), *map(packed, options.wheel)])
    ordered = sorted(releases, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    read = {version: keys(releases[version]) for version in ordered}
    with_schema = {version: top for version, (top, _) in read.items() if top}
    history = fold([(version, {name: {} for name in top}) for version, top in with_schema.items()])
    mentioned = set().union(*(names for _, names in read.values())) - history.keys()
    text = written("axolotl", list(with_schema), history).removesuffix("}\n")
    OUT.write_text(f'{text},\n"mentioned": {json.dumps(sorted(mentioned))}}}\n', encoding="utf-8")
    print({version: len(top) for version, top in with_schema.items()}, f"{len(mentioned)} mentioned")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
