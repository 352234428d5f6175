"""Puts an accepted answer into a learner's own package.

What a problem's `applies_to` names is taken from the answer, as it is written there,
and takes the place of the same name in the workspace. What it needs comes along: the
answer's imports, its own helper functions and its own helper methods.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from course.errors import CourseError
from course.runner import write_whole
from course.source import Definition, Function, Source, statements

from practice.problems import Problem


def must_have_place(problem: Problem) -> None:
    """Raises CourseError for a problem that is no part of the package."""
    if not problem.applies_to:
        raise CourseError(
            f"{problem.slug} stands alone: no place in the package is named for it",
            "practice/judge.py list shows the others",
        )


def apply(problem: Problem, answer: str, workspace: Path) -> list[str]:
    """Write the answer's definitions into `workspace`: the paths that changed.

    All files are worked out before the first is written, and a write that fails takes
    the others back. Raises CourseError.
    """
    new = changes(problem, answer, _package(workspace))
    old = {path: (workspace / path).read_bytes() for path in new}
    written: list[str] = []
    try:
        for path, text in new.items():
            write_whole(workspace / path, text.encode())
            written.append(path)
    except BaseException:
        for path in written:
            write_whole(workspace / path, old[path])
        raise
    return written


def changes(problem: Problem, answer: str, files: Mapping[str, str]) -> dict[str, str]:
    """Path -> new text of every file that the answer changes."""
    given = Source(answer, f"{problem.slug}.py")  # accepted, so it is Python
    targets: dict[str, list[str]] = {}
    for target in problem.applies_to:
        path, name = _place(target, files)
        targets.setdefault(path, []).append(name)
    new = {}
    for path, names in targets.items():
        text = _changed(given, _source(files[path], path), path, names)
        if text != files[path]:
            new[path] = text
    return new


def _source(text: str, path: str) -> Source:
    try:
        return Source(text, path)
    except (SyntaxError, ValueError) as error:
        raise CourseError(f"your {path} is not Python: {error}", "correct it") from None


def _package(workspace: Path) -> dict[str, str]:
    package = workspace / "minisgl"
    if not package.is_dir():
        raise CourseError(
            f"{workspace} has no minisgl folder in it",
            "tools/steps.py start N makes a workspace for chapter N",
        )
    return {
        path.relative_to(workspace).as_posix(): path.read_text(encoding="utf-8")
        for path in sorted(package.rglob("*.py"))
    }


def _place(target: str, files: Mapping[str, str]) -> tuple[str, str]:
    """The file that a target is in, and its name there."""
    parts = target.split(".")
    for cut in range(len(parts) - 1, 0, -1):
        module = "/".join(["minisgl", *parts[:cut]])
        for path in (f"{module}.py", f"{module}/__init__.py"):
            if path in files:
                return path, ".".join(parts[cut:])
    raise CourseError(
        f"your workspace has no module that {target} could be in",
        "apply to a workspace of this problem's chapter or a later one, with --to",
    )


def _changed(given: Source, theirs: Source, path: str, names: list[str]) -> str:
    """The text of one file with `names` as the answer has them."""
    there = _by_name(theirs)
    seen = set(there)
    edits: list[_Edit] = []
    moved: list[Definition] = []
    for name, definitions in _by_name(given).items():
        if name not in names:
            continue
        if name not in there:
            raise CourseError(
                f"your {path} has no {name}",
                "apply to a workspace of this problem's chapter or a later one",
            )
        old, *more = there[name]
        new = [*definitions, *_own_methods(given, seen, name)]
        text = "\n".join(d.indented(old.indent) for d in new)
        edits.append(_Edit(old.first, old.last, text))
        edits += [_Edit(d.first, d.last, "") for d in more]  # a property's setter
        moved += new
    if extra := _needed(given, theirs, moved):
        line, gap = _import_place(theirs)
        edits.append(_Edit(line, line - 1, gap + extra))
    lines = theirs.lines.copy()
    for edit in sorted(edits, reverse=True):
        lines[edit.first - 1 : edit.last] = edit.text.splitlines()
    text = "\n".join(lines) + "\n"
    ast.parse(text)
    return text


@dataclass(frozen=True, order=True)
class _Edit:
    """Lines `first` to `last` become `text`; an insertion ends before it begins."""

    first: int
    last: int
    text: str


def _by_name(source: Source) -> dict[str, list[Definition]]:
    found: dict[str, list[Definition]] = {}
    for definition in source.definitions:
        found.setdefault(definition.name, []).append(definition)
    return found


def _own_methods(given: Source, seen: set[str], name: str) -> Iterator[Definition]:
    """The methods that a moved one calls and that only the answer's class has."""
    owner, dot, _ = name.rpartition(".")
    known, waiting = _by_name(given), [name]
    while dot and waiting:
        for definition in known[waiting.pop()]:
            for node in ast.walk(definition.node):
                method = (
                    f"{owner}.{node.attr}" if isinstance(node, ast.Attribute) else ""
                )
                if method in known and method not in seen:
                    seen.add(method)
                    waiting.append(method)
                    yield from known[method]


def _needed(given: Source, theirs: Source, moved: list[Definition]) -> str:
    """Imports and helpers of the answer that moved code uses and the file lacks."""
    ours, bound = _bindings(given), _bindings(theirs).keys() | set(dir(builtins))
    imports: list[str] = []
    helpers: list[str] = []
    waiting: list[ast.AST] = [definition.node for definition in moved]
    while waiting:
        for node in ast.walk(waiting.pop(0)):
            name = node.id if isinstance(node, ast.Name) else ""
            if name in bound or name not in ours:
                continue
            bound = bound | {name}
            statement = ours[name]
            if isinstance(statement, ast.Import | ast.ImportFrom):
                imports.append(_import_of(name, statement))
            else:
                first = min([statement.lineno, *_decorator_lines(statement)])
                helpers.append(given.between(first, statement.end_lineno or first))
                waiting.append(statement)
    imports.sort(key=lambda line: (line.startswith("from"), line))
    text = "".join(f"{line}\n" for line in imports)
    return text + "".join(f"\n\n{helper}" for helper in helpers)


def _bindings(source: Source) -> dict[str, ast.stmt]:
    """The names of a module, each with the statement that binds it."""
    bound: dict[str, ast.stmt] = {}
    for node in statements(source.tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            for alias in node.names:
                bound[alias.asname or alias.name.partition(".")[0]] = node
        elif isinstance(node, Function | ast.ClassDef):
            bound[node.name] = node
        else:
            for part in ast.walk(node):
                if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
                    bound[part.id] = node
    return bound


def _import_of(name: str, statement: ast.Import | ast.ImportFrom) -> str:
    """The import of one name alone."""
    alias = next(
        a for a in statement.names if name in (a.asname, a.name.partition(".")[0])
    )
    what = alias.name + (f" as {alias.asname}" if alias.asname else "")
    if isinstance(statement, ast.Import):
        return f"import {what}"
    return f"from {'.' * statement.level}{statement.module or ''} import {what}"


def _decorator_lines(statement: ast.stmt) -> list[int]:
    return [d.lineno for d in getattr(statement, "decorator_list", [])]


def _import_place(source: Source) -> tuple[int, str]:
    """The line where imports may go, and what must stand before them."""
    body = source.tree.body
    ends = [
        node.end_lineno or 0
        for node in body
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    if ends:
        return max(ends) + 1, ""
    if ast.get_docstring(source.tree):
        return (body[0].end_lineno or 0) + 1, "\n"
    return 1, ""
