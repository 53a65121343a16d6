"""Names of expanded runs, what frameworks hand on, and what is listed as not checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.run.test_effective import file
from zerocfg.frontends.registry import has_defaults, programs, recognise, ships_config, started_by_line
from zerocfg.run.discover import Files
from zerocfg.run.expand import Expanded, expand
from zerocfg.run.link import find_runs, run_of_file
from zerocfg.run.linking.missing_files import created_before_launch, launches_other_checkout
from zerocfg.run.lowered import with_front_end
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting
from zerocfg.run.model_source import open_model
from zerocfg.run.reader import reader_evidence
from zerocfg.run.resolve_settings import resolve_settings
from zerocfg.run.templates import placeholder
from zerocfg.run.unchecked import unchecked_files
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText, Where

# --- names of runs ----------------------------------------------------------------------------------------------------


def spec(folder: Path, text: str) -> Expanded:
    document = load_as(SourceText("zerocfg.yaml", f"version: 1\n{text}"), "yaml")
    return expand(document, folder, lambda path: None)


LABELS: dict[str, list[str]] = {
    "{model: [small/config.json, large/config.json]}": ["small", "large"],
    "{model: [org/name, other]}": ["name", "other"],
    "{recipe: [a/r.yaml, b/s.json, t.txt, u.py]}": ["r", "s", "t.txt", "u"],
    "{recipe: [a/r.yaml, b/r.yaml]}": ["a-r", "b-r"],
    "{model: [a/x/config.json, b/x/config.json]}": ["a-x", "b-x"],
    "{n: [1, 2.5, true, null, -3]}": ["1", "2.5", "true", "none", "3"],
    "{n: {one: a.json, 'two words!': b.json}}": ["one", "two-words"],
    "{hardware: [8xA100-80GB]}": ["8xA100-80GB"],
    "{model: [config.json]}": ["config"],
}


@pytest.mark.parametrize("matrix", LABELS)
def test_labels_of_a_matrix(matrix: str, tmp_path: Path) -> None:
    found = spec(tmp_path, f"runs:\n  r:\n    matrix: {matrix}\n")
    assert [run.name.removeprefix("r-") for run in found.runs] == LABELS[matrix]
    assert {run.written for run in found.runs} == {"r"}


WRONG: dict[str, str] = {
    "runs: {a: {extends: nobody}}\nbases: {some: {}}\n": "there is no base `nobody`",
    "runs: {a: {extends: a}}\n": "there is no base `a`",
    "runs: {a: {extends: [x, 1]}}\n": "`runs.a.extends` is a list, not the name of a base or a list of such names",
    "runs: {a: {extends: []}}\n": "`runs.a.extends` is a list without entries, not the name of a base",
    "runs: {a: {extends: }}\n": "`runs.a.extends` is empty, not the name of a base",
    "runs: {a: {extends: x}}\nbases: {x: {extends: y}, y: {extends: x}}\n": "`extends` runs in a circle: x -> y -> x",
    "runs: {a: {extends: x}}\nbases: {x: 3}\n": "`bases.x` is no mapping of a run's keys",
    "runs: {a: {extends: 'gone.yaml#x'}}\n": "there is no file 'gone.yaml'",
    "runs: {a: {matrix: 3}}\n": "`runs.a.matrix` is 3, not a mapping of axes",
    "runs: {a: {matrix: {}}}\n": "`runs.a.matrix` is a mapping without entries, not a mapping of axes",
    "runs: {a: {matrix: {model: []}}}\n": "the axis `model` of the matrix has no values; it needs a list of values",
    "runs: {a: {matrix: {model: x}}}\n": "the axis `model` of the matrix is 'x'; it needs a list of values",
    "runs: {a: {matrix: {extends: [x]}}}\n": "`extends` cannot be an axis of a matrix",
    "runs: {a: {matrix: {n: [[1]]}}}\n": "nothing in a list can become part of a run's name",
    "runs: {a: {matrix: {n: ['!!']}}}\n": "nothing in '!!' can become part of a run's name",
    "runs: {a: {matrix: {n: [x, x]}}}\n": "two runs of the matrix are named `a-x`: their values give the same label",
    "runs: {a: {matrix: {n: [x]}}, a-x: {consumer: trl}}\n": "two runs are named `a-x`: of `a` and of `a-x`",
}


@pytest.mark.parametrize("text", WRONG)
def test_what_makes_no_run(text: str, tmp_path: Path) -> None:
    (trouble,) = spec(tmp_path, text).troubles
    assert trouble.message.startswith(WRONG[text]) and trouble.help


def test_mappings_are_merged_key_by_key(tmp_path: Path) -> None:
    text = (
        "bases:\n  x: {goals: {a: 1, b: 2}, targets: {t: 1}, arguments: [p], consumer: trl}\n"
        "  y: {goals: {b: 3, c: null}, arguments: [q], versions: {trl: '1'}}\n"
        "runs:\n  r: {extends: [x, y], goals: {a: null, d: 4}, targets: null, consumer: null}\n"
    )
    (run,) = spec(tmp_path, text).runs
    assert run.data == {"goals": {"b": 3, "c": None, "d": 4}, "arguments": ["q"], "versions": {"trl": "1"}}
    assert run.bases == ("x", "y")
    places = {key: run.where(("goals", key)).path for key in "bd"}
    assert places == {"b": ("bases", "y", "goals", "b"), "d": ("runs", "r", "goals", "d")}
    assert run.where(("arguments", 0)).path == ("bases", "y", "arguments", 0)
    assert run.where(("nowhere",)).path == ("runs", "r")


# --- front ends -------------------------------------------------------------------------------------------------------


def handed_on(name: Any, text: str, **line: Any) -> dict[str, object]:
    arguments = {key: Setting(value, Origin("flag")) for key, value in line.items()}
    run = with_front_end(Run("a", arguments=arguments), name, file("neighbour", text))
    return {key: setting.value for key, setting in run.arguments.items()}


def test_what_axolotl_hands_on() -> None:
    text = (
        "base_model: m\nmicro_batch_size: 2\nlearning_rate: 2e-5\nmax_steps: ${N}\nweight_decay: [1]\nmax_grad_norm:\n"
    )
    assert handed_on("axolotl", text + "deepspeed:\nsave_steps: 3\n") == {
        "per_device_train_batch_size": 2,
        "learning_rate": 0.00002,
        "max_steps": UNKNOWN,
        "weight_decay": UNKNOWN,
        "max_grad_norm": UNKNOWN,
    }
    assert handed_on("axolotl", "micro_batch_size: 2\n", micro_batch_size="4", other="1") == {
        "per_device_train_batch_size": "4"
    }
    assert handed_on("axolotl", "batch_size: 16\ngradient_accumulation_steps: 0\n") == {
        "gradient_accumulation_steps": UNKNOWN
    }
    assert handed_on("axolotl", "bf16: true\n") == {"bf16": True, "fp16": False}
    assert handed_on("axolotl", "bf16: auto\n") == handed_on("axolotl", "bf16: true\n", fp16="true") == {}
    assert handed_on("axolotl", "deepspeed: ds.json\nlearning_rate: fast\n") == {
        "deepspeed": "ds.json",
        "learning_rate": UNKNOWN,
    }
    assert handed_on("axolotl", "deepspeed: {a: 1}\n") == {"deepspeed": {"a": 1}}


@pytest.mark.parametrize(
    ("name", "bare", "quoted"),
    [("axolotl", 2e-5, 2e-5), ("swift", 2e-5, 2e-5), ("llamafactory", 2e-5, "2e-5")],
)
def test_a_text_that_spells_a_number(name: str, bare: object, quoted: object) -> None:
    """Run: OmegaConf 2.3 takes `2e-5` for a number, and leaves `"2e-5"` a text; pydantic and argparse convert both."""
    assert handed_on(name, "learning_rate: 2e-5\n") == {"learning_rate": bare}
    assert handed_on(name, "learning_rate: '2e-5'\n") == {"learning_rate": quoted}
    assert handed_on(name, "deepspeed: '15'\n") == {"deepspeed": "15"}, "no number is wanted"


def test_what_the_others_hand_on() -> None:
    text = "stage: sft\nbf16: true\nfp16: false\npure_bf16: true\nreport_to: none\n"
    text += "learning_rate: 0.1\nlr_scheduler_type: cosine\n"
    assert handed_on("llamafactory", text) == {
        "bf16": UNKNOWN,
        "fp16": UNKNOWN,
        "learning_rate": 0.1,
        "lr_scheduler_type": "cosine",
    }
    assert handed_on("llamafactory", text.replace("pure_bf16: true", "pure_bf16: false"))["bf16"] is True
    assert handed_on("swift", "bf16: true\nsave_steps: 3\nmax_steps: yes please\n") == {
        "bf16": True,
        "max_steps": UNKNOWN,
    }
    assert handed_on("swift", "max_steps: true\nbf16: 'yes'\nfp16: maybe\n")["fp16"] is UNKNOWN


def test_words_that_are_merged_into_a_recipe() -> None:
    words = "learning_rate=0.5 bf16=true a-b=1 =2 max_steps save_strategy='\"no\"'"
    source = SourceText("run.sh", f"llamafactory-cli train r.yaml {words}\n")
    (line,) = read_launch_lines(source, programs()).lines
    run = with_front_end(Run("a", launch=line), "llamafactory", file("neighbour", "learning_rate: 0.1\n"))
    assert {key: item.value for key, item in run.arguments.items()} == {
        "learning_rate": "0.5",
        "bf16": "true",
        "save_strategy": "no",
    }
    assert source.text[slice(*(run.arguments["bf16"].origin.span or (0, 0)))] == "bf16=true"


@pytest.mark.parametrize(
    ("command", "options", "started"),
    [
        ("axolotl train c.yml", {}, "axolotl"),
        ("accelerate launch -m axolotl.cli.train c.yml", {}, "axolotl"),
        ("accelerate launch -m mine.axolotl.cli.train c.yml", {}, "axolotl"),
        ("accelerate launch -m mineaxolotl.cli.train c.yml", {}, None),
        ("accelerate launch -m axolotl.cli.evaluate c.yml", {}, None),
        ("torchrun src/llamafactory/launcher.py r.yaml", {}, "llamafactory"),
        ("python src/llamafactory/launcher.py r.yaml", {}, "llamafactory"),
        ("python -m axolotl.cli.train c.yml", {}, "axolotl"),
        ("python -m swift.cli.sft --model m", {}, "swift"),
        ("torchrun swift/cli/sft.py --model m", {}, "swift"),
        ("torchrun train.py", {"finetuning_type": "lora", "stage": "sft"}, "llamafactory"),
        ("torchrun train.py", {"stage": "sft"}, None),
        ("torchrun train.py", {"base_model": "m", "datasets": "d"}, None),
    ],
)
def test_the_framework_of_a_line(command: str, options: dict[str, str], started: str | None) -> None:
    (line,) = read_launch_lines(SourceText("run.sh", f"{command}\n"), programs()).lines
    assert started_by_line(line, options) == started


def test_configs_that_come_with_a_framework() -> None:
    assert ships_config("swift", "zero3_offload") and not ships_config("swift", "zero4")
    assert ships_config("axolotl", "deepspeed_configs/zero1.json") and ships_config("axolotl", "a/deepspeed_configs/x")
    assert not ships_config("axolotl", "my_deepspeed_configs/x") and not ships_config("axolotl", "zero3")
    assert not ships_config("trl", "zero3") and not ships_config(None, "zero3") and not ships_config("swift", UNKNOWN)


# --- what is not checked ----------------------------------------------------------------------------------------------


def unchecked(folder: Path, *named: str, told: tuple[Where, ...] = ()) -> list[tuple[str, str, str, bool]]:
    files = Files()
    paths = [folder / name for name in named]
    runs, _ = find_runs(paths or [folder], files, root=folder, scripts=bool(named))
    found = unchecked_files(files, runs, paths, [] if named else [folder], told)
    return [(item.file, item.why, item.reason, item.named) for item in found]


VERL = "python -m verl.trainer.main_ppo a=1\ntorchrun --nnodes 1 -m openrlhf.cli.train_sft --zero_stage 3\n"


def test_programs_whose_options_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go.sh").write_text(VERL)
    said = "it starts verl (verl.trainer.main_ppo), whose options lint does not read"
    assert unchecked(tmp_path, "go.sh") == [("go.sh", "other-program", said, True)]
    assert unchecked(tmp_path) == [("go.sh", "other-program", said, False)]
    (tmp_path / "go.sh").write_text("# " + VERL)
    assert unchecked(tmp_path)[0][2].startswith("it starts OpenRLHF (openrlhf.cli.train_sft)")
    (tmp_path / "go.sh").write_text("torchrun -m mine.verl.trainer.main_ppo\n")
    assert unchecked(tmp_path) == []
    assert [item[:2] for item in unchecked(tmp_path, "go.sh")] == [("go.sh", "nothing-known")]


def test_files_that_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    line = "deepspeed --num_gpus 2 train.py --deepspeed_config {}\n"
    (tmp_path / "train.py").write_text("import deepspeed\ndeepspeed.initialize()\n")
    (tmp_path / "a.sh").write_text(line.format("gone.json"))
    (tmp_path / "b.sh").write_text(line.format("gone.json"))
    (tmp_path / "c.sh").write_text(line.format("gone.json") + line.format("/far/away.json"))
    by = "it is nowhere to be found; a.sh:1:33 names it"
    told = unchecked(tmp_path)
    assert ("gone.json", "missing", f"{by}, and 2 more places", False) in told
    assert [item[0] for item in told] == ["/far/away.json", "gone.json"]
    place = Where("a.sh", 1, 33)
    after = [item for item in unchecked(tmp_path, told=(place,)) if item[0] == "gone.json"]
    assert after == [("gone.json", "missing", "it is nowhere to be found; b.sh:1:33 names it, and 1 more place", False)]


def launched(folder: Path, text: str, number: int = -1) -> Run:
    path = folder / "run.sh"
    path.write_text(text)
    script = Files().open(path)
    return Run("a", launch=read_launch_lines(script.source).lines[number], launch_file=script)


LINE = "deepspeed --num_gpus 2 train.py --deepspeed_config conf/ds.json\n"


@pytest.mark.parametrize(
    ("before", "made"),
    [
        ("CFG=conf/ds.json\ncp x $CFG\n", True),
        ("export CFG=conf/ds.json\ncp x ${CFG}\n", True),
        ("CFG=conf/ds.json\nls $CFG\n", False),
        ("CFG=$D/$N.json\ncp x $CFG\n", True),
        ("CFG=other.json\ncp x $CFG\n", False),
        ("python make.py --out_file=conf/ds.json\n", True),
        ("python make.py --out_file 'conf/ds.json'\n", True),
        ("python make.py --input conf/ds.json\n", False),
        ("python make.py --output_dir conf/ds.jsonl\n", False),
        ("wget -q http://x/ds.json\n", True),
        ("echo ds.json; sed -i s/a/b/ x\n", True),
        ("mkdir conf\n", False),
        ("cd /data/train\n", True),
    ],
)
def test_files_that_a_script_makes_before(before: str, made: bool, tmp_path: Path) -> None:
    assert created_before_launch(launched(tmp_path, before + LINE), "conf/ds.json") is made


def test_a_folder_of_this_machine_can_be_looked_into(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    inside = launched(tmp_path, f"cd {tmp_path}/sub\n{LINE}")
    assert not created_before_launch(inside, "ds.json")
    assert created_before_launch(launched(tmp_path, f"cd {tmp_path}/gone\n{LINE}"), "ds.json")
    (tmp_path / "make.py").write_text("CFG = 'conf/ds.json'\nopen(CFG, 'w')\n")
    assert created_before_launch(launched(tmp_path, LINE), "conf/ds.json"), "a program beside it"
    (tmp_path / "make.py").rename(tmp_path / "make.txt")
    assert not created_before_launch(launched(tmp_path, LINE), "conf/ds.json")


def test_lines_for_another_checkout(tmp_path: Path) -> None:
    run = launched(tmp_path, LINE)
    assert launches_other_checkout(run, "conf/ds.json")
    (tmp_path / "conf").mkdir()
    assert launches_other_checkout(run, "conf/ds.json")
    (tmp_path / "conf/other.json").write_text("{}")
    assert not launches_other_checkout(run, "conf/ds.json") and launches_other_checkout(run, "conf/ds.yaml")
    for text in (LINE.replace("train.py", "$S"), LINE.replace("train.py", "/x/train.py"), "torchrun -m mine.train\n"):
        assert not launches_other_checkout(launched(tmp_path, text), "else/ds.json")
    assert not launches_other_checkout(launched(tmp_path, LINE.replace("train.py", "train")), "else/ds.json")
    own: dict[str, Any] = {"deepspeed": file("deepspeed", "{}")}
    for part in ("accelerate", "recipe", "framework_recipe", "deepspeed"):
        held = Run("a", launch=run.launch, launch_file=run.launch_file, **{part: own["deepspeed"]})
        assert not launches_other_checkout(held, "else/ds.json")
    started = Run("a", launch=run.launch, launch_file=run.launch_file, entry_point=tmp_path / "train.py")
    assert not launches_other_checkout(started, "else/ds.json") and not launches_other_checkout(Run("a"), "x.json")


def test_recipes_are_recognised_by_keys_that_no_other_has() -> None:
    for data, framework in (
        ({"finetuning_type": "lora", "stage": "sft"}, "llamafactory"),
        ({"finetuning_type": "lora", "model_name_or_path": "m"}, "llamafactory"),
        ({"finetuning_type": "lora"}, None),
        ({"stage": "dpo", "model_name_or_path": "m", "template": "t"}, "llamafactory"),
        ({"stage": "pt", "model_name_or_path": "m", "cutoff_len": 9}, "llamafactory"),
        ({"stage": "pt", "model_name_or_path": "m"}, None),
        ({"stage": "pt", "template": "t"}, None),
        ({"stage": "deploy", "model_name_or_path": "m", "template": "t"}, None),
        ({"stage": 2, "model_name_or_path": "m", "template": "t"}, None),
        ({"base_model": "m", "datasets": []}, "axolotl"),
        ({"base_model": "m", "adapter": "lora"}, "axolotl"),
        ({"datasets": [], "adapter": "lora"}, None),
        ({"tuner_type": "lora", "model": "m"}, "swift"),
        ({"train_type": "lora", "dataset": "d"}, "swift"),
        ({"sft_type": "lora", "model_type": "m"}, "swift"),
        ({"sft_type": "lora"}, None),
    ):
        assert recognise(data) == framework, data


def test_whose_recipes_leave_arguments_at_their_defaults() -> None:
    said = {name: has_defaults(name) for name in ("llamafactory", "axolotl", "swift", "trl", "transformers", None)}
    assert said == {
        "llamafactory": True,
        "axolotl": False,
        "swift": False,
        "trl": True,
        "transformers": True,
        None: True,
    }


def test_a_missing_file_is_named_where_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "r.yaml").write_text("output_dir: o\nsave_steps: 1\nmax_grad_norm: 1.0\ndeepspeed: gone.json\n")
    acc = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: no.json\n"
    (tmp_path / "acc.yaml").write_text(acc)
    monkeypatch.chdir(tmp_path)
    runs = {name: run_of_file(tmp_path / name, Files()) for name in ("r.yaml", "acc.yaml")}
    missing = {name: [(item.note, item.path) for item in run.missing] for name, run in runs.items() if run is not None}
    assert missing == {
        "r.yaml": [("gone.json", ("deepspeed",))],
        "acc.yaml": [("no.json", ("deepspeed_config", "deepspeed_config_file"))],
    }


def test_a_file_that_two_runs_cannot_read_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import deepspeed\ndeepspeed.initialize()\n")
    (tmp_path / "ds.json").write_text('{"train_batch_size": ')
    (tmp_path / "run.sh").write_text("deepspeed --num_gpus 2 train.py --deepspeed_config ds.json\n" * 2)
    why = "not valid JSON: expected a value"
    assert unchecked(tmp_path) == [("ds.json", "not-read", why, False)]
    assert unchecked(tmp_path, "ds.json") == [("ds.json", "not-read", why, True)]
    assert unchecked(tmp_path, told=(Where("ds.json", 1, 1),)) == []


def test_a_config_that_cannot_be_read_is_refused_by_nobody_else() -> None:
    for text, failed in (('{"train_batch_size": ', []), ("[1]", ["ds-not-a-mapping"]), ("3", ["ds-not-a-mapping"])):
        for consumer in ("deepspeed", "accelerate", "transformers"):
            reader: Any = consumer
            run = Run("a", consumer=reader, deepspeed=file("deepspeed", text), deepspeed_route=None)
            found = [item.kind for item in resolve_settings(run).failures]
            assert [item for item in found if item == "ds-not-a-mapping"] == failed, (text, consumer)


def test_what_shows_the_reader_of_a_recipe() -> None:
    (line,) = read_launch_lines(SourceText("run.sh", "torchrun train.py r.yaml\n")).lines
    recipe, script = file("recipe", "a: 1\n"), file("launch", "torchrun train.py r.yaml\n")
    run = Run("a", consumer="trl", recipe=recipe, launch=line, launch_file=script)
    evidence = reader_evidence(run)
    assert evidence is not None and (evidence.by, evidence.place) == ("recipe", None)
    alone = reader_evidence(Run("a", consumer="trl", launch=line, launch_file=script))
    assert alone is not None and alone.place is not None
    assert (alone.by, alone.place.file, alone.place.span) == ("option", script, line.span)
    nothing = reader_evidence(Run("a", consumer="trl"))
    assert nothing is not None and (nothing.by, nothing.place) == ("option", None)


def test_a_well_known_model_has_its_published_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    known = open_model("Qwen/Qwen2.5-7B", tmp_path, Files())
    assert known is not None and (known.kind, known.path) == ("model", None)
    assert (known.data()["hidden_size"], known.data()["num_hidden_layers"]) == (3584, 28)
    (tmp_path / "Qwen/Qwen2.5-7B").mkdir(parents=True)
    (tmp_path / "Qwen/Qwen2.5-7B/config.json").write_text('{"hidden_size": 8}')
    own = open_model("Qwen/Qwen2.5-7B", tmp_path, Files())
    assert own is not None and own.data() == {"hidden_size": 8}, "what lies there comes first"
    for text in ("nobody/nothing", "gone.json", "./Qwen", ""):
        assert open_model(text, tmp_path / "cache", Files()) is None, text


def test_parts_of_a_text_that_something_fills_in() -> None:
    for value, part in (
        ("${A}/x", "${A}"),
        ("x $A_1 y", "$A_1"),
        ("{{ a b }}", "{{ a b }}"),
        ("{{a}} ${B}", "{{a}}"),
        ("<NAME>", "<NAME>"),
        ("<name>", None),
        ("<A B>", None),
        ("$", None),
        ("$1", None),
        ("{a}", None),
        ("${A", None),
        ("{{ a }", None),
        ("plain", None),
        ("", None),
        (3, None),
        (None, None),
        (["$A"], None),
    ):
        assert placeholder(value) == part, value
