"""``python -m tests.fuzz``: hostile inputs against zerocfg, by the hundred thousand; what breaks is kept.

    make fuzz                            # every campaign at its size, minutes
    make fuzz N=20                       # twenty inputs of each
    make fuzz FUZZ="lint fixes --nightly"
    python -m tests.fuzz lint --seed 7 --first 40000 --n 60000    # inputs 40000 to 59999

An input follows from seed, campaign and number alone. What is broken goes into `tests/fuzz/kept`, which the tests
replay; nothing is kept twice. The exit code is 1 when anything was.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from random import Random

import click

from tests.fuzz.artefacts import ARTEFACTS
from tests.fuzz.campaign import BrokenError, Campaign
from tests.fuzz.editor import NIGHTLY, SIZE, Session, session
from tests.fuzz.linting import LINTS
from tests.fuzz.play import Played, keep_broken, play, tell
from tests.fuzz.reading import READERS
from tests.fuzz.shell_edits import SHELL_EDITS
from tests.fuzz.writing import WRITES
from tests.fuzz.wrong_values import WRONG_VALUES

EDITS = "edits"
"""The session of an editor is one long input."""
CAMPAIGNS: tuple[Campaign, ...] = (*READERS, *LINTS, *ARTEFACTS, *WRITES, SHELL_EDITS, WRONG_VALUES)
KEPT = Path(__file__).parent / "kept"
MOST_KEPT = 5
"""Of one campaign in one call: many have the same cause."""


def by_name(name: str) -> Campaign:
    return next(one for one in CAMPAIGNS if one.name == name)


@click.command()
@click.argument("names", nargs=-1, type=click.Choice([*(one.name for one in CAMPAIGNS), EDITS]))
@click.option("--n", "size", type=int, help="Play the inputs of each campaign up to this number.")
@click.option("--nightly", is_flag=True, help="The sizes of the night.")
@click.option("--seed", default="1", show_default=True)
@click.option("--first", default=0, help="The number of the first input: go on where a call stopped.")
@click.option("--keep", type=click.Path(path_type=Path), default=KEPT, help="Where what breaks is kept.")
def main(names: tuple[str, ...], size: int | None, nightly: bool, seed: str, first: int, keep: Path) -> None:
    """Play campaigns; all where none is named."""
    failed = 0
    for campaign in CAMPAIGNS:
        if not names or campaign.name in names:
            failed += _inputs(campaign, size or (campaign.nightly if nightly else campaign.size), seed, first, keep)
    if not names or EDITS in names:
        failed += _edits(size or (NIGHTLY if nightly else SIZE), seed)
    sys.exit(1 if failed else 0)


def _inputs(campaign: Campaign, size: int, seed: str, first: int, folder: Path) -> int:
    """Plays a campaign; how many of its inputs are broken."""
    found, told = Played(), 0
    for found in play(campaign, seed, size, first):
        tell(f"{campaign.name}: {first + found.count} played, {len(found.broken)} broken")
        for number, why in found.broken[told:]:
            tell(f"  {number}: {why[:600]}")
        told = len(found.broken)
    each = found.cpu / max(1, found.count) * 1000
    costs = f"{each:.1f} ms each, at most {found.slowest:.2f} s and {found.peak >> 20} MiB more than before"
    print(f"{campaign.name:16} {found.count:8} inputs  {len(found.broken):4} broken  {costs}", flush=True)
    for number, why in found.broken[:MOST_KEPT]:
        kept = keep_broken(campaign, seed, number, why, folder)
        print(f"  {number}: {why[:600]}\n  kept as {kept.name}", flush=True)
    return len(found.broken)


def _edits(size: int, seed: str) -> int:
    """Plays a session of an editor; 1 when something of it is broken."""
    found, why = Session(), ""
    with tempfile.TemporaryDirectory(prefix="zerocfg-fuzz-") as folder:
        try:
            for found in session(Path(folder), size, Random(f"{seed}/{EDITS}")):
                tell(f"{EDITS}: {found.edits} played, the server grew by {found.grown >> 10} KiB since it was warm")
        except BrokenError as error:
            why = f"\n  {error}"
    costs = f"{found.answers} answers, grown by {found.grown >> 10} KiB"
    print(f"{EDITS:16} {found.edits:8} edits   {1 if why else 0:4} broken  {costs}{why}", flush=True)
    return 1 if why else 0


if __name__ == "__main__":
    main()
