"""Front ends of other installed packages: what a lint finds through them, and what a broken one costs.

The package is the one of `docs/front-ends.md`, written as an installer does.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.rules.test_rule_packages import findings, zerocfg

_BLOCKS = [
    block.partition("\n")[::2]
    for block in (ROOT / "docs" / "front-ends.md").read_text(encoding="utf-8").split("```")[1::2]
]
PROJECT, KEYS, MODULE = (
    next(text for kind, text in _BLOCKS if kind == wanted) for wanted in ("toml", "yaml", "python")
)
"""The package, and a recipe whose own keys make a DeepSpeed config."""
RECIPE = KEYS.replace("zero_stage: 2\noffload: true\nclip: 1.0\n", "zero: ds.json\n")
"""One that names a DeepSpeed config in the place of these keys."""
LOWERED = "Lowered(handed_on(recipe, options, FIELDS), deepspeed=made_of(recipe))"
CONFIG = {
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": 4,
    "zero_optimization": {"stage": 2},
}
MISTAKE = ("ZC201", "error", "ds.json", "gradient_accumulation_steps")


def install(folder: Path, module: str = MODULE, entry: str = "toy = toy_front_end:FRONT_END") -> Path:
    metadata = folder / "zerocfg_toy-1.0.dist-info"
    metadata.mkdir(parents=True, exist_ok=True)
    (metadata / "entry_points.txt").write_text(f"[zerocfg.frontends]\n{entry}\n")
    (folder / "toy_front_end.py").write_text(module)
    return folder


@pytest.fixture
def site(tmp_path: Path) -> Path:
    return tmp_path / "site"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    folder = tmp_path / "repository"
    (folder / ".git").mkdir(parents=True)
    (folder / "job.yaml").write_text(RECIPE)
    (folder / "run.sh").write_text("toy fit job.yaml\n")
    (folder / "ds.json").write_text(json.dumps(CONFIG, indent=1))
    return folder


def short(found: list[dict[str, Any]]) -> list[tuple[str, str, str, str]]:
    return [(item["code"], item["severity"], item["file"], item["path"]) for item in found]


def test_the_package_of_the_docs_finds_a_mistake(site: Path, repository: Path) -> None:
    assert 'name = "zerocfg-toy"' in PROJECT and 'toy = "toy_front_end:FRONT_END"' in PROJECT
    install(site)
    found = findings(repository, ".", path=site)
    assert short(found) == [MISTAKE]
    assert "8" in found[0]["message"] and "4" in found[0]["message"]
    assert findings(repository, ".") == [], "without the package the accumulation of the recipe is unknown"
    (repository / "ds.json").write_text(json.dumps({**CONFIG, "gradient_accumulation_steps": 8}))
    assert findings(repository, ".", path=site) == []


def test_its_runs_are_shown_by_its_name(site: Path, repository: Path) -> None:
    install(site)
    shown = json.loads(zerocfg(repository, "lint", "--show-runs", "--output-format", "json", path=site).stdout)
    (run,) = shown["runs"]
    assert (run["name"], run["consumer"]) == ("run.sh:1", "toy")


def test_an_option_of_the_line_wins_over_the_recipe(site: Path, repository: Path) -> None:
    install(site)
    (repository / "run.sh").write_text("toy fit job.yaml --accumulate 4\n")
    assert findings(repository, ".", path=site) == []


STARTED = MODULE.replace('words=("toy fit",), ', 'words=("toy fit", "toy-train"), modules=("toy.run",), ').replace(
    '"toy": frozenset({"fit"})', '"toy": frozenset({"fit"}), "toy-train": frozenset()'
)


@pytest.mark.parametrize(
    "line",
    [
        "python -m toy.run job.yaml",
        "python3 toy/run.py job.yaml",
        "torchrun --nproc_per_node 2 -m toy.run job.yaml",
        "srun python -u -m toy.run --config job.yaml",
        "python -m toy.run --config=job.yaml",
        "toy-train job.yaml",
        "toy-train --quiet --config job.yaml",
        "toy fit --quiet yes job.yaml",
    ],
)
def test_what_a_front_end_claims_starts_a_run(site: Path, repository: Path, line: str) -> None:
    install(site, STARTED)
    (repository / "run.sh").write_text(f"{line}\n")
    shown = json.loads(zerocfg(repository, "lint", "--show-runs", "--output-format", "json", path=site).stdout)
    assert [(run["name"], run["consumer"]) for run in shown["runs"]] == [("run.sh:1", "toy")]
    assert short(findings(repository, ".", path=site)) == [MISTAKE]


@pytest.mark.parametrize(
    "line", ["python -m toy.run --help", "python -m toy.runs job.yaml", "toy-train --version", "toy train job.yaml"]
)
def test_what_it_does_not_claim_starts_none(site: Path, repository: Path, line: str) -> None:
    install(site, STARTED)
    (repository / "run.sh").write_text(f"{line}\n")
    shown = json.loads(zerocfg(repository, "lint", "--show-runs", "--output-format", "json", path=site).stdout)
    assert [run["name"] for run in shown["runs"]] == ["job.yaml"]


def test_plain_python_may_start_the_processes_of_a_package(site: Path, repository: Path) -> None:
    """Of what zerocfg's own front ends do with it more is known (ZC741)."""
    install(site, STARTED)
    (repository / "run.sh").write_text("python -m toy.run job.yaml\n")
    sizes = {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8}
    (repository / "ds.json").write_text(json.dumps({**CONFIG, **sizes}))
    assert findings(repository, ".", path=site) == []


RATE = ("    lower,\n", "    lower,\n    texts_are_numbers={},\n")


def with_rate(site: Path, repository: Path, rate: str, said: str | None) -> list[dict[str, Any]]:
    """What is found where the framework calls the learning rate `speed`. ``said``: what becomes of its texts."""
    text = MODULE.replace('    "zero": "deepspeed",\n', '    "zero": "deepspeed",\n    "speed": "learning_rate",\n')
    install(site, text.replace(RATE[0], RATE[1].format(repr(said))))
    (repository / "job.yaml").write_text(f"{RECIPE}speed: {rate}\n")
    (repository / "ds.json").write_text(json.dumps({**CONFIG, "gradient_accumulation_steps": 8}))
    return findings(repository, ".", path=site)


@pytest.mark.parametrize("rate", ["-0.5", "-1"])
def test_a_value_out_of_range_is_told_under_the_key_of_the_recipe(site: Path, repository: Path, rate: str) -> None:
    (found,) = with_rate(site, repository, rate, None)
    assert short([found]) == [("ZC812", "error", "job.yaml", "speed")] and not found.get("fix")
    assert found["message"] == f"`speed: {rate}` is below 0; the training stops at it"
    assert with_rate(site, repository, rate.removeprefix("-"), None) == []


@pytest.mark.parametrize(
    ("rate", "said", "told"),
    [
        ("-2e-5", None, False),
        ("-2e-5", "unquoted", True),
        ("'-2e-5'", "unquoted", False),
        ("'-2e-5'", "always", True),
        ("2e-5", "always", False),
        ("fast", "always", False),
    ],
)
def test_texts_that_spell_numbers(site: Path, repository: Path, rate: str, said: str | None, told: bool) -> None:
    assert short(with_rate(site, repository, rate, said)) == [("ZC812", "error", "job.yaml", "speed")] * told


def test_a_recipe_alone_is_read_with_its_config(site: Path, repository: Path) -> None:
    install(site)
    (repository / "run.sh").unlink()
    assert short(findings(repository, ".", path=site)) == [MISTAKE]


def test_it_is_a_consumer_that_can_be_named(site: Path, repository: Path) -> None:
    install(site)
    assert findings(repository, "ds.json", "--consumer", "toy", path=site) is not None
    refused = zerocfg(repository, "lint", "--consumer", "toy", "ds.json")
    assert refused.returncode == 2 and "'toy' is not one of" in refused.stderr


def test_a_section_of_a_recipe_is_a_deepspeed_config(site: Path, repository: Path) -> None:
    text = MODULE.replace('    "zero": "deepspeed",\n', "")
    text = text.replace(LOWERED, 'Lowered(handed_on(recipe, options, FIELDS), section="zero")')
    install(site, text)
    section = "\n  train_micro_batch_size_per_gpu: auto\n  gradient_accumulation_steps: 4\n"
    section += "  zero_optimization:\n    stage: 2\n    overlap_com: true\n"
    (repository / "job.yaml").write_text(RECIPE.replace(" ds.json\n", section))
    (repository / "ds.json").unlink()
    found = findings(repository, ".", path=site)
    assert [(item["code"], item["file"], item["start"]["line"]) for item in found] == [
        ("ZC201", "job.yaml", 6),
        ("ZC101", "job.yaml", 9),
    ]
    assert not any(item.get("fix") for item in found), "a section is judged, and not edited"


@pytest.fixture
def keys(repository: Path) -> Path:
    """A repository whose recipe makes the DeepSpeed config of its own keys."""
    (repository / "job.yaml").write_text(KEYS)
    (repository / "ds.json").unlink()
    return repository


def test_keys_of_a_recipe_make_a_deepspeed_config(site: Path, keys: Path) -> None:
    install(site)
    assert findings(keys, ".", path=site) == []
    shown = zerocfg(keys, "explain", "--run", "run.sh:1", path=site).stdout
    settings = {
        line.split()[0]: line.split()[1:] for line in shown.splitlines() if "." in line and len(line.split()) > 2
    }
    assert settings["zero_optimization.stage"] == ["2", "job.yaml:4:1"]
    assert settings["zero_optimization.offload_optimizer.device"] == ['"cpu"', "job.yaml:5:1"]


@pytest.mark.parametrize(
    ("old", "new", "code", "line", "column"),
    [
        ("zero_stage: 2", "zero_stage: 0", "ZC503", 5, 1),
        ("zero_stage: 2", "zero_stage: 4", "ZC106", 4, 13),
        ("zero_stage: 2", "zero_stage: two", "ZC106", 4, 13),
    ],
)
def test_findings_stand_at_the_keys_of_the_recipe(
    site: Path, keys: Path, old: str, new: str, code: str, line: int, column: int
) -> None:
    install(site)
    (keys / "job.yaml").write_text(KEYS.replace(old, new))
    (found,) = findings(keys, ".", path=site)
    assert (found["code"], found["severity"], found["file"]) == (code, "error", "job.yaml")
    assert (found["start"]["line"], found["start"]["column"]) == (line, column)
    assert not found.get("fix"), "what a framework makes of keys is judged, and not edited"


def test_what_cannot_be_told_of_such_a_config_is_not_judged(site: Path, keys: Path) -> None:
    text = MODULE.replace("import Claims", "import UNKNOWN, Claims")
    install(site, text.replace('Value(recipe["zero_stage"], "zero_stage")', 'Value(UNKNOWN, "zero_stage")'))
    (keys / "job.yaml").write_text(KEYS.replace("zero_stage: 2", "zero_stage: 0"))
    assert findings(keys, ".", path=site) == []


def test_an_option_gives_a_key_of_such_a_config(site: Path, keys: Path) -> None:
    """At the option where there is no recipe; beside one it is unknown, as a config lies in one file."""
    text = MODULE.replace("made_of(recipe))", "given(options))") + (
        "\n\ndef given(options):\n"
        '    values = {"zero_optimization.stage": 4, "train_micro_batch_size_per_gpu": "auto"} if options else {}\n'
        '    return {name: Value(value, "zero_stage", True) for name, value in values.items()}\n'
    )
    install(site, text)
    (keys / "run.sh").write_text("toy fit job.yaml --zero_stage 4\n")
    assert findings(keys, ".", path=site) == []
    (keys / "run.sh").write_text("toy fit --zero_stage 4\n")
    (keys / "job.yaml").unlink()
    (found,) = findings(keys, ".", path=site)
    assert (found["code"], found["file"], found["start"]["column"]) == ("ZC106", "run.sh", 9)


@pytest.mark.parametrize(("size", "fits"), [(64, True), (63, False)])
def test_the_processes_of_a_recipe_count(site: Path, repository: Path, size: int, fits: bool) -> None:
    install(site, MODULE.replace(LOWERED, f'{LOWERED[:-1]}, processes=Value(recipe["gpus"], "gpus"))'))
    (repository / "job.yaml").write_text(RECIPE + "gpus: 4\n")
    sizes = {"train_batch_size": size, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 8}
    (repository / "ds.json").write_text(json.dumps({**CONFIG, **sizes}))
    found = findings(repository, ".", path=site)
    assert [item["severity"] for item in found] == ["error"] * (not fits), found


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'return "toy_job" in keys',
            'raise ValueError("no keys\\nat all")',
            "the front end toy of the package zerocfg-toy failed: ValueError: no keys at all",
        ),
        (
            f"return {LOWERED}",
            "return recipe",
            "the front end toy of the package zerocfg-toy failed: it lowers to dict, not to Lowered",
        ),
        (
            '"batch": "per_device_train_batch_size"',
            '"batch": "batch_size"',
            "the front end toy of the package zerocfg-toy failed: KeyError: 'batch_size'",
        ),
        (
            LOWERED,
            'Lowered(section="zero", deepspeed={"zero_optimization.stage": Value(2, "zero")})',
            "the front end toy of the package zerocfg-toy failed: a DeepSpeed config is either a section or "
            "made of keys",
        ),
        (
            LOWERED,
            'Lowered(deepspeed={"bf16": Value({}, "zero"), "bf16.enabled": Value(True, "zero")})',
            "the front end toy of the package zerocfg-toy failed: `bf16.enabled` is a key of a DeepSpeed "
            "config inside of a value",
        ),
        (
            LOWERED,
            'Lowered(deepspeed={"gradient_clipping": Value(1, "clipped")})',
            "the front end toy of the package zerocfg-toy failed: `gradient_clipping` is no Value of a key "
            "that is written",
        ),
        (
            '    "toy",\n',
            '    "axolotl",\n',
            "the front end of zerocfg-toy is not loaded: `toy_front_end:FRONT_END`: it is called `axolotl`, its entry "
            "point `toy`",
        ),
        (
            "    lower,\n",
            "",
            "the front end of zerocfg-toy is not loaded: `toy_front_end:FRONT_END`: it lowers nothing",
        ),
        (
            "FRONT_END = ",
            "FRONT = ",
            "the front end of zerocfg-toy is not loaded: `toy_front_end:FRONT_END`: AttributeError: module "
            "'toy_front_end' has no attribute 'FRONT_END'",
        ),
        (
            "FRONT_END = FrontEnd(",
            "FRONT_END = 3\nOTHER = FrontEnd(",
            "the front end of zerocfg-toy is not loaded: `toy_front_end:FRONT_END`: int is no front end",
        ),
    ],
)
def test_a_broken_front_end_costs_one_finding(site: Path, repository: Path, old: str, new: str, message: str) -> None:
    """What zerocfg finds by itself is all there."""
    assert old in MODULE
    install(site, MODULE.replace(old, new))
    (repository / "other.json").write_text(json.dumps({**CONFIG, "zero_optimisation": {}}))
    found = findings(repository, ".", path=site)
    assert sorted(item["code"] for item in found) == ["ZC015", "ZC102"]
    (said,) = (item for item in found if item["code"] == "ZC015")
    assert (said["message"], said["severity"]) == (message, "warning")


def test_a_front_end_takes_no_name_of_another(site: Path, repository: Path) -> None:
    install(site, MODULE.replace('    "toy",\n', '    "axolotl",\n'), "axolotl = toy_front_end:FRONT_END")
    (found,) = findings(repository, ".", path=site)
    assert found["message"].endswith("`axolotl` is a reader of zerocfg")


def test_the_linted_repository_brings_none(repository: Path) -> None:
    install(repository, MODULE + "raise SystemExit(9)\n")
    assert findings(repository, ".", path=repository) == []


def test_no_outcome_is_kept_with_a_front_end(site: Path, repository: Path) -> None:
    install(site, MODULE.replace('"toy_job" in keys', '"another_key" in keys').replace('"toy fit"', '"another job"'))
    assert zerocfg(repository, "lint", ".", path=site).returncode == 0
    install(site)
    assert "gradient_accumulation_steps" in zerocfg(repository, "lint", ".", path=site).stdout
