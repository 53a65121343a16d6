"""ZC8xx: values of training arguments that the Trainer refuses or reads in another way than they look."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.schema import load_schema
from zerocfg.catalog.suggest import closest
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.arguments import (
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
from zerocfg.run.model import Run
from zerocfg.source.edit import delete_entry, rename_key


@rule("ZC810", "workers-needed", Severity.ERROR)
def workers_needed(run: Run) -> Iterator[Finding]:
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


@rule("ZC812", "argument-out-of-range", Severity.ERROR)
def argument_out_of_range(run: Run) -> Iterator[Finding]:
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


@rule("ZC813", "accelerator-config-key-unknown", Severity.ERROR)
def accelerator_config_key_unknown(run: Run) -> Iterator[Finding]:
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
