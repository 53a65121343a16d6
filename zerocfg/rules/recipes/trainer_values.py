"""ZC8xx: values of training arguments that the Trainer refuses or reads in another way than they look."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from zerocfg.catalog.admitted import admitted, where
from zerocfg.catalog.fields import choices, ever
from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.catalog.versions import Release
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
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
    word,
    written,
)
from zerocfg.rules.calls import given_in_calls
from zerocfg.rules.proof import crashes
from zerocfg.rules.reach import limited
from zerocfg.rules.taken import declares
from zerocfg.run.model import Run
from zerocfg.run.script.arguments import is_arguments
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


_WORDS = (
    "lr_scheduler_type",
    "optim",
    "eval_strategy",
    "evaluation_strategy",
    "save_strategy",
    "logging_strategy",
    "hub_strategy",
)


@rule(
    "ZC811",
    "argument-word-unknown",
    Severity.ERROR,
    bad=(
        _recipe("lr_scheduler_type: cosin\n").finds("error", "recipe.yaml: cosin"),
        Example(
            {"recipe.yaml": RECIPE + "report_to: tensorbord\n"},
            consumer="transformers",
            proof=crashes("arguments", "tensorbord is not supported, only"),
        ).finds("error", "recipe.yaml: tensorbord"),
    ),
    good=_recipe("lr_scheduler_type: cosine\noptim: adamw_torch\nreport_to: none\n"),
    proof=crashes("arguments", "cosin is not a valid SchedulerType"),
    fixable=True,
    references=("transformers/training_args.py@5.23.0",),
)
def argument_word_unknown(run: Run) -> Iterator[Finding]:
    """A word that a training argument does not have.

    Names of schedules, optimizers, strategies and trackers are exact, in small letters. The job stops before anything
    is loaded, on every process.

    What happens: `ValueError: cosin is not a valid SchedulerType, please select one of ['linear', 'cosine', ...]`; a
    tracker is refused when the Trainer is built: `tensorbord is not supported, only azure_ml, ...`.

    Fix: writes the nearest known word, where one is near.
    """
    yield from _words_in_calls(run)
    if reader(run) is None:
        return
    for name in _WORDS:
        written_word = word(run, name)
        if written_word is None:
            continue
        missed = _missed(run, name, written_word)
        if missed is not None:
            finding = _unknown_word(run, name, written_word, missed.known, given(run, name) is not None)
            yield _limited(run, finding, name, written_word, missed)
    trackers = value(run, "report_to")
    for tracker in trackers if isinstance(trackers, list) else [trackers]:
        if isinstance(tracker, str) and tracker not in _TRACKERS:
            yield _unknown_word(run, "report_to", tracker, _TRACKERS, not isinstance(trackers, list))


@dataclass(frozen=True, slots=True)
class _Missed:
    """A word that some admitted releases do not have: ``releases`` says which, "" where none has it. ``known``: the
    words of the newest of them."""

    releases: str
    known: list[str]


def _missed(run: Run, name: str, said: str) -> _Missed | None:
    """None where every admitted release has the word. Where the project names none, today's words count, and those
    that a release had before."""
    if not declares(run, "transformers"):
        key = load_schema("training-arguments").root.names[_RENAMED.get(name, name)]
        known = [str(item) for item in key.raw.get("enum", ())]
        return None if not known or said in known or (name == "optim" and said in ever(name)) else _Missed("", known)
    among = admitted("transformers", run.versions.get("transformers"))
    if among is None:
        return None

    def lacks(one: Release) -> bool:
        words = choices(name, one)
        return bool(words) and said not in words

    releases = where(lacks, among, "transformers")
    if releases is None or (among.below and said in ever(name)):
        return None
    return _Missed(releases, choices(name, next(one for one in reversed(among.releases) if lacks(one))))


def _limited(run: Run, finding: Finding, name: str, said: str, missed: _Missed) -> Finding:
    """The finding; a note where the newest admitted release has the word, so that only older ones stop at it."""
    if not missed.releases:
        return finding
    among = admitted("transformers", run.versions.get("transformers"))
    if among is not None and said in choices(name, among.newest):
        finding.severity = Severity.NOTE
    return limited(run, finding, "transformers", missed.releases)


_RENAMED = {"evaluation_strategy": "eval_strategy"}
"""Former names of arguments, whose words stayed the same."""


def _words_in_calls(run: Run) -> Iterator[Finding]:
    """The same in calls of the script, of the arguments that an enumeration of transformers reads."""
    for one in given_in_calls(run):
        if one.name not in _WORDS or not is_arguments(one.call.name) or not isinstance(one.value, str):
            continue
        missed = _missed(run, one.name, one.value)
        if missed is None or one.origin.file is None:
            continue
        near = closest(one.value, missed.known)
        finding = Finding(
            Location(one.origin.file, span=one.origin.span),
            f"`{one.name}` knows no `{one.value}`; {one.of} stops at it",
            f"write {near}" if near else "write one of " + ", ".join(missed.known[:12]),
        )
        yield _limited(run, finding, one.name, one.value, missed)


_TRACKERS = (
    "none all azure_ml comet_ml mlflow neptune tensorboard trackio wandb codecarbon clearml dagshub flyte dvclive "
    "swanlab kubeflow".split()
)


def _unknown_word(run: Run, name: str, wrong: str, known: list[str], single: bool) -> Finding:
    near = closest(wrong, known)
    location, related = written(run, name, where="value")
    return Finding(
        location,
        f"`{name}` knows no `{wrong}`; the training stops at it",
        f"write {near}" if near else "write one of " + ", ".join(known[:12]),
        related,
        set_argument(run, name, near, f"write {near}", safe=True) if near and single else None,
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
    argument_word_unknown,
    argument_out_of_range,
    accelerator_config_key_unknown,
)
