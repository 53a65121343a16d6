"""FSDP 1 to FSDP 2: the section stays, key by key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from zerocfg.convert.conversion import Conversion, Match, Row, place, refused, said, word
from zerocfg.convert.outcome import conversion
from zerocfg.convert.precision import FSDP1_TO_2, precision
from zerocfg.convert.yaml_edits import with_section, without_key
from zerocfg.migrate.steps import Operation, Put, Rename, changed
from zerocfg.run.discover import Files
from zerocfg.run.model import UNKNOWN, Run
from zerocfg.run.stages.fsdp import PARALLEL, SIZES
from zerocfg.run.stages.namespace import spelled
from zerocfg.source.node import Path

SECTION, VERSION = "fsdp_config", "fsdp_version"
RESHARD, STATE_DICT, POLICY = "fsdp_reshard_after_forward", "fsdp_state_dict_type", "fsdp_auto_wrap_policy"
SHARDED, FULL = "SHARDED_STATE_DICT", "FULL_STATE_DICT"
MESH = "parallelism_config"
_STRATEGY = "fsdp_sharding_strategy"
_RESHARDS = {
    "FULL_SHARD": True,
    "SHARD_GRAD_OP": False,
    "NO_SHARD": False,
    "HYBRID_SHARD": True,
    "HYBRID_SHARD_ZERO2": False,
}
_HYBRID = ("HYBRID_SHARD", "HYBRID_SHARD_ZERO2")
_SPEED = "only speed and memory differ"


@dataclass(frozen=True, slots=True)
class _Becomes:
    """What becomes of one key. ``key`` None: it is taken out; ``value`` UNKNOWN: it stays as it is written."""

    key: str | None
    match: Match
    why: str = ""
    value: object = UNKNOWN


def from_fsdp1(run: Run, files: Files) -> Conversion:
    """The run under FSDP 2. Raises ConversionError."""
    file = run.accelerate
    assert file is not None
    rows: list[Row] = []
    text = file.source.text
    keys = {spelled(SECTION, str(name)): (SECTION, str(name)) for name in file.data().get(SECTION) or {}}
    try:
        for name, path in keys.items():
            value = (file.data()[SECTION])[path[1]]
            becomes = _becomes(run, name, _effective(run, name, path), RESHARD in keys)
            if becomes is None:
                continue
            text = _edited(run, text, path, name, becomes)
            new = "(left out)" if becomes.key is None else said((SECTION, becomes.key), _shown(becomes, value))
            names = frozenset({f"{SECTION}.{name}", f"{SECTION}.{becomes.key}"})
            rows.append(Row(said(path, value), new, becomes.match, becomes.why, place(file, path), names))
        for name, becomes in _defaults(keys):
            text = changed(file, text, [Put((SECTION, name), becomes.value)])
            default = f"({name}: {'1' if name == VERSION else word(becomes.value)})"
            new = said((SECTION, name), becomes.value)
            rows.append(Row(default, new, becomes.match, becomes.why, "", frozenset({f"{SECTION}.{name}"})))
        if (sizes := _mesh(run)) is not None:
            text = with_section(file, text, MESH, {f"{MESH}_{name}": size for name, size in sizes.items()})
            rows.append(_mesh_row(run, sizes))
    except ValueError as error:
        raise refused(file, (SECTION,), f"it cannot be edited here: {error}") from None
    rows += precision(run, FSDP1_TO_2)
    return conversion(run, files, text, rows)


def _effective(run: Run, name: str, path: Path) -> Any:
    """A value as accelerate reads it: any case, or the number of a strategy."""
    found = run.effective.get(f"{SECTION}.{name}")
    if found is None:
        return None
    if not found.known:
        file = run.accelerate
        assert file is not None
        raise refused(file, path, "accelerate does not take its value; `zerocfg lint` says more")
    return found.value


def _becomes(run: Run, name: str, value: Any, has_reshard: bool) -> _Becomes | None:
    """What becomes of a key; None for what stays and that nobody reads."""
    if name == VERSION:
        return _Becomes(VERSION, "exactly", value=2)
    if name == _STRATEGY:
        return _strategy(run, value, has_reshard)
    if name == RESHARD:
        reshards = _RESHARDS[run.effective.value(f"{SECTION}.{_STRATEGY}", "FULL_SHARD")]
        return _Becomes(RESHARD, "exactly", "FSDP 1 does not read it; the strategy counted", reshards)
    if name == POLICY and value == "SIZE_BASED_WRAP":
        why = "FSDP 2 cannot cut by size: it stops at a list of layers; it is cut by layers"
        return _Becomes(POLICY, "nearly", why, "TRANSFORMER_BASED_WRAP")
    if name == "fsdp_min_num_params" and value is not None:
        return _Becomes(None, "nearly", "layers are the units, of whatever size")
    if name == STATE_DICT and value == "LOCAL_STATE_DICT":
        return _Becomes(
            STATE_DICT, "nearly", "FSDP 2 refuses LOCAL_STATE_DICT; each rank still saves its own part", SHARDED
        )
    if name == "fsdp_backward_prefetch":
        always = "FSDP 2 always prefetches the next layer, as BACKWARD_PRE does"
        return _Becomes(None, *(("exactly", always) if value == "BACKWARD_PRE" else ("nearly", f"{always}; {_SPEED}")))
    if name == "fsdp_forward_prefetch":
        return _Becomes(None, *(("nearly", f"accelerate has none for FSDP 2; {_SPEED}") if value else ("exactly", "")))
    if name == "fsdp_use_orig_params":
        always = "FSDP 2 always keeps the model's own parameters"
        return _Becomes(
            None, *(("exactly", always) if value else ("nearly", f"{always}, not flat ones; losses may differ"))
        )
    if name == "fsdp_sync_module_states":
        return _synchronised(run, value)
    if f"{SECTION}.{name}" in run.effective.settings:
        return _Becomes(name, "exactly")
    return None


def _strategy(run: Run, value: str, has_reshard: bool) -> _Becomes:
    key, reshards = (None if has_reshard else RESHARD), _RESHARDS[value]
    if value == "NO_SHARD":
        why = "FSDP 2 shards where nothing was sharded: less memory, more communication; DDP is `MULTI_GPU`"
        return _Becomes(key, "nearly", why, reshards)
    if value in _HYBRID and _mesh(run) is None:
        return _Becomes(key, "exactly", "on one machine all cards share one copy", reshards)
    return _Becomes(key, "exactly", value=reshards)


def _synchronised(run: Run, value: bool) -> _Becomes:
    if not value:
        return _Becomes(None, "exactly")
    if run.effective.value(f"{SECTION}.fsdp_cpu_ram_efficient_loading"):
        return _Becomes(None, "exactly", "with fsdp_cpu_ram_efficient_loading rank 0 sends its weights")
    return _Becomes(None, "nearly", "each rank keeps the weights that it loaded; add fsdp_cpu_ram_efficient_loading")


def _defaults(keys: Mapping[str, Path]) -> Iterator[tuple[str, _Becomes]]:
    """What has to be written because the default of version 2 is another one."""
    if VERSION not in keys:
        yield VERSION, _Becomes(VERSION, "exactly", "accelerate's default is 1", 2)
    if STATE_DICT not in keys:
        yield STATE_DICT, _Becomes(STATE_DICT, "exactly", f"the default of FSDP 2 is {SHARDED}", FULL)


def _mesh(run: Run) -> dict[str, int] | None:
    """The sizes that stand for hybrid sharding: copies on machines, of which each shards one. None without."""
    file = run.accelerate
    assert file is not None
    if run.effective.value(f"{SECTION}.{_STRATEGY}") not in _HYBRID:
        return None
    machines, processes = run.effective.value("num_machines"), run.effective.value("num_processes")
    if machines == 1:
        return None
    if not isinstance(machines, int) or not isinstance(processes, int) or processes % machines:
        why = f"{run.effective.value(f'{SECTION}.{_STRATEGY}')} needs a mesh: say num_processes and num_machines"
        raise refused(file, (SECTION, _STRATEGY), why)
    if processes == machines:
        raise refused(file, (SECTION, _STRATEGY), "with one process a machine it shards nothing, which FSDP 2 cannot")
    if any(name.startswith(PARALLEL) for name in run.effective.settings):
        raise refused(file, (MESH,), "hybrid sharding needs a mesh, and there is another one already")
    return {"dp_replicate_size": machines, "dp_shard_size": processes // machines}


def _mesh_row(run: Run, sizes: dict[str, int]) -> Row:
    new = ", ".join(f"{MESH}_{name}: {size}" for name, size in sizes.items())
    old = f"({run.effective.value(f'{SECTION}.{_STRATEGY}')}: each machine holds a copy)"
    return Row(old, new, "exactly", "FSDP 2 takes it from a mesh", "", frozenset(PARALLEL + name for name in SIZES))


def _edited(run: Run, text: str, path: Path, name: str, becomes: _Becomes) -> str:
    file = run.accelerate
    assert file is not None
    if becomes.key is None:
        return without_key(file, text, path, name)
    operations: list[Operation] = []
    now = (SECTION, str(path[1]) if becomes.key == name else becomes.key)
    if becomes.key != name:
        operations.append(Rename(path, becomes.key))
    if becomes.value is not UNKNOWN:
        operations.append(Put(now, becomes.value))
    return changed(file, text, operations)


def _shown(becomes: _Becomes, written: object) -> object:
    return written if becomes.value is UNKNOWN else becomes.value
