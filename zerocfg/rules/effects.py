"""What the effective settings of a run say, brought to the rules: places, words, and who tells which kind."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any

from zerocfg.rules.api import Finding, Fix, Intent, Location, at
from zerocfg.rules.intents import meant, written_at
from zerocfg.run.frameworks import FRAMEWORKS
from zerocfg.run.model import UNKNOWN, Failure, Ignored, Origin, Run, SourceFile
from zerocfg.run.origins import ASSUMED, describe_origin
from zerocfg.run.requirements.companions import limiting_package
from zerocfg.run.templates import is_template, opened_by_script
from zerocfg.source.edit import Edit, apply_edits, delete_entry, insert_entry, rename_key, replace_value
from zerocfg.source.load import load_as
from zerocfg.source.node import Path
from zerocfg.source.text import SourceText, Span

TRAINERS = frozenset(("transformers", "trl", *FRAMEWORKS))
"""Those under whom the Trainer reads the DeepSpeed config."""

TOLD_BY: dict[str, str] = {
    # said by the reading and catalog rules when the value stands in a file, by ZC711 when on a launch line
    "argument-type": "ZC802",
    "batch-type": "ZC104",
    "ds-batch-type": "ZC104",
    "ds-not-a-mapping": "ZC008",
    "ds-removed-key": "ZC110",
    "ds-scale-power-type": "ZC104",
    "ds-section-type": "ZC108",
    "dead-sub-key": "ZC103",
    "distributed-type": "ZC106",
    "dynamo-backend": "ZC106",
    "dynamo-mode-type": "ZC104",
    "fp8-override-type": "ZC104",
    "gpu-ids-type": "ZC104",
    "gradient-clipping-type": "ZC104",
    "machine-rank-type": "ZC104",
    "main-process-ip-type": "ZC104",
    "main-process-port-type": "ZC104",
    "mixed-precision": "ZC106",
    "mixed-precision-type": "ZC006",
    "not-a-mapping": "ZC008",
    "num-machines-type": "ZC104",
    "num-processes-type": "ZC104",
    "parallelism-type": "ZC104",
    "sagemaker": "ZC716",
    "section-type": "ZC108",
    "unknown-top-key": "ZC101",
    "newer-top-key": "ZC865",
    "use-cpu-type": "ZC104",
    "zero-stage-type": "ZC104",
    "zero3-init-flag-type": "ZC104",
    # batch, accumulation, what the Trainer and the engine disagree about
    "trainer-mismatch": "ZC201",  # split by key into ZC201, ZC202 and ZC302
    "ds-batch-mismatch": "ZC203",
    "ds-batch-zero": "ZC204",
    "ds-batch-missing": "ZC205",
    "gas-not-int": "ZC207",
    # precision
    "ds-fp16-and-bf16": "ZC301",
    "fp16-and-bf16": "ZC301",
    "ds-precision-conflict": "ZC303",
    "ds-master-weights-stage": "ZC306",
    "ds-bf16-states": "ZC306",
    "msamp-zero3": "ZC307",
    "fp8-ignored": "ZC712",
    # ZeRO
    "auto-unfilled": "ZC406",
    "hidden-size-missing": "ZC407",
    "ds-allreduce-sum": "ZC409",
    "ds-zero-missing": "ZC411",
    "save-only-model-best": "ZC412",
    "auto-find-batch-size-zero3": "ZC412",
    # offload
    "nvme-path-dead": "ZC506",
    "offload-optimizer-null": "ZC511",
    # FSDP and engines
    "fsdp-ram-sync": "ZC601",
    "section-not-used": "ZC604",
    # launch
    "num-processes-missing": "ZC701",
    "ds-conflict-fields": "ZC702",
    "main-process-missing": "ZC705",
    "use-cpu-ignored": "ZC706",
    "ds-file-beaten": "ZC707",
    "dead-top-key": "ZC708",
    "gpu-ids-count": "ZC710",
    "flag-unknown": "ZC711",
    "flag-type": "ZC711",
    "flag-choice": "ZC711",
    "flags-exclusive": "ZC711",
    "multi-gpu-processes": "ZC711",
    "parallelism-without-fsdp2": "ZC711",
    "dynamo-ignored": "ZC712",
    "flag-wins": "ZC713",
    "distributed-type-missing": "ZC714",
}
"""Every kind of failure and of ignored value that :mod:`zerocfg.run` can predict, and the one rule that tells it."""


def failures(run: Run, *codes: str) -> Iterator[Failure]:
    """The predicted failures that the rule of one of these codes tells."""
    return (failure for failure in run.effective.failures if TOLD_BY.get(failure.kind) in codes)


def ignored(run: Run, code: str) -> Iterator[Ignored]:
    return (item for item in run.effective.ignored if TOLD_BY.get(item.kind) == code)


def anchor(run: Run, origins: Iterable[Origin], where: str = "entry") -> tuple[Location, list[Location]]:
    """The first of the origins that is a place, and the other places; without any, the file nearest to the engine."""
    found: list[Location] = []
    for origin in origins:
        location = at(origin, "" if not found else "the other value", where)
        if location is not None and location not in found:
            found.append(location)
    if found:
        return found[0], found[1:]
    for file in (run.deepspeed, run.accelerate, run.recipe, run.launch_file, run.spec):
        if file is not None:
            return Location(file), []
    if run.script is not None:
        return Location(run.script.file), []
    raise ValueError("a run without files")


def words(origin: Origin) -> str:
    """An origin as a message says it: ``in ds.json``, ``by --zero_stage in train.sh``, ``the default of ...``."""
    if origin.kind == "file" and origin.file is not None:
        return f"in {origin.file.name}"
    if origin.kind in ("flag", "environment"):
        where = f" in {origin.file.name}" if origin.file is not None else ""
        return f"by `{origin.note}`{where}" if origin.note else f"on the launch line{where}"
    if origin.kind == "default":
        return f"the {describe_origin(origin)}" if origin.note[-1:].isdigit() else f"by default: {origin.note}"
    return describe_origin(origin)


def effective(run: Run, name: str) -> Any:
    """The effective value of a dotted name: None where nothing says anything, UNKNOWN where nobody can know."""
    return run.effective.value(name)


def admitted(run: Run, library: str) -> str:
    """The versions of a library that the project admits, as a message says it: ``requirements.txt:3 admits >=0.17``.
    Where the settings or the spec say so there is no place; a build assumes the newest where nothing does."""
    text = run.versions.get(library, "")
    stated = run.version_places.get(library, ())
    if not stated:
        return f"declared: {text}"
    if stated == ASSUMED:
        return f"no release is declared; {text} is the newest known"
    places = [_stated_at(place, library) for place in stated]
    if len(places) > 2:
        places = [*places[:2], f"{len(places) - 2} more"]
    return f"{' and '.join(places)} admit{'s' * (len(places) == 1)} {text}"


def _stated_at(place: Origin, library: str) -> str:
    """Where it stands; with the name of another package that holds the library back, or of Python."""
    if place.file is None or place.span is None:
        return describe_origin(place)
    where = f"{place.file.name}:{place.file.source.place(place.span.start).line}"
    package = limiting_package(place, library)
    return f"{package} ({where})" if package else where


def admitting(run: Run, library: str) -> list[Location]:
    """The places that state those versions, as related places of a finding."""
    found = (at(place, "the versions that the project admits") for place in run.version_places.get(library, ()))
    return [location for location in found if location is not None]


def under_deepspeed_launcher(run: Run) -> bool:
    """Whether accelerate's launcher starts the job for DeepSpeed (the training arguments may still choose it)."""
    return "ACCELERATE_USE_DEEPSPEED" in run.effective.environment


def stage_of(run: Run) -> int | None:
    """The ZeRO stage as the engine reads it, None when it is not known.

    An "auto" whose filler is unknown counts as unknown.
    """
    value = effective(run, "zero_optimization.stage")
    if isinstance(value, str) and value.strip().isdigit():
        return int(value)
    return int(value) if isinstance(value, (int, float)) and value in (0, 1, 2, 3) else None


def fits_at(run: Run, stage: int) -> bool:
    """Whether a stage with nothing offloaded leaves plenty of room: its states and buffers take less than half of an
    accelerator, and where the activations of the run are known too, the most that is predicted is less than all."""
    room, memory = run.hardware.memory_gib if run.hardware else None, run.memory
    if room is None or memory is None or memory.states_gib.get(stage, room) > room / 2:
        return False
    peak = memory.stage_peaks_gib.get(stage)
    return peak is None or peak[1] <= room


def gathers(run: Run) -> int:
    """How often ZeRO-3 gathers a parameter for a micro batch: once where it stays from forward to backward pass."""
    reach = effective(run, "zero_optimization.stage3_max_reuse_distance")
    reach = reach if isinstance(reach, int) else 1_000_000_000
    return 1 if run.model and run.model.parameters and run.model.parameters <= reach else 2


def section(run: Run, *path: str) -> dict[str, Any]:
    """A mapping of the DeepSpeed config as written; empty when it is absent or no mapping."""
    value: object = deepspeed_data(run)
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def tuned(run: Run) -> bool:
    """Whether the config is what `deepspeed --autotuning` starts from: it adds what a training needs besides."""
    return section(run, "autotuning").get("enabled") is True and ("autotuning" in run.flags or run.consumer is None)


def changed_before(run: Run) -> bool:
    """Whether something completes the DeepSpeed config before a library reads it: whoever fills in a template that
    nobody starts a job with, or the script, which opens the file by itself."""
    if run.deepspeed is None:
        return False
    if run.launch is None and run.consumer is None and is_template(run.deepspeed):
        return True
    return opened_by_script(run)


@lru_cache(maxsize=64)
def _data(file: SourceFile) -> object:
    """Built once, although most rules ask for it. Nobody changes it."""
    return file.data()


def deepspeed_data(run: Run) -> dict[str, Any]:
    data = _data(run.deepspeed) if run.deepspeed else None
    return data if isinstance(data, dict) else {}


def accelerate_data(run: Run) -> dict[str, object]:
    """The accelerate config as written, when the launcher reads it as a config of a local machine."""
    data = _data(run.accelerate) if run.accelerate else None
    if not isinstance(data, dict) or data.get("compute_environment", "LOCAL_MACHINE") != "LOCAL_MACHINE":
        return {}
    return data


def recipe_data(run: Run) -> dict[str, Any]:
    data = _data(run.recipe) if run.recipe else None
    return data if isinstance(data, dict) else {}


def accelerate_section(run: Run, name: str = "deepspeed_config") -> dict[str, object]:
    value = accelerate_data(run).get(name)
    return value if isinstance(value, dict) else {}


def edited(
    edit: Callable[..., list[Edit]],
    file: SourceFile | None,
    path: Path,
    *values: str,
    why: str,
    safe: bool = True,
    after: str | None = None,
) -> Fix | None:
    """A fix by one of the edits of `zerocfg.source.edit`; None where the file leaves no room for it."""
    if file is None or file.document is None:
        return None
    try:
        edits = edit(file.document, path, *values, **({"after": after} if after else {}))
    except ValueError:
        return None
    return Fix(why, tuple((file, one) for one in edits), safe, meant(edit, file, path, values))


def together(why: str, *fixes: Fix | None, safe: bool = True) -> Fix | None:
    """One fix out of several; None as soon as one of them is not possible."""
    parts = [fix for fix in fixes if fix is not None]
    if not parts or len(parts) < len(fixes):
        return None
    edits = tuple(edit for fix in parts for edit in fix.edits)
    return Fix(why, edits, safe, tuple(intent for fix in parts for intent in fix.gives))


def rewritten(file: SourceFile | None, path: Path, new: str, text: str, *, why: str, safe: bool = True) -> Fix | None:
    """A fix that gives an entry another name and another value."""
    if file is None or file.document is None:
        return None
    try:
        edits = rename_key(file.document, path, new) + replace_value(file.document, path, text)
    except ValueError:
        return None
    return Fix(why, tuple((file, edit) for edit in edits), safe, written_at(file, (*path[:-1], new), text))


def giving(fix: Fix | None, name: str, value: object) -> Fix | None:
    """The fix, to be kept only where it gives the setting this value; one that nobody knows demands nothing."""
    return fix if fix is None or value is UNKNOWN else replace(fix, gives=(*fix.gives, Intent(name, value)))


def put(file: SourceFile | None, path: Path, text: str, *, why: str, safe: bool = False) -> Fix | None:
    """A fix that gives a key a value, whether the key is there or not; the mapping around it has to be."""
    if present(file, path):
        return edited(replace_value, file, path, text, why=why, safe=safe)
    return edited(insert_entry, file, path[:-1], str(path[-1]), text, why=why, safe=safe)


def without(file: SourceFile | None, paths: Iterable[Path], why: str, *, safe: bool = True) -> Fix | None:
    """A fix that removes several keys at once. Their commas meet, so each is taken out of what the others leave."""
    if file is None or file.document is None:
        return None
    text = before = file.source.text
    for path in paths:
        document = load_as(SourceText(file.source.name, text), file.document.format)
        try:
            text = apply_edits(text, delete_entry(document, path))
        except ValueError:
            return None
    start = _alike(before, text)
    end = _alike(before[start:][::-1], text[start:][::-1])
    edit = Edit(Span(start, len(before) - end), text[start : len(text) - end])
    return Fix(why, ((file, edit),), safe)


def _alike(one: str, other: str) -> int:
    """How many characters two texts begin with in common."""
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))


def replace_at(origin: Origin, text: str, why: str, *, safe: bool = True) -> Fix | None:
    """Another plain value where an origin points into a file; ``text`` as it stands there."""
    if origin.kind != "file":
        return None
    return edited(replace_value, origin.file, origin.path, text, why=why, safe=safe)


def present(file: SourceFile | None, path: Path) -> bool:
    return file is not None and file.document is not None and file.document.get(path) is not None


def told(run: Run, failure: Failure, help_text: str = "", where: str = "entry") -> Finding:
    """A failure in its own words, at its first place."""
    location, related = anchor(run, failure.places, where)
    return Finding(location, failure.message, help_text, related)
