"""Errors that the libraries really raised (`record_errors`) lead back to the rule whose example raised them."""

from __future__ import annotations

import json

import pytest

from zerocfg.rules.registry import find
from zerocfg.smoke.judge import known_errors

from .record_errors import FILE

ERRORS: dict[str, str] = json.loads(FILE.read_text())["errors"]
# Rules whose errors have the same words: without a look at the files the general one is named.
GENERAL = {"ZC112": "ZC101", "ZC114": "ZC101", "ZC206": "ZC203", "ZC246": "ZC203", "ZC639": "ZC203", "ZC841": "ZC840",
           "ZC703": "ZC013", "ZC618": "ZC605", "ZC641": "ZC605", "ZC638": "ZC635"}  # fmt: skip


@pytest.mark.parametrize("name", ERRORS)
def test_an_error_leads_back_to_its_rule_or_to_none(name: str) -> None:
    code = name.split("-")[0]
    rule = find(code)
    assert rule is not None and known_errors.explains(rule, ERRORS[name])
    named = known_errors.rule_of(ERRORS[name])
    assert named is None or named.code in (code, GENERAL.get(code)), named.code if named else ""


def test_most_errors_are_known_without_a_look_at_the_files() -> None:
    named = [name for name, error in ERRORS.items() if known_errors.rule_of(error) is not None]
    assert len(ERRORS) >= 60 and len(named) / len(ERRORS) > 0.6
