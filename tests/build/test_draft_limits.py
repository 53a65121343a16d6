"""What `zerocfg init` drafts from the files of a repository, and what is told of an engine: each guard, both sides."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.build.test_road_limits import inputs_of, run_of
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.models.spec import RunSpec
from zerocfg.resolve.engine.accelerate import accelerate_keys
from zerocfg.resolve.engine.engine_selection import engine_of, launch_of_ranks, select_engine
from zerocfg.resolve.init import repository
from zerocfg.resolve.init.draft import Draft
from zerocfg.resolve.init.infer_runs import _short_name, draft_runs
from zerocfg.resolve.init.repository import model_configs
from zerocfg.resolve.init.text import spec_text
from zerocfg.resolve.line_arguments import HandedOn, line_arguments
from zerocfg.resolve.plan import Decision
from zerocfg.run.discover import Files
from zerocfg.run.link import find_runs
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.text import SourceText, Span

TRAINER = "if __name__ == '__main__':\n    Trainer()\n"
RECIPE = "output_dir: out\nper_device_train_batch_size: 2\n"
LINKED = "distributed_type: {}\ndeepspeed_config:\n  deepspeed_config_file: {}\n"
STAGED = "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n"
ZERO = '{"zero_optimization": {"stage": 2}}\n'
MODEL = '{"model_type": "llama", "hidden_size": 64}\n'


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository, on a machine whose cache of the hub is empty."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "no-hub"))
    return tmp_path / "repo"


def drafts(folder: Path, files: Mapping[str, str], **given: Any) -> list[Draft]:
    """The runs of a repository with these files, on a machine without accelerators."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return draft_runs(folder, given, lambda: parse_hardware("cpu"))


def only(folder: Path, files: Mapping[str, str], **given: Any) -> Draft:
    (draft,) = drafts(folder, files, **given)
    return draft


def told(draft: Draft, key: str) -> tuple[Any, str, str]:
    guess = draft.guesses[key]
    return guess.value, guess.how, guess.note


def line_run(folder: Path, words: str) -> Run:
    """The run of a launch line with these words behind its script."""
    for name, text in (IN_A_FOLDER | {"job.sh": f"cd sub\naccelerate launch train.py {words}\n"}).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    runs, _ = find_runs([folder], Files(), root=folder)
    (run,) = (run for run in runs if run.launch is not None)
    return run


IN_A_FOLDER = {"sub/train.py": TRAINER, "sub/ds.json": ZERO, "sub/recipe.yaml": RECIPE}
SCRIPT_WORDS = [
    ("--deepspeed ds.json --seed 1", ["--seed", "1"]),
    ("--deepspeed=ds.json --seed 1", ["--seed", "1"]),
    ("--config recipe.yaml --seed 1", ["--config", "sub/recipe.yaml", "--seed", "1"]),
    ("--config recipe.yaml", ["--config", "sub/recipe.yaml"]),
]


class TestLaunchLine:
    @pytest.mark.parametrize(
        ("line", "script"),
        [
            ("accelerate launch train.py", ("train.py", "found")),
            ("accelerate launch gone.py", ("gone.py", "open")),
            ("accelerate launch -m pkg.gone", ("pkg/gone.py", "open")),
            ("accelerate launch bin/train", ("bin/train", "found")),
            ("accelerate launch bin/gone", None),
            ("python train.py --deepspeed_config ds.json", ("train.py", "found")),
            ("python gone.py --deepspeed_config ds.json", None),
            ("accelerate launch above.py", ("above.py", "open")),
            ("cd pkg && accelerate launch main.py", ("pkg/main.py", "found")),
        ],
    )
    def test_a_line_counts_by_its_script(self, folder: Path, line: str, script: tuple[str, str] | None) -> None:
        """One that is not there is asked for, where it is sure to be one; outside of the repository nothing is."""
        files = dict.fromkeys(("train.py", "bin/train", "pkg/main.py", "other.py", "../above.py"), TRAINER)
        found = drafts(folder, files | {"ds.json": ZERO, "job.sh": f"{line}\naccelerate launch other.py\n"})
        expected = [script, ("other.py", "found")] if script else [("other.py", "found")]
        assert [told(draft, "script")[:2] for draft in found] == expected

    def test_a_missing_script_names_its_run(self, folder: Path) -> None:
        draft = only(folder, {"run.sh": "accelerate launch finetune.py\n"})
        assert draft.name == "finetune"
        assert told(draft, "script")[2] == "run.sh:1 names it, but it is not there: correct the path"

    @pytest.mark.parametrize(
        ("words", "sources"),
        [
            ("--config_file staged.yaml", {"accelerate": "staged.yaml"}),
            ("--config_file linked.yaml", {"accelerate": "linked.yaml"}),
            (
                "--config_file none.yaml --deepspeed_config_file ds.json",
                {"accelerate": "none.yaml", "deepspeed": "ds.json"},
            ),
            (
                "--config_file staged.yaml --deepspeed_config_file ds.json",
                {"accelerate": "staged.yaml", "deepspeed": "ds.json"},
            ),
            ("--deepspeed_config_file ds.json", {"deepspeed": "ds.json"}),
            ("--use_fsdp", {"engine": "fsdp"}),
            ("--use_deepspeed", {"engine": "deepspeed"}),
        ],
    )
    def test_its_sources(self, folder: Path, words: str, sources: dict[str, str]) -> None:
        """A DeepSpeed file that the accelerate config names comes with that."""
        files = {"train.py": TRAINER, "ds.json": ZERO, "job.sh": f"accelerate launch {words} train.py\n"}
        files |= {"staged.yaml": STAGED, "linked.yaml": LINKED.format("DEEPSPEED", "ds.json")}
        draft = only(folder, files | {"none.yaml": LINKED.format("DEEPSPEED", "none")})
        found = {key: draft.value(key) for key in ("accelerate", "deepspeed", "engine") if key in draft.guesses}
        assert found == sources

    @pytest.mark.parametrize(
        ("words", "remarks"),
        [
            ("--num_processes 2 --main_process_port 1", []),
            ("--num_processes 2 --mixed_precision bf16 --dynamo_backend no", []),
            (
                "--mixed_precision bf16 --num_cpu_threads_per_process 3 --enable_cpu_affinity",
                [
                    "job.sh:1 passes --enable_cpu_affinity, --num_cpu_threads_per_process to its launcher, "
                    "which launch.sh does not"
                ],
            ),
        ],
    )
    def test_options_that_get_lost_are_told(self, folder: Path, words: str, remarks: list[str]) -> None:
        draft = only(folder, {"train.py": TRAINER, "job.sh": f"accelerate launch {words} train.py\n"})
        assert draft.remarks == remarks

    @pytest.mark.parametrize(("words", "arguments"), SCRIPT_WORDS)
    def test_it_stands_for_the_words_of_its_script(self, folder: Path, words: str, arguments: list[str]) -> None:
        draft = only(folder, IN_A_FOLDER | {"job.sh": f"cd sub\naccelerate launch train.py {words}\n"})
        assert told(draft, "launch") == ("job.sh:2", "found", "its launcher options and arguments count")
        assert "arguments" not in draft.guesses

    @pytest.mark.parametrize(("words", "arguments"), SCRIPT_WORDS)
    def test_words_that_only_the_shell_knows_are_copied(self, folder: Path, words: str, arguments: list[str]) -> None:
        """Without the DeepSpeed config, and the recipe by its path from the root."""
        draft = only(folder, IN_A_FOLDER | {"job.sh": f"cd sub\naccelerate launch train.py {words} --run_name $NAME\n"})
        assert told(draft, "arguments") == ([*arguments, "--run_name", "$NAME"], "open", "job.sh:2; fill in $NAME")
        assert draft.value("launch") == "job.sh:2"

    @pytest.mark.parametrize(("words", "arguments"), SCRIPT_WORDS)
    def test_words_that_the_emitted_job_hands_on(self, folder: Path, words: str, arguments: list[str]) -> None:
        run = line_run(folder, words)
        assert line_arguments(run, "transformers", "sub/recipe.yaml") == [HandedOn(word, True) for word in arguments]

    @pytest.mark.parametrize(
        ("words", "consumer", "recipe", "arguments"),
        [
            ("--deepspeed --seed 1", "deepspeed", None, ["--seed", "1"]),
            ("--deepspeed --seed 1", "transformers", None, ["--deepspeed", "--seed", "1"]),
            ("--seed 1 --deepspeed", "deepspeed", None, ["--seed", "1"]),
            ("--deepspeed_config=ds.json --seed 1", "deepspeed", None, ["--seed", "1"]),
            ("--deepspeed_config ds.json --seed 1", "deepspeed", None, ["--seed", "1"]),
            ("--config recipe.yaml", "trl", None, ["--config", "recipe.yaml"]),
            ("--config other.yaml", "trl", "sub/recipe.yaml", ["--config", "other.yaml"]),
        ],
    )
    def test_words_handed_on_by_consumer_and_recipe(
        self, folder: Path, words: str, consumer: str, recipe: str | None, arguments: list[str]
    ) -> None:
        assert [word.text for word in line_arguments(line_run(folder, words), consumer, recipe)] == arguments

    def test_a_word_with_a_variable_is_not_known(self, folder: Path) -> None:
        found = line_arguments(line_run(folder, "--seed $SEED --run_name a"), "transformers", None)
        assert [(word.text, word.known) for word in found] == [
            ("--seed", True),
            ("$SEED", False),
            ("--run_name", True),
            ("a", True),
        ]

    @pytest.mark.parametrize(
        ("words", "hardware", "example"),
        [
            ("--num_processes 8 --num_machines 2", "2x4xcpu", "2x4xA100-80GB"),
            ("--num_processes 2 --num_machines 4", "4x1xcpu", "4x1xA100-80GB"),
            ("--num_processes 8 --num_machines 1", "8xcpu", "8xA100-80GB"),
            ("--num_processes 1", "1xcpu", "1xA100-80GB"),
            ("--multi_gpu --num_processes $N", "1xcpu", "8xA100-80GB"),
        ],
    )
    def test_hardware_of_as_many_processes(self, folder: Path, words: str, hardware: str, example: str) -> None:
        draft = only(folder, {"train.py": TRAINER, "job.sh": f"accelerate launch {words} train.py\n"})
        note = f"this machine, which has no accelerator; name the one that trains, e.g. {example}"
        assert told(draft, "hardware") == (hardware, "guessed", note)

    def test_no_machine_is_probed_where_the_hardware_is_given(self, folder: Path) -> None:
        drafts(folder, {"train.py": TRAINER})
        (draft,) = draft_runs(folder, {"hardware": "8xH100"}, lambda: pytest.fail("probed"))
        assert told(draft, "hardware") == ("8xH100", "given", "given")

    def test_forty_runs_are_enough(self, folder: Path) -> None:
        lines = "".join(f"accelerate launch train.py --seed {seed}\n" for seed in range(41))
        found = drafts(folder, {"train.py": TRAINER, "job.sh": lines})
        assert [draft.value("launch") for draft in found] == [f"job.sh:{number}" for number in range(1, 41)]

    @pytest.mark.parametrize("line", ["--deepspeed_config_file other.json train.py", "train.py --deepspeed other.json"])
    def test_a_file_that_the_line_names_beats_that_of_the_config(self, folder: Path, line: str) -> None:
        files = {"train.py": TRAINER, "acc.yaml": LINKED.format("DEEPSPEED", "ds.json"), "ds.json": ZERO}
        files |= {"other.json": ZERO, "job.sh": f"accelerate launch --config_file acc.yaml {line} --output_dir out\n"}
        draft = only(folder, files)
        assert (draft.value("accelerate"), draft.value("deepspeed")) == ("acc.yaml", "other.json")

    @pytest.mark.parametrize(("switch", "kind"), [("--use_fsdp", "FSDP"), ("--use_deepspeed", "DEEPSPEED"), ("", None)])
    @pytest.mark.parametrize("written", ["DEEPSPEED", "FSDP"])
    def test_a_switch_beats_the_config(self, folder: Path, switch: str, kind: str | None, written: str) -> None:
        """The line is where the run starts from, so that nothing of it is lost that would have to be told."""
        files = {"train.py": TRAINER, "acc.yaml": STAGED.replace("DEEPSPEED", written)}
        files["job.sh"] = f"accelerate launch --config_file acc.yaml {switch} train.py --output_dir out\n"
        draft = only(folder, files)
        assert (draft.value("launch"), draft.value("accelerate"), draft.remarks) == ("job.sh:1", "acc.yaml", [])
        (folder / "zerocfg.yaml").write_text(spec_text([draft]))
        runs, _ = find_runs([folder / "zerocfg.yaml"], Files(), root=folder)
        (run,) = (run for run in runs if run.spec is not None)
        spec = RunSpec(consumer="transformers", script="train.py")
        assert engine_of(run, spec) == (kind or written).lower()

    def test_a_model_on_the_line_beats_that_of_the_recipe(self, folder: Path) -> None:
        files = {"train.py": TRAINER, "r.yaml": RECIPE + "model_name_or_path: a\nlearning_rate: 1.0e-5\n"}
        files |= {f"{name}/config.json": MODEL for name in ("a", "b")}
        files["job.sh"] = "accelerate launch train.py --config r.yaml --model_name_or_path b\n"
        assert only(folder, files).value("model") == "b/config.json"


class TestFiles:
    @pytest.mark.parametrize(
        ("root", "recipe", "name"),
        [
            ("repo", "dpo/sft.yaml", "sft"),
            ("repo", "sft/config.yaml", "sft"),
            ("repo", "config.yaml", "repo"),
            ("config", "config.yaml", "train"),
            ("repo", f"{'x' * 61}.yaml", "x" * 60),
        ],
    )
    def test_a_run_is_named_by_the_first_word_that_says_something(
        self, tmp_path: Path, root: str, recipe: str, name: str
    ) -> None:
        assert only(tmp_path / root, {recipe: RECIPE}).name == name

    def test_runs_have_names_of_their_own(self, folder: Path) -> None:
        found = drafts(folder, dict.fromkeys(("a/x.yaml", "b/x.yaml", "x-2.yaml"), RECIPE))
        assert {draft.value("recipe"): draft.name for draft in found} == {
            "a/x.yaml": "x",
            "b/x.yaml": "x-3",
            "x-2.yaml": "x-2",
        }

    def test_the_name_of_a_file_outside(self, folder: Path) -> None:
        text = SourceText("../job.sh", "")
        for path, name in (("job.sh", "job.sh"), ("../job.sh", "../job.sh")):
            assert _short_name(SourceFile(text.name, "launch", text, path=folder / path), folder) == name

    def test_hardware_that_no_file_counts(self, folder: Path) -> None:
        note = "this machine, which has no accelerator; name the one that trains, e.g. 8xA100-80GB"
        assert told(only(folder, {"train.py": TRAINER}), "hardware") == ("1xcpu", "guessed", note)

    def test_one_process_is_a_count(self, folder: Path) -> None:
        draft = only(folder, {"acc.yaml": "distributed_type: 'NO'\nnum_processes: 1\nnum_machines: 1\n"})
        assert draft.guesses["hardware"].example == "1xA100-80GB"

    def test_a_config_that_is_given_takes_its_recipe_and_its_number_of_processes(self, folder: Path) -> None:
        configs = {f"{name}.yaml": STAGED + f"num_processes: {count}\n" for name, count in (("a", 2), ("b", 4))}
        files = {**configs, "recipe.yaml": RECIPE}
        draft = only(folder, files, accelerate="b.yaml")
        assert told(draft, "recipe") == ("recipe.yaml", "found", "the only one")
        assert told(draft, "hardware") == (None, "open", "which accelerators? b.yaml starts 4 processes")
        assert draft.guesses["hardware"].example == "4xA100-80GB"
        assert "recipe" not in only(folder, files, script="train.py").guesses

    @pytest.mark.parametrize(
        ("config", "taken"),
        [
            ("compute_environment: LOCAL_MACHINE\n", True),
            ("distributed_type: NO\n", True),
            ("distributed_type: 'NO'\n", True),
            ("distributed_type: MULTI_GPU\n", True),
            ("distributed_type: FSDP\n", False),
            (STAGED, False),
            (LINKED.format("'NO'", "ds.json"), False),
        ],
    )
    def test_a_deepspeed_config_beside_one_of_accelerate(self, folder: Path, config: str, taken: bool) -> None:
        """It stands for itself where the other names no engine, and does not name the file."""
        draft = only(folder, {"acc.yaml": config, "ds.json": ZERO})
        assert draft.value("accelerate") == "acc.yaml"
        assert draft.value("deepspeed") == ("ds.json" if taken else None)

    def test_of_several_three_others_are_named(self, folder: Path) -> None:
        draft = only(folder, {f"{name}.yaml": STAGED for name in "abcde"})
        assert told(draft, "accelerate") == (
            "a.yaml",
            "guessed",
            "one of several; others: b.yaml, c.yaml, d.yaml",
        )

    @pytest.mark.parametrize(
        ("others", "how", "note"),
        [
            ([], "found", "the only training script here"),
            (["z.py"], "guessed", "the nearest training script"),
        ],
    )
    def test_a_script_among_others(self, folder: Path, others: list[str], how: str, note: str) -> None:
        draft = only(folder, {"recipe.yaml": RECIPE} | dict.fromkeys(["a.py", *others], TRAINER))
        assert told(draft, "script") == ("a.py", how, note)

    @pytest.mark.parametrize(
        ("recipe", "script"),
        [("x-dpo", "run_dpo.py"), ("ax-dpo", "run_dpo.py"), ("max-dpo", "amax.py")],
    )
    def test_short_words_of_a_name_choose_no_script(self, folder: Path, recipe: str, script: str) -> None:
        draft = only(folder, {f"{recipe}.yaml": RECIPE, "amax.py": TRAINER, "run_dpo.py": TRAINER})
        assert draft.value("script") == script

    def test_who_reads_a_recipe(self, folder: Path) -> None:
        """Without a script: whom its DeepSpeed config is for, else what its keys say."""
        found = drafts(
            folder,
            {
                "plain.yaml": RECIPE,
                "trl.yaml": RECIPE + "max_length: 512\n",
                "zero.yaml": RECIPE + "deepspeed: ds.json\n",
                "ds.json": ZERO,
            },
        )
        assert {draft.name: told(draft, "consumer") for draft in found} == {
            "plain": ("transformers", "guessed", "by the keys of the recipe"),
            "trl": ("trl", "guessed", "by the keys of the recipe"),
            "zero": ("transformers", "found", "its files"),
        }
        remark = "zero.yaml sets `deepspeed` itself: take it out, the emitted config brings it"
        assert {draft.name: draft.remarks for draft in found} == {"plain": [], "trl": [], "zero": [remark]}

    @pytest.mark.parametrize(
        ("files", "consumer"),
        [
            ({"acc.yaml": STAGED}, "accelerate"),
            ({"ds.json": ZERO}, "transformers"),
            ({"train.py": "", "job.sh": "accelerate launch train.py\n"}, "accelerate"),
        ],
    )
    def test_who_reads_a_config_when_nothing_tells(self, folder: Path, files: dict[str, str], consumer: str) -> None:
        note = "nothing tells who reads the config: deepspeed, accelerate, ...?"
        assert told(only(folder, files), "consumer") == (consumer, "guessed", note)

    def test_a_script_that_a_line_names_is_read_whatever_its_name(self, folder: Path) -> None:
        draft = only(folder, {"test_all.py": TRAINER, "job.sh": "accelerate launch test_all.py\n"})
        assert told(draft, "consumer") == ("transformers", "found", "test_all.py calls a Trainer")

    @pytest.mark.parametrize(
        ("recipe", "script", "asked"),
        [
            (RECIPE + "max_length: 512\n", "import trl\n" + TRAINER, False),
            (RECIPE, "import trl\n" + TRAINER, True),
            (RECIPE + "max_length: 512\n", TRAINER, True),
        ],
    )
    def test_the_length_of_a_sample(self, folder: Path, recipe: str, script: str, asked: bool) -> None:
        """TRL's own key says it, to TRL."""
        draft = only(folder, {"recipe.yaml": recipe, "train.py": script})
        assert ("sequence_length" in draft.guesses) is asked

    @pytest.mark.parametrize(
        ("models", "named", "expected"),
        [
            (["model"], "", ("model/config.json", "found", "the config.json here")),
            (
                ["model"],
                "org/small",
                ("model/config.json", "guessed", "the config.json here; org/small is not in the hub's cache"),
            ),
            (["a", "sub"], "", ("sub/config.json", "guessed", "the config.json here")),
            (["a", "b"], "", ("a/config.json", "guessed", "one of several config.json")),
            (["a", "b"], "b", ("b/config.json", "found", "model_name_or_path")),
            ([], "", (None, "open", "path of the model's config.json, or its name on the hub")),
        ],
    )
    def test_the_model(self, folder: Path, models: list[str], named: str, expected: Any) -> None:
        """The one that the launch line names, else the one nearest to the script; other JSON is none."""
        files = {"sub/train.py": TRAINER, "tokens/config.json": '{"model": 1}'}
        line = (
            f"accelerate launch sub/train.py --model_name_or_path {named}"
            if named
            else "accelerate launch sub/train.py"
        )
        draft = only(folder, files | {f"{name}/config.json": MODEL for name in models} | {"job.sh": line})
        assert told(draft, "model") == expected

    def test_files_that_may_be_a_model(self, folder: Path) -> None:
        """Two hundred are enough; none has a mebibyte."""
        drafts(
            folder, {"a/config.json": " " * (1024 * 1024 - 1), "b/config.json": " " * 1024 * 1024, "my_config.json": ""}
        )
        (folder / "config.json").symlink_to("nowhere.json")
        assert model_configs(folder) == [folder / "a/config.json"]
        drafts(folder, {f"c/{number}/config.json": "" for number in range(200)})
        assert len(model_configs(folder / "c")) == 200
        drafts(folder, {"c/d/config.json": ""})
        assert len(model_configs(folder / "c")) == 200


class TestScripts:
    @pytest.mark.parametrize(
        ("name", "text", "found"),
        [
            ("train.py", TRAINER, True),
            ("sub/train.py", TRAINER, True),
            (".hidden/train.py", TRAINER, False),
            ("node_modules/train.py", TRAINER, False),
            ("test_train.py", TRAINER, False),
            ("train_test.py", TRAINER, False),
            ("conftest.py", TRAINER, False),
            ("setup.py", TRAINER, False),
            ("setups.py", TRAINER, True),
            ("train.py", "def main():\n    Trainer()\n", False),
            ("train.py", "def main():\n    Trainer()\n\n\nmain()\n", True),
            ("train.py", "Trainer(\n", False),
            ("train.py", "print('__main__')\n", False),
        ],
    )
    def test_what_is_a_training_script(self, tmp_path: Path, name: str, text: str, found: bool) -> None:
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        assert dict(repository.scripts(tmp_path)) == ({path.resolve(): "transformers"} if found else {})

    @pytest.mark.parametrize(("size", "calls"), [(1024 * 1024, "transformers"), (1024 * 1024 + 1, None)])
    def test_larger_than_a_mebibyte_is_none(self, tmp_path: Path, size: int, calls: str | None) -> None:
        path = tmp_path / "train.py"
        path.write_bytes(TRAINER.encode().ljust(size))
        assert repository.calls_of(path) == calls

    def test_after_two_thousand_files_none_is_looked_at(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        train = tmp_path / "train.py"
        train.write_text(TRAINER)
        for before, count in ((1999, 1), (2000, 0)):
            files = [tmp_path / "gone.py"] * before + [train]
            monkeypatch.setattr(repository, "walk", lambda folder, suffix, files=files: iter(files))
            assert len(list(repository.scripts(tmp_path))) == count


def test_comments_stand_below_each_other_up_to_a_width() -> None:
    """Comments start two spaces behind the longest line, or behind the 44th character."""
    draft = Draft("a")
    draft.add("consumer", "trl", "found", "here")
    draft.add("script", "s" * 60, "found", "there")
    lines = spec_text([draft]).splitlines()[-2:]
    assert lines == [f"    consumer: trl{' ' * 31}  # found: here", f"    script: {'s' * 60}  # found: there"]


@pytest.mark.parametrize(
    ("engine", "hardware", "reason"),
    [
        ("deepspeed", "8xA100-80GB", "the engine is DeepSpeed (nobody sets it)"),
        ("fsdp", "8xA100-80GB", "the engine is FSDP (nobody sets it)"),
        ("ddp", "8xA100-80GB", "8 processes without sharding"),
        (
            "ddp",
            "8xcpu",
            "8 processes without sharding; for MULTI_CPU accelerate starts one process unless mpirun is there",
        ),
    ],
)
def test_why_an_engine(engine: str, hardware: str, reason: str) -> None:
    settings = {name: Decision(8, "", "hardware") for name in ("num_machines", "num_processes")}
    found = accelerate_keys(inputs_of(run_of("accelerate"), engine, hardware), settings, 8, 1)
    assert found["distributed_type"].reason == reason


def test_one_rank_on_the_host_is_told_so() -> None:
    settings = {name: Decision(1, "", "hardware") for name in ("num_machines", "num_processes")}
    found = accelerate_keys(inputs_of(run_of("accelerate"), "ddp", "1xcpu"), settings, 1, 1)
    assert found["use_cpu"] == Decision(True, "1xcpu has no accelerator", "hardware")


def test_a_launch_that_no_file_writes() -> None:
    """It is no place in a text, and switches DeepSpeed on where no accelerate config does."""
    line, _ = launch_of_ranks("torchrun", 1, 8)
    assert line.span == Span(0, 0)
    found = select_engine(inputs_of(run_of("transformers")))
    assert found.run.flags["use_deepspeed"].value is True
