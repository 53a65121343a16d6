"""The public recipes of the corpus, migrated to today's releases and read by the real parsers."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.real_files.migrated import config_of, recipes, refused
from zerocfg.migrate.migration import Migration, migrate
from zerocfg.migrate.outcome import changed_settings
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs

TODAY = {"transformers": "5.23.0", "trl": "1.16.0"}
NEW_NAMES = {
    "warmup_ratio": "warmup_steps",
    "torch_dtype": "dtype",
    "max_seq_length": "max_length",
    "use_liger": "use_liger_kernel",
}
"""As the release notes of transformers 5 and TRL say it."""
NOT_NEEDED = {"overwrite_output_dir": (True, False), "torch_dtype": (None,)}
"""Names that may go, with the values that ask for nothing that the new releases do not do."""
BY_A_PERSON = frozenset(("max_prompt_length", "vllm_device"))
"""Nothing in TRL 1.16 does what they did."""


def migrated(path: Path, text: str) -> tuple[Migration, str]:
    """The migration of one recipe, alone in its folder, and its text afterwards."""
    runs, _ = find_runs([path], Files(), root=path.parent)
    found = migrate(runs, TODAY, {})
    return found, found.texts.get(str(path.resolve()), text)


def expected(data: dict[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in data.items() if value not in NOT_NEEDED.get(name, ())}
    return {NEW_NAMES.get(name, name): value for name, value in kept.items()}


@pytest.mark.libs
def test_recipes_are_read_afterwards(corpus: Path, tmp_path: Path, count: Callable[[str, int], None]) -> None:
    counted: Counter[str] = Counter()
    for at, path in enumerate(recipes(corpus)):
        config = config_of(path)
        copy = tmp_path / str(at) / path.name
        copy.parent.mkdir()
        shutil.copyfile(path, copy)
        text = path.read_bytes().decode()
        found, after = migrated(copy, text)
        before_names = refused(copy, config)
        runs, _ = find_runs([copy], Files(), root=copy.parent)
        copy.write_bytes(after.encode())
        after_names = refused(copy, config)
        left = {one.span.path for one in found.left}

        assert left == BY_A_PERSON & yaml.safe_load(text).keys(), path
        assert after_names == before_names - NEW_NAMES.keys() - NOT_NEEDED.keys(), path
        assert yaml.safe_load(after) == expected(yaml.safe_load(text)), path
        untouched = [line for line in text.splitlines() if line.split(":")[0] not in {*NEW_NAMES, *NOT_NEEDED}]
        assert [line for line in after.splitlines() if line in untouched] == untouched, path
        again, _ = find_runs([copy], Files(), root=copy.parent)
        assert not changed_settings(runs, again, found.touched), path
        assert not migrate(again, TODAY, {}).texts, path
        counted["recipes"] += 1
        counted["refused before"] += bool(before_names & {*NEW_NAMES, *NOT_NEEDED, *BY_A_PERSON})
        counted["a name is left to a person"] += bool(left)
    for what, number in counted.items():
        count(what, number)
    assert counted["recipes"] >= 40 and counted["refused before"] == counted["recipes"], counted


def test_recipes_of_other_programs_stay_as_they_are(corpus: Path, count: Callable[[str, int], None]) -> None:
    """LLaMA-Factory and ms-swift read their own files, and bound the releases themselves."""
    seen = 0
    for name in ("hiyouga__LLaMA-Factory", "NovaSky-AI__SkyThought", "open-thoughts__open-thoughts"):
        runs, _ = find_runs([corpus / name], Files(), root=corpus / name)
        recipes_of_others = {
            run.framework_recipe.path for run in runs if run.framework_recipe is not None and run.framework_recipe.path
        }
        found = migrate(runs, {**TODAY, "deepspeed": "0.19.8", "accelerate": "1.15.0"}, {})
        assert not {str(path.resolve()) for path in recipes_of_others} & found.texts.keys()
        seen += len(recipes_of_others)
    count("recipes of other programs", seen)
    assert seen >= 80
