"""Why a rule says that something happens, and what it advises: each word by its case, worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of
from tests.rules.by_hand import TRAIN, after, effective, found, shown, started, yaml_file
from zerocfg.catalog.signatures import parameters
from zerocfg.catalog.versions import release
from zerocfg.rules import arguments as read
from zerocfg.rules.api import Finding, Intent, Severity
from zerocfg.rules.arguments import type_of
from zerocfg.rules.batch.sizes import _without_total, positive
from zerocfg.rules.fsdp.parallelism import _of_pairs
from zerocfg.rules.key import Key, accelerate, deepspeed
from zerocfg.rules.launch.config import _certain, _is_number, _looks_local
from zerocfg.rules.launch.machines import _single_machine
from zerocfg.rules.launch.options import listed, machines_of
from zerocfg.rules.memory.limits import _mount, _remedy
from zerocfg.rules.recipes.call_keywords import _advice, _history
from zerocfg.rules.recipes.slips import certainly_unknown
from zerocfg.rules.taken import Lack, _sure
from zerocfg.rules.zero import saving
from zerocfg.rules.zero.stages import _gain
from zerocfg.run.facts import HardwareSummary, MemorySummary, ModelSummary
from zerocfg.run.model import UNKNOWN, Call, Failure, Origin, Run, Script, Setting, SourceFile
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.text import SourceText, Span

NEWEST = {"accelerate": "1.15.0", "transformers": "5.23.0", "trl": "1.16.0"}


def call(name: str, *keywords: str, **objects: str) -> Call:
    given = {keyword: Setting(1, Origin("file", file=TRAIN, span=Span(0, 9))) for keyword in keywords}
    return Call(name, given, TRAIN, Span(0, 9), objects=objects)


@pytest.mark.parametrize(
    ("peaks", "stage", "logits", "said"),
    [
        ({1: (0.0, 90.0), 2: (0.0, 70.0)}, 0, None, "stage 2 fits"),
        ({1: (0.0, 80.0)}, None, None, "stage 1 fits"),
        ({1: (0.0, 70.0), 3: (0.0, 70.0)}, 1, None, "stage 3 fits"),
        ({1: (0.0, 70.0), 2: (0.0, 70.0)}, 2, None, "`zerocfg plan`"),
        ({1: (0.0, 80.1)}, 0, 15.0, "logits and loss are 15 GiB"),
        ({}, 3, 20.0, "logits and loss are 20 GiB"),
        ({}, 3, 10.0, "logits and loss are 10 GiB"),
        ({}, 3, 9.9, "`zerocfg plan`"),
    ],
)
def test_what_makes_a_run_fit(peaks: Any, stage: int | None, logits: float | None, said: str) -> None:
    memory = MemorySummary(peak_gib=(80.0, 90.0), stage_peaks_gib=peaks, logits_gib=logits)
    settings: dict[str, Any] = {"zero_optimization.stage": stage}
    assert _remedy(effective(run_of(), **settings), 80.0, memory).startswith(said)


@pytest.mark.parametrize(
    ("path", "mount"),
    [
        ("/nvme/a", "/nvme"),
        ("/nvme", "/nvme"),
        ("/nvme2/a", "/"),
        ("/nvme/data/x", "/nvme/data"),
        ("x", None),
        (3, None),
    ],
)
def test_the_drive_that_a_path_lies_on(path: object, mount: str | None) -> None:
    assert _mount(path, {"/": 1.0, "/nvme": 2.0, "/nvme/data": 3.0}) == mount


@pytest.mark.parametrize(
    ("path", "value", "lost", "said"),
    [
        (("stage3_gather_16bit_weights_on_model_save",), False, None, "with `stage3_gather"),
        (("stage3_gather_16bit_weights_on_model_save",), "auto", None, 'save: "auto"` becomes false'),
        (("stage3_gather_16bit_weights_on_model_save",), 0, None, "save: 0` does not count as true"),
        (("zero3_save_16bit_model",), False, None, "with `zero3_save_16bit_model: false`"),
        (("zero_optimization",), {"stage": 3}, None, "without gathering the weights"),
        (("stage",), 3, None, "without gathering the weights"),
        ((), None, None, "without gathering the weights"),
        (("stage",), 3, "stage3_gather", "accelerate does not read `stage3_gather`"),
    ],
)
def test_why_the_weights_are_lost(path: Any, value: object, lost: str | None, said: str) -> None:
    run = run_of(deepspeed={})
    other = Key(run, run.deepspeed, (lost,), True) if lost else None
    assert said in saving._cause(Key(run, run.deepspeed, path, value), other)


@pytest.mark.parametrize(
    ("consumer", "methods", "whole", "adds"),
    [
        ("accelerate", {"save_pretrained"}, True, True),
        ("accelerate", {"save_pretrained"}, False, False),
        ("accelerate", {"save_pretrained", "get_state_dict"}, True, False),
        ("accelerate", {"save_model"}, True, False),
        ("transformers", {"save_pretrained"}, True, False),
    ],
)
def test_scripts_that_save_empty_tensors(consumer: Any, methods: set[str], whole: bool, adds: bool) -> None:
    script = Script(TRAIN, methods=frozenset(methods), whole=whole)
    assert bool(saving._way_to_save(run_of(consumer, script=script))) is adds
    assert not saving._way_to_save(run_of(consumer))


@pytest.mark.parametrize(
    ("consumer", "said"),
    [
        ("transformers", "the Trainer writes"),
        ("axolotl", "the Trainer writes"),
        ("accelerate", "accelerator.get_state_dict()"),
        ("deepspeed", "engine.save_16bit_model() writes"),
        (None, "a Trainer writes"),
    ],
)
def test_what_comes_of_lost_weights(consumer: Any, said: str) -> None:
    assert saving._consequence(run_of(consumer)).startswith(said)


def test_the_key_that_gathers_under_the_name_that_is_written() -> None:
    def name(**files: Any) -> tuple[Any, bool] | None:
        key = saving._gather_key(run_of("accelerate", **files))
        return None if key is None else (key.path[-1], bool(key))

    assert name(deepspeed={"zero_optimization": {}}) == ("stage3_gather_16bit_weights_on_model_save", False)
    old = "stage3_gather_fp16_weights_on_model_save"
    assert name(deepspeed={"zero_optimization": {old: False}}) == (old, True)
    assert name(accelerate={"deepspeed_config": {"zero_stage": 3}}) == ("zero3_save_16bit_model", False)
    assert name(accelerate={"deepspeed_config": {}}) is None is name(accelerate={})


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("torchrun --nnodes 1 train.py", "--nnodes 1"),
        ("torchrun --nnodes 2 train.py", None),
        ("torchrun --nproc_per_node 8 train.py", "train.py"),
        ("torchrun --node_rank 0 train.py", None),
        ("torchrun --rdzv_endpoint a:1 train.py", None),
        ("torchrun $ARGS train.py", None),
        ("deepspeed train.py", None),
    ],
)
def test_where_a_launcher_is_asked_for_one_machine(line: str, place: str | None) -> None:
    location = _single_machine(started(line))
    text = None if location is None else shown(Finding(location, ""))
    assert text == place
    assert _single_machine(started(line, environment={"PET_NNODES": Setting("2", Origin("environment"))})) is None


@pytest.mark.parametrize(
    ("data", "machines"),
    [
        ({}, 1),
        ({"num_machines": 3}, 3),
        ({"num_machines": "x"}, 0),
        ({"num_machines": -2}, 0),
        ({"num_machines": True}, 0),
    ],
)
def test_how_many_machines_there_are(data: dict[str, Any], machines: int) -> None:
    run = run_of("accelerate", accelerate=data)
    assert machines_of(run) == machines
    assert machines_of(replace(run, launch=started("torchrun a.py").launch)) == 1, "torchrun reads no such file"
    flag = {"num_machines": Setting("5", Origin("flag", "--num_machines"))}
    assert machines_of(replace(run, flags=flag)) == 5
    open_ = {"num_machines": Setting(UNKNOWN, Origin("flag", "--num_machines"))}
    assert machines_of(replace(run, flags=open_)) == 0
    assert listed("0, 1,,2,") == ["0", " 1", "2"] and listed("") == []


@pytest.mark.parametrize(
    ("config", "consumer", "deleted"),
    [
        (
            {"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3},
            "deepspeed",
            True,
        ),
        ({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 3}, "trl", False),
        ({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2}, "deepspeed", False),
        ({"train_batch_size": 8, "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 0}, None, False),
        ({"train_batch_size": 8, "train_micro_batch_size_per_gpu": "a", "gradient_accumulation_steps": 1}, None, False),
    ],
)
def test_the_total_that_follows_from_the_others(config: dict[str, Any], consumer: Any, deleted: bool) -> None:
    run = run_of(consumer, deepspeed=config)
    fix = _without_total(run)
    assert (fix is not None) is deleted
    if fix is not None:
        assert "train_batch_size" not in json.loads(after(fix)) and not fix.safe
    sizes = [positive(deepspeed(run, name)) for name in config]
    assert sizes == [item if isinstance(item, int) and item > 0 else 0 for item in config.values()]


def test_types_that_changed_with_a_release() -> None:
    """`warmup_steps` is an int until transformers 4, a float from 5.0 on."""

    def of(declared: str, name: str = "warmup_steps") -> str | None:
        return type_of(run_of(recipe={}, versions={"transformers": declared}), name)

    assert [of(item) for item in ("==4.57.1", "<5", "==5.23.0", ">=5", ">=4.57")] == [
        "int",
        "int",
        "float",
        "float",
        None,
    ]
    assert of("==4.52.4", "tp_size") is None, "today's release knows no such argument"


@pytest.mark.parametrize(
    ("path", "local"),
    [
        ("ds.json", True),
        ("conf/ds.json", True),
        ("/abs/ds.json", False),
        ("~/ds.json", False),
        ("C\\ds.json", True),
        ("\\ds.json", False),
        ("", False),
        ("path/to/ds.json", False),
        ("YOUR_ds.json", False),
        ("<x>.json", False),
        ("$X.json", False),
        ("a...json", False),
        ("s3://x", False),
    ],
)
def test_paths_that_are_meant_as_they_stand(path: str, local: bool) -> None:
    assert _looks_local(path) is local


def test_files_that_a_page_names(tmp_path: Any) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "a.json").write_text("{}")
    page = SourceFile("README.md", "launch", SourceText("README.md", ""), path=tmp_path / "README.md")
    assert _certain(page, "conf/b.json") and not _certain(page, "other/b.json")
    assert _certain(replace(page, name="run.sh"), "other/b.json") and _certain(replace(page, path=None), "other/b.json")


def test_a_number_where_a_path_belongs() -> None:
    run = run_of(accelerate={"a": 1, "b": "x"})
    origins = [Origin("file", file=run.accelerate, path=(name,)) for name in "abc"]
    assert [_is_number(origin) for origin in origins] == [True, False, False]
    assert not _is_number(replace(origins[0], kind="flag")) and not _is_number(Origin("file"))


@pytest.mark.parametrize(
    ("name", "keyword", "said"),
    [
        ("transformers.Trainer", "learning_rate", "give it to TrainingArguments"),
        ("transformers.Trainer", "no_such_thing_at_all", "leave it out"),
        ("transformers.Trainer", "tokenizer", "write processing_class"),
        ("trl.SFTTrainer", "learning_rate", "give it to SFTConfig"),
        ("trl.NoTrainer", "learning_rate", "give it to NoConfig"),  # of which nothing is known
        ("trl.SFTTrainer", "packing", "give it to SFTConfig"),
        ("trl.SFTTrainer", "max_seq_length", "give it to SFTConfig, which calls it `max_length`"),
        ("trl.SFTTrainer", "no_such_thing_at_all", "leave it out"),
        ("trl.SFTTrainer", "num_generations", "leave it out"),
        ("trl.GRPOTrainer", "num_generations", "give it to GRPOConfig"),
        (
            "accelerate.Accelerator",
            "split_batches",
            "write dataloader_config=DataLoaderConfiguration(split_batches=...)",
        ),
        ("accelerate.Accelerator", "no_such_thing_at_all", "leave it out"),
    ],
)
def test_where_a_refused_keyword_belongs(name: str, keyword: str, said: str) -> None:
    """As their signatures in accelerate 1.15.0, transformers 5.23.0, trl 1.16.0 say."""
    newest = release(NEWEST[name.partition(".")[0]])
    assert _advice(call(name, keyword), keyword, newest) == said
    if said.startswith("write p"):
        both = call(name, keyword, "processing_class")
        assert _advice(both, keyword, newest) == "remove it: `processing_class` is written too"


@pytest.mark.parametrize(
    ("library", "of", "keyword", "at", "said"),
    [
        ("transformers", "Trainer", "tokenizer", "5.23.0", "removed `tokenizer` from Trainer()"),
        ("transformers", "Trainer", "tokenizer", "5.0.0", "transformers 5.0.0 removed `tokenizer` from Trainer()"),
        (
            "transformers",
            "Trainer",
            "processing_class",
            "4.40.0",
            "Trainer() accepts `processing_class` from transformers",
        ),
        ("transformers", "Trainer", "nothing", "5.23.0", "Trainer() of transformers 5.23.0 does not accept `nothing`"),
    ],
)
def test_since_when_a_keyword_is_refused(library: str, of: str, keyword: str, at: str, said: str) -> None:
    assert said in _history(library, of, keyword, release(at))


@pytest.mark.parametrize("code", ["ZC873"])
@pytest.mark.parametrize(
    ("name", "keywords", "args", "tells"),
    [
        ("trl.SFTTrainer", ("model", "args"), "transformers.TrainingArguments", True),
        ("trl.SFTTrainer", ("model", "args"), "trl.SFTConfig", False),
        ("trl.SFTTrainer", ("model", "args", "dataset_text_field"), "transformers.TrainingArguments", False),
        ("trl.DPOTrainer", ("model", "args"), "transformers.TrainingArguments", False),
    ],
)
def test_a_length_that_nobody_chose(code: str, name: str, keywords: tuple[str, ...], args: str, tells: bool) -> None:
    run = Run("a", "trl", script=Script(TRAIN, calls=(call(name, *keywords, args=args),)))
    assert bool(found(code, run)) is tells
    every = call(name, *parameters("trl", "SFTTrainer"), args=args)
    assert bool(found(code, replace(run, script=Script(TRAIN, calls=(every,))))) is (tells or len(keywords) == 3)


def test_options_that_the_parser_certainly_does_not_know() -> None:
    known = frozenset({"transformers.TrainingArguments"})
    script = Script(TRAIN, options=frozenset({"seed"}), parsed=known)
    recipe = yaml_file("recipe", "learning_rte: 1\nconfig: x\n")
    run = Run("a", "transformers", recipe=recipe, recipe_reader="hf", script=script)
    slip, config = read.arguments(run)
    assert certainly_unknown(run, slip) and not certainly_unknown(run, config)
    on_line = read.Argument("learning_rte", 1, Origin("flag", "--learning_rte"))
    assert certainly_unknown(run, on_line)
    assert not certainly_unknown(run, replace(on_line, name="see")), "an abbreviation"
    for other in (
        replace(run, recipe_reader=None),
        replace(run, script=None),
        replace(run, script=replace(script, options=None)),
        replace(run, script=replace(script, lenient=True)),
        replace(run, script=replace(script, parsed=frozenset({"trl.NoConfig"}))),
        replace(run, script=replace(script, parsed=frozenset())),
    ):
        assert not certainly_unknown(other, slip)


def test_a_lack_without_a_line_stays() -> None:
    lack = Lack("trl", "from TRL 0.20.0 on", "0.20.0")
    argument = read.Argument("x", 1, Origin("flag", "--x"))
    assert _sure(run_of(), argument, lack) is lack


@pytest.mark.parametrize("code", ["ZC719"])
@pytest.mark.parametrize(
    ("line", "accelerate", "switch"),
    [
        ("accelerate launch --zero_stage 2 train.py", None, "use_deepspeed"),
        ("accelerate launch --fsdp_version 2 train.py", None, "use_fsdp"),
        ("accelerate launch --zero_stage 2 --multi_gpu train.py", None, ""),
        ("accelerate launch --zero_stage 2 --use_deepspeed train.py", None, None),
        ("accelerate launch --zero_stage 2 --use_fsdp train.py", None, ""),
        ("accelerate launch --zero_stage 2 --cpu train.py", None, None),
        ("accelerate launch --zero_stage 2 --config_file x.yaml train.py", None, None),
        ("accelerate launch --zero_stage 2 train.py", {"distributed_type": "DEEPSPEED"}, None),
        ("accelerate launch --zero_stage 2 train.py", {"distributed_type": "FSDP"}, ""),
        ("accelerate launch --zero_stage 2 train.py", {"num_processes": 2}, None),
        ("torchrun --zero_stage 2 train.py", None, None),
        ("accelerate launch --num_processes 2 train.py", None, None),
    ],
)
def test_options_of_an_engine_that_nobody_chose(code: str, line: str, accelerate: Any, switch: str | None) -> None:
    """Empty: told, and left to the author, who chose another."""
    files: dict[str, Any] = {} if accelerate is None else {"accelerate": run_of(accelerate=accelerate).accelerate}
    every = found(code, started(line, consumer="accelerate", **files))
    assert len(every) == (switch is not None)
    for item in every:
        assert item.severity is Severity.WARNING
        if switch:
            assert f"--{switch} train.py" in after(item.fix)
            assert item.fix is not None and item.fix.gives == (Intent(switch, True, "option"),)
        else:
            assert item.fix is None


@pytest.mark.parametrize("code", ["ZC111"])
@pytest.mark.parametrize(
    ("zero", "left"),
    [
        ({"cpu_offload": True}, {"offload_optimizer": {"device": "cpu"}}),
        ({"cpu_offload": False}, {"offload_optimizer": {"device": "none"}}),
        ({"cpu_offload_param": True}, {"offload_param": {"device": "cpu"}}),
        ({"cpu_offload": "yes"}, None),
        ({"cpu_offload": True, "offload_optimizer": {"device": "cpu"}}, None),
        ({"cpu_offload": True, "offload_param": {"device": "cpu"}}, {"offload_optimizer": {"device": "cpu"}}),
    ],
)
def test_offloading_in_todays_words(code: str, zero: dict[str, Any], left: dict[str, Any] | None) -> None:
    every = found(code, with_settings(run_of("deepspeed", deepspeed={"zero_optimization": zero})))
    (one,) = [item for item in every if "cpu_offload" in shown(item)]
    if left is None:
        assert one.fix is None
    else:
        mended = json.loads(after(one.fix))["zero_optimization"]
        assert {key: mended[key] for key in left} == left and not any(key.startswith("cpu_") for key in mended)


def test_a_key_is_moved_to_its_section() -> None:
    every = found(
        "ZC114", with_settings(run_of("deepspeed", deepspeed={"overlap_comm": True, "bf16": {"enabled": True}}))
    )
    (one,) = every
    assert one.help == "move it in `zero_optimization`"
    assert json.loads(after(one.fix)) == {"bf16": {"enabled": True}, "zero_optimization": {"overlap_comm": True}}
    assert one.fix is not None and not one.fix.safe


@pytest.mark.parametrize("code", ["ZC112"])
@pytest.mark.parametrize(
    ("zero", "safe"),
    [
        ({"offload_optimizer": {}, "cpu_offload": True}, None),
        ({"gather_16bit_weights_on_model_save": True, "stage3_gather_16bit_weights_on_model_save": True}, True),
        ({"gather_16bit_weights_on_model_save": False, "stage3_gather_16bit_weights_on_model_save": True}, False),
        ({"gather_16bit_weights_on_model_save": "auto", "stage3_gather_16bit_weights_on_model_save": True}, None),
        ({"stage3_gather_16bit_weights_on_model_save": True}, None),
    ],
)
def test_two_spellings_of_a_key(code: str, zero: dict[str, Any], safe: bool | None) -> None:
    every = found(code, run_of("deepspeed", deepspeed={"zero_optimization": zero}))
    assert [item.fix.safe for item in every if item.fix is not None] == ([] if safe is None else [safe])
    for item in every:
        assert shown(item) == '"gather_16bit_weights_on_model_save"' and item.help == "remove one of the two"
        assert [place.at for place in item.related] == ["key"]


@pytest.mark.parametrize("code", ["ZC841"])
@pytest.mark.parametrize(
    ("consumer", "text", "strict", "near"),
    [
        ("trl", "packing: true\npacking_strategi: x\n", False, "packing_strategy"),
        ("transformers", "packing_strategi: x\n", False, None),  # an argument of TRL's
        ("transformers", "evaluation_strategi: x\n", False, None),  # today's release has no such name
        ("transformers", "evaluation_strategi: x\n", True, "evaluation_strategy"),
        ("transformers", "save_total_limi: 1\n", False, "save_total_limit"),
        ("transformers", "save_total_lim: 1\n", False, "save_total_limit"),
        ("transformers", "save_total_li: 1\n", False, None),
        ("transformers", "own_argumen: 1\n", True, "own_argument"),
        ("transformers", "own_argumen: 1\n", False, None),
    ],
)
def test_the_arguments_that_a_slip_may_mean(
    code: str, consumer: Any, text: str, strict: bool, near: str | None
) -> None:
    """``strict``: the parser is known, with all that it takes."""
    recipe = yaml_file("recipe", f"output_dir: out\n{text}")
    known = frozenset({"transformers.TrainingArguments"})
    script = Script(TRAIN, options=frozenset({"own_argument"}), parsed=known) if strict else None
    run = Run("a", consumer, recipe=recipe, recipe_reader="hf" if consumer == "transformers" else "trl", script=script)
    every = found(code, run)
    assert [item.help for item in every] == ([] if near is None else [f"write {near}"])


@pytest.mark.parametrize("code", ["ZC811"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("save_strategy: true\n", "write one of 'no', steps, epoch"),
        ("save_strategy: 3\n", "`save_strategy` is 3, which is no word"),
        ("save_strategy: no\n", None),  # YAML's false, which ZC006 tells
        ("save_strategy: stps\n", "write steps"),
        ("save_strategy: xyzzy\n", "write one of no, steps, epoch"),
        ("save_strategy: steps\n", None),
        ("report_to: wandbb\n", "write wandb"),
        ("report_to: [wandb, tensorbord]\n", "write tensorboard"),
        ("report_to: [wandb]\n", None),
    ],
)
def test_words_that_no_release_knows(code: str, text: str, words: str | None) -> None:
    recipe = yaml_file("recipe", f"output_dir: out\n{text}")
    every = found(code, Run("a", "transformers", recipe=recipe, recipe_reader="hf"))
    assert len(every) == (words is not None)
    for item in every:
        assert words is not None and words in f"{item.message} {item.help}"
        assert (item.fix is not None) is (
            item.help.startswith("write ") and "one of" not in item.help and "[" not in text
        )


@pytest.mark.parametrize(
    ("processes", "degrees", "said"),
    [
        (8, {"tp": 2, "pp": 2}, "pairs of processes"),
        (6, {"tp": 2, "pp": 1}, "6 processes cannot be shared out by 2 * 1 * 2"),
        (3, {}, "3 processes cannot be shared out by 1 * 1 * 2"),
        (UNKNOWN, {"tp": 2}, "pairs of processes"),
        (6, {"tp": "x"}, "pairs of processes"),
        (6, {"tp": 0}, "pairs of processes"),
    ],
)
def test_what_two_parts_of_a_context_make_of_the_processes(processes: Any, degrees: dict[str, Any], said: str) -> None:
    section = {f"megatron_lm_{name}_degree": value for name, value in degrees.items()}
    run = run_of("accelerate", accelerate={"megatron_lm_config": section})
    section_of = accelerate(effective(run, num_processes=processes), "megatron_lm_config")
    assert _of_pairs(section_of).startswith(said)


@pytest.mark.parametrize("code", ["ZC104"])
def test_a_failure_without_a_place_stands_at_the_nearest_file(code: str) -> None:
    run = effective(run_of("deepspeed", deepspeed={"a": 1}))
    told = replace(run, effective=replace(run.effective, failures=(Failure("batch-type", "init", "m"),)))
    (one,) = found(code, told)
    assert (one.message, one.location.file, one.fix, one.severity) == ("m", run.deepspeed, None, None)


@pytest.mark.parametrize("code", ["ZC107"])
@pytest.mark.parametrize(
    ("name", "version", "value", "tells"),
    [
        ("fsdp_sharding_strategy", 1, "None", True),
        ("fsdp_sharding_strategy", 2, "None", False),
        ("fsdp_version", None, "None", True),
        ("fsdp_state_dict_type", 1, "None", False),
        ("fsdp_sharding_strategy", 1, "FULL_SHARD", False),
    ],
)
def test_null_that_reaches_the_processes_as_a_text(
    code: str, name: str, version: int | None, value: str, tells: bool
) -> None:
    run = run_of("accelerate", accelerate={"fsdp_config": {name: None}})
    place = Origin("file", file=run.accelerate, path=("fsdp_config", name))
    settings: dict[str, Any] = {"fsdp_config.fsdp_version": version}
    every = found(code, effective(run, {name.upper(): Setting(value, place)}, **settings))
    assert len(every) == tells
    for item in every:
        assert shown(item) == "null" and item.fix is not None and not item.fix.safe
        assert json.loads(after(item.fix)) == {"fsdp_config": {}}


@pytest.mark.parametrize("code", ["ZC405"])
@pytest.mark.parametrize(
    ("states", "block", "said"),
    [({2: 8.0, 3: 2.0}, 5, False), ({2: 8.0, 3: 8.0}, 5, True), ({2: 8.0, 3: 9.0}, None, False), ({2: 0.5}, 5, False)],
)
def test_sharding_that_takes_no_less(code: str, states: dict[int, float], block: int | None, said: bool) -> None:
    run = replace(
        run_of("deepspeed", deepspeed={"zero_optimization": {"stage": 3}}),
        hardware=HardwareSummary("8xA", 1, 8, 80.0),
        memory=MemorySummary(states_gib=states),
        model=ModelSummary("m", parameters=5, largest_block=block),
    )
    settings: dict[str, Any] = {"zero_optimization.stage": 3}
    (one,) = found(code, effective(run, **settings))
    assert (", and at stage 3 " in one.message) is said and one.help.startswith("stage 2 sends ")
    off: dict[str, Any] = {**settings, "zero_optimization.offload_param.device": "cpu"}
    assert not found(code, effective(run, **off)) and not found(
        "ZC405", effective(replace(run, model=None), **settings)
    )


@pytest.mark.parametrize(
    ("steps", "parameters", "said"),
    [
        (1, 5, "stage 2 sends as many bytes in far fewer messages"),
        (4, 5, "stage 2 sends 38% fewer bytes with 4 accumulation steps"),
        (1, 2_000_000_000, "stage 2 sends 33% fewer bytes"),
        (2, 2_000_000_000, "stage 2 sends 50% fewer bytes with 2 accumulation steps"),
        ("auto", 5, "stage 2 sends as many bytes in far fewer messages"),
        (0, 5, "stage 2 sends as many bytes in far fewer messages"),
    ],
)
def test_bytes_that_stage_2_saves(steps: Any, parameters: int, said: str) -> None:
    """Stage 2 sends the gradients of each micro batch and the parameters once: steps + 1 times the model."""
    run = replace(run_of(), model=ModelSummary("m", parameters=parameters))
    assert _gain(effective(run, gradient_accumulation_steps=steps)) == said
