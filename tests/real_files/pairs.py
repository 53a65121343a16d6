"""The launches that public repositories really make: which config, which recipe, which arguments.

PAIRS.tsv names them; here each becomes a folder of its own with the files byte for byte under their own names and a
``train.sh`` with the launch line.
"""

from __future__ import annotations

import csv
import json
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from zerocfg.run.stages.options import OPTIONS

LINE = "train.sh"
_NAMED = re.compile(r"^\s*(?:deepspeed_config_file|deepspeed):\s*['\"]?([\w./-]+\.json)", re.MULTILINE)


@dataclass(frozen=True)
class Pair:
    """One launch. ``files``: text by name relative to the repository, with the launch line as ``train.sh``."""

    name: str
    files: dict[str, str]
    consumer: str | None

    def playable(self) -> dict[str, str]:
        """The files without what this machine cannot know: options whose value is a shell variable, and options that
        today's transformers no longer has, at which everything would stop before anything else is seen."""
        if LINE not in self.files:
            return self.files
        words = shlex.split(self.files[LINE])
        kept: list[str] = []
        for word in words:
            if kept and kept[-1].startswith("--") and ("$" in word or kept[-1] in ("--warmup_ratio",)):
                kept.pop()
            else:
                kept.append(word)
        return {**self.files, LINE: shlex.join(kept) + "\n"}


def pairs(corpus: Path) -> Iterator[Pair]:
    """Every different launch of PAIRS.tsv; launches of one repository that differ in nothing are told once."""
    seen: set[str] = set()
    with (corpus / "PAIRS.tsv").open(encoding="utf-8", newline="") as table:
        for row in csv.DictReader(table, delimiter="\t"):
            folder = corpus / row["repo"].replace("/", "__")
            names = [name for name in (row["config"], row["recipe"]) if name]
            if not all((folder / name).is_file() for name in names):
                continue
            files = {name: (folder / name).read_bytes().decode("utf-8", "surrogateescape") for name in names}
            files.update(_partners(folder, files))
            written = {name: text.strip("\"'") for name, text in json.loads(row["cli_args"]).items()}
            # The table holds the first word of a value: no more can be known of one that a command computes.
            arguments = {name: text for name, text in written.items() if not re.search(r"[({\[]", text) or "${" in text}
            line = _line(row, arguments)
            if line is not None:
                files[LINE] = line + "\n"
            key = json.dumps([row["repo"], files], sort_keys=True)
            if key not in seen:
                seen.add(key)
                where = row["launcher"] if row["launcher"][:1] != "(" else row["recipe"] or row["config"]
                yield Pair(f"{row['repo']}: {where}", files, _consumer(row["relation"], row["recipe"], arguments))


def _partners(folder: Path, files: dict[str, str]) -> dict[str, str]:
    """The DeepSpeed configs that an accelerate config or a recipe names."""
    found = {}
    for text in files.values():
        for name in re.findall(
            r"^\s*(?:deepspeed_config_file|deepspeed):\s*['\"]?([\w./-]+\.json)", text, re.MULTILINE
        ):
            path = folder / name
            if path.is_file():
                found[name] = path.read_bytes().decode("utf-8", "surrogateescape")
    return found


def _line(row: dict[str, str], arguments: dict[str, str]) -> str | None:
    """The launch line, or None where a file names the other by itself."""
    relation, config, recipe = row["relation"], row["config"], row["recipe"]
    launcher = {name: text for name, text in arguments.items() if relation == "accelerate" and name == "num_processes"}
    script = [word for name, text in arguments.items() if name not in launcher for word in (f"--{name}", text)]
    if relation == "accelerate":
        options = [word for name, text in launcher.items() for word in (f"--{name}", text)]
        assert all(name in OPTIONS for name in launcher)
        words = ["accelerate", "launch", "--config_file", config, *options, "train.py"]
        return _join([*words, *(["--config", recipe] if recipe else []), *script])
    if relation == "deepspeed" and not recipe:
        # The engine's own repository has loops of its own, the others the Trainer.
        own = row["repo"].endswith("/DeepSpeed")
        how = ["--deepspeed", "--deepspeed_config", config] if own else ["--deepspeed", config]
        return _join(["deepspeed", "--num_gpus", "$GPUS", "train.py", *how, *script])
    return None


def _join(words: list[str]) -> str:
    """Like shlex.join, but shell variables stay variables."""
    return " ".join(word if re.fullmatch(r"[\w./$}{=-]+", word) else shlex.quote(word) for word in words)


def _consumer(relation: str, recipe: str, arguments: dict[str, str]) -> str | None:
    """Who reads it, where that is certain; recipes may be those of programs with a parser of their own."""
    return "transformers" if "per_device_train_batch_size" in arguments and not recipe else None
