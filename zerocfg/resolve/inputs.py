"""The inputs of resolution, as one type."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from zerocfg.models.hardware import HardwareProfile
    from zerocfg.models.model_facts import ModelFacts
    from zerocfg.models.spec import RunSpec
    from zerocfg.resolve.plan import Considered, Decision, Engine, Problem
    from zerocfg.run.model import Effective, Run, SourceFile


@dataclass(frozen=True, slots=True)
class Inputs:
    """Everything that a run is resolved from. A value: each step of the build makes a new one.

    ``chosen`` are zerocfg's decisions by the names of settings; the run holds them already. ``before`` are the settings
    as they were before zerocfg chose anything. ``changes`` and ``considered`` are filled when zerocfg chooses; see
    :class:`zerocfg.resolve.plan.Plan`. ``arguments`` are the words for the script, ``module`` its name where it is
    started as one, ``moved`` settings that the sources state where their library does not read them. ``problems`` are
    why there is no plan. ``before_engine`` are the inputs as they were before an engine was taken, where neither a
    source nor the spec names one: other engines start from there.
    """

    run: Run
    spec: RunSpec
    folder: Path
    engine: Engine
    profile: HardwareProfile | None
    facts: ModelFacts
    model_file: SourceFile | None = None
    notes: tuple[str, ...] = ()
    problems: tuple[Problem, ...] = ()
    chosen: Mapping[str, Decision] = field(default_factory=dict)
    changes: Mapping[str, Decision] = field(default_factory=dict)
    considered: tuple[Considered, ...] = ()
    before: Effective | None = None
    arguments: tuple[str, ...] = ()
    module: str = ""
    moved: Mapping[str, Decision] = field(default_factory=dict)
    before_engine: Inputs | None = None
