"""open-r1's own recipes, written for TRL 0.18, from a checkout to certified runs on today's releases:

    python -m benchmarks.open_r1.run FOLDER -o OUT [--only WORD]

FOLDER is a checkout of https://github.com/huggingface/open-r1; it is copied into OUT/open-r1 and stays as it is. Every
change is made by zerocfg: ``lint``, ``migrate --write --pins``, ``lint --fix --unsafe-fixes``, then for each
recipe of SFT and GRPO ``init``, ``build`` and ``smoke`` on two ranks of a processor, and ``gate`` of the whole folder.
OUT/results.md has a row for each recipe as it ends, OUT/*.txt what the commands printed. Exit code 1 where one does not
get to its end.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from importlib import metadata
from pathlib import Path

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")
GATE = '[tool.zerocfg.gate]\nhardware = "any"\n'
"""A processor's certificate counts for runs that are planned for cards."""
QWEN = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "max_position_embeddings": 32768}
SIZES: dict[str, dict[str, int | bool]] = {
    "1.5B": {"hidden_size": 1536, "intermediate_size": 8960, "num_hidden_layers": 28, "num_attention_heads": 12,
             "num_key_value_heads": 2, "vocab_size": 151936, "tie_word_embeddings": True},
    "7B": {"hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
           "num_key_value_heads": 4, "vocab_size": 152064, "tie_word_embeddings": False},
    "32B": {"hidden_size": 5120, "intermediate_size": 27648, "num_hidden_layers": 64, "num_attention_heads": 40,
            "num_key_value_heads": 8, "vocab_size": 152064, "tie_word_embeddings": False},
}  # fmt: skip
"""Sizes of the models that the recipes name; their config.json lie on the hub, which nothing here asks."""
# What the README of open-r1 starts these with: seven of eight cards train, vLLM has the last one.
SEVEN = ("config_demo_code", "config_demo_code_ioi")
HEAD = "| recipe | started with | build | smoke | seconds |\n|---|---|---|---|---|"


def zerocfg(folder: Path, log: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """A command of zerocfg in ``folder``; what it prints is added to ``log``."""
    done = subprocess.run([sys.executable, "-m", "zerocfg", *words], cwd=folder, capture_output=True, text=True)
    with log.open("a") as file:
        file.write(f"$ zerocfg {' '.join(words)}\n{done.stdout}{done.stderr}\n")
    return done


def last(text: str) -> str:
    return text.strip().rpartition("\n")[2]


def recipes(folder: Path) -> list[Path]:
    return sorted(path for kind in ("sft", "grpo") for path in folder.glob(f"recipes/*/{kind}/*.yaml"))


def name_of(recipe: Path) -> str:
    """``qwen2.5-1.5b-instruct-config-demo``."""
    return f"{recipe.parent.parent.name}-{recipe.stem}".lower().replace("_", "-")


def prepare(folder: Path, out: Path) -> None:
    """Today's releases, as far as commands bring the folder there."""
    (folder / "pyproject.toml").write_text(GATE)
    for size, values in SIZES.items():
        (folder / "models" / size).mkdir(parents=True)
        (folder / "models" / size / "config.json").write_text(json.dumps(QWEN | values, indent=2) + "\n")
    log = out / "folder.txt"
    today = ",".join(f"{name}=={metadata.version(name).partition('+')[0]}" for name in LIBRARIES)
    for words in (
        ("lint", "--output-format", "concise"),
        ("migrate", "--to", today, "--write", "--pins"),
        ("lint", "--fix", "--unsafe-fixes", "--output-format", "concise"),
    ):
        print(f"zerocfg {' '.join(words)}: {last(zerocfg(folder, log, *words).stdout)}", flush=True)


def walk(folder: Path, out: Path, recipe: Path) -> tuple[str, bool]:
    """The row of a recipe, and whether its smoke-run passed."""
    began, name, log = time.monotonic(), name_of(recipe), out / f"{name_of(recipe)}.txt"
    size = next(one for one in SIZES if f"-{one}-" in f"{recipe.parent.parent.name}-")
    seven = recipe.stem in SEVEN
    stage, cards = ("zero2", "7xH100-80GB") if seven else ("zero3", "8xH100-80GB")
    words = ["--script", f"src/open_r1/{recipe.parent.name}.py", "--recipe", recipe.relative_to(folder).as_posix()]
    words += ["--accelerate", f"recipes/accelerate_configs/{stage}.yaml", "--model", f"models/{size}/config.json"]
    zerocfg(folder, log, "init", ".", "--name", name, *words, "--hardware", cards, "-o", f"{name}.yaml")
    built = zerocfg(folder, log, "build", f"{name}.yaml", "-o", "out")
    smoke = "-"
    if built.returncode == 0:
        done = zerocfg(folder, log, "smoke", f"out/{name}", "--ranks", "2", "--device", "cpu", "--time-limit", "900")
        smoke = last(done.stdout) or last(done.stderr)
    row = f"| {recipe.relative_to(folder / 'recipes')} | {stage}.yaml, {cards} | "
    row += f"{'ok' if built.returncode == 0 else last(built.stderr)} | {smoke.rpartition(',')[0] or smoke} | "
    return row + f"{time.monotonic() - began:.0f} |", smoke.startswith("passed")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    folder = options.out / "open-r1"
    options.out.mkdir(parents=True)
    shutil.copytree(options.folder, folder, ignore=shutil.ignore_patterns(".git"))
    prepare(folder, options.out)
    rows, ended = [HEAD], []
    for recipe in recipes(folder):
        if options.only in str(recipe):
            row, passed = walk(folder, options.out, recipe)
            rows.append(row)
            ended.append(passed)
            print(row, flush=True)
            (options.out / "results.md").write_text("\n".join(rows) + "\n")
    gate = zerocfg(folder, options.out / "folder.txt", "gate")
    print(f"zerocfg gate: {gate.stdout.strip().partition(chr(10))[0]}")
    return int(gate.returncode != 0 or not all(ended))


if __name__ == "__main__":
    sys.exit(main())
