"""Packages that a project admits, or that a new install of it brings, in releases with which its script cannot train.

A pair counts where the script surely uses what stops: it makes a Trainer, which imports datasets and peft where they
are installed, imports the package as soon as it is started, or reads a DeepSpeed config. Nothing counts where the
release of one of the two is open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from zerocfg.catalog.clashes import ANY, Clash, Pair, clash, clashing, limits
from zerocfg.catalog.versions import TOP, Bounds, admits, bounds, only_below, release
from zerocfg.run.model import NewInstallStop, Origin, ReleaseClash, Run
from zerocfg.run.requirements.declared import Declared
from zerocfg.run.requirements.new_install import within
from zerocfg.source.paths import is_image

_PYTHON = "python"
_OWN_ACCELERATOR = ("PPOTrainer", "PPOv2Trainer", "RLOOTrainer", "DDPOTrainer", "AlignPropTrainer")
"""Trainers of TRL of which some releases make their Accelerator otherwise than the Trainer does."""
_MAKES_ONE = "create_accelerator_and_postprocess"
"""The method of the Trainer that makes its Accelerator: nobody knows what that of a subclass does."""
_FOR_TORCH = ("torchvision", "torchaudio", "xformers", "vllm")
"""Packages each release of which takes one of torch."""
_COMMANDS = (".md", ".sh", ".bash", ".slurm", ".sbatch", ".ipynb")
_NAMED = frozenset(("datasets", "deepspeed", "peft", "torch", "trl"))
"""Packages that count where the project names them: others may come with an image, or not at all."""
Python = Callable[[Declared], "Declared | None"]


def stop_of_clash(clash: ReleaseClash) -> NewInstallStop | None:
    """What a clash that only a new install brings is for findings about what only newer releases refuse."""
    places = (*clash.places, *clash.beside_places)
    if clash.certain or not places:
        return None
    return NewInstallStop(clash.library, places[0], clash=f"{clash.library} and {clash.other}")


def release_clashes(
    run: Run, stated: Mapping[str, Declared], named: Mapping[str, Declared], python: Python
) -> tuple[ReleaseClash, ...]:
    """The clashes of what is stated, and of what a new install brings where that leaves a release open: of each package
    the one that is certain, else the first, where the script stops. ``named``: what the project names and says nothing
    about; ``python``: the Python that is set up for what states a package."""
    found = _clashes(run, {**named, **stated}, python)
    firm = (item for item in found if not any(map(_of_commands, (*item.places, *item.beside_places))))
    chosen: dict[str, ReleaseClash] = {}
    for item in firm:
        first = chosen.get(item.library)
        if (item.certain or run.script is not None) and (first is None or (item.certain and not first.certain)):
            chosen[item.library] = item
    return tuple(chosen.values())


def _of_commands(place: Origin) -> bool:
    """Whether a release is that of a command of a page, a shell script or an image: what the next command installs may
    replace it."""
    name = place.file.name.rpartition("/")[2] if place.file is not None else ""
    return name.endswith(_COMMANDS) or is_image(name)


def _clashes(run: Run, known: Mapping[str, Declared], python: Python) -> Iterator[ReleaseClash]:
    for pair in clashing():
        declared, beside = (known.get(package, _unnamed(package)) for package in pair)
        if declared is None or beside is None or not _uses(run, pair[0], known) or _held_by_others(pair, known):
            continue
        found = _newest_clash(pair, (declared, beside), known, python)
        if found is not None and _comes_to(run, found.stop.phase):
            yield ReleaseClash(
                *pair,
                found.certain,
                found.stop.phase,
                found.stop.said,
                found.needs,
                found.or_else,
                declared.clauses or "",
                beside.clauses or "",
                declared.places,
                beside.places,
            )


def _unnamed(package: str) -> Declared | None:
    """What is known of a package that the project does not name: that it is installed, if another one needs it."""
    return None if package in _NAMED else Declared("")


def _newest_clash(
    pair: Pair, declared: tuple[Declared, Declared], known: Mapping[str, Declared], python: Python
) -> Clash | None:
    admitted = [_admitted(item) for item in declared]
    if admitted[0] is None or admitted[1] is None or clash(pair, admitted[0], admitted[1]) is None:
        return None
    base = next((item for item in declared if item.places), Declared(""))
    first, second = (
        _reachable(package, among, known, lambda: python(base))
        for package, among in zip(pair, (admitted[0], admitted[1]), strict=True)
    )
    return clash(pair, first, second) if first is not None and second is not None else None


def _admitted(declared: Declared) -> Bounds | None:
    """None where nobody knows which release is installed."""
    if declared.clauses is None:
        return None
    return bounds(declared.clauses) if declared.clauses else ANY


def _reachable(
    package: str, among: Bounds, known: Mapping[str, Declared], python: Callable[[], Declared | None]
) -> Bounds | None:
    """The releases of a package that can be had with what else is stated; None where that leaves none."""
    low, high, closed = among
    if high != TOP:
        return among
    for other, found in limits().get(package, {}).items():
        stated = python() if other == _PYTHON else known.get(other)
        clauses = stated.clauses if stated is not None else None
        newest = next((newest for below, newest in found.items() if clauses and only_below(clauses, below)), None)
        if newest is not None and (release(newest), True) < (high, closed):
            high, closed = release(newest), True
    left = within(package, "", known)
    upper = bounds(left) if left else ANY
    if upper is not None and upper[1] < high:
        high, closed = upper[1], upper[2]
    return (low, high, closed) if low < high or (closed and low == high) else None


def _held_by_others(pair: Pair, known: Mapping[str, Declared]) -> bool:
    """Whether packages that are not read for their own sake decide which torch is installed."""
    return "torch" in pair and any(known[name].clauses != "" for name in _FOR_TORCH if name in known)


def _uses(run: Run, package: str, known: Mapping[str, Declared]) -> bool:
    """Whether the script surely comes to what was played of a pair with this first package."""
    if package == "deepspeed":
        return run.deepspeed is not None
    if package == "trl":
        return bool(_of_trl(run))
    if package == "transformers" or _makes_trainer(run):
        return _makes_trainer(run) and (package != "peft" or _imports(run, package) or not _older_trainer(known))
    return _imports(run, package)


def _older_trainer(known: Mapping[str, Declared]) -> bool:
    """Whether transformers may be older than 4.30, whose Trainer does not import peft. All import datasets."""
    stated = known.get("transformers")
    return stated is not None and admits(stated.clauses, below="4.30")


def _comes_to(run: Run, phase: str) -> bool:
    """Whether the script comes to what stops, which it does not where it has methods of its own for that."""
    if phase.startswith("import ") or run.script is None:
        return True
    if phase.startswith("from trl import "):
        return phase.endswith("SFTTrainer") or _of_trl(run) != {"SFTTrainer"}
    method = phase.removesuffix("()").rpartition(".")[2]
    return _makes_trainer(run) and run.script.replaced.isdisjoint((_MAKES_ONE, method))


def _of_trl(run: Run) -> set[str]:
    """The trainers of TRL that the script imports and of which it is known what stops them: GRPOTrainer what stops
    DPOTrainer, both what stops SFTTrainer."""
    imported = run.script.imported if run.script is not None else ()
    return {item.name for item in imported if item.library == "trl"} & {"SFTTrainer", "DPOTrainer", "GRPOTrainer"}


def _imports(run: Run, package: str) -> bool:
    return run.script is not None and any(item.package == package for item in run.script.imported)


def _makes_trainer(run: Run) -> bool:
    """Whether the script makes a Trainer of transformers, or one of TRL that is such a Trainer; of a script that is not
    here the options tell."""
    script = run.script
    if run.consumer not in ("transformers", "trl"):
        return False
    if script is None:
        return run.launch is not None and run.consumer == "transformers"
    made = [call for call in script.calls if call.name.endswith("Trainer")]
    ours = bool(made) and script.reader == run.consumer
    return ours and not any(call.guarded or call.name.endswith(_OWN_ACCELERATOR) for call in made)
