"""``python -m tools.package_picture``: the packages of zerocfg as a picture, from the imports of their modules.

An arrow means "imports". Those that follow from others are left out: where A imports B and B imports C, none is drawn
from A to C. A package lies above all that it imports. Writes docs/pictures/packages.svg; a test holds it fresh.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "docs" / "pictures" / "packages.svg"
FACES = ("api", "guard", "pytest_plugin")
"""Modules that are drawn beside the packages; the others are small ones that all may use."""
STANDARD_HEIGHT, GAP, MARGIN, LETTER = 26, 34, 10, 7.4
"""Of boxes, between rows, around the picture, and of a letter's width; in pixels."""
SWEEPS = 24
"""How often the order within rows is improved, by turns from above and from below."""

Node = tuple[str, int]
"""A package with 0, or an arrow that passes a row: its ends as text, with the number of the row."""


def imports() -> dict[str, set[str]]:
    """Which packages each package imports, in any of its modules, also for types alone."""
    graph = grimp.build_graph("zerocfg", cache_dir=None)
    shown = {
        name.removeprefix("zerocfg."): name
        for name in graph.find_children("zerocfg")
        if graph.find_children(name) or name.removeprefix("zerocfg.") in FACES
    }
    return {
        package: {
            other
            for other, imported in shown.items()
            if other != package and graph.direct_import_exists(importer=name, imported=imported, as_packages=True)
        }
        for package, name in shown.items()
    }


def reduced(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """The edges that follow from no others."""
    below = _all_below(edges)
    return {
        node: {other for other in others if not any(other in below[between] for between in others)}
        for node, others in edges.items()
    }


def _all_below(edges: Mapping[str, set[str]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}

    def visit(node: str) -> set[str]:
        if node not in found:
            found[node] = set().union(*({other} | visit(other) for other in edges[node]))
        return found[node]

    for node in edges:
        visit(node)
    return found


def floors(edges: Mapping[str, set[str]]) -> dict[str, int]:
    """How many others lie on the longest way down from each."""
    found: dict[str, int] = {}

    def visit(node: str) -> int:
        if node not in found:
            found[node] = 1 + max((visit(other) for other in edges[node]), default=-1)
        return found[node]

    for node in edges:
        visit(node)
    return found


def drawing(edges: Mapping[str, set[str]]) -> str:
    """The picture as SVG."""
    edges = reduced(edges)
    rows, ways = _rows(edges, floors(edges))
    rows = _ordered(rows, ways)
    width = max(sum(map(_width, row)) for row in rows) + 2 * MARGIN
    places = {node: place for number, row in enumerate(rows) for node, place in _placed(row, number, width).items()}
    height = len(rows) * (STANDARD_HEIGHT + GAP) - GAP + 2 * MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height}" '
        f'viewBox="0 0 {width:.0f} {height}" font-family="sans-serif" font-size="13" text-anchor="middle">',
        "<title>The packages of zerocfg, and which imports which</title>",
        '<g fill="none" stroke="#7986cb" stroke-width="1.2">',
        *(_path([places[node] for node in way]) for way in ways),
        '</g>\n<g fill="#e8eaf6" stroke="#3949ab">',
        *(_box(node, places[node]) for row in rows for node in row if not node[1]),
        '</g>\n<g fill="#1a237e">',
        *(
            f'<text x="{places[node][0]:.0f}" y="{places[node][1] + 4.5:.1f}">{node[0]}</text>'
            for row in rows
            for node in row
            if not node[1]
        ),
        "</g>\n</svg>",
    ]
    return "\n".join(lines) + "\n"


def _rows(edges: Mapping[str, set[str]], floor: Mapping[str, int]) -> tuple[list[list[Node]], list[list[Node]]]:
    """The nodes of each row from above, and the nodes through which each arrow goes."""
    top = max(floor.values())
    rows: list[list[Node]] = [[] for _ in range(top + 1)]
    for node in sorted(edges):
        rows[top - floor[node]].append((node, 0))
    ways = []
    for node in sorted(edges):
        for other in sorted(edges[node]):
            first, last = top - floor[node], top - floor[other]
            passed: list[Node] = [(f"{node} {other}", row) for row in range(first + 1, last)]
            for between in passed:
                rows[between[1]].append(between)
            ways.append([(node, 0), *passed, (other, 0)])
    return rows, ways


def _ordered(rows: list[list[Node]], ways: Iterable[list[Node]]) -> list[list[Node]]:
    """The rows in an order in which few arrows cross: each node at the mean place of those that it is joined to."""
    above: dict[Node, list[Node]] = {}
    below: dict[Node, list[Node]] = {}
    for way in ways:
        for upper, lower in pairwise(way):
            below.setdefault(upper, []).append(lower)
            above.setdefault(lower, []).append(upper)
    for sweep in range(SWEEPS):
        joined = below if sweep % 2 else above
        places = {node: (at + 0.5) / len(row) for row in rows for at, node in enumerate(row)}
        for number in range(len(rows)) if joined is above else reversed(range(len(rows))):
            means = {
                node: sum(places[other] for other in joined[node]) / len(joined[node])
                if node in joined
                else places[node]
                for node in rows[number]
            }
            rows[number] = sorted(rows[number], key=lambda node: (means[node], node))
            places |= {node: (at + 0.5) / len(rows[number]) for at, node in enumerate(rows[number])}
    return rows


def _width(node: Node) -> float:
    """Of a node with the space beside it."""
    return 14 if node[1] else len(node[0]) * LETTER + 34


def _placed(row: list[Node], number: int, width: float) -> dict[Node, tuple[float, float]]:
    """The middle of each node."""
    space = (width - 2 * MARGIN - sum(map(_width, row))) / (len(row) + 1)
    found, left = {}, MARGIN + space
    for node in row:
        middle = MARGIN + number * (STANDARD_HEIGHT + GAP) + STANDARD_HEIGHT / 2
        found[node] = (left + _width(node) / 2, middle)
        left += _width(node) + space
    return found


def _box(node: Node, place: tuple[float, float]) -> str:
    width = _width(node) - 14
    return (
        f'<rect x="{place[0] - width / 2:.0f}" y="{place[1] - STANDARD_HEIGHT / 2:.0f}" width="{width:.0f}" '
        f'height="{STANDARD_HEIGHT}" rx="5"/>'
    )


def _path(places: list[tuple[float, float]]) -> str:
    """From the lower edge of the first box to the upper edge of the last, as a curve from row to row."""
    half = STANDARD_HEIGHT / 2
    x, y = places[0][0], places[0][1] + half
    text = f"M{x:.0f} {y:.0f}"
    for at, (to_x, middle) in enumerate(places[1:], 1):
        to_y = middle - half
        turn = (to_y - y) / 2
        text += f"C{x:.0f} {y + turn:.0f} {to_x:.0f} {to_y - turn:.0f} {to_x:.0f} {to_y:.0f}"
        x, y = to_x, to_y
        if at < len(places) - 1:
            y = middle + half
            text += f"V{y:.0f}"
    return f'<path d="{text}"/>'


def main() -> None:
    FILE.write_text(drawing(imports()), encoding="utf-8")
    print(FILE.relative_to(ROOT))


if __name__ == "__main__":
    main()
