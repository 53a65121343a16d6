"""Templates as HTML: one file that needs no other and no network. The same data give the same text."""

from __future__ import annotations

import base64
import hashlib
from importlib import resources

from zerocfg.page.formatting import brief, clean, count, size
from zerocfg.page.report_input import PageError
from zerocfg.page.theme import DARK, LIGHT, variables
from zerocfg.version import __version__


def html(template: str, generator: str, **data: object) -> str:
    """``generator``: the command that makes the page, for its meta data. Raises PageError where an extra is missing."""
    try:
        import jinja2
    except ModuleNotFoundError:
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
    return environment.get_template(template).render(
        style=style,
        script=script,
        policy=f"default-src 'none'; img-src data:; style-src '{_hash(style)}'; script-src '{_hash(script)}'",
        generator=generator,
        version=__version__,
        **data,
    )


def _template(name: str) -> str:
    return (resources.files("zerocfg.page") / "templates" / name).read_text(encoding="utf-8")


def _shown(value: object) -> object:
    """Texts without what cannot be seen; styles, script and data URIs hold nothing of that kind."""
    return clean(value) if type(value) is str else value


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
