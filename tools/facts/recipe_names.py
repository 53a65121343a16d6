"""``python -m tools.facts.recipe_names llamafactory|ms-swift CLONE``: the arguments of a framework around the Trainer
in every release, to ``schemas/releases``.

``CLONE`` is a git clone of hiyouga/LLaMA-Factory or modelscope/ms-swift with its tags. Nothing is imported: the
arguments are the fields of the dataclasses in the modules that hold them, without those that TrainingArguments of
transformers or TRL's configs bring. ``mentioned`` are the other names that may be arguments: fields of all other
classes, words in the modules of arguments, and what the repository's examples write, of the releases and of the newest
commit.
"""

from __future__ import annotations

import argparse
import ast
import io
import json
import re
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from tools.facts.fold import fold, written

OUT = Path(__file__).resolve().parent.parent.parent / "schemas" / "releases"
_MODULES = {
    "llamafactory": re.compile(r"src/(?:llmtuner|llamafactory)/hparams/\w+\.py"),
    "ms-swift": re.compile(r"swift/(?!megatron/|ui/|aigc/)(?:\w+/)*(?:argument|arguments)(?:/.*)?(?:\.py)?"),
}
_PACKAGES = {"llamafactory": ("src/llmtuner/", "src/llamafactory/"), "ms-swift": ("swift/",)}
_EXAMPLE = re.compile(r"(?:^|/)(?:examples?|docs|scripts|tests)/.*\.(?:ya?ml|sh|md|json)\Z|README\w*\.md\Z")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_WRITTEN = re.compile(r"(?m)^[ \t]*([A-Za-z]\w*):|--([A-Za-z][\w-]*)|^[ \t]*\"([A-Za-z]\w*)\":")


def files_at(clone: Path, commit: str) -> dict[str, str]:
    """The modules and examples of a commit, by path."""
    packed = subprocess.run(["git", "-C", str(clone), "archive", commit], capture_output=True, check=True).stdout
    found = {}
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        for member in archive:
            held = archive.extractfile(member) if member.isfile() and _is_read(member.name) else None
            if held is not None:
                found[member.name] = held.read().decode("utf-8", "replace")
    return found


def _is_read(name: str) -> bool:
    return name.endswith(".py") or _EXAMPLE.search(name) is not None


def names(framework: str, files: Mapping[str, str]) -> tuple[set[str], set[str]]:
    """The arguments of a framework, and the names that its package and its examples mention."""
    arguments: set[str] = set()
    mentioned: set[str] = set()
    for path, text in files.items():
        if not path.endswith(".py"):
            mentioned |= {next(filter(None, match)).replace("-", "_") for match in _WRITTEN.findall(text)}
        elif path.startswith(_PACKAGES[framework]):
            nodes = _nodes(text)
            fields = {name for node in nodes if isinstance(node, ast.ClassDef) for name in _fields(node)}
            if _MODULES[framework].fullmatch(path):
                arguments |= fields
                mentioned |= {
                    node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
                }
            mentioned |= fields
    return set(filter(_NAME.fullmatch, arguments)), set(filter(_NAME.fullmatch, mentioned))


def _nodes(text: str) -> list[ast.AST]:
    try:
        return list(ast.walk(ast.parse(text)))
    except SyntaxError:  # of a newer Python, or a template
        return []


def _fields(node: ast.ClassDef) -> Iterator[str]:
    return (
        field.target.id
        for field in node.body
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("framework", choices=sorted(_MODULES))
    parser.add_argument("clone", type=Path)
    options = parser.parse_args()
    listed = subprocess.run(
        ["git", "-C", str(options.clone), "tag", "--list", "v*"], capture_output=True, text=True, check=True
    ).stdout.split()
    ordered = sorted(listed, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    read = {tag.removeprefix("v"): names(options.framework, files_at(options.clone, tag)) for tag in ordered}
    known = {version: arguments for version, (arguments, _) in read.items() if arguments}
    history = fold([(version, {name: {} for name in arguments}) for version, arguments in known.items()])
    newest = names(options.framework, files_at(options.clone, "HEAD"))
    mentioned = set().union(*newest, *(found for _, found in read.values())) - history.keys()
    text = written(options.framework, list(known), history).removesuffix("}\n")
    out = OUT / f"{options.framework}.json"
    out.write_text(f'{text},\n"mentioned": {json.dumps(sorted(mentioned))}}}\n', encoding="utf-8")
    print({version: len(arguments) for version, arguments in known.items()}, f"{len(mentioned)} mentioned")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
