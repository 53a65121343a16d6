"""``python -m tests.ledger``: whether the committed ledger speaks of the files that are here.

An entry is stale once a file that its key is made of has changed, until its tests are run again and the ledger is
committed with the change. The quick tier then runs more each time, for everyone, and writes a ledger that nobody
asked for. Keys are compared, so no test is run and no training library imported. Exit code 1 where an entry is stale.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.conftest import ROOT

from .entries import Ledger, LedgerError, read
from .inputs import Tree
from .plugin import FILE, shortened


def stale_modules(ledger: Ledger, tree: Tree) -> list[str]:
    """The modules of tests whose entry was written for other files, or that are gone."""
    return sorted(
        module for module, entry in ledger.modules.items() if module not in tree.names or entry.key != tree.key(module)
    )


def stale_claims(ledger: Ledger) -> list[str]:
    """The claims of rules without an entry of the same files, claim and harness, and the entries without a claim."""
    keys = dict(_keys())
    held = {proof: entry.key for proof, entry in ledger.proofs.items()}
    return sorted(proof for proof in {*keys, *held} if keys.get(proof) != held.get(proof))


def _keys() -> Iterator[tuple[str, str]]:
    from tests.proofs.judging import key_of
    from tests.proofs.test_proofs import EXAMPLES, claim_of

    for side, examples in EXAMPLES.items():
        for example in examples:
            with TemporaryDirectory(prefix="zerocfg-") as folder:
                claim = claim_of(example, side, Path(folder))
            yield claim.id, key_of(claim)


def main() -> int:
    try:
        ledger = read(ROOT / FILE)
    except LedgerError as error:
        print(error)
        return 1
    stale = {"modules of tests": stale_modules(ledger, Tree(ROOT)), "claims of rules": stale_claims(ledger)}
    for of, names in stale.items():
        if names:
            print(f"{FILE}: {len(names)} {of} are stale: {shortened(names)}")
    if any(stale.values()):
        print("run make test and commit the ledger that it writes")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
