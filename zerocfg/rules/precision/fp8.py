"""ZC34x: fp8 and compiling, as the accelerate config asks for them."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.values import show
from zerocfg.rules.api import WHOLE_RUN, Finding, Severity, rule
from zerocfg.rules.fsdp.plugin import efficient_loading, on
from zerocfg.rules.key import Key, accelerate
from zerocfg.rules.subjects import given_by, in_accelerate
from zerocfg.run.model import Run

_DEAD = {
    "amax_history_length": "amax_history_len",
    "amax_compute_algorithm": "amax_compute_algo",
    "optimization_level": "opt_level",
}


def _backend(run: Run) -> str | None:
    """The backend that the launcher exports, in capitals; None where it exports none or nobody knows."""
    setting = run.effective.environment.get("ACCELERATE_FP8_BACKEND")
    return setting.value.upper() if setting is not None and isinstance(setting.value, str) else None


def _exported(run: Run) -> Key | None:
    """The section of fp8, where the launcher exports it."""
    section = accelerate(run, "fp8_config")
    return section if section.section and "ACCELERATE_FP8_FORMAT" in run.effective.environment else None


@rule("ZC340", "fp8-names-of-the-questionnaire", Severity.ERROR, given_by(_exported))
def fp8_names_of_the_questionnaire(section: Key) -> Iterator[Finding]:
    for dead, alive in _DEAD.items():
        for prefix in ("", "fp8_"):
            key, new = section[prefix + dead], prefix + alive
            if not key:
                continue
            both = alive in section or f"fp8_{alive}" in section
            yield key.finding(
                f"`{key.name}` is read by nobody (accelerate's own questionnaire writes it): {show(key.value)} is lost",
                f"write `{new}`",
                fix=None if both else key.rename(new, f"write {new}"),
            )


@rule("ZC341", "fp8-torchao-and-efficient-loading", Severity.ERROR, WHOLE_RUN)
def fp8_torchao_and_efficient_loading(run: Run) -> Iterator[Finding]:
    efficient, section = run.effective.environment.get("FSDP_CPU_RAM_EFFICIENT_LOADING"), accelerate(run, "fp8_config")
    if _backend(run) != "AO" or efficient is None or not on(efficient.value):
        return
    key = next((section[name] for name in ("backend", "fp8_backend") if name in section), None)
    if key is None:
        return
    why, loading = "write fsdp_cpu_ram_efficient_loading: false", efficient_loading(run)
    yield key.finding(
        "torchao cannot do fp8 with fsdp_cpu_ram_efficient_loading (on by default): every process stops",
        why,
        [loading] if loading else [],
        loading.set("false", why, safe=False),
    )


@rule("ZC342", "fp8-backend-not-chosen", Severity.NOTE, given_by(_exported))
def fp8_backend_not_chosen(section: Key) -> Iterator[Finding]:
    if (
        "backend" in section
        or "fp8_backend" in section
        or "ACCELERATE_FP8_BACKEND" in section.run.effective.environment
    ):
        return
    names = {key.name.removeprefix("fp8_") for key in section}
    engine = {"margin", "interval", "format", "amax_history_len", "amax_compute_algo", "override_linear_precision"}
    yield section.finding(
        "`fp8_config` names no backend: the library that happens to be installed does fp8, torchao before "
        "Transformer Engine",
        "write `backend: TE` (or AO, MSAMP)",
        fix=section["backend"].set("TE", "write backend: TE", safe=False) if names & engine else None,
        where="key",
    )


@rule("ZC658", "compile-options-without-backend", Severity.WARNING, in_accelerate("dynamo_config"))
def compile_options_without_backend(section: Key) -> Iterator[Finding]:
    backend = section.run.effective.environment.get("ACCELERATE_DYNAMO_BACKEND")
    if backend is None or backend.value != "NO":
        return
    if "backend" in section or "dynamo_backend" in section or "dynamo_backend" in section.run.flags:
        return
    key = next((key for key in section if key.value not in (None, False, "default")), None)
    if key is not None:
        yield key.finding(
            f"`{key.name}` has no effect: without dynamo_backend nothing is compiled",
            "write `dynamo_backend: INDUCTOR`",
            fix=section["dynamo_backend"].set("INDUCTOR", "write dynamo_backend: INDUCTOR", safe=False),
        )
