"""Where the definitions of a source file are: lines, headers, docstrings.

Everything works on the source's own lines, found by `ast` positions, so that comments
and formatting survive. Lines are 1-based and inclusive, as `ast` counts them.
"""

from __future__ import annotations

import ast
import io
import textwrap
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass

Function = ast.FunctionDef | ast.AsyncFunctionDef
_BLOCKS = ("body", "orelse", "finalbody", "handlers")


@dataclass(frozen=True)
class Definition:
    """A function, method or class, with its decorators.

    `name` is qualified (`RadixPrefixCache.evict`); `ordinal` counts definitions of the
    same name in one file, as a property and its setter are.
    """

    name: str
    ordinal: int
    node: Function | ast.ClassDef
    source: Source

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.ordinal

    @property
    def is_function(self) -> bool:
        return not isinstance(self.node, ast.ClassDef)

    @property
    def first(self) -> int:
        return min([self.node.lineno, *(d.lineno for d in self.node.decorator_list)])

    @property
    def last(self) -> int:
        """The last line, with the comments that end the body."""
        lines, last = self.source.lines, self.node.end_lineno or self.node.lineno
        for number in range(last + 1, len(lines) + 1):
            line = lines[number - 1]
            if not line.strip():
                continue
            if not (line.lstrip().startswith("#") and _indent(line) > self.indent):
                break
            last = number
        return last

    @property
    def indent(self) -> int:
        return self.node.col_offset

    @property
    def text(self) -> str:
        """The lines of the definition, ending with a newline."""
        return self.source.between(self.first, self.last)

    @property
    def header(self) -> str:
        """`def name(…) -> …:` or `class Name(…):` as written, without decorators."""
        line, column = self._colon()
        lines = self.source.lines[self.node.lineno - 1 : line]
        lines[-1] = lines[-1][:column]
        return textwrap.dedent("\n".join(lines))

    @property
    def header_last(self) -> int:
        return self._colon()[0]

    @property
    def is_one_line(self) -> bool:
        """Whether the body begins on the header's last line."""
        return self.node.body[0].lineno == self.header_last

    @property
    def docstring(self) -> ast.stmt | None:
        return self.node.body[0] if ast.get_docstring(self.node, False) else None

    @property
    def signature(self) -> str:
        """What callers see, in a form that layout does not change."""
        if isinstance(self.node, ast.ClassDef):
            return ast.dump(ast.Tuple(self.node.bases, ast.Load()))
        returns = ast.dump(self.node.returns) if self.node.returns else ""
        return ast.dump(self.node.args) + returns

    def indented(self, indent: int) -> str:
        """The text, moved to another depth."""
        if indent == self.indent:
            return self.text
        return textwrap.indent(textwrap.dedent(self.text), " " * indent)

    def _colon(self) -> tuple[int, int]:
        """Line and column just behind the colon that ends the header."""
        text = self.source.between(self.node.lineno, len(self.source.lines))
        depth = 0
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type != tokenize.OP:
                continue
            depth += (token.string in "([{") - (token.string in ")]}")
            if token.string == ":" and depth == 0:
                return token.end[0] + self.node.lineno - 1, token.end[1]
        raise AssertionError(f"no colon after {self.name}, line {self.node.lineno}")


class Source:
    """One file of Python: its lines, and its definitions in order.

    Raises SyntaxError when the text is not Python.
    """

    def __init__(self, text: str, filename: str = "<source>") -> None:
        self.text = text.replace("\r\n", "\n").replace("\r", "\n")
        self.lines = self.text.split("\n")
        if self.lines[-1] == "":
            self.lines.pop()
        self.tree = ast.parse(self.text, filename)
        self.definitions = list(self._walk(self.tree, "", {}))

    def between(self, first: int, last: int) -> str:
        return "".join(f"{line}\n" for line in self.lines[first - 1 : last])

    def functions(self) -> list[Definition]:
        """Functions of the module and methods of its classes, not nested ones."""
        return [d for d in self.definitions if d.is_function]

    def by_key(self) -> dict[tuple[str, int], Definition]:
        return {d.key: d for d in self.definitions}

    def _walk(
        self, scope: ast.AST, prefix: str, seen: dict[str, int]
    ) -> Iterator[Definition]:
        for node in statements(scope):
            if not isinstance(node, Function | ast.ClassDef):
                continue
            name = prefix + node.name
            yield Definition(name, seen.setdefault(name, 0), node, self)
            seen[name] += 1
            if isinstance(node, ast.ClassDef):
                yield from self._walk(node, f"{name}.", seen)


def statements(scope: ast.AST) -> Iterator[ast.stmt]:
    """The statements of a module or class, also those under `if`, `try` and `with`."""
    for field in _BLOCKS:
        for node in getattr(scope, field, []):
            if isinstance(node, ast.stmt):
                yield node
            if not isinstance(node, Function | ast.ClassDef):
                yield from statements(node)


def is_stub(body: list[ast.stmt]) -> bool:
    """Whether a body has nothing in it: docstring, `...`, `pass`, not implemented."""
    return all(
        isinstance(node, ast.Pass)
        or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        or (isinstance(node, ast.Raise) and _raised(node) == "NotImplementedError")
        for node in body
    )


def _raised(node: ast.Raise) -> str | None:
    value = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
    return value.id if isinstance(value, ast.Name) else None


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
