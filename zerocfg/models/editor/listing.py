"""Which editor's schema is for which files: one entry a format, and the catalogue in the form of SchemaStore."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from zerocfg.models.editor.form import editor_schema, joined
from zerocfg.models.schema import SCHEMAS

HOME = "https://raw.githubusercontent.com/zerocfg/zerocfg/main/schemas/editor"
"""Where the schemas lie for everyone: the folder of the default branch."""
CATALOG = "catalog"
_CATALOG_SCHEMA = "https://json.schemastore.org/schema-catalog.json"


class Listed(NamedTuple):
    """A format that people write by hand: schema, description, and the file names that nothing else uses."""

    name: str
    title: str
    description: str
    matches: tuple[str, ...] = ()
    yaml: bool = True
    """Its files are read by PyYAML."""


LISTED = (
    Listed(
        "deepspeed",
        "DeepSpeed configuration",
        "Configuration of DeepSpeed (ds_config.json): ZeRO, offload, precision, optimizer, scheduler",
        ("ds_config*.json", "deepspeed_config*.json", "ds_z*_config.json", "zero_stage*_config.json"),
        yaml=False,
    ),
    Listed(
        "accelerate",
        "accelerate configuration",
        "Configuration of Hugging Face accelerate, as accelerate config writes it and accelerate launch reads it",
        (
            "accelerate.yaml",
            "accelerate_config*.yaml",
            "accelerate_config*.yml",
            "**/huggingface/accelerate/default_config.yaml",
        ),
    ),
    Listed(
        "training-arguments",
        "TrainingArguments",
        "Recipe with arguments of the Trainer of Hugging Face transformers",
    ),
    Listed("trl", "TRL recipe", "Recipe of a trainer of TRL (SFT, DPO, GRPO, ...)"),
    Listed(
        "spec",
        "zerocfg spec",
        "Spec of zerocfg: the runs whose accelerate and DeepSpeed configs it builds",
        ("zerocfg.yaml",),
    ),
    Listed("hardware", "zerocfg hardware profile", "Hardware profile as zerocfg probe writes it"),
)
EDITOR_SCHEMAS = {entry.name: entry for entry in LISTED}


def address(name: str) -> str:
    """The public address of a schema for editors."""
    return f"{HOME}/{name}.json"


def editor_text(name: str) -> str:
    """The text of ``schemas/editor/NAME.json``. Raises KeyError for a name that is not in EDITOR_SCHEMAS."""
    entry = EDITOR_SCHEMAS[name]
    made = _made(name, entry)
    if name == "accelerate":
        sagemaker = _made("accelerate-sagemaker", entry)
        made = joined([("compute_environment", "AMAZON_SAGEMAKER", sagemaker)], made, made["title"])
    return _text(made)


def catalog_text() -> str:
    """The text of ``schemas/editor/catalog.json``: the entries in the form of SchemaStore's catalogue."""
    entries: list[dict[str, Any]] = []
    for entry in LISTED:
        listed: dict[str, Any] = {"name": entry.title, "description": entry.description}
        if entry.matches:
            listed["fileMatch"] = list(entry.matches)
        entries.append({**listed, "url": address(entry.name)})
    return _text({"$schema": _CATALOG_SCHEMA, "version": 1.0, "schemas": entries})


def _made(name: str, entry: Listed) -> dict[str, Any]:
    return editor_schema(name, lambda other: SCHEMAS[other](), yaml=entry.yaml, address=address(entry.name))


def _text(made: dict[str, Any]) -> str:
    return json.dumps(made, indent=2, ensure_ascii=False) + "\n"
