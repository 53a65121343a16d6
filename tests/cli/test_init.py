"""`zerocfg init`: a first spec from what is there, honest about what is guessed."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import Outcome
from tests.conftest import ROOT
from zerocfg.hardware.catalogue import parse_hardware
from zerocfg.resolve.init.infer_runs import draft_runs
from zerocfg.resolve.init.text import spec_text
from zerocfg.resolve.spec.spec_file import read_spec

Zerocfg = Callable[..., Outcome]

TRAINER = "from transformers import Trainer\n\nif __name__ == '__main__':\n    Trainer().train()\n"
PARSED = (
    "from transformers import HfArgumentParser, Trainer, TrainingArguments\n\n"
    "(arguments,) = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
    "Trainer(args=arguments).train()\n"
)
OWN_LOOP = "import deepspeed\n\nif __name__ == '__main__':\n    deepspeed.initialize()\n"
LOOP = "from accelerate import Accelerator\n\naccelerator = Accelerator()\nprint(accelerator)\nmain()\n"
SFT = "from trl import SFTTrainer, TrlParser\n\nif __name__ == '__main__':\n    SFTTrainer()\n"
RECIPE = "output_dir: out\nmax_steps: 10\nper_device_train_batch_size: 2\nbf16: true\nsave_strategy: 'no'\n"
SFT_RECIPE = RECIPE + "max_length: 512\ndataset_name: trl-lib/Capybara\nmodel_name_or_path: org/small\n"
ACCELERATE = "distributed_type: DEEPSPEED\nnum_processes: 4\nnum_machines: 1\ndeepspeed_config:\n  zero_stage: 2\n"
DEEPSPEED = (
    '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", '
    '"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "gradient_clipping": "auto"}\n'
)
MODEL = '{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64}\n'
LAUNCH = (
    "export OMP_NUM_THREADS=4\naccelerate launch --num_processes 8 train.py \\\n"
    "  --per_device_train_batch_size 2 --bf16 true --output_dir out --max_steps 10\n"
)


@pytest.fixture(autouse=True)
def no_accelerator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The same machine everywhere: no accelerator, an empty cache of the hub."""
    monkeypatch.setattr("zerocfg.cli.commands.init.probe", lambda: parse_hardware("cpu"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path.parent / "no-hub"))


def write(**files: str) -> None:
    for name, text in files.items():
        path = Path(name.replace("__", "/").replace("_yaml", ".yaml").replace("_json", ".json"))
        path = path if path.suffix else path.with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def runs(folder: Path = Path()) -> dict[str, dict[str, Any]]:
    found = read_spec(folder / "zerocfg.yaml")
    assert found.problems == []
    return {name: run.data for name, run in found.runs.items()}


EXAMPLES = sorted(
    path.parent.name
    for path in ROOT.glob("examples/*/zerocfg.yaml")
    if [run.data["script"] for run in read_spec(path).runs.values()] == ["train.py"]
)
NEEDS = {
    "zero2-cpu-offload": ["--hardware", "4xA100-40GB", "--train-samples", "52002"],
    "zero3-nvme": ["--hardware", "8xH100-80GB"],
}
"""What no file of an example tells, and without which it cannot be built on a machine without accelerators."""
TELLING = ("consumer", "script", "model", "recipe", "accelerate", "deepspeed")


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_found_again(zerocfg: Zerocfg, name: str) -> None:
    """Without its spec: the same files in the same roles."""
    shutil.copytree(ROOT / "examples" / name, name, ignore=shutil.ignore_patterns("runs", "built", "__pycache__"))
    (own,) = runs(Path(name)).values()
    (Path(name) / "zerocfg.yaml").unlink()
    done = zerocfg("init", name)
    assert done.code == 0, done.err
    ((found, run),) = runs(Path(name)).items()
    assert found == name
    expected = {key: own[key] for key in TELLING if key in own and not own[key].startswith("..")}
    assert {key: run.get(key) for key in expected} == expected


@pytest.mark.parametrize("name", ["quickstart", "sft-zero2", "zero2-cpu-offload", "zero3-nvme", "ddp"])
def test_an_example_builds_again(zerocfg: Zerocfg, name: str) -> None:
    shutil.copytree(
        ROOT / "examples" / name, name, ignore=shutil.ignore_patterns("runs", "built", "__pycache__", "zerocfg.yaml")
    )
    assert zerocfg("init", name, *NEEDS.get(name, [])).code == 0
    done = zerocfg("build", name, "-o", "out")
    assert done.code == 0, done.out + done.err
    assert Path("out", name, "launch.sh").is_file()


@pytest.mark.parametrize("flags", ["", "--use_deepspeed "])
def test_only_a_launch_script(zerocfg: Zerocfg, flags: str) -> None:
    write(train=TRAINER)
    Path("finetune.sh").write_text(LAUNCH.replace("train.py", flags + "train.py"))
    done = zerocfg("init")
    assert done.code == 0, done.err
    expected = {"consumer": "transformers", "script": "train.py", "launch": "finetune.sh:2", "hardware": "8xcpu"}
    assert runs() == {"finetune": expected | ({"engine": "deepspeed"} if flags else {})}
    assert "guessed hardware: 8xcpu" in done.err and "finetune.sh:2" in Path("zerocfg.yaml").read_text()
    built = zerocfg("build", ".", "-o", "out", "--hardware", "8xA100-80GB")
    if flags:
        assert "no source sets the ZeRO stage, and the spec names no model" in built.err
        write(config_json=(ROOT / "examples/quickstart/model/config.json").read_text())
        assert zerocfg("init", "--force").code == 0
        built = zerocfg("build", ".", "-o", "out", "--hardware", "8xA100-80GB")
    assert built.code == 0, built.out + built.err
    assert "8 ranks * 2 samples" in built.out  # the options of the launch line are read


def test_launch_lines_with_files(zerocfg: Zerocfg) -> None:
    write(sft=SFT, own=OWN_LOOP, configs__sft_yaml=SFT_RECIPE, configs__acc_yaml=ACCELERATE, ds_json=DEEPSPEED)
    Path("scripts").mkdir()
    Path("scripts/jobs.sh").write_text(
        "accelerate launch --config_file configs/acc.yaml sft.py --config configs/sft.yaml\n"
        "accelerate launch --config_file configs/acc.yaml sft.py --config configs/sft.yaml --seed $SEED\n"
        "deepspeed --num_gpus 2 own.py --epochs 3 --deepspeed --deepspeed_config ds.json\n"
        "python sft.py --config configs/sft.yaml\n"
    )
    done = zerocfg("init")
    assert done.code == 0, done.err
    found = runs()
    sft = {"consumer": "trl", "script": "sft.py", "recipe": "configs/sft.yaml", "accelerate": "configs/acc.yaml"}
    assert found["jobs"] == {**sft, "launch": "scripts/jobs.sh:1"}
    words = ["--config", "configs/sft.yaml", "--seed", "$SEED"]
    assert found["jobs-2"] == {**sft, "launch": "scripts/jobs.sh:2", "arguments": words}
    assert found["jobs-3"] == {
        "consumer": "deepspeed",
        "script": "own.py",
        "launch": "scripts/jobs.sh:3",
        "deepspeed": "ds.json",
        "launcher": "deepspeed",
    }
    assert "open hardware: (which accelerators? --num_gpus asks for 2 on each of 1 node(s))" in done.err
    assert "fill in $SEED" in done.err and "hf download org/small config.json" in done.err


OPTIONS = (
    "--mixed_precision bf16 --num_processes 8 --use_fsdp --fsdp_version 2 --fsdp_auto_wrap_policy "
    "TRANSFORMER_BASED_WRAP --fsdp_transformer_layer_cls_to_wrap LlamaDecoderLayer --fsdp_state_dict_type "
    "FULL_STATE_DICT --dynamo_backend inductor"
)
SECRET = "hf_" + "abcdefghij" * 3


def exported(words: list[str]) -> dict[str, str]:
    """What accelerate's real launcher exports for the words behind `accelerate launch`."""
    from accelerate.commands import launch
    from accelerate.utils.launch import prepare_multi_gpu_env

    arguments = launch._validate_launch_command(launch.launch_command_parser().parse_args(words))[0]
    found = prepare_multi_gpu_env(arguments)
    return {name: value for name, value in found.items() if name.startswith(("FSDP_", "ACCELERATE_"))}


@pytest.mark.libs
def test_options_of_the_launcher_are_kept(zerocfg: Zerocfg) -> None:
    write(train=PARSED)
    Path("train.sh").write_text(f"accelerate launch {OPTIONS} train.py --output_dir out --max_steps 10\n")
    assert zerocfg("init").code == 0
    built = zerocfg("build", ".", "-o", "out", "--hardware", "8xA100-80GB")
    assert built.code == 0, built.out + built.err
    (config,) = Path("out").glob("*/accelerate.yaml")
    assert exported(["--config_file", str(config), "train.py"]) == exported([*OPTIONS.split(), "train.py"])
    assert "train.py --output_dir out --max_steps 10 " in (config.parent / "launch.sh").read_text()


def test_a_secret_of_a_line_is_written_nowhere(zerocfg: Zerocfg, monkeypatch: pytest.MonkeyPatch) -> None:
    """launch.sh reads it from a variable, and stops without it."""
    write(train=PARSED)
    other = "0123456789abcdef" * 2
    line = f"accelerate launch --num_processes 2 train.py --hub_token {SECRET} --max_steps 10"
    Path("train.sh").write_text(f"export WANDB_API_KEY={other}\n{line}\n{line} --seed $SEED\n")
    done = zerocfg("init")
    assert "passes a secret (--hub_token): launch.sh takes it from $HUB_TOKEN" in done.err
    first, second = runs().values()
    assert "arguments" not in first and second["arguments"] == ["--max_steps", "10", "--seed", "$SEED"]
    built = zerocfg("build", ".", "-o", "out", "--run", next(iter(runs())))
    assert built.code == 0, built.out + built.err
    assert "launch.sh takes a secret from the variable HUB_TOKEN" in built.out
    assert "not set by launch.sh: WANDB_API_KEY" in built.out
    texts = [path.read_text() for path in (Path("zerocfg.yaml"), *Path("out").glob("*/*"))]
    assert len(texts) == 4 and not any(secret in text for text in texts for secret in (SECRET, other))
    (script,) = Path("out").glob("*/launch.sh")
    Path("bin").mkdir()
    Path("bin/accelerate").write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    Path("bin/accelerate").chmod(0o755)
    monkeypatch.setenv("PATH", str(Path("bin").resolve()), prepend=":")
    monkeypatch.delenv("HUB_TOKEN", raising=False)
    without = subprocess.run(["bash", script], capture_output=True, text=True, check=False)
    assert without.returncode != 0 and "HUB_TOKEN" in without.stderr
    monkeypatch.setenv("HUB_TOKEN", SECRET)
    words = subprocess.run(["bash", script], capture_output=True, text=True, check=True).stdout.split()
    assert words[-5:] == ["train.py", "--hub_token", SECRET, "--max_steps", "10"]


def test_a_config_that_the_launch_script_writes(zerocfg: Zerocfg) -> None:
    write(train=PARSED)
    config = DEEPSPEED.replace('"stage": 2', '"stage": 1')
    Path("train.sh").write_text(
        f"cat > ds.json <<'EOF'\n{config}EOF\n"
        "accelerate launch --use_deepspeed --deepspeed_config_file ds.json --num_processes 2 train.py "
        "--per_device_train_batch_size 3 --bf16 true --output_dir out --max_steps 10\n"
    )
    assert zerocfg("init").code == 0
    (run,) = runs().values()
    assert "deepspeed" not in run and run["launch"] == "train.sh:4"
    built = zerocfg("build", ".", "-o", "out", "--hardware", "2xA100-80GB")
    assert built.code == 0, built.out + built.err
    (emitted,) = Path("out").glob("*/ds_config.json")
    found = json.loads(emitted.read_text())
    assert (found["zero_optimization"]["stage"], found["train_micro_batch_size_per_gpu"]) == (1, 3)


@pytest.mark.parametrize(
    ("head", "expected", "told"),
    [
        ("#SBATCH --gres=gpu:8\n#SBATCH --nodes=2\n", None, "2x8xA100-80GB"),
        ("#SBATCH --gpus-per-node=4\n", None, "4xA100-80GB"),
        ("#SBATCH --gres=gpu:H100-80GB:4\n", "4xH100-80GB", ""),
        ("#SBATCH --gres=gpu:quadro:4\n", None, "asks for 4 of quadro"),
        ("export CUDA_VISIBLE_DEVICES=0,1,3\n", None, "3xA100-80GB"),
        ("#SBATCH --cpus-per-task=4\n", "1xcpu", "this machine"),
    ],
)
def test_words_of_the_hardware(zerocfg: Zerocfg, head: str, expected: str | None, told: str) -> None:
    write(train=TRAINER)
    Path("job.sh").write_text(f"#!/bin/bash\n{head}accelerate launch --num_machines $N train.py --max_steps 10\n")
    assert zerocfg("init").code == 0
    (run,) = runs().values()
    assert run.get("hardware") == expected
    assert told in Path("zerocfg.yaml").read_text()


def test_a_model_of_tests_is_none(zerocfg: Zerocfg) -> None:
    write(train=TRAINER, tests__data__config_json=MODEL, tokenizer__config_json=MODEL)
    Path("job.sh").write_text("accelerate launch train.py --max_steps 10\n")
    assert zerocfg("init").code == 0
    assert "model" not in next(iter(runs().values()))
    write(small__config_json=MODEL)
    assert zerocfg("init", "--force").code == 0
    assert next(iter(runs().values()))["model"] == "small/config.json"


@pytest.mark.parametrize(
    ("launch", "said"),
    [
        ("job.sh:1", "job.sh:1 is no launch line that starts a training"),
        ("job.sh", "job.sh is no launch line"),  # there are two
        ("other.sh:2", "there is no file 'other.sh'"),
        ("job.sh:3", "$SEED of job.sh:3 is known to the running shell alone"),
    ],
)
def test_a_launch_that_is_none(zerocfg: Zerocfg, launch: str, said: str) -> None:
    write(train=PARSED)
    line = "accelerate launch --num_processes 2 train.py --output_dir out --max_steps 10"
    Path("job.sh").write_text(f"echo start\n{line}\n{line} --seed $SEED\n")
    spec = "version: 1\nruns:\n  a: {consumer: transformers, script: train.py, hardware: 2xA100-80GB, launch: '%s'}\n"
    Path("zerocfg.yaml").write_text(spec % launch)
    done = zerocfg("build", ".", "-o", "out")
    assert done.code == 1 and said in done.err, done.out + done.err


def test_a_readme_counts_where_no_job_is_written(zerocfg: Zerocfg) -> None:
    write(train=TRAINER, other=TRAINER)
    Path("README.md").write_text("```bash\naccelerate launch other.py --max_steps 10\n```\n")
    assert zerocfg("init").code == 0
    assert [run["script"] for run in runs().values()] == ["other.py"]
    Path("job.sh").write_text("accelerate launch train.py --max_steps 10\n")
    assert zerocfg("init", "--force").code == 0
    assert [run["script"] for run in runs().values()] == ["train.py"]


def test_a_script_beside_its_launch_line(zerocfg: Zerocfg) -> None:
    write(jobs__train=TRAINER)
    Path("jobs/run.sh").write_text("accelerate launch train.py --max_steps 10\n")
    assert zerocfg("init").code == 0
    assert [run["script"] for run in runs().values()] == ["jobs/train.py"]


@pytest.mark.parametrize(("steps", "asked"), [(10, False), (1, False), (-1, True), (0, True)])
def test_samples_are_asked_for_where_epochs_decide(zerocfg: Zerocfg, steps: int, asked: bool) -> None:
    """A schedule of DeepSpeed's own needs its number of steps."""
    write(train=TRAINER, recipe_yaml=RECIPE.replace("max_steps: 10", f"max_steps: {steps}"))
    scheduler = '"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": "auto"}}, "zero_opt'
    write(ds_json=DEEPSPEED.replace('"zero_opt', scheduler))
    done = zerocfg("init")
    assert done.code == 0 and ("open train_samples:" in done.err) is asked, done.err


def test_a_value_stays_on_its_line(zerocfg: Zerocfg) -> None:
    write(train=TRAINER)
    words = ["--note", "é" + " word" * 40]
    Path("job.sh").write_text(f"accelerate launch train.py {words[0]} '{words[1]}' $MORE\n", encoding="utf-8")
    assert zerocfg("init").code == 0
    assert f"[{words[0]}, {words[1]}, $MORE]" in Path("zerocfg.yaml").read_text(encoding="utf-8")


def test_one_run_for_each_recipe(zerocfg: Zerocfg) -> None:
    write(train_sft=SFT, train_dpo=SFT, recipes__sft_yaml=SFT_RECIPE, recipes__dpo_yaml=RECIPE + "beta: 0.1\n")
    write(configs__zero2_yaml=ACCELERATE, configs__zero3_yaml=ACCELERATE.replace("2", "3"))
    done = zerocfg("init")
    assert done.code == 0, done.err
    found = runs()
    assert {name: run["script"] for name, run in found.items()} == {"dpo": "train_dpo.py", "sft": "train_sft.py"}
    assert found["sft"]["accelerate"] == "configs/zero2.yaml"
    assert "one of several; others: configs/zero3.yaml" in done.err


def test_flags_win_and_make_one_run(zerocfg: Zerocfg) -> None:
    write(a=TRAINER, b=LOOP, recipe_yaml=RECIPE, model__config_json=MODEL)
    done = zerocfg(
        "init", "--script", "b.py", "--hardware", "8xA100-80GB", "--name", "mine", "--sequence-length", "512"
    )
    assert done.code == 0, done.err
    assert runs() == {
        "mine": {
            "consumer": "accelerate",
            "script": "b.py",
            "model": "model/config.json",
            "hardware": "8xA100-80GB",
            "sequence_length": 512,
        }
    }


def test_a_model_of_the_cache(zerocfg: Zerocfg, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = Path("hub/models--org--small/snapshots/abc123")
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text(MODEL)
    refs = Path("hub/models--org--small/refs")
    refs.mkdir()
    (refs / "main").write_text("abc123\n")
    monkeypatch.setenv("HF_HUB_CACHE", str(Path("hub").resolve()))
    write(repo__train=SFT, repo__recipe_yaml=SFT_RECIPE)
    assert zerocfg("init", "repo", "--hardware", "8xA100-80GB").code == 0
    assert runs(Path("repo"))["repo"]["model"] == "org/small"
    done = zerocfg("build", "repo", "-o", "out")
    assert done.code == 0, done.out + done.err


def test_accelerators_of_this_machine(zerocfg: Zerocfg, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zerocfg.cli.commands.init.probe", lambda: parse_hardware("2xH100-80GB"))
    write(train=TRAINER)
    done = zerocfg("init", "--print")
    assert "hardware: this" in done.out and "guessed: this machine: 2xH100-80GB" in done.out
    assert not Path("zerocfg.yaml").exists()


def test_nothing_to_go_by(zerocfg: Zerocfg) -> None:
    Path("notes.txt").write_text("nothing")
    write(util="def helper():\n    return 1\n")
    done = zerocfg("init")
    assert done.code == 2 and "nothing" not in done.out
    assert "no launch line, training script, recipe" in done.err and "zerocfg init --consumer" in done.err
    done = zerocfg("init", "--consumer", "transformers", "--script", "new.py", "--hardware", "8xA100")
    assert done.code == 0, done.err
    (run,) = runs().values()
    assert run == {"consumer": "transformers", "script": "new.py", "hardware": "8xA100"}


def test_what_zerocfg_wrote_is_no_source(zerocfg: Zerocfg) -> None:
    write(train=TRAINER, recipe_yaml=RECIPE, ds_json=DEEPSPEED)
    assert zerocfg("init", "--hardware", "8xA100-80GB").code == 0
    before = Path("zerocfg.yaml").read_text()
    assert zerocfg("build", ".", "-o", "built").code == 0 and list(Path("built").rglob("launch.sh"))
    assert zerocfg("init", "--hardware", "8xA100-80GB", "--force").code == 0
    assert Path("zerocfg.yaml").read_text() == before


def test_configs_without_a_script(zerocfg: Zerocfg) -> None:
    write(acc_yaml=ACCELERATE)
    done = zerocfg("init")
    assert done.code == 0 and "open script" in done.err
    assert "fill in: the Python script that trains" in Path("zerocfg.yaml").read_text()


def test_a_spec_is_never_replaced_unasked(zerocfg: Zerocfg) -> None:
    write(train=TRAINER)
    mine = "version: 1\nruns: {a: {consumer: trl, script: other.py}}\n"
    Path("zerocfg.yaml").write_text(mine)
    done = zerocfg("init")
    assert done.code == 2 and "--force" in done.err and Path("zerocfg.yaml").read_text() == mine
    assert "script: train.py" in zerocfg("init", "--print").out and Path("zerocfg.yaml").read_text() == mine
    assert zerocfg("init", "--force").code == 0
    assert next(iter(runs().values()))["script"] == "train.py"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "a b"], "'a b' cannot name a run"),
        (["--script", ""], "must not be empty"),
        (["-o", "elsewhere/zerocfg.yaml"], "the spec has to lie in"),
        (["nowhere"], "does not exist"),
        (["--consumer", "megatron"], "megatron"),
        (["--sequence-length", "0"], "0"),
    ],
)
def test_wrong_use(zerocfg: Zerocfg, words: list[str], message: str) -> None:
    write(train=TRAINER)
    done = zerocfg("init", *words)
    assert done.code == 2 and message in done.err
    assert not Path("zerocfg.yaml").exists()


def test_odd_files_in_the_way(zerocfg: Zerocfg) -> None:
    """A folder named like a script, bytes that are no text, configs that cannot be read, links that lead nowhere."""
    write(train=TRAINER)
    Path("folder.py").mkdir()
    Path("bytes.py").write_bytes(b"\xff\xfe Trainer( __main__")
    Path("config.json").write_text("{")
    Path("ds_config.json").write_text("{")
    Path("gone.py").symlink_to("nowhere.py")
    Path("loop.sh").symlink_to("loop.sh")
    done = zerocfg("init", "--script", "train.py")
    assert done.code == 0, done.err
    assert next(iter(runs().values()))["script"] == "train.py"


WORDS = st.sampled_from(
    [
        "train.py",
        "a.py",
        "--deepspeed",
        "ds.json",
        "--config",
        "recipe.yaml",
        "$X",
        "'a b'",
        "-m",
        "pkg.train",
        "#x",
        "é",
    ]
)
LINES = st.tuples(
    st.sampled_from(["accelerate launch", "torchrun", "deepspeed", "python"]), st.lists(WORDS, max_size=5)
)


@settings(deadline=None, max_examples=60, suppress_health_check=list(HealthCheck))
@given(lines=st.lists(LINES, max_size=4), name=st.text(max_size=6), body=st.text(max_size=40))
def test_whatever_is_found_makes_a_spec(tmp_path: Path, lines: Any, name: str, body: str) -> None:
    folder = tmp_path / "repo"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    (folder / "train.py").write_text(TRAINER)
    (folder / "recipe.yaml").write_text(RECIPE + f"model_name_or_path: {name!r}\n", errors="replace")
    (folder / "ds.json").write_text(DEEPSPEED)
    text = "".join(f"{launcher} {' '.join(words)}\n" for launcher, words in lines) + body
    (folder / "go.sh").write_text(text, errors="replace")
    drafts = draft_runs(folder, {}, lambda: parse_hardware("cpu"))
    path = folder / "zerocfg.yaml"
    path.write_text(spec_text(drafts))
    found = read_spec(path)
    assert drafts and found.problems == [], path.read_text()
    assert list(found.runs) == [draft.name for draft in drafts]


TRAINER_LINE = "train.py --deepspeed %s --per_device_train_batch_size 3 --bf16 true --output_dir out --max_steps 10"


@pytest.mark.parametrize("launcher", ["deepspeed --num_gpus 2", "torchrun --nproc_per_node 2"])
def test_a_line_that_hands_the_config_to_its_trainer(zerocfg: Zerocfg, launcher: str) -> None:
    """The emitted job gets it by accelerate's launcher, and the script no second one."""
    write(train=PARSED, ds_json=DEEPSPEED)
    Path("train.sh").write_text(f"{launcher} {TRAINER_LINE % 'ds.json'}\n")
    assert zerocfg("init", "--hardware", "2xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 0, built.out + built.err
    (folder,) = Path("out").iterdir()
    found = json.loads((folder / "ds_config.json").read_text())
    assert (found["zero_optimization"]["stage"], found["train_micro_batch_size_per_gpu"]) == (2, 3)
    assert "--deepspeed " not in (folder / "launch.sh").read_text()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("gone.json", ": --deepspeed: there is no file 'gone.json'"),
        ("$CONFIG", "train.sh:1 names a config that is not known here: --deepspeed $CONFIG"),
    ],
)
def test_a_config_of_a_line_that_is_not_there(zerocfg: Zerocfg, config: str, said: str) -> None:
    write(train=PARSED)
    Path("train.sh").write_text(f"torchrun --nproc_per_node 2 {TRAINER_LINE % config}\n")
    assert zerocfg("init", "--hardware", "2xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 1 and said in built.err, built.out + built.err
    told = "train.sh:1:38: " in built.err and "leave `--deepspeed` out" in built.err
    assert told is (config == "gone.json")


@pytest.mark.parametrize(
    ("line", "example"),
    [
        ("accelerate launch --gpu_ids 0,3 train.py", "2xA100-80GB"),
        ("accelerate launch --gpu_ids all --num_processes 4 train.py", "4xA100-80GB"),
        ("deepspeed --include localhost:1,2,5 train.py", "3xA100-80GB"),
    ],
)
def test_devices_of_a_line(zerocfg: Zerocfg, line: str, example: str) -> None:
    write(train=TRAINER)
    Path("job.sh").write_text(f"{line} --max_steps 10\n")
    assert zerocfg("init").code == 0
    assert example in Path("zerocfg.yaml").read_text()


def test_options_of_a_line_that_the_hardware_overrules(zerocfg: Zerocfg) -> None:
    """A port stays a number; devices are those of the hardware where the line chooses fewer."""
    write(train=PARSED)
    line = "accelerate launch --num_processes 2 --gpu_ids 0,1 --main_process_port 29602 train.py --max_steps 10"
    Path("job.sh").write_text(f"{line} --output_dir out\n")
    assert zerocfg("init", "--hardware", "4xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "four")
    assert built.code == 0, built.out + built.err
    assert "gpu_ids: the sources say 0,1, 4xA100-80GB has 4 for a node: all of them are used" in built.out
    (config,) = Path("four").glob("*/accelerate.yaml")
    emitted = yaml.safe_load(config.read_text())
    assert emitted["main_process_port"] == 29602 and "gpu_ids" not in emitted
    assert zerocfg("build", ".", "-o", "two", "--hardware", "2xA100-80GB").code == 0
    (config,) = Path("two").glob("*/accelerate.yaml")
    assert yaml.safe_load(config.read_text())["gpu_ids"] == "0,1"


def test_a_readme_counts_beside_scripts_that_start_nothing_of_ours(zerocfg: Zerocfg) -> None:
    write(train=TRAINER)
    Path("README.md").write_text("```bash\naccelerate launch train.py --max_steps 10\n```\n")
    Path("job.sh").write_text('accelerate launch "$SCRIPT" --max_steps 10\n')
    assert zerocfg("init").code == 0
    assert [run["launch"] for run in runs().values()] == ["README.md:2"]


def test_a_run_that_cannot_be_built_costs_no_other(zerocfg: Zerocfg) -> None:
    write(train=PARSED, ds_json=DEEPSPEED, bad_json=DEEPSPEED.replace('"stage": 2', '"stage": 7'))
    line = "deepspeed --num_gpus 2 " + TRAINER_LINE
    Path("jobs.sh").write_text(f"{line % 'ds.json'}\n{line % 'gone.json'}\n{line % 'bad.json'}\n")
    assert zerocfg("init", "--hardware", "2xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 1, built.out + built.err
    assert sorted(path.name for path in Path("out").iterdir()) == ["jobs"]
    assert "built 1 of 3 runs; not jobs-2, jobs-3" in built.err
    assert "there is no file 'gone.json'" in built.err and "bad.json" in built.out
    again = zerocfg("build", ".", "-o", "out", "--run", "jobs", "--check")
    assert again.code == 0, again.out + again.err
    assert zerocfg("build", ".", "-o", "out", "--check").code == 1


@pytest.mark.parametrize(
    ("line", "key"),
    [
        (f"torchrun --nproc_per_node 2 {TRAINER_LINE % '$CONFIG'}", "deepspeed"),
        ("accelerate launch --config_file $CONFIG train.py --output_dir out --max_steps 10", "accelerate"),
    ],
)
def test_a_config_that_only_the_shell_knows_is_guessed(zerocfg: Zerocfg, line: str, key: str) -> None:
    """The nearest of its kind, and said so; the engine alone is the author's word, too."""
    write(train=PARSED, configs__ds_json=DEEPSPEED, configs__acc_yaml=ACCELERATE.replace("4", "2"))
    Path("train.sh").write_text(f"{line}\n")
    done = zerocfg("init", "--hardware", "2xA100-80GB")
    (run,) = runs().values()
    assert run[key] == {"deepspeed": "configs/ds.json", "accelerate": "configs/acc.yaml"}[key]
    assert f"guessed {key}: {run[key]} (train.sh:1 says" in done.err and "$CONFIG: the nearest one" in done.err
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 0, built.out + built.err
    text = Path("zerocfg.yaml").read_text()
    Path("zerocfg.yaml").write_text("".join(one for one in text.splitlines(True) if f" {key}: configs" not in one))
    assert zerocfg("build", ".", "-o", "other").code == 1
    Path("zerocfg.yaml").write_text(Path("zerocfg.yaml").read_text() + "    engine: ddp\n")
    assert zerocfg("build", ".", "-o", "other").code == 0


@pytest.mark.parametrize("path", ["pkg/train.py", "pkg/train/__main__.py"])
def test_a_module_is_started_as_one(zerocfg: Zerocfg, path: str) -> None:
    """Relative imports need it. Below another folder only the file can be started, which is told."""
    Path(path).parent.mkdir(parents=True)
    Path(path).write_text(PARSED)
    Path("train.sh").write_text("torchrun --nproc_per_node 2 -m pkg.train --output_dir out --max_steps 10\n")
    assert zerocfg("init", "--hardware", "2xA100-80GB").code == 0
    assert next(iter(runs().values()))["script"] == path
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 0, built.out + built.err
    (script,) = Path("out").glob("*/launch.sh")
    assert "\n  --module pkg.train --output_dir out" in script.read_text()
    for file in (path, "train.sh"):
        Path("sub", file).parent.mkdir(parents=True, exist_ok=True)
        Path(file).rename(Path("sub", file))
    Path("sub/train.sh").write_text(f"cd sub\n{Path('sub/train.sh').read_text()}")
    assert zerocfg("init", "--force", "--hardware", "2xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "again")
    assert "sub/train.sh:2 starts the module pkg.train in another folder" in built.out
    (script,) = Path("again").glob("*/launch.sh")
    assert f"\n  sub/{path} --output_dir out" in script.read_text()


def test_a_config_that_a_line_names_and_does_not_use(zerocfg: Zerocfg) -> None:
    """accelerate looks at --deepspeed_config_file with --use_deepspeed alone."""
    write(train=PARSED, ds_json=DEEPSPEED)
    line = "accelerate launch --num_processes 2 --deepspeed_config_file ds.json train.py --max_steps 10"
    Path("train.sh").write_text(f"{line} --output_dir out\n")
    done = zerocfg("init", "--hardware", "2xA100-80GB")
    (run,) = runs().values()
    assert "deepspeed" not in run and "names ds.json and starts without DeepSpeed" in done.err
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 0, built.out + built.err
    assert not list(Path("out").glob("*/ds_config.json"))


def test_a_script_that_makes_its_own_config(zerocfg: Zerocfg) -> None:
    text = "import deepspeed\n\nconfig = {'train_batch_size': 8, 'zero_optimization': {'stage': 1}}\n"
    write(train=f"{text}deepspeed.initialize(model=None, config=config)\n")
    Path("train.sh").write_text("deepspeed --num_gpus 2 train.py\n")
    assert zerocfg("init", "--hardware", "2xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 1, built.out + built.err
    assert "train.py makes its DeepSpeed config by itself, so the emitted one would never be used" in built.err


ASKING = (
    "import argparse\nimport json\nimport deepspeed\n\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--ds_config')\nparser.add_argument('--local_rank')\nargs = parser.parse_args()\n"
)


@pytest.mark.parametrize(
    ("script", "words", "said"),
    [
        (
            "import deepspeed\nimport json\nimport sys\n\n"
            "deepspeed.initialize(model=None, config=json.loads(sys.argv[1]))\n",
            "{}",
            "train.py gives deepspeed.initialize a config of its own, so the emitted one would never be used",
        ),
        (
            f"{ASKING}deepspeed.initialize(model=None, config_params=json.load(open(args.ds_config)))\n",
            "--ds_config small.txt",
            "train.py gives deepspeed.initialize a config of its own, so the emitted one would never be used",
        ),
        (
            OWN_LOOP,
            "$OPTIONS",
            "train.sh:1 names no DeepSpeed config that is known here; a variable of the shell may hold it",
        ),
    ],
)
def test_a_config_that_nobody_can_tell(zerocfg: Zerocfg, script: str, words: str, said: str) -> None:
    """The job runs, so that nothing is to be said of its batch size. A loop that takes what `--deepspeed_config` names
    is another matter: there zerocfg writes the config, and says what it lacks."""
    write(train=script)
    Path("train.sh").write_text(f"deepspeed --num_gpus 2 train.py {words}\n")
    assert zerocfg("init", "--hardware", "2xA100-80GB").code == 0
    spec = Path("zerocfg.yaml")
    if "$" in words:
        spec.write_text(spec.read_text().replace("arguments: [$OPTIONS]", "arguments: []"))
    done = zerocfg("build", ".", "-o", "out")
    assert done.code == 1 and said in done.err, done.out + done.err
    assert "ZC205" not in done.out + done.err
    assert zerocfg("lint", "zerocfg.yaml").code == 0
    write(train=OWN_LOOP)
    Path("train.sh").write_text("deepspeed --num_gpus 2 train.py --epochs 2\n")
    spec.write_text(spec.read_text().replace("    arguments: []\n", ""))
    done = zerocfg("build", ".", "-o", "out")
    assert done.code == 1 and "no source sets the ZeRO stage" in done.err and "known here" not in done.err
    assert "of its own" not in done.err


@pytest.mark.parametrize("release", [">=0.10.3", "==0.10.3"])
def test_a_key_that_the_newest_release_refuses(zerocfg: Zerocfg, release: str) -> None:
    """Older ones pass over it: without it the job is the same there, and starts in the newest."""
    write(train=PARSED, ds_json=DEEPSPEED.replace('"bf16": {', '"bf16": {"hysteresis": 2, '))
    Path("requirements.txt").write_text(f"deepspeed{release}\n")
    Path("train.sh").write_text(f"torchrun --nproc_per_node 2 {TRAINER_LINE % 'ds.json'}\n")
    assert zerocfg("init", "--hardware", "2xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 0, built.out + built.err
    (emitted,) = Path("out").glob("*/ds_config.json")
    assert json.loads(emitted.read_text())["bf16"] == {"enabled": True}


def test_a_batch_of_a_script_that_divides_its_ranks(zerocfg: Zerocfg) -> None:
    """Of how many ranks it is, only the script knows, so the author's product stays."""
    sizes = '"train_batch_size": 16, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 1'
    write(train=OWN_LOOP, ds_json=f'{{{sizes}, "zero_optimization": {{"stage": 1}}}}\n')
    line = "deepspeed --num_gpus 8 train.py --deepspeed --deepspeed_config ds.json"
    Path("train.sh").write_text(f"{line} --tensor-model-parallel-size 2\n")
    assert zerocfg("init", "--hardware", "8xA100-80GB").code == 0
    built = zerocfg("build", ".", "-o", "out")
    assert built.code == 0, built.out + built.err
    (emitted,) = Path("out").glob("*/ds_config.json")
    assert json.loads(emitted.read_text())["train_batch_size"] == 16
