"""Who says which consumer reads the configs of a run."""

from __future__ import annotations

from zerocfg.run.model import Origin, Run, Told


def told_by(run: Run) -> Told | None:
    """Who says so, and where; None where nobody does. A script may show a framework that is no consumer at all.

    Strongest first: the command line, the settings by path, a spec, the training script, what launch line and recipe
    show, and last the one consumer that the settings name for configs of which no file tells.
    """
    script = run.script
    if run.told is not None:
        return run.told
    if script is not None and (script.foreign if run.consumer is None else script.reader == run.consumer):
        return Told("script", script.shown_by)
    if run.consumer is None:
        return None
    arguments = run.arguments
    for name, route in (("deepspeed_config", "engine"), ("deepspeed", "trainer")):
        if run.deepspeed_route == route and name in arguments:
            return Told("option", arguments[name].origin)
    if run.recipe is not None:
        return Told("recipe")
    line = run.launch
    return Told("option", Origin("flag", file=run.launch_file, span=line.span) if line is not None else None)
