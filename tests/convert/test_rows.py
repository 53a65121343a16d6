"""Whole tables of conversions, with the place and the reason of each row, and the edits that they are made of."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of, setting
from tests.cli.conftest import Outcome
from zerocfg.convert import fsdp1, into_json, into_yaml, precision, zero_to_fsdp2
from zerocfg.convert.conversion import (
    Conversion,
    ConversionError,
    Row,
    converted_run,
    counted,
    place,
    refused,
    said,
    word,
)
from zerocfg.convert.outcome import refusals
from zerocfg.convert.targets import _near, convert
from zerocfg.convert.yaml_edits import with_section, without_key
from zerocfg.convert.zero_to_fsdp2 import _fate, _launcher, _of_the_script, _precision, _unsaid, _values
from zerocfg.run.discover import Files
from zerocfg.run.link import run_of_file
from zerocfg.run.model import UNKNOWN, Effective, Failure, Run, SourceFile
from zerocfg.run.stages.fsdp import PARALLEL
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

Cli = Callable[..., Outcome]
HEAD = "compute_environment: LOCAL_MACHINE\nnum_machines: 1\nnum_processes: 8\n"
COMPILED = "dynamo_config:\n  dynamo_backend: INDUCTOR\n"
DDP = f"{HEAD}distributed_type: MULTI_GPU\nmixed_precision: bf16\n{COMPILED}"
FSDP_1 = (
    f"{HEAD}distributed_type: FSDP\nmixed_precision: bf16\n"
    "fsdp_config:\n  fsdp_sharding_strategy: 2\n  fsdp_min_num_params: 5\n  unknown: 3\n"
)
ZERO = (
    f"{HEAD}distributed_type: DEEPSPEED\nmixed_precision: bf16\n{COMPILED}deepspeed_config:\n  zero_stage: 2\n"
    "  overlap_comm: true\n  offload_optimizer_nvme_path: none\n  gradient_clipping: auto\n"
)
POINTING = "distributed_type: DEEPSPEED\nnum_processes: 2\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
JSON = (
    '{"bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 1, "overlap_comm": true}, '
    '"gradient_accumulation_steps": "auto", "steps_per_print": 10}\n'
)
BF16, BACKEND = "mixed_precision: bf16", 'dynamo_config: {"dynamo_backend": "INDUCTOR"}'
SHARDED = "parameters, gradients and optimizer state are sharded: less memory, more communication"
FULL = "fsdp_config.fsdp_state_dict_type: FULL_STATE_DICT"
LAYERS = "fsdp_config.fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP"

TABLES: dict[tuple[str, str], list[tuple[str, str, str, str, str]]] = {
    (DDP, "fsdp2"): [
        ("distributed_type: MULTI_GPU", "distributed_type: FSDP", "exactly", "", "a.yaml:4:1"),
        ("(each card holds the whole model)", "fsdp_config.fsdp_reshard_after_forward: true", "nearly", SHARDED, ""),
        ("(checkpoints hold whole weights)", FULL, "exactly", "the default leaves shards", ""),
        ("(one model)", LAYERS, "exactly", "FSDP gathers layer by layer", ""),
        (
            BF16,
            BF16,
            "nearly",
            "FSDP casts parameters and gradients of a layer; DDP runs single operations in it",
            "a.yaml:5:1",
        ),
    ],
    (DDP, "zero3"): [
        ("distributed_type: MULTI_GPU", "distributed_type: DEEPSPEED", "exactly", "", "a.yaml:4:1"),
        ("(each card holds the whole model)", "deepspeed_config.zero_stage: 3", "nearly", SHARDED, ""),
        (
            "(checkpoints hold whole weights)",
            "deepspeed_config.zero3_save_16bit_model: true",
            "nearly",
            "in 16 bit, where that is the precision",
            "",
        ),
        (
            "(gradients are clipped where the script does)",
            "(gradient_clipping: 1.0)",
            "nearly",
            "DeepSpeed clips in its own step, and takes no other norm from a script; a Trainer says max_grad_norm",
            "",
        ),
        (
            BF16,
            BF16,
            "nearly",
            "DeepSpeed casts the model, beside fp32 master weights; DDP runs single operations in it",
            "a.yaml:5:1",
        ),
        (BACKEND, "", "not at all", "the DeepSpeed launcher does not export it", "a.yaml:6:1"),
    ],
    (FSDP_1, "fsdp2"): [
        (
            "fsdp_config.fsdp_sharding_strategy: 2",
            "fsdp_config.fsdp_reshard_after_forward: false",
            "exactly",
            "",
            "a.yaml:7:3",
        ),
        ("(fsdp_version: 1)", "fsdp_config.fsdp_version: 2", "exactly", "accelerate's default is 1", ""),
        (
            "(fsdp_state_dict_type: FULL_STATE_DICT)",
            FULL,
            "exactly",
            "the default of FSDP 2 is SHARDED_STATE_DICT",
            "",
        ),
        (
            BF16,
            BF16,
            "nearly",
            "FSDP 2 casts the outputs of a layer, too, and leaves buffers as they are",
            "a.yaml:5:1",
        ),
    ],
    (ZERO, "fsdp2"): [
        ("distributed_type: DEEPSPEED", "distributed_type: FSDP", "exactly", "", "a.yaml:4:1"),
        (
            "deepspeed_config.zero_stage: 2",
            "fsdp_config.fsdp_reshard_after_forward: false",
            "nearly",
            "parameters are sharded, too, and gathered from the forward pass to the backward pass",
            "a.yaml:9:3",
        ),
        ("deepspeed_config.overlap_comm: true", "(left out)", "exactly", "nobody read it", "a.yaml:10:3"),
        (
            "deepspeed_config.offload_optimizer_nvme_path: none",
            "(left out)",
            "exactly",
            "nobody read it",
            "a.yaml:11:3",
        ),
        (
            "deepspeed_config.gradient_clipping: auto",
            "",
            "not at all",
            "the script has to say it: accelerator.clip_grad_norm_(), or `max_grad_norm` of the Trainer",
            "a.yaml:12:3",
        ),
        ("(DeepSpeed hooks every module)", LAYERS, "nearly", "FSDP gathers whole layers", ""),
        (
            BF16,
            BF16,
            "nearly",
            "FSDP casts fp32 parameters layer by layer; DeepSpeed trains a copy beside fp32 master weights",
            "a.yaml:5:1",
        ),
        (BACKEND, BACKEND, "counts now", "the DeepSpeed launcher does not export it", "a.yaml:6:1"),
    ],
    (ZERO, "deepspeed-json"): [
        ("deepspeed_config.zero_stage: 2", "zero_optimization.stage: 2", "exactly", "", "a.yaml:9:3"),
        (
            "deepspeed_config.overlap_comm: true",
            "zero_optimization.overlap_comm: true",
            "counts now",
            "nobody read it; false counted",
            "a.yaml:10:3",
        ),
        ("deepspeed_config.offload_optimizer_nvme_path: none", "(left out)", "exactly", "", "a.yaml:11:3"),
        ("deepspeed_config.gradient_clipping: auto", "gradient_clipping: 1.0", "exactly", "", "a.yaml:12:3"),
        (BF16, "bf16.enabled: true", "exactly", "", "a.yaml:5:1"),
    ],
    (POINTING, "accelerate-yaml"): [
        ("bf16.enabled: auto", "(left out)", "exactly", "accelerate fills it in", "ds.json:1:11"),
        ("zero_optimization.stage: 1", "deepspeed_config.zero_stage: 1", "exactly", "", "ds.json:1:53"),
        (
            "zero_optimization.overlap_comm: true",
            "",
            "not at all",
            "accelerate has no key for it; false would count",
            "ds.json:1:65",
        ),
        ("gradient_accumulation_steps: auto", "(left out)", "exactly", "accelerate fills it in", "ds.json:1:88"),
        ("steps_per_print: 10", "(left out)", "exactly", "it changes nothing", "ds.json:1:127"),
    ],
}


@pytest.mark.parametrize(("text", "target"), TABLES, ids=lambda item: item if "\n" not in item else item.split()[-1])
def test_each_row(text: str, target: str, zerocfg: Cli, tmp_path: Path) -> None:
    """Read off the files: which line each key stands on, and what the engine on the other side has for it."""
    (tmp_path / "a.yaml").write_text(text)
    (tmp_path / "ds.json").write_text(JSON)
    words = ("convert", "a.yaml", "--to", target, "--consumer", "accelerate", "--output-format", "json")
    found = json.loads(zerocfg(*words).out)
    names = ("key", "becomes", "maps", "because", "place")
    assert [tuple(row[name] for name in names) for row in found["table"]] == TABLES[text, target]
    assert found["differs"] == []


def file_of(text: str, name: str = "a.yaml") -> SourceFile:
    own = SourceText(name, text)
    return SourceFile(name, "accelerate", own, load_as(own, name.rpartition(".")[2]))


class TestEdits:
    @pytest.mark.parametrize(
        ("text", "after"),
        [
            ("s:\n  a: 1\n  b: 2\n", "s:\n  b: 2\n"),
            ("s:\n  a: 1  # why\n  b: 2\n", "s:\n  # x.a: why\n  b: 2\n"),
            ("s:\n  a: 1  #why\n  b: 2\n", "s:\n  # x.a: why\n  b: 2\n"),
            ("s:\n  a: 1  #\n  b: 2\n", "s:\n  b: 2\n"),
            ("s:\n  a: {c: 1}  # why\n  b: 2\n", "s:\n  b: 2\n"),
            ("s: {a: 1, b: 2}  # why\n", "s: {b: 2}  # why\n"),
            ("s:\n  a: 1\n  a: 3  # why\n  b: 2\n", "s:\n  # x.a: why\n  b: 2\n"),
        ],
    )
    def test_a_key_goes_and_its_comment_stays(self, text: str, after: str) -> None:
        assert without_key(file_of(text), text, ("s", "a"), "x.a") == after

    @pytest.mark.parametrize(
        ("text", "after"),
        [
            ("a: 1\n", "a: 1\ns:\n  b: true\n  c: x\n"),
            ("a: 1", "a: 1\ns:\n  b: true\n  c: x\n"),
            ("a: 1\r\n", "a: 1\r\ns:\r\n  b: true\r\n  c: x\r\n"),
        ],
    )
    def test_a_section_at_the_end(self, text: str, after: str) -> None:
        assert with_section(file_of(text), text, "s", {"b": True, "c": "x"}) == after

    @pytest.mark.parametrize(
        ("text", "name", "said"),
        [
            ("{a: 1}\n", "a.yaml", "the config is not written as a block of YAML"),
            ('{"a": 1}\n', "a.json", "the config is not written as a block of YAML"),
            ("- a\n", "a.yaml", "the config is not written as a block of YAML"),
            ("s: 1\n", "a.yaml", "`s` is there already"),
        ],
    )
    def test_where_no_section_can_stand(self, text: str, name: str, said: str) -> None:
        with pytest.raises(ValueError, match=said):
            with_section(file_of(text, name), text, "s", {"b": True})


class TestWords:
    def test_places_and_values(self) -> None:
        file = file_of("x: 1\ns:\n  a: 1\n")
        assert place(file, ("s", "a")) == "a.yaml:3:3"
        assert str(refused(file, ("s", "a"), "it is wrong")) == "a.yaml:3:3: it is wrong"
        assert said(("s", "a"), True) == "s.a: true" and said(("hub_token",), "hf_x") == "hub_token: (not recorded)"
        assert (word("auto"), word(""), word(2), word(None)) == ("auto", '""', "2", "null")

    def test_what_a_key_counts_as(self) -> None:
        run = run_of(effective=Effective(settings={"a": setting(UNKNOWN), "b": setting(2)}))
        assert counted(run, "a", "auto") == "auto" and counted(run, "a", 3) is UNKNOWN
        assert counted(run, "b", "auto") == 2 and counted(run, "c", 3) == 3

    def test_what_is_lost(self) -> None:
        rows = tuple(Row("a", "", match) for match in ("exactly", "not at all", "nearly", "counts now"))  # type: ignore[arg-type]
        assert Conversion(run_of(), "", rows).lost == (rows[1],)

    def test_refusals_that_a_conversion_brings(self) -> None:
        old, new, later = Failure("k", "init", "m"), Failure("n", "init", "stops"), Failure("k", "step", "later")
        before, after = (run_of(effective=Effective(failures=failures)) for failures in ((old,), (old, new, later)))
        assert refusals(before, after) == (
            Row("(the job starts)", "", "not at all", "it stops: stops"),
            Row("(the job starts)", "", "not at all", "it stops: later"),
        )

    @pytest.mark.parametrize(
        ("name", "beside"), [("a.yaml", "a.json"), ("b/a.yml", "b/a.json"), ("a.json", "a_deepspeed.json")]
    )
    def test_a_json_beside_the_config(self, name: str, beside: str) -> None:
        assert _near(Path(name)) == Path(beside)


VALUES = {"fsdp_reshard_after_forward": True, "fsdp_state_dict_type": "FULL_STATE_DICT"}


def under(consumer: str = "accelerate", accelerate: Any = None, **settings: Any) -> Any:
    effective = Effective(settings={name.replace("__", "."): setting(value) for name, value in settings.items()})
    return run_of(consumer, accelerate=accelerate or {"distributed_type": "DEEPSPEED"}, effective=effective)


class TestZero:
    @pytest.mark.parametrize(
        ("stage", "gather", "saved"),
        [(3, True, "FULL"), (3, False, "SHARDED"), (3, "auto", "SHARDED"), (2, False, "FULL"), (0, None, "FULL")],
    )
    def test_how_weights_are_saved(self, stage: int, gather: Any, saved: str) -> None:
        name = "zero_optimization__stage3_gather_16bit_weights_on_model_save"
        found = _values(under(**{"zero_optimization__stage": stage, name: gather}))
        assert found == {
            "fsdp_version": 2,
            "fsdp_reshard_after_forward": stage == 3,
            "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
            "fsdp_state_dict_type": f"{saved}_STATE_DICT",
        }

    @pytest.mark.parametrize(
        ("optimizer", "parameters", "offloads"),
        [("none", "none", None), ("cpu", "none", True), ("none", "nvme", True), (None, None, None)],
    )
    def test_what_is_offloaded(self, optimizer: Any, parameters: Any, offloads: bool | None) -> None:
        devices = {"offload_optimizer__device": optimizer, "offload_param__device": parameters}
        run = under(
            zero_optimization__stage=3, **{f"zero_optimization__{name}": item for name, item in devices.items()}
        )
        assert _values(run).get("fsdp_offload_params") is offloads

    @pytest.mark.parametrize(
        ("settings", "said"),
        [
            ({}, "its ZeRO stage is not known"),
            ({"zero_optimization__stage": UNKNOWN}, "its ZeRO stage is not known"),
            ({"zero_optimization__stage": 4}, "its ZeRO stage is 4"),
            (
                {"zero_optimization__stage": 3, "zero_optimization__offload_param__device": UNKNOWN},
                "whether it offloads is not known",
            ),
        ],
    )
    def test_what_has_to_be_known(self, settings: dict[str, Any], said: str) -> None:
        with pytest.raises(ConversionError, match=f"accelerate.yaml:1:1: {said}"):
            _values(under(**settings))

    @pytest.mark.parametrize(
        ("name", "value", "stage", "fate"),
        [
            ("a", None, 3, ("(left out)", "exactly")),
            ("a", UNKNOWN, 3, ("", "not at all")),
            ("zero_optimization.stage3_gather_16bit_weights_on_model_save", True, 3, (FULL, "nearly")),
            ("zero_optimization.offload_param.pin_memory", True, 3, ("(left out)", "nearly")),
            ("zero_optimization.offload_param.ratio", 0.5, 3, ("(left out)", "nearly")),
            ("other.pin_memory", True, 3, ("", "not at all")),
            ("zero_optimization.unknown", True, 3, ("", "not at all")),
            ("comms_logger.enabled", True, 3, ("(left out)", "nearly")),
            ("aio.block_size", 1, 3, ("(left out)", "exactly")),
            ("optimizer.params.lr", 1, 3, ("", "not at all")),
            ("gradient_predivide_factor", 1.0, 3, ("(left out)", "exactly")),
            ("gradient_predivide_factor", 2.0, 3, ("", "not at all")),
        ],
    )  # fmt: skip
    def test_what_becomes_of_a_setting(self, name: str, value: Any, stage: int, fate: tuple[str, str]) -> None:
        assert _fate(under(zero_optimization__stage=stage), name, value, VALUES)[:2] == fate

    def test_what_a_script_makes_itself(self) -> None:
        why = "the script has to make its own (the Trainer: optim, lr_scheduler_type)"
        for name in ("optimizer.type", "scheduler.params.warmup_num_steps"):
            assert _fate(under(zero_optimization__stage=3), name, 1, VALUES) == ("", "not at all", why)
        other = _fate(under(zero_optimization__stage=3), "optimizers.type", 1, VALUES)
        assert other == ("", "not at all", "FSDP has nothing for it")

    def test_why_weights_differ(self) -> None:
        name = "zero_optimization.stage3_gather_16bit_weights_on_model_save"
        for stage, why in (
            (3, "the Trainer saves fp32, not 16 bit"),
            (2, "below stage 3 the weights are whole anyway"),
        ):
            assert _fate(under(zero_optimization__stage=stage), name, True, VALUES)[2] == why

    @pytest.mark.parametrize(
        ("kind", "leaf", "value", "on", "fate"),
        [
            ("bf16", "enabled", True, True, ("mixed_precision: bf16", "nearly")),
            ("bf16", "enabled", False, False, ("(left out)", "exactly")),
            ("bf16", "enabled", "auto", True, ("(left out)", "exactly")),
            ("fp16", "loss_scale", 128, False, ("(left out)", "exactly")),
            ("fp16", "loss_scale", 128, True, ("", "not at all")),
            ("fp16", "loss_scale", 1, True, ("", "not at all")),
            ("fp16", "loss_scale", 0, True, ("(left out)", "nearly")),
            ("fp16", "loss_scale", 0.0, True, ("(left out)", "nearly")),
            ("fp16", "hysteresis", 2, True, ("(left out)", "nearly")),
            ("fp16", "auto_cast", True, True, ("(left out)", "nearly")),
            ("bf16", "check_grad_overflow", True, True, ("(left out)", "nearly")),
            ("bf16", "bf16_optimizer_states", True, True, ("", "not at all")),
        ],
    )
    def test_precision(self, kind: str, leaf: str, value: Any, on: bool, fate: tuple[str, str]) -> None:
        assert _precision(under(**{f"{kind}__enabled": on}), kind, leaf, value)[:2] == fate

    @pytest.mark.parametrize(
        ("consumer", "name", "value", "match"),
        [
            ("trl", "gradient_clipping", 0.5, "exactly"),
            ("accelerate", "gradient_clipping", "auto", "nearly"),
            ("accelerate", "gradient_accumulation_steps", "auto", "exactly"),
            ("accelerate", "gradient_clipping", 0, "exactly"),
            ("accelerate", "gradient_clipping", 1, "not at all"),
            ("accelerate", "gradient_accumulation_steps", 1, "exactly"),
            ("accelerate", "gradient_accumulation_steps", 0, "not at all"),
        ],
    )
    def test_what_the_script_says(self, consumer: str, name: str, value: Any, match: str) -> None:
        assert _of_the_script(under(consumer), name, value)[1] == match

    @pytest.mark.parametrize(
        ("name", "value", "machines", "match"),
        [
            ("deepspeed_config_file", "ds.json", 2, "exactly"),
            ("zero3_init_flag", True, 1, "nearly"),
            ("zero3_init_flag", False, 1, "exactly"),
            ("deepspeed_hostfile", "h", 1, "exactly"),
            ("deepspeed_hostfile", "standard", 2, "not at all"),
            ("deepspeed_multinode_launcher", "standard", 2, "exactly"),
            ("deepspeed_multinode_launcher", "pdsh", 2, "not at all"),
            ("deepspeed_moe_layer_cls_names", "A", 1, "not at all"),
            ("another", 1, 1, "not at all"),
        ],
    )
    def test_keys_of_the_launcher(self, name: str, value: Any, machines: int, match: str) -> None:
        assert _launcher(under(num_machines=machines), name, value)[1] == match

    @pytest.mark.parametrize(
        ("consumer", "section", "leaves", "rows"),
        [
            ("accelerate", {}, set(), 1),
            ("accelerate", {"gradient_clipping": 1}, set(), 0),
            ("accelerate", {}, {"gradient_clipping"}, 0),
            ("accelerate", None, set(), 1),
            ("trl", {}, set(), 0),
        ],
    )
    def test_clipping_that_nobody_asked_for(self, consumer: str, section: Any, leaves: set[str], rows: int) -> None:
        config = {"distributed_type": "DEEPSPEED", "deepspeed_config": section}
        assert len(list(_unsaid(under(consumer, config), leaves))) == rows

    @pytest.mark.parametrize(
        ("config", "data", "word_"),
        [
            ({}, {"bf16": {"enabled": True}}, "bf16"),
            ({}, {"fp16": {"enabled": True}}, "fp16"),
            ({}, {"bf16": {"enabled": "auto"}}, None),
            ({"mixed_precision": "no"}, {"bf16": {"enabled": True}}, None),
            ({}, None, None),
        ],
    )
    def test_a_precision_that_only_the_json_has(self, config: Any, data: Any, word_: str | None) -> None:
        more = {} if data is None else {"deepspeed": data}
        assert zero_to_fsdp2._json_precision(run_of("accelerate", accelerate=config, **more)) == word_


class TestFsdp1:
    @pytest.mark.parametrize(
        ("name", "value", "becomes"),
        [
            ("fsdp_version", 1, ("fsdp_version", "exactly", 2)),
            ("fsdp_auto_wrap_policy", "SIZE_BASED_WRAP", ("fsdp_auto_wrap_policy", "nearly", "TRANSFORMER_BASED_WRAP")),
            ("fsdp_min_num_params", 5, (None, "nearly", UNKNOWN)),
            ("fsdp_min_num_params", None, None),
            ("fsdp_state_dict_type", "LOCAL_STATE_DICT", ("fsdp_state_dict_type", "nearly", "SHARDED_STATE_DICT")),
            ("fsdp_backward_prefetch", "BACKWARD_PRE", (None, "exactly", UNKNOWN)),
            ("fsdp_backward_prefetch", "BACKWARD_POST", (None, "nearly", UNKNOWN)),
            ("fsdp_forward_prefetch", True, (None, "nearly", UNKNOWN)),
            ("fsdp_forward_prefetch", False, (None, "exactly", UNKNOWN)),
            ("fsdp_use_orig_params", False, (None, "nearly", UNKNOWN)),
            ("fsdp_sync_module_states", False, (None, "exactly", UNKNOWN)),
            ("fsdp_sync_module_states", True, (None, "nearly", UNKNOWN)),
            ("unknown", 1, None),
        ],
    )
    def test_keys(self, name: str, value: Any, becomes: Any) -> None:
        found = fsdp1._becomes(under(), name, value, False)
        assert (None if found is None else (found.key, found.match, found.value)) == becomes

    @pytest.mark.parametrize(
        ("strategy", "has", "key", "match", "reshards"),
        [
            ("FULL_SHARD", False, "fsdp_reshard_after_forward", "exactly", True),
            ("FULL_SHARD", True, None, "exactly", True),
            ("NO_SHARD", False, "fsdp_reshard_after_forward", "nearly", False),
            ("HYBRID_SHARD_ZERO2", False, "fsdp_reshard_after_forward", "exactly", False),
        ],
    )
    def test_strategies(self, strategy: str, has: bool, key: Any, match: str, reshards: bool) -> None:
        run = under(fsdp_config__fsdp_sharding_strategy=strategy, num_machines=1, num_processes=8)
        found = fsdp1._strategy(run, strategy, has)
        assert (found.key, found.match, found.value) == (key, match, reshards)
        assert ("on one machine all cards share one copy" in found.why) is strategy.startswith("HYBRID")

    @pytest.mark.parametrize(
        ("strategy", "machines", "processes", "sizes"),
        [
            ("FULL_SHARD", 2, 16, None),
            ("HYBRID_SHARD", 1, 8, None),
            ("HYBRID_SHARD", 2, 16, {"dp_replicate_size": 2, "dp_shard_size": 8}),
            ("HYBRID_SHARD_ZERO2", 4, 8, {"dp_replicate_size": 4, "dp_shard_size": 2}),
            ("HYBRID_SHARD", 2, 15, "HYBRID_SHARD needs a mesh: say num_processes and num_machines"),
            ("HYBRID_SHARD", UNKNOWN, 16, "HYBRID_SHARD needs a mesh"),
            ("HYBRID_SHARD", 2, 2, "with one process a machine it shards nothing"),
        ],
    )
    def test_meshes(self, strategy: str, machines: Any, processes: Any, sizes: Any) -> None:
        names = {"num_machines": machines, "num_processes": processes}
        config = {"fsdp_config": {"fsdp_sharding_strategy": strategy}}
        run = under(accelerate=config, fsdp_config__fsdp_sharding_strategy=strategy, **names)
        if not isinstance(sizes, str):
            assert fsdp1._mesh(run) == sizes
            return
        with pytest.raises(ConversionError, match=sizes):
            fsdp1._mesh(run)

    def test_defaults_that_are_others_in_version_2(self) -> None:
        written = [(name, item.value) for name, item in fsdp1._defaults({})]
        assert written == [("fsdp_version", 2), ("fsdp_state_dict_type", "FULL_STATE_DICT")]
        both: Any = {"fsdp_version": (), "fsdp_state_dict_type": ()}
        assert list(fsdp1._defaults(both)) == []


class TestIntoYaml:
    def test_settings_in_the_words_of_accelerate(self) -> None:
        leaves = {
            "zero_optimization.stage": 2,
            "gradient_clipping": "auto",
            "gradient_accumulation_steps": None,
            "bf16.enabled": True,
            "fp16.enabled": False,
            "steps_per_print": 10,
        }
        assert dict(into_yaml._said(leaves)) == {
            "zero_optimization.stage": (("deepspeed_config", "zero_stage"), 2),
            "bf16.enabled": (("mixed_precision",), "bf16"),
        }

    def test_a_run_without_a_json(self) -> None:
        files: Any = SimpleNamespace()
        with pytest.raises(ConversionError, match="it names no `deepspeed_config_file`: there is no JSON to take in"):
            into_yaml.into_yaml(under(), files)


class TestGuards:
    """What a conversion refuses or passes over, beside the nearest case in which it does not."""

    VALUES = {"fsdp_version": 2, "fsdp_reshard_after_forward": True}  # noqa: RUF012
    WRITTEN = "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: true\n"

    @pytest.mark.parametrize("section", ["", "deepspeed_config:\n", "deepspeed_config: {}\n"])
    def test_a_section_that_says_nothing_is_replaced(self, section: str) -> None:
        file = file_of(f"num_processes: 2\n{section}")
        text = zero_to_fsdp2._sections(Run("a", "accelerate", accelerate=file), file.source.text, self.VALUES)
        assert text == f"num_processes: 2\n{self.WRITTEN}"

    def test_a_section_with_keys_gets_another_name_and_keeps_its_place(self) -> None:
        file = file_of("deepspeed_config:\n  zero_stage: 3\nnum_processes: 2\n")
        run = Run("a", "accelerate", accelerate=file)
        assert zero_to_fsdp2._sections(run, file.source.text, self.VALUES) == f"{self.WRITTEN}num_processes: 2\n"
        both = file_of("deepspeed_config:\n  zero_stage: 3\nfsdp_config: {}\n")
        with pytest.raises(ValueError, match="there is a `fsdp_config` already"):
            zero_to_fsdp2._sections(Run("a", "accelerate", accelerate=both), both.source.text, self.VALUES)

    @pytest.mark.parametrize(
        ("config", "effective", "row"),
        [
            ({"mixed_precision": "bf16"}, "bf16", "mixed_precision: bf16"),
            ({"mixed_precision": "no"}, "no", None),
            ({}, "bf16", None),
            ({"mixed_precision": "bf16"}, None, None),
        ],
    )
    def test_a_precision_has_a_row_where_the_config_says_it(self, config: Any, effective: Any, row: str | None) -> None:
        settings = {} if effective is None else {"mixed_precision": effective}
        rows = precision.precision(under(accelerate={"distributed_type": "FSDP", **config}, **settings), "why")
        assert [(one.old, one.new, one.match, one.why) for one in rows] == (
            [] if row is None else [(row, row, "nearly", "why")]
        )

    def test_two_meshes_are_one_too_many(self) -> None:
        strategy = {"fsdp_config__fsdp_sharding_strategy": "HYBRID_SHARD", "num_machines": 2, "num_processes": 8}
        config = {"fsdp_config": {"fsdp_sharding_strategy": "HYBRID_SHARD"}, "parallelism_config": {"a": 1}}
        assert fsdp1._mesh(under(accelerate=config, **strategy)) == {"dp_replicate_size": 2, "dp_shard_size": 4}
        other = {f"{PARALLEL}tp_size".replace(".", "__"): 2}
        with pytest.raises(ConversionError, match="there is another one already"):
            fsdp1._mesh(under(accelerate=config, **strategy, **other))

    @pytest.mark.parametrize(("target", "more"), [("zero2", {}), ("deepspeed-json", {"deepspeed": {"a": 1}})])
    def test_a_new_json_where_none_comes_of_it(self, target: str, more: Any) -> None:
        files: Any = SimpleNamespace()
        run = run_of("accelerate", accelerate={"distributed_type": "DEEPSPEED"}, **more)
        with pytest.raises(ConversionError, match=r"no new DeepSpeed JSON comes of it that 'new\.json' could name"):
            convert(run, files, target, Path("b.yaml"), Path("new.json"))

    def test_the_json_of_a_run(self) -> None:
        """It keeps its name. One that is no file, or that nobody can edit, gets nothing."""
        config = {"deepspeed_config": {"deepspeed_config_file": "x/ds.json"}}
        run = run_of("accelerate", accelerate=config, deepspeed={"bf16": {"enabled": True}})
        assert into_json._pointer(run, Path("y.json")) == "x/ds.json"
        assert into_json._pointer(run_of("accelerate", accelerate=config), Path("y.json")) == "y.json"
        assert list(into_json._moves(run)) == [], "the pointer itself is no setting"
        files: Any = SimpleNamespace()
        assert run.deepspeed is not None
        for path in (None, Path("page.md")):
            other = replace(run, deepspeed=replace(run.deepspeed, path=path))
            with pytest.raises(ConversionError, match=r"ds\.json cannot be edited"):
                into_json.into_json(other, files, Path("y.json"))

    def test_letters_stay_letters(self) -> None:
        text = into_json._new_json([(SimpleNamespace(), {"tensorboard.job_name": "Größe"})])  # type: ignore[list-item]
        assert '"job_name": "Größe"' in text and json.loads(text)["zero_optimization"] == {"stage": 2}

    @pytest.mark.parametrize(
        ("consumer", "settings", "why"),
        [
            ("trl", {"fp16.enabled": True}, "a Trainer stops unless its arguments have `fp16: true`, too"),
            ("accelerate", {"fp16.enabled": True}, ""),
            ("trl", {}, ""),
        ],
    )
    def test_a_precision_that_moves(self, consumer: str, settings: dict[str, object], why: str) -> None:
        move = into_json._Move(("mixed_precision",), "fp16", settings, read=True)
        assert into_json._judged(run_of(consumer), move, ()) == ("nearly" if why else "exactly", why)

    def test_what_came_of_it_has_to_be_a_config(self, tmp_path: Path) -> None:
        path = tmp_path / "a.yaml"
        path.write_text("distributed_type: FSDP\nnum_processes: 2\n")
        files = Files()
        run = run_of_file(path, files)
        assert run is not None and run.accelerate is not None
        with pytest.raises(ConversionError, match="what came of it is no accelerate config"):
            converted_run(run, files, "- 1\n")
        after = converted_run(run, files, "distributed_type: FSDP\nnum_processes: 4\n")
        assert after.effective.value("num_processes") == 4
