"""Names in code style: which of them does a stage not have?

Looked up are paths (`kvcache/base.py`, `kvcache/`), dotted names (`Req.extend_len`),
calls (`align_down(n, page_size)`), names in CamelCase and in snake_case. Anything else
in code style (an expression, an option, a value) is not looked at.
"""

from __future__ import annotations

import ast
import builtins
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

from course.manifest import Chapter
from course.modules import definition
from course.pages.errors import nearest
from course.pages.stages import Stages
from course.source import statements
from course.stack import PACKAGE

_PATH = re.compile(r"[\w.-]+(?:/[\w.*-]+)*(?:\.(?:py|md|toml|patch|out|txt|yml|sh)|/)")
_DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+")
_CALL = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\(.*\)", re.DOTALL)
_CAMEL = re.compile(r"[A-Z]\w*[a-z]\w*[A-Z]\w*")
_SNAKE = re.compile(r"_?[a-z][a-z0-9]*(?:_[a-z0-9]+)+|_[a-z][a-z0-9]*")
_SHARED = ("examples/helper.py",)
_TYPES = (str, bytes, list, dict, set, tuple, int, float, BaseException)


@dataclass(frozen=True)
class Names:
    """What the pages of one chapter may name in code style."""

    files: Mapping[str, bytes]  # of the stage
    beside: frozenset[str]  # paths of the repository outside the package
    classes: Mapping[str, frozenset[str]]  # class -> its attributes, bases' included
    open_classes: frozenset[str]  # with a base that is not of the stage
    identifiers: frozenset[str]  # every name in the stage, its tests and examples
    modules: frozenset[str]  # roots of imports: torch, array, minisgl
    parts: frozenset[str]  # folders and modules of the package: kvcache, radix_cache

    def fault(self, text: str) -> str | None:
        """What is wrong with a text in code style; None for a good or a free one."""
        if _PATH.fullmatch(text) and not text.startswith("/"):
            return self._path_fault(text)
        if call := _CALL.fullmatch(text):
            text = call[1]
            if "." not in text:
                return self._identifier_fault(text)
        if _DOTTED.fullmatch(text):
            return self._dotted_fault(text)
        if _CAMEL.fullmatch(text) or _SNAKE.fullmatch(text):
            return self._identifier_fault(text)
        return None

    def _path_fault(self, text: str) -> str | None:
        known = [*self.files, *self.beside]
        for path in known:
            whole = f"/{path}"
            if (
                f"/{text}" in whole
                if text.endswith("/")
                else whole.endswith(f"/{text}")
            ):
                return None
        return f"this stage has no {text}{nearest(text, known)}"

    def _dotted_fault(self, text: str) -> str | None:
        first, *rest = text.split(".")
        if first in self.classes:
            return self._class_fault(text, first, rest)
        inside = text.removeprefix(f"{PACKAGE}.")
        if text == PACKAGE or self._is_module(inside) or definition(self.files, inside):
            return None
        if first == PACKAGE:
            return self._module_fault(text, inside)
        if first in self.modules or hasattr(builtins, first):
            return None
        for part in rest:
            if fault := self._identifier_fault(part):
                return fault
        return None if first[0].islower() or first == "_" else self._first(text, first)

    def _class_fault(self, text: str, first: str, rest: list[str]) -> str | None:
        if rest[0] in self.classes[first] or rest[0].startswith("__"):
            return None
        if first in self.open_classes and rest[0] in self.identifiers:
            return None
        known = [f"{first}.{name}" for name in sorted(self.classes[first])]
        return f"{first} has no {rest[0]} at this stage{nearest(text, known)}"

    def _module_fault(self, text: str, inside: str) -> str:
        known = [
            f"{_module(path)}.{name}"
            for path in self.files
            if path.endswith(".py")
            for name in _defined(self.files[path])
        ]
        return f"this stage has no {text}{nearest(inside, known)}"

    def _is_module(self, name: str) -> bool:
        stem = f"{PACKAGE}/{name.replace('.', '/')}"
        return f"{stem}.py" in self.files or f"{stem}/__init__.py" in self.files

    def _identifier_fault(self, name: str) -> str | None:
        if name in self.identifiers or name in self.modules or name in self.parts:
            return None
        if hasattr(builtins, name) or any(hasattr(kind, name) for kind in _TYPES):
            return None
        return f"this stage has no {name}{nearest(name, self.identifiers)}"

    def _first(self, text: str, first: str) -> str | None:
        if first in self.identifiers:
            return None
        return f"this stage has no {text}{nearest(first, self.classes)}"


def names_of(stages: Stages, chapter: Chapter, beside: Iterable[str]) -> Names:
    """What exists at a chapter: its stage, and the tests and examples up to it."""
    files = stages.files(chapter.number)
    through = stages.course.through(chapter.number)
    more = [p for c in through for p in (c.example, *c.tests)] + list(_SHARED)
    texts = [c for p, c in files.items() if p.endswith(".py")]
    for path in more:
        file = stages.course.root / path
        if file.is_file():
            texts.append(file.read_bytes())
    classes, bases = _classes(files)
    parts = {part for path in files for part in path.removesuffix(".py").split("/")}
    parts |= {c.slug for c in through} | {c.stem for c in through}
    parts |= {path.rpartition("/")[2].removesuffix(".py") for path in more}
    read = [_read(text) for text in texts]
    return Names(
        files=files,
        beside=frozenset(beside),
        classes={name: _inherited(name, classes, bases) for name in classes},
        open_classes=frozenset(n for n in classes if _is_open(n, bases)),
        identifiers=frozenset(name for names, _ in read for name in names),
        modules=frozenset(name for _, names in read for name in names)
        | sys.stdlib_module_names,
        parts=frozenset(parts),
    )


@cache
def _read(content: bytes) -> tuple[frozenset[str], frozenset[str]]:
    """(every identifier, roots of imports) of one file."""
    names, roots = set(), set()
    for node in ast.walk(ast.parse(content)):
        names |= set(_identifiers(node))
        if isinstance(node, ast.Import):
            roots |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            roots.add(node.module.partition(".")[0])
    return frozenset(names), frozenset(roots)


def _identifiers(node: ast.AST) -> Iterator[str]:
    for field in ("id", "attr", "arg", "name", "asname", "module"):
        value = getattr(node, field, None)
        if isinstance(value, str):
            yield from value.split(".")
    # keys of dicts and of files, and values of Literals
    text = node.value if isinstance(node, ast.Constant) else None
    if isinstance(text, str) and re.fullmatch(r"\w{1,40}", text):
        yield text


def _classes(
    files: Mapping[str, bytes],
) -> tuple[dict[str, set[str]], dict[str, list[str]]]:
    """Class -> attributes it defines itself; class -> its bases by name."""
    attributes: dict[str, set[str]] = {}
    bases: dict[str, list[str]] = {}
    for path, content in files.items():
        if not path.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(content)):
            if isinstance(node, ast.ClassDef):
                attributes.setdefault(node.name, set()).update(_attributes(node))
                named = [
                    b.attr if isinstance(b, ast.Attribute) else b for b in node.bases
                ]
                bases.setdefault(node.name, []).extend(map(_base_name, named))
    return attributes, bases


def _base_name(base: ast.expr) -> str:
    """`Base`, `module.Base` and `Base[T]` are `Base`."""
    if isinstance(base, ast.Subscript):
        base = base.value
    return getattr(base, "attr", getattr(base, "id", "?"))


def _attributes(scope: ast.ClassDef) -> Iterator[str]:
    for node in statements(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            yield from (n.id for t in targets for n in ast.walk(t) if _is_name(n))
    for node in ast.walk(scope):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value  # __slots__


def _is_name(node: ast.AST) -> bool:
    return isinstance(node, ast.Name)


def _inherited(
    name: str, classes: Mapping[str, set[str]], bases: Mapping[str, list[str]]
) -> frozenset[str]:
    found, left = set(), [name]
    seen = set()
    while left:
        at = left.pop()
        if at not in seen:
            seen.add(at)
            found |= classes.get(at, set())
            left += bases.get(at, [])
    return frozenset(found)


def _is_open(name: str, bases: Mapping[str, list[str]]) -> bool:
    plain = {"ABC", "object", "Protocol", "Generic"}
    left, seen = list(bases[name]), {name}
    while left:
        base = left.pop()
        if base in plain or base in seen:
            continue
        if base not in bases:
            return True
        seen.add(base)
        left += bases[base]
    return False


def _module(path: str) -> str:
    inside = path.removeprefix(f"{PACKAGE}/").removesuffix(".py")
    return inside.removesuffix("/__init__").replace("/", ".")


def _defined(content: bytes) -> Iterator[str]:
    for node in ast.parse(content).body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
