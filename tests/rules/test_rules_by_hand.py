"""Rules asked directly about a run in memory: both sides of guards that no example and no near miss of a file meets."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from tests.build.test_road_limits import run_of
from tests.rules.by_hand import TRAIN, after, effective, found, shown, started, yaml_file
from zerocfg.budgets import LARGEST_NUMBER
from zerocfg.catalog.schema import load_schema
from zerocfg.rules.arguments import number, written
from zerocfg.rules.fsdp.plugin import _right_engine
from zerocfg.rules.keys.values import _left_to_line, _unread
from zerocfg.rules.launch.environment import _said
from zerocfg.rules.launch.rendezvous import _meeting
from zerocfg.rules.launch.torchrun import _started, _starts_ranks
from zerocfg.rules.offload.devices import number_of
from zerocfg.rules.recipes.releases import _of_older
from zerocfg.rules.recipes.slips import _furthest
from zerocfg.rules.recipes.trainer_types import _plain_number, _refused, _signed, number_in
from zerocfg.rules.zero.communication import _CLAIM, _right
from zerocfg.run.model import (
    UNKNOWN,
    Call,
    Comparison,
    Elsewhere,
    Failure,
    Origin,
    Run,
    Script,
    Setting,
)
from zerocfg.run.resolve_settings import with_settings
from zerocfg.source.text import Span

REMOVED = [
    (library, name, str(key.facts["removed"]))
    for library, schema in (("transformers", "training-arguments"), ("trl", "trl"))
    for name, key in load_schema(schema).root.names.items()
    if "removed" in key.facts
]
BASE = "output_dir: out\nseed: 3\n"


@pytest.mark.parametrize("value", ["true", "text", "4"])
@pytest.mark.parametrize(("library", "name", "instead"), REMOVED)
def test_a_removed_argument_is_mended_as_it_is_said(library: str, name: str, instead: str, value: str) -> None:
    """One that is to be deleted is gone afterwards; one that has another name gets that. Nothing else changes."""
    recipe = yaml_file("recipe", f"{BASE}{name}: {value}\n")
    newest = {"transformers": "==5.23.0", "trl": "==1.16.0"}
    run = Run("a", "trl", recipe=recipe, recipe_reader="trl", versions=newest)
    every = found("ZC801", run) + found("ZC840", run)
    for finding in every:
        assert shown(finding) == name and f"`{name}`" in finding.message
        if finding.fix is None:
            continue
        left: dict[str, Any] = yaml.safe_load(after(finding.fix))
        assert left.pop("output_dir") == "out" and left.pop("seed") == 3 and name not in left
        if instead.endswith("delete the line"):
            assert left == {}
        else:
            ((new, _),) = left.items() if left else ((instead, None),)
            assert new in instead
    if instead.endswith("delete the line") or re.fullmatch(r"write \w+", instead):
        unfixed = [item for item in every if item.fix is None]
        assert not unfixed or name in ("sharded_ddp", "torchdynamo")


@pytest.mark.parametrize("code", ["ZC465"])
def test_storage_that_the_trainer_overwrites(code: str) -> None:
    config = {"checkpoint": {"use_node_local_storage": False}}
    run = run_of(deepspeed=config, recipe={"save_on_each_node": True})
    (one,) = found(code, effective(run, engine="deepspeed"))
    assert shown(one) == '"use_node_local_storage": false'
    assert after(one.fix) == '{"save_on_each_node": false}'
    assert not found(code, effective(run, engine="ddp"))
    other = run_of(deepspeed=config, recipe={"save_on_each_node": False})
    assert not found(code, effective(other, engine="deepspeed"))


@pytest.mark.parametrize("code", ["ZC443"])
@pytest.mark.parametrize(("ranks", "size", "fitting"), [(8, 5, 4), (9, 6, 3), (7, 2, 1), (6, 4, 3), (8, 4, None)])
def test_the_next_size_that_divides_the_ranks(code: str, ranks: int, size: int, fitting: int | None) -> None:
    run = run_of("deepspeed", deepspeed={"tensor_parallel": {"autotp_size": size}})
    every = found(code, effective(run, num_processes=ranks))
    assert [after(item.fix) for item in every] == (
        [] if fitting is None else [f'{{"tensor_parallel": {{"autotp_size": {fitting}}}}}']
    )


@pytest.mark.parametrize("code", ["ZC332"])
@pytest.mark.parametrize(
    ("option", "values", "default", "tells"),
    [
        ("mixed_precision", ("fp16", "bf16"), None, True),
        ("mixed_precision", ("fp16",), None, False),
        ("mixed_precision", ("bf16",), "no", False),
        ("precision", ("bf16",), None, False),
    ],
)
def test_a_precision_that_the_script_does_not_see(
    code: str, option: str, values: Any, default: Any, tells: bool
) -> None:
    line = started("accelerate launch --mixed_precision bf16 train.py", consumer="accelerate")
    script = Script(
        TRAIN, comparisons=(Comparison(option, values, default, Origin("file", file=TRAIN, span=Span(0, 9))),)
    )
    used = Setting("bf16", Origin("flag", "--mixed_precision", line.launch_file, (), Span(18, 40)))
    assert bool(found(code, effective(replace(line, script=script), mixed_precision=used))) is tells


@pytest.mark.parametrize("code", ["ZC210"])
@pytest.mark.parametrize(
    ("environment", "json", "engine", "tells"),
    [
        ({"ACCELERATE_GRADIENT_CLIPPING": "0"}, None, "deepspeed", True),
        ({"ACCELERATE_GRADIENT_CLIPPING": "0.0"}, None, "deepspeed", True),
        ({"ACCELERATE_GRADIENT_CLIPPING": "1"}, None, "deepspeed", False),
        ({"ACCELERATE_GRADIENT_CLIPPING": "0"}, None, "ddp", False),
        ({"ACCELERATE_GRADIENT_CLIPPING": "0"}, {}, "deepspeed", False),
        ({"ACCELERATE_GRADIENT_CLIPPING": "0", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "x"}, None, "deepspeed", False),
        ({}, None, "deepspeed", False),
    ],
)
def test_a_clipping_of_zero_that_counts_as_not_set(
    code: str, environment: Any, json: Any, engine: str, tells: bool
) -> None:
    files: dict[str, Any] = {} if json is None else {"deepspeed": json}
    run = run_of("accelerate", accelerate={"deepspeed_config": {"gradient_clipping": 0}}, **files)
    assert bool(found(code, effective(run, environment, engine=engine))) is tells


@pytest.mark.parametrize(
    ("states", "today", "said"),
    [
        ([((0, 1), "error")], "error", "refuses it"),
        ([((0, 1), "ignore")], "error", "passes over it in silence"),
        ([((0, 1), "ignore"), ((0, 2), "error")], "error", "passes over it in silence or refuses it"),
        ([((0, 1), "error"), ((0, 9), "ignore")], "ignore", "refuses it"),  # as late as the key
        ([], "error", "refuses it"),
        ([], "ignore", "passes over it in silence"),
    ],
)
def test_what_older_releases_do_with_a_key(states: Any, today: str, said: str) -> None:
    releases: Any = SimpleNamespace(states=lambda key: [(edge, {"unknown": how}) for edge, how in states])
    assert _of_older(releases, "0.9", "fp16", today) == said


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("bucket_size: 5e8  # 1GB", True),  # 16 bit
        ("bucket_size: 5e8  # 2 GB", True),
        ("bucket_size: 5e8  # 4GB", True),
        ("bucket_size: 5e8  # 500MB", False),
        ("bucket_size: 5e8  # 0.93 GiB", True),
        ("bucket_size: 0  # 500MB", False),
        ("bucket_size: # 500MB", False),
        ("bucket_size: 5e8.2.2  # 500MB", False),
    ],
)
def test_a_comment_that_counts_the_bytes(line: str, right: bool) -> None:
    match = re.search(_CLAIM, line, re.IGNORECASE)
    assert match is not None and _right(match) is right


def test_where_nothing_is_written_the_recipe_is_the_place() -> None:
    run = run_of(deepspeed={}, recipe={"seed": 1})
    assert written(run, "max_steps").location.file is run.recipe
    assert written(replace(run, recipe=None), "max_steps").location.file is run.deepspeed


@pytest.mark.parametrize(
    ("value", "known"), [(LARGEST_NUMBER, True), (-LARGEST_NUMBER, True), (10.0 * LARGEST_NUMBER, False)]
)
def test_numbers_of_a_size_that_anybody_means(value: float, known: bool) -> None:
    assert (number(run_of(recipe={"max_steps": value}), "max_steps") is not None) is known


@pytest.mark.parametrize(
    ("value", "number"), [(3, 3), (-2.5, -2.5), (True, None), ("3", None), (1e18, None), (-1e18, None), (1e17, 1e17)]
)
def test_numbers_that_a_machine_can_hold(value: object, number: float | None) -> None:
    assert number_of(value) == number


@pytest.mark.parametrize("code", ["ZC802"])
@pytest.mark.parametrize(
    ("text", "consumer", "reader", "words"),
    [
        ("seed: 'four'", "trl", "trl", "'four' is no int"),
        ("seed: 'four'", None, "trl", None),
        ("seed: '4'", None, "hf", None),
        ("seed: 'four'", "transformers", "hf", "HfArgumentParser does not convert it"),
        ("seed: '4'", "transformers", "hf", "HfArgumentParser does not convert it"),
        ("seed: '4'", "trl", "trl", None),
        ("bf16: 'maybe'", "trl", "trl", "is no yes or no"),
        ("bf16: 'yes'", "trl", "trl", None),
        ("bf16: 'maybe'", "transformers", "hf", None),
        ("seed: '<seed>'", "trl", "trl", None),
        ("optim: 4", "trl", "trl", None),
    ],
)
def test_texts_where_another_type_is_wanted(
    code: str, text: str, consumer: Any, reader: Any, words: str | None
) -> None:
    recipe = yaml_file("recipe", f"num_train_epochs: 1\nper_device_train_batch_size: 1\n{text}\n")
    every = found(code, with_settings(Run("a", consumer, recipe=recipe, recipe_reader=reader)))
    assert len(every) == (words is not None) and all(words is not None and words in item.message for item in every)


@pytest.mark.parametrize(
    ("kind", "text", "refused"),
    [
        ("int", "4", False),
        ("int", "x", True),
        ("int", "{x}", False),
        ("bool", "on", True),
        ("bool", "yes", False),
        ("float", "1e3", False),
    ],
)
def test_texts_that_a_parser_stops_at(kind: str, text: str, refused: bool) -> None:
    assert _refused(kind, text) is refused


def test_numbers_in_texts() -> None:
    assert [number_in(item) for item in ("1e3", "x", 3, None)] == [1000.0, None, None, None]
    assert [_signed(item) for item in ("4", "-4", "+4", "x", "4.5")] == [4, -4, 4, None, None]
    for value, text in (("4", "4"), ("-4", "-4"), ("1e-5", "1.0e-05"), ([4], "4"), (["4"], "4"), ("2.0", "2.0")):
        key: Any = SimpleNamespace(value=value, replace=lambda text, why: (text, why))
        made: Any = _plain_number(key)
        assert made == (text, f"write {text}")
    for other in ([4, 5], [], "x", True, None, [True]):
        assert _plain_number(SimpleNamespace(value=other, replace=lambda *_: "x")) is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "strict", "letters"),
    [("a" * 7, True, 1), ("a" * 8, True, 2), ("a" * 8, False, 1), ("a" * 11, False, 1), ("a" * 12, False, 2)],
)
def test_how_far_a_slip_may_be(name: str, strict: bool, letters: int) -> None:
    assert _furthest(name, strict) == letters


@pytest.mark.parametrize("code", ["ZC841"])
@pytest.mark.parametrize(
    ("names", "help"),
    [
        (("learning_rat",), "write learning_rate"),
        (("learning_rat", "learning_rate"), "remove it: `learning_rate` is written too"),
        (("learning_rate2",), "write learning_rate"),
        (("learning_rate2", "learning_rate"), None),
        (("max_seq_length",), None),  # older releases have it
        (("quite_another",), None),
    ],
)
def test_slips_in_a_call(code: str, names: tuple[str, ...], help: str | None) -> None:
    given = {name: Setting(1, Origin("file", file=TRAIN, span=Span(10, 23))) for name in names}
    script = Script(TRAIN, calls=(Call("trl.SFTConfig", given, TRAIN, Span(0, 9)),))
    every = found(code, Run("a", "trl", script=script))
    assert [item.help for item in every] == ([] if help is None else [help])


@pytest.mark.parametrize(
    ("data", "unused", "text"),
    [
        ({"distributed_type": "MULTI_GPU", "fsdp_config": {"a": 1}}, "fsdp_config", "FSDP"),
        ({"distributed_type": "MULTI_GPU", "deepspeed_config": {"a": 1}}, "deepspeed_config", "DEEPSPEED"),
        ({"distributed_type": "MULTI_GPU", "fsdp_config": 1}, "fsdp_config", None),
        ({"distributed_type": "MULTI_GPU", "other": {"a": 1}}, "other", None),
        ({"distributed_type": 3, "fsdp_config": {"a": 1}}, "fsdp_config", None),
        ({"fsdp_config": {"a": 1}}, "fsdp_config", None),
        ({"distributed_type": "NO", "fsdp_config": {"a": 1}, "deepspeed_config": {"b": 1}}, "fsdp_config", None),
        ({"distributed_type": "FSDP", "fsdp_config": {"a": 1}, "deepspeed_config": {"b": 1}}, "deepspeed_config", ""),
        (
            {"distributed_type": "FSDP", "fsdp_config": {}, "deepspeed_config": {"b": 1}},
            "deepspeed_config",
            "DEEPSPEED",
        ),
        ({"distributed_type": "FSDP", "deepspeed_config": {"b": 1}}, "deepspeed_config", "DEEPSPEED"),
    ],
)
def test_the_engine_that_a_section_is_for(data: dict[str, Any], unused: str, text: str | None) -> None:
    """Empty: the section goes, as another one is used."""
    fix = _right_engine(run_of("accelerate", accelerate=data), unused)
    if text is None:
        assert fix is None
    else:
        left = yaml.safe_load(after(fix))
        wanted = (
            data | {"distributed_type": text} if text else {key: item for key, item in data.items() if key != unused}
        )
        assert left == wanted and fix is not None and fix.safe is (not text)


@pytest.mark.parametrize(
    ("failures", "settings", "unread"),
    [
        ((), {"num_processes": 2}, True),
        ((), {}, False),
        ((("launch", "debug"),), {"num_processes": 2}, False),
        ((("launch", "other"),), {"num_processes": 2}, False),
        ((("init", "debug"),), {"num_processes": 2}, False),
        ((("init", "other"),), {"num_processes": 2}, True),
    ],
)
def test_whether_the_launcher_gets_past_a_key(failures: Any, settings: dict[str, Any], unread: bool) -> None:
    run = run_of("accelerate", accelerate={"debug": "x", "other": 1}, deepspeed={"debug": 1})
    told = tuple(
        Failure("x", phase, "m", (Origin("file", file=run.accelerate, path=(name,)),)) for phase, name in failures
    )
    run = replace(effective(run, **settings), effective=replace(effective(run, **settings).effective, failures=told))
    key: Any = SimpleNamespace(run=run, file=run.accelerate, path=("debug",))
    assert _unread(key) is unread
    for other in ({"path": ("debug", "x")}, {"file": run.deepspeed}):
        assert not _unread(SimpleNamespace(**{**vars(key), **other}))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("key", "value", "left"),
    [("num_processes", None, True), ("num_machines", None, True), ("num_processes", 2, False), ("seed", None, False)],
)
def test_a_number_that_is_left_to_the_line(key: str, value: object, left: bool) -> None:
    run = run_of("accelerate", accelerate={key: value})
    place = Origin("file", file=run.accelerate, path=(key,))
    assert _left_to_line(run, place) is left
    assert not _left_to_line(replace(run, launch=started("torchrun a.py").launch), place)
    assert not _left_to_line(run, replace(place, file=None)) and not _left_to_line(run, replace(place, file=TRAIN))


@pytest.mark.parametrize(
    ("origin", "said"),
    [
        (Origin("file", file=TRAIN, path=("a", "b")), "(`b` of the config)"),
        (Origin("file", file=TRAIN), "(its default)"),
        (Origin("flag", "--x", TRAIN), "(`--x`)"),
        (Origin("flag", "--x", TRAIN, ("a",)), "(`--x`)"),
        (Origin("default", "accelerate 1.15.0"), "(its default)"),
    ],
)
def test_what_replaces_a_variable(origin: Origin, said: str) -> None:
    assert _said(Setting(1, origin)) == said


def test_machines_that_meet_by_accelerate() -> None:
    for line, accelerate, machines in (
        ("accelerate launch --num_machines 2 --multi_gpu train.py", None, 2),
        ("accelerate launch --num_machines 1 --multi_gpu train.py", None, 0),
        ("accelerate launch train.py", {"num_machines": 3}, 3),
        ("torchrun --nnodes 2 train.py", None, 0),
        ("torchrun --num_machines 2 train.py", None, 0),
    ):
        run = started(line, consumer="accelerate")
        assert run.launch is not None
        flags = {
            option.plain: Setting(option.value.value if option.value else True, Origin("flag", option.name))
            for option in run.launch.options
        }
        held = {} if accelerate is None else {"accelerate": run_of(accelerate=accelerate).accelerate}
        run = replace(run, flags=flags, **held)  # type: ignore[arg-type]
        assert _meeting(effective(run, engine="ddp")) == machines
        assert _meeting(effective(run, engine="single")) == 0


@pytest.mark.parametrize(
    ("line", "note", "module"),
    [
        ("torchrun swift/cli/sft.py --x 1", None, "swift.cli.sft"),
        ("torchrun -m swift.cli.pt --x 1", None, "swift.cli.pt"),
        ("torchrun swift/cli/rlhf.py --x 1", "swift.sft_main", "swift.sft_main"),
    ],
)
def test_what_a_line_starts(line: str, note: str | None, module: str) -> None:
    script = Script(TRAIN) if note is None else Script(TRAIN, shown_by=Origin("file", note))
    assert _started(replace(started(line), script=script)) == module


@pytest.mark.parametrize(
    ("head", "starts"),
    [
        ("mpirun -np 4 python ", True),
        ("python ", False),
        ("srun python ", True),
        ("srun -n 1 python ", False),
        ("srun --ntasks=1 python ", False),
        ("srun --ntasks 1 --mpi=pmix python ", True),
        ("srun -n 1 mpiexec python ", True),
        ("srun -n 16 python ", True),
    ],
)
def test_programs_that_start_the_ranks(head: str, starts: bool) -> None:
    assert _starts_ranks(head) is starts


@pytest.mark.parametrize("code", ["ZC119"])
def test_a_run_that_a_spec_cannot_make(code: str) -> None:
    spec = yaml_file("spec", "runs:\n  a: {x: 1}\n", "zerocfg.yaml")
    other = yaml_file("spec", "x: 1\n", "base.yaml")
    run = Run(
        "a", spec=spec, troubles=((Origin("file", "key", other, ("x",)), "m", "h"), (Origin("computed"), "n", ""))
    )
    (one,) = found(code, run)
    assert (shown(one), one.help) == ("x", "h") and one.message.startswith("m; ")
    (place,) = one.related
    assert (place.file, place.path, place.at, place.label) == (spec, ("runs",), "key", "these runs need it")
    (own,) = found(code, replace(run, troubles=((Origin("file", "", spec, ("runs", "a", "x")), "m", "h"),)))
    assert shown(own) == "1" and own.related == []


@pytest.mark.parametrize("code", ["ZC607"])
@pytest.mark.parametrize(
    ("version", "word", "consumer", "told"),
    [
        (1, "LOCAL_STATE_DICT", "transformers", True),
        (2, "LOCAL_STATE_DICT", "transformers", False),  # FSDP 2 stops, another rule tells it
        (1, "SHARDED_STATE_DICT", "transformers", True),
        (1, "FULL_STATE_DICT", "transformers", False),
    ],
)
def test_states_that_are_no_weights(code: str, version: int, word: str, consumer: Any, told: bool) -> None:
    config = {"fsdp_version": version, "fsdp_state_dict_type": word}
    run = run_of(consumer, accelerate={"distributed_type": "FSDP", "num_processes": 2, "fsdp_config": config})
    every = found(code, with_settings(run))
    assert [(shown(item), "FULL_STATE_DICT" in after(item.fix)) for item in every] == (
        [(f'"{word}"', True)] if told else []
    )


@pytest.mark.parametrize("code", ["ZC843"])
@pytest.mark.parametrize(
    ("written", "mended"),
    [
        ("[sigmiod, hinge]", "[sigmoid, hinge]"),
        ("[hinge, sigmiod]", "[hinge, sigmoid]"),
        ("[ipo, sigmiod, hinge]", "[ipo, sigmoid, hinge]"),
        ("sigmiod", "sigmoid"),
        ("sigmoid", None),
        ("[hinge, 3]", None),
        ("[]", None),
    ],
)
def test_one_word_of_several(code: str, written: str, mended: str | None) -> None:
    recipe = yaml_file("recipe", f"precompute_ref_log_probs: true\nloss_type: {written}\n")
    script = Script(TRAIN, parsed=frozenset({"trl.DPOConfig"}))
    every = found(code, Run("a", "trl", recipe=recipe, recipe_reader="trl", script=script))
    fixed = [yaml.safe_load(after(item.fix))["loss_type"] for item in every]
    assert fixed == ([] if mended is None else [yaml.safe_load(mended)])


@pytest.mark.parametrize("code", ["ZC809"])
def test_a_strategy_is_written_behind_its_steps(code: str) -> None:
    recipe = yaml_file("recipe", "output_dir: out\neval_steps: 10\nseed: 1\n")
    run = Run("a", "transformers", recipe=recipe)
    (one,) = found(code, run)
    assert after(one.fix).splitlines()[1:3] == ["eval_steps: 10", 'eval_strategy: "steps"']
    assert not found(code, replace(run, elsewhere=Elsewhere(frozenset({"eval_steps"}))))


@pytest.mark.parametrize("code", ["ZC631"])
@pytest.mark.parametrize(
    ("config", "mended"),
    [
        ("", "fsdp_config: {activation_checkpointing: true}"),
        ("fsdp_config: {version: 2}\n", "fsdp_config: {version: 2, activation_checkpointing: true}"),
        ("fsdp_config: null\n", None),
        ("fsdp_config: {}\n", None),
    ],
)
def test_checkpointing_by_fsdp_instead(code: str, config: str, mended: str | None) -> None:
    recipe = yaml_file("recipe", f"output_dir: out\nfsdp: full_shard\ngradient_checkpointing: true\n{config}")
    every = found(code, with_settings(Run("a", "transformers", recipe=recipe)))
    for item in every:
        assert shown(item) == "gradient_checkpointing: true"
        if mended is None:
            assert item.fix is None
        else:
            left = yaml.safe_load(after(item.fix))
            assert left["gradient_checkpointing"] is False
            assert left["fsdp_config"] == yaml.safe_load(mended)["fsdp_config"]
    assert every


@pytest.mark.parametrize("code", ["ZC802"])
@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("learning_rate", "1e-5", True),
        ("seed", "3", True),
        ("learning_rate", 1e-5, False),
        ("optim", "sgd", False),
        ("bf16", "true", False),
        ("learning_rate", UNKNOWN, False),
    ],
)
def test_texts_in_a_call(code: str, name: str, value: object, told: bool) -> None:
    given = {name: Setting(value, Origin("file", file=TRAIN, span=Span(10, 25)))}
    script = Script(TRAIN, calls=(Call("transformers.TrainingArguments", given, TRAIN, Span(0, 9)),))
    every = found(code, Run("a", "accelerate", script=script))
    assert [(shown(item), item.fix) for item in every] == ([("learning_rate=1", None)] if told else [])


@pytest.mark.parametrize("code", ["ZC801"])
@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("group_by_length: true\n", "train_sampling_strategy: group_by_length\n"),
        ("group_by_length: false\n", ""),
        ("group_by_length: true\ntrain_sampling_strategy: random\n", None),
        ("adafactor: true\noptim: sgd\n", None),
        ("adafactor: true\n", "optim: adafactor\n"),
        ("warmup_ratio: 0.5\n", "warmup_steps: 0.5\n"),
        ("warmup_ratio: 0.5\nwarmup_steps: 3\n", None),
        ("warmup_ratio: 1.0\n", None),  # it would become one step
        ("warmup_ratio: 1\n", None),
        ("evaluation_strategy: steps\neval_strategy: steps\n", None),
    ],
)
def test_an_argument_that_became_a_word_of_another(code: str, text: str, left: str | None) -> None:
    run = Run("a", "transformers", recipe=yaml_file("recipe", BASE + text), versions={"transformers": "==5.23.0"})
    (one,) = found(code, run)
    assert (None if one.fix is None else after(one.fix)) == (None if left is None else BASE + left)


@pytest.mark.parametrize("code", ["ZC631"])
@pytest.mark.parametrize("name", ["gradient_checkpointing", "activation_checkpointing"])
def test_the_name_by_which_the_trainer_checkpoints(code: str, name: str) -> None:
    recipe = yaml_file("recipe", f"output_dir: out\nfsdp: full_shard\n{name}: true\n")
    (one,) = found(code, with_settings(Run("a", "transformers", recipe=recipe)))
    assert f"`{name}` gathers" in one.message and shown(one) == f"{name}: true"
