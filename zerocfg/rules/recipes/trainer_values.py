"""ZC8xx: values of training arguments that the Trainer refuses or reads in another way than they look."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.argument_reader import reader, values_arrive
from zerocfg.rules.arguments import (
    called,
    drop_argument,
    entries,
    number,
    set_argument,
    under_deepspeed,
    value,
    written,
)
from zerocfg.rules.repairs import plain_number
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, rename_key


@rule("ZC810", "workers-needed", Severity.ERROR)
def workers_needed(run: Run) -> Iterator[Finding]:
    if not values_arrive(run) or number(run, "dataloader_num_workers", 0) != 0:
        return
    workers = called(run, "dataloader_num_workers")
    for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
        if value(run, name) is True or number(run, name) is not None:
            yield written(run, name, "dataloader_num_workers").finding(
                f"`{called(run, name)}` needs `{workers}` above 0, which is 0 here; the training stops at it",
                f"write {workers}, or remove this",
                drop_argument(run, name, f"remove {name}"),
            )


_LOWEST = {
    "per_device_train_batch_size": 1,
    "per_device_eval_batch_size": 1,
    "gradient_accumulation_steps": 1,
    "dataloader_num_workers": 0,
    "warmup_steps": 0,
    "torch_empty_cache_steps": 1,
    "learning_rate": 0,
    "adam_epsilon": 0,
    "neftune_noise_alpha": 0,
    "seed": 0,
}
_REAL = ("learning_rate", "adam_epsilon", "neftune_noise_alpha")
"""Arguments that need not be whole: what is meant is the number without its sign."""


@rule("ZC812", "argument-out-of-range", Severity.ERROR)
def argument_out_of_range(run: Run) -> Iterator[Finding]:
    for name, lowest in _LOWEST.items() if values_arrive(run) else ():
        size = number(run, name)
        if size is None or size >= lowest:
            continue
        if under_deepspeed(run) and name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
            continue  # DeepSpeed stops at it first, and ZC204 says so
        text = plain_number(abs(float(size)) if name in _REAL else lowest)
        yield written(run, name, where="value").finding(
            f"`{called(run, name)}: {size:g}` is below {lowest}; the training stops at it",
            f"write {text}",
            set_argument(run, name, text, f"write {text}"),
            versions="transformers>=4.50" if name == "torch_empty_cache_steps" else "",
        )


@rule("ZC813", "accelerator-config-key-unknown", Severity.ERROR)
def accelerator_config_key_unknown(run: Run) -> Iterator[Finding]:
    schema, section = load_schema("training-arguments"), entries(run, "accelerator_config")
    key = schema.root.names.get("accelerator_config")
    known = key.section(schema) if key is not None else None
    if reader(run) is None or section is None or known is None:
        return
    for name in section.held:
        if name in known.names:
            continue
        near = closest(name, [other for other in known.names if other not in section.held])
        if near:
            advice = f"write {near}"
            fix = section.edited(run, rename_key, (name,), near, why=advice, safe=True)
        else:
            advice = "it takes " + ", ".join(known.names)
            fix = section.edited(run, delete_entry, (name,), why="remove the key")
        yield Finding(
            section.at(name, where="key"),
            f"`accelerator_config` has no `{name}`; TrainingArguments stop at it",
            advice,
            fix=fix,
        )
