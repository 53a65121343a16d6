"""What an editor shows of the key below the cursor: what it is, and what the training process really gets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from zerocfg.catalog.schema import Key
from zerocfg.catalog.values import show
from zerocfg.linter.engine import real_name
from zerocfg.lsp.keys import Place
from zerocfg.run.model import UNKNOWN, Origin, Run, Setting, SourceFile
from zerocfg.run.origins import origin_label, span_of
from zerocfg.source.node import Path, dotted
from zerocfg.source.text import Span

MOST_RUNS = 5
UriOf = Callable[[str], str]


def describe(name: str, key: Key) -> str:
    """A key as its library knows it, as Markdown."""
    facts = key.facts
    lines = [f"**{name}**" + (f" ({facts['unit']})" if "unit" in facts else "")]
    if key.name != name.rpartition(".")[2]:
        lines.append(f"Another name of `{key.name}`.")
    lines.append(key.description.removesuffix(f" Unit: {facts.get('unit')}."))
    for fact, words in (("removed", "Removed"), ("deprecated", "Deprecated"), ("inert", "Without effect")):
        if fact in facts and str(facts[fact]) not in key.description:
            lines.append(f"{words}: {facts[fact]}.")
    if "renamed_to" in facts:
        lines.append(f"Write `{facts['renamed_to']}`.")
    about = [kinds(key), *_default(key)]
    if "since" in facts:
        about.append(f"since {facts['since']}")
    lines.append("; ".join(filter(None, about)))
    fillers: dict[str, list[str]] = {}
    for consumer, what in facts.get("auto", {}).items():
        fillers.setdefault(str(what), []).append(consumer)
    lines += [f'`"auto"` becomes {_escaped(what)} (under {", ".join(who)})' for what, who in fillers.items()]
    return "\n\n".join(filter(None, lines))


def _escaped(text: str) -> str:
    """Formulas hold asterisks, which Markdown would take for emphasis."""
    return text.replace("*", r"\*")


def kinds(key: Key) -> str:
    """What may be written, in a few words."""
    found: list[str] = []
    for branch in key.branches:
        if "enum" in branch:
            found.append(" | ".join(f"`{_plain(item)}`" for item in branch["enum"][:12]))
            if len(branch["enum"]) > 12:
                found[-1] += " | …"
        elif "const" in branch:
            found.append(f"`{_plain(branch['const'])}`")
        elif "properties" in branch:
            found.append("a section")
        else:
            types = branch.get("type", [])
            found += [
                _TYPES.get(item, str(item)) + _bounds(branch) for item in ([types] if isinstance(types, str) else types)
            ]
    return " or ".join(dict.fromkeys(found))


_TYPES = {
    "integer": "whole number", "number": "number", "boolean": "true or false", "string": "text", "array": "list",
    "object": "mapping", "null": "null",
}  # fmt: skip
_BOUNDS = {"minimum": "at least", "exclusiveMinimum": "above", "maximum": "at most", "exclusiveMaximum": "below"}


def _bounds(branch: dict[str, object]) -> str:
    if branch.get("type") not in ("integer", "number"):
        return ""
    return "".join(f" {words} {branch[bound]}" for bound, words in _BOUNDS.items() if bound in branch)


def _default(key: Key) -> Iterator[str]:
    if "default" in key.raw and key.raw["default"] is not None:
        yield f"default `{show(key.raw['default'])}`"
    for release, before in key.facts.get("default_before", {}).items():
        yield f"`{show(before)}` before {release}"


def _plain(value: object) -> str:
    return value if isinstance(value, str) else show(value)


def effective(runs: Iterable[Run], path: str, keys: Path, span: Span | None, uri_of: UriOf) -> list[str]:
    """What becomes of a key in the runs of its file, as Markdown; runs with the same outcome share one paragraph.

    ``path``: real path of the file. ``keys``: key path in it, or for a word of a launch script ``span``.
    """
    outcomes: dict[str, list[str]] = {}
    for run in runs:
        files = [file for file in run.files if file.path is not None and real_name(file) == path]
        for file in files[:1]:
            text = "\n\n".join(_outcomes(run, file, keys, span, uri_of))
            if text:
                outcomes.setdefault(text, []).append(run.name)
    found = []
    for text, names in outcomes.items():
        more = f" and {len(names) - MOST_RUNS} more" if len(names) > MOST_RUNS else ""
        found.append(f"In {', '.join(names[:MOST_RUNS])}{more}:\n\n{text}")
    return found


def _outcomes(run: Run, file: SourceFile, keys: Path, span: Span | None, uri_of: UriOf) -> Iterator[str]:
    path = real_name(file)
    names = [
        name
        for name, setting in run.effective.settings.items()
        if any(_is_here(item.origin, path, keys, span) for item in _steps(setting))
    ]
    own = dotted(keys)
    if keys and file is run.deepspeed and own in run.effective.settings and own not in names:
        names.append(own)
    for name in sorted(names):
        steps = list(_steps(run.effective.settings[name]))
        lines = [f"- `{name}` = **{_value(steps[0])}** from {_origin(steps[0].origin, uri_of)}"]
        lines += [f"  - replaces {_value(step)} from {_origin(step.origin, uri_of)}" for step in steps[1:]]
        yield "\n".join(lines)
    for ignored in run.effective.ignored:
        if _is_here(ignored.place, path, keys, span):
            yield f"- not used: {ignored.message}"


def origins(runs: Iterable[Run], path: str, keys: Path, span: Span | None) -> Iterator[Origin]:
    """Where the values come from that take the place of a key, when that is somewhere else."""
    for run in runs:
        for name, setting in run.effective.settings.items():
            steps = [step.origin for step in _steps(setting)]
            mine = any(_is_here(origin, path, keys, span) for origin in steps)
            mine = mine or (name == dotted(keys) and run.deepspeed is not None and real_name(run.deepspeed) == path)
            if mine and steps[0].file is not None and not _is_here(steps[0], path, keys, span):
                yield steps[0]


def _steps(setting: Setting) -> Iterator[Setting]:
    """A setting and all that it replaced."""
    yield setting
    for old in setting.overridden:
        yield from _steps(old)


def _is_here(origin: Origin, path: str, keys: Path, span: Span | None) -> bool:
    if origin.file is None or origin.file.path is None or real_name(origin.file) != path:
        return False
    if span is not None:
        return origin.span is not None and origin.span.start <= span.start <= origin.span.end
    return bool(keys) and origin.path == keys


def _value(setting: Setting) -> str:
    return "unknown" if setting.value is UNKNOWN else f"{show(setting.value)}"


def _origin(origin: Origin, uri_of: UriOf) -> str:
    if origin.file is None:
        return f"the {origin_label(origin)}" if origin.kind == "default" else origin_label(origin)
    line = origin.file.source.place(start_of(origin).start).line
    where = f"{origin.file.name}:{line}"
    if origin.file.path is not None:
        where = f"[{where}]({uri_of(real_name(origin.file))}#L{line})"
    return f"{where} ({origin.note})" if origin.note else where


def start_of(origin: Origin) -> Span:
    """The place of an origin in its file; the start where it is no single place."""
    return span_of(origin) or Span(0, 0)


def hover(place: Place, keys: Path, runs: Iterable[Run], path: str | None, span: Span | None, uri_of: UriOf) -> str:
    """The whole text for a key; empty where nothing is known."""
    texts = []
    if keys and isinstance(keys[-1], str):
        found = place.key(keys[-1])
        if found is not None:
            texts.append(describe(dotted(keys), found[0]))
    if path is not None:
        texts += effective(runs, path, keys, span, uri_of)
    return "\n\n---\n\n".join(texts)
