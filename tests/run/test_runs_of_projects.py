"""Which runs a folder or a single file makes: whom specs name for launch lines, and what is looked at for one file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from zerocfg.internal_errors import Containment
from zerocfg.run import link
from zerocfg.run.discover import Files
from zerocfg.run.link import Links, find_runs, run_of_file, runs_from_spec
from zerocfg.run.linking.follow import Paths
from zerocfg.run.linking.sibling_recipes import as_siblings
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.text import SourceText

ACCELERATE = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config: {}\n"
DS = '{"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}'
LINE = "accelerate launch --config_file acc.yaml train.py\n"
LOOP = "from accelerate import Accelerator\nAccelerator()\n"


def project(folder: Path, files: Mapping[str, str]) -> Path:
    (folder / ".git").mkdir(parents=True)
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    return folder


def found(*paths: Path, scripts: bool = False) -> dict[str, Run]:
    """Runs by name, of files by their last part."""
    runs, _ = find_runs(paths, Files(), scripts=scripts)
    return {run.name.rpartition("/")[2]: run for run in runs}


# --- whom specs name --------------------------------------------------------------------------------------------------


def spec(*runs: str) -> str:
    return "version: 1\nruns:\n" + "".join(f"  r{at}: {{{keys}}}\n" for at, keys in enumerate(runs))


SAME = "consumer: trl, accelerate: acc.yaml, script: train.py"
SAID: dict[str, tuple[list[str], str, str | None]] = {
    "config and script": ([SAME], LINE, "trl"),
    "the config alone": (["consumer: trl, accelerate: acc.yaml"], LINE, "trl"),
    "another script": (["consumer: trl, accelerate: acc.yaml, script: other.py"], LINE, None),
    "another config": (["consumer: trl, accelerate: other.yaml, script: train.py"], LINE, None),
    "no config": (["consumer: trl, script: train.py"], LINE, None),
    "no consumer": (["accelerate: acc.yaml, script: train.py"], LINE, None),
    "two specs of one mind": ([SAME, f"{SAME}, recipe: r.yaml"], LINE, "trl"),
    "two specs of two minds": ([SAME, SAME.replace("trl", "accelerate")], LINE, None),
    "two specs, one for another script": (
        [SAME, SAME.replace("trl", "accelerate").replace("train", "other")],
        LINE,
        "trl",
    ),
    "a script that is not here": (
        ["consumer: trl, accelerate: acc.yaml, script: far/gone.py"],
        LINE.replace("train", "src/gone"),
        "trl",
    ),
    "another script that is not here": (
        ["consumer: trl, accelerate: acc.yaml, script: far/gone.py"],
        LINE.replace("train", "src/away"),
        None,
    ),
    "a script that only the shell knows": ([SAME], LINE.replace("train.py", "$SCRIPT"), None),
}


@pytest.mark.parametrize("case", SAID)
def test_a_spec_names_the_reader_of_a_launch_line(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where it is about the same script, with a config of the line's own."""
    runs, line, consumer = SAID[case]
    files = {"zerocfg.yaml": spec(*runs), "run.sh": line, "acc.yaml": ACCELERATE, "other.yaml": ACCELERATE}
    files |= {
        "train.py": "print(1)\n",
        "other.py": "print(2)\n",
        "r.yaml": "output_dir: o\nsave_steps: 1\nmax_steps: 2\n",
    }
    monkeypatch.chdir(project(tmp_path / "p", files))
    run = found(Path())["run.sh:1"]
    assert run.consumer == consumer
    evidence = run.reader_evidence
    assert consumer is None or (evidence and evidence.place and evidence.place.file is not None)
    assert consumer is None or evidence.place.file.name == "zerocfg.yaml"  # type: ignore[union-attr]
    assert (evidence is not None and (evidence.by, evidence.place and evidence.place.path)) == (
        ("spec", ("runs", "r0", "consumer")) if consumer else False
    )


def test_a_line_that_says_its_reader_by_itself_may_be_overruled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {"run.sh": LINE, "acc.yaml": ACCELERATE, "train.py": LOOP}
    monkeypatch.chdir(project(tmp_path / "p", files))
    assert found(Path())["run.sh:1"].consumer == "accelerate"
    (tmp_path / "p/zerocfg.yaml").write_text(spec(SAME))
    assert found(Path())["run.sh:1"].consumer == "trl"


# --- a single file ----------------------------------------------------------------------------------------------------


def test_files_around_a_single_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to the budget; what does not look like a config is counted, too."""
    folder = project(tmp_path / "p", {"a.md": "text\n", "b.md": "text\n", "run.sh": LINE, "zz/acc.yaml": ACCELERATE})
    (folder / "run.sh").write_text(LINE.replace("acc.yaml", "zz/acc.yaml"))
    monkeypatch.chdir(tmp_path)
    assert list(found(folder / "zz/acc.yaml")) == ["run.sh:1"]
    monkeypatch.setattr(link, "NEIGHBOURS", 3)
    assert list(found(folder / "zz/acc.yaml")) == ["run.sh:1"]
    monkeypatch.setattr(link, "NEIGHBOURS", 2)
    assert list(found(folder / "zz/acc.yaml")) == ["acc.yaml"]
    assert list(found(folder)) == ["run.sh:1"], "a folder is asked about as a whole"


def test_which_scripts_are_read_for_a_single_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that name it, or a config that names it; the others can have no run with it."""
    starts = "import subprocess\nsubprocess.run(['accelerate', 'launch', '--config_file', '{}', 'train.py'])\n"
    files = {
        "ds.json": DS,
        "acc.yaml": ACCELERATE.replace("{}", "{deepspeed_config_file: ds.json}"),
        "plain.yaml": ACCELERATE,
        "through.py": starts.format("acc.yaml"),
        "direct.py": starts.format("acc.yaml") + "# ds.json\n",
        "elsewhere.py": starts.format("plain.yaml"),
        "train.py": "print(1)\n",
    }
    folder = project(tmp_path / "p", files)
    monkeypatch.chdir(folder)
    read: list[str] = []
    linked = Links.linked

    def noted(self: Links, paths: object, file: SourceFile, line: object) -> Run | None:
        if line is not None:
            read.append(file.name)
        return linked(self, paths, file, line)  # type: ignore[arg-type]

    monkeypatch.setattr(Links, "linked", noted)
    assert sorted(found(folder / "ds.json", scripts=True)) == ["direct.py:2", "through.py:2"]
    assert sorted(read) == ["direct.py", "through.py"]
    read.clear()
    assert sorted(found(folder / "train.py", scripts=True)) == ["direct.py:2", "elsewhere.py:2", "through.py:2"]
    read.clear()
    assert sorted(found(folder, scripts=True)) == ["direct.py:2", "elsewhere.py:2", "through.py:2"]
    read.clear()
    assert list(found(folder / "elsewhere.py", scripts=True)) == ["elsewhere.py:2"]
    assert read == ["elsewhere.py"]


def test_files_that_are_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "run.sh": LINE,
        "go.py": f"import os\nos.system('{LINE.strip()}')\n",
        "acc.yaml": ACCELERATE,
        "train.py": LOOP,
    }
    folder = project(tmp_path / "p", files)
    monkeypatch.chdir(folder)

    def names(skipped: str, *paths: Path) -> list[str]:
        runs, asked = find_runs(paths, Files(), skip=lambda file: file.name == skipped, scripts=True)
        assert len(asked) == (1 if paths != (folder,) else 4)
        return sorted(run.name for run in runs)

    assert names("", folder) == ["go.py:2", "run.sh:1"]
    assert names("run.sh", folder) == ["go.py:2"] and names("go.py", folder) == ["run.sh:1"]
    assert names("run.sh", folder / "acc.yaml") == ["go.py:2"]


def test_code_of_the_project_that_gives_a_batch_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a config by itself any script may be the reader, but for those that are skipped."""
    code = "import deepspeed\nc['train_batch_size'] = 8\ndeepspeed.initialize(config=c)\n"
    folder = project(tmp_path / "p", {"ds.json": DS, "train.py": code})
    monkeypatch.chdir(folder)

    def run(**more: object) -> Run:
        runs, _ = find_runs([folder], Files(), **more)  # type: ignore[arg-type]
        return next(item for item in runs if item.name == "ds.json")

    assert run(scripts=True).elsewhere.sets_batch_size is True
    assert run().elsewhere.sets_batch_size is False
    assert run(scripts=True, skip=lambda file: file.name == "train.py").elsewhere.sets_batch_size is False


def test_a_script_with_lightning_that_names_the_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No line starts it, and no word of it is DeepSpeed's own but the strategy."""
    code = "from lightning.pytorch.strategies import DeepSpeedStrategy\nDeepSpeedStrategy(config='ds.json')\n"
    folder = project(tmp_path / "p", {"ds.json": DS, "train.py": code})
    monkeypatch.chdir(folder)
    runs, _ = find_runs([folder], Files(), scripts=True)
    assert [run.elsewhere.lightning for run in runs if run.name == "ds.json"] == [True]


def test_settings_are_given_once_and_errors_cost_one_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path / "p", {"a.json": DS, "b.json": DS})
    monkeypatch.chdir(folder)
    given: list[str] = []

    def settle(run: Run) -> Run:
        given.append(run.name)
        if run.name == "a.json":
            raise ValueError("broken")
        return run

    contained = Containment()
    runs, asked = find_runs([folder], Files(), contained=contained, settle=settle)
    assert [run.name for run in runs] == ["b.json"] and given == ["a.json", "b.json"] and len(asked) == 2
    (error,) = contained.met
    assert (error.file, "`a.json`" in error.doing, "broken" in error.error) == ("a.json", True, True)
    with pytest.raises(ValueError, match="broken"):
        find_runs([folder], Files(), settle=settle)


def test_the_run_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {
        "ds.json": DS,
        "other.txt": "a: 1\n",
        "as.yaml": DS,
        "real.yaml": "zero_optimization: {stage: 2}\ntrain_micro_batch_size_per_gpu: 1\n",
        "acc.yaml": ACCELERATE.replace("{}", "{deepspeed_config_file: ds.json}"),
        "r.yaml": "output_dir: o\nsave_steps: 1\nmax_grad_norm: 1.0\ndeepspeed: ds.json\n",
        "inline.yaml": "output_dir: o\nsave_steps: 1\nmax_grad_norm: 1.0\ndeepspeed: {zero_optimization: {stage: 1}}\n",
        "plain.yaml": "output_dir: o\nsave_steps: 1\nmax_grad_norm: 1.0\n",
        "ax.yaml": "base_model: m\nadapter: lora\ndatasets:\n- path: d\ndeepspeed: ds.json\n",
    }
    folder = project(tmp_path / "p", files)
    monkeypatch.chdir(folder)

    def of(name: str) -> tuple[object, ...] | None:
        run = run_of_file(folder / name, Files())
        if run is None:
            return None
        config = run.deepspeed
        read = (config.name, config.document.format) if config is not None and config.document else None
        return run.consumer, run.deepspeed_route, read, run.effective.value("zero_optimization.stage")

    assert of("ds.json") == (None, None, ("ds.json", "json"), 2)
    assert of("as.yaml") == (None, None, ("as.yaml", "json"), 2), "JSON by its text"
    assert of("real.yaml") == (None, None, ("real.yaml", "yaml"), 2)
    assert of("acc.yaml") == (None, "accelerate", ("ds.json", "json"), 2)
    assert of("r.yaml") == ("transformers", "trainer", ("ds.json", "json"), 2)
    assert of("inline.yaml") == ("transformers", None, None, 1)
    assert of("plain.yaml") == (None, None, None, None)
    assert of("ax.yaml") == ("axolotl", "trainer", ("ds.json", "json"), 2)
    assert of("other.txt") is None


def test_folders_around_a_file(tmp_path: Path) -> None:
    """Up to the root of the repository; of a file outside of it up to four folders above its own."""
    deep = tmp_path / "a/b/c/d/e/f"
    deep.mkdir(parents=True)
    (deep / "x.json").write_text(DS)
    file = Files().open(deep / "x.json")
    inside = Paths(Files(), (tmp_path / "a").resolve()).around(file)
    real = deep.resolve()
    assert inside == [tmp_path.resolve() / "a", real, *list(real.parents)[:5]]
    elsewhere = tmp_path.resolve() / "elsewhere"
    assert Paths(Files(), elsewhere).around(file) == [elsewhere, real, *list(real.parents)[:4]]
    nowhere = SourceFile("stdin", "deepspeed", SourceText("stdin", DS))
    assert Paths(Files(), elsewhere).around(nowhere) == [elsewhere]


PARSED = """
from dataclasses import dataclass
from trl import DPOConfig, DPOTrainer, TrlParser

@dataclass
class Mine(DPOConfig):
    beta: float = 0.5

(args,) = TrlParser((Mine,)).parse_args_and_config()
DPOTrainer(args=args).train()
"""


def test_a_recipe_has_the_defaults_of_its_siblings_script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the lines whose recipes are in a folder of the same name."""
    recipe = "output_dir: o\nmax_steps: 2\nsave_steps: 1\nmax_grad_norm: 1.0\nbf16: true\n"
    line = "accelerate launch train.py --config recipes/{}.yaml\n"
    files = {f"recipes/{name}.yaml": recipe for name in ("one/dpo/a", "two/dpo/b", "three/dpo/c", "three/sft/d")}
    files |= {"train.py": PARSED, "run.sh": line.format("one/dpo/a") + line.format("two/dpo/b")}
    monkeypatch.chdir(project(tmp_path / "p", files))
    runs = found(Path(), scripts=True)
    assert {name: (run.consumer, run.script is not None) for name, run in runs.items()} == {
        "run.sh:1": ("trl", True),
        "run.sh:2": ("trl", True),
        "c.yaml": ("trl", True),
        "d.yaml": ("trl", False),
    }
    assert runs["c.yaml"].arguments["beta"].value == 0.5 and runs["c.yaml"].arguments_whole is True
    assert dict(runs["d.yaml"].arguments) == {} and runs["d.yaml"].arguments_whole is None


def test_a_recipe_from_standard_input_has_no_siblings() -> None:
    recipe = SourceFile("stdin", "recipe", SourceText("stdin", "a: 1\n"))
    run = Run("stdin", recipe=recipe)
    assert as_siblings(run, [run], Path("/nowhere")) is run and as_siblings(Run("x"), [], Path("/nowhere")).name == "x"


def test_a_spec_that_is_no_document(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text(LINE)
    (run,) = runs_from_spec(tmp_path / "run.sh")
    assert run.spec is not None and (run.spec.kind, run.launch, run.accelerate) == ("launch", None, None)


@pytest.mark.parametrize(("up", "own"), [(0, True), (5, True), (6, False)])
def test_a_recipe_below_the_package_of_its_framework(up: int, own: bool, tmp_path: Path) -> None:
    """Up to six folders above it."""
    folder = tmp_path.joinpath(*"abcdefg"[: up + 1])
    folder.mkdir(parents=True)
    (folder.parents[up - 1] if up else folder).joinpath("src/llamafactory").mkdir(parents=True)
    (folder / "r.yaml").write_text("stage: sft\nmodel_name_or_path: m\ntemplate: t\nbf16: true\n")
    run = run_of_file(folder / "r.yaml", Files())
    assert run is not None and (run.consumer, run.own_framework) == ("llamafactory", own)


def test_a_shell_script_does_not_stand_for_those_that_start_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A training script does."""
    outer = "accelerate launch --no_python --config_file acc.yaml {}\n"
    files = {"outer.sh": outer.format("inner.sh"), "other.sh": outer.format("train.py"), "acc.yaml": ACCELERATE}
    files |= {"inner.sh": "ls\n", "train.py": "print(1)\n"}
    folder = project(tmp_path / "p", files)
    monkeypatch.chdir(folder)
    assert found(folder / "inner.sh", scripts=True) == {}
    assert list(found(folder / "train.py", scripts=True)) == ["other.sh:1"]
