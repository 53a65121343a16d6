"""Small made-up folders: layouts that are read, damage that is told, and nothing of a checkpoint that is executed."""

from __future__ import annotations

import json
import os
import pickle
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from zerocfg.cli.main import cli
from zerocfg.resume.checkpoint import CheckpointError
from zerocfg.resume.read import read_checkpoint
from zerocfg.resume.target import Target
from zerocfg.resume.torch_file import UnreadableError, facts
from zerocfg.resume.verdict import judge
from zerocfg.resume.weights import header


def torch_file(path: Path, content: Any, compress: int = zipfile.ZIP_STORED) -> None:
    """As ``torch.save`` lays it out, without tensors."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", compress) as archive:
        archive.writestr(f"{path.stem}/data.pkl", pickle.dumps(content, protocol=2))
        archive.writestr(f"{path.stem}/version", "3\n")


def safetensors(path: Path, tensors: dict[str, list[int]]) -> None:
    entries, place = {}, 0
    for name, shape in tensors.items():
        size = 4
        for one in shape:
            size *= one
        entries[name] = {"dtype": "F32", "shape": shape, "data_offsets": [place, place + size]}
        place += size
    text = json.dumps(entries).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(place))


def zero(folder: Path, stage: int = 2, ranks: int = 2, model_parallel: int = 1) -> Path:
    """A DeepSpeed checkpoint of a loop of its own."""
    tag = folder / "global_step3"
    state = {"module": {}, "dp_world_size": ranks, "mp_world_size": model_parallel, "ds_version": "0.19.8"}
    for part in range(model_parallel):
        for rank in range(ranks):
            name = f"zero_pp_rank_{rank}_mp_rank_{part:02d}"
            torch_file(tag / f"bf16_{name}_optim_states.pt", {"optimizer_state_dict": {"zero_stage": stage}})
            if stage == 3:
                torch_file(tag / f"{name}_model_states.pt", state)
        if stage < 3:
            torch_file(tag / f"mp_rank_{part:02d}_model_states.pt", state)
    (folder / "latest").write_text("global_step3\n")
    return folder


def run(*words: object) -> Result:
    return CliRunner().invoke(cli, ["check-resume", *map(str, words)], standalone_mode=False)


def kinds(path: Path, **target: Any) -> tuple[str, set[str]]:
    verdict = judge(read_checkpoint(path), Target("run", **target))
    return verdict.outcome, {one.kind for one in verdict.findings}


class Evil:
    """Whoever unpickles it leaves a file."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (self.path,)


def test_facts_of_a_pickle_that_would_run_code(tmp_path: Path) -> None:
    evil = tmp_path / "executed"
    content = {"a": Evil(evil), "dp_world_size": 4, "ds_version": "0.19.8"}
    torch_file(tmp_path / "file.pt", content)
    assert facts(tmp_path / "file.pt", ("dp_world_size", "ds_version")) == {"dp_world_size": 4, "ds_version": "0.19.8"}
    assert not evil.exists()


@pytest.mark.parametrize("metadata", [True, False])
def test_nothing_of_a_checkpoint_is_executed(tmp_path: Path, metadata: bool) -> None:
    evil = tmp_path / "executed"
    if metadata:
        folder = tmp_path / "pytorch_model_fsdp_0"
        folder.mkdir()
        (folder / ".metadata").write_bytes(pickle.dumps([Evil(evil), "__0_0.distcp", "__1_0.distcp"]))
        (folder / "__0_0.distcp").write_bytes(b"")
        assert [one.message for one in judge(read_checkpoint(tmp_path), None).findings] == [
            "1 files are missing: pytorch_model_fsdp_0/__1_0.distcp"
        ]
    else:
        torch_file(zero(tmp_path) / "global_step3" / "mp_rank_00_model_states.pt", Evil(evil))
        (tmp_path / "zero_to_fp32.py").write_text(f"import os; os.mkdir({str(evil)!r})")
        run(tmp_path)
    assert not evil.exists()


def test_stage_written_as_deepspeeds_class(tmp_path: Path) -> None:
    """DeepSpeed pickles a ZeroStageEnum: a class applied to a number."""
    program = b"\x80\x02}(X\n\x00\x00\x00zero_stagecdeepspeed.runtime.zero.config\nZeroStageEnum\nK\x02\x85Ru."
    with zipfile.ZipFile(tmp_path / "file.pt", "w") as archive:
        archive.writestr("file/data.pkl", program)
    assert facts(tmp_path / "file.pt", ("zero_stage",)) == {"zero_stage": 2}


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "empty"),
        (b"PK\x03\x04 and then the disk was full", "no whole zip archive"),
        (b"\x80\x02}q\x00.", "no whole zip archive"),
    ],
)
def test_damaged_files(tmp_path: Path, data: bytes, says: str) -> None:
    path = zero(tmp_path) / "global_step3" / "mp_rank_00_model_states.pt"
    path.write_bytes(data)
    with pytest.raises(UnreadableError, match=says):
        facts(path, ("dp_world_size",))
    found = run(tmp_path)
    assert found.return_value == 1
    assert "blocks resuming: global_step3/mp_rank_00_model_states.pt is " in found.output


def test_archives_that_torch_never_writes(tmp_path: Path) -> None:
    torch_file(tmp_path / "bomb.pt", {"text": "x" * 10_000_000}, zipfile.ZIP_DEFLATED)
    with pytest.raises(UnreadableError, match="compressed"):
        facts(tmp_path / "bomb.pt", ("text",))
    with zipfile.ZipFile(tmp_path / "other.pt", "w") as archive:
        archive.writestr("notes.txt", "")
    with pytest.raises(UnreadableError, match="no data"):
        facts(tmp_path / "other.pt", ("text",))
    with zipfile.ZipFile(tmp_path / "program.pt", "w") as archive:
        archive.writestr("program/data.pkl", b"\x80\x02}\xff\xff")
    with pytest.raises(UnreadableError, match="damaged"):
        facts(tmp_path / "program.pt", ("text",))


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_layout_of_zero(tmp_path: Path, stage: int) -> None:
    found = read_checkpoint(zero(tmp_path, stage, ranks=3)).deepspeed
    assert found is not None
    assert (found.stage, found.world_size, found.bf16, found.version) == (stage, 3, True, "0.19.8")
    assert (found.tag, found.missing, found.damaged) == ("global_step3", [], {})


def test_model_parallel_ranks(tmp_path: Path) -> None:
    zero(tmp_path, stage=2, ranks=2, model_parallel=2)
    same = {"engine": "deepspeed", "stage": 2, "precision": "bf16"}
    assert kinds(tmp_path, world_size=4, **same) == ("resumes", set())
    assert kinds(tmp_path, world_size=2, **same) == ("does not resume", {"ranks"})
    (tmp_path / "global_step3" / "bf16_zero_pp_rank_1_mp_rank_01_optim_states.pt").unlink()
    assert kinds(tmp_path, world_size=4, **same) == ("does not resume", {"missing"})


def test_missing_last_rank_is_noticed_by_the_world_size(tmp_path: Path) -> None:
    """The names alone would say that one rank saved this."""
    zero(tmp_path, ranks=2)
    (tmp_path / "global_step3" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    found = read_checkpoint(tmp_path).deepspeed
    assert found is not None
    assert found.missing == ["global_step3/bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt"]


def test_unknown_values_of_a_run_are_notes(tmp_path: Path) -> None:
    assert kinds(zero(tmp_path), engine="deepspeed") == ("resumes", {"stage", "ranks", "precision"})


def test_the_last_checkpoint_of_an_output_folder(tmp_path: Path) -> None:
    for step in (2, 10, 9):
        zero(tmp_path / f"checkpoint-{step}")
    found = read_checkpoint(tmp_path)
    assert found.path.name == "checkpoint-10"
    assert "the last of 3" in found.notes[0]


def test_a_tag_folder_is_its_parents_checkpoint(tmp_path: Path) -> None:
    found = read_checkpoint(zero(tmp_path) / "global_step3")
    assert found.path == tmp_path
    assert found.deepspeed is not None
    assert found.deepspeed.tag == "global_step3"


def test_weights_of_shape_zero(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", {"a": [0], "b": [2, 3]})
    found = run(tmp_path)
    assert found.return_value == 1
    assert "1 tensors are empty (a): saved under ZeRO-3 without gathering them" in found.output


def test_weights_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    safetensors(path, {"a": [100]})
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(UnreadableError, match="cut off"):
        header(path)
    path.write_bytes(struct.pack("<Q", 1 << 62) + b"{}")
    with pytest.raises(UnreadableError, match="longer than the file"):
        header(path)
    path.write_bytes(struct.pack("<Q", 3) + b"[1]")
    with pytest.raises(UnreadableError, match="no object"):
        header(path)


def test_index_names_absent_files(tmp_path: Path) -> None:
    safetensors(tmp_path / "model-00001-of-00002.safetensors", {"a": [1]})
    places = {"a": "model-00001-of-00002.safetensors", "b": "model-00002-of-00002.safetensors", "c": "../../secret"}
    places |= {"d": "x" * 300}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    found = read_checkpoint(tmp_path).weights
    assert found is not None
    assert found.missing == ["../../secret", "model-00002-of-00002.safetensors", "x" * 300]


def test_pipes_are_not_waited_for(tmp_path: Path) -> None:
    tag = zero(tmp_path) / "global_step3"
    for path in (tmp_path / "trainer_state.json", tmp_path / "model.safetensors", tag / "mp_rank_01_model_states.pt"):
        os.mkfifo(path)
    assert run(tmp_path).return_value == 1


def test_links_that_lead_nowhere(tmp_path: Path) -> None:
    zero(tmp_path)
    for name in ("loop", "global_step9", "model.safetensors", "scheduler.pt"):
        (tmp_path / name).symlink_to(tmp_path / name)
    found = read_checkpoint(tmp_path)
    assert found.deepspeed is not None
    assert found.deepspeed.tags == ["global_step3"]
    assert found.weights is None


def test_a_folder_within_itself(tmp_path: Path) -> None:
    zero(tmp_path)
    (tmp_path / "global_step7").symlink_to(tmp_path)
    assert kinds(tmp_path, engine="deepspeed", world_size=2, stage=2, precision="bf16") == ("resumes", set())


@pytest.mark.parametrize("tag", ["", "../..", "global_step3\0", "x" * 5000, "\xff"])
def test_odd_tags(tmp_path: Path, tag: str) -> None:
    (zero(tmp_path) / "latest").write_text(tag, encoding="utf-8")
    assert run(tmp_path).return_value in (0, 1)


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda path: None, "there is no folder"),
        (lambda path: path.write_text(""), "is a file"),
        (lambda path: path.mkdir(), "is no checkpoint"),
        (lambda path: path.symlink_to(path), "there is no folder|cannot be read"),
    ],
)
def test_no_checkpoint_is_wrong_use(tmp_path: Path, make: Any, says: str) -> None:
    path = tmp_path / "checkpoint"
    make(path)
    with pytest.raises(CheckpointError, match=says):
        read_checkpoint(path)


def test_json_and_a_run(tmp_path: Path) -> None:
    checkpoint = zero(tmp_path / "checkpoint")
    config = tmp_path / "ds_config.json"
    config.write_text(json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}))
    found = run(checkpoint, config, "--output-format", "json")
    assert found.return_value == 1
    told = json.loads(found.output)
    assert told["outcome"] == "does not resume"
    assert told["run"]["stage"] == 3
    first = told["findings"][0]
    assert (first["effect"], first["kind"]) == ("stops", "stage")
    assert "ds_config.json:1" in first["message"]
    assert any("zero_to_fp32" in way for way in first["ways_out"])
    config.write_text(json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}))
    assert run(checkpoint, config).return_value == 0


def test_exit_codes_of_wrong_use(tmp_path: Path) -> None:
    for words in ([tmp_path / "absent"], [zero(tmp_path / "there"), tmp_path / "no-run.yaml"]):
        found = CliRunner().invoke(cli, ["check-resume", *map(str, words)])
        assert found.exit_code == 2, found.output
        assert "Traceback" not in found.output


def test_only_what_the_run_reads_can_stop_it(tmp_path: Path) -> None:
    """A run without DeepSpeed reads the weights and not the shards, one with DeepSpeed the other way round."""
    zero(tmp_path)
    safetensors(tmp_path / "model.safetensors", {"a": [0], "b": [2]})
    (tmp_path / "trainer_state.json").write_text('{"global_step": 3}')
    torch_file(tmp_path / "scheduler.pt", {})
    sharded = {"engine": "deepspeed", "stage": 2, "precision": "bf16", "world_size": 2}
    assert kinds(tmp_path, **sharded) == ("resumes", set())
    outcome, found = kinds(tmp_path, engine="ddp", world_size=2, trainer=True)
    assert outcome == "does not resume"
    assert "empty-weights" in found
    safetensors(tmp_path / "model.safetensors", {"a": [2]})
    (tmp_path / "global_step3" / "bf16_zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert kinds(tmp_path, **sharded) == ("does not resume", {"missing"})
    assert kinds(tmp_path, engine="ddp", world_size=2, trainer=True) == ("resumes with a loss", {"optimizer", "random"})


@pytest.mark.parametrize("engine", [None, "megatron"])
def test_an_unknown_engine_is_not_judged(tmp_path: Path, engine: str | None) -> None:
    assert kinds(zero(tmp_path), engine=engine) == ("described", {"engine"})


def test_a_loop_of_its_own_starts_anew_without_shards(tmp_path: Path) -> None:
    safetensors(tmp_path / "model.safetensors", {"a": [2]})
    verdict = judge(read_checkpoint(tmp_path), Target("run", "deepspeed", 2, 2, "bf16"))
    assert verdict.outcome == "does not resume"
    assert "training starts from scratch" in verdict.findings[0].message
