"""What a script gives `Accelerator()`, and where that beats the launcher's variables or is beaten by them.

Follows accelerate/accelerator.py 1.15.0: ACCELERATE_GRADIENT_ACCUMULATION_STEPS wins over the argument, the argument
`mixed_precision` over ACCELERATE_MIXED_PRECISION, and a plugin of the script's own replaces the launcher's.
"""

from __future__ import annotations

from zerocfg.record import replace
from zerocfg.run.model import UNKNOWN, Call, FromLine, Origin, Run, Setting
from zerocfg.run.script.arguments import call_of, resolve_option

IN_SCRIPT = Origin("computed", "the script decides")
_PLUGINS = ("deepspeed_plugin", "deepspeed_plugins")


def accumulation(run: Run) -> Setting:
    """The argument `gradient_accumulation_steps`; UNKNOWN where no script sets it, or its plugin counts the steps."""
    call = _call(run)
    if call is None or "gradient_accumulation_plugin" in call.arguments:
        return Setting(UNKNOWN, IN_SCRIPT)
    found = _argument(run, call, "gradient_accumulation_steps", 1)
    try:
        return replace(found, value=int(found.value)) if found.known else found
    except (TypeError, ValueError, OverflowError):
        return Setting(UNKNOWN, found.origin)


def is_open_option(run: Run, name: str) -> bool:
    """Whether an argument is an option of the script's own parser that the launch line does not give."""
    call = _call(run)
    given = call.arguments.get(name) if call is not None else None
    return given is not None and isinstance(given.value, FromLine) and given.value.option not in run.arguments


def makes_accelerator(run: Run) -> bool:
    """Whether the script is known to make an `Accelerator`."""
    return run.script is not None and any(call.name == "accelerate.Accelerator" for call in run.script.calls)


def precision(run: Run, exported: Setting | None) -> Setting:
    """What becomes of `mixed_precision`: the argument, else the launcher's variable (``exported``), else UNKNOWN."""
    calls = run.script.calls if run.script is not None else ()
    every = [_argument(run, call, "mixed_precision", None) for call in calls if call.name == "accelerate.Accelerator"]
    asked = every[0] if every else None
    if any(item.value != every[0].value for item in every):
        asked = Setting(UNKNOWN, IN_SCRIPT)  # which of several it is, only running them shows
    if asked is not None and asked.value is not None:
        return asked if exported is None else replace(asked, overridden=(exported,))
    return exported or Setting(UNKNOWN, IN_SCRIPT)


def own_plugin(run: Run) -> bool:
    """Whether the script brings a DeepSpeed plugin of its own, so that the launcher's variables are not read."""
    call = _call(run)
    given = [call.arguments[name] for name in _PLUGINS if name in call.arguments] if call is not None else []
    return any(setting.value is not None for setting in given)


def _call(run: Run) -> Call | None:
    return call_of(run.script, "accelerate.Accelerator")


def _argument(run: Run, call: Call, name: str, default: object) -> Setting:
    given = call.arguments.get(name)
    if given is None:
        return Setting(default if call.complete else UNKNOWN, IN_SCRIPT)
    return resolve_option(given, run.arguments)
