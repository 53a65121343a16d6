"""The locks hold what pyproject.toml and constraints.txt ask for, on every Python, each with its hash."""

from __future__ import annotations

import re

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.conftest import ROOT
from tools.pythons import SUPPORTED

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
LOCKS = {"test": SUPPORTED, "dev": SUPPORTED[1:]}
"""The Pythons that a lock is for, by the extra that it locks."""


def locked(extra: str) -> list[tuple[Requirement, str]]:
    """Each pin of a lock, with the lines that belong to it."""
    text = (ROOT / f"requirements-{extra}.lock").read_text(encoding="utf-8")
    found = re.findall(r"^([a-z0-9][^\\\n]*)\\\n((?:    .*\n)+)", text, re.MULTILINE)
    return [(Requirement(head), rest) for head, rest in found]


def asked(extra: str, python: str) -> list[Requirement]:
    """What an extra asks for on a Python, with the extras of this project that it names."""
    environment = {"python_version": python, "python_full_version": f"{python}.5", "extra": ""}
    found = []
    for line in PROJECT["optional-dependencies"][extra]:
        one = Requirement(line)
        if one.name == "zerocfg":
            found += [requirement for other in one.extras for requirement in asked(other, python)]
        elif one.marker is None or one.marker.evaluate(environment):
            found.append(one)
    return found


@pytest.mark.parametrize(
    ("extra", "python"), [(extra, python) for extra, versions in LOCKS.items() for python in versions]
)
def test_what_is_asked_for_is_locked(extra: str, python: str) -> None:
    environment = {"python_version": python, "python_full_version": f"{python}.5", "sys_platform": "linux"}
    pins = {
        canonicalize_name(pin.name): str(pin.specifier).removeprefix("==")
        for pin, _ in locked(extra)
        if pin.marker is None or pin.marker.evaluate(environment)
    }
    own = [Requirement(line) for line in PROJECT["dependencies"]]
    wanted = [
        *asked(extra, python),
        *(one for one in own if one.marker is None or Marker(str(one.marker)).evaluate(environment)),
    ]
    for one in wanted:
        if one.name != "torch":
            assert one.specifier.contains(pins[canonicalize_name(one.name)], prereleases=True), one
    constraints = dict(re.findall(r"^(\w+)==(\S+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    assert "torch" not in pins
    assert {name: pins[name] for name in constraints if name in pins} == {
        name: release for name, release in constraints.items() if name in pins
    }
    assert ("deepspeed" in pins) is (extra == "dev")


@pytest.mark.parametrize("extra", LOCKS)
def test_every_pin_has_a_hash_and_no_address(extra: str) -> None:
    pins = locked(extra)
    assert len(pins) > 100
    for pin, rest in pins:
        assert re.fullmatch(r"==[\w.+!]+", str(pin.specifier)) and "--hash=sha256:" in rest, pin
    assert "://" not in (ROOT / f"requirements-{extra}.lock").read_text(encoding="utf-8")


def test_both_locks_agree() -> None:
    """A version is the same in both where both have it."""
    both = [{(str(pin), canonicalize_name(pin.name)) for pin, _ in locked(extra)} for extra in ("test", "dev")]
    pythons = ("3.11.7", "3.12.5", "3.13.5")
    for python in pythons:
        environment = {"python_version": python[:4], "python_full_version": python, "sys_platform": "linux"}
        test, dev = (
            {
                name: str(Requirement(text).specifier)
                for text, name in one
                if (marker := Requirement(text).marker) is None or marker.evaluate(environment)
            }
            for one in both
        )
        assert {name: dev[name] for name in test if name in dev} == {name: test[name] for name in test if name in dev}
