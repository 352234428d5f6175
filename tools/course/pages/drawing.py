"""A tree drawn as SVG, from lines that are indented: two blanks a level.

The picture has no colours of its own: its classes take them from the page, so that it
reads in the dark and in the light, and every mark is a word as well.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html import escape

MARKS = ("new", "hit", "locked", "gone")

_LINE = re.compile(r"( *)(.*?)((?: *\{\w+\})*) *")
_SPLIT = re.compile(r" \| | {2,}")
_CHAR, _PAD, _GAP, _LEVEL = 8.5, 12, 18, 34  # pixels
_LINE_HEIGHT = 18


class DrawingError(Exception):
    """A line that is no node: `line` counts from 0."""

    def __init__(self, line: int, what: str) -> None:
        super().__init__(what)
        self.line = line


@dataclass
class Node:
    """One node: `texts` are its lines, the first is the label."""

    texts: list[str]
    marks: list[str]
    children: list[Node] = field(default_factory=list)
    x: float = 0  # middle
    width: float = 0  # of the box
    depth: int = 0

    @property
    def lines(self) -> list[str]:
        return self.texts + ([", ".join(self.marks)] if self.marks else [])


def parse_tree(lines: list[str]) -> Node:
    """The root of the tree that the lines draw; `DrawingError` for a bad one."""
    root: Node | None = None
    path: list[Node] = []
    for number, line in enumerate(lines):
        if not line.strip():
            continue
        indent, text, marks = _LINE.fullmatch(line).groups()
        depth = len(indent) // 2
        names = re.findall(r"\w+", marks)
        if len(indent) % 2 or depth > len(path) or (root and depth == 0):
            raise DrawingError(
                number, "indent by two blanks for a child; one root at column one"
            )
        for name in names:
            if name not in MARKS:
                raise DrawingError(
                    number, f"{{{name}}} is none of the marks {', '.join(MARKS)}"
                )
        node = Node(_SPLIT.split(text), names, depth=depth)
        del path[depth:]
        if path:
            path[-1].children.append(node)
        else:
            root = node
        path.append(node)
    if root is None:
        raise DrawingError(0, "there is no node")
    return root


def draw(root: Node, caption: str) -> str:
    """The picture as inline SVG; `caption` is what a screen reader says first."""
    nodes = _flat(root)
    rows = [0] * (max(n.depth for n in nodes) + 1)
    for node in nodes:
        node.width = max(map(len, node.lines)) * _CHAR + 2 * _PAD
        rows[node.depth] = max(rows[node.depth], len(node.lines))
    width = max(_place(root, 0), 1)
    tops = [0.0]
    for count in rows:
        tops.append(tops[-1] + count * _LINE_HEIGHT + _PAD + _LEVEL)
    height = tops[-1] - _LEVEL + 6
    parts = [
        f'<svg class="tree" role="img" viewBox="-3 -3 {width + 6:.0f} {height:.0f}" '
        f'style="--width: {width + 6:.0f}px" xmlns="http://www.w3.org/2000/svg">',
        f"<title>{escape(caption)}</title><desc>{escape(spoken(root))}</desc>",
    ]
    for node in nodes:
        for child in node.children:
            top = tops[node.depth] + _box_height(node)
            parts.append(
                f'<path class="tree-edge" d="M{node.x:.0f} {top:.0f} '
                f'L{child.x:.0f} {tops[child.depth]:.0f}"/>'
            )
    parts += [_box(node, tops[node.depth]) for node in nodes]
    return "".join([*parts, "</svg>"])


def spoken(node: Node) -> str:
    """The tree in words, each node with its children in brackets."""
    text = " ".join(node.lines)
    if node.children:
        text += f" ({'; '.join(spoken(child) for child in node.children)})"
    return text


def _flat(node: Node) -> list[Node]:
    return [node, *(n for child in node.children for n in _flat(child))]


def _place(node: Node, left: float) -> float:
    """Set `x` of a node and all below it, from `left` on: where they end."""
    right = left
    for child in node.children:
        right = _place(child, right) + _GAP
    span = max(0, right - _GAP - left)
    if span < node.width:  # wider than what is below it: that moves to the middle
        for below in _flat(node)[1:]:
            below.x += (node.width - span) / 2
    inner = [child.x for child in node.children]
    node.x = (inner[0] + inner[-1]) / 2 if inner else left + node.width / 2
    node.x = max(node.x, left + node.width / 2)
    return max(left + span, node.x + node.width / 2)


def _box_height(node: Node) -> float:
    return len(node.lines) * _LINE_HEIGHT + _PAD


def _box(node: Node, top: float) -> str:
    classes = " ".join(["tree-node", *(f"tree-{mark}" for mark in node.marks)])
    left = node.x - node.width / 2
    rows = "".join(
        f'<text class="{"tree-note" if i else "tree-label"}" x="{node.x:.0f}" '
        f'y="{top + _PAD / 2 + (i + 0.75) * _LINE_HEIGHT:.0f}">{escape(line)}</text>'
        for i, line in enumerate(node.lines)
    )
    return (
        f'<g class="{classes}"><rect x="{left:.0f}" y="{top:.0f}" rx="5" '
        f'width="{node.width:.0f}" height="{_box_height(node):.0f}"/>{rows}</g>'
    )
