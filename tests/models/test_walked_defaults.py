"""The models take from the walked facts what these state: defaults, options of the launcher, and which keys exist."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator
from typing import ClassVar

import pytest
from pydantic import ValidationError

from zerocfg.catalog.history import histories
from zerocfg.models.accelerate import ClusterConfig, Launcher, SageMakerConfig
from zerocfg.models.accelerate.facts import option
from zerocfg.models.base import Section, key, keys_of, spellings
from zerocfg.models.deepspeed import DeepSpeedConfig
from zerocfg.models.training_arguments import TrainingArguments
from zerocfg.models.trl.keys import KEYS
from zerocfg.models.trl.recipe import TRAINERS, Recipe, declared
from zerocfg.models.walked import walked, walked_default, walked_keys


class Aio(Section):
    """A section that was walked, with keys of each kind."""

    library = "deepspeed"
    known_as = "aio"

    queue_depth: int = key("As the library has it.")
    block_size: int = key("Written here.", default=7)


def test_a_key_without_a_default_has_the_librarys() -> None:
    made = Aio()
    assert (made.queue_depth, made.block_size) == (8, 7)
    assert made.model_fields_set == set()
    assert Aio.model_validate({"queue_depth": 2}).queue_depth == 2


def test_a_list_is_not_shared() -> None:
    class Leaves(Section):
        library = "deepspeed"
        known_as = "zero_optimization.leaf_module"

        names: list[str] = key()

    made = Leaves()
    made.names.append("x")
    assert Leaves().names == [] == walked("deepspeed", "zero_optimization.leaf_module.names")["default"]


def test_what_a_library_requires_is_required() -> None:
    class Cycle(Section):
        library = "deepspeed"
        known_as = "scheduler.OneCycle"

        cycle_min_lr: float = key()
        decay_lr_rate: float = key()

    assert Cycle.model_fields["cycle_min_lr"].is_required()
    assert Cycle.model_validate({"cycle_min_lr": 0.1}).decay_lr_rate == 0.0
    with pytest.raises(ValidationError, match="cycle_min_lr"):
        Cycle.model_validate({})


def test_a_section_that_was_not_walked_has_no_other_defaults() -> None:
    class Own(Section):
        number: int = key()

    assert Own.model_fields["number"].is_required()


def test_a_base_class_takes_them_where_it_is_used() -> None:
    """As TrainingArguments, which is put together from classes that name no library."""

    class Part(Section):
        queue_depth: int = key()

    class Whole(Part):
        library: ClassVar[str] = "deepspeed"
        known_as: ClassVar[str | None] = "aio"

    assert Part.model_fields["queue_depth"].is_required()
    assert Whole().queue_depth == 8


@pytest.mark.parametrize(
    ("library", "known_as", "name", "said"),
    [
        ("deepspeed", "aio", "thread_count", r"deepspeed 0\.\d+\.\d+ has no aio\.thread_count \(schemas/releases/deep"),
        ("deepspeed", "tensor_parallel", "dtype", "no default of tensor_parallel.dtype of deepspeed .*default=..."),
        ("transformers", "", "include_for_metrics", "no default of include_for_metrics of transformers"),
    ],
)
def test_what_was_not_walked_is_refused_where_the_class_is_made(
    library: str, known_as: str, name: str, said: str
) -> None:
    attributes = {"__annotations__": {name: object}, "library": library, "known_as": known_as, name: key()}
    with pytest.raises(LookupError, match=said):
        type("Made", (Section,), attributes)


def test_a_mapping_that_is_asked_without_a_default_gives_none() -> None:
    assert walked("deepspeed", "steps_per_print") == {}
    assert walked_default("deepspeed", "", "steps_per_print") is None


def test_options_of_the_launcher() -> None:
    assert option("tee") == {"flags": ["--tee", "-t"], "action": "store", "type": "str", "default": "0"}
    assert option("quiet") == {"flags": ["--quiet", "-q"], "action": "store_true"}
    assert option("use_fsdp") == {"flags": ["--use_fsdp"], "action": "store_true", "default": False}
    assert option("vm") == {"flags": ["--vm"], "action": "append", "type": "str"}
    assert option("fp8_pad_inner_dim")["type"] == "bool" and option("megatron_lm_no_load_optim")["type"] == "truth"
    assert option("fsdp_version")["choices"] == ["1", "2"]
    with pytest.raises(LookupError, match=r"option\.use_tp"):
        option("use_tp")  # of 1.4 to 1.6


def test_every_trainer_of_trl_is_listed() -> None:
    known = histories("trl")
    classes = [name for name in known.raw if "." not in name and not name.startswith("_")]
    assert {name for name in classes if (known.today(name) or {}).get("trainer")} == set(TRAINERS)
    assert declared("GRPOScriptArguments").items() > declared("ScriptArguments").items()
    assert "use_liger_kernel" not in declared("SFTConfig"), "TrainingArguments has it with the same default"
    assert Recipe.model_fields["max_length"].default == walked("trl", "SFTConfig.max_length")["default"]


def test_a_key_of_trl_that_nothing_is_said_of(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(KEYS, "packing")
    with pytest.raises(LookupError, match="SFTConfig of TRL has packing, of which"):
        declared.__wrapped__("SFTConfig")


def sections(model: type[Section]) -> Iterator[type[Section]]:
    yield model
    for declared_key in keys_of(model).values():
        if declared_key.section is not None:
            yield from sections(declared_key.section)
    for variants in model.variants.values():
        for case in variants.cases.values():
            yield from sections(case)


ROOTS = (DeepSpeedConfig, ClusterConfig, SageMakerConfig, Launcher, TrainingArguments)
WALKED = {model for root in ROOTS for model in sections(root) if model.known_as is not None}


@pytest.mark.parametrize("model", sorted(WALKED, key=lambda model: (model.library, str(model.known_as))))
def test_every_key_that_was_walked_is_there(model: type[Section]) -> None:
    """What a new release adds shows here after `make facts`, without the release itself."""
    found = walked_keys(model.library, str(model.known_as))
    names = {name for name, facts in found.items() if not facts.get("removed")}
    assert names <= {other for name in model.model_fields for other in (name, *spellings(model, name))}


def test_no_walked_default_is_written_again() -> None:
    found = [
        f"{model.__name__}.{name}"
        for model in WALKED
        for name, call in written(model)
        for word in call.keywords
        if word.arg == "default" and says_the_walked(model, name, word.value)
    ]
    assert found == []


def written(model: type[Section]) -> Iterator[tuple[str, ast.Call]]:
    """The calls that declare keys, by key: of a class, and of the bases that name no library."""
    for base in model.__mro__:
        if base is model or (issubclass(base, Section) and base is not Section and not base.library):
            for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(base)))):
                if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Call):
                    yield ast.unparse(node.target), node.value


def says_the_walked(model: type[Section], name: str, default: ast.expr) -> bool:
    try:
        known = walked_default(model.library, str(model.known_as), name)
        return repr(ast.literal_eval(default)) == repr(known)  # 1 and 1.0 are not the same default
    except (LookupError, ValueError):  # not walked; a section
        return False
