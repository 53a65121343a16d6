"""A page as HTML: one file that needs no other and no network."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources
from typing import TYPE_CHECKING

from zerocfg.page import memory_charts, smoke_charts
from zerocfg.page.formatting import brief, clean, count, size
from zerocfg.page.memory import Memory
from zerocfg.page.page import Page
from zerocfg.page.report_input import PageError
from zerocfg.page.smoke import Smoke
from zerocfg.page.theme import DARK, LIGHT, PHASE_NAMES, variables
from zerocfg.page.time import Time
from zerocfg.resolve.explain.plan_summary import COLUMNS, NAMES
from zerocfg.version import __version__

if TYPE_CHECKING:
    from zerocfg.page.charts import Chart

GENERATOR = "zerocfg report"
"""The generator in the meta data of a page; only a file that names it is overwritten."""


def render(page: Page) -> str:
    """The whole page. The same data give the same text. Raises PageError when an extra is missing."""
    try:
        import jinja2
    except ImportError:
        raise PageError("a report needs matplotlib and jinja2: pip install 'zerocfg[report]'") from None
    # Everything that files say is escaped; styles and script are the package's own.
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_template),
        autoescape=True,
        finalize=_shown,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(size=size, brief=brief, count=count, code=_code)
    style = _template("page.css").replace("/*light*/", variables(LIGHT)).replace("/*dark*/", variables(DARK))
    script = _template("page.js")
    return environment.get_template("page.html").render(
        page=page,
        charts=_charts(page),
        kinds={name: NAMES[name] for name in COLUMNS},
        held_kinds=_held(page),
        phases=PHASE_NAMES,
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        generator=GENERATOR,
        version=__version__,
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


def _template(name: str) -> str:
    return (resources.files("zerocfg.page") / "templates" / name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    """Texts without what cannot be seen; styles, script and data URIs hold nothing of that kind."""
    return clean(value) if type(value) is str else value


def _held(page: Page) -> dict[str, list[str]]:
    """Which kinds of memory the charts of the plan show."""
    if not isinstance(page.memory, Memory):
        return {}
    bars = {"phases": page.memory.phases, "plans": [one.bar for one in page.memory.others]}
    return {name: [kind for kind in COLUMNS if any(bar.parts[kind] for bar in some)] for name, some in bars.items()}


def _code(text: str) -> object:
    """What stands between backticks is set as code; everything is escaped."""
    from markupsafe import Markup, escape

    parts = clean(text).split("`")
    if len(parts) % 2 == 0:
        return clean(text)
    found = (Markup("<code>{}</code>").format(part) if at % 2 else escape(part) for at, part in enumerate(parts))
    return Markup("").join(found)


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
