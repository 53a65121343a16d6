"""What a conversion amounts to: the rows, held against the run before and after."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from zerocfg.catalog.schema import load_schema
from zerocfg.convert.conversion import Conversion, Match, Row, converted_run, differences, place, said, unexplained
from zerocfg.run.discover import Files
from zerocfg.run.model import Run


def conversion(run: Run, files: Files, text: str, rows: Sequence[Row]) -> Conversion:
    """A conversion whose rows tell of the engines' own settings, as far as a file says them; between two versions of
    one engine every difference has to be accounted for."""
    after = converted_run(run, files, text)
    found = differences(run, after)
    if run.effective.value("engine") != after.effective.value("engine"):
        found = {name: difference for name, difference in found.items() if not name.startswith(_of_one_engine())}
    return Conversion(run, text, (*rows, *refusals(run, after)), {}, unexplained(found, rows))


def dynamo(run: Run, match: Match, why: str) -> list[Row]:
    """A row for the config of torch.compile, which not every launcher exports."""
    file = run.accelerate
    assert file is not None
    value = file.data().get(_DYNAMO)
    if not value:
        return []
    text = said((_DYNAMO,), value)
    return [Row(text, text if match != "not at all" else "", match, why, place(file, (_DYNAMO,)))]


_DYNAMO = "dynamo_config"


@cache
def _of_one_engine() -> tuple[str, ...]:
    """Prefixes of the settings that only one engine has."""
    return "engine", "fsdp_config.", *load_schema("deepspeed").root.keys


def refusals(before: Run, after: Run) -> tuple[Row, ...]:
    """Why the converted run is refused, where the run before was not."""
    known = {(failure.kind, failure.phase) for failure in before.effective.failures}
    new = [failure for failure in after.effective.failures if (failure.kind, failure.phase) not in known]
    return tuple(Row("(the job starts)", "", "not at all", f"it stops: {item.message}") for item in new)
