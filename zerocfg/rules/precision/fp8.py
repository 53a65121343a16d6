"""ZC34x: fp8 and compiling, as the accelerate config asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import Finding, Location, Severity, rule
from zerocfg.rules.effects import accelerate_section
from zerocfg.rules.fixes import edited
from zerocfg.rules.fsdp.plugin import fsdp_key, on
from zerocfg.run.model import Run
from zerocfg.source.edit import insert_entry, rename_key, replace_value

_DEAD = {
    "amax_history_length": "amax_history_len",
    "amax_compute_algorithm": "amax_compute_algo",
    "optimization_level": "opt_level",
}


def _backend(run: Run) -> str | None:
    """The backend that the launcher exports, in capitals; None where it exports none or nobody knows."""
    setting = run.effective.environment.get("ACCELERATE_FP8_BACKEND")
    return setting.value.upper() if setting is not None and isinstance(setting.value, str) else None


def _exported(run: Run) -> bool:
    return "ACCELERATE_FP8_FORMAT" in run.effective.environment


@rule("ZC340", "fp8-names-of-the-questionnaire", Severity.ERROR)
def fp8_names_of_the_questionnaire(run: Run) -> Iterator[Finding]:
    section = accelerate_section(run, "fp8_config")
    if run.accelerate is None or not _exported(run):
        return
    for dead, alive in _DEAD.items():
        for prefix in ("", "fp8_"):
            if prefix + dead not in section:
                continue
            path = ("fp8_config", prefix + dead)
            both = alive in section or f"fp8_{alive}" in section
            yield Finding(
                Location(run.accelerate, path),
                f"`{prefix}{dead}` is read by nobody (accelerate's own questionnaire writes it): "
                f"{show(section[prefix + dead])} is lost",
                f"write `{prefix}{alive}`",
                fix=None
                if both
                else edited(rename_key, run.accelerate, path, prefix + alive, why=f"write {prefix}{alive}"),
            )


@rule("ZC341", "fp8-torchao-and-efficient-loading", Severity.ERROR)
def fp8_torchao_and_efficient_loading(run: Run) -> Iterator[Finding]:
    efficient = run.effective.environment.get("FSDP_CPU_RAM_EFFICIENT_LOADING")
    if _backend(run) != "AO" or efficient is None or not on(efficient.value) or run.accelerate is None:
        return
    section = accelerate_section(run, "fp8_config")
    name = next((key for key in ("backend", "fp8_backend") if key in section), None)
    if name is None:
        return
    loading = fsdp_key(run, "cpu_ram_efficient_loading")
    why, key = "write fsdp_cpu_ram_efficient_loading: false", "fsdp_cpu_ram_efficient_loading"
    yield Finding(
        Location(run.accelerate, ("fp8_config", name)),
        "torchao cannot do fp8 with fsdp_cpu_ram_efficient_loading (on by default): every process stops",
        why,
        [Location(loading[0], loading[1])] if loading else [],
        fix=edited(replace_value, loading[0], loading[1], "false", why=why, safe=False)
        if loading
        else edited(insert_entry, run.accelerate, ("fsdp_config",), key, "false", why=why, safe=False),
    )


@rule("ZC342", "fp8-backend-not-chosen", Severity.NOTE)
def fp8_backend_not_chosen(run: Run) -> Iterator[Finding]:
    section = accelerate_section(run, "fp8_config")
    if run.accelerate is None or not section or not _exported(run):
        return
    if "backend" in section or "fp8_backend" in section or "ACCELERATE_FP8_BACKEND" in run.effective.environment:
        return
    names = {str(key).removeprefix("fp8_") for key in section}
    engine = {"margin", "interval", "format", "amax_history_len", "amax_compute_algo", "override_linear_precision"}
    yield Finding(
        Location(run.accelerate, ("fp8_config",), "key"),
        "`fp8_config` names no backend: the library that happens to be installed does fp8, torchao before "
        "Transformer Engine",
        "write `backend: TE` (or AO, MSAMP)",
        fix=edited(insert_entry, run.accelerate, ("fp8_config",), "backend", "TE", why="write backend: TE", safe=False)
        if names & engine
        else None,
    )


@rule("ZC658", "compile-options-without-backend", Severity.WARNING)
def compile_options_without_backend(run: Run) -> Iterator[Finding]:
    section = accelerate_section(run, "dynamo_config")
    backend = run.effective.environment.get("ACCELERATE_DYNAMO_BACKEND")
    if run.accelerate is None or backend is None or backend.value != "NO":
        return
    if "backend" in section or "dynamo_backend" in section or "dynamo_backend" in run.flags:
        return
    asked = [str(key) for key, value in section.items() if value not in (None, False, "default")]
    if not asked:
        return
    yield Finding(
        Location(run.accelerate, ("dynamo_config", asked[0])),
        f"`{asked[0]}` has no effect: without dynamo_backend nothing is compiled",
        "write `dynamo_backend: INDUCTOR`",
        fix=edited(
            insert_entry,
            run.accelerate,
            ("dynamo_config",),
            "dynamo_backend",
            "INDUCTOR",
            why="write dynamo_backend: INDUCTOR",
            safe=False,
        ),
    )
