"""ZC8xx: values of training arguments that the Trainer refuses or reads in another way than they look."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import ARRIVING_ARGUMENTS, KNOWN_ARGUMENTS, ArgumentsOfRun, under_deepspeed
from zerocfg.rules.repairs import plain_number
from zerocfg.source.edit import delete_entry, rename_key


@rule("ZC810", "workers-needed", Severity.ERROR, ARRIVING_ARGUMENTS)
def workers_needed(given: ArgumentsOfRun) -> Iterator[Finding]:
    if given.number("dataloader_num_workers", 0) != 0:
        return
    workers = given.called("dataloader_num_workers")
    for name in ("dataloader_prefetch_factor", "dataloader_persistent_workers"):
        if given.value(name) is True or given.number(name) is not None:
            yield given.written(name, "dataloader_num_workers").finding(
                f"`{given.called(name)}` needs `{workers}` above 0, which is 0 here; the training stops at it",
                f"write {workers}, or remove this",
                given.drop(name, f"remove {name}"),
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


@rule("ZC812", "argument-out-of-range", Severity.ERROR, ARRIVING_ARGUMENTS)
def argument_out_of_range(given: ArgumentsOfRun) -> Iterator[Finding]:
    for name, lowest in _LOWEST.items():
        size = given.number(name)
        if size is None or size >= lowest:
            continue
        if under_deepspeed(given.run) and name in ("per_device_train_batch_size", "gradient_accumulation_steps"):
            continue  # DeepSpeed stops at it first, and ZC204 says so
        text = plain_number(abs(float(size)) if name in _REAL else lowest)
        yield given.written(name, where="value").finding(
            f"`{given.called(name)}: {size:g}` is below {lowest}; the training stops at it",
            f"write {text}",
            given.set(name, text, f"write {text}"),
            versions="transformers>=4.50" if name == "torch_empty_cache_steps" else "",
        )


@rule("ZC813", "accelerator-config-key-unknown", Severity.ERROR, KNOWN_ARGUMENTS)
def accelerator_config_key_unknown(given: ArgumentsOfRun) -> Iterator[Finding]:
    schema, section = load_schema("training-arguments"), given.entries("accelerator_config")
    key = schema.root.names.get("accelerator_config")
    known = key.section(schema) if key is not None else None
    if section is None or known is None:
        return
    for name in section.held:
        if name in known.names:
            continue
        near = closest(name, [other for other in known.names if other not in section.held])
        if near:
            advice = f"write {near}"
            fix = section.edited(given.run, rename_key, (name,), near, why=advice, safe=True)
        else:
            advice = "it takes " + ", ".join(known.names)
            fix = section.edited(given.run, delete_entry, (name,), why="remove the key")
        yield Finding(
            section.at(name, where="key"),
            f"`accelerator_config` has no `{name}`; TrainingArguments stop at it",
            advice,
            fix=fix,
        )
