"""What the rules say with an older release set pinned, held against what their bad examples do on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from tests.rules.examples import write
from tools.facts.explained import LESS, MILDER, TOLD
from zerocfg.catalog.rule_outcomes import Outcome, RuleOutcomes, rule_outcomes
from zerocfg.catalog.versions import bounds
from zerocfg.linter.selection import Selection
from zerocfg.rulebook.older_releases import LIBRARIES, key_of, keys_of, since
from zerocfg.rulebook.pages import page_of
from zerocfg.rulebook.proof import printed, unprinted
from zerocfg.rules.api import Rule
from zerocfg.rules.registry import ALL, find
from zerocfg.rules.release_scope import library_of
from zerocfg.workspace.job import Job
from zerocfg.workspace.settings import Settings

ACCEPTED = ("runs", "other")
"""Outcomes of examples that do not do what their rule claims."""


def outcomes(*kinds: str) -> list[tuple[str, str, int, Outcome]]:
    return [
        (code, name, number, outcome)
        for code, of in rule_outcomes().rules.items()
        for number, key in enumerate(keys_of(the(code)))
        for name, outcome in of.get(key, {}).items()
        if outcome.kind in kinds
    ]


def severities(code: str, name: str, number: int, folder: Path) -> list[str]:
    example = page_of(the(code)).bad[number]
    folder.mkdir(exist_ok=True)
    write(example, folder)
    pinned = {library: f"=={release}" for library, release in rule_outcomes().sets[name].items()}
    settings = Settings(consumer=example.consumer, versions=pinned)
    found = Job([folder], settings, Selection(select=(code,)), root=folder).lint()
    return [one.severity.value for one in found.diagnostics if one.code == code]


def the(code: str) -> Rule:
    rule = find(code)
    assert rule is not None
    return rule


@pytest.mark.parametrize(
    ("code", "name", "number"),
    [pytest.param(*one[:3], id=f"{one[0]}-{one[2] + 1}-{one[1]}") for one in outcomes(*ACCEPTED) if one[0] not in TOLD],
)
def test_what_a_release_takes_is_not_told_there(code: str, name: str, number: int, tmp_path: Path) -> None:
    found = severities(code, name, number, tmp_path)
    assert "error" not in found
    assert not found or code in MILDER


@pytest.mark.parametrize("name", rule_outcomes().sets)
def test_what_holds_there_is_told(name: str, tmp_path: Path) -> None:
    silent = {
        f"{code}-{number + 1}"
        for code, where, number, _ in outcomes("same")
        if where == name and code not in LESS and not severities(code, name, number, tmp_path / f"{code}-{number}")
    }
    assert not silent


NAMED = [(rule, number) for rule in ALL for number, one in enumerate(page_of(rule).bad) if one.releases]
"""The examples that say in which releases their claim is seen."""


@pytest.mark.parametrize(("rule", "number"), [pytest.param(*one, id=f"{one[0].code}-{one[1] + 1}") for one in NAMED])
def test_an_example_names_the_releases_in_which_its_claim_is_seen(rule: Rule, number: int, tmp_path: Path) -> None:
    releases, played = page_of(rule).bad[number].releases, rule_outcomes()
    assert library_of(releases) in LIBRARIES and bounds(releases.removeprefix(library_of(releases)))
    for name in played.sets:
        (outcome,) = played.outcomes(rule.code, keys_of(rule)[number : number + 1], name)
        if played.has(name, releases):
            assert outcome is None or outcome.kind in ("same", "unplayable"), name
        else:
            assert outcome is None or outcome.kind != "same", name
            assert rule.code in TOLD or not severities(rule.code, name, number, tmp_path / name), name


def test_the_data_speaks_of_rules_and_examples_that_exist() -> None:
    stale = []
    for code, of in rule_outcomes().rules.items():
        rule = find(code)
        if rule is None or page_of(rule).proof.status != "executed" or not of.keys() <= {*keys_of(rule)}:
            stale.append(code)
        assert all(set(on) <= set(rule_outcomes().sets) for on in of.values()), code
    assert not stale, f"examples changed since: python -m tools.facts.play --rules {','.join(stale)}"


def test_an_example_goes_by_what_is_run_and_claimed() -> None:
    rule = the("ZC201")
    one = page_of(rule).bad[0]
    key = key_of(rule, one)
    proof = one.proof or page_of(rule).proof
    assert key_of(rule, dataclasses.replace(one, note="other words", expected=())) == key
    assert key_of(rule, dataclasses.replace(one, proof=dataclasses.replace(proof, extent="less"))) == key
    for other in (
        dataclasses.replace(one, files={**one.files, "ds.json": "{}"}),
        dataclasses.replace(one, consumer="deepspeed"),
        dataclasses.replace(one, proof=dataclasses.replace(proof, phase="step")),
        dataclasses.replace(one, proof=dataclasses.replace(proof, raises="other")),
        dataclasses.replace(one, proof=dataclasses.replace(proof, shows={"log": (printed("no"), unprinted("no"))})),
    ):
        assert key_of(rule, other) != key
    assert len({*keys_of(rule)}) == len(page_of(rule).bad)


def test_a_rule_that_was_played_says_where_it_holds() -> None:
    """By `versions`, by histories, or by examples that showed its claim from some set on."""
    of_histories = {rule.code for rule in ALL if rule.histories}
    silent = {code for code in rule_outcomes().rules if since(the(code)) is None and not the(code).versions}
    assert silent - of_histories == set(), (
        "name the releases: Rule.versions, Finding.versions, or `Seen with` on its page"
    )


def test_each_exception_is_one() -> None:
    assert not TOLD.keys() & MILDER.keys()
    assert {*TOLD, *MILDER} - {"ZC509"} <= {code for code, *_ in outcomes(*ACCEPTED)}


def test_a_rule_is_known_back_to_where_all_newer_sets_show_it() -> None:
    same, runs, unknown = Outcome("same"), Outcome("runs"), Outcome("unplayable", "why")
    every = {"1": same, "2": same, "3": same}
    found = RuleOutcomes(
        {name: {"deepspeed": f"0.{name}.5"} for name in "123"},
        {
            "all": {"a": every, "b": every},
            "late": {"a": every, "b": {**every, "2": runs}},
            "partly": {"a": every, "b": {**every, "3": runs}},
            "gap": {"a": every, "b": {"1": same, "3": same}},
            "none": {"a": every, "b": {}},
            "unknown": {"a": every, "b": {"3": unknown}},
            "changed": {"a": every, "before": every},
        },
    )
    always = {"a": "", "b": ""}
    assert [found.since(code, always) for code in found.rules] == ["1", "3", None, "3", None, None, None]
    assert found.since("ZC999", {"a": ""}) is None and found.since("all", {}) is None
    assert found.outcomes("gap", ["b", "a", "c"], "2") == (None, same, None)


@pytest.mark.parametrize(
    ("code", "releases", "since"),
    [
        ("late", "deepspeed>=0.3.5", "1"),
        ("late", "deepspeed>=0.2.6", "1"),
        ("late", "deepspeed>=0.2.5", "3"),
        ("late", "deepspeed>=0.4", "1"),
        ("late", "transformers>=0.4", "3"),
        ("partly", "deepspeed>=0.3.5", None),
        ("partly", "deepspeed<0.3.5", "1"),
    ],
)
def test_an_example_is_asked_in_the_releases_in_which_its_claim_is_seen(
    code: str, releases: str, since: str | None
) -> None:
    same, runs = Outcome("same"), Outcome("runs")
    found = RuleOutcomes(
        {name: {"deepspeed": f"0.{name}.5"} for name in "123"},
        {
            "late": {"a": dict.fromkeys("123", same), "b": {"1": runs, "2": runs, "3": same}},
            "partly": {"a": dict.fromkeys("123", same), "b": {"1": same, "2": same, "3": runs}},
        },
    )
    assert found.since(code, {"a": "", "b": releases}) == since
