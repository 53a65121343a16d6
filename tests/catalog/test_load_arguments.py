"""The keywords that `from_pretrained` no longer takes, against the installed transformers."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from typing import Any

import pytest

from tests.conftest import ROOT
from zerocfg.catalog.load_arguments import classes_that_take_any, removed_load_arguments
from zerocfg.catalog.versions import release
from zerocfg.run.config import VERSIONS

TAKEN = (
    "token",
    "low_cpu_mem_usage",
    "_fast_init",
    "mirror",
    "offload_state_dict",
    "torch_dtype",
    "dtype",
    "use_cache",
)
CLASSES = """
import inspect, json, sys, warnings
warnings.simplefilter("ignore")
import transformers
found = {}
for name in json.load(sys.stdin):
    kind = getattr(transformers, name, None)
    if kind is not None:
        lax = any(item.kind is item.VAR_KEYWORD for item in inspect.signature(kind.__init__).parameters.values())
        found[name] = lax or kind.from_pretrained.__func__ is not transformers.PreTrainedModel.from_pretrained.__func__
print(json.dumps(found))
"""


def asked(program: list[str], given: object) -> Any:
    words = [sys.executable, *program]
    done = subprocess.run(words, input=json.dumps(given), capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


@cache
def played() -> dict[str, Any]:
    found: dict[str, Any] = asked([str(ROOT / "tools/facts/load_player.py")], [*removed_load_arguments(), *TAKEN])
    return found


def test_they_are_known_up_to_the_newest_release() -> None:
    facts = json.loads((ROOT / "schemas/releases/transformers-load-arguments.json").read_text())
    assert facts["played"][-1] == VERSIONS["transformers"]
    minors = {release(version)[:2] for version in facts["played"]}
    assert len(minors) == len(facts["played"])
    assert all(release(since)[:2] in minors for since in facts["removed"].values())


@pytest.mark.libs
def test_the_newest_release_refuses_them_all_and_takes_the_others() -> None:
    assert set(played()["taken"]) == set(TAKEN)


@pytest.mark.libs
def test_the_classes_that_take_any() -> None:
    known = classes_that_take_any()
    assert all(set(types) <= set(known[name]) for name, types in played()["lax"].items())
    concrete = [name for name, types in known.items() if not types]
    lax = asked(["-c", CLASSES], [*concrete, "LlamaForCausalLM"])
    assert not lax.pop("LlamaForCausalLM")
    assert "BartForSequenceClassification" in lax
    assert all(lax[name] for name in played()["lax"] if name in lax)
