"""``python -m tests.parity.releases``: what zerocfg says with a release pinned, held against that release itself.

Of DeepSpeed, accelerate, transformers and TRL (`config_releases`, `recipe_releases`, `trl_releases`). Exit code 1 when
they disagree. ``--write`` keeps the counts beside those of other runs, and writes a page of them.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

from tests.parity import counts
from tests.parity.config_releases import ACCELERATE_CONFIGS, DEEPSPEED_CONFIGS
from tests.parity.recipe_releases import RECIPES
from tests.parity.released import Comparison, compared, of_library
from tests.parity.trl_releases import TRL_RECIPES

COMPARISONS: dict[str, Comparison[Any]] = {
    "deepspeed": DEEPSPEED_CONFIGS,
    "accelerate": ACCELERATE_CONFIGS,
    "transformers": RECIPES,
    "trl": TRL_RECIPES,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("releases", nargs="*", help="of --library; `all` for every known one")
    parser.add_argument("--library", choices=COMPARISONS, action="append")
    parser.add_argument("--examples", type=int, help="how many cases to make beside those that people wrote")
    parser.add_argument("--corpus", action="store_true", help="only the files of the corpus")
    parser.add_argument("--show", type=int, default=5, help="disagreements to show for each release")
    parser.add_argument("--write", action="store_true", help="keep the counts")
    options = parser.parse_args()
    pairs = failed = 0
    for library in options.library or COMPARISONS:
        comparison = COMPARISONS[library]
        examples = comparison.examples if options.examples is None else options.examples
        people, made = comparison.people(options.corpus), [] if options.corpus else comparison.made(examples)
        for release in of_library(library, options.releases or comparison.releases):
            found = compared(comparison, release, people, made)
            pairs += found.cases
            failed += found.failed
            limited = sum(found.limited.values())
            judged = f"{found.refused} refused, {found.failed} disagreements, {limited} within limits"
            print(f"{library} {release.version}: {found.cases} cases ({found.made} made), {judged}", flush=True)
            for problem, case in found.wrong[: options.show]:
                print(f"  {problem}\n    {str(case)[:600]}")
            if options.write:
                counts.keep(release, found)
    print(f"{pairs} pairs of a case and a release, {failed} disagreements")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
