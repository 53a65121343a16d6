"""What is linted to measure time: folders of made configs, and the command of each tool for them.

Every pair differs from the others, so that nothing is read once and counted 500 times. The tools do different jobs over
the same files: yamllint looks at style, check-jsonschema holds each file against one schema, zerocfg resolves the pair
and checks what it means. They are what such a repository runs anyway, and so the scale.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path

SCRIPT = """from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

model = AutoModelForCausalLM.from_pretrained("gpt2")
Trainer(model, TrainingArguments("out", deepspeed="ds_0.json")).train()
"""
WORKFLOW = """on: push
permissions: {}
jobs:
  lint:
    runs-on: ubuntu-24.04
    steps:
      - run: zerocfg lint
"""
UNRELATED = 50_000


@dataclass(frozen=True)
class Case:
    """``commands`` by tool: what it runs, one process after the other; the first word is a program of the peers'
    environment. Each time ``zerocfg`` finds no kept outcome, ``zerocfg again`` that of the run before.
    ``repetitions``: of the whole row. ``goals``: what zerocfg may take at most, as a multiple of each of these tools;
    "again": what it may take again, as a multiple of the first time."""

    title: str
    folder: Path
    commands: dict[str, list[list[str]]]
    repetitions: int
    goals: dict[str, float] = field(default_factory=dict)


def cases(below: Path, schemas: Path, corpus: Path | None) -> list[Case]:
    """The rows of the table, with their files written below a folder. ``schemas``: those that zerocfg exports.
    ``corpus``: a folder of real configs."""
    many = {"yamllint": 1.0, "check-jsonschema": 1.0, "again": 0.15}
    found = [
        _start(below / "start"),
        _pairs(below / "pair", 1, schemas, 15, {"yamllint": 1.0, "check-jsonschema": 0.3}),
        _pairs(below / "50", 50, schemas, 7, {}),
        _pairs(below / "500", 500, schemas, 5, many),
        _pairs(below / "5000", 5000, schemas, 1, {"check-jsonschema": 1.0}),
        _unrelated(below / "unrelated"),
        _script(below / "script"),
    ]
    if corpus is not None:
        files = [str(one) for kind in ("*.yaml", "*.yml", "*.json") for one in sorted(corpus.rglob(kind))]
        lint = [["python", "-m", "zerocfg", "lint", "--exit-zero", "."]]
        against = ["python", "-m", "yamllint", "-d", "relaxed", *files]
        commands = {"zerocfg": lint, "zerocfg again": lint, "yamllint": [against]}
        found.append(Case(f"a folder of {len(files)} real configs, with their scripts", corpus, commands, 1))
    return found


def write_pair(folder: Path, number: int) -> None:
    """An accelerate YAML and the DeepSpeed JSON that it points to."""
    zero: dict[str, object] = {"stage": number % 3 + 1, "overlap_comm": True, "reduce_bucket_size": 10**8 + number}
    if number % 3 == 2:
        zero["stage3_gather_16bit_weights_on_model_save"] = True
    deepspeed = {
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "bf16": {"enabled": "auto"},
        "zero_optimization": zero,
    }
    (folder / f"ds_{number}.json").write_text(json.dumps(deepspeed, indent=2) + "\n")
    (folder / f"accelerate_{number}.yaml").write_text(
        "---\ncompute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_machines: 1\nnum_processes: 8\n"
        f"deepspeed_config:\n  deepspeed_config_file: ds_{number}.json\n"
        f"  zero3_init_flag: {str(number % 3 == 2).lower()}\n"
    )


def _start(folder: Path) -> Case:
    folder.mkdir()
    commands = {
        "python": [["python", "-c", "pass"]],
        "zerocfg": [["python", "-m", "zerocfg", "--version"]],
        "yamllint": [["python", "-m", "yamllint", "--version"]],
        "check-jsonschema": [["python", "-m", "check_jsonschema", "--version"]],
    }
    return Case("start: `--version`", folder, commands, 15, {"python": 1.8})


def _pairs(folder: Path, count: int, schemas: Path, repetitions: int, goals: dict[str, float]) -> Case:
    folder.mkdir()
    for number in range(count):
        write_pair(folder, number)
    yaml, json_ = (sorted(one.name for one in folder.glob(kind)) for kind in ("*.yaml", "*.json"))
    against = ["python", "-m", "check_jsonschema", "--schemafile"]
    commands = {
        "zerocfg": [["python", "-m", "zerocfg", "lint", "."]],
        "zerocfg again": [["python", "-m", "zerocfg", "lint", "."]],
        "yamllint": [["python", "-m", "yamllint", "-d", "relaxed", *yaml, *json_]],
        "check-jsonschema": [
            [*against, str(schemas / "accelerate.json"), *yaml],
            [*against, str(schemas / "deepspeed.json"), *json_],
        ],
    }
    title = "a pair (one YAML, its JSON)" if count == 1 else f"{count:,} pairs in {2 * count:,} files"
    return Case(title, folder, commands, repetitions, goals)


def _script(folder: Path) -> Case:
    """A script with its DeepSpeed config, and a workflow: each of the others reads the one file that it is for."""
    folder.mkdir()
    write_pair(folder, 0)
    (folder / "train.py").write_text(SCRIPT)
    (folder / "ci.yml").write_text(WORKFLOW)
    lint = [["python", "-m", "zerocfg", "lint", "."]]
    commands = {
        "zerocfg": lint,
        "zerocfg again": lint,
        "ruff": [["ruff", "check", "--no-cache", "train.py"]],
        "zizmor": [["zizmor", "--offline", "--no-progress", "ci.yml"]],
        "torch-preflight": [["torch-preflight", "check", "train.py"]],
    }
    return Case("a script, its configs and a workflow", folder, commands, 7)


def _unrelated(folder: Path) -> Case:
    """A pair in a repository with many files that are nobody's config."""
    folder.mkdir()
    for number in range(UNRELATED):
        below = folder / f"{number // 500}"
        below.mkdir(exist_ok=True)
        (below / f"data_{number}.json").write_text('{"text": "a line of a data set", "label": 1}\n')
    write_pair(folder, 0)
    lint = [["python", "-m", "zerocfg", "lint", "."]]
    commands = {"zerocfg": lint, "zerocfg again": lint}
    return Case(f"a pair among {UNRELATED:,} other JSON files", folder, commands, 1)
