"""``python -m tools.facts``: walks every release that was not walked yet, and writes ``schemas/releases/*.json``.

Exit code 1 when a release could not be walked: it is named, the others are written all the same.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict

from tools.facts.census import Census, census
from tools.facts.environment import HERE, releases
from tools.facts.fold import changes, files, fold, told, written

FOLDER = HERE.parent.parent / "schemas" / "releases"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", nargs="*", help="these alone")
    parser.add_argument("--again", action="store_true", help="walk also what was walked before")
    options = parser.parse_args()
    wanted = [one for one in releases() if not options.library or one.library in options.library]
    found: dict[str, list[tuple[str, Census]]] = defaultdict(list)
    failed = 0
    for at, release in enumerate(wanted, 1):
        print(f"[{at}/{len(wanted)}] {release.library} {release.version}", file=sys.stderr, flush=True)
        try:
            walked = census(release, again=options.again)
            found[release.library].append((release.version, walked))
        except (RuntimeError, OSError) as error:
            failed += 1
            print(f"{release.library} {release.version}: {error}", file=sys.stderr)
    FOLDER.mkdir(parents=True, exist_ok=True)
    for library, censuses in found.items():
        histories = fold([(version, told(library, held["keys"])) for version, held in censuses])
        for name, part in files(library, histories).items():
            path = FOLDER / f"{name}.json"
            path.write_text(written(library, [version for version, _ in censuses], part), encoding="utf-8")
            print(f"{path.name}: {len(censuses)} releases, {len(part)} keys")
        for line in changes(histories, censuses[-1][0]):
            print(f"  {censuses[-1][0]}: {line}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
