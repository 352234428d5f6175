"""The package as a page sees it: files, definitions and their history, by chapter."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from course.manifest import Chapter, Course
from course.pages.errors import Unknown
from course.source import Definition, Source, statements
from course.stack import PACKAGE, Stack

HEAD = ":head"  # of a file or a class: what is above its first definition
REST = ":rest"  # of a file: what is between and below its definitions
_HUNK = re.compile(rb"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@")


@dataclass(frozen=True)
class Span:
    """Lines of a file, 1-based and inclusive."""

    first: int
    last: int

    def __contains__(self, line: int) -> bool:
        return self.first <= line <= self.last


class Text:
    """A file that pages show parts of; `source` is None when it is no Python."""

    def __init__(self, path: str, content: bytes) -> None:
        self.path = path
        self.text = content.decode()
        self.lines = self.text.splitlines()

    @cached_property
    def source(self) -> Source | None:
        return Source(self.text, self.path) if self.path.endswith(".py") else None

    @property
    def whole(self) -> Span:
        return Span(1, len(self.lines))

    def between(self, span: Span) -> list[str]:
        return self.lines[span.first - 1 : span.last]

    @cached_property
    def spans(self) -> Mapping[str, Sequence[Span]]:
        """What has a name: definitions, assigned names, `:head`, `Class:head`."""
        if self.source is None:
            return {HEAD: [self.whole]}
        found: dict[str, list[Span]] = {}
        for definition in self.source.definitions:
            found.setdefault(definition.name, []).append(self._span(definition))
            if not definition.is_function:
                found[f"{definition.name}{HEAD}"] = [self._class_head(definition)]
        for name, node in self._assigned():
            span = Span(self._with_comment(node.lineno), node.end_lineno or node.lineno)
            found.setdefault(name, []).append(span)
        first = min((s.first for s in self._definitions_spans()), default=0)
        found[HEAD] = [self._trimmed(1, first - 1 if first else len(self.lines))]
        return found

    def find(self, name: str) -> Sequence[Span]:
        """The lines of a name; `Unknown` names the nearest one."""
        if name not in self.spans:
            raise Unknown(f"{self.path} has no {name} here", name, self.spans)
        return self.spans[name]

    def unit(self, line: int) -> str:
        """The innermost name that holds a line, or `:rest`."""
        best: tuple[int, str] | None = None
        for name, spans in self.spans.items():
            for span in spans:
                if line in span and not self._is_value(name):
                    size = span.last - span.first
                    if best is None or size < best[0]:
                        best = size, name
        return best[1] if best else REST

    def before(self, name: str) -> str | None:
        """The definition just above `name` in the same class or module."""
        if self.source is None:
            return None
        scope = name.rpartition(".")[0]
        above = None
        for definition in self.source.definitions:
            if definition.name == name:
                return above
            if definition.name.rpartition(".")[0] == scope:
                above = definition.name
        return None

    def _is_value(self, name: str) -> bool:
        """Whether a name is an assigned one: part of the head that holds it."""
        assert self.source is not None or name == HEAD
        if self.source is None or name.endswith(HEAD):
            return False
        return name not in {d.name for d in self.source.definitions}

    def _definitions_spans(self) -> list[Span]:
        return [self._span(d) for d in self.source.definitions] if self.source else []

    def _span(self, definition: Definition) -> Span:
        return Span(self._with_comment(definition.first), definition.last)

    def _class_head(self, definition: Definition) -> Span:
        """A class up to its first method."""
        prefix = f"{definition.name}."
        assert self.source is not None
        inner = [d for d in self.source.definitions if d.name.startswith(prefix)]
        first = self._with_comment(definition.first)
        if not inner:
            return Span(first, definition.last)
        start = min(self._with_comment(d.first) for d in inner)
        return self._trimmed(first, start - 1)

    def _with_comment(self, line: int) -> int:
        """The first line of the comment that stands right above a line."""
        indent = _indent(self.lines[line - 1])
        while line > 1:
            above = self.lines[line - 2]
            if not above.lstrip().startswith("#") or _indent(above) != indent:
                break
            line -= 1
        return line

    def _trimmed(self, first: int, last: int) -> Span:
        while last > first and not self.lines[last - 1].strip():
            last -= 1
        return Span(first, last)

    def _assigned(self) -> Iterator[tuple[str, ast.stmt]]:
        """Names assigned at the level of the module or of a class."""
        assert self.source is not None
        scopes: list[tuple[str, ast.AST]] = [("", self.source.tree)]
        for definition in self.source.definitions:
            if not definition.is_function:
                scopes.append((f"{definition.name}.", definition.node))
        for prefix, scope in scopes:
            for node in statements(scope):
                targets = []
                if isinstance(node, ast.Assign):
                    targets = node.targets
                elif isinstance(node, ast.AnnAssign):
                    targets = [node.target]
                for target in targets:
                    for name in ast.walk(target):
                        if isinstance(name, ast.Name):
                            yield prefix + name.id, node


class Stages:
    """The stages of a course, and the files of the repository beside them."""

    def __init__(self, course: Course) -> None:
        self.course = course
        self.stack = Stack(course)
        self.files = cache(self.stack.files)
        self.text = cache(self._text)
        self.repo_text = cache(self._repo_text)
        self.added = cache(self._added)
        self.changed = cache(self._changed)

    def path(self, number: int, path: str) -> str:
        """The full path of a package file, given with or without `minisgl/`."""
        files = self.files(number)
        full = path if path.startswith(f"{PACKAGE}/") else f"{PACKAGE}/{path}"
        if full not in files:
            raise Unknown(f"stage {number} has no {path}", path, files)
        return full

    def before(self, number: int) -> Mapping[str, bytes]:
        """The files of the stage before chapter `number`."""
        return self.files(self.course.previous(number))

    def removed(self, number: int) -> list[str]:
        return [p for p in self.before(number) if p not in self.files(number)]

    def versions(self, path: str) -> list[Chapter]:
        """The chapters that add or change a file, in order."""
        return [c for c in self.course.chapters if path in self.changed(c.number)]

    def version(self, number: int, path: str) -> Chapter:
        """The chapter whose version of the file stage `number` has."""
        return [c for c in self.versions(path) if c.number <= number][-1]

    def since(self, number: int, path: str, names: Sequence[str]) -> Chapter:
        """The last chapter up to `number` that changed these names of a file."""
        chapters = [c for c in self.versions(path) if c.number <= number]
        now = self._pieces(number, path, names)
        for chapter in reversed(chapters):
            before = self.course.previous(chapter.number)
            if self._pieces(before, path, names) != now:
                return chapter
        return chapters[0]

    def is_new(self, number: int, path: str, names: Sequence[str]) -> bool:
        """Whether none of the names was in the file one chapter earlier."""
        before = self.course.previous(number)
        return not any(self._pieces(before, path, [name])[0] for name in names)

    def _pieces(self, number: int, path: str, names: Sequence[str]) -> list[list[str]]:
        if path not in self.files(number):
            return [[] for _ in names or [""]]
        text = self.text(number, path)
        if not names:
            return [text.lines]
        return [
            [line for span in text.spans.get(name, ()) for line in text.between(span)]
            for name in names
        ]

    def _changed(self, number: int) -> list[str]:
        """The files a chapter adds or changes, sorted."""
        before = self.before(number)
        return [p for p, c in self.files(number).items() if before.get(p) != c]

    def _text(self, number: int, path: str) -> Text:
        return Text(path, self.files(number)[path])

    def _repo_text(self, path: str) -> Text:
        """A file outside the package: an example, a test, a recording."""
        file = Path(self.course.root, path)
        if not file.is_file():
            folder = file.parent
            known = [p.name for p in folder.iterdir()] if folder.is_dir() else []
            raise Unknown(f"there is no {path}", file.name, known)
        return Text(path, file.read_bytes())

    def _added(self, number: int, path: str) -> frozenset[int]:
        """The lines of a file, 1-based, that the chapter's diff adds."""
        diff = self.stack.shown_diff(number, path)
        added, line = set(), 0
        for text in diff.split(b"\n"):
            if hunk := _HUNK.match(text):
                line = int(hunk[1])
            elif line and text.startswith(b"+"):
                added.add(line)
                line += 1
            elif line and text[:1] in (b" ", b""):  # git writes a blank line bare
                line += 1
        return frozenset(added)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())
