"""ZC6xx: FSDP, and sections of an engine that is not the one chosen."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from zerocfg.catalog.values import show
from zerocfg.rules.api import Example, Finding, Location, Severity, rule
from zerocfg.rules.effects import TRAINERS, accelerate_section, anchor, effective, failures, ignored, told
from zerocfg.rules.proof import cited, crashes, shows
from zerocfg.run.model import Run, SourceFile
from zerocfg.source.node import Path

_STRATEGIES = ("FULL_SHARD", "SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_BOOL_WORDS = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")
_YAML = "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_version: %s\n"


def fsdp_key(run: Run, name: str) -> tuple[SourceFile, Path, Any] | None:
    """A key of `fsdp_config`, with or without its prefix: (file, path, value)."""
    written = accelerate_section(run, "fsdp_config")
    for spelling in (f"fsdp_{name}", name):
        if spelling in written and run.accelerate is not None:
            return run.accelerate, ("fsdp_config", spelling), written[spelling]
    return None


def fsdp_version(run: Run) -> str | None:
    """ "1" or "2" when the job runs under FSDP through accelerate's launcher, else None."""
    setting = run.effective.environment.get("FSDP_VERSION")
    return str(setting.value) if setting is not None and str(setting.value) in ("1", "2") else None


def _is_default(value: Any) -> bool:
    """FULL_SHARD in one of its spellings: what applies anyway."""
    return value in (True, 1) or str(value).upper() in ("FULL_SHARD", "1", "TRUE")


@rule(
    "ZC601",
    "fsdp-loading-without-sync",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % 1 + "  fsdp_sync_module_states: false\n"}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _YAML % 1 + "  fsdp_sync_module_states: true\n"}, consumer="accelerate"),
    proof=crashes("launch", "set `--fsdp_sync_module_states` to `True`"),
)
def fsdp_loading_without_sync(run: Run) -> Iterator[Finding]:
    """Only the first process loads the weights, and the others are not sent them.

    What happens: with `fsdp_cpu_ram_efficient_loading`, which the launcher turns on by itself, and
    `fsdp_sync_module_states: false` the launcher stops: `ValueError: When using --fsdp_cpu_ram_efficient_loading
    set --fsdp_sync_module_states to True`.
    """
    for failure in failures(run, "ZC601"):
        yield told(run, failure, "write true, or switch fsdp_cpu_ram_efficient_loading off as well")


@rule(
    "ZC602",
    "fsdp-key-of-other-version",
    Severity.ERROR,
    bad=(
        Example(
            {"accelerate.yaml": _YAML % 1 + "  fsdp_reshard_after_forward: SHARD_GRAD_OP\n"},
            consumer="accelerate",
        ),
        Example(
            {"accelerate.yaml": _YAML % 2 + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"},
            consumer="accelerate",
        ),
    ),
    good=(
        Example(
            {"accelerate.yaml": _YAML % 1 + "  fsdp_sharding_strategy: SHARD_GRAD_OP\n"},
            consumer="accelerate",
        ),
        Example({"accelerate.yaml": _YAML % 2 + "  fsdp_reshard_after_forward: false\n"}, consumer="accelerate"),
    ),
    proof=cited("accelerate/utils/dataclasses.py@1.15.0"),
)
def fsdp_key_of_other_version(run: Run) -> Iterator[Finding]:
    """How FSDP shards is written under the key of the other FSDP version.

    What happens: FSDP 1 reads `fsdp_sharding_strategy` and never `fsdp_reshard_after_forward` (although `accelerate
    config` writes the strategy there); FSDP 2 the other way round. The value is dropped and everything is sharded
    as in FULL_SHARD.
    """
    version = fsdp_version(run)
    dead, alive = {
        "1": ("reshard_after_forward", "sharding_strategy"),
        "2": ("sharding_strategy", "reshard_after_forward"),
    }.get(version or "", ("", ""))
    found = fsdp_key(run, dead) if dead else None
    if found is None or _is_default(found[2]) or fsdp_key(run, alive) is not None:
        return
    file, path, value = found
    yield Finding(
        Location(file, path),
        f"FSDP {version} never reads `{path[-1]}`: {show(value)} is dropped and everything is sharded as in FULL_SHARD",
        f"write `fsdp_{alive}`",
    )


@rule(
    "ZC603",
    "fsdp2-strategy-name",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % 2 + "  fsdp_reshard_after_forward: FULL_SHARD\n"}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _YAML % 2 + "  fsdp_reshard_after_forward: true\n"}, consumer="accelerate"),
    proof=crashes("arguments", "invalid truth value full_shard"),
)
def fsdp2_strategy_name(run: Run) -> Iterator[Finding]:
    """`fsdp_reshard_after_forward` holds the name of a strategy under FSDP 2.

    What happens: FSDP 2 wants true or false there: `ValueError: invalid truth value full_shard`, in every process.
    """
    found = fsdp_key(run, "reshard_after_forward")
    if fsdp_version(run) != "2" or found is None or str(found[2]).lower() in _BOOL_WORDS:
        return
    file, path, value = found
    keeps = str(value).upper() in ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD_ZERO2")
    yield Finding(
        Location(file, path, "value"),
        f"FSDP 2 reads `{path[-1]}` as true or false; {show(value)} stops every process",
        f"write {'false' if keeps else 'true'}",
    )


@rule(
    "ZC604",
    "section-of-another-engine",
    Severity.ERROR,
    bad=Example(
        {"accelerate.yaml": "distributed_type: MULTI_GPU\nnum_processes: 2\ndeepspeed_config:\n  zero_stage: 3\n"},
        consumer="accelerate",
    ),
    good=Example(
        {
            "accelerate.yaml": "distributed_type: DEEPSPEED\nnum_processes: 2\n"
            "deepspeed_config:\n  zero_stage: 3\n  zero3_save_16bit_model: true\n"
        },
        consumer="accelerate",
    ),
    proof=shows("launch", {"env.ACCELERATE_USE_DEEPSPEED": ("<absent>", "true")}),
)
def section_of_another_engine(run: Run) -> Iterator[Finding]:
    """`deepspeed_config`, `fsdp_config` or `megatron_lm_config` under another `distributed_type`.

    What happens: the section is read and exported to nobody. `deepspeed_config` under MULTI_GPU trains with plain
    data parallelism: the whole model, gradients and optimizer in every process, without a word.
    """
    for item in ignored(run, "ZC604"):
        engine = effective(run, "engine")
        used = {"ddp": "plain data parallelism", "single": "one plain process"}.get(str(engine), "")
        location, related = anchor(run, [item.place], "key")
        yield Finding(
            location,
            f"{item.message}: the job runs" + (f" with {used}" if used else " without it"),
            "correct `distributed_type`, or remove the section",
            related + ([Location(run.accelerate, ("distributed_type",))] if run.accelerate else []),
        )


@rule(
    "ZC605",
    "fsdp-layer-names-as-list",
    Severity.ERROR,
    bad=Example(
        {
            "accelerate.yaml": _YAML % 1 + "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
            "  fsdp_transformer_layer_cls_to_wrap:\n  - LlamaDecoderLayer\n"
        },
        consumer="accelerate",
    ),
    good=Example(
        {
            "accelerate.yaml": _YAML % 1 + "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
            "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"
        },
        consumer="accelerate",
    ),
    proof=shows("launch", {"env.FSDP_TRANSFORMER_CLS_TO_WRAP": ("['LlamaDecoderLayer']", "LlamaDecoderLayer")}),
)
def fsdp_layer_names_as_list(run: Run) -> Iterator[Finding]:
    """The layer classes to wrap are written as a list, or with spaces.

    What happens: the value becomes a text that is split at commas. A list turns into names like
    `['LlamaDecoderLayer']`, and a space after a comma becomes part of the name: `Could not find the transformer
    layer class to wrap in the model`.
    """
    found = fsdp_key(run, "transformer_layer_cls_to_wrap")
    if found is None or fsdp_version(run) is None:
        return
    file, path, value = found
    if isinstance(value, list):
        names = ",".join(str(part) for part in value)
    elif isinstance(value, str) and ", " in value:
        names = ",".join(part.strip() for part in value.split(","))
    else:
        return
    yield Finding(
        Location(file, path),
        f"`{path[-1]}` becomes the text {show(str(value))}, which no layer class is called; wrapping stops at it",
        f"write {names}",
    )


@rule(
    "ZC606",
    "fsdp-local-state",
    Severity.ERROR,
    bad=Example({"accelerate.yaml": _YAML % 2 + "  fsdp_state_dict_type: LOCAL_STATE_DICT\n"}, consumer="accelerate"),
    good=Example({"accelerate.yaml": _YAML % 2 + "  fsdp_state_dict_type: FULL_STATE_DICT\n"}, consumer="accelerate"),
    proof=crashes("arguments", "LOCAL_STATE_DICT"),
)
def fsdp_local_state(run: Run) -> Iterator[Finding]:
    """`LOCAL_STATE_DICT` under FSDP 2.

    What happens: FSDP 2 knows full and sharded states only; a ValueError in every process.
    """
    found = fsdp_key(run, "state_dict_type")
    if fsdp_version(run) == "2" and found is not None and str(found[2]).upper() == "LOCAL_STATE_DICT":
        yield Finding(
            Location(found[0], found[1], "value"),
            "FSDP 2 knows no LOCAL_STATE_DICT; every process stops",
            "write SHARDED_STATE_DICT or FULL_STATE_DICT",
        )


@rule(
    "ZC607",
    "fsdp-sharded-weights",
    Severity.WARNING,
    bad=Example(
        {
            "accelerate.yaml": _YAML % 1 + "  fsdp_state_dict_type: SHARDED_STATE_DICT\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n",
            "train.sh": "accelerate launch --config_file accelerate.yaml train.py --config recipe.yaml\n",
        },
        consumer="transformers",
    ),
    good=Example(
        {
            "accelerate.yaml": _YAML % 1 + "  fsdp_state_dict_type: FULL_STATE_DICT\n",
            "recipe.yaml": "output_dir: out\nper_device_train_batch_size: 1\nmax_steps: 2\n",
            "train.sh": "accelerate launch --config_file accelerate.yaml train.py --config recipe.yaml\n",
        },
        consumer="transformers",
    ),
    proof=cited("transformers/trainer.py@5.23.0"),
    consumers=TRAINERS,
)
def fsdp_sharded_weights(run: Run) -> Iterator[Finding]:
    """The Trainer saves FSDP weights as shards only.

    What happens: with SHARDED_STATE_DICT `save_model()` writes no `model.safetensors`; the checkpoints hold
    distributed shards, which `accelerate merge-weights` turns into one file.

    When to ignore: the merge is part of your pipeline.
    """
    found = fsdp_key(run, "state_dict_type")
    if fsdp_version(run) is not None and found is not None and str(found[2]).upper() == "SHARDED_STATE_DICT":
        yield Finding(
            Location(found[0], found[1], "value"),
            "with SHARDED_STATE_DICT the Trainer writes shards but no model.safetensors",
            "write FULL_STATE_DICT, or run `accelerate merge-weights` afterwards",
        )


RULES = (
    fsdp_loading_without_sync,
    fsdp_key_of_other_version,
    fsdp2_strategy_name,
    section_of_another_engine,
    fsdp_layer_names_as_list,
    fsdp_local_state,
    fsdp_sharded_weights,
)
