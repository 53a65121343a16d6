"""A page as HTML: one file that needs no other and no network."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zerocfg.page import memory_charts, smoke_charts
from zerocfg.page.html import html
from zerocfg.page.memory import Memory
from zerocfg.page.page import Page
from zerocfg.page.smoke import Smoke
from zerocfg.page.theme import PHASE_NAMES
from zerocfg.page.time import Time
from zerocfg.resolve.explain.plan_summary import COLUMNS, NAMES

if TYPE_CHECKING:
    from zerocfg.page.charts import Chart

GENERATOR = "zerocfg report"
"""The generator in the meta data of a page; only a file that names it is overwritten."""


def render(page: Page) -> str:
    """The whole page. The same data give the same text. Raises PageError when an extra is missing."""
    return html(
        "page.html",
        GENERATOR,
        page=page,
        charts=_charts(page),
        kinds={name: NAMES[name] for name in COLUMNS},
        held_kinds=_kinds_of_memory(page),
        phases=PHASE_NAMES,
    )


def is_ours(head: bytes) -> bool:
    """Whether the first bytes of a file are those of a page that this command wrote."""
    return f'<meta name="generator" content="{GENERATOR}'.encode() in head


def _charts(page: Page) -> dict[str, Chart]:
    found = {}
    if isinstance(page.memory, Memory):
        if page.memory.phases:
            found["phases"] = memory_charts.phases(page.memory)
        if page.memory.others:
            found["plans"] = memory_charts.plans(page.memory)
    if isinstance(page.time, Time):
        found["parts"] = memory_charts.parts(page.time)
        if page.time.sent:
            found["sent"] = memory_charts.sent(page.time)
    if isinstance(page.smoke, Smoke) and page.smoke.profile is not None:
        profile = page.smoke.profile
        if len(profile.points) > 1:
            found["over_time"] = smoke_charts.over_time(profile)
        if profile.peaks:
            found["peaks"] = smoke_charts.peaks(profile)
    return found


def _kinds_of_memory(page: Page) -> dict[str, list[str]]:
    """Which kinds of memory the charts of the plan show."""
    if not isinstance(page.memory, Memory):
        return {}
    bars = {"phases": page.memory.phases, "plans": [other.bar for other in page.memory.others]}
    return {name: [kind for kind in COLUMNS if any(bar.parts[kind] for bar in some)] for name, some in bars.items()}
