"""What `zerocfg init` reads off a launch line's file and a repository, word by word, and the text that it writes."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build.test_draft_limits import MODEL, RECIPE, STAGED, TRAINER, ZERO, drafts, only, told
from tests.build.test_road_limits import run_of, setting
from zerocfg.hardware.catalogue import CPU, parse_hardware
from zerocfg.resolve.init import infer_runs, repository
from zerocfg.resolve.init.draft import Draft, Guess
from zerocfg.resolve.init.hardware_words import AskedHardware, _number, _slurm, asked_hardware
from zerocfg.resolve.init.infer_runs import draft_runs
from zerocfg.resolve.init.text import spec_text, summary
from zerocfg.run.model import UNKNOWN, Run, SourceFile
from zerocfg.source.launch.line import LaunchLine
from zerocfg.source.text import SourceText, Span


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, on a machine whose cache of the hub is empty."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-hub"))
    return tmp_path / "repo"


def line_run(launcher: Any = "accelerate", text: str = "", **more: Any) -> Run:
    file = SourceFile("job.sh", "launch", SourceText("job.sh", text))
    line = LaunchLine(launcher, (), None, (), (), {}, Span(0, 0))
    flags = {name: setting(value, "flag") for name, value in more.pop("flags", {}).items()}
    environment = {name: setting(value, "environment") for name, value in more.pop("environment", {}).items()}
    return run_of(launch=line, launch_file=file, flags=flags, environment=environment, **more)


class TestHardware:
    @pytest.mark.parametrize(
        ("line", "found"),
        [
            ("--gres=gpu:8", (None, 8, None)),
            ("--gres=gpu:a100:4", (None, 4, "a100")),
            ("--gres gpu:2", (None, None, None)),  # sbatch writes it with `=` in what is read here
            ("--gpus-per-node=4", (None, 4, None)),
            ("--gpus-per-node h100:4", (None, 4, "h100")),
            ("--gpus-per-node=0", (None, None, None)),
            ("--nodes=3", (3, None, None)),
            ("--nodes 3", (3, None, None)),
            ("-N 3", (3, None, None)),
            ("-N3", (3, None, None)),
            ("--ntasks=3", (None, None, None)),
        ],
    )
    def test_a_line_of_slurm(self, line: str, found: Any) -> None:
        assert _slurm(f"#!/bin/bash\n#SBATCH {line}\n")[:3] == found
        assert _slurm(f"# SBATCH {line}\n")[:3] == (None, None, None), "a comment of the shell"

    def test_the_last_line_of_slurm_counts(self) -> None:
        text = "#SBATCH --gres=gpu:8\n#SBATCH --gres=gpu:h100:4   \n#SBATCH --nodes=2\n#SBATCH -N 3\n"
        assert _slurm(text) == (3, 4, "h100", "#SBATCH --gres=gpu:h100:4")

    @pytest.mark.parametrize(
        ("value", "number"),
        [
            ("8", 8),
            (8, 8),
            ("0", None),
            ("08", None),
            ("1000000", None),
            ("999999", 999999),
            ("$N", None),
            (UNKNOWN, None),
        ],
    )
    def test_a_count_of_a_line(self, value: Any, number: int | None) -> None:
        assert _number(line_run(flags={"b": value}), "a", "b") == number
        assert _number(line_run(flags={"a": 2, "b": value}), "a", "b") == 2

    @pytest.mark.parametrize(
        ("run", "each", "by"),
        [
            (line_run("deepspeed", flags={"num_gpus": "2", "include": "localhost:1,2,3"}), 2, "--num_gpus"),
            (line_run("deepspeed", flags={"include": "localhost:1,2,3"}), 3, "--include"),
            (line_run("deepspeed", flags={"include": "localhost:7"}), 1, "--include"),
            (line_run("deepspeed", flags={"include": "node1:1,2"}), None, ""),
            (
                line_run("deepspeed", flags={"include": UNKNOWN}, environment={"CUDA_VISIBLE_DEVICES": "0"}),
                1,
                "CUDA_VISIBLE_DEVICES",
            ),
            (line_run("torchrun", flags={"num_gpus": "2", "gpu_ids": "0,1"}), None, ""),
            (line_run("accelerate", flags={"gpu_ids": "0,3"}), 2, "gpu_ids"),
            (line_run("accelerate", flags={"gpu_ids": "all"}), None, ""),
            (line_run("torchrun", environment={"CUDA_VISIBLE_DEVICES": "0,1,3"}), 3, "CUDA_VISIBLE_DEVICES"),
            (line_run("torchrun", environment={"CUDA_VISIBLE_DEVICES": ""}), None, ""),
            (line_run("torchrun", environment={"CUDA_VISIBLE_DEVICES": UNKNOWN}), None, ""),
        ],
    )
    def test_devices_of_a_node(self, run: Run, each: int | None, by: str) -> None:
        found = asked_hardware(run)
        note = f"which accelerators? {by} asks for {each} on each of 1 node(s)"
        assert found == (None if each is None else AskedHardware(None, "open", note, f"{each}xA100-80GB"))

    @pytest.mark.parametrize(
        ("text", "flags", "name", "note", "example"),
        [
            ("gpu:H100-80GB:4\n", {}, "4xH100-80GB", "", "4xA100-80GB"),
            ("gpu:H100-80GB:4\n#SBATCH -N 2\n", {}, "2x4xH100-80GB", "", "2x4xA100-80GB"),
            (
                "gpu:quadro:4\n",
                {"num_machines": "3"},
                None,
                "#SBATCH --gres=gpu:quadro:4 asks for 4 of quadro: name them as the catalogue does",
                "3x4xA100-80GB",
            ),
            (
                "gpu:4\n#SBATCH -N 2\n",
                {"nnodes": "3"},
                None,
                "which accelerators? #SBATCH --gres=gpu:4 asks for 4 on each of 3 node(s)",
                "3x4xA100-80GB",
            ),
        ],
    )
    def test_what_a_line_asks_for(self, text: str, flags: Any, name: str | None, note: str, example: str) -> None:
        run = line_run("torchrun", f"#SBATCH --gres={text}", flags=flags)
        known = ("found", "#SBATCH --gres=gpu:H100-80GB:4") if name else ("open", note)
        assert asked_hardware(run) == AskedHardware(name, *known, example)
        assert asked_hardware(line_run("torchrun", "#SBATCH -N 2\n")) is asked_hardware(run_of()) is None


class TestRepository:
    @pytest.mark.parametrize(
        ("text", "library"),
        [
            ("deepspeed.initialize (model)\nTrainer()\nmain()\n", "deepspeed"),
            ("import trl\nTrainer()\nmain()\n", "trl"),
            ("  from trl import XTrainer\nmain()\n", None),  # Python cannot parse it
            ("try:\n  from trl import XTrainer\nfinally:\n  pass\nmain()\n", "trl"),
            ("import trlx\nAccelerator()\nmain()\n", "accelerate"),
            ("from trl import TrlParser\nAccelerator()\nmain()\n", "accelerate"),
            ("import trl\ntrl.DPOTrainer(model)\n", "trl"),
            ("Seq2SeqTrainer(model)\n", "transformers"),
            ("MyTrainer(model)\n", None),
            ("Accelerator()\n", "accelerate"),
            ("accelerator = Accelerator()\n", None),
            ("for step in steps:\n    Trainer()\n", "transformers"),
            ("while True:\n    Trainer()\n", "transformers"),
            ("with open('x') as f:\n    Trainer()\n", "transformers"),
            ("if x:\n    Trainer()\n", None),
            ("x = 1\n", None),
            ("def f():\n    Trainer()\n\n\nif __name__ == '__main__':\n    f()\n", "transformers"),
        ],
    )
    def test_whose_loop_a_script_calls(self, text: str, library: str | None, tmp_path: Path) -> None:
        (tmp_path / "a.py").write_text(text)
        assert repository.calls_of(tmp_path / "a.py") == library
        assert repository.calls_of(tmp_path / "gone.py") is None

    @pytest.mark.parametrize(
        ("name", "counts"),
        [
            ("model", True),
            ("tests", False),
            ("test", False),
            ("_test_data", False),
            ("fixtures", False),
            ("mock", False),
            ("dummy-model", False),
            ("tiny-llama", False),
            ("tinyllama", True),
            ("tokenizer", False),
            ("contest", True),
        ],
    )
    def test_folders_of_models(self, name: str, counts: bool, tmp_path: Path) -> None:
        path = tmp_path / name / "config.json"
        path.parent.mkdir()
        path.write_text("{}")
        assert repository.model_configs(tmp_path) == ([path] if counts else [])

    def test_hidden_folders_and_other_suffixes_are_passed_over(self, tmp_path: Path) -> None:
        for name in ("b.py", "a.py", "c.pyc", ".git/x.py", "node_modules/x.py", "sub/d.py"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).touch()
        found = [path.relative_to(tmp_path).as_posix() for path in repository.walk(tmp_path, ".py")]
        assert found == ["a.py", "b.py", "sub/d.py"]


class TestText:
    def test_a_spec_and_its_summary(self) -> None:
        draft = Draft("my run")
        draft.guesses = {
            key: Guess(key, *rest)  # type: ignore[arg-type]
            for key, rest in {
                "script": ("train.py", "found", "job.sh:1"),
                "consumer": ("trl", "given", "given"),
                "model": (None, "open", "which\none?", "org/name"),
                "hardware": ("8xcpu", "guessed", "this machine"),
                "arguments": (["--a", "b c"], "open", "fill in"),
                "nothing": (1, "found", "no key of a spec"),
            }.items()
        }
        draft.remarks = ["note  it"]
        assert spec_text([draft]) == (
            "# Written by `zerocfg init`. The comments say where each value comes from; check what is guessed.\n"
            "# Then: zerocfg lint, zerocfg plan zerocfg.yaml, zerocfg build zerocfg.yaml -o out\n"
            "version: 1\nruns:\n  my run:\n"
            "    consumer: trl\n"
            "    script: train.py       # found: job.sh:1\n"
            "    arguments: [--a, b c]  # open: fill in\n"
            "    # model: org/name      # open: which one?\n"
            "    hardware: 8xcpu        # guessed: this machine\n"
            "    # note it\n"
        )
        assert summary([draft]) == [
            "my run: trl, train.py",
            "  open arguments: [--a, b c] (fill in)",
            "  open model: (which one?)",
            "  guessed hardware: 8xcpu (this machine)",
            "  note: note it",
        ]

    @pytest.mark.parametrize(
        ("width", "column"),
        [(44, 46), (45, 47), (10, 12)],
    )
    def test_comments_start_two_blanks_behind(self, width: int, column: int) -> None:
        draft = Draft("a")
        draft.add("script", "s" * (width - len("script: ")), "found", "x")
        line = spec_text([draft]).splitlines()[-1]
        assert line.index("#") == 4 + column


class TestLines:
    def test_a_config_that_only_the_shell_knows_is_the_nearest_of_its_kind(self, folder: Path) -> None:
        files = {"jobs/train.py": TRAINER, "jobs/near/b.json": ZERO, "a.json": ZERO, "far/away/c.json": ZERO}
        shell = "accelerate launch jobs/train.py --deepspeed $CONFIG --output_dir out\n"
        for job, found in (("jobs/near/job.sh", "jobs/near/b.json"), ("job.sh", "a.json")):
            draft = only(folder, files | {job: shell})
            note = f"{job}:1 says --deepspeed $CONFIG: the nearest one; which is it?"
            assert told(draft, "deepspeed") == (found, "guessed", note)
            (folder / job).unlink()

    @pytest.mark.parametrize(
        "option", ["--deepspeed $DIR/b.json", '--deepspeed "$DIR/b.json"', "--deepspeed=${DIR}/b.json"]
    )
    def test_a_name_behind_a_variable_is_looked_for(self, option: str, folder: Path) -> None:
        """The config of that name is taken, though another one lies nearer."""
        files = {"train.py": TRAINER, "a.json": ZERO, "far/away/b.json": ZERO}
        draft = only(folder, files | {"job.sh": f"accelerate launch train.py {option} --output_dir out\n"})
        value, how, note = told(draft, "deepspeed")
        assert (value, how) == ("far/away/b.json", "guessed")
        assert note.startswith("job.sh:1 says --deepspeed ") and note.endswith(
            ": the only b.json here; is it that one?"
        )

    @pytest.mark.parametrize("option", ["$DIR/c.json", "$DIR/$NAME.json", "$DIR/$NAME"])
    def test_a_name_of_which_there_is_no_config(self, option: str, folder: Path) -> None:
        files = {"train.py": TRAINER, "a.json": ZERO, "far/b.json": ZERO}
        shell = f"accelerate launch train.py --deepspeed {option} --output_dir out\n"
        draft = only(folder, files | {"job.sh": shell})
        assert told(draft, "deepspeed")[0] == "a.json" and told(draft, "deepspeed")[2].endswith("which is it?")

    def test_of_several_of_that_name_the_nearest(self, folder: Path) -> None:
        files = {"train.py": TRAINER, "a.json": ZERO, "far/b.json": ZERO, "far/away/b.json": ZERO}
        shell = "accelerate launch train.py --deepspeed $DIR/b.json --output_dir out\n"
        draft = only(folder, files | {"job.sh": shell})
        note = "job.sh:1 says --deepspeed $DIR/b.json: the nearest one; which is it?"
        assert told(draft, "deepspeed") == ("far/b.json", "guessed", note)

    @pytest.mark.parametrize("key", ["script", "recipe", "accelerate", "deepspeed"])
    def test_a_file_that_is_given_and_not_there(self, key: str, folder: Path) -> None:
        files = {"train.py": TRAINER, "a.json": ZERO}
        there = only(folder, files, **{key: "train.py"})
        assert not any("there is no file" in remark for remark in there.remarks)
        gone = only(folder, files, **{key: "gone.x"})
        assert gone.remarks == [f"there is no file gone.x in the folder of this spec yet, which `{key}` names"]
        assert f"    # {gone.remarks[0]}\n" in spec_text([gone]) and f"  note: {gone.remarks[0]}" in summary([gone])

    def test_a_config_of_which_there_is_none(self, folder: Path) -> None:
        shell = "accelerate launch --config_file $CONFIG train.py --output_dir out\n"
        draft = only(folder, {"train.py": TRAINER, "job.sh": shell})
        assert draft.guesses["accelerate"] == Guess(
            "accelerate", None, "open", "job.sh:1 says --config_file $CONFIG: which file is it?", "config.json"
        )

    @pytest.mark.parametrize(
        ("shell", "script"),
        [
            ("cd jobs && accelerate launch train.py\n", "jobs/train.py"),
            ("cd jobs && accelerate launch ../train.py\n", "train.py"),
            ("accelerate launch train.py\n", "train.py"),
        ],
    )
    def test_a_script_below_the_folder_of_its_line(self, shell: str, script: str, folder: Path) -> None:
        draft = only(folder, {"train.py": TRAINER, "jobs/train.py": TRAINER, "job.sh": shell})
        assert draft.value("script") == script

    @pytest.mark.parametrize(
        ("line", "launcher"),
        [
            ("deepspeed train.py --deepspeed_config ds.json", "deepspeed"),
            ("torchrun train.py --deepspeed_config ds.json", None),
            ("accelerate launch train.py", None),
        ],
    )
    def test_the_launcher_of_an_own_loop(self, line: str, launcher: str | None, folder: Path) -> None:
        loop = "import deepspeed\n\nif __name__ == '__main__':\n    deepspeed.initialize()\n"
        draft = only(folder, {"train.py": loop, "ds.json": ZERO, "job.sh": f"{line}\n"})
        assert draft.value("launcher") == launcher

    @pytest.mark.parametrize(
        ("line", "launcher"),
        [
            ("torchrun train.py --config r.yaml", "torchrun"),
            ("torchrun train.py --output_dir out", None),
            ("deepspeed train.py --config r.yaml", "deepspeed"),
        ],
    )
    def test_the_launcher_of_a_trainer_with_a_recipe(self, line: str, launcher: str | None, folder: Path) -> None:
        files = {"train.py": TRAINER, "r.yaml": RECIPE + "learning_rate: 1.0e-5\n", "job.sh": f"{line}\n"}
        assert only(folder, files).value("launcher") == launcher

    def test_a_secret_is_named_and_left_out(self, folder: Path) -> None:
        shell = (
            "accelerate launch train.py --hub_token=a1b2c3d4e5f6a7b8c9d0 --wandb_token a1b2c3d4e5f6a7b8c9d0 --seed $S\n"
        )
        draft = only(folder, {"train.py": TRAINER, "job.sh": shell})
        assert draft.remarks == [
            "job.sh:1 passes a secret (--hub_token): launch.sh takes it from $HUB_TOKEN",
            "job.sh:1 passes a secret (--wandb_token): launch.sh takes it from $WANDB_TOKEN",
        ]
        assert told(draft, "arguments") == (["--seed", "$S"], "open", "job.sh:1; fill in $S")

    def test_lines_of_a_framework_are_no_runs(self, folder: Path) -> None:
        """A page counts where no script starts a training; a program of its own starts a framework's recipes."""
        files = {"train.py": TRAINER, "job.sh": "llamafactory-cli train r.yaml\n"}
        draft = only(folder, files | {"README.md": "```bash\naccelerate launch train.py\n```\n"})
        assert draft.value("launch") == "README.md:2"


class TestFiles:
    @pytest.mark.parametrize(
        ("steps", "schedule", "asked"),
        [
            ("max_steps: 10\n", "auto", False),
            ("max_steps: 0\n", "auto", True),
            ("max_steps: -1\n", "auto", True),
            ("max_steps: '10'\n", "auto", True),
            ("", "auto", True),
            ("", 100, False),
            ("", None, False),
        ],
    )
    def test_samples_where_a_schedule_needs_the_number_of_steps(
        self, steps: str, schedule: Any, asked: bool, folder: Path
    ) -> None:
        params = "" if schedule is None else f'"scheduler": {{"params": {{"total_num_steps": "{schedule}"}}}}, '
        params = params.replace('"100"', "100")
        files = {"train.py": TRAINER, "r.yaml": RECIPE + steps, "ds.json": "{" + params + ZERO[1:]}
        draft = only(folder, files)
        assert draft.value("deepspeed") == "ds.json" and ("train_samples" in draft.guesses) is asked

    def test_a_recipe_that_brings_its_engine_is_told(self, folder: Path) -> None:
        files = {"train.py": TRAINER, "r.yaml": RECIPE + "fsdp: full_shard\ndeepspeed: ds.json\n", "ds.json": ZERO}
        assert only(folder, files).remarks == [
            f"r.yaml sets `{key}` itself: take it out, the emitted config brings it" for key in ("deepspeed", "fsdp")
        ]

    def test_a_device_of_this_machine(self, folder: Path) -> None:
        drafts(folder, {"train.py": TRAINER})
        asked: list[int] = []

        def probe() -> Any:
            asked.append(1)
            return parse_hardware("2xH100-80GB")

        (draft,) = draft_runs(folder, {}, probe)
        note = "this machine: 2xH100-80GB; name the one that trains"
        assert told(draft, "hardware") == ("this", "guessed", note) and asked == [1], "it is probed once"
        assert draft.guesses["hardware"].example == "8xA100-80GB"
        assert CPU.vendor == "cpu"

    def test_given_keys_win_and_the_name_is_the_run_s(self, folder: Path) -> None:
        draft = only(folder, {"train.py": TRAINER, "r.yaml": RECIPE}, name="mine", script="other.py", consumer=None)
        assert draft.name == "mine" and "name" not in draft.guesses
        assert told(draft, "script") == ("other.py", "given", "given") and "recipe" not in draft.guesses
        assert told(draft, "consumer")[1] == "guessed"

    def test_recipes_before_scripts_before_configs(self, folder: Path) -> None:
        files = {"a.py": TRAINER, "b.py": TRAINER, "acc.yaml": STAGED}
        assert [draft.value("script") for draft in drafts(folder, files)] == ["a.py", "b.py"]
        found = drafts(folder, {"r.yaml": RECIPE})
        assert [draft.value("recipe") for draft in found] == ["r.yaml"]
        assert drafts(folder.parent / "empty", {"notes.txt": "x"}) == []

    @pytest.mark.parametrize("name", ["zerocfg.yaml", "built/acc.yaml"])
    def test_what_zerocfg_wrote_is_passed_over(self, name: str, folder: Path) -> None:
        spec = "version: 1\nruns: {a: {consumer: trl, script: train.py}}\n"
        files = {name: spec if name == "zerocfg.yaml" else STAGED, "built/zerocfg.lock": "{}", "train.py": TRAINER}
        draft = only(folder, files)
        assert "accelerate" not in draft.guesses and draft.value("consumer") == "transformers"

    def test_a_config_that_the_launch_script_writes_is_no_file(self, folder: Path) -> None:
        line = "accelerate launch --use_deepspeed --deepspeed_config_file ds.json train.py"
        shell = f"cat > ds.json <<'EOF'\n{ZERO}EOF\n{line}\n"
        draft = only(folder, {"train.py": TRAINER, "job.sh": shell})
        assert "deepspeed" not in draft.guesses and draft.value("engine") == "deepspeed"

    def test_a_model_by_the_name_of_a_known_one(self, folder: Path) -> None:
        recipe = RECIPE + "model_name_or_path: {}\n"
        for name, expected in (
            (
                "meta-llama/Llama-2-7b-hf",
                ("meta-llama/Llama-2-7b-hf", "found", "model_name_or_path, a well-known model"),
            ),
            ("org/unknown", (None, "open", "not in the hub's cache yet: hf download org/unknown config.json")),
            ("7", (None, "open", "path of the model's config.json, or its name on the hub")),
        ):
            draft = only(folder, {"train.py": TRAINER, "r.yaml": recipe.format(name)})
            assert told(draft, "model") == expected
        assert draft.guesses["model"].example == "org/name"

    def test_a_model_of_a_folder(self, folder: Path) -> None:
        """The name may end in a slash, or be that of the file; the config of the folder is meant."""
        for name, model in (("small/", "small/config.json"), ("small/config.json", "small/config.json")):
            files = {"train.py": TRAINER, "r.yaml": f"{RECIPE}model_name_or_path: {name}\n", "small/config.json": MODEL}
            assert told(only(folder, files), "model") == (model, "found", "model_name_or_path")


def test_counts_of_no_run() -> None:
    assert infer_runs._requested_count(None, "num_processes") is None
    file: Any = SimpleNamespace(path=None)
    assert infer_runs._by_its_script(run_of(), file) is False
