"""``python -m tests.parity.trl_releases``: recipes judged at older releases of TRL, held against those releases.

As ``recipe_releases`` does for transformers: each release, with the oldest transformers that it asks for, parses the
recipes of the corpus as far as their keys were ever arguments, and one recipe for each argument that any release of
TRL has had in a config. Exit code 1 when zerocfg, with both releases pinned, says something else.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.parity.recipe_releases import OF_THE_MACHINE, Recipe, texts_of_people
from tests.parity.verdicts import claims, lint
from tools.facts.environment import CACHE, ROOT, install
from tools.facts.environment import releases as known
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import admits, release
from zerocfg.run.effective import settled
from zerocfg.run.model import Run, Script, SourceFile
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

RELEASES = ("0.13.0", "0.16.1", "0.19.1", "0.22.2", "0.29.1", "1.5.1")
CONFIGS = ("SFTConfig", "DPOConfig", "GRPOConfig", "RewardConfig", "KTOConfig")
GROUPS = frozenset(
    "per_device_train_batch_size per_device_eval_batch_size gradient_accumulation_steps num_generations "
    "num_generations_eval generation_batch_size steps_per_generation max_steps".split()
)
"""Arguments of batches, which rules of their own compare."""
TOLD_OF_DROPPED = frozenset(("ZC801", "ZC840", "ZC841", "ZC865"))
LATER = ("ZC844", "ZC846", "ZC848", "ZC849", "ZC860")
"""Rules of what a trainer stops at when it is made, which no parser tells."""
LIMITS = {
    "false in the place of a word, which is told where the text says no (ZC006)": re.compile("False is not a valid"),
    "values of TRL's own arguments, which are judged as today's release has them": re.compile(
        r"SystemExit.*: (argument --|invalid)"
    ),
    "arguments of vLLM's server, whose dataclass has the name of the scripts' own in TRL 0.29": re.compile(
        r"Unknown arguments from config file: \['--(model|dtype|host|port|revision|trust_remote_code|log_level)'"
    ),
    "a tracker that nobody knows, which old releases look up when the Trainer is made": re.compile("`report_to` knows"),
}
"""What zerocfg does not tell as the libraries do: the limit in words, and what the disagreement looks like."""


def cases() -> list[tuple[str, Recipe]]:
    """Configs, and recipes for them."""
    found = [*_of_people(), *_one_by_one()]
    return [tuple(json.loads(text)) for text in dict.fromkeys(map(json.dumps, found))]


def _base(recipe: Recipe) -> Recipe:
    """A recipe with batches that GRPO can make whole groups of, whatever a release takes for their size."""
    kept = {name: held for name, held in recipe.items() if name not in GROUPS}
    return {"output_dir": "out", "use_cpu": True, "dataset_name": "x", **kept, "per_device_train_batch_size": 16}


def _of_people() -> Iterator[tuple[str, Recipe]]:
    fields = histories("trl")
    for text in texts_of_people():
        try:
            tree = yaml.safe_load(text)
            json.dumps(tree)
        except (ValueError, TypeError, yaml.YAMLError):
            continue
        for config in CONFIGS if isinstance(tree, dict) else ():
            of = [f"{config}.", "ScriptArguments.", "ModelConfig."]
            own = [name for name in tree if any(f"{one}{name}" in fields.raw for one in of)]
            base = [name for name in tree if name in histories("transformers").raw and name not in OF_THE_MACHINE]
            if any(f"{config}.{name}" in fields.raw for name in set(own) - set(base)):
                yield config, _base({name: tree[name] for name in tree if name in {*own, *base}})


def _one_by_one() -> Iterator[tuple[str, Recipe]]:
    fields = histories("trl")
    for key, history in fields.raw.items():
        config, _, name = key.rpartition(".")
        default = next((state["default"] for _, state in reversed(history) if state and "default" in state), None)
        plain = default is not None and not isinstance(default, (dict, list))
        if config in CONFIGS and plain and name not in OF_THE_MACHINE:
            yield config, _base({name: default})


def real(version: str, given: list[tuple[str, Recipe]]) -> tuple[str, list[str | None]]:
    """The transformers that a release is installed with, and how it refuses each recipe; None where it takes it."""
    release = next(one for one in known() if (one.library, one.version) == ("trl", version))
    folder = CACHE / "installed" / release.name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as new:
            install(release, Path(new, "whole"))
            Path(new, "whole").rename(folder)
    done = subprocess.run(
        [sys.executable, "-m", "tools.facts.parse_trl"],
        input="".join(json.dumps(one) + "\n" for one in given),
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder)},
    )
    beside = re.search(r"^WITH (\S+)", done.stdout, re.MULTILINE)
    said = [json.loads(line[8:]) for line in done.stdout.splitlines() if line.startswith("VERDICT ")]
    if beside is None or len(said) != len(given):
        raise RuntimeError(f"trl {version} judged {len(said)} of {len(given)}: {done.stderr[-800:]}")
    return beside[1], said


def pinned(config: str, recipe: Recipe, versions: dict[str, str]) -> Run:
    """A run of a script that parses the recipe by TrlParser, of a project with these releases."""
    text = SourceText("recipe.yaml", yaml.safe_dump(recipe, sort_keys=False))
    file = SourceFile("recipe.yaml", "recipe", text, load_as(text, "yaml"))
    parsed = frozenset((f"trl.{config}", "trl.ScriptArguments", "trl.ModelConfig"))
    script = Script(SourceFile("train.py", "script", SourceText("train.py", "")), "trl", parsed=parsed)
    run = Run(
        "case",
        consumer="trl",
        recipe=file,
        recipe_reader="trl",
        versions=versions,
        script=script,
        arguments_whole=True,
    )
    return settled(run)


def differs(config: str, recipe: Recipe, versions: dict[str, str], error: str | None) -> str | None:
    """In which way zerocfg, with the releases pinned, says something else than they do."""
    diagnostics = lint(pinned(config, recipe, versions))
    sure, maybe = claims(diagnostics, "read", "parse", "arguments")
    sure += [one for one in diagnostics if one.code == "ZC865" and one.severity.value == "error"]
    if error is not None:
        return None if sure or maybe else f"refused, and no error says so: {error[:300]!r}"
    drops = admits(versions["trl"], at_least="0.13") and not admits(versions["trl"], at_least="0.19")
    wrong = [one for one in sure if one.code not in LATER and not (drops and one.code in TOLD_OF_DROPPED)]
    return f"accepted, but {wrong[0].code}: {wrong[0].message}" if wrong else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", default=RELEASES)
    parser.add_argument("--show", type=int, default=5, help="disagreements to show for each release")
    options = parser.parse_args()
    every, failed = cases(), 0
    for version in options.releases:
        given = [one for one in every if _exists(one[0], version)]
        beside, verdicts = real(version, given)
        versions = {"trl": f"=={version}", "transformers": f"=={beside}"}
        wrong: list[tuple[str, Any]] = [
            (problem, case)
            for case, error in zip(given, verdicts, strict=True)
            if (problem := differs(*case, versions, error)) is not None
            and not any(limit.search(problem) for limit in LIMITS.values())
        ]
        refused = sum(error is not None for error in verdicts)
        print(f"trl {version}: {len(given)} recipes, {refused} refused, {len(wrong)} disagreements", flush=True)
        for problem, case in wrong[: options.show]:
            print(f"  {problem}\n    {json.dumps(case)[:600]}")
        failed += len(wrong)
    return 1 if failed else 0


def _exists(config: str, version: str) -> bool:
    return histories("trl").state(config, release(version)) is not None


if __name__ == "__main__":
    sys.exit(main())
