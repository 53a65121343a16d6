"""Colours of the charts and of the page, light and dark."""

from __future__ import annotations

from dataclasses import dataclass

from zerocfg.page.smoke import PHASES
from zerocfg.resolve.explain.plan_summary import COLUMNS

OWN = "own"
"""What zerocfg itself does between two phases: it reads back what it checks."""


@dataclass(frozen=True, slots=True)
class Theme:
    """``kinds``: what memory is held for, in the order of `COLUMNS`. ``phases``: what a training is at."""

    name: str
    ink: str
    muted: str
    grid: str
    surface: str
    band: str
    accent: str
    limit: str
    kinds: tuple[str, ...]
    phases: dict[str, str]

    def kind(self, column: str) -> str:
        return self.kinds[list(COLUMNS).index(column)]


def _phases(*colours: str) -> dict[str, str]:
    return dict(zip((*PHASES, OWN), colours, strict=True))


LIGHT = Theme(
    "light",
    ink="#1c2128",
    muted="#59626e",
    grid="#e3e6ea",
    surface="#ffffff",
    band="#eef3fa",
    accent="#2f6db5",
    limit="#c0352b",
    kinds=("#3567a8", "#d18b1f", "#3d9485", "#8868a6", "#c9593f", "#8b949e"),
    phases=_phases("#9aa3ad", "#3d9485", "#d18b1f", "#8868a6", "#3567a8", "#d9dde2"),
)
DARK = Theme(
    "dark",
    ink="#e8ebef",
    muted="#a3adb9",
    grid="#30363e",
    surface="#161a20",
    band="#1e2733",
    accent="#6aa5ea",
    limit="#ff7b70",
    kinds=("#6c9fe0", "#e0ab55", "#62bba9", "#b294cf", "#e5836b", "#7d8590"),
    phases=_phases("#78828e", "#62bba9", "#e0ab55", "#b294cf", "#6c9fe0", "#3a424c"),
)
PHASE_NAMES = {phase: phase for phase in PHASES} | {OWN: "zerocfg's own checks"}
"""Phases as the legend calls them."""


def variables(theme: Theme) -> str:
    """The colours as CSS declarations."""
    named = {name: getattr(theme, name) for name in ("ink", "muted", "grid", "surface", "band", "accent", "limit")}
    named |= {f"kind-{column}": colour for column, colour in zip(COLUMNS, theme.kinds, strict=True)}
    named |= {f"phase-{phase}": colour for phase, colour in theme.phases.items()}
    return " ".join(f"--{name}: {colour};" for name, colour in named.items())
