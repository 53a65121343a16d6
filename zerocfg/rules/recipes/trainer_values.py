"""ZC8xx: values of training arguments that the Trainer refuses or reads in another way than they look."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import Example, Finding, Severity, rule
from zerocfg.rules.arguments import (
    RECIPE,
    drop_argument,
    entries,
    given,
    number,
    reader,
    set_argument,
    under_deepspeed,
    value,
    written,
)
from zerocfg.rules.proof import crashes
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, rename_key


def _recipe(text: str, consumer: str = "transformers") -> Example:
    return Example({"recipe.yaml": RECIPE + text}, consumer=consumer)


@rule(
    "ZC810",
    "workers-needed",
    Severity.ERROR,
    bad=(
        _recipe("dataloader_prefetch_factor: 2\n").finds("error", "recipe.yaml: dataloader_prefetch_factor: 2", 0, 0),
        Example(
            {"recipe.yaml": RECIPE + "dataloader_persistent_workers: true\n"},
            consumer="transformers",
            proof=crashes("init", "persistent_workers option needs num_workers > 0"),
        ).finds("error", "recipe.yaml: dataloader_persistent_workers: true", 0, 0),
    ),
    good=_recipe("dataloader_num_workers: 2\ndataloader_prefetch_factor: 2\ndataloader_persistent_workers: true\n"),
    proof=crashes("arguments", "--dataloader_prefetch_factor can only be set when data is loaded in a different"),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def workers_needed(run: Run) -> Iterator[Finding]:
    """Settings of data loading processes, with none of them.

    `dataloader_num_workers` is 0 where nobody writes it: the training process loads the data itself, has nobody to
    prefetch for it, and the job stops; for persistent workers only after the model was loaded.

    What happens: `ValueError: --dataloader_prefetch_factor can only be set when data is loaded in a different process`
    and `ValueError: persistent_workers option needs num_workers > 0`.

    Fix: removes the setting, which leaves loading as it is; unsafe, because workers may have been wanted.
    """
    if reader(run) is None or number(run, "dataloader_num_workers", 0) != 0:
        return
    for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
        setting = value(run, name)
        if setting is not True and (number(run, name) is None):
            continue
        location, related = written(run, name, "dataloader_num_workers")
        yield Finding(
            location,
            f"`{name}` needs `dataloader_num_workers` above 0, which is 0 here; the training stops at it",
            "write dataloader_num_workers, or remove this",
            related,
            drop_argument(run, name, f"remove {name}"),
        )


_LOWEST: dict[str, tuple[float, str]] = {
    "per_device_train_batch_size": (1, "batch_size should be a positive integer value"),
    "per_device_eval_batch_size": (1, ""),
    "gradient_accumulation_steps": (1, ""),
    "dataloader_num_workers": (0, ""),
    "warmup_steps": (0, ""),
    "torch_empty_cache_steps": (1, ""),
    "learning_rate": (0, ""),
    "adam_epsilon": (0, ""),
    "neftune_noise_alpha": (0, ""),
    "seed": (0, ""),
}


@rule(
    "ZC812",
    "argument-out-of-range",
    Severity.ERROR,
    bad=(
        _recipe("warmup_steps: -1\n").finds("error", "recipe.yaml: -1", -1, 0, 0),
        Example(
            {"recipe.yaml": "output_dir: out\nper_device_train_batch_size: 0\nmax_steps: 2\n"},
            consumer="transformers",
            proof=crashes("init", "batch_size should be a positive integer value, but got batch_size=0"),
        ).finds("error", "recipe.yaml: 0", 0, 1, 1),
        Example(
            {"recipe.yaml": RECIPE + "gradient_accumulation_steps: 0\n"},
            consumer="transformers",
            proof=crashes("init", "ZeroDivisionError: integer division or modulo by zero"),
        ).finds("error", "recipe.yaml: 0", 0, 1, 1),
        Example(
            {"recipe.yaml": RECIPE + "dataloader_num_workers: -1\n"},
            consumer="transformers",
            proof=crashes("init", "num_workers option should be non-negative"),
        ).finds("error", "recipe.yaml: -1", -1, 0, 0),
        Example(
            {"recipe.yaml": RECIPE + "torch_empty_cache_steps: 0\n"},
            consumer="transformers",
            proof=crashes("arguments", "`torch_empty_cache_steps` must be an integer bigger than 0"),
        ).finds("error", "recipe.yaml: 0", 0, 1, 1),
        Example(
            {"recipe.yaml": RECIPE + "learning_rate: -1.0e-4\n"},
            consumer="transformers",
            proof=crashes("init", "Invalid learning rate"),
        ).finds("error", "recipe.yaml: -1.0e-4", "-0.0001", 0, "0.0001"),
        Example(
            {"recipe.yaml": RECIPE + "adam_epsilon: -1.0e-8\n"},
            consumer="transformers",
            proof=crashes("init", "Invalid epsilon value"),
        ).finds("error", "recipe.yaml: -1.0e-8", "-1e-08", 0, "1.0e-08"),
        Example(
            {"recipe.yaml": RECIPE + "neftune_noise_alpha: -5.0\n"},
            consumer="transformers",
            proof=crashes("step", "uniform_ expects to return"),
        ).finds("error", "recipe.yaml: -5.0", -5, 0, "5.0"),
        Example(
            {"recipe.yaml": RECIPE + "seed: -1\n"},
            consumer="transformers",
            proof=crashes("arguments", "Seed must be between 0 and"),
        ).finds("error", "recipe.yaml: -1", -1, 0, 0),
    ),
    good=_recipe("warmup_steps: 0\ngradient_accumulation_steps: 1\nlearning_rate: 1.0e-4\n"),
    proof=crashes("arguments", "Expected value warmup_steps >= 0"),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def argument_out_of_range(run: Run) -> Iterator[Finding]:
    """A training argument below the least value that works.

    Only a few arguments are checked when they are parsed. The others stop the job later, some after the model was
    loaded onto every accelerator, with an error that does not name them.

    What happens: `ValueError: Got warmup_steps = -1, Expected value warmup_steps >= 0`; `ValueError: batch_size should
    be a positive integer value, but got batch_size=0`; `ZeroDivisionError: integer division or modulo by zero` for
    `gradient_accumulation_steps: 0`; `ValueError: Invalid learning rate: -0.0001`.

    Fix: writes the least value, or takes the minus sign away from a rate. A number is chosen, so it is unsafe.
    """
    if reader(run) is None:
        return
    for name, (lowest, _) in _LOWEST.items():
        size = number(run, name)
        if size is None or size >= lowest or given(run, name) is None:
            continue
        if under_deepspeed(run) and name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
            continue  # DeepSpeed stops at it first, and ZC204 says so
        location, related = written(run, name, where="value")
        plain = name in ("learning_rate", "adam_epsilon", "neftune_noise_alpha")
        text = repr(abs(float(size))) if plain else f"{lowest:g}"
        if "e" in text and "." not in text:
            text = text.replace("e", ".0e")
        yield Finding(
            location,
            f"`{name}: {size:g}` is below {lowest:g}; the training stops at it",
            f"write {text}",
            related,
            set_argument(run, name, text, f"write {text}"),
            versions="transformers>=4.50" if name == "torch_empty_cache_steps" else "",
        )


@rule(
    "ZC813",
    "accelerator-config-key-unknown",
    Severity.ERROR,
    bad=_recipe("accelerator_config: {split_batch: true, even_batches: true}\n").finds(
        "error", "recipe.yaml: split_batch"
    ),
    good=_recipe("accelerator_config: {split_batches: false, even_batches: true}\n"),
    proof=crashes("arguments", "unexpected keyword argument 'split_batch'"),
    fixable=True,
    references=("transformers/trainer_pt_utils.py@5.23.0",),
)
def accelerator_config_key_unknown(run: Run) -> Iterator[Finding]:
    """A key of `accelerator_config` that the Trainer does not know.

    The section takes a handful of names. Settings of the launcher (`mixed_precision`, `num_processes`) do not belong
    here; the job stops at them while it reads its arguments.

    What happens: `TypeError: AcceleratorConfig.__init__() got an unexpected keyword argument 'split_batch'`.

    Fix: renames the key where a known one is near; removes it otherwise, which is unsafe.
    """
    section = entries(run, "accelerator_config")
    if reader(run) is None or section is None:
        return
    schema = load_schema("training-arguments")
    key = schema.root.names.get("accelerator_config")
    inner = key.section(schema) if key is not None else None
    for name in section.held:
        if inner is None or name in inner.names:
            continue
        near = closest(name, [known for known in inner.names if known not in section.held])
        fix = (
            section.edited(run, rename_key, (name,), near, why=f"write {near}", safe=True)
            if near
            else section.edited(run, delete_entry, (name,), why="remove the key")
        )
        yield Finding(
            section.at(name, where="key"),
            f"`accelerator_config` has no `{name}`; TrainingArguments stop at it",
            f"write {near}" if near else "it takes " + ", ".join(inner.names),
            fix=fix,
        )


RULES = (
    workers_needed,
    argument_out_of_range,
    accelerator_config_key_unknown,
)
