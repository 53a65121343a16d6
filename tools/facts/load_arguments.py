"""``python -m tools.facts.load_arguments``: which keywords `from_pretrained` of a model takes in which release of
transformers, to ``schemas/releases/transformers-load-arguments.json``.

Played: the last patch of each minor release and the installed one load a tiny Llama from a folder, once for each
keyword that the code of any of them names, with `AutoModelForCausalLM` and with the class itself. A keyword is refused
where every load with it ends in the TypeError that names it; any other error comes after it was taken. ``removed``:
the keywords that some release took and the newest refuses, each with the first release that refuses it; without those
that are attributes of a config, which another model may have.
``takes_any``: the classes that take every keyword, in some release that refuses one elsewhere; of an Auto class the
types of the models that do.
"""

from __future__ import annotations

import ast
import hashlib
import importlib.metadata
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any
from zipfile import ZipFile

from tools.facts.environment import CACHE, HERE, Release, install, releases
from tools.facts.lost_names import older
from tools.facts.wheels import read_wheel

WRITTEN = HERE.parent.parent / "schemas" / "releases" / "transformers-load-arguments.json"
PLAYER = HERE / "load_player.py"
_READ = {
    "modeling_utils": ("from_pretrained",),
    "models/auto/auto_factory": ("from_pretrained",),
    "configuration_utils": ("from_pretrained", "get_config_dict", "_get_config_dict", "from_dict"),
}
"""By module: the functions through which the keywords of a load go."""
_BESIDE = ("numpy<2",)
Played = Mapping[str, Any]
"""What one release was seen to do: ``taken``, the keywords; ``attributes``, those of them that the model's config has,
and that another model's may have; ``lax``, the classes that take any, with model types."""


def keywords(library: str, wheel: Path) -> list[str]:
    """The names that these functions look for among the keywords of a call, and many others: every parameter and every
    text of theirs that could be one."""
    found: set[str] = set()
    with ZipFile(wheel) as held:
        for module, functions in _READ.items():
            tree = ast.parse(held.read(f"{library}/{module}.py").decode())
            every = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name in functions]
            for node in (inner for function in every for inner in ast.walk(function)):
                if isinstance(node, ast.arg):
                    found.add(node.arg)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
                    found.add(node.value)
    return sorted(found - {"cls", "self", "pretrained_model_name_or_path"})


def play(names: Sequence[str], folder: Path | None) -> Played:
    """What the release in a folder does with these keywords; None: the installed one."""
    environment = {**os.environ, "PYTHONPATH": str(folder or ""), "HF_HUB_OFFLINE": "1", "USE_TF": "0", "USE_FLAX": "0"}
    words = [sys.executable, str(PLAYER)]
    done = subprocess.run(words, env=environment, input=json.dumps(names), capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-800:])
    found: Played = json.loads(done.stdout.splitlines()[-1])
    return found


def played(version: str, names: Sequence[str]) -> Played:
    """The same, kept as long as the player and the keywords stay the same."""
    if version == importlib.metadata.version("transformers"):
        return play(names, None)
    program = hashlib.sha256(PLAYER.read_bytes() + json.dumps(names).encode()).hexdigest()[:12]
    cached = CACHE / f"transformers-{version}-loads-{program}.json"
    if not cached.is_file():
        with tempfile.TemporaryDirectory(dir=CACHE) as new:
            folder = Path(new, "site-packages")
            install(Release("transformers", version, _BESIDE), folder)
            cached.write_text(json.dumps(play(names, folder)), encoding="utf-8")
    found: Played = json.loads(cached.read_text(encoding="utf-8"))
    return found


def removed(seen: Sequence[tuple[str, Played]]) -> dict[str, str]:
    """By keyword that the newest refuses and an older one took: the minor release that was the first to refuse it."""
    found: dict[str, str] = {}
    for (_, before), (version, since) in pairwise(seen):
        for name in set(before["taken"]) - set(since["taken"]):
            found[name] = _minor(version)
        for name in since["taken"]:
            found.pop(name, None)
    of_configs = {name for _, item in seen for name in item["attributes"]}
    return {name: since for name, since in sorted(found.items()) if name not in of_configs}


def takes_any(seen: Sequence[tuple[str, Played]], since: str) -> dict[str, list[str]]:
    """By class that takes any keyword in some release from one on: the model types, all of them where it is no Auto
    class."""
    found: dict[str, set[str]] = {}
    at = [version for version, _ in seen].index(since)
    for _, item in seen[at:]:
        for name, types in item["lax"].items():
            found.setdefault(name, set()).update(types)
    return {name: sorted(types) for name, types in sorted(found.items())}


def _minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _play() -> Iterator[tuple[str, Played]]:
    listed = {release.version for release in releases()}
    versions = [version for version in older("transformers") if version in listed]
    versions.append(importlib.metadata.version("transformers"))
    names: set[str] = set()
    for version in versions:
        names |= set(read_wheel(Release("transformers", version), Path(__file__), "loads", keywords))
    for version in versions:
        found = played(version, sorted(names))
        print(f"transformers {version}: takes {len(found['taken'])} of {len(names)}", file=sys.stderr, flush=True)
        yield version, found


def main() -> int:
    seen = list(_play())
    gone = removed(seen)
    first = min(gone.values(), key=lambda version: tuple(map(int, version.split("."))))
    since = next(version for version, _ in seen if _minor(version) == first)
    written = {
        "played": [version for version, _ in seen],
        "removed": gone,
        "takes_any": takes_any(seen, since),
    }
    WRITTEN.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
