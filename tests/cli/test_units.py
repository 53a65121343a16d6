"""What is asked for and what is said of it: runs, files that were not understood, notes, who reads a run."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Outcome

Cli = Callable[..., Outcome]

BARE = "num_processes: 8\nmachine_rank: 0\n"
LINE = "accelerate launch --config_file acc.yaml train.py\n"
DEAD = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n  overlap_comm: true\n"
CLEAN = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 2\n"
NOTE = CLEAN + "tpu_use_sudo: true\n"
DS = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "zero_optimization": {"stage": 2}}
TRAINER = (
    "deepspeed --num_gpus 8 train.py --deepspeed ds.json --gradient_accumulation_steps 8 "
    "--per_device_train_batch_size 1 --output_dir out\n"
)


def _data(outcome: Outcome) -> Any:
    return json.loads(outcome.out)


def _places(outcome: Outcome) -> list[tuple[str, str, int]]:
    return [(one["code"], one["file"], one["start"]["line"]) for one in _data(outcome)["diagnostics"]]


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        stem, _, suffix = name.rpartition("_")
        (folder / f"{stem}.{suffix}").write_text(text)


class TestRuns:
    def test_every_file_of_a_run_stands_for_it(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=BARE, train_sh=LINE, train_py="print()\n")
        for name in (".", "acc.yaml", "train.sh", "train.py"):
            outcome = zerocfg("lint", "--output-format", "json", name)
            assert outcome.code == 1
            assert _places(outcome) == [("ZC714", "acc.yaml", 1)], name
            assert _data(outcome)["files"] == 2 and outcome.err == ""

    def test_a_hook_names_many_files_of_one_run(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=BARE, train_sh=LINE, train_py="print()\n")
        found = _data(zerocfg("lint", "--output-format", "json", "train.sh", "train.py", "acc.yaml", "./acc.yaml", "."))
        assert [(one["code"], one["also_in"]) for one in found["diagnostics"]] == [("ZC714", [])]

    def test_a_script_stands_for_the_runs_that_start_it_alone(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=BARE, train_sh=LINE, train_py="print()\n", other_py="print()\n", b_yaml=DEAD)
        write(tmp_path, other_sh="accelerate launch --config_file b.yaml other.py\n")
        (tmp_path / "tools").mkdir()
        (tmp_path / "tools" / "third.py").write_text("print()\n")
        (tmp_path / "third.sh").write_text("accelerate launch --config_file b.yaml -m tools.third\n")
        assert _places(zerocfg("lint", "--output-format", "json", "train.py")) == [("ZC714", "acc.yaml", 1)]
        found = _data(zerocfg("lint", "--output-format", "json", "other.py"))["diagnostics"]
        assert [(one["code"], one["run"], one["also_in"]) for one in found] == [("ZC103", "other.sh:1", [])]
        found = _data(zerocfg("lint", "--output-format", "json", "tools/third.py"))["diagnostics"]
        assert [(one["code"], one["run"], one["also_in"]) for one in found] == [("ZC103", "third.sh:1", [])]

    def test_a_script_that_nothing_starts(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, train_py="{ no YAML: [\n")
        outcome = zerocfg("lint", "train.py")
        assert (outcome.code, outcome.out) == (2, "Nothing was checked.\n")
        said = "zerocfg: 'train.py' was not checked: no launch line or spec that was found starts it\n"
        assert outcome.err == said

    def test_a_spec_stands_for_what_it_names(self, zerocfg: Cli, tmp_path: Path) -> None:
        spec = "version: 1\nruns:\n  a: {consumer: accelerate, script: train.py, accelerate: acc.yaml}\n"
        write(tmp_path, zerocfg_yaml=spec, acc_yaml=DEAD, train_py="print()\n")
        for name in (".", "zerocfg.yaml", "acc.yaml", "train.py"):
            assert ("ZC103", "acc.yaml", 5) in _places(zerocfg("lint", "--output-format", "json", name)), name

    @pytest.mark.parametrize("folder", ["build", ".hidden", "wandb"])
    def test_what_a_line_names_is_reported_on_wherever_it_lies(self, zerocfg: Cli, tmp_path: Path, folder: str) -> None:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "acc.yaml").write_text(DEAD)
        write(tmp_path, train_sh=LINE.replace("acc.yaml", f"{folder}/acc.yaml"))
        assert _places(zerocfg("lint", "--output-format", "json")) == [("ZC103", f"{folder}/acc.yaml", 5)]

    def test_one_that_is_large_and_one_that_is_broken(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=DEAD + "# " + "x" * (1 << 20) + "\n", train_sh=LINE)
        assert _places(zerocfg("lint", "--output-format", "json")) == [("ZC103", "acc.yaml", 5)]
        write(tmp_path, acc_yaml="num_processes: [1\n")
        assert [code for code, _, _ in _places(zerocfg("lint", "--output-format", "json"))] == ["ZC002"]
        (tmp_path / "acc.yaml").write_bytes(CLEAN.encode("utf-16"))
        assert [code for code, _, _ in _places(zerocfg("lint", "--output-format", "json"))] == ["ZC001"]

    def test_same_finding_in_several_runs(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=DEAD, train_sh=LINE * 3)
        found = _data(zerocfg("lint", "--output-format", "json"))["diagnostics"]
        assert [(one["code"], one["run"], one["also_in"]) for one in found] == [
            ("ZC103", "train.sh:1", ["train.sh:2", "train.sh:3"])
        ]
        assert "(and in 2 more runs)\n" in zerocfg("lint", "--output-format", "concise").out
        write(tmp_path, train_sh=LINE * 2)
        assert "(and in 1 more run)\n" in zerocfg("lint").out
        write(tmp_path, train_sh=LINE)
        assert "more run" not in zerocfg("lint").out

    def test_fixes_stay_in_the_runs_that_were_asked_for(self, zerocfg: Cli, tmp_path: Path) -> None:
        typo = CLEAN.replace("  zero_stage", "  zero_stge")
        write(tmp_path, acc_yaml=typo, other_yaml=typo, train_sh=LINE)
        zerocfg("lint", "--fix", "train.sh")
        assert (tmp_path / "acc.yaml").read_text() == CLEAN
        assert (tmp_path / "other.yaml").read_text() == typo

    def test_comments_of_files_with_other_runs_are_not_called_unused(self, zerocfg: Cli, tmp_path: Path) -> None:
        """Named is `a.sh`; of `acc.yaml` there are runs that were not looked at."""
        text = CLEAN + "  # zerocfg: ignore[ZC103] the other line reads it\n  gradient_accumulation_steps: 4\n"
        write(tmp_path, acc_yaml=text, a_sh=LINE, b_sh=LINE)
        assert zerocfg("lint", "--notes", "a.sh").code == 0
        assert [code for code, _, _ in _places(zerocfg("lint", "--output-format", "json", "acc.yaml"))] == ["ZC010"]


OPENRLHF = "it starts OpenRLHF (%s), whose"
HEREDOC = b"read -r -d '' cmd <<EOF\nopenrlhf.cli.train_dpo --bf16\nEOF\ndeepspeed --module $cmd\n"


class TestUnread:
    def test_a_folder_without_configs(self, zerocfg: Cli, tmp_path: Path) -> None:
        (tmp_path / "docs").mkdir()
        write(tmp_path, acc_yaml=CLEAN)
        outcome = zerocfg("lint", "docs")
        assert (outcome.code, outcome.out) == (0, "Nothing was checked.\n")
        assert outcome.err.startswith("zerocfg: warning: no configs found below 'docs'\nzerocfg looks for:\n")
        assert zerocfg("lint", ".").err == ""
        assert zerocfg("lint", "no-folder").code == 2

    @pytest.mark.parametrize(
        ("name", "content", "reason"),
        [
            ("package.json", b'{"name": "x"}', "it is no config, recipe, spec or launch script that zerocfg knows"),
            ("a.json", b'{"name": ', "not valid JSON: expected a value"),
            ("a.yaml", "a: 1".encode("utf-16"), "the file is UTF-16"),
            ("run.sh", b"echo hello\n", "it holds no launch line of accelerate, deepspeed or torchrun"),
            (
                "sft.sh",
                b"deepspeed --module openrlhf.cli.train_sft \\\n  --bf16\n",
                OPENRLHF % "openrlhf.cli.train_sft",
            ),
            ("ppo.sh", b"python3 -m openrlhf.cli.train_ppo_ray --bf16\n", OPENRLHF % "openrlhf.cli.train_ppo_ray"),
            ("in.sh", HEREDOC, OPENRLHF % "openrlhf.cli.train_dpo"),
            ("sft.sh", b"torchrun -m verl.trainer.sft_trainer\n", "it starts verl (verl.trainer.sft_trainer), whose"),
            (
                "slime.sh",
                b"A=(--num-rollout 30 --rollout-num-gpus 8)\nray job submit -- python3 train.py ${A[@]}\n",
                "it starts slime (train.py), whose",
            ),
            (
                "own.sh",
                b"torchrun --nproc_per_node 8 loop.py --lr 1\n",
                "what its launch lines start is not seen to read",
            ),
            ("titan.sh", b"torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file a.toml\n", "torchtitan ("),
            (
                "gpt.sh",
                b"torchrun --nproc_per_node 8 pretrain_gpt.py --num-layers 2\n",
                "Megatron-LM (pretrain_gpt.py)",
            ),
            ("no.sh", b"# openrlhf.cli.train_sft\n./openrlhf.cli.sh\necho verl.sh\n", "it holds no launch line of"),
            ("config.json", b'{"model_type": "llama", "hidden_size": 8}', "it is the config of a model"),
        ],
    )
    def test_a_named_file(self, zerocfg: Cli, tmp_path: Path, name: str, content: bytes, reason: str) -> None:
        (tmp_path / name).write_bytes(content)
        write(tmp_path, acc_yaml=DEAD)
        outcome = zerocfg("lint", name, "acc.yaml")
        assert outcome.code == 2 and outcome.err.startswith(f"zerocfg: '{name}' was not checked: ")
        assert reason in outcome.err
        assert "ZC103" in outcome.out, "what is found in the others is told"
        (one,) = _data(zerocfg("lint", "--output-format", "json", name))["unread"]
        assert one["file"] == name and one["named"] is True and reason in one["reason"]
        assert zerocfg("lint", "--exit-zero", name).code == 2

    def test_another_program_is_named(self, zerocfg: Cli, tmp_path: Path) -> None:
        """A script that starts something else is listed below a folder, unless a run of zerocfg's is in it."""
        start = "deepspeed --module openrlhf.cli.train_sft --bf16\n"
        write(tmp_path, acc_yaml=CLEAN, sft_sh=start, both_sh=LINE + start, ours_sh=LINE)
        outcome = zerocfg("lint", ".")
        listed = (
            f"1 file was not checked:\n  sft.sh: {OPENRLHF % 'openrlhf.cli.train_sft'} options lint does not read\n"
        )
        assert (outcome.code, outcome.out) == (0, f"All checks passed in 3 files.\n{listed}")
        (one,) = _data(zerocfg("lint", "--output-format", "json", "."))["unread"]
        assert (one["file"], one["why"], one["named"]) == ("sft.sh", "other-program", False)
        assert zerocfg("lint", "both.sh").code == 0

    def test_hooks_name_whatever_was_changed(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, package_json='{"name": "x"}', run_sh="echo hello\n", notes_md="# x\n", acc_yaml=CLEAN)
        names = ("package.json", "run.sh", "notes.md")
        assert zerocfg("lint", *names).code == 2
        outcome = zerocfg("lint", "--skip-unknown", *names)
        assert (outcome.code, outcome.out, outcome.err) == (0, "Nothing was checked.\n", "")
        assert zerocfg("lint", "--skip-unknown", *names, "acc.yaml").out == "All checks passed in 1 file.\n"

    def test_what_is_met_is_listed(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=CLEAN, big_json=json.dumps(DS) + " " * (1 << 20), data_json="[" + "1," * (1 << 20))
        write(tmp_path, broken_yaml="bf16: [1, 2\n\tb: }")
        (tmp_path / "run.sh").write_bytes(LINE.encode("utf-16"))
        outcome = zerocfg("lint")
        first, heading, *lines = outcome.out.splitlines()
        assert outcome.code == 0 and first == "All checks passed in 1 file."
        assert heading == "3 files were not checked:"
        assert lines[0] == "  big.json: it is larger than 1 MiB, and neither a launch line nor the command names it"
        assert lines[1].startswith("  broken.yaml: ") and lines[2] == "  run.sh: the file is UTF-16"
        assert [one["file"] for one in _data(zerocfg("lint", "--output-format", "json"))["unread"]] == [
            "big.json",
            "broken.yaml",
            "run.sh",
        ]
        write(tmp_path, zerocfg_toml='exclude = ["big.json", "broken.yaml", "run.sh"]\n')
        assert zerocfg("lint").out == "All checks passed in 1 file.\n"

    def test_what_may_not_be_read_is_listed(
        self, zerocfg: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """As for a file of mode 000, which binds everyone but root."""
        write(tmp_path, acc_yaml=CLEAN, ds_json=json.dumps(DS))
        opened = os.open

        def refuse(path: Any, *words: Any, **more: Any) -> int:
            if str(path).endswith("ds.json"):
                raise PermissionError(errno.EACCES, "Permission denied")
            return opened(path, *words, **more)

        monkeypatch.setattr(os, "open", refuse)
        outcome = zerocfg("lint")
        assert outcome.code == 0 and "  ds.json: cannot be read: permission denied\n" in outcome.out

    def test_what_is_missing_is_told_or_listed(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, train_sh=LINE, train_py="")
        assert [code for code, _, _ in _places(zerocfg("lint", "--output-format", "json"))] == ["ZC703"]
        assert _data(zerocfg("lint", "--output-format", "json"))["unread"] == []
        outcome = zerocfg("lint", "--ignore", "ZC703")
        assert outcome.code == 0
        assert "  acc.yaml: it is nowhere to be found; train.sh:1:19 names it\n" in outcome.out
        write(tmp_path, train_sh=LINE * 3)
        outcome = zerocfg("lint", "--ignore", "ZC703")
        assert "  acc.yaml: it is nowhere to be found; train.sh:1:19 names it, and 2 more places\n" in outcome.out
        write(tmp_path, zerocfg_toml='exclude = ["train.sh"]\n')
        assert zerocfg("lint").out == "All checks passed in 1 file.\n"

    def test_a_broken_file_that_may_be_a_recipe(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, r_yaml="a: [1\n", acc_yaml=CLEAN, train_sh=LINE.replace("train.py", "train.py --config r.yaml"))
        for name, code in ((".", 0), ("train.sh", 0), ("acc.yaml", 0), ("r.yaml", 2)):
            outcome = zerocfg("lint", "--output-format", "json", name)
            assert outcome.code == code
            (one,) = _data(outcome)["unread"]
            assert (one["file"], one["why"], one["named"]) == ("r.yaml", "not-read", name == "r.yaml")
            assert one["reason"].startswith("not valid YAML: ")

    def test_sarif_tells_it_as_a_notification(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=CLEAN, broken_yaml="bf16: [1, 2\n\tb: }")
        (invocation,) = _data(zerocfg("lint", "--output-format", "sarif"))["runs"][0]["invocations"]
        (told,) = invocation["toolExecutionNotifications"]
        assert told["message"]["text"].startswith("broken.yaml: ")


class TestNotes:
    def test_off_until_asked_for(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=NOTE)
        assert zerocfg("lint").out == "All checks passed in 1 file. 1 note, shown with --notes.\n"
        report = _data(zerocfg("lint", "--output-format", "json"))
        assert report["diagnostics"] == [] and report["notes"] == 1
        for words in (
            ["--notes"],
            ["--fail-on", "note"],
            ["--select", "ZC708"],
            ["--select", "key-never-taken-from-file"],
        ):
            assert "note[ZC708]" in zerocfg("lint", *words).out, words
        assert "ZC708" not in zerocfg("lint", "--select", "ZC7").out
        for output in ("sarif", "github", "gitlab", "junit", "concise"):
            assert "ZC708" not in zerocfg("lint", "--output-format", output).out
            assert "ZC708" in zerocfg("lint", "--notes", "--output-format", output).out

    def test_settings(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=NOTE)
        for text in ("notes = true\n", 'fail-on = "note"\n'):
            write(tmp_path, zerocfg_toml=text)
            assert "note[ZC708]" in zerocfg("lint").out
        write(tmp_path, zerocfg_toml='notes = "yes"\n')
        assert zerocfg("lint").code == 2

    def test_fixes_and_baselines_are_of_what_is_told(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=NOTE)
        zerocfg("lint", "--fix")
        assert (tmp_path / "acc.yaml").read_text() == NOTE
        assert zerocfg("lint", "--diff").code == 0
        zerocfg("lint", "--write-baseline", "known.json")
        for words in ([], ["--notes"]):
            passed = "All checks passed in 1 file. 1 suppressed (1 by baseline).\n"
            assert zerocfg("lint", "--baseline", "known.json", *words).out == passed
        zerocfg("lint", "--fix", "--notes")
        assert (tmp_path / "acc.yaml").read_text() == CLEAN

    def test_what_accelerate_writes_into_every_file_is_none(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, acc_yaml=CLEAN + "same_network: true\n")
        assert zerocfg("lint", "--notes").out == "All checks passed in 1 file.\n"


PARSES = "from transformers import HfArgumentParser, TrainingArguments\nHfArgumentParser(TrainingArguments)\n"
"""A script that takes the Trainer's options and does not show who trains."""


class TestReaders:
    def _consumer(self, zerocfg: Cli, *words: str) -> tuple[str | None, str | None]:
        (run,) = _data(zerocfg("lint", "--show-runs", "--output-format", "json", *words))["runs"]
        return run["consumer"], run["told"] and run["told"]["by"]

    def test_who_says_is_in_order(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, ds_json=json.dumps(DS), run_sh=TRAINER, train_py=PARSES)
        assert self._consumer(zerocfg) == ("transformers", "option")
        assert "ZC201" in zerocfg("lint").out
        spec = "version: 1\nruns:\n  a: {consumer: deepspeed, script: train.py, deepspeed: ds.json}\n"
        write(tmp_path, zerocfg_yaml=spec)
        (line,) = [
            run
            for run in _data(zerocfg("lint", "--show-runs", "--output-format", "json"))["runs"]
            if run["line"] is not None
        ]
        assert (line["consumer"], line["told"]["by"]) == ("deepspeed", "spec")
        assert line["told"]["place"] == {"file": "zerocfg.yaml", "line": 3, "column": 7}
        (tmp_path / "zerocfg.yaml").unlink()
        write(tmp_path, zerocfg_toml='consumer = "trl"\n')
        assert self._consumer(zerocfg) == ("transformers", "option")
        for pattern in ("train.py", "*.py", "run.sh", "ds.json"):
            write(tmp_path, zerocfg_toml=f'[consumers]\n"other/*" = "trl"\n"{pattern}" = "accelerate"\n')
            assert self._consumer(zerocfg) == ("accelerate", "path")
            assert self._consumer(zerocfg, "--consumer", "deepspeed") == ("deepspeed", "command")
            assert "ZC201" not in zerocfg("lint").out
        write(tmp_path, zerocfg_toml='[consumers]\n"*.py" = "nobody"\n')
        assert zerocfg("lint").code == 2

    def test_a_spec_of_another_script_says_nothing(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, ds_json=json.dumps(DS), run_sh=TRAINER, train_py=PARSES, other_py=PARSES)
        spec = "version: 1\nruns:\n  a: {consumer: deepspeed, script: other.py, deepspeed: ds.json}\n"
        write(tmp_path, zerocfg_yaml=spec)
        runs = _data(zerocfg("lint", "--show-runs", "--output-format", "json"))["runs"]
        assert {run["name"]: run["consumer"] for run in runs} == {"run.sh:1": "transformers", "a": "deepspeed"}

    def test_show_runs(self, zerocfg: Cli, tmp_path: Path) -> None:
        write(tmp_path, ds_json=json.dumps(DS), run_sh=TRAINER.replace("--num", "\\\n  --num"), acc_yaml=CLEAN)
        outcome = zerocfg("lint", "--show-runs")
        assert outcome.code == 0
        assert outcome.out == (
            "acc.yaml\n"
            "  accelerate acc.yaml\n"
            "  release    accelerate 1.15.0, the newest known: no file tells which\n"
            "  release    deepspeed 0.19.8, the newest known: no file tells which\n"
            "  read by    unknown (--consumer, or `consumers` in the settings, can say it)\n\n"
            "run.sh:1\n"
            f"  line       {TRAINER}"
            "  deepspeed  ds.json\n"
            "  release    accelerate 1.15.0, the newest known: no file tells which\n"
            "  release    transformers 5.23.0, the newest known: no file tells which\n"
            "  release    deepspeed 0.19.8, the newest known: no file tells which\n"
            "  read by    transformers, says the launch line at run.sh:2:25\n\n"
            "2 runs found.\n"
        )
        write(tmp_path, zerocfg_toml='[consumers]\n"acc.*" = "accelerate"\n')
        assert (
            "read by    accelerate, says `consumers` in the settings for acc.*\n" in zerocfg("lint", "--show-runs").out
        )
        explained = zerocfg("explain", "--run", "acc.yaml").out
        head = "acc.yaml  (acc.yaml; consumer: accelerate, says `consumers` in the settings for acc.*)\n"
        assert explained.startswith(head)
        assert zerocfg("lint", "--show-runs", "--fix").code == 2
        assert zerocfg("lint", "--show-runs", "--output-format", "sarif").code == 2
