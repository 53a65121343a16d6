"""What the real parsers of today say to the recipes of the corpus, before and after a migration.

Each recipe is parsed by TrlParser with the classes of TRL's own script for its method, which its folder names. Names
that belong to the repository's own script are refused by those, so what is compared is which names are refused.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

_METHODS = (
    ("grpo", "GRPOConfig"),
    ("orpo", "ORPOConfig"),
    ("kto", "KTOConfig"),
    ("dpo", "DPOConfig"),
    ("sft", "SFTConfig"),
)
FOLDERS = ("huggingface__alignment-handbook", "huggingface__open-r1", "om-ai-lab__VLM-R1", "tanghui315__fast-open-r1")
"""Repositories whose recipes are for TRL's trainers, read by TrlParser or its forerunner."""


def recipes(corpus: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((corpus / folder).rglob("*.yaml")):
            if "output_dir" in path.read_text(encoding="utf-8"):
                yield path


def config_of(path: Path) -> Any:
    """The class that a recipe is for: its folder or its name says the method; without one it is for SFT."""
    import trl
    from trl.experimental.orpo import ORPOConfig

    words = "/".join(path.parts[-4:]).lower()
    told = [(match.start(), name) for word, name in _METHODS if (match := re.search(word, words))]
    name = max(told)[1] if told else "SFTConfig"
    return ORPOConfig if name == "ORPOConfig" else getattr(trl, name)


def refused(path: Path, config: Any) -> frozenset[str]:
    """The names that the real parser refuses; the words of its error where it stops for another reason."""
    import trl

    parser = trl.TrlParser((trl.ScriptArguments, config, trl.ModelConfig))
    words = ["--config", str(path), "--use_cpu", "true", "--bf16", "false"]
    try:
        *_, unknown = parser.parse_args_and_config(words, return_remaining_strings=True)
    except ValueError as error:  # of a class that looks at its values: it was given the names that it knows
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
        known = {field.name for of in parser.dataclass_types for field in dataclasses.fields(of) if field.init}
        return frozenset({str(error), *data} - known)
    return frozenset(word.removeprefix("--") for word in unknown if word.startswith("--"))
