"""Training arguments as rules read them: which place counts, as what they arrive there, how they are edited."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Any

import pytest

from tests.build.test_road_limits import run_of
from zerocfg.rules import arguments as read
from zerocfg.rules.api import Fix, Intent
from zerocfg.rules.argument_reader import guessed, methods, parsed_argument, reader, reads_recipe
from zerocfg.run.model import UNKNOWN, Elsewhere, Origin, Run, Script, Setting, SourceFile
from zerocfg.source.edit import apply_edits
from zerocfg.source.launch.files import read_launch_lines
from zerocfg.source.load import load_as
from zerocfg.source.text import SourceText

HF = "transformers.TrainingArguments"


def recipe(text: str) -> SourceFile:
    source = SourceText("recipe.yaml", text)
    return SourceFile("recipe.yaml", "recipe", source, load_as(source, "yaml"))


def script(**more: Any) -> Script:
    source = SourceText("train.py", "")
    return Script(SourceFile("train.py", "script", source), **more)


def started(words: str = "", **more: Any) -> Run:
    """A run by a launch line whose script gets these words."""
    source = SourceText("run.sh", f"torchrun --nproc_per_node 2 train.py {words}\n")
    (line,) = read_launch_lines(source).lines
    file = SourceFile("run.sh", "launch", source)
    given = {
        option.plain: Setting(
            True if option.value is None else UNKNOWN if option.value.value is None else option.value.value,
            Origin("flag", option.name, file, (), option.span),
        )
        for option in line.script_options
    }
    return Run("a", more.pop("consumer", "transformers"), launch=line, launch_file=file, arguments=given, **more)


def after(fix: Fix | None) -> str:
    """The file of a fix behind it."""
    assert fix is not None
    ((file, *_),) = {(item,) for item, _ in fix.edits}
    return apply_edits(file.source.text, [edit for _, edit in fix.edits])


def words(fix: Fix | None) -> list[str]:
    return shlex.split(after(fix))[4:]


@pytest.mark.parametrize(
    ("consumer", "code", "names"),
    [
        ("transformers", None, {"seed"}),
        ("trl", None, {"seed"}),
        ("accelerate", None, set()),
        ("deepspeed", None, set()),
        ("axolotl", None, set()),  # its own parser judges what is written
        (None, None, set()),
        ("transformers", {"reader": None}, {"seed"}),
        ("transformers", {"reader": "transformers", "parsed": frozenset({HF})}, {"seed"}),
        ("transformers", {"reader": "transformers"}, set()),  # argparse fills what the script likes
    ],
)
def test_words_of_the_line_that_are_training_arguments(consumer: Any, code: Any, names: set[str]) -> None:
    made = None if code is None else script(**code)
    assert set(read.passed(started("--seed 3", consumer=consumer, script=made))) == names


def test_of_a_known_script_the_literals_of_its_code_count() -> None:
    run = started("--seed 3", script=script(reader="transformers"))
    origin = Origin("file", file=script().file)
    assert set(read.passed(replace(run, arguments={**run.arguments, "optim": Setting("sgd", origin)}))) == {"optim"}


def test_options_of_the_scripts_own() -> None:
    assert read.own_option(started(script=script(own=frozenset({"x"})), elsewhere=Elsewhere(frozenset({"y"}))), "x")
    assert not read.own_option(started(script=script(), elsewhere=Elsewhere(frozenset({"y"}))), "y")
    assert read.own_option(started(elsewhere=Elsewhere(frozenset({"y"}))), "y")
    assert not read.own_option(started(elsewhere=Elsewhere(frozenset({"y"}))), "x")


def test_every_place_of_an_argument() -> None:
    run = started("--seed 3", recipe=recipe("seed: 2\nmax_steps: 5\n"))
    nowhere = Setting(1, Origin("computed", "the spec"))
    run = replace(run, arguments={**run.arguments, "save_steps": nowhere})
    assert [(argument.name, argument.held, argument.on_line) for argument in read.arguments(run)] == [
        ("seed", 2, False),
        ("max_steps", 5, False),
        ("seed", "3", True),
    ]
    first, _, last = read.arguments(run)
    assert (first.origin.file, first.origin.path) == (run.recipe, ("seed",))
    assert [shown(item.at()) for item in (first, last)] == ["seed", "--seed 3"]
    assert shown(first.at("value")) == "2"
    one = read.argument(run, "seed")
    assert one is not None and one.held == "3"
    other = read.argument(run, "max_steps")
    assert other is not None and (other.held, other.name) == (5, "max_steps")
    assert read.argument(run, "save_steps") is None is read.argument(run, "logging_steps")
    assert read.argument(replace(run, recipe=recipe("save_steps: 3\n")), "save_steps") is None, "it does not count"


def shown(place: Any) -> str:
    span = place.concrete()
    return str(place.file.source.text[span.start : span.end])


def test_an_argument_that_holds_a_mapping() -> None:
    run = started(
        "--accelerator_config '{\"a\": 1}' --fsdp_config f.json", recipe=recipe("lr_scheduler_kwargs: {b: 2}\n")
    )
    on_line, in_recipe = read.entries(run, "accelerator_config"), read.entries(run, "lr_scheduler_kwargs")
    assert on_line is not None and in_recipe is not None
    assert (on_line.held, in_recipe.held) == ({"a": 1}, {"b": 2})
    assert read.entries(run, "fsdp_config") is None is read.entries(run, "gradient_checkpointing_kwargs")
    assert shown(on_line.at("a")) == "--accelerator_config '{\"a\": 1}'"
    assert [shown(in_recipe.at("b", where=where)) for where in ("entry", "key", "value")] == ["b: 2", "b", "2"]


def test_entries_of_a_recipe_alone_are_edited() -> None:
    from zerocfg.source.edit import delete_entry, replace_value

    run = started("--accelerator_config '{\"a\": 1}'", recipe=recipe("lr_scheduler_kwargs: {b: 2, c: 3}\n"))
    on_line, in_recipe = read.entries(run, "accelerator_config"), read.entries(run, "lr_scheduler_kwargs")
    assert on_line is not None and in_recipe is not None
    assert on_line.edited(run, delete_entry, ("a",), why="w") is None
    assert after(in_recipe.edited(run, delete_entry, ("b",), why="w")) == "lr_scheduler_kwargs: {c: 3}\n"
    fix = in_recipe.edited(run, replace_value, ("b",), "7", why="w", safe=True)
    assert after(fix) == "lr_scheduler_kwargs: {b: 7, c: 3}\n" and fix is not None and fix.safe
    unsafe = in_recipe.edited(run, delete_entry, ("b",), why="w")
    assert unsafe is not None and not unsafe.safe


@pytest.mark.parametrize(
    ("consumer", "line", "text", "name", "value"),
    [
        ("transformers", "", "seed: 3", "seed", 3),
        ("transformers", "--seed 4", "seed: 3", "seed", 4),
        ("transformers", "--seed four", "seed: 3", "seed", UNKNOWN),  # the parser stops at it
        ("transformers", "--seed $N", "seed: 3", "seed", UNKNOWN),
        ("transformers", "--bf16 yes", "", "bf16", True),
        ("transformers", "--learning_rate 1e-5", "", "learning_rate", 1e-5),
        ("transformers", "--output_dir 3", "", "output_dir", "3"),
        ("transformers", "--own 3", "", "own", "3"),  # nobody knows its type
        ("transformers", "", "learning_rate: 1e-5", "learning_rate", UNKNOWN),  # YAML's text, which nobody converts
        ("trl", "", "learning_rate: 1e-5", "learning_rate", 1e-5),
        ("trl", "", "bf16: 'true'", "bf16", True),
        ("transformers", "", "optim: sgd", "optim", "sgd"),
    ],
)
def test_what_an_argument_arrives_as(consumer: Any, line: str, text: str, name: str, value: object) -> None:
    found = read.given(started(line, consumer=consumer, recipe=recipe(text)), name)
    assert found is not None
    assert found.value is UNKNOWN if value is UNKNOWN else (found.value, type(found.value)) == (value, type(value))


def test_the_line_beats_the_recipe() -> None:
    found = read.given(started("--seed 4", recipe=recipe("seed: 3")), "seed")
    assert found is not None and [item.value for item in found.overridden] == [3] and found.origin.kind == "flag"
    alone = read.given(started("--seed 4"), "seed")
    assert alone is not None and alone.overridden == ()
    assert read.given(started(), "seed") is None
    for line in ("$RECIPE", "other.yaml"):
        untold = read.given(started(line), "seed")
        assert untold is not None and untold.value is UNKNOWN, "a recipe that nobody can look into may say it"


@pytest.mark.parametrize(
    ("line", "on"),
    [
        ("", False),
        ("--x", True),
        ("--x true", True),
        ("--x False", False),
        ("--x no", False),
        ("--x None", False),
        ("--x ''", False),
        ("--x 0", False),
        ("--x 1", True),
        ("--x $X", True),
    ],
)
def test_a_switch_of_any_script_that_may_be_on(line: str, on: bool) -> None:
    assert read.may_be_on(started(line), "x") is on


@pytest.mark.parametrize(
    ("text", "number", "word"),
    [
        ("max_steps: 3", 3, None),
        ("max_steps: 0.5", 0.5, None),
        ("max_steps: true", None, None),
        ("max_steps: 1e30", None, None),  # YAML's text
        ("max_steps: 1.0e+30", None, None),  # of no size that anybody means
        ("max_steps: -7", -7, None),
        ("max_steps: [1]", None, None),
        ("seed: 1", 9, "none"),
        ("", 9, "none"),
    ],
)
def test_a_plain_number_or_a_default(text: str, number: float | None, word: str | None) -> None:
    run = started(recipe=recipe(text))
    assert read.number(run, "max_steps", 9) == number
    assert read.word(run, "max_steps", "none") == word
    assert read.value(run, "nothing", "d") == "d" and read.value(run, "nothing") is None
    assert read.word(started(recipe=recipe("optim: sgd")), "optim") == "sgd"
    seen = read.ArgumentsOfRun(run)
    assert seen.number("max_steps", 9) == number and seen.value("nothing", "d") == "d"


def test_an_argument_is_set_where_it_counts() -> None:
    run = started("--seed 4 --bf16 --optim $OPTIM", recipe=recipe("seed: 3\nmax_steps: 5\nsave_steps: 1\n"))
    assert words(read.set_argument(run, "seed", "5", "w")) == ["--seed", "5", "--bf16", "--optim", "$OPTIM"]
    assert words(read.set_argument(run, "optim", '"sgd"', "w"))[-2:] == ["--optim", "sgd"]
    assert read.set_argument(run, "seed", "a b", "w") is None, "no plain word"
    new = "seed: 3\nmax_steps: 5\nsave_steps: 1\n"
    assert after(read.set_argument(run, "max_steps", "6", "w")) == new.replace("5", "6")
    behind = read.ArgumentsOfRun(run).set("eval_steps", "2", "w", after="seed")
    assert after(behind) == new.replace("max", "eval_steps: 2\nmax")
    assert read.set_argument(started(), "seed", "5", "w") is None, "nowhere to write it"
    computed = replace(run, arguments={"seed": Setting(3, Origin("computed"))})
    assert read.set_argument(computed, "seed", "5", "w") is None, "no word of a file"
    for fix, of in ((read.set_argument(run, "seed", "5", "w"), "seed"), (behind, "eval_steps")):
        assert fix is not None and not fix.safe and fix.description == "w"
        assert [(give.name, give.of) for give in fix.gives] == [(of, "argument")]
    safe = read.set_argument(run, "seed", "5", "w", safe=True)
    assert safe is not None and safe.safe and safe.gives == (Intent("seed", 5, "argument"),)


def test_an_argument_is_taken_out_where_it_counts() -> None:
    run = started("--seed 4 --bf16", recipe=recipe("seed: 3\nmax_steps: 5\n"))
    assert words(read.drop_argument(run, "seed", "w")) == ["--bf16"]
    assert after(read.drop_argument(run, "max_steps", "w")) == "seed: 3\n"
    assert read.drop_argument(run, "save_steps", "w") is None
    for name in ("seed", "max_steps"):
        fixes = [read.drop_argument(run, name, "w"), read.drop_argument(run, name, "w", safe=True)]
        assert [fix.safe for fix in fixes if fix is not None] == [False, True]
    in_code = replace(run, arguments={"optim": Setting("sgd", Origin("file", file=script().file))})
    assert read.drop_argument(in_code, "optim", "w") is None, "no program is edited"
    elsewhere = read.Argument("seed", 4, Origin("file", file=recipe("seed: 4\n"), path=("seed",)))
    assert read.dropped(run, elsewhere, "w") is None, "the recipe of another run"


def test_an_argument_gets_another_name_where_it_stands() -> None:
    run = started("--evaluation_strategy=no --bf16", recipe=recipe("evaluation_strategy: steps\n"))
    in_recipe, on_line, switch = read.arguments(run)
    assert after(read.renamed(run, in_recipe, "eval_strategy", "w")) == "eval_strategy: steps\n"
    fix = read.renamed(run, on_line, "eval_strategy", "w")
    assert words(fix) == ["--eval_strategy=no", "--bf16"]
    assert fix is not None and fix.safe and fix.gives == (Intent("eval_strategy", "no", "argument"),)
    assert words(read.renamed(run, switch, "fp16", "w", safe=False))[-1] == "--fp16"
    unsafe = [read.renamed(run, item, "fp16", "w", safe=False) for item in (in_recipe, on_line)]
    assert [item.safe for item in unsafe if item is not None] == [False, False]
    held = read.Argument("optim", "sgd", Origin("file", file=script().file))
    assert read.renamed(run, held, "x", "w") is None


@pytest.mark.parametrize("count", [1, 8])
def test_processes_that_are_known(count: int) -> None:
    from zerocfg.run.model import Effective

    def of(value: object) -> int | None:
        return read.processes(
            replace(started(), effective=Effective(settings={"num_processes": Setting(value, Origin("flag"))}))
        )

    assert of(count) == count
    assert [of(item) for item in (0, -1, True, UNKNOWN, "8", 2.0, None)] == [None] * 7


@pytest.mark.parametrize(
    ("consumer", "text", "more", "who"),
    [
        ("transformers", "seed: 1", {}, "transformers"),
        ("transformers", "", {}, "transformers"),
        ("trl", "seed: 1", {}, "trl"),
        ("trl", "base_model: x", {}, None),  # axolotl's
        ("accelerate", "seed: 1", {}, None),
        ("axolotl", "seed: 1", {}, None),
        (None, "", {}, None),
        (None, "num_train_epochs: 1", {}, "transformers"),
        (None, "num_train_epochs: 1\na: 1", {}, "transformers"),
        (None, "num_train_epochs: 1\na: 1\nb: 2", {}, None),  # less than half of them
        (None, "seed: 1", {}, None),  # many programs have one
        (None, "num_train_epochs: 1\nlr: 1", {}, None),
        ("transformers", "beta: 0.1", {}, "trl"),
        ("transformers", "beta: 0.1", {"recipe_reader": "hf"}, "transformers"),
    ],
)
def test_whose_arguments_they_are(consumer: Any, text: str, more: Any, who: str | None) -> None:
    run = Run("a", consumer, recipe=recipe(text), **more)
    assert reader(run) == who == read.ArgumentsOfRun(run).reader


def test_a_word_of_another_program_on_the_line() -> None:
    assert reader(started("--micro_batch_size 3")) is None
    assert reader(started("--micro_batch_size 3", script=script())) == "transformers", "the script is known"


@pytest.mark.parametrize(
    ("run", "reads"),
    [
        (Run("a", "transformers", recipe=recipe("x: 1")), True),
        (Run("a", "trl", recipe=recipe("x: 1")), True),
        (Run("a", "axolotl", recipe=recipe("x: 1")), True),
        (Run("a", "accelerate", recipe=recipe("x: 1")), False),
        (Run("a", "accelerate", recipe=recipe("x: 1"), recipe_reader="hf"), True),
        (Run("a", "accelerate", recipe=recipe("num_train_epochs: 1")), True),
        (Run("a", "accelerate", recipe=recipe("num_train_epochs: 1\nbase_model: 1")), False),
        (Run("a", "accelerate", recipe=recipe("num_train_epochs: 1"), script=script()), False),
    ],
)
def test_whether_a_parser_reads_the_recipe(run: Run, reads: bool) -> None:
    assert reads_recipe(run) is reads


def test_what_the_options_of_a_line_alone_tell() -> None:
    assert guessed(started("--seed 1")) and guessed(started("--seed 1", script=script()))
    assert not guessed(started("--seed 1", script=script(reader="transformers")))
    assert not guessed(started("--seed 1", recipe=recipe("seed: 1")))
    assert not guessed(Run("a", "transformers"))


@pytest.mark.parametrize(
    ("consumer", "text", "line", "code", "configs"),
    [
        ("transformers", "seed: 1", "", None, set()),
        ("trl", "packing: true", "", None, {"SFTConfig"}),
        (
            "trl",
            "beta: 1.0\nmax_completion_length: 3\nnum_generations: 2",
            "--scale_rewards group",
            None,
            {"GRPOConfig"},
        ),
        ("trl", "seed: 1", "", {"parsed": frozenset({"trl.DPOConfig", "trl.ModelConfig"})}, {"DPOConfig"}),
    ],
)
def test_the_trainers_that_a_recipe_can_be_for(
    consumer: Any, text: str, line: str, code: Any, configs: set[str]
) -> None:
    run = started(line, consumer=consumer, recipe=recipe(text), script=None if code is None else script(**code))
    assert methods(run) == configs


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("sft.py", "SFTConfig"),
        ("scripts/dpo.py", "DPOConfig"),
        ("run_kto.py", "KTOConfig"),
        ("grpo_vlm.py", "GRPOConfig"),
        ("sftx.py", None),
        ("xsft.py", None),
    ],
)
def test_the_trainer_in_the_name_of_a_script(name: str, config: str | None) -> None:
    (line,) = read_launch_lines(SourceText("run.sh", f"torchrun {name} --seed 1\n")).lines
    found = methods(Run("a", "trl", launch=line))
    assert found == {config} if config else len(found) > 1
    packing = Run("a", "trl", launch=line, recipe=recipe("packing: true"))
    assert methods(packing) == {"SFTConfig"}, "its keys are of no other"


def test_options_that_the_librarys_parser_fills() -> None:
    def found(words: str, consumer: Any = "transformers", **more: Any) -> str | None:
        run = started(words, consumer=consumer, script=script(**more))
        assert run.launch is not None
        key = parsed_argument(run, run.launch.script_options[0])
        return None if key is None else key.name

    both = {"parsed": frozenset({HF, "trl.SFTConfig"})}
    assert found("--seed 1", parsed=frozenset({HF})) == "seed"
    assert found("-seed 1", parsed=frozenset({HF})) is None
    assert found("--seed 1") is None, "nobody knows the parser"
    assert found("--seed 1", parsed=frozenset({HF}), own=frozenset({"seed"})) is None
    assert found("--packing 1", "trl", **both) == "packing"
    assert found("--packing 1", **both) is None
    assert found("--num_generations 1", "trl", **both) is None, "of another class"
    assert found("--own 1", "trl", **both) is None
    assert parsed_argument(run_of(), started("--seed 1").launch.script_options[0]) is None  # type: ignore[union-attr]
