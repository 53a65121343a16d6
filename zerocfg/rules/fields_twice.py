"""Fields that a script's own dataclass has as well as the training arguments that HfArgumentParser parses beside it."""

from __future__ import annotations

from collections.abc import Iterator

from zerocfg.catalog.admitted import Life, life
from zerocfg.catalog.history import histories
from zerocfg.catalog.versions import release
from zerocfg.record import record
from zerocfg.run.config import VERSIONS
from zerocfg.run.model import Origin, Run
from zerocfg.run.script.arguments import is_arguments


@record(frozen=True, slots=True)
class FieldTwice:
    """A field of the script's own dataclass, and since when the ``library``'s arguments have it."""

    name: str
    origin: Origin
    library: str
    life: Life

    @property
    def always(self) -> bool:
        """Whether every known release has it."""
        return all(map(self.life.at, histories(self.library).releases))


def fields_twice(run: Run) -> Iterator[FieldTwice]:
    """Those that some release has."""
    script = run.script
    kinds = list(filter(is_arguments, script.parsed)) if script is not None else []
    for name, origin in script.beside.items() if script is not None and kinds else ():
        of_trl = tuple(f"{kind.rpartition('.')[2]}.{name}" for kind in kinds if kind.startswith("trl."))
        for library, keys in (("transformers", (name,)), ("trl", of_trl)):
            own = life(library, keys)
            if own is not None and any(there for _, there in own.edges):
                yield FieldTwice(name, origin, library, own)
                break


def newest_refuses_fields(run: Run) -> bool:
    """Whether the newest releases stop as the parser is made, before they see any argument."""
    return any(item.life.at(release(VERSIONS[item.library])) for item in fields_twice(run))
