"""Who says which consumer reads the configs of a run."""

from __future__ import annotations

from zerocfg.run.model import Origin, Run, Told


def told_by(run: Run) -> Told | None:
    """Who says so, and where; None where nobody does.

    Strongest first: the command line, the settings by path, a spec, the training script, what launch line and recipe
    show, and last the one consumer that the settings name for configs of which no file tells.
    """
    if run.consumer is None or run.told is not None:
        return run.told
    script = run.script
    if script is not None and script.reader == run.consumer:
        return Told("script", script.shown_by)
    arguments = run.arguments
    for name, route in (("deepspeed_config", "engine"), ("deepspeed", "trainer")):
        if run.deepspeed_route == route and name in arguments:
            return Told("option", arguments[name].origin)
    if run.recipe is not None:
        return Told("recipe")
    line = run.launch
    return Told("option", Origin("flag", file=run.launch_file, span=line.span) if line is not None else None)
