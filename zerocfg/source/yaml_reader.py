"""YAML as accelerate and transformers read it: PyYAML's safe loader, with the span of every key and value.

The text is composed by libyaml and its scalars are built by the safe constructor's own methods, so a value
here is the value that ``yaml.safe_load`` gives (``5e8`` is text, ``no`` is False, ``010`` is 8, of equal keys
the last wins), and a fatal problem here is an exception there. Where libyaml and the pure Python loader are
known to disagree the pure one decides, because ``yaml.safe_load`` is the pure one.
"""

from __future__ import annotations

import re
from collections.abc import Hashable

import yaml
from yaml.constructor import ConstructorError, SafeConstructor
from yaml.nodes import MappingNode, ScalarNode, SequenceNode
from yaml.nodes import Node as RawNode

from zerocfg.budgets import DEPTH, NODES
from zerocfg.patterns import pattern
from zerocfg.source.node import Document, Entry, Mapping, Node, Path, Problem, Scalar, Sequence
from zerocfg.source.text import SourceText, Span

_PURE_RETRY_CHARACTERS = 300_000

_FastLoader: type[yaml.SafeLoader] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TAG = "tag:yaml.org,2002:"
_STR, _MAP, _SEQ, _MERGE, _VALUE = (_TAG + name for name in ("str", "map", "seq", "merge", "value"))

# What PyYAML's reader refuses before it looks at the syntax. Most texts are ASCII, and to compile a class of characters
# beyond that takes a tenth of the instructions of linting two files.
_UNPRINTABLE_ASCII = pattern("[^\t\n\r\x20-\x7e]")
_UNPRINTABLE = pattern("[^\t\n\r\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
# libyaml lets tabs, byte-order marks, a lone "!", "?" in flow collections, "|#" and other line ends pass
# where the pure scanner refuses them, or the reverse.
_LOADERS_DIFFER = pattern("[\t!?]|\r(?!\n)|[|>][-+0-9]*#")
_LOADERS_DIFFER_BEYOND_ASCII = ("\ufeff", "\x85", "\u2028", "\u2029")
_DEEP_BLOCK = pattern(r"^[ \-?:]{100}", re.MULTILINE)
_ALIAS = pattern(r"(?:[\s:,?\[{-]|#.*)*(\*[^\s,\[\]{}]+)")


def read_yaml(source: SourceText) -> Document:
    """The document of a YAML text. Never raises; what could not be read is in ``problems``."""
    text = source.text
    document = Document(source, "yaml", None)
    bad = (_UNPRINTABLE_ASCII if text.isascii() else _UNPRINTABLE).search(text)
    if bad:
        document.problems.append(
            Problem(
                "syntax",
                f"the character U+{ord(bad[0]):04X} is not allowed in YAML",
                Span(bad.start(), bad.end()),
                fatal=True,
            )
        )
        return document
    try:
        too_deep = _too_deep(text)
        if too_deep is not None:
            document.problems.append(Problem("too-deep", f"nested more than {DEPTH} levels deep", too_deep, fatal=True))
            return document
        root = _compose(text)
        if root is None:
            document.problems.append(Problem("empty", "the file holds no value", Span(0, 0)))
            return document
        document.root = _Tree(text, document.problems).node(root, (), 0, root.start_mark.index)
    except _YamlError as refused:
        document.problems.append(refused.problem)
    except yaml.YAMLError as error:
        document.problems.append(_syntax(error, text))
    return document


class _YamlError(Exception):
    def __init__(self, kind: str, message: str, span: Span, path: Path = ()) -> None:
        super().__init__(message)
        self.problem = Problem(kind, message, span, path, fatal=True)


def _compose(text: str) -> RawNode | None:
    if _FastLoader is yaml.SafeLoader or _loaders_differ(text):
        return _compose_with(yaml.SafeLoader, text)
    try:
        return _compose_with(_FastLoader, text)
    except yaml.YAMLError:
        if len(text) > _PURE_RETRY_CHARACTERS:
            raise
        return _compose_with(yaml.SafeLoader, text)


def _loaders_differ(text: str) -> bool:
    beyond = not text.isascii() and any(item in text for item in _LOADERS_DIFFER_BEYOND_ASCII)
    return beyond or _LOADERS_DIFFER.search(text) is not None


def _compose_with(loader_class: type[yaml.SafeLoader], text: str) -> RawNode | None:
    loader = loader_class(text)
    try:
        return loader.get_single_node()
    finally:
        loader.dispose()


def _too_deep(text: str) -> Span | None:
    """Where nesting exceeds the limit. The composers recurse, so the flat event stream is checked first.

    Only texts that could be that deep pay for it: brackets nest, and so do the dashes at the start of a line.
    """
    if text.count("[") + text.count("{") <= DEPTH // 2 and not _DEEP_BLOCK.search(text):
        return None
    depth = 0
    try:
        for event in yaml.parse(text, Loader=_FastLoader):
            if isinstance(event, yaml.CollectionStartEvent):
                depth += 1
                if depth > DEPTH and event.start_mark is not None:
                    return Span(event.start_mark.index, event.start_mark.index + 1)
            elif isinstance(event, yaml.CollectionEndEvent):
                depth -= 1
    except yaml.YAMLError:
        return None  # the composer stops at the same place
    return None


class _Tree:
    """The spanned tree of PyYAML's node graph; raises :class:`_YamlError` where safe_load raises."""

    def __init__(self, text: str, problems: list[Problem]) -> None:
        self.text = text
        self.problems = problems
        self.constructor = SafeConstructor()
        self.constructors = self.constructor.yaml_constructors
        self.aliases = "*" in text and "&" in text
        self.done: dict[int, tuple[Node, int]] = {}
        self.open: set[int] = set()
        self.count = 0

    def node(self, raw: RawNode, path: Path, depth: int, after: int) -> Node:
        """``after``: an offset before the node and behind everything that stands before it."""
        if not self.aliases:
            return self._build(raw, path, depth)
        identity = id(raw)
        if identity in self.done:
            node, size = self.done[identity]
            self.count += size
            self._check_size(raw)
            return self._alias(node, after)
        if identity in self.open:
            raise _YamlError("alias-cycle", "the alias refers to a value that contains it", _span(raw), path)
        self.open.add(identity)
        before = self.count
        node = self._build(raw, path, depth)
        self.open.discard(identity)
        self.done[identity] = (node, self.count - before)
        return node

    def _alias(self, node: Node, after: int) -> Node:
        """The anchored node again, with the span of the alias that stands for it."""
        found = _ALIAS.match(self.text, after)
        if found is None:
            return node
        span = Span(*found.span(1))
        if isinstance(node, Scalar):
            return Scalar(node.value, span, found[1], node.quoted)
        if isinstance(node, Mapping):
            return Mapping(span, node.entries)
        return Sequence(span, node.items)

    def _check_size(self, raw: RawNode) -> None:
        if self.count > NODES:
            raise _YamlError("too-large", f"aliases expand to more than {NODES} values", _span(raw))

    def _build(self, raw: RawNode, path: Path, depth: int) -> Node:
        self.count += 1
        tag = raw.tag
        if isinstance(raw, ScalarNode):
            start, end = raw.start_mark.index, raw.end_mark.index
            if raw.style in ("|", ">"):
                end = start + len(self.text[start:end].rstrip())
            value = raw.value if tag == _STR else self._scalar(raw, path)
            return Scalar(value, Span(start, end), self.text[start:end], bool(raw.style))
        if depth >= DEPTH:
            raise _YamlError("too-deep", f"nested more than {DEPTH} levels deep", _span(raw), path)
        if isinstance(raw, MappingNode) and tag == _MAP:
            return self._mapping(raw, path, depth)
        if isinstance(raw, SequenceNode) and tag == _SEQ:
            return self._sequence(raw, path, depth)
        return self._tagged(raw, path)

    def _scalar(self, raw: RawNode, path: Path) -> object:
        constructor = self.constructors.get(raw.tag)
        if constructor is None:
            raise _unknown_tag(raw, path)
        try:
            value = constructor(self.constructor, raw)
            if raw.tag in (_MAP, _SEQ) or hasattr(value, "__next__"):
                value = SafeConstructor().construct_document(raw)
            if isinstance(value, int):
                str(value)  # hexadecimal ones may have more digits than Python turns into text, as every reader does
            return value
        except ConstructorError as error:
            raise _YamlError("bad-value", f"cannot be read: {error.problem}", _span(raw), path) from error
        except Exception as error:  # the constructors let ValueError, KeyError, IndexError and others through
            kind = raw.tag.removeprefix(_TAG)
            shown = raw.value if len(raw.value) <= 40 else raw.value[:40] + "..."
            raise _YamlError("bad-value", f"{shown!r} is not a valid {kind}: {error}", _span(raw), path) from error

    def _tagged(self, raw: RawNode, path: Path) -> Node:
        """``!!set``, ``!!omap``, ``!!pairs`` and other tags on a collection: read as one value."""
        if raw.tag not in self.constructors:
            raise _unknown_tag(raw, path)
        try:
            value = SafeConstructor().construct_document(raw)
        except ConstructorError as error:
            raise _YamlError("bad-value", f"cannot be read: {error.problem}", _span(raw), path) from error
        except Exception as error:
            raise _YamlError("bad-value", f"cannot be read: {error}", _span(raw), path) from error
        span = _span(raw)
        return Scalar(value, span, self.text[span.start : span.end])

    def _sequence(self, raw: SequenceNode, path: Path, depth: int) -> Sequence:
        start = end = raw.start_mark.index
        items: list[Node] = []
        for index, item in enumerate(raw.value):
            node = self.node(item, (*path, index), depth + 1, end)
            items.append(node)
            end = max(end, node.span.end)
        if raw.flow_style:
            end = raw.end_mark.index
        elif not items or end < start:
            end = start
        return Sequence(Span(start, end), items)

    def _mapping(self, raw: MappingNode, path: Path, depth: int) -> Mapping:
        start = end = raw.start_mark.index
        entries: list[Entry] = []
        merged: list[list[Entry]] = []
        seen: dict[object, Span] = {}
        for key_raw, value_raw in raw.value:
            if key_raw.tag == _MERGE:
                value = self.node(value_raw, (*path, "<<"), depth + 1, key_raw.end_mark.index)
                merged.append(self._merge(value_raw, value))
                end = max(end, value.span.end)
                continue
            key_span, key = self._key(key_raw, path, end)
            text = key if isinstance(key, str) else str(key_raw.value)
            here = (*path, text)
            if key in seen:
                self._duplicate(text, key_span, seen[key], here)
            elif key is None or isinstance(key, bool):
                self.problems.append(
                    Problem("non-string-key", f"YAML reads the key '{text}' as {key!r}; quote it", key_span, here)
                )
            seen[key] = key_span
            node = self.node(value_raw, here, depth + 1, key_span.end)
            entries.append(Entry(text, key_span, node))
            end = max(end, key_span.end, node.span.end)
        if raw.flow_style:
            end = raw.end_mark.index
        if merged:
            entries = _with_merged(entries, merged)
        return Mapping(Span(start, end), entries)

    def _duplicate(self, text: str, span: Span, earlier: Span, path: Path) -> None:
        brief = f"the key '{text}' is given more than once in this mapping"
        message = f"{brief}; the last value wins"
        self.problems.append(Problem("duplicate-key", message, span, path, related=earlier, brief=brief))

    def _key(self, raw: RawNode, path: Path, after: int) -> tuple[Span, object]:
        span = _span(raw)
        if not isinstance(raw, ScalarNode):
            raise _YamlError("bad-value", "a list or mapping cannot be a key", span, path)
        if raw.tag == _VALUE or raw.tag == _STR:
            key: object = raw.value
        else:
            key = self._scalar(raw, path)
        if not isinstance(key, Hashable):
            raise _YamlError("bad-value", "a list or mapping cannot be a key", span, path)
        if self.aliases:
            if id(raw) in self.done:
                found = _ALIAS.match(self.text, after)
                span = Span(*found.span(1)) if found else span
            else:
                node = Scalar(key, span, self.text[span.start : span.end], bool(raw.style))
                self.done[id(raw)] = (node, 1)
        return span, key

    def _merge(self, raw: RawNode, value: Node) -> list[Entry]:
        """The entries that ``<<`` brings in; of several mappings the first one that has a key counts."""
        if isinstance(value, Mapping):
            return value.entries
        if isinstance(value, Sequence):
            entries: list[Entry] = []
            for item in reversed(value.items):
                if not isinstance(item, Mapping):
                    raise _YamlError("bad-value", "'<<' needs a mapping or a list of mappings", item.span)
                entries.extend(item.entries)
            return entries
        raise _YamlError("bad-value", "'<<' needs a mapping or a list of mappings", _span(raw))


def _with_merged(entries: list[Entry], merged: list[list[Entry]]) -> list[Entry]:
    """Own entries win over merged ones, later merged ones over earlier; the losers are left out."""
    own = {entry.key for entry in entries}
    brought: dict[str, Entry] = {}
    for group in merged:
        for entry in group:
            if entry.key not in own:
                brought[entry.key] = entry
    return [*brought.values(), *entries]


def _span(raw: RawNode) -> Span:
    return Span(raw.start_mark.index, raw.end_mark.index)


def _unknown_tag(raw: RawNode, path: Path) -> _YamlError:
    start = raw.start_mark.index
    tag = raw.tag.replace(_TAG, "!!")
    message = f"the tag '{tag}' means nothing to the safe loader"
    if tag in ("!!merge", "!!value"):
        message = f"'{raw.value}' cannot be a value; quote it"
    return _YamlError("unknown-tag", message, Span(start, raw.end_mark.index), path)


def _syntax(error: yaml.YAMLError, text: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    at = min(mark.index, len(text)) if mark is not None else 0
    span = Span(at, min(at + 1, len(text)))
    context = str(getattr(error, "context", None) or "")
    problem = str(getattr(error, "problem", None) or error)
    if "single document" in context:
        message = "the file holds more than one YAML document ('---'); its readers accept exactly one"
        return Problem("multiple-documents", message, span, fatal=True)
    if text[span.start : span.end] == "\t" or "\\t" in problem:
        return Problem("syntax", "a tab where YAML allows only spaces", span, fatal=True, form="tab")
    said = problem + (f" ({context})" if context else "")
    return Problem("syntax", f"not valid YAML: {said}", span, fatal=True, why=said)
