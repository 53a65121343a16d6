"""ZC469: expert parallelism (AutoEP) that DeepSpeed refuses while the engine is built.

Follows deepspeed/module_inject/auto_ep_config.py (`validate_autoep_config`) and auto_ep_folding.py. What a rule about
types or words says of the section is not said again here.
"""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.suggest import closest
from zerocfg.catalog.values import show
from zerocfg.record import record
from zerocfg.rules.api import Finding, Severity, rule
from zerocfg.rules.key import Key, deepspeed, setting
from zerocfg.rules.subjects import in_deepspeed
from zerocfg.run.script.arguments import call_of

PRESETS = ("mixtral", "qwen3_moe", "qwen3_5_moe", "deepseek_v2", "deepseek_v3", "minimax_m3")
"""Of 0.19.8; earlier releases have all but the last."""
_LOWEST = {
    "autoep_size": (1, "0.19.2"),
    "num_expert_groups": (1, "0.19.2"),
    "num_limited_groups": (1, "0.19.2"),
    "comm_num_sm": (1, "0.19.7"),
    "comm_qp_margin": (0, "0.19.7"),
    "comm_max_tokens_per_rank": (0, "0.19.7"),
}
"""The lowest number, and the first release that asks for it."""
_SWITCHES = {"validate_folding_routing": "0.19.3", "async_split_plan": "0.19.8"}
_ATTRIBUTES = (
    "expert_w1 expert_w2 expert_w3 num_experts_attr top_k_attr router_pattern expert_pattern shared_experts_pattern "
    "shared_experts_gate_pattern"
).split()
"""Names of attributes; a path of several is refused."""


@record(frozen=True, slots=True)
class Refusal:
    """``message`` and ``help`` of what DeepSpeed refuses from ``since`` on, at a key; ``other``: a second key."""

    key: Key
    message: str
    help: str
    since: str = "0.19.2"
    other: Key | None = None


@rule("ZC469", "expert-parallel-refused", Severity.ERROR, in_deepspeed("expert_parallel"), versions="deepspeed>=0.19.2")
def expert_parallel_refused(section: Key) -> Iterator[Finding]:
    found = [*_switches(section)]
    if section.get("enabled") is True:
        found += [*_numbers(section), *_names(section), *_relations(section), *_folding(section)]
        found += _processes(section)
    for refusal in found:
        yield refusal.key.finding(
            f"{refusal.message}; DeepSpeed stops when the engine is built",
            refusal.help,
            [refusal.other] if refusal.other is not None else [],
            versions=f"deepspeed>={refusal.since}",
        )


def _switches(section: Key) -> Iterator[Refusal]:
    for name, since in _SWITCHES.items():
        key = section[name]
        if key and isinstance(key.value, (int, float)) and not isinstance(key.value, bool):
            yield Refusal(key, f"`{name}` is {show(key.value)}, not true or false", "write true or false", since)


def _numbers(section: Key) -> Iterator[Refusal]:
    for name, (lowest, since) in _LOWEST.items():
        key = section[name]
        if isinstance(key.value, int) and key.value < lowest:
            yield Refusal(key, f"`{name}` {key.value} is below {lowest}", f"write {lowest} or more", since)
    limited, groups = section["num_limited_groups"], section["num_expert_groups"]
    if _whole(limited) and _whole(groups) and limited.value > groups.value >= 1:
        message = f"`num_limited_groups` {limited.value} is above `num_expert_groups` {groups.value}"
        yield Refusal(limited, message, f"write {groups.value} or less", other=groups)
    within = section["expert_tensor_parallel_size"]
    if _whole(within) and within.value != 1:
        message = f"`{within.name}` {within.value} is not supported yet: only 1 is"
        yield Refusal(within, message, "write 1, or leave it out", "0.19.3")


def _whole(key: Key) -> bool:
    return isinstance(key.value, int) and not isinstance(key.value, bool)


def _names(section: Key) -> Iterator[Refusal]:
    preset = section["preset_model"]
    if isinstance(preset.value, str) and preset.value not in PRESETS:
        near = closest(preset.value, PRESETS)
        help_text = f"did you mean `{near}`?" if near else f"write one of {', '.join(PRESETS)}"
        yield Refusal(preset, f"DeepSpeed knows no `{preset.name}` {show(preset.value)}", help_text)
    for name in _ATTRIBUTES:
        key = section[name]
        if isinstance(key.value, str) and (not key.value or "." in key.value):
            what = "holds a dot" if key.value else "is empty"
            yield Refusal(key, f"`{name}` {show(key.value)} {what}", "write the name of one attribute, without a path")


def _relations(section: Key) -> Iterator[Refusal]:
    fused, grouped = section["gate_up_impl"], section["use_grouped_mm"]
    if fused.value == "fused" and grouped.value is False:
        message = '`gate_up_impl: "fused"` is one grouped product, which `use_grouped_mm: false` switches off'
        yield Refusal(fused, message, "write `use_grouped_mm: true`, or leave `gate_up_impl` out", "0.19.8", grouped)
    backend, tokens, size = (section[name] for name in ("comm_backend", "comm_max_tokens_per_rank", "autoep_size"))
    alone = not size or size.value == 1
    rows = section["row_weighting_impl"]
    if rows.value == "fused" and (not backend or backend.value == "comm"):
        message = '`row_weighting_impl: "fused"` needs `comm_backend: "deepep"`'
        yield Refusal(rows, message, f"write that, or leave `{rows.name}` out", "0.19.8", backend or None)
    elif rows.value == "fused" and backend.value == "deepep" and alone:
        message = '`row_weighting_impl: "fused"` needs an `autoep_size` above 1'
        yield Refusal(rows, message, f"write that, or leave `{rows.name}` out", "0.19.8", size or None)
    if backend.value == "deepep" and (not tokens or tokens.value == 0):
        message = '`comm_backend: "deepep"` needs a `comm_max_tokens_per_rank` above 0'
        help_text = "write the most tokens that one rank routes: micro batch times longest sequence"
        yield Refusal(backend, message, help_text, "0.19.7", tokens or None)
    combine = section["combine_impl"]
    if combine.value == "fused_weighted_sum" and backend.value == "deepep" and _whole(size) and size.value > 1:
        message = '`combine_impl: "fused_weighted_sum"` excludes `comm_backend: "deepep"`, which sums the rows itself'
        yield Refusal(combine, message, 'leave it out, or write `comm_backend: "comm"`', "0.19.7", backend)


def _folding(section: Key) -> Iterator[Refusal]:
    """Beside tensor parallelism (AutoTP)."""
    parallel = deepspeed(section.run, "tensor_parallel")
    degree, theirs, ours = parallel["autotp_size"], parallel["preset_model"], section["preset_model"]
    if ours.value in PRESETS and isinstance(theirs.value, str) and theirs.value != ours.value:
        message = f"`preset_model` is {show(ours.value)} here and {show(theirs.value)} in `tensor_parallel`"
        yield Refusal(ours, message, "write the same in both", "0.19.3", theirs)
    if not _whole(degree) or degree.value <= 1:
        return
    size, context = section["autoep_size"], f"beside `tensor_parallel.autotp_size` {degree.value}"
    if not size or size.value == 1:
        message = f"`autoep_size` has to be above 1 {context}"
        yield Refusal(size or section["enabled"], message, "write 2 or more", "0.19.3", degree)
    elif section["async_split_plan"].value is True:
        message = f"`async_split_plan` is not supported {context}"
        yield Refusal(section["async_split_plan"], message, "write false", "0.19.8", degree)
    if section["combine_impl"].value == "fused_weighted_sum":
        message = f'`combine_impl: "fused_weighted_sum"` is not supported {context}'
        yield Refusal(section["combine_impl"], message, "leave it out", "0.19.7", degree)


def _processes(section: Key) -> Iterator[Refusal]:
    run = section.run
    size, processes = section["autoep_size"], setting(run, "num_processes")
    if not _whole(size) or size.value < 1 or not _whole(processes) or processes.value < 1:
        return
    call = call_of(run.script, "deepspeed.initialize")
    if run.consumer is None or (call is not None and "mpu" in call.arguments):
        return  # stages of a pipeline may divide the processes first
    if processes.value % size.value:
        message = f"`autoep_size` {size.value} does not divide the {processes.value} processes"
        divisors = [str(n) for n in range(1, processes.value + 1) if processes.value % n == 0]
        yield Refusal(size, message, f"write one of {', '.join(divisors)}", other=processes)
