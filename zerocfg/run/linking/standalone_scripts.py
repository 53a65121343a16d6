"""Scripts that no launch line starts, and configs that a script writes out in parts.

How such a script is started is unknown, so only its own text counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from zerocfg.run.discover import launches
from zerocfg.run.linking.follow import Paths
from zerocfg.run.linking.script_runs import open_script, with_code, with_config_of
from zerocfg.run.model import Run, Script, SourceFile, files_of, original
from zerocfg.run.script.reading import is_stated


def standalone_runs(paths: Paths, known: Sequence[SourceFile], runs: Sequence[Run]) -> list[Run]:
    """The runs of scripts that no line starts, and those of the configs that any script writes out in parts."""
    started = {paths.files.real(run.entry_point) for run in runs if run.entry_point is not None}
    found = []
    for file in known:
        if file.kind == "script" and file.path is not None and paths.files.real(file.path) not in started:
            script = open_script(paths, file.path)
            run = standalone_run(script) if script is not None else None
            if script is not None and run is not None:
                bases = paths.around(file)
                # Started from where it lies or from further up: what lies nearer was written for it.
                nearest_first = [*bases[1:], bases[0]]
                run = with_config_of(_with_cells(paths, file), with_code(paths, run), script, {}, nearest_first)
                # who trains with it is not shown, so only what its keys say by themselves holds
                found.append(replace(run, parts=run.deepspeed is not None and run.consumer is None))
    return [*found, *partial_config_runs([*runs, *found])]


def _with_cells(paths: Paths, file: SourceFile) -> Paths:
    """The paths after the files that cells of a notebook write."""
    if not file.name.endswith(".ipynb") or not (written := launches(file).written):
        return paths
    from zerocfg.run.linking.heredocs import heredoc_finder

    return paths.after(heredoc_finder(file, written, None))


def without_read_configs(runs: Sequence[Run], standalone: Sequence[Run]) -> list[Run]:
    """The runs without those of a DeepSpeed config by itself that a standalone script with a known reader reads."""
    read = {
        id(original(run.deepspeed))
        for run in standalone
        if run.deepspeed is not None and run.consumer is not None and not run.parts
    }
    return [
        run
        for run in runs
        if not (_is_deepspeed_alone(run) and run.deepspeed is not None and id(original(run.deepspeed)) in read)
    ]


def _is_deepspeed_alone(run: Run) -> bool:
    return run.launch is None and run.spec is None and run.script is None and list(files_of(run)) == [run.deepspeed]


def standalone_run(script: Script) -> Run | None:
    """The run of a script; None where its own text states nothing that could be judged."""
    own = any(call.file is script.file and is_stated(call.name) and call.arguments for call in script.calls)
    own = own or any(item.origin.file is script.file for item in script.late_deepspeed)
    if not own and not (_reads(script) and any(part.reread_of is script.file for part in script.parts)):
        return None
    return Run(script.file.name, script.reader, script=script, entry_point=script.file.path)


def partial_config_runs(runs: Iterable[Run]) -> Iterator[Run]:
    """One run for each config of which only parts are known, or that is one of several; each config once."""
    known: dict[tuple[int, int], Run] = {}
    whole = set()
    for run in runs:
        if run.deepspeed is not None:
            whole.add(_place(run.deepspeed))
        for part in run.script.parts if run.script is not None and _reads(run.script) else ():
            known.setdefault(_place(part), Run(run.name, script=run.script, deepspeed=part, parts=True))
    return (run for place, run in known.items() if place not in whole)


def _reads(script: Script) -> bool:
    """Whether something that the script calls may take a DeepSpeed config."""
    return any(is_stated(call.name) for call in script.calls)


def _place(file: SourceFile) -> tuple[int, int]:
    """Identifies a dict of a file."""
    root = file.document.root if file.document is not None else None
    return id(file.reread_of or file), root.span.start if root is not None else 0
