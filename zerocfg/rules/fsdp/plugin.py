"""ZC6xx: the keys of `fsdp_config`, and sections of an engine that is not the one chosen. See also
:mod:`wrapping` and :mod:`training`."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.catalog.versions import admits, only_below
from zerocfg.rules.api import WHOLE_RUN, Finding, Fix, Severity, Subject, rule
from zerocfg.rules.arguments import argument
from zerocfg.rules.effects import effective_value, under_trainer
from zerocfg.rules.fixes import rewritten
from zerocfg.rules.key import Key, accelerate, from_origin, recipe
from zerocfg.rules.release_scope import among
from zerocfg.rules.subjects import FailureOfRun, IgnoredOfRun, each_failure, each_ignored, given_by
from zerocfg.run.model import UNKNOWN, Run

KEEPS = ("SHARD_GRAD_OP", "HYBRID_SHARD_ZERO2", "2", "5")
"""Strategies that keep the parameters gathered after the forward pass."""
_BOOL_WORDS = ("y", "yes", "t", "true", "on", "1", "n", "no", "f", "false", "off", "0")


def fsdp_key(run: Run, name: str) -> Key | None:
    """A key of `fsdp_config` of the accelerate config, with or without its prefix."""
    return _spelled(accelerate(run, "fsdp_config"), name)


def efficient_loading(run: Run) -> Key:
    """The key that switches the loading by one process on or off, written or not."""
    name = "cpu_ram_efficient_loading"
    return fsdp_key(run, name) or accelerate(run, "fsdp_config", f"fsdp_{name}")


def _spelled(section: Key, name: str) -> Key | None:
    return next((section[spelling] for spelling in (f"fsdp_{name}", name) if spelling in section), None)


def fsdp_argument(run: Run) -> object:
    """The training argument `fsdp`, None where nothing says anything; it makes the plugin anew from `fsdp_config`."""
    if not under_trainer(run):
        return None
    found = argument(run, "fsdp")
    return None if found is None else found.held


def fsdp_version(run: Run) -> str | None:
    """ "1" or "2" when the job runs under FSDP as accelerate's launcher is told, else None."""
    if fsdp_argument(run) or fsdp_argument(run) is UNKNOWN:
        return None
    setting = run.effective.environment.get("FSDP_VERSION")
    if only_below(run.declared("accelerate"), _FSDP_2):
        return "1" if "ACCELERATE_USE_FSDP" in run.effective.environment else None
    return str(setting.value) if setting is not None and str(setting.value) in ("1", "2") else None


ARGUMENTS = "transformers>=5.10"
"""From then on the training arguments are read as here: FSDP 2 where no version is written, true as a switch, and words
that are not known refused. Of older releases nothing is said."""
_FSDP_2 = "1.6"
"""The release of accelerate that brought FSDP 2."""


def argument_key(run: Run, name: str) -> Key | None:
    """A key of the recipe's `fsdp_config`, with or without `fsdp_`, when the Trainer reads it; the prefix wins."""
    return _spelled(recipe(run, "fsdp_config"), name)


def argument_version(run: Run) -> str | None:
    """ "1" or "2" when the training arguments switch FSDP on, else None."""
    asked, config = fsdp_argument(run), argument(run, "fsdp_config")
    if not asked or asked is UNKNOWN or among(ARGUMENTS, run) is None:
        return None
    if config is not None and config.held is not None and not (isinstance(config.held, dict) and config.origin.path):
        return None  # a file, or entries that cannot be told apart in their place
    found = argument_key(run, "version")
    version = str(found.value) if found is not None else "2"
    return version if version in ("1", "2") else None


def fsdp_setting(run: Run, name: str) -> tuple[str, Key] | None:
    """A key where it counts, the recipe's `fsdp_config` or else that of accelerate, and the version of FSDP."""
    version = argument_version(run)
    found = argument_key(run, name) if version is not None else None
    if version is None:
        version, found = fsdp_version(run), fsdp_key(run, name)
    return None if version is None or found is None else (version, found)


def launcher_key(name: str, *versions: str) -> Subject[Key]:
    """For rules: such a key of the accelerate config, where the job runs under one of these versions of FSDP (any,
    where none is named)."""

    def find(run: Run) -> Key | None:
        version = fsdp_version(run)
        return fsdp_key(run, name) if version is not None and version in (versions or (version,)) else None

    return given_by(find)


def argument_key_of(name: str, *versions: str) -> Subject[Key]:
    """The same of the recipe's `fsdp_config`."""

    def find(run: Run) -> Key | None:
        version = argument_version(run)
        return argument_key(run, name) if version is not None and version in (versions or (version,)) else None

    return given_by(find)


def counting_key(name: str, *versions: str) -> Subject[Key]:
    """The same of that which counts (`fsdp_setting`)."""

    def find(run: Run) -> Key | None:
        version, key = fsdp_setting(run, name) or ("", None)
        return key if version in (versions or (version,)) else None

    return given_by(find)


def releases(run: Run) -> str:
    """``Finding.versions`` of what is found in `fsdp_setting`."""
    return ARGUMENTS if argument_version(run) is not None else ""


def whole_states(run: Run, version: str | None) -> bool:
    """Whether a version of FSDP can save whole weights in every release of accelerate that the project admits: 1.6, the
    first with FSDP 2, refuses it."""
    return version != "2" or not admits(run.declared("accelerate"), below="1.7")


def on(value: object) -> bool:
    """Whether a value of the accelerate config switches something on."""
    return str(value).lower() in ("y", "yes", "t", "true", "on", "1")


def _is_default(value: object) -> bool:
    """FULL_SHARD in one of its spellings: what applies anyway."""
    return value in (True, 1) or str(value).upper() in ("FULL_SHARD", "1", "TRUE")


@rule("ZC601", "fsdp-loading-without-sync", Severity.ERROR, each_failure("ZC601"))
def fsdp_loading_without_sync(predicted: FailureOfRun) -> Iterator[Finding]:
    finding = predicted.finding("write true, or switch fsdp_cpu_ram_efficient_loading off as well")
    key, written = fsdp_key(predicted.run, "sync_module_states"), fsdp_key(predicted.run, "version")
    if key is not None and written is not None and str(written.value) == "2":
        finding.fix = key.delete("remove the key, which FSDP 2 does not need")
    elif key is not None:
        finding.fix = key.replace("true", "write true", safe=False)
    yield finding


@rule("ZC602", "fsdp-key-of-other-version", Severity.ERROR, WHOLE_RUN)
def fsdp_key_of_other_version(run: Run) -> Iterator[Finding]:
    version = fsdp_version(run)
    dead, alive = {
        "1": ("reshard_after_forward", "sharding_strategy"),
        "2": ("sharding_strategy", "reshard_after_forward"),
    }.get(version or "", ("", ""))
    key = fsdp_key(run, dead) if dead else None
    if key is None or _is_default(key.value) or fsdp_key(run, alive) is not None:
        return
    new, word = f"fsdp_{alive}", _other_word(key.value, version)
    yield key.finding(
        f"FSDP {version} never reads `{key.name}`: {show(key.value)} is dropped and everything is sharded as in "
        "FULL_SHARD",
        f"write `{new}`",
        fix=None if word is None else rewritten(key.file, key.path, new, word, why=f"write {new}: {word}"),
    )


def _other_word(value: object, version: str | None) -> str | None:
    """The value in the words of the other key, None where it has none."""
    text = str(value).upper()
    if version == "2":
        return "false" if text in ("SHARD_GRAD_OP", "2") else None
    if value is False or text == "FALSE":
        return "SHARD_GRAD_OP"
    known = ("SHARD_GRAD_OP", "NO_SHARD", "HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
    return str(value) if text in known else None


@rule("ZC603", "fsdp2-strategy-name", Severity.ERROR, counting_key("reshard_after_forward", "2"))
def fsdp2_strategy_name(key: Key) -> Iterator[Finding]:
    if str(key.value).lower() in _BOOL_WORDS:
        return
    written = str(key.value).upper()
    word = "false" if written in (*KEEPS, "NO_SHARD") else "true"
    yield key.finding(
        f"FSDP 2 reads `{key.name}` as true or false; {show(key.value)} stops every process",
        f"write {word}",
        fix=key.replace(word, f"write {word}", safe=written in ("FULL_SHARD", "SHARD_GRAD_OP")),
        where="value",
        versions=releases(key.run),
    )


_NAMES = {"deepspeed_config": "DEEPSPEED", "fsdp_config": "FSDP", "megatron_lm_config": "MEGATRON_LM"}


@rule("ZC604", "section-of-another-engine", Severity.ERROR, each_ignored("ZC604"))
def section_of_another_engine(unused: IgnoredOfRun) -> Iterator[Finding]:
    if _offers_engines(unused.run):
        return
    engine = effective_value(unused.run, "engine")
    used = {"ddp": "plain data parallelism", "single": "one plain process"}.get(str(engine), "")
    item, key = unused.item, unused.key
    if unused.run.launch is None or "deepspeed" in unused.run.arguments:
        consequence = ""  # the script may bring an engine
    else:
        consequence = ": the job runs" + (f" with {used}" if used else " without it")
    place = key.at("key")
    option = from_origin(unused.run, item.used.origin) if item.used is not None else None
    wrong = "take the option out of the launch line" if option else "correct `distributed_type`"
    yield key.finding(
        f"{item.message}{consequence}",
        f"{wrong}, or remove the section",
        [option] if option else [accelerate(unused.run, "distributed_type")] if unused.run.accelerate else [],
        None if option else _right_engine(unused.run, str(place.path[0]) if place.path else ""),
        where="key",
    )


def _offers_engines(run: Run) -> bool:
    """Whether a config without a known reader has sections of several engines and chooses none of them: it is there to
    be filled in."""
    if run.consumer is not None or run.launch is not None:
        return False
    config = accelerate(run)
    offered = {name for section, name in _NAMES.items() if config.get(section)}
    return len(offered) > 1 and config["distributed_type"].value not in offered


def _right_engine(run: Run, unused: str) -> Fix | None:
    config = accelerate(run)
    kind = config["distributed_type"]
    if unused not in _NAMES or not isinstance(config.get(unused), dict):
        return None
    own = next((section for section, name in _NAMES.items() if name == kind.value), None)
    if own is not None and config.get(own):
        return config[unused].delete("remove the section that is not used")
    others = [name for name in _NAMES if name != unused and config.get(name)]
    if others or not isinstance(kind.value, str):
        return None
    return kind.replace(_NAMES[unused], f"choose {_NAMES[unused]}", safe=False)


@rule("ZC606", "fsdp-local-state", Severity.ERROR, counting_key("state_dict_type", "2"))
def fsdp_local_state(key: Key) -> Iterator[Finding]:
    if str(key.value).upper() != "LOCAL_STATE_DICT":
        return
    whole = whole_states(key.run, "2")
    word = "FULL_STATE_DICT" if under_trainer(key.run) and whole else "SHARDED_STATE_DICT"
    yield key.finding(
        "FSDP 2 knows no LOCAL_STATE_DICT; every process stops",
        f"write SHARDED_STATE_DICT{' or FULL_STATE_DICT' if whole else ''}",
        fix=key.replace(word, f"write {word}", safe=False),
        where="value",
        versions=releases(key.run),
    )
