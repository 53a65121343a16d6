"""Tables that fit a terminal: cells are wrapped and what matters least is left out, before a line gets too long.

A no-break space keeps two words of a cell together and is printed as a space.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from zerocfg.record import record

GAP = "  "
TOGETHER = "\N{NO-BREAK SPACE}"
BREAKS = ("/", "._-")
"""A word that is longer than its column goes on in the next line after one of these, the first ones if it can."""


@record(frozen=True, slots=True)
class Column:
    """``least``: how narrow it may get by wrapping words; None: cells stay whole. ``hangs``, of the first column:
    a longer cell gets a line to itself, and its row goes on below it. ``spare``: left out where room is short, the
    highest number first; 0 never is.
    """

    title: str = ""
    right: bool = False
    least: int | None = None
    hangs: int | None = None
    spare: int = 0


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None = None, indent: str = "  "
) -> list[str]:
    """The lines of a table, its titles first where there are some. ``width``: columns of the terminal, None where the
    text goes to a file or a program, which gets it whole."""
    if not rows:
        return []
    head = [column.title for column in columns]
    titled = [head, *rows] if any(head) else list(rows)
    kept = left(columns, rows, width, indent)
    shown = [columns[at] for at in kept]
    cells = [[row[at] for at in kept] for row in titled]
    widths = _widths(shown, cells, width, indent)
    return [line for row in cells for line in _lines(row, shown, widths, indent)]


def left(columns: Sequence[Column], rows: Sequence[Sequence[str]], width: int | None, indent: str = "  ") -> list[int]:
    """Which columns there is room for."""
    kept = list(range(len(columns)))
    if width is None:
        return kept
    natural = [max(len(columns[at].title), *(len(row[at]) for row in rows)) for at in kept]
    least = [min(size, *_limits(column), size) for column, size in zip(columns, natural, strict=True)]
    while sum(least[at] for at in kept) + _gaps(len(kept), indent) > width:
        spare = max(kept, key=lambda at: columns[at].spare)
        if not columns[spare].spare:
            break
        kept.remove(spare)
    return kept


def _limits(column: Column) -> list[int]:
    return [limit for limit in (column.least, column.hangs) if limit is not None]


def _gaps(count: int, indent: str) -> int:
    return len(indent) + len(GAP) * (count - 1)


def _widths(columns: list[Column], rows: list[list[str]], width: int | None, indent: str) -> list[int]:
    widths = [max(len(row[at]) for row in rows) for at in range(len(columns))]
    room = (width or 0) - _gaps(len(columns), indent)
    if width is None or sum(widths) <= room:
        return widths
    for at, column in enumerate(columns):
        if column.hangs is not None:
            widths[at] = max((len(row[at]) for row in rows if len(row[at]) <= column.hangs), default=0)
    wrapped = [at for at, column in enumerate(columns) if column.least is not None]
    room -= sum(widths[at] for at in range(len(columns)) if at not in wrapped)
    least = [min(widths[at], columns[at].least or 0) for at in wrapped]
    most = [widths[at] for at in wrapped]
    texts = [[row[at] for row in rows] for at in wrapped]
    for at, size in zip(wrapped, _shares(texts, least, most, room), strict=True):
        widths[at] = size
    return widths


def _shares(cells: list[list[str]], least: list[int], most: list[int], room: int) -> list[int]:
    """The widths of wrapped columns with which the table has the fewest lines."""

    @cache
    def heights(column: int, width: int) -> list[int]:
        return [len(wrap(cell, width)) if len(cell) > width else 1 for cell in cells[column]]

    def splits(column: int, room: int) -> Iterator[list[int]]:
        rest = sum(least[column + 1 :])
        largest = max(least[column], min(most[column], room - rest))
        if column == len(cells) - 1:
            yield [largest]
            return
        for size in range(least[column], largest + 1):
            for others in splits(column + 1, room - size):
                yield [size, *others]

    def lines(split: list[int]) -> int:
        return sum(map(max, zip(*(heights(column, size) for column, size in enumerate(split)), strict=True)))

    return min(splits(0, room), key=lines) if cells else []


def wrap(text: str, width: int) -> list[str]:
    """Words in lines of ``width``; a name that is longer is broken where a part of it ends."""
    lines = [""]
    for word in text.split(" "):
        glue = " "
        for part in _parts(word, width):
            if lines[-1] and len(lines[-1]) + len(glue) + len(part) > width:
                lines.append(part)
            else:
                lines[-1] += (glue if lines[-1] else "") + part
            glue = ""
    return lines


def folded(text: str, width: int | None) -> str:
    """Lines of a text, those that are too long for a terminal going on below their own words: in a line such as
    ``  verdict    fits: ...`` below the second column, else below the first or a little further in."""
    if width is None or all(len(line) <= width for line in text.splitlines()):
        return text
    lines = (_fold(line, width) if len(line) > width else [line] for line in text.splitlines())
    return "".join(f"{line}\n" for part in lines for line in part)


def reflowed(text: str, width: int | None) -> str:
    """As `folded`, with paragraphs filled anew. What is indented by four or more, as examples are, stays as it is."""
    if width is None or all(len(line) <= width for line in text.splitlines()):
        return text
    lines: list[str] = []
    for line in text.splitlines():
        before = lines[-1] if lines else ""
        indent = len(line) - len(line.lstrip())
        if before.strip() and 0 < indent < 4 and indent == len(before) - len(before.lstrip()) and not _item(line):
            lines[-1] = f"{before} {line.strip()}"
        else:
            lines.append(line)
    return "".join(f"{item}\n" for line in lines for item in _filled(line, width))


def _item(line: str) -> bool:
    return line.lstrip().startswith(("- ", "* ", "("))


def _filled(line: str, width: int) -> list[str]:
    indent = len(line) - len(line.lstrip())
    if indent >= 4 or len(line) <= width:
        return [line]
    first, *rest = wrap(line.strip(), width - indent)
    below = " " * (indent + len(GAP) * _item(line))
    return [" " * indent + first, *(below + item for part in rest for item in wrap(part, width - len(below)))]


def _fold(line: str, width: int) -> list[str]:
    words = line.lstrip()
    own = len(line) - len(words)
    key, gap, value = words.partition(GAP)
    if gap and len(key) <= width // 3:
        start = len(line) - len(value.lstrip())
        first, rest = line[:start], value.lstrip()
    else:
        start, first, rest = own + (len(GAP) if own < 4 else 0), line[:own], words
    head, *more = wrap(rest, max(width - start, 20))
    return [first + head, *(" " * start + item for item in more)]


def _parts(word: str, width: int) -> list[str]:
    """A word in parts no longer than ``width``."""
    found = []
    while len(word) > width:
        ends = (max(word.rfind(sign, 1, width) for sign in signs) + 1 for signs in BREAKS)
        end = next((item for item in ends if item > 1), width)
        found.append(word[:end])
        word = word[end:]
    return [*found, word]


def _lines(row: list[str], columns: list[Column], widths: list[int], indent: str) -> Iterator[str]:
    parts = [
        wrap(cell, size) if column.least is not None and len(cell) > size else [cell]
        for cell, column, size in zip(row, columns, widths, strict=True)
    ]
    if columns[0].hangs is not None and len(row[0]) > widths[0]:
        yield (indent + row[0]).replace(TOGETHER, " ")
        parts[0] = [""]
    for number in range(max(map(len, parts))):
        cells = (part[number] if number < len(part) else "" for part in parts)
        aligned = (
            cell.rjust(size) if column.right else cell.ljust(size)
            for cell, column, size in zip(cells, columns, widths, strict=True)
        )
        yield (indent + GAP.join(aligned)).replace(TOGETHER, " ").rstrip()
