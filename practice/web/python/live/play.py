"""What all live drawings share: lines of operations in, one step for each out.

A drawing is a `World`: it lists its operations and options, changes when an operation
is played, and can be pictured at any time. How steps differ, how a picture reads as
text, and how the steps become a test is the same for all of them, and is here.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from minisgl.errors import MiniSGLError

MAX_OPERATIONS = 100
MAX_TOKENS = 64  # of a line
SIGNS = {"new": "+", "changed": "~", "used": "•", "gone": "−", "": ""}

_RANGE = re.compile(r"(\d{1,9})(?:\.\.(\d{1,9}))?")
_NAME = re.compile(r"[A-Za-z]\w{0,11}", re.ASCII)


class BadInput(Exception):
    """A line or an option that cannot be read: what was given, what is allowed."""


@dataclass(frozen=True)
class Operation:
    """`insert TOKENS [@SPACE]`: how it is written, what it does, who does it.

    The words in capitals are what `play` gets: TOKENS a list, [@SPACE] a name or None,
    NAME a name, COUNT and RECEIPT a whole number.
    """

    usage: str
    about: str
    play: Callable[..., str]

    @property
    def name(self) -> str:
        return self.usage.split()[0]


@dataclass
class Node:
    """A node as it is drawn. `typed` are the words that name it in an operation."""

    id: int
    title: str
    facts: list[str] = field(default_factory=list)
    stamp: int = 0  # when it was used last
    is_locked: bool = False
    typed: str = ""
    children: list[Node] = field(default_factory=list)
    mark: str = ""


@dataclass
class Row:
    """A row of a table; the first cell names it."""

    cells: list[str]
    mark: str = ""


@dataclass
class Table:
    caption: str
    head: list[str]
    rows: list[Row]


@dataclass(frozen=True)
class Size:
    """Something counted: its name, how a test asks for it, how much it is."""

    name: str
    code: str
    value: int


@dataclass
class Picture:
    """A tree, or tables, or both."""

    tree: Node | None = None
    tables: list[Table] = field(default_factory=list)


class World:
    """What a drawing shows. Subclasses set the class variables and the three hooks."""

    title: ClassVar[str]
    operations: ClassVar[tuple[Operation, ...]]
    options: ClassVar[dict[str, str]] = {}  # name -> default

    def __init__(self, options: dict[str, str]) -> None:
        for name in options:
            if name not in self.options:
                takes = ", ".join(self.options) or "no options"
                raise BadInput(f"there is no option {name}: this drawing takes {takes}")
        self.given = self.options | options
        self.code: list[str] = []  # lines of Python that do what is being done

    def whole(self, name: str, low: int, high: int) -> int:
        """An option that is a whole number."""
        text = str(self.given[name])
        if not re.fullmatch(r"\d{1,9}", text) or not low <= int(text) <= high:
            raise BadInput(f"{name}={text}: give a whole number from {low} to {high}")
        return int(text)

    def setup(self) -> list[str]:
        """Python that makes this world: imports, a blank line, then statements."""
        raise NotImplementedError

    def picture(self) -> Picture:
        raise NotImplementedError

    def sizes(self) -> list[Size]:
        """What is counted."""
        raise NotImplementedError

    def check(self) -> None:
        """Recount everything; raises IntegrityError, or AssertionError before it is."""
        raise NotImplementedError


def play(world_type: type[World], asked: dict[str, Any]) -> dict[str, Any]:
    """Play lines of operations on a new world.

    Args:
        asked: `{"options": {"page_size": "2"}, "operations": ["insert 1 2 3", …]}`.

    Returns:
        `title`; `usage`, a list of `{name, usage, about}`; `steps`, the first of which
        is the beginning; `test`, a pytest module that repeats the steps. A step has
        `line`, `says` (a sentence), `error` (what was refused, or null), `is_bad`
        (whether the line could not be read), `sizes`, `tree`, `tables` and `text`.

    Raises:
        BadInput: an option that makes no sense, or too many operations.
    """
    lines = asked["operations"]
    if len(lines) > MAX_OPERATIONS:
        raise BadInput(
            f"{len(lines)} operations are too many: the limit is {MAX_OPERATIONS}"
        )
    world = world_type(asked.get("options", {}))
    test = _Test(world.setup())
    seen = world.picture()
    steps = [_step("", "Nothing has been done yet.", None, False, world, seen)]
    for line in lines:
        says, error, is_bad = _do(world, line, test)
        before, seen = seen, world.picture()
        steps.append(_step(line, says, error, is_bad, world, _marked(before, seen)))
    return {
        "title": world.title,
        "usage": [
            {"name": o.name, "usage": o.usage, "about": o.about}
            for o in world.operations
        ],
        "steps": steps,
        "test": test.text(),
    }


def parse(line: str, operations: tuple[Operation, ...]) -> tuple[Operation, list[Any]]:
    """An operation and its arguments. Raises BadInput for a line that is none."""
    name, *words = line.split() or [""]
    by_name = {operation.name: operation for operation in operations}
    if name not in by_name:
        near = difflib.get_close_matches(name, by_name, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise BadInput(
            f"there is no operation {name!r}{hint} (operations: {', '.join(by_name)})"
        )
    operation = by_name[name]
    arguments = []
    for kind in operation.usage.split()[1:]:
        if kind == "TOKENS":
            count = next(
                (i for i, word in enumerate(words) if word.startswith("@")), len(words)
            )
            arguments.append(_tokens(words[:count], operation))
            words = words[count:]
        elif kind == "[@SPACE]":
            has_space = bool(words) and words[0].startswith("@")
            arguments.append(_name(words.pop(0)[1:]) if has_space else None)
        elif not words:
            raise BadInput(f"{kind} is missing: write {operation.usage}")
        elif kind == "NAME":
            arguments.append(_name(words.pop(0)))
        else:
            arguments.append(_whole(words.pop(0), kind))
    if words:
        raise BadInput(f"{words[0]!r} is too much: write {operation.usage}")
    return operation, arguments


def as_text(picture: Picture) -> str:
    """The picture in lines of text; every change has its sign and its word."""
    parts = []
    if picture.tree:
        parts.append("\n".join(_tree_lines(picture.tree)))
    parts += [_table_text(table) for table in picture.tables]
    return "\n\n".join(parts)


def _tokens(words: list[str], operation: Operation) -> list[int]:
    tokens: list[int] = []
    for word in words:
        match = _RANGE.fullmatch(word)
        if not match:
            raise BadInput(f"{word!r} is no token: give numbers, as in 1 2 3 or 1..8")
        first, last = int(match[1]), int(match[2] or match[1])
        if last - first >= MAX_TOKENS or len(tokens) + last - first >= MAX_TOKENS:
            raise BadInput(f"{word} is too much: {MAX_TOKENS} tokens at most")
        if last < first:
            raise BadInput(f"{word} counts down: write {last}..{first}")
        tokens += range(first, last + 1)
    if not tokens:
        raise BadInput(f"tokens are missing: write {operation.usage}, as in 1 2 3")
    return tokens


def _name(word: str) -> str:
    if not _NAME.fullmatch(word):
        raise BadInput(f"{word!r} is no name: give up to 12 letters or digits, as in a")
    return word


def _whole(word: str, kind: str) -> int:
    if not re.fullmatch(r"\d{1,9}", word):
        raise BadInput(f"{word!r} is no {kind.lower()}: give a whole number")
    return int(word)


def _do(world: World, line: str, test: _Test) -> tuple[str, str | None, bool]:
    """Play one line: what it says, what was refused, whether it could be read."""
    world.code = []
    try:
        operation, arguments = parse(line, world.operations)
        says = operation.play(world, *arguments)
        world.check()
    except BadInput as bad:
        return "", str(bad), True
    except MiniSGLError as refused:
        test.refused(world.code, refused, world.sizes())
        return "", f"{type(refused).__name__}: {refused}", False
    test.done(world.code, world.sizes())
    return says, None, False


def _step(
    line: str,
    says: str,
    error: str | None,
    is_bad: bool,
    world: World,
    picture: Picture,
) -> dict[str, Any]:
    tables = [
        {
            "caption": table.caption,
            "head": table.head,
            "rows": [{"cells": row.cells, "mark": row.mark} for row in table.rows],
        }
        for table in picture.tables
    ]
    return {
        "line": line,
        "says": says,
        "error": error,
        "is_bad": is_bad,
        "sizes": [f"{size.name} {size.value}" for size in world.sizes()],
        "tree": _plain(picture.tree) if picture.tree else None,
        "tables": tables,
        "text": as_text(picture),
    }


def _plain(root: Node) -> dict[str, Any]:
    """The tree as nested dictionaries; without recursion, it may be deep."""
    plain = {
        id(node): {
            "id": node.id,
            "title": node.title,
            "facts": node.facts,
            "stamp": node.stamp,
            "locked": node.is_locked,
            "typed": node.typed,
            "mark": node.mark,
            "children": [],
        }
        for node, _ in walk(root)
    }
    for node, _ in walk(root):
        children = [plain[id(child)] for child in node.children]
        plain[id(node)]["children"] = children
    return plain[id(root)]


def walk(root: Node) -> Iterator[tuple[Node, int]]:
    """Every node with its depth, parents before children, left to right."""
    stack = [(root, 0)]
    while stack:
        node, depth = stack.pop()
        yield node, depth
        stack += [(child, depth + 1) for child in reversed(node.children)]


# Words for keys and nodes


def listed(numbers: Sequence[int]) -> str:
    """`1, 2, 3`; a run of more than six consecutive numbers is `1..8`."""
    if len(numbers) > 6 and list(numbers) == [*range(numbers[0], numbers[-1] + 1)]:
        return f"{numbers[0]}..{numbers[-1]}"
    return ", ".join(map(str, numbers))


def title_of(tokens: Sequence[int], space: str | None) -> str:
    """How a node is called: its tokens, and the namespace that begins with it."""
    return f"@{space} [{listed(tokens)}]" if space else f"[{listed(tokens)}]"


def typed(tokens: Sequence[int], space: str | None) -> str:
    """A prefix as it is written in an operation."""
    return " ".join([*map(str, tokens), *([f"@{space}"] if space else [])])


def in_python(*arguments: object) -> str:
    """Arguments as a test writes them; None is left out."""
    return ", ".join(json.dumps(value) for value in arguments if value is not None)


def space_of(child_key: tuple[Any, bytes]) -> str:
    """The namespace that a child of the root is found under."""
    [[_, space]] = child_key[0]
    return space


# What has changed since the step before


def _marked(before: Picture, after: Picture) -> Picture:
    """A copy of `after` in which all that differs from `before` is marked."""
    tree = _marked_tree(before.tree, after.tree) if after.tree else None
    tables = [
        _marked_table(old, new)
        for old, new in zip(before.tables, after.tables, strict=True)
    ]
    return Picture(tree, tables)


def _marked_tree(before: Node, after: Node) -> Node:
    old = {node.id: node for node, _ in walk(before)}
    copies = {}
    for node, _ in walk(after):
        copy = Node(**(vars(node) | {"children": []}))
        copy.mark = _change(old.get(node.id), node)
        copies[node.id] = copy
    for node, _ in walk(after):
        copies[node.id].children = [copies[child.id] for child in node.children]
    root = copies[after.id]
    for node, _ in walk(before):  # what is gone is drawn where it was
        for child in node.children:
            if child.id not in copies:
                ghost = Node(**(vars(child) | {"children": [], "mark": "gone"}))
                copies[child.id] = ghost
                copies[node.id].children.append(ghost)
    return root


def _change(old: Node | None, new: Node) -> str:
    if old is None:
        return "new"
    if (old.title, old.facts) != (new.title, new.facts):
        return "changed"
    return "used" if old.stamp != new.stamp else ""


def _marked_table(before: Table, after: Table) -> Table:
    old = {row.cells[0]: row.cells for row in before.rows}
    rows = []
    for row in after.rows:
        known = old.pop(row.cells[0], None)
        mark = "new" if known is None else "changed" if known != row.cells else ""
        rows.append(Row(row.cells, mark))
    rows += [Row(cells, "gone") for cells in old.values()]
    return Table(after.caption, after.head, rows)


# As text


def _tree_lines(root: Node) -> Iterator[str]:
    for node, depth in walk(root):
        branch = "   " * (depth - 1) + "└─ " if depth else ""
        stamp = [f"used at {node.stamp}"] if node.stamp else []
        words = [node.title, *node.facts, *stamp, *_said(node.mark)]
        yield branch + "  ".join(words)


def _table_text(table: Table) -> str:
    rows = [table.head] + [[*row.cells, *_said(row.mark)] for row in table.rows]
    widths = [
        max(len(row[i]) for row in rows if i < len(row)) for i in range(len(table.head))
    ]
    lines = [
        "  ".join(
            cell.ljust(widths[i]) if i < len(widths) else cell
            for i, cell in enumerate(row)
        ).rstrip()
        for row in rows
    ]
    return "\n".join([table.caption, *lines, *(["(none)"] * (not table.rows))])


def _said(mark: str) -> list[str]:
    return [f"{SIGNS[mark]} {mark}"] if mark else []


# As a test


class _Test:
    """A pytest module that repeats the steps, and asserts the sizes after each."""

    def __init__(self, setup: list[str]) -> None:
        blank = setup.index("")
        self.imports, self.lines = set(setup[:blank]), setup[blank + 1 :]
        self.sizes: list[Size] = {}

    def done(self, code: list[str], sizes: list[Size]) -> None:
        self.lines += code
        self._assert(sizes)

    def refused(self, code: list[str], error: MiniSGLError, sizes: list[Size]) -> None:
        name = type(error).__name__
        self.imports |= {
            "import pytest",
            f"from {type(error).__module__} import {name}",
        }
        if not code:
            return
        *before, last = code
        self.lines += [*before, f"with pytest.raises({name}):", f"    {last}"]
        self._assert(sizes)

    def text(self) -> str:
        imports = sorted(self.imports, key=lambda line: ("minisgl" in line, line))
        body = [f"    {line}" for line in self.lines]
        return "\n".join([*imports, "", "", "def test_the_steps():", *body, ""])

    def _assert(self, sizes: list[Size]) -> None:
        """Only what a step changes is asserted: the test stays short."""
        for size in sizes:
            if self.sizes.get(size.code) != size.value:
                self.lines.append(f"assert {size.code} == {size.value}")
                self.sizes[size.code] = size.value
