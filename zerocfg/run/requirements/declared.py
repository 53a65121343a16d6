"""The releases of the training libraries that a project's files state; installed packages are never consulted.

In a folder a lock file wins; otherwise everything that an installation always takes (pyproject.toml, setup.py,
setup.cfg, requirements.txt, environment.yml, Pipfile) holds together. Extras, groups, other requirement files,
Dockerfiles and scripts that install are alternatives: they count where nothing firm names the library. READMEs count
where no folder states a release. What cannot hold together is taken as a choice: any release from the lowest to the
highest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from zerocfg.budgets import SETUP_BYTES
from zerocfg.catalog.versions import both, either
from zerocfg.frontends.registry import OWN_PACKAGES
from zerocfg.patterns import pattern
from zerocfg.record import record, replace
from zerocfg.run.discover import display_name
from zerocfg.run.model import Origin, SourceFile
from zerocfg.run.remembered import remembered
from zerocfg.run.requirements.deciders import DECIDERS, decider
from zerocfg.source import disk
from zerocfg.source.load import decode, load_as, read_bytes
from zerocfg.source.node import Problem
from zerocfg.source.paths import entries, is_image, names

if TYPE_CHECKING:
    from zerocfg.source.requirements.pip import Requirement

    Items = list[tuple[Requirement, SourceFile]]
    Read = tuple[list[Requirement], list[str]]

LIBRARIES = ("deepspeed", "accelerate", "transformers", "trl", "torch")
_WITH_TORCH = "transformers[torch]"
_BESIDE = frozenset(
    "tokenizers huggingface-hub datasets diffusers evaluate peft pyarrow torchvision torchaudio xformers "
    f"{_WITH_TORCH}".split()
)
"""Packages that the libraries need, that scripts import beside them or that decide which torch is installed, and
transformers with an extra that needs another: they tell where an installation always takes them, and nowhere else."""
LIGER = "liger-kernel"
"""A package that a Trainer uses where it is told to; that a project names it is enough, in whatever release."""
WANTED = frozenset((*LIBRARIES, *_BESIDE, LIGER, *OWN_PACKAGES))
_NAMED_IS_ENOUGH = DECIDERS | {LIGER}
HELD_BACK = frozenset(("transformers", "accelerate", "trl", _WITH_TORCH))
"""Libraries that may be named without a release and are held back all the same, by a package or a Python beside them:
`companions`. They keep an empty declaration with its places."""
_BARE = HELD_BACK | {"datasets", "peft", "torch"}
"""Those, and packages of which a new install may bring a release that does not go with another one: `clashes`."""
_ALIASES = {"pytorch": "torch"}
_LOCKS = ("uv.lock", "poetry.lock", "pdm.lock", "pylock.toml", "Pipfile.lock", "conda-lock.yml")
_FIRM = frozenset(
    "pyproject.toml setup.py setup.cfg requirements.txt requirement.txt environment.yml environment.yaml "
    "Pipfile".split()
)
_IMAGES = frozenset(("docker", "dockerfile", "dockerfiles"))
"""Folders of Dockerfiles, beside what they install."""


@record(frozen=True, slots=True)
class Declared:
    """Clauses of PEP 440 and their places. ``clauses`` None: the release is undeterminable; "": any release."""

    clauses: str | None
    places: tuple[Origin, ...] = ()


class Projects:
    """The folders of one repository, each read once."""

    def __init__(self) -> None:
        self._folders: dict[Path, dict[str, Declared]] = {}
        self._pages: dict[Path, dict[str, Declared]] = {}
        self._nearest: dict[Path, dict[str, Declared]] = {}
        self.pythons: dict[Path, Declared | None] = {}
        """The Python that each folder requires; filled lazily by `requirements.python`."""
        self._folder_of: dict[Path, Path] = {}

    def nearest(self, folder: Path) -> dict[str, Declared]:
        """By library: the requirement of the nearest folder that states one, from this one upwards. Where none states
        a release, that of the nearest README."""
        if folder not in self._nearest:
            found: dict[str, Declared] = {}
            bare: dict[str, Declared] = {}
            shown: dict[str, Declared] = {}
            for above in upwards(folder):
                if above not in self._folders:
                    self._folders[above] = _of_folder(above)
                    self._pages[above] = _of_pages(above)
                for name, declared in self._folders[above].items():
                    (bare if is_bare(name, declared) else found).setdefault(name, declared)
                for name, declared in self._pages[above].items():
                    shown.setdefault(name, declared)
            self._nearest[folder] = {**bare, **shown, **found}
        return self._nearest[folder]

    def folder_of(self, path: Path | None) -> Path | None:
        """The real folder that a file lies in; None without a path."""
        if path is None:
            return None
        folder = self._folder_of.get(path)
        if folder is None:
            folder = self._folder_of[path] = Path(disk.real(path)).parent
        return folder


def is_bare(name: str, declared: Declared) -> bool:
    """Whether a library whose release a new install decides is named and nothing is said about it."""
    return declared.clauses == "" and name in _BARE


def upwards(folder: Path) -> Iterator[Path]:
    """From a folder to the root of its repository; outside of one, to the current folder, else no further."""
    chain = [folder, *folder.parents]
    top = next((above for above in chain if disk.exists(above / ".git")), None)
    if top is None:
        here = Path.cwd()
        top = here if here in chain and here != Path.home() else folder
    yield from chain[: chain.index(top) + 1]


def all_of(stated: Iterable[Declared]) -> Declared:
    """Statements that all hold; a choice between them where they cannot."""
    every = list(dict.fromkeys(stated))
    if any(item.clauses is None for item in every):
        return Declared(None, _places(item for item in every if item.clauses is None))
    limited = [item for item in every if item.clauses]
    clauses = both(item.clauses or "" for item in limited)
    return any_of(limited) if clauses is None else Declared(clauses, _places(limited))


def any_of(stated: Iterable[Declared]) -> Declared:
    """Statements of which one holds."""
    every = list(dict.fromkeys(stated))
    if any(item.clauses is None for item in every):
        return Declared(None, _places(item for item in every if item.clauses is None))
    return Declared(either(item.clauses or "" for item in every), _places(every))


def _places(stated: Iterable[Declared]) -> tuple[Origin, ...]:
    return tuple(dict.fromkeys(place for item in stated for place in item.places))


def _of_folder(folder: Path) -> dict[str, Declared]:
    stated: dict[str, list[Items]] = {"lock": [], "firm": [], "loose": [], "image": []}
    for name in names(folder):
        for kind, path in _files(folder, name):
            items = list(_read(path, "", set()))
            if items or kind == "image":
                stated[kind].append(items)
    found = {}
    for name in dict.fromkeys(item.name for read in stated.values() for items in read for item, _ in items):
        declared = _verdict(name, stated)
        if declared is not None and is_bare(name, declared):
            found[name] = Declared("", _places_of_bare(name, stated["firm"]))
        elif declared is not None and (declared.clauses != "" or name in _NAMED_IS_ENOUGH):
            found[name] = declared
    return found


def _of_pages(folder: Path) -> dict[str, Declared]:
    """What the READMEs of a folder tell their readers to install. Several releases are alternatives."""
    stated: dict[str, list[Declared]] = {}
    for name in names(folder):
        file = read_text(disk.real(folder / name)) if PAGE.fullmatch(name.lower()) else None
        if file is not None:
            for item in _pinned_on_page(file):
                stated.setdefault(item.name, []).append(one_of(item, file))
    return {name: any_of(every) for name, every in stated.items()}


@remembered
def _pinned_on_page(file: SourceFile) -> list[Requirement]:
    """The requirements of a page that say something about a release."""
    text = file.source.text
    if len(text) > SETUP_BYTES or not any(name in text for name in LIBRARIES):
        return []
    from zerocfg.source.requirements.pages import read_page

    named = [replace(item, name=_ALIASES.get(item.name, item.name)) for item in read_page(file.source)]
    return [item for item in named if item.name in WANTED - _BESIDE and item.versions != ""]


def _places_of_bare(name: str, firm: list[Items]) -> tuple[Origin, ...]:
    return tuple(
        Origin("file", item.name, file, span=item.span)
        for items in firm
        for item, file in items
        if _speaks(item, name, False) and item.versions == ""
    )


def _files(folder: Path, name: str) -> Iterator[tuple[str, Path]]:
    """The files that an entry of a folder stands for, each with what it counts as."""
    if name in _LOCKS:
        yield "lock", folder / name
    elif name in _FIRM:
        yield "firm", folder / name
    elif name == "requirements":
        yield from (("loose", inner) for inner in entries(folder / name) if inner.name.endswith(".txt"))
    elif name in _IMAGES and disk.is_dir(folder / name):
        yield from (("image", inner) for inner in entries(folder / name) if is_image(inner.name))
    elif is_image(name):
        yield "image", folder / name
    elif name.endswith((".txt", ".yml", ".yaml")):
        if name == COG or _LOOSE.fullmatch(name) or _OF_CONDA.fullmatch(name):
            yield "loose", folder / name
    elif (name.endswith((".sh", ".bash")) or "." not in name) and SETTING_UP.fullmatch(name):
        yield "loose", folder / name


LOOSE = r"(?:.*[-_])?requirements?(?:[-_.].*)?\.txt"
"""Names of requirements files."""
_LOOSE = pattern(LOOSE)
COG = "cog.yaml"
"""From which Cog builds the image of a model."""
OF_CONDA = r"(?:.*[-_.])?(?:conda[-_]?)?env(?:ironment)?s?(?:[-_.].*)?\.ya?ml"
"""Names of files from which conda makes an environment, besides `environment.yml`."""
_OF_CONDA = pattern(OF_CONDA)
_SETUP = r"(?:install|setup|env)"
SETTING_UP = pattern(rf"(?:.*[-_])?{_SETUP}(?:[-_].*)?\.(?:ba)?sh|(?:[^.]*[-_])?{_SETUP}(?:[-_][^.]*)?")
"""Scripts that set up an environment. One without a suffix is a shell script if its first line says so: `for_shell`."""
PAGE = pattern(r"readme\b.*\.md|install(?:ation)?\.md")
"""Pages that tell their readers what to install, in lower case."""
_SHEBANG = pattern(r"#![^\n]*\b(?:ba|z|da|k)?sh\b")


def for_shell(name: str, text: str) -> bool:
    """Whether a shell runs a script: by its suffix, or by the first line of one that has none."""
    return "." in name or _SHEBANG.match(text) is not None


def _verdict(name: str, stated: dict[str, list[Items]]) -> Declared | None:
    """The combined requirement of a folder's files for a library; None where they do not name it."""

    def of(kind: str, *, optional: bool = False) -> list[Declared]:
        parts = ([pair for pair in items if _speaks(pair[0], name, optional)] for items in stated[kind])
        return [_of_file(items) for items in parts if items]

    own = [pair for items in stated["firm"] for pair in items if pair[0].own and pair[0].name == name]
    if own:  # the project is a copy of the library
        known = [pair for pair in own if pair[0].versions is not None] or own
        return one_of(*known[0])
    locked = [
        one_of(*pair) for items in stated["lock"] for pair in items if pair[0].name == name and not _nowhere(pair[0])
    ]
    if locked:
        return any_of(locked)
    firm = of("firm")
    if firm or name in _BESIDE:
        return all_of(firm) if firm else None
    images = of("image")
    loose = [*of("firm", optional=True), *of("loose"), *(images if len(images) == len(stated["image"]) else ())]
    return any_of(loose) if loose else None


def _speaks(item: Requirement, name: str, optional: bool) -> bool:
    return item.name == name and item.optional is optional and not item.own and not _nowhere(item)


def _nowhere(item: Requirement) -> bool:
    """Whether its marker leaves it out wherever trainings run."""
    if not item.marker:
        return False
    from zerocfg.source.requirements.markers import environments_where

    return not environments_where(item.marker)


def _of_file(items: Items) -> Declared:
    """One file's requirement for a library. Extras are alternatives; markers decide which lines hold together."""
    if items[0][0].optional:
        return any_of(one_of(*pair) for pair in items)
    if not any(item.marker for item, _ in items):
        return all_of(one_of(*pair) for pair in items)
    from zerocfg.source.requirements.markers import ENVIRONMENTS, environments_where

    chosen = {
        tuple(at for at, (item, _) in enumerate(items) if not item.marker or place in environments_where(item.marker))
        for place in ENVIRONMENTS
    }
    return any_of(all_of(one_of(*items[at]) for at in group) for group in sorted(chosen) if group)


def one_of(item: Requirement, file: SourceFile) -> Declared:
    place = Origin("file", item.name, file, span=item.span)
    return Declared(item.versions, (place,) if item.versions != "" else ())


def _read(path: Path, included: str, seen: set[str]) -> Iterator[tuple[Requirement, SourceFile]]:
    """The requirements of a file and of those that it takes in. ``included``: what took it in."""
    real = disk.real(path)
    if real in seen:
        return
    seen.add(real)
    file = read_text(real)
    if file is None:
        return
    items, includes = read_requirements_of(file, "requirements.txt" if included else path.name)
    for item in items:
        yield item, file
    for include in includes:
        if "://" not in include:
            yield from _read(path.parent / include, path.name, seen)


def read_text(real: str) -> SourceFile | None:
    """A file, the same whatever took it in; None where it cannot be read."""
    # It is read each time, so that whoever notes what is asked of the disk notes it; what is kept is the text.
    data = read_bytes(Path(real))
    return None if isinstance(data, Problem) else _text(real, data)


@lru_cache(maxsize=256)
def _text(real: str, data: bytes) -> SourceFile | None:
    path = Path(real)
    source = decode(display_name(path), data)
    return None if isinstance(source, Problem) else SourceFile(source.name, "other", source, None, path)


@remembered
def read_requirements_of(file: SourceFile, name: str) -> tuple[list[Requirement], list[str]]:
    """A file's requirements, in the format that its name implies, and the files that it includes."""
    items, includes = form_of(name)(file)
    found = []
    for item in items:
        named = _ALIASES.get(item.name, item.name)
        decides = decider(item)
        if named in WANTED or decides is not None:
            found.append(replace(item, name=decides or named))
            if named == "transformers" and "torch" in item.extras:
                found.append(replace(item, name=_WITH_TORCH))
    return found, includes


@remembered
def installs_of(file: SourceFile) -> Mapping[str, Declared]:
    """What a shell script, a notebook, a Markdown page or a Dockerfile installs of the libraries, by name."""
    stated: dict[str, list[Declared]] = {}
    for item in read_requirements_of(file, file.name.rpartition("/")[2])[0]:
        stated.setdefault(item.name, []).append(one_of(item, file))
    found = {name: any_of(every) for name, every in stated.items()}
    return {name: entry for name, entry in found.items() if entry.clauses != "" or name in DECIDERS}


def form_of(name: str) -> Callable[[SourceFile], Read]:
    """The reader of a file; its modules are imported where there is such a file."""
    if name in _LOCKS:
        return _lock
    if name in ("pyproject.toml", "Pipfile"):
        return _toml if name == "pyproject.toml" else _pipfile
    if name in ("setup.py", "setup.cfg"):
        return _setup_py if name == "setup.py" else _setup_cfg
    if name.endswith((".yml", ".yaml")):
        return _cog if name == COG else _environment
    if is_image(name) or name.endswith((".sh", ".bash", ".ipynb", ".md")) or "." not in name:
        return _installing
    return _pip


def _names_one(file: SourceFile) -> bool:
    """A cheap look before a file is parsed: most name no library, and need none either."""
    text = file.source.text.lower()
    return any(name in text for name in (*WANTED, *DECIDERS)) or ".txt" in text or "requirements" in text


def _lock(file: SourceFile) -> Read:
    from zerocfg.source.requirements.manifests import read_lock

    return read_lock(file.source.text, (*WANTED, *DECIDERS, *_ALIASES)), []


def _toml(file: SourceFile) -> Read:
    from zerocfg.source.requirements.manifests import read_pyproject

    return read_pyproject(file.source.text) if _names_one(file) else ([], [])


def _pipfile(file: SourceFile) -> Read:
    from zerocfg.source.requirements.manifests import read_pipfile

    return read_pipfile(file.source.text), []


def _setup_py(file: SourceFile) -> Read:
    from zerocfg.source.requirements.setup_script import read_setup_script

    return read_setup_script(file.source.text) if _names_one(file) else ([], [])


def _setup_cfg(file: SourceFile) -> Read:
    from zerocfg.source.requirements.manifests import read_setup_cfg

    return read_setup_cfg(file.source.text)


def _environment(file: SourceFile) -> Read:
    from zerocfg.source.requirements.manifests import read_environment

    return read_environment(file.source.text, load_as(file.source, "yaml").data())


def _cog(file: SourceFile) -> Read:
    from zerocfg.source.requirements.cog import read_cog

    return read_cog(file.source.text, load_as(file.source, "yaml").data())


def _pip(file: SourceFile) -> Read:
    from zerocfg.source.requirements.pip import read_requirements

    return read_requirements(file.source.text)


def _installing(file: SourceFile) -> Read:
    text = file.source.text
    if len(text) > SETUP_BYTES or " install" not in text or not any(name in text for name in (*LIBRARIES, *DECIDERS)):
        return [], []
    from zerocfg.source.requirements.installs import read_dockerfile, read_installs

    name = file.name.rpartition("/")[2]
    if is_image(name):
        return read_dockerfile(file.source)
    return read_installs(file.source) if for_shell(name, text) else ([], [])
