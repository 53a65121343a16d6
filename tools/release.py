"""``python -m tools.release v0.2.0``: whether this tree may be published under a tag.

Needs the standard library alone.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def objections(tag: str, version: str, changelog: str) -> list[str]:
    """What speaks against a release; the changelog's newest sections come first."""
    found = [] if tag == f"v{version}" else [f"the tag is {tag}, and zerocfg/version.py says {version}"]
    released = re.search(r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", changelog, re.MULTILINE)
    if released is None or released[1] != version:
        found.append(
            f"the newest dated section of CHANGELOG.md is {released[1] if released else 'none'}, not {version}"
        )
    return found


def main(tag: str) -> str | None:
    version = re.search(r'^__version__ = "(.+)"$', (ROOT / "zerocfg" / "version.py").read_text(), re.MULTILINE)
    assert version is not None
    return "\n".join(objections(tag, version[1], (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))) or None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
